//! How much of each text a page holds, so that a page of any night stays one that a browser opens.

use crate::Night;
use crate::night::Trial;
use crate::page::TAGS;
use crate::text;

/// Bytes for the texts of all trials.
const TEXTS: usize = 3_000_000;
/// Bytes for all diffs.
const DIFFS: usize = 5_000_000;
/// Bytes for the logs of all crashes.
const LOGS: usize = 1_000_000;
/// Bytes of one text at most.
const TEXT: usize = 40_000;
/// Bytes of one diff at most.
const DIFF: usize = 120_000;
/// Bytes of one log at most.
const LOG: usize = 20_000;

/// Bytes that one text of its kind may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) text: usize,
    pub(crate) diff: usize,
    pub(crate) log: usize,
}

impl Room {
    /// Short texts are whole in any case; the longest are cut until all together fit.
    pub(crate) fn of(night: &Night) -> Self {
        let trials = || night.trials.iter();
        let diffs = trials().map(|t| &t.diff).chain(night.briefs.iter().map(|b| &b.diff));
        Self {
            text: level(trials().flat_map(texts).map(text::weight), TEXTS, TEXT),
            diff: level(diffs.map(|d| text::weight(d) + TAGS * d.lines().count()), DIFFS, DIFF),
            log: level(trials().map(|t| t.log.iter().map(|l| text::weight(l) + 1).sum()), LOGS, LOG),
        }
    }
}

/// What a trial's part shows whole where it can.
fn texts(trial: &Trial) -> impl Iterator<Item = &str> {
    let numbers = trial.numbers.iter().chain(&trial.notes).map(|(_, what)| what.as_str());
    [&trial.description, &trial.hypothesis, &trial.reason]
        .into_iter()
        .chain(&trial.attribution)
        .map(String::as_str)
        .chain(numbers)
}

/// The largest size, `most` at most, at which sizes cut to it add up to `total` or less.
fn level(sizes: impl Iterator<Item = usize>, total: usize, most: usize) -> usize {
    let mut sizes: Vec<usize> = sizes.map(|s| s.min(most)).collect();
    sizes.sort_unstable();
    let (mut left, mut count) = (total, sizes.len());
    for size in sizes {
        if size * count > left {
            return left / count;
        }
        left -= size;
        count -= 1;
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_stay_whole_and_long_ones_share_what_is_left() {
        assert_eq!(level([10, 20, 30].into_iter(), 100, 50), 50);
        assert_eq!(level([10, 1000, 1000].into_iter(), 110, 500), 50);
        assert_eq!(level([1000, 1000].into_iter(), 5000, 300), 300);
        assert_eq!(level(std::iter::empty(), 100, 50), 50);
    }
}
