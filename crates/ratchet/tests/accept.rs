//! Accept: the branch of accepted keeps, held against `git cherry-pick`, and its fresh run.

use std::{fs, process::Command};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    review::kept,
    toy::{Running, Toy},
};

/// The sum of all values, and noise that the seed alone decides; waits at the gate while `shut` is there.
const SCORE: &str = r#"if [ -e "$1/shut" ]; then
  echo $$ > "$1/started"; while [ ! -e "$1/open" ]; do sleep 0.01; done
fi
if grep -q boom cand/f.txt && ! grep -q fuse cand/f.txt; then echo 'boom without a fuse' >&2; exit 7; fi
cat cand/f.txt cand/g.txt 2>/dev/null | awk -v seed="$RATCHET_SEED" '/=/ { sum += $3 }
  END { printf "{\"loss\": %.17g}\n", sum + NOISE * substr(seed, length(seed)) / 10 }'
"#;

const START: &str = "a = 9\n-\n-\n-\nb = 9\n-\n-\n-\nc = 9\n";

/// A tag that starts from three values far from each other.
fn begun() -> Toy {
    let toy = Toy::new();
    toy.write("score.sh", &SCORE.replace("NOISE", "1"));
    toy.write("cand/f.txt", START);
    toy.write(".gitignore", ".ratchet/\nshut\nopen\nstarted\n");
    toy.commit("three values");
    toy.init()
}

#[track_caller]
fn keep(toy: &Toy, path: &str, text: &str, description: &str) {
    toy.write(path, text);
    let tried = toy.exits(0, &["try", "-m", description, "--json"]).json();
    assert_eq!(tried["status"], "keep", "{tried}");
}

/// Replaces text in the champion's file, as a keep.
#[track_caller]
fn change(toy: &Toy, old: &str, new: &str) {
    let text = toy.read("cand/f.txt");
    assert!(text.contains(old), "{text}");
    keep(toy, "cand/f.txt", &text.replacen(old, new, 1), &format!("{} becomes {}", old.trim(), new.trim()));
}

/// Keeps 2 to 6: `a`, `b`, `a` again, a line next to `b`, and a file of its own.
fn five() -> Toy {
    let toy = begun();
    change(&toy, "a = 9", "a = 5");
    change(&toy, "b = 9", "b = 5");
    change(&toy, "a = 5", "a = 4");
    change(&toy, "b = 5\n", "b = 5\nd = -1\n");
    keep(&toy, "cand/g.txt", "e = -2\n", "a new file");
    toy
}

fn decide(toy: &Toy, trials: &[u64], how: &str) {
    let trials: Vec<String> = trials.iter().map(u64::to_string).collect();
    let mut args = vec!["review"];
    args.extend(trials.iter().map(String::as_str));
    args.push(how);
    toy.exits(0, &args);
}

/// Everything of the user's that `accept` must not touch, and all branches.
fn theirs(toy: &Toy) -> [String; 5] {
    [
        toy.git(&["status", "--porcelain=v2", "--branch"]),
        toy.git(&["ls-files", "--stage"]),
        toy.git(&["for-each-ref", "refs/heads"]),
        toy.read("results.tsv"),
        fs::read_to_string(toy.path("cand/f.txt")).unwrap_or_default(),
    ]
}

/// What `git cherry-pick` makes of some keeps in their order upon the base: the tree; `None` for a conflict.
fn picked(toy: &Toy, trials: &[u64]) -> Option<String> {
    let clone = Toy::no_repository();
    clone.git(&["clone", "-q", "--no-checkout", toy.root().to_str().unwrap(), "."]);
    clone.git(&["fetch", "-q", "origin", "refs/ratchet/*:refs/ratchet/*"]);
    clone.git(&["config", "user.name", "x"]);
    clone.git(&["config", "user.email", "x@example.invalid"]);
    clone.git(&["checkout", "-q", "--detach", "origin/main"]);
    for trial in trials {
        let name = format!("refs/ratchet/bar/trials/{trial:04}");
        let out =
            Command::new("git").args(["cherry-pick", &name]).current_dir(clone.root()).output().unwrap();
        if !out.status.success() {
            return None;
        }
    }
    Some(clone.git(&["rev-parse", "HEAD^{tree}"]))
}

