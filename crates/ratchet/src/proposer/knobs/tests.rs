//! The search against landscapes whose optimum is known, through the real verdict.

use std::path::Path;

use proptest::prelude::*;

use self::night::{CHOICE, LANDSCAPES, Landscape, Night, ONE, median, square};
use super::{
    scale::{Number, Scale},
    *,
};
use crate::journal::Status;

mod night;

#[test]
fn the_search_beats_random_by_a_wide_margin() {
    // Oracle: pure random search through the same verdict, equal trials, 21 seeds, medians of the true loss.
    for (name, trials, margin, landscape) in &LANDSCAPES {
        let seeds = 0..21;
        let search = seeds.clone().map(|seed| Night::new(landscape, seed).searched(*trials, seed)).collect();
        let random = seeds.map(|seed| Night::new(landscape, seed).random(*trials, seed)).collect();
        let (search, random) = (median(search), median(random));
        println!("{name}: search {search:.4}, random {random:.4}");
        assert!(
            search * margin <= random,
            "{name}: search {search}, random {random}, wanted {margin} times less"
        );
    }
}

#[test]
fn the_classical_optimiser_beats_random_where_the_landscape_is_smooth() {
    // Oracle: as above.
    for name in ["mixed scales", "ill-conditioned", "a choice"] {
        let (_, trials, _, landscape) =
            LANDSCAPES.iter().find(|(known, ..)| *known == name).unwrap_or(&CHOICE);
        let seeds = 0..21;
        let tpe = seeds.clone().map(|seed| Night::new(landscape, seed).searched_by(&mut Tpe, *trials, seed));
        let tpe = median(tpe.collect());
        let random = median(seeds.map(|seed| Night::new(landscape, seed).random(*trials, seed)).collect());
        println!("{name}: tpe {tpe:.4}, random {random:.4}");
        assert!(tpe * 1.5 <= random, "{name}: tpe {tpe}, random {random}");
    }
}

#[test]
fn the_same_brief_gives_the_same_proposal() {
    for (_, _, _, landscape) in &LANDSCAPES {
        let mut night = Night::new(landscape, 3);
        for seed in 0..25 {
            let files = night.files();
            let first = Knobs.propose(&night.brief(&files, seed)).unwrap();
            assert_eq!(first, Knobs.propose(&night.brief(&files, seed)).unwrap());
            night.play(first);
        }
    }
}

#[test]
fn proposals_stay_in_range_are_new_and_say_what_they_do() {
    for (name, _, _, landscape) in &LANDSCAPES {
        let mut night = Night::new(landscape, 5);
        for seed in 0..80 {
            let files = night.files();
            let proposal = Knobs.propose(&night.brief(&files, seed)).unwrap();
            let text = &proposal.edits[0].text;
            let (before, after) =
                (super::knobs(&files, None).unwrap(), marker::find("x.py", text, None).unwrap());
            let source = TreeHash::of(&BTreeMap::from([("x.py", text)]));
            assert!(night.trials.iter().all(|trial| trial.source != source), "{name}: tried twice: {text}");
            for (old, new) in before.iter().zip(&after) {
                let (Scale::Log(lo, hi) | Scale::Lin(lo, hi) | Scale::Int(lo, hi)) = old.scale else {
                    continue;
                };
                let value: f64 = new.text.parse().unwrap();
                assert!((lo..=hi).contains(&value), "{name}: {} = {value}", new.name);
                let whole = |text: &str| !text.contains(['.', 'e']);
                assert_eq!(whole(&old.text), whole(&new.text), "{name}: {} became {}", old.text, new.text);
            }
            let change = &proposal.changes[0];
            let words = format!("{} {} → {}", change.name, change.from, change.to);
            assert!(proposal.description.starts_with(&words) && !proposal.hypothesis.is_empty());
            assert!(proposal.category.split('+').any(|name| name == change.name));
            // Everything but the values is as it was.
            let skeleton = |text: &str| text.split(|c: char| "0123456789.e-".contains(c)).collect::<String>();
            assert_eq!(skeleton(&files[0].text), skeleton(text));
            night.play(proposal);
        }
    }
}

