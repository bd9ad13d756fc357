//! Cross-entropy. Oracle: −ln softmax in f64, term by term.

use candle_core::{DType, Device, Tensor};
use prepare::cross_entropy::{all_finite, nats};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

fn oracle(logits: &[f32], target: usize) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|&v| (f64::from(v) - f64::from(max)).exp()).sum();
    f64::from(max) + total.ln() - f64::from(logits[target])
}

/// Random logits (B, T, V) of a given size, and targets.
fn case(b: usize, t: usize, v: usize, size: f32) -> (Vec<f32>, Vec<u32>) {
    let mut rng = StdRng::seed_from_u64((b * t * v) as u64);
    let logits = (0..b * t * v).map(|_| rng.random_range(-size..size)).collect();
    let targets = (0..b * t).map(|_| rng.random_range(0..v as u32)).collect();
    (logits, targets)
}

#[test]
fn nats_match_f64_on_odd_sizes_and_large_logits() {
    for (b, t, v, size) in
        [(2, 3, 8192, 15.0), (3, 5, 8191, 1.0), (1, 7, 17, 4.0), (2, 2, 1, 9.0), (2, 3, 100, 1e4)]
    {
        let (logits, targets) = case(b, t, v, size);
        let right: Vec<f64> =
            logits.chunks(v).zip(&targets).map(|(row, &y)| oracle(row, y as usize)).collect();
        let tensor = Tensor::from_vec(logits, (b, t, v), &Device::Cpu).unwrap();
        for (ours, right) in nats(&tensor, &targets).unwrap().unwrap().iter().zip(&right) {
            let error = (f64::from(*ours) - right).abs() / right.abs().max(1.0);
            assert!(error < 2e-6, "({b}, {t}, {v}): {ours} is not {right}");
        }
    }
}

#[test]
fn bf16_and_strided_logits_are_read_as_they_are() {
    let (logits, targets) = case(2, 4, 33, 8.0);
    let tensor = Tensor::from_vec(logits, (2, 33, 4), &Device::Cpu).unwrap();
    let strided = tensor.to_dtype(DType::BF16).unwrap().transpose(1, 2).unwrap();
    let values = strided.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let ours = nats(&strided, &targets).unwrap().unwrap();
    for ((row, &y), ours) in values.chunks(33).zip(&targets).zip(ours) {
        assert!((f64::from(ours) - oracle(row, y as usize)).abs() < 1e-5);
    }
}

#[test]
fn one_bad_logit_anywhere_is_noticed() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 40, 50, 51, 52, 103] {
            let (mut logits, targets) = case(1, 2, 52, 3.0);
            logits[at] = bad;
            let tensor = Tensor::from_vec(logits, (1, 2, 52), &Device::Cpu).unwrap();
            assert_eq!(nats(&tensor, &targets).unwrap(), None, "{bad} at {at}");
            assert!(!all_finite(&tensor).unwrap());
        }
    }
}

#[test]
fn logits_as_large_as_f32_are_still_numbers() {
    let tensor = Tensor::from_vec(vec![f32::MAX, f32::MIN, f32::MAX], (1, 1, 3), &Device::Cpu).unwrap();
    assert!(all_finite(&tensor).unwrap());
    let nats = nats(&tensor, &[0]).unwrap().unwrap();
    assert!((nats[0] - std::f32::consts::LN_2).abs() < 1e-6, "two equal logits: one bit");
}
