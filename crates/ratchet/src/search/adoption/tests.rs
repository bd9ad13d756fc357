use rand::{RngExt, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, LogNormal};

use super::*;

/// A search in which a trial gains with a given chance, without and with the mechanism.
struct World {
    off: f64,
    on: f64,
}

/// What came of one mechanism in a world.
#[derive(Debug, PartialEq)]
struct Fate {
    adopted: bool,
    why: Option<Why>,
    blocks: usize,
}

impl World {
    /// One trial: gains are log-normal and shrink as the search goes on, and what gains is run again.
    fn trial(&self, nth: usize, on: bool, random: &mut StdRng) -> Trialled {
        let gains = random.random_bool(if on { self.on } else { self.off });
        let size = LogNormal::new(0.0, 1.0).unwrap().sample(random) * (-(nth as f64) / 30.0).exp();
        let crashed = !gains && random.random_bool(0.1);
        let again = gains || random.random_bool(0.2);
        let minutes = if crashed { 0.5 } else { 5.0 + if again { 10.0 } else { 0.0 } };
        Trialled { on, gain: if gains { 0.001 * size } else { 0.0 }, minutes, crashed }
    }

    /// Trials until the mechanism is adopted or retired.
    fn fate(&self, seed: u64) -> Fate {
        let mut random = StdRng::seed_from_u64(seed);
        let mut outcomes = Vec::new();
        loop {
            let nth = outcomes.len();
            let on = is_on(&format!("night {seed}"), "a", nth as u64, false);
            outcomes.push(self.trial(nth, on, &mut random));
            let blocks = outcomes.len() / BLOCK;
            match judge(&outcomes, false) {
                Judgment::Undecided => {}
                Judgment::Adopt(_) => return Fate { adopted: true, why: None, blocks },
                Judgment::Retire(why, _) => return Fate { adopted: false, why: Some(why), blocks },
            }
        }
    }

    /// Share adopted, in percent, and mean blocks until it was decided.
    fn shares(&self, repeats: u64) -> (f64, f64) {
        let fates: Vec<Fate> = (0..repeats).map(|seed| self.fate(seed)).collect();
        let adopted = fates.iter().filter(|fate| fate.adopted).count() as f64;
        let blocks: usize = fates.iter().map(|fate| fate.blocks).sum();
        (100.0 * adopted / repeats as f64, blocks as f64 / repeats as f64)
    }
}

fn outcome(on: bool, gain: f64) -> Trialled {
    Trialled { on, gain, minutes: 5.0, crashed: false }
}

#[test]
fn blocks_are_balanced_and_every_order_is_as_likely() {
    let mut seen = std::collections::BTreeMap::<Vec<bool>, usize>::new();
    for block in 0..6_000 {
        let order = |adopted| (0..4).map(|i| is_on("t", "m", 4 * block + i, adopted)).collect::<Vec<_>>();
        *seen.entry(order(false)).or_default() += 1;
        assert_eq!(order(false).iter().filter(|on| **on).count(), 2);
        assert_eq!(order(true).iter().filter(|on| **on).count(), 3);
    }
    assert_eq!(seen.len(), 6);
    // 1,000 each are expected, with a standard deviation of 29
    assert!(seen.values().all(|count| (885..1115).contains(count)), "{seen:?}");
    let other = |tag, mechanism| (0..64).map(|nth| is_on(tag, mechanism, nth, false)).collect::<Vec<_>>();
    assert_ne!(other("t", "m"), other("t", "n"));
    assert_ne!(other("t", "m"), other("u", "m"));
}

