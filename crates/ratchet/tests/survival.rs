//! A kill -9 at any point loses nothing, and the next start goes on.

use std::{fs, thread, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::toy::{Running, Toy};

/// What must hold whenever no driver runs.
#[track_caller]
fn sound(toy: &Toy, rows_before: usize) -> usize {
    let status = toy.status();
    let rows = toy.rows();
    assert!(rows.len() >= rows_before, "{} rows became {}", rows_before, rows.len());
    assert_eq!(status["trials"], rows.len());
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row["trial"], (index + 1).to_string(), "one row a trial, in order");
    }
    let kept: Vec<_> = rows.iter().filter(|row| row["status"] == "keep").collect();
    let lineage = toy.lineage("bar");
    assert_eq!(lineage.len(), kept.len() - 1, "the branch holds the kept trials");
    for (commit, row) in lineage.iter().zip(&kept[1..]) {
        assert!(commit.starts_with(&row["commit"]), "{commit} {row:?}");
    }
    assert!(toy.x().starts_with("10"), "the user's file");
    let changed = toy.git(&["status", "--porcelain"]);
    let changed: Vec<&str> = changed.lines().filter(|line| !line.ends_with(" results.tsv")).collect();
    assert!(changed.is_empty(), "{changed:?}");
    rows.len()
}

#[test]
fn kill_9_at_any_time_loses_nothing() {
    let toy = Toy::new();
    toy.write("cand/x.txt", "x = 10.0 # knob: lin -20..20\n"); // 401 places, enough for every round
    toy.commit("finer");
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    let mut rng = StdRng::seed_from_u64(std::process::id().into());
    let mut rows = 2;
    for round in 0..15 {
        let mut driver = Running(toy.command(&["run", "--trials", "1000"]).spawn().unwrap());
        // Not a wait for something: the moment of death is what is drawn at random.
        thread::sleep(Duration::from_micros(rng.random_range(0..250_000)));
        driver.0.kill().unwrap();
        driver.0.wait().unwrap();
        drop(driver);
        let ran = toy.ratchet(&["run", "--trials", "1"]);
        assert_eq!(ran.code, Some(0), "round {round}: {}", ran.stderr);
        rows = sound(&toy, rows + 1);
    }
    let kept = toy.status()["best"]["value"].as_f64().unwrap();
    let best = toy
        .rows()
        .iter()
        .filter(|r| r["status"] != "crash")
        .map(|r| r["loss"].parse::<f64>().unwrap())
        .fold(f64::INFINITY, f64::min);
    assert!((kept - best).abs() < 1e-5, "the best ever, {best}, is the champion, {kept}");
}

#[test]
fn kill_9_in_the_middle_of_a_trial_leaves_no_row_and_no_process() {
    let toy = Toy::new();
    toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    toy.set("gate");
    let mut driver = toy.at_the_gate(&["try", "-m", "slow"]);
    let referee = toy.read("started");
    driver.0.kill().unwrap();
    driver.0.wait().unwrap();
    drop(driver);
    toy.open_the_gate();
    assert_eq!(toy.rows().len(), 1);
    toy.set("6");
    let line = toy.exits(0, &["try", "-m", "next", "--json"]).json();
    assert_eq!((&line["status"], &line["trial"]), (&"keep".into(), &2.into()));
    assert!(!crate::toy::alive(&referee), "the dead driver's referee is gone");
    assert_eq!(toy.rows().len(), 2);
}

#[test]
fn a_stale_lock_or_a_lost_worktree_stops_nobody() {
    let toy = Toy::new();
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]);
    // Someone tidied up.
    fs::remove_dir_all(toy.path(".ratchet/tags/bar/worktree")).unwrap();
    toy.exits(0, &["run", "--trials", "2"]);
    toy.git(&["worktree", "prune"]);
    toy.exits(0, &["run", "--trials", "1"]);
    sound(&toy, 6);
}

#[test]
fn locks_that_a_killed_driver_left_in_git_stop_nobody() {
    let toy = Toy::new();
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    // Where libgit2 keeps its lock files while it moves the branch, a trial's ref, or the worktree's own head.
    let worktree = fs::read_dir(toy.path(".git/worktrees")).unwrap().next().unwrap().unwrap().path();
    let locks = [
        toy.path(".git/refs/heads/ratchet/bar.lock"),
        toy.path(".git/refs/ratchet/bar/trials/0003.lock"),
        worktree.join("HEAD.lock"),
        worktree.join("index.lock"),
    ];
    locks.iter().for_each(|lock| fs::write(lock, "").unwrap());
    // The user's own is the user's: git may be at work in the checkout, and the loop does not need it.
    let own = toy.path(".git/index.lock");
    fs::write(&own, "").unwrap();
    toy.exits(0, &["run", "--trials", "6"]);
    assert!(own.exists());
    fs::remove_file(&own).unwrap();
    sound(&toy, 8);
}
