//! Whether a script is fit for use: before it sees a trial, and without one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    cases,
    fault::{Fault, FaultKind, one_line},
    host::{Child, Host},
    limits::Limits,
    view::{Change, Hook, Knob, Move, Trace, Trial},
    wire::Question,
};

/// The whole may take as long as so many calls at their limit: who is slow in each would hold up every trial.
const SLOW_CALLS: u32 = 15;
/// In how many places of one trace the hooks are called.
const PLACES: usize = 12;
/// Candidates in one `rank`.
const CANDIDATES: usize = 4;

/// A script that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// The hooks that it has.
    pub hooks: BTreeSet<Hook>,
    /// Its unit cases.
    pub cases: usize,
    /// How often each hook was called in the replay.
    pub calls: BTreeMap<Hook, u64>,
}

/// Why a script is not fit for use: one line from which its writer can repair it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What kind of failure; `None`: it has no cases, or one of them does not hold.
    pub kind: Option<FaultKind>,
    /// Where it showed, what happened, and where it can be told what would have been right.
    pub message: String,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Rejection {}

impl From<Fault> for Rejection {
    fn from(fault: Fault) -> Self {
        Self { kind: Some(fault.kind), message: fault.to_string() }
    }
}

fn rejected(message: impl AsRef<str>) -> Rejection {
    Rejection { kind: None, message: one_line(message.as_ref()) }
}

/// Parses a script, runs its unit cases, and replays recorded trials to it in two processes: each answer has to be
/// legal, within the limits, and the same in both, and `rank` has to put the same candidate first whatever their
/// order. An empty trace and a made-up one are replayed as well.
///
/// Errors: the first thing that is wrong.
pub fn validate(
    child: &Child,
    script: &str,
    limits: &Limits,
    past: &[Trace],
) -> Result<Validated, Rejection> {
    let clock = Clock { until: Instant::now() + SLOW_CALLS * limits.wall, most: SLOW_CALLS * limits.wall };
    let mut host = Host::start(child, script, limits)?;
    let cases = host.cases().map_err(|fault| Rejection::from(fault).in_place("cases"))?;
    let cases = cases::read(cases).map_err(rejected)?;
    if cases.is_empty() {
        return Err(rejected("no unit case; declare `fn cases()` with an array of at least one"));
    }
    for case in &cases {
        if !host.hooks().contains(&case.hook()) {
            return Err(rejected(format!("case `{}`: the script has no {}", case.name(), case.hook())));
        }
        let place = format!("case `{}`", case.name());
        let held = clock
            .check()
            .and_then(|()| case.run(&mut host))
            .map_err(|fault| Rejection::from(fault).in_place(&place))?;
        held.map_err(|wrong| rejected(format!("{place}: {wrong}")))?;
    }
    let other = Host::start(child, script, limits)?;
    let hooks = host.hooks().clone();
    let mut replay = Replay { pair: [host, other], calls: BTreeMap::new(), clock };
    for (trace, name) in
        [(Trace::default(), "the empty trace".to_owned()), (made_up(), "the made-up trace".into())]
    {
        replay.trace(&trace, &name)?;
    }
    for (index, trace) in past.iter().enumerate() {
        replay.trace(trace, &format!("trace {index}"))?;
    }
    Ok(Validated { hooks, cases: cases.len(), calls: replay.calls })
}

/// The same questions to two processes.
struct Replay {
    pair: [Host; 2],
    calls: BTreeMap<Hook, u64>,
    clock: Clock,
}

/// How long all of it may take.
struct Clock {
    until: Instant,
    most: Duration,
}

impl Clock {
    fn check(&self) -> Result<(), Fault> {
        match Instant::now() < self.until {
            true => Ok(()),
            false => {
                Err(Fault::new(FaultKind::Time, format!("cases and replay take longer than {:?}", self.most)))
            }
        }
    }
}

impl Replay {
    /// Replays one trace: `record` for each of its trials, the other hooks in some places of it.
    fn trace(&mut self, whole: &Trace, name: &str) -> Result<(), Rejection> {
        let n = whole.trials.len();
        let mut state = json!({});
        for k in 0..=n {
            let place = format!("replay of {name} after {k} of {n} trials");
            if let Some(last) = k.checked_sub(1)
                && let Some(after) = self.ask(Question::Record(&whole.trials[last]), &state, None, &place)?
            {
                state = after;
            }
            if k * PLACES / n.max(1) != (k + 1) * PLACES / n.max(1) || k == n {
                self.hooks(&so_far(whole, k), &whole.trials[k..], &state, &place)?;
            }
        }
        Ok(())
    }

    fn hooks(&mut self, trace: &Trace, next: &[Trial], state: &Value, place: &str) -> Result<(), Rejection> {
        self.ask(Question::Guide, state, Some(trace), place)?;
        self.ask(Question::Suggest(&trace.knobs), state, Some(trace), place)?;
        let allowed: Vec<u64> = trace.trials.iter().rev().take(8).map(|trial| trial.trial).collect();
        if !allowed.is_empty() {
            self.ask(Question::Parent(&allowed), state, Some(trace), place)?;
        }
        // at the end of a trace, what was tried before is proposed again
        let coming = next.iter().chain(&trace.trials).map(|trial| trial.change.clone());
        let candidates: Vec<Change> = coming.take(CANDIDATES).collect();
        for change in &candidates {
            self.ask(Question::Veto(change), state, Some(trace), place)?;
        }
        if candidates.len() > 1 {
            self.ranks(candidates, trace, state, place)?;
        }
        Ok(())
    }

