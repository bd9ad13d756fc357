//! A model at a provider: one question, several attempts, a time limit on each, a stop at any moment.

use std::{fmt, sync::Arc, time::Duration};

use genai::{
    Client, ModelIden, ServiceTarget,
    resolver::{AuthData, Endpoint},
};
use rand::RngExt;
use tokio::runtime::Runtime;
use tracing::subscriber::NoSubscriber;

use crate::{
    Answer, AskError, Call, KeySource, Model, Provider,
    attempt::Attempt,
    fault::{About, Fault, root_cause},
    key::Key,
};

/// The first wait between attempts is up to this, each further one up to twice the last.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// No wait is longer, whatever the provider asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// What an answer may take while it is read: many times the largest that is taken.
const MOST_GROWTH: u64 = 256 << 20;
/// How often a stop is looked for while waiting.
const TICK: Duration = Duration::from_millis(20);

/// Says whether to give up waiting; asked fifty times a second.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// Which model is asked, where, and how patiently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Who provides it.
    pub provider: Provider,
    /// Its name, as the provider knows it.
    pub model: String,
    /// In place of the provider's own, for example `http://localhost:8000/v1`.
    pub base_url: Option<String>,
    /// Where the key is.
    pub key: KeySource,
    /// The limit of one attempt, from connecting to the last byte.
    pub timeout: Duration,
    /// Attempts after the first, where it failed in a way that may pass.
    pub retries: u32,
    /// Whether the answer is read as it is made. A plain answer is read whole before its size is known.
    pub stream: bool,
}

/// A model at a provider. Must not be asked from inside an async runtime: it blocks, with one of its own.
pub struct Live {
    config: Config,
    base_url: String,
    key: Option<Key>,
    client: Client,
    runtime: Runtime,
    stop: Stop,
    lost: u32,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("config", &self.config).field("key", &self.key).finish_non_exhaustive()
    }
}

impl Live {
    /// Reads the key and makes the client; nothing is sent yet.
    ///
    /// # Errors
    /// [`AskError::Key`] naming the variable or the file; [`AskError::Setup`] for a base URL that is missing or
    /// is none, and where no HTTP client can be made.
    pub fn new(config: Config, stop: Stop) -> Result<Self, AskError> {
        let key = Key::read(&config.key, config.provider)?;
        let base_url = base_url(&config)?;
        let _ = rustls::crypto::ring::default_provider().install_default(); // an earlier one is as good
        let mut builder = reqwest::Client::builder()
            // Minutes pass between calls: a kept connection would be dead by then.
            .pool_max_idle_per_host(0)
            // A redirect would take the key along to wherever it leads.
            .redirect(reqwest::redirect::Policy::none())
            // A small body could become an endless one.
            .gzip(false);
        if is_local(&base_url) {
            builder = builder.no_proxy();
        }
        if base_url.starts_with("http:") {
            builder = builder.tls_certs_only([]); // a machine may have none
        }
        let http = builder.build().map_err(|error| unusable(&error))?;
        let client = Client::builder().with_reqwest(http).build().map_err(|error| unusable(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unusable(&error))?;
        Ok(Self { config, base_url, key, client, runtime, stop, lost: 0 })
    }

    fn about(&self) -> About<'_> {
        About { model: &self.config.model, base_url: &self.base_url, key: self.key.as_ref() }
    }

    fn target(&self) -> ServiceTarget {
        // A server without keys ignores this one; genai insists on some.
        let secret = self.key.as_ref().map_or("none", Key::secret);
        ServiceTarget {
            endpoint: Endpoint::from_owned(self.base_url.as_str()),
            auth: AuthData::from_single(secret),
            model: ModelIden::new(self.config.provider.adapter(), self.config.model.as_str()),
        }
    }

    /// One attempt: until its answer, its time limit, or a stop, whichever comes first.
    fn attempt(&self, call: &Call<'_>) -> Result<Answer, Fault> {
        let attempt = Attempt::new(call, &self.config, self.about());
        // genai and its HTTP client log what the provider says, and a provider may quote the key.
        let _silence = tracing::subscriber::set_default(NoSubscriber::default());
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = stopped(&self.stop) => Err(Fault::lasting(AskError::Stopped, attempt.begun())),
                () = swollen() => Err(Fault::lasting(AskError::TooLarge, attempt.begun())),
                outcome = attempt.run(&self.client, self.target()) => outcome,
                () = tokio::time::sleep(self.config.timeout) => Err(Fault::down(
                    format!("no whole answer within {:.0?}", self.config.timeout),
                    attempt.begun(),
                )),
            }
        })
    }

    /// Waits before attempt `number + 1`; false for a stop.
    fn pause(&self, number: u32, asked: Option<Duration>) -> bool {
        let wait = wait(number, asked, rand::rng().random());
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = stopped(&self.stop) => false,
                () = tokio::time::sleep(wait) => true,
            }
        })
    }
}

