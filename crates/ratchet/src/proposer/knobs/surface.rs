//! A quadratic surface through the trials near the champion, and its lowest point within reach.
//!
//! Knobs that belong together, such as a learning rate and a batch size, lie along a valley that no
//! single knob can follow. The surface has the cross terms that show it.

/// Sweeps of coordinate descent; the box is small and convex or bounded, tens settle it.
const SWEEPS: usize = 64;
/// Ridge on slopes and curvatures, as a share of their mean square: keeps what the points do not tell at 0.
const RIDGE: f64 = 1e-5;

/// Terms of a full quadratic in `n` variables.
pub(super) fn terms(n: usize) -> usize {
    (n + 1) * (n + 2) / 2
}

/// Fits a quadratic by weighted least squares and minimises it inside `centre ± reach`, within 0 to 1.
///
/// Gives the place and how far below the centre it should lie. Points further from the centre than the reach count less and less. `None` with fewer points than
/// terms, or when the surface promises nothing below the centre's own height.
pub(super) fn lowest(points: &[(Vec<f64>, f64)], centre: &[f64], reach: &[f64]) -> Option<(Vec<f64>, f64)> {
    let n = centre.len();
    let terms = terms(n);
    if points.len() < terms {
        return None;
    }
    let mut normal = vec![vec![0.0; terms]; terms];
    let mut right = vec![0.0; terms];
    for (at, loss) in points {
        let u: Vec<f64> = (0..n).map(|k| (at[k] - centre[k]) / reach[k]).collect();
        let weight = 1.0 / (1.0 + u.iter().map(|u| u * u).sum::<f64>().powi(2) / 4.0);
        let row = features(&u);
        for i in 0..terms {
            right[i] += weight * row[i] * loss;
            (0..terms).for_each(|j| normal[i][j] += weight * row[i] * row[j]);
        }
    }
    let mean = (1..terms).map(|i| normal[i][i]).sum::<f64>() / (terms - 1) as f64;
    (1..terms).for_each(|i| normal[i][i] += RIDGE * mean);
    let model = solve(normal, right)?;
    let (slope, curve) = model[1..].split_at(n);

    // The reach in the same units, cut where a scale ends.
    let low: Vec<f64> = (0..n).map(|k| (-centre[k] / reach[k]).max(-1.0)).collect();
    let high: Vec<f64> = (0..n).map(|k| ((1.0 - centre[k]) / reach[k]).min(1.0)).collect();
    let mut u = vec![0.0; n];
    for _ in 0..SWEEPS {
        for k in 0..n {
            let cross: f64 = (0..n).filter(|j| *j != k).map(|j| curve[pair(n, j, k)] * u[j]).sum();
            let (push, bend) = (slope[k] + cross, curve[pair(n, k, k)]);
            let height = |x: f64| push * x + bend * x * x;
            let ends = if height(low[k]) < height(high[k]) { low[k] } else { high[k] };
            u[k] = if bend > 0.0 { (-push / (2.0 * bend)).clamp(low[k], high[k]) } else { ends };
        }
    }
    let rise: f64 = features(&u).iter().zip(&model).skip(1).map(|(x, m)| x * m).sum();
    (rise < 0.0).then(|| ((0..n).map(|k| centre[k] + u[k] * reach[k]).collect(), -rise))
}

/// 1, each variable, each product of two (squares included).
fn features(u: &[f64]) -> Vec<f64> {
    let products = (0..u.len()).flat_map(|j| (j..u.len()).map(move |k| u[j] * u[k]));
    std::iter::once(1.0).chain(u.iter().copied()).chain(products).collect()
}

/// The place of the product of variables j and k among all products.
fn pair(n: usize, j: usize, k: usize) -> usize {
    let (j, k) = (j.min(k), j.max(k));
    j * n - j * (j + 1) / 2 + k
}

/// Solves a symmetric positive definite system by Cholesky's decomposition; `None` when it is not one.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    let n = b.len();
    for i in 0..n {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| a[i][k] * a[j][k]).sum();
            let rest = a[i][j] - known;
            a[i][j] = if i == j { Some(rest).filter(|rest| *rest > 1e-12)?.sqrt() } else { rest / a[j][j] };
        }
        let known: f64 = (0..i).map(|k| a[i][k] * b[k]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| a[k][i] * b[k]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    Some(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bottom_of_a_tilted_valley_is_found() {
        // Oracle: by hand, 50(a − b)² + (a + b − 0.8)² has its bottom at (0.4, 0.4).
        let loss = |a: f64, b: f64| 50.0 * (a - b) * (a - b) + (a + b - 0.8) * (a + b - 0.8);
        let grid = [0.5, 0.55, 0.6, 0.65];
        let points: Vec<_> = grid.iter().flat_map(|a| grid.map(|b| (vec![*a, b], loss(*a, b)))).collect();
        let found = lowest(&points, &[0.6, 0.6], &[0.3, 0.3]).unwrap().0;
        assert!(found.iter().all(|x| (x - 0.4).abs() < 0.03), "{found:?}");
        let near = lowest(&points, &[0.6, 0.6], &[0.1, 0.1]).unwrap().0;
        assert!(near.iter().all(|x| (x - 0.5).abs() < 0.02), "as far as it may go: {near:?}");
        assert_eq!(lowest(&points[..5], &[0.6, 0.6], &[0.1, 0.1]), None, "too few points for six terms");
    }

    #[test]
    fn products_have_a_place_each() {
        for n in 1..6 {
            let places: Vec<usize> = (0..n).flat_map(|j| (j..n).map(move |k| pair(n, j, k))).collect();
            assert_eq!(places, (0..n * (n + 1) / 2).collect::<Vec<_>>());
            assert_eq!(features(&vec![2.0; n]).len(), terms(n));
        }
    }
}
