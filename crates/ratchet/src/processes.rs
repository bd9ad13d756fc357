//! Processes as the kernel shows them: who descends from us, who is left over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    os::unix::process::CommandExt,
    process::{Child, Command},
    sync::{Mutex, PoisonError},
};

use rustix::process::{Pid, Signal, WaitOptions};

/// The variable that marks a trial's processes, so that leftovers of a killed driver are found again.
pub const MARK: &str = "RATCHET_TRIAL";

/// One process, as `/proc` shows it.
#[derive(Debug)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    parent: u32,
    zombie: bool,
}

impl Process {
    /// Resident memory; 0 for one that is gone.
    pub fn resident_bytes(&self) -> u64 {
        let read = || -> Option<u64> {
            let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid)).ok()?;
            text.split(' ').nth(1)?.parse().ok()
        };
        read().unwrap_or(0) * rustix::param::page_size() as u64
    }
}

/// Children of this process that are no part of any command it runs, and neither is what descends from them.
static APART: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Starts a child that ends with the driver, and that [`descendants`] leaves out from its first moment on, with its own
/// descendants.
pub(crate) fn spawn_apart(command: &mut Command) -> std::io::Result<Child> {
    // SAFETY: between fork and exec the closure makes one system call and touches no memory.
    unsafe {
        command.pre_exec(die_with_driver);
    }
    let mut apart = APART.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    apart.insert(child.id());
    Ok(child)
}

/// Ends that, once the child was waited for.
pub(crate) fn put_back(child: u32) {
    APART.lock().unwrap_or_else(PoisonError::into_inner).remove(&child);
}

/// All processes; empty where there is no `/proc`.
fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut text = String::new();
    let mut list = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        text.clear();
        if File::open(entry.path().join("stat")).and_then(|mut file| file.read_to_string(&mut text)).is_ok()
            && let Some(process) = parse_stat(pid, &text)
        {
            list.push(process);
        }
    }
    list
}

/// `/proc/PID/stat`; the name in parentheses may hold anything, also spaces and parentheses.
fn parse_stat(pid: u32, text: &str) -> Option<Process> {
    let (_, after) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = after.split(' ').collect();
    let threads: u32 = fields.get(17)?.parse().ok()?;
    // a process whose first thread has ended while others run also reads Z
    let zombie = fields[0] == "Z" && threads <= 1;
    Some(Process { pid, parent: fields[1].parse().ok()?, zombie })
}

/// The living among `child`, its descendants, and orphans that came to us as their subreaper.
///
/// Dead orphans are collected in passing; `child` itself is left for `std` to wait for.
#[cfg(target_os = "linux")]
pub fn descendants(child: u32) -> Vec<Process> {
    let own = std::process::id();
    // held to the end: what is started meanwhile is not to be taken for a stray
    let apart = APART.lock().unwrap_or_else(PoisonError::into_inner);
    let mut children: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for process in processes().into_iter().filter(|process| !apart.contains(&process.pid)) {
        if process.zombie && process.parent == own && process.pid != child {
            // it may have been waited for meanwhile: nothing to do then
            let _ = raw(process.pid).map(|pid| rustix::process::waitpid(Some(pid), WaitOptions::NOHANG));
        }
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut queue = children.remove(&own).unwrap_or_default();
    while let Some(process) = queue.pop() {
        queue.extend(children.remove(&process.pid).unwrap_or_default());
        if !process.zombie {
            found.push(process);
        }
    }
    found
}

/// Resident memory of all that descends from a driver, companions and what they do left out.
pub(crate) fn resident_below(driver: u32) -> u64 {
    let mut children: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for process in processes() {
        children.entry(process.parent).or_default().push(process);
    }
    let is_companion = |process: &Process| {
        let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        line.ends_with(format!("\0{}\0", crate::ahead::COMMAND).as_bytes())
    };
    let mut queue = children.remove(&driver).unwrap_or_default();
    queue.retain(|process| !is_companion(process));
    let mut bytes = 0;
    while let Some(process) = queue.pop() {
        bytes += process.resident_bytes();
        queue.extend(children.remove(&process.pid).unwrap_or_default());
    }
    bytes
}

/// Without `/proc` only the process group is known; it is the session that the child opened.
#[cfg(not(target_os = "linux"))]
pub fn descendants(child: u32) -> Vec<Process> {
    let alive = raw(child).is_some_and(|pid| rustix::process::test_kill_process_group(pid).is_ok());
    if alive { vec![Process { pid: child, parent: std::process::id(), zombie: false }] } else { Vec::new() }
}

fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Sends a signal to each; one that is gone meanwhile is what we want.
pub fn signal_all(processes: &[Process], signal: Signal) {
    for pid in processes.iter().filter_map(|process| raw(process.pid)) {
        let _ = if cfg!(target_os = "linux") {
            rustix::process::kill_process(pid, signal)
        } else {
            rustix::process::kill_process_group(pid, signal)
        };
    }
}

/// Orphans of our descendants come to us from now on, whatever sessions they open.
pub fn become_subreaper() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid())); // there since Linux 3.4
}

/// In the child, before exec: KILL when the driver dies, so that a killed driver leaves nothing that trains on.
pub fn die_with_driver() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

/// In the child, before exec: no memory dump, which would hold exam rows; files of at most `most_bytes`; and the
/// first to go when the machine is out of memory, before the driver.
pub fn limit_process(most_bytes: Option<u64>) -> std::io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let at_most = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Core, at_most(0))?;
    if let Some(bytes) = most_bytes {
        // fails where the user's own limit is lower, which then holds
        let _ = setrlimit(Resource::Fsize, at_most(bytes));
    }
    #[cfg(target_os = "linux")]
    if let Ok(file) =
        rustix::fs::open(c"/proc/self/oom_score_adj", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty())
    {
        let _ = rustix::io::write(file, b"1000"); // without it the kernel chooses by size
    }
    Ok(())
}

/// Memory that this machine, or the container, has; `None` where the system does not say.
pub fn machine_memory_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .trim()
        .strip_suffix(" kB")?
        .parse()
        .ok()?;
    let container =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    Some((kib << 10).min(container.unwrap_or(u64::MAX)))
}

/// Kills processes that carry `mark` in their environment, which an earlier driver left. Returns how many.
pub fn kill_marked(mark: &str) -> usize {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let own = std::process::id();
    let mut killed = 0;
    for process in processes() {
        let environ = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let marked = environ.split(|byte| *byte == 0).any(|variable| variable == wanted);
        if marked && process.pid != own && !process.zombie {
            signal_all(std::slice::from_ref(&process), Signal::KILL);
            killed += 1;
        }
    }
    killed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_forge_its_line() {
        let stat = "7 (a) Z 1 (b) R 42 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 9";
        let process = parse_stat(7, stat).unwrap();
        assert_eq!((process.parent, process.zombie), (42, false));
        let leader_gone = stat.replace("(b) R", "(b) Z");
        assert!(!parse_stat(7, &leader_gone).unwrap().zombie, "two threads run on");
        assert!(parse_stat(7, &leader_gone.replace("20 0 3", "20 0 1")).unwrap().zombie);
    }
}
