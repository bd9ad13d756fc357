//! The private exchange between driver and scorer: rows in, nonce-tagged figures out.
//!
//! To the scorer's standard input go one JSON line, the [`Header`], and the rows as little-endian `u16`.
//! From its standard output come JSON lines that each bear the header's nonce: any number of `progress`, then
//! one `scored` or `rejected`. A line without the nonce was not written by the referee and counts for
//! nothing. The scorer returns nats; what they mean in bits per byte the driver works out from its own rows.
//!
//! Rows go over in an order that is drawn for each exam and undone on return, so that neither the place of a
//! row nor its neighbours mean anything.

use std::io::{self, BufRead, Read, Write};
use std::thread;

use rand::RngExt;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use crate::bpb::{self, Bpb, BpbError};
use crate::chance::{nonce, os_rng};
use crate::profile::Profile;
use crate::rows::Rows;

/// Bytes of stray output after which a scorer is given up; it has no reason to write any.
const MAX_STRAY_BYTES: u64 = 1 << 20;
/// Tries to find a row that differs from another after its cut.
const TRIES: usize = 100;
/// Bytes of a header line: 8,192 lengths and a cut for each row, of at most six characters, and some names.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Says what rows follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Random, hexadecimal; contestant code never sees it.
    pub nonce: String,
    /// The profile of the rows.
    pub profile: Profile,
    /// Number of ids.
    pub vocab: usize,
    /// Inputs in a row; a row has one token more.
    pub context: usize,
    /// Number of rows that are scored.
    pub rows: usize,
    /// A position in each row, (rows): what its targets cost up to there is reported apart.
    pub cuts: Vec<usize>,
    /// Whether this is a second sitting: as many rows follow again, and each row is shown up to its cut only,
    /// then as the one that follows in its place. Nothing is probed.
    pub second: bool,
    /// Raw byte length of each id, (vocab); a target of length 0 does not count.
    pub token_bytes: Vec<u8>,
}

/// What the probes measured, in logits (causality) and nats a token (company).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Probes {
    /// Rows whose tokens after a cut were replaced before scoring.
    pub probed_rows: usize,
    /// Largest change of a logit between two runs of the same batch.
    pub repeat: f64,
    /// Largest change of a target's nats between the two.
    pub repeat_nats: f64,
    /// Largest change of a logit up to the cut when tokens after it were replaced.
    pub causal_change: f64,
    /// What was allowed of it.
    pub causal_allowed: f64,
    /// Rows scored again in other company.
    pub company_rows: usize,
    /// Largest change of a token's nats in other company.
    pub company_change: f64,
    /// What was allowed of it.
    pub company_allowed: f64,
    /// How much more a token cost, on average, when the token that follows it was replaced; nats.
    pub gain: f64,
    /// What was allowed of it.
    pub gain_allowed: f64,
}

/// How finely logits are rounded; what counts as rounding follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// f32.
    Single,
    /// bf16 or f16.
    Half,
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Precision::Single => "f32",
            Precision::Half => "bf16 or f16",
        })
    }
}

/// The figures of a model that passed every probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// Cross-entropy of each row, summed over the targets that count: (rows), nats. Of a second sitting, as
    /// `until`.
    pub nats: Vec<f64>,
    /// The same over the targets up to the row's cut: (rows).
    pub until: Vec<f64>,
    /// Cross-entropy of the target after the cut, whether it counts or not: (rows).
    pub at: Vec<f64>,
    /// What the probes measured.
    pub probes: Probes,
    /// The type of the logits.
    pub precision: Precision,
    /// Rows of which a probe showed something before they were scored.
    pub early: Vec<usize>,
    /// Rows that were in a batch.
    pub batch_rows: usize,
    /// Seconds from the first batch to the last.
    pub seconds: f64,
}

