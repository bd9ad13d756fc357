//! The stated rate of false keeps, by the real verdict over simulated nights.

use ratchet::verdict::Policy;

use crate::simulated::{Rule, Tally, World, play};

fn nights(count: u64, world: World) -> Vec<Tally> {
    let rule = Rule::Ratchet(Policy::default());
    (0..count).map(|seed| play(world, &rule, seed)).collect()
}

#[test]
fn of_all_keeps_at_most_a_twentieth_is_false() {
    // Oracle: the world itself, which knows each candidate's true effect.
    let world = World::default();
    for world in
        [world, World { useful: 0.05, ..world }, World { noise: 2.0, ..world }, World { noise: 0.5, ..world }]
    {
        let nights = nights(150, world);
        let [keeps, false_keeps] = [|night: &Tally| night.keeps, |night: &Tally| night.false_keeps]
            .map(|of| nights.iter().map(of).sum::<u32>());
        assert!(keeps > 100, "{keeps} keeps in {world:?}");
        assert!(f64::from(false_keeps) <= 0.05 * f64::from(keeps), "{false_keeps} of {keeps} in {world:?}");
    }
}

#[test]
fn a_night_without_any_improvement_seldom_has_a_keep() {
    let nights = nights(400, World { useful: 0.0, ..World::default() });
    let with_keep = nights.iter().filter(|night| night.keeps > 0).count();
    // the stated 5 %, and two standard errors of 400 nights
    assert!(with_keep <= 28, "{with_keep} of 400");
}

#[test]
fn a_night_reaches_more_than_any_threshold_that_keeps_as_few_false() {
    let mean =
        |rule: &Rule| (0..200).map(|seed| play(World::default(), rule, seed).gain).sum::<f64>() / 200.0;
    let ours = mean(&Rule::Ratchet(Policy::default()));
    let [any, threshold] = [Rule::AnyLower, Rule::Fixed(3.0)].map(|rule| mean(&rule));
    assert!(ours > threshold + 3.0, "{ours} σ against {threshold} of the threshold with 6 % false keeps");
    // of any lower value's keeps 45 % are false; where σ is known, nothing is paid for that
    let after = mean(&Rule::NextNight(Policy::default()));
    assert!(ours > any - 1.5 && after > any - 1.0, "{ours} and {after} σ against {any} of any lower value");
}
