//! The contestant on a GPU: its loss beside the CPU's, its speed beside PyTorch's, and where its time goes.
//!
//! `benches/gpu/check.sh` runs it; each part prints for a person and, with `--json`, leaves its figures.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::agreement::apart;
use benches::peer::{Peer, SCRIPT, Shape, median};
use benches::spans::{self, Span};
use candle_core::{DType, Device, Tensor};
use clap::{Args, Parser, Subcommand};
use prepare::Batch;
use prepare::cache::Cache;
use prepare::loader::Loader;
use prepare::profile::Profile;
use prepare::summary::mfu_percent;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use tape::Tape;

#[path = "../../../train/src/model.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the contestant's own file, for its own lints")]
mod model;
#[path = "../../../train/src/optim.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the contestant's own file, for its own lints")]
mod optim;

use model::{Config, Gpt};
use optim::Optimizer;

const SEED: u64 = 1;

/// Measures the contestant on the first GPU.
#[derive(Parser)]
struct Cli {
    /// Takes the CPU where there is no GPU: to try this program, not to measure.
    #[arg(long, global = true)]
    cpu: bool,
    /// Writes the figures there.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Training loss on the GPU beside the CPU's, on the same prepared text in the same order.
    Curve {
        #[command(flatten)]
        shape: ShapeArgs,
        #[arg(long, default_value_t = 20)]
        steps: usize,
    },
    /// Tokens a second over whole steps, in turn with PyTorch.
    Speed {
        #[command(flatten)]
        shape: ShapeArgs,
        /// Micro-batches in a step.
        #[arg(long, default_value_t = 2)]
        micro: usize,
        /// Rounds of steps of ours, then of the peer's.
        #[arg(long, default_value_t = 4)]
        rounds: usize,
        /// Steps of each in a round.
        #[arg(long, default_value_t = 5)]
        steps: usize,
        /// Python with torch.
        #[arg(long, value_name = "PYTHON")]
        peer: Option<PathBuf>,
        /// Where the peer's script is.
        #[arg(long, default_value = SCRIPT)]
        script: PathBuf,
        /// The peer without torch.compile.
        #[arg(long)]
        eager: bool,
    },
    /// The time of each kernel and product of a micro-step and an update, by CUDA events; on a CPU, their number.
    Ops {
        #[command(flatten)]
        shape: ShapeArgs,
    },
}

#[derive(Args)]
struct ShapeArgs {
    #[arg(long, default_value_t = 8)]
    depth: usize,
    #[arg(long, default_value_t = 512)]
    width: usize,
    #[arg(long, default_value_t = 128)]
    head_dim: usize,
    #[arg(long, default_value_t = 2048)]
    context: usize,
    /// Rows of a micro-batch.
    #[arg(long, default_value_t = 128)]
    rows: usize,
}