impl Model for Live {
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, AskError> {
        self.lost = 0;
        let mut number = 0;
        loop {
            let fault = match self.attempt(call) {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            self.lost += u32::from(fault.billed);
            if !fault.again || number == self.config.retries {
                return Err(fault.error);
            }
            if !self.pause(number, fault.wait) {
                return Err(AskError::Stopped);
            }
            number += 1;
        }
    }

    fn name(&self) -> &str {
        &self.config.model
    }

    fn lost(&self) -> u32 {
        self.lost
    }
}

/// Exponential backoff with full jitter, on top of what the provider asks for; `luck` is in 0..1.
fn wait(number: u32, asked: Option<Duration>, luck: f64) -> Duration {
    let most = FIRST_WAIT.saturating_mul(1 << number.min(16)).min(LONGEST_WAIT);
    asked.unwrap_or_default().saturating_add(most.mul_f64(luck)).min(LONGEST_WAIT)
}

async fn stopped(stop: &Stop) {
    while !stop() {
        tokio::time::sleep(TICK).await;
    }
}

/// Until this process has grown by so much that only an answer without end explains it: genai reads a plain answer,
/// and what comes with an error, whole before anybody can look at its size.
async fn swollen() {
    let Some(before) = resident_bytes() else { return std::future::pending().await };
    while resident_bytes().is_none_or(|now| now < before + MOST_GROWTH) {
        tokio::time::sleep(TICK).await;
    }
}

/// Memory that this process holds; `None` where the system does not say.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn unusable(error: &(dyn std::error::Error + 'static)) -> AskError {
    AskError::Setup(format!("no HTTP client: {}", root_cause(error)))
}

/// The URL that paths are added to: with a slash at its end.
fn base_url(config: &Config) -> Result<String, AskError> {
    let provider = config.provider;
    let Some(url) = config.base_url.as_deref().or(provider.base_url()) else {
        return Err(AskError::Setup(format!("{} needs a base URL", provider.as_str())));
    };
    // what is wrong is said without repeating it: it may hold a password
    let wrong = |why: &str| Err(AskError::Setup(format!("the base URL {why}")));
    let parsed = match reqwest::Url::parse(url) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => parsed,
        _ => return wrong("is no http:// or https:// URL"),
    };
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return wrong(
            "holds a name or a password, which would stand in records; a key goes into a variable or a file",
        );
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return wrong("ends in a query or a fragment, behind which no path of the protocol can go");
    }
    Ok(if url.ends_with('/') { url.to_owned() } else { format!("{url}/") })
}

/// Whether the server is on this machine, where no proxy leads.
fn is_local(url: &str) -> bool {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_an_address_and_nothing_that_must_not_be_shown() {
        let of = |url: &str| {
            base_url(&Config {
                provider: Provider::Compatible,
                model: "m".to_owned(),
                base_url: Some(url.to_owned()),
                key: KeySource::Provider,
                timeout: Duration::from_secs(1),
                retries: 0,
                stream: false,
            })
        };
        assert_eq!(of("http://127.0.0.1:1/v1").unwrap(), "http://127.0.0.1:1/v1/");
        let bad = [
            "http://me:hunter2@h/v1",
            "http://h/v1?key=hunter2",
            "http://h/#hunter2",
            "ftp://me:hunter2@h",
            "hunter2",
        ];
        for url in bad {
            let error = of(url).unwrap_err().to_string();
            assert!(error.contains("base URL") && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn waits_double_and_are_bounded_whatever_is_asked() {
        let seconds = |number, asked: Option<u64>, luck| {
            wait(number, asked.map(Duration::from_secs), luck).as_secs_f64()
        };
        assert_eq!([0, 1, 2, 3].map(|number| seconds(number, None, 1.0)), [0.5, 1.0, 2.0, 4.0]);
        assert_eq!(seconds(0, None, 0.0), 0.0);
        assert_eq!(seconds(2, Some(7), 0.5), 8.0);
        assert_eq!(seconds(40, None, 1.0), 60.0);
        assert_eq!(seconds(0, Some(u64::MAX), 0.5), 60.0);
    }
}
