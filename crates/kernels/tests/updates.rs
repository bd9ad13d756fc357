//! AdamW and Muon, ten steps, against the same formulas in scalar f64 code.

use crate::oracle::{assert_close, test_devices, uniform};
use candle_core::{DType, Device, Result, Tensor};
use kernels::adamw::{self, AdamW};
use kernels::muon::{self, Muon};

test_devices!(
    ten_adamw_steps_match_scalar_code,
    ten_muon_steps_match_scalar_code,
    a_zero_gradient_leaves_muon_finite,
);

type Rows = Vec<Vec<f64>>;

fn ten_adamw_steps_match_scalar_code(device: &Device) -> Result<()> {
    for (dtype, allowed) in [(DType::F32, 2e-6), (DType::F64, 1e-13)] {
        let shape = [37, 129];
        let zeros = || Tensor::zeros(&shape[..], dtype, device);
        let w = uniform(&shape, 1).to_dtype(dtype)?.to_device(device)?;
        let (m, v) = (zeros()?, zeros()?);
        let mut expected: Vec<[f64; 3]> = w
            .to_dtype(DType::F64)?
            .flatten_all()?
            .to_vec1()?
            .into_iter()
            .map(|w: f64| [w, 0.0, 0.0])
            .collect();
        for t in 1..=10 {
            let with =
                AdamW { lr: 0.01, beta1: 0.8, beta2: 0.95, eps: 1e-10, weight_decay: 0.1, step: t as u32 };
            let g = uniform(&shape, 10 + t).to_dtype(dtype)?.to_device(device)?;
            for (state, g) in
                expected.iter_mut().zip(g.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?)
            {
                let [w, m, v] = state;
                *w -= 0.01 * 0.1 * *w;
                *m = 0.8 * *m + 0.2 * g;
                *v = 0.95 * *v + 0.05 * g * g;
                let (m_hat, v_hat) =
                    (*m / (1.0 - 0.8f64.powi(t as i32)), *v / (1.0 - 0.95f64.powi(t as i32)));
                *w -= 0.01 * m_hat / (v_hat.sqrt() + 1e-10);
            }
            adamw::step(&w, &g, &m, &v, &with)?;
        }
        for (i, t) in [&w, &m, &v].into_iter().enumerate() {
            let wanted = Tensor::from_vec(
                expected.iter().map(|s| s[i]).collect::<Vec<_>>(),
                &shape[..],
                &Device::Cpu,
            )?;
            assert_close(["w", "m", "v"][i], t, &wanted, allowed)?;
        }
    }
    Ok(())
}

fn multiply(a: &Rows, b: &Rows) -> Rows {
    let cell = |row: &Vec<f64>, j: usize| row.iter().zip(b).map(|(x, b)| x * b[j]).sum();
    a.iter().map(|row| (0..b[0].len()).map(|j| cell(row, j)).collect()).collect()
}

fn transpose(a: &Rows) -> Rows {
    (0..a[0].len()).map(|j| a.iter().map(|row| row[j]).collect()).collect()
}

fn squares(a: &Rows) -> f64 {
    a.iter().flatten().map(|x| x * x).sum()
}

/// One weight's state in scalar code: weight, moment, second moment.
struct Scalar {
    w: Rows,
    moment: Rows,
    second: Vec<f64>,
}

