//! Who proposes: the proposers that a task names, made ready for work.

use std::{fs, path::Path, sync::Arc, time::Duration};

use ::llm::{Config, KeySource, Live, Metered, Model, Price, Prices, Provider, Recording};

use crate::{
    account::{Paid, error},
    commands::mark,
    config::{Agent, Answerer, FILE, Llm, Preset, ProposerKind},
    error::{Doing, Error, Result},
    exec::StopFlag,
    git::remove,
    plain_file,
    proposer::{Proposer, agent::AgentProposer, knobs::Knobs, llm::Author, scripted::Scripted},
    proposing::Desk,
    reach::{self, at_home, confined},
    search::voice::Voice,
    secrets::{learn, secrets},
};

/// Files that a proposer leaves, which belong to the trial that comes of them.
const LEFT: [&str; 3] = ["prompt.md", "answer.log", "calls.jsonl"];

impl Desk<'_> {
    /// A proposer of this kind.
    ///
    /// Exit code 4 where it cannot work here, 2 where a cap could not be kept.
    pub(crate) fn hire(&self, kind: ProposerKind) -> Result<Box<dyn Proposer>> {
        Ok(match kind {
            // what is played back is asked of nobody
            ProposerKind::Knobs | ProposerKind::Replay => Box::new(Knobs),
            ProposerKind::Llm => {
                let missing = || Error::usage("the llm proposer needs [proposer.llm]").at(FILE);
                let settings = self.task.proposer.llm.as_ref().ok_or_else(missing)?;
                let (editable, memory) = (self.task.editable().clone(), self.dir.path().to_owned());
                let (model, scratch) = (self.model(settings)?, self.scratch.clone());
                Box::new(Author::new(settings.clone(), editable, model, memory, scratch))
            }
            ProposerKind::Agent => {
                let usual = Agent::of(Preset::Claude);
                let agent = self.task.proposer.agent.as_ref().unwrap_or(&usual);
                let root = self.state.root();
                let confined = confined(self.task)?;
                let (scratch, stop) = (self.scratch.clone(), self.stop.clone());
                let mut proposer = AgentProposer::new(agent, scratch, mark(root), stop, confined);
                proposer.withhold(self.task.notify.webhook_variable.as_deref());
                proposer.check(&self.caps(), root)?;
                if confined {
                    let policy = reach::agent(self.task, root, self.worktree.path(), proposer.command());
                    proposer.confine(policy);
                }
                Box::new(Paid::new(proposer, agent.max_usd, self)?)
            }
        })
    }

    /// Has `act` ask about the search itself: the proposer's own model, so that a gain is the search's and not a better
    /// model's; a script where no model is configured.
    pub(crate) fn with_voice<T>(&self, act: impl FnOnce(&mut Voice<'_>) -> T) -> Result<T> {
        let (settings, mut model) = match &self.task.proposer.llm {
            Some(settings) => (settings.clone(), self.model(settings)?),
            None => {
                let script = Llm::scripted();
                let model = answerer(&script, self.stop)?; // it costs nothing: no part of the account
                (script, model)
            }
        };
        let (max_output_tokens, context_tokens) = (settings.max_output_tokens, settings.context_tokens);
        Ok(act(&mut Voice { model: model.as_mut(), max_output_tokens, context_tokens }))
    }

    /// The model of `[proposer.llm]`: held to the caps, each call written down in the scratch folder.
    fn model(&self, settings: &Llm) -> Result<Box<dyn Model>> {
        let price = match (settings.provider, &self.task.proposer.prices) {
            (Answerer::Scripted | Answerer::Provider(Provider::Ollama), _) => Some(Price::FREE),
            (_, Some(file)) => Prices::with_file(&at_home(file)).map_err(error)?.of(&settings.model),
            (_, None) => Prices::bundled().map_err(error)?.of(&settings.model),
        };
        let model = answerer(settings, self.stop)?;
        let metered = Metered::new(model, self.state.purse()?, self.caps(), self.spender(), price);
        fs::create_dir_all(&self.scratch).doing("create", &self.scratch)?;
        let redact = |text: &str| secrets().redact(text).into_owned();
        Ok(Box::new(Recording::new(metered.map_err(error)?, self.scratch.join("calls.jsonl"), redact)))
    }
}

/// The model itself, its key read and kept secret; nothing is sent yet.
///
/// Exit code 4 names the variable or file of a key that is not there.
pub(crate) fn answerer(settings: &Llm, stop: &StopFlag) -> Result<Box<dyn Model>> {
    let provider = match settings.provider {
        Answerer::Scripted => return Ok(Box::new(Scripted::new(&settings.model))),
        Answerer::Provider(provider) => provider,
    };
    let key = match (&settings.key_file, &settings.key_variable) {
        (Some(file), _) => KeySource::File(at_home(file)),
        (None, Some(variable)) => KeySource::Variable(variable.clone()),
        (None, None) => KeySource::Provider,
    };
    match &key {
        KeySource::File(file) => {
            learn(&file.to_string_lossy(), &plain_file::read_to_string(file).unwrap_or_default());
        }
        KeySource::Variable(name) => learn(name, &std::env::var(name).unwrap_or_default()),
        KeySource::Provider => {} // its name says that it is a key
    }
    let config = Config {
        provider,
        model: settings.model.clone(),
        base_url: settings.base_url.clone(),
        key,
        timeout: Duration::from_secs(settings.timeout_s),
        retries: settings.retries,
        stream: settings.stream,
    };
    let stop = stop.clone();
    let live = Live::new(config, Arc::new(move || stop.is_set())).map_err(error)?;
    Ok(Box::new(live))
}

/// Removes what an earlier proposal left in `scratch`, of which nothing came that anybody would want to see.
pub(crate) fn clear_scratch(scratch: &Path) -> Result<()> {
    LEFT.iter().map(|name| scratch.join(name)).filter(|path| path.exists()).try_for_each(|path| remove(&path))
}

/// Moves what a proposer left in `scratch` to the folder of what came of it.
pub(crate) fn take_scratch(scratch: &Path, trial: &Path) -> Result<()> {
    for name in LEFT {
        if scratch.join(name).exists() {
            fs::create_dir_all(trial).doing("create", trial)?;
            move_numbered(&scratch.join(name), trial, name)?;
        }
    }
    Ok(())
}

/// Moves a file into a folder; a second one of that name (a repair's) gets a number.
fn move_numbered(from: &Path, folder: &Path, name: &str) -> Result<()> {
    let (stem, extension) = name.split_once('.').unwrap_or((name, "txt"));
    let names = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{stem}-{n}.{extension}")));
    let free = names.map(|name| folder.join(name)).find(|path| !path.exists());
    let to = free.unwrap_or_else(|| folder.join(name));
    fs::rename(from, &to).doing("move the proposer's file to", &to)
}
