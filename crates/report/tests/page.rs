//! What stands on the page. Oracle: html5ever reads it as a browser does.

use report::Night;
use report::night::{Status, Trial};
use scraper::{Html, Selector};

use crate::nights;

/// Elements that `selector` finds.
pub(crate) fn count(page: &Html, selector: &str) -> usize {
    page.select(&Selector::parse(selector).unwrap()).count()
}

/// Text of the first element that `selector` finds, its white space squeezed.
pub(crate) fn text(page: &Html, selector: &str) -> String {
    let found = page.select(&Selector::parse(selector).unwrap()).next();
    let text: String = found.unwrap_or_else(|| panic!("nothing is {selector}")).text().collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The same, each piece of text apart.
fn pieces(page: &Html, selector: &str) -> String {
    let found = page.select(&Selector::parse(selector).unwrap()).next();
    found.unwrap_or_else(|| panic!("nothing is {selector}")).text().collect::<Vec<_>>().join(" ")
}

fn page(night: &Night) -> Html {
    Html::parse_document(&report::html(night))
}

#[test]
fn headline_says_best_gain_audit_and_what_is_to_be_reviewed() {
    let headline = text(&page(&nights::night()), ".headline");
    for figure in [
        "0.9680",
        "+0.0299 ± 0.0018",
        "+0.0286",
        "9 of 94 trials",
        "83 %",
        "7 h 58 min",
        "4.2 M",
        "$18.40",
        "0.0011",
    ] {
        assert!(headline.contains(figure), "{figure} in {headline}");
    }
    assert!(headline.contains("5 keeps that nobody has reviewed. ratchet review"), "{headline}");
}

#[test]
fn every_trial_has_a_row_a_part_and_links_that_lead_to_it() {
    let night = nights::night();
    let page = page(&night);
    assert_eq!(count(&page, "#all tbody tr"), night.trials.len());
    assert_eq!(count(&page, "#parts details"), night.trials.len());
    let ids: Vec<String> =
        page.select(&Selector::parse("[id]").unwrap()).map(|e| e.attr("id").unwrap().to_owned()).collect();
    let mut once = ids.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), ids.len(), "an id stands twice");
    for link in page.select(&Selector::parse("a").unwrap()) {
        let to = link.attr("href").unwrap();
        assert!(to.strip_prefix('#').is_some_and(|to| ids.iter().any(|id| id == to)), "{to} leads nowhere");
    }
}

#[test]
fn a_part_says_whether_the_prediction_had_the_right_sign_and_how_far_off_it_was() {
    let mut night = nights::night();
    let trial = &mut night.trials[20];
    (trial.expected_delta, trial.delta) = (Some(-0.004), Some(-0.003));
    let trial = &mut night.trials[21];
    (trial.expected_delta, trial.delta) = (Some(-0.004), Some(0.001));
    let page = page(&night);
    let right = "Δ −0.0040 expected, −0.0030 came: the right sign, off by 0.0010, 25 % of what was expected";
    assert!(text(&page, "#t21").contains(right), "{}", text(&page, "#t21"));
    let wrong = "Δ −0.0040 expected, +0.0010 came: the wrong sign, off by 0.0050, 125 % of what was expected";
    assert!(text(&page, "#t22").contains(wrong), "{}", text(&page, "#t22"));
}

#[test]
fn a_crash_shows_the_end_of_its_log_and_no_value() {
    let mut night = nights::night();
    night.trials[29].value = Some(0.0); // a sentinel that must not look like the best value of all
    let page = page(&night);
    assert!(text(&page, "#t30 .log").contains("CUDA_ERROR_OUT_OF_MEMORY"));
    let row = pieces(&page, "#all tbody tr:nth-child(30)");
    assert!(row.starts_with("30 crash head dimension 64 instead of 128 – –"), "{row}");
}

