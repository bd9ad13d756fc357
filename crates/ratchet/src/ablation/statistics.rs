//! What the repeats of two groups can say: means with intervals, and paired comparisons held to one level.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};

/// The level that a claim is held to, over all comparisons together.
pub(crate) const LEVEL: f64 = 0.05;
/// Resamples of a bootstrap: its interval's ends then vary by about a hundredth of its width.
const RESAMPLES: usize = 10_000;
/// Up to so many pairs every flip of signs is counted; beyond, so many are drawn.
const COUNTED_PAIRS: usize = 16;
const DRAWN: usize = 100_000;
/// All that is drawn here is drawn the same each time.
const SEED: u64 = 1;

/// A mean over repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// Repeats.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Its 95 % interval, by the percentiles of a bootstrap; `None` below two repeats.
    pub interval: Option<[f64; 2]>,
}

impl Mean {
    /// The mean of some; `None` of nothing.
    ///
    /// A percentile bootstrap is somewhat narrow where there are few: of 5 it covers about 84 %, of 20 about 93 %.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        let mean = crate::history::mean(values)?;
        if n < 2 {
            return Some(Self { n, mean, interval: None });
        }
        let mut random = StdRng::seed_from_u64(SEED);
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| (0..n).map(|_| values[random.random_range(0..n)]).sum::<f64>() / n as f64)
            .collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| means[(share * (RESAMPLES - 1) as f64).round() as usize];
        Some(Self { n, mean, interval: Some([at(0.025), at(0.975)]) })
    }
}

/// One group's repeats against another's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// One group.
    pub a: String,
    /// The other.
    pub b: String,
    /// `a` minus `b`, over the repeats that both have.
    pub difference: Mean,
    /// How often chance alone would make a difference as large, either way.
    pub p: f64,
    /// The same held against all comparisons of the table (Holm 1979).
    pub p_adjusted: f64,
}

/// All pairs of groups, by the repeats that both have; `values[i][r]`: group i's in repeat r.
pub(crate) fn compare(groups: &[String], values: &[Vec<Option<f64>>]) -> Vec<Comparison> {
    let mut all = Vec::new();
    for i in 0..groups.len() {
        for j in i + 1..groups.len() {
            let pairs = values[i].iter().zip(&values[j]);
            let differences: Vec<f64> = pairs.filter_map(|(a, b)| Some((*a)? - (*b)?)).collect();
            if let Some(difference) = Mean::of(&differences) {
                let p = flipped(&differences);
                let (a, b) = (groups[i].clone(), groups[j].clone());
                all.push(Comparison { a, b, difference, p, p_adjusted: p });
            }
        }
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| all[*a].p.total_cmp(&all[*b].p));
    let mut floor = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        let m = (all.len() - rank) as f64;
        floor = floor.max((all[at].p * m).min(1.0));
        all[at].p_adjusted = floor;
    }
    all
}

/// The smallest p that `n` pairs can give, held against `comparisons` of them.
pub(crate) fn smallest(n: usize, comparisons: usize) -> f64 {
    (2.0 / 2f64.powi(n.min(1000) as i32) * comparisons as f64).min(1.0)
}

/// Paired randomisation test, two-sided: the share of all ways to flip the signs of the differences that make
/// their sum as large.
fn flipped(differences: &[f64]) -> f64 {
    let observed = differences.iter().sum::<f64>().abs();
    // sums that are equal but for rounding count as equal
    let observed = observed - 1e-9 * differences.iter().map(|d| d.abs()).sum::<f64>();
    let n = differences.len();
    let sum = |flips: u64, of: &[f64]| -> f64 {
        of.iter().enumerate().map(|(i, d)| if flips >> i & 1 == 1 { -d } else { *d }).sum()
    };
    if n <= COUNTED_PAIRS {
        let all = 1_u64 << n;
        let as_large = (0..all).filter(|flips| sum(*flips, differences).abs() >= observed).count();
        return as_large as f64 / all as f64;
    }
    let mut random = StdRng::seed_from_u64(SEED);
    let as_large = (0..DRAWN)
        .filter(|_| {
            let chunks = differences.chunks(64);
            chunks.map(|chunk| sum(random.random(), chunk)).sum::<f64>().abs() >= observed
        })
        .count();
    (as_large + 1) as f64 / (DRAWN + 1) as f64
}

