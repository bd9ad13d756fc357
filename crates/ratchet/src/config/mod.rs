//! `ratchet.toml`: the task contract, parsed strictly.
//!
//! An unknown key is an error that names its line and the keys there are. What decides a value (task,
//! metric, build, preflight, fit, score, accept) is fixed for a tag; see [`Task::contract`].

mod answerer;
mod check;
mod notify;
mod proposer;
mod review;

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use self::check::line_of;
pub use self::{
    answerer::Answerer,
    notify::{Address, NotifySection, Occasion},
    review::ReviewSection,
};
use crate::{
    error::{Error, Result},
    plain_file,
    runlog::plain,
    verdict::Policy,
};

/// The file's name, in the root.
pub const FILE: &str = "ratchet.toml";
/// Files of the root that belong to the human or the driver: never part of a candidate, never refused.
pub const EXEMPT: [&str; 3] = ["program.md", "results.tsv", FILE];

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Names the task and what may change.
    task: TaskSection,
    /// What is measured.
    pub metric: Metric,
    /// Prepares the data of a profile; its presence means that the task has profiles.
    pub prepare: Option<Step>,
    /// Builds the candidate.
    pub build: Option<Step>,
    /// Shows in seconds what would otherwise cost a whole fit.
    pub preflight: Option<Step>,
    /// Trains.
    pub fit: Option<Step>,
    /// Measures.
    pub score: Score,
    /// Writes text with the model in `{trial}`; behind the command come `--tokens N --temperature T --seed S` and maybe
    /// `--top-k K`, and on standard input the prompt.
    pub sample: Option<Step>,
    /// Judges.
    #[serde(default)]
    pub accept: Policy,
    /// Ends a run.
    #[serde(default)]
    pub stop: Stop,
    /// Proposes.
    #[serde(default)]
    pub proposer: ProposerSection,
    /// Changes how the search works.
    #[serde(default)]
    pub search: SearchSection,
    /// Asks a person to read what was kept.
    #[serde(default)]
    pub review: ReviewSection,
    /// Confines.
    #[serde(default)]
    pub sandbox: Sandbox,
    /// Tells those who are not at the terminal.
    #[serde(default)]
    pub notify: NotifySection,
    #[serde(skip)]
    editable: Editable,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskSection {
    /// What the task is called.
    name: String,
    /// Patterns of the files that a candidate may change, relative to the root; everything else is protected.
    editable: Spanned<Vec<Spanned<String>>>,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its key in the score's JSON and its column in `results.tsv`.
    pub name: String,
    /// Which way is better.
    #[serde(default)]
    pub goal: Goal,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Lower is better.
    #[default]
    Minimize,
    /// Higher is better.
    Maximize,
}

impl Goal {
    /// How much better `new` is than `old`: positive is better.
    pub fn gain(self, old: f64, new: f64) -> f64 {
        match self {
            Self::Minimize => old - new,
            Self::Maximize => new - old,
        }
    }

    /// Whether `a` is strictly better than `b`.
    pub fn better(self, a: f64, b: f64) -> bool {
        match self {
            Self::Minimize => a < b,
            Self::Maximize => a > b,
        }
    }
}

/// One command of the contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Program and arguments; no shell. `{trial}`, `{target}`, `{root}`, `{profile}` are replaced.
    pub command: Vec<String>,
    /// Seconds after which it is ended.
    #[serde(default = "Step::default_timeout_s")]
    pub timeout_s: u64,
}

impl Step {
    /// Whether it runs cargo, whose habits are known.
    pub fn is_cargo(&self) -> bool {
        self.command.first().is_some_and(|program| program == "cargo")
    }

    fn default_timeout_s() -> u64 {
        600
    }
}

/// `[score]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// Program and arguments; no shell.
    pub command: Vec<String>,
    /// Seconds after which it is ended.
    #[serde(default = "Step::default_timeout_s")]
    pub timeout_s: u64,
    /// Rows go in and nonce-tagged figures come back, instead of one JSON line on stdout.
    #[serde(default)]
    pub exam: bool,
}

/// `[stop]`: what ends a run, beside the caps given on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// Crashes in a row after which something is likely broken for good.
    pub max_crashes_in_a_row: u64,
}

