//! The script is asked as the loop asks it, and its answers are read as the loop reads them.

use std::path::Path;

use ::llm::{AskError, Call, Model};
use mechanism::{BUILTIN, Change, Hook, Knob, Move, PAGE, Trace, Trial};

use super::*;
use crate::{
    config::{Goal, Metric, tests::editable},
    proposer::{
        Brief, Budget, Demand, Edit, Proposal, ProposeError, Proposer, SourceFile, Start, knobs, llm::Author,
    },
    search::{
        self,
        cycle::cycle,
        evidence::{Ground, Known},
        research::{Outcome, SessionEnd, Workshop, session},
        voice::Voice,
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
        metric: &Metric { name: "val_bpb".to_owned(), goal: Goal::Minimize },
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

/// A night in which a larger batch was tried so often, and nothing was kept.
fn stuck(trials: u64) -> Trace {
    let knob = |name: &str| Knob { name: name.to_owned(), kind: "log".to_owned(), ..Knob::default() };
    let names = ["STEP_TOKENS", "DEPTH", "MATRIX_LR", "EMBED_LR", "WARMUP", "BETA2"];
    let trial = |number: u64| {
        let by = Move { name: "STEP_TOKENS".to_owned(), by: 0.1, ..Move::default() };
        let moves = if number == 1 { Vec::new() } else { vec![by] };
        let status = if number == 1 { "keep" } else { "discard" };
        let change = Change { moves, ..Change::default() };
        Trial { trial: number, status: status.to_owned(), gain: Some(-0.02), change, ..Trial::default() }
    };
    Trace {
        trials: (1..=trials).map(trial).collect(),
        champion: 1,
        plateau: trials - 1,
        knobs: names.map(knob).to_vec(),
        ..Trace::default()
    }
}

/// Asks about a night; `known`: mechanisms that there were.
fn asked<T>(trace: &Trace, known: &[&str], act: impl FnOnce(&Ground<'_>, &mut Voice<'_>) -> T) -> T {
    let known: Vec<Known> =
        known.iter().map(|name| Known { name: (*name).to_owned(), ..Known::default() }).collect();
    let metric = Metric { name: "val_bpb".to_owned(), goal: Goal::Minimize };
    let settings = search::Settings::default();
    let ground = Ground { program: "", metric: &metric, trace, settings: &settings, mechanisms: &known };
    let mut model = Scripted::new("x");
    act(&ground, &mut Voice { model: &mut model, max_output_tokens: 9_000, context_tokens: 60_000 })
}

/// A research session whose scripts are let pass as they are.
fn researched(trace: &Trace, known: &[&str]) -> (SessionEnd, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let valid = |script: &str| {
        let builtin = BUILTIN.iter().find(|builtin| builtin.script.trim() == script.trim());
        builtin.ok_or("none that ships")?;
        Ok(Hook::ALL.into_iter().filter(|hook| script.contains(&format!("fn {hook}("))).collect())
    };
    let workshop = Workshop { page: PAGE, example: BUILTIN[0].script, validate: &valid, hints: true };
    let end = asked(trace, known, |ground, voice| session(ground, voice, &workshop, folder.path()).unwrap());
    let script = std::fs::read_to_string(end.folder.join("mechanism.rhai")).ok();
    (end, script)
}

#[test]
fn its_settings_freeze_what_failed_and_on_a_plateau_free_and_explore() {
    let folder = tempfile::tempdir().unwrap();
    let cycle =
        |trace: &Trace| asked(trace, &[], |ground, voice| cycle(ground, voice, folder.path()).unwrap());
    let early = cycle(&stuck(5));
    assert_eq!(early.fault, None);
    assert_eq!(early.settings.frozen, ["STEP_TOKENS".to_owned()].into());
    assert!(early.settings.guidance.unwrap().contains("Never moved: DEPTH, MATRIX_LR"));
    let late = cycle(&stuck(9)).settings;
    assert!(late.frozen.is_empty() && late.strategy == Some(search::Strategy::Explore));
}

#[test]
fn its_sessions_build_what_the_evidence_speaks_for() {
    let built = |trials, known: &[&str]| match researched(&stuck(trials), known) {
        (SessionEnd { outcome: Outcome::Mechanism { name, .. }, remarks, .. }, Some(script)) => {
            assert_eq!(remarks, Vec::<String>::new());
            assert!(
                BUILTIN.iter().any(|builtin| builtin.name == name && builtin.script.trim() == script.trim())
            );
            name
        }
        (end, _) => panic!("{:?}", end.outcome),
    };
    assert_eq!(built(5, &[]), "orthogonal", "eleven directions of twelve were never tried");
    assert_eq!(built(13, &[]), "tabu", "one was tried twelve times");
    assert_eq!(built(13, &["tabu"]), "orthogonal");
}

#[test]
fn its_critic_selects_none_when_all_are_known() {
    let all: Vec<&str> = BUILTIN.iter().map(|builtin| builtin.name).collect();
    let (end, script) = researched(&stuck(13), &all);
    assert_eq!((end.outcome, script), (Outcome::NoneSelected, None));
    assert!(end.usage.tokens > 2_000, "two calls that were asked");
}

#[test]
fn a_trial_that_is_advised_by_a_mechanism_is_understood() {
    // the prompt quotes them
    let guidance = vec![
        "Do not raise STEP_TOKENS: that failed in trials 2, 3.\nDo not move MICRO_ROWS up to 128: that crashed."
            .to_owned(),
        "No keep for 6 trials: small changes of the same kind will not do.\nNever moved: LOGIT_CAP."
            .to_owned(),
    ];
    let told = Told { demand: Demand { guidance, ..Demand::default() }, ..Told::default() };
    let proposals = many(&told);
    let heeded = proposals.iter().filter(|proposal| moves(proposal, "LOGIT_CAP").is_some()).count();
    assert!((80..=120).contains(&heeded), "half of 200: {heeded}");
    let raised = proposals.iter().filter(|proposal| proposal.category == "batch").count();
    assert!((40..=80).contains(&raised), "three in five of the other half: {raised}");
}
