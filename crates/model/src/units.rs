//! Units as types and as text: bytes in powers of 1024, time in nanoseconds. The only place that parses and prints
//! sizes, durations and shares for users.

mod parse;

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

pub use parse::{SHARE_FORMS, SIZE_FORMS, SPAN_FORMS, Share, ShareError, SizeError, SpanError};

/// A point in time or a duration, in nanoseconds. Points count from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Nanos = Nanos(0);

    /// From seconds. Negative and non-finite values become zero, because no wait is shorter than zero.
    pub fn from_seconds(seconds: f64) -> Nanos {
        // A cast from float saturates, so an absurdly long time stays absurdly long.
        Nanos((seconds.max(0.0) * 1e9).round() as u64)
    }

    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time since `earlier`; zero if `earlier` is in the future.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        self.since(other)
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(spans: I) -> Nanos {
        spans.fold(Nanos::ZERO, Add::add)
    }
}

/// Prints a duration for people: `350 us`, `1.2 s`, `3 m 20 s`, `2 h 5 m`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        let whole = seconds.round() as u64;
        match self.0 {
            0 => write!(f, "0 s"),
            1..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{} us", significant(seconds * 1e6)),
            1_000_000..1_000_000_000 => write!(f, "{} ms", significant(seconds * 1e3)),
            _ if seconds < 99.95 => write!(f, "{} s", significant(seconds)),
            _ if whole < 7200 => write!(f, "{} m {} s", whole / 60, whole % 60),
            _ if whole < 172_800 => write!(f, "{} h {} m", whole / 3600, whole % 3600 / 60),
            _ => write!(f, "{} d {} h", whole / 86_400, whole % 86_400 / 3600),
        }
    }
}

/// A number of bytes. Prints in powers of 1024 with a binary unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = 0;
        // 1023.95 would print as "1024.0" of the smaller unit.
        while value >= 1023.95 && unit + 1 < BINARY.len() {
            value /= 1024.0;
            unit += 1;
        }
        if unit == 0 { write!(f, "{} B", self.0) } else { write!(f, "{value:.1} {}", BINARY[unit]) }
    }
}

/// Three significant digits, such as 1.23, 12.3 or 123.
pub fn significant(value: f64) -> String {
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A whole number with commas between groups of three digits, such as `1,170,301`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 rank`, `1,000 ranks`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Bytes per second in MiB/s, from exact bytes and a duration; `None` if the duration is zero.
pub fn mib_per_second(bytes: u64, span: Nanos) -> Option<f64> {
    (span > Nanos::ZERO).then(|| bytes as f64 / f64::from(1 << 20) / span.seconds())
}

/// Millions of bytes per second, as the literature counts, from MiB per second.
pub fn megabytes_per_second(mib_per_second: f64) -> f64 {
    mib_per_second * f64::from(1 << 20) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_in_powers_of_1024() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (114_688, "112.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (25_285_981_919, "23.5 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn spans_print_in_readable_units() {
        for (nanos, text) in [
            (0, "0 s"),
            (375_000, "375 us"),
            (47_400_000, "47.4 ms"),
            (1_500_000_000, "1.50 s"),
            (200_000_000_000, "3 m 20 s"),
            (7_500_000_000_000, "2 h 5 m"),
        ] {
            assert_eq!(Nanos(nanos).to_string(), text);
        }
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_170_301, "1,170,301")] {
            assert_eq!(grouped(number), text);
        }
    }
}
