//! A loss curve, `steps.csv`, that is read while its run writes it.
//!
//! Whoever writes it is a contestant: the file may be anything. It is read in bounded pieces, only as a plain file
//! that is no link, and what is no row is passed over. Losses are put together by share of the budget, so that
//! neither a million steps nor a flood takes more than a fixed room.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;

/// Points that a curve has at most.
const BINS: usize = 400;
/// Bytes that are read in one go: some 20,000 rows.
const MOST: u64 = 1 << 20;
/// Bytes of a whole curve that are read.
const WHOLE: u64 = 64 << 20;
/// A row has some 50 bytes; what is longer is none.
const LONGEST_ROW: usize = 1 << 10;
/// A point is the mean over so many bins up to it, a twentieth of the budget: single steps are noisy.
const WINDOW: usize = BINS / 20;

/// A loss curve.
#[derive(Debug, Default)]
pub(super) struct LossCurve {
    file: Option<File>,
    at: u64,
    /// The beginning of a row whose end is not there yet.
    open: Vec<u8>,
    /// Where `progress`, `seconds`, `tokens` and `loss` stand in a row.
    columns: Option<[Option<usize>; 4]>,
    /// Sum and number of losses by share of the budget.
    bins: Vec<(f64, u32)>,
    rows: u64,
    progress: f64,
    tokens_s: Option<f64>,
}

impl LossCurve {
    /// Reads what was added; the file, once opened, is stayed with, wherever it is moved.
    pub(super) fn read_on(&mut self, path: &Path) {
        if self.file.is_none() {
            self.file = open(path);
        }
        let Some(file) = &mut self.file else { return };
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(self.at)).and_then(|_| file.take(MOST).read_to_end(&mut bytes));
        if read.is_ok() {
            self.at += bytes.len() as u64;
            self.take(&bytes);
        }
    }

    /// Reads a curve that has ended.
    pub(super) fn read_whole(&mut self, path: &Path) {
        loop {
            let before = self.at;
            self.read_on(path);
            if self.at == before || self.at >= WHOLE {
                self.file = None;
                return;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LONGEST_ROW.saturating_sub(self.open.len());
            self.open.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let row = std::mem::take(&mut self.open);
                self.row(String::from_utf8_lossy(&row).trim_end());
            }
        }
    }

    fn row(&mut self, row: &str) {
        let cells: Vec<&str> = row.split(',').collect();
        let Some([progress, seconds, tokens, loss]) = self.columns else {
            let column = |name| cells.iter().position(|cell| *cell == name);
            self.columns = Some(["progress", "seconds", "tokens", "loss"].map(column));
            return;
        };
        let number = |column: Option<usize>| {
            let number: f64 = cells.get(column?)?.parse().ok()?;
            number.is_finite().then_some(number)
        };
        let (Some(progress), Some(loss)) = (number(progress), number(loss)) else { return };
        if !(0.0..=1.0).contains(&progress) {
            return;
        }
        self.bins.resize(BINS, (0.0, 0));
        let bin = &mut self.bins[((progress * BINS as f64) as usize).min(BINS - 1)];
        (bin.0, bin.1) = (bin.0 + loss, bin.1.saturating_add(1));
        self.rows += 1;
        self.progress = progress;
        let pace = number(tokens).zip(number(seconds)).map(|(tokens, seconds)| tokens / seconds);
        self.tokens_s = pace.filter(|pace| pace.is_finite() && *pace >= 0.0);
    }

    /// (share of the budget, mean loss shortly before it), ascending.
    pub(super) fn points(&self) -> Vec<(f64, f64)> {
        let filled = self.bins.iter().enumerate().filter(|(_, bin)| bin.1 > 0);
        let point = |(i, _): (usize, &(f64, u32))| {
            let window = &self.bins[(i + 1).saturating_sub(WINDOW)..=i];
            let (sum, n) = window.iter().fold((0.0, 0.0), |(s, n), bin| (s + bin.0, n + f64::from(bin.1)));
            ((i as f64 + 0.5) / BINS as f64, sum / n)
        };
        filled.map(point).collect()
    }

    /// The loss at a share of the budget: of the point next to it, where one is within a fiftieth.
    pub(super) fn at(&self, progress: f64) -> Option<f64> {
        let distance = |point: &(f64, f64)| (point.0 - progress).abs();
        let nearest = self.points().into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        (distance(&nearest) <= 0.02).then_some(nearest.1)
    }

    /// The loss at the last point.
    pub(super) fn loss(&self) -> Option<f64> {
        self.points().last().map(|point| point.1)
    }

    /// Steps so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// The share of the budget at the last step.
    pub(super) fn progress(&self) -> f64 {
        self.progress
    }

    /// Over the whole run so far, by the contestant's word.
    pub(super) fn tokens_a_second(&self) -> Option<f64> {
        self.tokens_s
    }
}

/// A plain file that is no link; opening a FIFO does not wait.
fn open(path: &Path) -> Option<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    const HEAD: &str = "step,seconds,progress,tokens,loss\n";

    #[test]
    fn a_curve_that_grows_is_what_the_whole_file_is() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("steps.csv"), dir.path().join("kept.csv"));
        let mut grown = LossCurve::default();
        grown.read_on(&path); // not there yet
        let mut file = File::create(&path).unwrap();
        let text: String = (0..2_000)
            .map(|i| {
                format!(
                    "{i},{:.3},{:.6},{},{:.6}\n",
                    i as f64 * 0.01,
                    i as f64 / 2e3,
                    i * 512,
                    9.0 - i as f64 / 1e3
                )
            })
            .collect();
        for piece in format!("{HEAD}{text}").as_bytes().chunks(777) {
            file.write_all(piece).unwrap();
            grown.read_on(&path);
        }
        fs::rename(&path, &moved).unwrap(); // as the driver does once the run is over
        file.write_all(b"2000,20.0,1.0,1024000,7.0\n").unwrap();
        grown.read_on(&path);
        let mut whole = LossCurve::default();
        whole.read_whole(&moved);
        assert_eq!(grown.points(), whole.points());
        assert_eq!(grown.rows(), 2_001);
        assert_eq!(grown.points().len(), BINS);
        assert_eq!(grown.tokens_a_second(), Some(51_200.0));
        // losses fall in a line, so that the mean over a twentieth is the one in its middle
        assert!((grown.at(0.5).unwrap() - 8.05).abs() < 0.01);
        assert_eq!(grown.progress(), 1.0);
    }

    #[test]
    fn what_is_no_curve_gives_no_point_and_takes_no_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("steps.csv");
        let flood = "x".repeat(3 << 20);
        let nonsense = [
            String::new(),
            flood.clone(),
            format!("{HEAD}{flood}\n"),
            format!("{HEAD}0,nan,nan,nan,nan\n1,1,7.0,1,1\n2,1,-0.1,1,1\n3,1,0.5,1,inf\n\u{0}\n,,,,\n"),
            "no,such,columns\n1,2,3\n".to_owned(),
        ];
        for text in nonsense {
            fs::write(&path, text).unwrap();
            let mut curve = LossCurve::default();
            curve.read_whole(&path);
            assert_eq!(curve.points(), []);
            assert_eq!((curve.loss(), curve.at(0.5)), (None, None));
            assert!(curve.open.len() <= LONGEST_ROW);
        }
        let link = dir.path().join("link.csv");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(open(&link).is_none() && open(dir.path()).is_none());
    }
}
