//! A client pointed at the local server.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, sync::Arc, time::Duration};

use llm::{Call, Config, KeySource, Live, Provider, Stop, Turn};
use standin::{Protocol, Server};

/// What no error, record or log may show.
pub(crate) const SECRET: &str = "sk-very-secret-0123456789";

/// Every provider with the protocol it is spoken to in.
pub(crate) const PROVIDERS: [(Provider, Protocol); 8] = [
    (Provider::Anthropic, Protocol::Anthropic),
    (Provider::Openai, Protocol::OpenaiChat),
    (Provider::OpenaiResponses, Protocol::OpenaiResponses),
    (Provider::Gemini, Protocol::Gemini),
    (Provider::Deepseek, Protocol::OpenaiChat),
    (Provider::Openrouter, Protocol::OpenaiChat),
    (Provider::Ollama, Protocol::Ollama),
    (Provider::Compatible, Protocol::OpenaiChat),
];

/// A key file in a folder of its own.
pub(crate) struct KeyFile(pub(crate) tempfile::TempDir);

impl KeyFile {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("key"), format!("{SECRET}\n")).unwrap();
        fs::set_permissions(dir.path().join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("key")
    }
}

/// A patient configuration without retries.
pub(crate) fn config(server: &Server, (provider, protocol): (Provider, Protocol), key: &KeyFile) -> Config {
    Config {
        provider,
        model: "test-model".to_owned(),
        base_url: Some(server.url(protocol)),
        key: KeySource::File(key.path()),
        timeout: Duration::from_secs(20),
        retries: 0,
        stream: true,
    }
}

pub(crate) fn never() -> Stop {
    Arc::new(|| false)
}

pub(crate) fn live(config: Config) -> Live {
    Live::new(config, never()).unwrap()
}

pub(crate) fn call<'a>(system: &'a str, turns: &'a [Turn]) -> Call<'a> {
    Call { purpose: "test", system, turns, schema: None, max_output_tokens: 4_000 }
}

pub(crate) fn user(text: &str) -> Vec<Turn> {
    vec![Turn::User(text.to_owned())]
}
