//! What is compared: groups, repeats, the budget that all of them get, and where it is written down.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::{
    config::Metric,
    error::{Doing, Error, Result},
    plain_file,
    state::{State, write_atomic},
};

/// One way to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Group {
    /// Level 1.
    A,
    /// Levels 1 and 1.5.
    B,
    /// Levels 1, 1.5 and 2.
    C,
    /// Levels 1 and 2.
    D,
    /// Level 1 with the restarts of C and D, and nothing else of them.
    R,
    /// TPE over the same knobs: no model.
    T,
    /// D without hints of the domain in its prompts.
    N,
    /// Level 1 with the mechanisms that ship, from the beginning, and no sessions.
    M,
    /// Level 1 with a mechanism that does nothing.
    P,
    /// Level 1 with a mechanism that does harm.
    H,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 10] =
        [Self::A, Self::B, Self::C, Self::D, Self::R, Self::T, Self::N, Self::M, Self::P, Self::H];

    /// Those that are compared where nobody says which: on `sim`, where a repeat costs seconds, some more.
    fn usual(on: On) -> &'static [Self] {
        match on {
            On::Sim => &Self::ALL[..7],
            On::Gpt => &Self::ALL[..5],
        }
    }

    /// What it is, in a few words.
    pub fn says(self) -> &'static str {
        match self {
            Self::A => "level 1",
            Self::B => "levels 1 and 1.5",
            Self::C => "levels 1, 1.5 and 2",
            Self::D => "levels 1 and 2",
            Self::R => "level 1, restarts only",
            Self::T => "TPE over the knobs",
            Self::N => "levels 1 and 2, no domain hints",
            Self::M => "level 1, built-in mechanisms",
            Self::P => "level 1, one that does nothing",
            Self::H => "level 1, one that does harm",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::R => "R",
            Self::T => "T",
            Self::N => "N",
            Self::M => "M",
            Self::P => "P",
            Self::H => "H",
        })
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::ALL.into_iter().find(|group| group.to_string() == text.trim()).ok_or_else(|| {
            let known: Vec<String> =
                Self::ALL.iter().map(|group| format!("{group} ({})", group.says())).collect();
            format!("no group {:?}; there are {}", text.trim(), known.join(", "))
        })
    }
}

/// What the groups work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// The simulated task: another landscape each repeat, time by a price list.
    Sim,
    /// The task of the present folder, by the clock.
    Gpt,
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `--groups`; empty for the usual ones.
    pub groups: Vec<Group>,
    /// `--repeats`.
    pub repeats: usize,
    /// `--trials`: the budget, in trials of the task.
    pub trials: u64,
    /// `--task`.
    pub on: On,
    /// `--out`.
    pub out: Option<PathBuf>,
    /// `--seed`.
    pub seed: u64,
}

/// What one ablation is. The same command goes on with it; another is another ablation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// In the order of the table.
    pub groups: Vec<Group>,
    /// Of each group.
    pub repeats: usize,
    /// The budget of a repeat, in trials.
    pub trials: u64,
    /// What they work on.
    pub on: On,
    /// What landscapes and chance are drawn from.
    pub seed: u64,
    /// What is measured.
    pub metric: Metric,
    /// The commit that each repeat starts from; `None` on `sim`.
    pub base: Option<String>,
}

impl Plan {
    /// The plan of what was asked for. Exit code 2 for what cannot be compared.
    pub fn of(asked: &Asked, metric: Metric, base: Option<String>) -> Result<Self> {
        let mut groups = match asked.groups.is_empty() {
            true => Group::usual(asked.on).to_vec(),
            false => asked.groups.clone(),
        };
        groups.sort();
        if let Some(twice) = groups.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::usage(format!("--groups names {} twice", twice[0])).hint("name it once"));
        }
        if asked.repeats == 0 {
            return Err(Error::usage("--repeats 0 compares nothing")
                .hint("at least 6 are needed before any difference can be claimed"));
        }
        if asked.trials < 2 {
            return Err(Error::usage("--trials must be at least 2").hint("the first one is the baseline"));
        }
        let (repeats, trials, on, seed) = (asked.repeats, asked.trials, asked.on, asked.seed);
        Ok(Self { groups, repeats, trials, on, seed, metric, base })
    }

    /// Every repeat of every group, those of one repeat together.
    pub(crate) fn repeats(&self) -> impl Iterator<Item = (Group, usize)> + '_ {
        (1..=self.repeats).flat_map(|repeat| self.groups.iter().map(move |group| (*group, repeat)))
    }

    /// By how much `after` is better than `before`.
    pub(crate) fn gain(&self, before: f64, after: f64) -> f64 {
        self.metric.goal.gain(before, after)
    }
}

