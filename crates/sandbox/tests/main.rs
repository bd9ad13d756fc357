//! What a confined child can and cannot do, tried by shell tools that know nothing of this crate.
#![cfg(target_os = "linux")]

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use sandbox::{Access, Available, Calls, Policy, available, forgo, seal};
use tempfile::TempDir;

/// A folder with something secret and something open in it, and a policy for `sh` that grants only the latter.
struct Room {
    dir: TempDir,
    policy: Policy,
}

const OPEN: Calls = Calls { internet: true, processes: true, marks: true };

impl Room {
    fn new(calls: Calls) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [("open/in", "open"), ("secret/key", "secret"), ("out/.keep", "")] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut policy = Policy::new(calls);
        for folder in ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"] {
            policy.grant(Access::Run, folder);
        }
        policy.grant(Access::Device, "/dev/null");
        policy.grant(Access::Read, dir.path().join("open")).grant(Access::Own, dir.path().join("out"));
        Self { dir, policy }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Exit code of a shell script that runs confined in the folder; its output on failure.
    fn run(&self, script: &str) -> i32 {
        let mut confinement = self.policy.confinement().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(self.dir.path());
        // SAFETY: `enter` makes system calls only.
        unsafe { command.pre_exec(move || confinement.enter()) };
        command.output().unwrap().status.code().unwrap_or(-1)
    }
}

fn confines() -> bool {
    let there = !matches!(available(), Available::Nothing(_));
    if !there {
        eprintln!("skipped: {:?}", available());
    }
    there
}

#[test]
fn files_that_are_not_granted_can_be_neither_read_nor_changed() {
    if !confines() {
        return;
    }
    let room = Room::new(OPEN);
    assert_eq!(room.run("cat open/in && echo x > out/new && cat out/new"), 0, "what is granted works");
    for script in [
        "cat secret/key",
        "ls secret",
        "ls .",
        "echo x > open/in",
        "echo x > open/new",
        "rm open/in",
        "mv open/in out/in",
        "ln open/in out/in",
        "echo x > secret/key",
        "mkdir new",
        "ln -s ../secret/key out/link && cat out/link",
        "cat /proc/1/environ",
        "cat /etc/passwd",
        ": > secret/key",
    ] {
        assert_ne!(room.run(script), 0, "{script}");
    }
    assert_eq!(fs::read_to_string(room.path("secret/key")).unwrap(), "secret");
    assert_eq!(fs::read_to_string(room.path("open/in")).unwrap(), "open");
}

