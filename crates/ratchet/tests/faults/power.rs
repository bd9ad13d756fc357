//! A power cut at every step: a model of the disk that is fed by the driver's own syncs, and what is left of
//! it after the cut.
//!
//! The model is harsher than common file systems: a sync makes durable the bytes of one file, or the names in
//! one folder, and nothing else.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    fs::{self, File},
    io::Read,
    os::unix::fs::{FileTypeExt, MetadataExt, symlink},
    path::{Path, PathBuf},
};

use super::{
    scenario::{Scenario, run},
    sound,
    table::Table,
    tracer::{Call, Fate, Kind, Watch},
};
use crate::toy::Toy;

/// What a cut leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing.
    Nothing,
    /// Every name, with no bytes behind those of new files.
    Names,
}

/// What stands under a name.
#[derive(Clone)]
enum Node {
    File(u64),
    Folder(u64),
    Link(PathBuf),
}

/// What is durable, by inode. Every inode is held open, so that its number is not given to another.
#[derive(Default)]
struct Disk {
    files: HashMap<u64, Vec<u8>>,
    folders: HashMap<u64, BTreeMap<OsString, Node>>,
    held: HashMap<u64, File>,
}

impl Disk {
    /// A folder and all below it, durable as it stands.
    fn settled(&mut self, folder: &Path) {
        self.sync(folder);
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => self.settled(&entry.path()),
                kind if kind.is_file() => self.sync(&entry.path()),
                _ => {}
            }
        }
    }

    /// What a sync of this file or folder makes durable.
    fn sync(&mut self, path: &Path) {
        let mut file = File::open(path).unwrap();
        let meta = file.metadata().unwrap();
        if meta.is_dir() {
            let names = fs::read_dir(path).unwrap().flatten();
            let names =
                names.filter_map(|entry| Some((entry.file_name(), self.node(&entry.path())?))).collect();
            self.folders.insert(meta.ino(), names);
        } else {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            self.files.insert(meta.ino(), bytes);
        }
        self.held.entry(meta.ino()).or_insert(file);
    }

    fn node(&mut self, path: &Path) -> Option<Node> {
        let meta = fs::symlink_metadata(path).ok()?;
        let kind = meta.file_type();
        if kind.is_symlink() {
            return Some(Node::Link(fs::read_link(path).unwrap()));
        }
        if kind.is_fifo() || kind.is_socket() {
            return None;
        }
        self.held.entry(meta.ino()).or_insert_with(|| File::open(path).unwrap());
        Some(if kind.is_dir() { Node::Folder(meta.ino()) } else { Node::File(meta.ino()) })
    }

    /// Writes down what a cut leaves of `root`.
    fn write(&mut self, left: Left, root: &Path, to: &Path) {
        let names = match left {
            Left::Nothing => {
                let inode = fs::metadata(root).unwrap().ino();
                self.folders[&inode].clone()
            }
            Left::Names => {
                let names = fs::read_dir(root).unwrap().flatten();
                names.filter_map(|entry| Some((entry.file_name(), self.node(&entry.path())?))).collect()
            }
        };
        self.write_names(left, &names, root, to);
    }

    fn write_names(&mut self, left: Left, names: &BTreeMap<OsString, Node>, from: &Path, to: &Path) {
        for (name, node) in names {
            let (from, to) = (from.join(name), to.join(name));
            match node {
                Node::Link(target) => symlink(target, to).unwrap(),
                Node::File(inode) => {
                    fs::write(to, self.files.get(inode).map_or(&[][..], Vec::as_slice)).unwrap();
                }
                Node::Folder(inode) => {
                    fs::create_dir(&to).unwrap();
                    if left == Left::Names {
                        self.write(left, &from, &to);
                    } else if let Some(names) = self.folders.get(inode).cloned() {
                        self.write_names(left, &names, &from, &to);
                    }
                }
            }
        }
    }
}

/// Cuts the power before every call that finds the disk changed.
struct Cutter<'a> {
    root: &'a Path,
    disk: Disk,
    at: usize,
    changed: [bool; 2],
    cuts: Vec<Cut>,
    unsynced: Vec<String>,
}

/// What one cut left.
struct Cut {
    left: Left,
    at: usize,
    before: String,
    toy: Toy,
}

impl Watch for Cutter<'_> {
    fn before(&mut self, call: &Call) -> Fate {
        let path = call.path.strip_prefix(self.root).unwrap().display().to_string();
        for (changed, left) in self.changed.iter_mut().zip([Left::Nothing, Left::Names]) {
            if std::mem::take(changed) {
                let toy = Toy::no_repository();
                self.disk.write(left, self.root, toy.root());
                toy.moved_from(self.root);
                self.cuts.push(Cut { left, at: self.at, before: format!("{:?} {path}", call.kind), toy });
            }
        }
        if let (Kind::Rename, Some(from)) = (call.kind, &call.from)
            && let Ok(meta) = fs::metadata(from)
            && meta.is_file()
            && !path.ends_with("/index") // the worktree's, which is made again where it cannot be read
            && !path.ends_with("live.json") // a glance at a run, which no power cut leaves
            && self.disk.files.get(&meta.ino()) != Some(&fs::read(from).unwrap())
        {
            self.unsynced.push(path);
        }
        self.at += 1;
        Fate::Made
    }

    fn after(&mut self, call: &Call) {
        match (call.kind, &call.open) {
            (Kind::Sync, Some(open)) => {
                self.disk.sync(open);
                self.changed = [true, true];
            }
            (Kind::Create | Kind::Rename | Kind::Remove, _) => self.changed[1] = true,
            _ => {}
        }
    }
}

/// Cuts the power at every step of a scenario, and starts the driver on what is left.
pub(super) fn cut(scenario: &Scenario, table: &mut Table) {
    let toy = scenario.before.copy();
    let mut disk = Disk::default();
    disk.settled(toy.root());
    let mut cutter = Cutter {
        root: toy.root(),
        disk,
        at: 0,
        changed: [false, false],
        cuts: Vec::new(),
        unsynced: Vec::new(),
    };
    let (code, said) = run(&toy, scenario, &mut cutter);
    assert_eq!(code, Some(0), "{said}");
    assert!(cutter.unsynced.is_empty(), "renamed before its bytes were synced: {:?}", cutter.unsynced);
    let name = |cut: &Cut| {
        let kind = match cut.left {
            Left::Nothing => "power cut: all that was not synced is gone",
            Left::Names => "power cut: new names, but no bytes in them",
        };
        (kind, format!("{}, before call {} ({})", scenario.name, cut.at, cut.before))
    };
    table.each(&cutter.cuts, name, |cut| {
        sound::in_order(&cut.toy);
        scenario.resume(&cut.toy);
        scenario.check(&cut.toy);
    });
}
