//! `ratchet schedule`: shows, installs and removes nights that begin by themselves.

use std::{path::Path, process::ExitCode};

use anyhow::Result;
use clap::ValueEnum;
use ratchet::{
    config::Task,
    schedule::{Plan, install, remove, show, show_plan, warnings},
    session::Asked,
};

use crate::{args::ScheduleArgs, print, screen::Screen};

/// What is asked for; nothing is written but with `--install` and `--remove`.
pub(crate) fn schedule(root: &Path, args: ScheduleArgs) -> Result<ExitCode> {
    let ScheduleArgs { at, until, place, proposer, install: write, remove: away } = args;
    if away {
        return print(&remove(root)?);
    }
    let Some((at, until)) = at.zip(until) else { return print(&show(root)) };
    let task = Task::read(root)?;
    let Asked { tag, profile, .. } = place.into();
    let kind = proposer.map_or(task.proposer.kind, Into::into);
    let named = proposer.and_then(|kind| kind.to_possible_value());
    let args = [
        ("--tag", tag.map(|tag| tag.to_string())),
        ("--profile", profile.map(|profile| profile.name().to_owned())),
        ("--proposer", named.map(|value| value.get_name().to_owned())),
    ];
    let args = args.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?])).flatten();
    let plan = Plan::new(root, at, until, args.collect())?;
    print(&if write { install(&plan)? } else { show_plan(&plan)? })?;
    let screen = Screen::new(&task.metric.name);
    warnings(&plan, &task, kind).iter().for_each(|warning| screen.line(&format!("note: {warning}")));
    Ok(ExitCode::SUCCESS)
}
