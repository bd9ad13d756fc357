//! The CUDA kernels of `kernels`, and the referee's one, executed on a CPU.
//!
//! The `.cu` files are compiled as C++ through `shim/cuda_on_cpu.h`, where a CUDA thread is a fiber. [`run`] puts the
//! emulator in the place of a GPU for one closure: CPU tensors of bf16 then take the kernels' way.
//!
//! Nothing but tests depends on this crate.

use candle_core::{DType, Error, Result};
use gemm::Parallelism;
use half::bf16;
use kernels::cuda::{Card, Launch, Matrix, Product, Runner, with_runner};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

/// Which of the threads that could go on does so first, and which block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The lowest.
    Forward,
    /// The highest.
    Reverse,
    /// Any, by this seed.
    Random(u64),
}

/// The orders that between them show a missing barrier.
pub const ORDERS: [Order; 3] = [Order::Forward, Order::Reverse, Order::Random(7)];

/// The device that is emulated: few multiprocessors, so that small work is divided among them, with the shared memory
/// of compute capability 9.0.
pub const CARD: Card = Card { multiprocessors: 4, shared: 227 << 10 };

/// Runs `f` with kernels on CPU tensors emulated in this order of threads, on [`CARD`].
pub fn run<R>(order: Order, f: impl FnOnce() -> R) -> R {
    run_on(CARD, order, f)
}

/// As [`run`], on a device of another kind.
pub fn run_on<R>(card: Card, order: Order, f: impl FnOnce() -> R) -> R {
    with_runner(Rc::new(Emulator { card, order, variant: CString::default() }), f)
}

/// Runs one kernel; `params` is its parameter struct, `#[repr(C)]`, with addresses of memory that is there.
///
/// # Safety
/// The kernel reads and writes what the addresses say.
pub unsafe fn launch<P: Copy>(order: Order, launch: &Launch, params: &P) -> Result<()> {
    let start = std::ptr::from_ref(params).cast::<MaybeUninit<u8>>();
    // SAFETY: the bytes of `params`; padding may be uninitialised, as the type says.
    let bytes = unsafe { std::slice::from_raw_parts(start, size_of::<P>()) };
    // SAFETY: the caller vouches for it.
    unsafe { Emulator { card: CARD, order, variant: CString::default() }.launch(launch, bytes) }
}

/// As [`run`], with the kernels of a source that is in [`BROKEN`] as they are without one of their barriers.
pub fn run_broken<R>(order: Order, broken: &str, f: impl FnOnce() -> R) -> R {
    let variant = CString::new(broken).expect("names in BROKEN hold no zero");
    with_runner(Rc::new(Emulator { card: CARD, order, variant }), f)
}

// `BROKEN: &[(&str, &[&str])]`: sources, and the names of their copies, each without one barrier.
include!(concat!(env!("OUT_DIR"), "/broken.rs"));

struct Emulator {
    card: Card,
    order: Order,
    variant: CString,
}

/// The emulator keeps its state in globals.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

unsafe extern "C" {
    fn emulator_launch(
        name: *const c_char,
        variant: *const c_char,
        x: c_uint,
        y: c_uint,
        z: c_uint,
        threads: c_uint,
        shared: usize,
        params: *const c_void,
        params_size: usize,
        order: c_int,
        seed: u64,
        message: *mut c_char,
        message_size: usize,
    ) -> c_int;
}

impl Runner for Emulator {
    fn card(&self) -> Result<Card> {
        Ok(self.card)
    }

    unsafe fn launch(&self, launch: &Launch, params: &[MaybeUninit<u8>]) -> Result<()> {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let name = CString::new(launch.kernel).map_err(Error::wrap)?;
        let (order, seed) = match self.order {
            Order::Forward => (0, 0),
            Order::Reverse => (1, 0),
            Order::Random(seed) => (2, seed),
        };
        // aligned as the struct they are the bytes of
        let mut aligned = vec![MaybeUninit::<u128>::uninit(); params.len().div_ceil(16)];
        let to = aligned.as_mut_ptr().cast::<MaybeUninit<u8>>();
        let mut message = [0u8; 4096];
        let [x, y, z] = launch.grid;
        if launch.shared > self.card.shared {
            return Err(Error::msg(format!("{launch:?}: more shared memory than {:?} grants", self.card)));
        }
        // SAFETY: `aligned` has room for the bytes copied; the names and the message end in zero and outlive the call,
        // which is alone; a kernel's addresses are those of live tensors (`Params`).
        let failed = unsafe {
            to.copy_from_nonoverlapping(params.as_ptr(), params.len());
            emulator_launch(
                name.as_ptr(),
                self.variant.as_ptr(),
                x,
                y,
                z,
                launch.threads,
                launch.shared,
                to.cast(),
                params.len(),
                order,
                seed,
                message.as_mut_ptr().cast(),
                message.len(),
            )
        };
        if failed == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&message);
        Err(Error::msg(format!("{launch:?}: {}", text.trim_end_matches('\0').trim_end())))
    }

    unsafe fn multiply(&self, p: &Product) -> Result<()> {
        for i in 0..p.batch {
            let (a, b) = (read(&p.a, p.m, p.k, i)?, read(&p.b, p.k, p.n, i)?);
            let before = if p.beta == 0.0 { vec![0.0; p.m * p.n] } else { read(&p.c, p.m, p.n, i)? };
            let mut c = before;
            // SAFETY: three dense row-major buffers of the sizes given.
            unsafe {
                let (m, n, k) = (p.m, p.n, p.k);
                gemm::gemm(
                    m,
                    n,
                    k,
                    c.as_mut_ptr(),
                    1,
                    n as isize,
                    p.beta != 0.0,
                    a.as_ptr(),
                    1,
                    k as isize,
                    b.as_ptr(),
                    1,
                    n as isize,
                    p.beta,
                    p.alpha,
                    false,
                    false,
                    false,
                    Parallelism::None,
                );
            }
            write(&p.c, p.n, i, &c);
        }
        Ok(())
    }
}

/// Address of element (row, col) of matrix i, as stored.
fn place(m: &Matrix, i: usize, row: usize, col: usize) -> u64 {
    m.at + ((i * m.step + row * m.stride + col) * m.dtype.size_in_bytes()) as u64
}

/// Matrix i of an operand as (rows, cols), row-major.
fn read(m: &Matrix, rows: usize, cols: usize, i: usize) -> Result<Vec<f32>> {
    let mut out = Vec::with_capacity(rows * cols);
    for r in 0..rows {
        for c in 0..cols {
            let at = if m.transposed { place(m, i, c, r) } else { place(m, i, r, c) };
            // SAFETY: within a live tensor of this dtype, as the sizes of a product say.
            out.push(unsafe {
                match m.dtype {
                    DType::BF16 => (*(at as *const bf16)).to_f32(),
                    DType::F32 => *(at as *const f32),
                    other => return Err(Error::msg(format!("a product takes no {other:?}"))),
                }
            });
        }
    }
    Ok(out)
}

fn write(m: &Matrix, cols: usize, i: usize, values: &[f32]) {
    for (n, &value) in values.iter().enumerate() {
        let at = place(m, i, n / cols, n % cols);
        // SAFETY: as in `read`, which has checked the dtype of a result that is added to; others are f32 or bf16.
        unsafe {
            match m.dtype {
                DType::BF16 => *(at as *mut bf16) = bf16::from_f32(value),
                _ => *(at as *mut f32) = value,
            }
        }
    }
}
