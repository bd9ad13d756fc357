//! What of a `ratchet.toml` makes no sense, by its values and by the files there are.

use std::{
    ops::Range,
    path::{Component, Path, PathBuf},
};

use globset::GlobBuilder;

use super::{EXEMPT, FILE, Task};
use crate::{
    error::{Error, Result},
    plain_file,
};

impl Task {
    /// What a glance at the values alone can tell.
    pub(super) fn check(&self, text: &str) -> Result<()> {
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
            ("sample", &self.sample),
        ];
        let commands =
            steps.iter().filter_map(|(name, step)| step.as_ref().map(|s| (*name, &s.command, s.timeout_s)));
        for (name, command, timeout_s) in
            commands.chain([("score", &self.score.command, self.score.timeout_s)])
        {
            if command.first().is_none_or(|program| program.is_empty()) {
                return wrong(format!("[{name}] command is empty; write it as a list, program first"));
            }
            if let Err(problem) = sensible(timeout_s) {
                return wrong(format!("[{name}] {problem}"));
            }
        }
        if let Err(problem) = self.accept.check() {
            return wrong(format!("[accept] {problem}"));
        }
        for path in &self.sandbox.hide {
            let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
            if !inside || path.is_empty() {
                return wrong(format!("[sandbox] hide: {path:?} is no path inside the task"));
            }
        }
        let limits =
            [("memory_gb", self.sandbox.memory_gb.unwrap_or(1.0)), ("disk_gb", self.sandbox.disk_gb)];
        for (key, gb) in limits {
            if !(gb.is_finite() && gb > 0.0) {
                return wrong(format!("[sandbox] {key} is {gb}; it must be a positive number"));
            }
        }
        if self.score.exam && (self.prepare.is_none() || self.fit.is_none()) {
            return wrong(
                "[score] exam needs [prepare] and [fit]: rows are piped to a model that was trained".into(),
            );
        }
        if let Err(problem) = self.proposer.check().and_then(|()| self.review.check()) {
            return wrong(problem);
        }
        if let Err(problem) = self.notify.check() {
            return wrong(format!("[notify] {problem}"));
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
    pub fn check_files(&self, root: &Path, tracked: &[PathBuf]) -> Result<()> {
        let text = plain_file::read_to_string(&root.join(FILE)).unwrap_or_default();
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
        if let Some(page) =
            self.proposer.pages.iter().find(|page| !tracked.iter().any(|t| t == Path::new(page)))
        {
            return Err(Error::usage(format!("[proposer] pages: {page:?} is no committed file"))
                .at(root.join(FILE))
                .hint("commit it, or take it out of `pages`"));
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
}

/// Whether a limit in seconds is one: more than none, and no more than a clock can count to.
pub(super) fn sensible(timeout_s: u64) -> Result<(), String> {
    const WEEK_S: u64 = 7 * 24 * 3600;
    match timeout_s {
        0 => Err("timeout_s is 0, so it could never finish".to_owned()),
        1..=WEEK_S => Ok(()),
        _ => Err(format!("timeout_s is {timeout_s}; a week, {WEEK_S}, is the most")),
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
pub(super) fn referees(command: &[String]) -> Vec<String> {
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
pub(super) fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let start = span.map_or(0, |span| span.start.min(text.len()));
    1 + text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count()
}