#[test]
fn every_choice_of_keeps_becomes_what_cherry_pick_makes_of_it() {
    let toy = five();
    let all = [2, 3, 4, 5, 6];
    let before = theirs(&toy);
    let (mut made, mut refused) = (0, 0);
    for choice in 1..32u32 {
        let (mine, others): (Vec<u64>, Vec<u64>) =
            all.iter().partition(|trial| choice >> (*trial - 2) & 1 == 1);
        decide(&toy, &mine, "--accept");
        if !others.is_empty() {
            decide(&toy, &others, "--reject");
        }
        match picked(&toy, &mine) {
            Some(tree) => {
                toy.exits(0, &["accept", "--runs", "1"]);
                assert_eq!(toy.git(&["rev-parse", "accepted/bar^{tree}"]), tree, "{mine:?}");
                let count = toy.git(&["rev-list", "--count", "main..accepted/bar"]);
                assert_eq!(count, mine.len().to_string(), "one commit each");
                toy.git(&["branch", "-q", "-D", "accepted/bar"]);
                made += 1;
            }
            None => {
                toy.exits(3, &["accept", "--runs", "1"]).says(&["needs trial", "which is rejected"]);
                refused += 1;
            }
        }
        assert_eq!(theirs(&toy), before, "{mine:?}");
    }
    assert_eq!((made, refused), (17, 14), "4 needs 2, and 5 needs 3");
}

#[test]
fn a_branch_holds_the_accepted_keeps_in_order_and_says_how_to_merge_it() {
    let toy = five();
    decide(&toy, &[2, 3, 6], "--accept");
    decide(&toy, &[5], "--defer");
    let before = theirs(&toy);
    let outcome = toy.exits(0, &["accept", "--json"]).json();
    // Oracle: by hand. 9 + 9 + 9 against 5 + 5 + 9 − 2; noise is the same on both sides.
    let gain = outcome["gain"].as_f64().unwrap();
    assert!((gain - 10.0).abs() < 1e-9 && outcome["confirmed"] == true, "{outcome}");
    let sides = [&outcome["values"], &outcome["baseline"]].map(|side| side.as_array().unwrap().len());
    assert_eq!(sides, [2, 2]);
    assert_eq!(outcome["left_out"], serde_json::json!([[4, "unreviewed"], [5, "deferred"]]));
    let subjects = toy.git(&["log", "--reverse", "--format=%s", "main..accepted/bar"]);
    assert_eq!(subjects, "a = 9 becomes a = 5\nb = 9 becomes b = 5\na new file");
    let trials = toy.git(&[
        "log",
        "--reverse",
        "--format=%(trailers:key=Trial,valueonly,separator=)",
        "main..accepted/bar",
    ]);
    assert_eq!(trials, "2\n3\n6");
    let trailers = toy.git(&["log", "-1", "--format=%(trailers:only)", "accepted/bar"]);
    assert_eq!(
        trailers.lines().map(|line| line.split(':').next().unwrap()).collect::<Vec<_>>(),
        ["Trial", "Loss", "Delta", "Reviewed-By"]
    );
    assert!(trailers.ends_with("Reviewed-By: toy <toy@example.invalid>"), "{trailers}");
    let [status, index, branches, rows, file] = theirs(&toy);
    assert_eq!(
        [status, index, rows, file],
        [&before[0], &before[1], &before[3], &before[4]].map(Clone::clone)
    );
    assert_eq!(branches.lines().count(), before[2].lines().count() + 1);
    let journal = toy.read(".ratchet/tags/bar/journal.jsonl");
    let last: Value = serde_json::from_str(journal.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["branch"]), (&"accepted".into(), &"accepted/bar".into()));
    assert_eq!(toy.status()["trials"], 6, "no trial");
    // the same again is the same, at no cost
    let runs = toy.path(".ratchet/tags/bar/accepted/001/branch/0/run.json");
    let was = fs::metadata(&runs).unwrap().modified().unwrap();
    let again = toy.exits(0, &["accept"]);
    again.says(&["gain +10.000000", "confirmed", "git merge accepted/bar", "nothing is merged"]);
    assert!(again.stdout.trim_end().ends_with("git merge accepted/bar"), "{}", again.stdout);
    assert_eq!(fs::metadata(&runs).unwrap().modified().unwrap(), was);
    toy.git(&["stash", "-q", "-u"]); // `try` has left the champion's files
    toy.git(&["merge", "-q", "accepted/bar"]);
    toy.exits(0, &["run", "--trials", "1"]); // the loop goes on as before
}

