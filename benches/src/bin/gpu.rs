//! The contestant on a GPU: its loss beside the CPU's, its speed beside PyTorch's, and where its time goes.
//!
//! `benches/gpu/check.sh` runs it; each part prints for a person and, with `--json`, leaves its figures.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::peer::{Peer, SCRIPT, Shape, median};
use candle_core::{Device, Tensor};
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
    /// The time of each kernel and product of a micro-step and an update, by CUDA events.
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
            let start = |config: &Config| -> Result<Option<Peer>> {
                let shape = Shape {
                    vocab: config.vocab,
                    context: config.context,
                    width: config.width,
                    head_dim: config.head_dim,
                    windows: &config.windows,
                };
                let Some(python) = &peer else { return Ok(None) };
                Ok(Some(match device.is_cuda() {
                    true => Peer::on_gpu(python, &script, &shape, SEED, !eager)?,
                    false => Peer::start(python, &shape, 1, SEED)?,
                }))
            };
            let peer = start(&shape.config())?;
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
fn curve(shape: &ShapeArgs, steps: usize, device: &Device) -> Result<Value> {
    let cache = Cache::open_train(Profile::Laptop)?;
    let mut loader = Loader::new(cache.train_tokens()?, Profile::Laptop.spec(), SEED);
    let mut sides = Vec::new();
    for device in [&Device::Cpu, device] {
        let model = Gpt::new(shape.config(), device, SEED)?;
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
    let apart = rows.iter().map(|(cpu, gpu)| (cpu - gpu).abs()).fold(0.0, f64::max);
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
            train(&model, &mut optimizer, &batches, 0.1)?;
            device.synchronize()?;
            ours.push(begun.elapsed());
        }
        for _ in 0..steps {
            let Some(peer) = &mut peer else { break };
            let step = peer.accumulate(&ids, rows, micro, 0.1)?;
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

/// A micro-step and an update, each launch between two events; the last of three is reported.
fn ops(shape: &ShapeArgs, device: &Device) -> Result<Value> {
    let model = Gpt::new(shape.config(), device, SEED)?;
    let mut optimizer = Optimizer::new(&model)?;
    let dims = (shape.rows, shape.context);
    let draw =
        || Tensor::rand(0f32, model.config.vocab as f32, dims, device)?.to_dtype(candle_core::DType::U32);
    let batch = [(draw()?, draw()?)];
    let mut spent = Vec::new();
    let mut whole = 0.0;
    for _ in 0..3 {
        device.synchronize()?;
        let begun = Instant::now();
        train(&model, &mut optimizer, &batch, 0.1)?;
        device.synchronize()?;
        whole = begun.elapsed().as_secs_f64() * 1e3;
        spent = timed::ops(device, || train(&model, &mut optimizer, &batch, 0.1).map(drop))?;
    }
    let mut sums: BTreeMap<&str, (u32, f64)> = BTreeMap::new();
    for (name, ms) in &spent {
        let sum = sums.entry(name).or_default();
        *sum = (sum.0 + 1, sum.1 + ms);
    }
    let mut table: Vec<(&str, (u32, f64))> = sums.into_iter().collect();
    table.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    println!("{:48} {:>6} {:>10}", "kernel or product", "times", "ms");
    for (name, (times, ms)) in &table {
        println!("{name:48} {times:6} {ms:10.3}");
    }
    let sum: f64 = table.iter().map(|(_, (_, ms))| ms).sum();
    println!("{:48} {:6} {sum:10.3}\n{:48} {:6} {whole:10.3}", "sum", "", "the same untimed, wall", "");
    Ok(json!({ "table": table, "sum_ms": sum, "whole_ms": whole }))
}

#[cfg(feature = "cuda")]
mod timed {
    //! A runner that records an event before and after what it passes on.

    use std::cell::RefCell;
    use std::mem::MaybeUninit;
    use std::rc::Rc;
    use std::sync::Arc;

    use candle_core::{Device, Error, Result};
    use cudarc::driver::{CudaEvent, CudaStream, sys::CUevent_flags};
    use kernels::cuda::{Card, Launch, Product, Runner, device_runner, with_runner};

    struct Timed {
        inner: Rc<dyn Runner>,
        stream: Arc<CudaStream>,
        spans: RefCell<Vec<(String, CudaEvent, CudaEvent)>>,
    }

    impl Timed {
        fn mark(&self) -> Result<CudaEvent> {
            self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(Error::wrap)
        }

        fn span(&self, name: String, run: impl FnOnce() -> Result<()>) -> Result<()> {
            let begin = self.mark()?;
            run()?;
            let end = self.mark()?;
            self.spans.borrow_mut().push((name, begin, end));
            Ok(())
        }
    }

    impl Runner for Timed {
        fn card(&self) -> Result<Card> {
            self.inner.card()
        }

        fn launch(&self, launch: &Launch, params: &[MaybeUninit<u8>]) -> Result<()> {
            self.span(launch.kernel.to_owned(), || self.inner.launch(launch, params))
        }

        fn multiply(&self, p: &Product) -> Result<()> {
            let name = format!("product {}·{}·{} → {:?}", p.m, p.k, p.n, p.c.dtype);
            let name = if p.batch == 1 { name } else { format!("{} × {name}", p.batch) };
            self.span(name, || self.inner.multiply(p))
        }
    }

    /// What `f` runs on the device, in order, with its milliseconds.
    pub(super) fn ops(device: &Device, f: impl FnOnce() -> Result<()>) -> Result<Vec<(String, f64)>> {
        let stream = device.as_cuda_device()?.cuda_stream();
        let timed = Rc::new(Timed { inner: device_runner(device)?, stream, spans: RefCell::default() });
        with_runner(timed.clone(), f)?;
        let spans = timed.spans.take();
        let ms = |(name, begin, end): (String, CudaEvent, CudaEvent)| {
            Ok((name, f64::from(begin.elapsed_ms(&end).map_err(Error::wrap)?)))
        };
        spans.into_iter().map(ms).collect()
    }
}

#[cfg(not(feature = "cuda"))]
mod timed {
    /// There are no events without CUDA.
    pub(super) fn ops(
        _: &candle_core::Device,
        _: impl FnOnce() -> candle_core::Result<()>,
    ) -> candle_core::Result<Vec<(String, f64)>> {
        candle_core::bail!("built without --features cuda")
    }
}
