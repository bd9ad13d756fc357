//! The built-in search: moves the tunables that the source marks as knobs.
//!
//! A knob is a value with a marker behind it, `pub const LR: f64 = 0.04; // knob: log 0.005..0.2`, in any
//! text file of the task. The search needs no model and no key, and keeps no state of its own: what it
//! knows it reads from the trials, and a seed decides between equals.

use std::collections::BTreeMap;

use rand::{SeedableRng, rngs::StdRng};

pub(crate) use self::marker::Knob;
pub use self::tpe::Tpe;
pub(crate) use self::tunables::Tunables;
use self::{
    history::History,
    search::{Move, Search, Targets},
};
use super::{Brief, Edit, KnobChange, Proposal, ProposeError, Proposer, SourceFile};
use crate::{config::Goal, source::TreeHash};

mod history;
mod marker;
mod scale;
mod search;
mod surface;
#[cfg(test)]
mod tests;
mod tpe;
mod tunables;

/// The name of the built-in search.
pub const NAME: &str = "knobs";

/// The proposer `knobs`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Knobs;

impl Proposer for Knobs {
    fn name(&self) -> &str {
        NAME
    }

    /// Moves one or a few knobs of the champion.
    ///
    /// Fails on a marker that cannot be followed, naming its file and line, and when no place is left to
    /// try. The same brief always gives the same proposal.
    fn propose(&mut self, brief: &Brief<'_>) -> Result<Proposal, ProposeError> {
        if brief.repair.is_some() {
            return Err(ProposeError::CannotRepair);
        }
        let knobs = knobs(brief.files, brief.profile)?;
        let history =
            History::read(&knobs, brief.trials, brief.start.trial().or(brief.best), brief.metric.goal);
        let frozen = |to: &[(usize, String)]| {
            to.iter().any(|(axis, _)| brief.demand.frozen.contains(&knobs[*axis].name))
        };
        let fresh = |to: &[(usize, String)]| {
            let files: BTreeMap<&str, String> =
                brief.files.iter().map(|file| (file.path.as_str(), edited(file, &knobs, to))).collect();
            !history.tried.contains(&TreeHash::of(&files))
        };
        let next = |fresh: &dyn Fn(&Targets) -> bool| {
            let search = Search { knobs: &knobs, history: &history, strategy: brief.demand.strategy, fresh };
            search.next(&mut StdRng::seed_from_u64(brief.seed))
        };
        // what is frozen is moved when all else was tried
        let next = next(&|to| !frozen(to) && fresh(to)).or_else(|| next(&fresh)).ok_or_else(|| {
            ProposeError::Exhausted(format!("all values of the {} marked knobs were tried", knobs.len()))
        })?;
        Ok(proposal(brief, &knobs, &history, next))
    }
}

/// The marked values that differ between two states of the files, whoever changed them; none where a marker cannot
/// be followed.
pub(crate) fn moved(before: &[SourceFile], after: &[SourceFile], profile: Option<&str>) -> Vec<KnobChange> {
    let (Ok(before), Ok(after)) = (knobs(before, profile), knobs(after, profile)) else { return Vec::new() };
    let change = |new: Knob| {
        let old = before.iter().find(|old| old.name == new.name && old.text != new.text)?;
        Some(KnobChange { name: new.name, from: old.text.clone(), to: new.text })
    };
    after.into_iter().filter_map(change).collect()
}

/// All knobs of the files, in the order of files and lines.
pub(crate) fn knobs(files: &[SourceFile], profile: Option<&str>) -> Result<Vec<Knob>, ProposeError> {
    let mut knobs: Vec<Knob> = Vec::new();
    for file in files {
        let found = marker::find(&file.path, &file.text, profile);
        for mut knob in found.map_err(|error| ProposeError::Failed(error.to_string()))? {
            let same = |other: &&Knob| other.name.split('#').next() == Some(knob.name.as_str());
            let count = knobs.iter().filter(same).count();
            if count > 0 {
                knob.name = format!("{}#{}", knob.name, count + 1);
            }
            knobs.push(knob);
        }
    }
    if knobs.is_empty() {
        return Err(ProposeError::Exhausted(
            "no editable file marks a knob; write for example `// knob: log 0.005..0.2` behind a value"
                .to_owned(),
        ));
    }
    Ok(knobs)
}

/// How many knobs the files mark. Fails on a marker that cannot be followed, naming its file and line.
pub fn count(files: &[SourceFile], profile: Option<&str>) -> Result<usize, String> {
    match knobs(files, profile) {
        Ok(knobs) => Ok(knobs.len()),
        Err(ProposeError::Exhausted(_)) => Ok(0),
        Err(error) => Err(error.to_string()),
    }
}

/// The edits that give the knob of this name a value. `None` when no file marks one.
///
/// Fails on a marker that cannot be followed, naming its file and line.
pub fn with_knob(
    files: &[SourceFile],
    profile: Option<&str>,
    name: &str,
    value: &str,
) -> Result<Option<Vec<Edit>>, String> {
    let knobs = match knobs(files, profile) {
        Ok(knobs) => knobs,
        Err(ProposeError::Exhausted(_)) => return Ok(None), // there is no knob at all
        Err(error) => return Err(error.to_string()),
    };
    let Some(axis) = knobs.iter().position(|knob| knob.name == name) else { return Ok(None) };
    let edits = files.iter().filter(|file| file.path == knobs[axis].path).map(|file| Edit {
        path: file.path.clone(),
        text: edited(file, &knobs, &[(axis, value.to_owned())]),
    });
    Ok(Some(edits.collect()))
}

/// The file's text with these knobs moved.
fn edited(file: &SourceFile, knobs: &[Knob], to: &[(usize, String)]) -> String {
    let mut here: Vec<(&Knob, &str)> = to
        .iter()
        .map(|(axis, text)| (&knobs[*axis], text.as_str()))
        .filter(|(knob, _)| knob.path == file.path)
        .collect();
    here.sort_by_key(|(knob, _)| std::cmp::Reverse(knob.span.start)); // later spans first: earlier ones stay valid
    let mut text = file.text.clone();
    here.iter().for_each(|(knob, new)| text.replace_range(knob.span.clone(), new));
    text
}

fn proposal(brief: &Brief<'_>, knobs: &[Knob], history: &History, next: Move) -> Proposal {
    let changes: Vec<KnobChange> = next
        .to
        .iter()
        .map(|(axis, text)| KnobChange {
            name: knobs[*axis].name.clone(),
            from: knobs[*axis].text.clone(),
            to: text.clone(),
        })
        .collect();
    let description: Vec<String> =
        changes.iter().map(|change| format!("{} {} → {}", change.name, change.from, change.to)).collect();
    let names: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
    let gains: Option<Vec<f64>> =
        next.to.iter().map(|(axis, _)| history.axes[*axis].expected_gain()).collect();
    let gain = gains.map(|gains| gains.iter().sum::<f64>());
    let edits = brief.files.iter().filter_map(|file| {
        let text = edited(file, knobs, &next.to);
        (text != file.text).then(|| Edit { path: file.path.clone(), text })
    });
    Proposal {
        description: description.join(", "),
        hypothesis: next.why,
        category: names.join("+"),
        expected_delta: gain.map(|gain| if brief.metric.goal == Goal::Minimize { -gain } else { gain }),
        edits: edits.collect(),
        changes,
        ..Proposal::default()
    }
}
