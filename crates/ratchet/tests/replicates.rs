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
fn a_grey_gain_is_settled_on_pairs_of_the_same_seeds() {
    let toy = noisy("\nsigma = 1.0");
    // Oracle: by hand. A gain of 2 is between 1 and 2.5 standard errors of √2 σ: grey. The paired differences are
    // all exactly 2, so that more runs can only confirm it.
    let line = toy.attempt("8");
    assert_eq!(line["status"], "keep", "{line}");
    let seeds = seeds(&toy);
    let (champion, candidate) = (&seeds["10"], &seeds["8"]);
    assert!(candidate.len() > 1, "it was run once");
    assert_eq!(champion, candidate, "seed k is the same for every trial");
    let distinct: std::collections::BTreeSet<_> = candidate.iter().collect();
    assert_eq!(distinct.len(), candidate.len(), "each run has a seed of its own");
    assert_eq!(toy.rows().len(), 2, "replicates are no rows");
    assert_eq!(toy.status()["trials"], 2);
    let rows = toy.rows();
    let difference = rows[0]["loss"].parse::<f64>().unwrap() - rows[1]["loss"].parse::<f64>().unwrap();
    assert!((difference - 2.0).abs() < 1e-5, "a row's value is the mean of its runs: {rows:?}");
}

#[test]
fn a_clear_gain_and_a_clear_loss_cost_one_run() {
    let toy = noisy("\nsigma = 0.1");
    assert_eq!(toy.attempt("8")["status"], "keep");
    assert_eq!(toy.attempt("9")["status"], "discard");
    let seeds = seeds(&toy);
    assert_eq!((seeds["10"].len(), seeds["8"].len(), seeds["9"].len()), (1, 1, 1));
    assert_eq!(seeds["10"], seeds["9"]);
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
    assert_eq!(toy.attempt("8")["status"], "keep");
    assert!(seeds(&toy)["8"].len() > 1);
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
