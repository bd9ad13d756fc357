//! The GPT: its shape, its weights, its forward pass, and how it is stored.
//!
//! Shapes: B rows, T tokens a row, C model width, H heads of D, Hkv key/value heads, V ids.

use candle_core::{DType, Device, Result, Tensor};
use prepare::profile::Profile;
use prepare::{Checkpoint, Description};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};
use tape::{Node, Param, Tape};

/// A constant that differs by profile; the search edits the running profile's.
pub struct PerProfile<T> {
    pub full: T,
    pub laptop: T,
    pub smoke: T,
}

impl<T: Copy> PerProfile<T> {
    pub const fn get(&self, profile: Profile) -> T {
        match profile {
            Profile::Full => self.full,
            Profile::Laptop => self.laptop,
            Profile::Smoke => self.smoke,
        }
    }
}

// A line `pub const NAME: TYPE = VALUE; // knob: KIND RANGE; …` may be moved by the search; keep it one line.
#[rustfmt::skip]
mod knobs {
    use super::PerProfile;

    pub const DEPTH: PerProfile<usize> = PerProfile { full: 8, laptop: 2, smoke: 2 }; // knob: int 1..16; layers
    pub const ASPECT: PerProfile<usize> = PerProfile { full: 64, laptop: 64, smoke: 32 }; // knob: int 16..192; C = DEPTH·ASPECT, rounded up to a multiple of HEAD_DIM
    pub const HEAD_DIM: PerProfile<usize> = PerProfile { full: 128, laptop: 64, smoke: 32 }; // knob: pow2 16..128; D
    pub const HEADS_PER_KV: usize = 1; // knob: pow2 1..4; query heads that share a key/value head, at most H
    pub const MLP_RATIO: usize = 4; // knob: int 1..8; hidden width of the MLP over C
    pub const WINDOWS: &str = "SSSL"; // knob: choice "L"|"SL"|"SSL"|"SSSL"; by layer, repeated; the last layer is always L
    pub const SHORT_WINDOW: f64 = 0.5; // knob: log 0.05..1.0; window of an S layer over T; an L layer sees all of T
    pub const VALUE_EVERY: usize = 2; // knob: int 1..8; a value embedding in every n-th layer, counted from the last
    pub const GATE_CHANNELS: usize = 32; // knob: pow2 8..128; channels of the attention input that gate it
    pub const ROPE_BASE: f64 = 10_000.0; // knob: log 100.0..1000000.0
    pub const LOGIT_CAP: f64 = 15.0; // knob: log 5.0..60.0; logits = cap·tanh(logits/cap)

    pub const EMBED_STD: f64 = 1.0; // knob: log 0.1..2.0; initial std of the token embedding
    pub const HEAD_STD: f64 = 0.001; // knob: log 0.0001..0.05; initial std of the head
    pub const BLOCK_SCALE: f64 = 1.0; // knob: log 0.3..2.0; initial std of q, k, v, MLP and value embeddings, times √C
    pub const RESIDUAL: f64 = 1.0; // knob: lin 0.5..1.2; initial weight of the stream at each layer
    pub const SHORTCUT: f64 = 0.1; // knob: lin 0.0..0.5; initial weight of the embedding at each layer
}
pub use knobs::*;

/// Everything that decides the shapes of a model; stored with its weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    pub vocab: usize,
    /// Longest row the model is meant for.
    pub context: usize,
    /// C, a multiple of `head_dim`.
    pub width: usize,
    pub head_dim: usize,
    pub kv_heads: usize,
    /// Keys before itself that a token sees, by layer; as many as there are layers.
    pub windows: Vec<usize>,
}

impl Config {
    /// The constants of `profile`.
    pub fn new(profile: Profile) -> Self {
        let (depth, head_dim) = (DEPTH.get(profile), HEAD_DIM.get(profile));
        let spec = profile.spec();
        Self::with_shape(spec.vocab, spec.context, depth, depth * ASPECT.get(profile), head_dim)
    }

