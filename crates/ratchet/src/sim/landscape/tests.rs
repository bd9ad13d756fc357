//! What the landscape promises, on many seeds. Values are noise-free unless a test is about noise.

use super::*;
use crate::sim::START;

const SEEDS: std::ops::Range<u64> = 0..50;

fn start() -> Settings {
    Settings::parse(START).unwrap()
}

/// Every knob's name with its value at the start.
fn knobs() -> Vec<(String, f64)> {
    let json = serde_json::to_value(start()).unwrap();
    json.as_object().unwrap().iter().map(|(name, value)| (name.clone(), value.as_f64().unwrap())).collect()
}

fn with(changes: &[(&str, f64)]) -> Settings {
    let mut json = serde_json::to_value(start()).unwrap();
    for (name, value) in changes {
        json[*name] = (*value).into();
    }
    serde_json::from_value(json).unwrap()
}

#[test]
fn the_start_is_a_plausible_baseline() {
    // Oracle: the public baseline, 0.9979 bpb with 500 million tokens and 45 GB.
    for seed in SEEDS {
        let landscape = Landscape::new(seed);
        let value = landscape.truth(&start()).unwrap();
        assert!((0.985..1.01).contains(&value), "{seed}: {value}");
        assert!((44.0..47.0).contains(&landscape.memory_gb(&start()).unwrap()));
    }
}

#[test]
fn the_best_batch_lies_below_the_start_and_a_larger_one_is_worse() {
    for seed in SEEDS {
        let landscape = Landscape::new(seed);
        let at = |exponent: i32| landscape.truth(&with(&[("STEP_TOKENS", 2f64.powi(exponent))])).unwrap();
        let best = (9..=20).min_by(|a, b| at(*a).total_cmp(&at(*b))).unwrap();
        assert!((17..=18).contains(&best), "{seed}: 2^{best}");
        assert!(at(19) - at(best) > 8.0 * SIGMA, "{seed}: worth finding");
        assert!(at(20) - at(19) > 8.0 * SIGMA, "{seed}: no trial mistakes it for a gain");
    }
}

#[test]
fn each_knob_matters() {
    let landscape = Landscape::new(1);
    for (name, value) in knobs() {
        let moved = if value == 0.0 { 0.1 } else { value * 0.5 };
        let by = landscape.truth(&with(&[(&name, moved)])).unwrap() - landscape.truth(&start()).unwrap();
        assert!(by.abs() > 1e-5, "{name}: {by}");
    }
}

#[test]
fn settings_depend_on_each_other() {
    let landscape = Landscape::new(2);
    let truth = |changes: &[(&str, f64)]| landscape.truth(&with(changes)).unwrap();
    let pairs = [
        (("MATRIX_LR", 0.02), ("STEP_TOKENS", 131_072.0)),
        (("DEPTH", 6.0), ("ASPECT", 48.0)),
        (("BETA2", 0.99), ("STEP_TOKENS", 131_072.0)),
        (("MATRIX_DECAY", 0.1), ("MATRIX_LR", 0.02)),
        (("MICRO_ROWS", 16.0), ("STEP_TOKENS", 16_384.0)),
        (("SHORT_WINDOW", 0.25), ("DEPTH", 6.0)),
    ];
    for (a, b) in pairs {
        let cross = truth(&[a, b]) - truth(&[a]) - truth(&[b]) + truth(&[]);
        assert!(cross.abs() > 2e-4, "{} and {}: {cross}", a.0, b.0);
    }
    let apart = [("LOGIT_CAP", 20.0), ("WARMDOWN", 0.6)];
    let cross = truth(&apart) - truth(&apart[..1]) - truth(&apart[1..]) + truth(&[]);
    assert!(cross.abs() < 1e-12, "what has nothing to do with each other");
}

#[test]
fn the_best_learning_rate_falls_with_the_batch() {
    let landscape = Landscape::new(3);
    let best = |batch: f64| {
        let rates = (0..200).map(|i| 0.005 * 40f64.powf(f64::from(i) / 199.0));
        let at = |rate: f64| landscape.truth(&with(&[("STEP_TOKENS", batch), ("MATRIX_LR", rate)])).unwrap();
        rates.min_by(|a, b| at(*a).total_cmp(&at(*b))).unwrap()
    };
    let ratio = best(524_288.0) / best(131_072.0);
    assert!((1.7..2.2).contains(&ratio), "√4 with a little of the decay's pull: {ratio}");
}

#[test]
fn memory_ends_at_a_ridge_of_rows_width_and_depth() {
    let landscape = Landscape::new(0);
    let fits = |changes: &[(&str, f64)]| landscape.truth(&with(changes)).is_ok();
    assert!(fits(&[]) && fits(&[("DEPTH", 10.0)]));
    assert!(!fits(&[("MICRO_ROWS", 128.0)]) && !fits(&[("DEPTH", 12.0)]) && !fits(&[("ASPECT", 192.0)]));
    assert!(fits(&[("DEPTH", 12.0), ("MICRO_ROWS", 32.0)]), "fewer rows make room");
    assert!(fits(&[("MICRO_ROWS", 128.0), ("STEP_TOKENS", 131_072.0)]), "no pass is larger than an update");
    let error = landscape.value(&with(&[("MICRO_ROWS", 128.0)]), 1).unwrap_err();
    assert!(error.to_string().contains("out of memory"), "{error}");
}

#[test]
fn noise_is_of_the_stated_size_and_belongs_to_settings_and_seed() {
    let landscape = Landscape::new(4);
    let truth = landscape.truth(&start()).unwrap();
    let off: Vec<f64> = (0..4000).map(|seed| landscape.value(&start(), seed).unwrap() - truth).collect();
    let mean = off.iter().sum::<f64>() / 4000.0;
    let sigma = (off.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 3999.0).sqrt();
    // standard errors: σ/√4000 and σ/√8000; four of them
    assert!(mean.abs() < 4.0 * SIGMA / 4000f64.sqrt(), "{mean}");
    assert!((sigma / SIGMA - 1.0).abs() < 4.0 / 8000f64.sqrt(), "{sigma}");
    assert_eq!(landscape.value(&start(), 7), landscape.value(&start(), 7));
    assert_ne!(landscape.value(&start(), 7), landscape.value(&start(), 8));
    let other = with(&[("DEPTH", 9.0)]);
    let luck = |s: &Settings| landscape.value(s, 7).unwrap() - landscape.truth(s).unwrap();
    assert_ne!(luck(&start()), luck(&other), "a lucky seed is lucky for one candidate only");
    let quiet = Landscape::new(4).with_sigma(0.0);
    assert_eq!(quiet.value(&start(), 7).unwrap(), truth);
}

#[test]
fn seeds_make_different_landscapes() {
    let start = start();
    let values: Vec<f64> = SEEDS.map(|seed| Landscape::new(seed).truth(&start).unwrap()).collect();
    assert!(values.windows(2).all(|pair| pair[0] != pair[1]));
}
