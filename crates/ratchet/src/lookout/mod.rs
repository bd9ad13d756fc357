//! Fills the scene of `ratchet watch`: looks at a tag and at what the driver does, about twice a second.
//!
//! Reads only, takes no lock, and reads nothing twice that has not changed: of a journal what was added, of a
//! loss curve its new rows. What a trial writes is hostile: of each file a bounded part, of each text a line.

mod curve;
mod gpu;
mod limits;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jiff::{Timestamp, Zoned, tz::TimeZone};
use prepare::profile::cuda_device_present;
use watch::{
    Action, Scene,
    scene::{self, Standing},
    span,
};

pub use self::gpu::{COMMAND as GPU_COMMAND, serve as serve_gpu};
use self::{curve::LossCurve, gpu::Feed, limits::limits};
use crate::{
    config::{Goal, Task},
    control::{self, Wish},
    error::{Error, Result},
    hints::Hints,
    history::History,
    journal::{Follower, Status, TrialRecord},
    live::{self, Doing, Now},
    processes::resident_below,
    progress::Phase,
    proposer::Usage,
    runlog::{plain, tail_of},
    show::View,
    state::{State, Tag, TagDir},
};

/// Processes are looked for this often: it takes a look at every one of the machine.
const MEMORY_EVERY: Duration = Duration::from_secs(2);
/// Trials that tell how long a phase takes.
const RECENT: usize = 20;
/// Lines of a log's end among which its last one that says something is looked for.
const LAST_LINES: usize = 8;

/// Who looks.
pub struct Lookout {
    root: PathBuf,
    task: Task,
    state: State,
    asked: Option<Tag>,
    tag: Option<Tag>,
    journal: Follower,
    scene: Scene,
    /// Median seconds of each phase.
    usual: BTreeMap<Phase, f64>,
    /// The run that is being trained, by its folder and when that began, and its curve.
    fit: Option<(PathBuf, String, LossCurve)>,
    champion: Option<(u64, LossCurve)>,
    /// What this run has spent, and the length of the account when that was read.
    spent: (u64, String, Usage),
    memory: Option<(Instant, u64)>,
    gpu: Option<Feed>,
}

impl Lookout {
    /// Of the asked, else always the current tag; waits for one where there is none yet.
    ///
    /// Exit code 2 for a tag that was asked for and does not exist.
    pub fn open(root: &Path, asked: Option<Tag>) -> Result<Self> {
        let View { task, state, .. } = View::open(root, asked.clone())?;
        let scene = Scene {
            task: task.name().to_owned(),
            metric: task.metric.name.clone(),
            lower_is_better: task.metric.goal == Goal::Minimize,
            ..Scene::default()
        };
        Ok(Self {
            root: root.to_path_buf(),
            task,
            state,
            asked,
            tag: None,
            journal: Follower::default(),
            scene,
            usual: BTreeMap::new(),
            fit: None,
            champion: None,
            spent: Default::default(),
            memory: None,
            gpu: cuda_device_present().then(Feed::start).flatten(),
        })
    }

    /// How it is now.
    pub fn look(&mut self) -> &Scene {
        self.scene.clock = Zoned::now().strftime("%H:%M:%S").to_string();
        self.scene.gpu = self.gpu.as_ref().and_then(Feed::figures);
        self.scene.trouble = self.catch_up().err().map(|error| plain(&error.to_string(), 300));
        let pid = self.state.running();
        let now = live::now(&self.state);
        let here = |now: &Now| self.tag.as_ref().is_some_and(|tag| tag.as_str() == now.tag);
        let elsewhere = now.as_ref().filter(|now| !here(now)).map(|now| plain(&now.tag, 64));
        let now = now.filter(here);
        self.stand(pid.filter(|_| elsewhere.is_none()), now.as_ref(), elsewhere);
        if let Some(tag) = &self.tag {
            let pending = Hints::of(&self.state.tag(tag)).pending(self.journal.history());
            self.scene.hints = pending.map_or(0, |hints| hints.len());
        }
        (self.scene.limits, self.scene.stop) = Default::default();
        if matches!(self.scene.standing, Standing::Running | Standing::Paused) {
            let spent = now.as_ref().map(|now| self.spent_by(&now.payer)).unwrap_or_default();
            (self.scene.limits, self.scene.stop) =
                limits(self.journal.history(), &spent, self.task.metric.goal, &Zoned::now());
        }
        self.scene.now = now.map(|now| self.under_way(&now));
        &self.scene
    }

