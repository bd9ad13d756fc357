//! Products with weights and their accumulating gradients, against candle's matmul in f64.

use crate::oracle::{Lay, assert_close, check_op, check_sums, test_devices, tolerance, uniform};
use candle_core::{DType, Device, Result, Tensor};
use kernels::linear;

test_devices!(
    linear_matches_its_reference,
    the_input_gradient_is_added_to_the_sum_it_is_given,
    gradients_are_added_to_what_is_there,
);

const SIZES: [(usize, usize, usize); 4] = [(1, 1, 1), (3, 5, 7), (33, 64, 17), (130, 65, 256)];

fn linear_matches_its_reference(device: &Device) -> Result<()> {
    for (rows, inner, out) in SIZES {
        check_op(
            "linear",
            device,
            &[uniform(&[2, rows, inner], 1), uniform(&[out, inner], 2)],
            |t| linear::reference(&t[0], &t[1]),
            |t| linear::forward(&t[0], &t[1]),
            |t, dy| Ok(vec![linear::backward_input(dy, &t[1], None)?, linear::backward_weight(&t[0], dy)?]),
        )?;
    }
    Ok(())
}

fn the_input_gradient_is_added_to_the_sum_it_is_given(device: &Device) -> Result<()> {
    for (rows, inner, out) in [(3, 5, 7), (33, 64, 17)] {
        let inputs = [uniform(&[2, rows, out], 1), uniform(&[out, inner], 2)];
        check_sums("linear", device, &inputs, |t, [sum]| Ok([linear::backward_input(&t[0], &t[1], sum)?]))?;
    }
    Ok(())
}

/// c + a·b in f64.
fn sum(c: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let wide = |t: &Tensor| t.to_dtype(DType::F64)?.contiguous();
    wide(c)? + wide(a)?.matmul(&wide(b)?)?
}

fn gradients_are_added_to_what_is_there(device: &Device) -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::F16] {
        for lay in [Lay::Plain, Lay::Offset, Lay::Gaps, Lay::Swapped] {
            for (rows, inner, out) in SIZES {
                let at = |shape: &[usize], seed| uniform(shape, seed).to_dtype(dtype)?.to_device(device);
                let (x, dw, dy) = (at(&[rows, inner], 1)?, at(&[out, inner], 2)?, at(&[rows, out], 3)?);
                let wanted = sum(&dw, &dy.t()?, &x)?;
                linear::add_backward_weight(&dw, &lay.of(&x)?, &lay.of(&dy)?)?;
                assert_close("dw", &dw, &wanted, tolerance(dtype))?;
            }
        }
    }
    Ok(())
}
