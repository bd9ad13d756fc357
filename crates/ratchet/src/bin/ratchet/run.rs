//! `ratchet run`: a session, its crew, and whoever is told what happens.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use ratchet::{
    beginning::New,
    config::{Level, ProposerKind, Task},
    error::Error,
    inhibitor::Inhibitor,
    morning,
    notify::{self, Herald},
    run::Crew,
    session::{Asked, Session},
};

use crate::{args::RunArgs, open, print, screen::summary};

/// The loop, until a stop rule, a signal or the proposer's end.
pub(crate) fn run(root: &Path, args: RunArgs) -> Result<ExitCode> {
    let RunArgs { place, stop, proposer, levels, night } = args;
    let night = recorded_night(root, proposer.map(Into::into), night)?;
    let asked = Asked { night, ..place.into() };
    let opened = open(root, &asked, New::Created).inspect_err(|error| {
        // at a terminal somebody reads it
        if let (false, Some(error)) = (std::io::stderr().is_terminal(), error.downcast_ref()) {
            notify::not_begun(root, error);
        }
    });
    let (mut session, mut screen) = opened?;
    let levels = levels.map(|levels| Level::from(levels).into());
    let crew = Crew { kind: proposer.map(Into::into), levels, ..Crew::default() };
    let rules = stop.into();
    let _awake = Inhibitor::hold(root);
    screen.plan(&rules);
    let mut herald = Herald::new(&session, &rules, &mut screen)?;
    let mut report = morning::Writer::new(root, session.tag.clone(), &mut herald);
    let result = session.run(rules, crew, &mut report);
    let written = report.finish();
    herald.run_ended(&result);
    screen.clear();
    let ended = result?;
    screen.line(&format!("ended: {}", ended.reason));
    let page = written.map(|written| written.page);
    print(&summary(&ended, &session.task.metric.name, session.tag.as_str(), page.as_deref()))?;
    played(&session)
}

/// The night to play back, where the proposer is `replay`.
fn recorded_night(
    root: &Path,
    kind: Option<ProposerKind>,
    night: Option<PathBuf>,
) -> Result<Option<PathBuf>> {
    let proposer = Task::read(root)?.proposer;
    if kind.unwrap_or(proposer.kind) != ProposerKind::Replay {
        return match night {
            Some(_) => Err(Error::usage("--night is for --proposer replay").into()),
            None => Ok(None),
        };
    }
    let night = night.or_else(|| proposer.night.as_deref().map(ratchet::reach::at_home));
    let missing =
        || Error::usage("--proposer replay needs a recorded night").hint("name it with --night FILE");
    Ok(Some(night.ok_or_else(missing)?))
}

/// Whether a night that was played back went as it was recorded.
fn played(session: &Session) -> Result<ExitCode> {
    let Some(night) = session.night() else { return Ok(ExitCode::SUCCESS) };
    match night.differences() {
        [] => {
            let (all, played) = night.trials();
            let of = if played == all { String::new() } else { format!("{played} of ") };
            print(&format!("{of}{all} recorded trials, every verdict the same\n"))
        }
        [first, rest @ ..] => {
            Err(Error::internal(format!("{first}, and {} more differences", rest.len())).into())
        }
    }
}
