//! Packs documents into rows; every row starts with the BOS of a document.
//!
//! Best fit: of the buffered documents the largest that still fits goes next; when none fits, the shortest
//! is cropped to fill the row and its rest is dropped. Equals leave in the order they came. The packer
//! plans rows as [`Span`]s of body tokens and never touches the tokens themselves, so that exam rows and
//! training batches, a shuffled or an endless source, all go through the same code.

use std::collections::{BTreeMap, VecDeque};

/// Documents the packer looks at when it places the next one.
pub const BUFFER_DOCS: usize = 1000;

/// The body of a document, or of a piece of one: a run of tokens without the BOS that goes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Index of the first body token in the token file.
    pub start: u64,
    /// Body tokens; in a row the span takes one more, for its BOS.
    pub len: u32,
}

impl Span {
    /// Tokens this takes in a row: the body and its BOS.
    pub fn row_tokens(self) -> u64 {
        u64::from(self.len) + 1
    }
}

/// Where the tokens of a packer went, BOS included:
/// `entered = placed + cropped + dropped + what is still buffered`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Documents (or pieces) taken from the source.
    pub documents: u64,
    /// Tokens of those documents.
    pub entered: u64,
    /// Tokens in finished rows.
    pub placed: u64,
    /// Tokens cut off where a document was cropped to fill a row.
    pub cropped: u64,
    /// Tokens of the last row when the source ended before it was full.
    pub dropped: u64,
}

/// Best-fit packing of `source` into rows of `row_len` tokens. A clone goes on from the same state.
#[derive(Debug, Clone)]
pub struct Packer<S> {
    source: S,
    row_len: usize,
    capacity: usize,
    /// Starts of the buffered spans by body length: the best fit is one look-up, equals queue in order.
    buffer: BTreeMap<u32, VecDeque<u64>>,
    buffered: usize,
    tally: Tally,
}

impl<S: Iterator<Item = Span>> Packer<S> {
    /// Packs with a buffer of [`BUFFER_DOCS`]. `row_len` is context + 1 and at least 1.
    pub fn new(source: S, row_len: usize) -> Packer<S> {
        Packer::with_buffer(source, row_len, BUFFER_DOCS)
    }

    /// Packs with a buffer of `capacity` documents, at least 1.
    pub fn with_buffer(source: S, row_len: usize, capacity: usize) -> Packer<S> {
        assert!(row_len > 0 && capacity > 0, "rows and buffer must hold something");
        Packer { source, row_len, capacity, buffer: BTreeMap::new(), buffered: 0, tally: Tally::default() }
    }

    /// Plans the next row into `row`: spans that, each behind its BOS, fill it exactly.
    ///
    /// False, with `row` empty, once the source has ended and what is left fills no row.
    pub fn next_row(&mut self, row: &mut Vec<Span>) -> bool {
        row.clear();
        let mut room = self.row_len as u64;
        while room > 0 {
            self.refill();
            let Some(span) = self.take(room) else {
                self.tally.dropped += self.row_len as u64 - room;
                row.clear();
                return false;
            };
            room -= span.row_tokens();
            row.push(span);
        }
        self.tally.placed += self.row_len as u64;
        true
    }

    /// Where the tokens went so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The source, as far as it has been read.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The source again, to be told something that it heeds from its next document on.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Rows from now on have `row_len` ≥ 1 tokens; what is buffered stays.
    pub fn set_row_len(&mut self, row_len: usize) {
        assert!(row_len > 0, "rows must hold something");
        self.row_len = row_len;
    }

    fn refill(&mut self) {
        while self.buffered < self.capacity {
            let Some(span) = self.source.next() else { return };
            self.buffer.entry(span.len).or_default().push_back(span.start);
            self.buffered += 1;
            self.tally.documents += 1;
            self.tally.entered += span.row_tokens();
        }
    }

    /// The largest span that fits `room` ≥ 1 tokens, else the shortest, cropped to them.
    fn take(&mut self, room: u64) -> Option<Span> {
        let body = u32::try_from(room - 1).unwrap_or(u32::MAX);
        let fitting = self.buffer.range(..=body).next_back().map(|(&len, _)| len);
        let len = fitting.or_else(|| self.buffer.keys().next().copied())?;
        let queue = self.buffer.get_mut(&len)?;
        let start = queue.pop_front()?;
        if queue.is_empty() {
            self.buffer.remove(&len);
        }
        self.buffered -= 1;
        self.tally.cropped += u64::from(len.saturating_sub(body));
        Some(Span { start, len: len.min(body) })
    }
}

/// The bodies of documents `docs[i]..docs[i + 1]` of a token file, in order. docs: n + 1 offsets, each
/// document starting with its BOS.
pub fn documents(docs: &[u64]) -> impl Iterator<Item = Span> + Clone + '_ {
    docs.windows(2).map(|ends| Span { start: ends[0] + 1, len: (ends[1] - ends[0] - 1) as u32 })
}

/// Cuts every document into pieces that, each behind a BOS of its own, take at most `row_len` ≥ 2 tokens.
/// Nothing is lost: the pieces' bodies are the document's.
pub fn pieces(documents: impl Iterator<Item = Span>, row_len: usize) -> impl Iterator<Item = Span> {
    let most = (row_len - 1) as u32;
    documents.flat_map(move |doc| {
        // an empty document is still one piece: its BOS
        (0..doc.len.div_ceil(most).max(1)).map(move |i| {
            let at = i * most;
            Span { start: doc.start + u64::from(at), len: most.min(doc.len - at) }
        })
    })
}

/// Writes a planned row: for each span `bos` and its tokens. out: exactly as long as the row.
pub fn write_row(row: &[Span], tokens: &[u16], bos: u16, out: &mut [u16]) {
    let mut at = 0;
    for span in row {
        let (start, len) = (span.start as usize, span.len as usize);
        out[at] = bos;
        out[at + 1..at + 1 + len].copy_from_slice(&tokens[start..start + len]);
        at += 1 + len;
    }
    assert_eq!(at, out.len(), "the spans must fill the row");
}

/// Packs the rows of an exam: at most `most` rows of `row_len` tokens from the documents of a token file,
/// read once. docs: n + 1 offsets → (rows · row_len) ids, and where the tokens went.
pub fn exam(
    tokens: &[u16],
    docs: &[u64],
    row_len: usize,
    cut: bool,
    most: usize,
    bos: u16,
) -> (Vec<u16>, Tally) {
    let source: Box<dyn Iterator<Item = Span>> =
        if cut { Box::new(pieces(documents(docs), row_len)) } else { Box::new(documents(docs)) };
    let mut packer = Packer::new(source, row_len);
    let (mut plan, mut ids) = (Vec::new(), Vec::new());
    while ids.len() < most * row_len && packer.next_row(&mut plan) {
        let at = ids.len();
        ids.resize(at + row_len, bos);
        write_row(&plan, tokens, bos, &mut ids[at..]);
    }
    (ids, packer.tally())
}
