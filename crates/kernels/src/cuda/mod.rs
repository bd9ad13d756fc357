//! The CUDA implementations: for each op its device code, `NAME.cu`, and beside it `NAME.rs`, which checks operands,
//! makes outputs, fills the parameters and chooses the grid.
//!
//! What is launched goes through a [`Runner`]: candle's CUDA stream and cuBLAS, or, where a test has put one in its
//! place with [`with_runner`], an emulator that executes the same kernel sources on CPU tensors. So everything here
//! but the runner itself is verified without a GPU.
//!
//! Tensors of bf16 take this way; see each op for what else it takes.

mod product;
mod runner;
#[cfg(feature = "cuda")]
mod stream;

pub(crate) mod adamw;
pub(crate) mod assign;
pub(crate) mod attention;
pub(crate) mod embedding;
pub(crate) mod gated_value;
pub(crate) mod head;
pub(crate) mod linear;
pub(crate) mod mix;
pub(crate) mod muon;
pub(crate) mod relu_squared;
pub(crate) mod rms_norm;
pub(crate) mod rope_norm;

pub use product::{Matrix, Product};
pub use runner::{Card, Launch, Params, Runner, device_runner, with_runner};

pub(crate) use runner::runs_on;

use candle_core::{CpuStorage, DType, Device, Result, Storage, Tensor, bail};

/// Whether the kernels of this folder take `t`, a bf16 tensor on a device that they run on.
pub(crate) fn takes(t: &Tensor) -> bool {
    t.dtype() == DType::BF16 && runs_on(t.device())
}

/// As [`takes`], for ops whose kernels take f32 too: gradients, logits.
pub(crate) fn takes_f32_too(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::BF16 | DType::F32) && runs_on(t.device())
}

/// Errors unless all of `tensors` are of `dtype` and on `device`: a kernel reads what it is given as what it takes.
pub(crate) fn alike(op: &str, device: &Device, dtype: DType, tensors: &[&Tensor]) -> Result<()> {
    for t in tensors {
        if t.dtype() != dtype {
            bail!("{op}: an operand is {:?}, and {dtype:?} is needed", t.dtype())
        }
    }
    together(op, device, tensors)
}

/// Errors unless all of `tensors`, whose types have been looked at, are on `device`.
pub(crate) fn together(op: &str, device: &Device, tensors: &[&Tensor]) -> Result<()> {
    match tensors.iter().find(|t| !t.device().same_device(device)) {
        Some(t) => {
            bail!("{op}: an operand is on {:?}, not on {:?}", t.device().location(), device.location())
        }
        None => Ok(()),
    }
}

/// Address of the first element of `t`, whatever its strides; valid as long as `t` is.
///
/// Work of one thread is done in order and memory is freed in that order too, so a tensor may be dropped as soon as the
/// kernels that use it are launched. Streams are a thread's own: tensors that change do not pass between threads.
pub(crate) fn address(t: &Tensor) -> Result<u64> {
    let (storage, layout) = t.storage_and_layout();
    let base = match &*storage {
        Storage::Cpu(CpuStorage::BF16(v)) => v.as_ptr().addr() as u64,
        Storage::Cpu(CpuStorage::F32(v)) => v.as_ptr().addr() as u64,
        Storage::Cpu(CpuStorage::U32(v)) => v.as_ptr().addr() as u64,
        #[cfg(feature = "cuda")]
        Storage::Cuda(cuda) => stream::base(cuda)?,
        _ => bail!("a kernel takes no tensor of {:?} on {:?}", t.dtype(), t.device()),
    };
    Ok(base + (layout.start_offset() * t.dtype().size_in_bytes()) as u64)
}

/// Address of `t`, or null.
pub(crate) fn address_or_null(t: Option<&Tensor>) -> Result<u64> {
    t.map_or(Ok(0), address)
}

/// Address of a tensor that a kernel changes in place, which must be contiguous.
pub(crate) fn in_place(op: &str, t: &Tensor) -> Result<u64> {
    if !t.is_contiguous() {
        bail!("{op}: the tensor to change, of shape {:?}, is not contiguous", t.shape())
    }
    address(t)
}

/// A contiguous tensor for a kernel to fill, every element of it.
pub(crate) fn empty(shape: impl Into<candle_core::Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
    if device.is_cpu() {
        // under the emulator: what a kernel forgets to write shows
        let nan = if dtype == DType::U32 { f64::from(u32::MAX) } else { f64::NAN };
        return Tensor::full(nan as f32, shape, device)?.to_dtype(dtype);
    }
    // SAFETY: the caller launches a kernel that writes all of it before anything that reads it, on the same stream.
    unsafe { Tensor::empty(shape, dtype, device) }
}

/// Sizes as kernels take them.
pub(crate) fn int(op: &str, n: usize) -> Result<i32> {
    match i32::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => bail!("{op}: a size of {n} is more than a kernel takes"),
    }
}

/// Blocks of a grid along x, enough for `n` items at `per_block` each.
pub(crate) fn blocks(op: &str, n: usize, per_block: usize) -> Result<u32> {
    match u32::try_from(n.div_ceil(per_block)) {
        Ok(blocks) if blocks <= i32::MAX as u32 => Ok(blocks),
        _ => bail!("{op}: {n} items are more than a grid holds"),
    }
}

/// Threads of a block of device.cuh's `map`, and the elements that it takes.
const MAP_THREADS: u32 = 256;
const MAP_ELEMENTS: usize = MAP_THREADS as usize * 16;

/// Launches a kernel that is a `map` over `n` elements.
pub(crate) fn map<P: Params>(kernel: &'static str, n: usize, device: &Device, params: &P) -> Result<()> {
    Launch::new(kernel, blocks(kernel, n, MAP_ELEMENTS)?, MAP_THREADS).run(device, params)
}

/// Lanes, a power of two up to a warp, that share a row of `width` by vectors of eight.
pub(crate) fn lanes(width: usize) -> usize {
    width.div_ceil(8).next_power_of_two().min(32)
}
