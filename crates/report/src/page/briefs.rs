//! What the person said: each version of `program.md` and what came of it.

use maud::{Markup, html};

use super::diff::diff;
use super::{Page, link};
use crate::figures::of;

/// Versions shown, the latest.
const MOST: usize = 50;

impl Page<'_> {
    pub(super) fn briefs(&self) -> Markup {
        let briefs = &self.night.briefs;
        let skipped = briefs.len().saturating_sub(MOST);
        html! {
            section #briefs {
                h2 { "Versions of program.md" }
                @if briefs.is_empty() { p.quiet { "No trial has ended under one yet." } }
                @if skipped > 0 { p.left { (of(skipped, "older version")) " left out" } }
                @for (i, brief) in briefs.iter().enumerate().skip(skipped) {
                    @let trials = brief.to.saturating_add(1).saturating_sub(brief.from) as usize;
                    details open[i + 1 == briefs.len() && i > 0] {
                        summary {
                            b { "brief " (i + 1) } ", from trial " (link(self.night, brief.from)) ": "
                            (of(trials, "trial")) ", " (of(brief.keeps, "keep"))
                            @if let Some(gain) = brief.gain { ", gain " b.n { (self.figures.delta(Some(gain))) } }
                        }
                        div { (diff(&brief.diff, self.room.diff.max(2000), ".ratchet/briefs/")) }
                    }
                }
            }
        }
    }
}
