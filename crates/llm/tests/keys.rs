//! Keys: where they come from, and that nobody shows them.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
};

use llm::{AskError, Config, KeySource, Live, Model, Provider};
use standin::{Fault, Protocol, Reply, Server};
use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter, util::SubscriberInitExt};

use crate::setup::{KeyFile, PROVIDERS, SECRET, call, config, live, never, user};

#[test]
fn the_key_goes_to_the_provider_without_the_file_s_line_end() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Text("yes".to_owned())).unwrap();
    for at in PROVIDERS {
        live(config(&server, at, &key)).ask(&call("system", &user("?"))).unwrap();
        let sent = server.requests().pop().unwrap();
        let wanted = (at.0 != Provider::Ollama).then_some(SECRET);
        assert_eq!(sent.key(), wanted, "{at:?}");
    }
}

#[test]
fn a_server_without_keys_is_asked_without_one() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Text("yes".to_owned())).unwrap();
    for at in [(Provider::Ollama, Protocol::Ollama), (Provider::Compatible, Protocol::OpenaiChat)] {
        let config = Config { key: KeySource::Provider, ..config(&server, at, &key) };
        assert_eq!(live(config).ask(&call("system", &user("?"))).unwrap().text, "yes");
    }
}

#[test]
fn a_missing_key_names_its_variable_or_file_before_any_request() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Text("never".to_owned())).unwrap();
    let made = |source| Live::new(Config { key: source, ..config(&server, PROVIDERS[0], &key) }, never());
    let error = made(KeySource::Variable("RATCHET_TEST_NO_SUCH_KEY".to_owned())).unwrap_err();
    assert!(
        matches!(&error, AskError::Key { variable, .. } if variable == "RATCHET_TEST_NO_SUCH_KEY"),
        "{error}"
    );

    let path = key.path();
    for (text, mode, says) in [
        (SECRET, 0o644, "chmod 600"),
        ("", 0o600, "is empty"),
        ("two words", 0o600, "characters that no key has"),
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = made(KeySource::File(path.clone())).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        assert!(!error.to_string().contains(SECRET), "{error}");
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(made(KeySource::File(path)).unwrap_err(), AskError::Key { .. }));
    assert!(server.requests().is_empty());
}

#[test]
fn a_base_url_is_the_provider_s_own_or_must_be_one() {
    let key = KeyFile::new();
    let server = Server::start(|_| Reply::Text("never".to_owned())).unwrap();
    let made = |provider, base_url: Option<&str>| {
        let base_url = base_url.map(str::to_owned);
        Live::new(Config { base_url, ..config(&server, (provider, Protocol::OpenaiChat), &key) }, never())
    };
    for (provider, _) in PROVIDERS.into_iter().filter(|(provider, _)| *provider != Provider::Compatible) {
        made(provider, None).unwrap();
    }
    let error = made(Provider::Compatible, None).unwrap_err();
    assert_eq!(error, AskError::Setup("compatible needs a base URL".to_owned()));
    for wrong in ["localhost:8000", "file:///etc/passwd", ""] {
        assert!(matches!(made(Provider::Compatible, Some(wrong)), Err(AskError::Setup(_))), "{wrong:?}");
    }
}

#[test]
fn no_log_line_and_no_debug_output_shows_the_key() {
    let key = KeyFile::new();
    let log = Log::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(log.clone()).finish();
    let guard = subscriber.set_default();
    let faults = [Fault::Status(401), Fault::Status(500), Fault::Malformed, Fault::CutOff, Fault::Empty];
    for at in PROVIDERS {
        for stream in [true, false] {
            let mut replies: Vec<Reply> = faults.iter().cloned().map(Reply::Fault).collect();
            replies.push(Reply::Text("good".to_owned()));
            let calls = replies.len();
            let mut replies = replies.into_iter();
            let server = Server::start(move |_| replies.next().unwrap()).unwrap();
            let mut model = live(Config { stream, ..config(&server, at, &key) });
            for _ in 0..calls {
                drop(model.ask(&call("system", &user("question"))));
            }
            assert!(!format!("{model:?}").contains(SECRET), "{at:?}");
        }
    }
    drop(guard);
    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    let shown = log.lines().find(|line| line.contains(SECRET));
    assert_eq!(shown, None);
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
