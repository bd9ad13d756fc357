//! The way through the keeps that are open: which one is next, and what each key means.

use super::Decision;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Decide, and go on to the next.
    Decide(Decision),
    /// Write a note for the decision.
    Note,
    /// Go back to the one before.
    Back,
    /// Show more.
    More,
    /// Say what the keys mean.
    Help,
    /// Leave; what was decided stays.
    Quit,
}

impl Act {
    /// What a key means; `None` for one that means nothing.
    pub fn of(key: char) -> Option<Self> {
        Some(match key.to_ascii_lowercase() {
            'a' => Self::Decide(Decision::Accepted),
            'r' => Self::Decide(Decision::Rejected),
            'd' => Self::Decide(Decision::Deferred),
            'n' => Self::Note,
            'b' => Self::Back,
            ' ' => Self::More,
            '?' => Self::Help,
            'q' => Self::Quit,
            _ => return None,
        })
    }

    /// The keys, for a person.
    pub const HELP: &str = "\
        a  accept: `ratchet accept` takes it to a branch\n\
        r  reject\n\
        d  defer: ask again next time\n\
        n  write a note for the decision\n\
        b  back to the one before\n\
        space  more of the diff\n\
        q  leave; what was decided stays\n";
}

/// The keeps on the way, and where it has come.
#[derive(Clone, Debug)]
pub struct Walk {
    trials: Vec<u64>,
    at: usize,
}

impl Walk {
    /// Past these, in their order.
    pub fn new(trials: Vec<u64>) -> Self {
        Self { trials, at: 0 }
    }

    /// The one that is looked at; `None` at the end.
    pub fn current(&self) -> Option<u64> {
        self.trials.get(self.at).copied()
    }

    /// Which it is, counted from 1, and of how many.
    pub fn place(&self) -> (usize, usize) {
        (self.at + 1, self.trials.len())
    }

    /// On to the next.
    pub fn next(&mut self) {
        self.at = (self.at + 1).min(self.trials.len());
    }

    /// Back to the one before; the first one stays.
    pub fn back(&mut self) {
        self.at = self.at.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_goes_on_and_back_and_leaves_neither_end() {
        let mut walk = Walk::new(vec![2, 4]);
        walk.back();
        assert_eq!((walk.current(), walk.place()), (Some(2), (1, 2)));
        walk.next();
        assert_eq!(walk.current(), Some(4));
        walk.next();
        walk.next();
        assert_eq!(walk.current(), None);
        walk.back();
        assert_eq!(walk.current(), Some(4));
        assert_eq!(Walk::new(vec![]).current(), None);
    }

    #[test]
    fn every_key_of_the_help_means_something_and_others_do_not() {
        for line in Act::HELP.lines() {
            let key = line.strip_prefix("space").map_or(line.chars().next(), |_| Some(' ')).unwrap();
            assert!(Act::of(key).is_some() && Act::of(key.to_ascii_uppercase()).is_some(), "{line}");
        }
        for key in ['x', '\n', '\u{1b}', '\0', 'ä'] {
            assert_eq!(Act::of(key), None);
        }
    }
}
