//! The lines above and below: who, where, how far; the budget; what keys do.

use ratatui::{
    Frame,
    layout::Rect,
    style::Style,
    text::{Line, Span},
    widgets::Paragraph,
};

use crate::{
    keys::{Mode, Ui},
    scene::{Gpu, Scene, Standing},
    theme::Theme,
    words::{gigabytes, number, signed},
};

/// The tag, and whether somebody is at work, on one line where they fit; the best and its gain.
pub(crate) fn header<'a>(scene: &'a Scene, width: u16, theme: Theme) -> Vec<Line<'a>> {
    let mut left = vec![Span::styled(&scene.task, theme.strong())];
    left.extend(scene.tag.iter().flat_map(|tag| [Span::raw("  tag "), Span::styled(tag, theme.strong())]));
    if !scene.place.is_empty() {
        left.push(Span::styled(format!("  {}", scene.place), theme.dim()));
    }
    let (word, style) = match scene.standing {
        Standing::NoTag => ("no tag yet", theme.dim()),
        Standing::Running => ("running", theme.live()),
        Standing::Paused => ("paused", theme.notice()),
        Standing::Busy => ("at work", theme.live()),
        Standing::Over => ("not running", theme.strong()),
    };
    let mut right = vec![Span::styled(word, style)];
    if !scene.why.is_empty() {
        right.push(Span::raw(format!(" {}", scene.why)));
    }
    right.push(Span::styled(format!("  {}", scene.clock), theme.dim()));
    let length = |spans: &[Span<'_>]| spans.iter().map(Span::width).sum::<usize>();
    match usize::from(width).checked_sub(length(&left) + length(&right)) {
        Some(gap @ 2..) => {
            left.push(Span::raw(" ".repeat(gap)));
            left.append(&mut right);
            vec![Line::from(left), standing_of_trials(scene, theme)]
        }
        _ => vec![Line::from(left), Line::from(right), standing_of_trials(scene, theme)],
    }
}

/// Best, baseline, gain and counts.
fn standing_of_trials<'a>(scene: &'a Scene, theme: Theme) -> Line<'a> {
    let mut spans = Vec::new();
    match &scene.best {
        None => spans.push(Span::styled("no baseline yet", theme.dim())),
        Some(best) => {
            spans.push(Span::styled("best ", theme.dim()));
            spans.push(Span::styled(number(best.value, 6), theme.good()));
            spans.push(Span::raw(format!(" trial {}  ", best.trial)));
            if let Some(baseline) = scene.baseline.as_ref().filter(|baseline| baseline.trial != best.trial) {
                spans.push(Span::styled(signed(scene.gain), theme.good()));
                spans.push(Span::raw(format!(" over {}", number(baseline.value, 6))));
            }
        }
    }
    let counts = scene.counts;
    spans.push(Span::raw(format!("  {} keep {} discard ", counts.keeps, counts.discards)));
    let crashes = if counts.crashes > 0 { theme.bad() } else { Style::new() };
    spans.push(Span::styled(format!("{} crash", counts.crashes), crashes));
    Line::from(spans)
}

/// What is used up, and when the run ends: on one line.
pub(crate) fn budget_line<'a>(scene: &'a Scene, theme: Theme) -> Line<'a> {
    let mut spans = Vec::new();
    for limit in &scene.limits {
        spans.push(Span::styled(format!("{} ", limit.name), theme.dim()));
        spans.push(Span::raw(format!("{}  ", limit.text)));
    }
    if let Some(stop) = &scene.stop {
        spans.push(Span::styled("stops ", theme.dim()));
        spans.push(Span::raw(format!("{stop}  ")));
    }
    if scene.hints > 0 {
        spans.push(Span::styled("hints ", theme.dim()));
        spans.push(Span::raw(scene.hints.to_string()));
    }
    Line::from(spans)
}

/// The same, a line each, with how much of each is used.
pub(crate) fn budget_lines<'a>(scene: &'a Scene, theme: Theme) -> Vec<Line<'a>> {
    const BAR: usize = 24;
    let mut lines: Vec<Line<'a>> = Vec::new();
    let mut line = |name: &str, text: &str, share: Option<f64>| {
        let mut spans =
            vec![Span::styled(format!("{name:10} "), theme.dim()), Span::raw(format!("{text:30} "))];
        if let Some(share) = share {
            let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
            spans.push(Span::styled("█".repeat(full), theme.live()));
            spans.push(Span::styled("░".repeat(BAR - full), theme.dim()));
        }
        lines.push(Line::from(spans));
    };
    for limit in &scene.limits {
        line(&limit.name, &limit.text, limit.share);
    }
    if let Some(stop) = &scene.stop {
        line("stops", stop, None);
    }
    if scene.hints > 0 {
        line("hints", &format!("{} waiting", scene.hints), None);
    }
    lines
}

/// A GPU's figures.
pub(crate) fn gpu_spans(gpu: &Gpu, theme: Theme) -> Vec<Span<'static>> {
    let mut text = String::new();
    if let Some(busy) = gpu.busy_percent {
        text += &format!("{busy} %  ");
    }
    if let Some((used, all)) = gpu.memory_bytes {
        text += &format!("{} of {}  ", gigabytes(used), gigabytes(all));
    }
    if let Some(celsius) = gpu.celsius {
        text += &format!("{celsius} °C  ");
    }
    if let Some((watts, limit)) = gpu.watts {
        text += &limit.map_or(format!("{watts} W  "), |limit| format!("{watts} of {limit} W  "));
    }
    vec![Span::styled("GPU ", theme.dim()), Span::raw(text)]
}

/// The last line: a question, an input, what was just done, else the keys.
pub(crate) fn footer(frame: &mut Frame<'_>, area: Rect, scene: &Scene, ui: &Ui, theme: Theme) {
    let line = match ui.mode() {
        Mode::Hint(text) => {
            let head = "hint: ";
            // the end of a long one stays in sight
            let room = usize::from(area.width).saturating_sub(head.len() + 1);
            let skip = text.chars().count().saturating_sub(room);
            let shown: String = text.chars().skip(skip).collect();
            Line::from(vec![
                Span::styled(head, theme.notice()),
                Span::raw(shown),
                Span::styled(" ", theme.key()),
                Span::styled("  Enter queues it, Esc leaves it", theme.dim()),
            ])
        }
        Mode::AskStop => Line::from(Span::styled(
            "Stop after this trial? y ends the run then, any other key leaves it",
            theme.notice(),
        )),
        Mode::Look | Mode::Help => match ui.said() {
            Some(said) => Line::from(Span::styled(said.to_owned(), theme.notice())),
            None => keys(scene, theme),
        },
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn keys(scene: &Scene, theme: Theme) -> Line<'static> {
    let pause = if scene.pauses() { "resume" } else { "pause" };
    let keys: &[(&str, &str)] = match scene.standing {
        Standing::Running | Standing::Paused => {
            &[("p", pause), ("s", "stop"), ("h", "hint"), ("↑↓", "scroll"), ("?", "help"), ("q", "quit")]
        }
        Standing::NoTag => &[("?", "help"), ("q", "quit")],
        Standing::Busy | Standing::Over => &[("h", "hint"), ("↑↓", "scroll"), ("?", "help"), ("q", "quit")],
    };
    let spans = keys.iter().flat_map(|(key, what)| {
        [Span::styled(format!(" {key} "), theme.key()), Span::raw(format!(" {what}  "))]
    });
    Line::from(spans.collect::<Vec<_>>())
}
