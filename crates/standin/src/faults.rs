//! What can go wrong at a provider, and a seeded plan of it for a whole night.

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error with the provider's own body. That of a 401 quotes the key, as some providers do.
    Status(u16),
    /// An error that says how many seconds to wait.
    RetryAfter(u16, u32),
    /// A stream that begins well and then holds an error; to a request without a stream, a plain 529.
    Overloaded,
    /// The connection is closed before any answer.
    Close,
    /// Half an answer, then the connection is closed.
    CutOff,
    /// Half an answer, properly ended as far as HTTP goes.
    Unfinished,
    /// What ought to be JSON is none.
    Malformed,
    /// Nothing at all, until the client closes.
    Hang,
    /// A good answer, a few bytes at a time with this pause between.
    Drip(Duration),
    /// An answer of 2 MB.
    Huge,
    /// An answer without text.
    Empty,
    /// The text that the script would have given is cut in half by the output limit.
    Length(String),
}

/// When which fault comes: seeded, so that a night can be repeated.
#[derive(Debug)]
pub struct Plan {
    rng: StdRng,
    share: f64,
    kinds: Vec<Fault>,
    /// The fault that is on, and for how many requests more.
    on: Option<(Fault, u32)>,
}

impl Plan {
    /// `share` of the requests start a fault of `kinds`, which lasts for one to four requests, so that some
    /// outlast a client's retries.
    pub fn new(seed: u64, share: f64, kinds: &[Fault]) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), share, kinds: kinds.to_vec(), on: None }
    }

    /// What goes wrong with the next request; `None` for a good answer.
    pub fn draw(&mut self) -> Option<Fault> {
        if self.on.is_none() && self.rng.random_bool(self.share) {
            self.on =
                self.kinds.choose(&mut self.rng).cloned().map(|kind| (kind, self.rng.random_range(1..=4)));
        }
        let (fault, left) = self.on.take()?;
        if left > 1 {
            self.on = Some((fault.clone(), left - 1));
        }
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_repeats_itself_by_its_seed_and_holds_its_share() {
        let kinds = [Fault::Close, Fault::Status(500), Fault::Empty];
        let draw = |seed| {
            let mut plan = Plan::new(seed, 0.1, &kinds);
            (0..2_000).map(|_| plan.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        // A fault starts at one good request in ten and lasts 2.5 requests: about 2.5 / (9 + 2.5) of all.
        let faults = draw(7).iter().flatten().count();
        assert!((300..600).contains(&faults), "{faults}");
    }
}
