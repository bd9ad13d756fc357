//! Where the champion is weak: the rows of the training text that it pays most for, for an analyst to read.
//!
//! Of validation and audit rows a proposer learns one number and nothing else.

use std::{collections::HashMap, f64::consts::LN_2, fmt::Write, path::Path};

use serde_json::Value as Json;

use crate::{
    error::{Error, Result},
    measure::Failure,
    plain_file,
    progress::{Observer, Progress},
    runlog::plain,
    session::Session,
    state::write_new,
};

/// The file in the champion's trial folder.
pub(crate) const FILE: &str = "weak.md";
/// Rows that the champion is asked for.
const ASKED: usize = 64;
/// Rows that are shown, the worst ones.
const SHOWN: usize = 6;
/// Characters of a row that are shown.
const LONGEST: usize = 240;

impl Session {
    /// Writes the champion's worst rows beside its records, once; a task without exam rows has none.
    ///
    /// What goes wrong is told and costs an analyst this one source.
    pub(crate) fn note_weak_rows(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let Some(champion) = self.history().champion().map(|record| record.trial) else { return Ok(()) };
        let file = self.dir.trial(champion).join(FILE);
        if !self.task.score.exam || file.exists() || !self.dir.model(champion).exists() {
            return Ok(());
        }
        let text = self.weak_rows(champion).unwrap_or_else(|error| {
            observer.tell(Progress::Note(&format!("the champion's worst rows are not known: {error}")));
            String::new()
        });
        self.restore()?;
        write_new(&file, text.as_bytes())
    }

    fn weak_rows(&self, champion: u64) -> Result<String> {
        let Some((exam, rows, vocabulary)) = self.setting.development_exam(ASKED)? else {
            return Ok(String::new());
        };
        let folder = self.dir.path().join("development");
        match self.with_model(champion, folder, |bench| bench.nats(&exam))? {
            Ok(nats) => {
                let rows: Vec<String> = rows.iter().map(|row| vocabulary.text(row)).collect();
                Ok(worst(&nats, exam.row_bytes(), &rows))
            }
            Err(Failure::Crash(crash)) => Err(Error::internal(crash.reason)),
            Err(Failure::Stopped) => Err(Error::internal("stopped")),
        }
    }
}

/// The rows with the most bits a byte, worst first, a line each. nats, bytes, rows: (rows).
fn worst(nats: &[f64], bytes: &[u64], rows: &[String]) -> String {
    let mut order: Vec<(f64, &String)> = (nats.iter().zip(bytes).zip(rows))
        .filter(|((nats, bytes), _)| nats.is_finite() && **bytes > 0)
        .map(|((nats, bytes), row)| (nats / (LN_2 * *bytes as f64), row))
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mean = order.iter().map(|(bits, _)| bits).sum::<f64>() / order.len().max(1) as f64;
    let mut text = format!("{} rows, {mean:.3} bits a byte on average\n", order.len());
    for (bits, row) in order.iter().take(SHOWN) {
        let _ = writeln!(text, "{bits:.3}: {}", plain(row, LONGEST));
    }
    text
}

/// What each id of a byte-level vocabulary stands for.
pub(crate) struct Vocabulary(HashMap<u16, Vec<u8>>);

impl Vocabulary {
    /// Reads a `tokenizer.json`.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let wrong =
            |why: String| Error::environment(format!("not the tokenizer that it should be: {why}")).at(path);
        let text = plain_file::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let json: Json = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let vocabulary =
            json["model"]["vocab"].as_object().ok_or_else(|| wrong("it has no vocabulary".to_owned()))?;
        let bytes: HashMap<char, u8> = (0..=255).map(|byte| (shown_as(byte), byte)).collect();
        let entry = |(word, id): (&String, &Json)| {
            let bytes = word.chars().map(|char| bytes.get(&char).copied()).collect::<Option<Vec<u8>>>();
            // a special token is no text
            Some((u16::try_from(id.as_u64()?).ok()?, bytes.unwrap_or_default()))
        };
        Ok(Self(vocabulary.iter().filter_map(entry).collect()))
    }

    /// ids: (row) as text; bytes that are none are replaced.
    fn text(&self, ids: &[u16]) -> String {
        let bytes: Vec<u8> = ids.iter().filter_map(|id| self.0.get(id)).flatten().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The character that stands for a byte in a byte-level vocabulary: itself where it can be seen, else one of those
/// from 256 on, in order (GPT-2's `bytes_to_unicode`).
fn shown_as(byte: u8) -> char {
    let seen = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if seen(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !seen(*byte)).count() as u32;
    char::from_u32(256 + before).unwrap_or('?') // 256 to 323 are letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_level_vocabulary_is_read_back_into_text() {
        // Oracle: by hand. In GPT-2's table a space is Ġ, a newline Ċ, é is the two bytes Ã ©.
        assert_eq!((shown_as(b' '), shown_as(b'\n'), shown_as(0xC3), shown_as(0xA9)), ('Ġ', 'Ċ', 'Ã', '©'));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let json = r#"{"model": {"vocab": {"caf": 0, "Ã©": 1, "Ġau": 2, "Ċ": 3, "<|bos|> ": 4}}}"#;
        std::fs::write(&path, json).unwrap();
        assert_eq!(Vocabulary::read(&path).unwrap().text(&[4, 0, 1, 2, 3, 900]), "café au\n");
        std::fs::write(&path, "{}").unwrap();
        assert!(Vocabulary::read(&path).is_err());
    }

    #[test]
    fn the_worst_rows_come_first_and_stay_on_a_line() {
        let rows: Vec<String> = (0..10).map(|i| format!("row\n{i}\u{1b}[2J")).collect();
        let nats: Vec<f64> = (0..10).map(|i| if i == 4 { f64::NAN } else { f64::from(i) * LN_2 }).collect();
        let text = worst(&nats, &[1; 10], &rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + SHOWN);
        assert!(lines[1].starts_with("9.000: row 9"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
