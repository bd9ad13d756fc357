//! Tests of the tape. Oracles: finite differences in f64, and candle's own autograd.

mod autograd;
mod bridge;
mod layers;
mod ops;

use candle_core::{Device, Result, Tensor};
use tape::Param;

/// A parameter of independent normal f64 values; the same for one seed.
fn param(name: &str, dims: &[usize], seed: u64) -> Param {
    Param::new(name, normal(dims, seed).unwrap()).unwrap()
}

fn normal(dims: &[usize], seed: u64) -> Result<Tensor> {
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    let mut rng = StdRng::seed_from_u64(seed);
    // the sum of twelve uniform numbers: near enough to normal, and no further dependency
    let draw = |_| (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
    let values: Vec<f64> = (0..dims.iter().product()).map(draw).collect();
    Tensor::from_vec(values, dims, &Device::Cpu)
}
