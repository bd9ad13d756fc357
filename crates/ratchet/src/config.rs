//! `ratchet.toml`: the task contract, parsed strictly.
//!
//! An unknown key is an error that names its line and the keys there are. What decides a value (task,
//! metric, build, preflight, fit, score, accept) is fixed for a tag; see [`Task::contract`].

use std::{fs, ops::Range, path::Path};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::{
    error::{Error, Result},
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
    /// Judges.
    #[serde(default)]
    pub accept: Policy,
    /// Ends a run.
    #[serde(default)]
    pub stop: Stop,
    /// Proposes.
    #[serde(default)]
    pub proposer: ProposerSection,
    /// Confines.
    #[serde(default)]
    pub sandbox: Sandbox,
    #[serde(skip)]
    editable: Editable,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskSection {
    name: String,
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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProposerSection {
    /// Who proposes.
    pub kind: ProposerKind,
    /// Who proposes after ten empty or refused proposals in a row.
    pub fallback: Fallback,
    /// How often a candidate that does not build goes back to its proposer.
    pub repairs: u32,
    /// The command of `kind = "agent"`.
    pub agent: Option<Agent>,
}

impl Default for ProposerSection {
    fn default() -> Self {
        Self { kind: ProposerKind::Knobs, fallback: Fallback::Knobs, repairs: 2, agent: None }
    }
}

/// Who proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposerKind {
    /// The built-in search over marked tunables.
    Knobs,
    /// Any command line.
    Agent,
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

/// `[proposer.agent]`: a command, or a preset that stands for one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Program and arguments; the prompt comes on stdin.
    pub command: Option<Vec<String>>,
    /// A known agent.
    pub preset: Option<Preset>,
    /// Seconds for one proposal.
    #[serde(default = "Agent::default_timeout_s")]
    pub timeout_s: u64,
}

impl Agent {
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
}

/// `[sandbox]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sandbox {
    /// How trial processes are confined.
    pub mode: SandboxMode,
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
        let text = fs::read_to_string(&path).map_err(|error| {
            Error::usage("no task here")
                .at(&path)
                .because(error)
                .hint("run ratchet in a folder that holds a ratchet.toml, or with -C")
        })?;
        let mut task: Self = toml::from_str(&text).map_err(|error| {
            let line = line_of(&text, error.span());
            let shown = text.lines().nth(line - 1).unwrap_or_default().trim();
            let shown = if shown.is_empty() { String::new() } else { format!(": `{}`", plain(shown, 80)) };
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
        Ok(task)
    }

    /// What a glance at the values alone can tell.
    fn check(&self, text: &str) -> Result<()> {
        let wrong = |what: String| Err(Error::usage(what).at(FILE));
        if self.task.name.is_empty() {
            return wrong("[task] name is empty".into());
        }
        let name = &self.metric.name;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.@".contains(c)) {
            return wrong(format!("[metric] name {name:?} must be letters, digits, `_`, `-`, `.` or `@`"));
        }
        let steps = [
            ("prepare", &self.prepare),
            ("build", &self.build),
            ("preflight", &self.preflight),
            ("fit", &self.fit),
        ];
        let commands =
            steps.iter().filter_map(|(name, step)| step.as_ref().map(|s| (*name, &s.command, s.timeout_s)));
        for (name, command, timeout_s) in
            commands.chain([("score", &self.score.command, self.score.timeout_s)])
        {
            if command.first().is_none_or(|program| program.is_empty()) {
                return wrong(format!("[{name}] command is empty; write it as a list, program first"));
            }
            if timeout_s == 0 {
                return wrong(format!("[{name}] timeout_s is 0, so it could never finish"));
            }
        }
        if let Err(problem) = self.accept.check() {
            return wrong(format!("[accept] {problem}"));
        }
        if self.score.exam && (self.prepare.is_none() || self.fit.is_none()) {
            return wrong(
                "[score] exam needs [prepare] and [fit]: rows are piped to a model that was trained".into(),
            );
        }
        if let Some(agent) = &self.proposer.agent {
            match (&agent.command, agent.preset) {
                (Some(_), Some(_)) => {
                    return wrong("[proposer.agent] has both command and preset; keep one".into());
                }
                (None, None) => return wrong("[proposer.agent] needs a command or a preset".into()),
                (Some(command), None) if command.first().is_none_or(|program| program.is_empty()) => {
                    return wrong("[proposer.agent] command is empty".into());
                }
                _ => {}
            }
        } else if self.proposer.kind == ProposerKind::Agent {
            return wrong("[proposer] kind is \"agent\" but there is no [proposer.agent]".into());
        }
        for own in EXEMPT {
            if let Some(pattern) =
                self.patterns().find(|p| self.editable.contains(Path::new(own)) && matches(p.get_ref(), own))
            {
                let line = line_of(text, Some(pattern.span()));
                return Err(Error::usage(format!("line {line}: `editable` pattern {:?} takes in {own}", pattern.get_ref()))
                    .at(FILE)
                    .hint("narrow the pattern: program.md is the human's, results.tsv the driver's, ratchet.toml the referee's"));
            }
        }
        Ok(())
    }

    /// Checks the patterns against the files there are: each matches something, and none a referee.
    ///
    /// `tracked` are the paths of the commit that a tag starts from. Exit code 2 names the line.
    pub fn check_files(&self, root: &Path, tracked: &[std::path::PathBuf]) -> Result<()> {
        let text = fs::read_to_string(root.join(FILE)).unwrap_or_default();
        for pattern in self.patterns() {
            let line = line_of(&text, Some(pattern.span()));
            if !tracked.iter().any(|path| matches(pattern.get_ref(), path)) {
                return Err(Error::usage(format!(
                    "line {line}: `editable` pattern {:?} matches no committed file",
                    pattern.get_ref()
                ))
                .at(root.join(FILE))
                .hint("patterns are relative to the root; commit the files it should match"));
            }
            let mut judges: Vec<_> = referees(&self.score.command);
            judges.extend(self.prepare.iter().flat_map(|step| referees(&step.command)));
            if let Some(judge) = judges
                .iter()
                .find(|judge| root.join(judge).is_file() && matches(pattern.get_ref(), judge.as_str()))
            {
                return Err(Error::usage(format!(
                    "line {line}: `editable` pattern {:?} takes in {judge}, the referee that [score] or [prepare] runs",
                    pattern.get_ref()
                ))
                .at(root.join(FILE))
                .hint("a candidate must not be able to edit what judges it; narrow the pattern"));
            }
        }
        for judge in referees(&self.score.command) {
            let path = Path::new(&judge);
            if root.join(path).is_file() && path.is_relative() && !tracked.iter().any(|t| t == path) {
                return Err(Error::usage("the referee that [score] runs is not committed")
                    .at(root.join(path))
                    .hint(format!(
                        "git add {judge} && git commit: trials run in a worktree of committed files"
                    )));
            }
        }
        Ok(())
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

/// Whether one pattern takes in `path`.
fn matches(pattern: &str, path: impl AsRef<Path>) -> bool {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .is_ok_and(|glob| glob.compile_matcher().is_match(path))
}

/// The files that a judging command may run: its first words that could be a path, up to the first that
/// is one. What follows the program are its inputs, and those may well be editable.
fn referees(command: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut words = command.iter().enumerate();
    while let Some((i, word)) = words.next() {
        match word.as_str() {
            // a script given as text names files that we cannot tell from its inputs
            "-c" | "-e" => return found,
            "-m" => {
                if let Some((_, module)) = words.next() {
                    found.push(format!("{}.py", module.replace('.', "/")));
                }
                return found;
            }
            flag if flag.starts_with('-') => {}
            program => {
                found.push(program.trim_start_matches("./").to_owned());
                let interpreter = i == 0 && !program.contains('/') && !program.contains('.');
                if !interpreter {
                    return found;
                }
            }
        }
    }
    found
}

/// The 1-based line on which a span starts; 1 when there is none.
fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let start = span.map_or(0, |span| span.start.min(text.len()));
    1 + text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Compiled patterns, for tests of other rooms.
    pub(crate) fn editable(patterns: &[&str]) -> Editable {
        let list = patterns.iter().map(|p| format!("{p:?}")).collect::<Vec<_>>().join(", ");
        read(&TOY.replace("\"cand/**\"", &list)).unwrap().editable
    }

    const TOY: &str = "[task]\nname = \"toy\"\neditable = [\"cand/**\"]\n[metric]\nname = \"loss\"\n[score]\ncommand = [\"python3\", \"score.py\"]\n";

    fn read(text: &str) -> Result<Task> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), text).unwrap();
        Task::read(dir.path())
    }

    fn message(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn a_short_file_gets_the_documented_defaults() {
        let task = read(TOY).unwrap();
        assert_eq!(task.metric.goal, Goal::Minimize);
        assert_eq!(task.stop.max_crashes_in_a_row, 20);
        assert_eq!(task.proposer.repairs, 2);
        assert!(task.build.is_none() && task.fit.is_none() && !task.score.exam);
        assert!(task.editable().contains(Path::new("cand/deep/x.txt")));
        assert!(!task.editable().contains(Path::new("score.py")));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_known_ones() {
        let text = format!("{TOY}metrik = 3\n");
        let error = message(&text);
        assert!(
            error.contains("line 8") && error.contains("metrik") && error.contains("timeout_s"),
            "{error}"
        );
        let error = message(&format!("{TOY}\n[metrik]\nname = 'x'\n"));
        assert!(error.contains("line 9") && error.contains("metrik") && error.contains("sandbox"), "{error}");
    }

    #[test]
    fn own_files_inside_editable_are_refused() {
        for pattern in ["*", "**", "program.md", "ratchet.toml"] {
            let error = message(&TOY.replace("cand/**", pattern));
            assert!(error.contains("line 3") && error.contains("takes in"), "{pattern}: {error}");
        }
    }

    #[test]
    fn a_pattern_without_a_match_and_a_referee_inside_are_refused_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let tracked = |paths: &[&str]| paths.iter().map(std::path::PathBuf::from).collect::<Vec<_>>();
        fs::write(dir.path().join("score.py"), "").unwrap();
        fs::write(dir.path().join(FILE), TOY).unwrap();
        let task = Task::read(dir.path()).unwrap();
        let error = task.check_files(dir.path(), &tracked(&["score.py"])).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("matches no committed file"), "{error}");
        task.check_files(dir.path(), &tracked(&["score.py", "cand/x"])).unwrap();
        let error = task.check_files(dir.path(), &tracked(&["cand/x"])).unwrap_err().to_string();
        assert!(error.contains("not committed"), "{error}");

        fs::write(dir.path().join(FILE), TOY.replace("cand/**", "*.py")).unwrap();
        let task = Task::read(dir.path()).unwrap();
        let error = task.check_files(dir.path(), &tracked(&["score.py"])).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("referee"), "{error}");
    }

    #[test]
    fn inputs_of_a_referee_may_be_editable() {
        let words = |command: &str| referees(&command.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(words("python3 -u score.py cand/x.txt"), ["python3", "score.py"]);
        assert_eq!(words("./score.sh cand/x.txt"), ["score.sh"]);
        assert_eq!(words("python3 -m judge.main cand/x"), ["python3", "judge/main.py"]);
        assert_eq!(words("sh -c cat cand/x.txt"), ["sh"]);
    }

    #[test]
    fn the_contract_holds_what_decides_a_value_and_nothing_else() {
        let base = read(TOY).unwrap().contract();
        assert_eq!(base, read(&format!("{TOY}[stop]\nmax_crashes_in_a_row = 3\n")).unwrap().contract());
        assert_ne!(base, read(&TOY.replace("\"loss\"", "\"loss\"\ngoal = \"maximize\"")).unwrap().contract());
        assert_ne!(base, read(&format!("{TOY}[accept]\nrule = \"strict\"\n")).unwrap().contract());
    }
}
