//! The append-only, fsynced record that is the truth; everything else is derived from it.
//!
//! One JSON object a line. A last line without its newline was being written when the driver died: it is
//! cut off, and the trial it belonged to is open again. Nothing is ever rewritten.

mod follower;

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

pub use self::follower::Follower;
use crate::{
    edit_class::EditClass,
    error::{Doing, Error, Result},
    history::History,
    lines::Lines,
    plain_file,
    progress::Phase,
    proposer::{Demand, Nothing, Proposal, Usage},
    search::{Change, Use, cycle::CycleEnd, research::SessionEnd},
    source::TreeHash,
    verdict::Verdict,
};

/// How it is written.
const LINES: Lines = Lines {
    name: "the journal",
    was: "was",
    version: 1,
    remedy: "restore the file, or start afresh with --tag",
};

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It became the champion.
    Keep,
    /// It was scored and not kept.
    Discard,
    /// It has no score.
    Crash,
}

impl Status {
    /// As it stands in `results.tsv`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Discard => "discard",
            Self::Crash => "crash",
        }
    }
}

/// One finished trial: a row of `results.tsv`, and more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// 1 is the baseline.
    pub trial: u64,
    /// How it ended.
    pub status: Status,
    /// The mean of `values`; `None` for a crash.
    pub value: Option<f64>,
    /// One value a run, seed 0 first.
    pub values: Vec<f64>,
    /// Value minus the champion's at that time, in the metric's own sign.
    pub delta: Option<f64>,
    /// Peak memory of fit and score.
    pub memory_gb: f64,
    /// Time from the candidate to the verdict, replicates included.
    pub seconds: f64,
    /// The candidate's commit, 40 hexadecimal digits.
    pub commit: Option<String>,
    /// The trial that the candidate was made from; `None` for a baseline.
    pub parent: Option<u64>,
    /// The promising trial whose edits it holds besides its own.
    #[serde(default)]
    pub carries: Option<u64>,
    /// The trial whose files it started from instead of the champion's, to look for a way over a plateau.
    #[serde(default)]
    pub excursion: Option<u64>,
    /// How deep the edit goes, against the files it started from; `None` for a baseline.
    #[serde(default)]
    pub class: Option<EditClass>,
    /// Whether it was made while another trial trained.
    #[serde(default)]
    pub ahead: bool,
    /// The version of the human's brief it was proposed under: the name of its file in `.ratchet/briefs/`.
    #[serde(default)]
    pub program: Option<String>,
    /// What the driver asked of its proposer.
    #[serde(default)]
    pub demand: Demand,
    /// What mechanisms did for it, those that were off included.
    #[serde(default)]
    pub uses: Vec<Use>,
    /// Who proposed it.
    pub proposer: String,
    /// The proposal, without its edits (they stand in `diff.patch`).
    pub proposal: Proposal,
    /// The candidate's editable files by tokens.
    pub source: TreeHash,
    /// The files that it changes, relative to the root; of many the first.
    #[serde(default)]
    pub files: Vec<String>,
    /// Lines of the editable files.
    pub lines: u64,
    /// Tokens trained on, in millions, where fit reports them.
    pub tokens_m: Option<f64>,
    /// Model FLOPs utilisation in percent, where fit reports it.
    pub mfu_percent: Option<f64>,
    /// The decision and what it rests on.
    pub verdict: Verdict,
    /// Seconds spent in each phase, replicates included.
    #[serde(default)]
    pub phases: Vec<(Phase, f64)>,
    /// When the trial ended, RFC 3339 in UTC.
    pub ended: String,
}

/// What a tag starts from and is held to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Init {
    /// The tag.
    pub tag: String,
    /// The commit that the baseline is.
    pub base: String,
    /// (section, canonical JSON) of `ratchet.toml`, as it decides values.
    pub contract: Vec<(String, String)>,
    /// Hash of every protected file of the base.
    pub protected: String,
    /// The profile, for a task that has them.
    pub profile: Option<String>,
    /// The device, for example `cpu` or `NVIDIA H200`.
    pub device: String,
}

