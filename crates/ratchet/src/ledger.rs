//! `results.tsv`, a projection of the journal for people and for readers of such files.

use serde_json::Value;

use crate::{
    error::{Error, Result},
    journal::{Status, TrialRecord},
    plain_file,
    runlog::plain,
    state::{State, replace},
};

/// Characters of a description that stand in the table.
pub const DESCRIPTION: usize = 200;

/// The whole table, header first, tab-separated.
pub fn table(metric: &str, trials: &[TrialRecord]) -> Result<Vec<u8>> {
    let broken = |error: csv::Error| Error::internal("could not write the results").because(error);
    let mut writer = csv::WriterBuilder::new().delimiter(b'\t').from_writer(Vec::new());
    writer
        .write_record([
            "commit",
            metric,
            "memory_gb",
            "status",
            "description",
            "trial",
            "delta",
            "seconds",
            "tokens_M",
            "mfu",
            "lines",
            "proposer",
            "parent",
            "outcome",
        ])
        .map_err(broken)?;
    for trial in trials {
        // a crash reads 0.000000 and 0.0, as in every such file; its status says that it is no value
        let crashed = trial.status == Status::Crash;
        let memory = if crashed { 0.0 } else { trial.memory_gb };
        let or_empty =
            |value: Option<f64>, digits: usize| value.map_or(String::new(), |v| format!("{v:.digits$}"));
        writer
            .write_record([
                trial.commit.as_deref().map_or("", |commit| &commit[..7.min(commit.len())]),
                &format!("{:.6}", trial.value.filter(|_| !crashed).unwrap_or(0.0)),
                &format!("{memory:.1}"),
                trial.status.as_str(),
                // quotes would be doubled, which line-by-line readers do not undo
                &plain(&trial.proposal.description, DESCRIPTION).replace('"', "'"),
                &trial.trial.to_string(),
                &trial.delta.map_or(String::new(), |delta| format!("{delta:+.6}")),
                &format!("{:.1}", trial.seconds),
                &or_empty(trial.tokens_m, 3),
                &or_empty(trial.mfu_percent, 2),
                &trial.lines.to_string(),
                &plain(&trial.proposer, 40).replace('"', "'"),
                &trial.parent.map_or(String::new(), |parent| parent.to_string()),
                &plain(&trial.verdict.outcome, 40).replace('"', "'"),
            ])
            .map_err(broken)?;
    }
    writer
        .into_inner()
        .map_err(|error| Error::internal("could not write the results").because(error.to_string()))
}

/// The rows as JSON objects by column: numbers as numbers, null for what is empty and for a crash's value.
pub fn json(metric: &str, trials: &[TrialRecord]) -> Result<Vec<Value>> {
    let broken = |error: csv::Error| Error::internal("could not read the results").because(error);
    let table = table(metric, trials)?;
    let mut reader = csv::ReaderBuilder::new().delimiter(b'\t').from_reader(table.as_slice());
    let head = reader.headers().map_err(broken)?.clone();
    let numbers = [metric, "memory_gb", "trial", "delta", "seconds", "tokens_M", "mfu", "lines", "parent"];
    let mut rows = Vec::new();
    for (row, trial) in reader.records().zip(trials) {
        let row = row.map_err(broken)?;
        let cell = |(name, text): (&str, &str)| {
            let unknown = trial.status == Status::Crash && (name == metric || name == "memory_gb");
            let value = match numbers.contains(&name) {
                _ if text.is_empty() || unknown => Value::Null,
                true => text.parse::<serde_json::Number>().map_or(Value::Null, Value::Number),
                false => Value::String(text.to_owned()),
            };
            (name.to_owned(), value)
        };
        rows.push(Value::Object(head.iter().zip(row.iter()).map(cell).collect()));
    }
    Ok(rows)
}

/// Writes the table, whole or not at all; does nothing when it stands there already.
pub fn write(state: &State, metric: &str, trials: &[TrialRecord]) -> Result<()> {
    let (path, table) = (state.results(), table(metric, trials)?);
    if plain_file::read(&path).is_ok_and(|old| old == table) {
        return Ok(());
    }
    replace(&path, &state.dir().join("results.tsv.new"), &table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::record;

    #[test]
    fn every_existing_reader_can_read_the_table() {
        // the oracle is a reader as simple as they come: split at newlines and tabs
        let mut crash = record(2, Status::Crash, None);
        crash.proposal.description = "tab\there \"quoted\"\nand a line\u{1b}[31m".into();
        let table =
            String::from_utf8(table("val_bpb", &[record(1, Status::Keep, Some(1.25)), crash]).unwrap())
                .unwrap();
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!(lines[0][..5], ["commit", "val_bpb", "memory_gb", "status", "description"]);
        assert_eq!(lines[1][1..6], ["1.250000", "0.0", "keep", "number 1", "1"]);
        assert_eq!(lines[2][1..5], ["0.000000", "0.0", "crash", "tab here 'quoted' and a line"]);
        assert!(lines.iter().all(|line| line.len() == 14) && lines.len() == 3);
    }

    #[test]
    fn rows_as_json_rank_no_crash() {
        let crash = record(2, Status::Crash, None);
        let rows = json("val_bpb", &[record(1, Status::Keep, Some(1.25)), crash]).unwrap();
        assert_eq!((&rows[0]["val_bpb"], &rows[0]["status"]), (&1.25.into(), &"keep".into()));
        assert_eq!((&rows[1]["val_bpb"], &rows[1]["trial"]), (&Value::Null, &2.into()));
    }

    #[test]
    fn a_lost_or_edited_table_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(dir.path());
        state.create().unwrap();
        let path = state.results();
        let trials = [record(1, Status::Keep, Some(1.0))];
        write(&state, "loss", &trials).unwrap();
        let first = std::fs::read(&path).unwrap();
        std::fs::write(&path, "edited").unwrap();
        write(&state, "loss", &trials).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
    }
}
