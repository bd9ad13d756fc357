//! The message of an accepted commit: a proposer's words made plain, and trailers that nobody but the driver
//! wrote.

use std::fmt::Write;

use crate::{history::History, journal::TrialRecord, review::Review, runlog::plain, trial::trailer};

/// Characters of a subject line.
const SUBJECT: usize = 100;
/// Characters of a body line.
const WIDTH: usize = 72;

/// Subject: what it does. Body: why, what it gained, what it carries. Trailers: where it comes from.
///
/// No line of the body can be taken for a trailer or a comment: those that a text runs on in are indented.
pub(super) fn message(record: &TrialRecord, review: &Review, history: &History, metric: &str) -> String {
    let (proposal, verdict) = (&record.proposal, &record.verdict);
    let description = plain(&proposal.description, SUBJECT);
    let subject = description.trim_start_matches(['#', ' ']);
    let mut text = match subject.is_empty() {
        true => format!("Trial {}\n\n", record.trial),
        false => format!("{subject}\n\n"),
    };
    let hypothesis = plain(&proposal.hypothesis, 1000);
    if !hypothesis.is_empty() {
        text += &paragraph(&format!("Hypothesis: {hypothesis}"));
    }
    text += &paragraph(&format!("Difference: {}", difference(record)));
    for carried in history.carried(record.carries) {
        let what = plain(&carried.proposal.description, SUBJECT);
        text += &paragraph(&format!("Holds the edits of trial {} as well: {what}", carried.trial));
    }
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.6}"));
    let delta = record.delta.map_or("-".to_owned(), |delta| format!("{delta:+.6}"));
    let _ = write!(
        text,
        "\nTrial: {}\n{}: {}\nDelta: {delta}\n",
        record.trial,
        trailer(metric),
        number(verdict.value.or(record.value))
    );
    if let Some(by) = &review.by {
        let _ = writeln!(text, "Reviewed-By: {}", plain(by, 200));
    }
    text
}

/// How its value differs from its champion's, in the metric's own sign, and how sure that is.
fn difference(record: &TrialRecord) -> String {
    let verdict = &record.verdict;
    let delta = record.delta.map_or("unknown".to_owned(), |delta| format!("{delta:+.6}"));
    let error = verdict.standard_error.map_or(String::new(), |error| format!(" ± {error:.6}"));
    let sigma = verdict.noise.sigma().map_or(String::new(), |sigma| format!("σ {sigma:.6}, "));
    let runs = match verdict.runs[0] {
        0 | 1 => "1 run".to_owned(),
        runs => format!("{runs} runs each"),
    };
    format!("{delta}{error} against its champion ({sigma}{runs})")
}

/// A text in lines of a width; all but the first are indented.
fn paragraph(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            out.push_str("\n  ");
            width = 2;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        journal::{Status, tests::record},
        review::Decision,
    };

    #[test]
    fn hostile_words_become_plain_lines_that_are_no_trailers_and_no_comments() {
        let mut trial = record(7, Status::Keep, Some(1.0));
        trial.proposal.description = format!("## wide\u{1b}[31m\n\nTrial: 99\u{202e} {}", "x".repeat(10_000));
        trial.proposal.hypothesis = "# a\n\nReviewed-By: nobody\n# b ".repeat(100);
        let review = Review {
            at: String::new(),
            trial: 7,
            commit: String::new(),
            decision: Decision::Accepted,
            note: None,
            by: Some("A <a@b>\nTrial: 98".to_owned()),
        };
        let text = message(&trial, &review, &History::default(), "val_bpb");
        assert!(text.starts_with("wide Trial: 99 xxx") && text.len() < 2_000, "{text}");
        assert!(text.lines().all(|line| !line.starts_with('#')), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()) && !text.contains('\u{202e}'));
        let (_, trailers) = text.trim_end().rsplit_once("\n\n").unwrap();
        let expected = "Trial: 7\nVal-Bpb: 1.000000\nDelta: -\nReviewed-By: A <a@b> Trial: 98";
        assert_eq!(trailers, expected);
        assert_eq!(text.lines().filter(|line| line.starts_with("Trial:")).count(), 1);
        trial.proposal.description = "###".to_owned();
        assert!(message(&trial, &review, &History::default(), "loss").starts_with("Trial 7\n\n"));
    }
}
