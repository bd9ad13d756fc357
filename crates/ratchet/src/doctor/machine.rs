//! Clock and sleep: whether the machine will know when morning is, and be awake until then.

use std::{fs, path::Path};

use jiff::Timestamp;

use super::{Check, pass, warn};
use crate::{
    exec::{on_path, output_of},
    history::History,
};

/// A clock this far behind the last record is wrong, and not only corrected, seconds.
const BEHIND_S: i64 = 60;

/// `last`: when the newest trial ended; `synchronised`: `None` where nobody says.
pub(super) fn clock(now: Timestamp, last: Option<Timestamp>, synchronised: Option<bool>) -> Check {
    let here = now.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M %Z").to_string();
    let set = "set it, for example: timedatectl set-ntp true";
    match last {
        Some(last) if now.as_second() < last.as_second() - BEHIND_S => {
            return warn("clock", format!("it is {here}, but the last trial ended at {last}"), set);
        }
        _ => {}
    }
    match synchronised {
        Some(false) => warn("clock", format!("{here}, not synchronised: `--until` may be wrong"), set),
        Some(true) => pass("clock", format!("{here}, synchronised")),
        None => pass("clock", format!("{here}; whether it is synchronised is not known")),
    }
}

pub(super) fn see_clock(history: &History) -> Check {
    let last = history.trials().last().and_then(|record| record.ended.parse().ok());
    clock(Timestamp::now(), last, synchronised())
}

fn synchronised() -> Option<bool> {
    on_path("timedatectl")?;
    let said = output_of("timedatectl", &["show", "-p", "NTPSynchronized", "--value"])?;
    match said.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// What decides whether a machine stays awake.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sleep {
    /// The kernel knows a way to sleep, and nobody has masked it.
    can: bool,
    /// A run can ask to be left awake.
    held: bool,
    lid: bool,
    on_battery: bool,
}

pub(super) fn suspend(seen: Sleep) -> Check {
    const NAME: &str = "suspend";
    let never = "systemctl mask sleep.target suspend.target hibernate.target; `unmask` takes it back";
    match seen {
        Sleep { on_battery: true, .. } => {
            warn(NAME, "on battery: a night is longer than a battery", "plug the machine in")
        }
        Sleep { can: false, .. } => pass(NAME, "this machine does not sleep"),
        Sleep { held: false, .. } => {
            warn(NAME, "the machine may fall asleep: a run cannot ask it to stay awake here", never)
        }
        Sleep { lid: true, .. } => warn(
            NAME,
            "a run keeps the machine awake, but not when its lid is closed",
            "leave it open, or set HandleLidSwitch=ignore in /etc/systemd/logind.conf",
        ),
        _ => pass(NAME, "a run keeps the machine awake"),
    }
}

pub(super) fn see_sleep() -> Sleep {
    if cfg!(target_os = "macos") {
        return Sleep { can: true, held: on_path("caffeinate").is_some(), ..Sleep::default() };
    }
    let states = fs::read_to_string("/sys/power/state").unwrap_or_default();
    let masked = |target: &str| {
        let link = fs::read_link(Path::new("/etc/systemd/system").join(target));
        link.is_ok_and(|to| to == Path::new("/dev/null"))
    };
    let masked = masked("sleep.target") || masked("suspend.target");
    let can = !states.trim().is_empty() && !masked;
    // asked only where it matters: without a bus it takes its time to fail
    let held = can
        && on_path("systemd-inhibit").is_some()
        && output_of("systemd-inhibit", &["--what=sleep:idle", "--who=ratchet", "--why=doctor", "true"])
            .is_some();
    let lid = Path::new("/proc/acpi/button/lid").exists();
    Sleep { can, held, lid, on_battery: on_battery(Path::new("/sys/class/power_supply")) }
}

/// Whether a battery is being emptied.
fn on_battery(supplies: &Path) -> bool {
    let supplies = fs::read_dir(supplies).into_iter().flatten().flatten();
    supplies.into_iter().any(|supply| {
        let read = |name: &str| fs::read_to_string(supply.path().join(name)).unwrap_or_default();
        // a mouse has one as well
        read("type").trim() == "Battery"
            && read("scope").trim() != "Device"
            && read("status").trim() == "Discharging"
    })
}

/// The NVIDIA driver's version, from its own line in `/proc/driver/nvidia/version`.
pub(super) fn driver(version: &str) -> Option<Check> {
    let line = version.lines().next()?;
    let number = line
        .split_whitespace()
        .find(|word| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.'))?;
    Some(pass("driver", format!("NVIDIA {number}")))
}

pub(super) fn see_driver() -> Option<Check> {
    driver(&fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::Health;
    use super::*;

    #[test]
    fn a_clock_behind_its_own_records_or_adrift_is_warned_of() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-11-30T08:00:00Z");
        assert_eq!(clock(now, None, Some(true)).state, Health::Pass);
        assert_eq!(clock(now, Some(at("2026-11-30T07:59:00Z")), None).state, Health::Pass);
        assert_eq!(clock(now, Some(at("2026-11-30T08:00:30Z")), None).state, Health::Pass, "a correction");
        assert_eq!(clock(at("1970-01-01T00:05:00Z"), Some(now), None).state, Health::Warn);
        assert_eq!(clock(now, None, Some(false)).state, Health::Warn);
    }

    #[test]
    fn a_machine_that_may_fall_asleep_is_warned_of_with_a_remedy() {
        let held = Sleep { can: true, held: true, ..Sleep::default() };
        for (seen, state, word) in [
            (Sleep::default(), Health::Pass, "does not sleep"),
            (held, Health::Pass, "keeps"),
            (Sleep { held: false, ..held }, Health::Warn, "fall asleep"),
            (Sleep { lid: true, ..held }, Health::Warn, "lid"),
            (Sleep { on_battery: true, ..held }, Health::Warn, "battery"),
        ] {
            let check = suspend(seen);
            assert!(check.state == state && check.detail.contains(word), "{check:?}");
            assert_eq!(check.remedy.is_some(), state == Health::Warn);
        }
    }

    #[test]
    fn only_a_machines_own_battery_counts() {
        let dir = tempfile::tempdir().unwrap();
        let supply = |name: &str, lines: &[(&str, &str)]| {
            fs::create_dir_all(dir.path().join(name)).unwrap();
            for (file, text) in lines {
                fs::write(dir.path().join(name).join(file), text).unwrap();
            }
        };
        supply("AC", &[("type", "Mains\n"), ("online", "0\n")]);
        supply("mouse", &[("type", "Battery\n"), ("scope", "Device\n"), ("status", "Discharging\n")]);
        supply("BAT0", &[("type", "Battery\n"), ("status", "Charging\n")]);
        assert!(!on_battery(dir.path()));
        supply("BAT0", &[("status", "Discharging\n")]);
        assert!(on_battery(dir.path()));
    }

    #[test]
    fn the_drivers_version_is_read_from_its_line() {
        let line =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 02:11:18 UTC 2025\n";
        assert_eq!(driver(line).unwrap().detail, "NVIDIA 570.124.06");
        assert_eq!(driver(""), None);
    }
}
