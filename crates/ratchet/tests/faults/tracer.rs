//! Runs the driver under ptrace and stops it at every system call that changes a file below a root.
//!
//! What it starts is let go on as it likes. Changes through a memory map would go unseen; the driver makes none.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::{fs::FileExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        ptrace::{self, Options},
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// What a call does to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file or a folder may come into being, or a file is emptied.
    Create,
    /// Bytes go into a file.
    Write,
    /// A name moves.
    Rename,
    /// A name goes.
    Remove,
    /// A mode, a time, or a length of a file that is there.
    Alter,
    /// What was written becomes durable.
    Sync,
}

/// One call at the driver's stop.
#[derive(Debug)]
pub(super) struct Call {
    /// What it does.
    pub(super) kind: Kind,
    /// The file or folder; of a rename or link, where it leads.
    pub(super) path: PathBuf,
    /// Of a rename, where it comes from.
    pub(super) from: Option<PathBuf>,
    /// The open file, as the kernel shows it, where the call works on one.
    pub(super) open: Option<PathBuf>,
    /// Whether half of it can be made: the third argument is a length.
    pub(super) divisible: bool,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is made.
    Made,
    /// The driver is killed before it.
    Killed,
    /// Half of what it writes is written, and the driver killed then; for a call that is divisible.
    Torn,
    /// It is not made, and the driver is told so.
    Fails(Errno),
}

/// Who decides over calls, and sees them.
pub(super) trait Watch {
    /// Before the call.
    fn before(&mut self, call: &Call) -> Fate;
    /// After a call that succeeded.
    fn after(&mut self, _call: &Call) {}
}

impl<F: FnMut(&Call) -> Fate> Watch for F {
    fn before(&mut self, call: &Call) -> Fate {
        self(call)
    }
}

/// Runs `command` to its end. Gives its exit code; `None` when it was killed.
pub(super) fn trace(mut command: Command, root: &Path, watch: &mut dyn Watch) -> io::Result<Option<i32>> {
    let filter = filter()?;
    // SAFETY: between fork and exec the closure makes three system calls and touches no memory but `filter`.
    unsafe {
        command.pre_exec(move || {
            ptrace::traceme()?;
            seccompiler::apply_filter(&filter).map_err(io::Error::other)
        });
    }
    let child = command.spawn()?;
    let leader = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    waitpid(leader, None)?; // stopped at its exec
    ptrace::setoptions(
        leader,
        Options::PTRACE_O_TRACESECCOMP
            | Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_EXITKILL,
    )?;
    ptrace::cont(leader, None)?;
    let threads = PathBuf::from(format!("/proc/{leader}/task"));
    let mut under_way: Vec<Begun> = Vec::new();
    let mut ended = None;
    loop {
        // this thread's children alone: other threads trace drivers of their own
        let status = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Err(Errno::ECHILD) => return ended.ok_or_else(|| io::Error::other("the driver was lost")),
            status => status?,
        };
        let Some(pid) = status.pid() else { continue };
        let resumed = match status {
            WaitStatus::Exited(_, code) => {
                ended = if pid == leader { Some(Some(code)) } else { ended };
                continue;
            }
            WaitStatus::Signaled(..) => {
                ended = if pid == leader { Some(None) } else { ended };
                continue;
            }
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_SECCOMP)
                if threads.join(pid.to_string()).exists() =>
            {
                match at_entry(pid, root, watch)? {
                    Some(begun) => {
                        under_way.push(begun);
                        ptrace::syscall(pid, None) // to its exit
                    }
                    None => ptrace::cont(pid, None),
                }
            }
            WaitStatus::PtraceSyscall(_) => {
                if let Some(at) = under_way.iter().position(|begun| begun.thread == pid) {
                    at_exit(under_way.swap_remove(at), watch)?;
                }
                ptrace::cont(pid, None)
            }
            // a new process's or thread's first stop; nobody else sends it
            WaitStatus::Stopped(_, Signal::SIGSTOP) => ptrace::cont(pid, None),
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal),
            _ => ptrace::cont(pid, None),
        };
        match resumed {
            Err(Errno::ESRCH) => {} // killed just now: its end is reported next
            resumed => resumed?,
        }
    }
}

