//! `.ratchet/mechanisms/`: every mechanism there is, with what a person wishes of it.
//!
//! A mechanism is a folder with a `mechanism.rhai`; a research session fills one, a person may put one there. The
//! built-in ones have no folder. What a person switches on or off stands in `wishes.json`, which a run reads before
//! each trial, so that it needs no lock.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use mechanism::BUILTIN;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Doing, Error, Result},
    plain_file,
    state::{State, write_atomic},
};

/// The script in a mechanism's folder.
pub(crate) const SCRIPT: &str = "mechanism.rhai";
/// Bytes of a script that are read; the host takes fewer.
const LARGEST: usize = 1 << 20;

/// What a person wishes of one mechanism.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wish {
    /// Whether it is to be used.
    pub(crate) on: bool,
    /// When it was said, RFC 3339 in UTC.
    pub(crate) at: String,
}

/// The folder of all mechanisms.
#[derive(Clone, Debug)]
pub(crate) struct Library(PathBuf);

impl Library {
    /// That of a root; creates nothing.
    pub(crate) fn of(state: &State) -> Self {
        Self(state.dir().join("mechanisms"))
    }

    /// Its folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Everything that can be switched on: the built-in ones, then those of folders, sorted.
    pub(crate) fn ids(&self) -> Vec<String> {
        let mut own: Vec<String> = fs::read_dir(&self.0)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().join(SCRIPT).is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|id| is_id(id) && builtin(id).is_none())
            .collect();
        own.sort();
        BUILTIN.iter().map(|builtin| builtin.name.to_owned()).chain(own).collect()
    }

    /// The script of one. Exit code 2 where there is none.
    pub(crate) fn script(&self, id: &str) -> Result<String> {
        if let Some(script) = builtin(id) {
            return Ok(script.to_owned());
        }
        let path = self.0.join(id).join(SCRIPT);
        let none = || {
            Error::usage(format!("there is no mechanism {}", crate::runlog::plain(id, 80)))
                .hint("`ratchet mechanisms` lists them")
        };
        if !is_id(id) {
            return Err(none());
        }
        read_script(&path).map_err(|error| match path.exists() {
            true => error,
            false => none(),
        })
    }

    /// What a person wishes. Exit code 2 for a file that cannot be read.
    pub(crate) fn wishes(&self) -> Result<BTreeMap<String, Wish>> {
        let path = self.wishes_path();
        match plain_file::read(&path) {
            Ok(bytes) => {
                let mut wishes: BTreeMap<String, Wish> = serde_json::from_slice(&bytes).map_err(|error| {
                    Error::usage("not what it should be")
                        .at(&path)
                        .because(error)
                        .hint("remove it, and switch mechanisms on again with `ratchet mechanisms enable`")
                })?;
                wishes.retain(|id, _| is_id(id)); // what nobody can be called
                Ok(wishes)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error).doing("read", &path),
        }
    }

    /// Notes what a person wishes of one mechanism.
    pub(crate) fn wish(&self, id: &str, wish: Wish) -> Result<()> {
        let mut wishes = self.wishes()?;
        wishes.insert(id.to_owned(), wish);
        fs::create_dir_all(&self.0).doing("create", &self.0)?;
        let json = serde_json::to_vec_pretty(&wishes).unwrap_or_default(); // strings: cannot fail
        write_atomic(&self.wishes_path(), &json)
    }

    fn wishes_path(&self) -> PathBuf {
        self.0.join("wishes.json")
    }
}

/// A script in a file. Exit code 2 for what is no text, or too long to be one.
pub(crate) fn read_script(path: &Path) -> Result<String> {
    let text = plain_file::read_to_string(path)
        .map_err(|error| Error::usage("the script cannot be read").at(path).because(error))?;
    match text.len() <= LARGEST {
        true => Ok(text),
        false => Err(Error::usage("too long for a mechanism").at(path)),
    }
}

/// The script of a built-in mechanism.
fn builtin(id: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|builtin| builtin.name == id).map(|builtin| builtin.script)
}

/// Whether it may be a folder's name here.
fn is_id(id: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (1..=64).contains(&id.len()) && id.chars().all(letter)
}
