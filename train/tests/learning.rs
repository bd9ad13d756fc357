//! Training learns, and the knobs may move.

use prepare::profile::Profile;
use tape::Tape;

use crate::train::model::{Config, Gpt};
use crate::train::optim::Optimizer;
use crate::train::{micro_batch, rows_in};
use crate::{CPU, ids, rng};

/// Losses of `steps` steps on one batch of a repeated phrase.
fn train(config: Config, steps: usize, seed: u64) -> Vec<f32> {
    let (vocab, time) = (config.vocab, config.context);
    let model = Gpt::new(config, &CPU, seed).unwrap();
    let mut optimizer = Optimizer::new(&model).unwrap();
    // 31 tokens over and over: what follows is certain once a phrase has been seen
    let phrase = ids(&mut rng(5), 4, 31, vocab);
    let rows =
        candle_core::Tensor::cat(&vec![&phrase; time / 31 + 1], 1).unwrap().narrow(1, 0, time).unwrap();
    let (x, y) = (rows.narrow(1, 0, time - 1).unwrap(), rows.narrow(1, 1, time - 1).unwrap());
    let (x, y) = (x.contiguous().unwrap(), y.contiguous().unwrap());
    let step = |i: usize| {
        let loss = model.loss(&Tape::new(), &x, &y).unwrap();
        let value = loss.value().to_scalar::<f32>().unwrap();
        loss.backward().unwrap();
        optimizer.step(i as f64 / steps as f64).unwrap();
        value
    };
    (0..steps).map(step).collect()
}

fn tiny() -> Config {
    Config::with_shape(64, 64, 2, 64, 32)
}

#[test]
fn thirty_steps_on_a_tiny_corpus_bring_the_loss_under_a_tenth() {
    let losses = train(tiny(), 30, 1);
    assert!((losses[0] - 64f32.ln()).abs() < 0.05, "untrained, all ids are about as likely: {losses:?}");
    assert!(losses[29] < 0.42, "{losses:?}");
}

#[test]
fn the_same_seed_trains_the_same_model() {
    assert_eq!(train(tiny(), 4, 3), train(tiny(), 4, 3));
    assert_ne!(train(tiny(), 4, 3), train(tiny(), 4, 4));
}

#[test]
fn any_depth_and_width_trains() {
    // widths that are no multiple of the head, one layer, more heads than channels allow
    for (depth, width, head_dim) in [(1, 16, 16), (3, 40, 16), (2, 33, 64), (5, 96, 32)] {
        let losses = train(Config::with_shape(64, 32, depth, width, head_dim), 3, 1);
        assert!(losses[2] < losses[0], "depth {depth}, width {width}: {losses:?}");
    }
}

#[test]
fn the_full_model_has_the_published_number_of_parameters() {
    // 50.3 M parameters; 39.8 % of 989.5 TFLOP/s at 1.65 M tokens/s
    let model = Gpt::new(Config::new(Profile::Full), &CPU, 1).unwrap();
    let c = &model.config;
    assert_eq!((c.width, c.depth(), c.heads()), (512, 8, 4));
    let about = model.describe();
    assert_eq!(about.num_params, 50_332_176);
    assert!((about.flops_per_token * 1.65e6 / 989.5e12 - 0.398).abs() < 0.002, "{about:?}");
    assert_eq!(c.windows, [1024, 1024, 1024, 2048, 1024, 1024, 1024, 2048]);
}

#[test]
fn a_micro_batch_that_does_not_fit_shrinks_and_a_step_keeps_its_rows() {
    for (step_rows, wanted, fitting) in
        [(256, 128, 200), (256, 128, 60), (256, 128, 0), (12, 16, 7), (7, 4, 9)]
    {
        let (rows, steps) = micro_batch(step_rows, wanted, fitting);
        assert_eq!(rows * steps, step_rows);
        assert!(rows <= wanted && rows <= fitting.max(1), "{rows} rows of {wanted}, {fitting} fit");
    }
    assert_eq!(micro_batch(256, 128, 200), (128, 2), "what fits is taken whole");
}

#[test]
fn a_card_of_24_gb_takes_fewer_rows_than_one_of_80() {
    // in f32, twice what a GPU's bf16 takes
    let c = Config::new(Profile::Full);
    let [small, large] = [24, 80].map(|gb| rows_in(&c, &CPU, gb << 30));
    assert!((30..=60).contains(&small) && (120..=200).contains(&large), "{small}, {large}");
}
