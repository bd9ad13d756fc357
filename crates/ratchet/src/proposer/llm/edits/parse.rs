//! Finds blocks in an answer.
//!
//! ````text
//! src/a.rs
//! ```
//! <<<<<<< SEARCH
//! lines as they stand
//! =======
//! lines that take their place
//! >>>>>>> REPLACE
//! ```
//! ````
//!
//! The fence is for people. A marker has seven characters or more; the three of a block have equally many, so
//! that a block can hold markers. In the other form a path is followed by a fence that holds a whole file.

use super::{Block, Change, Failure};

/// Characters of a marker, at least.
const MARKER: usize = 7;

/// How an answer writes its edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Form {
    /// Search and replace.
    Blocks,
    /// Whole files in fences of at least so many backticks; shorter ones are part of a file.
    WholeFiles { fence: usize },
}

/// The blocks of an answer, and what looks like one and is none.
pub(in super::super) fn parse(answer: &str, form: Form) -> (Vec<Block>, Vec<Failure>) {
    let mut lines = Lines(answer.split_terminator('\n').peekable());
    let mut path: Option<String> = None;
    let (mut blocks, mut failures) = (Vec::new(), Vec::new());
    while let Some(line) = lines.0.next() {
        let change = match form {
            Form::Blocks => marker(line, '<', "SEARCH").map(|length| lines.replace(length)),
            // a fence without a path above it is an example in the prose
            Form::WholeFiles { fence } => fence_of(line)
                .filter(|length| *length >= fence && path.is_some())
                .map(|length| lines.whole(length)),
        };
        let Some(change) = change else {
            let skipped = line.trim().is_empty() || fence_of(line).is_some();
            match (named(line), form) {
                _ if skipped => {}
                (Some(named), _) => path = Some(named),
                (None, Form::WholeFiles { .. }) => path = None,
                (None, Form::Blocks) => {} // several blocks may follow one path, with prose between them
            }
            continue;
        };
        match (change, &path) {
            (Ok(change), Some(path)) => blocks.push(Block { path: path.clone(), change }),
            (Ok(_), None) => failures.push(Failure::malformed(None, "a block has no path above it")),
            (Err(what), _) => failures.push(Failure::malformed(path.clone(), what)),
        }
        if form != Form::Blocks {
            path = None;
        }
    }
    (blocks, failures)
}

struct Lines<'a>(std::iter::Peekable<std::str::SplitTerminator<'a, char>>);

impl Lines<'_> {
    /// What follows `<<<<<<< SEARCH`.
    fn replace(&mut self, length: usize) -> Result<Change, &'static str> {
        // a next block begins: this one was left open
        let left = |line: &str| marker(line, '<', "SEARCH") == Some(length);
        let divides = |line: &str| run(line.trim_end(), '=') == Some(length);
        let search = self.until(divides, left);
        let search = search.ok_or("a block has no ======= line; it needs SEARCH, =======, REPLACE")?;
        let ends = |line: &str| marker(line, '>', "REPLACE") == Some(length);
        let replace = self.until(ends, left);
        let replace = replace.ok_or("a block does not end with >>>>>>> REPLACE; was the answer cut off?")?;
        Ok(Change::Replace { search, replace })
    }

    /// What follows the fence of a whole file.
    fn whole(&mut self, length: usize) -> Result<Change, &'static str> {
        let ends = |line: &str| {
            fence_of(line).is_some_and(|other| other >= length) && line.trim_end().chars().all(|c| c == '`')
        };
        let text = self.until(ends, |_| false);
        let text = text.ok_or("the file's fence is not closed; was the answer cut off?")?;
        if text.lines().next().is_some_and(|line| marker(line, '<', "SEARCH").is_some()) {
            return Err("a search and replace block stands where the whole file was asked for");
        }
        Ok(Change::Whole(text.replace("\r\n", "\n")))
    }

    /// The lines before the one that ends them, which is taken too.
    fn until(&mut self, ends: impl Fn(&str) -> bool, left: impl Fn(&str) -> bool) -> Option<String> {
        let mut text = String::new();
        while let Some(line) = self.0.next_if(|line| !left(line)) {
            if ends(line) {
                return Some(text);
            }
            text.push_str(line);
            text.push('\n');
        }
        None
    }
}

/// The length of a marker line such as `<<<<<<< SEARCH`.
fn marker(line: &str, sign: char, word: &str) -> Option<usize> {
    let signs = line.trim_end().strip_suffix(word)?.strip_suffix(' ')?;
    run(signs, sign)
}

/// The length of a line of one sign alone.
fn run(line: &str, sign: char) -> Option<usize> {
    (line.len() >= MARKER && line.chars().all(|c| c == sign)).then_some(line.len())
}

/// The backticks that a fence line begins with.
fn fence_of(line: &str) -> Option<usize> {
    let length = line.len() - line.trim_start_matches('`').len();
    (length >= 3).then_some(length)
}

/// The path that a line consists of, without what people put around one.
fn named(line: &str) -> Option<String> {
    let path = line.trim().trim_matches(['*', '`', '#', ':', '"', '\'', ' ']);
    let path = path.strip_prefix("./").unwrap_or(path);
    let like_one = !path.contains(char::is_whitespace) && path.contains(['.', '/']) && !path.ends_with('.');
    like_one.then(|| path.to_owned())
}
