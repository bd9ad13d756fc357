//! `ratchet schedule`: what it shows, writes and takes away, with a stand-in for the programs that keep the time.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use crate::toy::{Ran, Toy};

/// Writes down how it was called; `show-environment` is how a manager that is there is told from one that is not.
const SYSTEMCTL: &str = "#!/bin/sh\necho \"$*\" >>\"$HOME/calls\"\n[ -e \"$HOME/manager\" ]\n";
/// A table in a file, as cron has it.
const CRONTAB: &str = "#!/bin/sh\ncase $1 in\n-l) cat \"$HOME/table\" 2>/dev/null || { echo \"no crontab for me\" >&2; exit 1; } ;;\n-) cat >\"$HOME/table\" ;;\nesac\n";

/// The toy, in a home of its own.
struct Place {
    toy: Toy,
    home: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        for (name, script) in [("systemctl", SYSTEMCTL), ("crontab", CRONTAB)] {
            let path = home.path().join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // a test's own paths, which cargo sets, are longer than a line of a crontab may be
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", home.path().display());
        let toy = Toy::new().env("HOME", home.path().to_str().unwrap()).env("PATH", &path);
        Self { toy: toy.env("LD_LIBRARY_PATH", "").env("XDG_CONFIG_HOME", ""), home }
    }

    fn with_systemd() -> Self {
        let place = Self::new();
        fs::write(place.home.path().join("manager"), "").unwrap();
        place
    }

    fn schedule(&self, args: &[&str]) -> Ran {
        self.toy.exits(0, &[&["schedule"], args].concat())
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.home.path().join(name)).unwrap_or_default()
    }

    fn units(&self) -> Vec<PathBuf> {
        let folder = self.home.path().join(".config/systemd/user");
        let mut units: Vec<_> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        units.sort();
        units
    }
}

const NIGHT: [&str; 4] = ["--at", "23:00", "--until", "07:00"];

#[test]
fn a_timer_is_shown_then_installed_and_removed_on_request_only() {
    let place = Place::with_systemd();
    place.schedule(&[]).says(&["nothing is scheduled here"]);
    let shown = place.schedule(&NIGHT);
    shown.says(&["OnCalendar=*-*-* 23:00:00", "run --until 07:00", "systemctl --user enable", "--install"]);
    shown.says(&["enable-linger"]);
    assert!(place.units().is_empty() && !place.read("calls").contains("enable"), "nothing is written");

    place.schedule(&[&NIGHT[..], &["--tag", "bar", "--proposer", "knobs", "--install"]].concat());
    let [service, timer] = &place.units()[..] else { panic!("{:?}", place.units()) };
    let unit = fs::read_to_string(service).unwrap();
    assert!(unit.contains(" run --until 07:00 --tag bar --proposer knobs\n"), "{unit}");
    assert!(unit.contains(&format!("\nWorkingDirectory={}\n", place.toy.root().display())), "{unit}");
    assert!(unit.contains(" within 23:00 07:00\n") && unit.contains("PATH="), "{unit}");
    let name = timer.file_name().unwrap().to_str().unwrap();
    let calls = place.read("calls");
    for call in ["daemon-reload".to_owned(), format!("enable {name}"), format!("restart {name}")] {
        assert!(calls.contains(&format!("--user {call}\n")), "{calls}");
    }
    place.schedule(&[]).says(&["every night from 23:00 to 07:00", name]);
    place.schedule(&["--at", "22:30", "--until", "06:00", "--install"]);
    place.schedule(&[]).says(&["every night from 22:30 to 06:00"]);
    place.schedule(&["--remove"]).says(&["removed"]);
    assert!(place.units().is_empty() && place.read("calls").contains("disable --now"));
    place.schedule(&["--remove"]).says(&["nothing is scheduled here"]);
}

#[test]
fn a_file_of_somebody_elses_is_neither_overwritten_nor_removed() {
    let place = Place::with_systemd();
    place.schedule(&[&NIGHT[..], &["--install"]].concat());
    let timer = place.units().pop().unwrap();
    fs::write(&timer, "[Timer]\nOnCalendar=hourly\n").unwrap();
    for args in [&[&NIGHT[..], &["--install"]].concat()[..], &["--remove"]] {
        place.toy.exits(2, &[&["schedule"], args].concat()).says(&["not ours"]);
        assert!(fs::read_to_string(&timer).unwrap().contains("hourly"));
    }
}

#[test]
fn without_a_manager_cron_keeps_the_time_and_other_lines_stay() {
    let place = Place::new();
    place.schedule(&NIGHT).says(&["0 23 * * * cd ", "@reboot cd ", "by cron"]);
    assert_eq!(place.read("table"), "");
    let foreign = "MAILTO=me\n0 * * * * backup --all";
    fs::write(place.home.path().join("table"), foreign).unwrap();
    for at in ["23:00", "22:00"] {
        place.schedule(&["--at", at, "--until", "07:00", "--install"]);
        place.schedule(&[]).says(&[&format!("every night from {at} to 07:00: your crontab")]);
    }
    let table = place.read("table");
    assert!(table.starts_with(&format!("{foreign}\n# ratchet schedule ")), "{table}");
    assert_eq!(table.matches("@reboot").count(), 1, "replaced, not added: {table}");
    place.schedule(&["--remove"]).says(&["removed from your crontab"]);
    assert_eq!(place.read("table"), format!("{foreign}\n"));
    fs::write(place.home.path().join("crontab"), "#!/bin/sh\necho 'the spool is gone' >&2\nexit 1\n")
        .unwrap();
    let ran = place.toy.exits(4, &[&["schedule"], &NIGHT[..], &["--install"]].concat());
    ran.says(&["the spool is gone", "nothing was changed"]);
}

#[test]
fn times_that_are_none_and_halves_of_a_schedule_are_exit_2() {
    let toy = Toy::new();
    for args in [
        &["--at", "25:00", "--until", "07:00"][..],
        &["--at", "23:00"],
        &["--at", "23:00", "--until", "23:00"],
        &["--install"],
        &["--remove", "--at", "23:00", "--until", "07:00"],
    ] {
        toy.exits(2, &[&["schedule"], args].concat());
    }
}

#[test]
fn a_key_that_a_timer_does_not_know_is_named_with_the_remedy() {
    let place = Place::new();
    let llm = "[proposer]\nkind = \"llm\"\n[proposer.llm]\nprovider = \"anthropic\"\nmodel = \"m\"\n";
    let task = place.toy.read("ratchet.toml");
    place.toy.write("ratchet.toml", &format!("{task}\n{llm}"));
    place.schedule(&NIGHT).says(&["ANTHROPIC_API_KEY", "key_file"]);
    place.toy.write("ratchet.toml", &format!("{task}\n{llm}key_file = \"~/key\"\n"));
    let ran = place.schedule(&NIGHT);
    assert!(!ran.stderr.contains("ANTHROPIC_API_KEY"), "{}", ran.stderr);
}

#[test]
fn the_condition_of_a_unit_is_an_exit_code() {
    let toy = Toy::new();
    let now = jiff::Zoned::now();
    let clock = |minutes: i64| {
        let at = now.checked_add(jiff::SignedDuration::from_mins(minutes)).unwrap();
        at.strftime("%H:%M").to_string()
    };
    toy.exits(0, &["within", &clock(-60), &clock(60)]);
    toy.exits(1, &["within", &clock(60), &clock(120)]);
    toy.exits(1, &["within", &clock(-60), &clock(-1)]);
}
