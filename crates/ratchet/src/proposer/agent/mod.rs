//! Any command line as a proposer: prompt on stdin, its edits are the diff it leaves.

mod aider;
mod claude;
mod codex;
mod gemini;
mod opencode;
mod tool;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use llm::Caps;
use sandbox::{Access, Policy};
use serde::Deserialize;

use self::tool::{FILES, Output, PROMPT, Said, TEMPORARY, Trouble};
use super::{Brief, Proposal, ProposeError, Proposer, Usage, context::prompt};
use crate::{
    commands::{CEILING, ceiling},
    config::{Agent, Preset},
    error::{Doing, Error},
    exec::{self, End, Spec, StopFlag},
    git::remove,
    processes::MARK,
    reach::at_home,
    runlog::{RunLog, Stream, plain},
    state::write_new,
};

/// Where an agent may describe its edit; taken away before the edit is looked at.
pub const PROPOSAL_FILE: &str = "proposal.json";
/// What an agent printed, below the command line.
const ANSWER_FILE: &str = "answer.log";

/// A command line that edits the worktree.
pub struct AgentProposer {
    command: Vec<String>,
    preset: Option<Preset>,
    limit: Duration,
    /// Each with whether it is a folder, to be made where it is missing.
    settings: Vec<(PathBuf, bool)>,
    policy: Option<Policy>,
    scratch: PathBuf,
    mark: OsString,
    /// A variable of the driver's that is none of the agent's business.
    withheld: Option<String>,
    stop: StopFlag,
    spent: Usage,
}

impl AgentProposer {
    /// An agent as configured. `scratch` is where its prompt and answer are left; `mark` marks its processes;
    /// `confined`: whether [`AgentProposer::confine`] follows.
    pub fn new(agent: &Agent, scratch: PathBuf, mark: OsString, stop: StopFlag, confined: bool) -> Self {
        let known = agent.preset.map_or(&[][..], |preset| preset.tool().settings).iter().copied();
        let settings = known.chain(agent.settings.iter().map(String::as_str));
        let settings = settings.map(|path| (at_home(path), path.ends_with('/'))).collect();
        let command = match (&agent.command, agent.preset) {
            (Some(command), _) => command.clone(),
            (None, Some(preset)) => preset.command(agent, confined),
            (None, None) => Vec::new(), // refused by the configuration's own check
        };
        let limit = Duration::from_secs(agent.timeout_s);
        Self {
            command,
            preset: agent.preset,
            limit,
            settings,
            policy: None,
            scratch,
            mark,
            withheld: None,
            stop,
            spent: Usage::default(),
        }
    }

    /// The command line, its placeholders as they are.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Confines it to what `policy` grants, and its own settings and temporary files.
    pub fn confine(&mut self, mut policy: Policy) {
        for (path, is_folder) in &self.settings {
            if *is_folder {
                let _ = fs::create_dir_all(path); // where it cannot be had, the agent says so
            }
            policy.grant(Access::Own, path);
        }
        policy.grant(Access::Own, self.temporary());
        self.policy = Some(policy);
    }

    fn temporary(&self) -> PathBuf {
        self.scratch.join("tmp")
    }

    /// Exit code 4 when the command is not there to be run, 2 when a cap of `caps` could not be kept.
    pub fn check(&self, caps: &Caps, root: &Path) -> Result<(), Error> {
        let limits = caps.limit_money() || caps.night.tokens.is_some() || caps.day.tokens.is_some();
        if limits && self.preset.is_none() {
            return Err(Error::usage(
                "caps on tokens and dollars need an agent that reports its usage, and a command does not",
            )
            .hint("use a preset in [proposer.agent], or cap the run by --trials or --hours"));
        }
        if let Some(preset) = self.preset.filter(|preset| caps.limit_money() && !preset.tool().tells_usd) {
            return Err(Error::usage(format!(
                "{} does not tell what it costs, so that no cap on dollars can be kept",
                preset.program()
            ))
            .hint("cap its tokens: --max-tokens, or tokens_per_day under [proposer]"));
        }
        let program = self.command.first().map(String::as_str).unwrap_or_default();
        if exec::is_there(root, program) {
            return Ok(());
        }
        Err(Error::environment(format!(
            "the agent's command {program:?} is not installed, or not executable"
        ))
        .hint("install it, or make it executable, name another in [proposer.agent], or use --proposer knobs"))
    }

