//! An attack: what it tries, the edit that it is, and how it may end.
//!
//! A file in `attacks/` says on its first line what the attack tries and on its second, after `ends: `, how it
//! may end. Then it replaces text:
//!
//! ```text
//! train/src/main.rs
//! <<<<
//! the old lines, exactly
//! ====
//! the new ones
//! >>>>
//! ```
//!
//! Without old lines the text is a new file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

/// One cheating contestant.
pub(crate) struct Attack {
    /// Its file's name.
    pub(crate) name: String,
    /// What it tries.
    pub(crate) aim: String,
    /// How it may end.
    pub(crate) ends: Vec<String>,
    edits: Vec<Edit>,
}

struct Edit {
    path: PathBuf,
    old: String,
    new: String,
}

/// What stood in a file before an attack; `None`: there was none.
pub(crate) type Before = Vec<(PathBuf, Option<String>)>;

impl Attack {
    /// Every attack of a folder, by name.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Attack>> {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        files.sort();
        files.iter().map(|path| Attack::read(path).with_context(|| path.display().to_string())).collect()
    }

    fn read(path: &Path) -> Result<Attack> {
        let text = fs::read_to_string(path)?;
        let mut lines = text.lines();
        let aim = lines.next().context("the first line says what it tries")?.to_owned();
        let ends =
            lines.next().and_then(|line| line.strip_prefix("ends: ")).context("the second line: ends: …")?;
        let ends = ends.split(", ").map(str::to_owned).collect();
        let mut edits = Vec::new();
        while let Some(path) = lines.next() {
            ensure!(lines.next() == Some("<<<<"), "{path} is followed by <<<<");
            let mut until = |end: &str| -> Result<String> {
                let mut text = String::new();
                loop {
                    match lines.next() {
                        Some(line) if line == end => return Ok(text),
                        Some(line) => text += &format!("{line}\n"),
                        None => bail!("{end} is missing"),
                    }
                }
            };
            let (old, new) = (until("====")?, until(">>>>")?);
            edits.push(Edit { path: path.into(), old, new });
        }
        ensure!(!edits.is_empty(), "it changes nothing");
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Attack { name, aim, ends, edits })
    }

    /// Edits the files of `root`, with `{name}` in new text replaced by what `places` says.
    pub(crate) fn apply(&self, root: &Path, places: &[(&str, &Path)]) -> Result<Before> {
        let mut before = Before::new();
        for edit in &self.edits {
            let path = root.join(&edit.path);
            let text = fs::read_to_string(&path).ok();
            let mut new = edit.new.clone();
            for (name, place) in places {
                new = new.replace(name, &place.to_string_lossy());
            }
            let edited = match &text {
                None if edit.old.is_empty() => new,
                Some(text) if !edit.old.is_empty() => {
                    let found = text.matches(&edit.old).count();
                    ensure!(
                        found == 1,
                        "{}: its old lines stand {found} times in {}",
                        self.name,
                        path.display()
                    );
                    text.replacen(&edit.old, &new, 1)
                }
                _ => bail!("{}: {} is there or not, as it should not be", self.name, path.display()),
            };
            before.push((path.clone(), text));
            fs::create_dir_all(path.parent().unwrap_or(root))?;
            fs::write(&path, edited)?;
        }
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oracle is the tree as it stands: an attack whose old lines are gone would attack nothing.
    #[test]
    fn every_attack_fits_the_contestant_as_it_is() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.join("../..");
        for attack in Attack::all(&here.join("attacks")).unwrap() {
            for Edit { path, old, .. } in &attack.edits {
                let text = fs::read_to_string(root.join(path)).unwrap_or_default();
                let found = if old.is_empty() { text.len() } else { text.matches(old).count() };
                let expected = usize::from(!old.is_empty());
                assert_eq!(found, expected, "{}: {}", attack.name, path.display());
            }
        }
    }
}
