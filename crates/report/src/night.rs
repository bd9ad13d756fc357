//! What a report shows, as plain data. The driver gathers it; nothing here is cleaned.
//!
//! Values and deltas are in the metric's own unit and sign; times are RFC 3339 in UTC. A `gain` is positive
//! where it is better, whichever way the metric goes.

use serde::Serialize;

/// One tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Night {
    /// The task's name.
    pub task: String,
    /// The tag.
    pub tag: String,
    /// The metric's name.
    pub metric: String,
    /// Whether a lower value is better.
    pub lower_is_better: bool,
    /// The profile, for a task that has them.
    pub profile: Option<String>,
    /// The device, for example `cpu` or `NVIDIA H200`.
    pub device: Option<String>,
    /// When this was gathered.
    pub made: String,
    /// Whether a run is under way.
    pub running: bool,
    /// Why the last run ended; `None` while one is running.
    pub ended: Option<String>,
    /// The figures at the top.
    pub headline: Headline,
    /// Every finished trial, oldest first; numbers ascend without gaps from 1.
    pub trials: Vec<Trial>,
    /// The versions of `program.md` in the order in which they came into force; one that came back stands twice.
    pub briefs: Vec<Brief>,
    /// What proposers have learnt, the surest first.
    pub lessons: Vec<Lesson>,
    /// The mechanisms that this tag has used.
    pub mechanisms: Vec<Mechanism>,
    /// What kinds of change were tried, the most tried first.
    pub categories: Vec<Kind>,
    /// How deep the edits went.
    pub classes: Vec<Kind>,
    /// What may say no, in the order in which a candidate meets it.
    pub gates: Vec<Gate>,
    /// Trials that a person should read whole, at most three.
    pub to_read: Vec<ToRead>,
    /// What proposers predicted and what came, by proposer.
    pub calibration: Vec<Calibration>,
}

/// The figures at the top.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Headline {
    /// The champion's trial.
    pub champion: Option<u64>,
    /// The champion's value, the mean of its runs.
    pub best: Option<f64>,
    /// The baseline's value.
    pub baseline: Option<f64>,
    /// Gain of the champion over the baseline.
    pub gain: Option<f64>,
    /// Half the width of its 95 % interval, from σ and the number of runs of both.
    pub gain_within: Option<f64>,
    /// The same gain on rows that no verdict saw; `None` while there was no audit.
    pub audited_gain: Option<f64>,
    /// σ of one run.
    pub sigma: Option<f64>,
    /// Finished trials.
    pub trials: usize,
    /// Of these, kept.
    pub keeps: usize,
    /// Of these, scored and not kept.
    pub discards: usize,
    /// Of these, without a score.
    pub crashes: usize,
    /// Keeps (the baseline is none) that nobody has reviewed.
    pub unreviewed: usize,
    /// Training time as a share of the time of runs, 0 to 1.
    pub duty_cycle: Option<f64>,
    /// Wall clock of all runs, seconds, pauses left out.
    pub seconds: f64,
    /// Tokens that proposers have used.
    pub tokens: u64,
    /// US dollars that they cost, where that is known.
    pub usd: Option<f64>,
}

