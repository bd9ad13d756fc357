//! What must hold whenever no driver runs, read from the files themselves and from git.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use git2::{ObjectType, Oid, Repository};
use serde_json::Value;

use crate::toy::Toy;

const JOURNAL: &str = ".ratchet/tags/bar/journal.jsonl";

/// The journal's events; a torn last line is none.
pub(super) fn events(toy: &Toy) -> Vec<Value> {
    let text = fs::read_to_string(toy.path(JOURNAL)).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Status and x of every closed trial.
pub(super) fn trials(toy: &Toy) -> Vec<(String, String)> {
    let repo = Repository::open(toy.root()).unwrap();
    closed(&events(toy))
        .into_iter()
        .map(|event| {
            let files = files(&repo, event["commit"].as_str().unwrap());
            let x = x_of(&files[Path::new("cand/x.txt")]);
            (event["status"].as_str().unwrap().to_owned(), x)
        })
        .collect()
}

fn x_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).split(' ').nth(2).unwrap_or_default().to_owned()
}

fn closed(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "closed").collect()
}

/// Every file of a commit.
fn files(repo: &Repository, commit: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let tree = repo.find_commit(Oid::from_str(commit).unwrap()).unwrap().tree().unwrap();
    tree.walk(git2::TreeWalkMode::PreOrder, |folder, entry| {
        if entry.kind() == Some(ObjectType::Blob) {
            let path = Path::new(folder).join(entry.name().unwrap());
            files.insert(path, repo.find_blob(entry.id()).unwrap().content().to_vec());
        }
        git2::TreeWalkResult::Ok
    })
    .unwrap();
    files
}