/// Has the kernel stop a process at the calls that may change files, and at no other: the driver looks through
/// `/proc` thousands of times. What it starts inherits this, and is let go on at once.
fn filter() -> io::Result<BpfProgram> {
    let mut numbers: BTreeMap<i64, Vec<SeccompRule>> =
        CALLS.iter().map(|number| (*number, Vec::new())).collect();
    // most files are opened to be read
    let creates = [libc::O_CREAT, libc::O_TRUNC].map(|flag| {
        let flag = flag as u64;
        SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)
            .and_then(|condition| SeccompRule::new(vec![condition]))
    });
    let creates = creates.into_iter().collect::<Result<_, _>>().map_err(io::Error::other)?;
    numbers.insert(libc::SYS_openat, creates);
    let (here, stop) = (std::env::consts::ARCH.try_into(), SeccompAction::Trace(0));
    let here = here.map_err(io::Error::other)?;
    let filter = SeccompFilter::new(numbers, SeccompAction::Allow, stop, here).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

/// A call between its entry and its exit.
struct Begun {
    thread: Pid,
    call: Call,
    fate: Fate,
    registers: registers::Registers,
}

/// A call's exit.
fn at_exit(begun: Begun, watch: &mut dyn Watch) -> io::Result<()> {
    let Begun { thread, call, fate, registers } = begun;
    match fate {
        Fate::Made if registers::result(thread)? >= 0 => watch.after(&call),
        Fate::Fails(errno) => registers::give_back(thread, registers, -(errno as i64))?,
        Fate::Torn => nix::sys::signal::kill(thread, Signal::SIGKILL)?,
        _ => {}
    }
    Ok(())
}

/// A call's entry; `None` when it changes no file below `root`.
fn at_entry(pid: Pid, root: &Path, watch: &mut dyn Watch) -> io::Result<Option<Begun>> {
    let info = ptrace::syscall_info(pid)?;
    if info.op != libc::PTRACE_SYSCALL_INFO_SECCOMP {
        return Ok(None);
    }
    // SAFETY: the kernel says in `op` that `seccomp` is the member that it filled in.
    let (number, args) = unsafe { (info.u.seccomp.nr, info.u.seccomp.args) };
    let Some((kind, target, from)) = changing(number as i64, args) else { return Ok(None) };
    let Some(path) = resolve(pid, target).filter(|path| path.starts_with(root)) else {
        return Ok(None);
    };
    let open = match target {
        Target::Fd(fd) => Some(PathBuf::from(format!("/proc/{pid}/fd/{fd}"))),
        Target::At(..) => None,
    };
    let divisible = matches!(number as i64, libc::SYS_write | libc::SYS_pwrite64);
    let call = Call { kind, path, from: from.and_then(|from| resolve(pid, from)), open, divisible };
    let fate = watch.before(&call);
    let registers = ptrace::getregs(pid)?;
    match fate {
        Fate::Made => {}
        Fate::Killed => nix::sys::signal::kill(pid, Signal::SIGKILL)?,
        Fate::Torn => registers::set_third(pid, registers, args[2] / 2)?,
        // a descriptor and an address that cannot be: the kernel itself refuses, and changes nothing
        Fate::Fails(_) => registers::spoil(pid, registers)?,
    }
    Ok(Some(Begun { thread: pid, call, fate, registers }))
}

/// What a call works on.
#[derive(Clone, Copy)]
enum Target {
    /// An open file.
    Fd(u64),
    /// A folder's descriptor, and the address of a path.
    At(u64, u64),
}

/// The current folder, as a descriptor.
const HERE: u64 = libc::AT_FDCWD as u64;

/// Every call that [`changing`] knows, `openat` aside.
const CALLS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    libc::SYS_mkdirat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_sendfile,
    libc::SYS_fallocate,
    libc::SYS_copy_file_range,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_ftruncate,
    libc::SYS_fchmod,
    libc::SYS_truncate,
    libc::SYS_utimensat,
    libc::SYS_fchmodat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_syncfs,
];