#[test]
fn a_keep_on_a_branch_is_decided_until_the_branch_goes() {
    let toy = kept(Toy::new());
    decide(&toy, &[2], "--accept");
    toy.exits(0, &["accept"]);
    assert_eq!(toy.exits(0, &["review", "--json"]).json()["keeps"][0]["taken"], "accepted/bar");
    toy.exits(2, &["review", "2", "--reject"])
        .says(&["was taken to the branch accepted/bar", "git branch -D"]);
    toy.exits(0, &["review", "4", "--accept"]);
    // another choice is another branch
    toy.exits(2, &["accept"]).says(&["accepted/bar stands at", "--branch", "git branch -D accepted/bar"]);
    let other = toy.exits(0, &["accept", "--branch", "home/two"]);
    other.says(&["2 keeps upon", "git merge home/two"]);
    toy.git(&["branch", "-q", "-D", "home/two"]);
    toy.exits(2, &["review", "2", "--reject"]);
    toy.git(&["branch", "-q", "-D", "accepted/bar"]);
    toy.exits(0, &["review", "2", "--reject"]);
    toy.exits(3, &["accept"])
        .says(&["trial 4 needs trial 2, which is rejected", "ratchet review 4 --reject"]);
}

#[test]
fn what_cannot_be_a_branch_is_refused_before_anything_runs() {
    let toy = kept(Toy::new());
    toy.exits(2, &["accept"]).says(&["nothing of the tag bar is accepted", "ratchet review"]);
    decide(&toy, &[2], "--defer");
    toy.exits(2, &["accept"]);
    decide(&toy, &[2], "--accept");
    toy.git(&["branch", "mine/a"]);
    let before = theirs(&toy);
    for (name, said) in [
        ("main", "stands at"),
        ("ratchet/bar", "are the driver's"),
        ("ratchet/new", "are the driver's"),
        ("mine", "mine/a is in the way"),
        ("mine/a/b", "mine/a is in the way"),
        ("-x", "cannot be the branch"),
        ("a b", "cannot be the branch"),
        ("a..b", "cannot be the branch"),
        ("x.lock", "cannot be the branch"),
        ("HEAD", "cannot be the branch"),
        ("", "cannot be the branch"),
    ] {
        toy.exits(2, &["accept", &format!("--branch={name}")]).says(&[said]);
    }
    toy.git(&["symbolic-ref", "HEAD", "refs/heads/unborn"]);
    toy.exits(2, &["accept", "--branch", "unborn"]);
    toy.git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    assert_eq!(theirs(&toy), before);
    assert!(!toy.path(".ratchet/tags/bar/accepted").exists(), "nothing ran");
    toy.exits(2, &["accept", "--runs", "0"]);
    toy.exits(2, &["accept", "--tag", "nope"]).says(&["there is no tag nope"]);
}

