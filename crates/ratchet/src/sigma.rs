//! σ from tag to tag: what one night has measured, the next one on the same machine starts from.
//!
//! `.ratchet/noise.json` holds, for each combination of metric, profile, device and commands, what each tag
//! has measured. A tag writes its own entry only, so that nothing is counted twice.

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use prepare::profile::Profile;
use sha2::{Digest, Sha256};

use crate::{
    config::Task,
    error::{Error, Result},
    history::{self, History, mean},
    journal::TrialRecord,
    measure::Failure,
    night::Playback,
    noise::{Noise, Replicates, Runs, Spread},
    plain_file,
    progress::{Observer, Progress},
    session::Session,
    state::State,
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
        let spread = Spread::pooled(self.known_noise().replicates().iter().filter_map(Replicates::alone));
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
        if let Some(drift) = self.known_noise().clear_drift() {
            observer.tell(Progress::Note(&drift.to_string()));
        }
        Ok(ran)
    }

    /// Writes down what this tag has measured.
    pub(crate) fn keep_spread(&self) -> Result<()> {
        let own = Spread::pooled(self.history().replicates().iter().filter_map(Replicates::alone));
        if own.degrees == 0 || self.night.is_some() {
            return Ok(());
        }
        let known = self.known_noise();
        let mut kept = known.kept();
        kept.entry(known.key()).or_default().insert(self.tag.to_string(), own);
        let json = serde_json::to_vec_pretty(&kept).unwrap_or_default(); // strings and numbers: cannot fail
        crate::state::write_atomic(&spreads(&self.state), &json)
    }

    pub(crate) fn known_noise(&self) -> KnownNoise<'_> {
        KnownNoise {
            task: &self.task,
            state: &self.state,
            tag: self.tag.as_str(),
            history: self.history(),
            profile: self.setting.profile,
            device: &self.setting.device,
            night: self.night.as_ref(),
        }
    }

    /// σ from all replicates, the open trial's included, else what is stated for the task.
    pub fn noise(&self, open: Option<&Runs>) -> Noise {
        self.known_noise().noise(open)
    }
}

/// All that is known of a tag's noise.
pub(crate) struct KnownNoise<'a> {
    pub(crate) task: &'a Task,
    pub(crate) state: &'a State,
    pub(crate) tag: &'a str,
    pub(crate) history: &'a History,
    pub(crate) profile: Option<Profile>,
    pub(crate) device: &'a str,
    /// A night that is played back, which knew what it knew.
    pub(crate) night: Option<&'a Playback>,
}

impl KnownNoise<'_> {
    /// σ from all replicates, the open trial's included, else what is stated for the task.
    pub(crate) fn noise(&self, open: Option<&Runs>) -> Noise {
        let stated = match (self.task.accept.sigma, self.profile) {
            (Some(sigma), _) => Noise::stated(sigma),
            (None, Some(profile)) if self.task.score.exam => Noise::of_profile(profile),
            _ => Noise::unknown(),
        };
        let mut replicates = self.replicates();
        if let (Some(open), Some(champion)) = (open, self.history.champion()) {
            let champion = champion.values.iter().copied();
            replicates.extend(history::replicates(&open.values().collect::<Vec<_>>(), champion));
        }
        Noise::estimate(&replicates, stated)
    }

    /// What the champion's latest run shows of the machine, where it is more than the noise known before it.
    pub(crate) fn clear_drift(&self) -> Option<Drift> {
        let before = self.history.before_latest_run();
        let noise = KnownNoise { history: &before, ..*self }.noise(None);
        self.history.drift().filter(|drift| drift.is_clear(&noise))
    }

    /// Replicates of this tag, and the sum of those of other tags.
    fn replicates(&self) -> Vec<Replicates> {
        let mut all = self.history.replicates();
        let others = match self.night {
            Some(night) => night.noise_of_other_tags(),
            None => self.of_other_tags(),
        };
        if let Some(others) = others {
            all.push(Replicates::Known(others.sigma(), others.degrees.min(MOST_DEGREES)));
        }
        all
    }

    /// What other tags have measured together; `None` where that is nothing.
    pub(crate) fn of_other_tags(&self) -> Option<Spread> {
        let kept = self.kept().remove(&self.key()).unwrap_or_default();
        let others = Spread::pooled(kept.into_iter().filter(|(tag, _)| tag != self.tag).map(|(_, s)| s));
        (others.degrees > 0).then_some(others)
    }

    /// What is kept; nothing where the file is missing or damaged, since it can be measured again.
    fn kept(&self) -> Kept {
        plain_file::read(&spreads(self.state))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// What a σ holds for: other commands, another profile or device make another noise.
    fn key(&self) -> String {
        let decides = ["task", "metric", "fit", "score"];
        let sections: Vec<_> =
            self.task.contract().into_iter().filter(|(name, _)| decides.contains(&name.as_str())).collect();
        let hash = prepare::manifest::hex(&Sha256::digest(format!("{sections:?}")));
        let profile = self.profile.map_or("-", |profile| profile.name());
        format!("{} {profile} {} {}", self.task.metric.name, self.device, &hash[..12])
    }
}

fn spreads(state: &State) -> PathBuf {
    state.dir().join("noise.json")
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
