//! Causal sliding-window attention: query i attends keys j with i − window ≤ j ≤ i.
//!
//! No T×T tensor exists: scores are made for a block of queries against the keys its windows reach, and
//! the backward makes them again from the log-sum-exp (FlashAttention-2's recurrence, arXiv 2307.08691).

use crate::composed::{dispatch, gradients, widen};
use crate::cuda;
use crate::gemm::{Matrix, Parallelism, add_product, set_product};
use crate::panel::Panel;
use crate::real::Real;
use crate::rows::{dot, largest, replace_and_sum, vectorized};
use crate::storage::{elements, tensor};
use candle_core::{D, Result, Tensor, bail};
use rayon::prelude::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Queries that share a product with their keys. More wastes scores beyond the diagonal, fewer starves the product.
const BLOCK: usize = 64;

/// What [`forward`] returns.
#[derive(Debug, Clone)]
pub struct Attended {
    /// (B, T, H, D).
    pub out: Tensor,
    /// ln Σ exp(scores) of each query: (B, H, T), f32 (f64 for f64 inputs).
    pub log_sum_exp: Tensor,
}

/// Gradients of [`forward`].
#[derive(Debug, Clone)]
pub struct Gradients {
    /// (B, T, H, D).
    pub q: Tensor,
    /// (B, T, Hkv, D).
    pub k: Tensor,
    /// (B, T, Hkv, D).
    pub v: Tensor,
}

/// Sizes of one call, checked.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    time: usize,
    heads: usize,
    kv_heads: usize,
    width: usize,
    window: usize,
}

impl Sizes {
    fn of(q: &Tensor, k: &Tensor, v: &Tensor, window: usize) -> Result<Sizes> {
        let (batch, time, heads, width) = q.dims4()?;
        let (_, _, kv_heads, _) = k.dims4()?;
        if k.dims() != [batch, time, kv_heads, width] || v.dims() != k.dims() {
            bail!("attention: q {:?}, k {:?} and v {:?} do not fit", q.shape(), k.shape(), v.shape())
        }
        if q.elem_count() == 0 || kv_heads == 0 || heads % kv_heads != 0 {
            bail!("attention: {heads} query heads cannot share {kv_heads} key/value heads, q {:?}", q.shape())
        }
        Ok(Sizes { batch, time, heads, kv_heads, width, window })
    }

    /// The keys that any query of `queries` reaches.
    fn keys(&self, queries: &Range<usize>) -> Range<usize> {
        queries.start.saturating_sub(self.window)..queries.end
    }

    /// Columns of a score block, whose columns begin at key `first`, that query `i` reaches.
    fn reach(&self, i: usize, first: usize) -> Range<usize> {
        i.saturating_sub(self.window) - first..i + 1 - first
    }

    /// Head `head` of `heads` in sequence b of (B, T, heads, D), rows `range` of the T: (rows, D).
    fn head<'a, T: Real>(
        &self,
        data: &'a [T],
        b: usize,
        head: usize,
        heads: usize,
        range: Range<usize>,
    ) -> Matrix<'a, T> {
        let stride = heads * self.width;
        let start = (b * self.time + range.start) * stride + head * self.width;
        Matrix::strided(&data[start..], range.len(), self.width, stride)
    }
}

/// The op as a composition of differentiable candle ops, with the T×T scores; shapes as in [`forward`].
pub fn reference(q: &Tensor, k: &Tensor, v: &Tensor, window: usize) -> Result<Tensor> {
    Ok(reference_with_sums(q, k, v, window)?.out)
}

