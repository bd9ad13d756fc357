//! All trials in a table. Sorting and filters are what the script adds.

use maud::{Markup, html};

use super::{Page, name};
use crate::figures::{NONE, count, measured};
use crate::night::Trial;

/// A column: (heading, class, what stands in it); `n` is numeric, `x` is left out on a phone.
struct Column<'a> {
    heading: &'a str,
    class: &'static str,
    cell: Box<dyn Fn(&Trial) -> String + 'a>,
}

impl Page<'_> {
    pub(super) fn table(&self) -> Markup {
        let night = self.night;
        let metric = crate::text::line(&night.metric, 24);
        let columns = self.columns(&metric);
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
                                @for c in &columns { th class=(c.class) scope="col" { (c.heading) } }
                            }
                        }
                        tbody {
                            @for t in &night.trials {
                                tr {
                                    td.n { a href=(format!("#t{}", t.trial)) { (t.trial) } }
                                    td class=(t.status.word()) { (t.status.word()) }
                                    td { (name(&t.description, 90)) }
                                    @for c in &columns {
                                        @let cell = (c.cell)(t);
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

    /// A column that would be empty is left out.
    fn columns<'a>(&'a self, metric: &'a str) -> Vec<Column<'a>> {
        let f = self.figures;
        let has = |what: fn(&Trial) -> bool| self.night.trials.iter().any(what);
        let short = |what: &str| crate::text::line(what, 30);
        let number = |v: Option<f64>, decimals: usize| match v {
            Some(v) if v.is_finite() => crate::figures::minus(format!("{v:.decimals$}")),
            _ => NONE.to_owned(),
        };
        let mut columns: Vec<Column<'a>> = Vec::new();
        let mut add =
            |heading: &'a str, class: &'static str, shown: bool, cell: Box<dyn Fn(&Trial) -> String + 'a>| {
                if shown {
                    columns.push(Column { heading, class, cell });
                }
            };
        add(metric, "n", true, Box::new(move |t| f.value(measured(t))));
        add("Δ", "n", true, Box::new(move |t| f.delta(t.delta)));
        add(
            "expected Δ",
            "n x",
            has(|t| t.expected_delta.is_some()),
            Box::new(move |t| f.delta(t.expected_delta)),
        );
        add("outcome", "x", true, Box::new(move |t| short(&t.outcome)));
        add("category", "x", has(|t| !t.category.is_empty()), Box::new(move |t| short(&t.category)));
        add("class", "x", has(|t| !t.class.is_empty()), Box::new(move |t| short(&t.class)));
        add("proposer", "x", true, Box::new(move |t| short(&t.proposer)));
        add("seconds", "n x", true, Box::new(move |t| number(Some(t.seconds), 0)));
        add(
            "GB",
            "n x",
            has(|t| t.memory_gb > 0.0),
            Box::new(move |t| number(Some(t.memory_gb).filter(|m| *m > 0.0), 1)),
        );
        add("M tokens", "n x", has(|t| t.tokens_m.is_some()), Box::new(move |t| number(t.tokens_m, 1)));
        add("MFU %", "n x", has(|t| t.mfu_percent.is_some()), Box::new(move |t| number(t.mfu_percent, 1)));
        add(
            "lines",
            "n x",
            has(|t| t.lines_added.is_some()),
            Box::new(move |t| {
                t.lines_added.map_or(NONE.to_owned(), |l| crate::figures::minus(format!("{l:+}")))
            }),
        );
        columns
    }
}
