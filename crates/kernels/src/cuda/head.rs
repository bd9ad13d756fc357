//! Head, soft cap and cross-entropy: `head.cu`, between the products of a chunk.

use super::product::{Operand, multiply};
use super::{Launch, Params, address, alike, empty, int};
use crate::storage::apart;
use candle_core::{DType, Device, Result, Tensor};

/// Logits of a chunk: 8,192 rows of 8,192 ids, 128 MiB.
///
/// Then dx and dW are each 128 tiles of 128×256, nearly one for each of 132 multiprocessors. A chunk that stays in the
/// second-level cache would leave dx a quarter of them, and gain little: the products are bound by arithmetic, and the row
/// kernel's exponentials take nearly as long as its memory.
const CHUNK: usize = 1 << 26;

/// [`CHUNK`] where kernels are emulated, so that tests see several.
const EMULATED_CHUNK: usize = 1 << 10;

/// Vectors of eight logits that a thread keeps in registers: as in head.cu.
const KEPT: usize = 4;

/// Most threads of a block.
const THREADS: usize = 1024;

/// Shared memory of a reduction over a block, bytes.
const ROOM: usize = 32 * size_of::<f32>();

#[repr(C)]
#[derive(Clone, Copy)]
struct Rows {
    z: u64,
    targets: u64,
    losses: u64,
    stride: i64,
    vocab: i32,
    gradients: i32,
    cap: f32,
    weight: f32,
}

// SAFETY: as `Rows` in head.cu.
unsafe impl Params for Rows {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Mean {
    losses: u64,
    mean: u64,
    rows: i64,
}

// SAFETY: as `Mean` in head.cu.
unsafe impl Params for Mean {}

/// The mean loss in f32 and, when asked for with (scale, dw), dx; dw is added to. A target outside the vocabulary
/// makes the loss NaN: to refuse it, the host would have to wait for the device.
pub(crate) fn loss(
    x: &Tensor,
    w: &Tensor,
    targets: &Tensor,
    cap: Option<f64>,
    gradients: Option<(f64, &Tensor)>,
) -> Result<(Tensor, Option<Tensor>)> {
    let device = x.device();
    let (vocab, width) = w.dims2()?;
    let (flat, w, targets) = (x.contiguous()?.reshape(((), width))?, w.contiguous()?, targets.contiguous()?);
    alike("head", device, DType::BF16, &[&w])?;
    alike("head", device, DType::U32, &[&targets])?;
    let rows = flat.dim(0)?;
    let stride = vocab.next_multiple_of(8);
    let chunk = if device.is_cpu() { EMULATED_CHUNK } else { CHUNK };
    let per_chunk = (chunk / stride).clamp(1, rows);
    // whole vectors in every row, whatever the vocabulary
    let logits = empty((per_chunk, stride), DType::BF16, device)?;
    let losses = empty(rows, DType::F32, device)?;
    let dx = match gradients {
        None => None,
        Some((_, dw)) => {
            alike("head", device, DType::F32, &[dw])?;
            apart("head", &[dw], &[&flat, &w])?;
            Some(empty((rows, width), DType::BF16, device)?)
        }
    };
    for first in (0..rows).step_by(per_chunk) {
        let here = per_chunk.min(rows - first);
        let x = flat.narrow(0, first, here)?;
        let z = logits.narrow(0, 0, here)?.narrow(1, 0, vocab)?;
        multiply(device, 1.0, Operand::of(&x)?, Operand::of(&w)?.t(), 0.0, Operand::of(&z)?)?;
        let params = Rows {
            z: address(&z)?,
            targets: address(&targets)? + (first * size_of::<u32>()) as u64,
            losses: address(&losses)? + (first * size_of::<f32>()) as u64,
            stride: stride as i64,
            vocab: int("head", vocab)?,
            gradients: gradients.is_some().into(),
            cap: cap.unwrap_or(0.0) as f32,
            // bf16 has the range of f32: a gradient divided by all rows does not vanish in it
            weight: gradients.map_or(0.0, |(scale, _)| scale / rows as f64) as f32,
        };
        entropy(device, here, stride, &params)?;
        if let (Some((_, dw)), Some(dx)) = (gradients, &dx) {
            let dx = dx.narrow(0, first, here)?;
            multiply(device, 1.0, Operand::of(&z)?, Operand::of(&w)?, 0.0, Operand::of(&dx)?)?;
            multiply(device, 1.0, Operand::of(&z)?.t(), Operand::of(&x)?, 1.0, Operand::of(dw)?)?;
        }
    }
    let mean = empty((), DType::F32, device)?;
    let params = Mean { losses: address(&losses)?, mean: address(&mean)?, rows: rows as i64 };
    let launch = Launch { shared: ROOM, ..Launch::new("head_mean", 1, THREADS as u32) };
    launch.run(device, &params)?;
    Ok((mean, dx.map(|dx| dx.reshape(x.shape())).transpose()?))
}

/// Losses and gradients of `rows` rows of logits.
fn entropy(device: &Device, rows: usize, stride: usize, params: &Rows) -> Result<()> {
    let threads = (stride / 8).div_ceil(KEPT).next_multiple_of(32);
    let kernel = match params.vocab as usize {
        vocab if vocab == 8 * KEPT * threads => "head_rows",
        _ if threads <= THREADS => "head_odd_rows",
        _ => "head_long_rows",
    };
    let launch = Launch::new(kernel, int("head", rows)? as u32, threads.min(THREADS) as u32);
    Launch { shared: ROOM, ..launch }.run(device, params)
}
