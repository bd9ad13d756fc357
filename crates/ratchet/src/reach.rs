//! What each kind of process may reach: builds, trials, agents.
//!
//! Landlock grants whole folders, so every grant is as narrow as its purpose: a contest's fit gets its binary,
//! the training tokens and a folder of its own, not the worktree and not `.git`, which hold the validation
//! text. What is not named here cannot be read, the home directory with its keys included.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use sandbox::{Access, Available, Calls, Confinement, Policy};

use crate::{
    commands::Place,
    config::{SandboxMode, Step, Task},
    error::{Error, Result},
    exec::on_path,
    proposer::agent::PROPOSAL_FILE,
    setting::Setting,
};

/// Programs and their libraries, and what they read of the system.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/run/opengl-driver",
];
/// Settings in `/etc` without secrets; of the rest, some hold passwords and private keys.
const SETTINGS: &[&str] = &[
    "alternatives",
    "ca-certificates",
    "fonts",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "locale.conf",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki/tls/certs",
    "pki/ca-trust",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "static",
    "terminfo",
    "timezone",
];
/// What a runtime asks of the kernel. Not the whole of `/proc`: there a process reads its own memory, the nonce of
/// an exam in it, and the environment of every other process of its user, the driver's with its keys included.
const KERNEL: &[&str] = &[
    "/sys",
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/driver",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/stat",
    "/proc/sys",
    "/proc/version",
];
/// Devices that every program has.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Files of a profile that a fit reads, beside the training tokens.
const TRAINING: &[&str] = &["manifest.json", "verified.json", "tokenizer.json", "token_bytes.u8", "train"];

/// Whether trials are confined here: `None` when the task says `off`, or says `auto` and the kernel cannot.
///
/// Errors: exit code 4 where `required` cannot be had.
pub fn confined(task: &Task) -> Result<bool> {
    match (task.sandbox.mode, sandbox::available()) {
        (SandboxMode::Off, _) | (SandboxMode::Auto, Available::Nothing(_)) => Ok(false),
        (SandboxMode::Auto, _) | (SandboxMode::Required, Available::Whole { .. }) => Ok(true),
        (SandboxMode::Required, Available::Nothing(why)) => Err(lacking(&why)),
        (SandboxMode::Required, Available::Part { abi, open }) => {
            Err(lacking(&format!("this kernel's sandbox is incomplete (Landlock {abi}): {open}")))
        }
    }
}

/// The error where the task, or the proposer, needs a sandbox that this machine does not have.
pub fn lacking(why: &str) -> Error {
    Error::environment(format!("there is no sandbox here, and what runs in a trial could do anything: {why}"))
        .at(crate::config::FILE)
        .hint(
            "use a kernel that has one, or, where you trust the proposer, set mode = \"off\" under [sandbox]",
        )
}

/// The policy as something a child can apply; `None` without a sandbox.
pub fn confinement(task: &Task, policy: impl FnOnce() -> Policy) -> Result<Option<Confinement>> {
    if !confined(task)? {
        return Ok(None);
    }
    policy()
        .confinement()
        .map(Some)
        .map_err(|error| Error::environment("a process could not be confined").because(error))
}

/// Who reaches what in one run of a task.
pub struct Reach<'a> {
    /// The contract.
    pub task: &'a Task,
    /// Profile, device, data.
    pub setting: &'a Setting,
    /// Folders.
    pub place: &'a Place,
}

