//! Head, soft cap and cross-entropy in one: logits exist for a chunk of rows at a time, never all of them.
//!
//! z = x·Wᵀ; capped: z ← cap·tanh(z/cap); loss = mean over rows of ln Σ exp z − `z[target]`. The gradients are
//! made on the way: while a chunk's logits are at hand, making them costs no second product with W.

use crate::composed::{dispatch, widen};
use crate::cuda;
use crate::gemm::{ALL_THREADS, Matrix, add_product, set_product};
use crate::panel::Panel;
use crate::real::Real;
use crate::rows::{largest, replace_and_sum, vectorized};
use crate::storage::{apart, elements, modify, overwrite, tensor};
use candle_core::{D, DType, Result, Tensor, Var, bail};
use rayon::prelude::*;
use std::mem::MaybeUninit;

/// Elements of logits at a time: 16 MiB of f32: more spills out of the cache, fewer pack W too often.
const CHUNK: usize = 1 << 22;

/// The mean loss and, for Σ scale·loss, its gradients.
#[derive(Debug, Clone)]
pub struct Loss {
    /// Mean over the rows, in nats, without `scale`: shape ().
    pub mean: Tensor,
    /// Gradient for x, of its shape.
    pub dx: Tensor,
}

/// The mean loss as a composition of differentiable candle ops, with all logits; shapes as in [`loss`].
pub fn reference(x: &Tensor, w: &Tensor, targets: &Tensor, cap: Option<f64>) -> Result<Tensor> {
    let rows = widen(&x.reshape(((), x.dim(D::Minus1)?))?.matmul(&w.t()?)?)?;
    let logits = match cap {
        Some(cap) => ((rows / cap)?.tanh()? * cap)?,
        None => rows,
    };
    let highest = logits.max_keepdim(D::Minus1)?.detach();
    let log_sum = logits.broadcast_sub(&highest)?.exp()?.sum_keepdim(D::Minus1)?.log()?;
    let right = logits.gather(&targets.reshape(((), 1))?, 1)?;
    ((log_sum + highest)? - right)?.mean_all()
}

/// x: (…, C); w: (V, C); targets: (…) u32, all below V; cap: bound of the soft cap → mean loss in nats, shape ().
pub fn loss(x: &Tensor, w: &Tensor, targets: &Tensor, cap: Option<f64>) -> Result<Tensor> {
    check(x, w, targets, cap)?;
    dispatch!(
        x,
        cuda: Ok(cuda::head::loss(x, w, targets, cap, None)?.0),
        cpu T: Ok(cpu_loss::<T>(x, w, targets, cap, None)?.0),
        else: reference(x, w, targets, cap),
    )
}

/// As [`loss`], and makes the gradients of scale·loss: dx is returned, dW added in place to `dw` (V, C).
///
/// `scale` is the factor that comes from above, such as 1 / micro-steps when gradients are accumulated.
pub fn loss_and_gradients(
    x: &Tensor,
    w: &Tensor,
    targets: &Tensor,
    cap: Option<f64>,
    scale: f64,
    dw: &Tensor,
) -> Result<Loss> {
    check(x, w, targets, cap)?;
    crate::same_shape("head", w, dw)?;
    let gradients = Some((scale, dw));
    let both = |(mean, dx): (Tensor, Option<Tensor>)| Loss { mean, dx: dx.expect("asked for") };
    dispatch!(
        x,
        cuda: cuda::head::loss(x, w, targets, cap, gradients).map(both),
        cpu T: cpu_loss::<T>(x, w, targets, cap, gradients).map(both),
        else: composed(x, w, targets, cap, scale, dw),
    )
}

fn composed(
    x: &Tensor,
    w: &Tensor,
    targets: &Tensor,
    cap: Option<f64>,
    scale: f64,
    dw: &Tensor,
) -> Result<Loss> {
    let (x, w) = (Var::from_tensor(x)?, Var::from_tensor(w)?);
    let mean = reference(&x, &w, targets, cap)?;
    let grads = (&mean * scale)?.backward()?;
    let of = |v: &Var| grads.get(v).cloned().map_or_else(|| v.zeros_like(), Ok);
    overwrite(dw, &(dw + of(&w)?.to_dtype(dw.dtype())?)?)?;
    Ok(Loss { mean: mean.detach(), dx: of(&x)? })
}

fn check(x: &Tensor, w: &Tensor, targets: &Tensor, cap: Option<f64>) -> Result<()> {
    let (vocab, width) = w.dims2()?;
    if x.dim(D::Minus1)? != width || x.dims()[..x.rank() - 1] != *targets.dims() {
        bail!("head: x {:?}, w {:?} and targets {:?} do not fit", x.shape(), w.shape(), targets.shape())
    }
    if targets.dtype() != DType::U32 || targets.elem_count() == 0 || vocab == 0 {
        bail!("head: targets must be u32 and not empty, got {:?} {:?}", targets.dtype(), targets.shape())
    }
    match cap {
        Some(cap) if !(cap > 0.0 && cap.is_finite()) => bail!("head: the cap must be positive, not {cap}"),
        _ => Ok(()),
    }
}

