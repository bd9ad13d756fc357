//! Loss and gradients of the chunked head, against all logits at once in f64.

use crate::oracle::{Lay, assert_close, gradients, ids, on_device, test_devices, tolerance, uniform};
use candle_core::{D, DType, Device, Result, Tensor};
use kernels::head;

test_devices!(
    head_matches_its_reference,
    head_matches_its_reference_over_several_chunks,
    kernels_of_the_head_match_its_reference,
    a_row_longer_than_registers_hold_matches_the_reference,
    a_target_outside_the_vocabulary_makes_the_kernels_loss_no_number,
    gradients_carry_the_scale_and_add_to_what_is_there,
    a_loss_that_is_not_a_number_stays_so,
);

fn check(
    device: &Device,
    shape: &[usize],
    width: usize,
    vocab: usize,
    cap: Option<f64>,
    (dtypes, lays): (&[DType], &[Lay]),
) -> Result<()> {
    for &dtype in dtypes {
        for lay in lays {
            let what = format!("head {shape:?} {width} {vocab} {cap:?} {dtype:?} {lay:?}");
            let rounded = |t: Tensor| t.to_dtype(dtype)?.to_dtype(DType::F64);
            let x = rounded((uniform(&[shape, &[width]].concat(), 1) * 2.0)?)?;
            let w = rounded(uniform(&[vocab, width], 2))?;
            let ids = ids(shape, vocab as u32, 3, &Device::Cpu)?;
            let reference = |t: &[Tensor]| match dtype {
                DType::BF16 => reference_of_rounded_logits(&t[0], &t[1], &ids, cap),
                _ => head::reference(&t[0], &t[1], &ids, cap),
            };
            let exact = [x.clone(), w.clone()];
            let wanted = reference(&exact)?;
            let one = Tensor::ones((), DType::F64, &Device::Cpu)?;
            let grads = gradients(&exact, &one, reference)?;
            let place = |t: &Tensor| lay.of(&t.to_device(device)?);
            let (x, w) = (place(&x.to_dtype(dtype)?)?, place(&w.to_dtype(dtype)?)?);
            let ids = place(&ids)?;
            let sum = if dtype == DType::BF16 { DType::F32 } else { dtype };
            let made = on_device(&what, device, dtype, || {
                let dw = Tensor::zeros((vocab, width), sum, device)?;
                let made = head::loss_and_gradients(&x, &w, &ids, cap, 1.0, &dw)?;
                Ok(vec![head::loss(&x, &w, &ids, cap)?, made.mean, made.dx, dw])
            })?;
            for loss in &made[..2] {
                assert_close(&what, loss, &wanted, tolerance(dtype))?;
            }
            // gradients are far below 1: hold them to their own size
            for (made, wanted) in made[2..].iter().zip(&grads) {
                let size = wanted.abs()?.max_all()?.to_scalar::<f64>()?;
                assert!(size > 0.0);
                assert_close(&what, &(made / size)?, &(wanted / size)?, tolerance(dtype))?;
            }
        }
    }
    Ok(())
}

fn head_matches_its_reference(device: &Device) -> Result<()> {
    for cap in [None, Some(15.0), Some(2.0), Some(500.0)] {
        let dtypes = [DType::F32, DType::F64, DType::F16];
        let lays = [Lay::Plain, Lay::Offset, Lay::Gaps, Lay::Swapped];
        check(device, &[1], 1, 2, cap, (&dtypes, &lays))?;
        check(device, &[3, 5], 7, 33, cap, (&dtypes, &lays))?;
        check(device, &[17], 64, 130, cap, (&dtypes, &lays))?;
    }
    Ok(())
}

/// The reference, with logits that are rounded to bf16 and differentiated as if they were not: there they are stored.
fn reference_of_rounded_logits(x: &Tensor, w: &Tensor, ids: &Tensor, cap: Option<f64>) -> Result<Tensor> {
    let z = x.reshape(((), x.dim(D::Minus1)?))?.matmul(&w.t()?)?;
    let error = (z.to_dtype(DType::BF16)?.to_dtype(DType::F64)? - &z)?.detach();
    let same = Tensor::eye(z.dim(1)?, DType::F64, &Device::Cpu)?;
    head::reference(&(z + error)?, &same, &ids.flatten_all()?, cap)
}

