//! The table of trials, the latest first.

use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    text::{Line, Span},
    widgets::{Cell, Row, Table},
};

use crate::{
    keys::Ui,
    scene::{Scene, Status, Trial},
    theme::Theme,
    words::{number, signed, span},
};

/// Columns from which the table has more of them.
const WIDE: u16 = 120;

/// How many, and which part of them is shown.
pub(crate) fn title(scene: &Scene, ui: &Ui, theme: Theme) -> Line<'static> {
    let all = scene.trials.len();
    let mut spans = vec![Span::styled("trials", theme.strong())];
    if all > ui.page && ui.page > 0 {
        let first = ui.first(all);
        let last = (first + 1).saturating_sub(ui.page);
        spans.push(Span::raw(format!("  {} to {} of {all}", first + 1, last + 1)));
    }
    Line::from(spans)
}

/// As many as fit.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, scene: &Scene, ui: &mut Ui, theme: Theme) {
    ui.page = usize::from(area.height.saturating_sub(1));
    if scene.trials.is_empty() {
        return frame.render_widget(Line::from(Span::styled("none yet", theme.dim())), area);
    }
    let wide = area.width >= WIDE;
    let first = ui.first(scene.trials.len());
    let shown = scene.trials[..=first].iter().rev().take(ui.page);
    let rows = shown.map(|trial| row(trial, wide, theme));
    let mut heads = vec!["#", "status", &scene.metric, "delta", "time", "by", "what"];
    let mut widths = [5, 7, 10, 10, 7, 9].map(Constraint::Length).to_vec();
    if wide {
        heads.splice(4..6, ["time", "memory", "ended", "verdict", "by"]);
        widths.splice(4..6, [12, 8, 5, 16, 16].map(Constraint::Length));
    }
    widths.push(Constraint::Min(8));
    let table = Table::new(rows, widths).header(Row::new(heads).style(theme.dim())).column_spacing(1);
    frame.render_widget(table, area);
}

fn row(trial: &Trial, wide: bool, theme: Theme) -> Row<'_> {
    let style = theme.status(trial.status);
    let word = match trial.status {
        Status::Keep => "keep",
        Status::Discard => "discard",
        Status::Crash => "crash",
    };
    let text = |text: String| Cell::from(text);
    let mut cells = vec![
        text(trial.trial.to_string()),
        Cell::from(word).style(style),
        text(number(trial.value, 6)),
        text(signed(trial.delta)),
    ];
    cells.push(text(if wide { span(trial.seconds) } else { short(trial.seconds) }));
    if wide {
        cells.push(text(format!("{:.2} GB", trial.memory_gb)));
        cells.push(Cell::from(trial.ended.as_str()));
        cells.push(Cell::from(trial.outcome.as_str()));
    }
    cells.push(Cell::from(trial.proposer.as_str()));
    cells.push(Cell::from(trial.description.as_str()));
    Row::new(cells)
}

/// `71 s`, `5 min`.
fn short(seconds: f64) -> String {
    if seconds < 1e3 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}
