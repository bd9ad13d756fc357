//! Muon over a group of matrices of one shape: momentum, orthogonalisation, variance reduction, cautious decay.
//!
//! Muon (Keller Jordan, 2024), Polar Express (arXiv 2505.16932, five steps), NorMuon (arXiv 2510.05491).

use crate::cast;
use crate::composed::{dispatch, widen};
use crate::cuda;
use crate::gemm::{ALL_THREADS, Matrix, Parallelism, add_product, product};
use crate::panel::Panel;
use crate::real::Real;
use crate::rows::{dot, vectorized};
use crate::storage::{apart, elements, modify, overwrite};
use candle_core::{D, Result, Tensor, bail};
use rayon::prelude::*;

/// Polar Express: X ← aX + (bA + cA²)X with A = XXᵀ, one (a, b, c) a step.
pub const COEFFICIENTS: [(f64, f64, f64); 5] = [
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
];

/// Room left below spectral norm 1, so that rounding does not push the iteration out of its range.
const MARGIN: f64 = 1.02;

/// Keeps an all-zero gradient from dividing by zero.
const TINY_NORM: f64 = 1e-6;

/// Floor of second moments and norms.
const FLOOR: f64 = 1e-10;

/// Hyperparameters of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Muon {
    /// Learning rate, schedule included; times √max(1, R/K) inside.
    pub lr: f64,
    /// Decay of the gradients' moving average.
    pub momentum: f64,
    /// Decay of the second moment of the orthogonalised update.
    pub beta2: f64,
    /// Decay, applied only where the update and the weight have the same sign.
    pub weight_decay: f64,
}

/// Shape of the second moment of n weights of (rows, cols): one value for each row when rows ≥ cols, else
/// for each column.
pub fn second_moment_shape(n: usize, rows: usize, cols: usize) -> (usize, usize, usize) {
    if rows >= cols { (n, rows, 1) } else { (n, 1, cols) }
}

/// One weight's part of a step.
#[derive(Debug, Clone)]
pub struct Update {
    /// The weight, (R, K), stored (out, in), contiguous.
    pub w: Tensor,
    /// Its gradient.
    pub g: Tensor,
    /// Gets the new weight in another dtype: what is computed with, where that is not the weight itself.
    pub copy: Option<Tensor>,
}

/// One step on n weights of one shape (R, K), in place.
///
/// moment: (n, R, K); second: [`second_moment_shape`]; both contiguous. All that is changed has a storage of its own.
pub fn step(updates: &[Update], moment: &Tensor, second: &Tensor, with: &Muon) -> Result<()> {
    let Some(Update { w: first, .. }) = updates.first() else { return Ok(()) };
    let (rows, cols) = first.dims2()?;
    let n = updates.len();
    if moment.dims() != [n, rows, cols] {
        bail!("muon: {n} weights of {rows}×{cols} and a moment of shape {:?}", moment.shape())
    }
    if second.dims3()? != second_moment_shape(n, rows, cols) {
        bail!("muon: second moment of shape {:?} for {n} weights of {rows}×{cols}", second.shape())
    }
    let mut changed = vec![moment, second];
    for u in updates {
        for t in [&u.w, &u.g].into_iter().chain(&u.copy) {
            crate::same_shape("muon", first, t)?;
        }
        changed.extend([&u.w].into_iter().chain(&u.copy));
    }
    apart("muon", &changed, &updates.iter().map(|u| &u.g).collect::<Vec<_>>())?;
    if cuda::muon::takes(updates, moment, second) {
        return cuda::muon::step(updates, moment, second, with);
    }
    dispatch!(first, cpu T: cpu_step::<T>(updates, moment, second, with), else: {
        composed(updates, moment, second, with)
    })?;
    for Update { w, copy, .. } in updates {
        if let Some(copy) = copy {
            cast::assign(copy, w)?;
        }
    }
    Ok(())
}

