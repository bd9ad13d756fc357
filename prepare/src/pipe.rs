//! The scorer's standard streams, taken before any contestant code runs.

use std::fs::File;
use std::io::{self, BufReader};

use crate::exam::{self, Answers, Header};
use crate::rows::Rows;

/// Takes the exam from standard input and a private copy of standard output for the answers.
///
/// Afterwards standard input is empty, what is printed goes to standard error, and the private pipe is
/// closed on exec: contestant code has no handle that the driver listens to.
pub(crate) fn take() -> io::Result<(Header, Rows, Answers<File>)> {
    let (header, rows) = exam::take(BufReader::new(io::stdin().lock()))?;
    let private = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let answers = Answers::new(header.nonce.clone(), File::from(private));
    Ok((header, rows, answers))
}
