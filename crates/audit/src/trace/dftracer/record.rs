//! One event of a trace in Chrome's JSON format, as DFTracer and feedline write it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::trace::feed::file_number;

/// A line.
#[derive(Debug, Deserialize)]
pub(super) struct TraceRecord<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) cat: Cow<'a, str>,
    #[serde(default)]
    ph: Value,
    #[serde(default)]
    pub(super) pid: u32,
    #[serde(default)]
    pub(super) tid: u32,
    ts: Option<f64>,
    dur: Option<f64>,
    #[serde(default)]
    pub(super) args: RecordArguments,
}

/// What is used of the arguments.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RecordArguments {
    pub(super) name: Value,
    pub(super) value: Value,
    pub(super) fhash: Value,
    pub(super) fname: Value,
    pub(super) ret: Value,
    pub(super) offset: Value,
    pub(super) count: Value,
    pub(super) size: Value,
    pub(super) bytes: Value,
    pub(super) whence: Value,
    pub(super) flags: Value,
    pub(super) ppid: Value,
    pub(super) cmd_hash: Value,
    pub(super) lost: Value,
    pub(super) epoch: Value,
    pub(super) step: Value,
}

/// What a line is. DFTracer has numbers where Chrome has letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    Complete,
    Metadata,
    Other,
}

/// The event of a line; `None` for lines with brackets and commas only.
pub(super) fn parse(line: &[u8]) -> Option<Result<TraceRecord<'_>, serde_json::Error>> {
    let line = line.trim_ascii();
    let line = line.strip_prefix(b"[").unwrap_or(line);
    let line = line.strip_suffix(b",").unwrap_or(line).trim_ascii();
    let is_nothing = matches!(line, b"" | b"]" | b"," | b"[" | b"{" | b"}");
    (!is_nothing).then(|| serde_json::from_slice(line.strip_prefix(b",").unwrap_or(line)))
}

/// A number or text as text.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A whole number, which may be in quotes.
pub(super) fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// The number of a file in the aggregation, from the trace's own name for it.
pub(super) fn number_of(value: &Value) -> Option<u64> {
    (!value.is_null()).then(|| file_number(plain(value).as_bytes()))
}

impl TraceRecord<'_> {
    pub(super) fn kind(&self) -> RecordKind {
        match (self.ph.as_str(), self.ph.as_u64()) {
            (Some("X"), _) | (_, Some(1)) if self.ts.is_some() => RecordKind::Complete,
            (Some("M"), _) | (_, Some(4)) => RecordKind::Metadata,
            _ => RecordKind::Other,
        }
    }

    /// Start in microseconds.
    pub(super) fn start(&self) -> f64 {
        self.ts.unwrap_or(0.0)
    }

    /// Start and duration in nanoseconds, from `origin` on.
    pub(super) fn span(&self, origin: f64) -> (u64, u64) {
        let ns = |microseconds: f64| (microseconds.max(0.0) * 1e3).round() as u64;
        (ns(self.start() - origin), ns(self.dur.unwrap_or(0.0)))
    }

    pub(super) fn has_duration(&self) -> bool {
        self.dur.is_some()
    }

    /// Whether it is a call of the C library.
    pub(super) fn is_call(&self) -> bool {
        self.cat.eq_ignore_ascii_case("posix") || self.cat.eq_ignore_ascii_case("stdio")
    }

    /// The file that it is about.
    pub(super) fn file(&self) -> Option<u64> {
        number_of(&self.args.fhash).or_else(|| number_of(&self.args.fname))
    }
}
