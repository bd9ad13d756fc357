//! Whether a mechanism earns its place: it is on for some trials and off for others, and the two are compared.
//!
//! Trials are taken in blocks of four. While a mechanism is on trial, two of the four are on and two are off; which
//! ones, a hash decides, so that nothing that the search does can lean on it. The test turns that round: had the
//! mechanism no effect, each of a block's orders would have led to the same outcomes, so the observed difference is
//! compared with that of every other way to lay the orders. That holds whatever the outcomes are like (sparse,
//! skewed, drifting as the champion improves), and it is exact: all orders are counted, by convolution.
//!
//! What is compared is *how many trials gained, per minute*; the sum of the gains per minute must point the same way.
//! Gains are skewed, and one leap that fell to the wrong side would otherwise decide: over sixteen blocks of trials of
//! which one in ten gains without and one in two with the mechanism, gains of log-normal size, the sum finds the
//! effect 37 times in 100, its square roots 66 times and the count 88 times.
//!
//! The price of few trials is power, and it is high. See the table at [`judge`].

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Trials in a block.
pub const BLOCK: usize = 4;

/// When a mechanism on trial is judged, in blocks since it came in, and the level of each look. One that does nothing
/// is adopted in at most their sum of cases, 2.5 %, however the looks depend on each other.
pub const LOOKS: [(usize, f64); 3] = [(4, 0.005), (8, 0.01), (16, 0.01)];
/// Harm is looked for after every block from the second; a level this generous only ever retires.
const HARM: f64 = 0.05;
/// At a look, a mechanism with which less was gained than without, and with at least this p, has no prospects.
const HOPELESS: f64 = 0.6;
/// An adopted one is judged again after so many blocks, over all its blocks, and stays below this p.
const AGAIN: (usize, f64) = (4, 0.05);

/// On-trials that a mechanism has to pass before it counts as harmless to run.
pub const CANARY: usize = 4;
/// So improbable a number of crashes, at the rate before, ends a canary.
const ALARM: f64 = 0.05;

/// One trial since the mechanism came in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trialled {
    /// Whether the mechanism was on.
    pub on: bool,
    /// By how much the trial was better than what it started from, in the metric's unit; 0 where it was not.
    pub gain: f64,
    /// What it took.
    pub minutes: f64,
    /// Whether it has no score.
    pub crashed: bool,
}

/// What a judgment rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Whole blocks that were looked at.
    pub blocks: usize,
    /// Trials that gained with it, and all with it.
    pub gained_on: [usize; 2],
    /// The same without it.
    pub gained_off: [usize; 2],
    /// Gain per minute of the trials with it.
    pub on: f64,
    /// The same without it.
    pub off: f64,
    /// How often chance alone would favour it as much.
    pub p: f64,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blocks, gained_on: [a, of_a], gained_off: [b, of_b], on, off, p } = self;
        write!(
            f,
            "{a} of {of_a} trials gained with it and {b} of {of_b} without, {on:.2e} and {off:.2e} a minute, p = {p:.3}, \
             {blocks} blocks"
        )
    }
}

/// What becomes of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judgment {
    /// Nothing changes: it is no time for a look, or the look did not settle it.
    Undecided,
    /// It gains credibly more with it than without.
    Adopt(Evidence),
    /// It does not, or no longer.
    Retire(Why, Evidence),
}

/// Why a mechanism is retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Credibly less is gained with it.
    Harm,
    /// Less was gained with it so far, and nothing points the other way.
    Hopeless,
    /// The last look found nothing credible.
    NotCredible,
    /// It was adopted, and what came since does not bear it out.
    NoLonger,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Harm => "fewer trials gain with it than without",
            Self::Hopeless => "nothing speaks for it so far",
            Self::NotCredible => "no credible gain",
            Self::NoLonger => "the gain it was adopted for did not last",
        })
    }
}

/// How the first trials with a mechanism went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// There were too few of them.
    Waiting,
    /// They do not crash more than others.
    Passed,
    /// They do: so many crashes, in so many on-trials.
    Failed(usize, usize),
}

