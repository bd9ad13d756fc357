//! Windows, groups and block edges, against attention with all scores in f64.

use crate::oracle::{Lay, assert_close, check_op, gradients, test_devices, uniform};
use candle_core::{DType, Device, Result, Tensor};
use kernels::attention;

test_devices!(
    attention_matches_its_reference,
    attention_matches_its_reference_across_blocks,
    window_zero_returns_the_value_itself,
    a_later_token_changes_nothing_before_it,
    large_scores_do_not_overflow,
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
