//! The `noise` rule from outside: further runs in the grey zone, never rows, the same seeds for all.

use std::collections::BTreeMap;

use crate::toy::Toy;

/// A referee whose noise depends on the seed alone, so that pairs cancel it, and which notes each run.
const NOISY: &str = r#"x=$(sed -n 's/^x = \([^ ]*\).*/\1/p' cand/x.txt)
echo "$x $RATCHET_SEED" >> "$1/runs.txt"
awk -v x="$x" -v seed="$RATCHET_SEED" 'BEGIN {
  s = substr(seed, length(seed) - 2) + 0
  printf "{\"loss\": %.12g}\n", x + ((s * 37) % 11 - 5) / 5 }'
"#;

fn noisy(sigma: &str) -> Toy {
    let toy = Toy::with(|task| task.replace("\"strict\"", &format!("\"noise\"{sigma}")));
    toy.write("score.sh", NOISY);
    toy.write(".gitignore", ".ratchet/\nruns.txt\n");
    toy.commit("noise");
    toy.init()
}

/// The seeds that each x was run with, in order.
fn seeds(toy: &Toy) -> BTreeMap<String, Vec<String>> {
    let mut seeds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in toy.read("runs.txt").lines() {
        let (x, seed) = line.split_once(' ').unwrap();
        seeds.entry(x.to_owned()).or_default().push(seed.to_owned());
    }
    seeds
}

#[test]
fn a_gain_is_settled_on_pairs_of_the_same_seeds() {
    let toy = noisy("\nsigma = 1.0");
    // Oracle: by hand. A gain of 6 is far beyond what two runs each leave open, and one run each keeps nothing.
    let line = toy.attempt("4");
    assert_eq!(line["status"], "keep", "{line}");
    let seeds = seeds(&toy);
    let (champion, candidate) = (&seeds["10"], &seeds["4"]);
    assert!(candidate.len() > 1, "it was run once");
    assert_eq!(champion, candidate, "seed k is the same for every trial");
    let distinct: std::collections::BTreeSet<_> = candidate.iter().collect();
    assert_eq!(distinct.len(), candidate.len(), "each run has a seed of its own");
    assert_eq!(toy.rows().len(), 2, "replicates are no rows");
    assert_eq!(toy.status()["trials"], 2);
    let rows = toy.rows();
    let difference = rows[0]["loss"].parse::<f64>().unwrap() - rows[1]["loss"].parse::<f64>().unwrap();
    assert!((difference - 6.0).abs() < 1e-5, "a row's value is the mean of its runs: {rows:?}");
}

#[test]
fn a_clear_gain_costs_a_second_seed_and_a_clear_loss_none() {
    let toy = noisy("\nsigma = 0.1");
    assert_eq!(toy.attempt("-5")["status"], "keep");
    assert_eq!(toy.attempt("9")["status"], "discard");
    let seeds = seeds(&toy);
    assert_eq!((seeds["10"].len(), seeds["-5"].len(), seeds["9"].len()), (2, 2, 1));
    assert_eq!(seeds["10"][0], seeds["9"][0]);
}

#[test]
fn a_gain_within_noise_is_discarded_and_says_so() {
    let toy = noisy("\nsigma = 5.0\nmax_replicates = 0");
    let line = toy.attempt("9");
    assert_eq!(line["status"], "discard");
    assert!(line["reason"].as_str().unwrap().contains('σ'), "{line}");
    assert_eq!(toy.status()["noise_sigma"], 5.0);
    let verdict: serde_json::Value =
        serde_json::from_str(&toy.read(".ratchet/tags/bar/trials/0002/verdict.json")).unwrap();
    assert_eq!(verdict["rule"], "noise");
    assert_eq!(verdict["noise"]["sigma"], 5.0);
    toy.exits(0, &["show", "2"]).says(&["σ", "sigma 5.000000 (stated)"]);
}

#[test]
fn an_unknown_sigma_is_measured_by_the_first_promising_candidate() {
    let toy = noisy("");
    assert_eq!(toy.status()["noise_sigma"], serde_json::Value::Null);
    assert_eq!(toy.attempt("11")["status"], "discard", "no better: one run is enough");
    assert_eq!(toy.attempt("-5")["status"], "keep");
    assert!(seeds(&toy)["-5"].len() > 1);
    assert!(toy.status()["noise_sigma"].is_number());
}