fn reference_with_sums(q: &Tensor, k: &Tensor, v: &Tensor, window: usize) -> Result<Attended> {
    let s = Sizes::of(q, k, v, window)?;
    let by_head = |t: &Tensor| -> Result<Tensor> {
        // (B, T, h, D) → (B, H, T, D), key/value heads repeated for their group of query heads
        let t = widen(t)?.transpose(1, 2)?;
        let (b, h, time, d) = t.dims4()?;
        let group = s.heads / h;
        t.unsqueeze(2)?.broadcast_as((b, h, group, time, d))?.reshape((b, h * group, time, d))
    };
    let (wide_q, wide_k, wide_v) = (by_head(q)?, by_head(k)?, by_head(v)?);
    let scale = 1.0 / (s.width as f64).sqrt();
    let scores = (wide_q.matmul(&wide_k.transpose(2, 3)?.contiguous()?)? * scale)?;
    let outside = (0..s.time * s.time).map(|at| {
        let (i, j) = (at / s.time, at % s.time);
        u8::from(j > i || i - j > window)
    });
    let outside = Tensor::from_vec(outside.collect(), (1, 1, s.time, s.time), q.device())?;
    let lowest = Tensor::full(f32::NEG_INFINITY, scores.shape(), q.device())?.to_dtype(scores.dtype())?;
    let scores = outside.broadcast_as(scores.shape())?.where_cond(&lowest, &scores)?;
    let highest = scores.max_keepdim(D::Minus1)?.detach();
    let weights = scores.broadcast_sub(&highest)?.exp()?;
    let sums = weights.sum_keepdim(D::Minus1)?;
    let out = weights.broadcast_div(&sums)?.matmul(&wide_v)?;
    Ok(Attended {
        out: out.transpose(1, 2)?.contiguous()?.to_dtype(q.dtype())?,
        log_sum_exp: (sums.log()? + highest)?.squeeze(D::Minus1)?,
    })
}

/// q: (B, T, H, D); k, v: (B, T, Hkv, D) with H a multiple of Hkv; scale 1/√D.
///
/// Query head h reads key/value head h / (H / Hkv). A window of T − 1 or more is full causal attention.
pub fn forward(q: &Tensor, k: &Tensor, v: &Tensor, window: usize) -> Result<Attended> {
    let sizes = Sizes::of(q, k, v, window)?;
    if cuda::attention::takes(q) {
        return cuda::attention::forward(q, k, v, window);
    }
    dispatch!(q, cpu T: cpu_forward::<T>(sizes, q, k, v), else: reference_with_sums(q, k, v, window))
}

/// q, k, v, window: as given to [`forward`], which made `attended`; d_out: gradient of its `out`.
pub fn backward(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    window: usize,
    attended: &Attended,
    d_out: &Tensor,
) -> Result<Gradients> {
    let sizes = Sizes::of(q, k, v, window)?;
    crate::same_shape("attention backward", q, d_out)?;
    crate::same_shape("attention backward", q, &attended.out)?;
    if cuda::attention::takes(q) {
        return cuda::attention::backward(q, k, v, window, attended, d_out);
    }
    dispatch!(q, cpu T: cpu_backward::<T>(sizes, [q, k, v, &attended.out, d_out], &attended.log_sum_exp), else: {
        let [q, k, v] = gradients([q, k, v], d_out, |[q, k, v]| reference(q, k, v, window))?;
        Ok(Gradients { q, k, v })
    })
}

/// 1/√D.
fn scale<T: Real>(sizes: &Sizes) -> T {
    T::of_f64(1.0 / (sizes.width as f64).sqrt())
}

