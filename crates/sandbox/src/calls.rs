//! System calls that a confined process does not have.
//!
//! A list of what is denied and not of what is allowed: a CUDA driver, an allocator or a runtime may use any
//! ordinary call, and a trial that dies of a new one helps nobody. What reads or changes files is Landlock's.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use crate::{SandboxError, policy::Calls};

/// Never: other processes' memory, ways around file rules, the system itself.
const ALWAYS: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init, // holds up and refuses what others open
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup, // its operations pass by every filter
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_add_key, // keys outlive the process that stores them
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
];

/// Settings of a process that whatever it starts inherits, each with the arguments that mean oneself: a driver
/// pinned to one processor would pin every later trial.
const OF_OTHERS: &[(c_long, &[(u8, u64)])] = &[
    (libc::SYS_prlimit64, &[(0, 0)]),
    (libc::SYS_sched_setaffinity, &[(0, 0)]),
    (libc::SYS_sched_setscheduler, &[(0, 0)]),
    (libc::SYS_sched_setparam, &[(0, 0)]),
    (libc::SYS_sched_setattr, &[(0, 0)]),
    (libc::SYS_setpriority, &[(0, libc::PRIO_PROCESS as u64), (1, 0)]),
    (libc::SYS_ioprio_set, &[(0, IOPRIO_WHO_PROCESS), (1, 0)]),
];
const IOPRIO_WHO_PROCESS: u64 = 1;

/// In a namespace of its own a process would have rights that it lacks here.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Without [`Calls::processes`].
const SIGNALS: &[c_long] =
    &[libc::SYS_kill, libc::SYS_pidfd_send_signal, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo];

/// Without [`Calls::marks`].
const MARKS: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
];

/// Not in every libc yet; the number is the same on all architectures.
const SYS_FCHMODAT2: c_long = 452;

/// Calls that only the older architectures have.
#[cfg(target_arch = "x86_64")]
mod old {
    use libc::c_long;
    pub(super) const ALWAYS: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm];
    pub(super) const PROCESSES: &[c_long] = &[libc::SYS_fork, libc::SYS_vfork];
    pub(super) const MARKS: &[c_long] = &[
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_futimesat,
    ];
}
#[cfg(not(target_arch = "x86_64"))]
mod old {
    pub(super) const ALWAYS: &[libc::c_long] = &[];
    pub(super) const PROCESSES: &[libc::c_long] = &[];
    pub(super) const MARKS: &[libc::c_long] = &[];
}

/// The filters of a confined process, to be applied in this order. A filter has one answer for all that it
/// denies, so there are two.
pub(crate) fn filters(calls: Calls) -> Result<Vec<BpfProgram>, SandboxError> {
    let mut denied: Vec<c_long> = [ALWAYS, old::ALWAYS].concat();
    if !calls.processes {
        denied.extend([SIGNALS, old::PROCESSES].concat());
    }
    if !calls.marks {
        denied.extend([MARKS, old::MARKS].concat());
    }
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        denied.into_iter().map(|call| (call, Vec::new())).collect();
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(|family| family as u64); // netlink: getaddrinfo asks for interfaces
    let others = match calls.internet {
        true => vec![
            SeccompRule::new(
                families
                    .map(|family| condition(0, SeccompCmpOp::Ne, family))
                    .into_iter()
                    .collect::<Result<_, _>>()?,
            )
            .map_err(wrong)?,
        ],
        false => Vec::new(),
    };
    rules.insert(libc::SYS_socket, others);
    for (call, oneself) in OF_OTHERS {
        let others = oneself.iter().map(|(argument, value)| rule(*argument, SeccompCmpOp::Ne, *value));
        rules.insert(*call, others.collect::<Result<_, _>>()?);
    }
    let bits = |flag: i32| u64::from(flag.cast_unsigned());
    let mut clones = NAMESPACES
        .iter()
        .map(|flag| rule(0, SeccompCmpOp::MaskedEq(bits(*flag)), bits(*flag)))
        .collect::<Result<Vec<_>, _>>()?;
    if !calls.processes {
        clones.push(rule(0, SeccompCmpOp::MaskedEq(bits(libc::CLONE_THREAD)), 0)?);
    }
    rules.insert(libc::SYS_clone, clones);
    // the flags of `clone3` lie in memory, where no filter sees them; libc then takes `clone`
    let unseen = [(libc::SYS_clone3, Vec::new())].into();
    Ok(vec![native_only(), program(rules, libc::EPERM)?, program(unseen, libc::ENOSYS)?])
}

/// No other program, and no other process, from here on.
pub(crate) fn seal() -> Result<Vec<BpfProgram>, SandboxError> {
    let mut programs = filters(Calls { processes: false, marks: true, internet: true })?;
    let exec = [libc::SYS_execve, libc::SYS_execveat].map(|call| (call, Vec::new()));
    programs.push(program(exec.into(), libc::EPERM)?);
    Ok(programs)
}

/// Denies the calls of x32, which some kernels have beside those of x86-64: they are numbered anew above this bit,
/// where no other filter knows them. Other architectures use no number so high.
fn native_only() -> BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    let instruction = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let answer = |k| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    vec![
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the call's number, the first field
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32_BIT),
        answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> Result<BpfProgram, SandboxError> {
    let arch = std::env::consts::ARCH.try_into().map_err(wrong)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), arch)
        .map_err(wrong)?;
    filter.try_into().map_err(wrong)
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, SandboxError> {
    SeccompRule::new(vec![condition(argument, operator, value)?]).map_err(wrong)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, SandboxError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).map_err(wrong)
}

fn wrong(error: impl std::fmt::Display) -> SandboxError {
    SandboxError::Calls(error.to_string())
}
