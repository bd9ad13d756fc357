//! A terminal that hands over each key as it is pressed: what becomes of a program when it goes, or is told to end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use signal_hook::consts::{SIGHUP, SIGTERM};

/// How often it looks whether it was told to end.
const GLANCE: Duration = Duration::from_millis(250);

/// Ends the program when the terminal is gone, a window that was closed for example: there is nothing left to give
/// back, and who reads from it then reads nothing for ever.
pub(crate) fn end_with_the_terminal() -> Result<()> {
    attend(None, || {})
}

/// The same, and on TERM, which no waiting for a key would notice; `restore` gives the terminal back before.
pub(crate) fn end_with_the_terminal_or_term(restore: fn()) -> Result<()> {
    let term = Arc::<AtomicBool>::default();
    signal_hook::flag::register(SIGTERM, term.clone())?;
    attend(Some(term), restore)
}

fn attend(term: Option<Arc<AtomicBool>>, restore: fn()) -> Result<()> {
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    let glance = term.is_some().then(|| Timespec::try_from(GLANCE)).transpose()?;
    let wait = move || {
        let stdin = std::io::stdin();
        loop {
            let mut terminal = [PollFd::new(&stdin, PollFlags::empty())]; // these are told unasked
            let polled = poll(&mut terminal, glance.as_ref());
            if term.as_ref().is_some_and(|term| term.load(Ordering::Relaxed)) {
                restore();
                std::process::exit(128 + SIGTERM);
            }
            match polled {
                Err(Errno::INTR) => {}
                Ok(_) if !terminal[0].revents().intersects(gone) => {}
                _ => std::process::exit(128 + SIGHUP),
            }
        }
    };
    std::thread::Builder::new().spawn(wait)?;
    Ok(())
}
