//! What the referee says of a fit, told to the driver on a pipe that the contestant does not have.
//!
//! A contestant can write a `fit.json` of its own and end the process before the referee's is written, or after.
//! So the driver sends a nonce on standard input and says so in the environment; when the fit is over, the
//! record that the referee wrote comes back on standard output, on a line that bears the nonce.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::chance::nonce;

/// Set to `1` where a nonce waits on standard input.
pub const VOUCH_ENV: &str = "RATCHET_VOUCH";

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    nonce: String,
    fitted: String,
}

/// The driver's side.
#[derive(Debug)]
pub struct Voucher {
    nonce: String,
}

impl Voucher {
    /// With a nonce of its own. Errors: no randomness.
    pub fn new() -> io::Result<Voucher> {
        Ok(Voucher { nonce: nonce()? })
    }

    /// What goes to the fit's standard input.
    pub fn input(&self) -> Vec<u8> {
        self.nonce.clone().into_bytes()
    }

    /// The record, from what came out of the fit's standard output; `None` where the referee wrote none.
    pub fn record(&self, stdout: &[u8]) -> Option<String> {
        let lines =
            stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Line>(line).ok());
        let mut records = lines.filter(|line| line.nonce == self.nonce).map(|line| line.fitted);
        records.next().filter(|_| records.next().is_none())
    }
}

/// The fit's side: what it was given before contestant code ran.
#[derive(Debug)]
pub struct Witness<W> {
    nonce: String,
    out: W,
}

impl<W: Write> Witness<W> {
    /// `nonce` came from the driver, `out` leads there.
    pub fn new(nonce: String, out: W) -> Witness<W> {
        Witness { nonce, out }
    }

    /// Tells the driver that this is the record.
    pub fn vouch(mut self, record: &str) -> io::Result<()> {
        let line = Line { nonce: self.nonce, fitted: record.to_owned() };
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        self.out.write_all(&bytes)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(nonce: &str, record: &str) -> Vec<u8> {
        let mut out = Vec::new();
        Witness::new(nonce.to_owned(), &mut out).vouch(record).unwrap();
        out
    }

    #[test]
    fn only_the_nonce_makes_a_record() {
        let voucher = Voucher::new().unwrap();
        let nonce = String::from_utf8(voucher.input()).unwrap();
        let record = "{\n  \"tokens\": 5\n}";
        let true_line = said(&nonce, record);
        let forged = said("0000", "{\"tokens\": 9}");
        let around = [b"step 1\n".as_slice(), &forged, &true_line, b"bye"].concat();
        assert_eq!(voucher.record(&around).as_deref(), Some(record));
        assert_eq!(voucher.record(&forged), None);
        assert_eq!(voucher.record(&[true_line.clone(), true_line].concat()), None, "twice is not once");
        assert_ne!(nonce.into_bytes(), Voucher::new().unwrap().input());
    }
}