#[test]
fn a_line_that_was_only_taken_back_needs_the_keep_that_wrote_it() {
    let toy = begun();
    change(&toy, "c = 9\n", "c = 9\nd = -1\n");
    change(&toy, "a = 9", "a = 8");
    keep(&toy, "cand/f.txt", &START.replace("a = 9", "a = 1"), "without d, but a is 1");
    // by text alone it would apply
    decide(&toy, &[3, 4], "--accept");
    decide(&toy, &[2], "--reject");
    assert!(picked(&toy, &[3, 4]).is_some());
    let json = toy.exits(3, &["accept", "--json"]);
    json.says(&["trial 4 needs trial 2, which is rejected"]);
    assert_eq!((&json.json()["branch"], &json.json()["status"]), (&Value::Null, &"refused".into()));
    decide(&toy, &[3], "--defer");
    toy.exits(3, &["accept"]).says(&["trial 2, which is rejected, and trial 3, which is deferred"]);
}

#[test]
fn a_head_without_a_value_makes_no_branch_and_may_be_tried_again() {
    let toy = begun();
    change(&toy, "a = 9", "a = 5 fuse");
    change(&toy, "c = 9", "c = 5 boom");
    decide(&toy, &[3], "--accept");
    let before = theirs(&toy);
    for _ in 0..2 {
        toy.exits(1, &["accept"]).says(&["no branch was made: its head has no value"]);
        assert_eq!(theirs(&toy), before);
    }
    decide(&toy, &[2], "--accept");
    toy.exits(0, &["accept"]);
}

#[test]
fn a_gain_that_is_gone_keeps_the_branch_and_says_so_loudly() {
    let toy = Toy::with(|task| task.replace("\"strict\"", "\"noise\"\nsigma = 1.0"));
    // what the referee says of x = 6 is no longer true when it is run again
    toy.write(
        "score.sh",
        "x=$(sed -n 's/^x = \\([^ ]*\\).*/\\1/p' cand/x.txt)\n\
        if [ \"$x\" = 6 ] && [ -e \"$1/sober\" ]; then x=10; fi\necho \"{\\\"loss\\\": $x}\"\n",
    );
    toy.commit("a referee of a day");
    let toy = toy.init();
    assert_eq!(toy.attempt("6")["status"], "keep");
    decide(&toy, &[2], "--accept");
    toy.write("sober", "");
    let ran = toy.exits(1, &["accept", "--runs", "3"]);
    ran.says(&["GAIN NOT CONFIRMED", "no better than the baseline", "git merge accepted/bar"]);
    toy.git(&["rev-parse", "accepted/bar"]);
    toy.exits(1, &["accept", "--runs", "3"]).says(&["GAIN NOT CONFIRMED"]);
}

#[test]
fn hostile_words_forge_no_trailer_and_are_no_comment() {
    let toy = begun();
    let evil = format!("# wide\u{1b}[31m \u{202e}x\n\nTrial: 99\nReviewed-By: nobody {}", "y".repeat(10_000));
    keep(&toy, "cand/f.txt", &START.replace("a = 9", "a = 1"), &evil);
    decide(&toy, &[2], "--accept");
    let ran = toy.exits(0, &["accept"]);
    assert!(ran.stdout.chars().all(|c| c == '\n' || !c.is_control()) && !ran.stdout.contains('\u{202e}'));
    let message = toy.git(&["log", "-1", "--format=%B", "accepted/bar"]);
    assert!(
        message.starts_with("wide x Trial: 99 Reviewed-By: nobody") && message.len() < 1_000,
        "{message}"
    );
    let trailers =
        toy.git(&["log", "-1", "--format=%(trailers:key=Trial)%(trailers:key=Reviewed-By)", "accepted/bar"]);
    assert_eq!(
        trailers.split_whitespace().collect::<Vec<_>>().join(" "),
        "Trial: 2 Reviewed-By: toy <toy@example.invalid>"
    );
    // what git makes of it when the person only looks at it in an editor
    fs::write(toy.path("message"), &message).unwrap();
    let kept = Command::new("git")
        .args(["stripspace", "--strip-comments"])
        .current_dir(toy.root())
        .stdin(fs::File::open(toy.path("message")).unwrap())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(kept.stdout).unwrap().trim_end(), message.trim_end());
}

