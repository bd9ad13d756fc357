//! Every operation's gradient is the slope of its value: central differences in f64.

use candle_core::{DType, Result};
use tape::{Node, Param, Tape, check};

use crate::{normal, param};

const TOLERANCE: f64 = 1e-6;

/// Weighs the elements of `y` differently, so that a permuted gradient does not pass.
fn weigh(y: &Node) -> Result<Node> {
    let weights = normal(y.dims(), 99)?;
    (y * &weights)?.sum_all()
}

fn agrees(params: &[&Param], f: impl Fn(&Tape) -> Result<Node>) {
    check::gradients(params, TOLERANCE, |tape| weigh(&f(tape)?)).unwrap();
}

#[test]
fn arithmetic_gradients_agree_with_finite_differences() {
    let (a, b) = (param("a", &[3, 4], 1), param("b", &[3, 4], 2));
    agrees(&[&a, &b], |t| &t.param(&a) + &b);
    agrees(&[&a, &b], |t| &t.param(&a) - &b);
    agrees(&[&a, &b], |t| &t.param(&a) * &b);
    agrees(&[&a, &b], |t| t.param(&a) / (b_away_from_zero(t, &b))?);
    agrees(&[&a], |t| ((&t.param(&a) * 3.0)? - 1.0)? / 2.0);
    agrees(&[&a], |t| -&t.param(&a));
    agrees(&[&a], |t| t.param(&a).sqr());
    agrees(&[&a], |t| t.param(&a).tanh());
    agrees(&[&a], |t| t.param(&a).sigmoid());
}

fn b_away_from_zero(t: &Tape, b: &Param) -> Result<Node> {
    t.param(b).sqr()? + 0.5
}

#[test]
fn broadcast_gradients_are_summed_back_to_the_input_shape() {
    let (a, row, column, one) = (
        param("a", &[2, 3, 4], 1),
        param("row", &[4], 2),
        param("column", &[3, 1], 3),
        param("one", &[1], 4),
    );
    agrees(&[&a, &row, &column, &one], |t| {
        let sum = (&(&t.param(&a) * &row)? + &column)?;
        &(&sum - &row)? * &one
    });
    agrees(&[&a, &row], |t| t.param(&row) * &a);
    agrees(&[&a, &one], |t| t.param(&a) / ((&t.param(&one).sqr()? + 1.0)?));
}

#[test]
fn shape_gradients_agree_with_finite_differences() {
    let (a, b) = (param("a", &[2, 3, 4], 1), param("b", &[2, 2, 4], 2));
    agrees(&[&a], |t| t.param(&a).reshape((6, ()))?.tanh());
    agrees(&[&a], |t| t.param(&a).narrow(1, 1, 2)?.sqr());
    agrees(&[&a], |t| t.param(&a).transpose(1, 2)?.sqr());
    agrees(&[&a], |t| t.param(&a).transpose(0, 2)?.contiguous()?.sqr());
    agrees(&[&a], |t| t.param(&a).transpose(0, 1)?.reshape((4, 6))?.sqr());
    agrees(&[&a, &b], |t| Node::cat(&[&t.param(&a), &t.param(&b)], 1)?.tanh());
    agrees(&[&a], |t| t.param(&a).sum_last()?.sqr());
    agrees(&[&a], |t| t.param(&a).mean_all()?.sqr());
    agrees(&[&a], |t| t.param(&a).sqr()?.to_dtype(DType::F64));
}

#[test]
fn matrix_product_gradients_agree_with_finite_differences() {
    let (a, b, w) = (param("a", &[2, 3, 4], 1), param("b", &[2, 4, 5], 2), param("w", &[6, 4], 3));
    agrees(&[&a, &b], |t| t.param(&a).matmul(&b));
    agrees(&[&a], |t| t.param(&a).transpose(1, 2)?.matmul(&a));
    agrees(&[&a, &w], |t| t.param(&a).linear(&w));
    // a weight that is itself computed
    agrees(&[&a, &w], |t| t.param(&a).linear(&(&t.param(&w) * 2.0)?));
}

#[test]
fn a_wrong_backward_is_reported_with_parameter_and_element() {
    let a = param("a", &[3], 1);
    let error = check::gradients(&[&a], TOLERANCE, |t| {
        let x = t.param(&a);
        let v = x.value().clone();
        // claims 3x² for the slope of x²
        let y = t.record("wrong", &[&x], v.sqr()?, move |g| Ok(vec![Some(((v.sqr()? * 3.0)? * g)?)]))?;
        y.sum_all()
    })
    .unwrap_err()
    .to_string();
    assert!(error.contains("gradient of `a` differs at element"), "{error}");
}
