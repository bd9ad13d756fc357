//! `ratchet.toml`, tags and the repository: what is wrong is said before anything runs, with exit 2 or 4.

use crate::toy::Toy;

/// Every command that reads the contract gives exit 2 and these words.
#[track_caller]
fn wrong(toy: &Toy, words: &[&str]) {
    for args in [&["init"][..], &["try", "-m", "x"], &["run", "--trials", "1"]] {
        toy.exits(2, args).says(words);
    }
    assert!(!toy.path("results.tsv").exists());
}

#[test]
fn an_unknown_section_or_key_is_named_with_its_line() {
    let toy = Toy::new();
    let task = toy.read("ratchet.toml");
    let line = format!("{}", task.lines().count() + 1);
    toy.write("ratchet.toml", &format!("{task}[metrik]\nname = \"x\"\n"));
    wrong(&toy, &["metrik", &line, "ratchet.toml"]);
    toy.exits(2, &["status"]).says(&["metrik"]);
    toy.write("ratchet.toml", &task.replace("rule =", "ruel ="));
    wrong(&toy, &["ruel"]);
    toy.write("ratchet.toml", &task.replace("timeout_s = 20", "timeout_s = \"soon\""));
    wrong(&toy, &["line 11", "soon"]);
    toy.write("ratchet.toml", &task.replace("rule = \"strict\"", "sigma = -1.0"));
    wrong(&toy, &["sigma is -1"]);
    toy.write("ratchet.toml", &task.replace("rule = \"strict\"", "min_delta = nan"));
    wrong(&toy, &["min_delta is NaN"]);
    toy.write("ratchet.toml", &task.replace("[metric]", "[metric"));
    wrong(&toy, &["ratchet.toml"]);
}

#[test]
fn a_pattern_that_matches_nothing() {
    let toy = Toy::with(|task| task.replace("cand/**", "kand/**"));
    wrong(&toy, &["kand/**"]);
}

#[test]
fn a_referee_inside_the_editable_part() {
    let toy = Toy::with(|task| task.replace("[\"cand/**\"]", "[\"cand/**\", \"score.sh\"]"));
    wrong(&toy, &["score.sh"]);
    let toy = Toy::with(|task| task.replace("[\"cand/**\"]", "[\"**\"]"));
    wrong(&toy, &["editable"]);
}

#[test]
fn no_ratchet_toml() {
    let toy = Toy::new();
    std::fs::remove_file(toy.path("ratchet.toml")).unwrap();
    for args in [&["status"][..], &["run", "--trials", "1"]] {
        toy.exits(2, args).says(&["ratchet.toml"]);
    }
}

#[test]
fn no_repository_or_none_with_a_commit() {
    for toy in [Toy::no_repository(), Toy::bare()] {
        toy.write("ratchet.toml", &Toy::new().read("ratchet.toml"));
        toy.write("score.sh", "");
        toy.set("1");
        let ran = toy.ratchet(&["run", "--trials", "1"]);
        assert!(matches!(ran.code, Some(2 | 4)), "{:?} {}", ran.code, ran.stderr);
        ran.says(&["git"]);
    }
}

#[test]
fn a_usage_error_is_exit_2() {
    let toy = Toy::new();
    for args in [
        &["run", "--trials", "many"][..],
        &["nonsense"],
        &["try"],
        &["run", "--proposer", "nobody"],
        &["show", "x"],
    ] {
        toy.exits(2, args);
    }
}

#[test]
fn a_tag_is_made_once_and_has_a_sane_name() {
    let toy = Toy::new().init();
    toy.exits(2, &["init", "--tag", "bar"]).says(&["bar"]);
    for bad in ["", "a b", "../x", "a..b", "-x", "a/.b", "x.lock", "a~b", "é/../é"] {
        let ran = toy.ratchet(&["init", "--tag", bad]);
        assert_eq!(ran.code, Some(2), "{bad}: {}", ran.stderr);
    }
    assert_eq!(toy.git(&["branch", "--list", "ratchet/*", "--format=%(refname:short)"]), "ratchet/bar");
    toy.exits(0, &["init", "--tag", "baz"]);
    assert_eq!(toy.status()["tag"], "baz");
}

