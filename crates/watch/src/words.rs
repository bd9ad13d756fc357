//! Figures in words.

/// `34 s`, `5 min 12 s`, `2 h 05 min`; of nonsense nothing.
pub fn span(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "-".to_owned();
    }
    let all = seconds.clamp(0.0, 1e9).round() as u64;
    match (all / 3600, all / 60 % 60, all % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

/// `1.2 GB`.
pub(crate) fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// `950`, `5.1 k`, `1.3 M`.
pub(crate) fn many(n: f64) -> String {
    match n {
        n if !n.is_finite() => "-".to_owned(),
        n if n < 1e3 => format!("{n:.0}"),
        n if n < 1e6 => format!("{:.1} k", n / 1e3),
        n => format!("{:.1} M", n / 1e6),
    }
}

/// A value or a loss; `-` for none.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// With its sign.
pub(crate) fn signed(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:+.6}"))
}
