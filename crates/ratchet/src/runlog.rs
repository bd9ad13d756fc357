//! `run.log` and `build.log`: a process's output, carriage returns collapsed, size bounded.
//!
//! A contestant may print two gigabytes or redraw a progress line fifty thousand times. The file keeps
//! the first and the last part, and a full disk costs the log, never the trial.

use std::{
    collections::VecDeque,
    fs::File,
    io::Write,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use crate::{plain_file, secrets::secrets, state::create_new};

/// Bytes kept from the start; about 4,000 lines.
const HEAD: usize = 256 << 10;
/// Bytes kept from the end.
const TAIL: usize = 256 << 10;
/// Bytes of one line kept; what a line holds beyond is dropped.
const LINE: usize = 4 << 10;

/// A log being written.
#[derive(Debug)]
pub struct RunLog {
    path: PathBuf,
    file: Option<File>,
    /// Why the file is not being written any more.
    broken: Option<String>,
    written: usize,
    tail: VecDeque<u8>,
    dropped: u64,
    partial: [Line; 2],
}

/// One stream's unfinished line.
#[derive(Debug, Default)]
struct Line {
    text: Vec<u8>,
    /// A carriage return was the last byte: text is void unless a newline follows.
    returned: bool,
    cut: bool,
}

/// Which stream a piece of output came from; lines of the two are never mixed within a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl RunLog {
    /// Starts a log at `path`, replacing what is there. Never fails: see [`RunLog::close`].
    pub fn create(path: &Path) -> Self {
        // /dev/null and its like are written to; anything else that stands there is replaced
        let device = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_char_device());
        let opened = if device { File::options().write(true).open(path) } else { create_new(path) };
        let (file, broken) = match opened {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let partial = Default::default();
        Self {
            path: path.to_path_buf(),
            file,
            broken,
            written: 0,
            tail: VecDeque::new(),
            dropped: 0,
            partial,
        }
    }

    /// Takes in a piece of output.
    pub fn push(&mut self, stream: Stream, mut bytes: &[u8]) {
        let mut line = std::mem::take(&mut self.partial[stream as usize]);
        while !bytes.is_empty() {
            let end = bytes.iter().position(|b| *b == b'\n' || *b == b'\r');
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if !piece.is_empty() {
                if std::mem::take(&mut line.returned) {
                    line.text.clear();
                    line.cut = false;
                }
                let room = LINE.saturating_sub(line.text.len());
                line.text.extend_from_slice(&piece[..piece.len().min(room)]);
                line.cut |= piece.len() > room;
            }
            match rest.first() {
                Some(b'\n') => {
                    self.finish(&mut line);
                    bytes = &rest[1..];
                }
                Some(_) => {
                    line.returned = true;
                    bytes = &rest[1..];
                }
                None => bytes = rest,
            }
        }
        self.partial[stream as usize] = line;
    }

    fn finish(&mut self, line: &mut Line) {
        if line.cut {
            line.text.extend_from_slice("…".as_bytes());
        }
        line.text.push(b'\n');
        match secrets().found_in(&line.text) {
            Some(_) => self.emit(secrets().redact(&String::from_utf8_lossy(&line.text)).as_bytes()),
            None => self.emit(&line.text),
        }
        line.text.clear();
        line.returned = false;
        line.cut = false;
    }

    fn emit(&mut self, text: &[u8]) {
        if self.written + text.len() <= HEAD && self.tail.is_empty() {
            self.written += text.len();
            self.write(text);
        } else {
            self.tail.extend(text);
            let over = self.tail.len().saturating_sub(TAIL);
            self.tail.drain(..over);
            self.dropped += over as u64;
        }
    }

    fn write(&mut self, text: &[u8]) {
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(text)
        {
            self.broken = Some(error.to_string());
            self.file = None;
        }
    }

    /// Writes what is still held back. Returns a note when (part of) the log could not be written.
    pub fn close(mut self) -> Option<String> {
        for i in 0..2 {
            let mut line = std::mem::take(&mut self.partial[i]);
            if !line.text.is_empty() {
                self.finish(&mut line);
            }
        }
        if self.dropped > 0 {
            let note = format!("\n[… {} bytes dropped …]\n", self.dropped);
            self.write(note.as_bytes());
        }
        let tail = std::mem::take(&mut self.tail);
        let (a, b) = tail.as_slices();
        self.write(a);
        self.write(b);
        self.broken.map(|error| format!("{}: log dropped ({error}); the trial went on", self.path.display()))
    }
}

