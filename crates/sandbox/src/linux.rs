//! Policies as the kernel takes them.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::Path,
    sync::OnceLock,
    thread,
};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath,
    PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};
use seccompiler::BpfProgram;

use crate::{
    Available, SandboxError, calls,
    policy::{Access, Calls, Policy},
};

/// The newest version whose rights are used.
const NEWEST: ABI = ABI::V6;

/// The variable that tells a child which open file holds the rules for [`forgo`].
const FORGO: &str = "RATCHET_FORGO";

/// A policy ready to be applied by a child to itself.
#[derive(Debug)]
pub struct Confinement {
    files: Option<OwnedFd>,
    /// With [`Policy::itself`]: the rules without that grant, and the rights that it consists of.
    itself: Option<(OwnedFd, u64)>,
    calls: Vec<BpfProgram>,
}

impl Policy {
    /// Opens what is granted and compiles the filters.
    ///
    /// Errors: nothing to confine with, or the kernel refuses.
    pub fn confinement(&self) -> Result<Confinement, SandboxError> {
        if let Available::Nothing(why) = available() {
            return Err(SandboxError::Nothing(why));
        }
        let itself = match (self.has_itself(), available()) {
            (true, Available::Whole { abi } | Available::Part { abi, .. }) => Some((self.rules()?, own(abi))),
            _ => None,
        };
        Ok(Confinement { files: Some(self.rules()?), itself, calls: calls::filters(self.calls())? })
    }

    fn rules(&self) -> Result<OwnedFd, SandboxError> {
        let wrong = |error: landlock::RulesetError| SandboxError::Files(error.to_string());
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(landlock_all())
            .map_err(wrong)?;
        if !self.calls().internet {
            // a second lock on the same door: no rule opens a port again
            rules = rules.handle_access(AccessNet::from_all(NEWEST)).map_err(wrong)?;
        }
        let mut rules = rules
            .scope(Scope::AbstractUnixSocket)
            .map_err(wrong)?
            .scope(Scope::Signal)
            .map_err(wrong)?
            .create()
            .map_err(wrong)?;
        for (path, accesses) in self.resolved() {
            // gone since it was looked at: then there is nothing to grant
            let Ok(fd) = PathFd::new(&path) else { continue };
            let rights =
                accesses.into_iter().map(|access| rights(access, &path)).collect::<BitFlags<AccessFs>>();
            if !rights.is_empty() {
                rules = rules.add_rule(PathBeneath::new(fd, rights)).map_err(wrong)?;
            }
        }
        Option::<OwnedFd>::from(rules).ok_or_else(|| SandboxError::Nothing(NONE.into()))
    }
}

impl Confinement {
    /// A variable of the environment that the child must have, for [`forgo`].
    pub fn variable(&self) -> Option<(&'static str, String)> {
        self.itself.as_ref().map(|(rules, _)| (FORGO, rules.as_raw_fd().to_string()))
    }

    /// Confines the calling thread and all that it starts, for good. For a child between `fork` and `exec`:
    /// system calls only, no allocation. The first call confines, later ones do nothing more.
    pub fn enter(&mut self) -> io::Result<()> {
        if let Some(files) = self.files.take() {
            if let Some((later, rights)) = &self.itself {
                grant_itself(&files, *rights)?;
                // SAFETY: takes no address; the file is open, and stays so through `exec`.
                done(unsafe { libc::fcntl(later.as_raw_fd(), libc::F_SETFD, 0) }.into())?;
            }
            restrict(&files)?;
            for program in &self.calls {
                seccompiler::apply_filter(program).map_err(|_| io::Error::from_raw_os_error(libc::EPERM))?;
            }
        }
        Ok(())
    }
}

/// Gives up what [`Policy::itself`] granted to this process, where it did: for the calling thread and those that
/// it starts from then on. To be called once, before the first line of code that is not to be trusted.
///
/// Errors: the kernel refuses.
pub fn forgo() -> io::Result<()> {
    let Ok(number) = std::env::var(FORGO) else { return Ok(()) };
    let number: RawFd = number.parse().map_err(io::Error::other)?;
    // SAFETY: whoever confined this process opened it for this purpose, and nothing else here knows its number.
    let rules = unsafe { OwnedFd::from_raw_fd(number) };
    restrict(&rules)
}

