//! Finds the tunables that a source marks, and the bytes that hold their values.
//!
//! One marker a line, behind the value, in the language's own comment: `// knob: log 0.005..0.2` or
//! `# knob: int 1..8`. What follows a `;` or a dash is for people.

use std::ops::Range;

use super::scale::Scale;

/// A tunable as it stands in a source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Knob {
    /// The constant's name; later ones of the same name in the same task are told apart by `#2`, `#3`, …
    pub(crate) name: String,
    /// The file, relative to the root.
    pub(crate) path: String,
    /// The value's bytes in that file.
    pub(crate) span: Range<usize>,
    /// The value as it stands there.
    pub(crate) text: String,
    /// Where it may go.
    pub(crate) scale: Scale,
}

/// A marker that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}:{line}: knob: {problem}")]
pub(super) struct MarkerError {
    path: String,
    line: usize,
    problem: String,
}

/// Finds the knobs of one file, in the order of their lines.
///
/// Of a line such as `PerProfile { full: 8, laptop: 2, smoke: 2 }` the running profile's value is the knob.
pub(super) fn find(path: &str, text: &str, profile: Option<&str>) -> Result<Vec<Knob>, MarkerError> {
    let mut knobs = Vec::new();
    let mut start = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let found = knob(path, line, profile).map_err(|problem| MarkerError {
            path: path.to_owned(),
            line: index + 1,
            problem,
        })?;
        if let Some(mut knob) = found {
            knob.span = knob.span.start + start..knob.span.end + start;
            knobs.push(knob);
        }
        start += line.len();
    }
    Ok(knobs)
}

fn knob(path: &str, line: &str, profile: Option<&str>) -> Result<Option<Knob>, String> {
    let Some((code, marker)) = split_marker(path, line) else { return Ok(None) };
    let end = marker.find([';', '\n']).unwrap_or(marker.len()).min(marker.find(" — ").unwrap_or(usize::MAX));
    let scale: Scale = marker[..end].parse()?;
    let (name, span) = match assignment(code) {
        Some((name, value)) => (name, per_profile(code, value, profile)?),
        None => return Err("no value in front of it; write it behind `name = value` on one line".to_owned()),
    };
    let text = code[span.clone()].to_owned();
    scale.check(&text)?;
    Ok(Some(Knob { name: name.to_owned(), path: path.to_owned(), span, text, scale }))
}

/// Splits a line into the code and what follows `knob:`. A line that is a comment as a whole holds no knob.
fn split_marker<'a>(path: &str, line: &'a str) -> Option<(&'a str, &'a str)> {
    let comments: &[&str] = if path.ends_with(".rs") { &["//"] } else { &["#", "//"] };
    comments.iter().find_map(|comment| {
        let (at, marker) = line.match_indices(comment).find_map(|(at, _)| {
            let marker = line[at + comment.len()..].trim_start().strip_prefix("knob:")?;
            Some((at, marker))
        })?;
        let code = &line[..at];
        let commented_out = comments.iter().any(|comment| code.trim_start().starts_with(comment));
        (!commented_out).then_some((code, marker))
    })
}

/// The name and the bytes of the value in `pub const NAME: f64 = 0.04;`, `name = 0.04`, `name: 0.04,`.
fn assignment(code: &str) -> Option<(&str, Range<usize>)> {
    let bytes = code.as_bytes();
    let lone = |at: usize| {
        let touches = |byte: Option<&u8>| byte.is_some_and(|byte| b"=<>!+-*/%&|^".contains(byte));
        !touches(bytes.get(at + 1)) && !touches(at.checked_sub(1).and_then(|before| bytes.get(before)))
    };
    let equals = code.match_indices('=').map(|(at, _)| at).find(|at| lone(*at));
    let colon = || {
        let double = |at: usize| bytes.get(at + 1) == Some(&b':') || at > 0 && bytes[at - 1] == b':';
        code.match_indices(':').map(|(at, _)| at).find(|at| !double(*at))
    };
    let at = equals.or_else(colon)?;
    let left = colon().filter(|colon| *colon < at).unwrap_or(at);
    let name = code[..left].split_whitespace().next_back()?.trim_matches(['"', '\'']);
    let value = code[at + 1..].trim_end().trim_end_matches([';', ',']).trim_end();
    let start = at + 1 + (value.len() - value.trim_start().len());
    let end = at + 1 + value.len();
    (start < end && !name.is_empty()).then_some((name, start..end))
}

