//! The right values: references in f64 through candle's own autograd, and inputs in awkward layouts.

use candle_core::{DType, Device, Result, Tensor, Var};
use kernels::accumulate::Sum;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

/// Runs one test body on every device this build can reach.
///
/// `test_devices!(name)` wants `fn name(device: &Device) -> Result<()>` in a module `body` beside it.
macro_rules! test_devices {
    ($($name:ident),+ $(,)?) => {
        mod cpu {
            $(#[test]
            fn $name() {
                super::$name(&candle_core::Device::Cpu).unwrap();
            })+
        }

        #[cfg(feature = "cuda")]
        mod cuda {
            $(#[test]
            fn $name() {
                super::$name(&candle_core::Device::new_cuda(0).unwrap()).unwrap();
            })+
        }
    };
}
pub(crate) use test_devices;

/// Uniform in [−1, 1), f64 on the CPU.
pub(crate) fn uniform(shape: &[usize], seed: u64) -> Tensor {
    let mut rng = StdRng::seed_from_u64(seed);
    let n = shape.iter().product();
    let data: Vec<f64> = (0..n).map(|_| rng.random_range(-1.0..1.0)).collect();
    Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
}

/// Token ids below `vocab`, u32 on `device`.
pub(crate) fn ids(shape: &[usize], vocab: u32, seed: u64, device: &Device) -> Result<Tensor> {
    let mut rng = StdRng::seed_from_u64(seed);
    let n = shape.iter().product();
    let data: Vec<u32> = (0..n).map(|_| rng.next_u32() % vocab).collect();
    Tensor::from_vec(data, shape, device)
}

/// How a tensor lies in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lay {
    /// Row-major from the start of its storage.
    Plain,
    /// Row-major, some way into its storage.
    Offset,
    /// With gaps between its rows.
    Gaps,
    /// First two axes swapped in memory.
    Swapped,
}

impl Lay {
    /// The same values in this layout.
    pub(crate) fn of(self, t: &Tensor) -> Result<Tensor> {
        let last = t.rank().saturating_sub(1);
        match self {
            Lay::Offset if t.rank() > 0 => {
                let n = t.dim(0)?;
                Tensor::cat(&[&t.ones_like()?, t, &t.ones_like()?], 0)?.narrow(0, n, n)
            }
            Lay::Gaps if t.rank() > 0 => {
                let n = t.dim(last)?;
                Tensor::cat(&[&t.ones_like()?, t, &t.ones_like()?], last)?.narrow(last, n, n)
            }
            Lay::Swapped if t.rank() > 1 => t.transpose(0, 1)?.contiguous()?.transpose(0, 1),
            _ => Ok(t.clone()),
        }
    }
}

/// The values of a tensor, row by row.
pub(crate) fn exact(t: &Tensor) -> Result<Vec<f64>> {
    t.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

/// Asserts |actual − expected| ≤ tolerance · max(1, max |expected|) everywhere; `expected` is the f64 oracle.
pub(crate) fn assert_close(what: &str, actual: &Tensor, expected: &Tensor, tolerance: f64) -> Result<()> {
    assert_eq!(actual.dims(), expected.dims(), "{what}: shape");
    let (actual, expected) = (exact(actual)?, exact(expected)?);
    let size = expected.iter().fold(1.0f64, |m, e| m.max(e.abs()));
    for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
        // the negated form also catches NaN
        assert!(
            (a - e).abs() <= tolerance * size,
            "{what}: element {i} is {a}, should be {e} (scale {size})"
        );
    }
    Ok(())
}

/// The error a dtype is allowed, relative to the largest value.
pub(crate) fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-11,
        DType::F16 => 5e-3,
        DType::BF16 => 8e-3, // two units in the last place
        _ => 2e-5,
    }
}