/// Whether a mechanism is on in the `nth` trial since it came in, from 0: two of each four, three once it is adopted.
pub fn is_on(tag: &str, mechanism: &str, nth: u64, adopted: bool) -> bool {
    /// The orders of a block that is half on, a bit a trial.
    const HALF: [u8; 6] = [0b0011, 0b0101, 0b0110, 0b1001, 0b1010, 0b1100];
    /// The orders with one trial off.
    const MOST: [u8; 4] = [0b0111, 0b1011, 0b1101, 0b1110];
    let (block, place) = (nth / BLOCK as u64, nth % BLOCK as u64);
    let hash = Sha256::digest(format!("ratchet interleaving {tag} {mechanism} {block}"));
    let draw = u64::from_le_bytes(hash[..8].try_into().unwrap_or_default());
    let orders: &[u8] = if adopted { &MOST } else { &HALF };
    let order = orders[(draw % orders.len() as u64) as usize];
    order >> place & 1 == 1
}

/// Judges the first [`CANARY`] on-trials by the crash rate before the mechanism came in: `crashes` of `trials`, to
/// which one that crashed and one that did not are added, as little is known after few.
///
/// It fails as soon as so many crashes had less than a chance of 5 % at that rate. Where 1 of 20 trials crashed before,
/// a harmless mechanism fails in 1.4 %, one that makes half of its trials crash passes in 31 %, one that makes all of
/// them crash never; where 4 of 20 crashed: 2.7 %, 69 %, never. What passes has the rest of its trials to fail in.
pub fn canary(outcomes: &[Trialled], crashes: usize, trials: usize) -> Canary {
    let rate = (crashes + 1) as f64 / (trials + 2) as f64;
    let (mut runs, mut crashed) = (0, 0);
    for outcome in outcomes.iter().filter(|outcome| outcome.on).take(CANARY) {
        runs += 1;
        crashed += usize::from(outcome.crashed);
        if at_least(crashed, CANARY, rate) <= ALARM {
            return Canary::Failed(crashed, runs);
        }
    }
    if runs == CANARY { Canary::Passed } else { Canary::Waiting }
}

/// The chance of `hits` or more in `n` tries with probability `p` each.
fn at_least(hits: usize, n: usize, p: f64) -> f64 {
    let choose = |k: usize| (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64);
    (hits..=n).map(|k| choose(k) * p.powi(k as i32) * (1.0 - p).powi((n - k) as i32)).sum()
}

/// Judges a mechanism by all trials since it came in, oldest first; to be asked after each of them.
///
/// Found by simulation (2,000 repeats; gains of log-normal size that shrink as the search goes on, unequal minutes):
///
/// | a trial gains without, with it | adopted | blocks until decided, mean |
/// |---|---|---|
/// | 15 %, 15 % (does nothing) | 1.6 % | 11 |
/// | 10 %, 30 % | 34 % | 14 |
/// | 10 %, 50 % | 85 % | 12 |
/// | 20 %, 60 % | 73 % | 12 |
/// | 20 %, 0 % (harm) | 0 % | 5 |
///
/// So a mechanism that doubles or trebles a low rate of gains is more often retired than adopted within a night: what
/// is adopted has earned it, what is retired may have been of use.
pub fn judge(outcomes: &[Trialled], adopted: bool) -> Judgment {
    let blocks = outcomes.len() / BLOCK;
    if blocks == 0 || !outcomes.len().is_multiple_of(BLOCK) {
        return Judgment::Undecided;
    }
    if adopted {
        let (every, level) = AGAIN;
        if !blocks.is_multiple_of(every) {
            return Judgment::Undecided;
        }
        let (evidence, _) = weigh(outcomes);
        return match evidence.p <= level && evidence.on > evidence.off {
            true => Judgment::Undecided,
            false => Judgment::Retire(Why::NoLonger, evidence),
        };
    }
    let (evidence, harm) = weigh(outcomes);
    if blocks > 1 && harm <= HARM {
        return Judgment::Retire(Why::Harm, evidence);
    }
    let Some((look, (_, level))) = LOOKS.iter().enumerate().find(|(_, (at, _))| *at == blocks) else {
        return Judgment::Undecided;
    };
    if evidence.p <= *level && evidence.on > evidence.off {
        Judgment::Adopt(evidence)
    } else if evidence.on < evidence.off && evidence.p >= HOPELESS {
        Judgment::Retire(Why::Hopeless, evidence)
    } else if look + 1 == LOOKS.len() {
        Judgment::Retire(Why::NotCredible, evidence)
    } else {
        Judgment::Undecided
    }
}

