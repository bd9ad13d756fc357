//! What has to hold before a first loop is left alone, point by point.

use super::{Check, Health, fail, pass, warn};
use crate::config::{Goal, ProposerKind, Score, Task};

/// What was seen; the judgement is apart.
pub(super) struct Seen<'a> {
    pub(super) task: Result<&'a Task, String>,
    /// Committed files that match `editable`.
    pub(super) editable: Result<usize, String>,
    /// Whether there is a `program.md`.
    pub(super) has_brief: bool,
    /// Where prepared data lies, for a task that has profiles.
    pub(super) data: Option<String>,
    /// The tag and its journal's trials; an error where it cannot be read.
    pub(super) journal: Result<Option<(String, usize)>, String>,
    /// Where `.ratchet` lies, when that is a place that does not last.
    pub(super) fleeting: Option<&'static str>,
    /// The check of the sandbox.
    pub(super) sandbox: Option<Check>,
    /// Keeps that nobody has looked at.
    pub(super) unreviewed: usize,
}

/// The six points, in order.
pub(super) fn checklist(seen: &Seen<'_>) -> Vec<Check> {
    vec![discovered(seen), state_file(seen), evaluator(seen), isolation(seen), caps(seen), human_step(seen)]
}

const NO_TASK: &str = "there is no task that could be read";
const TASK_FIRST: &str = "correct ratchet.toml first";

fn discovered(seen: &Seen<'_>) -> Check {
    const NAME: &str = "discovered";
    let task = match &seen.task {
        Ok(task) => task,
        Err(error) => return fail(NAME, error.clone(), TASK_FIRST),
    };
    let files = match &seen.editable {
        Ok(files) => files,
        Err(error) => {
            return fail(NAME, error.clone(), "correct `editable` in ratchet.toml, or commit the files");
        }
    };
    let data = seen.data.as_ref().map_or(String::new(), |data| format!("; data: {data}, by [prepare]"));
    let detail = format!(
        "ratchet.toml: task {}, metric {} ({}), editable {}, {files} committed files{data}; seeds: the driver's own, from \
         the tag's name; program.md: what to look for",
        task.name(),
        task.metric.name,
        match task.metric.goal {
            Goal::Minimize => "lower is better",
            Goal::Maximize => "higher is better",
        },
        task.editable_folders().iter().map(|at| at.display().to_string()).collect::<Vec<_>>().join(", "),
    );
    match seen.has_brief {
        true => pass(NAME, detail),
        false => warn(
            NAME,
            format!("{detail}, but it is not there"),
            "write program.md: a page on what to look for",
        ),
    }
}

fn state_file(seen: &Seen<'_>) -> Check {
    const NAME: &str = "state file";
    let how = "appended to and synced line by line, so that a kill or a power cut loses nothing";
    let what = match &seen.journal {
        Err(error) => {
            return fail(NAME, error.clone(), "start another tag with --tag; what can be read is kept");
        }
        Ok(None) => format!(".ratchet/tags/TAG/journal.jsonl, from the first run on: {how}"),
        Ok(Some((tag, trials))) => format!(".ratchet/tags/{tag}/journal.jsonl, {trials} trials: {how}"),
    };
    match seen.fleeting {
        Some(place) => {
            warn(NAME, format!("{what}; but .ratchet lies {place}"), "make .ratchet a link to a local disk")
        }
        None => pass(NAME, what),
    }
}

fn evaluator(seen: &Seen<'_>) -> Check {
    const NAME: &str = "independent evaluator";
    let Ok(task) = &seen.task else { return fail(NAME, NO_TASK, TASK_FIRST) };
    judge(NAME, &task.score, seen.editable.is_err())
}

