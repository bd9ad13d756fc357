//! A recorded night, played back elsewhere: the same decisions, or it says where they differ.

use crate::toy::Toy;

/// A task whose value varies by chance, so that verdicts run both sides again.
fn noisy() -> Toy {
    let toy = Toy::with(|task| task.replace("rule = \"strict\"", "rule = \"noise\"\nsigma = 2.0"));
    toy.write(
        "score.sh",
        "x=$(sed -n 's/^x = \\([^ ]*\\).*/\\1/p' cand/x.txt)\n\
         awk -v x=\"$x\" -v s=\"$RATCHET_SEED\" 'BEGIN { srand(s + 1000 * x); for (i = 0; i < 12; i++) n += rand();\n\
         if (x > 19) exit 3; printf \"{\\\"loss\\\": %.17g}\\n\", (x - 3) * (x - 3) + 1 + 2 * (n - 6) }'\n",
    );
    toy.commit("noise");
    toy
}

/// What was decided: `verdict.json` of each trial.
fn verdicts(toy: &Toy, tag: &str) -> Vec<String> {
    let trials = toy.rows().len();
    (1..=trials).map(|n| toy.read(&format!(".ratchet/tags/{tag}/trials/{n:04}/verdict.json"))).collect()
}

#[test]
fn a_night_played_back_elsewhere_decides_byte_for_byte_the_same() {
    let toy = noisy();
    toy.exits(0, &["run", "--trials", "20", "--tag", "before"]); // what it measures of the noise counts later
    toy.exits(0, &["run", "--trials", "25", "--tag", "bar"]);
    toy.exits(0, &["run", "--trials", "15"]);
    toy.exits(0, &["record", "night.jsonl"]).says(&["40 trials"]);
    let elsewhere = Toy::no_repository();
    let clone = ["clone", "-q", toy.root().to_str().unwrap(), "."];
    assert!(
        std::process::Command::new("git")
            .args(clone)
            .current_dir(elsewhere.root())
            .status()
            .unwrap()
            .success()
    );
    // nothing here could measure anything
    elsewhere.write("night.jsonl", &toy.read("night.jsonl"));
    let played =
        elsewhere.exits(0, &["run", "--proposer", "replay", "--night", "night.jsonl", "--tag", "again"]);
    played.says(&["40 recorded trials, every verdict the same"]);
    assert_eq!(verdicts(&elsewhere, "again"), verdicts(&toy, "bar"));
    for column in
        ["loss", "status", "outcome", "delta", "description", "proposer", "parent", "lines", "memory_gb"]
    {
        assert_eq!(elsewhere.column(column), toy.column(column), "{column}");
    }
    let runs = |toy: &Toy, tag: &str| {
        let journal = toy.read(&format!(".ratchet/tags/{tag}/journal.jsonl"));
        journal.lines().filter(|line| line.contains("\"replicated\"")).count()
    };
    assert!(runs(&toy, "bar") > 0, "the champion was run again");
    assert_eq!(runs(&elsewhere, "again"), runs(&toy, "bar"));
    // recorded values and measured ones never meet
    elsewhere.exits(2, &["run", "--trials", "1"]).says(&["replay of cpu"]);
    toy.exits(2, &["run", "--proposer", "replay", "--night", "night.jsonl"]).says(&["a tag of its own"]);
    elsewhere
        .exits(2, &["run", "--proposer", "replay", "--night", "night.jsonl"])
        .says(&["holds trials already"]);
    let some = ["run", "--proposer", "replay", "--night", "night.jsonl", "--tag", "some", "--trials", "9"];
    elsewhere.exits(0, &some).says(&["9 of 40 recorded trials"]);
}

#[test]
fn a_recording_overwrites_nothing_but_a_recording() {
    let toy = Toy::new();
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    toy.write("program.md", "mine, uncommitted\n");
    for file in [
        "program.md",
        "ratchet.toml",
        "results.tsv",
        "cand",
        ".ratchet/tags/bar/journal.jsonl",
        ".ratchet/new.jsonl",
    ] {
        toy.exits(2, &["record", file]).says(&[file]);
    }
    assert_eq!(toy.read("program.md"), "mine, uncommitted\n");
    toy.exits(0, &["record", "night.jsonl"]);
    toy.exits(0, &["record", "night.jsonl"]);
    toy.exits(0, &["status"]);
}

