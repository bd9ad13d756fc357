//! What is under way: the trial, its phases, how far it is, its figures.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::{LineGauge, Paragraph, Wrap},
};

use crate::{
    header::gpu_spans,
    scene::{Now, Scene, Standing},
    theme::Theme,
    words::{gigabytes, many, number, span},
};

/// Lines that it takes where there is room.
pub(crate) const LINES: u16 = 5;

/// The title of the part.
pub(crate) fn title<'a>(scene: &'a Scene, theme: Theme) -> Line<'a> {
    let Some(now) = &scene.now else { return Line::from(Span::styled("now", theme.strong())) };
    let title = if now.title.is_empty() { "between trials" } else { &now.title };
    let mut spans = vec![Span::styled(title, theme.strong())];
    if !now.proposer.is_empty() {
        spans.push(Span::raw(format!(" by {}", now.proposer)));
    }
    Line::from(spans)
}

/// Description, phases, gauge, figures, GPU; what does not fit is left out from below.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, scene: &Scene, theme: Theme) {
    let Some(now) = &scene.now else {
        let text = match scene.standing {
            Standing::NoTag => "no tag yet: `ratchet run` begins one, and this view follows it",
            Standing::Over => "nobody is at work: `ratchet run` goes on",
            _ => "",
        };
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    };
    // a wide view has the room for a second line of what is tried
    let tall = area.height > LINES;
    let text = if now.description.is_empty() { &now.detail } else { &now.description };
    let description = Paragraph::new(text.as_str());
    let lines = if tall { 2 } else { 1 };
    let mut rest = area;
    frame.render_widget(
        if tall { description.wrap(Wrap { trim: true }) } else { description },
        take(&mut rest, lines),
    );
    frame.render_widget(phases(now, theme), take(&mut rest, 1));
    gauge(frame, take(&mut rest, 1), now, theme);
    frame.render_widget(figures(now, theme), take(&mut rest, 1));
    if let Some(gpu) = &scene.gpu {
        frame.render_widget(Line::from(gpu_spans(gpu, theme)), take(&mut rest, 1));
    }
}

/// Takes lines from the top.
fn take(area: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    let taken = Rect { height: lines, ..*area };
    (area.y, area.height) = (area.y + lines, area.height - lines);
    taken
}

fn phases<'a>(now: &'a Now, theme: Theme) -> Line<'a> {
    let mut spans = Vec::new();
    for (phase, seconds) in &now.done {
        spans.push(Span::styled(format!("{phase} {}  ", span(*seconds)), theme.dim()));
    }
    spans.push(Span::styled(format!("▶ {}", now.doing), theme.live()));
    let detail = if now.description.is_empty() { "" } else { &now.detail };
    if !detail.is_empty() {
        spans.push(Span::raw(format!(" {detail}")));
    }
    spans.push(Span::raw("  "));
    spans.extend(now.to_come.iter().map(|phase| Span::styled(format!("{phase}  "), theme.dim())));
    if let Some(left) = now.left_s {
        spans.push(Span::raw(format!("trial over in {}", span(left))));
    }
    Line::from(spans)
}

/// How far the phase is; without an end in sight, how long it has taken.
fn gauge(frame: &mut Frame<'_>, area: Rect, now: &Now, theme: Theme) {
    if area.is_empty() {
        return;
    }
    let Some(about) = now.about_s.filter(|about| *about > 0.0) else {
        let text = format!("{} so far  {}", span(now.spent_s), now.line);
        return frame.render_widget(Line::from(text), area);
    };
    let share = (now.spent_s / about).clamp(0.0, 1.0);
    let left = about - now.spent_s;
    let rest = if left >= 0.0 { format!("{} left", span(left)) } else { "longer than usual".to_owned() };
    let gauge = LineGauge::default()
        .ratio(if share.is_finite() { share } else { 0.0 })
        .label(format!("{:3.0} %  {} of {}, {rest}", 100.0 * share, span(now.spent_s), span(about)))
        .filled_symbol("█")
        .unfilled_symbol("░")
        .filled_style(theme.live())
        .unfilled_style(theme.dim());
    frame.render_widget(gauge, area);
}

fn figures<'a>(now: &'a Now, theme: Theme) -> Line<'a> {
    let mut spans = Vec::new();
    let mut figure = |name: &'static str, text: String| {
        spans.push(Span::styled(format!("{name} "), theme.dim()));
        spans.push(Span::raw(format!("{text}  ")));
    };
    if let Some(loss) = now.loss {
        let against = now
            .champion_loss
            .map_or(String::new(), |champion| format!(" ({:+.3} to champion)", loss - champion));
        figure("loss", number(Some(loss), 3) + &against);
    }
    if let Some(tokens) = now.tokens_s {
        figure("tokens/s", many(tokens));
    }
    if let Some(steps) = now.steps {
        figure("step", steps.to_string());
    }
    if let Some(bytes) = now.memory_bytes {
        figure("memory", gigabytes(bytes));
    }
    if now.about_s.is_some() && !now.line.is_empty() {
        spans.push(Span::styled(now.line.as_str(), theme.dim()));
    }
    Line::from(spans)
}