#[test]
fn a_gate_that_never_said_no_is_flagged_with_what_to_do() {
    let mut night = nights::night();
    let gates = pieces(&page(&night), "#gates");
    assert!(
        gates.contains("preflight fails a step on real data, causality, or memory 91 0  never"),
        "{gates}"
    );
    assert!(gates.contains("ratchet doctor") && gates.contains("cargo run --release -p redteam"), "{gates}");
    night.gates.retain(|g| !g.never_said_no);
    assert!(!text(&page(&night), "#gates").contains("doctor"));
}

#[test]
fn each_brief_shows_its_diff_trials_keeps_and_gain() {
    let briefs = text(&page(&nights::night()), "#briefs");
    assert!(briefs.contains("brief 1, from trial 1: 40 trials, 6 keeps, gain +0.0191"), "{briefs}");
    assert!(briefs.contains("brief 2, from trial 41: 54 trials, 2 keeps, gain +0.0067"), "{briefs}");
    assert!(briefs.contains("+A simplification that costs nothing is welcome."), "{briefs}");
}

#[test]
fn an_unused_mechanism_is_flagged_and_hooks_are_counted() {
    let page = page(&nights::night());
    assert!(pieces(&page, "#mechanisms article:nth-child(1)").contains("choose 58 used of 61"));
    assert!(pieces(&page, "#mechanisms article:nth-child(2)").contains("never used"));
    assert_eq!(count(&page, "#mechanisms .chip.warn"), 1);
}

#[test]
fn loss_curves_of_baseline_champion_and_chosen_trials_are_shown_and_the_rest_is_accounted_for() {
    let page = page(&nights::night());
    let shown: Vec<&str> = page
        .select(&Selector::parse(".losses.wide .curve:not([hidden])").unwrap())
        .map(|e| e.attr("data-t").unwrap())
        .collect();
    assert_eq!(shown, ["1", "71", "27", "35"]); // 94 crashed and has none
    assert_eq!(count(&page, ".losses.wide .curve"), 40);
    assert!(text(&page, "#curves").contains("47 other trials with a curve left out"));
}

#[test]
fn diffs_are_marked_by_elements_and_name_their_language() {
    let page = page(&nights::night());
    assert_eq!(
        text(&page, "#t71 pre del").trim(),
        "- let (q, k) = (rope(&q, cos, sin)?, rope(&k, cos, sin)?);"
    );
    assert_eq!(
        text(&page, "#t71 pre ins").trim(),
        "+ let (q, k) = (norm(&rope(&q, cos, sin)?)?, norm(&rope(&k, cos, sin)?)?);"
    );
    assert_eq!(text(&page, "#t71 pre b[data-l=rust]"), "train/src/model.rs");
}

#[test]
fn no_line_of_an_edit_hides_behind_what_looks_like_a_head() {
    let mut night = nights::night();
    let lines = [
        "--- a/x.lua",
        "+++ b/x.lua",
        "@@ -1,3 +1,4 @@",
        " @@ -9,9 +9,9 @@",
        "--- gone",
        "-index 1",
        "+++ came",
        "+diff --git a b",
        "+@@ -1 +1 @@",
    ];
    let more = [
        "diff --git a/old.rs b/old.rs",
        "deleted file mode 100644",
        "--- a/old.rs",
        "+++ /dev/null",
        "@@ -1 +0,0 @@",
        "-last",
    ];
    night.trials[2].diff = [&lines[..], &more].concat().join("\n");
    let page = page(&night);
    let all = |what: &str| -> Vec<String> {
        let found = Selector::parse(&format!("#t3 pre {what}")).unwrap();
        page.select(&found).map(|e| e.text().collect()).collect()
    };
    assert_eq!(all("del"), ["--- gone", "-index 1", "-last"]);
    assert_eq!(all("ins"), ["+++ came", "+diff --git a b", "+@@ -1 +1 @@"]);
    assert_eq!(all("b"), ["x.lua", "old.rs"]);
    assert_eq!(all("i"), ["@@ -1,3 +1,4 @@", "deleted file mode 100644", "@@ -1 +0,0 @@"]);
}

