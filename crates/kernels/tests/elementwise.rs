//! Norm, mix, rotary, gate and activation, against their references.

use crate::oracle::{Lay, assert_close, check_op, check_sums, on_device, test_devices, tolerance, uniform};
use candle_core::{DType, Device, Result, Tensor};
use kernels::{accumulate, cast, gated_value, mix, relu_squared, rms_norm, rope_norm, scale, soft_cap};

test_devices!(
    rms_norm_matches_its_reference,
    rms_norm_adds_to_the_sum_it_is_given,
    mix_matches_its_reference,
    mix_adds_to_the_sums_it_is_given,
    mix_takes_one_element_of_a_longer_vector,
    rope_norm_matches_its_reference,
    gated_value_matches_its_reference,
    relu_squared_matches_its_reference,
    relu_squared_keeps_nan,
    add_assign_adds_where_the_view_lies,
    sums_and_changes_in_place_are_those_of_f64,
);

fn rms_norm_matches_its_reference(device: &Device) -> Result<()> {
    for shape in [&[1, 1][..], &[3, 33], &[2, 5, 64], &[5, 2, 7], &[130, 513]] {
        check_op(
            "rms_norm",
            device,
            &[uniform(shape, 1)],
            |x| rms_norm::reference(&x[0]),
            |x| Ok(rms_norm::forward(&x[0])?.y),
            |x, dy| Ok(vec![rms_norm::backward(&rms_norm::forward(&x[0])?, dy, None)?]),
        )?;
    }
    Ok(())
}

fn rms_norm_adds_to_the_sum_it_is_given(device: &Device) -> Result<()> {
    for shape in [&[3, 33][..], &[2, 5, 64]] {
        check_sums("rms_norm", device, &[uniform(shape, 1), uniform(shape, 2)], |t, [sum]| {
            Ok([rms_norm::backward(&rms_norm::forward(&t[0])?, &t[1], sum)?])
        })?;
    }
    Ok(())
}

fn mix_matches_its_reference(device: &Device) -> Result<()> {
    for shape in [&[1][..], &[3, 5, 7], &[4, 9001]] {
        let inputs = [uniform(shape, 1), uniform(shape, 2), uniform(&[1], 3), uniform(&[1], 4)];
        check_op(
            "mix",
            device,
            &inputs,
            |t| mix::reference(&t[0], &t[1], &t[2], &t[3]),
            |t| mix::forward(&t[0], &t[1], &t[2], &t[3]),
            |t, dy| {
                let g = mix::backward(&t[0], &t[1], &t[2], &t[3], dy, [None, None])?;
                Ok(vec![g.x, g.x0, g.r, g.z])
            },
        )?;
    }
    Ok(())
}

fn mix_adds_to_the_sums_it_is_given(device: &Device) -> Result<()> {
    for shape in [&[3, 5, 7][..], &[3, 8192]] {
        let inputs =
            [uniform(shape, 1), uniform(shape, 2), uniform(&[1], 3), uniform(&[1], 4), uniform(shape, 5)];
        check_sums("mix", device, &inputs, |t, sums| {
            let g = mix::backward(&t[0], &t[1], &t[2], &t[3], &t[4], sums)?;
            Ok([g.x, g.x0])
        })?;
    }
    Ok(())
}

fn mix_takes_one_element_of_a_longer_vector(device: &Device) -> Result<()> {
    for dtype in [DType::F32, DType::BF16] {
        let made = on_device("mix", device, dtype, || {
            let x = Tensor::new(&[1f32, 2.0], device)?.to_dtype(dtype)?;
            // f32 beside either, as a model keeps them
            let scalars = Tensor::new(&[0f32, 10.0, 100.0], device)?;
            let (r, z) = (scalars.narrow(0, 1, 1)?, scalars.narrow(0, 2, 1)?);
            let g = mix::backward(&x, &x, &r, &z, &x, [None, None])?;
            assert_eq!((g.r.dtype(), g.z.dims()), (DType::F32, z.dims()));
            Ok(vec![mix::forward(&x, &x, &r, &z)?, g.r])
        })?;
        // 10·x + 100·x and x·x, by hand
        assert_eq!(made[0].to_dtype(DType::F32)?.to_vec1::<f32>()?, [110.0, 220.0]);
        assert_eq!(made[1].to_vec1::<f32>()?, [5.0]);
    }
    Ok(())
}

fn rope_norm_matches_its_reference(device: &Device) -> Result<()> {
    for (b, t, h, d) in [(1, 1, 1, 2), (2, 7, 3, 10), (2, 5, 2, 64), (1, 37, 1, 128), (1, 3, 2, 1040)] {
        let angle = uniform(&[t, d / 2], 5);
        let inputs = [uniform(&[b, t, h, d], 1), angle.cos()?, angle.sin()?];
        check_op(
            "rope_norm",
            device,
            &inputs,
            |x| rope_norm::reference(&x[0], &x[1], &x[2]),
            |x| Ok(rope_norm::forward(&x[0], &x[1], &x[2])?.y),
            |x, dy| {
                let normed = rope_norm::forward(&x[0], &x[1], &x[2])?;
                Ok(vec![rope_norm::backward(&normed, &x[1], &x[2], dy)?])
            },
        )?;
    }
    Ok(())
}

