//! `report.html`: one file that needs nothing else, least of all a network.

mod briefs;
mod curves;
mod diff;
mod gates;
mod part;
mod scatter;
mod search;
mod table;
mod top;

pub(crate) use self::diff::TAGS;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use crate::figures::{self, Figures};
use crate::progress::{Canvas, Drawing};
use crate::room::Room;
use crate::{Night, palette, text};

/// Colours code when a diff is opened, see `vendor/README.md`; then our own part.
const SCRIPT: &str = concat!(include_str!("../vendor/highlight.min.js"), include_str!("page.js"));

/// What tells a page of ours from anything else.
pub const MARK: &str = r#"<meta name="generator" content="ratchet report">"#;

/// What all parts of a page need.
struct Page<'a> {
    night: &'a Night,
    figures: Figures,
    room: Room,
}

/// The page. Should an escape ever fail, its content security policy lets nothing run or load that is not ours.
pub fn html(night: &Night) -> String {
    let style = format!("{}{}{}", palette::variables(), palette::drawing_in_page(), include_str!("page.css"));
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; base-uri 'none'; form-action 'none'",
        hash(&style),
        hash(SCRIPT)
    );
    let page = Page { night, figures: Figures::of(night), room: Room::of(night) };
    let title = text::line(&format!("{} · {}", night.task, night.tag), 120);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                (PreEscaped(MARK))
                title { (title) }
                style { (PreEscaped(&style)) }
            }
            body {
                (page.top())
                main {
                    (page.headline())
                    section #progress {
                        h2 { "Progress" }
                        (PreEscaped(Drawing::svg(night, Canvas::WIDE)))
                        (PreEscaped(Drawing::svg(night, Canvas::NARROW)))
                    }
                    (page.to_read())
                    (page.top_gains())
                    (page.table())
                    (page.curves())
                    (page.kinds())
                    (page.calibration())
                    (page.briefs())
                    (page.lessons())
                    (page.mechanisms())
                    (page.gates())
                    (page.parts())
                }
                (page.footer())
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

impl Page<'_> {
    fn footer(&self) -> Markup {
        let better = if self.night.lower_is_better { "lower" } else { "higher" };
        html! {
            footer {
                p {
                    b { "Δ" } " is a trial's value minus that of the champion it was measured against; here "
                    (better) " is better. A " b { "gain" } " is positive where it is better, whichever way the metric goes. "
                    b { "σ" } " is the noise of one run: the spread of values when nothing but the seed changes. "
                    "After ± stands half the width of the 95 % interval, from σ and the number of runs on both sides. "
                    "The " b { "audited" } " gain is measured on rows that no verdict saw."
                }
                p { "Made " (when(&self.night.made)) " by " code { "ratchet report" } ". Times are in UTC." }
            }
        }
    }
}

/// One line of a hostile text, at most `max` characters.
fn name(what: &str, max: usize) -> Markup {
    html! { bdi { (text::line(what, max)) } }
}

/// A hostile text as it is, with its line breaks, as far as there is room.
fn said(what: &str, room: usize) -> Markup {
    let (shown, left) = text::cut(what, room);
    html! {
        bdi.said { (text::visible(shown)) }
        @if left > 0 { span.left { " … " (figures::count(left as u64)) " characters left out" } }
    }
}

/// A time without what nobody reads: `2026-11-30 07:02`.
fn when(time: &str) -> Markup {
    let short = text::line(time, 40).replacen('T', " ", 1);
    name(short.get(..16).unwrap_or(&short), 40)
}

/// A link to a trial's part; no link where there is none.
fn link(night: &Night, trial: u64) -> Markup {
    if trial >= 1 && trial <= night.trials.len() as u64 {
        html! { a.trial href=(format!("#t{trial}")) { (trial) } }
    } else {
        html! { (trial) }
    }
}

/// A source expression of a content security policy.
fn hash(content: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(content)))
}