#[test]
fn a_recording_that_was_changed_or_belongs_elsewhere_is_found_out() {
    let toy = Toy::new();
    toy.exits(0, &["run", "--trials", "6", "--tag", "bar"]);
    toy.exits(0, &["record", "night.jsonl"]);
    let night = toy.read("night.jsonl");
    let kept = toy.rows().into_iter().skip(1).find(|row| row["status"] == "keep").expect("a keep");
    let value: f64 = kept["loss"].parse().unwrap();
    let (before, after) = (format!("\"values\":[{value:?}]"), "\"values\":[1000.0]");
    assert!(night.contains(&before), "{before}");
    toy.write("changed.jsonl", &night.replacen(&before, after, 1));
    let wrong = format!("trial {} is decided otherwise", kept["trial"]);
    toy.exits(1, &["run", "--proposer", "replay", "--night", "changed.jsonl", "--tag", "changed"])
        .says(&[&wrong]);
    toy.write("cut.jsonl", &night[..night.len() / 2]);
    toy.exits(2, &["run", "--proposer", "replay", "--night", "cut.jsonl", "--tag", "cut"])
        .says(&["not of a recorded night"]);
    let lines: Vec<&str> = night.lines().collect();
    toy.write("short.jsonl", &lines[..lines.len() - 2].join("\n"));
    toy.exits(2, &["run", "--proposer", "replay", "--night", "short.jsonl", "--tag", "short"])
        .says(&["cut off"]);
    let headless: Vec<&str> = lines.iter().filter(|line| !line.contains("\"trial\":1,")).copied().collect();
    toy.write(
        "headless.jsonl",
        &headless.join("\n").replace("{\"end\":{\"trials\":6}}", "{\"end\":{\"trials\":5}}"),
    );
    toy.exits(2, &["run", "--proposer", "replay", "--night", "headless.jsonl", "--tag", "headless"])
        .says(&["no baseline"]);
    toy.write("prose.jsonl", "the night was long\n");
    toy.exits(2, &["run", "--proposer", "replay", "--night", "prose.jsonl", "--tag", "prose"])
        .says(&["line 1"]);
    toy.exits(2, &["run", "--proposer", "replay", "--night", "nowhere.jsonl", "--tag", "nowhere"])
        .says(&["nowhere.jsonl"]);
    toy.set("12");
    toy.commit("other files");
    toy.exits(2, &["run", "--proposer", "replay", "--night", "night.jsonl", "--tag", "other"])
        .says(&["other editable files"]);
}

#[test]
fn a_hostile_recording_reaches_nothing_outside_the_editable_files() {
    let toy = Toy::new();
    let victim = Toy::no_repository();
    victim.write("a.txt", "precious\n");
    std::os::unix::fs::symlink(victim.root(), toy.path("cand/link")).unwrap();
    toy.commit("a link");
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]);
    toy.exits(0, &["record", "night.jsonl"]);
    let night = toy.read("night.jsonl");
    let name = victim.root().file_name().unwrap().to_str().unwrap();
    let up = format!("cand/../../../../../../{name}/a.txt");
    let absolute = victim.path("a.txt").to_str().unwrap().to_owned();
    let long = format!("cand/{}", "n".repeat(300));
    let paths =
        [&up, &absolute, "score.sh", "cand/link/a.txt", "cand/x.txt/y", "cand", "cand/\\u0000", &long, ""];
    for (n, path) in paths.iter().enumerate() {
        let removed = night.replacen("\"carries\"", &format!("\"removed\":[\"{path}\"],\"carries\""), 2);
        let edited = night.replacen("\"path\":\"cand/x.txt\"", &format!("\"path\":\"{path}\""), 1);
        for (how, text) in [("removed", removed), ("edited", edited)] {
            assert_ne!(text, night, "{how}");
            let file = format!("{how}-{n}.jsonl");
            toy.write(&file, &text);
            let play = ["run", "--proposer", "replay", "--night", &file, "--tag", &format!("{how}-{n}")];
            toy.exits(1, &play).says(&["makes no candidate"]);
            assert_eq!(victim.read("a.txt"), "precious\n");
        }
    }
    assert_eq!(toy.read("score.sh"), crate::toy::SCORE);
}