/// Untrusted text made fit for a terminal, a table or a prompt: control and escape characters and the user's
/// secrets gone, white space runs to one space, at most `max` characters.
pub fn plain(text: &str, max: usize) -> String {
    let mut out = String::new();
    let text = secrets().redact(text);
    let mut chars = text.chars().peekable();
    let mut count = 0;
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // an escape sequence: CSI ends at a letter, OSC at BEL or ESC \
            match chars.peek() {
                Some('[') => {
                    chars.by_ref().skip(1).find(|c| ('@'..='~').contains(c));
                }
                Some(']') => {
                    chars.by_ref().find(|c| matches!(c, '\u{7}' | '\\'));
                }
                _ => {
                    chars.next();
                }
            }
            continue;
        }
        let c = if c.is_whitespace() || (c.is_control() && !out.is_empty()) { ' ' } else { c };
        if is_hidden(c) || c.is_control() || (c == ' ' && (out.is_empty() || out.ends_with(' '))) {
            continue;
        }
        if count == max {
            out.push('…');
            break;
        }
        out.push(c);
        count += 1;
    }
    out.truncate(out.trim_end().len());
    out
}

/// Whether a character shows nothing by itself, and may make a line read as something else.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A line of untrusted text with its spacing, for a person who has to see all of it: tabs are four spaces wide,
/// and what steers a terminal, reorders text or cannot be seen is spelled out.
pub fn spelled_out(line: &str) -> String {
    let mut out = String::new();
    for c in line.chars() {
        match c {
            '\t' => out.push_str("    "),
            c if c.is_control() || is_hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// A character of a text with lines, or U+FFFD for one that could steer a terminal.
pub fn harmless(c: char) -> char {
    let steers = c.is_control() && !matches!(c, '\n' | '\t');
    if steers || is_hidden(c) { char::REPLACEMENT_CHARACTER } else { c }
}

/// The last `lines` lines of a log file, reading at most 64 KiB of it; empty when there is none.
pub fn tail_of(path: &Path, lines: usize) -> Vec<String> {
    use std::io::{Read, Seek, SeekFrom};
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = plain_file::open(path)?; // a contestant may have put a FIFO there
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(64 << 10)))?;
        let mut bytes = Vec::new();
        file.take(64 << 10).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| plain(line, 300)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(pieces: &[(Stream, &[u8])]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.log");
        let mut log = RunLog::create(&path);
        pieces.iter().for_each(|(stream, piece)| log.push(*stream, piece));
        assert_eq!(log.close(), None);
        String::from_utf8(std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn only_the_last_state_of_a_redrawn_line_is_kept() {
        assert_eq!(logged(&[(Stream::Out, b"1%\r2%\r100%\nnext\r\nlast")]), "100%\nnext\nlast\n");
        assert_eq!(logged(&[(Stream::Out, b"1%\r"), (Stream::Out, b"\nx\n")]), "1%\nx\n");
    }

    #[test]
    fn lines_of_two_streams_are_not_mixed() {
        let text = logged(&[(Stream::Out, b"ab"), (Stream::Err, b"error\n"), (Stream::Out, b"c\n")]);
        assert_eq!(text, "error\nabc\n");
    }

    #[test]
    fn a_flood_keeps_its_start_and_end_in_bounded_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.log");
        let mut log = RunLog::create(&path);
        log.push(Stream::Out, b"first\n");
        let flood = "x".repeat(99) + "\n";
        for _ in 0..100_000 {
            log.push(Stream::Out, flood.as_bytes());
        }
        log.push(Stream::Err, &vec![b'y'; 1 << 20]); // a line without an end
        log.push(Stream::Out, b"last\n");
        assert_eq!(log.close(), None);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() < HEAD + TAIL + 100, "{}", text.len());
        assert!(text.starts_with("first\n") && text.contains("bytes dropped") && text.contains("\nlast\n"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_costs_the_log_and_says_so() {
        let mut log = RunLog::create(Path::new("/dev/full"));
        log.push(Stream::Out, b"text\n");
        log.push(Stream::Out, b"more\n");
        assert!(log.close().unwrap().contains("log dropped"));
    }

    #[test]
    fn untrusted_text_cannot_steer_a_terminal_or_a_table() {
        assert_eq!(
            plain("a\tb\nc\r\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7}x\u{202e}y\0", 99),
            "a b c redxy"
        );
        assert_eq!(spelled_out("+\tif \u{202e}a\u{1b}[2J\r"), "+    if \\u{202e}a\\u{1b}[2J\\u{d}");
        assert_eq!(plain("abcdef", 3), "abc…");
        assert_eq!(plain("\u{1b}[2J  \n", 9), "");
    }
}
