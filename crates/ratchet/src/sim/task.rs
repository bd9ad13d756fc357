//! The repository of a simulated task, and the command that scores in it.

use std::{fs, path::Path};

use serde_json::json;

use super::{Landscape, Settings, settings};
use crate::{
    config,
    error::{Doing, Error, Result},
    git::Repo,
};

/// The hidden command of the program that scores a simulated run.
pub const COMMAND: &str = "sim";

const RATCHET: &str = include_str!("../../../../examples/sim/ratchet.toml");
const PROGRAM: &str = include_str!("../../../../examples/sim/program.md");
/// What of the example's `ratchet.toml` says which program scores, and on which landscape.
const SCORED_BY: &str = r#""ratchet", "sim", "--landscape", "0", "--sigma", "0.0009""#;
/// What of it says which dice the scripted model has.
const DICE: &str = "stubborn-0";

/// A simulated task.
#[derive(Clone, Copy, Debug)]
pub struct Sim<'a> {
    /// Which landscape.
    pub landscape: u64,
    /// Standard deviation of one run, in bpb.
    pub sigma: f64,
    /// The dice of the scripted model.
    pub dice: u64,
    /// The `ratchet` program, by its path.
    pub ratchet: &'a Path,
}

impl Sim<'_> {
    /// Writes the task into an empty folder, which becomes a repository with one commit. In a file system in memory a
    /// trial takes a fraction of the time: nearly all of it is syncing to disk.
    pub fn write(&self, root: &Path) -> Result<()> {
        fs::create_dir_all(root).doing("create", root)?;
        let files = [
            (config::FILE, self.contract()?),
            ("program.md", PROGRAM.to_owned()),
            (settings::FILE, settings::START.to_owned()),
        ];
        for (name, text) in files {
            let path = root.join(name);
            fs::write(&path, text).doing("write", &path)?;
        }
        Repo::create(root, "a simulated training run").map(drop)
    }

    /// The example's `ratchet.toml` for this program, landscape and noise.
    fn contract(&self) -> Result<String> {
        let not_utf8 = || Error::usage("the program's path is not UTF-8").at(self.ratchet);
        let ratchet = self.ratchet.to_str().ok_or_else(not_utf8)?;
        // a JSON string is a TOML string
        let command = json!([
            ratchet,
            COMMAND,
            "--landscape",
            self.landscape.to_string(),
            "--sigma",
            self.sigma.to_string()
        ]);
        let command = command.to_string();
        Ok(RATCHET
            .replace(SCORED_BY, &command[1..command.len() - 1])
            .replace("sigma = 0.0009", &format!("sigma = {:?}", self.sigma))
            .replace(DICE, &format!("stubborn-{}", self.dice)))
    }
}

/// One simulated run of the settings in `root`: the line that a `[score]` prints.
///
/// Fails as a training run would where memory does not suffice.
pub fn score(root: &Path, landscape: &Landscape, run_seed: u64) -> Result<String> {
    let settings = Settings::read(root)?;
    let failed = |error: super::OutOfMemory| Error::internal(error.to_string());
    let memory_gb = landscape.memory_gb(&settings).map_err(failed)?;
    let val_bpb = landscape.value(&settings, run_seed).map_err(failed)?;
    Ok(json!({ "val_bpb": val_bpb, "memory_gb": memory_gb }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Level, Task};

    #[test]
    fn a_written_task_is_the_example_for_another_landscape() {
        let folder = tempfile::tempdir().unwrap();
        let ratchet = Path::new("/a folder/ratchet \"x\"");
        Sim { landscape: 7, sigma: 0.002, dice: 5, ratchet }.write(folder.path()).unwrap();
        let task = Task::read(folder.path()).unwrap();
        let wanted = ["/a folder/ratchet \"x\"", COMMAND, "--landscape", "7", "--sigma", "0.002"];
        assert_eq!(task.score.command, wanted);
        assert_eq!(task.accept.sigma, Some(0.002));
        assert_eq!(task.proposer.llm.unwrap().model, "stubborn-5");
        assert_eq!(task.search.levels, Level::One);
        assert!(Repo::open(folder.path()).unwrap().head().is_ok(), "committed");
    }

    #[test]
    fn a_score_is_a_line_and_a_lack_of_memory_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(settings::FILE);
        fs::write(&path, settings::START).unwrap();
        let landscape = Landscape::new(1);
        let line = score(folder.path(), &landscape, 3).unwrap();
        let figures: serde_json::Value = serde_json::from_str(&line).unwrap();
        let start = Settings::parse(settings::START).unwrap();
        assert_eq!(figures["val_bpb"], landscape.value(&start, 3).unwrap());
        assert_eq!(figures["memory_gb"], landscape.memory_gb(&start).unwrap());
        fs::write(&path, settings::START.replace("MICRO_ROWS = 64", "MICRO_ROWS = 256")).unwrap();
        let error = score(folder.path(), &landscape, 3).unwrap_err().to_string();
        assert!(error.contains("out of memory"), "{error}");
    }
}
