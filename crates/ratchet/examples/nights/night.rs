//! One night in a world whose truth is known, judged by a rule.
//!
//! All rules get the same number of runs: a replicate costs what a trial costs. The rule of this crate is
//! the real [`verdict`], fed as the driver feeds it.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Exp1, LogNormal, StandardNormal};
use ratchet::{
    history::replicates,
    noise::{Noise, Replicates, Runs, Value},
    risk::Risk,
    run::is_rerun_due,
    verdict::{Decision, IMPROVED, Outcome, PROMISING, Policy, Score, Scored, verdict},
};

/// The noise that was published for `full`, and the unit of effects.
pub(crate) const SIGMA: f64 = 0.0009;

/// Where candidates come from and what measuring them is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World {
    /// True σ of one run, in units of [`SIGMA`].
    pub(crate) noise: f64,
    /// σ of what the choice of validation rows does to the difference of two models, in [`SIGMA`]; the same
    /// in every run of both.
    pub(crate) sampling: f64,
    /// Share of candidates that are improvements.
    pub(crate) useful: f64,
    /// Share of the others that do nothing; the rest do harm.
    pub(crate) nothing: f64,
    /// Mean harm of the harmful, exponentially distributed, in [`SIGMA`].
    pub(crate) harm: f64,
    /// Median gain of the useful at the start, log-normal with a spread of e, in [`SIGMA`].
    pub(crate) gain: f64,
    /// Gain in reach, in [`SIGMA`]: gains shrink in proportion to what is left of it.
    pub(crate) potential: f64,
    /// Runs in a night.
    pub(crate) runs: u32,
}

impl Default for World {
    fn default() -> Self {
        // gain and potential: about what the public log of one such night shows, 31 σ in 126 trials
        Self {
            noise: 1.0,
            sampling: 0.1,
            useful: 0.2,
            nothing: 0.5,
            harm: 3.0,
            gain: 1.0,
            potential: 40.0,
            runs: 100,
        }
    }
}

/// What decides.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// Any lower value, each measured once.
    AnyLower,
    /// Lower by so many stated σ, each measured once.
    Fixed(f64),
    /// This crate's, which starts from the stated σ and measures it as it goes.
    Ratchet(Policy),
    /// The same on a machine whose σ an earlier night has measured, from 20 degrees of freedom.
    NextNight(Policy),
}

/// What a night came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Candidates kept.
    pub(crate) keeps: u32,
    /// Of these, truly no better than the champion that they replaced.
    pub(crate) false_keeps: u32,
    /// Single edits in all keeps; more than one in a keep that carries others.
    pub(crate) edits: u32,
    /// Of these, truly no better than what they were made from.
    pub(crate) idle: u32,
    /// Edits proposed that were truly better than what they were made from.
    pub(crate) useful: u32,
    /// Candidates decided.
    pub(crate) trials: u32,
    /// True gain of the last champion over the baseline, in [`SIGMA`].
    pub(crate) gain: f64,
}

/// A model: its true value, and what the validation rows make of it; in [`SIGMA`], lower is better.
#[derive(Clone, Copy)]
struct Model {
    truth: f64,
    bias: f64,
}

struct Lab {
    world: World,
    rng: StdRng,
    runs: u32,
}

impl Lab {
    fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.rng)
    }

    /// One run; `None` when the night is over.
    fn run(&mut self, model: Model) -> Option<Value> {
        self.runs = self.runs.checked_sub(1)?;
        let value = model.truth + model.bias + self.world.noise * self.normal();
        Some(Value::new(value * SIGMA).expect("a small number"))
    }

    /// A change of the champion.
    fn candidate(&mut self, champion: Model) -> Model {
        let World { useful, nothing, harm, gain, potential, sampling, .. } = self.world;
        let left = (1.0 + champion.truth / potential).max(0.0);
        let change = if self.rng.random_bool(useful) {
            let size = LogNormal::new(gain.ln(), 1.0).expect("a spread").sample(&mut self.rng);
            -size * left
        } else if self.rng.random_bool(nothing) {
            0.0
        } else {
            let size: f64 = Exp1.sample(&mut self.rng);
            harm * size
        };
        Model { truth: champion.truth + change, bias: champion.bias + sampling * self.normal() }
    }
}

/// Plays one night.
///
/// Equal seeds give equal worlds, but not equal candidates to two rules.
pub(crate) fn play(world: World, rule: &Rule, seed: u64) -> Tally {
    let mut lab = Lab { world, rng: StdRng::seed_from_u64(seed), runs: world.runs };
    let mut tally = Tally::default();
    let champion = match rule {
        Rule::AnyLower => once(&mut lab, 0.0, &mut tally),
        Rule::Fixed(sigmas) => once(&mut lab, sigmas * SIGMA, &mut tally),
        Rule::Ratchet(policy) => ratchet(&mut lab, policy, Vec::new(), &mut tally),
        Rule::NextNight(policy) => {
            let measured = Replicates::Known(world.noise * SIGMA, 20);
            ratchet(&mut lab, policy, vec![measured], &mut tally)
        }
    };
    tally.gain = -champion.truth;
    tally
}