impl Default for Stop {
    fn default() -> Self {
        Self { max_crashes_in_a_row: 20 }
    }
}

/// `[proposer]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProposerSection {
    /// Who proposes.
    pub kind: ProposerKind,
    /// Who proposes after ten empty or refused proposals in a row.
    pub fallback: Fallback,
    /// How often a candidate that does not build goes back to its proposer.
    pub repairs: u32,
    /// Whether the next proposal is made and built while a trial trains; never by `knobs`, which takes no time.
    pub lookahead: bool,
    /// Of so many proposals one is to be of a category not tried lately; 0 for none.
    pub explore_every: u32,
    /// Trials that an excursion from a plateau may last; 0 for no excursions.
    pub excursion: u32,
    /// US dollars that proposers may spend on a day, over all tags.
    pub usd_per_day: Option<f64>,
    /// Tokens that proposers may spend on a day, over all tags.
    pub tokens_per_day: Option<u64>,
    /// A price table in LiteLLM's form, over the bundled one; `~/` is the home directory.
    pub prices: Option<String>,
    /// Files of the tree that proposers are shown besides the editable ones.
    pub pages: Vec<String>,
    /// The recorded night of `kind = "replay"`; `~/` is the home directory.
    pub night: Option<String>,
    /// The command of `kind = "agent"`.
    pub agent: Option<Agent>,
    /// The model of `kind = "llm"`.
    pub llm: Option<Llm>,
}

impl Default for ProposerSection {
    fn default() -> Self {
        Self {
            kind: ProposerKind::Knobs,
            fallback: Fallback::Knobs,
            repairs: 2,
            lookahead: true,
            explore_every: 8,
            excursion: 5,
            usd_per_day: None,
            tokens_per_day: None,
            prices: None,
            pages: Vec::new(),
            night: None,
            agent: None,
            llm: None,
        }
    }
}

impl ProposerSection {
    /// Whether a team looks for what limits the champion.
    pub(crate) fn has_analyst(&self) -> bool {
        self.llm.as_ref().is_some_and(|llm| llm.roles == Roles::Team)
    }
}

/// Who proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposerKind {
    /// The built-in search over marked tunables.
    Knobs,
    /// A language model.
    Llm,
    /// Any command line.
    Agent,
    /// A recorded night: its proposals, and its runs with them.
    Replay,
}

/// Who takes over from a proposer that gives nothing usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The built-in search.
    Knobs,
    /// Nobody: the run stops with that reason.
    None,
}

/// `[proposer.llm]`: which model, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llm {
    /// `anthropic`, `openai`, `openai-responses`, `gemini`, `deepseek`, `openrouter`, `ollama` or
    /// `compatible`; or `scripted`, a script that stands in for a model.
    pub provider: Answerer,
    /// As the provider calls it.
    pub model: String,
    /// Where the provider is, if not at its own address.
    pub base_url: Option<String>,
    /// The variable that holds the key, if not the provider's own.
    pub key_variable: Option<String>,
    /// A file that holds the key instead; `~/` is the home directory.
    pub key_file: Option<String>,
    /// Who thinks: one, or a team of roles.
    #[serde(default)]
    pub roles: Roles,
    /// Tokens that a prompt may hold, estimated.
    #[serde(default = "Llm::default_context_tokens")]
    pub context_tokens: u32,
    /// Tokens of one answer.
    #[serde(default = "Llm::default_max_output_tokens")]
    pub max_output_tokens: u32,
    /// Seconds for one call, all of it.
    #[serde(default = "Llm::default_timeout_s")]
    pub timeout_s: u64,
    /// How often a call is repeated that failed for the provider's or the network's fault.
    #[serde(default = "Llm::default_retries")]
    pub retries: u32,
    /// Whether answers come in pieces, so that one that grows too long is cut off.
    #[serde(default = "Llm::default_stream")]
    pub stream: bool,
    /// Whether the model writes whole files instead of search and replace blocks; better for small models.
    #[serde(default)]
    pub whole_files: bool,
}

