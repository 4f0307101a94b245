//! The only parsers of sizes, durations and shares that a user writes, in flags, backends' arguments and workload keys.

use std::str::FromStr;

use thiserror::Error;

use super::{Bytes, Nanos};

/// The forms of a size, for messages.
pub const SIZE_FORMS: &str = "4096, 4k, 4KiB, 1.5GiB (powers of 1024) or 4kB, 64GB (powers of 1000)";
/// The forms of a duration.
pub const SPAN_FORMS: &str = "250us, 4ms, 1.5s, 90m, 24h or 7d";
/// The forms of a share.
pub const SHARE_FORMS: &str = "0.5, 1/64 or 50%";

/// Why a size cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    #[error("'{0}' does not start with a number; write a size such as {SIZE_FORMS}")]
    NoNumber(String),
    #[error("'{text}' has the unknown unit '{unit}'; write a size such as {SIZE_FORMS}")]
    UnknownUnit { text: String, unit: String },
    #[error("'{0}' is not a valid size: it is negative or too large")]
    OutOfRange(String),
}

impl FromStr for Bytes {
    type Err = SizeError;

    /// Parses `256GiB`, `1.5 TiB`, `256G` (the same as `256GiB`, as in fio and dd), `64GB` (powers of 1000) or plain
    /// bytes. A fraction of a byte is rounded.
    fn from_str(text: &str) -> Result<Bytes, SizeError> {
        let text = text.trim();
        let (number, unit) = split(text);
        let value: f64 = number.parse().map_err(|_| SizeError::NoNumber(text.to_owned()))?;
        let scale = scale_of(unit)
            .ok_or_else(|| SizeError::UnknownUnit { text: text.to_owned(), unit: unit.to_owned() })?;
        // Whole numbers are exact; a double has only 53 bits.
        let bytes = match number.parse::<u64>() {
            Ok(whole) => whole.checked_mul(scale),
            Err(_) => {
                let bytes = value * scale as f64;
                (0.0..1.8e19).contains(&bytes).then(|| bytes.round() as u64)
            }
        };
        bytes.map(Bytes).ok_or_else(|| SizeError::OutOfRange(text.to_owned()))
    }
}

/// The number at the start of a text, and the unit after it.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

/// Bytes of a unit.
fn scale_of(unit: &str) -> Option<u64> {
    let lower = unit.to_ascii_lowercase();
    let (prefix, base) = match (lower.strip_suffix("ib"), lower.strip_suffix('b')) {
        (Some(prefix), _) if !prefix.is_empty() => (prefix, 1024u64),
        (_, Some(prefix)) => (prefix, 1000),
        (_, None) => (lower.as_str(), 1024),
    };
    let power = match prefix {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    Some(base.pow(power))
}

/// Why a duration cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpanError {
    #[error("'{0}' does not start with a number; write a time such as {SPAN_FORMS}")]
    NoNumber(String),
    #[error("'{0}' needs a unit: {0}s, {0}m or {0}h; the units are ns, us, ms, s, m, h and d")]
    NoUnit(String),
    #[error("'{0}' has an unknown unit; the units are ns, us, ms, s, m, h and d")]
    UnknownUnit(String),
    #[error("'{0}' is not a valid time: it is negative, too long, or 0 where a time is needed")]
    OutOfRange(String),
}

impl FromStr for Nanos {
    type Err = SpanError;

    /// Parses `4ms`, `0.5 s`, `120us`; only 0 needs no unit.
    fn from_str(text: &str) -> Result<Nanos, SpanError> {
        let text = text.trim();
        let (number, unit) = split(text);
        let value: f64 = number.parse().map_err(|_| SpanError::NoNumber(text.to_owned()))?;
        let scale = match unit {
            "ns" => 1.0,
            "us" | "\u{b5}s" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            "d" => 86_400e9,
            "" if value == 0.0 => 1.0,
            "" => return Err(SpanError::NoUnit(text.to_owned())),
            _ => return Err(SpanError::UnknownUnit(text.to_owned())),
        };
        // One year, longer than any useful wait.
        if !(0.0..3.2e16).contains(&(value * scale)) {
            return Err(SpanError::OutOfRange(text.to_owned()));
        }
        Ok(Nanos((value * scale).round() as u64))
    }
}

/// A share of something, from 0 to 1, as an exact fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub numerator: u64,
    pub denominator: u64,
}

impl Share {
    pub fn value(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

/// Why a share cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a share from 0 to 1; write it as {SHARE_FORMS}")]
pub struct ShareError(String);

impl FromStr for Share {
    type Err = ShareError;

    /// Parses `1/64`, `0.5`, `50%` or 1.
    fn from_str(text: &str) -> Result<Share, ShareError> {
        let (number, whole) = match (text.split_once('/'), text.strip_suffix('%')) {
            (Some((number, whole)), _) => (number, whole.trim().parse().ok()),
            (None, Some(number)) => (number, Some(100)),
            (None, None) => (text, Some(1)),
        };
        let share = decimal(number.trim()).zip(whole).and_then(|((digits, places), whole)| {
            Some(Share { numerator: digits, denominator: places.checked_mul(whole)? })
        });
        let fits = |share: &Share| share.denominator > 0 && share.numerator <= share.denominator;
        share.filter(fits).map(reduced).ok_or_else(|| ShareError(text.to_owned()))
    }
}

/// `0.25` as 25 and 100.
fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !is_digits(whole) || !is_digits(part) {
        return None;
    }
    let places = 10u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    Some((format!("{whole}{part}").parse().ok()?, places))
}

/// Decimal places make large terms: 0.5 is 5/10, and 1/2 after this.
fn reduced(Share { numerator, denominator }: Share) -> Share {
    let (mut divisor, mut rest) = (denominator, numerator);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    Share { numerator: numerator / divisor, denominator: denominator / divisor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [
            ("256GiB", 256 << 30),
            ("256G", 256 << 30),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4kB", 4000),
            ("64GB", 64_000_000_000),
            ("1.5 KiB", 1536),
            ("0.3k", 307),
            ("17", 17),
            ("2b", 2),
            ("18446744073709551615", u64::MAX),
            ("9007199254740993", 9_007_199_254_740_993),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["GiB", "64Gi", "3 foo", "3iB", "-1GiB", "-1", "1e3", "16384P", "99999999999999PB", ""] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, nanos) in [
            ("250us", 250_000),
            ("1.5s", 1_500_000_000),
            ("2min", 120_000_000_000),
            ("0", 0),
            ("1 d", 86_400_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(nanos)), "{text}");
        }
        let bare = "24".parse::<Nanos>().unwrap_err().to_string();
        assert!(bare.starts_with("'24' needs a unit: 24s, 24m or 24h"), "{bare}");
        for text in ["24x", "-1s", "s", "1e3s", "99999999d"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_exact_fractions() {
        for (text, numerator, denominator) in [
            ("1/64", 1, 64),
            ("0.5", 1, 2),
            ("50%", 1, 2),
            ("0.015625", 1, 64),
            ("1", 1, 1),
            ("0", 0, 1),
            ("2/8", 1, 4),
        ] {
            assert_eq!(text.parse(), Ok(Share { numerator, denominator }), "{text}");
        }
        for text in
            ["", ".", "2", "1/0", "3/2", "-0.5", "101%", "half", "1/2/3", "0.5.1", "0.000000000000000000001"]
        {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
