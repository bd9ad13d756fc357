//! Policies as the kernel takes them.

use std::{io, path::Path, sync::OnceLock, thread};

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

/// A policy ready to be applied by a child to itself.
#[derive(Debug)]
pub struct Confinement {
    files: Option<RulesetCreated>,
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
        Ok(Confinement { files: Some(rules), calls: calls::filters(self.calls())? })
    }
}

impl Confinement {
    /// Confines the calling thread and all that it starts, for good. For a child between `fork` and `exec`:
    /// system calls only, no allocation. The first call confines, later ones do nothing more.
    pub fn enter(&mut self) -> io::Result<()> {
        let denied = |_| io::Error::from_raw_os_error(libc::EPERM);
        if let Some(files) = self.files.take() {
            files.restrict_self().map_err(denied)?;
            for program in &self.calls {
                seccompiler::apply_filter(program).map_err(|_| io::Error::from_raw_os_error(libc::EPERM))?;
            }
        }
        Ok(())
    }
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
