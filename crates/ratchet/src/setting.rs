//! Where values belong: the profile and the device, and the data of a profile.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use prepare::{
    cache::{Cache, CacheError},
    exam::Exam,
    profile::{Corpus, Profile},
    rows::{Rows, Split},
};

use serde::{Deserialize, Serialize};

use crate::{
    config::Task,
    cuda::{self, Card, Cuda},
    error::{Error, Result},
    exec::{self, End, Spec, StopFlag},
    journal::Init,
    night::Playback,
    processes::MARK,
    progress::{Observer, Phase, Progress, last_lines},
    runlog::{RunLog, tail_of},
    state::State,
    weak::Vocabulary,
};

/// The profile and device of one tag on one machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setting {
    /// The profile, for a task that has them.
    pub profile: Option<Profile>,
    /// The device's name: `cpu`, or the GPU's.
    pub device: String,
    /// A budget other than the profile's, while a transfer runs.
    pub longer: Option<Duration>,
    /// The GPU, where trials can use it: `{features}` becomes `--features cuda`, and its devices are within reach.
    pub card: Option<Card>,
    /// The cache's root, once the data is open.
    cache_root: Option<PathBuf>,
    #[serde(skip)]
    data: Option<Data>,
}

#[derive(Debug)]
struct Data {
    rows: Rows,
    token_bytes: Vec<u8>,
    fingerprint: String,
}

impl Setting {
    /// One without a profile, for tests.
    #[cfg(test)]
    pub(crate) fn of(device: &str, card: Option<Card>) -> Self {
        Self { profile: None, device: device.to_owned(), longer: None, card, cache_root: None, data: None }
    }

    /// Chooses the profile, given what the user asked for and what the tag is fixed to.
    ///
    /// Exit code 2 when they differ. Says in one note why, where nobody asked.
    pub fn choose(
        task: &Task,
        asked: Option<Profile>,
        fixed: Option<&Init>,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        let card = match cuda::look(task.compiles_for_the_gpu()) {
            Cuda::Usable(card) => Some(card),
            Cuda::Unusable(obstacle) => {
                observer.tell(Progress::Note(&format!("the GPU is not used: {obstacle}")));
                None
            }
            Cuda::Absent => None,
        };
        let device = card.as_ref().map_or("cpu".to_owned(), |card| card.name.clone());
        let profile = if task.has_profiles() {
            let asked = Profile::requested(asked).map_err(|error| Error::usage(error.to_string()))?;
            let known = fixed.and_then(|init| init.profile.as_deref()).and_then(|name| name.parse().ok());
            match (asked, known) {
                (Some(asked), Some(known)) if asked != known => {
                    return Err(Error::usage(format!("this tag belongs to profile {known}, not {asked}"))
                        .hint("values of two profiles are never compared: start another with --tag"));
                }
                (_, Some(known)) => Some(known),
                (asked, None) => {
                    let choice = Profile::choose(asked, card.is_some(), Cache::is_prepared(Profile::Full));
                    if asked.is_none() {
                        observer.tell(Progress::Note(&format!("profile {}: {}", choice.profile, choice.why)));
                    }
                    if choice.profile.spec().corpus != Corpus::Bundled {
                        // before there is a tag: it would be tied to a profile that cannot run
                        Cache::open(choice.profile).map_err(|error| Error::environment(error.to_string()))?;
                    }
                    Some(choice.profile)
                }
            }
        } else if asked.is_some() {
            return Err(Error::usage("this task has no profiles")
                .hint("leave --profile out, or add a [prepare] section"));
        } else {
            None
        };
        if let Some(init) = fixed
            && init.device != device
        {
            return Err(Error::usage(format!(
                "this tag belongs to device {}, but this is {device}",
                init.device
            ))
            .hint("values of two devices are never compared: start another with --tag"));
        }
        Ok(Self { profile, device, longer: None, card, cache_root: None, data: None })
    }

    /// That of a recorded night. Exit code 2 for a tag that holds other values.
    pub(crate) fn recorded(night: &Playback, fixed: Option<&Init>) -> Result<Self> {
        let device = night.device();
        if fixed.is_some_and(|init| init.device != device) {
            return Err(Error::usage("a recorded night is played back into a tag of its own")
                .hint("name a new one with --tag"));
        }
        let profile = night.profile().and_then(|name| name.parse().ok());
        Ok(Self { profile, device, longer: None, card: None, cache_root: None, data: None })
    }

    /// The same for another process of the driver, which opens no data.
    pub(crate) fn handed(&self) -> Self {
        Self {
            profile: self.profile,
            device: self.device.clone(),
            longer: self.longer,
            card: self.card.clone(),
            cache_root: self.cache_root.clone(),
            data: None,
        }
    }

    /// Time to train; `None` where the task itself decides.
    pub fn budget(&self) -> Option<Duration> {
        self.longer.or(self.profile.map(|profile| profile.spec().budget))
    }

