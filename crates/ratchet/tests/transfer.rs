//! `ratchet transfer`: longer and larger, by a toy whose values can be computed by hand.

use rustix::process::{Pid, Signal, kill_process};

use crate::toy::Toy;

/// Notes each run, and leaves a curve that falls to 8 for x = 10, and twice as fast for any other x.
const FIT: &str = r#"x=$(sed -n 's/^x = \([^ ]*\).*/\1/p' cand/x.txt)
if [ -e "$2/hold" ] && [ "$(wc -l < "$2/runs.txt")" -ge 2 ]; then echo $$ > "$2/started"; exec sleep 600; fi
awk -v x="$x" -v budget="${RATCHET_BUDGET_S:-10}" 'BEGIN { print "step,seconds,progress,tokens,loss"
  for (i = 1; i <= 20; i++) printf "%d,%g,0,0,%g\n", i, i * budget / 20, 10 - i * (x == 10 ? 0.1 : 0.2) }' > "$1/steps.csv"
echo "$RATCHET_SEED ${RATCHET_BUDGET_S:-none}" >> "$2/runs.txt"
"#;

/// (x − 3)² ∕ DEPTH + y², and noise that the seed alone decides.
const SCORE: &str = r#"value() { sed -n "s/^$2 = \([^ ]*\).*/\1/p" "cand/$1.txt"; }
awk -v x="$(value x x)" -v y="$(value y y)" -v depth="$(value d DEPTH)" -v seed="$RATCHET_SEED" 'BEGIN {
  printf "{\"loss\": %.12g}\n", (x - 3) ^ 2 / depth + y ^ 2 + substr(seed, length(seed)) / 10 }'
"#;

/// A baseline of x = 10, y = 4, and one keep for each of x = 6 and y = 1.
fn kept() -> Toy {
    let fit = "[fit]\ncommand = [\"sh\", \"fit.sh\", \"{trial}\", \"{root}\"]\n";
    let toy = Toy::and(fit);
    toy.write("fit.sh", FIT);
    toy.write("score.sh", SCORE);
    toy.write("cand/y.txt", "y = 4\n");
    toy.write("cand/d.txt", "DEPTH = 2 # knob: int 1..16\n");
    toy.write(".gitignore", ".ratchet/\nruns.txt\nhold\nstarted\n");
    toy.commit("larger and longer");
    let toy = toy.init();
    assert_eq!(toy.attempt("6")["status"], "keep");
    toy.write("cand/y.txt", "y = 1\n");
    toy.exits(0, &["try", "-m", "y is 1"]);
    assert_eq!(toy.column("status"), ["keep", "keep", "keep"]);
    std::fs::remove_file(toy.path("runs.txt")).unwrap();
    toy
}

const LONGER: [&str; 6] = ["transfer", "--budget", "20s", "--depth", "7", "--leave-one-out"];

fn close(json: &serde_json::Value, wanted: f64) -> bool {
    (json.as_f64().unwrap() - wanted).abs() < 1e-6
}

#[test]
fn what_remains_of_a_gain_and_what_carries_it() {
    let toy = kept();
    let (rows, status) = (toy.read("results.tsv"), toy.status());
    let branch = toy.git(&["rev-parse", "ratchet/bar"]);
    let report = toy.exits(0, &[&LONGER[..], &["--json"]].concat()).json();
    // Oracle: by hand. Of 49∕2 + 16 − (9∕2 + 1) = 35 there is 49∕7 + 16 − (9∕7 + 1) left; noise cancels in pairs.
    let (gain, x, y) = (7.0 + 16.0 - 9.0 / 7.0 - 1.0, 7.0 - 9.0 / 7.0, 15.0);
    assert!(close(&report["trial_gain"], 35.0) && close(&report["gain"]["mean"], gain), "{report}");
    assert!(close(&report["gain"]["error"], 0.0) && close(&report["remains"], gain / 35.0), "{report}");
    // the champion's curve falls twice as fast: it is there after half of 20 s
    assert!(report["reached_s"].as_array().unwrap().iter().all(|seconds| close(seconds, 10.0)), "{report}");
    let carries = |at: usize| &report["without"][at];
    assert!(carries(0)["trial"] == 2 && close(&carries(0)["carries"]["mean"], x), "{report}");
    assert!(carries(1)["trial"] == 3 && close(&carries(1)["carries"]["mean"], y), "{report}");
    // two seeds on four sides, each with the budget that was asked for
    let runs = toy.read("runs.txt");
    let mut runs: Vec<&str> = runs.lines().collect();
    assert!(runs.len() == 8 && runs.iter().all(|run| run.ends_with(" 20")), "{runs:?}");
    runs.sort_unstable();
    runs.dedup();
    assert_eq!(runs.len(), 2, "the same seeds on each side");

    assert_eq!((toy.read("results.tsv"), toy.status()), (rows, status), "no trial");
    assert_eq!(toy.git(&["rev-parse", "ratchet/bar"]), branch);
    let journal = toy.read(".ratchet/tags/bar/journal.jsonl");
    assert!(journal.lines().last().unwrap().contains("\"event\":\"transferred\""), "{journal}");
    toy.exits(0, &LONGER).says(&["59 ± 0 % of it remain", "after 10 s, 50 % of the time", "trial 3"]);
    assert_eq!(toy.read("runs.txt").lines().count(), 8, "a transfer that has ended is not made again");
    toy.exits(0, &["transfer", "--budget", "20s", "--depth", "8", "--runs", "1"]).says(&["one pair"]);
    assert_eq!(toy.read("runs.txt").lines().count(), 10, "another one is");
    toy.exits(0, &["run", "--trials", "1"]);
}

#[test]
fn a_transfer_goes_on_where_it_was_stopped() {
    let toy = kept();
    toy.write("hold", "");
    let driver = toy.at_the_gate(&LONGER[..5]);
    let pid = Pid::from_raw(driver.0.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ran = driver.ended("transfer");
    assert_eq!(ran.code, Some(1));
    ran.says(&["the same command goes on"]);
    std::fs::remove_file(toy.path("hold")).unwrap();
    toy.exits(0, &LONGER[..5]);
    assert_eq!(toy.read("runs.txt").lines().count(), 4, "two runs each of two sides, none twice");
}

#[test]
fn a_keep_that_others_rest_on_is_named() {
    let toy = kept();
    toy.attempt("5");
    let report = toy.exits(0, &[&LONGER[..], &["--runs", "1", "--json"]].concat()).json();
    let first = &report["without"][0];
    assert!(first["trial"] == 2 && first["carries"].is_null(), "{report}");
    assert!(first["reason"].as_str().unwrap().contains("trial 4 changed the same lines"), "{report}");
}

#[test]
fn what_cannot_be_transferred_says_why() {
    let toy = Toy::new().init();
    toy.exits(2, &LONGER).says(&["no gain yet"]);
    toy.attempt("6");
    toy.exits(2, &LONGER).says(&["no knob named DEPTH", "// knob: int"]);
    for bad in [["30", "2"], ["0s", "2"], ["8d", "2"], ["30m", "0"]] {
        toy.exits(2, &["transfer", "--budget", bad[0], "--depth", bad[1]]);
    }
}
