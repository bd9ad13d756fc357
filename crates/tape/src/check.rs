//! Two checks of gradients: that every parameter gets one, and that it is the slope of the loss.

use candle_core::{DType, Result, Tensor};

use crate::{Error, Node, Param, Tape};

/// Fails, naming them, when parameters have no gradient: for the first step of a run.
///
/// # Errors
/// [`Error::NoGradient`].
pub fn every_gradient<'a>(params: impl IntoIterator<Item = &'a Param>) -> Result<()> {
    let missing = params.into_iter().filter(|p| p.grad().is_none());
    let names: Vec<String> = missing.map(|p| p.name().to_string()).collect();
    if names.is_empty() { Ok(()) } else { Err(Error::NoGradient { names }.into()) }
}

/// Holds the gradients of `loss` against central differences, element by element.
///
/// `params` must be f64, with few elements: each costs two evaluations. An element passes when the two
/// values differ by at most `tolerance` (1e-6 is usual), absolutely or relatively to the larger.
///
/// ```
/// # use candle_core::{Device, Tensor};
/// # use tape::{Param, check};
/// let w = Param::new("w", Tensor::new(&[[0.3f64, -0.7], [1.1, 0.2]], &Device::Cpu)?)?;
/// let x = Tensor::new(&[[1.0f64, 2.0]], &Device::Cpu)?;
/// check::gradients(&[&w], 1e-6, |tape| tape.constant(x.clone()).linear(&w)?.tanh()?.sum_all())?;
/// # candle_core::Result::Ok(())
/// ```
///
/// # Errors
/// [`Error::Check`] for the worst element, [`Error::NoGradient`], and what `loss` returns.
pub fn gradients(params: &[&Param], tolerance: f64, loss: impl Fn(&Tape) -> Result<Node>) -> Result<()> {
    const STEP: f64 = 1e-5;
    for p in params {
        p.zero_grad();
    }
    loss(&Tape::new())?.backward()?;
    every_gradient(params.iter().copied())?;
    let at = |p: &Param, values: &[f64]| -> Result<f64> {
        p.set(&Tensor::from_slice(values, p.dims(), p.master().device())?)?;
        loss(&Tape::no_grad())?.value().flatten_all()?.to_dtype(DType::F64)?.get(0)?.to_scalar()
    };
    let mut worst: Option<(f64, Error)> = None;
    for p in params {
        let analytic: Vec<f64> = match p.grad() {
            Some(grad) => grad.flatten_all()?.to_vec1()?,
            None => Vec::new(), // cannot be: checked above
        };
        let mut values: Vec<f64> = p.master().flatten_all()?.to_vec1()?;
        for index in 0..values.len() {
            let here = values[index];
            let step = STEP * here.abs().max(1.0);
            values[index] = here + step;
            let above = at(p, &values)?;
            values[index] = here - step;
            let below = at(p, &values)?;
            values[index] = here;
            let (numeric, analytic) = ((above - below) / (2.0 * step), analytic[index]);
            let error = (numeric - analytic).abs() / numeric.abs().max(analytic.abs()).max(1.0);
            // a NaN error counts as the worst
            if !worst.as_ref().is_some_and(|(w, _)| error <= *w) {
                worst = Some((error, Error::Check { name: p.name().into(), index, analytic, numeric }));
            }
        }
        at(p, &values)?; // puts the values back
    }
    match worst {
        Some((error, report)) if error.is_nan() || error > tolerance => Err(report.into()),
        _ => Ok(()),
    }
}
