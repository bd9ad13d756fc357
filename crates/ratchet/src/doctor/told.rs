//! Who is told of a night, and what begins it.

use std::{
    net::{TcpStream, ToSocketAddrs},
    path::Path,
    time::Duration,
};

use super::{Check, fail, pass, warn};
use crate::{
    config::{Address, FILE, NotifySection},
    exec::is_there,
    git::Repo,
    schedule::Installed,
};

const NOTIFY: &str = "notify";
/// For one connection.
const PATIENCE: Duration = Duration::from_secs(3);

/// What of `[notify]` was found; nothing is sent.
pub(super) fn notify(root: &Path, section: &NotifySection) -> Check {
    if !section.is_used() {
        return pass(
            NOTIFY,
            "nobody is told of a night; [notify] in ratchet.toml can name a webhook or a command",
        );
    }
    let program = section.command.as_ref().and_then(|command| command.first());
    if let Some(program) = program.filter(|program| !is_there(root, program)) {
        return warn(
            NOTIFY,
            format!("the command {program} is not installed"),
            "install it, or correct [notify] in ratchet.toml",
        );
    }
    let address = match section.address() {
        Ok(address) => address,
        // a run ends at once for it, with exit code 4
        Err(error) => {
            return fail(NOTIFY, error.what, "put the webhook's address there, only for you to read");
        }
    };
    if let Err(error) = section.check_committed(&committed(root).unwrap_or_default()) {
        return fail(NOTIFY, error.what, error.hint.unwrap_or_default());
    }
    let host = address.as_ref().and_then(Address::host);
    match &host {
        Some(host) if !answers(address.as_ref()) => warn(
            NOTIFY,
            format!("nothing answers at {host}"),
            "look at the address and the network; `ratchet doctor --notify` sends a test message",
        ),
        _ => {
            let whom = [program.cloned(), host].into_iter().flatten().collect::<Vec<_>>().join(" and ");
            pass(NOTIFY, format!("{whom}; `ratchet doctor --notify` sends a test message"))
        }
    }
}

/// `ratchet.toml` as git has it.
fn committed(root: &Path) -> Option<String> {
    let repo = Repo::open(root).ok()?;
    let entry = repo.files(repo.head().ok()?).ok()?.remove(Path::new(FILE))?;
    String::from_utf8(repo.blob(entry).ok()?).ok()
}

/// Whether somebody listens there; behind a proxy that cannot be known.
fn answers(address: Option<&Address>) -> bool {
    let proxies = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    if proxies.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        return true;
    }
    let Some((host, port)) = address.and_then(Address::endpoint) else { return false };
    let mut places = (host.as_str(), port).to_socket_addrs().into_iter().flatten();
    places.any(|place| TcpStream::connect_timeout(&place, PATIENCE).is_ok())
}

pub(super) fn schedule(installed: &[Installed]) -> Check {
    const NAME: &str = "schedule";
    let Some(Installed { window, place, problem }) = installed.first() else {
        return pass(
            NAME,
            "none: a night begins when you start it; `ratchet schedule` can begin it by itself",
        );
    };
    let night = format!("every night from {} to {}: {place}", window.at(), window.until());
    match (problem, installed.len()) {
        (Some(problem), _) => {
            warn(NAME, format!("{night}, but {problem}"), "install it again, or --remove it")
        }
        (None, 1) => pass(NAME, night),
        (None, n) => warn(
            NAME,
            format!("{n} times; the first: {night}"),
            "ratchet schedule --remove, and install it once",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::Health;
    use super::*;
    use crate::schedule::Window;

    fn state(section: &str) -> (Health, String) {
        let check = notify(Path::new("/"), &toml::from_str(section).unwrap());
        (check.state, check.detail)
    }

    #[test]
    fn a_notification_that_would_not_arrive_is_seen_without_sending_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let webhook = format!("webhook = \"http://{}/secret\"", listener.local_addr().unwrap());
        let (health, detail) = state(&webhook);
        assert!(health == Health::Pass && !detail.contains("/secret"), "{detail}");
        drop(listener);
        let (health, detail) = state(&webhook);
        assert!(health == Health::Warn && !detail.contains("/secret"), "{detail}");
        assert_eq!(state("").0, Health::Pass);
        assert_eq!(state("command = [\"no-such-program\"]").0, Health::Warn);
        assert_eq!(state("command = [\"sh\"]").0, Health::Pass);
        assert_eq!(state("webhook_file = \"/no/such/file\"").0, Health::Fail, "a run would end at once");
    }

    #[test]
    fn a_timer_that_does_not_run_and_two_at_once_are_warned_of() {
        let clock = |text| crate::stop::clock(text).unwrap();
        let night = Installed {
            window: Window::new(clock("23:00"), clock("07:00")).unwrap(),
            place: "x.timer".to_owned(),
            problem: None,
        };
        assert_eq!(schedule(&[]).state, Health::Pass);
        assert_eq!(schedule(std::slice::from_ref(&night)).state, Health::Pass);
        let ill = Installed { problem: Some("the timer does not run".to_owned()), ..night.clone() };
        assert_eq!(schedule(&[ill]).state, Health::Warn);
        assert_eq!(schedule(&[night.clone(), night]).state, Health::Warn);
    }
}
