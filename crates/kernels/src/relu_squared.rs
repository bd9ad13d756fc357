//! relu²: y = max(x, 0)².

use crate::composed::{fast_or, gradients};
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
    fast_or!(x, T => cpu_forward::<T>(x), reference(x))
}

/// dy: gradient of y = forward(x) → dx = 2·max(x, 0)·dy, of x's shape.
pub fn backward(x: &Tensor, dy: &Tensor) -> Result<Tensor> {
    crate::same_shape("relu_squared backward", x, dy)?;
    fast_or!(x, T => cpu_backward::<T>(x, dy), {
        let [dx] = gradients([x], dy, |[x]| reference(x))?;
        Ok(dx)
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

fn cpu_backward<T: Real>(x: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (x, dy) = (x.contiguous()?, dy.contiguous()?);
    let (xs, dys) = (elements::<T>("relu_squared", &x)?, elements::<T>("relu_squared", &dy)?);
    let (xs, dys) = (&*xs, &*dys);
    let dx = build(
        xs.len(),
        PART,
        #[inline(always)]
        |i, out| {
            let (x, dy) = (&xs[i * PART..][..out.len()], &dys[i * PART..][..out.len()]);
            fill(out, x.iter().zip(dy).map(|(&x, &dy)| T::TWO * positive(x) * dy))
        },
    );
    tensor(dx, x.dims())
}
