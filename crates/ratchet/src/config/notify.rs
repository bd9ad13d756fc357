//! `[notify]`: who is told of a run, and of what.

use std::{fmt, fs, os::unix::fs::PermissionsExt, path::Path};

use jiff::civil::Time;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::FILE;
use crate::{
    error::{Error, Result},
    plain_file,
    reach::at_home,
    secrets::learn,
    stop::clock,
};

/// `[notify]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotifySection {
    /// Where messages are posted.
    pub webhook: Option<Address>,
    /// A file that holds that address instead, which only you can read; `~/` is the home directory.
    pub webhook_file: Option<String>,
    /// A variable that holds it instead.
    pub webhook_variable: Option<String>,
    /// A program that is told as well, its arguments with it; no shell.
    pub command: Option<Vec<String>>,
    /// What is told.
    pub on: Vec<Occasion>,
    /// When a run that no clock ends tells how it stands, once a day, here.
    #[serde(deserialize_with = "time_of_day")]
    pub morning_at: Time,
}

impl Default for NotifySection {
    fn default() -> Self {
        Self {
            webhook: None,
            webhook_file: None,
            webhook_variable: None,
            command: None,
            // what somebody who sleeps wants to be woken for, or to find: not every keep
            on: vec![Occasion::Stop, Occasion::Stuck, Occasion::Error, Occasion::Morning],
            morning_at: Time::constant(7, 0, 0, 0),
        }
    }
}

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// A trial became the champion.
    Keep,
    /// A run ended, by a rule or a person.
    Stop,
    /// No trial has finished for far longer than one takes.
    Stuck,
    /// A run ended that could not go on.
    Error,
    /// The clock ended a run, or a day of it is over.
    Morning,
    /// Somebody tries whether messages arrive; always told.
    #[serde(skip_deserializing)]
    Test,
}

impl Occasion {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Stop => "stop",
            Self::Stuck => "stuck",
            Self::Error => "error",
            Self::Morning => "morning",
            Self::Test => "test",
        }
    }
}

/// The address of a webhook. Whoever has it can write there, so that nothing ever shows more than its host.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Address(String);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host().unwrap_or_default())
    }
}

impl Address {
    /// The address in `text`; the error never holds it.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let address = Self(text.trim().to_owned());
        address.host().map(|_| address).ok_or("is no http:// or https:// address")
    }

    /// All of it, for the request alone.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    /// Where to connect to.
    pub(crate) fn endpoint(&self) -> Option<(String, u16)> {
        let uri: ureq::http::Uri = self.0.parse().ok()?;
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        Some((uri.host()?.trim_matches(['[', ']']).to_owned(), uri.port_u16().unwrap_or(usual)))
    }

    /// Host and port, where it is an address.
    pub fn host(&self) -> Option<String> {
        let uri: ureq::http::Uri = self.0.parse().ok()?;
        let web = matches!(uri.scheme_str(), Some("http" | "https"));
        // an authority may hold a password
        let authority = uri.authority().filter(|_| web)?.as_str();
        authority.rsplit('@').next().filter(|host| !host.is_empty()).map(str::to_owned)
    }
}

impl NotifySection {
    /// Says what is wrong, without showing an address.
    pub(super) fn check(&self) -> Result<(), String> {
        let ways = [self.webhook.is_some(), self.webhook_file.is_some(), self.webhook_variable.is_some()];
        if ways.iter().filter(|way| **way).count() > 1 {
            return Err("has several of webhook, webhook_file and webhook_variable; keep one".to_owned());
        }
        if let Some(webhook) = &self.webhook {
            Address::parse(&webhook.0).map_err(|problem| format!("webhook {problem}"))?;
        }
        if self.webhook_file.as_deref().is_some_and(|file| file.trim().is_empty()) {
            return Err("webhook_file is empty; it is the path of a file".to_owned());
        }
        let named =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !self.webhook_variable.as_deref().is_none_or(named) {
            // not repeated: it may be the address itself
            return Err("webhook_variable is no name of an environment variable".to_owned());
        }
        let program = self.command.as_ref().map(|command| command.first().map_or("", String::as_str));
        if program == Some("") {
            return Err("command is empty; write it as a list, program first".to_owned());
        }
        Ok(())
    }

    /// Whether anybody is told of anything.
    pub fn is_used(&self) -> bool {
        let somebody = self.webhook.is_some()
            || self.webhook_file.is_some()
            || self.webhook_variable.is_some()
            || self.command.is_some();
        somebody && !self.on.is_empty()
    }

