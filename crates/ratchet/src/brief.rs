//! `ratchet brief`: what a proposer would be told now, and a change of `program.md` for the person to apply.
//!
//! Reads only, and takes no lock: a run may be under way.

use std::fs;

use crate::{
    error::{Doing, Error, Result},
    git::{Oid, unified},
    journal::TrialRecord,
    material,
    noise::Noise,
    proposer::{Brief, Budget, context, knobs::Tunables},
    proposing::program_version,
    search::Levels,
    show::View,
    state::replace,
    suggest::suggestion,
};

/// A drafted change of `program.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The change, as `git diff` prints it.
    pub patch: String,
    /// Where it is kept, relative to the root.
    pub file: String,
}

impl View {
    /// What the next proposal would be told. A run's limits are not known here.
    pub fn brief(&self) -> Result<String> {
        self.with_brief("llm", context::briefing)
    }

    /// The same for who edits the working tree, which starts from the champion, and uses `ratchet try`.
    pub fn brief_for_try(&self) -> Result<String> {
        self.with_brief("try", context::briefing)
    }

    /// Has `act` read what a proposer of this name would be given now.
    pub(crate) fn with_brief<T>(&self, proposer: &str, act: impl FnOnce(&Brief<'_>) -> T) -> Result<T> {
        let history = &self.history;
        let program = material::program(self.state.root())?;
        let noise = self.known_noise().map(|known| known.noise(None)).unwrap_or_else(Noise::unknown);
        let start = material::start(proposer, history, || noise, &self.task, None);
        let base = || history.init().map_or_else(|| self.repo.head(), |init| self.repo.parse(&init.base));
        let champion = self.commit_of(history.champion()).unwrap_or_else(base)?;
        let from = self.commit_of(start.trial()).unwrap_or(Ok(champion))?;
        let files = material::sources(&self.repo, &self.task, from)?;
        let pages = material::pages(&self.repo, &self.task, champion)?;
        let dir = self.tag.as_ref().map(|tag| self.state.tag(tag));
        let mut demand = material::demand(history, &program, &self.task, dir.as_ref(), false)?;
        let profile = history.init().and_then(|init| init.profile.as_deref());
        if Levels::from(self.task.search.levels).settings {
            let tunables = Tunables::read(&files, profile).unwrap_or_default();
            let names: Vec<String> = tunables.names().map(str::to_owned).collect();
            history.search().settings().ask(&mut demand, &names);
        }
        Ok(act(&Brief {
            program: &program,
            files: &files,
            pages: &pages,
            profile,
            metric: &self.task.metric,
            trials: history.trials(),
            before_restart: history.search().restarted(),
            best: history.champion(),
            start,
            demand: &demand,
            running: None,
            in_vain: history.in_vain(),
            records: dir.as_ref().map_or(self.state.root(), |dir| dir.path()),
            budget: Budget::default(),
            seed: 0,
            repair: None,
            worktree: self.state.root(),
        }))
    }

    fn commit_of(&self, record: Option<&TrialRecord>) -> Option<Result<Oid>> {
        Some(self.repo.parse(record?.commit.as_deref()?))
    }

    /// A change of `program.md` drafted from the trials, and kept; nothing is applied. `None` while the trials say
    /// nothing that is worth a line, or the brief says it already.
    ///
    /// Exit code 2 where there is no `program.md`.
    pub fn suggest(&self) -> Result<Option<Suggestion>> {
        let program = material::program(self.state.root())?;
        if program.is_empty() {
            return Err(
                Error::usage("there is no program.md to change").hint("write a first one in your own words")
            );
        }
        let Some(tag) = &self.tag else { return Ok(None) };
        let drafted = suggestion(&program, tag.as_str(), &self.task.metric, self.history.trials());
        let Some(drafted) = drafted.filter(|drafted| *drafted != program) else { return Ok(None) };
        let patch = unified("program.md", &program, &drafted)?;
        let folder = self.state.briefs().join("suggestions");
        fs::create_dir_all(&folder).doing("create", &folder)?;
        let name = format!("{tag}-{:04}-{}.patch", self.history.trials().len(), program_version(&program));
        let via = folder.join(format!("{name}.{}", std::process::id()));
        replace(&folder.join(&name), &via, patch.as_bytes())?;
        Ok(Some(Suggestion { patch, file: format!(".ratchet/briefs/suggestions/{name}") }))
    }
}
