//! What the emulator finds. The oracle is the intact kernel, which `kernels` holds against f64.

mod referee;

use candle_core::{DType, Device, Result, Tensor};
use kernels::muon::{self, Muon};
use kernels::{embedding, mix};
use std::process::Command;

/// Values that differ from one another, without a random source.
fn values(shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_vec(data, shape, &Device::Cpu)?.to_dtype(DType::BF16)
}

/// Digits of all values, and runs of tokens that cross the edges of blocks' work, one of them long.
fn embedding() -> Result<Vec<u32>> {
    let ids: Vec<u32> = (0..3000).map(|i| if i % 3 == 0 { 5 } else { (i * 7919) % 40_000 }).collect();
    let dw = Tensor::zeros((40_000, 2), DType::F32, &Device::Cpu)?;
    embedding::add_backward(&dw, &Tensor::new(ids, &Device::Cpu)?, &values(&[3000, 2])?)?;
    bits(&[dw])
}

/// Two tall matrices, then two wide ones.
fn muon() -> Result<Vec<u32>> {
    let mut changed = Vec::new();
    for (rows, cols) in [(80, 30), (30, 80)] {
        let single = |by: f64| values(&[rows, cols])?.to_dtype(DType::F32)?.affine(by, 0.1);
        let update = |by: f64| Ok(muon::Update { w: single(by)?, g: single(-2.0 * by)?, copy: None });
        let updates = [1.0, 3.0].map(update).into_iter().collect::<Result<Vec<_>>>()?;
        let moment = Tensor::zeros((2, rows, cols), DType::F32, &Device::Cpu)?;
        let second = muon::second_moment_shape(2, rows, cols);
        let second = Tensor::zeros(second, DType::F32, &Device::Cpu)?;
        let with = Muon { lr: 0.1, momentum: 0.9, beta2: 0.9, weight_decay: 0.1 };
        muon::step(&updates, &moment, &second, &with)?;
        changed.extend(updates.into_iter().map(|u| u.w).chain([moment, second]));
    }
    bits(&changed)
}

fn mix() -> Result<Vec<u32>> {
    let (x, x0, dy) = (values(&[40_000])?, (values(&[40_000])? * 0.5)?, values(&[40_000])?.affine(2.0, 1.0)?);
    let (r, z) = (Tensor::new(1f32, &Device::Cpu)?, Tensor::new(0.1f32, &Device::Cpu)?);
    let made = mix::backward(&x, &x0, &r, &z, &dy, [None, None])?;
    bits(&[made.r, made.z])
}

fn bits(made: &[Tensor]) -> Result<Vec<u32>> {
    let of = |t: &Tensor| t.flatten_all()?.to_vec1::<f32>();
    let all: Vec<Vec<f32>> = made.iter().map(of).collect::<Result<_>>()?;
    Ok(all.into_iter().flatten().map(f32::to_bits).collect())
}

/// Names the copy to a process that is to run it: one without a barrier may write anywhere, and end its process.
const COPY: &str = "EMULATOR_TEST_COPY";

const TEST: &str = "a_barrier_taken_out_of_a_kernel_shows_wherever_it_stood";

/// Panics unless the kernels that are replaced by `copy` give what the intact ones do, in every order.
fn passes_for_right(copy: &str) -> Result<()> {
    for (source, copies) in emulator::BROKEN {
        let op: fn() -> Result<Vec<u32>> = match *source {
            "embedding" => embedding,
            "mix" => mix,
            "muon" => muon,
            other => panic!("which op runs the kernels of {other}?"),
        };
        if copy.is_empty() || copies.contains(&copy) {
            let right = emulator::run(emulator::Order::Forward, op)?;
            for order in emulator::ORDERS {
                assert!(emulator::run_broken(order, copy, op)? == right, "{order:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_barrier_taken_out_of_a_kernel_shows_wherever_it_stood() -> Result<()> {
    if let Ok(copy) = std::env::var(COPY) {
        return passes_for_right(&copy);
    }
    let passes = |copy: &str| -> Result<bool> {
        let mut child = Command::new(std::env::current_exe()?);
        Ok(child.args(["--exact", TEST]).env(COPY, copy).output()?.status.success())
    };
    assert!(passes("")?, "the intact kernels do not pass");
    for (source, copies) in emulator::BROKEN {
        assert!(copies.len() > 1, "{source} has barriers");
        for copy in *copies {
            assert!(!passes(copy)?, "the kernels{copy} pass for right ones");
        }
    }
    Ok(())
}
