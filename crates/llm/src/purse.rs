//! Spending caps that hold across processes: `spending.jsonl`, append-only, under a file lock.
//!
//! A call's worst case is reserved before it is made and replaced by what it did consume afterwards. What is
//! reserved and not settled counts in full, whether its call is in flight or its process died in between, so
//! that caps are held whatever happens to whom.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use jiff::Zoned;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::AskError;

/// What a call may consume or did; nothing by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// Input and output together.
    pub tokens: u64,
    /// US dollars; `None` where the price is not known.
    pub usd: Option<f64>,
}

impl Default for Amount {
    fn default() -> Self {
        Self { tokens: 0, usd: Some(0.0) }
    }
}

/// What may be spent in one span of time; `None` is without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cap {
    /// Input and output together.
    pub tokens: Option<u64>,
    /// US dollars.
    pub usd: Option<f64>,
}

/// The caps that a call is held to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caps {
    /// For one invocation of the driver.
    pub night: Cap,
    /// For one local calendar day, whatever the tag.
    pub day: Cap,
}

impl Caps {
    /// Whether money is limited, so that a price must be known.
    pub fn limit_money(&self) -> bool {
        self.night.usd.is_some() || self.day.usd.is_some()
    }
}

/// Who spends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spender {
    /// One invocation of the driver: what "night" means.
    pub run: String,
    /// The tag worked on.
    pub tag: String,
}

/// A reservation, to be settled once the call is over.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an unsettled ticket counts with its worst case for good"]
pub struct Ticket(u64);

/// What was spent, reservations included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Calls made or in flight.
    pub calls: u64,
    /// Input and output together.
    pub tokens: u64,
    /// US dollars, of the calls whose price is known.
    pub usd: f64,
    /// Calls whose price is not known.
    pub unpriced: u64,
}

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Reserve {
        ticket: u64,
        at: String,
        day: String,
        #[serde(flatten)]
        spender: Spender,
        #[serde(flatten)]
        worst: Amount,
    },
    Settle {
        ticket: u64,
        #[serde(flatten)]
        actual: Amount,
    },
}

#[derive(Debug)]
struct Entry {
    day: String,
    spender: Spender,
    amount: Amount,
}

/// The shared account. Each user opens one of its own; the file keeps them together.
#[derive(Debug)]
pub struct Purse {
    path: PathBuf,
    file: File,
    entries: BTreeMap<u64, Entry>,
    /// Bytes of whole lines read so far.
    read: u64,
    /// Lines read so far.
    lines: u64,
}

