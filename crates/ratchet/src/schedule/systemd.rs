//! A timer and a service of the user's own systemd manager.

use std::{fs, path::PathBuf};

use super::{Installed, Marker, Plan, call, must};
use crate::{
    error::{Doing, Error, Result},
    plain_file,
    reach::at_home,
    state::write_atomic,
};

/// Where the manager looks for units of the user's.
fn folder() -> PathBuf {
    let config = std::env::var_os("XDG_CONFIG_HOME").filter(|at| !at.is_empty()).map(PathBuf::from);
    config.unwrap_or_else(|| at_home("~/.config")).join("systemd/user")
}

fn files(name: &str) -> [PathBuf; 2] {
    ["timer", "service"].map(|kind| folder().join(format!("{name}.{kind}")))
}

/// The two files and what they hold.
pub(super) fn units(plan: &Plan) -> Result<[(PathBuf, String); 2]> {
    let name = super::name(&plan.root);
    if plan.program.contains('$') {
        return Err(Error::usage("this program's path holds a `$`, which systemd would not run")
            .at(&plan.program)
            .hint("install it elsewhere: cargo install --path crates/ratchet"));
    }
    let [timer, service] = files(&name);
    Ok([(timer, timer_unit(plan)), (service, service_unit(plan))])
}

fn timer_unit(plan: &Plan) -> String {
    let (marker, root) = (plan.marker().line(), specifiers(&plan.root));
    format!(
        "{marker}
[Unit]
Description=When Ratchet's nights begin in {root}

[Timer]
OnCalendar=*-*-* {}:00
# a machine that was off or restarted meanwhile: the service looks whether it is night
Persistent=true
OnStartupSec=1min
AccuracySec=1s

[Install]
WantedBy=timers.target
",
        plan.window.at()
    )
}

fn service_unit(plan: &Plan) -> String {
    let (marker, root) = (plan.marker().line(), specifiers(&plan.root));
    let environment: String = plan
        .env
        .iter()
        .map(|(name, value)| format!("Environment={}\n", quoted(&format!("{name}={value}"))))
        .collect();
    let command = |args: &[String]| {
        let words = std::iter::once(&plan.program).chain(args);
        // systemd fills in variables in a command, and nowhere else
        words.map(|word| quoted(word).replace('$', "$$")).collect::<Vec<_>>().join(" ")
    };
    format!(
        "{marker}
[Unit]
Description=A night of Ratchet in {root}
StartLimitIntervalSec=4h
StartLimitBurst=5

[Service]
Type=exec
WorkingDirectory={root}
{environment}ExecCondition={}
ExecStart={}
# a driver that failed or was killed goes on with its tag; wrong usage, a missing device or another run do not pass
Restart=on-failure
RestartPreventExitStatus=2 3 4 5
RestartSec=60
# TERM lets the driver end its trial and write down why
KillMode=mixed
TimeoutStopSec=60
# a trial that takes all memory is ended, and the night goes on
OOMPolicy=continue
",
        command(&plan.within()),
        command(&plan.run()),
    )
}

/// `%` begins a specifier everywhere in a unit.
fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

/// One word of a unit's list.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_/.:=+,-".contains(c);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("\"{}\"", specifiers(&word.replace('\\', "\\\\").replace('"', "\\\""))),
    }
}

/// What makes the manager know them.
pub(super) fn commands(name: &str) -> [Vec<String>; 3] {
    let timer = format!("{name}.timer");
    let command = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    [
        command(&["systemctl", "--user", "daemon-reload"]),
        command(&["systemctl", "--user", "enable", &timer]),
        command(&["systemctl", "--user", "restart", &timer]),
    ]
}

/// Writes and enables both; says what was done.
pub(super) fn install(plan: &Plan) -> Result<String> {
    let units = units(plan)?;
    let name = super::name(&plan.root);
    for (path, _) in &units {
        ours(path, &name)?;
    }
    let mut done = String::new();
    fs::create_dir_all(folder()).doing("create", &folder())?;
    for (path, unit) in &units {
        write_atomic(path, unit.as_bytes())?;
        done += &format!("wrote {}\n", path.display());
    }
    for command in commands(&name) {
        must(&command.iter().map(String::as_str).collect::<Vec<_>>(), None)?;
    }
    Ok(done)
}

