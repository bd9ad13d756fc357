//! [`super::nats`] on a CUDA device: `cuda.cu`.

use candle_core::cuda_backend::cudarc::driver::{DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg};
use candle_core::{CudaStorage, DType, Error, Result, Storage, Tensor};

#[allow(unreachable_pub, reason = "made by build.rs")]
mod ptx {
    include!(concat!(env!("OUT_DIR"), "/ptx.rs"));
}

/// Threads of a block, and what they share: an f64 for each warp. As in cuda.cu.
const THREADS: u32 = 256;
const ROOM: u32 = THREADS / 32 * size_of::<f64>() as u32;

/// `Positions` of cuda.cu.
#[repr(C)]
struct Positions {
    logits: u64,
    targets: u64,
    nats: u64,
    vocab: i32,
}

// SAFETY: plain numbers, laid out as in cuda.cu.
unsafe impl DeviceRepr for Positions {}

/// logits: (B, T, V) on a CUDA device; targets: ids below V.
pub(super) fn nats(logits: &Tensor, targets: &[u32]) -> Result<Vec<f32>> {
    let device = logits.device().as_cuda_device()?;
    let vocab = i32::try_from(logits.dim(candle_core::D::Minus1)?).map_err(Error::wrap)?;
    // a copy of our own, when all threads' work is done: the contestant holds the tensor it has returned, and what it
    // changed between two looks of the kernel would pass for a better answer
    device.cuda_stream().context().synchronize().map_err(Error::wrap)?;
    let logits = if logits.dtype() == DType::BF16 { logits.clone() } else { logits.to_dtype(DType::F32)? };
    let logits = logits.force_contiguous()?;
    let kernel = if logits.dtype() == DType::BF16 { "cross_entropy_bf16" } else { "cross_entropy_f32" };
    let function = device.get_or_load_custom_func(kernel, "cross_entropy", ptx::CUDA)?;
    let stream = device.cuda_stream();
    let (storage, _) = logits.storage_and_layout(); // a copy begins where its storage does
    let Storage::Cuda(storage) = &*storage else { candle_core::bail!("logits have left the device") };
    let targets = device.clone_htod(targets)?;
    let nats = device.alloc_zeros::<f32>(targets.len())?;
    let params = Positions {
        logits: base(storage)?,
        targets: targets.device_ptr(&stream).0,
        nats: nats.device_ptr(&stream).0,
        vocab,
    };
    let config = LaunchConfig {
        grid_dim: (targets.len() as u32, 1, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: ROOM,
    };
    let mut launch = function.builder();
    launch.arg(&params);
    // SAFETY: the addresses are those of buffers that live until the copy below has waited for the kernel: (B·T, V)
    // logits, B·T targets below V, which the caller vouches for, and B·T results.
    unsafe { launch.launch(config) }.map_err(Error::wrap)?;
    device.clone_dtoh(&nats)
}

fn base(storage: &CudaStorage) -> Result<u64> {
    use candle_core::backend::BackendStorage;
    Ok(match storage.dtype() {
        DType::BF16 => {
            let slice = storage.as_cuda_slice::<half::bf16>()?;
            slice.device_ptr(slice.stream()).0
        }
        _ => {
            let slice = storage.as_cuda_slice::<f32>()?;
            slice.device_ptr(slice.stream()).0
        }
    })
}