    /// Opens the profile's data, preparing it first when it is bundled and missing.
    ///
    /// Exit code 4 names the commands that help.
    pub fn ensure_data(
        &mut self,
        task: &Task,
        state: &State,
        stop: &StopFlag,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let (Some(profile), Some(step)) = (self.profile, &task.prepare) else { return Ok(()) };
        if self.data.is_some() {
            return Ok(());
        }
        let missing = |error: CacheError| Error::environment(error.to_string());
        let cache = match Cache::open(profile) {
            Ok(cache) => cache,
            Err(error) if profile.spec().corpus != Corpus::Bundled => return Err(missing(error)),
            Err(_) => {
                let limit = Duration::from_secs(step.timeout_s);
                observer.tell(Progress::Note(&format!("preparing the data of {profile}, once")));
                observer.tell(Progress::Phase { phase: Phase::Prepare, about: None, folder: None });
                let command: Vec<String> =
                    step.command.iter().map(|arg| arg.replace("{profile}", profile.name())).collect();
                let path = state.dir().join("prepare.log");
                let mut log = RunLog::create(&path);
                let mut env = exec::allowed_env();
                env.insert(MARK.into(), state.dir().into());
                env.extend(
                    ["RATCHET_CACHE", "CARGO_TARGET_DIR"]
                        .iter()
                        .filter_map(|name| Some((name.into(), std::env::var_os(name)?))),
                );
                // the user's own code in the user's own folder: not confined
                let spec = Spec::new(&command, state.root().into(), env, limit);
                let ended = exec::run(spec, &mut log, &mut last_lines(observer), stop);
                log.close();
                if ended.end == End::Stopped {
                    return Err(Error::internal("stopped while preparing data"));
                }
                if !ended.end.is_success() {
                    let last = tail_of(&path, 1).pop().unwrap_or_default();
                    return Err(Error::environment(format!(
                        "preparing the data of {profile} failed: the command {} {last}",
                        ended.end
                    ))
                    .at(&path)
                    .hint(format!("run it by hand: {}", command.join(" "))));
                }
                Cache::open(profile).map_err(missing)?
            }
        };
        self.cache_root = Some(Cache::root().map_err(missing)?);
        self.data = Some(Data {
            rows: cache.exam_rows(Split::Val).map_err(missing)?,
            token_bytes: cache.token_bytes().map_err(missing)?,
            fingerprint: cache.manifest().fingerprint(),
        });
        Ok(())
    }

    /// A fresh exam, with a nonce of its own.
    pub fn exam(&self) -> Result<Exam> {
        let (Some(profile), Some(data)) = (self.profile, &self.data) else {
            return Err(Error::internal("an exam needs a profile and its data"));
        };
        Exam::new(profile, data.rows.clone(), data.token_bytes.clone())
            .map_err(|error| Error::environment("the exam rows cannot be used").because(error))
    }

    /// The same over the held-out rows that no decision sees.
    pub fn audit_exam(&self) -> Result<Exam> {
        let (Some(profile), Some(data)) = (self.profile, &self.data) else {
            return Err(Error::internal("an audit needs a profile and its data"));
        };
        let missing = |error: CacheError| Error::environment(error.to_string());
        let rows = Cache::open(profile).map_err(missing)?.exam_rows(Split::Audit).map_err(missing)?;
        Exam::new(profile, rows, data.token_bytes.clone())
            .map_err(|error| Error::environment("the audit rows cannot be used").because(error))
    }

    /// An exam over rows of the training text, which decides nothing: whole documents' beginnings, evenly spread.
    /// `None` where the text is too short for one. With it a reader of its rows.
    pub(crate) fn development_exam(&self, rows: usize) -> Result<Option<(Exam, Rows, Vocabulary)>> {
        let (Some(profile), Some(data)) = (self.profile, &self.data) else { return Ok(None) };
        let missing = |error: CacheError| Error::environment(error.to_string());
        let cache = Cache::open_train(profile).map_err(missing)?;
        let train = cache.train_tokens().map_err(missing)?;
        let length = data.rows.context() + 1;
        let documents: Vec<usize> = (train.docs().windows(2))
            .filter(|bounds| (bounds[1] - bounds[0]) as usize >= length)
            .map(|bounds| bounds[0] as usize)
            .collect();
        let step = (documents.len() / rows).max(1);
        let picked = documents.into_iter().step_by(step).take(rows);
        let ids: Vec<u16> = picked.flat_map(|at| &train.tokens()[at..at + length]).copied().collect();
        let Ok(rows) = Rows::new(data.rows.context(), ids) else { return Ok(None) };
        let exam = Exam::new(profile, rows.clone(), data.token_bytes.clone())
            .map_err(|error| Error::environment("the training rows cannot be used").because(error))?;
        let vocabulary = Vocabulary::read(&cache.paths().tokenizer())?;
        Ok(Some((exam, rows, vocabulary)))
    }

    /// The cache's root, once the data is open.
    pub fn cache_root(&self) -> Option<&Path> {
        self.cache_root.as_deref()
    }

    /// Where the profile's data lies, once it is open.
    pub fn profile_dir(&self) -> Option<PathBuf> {
        Some(self.cache_root()?.join(self.profile?.name()))
    }

    /// Fingerprint of the data, once it is open.
    pub fn data_fingerprint(&self) -> Option<&str> {
        self.data.as_ref().map(|data| data.fingerprint.as_str())
    }
}
