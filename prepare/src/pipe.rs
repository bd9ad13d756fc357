//! The scorer's standard streams, taken before any contestant code runs.

use std::fs::File;
use std::io::{self, BufReader};

use crate::exam::{self, Answers, Header};
use crate::rows::Rows;
use crate::vouch::{VOUCH_ENV, Witness};

/// Takes the exam from standard input and a private copy of standard output for the answers.
///
/// The private pipe is closed on exec: contestant code has no handle that the driver listens to.
pub(crate) fn take() -> io::Result<(Header, Rows, Answers<File>)> {
    let (header, rows) = exam::take(BufReader::new(io::stdin().lock()))?;
    let answers = Answers::new(header.nonce.clone(), private_stdout()?);
    Ok((header, rows, answers))
}

/// Takes what a fit needs to vouch for its record, where a driver waits for it; with the same effect.
pub(crate) fn take_witness() -> io::Result<Option<Witness<File>>> {
    if std::env::var_os(VOUCH_ENV).is_none_or(|value| value != "1") {
        return Ok(None);
    }
    let nonce = io::read_to_string(io::stdin().lock())?;
    Ok(Some(Witness::new(nonce, private_stdout()?)))
}

/// Standard output as it was, for the referee alone; what is printed from now on goes to standard error, and
/// standard input is empty.
pub(crate) fn private_stdout() -> io::Result<File> {
    let private = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(File::from(private))
}
