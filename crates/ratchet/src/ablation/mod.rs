//! Ablation: the ways to search against each other, on equal budgets, with the controls that a claim needs.
//!
//! Each repeat is a repository of its own, worked on by a process of its own through the same loop as a night's. The
//! repeats of one number share landscape, seeds and dice, so that groups are compared in pairs; nothing passes from
//! one repeat to another.

mod meter;
mod outcome;
mod plan;
mod plot;
mod repeat;
mod report;
mod statistics;

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

use self::{meter::RUN_S, repeat::Order};
pub use self::{
    meter::{Point, Used},
    outcome::Outcome,
    plan::{Asked, Folder, Group, On, Plan},
    repeat::{COMMAND, work},
    report::{Report, Row},
    statistics::{Comparison, Mean},
};
use crate::{
    commands::mark,
    companion::Companion,
    config::{Goal, Metric, Task},
    error::{Doing, Error, Kind, Result},
    exec::StopFlag,
    git::Repo,
    runlog::tail_of,
    state::{State, write_atomic},
};

/// How often a repeat's end is looked for.
const TICK: Duration = Duration::from_millis(20);

/// An ablation to be worked off.
struct Shift<'a> {
    plan: Plan,
    folder: Folder,
    root: &'a Path,
    jobs: usize,
    stop: &'a StopFlag,
    tell: &'a mut dyn FnMut(&str),
}

/// Runs an ablation from `root`, `jobs` repeats at a time, and writes its result down. `None` when it was stopped: the
/// same again goes on with it. `tell` hears a line now and then.
pub fn ablate(
    root: &Path,
    asked: &Asked,
    jobs: Option<usize>,
    stop: &StopFlag,
    tell: &mut dyn FnMut(&str),
) -> Result<Option<(Folder, Report)>> {
    let state = State::new(root);
    let (plan, _lock) = match asked.on {
        On::Sim => {
            (Plan::of(asked, Metric { name: "val_bpb".to_owned(), goal: Goal::Minimize }, None)?, None)
        }
        On::Gpt => {
            let (task, repo) = (Task::read(root)?, Repo::open(root)?);
            let plan = Plan::of(asked, task.metric, Some(repo.head()?.to_string()))?;
            (plan, Some(state.lock()?)) // one device, one trial at a time
        }
    };
    let out = asked.out.as_ref().map(|out| root.join(out));
    let folder = Folder::of(out.as_deref(), &plan, &state)?;
    let lock = File::create(folder.path().join("lock")).doing("create the lock in", folder.path())?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(Error::new(Kind::Locked, "this ablation is under way already").at(folder.path()));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = jobs.unwrap_or(if asked.on == On::Sim { cores } else { 1 });
    tell(&format!("{plan}: {}", folder.path().display()));
    let mut shift = Shift { plan, folder, root, jobs, stop, tell };
    let Some(budget_s) = shift.budget_s()? else { return Ok(None) };
    let all: Vec<(Group, usize)> = shift.plan.repeats().collect();
    let orders = all.iter().map(|(group, repeat)| shift.order(*group, *repeat, Some(budget_s))).collect();
    if !shift.work_off(orders)? {
        return Ok(None);
    }
    let outcomes = all
        .iter()
        .filter_map(|(group, repeat)| Outcome::read(&shift.folder.repeat(*group, *repeat)).transpose())
        .collect::<Result<Vec<_>>>()?;
    same_starts(&outcomes)?;
    let report = Report::of(&shift.plan, budget_s, outcomes);
    plot::draw(&report, &shift.folder.svg())?;
    let json =
        serde_json::to_vec_pretty(&report).map_err(|error| Error::internal("no JSON").because(error))?;
    write_atomic(&shift.folder.json(), &json)?;
    Ok(Some((shift.folder, report)))
}

impl Shift<'_> {
    fn order(&self, group: Group, repeat: usize, budget_s: Option<f64>) -> Order {
        let Plan { on, seed, .. } = self.plan;
        let task = (on == On::Gpt).then(|| self.root.to_path_buf());
        Order { group, repeat, on, seed, task, budget_s }
    }

    /// So many trials as the task takes: by the price list on `sim`, else by the clock, for which a baseline is run
    /// first. `None` when stopped.
    fn budget_s(&mut self) -> Result<Option<f64>> {
        let trials = self.plan.trials as f64;
        if self.plan.on == On::Sim {
            return Ok(Some(trials * RUN_S));
        }
        let timed = self.order(Group::A, 0, None);
        (self.tell)("one trial is timed first");
        if !self.work_off(vec![timed])? {
            return Ok(None);
        }
        let outcome = Outcome::read(&self.folder.repeat(Group::A, 0))?;
        Ok(outcome.map(|outcome| trials * outcome.used.trials_s))
    }

    /// Makes the repeats that are not there yet. Whether all are there in the end: `false` when stopped.
    fn work_off(&mut self, orders: Vec<Order>) -> Result<bool> {
        let began = Instant::now();
        let of = |order: &Order, folder: &Folder| folder.repeat(order.group, order.repeat);
        let mut left = Vec::new();
        let all = orders.len();
        for order in orders {
            if Outcome::read(&of(&order, &self.folder))?.is_none() {
                left.push(order);
            }
        }
        left.reverse();
        let missing = left.len();
        let mut under_way: Vec<(Order, Companion)> = Vec::new();
        while !(left.is_empty() && under_way.is_empty()) {
            if self.stop.is_set() {
                return Ok(false); // those under way are ended, and go on next time
            }
            while under_way.len() < self.jobs
                && let Some(order) = left.pop()
            {
                let folder = of(&order, &self.folder);
                order.write(&folder)?;
                let log = folder.join("log");
                let process = Companion::start(&folder, COMMAND, &mark(&folder), &log)
                    .doing("start a repeat, with its log", &log)?;
                under_way.push((order, process));
            }
            std::thread::sleep(TICK);
            let Some(at) = under_way.iter_mut().position(|(_, process)| process.is_done()) else { continue };
            let (order, _) = under_way.swap_remove(at);
            let folder = of(&order, &self.folder);
            if Outcome::read(&folder)?.is_none() {
                let log = folder.join("log");
                let last = tail_of(&log, 1).pop().unwrap_or_else(|| "it left no word".to_owned());
                return Err(Error::internal(format!(
                    "repeat {} of {} failed: {last}",
                    order.repeat, order.group
                ))
                .at(log)
                .hint("the same command goes on with what is done"));
            }
            let done = missing - left.len() - under_way.len();
            let each = began.elapsed() / done as u32;
            let rest = each * (missing - done) as u32;
            let _ = fs::remove_file(folder.join("points.jsonl")); // they stand in the outcome
            let (group, repeat) = (order.group, order.repeat);
            let (done, rest) = (all - missing + done, rest.as_secs_f64() / 60.0);
            (self.tell)(&format!("{done} of {all} done ({group}, repeat {repeat}); {rest:.1} min left"));
        }
        Ok(true)
    }
}

/// Every group of a repeat started from the same bytes.
fn same_starts(outcomes: &[Outcome]) -> Result<()> {
    for pair in outcomes.windows(2).filter(|pair| pair[0].repeat == pair[1].repeat) {
        if pair[0].start != pair[1].start {
            return Err(Error::internal(format!(
                "groups {} and {} of repeat {} started from different files: they cannot be compared",
                pair[0].group, pair[1].group, pair[0].repeat
            )));
        }
    }
    Ok(())
}