    /// Lays out what the agent finds beside the files: prompt, brief, an empty description, an empty folder.
    fn prepare(&self, brief: &Brief<'_>, prompt: &str) -> Result<(), Error> {
        fs::create_dir_all(&self.scratch).doing("create", &self.scratch)?;
        let record = self.scratch.join("prompt.md");
        fs::write(&record, prompt).doing("write", &record)?;
        let temporary = self.temporary();
        if temporary.exists() {
            remove(&temporary)?;
        }
        fs::create_dir_all(&temporary).doing("create", &temporary)?;
        write_new(&temporary.join("prompt.md"), prompt.as_bytes())?;
        // the worktree holds the program of the base commit; the human's current one is what counts. Not through
        // a link, nor into a pipe, that an earlier round has left in its place.
        if !brief.program.is_empty() {
            write_new(&brief.worktree.join("program.md"), brief.program.as_bytes())?;
        }
        // made beforehand: an agent that is confined can write this file, but make none beside it
        write_new(&brief.worktree.join(PROPOSAL_FILE), b"")
    }

    /// The command line for one proposal, and whether the prompt comes on stdin.
    fn expand(&self, brief: &Brief<'_>) -> (Vec<String>, bool) {
        let temporary = self.temporary();
        let prompt = temporary.join("prompt.md");
        let mut words = Vec::new();
        for word in &self.command {
            match word.as_str() {
                FILES => words.extend(brief.files.iter().map(|file| file.path.clone())),
                _ => words.push(
                    word.replace(PROMPT, &prompt.to_string_lossy())
                        .replace(TEMPORARY, &temporary.to_string_lossy()),
                ),
            }
        }
        (words, !self.command.iter().any(|word| word.contains(PROMPT)))
    }

    /// Keeps a variable of this process from the agent.
    pub(crate) fn withhold(&mut self, variable: Option<&str>) {
        self.withheld = variable.map(str::to_owned);
    }

    /// An agent needs the user's own environment, keys included; trials never get it.
    fn env(&self, worktree: &Path) -> BTreeMap<OsString, OsString> {
        let mut env: BTreeMap<_, _> = std::env::vars_os().collect();
        if let Some(tool) = self.preset.map(Preset::tool) {
            for name in tool.unset {
                env.remove(OsStr::new(name));
            }
            for (name, value) in tool.set {
                env.entry(name.into()).or_insert_with(|| value.into());
            }
        }
        if let Some(name) = &self.withheld {
            env.remove(OsStr::new(name));
        }
        env.insert(MARK.into(), self.mark.clone());
        env.insert(CEILING.into(), ceiling(worktree));
        env.insert("TMPDIR".into(), self.temporary().into());
        // opencode believes it rather than the folder it is in, and would edit the user's own files
        env.insert("PWD".into(), worktree.into());
        env
    }

    /// Runs the agent to its end.
    fn run(&self, brief: &Brief<'_>, prompt: String) -> Result<Answered, Error> {
        let confinement = self.policy.as_ref().map(Policy::confinement).transpose();
        let confinement = confinement
            .map_err(|error| Error::environment("the agent could not be confined").because(error))?;
        let (command, on_stdin) = self.expand(brief);
        let spec = Spec {
            stdin: on_stdin.then(|| prompt.into_bytes()),
            confinement,
            ..Spec::new(&command, brief.worktree.to_path_buf(), self.env(brief.worktree), self.limit)
        };
        let mut log = RunLog::create(&self.scratch.join(ANSWER_FILE));
        log.push(Stream::Out, format!("$ {}\n", shown(&command)).as_bytes());
        let (mut out, mut err) = (Last::default(), Last::default());
        let mut hear = |stream, bytes: &[u8]| match stream {
            Stream::Out => out.push(bytes),
            Stream::Err => err.push(bytes),
        };
        let end = exec::run(spec, &mut log, &mut hear, &self.stop).end;
        log.close();
        Ok(Answered { end, out: out.text(), err: err.text() })
    }
}