#[test]
fn a_long_diff_says_how_many_lines_are_left_out_and_where_they_are() {
    let mut night = nights::night();
    let lines = 20_000;
    night.trials[2].diff =
        format!("--- a/x.rs\n+++ b/x.rs\n@@ -0,0 +1,{lines} @@\n{}", "+let x = 1;\n".repeat(lines));
    let page = page(&night);
    let shown = count(&page, "#t3 pre ins");
    assert!((1000..lines).contains(&shown), "{shown} lines are shown");
    let left = text(&page, "#t3 .left").replace(',', "");
    assert_eq!(left, format!("{} lines left out; the whole: ratchet show 3", lines - shown));
}

#[test]
fn numbers_beyond_all_bounds_leave_every_drawing_sound() {
    let extremes = [f64::MAX, f64::MIN, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, 5e-324, 1e300];
    for only in extremes.iter().map(|&x| vec![x]).chain([extremes.to_vec()]) {
        let mut next = only.iter().copied().cycle();
        let mut some = || next.next().unwrap();
        let mut night = nights::night();
        let h = &mut night.headline;
        (h.best, h.baseline, h.gain, h.gain_within) =
            (Some(some()), Some(some()), Some(some()), Some(some()));
        (h.sigma, h.duty_cycle, h.seconds, h.usd) = (Some(some()), Some(some()), some(), Some(some()));
        for t in &mut night.trials {
            (t.value, t.delta, t.expected_delta) = (Some(some()), Some(some()), Some(some()));
            (t.seconds, t.memory_gb, t.tokens_m, t.mfu_percent) =
                (some(), some(), Some(some()), Some(some()));
            t.curve.iter_mut().step_by(3).for_each(|p| *p = (some(), some()));
        }
        let page = page(&night);
        for e in page.tree.nodes().filter_map(|n| n.value().as_element()) {
            for (name, value) in e.attrs() {
                assert!(
                    !value.contains("NaN") && !value.contains("inf"),
                    "{only:?}: {} {name}={value}",
                    e.name()
                );
            }
        }
    }
}

#[test]
fn a_night_without_trials_renders() {
    let page = page(&Night { task: "nanogpt".into(), tag: "new".into(), ..Night::default() });
    assert!(text(&page, "#progress svg.wide").contains("no trial has ended yet"));
    assert_eq!(count(&page, "#all tbody tr"), 0);
    assert!(text(&page, ".headline").contains("There is no gain to speak of yet"));
}

#[test]
fn a_night_of_only_crashes_renders_and_ranks_none() {
    let mut night = nights::night();
    night.trials = (1..=5)
        .map(|trial| Trial {
            trial,
            status: Status::Crash,
            outcome: "build_failed".into(),
            ..Trial::default()
        })
        .collect();
    night.headline = Default::default();
    night.to_read.clear();
    let page = page(&night);
    assert!(text(&page, "#progress svg.wide").contains("no trial has a value"));
    assert_eq!(count(&page, "svg.wide a .crash"), 5);
    assert_eq!(count(&page, "svg .best[d], svg a .keep"), 2, "only those of the two legends");
    assert!(text(&page, "#gains").contains("Nothing has been kept yet"));
}

#[test]
fn two_thousand_trials_stay_below_fifteen_megabytes_even_if_every_text_is_long() {
    let mut invisible = nights::hostile(2000, true);
    for t in &mut invisible.trials {
        // what takes most room: a character without shape
        let text = "\u{e0041}".repeat(300);
        (t.description, t.hypothesis, t.category, t.class) =
            (text.clone(), text.clone(), text.clone(), text.clone());
        (t.outcome, t.reason, t.proposer, t.diff) =
            (text.clone(), text.clone(), text.clone(), text.repeat(30));
    }
    for night in [nights::hostile(2000, false), nights::hostile(2000, true), invisible] {
        let html = report::html(&night);
        assert!(html.len() < 15_000_000, "{} bytes", html.len());
        assert_eq!(count(&Html::parse_document(&html), "#all tbody tr"), 2000);
    }
}