fn cpu_forward<T: Real>(s: Sizes, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Attended> {
    let (q, k, v) = (q.contiguous()?, k.contiguous()?, v.contiguous()?);
    let (qs, ks, vs) =
        (elements::<T>("attention", &q)?, elements::<T>("attention", &k)?, elements::<T>("attention", &v)?);
    let (qs, ks, vs) = (&*qs, &*ks, &*vs);
    let n = qs.len();
    let mut out = Vec::<T>::with_capacity(n);
    let mut sums = vec![T::ZERO; s.batch * s.time * s.heads];
    // one task for each block of queries of each sequence and head
    let mut tasks = Vec::new();
    let mut sum_rows = sums.chunks_mut(s.time * s.heads);
    for (b, sequence) in out.spare_capacity_mut()[..n].chunks_mut(s.time * s.heads * s.width).enumerate() {
        let panels = Panel::new(sequence, s.heads * s.width).cut(BLOCK, s.width);
        let sums = Panel::new(sum_rows.next().expect("as many as sequences"), s.heads).cut(BLOCK, 1);
        for (i, (panel, sums)) in panels.into_iter().zip(sums).enumerate() {
            tasks.push((b, i / s.heads * BLOCK, i % s.heads, panel, sums));
        }
    }
    tasks.into_par_iter().for_each_init(Vec::new, |scores, (b, first, head, out, sums)| {
        let kv_head = head / (s.heads / s.kv_heads);
        let queries = first..(first + BLOCK).min(s.time);
        let keys = s.keys(&queries);
        let q = s.head(qs, b, head, s.heads, queries.clone());
        let k = s.head(ks, b, kv_head, s.kv_heads, keys.clone());
        let v = s.head(vs, b, kv_head, s.kv_heads, keys.clone());
        attend(&s, scores, queries, keys, [q, k, v], out, sums);
    });
    // SAFETY: the tasks' panels cover every element, and `attend` initialises its panel.
    unsafe { out.set_len(n) };
    Ok(Attended {
        out: tensor(out, q.dims())?,
        log_sum_exp: tensor(sums, &[s.batch, s.time, s.heads])?.transpose(1, 2)?,
    })
}

/// One block of queries of one head: out ← softmax(q·kᵀ/√D)·v, sums ← log-sum-exp of each query's scores.
fn attend<T: Real>(
    s: &Sizes,
    scores: &mut Vec<T>,
    queries: Range<usize>,
    keys: Range<usize>,
    [q, k, v]: [Matrix<T>; 3],
    out: Panel<MaybeUninit<T>>,
    mut sums: Panel<T>,
) {
    let (rows, cols) = (queries.len(), keys.len());
    make_product(scores, rows, cols, scale(s), q, k.t());
    vectorized(
        #[inline(always)]
        || {
            for (i, row) in queries.clone().zip(scores.chunks_exact_mut(cols)) {
                let reach = s.reach(i, keys.start);
                row[..reach.start].fill(T::ZERO);
                row[reach.end..].fill(T::ZERO);
                let row = &mut row[reach];
                let highest = largest(row);
                let sum = replace_and_sum(row, |x| {
                    let e = (x - highest).exponential();
                    (e, e)
                });
                let inverse = T::ONE / sum;
                row.iter_mut().for_each(|x| *x *= inverse);
                sums.row(i - queries.start)[0] = highest + T::of_f64(sum.wide().ln());
            }
        },
    );
    set_product(out, T::ONE, Matrix::new(scores, rows, cols), v, Parallelism::None);
}

/// buffer ← scale·A·B, (rows, cols); its memory is used again.
fn make_product<T: Real>(
    buffer: &mut Vec<T>,
    rows: usize,
    cols: usize,
    scale: T,
    a: Matrix<T>,
    b: Matrix<T>,
) {
    let n = rows * cols;
    buffer.clear();
    buffer.reserve(n);
    set_product(Panel::new(&mut buffer.spare_capacity_mut()[..n], cols), scale, a, b, Parallelism::None);
    // SAFETY: the product wrote all n elements of the panel.
    unsafe { buffer.set_len(n) };
}

fn cpu_backward<T: Real>(s: Sizes, [q, k, v, out, d_out]: [&Tensor; 5], sums: &Tensor) -> Result<Gradients> {
    let (q, k, v) = (q.contiguous()?, k.contiguous()?, v.contiguous()?);
    let (out, d_out, sums) = (out.contiguous()?, d_out.contiguous()?, sums.transpose(1, 2)?.contiguous()?);
    let read = |t| elements::<T>("attention", t);
    let (qs, ks, vs) = (read(&q)?, read(&k)?, read(&v)?);
    let (outs, d_outs, sums) = (read(&out)?, read(&d_out)?, read(&sums)?);
    let given = Given { q: &qs, k: &ks, v: &vs, out: &outs, d_out: &d_outs, sums: &sums };
    let (n, kv_n) = (qs.len(), ks.len());
    let (mut dq, mut dk, mut dv) =
        (Vec::<T>::with_capacity(n), Vec::<T>::with_capacity(kv_n), Vec::<T>::with_capacity(kv_n));
    // one task for each sequence and key/value head, whose gradients its query heads add up in order
    let group = s.heads / s.kv_heads;
    let q_panels = per_head(&mut dq, n, &s, s.heads, group * s.width);
    let k_panels = per_head(&mut dk, kv_n, &s, s.kv_heads, s.width);
    let v_panels = per_head(&mut dv, kv_n, &s, s.kv_heads, s.width);
    let tasks: Vec<_> = q_panels.into_iter().zip(k_panels).zip(v_panels).enumerate().collect();
    tasks.into_par_iter().for_each(|(i, ((dq, dk), dv))| {
        let (b, kv_head) = (i / s.kv_heads, i % s.kv_heads);
        let (mut dk, mut dv) = (dk.zeroed(), dv.zeroed());
        let mut scratch = Scratch::default();
        for (g, mut dq) in dq.cut(s.time, s.width).into_iter().enumerate() {
            for first in (0..s.time).step_by(BLOCK) {
                let queries = first..(first + BLOCK).min(s.time);
                let dq = dq.rows(first, queries.len());
                let head = kv_head * group + g;
                retrace(&s, &given, &mut scratch, (b, head, kv_head), queries, (dq, &mut dk, &mut dv));
            }
        }
    });
    // SAFETY: each query head's panel was covered by its blocks, each key/value head's by `zeroed`.
    unsafe {
        dq.set_len(n);
        dk.set_len(kv_n);
        dv.set_len(kv_n);
    }
    Ok(Gradients { q: tensor(dq, q.dims())?, k: tensor(dk, k.dims())?, v: tensor(dv, v.dims())? })
}

/// The first n places of `data`, (B, T, heads, D), cut for each sequence into columns of `width`.
fn per_head<'a, T: Real>(
    data: &'a mut Vec<T>,
    n: usize,
    s: &Sizes,
    heads: usize,
    width: usize,
) -> Vec<Panel<'a, MaybeUninit<T>>> {
    Panel::new(&mut data.spare_capacity_mut()[..n], heads * s.width).cut(s.time, width)
}