fn gated_value_matches_its_reference(device: &Device) -> Result<()> {
    for (b, t, h, d) in [(1, 1, 1, 1), (2, 7, 3, 10), (2, 33, 2, 64), (1, 5, 1, 300)] {
        let gate = (uniform(&[b, t, h], 2) * 4.0)?;
        check_op(
            "gated_value",
            device,
            &[uniform(&[b, t, h, d], 1), gate, uniform(&[b, t, h, d], 3)],
            |x| gated_value::reference(&x[0], &x[1], &x[2]),
            |x| gated_value::forward(&x[0], &x[1], &x[2]),
            |x, dy| {
                let g = gated_value::backward(&x[0], &x[1], &x[2], dy)?;
                Ok(vec![g.v, g.gate, g.ve])
            },
        )?;
    }
    Ok(())
}

fn relu_squared_matches_its_reference(device: &Device) -> Result<()> {
    for shape in [&[1][..], &[3, 5, 7], &[4, 9001]] {
        check_op(
            "relu_squared",
            device,
            &[uniform(shape, 1)],
            |x| relu_squared::reference(&x[0]),
            |x| relu_squared::forward(&x[0]),
            |x, dy| Ok(vec![relu_squared::backward(&relu_squared::forward(&x[0])?, dy)?]),
        )?;
    }
    Ok(())
}

fn relu_squared_keeps_nan(device: &Device) -> Result<()> {
    for dtype in [DType::F32, DType::BF16] {
        let made = on_device("relu_squared", device, dtype, || {
            let x = Tensor::new(&[f32::NAN, -1.0, 3.0], device)?.to_dtype(dtype)?;
            let y = relu_squared::forward(&x)?;
            Ok(vec![relu_squared::backward(&y, &y.ones_like()?)?, y])
        })?;
        for (made, [low, high]) in made.iter().zip([[0.0, 6.0], [0.0, 9.0]]) {
            let made = made.to_dtype(DType::F32)?.to_vec1::<f32>()?;
            assert!(made[0].is_nan() && made[1..] == [low, high], "{made:?}");
        }
    }
    Ok(())
}

fn add_assign_adds_where_the_view_lies(device: &Device) -> Result<()> {
    let whole = Tensor::zeros((3, 4), candle_core::DType::F32, device)?;
    let x = Tensor::arange(0f32, 4.0, device)?.reshape((1, 4))?;
    accumulate::add_assign(&whole.narrow(0, 1, 1)?, &x)?;
    accumulate::add_assign(&whole.narrow(0, 1, 1)?, &x)?;
    // only row 1 changes, and every view of the storage sees it
    let rows = [[0.0; 4], [0.0, 2.0, 4.0, 6.0], [0.0; 4]];
    assert_eq!(whole.to_vec2::<f32>()?, rows);
    Ok(())
}

fn sums_and_changes_in_place_are_those_of_f64(device: &Device) -> Result<()> {
    let by = Tensor::new(&[3f32, -0.7, 5.0], device)?.narrow(0, 1, 1)?;
    let factor = by.to_dtype(DType::F64)?.to_device(&Device::Cpu)?;
    for shape in [&[1][..], &[3, 5, 7], &[4, 9001]] {
        for (dtype, lay) in
            [DType::F32, DType::BF16].into_iter().flat_map(|d| [(d, Lay::Plain), (d, Lay::Offset)])
        {
            let place = |t: &Tensor| lay.of(&t.to_dtype(dtype)?.to_device(device)?);
            let wide = |t: &Tensor| t.to_device(&Device::Cpu)?.to_dtype(DType::F64);
            let (x, y) = (place(&uniform(shape, 1))?, place(&(uniform(shape, 2) * 40.0)?)?);
            let changed = |f: &dyn Fn(&Tensor) -> Result<()>| -> Result<Tensor> {
                let y = place(&wide(&y)?)?;
                f(&y)?;
                Ok(y)
            };
            let what = format!("{shape:?}, {dtype:?}, {lay:?}");
            // kernels take f32 too where there are any: emulated, or on a GPU
            let made = on_device(&what, device, DType::BF16, || {
                let narrow = y.zeros_like()?.to_dtype(DType::BF16)?;
                cast::assign(&narrow, &y)?;
                Ok(vec![
                    changed(&|y| accumulate::add_assign(y, &x))?,
                    changed(&|y| scale::assign(y, &by))?,
                    changed(&|y| scale::assign(y, &by.ones_like()?))?,
                    changed(&|y| soft_cap::assign(y, 15.0))?,
                    accumulate::add(&y, &lay.of(&x)?)?,
                    narrow,
                ])
            })?;
            let (x, y) = (wide(&x)?, wide(&y)?);
            let sum = (&y + x)?;
            let capped = soft_cap::reference(&y, 15.0)?;
            let wanted = [&sum, &y.broadcast_mul(&factor)?, &y, &capped, &sum, &y];
            for (i, (made, wanted)) in made.iter().zip(wanted).enumerate() {
                let allowed = if i == 5 { tolerance(DType::BF16) / 2.0 } else { tolerance(dtype) };
                assert_close(&format!("change {i}, {what}"), made, wanted, allowed)?;
            }
        }
    }
    Ok(())
}