/// Every file below a folder, `.git` aside.
fn on_disk(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut queue = vec![root.to_path_buf()];
    while let Some(folder) = queue.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.file_name() != ".git") {
            if entry.file_type().unwrap().is_dir() {
                queue.push(entry.path());
            } else {
                let path = entry.path().strip_prefix(root).unwrap().to_path_buf();
                files.insert(path, fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

/// Checks a repository with a tag `bar` that began as `before`. `follows`: the checkout's editable files are
/// the champion's; else they are as they were.
pub(super) fn check(toy: &Toy, before: &Toy, follows: bool) {
    let events = events(toy);
    let journal = fs::read(toy.path(JOURNAL)).unwrap();
    assert!(journal.ends_with(b"\n"), "the journal ends in a whole line");
    let old = fs::read(before.path(JOURNAL)).unwrap_or_default();
    let whole = old.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    assert!(journal.starts_with(&old[..whole]), "the journal is only ever appended to");
    assert_eq!(events[0]["event"], "init");

    let closed = closed(&events);
    let rows = toy.rows();
    assert_eq!(rows.len(), closed.len(), "one row a closed trial: {rows:?}");
    for (number, (row, event)) in rows.iter().zip(&closed).enumerate() {
        let commit = event["commit"].as_str().unwrap();
        assert_eq!(event["trial"], number + 1, "no trial is lost or doubled");
        assert_eq!((&row["trial"], &row["commit"]), (&(number + 1).to_string(), &commit[..7].to_owned()));
        assert_eq!(row["status"], event["status"]);
        assert_eq!(row["description"], event["proposal"]["description"]);
        let value = value(event, &events).map_or("0.000000".to_owned(), |value| format!("{value:.6}"));
        assert_eq!(row["loss"], value, "trial {}", number + 1);
    }

    let repo = Repository::open(toy.root()).unwrap();
    let base = events.iter().rfind(|event| event["event"] == "init").unwrap()["base"].as_str().unwrap();
    let keeps: Vec<&&Value> = closed.iter().filter(|event| event["status"] == "keep").collect();
    let champion = keeps.last().map_or(base, |event| event["commit"].as_str().unwrap());
    let stands = |name: &str| repo.refname_to_id(name).map(|id| id.to_string()).unwrap_or_default();
    assert_eq!(stands("refs/heads/ratchet/bar"), champion, "the branch is the last keep's");
    let its_files = files(&repo, champion);
    let worktree = toy.path(".ratchet/tags/bar/worktree");
    assert!(on_disk(&worktree) == its_files, "the worktree's bytes are the champion's");
    let linked = Repository::open(&worktree).unwrap();
    let head = linked.head().unwrap();
    assert_eq!((head.name().unwrap(), head.target().unwrap().to_string().as_str()), ("HEAD", champion));

    for event in &closed {
        let (number, commit) = (event["trial"].as_u64().unwrap(), event["commit"].as_str().unwrap());
        assert_eq!(stands(&format!("refs/ratchet/bar/trials/{number:04}")), commit, "trial {number}");
        let verdict = fs::read(toy.path(&format!(".ratchet/tags/bar/trials/{number:04}/verdict.json")));
        let verdict: Value = serde_json::from_slice(&verdict.unwrap()).expect("a whole verdict.json");
        assert_eq!(verdict["reason"], event["verdict"]["reason"]);
    }
    for event in keeps {
        let (number, commit) = (event["trial"].as_u64().unwrap(), event["commit"].as_str().unwrap());
        let model =
            fs::read(toy.path(&format!(".ratchet/tags/bar/models/{number:04}/out/model.safetensors")));
        assert_eq!(model.expect("a keep's model"), files(&repo, commit)[Path::new("cand/x.txt")]);
    }

    // what is the user's
    let was = Repository::open(before.root()).unwrap();
    assert_eq!(repo.head().unwrap().name().unwrap(), "refs/heads/main");
    assert_eq!(repo.head().unwrap().target(), was.head().unwrap().target());
    let index = |repo: &Repository| -> Vec<_> {
        repo.index().unwrap().iter().map(|entry| (entry.path, entry.id, entry.mode)).collect()
    };
    assert!(index(&repo) == index(&was), "the user's index");
    let mut now = on_disk(toy.root());
    now.retain(|path, _| !path.starts_with(".ratchet") && path != Path::new("results.tsv"));
    let mut wanted = match follows {
        true => its_files,
        false => on_disk(before.root()),
    };
    wanted.retain(|path, _| !path.starts_with(".ratchet") && path != Path::new("results.tsv"));
    assert!(now == wanted, "the checkout: {:?}", now.get(Path::new("cand/x.txt")).map(|x| x_of(x)));

    let locks: Vec<PathBuf> = on_disk(&toy.path(".git"))
        .into_keys()
        .filter(|path| path.extension().is_some_and(|e| e == "lock"))
        .collect();
    assert!(locks.is_empty(), "{locks:?}");
    assert_eq!(strays(toy), 0, "a process is left");
}

/// The mean of a trial's runs: those it was closed with, and later ones that count.
fn value(closed: &Value, events: &[Value]) -> Option<f64> {
    let mut values: Vec<f64> = closed["values"].as_array()?.iter().filter_map(Value::as_f64).collect();
    let later = events.iter().filter(|event| {
        event["event"] == "replicated" && event["trial"] == closed["trial"] && event["counts"] == true
    });
    values.extend(later.filter_map(|event| event["value"].as_f64()));
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Processes that carry the mark of this repository's trials.
fn strays(toy: &Toy) -> usize {
    let mark = format!("RATCHET_TRIAL={}", toy.path(".ratchet").display()).into_bytes();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let marked = processes.filter(|entry| {
        fs::read(entry.path().join("environ"))
            .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == mark))
    });
    marked.count()
}

/// What holds even before the next start: the table and the branch never run ahead of the journal, and no ref
/// names what is not there.
pub(super) fn in_order(toy: &Toy) {
    let events = events(toy);
    let closed = closed(&events);
    let table = fs::read_to_string(toy.path("results.tsv")).unwrap_or_default();
    let rows = table.lines().skip(1).count();
    assert!(rows <= closed.len(), "{rows} rows, but the journal knows {} trials", closed.len());
    let repo = Repository::open(toy.root()).unwrap();
    let mut known: Vec<&str> = closed.iter().filter_map(|event| event["commit"].as_str()).collect();
    known.extend(
        events.iter().filter(|event| event["event"] == "init").filter_map(|init| init["base"].as_str()),
    );
    for reference in repo.references().unwrap().flatten() {
        let (name, commit) = (reference.name().unwrap(), reference.target().unwrap().to_string());
        assert!(!files(&repo, &commit).is_empty(), "{name}");
        if name == "refs/heads/ratchet/bar" && !events.is_empty() {
            assert!(known.contains(&commit.as_str()), "the branch is ahead of the journal");
        }
    }
}