/// What is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The tag was created; always first. Again where, before its first keep, it starts from another commit
    /// or contract.
    Init(Init),
    /// A run began.
    RunStarted {
        /// When.
        at: String,
        /// The rules that may end it, as given.
        rules: String,
    },
    /// A run ended.
    RunEnded {
        /// When.
        at: String,
        /// Which rule ended it.
        reason: String,
    },
    /// A run waits.
    Paused {
        /// When.
        at: String,
        /// What for; `None` where a person asked it to pause.
        #[serde(default)]
        why: Option<String>,
    },
    /// It waits no longer.
    Resumed {
        /// When.
        at: String,
    },
    /// A proposal was asked for and came to nothing.
    NoProposal {
        /// Who was asked.
        proposer: String,
        /// Why nothing came of it.
        reason: String,
        /// The same as a word.
        #[serde(default)]
        kind: Nothing,
        /// What mechanisms did.
        #[serde(default)]
        uses: Vec<Use>,
    },
    /// A person's or an agent's `try` was refused; it is no trial.
    Refused {
        /// When.
        at: String,
        /// Why.
        reason: String,
    },
    /// A proposal that was made while a trial trained, and could not be used.
    Wasted {
        /// Who made it.
        proposer: String,
        /// What it was.
        description: String,
        /// Why it could not be used.
        reason: String,
        /// What it cost.
        usage: Usage,
        /// What it took.
        seconds: f64,
    },
    /// A trial is under way.
    Opened {
        /// Its number; free again when it never closes.
        trial: u64,
        /// What the candidate was made from.
        parent: Option<u64>,
        /// Its commit.
        commit: String,
        /// The hint that it takes up.
        #[serde(default)]
        hint: Option<String>,
    },
    /// The open trial is given up: it has no row, and its number is free again.
    Abandoned {
        /// Its number.
        trial: u64,
        /// Why.
        reason: String,
    },
    /// A further run of an earlier trial, for a decision or on request.
    Replicated {
        /// The trial that was run again.
        trial: u64,
        /// Which seed: 0 is that of the trial itself.
        run: u32,
        /// Its value; `None` when it crashed.
        value: Option<f64>,
        /// How long it took.
        seconds: f64,
        /// Whether it counts: `rerun` only compares.
        counts: bool,
        /// Tokens trained on, in millions, where fit reports them.
        #[serde(default)]
        tokens_m: Option<f64>,
        /// Seconds of it spent training.
        #[serde(default)]
        fit_s: f64,
    },
    /// A kept model was scored on the held-out rows, for people only.
    Audited {
        /// The trial.
        trial: u64,
        /// Its value there.
        value: f64,
        /// How long it took.
        seconds: f64,
    },
    /// The champion was compared with the baseline at another budget and depth; no trial.
    Transferred {
        /// Where, below the tag's folder.
        folder: String,
        /// Time to train.
        budget_s: f64,
        /// The depth.
        depth: u32,
        /// The champion's trial.
        champion: u64,
        /// By how much it was better there; `None` when no seed has a value on both sides.
        gain: Option<f64>,
        /// The standard error of `gain`.
        error: Option<f64>,
    },
    /// Accepted keeps were put together and run against the baseline; no trial. A branch of them follows.
    Accepted {
        /// When.
        at: String,
        /// Where, below the tag's folder.
        folder: String,
        /// The branch; `None` where its head has no value.
        branch: Option<String>,
        /// Its last commit.
        head: String,
        /// The keeps.
        trials: Vec<u64>,
        /// By how much it was better than the baseline.
        gain: Option<f64>,
        /// The standard error of `gain`.
        error: Option<f64>,
        /// Whether that is more than noise explains.
        confirmed: bool,
    },
    /// The settings of the search were looked at.
    Cycle {
        /// When it was over.
        at: String,
        /// What it led to.
        end: Box<CycleEnd>,
    },
    /// A research session is over; what it wrote comes in, and a restart goes with it.
    Session {
        /// When it was over.
        at: String,
        /// What it led to.
        end: Box<SessionEnd>,
    },
    /// Proposers look at the trials afresh from here on.
    Restarted {
        /// When.
        at: String,
    },
    /// A mechanism may do something else from here on.
    Mechanism(Change),
    /// A trial is over.
    Closed(Box<TrialRecord>),
    /// The branch has followed the last keep.
    Advanced {
        /// Where it stands.
        commit: String,
    },
}

