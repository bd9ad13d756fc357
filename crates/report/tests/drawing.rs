//! The drawing. Oracles: an XML parser, the SVG renderer, a PNG decoder.

use report::Night;
use report::night::{Status, Trial};
use resvg::tiny_skia::Pixmap;
use resvg::usvg::{self, roxmltree::Document};
use scraper::{Html, Selector};

use crate::nights;

fn every() -> Vec<Night> {
    let crash = |trial| Trial { trial, status: Status::Crash, ..Trial::default() };
    let only_crashes = Night { trials: (1..=3).map(crash).collect(), ..Night::default() };
    let mut extreme = nights::night();
    let values = [f64::MAX, f64::MIN, f64::NAN, f64::INFINITY, 0.0, -0.0, f64::MIN_POSITIVE];
    for (trial, value) in extreme.trials.iter_mut().zip(values.into_iter().cycle()) {
        trial.value = Some(value);
    }
    let mut upward = nights::night();
    upward.lower_is_better = false;
    upward.trials.iter_mut().for_each(|t| t.value = t.value.map(|v| 2.0 - v));
    let mut flat = nights::night();
    flat.headline.sigma = None;
    flat.trials.iter_mut().for_each(|t| t.value = t.value.map(|_| 1.0));
    vec![
        Night::default(),
        only_crashes,
        extreme,
        upward,
        flat,
        nights::night(),
        nights::hostile(40, true),
        nights::hostile(2000, false),
    ]
}

#[test]
fn each_drawing_is_xml_and_an_image_of_its_size() {
    for night in every() {
        let svg = report::progress_svg(&night);
        Document::parse(&svg).unwrap();
        let tree = usvg::Tree::from_str(&svg, &usvg::Options::default()).unwrap();
        assert_eq!((tree.size().width(), tree.size().height()), (1000.0, 520.0));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "a place that is none");
    }
}

#[test]
fn the_picture_has_its_size_and_its_words() {
    let png = report::progress_png(&nights::night()).unwrap();
    let picture = Pixmap::decode_png(&png).unwrap();
    assert_eq!((picture.width(), picture.height()), (2000, 1040));
    // the title is dark on light; without a font there would be nothing
    let dark = (40..300).flat_map(|x| (30..70).map(move |y| (x, y)));
    let dark = dark.filter(|&(x, y)| picture.pixel(x, y).is_some_and(|p| p.red() < 90)).count();
    assert!(dark > 500, "{dark} dark pixels");
    assert!(
        picture.pixel(600, 980).is_some_and(|p| p.red() > 240 && p.alpha() == 255),
        "the ground is light"
    );
}

#[test]
fn every_trial_is_in_the_drawing_once() {
    for night in every() {
        let svg = report::progress_svg(&night);
        let document = Document::parse(&svg).unwrap();
        let titles = document.descendants().filter(|n| n.has_tag_name("title")).filter_map(|n| n.text());
        let mut drawn: Vec<u64> = titles.map(|t| t.split(':').next().unwrap().parse().unwrap()).collect();
        drawn.sort_unstable();
        assert_eq!(drawn, night.trials.iter().map(|t| t.trial).collect::<Vec<_>>());
    }
}

#[test]
fn every_point_on_the_page_links_to_its_trial() {
    let night = nights::night();
    let page = Html::parse_document(&report::html(&night));
    for class in ["wide", "narrow"] {
        let links = Selector::parse(&format!("#progress svg.{class} a")).unwrap();
        let mut to: Vec<u64> =
            page.select(&links).map(|a| a.attr("href").unwrap()[2..].parse().unwrap()).collect();
        to.sort_unstable();
        assert_eq!(to, (1..=94).collect::<Vec<u64>>());
    }
}

#[test]
fn a_diverged_trial_is_marked_at_the_edge_and_moves_nothing_else() {
    let points = |night: &Night| {
        let svg = report::progress_svg(night);
        let document = Document::parse(&svg).unwrap();
        let keeps = document.descendants().filter(|n| n.attribute("class") == Some("keep"));
        keeps.filter_map(|n| n.attribute("cy").map(str::to_owned)).collect::<Vec<_>>()
    };
    let mut night = nights::night();
    let before = points(&night);
    for value in [3.0, 1e30, -1e30] {
        night.trials[43].value = Some(value);
        assert_eq!(points(&night), before);
        assert!(
            report::progress_svg(&night).contains("44: discard,")
                && report::progress_svg(&night).contains("off the scale")
        );
    }
}

#[test]
fn a_value_on_a_crash_changes_nothing() {
    let mut night = nights::night();
    let before = report::progress_svg(&night);
    let crashed = night.trials.iter_mut().filter(|t| t.status == Status::Crash);
    crashed.for_each(|t| t.value = Some(0.0));
    assert_eq!(report::progress_svg(&night), before);
}

#[test]
fn a_version_of_the_brief_is_marked_before_its_first_trial() {
    let svg = report::progress_svg(&nights::night());
    let document = Document::parse(&svg).unwrap();
    let marks: Vec<_> = document.descendants().filter(|n| n.attribute("class") == Some("brief")).collect();
    assert_eq!(marks.len(), 1);
    let x: f64 = marks[0].attribute("d").unwrap()[1..].split(' ').next().unwrap().parse().unwrap();
    let at = |trial: &str| -> f64 {
        let title = document
            .descendants()
            .find(|n| n.has_tag_name("title") && n.text().unwrap().starts_with(trial))
            .unwrap();
        title.parent().unwrap().attribute("cx").unwrap().parse().unwrap()
    };
    assert!(at("40:") < x && x < at("41:"), "{} {x} {}", at("40:"), at("41:"));
}

#[test]
fn it_is_light_first_and_dark_on_request() {
    let svg = report::progress_svg(&nights::night());
    let (light, dark) = svg.split_once("@media(prefers-color-scheme:dark)").unwrap();
    assert!(light.contains("fill: #ffffff") && dark.contains("fill: #1c2024"));
    assert!(!svg.contains("var(") && !svg.contains("href"));
}
