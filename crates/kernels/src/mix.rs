//! Residual mix: y = r·x + z·x0, the stream and the normed embedding, each with a learnt scalar.

use crate::accumulate::Sum;
use crate::composed::{dispatch, gradients, widen};
use crate::cuda;
use crate::real::Real;
use crate::rows::{build, build_pair, dot, fill, sum_in_order};
use crate::storage::{elements, tensor};
use candle_core::{Result, Tensor, bail};

/// Elements per task of the flat loops; also the fixed split of the sums.
const PART: usize = 1 << 13;

/// Gradients of [`forward`].
#[derive(Debug, Clone)]
pub struct Gradients {
    /// Of x's shape.
    pub x: Tensor,
    /// Of x0's shape.
    pub x0: Tensor,
    /// Of r's shape.
    pub r: Tensor,
    /// Of z's shape.
    pub z: Tensor,
}

/// The op as a composition of differentiable candle ops; shapes as in [`forward`].
pub fn reference(x: &Tensor, x0: &Tensor, r: &Tensor, z: &Tensor) -> Result<Tensor> {
    let (wide, wide0) = (widen(x)?, widen(x0)?);
    let scalar = |s: &Tensor| s.to_dtype(wide.dtype())?.reshape(());
    let y = wide.broadcast_mul(&scalar(r)?)?.add(&wide0.broadcast_mul(&scalar(z)?)?)?;
    y.to_dtype(x.dtype())
}

/// x, x0: one shape; r, z: one element each, shape () or (1), a narrowed (L,) included → of x's shape.
pub fn forward(x: &Tensor, x0: &Tensor, r: &Tensor, z: &Tensor) -> Result<Tensor> {
    check(x, x0, r, z)?;
    dispatch!(
        x,
        cuda: cuda::mix::forward(x, x0, r, z),
        cpu T: cpu_forward::<T>(x, x0, r, z),
        else: reference(x, x0, r, z),
    )
}

/// dy: gradient of y = forward(x, x0, r, z), of x's shape. `sums`: what the gradients of x and x0 are added to.
pub fn backward(
    x: &Tensor,
    x0: &Tensor,
    r: &Tensor,
    z: &Tensor,
    dy: &Tensor,
    sums: [Option<Sum>; 2],
) -> Result<Gradients> {
    check(x, x0, r, z)?;
    crate::same_shape("mix backward", x, dy)?;
    let add = |made: Gradients| {
        let [for_x, for_x0] = sums;
        Ok(Gradients { x: Sum::add(for_x, made.x)?, x0: Sum::add(for_x0, made.x0)?, ..made })
    };
    dispatch!(
        x,
        cuda: cuda::mix::backward(x, x0, r, z, dy, sums),
        cpu T: add(cpu_backward::<T>(x, x0, r, z, dy)?),
        else: {
            let [x, x0, r, z] = gradients([x, x0, r, z], dy, |[x, x0, r, z]| reference(x, x0, r, z))?;
            add(Gradients { x, x0, r, z })
        },
    )
}

fn check(x: &Tensor, x0: &Tensor, r: &Tensor, z: &Tensor) -> Result<()> {
    crate::same_shape("mix", x, x0)?;
    if r.elem_count() != 1 || z.elem_count() != 1 {
        bail!("mix: r and z must hold one element each, not {:?} and {:?}", r.shape(), z.shape())
    }
    Ok(())
}

/// The only element of a tensor.
fn scalar<T: Real>(t: &Tensor) -> Result<T> {
    let t = t.contiguous()?;
    Ok(elements::<T>("mix", &t)?[0])
}

fn cpu_forward<T: Real>(x: &Tensor, x0: &Tensor, r: &Tensor, z: &Tensor) -> Result<Tensor> {
    let (r, z) = (scalar::<T>(r)?, scalar::<T>(z)?);
    let (x, x0) = (x.contiguous()?, x0.contiguous()?);
    let (xs, x0s) = (elements::<T>("mix", &x)?, elements::<T>("mix", &x0)?);
    let (xs, x0s) = (&*xs, &*x0s);
    let y = build(
        xs.len(),
        PART,
        #[inline(always)]
        |i, out| {
            let (x, x0) = (&xs[i * PART..][..out.len()], &x0s[i * PART..][..out.len()]);
            fill(out, x.iter().zip(x0).map(|(&x, &x0)| r * x + z * x0))
        },
    );
    tensor(y, x.dims())
}

fn cpu_backward<T: Real>(x: &Tensor, x0: &Tensor, r: &Tensor, z: &Tensor, dy: &Tensor) -> Result<Gradients> {
    let (r_shape, z_shape) = (r.dims(), z.dims());
    let (r, z) = (scalar::<T>(r)?, scalar::<T>(z)?);
    let (x, x0, dy) = (x.contiguous()?, x0.contiguous()?, dy.contiguous()?);
    let (xs, x0s, dys) = (elements::<T>("mix", &x)?, elements::<T>("mix", &x0)?, elements::<T>("mix", &dy)?);
    let (xs, x0s, dys) = (&*xs, &*x0s, &*dys);
    let (dx, dx0) = build_pair(
        xs.len(),
        PART,
        #[inline(always)]
        |i, dx, dx0| {
            let dy = &dys[i * PART..][..dx.len()];
            (fill(dx, dy.iter().map(|&dy| r * dy)), fill(dx0, dy.iter().map(|&dy| z * dy)))
        },
    );
    let [dr, dz] = sum_in_order(xs.len().div_ceil(PART), |i| {
        crate::rows::vectorized(
            #[inline(always)]
            || {
                let at = i * PART..((i + 1) * PART).min(xs.len());
                let dy = &dys[at.clone()];
                [dot(&xs[at.clone()], dy).wide(), dot(&x0s[at], dy).wide()]
            },
        )
    });
    Ok(Gradients {
        x: tensor(dx, x.dims())?,
        x0: tensor(dx0, x0.dims())?,
        r: tensor(vec![T::of_f64(dr)], r_shape)?,
        z: tensor(vec![T::of_f64(dz)], z_shape)?,
    })
}