/// What the backward reads.
struct Given<'a, T> {
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    out: &'a [T],
    d_out: &'a [T],
    /// (B, T, H).
    sums: &'a [T],
}

/// Buffers of one task, used for block after block.
struct Scratch<T> {
    weights: Vec<T>,
    d_weights: Vec<T>,
}

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        Scratch { weights: Vec::new(), d_weights: Vec::new() }
    }
}

/// One block of queries of one head: writes dq, adds to dk and dv.
///
/// With P the weights and S the scores: dV += Pᵀ·dO; dP = dO·Vᵀ; dS = P∘(dP − rowsum(dO∘O)); dQ = dS·K/√D;
/// dK += dSᵀ·Q/√D.
fn retrace<T: Real>(
    s: &Sizes,
    given: &Given<T>,
    scratch: &mut Scratch<T>,
    (b, head, kv_head): (usize, usize, usize),
    queries: Range<usize>,
    (dq, dk, dv): (Panel<MaybeUninit<T>>, &mut Panel<T>, &mut Panel<T>),
) {
    let keys = s.keys(&queries);
    let (rows, cols) = (queries.len(), keys.len());
    let q = s.head(given.q, b, head, s.heads, queries.clone());
    let d_out = s.head(given.d_out, b, head, s.heads, queries.clone());
    let k = s.head(given.k, b, kv_head, s.kv_heads, keys.clone());
    let v = s.head(given.v, b, kv_head, s.kv_heads, keys.clone());
    make_product(&mut scratch.weights, rows, cols, scale(s), q, k.t());
    make_product(&mut scratch.d_weights, rows, cols, T::ONE, d_out, v.t());
    let blocks = scratch.weights.chunks_exact_mut(cols).zip(scratch.d_weights.chunks_exact_mut(cols));
    vectorized(
        #[inline(always)]
        || {
            for (i, (p, dp)) in queries.clone().zip(blocks) {
                let at = (b * s.time + i) * s.heads + head;
                let along =
                    dot(&given.out[at * s.width..][..s.width], &given.d_out[at * s.width..][..s.width]);
                let sum = given.sums[at];
                let reach = s.reach(i, keys.start);
                for row in [&mut *p, &mut *dp] {
                    row[..reach.start].fill(T::ZERO);
                    row[reach.end..].fill(T::ZERO);
                }
                p[reach.clone()].iter_mut().zip(&mut dp[reach]).for_each(|(p, dp)| {
                    *p = (*p - sum).exponential();
                    *dp = *p * (*dp - along);
                });
            }
        },
    );
    let p = Matrix::new(&scratch.weights, rows, cols);
    let ds = Matrix::new(&scratch.d_weights, rows, cols);
    add_product(dv.rows(keys.start, cols), T::ONE, T::ONE, p.t(), d_out, Parallelism::None);
    add_product(dk.rows(keys.start, cols), T::ONE, scale(s), ds.t(), q, Parallelism::None);
    set_product(dq, scale(s), ds, k, Parallelism::None);
}
