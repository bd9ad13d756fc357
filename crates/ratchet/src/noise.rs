//! What noise explains: the runs of a trial, and σ from replicates.
//!
//! σ is the standard deviation of one run's value when only the seed changes. It starts as a stated
//! figure where one is known, and is replaced by a measurement as soon as replicates allow one.

use std::fmt;

use prepare::profile::Profile;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// A metric's value that can be compared: finite, and small enough for its square to be finite.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Value(f64);

/// A value that no comparison may see.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "the metric is {0:.3e}, which cannot be compared; the referee has to give a finite number below 1e150"
)]
pub struct NotComparable(f64);

impl Value {
    const LARGEST: f64 = 1e150; // squares and sums of squares stay finite

    /// Refuses NaN, infinities and magnitudes of 1e150 or more.
    pub fn new(value: f64) -> Result<Self, NotComparable> {
        if value.abs() < Self::LARGEST { Ok(Self(value)) } else { Err(NotComparable(value)) }
    }

    /// The number itself, always finite.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Value {
    type Error = NotComparable;
    fn try_from(value: f64) -> Result<Self, NotComparable> {
        Self::new(value)
    }
}

impl From<Value> for f64 {
    fn from(value: Value) -> f64 {
        value.0
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The values of one trial's runs, in seed order: run k of every trial used the same seed k. Never empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub struct Runs(Vec<Value>);

/// Runs that are none.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoRuns {
    /// No value at all.
    #[error("a scored trial has at least one run, this one has none")]
    Empty,
    /// A value that cannot be compared.
    #[error(transparent)]
    NotComparable(#[from] NotComparable),
}

impl Runs {
    /// The trial's own run, seed 0.
    pub fn new(first: Value) -> Self {
        Self(vec![first])
    }

    /// Adds the replicate with the next seed.
    pub fn push(&mut self, replicate: Value) {
        self.0.push(replicate);
    }

    /// How many runs there are; at least one.
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// The values in seed order.
    pub fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().map(|value| value.0)
    }

    /// The trial's value: the mean of its runs.
    pub fn mean(&self) -> f64 {
        self.values().sum::<f64>() / f64::from(self.count())
    }

    /// self − other for each seed that both have run.
    pub fn differences<'a>(&'a self, other: &'a Runs) -> impl Iterator<Item = f64> + 'a {
        self.values().zip(other.values()).map(|(mine, other)| mine - other)
    }
}

impl TryFrom<Vec<f64>> for Runs {
    type Error = NoRuns;
    fn try_from(values: Vec<f64>) -> Result<Self, NoRuns> {
        if values.is_empty() {
            return Err(NoRuns::Empty);
        }
        Ok(Self(values.into_iter().map(Value::new).collect::<Result<_, _>>()?))
    }
}

impl From<Runs> for Vec<f64> {
    fn from(runs: Runs) -> Self {
        runs.values().collect()
    }
}

/// Where a σ comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Given in the task contract, or this crate's figure for the profile.
    Stated,
    /// From replicates with this many degrees of freedom.
    Measured(u32),
    /// Neither stated nor measured yet.
    Unknown,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stated => f.write_str("stated"),
            Self::Measured(1) => f.write_str("measured from 1 degree of freedom"),
            Self::Measured(degrees) => write!(f, "measured from {degrees} degrees of freedom"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// σ of one run's value, in the metric's own unit, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    sigma: f64,
    /// The part of it that is left in the difference of two runs with the same seed, over √2; `None` until it
    /// is measured.
    #[serde(default)]
    pairs: Option<f64>,
    origin: Origin,
}

/// σ of val_bpb on `full`: published for one H100 at 300 s.
pub const STATED_FULL: f64 = 0.0009;
/// σ of val_bpb on `laptop`: two seeds of one 60 s configuration differed by 0.02, that is 0.02 / √2.
pub const STATED_LAPTOP: f64 = 0.014;
/// σ of val_bpb on `smoke`: a guess of twice `laptop`'s, for a twentieth of its training and a sixteenth
/// of its validation tokens. No result of `smoke` is meant to be believed.
pub const STATED_SMOKE: f64 = 0.03;

/// Degrees of freedom that a stated figure is worth: it steadies the first few measurements and soon yields
/// to them when it is wrong.
const STATED_DEGREES: f64 = 4.0;
/// Degrees of freedom below which runs that did not differ at all prove nothing, and pairs do not count.
pub const ENOUGH_DEGREES: u32 = 3;

impl Noise {
    /// A stated σ; 0 for a referee without noise. A negative or infinite figure states nothing.
    pub fn stated(sigma: f64) -> Self {
        if (0.0..f64::INFINITY).contains(&sigma) {
            Self { sigma, pairs: None, origin: Origin::Stated }
        } else {
            Self::unknown()
        }
    }