/// Keeps what is lower by more than `bar` than the champion's one value.
fn once(lab: &mut Lab, bar: f64, tally: &mut Tally) -> Model {
    let mut champion = Model { truth: 0.0, bias: 0.0 };
    let mut standing = lab.run(champion).expect("a night has runs").get();
    loop {
        let candidate = lab.candidate(champion);
        let Some(value) = lab.run(candidate) else { return champion };
        let keep = value.get() < standing - bar;
        let better = candidate.truth < champion.truth;
        tally.count(candidate, champion, Edits::default().and(better), keep);
        tally.useful += u32::from(better);
        if keep {
            (champion, standing) = (candidate, value.get());
        }
    }
}

/// The driver's own way, as `judge.rs` and `run.rs` go it; `known` are replicates of the night so far.
fn ratchet(lab: &mut Lab, policy: &Policy, mut known: Vec<Replicates>, tally: &mut Tally) -> Model {
    let mut champion = Model { truth: 0.0, bias: 0.0 };
    let mut runs = Runs::new(lab.run(champion).expect("a night has runs"));
    let mut lead: Option<(Model, f64)> = None;
    let mut carried = Edits::default();
    let mut best = runs.mean();
    let mut risk = Risk::default();
    // of the champion's runs, how many were selected by their value
    let mut selected = 0;
    let mut since_rerun = 0;
    loop {
        let own = |runs: &Runs, selected| Replicates::Alone(runs.values().skip(selected).collect());
        let replicated =
            |known: &[Replicates], runs: &Runs, selected| [known, &[own(runs, selected)]].concat();
        let noise = Noise::estimate(&replicated(&known, &runs, selected), Noise::stated(SIGMA));
        if is_rerun_due(&noise, since_rerun) {
            let Some(value) = lab.run(champion) else { return champion };
            runs.push(value);
            since_rerun = 0;
        }
        since_rerun += 1;
        let base = lead.map_or(champion, |(model, _)| model);
        let candidate = lab.candidate(base);
        let Some(first) = lab.run(candidate) else { return champion };
        let sampling = lab.world.sampling * SIGMA;
        let mut score = Score { runs: Runs::new(first), lines: 700, memory_gb: 1.0, sampling };
        let judged = loop {
            let standing = Scored {
                score: Score { runs: runs.clone(), lines: 700, memory_gb: 1.0, sampling: 0.0 },
                best,
                risk,
                lead: lead.map(|(_, value)| value),
            };
            let mut all = replicated(&known, &runs, selected);
            all.extend(replicates(&score.runs.values().collect::<Vec<_>>(), runs.values()));
            let noise = Noise::estimate(&all, Noise::stated(SIGMA));
            let judged = verdict(Some(&standing), &Outcome::Scored(score.clone()), &noise, policy);
            let Decision::Replicate(wanted) = judged.decision else { break judged };
            for (runs, model) in [(&mut score.runs, candidate), (&mut runs, champion)] {
                while runs.count() < wanted {
                    let Some(value) = lab.run(model) else { return champion };
                    runs.push(value);
                    since_rerun = 0;
                }
            }
        };
        let keep = judged.decision == Decision::Keep;
        if judged.level > 0.0 {
            risk = risk.after(judged.level, judged.outcome == IMPROVED);
        }
        let edits = carried.and(candidate.truth < base.truth);
        tally.count(candidate, champion, edits, keep);
        tally.useful += u32::from(candidate.truth < base.truth);
        let told = replicates(&score.runs.values().collect::<Vec<_>>(), runs.values());
        if keep {
            // the new champion's own runs are told of again as it gets more of them
            known.extend(told.into_iter().filter(|part| matches!(part, Replicates::Pair(_))));
            known.push(own(&runs, selected));
            best = best.min(score.runs.mean());
            (champion, runs, selected, lead) = (candidate, score.runs, 1, None);
            carried = Edits::default();
        } else {
            known.extend(told);
        }
        if judged.outcome == PROMISING {
            lead = judged.lead.map(|value| (candidate, value));
            carried = edits;
        }
    }
}

/// Edits that stand or fall together.
#[derive(Clone, Copy, Default)]
struct Edits {
    all: u32,
    idle: u32,
}

impl Edits {
    fn and(self, better: bool) -> Self {
        Self { all: self.all + 1, idle: self.idle + u32::from(!better) }
    }
}

impl Tally {
    fn count(&mut self, candidate: Model, champion: Model, edits: Edits, keep: bool) {
        self.trials += 1;
        if keep {
            self.keeps += 1;
            self.false_keeps += u32::from(candidate.truth >= champion.truth);
            self.edits += edits.all;
            self.idle += edits.idle;
        }
    }
}
