//! `ratchet schedule`: a night that begins by itself, by a systemd timer of the user's or by cron.
//!
//! What would be written is shown; only `--install` writes it, and only `--remove` takes it away. Every file and block
//! begins with a marker line; what does not is somebody else's and is left alone.

mod cron;
mod systemd;
mod window;

use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::civil::Time;
use sha2::{Digest, Sha256};

pub use self::window::{Window, is_within};
use crate::{
    config::{Answerer, ProposerKind, Task},
    error::{Error, Result},
    exec::{self, End, Spec, StopFlag, allowed_env},
    reach::at_home,
    runlog::{RunLog, Stream},
};

/// The hidden command that says by its exit code whether a night may begin now.
pub const COMMAND: &str = "within";
/// For one call of a program that keeps schedules.
const CALL: Duration = Duration::from_secs(30);
/// What of the present environment a night needs; never a key.
const CARRIED: [&str; 15] = [
    "PATH",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RATCHET_CACHE",
    "RATCHET_PROFILE",
    "RAYON_NUM_THREADS",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_COMPUTE_CAP",
    "CUDARC_CUDA_VERSION",
    "NVCC_CCBIN",
];

/// A night that is to begin by itself.
#[derive(Clone, Debug)]
pub struct Plan {
    root: String,
    window: Window,
    program: String,
    /// Of `ratchet run`.
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Plan {
    /// Nights in `root` from `at` to `until`, `args` further arguments of `ratchet run`. Exit code 2 where the times
    /// are one, or a path cannot be written into a unit or a crontab.
    pub fn new(root: &Path, at: Time, until: Time, args: Vec<String>) -> Result<Self> {
        let window = Window::new(at, until)?;
        let program = std::env::current_exe()
            .map_err(|error| Error::internal("could not find this program's own file").because(error))?;
        let carried = CARRIED.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?)));
        let mut env: BTreeMap<String, String> = carried
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        // where only a login shell's own files name cargo's folder
        let cargo = at_home("~/.cargo/bin");
        if exec::on_path("cargo").is_none() && cargo.join("cargo").is_file() {
            let path =
                env.entry("PATH".to_owned()).or_insert_with(|| "/usr/local/bin:/usr/bin:/bin".to_owned());
            *path = format!("{path}:{}", cargo.display());
        }
        let plan = Self { root: sound(root)?, window, program: sound(&program)?, args, env };
        match plan.env.iter().find(|(_, value)| value.contains(char::is_control)) {
            Some((name, _)) => Err(Error::usage(format!("the variable {name} holds a control character"))),
            None => Ok(plan),
        }
    }

    fn marker(&self) -> Marker {
        Marker { name: name(&self.root), window: self.window, root: self.root.clone() }
    }

    /// `run --until 07:00 …`, program not included.
    fn run(&self) -> Vec<String> {
        let until = self.window.until().to_owned();
        ["run".to_owned(), "--until".to_owned(), until].into_iter().chain(self.args.clone()).collect()
    }

    /// `within 23:00 07:00`.
    fn within(&self) -> Vec<String> {
        [COMMAND, &self.window.at(), &self.window.until()].map(str::to_owned).to_vec()
    }
}

/// The first line of all that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Marker {
    name: String,
    window: Window,
    root: String,
}

impl Marker {
    const WORDS: &str = "# ratchet schedule ";

    fn line(&self) -> String {
        let Self { name, window, root } = self;
        format!("{}{name}: from {} to {} in {root}", Self::WORDS, window.at(), window.until())
    }

    /// The marker that a text begins with.
    fn of(text: &str) -> Option<Self> {
        let (name, rest) = text.lines().next()?.strip_prefix(Self::WORDS)?.split_once(": from ")?;
        let (at, rest) = rest.split_once(" to ")?;
        let (until, root) = rest.split_once(" in ")?;
        let window = Window::new(crate::stop::clock(at).ok()?, crate::stop::clock(until).ok()?).ok()?;
        Some(Self { name: name.to_owned(), window, root: root.to_owned() })
    }
}

/// What keeps the time here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    Systemd,
    Cron,
}

impl Keeper {
    /// systemd where the user has a manager of theirs that answers.
    fn here() -> Self {
        let answers = exec::on_path("systemctl").is_some()
            && call(&["systemctl", "--user", "show-environment"], None).is_ok();
        if answers { Self::Systemd } else { Self::Cron }
    }
}

