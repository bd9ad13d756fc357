//! A run keeps the machine awake, and nothing longer than the run does.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::toy::{Toy, alive, until};

/// Says what it was asked, and holds as the real one does: until what it runs has nothing more to read.
const INHIBIT: &str = "#!/bin/sh\necho \"$*\" >\"$HOME/asked\"\necho $$ >\"$HOME/pid\"\nexec cat\n";

fn toy(home: &Path) -> Toy {
    let program = home.join("systemd-inhibit");
    fs::write(&program, INHIBIT).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", home.display(), std::env::var("PATH").unwrap());
    let toy = Toy::new().env("HOME", home.to_str().unwrap()).env("PATH", &path);
    toy.set("gate");
    toy.commit("a baseline that waits");
    toy
}

#[test]
#[cfg(target_os = "linux")]
fn the_machine_is_held_awake_while_a_run_goes_on_and_let_go_however_it_ends() {
    for killed in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let toy = toy(home.path());
        let mut running = toy.at_the_gate(&["run", "--trials", "1", "--tag", "bar"]);
        let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
        until("it is asked", || read("pid").ends_with('\n'));
        assert!(
            read("asked").starts_with("--what=sleep:idle --who=ratchet --why=trials run in "),
            "{}",
            read("asked")
        );
        assert!(alive(&read("pid")));
        if killed {
            running.0.kill().unwrap();
        } else {
            toy.open_the_gate();
            assert_eq!(running.ended("ratchet run").code, Some(0));
        }
        until("it is let go", || !alive(&read("pid")));
    }
}
