//! `ratchet noise`, what is kept of it, and the drift that champion re-runs show.

use serde_json::Value;

use crate::toy::Toy;

/// x, and noise by the seed; a file `hot` in the root makes everything worse by 9.
const NOISY: &str = r#"x=$(sed -n 's/^x = \([^ ]*\).*/\1/p' cand/x.txt)
echo "$RATCHET_SEED" >> "$1/runs.txt"
hot=0; if [ -e "$1/hot" ]; then hot=9; fi
awk -v x="$x" -v hot="$hot" -v seed="$RATCHET_SEED" 'BEGIN {
  s = substr(seed, length(seed) - 2) + 0
  printf "{\"loss\": %.12g}\n", x + hot + ((s * 37) % 11 - 5) / 5 }'
"#;

fn noisy() -> Toy {
    let toy = Toy::with(|task| task.replace("\"strict\"", "\"noise\"\nsigma = 1.0"));
    toy.write("score.sh", NOISY);
    toy.write(".gitignore", ".ratchet/\nruns.txt\nhot\n");
    toy.commit("noise");
    toy
}

#[test]
fn noise_runs_the_champion_with_seeds_of_its_own_and_makes_no_rows() {
    let toy = noisy();
    toy.exits(0, &["noise", "--runs", "5"]).says(&["sigma", "95 of 100", "5 degrees of freedom"]);
    let text = toy.read("runs.txt");
    let seeds: std::collections::BTreeSet<&str> = text.lines().collect();
    assert_eq!(
        (seeds.len(), text.lines().count()),
        (6, 6),
        "the baseline and five more, each with its own seed"
    );
    assert_eq!((toy.rows().len(), toy.status()["trials"].as_u64()), (1, Some(1)), "replicates are no rows");
    // Oracle: the mean of what the referee printed, noise included.
    let values: Vec<f64> = seeds_to_losses(&text);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    assert!((toy.status()["best"]["value"].as_f64().unwrap() - mean).abs() < 1e-9);
    toy.exits(2, &["noise", "--runs", "0"]);
    toy.exits(2, &["noise"]);
}

fn seeds_to_losses(seeds: &str) -> Vec<f64> {
    let noise = |seed: &str| {
        (seed[seed.len().saturating_sub(3)..].parse::<i64>().unwrap() * 37 % 11 - 5) as f64 / 5.0
    };
    seeds.lines().map(|seed| 10.0 + noise(seed)).collect()
}

#[test]
fn the_next_tag_starts_from_what_this_one_has_measured() {
    let toy = noisy();
    toy.exits(0, &["noise", "--runs", "5", "--tag", "one"]);
    let kept: Value = serde_json::from_str(&toy.read(".ratchet/noise.json")).unwrap();
    assert_eq!(kept.as_object().unwrap().len(), 1, "one kind of measurement: {kept}");
    toy.set("12");
    toy.exits(0, &["try", "-m", "worse", "--tag", "two"]);
    toy.exits(0, &["show", "2", "--tag", "two"]).says(&["measured from 5 degrees of freedom"]);
    // Damaged, it is as if nothing had been measured: it can be measured again.
    toy.write(".ratchet/noise.json", "{");
    toy.set("13");
    toy.exits(0, &["try", "-m", "worse still", "--tag", "two"]);
    toy.exits(0, &["show", "3", "--tag", "two"]).says(&["(stated)"]);
}

#[test]
fn a_machine_that_drifts_is_flagged() {
    let toy = noisy();
    toy.exits(0, &["noise", "--runs", "3"]);
    assert_eq!(toy.status()["drift"], Value::Null);
    toy.write("hot", "");
    toy.exits(0, &["noise", "--runs", "1"]);
    let drift = toy.status()["drift"].as_str().unwrap_or_default().to_owned();
    assert!(drift.contains("differs by +"), "{drift}");
    toy.exits(0, &["status"]).says(&["drift"]);
}

#[test]
fn a_run_looks_at_its_champion_now_and_then() {
    let toy = noisy();
    toy.exits(0, &["run", "--trials", "20", "--proposer", "knobs"]).says(&["the champion once more"]);
    assert_eq!(toy.status()["trials"], 20, "a re-run is no trial");
}

#[test]
fn a_task_without_held_out_rows_is_not_audited() {
    let toy = Toy::new().init();
    toy.exits(2, &["audit"]).says(&["exam = true"]);
}

#[test]
fn noise_of_a_mistyped_tag_begins_none() {
    let toy = Toy::new().init();
    toy.exits(2, &["noise", "--runs", "1", "--tag", "typo"]).says(&["there is no tag typo"]);
    assert!(!toy.path(".ratchet/tags/typo").exists());
}
