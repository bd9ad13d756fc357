//! Who is asked next: the proposer that the task names, or the built-in search in its place.
//!
//! A proposer that is down is asked again after ever longer waits, and what it misses counts against nobody. One
//! that answers and gives nothing usable, time and again, is given up for this run.

use std::time::{Duration, Instant};

use crate::{
    config::Fallback,
    proposer::{Nothing, Proposer, knobs::Knobs},
};

/// Proposals in a row that come to nothing before the fallback takes over.
const PATIENCE: u32 = 10;
/// The first and the longest wait for a proposer that is down.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// What is known of the named proposer in this run.
#[derive(Debug)]
pub(crate) struct Patience {
    /// Whether the built-in search may stand in for it.
    stands_in: bool,
    in_vain: u32,
    wait: Duration,
    /// Since it is down: when it is asked again.
    again: Option<Instant>,
    given_up: bool,
    /// Whether anything usable came of it in this run.
    pub(crate) proven: bool,
}

/// What to do for the next proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask the named proposer.
    Named,
    /// Ask the built-in search.
    StandIn,
    /// Nobody can be asked before this time has passed.
    Wait(Duration),
}

impl Patience {
    pub(crate) fn new(named: &str, fallback: Fallback) -> Self {
        let stands_in = named != Knobs.name() && fallback == Fallback::Knobs;
        Self { stands_in, in_vain: 0, wait: SHORTEST_WAIT, again: None, given_up: false, proven: false }
    }

    pub(crate) fn next(&self, now: Instant) -> Next {
        match self.again {
            _ if self.given_up => Next::StandIn,
            Some(again) if now < again && self.stands_in => Next::StandIn,
            Some(again) if now < again => Next::Wait(again - now),
            _ => Next::Named,
        }
    }

    /// A trial came of the named proposer.
    pub(crate) fn trial(&mut self) {
        (self.in_vain, self.wait, self.again, self.proven) = (0, SHORTEST_WAIT, None, true);
    }

    /// Nothing came of it. The reason to end the run, or to say that the built-in search goes on, where it is
    /// given up now.
    pub(crate) fn nothing(&mut self, kind: Nothing, named: &str, now: Instant) -> Option<String> {
        if kind == Nothing::Down {
            self.again = Some(now + self.wait);
            self.wait = (self.wait * 2).min(LONGEST_WAIT);
            return None;
        }
        (self.wait, self.again) = (SHORTEST_WAIT, None); // it answers
        self.in_vain += 1;
        (self.in_vain >= PATIENCE)
            .then(|| format!("{} proposals of {named} in a row came to nothing", self.in_vain))
    }

    /// The named proposer is not asked any more in this run. Whether the built-in search goes on.
    pub(crate) fn give_up(&mut self) -> bool {
        self.given_up = true;
        self.stands_in
    }

    /// The built-in search has nothing left either. Whether the named one will be asked again.
    pub(crate) fn no_stand_in(&mut self) -> bool {
        self.stands_in = false;
        !self.given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_down_is_asked_again_after_ever_longer_waits_and_never_given_up() {
        let mut patience = Patience::new("llm", Fallback::Knobs);
        let (mut now, mut waits) = (Instant::now(), Vec::new());
        for _ in 0..30 {
            assert_eq!(patience.next(now), Next::Named);
            assert_eq!(patience.nothing(Nothing::Down, "llm", now), None);
            assert_eq!(patience.next(now), Next::StandIn, "the GPU does not wait for it");
            let again = patience.again.unwrap();
            waits.push((again - now).as_secs());
            now = again;
        }
        assert_eq!(waits[..5], [1, 2, 4, 8, 16]);
        assert!(waits[10..].iter().all(|wait| *wait == 300));
        patience.trial();
        assert_eq!(patience.next(now), Next::Named);
    }

    #[test]
    fn without_a_stand_in_the_loop_waits() {
        let mut patience = Patience::new("llm", Fallback::None);
        let now = Instant::now();
        patience.nothing(Nothing::Down, "llm", now);
        assert_eq!(patience.next(now), Next::Wait(SHORTEST_WAIT));
        let mut patience = Patience::new("llm", Fallback::Knobs);
        patience.nothing(Nothing::Down, "llm", now);
        assert!(patience.no_stand_in(), "the built-in search may have no knobs");
        assert_eq!(patience.next(now), Next::Wait(SHORTEST_WAIT));
    }

    #[test]
    fn ten_answers_in_a_row_without_use_are_enough() {
        let mut patience = Patience::new("agent", Fallback::Knobs);
        let now = Instant::now();
        for _ in 0..9 {
            assert_eq!(patience.nothing(Nothing::Refused, "agent", now), None);
        }
        patience.nothing(Nothing::Down, "agent", now);
        assert!(
            patience.nothing(Nothing::Empty, "agent", now).is_some_and(|reason| reason.starts_with("10 "))
        );
        assert!(patience.give_up());
        assert_eq!(patience.next(now), Next::StandIn);
    }
}
