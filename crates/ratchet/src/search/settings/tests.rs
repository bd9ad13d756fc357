//! Oracle: the guards as the specification states them, and for any input by proptest.

use proptest::{prop_assert, proptest};

use super::*;

fn names(many: usize) -> Vec<String> {
    (0..many).map(|n| format!("K{n}")).collect()
}

fn answer(freeze: &[&str], unfreeze: &[&str], guidance: Option<&str>) -> Answer {
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Answer {
        diagnosis: "d".into(),
        strategy: Strategy::Explore,
        freeze: all(freeze),
        unfreeze: all(unfreeze),
        guidance: guidance.map(str::to_owned),
    }
}

fn frozen(settings: &Settings) -> Vec<&str> {
    settings.frozen.iter().map(String::as_str).collect()
}

#[test]
fn the_default_is_level_1_and_an_answer_sets_what_it_says() {
    let start = Settings::default();
    assert_eq!((start.strategy, start.frozen.len(), &start.guidance), (None, 0, &None));
    let (next, said) = start.after(&answer(&["K1"], &[], Some("lower K2")), &names(8));
    assert_eq!((next.cycle, next.strategy, frozen(&next)), (1, Some(Strategy::Explore), vec!["K1"]));
    assert_eq!((next.guidance.as_deref(), said), (Some("lower K2"), Vec::new()));
    let (next, said) = next.after(&answer(&[], &["K1"], None), &names(8));
    assert_eq!((frozen(&next), said), (vec![], Vec::new()));
    assert_eq!(start, Settings::default(), "the first settings are what they were");
}

#[test]
fn a_cycle_freezes_five_knobs_and_names_the_others() {
    let all = ["K0", "K1", "K2", "K3", "K4", "K5", "K6"];
    let (next, said) = Settings::default().after(&answer(&all, &[], None), &names(20));
    assert_eq!(frozen(&next), all[..5]);
    assert_eq!(said, ["not frozen, as a cycle freezes 5 at most: K5, K6"]);
    // one that is frozen already is none of the five
    let (next, said) = next.after(&answer(&all, &[], None), &names(20));
    assert_eq!((frozen(&next), said), (all.to_vec(), Vec::new()));
}

#[test]
fn four_knobs_stay_active_and_with_fewer_none_can_be_frozen() {
    let (next, said) = Settings::default().after(&answer(&["K0", "K1", "K2"], &[], None), &names(6));
    assert_eq!(
        (frozen(&next), said),
        (vec!["K0", "K1"], vec!["not frozen, as 4 knobs stay active: K2".into()])
    );
    // one that is set free makes room for another
    let (next, said) = next.after(&answer(&["K2"], &["K0"], None), &names(6));
    assert_eq!((frozen(&next), said), (vec!["K1", "K2"], Vec::new()));
    for many in 0..=4 {
        let all: Vec<String> = names(many);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let (next, said) = Settings::default().after(&answer(&all, &[], None), &names(many));
        assert_eq!((frozen(&next), said.len()), (vec![], usize::from(many > 0)), "{many}");
    }
}

#[test]
fn knobs_that_an_edit_has_removed_are_frozen_no_more_and_four_of_the_rest_stay_active() {
    let settings = Settings { frozen: names(5).into_iter().collect(), ..Settings::default() };
    let left: Vec<String> = names(9).split_off(3); // K3 to K8
    assert_eq!(settings.frozen_among(&left), ["K3", "K4"].map(str::to_owned).into());
    assert_eq!(settings.frozen_among(&names(9)), settings.frozen);
    assert_eq!(settings.frozen_among(&names(6)).len(), 2);
    let (next, said) = settings.after(&answer(&[], &[], None), &left);
    assert_eq!(frozen(&next), ["K3", "K4"]);
    assert_eq!(said, ["frozen no more, as it is gone or too few knobs are left: K0, K1, K2"]);
}

