//! `ratchet audit`: the lineage's kept models on held-out rows that no decision ever saw.
//!
//! A value on the audit rows goes to the journal and to the person who asked; nothing that proposes or
//! judges reads it.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    config::Goal,
    error::{Doing, Error, Result},
    git::remove,
    journal::{Event, Status},
    measure::{Bench, Failure},
    progress::{Observer, Progress},
    runlog::plain,
    sampling,
    session::Session,
};

/// One kept model.
#[derive(Clone, Debug, PartialEq)]
pub struct Audited {
    /// The trial that was kept.
    pub trial: u64,
    /// What it did, in a line.
    pub description: String,
    /// The model's value on the validation rows, which selected it.
    pub selected: f64,
    /// Its value on the audit rows.
    pub audited: f64,
    /// Standard error of the audited gain over the one before, from the choice of rows.
    pub error: Option<f64>,
}

/// What an audit found, oldest keep first.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// The models that there still are.
    pub models: Vec<Audited>,
    /// Kept trials without a model, or whose model has no value; with the reason.
    pub left_out: Vec<(u64, String)>,
    goal: Goal,
}

/// The share of the selected gain below which it did not carry over.
const CARRIES_OVER: f64 = 0.5;

impl Session {
    /// Scores every kept model that there still is. `None` when a stop was asked for; what was scored until
    /// then is in the journal.
    ///
    /// Exit code 2 for a task without exam rows.
    pub fn audit(&mut self, observer: &mut dyn Observer) -> Result<Option<Audit>> {
        if !self.task.score.exam {
            return Err(Error::usage("this task holds no rows back")
                .at(crate::config::FILE)
                .hint("only a task whose [score] says exam = true can be audited"));
        }
        self.ensure_data(observer)?;
        let mut audit = Audit { models: Vec::new(), left_out: Vec::new(), goal: self.task.metric.goal };
        let keeps: Vec<_> =
            self.history().trials().iter().filter(|record| record.status == Status::Keep).cloned().collect();
        let mut before: Option<Vec<f32>> = None;
        for record in keeps {
            let trial = record.trial;
            let Some(selected) = record.values.first().copied() else { continue };
            if !self.dir.model(trial).exists() {
                audit.left_out.push((trial, "its model is no longer kept".to_owned()));
                continue;
            }
            observer.tell(Progress::Note(&format!("auditing trial {trial}")));
            let audited = match self.score_held_out(trial)? {
                Ok(audited) => audited,
                Err(Failure::Stopped) => return Ok(None),
                Err(Failure::Crash(crash)) => {
                    audit.left_out.push((trial, crash.reason));
                    continue;
                }
            };
            let rows = sampling::read(&self.audit_dir(trial));
            let exam = self.setting.audit_exam()?;
            let error = before.as_deref().zip(rows.as_deref());
            let error = error.and_then(|(old, new)| sampling::standard_error(new, old, exam.row_bytes()));
            before = rows;
            let description = plain(&record.proposal.description, 60);
            audit.models.push(Audited { trial, description, selected, audited, error });
        }
        self.restore()?;
        Ok(Some(audit))
    }

    /// One model's value on the audit rows, by its own binary, journalled.
    fn score_held_out(&mut self, trial: u64) -> Result<Result<f64, Failure>> {
        let began = Instant::now();
        let scored = self.with_model(trial, self.audit_dir(trial), |bench| bench.audit())?;
        let value = match scored {
            Ok(value) => value.get(),
            Err(failure) => return Ok(Err(failure)),
        };
        self.journal.append(Event::Audited { trial, value, seconds: began.elapsed().as_secs_f64() })?;
        Ok(Ok(value))
    }

