//! The versions of `program.md`, and what came of each.

use report::night::Brief;

use super::told;
use crate::{
    config::Goal,
    error::Result,
    git::unified,
    journal::{Status, TrialRecord},
    plain_file,
    state::State,
};

/// In the order in which they came into force. Trials without a brief (the baseline, those of `try`) belong to none
/// and end none.
pub(super) fn briefs(state: &State, trials: &[TrialRecord], goal: Goal) -> Result<Vec<Brief>> {
    let mut all: Vec<(&str, Brief)> = Vec::new();
    let mut champion: Option<f64> = None;
    let mut before = None; // the champion's value when the version came into force
    for record in trials {
        if let Some(version) = &record.program {
            match all.last_mut() {
                Some((latest, brief)) if latest == version => brief.to = record.trial,
                _ => {
                    before = champion;
                    let brief = Brief { from: record.trial, to: record.trial, ..Brief::default() };
                    all.push((version, brief));
                }
            }
        }
        if record.status != Status::Keep {
            continue;
        }
        champion = record.value;
        if let Some((_, brief)) = all.last_mut().filter(|_| record.program.is_some()) {
            brief.keeps += 1;
            brief.gain = before.zip(champion).map(|(before, now)| goal.gain(before, now));
        }
    }
    let mut old = String::new();
    let mut briefs = Vec::new();
    for (version, mut brief) in all {
        let file = state.briefs().join(format!("{version}.md"));
        match plain_file::read_to_string(&file) {
            Ok(text) => {
                brief.diff = told(&unified("program.md", &old, &text)?);
                old = text;
            }
            Err(error) => brief.diff = format!("{}: {error}", file.display()),
        }
        briefs.push(brief);
    }
    Ok(briefs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::record;

    #[test]
    fn each_version_has_its_trials_keeps_and_gain_and_one_that_comes_back_stands_twice() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(dir.path());
        std::fs::create_dir_all(state.briefs()).unwrap();
        std::fs::write(state.briefs().join("a.md"), "look wide\n").unwrap();
        std::fs::write(state.briefs().join("b.md"), "look deep\n").unwrap();
        let under = |trial, version: &str, status, value| TrialRecord {
            program: Some(version.to_owned()),
            ..record(trial, status, value)
        };
        let trials = [
            record(1, Status::Keep, Some(2.0)),
            under(2, "a", Status::Keep, Some(1.75)),
            under(3, "a", Status::Discard, Some(1.9)),
            record(4, Status::Keep, Some(1.5)), // a person's
            under(5, "b", Status::Crash, None),
            under(6, "b", Status::Keep, Some(1.25)),
            under(7, "a", Status::Discard, Some(3.0)),
        ];
        let briefs = briefs(&state, &trials, Goal::Minimize).unwrap();
        let figures: Vec<_> = briefs.iter().map(|b| (b.from, b.to, b.keeps, b.gain)).collect();
        assert_eq!(figures, [(2, 3, 1, Some(0.25)), (5, 6, 1, Some(0.25)), (7, 7, 0, None)]);
        assert!(briefs[0].diff.contains("+look wide") && !briefs[0].diff.contains("-look"));
        assert!(briefs[1].diff.contains("-look wide") && briefs[1].diff.contains("+look deep"));
        assert!(briefs[2].diff.contains("+look wide"));
    }
}