#[test]
fn the_default_tag_is_a_date() {
    let toy = Toy::new();
    toy.exits(0, &["init"]);
    let tag = toy.status()["tag"].as_str().unwrap().to_owned();
    let shape: String = tag.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    assert_eq!(shape, "9999-99-99", "{tag}");
}

#[test]
fn the_measure_cannot_change_within_a_tag() {
    let toy = Toy::new().init();
    toy.attempt("6");
    let task = toy.read("ratchet.toml");
    let changes = [
        ("minimize", "maximize"),
        ("name = \"loss\"", "name = \"other\""),
        ("timeout_s = 20", "timeout_s = 21"),
        ("\"strict\"", "\"noise\""),
        ("\"{root}\"]", "\"{root}\", \"more\"]"),
        ("[score]", "[fit]\ncommand = [\"true\"]\n[score]"),
        ("[\"cand/**\"]", "[\"cand/*\"]"),
    ];
    for (from, to) in changes {
        let changed = task.replacen(from, to, 1);
        assert_ne!(changed, task);
        toy.write("ratchet.toml", &changed);
        toy.set("5");
        let ran = toy.exits(2, &["try", "-m", "x", "--json"]);
        assert!(!ran.stderr.trim().is_empty(), "{from} → {to}");
        toy.exits(2, &["run", "--trials", "1"]);
    }
    assert_eq!(toy.rows().len(), 2);
    // How long to go on and who proposes may change.
    toy.write("ratchet.toml", &format!("{task}\n[stop]\nmax_crashes_in_a_row = 3\n"));
    toy.set("5");
    toy.exits(0, &["try", "-m", "x", "--json"]);
}

#[test]
fn another_directory_is_given_with_c() {
    let toy = Toy::new().init();
    let elsewhere = Toy::no_repository();
    let root = toy.root().to_str().unwrap();
    let ran = elsewhere.exits(0, &["-C", root, "status", "--json"]);
    assert_eq!(ran.json()["tag"], "bar");
}

#[test]
fn a_branch_that_someone_moved_or_checked_out_is_not_run_over() {
    let toy = Toy::new().init();
    toy.attempt("6");
    let elsewhere = toy.git(&["commit-tree", "-m", "someone else", "main^{tree}"]);
    toy.git(&["update-ref", "refs/heads/ratchet/bar", &elsewhere]);
    toy.set("5");
    toy.exits(2, &["try", "-m", "x"]).says(&["ratchet/bar"]);
    toy.exits(2, &["run", "--trials", "1"]).says(&["ratchet/bar"]);
    assert_eq!(toy.rows().len(), 2);
    let toy = Toy::new().init();
    toy.attempt("6");
    toy.git(&["checkout", "-q", "-f", "ratchet/bar"]);
    toy.exits(2, &["run", "--trials", "1"]).says(&["ratchet/bar"]);
}

#[test]
fn a_task_with_profiles_needs_its_data() {
    let toy =
        Toy::and("[prepare]\ncommand = [\"sh\", \"-c\", \"echo no network >&2; exit 3\"]\ntimeout_s = 20\n");
    let cache = Toy::no_repository();
    let toy = toy.env("RATCHET_CACHE", cache.root().to_str().unwrap());
    toy.exits(4, &["run", "--trials", "1", "--profile", "full"])
        .says(&["--profile full", "--profile laptop"]);
    assert_eq!(toy.status()["tag"], serde_json::Value::Null, "no tag is tied to a profile that cannot run");
    assert_eq!(toy.git(&["branch", "--list", "ratchet/*"]), "");
    toy.exits(4, &["run", "--trials", "1", "--profile", "smoke"]).says(&["smoke", "exited with 3"]);
    // nothing was measured, so that the tag may try another profile
    toy.exits(4, &["run", "--trials", "1", "--profile", "laptop"]).says(&["laptop", "exited with 3"]);
    assert!(toy.rows().is_empty());
}
