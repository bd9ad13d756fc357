//! How a tag begins: at a commit, under a contract, and anew as long as it has no baseline.

use std::{fs, path::PathBuf};

use prepare::profile::Profile;

use crate::{
    candidate::admissible,
    config::{EXEMPT, FILE, Task},
    error::{Doing, Error, Result},
    fingerprint,
    git::{ChangeKind, Oid, Repo, short},
    journal::{Event, Init, Journal},
    night::Playback,
    progress::{Observer, Progress},
    session::Asked,
    setting::Setting,
    state::{State, Tag},
};

/// What becomes of a tag that is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum New {
    /// It is created.
    Created,
    /// It is created, unless the working tree holds no candidate: a refusal leaves nothing behind.
    WithCandidate,
    /// Exit code 2: the command is about trials that there are.
    Refused,
}

/// Creates a tag and its branch at the present HEAD.
pub(crate) fn create(
    task: &Task,
    repo: &Repo,
    state: &State,
    tag: &Tag,
    asked: &Asked,
    new: New,
    observer: &mut dyn Observer,
) -> Result<()> {
    let init = present(task, repo, state, tag, asked, None, observer)?;
    let base = repo.parse(&init.base)?;
    if new == New::WithCandidate {
        admissible(repo.changes(base)?, task.editable(), &EXEMPT)?;
    }
    let dir = state.tag(tag);
    let begun = dir.path().exists(); // an init that was killed half-way left its folder
    fs::create_dir_all(dir.path()).doing("create the tag's folder", dir.path())?;
    state.settle(tag)?; // a branch whose tag a power cut took would be in the way of the next try
    if !(begun && repo.branch(tag)? == Some(base)) {
        repo.create_branch(tag, base)?;
    }
    Journal::create(&dir.journal(), init)?;
    note_uncommitted(task, repo, base, observer)
}

/// What a tag is held to that starts now, from the present HEAD and contract.
fn present(
    task: &Task,
    repo: &Repo,
    state: &State,
    tag: &Tag,
    asked: &Asked,
    fixed: Option<&Init>,
    observer: &mut dyn Observer,
) -> Result<Init> {
    let base = repo.head()?;
    let files = repo.files(base)?;
    let tracked: Vec<PathBuf> = files.keys().cloned().collect();
    task.check_files(state.root(), &tracked)?;
    let setting = match asked.night.as_deref().map(Playback::read).transpose()? {
        Some(night) => {
            night.check(task, repo, base)?;
            Setting::recorded(&night, fixed)?
        }
        None => Setting::choose(task, asked.profile, fixed, observer)?,
    };
    Ok(Init {
        tag: tag.to_string(),
        base: base.to_string(),
        contract: task.contract(),
        protected: fingerprint::protected(&files, task.editable()),
        profile: setting.profile.map(|profile| profile.name().to_owned()),
        device: setting.device,
    })
}

/// Lets a tag without a kept baseline start from the present HEAD and contract, and under the profile that is
/// asked for: no value is compared yet, a commit may have repaired what made the baseline crash, and another
/// profile's data may be there.
///
/// A kill between the journal and the branch is made good as after a keep.
pub(crate) fn begin_again(
    task: &Task,
    repo: &Repo,
    state: &State,
    tag: &Tag,
    journal: &mut Journal,
    asked: &Asked,
    observer: &mut dyn Observer,
) -> Result<()> {
    let history = journal.history();
    let Some(then) = history.init().cloned().filter(|_| history.champion().is_none()) else {
        return Ok(());
    };
    let old = repo.parse(&then.base)?;
    finish_branch(repo, tag, journal, old)?;
    let wanted = Profile::requested(asked.profile).map_err(|error| Error::usage(error.to_string()))?;
    let known = then.profile.as_deref();
    let elsewhere = known.is_some_and(|known| wanted.is_some_and(|wanted| wanted.name() != known));
    if repo.head()? == old && task.contract() == then.contract && !elsewhere {
        return Ok(());
    }
    repo.check_branch(tag, old)?;
    let fixed = (!elsewhere).then_some(&then);
    let now = present(task, repo, state, tag, asked, fixed, observer)?;
    let base = repo.parse(&now.base)?;
    // without it the editable files count as started from the base, old or new
    let checkout = state.tag(tag).checkout();
    if checkout.exists() {
        fs::remove_file(&checkout).doing("remove", &checkout)?;
    }
    journal.append(Event::Init(now))?;
    finish_branch(repo, tag, journal, base)?;
    observer.tell(Progress::Note(&format!(
        "the tag {tag} has no baseline yet: it now starts from the commit {} and the present {}",
        short(base),
        FILE
    )));
    note_uncommitted(task, repo, base, observer)
}

/// Says which changes of the user's working tree no trial starts from.
pub(crate) fn note_uncommitted(
    task: &Task,
    repo: &Repo,
    base: Oid,
    observer: &mut dyn Observer,
) -> Result<()> {
    let edited = repo.changes(base)?;
    let tracked = |kind| kind != ChangeKind::Untracked;
    let protected: Vec<String> = edited
        .iter()
        .filter(|c| {
            !task.editable().contains(&c.path)
                && tracked(c.kind)
                && !EXEMPT.iter().any(|own| c.path.as_os_str() == *own)
        })
        .map(|change| change.path.display().to_string())
        .collect();
    if !protected.is_empty() {
        observer.tell(Progress::Note(&format!(
            "trials start from the commit {}; your uncommitted changes are not part of it: {}",
            short(base),
            protected.join(", ")
        )));
    }
    if let Some(change) = edited.iter().find(|change| task.editable().contains(&change.path)) {
        observer.tell(Progress::Note(&format!(
            "{} differs from the commit {}: the baseline is the commit, and `ratchet try` takes your edit as its candidate",
            change.path.display(),
            short(base)
        )));
    }
    Ok(())
}

/// Moves a branch that a killed driver left at the champion before the last. Anywhere else, and at any
/// other time, it was someone else who moved it.
pub(crate) fn finish_branch(repo: &Repo, tag: &Tag, journal: &mut Journal, champion: Oid) -> Result<()> {
    let Some(behind) = journal.history().behind() else { return Ok(()) };
    let behind = repo.parse(behind)?;
    match repo.branch(tag)? {
        Some(tip) if tip == behind && tip != champion => repo.advance_branch(tag, behind, champion)?,
        Some(tip) if tip == champion => {}
        _ => return Ok(()), // for `check_branch` to complain of
    }
    journal.append(Event::Advanced { commit: champion.to_string() })
}
