//! Windows, groups and block edges, against attention with all scores in f64.

use crate::oracle::{
    Lay, assert_close, check_op, gradients, in_every_order, on_device, test_devices, tolerance, uniform,
};
use candle_core::{DType, Device, Result, Tensor};
use kernels::attention;

test_devices!(
    attention_matches_its_reference,
    attention_matches_its_reference_across_blocks,
    window_zero_returns_the_value_itself,
    a_later_token_changes_nothing_before_it,
    large_scores_do_not_overflow,
    kernels_match_the_reference,
    kernels_match_the_reference_when_splits_share_a_head,
    kernels_take_rows_that_begin_between_vectors,
);

fn check(
    device: &Device,
    b: usize,
    t: usize,
    (h, kv): (usize, usize),
    d: usize,
    window: usize,
) -> Result<()> {
    let inputs = [uniform(&[b, t, h, d], 1), uniform(&[b, t, kv, d], 2), uniform(&[b, t, kv, d], 3)];
    check_op(
        &format!("attention b{b} t{t} h{h}/{kv} d{d} window {window}"),
        device,
        &inputs,
        |x| attention::reference(&x[0], &x[1], &x[2], window),
        |x| Ok(attention::forward(&x[0], &x[1], &x[2], window)?.out),
        |x, dy| {
            let attended = attention::forward(&x[0], &x[1], &x[2], window)?;
            let g = attention::backward(&x[0], &x[1], &x[2], window, &attended, dy)?;
            Ok(vec![g.q, g.k, g.v])
        },
    )
}

fn attention_matches_its_reference(device: &Device) -> Result<()> {
    for window in [0, 1, 3, 6, 100] {
        check(device, 2, 7, (2, 2), 5, window)?;
        check(device, 2, 7, (6, 2), 4, window)?;
    }
    check(device, 1, 1, (1, 1), 1, 0)
}

fn attention_matches_its_reference_across_blocks(device: &Device) -> Result<()> {
    for (t, window) in [(63, 20), (64, 64), (65, 63), (150, 70), (200, 1000), (193, 128)] {
        check(device, 1, t, (2, 1), 16, window)?;
    }
    Ok(())
}

fn window_zero_returns_the_value_itself(device: &Device) -> Result<()> {
    let at = |seed| uniform(&[1, 70, 2, 8], seed).to_device(device);
    let (q, k, v) = (at(1)?, at(2)?, at(3)?);
    // a query that reaches only itself has weight 1 there
    assert_close("out", &attention::forward(&q, &k, &v, 0)?.out, &v, 1e-12)
}

fn a_later_token_changes_nothing_before_it(device: &Device) -> Result<()> {
    let at = |seed| uniform(&[1, 80, 2, 8], seed).to_dtype(DType::F32)?.to_device(device);
    let (q, k, v) = (at(1)?, at(2)?, at(3)?);
    let cut = 37;
    let after =
        |t: &Tensor| Tensor::cat(&[t.narrow(1, 0, cut)?, t.narrow(1, cut, 80 - cut)?.affine(-3.0, 1.0)?], 1);
    let before = attention::forward(&q, &k, &v, 50)?.out.narrow(1, 0, cut)?.flatten_all()?;
    let changed =
        attention::forward(&q, &after(&k)?, &after(&v)?, 50)?.out.narrow(1, 0, cut)?.flatten_all()?;
    assert_eq!(before.to_vec1::<f32>()?, changed.to_vec1::<f32>()?);
    Ok(())
}

fn large_scores_do_not_overflow(device: &Device) -> Result<()> {
    // scores around ±1e4: e to that is infinite in f32 and f64
    let at = |seed, by: f64| (uniform(&[1, 90, 1, 16], seed) * by)?.to_dtype(DType::F32)?.to_device(device);
    let (q, k, v) = (at(1, 100.0)?, at(2, 100.0)?, at(3, 1.0)?);
    let exact = [&q, &k, &v].map(|t| t.to_dtype(DType::F64).unwrap());
    let wanted = attention::reference(&exact[0], &exact[1], &exact[2], 90)?;
    let attended = attention::forward(&Lay::Gaps.of(&q)?, &k, &v, 90)?;
    // scores of 1e4 leave f32 three digits of a weight
    assert_close("out", &attended.out, &wanted, 1e-3)?;
    let dy = uniform(&[1, 90, 1, 16], 4);
    let wanted = gradients(&exact, &dy, |x| attention::reference(&x[0], &x[1], &x[2], 90))?;
    let made = attention::backward(&q, &k, &v, 90, &attended, &dy.to_dtype(DType::F32)?.to_device(device)?)?;
    assert_close("dv", &made.v, &wanted[2], 1e-3)?;
    Ok(())
}

/// One call of the kernels.
#[derive(Debug, Clone, Copy)]
struct Call {
    /// Batch, time, heads, key/value heads.
    shape: [usize; 4],
    width: usize,
    window: usize,
    lay: Lay,
}

