//! Norm, mix, rotary, gate and activation, against their references.

use crate::oracle::{check_op, test_devices, uniform};
use candle_core::{Device, Result, Tensor};
use kernels::{accumulate, gated_value, mix, relu_squared, rms_norm, rope_norm};

test_devices!(
    rms_norm_matches_its_reference,
    mix_matches_its_reference,
    mix_takes_one_element_of_a_longer_vector,
    rope_norm_matches_its_reference,
    gated_value_matches_its_reference,
    relu_squared_matches_its_reference,
    add_assign_adds_where_the_view_lies,
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

fn mix_takes_one_element_of_a_longer_vector(device: &Device) -> Result<()> {
    let x = Tensor::new(&[1f32, 2.0], device)?;
    let scalars = Tensor::new(&[0f32, 10.0, 100.0], device)?;
    let (r, z) = (scalars.narrow(0, 1, 1)?, scalars.narrow(0, 2, 1)?);
    let y = mix::forward(&x, &x, &r, &z)?;
    // 10·x + 100·x, by hand
    assert_eq!(y.to_vec1::<f32>()?, [110.0, 220.0]);
    Ok(())
}

fn rope_norm_matches_its_reference(device: &Device) -> Result<()> {
    for (b, t, h, d) in [(1, 1, 1, 2), (2, 7, 3, 10), (2, 5, 2, 64), (1, 37, 1, 128)] {
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
    for (b, t, h, d) in [(1, 1, 1, 1), (2, 7, 3, 10), (2, 33, 2, 64)] {
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