/// Why a model has no score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A logit is NaN or infinite.
    NonFinite,
    /// The logits are not (B, T, vocab), or not floating-point numbers.
    WrongShape,
    /// Logits change when later tokens change.
    NonCausal,
    /// Logits change with the other rows of the batch, the place in it, or earlier calls.
    CompanyDependent,
    /// The same batch gives other logits each time, by more than rounding explains.
    Unrepeatable,
    /// A fresh process, which has seen fewer rows, gives other logits.
    StateKept,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reason::NonFinite => "non_finite",
            Reason::WrongShape => "wrong_shape",
            Reason::NonCausal => "non_causal",
            Reason::CompanyDependent => "company_dependent",
            Reason::Unrepeatable => "unrepeatable",
            Reason::StateKept => "state_kept",
        })
    }
}

/// A refusal to score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}: {detail}")]
pub struct Rejected {
    /// The kind.
    pub reason: Reason,
    /// Where it was seen and by how much.
    pub detail: String,
}

/// How an exam ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// With figures.
    Scored(Scored),
    /// With a refusal.
    Rejected(Rejected),
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    nonce: String,
    message: Message,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    Progress(u64),
    Scored(Scored),
    Rejected(Rejected),
}

/// What happens during an exam, for a display or a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// So many rows are scored.
    Progress {
        /// Rows done.
        done: u64,
        /// Rows in all.
        rows: u64,
    },
    /// A line that the referee did not write.
    Stray(&'a str),
}

/// Why an exam has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum ExamError {
    /// The scorer ended, or closed its output, without figures.
    #[error("the scorer ended without figures; its log says why")]
    NoVerdict,
    /// It never took the rows.
    #[error("the scorer ended without figures and without taking its rows: {0}; its log says why")]
    Unread(io::Error),
    /// It wrote without end.
    #[error("the scorer wrote more than {0} bytes that are not its figures")]
    Flood(u64),
    /// Two outcomes.
    #[error("the scorer gave two outcomes")]
    Twice,
    /// Figures that no such rows can have.
    #[error("the scorer's figures cannot be true: {0}")]
    Impossible(String),
    /// Reading its output failed.
    #[error("cannot read the scorer's output: {0}")]
    Read(#[from] io::Error),
}

/// The driver's side: rows to be scored, once, by one process.
pub struct Exam {
    header: Header,
    rows: Rows,
    bytes: Vec<u64>,
    /// The order in which the rows are sent.
    order: Vec<usize>,
    /// A position in each row, the same in both sittings: (rows).
    cuts: Vec<usize>,
    /// In a second sitting, what is shown of each row after its cut.
    donors: Option<Rows>,
}