/// Kind, target and source of a call that changes files; `None` for any other.
fn changing(number: i64, args: [u64; 6]) -> Option<(Kind, Target, Option<Target>)> {
    use Kind::{Alter, Create, Remove, Rename, Sync, Write};
    use Target::{At, Fd};
    let [a, b, c, d, ..] = args;
    let creates = |flags: u64| flags & (libc::O_CREAT | libc::O_TRUNC) as u64 != 0;
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_open if creates(b) => return Some((Create, At(HERE, a), None)),
        libc::SYS_creat | libc::SYS_mkdir => return Some((Create, At(HERE, a), None)),
        libc::SYS_link | libc::SYS_symlink => return Some((Create, At(HERE, b), None)),
        libc::SYS_rename => return Some((Rename, At(HERE, b), Some(At(HERE, a)))),
        libc::SYS_unlink | libc::SYS_rmdir => return Some((Remove, At(HERE, a), None)),
        libc::SYS_chmod | libc::SYS_utime | libc::SYS_utimes => return Some((Alter, At(HERE, a), None)),
        _ => {}
    }
    Some(match number {
        libc::SYS_openat if creates(c) => (Create, At(a, b), None),
        libc::SYS_mkdirat => (Create, At(a, b), None),
        libc::SYS_linkat => (Create, At(c, d), None),
        libc::SYS_symlinkat => (Create, At(b, c), None),
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_pwritev => (Write, Fd(a), None),
        libc::SYS_sendfile | libc::SYS_fallocate => (Write, Fd(a), None),
        libc::SYS_copy_file_range => (Write, Fd(c), None),
        libc::SYS_renameat | libc::SYS_renameat2 => (Rename, At(c, d), Some(At(a, b))),
        libc::SYS_unlinkat => (Remove, At(a, b), None),
        libc::SYS_ftruncate | libc::SYS_fchmod => (Alter, Fd(a), None),
        libc::SYS_truncate => (Alter, At(HERE, a), None),
        libc::SYS_utimensat if b == 0 => (Alter, Fd(a), None),
        libc::SYS_fchmodat | libc::SYS_utimensat => (Alter, At(a, b), None),
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_syncfs => (Sync, Fd(a), None),
        _ => return None,
    })
}

fn resolve(pid: Pid, target: Target) -> Option<PathBuf> {
    let link = |fd: u64| match fd as i32 {
        libc::AT_FDCWD => fs::read_link(format!("/proc/{pid}/cwd")).ok(),
        fd => fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok(),
    };
    match target {
        Target::Fd(fd) => link(fd),
        Target::At(folder, address) => {
            let path = string(pid, address)?;
            if path.is_absolute() { Some(path) } else { Some(link(folder)?.join(path)) }
        }
    }
}

/// The path at an address of the driver's memory.
fn string(pid: Pid, address: u64) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = vec![0; libc::PATH_MAX as usize];
    let read = memory.read_at(&mut bytes, address).ok()?; // less where the mapping ends
    let end = bytes[..read].iter().position(|byte| *byte == 0)?;
    bytes.truncate(end);
    Some(std::ffi::OsString::from_vec(bytes).into())
}

/// The driver's registers, by what they mean for a system call.
mod registers {
    use std::io;

    use nix::{
        sys::ptrace::{getregs, setregs},
        unistd::Pid,
    };

    pub(super) type Registers = nix::libc::user_regs_struct;

    /// What the call returned; negative for an error.
    pub(super) fn result(pid: Pid) -> io::Result<i64> {
        Ok(*result_of(&mut getregs(pid)?) as i64)
    }

    /// At a call's exit: the registers as they were at its entry, which a program relies on, and what it is told.
    pub(super) fn give_back(pid: Pid, mut registers: Registers, result: i64) -> io::Result<()> {
        *result_of(&mut registers) = result as u64;
        Ok(setregs(pid, registers)?)
    }

    /// At a call's entry: its third argument.
    pub(super) fn set_third(pid: Pid, mut registers: Registers, value: u64) -> io::Result<()> {
        *arguments(&mut registers)[2] = value;
        Ok(setregs(pid, registers)?)
    }

    /// At a call's entry: arguments that name no file and no address.
    pub(super) fn spoil(pid: Pid, mut registers: Registers) -> io::Result<()> {
        arguments(&mut registers).into_iter().for_each(|argument| *argument = u64::MAX);
        Ok(setregs(pid, registers)?)
    }

    #[cfg(target_arch = "x86_64")]
    fn result_of(registers: &mut Registers) -> &mut u64 {
        &mut registers.rax
    }

    #[cfg(target_arch = "aarch64")]
    fn result_of(registers: &mut Registers) -> &mut u64 {
        &mut registers.regs[0]
    }

    #[cfg(target_arch = "x86_64")]
    fn arguments(registers: &mut Registers) -> [&mut u64; 4] {
        let Registers { rdi, rsi, rdx, r10, .. } = registers;
        [rdi, rsi, rdx, r10]
    }

    #[cfg(target_arch = "aarch64")]
    fn arguments(registers: &mut Registers) -> [&mut u64; 4] {
        let [a, b, c, d, ..] = &mut registers.regs;
        [a, b, c, d]
    }
}
