//! Any command line as a proposer: prompt on stdin, its edits are the diff it leaves.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use sandbox::{Access, Policy};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{Brief, Proposal, ProposeError, Proposer, Usage, context::prompt};
use crate::{
    commands::{CEILING, ceiling},
    config::{Agent, Preset},
    error::Error,
    exec::{self, End, Spec, StopFlag},
    git::remove,
    processes::MARK,
    reach::at_home,
    runlog::{RunLog, Stream, plain, tail_of},
    state::write_new,
};

/// Where an agent may describe its edit; taken away before the edit is looked at.
pub const PROPOSAL_FILE: &str = "proposal.json";
/// Bytes of an agent's answer that are kept.
const ANSWER: usize = 1 << 20;

/// A command line that edits the worktree.
pub struct AgentProposer {
    command: Vec<String>,
    preset: Option<Preset>,
    limit: Duration,
    settings: Vec<PathBuf>,
    policy: Option<Policy>,
    scratch: PathBuf,
    mark: std::ffi::OsString,
    stop: StopFlag,
}

impl AgentProposer {
    /// An agent as configured. `scratch` is where its prompt and answer are left; `mark` marks its processes.
    pub fn new(agent: &Agent, scratch: PathBuf, mark: std::ffi::OsString, stop: StopFlag) -> Self {
        let known = agent.preset.map_or(&[][..], Preset::settings).iter().copied();
        let settings = known.chain(agent.settings.iter().map(String::as_str)).map(at_home).collect();
        let command = match (&agent.command, agent.preset) {
            (Some(command), _) => command.clone(),
            (None, Some(preset)) => preset.command(),
            (None, None) => Vec::new(), // refused by the configuration's own check
        };
        let limit = Duration::from_secs(agent.timeout_s);
        Self { command, preset: agent.preset, limit, settings, policy: None, scratch, mark, stop }
    }

    /// The command line.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Confines it to what `policy` grants, and its own settings and temporary files.
    pub fn confine(&mut self, mut policy: Policy) {
        self.settings.iter().for_each(|path| {
            policy.grant(Access::Own, path);
        });
        policy.grant(Access::Own, self.temporary());
        self.policy = Some(policy);
    }

    fn temporary(&self) -> PathBuf {
        self.scratch.join("tmp")
    }

    /// Exit code 4 when the command is not there to be run, 2 when a cost cap could not be kept.
    pub fn check(&self, capped: bool) -> Result<(), Error> {
        if capped && self.preset.is_none() {
            return Err(Error::usage(
                "--max-tokens and --max-usd need an agent that reports its usage, and a command does not",
            )
            .hint("use a preset in [proposer.agent], or cap the run by --trials or --hours"));
        }
        let program = self.command.first().map(String::as_str).unwrap_or_default();
        // one with a folder is relative to the worktree: seen when it is run
        if program.contains('/') || exec::on_path(program).is_some() {
            return Ok(());
        }
        Err(Error::environment(format!("the agent's command {program:?} is not installed"))
            .hint("install it, name another in [proposer.agent], or use --proposer knobs"))
    }
}

impl Proposer for AgentProposer {
    fn name(&self) -> &str {
        "agent"
    }