#[cfg(test)]
mod tests {
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    fn normal(n: usize, mean: f64, random: &mut StdRng) -> Vec<f64> {
        (0..n).map(|_| mean + Distribution::<f64>::sample(&StandardNormal, random)).collect()
    }

    #[test]
    fn intervals_cover_as_often_as_the_documentation_says() {
        for (n, says) in [(5, 84.0), (20, 93.0)] {
            let mut random = StdRng::seed_from_u64(3);
            let covers = (0..300).filter(|_| {
                let [low, high] = Mean::of(&normal(n, 0.0, &mut random)).unwrap().interval.unwrap();
                low <= 0.0 && 0.0 <= high
            });
            let share = covers.count() as f64 / 3.0;
            assert!((share - says).abs() < 4.0, "{n}: {share}");
        }
        assert_eq!(Mean::of(&[1.0]).unwrap().interval, None);
        assert_eq!(Mean::of(&[]), None);
    }

    #[test]
    fn p_is_the_share_of_sign_flips() {
        // by hand: of 2³ flips of 1, 2, 3 two have a sum of 6 either way
        assert_eq!(flipped(&[1.0, 2.0, 3.0]), 0.25);
        assert_eq!(flipped(&[0.1, 0.2, -0.3]), 1.0);
        assert_eq!(flipped(&[0.0; 4]), 1.0);
        assert_eq!(smallest(6, 1), flipped(&[1.0; 6]));
    }

    #[test]
    fn drawn_flips_agree_with_counted_ones() {
        let mut random = StdRng::seed_from_u64(5);
        let differences = normal(COUNTED_PAIRS, 0.5, &mut random);
        let counted = flipped(&differences);
        // two pairs without a difference change nothing but the way it is computed
        let drawn = flipped(&[differences, vec![0.0; 2]].concat());
        assert!((counted - drawn).abs() < 0.003, "{counted} {drawn}");
    }

    #[test]
    fn without_a_difference_one_claim_in_twenty_is_made_at_most() {
        let mut random = StdRng::seed_from_u64(7);
        let groups: Vec<String> = ["A", "B", "C"].map(str::to_owned).to_vec();
        let claims = (0..400).filter(|_| {
            let values: Vec<Vec<Option<f64>>> =
                (0..3).map(|_| normal(8, 0.0, &mut random).into_iter().map(Some).collect()).collect();
            compare(&groups, &values).iter().any(|comparison| comparison.p_adjusted <= LEVEL)
        });
        // 5 %, and three standard errors of 400 tries
        assert!(claims.count() <= 33);
    }

    #[test]
    fn only_repeats_that_both_have_are_compared() {
        let groups = ["A", "B"].map(str::to_owned);
        let values = [vec![Some(1.0), None, Some(3.0)], vec![Some(0.5), Some(9.0), Some(1.0)]];
        let compared = compare(&groups, &values);
        assert_eq!((compared[0].difference.n, compared[0].difference.mean), (2, 1.25));
    }

    #[test]
    fn holm_multiplies_the_smallest_by_all_and_never_falls() {
        let groups = ["A", "B", "C"].map(str::to_owned);
        let values: Vec<Vec<Option<f64>>> = [0.0, 1.0, 1.01]
            .iter()
            .map(|at| (0..8).map(|r| Some(at + if r % 2 == 0 { 0.02 } else { -0.02 } * at)).collect())
            .collect();
        let compared = compare(&groups, &values);
        let p: Vec<f64> = compared.iter().map(|comparison| comparison.p).collect();
        let adjusted: Vec<f64> = compared.iter().map(|comparison| comparison.p_adjusted).collect();
        assert_eq!(p[0], 2.0 / 256.0);
        assert_eq!((adjusted[0], adjusted[1]), (p[0] * 3.0, p[0] * 3.0));
        assert!(adjusted[2] >= p[2]);
    }
}