    /// This crate's figure for val_bpb on a profile.
    pub fn of_profile(profile: Profile) -> Self {
        Self::stated(match profile {
            Profile::Full => STATED_FULL,
            Profile::Laptop => STATED_LAPTOP,
            Profile::Smoke => STATED_SMOKE,
        })
    }

    /// No figure at all: the first promising candidate is replicated to get one.
    pub fn unknown() -> Self {
        Self { sigma: 0.0, pairs: None, origin: Origin::Unknown }
    }

    /// Pools everything replicated so far, and what is stated.
    ///
    /// The measured standard deviation is raised to its upper 80 % confidence bound: with few degrees of
    /// freedom the sample figure is too small more often than too large, and a σ that is too small keeps
    /// noise as progress. Beside it a stated figure counts as four degrees.
    pub fn estimate(replicates: &[Replicates], stated: Noise) -> Self {
        let alone = Spread::pooled(replicates.iter().filter_map(Replicates::alone));
        let pairs = Spread::pooled(replicates.iter().filter_map(Replicates::pair));
        let pairs = (pairs.degrees >= ENOUGH_DEGREES).then(|| pairs.cautious());
        if alone.degrees == 0 || alone.squares == 0.0 && alone.degrees < ENOUGH_DEGREES {
            return Self { pairs, ..stated };
        }
        let (prior, degrees) = (if stated.known() { STATED_DEGREES } else { 0.0 }, f64::from(alone.degrees));
        let variance = prior * stated.sigma.powi(2) + degrees * alone.cautious().powi(2);
        let sigma = (variance / (prior + degrees)).sqrt();
        Self { sigma, pairs, origin: Origin::Measured(alone.degrees) }
    }

    /// σ, or `None` while nothing is known.
    pub fn sigma(&self) -> Option<f64> {
        self.known().then_some(self.sigma)
    }

    /// What counts in place of σ where candidate and champion are compared seed by seed: less, where a seed
    /// does much the same to both.
    pub fn sigma_of_pairs(&self) -> Option<f64> {
        self.pairs.or(self.sigma())
    }

    /// Where the figure comes from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    fn known(&self) -> bool {
        self.origin != Origin::Unknown
    }
}

/// Runs that differ by nothing but their seed, none of them chosen for its value.
#[derive(Clone, Debug)]
pub enum Replicates {
    /// Values of one trial.
    Alone(Vec<f64>),
    /// Differences of a candidate and its champion, seed by seed; their variance is 2σ² less what a seed does
    /// to both alike.
    Pair(Vec<f64>),
    /// A σ measured before, with its degrees of freedom.
    Known(f64, u32),
}

impl Replicates {
    pub(crate) fn alone(&self) -> Option<Spread> {
        match self {
            Self::Alone(values) => Some(Spread::of(values)),
            Self::Pair(_) => None,
            Self::Known(sigma, degrees) => {
                Some(Spread { squares: sigma * sigma * f64::from(*degrees), degrees: *degrees })
            }
        }
    }

    fn pair(&self) -> Option<Spread> {
        let Self::Pair(differences) = self else { return None };
        let spread = Spread::of(differences);
        Some(Spread { squares: spread.squares / 2.0, ..spread })
    }
}

/// Σ of squares around means, and the degrees of freedom in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Σ of squares.
    pub squares: f64,
    /// Degrees of freedom.
    pub degrees: u32,
}

impl Spread {
    /// Of values that have one mean.
    pub fn of(values: &[f64]) -> Self {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { squares, degrees: (values.len() as u32).saturating_sub(1) }
    }

