//! The two charts: loss over the budget, and values over the trials.

use ratatui::{
    Frame,
    layout::Rect,
    style::Style,
    symbols::Marker,
    text::{Line, Span},
    widgets::{Axis, Chart, Dataset, GraphType},
};

use crate::{
    scene::{Scene, Status},
    theme::Theme,
};

/// Before this share of the budget a loss falls so fast that it would flatten all that follows.
const STEEP: f64 = 0.15;
/// Lines below which a chart has no numbers at its lower edge.
const TALL: u16 = 10;

/// What the loss chart shows, for its title.
pub(crate) fn loss_title(scene: &Scene, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::styled("loss over the budget", theme.strong())];
    if !curve(scene).is_empty() {
        spans.extend([Span::raw("  "), Span::styled("⣿", theme.live()), Span::raw(" now")]);
    }
    if !scene.champion_curve.is_empty() {
        spans.push(Span::raw("  • champion"));
    }
    Line::from(spans)
}

fn curve(scene: &Scene) -> &[(f64, f64)] {
    scene.now.as_ref().map_or(&[], |now| &now.curve)
}

/// The trial's loss curve over the champion's.
pub(crate) fn loss(frame: &mut Frame<'_>, area: Rect, scene: &Scene, theme: Theme) {
    let (curve, champion) = (curve(scene), &scene.champion_curve);
    let all = || curve.iter().chain(champion);
    let late: Vec<f64> = all().filter(|point| point.0 >= STEEP).map(|point| point.1).collect();
    let mut shown = if late.is_empty() { all().map(|point| point.1).collect() } else { late };
    // where the trial stands now is always in sight
    shown.extend(curve.last().map(|point| point.1));
    let Some([low, high]) = range(&shown) else {
        return empty(frame, area, "no loss curve yet", theme);
    };
    let percent = |points: &[(f64, f64)]| points.iter().map(|(x, y)| (100.0 * x, *y)).collect::<Vec<_>>();
    let (curve, champion) = (percent(curve), percent(champion));
    let datasets = vec![
        Dataset::default().data(&champion).marker(Marker::Dot).graph_type(GraphType::Scatter),
        Dataset::default()
            .data(&curve)
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(theme.live()),
    ];
    let x = ["0 %", "50 %", "100 %"].map(str::to_owned);
    draw(frame, area, datasets, [0.0, 100.0], [low, high], &x, 3);
}

/// What the chart of values shows, for its title.
pub(crate) fn values_title<'a>(scene: &'a Scene, theme: Theme) -> Line<'a> {
    Line::from(vec![
        Span::styled(&scene.metric, theme.strong()),
        Span::styled(" over trials", theme.strong()),
        Span::styled("  ●", theme.good()),
        Span::raw(" keep  ○ discard  "),
        Span::styled("x", theme.bad()),
        Span::raw(" crash"),
    ])
}

/// Every trial's value, and the champion's as it came down.
pub(crate) fn values(frame: &mut Frame<'_>, area: Rect, scene: &Scene, theme: Theme) {
    let mut scored: Vec<f64> = scene.trials.iter().filter_map(|trial| trial.value).collect();
    scored.sort_by(f64::total_cmp);
    if !scene.lower_is_better {
        scored.reverse();
    }
    // the worst fifth, if it is worse than the baseline, would flatten what matters
    let most = scored.len() - scored.len() / 5;
    let baseline = scene.baseline.as_ref().and_then(|mark| mark.value);
    let shown: Vec<f64> = scored.iter().take(most).copied().chain(baseline).collect();
    let Some([low, high]) = range(&shown) else {
        return empty(frame, area, "no values yet", theme);
    };
    let worst = if scene.lower_is_better { high } else { low };
    let of = |status: Status| -> Vec<(f64, f64)> {
        let trials = scene.trials.iter().filter(|trial| trial.status == status);
        // what lies beyond stands at the edge
        trials
            .map(|trial| (trial.trial as f64, trial.value.map_or(worst, |value| value.clamp(low, high))))
            .collect()
    };
    let (keeps, discards, crashes) = (of(Status::Keep), of(Status::Discard), of(Status::Crash));
    let last = scene.trials.last().map_or(1.0, |trial| trial.trial as f64);
    let mut line: Vec<(f64, f64)> = Vec::new();
    for &(trial, value) in &keeps {
        line.extend(line.last().map(|before| (trial, before.1)));
        line.push((trial, value));
    }
    line.extend(line.last().map(|end| (last, end.1)));
    let scatter = |data, marker, style: Style| {
        Dataset::default().data(data).marker(Marker::Custom(marker)).style(style)
    };
    let datasets = vec![
        Dataset::default()
            .data(&line)
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(theme.good()),
        scatter(&discards, '○', Style::new()),
        scatter(&crashes, 'x', theme.bad()),
        scatter(&keeps, '●', theme.good()),
    ];
    let end = last.max(2.0);
    let x = ["1".to_owned(), format!("{:.0}", ((1.0 + end) / 2.0).floor()), format!("{end:.0}")];
    draw(frame, area, datasets, [1.0, end], [low, high], &x, 4);
}

fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    datasets: Vec<Dataset<'_>>,
    x: [f64; 2],
    y: [f64; 2],
    x_labels: &[String],
    digits: usize,
) {
    let [low, high] = y;
    let y_labels = match area.height {
        0..2 => Vec::new(),
        2..5 => vec![low, high],
        _ => vec![low, (low + high) / 2.0, high],
    };
    let y_labels: Vec<String> = y_labels.into_iter().map(|value| format!("{value:.digits$}")).collect();
    let x_labels = if area.height >= TALL { x_labels.to_vec() } else { Vec::new() };
    let chart = Chart::new(datasets)
        .legend_position(None)
        .x_axis(Axis::default().bounds(x).labels(x_labels))
        .y_axis(Axis::default().bounds(y).labels(y_labels));
    frame.render_widget(chart, area);
}

fn empty(frame: &mut Frame<'_>, area: Rect, text: &'static str, theme: Theme) {
    frame.render_widget(Line::from(Span::styled(text, theme.dim())), area);
}

/// The smallest and the largest finite value, with some room around them.
fn range(values: &[f64]) -> Option<[f64; 2]> {
    let finite = || values.iter().copied().filter(|value| value.is_finite() && value.abs() < 1e100);
    let (low, high) = (finite().reduce(f64::min)?, finite().reduce(f64::max)?);
    let room = ((high - low) * 0.05).max(high.abs() * 1e-6).max(1e-9);
    Some([low - room, high + room])
}
