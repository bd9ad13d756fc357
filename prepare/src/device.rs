//! The device a trial runs on: choice, name, memory.

use candle_core::{Device, Result};

/// The first CUDA device where this build has CUDA and the machine a usable card, else the CPU.
pub fn choose() -> Result<Device> {
    #[cfg(feature = "cuda")]
    match Device::new_cuda(0) {
        Ok(device) => return Ok(device),
        // Loud: a GPU build that trains on the CPU would otherwise look like a slow GPU.
        Err(e) => {
            let text = e.to_string(); // with a backtrace behind the first line, where one is asked for
            let why = text.lines().next().unwrap_or_default().trim_start_matches("DriverError");
            eprintln!("no usable CUDA device {why}: running on the CPU; `ratchet doctor` says what helps");
        }
    }
    Ok(Device::Cpu)
}

/// [`choose`], before the first line of contestant code: what a sandbox granted to the device's driver alone is
/// given up from here on.
pub(crate) fn claim() -> Result<Device> {
    let device = choose()?;
    sandbox::forgo()?;
    Ok(device)
}

/// The device as a person knows it, e.g. `NVIDIA H100 80GB HBM3` or `cpu: AMD EPYC 7763, 2 threads`.
pub fn name(device: &Device) -> String {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(cuda) => {
            cuda.cuda_stream().context().name().unwrap_or_else(|_| String::from("unknown CUDA device"))
        }
        _ => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let model =
                proc_field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.into());
            format!("cpu: {model}, {threads} threads")
        }
    }
}

/// Bytes free on the device, or in main memory on a CPU; `None` where the system does not say.
pub fn available_memory(device: &Device) -> Option<u64> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => candle_core::cuda_backend::cudarc::driver::result::mem_get_info()
            .ok()
            .map(|(free, _)| free as u64),
        _ => proc_kib("/proc/meminfo", "MemAvailable"),
    }
}

/// The most memory this process ever held, in bytes: device memory as its allocator counts it, or
/// resident memory on a CPU. `None` where the system does not say.
pub fn peak_memory(device: &Device) -> Option<u64> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(cuda) => cuda_pool_peak(cuda),
        _ => proc_kib("/proc/self/status", "VmHWM"),
    }
}

#[cfg(feature = "cuda")]
fn cuda_pool_peak(cuda: &candle_core::CudaDevice) -> Option<u64> {
    use candle_core::cuda_backend::cudarc::driver::sys;
    let ordinal = cuda.cuda_stream().context().cu_device();
    let mut pool = std::ptr::null_mut();
    let mut bytes: u64 = 0;
    // SAFETY: `ordinal` is a device of a live context; both calls write one pointer-sized and one 64-bit
    // value to the addresses given, as CU_MEMPOOL_ATTR_USED_MEM_HIGH is documented to be a cuuint64_t.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&mut pool, ordinal).result().ok()?;
        sys::cuMemPoolGetAttribute(
            pool,
            sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
            (&mut bytes as *mut u64).cast(),
        )
        .result()
        .ok()?;
    }
    (bytes > 0).then_some(bytes) // a device without pools allocates past them
}

/// The value of a `key : value` line of a file under `/proc`.
fn proc_field(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn proc_kib(path: &str, key: &str) -> Option<u64> {
    let value = proc_field(path, key)?;
    value.strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