    /// Does something with a kept model and its own binary, in a folder that is emptied first.
    pub(crate) fn with_model<T>(
        &self,
        trial: u64,
        dir: PathBuf,
        act: impl FnOnce(&Bench<'_>) -> Result<T>,
    ) -> Result<T> {
        let model = self.dir.model(trial);
        if dir.exists() {
            remove(&dir)?;
        }
        fs::create_dir_all(&dir).doing("create", &dir)?;
        // beside the model nothing may be written: what was kept stays as it was
        let entries = fs::read_dir(&model).doing("list", &model)?.flatten();
        let parts: Vec<_> = entries.map(|entry| entry.file_name()).filter(|name| name != "bin").collect();
        for name in &parts {
            link(&model.join(name), &dir.join(name))?;
        }
        let place = self.place(dir.clone(), Some(model.join("bin")), 0);
        fs::create_dir_all(place.tmp()).doing("create", &place.tmp())?;
        let bench = Bench { task: &self.task, setting: &self.setting, place, stop: &self.stop };
        let done = act(&bench)?;
        for part in parts.iter().map(|name| dir.join(name)).chain([dir.join("tmp")]) {
            if part.exists() {
                remove(&part)?;
            }
        }
        Ok(done)
    }

    fn audit_dir(&self, trial: u64) -> PathBuf {
        self.dir.path().join("audit").join(format!("{trial:04}"))
    }
}

/// Second names for all files, or copies where there can be none. A link may lead anywhere and stays behind.
fn link(from: &Path, to: &Path) -> Result<()> {
    if from.is_symlink() {
        return Ok(());
    }
    if from.is_dir() {
        fs::create_dir_all(to).doing("create", to)?;
        for entry in fs::read_dir(from).doing("list", from)?.flatten() {
            link(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop)).doing("copy the model to", to)
}

impl Audit {
    /// Gain of the last model over the first, selected and audited; positive is better.
    pub fn total(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.models.first()?, self.models.last()?);
        Some((self.gain(first.selected, last.selected), self.gain(first.audited, last.audited)))
    }

    /// Whether the gain on the rows that selected is found on rows that did not.
    pub fn carries_over(&self) -> bool {
        self.total().is_none_or(|(selected, audited)| selected <= 0.0 || audited >= CARRIES_OVER * selected)
    }

    fn gain(&self, old: f64, new: f64) -> f64 {
        self.goal.gain(old, new)
    }

    /// For a person.
    pub fn text(&self, metric: &str) -> String {
        let mut text = format!(
            "{:>5}  {:>12}  {:>12}  {:>10}  {:>22}  {:>10}  description\n",
            "trial",
            format!("{metric} val"),
            "audit",
            "val gain",
            "audited gain",
            "gap"
        );
        let mut before: Option<&Audited> = None;
        for model in &self.models {
            let (selected, audited, gap) = match before {
                Some(old) => {
                    let selected = self.gain(old.selected, model.selected);
                    let audited = self.gain(old.audited, model.audited);
                    let error = model.error.map_or(String::new(), |error| format!(" ± {error:.6}"));
                    (
                        format!("{selected:+.6}"),
                        format!("{audited:+.6}{error}"),
                        format!("{:+.6}", selected - audited),
                    )
                }
                None => ("-".to_owned(), "-".to_owned(), "-".to_owned()),
            };
            let _ = writeln!(
                text,
                "{:>5}  {:>12.6}  {:>12.6}  {selected:>10}  {audited:>22}  {gap:>10}  {}",
                model.trial, model.selected, model.audited, model.description
            );
            before = Some(model);
        }
        for (trial, reason) in &self.left_out {
            let _ = writeln!(text, "{trial:>5}  left out: {}", plain(reason, 160));
        }
        if let Some((selected, audited)) = self.total().filter(|_| self.models.len() > 1) {
            let _ = writeln!(
                text,
                "total  {selected:+.6} selected, {audited:+.6} audited, gap {:+.6} (each of one run, the trial's first)",
                selected - audited
            );
        }
        if !self.carries_over() {
            text.push_str(
                "warning: the gain on the validation rows does not carry over to the audit rows: what was kept \
                 fits the exam, or is noise\n",
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit(models: &[(f64, f64)]) -> Audit {
        let model = |(trial, (selected, audited)): (u64, &(f64, f64))| Audited {
            trial,
            description: "x".to_owned(),
            selected: *selected,
            audited: *audited,
            error: None,
        };
        Audit { models: (1..).zip(models).map(model).collect(), left_out: vec![], goal: Goal::Minimize }
    }

    #[test]
    fn a_gain_that_is_only_selected_is_warned_of() {
        let real = audit(&[(1.0, 1.1), (0.9, 1.02), (0.8, 0.93)]);
        assert!(real.carries_over());
        let (selected, audited) = real.total().unwrap();
        assert!((selected - 0.2).abs() < 1e-12 && (audited - 0.17).abs() < 1e-12);
        assert!(!real.text("val_bpb").contains("warning"));
        let fitted = audit(&[(1.0, 1.1), (0.9, 1.09), (0.8, 1.08)]);
        assert!(!fitted.carries_over() && fitted.text("val_bpb").contains("does not carry over"));
        assert!(audit(&[(1.0, 1.1)]).carries_over(), "a baseline alone has gained nothing");
        assert!(audit(&[]).carries_over());
    }
}
