//! Keys in the driver's own environment: never in a log, the journal, a report or a candidate.
//!
//! Trials do not get them at all (see [`crate::exec::allowed_env`]). An agent needs its key, and may print it.

use std::{borrow::Cow, sync::OnceLock};

/// Words in the names of variables that hold secrets.
const NAMES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// Shorter values are settings or could be a word of any text, passwords excepted.
const SHORTEST: usize = 16;
const SHORTEST_PASSWORD: usize = 8;

/// Values that must not be written down, with the names of their variables.
#[derive(Debug, Default)]
pub struct Secrets(Vec<(String, String)>);

/// Those of this process's environment, found once.
pub fn secrets() -> &'static Secrets {
    static FOUND: OnceLock<Secrets> = OnceLock::new();
    FOUND.get_or_init(|| {
        Secrets::of(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        )
    })
}

impl Secrets {
    /// The secrets among some variables, by their names.
    fn of(variables: impl Iterator<Item = (String, String)>) -> Self {
        let secret = |(name, value): &(String, String)| {
            let name = name.to_ascii_uppercase();
            let shortest = if name.contains("PASSW") { SHORTEST_PASSWORD } else { SHORTEST };
            NAMES.iter().any(|word| name.contains(word))
                && value.trim().len() >= shortest
                && !value.starts_with('/')
        };
        let mut found: Vec<(String, String)> =
            variables.filter(secret).map(|(name, value)| (name, value.trim().to_owned())).collect();
        // one may be part of another
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
    fn values_of_secret_variables_are_replaced_by_their_names() {
        let text = "key sk-ant-0123456789abcdef, hunter22; sk-ant-0123456789abcdef-and-more false";
        let redacted = secrets().redact(text).into_owned();
        assert_eq!(redacted, "key [ANTHROPIC_API_KEY], [DB_PASSWORD]; [GITHUB_TOKEN] false");
        let harmless = "false /home/me/.ssh/id_ed25519 a-long-value-without-any-secret";
        assert!(matches!(secrets().redact(harmless), Cow::Borrowed(_)));
        assert_eq!(secrets().found_in(b"\xff hunter22"), Some("DB_PASSWORD"));
    }
}