    /// Does what a key asks for; what to tell the person.
    pub fn act(&self, action: &Action) -> String {
        let said = match action {
            Action::Pause => control::pause(&self.state),
            Action::Resume => control::resume(&self.state),
            Action::Stop => control::stop(&self.state, false),
            Action::Hint(text) => {
                View::open(&self.root, self.tag.clone()).and_then(|view| view.add_hint(text))
            }
            Action::Quit | Action::Suspend | Action::Redraw => return String::new(),
        };
        plain(&said.unwrap_or_else(|error| error.to_string()), 300)
    }

    /// Reads what has been added to the journal, of another tag where that is the current one now.
    fn catch_up(&mut self) -> Result<()> {
        let tag = match &self.asked {
            Some(tag) => Some(tag.clone()),
            None => self.state.current()?.filter(|tag| self.state.tag(tag).journal().exists()),
        };
        let Some(dir) = tag.as_ref().map(|tag| self.state.tag(tag)) else { return Ok(()) };
        let turned = tag != self.tag;
        if turned {
            (self.journal, self.fit, self.champion) = Default::default();
            self.scene.trials.clear();
            self.tag = tag;
        }
        if self.journal.catch_up(&dir.journal())? || turned {
            self.retell(&dir);
        }
        Ok(())
    }

    /// What follows from the journal.
    fn retell(&mut self, dir: &TagDir) {
        let history = self.journal.history();
        let scene = &mut self.scene;
        scene.tag = self.tag.as_ref().map(Tag::to_string);
        let place = history.init().map(|init| [init.profile.as_deref(), Some(&init.device)]);
        scene.place = plain(&place.into_iter().flatten().flatten().collect::<Vec<_>>().join(", "), 60);
        let mark = |record: &TrialRecord| scene::Mark { trial: record.trial, value: record.value };
        scene.best = history.champion().map(mark);
        scene.baseline = history.baseline().map(mark);
        let value = |mark: &Option<scene::Mark>| mark.as_ref().and_then(|mark| mark.value);
        let goal = self.task.metric.goal;
        scene.gain = value(&scene.baseline).zip(value(&scene.best)).map(|(from, to)| goal.gain(from, to));
        let count = |status| history.count(status);
        scene.counts = scene::Counts {
            keeps: count(Status::Keep),
            discards: count(Status::Discard),
            crashes: count(Status::Crash),
        };
        // rows stay as they are, but for a champion that was run again
        let trials = history.trials();
        scene.trials.truncate(trials.len());
        for (shown, record) in scene.trials.iter_mut().zip(trials) {
            shown.value = record.value;
        }
        scene.trials.extend(trials[scene.trials.len()..].iter().map(row));
        self.usual = usual(history);
        let champion = history.champion().map(|record| record.trial);
        if self.champion.as_ref().map(|(trial, _)| *trial) != champion {
            self.champion = champion.map(|trial| {
                let mut curve = LossCurve::default();
                curve.read_whole(&dir.trial(trial).join("steps.csv"));
                (trial, curve)
            });
            scene.champion_curve =
                self.champion.as_ref().map(|(_, curve)| curve.points()).unwrap_or_default();
        }
    }

