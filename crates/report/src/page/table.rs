//! All trials in a table. Sorting and filters are what the script adds.

use maud::{Markup, html};

use super::{Page, name};
use crate::figures::{Figures, NONE, count, measured, minus};
use crate::night::Trial;
use crate::text::line;

/// A column that is left out where no trial has anything in it.
struct Column {
    heading: &'static str,
    /// `n` is numeric, `x` is not shown on a phone.
    class: &'static str,
    has: fn(&Trial) -> bool,
    cell: fn(Figures, &Trial) -> String,
}

const COLUMNS: [Column; 11] = [
    column("Δ", "n", |_| true, |f, t| f.delta(t.delta)),
    column("expected Δ", "n x", |t| t.expected_delta.is_some(), |f, t| f.delta(t.expected_delta)),
    column("outcome", "x", |_| true, |_, t| line(&t.outcome, 30)),
    column("category", "x", |t| !t.category.is_empty(), |_, t| line(&t.category, 30)),
    column("class", "x", |t| !t.class.is_empty(), |_, t| line(&t.class, 30)),
    column("proposer", "x", |_| true, |_, t| line(&t.proposer, 30)),
    column("seconds", "n x", |_| true, |_, t| number(Some(t.seconds), 0)),
    column("GB", "n x", |t| t.memory_gb > 0.0, |_, t| number(Some(t.memory_gb).filter(|&gb| gb > 0.0), 1)),
    column("M tokens", "n x", |t| t.tokens_m.is_some(), |_, t| number(t.tokens_m, 1)),
    column("MFU %", "n x", |t| t.mfu_percent.is_some(), |_, t| number(t.mfu_percent, 1)),
    column(
        "lines",
        "n x",
        |t| t.lines_added.is_some(),
        |_, t| t.lines_added.map_or(NONE.to_owned(), |lines| minus(format!("{lines:+}"))),
    ),
];

const fn column(
    heading: &'static str,
    class: &'static str,
    has: fn(&Trial) -> bool,
    cell: fn(Figures, &Trial) -> String,
) -> Column {
    Column { heading, class, has, cell }
}

impl Page<'_> {
    pub(super) fn table(&self) -> Markup {
        let night = self.night;
        let has = |column: &&Column| night.trials.iter().any(column.has);
        let columns: Vec<&Column> = COLUMNS.iter().filter(has).collect();
        html! {
            section #all {
                h2 { "All trials" }
                form.filter hidden {
                    label { "status "
                        select { option value="" { "all" } option { "keep" } option { "discard" } option { "crash" } }
                    }
                    label { "text " input type="search" placeholder="description, category, proposer"; }
                    output { (count(night.trials.len() as u64)) " of " (count(night.trials.len() as u64)) }
                }
                div.scroll tabindex="0" role="region" aria-label="all trials" {
                    table {
                        thead {
                            tr {
                                th.n scope="col" { "#" }
                                th scope="col" { "status" }
                                th scope="col" { "description" }
                                th.n scope="col" { (name(&night.metric, 24)) }
                                @for c in &columns { th class=(c.class) scope="col" { (c.heading) } }
                            }
                        }
                        tbody {
                            @for t in &night.trials {
                                tr {
                                    td.n { a href=(format!("#t{}", t.trial)) { (t.trial) } }
                                    td class=(t.status.word()) { (t.status.word()) }
                                    td { (name(&t.description, 90)) }
                                    td.n { (self.figures.value(measured(t))) }
                                    @for c in &columns {
                                        @let cell = (c.cell)(self.figures, t);
                                        @if c.class.starts_with('n') { td class=(c.class) { (cell) } } @else { td class=(c.class) { bdi { (cell) } } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.filter(|v| v.is_finite()).map_or(NONE.to_owned(), |v| minus(format!("{v:.decimals$}")))
}
