//! Text from a model, token by token. Nothing of it is measured, and nothing is written to a file.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use candle_core::{DType, Device, IndexOp};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cache::Cache;
use crate::checkpoint::Checkpoint;
use crate::contest::{ContestError, Contestant};
use crate::device;
use crate::probe::Shown;
use crate::profile::{BOS, Profile};
use crate::score::{Asker, ScoreError};
use crate::tokenizer::Tokenizer;
use crate::utf8::take_whole;

/// How the next token is drawn.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Choice {
    /// 0 takes the likeliest token; 1 draws as the model says; more is wilder
    #[arg(long)]
    pub(crate) temperature: f64,
    /// Draw among the K likeliest tokens only
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top_k: Option<u32>,
}

/// What text is asked for.
pub(crate) struct Wanted {
    /// What it goes on from.
    pub(crate) prompt: String,
    /// Tokens at most.
    pub(crate) tokens: u32,
    pub(crate) choice: Choice,
    pub(crate) seed: u64,
}

/// `sample`: the prompt and what the model makes of it, to `to`, until the document ends.
pub(crate) fn sample<C: Contestant>(
    profile: Profile,
    model: &Path,
    wanted: &Wanted,
    mut to: File,
) -> Result<(), ContestError> {
    let cache = Cache::open_tokenizer(profile)?;
    let tokenizer = Tokenizer::read(&cache.paths().tokenizer())
        .map_err(|e| ContestError::Text(format!("the tokenizer: {e}")))?;
    let mut ids = vec![BOS];
    tokenizer.encode(&wanted.prompt, &mut ids);
    let device = device::claim()?;
    let model = C::load(&Checkpoint::read(model, &device)?, &device)?;
    let mut writer =
        Writer { model: &model, profile, device: &device, rng: StdRng::seed_from_u64(wanted.seed) };
    let mut open = wanted.prompt.clone().into_bytes();
    for _ in 0..wanted.tokens {
        if !tell(&mut to, &take_whole(&mut open))? {
            return Ok(());
        }
        let next = writer.next(&ids, wanted.choice)?;
        if next >= BOS {
            break; // each document starts with one: this one is over
        }
        ids.push(next);
        open.extend(tokenizer.decode(&[next]));
    }
    let mut text = take_whole(&mut open);
    text.push_str(&String::from_utf8_lossy(&open)); // of a character that never became whole
    tell(&mut to, &text).map(drop)
}

/// False when nobody reads on.
fn tell(to: &mut File, text: &str) -> Result<bool, ContestError> {
    match to.write_all(text.as_bytes()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(ContestError::Text(e.to_string())),
    }
}

struct Writer<'a, C> {
    model: &'a C,
    profile: Profile,
    device: &'a Device,
    rng: StdRng,
}

impl<C: Contestant> Writer<'_, C> {
    /// The token after `ids`, of which the model sees as many as its context holds.
    fn next(&mut self, ids: &[u16], choice: Choice) -> Result<u16, ScoreError> {
        let spec = self.profile.spec();
        let mut x = ids[ids.len().saturating_sub(spec.context)..].to_vec();
        let at = x.len() - 1;
        // as long as in an exam, the only length that a model was ever asked for; a causal one sees none of it
        x.resize(spec.context, BOS);
        let asker = Asker { model: self.model, vocab: spec.vocab, device: self.device };
        let logits = asker.logits(&[Shown { row: 0, x, cut: None, donor: None }])?;
        let logits = logits.i((0, at))?.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        if logits.iter().any(|logit| !logit.is_finite()) {
            return Err(ScoreError::non_finite());
        }
        Ok(draw(&logits, choice, &mut self.rng) as u16) // an index of the vocabulary
    }
}

/// The index of the token drawn from these logits.
fn draw(logits: &[f32], choice: Choice, rng: &mut StdRng) -> usize {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let likelier = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    let most = choice.top_k.map_or(order.len(), |k| order.len().min(k as usize));
    if most < order.len() {
        order.select_nth_unstable_by(most, likelier);
        order.truncate(most);
    }
    order.sort_unstable_by(likelier);
    let best = order[0];
    if choice.temperature == 0.0 {
        return best;
    }
    // relative to the likeliest: no exponential overflows, and their sum is at least 1
    let weight = |&i: &usize| (f64::from(logits[i] - logits[best]) / choice.temperature).exp();
    let mut left = rng.random::<f64>() * order.iter().map(weight).sum::<f64>();
    for i in &order {
        left -= weight(i);
        if left < 0.0 {
            return *i;
        }
    }
    best // what rounding left over
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [0.5, 3.0, -1.0, 2.0, 2.5];

    fn draws(temperature: f64, top_k: Option<u32>, seed: u64) -> Vec<usize> {
        let mut rng = StdRng::seed_from_u64(seed);
        (0..20_000).map(|_| draw(&LOGITS, Choice { temperature, top_k }, &mut rng)).collect()
    }

    fn shares(draws: &[usize]) -> Vec<f64> {
        let of = |i| draws.iter().filter(|&&d| d == i).count() as f64 / draws.len() as f64;
        (0..LOGITS.len()).map(of).collect()
    }

    fn entropy(shares: &[f64]) -> f64 {
        shares.iter().filter(|share| **share > 0.0).map(|share| -share * share.ln()).sum()
    }

    #[test]
    fn temperature_zero_and_one_token_to_choose_from_are_both_the_likeliest() {
        assert!(draws(0.0, None, 1).iter().chain(&draws(1.0, Some(1), 2)).all(|&d| d == 1));
        let tied = draw(&[1.0, 1.0], Choice { temperature: 0.0, top_k: None }, &mut StdRng::seed_from_u64(1));
        assert_eq!(tied, 0, "of equals the first");
    }

    /// The oracle is the softmax, in f64, by its definition.
    #[test]
    fn tokens_come_as_often_as_the_softmax_says() {
        for (temperature, top_k) in [(1.0, None), (0.5, None), (2.0, None), (1.0, Some(3)), (1.0, Some(99))] {
            let mut sorted = LOGITS;
            sorted.sort_by(|a, b| b.total_cmp(a));
            let least = sorted[(top_k.unwrap_or(5) as usize).min(5) - 1];
            let e = LOGITS.map(|l| if l >= least { (f64::from(l) / temperature).exp() } else { 0.0 });
            let found = shares(&draws(temperature, top_k, 3));
            for (found, e_i) in found.iter().zip(e) {
                let expected = e_i / e.iter().sum::<f64>();
                assert!((found - expected).abs() < 0.015, "{found} {expected} at {temperature} {top_k:?}");
            }
        }
    }

    #[test]
    fn warmer_is_more_varied_and_a_seed_repeats_itself() {
        let entropies = [0.3, 1.0, 3.0].map(|temperature| entropy(&shares(&draws(temperature, None, 5))));
        assert!(entropies.is_sorted_by(|a, b| a < b), "{entropies:?}");
        assert_eq!(draws(1.0, None, 7), draws(1.0, None, 7));
        assert_ne!(draws(1.0, None, 7), draws(1.0, None, 8));
    }
}
