//! Reads files that others may put where the driver looks: plain ones of a bounded size, and nothing else.
//!
//! A FIFO in the place of `program.md` would otherwise block the night, and a device fill the memory.

use std::{
    fs::{File, OpenOptions},
    io::{Error, ErrorKind, Read, Result},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;

/// The largest file that people write by hand or the driver writes for them, bytes.
pub const LARGEST: u64 = 64 << 20;

/// Opens a plain file, also by way of a link; fails on anything else, and blocks on nothing.
pub fn open(path: &Path) -> Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32; // else opening a FIFO waits for its writer
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Error::new(ErrorKind::InvalidInput, "not a plain file")),
    }
}

/// The bytes of a plain file of at most [`LARGEST`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LARGEST {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("larger than {} MB", LARGEST >> 20))),
        false => Ok(bytes),
    }
}

/// The same of whatever size: what the driver writes grows with its nights.
pub(crate) fn read_whole(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A small file as text.
pub fn read_to_string(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|_| Error::new(ErrorKind::InvalidData, "not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_no_small_plain_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("plain"), "text").unwrap();
        std::os::unix::fs::symlink(path("plain"), path("link")).unwrap();
        File::create(path("huge")).unwrap().set_len(LARGEST + 1).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        assert_eq!(read_to_string(&path("link")).unwrap(), "text");
        for odd in [path("fifo"), dir.path().to_path_buf(), "/dev/zero".into()] {
            assert_eq!(read(&odd).unwrap_err().kind(), ErrorKind::InvalidInput, "{}", odd.display());
        }
        assert_eq!(read(&path("huge")).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read(&path("missing")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