fn judge(name: &'static str, score: &Score, editable_is_wrong: bool) -> Check {
    if score.exam {
        return pass(
            name,
            "[score] exam: the driver pipes rows in and computes the value; the contestant sees no targets, and a second \
             process answers again",
        );
    }
    let own = score.command.iter().find(|word| word.contains("{target}/"));
    match own {
        _ if editable_is_wrong => {
            fail(name, "what a candidate may edit is not certain", "see \"discovered\"")
        }
        Some(own) => warn(
            name,
            format!("[score] runs {own}, which the candidate's build makes: it could say any value"),
            "score with a program outside `editable` that the build does not make, or with exam = true",
        ),
        None => pass(
            name,
            format!("[score] runs `{}`; what judges is committed and not editable", score.command.join(" ")),
        ),
    }
}

fn isolation(seen: &Seen<'_>) -> Check {
    const NAME: &str = "isolation";
    let worktree = "trials are built and run in a worktree of their own, never in your files";
    match &seen.sandbox {
        None => fail(NAME, NO_TASK, TASK_FIRST),
        Some(Check { state: Health::Pass, .. }) => {
            pass(NAME, format!("{worktree}; confined: no network, no keys, no home directory, no exam text"))
        }
        Some(Check { state, detail, remedy, .. }) => Check {
            name: NAME,
            state: *state,
            detail: format!("{worktree}; but the sandbox: {detail}"),
            remedy: remedy.clone(),
        },
    }
}

fn caps(seen: &Seen<'_>) -> Check {
    const NAME: &str = "caps";
    let Ok(task) = &seen.task else { return fail(NAME, NO_TASK, TASK_FIRST) };
    let crashes = task.stop.max_crashes_in_a_row;
    let steps = [("build", &task.build), ("preflight", &task.preflight), ("fit", &task.fit)];
    let limits = steps.iter().filter_map(|(name, step)| Some((*name, step.as_ref()?.timeout_s)));
    let limits: Vec<String> = limits
        .chain([("score", task.score.timeout_s)])
        .map(|(name, seconds)| format!("{name} {seconds} s"))
        .collect();
    let mut detail = format!("limits: {}; {} GB of disk a trial", limits.join(", "), task.sandbox.disk_gb);
    detail += &match task.sandbox.memory_gb {
        Some(gb) => format!(", {gb} GB of memory"),
        None => ", nine tenths of the memory".to_owned(),
    };
    if crashes == 0 {
        return warn(
            NAME,
            format!("{detail}; crashes in a row never end a run"),
            "set max_crashes_in_a_row under [stop], 20 for example",
        );
    }
    detail += &format!("; {crashes} crashes in a row end a run");
    let proposer = &task.proposer;
    match (proposer.kind, proposer.usd_per_day, proposer.tokens_per_day) {
        (ProposerKind::Knobs | ProposerKind::Replay, ..) => {
            pass(NAME, format!("{detail}; its proposer costs nothing"))
        }
        (_, None, None) => warn(
            NAME,
            format!("{detail}; but money has no limit"),
            "set usd_per_day or tokens_per_day under [proposer], or give --max-usd",
        ),
        (_, usd, tokens) => {
            let usd = usd.map(|usd| format!("{usd} USD"));
            let tokens = tokens.map(|tokens| format!("{tokens} tokens"));
            let caps: Vec<String> = usd.into_iter().chain(tokens).collect();
            pass(NAME, format!("{detail}; {} a day", caps.join(" and ")))
        }
    }
}

/// Keeps beyond which nobody reads them all at one breakfast.
const MANY: usize = 10;

