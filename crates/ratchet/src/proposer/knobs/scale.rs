//! Where a tunable may go: its scale, and its value as a position between 0 and 1 on that scale.
//!
//! Every new value is written as the old one was: a float stays a float, an integer an integer, with the
//! same suffix, grouping or shift, and with no more digits than a person would type.

use std::str::FromStr;

/// The ways a tunable may move.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scale {
    /// By factors, between two positive numbers.
    Log(f64, f64),
    /// By differences.
    Lin(f64, f64),
    /// Whole numbers.
    Int(f64, f64),
    /// Powers of two, given by their exponents.
    Pow2(u32, u32),
    /// One of these texts, in no order.
    Choice(Vec<String>),
}

const KINDS: &str = "log A..B, lin A..B, int A..B, pow2 A..B or choice X|Y|Z";
const LARGEST_WHOLE: f64 = 9_007_199_254_740_992.0; // 2^53: whole numbers up to here are exact in f64

impl FromStr for Scale {
    type Err = String;

    /// Parses what follows `knob:`, for example `log 0.005..0.2`. The error says what is wrong and what is
    /// allowed.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let rest = rest.trim();
        if kind == "choice" {
            let choices: Vec<String> = rest.split('|').map(|choice| choice.trim().to_owned()).collect();
            let distinct = choices.iter().enumerate().all(|(i, choice)| !choices[..i].contains(choice));
            if choices.len() < 2 || !distinct || choices.contains(&String::new()) {
                return Err("a choice needs at least two different values, as in choice 1|2|4".to_owned());
            }
            return Ok(Self::Choice(choices));
        }
        if !["log", "lin", "int", "pow2"].contains(&kind) {
            return Err(format!("`{kind}` is no kind of knob; write {KINDS}"));
        }
        let bound = |text: &str| Number::parse(text).map(|number| number.value);
        let (lo, hi) = rest
            .split_once("..")
            .and_then(|(lo, hi)| Some((bound(lo)?, bound(hi)?)))
            .ok_or_else(|| format!("`{rest}` is no range; write two numbers, as in {kind} 1..8"))?;
        if lo >= hi {
            return Err(format!("the range {rest} is empty; the first number must be the smaller"));
        }
        let whole = |x: f64| x.fract() == 0.0 && x.abs() <= LARGEST_WHOLE;
        match kind {
            "log" if lo <= 0.0 => Err(format!("a log scale starts above 0, not at {lo}; use lin")),
            "log" => Ok(Self::Log(lo, hi)),
            "lin" => Ok(Self::Lin(lo, hi)),
            "int" if whole(lo) && whole(hi) => Ok(Self::Int(lo, hi)),
            "int" => Err(format!("an int range needs whole numbers, not {rest}")),
            _ => match (exponent(lo), exponent(hi)) {
                (Some(lo), Some(hi)) => Ok(Self::Pow2(lo, hi)),
                _ => Err(format!("a pow2 range needs powers of two from 1 on, not {rest}")),
            },
        }
    }
}

/// The exponent of a whole power of two.
fn exponent(x: f64) -> Option<u32> {
    let exponent = x.log2();
    ((0.0..=62.0).contains(&exponent) && exponent.fract() == 0.0).then_some(exponent as u32)
}

/// A number as it stands in a source, with what is needed to write another one like it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Number {
    /// What it is worth.
    pub(super) value: f64,
    float: bool,
    grouped: bool,
    shifted: bool, // 1 << 19
    suffix: &'static str,
}

const SUFFIXES: [&str; 14] =
    ["f64", "f32", "usize", "isize", "u128", "i128", "u64", "i64", "u32", "i32", "u16", "i16", "u8", "i8"];

impl Number {
    /// Parses a literal of Rust, Python, TOML or the like: `0.04`, `1e-10`, `-3`, `8_192`, `2usize`, `1 << 19`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some((one, exponent)) = text.split_once("<<") {
            let exponent: u32 = exponent.trim().parse().ok().filter(|exponent| *exponent <= 62)?;
            let value = f64::from(exponent).exp2();
            let number = Self { value, float: false, grouped: false, shifted: true, suffix: "" };
            return (one.trim() == "1").then_some(number);
        }
        let suffix = SUFFIXES.into_iter().find(|suffix| text.ends_with(suffix)).unwrap_or("");
        let digits: String = text.strip_suffix(suffix)?.chars().filter(|c| *c != '_').collect();
        if !digits.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
            || !digits.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c))
        {
            return None;
        }
        let value = digits.parse().ok().filter(|value: &f64| value.is_finite())?;
        let float = digits.contains(['.', 'e', 'E']) || suffix.starts_with('f');
        let grouped = text.strip_suffix(suffix)?.trim_end_matches('_').contains('_');
        Some(Self { value, float, grouped, shifted: false, suffix })
    }

    /// Writes another value in the same way; a whole number is rounded.
    fn write(&self, value: f64) -> String {
        if self.shifted {
            return format!("1 << {:.0}", value.log2());
        }
        let digits = match value.abs() {
            _ if !self.float => format!("{value:.0}"),
            0.0 => "0.0".to_owned(),
            size if (1e-4..1e9).contains(&size) => format!("{value:?}"),
            _ => format!("{value:e}"),
        };
        let digits = if self.grouped { group(&digits) } else { digits };
        format!("{digits}{}", self.suffix)
    }
}

/// `8192.5` → `8_192.5`.
fn group(digits: &str) -> String {
    let (sign, digits) = digits.split_at(usize::from(digits.starts_with('-')));
    let whole = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let mut out = sign.to_owned();
    for (i, digit) in digits[..whole].chars().enumerate() {
        if i > 0 && (whole - i) % 3 == 0 {
            out.push('_');
        }
        out.push(digit);
    }
    out + &digits[whole..]
}