#[test]
fn who_may_write_plain_files_makes_no_folder_link_or_pipe() {
    if confines() {
        let mut room = Room::new(OPEN);
        fs::create_dir(room.path("plain")).unwrap();
        room.policy.grant(Access::Write, room.dir.path().join("plain"));
        assert_eq!(room.run("cd plain && echo 1 > a && mv a b && rm b"), 0);
        for script in ["mkdir plain/x", "ln -s /etc plain/x", "mkfifo plain/x"] {
            assert_ne!(room.run(script), 0, "{script}");
            assert_eq!(room.run(&script.replace("plain", "out")), 0, "{script}");
            fs::read_dir(room.path("out")).unwrap().flatten().for_each(|entry| {
                let _ = fs::remove_dir(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            });
        }
    }
}

#[test]
fn rights_are_the_same_in_what_a_process_starts() {
    if confines() {
        assert_ne!(Room::new(OPEN).run("sh -c 'sh -c \"cat secret/key\"'"), 0);
    }
}

#[test]
fn without_processes_a_shell_cannot_fork() {
    if confines() {
        assert_eq!(Room::new(OPEN).run("ls open; exit 0"), 0);
        let room = Room::new(Calls { processes: false, ..OPEN });
        assert_eq!(room.run("x=1; read y < open/in; exit 7"), 7, "builtins work");
        assert_ne!(room.run("ls open; exit 0"), 0);
        assert_ne!(room.run("kill -0 $PPID"), 0);
    }
}

#[test]
fn without_marks_times_and_modes_stay() {
    if confines() {
        let touch = "touch -d 2001-01-01 out/.keep && chmod 644 out/.keep";
        assert_eq!(Room::new(OPEN).run(touch), 0);
        let room = Room::new(Calls { marks: false, ..OPEN });
        for script in ["touch -d 2001-01-01 out/.keep", "chmod 600 out/.keep", "chmod 000 secret/key"] {
            assert_ne!(room.run(script), 0, "{script}");
        }
    }
}

#[test]
fn settings_of_others_and_namespaces_are_out_of_reach() {
    let python = Command::new("python3").arg("--version").output().is_ok();
    if !confines() || !python {
        return;
    }
    const PRELUDE: &str = "import ctypes, os, threading; other = os.getppid(); libc = ctypes.CDLL(None)";
    let room = Room::new(OPEN);
    // the shell stays the parent: it has something left to do
    let run = |act: &str| room.run(&format!("python3 -c '{PRELUDE}; {act}'; exit $?"));
    for own in [
        "os.sched_setaffinity(0, os.sched_getaffinity(0))",
        "os.nice(1)",
        "os.waitpid(os.fork() or os._exit(0), 0)",
        "t = threading.Thread(target=print); t.start(); t.join()",
    ] {
        assert_eq!(run(own), 0, "{own}");
    }
    for forbidden in [
        "os.sched_setaffinity(other, os.sched_getaffinity(0))",
        "os.sched_setscheduler(other, os.SCHED_IDLE, os.sched_param(0))",
        "os.setpriority(os.PRIO_PROCESS, other, 19)",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        "NEWUSER, SIGCHLD, clone = 0x10000000, 17, 56; child = libc.syscall(clone, NEWUSER | SIGCHLD, 0, 0, 0, 0); os._exit(child < 0)",
    ] {
        assert_ne!(run(forbidden), 0, "{forbidden}");
    }
}

#[test]
fn without_internet_there_is_no_network() {
    let python = Command::new("python3").arg("--version").output().is_ok();
    if confines() && python {
        let script = "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)'";
        let unix = script.replace("AF_INET", "AF_UNIX");
        assert_eq!(Room::new(OPEN).run(script), 0);
        assert_ne!(Room::new(OPEN).run(&unix), 0, "a socket in a file may lead to a service with all rights");
        assert_ne!(Room::new(Calls { internet: false, ..OPEN }).run(script), 0);
    }
}

#[test]
fn a_sealed_process_keeps_its_threads_and_starts_nothing() {
    if !confines() {
        return;
    }
    // in a child: a seal is for good
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["sealed_child", "--exact", "--include-ignored", "--test-threads", "1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn sealed_child() {
    seal().unwrap();
    let shell = |name: &str| Command::new(Path::new("/bin").join(name)).status();
    assert_eq!(shell("true").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
    let become_other = Command::new("/bin/true").exec();
    assert_eq!(become_other.kind(), io::ErrorKind::PermissionDenied);
}

/// NVIDIA's driver writes `/proc/PID/task/TID/comm` of its own threads, and fails where it cannot.
#[test]
fn a_process_granted_itself_names_its_threads_until_it_forgoes_that() {
    if !confines() {
        return;
    }
    let mut policy = Policy::new(OPEN);
    for folder in ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"] {
        policy.grant(Access::Run, folder);
    }
    let this = std::env::current_exe().unwrap();
    policy.grant(Access::Run, &this).grant(Access::Device, "/dev/null");
    let run = |policy: &Policy, test: &str| {
        let mut confinement = policy.confinement().unwrap();
        let mut command = Command::new(&this);
        command.args([test, "--exact", "--include-ignored", "--test-threads", "1", "--nocapture"]);
        command.envs(confinement.variable());
        // SAFETY: `enter` makes system calls only.
        unsafe { command.pre_exec(move || confinement.enter()) };
        let child = command.output().unwrap();
        let text = String::from_utf8_lossy(&child.stdout).into_owned();
        (child.status.success() && text.contains("1 passed"), text)
    };
    let (passed, text) = run(&policy, "forgoing_child");
    assert!(!passed, "without the grant a thread cannot be named: {text}");
    let (passed, text) = run(policy.itself(), "forgoing_child");
    assert!(passed, "{text}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn forgoing_child() {
    // another thread's name, as NVIDIA's driver does it: one's own has a system call
    let (name, named) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        name.send(fs::read_link("/proc/thread-self").map_err(|error| error.kind())).unwrap();
        ended.recv().unwrap_err();
    });
    let link = named.recv().unwrap().unwrap();
    let comm = Path::new("/proc").join(link).join("comm");
    fs::OpenOptions::new().write(true).open(&comm).unwrap();
    let memory = || fs::File::open("/proc/self/mem").map(drop);
    memory().unwrap();
    forgo().unwrap();
    assert_eq!(memory().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    std::thread::spawn(move || memory().unwrap_err()).join().unwrap();
    drop(end);
    thread.join().unwrap();
}