fn composed(updates: &[Update], moment: &Tensor, second: &Tensor, with: &Muon) -> Result<()> {
    let (_, rows, cols) = moment.dims3()?;
    let stack = |of: fn(&Update) -> &Tensor| Tensor::stack(&updates.iter().map(of).collect::<Vec<_>>(), 0);
    let lerp = |from: &Tensor, to: &Tensor, by: f64| -> Result<Tensor> { from + ((to - from)? * by)? };
    let g = widen(&stack(|u| &u.g)?)?;
    let w = widen(&stack(|u| &u.w)?)?;
    let new_moment = lerp(&widen(moment)?, &g, 1.0 - with.momentum)?;
    let x = orthogonal(&lerp(&g, &new_moment, with.momentum)?)?;
    let (axis, reduced) = if rows >= cols { (D::Minus1, cols) } else { (D::Minus2, rows) };
    let mean = x.sqr()?.mean_keepdim(axis)?;
    let new_second = lerp(&widen(second)?, &mean, 1.0 - with.beta2)?;
    let s = new_second.maximum(FLOOR)?.sqrt()?.recip()?;
    let norm = |mean: &Tensor| (mean.sum_keepdim((1, 2))? * reduced as f64)?.sqrt();
    let rescale = norm(&mean)?.div(&norm(&(&mean * s.sqr()?)?)?.maximum(FLOOR)?)?;
    let x = x.broadcast_mul(&s.broadcast_mul(&rescale)?)?;
    let mask = (&x * &w)?.ge(0.0)?.to_dtype(w.dtype())?;
    let change = (&x + ((&w * mask)? * with.weight_decay)?)?;
    let new_w = (w - (change * rate(with, rows, cols))?)?;
    overwrite(moment, &new_moment.to_dtype(moment.dtype())?)?;
    overwrite(second, &new_second.to_dtype(second.dtype())?)?;
    for (i, Update { w, .. }) in updates.iter().enumerate() {
        overwrite(w, &new_w.get(i)?.to_dtype(w.dtype())?)?;
    }
    Ok(())
}

/// The five steps by candle ops, for x: (n, R, K).
fn orthogonal(x: &Tensor) -> Result<Tensor> {
    let (_, rows, cols) = x.dims3()?;
    let norm = ((x.sqr()?.sum_keepdim((1, 2))?.sqrt()? * MARGIN)? + TINY_NORM)?;
    let mut x = x.broadcast_div(&norm)?;
    for (a, b, c) in COEFFICIENTS {
        let xt = x.transpose(1, 2)?.contiguous()?;
        let gram = if rows > cols { xt.matmul(&x)? } else { x.matmul(&xt)? };
        let p = ((&gram * b)? + (gram.matmul(&gram)? * c)?)?;
        let px = if rows > cols { x.matmul(&p)? } else { p.matmul(&x)? };
        x = ((x * a)? + px)?;
    }
    Ok(x)
}

/// lr·√max(1, R/K).
pub(crate) fn rate(with: &Muon, rows: usize, cols: usize) -> f64 {
    with.lr * (rows as f64 / cols as f64).max(1.0).sqrt()
}

fn cpu_step<T: Real>(updates: &[Update], moment: &Tensor, second: &Tensor, with: &Muon) -> Result<()> {
    let (_, rows, cols) = moment.dims3()?;
    // several matrices: one thread each; fewer than there are threads: all threads on each product
    let threads = if updates.len() >= rayon::current_num_threads() { Parallelism::None } else { ALL_THREADS };
    let one = One { rows, cols, threads, with };
    modify::<T, _>("muon", moment, |moments| {
        modify::<T, _>("muon", second, |seconds| {
            let state = moments.par_chunks_mut(rows * cols).zip(seconds.par_chunks_mut(rows.max(cols)));
            updates.par_iter().zip(state).try_for_each(|(Update { w, g, .. }, (moment, second))| {
                let g = g.contiguous()?;
                let g = elements::<T>("muon", &g)?;
                modify::<T, _>("muon", w, |w| {
                    one.update(w, &g, moment, second);
                    Ok(())
                })
            })
        })
    })
}

/// The update of one matrix.
struct One<'a> {
    rows: usize,
    cols: usize,
    threads: Parallelism,
    with: &'a Muon,
}