impl Exam {
    /// An exam over `rows` with a nonce of its own. token_bytes: (vocab).
    ///
    /// Errors: a row holds an id outside the vocabulary; no randomness.
    pub fn new(profile: Profile, rows: Rows, token_bytes: Vec<u8>) -> io::Result<Exam> {
        let vocab = token_bytes.len();
        if let Some(id) = rows.ids().iter().find(|&&id| usize::from(id) >= vocab) {
            let why = format!("token {id} in the exam rows is outside the vocabulary of {vocab}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let bytes = bpb::target_bytes(&rows, &token_bytes);
        let (context, count) = (rows.context(), rows.len());
        let mut rng = os_rng()?;
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut rng);
        // the target after the last input is no input, so it cannot be replaced
        let cuts: Vec<usize> = (0..count).map(|_| rng.random_range(0..(context - 1).max(1))).collect();
        let header = Header {
            nonce: nonce()?,
            profile,
            vocab,
            context,
            rows: count,
            cuts: order.iter().map(|&row| cuts[row]).collect(),
            second: false,
            token_bytes,
        };
        Ok(Exam { header, rows, bytes, order, cuts, donors: None })
    }

    /// A second sitting over these rows, with a nonce and an order of its own. Panics when a row is not there.
    ///
    /// Errors: no row differs from another after its cut; no randomness.
    pub(crate) fn again(&self, picked: &[usize]) -> io::Result<Exam> {
        let mut rng = os_rng()?;
        let mut donors = Vec::with_capacity(picked.len());
        for &row in picked {
            let next = self.cuts[row] + 1;
            // not one of those that are scored, if it can be helped: it would be shown before its turn
            let tries = std::iter::repeat_with(|| rng.random_range(0..self.rows.len())).take(TRIES);
            let fitting = |donor: &usize| self.rows.row(*donor)[next] != self.rows.row(row)[next];
            let fitting: Vec<usize> = tries.filter(fitting).collect();
            let strange = fitting.iter().find(|donor| !picked.contains(donor));
            let donor = strange.or(fitting.first()).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "the exam rows are too few or too alike")
            })?;
            donors.push(*donor);
        }
        let select = |rows: &[usize]| {
            let ids = rows.iter().flat_map(|&row| self.rows.row(row)).copied().collect();
            Rows::new(self.rows.context(), ids).map_err(io::Error::other)
        };
        let token_bytes = self.header.token_bytes.clone();
        let mut exam = Exam::new(self.header.profile, select(picked)?, token_bytes)?;
        exam.cuts = picked.iter().map(|&row| self.cuts[row]).collect();
        exam.header.cuts = exam.order.iter().map(|&row| exam.cuts[row]).collect();
        exam.header.second = true;
        exam.donors = Some(select(&donors)?);
        Ok(exam)
    }

    /// The position in each row up to which two sittings are compared: (rows).
    pub(crate) fn cuts(&self) -> &[usize] {
        &self.cuts
    }

    /// What is scored.
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Bytes of each row's targets: (rows).
    pub fn row_bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// Target tokens in all rows.
    pub fn tokens(&self) -> u64 {
        (self.rows.len() * self.rows.context()) as u64
    }

    /// The score, from the scorer's nats and this side's bytes.
    pub fn bpb(&self, scored: &Scored) -> Result<Bpb, BpbError> {
        Bpb::from_nats(&scored.nats, self.bytes.iter().sum())
    }

    /// Holds the exam with a running scorer, whose two pipes these are, and waits for its end.
    ///
    /// Writing and reading go on side by side, so that neither party can block the other. There is no time
    /// limit in here: the caller kills a scorer that takes too long, and this returns.
    pub fn hold(
        &self,
        stdin: impl Write + Send,
        stdout: impl BufRead,
        on_event: impl FnMut(Event<'_>),
    ) -> Result<Verdict, ExamError> {
        thread::scope(|scope| {
            let writer = scope.spawn(|| self.write(stdin));
            let verdict = self.read(stdout, on_event);
            let written = writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")));
            match (verdict, written) {
                (Err(ExamError::NoVerdict), Err(e)) => Err(ExamError::Unread(e)),
                (verdict, _) => verdict,
            }
        })
    }

    /// Writes header and rows, and closes the pipe.
    pub fn write(&self, mut stdin: impl Write) -> io::Result<()> {
        let mut header = serde_json::to_vec(&self.header)?;
        header.push(b'\n');
        stdin.write_all(&header)?;
        for rows in std::iter::once(&self.rows).chain(&self.donors) {
            let ids = self.order.iter().flat_map(|&row| rows.row(row));
            stdin.write_all(&ids.flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>())?;
        }
        stdin.flush()
    }

    /// Reads until the end of the scorer's output. Takes the reader, so that a scorer which was given up
    /// finds its pipe closed.
    pub fn read(
        &self,
        mut stdout: impl BufRead,
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<Verdict, ExamError> {
        let max_line = 4096 + 128 * self.header.rows as u64; // a number takes at most 25 characters
        let mut stray_bytes = 0;
        let mut verdict = None;
        let mut line = Vec::new();
        loop {
            line.clear();
            if stdout.by_ref().take(max_line).read_until(b'\n', &mut line)? == 0 {
                return verdict.ok_or(ExamError::NoVerdict);
            }
            let outcome = match self.authentic(&line) {
                Some(Message::Progress(done)) => {
                    on_event(Event::Progress { done, rows: self.header.rows as u64 });
                    continue;
                }
                Some(Message::Scored(scored)) => Verdict::Scored(self.possible(scored)?),
                Some(Message::Rejected(rejected)) => Verdict::Rejected(rejected),
                None => {
                    stray_bytes += line.len() as u64;
                    if stray_bytes > MAX_STRAY_BYTES {
                        return Err(ExamError::Flood(MAX_STRAY_BYTES));
                    }
                    on_event(Event::Stray(String::from_utf8_lossy(&line).trim_end()));
                    continue;
                }
            };
            if verdict.replace(outcome).is_some() {
                return Err(ExamError::Twice);
            }
        }
    }

    fn authentic(&self, line: &[u8]) -> Option<Message> {
        let line: Line = serde_json::from_slice(line).ok()?;
        (line.nonce == self.header.nonce).then_some(line.message)
    }

    /// Refuses figures of another number of rows, and nats that no cross-entropy gives; puts the others back
    /// into the rows' own order.
    fn possible(&self, mut scored: Scored) -> Result<Scored, ExamError> {
        let rows = self.header.rows;
        if let Some(row) = scored.early.iter().find(|&&row| row >= rows) {
            return Err(ExamError::Impossible(format!("row {row} of {rows} was shown")));
        }
        scored.early.iter_mut().for_each(|row| *row = self.order[*row]);
        for figures in [&mut scored.nats, &mut scored.until, &mut scored.at] {
            let found = figures.len();
            if found != rows {
                return Err(ExamError::Impossible(format!(
                    "nats of {found} rows, but there are {rows} rows"
                )));
            }
            if let Some(i) = figures.iter().position(|nats| !nats.is_finite() || *nats < 0.0) {
                return Err(ExamError::Impossible(format!("row {i} has {} nats", figures[i])));
            }
            let sent = figures.clone();
            self.order.iter().zip(sent).for_each(|(&row, nats)| figures[row] = nats);
        }
        Ok(scored)
    }
}

/// The scorer's side: what the driver wrote, taken whole.
///
/// Errors: a header or rows that no driver of this version sends.
pub fn take(mut stdin: impl BufRead) -> io::Result<(Header, Rows)> {
    let invalid = |why: String| {
        let why = format!("{why}; `score` expects an exam on its standard input, as `ratchet` sends it");
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    let mut line = Vec::new();
    stdin.by_ref().take(MAX_HEADER_BYTES).read_until(b'\n', &mut line)?;
    let header: Header =
        serde_json::from_slice(&line).map_err(|e| invalid(format!("no exam header: {e}")))?;
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes)?;
    let rows = Rows::from_bytes(header.context, &bytes).map_err(|e| invalid(e.to_string()))?;
    let expected = if header.second { 2 * header.rows } else { header.rows };
    if rows.len() != expected {
        return Err(invalid(format!("{} rows, but the header says {expected}", rows.len())));
    }
    if header.cuts.len() != header.rows || header.cuts.iter().any(|&cut| cut >= header.context) {
        return Err(invalid("no position to cut each row at".into()));
    }
    if header.token_bytes.len() != header.vocab {
        return Err(invalid(format!("{} byte lengths for {} ids", header.token_bytes.len(), header.vocab)));
    }
    if let Some(id) = rows.ids().iter().find(|&&id| usize::from(id) >= header.vocab) {
        return Err(invalid(format!("token {id} is outside the vocabulary of {}", header.vocab)));
    }
    Ok((header, rows))
}

/// The scorer's pen: writes nonce-tagged lines.
pub struct Answers<W> {
    nonce: String,
    out: W,
}

impl<W: Write> Answers<W> {
    /// Answers to the exam with `nonce`, written to `out`.
    pub fn new(nonce: String, out: W) -> Answers<W> {
        Answers { nonce, out }
    }

    /// So many rows are scored.
    pub fn progress(&mut self, done: u64) -> io::Result<()> {
        self.send(Message::Progress(done))
    }

    /// The outcome; the last line.
    pub fn finish(mut self, verdict: Verdict) -> io::Result<()> {
        self.send(match verdict {
            Verdict::Scored(scored) => Message::Scored(scored),
            Verdict::Rejected(rejected) => Message::Rejected(rejected),
        })
    }

    fn send(&mut self, message: Message) -> io::Result<()> {
        let line = Line { nonce: self.nonce.clone(), message };
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        self.out.write_all(&bytes)?;
        self.out.flush()
    }
}