impl Scalar {
    /// The step as the papers write it, for one matrix.
    fn step(&mut self, g: &Rows, with: &Muon) {
        let (rows, cols) = (g.len(), g[0].len());
        let mut x = g.clone();
        for i in 0..rows {
            for j in 0..cols {
                self.moment[i][j] += (1.0 - with.momentum) * (g[i][j] - self.moment[i][j]);
                x[i][j] += with.momentum * (self.moment[i][j] - g[i][j]);
            }
        }
        let norm = squares(&x).sqrt() * 1.02 + 1e-6;
        x.iter_mut().flatten().for_each(|x| *x /= norm);
        // always by the smaller Gram matrix, tall matrices on their side: the same polynomial of X
        let tall = rows > cols;
        let mut y = if tall { transpose(&x) } else { x };
        for (a, b, c) in muon::COEFFICIENTS {
            let gram = multiply(&y, &transpose(&y));
            let (gy, g2y) = (multiply(&gram, &y), multiply(&gram, &multiply(&gram, &y)));
            for (i, row) in y.iter_mut().enumerate() {
                for (j, y) in row.iter_mut().enumerate() {
                    *y = a * *y + b * gy[i][j] + c * g2y[i][j];
                }
            }
        }
        let mut x = if tall { transpose(&y) } else { y };
        let lines = if rows >= cols { x.clone() } else { transpose(&x) };
        let before = squares(&x).sqrt();
        for (second, line) in self.second.iter_mut().zip(&lines) {
            let mean = line.iter().map(|x| x * x).sum::<f64>() / line.len() as f64;
            *second = with.beta2 * *second + (1.0 - with.beta2) * mean;
        }
        for (i, row) in x.iter_mut().enumerate() {
            for (j, x) in row.iter_mut().enumerate() {
                *x /= self.second[if rows >= cols { i } else { j }].max(1e-10).sqrt();
            }
        }
        let after = squares(&x).sqrt();
        let lr = with.lr * (rows as f64 / cols as f64).max(1.0).sqrt();
        for i in 0..rows {
            for j in 0..cols {
                let (x, w) = (x[i][j] * before / after, self.w[i][j]);
                let decay = if x * w >= 0.0 { with.weight_decay * w } else { 0.0 };
                self.w[i][j] -= lr * (x + decay);
            }
        }
    }
}

fn ten_muon_steps_match_scalar_code(device: &Device) -> Result<()> {
    let with = Muon { lr: 0.04, momentum: 0.9, beta2: 0.95, weight_decay: 0.2 };
    for (rows, cols) in [(16, 16), (33, 12), (12, 33), (2, 32), (1, 5), (5, 1)] {
        for (dtype, allowed) in [(DType::F32, 2e-4), (DType::F64, 1e-11)] {
            let n = 3;
            let at = |seed: u64| -> Result<Vec<Tensor>> {
                (0..n).map(|i| uniform(&[rows, cols], seed + i).to_dtype(dtype)?.to_device(device)).collect()
            };
            let exact = |t: &Tensor| t.to_dtype(DType::F64)?.to_vec2::<f64>();
            let weights = at(1)?;
            let moment = Tensor::zeros((n as usize, rows, cols), dtype, device)?;
            let second = Tensor::zeros(muon::second_moment_shape(n as usize, rows, cols), dtype, device)?;
            let mut scalars = Vec::new();
            for w in &weights {
                let zeros = vec![vec![0.0; cols]; rows];
                scalars.push(Scalar { w: exact(w)?, moment: zeros, second: vec![0.0; rows.max(cols)] });
            }
            for step in 1..=10 {
                let grads = at(100 * step)?;
                for (scalar, g) in scalars.iter_mut().zip(&grads) {
                    scalar.step(&exact(g)?, &with);
                }
                let (w, g): (Vec<_>, Vec<_>) = (weights.iter().collect(), grads.iter().collect());
                muon::step(&w, &g, &moment, &second, &with)?;
            }
            let what = format!("muon {rows}×{cols} {dtype:?}");
            for (i, (w, scalar)) in weights.iter().zip(&scalars).enumerate() {
                assert_close(&what, w, &Tensor::new(scalar.w.clone(), &Device::Cpu)?, allowed)?;
                let wanted = Tensor::new(scalar.moment.clone(), &Device::Cpu)?;
                assert_close(&what, &moment.get(i)?, &wanted, 1e-6)?;
                let wanted = Tensor::new(scalar.second.clone(), &Device::Cpu)?;
                assert_close(&what, &second.get(i)?.flatten_all()?, &wanted, allowed)?;
            }
        }
    }
    Ok(())
}

fn a_zero_gradient_leaves_muon_finite(device: &Device) -> Result<()> {
    let w = uniform(&[8, 8], 1).to_dtype(DType::F32)?.to_device(device)?;
    let before = w.copy()?;
    let g = w.zeros_like()?;
    let moment = Tensor::zeros((1, 8, 8), DType::F32, device)?;
    let second = Tensor::zeros((1, 8, 1), DType::F32, device)?;
    let with = Muon { lr: 0.04, momentum: 0.9, beta2: 0.95, weight_decay: 0.0 };
    muon::step(&[&w], &[&g], &moment, &second, &with)?;
    assert_close("w", &w, &before.to_dtype(DType::F64)?, 0.0)
}
