//! A file that becomes a folder, or a folder a file: an edit like any other, in both directions.

use std::fs;

use crate::toy::Toy;

/// Scores the number in `cand/x.txt`, or in `cand/x.txt/y` where that is a folder.
const SCORE: &str = r#"f=cand/x.txt; [ -d $f ] && f=$f/y
awk '{ printf "{\"loss\": %.17g}\n", $1; exit }' $f
"#;

/// The names of what stands in a folder, sorted, folders with a slash.
fn listed(toy: &Toy, folder: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(toy.path(folder))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let slash = if entry.path().is_dir() { "/" } else { "" };
            entry.file_name().into_string().unwrap() + slash
        })
        .collect();
    names.sort();
    names
}

/// A repository whose one candidate is a file of this number.
fn file(x: &str) -> Toy {
    let toy = Toy::new();
    toy.write("score.sh", SCORE);
    toy.write("cand/x.txt", x);
    toy.commit("a file");
    toy
}

/// The same with a folder.
fn folder(x: &str) -> Toy {
    let toy = file(x);
    to_folder(&toy, x);
    toy.write("cand/x.txt/z", "more");
    toy.commit("a folder");
    toy
}

fn to_folder(toy: &Toy, x: &str) {
    fs::remove_file(toy.path("cand/x.txt")).unwrap();
    toy.write("cand/x.txt/y", x);
}

fn to_file(toy: &Toy, x: &str) {
    fs::remove_dir_all(toy.path("cand/x.txt")).unwrap();
    toy.write("cand/x.txt", x);
}

#[track_caller]
fn tried(toy: &Toy, staged: bool, status: &str) {
    if staged {
        toy.git(&["add", "-A", "cand"]);
    }
    let line = toy.exits(0, &["try", "-m", "swap", "--json"]).json();
    assert_eq!(line["status"], status, "{line}");
}

#[test]
fn a_file_that_becomes_a_folder_is_tried_and_the_files_follow_the_champion() {
    for staged in [false, true] {
        let toy = file("5").init();
        toy.write("notes/mine", "untracked");
        to_folder(&toy, "6");
        tried(&toy, staged, "discard");
        assert_eq!((listed(&toy, "cand"), toy.read("cand/x.txt")), (vec!["x.txt".into()], "5".into()));
        to_folder(&toy, "4");
        tried(&toy, staged, "keep");
        assert_eq!((listed(&toy, "cand/x.txt"), toy.read("cand/x.txt/y")), (vec!["y".into()], "4".into()));
        assert_eq!(toy.git(&["ls-tree", "-r", "--name-only", "ratchet/bar", "cand"]), "cand/x.txt/y");
        assert_eq!(toy.read("notes/mine"), "untracked");
    }
}

#[test]
fn a_folder_that_becomes_a_file_is_tried_and_the_files_follow_the_champion() {
    for staged in [false, true] {
        let toy = folder("5").init();
        to_file(&toy, "6");
        tried(&toy, staged, "discard");
        assert_eq!(listed(&toy, "cand/x.txt"), ["y", "z"]);
        assert_eq!((toy.read("cand/x.txt/y"), toy.read("cand/x.txt/z")), ("5".into(), "more".into()));
        to_file(&toy, "4");
        tried(&toy, staged, "keep");
        assert_eq!((listed(&toy, "cand"), toy.read("cand/x.txt")), (vec!["x.txt".into()], "4".into()));
        assert_eq!(toy.git(&["ls-tree", "-r", "--name-only", "ratchet/bar", "cand"]), "cand/x.txt");
    }
}

#[test]
fn an_ignored_file_in_a_folder_that_must_go_is_left_where_it_is() {
    let toy = file("5").init();
    to_folder(&toy, "6");
    toy.write("cand/x.txt/mine.pid", "17");
    toy.exits(0, &["try", "-m", "swap"]).says(&["cand/x.txt", "left as it is"]);
    assert_eq!(listed(&toy, "cand/x.txt"), ["mine.pid"]);
}

#[test]
fn an_agent_may_swap_files_and_folders() {
    let toy = file("9");
    let task = toy.read("ratchet.toml");
    toy.write(
        "ratchet.toml",
        &format!(
            "{task}\n[proposer]\nkind = \"agent\"\n[proposer.agent]\ncommand = [\"sh\", \"agent.sh\"]\n"
        ),
    );
    // lowers the number by one, and swaps each time
    toy.write(
        "agent.sh",
        "if [ -d cand/x.txt ]; then x=$(cat cand/x.txt/y); rm -r cand/x.txt; echo $((x - 1)) > cand/x.txt\n\
         else x=$(cat cand/x.txt); rm cand/x.txt; mkdir cand/x.txt; echo $((x - 1)) > cand/x.txt/y; fi\n",
    );
    toy.commit("an agent");
    toy.exits(0, &["run", "--trials", "4", "--tag", "bar"]);
    assert_eq!(toy.column("loss"), ["9.000000", "8.000000", "7.000000", "6.000000"]);
    assert_eq!(toy.read("cand/x.txt"), "9", "the user's files are the user's");
    toy.exits(0, &["sync", "--tag", "bar"]);
    assert_eq!(toy.read("cand/x.txt/y"), "6\n");
}