    fn ranks(
        &mut self,
        candidates: Vec<Change>,
        trace: &Trace,
        state: &Value,
        place: &str,
    ) -> Result<(), Rejection> {
        let reversed: Vec<Change> = candidates.iter().rev().cloned().collect();
        let one = self.ask(Question::Rank(&candidates), state, Some(trace), place)?;
        let other = self.ask(Question::Rank(&reversed), state, Some(trace), place)?;
        let first = |order: Option<Value>, of: &[Change]| {
            let index = order?.get(0)?.as_u64()?;
            of.get(usize::try_from(index).ok()?).cloned()
        };
        if first(one, &candidates) != first(other, &reversed) {
            let fault = Fault::new(
                FaultKind::Nondeterministic,
                "the candidates in reverse order put another one first; break ties by what a candidate is, such \
                 as its description",
            );
            return Err(Rejection::from(fault.at(Hook::Rank)).in_place(place));
        }
        Ok(())
    }

    /// One question to both, where the script has the hook; their one answer.
    fn ask(
        &mut self,
        question: Question<'_>,
        state: &Value,
        trace: Option<&Trace>,
        place: &str,
    ) -> Result<Option<Value>, Rejection> {
        let hook = question.hook();
        if !self.pair[0].hooks().contains(&hook) {
            return Ok(None);
        }
        let fault = |fault: Fault| Rejection::from(fault.at(hook)).in_place(place);
        self.clock.check().map_err(fault)?;
        let [one, other] = &mut self.pair;
        let answer = |host: &mut Host| host.raw(question, state, trace).map_err(fault);
        let (one, other) = (answer(one)?, answer(other)?);
        if one != other {
            let message = format!("answers {one}, and then {other}");
            return Err(fault(Fault::new(FaultKind::Nondeterministic, message)));
        }
        *self.calls.entry(hook).or_default() += 1;
        Ok(Some(one))
    }
}

impl Rejection {
    fn in_place(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }
}

/// A trace as it was after its first `k` trials.
fn so_far(whole: &Trace, k: usize) -> Trace {
    let trials = whole.trials[..k].to_vec();
    let keep = trials.iter().rposition(|trial| trial.status == "keep");
    Trace {
        champion: keep.map_or(0, |at| trials[at].trial),
        plateau: keep.map_or(0, |at| k - 1 - at) as u64,
        trials,
        seed: whole.seed.wrapping_add(k as u64),
        ..whole.clone()
    }
}

/// A short night with all that there can be: each kind of knob, a frozen one, keeps, discards, a crash, a change
/// without moves, an excursion.
fn made_up() -> Trace {
    let number = |name: &str, kind: &str, value: Value, at, low, high| Knob {
        name: name.into(),
        kind: kind.into(),
        value,
        at,
        low: Some(low),
        high: Some(high),
        tried: 2,
        kept: 1,
        ..Knob::default()
    };
    let knobs = vec![
        number("LR", "log", json!(0.02), 0.5, 0.002, 0.2),
        number("DECAY", "lin", json!(0.0), 0.0, 0.0, 0.5),
        number("DEPTH", "int", json!(8), 1.0, 2.0, 8.0),
        number("BATCH", "pow2", json!(65536), 0.5, 16384.0, 262_144.0),
        Knob { frozen: true, ..number("WARMUP", "lin", json!(0.1), 0.2, 0.0, 0.5) },
        Knob {
            name: "ACTIVATION".into(),
            kind: "choice".into(),
            value: json!("relu2"),
            choices: vec!["relu2".into(), "swiglu".into()],
            ..Knob::default()
        },
    ];
    let changes = [
        ("keep", None, None),
        ("keep", Some(0.002), Some(("LR", json!(0.01), json!(0.02), 0.15))),
        ("discard", Some(-0.001), Some(("BATCH", json!(65536), json!(131_072), 0.25))),
        ("discard", Some(-0.0015), Some(("BATCH", json!(65536), json!(131_072), 0.25))),
        ("crash", None, Some(("BATCH", json!(65536), json!(262_144), 0.5))),
        ("keep", Some(0.001), Some(("ACTIVATION", json!("swiglu"), json!("relu2"), 1.0))),
        ("discard", Some(-0.0002), Some(("DECAY", json!(0.0), json!(0.05), 0.1))),
        ("discard", Some(0.0), None),
        ("discard", Some(-0.003), Some(("LR", json!(0.02), json!(0.05), 0.2))),
        ("discard", Some(-0.0004), Some(("DEPTH", json!(8), json!(7), -0.17))),
    ];
    let trials = changes.into_iter().zip(1..).map(|((status, gain, moved), trial)| Trial {
        trial,
        status: status.into(),
        outcome: match status {
            "keep" => "improved".into(),
            "crash" => "crashed".into(),
            _ => "worse".into(),
        },
        gain,
        seconds: 300.0,
        change: Change {
            proposer: "llm".into(),
            description: format!("change {trial}"),
            category: if moved.is_some() { "optimizer".into() } else { "architecture".into() },
            class: if moved.is_some() { "constant".into() } else { "structural".into() },
            files: vec!["train/src/model.rs".into()],
            moves: moved
                .into_iter()
                .map(|(name, from, to, by)| Move { name: name.into(), from, to, by })
                .collect(),
            expected_gain: (trial % 2 == 0).then_some(0.001),
        },
        parent: (trial > 1).then_some(trial - 1),
        excursion: (trial == 9).then_some(7),
    });
    Trace { trials: trials.collect(), champion: 6, sigma: Some(0.0009), plateau: 4, knobs, seed: 1 }
}
