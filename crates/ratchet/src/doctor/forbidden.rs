//! What holds on this machine, found by letting a confined child try everything that is forbidden.

use std::{collections::BTreeMap, path::Path, time::Duration};

use prepare::cache::Cache;
use sandbox::{Access, Act, Answer};

use super::{Check, fail, pass, warn};
use crate::{
    commands::Place,
    config::{ProposerKind, SandboxMode, Task},
    cuda::{self, Obstacle},
    error::{Doing, Result},
    exec::{self, Spec, StopFlag},
    progress::{Observer, Progress},
    reach::{Reach, confined},
    runlog::{RunLog, Stream},
    setting::Setting,
};

/// The hidden command of the program that tries acts, one an argument, and prints one answer a line.
pub const COMMAND: &str = "try-forbidden";

const NAME: &str = "sandbox";
/// A file below each hidden path of the worktree that the child has; of folders, names can be listed everywhere.
const HIDDEN: &str = "hidden";
const OFF: &str = "where you trust the proposer, set mode = \"off\" under [sandbox] in ratchet.toml";

/// Checks the sandbox of a task.
pub(super) fn sandbox(root: &Path, task: &Task) -> Check {
    if task.sandbox.mode == SandboxMode::Off {
        return warn(
            NAME,
            "off: builds, trials and agents run with your rights",
            "run only proposers that you trust",
        );
    }
    match confined(task) {
        Err(error) => return fail(NAME, error.to_string(), OFF),
        Ok(false) if task.proposer.kind == ProposerKind::Agent => {
            return fail(NAME, format!("{}, and agents need one", why_not()), OFF);
        }
        Ok(false) => return warn(NAME, format!("{}: trials run with your rights", why_not()), OFF),
        Ok(true) => {}
    }
    match attempt_all(root, task) {
        Err(error) => warn(NAME, error.to_string(), "correct what the checks above name first"),
        Ok((tried, gpu)) => report(&tried, gpu),
    }
}

fn why_not() -> String {
    match sandbox::available() {
        sandbox::Available::Nothing(why) => format!("none here ({why})"),
        _ => "none here".to_owned(),
    }
}

struct Tried {
    what: &'static str,
    answer: Answer,
    allowed: bool,
}

/// `gpu`: what keeps a confined child from the card that there is.
fn report(tried: &[Tried], gpu: Option<Obstacle>) -> Check {
    let kernel = match sandbox::available() {
        sandbox::Available::Whole { abi } => format!("Landlock {abi} and seccomp"),
        sandbox::Available::Part { abi, open } => {
            format!("Landlock {abi} and seccomp, an older kernel: {open}")
        }
        sandbox::Available::Nothing(why) => why,
    };
    let names = |wrong: fn(&&Tried) -> bool| {
        let mut names: Vec<_> = tried.iter().filter(wrong).map(|tried| tried.what).collect();
        names.dedup(); // one for each hidden path
        names.join(", ")
    };
    let escaped = names(|tried| !tried.allowed && tried.answer == Answer::Done);
    let hindered = names(|tried| tried.allowed && tried.answer != Answer::Done);
    let denied = names(|tried| !tried.allowed && tried.answer == Answer::Denied);
    if !escaped.is_empty() {
        return fail(
            NAME,
            format!("a confined child could: {escaped} ({kernel})"),
            "do not rely on it; run only proposers that you trust",
        );
    }
    if !hindered.is_empty() {
        return fail(NAME, format!("a confined child could not: {hindered} ({kernel})"), OFF);
    }
    if let Some(obstacle) = gpu {
        return fail(NAME, format!("a confined child cannot use the GPU: {} ({kernel})", obstacle.what), OFF);
    }
    pass(NAME, format!("{kernel}; tried by a confined child and denied: {denied}"))
}

