//! What runs on a GPU, noted as it passes: launches and products, and with CUDA the time of each.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::rc::Rc;

use candle_core::{DType, Device, Result};
use kernels::cuda::{Card, Launch, Product, Runner, with_runner};
use serde_json::{Value, json};

/// A launch or a product, and the milliseconds it took.
#[derive(Debug)]
pub struct Span {
    /// What ran.
    pub what: What,
    /// By events; none on a CPU.
    pub ms: Option<f64>,
}

/// All that tells one kind of work from another.
#[derive(Debug, PartialEq)]
pub struct What(Work);

#[derive(Debug, PartialEq)]
enum Work {
    Kernel {
        name: &'static str,
        threads: u32,
        shared: usize,
    },
    /// (m, k)·(k, n), `batch` times; whether it is added to what is there.
    Product {
        m: usize,
        k: usize,
        n: usize,
        batch: usize,
        to: DType,
        adds: bool,
    },
}

impl What {
    fn launch(l: &Launch) -> Self {
        Self(Work::Kernel { name: l.kernel, threads: l.threads, shared: l.shared })
    }

    fn product(p: &Product) -> Self {
        let (to, adds) = (p.c.dtype, p.beta != 0.0);
        Self(Work::Product { m: p.m, k: p.k, n: p.n, batch: p.batch, to, adds })
    }

    /// For a report.
    pub fn figures(&self, times: u32, ms: Option<f64>) -> Value {
        match self.0 {
            Work::Kernel { name, threads, shared } => {
                json!({ "kernel": name, "threads": threads, "shared": shared, "times": times, "ms": ms })
            }
            Work::Product { m, k, n, batch, to, adds } => json!({
                "product": [m, k, n], "batch": batch, "to_bytes": to.size_in_bytes(), "adds": adds,
                "times": times, "ms": ms
            }),
        }
    }
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Work::Kernel { name, .. } => f.write_str(name),
            Work::Product { m, k, n, batch, to, adds } => {
                let (many, sign) = (
                    if *batch > 1 { format!("{batch} × ") } else { String::new() },
                    if *adds { "+=" } else { "=" },
                );
                write!(f, "{many}({m}, {n}) {to:?} {sign} sums of {k}")
            }
        }
    }
}

/// What `f` runs on the device, in order; on a CPU what it would run, which is left undone.
pub fn of(device: &Device, f: impl FnOnce() -> Result<()>) -> Result<Vec<Span>> {
    #[cfg(not(feature = "cuda"))]
    let _ = device;
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        return events::of(device, f);
    }
    let noted = Rc::new(Noted::default());
    with_runner(noted.clone(), f)?;
    Ok(noted.0.take())
}

#[derive(Default)]
struct Noted(RefCell<Vec<Span>>);

impl Runner for Noted {
    /// A Hopper's shared memory. One multiprocessor, so that heads are not divided, which they are not either
    /// where there are many more of them than multiprocessors.
    fn card(&self) -> Result<Card> {
        Ok(Card { multiprocessors: 1, shared: 227 << 10 })
    }

    unsafe fn launch(&self, launch: &Launch, _: &[MaybeUninit<u8>]) -> Result<()> {
        self.0.borrow_mut().push(Span { what: What::launch(launch), ms: None });
        Ok(())
    }

    unsafe fn multiply(&self, p: &Product) -> Result<()> {
        self.0.borrow_mut().push(Span { what: What::product(p), ms: None });
        Ok(())
    }
}

#[cfg(feature = "cuda")]
mod events {
    //! A runner that records an event before and after what it passes on.

    use std::cell::RefCell;
    use std::mem::MaybeUninit;
    use std::rc::Rc;
    use std::sync::Arc;

    use candle_core::{Device, Error, Result};
    use cudarc::driver::{CudaEvent, CudaStream, sys::CUevent_flags};
    use kernels::cuda::{Card, Launch, Product, Runner, device_runner, with_runner};

    use super::{Span, What};

    struct Timed {
        inner: Rc<dyn Runner>,
        stream: Arc<CudaStream>,
        spans: RefCell<Vec<(What, CudaEvent, CudaEvent)>>,
    }

    impl Timed {
        fn mark(&self) -> Result<CudaEvent> {
            self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(Error::wrap)
        }

        fn span(&self, what: What, run: impl FnOnce() -> Result<()>) -> Result<()> {
            let begin = self.mark()?;
            run()?;
            let end = self.mark()?;
            self.spans.borrow_mut().push((what, begin, end));
            Ok(())
        }
    }

    impl Runner for Timed {
        fn card(&self) -> Result<Card> {
            self.inner.card()
        }

        unsafe fn launch(&self, launch: &Launch, params: &[MaybeUninit<u8>]) -> Result<()> {
            // SAFETY: as the caller vouches.
            self.span(What::launch(launch), || unsafe { self.inner.launch(launch, params) })
        }

        unsafe fn multiply(&self, p: &Product) -> Result<()> {
            // SAFETY: as the caller vouches.
            self.span(What::product(p), || unsafe { self.inner.multiply(p) })
        }
    }

    /// What `f` runs on the device, in order.
    pub(super) fn of(device: &Device, f: impl FnOnce() -> Result<()>) -> Result<Vec<Span>> {
        let stream = device.as_cuda_device()?.cuda_stream();
        let timed = Rc::new(Timed { inner: device_runner(device)?, stream, spans: RefCell::default() });
        with_runner(timed.clone(), f)?;
        let span = |(what, begin, end): (What, CudaEvent, CudaEvent)| {
            Ok(Span { what, ms: Some(begin.elapsed_ms(&end).map_err(Error::wrap)?.into()) })
        };
        timed.spans.take().into_iter().map(span).collect()
    }
}
