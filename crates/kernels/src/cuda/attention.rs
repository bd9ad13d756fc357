//! Causal sliding-window attention: `attention.cu`.

use super::runner::runner;
use super::{Card, Launch, Params, address, alike, blocks, empty, int};
use crate::attention::{Attended, Gradients};
use candle_core::{D, DType, Result, Tensor, bail};

/// Threads of a block of the forward, and of all others.
const FORWARD_THREADS: u32 = 128;
const BACKWARD_THREADS: u32 = 256;

/// Queries of a block of the forward, and its keys in a tile.
const FORWARD_TILES: (usize, usize) = (128, 64);

/// Keys of a block of the backward at a time.
const KEYS: usize = 128;

/// Rows of scores are padded to a multiple of this in the backward.
const ROW_PAD: usize = 64;

/// Share of the multiprocessors' time that may go unused before a key/value head is divided among more blocks.
const IDLE: f64 = 0.1;

#[repr(C)]
#[derive(Clone, Copy)]
struct View {
    data: u64,
    batch: i64,
    time: i64,
    head: i64,
}

impl View {
    /// t: (B, T, H, D), its rows contiguous.
    fn of(t: &Tensor) -> Result<View> {
        let stride = |axis| t.stride()[axis] as i64;
        Ok(View { data: address(t)?, batch: stride(0), time: stride(1), head: stride(2) })
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Forward {
    q: View,
    k: View,
    v: View,
    out: View,
    log_sum_exp: u64,
    time: i32,
    heads: i32,
    kv_heads: i32,
    window: i32,
    scale: f32,
}

// SAFETY: as `Forward` in attention.cu.
unsafe impl Params for Forward {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Backward {
    q: View,
    k: View,
    v: View,
    out: View,
    d_out: View,
    dq: View,
    dk: View,
    dv: View,
    log_sum_exp: u64,
    rows: u64,
    sums: u64,
    batch: i32,
    time: i32,
    heads: i32,
    kv_heads: i32,
    width: i32,
    window: i32,
    splits: i32,
    scale: f32,
}

// SAFETY: as `Backward` in attention.cu.
unsafe impl Params for Backward {}

/// One variant of the backward.
struct Variant {
    kernel: &'static str,
    /// Its way to add up the splits' dq.
    splits: &'static str,
    /// Queries of a tile.
    queries: usize,
    /// Tiles of queries in shared memory at a time.
    stages: usize,
}

impl Variant {
    /// The one for heads of `width`, in the shared memory that the device grants.
    fn of(width: usize, card: Card) -> Variant {
        let new = |kernel, splits, queries, stages| Variant { kernel, splits, queries, stages };
        let large = new("attention_backward_128", "attention_splits_128", 64, 2);
        match width {
            32 => new("attention_backward_32", "attention_splits_32", 64, 2),
            64 => new("attention_backward_64", "attention_splits_64", 64, 2),
            _ if large.shared(width) <= card.shared => large,
            _ => new("attention_backward_128_small", "attention_splits_128_small", 32, 1),
        }
    }

    /// Shared memory of a block, bytes: keys and values; queries, d_out and two numbers a row; P and dS.
    fn shared(&self, width: usize) -> usize {
        let elements = 2 * KEYS * width + self.stages * 2 * self.queries * width + 2 * self.queries * KEYS;
        elements * DType::BF16.size_in_bytes() + self.stages * self.queries * 2 * size_of::<f32>()
    }
}

/// Whether there are kernels for heads of this width.
pub(crate) fn takes(q: &Tensor) -> bool {
    super::takes(q) && q.dim(D::Minus1).is_ok_and(|width| matches!(width, 32 | 64 | 128))
}

/// q: (B, T, H, D); k, v: (B, T, Hkv, D); all bf16, their shapes checked, D one that [`takes`] takes.
pub(crate) fn forward(q: &Tensor, k: &Tensor, v: &Tensor, window: usize) -> Result<Attended> {
    let (batch, time, heads, width) = q.dims4()?;
    let (q, k, v) = (on_16_bytes(q)?, on_16_bytes(k)?, on_16_bytes(v)?);
    alike("attention", q.device(), DType::BF16, &[&k, &v])?;
    let out = empty(q.shape(), DType::BF16, q.device())?;
    let log_sum_exp = empty((batch, heads, time), DType::F32, q.device())?;
    let params = Forward {
        q: View::of(&q)?,
        k: View::of(&k)?,
        v: View::of(&v)?,
        out: View::of(&out)?,
        log_sum_exp: address(&log_sum_exp)?,
        time: int("attention", time)?,
        heads: int("attention", heads)?,
        kv_heads: int("attention", k.dim(2)?)?,
        window: int("attention", window.min(time))?,
        scale: scale(width),
    };
    let kernel = match width {
        32 => "attention_forward_32",
        64 => "attention_forward_64",
        _ => "attention_forward_128",
    };
    let (queries, keys) = FORWARD_TILES;
    let grid = [blocks("attention", time, queries)?, heads as u32, batch as u32];
    // the queries, and two tiles of keys and of values
    let shared = (queries + 4 * keys) * width * DType::BF16.size_in_bytes();
    Launch { kernel, grid, threads: FORWARD_THREADS, shared }.run(q.device(), &params)?;
    Ok(Attended { out, log_sum_exp })
}

/// As [`forward`], with what it returned and the gradient of its `out`.
pub(crate) fn backward(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    window: usize,
    attended: &Attended,
    d_out: &Tensor,
) -> Result<Gradients> {
    let (batch, time, heads, width) = q.dims4()?;
    let kv_heads = k.dim(2)?;
    let device = q.device();
    let (q, k, v) = (on_16_bytes(q)?, on_16_bytes(k)?, on_16_bytes(v)?);
    let (out, d_out) = (on_16_bytes(&attended.out)?, on_16_bytes(d_out)?);
    let log_sum_exp = attended.log_sum_exp.contiguous()?;
    alike("attention", device, DType::BF16, &[&k, &v, &out, &d_out])?;
    alike("attention", device, DType::F32, &[&log_sum_exp])?;
    if log_sum_exp.dims() != [batch, heads, time] || log_sum_exp.dtype() != DType::F32 {
        bail!("attention: {log_sum_exp:?} is no log-sum-exp of q {:?}", q.shape())
    }
    let card = runner(device)?.card()?;
    let variant = Variant::of(width, card);
    let splits = splits(batch * kv_heads, time.div_ceil(KEYS), card.multiprocessors);
    let (tiles, padded) = (time.div_ceil(variant.queries), time.next_multiple_of(ROW_PAD));
    let rows = empty((batch, heads, padded, 2), DType::F32, device)?;
    let sums = empty((splits, batch, heads, tiles * variant.queries * width), DType::F32, device)?;
    let made = |like: &Tensor| empty(like.shape(), DType::BF16, device);
    let (dq, dk, dv) = (made(&q)?, made(&k)?, made(&v)?);
    let params = Backward {
        q: View::of(&q)?,
        k: View::of(&k)?,
        v: View::of(&v)?,
        out: View::of(&out)?,
        d_out: View::of(&d_out)?,
        dq: View::of(&dq)?,
        dk: View::of(&dk)?,
        dv: View::of(&dv)?,
        log_sum_exp: address(&log_sum_exp)?,
        rows: address(&rows)?,
        sums: address(&sums)?,
        batch: int("attention", batch)?,
        time: int("attention", time)?,
        heads: int("attention", heads)?,
        kv_heads: int("attention", kv_heads)?,
        width: int("attention", width)?,
        window: int("attention", window.min(time))?,
        splits: int("attention", splits)?,
        scale: scale(width),
    };
    let launch = |kernel, grid, shared| {
        Launch { kernel, grid, threads: BACKWARD_THREADS, shared }.run(device, &params)
    };
    let rows_a_block = BACKWARD_THREADS as usize / (width / 8);
    let grid = |x| [x, heads as u32, batch as u32];
    launch("attention_rows", grid(blocks("attention", padded, rows_a_block)?), 0)?;
    launch(variant.kernel, [splits as u32, kv_heads as u32, batch as u32], variant.shared(width))?;
    if splits > 1 {
        launch(variant.splits, grid(blocks("attention", tiles, 1)?), 0)?;
    }
    Ok(Gradients { q: dq, k: dk, v: dv })
}

/// 1/√D.
fn scale(width: usize) -> f32 {
    (1.0 / (width as f64).sqrt()) as f32
}

/// `t`, or a copy of it: bf16 with each row in whole vectors of 16 bytes.
fn on_16_bytes(t: &Tensor) -> Result<Tensor> {
    let stride = t.stride();
    let whole = stride[3] == 1 && stride[..3].iter().all(|s| s % 8 == 0) && address(t)? % 16 == 0;
    if whole { Ok(t.clone()) } else { t.force_contiguous() }
}

/// Blocks among which the key blocks of each of `work` key/value heads are divided.
///
/// As few as keep the multiprocessors busy, each running one block at a time: every split adds up a dq of its own.
fn splits(work: usize, key_blocks: usize, multiprocessors: usize) -> usize {
    let idle = |splits: usize| {
        let waves = (work * splits).div_ceil(multiprocessors);
        1.0 - (work * splits) as f64 / (waves * multiprocessors) as f64
    };
    let tolerable = (1..=key_blocks).find(|&splits| idle(splits) <= IDLE);
    tolerable.unwrap_or_else(|| {
        (1..=key_blocks).min_by(|&a, &b| idle(a).total_cmp(&idle(b))).expect("there are keys")
    })
}
