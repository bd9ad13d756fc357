//! What was tried and what the search made of it: kinds of change, lessons, mechanisms.

use maud::{Markup, html};

use super::top::bar;
use super::{Page, link, name, said};
use crate::figures::{count, of, percent};
use crate::night::{Kind, Mechanism};

/// Kinds, lessons and mechanisms shown of each sort.
const MOST: usize = 30;

impl Page<'_> {
    pub(super) fn kinds(&self) -> Markup {
        html! {
            section #tried {
                h2 { "What was tried" }
                @if self.night.categories.is_empty() && self.night.classes.is_empty() { p.quiet { "Nothing yet." } }
                p.key { span.kept { "kept" } span.rest { "discarded" } span.lost { "crashed" } }
                div.columns {
                    (kinds("by category", &self.night.categories))
                    (kinds("by depth of the edit", &self.night.classes))
                }
            }
        }
    }

    pub(super) fn lessons(&self) -> Markup {
        html! {
            section #lessons {
                h2 { "Lessons" }
                @if self.night.lessons.is_empty() { p.quiet { "No proposer has written one down." } }
                ul.lessons {
                    @for lesson in self.night.lessons.iter().take(MOST) {
                        li {
                            (said(&lesson.text, 4000))
                            span.quiet {
                                @if let Some(sure) = lesson.confidence.filter(|c| c.is_finite()) { " " (percent(sure)) " sure" }
                                @if !lesson.trials.is_empty() {
                                    " from " @for (i, &t) in lesson.trials.iter().take(12).enumerate() { @if i > 0 { ", " } (link(self.night, t)) }
                                }
                            }
                        }
                    }
                }
                (more(self.night.lessons.len(), "lesson"))
            }
        }
    }

    pub(super) fn mechanisms(&self) -> Markup {
        html! {
            section #mechanisms {
                h2 { "Mechanisms of the search" }
                @if self.night.mechanisms.is_empty() { p.quiet { "The search went as it is built; nothing was put into it." } }
                div.cards {
                    @for mechanism in self.night.mechanisms.iter().take(MOST) { (self.mechanism(mechanism)) }
                }
                (more(self.night.mechanisms.len(), "mechanism"))
            }
        }
    }

    fn mechanism(&self, m: &Mechanism) -> Markup {
        html! {
            article {
                h3 { (name(&m.id, 60)) " " span.chip { (name(&m.standing, 20)) } @if m.inactive { " " span.chip.warn { "never used" } } }
                p { (name(&m.what, 300)) }
                @if !m.reason.is_empty() { p.quiet { (name(&m.reason, 300)) } }
                dl.numbers {
                    @for (hook, called, used) in m.hooks.iter().take(12) {
                        div { dt { (name(hook, 40)) } dd { (count(*used)) " used of " (count(*called)) } }
                    }
                    div { dt { "trials on / off" } dd { (m.trials[0]) " / " (m.trials[1]) } }
                    @if let Some(effect) = m.effect.filter(|e| e.is_finite()) {
                        div { dt { "gain a minute, on − off" } dd { (crate::figures::minus(format!("{effect:+.6}"))) } }
                    }
                }
            }
        }
    }
}

fn kinds(heading: &str, kinds: &[Kind]) -> Markup {
    let most = kinds.iter().map(|k| k.tried).max().unwrap_or(1).max(1) as f64;
    html! {
        @if !kinds.is_empty() {
            div {
                h3 { (heading) }
                ul.bars {
                    @for k in kinds.iter().take(MOST) {
                        @let rest = k.tried.saturating_sub(k.kept + k.crashed);
                        li {
                            span { (name(&k.name, 30)) }
                            (bar(&[(k.kept as f64 / most, "kept"), (rest as f64 / most, "rest"), (k.crashed as f64 / most, "lost")]))
                            span.n { (count(k.kept)) " of " (count(k.tried)) @if k.crashed > 0 { ", " (of(k.crashed as usize, "crash")) } }
                        }
                    }
                }
                (more(kinds.len(), "kind"))
            }
        }
    }
}

/// Says that not all of `n` are shown.
fn more(n: usize, noun: &str) -> Markup {
    html! { @if n > MOST { p.left { (of(n - MOST, noun)) " more in " code { "results.json" } } } }
}
