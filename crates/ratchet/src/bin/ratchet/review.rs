//! The human step at a terminal: a walk past the keeps that are open, one key a decision; and without one.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Result;
use ratatui::crossterm::{
    event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, read},
    terminal::{disable_raw_mode, enable_raw_mode, size},
};
use ratchet::{
    beginning::New,
    error::{Error, Kind},
    review::{Act, Board, Decision, Walk},
    runlog::plain,
    session::Asked,
    show::View,
    state::Tag,
};
use serde_json::json;

use crate::{
    args::{AcceptArgs, ReviewArgs},
    open, print,
    tty::end_with_the_terminal_or_term,
};

/// Lists, shows or decides what the arguments name; without any, walks the keeps on a terminal.
pub(crate) fn review(root: &Path, args: ReviewArgs) -> Result<ExitCode> {
    let decision = args.decision();
    let ReviewArgs { trials, note, json, tag, .. } = args;
    let view = View::open(root, tag.tag)?;
    if let Some(decision) = decision {
        return print(&view.decide(&trials, decision, note.as_deref())?);
    }
    let mut board = view.board()?;
    let keeps = trials.iter().map(|trial| whole(&view, &board, *trial)).collect::<Result<Vec<_>>>()?;
    if json {
        board.keeps.retain(|item| trials.is_empty() || trials.contains(&item.trial));
        return print(&(serde_json::to_string(&board)? + "\n"));
    }
    if !keeps.is_empty() {
        let texts = keeps.iter().map(|lines| lines.join("\n") + "\n");
        return print(&texts.collect::<Vec<_>>().join("\n"));
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let open = board.keeps.iter().filter(|item| item.is_open()).map(|item| item.trial).collect::<Vec<_>>();
    if !terminal || open.is_empty() {
        return print(&board.text());
    }
    walk(&view, Walk::new(open))
}

/// All that there is to say of a keep, a line each: explanation, evidence, diff.
fn whole(view: &View, board: &Board, trial: u64) -> Result<Vec<String>> {
    let mut lines: Vec<String> = view.explain(board, trial)?.lines().map(str::to_owned).collect();
    let item = board.keeps.iter().find(|item| item.trial == trial);
    if let Some(item) = item {
        lines.push(String::new());
        lines.extend(view.own_diff(item)?);
    }
    Ok(lines)
}

fn walk(view: &View, mut walk: Walk) -> Result<ExitCode> {
    let mut terminal = Terminal::enter()?;
    let (mut note, mut decided) = (None, 0);
    while let Some(trial) = walk.current() {
        let lines = whole(view, &view.board()?, trial)?; // what was decided meanwhile is part of it
        let (at, of) = walk.place();
        match terminal.ask(&format!("trial {trial}, {at} of {of}"), &lines)? {
            Act::Decide(decision) => match view.decide(&[trial], decision, note.as_deref()) {
                Ok(said) => {
                    terminal.line(&said, None)?;
                    (note, decided) = (None, decided + 1);
                    walk.next();
                }
                Err(error) => terminal.line(&format!("ratchet: {error}"), None)?,
            },
            Act::Note => note = terminal.write_note()?.or(note),
            Act::Back => walk.back(),
            Act::Quit => break,
            Act::More | Act::Help => {}
        }
    }
    drop(terminal);
    let open = view.board()?.keeps.iter().filter(|item| item.is_open()).count();
    print(&format!("{decided} decided, {open} open; `ratchet accept` takes what is accepted to a branch\n"))
}

/// The terminal, giving each key as it is pressed until this is dropped.
struct Terminal {
    colour: bool,
}

impl Terminal {
    fn enter() -> Result<Self> {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        end_with_the_terminal_or_term(|| drop(disable_raw_mode()))?;
        enable_raw_mode()?;
        Ok(Self { colour })
    }

    /// Shows lines page by page until a key decides what becomes of them.
    fn ask(&mut self, head: &str, lines: &[String]) -> Result<Act> {
        self.line("", None)?;
        let mut rest = self.page(lines)?;
        loop {
            let more = if rest.is_empty() { "" } else { "space more, " };
            self.prompt(&format!("{head}: {more}a accept, r reject, d defer, q quit, ? help"))?;
            let act = match key()? {
                None => Some(Act::Quit),
                Some(KeyCode::Enter | KeyCode::Down | KeyCode::PageDown) => Some(Act::More),
                Some(KeyCode::Char(key)) => Act::of(key),
                Some(_) => None,
            };
            self.prompt("")?;
            match act {
                Some(Act::More) => rest = self.page(rest)?,
                Some(Act::Help) => self.line(Act::HELP, None)?,
                Some(act) => return Ok(act),
                None => {}
            }
        }
    }

    /// Shows as many lines as the terminal is high, and gives back the rest.
    fn page<'a>(&mut self, lines: &'a [String]) -> Result<&'a [String]> {
        let (columns, rows) = extent();
        let mut left = rows - 1;
        for (at, line) in lines.iter().enumerate() {
            let high = line.chars().count().div_ceil(columns).max(1);
            if high > left && at > 0 {
                return Ok(&lines[at..]);
            }
            left = left.saturating_sub(high);
            self.line(line, colour_of(line))?;
        }
        Ok(&[])
    }

    /// Whole lines, in a colour.
    fn line(&self, text: &str, colour: Option<&str>) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for line in text.split_terminator('\n').chain(text.is_empty().then_some("")) {
            match colour.filter(|_| self.colour) {
                Some(colour) => write!(out, "\u{1b}[{colour}m{line}\u{1b}[0m\r\n")?,
                None => write!(out, "{line}\r\n")?,
            }
        }
        Ok(out.flush()?)
    }

    /// The last line, over what stood there.
    fn prompt(&self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let text = plain(text, extent().0.saturating_sub(2));
        match self.colour && !text.is_empty() {
            true => write!(out, "\r\u{1b}[K\u{1b}[7m{text}\u{1b}[0m")?,
            false => write!(out, "\r\u{1b}[K{text}")?,
        }
        Ok(out.flush()?)
    }

    /// A line of the person's; `None` when it is given up, or empty.
    fn write_note(&self) -> Result<Option<String>> {
        let mut note = String::new();
        loop {
            let shown: String = note.chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
            self.prompt(&format!("note: {shown}"))?;
            match key()? {
                None | Some(KeyCode::Esc) => note.clear(),
                Some(KeyCode::Char(c)) => {
                    note.push(c);
                    continue;
                }
                Some(KeyCode::Backspace) => {
                    note.pop();
                    continue;
                }
                Some(KeyCode::Enter) => {}
                Some(_) => continue,
            }
            self.prompt("")?;
            return Ok((!note.trim().is_empty()).then_some(note));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = disable_raw_mode(); // the terminal may be gone
    }
}