fn human_step(seen: &Seen<'_>) -> Check {
    const NAME: &str = "human step";
    let how = "keeps go to a branch ratchet/TAG and nothing is merged or pushed by itself: you read them with \
               `ratchet review` and take them with `ratchet accept`";
    match seen.unreviewed {
        n @ MANY.. => warn(NAME, format!("{how}; {n} keeps are not reviewed"), "ratchet review"),
        0 => pass(NAME, how),
        n => pass(NAME, format!("{how}; not reviewed: {n}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TOY: &str = "[task]\nname = \"toy\"\neditable = [\"cand/**\"]\n[metric]\nname = \"loss\"\n[score]\ncommand = [\"sh\", \"score.sh\"]\n";

    fn task(text: &str) -> Task {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ratchet.toml"), text).unwrap();
        Task::read(dir.path()).unwrap()
    }

    fn sound(task: &Task) -> Seen<'_> {
        Seen {
            task: Ok(task),
            editable: Ok(1),
            has_brief: true,
            data: None,
            journal: Ok(Some(("bar".to_owned(), 3))),
            fleeting: None,
            sandbox: Some(pass("sandbox", "Landlock")),
            unreviewed: 0,
        }
    }

    fn state(seen: &Seen<'_>, name: &str) -> Health {
        let list = checklist(seen);
        assert_eq!(list.len(), 6);
        let point = list.into_iter().find(|point| point.name == name).unwrap();
        assert_eq!(point.remedy.is_some(), point.state != Health::Pass, "{point:?}");
        point.state
    }

    #[test]
    fn what_is_as_it_should_be_passes_at_every_point() {
        let task = task(TOY);
        assert!(checklist(&sound(&task)).iter().all(|point| point.state == Health::Pass));
    }

    #[test]
    fn each_point_fails_or_warns_for_what_it_is_about() {
        let toy = task(TOY);
        let is = |seen: Seen<'_>, name, health| assert_eq!(state(&seen, name), health, "{name}");
        is(Seen { editable: Err("matches nothing".to_owned()), ..sound(&toy) }, "discovered", Health::Fail);
        is(Seen { has_brief: false, ..sound(&toy) }, "discovered", Health::Warn);
        is(Seen { journal: Err("line 3 is damaged".to_owned()), ..sound(&toy) }, "state file", Health::Fail);
        is(Seen { fleeting: Some("in memory"), ..sound(&toy) }, "state file", Health::Warn);
        is(
            Seen { editable: Err("a referee".to_owned()), ..sound(&toy) },
            "independent evaluator",
            Health::Fail,
        );
        let off = Some(warn("sandbox", "off", "on"));
        is(Seen { sandbox: off, ..sound(&toy) }, "isolation", Health::Warn);
        let none = Some(fail("sandbox", "none", "a kernel"));
        is(Seen { sandbox: none, ..sound(&toy) }, "isolation", Health::Fail);
        is(Seen { unreviewed: MANY, ..sound(&toy) }, "human step", Health::Warn);
        is(Seen { unreviewed: 1, ..sound(&toy) }, "human step", Health::Pass);
        let nothing = Seen { task: Err("no task here".to_owned()), sandbox: None, ..sound(&toy) };
        for name in ["discovered", "independent evaluator", "isolation", "caps"] {
            is(Seen { task: nothing.task.clone(), sandbox: None, ..sound(&toy) }, name, Health::Fail);
        }
    }

    #[test]
    fn a_contestant_that_scores_itself_and_caps_that_are_none_are_warned_of() {
        let own = task(&TOY.replace("\"sh\", \"score.sh\"", "\"{target}/release/x\", \"score\""));
        assert_eq!(state(&sound(&own), "independent evaluator"), Health::Warn);
        let for_ever = task(&format!("{TOY}[stop]\nmax_crashes_in_a_row = 0\n"));
        assert_eq!(state(&sound(&for_ever), "caps"), Health::Warn);
        let agent = "[proposer]\nkind = \"agent\"\n";
        let which = "[proposer.agent]\npreset = \"claude\"\n";
        assert_eq!(state(&sound(&task(&format!("{TOY}{agent}{which}"))), "caps"), Health::Warn);
        let capped = format!("{TOY}{agent}usd_per_day = 5.0\n{which}");
        assert_eq!(state(&sound(&task(&capped)), "caps"), Health::Pass);
    }
}