/// What the kernels make: out, log-sum-exp, and the gradients of q, k and v.
fn run(inputs: &[Tensor; 4], window: usize) -> Result<Vec<Tensor>> {
    let [q, k, v, dy] = inputs;
    let attended = attention::forward(q, k, v, window)?;
    let g = attention::backward(q, k, v, window, &attended, dy)?;
    Ok(vec![attended.out, attended.log_sum_exp, g.q, g.k, g.v])
}

impl Call {
    /// q, k, v and the gradient of the result, rounded to bf16, in f64: the oracle sees what the kernels see.
    fn exact(&self) -> Result<[Tensor; 4]> {
        let [b, t, h, kv] = self.shape;
        let of = |heads, seed, by: f64| {
            (uniform(&[b, t, heads, self.width], seed) * by)?.to_dtype(DType::BF16)?.to_dtype(DType::F64)
        };
        // scores of some ±5: neither all weights alike nor one alone
        Ok([of(h, 1, 3.0)?, of(kv, 2, 3.0)?, of(kv, 3, 1.0)?, of(h, 4, 1.0)?])
    }

    /// `run` by `kernels`, against the same in f64 with all scores.
    fn check(
        &self,
        device: &Device,
        kernels: impl Fn(&str, &[Tensor; 4]) -> Result<Vec<Tensor>>,
    ) -> Result<()> {
        let exact = self.exact()?;
        let [q, k, v, dy] = &exact;
        let reference = |x: &[Tensor]| attention::reference(&x[0], &x[1], &x[2], self.window);
        let mut wanted = vec![reference(&exact)?, attention::forward(q, k, v, self.window)?.log_sum_exp];
        wanted.extend(gradients(&exact[..3], dy, reference)?);
        let place = |t: &Tensor| self.lay.of(&t.to_dtype(DType::BF16)?.to_device(device)?);
        let given = [place(q)?, place(k)?, place(v)?, place(dy)?];
        let what = format!("{self:?}");
        let made = kernels(&what, &given)?;
        for (i, name) in ["out", "log_sum_exp", "dq", "dk", "dv"].into_iter().enumerate() {
            let allowed = if made[i].dtype() == DType::F32 { 2e-6 } else { tolerance(DType::BF16) };
            assert_close(&format!("{what}, {name}"), &made[i], &wanted[i], allowed)?;
        }
        Ok(())
    }
}

fn check_kernels(device: &Device, call: Call) -> Result<()> {
    call.check(device, |what, given| on_device(what, device, DType::BF16, || run(given, call.window)))
}

fn kernels_match_the_reference(device: &Device) -> Result<()> {
    for width in [32, 64, 128] {
        let call = |shape, window, lay| check_kernels(device, Call { shape, width, window, lay });
        call([4, 1, 1, 1], 0, Lay::Plain)?;
        call([2, 64, 2, 2], 0, Lay::Swapped)?;
        call([2, 65, 4, 2], 1, Lay::Gaps)?;
        call([4, 129, 1, 1], 63, Lay::Offset)?;
        call([1, 200, 4, 4], 64, Lay::Plain)?;
        call([2, 150, 2, 2], 65, Lay::Swapped)?;
    }
    Ok(())
}

/// The emulated device has 4 multiprocessors, so a head or two are divided.
fn kernels_match_the_reference_when_splits_share_a_head(device: &Device) -> Result<()> {
    for width in [32, 64, 128] {
        let call = |shape, window, lay| check_kernels(device, Call { shape, width, window, lay });
        call([1, 300, 2, 1], 150, Lay::Plain)?;
        call([2, 270, 1, 1], 1_000_000, Lay::Gaps)?;
    }
    Ok(())
}

fn kernels_take_rows_that_begin_between_vectors(device: &Device) -> Result<()> {
    let call = Call { shape: [1, 40, 2, 1], width: 32, window: 20, lay: Lay::Plain };
    call.check(device, |what, given| {
        let shifted = |t: &Tensor| {
            let flat = t.flatten_all()?;
            Tensor::cat(&[&flat.narrow(0, 0, 1)?, &flat], 0)?.narrow(0, 1, flat.dim(0)?)?.reshape(t.shape())
        };
        let [q, k, v, dy] = given;
        let shifted = [shifted(q)?, shifted(k)?, shifted(v)?, shifted(dy)?];
        on_device(what, device, DType::BF16, || run(&shifted, call.window))
    })
}

/// Compute capability 8.6, 8.9 and 12.0; a multiprocessor alone divides nothing.
#[test]
fn kernels_match_the_reference_in_99_kilobytes_of_shared_memory() -> Result<()> {
    for (multiprocessors, shape, width, window) in [
        (1, [1, 131, 2, 1], 128, 70),
        (1, [2, 97, 1, 1], 128, 1000),
        (4, [1, 290, 1, 1], 128, 140),
        (1, [1, 70, 1, 1], 64, 70),
    ] {
        let card = kernels::cuda::Card { multiprocessors, shared: 99 << 10 };
        let call = Call { shape, width, window, lay: Lay::Plain };
        call.check(&Device::Cpu, |what, given| {
            in_every_order(what, |order| emulator::run_on(card, order, || run(given, call.window)))
        })?;
    }
    Ok(())
}
