//! `a += b` on a candle tensor.

use candle_core::{CpuStorage, Device, InplaceOp2, Layout, Result, Tensor, bail};

/// dst += src, in place; same shape and dtype, dst contiguous. Every holder of dst sees the sum.
pub(crate) fn add_assign(dst: &Tensor, src: &Tensor) -> Result<()> {
    if dst.dims() != src.dims() {
        bail!("add_assign: {:?} += {:?}", dst.dims(), src.dims())
    }
    match dst.device() {
        Device::Cpu => dst.inplace_op2(&src.contiguous()?, &AddAssign),
        // candle has no in-place sum on other devices: add, then copy over
        _ if dst.rank() == 0 => dst.unsqueeze(0)?.slice_set(&(dst + src)?.unsqueeze(0)?, 0, 0),
        _ => dst.slice_set(&(dst + src)?, 0, 0),
    }
}

struct AddAssign;

impl InplaceOp2 for AddAssign {
    fn name(&self) -> &'static str {
        "add-assign"
    }

    fn cpu_fwd(&self, d: &mut CpuStorage, dl: &Layout, s: &CpuStorage, sl: &Layout) -> Result<()> {
        let (Some((d0, d1)), Some((s0, s1))) = (dl.contiguous_offsets(), sl.contiguous_offsets()) else {
            bail!("add_assign needs contiguous tensors")
        };
        macro_rules! add {
            ($d:expr, $s:expr) => {
                $d[d0..d1].iter_mut().zip(&$s[s0..s1]).for_each(|(d, s)| *d += *s)
            };
        }
        match (d, s) {
            (CpuStorage::F32(d), CpuStorage::F32(s)) => add!(d, s),
            (CpuStorage::F64(d), CpuStorage::F64(s)) => add!(d, s),
            (CpuStorage::BF16(d), CpuStorage::BF16(s)) => add!(d, s),
            _ => bail!("add_assign needs two tensors of one dtype: f32, f64 or bf16"),
        }
        Ok(())
    }
}