    fn propose(&mut self, brief: &Brief<'_>) -> Result<Proposal, ProposeError> {
        let failed =
            |error: std::io::Error| ProposeError::Failed(format!("{}: {error}", self.scratch.display()));
        fs::create_dir_all(&self.scratch).map_err(failed)?;
        let prompt = prompt(brief);
        fs::write(self.scratch.join("prompt.md"), &prompt).map_err(failed)?;
        // the worktree holds the program of the base commit; the human's current one is what counts
        let place = |name: &str, text: &str| {
            // not through a link, nor into a pipe, that an earlier round has left in its place
            write_new(&brief.worktree.join(name), text.as_bytes())
                .map_err(|error| ProposeError::Failed(error.to_string()))
        };
        if !brief.program.is_empty() {
            place("program.md", brief.program)?;
        }
        // made beforehand: an agent that is confined can write this file, but make none beside it
        place(PROPOSAL_FILE, "")?;
        let temporary = self.temporary();
        if temporary.exists() {
            remove(&temporary).map_err(|error| ProposeError::Failed(error.to_string()))?;
        }
        fs::create_dir_all(&temporary).map_err(failed)?;
        let confinement = self.policy.as_ref().map(Policy::confinement).transpose();
        let confinement = confinement.map_err(|error| ProposeError::Failed(error.to_string()))?;
        let answer_path = self.scratch.join("answer.log");
        let mut log = RunLog::create(&answer_path);
        let mut answer = Vec::new();
        // an agent needs the user's own environment, keys included; trials never get it
        let mut env: std::collections::BTreeMap<_, _> = std::env::vars_os().collect();
        env.insert(MARK.into(), self.mark.clone());
        env.insert(CEILING.into(), ceiling(brief.worktree));
        env.insert("TMPDIR".into(), temporary.into());
        let spec = Spec {
            stdin: Some(prompt.into_bytes()),
            confinement,
            ..Spec::new(&self.command, brief.worktree.to_path_buf(), env, self.limit)
        };
        let ended = exec::run(
            spec,
            &mut log,
            &mut |stream, bytes| {
                if stream == Stream::Err {
                    return;
                }
                let room = ANSWER - answer.len();
                answer.extend_from_slice(&bytes[..bytes.len().min(room)]);
            },
            &self.stop,
        );
        log.close();
        match ended.end {
            End::Stopped => return Err(ProposeError::Stopped),
            End::TimedOut => return Err(ProposeError::TimedOut(self.limit)),
            End::NotStarted(error) => {
                return Err(ProposeError::Failed(format!("the agent could not be started: {error}")));
            }
            // judged by the edit it leaves: agents end with any code
            End::Exited(_) | End::Killed(_) | End::OutOfMemory | End::OutOfDisk => {}
        }
        let usage = self.preset.and_then(|preset| preset.usage(&answer));
        let described = take_description(brief.worktree);
        let description = match described.description.is_empty() {
            false => described.description,
            true => last_words(self.preset, &answer, &answer_path),
        };
        Ok(Proposal {
            description: plain(&description, 160),
            hypothesis: plain(&described.hypothesis, 600),
            category: plain(&described.category, 40),
            expected_delta: described.expected_delta.filter(|delta| delta.is_finite()),
            usage,
            ..Proposal::default()
        })
    }
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

/// The last line of the answer, for an agent that did not describe its edit.
fn last_words(preset: Option<Preset>, answer: &[u8], log: &Path) -> String {
    let text = preset
        .and_then(|preset| preset.text(answer))
        .unwrap_or_else(|| String::from_utf8_lossy(answer).into_owned());
    let last = text.lines().rev().map(|line| plain(line, 160)).find(|line| !line.is_empty());
    last.or_else(|| tail_of(log, 1).pop()).unwrap_or_else(|| "an edit without a description".to_owned())
}

impl Preset {
    /// The command line that runs it without a person, the prompt on stdin.
    pub fn command(self) -> Vec<String> {
        let words = match self {
            Self::Claude => {
                "claude -p --output-format json --permission-mode acceptEdits --tools Read,Edit,Write,Glob,Grep --max-turns 60"
            }
        };
        words.split(' ').map(str::to_owned).collect()
    }

    /// Where it keeps what it knows of the user, and must be able to write.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &["~/.claude", "~/.claude.json", "~/.cache/claude-cli-nodejs"],
        }
    }

    /// Tokens and cost, where its answer says so.
    fn usage(self, answer: &[u8]) -> Option<Usage> {
        let json = Self::json(answer)?;
        // per model, not `usage`, which can miss the last turn
        let models = json.get("modelUsage").and_then(Json::as_object)?;
        let kinds = ["inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"];
        let tokens =
            models.values().flat_map(|model| kinds.iter().filter_map(|kind| model.get(kind)?.as_u64())).sum();
        Some(Usage { tokens, usd: json.get("total_cost_usd").and_then(Json::as_f64) })
    }

    /// What it says at the end.
    fn text(self, answer: &[u8]) -> Option<String> {
        Some(Self::json(answer)?.get("result")?.as_str()?.to_owned())
    }

    fn json(answer: &[u8]) -> Option<Json> {
        let text = String::from_utf8_lossy(answer);
        text.lines()
            .rev()
            .find_map(|line| serde_json::from_str(line).ok())
            .or_else(|| serde_json::from_str(&text).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            settings: Vec::new(),
        };
        let mut proposer = AgentProposer::new(&agent, scratch.path().into(), "m".into(), StopFlag::default());
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
            let agent = Agent { command, preset: None, timeout_s, settings: Vec::new() };
            let mut proposer =
                AgentProposer::new(&agent, worktree.path().join("s"), "m".into(), StopFlag::default());
            with_brief(None, worktree.path(), |brief| proposer.propose(brief))
        };
        assert_eq!(propose(&["sh", "-c", "sleep 600"], 0), Err(ProposeError::TimedOut(Duration::ZERO)));
        assert!(matches!(propose(&["no-such-agent"], 5), Err(ProposeError::Failed(_))));
    }

    #[test]
    fn claudes_answer_gives_usage_and_last_words() {
        let answer = br#"{"type":"result","result":"Done.\nRaised the rate","total_cost_usd":0.12,
            "modelUsage":{"m":{"inputTokens":10,"outputTokens":5,"cacheReadInputTokens":100,"costUSD":0.12}}}"#;
        assert_eq!(Preset::Claude.usage(answer), Some(Usage { tokens: 115, usd: Some(0.12) }));
        assert_eq!(last_words(Some(Preset::Claude), answer, Path::new("/nowhere")), "Raised the rate");
    }
}