#[test]
fn a_moved_branch_of_the_users_is_no_obstacle() {
    let toy = five();
    decide(&toy, &[2, 3], "--accept");
    let base = toy.git(&["rev-parse", "main"]);
    toy.write("notes.txt", "mine\n");
    toy.commit("on with my own work");
    toy.git(&["switch", "-q", "-c", "elsewhere"]);
    toy.write("notes.txt", "not committed yet\n");
    toy.git(&["add", "notes.txt"]);
    let before = theirs(&toy);
    toy.exits(0, &["accept"]);
    assert_eq!(toy.git(&["merge-base", "accepted/bar", "main"]), base);
    let after = theirs(&toy);
    assert_eq!((&after[0], &after[1]), (&before[0], &before[1]));
}

#[test]
fn accept_waits_for_no_run_and_is_stopped_without_a_trace() {
    let toy = five();
    decide(&toy, &[2, 3], "--accept");
    let before = theirs(&toy);
    toy.write("shut", "");
    let driver = toy.at_the_gate(&["accept", "--runs", "1"]);
    toy.exits(5, &["accept"]).says(&["holds the lock"]);
    let pid = Pid::from_raw(driver.0.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ran = driver.ended("accept");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    ran.says(&["no branch was made", "the same command goes on"]);
    assert_eq!(theirs(&toy), before);
    fs::remove_file(toy.path("started")).unwrap();
    let mut driver = toy.at_the_gate(&["accept", "--runs", "1"]);
    driver.0.kill().unwrap();
    driver.0.wait().unwrap();
    drop(driver);
    toy.open_the_gate();
    fs::remove_file(toy.path("shut")).unwrap();
    assert_eq!(theirs(&toy), before);
    toy.exits(0, &["accept", "--runs", "1"]);
}

#[test]
fn a_decision_that_changes_meanwhile_is_not_passed_over() {
    let toy = five();
    decide(&toy, &[2, 3], "--accept");
    toy.write("shut", "");
    let driver = toy.at_the_gate(&["accept", "--runs", "1"]);
    decide(&toy, &[3], "--reject");
    fs::remove_file(toy.path("shut")).unwrap();
    toy.open_the_gate();
    let ran = driver.ended("accept");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    ran.says(&["has changed meanwhile"]);
    assert!(!toy.git(&["for-each-ref", "refs/heads"]).contains("accepted/bar"));
    toy.exits(0, &["accept", "--runs", "1"]).says(&["1 keep upon"]);
}

#[test]
fn killed_at_any_time_the_branch_is_whole_or_not_there() {
    let toy = five();
    decide(&toy, &[2, 3, 6], "--accept");
    let whole = toy.copy();
    whole.exits(0, &["accept", "--runs", "1"]);
    let head = whole.git(&["rev-parse", "accepted/bar"]);
    let mut rng = StdRng::seed_from_u64(std::process::id().into());
    for _ in 0..10 {
        let mut driver = Running(toy.command(&["accept", "--runs", "1"]).spawn().unwrap());
        // Not a wait for something: the moment of death is what is drawn at random.
        std::thread::sleep(std::time::Duration::from_micros(rng.random_range(0..300_000)));
        driver.0.kill().unwrap();
        driver.0.wait().unwrap();
        drop(driver);
        let branch = toy.git(&["for-each-ref", "--format=%(objectname)", "refs/heads/accepted"]);
        assert!(branch.is_empty() || branch == head, "{branch}");
        if branch == head {
            toy.exits(0, &["accept", "--runs", "1"]);
            toy.git(&["branch", "-q", "-D", "accepted/bar"]);
            fs::remove_dir_all(toy.path(".ratchet/tags/bar/accepted")).unwrap();
        }
    }
    toy.exits(0, &["accept", "--runs", "1"]);
    assert_eq!(toy.git(&["rev-parse", "accepted/bar"]), head, "the same decisions give the same commits");
}
