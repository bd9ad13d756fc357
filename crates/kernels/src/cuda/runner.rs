//! Who runs kernels and products.

use super::Product;
use candle_core::{Device, Result};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::rc::Rc;

/// A parameter struct of a kernel.
///
/// # Safety
/// It is `#[repr(C)]` and has the fields of the struct of that kernel's source, in order; pointers are `u64` from
/// `super::address`.
pub unsafe trait Params: Copy {}

/// One launch: blocks of `threads` in a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Name of the kernel in its source.
    pub kernel: &'static str,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, bytes.
    pub shared: usize,
}

impl Launch {
    /// `blocks` along x and no shared memory.
    pub(crate) fn new(kernel: &'static str, blocks: u32, threads: u32) -> Self {
        Self { kernel, grid: [blocks, 1, 1], threads, shared: 0 }
    }

    /// Runs it on `device`, after what has been launched there before. An empty grid runs nothing.
    pub(crate) fn run<P: Params>(self, device: &Device, params: &P) -> Result<()> {
        if self.grid.contains(&0) {
            return Ok(());
        }
        let start = std::ptr::from_ref(params).cast::<MaybeUninit<u8>>();
        // SAFETY: the bytes of `params`, borrowed for this call; padding may be uninitialised, as the type says.
        let bytes = unsafe { std::slice::from_raw_parts(start, size_of::<P>()) };
        let runner = runner(device)?;
        // SAFETY: `Params` vouches for the struct, and the ops of this folder for what its addresses lead to.
        unsafe { runner.launch(&self, bytes) }
    }
}

/// What a device has, for launches that are shaped by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Card {
    /// Blocks of a kernel that fills one that run at a time.
    pub multiprocessors: usize,
    /// Most shared memory that a block is granted, bytes.
    pub shared: usize,
}

/// Executes launches and matrix products, in the order they come.
pub trait Runner {
    /// What the device has.
    fn card(&self) -> Result<Card>;

    /// Runs a kernel; `params` holds the bytes of its parameter struct.
    ///
    /// # Safety
    /// The struct is that of the kernel, and its addresses are those of memory that it may read and write.
    unsafe fn launch(&self, launch: &Launch, params: &[MaybeUninit<u8>]) -> Result<()>;

    /// Multiplies.
    ///
    /// # Safety
    /// The operands' addresses are those of memory of the sizes given.
    unsafe fn multiply(&self, product: &Product) -> Result<()>;
}

thread_local! {
    static REPLACED: RefCell<Option<Rc<dyn Runner>>> = const { RefCell::new(None) };
}

/// Runs `f` with `runner` in the place of the device's own, on this thread, for CPU tensors too: an emulator, or one
/// that times what it passes on to [`device_runner`].
pub fn with_runner<R>(runner: Rc<dyn Runner>, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Rc<dyn Runner>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            REPLACED.with(|r| *r.borrow_mut() = before);
        }
    }
    let _restore = Restore(REPLACED.with(|r| r.borrow_mut().replace(runner)));
    f()
}

/// Whether kernels run on tensors of `device`.
pub(crate) fn runs_on(device: &Device) -> bool {
    let cuda = cfg!(feature = "cuda") && device.is_cuda();
    cuda || REPLACED.with(|r| r.borrow().is_some())
}

pub(super) fn runner(device: &Device) -> Result<Rc<dyn Runner>> {
    match REPLACED.with(|r| r.borrow().clone()) {
        Some(runner) => Ok(runner),
        None => device_runner(device),
    }
}

/// The runner of `device` itself, a CUDA device of a build that has CUDA.
pub fn device_runner(device: &Device) -> Result<Rc<dyn Runner>> {
    #[cfg(feature = "cuda")]
    if let Device::Cuda(cuda) = device {
        return Ok(super::stream::Stream::of(cuda)?);
    }
    candle_core::bail!("no kernels run on {device:?}")
}