/// The journal, open for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    history: History,
}

impl Journal {
    /// Starts a tag's journal; the folder exists. Appears whole, with its `init`, or not at all.
    pub fn create(path: &Path, init: Init) -> Result<Self> {
        crate::state::write_atomic(path, &LINES.line(&Event::Init(init), path)?)?;
        Self::open(path)
    }

    /// Opens a journal to go on with it: a torn last line is cut off.
    pub fn open(path: &Path) -> Result<Self> {
        plain_file::open(path).doing("open the journal", path)?; // else a FIFO in its place would block
        let mut file =
            OpenOptions::new().read(true).append(true).open(path).doing("open the journal", path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).doing("read the journal", path)?;
        let (history, whole) = replay(&text, path)?;
        if whole < text.len() {
            file.set_len(whole as u64).doing("cut the torn end off the journal", path)?;
            file.sync_all().doing("sync the journal", path)?;
        }
        file.seek(SeekFrom::End(0)).doing("open the journal", path)?;
        Ok(Self { path: path.to_path_buf(), file, history })
    }

    /// What it adds up to.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Writes a record down; when this returns it is on disk.
    pub fn append(&mut self, event: Event) -> Result<()> {
        let line = LINES.line(&event, &self.path)?;
        let meta = self.file.metadata().doing("look at the journal", &self.path)?;
        if meta.nlink() == 0 {
            return Err(Error::internal("the journal was removed while it was in use").at(&self.path));
        }
        let before = meta.len();
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // half a line would hide the next record behind it
            let _ = self.file.set_len(before);
            return Err(error)
                .doing("write the journal", &self.path)
                .map_err(|error| error.hint("free some disk space"));
        }
        self.history.apply(event);
        Ok(())
    }
}

/// Reads what a journal adds up to, changing nothing; for `status` and the like.
pub fn read(path: &Path) -> Result<History> {
    replay(&bytes_of(path)?, path).map(|(history, _)| history)
}

/// Reads what a journal holds, event by event, changing nothing.
pub fn events(path: &Path) -> Result<Vec<Event>> {
    LINES.parse(&bytes_of(path)?, 0, path).map(|(events, _)| events)
}

fn bytes_of(path: &Path) -> Result<Vec<u8>> {
    plain_file::read_whole(path).doing("read the journal", path)
}

