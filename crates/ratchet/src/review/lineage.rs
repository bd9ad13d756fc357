//! What each keep of a tag changes by itself, and which earlier keeps that rests on.
//!
//! A keep's own change leads from the champion that it was made from to its commit. It rests on an earlier
//! keep whose lines it replaces, and on whatever else it cannot be applied without: that is found by trying,
//! in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use super::keeps;
use crate::{
    error::{Error, Result},
    git::{Hunk, Oid, Repo},
    history::History,
    journal::TrialRecord,
};

/// One keep.
pub(crate) struct Keep<'a> {
    /// Its record.
    pub(crate) record: &'a TrialRecord,
    /// The champion that it was made from.
    pub(crate) before: Oid,
    /// Its commit.
    pub(crate) commit: Oid,
    /// Earlier keeps whose lines it replaces, by trial.
    pub(crate) rests_on: BTreeSet<u64>,
}

/// The keeps of a tag, oldest first, upon the commit that it started from.
pub(crate) struct Lineage<'a> {
    /// That commit.
    pub(crate) base: Oid,
    /// All but the baseline.
    pub(crate) keeps: Vec<Keep<'a>>,
    rehearsal: Repo,
}

/// A keep that was chosen, and those it lacks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    /// The keep.
    pub(crate) trial: u64,
    /// What it rests on that was not chosen.
    pub(crate) needs: BTreeSet<u64>,
}

impl<'a> Lineage<'a> {
    /// Of a tag that has begun.
    pub(crate) fn of(repo: &Repo, history: &'a History) -> Result<Self> {
        let init = history.init().ok_or_else(|| Error::internal("the journal has no beginning"))?;
        let base = repo.parse(&init.base)?;
        let (mut before, mut kept) = (base, Vec::new());
        let mut origins = Origins::default();
        for record in keeps(history) {
            let commit = repo.parse(record.commit.as_deref().unwrap_or_default())?;
            let rests_on = origins.replace(record.trial, repo.hunks(before, commit)?);
            kept.push(Keep { record, before, commit, rests_on });
            before = commit;
        }
        Ok(Self { base, keeps: kept, rehearsal: repo.rehearsal()? })
    }

    /// Whether the chosen keeps can be applied without the others: those that cannot, and what they lack.
    pub(crate) fn lacking(&self, chosen: &BTreeSet<u64>) -> Result<Vec<Lacking>> {
        let mine = |keep: &&Keep<'_>| chosen.contains(&keep.record.trial);
        let lacks = |keep: &Keep<'_>| {
            let needs: BTreeSet<u64> = keep.rests_on.difference(chosen).copied().collect();
            (!needs.is_empty()).then_some(Lacking { trial: keep.record.trial, needs })
        };
        let lacking: Vec<Lacking> = self.keeps.iter().filter(mine).filter_map(lacks).collect();
        if !lacking.is_empty() {
            return Ok(lacking);
        }
        let Some(stuck) = self.first_stuck(chosen)? else { return Ok(Vec::new()) };
        // with all earlier ones it applies as it did then; of those that are left out, each that it can do
        // without is taken away again
        let upto: BTreeSet<u64> = self.trials().filter(|trial| *trial <= stuck).collect();
        let mut needs: BTreeSet<u64> = upto.difference(chosen).copied().collect();
        for trial in needs.clone() {
            let with: BTreeSet<u64> = needs.iter().filter(|other| **other != trial).copied().collect();
            let enough = chosen.intersection(&upto).chain(&with).copied().collect();
            if self.first_stuck(&enough)?.is_none() {
                needs = with;
            }
        }
        Ok(vec![Lacking { trial: stuck, needs }])
    }

    fn trials(&self) -> impl Iterator<Item = u64> {
        self.keeps.iter().map(|keep| keep.record.trial)
    }

    /// The first of these keeps that does not apply upon those before it.
    fn first_stuck(&self, chosen: &BTreeSet<u64>) -> Result<Option<u64>> {
        let mut onto = self.rehearsal.tree_of(self.base)?;
        for keep in self.keeps.iter().filter(|keep| chosen.contains(&keep.record.trial)) {
            match self.rehearsal.carry(keep.before, keep.commit, onto)? {
                Some(tree) => onto = tree,
                None => return Ok(Some(keep.record.trial)),
            }
        }
        Ok(None)
    }
}

/// Which trial every line comes from, by file; lines beyond those listed are the base's.
#[derive(Default)]
struct Origins(BTreeMap<PathBuf, Vec<Option<u64>>>);

impl Origins {
    /// A keep replaces lines; the keeps that those came from.
    fn replace(&mut self, trial: u64, files: Vec<(PathBuf, Vec<Hunk>)>) -> BTreeSet<u64> {
        let mut from = BTreeSet::new();
        for (path, hunks) in files {
            let lines = self.0.entry(path).or_default();
            for Hunk { start, gone, new } in hunks.into_iter().rev() {
                if lines.len() < start + gone {
                    lines.resize(start + gone, None);
                }
                from.extend(lines[start..start + gone].iter().flatten());
                // put into the middle of what another one wrote
                if let (0, Some([before, after])) =
                    (gone, start.checked_sub(1).and_then(|i| lines.get(i..i + 2)))
                    && before == after
                {
                    from.extend(*before);
                }
                lines.splice(start..start + gone, std::iter::repeat_n(Some(trial), new));
            }
        }
        from.remove(&trial);
        from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_known_by_who_wrote_them_last() {
        let mut origins = Origins::default();
        let mut replace = |trial, start, gone, new| {
            let from = origins.replace(trial, vec![("f".into(), vec![Hunk { start, gone, new }])]);
            from.into_iter().collect::<Vec<_>>()
        };
        assert!(replace(2, 4, 1, 3).is_empty(), "the base's line 4 becomes 4 to 6");
        assert!(replace(3, 0, 0, 2).is_empty(), "two lines above: now 6 to 8 are trial 2's");
        assert!(replace(4, 3, 2, 2).is_empty(), "lines of the base");
        assert_eq!(replace(5, 8, 1, 1), [2]);
        assert_eq!(replace(6, 7, 0, 1), [2], "between two lines of one trial");
        assert!(replace(7, 6, 0, 1).is_empty(), "at the edge: whether that applies is found by trying");
        assert_eq!(replace(8, 0, 12, 0), [2, 3, 4, 5, 6, 7], "all of it goes");
    }

    #[test]
    fn hunks_of_one_file_do_not_shift_each_other() {
        let mut origins = Origins::default();
        let hunk = |start, gone, new| Hunk { start, gone, new };
        assert!(origins.replace(2, vec![("f".into(), vec![hunk(0, 1, 9), hunk(5, 1, 1)])]).is_empty());
        // line 5 of the base stands at 13 now
        assert_eq!(origins.replace(3, vec![("f".into(), vec![hunk(13, 1, 1)])]), [2].into());
        assert!(origins.replace(4, vec![("f".into(), vec![hunk(12, 1, 1)])]).is_empty());
        assert!(origins.replace(5, vec![("g".into(), vec![hunk(13, 1, 1)])]).is_empty(), "another file");
    }
}