impl ShapeArgs {
    fn config(&self) -> Config {
        let vocab = Profile::Full.spec().vocab;
        Config::with_shape(vocab, self.context, self.depth, self.width, self.head_dim)
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let device = prepare::device::choose()?;
    ensure!(cli.cpu || device.is_cuda(), "no CUDA device");
    let figures = match cli.part {
        Part::Curve { shape, steps } => curve(&shape, steps, &device)?,
        Part::Speed { shape, micro, rounds, steps, peer, script, eager } => {
            let config = shape.config();
            let of = Shape {
                vocab: config.vocab,
                context: config.context,
                width: config.width,
                head_dim: config.head_dim,
                windows: &config.windows,
            };
            let start = |python: PathBuf| match device.is_cuda() {
                true => Peer::on_gpu(&python, &script, &of, SEED, !eager),
                false => Peer::start(&python, &of, 1, SEED),
            };
            let peer = peer.map(start).transpose()?;
            speed(&shape, micro, rounds, steps, peer, &device)?
        }
        Part::Ops { shape } => ops(&shape, &device)?,
    };
    if let Some(path) = cli.json {
        std::fs::write(&path, figures.to_string()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Both start from the same weights; on the CPU in f32, on the GPU in bf16.
///
/// Not from the contestant's own: as long as the output projections are zero, the gradients of `residual` and `shortcut`
/// are what rounding leaves, and Adam makes steps of full size from that.
fn curve(shape: &ShapeArgs, steps: usize, device: &Device) -> Result<Value> {
    let cache = Cache::open_train(Profile::Laptop)?;
    let mut loader = Loader::new(cache.train_tokens()?, Profile::Laptop.spec(), SEED);
    let mut sides = Vec::new();
    for device in [&Device::Cpu, device] {
        let model = Gpt::new(shape.config(), device, SEED)?;
        let mut rng = SmallRng::seed_from_u64(SEED);
        for p in model.params().filter(|p| [".out", ".down"].iter().any(|end| p.name().ends_with(end))) {
            let small = (0..p.elem_count()).map(|_| rng.random_range(-0.05f32..0.05)).collect::<Vec<_>>();
            p.set(&Tensor::from_vec(small, p.dims(), device)?)?;
        }
        let optimizer = Optimizer::new(&model)?;
        sides.push((model, optimizer, device));
    }
    println!("training loss in nats, {} tokens a step\nstep      CPU      GPU", shape.rows * shape.context);
    let mut rows = Vec::new();
    for step in 0..steps {
        let Batch { x, y } = loader.next(shape.rows, shape.context, &Device::Cpu)?;
        let mut losses = Vec::new();
        for (model, optimizer, device) in &mut sides {
            let (x, y) = (x.to_device(device)?, y.to_device(device)?);
            losses.push(train(model, optimizer, &[(x, y)], step as f64 / steps as f64)?);
        }
        println!("{:4} {:8.4} {:8.4}", step + 1, losses[0], losses[1]);
        rows.push((losses[0], losses[1]));
    }
    let apart = apart(&rows)?;
    println!("at most {apart:.4} nats apart");
    Ok(json!({ "steps": steps, "apart": apart, "first": rows.first(), "last": rows.last() }))
}

/// One step as the contestant makes it; its loss.
fn train(
    model: &Gpt,
    optimizer: &mut Optimizer,
    batches: &[(Tensor, Tensor)],
    progress: f64,
) -> candle_core::Result<f64> {
    let mut losses = Vec::new();
    for (x, y) in batches {
        let micro = (model.loss(&Tape::new(), x, y)? / batches.len() as f64)?;
        losses.push(micro.value().clone());
        micro.backward()?;
    }
    optimizer.step(progress)?;
    // read last: this waits until a GPU has done all of the above
    losses.iter().map(|loss| Ok(f64::from(loss.to_scalar::<f32>()?))).sum()
}

/// Steps on random tokens. The peer is only asked once ours has stopped, and the other way round.
fn speed(
    shape: &ShapeArgs,
    micro: usize,
    rounds: usize,
    steps: usize,
    mut peer: Option<Peer>,
    device: &Device,
) -> Result<Value> {
    let config = shape.config();
    let model = Gpt::new(config.clone(), device, SEED)?;
    let mut optimizer = Optimizer::new(&model)?;
    let (rows, context) = (shape.rows, shape.context);
    let mut rng = SmallRng::seed_from_u64(SEED);
    let ids: Vec<u32> =
        (0..micro * rows * (context + 1)).map(|_| rng.random_range(0..config.vocab as u32)).collect();
    let batches = (0..micro)
        .map(|part| {
            let len = rows * (context + 1);
            let all = Tensor::from_slice(&ids[part * len..][..len], (rows, context + 1), device)?;
            Ok((all.narrow(1, 0, context)?.contiguous()?, all.narrow(1, 1, context)?.contiguous()?))
        })
        .collect::<candle_core::Result<Vec<_>>>()?;
    let (mut ours, mut theirs, mut their_peak) = (Vec::new(), Vec::new(), 0);
    for round in 0..=rounds {
        for _ in 0..steps {
            device.synchronize()?;
            let begun = Instant::now();
            let loss = train(&model, &mut optimizer, &batches, 0.1)?;
            device.synchronize()?;
            ours.push(begun.elapsed());
            ensure!(loss.is_finite(), "the loss is {loss}: the time of what goes wrong is no figure");
        }
        for _ in 0..steps {
            let Some(peer) = &mut peer else { break };
            let step = peer.accumulate(&ids, rows, micro, 0.1)?;
            ensure!(step.loss.is_finite(), "the peer's loss is {}", step.loss);
            their_peak = step.peak_bytes;
            theirs.push(step.time);
        }
        if round == 0 {
            // compilers and caches
            ours.clear();
            theirs.clear();
        }
    }
    let name = prepare::device::name(device);
    let tokens = micro * rows * context;
    let flops = model.describe().flops_per_token;
    let side = |who: &str, times: Vec<Duration>, peak: Option<u64>| {
        let seconds = median(times).as_secs_f64();
        let mfu = mfu_percent(&name, flops, tokens as u64, seconds);
        let known =
            |value: Option<f64>, unit: &str| value.map_or("unknown".into(), |v| format!("{v:.1} {unit}"));
        println!(
            "{who:6} {:8.1} ms a step, {:9.0} tokens/s, MFU {}, peak memory {}",
            seconds * 1e3,
            tokens as f64 / seconds,
            known(mfu, "%"),
            known(peak.map(|bytes| bytes as f64 / 1e9), "GB")
        );
        json!({ "ms": seconds * 1e3, "tokens_per_second": tokens as f64 / seconds, "mfu": mfu, "peak_bytes": peak })
    };
    println!("{name}: {micro} × {rows} rows of {context}, medians of {} steps", rounds * steps);
    let peak = prepare::device::peak_memory(device);
    let ours = side("ours", ours, peak);
    let theirs = peer.is_some().then(|| side("torch", theirs, Some(their_peak)));
    Ok(json!({ "device": name, "rows": rows, "micro": micro, "ours": ours, "torch": theirs }))
}

/// Each launch of a micro-step and of an update, between two events; the last of three is reported. On a CPU nothing
/// is run: it is what would be launched.
fn ops(shape: &ShapeArgs, device: &Device) -> Result<Value> {
    let model = Gpt::in_dtype(shape.config(), device, DType::BF16, SEED)?;
    let mut optimizer = Optimizer::new(&model)?;
    let dims = (shape.rows, shape.context);
    let draw = || Tensor::rand(0f32, model.config.vocab as f32, dims, device)?.to_dtype(DType::U32);
    let batch = [(draw()?, draw()?)];
    let (mut spans, mut whole) = (Vec::new(), None);
    for _ in 0..if device.is_cuda() { 3 } else { 1 } {
        if device.is_cuda() {
            device.synchronize()?;
            let begun = Instant::now();
            train(&model, &mut optimizer, &batch, 0.1)?;
            device.synchronize()?;
            whole = Some(begun.elapsed().as_secs_f64() * 1e3);
        }
        spans = spans::of(device, || train(&model, &mut optimizer, &batch, 0.1).map(drop))?;
    }
    let mut table: Vec<(Span, u32)> = Vec::new();
    for span in spans {
        match table.iter_mut().find(|(first, _)| first.what == span.what) {
            Some((first, times)) => {
                first.ms = first.ms.zip(span.ms).map(|(a, b)| a + b);
                *times += 1;
            }
            None => table.push((span, 1)),
        }
    }
    table.sort_by(|(a, _), (b, _)| b.ms.unwrap_or(0.0).total_cmp(&a.ms.unwrap_or(0.0)));
    let shown = |ms: Option<f64>| ms.map_or("-".into(), |ms| format!("{ms:.3}"));
    println!("{:48} {:>6} {:>10}", "kernel or product", "times", "ms");
    for (span, times) in &table {
        println!("{:48} {times:6} {:>10}", span.what.to_string(), shown(span.ms));
    }
    let sum: Option<f64> = table.iter().map(|(span, _)| span.ms).sum();
    println!(
        "{:48} {:6} {:>10}\n{:48} {:6} {:>10}",
        "sum",
        "",
        shown(sum),
        "the same untimed, wall",
        "",
        shown(whole)
    );
    let rows: Vec<Value> = table.iter().map(|(span, times)| span.what.figures(*times, span.ms)).collect();
    Ok(json!({ "tokens": shape.rows * shape.context, "table": rows, "sum_ms": sum, "whole_ms": whole }))
}