    /// `depth` layers of at least `width`.
    pub fn with_shape(vocab: usize, context: usize, depth: usize, width: usize, head_dim: usize) -> Self {
        let width = width.next_multiple_of(head_dim);
        let short = ((context as f64 * SHORT_WINDOW) as usize).max(1);
        let pattern = |layer: usize| WINDOWS.as_bytes()[layer % WINDOWS.len()];
        let is_long = |layer| layer + 1 == depth || pattern(layer) == b'L';
        let windows = (0..depth).map(|layer| if is_long(layer) { context } else { short }).collect();
        // an odd number of heads is not shared evenly: then each has its own
        let heads = width / head_dim;
        let kv_heads = if heads.is_multiple_of(HEADS_PER_KV) { heads / HEADS_PER_KV } else { heads };
        Self { vocab, context, width, head_dim, kv_heads, windows }
    }

    pub fn depth(&self) -> usize {
        self.windows.len()
    }

    pub fn heads(&self) -> usize {
        self.width / self.head_dim
    }

    /// Whether `layer` has a value embedding: the last one always.
    fn has_value(&self, layer: usize) -> bool {
        (self.depth() - 1 - layer).is_multiple_of(VALUE_EVERY)
    }
}

/// Where the initial value of a weight comes from.
#[derive(Clone, Copy)]
enum Init {
    Normal(f64),
    /// In ±√3·s: standard deviation s.
    Uniform(f64),
    Constant(f64),
}

impl Init {
    fn draw(self, rng: &mut SmallRng, count: usize) -> Vec<f32> {
        let width = 3f64.sqrt();
        let one = |_| match self {
            Init::Normal(std) => std as f32 * rng.sample::<f32, _>(StandardNormal),
            Init::Uniform(std) => (std * width) as f32 * rng.random_range(-1.0f32..1.0),
            Init::Constant(value) => value as f32,
        };
        (0..count).map(one).collect()
    }
}

/// One layer's weights, all (out, in).
pub struct Block {
    pub q: Param,
    pub k: Param,
    pub v: Param,
    pub out: Param,
    pub up: Param,
    pub down: Param,
    /// (Hkv, GATE_CHANNELS) and the table (V, Hkv·D).
    pub value: Option<(Param, Param)>,
}

/// The model.
pub struct Gpt {
    pub config: Config,
    /// (V, C).
    pub wte: Param,
    /// (V, C).
    pub head: Param,
    /// (depth): weight of the stream on entering each layer.
    pub residual: Param,
    /// (depth): weight of the embedding on entering each layer.
    pub shortcut: Param,
    pub blocks: Vec<Block>,
    /// cos, sin: (context, D/2).
    rotary: (Tensor, Tensor),
}

impl Gpt {
    /// Random weights, the same for one seed.
    pub fn new(config: Config, device: &Device, seed: u64) -> Result<Self> {
        Self::in_dtype(config, device, compute_dtype(device), seed)
    }

    /// [`Gpt::new`] that computes in `compute`.
    pub fn in_dtype(config: Config, device: &Device, compute: DType, seed: u64) -> Result<Self> {
        let mut rng = SmallRng::seed_from_u64(seed);
        Self::build(config, device, compute, |_, dims, init| {
            Tensor::from_vec(init.draw(&mut rng, dims.iter().product()), dims, &Device::Cpu)
        })
    }

    /// The weights of a checkpoint.
    pub fn from_checkpoint(checkpoint: &Checkpoint, device: &Device) -> Result<Self> {
        let config = checkpoint.config()?;
        Self::build(config, device, compute_dtype(device), |name, dims, _| {
            let found = checkpoint.tensor(name)?;
            if found.dims() != dims {
                candle_core::bail!("checkpoint: {name} is {:?}, the config makes it {dims:?}", found.dims())
            }
            found.to_dtype(DType::F32)
        })
    }