#[test]
fn unknown_and_contradictory_names_are_ignored_and_said_in_bounded_words() {
    let (next, said) = Settings::default()
        .after(&answer(&["no\nsuch\u{1b}[2J", "K1", "K1"], &["K1", "nor this"], None), &names(8));
    assert_eq!(frozen(&next), [""; 0]);
    assert_eq!(
        said,
        ["no knob of this name: no such, nor this", "both frozen and unfrozen, so left as it was: K1"]
    );
    let many: Vec<String> = (0..10_000).map(|n| format!("{n:0>300}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (_, said) = Settings::default().after(&answer(&many, &[], None), &names(8));
    assert_eq!(said.len(), 1);
    assert!(said[0].len() < 1_000 && said[0].ends_with("and 9992 more"), "{}", said[0]);
}

#[test]
fn a_guidance_holds_three_cycles_unless_another_replaces_it() {
    let given = Settings::default().after(&answer(&[], &[], Some("first")), &names(8)).0;
    let quiet = |settings: &Settings| settings.after(&answer(&[], &[], None), &names(8)).0;
    let second = quiet(&given);
    let third = second.unchanged_next(); // an answer that could not be used ages it as well
    let fourth = quiet(&third);
    let texts = [&given, &second, &third, &fourth].map(|settings| settings.guidance.as_deref());
    assert_eq!(texts, [Some("first"), Some("first"), Some("first"), None]);
    assert_eq!(fourth.cycle, 4);

    let replaced = third.after(&answer(&[], &[], Some("second")), &names(8)).0;
    assert_eq!(replaced.guidance.as_deref(), Some("second"));
    assert_eq!(quiet(&quiet(&replaced)).guidance.as_deref(), Some("second"));
    assert_eq!(given.after(&answer(&[], &[], Some(" \n")), &names(8)).0.guidance, None, "taken away");
}

#[test]
fn a_guidance_of_a_megabyte_or_with_control_characters_is_bounded_and_clean() {
    let long = "go lower\n".repeat(120_000);
    let (next, said) = Settings::default().after(&answer(&[], &[], Some(&long)), &names(8));
    let text = next.guidance.unwrap();
    assert_eq!(text.lines().count(), GUIDANCE_LINES);
    assert_eq!(said, [format!("the guidance was cut to {} bytes", text.len())]);

    let wide = "é".repeat(1 << 20);
    let (next, said) = Settings::default().after(&answer(&[], &[], Some(&wide)), &names(8));
    assert!(next.guidance.unwrap().len() <= GUIDANCE_BYTES);
    assert_eq!(said.len(), 1, "{said:?}");

    let odd = "\u{1b}]0;title\u{7}lower\u{202e} K1\0\r\nand\u{1b}[31m K2\u{8}";
    let (next, _) = Settings::default().after(&answer(&[], &[], Some(odd)), &names(8));
    assert_eq!(next.guidance.as_deref(), Some("lower K1\nand K2"));
}

#[test]
fn the_schema_has_the_words_that_are_read_and_written() {
    for strategy in Strategy::ALL {
        assert_eq!(serde_json::to_value(strategy).unwrap(), strategy.as_str());
    }
    let schema = ::llm::Schema::of::<Answer>().json;
    assert_eq!(
        schema["properties"]["strategy"]["enum"],
        serde_json::json!(["explore", "exploit", "focused"])
    );
}

proptest! {
    #[test]
    fn whatever_is_answered_the_guards_hold(
        before in proptest::collection::btree_set("K[0-9]", 0..10),
        freeze in proptest::collection::vec("K1?[0-9]", 0..30),
        unfreeze in proptest::collection::vec("K1?[0-9]", 0..10),
        guidance in proptest::option::of(".{0,400}"),
        many in 0usize..15,
    ) {
        let knobs = names(many);
        let settings = Settings { frozen: before, ..Settings::default() };
        let answer = Answer { diagnosis: String::new(), strategy: Strategy::Focused, freeze, unfreeze, guidance };
        let (next, _) = settings.after(&answer, &knobs);
        prop_assert!(next.frozen.iter().all(|name| knobs.contains(name)));
        prop_assert!(next.frozen.is_empty() || knobs.len() - next.frozen.len() >= LEAST_ACTIVE);
        prop_assert!(next.frozen.difference(&settings.frozen).count() <= MOST_FREEZES);
        prop_assert!(next.frozen.iter().all(|name| settings.frozen.contains(name) || answer.freeze.contains(name)));
        prop_assert!(next.guidance.is_none_or(|text| text.len() <= GUIDANCE_BYTES && !text.is_empty()));
    }
}
