//! The clock, in a time that the test makes pass, and the watchdog in a real process.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prepare::clock::{Budget, Clock, OVERRUN_EXIT_CODE, Watchdog};
use proptest::prelude::*;

/// A clock and the milliseconds that it reads.
fn clock(budget_ms: u64) -> (Clock, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&now);
    let budget = Budget::Time(Duration::from_millis(budget_ms));
    (Clock::with_time(budget, move || Duration::from_millis(read.load(Ordering::Relaxed))), now)
}

fn pass(now: &AtomicU64, ms: u64) {
    now.fetch_add(ms, Ordering::Relaxed);
}

#[test]
fn time_before_the_first_step_counts() {
    let (mut clock, now) = clock(1000);
    pass(&now, 400);
    assert!(!clock.done());
    assert_eq!(clock.progress(), 0.4);
    pass(&now, 350);
    assert!(clock.done(), "250 ms remain for a step of 350 ms");
}

#[test]
fn a_spent_budget_has_no_free_step() {
    let (mut clock, now) = clock(1000);
    pass(&now, 1000);
    assert!(clock.done());
    assert_eq!(clock.progress(), 1.0);
}

#[test]
fn a_step_budget_is_exact_and_its_progress_is_steps_over_n() {
    let mut clock = Clock::start(Budget::Steps(4));
    let mut seen = Vec::new();
    while !clock.done() {
        seen.push(clock.progress());
    }
    assert_eq!(seen, [0.0, 0.25, 0.5, 0.75]);
    assert_eq!(clock.progress(), 1.0);
    assert!(clock.done(), "and stays done");
    assert!(Clock::start(Budget::Steps(0)).done());
}

#[test]
fn the_grace_is_two_seconds_or_five_percent() {
    let deadline = |seconds| Budget::Time(Duration::from_secs(seconds)).deadline();
    assert_eq!(deadline(3), Some(Duration::from_secs(5)));
    assert_eq!(deadline(60), Some(Duration::from_secs(63)));
    assert_eq!(deadline(300), Some(Duration::from_secs(315)));
    assert_eq!(Budget::Steps(7).deadline(), None);
}

proptest! {
    /// Whatever steps take: it ends for the stated reason, stays ended, and progress never falls.
    #[test]
    fn done_exactly_when_the_longest_step_no_longer_fits(
        steps in prop::collection::vec(1..300u64, 1..60), setup in 0..500u64,
    ) {
        let (mut clock, now) = clock(1000);
        pass(&now, setup);
        let (mut longest, mut elapsed, mut before) = (0, setup, 0.0);
        for step in steps {
            let remaining = 1000u64.saturating_sub(elapsed);
            let fits = remaining > 0 && remaining >= longest;
            prop_assert_eq!(clock.done(), !fits);
            prop_assert!(clock.progress() >= before && clock.progress() <= 1.0);
            before = clock.progress();
            pass(&now, step);
            elapsed += step;
            longest = longest.max(step);
        }
    }

    /// Steps that do not grow end inside the budget, but for the first, which nothing foretells.
    #[test]
    fn even_steps_never_overrun(step in 1..=1000u64, setup in 0..1000u64) {
        let (mut clock, now) = clock(1000);
        pass(&now, setup);
        let mut begun = 0;
        while !clock.done() {
            pass(&now, step);
            begun += 1;
        }
        let end = setup + begun * step;
        prop_assert!(end <= 1000 || begun == 1, "{} steps end at {}", begun, end);
        prop_assert!(end + step > 1000, "a step more would have fitted");
    }
}

const CHILD: &str = "PREPARE_TEST_WATCHDOG_CHILD";

/// Not a test of its own: what the next test runs as a process of its own.
#[test]
fn watchdog_child() {
    if std::env::var_os(CHILD).is_some() {
        let held = std::io::stderr().lock(); // contestant code may hold it for ever
        let _watchdog = Watchdog::arm(Duration::from_millis(20)).unwrap();
        loop {
            std::thread::park();
            std::hint::black_box(&held);
        }
    }
}

#[test]
fn the_watchdog_ends_a_process_that_hangs() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "clock::watchdog_child", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(OVERRUN_EXIT_CODE));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ran past its budget"), "{said}");
}

#[test]
fn a_watchdog_that_is_dropped_lets_the_process_live() {
    for _ in 0..100 {
        drop(Watchdog::arm(Duration::from_secs(1)).unwrap());
    }
}