/// The evidence of whole blocks, and how often chance alone would speak against the mechanism as much.
fn weigh(outcomes: &[Trialled]) -> (Evidence, f64) {
    let rate = |on: bool| {
        let of = || outcomes.iter().filter(move |outcome| outcome.on == on);
        let minutes: f64 = of().map(|outcome| outcome.minutes).sum();
        if minutes > 0.0 { of().map(|outcome| outcome.gain).sum::<f64>() / minutes } else { 0.0 }
    };
    let scores = scores(outcomes);
    let mut chances = vec![1.0]; // of each sum over the on-trials, from `least` on
    let (mut least, mut observed) = (0, 0);
    for (block, scores) in outcomes.chunks_exact(BLOCK).zip(scores.chunks_exact(BLOCK)) {
        let on = block.iter().filter(|outcome| outcome.on).count() as u32;
        let sum = |order: u8| (0..BLOCK).filter(|i| order >> i & 1 == 1).map(|i| scores[i]).sum::<i64>();
        let sums: Vec<i64> = (0..1 << BLOCK).filter(|order: &u8| order.count_ones() == on).map(sum).collect();
        let (low, high) = (sums.iter().min().copied().unwrap_or(0), sums.iter().max().copied().unwrap_or(0));
        let mut next = vec![0.0; chances.len() + (high - low) as usize];
        for sum in &sums {
            let shift = (sum - low) as usize;
            for (to, chance) in next[shift..].iter_mut().zip(&chances) {
                *to += chance / sums.len() as f64;
            }
        }
        chances = next;
        least += low;
        observed +=
            block.iter().zip(scores).filter(|(outcome, _)| outcome.on).map(|(_, score)| score).sum::<i64>();
    }
    let at = (observed - least) as usize;
    let (p, harm) = (chances[at..].iter().sum(), chances[..=at].iter().sum());
    let gained = |on: bool| {
        let of = || outcomes.iter().filter(move |outcome| outcome.on == on);
        [of().filter(|outcome| outcome.gain > 0.0).count(), of().count()]
    };
    let evidence = Evidence {
        blocks: outcomes.len() / BLOCK,
        gained_on: gained(true),
        gained_off: gained(false),
        on: rate(true),
        off: rate(false),
        p,
    };
    (evidence, harm)
}

/// What each trial counts: whether it gained, less what its minutes would have gained at the mean rate. The sum over
/// the on-trials is above zero exactly where more trials a minute gained with the mechanism than without.
///
/// In whole numbers, so that equal sums are equal; rounding the scores, not the sums, leaves the test exact.
fn scores(outcomes: &[Trialled]) -> Vec<i64> {
    const STEPS: f64 = 100.0;
    let gained = |outcome: &Trialled| if outcome.gain > 0.0 { 1.0 } else { 0.0 };
    let minutes: f64 = outcomes.iter().map(|outcome| outcome.minutes).sum();
    let rate = if minutes > 0.0 { outcomes.iter().map(gained).sum::<f64>() / minutes } else { 0.0 };
    let scores: Vec<f64> = outcomes.iter().map(|outcome| gained(outcome) - rate * outcome.minutes).collect();
    let largest = scores.iter().fold(0.0, |largest: f64, score| largest.max(score.abs()));
    let scale = if largest > 0.0 { STEPS / largest } else { 0.0 };
    scores.iter().map(|score| (score * scale).round() as i64).collect()
}

#[cfg(test)]
mod tests;