impl Reach<'_> {
    /// A build: toolchain, sources and the target directory; no network, no data, nothing hidden.
    pub fn build(&self, step: &Step) -> Policy {
        let mut policy = self.command(&step.command);
        toolchain(&mut policy, &self.place.root);
        if let Some(compiler) = self.setting.card.as_ref().and_then(|card| card.compiler.as_ref()) {
            compiler.root().iter().for_each(|root| {
                policy.grant(Access::Run, root);
            });
        }
        self.tree(&mut policy, Access::Run);
        if !step.is_cargo() {
            self.tree(&mut policy, Access::Own); // other builds leave their output beside the sources
        }
        policy.grant(Access::Own, &self.place.target).grant(Access::Own, self.place.tmp());
        policy
    }

    /// A preflight: a fit that may also make folders, in what is cleared before the fit.
    pub fn preflight(&self, command: &[String]) -> Policy {
        let mut policy = self.fit(command);
        policy.grant(Access::Own, self.place.out());
        policy
    }

    /// A fit. It writes its own folder alone.
    pub fn fit(&self, command: &[String]) -> Policy {
        let mut policy = if self.task.score.exam {
            let mut policy = self.contest();
            self.training(&mut policy);
            policy.grant(Access::Write, self.place.out()).grant(Access::Write, self.place.tmp());
            policy
        } else {
            self.process(command)
        };
        if self.setting.card.is_some() {
            nvidia(&mut policy, &self.place.root);
            policy.grant(Access::Own, self.place.tmp()); // the driver's kernel cache has folders
        }
        policy
    }

    /// A score. In a contest it reads the model and writes nothing at all.
    pub fn score(&self, command: &[String]) -> Policy {
        let mut policy = if self.task.score.exam {
            let mut policy = self.contest();
            policy.grant(Access::Read, self.place.out()).grant(Access::Read, self.place.tmp());
            policy
        } else {
            self.process(command)
        };
        if self.setting.card.is_some() {
            nvidia(&mut policy, &self.place.root);
        }
        policy
    }

    /// Text: what a score reaches, and in a contest the tokenizer.
    pub fn text(&self, command: &[String]) -> Policy {
        let mut policy = self.score(command);
        if let Some(folder) = self.setting.profile_dir().filter(|_| self.task.score.exam) {
            for name in ["manifest.json", "tokenizer.json"] {
                policy.grant(Access::Read, folder.join(name));
            }
        }
        policy
    }

    /// The binary of a contest: it starts nothing and leaves no marks.
    fn contest(&self) -> Policy {
        let mut policy = Policy::new(Calls::default());
        self.hide(&mut policy);
        SYSTEM.iter().chain(KERNEL).for_each(|path| {
            policy.grant(Access::Read, path);
        });
        settings(&mut policy);
        // to be executed, a program needs its loader
        for folder in ["/lib", "/lib64"] {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_name().as_encoded_bytes().starts_with(b"ld-") {
                    policy.grant(Access::Run, entry.path());
                }
            }
        }
        for store in ["/nix/store", "/gnu/store"] {
            policy.grant(Access::Run, store);
        }
        policy.grant(Access::Run, &self.place.bin);
        policy
    }

    /// Any other task's process: programs of the system and of PATH, the worktree to read, its own folders.
    fn process(&self, command: &[String]) -> Policy {
        let mut policy = self.command(command);
        self.tree(&mut policy, Access::Run);
        policy.grant(Access::Run, &self.place.bin).grant(Access::Run, &self.place.target);
        policy
            .grant(Access::Own, self.place.out())
            .grant(Access::Own, self.place.tmp())
            .grant(Access::Own, "/dev/shm");
        self.training(&mut policy);
        policy
    }

    /// The profile's training tokens, where the task has profiles.
    fn training(&self, policy: &mut Policy) {
        if let Some(folder) = self.setting.profile_dir() {
            TRAINING.iter().for_each(|name| {
                policy.grant(Access::Read, folder.join(name));
            });
        }
    }

    fn command(&self, command: &[String]) -> Policy {
        let mut policy = Policy::new(Calls { internet: false, processes: true, marks: true });
        self.hide(&mut policy);
        programs(&mut policy, command.first().map(String::as_str));
        // a contract may name files of the user's root
        let inside = command.iter().filter_map(|arg| arg.strip_prefix("{root}/"));
        for path in
            inside.map(Path::new).filter(|path| !path.starts_with(".git") && !path.starts_with(".ratchet"))
        {
            policy.grant(Access::Run, self.place.root.join(path));
        }
        policy
    }

    /// The worktree, less what the task hides.
    fn tree(&self, policy: &mut Policy, access: Access) {
        worktree(policy, self.task, &self.place.worktree, access);
    }

    fn hide(&self, policy: &mut Policy) {
        hide(policy, self.task, &self.place.root);
        policy.hide(&self.place.worktree);
        self.setting.cache_root().iter().for_each(|root| {
            policy.hide(*root);
        });
    }
}

