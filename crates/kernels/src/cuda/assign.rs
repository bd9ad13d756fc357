//! Changes in place, element by element: `assign.cu`. They take f32 as well as bf16.

use super::{Params, address_or_null, in_place, map};
use crate::storage::apart;
use candle_core::{DType, Result, Tensor, bail};

#[repr(C)]
#[derive(Clone, Copy)]
struct Assign {
    y: u64,
    x: u64,
    n: i64,
    cap: f32,
}

// SAFETY: as `Assign` in assign.cu.
unsafe impl Params for Assign {}

/// y += x.
pub(crate) fn add(y: &Tensor, x: &Tensor) -> Result<()> {
    let kernel = match (y.dtype(), x.dtype()) {
        (DType::BF16, DType::BF16) => "assign_sum_bf16",
        (DType::F32, DType::F32) => "assign_sum_f32",
        (to, from) => bail!("add_assign: {from:?} cannot be added to {to:?}"),
    };
    run("add_assign", kernel, y, Some(x), 0.0)
}

/// y ← by·y; by: one element.
pub(crate) fn scale(y: &Tensor, by: &Tensor) -> Result<()> {
    let kernel = if y.dtype() == DType::BF16 { "assign_scaled_bf16" } else { "assign_scaled_f32" };
    run("scale", kernel, y, Some(&by.to_dtype(DType::F32)?), 0.0)
}

/// z ← cap·tanh(z/cap).
pub(crate) fn soft_cap(z: &Tensor, cap: f64) -> Result<()> {
    let kernel = if z.dtype() == DType::BF16 { "assign_capped_bf16" } else { "assign_capped_f32" };
    run("soft_cap", kernel, z, None, cap as f32)
}

/// y ← x; y: bf16, x: f32.
pub(crate) fn cast(y: &Tensor, x: &Tensor) -> Result<()> {
    run("cast", "assign_cast_bf16_f32", y, Some(x), 0.0)
}

fn run(op: &str, kernel: &'static str, y: &Tensor, x: Option<&Tensor>, cap: f32) -> Result<()> {
    let x = x.map(Tensor::contiguous).transpose()?;
    apart(op, &[y], &x.iter().collect::<Vec<_>>())?;
    let n = y.elem_count();
    let params = Assign { y: in_place(op, y)?, x: address_or_null(x.as_ref())?, n: n as i64, cap };
    map(kernel, n, y.device(), &params)
}