#[test]
fn an_exhausted_space_says_so_after_every_place_was_tried() {
    let landscape = Landscape {
        text: "a = relu  # knob: choice relu|gelu|tanh\nb = 4 # knob: pow2 1..8\nc = 1 # knob: int 0..2\n",
        loss: |x| (x[1] < 8.0).then(|| square(x[1] - 2.0) + x[2]),
        sigma: 0.0,
    };
    let mut night = Night::new(&landscape, 1);
    for seed in 0..3 * 4 * 3 - 1 {
        let files = night.files();
        let proposal = Knobs.propose(&night.brief(&files, seed)).unwrap();
        night.play(proposal);
    }
    let files = night.files();
    let end = Knobs.propose(&night.brief(&files, 99)).unwrap_err();
    assert!(matches!(end, ProposeError::Exhausted(_)), "{end}");
    assert_eq!(night.truth(&night.champion), Some(0.0));
}

#[test]
fn crashed_regions_are_avoided() {
    let (_, trials, _, landscape) = &LANDSCAPES[7];
    // Oracle: half of the range of `b` crashes, so that random search crashes in about four of ten trials.
    let crashes: usize = (0..21)
        .map(|seed| {
            let mut night = Night::new(landscape, seed);
            while night.trials.len() < *trials {
                let files = night.files();
                let proposal =
                    Knobs.propose(&night.brief(&files, seed * 1_000 + night.trials.len() as u64)).unwrap();
                night.play(proposal);
            }
            night.trials.iter().filter(|trial| trial.status == Status::Crash).count()
        })
        .sum();
    assert!(crashes < 21 * trials / 8, "{crashes} crashes in {} trials", 21 * trials);
}

#[test]
fn a_keep_is_followed_the_same_way_and_a_first_expectation_is_none() {
    let landscape = Landscape { text: ONE, loss: |x| Some(square(x[0] + 15.0)), sigma: 0.0 };
    let mut night = Night::new(&landscape, 0);
    let mut last: Option<(f64, f64)> = None;
    for seed in 0..6 {
        let files = night.files();
        let proposal = Knobs.propose(&night.brief(&files, seed)).unwrap();
        if seed == 0 {
            assert_eq!(proposal.expected_delta, None);
        } else {
            assert!(proposal.expected_delta.unwrap() <= 0.0, "a proposal expects no loss when minimising");
        }
        let change = &proposal.changes[0];
        let (from, to): (f64, f64) = (change.from.parse().unwrap(), change.to.parse().unwrap());
        if let (Some((old, new)), Status::Keep) = (last, night.trials.last().unwrap().status)
            && new > -14.0
        {
            assert!(to < from && from == new && new < old, "{old} → {new} was kept, then {from} → {to}");
        }
        last = Some((from, to));
        night.play(proposal);
    }
}

#[test]
fn a_file_without_knobs_or_with_a_bad_one_is_no_loop() {
    let landscape = Landscape { text: "x = 1\n", loss: |_| Some(0.0), sigma: 0.0 };
    let night = Night::new(&landscape, 0);
    let propose = |text: &str| {
        let files = [SourceFile { path: "cand/x.py".to_owned(), text: text.to_owned() }];
        Knobs.propose(&night.brief(&files, 0)).unwrap_err().to_string()
    };
    assert!(propose("x = 1\n").contains("no editable file marks a knob; write"));
    assert!(propose("\nx = 1 # knob: lin\n").starts_with("cand/x.py:2: knob: "));
}

#[test]
fn knobs_of_one_name_are_told_apart() {
    let files = ["a/x.py", "b/x.py"].map(|path| SourceFile {
        path: path.to_owned(),
        text: "[one]\nlr = 1 # knob: int 1..4\n[two]\nlr = 2 # knob: int 1..4\n".to_owned(),
    });
    let found = super::knobs(&files, None).unwrap();
    let names: Vec<&str> = found.iter().map(|knob| knob.name.as_str()).collect();
    assert_eq!(names, ["lr", "lr#2", "lr#3", "lr#4"]);
    let new = edited(&files[1], &found, &[(1, "9".to_owned()), (2, "3".to_owned()), (3, "44".to_owned())]);
    assert_eq!(new, "[one]\nlr = 3 # knob: int 1..4\n[two]\nlr = 44 # knob: int 1..4\n");
}

