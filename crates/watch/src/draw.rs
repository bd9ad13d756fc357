//! Where each part goes, for the room there is.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Margin, Rect},
    text::{Line, Span, Text},
    widgets::{Block, Borders, Clear, Paragraph, Wrap},
};

use crate::{
    chart,
    header::{budget_line, budget_lines, footer, header},
    keys::{Mode, Ui},
    now,
    scene::Scene,
    theme::Theme,
    trials,
};

/// Columns and lines from which two columns are drawn.
const WIDE: [u16; 2] = [120, 36];
/// Lines from which there are charts.
const WITH_CHARTS: u16 = 20;

const HELP: &str = "\
p           pause after this trial, or go on
s           stop after this trial; asks once
h           hint: an idea for the next proposal
↑ ↓         scroll the trials; PgUp and PgDn by pages
Home End    the latest trials, the first ones
Ctrl-L      draw anew
q           leave; the run goes on

A value is the metric of the task on unseen data. delta is
against the champion of that time. The loss is that of
training, at the same share of the budget for both curves.

ratchet show N     one trial whole
ratchet report     the night as a page";

/// Draws a scene; never fails, whatever the size.
pub fn draw(frame: &mut Frame<'_>, scene: &Scene, ui: &mut Ui, theme: Theme) {
    let area = frame.area();
    let top = header(scene, area.width, theme);
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(top.len() as u16), Constraint::Fill(1), Constraint::Length(1)])
            .areas(area);
    frame.render_widget(Text::from(top), head);
    match area.width >= WIDE[0] && area.height >= WIDE[1] {
        true => wide(frame, body, scene, ui, theme),
        false => narrow(frame, body, scene, ui, theme),
    }
    if let Some(trouble) = &scene.trouble {
        let text = Paragraph::new(trouble.as_str()).style(theme.bad()).wrap(Wrap { trim: true });
        let area = Rect { height: body.height.min(3), ..body };
        frame.render_widget(Clear, area);
        frame.render_widget(text, area);
    }
    footer(frame, foot, scene, ui, theme);
    if *ui.mode() == Mode::Help {
        help(frame, area, theme);
    }
}

/// One column: what is under way, charts where there is room, the table, the budget.
fn narrow(frame: &mut Frame<'_>, area: Rect, scene: &Scene, ui: &mut Ui, theme: Theme) {
    let gpu = u16::from(scene.gpu.is_some());
    let charts = match frame.area().height {
        WITH_CHARTS.. => (area.height.saturating_sub(7 + gpu) / 2).max(6),
        _ => 0,
    };
    let [now, charts, table, budget] = Layout::vertical([
        Constraint::Max(if scene.now.is_some() { now::LINES + gpu } else { 2 }),
        Constraint::Max(charts),
        Constraint::Fill(1),
        Constraint::Length(u16::from(area.height > 4)),
    ])
    .areas(area);
    let inner = ruled(frame, now, now::title(scene, theme), theme);
    now::draw(frame, inner, scene, theme);
    if charts.height > 1 {
        let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas(charts);
        loss_part(frame, left, scene, theme);
        values_part(frame, right, scene, theme);
    }
    table_part(frame, table, scene, ui, theme);
    frame.render_widget(budget_line(scene, theme), budget);
}

/// Two columns over a long table.
fn wide(frame: &mut Frame<'_>, area: Rect, scene: &Scene, ui: &mut Ui, theme: Theme) {
    let [upper, table] = Layout::vertical([Constraint::Percentage(60), Constraint::Fill(1)]).areas(area);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(56), Constraint::Fill(1)]).spacing(2).areas(upper);
    let gpu = u16::from(scene.gpu.is_some());
    let [now, loss] =
        Layout::vertical([Constraint::Length(now::LINES + 1 + gpu), Constraint::Fill(1)]).areas(left);
    let inner = ruled(frame, now, now::title(scene, theme), theme);
    now::draw(frame, inner, scene, theme);
    loss_part(frame, loss, scene, theme);
    let budget = budget_lines(scene, theme);
    let [above, values] =
        Layout::vertical([Constraint::Length(budget.len() as u16 + 1), Constraint::Fill(1)]).areas(right);
    let inner = ruled(frame, above, Line::from(Span::styled("budget", theme.strong())), theme);
    frame.render_widget(Text::from(budget), inner);
    values_part(frame, values, scene, theme);
    table_part(frame, table, scene, ui, theme);
}

fn loss_part(frame: &mut Frame<'_>, area: Rect, scene: &Scene, theme: Theme) {
    let inner = ruled(frame, area, chart::loss_title(scene, theme), theme);
    chart::loss(frame, inner, scene, theme);
}

fn values_part(frame: &mut Frame<'_>, area: Rect, scene: &Scene, theme: Theme) {
    let inner = ruled(frame, area, chart::values_title(scene, theme), theme);
    chart::values(frame, inner, scene, theme);
}

fn table_part(frame: &mut Frame<'_>, area: Rect, scene: &Scene, ui: &mut Ui, theme: Theme) {
    ui.page = usize::from(area.height.saturating_sub(2));
    let inner = ruled(frame, area, trials::title(scene, ui, theme), theme);
    trials::draw(frame, inner, scene, ui, theme);
}

/// A line with a title; what is below it is returned.
fn ruled(frame: &mut Frame<'_>, area: Rect, mut title: Line<'_>, theme: Theme) -> Rect {
    title.spans.push(Span::raw(" "));
    let rule = Block::new().borders(Borders::TOP).border_style(theme.dim());
    let inner = rule.inner(area);
    frame.render_widget(rule, area);
    // not as the block's title: that would take the rule's style
    let width = area.width.min(title.width() as u16);
    let over = Rect { width, height: area.height.min(1), ..area };
    frame.render_widget(Clear, over);
    frame.render_widget(title, over);
    inner
}

fn help(frame: &mut Frame<'_>, area: Rect, theme: Theme) {
    let (width, height) = (64, HELP.lines().count() as u16 + 2);
    let area = area.inner(Margin {
        horizontal: area.width.saturating_sub(width) / 2,
        vertical: area.height.saturating_sub(height) / 2,
    });
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(Span::styled(" keys: any one closes this ", theme.strong()));
    frame.render_widget(Paragraph::new(HELP).block(block), area);
}