/// An agent: the programs it needs, the network, the worktree; it writes only where a candidate may differ.
pub fn agent(task: &Task, root: &Path, tree: &Path, command: &[String]) -> Policy {
    let mut policy = Policy::new(Calls { internet: true, processes: true, marks: true });
    hide(&mut policy, task, root);
    programs(&mut policy, command.first().map(String::as_str));
    toolchain(&mut policy, root);
    worktree(&mut policy, task, tree, Access::Run);
    policy.itself(); // Bun, which some agents are made with, aborts where it cannot read its own memory map
    for folder in task.editable_folders() {
        policy.grant(Access::Own, tree.join(folder));
    }
    policy.grant(Access::Write, tree.join(PROPOSAL_FILE));
    policy
}

/// `~/x` → x in the home directory; anything else as it is.
pub fn at_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

/// The home directory, which the password file knows where HOME does not say it.
fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// Folders that are never an installation, whatever HOME says: all of the system, and homes.
fn is_everybodys(prefix: &Path) -> bool {
    let homes = ["/home", "/Users", "/var/home"].map(Path::new);
    prefix.parent().is_none_or(|parent| homes.contains(&parent))
        || homes.contains(&prefix)
        || prefix == Path::new("/root")
}

/// Keeps out of every grant what is not to be seen, should it lie inside a folder of the system; grants what the
/// task says may be read all the same.
fn hide(policy: &mut Policy, task: &Task, root: &Path) {
    for path in &task.sandbox.read {
        policy.grant(Access::Run, at_home(path));
    }
    policy.hide(root);
    if let Some(home) = home() {
        policy.hide(home);
    }
    for name in ["credentials", "credentials.toml"] {
        policy.hide(cargo_home().join(name));
    }
}

/// The files of a worktree, less what the task hides; all names in it, to list.
fn worktree(policy: &mut Policy, task: &Task, path: &Path, access: Access) {
    policy.grant(Access::List, path);
    for hidden in &task.sandbox.hide {
        policy.hide(path.join(hidden));
    }
    policy.grant(access, path);
}

fn settings(policy: &mut Policy) {
    for name in SETTINGS {
        policy.grant(Access::Read, Path::new("/etc").join(name));
    }
    for device in DEVICES {
        policy.grant(Access::Device, device);
    }
}

/// The system's programs, those of PATH, and `program` with what it is installed with.
fn programs(policy: &mut Policy, program: Option<&str>) {
    for path in SYSTEM.iter().chain(KERNEL) {
        policy.grant(Access::Run, path);
    }
    settings(policy);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: BTreeSet<PathBuf> =
        std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    let found = program.and_then(on_path);
    folders.extend(found.and_then(|file| fs::canonicalize(file).ok()?.parent().map(Path::to_path_buf)));
    for folder in folders {
        // `…/bin` belongs to an installation beside it, but not all of `~` or `~/.local` is one
        let prefix = folder.parent().filter(|prefix| {
            let personal = home().is_some_and(|home| home.starts_with(prefix) || prefix.ends_with(".local"));
            folder.ends_with("bin") && !personal && !is_everybodys(prefix)
        });
        policy.grant(Access::Run, prefix.unwrap_or(&folder));
    }
}

fn cargo_home() -> PathBuf {
    std::env::var_os("CARGO_HOME").map_or_else(|| at_home("~/.cargo"), PathBuf::from)
}

/// Rust as rustup installs it, and cargo's settings and downloads.
fn toolchain(policy: &mut Policy, root: &Path) {
    let rustup = std::env::var_os("RUSTUP_HOME").map_or_else(|| at_home("~/.rustup"), PathBuf::from);
    policy.grant(Access::Run, rustup).grant(Access::Run, cargo_home());
    for folder in root.ancestors() {
        for name in ["config", "config.toml"] {
            policy.grant(Access::Read, folder.join(".cargo").join(name));
        }
    }
}

/// What CUDA needs: the devices of NVIDIA's driver, the libraries that LD_LIBRARY_PATH leads to, and what the
/// kernel shows of the process. A contest gives up the last before it runs contestant code.
fn nvidia(policy: &mut Policy, root: &Path) {
    policy.itself();
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let private = |folder: &Path| {
        folder.starts_with(root)
            || root.starts_with(folder)
            || home().is_some_and(|home| home.starts_with(folder))
    };
    for folder in std::env::split_paths(&path).filter(|folder| folder.is_absolute() && !private(folder)) {
        policy.grant(Access::Read, folder);
    }
    for folder in ["/dev", "/dev/nvidia-caps"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"nvidia") && !entry.path().is_dir() {
                policy.grant(Access::Device, entry.path());
            }
        }
    }
}
