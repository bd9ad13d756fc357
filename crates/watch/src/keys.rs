//! What a key asks for, and what is open on the screen meanwhile.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::scene::{Scene, Standing};

/// The longest hint, characters; the driver's own limit.
const LONGEST_HINT: usize = 2_000;

/// What whoever owns the terminal is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Have the run wait after its trial.
    Pause,
    /// Let it go on.
    Resume,
    /// End it after its trial.
    Stop,
    /// Queue an idea.
    Hint(String),
    /// Leave; the run goes on.
    Quit,
    /// Go to the background, as Ctrl-Z asks for.
    Suspend,
    /// Draw everything anew.
    Redraw,
}

/// What a key means now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Look,
    Help,
    AskStop,
    /// A hint is being written.
    Hint(String),
}

/// What is open, and where the table stands.
#[derive(Clone, Debug, Default)]
pub struct Ui {
    mode: Mode,
    said: Option<String>,
    /// The trial in the table's first row, by its place; `None` follows the latest.
    first: Option<usize>,
    /// Rows that the table showed last.
    pub(crate) page: usize,
}

impl Ui {
    /// Tells the person something, until the next key.
    pub fn say(&mut self, text: impl Into<String>) {
        self.said = Some(text.into());
    }

    pub(crate) fn mode(&self) -> &Mode {
        &self.mode
    }

    pub(crate) fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// The place of the trial in the table's first row, of `trials`.
    pub(crate) fn first(&self, trials: usize) -> usize {
        let last = trials.saturating_sub(1);
        self.first.map_or(last, |first| first.min(last))
    }

    /// What a key asks for.
    pub fn key(&mut self, key: KeyEvent, scene: &Scene) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.said = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Action::Quit),
                KeyCode::Char('z') => Some(Action::Suspend),
                KeyCode::Char('l') => Some(Action::Redraw),
                KeyCode::Char('u') if matches!(self.mode, Mode::Hint(_)) => {
                    self.mode = Mode::Hint(String::new());
                    None
                }
                _ => None,
            };
        }
        match &mut self.mode {
            Mode::Hint(text) => match key.code {
                KeyCode::Enter => {
                    let text = std::mem::take(text);
                    self.mode = Mode::Look;
                    (!text.trim().is_empty()).then_some(Action::Hint(text))
                }
                KeyCode::Esc => {
                    self.mode = Mode::Look;
                    None
                }
                KeyCode::Backspace => {
                    text.pop();
                    None
                }
                KeyCode::Char(c) => {
                    if text.chars().count() < LONGEST_HINT {
                        text.push(c);
                    }
                    None
                }
                _ => None,
            },
            Mode::AskStop => {
                self.mode = Mode::Look;
                matches!(key.code, KeyCode::Char('y' | 'Y')).then_some(Action::Stop)
            }
            Mode::Help => {
                self.mode = Mode::Look;
                None
            }
            Mode::Look => self.look(key.code, scene),
        }
    }

    fn look(&mut self, key: KeyCode, scene: &Scene) -> Option<Action> {
        match key {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char('p' | 's') if !scene.can_be_steered() => self.say(scene.not_steered()),
            KeyCode::Char('p') if scene.pauses() => return Some(Action::Resume),
            KeyCode::Char('p') => return Some(Action::Pause),
            KeyCode::Char('s') => self.mode = Mode::AskStop,
            KeyCode::Char('h') if scene.tag.is_none() => {
                self.say("a hint needs a tag: `ratchet run` begins one")
            }
            KeyCode::Char('h') => self.mode = Mode::Hint(String::new()),
            KeyCode::Up => self.scroll(scene, 1),
            KeyCode::Down => self.scroll(scene, -1),
            KeyCode::PageUp => self.scroll(scene, self.page.max(1) as isize),
            KeyCode::PageDown => self.scroll(scene, -(self.page.max(1) as isize)),
            KeyCode::Home => self.first = None,
            KeyCode::End => self.scroll(scene, isize::MIN / 2),
            _ => self.say("not a key here: ? lists them"),
        }
        None
    }

    /// The newest trial stands first: down goes to older ones.
    fn scroll(&mut self, scene: &Scene, by: isize) {
        let last = scene.trials.len().saturating_sub(1);
        let oldest_first = self.page.saturating_sub(1).min(last); // the page that ends with trial 1
        let to = self.first(scene.trials.len()).saturating_add_signed(by).clamp(oldest_first, last);
        self.first = (to < last).then_some(to);
    }
}

impl Scene {
    pub(crate) fn can_be_steered(&self) -> bool {
        matches!(self.standing, Standing::Running | Standing::Paused)
    }

    fn not_steered(&self) -> &'static str {
        match self.standing {
            Standing::Busy => "this is no `ratchet run`: it cannot be paused or stopped from here",
            _ => "no run is under way: `ratchet run` starts one",
        }
    }

    /// Whether the run waits, or was asked to.
    pub(crate) fn pauses(&self) -> bool {
        self.standing == Standing::Paused || self.pausing
    }
}
