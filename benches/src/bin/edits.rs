//! Edits that people make to the contestant: that each compiles and trains, and what it costs.
//!
//! `cargo run --release -p benches --bin edits -- --rounds 5`; steps of all are interleaved, figures are
//! medians. `own` is what an edit's arithmetic costs in plain candle where it brings its own, so that
//! `beyond` is what the tape and the bridge add.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use benches::peer::median;
use candle_core::{Device, Tensor, Var};
use clap::Parser;
use rand::{RngExt, SeedableRng, rngs::SmallRng};

/// One edited copy of the contestant.
struct Edit {
    name: &'static str,
    about: &'static str,
    start: fn(&Sizes) -> candle_core::Result<Step>,
}

/// x, y: (B, T), progress → loss; makes one training step.
type Step = Box<dyn FnMut(&Tensor, &Tensor, f64) -> candle_core::Result<f32>>;

#[rustfmt::skip]
macro_rules! stepper {
    () => {
        pub fn start(s: &super::super::Sizes) -> candle_core::Result<super::super::Step> {
            let device = candle_core::Device::Cpu;
            let config = model::Config::with_shape(s.vocab, s.context, s.depth, s.width, s.head_dim);
            let model = model::Gpt::new(config, &device, 1)?;
            let mut optimizer = optim::Optimizer::new(&model)?;
            let mut first = true;
            Ok(Box::new(move |x, y, progress| {
                let tape = if first { tape::Tape::checked() } else { tape::Tape::new() };
                let loss = model.loss(&tape, x, y)?;
                let value = loss.value().to_scalar::<f32>()?;
                loss.backward()?;
                if std::mem::take(&mut first) {
                    tape::check::every_gradient(model.params())?;
                    let logits = model.forward(x)?;
                    assert_eq!(logits.dims().len(), 3);
                }
                optimizer.step(progress)?;
                Ok(value)
            }))
        }
    };
}

#[allow(dead_code, unreachable_pub, missing_docs, reason = "the contestant's own files, for its own lints")]
mod copies {
    use super::Edit;
    include!(concat!(env!("OUT_DIR"), "/edits.rs"));
}

/// Trains edited copies of the contestant beside the unedited one.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    sizes: Sizes,
    /// Timed steps of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

#[derive(clap::Args)]
struct Sizes {
    #[arg(long, default_value_t = 8192)]
    vocab: usize,
    #[arg(long, default_value_t = 2)]
    depth: usize,
    #[arg(long, default_value_t = 128)]
    width: usize,
    #[arg(long, default_value_t = 64)]
    head_dim: usize,
    #[arg(long, default_value_t = 256)]
    context: usize,
    /// Rows in a step.
    #[arg(long, default_value_t = 16)]
    rows: usize,
}

fn main() -> Result<()> {
    let Args { sizes, rounds } = Args::parse();
    for (name, problem) in copies::STALE {
        eprintln!("edit {name} no longer applies: {problem}");
    }
    ensure!(copies::STALE.is_empty(), "bring benches/edits up to date");

    let mut rng = SmallRng::seed_from_u64(1);
    let mut steps =
        copies::EDITS.iter().map(|e| (e.start)(&sizes)).collect::<candle_core::Result<Vec<_>>>()?;
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); steps.len()];
    let mut losses = vec![(0.0, 0.0); steps.len()];
    let mut own = Vec::new();
    // one batch again and again: every copy must learn it
    let ids = |rng: &mut SmallRng| -> candle_core::Result<Tensor> {
        let ids: Vec<u32> =
            (0..sizes.rows * sizes.context).map(|_| rng.random_range(0..sizes.vocab as u32)).collect();
        Tensor::from_vec(ids, (sizes.rows, sizes.context), &Device::Cpu)
    };
    let (x, y) = (ids(&mut rng)?, ids(&mut rng)?);
    for round in 0..=rounds {
        for (i, step) in steps.iter_mut().enumerate() {
            let started = Instant::now();
            let loss = step(&x, &y, 0.0)?;
            match round {
                0 => losses[i].0 = loss,
                _ => times[i].push(started.elapsed()),
            }
            losses[i].1 = loss;
        }
        own.push(gelu_alone(&sizes)?);
    }
    let times: Vec<f64> = times.into_iter().map(|t| median(t).as_secs_f64() * 1e3).collect();
    let own = median(own).as_secs_f64() * 1e3;
    let plain = times[0];
    println!("edit          step_ms    own_ms   beyond   what");
    for ((edit, ms), (first, last)) in copies::EDITS.iter().zip(times).zip(losses) {
        ensure!(
            last.is_finite() && last < first,
            "{}: the loss went from {first} to {last} in {rounds} steps",
            edit.name
        );
        let own = if edit.name == "gelu" { own } else { 0.0 };
        let beyond = ((ms - own) / plain - 1.0) * 100.0;
        println!("{:12} {ms:8.1}  {own:8.1}  {beyond:+6.1}%   {}", edit.name, edit.about);
    }
    Ok(())
}

/// What GELU costs in all layers by candle alone, forward and backward, beyond the op it replaces.
fn gelu_alone(s: &Sizes) -> Result<Duration> {
    let x = Tensor::randn(0f32, 1.0, (s.rows, s.context, 4 * s.width), &Device::Cpu)?;
    let started = Instant::now();
    Var::from_tensor(&x)?.gelu()?.backward()?;
    let with = started.elapsed();
    let started = Instant::now();
    let y = kernels::relu_squared::forward(&x)?;
    kernels::relu_squared::backward(&y, &x)?;
    Ok(with.saturating_sub(started.elapsed()) * s.depth as u32)
}