/// Narrows a value of the form `PerProfile { a: 1, b: 2 }` to the running profile's field.
fn per_profile(code: &str, value: Range<usize>, profile: Option<&str>) -> Result<Range<usize>, String> {
    let text = &code[value.clone()];
    let Some(fields) = text.strip_prefix("PerProfile").map(str::trim).and_then(|rest| rest.strip_prefix('{'))
    else {
        return Ok(value);
    };
    let profile =
        profile.ok_or("its value differs by profile, but this task has no profiles; write one value")?;
    let mut start = value.end - fields.len();
    for field in fields.trim_end_matches('}').split(',') {
        if let Some((name, number)) = field.split_once(':')
            && name.trim() == profile
        {
            let from = start + field.len() - number.trim_start().len();
            return Ok(from..from + number.trim().len());
        }
        start += field.len() + 1;
    }
    Err(format!("PerProfile has no field `{profile}` on this line; name all profiles on one line"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, line: &str, profile: Option<&str>) -> (String, String, Scale) {
        let knobs = find(path, line, profile).unwrap();
        assert_eq!(knobs.len(), 1, "{line}");
        assert_eq!(line[knobs[0].span.clone()], knobs[0].text);
        (knobs[0].name.clone(), knobs[0].text.clone(), knobs[0].scale.clone())
    }

    #[test]
    fn each_language_marks_in_its_own_comment() {
        let cases = [
            (
                "a.rs",
                "pub const LR: f64 = 0.04; // knob: log 0.005..0.2",
                "LR",
                "0.04",
                Scale::Log(0.005, 0.2),
            ),
            (
                "a.rs",
                "    let mut n: usize = 1 << 13; //knob: pow2 256..65536; Muon",
                "n",
                "1 << 13",
                Scale::Pow2(8, 16),
            ),
            (
                "a.rs",
                "    beta: -0.9, // knob: lin -1..1 — signed\r\n",
                "beta",
                "-0.9",
                Scale::Lin(-1.0, 1.0),
            ),
            (
                "a.rs",
                "static A: a::B = a::C; // knob: choice a::C|a::D",
                "A",
                "a::C",
                Scale::Choice(vec!["a::C".into(), "a::D".into()]),
            ),
            ("a.py", "x = 10  # knob: lin -20..20", "x", "10", Scale::Lin(-20.0, 20.0)),
            ("a.py", "cfg['lr'] = 1e-3 # knob: log 1e-5..1e-1", "cfg['lr']", "1e-3", Scale::Log(1e-5, 1e-1)),
            (
                "a.toml",
                "kind = \"relu\" # knob: choice \"relu\"|\"gelu\"",
                "kind",
                "\"relu\"",
                Scale::Choice(vec!["\"relu\"".into(), "\"gelu\"".into()]),
            ),
            ("a.yaml", "depth: 8 # knob: int 1..16", "depth", "8", Scale::Int(1.0, 16.0)),
            ("a.txt", "ärger = 8_192 # knob: int 1..10_000", "ärger", "8_192", Scale::Int(1.0, 10_000.0)),
        ];
        for (path, line, name, text, scale) in cases {
            assert_eq!(one(path, line, None), (name.to_owned(), text.to_owned(), scale), "{line}");
        }
    }

    #[test]
    fn only_the_running_profile_moves() {
        let line = "pub const D: PerProfile<usize> = PerProfile { full: 8, laptop: 2, smoke: 1 }; // knob: int 1..12";
        for (profile, text) in [("full", "8"), ("laptop", "2"), ("smoke", "1")] {
            assert_eq!(one("a.rs", line, Some(profile)).1, text);
        }
        let problem = |profile| find("t/a.rs", line, profile).unwrap_err().to_string();
        assert!(problem(None).starts_with("t/a.rs:1: knob: its value differs by profile"));
        assert!(problem(Some("other")).contains("no field `other`"));
    }

    #[test]
    fn what_is_no_marker_is_left_alone() {
        let text = "// LR: f64 = 0.04; // knob: log 1..2\n/// x = 1 // knob: y\nlet knob = 3; // knobs: none\n#[a] fn f() {}\n";
        assert_eq!(find("a.rs", text, None), Ok(vec![]));
        assert_eq!(find("a.py", "# x = 1  # knob: lin 0..2\n", None), Ok(vec![]));
    }

    #[test]
    fn a_malformed_marker_names_file_line_and_remedy() {
        let cases = [
            ("x = 1 # knob: logg 1..2", "`logg` is no kind of knob; write log A..B"),
            ("x = 1 # knob: lin 2..1", "the first number must be the smaller"),
            ("x = 1 # knob: lin 1-2", "`1-2` is no range"),
            ("x = 1 # knob: log 0..2", "starts above 0"),
            ("x = 1 # knob: int 0.5..2", "whole numbers"),
            ("x = 2 # knob: pow2 3..8", "powers of two"),
            ("x = 3 # knob: pow2 1..8", "no power of two"),
            ("x = 1 # knob: choice 1", "at least two"),
            ("x = 5 # knob: choice 1|2", "none of 1|2"),
            ("x = y + 1 # knob: lin 1..2", "not a plain number"),
            ("x = nan # knob: lin 1..2", "not a plain number"),
            ("# knob: lin 1..2", "no value in front"),
            ("x = # knob: lin 1..2", "no value in front"),
            ("x = 1 # knob:", "is no kind of knob"),
        ];
        for (line, problem) in cases {
            let error = find("cand/x.py", &format!("\n{line}\n"), None).expect_err(line).to_string();
            assert!(error.starts_with("cand/x.py:2: knob: ") && error.contains(problem), "{line}: {error}");
        }
    }
}
