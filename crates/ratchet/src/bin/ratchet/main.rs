//! The `ratchet` command: parses, validates, runs.

mod args;
mod bars;
mod examples;
mod manual;
mod mcp;
mod review;
mod run;
mod schedule;
mod screen;
mod tty;
mod watch;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::Ordering,
};

use anyhow::Result;
use clap::{FromArgMatches, error::ErrorKind};
use ratchet::{
    ablation, ahead,
    attempt::Tried,
    beginning::New,
    config::Task,
    control, cuda, doctor,
    error::{Error, Kind},
    exec::StopFlag,
    history::History,
    journal::TrialRecord,
    live::Live,
    lookout, morning, night, notify,
    session::{Asked, Session},
    show::{View, short},
    sim::{self, Landscape},
    state::{State, Tag},
    transfer::Longer,
};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    args::{Cli, Command, MechanismAct, SampleArgs},
    screen::Screen,
};

fn main() -> ExitCode {
    let parsed = examples::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let _ = error.print(); // nowhere is left to say that the terminal is gone
            return ExitCode::from(if asked { 0 } else { Kind::Usage.exit_code() });
        }
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("RATCHET_LOG").unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let root = match root(cli.dir) {
        Ok(root) => root,
        Err(error) => return failed(&error.into()),
    };
    match execute(&root, cli.command) {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "ratchet: {error:#}");
    ExitCode::from(error.downcast_ref::<Error>().map_or(1, |error| error.kind.exit_code()))
}

fn root(dir: Option<PathBuf>) -> Result<PathBuf, Error> {
    let dir = dir.unwrap_or_else(|| PathBuf::from("."));
    std::fs::canonicalize(&dir).map_err(|error| Error::usage("no such folder").at(dir).because(error))
}

