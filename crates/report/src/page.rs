//! `report.html`: one file that needs nothing else, least of all a network.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use crate::figures::{self, Figures};
use crate::night::Status;
use crate::progress::{Canvas, Drawing};
use crate::{Night, palette, text};

/// The page.
pub fn html(night: &Night) -> String {
    let style = format!("{}{}{}", palette::variables(), palette::drawing_in_page(), include_str!("page.css"));
    let policy =
        format!("default-src 'none'; style-src '{}'; base-uri 'none'; form-action 'none'", hash(&style));
    let title = text::line(&format!("{} · {}", night.task, night.tag), 120);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(&style)) }
            }
            body {
                h1 { (title) }
                (PreEscaped(Drawing::svg(night, Canvas::WIDE)))
                (PreEscaped(Drawing::svg(night, Canvas::NARROW)))
                (table(night))
            }
        }
    }
    .into_string()
}

fn table(night: &Night) -> Markup {
    let figures = Figures::of(night);
    html! {
        div.scroll {
            table {
                thead { tr { th { "#" } th { "status" } th { (text::line(&night.metric, 40)) } th { "Δ" } th { "description" } } }
                tbody {
                    @for t in &night.trials {
                        tr {
                            td { (t.trial) }
                            td { (match t.status { Status::Keep => "keep", Status::Discard => "discard", Status::Crash => "crash" }) }
                            td { (figures.value(t.value)) }
                            td { (figures.delta(t.delta)) }
                            td { bdi { (text::line(&t.description, 120)) } }
                        }
                    }
                }
            }
        }
        p { (figures::count(night.trials.len() as u64)) " trials" }
    }
}

/// A source expression of a content security policy.
fn hash(content: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(content)))
}
