//! Keys in the driver's own environment: never in a log, the journal, a report or a candidate.
//!
//! Trials do not get them at all (see [`crate::exec::allowed_env`]). An agent needs its key, and may print it.

use std::{
    borrow::Cow,
    ffi::OsString,
    sync::{Arc, Mutex, PoisonError},
};

/// Words in the names of variables that hold secrets.
const NAMES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// Shorter values are settings or could be a word of any text, passwords excepted.
const SHORTEST: usize = 16;
const SHORTEST_PASSWORD: usize = 8;

/// Values that must not be written down, with the names of their variables.
#[derive(Debug, Default)]
pub struct Secrets(Vec<(String, String)>);

/// Secrets that are known so far.
static KNOWN: Mutex<Option<Arc<Secrets>>> = Mutex::new(None);

/// Those of this process's environment, and what was learnt since.
pub fn secrets() -> Arc<Secrets> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.get_or_insert_with(|| Arc::new(Secrets::of_environment())).clone()
}

/// Adds one that no variable's name gives away: of a key file, or of a variable that the user names.
pub(crate) fn learn(name: &str, value: &str) {
    let mut all = secrets().0.clone();
    let value = value.trim().to_owned();
    if !value.is_empty() && all.iter().all(|(_, known)| *known != value) {
        all.push((name.to_owned(), value));
        let all = Secrets::sorted(all);
        *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(all));
    }
}

impl Secrets {
    fn of_environment() -> Self {
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Self::of(std::env::vars_os().filter_map(text))
    }

    /// The secrets among some variables, by their names.
    fn of(variables: impl Iterator<Item = (String, String)>) -> Self {
        let secret = |(name, value): &(String, String)| {
            let name = name.to_ascii_uppercase();
            let shortest = if name.contains("PASSW") { SHORTEST_PASSWORD } else { SHORTEST };
            NAMES.iter().any(|word| name.contains(word))
                && value.trim().len() >= shortest
                && !value.starts_with('/')
        };
        Self::sorted(variables.filter(secret).map(|(name, value)| (name, value.trim().to_owned())).collect())
    }

    /// Longer ones first: one may be part of another.
    fn sorted(mut found: Vec<(String, String)>) -> Self {
        found.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        Self(found)
    }

    /// Text with every secret replaced by its variable's name.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for (name, value) in &self.0 {
            if text.contains(value.as_str()) {
                text = Cow::Owned(text.replace(value.as_str(), &format!("[{name}]")));
            }
        }
        text
    }

    /// The variable whose value stands in `bytes`.
    pub fn found_in(&self, bytes: &[u8]) -> Option<&str> {
        let text = String::from_utf8_lossy(bytes);
        self.0.iter().find(|(_, value)| text.contains(value.as_str())).map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let variables = [
            ("ANTHROPIC_API_KEY", "sk-ant-0123456789abcdef"),
            ("DB_PASSWORD", "hunter22"),
            ("GITHUB_TOKEN", "sk-ant-0123456789abcdef-and-more"),
            ("TOKENIZERS_PARALLELISM", "false"),
            ("SSH_KEY_FILE", "/home/me/.ssh/id_ed25519"),
            ("EDITOR", "a-long-value-without-any-secret"),
        ];
        Secrets::of(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter())
    }

    #[test]
    fn a_key_that_no_name_gives_away_is_learnt() {
        learn("keys/provider", " learnt-in-a-test-0123 \n");
        assert_eq!(super::secrets().redact("<learnt-in-a-test-0123>"), "<[keys/provider]>");
    }

    #[test]
    fn values_of_secret_variables_are_replaced_by_their_names() {
        let text = "key sk-ant-0123456789abcdef, hunter22; sk-ant-0123456789abcdef-and-more false";
        let redacted = secrets().redact(text).into_owned();
        assert_eq!(redacted, "key [ANTHROPIC_API_KEY], [DB_PASSWORD]; [GITHUB_TOKEN] false");
        let harmless = "false /home/me/.ssh/id_ed25519 a-long-value-without-any-secret";
        assert!(matches!(secrets().redact(harmless), Cow::Borrowed(_)));
        assert_eq!(secrets().found_in(b"\xff hunter22"), Some("DB_PASSWORD"));
    }
}
