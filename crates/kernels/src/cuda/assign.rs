//! Element by element, mostly in place: `assign.cu`. They take f32 as well as bf16.

use super::{Params, address, address_or_null, empty, in_place, map, together};
use crate::storage::apart;
use candle_core::{DType, Result, Tensor, bail};

#[repr(C)]
#[derive(Clone, Copy)]
struct Assign {
    y: u64,
    a: u64,
    b: u64,
    n: i64,
    cap: f32,
}

// SAFETY: as `Assign` in assign.cu.
unsafe impl Params for Assign {}

/// y += x.
pub(crate) fn add(y: &Tensor, x: &Tensor) -> Result<()> {
    if y.dtype() != x.dtype() {
        bail!("add_assign: {:?} cannot be added to {:?}", x.dtype(), y.dtype())
    }
    change("add_assign", ["assign_sum_bf16", "assign_sum_f32"], y, Some(x), 0.0)
}

/// a + b, both of one shape and dtype.
pub(crate) fn sum(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (a, b) = (a.contiguous()?, b.contiguous()?);
    let y = empty(a.shape(), a.dtype(), a.device())?;
    run(of_type(&y, ["assign_sum_bf16", "assign_sum_f32"]), &y, &a, Some(&b), 0.0)?;
    Ok(y)
}

/// y ← by·y; by: one element.
pub(crate) fn scale(y: &Tensor, by: &Tensor) -> Result<()> {
    let by = by.to_dtype(DType::F32)?;
    change("scale", ["assign_scaled_bf16", "assign_scaled_f32"], y, Some(&by), 0.0)
}

/// z ← cap·tanh(z/cap).
pub(crate) fn soft_cap(z: &Tensor, cap: f64) -> Result<()> {
    change("soft_cap", ["assign_capped_bf16", "assign_capped_f32"], z, None, cap as f32)
}

/// y ← x; y: bf16, x: f32.
pub(crate) fn cast(y: &Tensor, x: &Tensor) -> Result<()> {
    in_place("cast", y)?;
    run("assign_cast_bf16_f32", y, &x.contiguous()?, None, 0.0)
}

fn of_type(y: &Tensor, [bf16, f32]: [&'static str; 2]) -> &'static str {
    if y.dtype() == DType::BF16 { bf16 } else { f32 }
}

/// y from itself and x.
fn change(op: &str, kernels: [&'static str; 2], y: &Tensor, x: Option<&Tensor>, cap: f32) -> Result<()> {
    let x = x.map(Tensor::contiguous).transpose()?;
    apart(op, &[y], &x.iter().collect::<Vec<_>>())?;
    in_place(op, y)?;
    run(of_type(y, kernels), y, y, x.as_ref(), cap)
}

/// y from a and b, all contiguous.
fn run(kernel: &'static str, y: &Tensor, a: &Tensor, b: Option<&Tensor>, cap: f32) -> Result<()> {
    let n = y.elem_count();
    together(kernel, y.device(), &[a, b.unwrap_or(a)])?;
    let params = Assign { y: address(y)?, a: address(a)?, b: address_or_null(b)?, n: n as i64, cap };
    map(kernel, n, y.device(), &params)
}