    /// Whether somebody is at work, and what there is to say of it.
    fn stand(&mut self, pid: Option<u32>, now: Option<&Now>, elsewhere: Option<String>) {
        let history = self.journal.history();
        let wish = pid.and_then(|pid| control::wish(&self.state, pid));
        let paused = now.is_some_and(|now| now.doing == Doing::Paused);
        let took = |run: &crate::history::Begun| span(seconds_since(&run.at));
        let run = history.run();
        self.scene.pausing = wish == Some(Wish::Pause);
        (self.scene.standing, self.scene.why) = match (&self.tag, pid, wish) {
            (None, ..) => (Standing::NoTag, String::new()),
            (_, Some(_), Some(wish)) => {
                let then = match wish {
                    Wish::Pause if !paused => ", pauses after this trial",
                    Wish::Stop => ", ends after this trial",
                    Wish::StopNow => ", ends now",
                    Wish::Go | Wish::GoOn | Wish::Pause => "",
                };
                let standing = if paused { Standing::Paused } else { Standing::Running };
                let since =
                    if paused { now.map(|now| span(seconds_since(&now.since))) } else { run.map(took) };
                (standing, since.map_or(String::new(), |since| format!("for {since}")) + then)
            }
            (_, Some(pid), None) => (Standing::Busy, format!("(pid {pid}, no `ratchet run`)")),
            (_, None, _) => {
                let ended =
                    run.and_then(|run| run.ended.as_deref()).map(|at| format!("since {}", time_of_day(at)));
                let why = history.last_stop().map(|reason| plain(reason, 100));
                let interrupted = history.open().map(|trial| format!("trial {trial} was interrupted"));
                let other = elsewhere.map(|tag| format!("here; at work on tag {tag}"));
                let parts: Vec<String> = match other {
                    Some(other) => vec![other],
                    None => [ended, why.or(interrupted)].into_iter().flatten().collect(),
                };
                (Standing::Over, parts.join(": "))
            }
        };
    }

    /// What is done now.
    fn under_way(&mut self, now: &Now) -> scene::Now {
        let mut shown = scene::Now {
            doing: now.doing.to_string(),
            detail: plain(&now.detail, 100),
            spent_s: seconds_since(&now.since),
            ..scene::Now::default()
        };
        if let Some(open) = &now.trial {
            shown.title = format!("trial {}", open.trial);
            shown.description = plain(&open.description, 200);
            shown.proposer = plain(&open.proposer, 60);
            shown.done = open.done.iter().take(8).map(|(phase, s)| (phase.to_string(), *s)).collect();
        }
        if now.doing == Doing::Between && now.trial.is_some() {
            shown.doing = "begins".to_owned();
        }
        let Doing::Phase(phase) = now.doing else { return shown };
        let again = now.folder.as_deref().and_then(again);
        if let Some((trial, run)) = &again {
            let of = if now.trial.is_some() { ", to decide" } else { "" };
            shown.detail = format!("of trial {trial} again, run {run}{of}");
            if now.trial.is_none() {
                shown.title = format!("trial {trial} again");
            }
        }
        let usual = |phase| self.usual.get(&phase).copied();
        shown.about_s = match (now.about_s, usual(phase)) {
            (Some(budget), Some(usual)) => Some(budget.max(usual)),
            (budget, usual) => budget.or(usual),
        };
        if again.is_none() && now.trial.is_some() {
            let steps = &self.task;
            let all = [
                (Phase::Build, steps.build.is_some()),
                (Phase::Preflight, steps.preflight.is_some()),
                (Phase::Fit, steps.fit.is_some()),
                (Phase::Score, true),
            ];
            let to_come =
                all.into_iter().filter(|(next, there)| *there && *next > phase).map(|(next, _)| next);
            let to_come: Vec<Phase> = to_come.collect();
            shown.left_s = shown.about_s.and_then(|about| {
                let rest: Option<f64> = to_come.iter().map(|phase| usual(*phase)).sum();
                Some((about - shown.spent_s).max(0.0) + rest?)
            });
            shown.to_come = to_come.iter().map(Phase::to_string).collect();
        }
        let folder = self
            .tag
            .as_ref()
            .zip(now.folder.as_ref())
            .map(|(tag, folder)| self.state.tag(tag).path().join(folder));
        if let Some(folder) = folder {
            if phase == Phase::Build {
                shown.line = last_line(&folder.join("build.log"));
            }
            self.follow_fit(&folder, phase, &now.since);
        }
        if let Some((_, _, curve)) = &self.fit {
            shown.curve = curve.points();
            shown.loss = curve.loss();
            shown.champion_loss =
                self.champion.as_ref().and_then(|(_, champion)| champion.at(curve.progress()));
            shown.steps = (curve.rows() > 0).then(|| curve.rows());
            shown.tokens_s = curve.tokens_a_second();
        }
        if self.memory.is_none_or(|(at, _)| at.elapsed() >= MEMORY_EVERY) {
            self.memory = Some((Instant::now(), resident_below(now.pid)));
        }
        shown.memory_bytes = self.memory.map(|(_, bytes)| bytes).filter(|bytes| *bytes > 0);
        shown
    }

