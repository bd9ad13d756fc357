//! The contract's commands made concrete: placeholders, binaries, environment.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

use crate::{
    config::Task,
    cuda::Version,
    error::{Doing, Error, Result},
    exec::{Limits, allowed_env},
    git::{open_up, remove},
    processes::{MARK, machine_memory_bytes},
    setting::Setting,
};

/// Where one run's commands act. All paths are absolute.
#[derive(Clone, Debug)]
pub struct Place {
    /// `{root}`: the user's root.
    pub root: PathBuf,
    /// Where commands run.
    pub worktree: PathBuf,
    /// `{target}`: where the build leaves its output.
    pub target: PathBuf,
    /// Where copies of the built binaries lie; only they are run.
    pub bin: PathBuf,
    /// The run's folder: the driver's records.
    pub dir: PathBuf,
    /// The harness's seed for this run.
    pub seed: u64,
}

impl Place {
    /// `{trial}`: where the run leaves its files. Whatever is below is the contestant's; beside it nothing is.
    pub fn out(&self) -> PathBuf {
        self.dir.join("out")
    }

    /// For temporary files, and the kernels that a GPU's driver compiles; removed with the run.
    pub fn tmp(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// Makes `out` and `tmp` anew: what a preflight left must not help the fit.
    pub fn clear(&self) -> Result<()> {
        self.discard()?;
        for folder in [self.out(), self.tmp()] {
            fs::create_dir_all(&folder).doing("create", &folder)?;
        }
        Ok(())
    }

    /// Removes `out` and `tmp`.
    pub fn discard(&self) -> Result<()> {
        for folder in [self.out(), self.tmp()] {
            if fs::symlink_metadata(&folder).is_ok() {
                remove(&folder)?;
            }
        }
        Ok(())
    }

    /// Makes `out` and `tmp`, as a run left them, folders that the driver can keep or remove.
    pub fn open_up(&self) -> Result<()> {
        [self.out(), self.tmp()].iter().try_for_each(|folder| open_up(folder))
    }

    /// A command with its placeholders replaced. What `{target}/…` names is run from its copy.
    pub fn expand(&self, command: &[String], setting: &Setting) -> Vec<String> {
        let mut out = Vec::new();
        for arg in command {
            if arg == "{features}" {
                if setting.card.is_some() {
                    out.extend(["--features".to_owned(), "cuda".to_owned()]);
                }
                continue;
            }
            let copied = arg
                .strip_prefix("{target}/")
                .map(|inner| self.bin.join(flat(inner)))
                .filter(|copy| copy.exists());
            out.push(match copied {
                Some(copy) => copy.to_string_lossy().into_owned(),
                None => arg
                    .replace("{target}", &self.target.to_string_lossy())
                    .replace("{trial}", &self.out().to_string_lossy())
                    .replace("{root}", &self.root.to_string_lossy())
                    .replace("{profile}", setting.profile.map_or("", |profile| profile.name())),
            });
        }
        out
    }

    /// The environment of a trial process: an allow-list and what the harness decides.
    pub fn env(&self, setting: &Setting) -> BTreeMap<OsString, OsString> {
        let mut env = allowed_env();
        env.insert(MARK.into(), mark(&self.root));
        env.insert(CEILING.into(), ceiling(&self.worktree));
        env.insert("TMPDIR".into(), self.tmp().into());
        if let Some(card) = &setting.card {
            // cudarc's build looks for nvcc on PATH alone
            let found = card.compiler.as_ref().and_then(|compiler| compiler.nvcc.parent());
            let path = env.get(OsStr::new("PATH")).cloned().unwrap_or_default();
            let folders = std::env::split_paths(&path).chain(found.map(Path::to_path_buf));
            if let Ok(path) = std::env::join_paths(folders) {
                env.insert("PATH".into(), path);
            }
            // candle's build asks nvidia-smi otherwise, which a confined build cannot start
            let Version(major, minor) = card.capability;
            env.entry("CUDA_COMPUTE_CAP".into()).or_insert_with(|| format!("{major}{minor}").into());
            // never shared between trials: what one leaves there the next could read
            env.insert("CUDA_CACHE_PATH".into(), self.tmp().join("kernels").into());
        }
        env.insert("RATCHET_SEED".into(), self.seed.to_string().into());
        if let Some(profile) = setting.profile {
            env.insert("RATCHET_PROFILE".into(), profile.name().into());
        }
        if let Some(longer) = setting.longer {
            env.insert(BUDGET_ENV.into(), longer.as_secs_f64().to_string().into());
        }
        if let Some(cache) = setting.cache_root() {
            env.insert("RATCHET_CACHE".into(), cache.into());
        }
        env
    }

    /// Copies what the contract runs from `{target}/…`. An error names a binary that the build did not make.
    pub fn copy_binaries(&self, task: &Task) -> Result<()> {
        for inner in binaries(task) {
            let from = self.target.join(&inner);
            if !from.is_file() {
                return Err(Error::usage(format!("the build made no {{target}}/{inner}"))
                    .at(&from)
                    .hint("[preflight], [fit], [score] and [sample] must name what [build] leaves there"));
            }
            fs::create_dir_all(&self.bin).doing("create", &self.bin)?;
            let to = self.bin.join(flat(&inner));
            fs::copy(&from, &to).doing("copy the built binary to", &to)?;
        }
        Ok(())
    }
}

/// The variable of a budget other than the profile's, seconds; `prepare` reads it in `fit`.
const BUDGET_ENV: &str = "RATCHET_BUDGET_S";

/// What a trial's process may use up.
pub fn limits(task: &Task, folder: &Path) -> Limits {
    let gb = |gb: f64| (gb * 1e9) as u64;
    Limits {
        memory_bytes: task.sandbox.memory_gb.map(gb).or_else(most_memory_bytes),
        disk: Some((folder.to_path_buf(), gb(task.sandbox.disk_gb))),
    }
}

/// Nine tenths of the memory, so that the machine and the driver live.
pub fn most_memory_bytes() -> Option<u64> {
    Some(machine_memory_bytes()? / 10 * 9)
}

/// The variable that tells git how far up it may look for a repository.
pub const CEILING: &str = "GIT_CEILING_DIRECTORIES";

/// Its value for what runs in `worktree`: were its `.git` removed, git would find the user's repository
/// above it, and reset that.
pub fn ceiling(worktree: &Path) -> OsString {
    worktree.parent().unwrap_or(worktree).into()
}

/// The value that marks every process of this root.
pub fn mark(root: &Path) -> OsString {
    root.join(".ratchet").into()
}

/// Paths below `{target}/` that the contract runs.
pub(crate) fn binaries(task: &Task) -> BTreeSet<String> {
    let commands = [&task.preflight, &task.fit, &task.sample].into_iter().flatten().map(|step| &step.command);
    let args = commands.chain([&task.score.command]).flatten();
    args.filter_map(|arg| arg.strip_prefix("{target}/")).map(str::to_owned).collect()
}

/// `release/train` → `release-train`: one folder holds all copies.
fn flat(inner: &str) -> String {
    inner.replace('/', "-")
}

/// The harness's seed for run `k`: the same for every trial of a tag, so that runs can be compared in pairs.
pub fn seed(tag: &str, run: u32) -> u64 {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(format!("ratchet seed {tag} {run}"));
    let bytes = hash[..4].try_into().unwrap_or_default();
    u64::from(u32::from_le_bytes(bytes) >> 1) // many a generator takes 31 bits and no more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::{Card, Compiler};

    #[test]
    fn a_build_for_a_card_is_told_what_a_confined_one_cannot_ask() {
        let compiler = Compiler { nvcc: "/toolkit/bin/nvcc".into(), version: Version(12, 8) };
        let card = Card {
            name: "NVIDIA H200".into(),
            driver: Version(13, 0),
            capability: Version(9, 0),
            compiler: Some(compiler),
        };
        let setting = Setting::of("a test", Some(card));
        let folder = |name: &str| PathBuf::from("/run").join(name);
        let [root, worktree, target, bin, dir] = ["root", "tree", "target", "bin", "dir"].map(folder);
        let env = Place { root, worktree, target, bin, dir, seed: 1 }.env(&setting);
        assert_eq!(env[OsStr::new("CUDA_COMPUTE_CAP")], "90");
        let path = env[OsStr::new("PATH")].to_str().unwrap();
        assert!(path.split(':').any(|folder| folder == "/toolkit/bin"), "{path}");
        assert!(env[OsStr::new("CUDA_CACHE_PATH")].to_str().unwrap().starts_with("/run/dir/tmp/"));
    }

    #[test]
    fn seeds_belong_to_the_tag_and_the_run_alone() {
        assert_eq!(seed("a", 0), seed("a", 0));
        assert_ne!(seed("a", 0), seed("a", 1));
        assert_ne!(seed("a", 0), seed("b", 0));
        assert!((0..100).all(|run| seed("a", run) < 1 << 31));
    }
}
