//! `ratchet mechanisms`: what there is, what it has done, and what a person wishes of it.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use mechanism::{Hook, Limits, Validated, validate};
use serde::Serialize;

use super::{
    Mechanism, Standing,
    library::{Library, Wish, read_script},
    memory::Memory,
    research::{Outcome, SessionEnd},
    staff::child,
    tend::MOST_LIVE,
    trace::trace,
};
use crate::{
    error::{Error, Result},
    material,
    proposer::knobs::Tunables,
    run::now,
    runlog::plain,
    show::View,
};

/// One mechanism, as it stands in the tag.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// Its name in the library.
    pub id: String,
    /// What its author calls it.
    pub name: String,
    /// What it is, in one line.
    pub what: String,
    /// What it may do in this tag; null where it was never used.
    pub standing: Option<Standing>,
    /// Why.
    pub reason: Option<String>,
    /// Whether it has done nothing that was used: it is credited with nothing.
    pub inactive: bool,
    /// Calls of each hook.
    pub calls: BTreeMap<Hook, u64>,
    /// Calls whose answer was used.
    pub acted: BTreeMap<Hook, u64>,
    /// Trials with it on.
    pub on: usize,
    /// Trials with it off, meanwhile.
    pub off: usize,
    /// Gain a minute with it on minus that with it off, in the metric's unit; null while it was not measured.
    pub effect: Option<f64>,
    /// What a person wishes; null where nobody has said.
    pub wish: Option<bool>,
}

impl View {
    /// Every mechanism there is.
    pub fn mechanisms(&self) -> Result<Vec<Entry>> {
        let library = Library::of(&self.state);
        let wishes = library.wishes()?;
        let used = self.history.search().mechanisms();
        let mut ids = library.ids();
        // one whose folder is gone has still done what it did
        ids.extend(
            used.iter().map(|known| known.id.clone()).filter(|id| !ids.contains(id)).collect::<Vec<_>>(),
        );
        let entry = |id: String| {
            let known = used.get(&id);
            let (name, what) = self.described(&library, &id);
            let mut calls = known.map(|known| known.calls.clone()).unwrap_or_default();
            let recorded = self.tag.as_ref().map_or(0, |tag| Memory::of(&self.state.tag(tag)).calls(&id));
            if recorded > 0 {
                calls.insert(Hook::Record, recorded);
            }
            let [on, off] = known.map_or([0, 0], Mechanism::trials);
            Entry {
                name,
                what,
                standing: known.map(|known| known.standing),
                reason: known.map(|known| known.reason.clone()),
                inactive: known.is_none_or(|known| known.is_inactive()),
                calls,
                acted: known.map(|known| known.acted.clone()).unwrap_or_default(),
                on,
                off,
                effect: known.and_then(Mechanism::effect),
                wish: wishes.get(&id).map(|wish| wish.on),
                id,
            }
        };
        Ok(ids.into_iter().map(entry).collect())
    }

