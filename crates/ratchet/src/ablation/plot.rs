//! The picture: how far each group has come over its budget, and where its repeats ended.

use std::path::Path;

use plotters::{coord::Shift, prelude::*};

use super::{
    outcome::Outcome,
    plan::{Group, On},
    report::Report,
    statistics::Mean,
};
use crate::{
    error::{Error, Result},
    state::write_atomic,
};

const SIZE: (u32, u32) = (1100, 460);
/// Points of a curve.
const STEPS: usize = 60;
/// Ground and ink; a viewer with a dark page swaps them.
const GROUND: RGBColor = RGBColor(0xff, 0xff, 0xff);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// Written into the file, so that it follows the reader's scheme.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) {\
    [fill=\"#FFFFFF\"] { fill: #16181d } [fill=\"#222222\"] { fill: #dddddd } \
    [stroke=\"#222222\"] { stroke: #dddddd } [stroke=\"#E4E4E4\"] { stroke: #33363d } }</style>";

/// Told apart on light and on dark, also by most who do not see all colours; after Okabe and Ito.
fn colour(group: Group) -> RGBColor {
    match group {
        Group::A => RGBColor(0x80, 0x80, 0x80),
        Group::B => RGBColor(0x3b, 0x9b, 0xdc),
        Group::C => RGBColor(0xd5, 0x5e, 0x00),
        Group::D => RGBColor(0x00, 0x9e, 0x73),
        Group::R => RGBColor(0xb0, 0x8a, 0x00),
        Group::T => RGBColor(0xc0, 0x6a, 0x9c),
        Group::N => RGBColor(0x6a, 0x70, 0xd8),
        Group::M => RGBColor(0x2a, 0xa1, 0xa8),
        Group::P => RGBColor(0x8c, 0x6d, 0x5a),
        Group::H => RGBColor(0xc9, 0x3a, 0x4a),
    }
}

/// Draws the report into a file.
pub(super) fn draw(report: &Report, path: &Path) -> Result<()> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        picture(report, &area).map_err(|error| Error::internal("could not draw").at(path).because(error))?;
    }
    let head = svg.find('>').map_or(0, |at| at + 1); // after <svg …>
    svg.insert_str(head, DARK);
    write_atomic(path, svg.as_bytes())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), String>;

fn picture(report: &Report, area: &Area<'_>) -> Drawn {
    area.fill(&GROUND).map_err(|error| error.to_string())?;
    let (left, right) = area.split_horizontally(700);
    curves(report, &left).map_err(|error| error.to_string())?;
    finals(report, &right).map_err(|error| error.to_string())
}

/// Whether changes without noise are shown.
fn shows_truth(report: &Report) -> bool {
    report.plan.on == On::Sim
}

/// The change that a repeat had reached after so many seconds; 0 before its first trial has ended.
fn change_at(outcome: &Outcome, seconds: f64, truth: bool) -> Option<f64> {
    let values = if truth { outcome.truths.as_ref()? } else { &outcome.values };
    let ended = outcome.points.iter().take_while(|point| point.used.seconds() <= seconds).count();
    let now = values.get(ended.max(1) - 1)?;
    Some(now - values.first()?)
}

/// Mean changes over the budget: hours, mean, and the ends of its interval.
fn curve(report: &Report, group: Group) -> Vec<(f64, f64, [f64; 2])> {
    let own: Vec<&Outcome> = report.outcomes.iter().filter(|outcome| outcome.group == group).collect();
    let at = |step: usize| {
        let seconds = report.budget_s * step as f64 / STEPS as f64;
        let changes: Vec<f64> =
            own.iter().filter_map(|outcome| change_at(outcome, seconds, shows_truth(report))).collect();
        let mean = Mean::of(&changes)?;
        Some((seconds / 3600.0, mean.mean, mean.interval.unwrap_or([mean.mean; 2])))
    };
    (0..=STEPS).filter_map(at).collect()
}

/// The range of values, with room around it.
fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let room = 0.06 * (high - low).max(1e-9);
    low - room..high + room
}

fn curves(report: &Report, area: &Area<'_>) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let curves: Vec<_> = report.groups.iter().map(|row| (row.group, curve(report, row.group))).collect();
    let ends = curves.iter().flat_map(|(_, curve)| curve.iter().flat_map(|(_, _, interval)| *interval));
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(78)
        .build_cartesian_2d(0.0..report.budget_s / 3600.0, range(ends))?;
    let label = |size: u32| ("sans-serif", size).into_font().color(&INK);
    let of = if shows_truth(report) { "without noise" } else { "as measured" };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(label(13))
        .axis_desc_style(label(14))
        .x_desc("hours of trials and proposals")
        .y_desc(format!("change of {}, {of}", report.plan.metric.name))
        .y_label_formatter(&|value| format!("{value:.4}"))
        .draw()?;
    for (group, curve) in &curves {
        let colour = colour(*group);
        let low = curve.iter().map(|(hours, _, [low, _])| (*hours, *low));
        let high = curve.iter().rev().map(|(hours, _, [_, high])| (*hours, *high));
        chart.draw_series([Polygon::new(low.chain(high).collect::<Vec<_>>(), colour.mix(0.13))])?;
    }
    for (group, curve) in &curves {
        let colour = colour(*group);
        chart
            .draw_series(LineSeries::new(
                curve.iter().map(|(hours, mean, _)| (*hours, *mean)),
                colour.stroke_width(2),
            ))?
            .label(format!("{group}  {}", group.says()))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .label_font(label(13))
        .background_style(GROUND.mix(0.8))
        .border_style(TRANSPARENT)
        .draw()?;
    Ok(())
}

fn finals(report: &Report, area: &Area<'_>) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let truth = shows_truth(report);
    let of = |group: Group| {
        report
            .outcomes
            .iter()
            .filter(move |outcome| outcome.group == group)
            .filter_map(move |o| o.change(truth))
    };
    let all = report.groups.iter().flat_map(|row| of(row.group));
    let count = report.groups.len();
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(78)
        .build_cartesian_2d(-0.5..count as f64 - 0.5, range(all))?;
    let label = |size: u32| ("sans-serif", size).into_font().color(&INK);
    let name = |at: &f64| {
        let nearest = at.round();
        let whole = (at - nearest).abs() < 1e-6 && nearest >= 0.0;
        let row = report.groups.get(nearest as usize).filter(|_| whole);
        row.map_or(String::new(), |row| row.group.to_string())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(label(13))
        .axis_desc_style(label(14))
        .x_labels(2 * count + 1)
        .x_label_formatter(&name)
        .x_desc("where repeats ended; bars: mean, 95 %")
        .y_label_formatter(&|value| format!("{value:.4}"))
        .draw()?;
    for (at, row) in report.groups.iter().enumerate() {
        let (colour, x) = (colour(row.group), at as f64);
        let dots: Vec<f64> = of(row.group).collect();
        chart.draw_series(dots.iter().enumerate().map(|(i, change)| {
            let aside = 0.24 * (i as f64 / (dots.len().max(2) - 1) as f64) - 0.3; // beside the bar
            Circle::new((x + aside, *change), 2, colour.mix(0.6).filled())
        }))?;
        let mean = if truth { row.true_delta.unwrap_or(row.delta) } else { row.delta };
        let [low, high] = mean.interval.unwrap_or([mean.mean; 2]);
        let line = |from, to| PathElement::new([from, to], colour.stroke_width(3));
        chart.draw_series([
            line((x + 0.12, low), (x + 0.12, high)),
            line((x, mean.mean), (x + 0.24, mean.mean)),
        ])?;
    }
    Ok(())
}