/// Where an ablation is written down.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The one that the user names, or one below `.ratchet/ablations`: the last where it holds this plan and is not
    /// done, else the next. Exit code 2 for one that holds something else.
    pub fn of(asked: Option<&Path>, plan: &Plan, state: &State) -> Result<Self> {
        let folder = match asked {
            Some(folder) => Self(folder.to_path_buf()),
            None => {
                let all = state.dir().join("ablations");
                state.create()?;
                let number = |n: u32| Self(all.join(format!("{n:03}")));
                let next = (1..).find(|n| !number(*n).0.exists()).unwrap_or(1);
                let last = number(next - 1);
                let goes_on =
                    next > 1 && !last.json().exists() && last.plan()?.is_some_and(|held| held == *plan);
                if goes_on { last } else { number(next) }
            }
        };
        match folder.plan()? {
            Some(held) if held == *plan => {}
            Some(held) => {
                return Err(Error::usage(format!("the folder holds another ablation: {held}"))
                    .at(&folder.0)
                    .hint("name another --out, or ask for the same again to go on with it"));
            }
            None if fs::read_dir(&folder.0).is_ok_and(|mut entries| entries.next().is_some()) => {
                return Err(Error::usage("the folder is not empty, and holds no ablation")
                    .at(&folder.0)
                    .hint("name another --out"));
            }
            None => {
                fs::create_dir_all(&folder.0).doing("create", &folder.0)?;
                let json = serde_json::to_vec_pretty(plan).unwrap_or_default(); // numbers and names: cannot fail
                write_atomic(&folder.0.join("plan.json"), &json)?;
            }
        }
        Ok(folder)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The result.
    pub fn json(&self) -> PathBuf {
        self.0.join("ablation.json")
    }

    /// Its picture.
    pub fn svg(&self) -> PathBuf {
        self.0.join("ablation.svg")
    }

    /// One repeat of a group.
    pub(crate) fn repeat(&self, group: Group, repeat: usize) -> PathBuf {
        self.0.join("repeats").join(format!("{group}-{repeat:03}"))
    }

    fn plan(&self) -> Result<Option<Plan>> {
        let path = self.0.join("plan.json");
        match plain_file::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                Error::usage("not what plan.json should be")
                    .at(&path)
                    .because(error)
                    .hint("name another --out")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).doing("read", &path),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self.groups.iter().map(Group::to_string).collect();
        let on = match self.on {
            On::Sim => "sim",
            On::Gpt => "gpt",
        };
        write!(
            f,
            "--groups {} --repeats {} --trials {} --task {on} --seed {}",
            groups.join(","),
            self.repeats,
            self.trials,
            self.seed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Goal;

    fn plan(change: impl FnOnce(&mut Asked)) -> Result<Plan> {
        let mut asked = Asked {
            groups: vec![Group::C, Group::A],
            repeats: 3,
            trials: 5,
            on: On::Sim,
            out: None,
            seed: 0,
        };
        change(&mut asked);
        Plan::of(&asked, Metric { name: "val_bpb".into(), goal: Goal::Minimize }, None)
    }

    #[test]
    fn what_cannot_be_compared_is_refused_with_a_remedy() {
        for error in [
            plan(|asked| asked.repeats = 0).unwrap_err(),
            plan(|asked| asked.trials = 1).unwrap_err(),
            plan(|asked| asked.groups = vec![Group::A, Group::A]).unwrap_err(),
        ] {
            assert!(error.kind.exit_code() == 2 && error.hint.is_some(), "{error}");
        }
        assert!("Q".parse::<Group>().unwrap_err().contains("A (level 1)"));
        assert_eq!("R".parse(), Ok(Group::R));
    }

    #[test]
    fn the_same_plan_goes_on_and_another_is_refused_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(dir.path());
        let (mine, other) = (plan(|_| ()).unwrap(), plan(|asked| asked.seed = 1).unwrap());
        let first = Folder::of(None, &mine, &state).unwrap();
        assert!(first.path().ends_with(".ratchet/ablations/001"));
        assert_eq!(Folder::of(None, &mine, &state).unwrap().path(), first.path());
        assert!(Folder::of(None, &other, &state).unwrap().path().ends_with("002"));
        fs::write(Folder::of(Some(first.path()), &mine, &state).unwrap().json(), "{}").unwrap();
        assert!(Folder::of(None, &mine, &state).unwrap().path().ends_with("003"), "001 is done");
        let error = Folder::of(Some(first.path()), &other, &state).unwrap_err();
        assert!(error.kind.exit_code() == 2 && error.to_string().contains("--seed 0"), "{error}");
        fs::create_dir(dir.path().join("full")).unwrap();
        fs::write(dir.path().join("full/mine.txt"), "").unwrap();
        let error = Folder::of(Some(&dir.path().join("full")), &mine, &state).unwrap_err();
        assert_eq!(error.kind.exit_code(), 2);
    }
}