    /// The webhook, read from where it stands. Exit code 4 names the file or variable where it is not there.
    pub fn address(&self) -> Result<Option<Address>> {
        let lacks = |place: String, problem: String| {
            Error::environment(format!("[notify] {place} {problem}"))
                .at(FILE)
                .hint("put the webhook's address there, or take it out of [notify]")
        };
        if let Some(file) = &self.webhook_file {
            let place = format!("webhook_file {file}");
            let text = private(&at_home(file)).map_err(|problem| lacks(place.clone(), problem))?;
            return Address::parse(&text).map(Some).map_err(|problem| lacks(place, problem.to_owned()));
        }
        if let Some(name) = &self.webhook_variable {
            let place = format!("webhook_variable {name}");
            let text = std::env::var(name).map_err(|_| lacks(place.clone(), "is not set".to_owned()))?;
            return Address::parse(&text).map(Some).map_err(|problem| lacks(place, problem.to_owned()));
        }
        Ok(self.webhook.clone())
    }

    /// Makes the address known to everything that writes, so that no log, record or prompt ever holds it.
    pub(super) fn keep_secret(&self) {
        let name = self.webhook_file.as_ref().or(self.webhook_variable.as_ref());
        // one that cannot be read is the affair of whoever needs it
        if let Ok(Some(address)) = self.address() {
            learn(name.map_or("webhook", String::as_str), address.secret());
        }
    }

    /// Refuses an address that stands in the committed `ratchet.toml`: a trial reads every committed file. Exit code 2.
    pub(crate) fn check_committed(&self, committed: &str) -> Result<()> {
        let Some(webhook) = &self.webhook else { return Ok(()) };
        match committed.contains(&webhook.0) {
            true => {
                Err(Error::usage("the webhook's address is committed, so that every trial could read it")
                    .at(FILE)
                    .hint("put it into a file of its own, name that with webhook_file, and commit"))
            }
            false => Ok(()),
        }
    }
}

/// A small file that others cannot read.
fn private(file: &Path) -> Result<String, String> {
    let about = fs::metadata(file).map_err(|error| format!("cannot be read: {error}"))?;
    if about.permissions().mode() & 0o077 != 0 {
        return Err(format!("can be read by others; run \"chmod 600 {}\"", file.display()));
    }
    plain_file::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))
}

fn time_of_day<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    clock(&String::deserialize(from)?).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> NotifySection {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn an_address_is_taken_from_one_place_and_shown_nowhere() {
        let secret = "https://user:pw@hooks.example.com:8443/services/T000/B000/verysecret";
        let of_file = section(&format!("webhook = \"{secret}\""));
        assert_eq!(of_file.check(), Ok(()));
        assert_eq!(of_file.address().unwrap().unwrap().host().unwrap(), "hooks.example.com:8443");
        assert!(!format!("{of_file:?}").contains("verysecret"));
        for wrong in
            ["ftp://verysecret", "verysecret", "http://", "https:///verysecret", "file:///verysecret"]
        {
            let problem = section(&format!("webhook = \"{wrong}\"")).check().unwrap_err();
            assert!(problem.contains("webhook") && !problem.contains("verysecret"), "{problem}");
        }
        let twice = section("webhook = \"http://a/b\"\nwebhook_file = \"x\"");
        assert!(twice.check().unwrap_err().contains("keep one"));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_as_a_keys_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hook");
        let with = section(&format!("webhook_file = {:?}", file.to_str().unwrap()));
        assert_eq!(with.address().unwrap_err().kind.exit_code(), 4);
        fs::write(&file, "http://127.0.0.1:1/hook-of-a-file\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(with.address().unwrap_err().to_string().contains("chmod 600"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(with.address().unwrap().unwrap().secret(), "http://127.0.0.1:1/hook-of-a-file");
        with.keep_secret();
        let shown = crate::runlog::plain("posted to http://127.0.0.1:1/hook-of-a-file", 200);
        assert!(!shown.contains("hook-of-a-file"), "{shown}");
        fs::write(&file, "not an address: secret").unwrap();
        let error = with.address().unwrap_err().to_string();
        assert!(error.contains("no http://") && !error.contains("not an address"), "{error}");
    }

    #[test]
    fn a_committed_address_is_refused() {
        let committed = "[notify]\nwebhook = \"http://h/p\"\n";
        let refused = section("webhook = \"http://h/p\"").check_committed(committed);
        assert_eq!(refused.unwrap_err().kind.exit_code(), 2);
        assert!(section("webhook = \"http://h/other\"").check_committed(committed).is_ok());
        assert!(section("webhook_file = \"h\"").check_committed(committed).is_ok());
    }

    #[test]
    fn a_time_is_a_time_of_day_and_keeps_are_told_only_to_those_who_ask() {
        let usual = section("");
        assert!(!usual.is_used() && !usual.on.contains(&Occasion::Keep));
        assert_eq!(section("morning_at = \"06:30\"").morning_at, Time::constant(6, 30, 0, 0));
        assert!(toml::from_str::<NotifySection>("morning_at = \"25:00\"").is_err());
        assert!(toml::from_str::<NotifySection>("on = [\"test\"]").is_err());
    }
}
