//! One repeat of one group, in a process of its own: a fresh repository, the real loop, until the budget is used.
//!
//! It goes on where it was when it was ended: the repository stays until its outcome is written.

use std::{
    fs,
    path::{Path, PathBuf},
};

use mechanism::BUILTIN;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    meter::Meter,
    outcome::Outcome,
    plan::{Group, On},
};
use crate::{
    beginning::New,
    config::{Fallback, ProposerKind},
    error::{Doing, Error, Result},
    exec::StopFlag,
    git::{Repo, remove},
    plain_file,
    proposer::knobs::Tpe,
    run::{Crew, now},
    search::{
        Levels, Research,
        library::{Library, SCRIPT, Wish},
    },
    session::{Asked, Session},
    sim::{SIGMA, Sim},
    state::{Tag, write_atomic},
    stop::Rules,
};

/// The hidden command of the process.
pub const COMMAND: &str = "ablate-repeat";
/// The mechanism that a group has from its beginning.
pub(crate) const BROUGHT: &str = "brought";

/// What the process is to do; `order.json` in the repeat's folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) group: Group,
    pub(crate) repeat: usize,
    pub(crate) on: On,
    /// Of the ablation.
    pub(crate) seed: u64,
    /// The repository that is cloned; `None` on `sim`.
    pub(crate) task: Option<PathBuf>,
    /// Seconds of trials and proposals; `None` for the baseline alone.
    pub(crate) budget_s: Option<f64>,
}

impl Order {
    /// Hands the order to the process that will work in `folder`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).doing("create", folder)?;
        let json =
            serde_json::to_vec_pretty(self).map_err(|error| Error::internal("no order").because(error))?;
        write_atomic(&folder.join("order.json"), &json)
    }

    fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("order.json");
        let bytes = plain_file::read(&path).doing("read", &path)?;
        serde_json::from_slice(&bytes).map_err(|error| Error::internal("no order").at(&path).because(error))
    }

    /// The same for every group of a repeat, so that they meet the same luck: landscape, seeds of runs, dice.
    pub(crate) fn drawn(&self, what: &str) -> u64 {
        let hash = Sha256::digest(format!("ratchet ablation {} {} {what}", self.seed, self.repeat));
        u64::from(u32::from_le_bytes(hash[..4].try_into().unwrap_or_default()))
    }

    fn sim<'a>(&self, ratchet: &'a Path) -> Sim<'a> {
        Sim { landscape: self.drawn("landscape"), sigma: SIGMA, dice: self.drawn("dice"), ratchet }
    }

    fn tag(&self) -> Result<Tag> {
        Tag::parse(&format!("ablation-{}-{}", self.seed, self.repeat))
    }
}

/// The process: works off the order in `folder`. Ended before its time it leaves no outcome, and goes on when it is
/// started again.
pub fn work(folder: &Path, stop: StopFlag) -> Result<()> {
    let order = Order::read(folder)?;
    let root = folder.join("task");
    if !root.exists() {
        let unfinished = folder.join("task.new");
        if unfinished.exists() {
            remove(&unfinished)?;
        }
        match &order.task {
            Some(task) => Repo::open(task)?.clone_to(&unfinished)?,
            None => {
                let ratchet = std::env::current_exe().doing("find this program", folder)?;
                order.sim(&ratchet).write(&unfinished)?;
            }
        }
        fs::rename(&unfinished, &root).doing("rename", &unfinished)?;
    }
    let asked = Asked { tag: Some(order.tag()?), ..Asked::default() };
    let mut meter = Meter::new(&order, folder, stop.clone());
    let mut session = Session::open(&root, &asked, New::Created, stop, &mut meter)?;
    session.task.proposer.lookahead = false; // two trials' times would overlap, and could not be told apart
    session.task.proposer.fallback = Fallback::None;
    session.task.stop.max_crashes_in_a_row = 0;
    bring_along(&session, order.group)?;
    meter.attach(&session)?;
    let Some(reason) = run(&mut session, order.group, &mut meter)? else {
        return Err(Error::internal("ended before its time"));
    };
    let outcome = Outcome::of(&order, &session, meter, reason)?;
    keep(&session, folder)?;
    drop(session);
    outcome.write(folder)?;
    remove(&root)
}

/// The group's way to search, in place of the task's.
fn crew(group: Group) -> Crew {
    let sessions = |hints| Research::Sessions { hints };
    let (settings, research) = match group {
        Group::A | Group::T => (false, Research::No),
        Group::B => (true, Research::No),
        Group::C => (true, sessions(true)),
        Group::D => (false, sessions(true)),
        Group::M | Group::P | Group::H => (false, Research::Mechanisms),
        Group::R => (false, Research::Restarts),
        Group::N => (false, sessions(false)),
    };
    let tpe = group == Group::T;
    Crew {
        kind: tpe.then_some(ProposerKind::Knobs),
        levels: Some(Levels { settings, research }),
        proposer: if tpe { Some(Box::new(Tpe)) } else { None },
    }
}

/// Switches on the mechanisms that a group has from its beginning.
fn bring_along(session: &Session, group: Group) -> Result<()> {
    let library = Library::of(&session.state);
    let script = match group {
        Group::P => include_str!("nothing.rhai"),
        Group::H => include_str!("harm.rhai"),
        Group::M => {
            let new = BUILTIN.iter().filter(|_| library.wishes().is_ok_and(|wishes| wishes.is_empty()));
            let names: Vec<&str> = new.map(|builtin| builtin.name).collect();
            return names.into_iter().try_for_each(|name| library.wish(name, Wish { on: true, at: now() }));
        }
        _ => return Ok(()),
    };
    if !library.wishes()?.is_empty() {
        return Ok(()); // an earlier process did
    }
    let folder = library.path().join(BROUGHT);
    fs::create_dir_all(&folder).doing("create", &folder)?;
    write_atomic(&folder.join(SCRIPT), script.as_bytes())?;
    library.wish(BROUGHT, Wish { on: true, at: now() })
}

/// Runs until the budget is used; a proposer that has given up is asked again, as long as that costs it something.
/// `None` when it was ended before.
fn run(session: &mut Session, group: Group, meter: &mut Meter) -> Result<Option<String>> {
    loop {
        let before = meter.used();
        let trials = meter.alone().then_some(1);
        let summary = session.run(Rules { trials, ..Rules::default() }, crew(group), meter)?;
        meter.check()?;
        if meter.is_used_up() {
            return Ok(Some("the budget is used".to_owned()));
        }
        if session.stop.is_set() {
            return Ok(None);
        }
        if meter.alone() || meter.used() == before {
            return Ok(Some(summary.reason));
        }
    }
}

/// Keeps what the repeat is judged by: its journal, what was spent, and its mechanisms.
fn keep(session: &Session, folder: &Path) -> Result<()> {
    let state = session.state.dir();
    let kept = [
        (session.dir.journal(), "journal.jsonl"),
        (state.join("spending.jsonl"), "spending.jsonl"),
        (state.join("mechanisms"), "mechanisms"),
    ];
    for (from, name) in kept.iter().filter(|(from, _)| from.exists()) {
        let to = folder.join(name);
        if to.exists() {
            remove(&to)?;
        }
        fs::rename(from, &to).doing("keep", from)?;
    }
    Ok(())
}
