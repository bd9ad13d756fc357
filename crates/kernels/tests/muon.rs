//! Muon against the same formulas in scalar f64 code, and what the update is known to be.

use crate::oracle::{assert_close, exact, on_device, test_devices, uniform};
use candle_core::{DType, Device, Result, Tensor};
use kernels::muon::{self, Muon};
use std::slice::from_ref;

test_devices!(
    ten_muon_steps_match_scalar_code,
    the_muon_kernels_follow_scalar_code,
    the_muon_kernels_bend_singular_values_as_the_polynomial_does,
    variance_reduction_keeps_the_norm_of_the_update,
    a_zero_gradient_leaves_muon_finite,
);

type Rows = Vec<Vec<f64>>;

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
    /// How X and what it is multiplied by are rounded.
    stored: fn(f64) -> f64,
}

impl Scalar {
    fn new(w: Rows, stored: fn(f64) -> f64) -> Self {
        let (rows, cols) = (w.len(), w[0].len());
        Scalar { w, moment: vec![vec![0.0; cols]; rows], second: vec![0.0; rows.max(cols)], stored }
    }

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
        x.iter_mut().flatten().for_each(|x| *x = (self.stored)(*x / norm));
        // always by the smaller Gram matrix, tall matrices on their side: the same polynomial of X
        let tall = rows > cols;
        let mut y = if tall { transpose(&x) } else { x };
        let plus = |s: f64, x: &Rows, t: f64, y: &Rows| -> Rows {
            let line = |(x, y): (&Vec<f64>, &Vec<f64>)| {
                x.iter().zip(y).map(|(x, y)| (self.stored)(s * x + t * y)).collect()
            };
            x.iter().zip(y).map(line).collect()
        };
        for (a, b, c) in muon::COEFFICIENTS {
            let mut gram = multiply(&y, &transpose(&y));
            gram.iter_mut().flatten().for_each(|x| *x = (self.stored)(*x));
            let p = plus(b, &gram, c, &multiply(&gram, &gram));
            y = plus(a, &y, 1.0, &multiply(&p, &y));
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
            let weights = at(1)?;
            let moment = Tensor::zeros((n as usize, rows, cols), dtype, device)?;
            let second = Tensor::zeros(muon::second_moment_shape(n as usize, rows, cols), dtype, device)?;
            let mut scalars = Vec::new();
            for w in &weights {
                scalars.push(Scalar::new(rows_of(w)?, |x| x));
            }
            for step in 1..=10 {
                let grads = at(100 * step)?;
                for (scalar, g) in scalars.iter_mut().zip(&grads) {
                    scalar.step(&rows_of(g)?, &with);
                }
                muon::step(&together(&weights, &grads, &[]), &moment, &second, &with)?;
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

/// The nearest bf16, ties to even.
fn rounded(x: f64) -> f64 {
    let bits = (x as f32).to_bits();
    f64::from(f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000))
}

fn rows_of(t: &Tensor) -> Result<Rows> {
    t.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.to_vec2()
}

/// Weights, gradients and, where there are any, copies as updates.
fn together(weights: &[Tensor], grads: &[Tensor], copies: &[Tensor]) -> Vec<muon::Update> {
    let one = |(i, w): (usize, &Tensor)| {
        let (g, copy) = (grads[i].clone(), copies.get(i).cloned());
        muon::Update { w: w.clone(), g, copy }
    };
    weights.iter().enumerate().map(one).collect()
}

/// ‖a − b‖ / ‖b‖.
fn distance(a: &Rows, b: &Rows) -> f64 {
    let off = a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    (off / squares(b)).sqrt()
}

fn the_muon_kernels_follow_scalar_code(device: &Device) -> Result<()> {
    // tall, wide, square; gates; one element; several parts; more than one launch takes
    let shapes = [
        (3, 16, 16),
        (2, 33, 12),
        (2, 12, 33),
        (4, 4, 32),
        (1, 1, 1),
        (1, 300, 32),
        (1, 5, 1700),
        (130, 3, 2),
    ];
    for (n, rows, cols) in shapes {
        let single = |t: Tensor| t.to_dtype(DType::F32)?.to_device(device);
        let all = |seed: u64| -> Result<Vec<Tensor>> {
            (0..n).map(|i| single(uniform(&[rows, cols], seed + i))).collect()
        };
        let (before, grads) = (all(1)?, all(1000)?);
        let plain = Muon { lr: 0.04, momentum: 0.9, beta2: 0.95, weight_decay: 0.0 };
        let decay = Muon { weight_decay: 0.2, ..plain };
        let step = |with: &Muon| -> Result<Vec<Tensor>> {
            let weights = before.iter().map(Tensor::copy).collect::<Result<Vec<_>>>()?;
            let half = |w: &Tensor| w.zeros_like()?.to_dtype(DType::BF16);
            let copies = before.iter().map(half).collect::<Result<Vec<_>>>()?;
            let moment = Tensor::zeros((n as usize, rows, cols), DType::F32, device)?;
            let second = muon::second_moment_shape(n as usize, rows, cols);
            let second = Tensor::zeros(second, DType::F32, device)?;
            muon::step(&together(&weights, &grads, &copies), &moment, &second, with)?;
            Ok(vec![Tensor::stack(&weights, 0)?, Tensor::stack(&copies, 0)?, moment, second])
        };
        let made = on_device("muon", device, DType::BF16, || Ok([step(&plain)?, step(&decay)?].concat()))?;
        let [weights, copies, moment, second, decayed, ..] = &made[..] else { panic!("eight results") };
        assert_eq!(exact(copies)?, exact(&weights.to_dtype(DType::BF16)?)?, "copies are the rounded weights");
        let rate = 0.04 * (rows as f64 / cols as f64).max(1.0).sqrt();
        for (i, (w, g)) in before.iter().zip(&grads).enumerate() {
            let what = format!("muon {n}×{rows}×{cols}, matrix {i}");
            // X rounded where the kernels store it: what is left are sums near a tie, carried along by five steps
            let mut scalar = Scalar::new(rows_of(w)?, rounded);
            scalar.step(&rows_of(g)?, &plain);
            let [before, after] = [w, &weights.get(i)?].map(|t| exact(t).unwrap());
            let wanted = scalar.w.into_iter().flatten();
            let [mut off, mut size] = [0.0f64; 2];
            for ((before, after), wanted) in before.iter().zip(&after).zip(wanted) {
                off += (after - wanted).powi(2);
                size += (before - wanted).powi(2);
            }
            let off = (off / size).sqrt();
            assert!(off <= 1e-2, "{what}: the update is off by {off}");
            for ((before, after), decayed) in before.iter().zip(&after).zip(exact(&decayed.get(i)?)?) {
                let x = before - after;
                let wanted = if x * before >= 0.0 { after - rate * 0.2 * before } else { *after };
                // an x that the weight's rounding has swallowed may have had either sign
                assert!(x.abs() < 1e-6 || (decayed - wanted).abs() < 1e-6, "{what}: {decayed}, not {wanted}");
            }
            let wanted = Tensor::new(scalar.moment, &Device::Cpu)?;
            assert_close(&what, &moment.get(i)?, &wanted, 1e-6)?;
            let largest = scalar.second.iter().fold(0.0f64, |a, b| a.max(*b));
            for (made, wanted) in exact(&second.get(i)?)?.iter().zip(&scalar.second) {
                let off = (made - wanted).abs() / largest;
                assert!(off <= 3e-2, "{what}: second moment {made}, not {wanted}");
            }
        }
    }
    Ok(())
}

/// The update of a zero weight by g from zero state: minus the orthogonalised g, as it is where `reduce` is not set.
fn direction(device: &Device, g: &Rows, reduce: bool) -> Result<Rows> {
    let (rows, cols) = (g.len(), g[0].len());
    let beta2 = if reduce { 0.95 } else { 1.0 };
    let stretch = (rows as f64 / cols as f64).max(1.0).sqrt();
    let with = Muon { lr: 1.0 / stretch, momentum: 0.0, beta2, weight_decay: 0.0 };
    let g = Tensor::new(g.clone(), &Device::Cpu)?.to_dtype(DType::F32)?.to_device(device)?;
    let made = on_device("muon", device, DType::BF16, || {
        let w = g.zeros_like()?;
        let moment = w.unsqueeze(0)?.zeros_like()?;
        // a second moment of ones, kept, scales nothing
        let second = muon::second_moment_shape(1, rows, cols);
        let second = (Tensor::ones(second, DType::F32, device)? * if reduce { 0.0 } else { 1.0 })?;
        muon::step(&together(from_ref(&w), from_ref(&g), &[]), &moment, &second, &with)?;
        Ok(vec![w.neg()?])
    })?;
    rows_of(&made[0])
}

/// I − 2vvᵀ/‖v‖², an orthogonal matrix.
fn reflection(n: usize, seed: u64) -> Result<Rows> {
    let v = exact(&uniform(&[n], seed))?;
    let norm: f64 = v.iter().map(|x| x * x).sum();
    let cell = |i: usize, j: usize| f64::from(i == j) - 2.0 * v[i] * v[j] / norm;
    Ok((0..n).map(|i| (0..n).map(|j| cell(i, j)).collect()).collect())
}

fn the_muon_kernels_bend_singular_values_as_the_polynomial_does(device: &Device) -> Result<()> {
    for (rows, cols) in [(24, 24), (40, 16), (16, 40)] {
        let (u, v) = (reflection(rows, 1)?, reflection(cols, 2)?);
        let values: Vec<f64> = (0..rows.min(cols)).map(|i| 0.9f64.powi(i as i32)).collect();
        let scale = 1.02 * values.iter().map(|s| s * s).sum::<f64>().sqrt() + 1e-6;
        let diagonal = |f: &dyn Fn(usize) -> f64| -> Rows {
            (0..rows).map(|i| (0..cols).map(|j| if i == j { f(i) } else { 0.0 }).collect()).collect()
        };
        let g = multiply(&multiply(&u, &diagonal(&|i| values[i])), &v);
        let bent = |i: usize| {
            muon::COEFFICIENTS
                .iter()
                .fold(values[i] / scale, |s, (a, b, c)| s * (a + s * s * (b + s * s * c)))
        };
        assert!((0..values.len()).all(|i| (0.85..1.15).contains(&bent(i))), "the band of five steps");
        // reflections are their own inverses
        let made = multiply(&multiply(&u, &direction(device, &g, false)?), &v);
        let off = distance(&made, &diagonal(&bent));
        assert!(off <= 6e-2, "{rows}×{cols}: off by {off}");
    }
    Ok(())
}

fn variance_reduction_keeps_the_norm_of_the_update(device: &Device) -> Result<()> {
    for shape in [[24, 24], [40, 16], [16, 40]] {
        let mut g = rows_of(&uniform(&shape, 3))?;
        // rows and columns of unequal sizes
        for (i, row) in g.iter_mut().enumerate() {
            row.iter_mut().enumerate().for_each(|(j, x)| *x *= (1 + i + 3 * j) as f64);
        }
        let [plain, reduced] = [false, true].map(|reduce| direction(device, &g, reduce).unwrap());
        let (before, after) = (squares(&plain).sqrt(), squares(&reduced).sqrt());
        assert!((after / before - 1.0).abs() < 1e-5, "{shape:?}: {before} became {after}");
        assert!(distance(&reduced, &plain) > 1e-3, "{shape:?}: nothing was scaled");
    }
    Ok(())
}

fn a_zero_gradient_leaves_muon_finite(device: &Device) -> Result<()> {
    let before = uniform(&[8, 8], 1).to_dtype(DType::F32)?.to_device(device)?;
    let step = || {
        let (w, g) = (before.copy()?, before.zeros_like()?);
        let moment = Tensor::zeros((1, 8, 8), DType::F32, device)?;
        let second = Tensor::zeros((1, 8, 1), DType::F32, device)?;
        let with = Muon { lr: 0.04, momentum: 0.9, beta2: 0.95, weight_decay: 0.0 };
        muon::step(&together(from_ref(&w), from_ref(&g), &[]), &moment, &second, &with)?;
        Ok(vec![w])
    };
    let unchanged = before.to_dtype(DType::F64)?;
    assert_close("w", &step()?[0], &unchanged, 0.0)?;
    assert_close("w", &on_device("muon", device, DType::BF16, step)?[0], &unchanged, 0.0)
}
