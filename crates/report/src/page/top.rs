//! What is read at breakfast: the headline, what to look at, what gained most.

use maud::{Markup, html};

use super::{Page, link, name, when};
use crate::figures::{NONE, count, duration, large, measured, of, percent};
use crate::night::{Status, Trial};

/// Top gains shown.
const TOP: usize = 5;

impl Page<'_> {
    pub(super) fn top(&self) -> Markup {
        let night = self.night;
        html! {
            header {
                p.over { "Ratchet " span { "report" } }
                h1 { (name(&night.task, 60)) span.tag { (name(&night.tag, 60)) } }
                p.sub {
                    @if night.running { span.state.running { "running" } span { "reload for what came since" } } @else if let Some(why) = &night.ended {
                        span.state { "ended: " (name(why, 120)) }
                    }
                    span { (name(&night.metric, 40)) ", " (if night.lower_is_better { "lower" } else { "higher" }) " is better" }
                    @if let Some(profile) = &night.profile { span { "profile " (name(profile, 40)) } }
                    @if let Some(device) = &night.device { span { (name(device, 60)) } }
                    span { "as of " (when(&night.made)) " UTC" }
                }
                nav aria-label="parts of this page" {
                    @for (at, what) in [("progress", "progress"), ("read", "to read"), ("all", "trials"), ("curves", "curves"),
                        ("tried", "tried"), ("briefs", "briefs"), ("mechanisms", "mechanisms"), ("gates", "gates"), ("parts", "each trial")] {
                        a href=(format!("#{at}")) { (what) }
                    }
                }
            }
        }
    }

    pub(super) fn headline(&self) -> Markup {
        let head = &self.night.headline;
        let f = &self.figures;
        html! {
            section.headline aria-label="headline" {
                div.best {
                    p.what { "best " (name(&self.night.metric, 40)) }
                    p.big { (f.value(head.best)) }
                    @match head.gain {
                        Some(gain) => p {
                            b.gain { (f.delta(Some(gain))) @if let Some(within) = head.gain_within { " ± " (f.value(Some(within))) } }
                            " gained over the baseline"
                        }
                        None => p { "There is no gain to speak of yet." }
                    }
                    @match head.audited_gain {
                        Some(gain) => p { b.gain { (f.delta(Some(gain))) } " on rows that no verdict saw" }
                        None => p.quiet { "not audited yet" }
                    }
                    p.quiet {
                        @if let Some(champion) = head.champion { "champion: trial " (link(self.night, champion)) }
                        @if let Some(baseline) = head.baseline { " · baseline: " (f.value(Some(baseline))) }
                    }
                }
                dl.stats {
                    div { dt { "kept" } dd { (count(head.keeps as u64)) small { " of " (of(head.trials, "trial")) } } }
                    div { dt { "discarded" } dd { (count(head.discards as u64)) } }
                    div { dt { "crashed" } dd { (count(head.crashes as u64)) } }
                    div { dt { "σ of one run" } dd { (f.value(head.sigma)) } }
                    div { dt { "time" } dd { (duration(head.seconds)) } }
                    div { dt { "duty cycle" } dd {
                        @match head.duty_cycle { Some(share) => { (percent(share)) small { " training" } } None => (NONE) }
                    } }
                    div { dt { "proposer tokens" } dd { (large(head.tokens)) } }
                    div { dt { "cost" } dd { @match head.usd { Some(usd) if usd.is_finite() => { "$" (format!("{usd:.2}")) } _ => (NONE) } } }
                }
                @if head.unreviewed > 0 {
                    p.call {
                        b { (of(head.unreviewed, "keep")) } " that nobody has reviewed. "
                        code { "ratchet review" } " goes through them, oldest first."
                    }
                }
            }
        }
    }

    /// Trials chosen to be read by a person.
    pub(super) fn to_read(&self) -> Markup {
        let chosen = || self.night.to_read.iter().filter_map(|r| Some((r, self.trial(r.trial)?))).take(3);
        html! {
            section #read {
                h2 { "Read these yourself" }
                @if chosen().next().is_none() { p.quiet { "There is nothing to read yet." } }
                div.cards {
                    @for (read, trial) in chosen() {
                        article class=(trial.status.word()) {
                            p.why { (name(&read.why, 120)) }
                            h3 { a href=(format!("#t{}", trial.trial)) { (trial.trial) " · " (name(&trial.description, 90)) } }
                            p {
                                (self.chip(trial)) " " (name(&trial.outcome, 40))
                                @if measured(trial).is_some() { ", " b { (self.figures.value(measured(trial))) } }
                                @if trial.delta.is_some() { " (" (self.figures.delta(trial.delta)) ")" }
                            }
                            p.quiet { (name(if trial.hypothesis.is_empty() { &trial.reason } else { &trial.hypothesis }, 180)) }
                        }
                    }
                }
            }
        }
    }

    pub(super) fn top_gains(&self) -> Markup {
        let sign = if self.night.lower_is_better { -1.0 } else { 1.0 };
        let mut gains: Vec<(f64, &Trial)> = (self.night.trials.iter())
            .filter(|t| t.status == Status::Keep && t.outcome != "baseline")
            .filter_map(|t| Some((sign * t.delta.filter(|d| d.is_finite())?, t)))
            .collect();
        gains.sort_by(|a, b| b.0.total_cmp(&a.0));
        let most = gains.first().map_or(1.0, |g| g.0).max(1e-300);
        html! {
            section #gains {
                h2 { "Top gains" }
                @if gains.is_empty() { p.quiet { "Nothing has been kept yet." } }
                ol.bars {
                    @for (gain, trial) in gains.iter().take(TOP) {
                        li {
                            span.n { (self.figures.delta(Some(*gain))) }
                            (bar(&[(gain / most, "kept")]))
                            span { (link(self.night, trial.trial)) " " (name(&trial.description, 120)) }
                        }
                    }
                }
            }
        }
    }

    pub(super) fn trial(&self, number: u64) -> Option<&Trial> {
        self.night.trials.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// A status as a word with a mark, so that it is never told by colour alone.
    pub(super) fn chip(&self, trial: &Trial) -> Markup {
        html! { span class=(format!("chip {}", trial.status.word())) { (trial.status.word()) } }
    }

    pub(super) fn review(&self, trial: &Trial) -> Markup {
        html! {
            @match &trial.review {
                Some(review) => (name(review, 40)),
                None => { "not yet; " code { "ratchet review" } }
            }
        }
    }
}

/// A bar of shares one after the other, the whole being 1.
pub(super) fn bar(shares: &[(f64, &str)]) -> Markup {
    let before = |i: usize| shares[..i].iter().map(|s| s.0).sum::<f64>();
    html! {
        svg.bar viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            @for (i, (share, class)) in shares.iter().enumerate() {
                rect class=(class) x=(format!("{:.1}", before(i) * 100.0)) width=(format!("{:.1}", (share * 100.0).clamp(0.0, 100.0))) height="8" {}
            }
        }
    }
}
