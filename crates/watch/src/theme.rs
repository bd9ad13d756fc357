//! Colours: the sixteen that every terminal has, as its owner set them; without colour bold, dim and reverse.
//!
//! Yellow, white and black are left out: each cannot be read on some background.

use ratatui::style::{Color, Modifier, Style};

use crate::scene::Status;

/// How things look.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    colour: bool,
}

impl Theme {
    /// With colours, or without.
    pub fn new(colour: bool) -> Self {
        Self { colour }
    }

    fn of(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn good(self) -> Style {
        self.of(Color::Green).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// What is going on.
    pub(crate) fn live(self) -> Style {
        self.of(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// What a person is to notice.
    pub(crate) fn notice(self) -> Style {
        self.of(Color::Magenta).add_modifier(Modifier::BOLD)
    }

    /// A key that may be pressed.
    pub(crate) fn key(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn status(self, status: Status) -> Style {
        match status {
            Status::Keep => self.good(),
            Status::Discard => Style::new(),
            Status::Crash => self.bad(),
        }
    }
}