impl Llm {
    /// The script that stands in where no model is configured.
    pub fn scripted() -> Self {
        Self {
            provider: Answerer::Scripted,
            model: "stand-in".to_owned(),
            base_url: None,
            key_variable: None,
            key_file: None,
            roles: Roles::Solo,
            context_tokens: Self::default_context_tokens(),
            max_output_tokens: Self::default_max_output_tokens(),
            timeout_s: Self::default_timeout_s(),
            retries: Self::default_retries(),
            stream: false,
            whole_files: false,
        }
    }

    fn default_context_tokens() -> u32 {
        100_000
    }

    fn default_max_output_tokens() -> u32 {
        16_000
    }

    fn default_timeout_s() -> u64 {
        300
    }

    fn default_retries() -> u32 {
        4
    }

    fn default_stream() -> bool {
        true
    }
}

/// Who thinks in an `llm` proposer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Roles {
    /// One that plans and then edits.
    #[default]
    Solo,
    /// Analyst, planner, engineer, reviewer, retrospector.
    Team,
}

/// `[proposer.agent]`: a command, or a preset that stands for one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Program and arguments. The prompt comes on stdin, unless `{prompt}` names its file; `{files}` are the
    /// editable files, and `{tmp}` is a folder for temporary ones.
    pub command: Option<Vec<String>>,
    /// A known agent.
    pub preset: Option<Preset>,
    /// The model that a preset is to use, as its tool calls it.
    pub model: Option<String>,
    /// US dollars that one proposal may cost, where a preset's tool can be told so.
    pub max_usd: Option<f64>,
    /// Seconds for one proposal.
    #[serde(default = "Agent::default_timeout_s")]
    pub timeout_s: u64,
    /// Files and folders of its own, which it may write; `~/` is the home directory, and what ends with `/` is made
    /// where it is missing. Those of a preset are known.
    #[serde(default)]
    pub settings: Vec<String>,
}

impl Agent {
    /// A preset as it comes.
    pub fn of(preset: Preset) -> Self {
        Self {
            command: None,
            preset: Some(preset),
            model: None,
            max_usd: None,
            timeout_s: Self::default_timeout_s(),
            settings: Vec::new(),
        }
    }

    /// What is run.
    pub fn program(&self) -> &str {
        let own = self.command.as_ref().and_then(|command| command.first());
        own.map(String::as_str).or(self.preset.map(Preset::program)).unwrap_or_default()
    }

    fn default_timeout_s() -> u64 {
        900
    }
}

/// Agents whose command line is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Claude Code.
    Claude,
    /// Codex CLI.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// aider.
    Aider,
    /// opencode.
    Opencode,
}

/// `[search]`: whether the search changes how it searches.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchSection {
    /// What may change.
    pub levels: Level,
    /// Trials between two adjustments of the settings.
    pub cycle: u32,
    /// A research session after so many cycles, plateau or not; 0 for only on a plateau.
    pub session_every: u32,
}

impl Default for SearchSection {
    fn default() -> Self {
        Self { levels: Level::One, cycle: 5, session_every: 0 }
    }
}

/// How much of the search may change during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// Nothing: propose, try, keep or reset.
    #[default]
    #[serde(rename = "1")]
    One,
    /// Its settings: strategy, what is frozen, guidance.
    #[serde(rename = "1.5")]
    OneAndAHalf,
    /// Its mechanisms as well, which are written during the run.
    #[serde(rename = "2")]
    Two,
}

/// `[sandbox]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sandbox {
    /// How builds, trials and agents are confined.
    pub mode: SandboxMode,
    /// Paths of the tree that none of them may read: the text that exams are made of.
    pub hide: Vec<String>,
    /// Paths elsewhere that all of them may read; `~/` is the home directory.
    pub read: Vec<String>,
    /// Memory that a trial's processes may hold together; nine tenths of the machine's when it is not said.
    pub memory_gb: Option<f64>,
    /// What a trial may write.
    pub disk_gb: f64,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self { mode: SandboxMode::Auto, hide: Vec::new(), read: Vec::new(), memory_gb: None, disk_gb: 16.0 }
    }
}

/// How trial processes are confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// As strong as the kernel allows.
    #[default]
    Auto,
    /// Not at all rather than weakly.
    Required,
    /// No sandbox.
    Off,
}