#[test]
fn fewer_lines_at_no_loss_are_kept_as_a_simplification() {
    let toy = Toy::with(|task| task.replace("\"strict\"", "\"noise\"\nsigma = 0.5"));
    toy.write("cand/more.txt", "one\ntwo\nthree\nfour\n");
    toy.commit("more lines");
    let toy = toy.init();
    toy.write("cand/more.txt", "one\n");
    let line = toy.exits(0, &["try", "-m", "simpler", "--json"]).json();
    assert_eq!(line["status"], "keep", "{line}");
    let lines: Vec<i64> = toy.column("lines").iter().map(|lines| lines.parse().unwrap()).collect();
    assert_eq!(lines[0] - lines[1], 3);
    toy.write("cand/more.txt", "one\ntwo\n");
    let line = toy.exits(0, &["try", "-m", "longer", "--json"]).json();
    assert_eq!(line["status"], "discard", "{line}");
}

/// The loss is x: no noise, and each step down is less than a test is worth.
const PLAIN: &str = r#"awk '{ printf "{\"loss\": %s}\n", $3 }' cand/x.txt
"#;

/// A proposer that takes 2 from whatever x it finds.
const DOWN: &str = r#"x=$(sed -n 's/^x = \([^ ]*\).*/\1/p' cand/x.txt)
echo "x = $((x - 2)) # knob: lin -20..20" > cand/x.txt
"#;

#[test]
fn small_gains_are_carried_until_together_they_are_kept() {
    let toy = Toy::with(|task| {
        task.replace("\"strict\"", "\"noise\"\nsigma = 1.0")
            + "\n[proposer]\nkind = \"agent\"\n[proposer.agent]\ncommand = [\"sh\", \"down.sh\"]\n"
    });
    toy.write("score.sh", PLAIN);
    toy.write("down.sh", DOWN);
    toy.commit("small steps");
    let toy = toy.init();
    toy.exits(0, &["run", "--trials", "5"]);
    // Oracle: by hand. 0.4 of each step's surplus over what is believed counts: 0.8, then 0.8 + 0.4·3.2 = 2.08,
    // which is worth a test of the whole, a gain of 4 at errors of 1 σ: kept.
    assert_eq!(toy.column("status"), ["keep", "discard", "keep", "discard", "keep"]);
    assert_eq!(toy.column("outcome")[1], "promising");
    assert_eq!(toy.column("parent"), ["", "1", "1", "3", "3"], "the parent is what it is compared with");
    assert_eq!(toy.git(&["show", "ratchet/bar:cand/x.txt"]).split(' ').nth(2), Some("2"));
    assert_eq!(toy.x(), "10", "the user's file is the user's");
    let trailers = toy.git(&["log", "-1", "--format=%(trailers:only,unfold)", &toy.lineage("bar")[0]]);
    assert!(trailers.contains("Carries: 2"), "{trailers}");
    // A lead outlives its run: the next proposal still builds on it.
    toy.exits(0, &["run", "--trials", "1"]);
    toy.exits(0, &["run", "--trials", "1"]);
    assert_eq!(toy.column("status")[5..], ["discard", "keep"]);
}

#[test]
fn a_champion_that_crashes_when_it_is_run_again_does_not_end_the_night() {
    let toy = Toy::with(|task| task.replace("\"strict\"", "\"noise\"\nsigma = 0.01"));
    toy.write(
        "score.sh",
        "x=$(sed -n 's/^x = \\([^ ]*\\).*/\\1/p' cand/x.txt)\n\
         if [ $x = 10 ] && [ -e \"$1/once\" ]; then echo 'no memory left' >&2; exit 1; fi\n: > \"$1/once\"\n\
         awk -v x=$x 'BEGIN { printf \"{\\\"loss\\\": %.12g}\\n\", (x - 10) * (x - 10) }'\n",
    );
    toy.commit("a baseline that runs once");
    let run = toy.exits(0, &["run", "--trials", "14", "--tag", "bar"]);
    assert!(run.stderr.contains("the champion crashed when it was run again"), "{}", run.stderr);
    assert_eq!(toy.rows().len(), 14);
}