/// Takes away what is ours; says what was done, nothing where there was nothing.
pub(super) fn remove(name: &str) -> Result<String> {
    let files = files(name);
    let mut there = Vec::new();
    for path in &files {
        if ours(path, name)? {
            there.push(path);
        }
    }
    if there.is_empty() {
        return Ok(String::new());
    }
    // the files go first: without a manager that answers, they are all there is
    let told = call(&["systemctl", "--user", "disable", "--now", &format!("{name}.timer")], None);
    let mut done = String::new();
    for path in there {
        fs::remove_file(path).doing("remove", path)?;
        done += &format!("removed {}\n", path.display());
    }
    match told.and_then(|_| call(&["systemctl", "--user", "daemon-reload"], None)) {
        Ok(_) => {}
        Err((end, said)) => {
            done += &format!("systemctl --user {end}: {said}; it forgets the timer at its next start\n")
        }
    }
    Ok(done)
}

/// Whether a file is there. Exit code 2 for one that is not ours.
fn ours(path: &std::path::Path, name: &str) -> Result<bool> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(false);
    }
    let text = plain_file::read_to_string(path).unwrap_or_default();
    match Marker::of(&text).is_some_and(|marker| marker.name == name) {
        true => Ok(true),
        false => Err(Error::usage("is not ours, and is left as it is")
            .at(path)
            .hint("`ratchet schedule` did not write it; move it away first")),
    }
}

/// The timer of this name.
pub(super) fn installed(name: &str) -> Option<Installed> {
    let [timer, service] = files(name);
    let marker = Marker::of(&plain_file::read_to_string(&timer).ok()?)?;
    let problem = match call(&["systemctl", "--user", "is-active", &format!("{name}.timer")], None) {
        _ if !service.exists() => Some(format!("{} is gone; install it again", service.display())),
        Ok(_) => None,
        Err(_) => Some(format!("the timer does not run: systemctl --user enable --now {name}.timer")),
    };
    Some(Installed { window: marker.window, place: timer.display().to_string(), problem })
}

/// Whether the manager runs also while the user is logged out; where logind keeps no list, it is not known to end.
pub(super) fn lingers() -> bool {
    let list = std::path::Path::new("/var/lib/systemd/linger");
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    list.join(user).is_file()
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use crate::exec::on_path;

    #[test]
    fn the_units_say_what_to_run_and_where() {
        let plan = plan("/home/me/my gpt", "23:00", "07:00");
        let timer = timer_unit(&plan);
        let service = service_unit(&plan);
        assert!(timer.contains("\nOnCalendar=*-*-* 23:00:00\n") && timer.contains("\nPersistent=true\n"));
        assert!(service.contains("\nWorkingDirectory=/home/me/my gpt\n"));
        assert!(service.contains("\nExecCondition=/bin/true within 23:00 07:00\n"), "{service}");
        assert!(service.contains("\nExecStart=/bin/true run --until 07:00 --tag bar\n"), "{service}");
        assert_eq!(Marker::of(&timer), Some(plan.marker()));
    }

    /// systemd itself says whether it can read them.
    #[test]
    fn systemd_finds_nothing_wrong_with_odd_paths() {
        if on_path("systemd-analyze").is_none() {
            eprintln!("skipped: there is no systemd-analyze");
            return;
        }
        for root in ["/srv/gpt", "/a b/100 %d \"q\" 'q' $HOME ${x} \\x41 ;#", "/ü/-x"] {
            for (at, until) in [("23:00", "07:00"), ("09:30", "17:00")] {
                let plan = plan(root, at, until);
                let dir = tempfile::tempdir().unwrap();
                let name = super::super::name(root);
                let paths =
                    [("timer", timer_unit(&plan)), ("service", service_unit(&plan))].map(|(kind, text)| {
                        let path = dir.path().join(format!("{name}.{kind}"));
                        fs::write(&path, text).unwrap();
                        path
                    });
                let out = std::process::Command::new("systemd-analyze")
                    .args(["verify", "--user"])
                    .args(&paths)
                    .env("XDG_RUNTIME_DIR", dir.path())
                    .env("HOME", dir.path())
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&out.stderr);
                assert!(out.status.success() && !said.contains(&name), "{root}: {said}");
                let calendar = format!("*-*-* {at}:00");
                let out =
                    std::process::Command::new("systemd-analyze").args(["calendar", &calendar]).output();
                let out = String::from_utf8(out.unwrap().stdout).unwrap();
                assert!(out.contains(&format!("Normalized form: {calendar}")), "{out}");
            }
        }
    }

    #[test]
    fn a_file_that_is_not_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.timer");
        assert!(!ours(&path, "x").unwrap());
        fs::write(&path, "[Unit]\n").unwrap();
        assert_eq!(ours(&path, "x").unwrap_err().kind.exit_code(), 2);
        let marker = plan("/r", "23:00", "07:00").marker();
        fs::write(&path, marker.line()).unwrap();
        assert!(ours(&path, &marker.name).unwrap());
        assert!(ours(&path, "another").is_err(), "another root's is not ours either");
    }
}