/// One finished trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trial {
    /// Its number; 1 is the first baseline.
    pub trial: u64,
    /// `keep`, `discard` or `crash`.
    pub status: Status,
    /// The verdict's word: `baseline`, `improved`, `within_noise`, `build_failed` and so on.
    pub outcome: String,
    /// The verdict in a sentence.
    pub reason: String,
    /// The mean of `values`; `None` for a crash.
    pub value: Option<f64>,
    /// One value a run.
    pub values: Vec<f64>,
    /// Value minus the champion's at that time.
    pub delta: Option<f64>,
    /// What the proposer expected `delta` to be.
    pub expected_delta: Option<f64>,
    /// The verdict's numbers as (name, figure), in reading order: rule, gain needed, errors, σ and so on.
    pub numbers: Vec<(String, String)>,
    /// What it does, in a line.
    pub description: String,
    /// Why it should help.
    pub hypothesis: String,
    /// What kind of change it is; empty where nobody said.
    pub category: String,
    /// How deep the edit goes: `constant`, `local`, `structural`; empty for a baseline.
    pub class: String,
    /// Who proposed it.
    pub proposer: String,
    /// The trial it was made from.
    pub parent: Option<u64>,
    /// Its commit, seven digits.
    pub commit: Option<String>,
    /// Seconds from the candidate to the verdict.
    pub seconds: f64,
    /// Peak memory, GB.
    pub memory_gb: f64,
    /// Tokens trained on, millions.
    pub tokens_m: Option<f64>,
    /// Model FLOPs utilisation, percent.
    pub mfu_percent: Option<f64>,
    /// Lines added on balance.
    pub lines_added: Option<i64>,
    /// When it ended.
    pub ended: String,
    /// Where its gain comes from, in a sentence.
    pub attribution: Option<String>,
    /// What else the record says as (name, text): hint, strategy, mechanisms, excursion, carried trials.
    pub notes: Vec<(String, String)>,
    /// What a person decided of a keep: `accepted`, `rejected` or `deferred`.
    pub review: Option<String>,
    /// Its edit as a unified diff, of a long one the beginning.
    #[serde(skip)]
    pub diff: String,
    /// The end of a crash's log, a line each.
    #[serde(skip)]
    pub log: Vec<String>,
    /// Its loss curve as (tokens, nats a token), tokens ascending; thinned, and empty where there is none.
    #[serde(skip)]
    pub curve: Vec<(f64, f64)>,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It became the champion.
    Keep,
    /// It was scored and not kept.
    #[default]
    Discard,
    /// It has no score.
    Crash,
}

impl Status {
    /// As `results.tsv` has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Discard => "discard",
            Self::Crash => "crash",
        }
    }
}

/// A version of `program.md`, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Brief {
    /// The first trial under it.
    pub from: u64,
    /// The last one so far.
    pub to: u64,
    /// Keeps among them, the baseline left out.
    pub keeps: usize,
    /// What the champion gained meanwhile.
    pub gain: Option<f64>,
    /// What changed against the version before, as a unified diff; of the first, its whole text as additions.
    pub diff: String,
}

/// Something that proposers have learnt. Judges never see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lesson {
    /// In a sentence.
    pub text: String,
    /// How sure its author is, 0 to 1.
    pub confidence: Option<f64>,
    /// The trials it rests on.
    pub trials: Vec<u64>,
}

/// A mechanism of the search.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Mechanism {
    /// Its name in the library.
    pub id: String,
    /// What it is, in a line.
    pub what: String,
    /// `canary`, `trial`, `adopted`, `retired`, `faulted`, `disabled`; as the tag has it.
    pub standing: String,
    /// Why.
    pub reason: String,
    /// Whether nothing of it was ever used.
    pub inactive: bool,
    /// (hook, calls, answers that were used).
    pub hooks: Vec<(String, u64, u64)>,
    /// Trials with it on, and meanwhile with it off.
    pub trials: [usize; 2],
    /// Gain a minute with it on minus that with it off.
    pub effect: Option<f64>,
}

/// A kind of change.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// Trials.
    pub tried: u64,
    /// Of these, kept.
    pub kept: u64,
    /// Of these, without a score.
    pub crashed: u64,
}

/// Something that may say no.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Gate {
    /// Its name.
    pub name: String,
    /// What it holds off, in a few words.
    pub what: String,
    /// Candidates that came before it.
    pub asked: u64,
    /// Of these, refused.
    pub refused: u64,
    /// The latest of its refusals, in its own words.
    pub latest: Option<String>,
    /// Whether it has been asked often enough that its silence is worth a look.
    pub never_said_no: bool,
}

/// A trial that a person should read whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ToRead {
    /// Its number.
    pub trial: u64,
    /// Why this one, for example `the largest gain`.
    pub why: String,
}

/// How one proposer's predictions compare with what was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Calibration {
    /// Its name.
    pub proposer: String,
    /// Trials with a prediction and a value.
    pub predictions: u64,
    /// Of these, of the right sign.
    pub right: u64,
    /// Mean of |measured − expected|.
    pub error: f64,
    /// Mean of what was hoped for beyond what came, as a gain; positive is too hopeful.
    pub too_hopeful: f64,
}