/// What would be written, and where. Changes nothing.
pub fn show_plan(plan: &Plan) -> Result<String> {
    let window = plan.window;
    let mut text = format!("every night from {} to {} in {}", window.at(), window.until(), plan.root);
    match Keeper::here() {
        Keeper::Systemd => {
            text += ", by a systemd timer of yours:\n";
            for (path, unit) in systemd::units(plan)? {
                let _ = write!(text, "\n{}\n{}", path.display(), indented(&unit));
            }
            text += "\nand then\n";
            for command in systemd::commands(&name(&plan.root)) {
                let _ = writeln!(text, "    {}", command.join(" "));
            }
        }
        Keeper::Cron => {
            text += ", by cron, as no systemd manager of yours answers here:\n\n";
            text += &indented(&cron::block(plan)?);
        }
    }
    text += "\nNothing is written yet: the same command with --install does it, --remove takes it away.\n";
    Ok(text)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// Writes and enables it. What was done, for a person.
pub fn install(plan: &Plan) -> Result<String> {
    let window = plan.window;
    let (done, look) = match Keeper::here() {
        Keeper::Systemd => {
            let written = systemd::install(plan)?;
            let name = name(&plan.root);
            (
                written,
                format!("what it says: journalctl --user -u {name}; when: systemctl --user list-timers"),
            )
        }
        Keeper::Cron => (cron::install(plan)?, format!("what it says: {}", cron::log(&plan.root))),
    };
    let mut text =
        format!("{done}every night from {} to {} in {}\n{look}\n", window.at(), window.until(), plan.root);
    if window.contains(jiff::Zoned::now().time()) {
        text += "it is that time already: the night begins within a minute, unless a run is under way\n";
    }
    Ok(text)
}

/// Takes away what is installed for `root`; a night under way goes on.
pub fn remove(root: &Path) -> Result<String> {
    let name = name(&sound(root)?);
    let done = [systemd::remove(&name)?, cron::remove(&name)?].concat();
    Ok(match done.is_empty() {
        true => "nothing is scheduled here\n".to_owned(),
        false => {
            format!("{done}no night begins by itself any more; `ratchet stop` ends one that is under way\n")
        }
    })
}

/// A night that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// When.
    pub window: Window,
    /// The timer's file, or the crontab.
    pub place: String,
    /// Why it will not begin, where it will not.
    pub problem: Option<String>,
}

/// What is installed for `root`.
pub fn installed(root: &Path) -> Vec<Installed> {
    let Ok(root) = sound(root) else { return Vec::new() };
    let name = name(&root);
    systemd::installed(&name).into_iter().chain(cron::installed(&name)).collect()
}

/// The same in words.
pub fn show(root: &Path) -> String {
    let installed = installed(root);
    if installed.is_empty() {
        return "nothing is scheduled here; `ratchet schedule --at 23:00 --until 07:00` shows what would be\n"
            .to_owned();
    }
    let mut text = String::new();
    for Installed { window, place, problem } in installed {
        let _ = writeln!(text, "every night from {} to {}: {place}", window.at(), window.until());
        if let Some(problem) = problem {
            let _ = writeln!(text, "  but {problem}");
        }
    }
    text
}

/// What a night that begins by itself will lack, each with its remedy.
pub fn warnings(plan: &Plan, task: &Task, kind: ProposerKind) -> Vec<String> {
    let mut warnings = Vec::new();
    let lacks = |variable: &str, key: &str| {
        format!(
            "a scheduled night does not know your variable {variable}: put what it holds into a file that only you \
                 can read, and name that with {key}"
        )
    };
    if let (ProposerKind::Llm, Some(llm)) = (kind, &task.proposer.llm)
        && llm.key_file.is_none()
    {
        let usual = match llm.provider {
            Answerer::Provider(provider) => provider.key_variable().map(str::to_owned),
            Answerer::Scripted => None,
        };
        warnings.extend(
            llm.key_variable
                .clone()
                .or(usual)
                .map(|variable| lacks(&variable, "key_file under [proposer.llm]")),
        );
    }
    if kind == ProposerKind::Agent {
        warnings.push(
            "a scheduled night does not know the variables of your shell: log the agent in by its own command, so that \
             it finds its key in its settings"
                .to_owned(),
        );
    }
    if let Some(variable) = &task.notify.webhook_variable {
        warnings.push(lacks(variable, "webhook_file under [notify]"));
    }
    if Keeper::here() == Keeper::Systemd && !systemd::lingers() {
        warnings.push(
            "your systemd manager ends when you log out, and does not start with the machine: run \
             `loginctl enable-linger` once"
                .to_owned(),
        );
    }
    if plan.program.contains("/target/") {
        warnings.push(format!(
            "{} is a build's file and gone when that is cleaned: `cargo install --path crates/ratchet`, and schedule \
             with that one",
            plan.program
        ));
    }
    warnings
}

