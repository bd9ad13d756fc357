//! Posts to a webhook. What goes wrong is said without the address.

use std::time::Duration;

use ureq::{Agent, Error, http::StatusCode};

use crate::config::Address;

/// For all of one try.
const TRY: Duration = Duration::from_secs(10);
/// Waits before the second and the third try.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// A webhook, ready to be posted to.
pub(super) struct Webhook {
    agent: Agent,
    address: Address,
}

impl Webhook {
    pub(super) fn new(address: Address) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(TRY))
            // an address that is passed on is another's, and nobody said that they may read this
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .user_agent("ratchet");
        Self { agent: config.build().into(), address }
    }

    /// Posts; tries again what may pass.
    pub(super) fn post(&self, json: &[u8]) -> Result<(), String> {
        let mut pauses = PAUSES.iter();
        loop {
            let Err((why, passing)) = self.attempt(json) else { return Ok(()) };
            match pauses.next().filter(|_| passing) {
                Some(pause) => std::thread::sleep(*pause),
                None => {
                    return Err(format!("the webhook at {} {why}", self.address.host().unwrap_or_default()));
                }
            }
        }
    }

    /// One try; why not, and whether another may go better.
    fn attempt(&self, json: &[u8]) -> Result<(), (String, bool)> {
        let request = self.agent.post(self.address.secret()).content_type("application/json");
        let status = match request.send(json) {
            Ok(response) => response.status(),
            Err(error) => return Err((told(&error), true)),
        };
        match status {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => {
                Err((format!("answered {status}: redirects are not followed"), false))
            }
            status => {
                let passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                Err((format!("answered {status}"), passing))
            }
        }
    }
}

/// The client's own words may hold the address.
fn told(error: &Error) -> String {
    match error {
        Error::Timeout(_) => format!("did not answer in {} s", TRY.as_secs()),
        Error::HostNotFound => "is not known by that name".to_owned(),
        Error::Io(error) => format!("could not be reached ({})", error.kind()),
        Error::ConnectionFailed => "could not be reached".to_owned(),
        Error::Tls(_) | Error::Rustls(_) => "could not be reached safely (TLS)".to_owned(),
        _ => "could not be posted to".to_owned(),
    }
}
