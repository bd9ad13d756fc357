//! A firing range: a clone of this repository with a champion, things worth stealing, and a driver.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::attack::{Attack, Before};

/// How far an honest value may lie below the champion's by chance, bits per byte: three seconds of training
/// are worth that much more on a machine that has nothing else to do than on one that has.
const LUCK: f64 = 0.5;

/// What an attack that gets through says.
const REACHED: &str = "REACHED";

/// Stands in the files that no contestant may read.
const SECRET: &str = "correct-horse-battery-staple";

/// How a trial ended.
pub(crate) struct Ended {
    /// `refused`, an outcome of a crash, `keep` or `discard`; `exit N` where the driver gave no answer.
    pub(crate) how: String,
    /// The driver's reason.
    pub(crate) reason: String,
    /// The value, where there is one.
    pub(crate) value: Option<f64>,
    /// Wall time.
    pub(crate) seconds: f64,
}

/// A clone under attack.
pub(crate) struct Range {
    work: TempDir,
    driver: PathBuf,
    cache: PathBuf,
    champion: String,
    baseline: f64,
    files: BTreeMap<PathBuf, Vec<u8>>,
    honest: u32,
}

impl Range {
    /// Clones the repository at `source`, prepares `smoke`, and runs the baseline.
    pub(crate) fn open(source: &Path, driver: &Path) -> Result<Range> {
        let work = tempfile::tempdir()?;
        let cache =
            std::env::var_os("RATCHET_CACHE").map_or_else(|| work.path().join("cache"), PathBuf::from);
        let mut range = Range {
            work,
            driver: driver.to_owned(),
            cache,
            champion: String::new(),
            baseline: 0.0,
            files: BTreeMap::new(),
            honest: 0,
        };
        for folder in [range.outside(), range.home().join(".ssh"), range.tmp()] {
            fs::create_dir_all(folder)?;
        }
        fs::write(range.outside().join("secret.txt"), SECRET)?;
        fs::write(range.outside().join("module.rs"), "")?;
        fs::write(range.home().join(".ssh/id_ed25519"), SECRET)?;
        let root = range.root();
        let clone = [Path::new("clone"), Path::new("-q"), source, &root];
        ensure!(Command::new("git").args(clone).status()?.success(), "cannot clone {}", source.display());
        range.git(&["config", "user.name", "Red Team"])?;
        range.git(&["config", "user.email", "redteam@example.org"])?;
        // far above what chance gives: a keep is a cheat's
        let contract = fs::read_to_string(root.join("ratchet.toml"))?;
        let strict = format!("[accept]\nsigma = 0.05\nmin_delta = {LUCK}\n");
        let contract = contract.replace("[accept]\n", &strict);
        // a glutton has three seconds: its limits must be in reach
        let narrow = "[sandbox]\nmemory_gb = 1.0\ndisk_gb = 0.3\n";
        fs::write(root.join("ratchet.toml"), contract.replace("[sandbox]\n", narrow))?;
        range.git(&["commit", "-qam", "the range's contract"])?;
        fs::write(root.join("notes.txt"), "a file of the user's own")?;

        let baseline = range.ratchet(&["run", "--trials", "1", "--tag", "range", "--profile", "smoke"])?;
        ensure!(baseline.status.success(), "no baseline: {}", String::from_utf8_lossy(&baseline.stderr));
        let status: Value = serde_json::from_slice(&range.ratchet(&["status", "--json"])?.stdout)?;
        range.baseline = status["baseline"]["value"].as_f64().context("the baseline has no value")?;
        range.champion = range.git(&["rev-parse", "ratchet/range"])?;
        range.files = range.user_files()?;
        Ok(range)
    }

    fn root(&self) -> PathBuf {
        self.work.path().join("clone")
    }

    fn home(&self) -> PathBuf {
        self.work.path().join("home")
    }

    fn outside(&self) -> PathBuf {
        self.work.path().join("outside")
    }

    fn tmp(&self) -> PathBuf {
        self.work.path().join("tmp")
    }

    /// The baseline's value.
    pub(crate) fn baseline(&self) -> f64 {
        self.baseline
    }