    /// Config and weights.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let tensors = self.params().map(|p| (p.name().to_string(), p.master())).collect();
        let config = serde_json::to_value(&self.config).map_err(candle_core::Error::wrap)?;
        Ok(Checkpoint { tensors, config })
    }

    fn build(
        config: Config,
        device: &Device,
        compute: DType,
        mut make: impl FnMut(&str, &[usize], Init) -> Result<Tensor>,
    ) -> Result<Self> {
        // dtypes a weight is stored and computed in; a table's rows are read and updated as they are
        let (matrix, table, scalar) = ([DType::F32, compute], [compute; 2], [DType::F32; 2]);
        let mut weight = |name: &str, dims: &[usize], init, [stored, computed]: [DType; 2]| {
            let value = make(name, dims, init)?.to_dtype(stored)?.to_device(device)?;
            Param::with_compute(name, value, computed)
        };
        let (v, c, depth) = (config.vocab, config.width, config.depth());
        let kv = config.kv_heads * config.head_dim;
        let spread = Init::Uniform(BLOCK_SCALE / (c as f64).sqrt());
        let zero = Init::Constant(0.0);
        let wte = weight("wte", &[v, c], Init::Normal(EMBED_STD), table)?;
        let head = weight("head", &[v, c], Init::Normal(HEAD_STD), matrix)?;
        let residual = weight("residual", &[depth], Init::Constant(RESIDUAL), scalar)?;
        let shortcut = weight("shortcut", &[depth], Init::Constant(SHORTCUT), scalar)?;
        let mut blocks = Vec::new();
        for layer in 0..depth {
            let mut weight = |name: &str, out: usize, inner: usize, init, kind| {
                weight(&format!("blocks.{layer}.{name}"), &[out, inner], init, kind)
            };
            blocks.push(Block {
                q: weight("q", c, c, spread, matrix)?,
                k: weight("k", kv, c, spread, matrix)?,
                v: weight("v", kv, c, spread, matrix)?,
                out: weight("out", c, c, zero, matrix)?,
                up: weight("up", MLP_RATIO * c, c, spread, matrix)?,
                down: weight("down", c, MLP_RATIO * c, zero, matrix)?,
                value: match config.has_value(layer) {
                    true => Some((
                        weight("gate", config.kv_heads, GATE_CHANNELS.min(c), zero, matrix)?,
                        weight("value", v, kv, spread, table)?,
                    )),
                    false => None,
                },
            });
        }
        let rotary = rotary(config.context, config.head_dim, compute, device)?;
        Ok(Self { config, wte, head, residual, shortcut, blocks, rotary })
    }

    /// Every parameter, in a fixed order.
    pub fn params(&self) -> impl Iterator<Item = &Param> {
        let others = [&self.wte, &self.head, &self.residual, &self.shortcut];
        others.into_iter().chain(self.matrices()).chain(self.tables())
    }

    /// The matrices inside the blocks, which Muon updates.
    pub fn matrices(&self) -> impl Iterator<Item = &Param> {
        self.blocks.iter().flat_map(|b| {
            let gate = b.value.iter().map(|(gate, _)| gate);
            [&b.q, &b.k, &b.v, &b.out, &b.up, &b.down].into_iter().chain(gate)
        })
    }

    /// The value embeddings.
    pub fn tables(&self) -> impl Iterator<Item = &Param> {
        self.blocks.iter().filter_map(|b| Some(&b.value.as_ref()?.1))
    }

    /// ids: (B, T) u32 → what the head reads, (B, T, C).
    fn trunk(&self, tape: &Tape, ids: &Tensor) -> Result<Node> {
        let time = ids.dim(1)?;
        if time > self.config.context {
            candle_core::bail!("{time} tokens in a row, the model is made for {}", self.config.context)
        }
        let rotary = (self.rotary.0.narrow(0, 0, time)?, self.rotary.1.narrow(0, 0, time)?);
        let (residual, shortcut) = (tape.param(&self.residual), tape.param(&self.shortcut));
        let x0 = tape.embedding(&self.wte, ids)?.rms_norm()?;
        let mut x = x0.clone();
        for (layer, block) in self.blocks.iter().enumerate() {
            x = x.mix(&x0, &residual.narrow(0, layer, 1)?, &shortcut.narrow(0, layer, 1)?)?;
            x = (&x + self.attention(block, layer, &x.rms_norm()?, ids, &rotary)?)?;
            x = (&x + mlp(block, &x.rms_norm()?)?)?;
        }
        x.rms_norm()
    }

    /// h: (B, T, C), normed → (B, T, C).
    fn attention(
        &self,
        block: &Block,
        layer: usize,
        h: &Node,
        ids: &Tensor,
        (cos, sin): &(Tensor, Tensor),
    ) -> Result<Node> {
        let (b, t) = ids.dims2()?;
        let (d, heads, kv_heads) = (self.config.head_dim, self.config.heads(), self.config.kv_heads);
        let q = h.linear(&block.q)?.reshape((b, t, heads, d))?.rope_norm(cos, sin)?;
        let k = h.linear(&block.k)?.reshape((b, t, kv_heads, d))?.rope_norm(cos, sin)?;
        let mut v = h.linear(&block.v)?.reshape((b, t, kv_heads, d))?;
        if let Some((gate, table)) = &block.value {
            let gate = h.narrow(2, 0, GATE_CHANNELS.min(self.config.width))?.linear(gate)?;
            let value = h.tape().embedding(table, ids)?.reshape((b, t, kv_heads, d))?;
            v = v.gated_value(&gate, &value)?;
        }
        let y = q.attention(&k, &v, self.config.windows[layer])?;
        y.reshape((b, t, heads * d))?.linear(&block.out)
    }

    /// Mean cross-entropy in nats. ids, targets: (B, T) u32 → scalar f32.
    pub fn loss(&self, tape: &Tape, ids: &Tensor, targets: &Tensor) -> Result<Node> {
        self.trunk(tape, ids)?.head_loss(&self.head, targets, Some(LOGIT_CAP))
    }

    /// ids: (B, T) u32 → logits (B, T, V) f32.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let logits = self.trunk(&Tape::no_grad(), ids)?.linear(&self.head)?.value().to_dtype(DType::F32)?;
        kernels::soft_cap::assign(&logits, LOGIT_CAP)?;
        Ok(logits)
    }

    /// What the summary reports. FLOPs: 6 a matrix weight, and what attention multiplies.
    pub fn describe(&self) -> Description {
        let c = &self.config;
        let count = |params: &mut dyn Iterator<Item = &Param>| params.map(Param::elem_count).sum::<usize>();
        let matrices = count(&mut self.matrices()) + self.head.elem_count();
        let reach: usize = c.windows.iter().map(|&w| w.min(c.context)).sum();
        Description {
            depth: c.depth(),
            num_params: count(&mut self.params()) as u64,
            flops_per_token: (6 * matrices + 12 * c.heads() * c.head_dim * reach) as f64,
        }
    }
}

/// h: (B, T, C), normed → (B, T, C).
fn mlp(block: &Block, h: &Node) -> Result<Node> {
    h.linear(&block.up)?.relu_squared()?.linear(&block.down)
}

/// bf16 where the device has units for it.
pub fn compute_dtype(device: &Device) -> DType {
    if device.is_cuda() { DType::BF16 } else { DType::F32 }
}

/// cos, sin: (time, D/2), angles t·base^(−2i/D); made on the CPU, so that a GPU need not compile candle's cosine.
fn rotary(time: usize, head_dim: usize, dtype: DType, device: &Device) -> Result<(Tensor, Tensor)> {
    let half = head_dim / 2;
    let frequency = |i: usize| ROPE_BASE.powf(-2.0 * i as f64 / head_dim as f64);
    let angle = |n: usize| (n / half) as f64 * frequency(n % half);
    let table = |f: fn(f64) -> f64| {
        let values: Vec<f32> = (0..time * half).map(|n| f(angle(n)) as f32).collect();
        Tensor::from_vec(values, (time, half), &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
    };
    Ok((table(f64::cos)?, table(f64::sin)?))
}