/// What the kernel shows of a process, to read and to change; `abi`: Landlock's version.
fn own(abi: u32) -> u64 {
    let rights = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile;
    let truncate = if abi >= 3 { BitFlags::from(AccessFs::Truncate) } else { BitFlags::EMPTY };
    (rights | truncate).bits()
}

/// Adds this very process to the rules: its number is not known before it is there.
fn grant_itself(rules: &OwnedFd, rights: u64) -> io::Result<()> {
    /// `struct landlock_path_beneath_attr`.
    #[repr(C, packed)]
    struct PathBeneathAttr {
        allowed_access: u64,
        parent_fd: i32,
    }
    const RULE_PATH_BENEATH: libc::c_int = 1;
    let folder = rustix::fs::open(
        c"/proc/self",
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let rule = PathBeneathAttr { allowed_access: rights, parent_fd: folder.as_raw_fd() };
    // SAFETY: the kernel reads a `landlock_path_beneath_attr` at the address given, which lives until then.
    done(unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0)
    })
}

/// Applies rules to the calling thread.
fn restrict(rules: &OwnedFd) -> io::Result<()> {
    // SAFETY: neither call takes an address.
    unsafe {
        done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        done(libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0))
    }
}

/// The error of a system call that has just answered.
fn done(answer: libc::c_long) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes from this process, all its threads included, the right to start others or become another program.
///
/// Errors: the kernel has no filters.
pub fn seal() -> Result<(), SandboxError> {
    for program in calls::seal()? {
        seccompiler::apply_filter_all_threads(&program)
            .map_err(|error| SandboxError::Calls(error.to_string()))?;
    }
    Ok(())
}

/// What this kernel has, found by confining a thread that is thrown away; asked for once.
pub fn available() -> Available {
    static FOUND: OnceLock<Available> = OnceLock::new();
    FOUND
        .get_or_init(|| thread::spawn(confine_this_thread).join().unwrap_or(Available::Nothing(NONE.into())))
        .clone()
}

const NONE: &str = "this kernel has no Landlock, or the container hides it";

fn confine_this_thread() -> Available {
    let confined = Ruleset::default()
        .handle_access(landlock_all())
        .and_then(Ruleset::create)
        .and_then(RulesetCreated::restrict_self);
    let abi = match confined.map(|status| status.landlock) {
        Ok(LandlockStatus::Available { effective_abi, kernel_abi }) => {
            kernel_abi.and_then(|abi| u32::try_from(abi).ok()).unwrap_or(effective_abi as u32)
        }
        Ok(LandlockStatus::NotEnabled) => {
            return Available::Nothing(
                "Landlock is built into this kernel but not switched on (lsm=landlock)".into(),
            );
        }
        Ok(LandlockStatus::NotImplemented) | Err(_) => return Available::Nothing(NONE.into()),
    };
    let filtered = calls::filters(Calls::default())
        .is_ok_and(|programs| programs.iter().all(|program| seccompiler::apply_filter(program).is_ok()));
    if !filtered {
        return Available::Nothing("this kernel filters no system calls (seccomp)".into());
    }
    let mut open = Vec::new();
    if abi < 3 {
        open.push("files can be cut short");
    }
    if abi < 5 {
        open.push("devices can be controlled");
    }
    if abi < 6 {
        open.push("threads of other processes can be signalled");
    }
    match open.is_empty() {
        true => Available::Whole { abi },
        false => Available::Part { abi, open: open.join(", ") },
    }
}

fn landlock_all() -> BitFlags<AccessFs> {
    AccessFs::from_all(NEWEST)
}

/// Landlock's rights for an access to a path; those for folders make no sense for a file.
fn rights(access: Access, path: &Path) -> BitFlags<AccessFs> {
    use AccessFs::*;
    let read = ReadFile | ReadDir;
    let change = WriteFile | Truncate | MakeReg | RemoveFile | Refer;
    let rights = match access {
        Access::List => BitFlags::from(ReadDir),
        Access::Read => read,
        Access::Run => read | Execute,
        Access::Write => read | change,
        Access::Own => read | change | Execute | MakeDir | RemoveDir | MakeSym | MakeFifo | MakeSock,
        Access::Device => ReadFile | WriteFile | IoctlDev,
    };
    if path.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST) }
}