/// The `editable` patterns, compiled.
#[derive(Clone, Debug, Default)]
pub struct Editable(GlobSet);

impl Editable {
    /// Whether a candidate may touch `path` (relative to the root).
    pub fn contains(&self, path: &Path) -> bool {
        self.0.is_match(path)
    }
}

impl Task {
    /// Reads `ratchet.toml` in `root`.
    ///
    /// Fails with exit code 2, naming file, line and key, on anything that is not exactly right.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        let text = plain_file::read_to_string(&path).map_err(|error| {
            Error::usage("no task here")
                .at(&path)
                .because(error)
                .hint("run ratchet in a folder that holds a ratchet.toml, or with -C")
        })?;
        let mut task: Self = toml::from_str(&text).map_err(|error| {
            let line = line_of(&text, error.span());
            let shown = text.lines().nth(line - 1).unwrap_or_default().trim();
            // a webhook's address is shown to nobody
            let shown = if shown.is_empty() || shown.starts_with("webhook") {
                String::new()
            } else {
                format!(": `{}`", plain(shown, 80))
            };
            Error::usage(format!("line {line}{shown}: {}", error.message().replace('\n', " "))).at(&path)
        })?;
        let at = |span: Range<usize>, what: String| {
            Error::usage(format!("line {}: {what}", line_of(&text, Some(span)))).at(&path)
        };
        let patterns = &task.task.editable;
        if patterns.get_ref().is_empty() {
            return Err(at(patterns.span(), "`editable` is empty".into())
                .hint("name at least one pattern, for example \"src/**\""));
        }
        let mut set = GlobSetBuilder::new();
        for pattern in patterns.get_ref() {
            // literal_separator: `src/*` means the files of src, not those of its folders
            let glob = GlobBuilder::new(pattern.get_ref())
                .literal_separator(true)
                .build()
                .map_err(|error| at(pattern.span(), format!("`editable`: {error}")))?;
            set.add(glob);
        }
        task.editable = Editable(set.build().map_err(|error| at(patterns.span(), error.to_string()))?);
        task.check(&text)?;
        task.accept.goal = task.metric.goal;
        task.notify.keep_secret();
        Ok(task)
    }

    fn patterns(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.task.editable.get_ref().iter()
    }

    /// The task's name.
    pub fn name(&self) -> &str {
        &self.task.name
    }

    /// What a candidate may touch.
    pub fn editable(&self) -> &Editable {
        &self.editable
    }

    /// The folders, and single files, that hold everything a candidate may touch: of each pattern the part
    /// before its first wildcard.
    pub fn editable_folders(&self) -> Vec<PathBuf> {
        let literal = |pattern: &Spanned<String>| {
            let parts = Path::new(pattern.get_ref()).components();
            parts
                .take_while(|part| !part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{']))
                .collect()
        };
        self.patterns().map(literal).collect()
    }

    /// Whether its build compiles for a GPU where there is one.
    pub fn compiles_for_the_gpu(&self) -> bool {
        self.build.as_ref().is_some_and(|build| build.command.iter().any(|arg| arg == "{features}"))
    }

    /// Whether the task has profiles.
    pub fn has_profiles(&self) -> bool {
        self.prepare.is_some()
    }

    /// What decides a value, as (section, canonical JSON): none of it may change within a tag.
    pub fn contract(&self) -> Vec<(String, String)> {
        let patterns: Vec<&str> = self.patterns().map(|p| p.get_ref().as_str()).collect();
        let json = |value: serde_json::Result<String>| value.unwrap_or_default(); // strings and numbers: cannot fail
        [
            ("task", json(serde_json::to_string(&(&self.task.name, patterns)))),
            ("metric", json(serde_json::to_string(&self.metric))),
            ("build", json(serde_json::to_string(&self.build))),
            ("preflight", json(serde_json::to_string(&self.preflight))),
            ("fit", json(serde_json::to_string(&self.fit))),
            ("score", json(serde_json::to_string(&self.score))),
            ("accept", json(serde_json::to_string(&self.accept))),
        ]
        .map(|(section, json)| (section.to_owned(), json))
        .to_vec()
    }
}

#[cfg(test)]
pub(crate) mod tests;