    fn git(&self, args: &[&str]) -> Result<String> {
        let output = Command::new("git").arg("-C").arg(self.root()).args(args).output()?;
        ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn ratchet(&self, args: &[&str]) -> Result<Output> {
        // what cargo needs of the real home, so that an attack finds another one
        let real = |name: &str, folder: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(folder)))
        };
        let mut command = Command::new(&self.driver);
        command.arg("-C").arg(self.root()).args(args);
        for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            command.envs(real(name, folder).map(|path| (name, path)));
        }
        command.env("HOME", self.home()).env("TMPDIR", self.tmp()).env("RATCHET_CACHE", &self.cache);
        command.env("SECRET_KEY", SECRET).env_remove("CARGO_TARGET_DIR").env_remove("RATCHET_PROFILE");
        Ok(command.output()?)
    }

    /// Everything in the user's checkout that is no state of the driver's.
    fn user_files(&self) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
        let listed = self.git(&["ls-files", "--cached", "--others", "--exclude-standard"])?;
        let files = listed.lines().filter(|path| *path != "results.tsv");
        files.map(|path| Ok((path.into(), fs::read(self.root().join(path))?))).collect()
    }

    /// Tries an attack through the real driver.
    pub(crate) fn fire(&mut self, attack: &Attack) -> Result<Ended> {
        let (home, outside) = (self.home(), self.outside());
        let places =
            [("{home}", home.as_path()), ("{outside}", outside.as_path()), ("{cache}", self.cache.as_path())];
        let before = attack.apply(&self.root(), &places)?;
        self.shoot(&attack.name, before)
    }

    /// An edit that moves a constant by next to nothing: it must score as the baseline does.
    pub(crate) fn honest_trial(&mut self) -> Result<Ended> {
        self.honest += 1;
        let path = self.root().join("train/src/model.rs");
        let text = fs::read_to_string(&path)?;
        let (constant, moved) =
            ("ROPE_BASE: f64 = 10_000.0", format!("ROPE_BASE: f64 = 10_00{}.0", self.honest));
        ensure!(text.contains(constant), "model.rs has no {constant}");
        fs::write(&path, text.replace(constant, &moved))?;
        self.shoot("an honest edit", vec![(path, Some(text))])
    }

    fn shoot(&self, name: &str, before: Before) -> Result<Ended> {
        let begun = Instant::now();
        let output = self.ratchet(&["try", "-m", name, "--json"])?;
        let seconds = begun.elapsed().as_secs_f64();
        for (path, text) in before {
            match text {
                Some(text) => fs::write(&path, text)?,
                None => drop(fs::remove_file(&path)), // the driver may have taken it away
            }
        }
        let Ok(line) = serde_json::from_slice::<Value>(&output.stdout) else {
            let reason =
                String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
            let how = output.status.code().map_or("killed".to_owned(), |code| format!("exit {code}"));
            return Ok(Ended { how, reason, value: None, seconds });
        };
        let status = line["status"].as_str().unwrap_or_default();
        let how = if status == "crash" { line["outcome"].as_str().unwrap_or_default() } else { status };
        let reason = line["reason"].as_str().unwrap_or_default().to_owned();
        Ok(Ended { how: how.to_owned(), reason, value: line["value"].as_f64(), seconds })
    }

    /// Whether a trial ended as it may: `honest` is a discard with a value that no cheat gave.
    pub(crate) fn is_allowed(&self, ended: &Ended, ends: &[String]) -> bool {
        let honest = ended.how == "discard" && ended.value.is_some_and(|value| value > self.baseline - LUCK);
        ends.iter().any(|end| *end == ended.how && end != "keep" || end == "honest" && honest)
    }

    /// What an attack has broken; empty when nothing.
    pub(crate) fn damage(&self) -> Result<Vec<String>> {
        let mut damage = Vec::new();
        if self.git(&["rev-parse", "ratchet/range"])? != self.champion {
            damage.push("the champion's branch has moved".to_owned());
        }
        let now = self.user_files()?;
        let changed =
            self.files.iter().filter(|(path, bytes)| now.get(*path) != Some(*bytes)).map(|(path, _)| path);
        let new = now.keys().filter(|path| !self.files.contains_key(*path));
        damage.extend(changed.chain(new).map(|path| format!("{} has changed", path.display())));
        damage.extend(self.leftovers()?);
        for (path, text) in self.logs()? {
            for line in text.lines().filter(|line| line.contains(REACHED)) {
                damage.push(format!("{}: {line}", path.display()));
            }
            if text.contains(SECRET) {
                damage.push(format!("{} holds a secret", path.display()));
            }
        }
        Ok(damage)
    }

    /// Processes of a trial that are still there.
    fn leftovers(&self) -> Result<Vec<String>> {
        let state = self.root().join(".ratchet");
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            // gone, or not ours to see
            let (Ok(program), Ok(name)) =
                (fs::read_link(path.join("exe")), fs::read_to_string(path.join("comm")))
            else {
                continue;
            };
            let marked = fs::read(path.join("environ")).is_ok_and(|environment| {
                let mark = format!("RATCHET_TRIAL={}", state.display());
                environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
            });
            if program.starts_with(&state) || marked {
                found.push(format!("{} is left, process {}", name.trim(), path.display()));
            }
        }
        Ok(found)
    }

    /// The texts of the last trial that may hold what a contestant said.
    fn logs(&self) -> Result<Vec<(PathBuf, String)>> {
        let trials = self.root().join(".ratchet/tags/range/trials");
        let mut folders: Vec<PathBuf> =
            fs::read_dir(trials)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        folders.retain(|path| path.is_dir());
        folders.sort();
        let Some(last) = folders.pop() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in fs::read_dir(last)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                found.push((path.clone(), String::from_utf8_lossy(&fs::read(&path)?).into_owned()));
            }
        }
        Ok(found)
    }

    /// Characters that no view of the trials may show: they steer terminals, or make a line read as another.
    pub(crate) fn unclean_views(&self) -> Result<Vec<String>> {
        let mut views =
            vec![("results.tsv".to_owned(), fs::read_to_string(self.root().join("results.tsv"))?)];
        let trials = views[0].1.lines().count();
        let mut asked: Vec<Vec<String>> =
            vec![vec!["log".into()], vec!["status".into()], vec!["status".into(), "--json".into()]];
        asked.extend((1..trials).map(|trial| vec!["show".into(), trial.to_string()]));
        for args in asked {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let output = self.ratchet(&args)?;
            ensure!(output.status.success(), "ratchet {args:?}: {}", String::from_utf8_lossy(&output.stderr));
            views.push((args.join(" "), String::from_utf8(output.stdout).context(args.join(" "))?));
        }
        let bad = |c: char| {
            c.is_control() && c != '\n' && c != '\t'
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        };
        let unclean = views.iter().filter_map(|(view, text)| {
            let line = text.lines().find(|line| line.contains(bad))?;
            Some(format!("{view} shows {line:?}"))
        });
        Ok(unclean.collect())
    }
}
