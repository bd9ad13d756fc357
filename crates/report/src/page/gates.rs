//! What may say no, and whether it ever did.

use maud::{Markup, html};

use super::{Page, name};
use crate::figures::count;

impl Page<'_> {
    pub(super) fn gates(&self) -> Markup {
        let gates = &self.night.gates;
        html! {
            section #gates {
                h2 { "Gates" }
                @if gates.is_empty() { p.quiet { "Nothing has been asked yet." } } @else {
                    div.scroll tabindex="0" role="region" aria-label="gates" {
                        table.gates {
                            thead { tr { th { "gate" } th { "holds off" } th.n { "asked" } th.n { "refused" } th { "latest refusal" } } }
                            tbody {
                                @for g in gates.iter().take(60) {
                                    tr {
                                        td { b { (name(&g.name, 40)) } }
                                        td { (name(&g.what, 120)) }
                                        td.n { (count(g.asked)) }
                                        td.n { (count(g.refused)) @if g.never_said_no { " " span.chip.warn { "never" } } }
                                        td { @if let Some(latest) = &g.latest { (name(latest, 160)) } }
                                    }
                                }
                            }
                        }
                    }
                    @if gates.iter().any(|g| g.never_said_no) {
                        p.call {
                            "A gate that has never said no may not be closing. " code { "ratchet doctor" } " checks that each is in place, and "
                            code { "cargo run --release -p redteam" } " sends candidates that each of them must refuse."
                        }
                    }
                }
            }
        }
    }
}
