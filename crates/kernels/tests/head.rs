//! Loss and gradients of the chunked head, against all logits at once in f64.

use crate::oracle::{Lay, assert_close, gradients, ids, test_devices, tolerance, uniform};
use candle_core::{DType, Device, Result, Tensor};
use kernels::head;

test_devices!(
    head_matches_its_reference,
    head_matches_its_reference_over_several_chunks,
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
            let wanted = head::reference(&x, &w, &ids, cap)?;
            let one = Tensor::ones((), DType::F64, &Device::Cpu)?;
            let grads =
                gradients(&[x.clone(), w.clone()], &one, |t| head::reference(&t[0], &t[1], &ids, cap))?;
            let place = |t: &Tensor| lay.of(&t.to_device(device)?);
            let (x, w) = (place(&x.to_dtype(dtype)?)?, place(&w.to_dtype(dtype)?)?);
            let (ids, dw) = (place(&ids)?, Tensor::zeros((vocab, width), dtype, device)?);
            assert_close(&what, &head::loss(&x, &w, &ids, cap)?, &wanted, tolerance(dtype))?;
            let made = head::loss_and_gradients(&x, &w, &ids, cap, 1.0, &dw)?;
            assert_close(&what, &made.mean, &wanted, tolerance(dtype))?;
            // gradients are far below 1: hold them to their own size
            for (made, wanted) in [(&made.dx, &grads[0]), (&dw, &grads[1])] {
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