fn kernels_of_the_head_match_its_reference(device: &Device) -> Result<()> {
    let lays = [Lay::Plain, Lay::Offset, Lay::Gaps, Lay::Swapped];
    for cap in [None, Some(15.0), Some(2.0), Some(500.0)] {
        check(device, &[1], 1, 2, cap, (&[DType::BF16], &lays))?;
        check(device, &[3, 5], 7, 33, cap, (&[DType::BF16], &lays))?;
        // seven rows a chunk
        check(device, &[17], 64, 130, cap, (&[DType::BF16], &lays))?;
    }
    // several vectors a thread, the last ones partly or not at all there; and as many as a thread keeps
    check(device, &[2], 8, 1100, Some(15.0), (&[DType::BF16], &[Lay::Plain]))?;
    check(device, &[2], 8, 2048, Some(15.0), (&[DType::BF16], &[Lay::Plain]))
}

fn a_row_longer_than_registers_hold_matches_the_reference(device: &Device) -> Result<()> {
    let vocab = 33_000;
    // sixteenths: every logit is a number of bf16
    let x = Tensor::new(&[[2.0]], &Device::Cpu)?;
    let w = ((uniform(&[vocab, 1], 1) * 40.0)?.round()? / 16.0)?;
    let id = Tensor::new(&[vocab as u32 - 1], &Device::Cpu)?;
    let reference = |t: &[Tensor]| head::reference(&t[0], &t[1], &id, Some(15.0));
    let exact = [x.clone(), w.clone()];
    let wanted = reference(&exact)?;
    let grads = gradients(&exact, &wanted.ones_like()?, reference)?;
    let half = |t: &Tensor| t.to_dtype(DType::BF16)?.to_device(device);
    let (x, w, id) = (half(&x)?, half(&w)?, id.to_device(device)?);
    let made = on_device("a long row", device, DType::BF16, || {
        let dw = Tensor::zeros((vocab, 1), DType::F32, device)?;
        let made = head::loss_and_gradients(&x, &w, &id, Some(15.0), 1.0, &dw)?;
        Ok(vec![made.mean, made.dx, dw])
    })?;
    assert_close("loss", &made[0], &wanted, 1e-5)?;
    for (made, wanted) in made[1..].iter().zip(&grads) {
        assert_close("gradient", made, wanted, tolerance(DType::BF16))?;
    }
    Ok(())
}

fn a_target_outside_the_vocabulary_makes_the_kernels_loss_no_number(device: &Device) -> Result<()> {
    let half = |shape: &[usize]| uniform(shape, 1).to_dtype(DType::BF16)?.to_device(device);
    let (x, w) = (half(&[3, 8])?, half(&[20, 8])?);
    for ids in [[1u32, 2, 20], [u32::MAX, 2, 3]] {
        let ids = Tensor::new(&ids, device)?;
        let made =
            on_device("head", device, DType::BF16, || Ok(vec![head::loss(&x, &w, &ids, Some(15.0))?]))?;
        assert!(made[0].to_scalar::<f32>()?.is_nan());
    }
    Ok(())
}

fn head_matches_its_reference_over_several_chunks(device: &Device) -> Result<()> {
    // 2²² logits a chunk: 64 rows of this vocabulary
    check(device, &[70], 2, 65_536, Some(15.0), (&[DType::F32, DType::F64], &[Lay::Plain]))
}

fn gradients_carry_the_scale_and_add_to_what_is_there(device: &Device) -> Result<()> {
    let at = |shape: &[usize], seed| uniform(shape, seed).to_device(device);
    let (x, w, ids) = (at(&[9, 5], 1)?, at(&[12, 5], 2)?, ids(&[9], 12, 3, device)?);
    let run = |scale, start: f64| -> Result<(Tensor, Tensor)> {
        let dw = Tensor::full(start, (12, 5), device)?;
        Ok((head::loss_and_gradients(&x, &w, &ids, Some(15.0), scale, &dw)?.dx, dw))
    };
    let ((dx, dw), (half_dx, half_dw)) = (run(1.0, 0.0)?, run(0.5, 3.0)?);
    assert_close("dx", &half_dx, &(dx * 0.5)?, 1e-14)?;
    assert_close("dw", &half_dw, &((dw * 0.5)? + 3.0)?, 1e-14)
}

fn a_loss_that_is_not_a_number_stays_so(device: &Device) -> Result<()> {
    let mut x = vec![0.5f32; 12];
    x[7] = f32::NAN;
    let x = Tensor::from_vec(x, (3, 4), device)?;
    let w = uniform(&[40, 4], 2).to_dtype(DType::F32)?.to_device(device)?;
    let ids = ids(&[3], 40, 3, device)?;
    for cap in [None, Some(15.0)] {
        assert!(head::loss(&x, &w, &ids, cap)?.to_scalar::<f32>()?.is_nan());
    }
    Ok(())
}