impl Purse {
    /// Opens `spending.jsonl`, creating it where there is none.
    ///
    /// # Errors
    /// [`AskError::Record`] naming the file, and the line that is not one of its own.
    pub fn open(path: &Path) -> Result<Self, AskError> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = file.map_err(|error| AskError::file(path, &error))?;
        let mut purse = Self { path: path.to_owned(), file, entries: BTreeMap::new(), read: 0, lines: 0 };
        purse.locked(|purse| purse.catch_up())?;
        Ok(purse)
    }

    /// Sets `worst` aside for one call, where every cap leaves room for all of it.
    ///
    /// # Errors
    /// [`AskError::Cap`] naming the cap, what is spent and what is wanted.
    pub fn reserve(&mut self, caps: &Caps, worst: Amount, spender: &Spender) -> Result<Ticket, AskError> {
        let now = Zoned::now();
        let today = now.date().to_string();
        self.locked(|purse| {
            purse.catch_up()?;
            let run = purse.sum(|entry| entry.spender.run == spender.run);
            let day = purse.sum(|entry| entry.day == today);
            room(&caps.night, "the night", &run, worst)?;
            room(&caps.day, "the day", &day, worst)?;
            let ticket = purse.entries.last_key_value().map_or(1, |(last, _)| last + 1);
            purse.append(&Line::Reserve {
                ticket,
                at: now.timestamp().to_string(),
                day: today,
                spender: spender.clone(),
                worst,
            })?;
            Ok(Ticket(ticket))
        })
    }

    /// Replaces a reservation by what was consumed.
    ///
    /// # Errors
    /// [`AskError::Record`] where the file cannot be written; the reservation then stands.
    pub fn settle(&mut self, ticket: Ticket, actual: Amount) -> Result<(), AskError> {
        self.locked(|purse| {
            purse.catch_up()?;
            purse.append(&Line::Settle { ticket: ticket.0, actual })
        })
    }

    /// What one invocation spent.
    ///
    /// # Errors
    /// [`AskError::Record`] where the file cannot be read.
    pub fn spent(&mut self, run: &str) -> Result<Spent, AskError> {
        self.spent_where(|entry| entry.spender.run == run)
    }

    /// What was spent this local calendar day, by all tags.
    ///
    /// # Errors
    /// [`AskError::Record`] where the file cannot be read.
    pub fn spent_today(&mut self) -> Result<Spent, AskError> {
        let today = Zoned::now().date().to_string();
        self.spent_where(|entry| entry.day == today)
    }

    /// What was ever spent on a tag.
    ///
    /// # Errors
    /// [`AskError::Record`] where the file cannot be read.
    pub fn spent_by(&mut self, tag: &str) -> Result<Spent, AskError> {
        self.spent_where(|entry| entry.spender.tag == tag)
    }

    fn spent_where(&mut self, counts: impl Fn(&Entry) -> bool) -> Result<Spent, AskError> {
        self.locked(|purse| {
            purse.catch_up()?;
            Ok(purse.sum(counts))
        })
    }

    fn sum(&self, counts: impl Fn(&Entry) -> bool) -> Spent {
        self.entries.values().filter(|entry| counts(entry)).fold(Spent::default(), |sum, entry| Spent {
            calls: sum.calls + 1,
            tokens: sum.tokens.saturating_add(entry.amount.tokens),
            usd: sum.usd + entry.amount.usd.unwrap_or(0.0),
            unpriced: sum.unpriced + u64::from(entry.amount.usd.is_none()),
        })
    }

    /// Runs `act` while no other process reads or writes.
    fn locked<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, AskError>) -> Result<T, AskError> {
        let at = |error: rustix::io::Errno| AskError::file(&self.path, &error.into());
        flock(&self.file, FlockOperation::LockExclusive).map_err(at)?;
        let outcome = act(self);
        flock(&self.file, FlockOperation::Unlock)
            .map_err(|error| AskError::file(&self.path, &error.into()))?;
        outcome
    }

    /// Reads what others wrote since. A last line without its newline was being written when its process
    /// died: its call was never made, or counts in full; it is cut off.
    fn catch_up(&mut self) -> Result<(), AskError> {
        let mut fresh = Vec::new();
        let read = self.file.seek(SeekFrom::Start(self.read)).and_then(|_| self.file.read_to_end(&mut fresh));
        read.map_err(|error| AskError::file(&self.path, &error))?;
        let whole = fresh.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < fresh.len() {
            let cut = self.file.set_len(self.read + whole as u64);
            cut.map_err(|error| AskError::file(&self.path, &error))?;
        }
        for line in fresh[..whole].split_inclusive(|byte| *byte == b'\n') {
            self.lines += 1;
            self.read += line.len() as u64;
            let line = serde_json::from_slice(line).map_err(|error| {
                AskError::Record(format!("{} line {}: {error}", self.path.display(), self.lines))
            })?;
            self.take(line);
        }
        Ok(())
    }

    fn append(&mut self, line: &Line) -> Result<(), AskError> {
        let written = serde_json::to_vec(line).map_err(std::io::Error::from).and_then(|mut bytes| {
            bytes.push(b'\n');
            self.file.write_all(&bytes)?;
            self.file.sync_data()
        });
        written.map_err(|error| AskError::file(&self.path, &error))?;
        self.catch_up()
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Reserve { ticket, day, spender, worst, .. } => {
                self.entries.insert(ticket, Entry { day, spender, amount: worst });
            }
            Line::Settle { ticket, actual } => {
                if let Some(entry) = self.entries.get_mut(&ticket) {
                    entry.amount = actual;
                }
            }
        }
    }
}

/// Whether `cap` leaves room for `worst` on top of `spent`.
fn room(cap: &Cap, span: &str, spent: &Spent, worst: Amount) -> Result<(), AskError> {
    if let Some(cap) = cap.tokens
        && spent.tokens.saturating_add(worst.tokens) > cap
    {
        return Err(AskError::Cap(format!(
            "{span} may use {cap} tokens, {} are used or in flight, the next call may need {}",
            spent.tokens, worst.tokens
        )));
    }
    if let Some(cap) = cap.usd {
        let Some(usd) = worst.usd else {
            return Err(AskError::Cap(format!(
                "{span} may cost ${cap}, but the price of the call is not known"
            )));
        };
        let fits = spent.usd + usd <= cap; // false for NaN
        if !fits {
            return Err(AskError::Cap(format!(
                "{span} may cost ${cap}, ${:.4} are spent or in flight, the next call may cost ${usd:.4}",
                spent.usd
            )));
        }
    }
    Ok(())
}
