//! Kernels on candle's CUDA stream, products on its cuBLAS handle.

use super::{Card, Launch, Product, Runner};
use candle_core::{CudaDevice, CudaStorage, DType, Error, Result, bail};
use cudarc::cublas::{result::gemm_strided_batched_ex, sys as cublas};
use cudarc::driver::{
    CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::Ptx;
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::Arc;

// `MODULES: &[(&str, &[u8])]`: for each source its name and its fat binary, made by build.rs.
include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// Shared memory of a block that needs no asking for.
const GRANTED_SHARED: usize = 48 << 10;

/// Bytes a kernel's parameters may take.
const MOST_PARAMS: usize = 4096;

/// The runner of one CUDA device.
pub(super) struct Stream {
    device: CudaDevice,
    stream: Arc<CudaStream>,
    modules: Vec<Arc<CudaModule>>,
    /// By name, each with the shared memory it has been granted.
    functions: RefCell<HashMap<&'static str, (CudaFunction, usize)>>,
}

thread_local! {
    static STREAMS: RefCell<Vec<Rc<Stream>>> = const { RefCell::new(Vec::new()) };
}

impl Stream {
    /// The runner of `device`, made on first use.
    pub(super) fn of(device: &CudaDevice) -> Result<Rc<Stream>> {
        STREAMS.with(|streams| {
            let mut streams = streams.borrow_mut();
            if let Some(found) = streams.iter().find(|s| s.device.id() == device.id()) {
                return Ok(found.clone());
            }
            let new = Rc::new(Stream::new(device)?);
            streams.push(new.clone());
            Ok(new)
        })
    }

    fn new(device: &CudaDevice) -> Result<Stream> {
        let stream = device.cuda_stream();
        keep_freed_memory(&stream)?;
        let load = |(name, binary): &(&str, &[u8])| {
            let module = stream.context().load_module(Ptx::from_binary(binary.to_vec()));
            module
                .map_err(|e| Error::msg(format!("the kernels of {name}.cu do not load on this device: {e}")))
        };
        let modules = MODULES.iter().map(load).collect::<Result<_>>()?;
        Ok(Stream { device: device.clone(), stream, modules, functions: RefCell::default() })
    }

    /// The kernel, with `shared` bytes of shared memory granted to it.
    fn function(&self, kernel: &'static str, shared: usize) -> Result<CudaFunction> {
        let mut functions = self.functions.borrow_mut();
        if !functions.contains_key(kernel) {
            let Some(found) = self.modules.iter().find_map(|m| m.load_function(kernel).ok()) else {
                bail!("no kernel is called {kernel}")
            };
            functions.insert(kernel, (found, GRANTED_SHARED));
        }
        let (function, granted) = functions.get_mut(kernel).expect("inserted above");
        if shared > *granted {
            let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(attribute, shared as i32).map_err(|e| {
                Error::msg(format!(
                    "{kernel} needs {shared} bytes of shared memory a block, the device refuses: {e}"
                ))
            })?;
            *granted = shared;
        }
        Ok(function.clone())
    }
}

/// Freed memory stays with the process: the pool would otherwise hand gigabytes back to the system at every
/// synchronisation and ask for them again.
fn keep_freed_memory(stream: &CudaStream) -> Result<()> {
    let context = stream.context();
    let mut pool = std::ptr::null_mut();
    let mut most = u64::MAX;
    // SAFETY: the device belongs to a live context; the first call writes one pointer, the second reads one u64, as
    // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD is documented to be a cuuint64_t.
    let result = unsafe {
        sys::cuDeviceGetDefaultMemPool(&mut pool, context.cu_device()).result().and_then(|()| {
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut most).cast()).result()
        })
    };
    match result {
        // a device without pools allocates past them
        Ok(()) | Err(cudarc::driver::DriverError(sys::CUresult::CUDA_ERROR_NOT_SUPPORTED)) => Ok(()),
        Err(e) => Err(Error::msg(format!("the device's memory pool cannot be set up: {e}"))),
    }
}

