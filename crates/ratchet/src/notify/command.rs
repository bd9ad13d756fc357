//! Runs the user's own program for a message: the JSON on its standard input, nothing of it heard.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    exec::allowed_env,
    processes::{put_back, spawn_apart},
};

/// Time for one message.
const LIMIT: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(20);
/// What reaches a person's desktop needs these as well.
const DESKTOP: [&str; 5] =
    ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR"];

/// Runs `command` in `root`, until it ends, its time is over, or `give_up` is set; a failure in words.
pub(super) fn run(
    command: &[String],
    root: &Path,
    event: &str,
    json: &[u8],
    give_up: &AtomicBool,
) -> Result<(), String> {
    let [program, args @ ..] = command else { return Ok(()) };
    let mut process = Command::new(program);
    process.args(args).current_dir(root).env_clear().envs(env()).env("RATCHET_EVENT", event);
    process.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    // beside the loop's own commands: not theirs, and not ended with them
    let child =
        spawn_apart(&mut process).map_err(|error| format!("{program} could not be started: {error}"))?;
    let mut child = Told(child);
    if let Some(mut stdin) = child.0.stdin.take() {
        // shorter than a pipe holds, so that this never waits; it need not read
        let _ = stdin.write_all(json);
    }
    let deadline = Instant::now() + LIMIT;
    loop {
        match child.0.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{program}: {status}")),
            Ok(None) if give_up.load(Ordering::Relaxed) => return Err(format!("{program} outlived the run")),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(TICK),
            Ok(None) => return Err(format!("{program} did not end in {} s", LIMIT.as_secs())),
            Err(error) => return Err(format!("{program}: {error}")),
        }
    }
}

fn env() -> BTreeMap<OsString, OsString> {
    let desktop = DESKTOP.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    allowed_env().into_iter().chain(desktop).collect()
}

/// A program at work; it and what it started are ended when this is dropped.
struct Told(Child);

impl Drop for Told {
    fn drop(&mut self) {
        // before it is waited for: until then its number is nobody else's
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL); // nobody left in it is what we want
        }
        let _ = self.0.wait();
        put_back(self.0.id());
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc, thread};

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_command_has_started_is_ended_when_nobody_waits_any_longer() {
        let dir = tempfile::tempdir().unwrap();
        let script = "sleep 600 & echo $! > pid; wait".to_owned();
        let command = ["sh".to_owned(), "-c".to_owned(), script];
        let give_up = Arc::new(AtomicBool::new(false));
        let pid = dir.path().join("pid");
        let told = give_up.clone();
        let started = pid.clone();
        thread::spawn(move || {
            while fs::read_to_string(&started).unwrap_or_default().trim().is_empty() {
                thread::sleep(TICK);
            }
            told.store(true, Ordering::Relaxed);
        });
        let failed = run(&command, dir.path(), "stop", b"{}", &give_up).unwrap_err();
        assert!(failed.contains("outlived"), "{failed}");
        let stat = format!("/proc/{}/stat", fs::read_to_string(&pid).unwrap().trim());
        let deadline = Instant::now() + LIMIT;
        // a zombie has ended, whoever is to take note of that
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < deadline, "it is still there");
            thread::sleep(TICK);
        }
    }
}
