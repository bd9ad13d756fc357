//! Figures that a referee or a contestant reports, read with suspicion.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::{noise::Value, runlog::plain, verdict::Crash};

/// The longest last line of a `score` that is read.
const LAST_LINE: usize = 64 << 10;

/// What a `score` command's last line says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The metric.
    pub value: Value,
    /// Peak memory, where the referee gives `memory_gb`.
    pub memory_gb: Option<f64>,
}

/// Reads the metric from the last line of a `score` command: a JSON object that holds it.
pub fn read_line(line: &str, metric: &str) -> Result<Figures, Crash> {
    let crash = |outcome: &str, reason: String| Err(Crash { outcome: outcome.to_owned(), reason });
    if line.trim().is_empty() {
        return crash(
            "metric_missing",
            format!("score printed nothing; its last line must be a JSON object with \"{metric}\""),
        );
    }
    let object = match object(line) {
        Ok(object) => object,
        // a number that no f64 holds is a parse error to serde_json, told from others by its words alone
        Err(error) if error.to_string().contains("number out of range") => {
            return crash("not_finite", "score's last line holds a number too large to compare".to_owned());
        }
        Err(_) => {
            let shown = plain(line, 80);
            let reason = format!("score's last line is no JSON object with \"{metric}\": {shown}");
            return crash("metric_missing", reason);
        }
    };
    let value = match object.get(metric) {
        None => return crash("metric_missing", format!("score's last line holds no \"{metric}\"")),
        Some(Json::Number(number)) => number.as_f64().unwrap_or(f64::INFINITY),
        Some(Json::String(text)) if NOT_FINITE.contains(&text.as_str()) => {
            return crash("not_finite", format!("{metric} is {text}, not a finite number"));
        }
        Some(other) => {
            return crash(
                "metric_not_a_number",
                format!("{metric} is not a number but {}", plain(&other.to_string(), 40)),
            );
        }
    };
    let memory_gb = object.get("memory_gb").and_then(Json::as_f64).filter(|gb| gb.is_finite() && *gb >= 0.0);
    match Value::new(value) {
        Ok(value) => Ok(Figures { value, memory_gb }),
        Err(error) => crash("not_finite", error.to_string()),
    }
}

/// How Python, JavaScript and others write what JSON cannot hold. Longest first: one contains another.
const NOT_FINITE: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// The object of a line. Bare NaN and Infinity, which Python prints, become strings of that name.
fn object(line: &str) -> serde_json::Result<Map<String, Json>> {
    if let Ok(object) = serde_json::from_str(line) {
        return Ok(object);
    }
    let mut quoted = String::with_capacity(line.len() + 8);
    let mut rest = line;
    let mut inside = false;
    while let Some(c) = rest.chars().next() {
        if !inside && let Some(word) = NOT_FINITE.iter().find(|word| rest.starts_with(**word)) {
            quoted.push('"');
            quoted.push_str(word);
            quoted.push('"');
            rest = &rest[word.len()..];
            continue;
        }
        let mut length = c.len_utf8();
        match c {
            '"' => inside = !inside,
            '\\' if inside => length += rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => {}
        }
        quoted.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    serde_json::from_str(&quoted)
}

/// What a `fit` says of itself in `fit.json`; every field may be missing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct FitFigures {
    /// The profile trained on.
    pub profile: Option<String>,
    /// The device trained on.
    pub device: Option<String>,
    /// The seed used.
    pub seed: Option<u64>,
    /// Training tokens.
    pub tokens: Option<u64>,
    /// The budget, where it is a time.
    pub budget_s: Option<f64>,
    /// Time inside the budget.
    pub training_seconds: Option<f64>,
    /// Training loss of the last step.
    pub final_loss: Option<f64>,
    /// Most memory held.
    pub peak_mem_bytes: Option<u64>,
    /// Share of the device's peak.
    pub mfu_percent: Option<f64>,
}

impl FitFigures {
    /// Reads `fit.json`; `Ok(None)` when there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, Crash> {
        let bad = |reason: String| Crash { outcome: "claim_impossible".to_owned(), reason };
        // a link or a pipe in its place could stand for anything, or block for ever
        match std::fs::symlink_metadata(path) {
            Err(_) => return Ok(None),
            Ok(meta) if !meta.is_file() || meta.len() > 1 << 20 => {
                return Err(bad("fit.json is no small plain file".into()));
            }
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| bad(format!("fit.json cannot be read: {error}")))?;
        Self::parse(&text).map(Some)
    }

    /// Reads the text of a `fit.json`.
    pub fn parse(text: &str) -> Result<Self, Crash> {
        serde_json::from_str(text).map_err(|error| Crash {
            outcome: "claim_impossible".to_owned(),
            reason: format!("fit.json is not what fit.json should be: {error}"),
        })
    }
}

/// The last line that is not blank, of a stream of any length.
#[derive(Debug, Default)]
pub(crate) struct LastLine {
    current: Vec<u8>,
    last: Vec<u8>,
}

impl LastLine {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LAST_LINE.saturating_sub(self.current.len());
            self.current.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        if !self.current.trim_ascii().is_empty() {
            std::mem::swap(&mut self.last, &mut self.current);
        }
        self.current.clear();
    }

    pub(crate) fn finish(mut self) -> String {
        self.end_line();
        String::from_utf8_lossy(self.last.trim_ascii()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(line: &str) -> String {
        read_line(line, "loss").unwrap_err().outcome
    }

    #[test]
    fn a_number_is_read_wherever_it_stands_in_the_object() {
        let figures = read_line(r#"{"a": [1], "loss": -1.5e-3, "memory_gb": 2.5}"#, "loss").unwrap();
        assert_eq!((figures.value.get(), figures.memory_gb), (-0.0015, Some(2.5)));
        assert_eq!(read_line("{\"loss\": 3}\r", "loss").unwrap().value.get(), 3.0);
    }

    #[test]
    fn what_is_not_finite_is_never_a_value() {
        for line in [
            r#"{"loss": NaN}"#,
            r#"{"x": "a \" NaN", "loss": -Infinity}"#,
            r#"{"loss": Infinity, "y": NaN}"#,
            r#"{"loss": "NaN"}"#,
            r#"{"loss": 1e999}"#,
            r#"{"loss": 1e200}"#,
        ] {
            assert_eq!(outcome(line), "not_finite", "{line}");
        }
        // an unrelated NaN does no harm
        assert_eq!(read_line(r#"{"loss": 1, "other": NaN}"#, "loss").unwrap().value.get(), 1.0);
    }

    #[test]
    fn a_missing_or_odd_metric_is_named() {
        for line in ["", "  ", "done", "[1]", "{\"lossy\": 1}", "{\"loss\": 1", "1.5"] {
            assert_eq!(outcome(line), "metric_missing", "{line}");
        }
        for line in [r#"{"loss": null}"#, r#"{"loss": "0.5"}"#, r#"{"loss": [1]}"#, r#"{"loss": true}"#] {
            assert_eq!(outcome(line), "metric_not_a_number", "{line}");
        }
    }

    #[test]
    fn the_last_line_survives_pieces_blank_lines_and_floods() {
        let mut last = LastLine::default();
        last.push(b"one\ntw");
        last.push(b"o\n\n  \n");
        assert_eq!(last.finish(), "two");
        let mut last = LastLine::default();
        last.push(&vec![b'x'; 1 << 20]);
        last.push(b"\n{}");
        assert_eq!(last.finish(), "{}");
    }
}
