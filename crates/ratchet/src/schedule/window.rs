//! The hours in which nights run.

use jiff::civil::Time;

use crate::error::{Error, Result};

/// A run that begins later than this before its end could miss it, and then have a whole day.
const LEAST_MINUTES: i32 = 2;
const DAY_MINUTES: i32 = 24 * 60;

/// From one time of day to another, over midnight where that is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    at: Time,
    until: Time,
}

impl Window {
    /// Exit code 2 where both are the same time, or nearly so.
    pub fn new(at: Time, until: Time) -> Result<Self> {
        let window = Self { at, until };
        if window.left(at) < LEAST_MINUTES || at == until {
            return Err(Error::usage(format!("from {} to {} is no night", window.at(), window.until()))
                .hint("for example --at 23:00 --until 07:00"));
        }
        Ok(window)
    }

    /// `23:00`.
    pub fn at(&self) -> String {
        self.at.strftime("%H:%M").to_string()
    }

    /// `07:00`.
    pub fn until(&self) -> String {
        self.until.strftime("%H:%M").to_string()
    }

    /// Whether a night may begin, or go on, now.
    pub fn contains(&self, now: Time) -> bool {
        let since = (minutes(now) - minutes(self.at)).rem_euclid(DAY_MINUTES);
        let length = (minutes(self.until) - minutes(self.at)).rem_euclid(DAY_MINUTES);
        since < length && self.left(now) >= LEAST_MINUTES
    }

    /// Whole minutes from `now` to the end.
    fn left(&self, now: Time) -> i32 {
        (minutes(self.until) - minutes(now)).rem_euclid(DAY_MINUTES)
    }
}

/// Of the day, the minute under way counted as over.
fn minutes(time: Time) -> i32 {
    i32::from(time.hour()) * 60 + i32::from(time.minute())
}

/// Whether a night may begin now; the hidden command's answer.
pub fn is_within(at: Time, until: Time) -> Result<bool> {
    Ok(Window::new(at, until)?.contains(jiff::Zoned::now().time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(at: &str, until: &str) -> Result<Window> {
        let clock = |text| crate::stop::clock(text).unwrap();
        Window::new(clock(at), clock(until))
    }

    #[test]
    fn a_window_over_midnight_holds_the_night_and_one_within_a_day_the_day() {
        let contains = |at, until, now| window(at, until).unwrap().contains(crate::stop::clock(now).unwrap());
        for inside in ["23:00", "23:59", "00:00", "03:30", "06:58"] {
            assert!(contains("23:00", "07:00", inside), "{inside}");
        }
        for outside in ["22:59", "06:59", "07:00", "12:00"] {
            assert!(!contains("23:00", "07:00", outside), "{outside}");
        }
        assert!(contains("09:00", "17:00", "12:00") && contains("00:00", "06:00", "00:00"));
        assert!(!contains("09:00", "17:00", "08:59") && !contains("09:00", "17:00", "23:00"));
    }

    #[test]
    fn no_time_is_no_night() {
        for (at, until) in [("23:00", "23:00"), ("23:00", "23:01"), ("23:59", "00:00")] {
            assert_eq!(window(at, until).unwrap_err().kind.exit_code(), 2);
        }
        assert!(window("07:00", "06:59").is_ok(), "all day but a minute");
    }
}