/// Address of a storage's first element.
pub(super) fn base(storage: &CudaStorage) -> Result<u64> {
    fn start<T>(slice: &CudaSlice<T>) -> u64 {
        slice.device_ptr(slice.stream()).0
    }
    use candle_core::backend::BackendStorage;
    Ok(match storage.dtype() {
        DType::BF16 => start(storage.as_cuda_slice::<half::bf16>()?),
        DType::F32 => start(storage.as_cuda_slice::<f32>()?),
        DType::U32 => start(storage.as_cuda_slice::<u32>()?),
        other => bail!("a kernel takes no {other:?}"),
    })
}

/// Room for any kernel's parameters; a kernel reads as many bytes as its struct has.
#[repr(C, align(16))]
struct Bytes([MaybeUninit<u8>; MOST_PARAMS]);

// SAFETY: plain bytes, copied to the device as they are.
unsafe impl DeviceRepr for Bytes {}

impl Runner for Stream {
    fn card(&self) -> Result<Card> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as SHARED,
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSORS,
        };
        let read = |attribute| {
            let value = self.stream.context().attribute(attribute).map_err(Error::wrap)?;
            usize::try_from(value).map_err(Error::wrap)
        };
        Ok(Card { multiprocessors: read(MULTIPROCESSORS)?, shared: read(SHARED)? })
    }

    unsafe fn launch(&self, launch: &Launch, params: &[MaybeUninit<u8>]) -> Result<()> {
        let function = self.function(launch.kernel, launch.shared)?;
        let mut bytes = Bytes([MaybeUninit::uninit(); MOST_PARAMS]);
        bytes.0[..params.len()].copy_from_slice(params);
        let [x, y, z] = launch.grid;
        let config = LaunchConfig {
            grid_dim: (x, y, z),
            block_dim: (launch.threads, 1, 1),
            shared_mem_bytes: launch.shared as u32,
        };
        // SAFETY: the parameters are those of this kernel (`Params`), with addresses of live tensors.
        let launched = unsafe { self.stream.launch_builder(&function).arg(&bytes).launch(config) };
        launched.map_err(|e| Error::msg(format!("{launch:?} failed: {e}")))?;
        Ok(())
    }

    unsafe fn multiply(&self, p: &Product) -> Result<()> {
        let dtype = |t: DType| match t {
            DType::BF16 => Ok(cublas::cudaDataType::CUDA_R_16BF),
            DType::F32 => Ok(cublas::cudaDataType::CUDA_R_32F),
            other => bail!("a product takes no {other:?}"),
        };
        let op = |transposed| match transposed {
            true => cublas::cublasOperation_t::CUBLAS_OP_T,
            false => cublas::cublasOperation_t::CUBLAS_OP_N,
        };
        // cuBLAS stores by columns: what is stored here by rows it sees transposed, and Cᵀ = Bᵀ·Aᵀ
        // SAFETY: addresses and sizes are those of live tensors (`product::multiply`); the factors outlive the call.
        let multiplied = unsafe {
            gemm_strided_batched_ex(
                *self.device.cublas_handle().handle(),
                op(p.b.transposed),
                op(p.a.transposed),
                p.n as i32,
                p.m as i32,
                p.k as i32,
                (&raw const p.alpha).cast(),
                p.b.at as *const _,
                dtype(p.b.dtype)?,
                p.b.stride as i32,
                p.b.step as i64,
                p.a.at as *const _,
                dtype(p.a.dtype)?,
                p.a.stride as i32,
                p.a.step as i64,
                (&raw const p.beta).cast(),
                p.c.at as *mut _,
                dtype(p.c.dtype)?,
                p.c.stride as i32,
                p.c.step as i64,
                p.batch as i32,
                cublas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        multiplied.map_err(|e| Error::msg(format!("{p:?} failed: {e}")))
    }
}
