//! Loss curves, `steps.csv`: where one run reaches what another ended at.

use std::path::Path;

use serde::Deserialize;

use crate::plain_file;

/// The share of a run's steps that the loss is averaged over: one step's loss is mostly its batch.
const WINDOW: f64 = 0.05;

/// A training loss over time, smoothed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Curve {
    /// (seconds of training, mean loss of the steps before), in order.
    points: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Row {
    seconds: f64,
    loss: f64,
}

impl Curve {
    /// Reads a curve; `None` where there is none that can be read.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let text = plain_file::read(path).ok()?;
        let rows = csv::Reader::from_reader(text.as_slice()).into_deserialize::<Row>();
        Self::of(
            &rows
                .collect::<Result<Vec<Row>, _>>()
                .ok()?
                .iter()
                .map(|r| (r.seconds, r.loss))
                .collect::<Vec<_>>(),
        )
    }

    fn of(rows: &[(f64, f64)]) -> Option<Self> {
        let window = ((rows.len() as f64 * WINDOW) as usize).max(1);
        let mean = |rows: &[(f64, f64)]| rows.iter().map(|row| row.1).sum::<f64>() / rows.len() as f64;
        let points: Vec<(f64, f64)> =
            rows.windows(window).map(|rows| (rows[window - 1].0, mean(rows))).collect();
        (!points.is_empty()).then_some(Self { points })
    }

    /// The smoothed loss at the end.
    pub(super) fn end(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |point| point.1)
    }

    /// When the smoothed loss is first at or below `loss`, in seconds of training.
    pub(super) fn reaches(&self, loss: f64) -> Option<f64> {
        self.points.iter().find(|point| point.1 <= loss).map(|point| point.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lucky_batch_does_not_reach_a_loss() {
        // Oracle: by hand. 100 steps, a window of 5; the loss falls by 0.1 a step from 10.
        let mut rows: Vec<(f64, f64)> = (0..100).map(|i| (f64::from(i), 10.0 - 0.1 * f64::from(i))).collect();
        rows[20].1 = 0.0;
        let curve = Curve::of(&rows).unwrap();
        assert!((curve.end() - 0.3).abs() < 1e-9, "the mean of 0.5, 0.4, 0.3, 0.2 and 0.1");
        // the mean of steps 48 to 52 is 5
        assert_eq!(curve.reaches(5.0 + 1e-9), Some(52.0));
        assert_eq!(curve.reaches(0.2), None);
        assert_eq!(Curve::of(&[]), None);
    }

    #[test]
    fn the_file_that_a_fit_leaves_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("steps.csv");
        assert_eq!(Curve::read(&path), None);
        std::fs::write(&path, "step,seconds,progress,tokens,loss\n0,0.500,0.1,64,9.0\n1,1.000,0.2,128,8.0\n")
            .unwrap();
        assert_eq!(Curve::read(&path).unwrap().points, [(0.5, 9.0), (1.0, 8.0)]);
        std::fs::write(&path, "step,seconds\n0,nonsense\n").unwrap();
        assert_eq!(Curve::read(&path), None);
    }
}