#[test]
fn p_is_the_share_of_all_orders_that_favour_it_as_much() {
    // by hand: one gain in each of two blocks, both on; a block's gain is on in 3 of its 6 orders
    let block = |gain| [outcome(true, gain), outcome(false, 0.0), outcome(true, 0.0), outcome(false, 0.0)];
    let (evidence, harm) = weigh(&[block(1.0), block(2.0)].concat());
    assert!((evidence.p - 0.25).abs() < 1e-12 && (harm - 1.0).abs() < 1e-12, "{evidence:?} {harm}");
    // both gains on in one block: 1 of 6
    let both = [outcome(true, 1.0), outcome(true, 1.0), outcome(false, 0.0), outcome(false, 0.0)];
    assert!((weigh(&both).0.p - 1.0 / 6.0).abs() < 1e-12);
    // three of four on: the gain is on in 3 of 4
    let most = [outcome(true, 1.0), outcome(true, 0.0), outcome(true, 0.0), outcome(false, 0.0)];
    assert!((weigh(&most).0.p - 0.75).abs() < 1e-12);
    // nothing gained: nothing is known
    assert!(weigh(&block(0.0)).0.p > 1.0 - 1e-9);
}

#[test]
fn p_agrees_with_counting_the_orders_one_by_one() {
    let world = World { off: 0.3, on: 0.5 };
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let outcomes: Vec<Trialled> =
            (0..16).map(|nth| world.trial(nth, is_on("t", "m", nth as u64, false), &mut random)).collect();
        let scores = scores(&outcomes);
        let sum = |on: &dyn Fn(usize) -> bool| (0..16).filter(|i| on(*i)).map(|i| scores[i]).sum::<i64>();
        let observed = sum(&|i| outcomes[i].on);
        let halves: Vec<usize> = (0..16).filter(|order: &usize| order.count_ones() == 2).collect();
        let (mut all, mut as_much) = (0.0, 0.0);
        for (a, b, c, d) in halves.iter().flat_map(|a| {
            let halves = &halves;
            halves.iter().flat_map(move |b| {
                halves.iter().flat_map(move |c| halves.iter().map(move |d| (*a, *b, *c, *d)))
            })
        }) {
            let order = a | b << 4 | c << 8 | d << 12;
            all += 1.0;
            as_much += f64::from(sum(&|i| order >> i & 1 == 1) >= observed);
        }
        assert_eq!(all, 1296.0);
        assert!((weigh(&outcomes).0.p - as_much / all).abs() < 1e-9);
    }
}

#[test]
fn one_that_does_nothing_is_adopted_in_less_than_one_case_in_forty() {
    for share in [0.05, 0.15, 0.3] {
        let (adopted, _) = World { off: share, on: share }.shares(2_000);
        assert!(adopted <= 2.5, "{adopted} % at {share}");
    }
}

#[test]
fn power_is_what_the_documentation_says() {
    let says =
        [(0.15, 0.15, 1.6, 10.8), (0.1, 0.3, 34.0, 13.6), (0.1, 0.5, 85.0, 11.6), (0.2, 0.6, 73.0, 12.3)];
    let found = says.map(|(off, on, ..)| World { off, on }.shares(2_000));
    for ((.., adopted, blocks), found) in says.into_iter().zip(found) {
        assert!((found.0 - adopted).abs() < 0.6 && (found.1 - blocks).abs() < 0.6, "{found:?}");
    }
}

#[test]
fn harm_is_never_adopted_and_soon_retired() {
    let (adopted, blocks) = World { off: 0.2, on: 0.0 }.shares(2_000);
    assert!(adopted == 0.0 && blocks < 6.0, "{adopted} {blocks}");
    let harmful = [outcome(false, 1.0), outcome(true, 0.0), outcome(true, 0.0), outcome(false, 1.0)];
    let judged = judge(&[harmful, harmful].concat(), false);
    assert!(matches!(judged, Judgment::Retire(Why::Harm, evidence) if evidence.on == 0.0), "{judged:?}");
}

#[test]
fn many_small_gains_do_not_outweigh_a_larger_sum_without_it() {
    let block = [outcome(true, 0.001), outcome(true, 0.001), outcome(false, 0.0), outcome(false, 0.0)];
    let large = [outcome(true, 0.001), outcome(true, 0.001), outcome(false, 0.1), outcome(false, 0.0)];
    assert!(matches!(judge(&[block; 4].concat(), false), Judgment::Adopt(_)));
    assert!(!matches!(judge(&[block, block, large, block].concat(), false), Judgment::Adopt(_)));
}

