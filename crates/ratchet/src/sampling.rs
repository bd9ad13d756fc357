//! What the choice of exam rows leaves of uncertainty: two models on the same rows, compared row by row.

use std::{f64::consts::LN_2, path::Path};

use crate::plain_file;

/// Standard error of the difference of two models in bits per byte, had other rows of the same text been
/// drawn. candidate, champion: (rows) nats; bytes: (rows) of their targets.
///
/// The difference is a ratio, Σ nats over Σ bytes; its variance is that of the rows' residuals (Cochran,
/// Sampling Techniques, chapter 6). `None` where the sets of rows differ or are fewer than two.
pub fn standard_error(candidate: &[f32], champion: &[f32], bytes: &[u64]) -> Option<f64> {
    let rows = bytes.len();
    if candidate.len() != rows || champion.len() != rows || rows < 2 {
        return None;
    }
    let differences =
        || candidate.iter().zip(champion).map(|(mine, theirs)| f64::from(*mine) - f64::from(*theirs));
    let all_bytes = bytes.iter().sum::<u64>() as f64;
    let nats_a_byte = differences().sum::<f64>() / all_bytes;
    let residuals = differences().zip(bytes).map(|(nats, bytes)| nats - nats_a_byte * *bytes as f64);
    let squares: f64 = residuals.map(|residual| residual * residual).sum();
    let error = (squares * rows as f64 / (rows - 1) as f64).sqrt() / (LN_2 * all_bytes);
    error.is_finite().then_some(error)
}

/// The nats of each row as a trial's `rows.f32` holds them; `None` where there are none.
pub fn read(trial: &Path) -> Option<Vec<f32>> {
    let bytes = plain_file::read(&trial.join("rows.f32")).ok()?;
    let (whole, rest) = bytes.as_chunks::<4>();
    rest.is_empty().then(|| whole.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect())
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn the_error_is_the_spread_over_fresh_draws_of_rows() {
        // Oracle: brute force. Many exams of 200 rows from one population whose rows differ in length.
        let mut rng = StdRng::seed_from_u64(3);
        let mut exam = || {
            let rows = (0..200).map(|_| {
                let bytes = rng.random_range(300..900u64);
                let champion = bytes as f64 * rng.random_range(0.6..0.9);
                let better = bytes as f64 * rng.random_range(-0.02..0.03);
                (champion as f32, (champion - better) as f32, bytes)
            });
            let (mut champion, mut candidate, mut bytes) = (vec![], vec![], vec![]);
            rows.for_each(|(a, b, c)| {
                champion.push(a);
                candidate.push(b);
                bytes.push(c);
            });
            let nats = |rows: &[f32]| rows.iter().map(|x| f64::from(*x)).sum::<f64>();
            let delta = (nats(&candidate) - nats(&champion)) / (LN_2 * bytes.iter().sum::<u64>() as f64);
            (delta, standard_error(&candidate, &champion, &bytes).unwrap())
        };
        let exams: Vec<(f64, f64)> = (0..2_000).map(|_| exam()).collect();
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| exams.iter().map(of).sum::<f64>() / exams.len() as f64;
        let delta = mean(&|exam| exam.0);
        let spread = mean(&|exam| (exam.0 - delta).powi(2)).sqrt();
        let stated = mean(&|exam| exam.1);
        assert!((stated / spread - 1.0).abs() < 0.05, "{stated} stated, {spread} seen");
    }

    #[test]
    fn rows_that_do_not_match_have_no_error() {
        assert_eq!(standard_error(&[1.0; 3], &[1.0; 2], &[1; 3]), None);
        assert_eq!(standard_error(&[1.0], &[1.0], &[1]), None);
        assert_eq!(standard_error(&[1.0; 3], &[1.0; 3], &[0; 3]), None);
        assert_eq!(standard_error(&[1.0; 3], &[1.0; 3], &[5; 3]), Some(0.0));
    }
}
