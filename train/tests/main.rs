//! Tests of the contestant. Oracle: the model and its update written a second time, in plain candle ops in
//! f64 (`oracle.rs`), from the published description.

#[path = "../src/main.rs"]
#[allow(dead_code, reason = "a binary's sources, its `main` among them")]
mod train;

mod checkpoint;
mod emulated;
mod gradients;
mod learning;
mod oracle;
mod update;

use candle_core::{Device, Result, Tensor};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use train::model::{Config, Gpt};

const CPU: Device = Device::Cpu;

/// Three layers of which the last two differ in window and the first and last have value embeddings; sizes
/// that are no powers of two.
fn small(kv_heads: usize) -> Config {
    Config { vocab: 50, context: 14, width: 48, head_dim: 12, kv_heads, windows: vec![5, 5, 14] }
}

/// (B, T) ids below `vocab`.
fn ids(rng: &mut StdRng, rows: usize, time: usize, vocab: usize) -> Tensor {
    let ids: Vec<u32> = (0..rows * time).map(|_| rng.random_range(0..vocab as u32)).collect();
    Tensor::from_vec(ids, (rows, time), &CPU).unwrap()
}

fn normal(rng: &mut StdRng, dims: &[usize], std: f32) -> Tensor {
    use rand_distr::StandardNormal;
    let draw = |_| std * rng.sample::<f32, _>(StandardNormal);
    Tensor::from_vec((0..dims.iter().product()).map(draw).collect::<Vec<_>>(), dims, &CPU).unwrap()
}

/// A model all of whose weights are random: projections and gates that start at zero would hide errors.
fn random_model(config: Config, rng: &mut StdRng) -> Gpt {
    let model = Gpt::new(config, &CPU, 1).unwrap();
    for p in model.params() {
        let std = if p.dims().len() == 1 { 0.7 } else { 0.3 };
        p.set(&normal(rng, &p.dims(), std)).unwrap();
    }
    model
}

fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// ‖a − b‖ / ‖b‖ in f64; b is the oracle's.
fn relative_error(a: &Tensor, b: &Tensor) -> f64 {
    let norm = |t: Result<Tensor>| -> Result<f64> { t?.sqr()?.sum_all()?.sqrt()?.to_scalar() };
    let a = a.to_dtype(candle_core::DType::F64).unwrap();
    norm(a - b).unwrap() / norm(Ok(b.clone())).unwrap()
}
