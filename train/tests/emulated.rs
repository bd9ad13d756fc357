//! Training as on a GPU, in bf16 by the CUDA kernels, which are emulated: against the second writing of the model in
//! f64, and against training in f32.

use candle_core::{DType, Result, Tensor};
use emulator::Order;
use tape::{Tape, check};

use crate::train::model::{Config, Gpt};
use crate::train::optim::Optimizer;
use crate::{CPU, ids, normal, oracle, random_model, relative_error, rng};

/// Three layers, two windows, value embeddings in the first and the last; a vocabulary and rows of odd sizes.
fn config() -> Config {
    Config::with_shape(301, 71, 3, 128, 64)
}

#[test]
fn gradients_by_the_kernels_agree_with_an_independent_composition() {
    let mut rng = rng(21);
    let model = random_model(config(), &mut rng);
    let half = Gpt::in_dtype(config(), &CPU, DType::BF16, 1).unwrap();
    for (p, h) in model.params().zip(half.params()) {
        // numbers of bf16, so that the oracle has the same weights
        p.set(&p.master().to_dtype(DType::BF16).unwrap()).unwrap();
        h.set(&p.master()).unwrap();
    }
    let (x, y) = (ids(&mut rng, 2, 71, 301), ids(&mut rng, 2, 71, 301));
    let vars = oracle::vars(&model);
    let expected = oracle::loss(&config(), &vars, &x, &y).unwrap();
    let grads = expected.backward().unwrap();

    let loss = emulator::run(Order::Forward, || {
        let loss = half.loss(&Tape::checked(), &x, &y)?;
        let value = loss.value().to_scalar::<f32>()?;
        loss.backward()?;
        Result::Ok(f64::from(value))
    });
    let (loss, wanted) = (loss.unwrap(), expected.to_scalar::<f64>().unwrap());
    assert!((loss - wanted).abs() <= 2e-3 * wanted, "loss {loss}, oracle {wanted}");
    check::every_gradient(half.params()).unwrap();
    let size = |t: &Tensor| t.sqr().unwrap().sum_all().unwrap().sqrt().unwrap().to_scalar::<f64>().unwrap();
    let residual = size(grads.get(&vars["residual"]).unwrap());
    for p in half.params() {
        let wanted = grads.get(&vars[p.name()]).unwrap();
        let error = relative_error(&p.grad().unwrap(), wanted);
        // the weights of stream and shortcut: sums over the same gradient of all tokens, most of which cancels
        let (error, allowed) =
            if p.dims().len() == 1 { (error * size(wanted) / residual, 0.1) } else { (error, 0.04) };
        assert!(error <= allowed, "gradient of {}: error {error:e}", p.name());
    }
}

/// Losses of ten steps, each on two micro-batches.
fn curve(compute: DType) -> Result<Vec<f64>> {
    let mut rng = rng(22);
    let model = Gpt::in_dtype(config(), &CPU, compute, 1)?;
    // with projections of zero the weights of stream and shortcut would change nothing: their gradients would be what
    // rounding leaves, which Adam makes steps of full size from
    for p in model.params().filter(|p| [".out", ".down"].iter().any(|end| p.name().ends_with(end))) {
        p.set(&normal(&mut rng, &p.dims(), 0.1))?;
    }
    let mut optimizer = Optimizer::new(&model)?;
    // 31 tokens over and over, so that there is something to learn
    let phrase = ids(&mut rng, 4, 31, 301);
    let rows = Tensor::cat(&[&phrase; 3], 1)?;
    let step = |step: usize| {
        let mut sum = 0.0;
        for first in [0, 2] {
            let part = |from| rows.narrow(0, first, 2)?.narrow(1, from, 71)?.contiguous();
            let loss = (model.loss(&Tape::new(), &part(step)?, &part(step + 1)?)? / 2.0)?;
            sum += f64::from(loss.value().to_scalar::<f32>()?);
            loss.backward()?;
        }
        optimizer.step(step as f64 / 10.0)?;
        Ok(sum)
    };
    (0..10).map(step).collect()
}

#[test]
fn ten_steps_by_the_kernels_follow_training_in_f32() {
    let wide = curve(DType::F32).unwrap();
    let half = emulator::run(Order::Random(3), || curve(DType::BF16)).unwrap();
    assert!(wide[9] < 0.1 * wide[0], "f32 learns: {wide:?}");
    for (step, (wide, half)) in wide.iter().zip(&half).enumerate() {
        assert!((half - wide).abs() <= 0.01 * wide, "step {step}: {half}, in f32 {wide}");
    }
}
