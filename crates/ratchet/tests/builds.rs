//! A task that cargo builds: what runs is always what stands in the candidate.

use std::os::unix::fs::symlink;

use crate::toy::Toy;

const TASK: &str = r#"[task]
name = "crate"
editable = ["src/**"]

[metric]
name = "loss"

[build]
command = ["cargo", "build", "--release", "--locked", "--offline", "-p", "toy", "{features}"]
timeout_s = 300

[preflight]
command = ["{target}/release/toy", "preflight"]

[score]
command = ["{target}/release/toy", "score", "{trial}"]
timeout_s = 20

[accept]
rule = "strict"

[proposer]
kind = "knobs"
repairs = 1

[sandbox]
mode = "off"
"#;

const MAIN: &str = r#"mod value;
fn main() {
    if std::env::args().nth(1).as_deref() == Some("preflight") && value::X > 100.0 {
        panic!("X is beyond all bounds");
    }
    println!("{{\"loss\": {}}}", (value::X - 3.0) * (value::X - 3.0) + 1.0);
}
"#;

fn crate_task() -> Toy {
    let toy = Toy::bare();
    toy.write("ratchet.toml", TASK);
    toy.write("Cargo.toml", "[package]\nname = \"toy\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    toy.write("Cargo.lock", "version = 3\n\n[[package]]\nname = \"toy\"\nversion = \"0.1.0\"\n");
    toy.write("src/main.rs", MAIN);
    value(&toy, "10.0");
    toy.write(".gitignore", "/target\n");
    toy.commit("start");
    let cache = toy.path(".git/cache").to_str().unwrap().to_owned();
    toy.env("RATCHET_CACHE", &cache).init()
}

fn value(toy: &Toy, x: &str) {
    toy.write("src/value.rs", &format!("pub const X: f64 = {x}; // knob: lin -20..20\n"));
}

/// The oracle is the parabola, computed here from what the edit says.
#[test]
fn every_value_is_that_of_its_own_source() {
    let toy = crate_task();
    // back and forth between texts of equal length: a stale artifact would give the other's value
    for x in ["4.5", "5.5", "4.6", "5.6", "3.5"] {
        value(&toy, x);
        let ran = toy.exits(0, &["try", "-m", x, "--json"]);
        let expected = (x.parse::<f64>().unwrap() - 3.0).powi(2) + 1.0;
        assert!((ran.json()["value"].as_f64().unwrap() - expected).abs() < 1e-12, "{x}: {}", ran.stdout);
    }
    // a keep's binary is kept, and repeats its value
    assert!(toy.path(".ratchet/tags/bar/models/0002/bin/release-toy").exists());
    assert!(toy.exits(0, &["rerun", "2"]).stdout.contains("difference +0.000000"));
    // a discard's is not, and is built again from its commit
    assert!(toy.exits(0, &["rerun", "3"]).stdout.contains("was 7.250000, is 7.250000"));
    // what does not compile, or panics in its preflight, is a crash that says so
    value(&toy, "\"text\"");
    let line = toy.exits(0, &["try", "-m", "text", "--json"]).json();
    assert_eq!(line["outcome"], "build_failed");
    assert!(line["reason"].as_str().unwrap().contains("mismatched types"), "{line}");
    value(&toy, "1000.0");
    let line = toy.exits(0, &["try", "-m", "far", "--json"]).json();
    assert_eq!(line["outcome"], "preflight_failed");
    // a second tag starts from what the first has compiled, and again runs its own source
    toy.exits(0, &["run", "--tag", "two", "--trials", "2"]);
    assert_eq!(toy.column("loss")[0], "50.000000");
}

#[test]
fn a_link_left_in_a_trials_folder_does_not_lead_the_driver_to_a_users_file() {
    let toy = Toy::with(|task| task.replace("\"{root}\"", "\"{root}\", \"{trial}\""));
    toy.write("precious.txt", "mine\n");
    toy.write(
        "score.sh",
        "for name in score.json verdict.json; do ln -s \"$1/precious.txt\" \"$2/$name\"; done; echo '{\"loss\": 2}'\n",
    );
    toy.commit("links");
    toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    assert_eq!(toy.read("precious.txt"), "mine\n");
    assert!(toy.read(".ratchet/tags/bar/trials/0001/verdict.json").contains("baseline"));
}

#[test]
fn a_candidate_that_is_or_goes_through_a_link_is_refused() {
    let toy = Toy::new().init();
    std::fs::remove_file(toy.path("cand/x.txt")).unwrap();
    symlink(toy.path("score.sh"), toy.path("cand/x.txt")).unwrap();
    toy.exits(3, &["try", "-m", "link"]).says(&["cand/x.txt", "link"]);
    assert!(toy.path("cand/x.txt").is_symlink(), "left as it is");
}

#[cfg(target_os = "linux")]
#[test]
fn a_hang_up_that_nohup_ignores_does_not_end_a_run() {
    let toy = Toy::new();
    toy.set("gate");
    toy.commit("slow");
    let binary = env!("CARGO_BIN_EXE_ratchet");
    let mut command = std::process::Command::new("sh");
    let script = format!("trap '' HUP; exec '{binary}' run --trials 1 --tag bar");
    command.args(["-c", &script]).current_dir(toy.root());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let running = crate::toy::Running(command.spawn().unwrap());
    while !toy.path("started").exists() {
        std::thread::yield_now();
    }
    let pid = running.0.id().to_string();
    assert!(std::process::Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    toy.open_the_gate();
    let ran = running.ended("a run behind nohup");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(toy.column("loss"), ["7.000000"]);
}
