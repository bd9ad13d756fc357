//! Time of a whole training step, forward, backward and update, beside eager PyTorch on the same batches.
//!
//! `cargo run --release -p benches --bin step -- --peer /path/to/python`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use benches::peer::{Peer, Shape, median};
use candle_core::{Device, Tensor};
use clap::Parser;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tape::Tape;

#[path = "../../../train/src/model.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the contestant's own file, for its own lints")]
mod model;
#[path = "../../../train/src/optim.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the contestant's own file, for its own lints")]
mod optim;

use model::{Config, Gpt};
use optim::Optimizer;

/// Times a training step of the contestant.
#[derive(Parser)]
struct Args {
    /// Python with torch: runs the peer's step after each of ours and prints the ratio.
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    #[arg(long, default_value_t = 8192)]
    vocab: usize,
    #[arg(long, default_value_t = 4)]
    depth: usize,
    #[arg(long, default_value_t = 256)]
    width: usize,
    #[arg(long, default_value_t = 128)]
    head_dim: usize,
    #[arg(long, default_value_t = 512)]
    context: usize,
    /// Rows in a step.
    #[arg(long, default_value_t = 8)]
    rows: usize,
    /// Timed steps, after one that is not.
    #[arg(long, default_value_t = 5)]
    steps: usize,
    /// Prints where our time goes.
    #[arg(long)]
    parts: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = Device::Cpu;
    let config = Config::with_shape(args.vocab, args.context, args.depth, args.width, args.head_dim);
    let threads = std::thread::available_parallelism()?.get();
    let shape = Shape {
        vocab: config.vocab,
        context: config.context,
        width: config.width,
        head_dim: config.head_dim,
        windows: &config.windows,
    };
    let mut peer = args.peer.as_ref().map(|python| Peer::start(python, &shape, threads, 1)).transpose()?;
    let model = Gpt::new(config.clone(), &device, 1)?;
    let mut optimizer = Optimizer::new(&model)?;

    let mut rng = SmallRng::seed_from_u64(1);
    let tokens = args.rows * args.context;
    let (mut ours, mut theirs, mut parts) = (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
    for step in 0..=args.steps {
        let mut draw = || {
            let ids: Vec<u32> = (0..tokens).map(|_| rng.random_range(0..args.vocab as u32)).collect();
            Tensor::from_vec(ids, (args.rows, args.context), &device)
        };
        let (x, y) = (draw()?, draw()?);
        let started = Instant::now();
        let loss = model.loss(&Tape::new(), &x, &y)?;
        let value = loss.value().to_scalar::<f32>()?;
        let forward = started.elapsed();
        loss.backward()?;
        let backward = started.elapsed();
        optimizer.step(0.1)?;
        let whole = started.elapsed();
        let their = peer.as_mut().map(|p| p.step(&x, &y, 0.1)).transpose()?;
        if step == 0 {
            continue;
        }
        ours.push(whole);
        for (part, time) in parts.iter_mut().zip([forward, backward - forward, whole - backward]) {
            part.push(time);
        }
        print!("step {step}: {:.1} ms, loss {value:.4}", ms(whole));
        match their {
            Some(their) => {
                println!("   torch {:.1} ms, loss {:.4}", ms(their.time), their.loss);
                theirs.push(their.time);
            }
            None => println!(),
        }
    }
    if args.parts {
        let [forward, backward, update] = parts.map(median);
        println!(
            "forward {:.1} ms, backward {:.1} ms, update {:.1} ms",
            ms(forward),
            ms(backward),
            ms(update)
        );
    }
    let our = median(ours);
    println!("median {:.1} ms, {:.0} tokens/s", ms(our), tokens as f64 / our.as_secs_f64());
    if !theirs.is_empty() {
        let their = median(theirs);
        let ratio = their.as_secs_f64() / our.as_secs_f64();
        println!("torch eager {:.1} ms; ours is {ratio:.2} times as fast", ms(their));
    }
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