impl One<'_> {
    fn update<T: Real>(&self, w: &mut [T], g: &[T], moment: &mut [T], second: &mut [T]) {
        let x = self.orthogonal(nesterov(g, moment, self.with.momentum));
        let factors = self.variance_reduction(&x, second);
        let (rate, decay) =
            (T::of_f64(rate(self.with, self.rows, self.cols)), T::of_f64(self.with.weight_decay));
        let by_row = self.rows >= self.cols;
        vectorized(
            #[inline(always)]
            || {
                let lines = w.chunks_exact_mut(self.cols).zip(x.chunks_exact(self.cols));
                for (i, (w, x)) in lines.enumerate() {
                    if by_row {
                        w.iter_mut().zip(x).for_each(|(w, &x)| cautious(w, x * factors[i], rate, decay));
                    } else {
                        let each = w.iter_mut().zip(x).zip(&factors);
                        each.for_each(|((w, &x), &f)| cautious(w, x * f, rate, decay));
                    }
                }
            },
        )
    }

    /// Polar Express on x, (rows, cols).
    fn orthogonal<T: Real>(&self, mut x: Vec<T>) -> Vec<T> {
        let norm = vectorized(
            #[inline(always)]
            || dot(&x, &x),
        );
        let scale = T::of_f64(1.0 / (norm.wide().sqrt() * MARGIN + TINY_NORM));
        vectorized(
            #[inline(always)]
            || x.iter_mut().for_each(|x| *x *= scale),
        );
        for (a, b, c) in COEFFICIENTS {
            let m = Matrix::new(&x, self.rows, self.cols);
            let (gram, n) = if self.rows > self.cols {
                (product(m.t(), m, self.threads), self.cols)
            } else {
                (product(m, m.t(), self.threads), self.rows)
            };
            // aI + bA + cA²: one product with X then does the whole step
            let mut p = gram.clone();
            let g = Matrix::new(&gram, n, n);
            add_product(Panel::new(&mut p, n), T::of_f64(b), T::of_f64(c), g, g, self.threads);
            for i in 0..n {
                p[i * n + i] += T::of_f64(a);
            }
            let p = Matrix::new(&p, n, n);
            x = if self.rows > self.cols { product(m, p, self.threads) } else { product(p, m, self.threads) };
        }
        x
    }

    /// NorMuon: updates the second moment and returns the factor of each row (rows ≥ cols) or column.
    fn variance_reduction<T: Real>(&self, x: &[T], second: &mut [T]) -> Vec<T> {
        let by_row = self.rows >= self.cols;
        let reduced = if by_row { self.cols } else { self.rows };
        let means: Vec<T> = vectorized(
            #[inline(always)]
            || {
                let per = T::of_f64(1.0 / reduced as f64);
                let lines = x.chunks_exact(self.cols);
                if by_row {
                    lines.map(|line| dot(line, line) * per).collect()
                } else {
                    let mut sums = vec![T::ZERO; self.cols];
                    lines.for_each(|line| sums.iter_mut().zip(line).for_each(|(s, &x)| *s += x * x));
                    sums.iter_mut().for_each(|s| *s *= per);
                    sums
                }
            },
        );
        let to_mean = T::of_f64(1.0 - self.with.beta2);
        let (mut before, mut after) = (0.0, 0.0);
        let mut factors = Vec::with_capacity(means.len());
        for (second, &mean) in second.iter_mut().zip(&means) {
            *second += to_mean * (mean - *second);
            let s = 1.0 / second.wide().max(FLOOR).sqrt();
            before += mean.wide();
            after += mean.wide() * s * s;
            factors.push(s);
        }
        let norm = |sum: f64| (sum * reduced as f64).sqrt();
        let rescale = norm(before) / norm(after).max(FLOOR);
        factors.into_iter().map(|s| T::of_f64(s * rescale)).collect()
    }
}

/// moment ← lerp(moment, g, 1 − μ); returns lerp(g, moment, μ).
fn nesterov<T: Real>(g: &[T], moment: &mut [T], momentum: f64) -> Vec<T> {
    let (mu, to_g) = (T::of_f64(momentum), T::of_f64(1.0 - momentum));
    let mut ahead = vec![T::ZERO; g.len()];
    vectorized(
        #[inline(always)]
        || {
            for ((ahead, &g), m) in ahead.iter_mut().zip(g).zip(moment) {
                *m += to_g * (g - *m);
                *ahead = g + mu * (*m - g);
            }
        },
    );
    ahead
}

/// w −= rate·(x + decay·w where x·w ≥ 0).
#[inline(always)]
fn cautious<T: Real>(w: &mut T, x: T, rate: T, decay: T) {
    let kept = if x * *w >= T::ZERO { *w } else { T::ZERO };
    *w -= rate * (x + decay * kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn the_composition_and_the_fast_step_agree() {
        for (rows, cols) in [(7, 7), (9, 4), (4, 9)] {
            let t = |seed: f64, shape: &[usize]| {
                let n = shape.iter().product::<usize>() as f64;
                let wave = (Tensor::arange(0.0, n, &Device::Cpu).unwrap() * seed).unwrap().sin().unwrap();
                wave.reshape(shape).unwrap()
            };
            let (n, second) = (2, second_moment_shape(2, rows, cols));
            let second = [second.0, second.1, second.2];
            let state = || {
                let pair = |a, b| [t(a, &[rows, cols]), t(b, &[rows, cols])];
                (pair(0.3, 0.7), pair(1.1, 1.7), t(2.3, &[n, rows, cols]), t(0.1, &second).abs().unwrap())
            };
            let with = Muon { lr: 0.1, momentum: 0.9, beta2: 0.9, weight_decay: 0.1 };
            let ((w, g, m, v), (w2, g2, m2, v2)) = (state(), state());
            let updates = |w: &[Tensor; 2], g: &[Tensor; 2]| {
                [0, 1].map(|i| Update { w: w[i].clone(), g: g[i].clone(), copy: None })
            };
            composed(&updates(&w, &g), &m, &v, &with).unwrap();
            step(&updates(&w2, &g2), &m2, &v2, &with).unwrap();
            let ([w, x], [w2, x2]) = (w, w2);
            for (a, b) in [(w, w2), (x, x2), (m, m2), (v, v2)] {
                let error = (a - b).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f64>().unwrap();
                assert!(error < 1e-12, "{rows}×{cols}: {error:e}");
            }
        }
    }
}
