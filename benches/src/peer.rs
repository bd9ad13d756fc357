//! The PyTorch peer as a child process that makes one step on the batch it is sent.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use candle_core::{IndexOp, Tensor};

/// Shape of the model, as `peers/torch_gpt.py` wants it.
pub struct Shape<'a> {
    /// Token ids.
    pub vocab: usize,
    /// Tokens in a row.
    pub context: usize,
    /// Model width.
    pub width: usize,
    /// Width of a head; as many key/value heads as query heads.
    pub head_dim: usize,
    /// Attention window by layer.
    pub windows: &'a [usize],
}

/// The peer's script in a checkout of this repository.
pub const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/torch_gpt.py");

/// A running peer.
pub struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// What the peer reports of a step.
pub struct Step {
    /// Forward, backward and update, by its own clock.
    pub time: Duration,
    /// Mean nats a token, before the update.
    pub loss: f64,
    /// Most memory held on a GPU so far; 0 on a CPU.
    pub peak_bytes: u64,
}

impl Peer {
    /// Starts `python` (with torch and numpy) on the peer script, on the CPU.
    pub fn start(python: &Path, shape: &Shape, threads: usize, seed: u64) -> Result<Self> {
        Self::start_with(python, Path::new(SCRIPT), shape, threads, seed, "")
    }

    /// The same on the GPU, in bf16.
    pub fn on_gpu(python: &Path, script: &Path, shape: &Shape, seed: u64, compile: bool) -> Result<Self> {
        Self::start_with(python, script, shape, 1, seed, &format!(r#","cuda":true,"compile":{compile}"#))
    }

    fn start_with(
        python: &Path,
        script: &Path,
        shape: &Shape,
        threads: usize,
        seed: u64,
        more: &str,
    ) -> Result<Self> {
        let mut child = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the peer {}", python.display()))?;
        let mut to = child.stdin.take().context("the peer's stdin")?;
        let from = BufReader::new(child.stdout.take().context("the peer's stdout")?);
        let Shape { vocab, context, width, head_dim, windows } = shape;
        writeln!(
            to,
            r#"{{"vocab":{vocab},"context":{context},"width":{width},"head_dim":{head_dim},"windows":{windows:?},"threads":{threads},"seed":{seed}{more}}}"#
        )?;
        Ok(Self { child, to, from })
    }

    /// One step on x, y: (B, T) u32, at `progress` of the budget.
    pub fn step(&mut self, x: &Tensor, y: &Tensor, progress: f64) -> Result<Step> {
        let context = x.dim(1)?;
        let last = y.i((.., context - 1..))?;
        let ids: Vec<u32> = Tensor::cat(&[x, &last], 1)?.flatten_all()?.to_vec1()?;
        self.accumulate(&ids, x.dim(0)?, 1, progress)
    }

    /// One step on `micro` micro-batches of `rows`, each row's ids with the one after it: micro · rows · (T + 1).
    pub fn accumulate(&mut self, ids: &[u32], rows: usize, micro: usize, progress: f64) -> Result<Step> {
        writeln!(self.to, r#"{{"progress":{progress},"rows":{rows},"micro":{micro}}}"#)?;
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| (id as u16).to_le_bytes()).collect();
        self.to.write_all(&bytes)?;
        self.to.flush()?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let figure = |key: &str| -> Result<f64> {
            let (_, rest) = line.split_once(key).with_context(|| format!("the peer answered {line:?}"))?;
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            Ok(rest[..end].trim_matches([':', ' ', '"']).parse()?)
        };
        Ok(Step {
            time: Duration::from_secs_f64(figure("\"seconds\"")?),
            loss: figure("\"loss\"")?,
            peak_bytes: figure("\"peak_bytes\"")? as u64,
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // already gone is as good
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The middle value; the lower of two.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}
