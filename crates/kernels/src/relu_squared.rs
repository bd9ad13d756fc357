//! relu²: y = max(x, 0)².

use crate::composed::{dispatch, widen};
use crate::cuda;
use crate::real::Real;
use crate::rows::{build, fill};
use crate::storage::{elements, tensor};
use candle_core::{Result, Tensor};

/// Elements per row of the flat loops.
const PART: usize = 1 << 13;

/// The op as a composition of differentiable candle ops.
pub fn reference(x: &Tensor) -> Result<Tensor> {
    x.relu()?.sqr()
}

/// x: any shape → the same shape. NaN stays NaN.
pub fn forward(x: &Tensor) -> Result<Tensor> {
    dispatch!(x, cuda: cuda::relu_squared::forward(x), cpu T: cpu_forward::<T>(x), else: reference(x))
}

/// y: what [`forward`] returned; dy: its gradient → dx = 2·√y·dy, of their shape. The input need not be kept.
pub fn backward(y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    crate::same_shape("relu_squared backward", y, dy)?;
    dispatch!(dy, cuda: cuda::relu_squared::backward(y, dy), cpu T: cpu_backward::<T>(y, dy), else: {
        ((widen(y)?.sqrt()? * 2.0)? * widen(dy)?)?.to_dtype(dy.dtype())
    })
}

/// max(x, 0), NaN kept.
#[inline(always)]
fn positive<T: Real>(x: T) -> T {
    if x < T::ZERO { T::ZERO } else { x }
}

fn cpu_forward<T: Real>(x: &Tensor) -> Result<Tensor> {
    let x = x.contiguous()?;
    let xs = elements::<T>("relu_squared", &x)?;
    let xs = &*xs;
    let y = build(
        xs.len(),
        PART,
        #[inline(always)]
        |i, out| {
            let x = &xs[i * PART..][..out.len()];
            fill(
                out,
                x.iter().map(|&x| {
                    let p = positive(x);
                    p * p
                }),
            )
        },
    );
    tensor(y, x.dims())
}

fn cpu_backward<T: Real>(y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (y, dy) = (y.contiguous()?, dy.contiguous()?);
    let (ys, dys) = (elements::<T>("relu_squared", &y)?, elements::<T>("relu_squared", &dy)?);
    let (ys, dys) = (&*ys, &*dys);
    let dx = build(
        ys.len(),
        PART,
        #[inline(always)]
        |i, out| {
            let (y, dy) = (&ys[i * PART..][..out.len()], &dys[i * PART..][..out.len()]);
            fill(out, y.iter().zip(dy).map(|(&y, &dy)| T::TWO * y.root() * dy))
        },
    );
    tensor(dx, y.dims())
}