    /// Reads on in the loss curve of a run: while it trains in what is the contestant's, afterwards in ours.
    fn follow_fit(&mut self, folder: &Path, phase: Phase, since: &str) {
        let same = self
            .fit
            .as_ref()
            .is_some_and(|(of, began, _)| of == folder && (phase == Phase::Score || began == since));
        if !same {
            let follows = matches!(phase, Phase::Fit | Phase::Score);
            self.fit = follows.then(|| (folder.to_path_buf(), since.to_owned(), LossCurve::default()));
        }
        if let Some((_, _, curve)) = &mut self.fit {
            let place = if phase == Phase::Fit { folder.join("out") } else { folder.to_path_buf() };
            curve.read_on(&place.join("steps.csv"));
        }
    }

    /// What a run has spent; the account is read when it has grown.
    fn spent_by(&mut self, payer: &str) -> Usage {
        let length = self.state.dir().join("spending.jsonl").metadata().map_or(0, |meta| meta.len());
        let (read, of, usage) = &self.spent;
        if *read == length && of == payer {
            return *usage;
        }
        let spent = self.state.spent_in(payer).ok().filter(|_| length > 0);
        let usage = spent.map_or(Usage::default(), Usage::from);
        self.spent = (length, payer.to_owned(), usage);
        usage
    }
}

/// A trial that is run again, and which run that is, by the folder: `trials/0007/runs/1`.
fn again(folder: &Path) -> Option<(u64, String)> {
    let parts: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).collect();
    let ["trials", trial, _, run] = parts[..] else { return None };
    Some((trial.parse().ok()?, plain(run, 8)))
}

fn row(record: &TrialRecord) -> scene::Trial {
    scene::Trial {
        trial: record.trial,
        status: match record.status {
            Status::Keep => scene::Status::Keep,
            Status::Discard => scene::Status::Discard,
            Status::Crash => scene::Status::Crash,
        },
        outcome: plain(&record.verdict.outcome, 40),
        value: record.value,
        delta: record.delta,
        seconds: record.seconds,
        memory_gb: record.memory_gb,
        proposer: plain(&record.proposer, 40),
        description: plain(&record.proposal.description, 200),
        ended: time_of_day(&record.ended),
    }
}

/// The median of what each phase took in the last trials that were scored.
fn usual(history: &History) -> BTreeMap<Phase, f64> {
    let mut seconds: BTreeMap<Phase, Vec<f64>> = BTreeMap::new();
    for record in history.trials().iter().rev().filter(|record| record.value.is_some()).take(RECENT) {
        record.phases.iter().for_each(|(phase, s)| seconds.entry(*phase).or_default().push(*s));
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    seconds.into_iter().map(|(phase, all)| (phase, median(all))).collect()
}

fn seconds_since(at: &str) -> f64 {
    let at = at.parse::<Timestamp>();
    at.map_or(0.0, |at| Timestamp::now().duration_since(at).as_secs_f64().max(0.0))
}

/// `23:15`, here.
fn time_of_day(at: &str) -> String {
    let at = at.parse::<Timestamp>().map(|at| at.to_zoned(TimeZone::system()));
    at.map_or("-".to_owned(), |at| at.strftime("%H:%M").to_string())
}

/// The last line of a log that is being written.
fn last_line(path: &Path) -> String {
    let end = tail_of(path, LAST_LINES);
    plain(end.iter().rfind(|line| !line.is_empty()).map_or("", String::as_str), 100)
}

/// The error where there is no terminal to draw on. Exit code 2.
pub fn no_terminal() -> Error {
    Error::usage("`ratchet watch` draws on a terminal, and there is none here")
        .hint("`ratchet status` prints where it stands")
}
