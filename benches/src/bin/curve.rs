//! The contestant's loss curve beside eager PyTorch's, on the same prepared text in the same order.
//!
//! `cargo run --release -p benches --bin curve -- --peer /path/to/python --steps 200`

use std::path::PathBuf;

use anyhow::Result;
use benches::peer::{Peer, Shape};
use candle_core::Device;
use clap::Parser;
use prepare::Batch;
use prepare::cache::Cache;
use prepare::loader::Loader;
use prepare::profile::Profile;
use tape::Tape;

#[path = "../../../train/src/model.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the contestant's own file, for its own lints")]
mod model;
#[path = "../../../train/src/optim.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the contestant's own file, for its own lints")]
mod optim;

/// Trains the contestant and the peer side by side.
#[derive(Parser)]
struct Args {
    /// Python with torch.
    #[arg(long, value_name = "PYTHON")]
    peer: PathBuf,
    /// Whose constants and prepared text to use.
    #[arg(long, default_value = "laptop")]
    profile: Profile,
    #[arg(long, default_value_t = 200)]
    steps: usize,
    /// Rows in a step.
    #[arg(long, default_value_t = 16)]
    rows: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = Device::Cpu;
    let config = model::Config::new(args.profile);
    let shape = Shape {
        vocab: config.vocab,
        context: config.context,
        width: config.width,
        head_dim: config.head_dim,
        windows: &config.windows,
    };
    let threads = std::thread::available_parallelism()?.get();
    let mut peer = Peer::start(&args.peer, &shape, threads, args.seed)?;
    let cache = Cache::open_train(args.profile)?;
    let mut loader = Loader::new(cache.train_tokens()?, args.profile.spec(), args.seed);
    let model = model::Gpt::new(config.clone(), &device, args.seed)?;
    let mut optimizer = optim::Optimizer::new(&model)?;

    println!(
        "mean training loss in nats since the line before, {} tokens a step",
        args.rows * config.context
    );
    println!("step     ours    torch");
    let every = (args.steps / 20).max(1);
    let (mut ours, mut theirs) = (0.0, 0.0);
    for step in 1..=args.steps {
        let progress = (step - 1) as f64 / args.steps as f64;
        let Batch { x, y } = loader.next(args.rows, config.context, &device)?;
        let loss = model.loss(&Tape::new(), &x, &y)?;
        ours += f64::from(loss.value().to_scalar::<f32>()?);
        loss.backward()?;
        optimizer.step(progress)?;
        theirs += peer.step(&x, &y, progress)?.loss;
        if step % every == 0 {
            println!("{step:4} {:8.4} {:8.4}", ours / every as f64, theirs / every as f64);
            (ours, theirs) = (0.0, 0.0);
        }
    }
    Ok(())
}
