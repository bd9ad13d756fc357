//! What of `[proposer]` makes no sense by its values.

use std::path::{Component, Path};

use super::{Agent, Llm, Preset, ProposerKind, ProposerSection, check::sensible};

/// Tokens below which a prompt cannot hold even a small task.
const LEAST_CONTEXT: u32 = 1_000;

impl ProposerSection {
    /// Says what is wrong, with section and key.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(usd) = self.usd_per_day.filter(|usd| !(usd.is_finite() && *usd >= 0.0)) {
            return Err(format!("[proposer] usd_per_day is {usd}; it must be an amount"));
        }
        if self.night.as_deref().is_some_and(|night| night.trim().is_empty()) {
            return Err("[proposer] night is empty; it is the path of a recorded night".to_owned());
        }
        let agent = self.agent.as_ref().map_or(Ok(()), Agent::check);
        agent.map_err(|problem| format!("[proposer.agent] {problem}"))?;
        let llm = self.llm.as_ref().map_or(Ok(()), Llm::check);
        llm.map_err(|problem| format!("[proposer.llm] {problem}"))?;
        let lacks = match self.kind {
            ProposerKind::Agent if self.agent.is_none() => "\"agent\" but there is no [proposer.agent]",
            ProposerKind::Llm if self.llm.is_none() => "\"llm\" but there is no [proposer.llm]",
            ProposerKind::Replay if self.night.is_none() => "\"replay\" but night names no recorded night",
            _ => return Ok(()),
        };
        Err(format!("[proposer] kind is {lacks}"))
    }
}

impl Agent {
    fn check(&self) -> Result<(), String> {
        match (&self.command, self.preset) {
            (Some(_), Some(_)) => return Err("has both command and preset; keep one".to_owned()),
            (None, None) => return Err("needs a command or a preset".to_owned()),
            (Some(command), None) if command.first().is_none_or(|program| program.is_empty()) => {
                return Err("command is empty".to_owned());
            }
            _ => {}
        }
        sensible(self.timeout_s)?;
        if self.preset.is_none() && (self.model.is_some() || self.max_usd.is_some()) {
            return Err("model and max_usd go with a preset; write them into the command".to_owned());
        }
        if let Some(usd) = self.max_usd {
            if !self.preset.is_some_and(Preset::takes_max_usd) {
                return Err(
                    "max_usd: only the preset \"claude\" can be told so; use --max-usd for all of a run"
                        .to_owned(),
                );
            }
            if !(usd.is_finite() && usd > 0.0) {
                return Err(format!("max_usd is {usd}; it must be a positive amount"));
            }
        }
        // to write there is granted, whatever is there
        let narrow = |path: &String| {
            let inside = path.strip_prefix("~/").or_else(|| path.strip_prefix('/'));
            inside.is_some_and(|inside| {
                let mut parts = Path::new(inside).components().peekable();
                parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
            })
        };
        match self.settings.iter().find(|path| !narrow(path)) {
            Some(path) => {
                Err(format!("settings: {path:?} is no file or folder below / or ~/ of the agent's own"))
            }
            None => Ok(()),
        }
    }
}

impl Llm {
    fn check(&self) -> Result<(), String> {
        sensible(self.timeout_s)?;
        if self.max_output_tokens == 0 {
            return Err("max_output_tokens is 0, so no answer could ever come".to_owned());
        }
        if self.context_tokens < LEAST_CONTEXT {
            return Err(format!("context_tokens is {}; {LEAST_CONTEXT} is the least", self.context_tokens));
        }
        if self.model.trim().is_empty() {
            return Err("model is empty; write it as the provider calls it".to_owned());
        }
        if self.key_variable.is_some() && self.key_file.is_some() {
            return Err("has both key_variable and key_file; keep one".to_owned());
        }
        if self.key_file.as_deref().is_some_and(|file| file.trim().is_empty()) {
            return Err("key_file is empty; it is the path of a file".to_owned());
        }
        let names = |name: &str| {
            let legal = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            legal && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
        };
        // not repeated: it may be the key itself
        match self.key_variable.as_deref().is_none_or(names) {
            true => Ok(()),
            false => {
                Err("key_variable is no name of an environment variable; the key goes into the variable, not here"
                    .to_owned())
            }
        }
    }
}
