//! `ratchet watch`: the terminal of the live view. It is given back as it was, however the view ends.

use std::{
    io::IsTerminal,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ::watch::{Action, Theme, Ui, draw};
use anyhow::Result;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event},
};
use ratchet::{
    lookout::{Lookout, no_terminal},
    state::Tag,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

use crate::tty::end_with_the_terminal;

/// How often it looks.
const EVERY: Duration = Duration::from_millis(500);

/// Draws until a key, a signal or the terminal's end. A run is never touched by that.
pub(crate) fn watch(root: &Path, tag: Option<Tag>) -> Result<ExitCode> {
    let dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    if dumb || !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(no_terminal().into());
    }
    let mut lookout = Lookout::open(root, tag)?;
    let signals = Signals::heed()?;
    end_with_the_terminal()?;
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // also sets a hook that gives the terminal back before a panic is told
    let mut terminal = ratatui::try_init()?;
    let watched = show(&mut terminal, &mut lookout, &signals, Theme::new(colour));
    let restored = ratatui::try_restore();
    watched?;
    restored?;
    Ok(ExitCode::SUCCESS)
}

fn show(
    terminal: &mut DefaultTerminal,
    lookout: &mut Lookout,
    signals: &Signals,
    theme: Theme,
) -> Result<()> {
    let mut ui = Ui::default();
    loop {
        let scene = lookout.look();
        let looked = Instant::now();
        loop {
            terminal.draw(|frame| draw(frame, scene, &mut ui, theme))?;
            // a signal ends the wait as well
            let wait = EVERY.saturating_sub(looked.elapsed());
            if wait.is_zero() || signals.end.load(Ordering::Relaxed) {
                break;
            }
            if signals.stop.swap(false, Ordering::Relaxed) {
                suspend(terminal)?;
            }
            if !event::poll(wait)? {
                break;
            }
            let action = match event::read()? {
                Event::Key(key) => ui.key(key, scene),
                _ => None, // of another size it is drawn anew in any case
            };
            match action {
                None => {}
                Some(Action::Quit) => return Ok(()),
                Some(Action::Suspend) => suspend(terminal)?,
                Some(Action::Redraw) => terminal.clear()?,
                Some(action) => {
                    let said = lookout.act(&action);
                    ui.say(said);
                    break;
                }
            }
        }
        if signals.end.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

/// To the background, and back.
fn suspend(terminal: &mut DefaultTerminal) -> Result<()> {
    ratatui::try_restore()?;
    signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
    *terminal = ratatui::try_init()?;
    Ok(terminal.clear()?)
}

/// Flags that signals set.
#[derive(Default)]
struct Signals {
    end: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Signals {
    fn heed() -> Result<Self> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            signal_hook::flag::register(signal, signals.end.clone())?;
        }
        signal_hook::flag::register(SIGTSTP, signals.stop.clone())?;
        Ok(signals)
    }
}
