//! The update agrees with the second writing of it.

use std::collections::BTreeMap;

use candle_core::DType;
use tape::Tape;

use crate::train::model::Gpt;
use crate::train::optim::{Optimizer, lr_scale};
use crate::{ids, normal, oracle, random_model, relative_error, rng, small};

fn compare(model: &Gpt, vars: &oracle::Vars, tolerance: f64) {
    for p in model.params() {
        let error = relative_error(&p.master(), &vars[p.name()]);
        assert!(error <= tolerance, "{}: error {error:e}", p.name());
    }
}

#[test]
fn ten_updates_from_given_gradients_agree_with_an_independent_optimizer() {
    let mut rng = rng(1);
    let model = random_model(small(2), &mut rng);
    let vars = oracle::vars(&model);
    let (mut ours, mut theirs) = (Optimizer::new(&model).unwrap(), oracle::Update::new(&model.config));
    for step in 0..10 {
        let mut grads = BTreeMap::new();
        for p in model.params() {
            let g = normal(&mut rng, &p.dims(), 0.1);
            // a loss whose gradient is g
            let tape = Tape::new();
            (&tape.param(p) * &g).unwrap().sum_all().unwrap().backward().unwrap();
            grads.insert(p.name().to_string(), g.to_dtype(DType::F64).unwrap());
        }
        let progress = step as f64 / 10.0;
        ours.step(progress).unwrap();
        theirs.step(&vars, &grads, progress).unwrap();
        compare(&model, &vars, 1e-4);
    }
}

#[test]
fn ten_training_steps_follow_an_independent_run() {
    let mut rng = rng(2);
    let model = random_model(small(4), &mut rng);
    let vars = oracle::vars(&model);
    let (mut ours, mut theirs) = (Optimizer::new(&model).unwrap(), oracle::Update::new(&model.config));
    for step in 0..10 {
        let (x, y) = (ids(&mut rng, 2, 14, 50), ids(&mut rng, 2, 14, 50));
        let loss = model.loss(&Tape::new(), &x, &y).unwrap();
        let got = loss.value().to_scalar::<f32>().unwrap() as f64;
        loss.backward().unwrap();
        ours.step(step as f64 / 10.0).unwrap();

        let expected = oracle::loss(&model.config, &vars, &x, &y).unwrap();
        let want = expected.to_scalar::<f64>().unwrap();
        assert!((got - want).abs() / want <= 1e-3, "step {step}: loss {got}, oracle {want}");
        let store = expected.backward().unwrap();
        let grads = vars.iter().map(|(n, v)| (n.clone(), store.get(v).unwrap().clone())).collect();
        theirs.step(&vars, &grads, step as f64 / 10.0).unwrap();
    }
    // Adam divides by the root of tiny gradients: rounding shows more than in the losses
    compare(&model, &vars, 1e-2);
}

#[test]
fn learning_rates_hold_for_half_the_budget_and_end_at_zero() {
    assert_eq!([0.0, 0.3, 0.5].map(lr_scale), [1.0; 3]);
    assert!((lr_scale(0.75) - 0.5).abs() < 1e-12);
    assert_eq!([1.0, 1.1].map(lr_scale), [0.0; 2]);
}

#[test]
fn an_update_without_a_gradient_names_the_parameter() {
    let model = Gpt::new(small(4), &crate::CPU, 1).unwrap();
    let error = Optimizer::new(&model).unwrap().step(0.0).unwrap_err().to_string();
    assert!(error.contains("wte has no gradient"), "{error}");
}
