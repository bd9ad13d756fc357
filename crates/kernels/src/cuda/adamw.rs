//! AdamW over many tensors at once: `adamw.cu`.

use super::{Launch, Params, address, blocks, in_place, runs_on, together};
use crate::adamw::{Factors, Update};
use candle_core::{DType, Result, Tensor};

/// Tensors of one launch: as in adamw.cu, so that they fit the 4 KiB that parameters may take.
const MOST: usize = 48;

/// Threads of a block, each with eight elements.
const THREADS: usize = 256;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct One {
    w: u64,
    g: u64,
    m: u64,
    v: u64,
    copy: u64,
    n: i64,
    to_g: f32,
    to_square: f32,
    keep: f32,
    rate: f32,
    root_scale: f32,
    eps: f32,
    half_state: i32,
    half_gradient: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct All([One; MOST]);

// SAFETY: as `Updates` in adamw.cu.
unsafe impl Params for All {}

/// Whether the kernel takes this update: on its device, in bf16 or f32.
pub(crate) fn takes(u: &Update) -> bool {
    let either = |t: &Tensor| matches!(t.dtype(), DType::BF16 | DType::F32);
    let state = either(&u.w) && [&u.m, &u.v].iter().all(|t| t.dtype() == u.w.dtype());
    let copy = u.copy.as_ref().is_none_or(|t| t.dtype() == DType::BF16);
    runs_on(u.w.device()) && state && either(&u.g) && copy
}

pub(crate) fn step(updates: &[&Update]) -> Result<()> {
    for part in updates.chunks(MOST) {
        // contiguous gradients, kept until the launch
        let grads = part.iter().map(|u| u.g.contiguous()).collect::<Result<Vec<_>>>()?;
        let device = part[0].w.device();
        for u in part {
            together("adamw", device, &[&u.w, &u.g, &u.m, &u.v, u.copy.as_ref().unwrap_or(&u.w)])?;
        }
        let mut all = All([One::default(); MOST]);
        for ((one, u), g) in all.0.iter_mut().zip(part).zip(&grads) {
            *one = One::of(u, g)?;
        }
        let largest = part.iter().map(|u| u.w.elem_count()).max().unwrap_or(0);
        let across = blocks("adamw", largest, 8 * THREADS)?;
        let launch = Launch::new("adamw", across, THREADS as u32);
        Launch { grid: [across, part.len() as u32, 1], ..launch }.run(device, &all)?;
    }
    Ok(())
}

impl One {
    fn of(u: &Update, g: &Tensor) -> Result<Self> {
        let Factors { to_g, to_square, keep, rate, root_scale, eps } = Factors::<f32>::of(&u.with);
        Ok(One {
            w: in_place("adamw", &u.w)?,
            g: address(g)?,
            m: in_place("adamw", &u.m)?,
            v: in_place("adamw", &u.v)?,
            copy: u.copy.as_ref().map_or(Ok(0), |t| in_place("adamw", t))?,
            n: u.w.elem_count() as i64,
            to_g,
            to_square,
            keep,
            rate,
            root_scale,
            eps,
            half_state: (u.w.dtype() == DType::BF16).into(),
            half_gradient: (g.dtype() == DType::BF16).into(),
        })
    }
}