#[test]
fn a_lucky_one_is_retired_after_adoption_and_a_good_one_stays() {
    // adopted at sixteen trials in which its own gained and no others, whatever made them gain
    let retired = |world: &World, trials: usize| {
        let retired = (0..400).filter(|seed| {
            let mut random = StdRng::seed_from_u64(*seed);
            let on = |nth: usize, adopted| is_on(&format!("night {seed}"), "a", nth as u64, adopted);
            let mut outcomes: Vec<Trialled> = (0..16).map(|nth| outcome(on(nth, false), 0.0)).collect();
            outcomes.iter_mut().filter(|outcome| outcome.on).skip(2).for_each(|outcome| outcome.gain = 0.01);
            assert!(matches!(judge(&outcomes, false), Judgment::Adopt(_)));
            (16..16 + trials).any(|nth| {
                outcomes.push(world.trial(nth, on(nth, true), &mut random));
                matches!(judge(&outcomes, true), Judgment::Retire(Why::NoLonger, _))
            })
        });
        100.0 * retired.count() as f64 / 400.0
    };
    for (off, on, trials) in [(0.1, 0.5, 96), (0.2, 0.2, 48), (0.2, 0.2, 96), (0.2, 0.0, 48), (0.2, 0.0, 96)]
    {
        eprintln!("{off} {on}: {} % retired after {trials} trials", retired(&World { off, on }, trials));
    }
    assert!(retired(&World { off: 0.1, on: 0.5 }, 96) < 3.0);
    assert!(retired(&World { off: 0.2, on: 0.2 }, 96) > 50.0);
    assert!(retired(&World { off: 0.2, on: 0.0 }, 96) > 90.0);
}

#[test]
fn the_same_trials_are_judged_the_same() {
    let world = World { off: 0.1, on: 0.4 };
    assert_eq!(world.fate(7), world.fate(7));
}

#[test]
fn a_canary_ends_at_more_crashes_than_the_rate_before_allows() {
    let run = |crashed| Trialled { on: true, gain: 0.0, minutes: 5.0, crashed };
    let off = Trialled { on: false, crashed: true, ..run(true) };
    assert_eq!(canary(&[run(false), off, off, run(true)], 1, 20), Canary::Waiting);
    assert_eq!(canary(&[off, run(true), off, run(true)], 1, 20), Canary::Failed(2, 2));
    assert_eq!(canary(&[run(true), run(false), run(false), run(false)], 1, 20), Canary::Passed);
    assert_eq!(canary(&[run(true), run(true), run(false), run(false)], 4, 20), Canary::Passed);
}

#[test]
fn a_canary_errs_as_often_as_its_documentation_says() {
    // every sequence of four, weighed by its chance at the true rate
    let fails = |crashes: usize, rate: f64| -> f64 {
        let sequences = (0..16_u32).map(|bits| {
            let runs: Vec<Trialled> = (0..4)
                .map(|i| Trialled { on: true, gain: 0.0, minutes: 5.0, crashed: bits >> i & 1 == 1 })
                .collect();
            let ones = bits.count_ones() as i32;
            let chance = rate.powi(ones) * (1.0 - rate).powi(4 - ones);
            if matches!(canary(&runs, crashes, 20), Canary::Failed(..)) { chance } else { 0.0 }
        });
        100.0 * sequences.sum::<f64>()
    };
    for (crashes, rate, says) in
        [(1, 0.05, 1.4), (1, 0.5, 69.0), (1, 1.0, 100.0), (4, 0.2, 2.7), (4, 0.5, 31.0), (4, 1.0, 100.0)]
    {
        let fails = fails(crashes, rate);
        assert!((fails - says).abs() < 0.5, "{crashes} {rate}: {fails}");
    }
}
