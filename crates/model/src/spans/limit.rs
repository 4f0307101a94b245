//! The limits of a trace: its size, the time that it covers, and the steps that are in it.

use std::str::FromStr;

use thiserror::Error;

use crate::units::{Bytes, Nanos, Share, ShareError, SpanError};

/// How limits are written, for help and messages.
pub const TRACE_LIMIT_FORMS: &str =
    "a size (256MiB), a time (30s) or window (10s..40s), or a share of steps (1/100, 5%)";

/// The largest size of a trace, unless another is given: about 12 million operations.
pub const DEFAULT_TRACE_BYTES: u64 = 256 << 20;

/// The smallest limit by size: names of tracks and the end of the trace need some of it.
pub const LEAST_TRACE_BYTES: u64 = 64 << 10;

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceLimit {
    /// Of the file.
    Size(Bytes),
    /// Operations that begin in this part of the run are traced.
    Window { from: Nanos, to: Nanos },
    /// This share of the steps is traced.
    Steps(Share),
}

/// Why a limit cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceLimitError {
    #[error("'{0}' is not a limit; write {TRACE_LIMIT_FORMS}")]
    Unknown(String),
    #[error("'{0}' could be a time or a size; write 'min' for minutes or 'MiB' for a size")]
    Ambiguous(String),
    #[error("'{0}' is too small; the smallest size is {least}", least = Bytes(LEAST_TRACE_BYTES))]
    Small(String),
    #[error("'{0}' is empty: no operation could be traced")]
    Empty(String),
    #[error(transparent)]
    Span(#[from] SpanError),
    #[error(transparent)]
    Share(#[from] ShareError),
}

impl FromStr for TraceLimit {
    type Err = TraceLimitError;

    fn from_str(text: &str) -> Result<TraceLimit, TraceLimitError> {
        let text = text.trim();
        let empty = || TraceLimitError::Empty(text.to_owned());
        if let Some((from, to)) = text.split_once("..") {
            let (from, to): (Nanos, Nanos) = (from.parse()?, to.parse()?);
            return if from < to { Ok(TraceLimit::Window { from, to }) } else { Err(empty()) };
        }
        if text.contains('/') || text.ends_with('%') {
            let share: Share = text.parse()?;
            return if share.numerator > 0 { Ok(TraceLimit::Steps(share)) } else { Err(empty()) };
        }
        match (text.parse::<Bytes>(), text.parse::<Nanos>()) {
            (Ok(size), Err(_)) if size.0 < LEAST_TRACE_BYTES => Err(TraceLimitError::Small(text.to_owned())),
            (Ok(size), Err(_)) => Ok(TraceLimit::Size(size)),
            (_, Ok(Nanos::ZERO)) => Err(empty()),
            (Err(_), Ok(to)) => Ok(TraceLimit::Window { from: Nanos::ZERO, to }),
            (Ok(_), Ok(_)) => Err(TraceLimitError::Ambiguous(text.to_owned())),
            (Err(_), Err(_)) => Err(TraceLimitError::Unknown(text.to_owned())),
        }
    }
}

/// All limits of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLimits {
    pub bytes: u64,
    /// Part of the run; `None`: all of it.
    pub window: Option<(Nanos, Nanos)>,
    pub steps: Share,
}

impl Default for TraceLimits {
    fn default() -> TraceLimits {
        let steps = Share { numerator: 1, denominator: 1 };
        TraceLimits { bytes: DEFAULT_TRACE_BYTES, window: None, steps }
    }
}

impl TraceLimits {
    /// All of these; an error if two are of the same kind.
    pub fn of(limits: &[TraceLimit]) -> Result<TraceLimits, String> {
        let mut all = TraceLimits::default();
        let mut seen = Vec::new();
        for limit in limits {
            let kind = match *limit {
                TraceLimit::Size(Bytes(bytes)) => {
                    all.bytes = bytes;
                    "size"
                }
                TraceLimit::Window { from, to } => {
                    all.window = Some((from, to));
                    "time"
                }
                TraceLimit::Steps(share) => {
                    all.steps = share;
                    "share of steps"
                }
            };
            if seen.contains(&kind) {
                return Err(format!("--trace-limit has two limits of the same kind ({kind}); give one"));
            }
            seen.push(kind);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed() {
        let seconds = |count: u64| Nanos(count * 1_000_000_000);
        let share = |numerator, denominator| TraceLimit::Steps(Share { numerator, denominator });
        for (text, limit) in [
            ("256MiB", TraceLimit::Size(Bytes(256 << 20))),
            ("1G", TraceLimit::Size(Bytes(1 << 30))),
            ("30s", TraceLimit::Window { from: Nanos::ZERO, to: seconds(30) }),
            ("10min", TraceLimit::Window { from: Nanos::ZERO, to: seconds(600) }),
            ("10s..40s", TraceLimit::Window { from: seconds(10), to: seconds(40) }),
            ("0..1m", TraceLimit::Window { from: Nanos::ZERO, to: seconds(60) }),
            ("1/100", share(1, 100)),
            ("5%", share(1, 20)),
        ] {
            assert_eq!(text.parse(), Ok(limit), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "is not a limit"),
            ("all", "write a size (256MiB)"),
            ("10", "too small"),
            ("4k", "smallest size is 64.0 KiB"),
            ("0", "is empty"),
            ("0s", "is empty"),
            ("90m", "write 'min' for minutes"),
            ("40s..10s", "is empty"),
            ("10s..10s", "is empty"),
            ("10..40", "unit"),
            ("..40s", "number"),
            ("0/10", "is empty"),
            ("0%", "is empty"),
            ("2/1", "not a share"),
            ("1/0", "not a share"),
            ("-1s", "is not a limit"),
            ("101%", "not a share"),
        ] {
            let error = text.parse::<TraceLimit>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn limits_of_different_kinds_apply_together() {
        let parse = |text: &str| text.parse::<TraceLimit>().unwrap();
        let all = TraceLimits::of(&[parse("1MiB"), parse("30s"), parse("1/2")]).unwrap();
        assert_eq!((all.bytes, all.steps.denominator), (1 << 20, 2));
        assert!(all.window.is_some());
        assert_eq!(TraceLimits::of(&[]).unwrap().bytes, DEFAULT_TRACE_BYTES);
        assert!(TraceLimits::of(&[parse("1s"), parse("2s..3s")]).unwrap_err().contains("time"));
    }
}
