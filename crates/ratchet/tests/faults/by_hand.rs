//! What people, other programs and damaged disks do to the files between two starts.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{scenario, sound, table::Table};
use crate::toy::{Ran, Toy};

/// One piece of damage, and what should come of it.
struct Damage {
    kind: &'static str,
    name: String,
    does: Box<dyn Fn(&Toy) + Sync>,
    comes: Comes,
}

/// What the next start makes of damage.
#[derive(Clone, Copy)]
enum Comes {
    /// It works, and all is as if nothing had been.
    Repaired,
    /// It names this and exits with this code, and has changed nothing; once the remedy is applied, it works.
    Refused(i32, &'static str, fn(&Toy)),
}

/// The next start; the tag is the current one.
const TRY: &[&str] = &["try", "-m", "the next", "--json"];
const JOURNAL: &str = ".ratchet/tags/bar/journal.jsonl";
const CHECKOUT: &str = ".ratchet/tags/bar/checkout.json";
const WORKTREE: &str = ".ratchet/tags/bar/worktree";
const RECORD: &str = ".git/worktrees/ratchet-bar";

/// Does all that to a tag with a baseline, a keep and a discard.
pub(super) fn damage(table: &mut Table) {
    let before = scenario::begun(1);
    scenario::write_x(&before, "9");
    before.exits(0, scenario::TRY);
    let journal = before.read(JOURNAL);
    let name = |damage: &Damage| (damage.kind, damage.name.clone());
    table.each(&all(&journal), name, |damage| {
        let toy = before.copy();
        (damage.does)(&toy);
        scenario::write_x(&toy, "5");
        if let Comes::Refused(code, named, remedy) = damage.comes {
            let before = contents(toy.root());
            let ran = toy.ratchet(TRY);
            assert_eq!(ran.code, Some(code), "{}", ran.stderr);
            one_line(&ran, named);
            let (old, new) = (before.iter().collect::<BTreeSet<_>>(), contents(toy.root()));
            let new = new.iter().collect();
            let changed: Vec<&PathBuf> = old.symmetric_difference(&new).map(|(path, _)| path).collect();
            assert!(changed.is_empty(), "changed: {changed:?}");
            remedy(&toy);
            scenario::write_x(&toy, "5");
        }
        let was = toy.copy();
        let ran = toy.ratchet(TRY);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let trials = sound::trials(&toy);
        let kept = |x: &str| ("keep".to_owned(), x.to_owned());
        assert_eq!((&trials[..2], trials.last()), (&[kept("10"), kept("6")][..], Some(&kept("5"))));
        sound::check(&toy, &was, true);
    });
    let odd = ["a FIFO", "a folder"];
    let name = |odd: &&'static str| ("program.md of a run is no file", (*odd).to_owned());
    table.each(&odd, name, |odd| {
        let toy = before.copy();
        remove(&toy, "program.md");
        put(odd, &toy.path("program.md"));
        let ran = toy.ratchet(&["run", "--trials", "1"]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        one_line(&ran, "program.md");
        remove(&toy, "program.md");
        toy.exits(0, &["run", "--trials", "1"]);
    });
    during_a_trial(table);
}

/// What disappears while the driver is at work.
fn during_a_trial(table: &mut Table) {
    let lost = [WORKTREE, JOURNAL, RECORD, ".ratchet/tags/bar", ".ratchet"];
    table.each(
        &lost,
        |lost| ("removed during a trial", (*lost).to_owned()),
        |lost| {
            let toy = Toy::new();
            toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
            toy.set("gate");
            let driver = toy.at_the_gate(&["try", "-m", "slow"]);
            remove(&toy, lost);
            toy.open_the_gate();
            let ran = driver.ended("try");
            assert!(matches!(ran.code, Some(0..=2)), "{:?} {}", ran.code, ran.stderr);
            if ran.code != Some(0) {
                one_line(&ran, "");
            }
            toy.set("3");
            // the branch of a tag whose journal is gone is in the way of its name
            let tag = if toy.path(JOURNAL).exists() { "bar" } else { "other" };
            let line = toy.exits(0, &["try", "-m", "next", "--json", "--tag", tag]).json();
            assert_eq!(line["status"], "keep");
            assert_eq!(line["trial"], toy.rows().len());
        },
    );
}

/// Every kind of damage.
fn all(journal: &str) -> Vec<Damage> {
    use Comes::{Refused, Repaired};
    let mut all = Vec::new();
    let mut add = |kind, name: &str, comes, does: Box<dyn Fn(&Toy) + Sync>| {
        all.push(Damage { kind, name: name.to_owned(), does, comes });
    };

    // the last two lines are trial 3's `opened` and `closed`
    let ends: Vec<usize> = journal.match_indices('\n').map(|(at, _)| at + 1).collect();
    let kind = "journal cut off within its last two lines";
    for cut in (ends[ends.len() - 3]..journal.len()).step_by(7) {
        let part = journal[..cut].to_owned();
        add(kind, &format!("after byte {cut}"), Repaired, Box::new(move |toy| toy.write(JOURNAL, &part)));
    }
    let kind = "journal damaged before its end";
    for (line, end) in ends[..ends.len() - 1].iter().enumerate() {
        let (text, at) = (journal.to_owned(), end - 2);
        let damaged = format!("{}#{}", &text[..at], &text[at + 1..]);
        let does = move |toy: &Toy| {
            toy.write("whole", &text);
            toy.write(JOURNAL, &damaged);
        };
        let mend = |toy: &Toy| fs::rename(toy.path("whole"), toy.path(JOURNAL)).unwrap();
        add(
            kind,
            &format!("line {}", line + 1),
            Refused(1, "of the journal is damaged", mend),
            Box::new(does),
        );
    }

    let kind = "results.tsv lost, edited, or no file";
    add(kind, "removed", Repaired, Box::new(|toy| remove(toy, "results.tsv")));
    add(
        kind,
        "edited",
        Repaired,
        Box::new(|toy| {
            toy.write("results.tsv", &toy.read("results.tsv").replace("keep", "crash"));
        }),
    );
    add(kind, "read-only", Repaired, Box::new(|toy| mode(toy, "results.tsv", 0o444)));
    add(
        kind,
        "a FIFO",
        Repaired,
        Box::new(|toy| {
            remove(toy, "results.tsv");
            put("a FIFO", &toy.path("results.tsv"));
        }),
    );
    add(
        kind,
        "a folder",
        Refused(1, "results.tsv", |toy| remove(toy, "results.tsv")),
        Box::new(|toy| {
            remove(toy, "results.tsv");
            fs::create_dir(toy.path("results.tsv")).unwrap();
        }),
    );

    let kind = "worktree or its git record damaged";
    add(kind, "worktree removed", Repaired, Box::new(|toy| remove(toy, WORKTREE)));
    add(kind, "worktree a file", Repaired, Box::new(|toy| replace(toy, WORKTREE, "no folder")));
    add(kind, "record removed", Repaired, Box::new(|toy| remove(toy, RECORD)));
    add(
        kind,
        "pruned by git",
        Repaired,
        Box::new(|toy| {
            remove(toy, WORKTREE);
            toy.git(&["worktree", "prune"]);
        }),
    );
    add(
        kind,
        ".git of the worktree removed",
        Repaired,
        Box::new(|toy| remove(toy, &format!("{WORKTREE}/.git"))),
    );
    add(
        kind,
        "a file of it edited",
        Repaired,
        Box::new(|toy| toy.write(&format!("{WORKTREE}/score.sh"), "echo 0")),
    );
    for (file, text) in [
        ("index", "no index"),
        ("index", ""),
        ("HEAD", ""),
        ("HEAD", "ref: refs/heads/main\n"),
        ("gitdir", ""),
        ("commondir", ""),
        ("index.lock", ""),
        ("HEAD.lock", ""),
    ] {
        let path = format!("{RECORD}/{file}");
        add(kind, &format!("{file} is {text:?}"), Repaired, Box::new(move |toy| toy.write(&path, text)));
    }

    let kind = "the tag's branch moved, deleted or checked out";
    fn put_back(toy: &Toy) {
        let keep = toy.git(&["rev-parse", "refs/ratchet/bar/trials/0002"]);
        toy.git(&["branch", "-qf", "ratchet/bar", &keep]);
    }
    const REMEDY: &str = "git branch -f ratchet/bar";
    add(
        kind,
        "moved back",
        Refused(2, REMEDY, put_back),
        Box::new(|toy| {
            toy.git(&["branch", "-qf", "ratchet/bar", "main"]);
        }),
    );
    add(
        kind,
        "deleted",
        Refused(2, REMEDY, put_back),
        Box::new(|toy| {
            toy.git(&["branch", "-qD", "ratchet/bar"]);
        }),
    );
    add(
        kind,
        "checked out",
        Refused(2, "git switch", |toy| at(toy, "main")),
        Box::new(|toy| {
            at(toy, "ratchet/bar");
        }),
    );
    add(
        kind,
        "locked by a killed driver",
        Repaired,
        Box::new(|toy| {
            toy.write(".git/refs/heads/ratchet/bar.lock", "");
            toy.write(".git/refs/ratchet/bar/trials/0004.lock", "");
        }),
    );

    let kind = "clock set back: times in the future";
    add(
        kind,
        "in the journal",
        Repaired,
        Box::new(|toy| {
            let text = toy.read(JOURNAL);
            let year = text.split("\"ended\":\"").nth(1).unwrap()[..4].to_owned();
            toy.write(JOURNAL, &text.replace(&format!("\"ended\":\"{year}"), "\"ended\":\"2099"));
        }),
    );
    add(
        kind,
        "of every file",
        Repaired,
        Box::new(|toy| {
            let later = SystemTime::now() + Duration::from_secs(1 << 28);
            for path in contents(toy.root()).into_iter().map(|(path, _)| path).filter(|path| path.is_file()) {
                File::open(path).unwrap().set_modified(later).unwrap();
            }
        }),
    );

    let kind = "a file that the driver reads is none";
    for (path, code) in [("ratchet.toml", 2), (".ratchet/current", 1), (JOURNAL, 1), (CHECKOUT, 1)] {
        for odd in ["a FIFO", "a folder"] {
            let does = move |toy: &Toy| {
                fs::rename(toy.path(path), toy.path("set-aside")).unwrap();
                put(odd, &toy.path(path));
                toy.write("set-aside-from", path);
            };
            let mend = |toy: &Toy| {
                let path = toy.read("set-aside-from");
                remove(toy, &path);
                remove(toy, "set-aside-from");
                fs::rename(toy.path("set-aside"), toy.path(&path)).unwrap();
            };
            let name = path.rsplit('/').next().unwrap_or(path);
            add(kind, &format!("{path} is {odd}"), Refused(code, name, mend), Box::new(does));
        }
    }
    let mend = |toy: &Toy| toy.write(".ratchet/current", "bar\n");
    let does = |toy: &Toy| toy.write(".ratchet/current", "gone\n");
    add("the current tag is gone", "by name", Refused(2, "name a tag with --tag", mend), Box::new(does));
    all
}

/// Has another branch checked out, with the files as they are.
fn at(toy: &Toy, branch: &str) {
    toy.git(&["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")]);
}

fn remove(toy: &Toy, path: &str) {
    let path = toy.path(path);
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
}

fn replace(toy: &Toy, path: &str, text: &str) {
    remove(toy, path);
    toy.write(path, text);
}

/// Puts what is no plain file somewhere.
fn put(odd: &str, path: &Path) {
    match odd {
        "a FIFO" => mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
        _ => fs::create_dir(path).unwrap(),
    }
}

fn mode(toy: &Toy, path: &str, mode: u32) {
    fs::set_permissions(toy.path(path), fs::Permissions::from_mode(mode)).unwrap();
}

/// Every path below `root`, with the bytes of plain files. What each start may write anew is left out: the
/// lock, and git's record of the worktree.
fn contents(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut queue = vec![root.to_path_buf()];
    while let Some(folder) = queue.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (kind, path) = (entry.file_type().unwrap(), entry.path());
            if kind.is_dir() {
                queue.push(path.clone());
            }
            if path != root.join(".ratchet/lock") && !path.starts_with(root.join(".git/worktrees")) {
                let bytes = if kind.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

/// One line says what is wrong, and names this.
fn one_line(ran: &Ran, named: &str) {
    let errors: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("ratchet: ")).collect();
    assert!(errors.len() == 1 && errors[0].contains(named), "{}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
}