    pub(crate) fn pooled(parts: impl Iterator<Item = Self>) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            squares: sum.squares + part.squares,
            degrees: sum.degrees + part.degrees,
        })
    }

    /// The standard deviation; NaN without a degree of freedom.
    pub fn sigma(self) -> f64 {
        (self.squares / f64::from(self.degrees)).sqrt()
    }

    /// σ between these two in 95 of 100 cases.
    pub fn interval(self) -> [f64; 2] {
        [0.975, 0.025].map(|below| (self.squares / self.chi_square(below)).sqrt())
    }

    /// The upper 80 % confidence bound of σ.
    fn cautious(self) -> f64 {
        (self.squares / self.chi_square(0.2)).sqrt()
    }

    /// The point of the χ² distribution that has this share below it.
    fn chi_square(self, below: f64) -> f64 {
        // an error only for no degree of freedom, which no caller has: an infinite σ then decides nothing
        ChiSquared::new(f64::from(self.degrees)).map_or(0.0, |chi2| chi2.inverse_cdf(below))
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    fn runs(values: &[f64]) -> Runs {
        Runs::try_from(values.to_vec()).unwrap()
    }

    #[test]
    fn what_cannot_be_compared_is_no_value() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e150, -1e308] {
            let error = Value::new(bad).unwrap_err().to_string();
            assert!(error.len() < 120, "a person reads it: {error}");
        }
        assert!(serde_json::from_str::<Runs>("[]").is_err());
        assert!(serde_json::from_str::<Runs>("[1.0, 1e200]").is_err());
        assert_eq!(serde_json::from_str::<Runs>("[1.0, 2.0]").unwrap(), runs(&[1.0, 2.0]));
        assert_eq!(serde_json::to_string(&runs(&[0.5])).unwrap(), "[0.5]");
    }

    fn estimate(replicates: Replicates, stated: Noise) -> Noise {
        Noise::estimate(&[replicates], stated)
    }

    #[test]
    fn bounds_of_sigma_match_chi_square_tables() {
        // Oracle: lower 2.5, 20 and 97.5 % points of χ², from printed tables.
        for (degrees, low, fifth, high) in
            [(3u32, 0.216, 1.005, 9.348), (5, 0.831, 2.343, 12.833), (10, 3.247, 6.179, 20.483)]
        {
            let spread = Spread { squares: f64::from(degrees), degrees };
            let exact = |chi2: f64| (f64::from(degrees) / chi2).sqrt();
            assert!((spread.cautious() / exact(fifth) - 1.0).abs() < 1e-3, "{degrees}");
            let [least, most] = spread.interval();
            assert!((least / exact(high) - 1.0).abs() < 1e-3 && (most / exact(low) - 1.0).abs() < 2e-3);
        }
    }

    #[test]
    fn paired_spread_ignores_what_the_seed_does_to_both() {
        let seeds = [0.0, 5.0, -3.0, 8.0];
        let (alone, pair) = (Replicates::Alone(seeds.to_vec()), Replicates::Pair(vec![-0.1; 4]));
        let noise = Noise::estimate(&[alone, pair], Noise::unknown());
        assert!(noise.sigma_of_pairs().unwrap() < 1e-12);
        // Oracle: by hand, the variance of 0, 5, −3, 8 is 24⅓; 1.005 is χ²'s lower 20 % point.
        assert!((noise.sigma().unwrap() / (73.0f64 / 1.005).sqrt() - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_stated_figure_yields_to_measurements() {
        let stated = Noise::stated(0.5);
        let alone = |values: &[f64]| Replicates::Alone(values.to_vec());
        let two = alone(&[1.0, 1.2]);
        assert_eq!(estimate(alone(&[1.0]), stated), stated);
        // Oracle: by hand. Four degrees at 0.5², three at 0.05 (the sample's 0.05/3) · 3/1.005.
        let mixed = estimate(alone(&[1.0, 1.2, 0.9, 1.1]), stated);
        assert_eq!(mixed.origin(), Origin::Measured(3));
        let variance = (4.0 * 0.25 + 3.0 * 0.05 / 1.005) / 7.0;
        assert!((mixed.sigma().unwrap().powi(2) / variance - 1.0).abs() < 1e-3);
        let many = estimate(Replicates::Known(0.1, 400), stated).sigma().unwrap();
        assert!((many / 0.1 - 1.0).abs() < 0.2, "{many}");
        assert_eq!(estimate(two, Noise::unknown()).origin(), Origin::Measured(1));
        assert_eq!(estimate(alone(&[1.0, 1.0]), Noise::unknown()).sigma(), None);
        assert_eq!(estimate(Replicates::Known(0.25, 7), stated).origin(), Origin::Measured(7));
        assert_eq!(Noise::stated(f64::NAN).sigma(), None);
    }

    #[test]
    fn the_estimate_is_seldom_too_small() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut gauss = || {
            let (u, v): (f64, f64) = (rng.random::<f64>().max(1e-300), rng.random());
            (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        };
        let mut low = 0;
        for _ in 0..2_000 {
            let replicates = Replicates::Alone((0..6).map(|_| gauss()).collect());
            let noise = estimate(replicates, Noise::unknown());
            low += u32::from(noise.sigma().unwrap() < 1.0);
        }
        // Oracle: an upper 80 % bound lies below the truth in one case of five.
        assert!((300..500).contains(&low), "{low} of 2000 below the true σ of 1");
    }
}
