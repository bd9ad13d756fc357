//! σ from tag to tag: what one night has measured, the next one on the same machine starts from.
//!
//! `.ratchet/noise.json` holds, for each combination of metric, profile, device and commands, what each tag
//! has measured. A tag writes its own entry only, so that nothing is counted twice.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Instant};

use sha2::{Digest, Sha256};

use crate::{
    error::{Error, Result},
    history::mean,
    journal::TrialRecord,
    measure::Failure,
    noise::{Noise, Replicates, Spread},
    progress::{Observer, Progress},
    session::Session,
};

/// Degrees of freedom that other tags may have together: what is measured now counts for more.
const MOST_DEGREES: u32 = 20;

/// Spreads by what they hold for, then by tag.
type Kept = BTreeMap<String, BTreeMap<String, Spread>>;

/// What `ratchet noise` found.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The champion.
    pub champion: TrialRecord,
    /// Runs made now.
    pub runs: u32,
    /// How long they took.
    pub seconds: f64,
    /// All replicates of this tag, and those of earlier tags.
    pub spread: Spread,
    /// What verdicts use.
    pub noise: Noise,
}

impl Session {
    /// Runs the champion `runs` times more, each with the next seed. `None` when a stop was asked for; what
    /// was run until then counts.
    ///
    /// Exit code 1 when it crashes.
    pub fn measure_noise(&mut self, runs: u32, observer: &mut dyn Observer) -> Result<Option<Measured>> {
        self.ensure_data(observer)?;
        if self.ensure_baseline(observer)?.is_none() {
            return Ok(None);
        }
        let began = Instant::now();
        let before = self.history().champion().map_or(0, |champion| champion.values.len() as u32);
        let ran = self.replicate_champion(before + runs, observer)?;
        self.restore()?;
        self.keep_spread()?;
        match ran {
            Ok(()) => {}
            Err(Failure::Stopped) => return Ok(None),
            Err(Failure::Crash(crash)) => {
                return Err(Error::internal(format!("the champion crashed: {}", crash.reason))
                    .hint("`ratchet show` names its folder; its log is in runs/ there"));
            }
        }
        let champion = self.history().champion().cloned();
        let champion = champion.ok_or_else(|| Error::internal("there is no champion after the baseline"))?;
        let spread = Spread::pooled(self.all_replicates().iter().filter_map(Replicates::alone));
        let noise = self.noise(None);
        let seconds = began.elapsed().as_secs_f64();
        Ok(Some(Measured { champion, runs, seconds, spread, noise }))
    }

    /// Runs the champion once more between trials: for σ, and to see whether the machine has changed.
    pub(crate) fn rerun_champion(&mut self, observer: &mut dyn Observer) -> Result<Result<(), Failure>> {
        let runs = self.history().champion().map_or(0, |champion| champion.values.len() as u32);
        observer.tell(Progress::Note(
            "the champion once more, for the noise and to see whether the machine drifts",
        ));
        let ran = self.replicate_champion(runs + 1, observer)?;
        self.restore()?;
        self.keep_spread()?;
        if let Some(drift) = self.history().drift().filter(|drift| drift.is_clear(&self.noise(None))) {
            observer.tell(Progress::Note(&drift.to_string()));
        }
        Ok(ran)
    }

    /// Replicates of this tag, and the sum of those of other tags.
    pub(crate) fn all_replicates(&self) -> Vec<Replicates> {
        let mut all = self.history().replicates();
        let kept = self.kept_spreads().remove(&self.spread_key()).unwrap_or_default();
        let others =
            Spread::pooled(kept.into_iter().filter(|(tag, _)| tag != self.tag.as_str()).map(|(_, s)| s));
        if others.degrees > 0 {
            all.push(Replicates::Known(others.sigma(), others.degrees.min(MOST_DEGREES)));
        }
        all
    }

    /// Writes down what this tag has measured.
    pub(crate) fn keep_spread(&self) -> Result<()> {
        let own = Spread::pooled(self.history().replicates().iter().filter_map(Replicates::alone));
        if own.degrees == 0 {
            return Ok(());
        }
        let mut kept = self.kept_spreads();
        kept.entry(self.spread_key()).or_default().insert(self.tag.to_string(), own);
        let json = serde_json::to_vec_pretty(&kept).unwrap_or_default(); // strings and numbers: cannot fail
        crate::state::write_atomic(&self.spreads(), &json)
    }

    /// What is kept; nothing where the file is missing or damaged, since it can be measured again.
    fn kept_spreads(&self) -> Kept {
        fs::read(self.spreads())
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    fn spreads(&self) -> PathBuf {
        self.state.dir().join("noise.json")
    }

    /// What a σ holds for: other commands, another profile or device make another noise.
    fn spread_key(&self) -> String {
        let decides = ["task", "metric", "fit", "score"];
        let sections: Vec<_> =
            self.task.contract().into_iter().filter(|(name, _)| decides.contains(&name.as_str())).collect();
        let hash = prepare::manifest::hex(&Sha256::digest(format!("{sections:?}")));
        let profile = self.setting.profile.map_or("-", |profile| profile.name());
        format!("{} {profile} {} {}", self.task.metric.name, self.setting.device, &hash[..12])
    }
}

/// How the champion's latest run differs from those before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Value of the latest run less the mean of those before, in the metric's unit.
    pub value: f64,
    /// Runs before it.
    pub runs: u32,
    /// Tokens in the budget over those of the champion's first run; `None` where fit does not report them.
    pub speed: Option<f64>,
}

impl Drift {
    /// Standard errors by which a value has to differ. Of a hundred re-runs of a steady machine, fewer than
    /// one.
    const ERRORS: f64 = 3.0;
    /// A change of speed that time-budgeted training feels.
    const SPEED: f64 = 0.05;

    /// Of a champion with these values and one more run.
    pub(crate) fn of(champion: &TrialRecord, value: f64, tokens_m: Option<f64>) -> Option<Self> {
        let speed =
            tokens_m.zip(champion.tokens_m).map(|(now, then)| now / then).filter(|ratio| ratio.is_finite());
        Some(Self { value: value - mean(&champion.values)?, runs: champion.values.len() as u32, speed })
    }

    /// Whether the machine is slower or faster than when the champion was measured.
    pub fn speed_changed(&self) -> bool {
        self.speed.is_some_and(|speed| (speed - 1.0).abs() > Self::SPEED)
    }

    /// Whether it is more than noise.
    pub fn is_clear(&self, noise: &Noise) -> bool {
        let error = noise.sigma().map(|sigma| sigma * (1.0 + 1.0 / f64::from(self.runs)).sqrt());
        self.speed_changed() || error.is_some_and(|error| self.value.abs() > Self::ERRORS * error)
    }
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the machine drifts: the champion's last run differs by {:+.6} from the {} before",
            self.value, self.runs
        )?;
        match self.speed {
            Some(speed) => write!(f, ", at {:.0} % of its first run's speed", 100.0 * speed),
            None => Ok(()),
        }
    }
}
