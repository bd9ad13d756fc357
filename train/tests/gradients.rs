//! Loss, logits and gradients agree with the second writing of the model.

use crate::train::model::Gpt;
use crate::{ids, oracle, random_model, relative_error, rng, small};
use tape::{Tape, check};

const TOLERANCE: f64 = 1e-4;

#[test]
fn loss_and_every_gradient_agree_with_an_independent_composition() {
    for kv_heads in [4, 2, 1] {
        let mut rng = rng(kv_heads as u64);
        let config = small(kv_heads);
        let model = random_model(config.clone(), &mut rng);
        let (x, y) = (ids(&mut rng, 3, 13, 50), ids(&mut rng, 3, 13, 50));

        let vars = oracle::vars(&model);
        let expected = oracle::loss(&config, &vars, &x, &y).unwrap();
        let grads = expected.backward().unwrap();

        let loss = model.loss(&Tape::checked(), &x, &y).unwrap();
        let (got, want) =
            (loss.value().to_scalar::<f32>().unwrap() as f64, expected.to_scalar::<f64>().unwrap());
        assert!((got - want).abs() / want <= TOLERANCE, "loss {got}, oracle {want}");
        loss.backward().unwrap();
        check::every_gradient(model.params()).unwrap();
        for p in model.params() {
            let error = relative_error(&p.grad().unwrap(), grads.get(&vars[p.name()]).unwrap());
            assert!(
                error <= TOLERANCE,
                "{kv_heads} key/value heads, gradient of {}: error {error:e}",
                p.name()
            );
        }
    }
}

#[test]
fn logits_agree_with_an_independent_composition() {
    let mut rng = rng(7);
    let model = random_model(small(2), &mut rng);
    let x = ids(&mut rng, 2, 14, 50);
    let vars = oracle::vars(&model);
    let expected = oracle::cap(&oracle::logits(&model.config, &vars, &x).unwrap()).unwrap();
    let logits = model.forward(&x).unwrap();
    assert_eq!(logits.dims(), [2, 14, 50]);
    let error = relative_error(&logits, &expected);
    assert!(error <= TOLERANCE, "error {error:e}");
}

#[test]
fn bf16_gives_the_same_loss_and_gradients_within_its_rounding() {
    // what a GPU computes in, on the CPU
    let mut rng = rng(11);
    let model = random_model(small(2), &mut rng);
    let half = Gpt::in_dtype(small(2), &crate::CPU, candle_core::DType::BF16, 1).unwrap();
    for (p, h) in model.params().zip(half.params()) {
        h.set(&p.master()).unwrap();
    }
    let (x, y) = (ids(&mut rng, 2, 14, 50), ids(&mut rng, 2, 14, 50));
    let mut losses = [&model, &half].map(|m| {
        let loss = m.loss(&Tape::checked(), &x, &y).unwrap();
        let value = loss.value().to_scalar::<f32>().unwrap();
        loss.backward().unwrap();
        check::every_gradient(m.params()).unwrap();
        value
    });
    assert!((losses[0] - losses[1]).abs() < 0.02 * losses[0], "{losses:?}");
    for (p, h) in model.params().zip(half.params()) {
        let wide = p.grad().unwrap().to_dtype(candle_core::DType::F64).unwrap();
        let error = relative_error(&h.grad().unwrap(), &wide);
        assert!(error < 0.1, "gradient of {}: error {error}", p.name());
    }
    // and the update runs on bf16 tables
    let mut optimizer = crate::train::optim::Optimizer::new(&half).unwrap();
    optimizer.step(0.0).unwrap();
    losses[0] = half.loss(&Tape::no_grad(), &x, &y).unwrap().value().to_scalar::<f32>().unwrap();
    assert!(losses[0] < losses[1], "one step on these rows lowers their loss: {losses:?}");
}

#[test]
fn micro_steps_add_up_to_the_gradient_of_the_whole_batch() {
    // oracle: the same rows in one pass
    let mut rng = rng(8);
    let model = random_model(small(4), &mut rng);
    let (x, y) = (ids(&mut rng, 4, 10, 50), ids(&mut rng, 4, 10, 50));
    let gradients = |model: &Gpt| -> Vec<_> {
        let wide = |p: &tape::Param| p.grad().unwrap().to_dtype(candle_core::DType::F64).unwrap();
        let grads = model.params().map(wide).collect();
        model.params().for_each(tape::Param::zero_grad);
        grads
    };
    model.loss(&Tape::new(), &x, &y).unwrap().backward().unwrap();
    let whole = gradients(&model);
    for i in [0, 2] {
        let part = |t: &candle_core::Tensor| t.narrow(0, i, 2).unwrap();
        (model.loss(&Tape::new(), &part(&x), &part(&y)).unwrap() / 2.0).unwrap().backward().unwrap();
    }
    for (a, b) in gradients(&model).iter().zip(&whole) {
        assert!(relative_error(a, b) <= TOLERANCE);
    }
}

#[test]
fn a_row_longer_than_the_context_is_refused() {
    let mut rng = rng(9);
    let model = random_model(small(4), &mut rng);
    let error = model.forward(&ids(&mut rng, 1, 15, 50)).unwrap_err().to_string();
    assert!(error.contains("15 tokens") && error.contains("14"), "{error}");
}
