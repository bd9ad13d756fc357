//! No text of a night gets out of its place. Oracle: html5ever, which reads a page as browsers do.

use std::collections::BTreeSet;

use proptest::prelude::*;
use report::Night;
use report::night::Trial;
use resvg::usvg::roxmltree::Document;
use scraper::{Html, Node};

use crate::nights;
use crate::page::{count, text};

/// Each element with its attributes' names, in order; not the plot's labels, which stand where there is room.
fn shape(html: &str) -> Vec<String> {
    let page = Html::parse_document(html);
    let elements = page.tree.nodes().filter_map(|n| n.value().as_element());
    let elements = elements.filter(|e| e.attr("class") != Some("label"));
    elements.map(|e| format!("{} {:?}", e.name(), e.attrs().map(|a| a.0).collect::<Vec<_>>())).collect()
}

/// Where two shapes part.
fn difference(a: &[String], b: &[String]) -> Option<String> {
    let at =
        a.iter().zip(b).position(|(a, b)| a != b).or((a.len() != b.len()).then_some(a.len().min(b.len())))?;
    let around = |s: &[String]| s[at.saturating_sub(6).min(s.len())..(at + 3).min(s.len())].join(" ");
    Some(format!("{}\nagainst\n{}", around(a), around(b)))
}

/// What turns the direction of writing, from Unicode's list Bidi_Control, and other controls.
fn is_harmful(c: char) -> bool {
    let bidi =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    bidi || (c.is_control() && c != '\n' && c != '\t') || c == '\u{200b}' || c == '\u{feff}'
}

/// A night of which every text is `s`.
fn all(s: &str) -> Night {
    let mut night = nights::hostile(3, false);
    let text = || s.to_owned();
    let line = s.replace(['\n', '\r'], " ");
    night.task = text();
    night.tag = text();
    night.metric = text();
    night.device = Some(text());
    night.profile = Some(text());
    night.ended = Some(text());
    night.made = text();
    for trial in &mut night.trials {
        *trial = Trial {
            outcome: format!("-{s}"),
            reason: text(),
            description: text(),
            hypothesis: format!("-{s}"),
            category: format!("-{s}"),
            class: format!("-{s}"),
            proposer: text(),
            commit: Some(text()),
            ended: format!("-{s}"),
            numbers: vec![(text(), text())],
            notes: vec![(text(), text())],
            attribution: Some(text()),
            review: Some(text()),
            diff: format!("--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@{line}\n {line}\n-{line}\n+{line}\n"),
            log: vec![text()],
            ..trial.clone()
        };
    }
    night.to_read.iter_mut().for_each(|r| r.why = text());
    night.briefs.iter_mut().for_each(|b| b.diff = format!("+{line}\n"));
    night.lessons.iter_mut().for_each(|l| l.text = text());
    for m in &mut night.mechanisms {
        (m.id, m.what, m.standing, m.reason) = (text(), text(), text(), format!("-{s}"));
        m.hooks[0].0 = text();
    }
    night.categories.iter_mut().chain(&mut night.classes).for_each(|k| k.name = text());
    night.gates.iter_mut().for_each(|g| (g.name, g.what, g.latest) = (text(), text(), Some(text())));
    night.calibration.iter_mut().for_each(|c| c.proposer = text());
    night
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_an_element_or_an_attribute(s in "(\\PC|[<>&\"'/=!-]|\\x00|\\n|\u{202e}|script|</|<!--|]]>){0,60}") {
        let html = report::html(&all(&s));
        prop_assert_eq!(difference(&shape(&html), &shape(&report::html(&all("x")))), None);
        prop_assert!(!html.chars().any(is_harmful));
        let svg = report::progress_svg(&all(&s));
        prop_assert!(Document::parse(&svg).is_ok(), "{}", svg);
        prop_assert!(!svg.chars().any(is_harmful));
    }
}

#[test]
fn each_known_trick_is_shown_and_does_nothing() {
    let harmless = shape(&report::html(&all("x")));
    for trick in nights::HOSTILE {
        let html = report::html(&all(trick));
        assert_eq!(difference(&shape(&html), &harmless), None, "{trick:?}");
        assert!(!html.chars().any(is_harmful), "{trick:?}");
    }
    let page = Html::parse_document(&report::html(&all(nights::HOSTILE[1])));
    assert!(text(&page, "#t2").contains(nights::HOSTILE[1]), "it can be read as it was written");
}

#[test]
fn nothing_on_the_page_comes_from_elsewhere() {
    let html = report::html(&nights::hostile(40, true));
    let page = Html::parse_document(&html);
    assert_eq!((count(&page, "script"), count(&page, "head style")), (1, 1));
    assert_eq!(
        count(
            &page,
            "[src], [style], link, base, iframe, object, embed, img, use, image, meta[http-equiv=refresh]"
        ),
        0
    );
    let elements = page.tree.nodes().filter_map(|n| n.value().as_element());
    let attributes: BTreeSet<&str> = elements.flat_map(|e| e.attrs().map(|a| a.0)).collect();
    assert!(attributes.iter().all(|a| !a.starts_with("on")), "{attributes:?}");
    let comments = page.tree.nodes().filter(|n| matches!(n.value(), Node::Comment(_))).count();
    assert_eq!(comments, 0);
}

#[test]
fn ten_kilobytes_are_short_in_the_table_and_whole_in_their_part() {
    let mut night = nights::night();
    night.trials[1].description = "word ".repeat(2000);
    let page = Html::parse_document(&report::html(&night));
    let cell = text(&page, "#all tbody tr:nth-child(2) td:nth-child(3)");
    assert!(cell.chars().count() <= 90 && cell.ends_with('…'), "{cell}");
    assert_eq!(text(&page, "#t2 .facts .said").len(), 2000 * 5 - 1);
}

#[test]
fn what_cannot_be_seen_is_written_out() {
    let mut night = nights::night();
    night.trials[1].description = "a\u{202e}b\u{0}c\u{200b}d \u{301}e".to_owned();
    let page = Html::parse_document(&report::html(&night));
    assert_eq!(text(&page, "#t2 .facts .said"), "a\\u{202e}b\\u{0}c\\u{200b}d ◌\u{301}e");
}
