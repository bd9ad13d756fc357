//! What noise explains: the runs of a trial, and σ from replicates.
//!
//! σ is the standard deviation of one run's value when only the seed changes. It starts as a stated
//! figure where one is known, and is replaced by a measurement as soon as replicates allow one.

use std::fmt;

use prepare::profile::Profile;
use serde::{Deserialize, Serialize};

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
    origin: Origin,
}

/// σ of val_bpb on `full`: published for one H100 at 300 s.
pub const STATED_FULL: f64 = 0.0009;
/// σ of val_bpb on `laptop`: two seeds of one 60 s configuration differed by 0.02, that is 0.02 / √2.
pub const STATED_LAPTOP: f64 = 0.014;
/// σ of val_bpb on `smoke`: a guess of twice `laptop`'s, for a twentieth of its training and a sixteenth
/// of its validation tokens. No result of `smoke` is meant to be believed.
pub const STATED_SMOKE: f64 = 0.03;

/// Measurements below this many degrees of freedom do not yet replace a stated figure.
const ENOUGH_DEGREES: u32 = 3;

impl Noise {
    /// A stated σ; 0 for a referee without noise. A negative or infinite figure states nothing.
    pub fn stated(sigma: f64) -> Self {
        if (0.0..f64::INFINITY).contains(&sigma) {
            Self { sigma, origin: Origin::Stated }
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
        Self { sigma: 0.0, origin: Origin::Unknown }
    }

    /// Pools everything replicated so far into one σ, else falls back on `stated`.
    ///
    /// The pooled standard deviation is raised to its upper 80 % confidence bound: with few degrees of
    /// freedom the sample figure is too small more often than too large, and a σ that is too small keeps
    /// noise as progress. Fewer than three degrees do not replace a stated figure, nor is a spread of
    /// exactly zero believed before there are three.
    pub fn estimate<'a>(replicates: impl IntoIterator<Item = Replicates<'a>>, stated: Noise) -> Self {
        let (squares, degrees) = replicates
            .into_iter()
            .map(Replicates::spread)
            .fold((0.0, 0), |(squares, degrees), (s, d)| (squares + s, degrees + d));
        let few = degrees < ENOUGH_DEGREES;
        if degrees == 0 || few && (stated.known() || squares == 0.0) {
            return stated;
        }
        let sigma = (squares / f64::from(degrees)).sqrt() * caution(degrees);
        Self { sigma, origin: Origin::Measured(degrees) }
    }

    /// σ, or `None` while nothing is known.
    pub fn sigma(&self) -> Option<f64> {
        self.known().then_some(self.sigma)
    }

    /// Where the figure comes from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    fn known(&self) -> bool {
        self.origin != Origin::Unknown
    }
}

/// Runs that differ by nothing but their seed.
#[derive(Clone, Copy, Debug)]
pub enum Replicates<'a> {
    /// One trial, run with several seeds.
    Alone(&'a Runs),
    /// A candidate and its champion, run with the same seeds: their differences, whose variance is 2σ²,
    /// leave out what a seed does to both alike.
    Pair(&'a Runs, &'a Runs),
}

impl Replicates<'_> {
    /// Σ of squares around the mean, scaled to one run's variance, and the degrees of freedom.
    fn spread(self) -> (f64, u32) {
        let (samples, scale): (Vec<f64>, f64) = match self {
            Self::Alone(runs) => (runs.values().collect(), 1.0),
            Self::Pair(candidate, champion) => (candidate.differences(champion).collect(), 2.0),
        };
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let squares = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>();
        (squares / scale, samples.len() as u32 - 1)
    }
}

/// √(ν / χ²₀.₂(ν)): takes a sample's standard deviation to its upper 80 % confidence bound.
fn caution(degrees: u32) -> f64 {
    const Z: f64 = -0.8416; // the normal distribution's lower 20 % point
    // χ² quantile: Wilson and Hilferty, PNAS 17 (1931); ν / χ² is 1 over the cube.
    let spread = 2.0 / (9.0 * f64::from(degrees));
    (1.0 - spread + Z * spread.sqrt()).powi(3).recip().sqrt()
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

    #[test]
    fn caution_matches_chi_square_tables() {
        // Oracle: lower 20 % points of χ², from printed tables.
        for (degrees, chi2) in [(3u32, 1.005), (5, 2.343), (10, 6.179), (20, 14.578)] {
            let exact = (f64::from(degrees) / chi2).sqrt();
            assert!((caution(degrees) / exact - 1.0).abs() < 0.01, "{degrees}");
        }
    }

    #[test]
    fn paired_spread_ignores_what_the_seed_does_to_both() {
        let seeds = [0.0, 5.0, -3.0, 8.0];
        let champion = runs(&seeds);
        let candidate = runs(&seeds.map(|s| s - 0.1));
        let noise = Noise::estimate([Replicates::Pair(&candidate, &champion)], Noise::unknown());
        assert!(noise.sigma().unwrap() < 1e-12);
        // Oracle: by hand, the variance of 0, 5, −3, 8 is 24⅓.
        let alone = Noise::estimate([Replicates::Alone(&champion)], Noise::unknown());
        assert!((alone.sigma().unwrap() / caution(3) - (73.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_stated_figure_stands_until_three_degrees() {
        let stated = Noise::stated(0.5);
        let (two, four) = (runs(&[1.0, 1.2]), runs(&[1.0, 1.2, 0.9, 1.1]));
        assert_eq!(Noise::estimate([Replicates::Alone(&two)], stated), stated);
        assert_eq!(Noise::estimate([Replicates::Alone(&four)], stated).origin(), Origin::Measured(3));
        assert_eq!(
            Noise::estimate([Replicates::Alone(&two)], Noise::unknown()).origin(),
            Origin::Measured(1)
        );
        let same = runs(&[1.0, 1.0]);
        assert_eq!(Noise::estimate([Replicates::Alone(&same)], Noise::unknown()).sigma(), None);
        assert_eq!(Noise::stated(f64::NAN).sigma(), None);
    }

    #[test]
    fn the_estimate_is_seldom_too_small() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut gauss = || {
            let (u, v): (f64, f64) = (rng.random::<f64>().max(1e-300), rng.random());
            Value::new((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()).unwrap()
        };
        let mut low = 0;
        for _ in 0..2_000 {
            let mut runs = [Runs::new(gauss()), Runs::new(gauss())];
            for _ in 0..5 {
                runs.iter_mut().for_each(|r| r.push(gauss()));
            }
            let noise = Noise::estimate([Replicates::Pair(&runs[0], &runs[1])], Noise::unknown());
            low += u32::from(noise.sigma().unwrap() < 1.0);
        }
        // Oracle: an upper 80 % bound lies below the truth in one case of five.
        assert!((300..500).contains(&low), "{low} of 2000 below the true σ of 1");
    }
}
