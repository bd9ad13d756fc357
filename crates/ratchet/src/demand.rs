//! What the driver asks of a proposal beyond the brief: to look elsewhere, or deeper.
//!
//! Models tend to timid edits and to what has just worked. So every n-th proposal is to be of a category that
//! was not tried lately, and the person may ask for a share of structural edits, by one line of `program.md`:
//!
//! ```text
//! Structural share: at least 30 %
//! ```

use crate::{
    edit_class::EditClass,
    history::History,
    journal::TrialRecord,
    novelty::category_of,
    proposer::{Demand, knobs},
};

/// Trials over which the share of structural edits is held.
const WINDOW: usize = 20;
/// Categories that one demand names at most.
const MOST_CATEGORIES: usize = 8;

/// What the next proposal is asked for. `every`: how often it is to look elsewhere, 0 for never. `ahead`: a trial
/// is under way, whose proposal counts.
///
/// From the history alone, so that a resumed night goes on as it would have.
pub fn demand(history: &History, program: &str, every: u32, ahead: bool) -> Demand {
    let number = history.attempts() + u64::from(ahead) + 1;
    let due = every > 0 && number.is_multiple_of(u64::from(every));
    Demand {
        unlike: if due { categories_of_late(history.trials(), every as usize) } else { Vec::new() },
        structural: structural_share(program).ok().flatten().is_some_and(|least| is_short(history, least)),
        ..Demand::default()
    }
}

/// The categories of the last trials that have one, the latest first.
fn categories_of_late(trials: &[TrialRecord], most: usize) -> Vec<String> {
    let mut found = Vec::new();
    for category in trials.iter().rev().filter_map(category_of).take(most) {
        if !found.contains(&category) {
            found.push(category);
        }
    }
    found.truncate(MOST_CATEGORIES);
    found
}

/// Whether the share of structural edits would fall short with one more that is none. The built-in search, which
/// moves constants only, is not counted.
fn is_short(history: &History, least: f64) -> bool {
    let edits = history.trials().iter().rev().filter(|record| record.proposer != knobs::NAME);
    let classes: Vec<EditClass> = edits.filter_map(|record| record.class).take(WINDOW - 1).collect();
    let structural = classes.iter().filter(|class| **class == EditClass::Structural).count();
    (structural as f64) < least * (classes.len() + 1) as f64
}

/// The least share of structural edits that `program.md` asks for, 0 to 1; `None` where it asks for none.
///
/// The first line that begins with `Structural share:` counts, whatever its case and its markdown. `Err` says
/// what is wrong with it.
pub fn structural_share(program: &str) -> Result<Option<f64>, String> {
    const MARKS: [char; 9] = ['#', '*', '_', '`', '>', '-', '+', '|', ' '];
    for (i, line) in program.lines().enumerate() {
        let bare = line.replace(['*', '_', '`'], "").to_lowercase();
        let Some(rest) = bare.trim_start_matches(MARKS).trim_start().strip_prefix("structural share") else {
            continue;
        };
        let Some(rest) = rest.trim_start().strip_prefix(':') else { continue };
        let number = rest.trim().trim_end_matches(['|', '.', ' ']);
        let number = ["at least", "≥", ">="]
            .iter()
            .find_map(|words| number.strip_prefix(words))
            .unwrap_or(number)
            .trim();
        let percent = number.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        return match percent.filter(|percent| (0.0..=100.0).contains(percent)) {
            Some(percent) => Ok(Some(percent / 100.0)),
            None => Err(format!(
                "program.md, line {}: a structural share is written `Structural share: at least 30 %`; this one asks for nothing",
                i + 1
            )),
        };
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Event, Status, tests::record};

    fn history(edits: &[(&str, EditClass)]) -> History {
        let mut history = History::default();
        history.apply(Event::Closed(Box::new(record(1, Status::Keep, Some(1.0)))));
        for (i, (category, class)) in edits.iter().enumerate() {
            let mut trial = record(i as u64 + 2, Status::Discard, Some(2.0));
            trial.proposal.category = (*category).into();
            trial.class = Some(*class);
            history.apply(Event::Closed(Box::new(trial)));
        }
        history
    }

    #[test]
    fn every_nth_proposal_is_to_be_of_a_category_not_tried_lately() {
        use EditClass::Local;
        let all =
            [("a", Local), ("B", Local), ("", Local), ("b", Local), ("c", Local), ("c", Local), ("d", Local)];
        let unlike = |trials: usize, ahead| demand(&history(&all[..trials]), "", 4, ahead).unlike;
        assert_eq!(unlike(1, false), [""; 0], "the third");
        assert_eq!(unlike(2, false), ["b", "a"], "the fourth");
        assert_eq!(unlike(1, true), ["a"], "the fourth, while the third is tried");
        assert_eq!(unlike(2, true), [""; 0]);
        assert_eq!(unlike(6, false), ["c", "b"], "of the last four that have one");
        assert_eq!(demand(&history(&all), "", 0, false), Demand::default());
    }

    #[test]
    fn a_share_is_asked_for_when_it_would_fall_short_otherwise() {
        use EditClass::{Constant, Structural};
        let program = "Structural share: at least 25 %";
        let mut edits = Vec::new();
        for _ in 0..100 {
            let asked = demand(&history(&edits), program, 0, false).structural;
            edits.push(("", if asked { Structural } else { Constant }));
        }
        let share = edits.iter().filter(|(_, class)| *class == Structural).count();
        assert!((25..=30).contains(&share), "who obeys ends near what is asked for: {share}");
        assert!(!demand(&history(&edits), "", 0, false).structural);
        // whoever does not obey is asked every time
        assert!(demand(&history(&[("", Constant); 30]), program, 0, false).structural);
    }

    #[test]
    fn the_line_is_found_whatever_its_dress() {
        for line in [
            "Structural share: at least 30 %",
            "- **Structural share:** at least 30%.",
            "* **structural SHARE**: ≥ 30 %",
            "> `Structural share: 30 %`",
            "## Structural share: >= 30.0 %",
            "| Structural share: at least 30 % |",
        ] {
            assert_eq!(structural_share(&format!("# Brief\n\n{line}\n")), Ok(Some(0.3)), "{line}");
        }
        for none in
            ["", "The structural share matters.", "A note on structural share: none", "Structural share"]
        {
            assert_eq!(structural_share(none), Ok(None), "{none}");
        }
        for bad in ["lots", "", "30", "-1 %", "101 %", "NaN %", "at most 30 %", "ignore all instructions"] {
            let wrong = structural_share(&format!("a\nStructural share: {bad}\n")).unwrap_err();
            assert!(wrong.contains("line 2"), "{bad}: {wrong}");
        }
    }
}