/// Has a child, confined as this task's fits are, try every act, and another use the GPU, where there is one.
fn attempt_all(root: &Path, task: &Task) -> Result<(Vec<Tried>, Option<Obstacle>)> {
    struct Silent;
    impl Observer for Silent {
        fn tell(&mut self, _: Progress<'_>) {}
    }
    let setting = Setting::choose(task, None, None, &mut Silent)?;
    let temporary = tempfile::tempdir().doing("create a temporary folder", Path::new("."))?;
    let dir = temporary.path().to_path_buf();
    let place = Place {
        root: root.to_path_buf(),
        worktree: dir.join("worktree"), // elsewhere, as a trial's: the root has `.git` in it
        target: dir.join("target"),
        bin: dir.join("bin"),
        dir,
        seed: 0,
    };
    place.clear()?;
    std::fs::create_dir(&place.worktree).doing("create", &place.worktree)?;
    for hidden in task.sandbox.hide.iter().map(|path| place.worktree.join(path)) {
        let write = || {
            std::fs::create_dir_all(&hidden)?;
            std::fs::write(hidden.join(HIDDEN), "")
        };
        write().doing("create", &hidden)?;
    }
    let this = std::env::current_exe().doing("find this program", Path::new("ratchet"))?;
    let command = task.fit.as_ref().map_or(&task.score.command, |fit| &fit.command);
    let mut policy = Reach { task, setting: &setting, place: &place }.fit(command);
    policy.grant(Access::Run, &this);
    let confinement = || {
        let lacking =
            |error| crate::error::Error::environment("a process could not be confined").because(error);
        policy.confinement().map_err(lacking)
    };

    let acts = acts(root, task, &setting, &place, &this);
    let words = [this.to_string_lossy().into_owned(), COMMAND.to_owned()];
    let command: Vec<String> =
        words.into_iter().chain(acts.iter().map(|(_, act, _)| act.to_string())).collect();
    let mut log = RunLog::create(&place.dir.join("log"));
    let mut answers = Vec::new();
    let mut hear = |stream, bytes: &[u8]| {
        if stream == Stream::Out {
            answers.extend_from_slice(bytes);
        }
    };
    let spec = Spec {
        confinement: Some(confinement()?),
        ..Spec::new(&command, place.out(), BTreeMap::new(), Duration::from_secs(20))
    };
    let ended = exec::run(spec, &mut log, &mut hear, &StopFlag::default());
    let text = String::from_utf8_lossy(&answers).into_owned();
    if !ended.end.is_success() || text.lines().count() != acts.len() {
        return Err(crate::error::Error::environment(format!("the confined child {}", ended.end)));
    }
    let answer = |line: &str| match line {
        "done" => Answer::Done,
        "denied" => Answer::Denied,
        _ => Answer::Nothing,
    };
    let tried = acts.into_iter().zip(text.lines());
    let tried =
        tried.map(|((what, _, allowed), line)| Tried { what, answer: answer(line), allowed }).collect();
    let gpu = match &setting.card {
        Some(card) => cuda::look_confined(card, confinement()?).err(),
        None => None,
    };
    Ok((tried, gpu))
}

type Attempt = (&'static str, Act, bool);

fn acts(root: &Path, task: &Task, setting: &Setting, place: &Place, this: &Path) -> Vec<Attempt> {
    let mut acts: Vec<Attempt> = vec![
        ("write its own folder", Act::Create(place.out()), true),
        ("read .git", Act::Read(root.join(".git")), false),
        ("read .ratchet", Act::Read(root.join(".ratchet")), false),
        (
            "read the parent's environment",
            Act::Read(format!("/proc/{}/environ", std::process::id()).into()),
            false,
        ),
        ("write ratchet.toml", Act::Write(root.join(crate::config::FILE)), false),
        ("write results.tsv", Act::Write(root.join("results.tsv")), false),
        ("make files in the root", Act::Create(root.to_path_buf()), false),
        ("open a socket", Act::Socket, false),
    ];
    acts.extend(
        std::env::var_os("HOME").map(|home| ("read the home directory", Act::Read(home.into()), false)),
    );
    for path in &task.sandbox.hide {
        acts.push(("read what is hidden", Act::Read(root.join(path)), false));
        acts.push(("read what is hidden", Act::Read(place.worktree.join(path).join(HIDDEN)), false));
    }
    let profile = setting.profile.and_then(|profile| Cache::of(profile).ok());
    acts.extend(profile.map(|paths| ("read exam rows", Act::Read(paths.dir().join("exam/val.u16")), false)));
    if task.score.exam {
        acts.extend([
            ("read its own memory", Act::Read("/proc/self/mem".into()), false),
            ("set a file's time", Act::Mark(this.to_path_buf()), false),
            ("signal the driver", Act::Signal, false),
            ("start a process", Act::Start, false),
        ]);
    }
    acts
}

/// Tries the acts of the hidden command's arguments, with what contestant code has, and prints the answers.
///
/// Errors: an argument that is no act, or the kernel does not take back what a GPU's driver alone needs.
pub fn try_acts(acts: &[String]) -> std::io::Result<String> {
    sandbox::forgo()?;
    let mut text = String::new();
    for act in acts {
        text.push_str(&sandbox::attempt(&act.parse().map_err(std::io::Error::other)?).to_string());
        text.push('\n');
    }
    Ok(text)
}