/// A path that can stand in a unit and in a crontab.
fn sound(path: &Path) -> Result<String> {
    let refused = |why: &str| {
        Err(Error::usage(format!("its path {why}, so that no timer can name it"))
            .at(path)
            .hint("move it, or start the night by hand"))
    };
    match path.to_str() {
        None => refused("is not UTF-8"),
        Some(text) if text.contains(char::is_control) => refused("holds a control character"),
        Some(text) if text.ends_with(char::is_whitespace) || text.ends_with('\\') => {
            refused("ends with a space or a backslash")
        }
        Some(text) => Ok(text.to_owned()),
    }
}

/// `ratchet-FOLDER-HASH`: readable, and another one for each root.
fn name(root: &str) -> String {
    let folder = root.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let folder: String = folder.chars().map(plain).take(24).collect();
    let folder = match folder.trim_matches('-') {
        "" => "root",
        folder => folder,
    };
    let hash = Sha256::digest(root);
    format!("ratchet-{folder}-{}", hash[..4].iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// What a program that keeps schedules prints; else both outputs, for a person.
fn call(command: &[&str], stdin: Option<Vec<u8>>) -> Result<String, (End, String)> {
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let mut env = allowed_env();
    for name in ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS", "USER", "LOGNAME"] {
        env.extend(std::env::var_os(name).map(|value| (name.into(), value)));
    }
    let spec = Spec { stdin, ..Spec::new(&command, PathBuf::from("/"), env, CALL) };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut hear = |stream, bytes: &[u8]| match stream {
        Stream::Out => out.extend_from_slice(bytes),
        Stream::Err => err.extend_from_slice(bytes),
    };
    let mut log = RunLog::create(Path::new("/dev/null"));
    let end = exec::run(spec, &mut log, &mut hear, &StopFlag::default()).end;
    match end.is_success() {
        true => String::from_utf8(out).map_err(|_| (end, "its output is not UTF-8".to_owned())),
        false => Err((end, crate::runlog::plain(&String::from_utf8_lossy(&err), 300))),
    }
}

/// The same where a failure is one.
fn must(command: &[&str], stdin: Option<Vec<u8>>) -> Result<String> {
    call(command, stdin).map_err(|(end, said)| {
        Error::environment(format!("`{}` {end}: {said}", command.join(" ")))
            .hint("run it yourself to see more")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn plan(root: &str, at: &str, until: &str) -> Plan {
        let clock = |text| crate::stop::clock(text).unwrap();
        let mut plan =
            Plan::new(Path::new(root), clock(at), clock(until), vec!["--tag".to_owned(), "bar".to_owned()])
                .unwrap();
        plan.program = "/bin/true".to_owned();
        plan.env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/odd %d \"$x\"'".to_owned())]);
        plan
    }

    #[test]
    fn names_tell_roots_apart_and_are_names_of_units() {
        let names = ["/home/me/gpt", "/home/you/gpt", "/", "/a b/ü%\"$'", "/x/GPT.2"].map(name);
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        for name in &names {
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
            assert!(name.len() < 50);
        }
        assert!(names[0].starts_with("ratchet-gpt-") && names[2].starts_with("ratchet-root-"));
    }

    #[test]
    fn a_marker_is_read_as_it_was_written_and_nothing_else_is_one() {
        for root in ["/home/me/gpt", "/to 07:00 in /x: from", "/a \"b\" %d"] {
            let marker = plan(root, "23:00", "07:05").marker();
            assert_eq!(Marker::of(&format!("{}\nmore", marker.line())), Some(marker));
        }
        for foreign in ["", "[Unit]", "# ratchet schedule", "# ratchet schedule x: from 25:00 to 07:00 in /x"]
        {
            assert_eq!(Marker::of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_path_that_no_unit_can_hold_is_refused() {
        for bad in ["/a\nExecStart=/bin/evil", "/a\tb", "/a ", "/a\\"] {
            let error = Plan::new(Path::new(bad), Time::constant(23, 0, 0, 0), Time::midnight(), Vec::new());
            assert_eq!(error.unwrap_err().kind.exit_code(), 2, "{bad:?}");
        }
    }
}
