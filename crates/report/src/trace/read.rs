//! Reads traces, compressed or not, of feedline, of DFTracer, and of other programs that write Chrome's format. Memory
//! depends on the numbers of tracks and of kinds of operations, not on the length of the trace.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use model::units::Nanos;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::objects::{EventScanEnd, EventScanError, each_object};
use super::summary::{SeenEvent, SummaryBuilder, TraceSummary};
use super::{END, START};

/// Why a file cannot be summarised.
#[derive(Debug, Error)]
pub enum TraceError {
    #[error("cannot read it: {0}")]
    Io(io::Error),
    #[error("it is not a trace: {0}")]
    Foreign(String),
    #[error("it is not a trace: it has no events")]
    Empty,
}

/// An event as it is written.
#[derive(Debug, Deserialize)]
struct WrittenEvent<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    cat: Cow<'a, str>,
    #[serde(default)]
    ph: Value,
    #[serde(default)]
    pid: Value,
    #[serde(default)]
    tid: Value,
    ts: Option<f64>,
    dur: Option<f64>,
    #[serde(default)]
    args: WrittenArguments,
}

/// What is used of an event's arguments.
#[derive(Debug, Default, Deserialize)]
struct WrittenArguments {
    #[serde(default)]
    name: Value,
    #[serde(default)]
    value: Value,
    #[serde(default)]
    fhash: Value,
    #[serde(default)]
    bytes: Value,
    #[serde(default)]
    ret: Value,
    #[serde(default)]
    lost: Value,
    #[serde(default)]
    limits: Value,
    #[serde(default)]
    limit_reached: Value,
}

/// What an event is: DFTracer writes numbers where Chrome has letters.
enum EventKind {
    Complete,
    Metadata,
    Other,
}

impl WrittenEvent<'_> {
    fn kind(&self) -> EventKind {
        match &self.ph {
            Value::String(letter) if letter == "X" => EventKind::Complete,
            Value::String(letter) if letter == "M" => EventKind::Metadata,
            Value::Number(number) if number.as_u64() == Some(1) => EventKind::Complete,
            Value::Number(number) if number.as_u64() == Some(4) => EventKind::Metadata,
            _ => EventKind::Other,
        }
    }

    fn track(&self) -> (String, String) {
        (plain(&self.pid), plain(&self.tid))
    }

    fn operation(&self) -> SeenEvent<'_> {
        let time =
            |microseconds: Option<f64>| Nanos((microseconds.unwrap_or(0.0).max(0.0) * 1e3).round() as u64);
        // DFTracer has the bytes of a read or write in the result of the call.
        let transfers = matches!(
            &*self.name,
            "read" | "write" | "pread" | "pwrite" | "pread64" | "pwrite64" | "fread" | "fwrite"
        );
        let bytes =
            whole(&self.args.bytes).or_else(|| whole(&self.args.ret).filter(|_| transfers)).unwrap_or(0);
        let file = (!self.args.fhash.is_null()).then(|| plain(&self.args.fhash));
        SeenEvent {
            name: &self.name,
            category: &self.cat,
            at: time(self.ts),
            took: time(self.dur),
            bytes,
            file,
        }
    }
}

/// A number or text as text.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A whole number, which may be in quotes.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// The first bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The events of a file as a stream of text.
fn opened<'a>(input: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let is_compressed = input.fill_buf()?.starts_with(&GZIP);
    Ok(match is_compressed {
        true => Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input))),
        false => Box::new(input),
    })
}

/// Passes on each event of a trace; returns whether the trace is cut off.
fn each_event(input: impl Read, mut each: impl FnMut(&WrittenEvent<'_>) -> bool) -> Result<bool, TraceError> {
    let mut input = opened(input).map_err(TraceError::Io)?;
    let (mut strange, mut count) = (None, 0u64);
    let end =
        each_object(&mut *input, &mut |object| match serde_json::from_slice::<WrittenEvent<'_>>(object) {
            Ok(event) => {
                count += 1;
                each(&event)
            }
            Err(error) => {
                strange = Some(error.to_string());
                false
            }
        });
    if let Some(what) = strange {
        return Err(TraceError::Foreign(format!("after {count} events, {what}")));
    }
    match end {
        Ok(EventScanEnd::Whole) => Ok(false),
        Ok(EventScanEnd::Within) => Ok(true),
        // The end of a compressed file is missing.
        Err(EventScanError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
        Err(EventScanError::Io(error)) if error.kind() == io::ErrorKind::InvalidInput => {
            Err(TraceError::Foreign(format!("after {count} events, its compressed data is damaged")))
        }
        Err(EventScanError::Io(error)) => Err(TraceError::Io(error)),
        Err(EventScanError::Foreign(byte)) => {
            let byte = byte.escape_ascii();
            Err(TraceError::Foreign(format!("after {count} events, '{byte}' where an event should begin")))
        }
        Err(EventScanError::TooLong) => {
            Err(TraceError::Foreign(format!("after {count} events, an event that is longer than 1 MiB")))
        }
    }
}

/// Adds up a trace, except for the names of files: those that the summary needs are found by `file_names`.
pub fn summarise(input: impl Read) -> Result<TraceSummary, TraceError> {
    let mut builder = SummaryBuilder::default();
    let is_cut = each_event(input, |event| {
        match event.kind() {
            EventKind::Complete => builder.add(event.track(), &event.operation()),
            EventKind::Metadata => note(&mut builder, event),
            EventKind::Other => builder.skip(),
        }
        true
    })?;
    builder.finish(is_cut).ok_or(TraceError::Empty)
}

fn note(builder: &mut SummaryBuilder, event: &WrittenEvent<'_>) {
    let args = &event.args;
    match &*event.name {
        "thread_name" => builder.name_track(event.track(), plain(&args.name)),
        "process_name" => builder.name_process(plain(&event.pid), plain(&args.name)),
        START => builder.begin(plain(&args.limits)),
        END => builder.end(whole(&args.lost).unwrap_or(0), args.limit_reached.as_str()),
        _ => builder.see_metadata(),
    }
}

/// The names of these files in a trace.
pub fn file_names(input: impl Read, files: &[&str]) -> Result<BTreeMap<String, String>, TraceError> {
    let mut names = BTreeMap::new();
    if files.is_empty() {
        return Ok(names);
    }
    each_event(input, |event| {
        if event.name == "FH" && matches!(event.kind(), EventKind::Metadata) {
            let hash = plain(&event.args.value);
            if files.contains(&hash.as_str()) {
                names.insert(hash, plain(&event.args.name));
            }
        }
        names.len() < files.len()
    })?;
    Ok(names)
}