fn execute(root: &Path, command: Command) -> Result<ExitCode> {
    match command {
        Command::Init { place } => init(root, &place.into()),
        Command::Try { message, place, json } => attempt(root, &message, &place.into(), json),
        Command::Run(args) => run::run(root, *args),
        Command::Record { file, tag } => {
            let trials = night::record(root, tag.tag, &file)?;
            print(&format!("{trials} trials recorded: {}\n", file.display()))
        }
        Command::Sync { tag } => sync(root, Asked { tag: tag.tag, ..Asked::default() }),
        Command::Rerun { trial, tag } => rerun(root, trial, Asked { tag: tag.tag, ..Asked::default() }),
        Command::Noise { runs, place } => noise(root, runs, &place.into()),
        Command::Audit { tag } => {
            let (mut session, mut screen) =
                open(root, &Asked { tag: tag.tag, ..Asked::default() }, New::Refused)?;
            let audit = session.audit(&mut screen);
            screen.clear();
            match audit? {
                Some(audit) => print(&audit.text(&session.task.metric.name)),
                None => Err(Error::internal("stopped by a signal").into()),
            }
        }
        Command::Completions { shell } => print_bytes(&manual::completions(shell)),
        Command::Man { folder: Some(folder) } => manual::pages(&folder).map(|()| ExitCode::SUCCESS),
        Command::Man { folder: None } => print_bytes(&manual::page()?),
        Command::Sample(args) => sample(root, args),
        Command::Transfer { budget, depth, runs, leave_one_out, tag, json } => {
            transfer(root, &Longer { budget, depth, runs, leave_one_out }, tag.tag, json)
        }
        Command::Review(args) => review::review(root, args),
        Command::Accept(args) => review::accept(root, args),
        Command::Status { tag, json } => {
            let status = View::open(root, tag.tag)?.status()?;
            print(&if json { serde_json::to_string(&status)? + "\n" } else { status.text() })
        }
        Command::Watch { tag } => watch::watch(root, tag.tag),
        Command::GpuFigures => {
            lookout::serve_gpu()?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Mcp { place } => mcp::serve(root, place.into()),
        Command::Show { trial, tag } => print(&View::open(root, tag.tag)?.show(trial)?),
        Command::Log { tag } => print(&View::open(root, tag.tag)?.log()),
        Command::Report { out, tag } => {
            let written = morning::write(&View::open(root, tag.tag)?, out.as_deref())?;
            print(&format!(
                "{}\nbeside it: progress.svg, progress.png, results.json\n",
                written.page.display()
            ))
        }
        Command::Hint { text, remove, tag } => {
            let view = View::open(root, tag.tag)?;
            print(&match (text, remove) {
                (Some(text), _) => view.add_hint(&text)?,
                (None, Some(number)) => view.remove_hint(number)?,
                (None, None) => view.hints()?,
            })
        }
        Command::Brief { suggest, tag } => {
            let view = View::open(root, tag.tag)?;
            if suggest { draft(&view) } else { print(&view.brief()?) }
        }
        Command::Mechanisms { act, json, tag } => {
            let view = View::open(root, tag.tag)?;
            print(&match act {
                None if json => serde_json::to_string(&view.mechanisms()?)? + "\n",
                None => view.mechanisms_text()?,
                Some(MechanismAct::Show { id }) => view.mechanism(&id)?,
                Some(MechanismAct::Enable { ids }) => wish_mechanisms(&view, &ids, true)?,
                Some(MechanismAct::Disable { ids }) => wish_mechanisms(&view, &ids, false)?,
                Some(MechanismAct::Test { script }) => view.test_mechanism(&script)?,
            })
        }
        Command::Mechanism => Ok(mechanism::serve()),
        Command::Pause => print(&control::pause(&State::new(root))?),
        Command::Resume => print(&control::resume(&State::new(root))?),
        Command::Stop { now } => print(&control::stop(&State::new(root), now)?),
        Command::TryForbidden { acts } => print(&doctor::forbidden::try_acts(&acts)?),
        Command::TryCuda { libraries } => print(&cuda::try_libraries(&libraries).line()?),
        Command::Sim { landscape, sigma, seed } => {
            let landscape = Landscape::new(landscape).with_sigma(sigma);
            print(&(sim::score(root, &landscape, seed)? + "\n"))
        }
        Command::Ahead => {
            ahead::work(root, &stop_flag()?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Ablate { plan, json, jobs } => ablate(root, &plan.into(), jobs, json),
        Command::AblateRepeat => {
            ablation::work(root, stop_flag()?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Schedule(args) => schedule::schedule(root, *args),
        Command::Within { at, until } => {
            Ok(ExitCode::from(u8::from(!ratchet::schedule::is_within(at, until)?)))
        }
        Command::Doctor { notify: true, .. } => {
            notify::test(&Task::read(root)?, &State::new(root))?;
            print("a test message has arrived at all that [notify] names\n")
        }
        Command::Doctor { json, .. } => {
            let report = doctor::examine(root);
            print(&if json { serde_json::to_string(&report)? + "\n" } else { report.text() })?;
            let code = if report.is_healthy() { 0 } else { Kind::Environment.exit_code() };
            Ok(ExitCode::from(code))
        }
    }
}

/// Switches mechanisms on or off, one after the other; what comes before one that cannot be is done.
fn wish_mechanisms(view: &View, ids: &[String], on: bool) -> Result<String> {
    Ok(ids.iter().map(|id| view.wish_mechanism(id, on)).collect::<Result<Vec<_>, _>>()?.concat())
}

/// A drafted change of `program.md`: the patch on standard output, what to do with it beside it.
fn draft(view: &View) -> Result<ExitCode> {
    let said = match view.suggest()? {
        Some(suggestion) => {
            print(&suggestion.patch)?;
            format!(
                "nothing is changed: read it, edit it, and apply it yourself with `git apply {}`",
                suggestion.file
            )
        }
        None => "the trials say nothing yet that program.md does not say".to_owned(),
    };
    let _ = writeln!(std::io::stderr(), "{said}");
    Ok(ExitCode::SUCCESS)
}

/// Standard output; a reader that closed the pipe has read enough.
fn print(text: &str) -> Result<ExitCode> {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<ExitCode> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The flag that the first Ctrl-C, TERM or hang-up sets; a second one ends the program at once.
fn stop_flag() -> Result<StopFlag> {
    let stop = StopFlag::default();
    // one that is ignored was ignored on purpose: by nohup, or by a shell for what runs in its background
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.shared())?;
        signal_hook::flag::register(signal, stop.shared())?;
    }
    Ok(stop)
}

/// Whether this process was started with `signal` ignored; false where the kernel does not say.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// A session, and who is told what it does: whoever watches from elsewhere, and the person here.
fn open(root: &Path, asked: &Asked, new: New) -> Result<(Session, Live<Screen>)> {
    let mut screen = Screen::new(&Task::read(root)?.metric.name);
    let session = Session::open(root, asked, new, stop_flag()?, &mut screen)?;
    let live = Live::of(&session, screen);
    Ok((session, live))
}

fn init(root: &Path, asked: &Asked) -> Result<ExitCode> {
    let mut screen = Screen::new("");
    let session = Session::init(root, asked, stop_flag()?, &mut screen)?;
    let tag = &session.tag;
    print(&format!(
        "tag {tag}: branch {} at {}\nnext: `ratchet run` for the loop, or edit and `ratchet try -m TEXT`\n",
        tag.branch(),
        short(&session.champion().to_string())
    ))
}

fn attempt(root: &Path, message: &str, asked: &Asked, json: bool) -> Result<ExitCode> {
    let tried = open(root, asked, New::WithCandidate).and_then(|(mut session, mut screen)| {
        let tried = session.attempt(message, &mut screen);
        screen.clear();
        Ok((tried?, session))
    });
    let (tried, session) = match tried {
        Ok(done) => done,
        Err(error) => {
            if json && error.downcast_ref::<Error>().is_some_and(|error| error.kind == Kind::Refused) {
                print(&format!(
                    "{}\n",
                    json!({ "trial": null, "status": "refused", "reason": error.to_string() })
                ))?;
            }
            return Err(error);
        }
    };
    let Tried::Trial(record) = tried else {
        return Err(Error::internal(
            "stopped by a signal: nothing is recorded, and your edit stands as it was",
        )
        .into());
    };
    let metric = &session.task.metric.name;
    if json {
        print(&verdict_json(&record, session.history(), metric))
    } else {
        print(&verdict_text(&record, metric))
    }
}

fn verdict_json(record: &TrialRecord, history: &History, metric: &str) -> String {
    let line = json!({
        "trial": record.trial,
        "status": record.status,
        "outcome": record.verdict.outcome,
        "reason": record.verdict.reason,
        "metric": metric,
        "value": record.value,
        "best_value": history.champion().and_then(|champion| champion.value),
        "delta": record.delta,
        "memory_gb": record.memory_gb,
        "commit": record.commit.as_deref().map(short),
        "seconds": record.seconds,
    });
    format!("{line}\n")
}

fn verdict_text(record: &TrialRecord, metric: &str) -> String {
    let value = record.value.map_or(String::new(), |value| format!(", {metric} {value:.6}"));
    format!("trial {}: {}{value}: {}\n", record.trial, record.status.as_str(), record.verdict.reason)
}

fn sync(root: &Path, asked: Asked) -> Result<ExitCode> {
    let (session, mut screen) = open(root, &asked, New::Refused)?;
    let saved = session.sync(&mut screen)?;
    screen.clear();
    let mut text = String::new();
    if let Some(saved) = saved {
        text += &format!(
            "your edits ({} files) are saved: {} and {}\n",
            saved.files,
            saved.patch.display(),
            saved.reference
        );
    }
    let champion = short(&session.champion().to_string());
    text += &format!("the editable files are those of the champion, {champion}\n");
    print(&text)
}

fn noise(root: &Path, runs: u32, asked: &Asked) -> Result<ExitCode> {
    // where there are tags, a mistyped one must not become another
    let mistyped = asked.tag.is_some() && !State::new(root).tags().is_empty();
    let new = if mistyped { New::Refused } else { New::Created };
    let (mut session, mut screen) = open(root, asked, new)?;
    let measured = session.measure_noise(runs, &mut screen);
    screen.clear();
    let Some(measured) = measured? else {
        return Err(Error::internal("stopped by a signal; runs that had ended count").into());
    };
    let champion = &measured.champion;
    let values: Vec<String> = champion.values.iter().map(|value| format!("{value:.6}")).collect();
    let sigma = match measured.spread.degrees {
        0 => "unknown: it takes two runs of the champion".to_owned(),
        degrees => {
            let [low, high] = measured.spread.interval();
            format!(
                "{:.6}, between {low:.6} and {high:.6} in 95 of 100 cases ({degrees} degrees of freedom)",
                measured.spread.sigma()
            )
        }
    };
    let used = measured.noise.sigma().map_or("unknown".to_owned(), |sigma| format!("{sigma:.6}"));
    print(&format!(
        "runs      {}  (trial {}, {})\nsigma     {sigma}\nverdicts  use {used} ({})\n{} further runs, {:.1} s\n",
        values.join("  "),
        champion.trial,
        session.task.metric.name,
        measured.noise.origin(),
        measured.runs,
        measured.seconds
    ))
}

fn sample(root: &Path, args: SampleArgs) -> Result<ExitCode> {
    let asked = Asked { tag: args.tag.tag.clone(), ..Asked::default() };
    let (mut session, mut screen) = open(root, &asked, New::Refused)?;
    screen.clear();
    let (mut out, stop) = (std::io::stdout().lock(), session.stop.shared());
    let mut whole_line = true;
    let written = session.write_text(
        &args.into(),
        &mut |text| {
            whole_line = text.ends_with('\n');
            if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
                stop.store(true, Ordering::Relaxed); // nobody reads on
            }
        },
        &mut screen,
    );
    if !whole_line {
        let _ = writeln!(out); // the same
    }
    written.map(|_| ExitCode::SUCCESS).map_err(Into::into)
}

fn transfer(root: &Path, longer: &Longer, tag: Option<Tag>, json: bool) -> Result<ExitCode> {
    let (mut session, mut screen) = open(root, &Asked { tag, ..Asked::default() }, New::Refused)?;
    let report = session.transfer(longer, &mut screen);
    screen.clear();
    let Some(report) = report? else {
        return Err(Error::internal(
            "stopped by a signal; runs that have ended are kept, and the same command goes on",
        )
        .into());
    };
    print(&if json { serde_json::to_string(&report)? + "\n" } else { report.text() })
}

fn ablate(root: &Path, asked: &ablation::Asked, jobs: Option<u64>, json: bool) -> Result<ExitCode> {
    let screen = Screen::new("");
    let jobs = jobs.map(|jobs| usize::try_from(jobs).unwrap_or(usize::MAX));
    let done = ablation::ablate(root, asked, jobs, &stop_flag()?, &mut |line| screen.line(line))?;
    let Some((folder, report)) = done else {
        return Err(Error::internal("stopped by a signal; the same command goes on with what is done").into());
    };
    let places = format!("\n{}\n{}\n", folder.json().display(), folder.svg().display());
    print(&if json { serde_json::to_string(&report)? + "\n" } else { report.text() + places.as_str() })
}

fn rerun(root: &Path, trial: u64, asked: Asked) -> Result<ExitCode> {
    let (mut session, mut screen) = open(root, &asked, New::Refused)?;
    let rerun = session.rerun(trial, &mut screen);
    screen.clear();
    let Some(rerun) = rerun? else {
        return Err(Error::internal("stopped by a signal").into());
    };
    let metric = &session.task.metric.name;
    let then = rerun.then.map_or("a crash".to_owned(), |value| format!("{value:.6}"));
    let now = match &rerun.now {
        Ok(value) => format!("{value:.6}"),
        Err(reason) => format!("a crash ({reason})"),
    };
    let change = match (rerun.then, &rerun.now) {
        (Some(then), Ok(now)) => format!(", difference {:+.6}", now - then),
        _ => String::new(),
    };
    print(&format!("trial {trial}: {metric} was {then}, is {now}{change} ({:.1} s)\n", rerun.seconds))
}