#[test]
fn every_marker_of_the_shipped_contestant_can_be_followed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../train/src");
    let files: Vec<SourceFile> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| SourceFile {
            path: path.file_name().unwrap().to_string_lossy().into_owned(),
            text: std::fs::read_to_string(&path).unwrap(),
        })
        .collect();
    let markers =
        files.iter().flat_map(|file| file.text.lines()).filter(|line| line.contains("; // knob:")).count();
    for profile in ["full", "laptop", "smoke"] {
        let knobs = super::knobs(&files, Some(profile)).unwrap();
        assert!(knobs.len() > 10 && knobs.len() + 1 >= markers, "{} knobs, {markers} markers", knobs.len());
        for knob in knobs {
            for by in [-0.15, 0.15] {
                if let Some(text) = knob.scale.moved(&knob.text, by) {
                    knob.scale.check(&text).unwrap_or_else(|why| panic!("{}: {why}", knob.name));
                    assert_ne!(text, knob.text);
                }
            }
        }
    }
}

#[test]
fn a_move_of_nothing_leads_nowhere_and_ends() {
    for scale in [Scale::Lin(0.0, 1.0), Scale::Log(0.1, 10.0), Scale::Int(0.0, 9.0), Scale::Pow2(0, 9)] {
        for by in [0.0, -0.0, f64::NAN, f64::INFINITY] {
            assert_eq!(scale.moved("1", by), None, "{by}");
        }
    }
}

proptest! {
    #[test]
    fn a_written_value_reads_back_and_writes_the_same(
        position in 0.0..=1.0f64, kind in 0usize..7, exponent in -12..12i32, span in 1.01..1e6f64,
    ) {
        let lo = 10f64.powi(exponent);
        let (scale, like) = match kind {
            0 => (Scale::Log(lo, lo * span), "0.5"),
            1 => (Scale::Lin(-lo, lo * span), "1e-3"),
            2 => (Scale::Lin(-20.0, 20.0), "1_000"),
            3 => (Scale::Int(-3.0, 1e6), "8_192usize"),
            4 => (Scale::Pow2(0, 40), "1 << 19"),
            5 => (Scale::Log(1.0, 1e6), "64"),
            _ => (Scale::Log(lo, lo * span), "2.0f32"),
        };
        let text = scale.text(position, like).unwrap();
        prop_assert!(scale.check(&text).is_ok(), "{}", text);
        let back = scale.position(&text).unwrap();
        prop_assert!((0.0..=1.0).contains(&back));
        prop_assert_eq!(scale.text(back, like).unwrap(), text.clone(), "from {}", back);
        prop_assert!((back - position).abs() < 0.51 || kind == 5, "{} far from {}", back, position);
        let number = |text: &str| Number::parse(text).unwrap();
        prop_assert_eq!(text.contains(['.', 'e']), like.contains(['.', 'e']), "{} like {}", text, like);
        prop_assert!(text.ends_with(like.trim_start_matches(|c: char| "0123456789.e-_< ".contains(c))));
        prop_assert!(text.len() <= 24, "{} has more digits than a person would type", number(&text).value);
    }
}

#[test]
fn an_edit_of_anyones_shows_the_marked_values_that_it_moved() {
    let files = |text: &str| [SourceFile { path: "a.rs".into(), text: text.into() }];
    let before = files("const A: f64 = 0.1; // knob: log 0.01..1\nconst B: i32 = 2; // knob: int 1..8\n");
    let after =
        files("fn new() {}\nconst B: i32 = 3; // knob: int 1..8\nconst A: f64 = 0.1; // knob: log 0.01..1\n");
    let change = KnobChange { name: "B".into(), from: "2".into(), to: "3".into() };
    assert_eq!(moved(&before, &after, None), [change]);
    assert_eq!(moved(&before, &files("const A: f64 = 0.1; // knob: logg 1\n"), None), []);
}