/// Columns and rows of the terminal; those of a usual one where it does not say.
fn extent() -> (usize, usize) {
    let (columns, rows) = size().ok().filter(|(columns, rows)| *columns > 0 && *rows > 2).unwrap_or((80, 24));
    (columns.into(), rows.into())
}

/// The next key; `None` for Ctrl-C, Ctrl-D, and a terminal that is gone.
fn key() -> Result<Option<KeyCode>> {
    loop {
        let Ok(event) = read() else { return Ok(None) };
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { continue };
        let control = modifiers.contains(KeyModifiers::CONTROL);
        return Ok((!control || !matches!(code, KeyCode::Char('c' | 'd'))).then_some(code));
    }
}

/// As git colours a diff.
fn colour_of(line: &str) -> Option<&'static str> {
    const HEADS: [&str; 5] = ["diff --git ", "index ", "--- ", "+++ ", "new file mode "];
    match line.chars().next()? {
        _ if HEADS.iter().any(|head| line.starts_with(head)) => Some("1"),
        '+' => Some("32"),
        '-' => Some("31"),
        '@' => Some("36"),
        _ => None,
    }
}

/// Makes a branch of what is accepted, and says whether its gain is confirmed: exit code 1 where it is not.
pub(crate) fn accept(root: &Path, args: AcceptArgs) -> Result<ExitCode> {
    let AcceptArgs { branch, runs, tag, json } = args;
    match take(root, branch.as_deref(), runs, tag.tag, json) {
        Err(error)
            if json && error.downcast_ref::<Error>().is_some_and(|error| error.kind == Kind::Refused) =>
        {
            print(&format!(
                "{}\n",
                json!({ "branch": null, "status": "refused", "reason": error.to_string() })
            ))?;
            Err(error)
        }
        done => done,
    }
}

fn take(root: &Path, branch: Option<&str>, runs: u32, tag: Option<Tag>, json: bool) -> Result<ExitCode> {
    let (mut session, mut screen) = open(root, &Asked { tag, ..Asked::default() }, New::Refused)?;
    let outcome = session.accept(branch, runs, &mut screen);
    screen.clear();
    let Some(outcome) = outcome? else {
        let stopped = "stopped by a signal: no branch was made; runs that have ended are kept, and the same command goes on";
        return Err(Error::internal(stopped).into());
    };
    print(&if json { serde_json::to_string(&outcome)? + "\n" } else { outcome.text() })?;
    let code = if outcome.confirmation.confirmed { 0 } else { Kind::Internal.exit_code() };
    Ok(ExitCode::from(code))
}

impl ReviewArgs {
    fn decision(&self) -> Option<Decision> {
        match (self.accept, self.reject, self.defer) {
            (true, _, _) => Some(Decision::Accepted),
            (_, true, _) => Some(Decision::Rejected),
            (_, _, true) => Some(Decision::Deferred),
            _ => None,
        }
    }
}