/// Gradients of Σ dy·f(inputs) in f64, by candle's autograd.
pub(crate) fn gradients(
    inputs: &[Tensor],
    dy: &Tensor,
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<Vec<Tensor>> {
    let vars: Vec<Var> = inputs.iter().map(Var::from_tensor).collect::<Result<_>>()?;
    let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let grads = (f(&tensors)? * dy)?.sum_all()?.backward()?;
    tensors.iter().map(|t| grads.get(t).cloned().map_or_else(|| t.zeros_like(), Ok)).collect()
}

/// Holds `forward` and `backward` against `reference`, in every layout, in f32 and f64, in f16 for the way that types
/// without an implementation of their own take, and in bf16 for the CUDA kernels: those of a CUDA device, or the same
/// sources emulated, in several orders of threads that must give the same bits.
///
/// `backward` gets the inputs and dy, and returns one gradient for each input.
pub(crate) fn check_op(
    what: &str,
    device: &Device,
    inputs: &[Tensor],
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
    forward: impl Fn(&[Tensor]) -> Result<Tensor>,
    backward: impl Fn(&[Tensor], &Tensor) -> Result<Vec<Tensor>>,
) -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        // the oracle sees the values after rounding to the tested type
        let rounded = |t: &Tensor| t.to_dtype(dtype)?.to_dtype(DType::F64);
        let exact: Vec<Tensor> = inputs.iter().map(rounded).collect::<Result<_>>()?;
        let y = reference(&exact)?;
        let dy = rounded(&uniform(y.dims(), 99))?;
        let wanted = gradients(&exact, &dy, &reference)?;
        for lay in [Lay::Plain, Lay::Offset, Lay::Gaps, Lay::Swapped] {
            let place = |t: &Tensor| lay.of(&t.to_dtype(dtype)?.to_device(device)?);
            let given: Vec<Tensor> = exact.iter().map(place).collect::<Result<_>>()?;
            let dy = place(&dy)?;
            let what = format!("{what}, {dtype:?}, {lay:?}");
            let made = on_device(&what, device, dtype, || {
                let mut made = vec![forward(&given)?];
                made.extend(backward(&given, &dy)?);
                Ok(made)
            })?;
            assert_eq!(made[0].dtype(), dtype, "{what}");
            assert_close(&what, &made[0], &y, tolerance(dtype))?;
            for (i, (made, wanted)) in made[1..].iter().zip(&wanted).enumerate() {
                assert_close(&format!("{what}, gradient {i}"), made, wanted, tolerance(dtype))?;
            }
        }
    }
    Ok(())
}

/// Holds what `f` adds to given sums against its own gradients in f64 without any: for each sum none, one that it may
/// overwrite, and one that it must leave alone, in several layouts.
///
/// `f` gets the inputs and N sums, and returns the N gradients.
pub(crate) fn check_sums<const N: usize>(
    what: &str,
    device: &Device,
    inputs: &[Tensor],
    f: impl Fn(&[Tensor], [Option<Sum>; N]) -> Result<[Tensor; N]>,
) -> Result<()> {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let rounded = |t: &Tensor| t.to_dtype(dtype)?.to_dtype(DType::F64);
        let exact: Vec<Tensor> = inputs.iter().map(rounded).collect::<Result<_>>()?;
        let alone = f(&exact, [None; N])?;
        let place = |t: &Tensor| t.to_dtype(dtype)?.to_device(device);
        let given: Vec<Tensor> = exact.iter().map(place).collect::<Result<_>>()?;
        for (lay, way) in [Lay::Plain, Lay::Offset, Lay::Gaps]
            .into_iter()
            .flat_map(|l| (0..3usize.pow(N as u32)).map(move |w| (l, w)))
        {
            // of each sum: 0 none, 1 to be left alone, 2 to be overwritten
            let ways: [usize; N] = std::array::from_fn(|i| way / 3usize.pow(i as u32) % 3);
            let what = format!("{what}, {dtype:?}, {lay:?}, sums {ways:?}");
            let before = alone.each_ref().map(|g| rounded(&uniform(g.dims(), 77)).unwrap());
            let made = on_device(&what, device, dtype, || {
                let sums = before.each_ref().map(|t| lay.of(&place(t).unwrap()).unwrap());
                let all = std::array::from_fn(|i| {
                    (ways[i] > 0).then_some(Sum { so_far: &sums[i], owned: ways[i] == 2 })
                });
                let made = f(&given, all)?;
                for i in 0..N {
                    if ways[i] == 1 {
                        assert_close(&format!("{what}: a sum of another"), &sums[i], &before[i], 0.0)?;
                    }
                }
                Ok(made.to_vec())
            })?;
            for i in 0..N {
                let wanted = if ways[i] > 0 { (&alone[i] + &before[i])? } else { alone[i].clone() };
                assert_close(&what, &made[i], &wanted, tolerance(dtype))?;
            }
        }
    }
    Ok(())
}

/// What `f` makes: of bf16 on a CPU, by emulated kernels, in every order of threads, all to the same bits.
pub(crate) fn on_device(
    what: &str,
    device: &Device,
    dtype: DType,
    f: impl Fn() -> Result<Vec<Tensor>>,
) -> Result<Vec<Tensor>> {
    if !device.is_cpu() || dtype != DType::BF16 {
        return f();
    }
    in_every_order(what, |order| emulator::run(order, &f))
}

/// What `f` makes in each order of threads, all to the same bits.
pub(crate) fn in_every_order(
    what: &str,
    f: impl Fn(emulator::Order) -> Result<Vec<Tensor>>,
) -> Result<Vec<Tensor>> {
    let made: Vec<Vec<Tensor>> = emulator::ORDERS.map(f).into_iter().collect::<Result<_>>()?;
    let bits = |made: &[Tensor]| -> Result<Vec<Vec<u32>>> {
        let of = |t: &Tensor| {
            Ok(t.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?.iter().map(|x| x.to_bits()).collect())
        };
        made.iter().map(of).collect()
    };
    let first = bits(&made[0])?;
    for (order, made) in emulator::ORDERS.iter().zip(&made) {
        assert!(bits(made)? == first, "{what}: the result depends on the order of threads ({order:?})");
    }
    Ok(made.into_iter().next().expect("there are orders"))
}
