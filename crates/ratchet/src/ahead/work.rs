//! The companion's side: an order in, a candidate out.

use std::{path::Path, time::Instant};

use super::{Draft, Folder, Made, Order};
use crate::{
    build::{self, BuildFailure},
    candidate::{Candidate, Refusal},
    commands::{Place, seed},
    config::Task,
    error::{Error, Result},
    exec::StopFlag,
    git::{Of, Repo, Worktree},
    journal, plain_file,
    progress::{Observer, Progress},
    proposer::{Proposer, Repair},
    proposing::{Ask, Desk, NoCandidate, Proposed},
    search::Use,
    state::{State, Tag, write_atomic},
};

/// Nobody looks at a companion while it works.
struct Unseen;

impl Observer for Unseen {
    fn tell(&mut self, _: Progress<'_>) {}
}

/// Does what the tag's order says, in the root of a driver that waits.
pub fn work(root: &Path, stop: &StopFlag) -> Result<()> {
    let began = Instant::now();
    // the trial comes first
    let _ = rustix::process::nice(19);
    let (task, repo, state) = (Task::read(root)?, Repo::open(root)?, State::new(root));
    let tag = state.current()?.ok_or_else(|| Error::usage("there is no tag to work for"))?;
    let dir = state.tag(&tag);
    let folder = Folder::of(&dir);
    let order = read_order(&folder, &tag)?;
    let journal = journal::read(&dir.journal())?;
    let worktree = Worktree::open(&repo, &tag, Of::Ahead, &folder.worktree())?;
    let desk = Desk {
        task: &task,
        repo: &repo,
        state: &state,
        tag: &tag,
        dir: &dir,
        history: &journal,
        setting: &order.setting,
        worktree: &worktree,
        champion: order.champion,
        scratch: folder.scratch(),
        payer: &order.payer,
        night: None,
        levels: order.levels,
        chosen: None,
        stop,
    };
    let mut proposer = desk.hire(order.kind)?;
    let (chosen, uses) = desk.choose_start(proposer.name(), order.running.as_ref())?;
    let desk = Desk { chosen, ..desk };
    let start = desk.start_commit(proposer.name())?;
    let (outcome, uses) = draft(&desk, proposer.as_mut(), &order, uses, &folder)?;
    if let Ok(draft) = &outcome {
        repo.keep_ahead(&tag, draft.candidate.commit)?;
    }
    // what was refused may hold anything, a key of the user's among it
    worktree.restore(order.champion, &repo.files(order.champion)?)?;
    let made = Made {
        champion: order.champion,
        start,
        chosen,
        proposer: proposer.name().to_owned(),
        outcome,
        uses,
        seconds: began.elapsed().as_secs_f64(),
    };
    let json = serde_json::to_vec(&made).map_err(|error| Error::internal("no result").because(error))?;
    write_atomic(&folder.made(), &json)
}

fn read_order(folder: &Folder, tag: &Tag) -> Result<Order> {
    let path = folder.order();
    let wrong =
        |error: &dyn std::fmt::Display| Error::internal(format!("no order to work on: {error}")).at(&path);
    let bytes = plain_file::read(&path).map_err(|error| wrong(&error))?;
    let order: Order = serde_json::from_slice(&bytes).map_err(|error| wrong(&error))?;
    if order.tag == tag.as_str() { Ok(order) } else { Err(wrong(&"it is another tag's")) }
}

/// Proposes and builds, and what mechanisms did for it.
fn draft(
    desk: &Desk<'_>,
    proposer: &mut dyn Proposer,
    order: &Order,
    uses: Vec<Use>,
    folder: &Folder,
) -> Result<(std::result::Result<Draft, NoCandidate>, Vec<Use>)> {
    let start = desk.start_commit(proposer.name())?;
    desk.worktree.restore(start, &desk.repo.files(start)?)?;
    let ask = Ask { budget: order.budget, running: order.running.clone(), uses, ..Ask::default() };
    let Proposed { outcome, uses } = desk.propose(proposer, &ask)?;
    let candidate = match outcome {
        Ok(candidate) => candidate,
        Err(why) => return Ok((Err(why), uses)),
    };
    if let Some(running) = order.running.as_ref().filter(|running| running.source == candidate.source) {
        return Ok((Err(Refusal::Duplicate(running.trial).into()), uses));
    }
    Ok((built(desk, proposer, order, ask, candidate, folder)?, uses))
}

/// Builds a candidate where that is asked for, and has repaired what does not build.
fn built(
    desk: &Desk<'_>,
    proposer: &mut dyn Proposer,
    order: &Order,
    mut ask: Ask,
    mut candidate: Candidate,
    folder: &Folder,
) -> Result<std::result::Result<Draft, NoCandidate>> {
    let mut round = 0;
    loop {
        if !order.builds {
            return Ok(Ok(Draft { candidate, built: false, round }));
        }
        let files = desk.repo.files(candidate.commit)?;
        desk.worktree.restore(candidate.commit, &files)?;
        let place = Place {
            root: desk.state.root().to_path_buf(),
            worktree: desk.worktree.path().to_path_buf(),
            target: folder.target(),
            bin: folder.run().join("bin"),
            dir: folder.run(),
            seed: seed(desk.tag.as_str(), 0),
        };
        let log = place.dir.join("build.log");
        std::fs::create_dir_all(&place.dir)
            .map_err(|error| Error::internal("could not create").at(&place.dir).because(error))?;
        let built =
            build::build(desk.task, desk.setting, &place, &candidate.paths, &log, desk.stop, &mut Unseen)?;
        let message = match built {
            Ok(()) => match desk.unseen_source(&files, candidate.commit, &place)? {
                None => return Ok(Ok(Draft { candidate, built: true, round })),
                Some(reason) => reason,
            },
            Err(BuildFailure::Stopped) => return Ok(Err(NoCandidate::Stopped)),
            Err(BuildFailure::Crash(_, message)) => message,
        };
        round += 1;
        let failed = candidate.proposal.clone();
        ask.demand = candidate.demand.clone();
        ask.repair = Some(Repair { failed, round, message });
        let mended = match round <= desk.task.proposer.repairs {
            true => desk.propose(proposer, &ask)?.outcome.ok(),
            false => None,
        };
        match mended {
            Some(mut mended) if mended.source != candidate.source => {
                mended.stand_for(&candidate);
                candidate = mended;
            }
            // the trial's own build shows what is wrong with it, and that is its outcome
            _ => return Ok(Ok(Draft { candidate, built: false, round: desk.task.proposer.repairs })),
        }
    }
}
