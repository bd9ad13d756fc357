//! Embedding: `embedding.cu`.

use super::{Launch, Params, address, address_or_null, alike, blocks, empty, in_place, int, together};
use crate::storage::apart;
use candle_core::{DType, Device, Result, Tensor, bail};

/// Rows of a block of the forward, one for each warp.
const ROWS: usize = 8;

// The rest as in embedding.cu.

/// Threads of a block that sorts, and as many values has a digit.
const THREADS: usize = 256;
const DIGIT_BITS: u32 = THREADS.ilog2();
const WARPS: usize = THREADS / 32;
/// Positions that a block sorts at a time.
const TILE: usize = THREADS * 8;
/// Blocks that sort: each adds up the counts of all others.
const MOST_SORTERS: usize = 128;
/// Sorted positions whose rows a block adds, columns of a block, its threads, and rows of threads that join runs.
const CHUNK: usize = 64;
const WIDE: usize = 512;
const COLUMNS: usize = WIDE / 8;
const JOINERS: usize = 4;

#[repr(C)]
#[derive(Clone, Copy)]
struct Gather {
    w: u64,
    ids: u64,
    y: u64,
    rows: i64,
    vocab: i32,
    width: i32,
}

// SAFETY: as `Gather` in embedding.cu.
unsafe impl Params for Gather {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sort {
    ids: u64,
    from: u64,
    to: u64,
    counts: u64,
    n: i32,
    vocab: i32,
    per_block: i32,
    shift: i32,
    mask: i32,
}

// SAFETY: as `Sort` in embedding.cu.
unsafe impl Params for Sort {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sum {
    ids: u64,
    order: u64,
    dy: u64,
    dw: u64,
    edges: u64,
    n: i32,
    vocab: i32,
    width: i32,
}

// SAFETY: as `Sum` in embedding.cu.
unsafe impl Params for Sum {}

pub(crate) fn forward(w: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let ((vocab, width), w, ids) = (w.dims2()?, w.contiguous()?, ids.contiguous()?);
    let rows = ids.elem_count();
    let mut shape = ids.dims().to_vec();
    shape.push(width);
    alike("embedding", w.device(), DType::U32, &[&ids])?;
    let y = empty(shape, DType::BF16, w.device())?;
    let params = Gather {
        w: address(&w)?,
        ids: address(&ids)?,
        y: address(&y)?,
        rows: rows as i64,
        vocab: int("embedding", vocab)?,
        width: int("embedding", width)?,
    };
    Launch::new("embedding_forward", blocks("embedding", rows, ROWS)?, 32 * ROWS as u32)
        .run(w.device(), &params)?;
    Ok(y)
}

pub(crate) fn add_backward(dw: &Tensor, ids: &Tensor, dy: &Tensor) -> Result<()> {
    let ((vocab, width), ids, dy) = (dw.dims2()?, ids.contiguous()?, dy.contiguous()?);
    if dw.dtype() != DType::F32 {
        bail!("embedding: dw must be f32, not {:?}", dw.dtype())
    }
    alike("embedding", dy.device(), DType::U32, &[&ids])?;
    together("embedding", dy.device(), &[dw])?;
    apart("embedding", &[dw], &[&dy])?;
    let n = int("embedding", ids.elem_count())?;
    let (vocab, wide) = (int("embedding", vocab)?, int("embedding", width)?);
    let order = sorted(&ids, n, vocab)?;
    let chunks = ids.elem_count().div_ceil(CHUNK);
    let edges = empty((chunks, 2, width), DType::F32, dw.device())?;
    let params = Sum {
        ids: address(&ids)?,
        order: address(&order)?,
        dy: address(&dy)?,
        dw: in_place("embedding", dw)?,
        edges: address(&edges)?,
        n,
        vocab,
        width: wide,
    };
    let grid = [blocks("embedding", chunks, 1)?, blocks("embedding", width, WIDE)?, 1];
    let shared = (2 * CHUNK + 2) * size_of::<u32>();
    Launch { kernel: "embedding_sum", grid, threads: COLUMNS as u32, shared }.run(dw.device(), &params)?;
    let threads = COLUMNS * JOINERS;
    let shared = threads * 8 * size_of::<f32>();
    Launch { kernel: "embedding_join", grid, threads: threads as u32, shared }.run(dw.device(), &params)
}

/// Positions by id, those of one id in their order: a radix sort, the lowest digit first.
fn sorted(ids: &Tensor, n: i32, vocab: i32) -> Result<Tensor> {
    let (count, device) = (ids.elem_count(), ids.device());
    let per_block = count.div_ceil(TILE).div_ceil(MOST_SORTERS).max(1) * TILE;
    let sorters = blocks("embedding", count, per_block)?;
    let counts = empty((sorters as usize, THREADS), DType::U32, device)?;
    // ids outside the table count as `vocab`
    let bits = i32::BITS - vocab.leading_zeros();
    let passes = bits.div_ceil(DIGIT_BITS).max(1);
    let digit = bits.div_ceil(passes);
    let mut from: Option<Tensor> = None;
    for pass in 0..passes {
        let to = empty(count, DType::U32, device)?;
        sort_by_digit(
            device,
            sorters,
            &Sort {
                ids: address(ids)?,
                from: address_or_null(from.as_ref())?,
                to: address(&to)?,
                counts: address(&counts)?,
                n,
                vocab,
                per_block: int("embedding", per_block)?,
                shift: (pass * digit) as i32,
                mask: (1 << digit) - 1,
            },
        )?;
        from = Some(to);
    }
    Ok(from.expect("there is at least one pass"))
}

fn sort_by_digit(device: &Device, sorters: u32, params: &Sort) -> Result<()> {
    let words = |n: usize| n * size_of::<u32>();
    let launch = Launch::new("embedding_count", sorters, THREADS as u32);
    Launch { shared: words(THREADS), ..launch }.run(device, params)?;
    let launch = Launch::new("embedding_place", sorters, THREADS as u32);
    Launch { shared: words(THREADS + WARPS * (THREADS + 1) + WARPS), ..launch }.run(device, params)
}
