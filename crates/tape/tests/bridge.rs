//! The bridge to candle's autograd, and what it catches.

use candle_core::{D, DType, Result, Tensor};
use tape::{Param, Tape, check};

use crate::{normal, param};

#[test]
fn candle_expressions_have_their_gradient() {
    // oracle: finite differences in f64
    let (a, b) = (param("a", &[3, 4], 1), param("b", &[4, 5], 2));
    let constant = normal(&[3, 5], 3).unwrap();
    check::gradients(&[&a, &b], 1e-6, |t| {
        let y = t.candle(&[&t.param(&a), &t.param(&b)], |t| {
            let z = t[0].matmul(&t[1])?;
            &candle_nn::ops::softmax(&z, D::Minus1)? * &constant
        })?;
        y.candle(|y| y.gelu_erf())?.sum_all()
    })
    .unwrap();
}

#[test]
fn a_constant_input_needs_no_gradient() {
    let a = param("a", &[3], 1);
    let t = Tape::checked();
    let mask = t.constant(normal(&[3], 2).unwrap());
    let y = t.candle(&[&t.param(&a), &mask, &t.param(&a).detach()], |t| (&t[0] * &t[1])? * &t[2]).unwrap();
    y.sum_all().unwrap().backward().unwrap();
    assert!(a.grad().is_some());
}

fn f32_param(dims: &[usize]) -> Param {
    Param::new("a", normal(dims, 1).unwrap().to_dtype(DType::F32).unwrap()).unwrap()
}

/// Backward of Σ weights·f(a) on a tape that checks.
fn checked(a: &Param, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
    let t = Tape::checked();
    let y = t.param(a).candle(f)?;
    let weights = normal(y.dims(), 7)?.to_dtype(DType::F32)?;
    (&y * &weights)?.sum_all()?.backward()
}

#[test]
fn an_expression_that_cuts_the_gradient_is_an_error() {
    let a = f32_param(&[3, 4]);
    let error = checked(&a, candle_nn::ops::softmax_last_dim).unwrap_err().to_string();
    assert!(error.contains("input 0 no gradient") && error.contains("softmax_last_dim"), "{error}");
}

#[test]
fn an_expression_that_cuts_a_part_of_the_gradient_is_an_error() {
    // candle gives x + softmax_last_dim(x) the gradient of x alone
    let a = f32_param(&[6, 8]);
    let error = checked(&a, |x| x + candle_nn::ops::softmax_last_dim(&(x * 3.0)?)?).unwrap_err().to_string();
    assert!(error.contains("disagrees with finite differences"), "{error}");
    let gain = Tensor::ones(8, DType::F32, a.master().device()).unwrap();
    let error = checked(&a, |x| x + candle_nn::ops::rms_norm(x, &gain, 1e-6)?).unwrap_err().to_string();
    assert!(error.contains("disagrees with finite differences"), "{error}");
}

#[test]
fn a_sound_expression_passes_the_check() {
    let a = f32_param(&[6, 8]);
    for _ in 0..20 {
        checked(&a, |x| x.relu()? + x.gelu()?).unwrap();
        checked(&a, |x| x + candle_nn::ops::softmax(x, D::Minus1)?).unwrap();
        checked(&a, |x| x.narrow(1, 0, 4)?.contiguous()?.matmul(&x.narrow(1, 4, 4)?.t()?.contiguous()?))
            .unwrap();
        checked(&a, |x| x.sum_all()?.tanh()).unwrap();
        // dropout: another mask each time, which differences cannot judge
        checked(&a, |x| candle_nn::ops::dropout(x, 0.5)).unwrap();
    }
}