    /// The same as a table.
    pub fn mechanisms_text(&self) -> Result<String> {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{:14}  {:9}  {:>7}  {:>10}  {:34}  what",
            "mechanism", "standing", "on/off", "gain/min", "calls (used)"
        );
        for entry in self.mechanisms()? {
            let standing = match (entry.standing, entry.wish) {
                (Some(standing), _) => standing.as_str(),
                (None, Some(true)) => "waiting",
                (None, _) => "-",
            };
            let effect = entry.effect.map_or("-".to_owned(), |effect| format!("{effect:+.2e}"));
            let trials = match entry.on + entry.off {
                0 => "-".to_owned(),
                _ => format!("{}/{}", entry.on, entry.off),
            };
            let _ = writeln!(
                text,
                "{:14}  {standing:9}  {trials:>7}  {effect:>10}  {:34}  {}",
                plain(&entry.id, 14),
                counts(&entry),
                // a built-in one's first sentence begins with its name
                plain(
                    &if entry.name == entry.id {
                        entry.what
                    } else {
                        format!("{}: {}", entry.name, entry.what)
                    },
                    100
                )
            );
        }
        text += "\nRuns with --levels 2 use them: `ratchet mechanisms show|test|enable|disable ID`\n";
        Ok(text)
    }

    /// One whole: what it did, why it stands where it does, its script.
    pub fn mechanism(&self, id: &str) -> Result<String> {
        let library = Library::of(&self.state);
        let script = library.script(id);
        let entries = self.mechanisms()?;
        let mut text = String::new();
        let known = entries.iter().find(|entry| entry.id == id);
        if known.is_none() {
            return script; // the error that there is none
        }
        if let Some(entry) = known {
            let _ = writeln!(text, "mechanism  {}, {}", entry.id, plain(&entry.name, 100));
            let _ = writeln!(text, "what       {}", plain(&entry.what, 300));
            let standing = entry.standing.map_or("not used in this tag", Standing::as_str);
            let reason =
                entry.reason.as_ref().map_or(String::new(), |reason| format!(": {}", plain(reason, 300)));
            let _ = writeln!(text, "standing   {standing}{reason}");
            let _ = writeln!(text, "calls      {}", counts(entry));
            let _ = writeln!(text, "trials     {} on, {} off", entry.on, entry.off);
            if let Some(effect) = entry.effect {
                let _ = writeln!(text, "effect     {effect:+.3e} gain a minute, on minus off");
            }
        }
        let folder = library.path().join(id);
        if folder.is_dir() {
            let _ = writeln!(text, "folder     {}", folder.display());
        }
        text += "\n";
        // a model wrote it: it is shown without what a terminal would obey
        match script {
            Ok(script) => script.lines().for_each(|line| text += &(plain_code(line) + "\n")),
            Err(error) => text += &format!("{error}\n"),
        }
        Ok(text)
    }

    /// Validates a mechanism, or a script in a file, on the trials of the tag. Exit code 2 for one that may not be used.
    pub fn test_mechanism(&self, named: &str) -> Result<String> {
        let library = Library::of(&self.state);
        let path = Path::new(named);
        let script = match library.ids().iter().any(|id| id == named) || !path.is_file() {
            true => library.script(named)?,
            false => read_script(path)?,
        };
        let Validated { cases, calls, .. } = self.validated(named, &script)?;
        let called: Vec<String> = calls.iter().map(|(hook, times)| format!("{hook} {times}")).collect();
        Ok(format!(
            "{named} may be used: {cases} cases of its own pass; calls on the recorded trials: {}\n",
            called.join(", ")
        ))
    }

    /// Notes that a person wants a mechanism used, or not. Exit code 2 for one that may not be.
    pub fn wish_mechanism(&self, id: &str, on: bool) -> Result<String> {
        let library = Library::of(&self.state);
        let wishes = library.wishes()?;
        if on {
            self.validated(id, &library.script(id)?)?;
            let others = wishes.iter().filter(|(other, wish)| wish.on && *other != id).count();
            if others >= MOST_LIVE {
                return Err(Error::usage(format!(
                    "{others} mechanisms are on, and no more than {MOST_LIVE} are used"
                ))
                .hint("switch another off with `ratchet mechanisms disable ID`"));
            }
        } else if !wishes.contains_key(id) && self.history.search().mechanisms().get(id).is_none() {
            library.script(id)?; // else whatever is wrong with its script is no reason to keep it on
        }
        library.wish(id, Wish { on, at: now() })?;
        Ok(match on {
            true => format!("{id} is on from the next trial of a run with --levels 2\n"),
            false => format!("{id} is off from the next trial on\n"),
        })
    }

    fn validated(&self, named: &str, script: &str) -> Result<Validated> {
        let past = if self.history.trials().is_empty() { Vec::new() } else { vec![self.trace()?] };
        validate(&child(), script, &Limits::default(), &past).map_err(|rejection| {
            Error::usage(format!("{} may not be used: {rejection}", plain(named, 100)))
                .hint("docs/mechanisms.md says what a mechanism has to be")
        })
    }

    fn trace(&self) -> Result<mechanism::Trace> {
        let champion = self.history.champion().and_then(|champion| champion.commit.as_deref());
        let base = self.history.init().map(|init| init.base.as_str());
        let files = match champion.or(base) {
            Some(commit) => material::sources(&self.repo, &self.task, self.repo.parse(commit)?)?,
            None => Vec::new(),
        };
        let profile = self.history.init().and_then(|init| init.profile.as_deref());
        let tunables = Tunables::read(&files, profile).unwrap_or_default();
        let sigma = self.known_noise().and_then(|known| known.noise(None).sigma());
        Ok(trace(&self.history, &tunables, self.task.metric.goal, sigma, &[], 0))
    }

    /// What its author calls it, and what it is: from its session, else from the first comment of its script.
    fn described(&self, library: &Library, id: &str) -> (String, String) {
        if let Ok(Some(SessionEnd { outcome: Outcome::Mechanism { name, what, .. }, .. })) =
            SessionEnd::read(&library.path().join(id))
        {
            return (name, what);
        }
        let script = library.script(id).unwrap_or_default();
        let comment = script.lines().find_map(|line| line.trim().strip_prefix("//"));
        (id.to_owned(), plain(comment.unwrap_or_default().trim_start_matches(['/', '!']), 200))
    }
}

/// Calls of each hook, and in parentheses those whose answer was used.
fn counts(entry: &Entry) -> String {
    let word = |(hook, calls): (&Hook, &u64)| {
        let used = entry.acted.get(hook).copied().unwrap_or(0);
        // what `record` answers is always used
        if *hook == Hook::Record { format!("{hook} {calls}") } else { format!("{hook} {calls} ({used})") }
    };
    let words: Vec<String> = entry.calls.iter().map(word).collect();
    match (words.is_empty(), entry.standing) {
        (false, _) => words.join(", "),
        (true, Some(_)) => "never called".to_owned(),
        (true, None) => "-".to_owned(),
    }
}

/// A line of code without control characters, its indentation kept.
fn plain_code(line: &str) -> String {
    line.chars().map(|c| if c == '\t' { ' ' } else { c }).filter(|c| !c.is_control()).collect()
}
