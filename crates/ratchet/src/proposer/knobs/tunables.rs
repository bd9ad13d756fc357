//! The tunables as mechanisms see them: plain values in, plain values out.

use mechanism::{Knob as View, Move, Place, Target};
use serde_json::Value;

use super::{
    edited, knobs,
    marker::Knob,
    scale::{Number, Scale},
};
use crate::{
    journal::{Status, TrialRecord},
    proposer::{Edit, KnobChange, ProposeError, SourceFile},
};

/// The tunables of some files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tunables(Vec<Knob>);

impl Tunables {
    /// Reads them; files without any have none. Fails on a marker that cannot be followed, naming its file and line.
    pub(crate) fn read(files: &[SourceFile], profile: Option<&str>) -> Result<Self, String> {
        match knobs(files, profile) {
            Ok(knobs) => Ok(Self(knobs)),
            Err(ProposeError::Exhausted(_)) => Ok(Self::default()), // there is no knob at all
            Err(error) => Err(error.to_string()),
        }
    }

    /// Their names, in the order of files and lines.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|knob| knob.name.as_str())
    }

    /// Each with its value, its range, and how often it was moved.
    pub(crate) fn view(&self, trials: &[TrialRecord], frozen: &[String]) -> Vec<View> {
        let moved = |name: &str, kept: bool| {
            let moves = |record: &&TrialRecord| {
                let counts = !kept || record.status == Status::Keep;
                counts && record.proposal.changes.iter().any(|change| change.name == name)
            };
            trials.iter().filter(moves).count() as u64
        };
        let view = |knob: &Knob| {
            let (kind, low, high) = match &knob.scale {
                Scale::Log(low, high) => ("log", Some(*low), Some(*high)),
                Scale::Lin(low, high) => ("lin", Some(*low), Some(*high)),
                Scale::Int(low, high) => ("int", Some(*low), Some(*high)),
                Scale::Pow2(low, high) => {
                    ("pow2", Some(f64::from(*low).exp2()), Some(f64::from(*high).exp2()))
                }
                Scale::Choice(_) => ("choice", None, None),
            };
            let choices = match &knob.scale {
                Scale::Choice(choices) => choices.clone(),
                _ => Vec::new(),
            };
            View {
                name: knob.name.clone(),
                kind: kind.to_owned(),
                value: value(&knob.scale, &knob.text),
                at: if choices.is_empty() { knob.scale.position(&knob.text).unwrap_or(0.0) } else { 0.0 },
                low,
                high,
                choices,
                frozen: frozen.contains(&knob.name),
                tried: moved(&knob.name, false),
                kept: moved(&knob.name, true),
            }
        };
        self.0.iter().map(view).collect()
    }

    /// What a trial moved. Of a tunable that is no more, how far is not known and counts as 0.
    pub(crate) fn moved(&self, change: &KnobChange) -> Move {
        let scale = self.0.iter().find(|knob| knob.name == change.name).map(|knob| &knob.scale);
        let by = match scale {
            Some(Scale::Choice(_)) => 1.0,
            Some(scale) => match (scale.position(&change.from), scale.position(&change.to)) {
                (Some(from), Some(to)) => to - from,
                _ => 0.0,
            },
            None => 0.0,
        };
        let read = |text: &str| match scale {
            Some(scale) => value(scale, text),
            None => number(text).unwrap_or_else(|| Value::from(text)),
        };
        Move { name: change.name.clone(), from: read(&change.from), to: read(&change.to), by }
    }

    /// The edits that move tunables there, and what is moved. The error says what is not possible.
    pub(crate) fn moves(
        &self,
        files: &[SourceFile],
        targets: &[Target],
    ) -> Result<(Vec<Edit>, Vec<KnobChange>), String> {
        let mut to = Vec::new();
        for target in targets {
            let known = self.0.iter().position(|knob| knob.name == target.name);
            let axis = known.ok_or_else(|| format!("there is no knob {}", target.name))?;
            let knob = &self.0[axis];
            let text = match &target.to {
                Place::At(at) => knob.scale.text(*at, &knob.text),
                Place::Number(number) => {
                    // through its place, so that it is written as the old value is
                    let at = knob.scale.position(&format!("{number:e}"));
                    at.and_then(|at| knob.scale.text(at, &knob.text))
                }
                Place::Choice(choice) => knob.scale.check(choice).ok().map(|()| choice.clone()),
            };
            let text = text.ok_or_else(|| format!("{} cannot go there", target.name))?;
            to.push((axis, text));
        }
        to.retain(|(axis, text)| *text != self.0[*axis].text);
        let changes = to.iter().map(|(axis, text)| KnobChange {
            name: self.0[*axis].name.clone(),
            from: self.0[*axis].text.clone(),
            to: text.clone(),
        });
        let changes = changes.collect();
        let edits = files.iter().filter_map(|file| {
            let text = edited(file, &self.0, &to);
            (text != file.text).then(|| Edit { path: file.path.clone(), text })
        });
        Ok((edits.collect(), changes))
    }
}

/// A value as it stands in a source, as a number where its scale is one of numbers.
fn value(scale: &Scale, text: &str) -> Value {
    match scale {
        Scale::Choice(_) => Value::from(text),
        _ => number(text).unwrap_or_else(|| Value::from(text)),
    }
}

fn number(text: &str) -> Option<Value> {
    let value = Number::parse(text)?.value;
    let whole = value.fract() == 0.0 && value.abs() < 9e15; // exact in both
    Some(if whole && !text.contains(['.', 'e', 'E']) {
        Value::from(value as i64)
    } else {
        Value::from(value)
    })
}
