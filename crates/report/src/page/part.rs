//! A part for each trial: what was done and why, what came of it, and how that was decided.

use maud::{Markup, html};

use super::diff::diff;
use super::{Page, link, name, said, when};
use crate::figures::{duration, measured, minus, percent};
use crate::night::{Status, Trial};
use crate::text;

/// Pairs of a verdict or of notes that are shown; a record has a dozen.
const PAIRS: usize = 24;

impl Page<'_> {
    pub(super) fn parts(&self) -> Markup {
        html! {
            section #parts {
                h2 { "Each trial" }
                @if self.night.trials.is_empty() { p.quiet { "No trial has ended yet." } }
                @for trial in &self.night.trials { (self.part(trial)) }
            }
        }
    }

    fn part(&self, t: &Trial) -> Markup {
        let f = &self.figures;
        let room = &self.room;
        html! {
            details {
                summary {
                    span.n { (t.trial) } " " (self.chip(t)) " "
                    @if measured(t).is_some() { b.n { (f.value(measured(t))) } " " }
                    @if t.delta.is_some() { span.n { (f.delta(t.delta)) } " " }
                    (name(&t.description, 90))
                }
                // a browser opens what a link points into, also without a script
                div id=(format!("t{}", t.trial)) {
                    dl.facts {
                        (row("what", &said(&t.description, room.text)))
                        @if !t.hypothesis.is_empty() { (row("why it should help", &said(&t.hypothesis, room.text))) }
                        @if let Some(words) = self.prediction(t) { (row("prediction", &html! { (words) })) }
                        (row("verdict", &html! { b { (name(&t.outcome, 60)) } ": " (said(&t.reason, room.text)) }))
                        @if let Some(attribution) = &t.attribution { (row("where it comes from", &said(attribution, room.text))) }
                        @for (what, words) in t.notes.iter().take(PAIRS) { (row(&text::line(what, 40), &said(words, room.text))) }
                        @if t.status == Status::Keep && t.outcome != "baseline" { (row("review", &self.review(t))) }
                        (row("made", &self.circumstances(t)))
                    }
                    @if !t.numbers.is_empty() || !t.values.is_empty() {
                        dl.numbers {
                            @if !t.values.is_empty() {
                                div { dt { "each run" } dd { @for (i, v) in t.values.iter().take(PAIRS).enumerate() { @if i > 0 { " " } (f.value(Some(*v))) } } }
                            }
                            @for (what, figure) in t.numbers.iter().take(PAIRS) { div { dt { (name(what, 40)) } dd { (name(figure, 60)) } } }
                        }
                    }
                    @if !t.diff.is_empty() { (diff(&t.diff, room.diff, &format!("ratchet show {}", t.trial))) }
                    @if !t.log.is_empty() { (self.log(t)) }
                }
            }
        }
    }

    /// What was expected against what came.
    fn prediction(&self, t: &Trial) -> Option<String> {
        let f = &self.figures;
        let expected = t.expected_delta.filter(|e| e.is_finite())?;
        let Some(came) = t.delta.filter(|d| d.is_finite()) else {
            return Some(format!("Δ {} expected; nothing was measured", f.delta(Some(expected))));
        };
        let sign = if expected * came > 0.0 { "the right sign" } else { "the wrong sign" };
        let share = (came - expected).abs() / expected.abs();
        let share =
            if share < 10.0 { format!(", {} of what was expected", percent(share)) } else { String::new() };
        Some(format!(
            "Δ {} expected, {} came: {sign}, off by {}{share}",
            f.delta(Some(expected)),
            f.delta(Some(came)),
            f.value(Some((came - expected).abs())),
        ))
    }

    fn circumstances(&self, t: &Trial) -> Markup {
        html! {
            "by " (name(&t.proposer, 60))
            @if let Some(parent) = t.parent { " from trial " (link(self.night, parent)) }
            @if !t.category.is_empty() { " · " (name(&t.category, 40)) }
            @if !t.class.is_empty() { " · " (name(&t.class, 40)) }
            @if let Some(commit) = &t.commit { " · commit " code { (name(commit, 12)) } }
            " · " (duration(t.seconds))
            @if t.memory_gb > 0.0 { " · " (format!("{:.1} GB", t.memory_gb)) }
            @if let Some(tokens) = t.tokens_m { " · " (format!("{tokens:.1} M tokens")) }
            @if let Some(mfu) = t.mfu_percent { " · " (format!("{mfu:.1} % MFU")) }
            @if let Some(lines) = t.lines_added { " · " "lines " (minus(format!("{lines:+}"))) }
            @if !t.ended.is_empty() { " · ended " (when(&t.ended)) }
        }
    }

    fn log(&self, t: &Trial) -> Markup {
        let mut room = self.room.log;
        // the end of a log says most
        let shown = t.log.iter().rev().take_while(|line| {
            let fits = text::weight(line) < room;
            room = room.saturating_sub(text::weight(line) + 1);
            fits
        });
        let shown = shown.count();
        html! {
            p.what { "end of the log" @if shown < t.log.len() { " (the whole: " code { "ratchet show " (t.trial) } ")" } }
            pre.log tabindex="0" { @for line in &t.log[t.log.len() - shown..] { (text::visible(line)) "\n" } }
        }
    }
}

fn row(what: &str, content: &Markup) -> Markup {
    html! { dt { bdi { (what) } } dd { (content) } }
}