/// A command line as a person would type it.
fn shown(command: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+@%".contains(c);
    let word = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// How an agent ended, and what it printed.
struct Answered {
    end: End,
    out: String,
    err: String,
}

/// The last part of a stream: what a run came to stands at its end.
#[derive(Default)]
struct Last(Vec<u8>);

impl Last {
    /// Bytes that are kept at least.
    const KEPT: usize = 4 << 20;

    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > 2 * Self::KEPT {
            self.0.drain(..self.0.len() - Self::KEPT);
        }
    }

    fn text(self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl Proposer for AgentProposer {
    fn name(&self) -> &str {
        "agent"
    }

    fn propose(&mut self, brief: &Brief<'_>) -> Result<Proposal, ProposeError> {
        let prompt = prompt(brief);
        let failed = |error: Error| ProposeError::Failed(error.to_string());
        self.prepare(brief, &prompt).map_err(failed)?;
        let Answered { end, out, err } = self.run(brief, prompt).map_err(failed)?;
        if let End::NotStarted(error) = &end {
            return Err(ProposeError::Failed(format!("the agent could not be started: {error}")));
        }
        let temporary = self.temporary();
        let output = Output { end: &end, out: &out, err: &err, temporary: &temporary };
        let said = match self.preset {
            Some(preset) => (preset.tool().read)(&output),
            None => Said { text: Some(out.clone()), ..Said::default() },
        };
        self.spent += said.usage.unwrap_or_default();
        let spoken = said.text.as_deref().and_then(last_line);
        let why = match (said.trouble, &end, &spoken) {
            (_, End::Stopped, _) => return Err(ProposeError::Stopped),
            (Some(Trouble::SetUp(reason)), ..) => ProposeError::Unusable(named(&reason)),
            (Some(Trouble::Down(reason)), ..) => ProposeError::Failed(named(&reason)),
            (_, End::TimedOut, _) => ProposeError::TimedOut(self.limit),
            (Some(Trouble::Ended(reason)), ..) => ProposeError::Declined(named(&reason)),
            (None, End::Exited(0), None) => ProposeError::Empty,
            (None, end, None) => {
                let said = error_line(&err).map_or(String::new(), |line| format!(": {line}"));
                ProposeError::Declined(named(&format!("it {end}{said}")))
            }
            (None, _, Some(words)) => ProposeError::Declined(named(&format!("it said: {words}"))),
        };
        if end == End::TimedOut {
            return Err(why); // what it was about to do is not known
        }
        let described = take_description(brief.worktree);
        let description = match described.description.is_empty() {
            false => described.description,
            true => spoken.unwrap_or_default(),
        };
        Ok(Proposal {
            description: plain(&description, 160),
            hypothesis: plain(&described.hypothesis, 600),
            category: plain(&described.category, 40),
            expected_delta: described.expected_delta.filter(|delta| delta.is_finite()),
            usage: said.usage,
            unless_edited: Some(why),
            ..Proposal::default()
        })
    }

    fn take_spent(&mut self) -> Usage {
        std::mem::take(&mut self.spent)
    }
}

/// Why there is no edit, as it stands in the journal.
fn named(reason: &str) -> String {
    format!("no edit of the agent: {}", plain(reason, 200))
}

/// What an agent says of its edit.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Described {
    description: String,
    hypothesis: String,
    category: String,
    expected_delta: Option<f64>,
}

/// Reads and removes the proposal file; nothing usable is an empty description.
fn take_description(worktree: &Path) -> Described {
    let path = worktree.join(PROPOSAL_FILE);
    let plain_file = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() < 64 << 10);
    let text = if plain_file { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
    let _ = fs::remove_file(&path); // absent as a rule
    serde_json::from_str(&text).unwrap_or_default()
}

/// The last line of what an agent said, where it said anything.
fn last_line(text: &str) -> Option<String> {
    text.lines().rev().map(|line| plain(line, 160)).find(|line| !line.is_empty())
}

/// The line of standard error that tells most.
fn error_line(text: &str) -> Option<String> {
    let telling =
        |line: &&str| ["error", "denied", "not found"].iter().any(|word| line.to_lowercase().contains(word));
    text.lines().find(telling).map(|line| plain(line, 160)).or_else(|| last_line(text))
}

impl Preset {
    /// The command line that runs it without a person; `confined` inside the driver's own sandbox.
    fn command(self, agent: &Agent, confined: bool) -> Vec<String> {
        let tool = self.tool();
        let words = if confined && !tool.confined.is_empty() { tool.confined } else { tool.command };
        let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        if let Some(model) = &agent.model {
            words.extend([tool.model.to_owned(), model.clone()]);
        }
        if let (Some(flag), Some(usd)) = (tool.max_usd, agent.max_usd) {
            words.extend([flag.to_owned(), usd.to_string()]);
        }
        words
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{tool::Tool, *};
    use crate::proposer::context::tests::with_brief;

    #[test]
    fn an_agent_is_run_in_the_worktree_with_the_prompt_on_a_closed_stdin() {
        let worktree = tempfile::tempdir().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let script = "cat > seen.txt; echo '{\"description\": \"from file\", \"expected_delta\": -0.5}' > proposal.json; exit 7";
        let agent = Agent {
            command: Some(["sh", "-c", script].map(str::to_owned).to_vec()),
            preset: None,
            timeout_s: 20,
            ..Agent::of(Preset::Claude)
        };
        let mut proposer =
            AgentProposer::new(&agent, scratch.path().into(), "m".into(), StopFlag::default(), false);
        let proposal = with_brief(None, worktree.path(), |brief| proposer.propose(brief)).unwrap();
        assert_eq!((proposal.description.as_str(), proposal.expected_delta), ("from file", Some(-0.5)));
        let seen = fs::read_to_string(worktree.path().join("seen.txt")).unwrap();
        assert_eq!(seen, fs::read_to_string(scratch.path().join("prompt.md")).unwrap());
        assert!(!worktree.path().join(PROPOSAL_FILE).exists());
        assert_eq!(fs::read_to_string(worktree.path().join("program.md")).unwrap(), "Lower the loss.");
    }

    #[test]
    fn an_agent_that_hangs_or_is_missing_gives_no_proposal() {
        let worktree = tempfile::tempdir().unwrap();
        let propose = |command: &[&str], timeout_s| {
            let command = Some(command.iter().map(|word| (*word).to_owned()).collect());
            let agent = Agent { command, preset: None, timeout_s, ..Agent::of(Preset::Claude) };
            let mut proposer =
                AgentProposer::new(&agent, worktree.path().join("s"), "m".into(), StopFlag::default(), false);
            with_brief(None, worktree.path(), |brief| proposer.propose(brief))
        };
        assert_eq!(propose(&["sh", "-c", "sleep 600"], 0), Err(ProposeError::TimedOut(Duration::ZERO)));
        assert!(matches!(propose(&["no-such-agent"], 5), Err(ProposeError::Failed(_))));
    }

    #[test]
    fn an_agent_is_told_the_folder_it_is_in_and_keeps_the_users_variables() {
        let agent = Agent::of(Preset::Opencode);
        let proposer = AgentProposer::new(&agent, "/s".into(), "m".into(), StopFlag::default(), false);
        let env = proposer.env(Path::new("/tree"));
        assert_eq!(env[OsStr::new("PWD")], "/tree");
        assert_eq!(env[OsStr::new("TMPDIR")], "/s/tmp");
        assert!(env[OsStr::new("OPENCODE_PERMISSION")].to_str().unwrap().contains("deny"));
        // CARGO is set in any test
        assert_eq!(env.get(OsStr::new("CARGO")), std::env::var_os("CARGO").as_ref());
    }

    pub(super) fn said_in(tool: &Tool, code: i32, out: &str, err: &str, temporary: &Path) -> Said {
        (tool.read)(&Output { end: &End::Exited(code), out, err, temporary })
    }

    pub(super) fn said_with(tool: &Tool, code: i32, out: &str, err: &str) -> Said {
        said_in(tool, code, out, err, Path::new("/nowhere"))
    }

    pub(super) fn said(tool: &Tool, code: i32, out: &str) -> Said {
        said_with(tool, code, out, "")
    }
}