/// The nearest number with so many significant digits.
fn significant(value: f64, digits: usize) -> f64 {
    // Through decimal text, so that 0.052 is the double that a person's 0.052 is.
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

impl Scale {
    /// Whether a text may stand for a value on this scale, and the reason if not.
    pub(super) fn check(&self, text: &str) -> Result<(), String> {
        match self {
            Self::Choice(choices) if choices.iter().any(|choice| choice == text) => Ok(()),
            Self::Choice(choices) => Err(format!("its value `{text}` is none of {}", choices.join("|"))),
            Self::Pow2(..) if Number::parse(text).is_some_and(|n| exponent(n.value).is_none()) => {
                Err(format!("its value `{text}` is no power of two"))
            }
            _ if Number::parse(text).is_some() => Ok(()),
            _ => Err(format!("its value `{text}` is not a plain number")),
        }
    }

    /// Where a text stands between the scale's ends, 0 to 1; a value outside them counts as the end.
    pub(crate) fn position(&self, text: &str) -> Option<f64> {
        if let Self::Choice(choices) = self {
            let index = choices.iter().position(|choice| choice == text)?;
            return Some(index as f64 / (choices.len() - 1) as f64);
        }
        let value = Number::parse(text)?.value;
        let position = match *self {
            Self::Log(lo, _) if value <= lo => 0.0, // a logarithm of 0 or less is no position
            Self::Log(lo, hi) => (value / lo).ln() / (hi / lo).ln(),
            Self::Pow2(lo, _) if value < 1.0 || exponent(value)? <= lo => 0.0,
            Self::Pow2(lo, hi) => (value.log2() - f64::from(lo)) / f64::from(hi - lo),
            Self::Lin(lo, hi) | Self::Int(lo, hi) => (value - lo) / (hi - lo),
            Self::Choice(_) => return None,
        };
        Some(position.clamp(0.0, 1.0))
    }

    /// The text at a position, written like `like`; never outside the scale's ends.
    pub(crate) fn text(&self, position: f64, like: &str) -> Option<String> {
        let position = position.clamp(0.0, 1.0);
        if let Self::Choice(choices) = self {
            return Some(choices[(position * (choices.len() - 1) as f64).round() as usize].clone());
        }
        let form = Number::parse(like)?;
        let whole = !form.float || matches!(self, Self::Int(..) | Self::Pow2(..));
        let (lo, hi, exact, rounded) = match *self {
            Self::Log(lo, hi) => {
                let exact = lo * (hi / lo).powf(position);
                (lo, hi, exact, significant(exact, 3))
            }
            Self::Lin(lo, hi) => {
                let exact = lo + (hi - lo) * position;
                // A few thousandths of the range are the finest step worth a trial.
                let decimals = (3.0 - (hi - lo).log10().ceil()).clamp(0.0, 300.0) as usize;
                (lo, hi, exact, format!("{exact:.decimals$}").parse().unwrap_or(exact))
            }
            Self::Int(lo, hi) => (lo, hi, lo + (hi - lo) * position, lo + (hi - lo) * position),
            Self::Pow2(lo, hi) => {
                let exact = (f64::from(lo) + f64::from(hi - lo) * position).round().exp2();
                (f64::from(lo).exp2(), f64::from(hi).exp2(), exact, exact)
            }
            Self::Choice(_) => return None,
        };
        // − 0 is no value a person would write, hence the + 0.
        if whole {
            let (lo, hi) = (lo.ceil(), hi.floor());
            return (lo <= hi).then(|| form.write(exact.round().clamp(lo, hi) + 0.0));
        }
        Some(form.write(rounded.clamp(lo, hi) + 0.0))
    }

    /// The text that a move of `by` leads to; at least the nearest other one, `None` at the scale's end and for
    /// no move at all.
    ///
    /// For a choice a move leads to the neighbour `by` times the list's length away.
    pub(super) fn moved(&self, from: &str, by: f64) -> Option<String> {
        let start = self.position(from)?;
        let mut by = Some(by).filter(|by| by.is_finite() && *by != 0.0)?; // or the loop would have no end
        loop {
            let target = (start + by).clamp(0.0, 1.0);
            let text = self.text(target, from)?;
            // A champion outside the range is brought inside by whatever move, and that is a change.
            if self.position(&text)? != start && text != from {
                let right_way = (self.position(&text)? - start) * by > 0.0;
                return right_way.then_some(text);
            }
            if target == 0.0 || target == 1.0 {
                return None;
            }
            by *= 1.5;
        }
    }

    /// How many different texts there are, `None` when too many to list.
    pub(super) fn texts(&self, like: &str) -> Option<Vec<String>> {
        const MANY: f64 = 64.0;
        let at = |n: f64| (0..=n as u32).map(move |i| f64::from(i) / n);
        let float = Number::parse(like).is_some_and(|number| number.float);
        let mut texts: Vec<String> = match *self {
            Self::Choice(ref choices) => return Some(choices.clone()),
            Self::Pow2(lo, hi) => at(f64::from(hi - lo)).filter_map(|p| self.text(p, like)).collect(),
            Self::Int(lo, hi) if hi - lo < MANY => at(hi - lo).filter_map(|p| self.text(p, like)).collect(),
            Self::Log(lo, hi) | Self::Lin(lo, hi) if !float && hi - lo < MANY => {
                let form = Number::parse(like)?;
                let (first, last) = (lo.ceil() as i64, hi.floor() as i64);
                (first..=last).map(|whole| form.write(whole as f64)).collect()
            }
            _ => return None,
        };
        texts.dedup();
        Some(texts)
    }
}
