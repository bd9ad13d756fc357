//! `docs/reference/files.md` against what a night leaves.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{source::root, toy::Toy};

/// What belongs to git, to a build or to a contestant: named, and not looked into.
const CLOSED: [&str; 3] = ["tags/TAG/worktree", "tags/TAG/models/NNNN", "tags/TAG/target"];

/// The paths that the page lists, and whether each is only sometimes there.
fn listed() -> Vec<(String, bool)> {
    let text = fs::read_to_string(root().join("docs/reference/files.md")).unwrap();
    let (_, table) = text.split_once("## In .ratchet\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').trim_end_matches('/').to_owned(), cells[2] == "sometimes")
    })
    .collect()
}

/// A path with its numbers and names as the page writes them.
fn written(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let part = |i: usize| match parts[i] {
        _ if i == 1 && parts[0] == "tags" => "TAG".to_owned(),
        part if part.len() >= 3 && part.chars().all(|c| c.is_ascii_digit()) => "N".repeat(part.len()),
        part => match part.rsplit_once('.') {
            Some((stem, end)) if stem.len() > 8 && stem.chars().all(|c| c.is_ascii_hexdigit()) => {
                format!("HASH.{end}")
            }
            _ => part.to_owned(),
        },
    };
    (0..parts.len()).map(part).collect::<Vec<_>>().join("/")
}

fn walk(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let name = written(&path);
        if entry.path().is_dir() && !CLOSED.contains(&name.as_str()) {
            walk(&entry.path(), &format!("{path}/"), found);
        } else {
            found.insert(name);
        }
    }
}

#[test]
fn each_file_that_a_night_leaves_is_on_the_page_and_each_on_the_page_is_left() {
    let toy = Toy::new();
    toy.exits(0, &["run", "--trials", "4", "--tag", "bar"]);
    toy.exits(0, &["sync"]);
    toy.attempt("-7.5");
    let mut found = BTreeSet::new();
    walk(&toy.path(".ratchet"), "", &mut found);
    let listed = listed();
    let covers = |entry: &str, path: &str| {
        entry == path || path.strip_prefix(entry).is_some_and(|rest| rest.starts_with('/'))
    };
    for path in &found {
        assert!(listed.iter().any(|(entry, _)| covers(entry, path)), "{path} is not on the page");
    }
    for (entry, sometimes) in &listed {
        let there = found.iter().any(|path| covers(entry, path));
        assert!(there || *sometimes, "{entry} is not left by a night; is it only there `sometimes`?");
    }
    assert!(toy.path("results.tsv").exists());
}