/// The history, and the length of the whole lines.
fn replay(text: &[u8], path: &Path) -> Result<(History, usize)> {
    let (events, whole) = LINES.parse::<Event>(text, 0, path)?;
    let mut history = History::default();
    events.into_iter().for_each(|event| history.apply(event));
    if history.init().is_none() {
        return Err(Error::internal("the journal has no beginning").at(path).hint("start afresh with --tag"));
    }
    Ok((history, whole))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        noise::{Noise, Runs, Value},
        verdict::{Crash, Outcome, Policy, Score, verdict},
    };

    fn judged(value: Option<f64>) -> Verdict {
        let outcome = match value {
            Some(value) => Outcome::Scored(Score {
                runs: Runs::new(Value::new(value).unwrap()),
                lines: 1,
                memory_gb: 0.0,
                sampling: 0.0,
            }),
            None => Outcome::Crashed(Crash { outcome: "fit_failed".into(), reason: "boom".into() }),
        };
        verdict(None, &outcome, &Noise::unknown(), &Policy::default())
    }

    pub(crate) fn init() -> Init {
        Init {
            tag: "t".into(),
            base: "0".repeat(40),
            contract: vec![],
            protected: String::new(),
            profile: None,
            device: "cpu".into(),
        }
    }

    /// A record with a value, or a crash without.
    pub(crate) fn record(trial: u64, status: Status, value: Option<f64>) -> TrialRecord {
        let files: std::collections::BTreeMap<String, String> = [("x".into(), format!("{trial}"))].into();
        TrialRecord {
            trial,
            status,
            value,
            values: value.into_iter().collect(),
            delta: None,
            memory_gb: 0.0,
            seconds: 1.0,
            commit: Some(format!("{trial:040x}")),
            parent: (trial > 1).then_some(1),
            carries: None,
            excursion: None,
            ahead: false,
            class: None,
            program: None,
            demand: Demand::default(),
            uses: Vec::new(),
            proposer: "test".into(),
            proposal: Proposal { description: format!("number {trial}"), ..Default::default() },
            source: TreeHash::of(&files),
            files: Vec::new(),
            lines: 1,
            tokens_m: None,
            mfu_percent: None,
            verdict: judged(value),
            phases: Vec::new(),
            ended: "2026-01-01T00:00:00Z".into(),
        }
    }

    pub(crate) fn closed(trial: u64, status: Status, value: Option<f64>) -> Event {
        Event::Closed(Box::new(record(trial, status, value)))
    }

    #[test]
    fn a_restart_remembers_the_best() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let mut journal = Journal::create(&path, init()).unwrap();
        journal.append(closed(1, Status::Keep, Some(1.1))).unwrap();
        journal.append(closed(2, Status::Crash, None)).unwrap();
        journal.append(closed(3, Status::Discard, Some(1.174))).unwrap();
        drop(journal);
        let journal = Journal::open(&path).unwrap();
        assert_eq!(journal.history().champion().unwrap().trial, 1);
        assert_eq!(journal.history().next_trial(), 4);
        assert_eq!(journal.history().tried(&record(3, Status::Discard, None).source), Some(3));
    }

    #[test]
    fn a_torn_last_line_reopens_its_trial() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let mut journal = Journal::create(&path, init()).unwrap();
        journal.append(closed(1, Status::Keep, Some(1.0))).unwrap();
        journal
            .append(Event::Opened { trial: 2, parent: Some(1), commit: String::new(), hint: None })
            .unwrap();
        journal.append(closed(2, Status::Keep, Some(0.5))).unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
        for cut in [last + 1, last + 20, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut journal = Journal::open(&path).unwrap();
            assert_eq!(journal.history().open(), Some(2));
            assert_eq!(journal.history().champion().unwrap().value, Some(1.0));
            journal.append(closed(2, Status::Keep, Some(0.5))).unwrap();
            assert_eq!(read(&path).unwrap().trials().len(), 2);
        }
        std::fs::write(&path, [&whole[..last], b"{}\n"].concat()).unwrap();
        assert!(Journal::open(&path).unwrap_err().to_string().contains("line 4"));
    }

    #[test]
    fn an_abandoned_trials_number_is_used_again() {
        let mut history = History::default();
        history.apply(closed(1, Status::Keep, Some(1.0)));
        history.apply(Event::Opened { trial: 2, parent: Some(1), commit: String::new(), hint: None });
        history.apply(Event::Abandoned { trial: 2, reason: "killed".into() });
        assert_eq!((history.open(), history.next_trial()), (None, 2));
        assert_eq!(history.attempts(), 1, "the same proposal is made again");
    }

    #[test]
    fn a_crashed_baseline_may_be_tried_again() {
        let mut history = History::default();
        let crashed = record(1, Status::Crash, None);
        history.apply(Event::Closed(Box::new(crashed.clone())));
        assert_eq!(history.tried(&crashed.source), None);
        assert_eq!(history.next_trial(), 2);
    }

    #[test]
    fn replicates_change_the_mean_and_reruns_do_not() {
        let mut history = History::default();
        history.apply(closed(1, Status::Keep, Some(1.0)));
        let more = |counts| Event::Replicated {
            trial: 1,
            run: 1,
            value: Some(3.0),
            seconds: 2.0,
            counts,
            tokens_m: None,
            fit_s: 0.0,
        };
        history.apply(more(false));
        assert_eq!(history.trials()[0].value, Some(1.0));
        history.apply(more(true));
        assert_eq!((history.trials()[0].value, history.trials()[0].seconds), (Some(2.0), 3.0));
    }
}