/// The mean loss and, when asked for with (scale, dw), dx; dw is added to.
fn cpu_loss<T: Real>(
    x: &Tensor,
    w: &Tensor,
    targets: &Tensor,
    cap: Option<f64>,
    gradients: Option<(f64, &Tensor)>,
) -> Result<(Tensor, Option<Tensor>)> {
    let (x, w, targets) = (x.contiguous()?, w.contiguous()?, targets.contiguous()?);
    let (vocab, width) = w.dims2()?;
    if let Some((_, dw)) = gradients {
        apart("head", &[dw], &[&x, &w])?;
    }
    let (xs, ws) = (elements::<T>("head", &x)?, elements::<T>("head", &w)?);
    let ids = elements::<u32>("head", &targets)?;
    if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
        bail!("head: target {id} is outside a vocabulary of {vocab}")
    }
    let pass = Pass { xs: &xs, w: Matrix::new(&ws, vocab, width), ids: &ids, vocab, width, cap };
    let (total, dx) = match gradients {
        None => (pass.run(0.0, None), None),
        Some((scale, dw)) => modify::<T, _>("head", dw, |dw| {
            let mut dx = Vec::<T>::with_capacity(xs.len());
            let places = &mut dx.spare_capacity_mut()[..xs.len()];
            let total = pass.run(scale / ids.len() as f64, Some((dw, places)));
            // SAFETY: `run` wrote the rows of every chunk, which are all rows of dx.
            unsafe { dx.set_len(xs.len()) };
            Ok((total, Some(tensor(dx, x.dims())?)))
        })?,
    };
    Ok((tensor(vec![T::of_f64(total / ids.len() as f64)], &[])?, dx))
}

/// One call's operands.
struct Pass<'a, T> {
    xs: &'a [T],
    w: Matrix<'a, T>,
    ids: &'a [u32],
    vocab: usize,
    width: usize,
    cap: Option<f64>,
}

impl<T: Real> Pass<'_, T> {
    /// Σ loss over the rows. With (dw, dx): dW += , dx ← gradients of weight·Σ loss.
    fn run(&self, weight: f64, mut gradients: Option<(&mut [T], &mut [MaybeUninit<T>])>) -> f64 {
        let (vocab, width) = (self.vocab, self.width);
        let per_chunk = (CHUNK / vocab).clamp(1, self.ids.len());
        let mut logits = Vec::<T>::with_capacity(per_chunk * vocab);
        let mut total = 0.0;
        for (c, ids) in self.ids.chunks(per_chunk).enumerate() {
            let (first, rows) = (c * per_chunk, ids.len());
            let x = Matrix::new(&self.xs[first * width..][..rows * width], rows, width);
            logits.clear();
            let places = &mut logits.spare_capacity_mut()[..rows * vocab];
            set_product(Panel::new(places, vocab), T::ONE, x, self.w.t(), ALL_THREADS);
            // SAFETY: the product wrote all of it.
            unsafe { logits.set_len(rows * vocab) };
            let losses: Vec<f64> = logits
                .par_chunks_exact_mut(vocab)
                .zip(ids)
                .map(|(row, &id)| self.row(row, id as usize, gradients.is_some().then_some(weight)))
                .collect();
            total += losses.iter().sum::<f64>();
            if let Some((dw, dx)) = &mut gradients {
                let dz = Matrix::new(&logits, rows, vocab);
                let dx = &mut dx[first * width..][..rows * width];
                set_product(Panel::new(dx, width), T::ONE, dz, self.w, ALL_THREADS);
                add_product(Panel::new(dw, width), T::ONE, T::ONE, dz.t(), x, ALL_THREADS);
            }
        }
        total
    }

    /// Loss of one row of logits, which turn into weight·d loss/d logits when a weight is given.
    fn row(&self, row: &mut [T], target: usize, weight: Option<f64>) -> f64 {
        vectorized(
            #[inline(always)]
            || match self.cap {
                None => entropy(row, target, weight, |z| (z, T::ONE)),
                Some(cap) => {
                    let (cap, per_cap) = (T::of_f64(cap), T::of_f64(1.0 / cap));
                    entropy(row, target, weight, |z| {
                        let t = (z * per_cap).hyperbolic_tangent();
                        (cap * t, T::ONE - t * t)
                    })
                }
            },
        )
    }
}

/// Cross-entropy of one row of logits z with `capped(z)` = (c, dc/dz), c rising with z.
///
/// With a weight, the row becomes weight·d loss/dz = weight·(softmax(c) − onehot(target))·dc/dz.
#[inline(always)]
fn entropy<T: Real>(row: &mut [T], target: usize, weight: Option<f64>, capped: impl Fn(T) -> (T, T)) -> f64 {
    let highest = capped(largest(row)).0;
    let (right, slope) = capped(row[target]);
    let sum = match weight {
        None => replace_and_sum(row, |z| {
            let e = (capped(z).0 - highest).exponential();
            (e, e)
        }),
        Some(weight) => {
            let sum = replace_and_sum(row, |z| {
                let (c, slope) = capped(z);
                let e = (c - highest).exponential();
                (e * slope, e)
            });
            let share = T::of_f64(weight) / sum;
            row.iter_mut().for_each(|e| *e *= share);
            row[target] -= T::of_f64(weight) * slope;
            sum
        }
    };
    sum.wide().ln() + highest.wide() - right.wide()
}
