//! Numbered folders of records: 001, 002, … A number that was given is not given again.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::{
    error::{Doing, Result},
    state::sync_folder,
};

/// Creates the folder after the last one in `parent`; its name, at least three digits, and its path.
pub(super) fn fresh(parent: &Path) -> Result<(String, PathBuf)> {
    fs::create_dir_all(parent).doing("create", parent)?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u64>().ok();
    let entries = fs::read_dir(parent).doing("list", parent)?;
    let mut next = entries.flatten().filter_map(number).max().map_or(1, |last| last.saturating_add(1));
    loop {
        let name = format!("{next:03}");
        let folder = parent.join(&name);
        match fs::create_dir(&folder) {
            Ok(()) => {
                sync_folder(parent)?; // a number must not come back after a power cut
                return Ok((name, folder));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists && next < u64::MAX => next += 1,
            Err(error) => return Err(error).doing("create", &folder),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_never_given_twice_and_other_names_are_no_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().join("a/b");
        let name = || fresh(&parent).unwrap().0;
        assert_eq!([name(), name()], ["001", "002"]);
        fs::remove_dir(parent.join("001")).unwrap();
        fs::create_dir(parent.join("draft")).unwrap();
        fs::write(parent.join("1200"), "").unwrap();
        assert_eq!(name(), "1201");
    }
}
