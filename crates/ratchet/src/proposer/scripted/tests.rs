//! The script is asked as the loop asks it, and its answers are read as the loop reads them.

use std::path::Path;

use ::llm::{AskError, Call, Model};

use super::*;
use crate::{
    config::{Metric, tests::editable},
    proposer::{
        Brief, Budget, Demand, Edit, Proposal, ProposeError, Proposer, SourceFile, Start, knobs, llm::Author,
    },
    sim::{START, Settings},
};

/// What a prompt may say.
#[derive(Default)]
struct Told<'a> {
    demand: Demand,
    in_vain: &'a [String],
    program: &'a str,
}

/// A proposal as the loop would have it.
fn proposal(dice: &str, told: &Told<'_>) -> Result<Proposal, ProposeError> {
    let folder = tempfile::tempdir().unwrap();
    let files = [SourceFile { path: "settings.toml".to_owned(), text: START.to_owned() }];
    let settings = toml::from_str(&format!("provider = \"scripted\"\nmodel = \"{dice}\"\n")).unwrap();
    let path = || folder.path().to_owned();
    let model = Box::new(Scripted::new(dice));
    let mut author = Author::new(settings, editable(&["settings.toml"]), model, path(), path());
    author.propose(&Brief {
        program: told.program,
        files: &files,
        pages: &[],
        profile: None,
        metric: &Metric { name: "val_bpb".to_owned(), goal: crate::config::Goal::Minimize },
        trials: &[],
        before_restart: 0,
        best: None,
        start: Start::Champion,
        demand: &told.demand,
        running: None,
        in_vain: told.in_vain,
        records: Path::new("."),
        budget: Budget::default(),
        seed: 0,
        repair: None,
        worktree: Path::new("."),
    })
}

/// Proposals with so many dice.
fn many(told: &Told<'_>) -> Vec<Proposal> {
    (0..200).map(|dice| proposal(&format!("stubborn-{dice}"), told).unwrap()).collect()
}

fn moves(proposal: &Proposal, name: &str) -> Option<(f64, f64)> {
    let [Edit { text, .. }] = &proposal.edits[..] else { panic!("one file: {proposal:?}") };
    Settings::parse(text).expect("still settings");
    let value = |text: &str| -> f64 {
        let files = [SourceFile { path: "settings.toml".to_owned(), text: text.to_owned() }];
        let knobs = knobs::knobs(&files, None).unwrap();
        knobs.iter().find(|knob| knob.name == name).unwrap().text.parse().unwrap()
    };
    let (from, to) = (value(START), value(text));
    (from != to).then_some((from, to))
}

#[test]
fn it_believes_in_larger_batches_and_never_lowers_one_of_its_own_accord() {
    let proposals = many(&Told::default());
    let raised = proposals.iter().filter(|proposal| proposal.category == "batch").count();
    assert!((100..=140).contains(&raised), "three in five of 200: {raised}");
    for name in ["STEP_TOKENS", "MICRO_ROWS"] {
        assert!(proposals.iter().filter_map(|p| moves(p, name)).all(|(from, to)| to > from), "{name}");
    }
    let different: std::collections::BTreeSet<&str> =
        proposals.iter().map(|proposal| proposal.description.as_str()).collect();
    assert!(different.len() <= 13, "it repeats itself: {}", different.len());
    assert!(proposals.iter().all(|p| p.usage.unwrap().tokens > 500), "what it would have cost");
}

#[test]
fn the_same_call_has_the_same_answer_and_other_dice_another() {
    let told = Told::default();
    let twice = || (0..20).map(|dice| proposal(&format!("d{dice}"), &told).unwrap().description);
    assert!(twice().eq(twice()));
    assert!(twice().collect::<std::collections::BTreeSet<_>>().len() > 3);
}

#[test]
fn refused_as_a_duplicate_it_varies_its_idea() {
    let refused = ["refused: the same source was tried as trial 5".to_owned()];
    let told = Told { in_vain: &refused, ..Told::default() };
    let different: std::collections::BTreeSet<String> =
        many(&told).into_iter().map(|proposal| proposal.description).collect();
    assert!(different.len() > 150, "{}", different.len());
    assert!(many(&told).iter().filter_map(|p| moves(p, "STEP_TOKENS")).all(|(from, to)| to > from));
}

#[test]
fn advice_is_heeded_half_of_the_time_and_always_after_two_refusals() {
    let hint = Some("Lower STEP_TOKENS. Leave DEPTH alone.".to_owned());
    let demand = Demand { hint, ..Demand::default() };
    let lowered = |told: &Told<'_>| {
        let lower = |p: &&Proposal| moves(p, "STEP_TOKENS").is_some_and(|(from, to)| to < from);
        many(told).iter().filter(lower).count()
    };
    let half = lowered(&Told { demand: demand.clone(), ..Told::default() });
    assert!((80..=120).contains(&half), "{half}");
    let refused = ["vetoed".to_owned(), "vetoed".to_owned()];
    assert_eq!(lowered(&Told { demand, in_vain: &refused, ..Told::default() }), 200);
}

#[test]
fn another_category_is_chosen_half_of_the_time() {
    let unlike = vec!["batch".to_owned(), "optimizer".to_owned()];
    let told = Told { demand: Demand { unlike, ..Demand::default() }, ..Told::default() };
    let other = many(&told).iter().filter(|p| ["schedule", "architecture"].contains(&&*p.category)).count();
    // half obey; of the others 16 in 100 are of another kind anyway
    assert!((95..=140).contains(&other), "{other}");
}

#[test]
fn a_role_that_it_cannot_play_is_said_and_counts_as_no_proposal() {
    let call = Call { purpose: "review", system: "", turns: &[], schema: None, max_output_tokens: 1 };
    let error = Scripted::new("x").ask(&call).unwrap_err();
    assert!(matches!(&error, AskError::Rejected(why) if why.contains("solo")), "{error}");
}
