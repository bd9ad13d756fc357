//! Where in a file a block's lines stand: exactly, else but for white space, and only ever in one place.

use std::{collections::HashMap, fmt};

use super::{QUOTED, head};

/// Pairs of a file's and a block's lines that are compared at most, when the most similar lines are looked for.
const COMPARED: usize = 4 << 20;
/// Similarity below which lines are not worth showing.
const ALIKE: f64 = 0.4;

/// Why lines were not replaced.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Miss {
    /// The lines are nowhere; what resembles them most.
    Nowhere(Option<Near>),
    /// They stand in several places, whose first lines these are, from 1.
    Ambiguous(Vec<usize>),
}

/// Lines that resemble those looked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Near {
    /// The first one's number, from 1.
    line: usize,
    text: String,
    /// Words in common, of 1.
    similarity: f64,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere(None) => f.write_str("the SEARCH part is not in the file, nor anything like it"),
            Self::Nowhere(Some(Near { line, text, similarity })) => write!(
                f,
                "the SEARCH part is not in the file. The most similar lines begin at line {line} ({:.0} % alike):\n{}",
                similarity * 100.0,
                head(text, QUOTED)
            ),
            Self::Ambiguous(lines) => {
                let shown: Vec<String> = lines.iter().take(8).map(usize::to_string).collect();
                write!(
                    f,
                    "the SEARCH part stands in {} places (lines {}); add lines around it",
                    lines.len(),
                    shown.join(", ")
                )
            }
        }
    }
}

/// The file with `search`, whole lines, replaced.
pub(super) fn place(text: &str, search: &str, replace: &str) -> Result<String, Miss> {
    let lines: Vec<&str> = text.split_terminator('\n').collect();
    let search: Vec<&str> = search.split_terminator('\n').collect();
    let replace: Vec<&str> = replace.split_terminator('\n').collect();
    let found = |same: fn(&str, &str) -> bool| -> Vec<usize> {
        let at = |start: &usize| lines[*start..].iter().zip(&search).all(|(a, b)| same(a, b));
        (0..(lines.len() + 1).saturating_sub(search.len())).filter(at).collect()
    };
    let blank = search.iter().all(|line| line.trim().is_empty());
    let same: [fn(&str, &str) -> bool; 3] =
        [|a, b| a == b, |a, b| a.trim_end() == b.trim_end(), |a, b| a.trim() == b.trim()];
    for (level, same) in same.into_iter().enumerate() {
        if level > 0 && blank {
            break; // blank lines are much like other blank lines
        }
        let starts = found(same);
        let start = match starts[..] {
            [] => continue,
            [start] => start,
            _ => return Err(Miss::Ambiguous(starts.iter().map(|start| start + 1).collect())),
        };
        let old = &lines[start..start + search.len()];
        let new = match level {
            0 => Some(replace.iter().map(|line| (*line).to_owned()).collect()),
            _ => adapted(old, &search, &replace),
        };
        let Some(new) = new else { break };
        return Ok(joined(text, &lines[..start], &new, &lines[start + search.len()..]));
    }
    Err(Miss::Nowhere(nearest(&lines, &search)))
}

/// The new lines with the white space of those they replace. `None` where the indentation of the two does not
/// differ by one prefix throughout: then it may mean something.
fn adapted(old: &[&str], search: &[&str], replace: &[&str]) -> Option<Vec<String>> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let filled = || old.iter().zip(search).filter(|(_, line)| !line.trim().is_empty());
    let (outer, least) = filled().min_by_key(|(_, line)| indent(line))?;
    let (from, to) = (&least[..indent(least)], &outer[..indent(outer)]);
    let moved = |line: &str| match from == to {
        true => Some(line.to_owned()),
        false => line.strip_prefix(from).map(|rest| format!("{to}{rest}")),
    };
    for (there, line) in filled() {
        let line = moved(line)?;
        (line[..indent(&line)] == there[..indent(there)]).then_some(())?;
    }
    let end = if old.iter().any(|line| line.ends_with('\r')) { "\r" } else { "" };
    let fitted = |line: &&str| {
        let line = line.trim_end_matches('\r');
        let line = if line.trim().is_empty() { Some(String::new()) } else { moved(line) };
        line.map(|line| line + end)
    };
    replace.iter().map(fitted).collect()
}

/// The file anew; it ends as it did, with a newline or without.
fn joined(text: &str, before: &[&str], new: &[String], after: &[&str]) -> String {
    let lines = before.iter().copied().chain(new.iter().map(String::as_str)).chain(after.iter().copied());
    let mut whole: String = lines.flat_map(|line| [line, "\n"]).collect();
    if !text.ends_with('\n') && !text.is_empty() {
        whole.pop();
    }
    whole
}

/// The lines that have most words in common with those looked for.
fn nearest(lines: &[&str], search: &[&str]) -> Option<Near> {
    let length = search.len().clamp(1, lines.len().max(1));
    if lines.len().saturating_mul(length) > COMPARED {
        return None;
    }
    let mut wanted: HashMap<&str, usize> = HashMap::new();
    search.iter().flat_map(|line| words(line)).for_each(|word| *wanted.entry(word).or_default() += 1);
    let total: usize = wanted.values().sum();
    let alike = |window: &[&str]| {
        let (mut left, mut common, mut here) = (wanted.clone(), 0, 0);
        for word in window.iter().flat_map(|line| words(line)) {
            here += 1;
            if let Some(count) = left.get_mut(word).filter(|count| **count > 0) {
                *count -= 1;
                common += 1;
            }
        }
        2.0 * f64::from(common) / (f64::from(here) + total as f64).max(1.0) // Dice's coefficient
    };
    let windows = lines.windows(length).map(alike).enumerate();
    // the first of equals
    let (start, similarity) = windows.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
    let text = lines[start..start + length].join("\n");
    (similarity >= ALIKE).then_some(Near { line: start + 1, text, similarity })
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
