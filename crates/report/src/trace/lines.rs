//! One line of JSON for each operation, and lines that name processes, tracks and files. Called millions of times, so
//! numbers are written by hand and nothing is allocated per operation.

use std::collections::HashMap;

use model::spans::{OperationSpan, SpanFile, SpanKind, SpanTrack};
use model::units::Nanos;

use super::{END, START};

/// The process that writes a trace.
#[derive(Clone, Debug)]
pub struct TraceProcess {
    pub number: u64,
    /// Such as its number and host.
    pub name: String,
    /// The version of feedline.
    pub version: String,
    /// The limits of the trace, for people.
    pub limits: String,
}

/// Writes the name of a file into the buffer.
pub type WriteFileName<'a> = dyn FnMut(SpanFile, &mut String) + 'a;

/// Files whose name was written recently, by a part of their number. A file that is not there is named again, so the
/// memory does not depend on the number of files.
const NAMED: usize = 1 << 16;

/// Writes lines into a buffer.
pub(super) struct TraceLines {
    pub(super) text: Vec<u8>,
    process: u64,
    /// The line of each kind up to its track.
    heads: Vec<Vec<u8>>,
    tracks: HashMap<SpanTrack, u64>,
    last_track: Option<(SpanTrack, u64)>,
    named: Vec<u64>,
    name: String,
    is_empty: bool,
}

impl TraceLines {
    pub(super) fn new(process: &TraceProcess) -> TraceLines {
        let TraceProcess { number, name, version, limits } = process;
        let head = |kind: SpanKind| {
            let (name, category) = (kind.name(), kind.category());
            let head = format!(r#"{{"name":"{name}","cat":"{category}","ph":"X","pid":{number},"tid":"#);
            head.into_bytes()
        };
        let mut lines = TraceLines {
            text: Vec::new(),
            process: *number,
            heads: SpanKind::all().map(head).collect(),
            tracks: HashMap::new(),
            last_track: None,
            named: vec![u64::MAX; NAMED],
            name: String::new(),
            is_empty: true,
        };
        lines.text.extend_from_slice(b"[\n");
        lines.metadata("process_name", 0, &format!(r#""name":{}"#, quoted(name)));
        lines.metadata("process_sort_index", 0, &format!(r#""sort_index":{number}"#));
        let start = format!(r#""version":{},"limits":{}"#, quoted(version), quoted(limits));
        lines.metadata(START, 0, &start);
        lines
    }

    /// A line about the trace.
    fn metadata(&mut self, name: &str, track: u64, arguments: &str) {
        self.separate();
        let process = self.process;
        let line = format!(
            r#"{{"name":"{name}","cat":"dftracer","ph":"M","pid":{process},"tid":{track},"args":{{{arguments}}}}}"#
        );
        self.text.extend_from_slice(line.as_bytes());
        self.text.push(b'\n');
    }

    /// The comma before an event, on its own line.
    fn separate(&mut self) {
        if !std::mem::take(&mut self.is_empty) {
            self.text.extend_from_slice(b",\n");
        }
    }

    /// Adds an operation that began at `at` on the clock of the trace.
    pub(super) fn add(&mut self, span: &OperationSpan, at: Nanos, name_of: &mut WriteFileName<'_>) {
        let track = self.track(span.track);
        if let Some(file) = span.file {
            self.name_file(file, name_of);
        }
        self.separate();
        self.text.extend_from_slice(&self.heads[span.kind as usize]);
        number(&mut self.text, track);
        self.text.extend_from_slice(br#","ts":"#);
        microseconds(&mut self.text, at);
        self.text.extend_from_slice(br#","dur":"#);
        microseconds(&mut self.text, span.took);
        self.text.extend_from_slice(br#","args":{"epoch":"#);
        number(&mut self.text, span.epoch);
        if let Some(step) = span.step {
            self.text.extend_from_slice(br#","step":"#);
            number(&mut self.text, u64::from(step));
        }
        if let Some(file) = span.file {
            self.text.extend_from_slice(br#","fhash":""#);
            hexadecimal(&mut self.text, hash(file));
            self.text.push(b'"');
        }
        if span.bytes > 0 {
            self.text.extend_from_slice(br#","offset":"#);
            number(&mut self.text, span.offset);
            self.text.extend_from_slice(br#","bytes":"#);
            number(&mut self.text, span.bytes);
        }
        self.text.extend_from_slice(b"}}\n");
    }

    /// The last lines of the trace.
    pub(super) fn end(&mut self, arguments: &str) {
        self.metadata(END, 0, arguments);
        self.text.extend_from_slice(b"]\n");
    }

    /// The number of a track; its first operation is preceded by its name.
    fn track(&mut self, track: SpanTrack) -> u64 {
        if let Some((last, number)) = self.last_track
            && last == track
        {
            return number;
        }
        // Number 0 has the lines about the whole trace.
        let next = self.tracks.len() as u64 + 1;
        let number = *self.tracks.entry(track).or_insert(next);
        self.last_track = Some((track, number));
        if number == next {
            let (name, place) = title(track);
            self.metadata("thread_name", number, &format!(r#""name":"{name}""#));
            self.metadata("thread_sort_index", number, &format!(r#""sort_index":{place}"#));
        }
        number
    }

    /// Writes the name of a file, unless it was written recently.
    fn name_file(&mut self, file: SpanFile, name_of: &mut WriteFileName<'_>) {
        let hash = hash(file);
        let place = (hash >> 1) as usize % NAMED;
        if self.named[place] == hash {
            return;
        }
        self.named[place] = hash;
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        name_of(file, &mut name);
        self.separate();
        self.text.extend_from_slice(br#"{"name":"FH","cat":"dftracer","ph":"M","pid":"#);
        number(&mut self.text, self.process);
        self.text.extend_from_slice(br#","tid":0,"args":{"name":"#);
        quote(&mut self.text, &name);
        self.text.extend_from_slice(br#","value":""#);
        hexadecimal(&mut self.text, hash);
        self.text.extend_from_slice(b"\"}}\n");
        self.name = name;
    }
}

/// What a file is called in events: DFTracer has a hash of the name there.
fn hash(file: SpanFile) -> u64 {
    match file {
        SpanFile::Train(number) => number << 1,
        SpanFile::Valid(number) => number << 1 | 1,
    }
}

/// The name of a track, and its place among all.
fn title(track: SpanTrack) -> (String, u64) {
    match track {
        SpanTrack::Run => ("run".to_owned(), 0),
        SpanTrack::Checkpoints => ("checkpoints".to_owned(), 1),
        SpanTrack::Durability => ("durability of checkpoints".to_owned(), 2),
        SpanTrack::Drains => ("drains".to_owned(), 3),
        SpanTrack::Rank(rank) => (format!("rank {rank}"), 4 + (u64::from(rank) << 20)),
        SpanTrack::Reader { rank, reader } => {
            (format!("rank {rank} reader {reader}"), 5 + (u64::from(rank) << 20) + u64::from(reader))
        }
    }
}

/// A text in quotes, as JSON.
pub(super) fn quoted(text: &str) -> String {
    let mut bytes = Vec::new();
    quote(&mut bytes, text);
    String::from_utf8(bytes).unwrap_or_default()
}

fn quote(to: &mut Vec<u8>, text: &str) {
    to.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => to.extend_from_slice(&[b'\\', byte]),
            0..0x20 | 0x7f => to.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => to.push(byte),
        }
    }
    to.push(b'"');
}

fn number(to: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut place = digits.len();
    loop {
        place -= 1;
        digits[place] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    to.extend_from_slice(&digits[place..]);
}

fn hexadecimal(to: &mut Vec<u8>, value: u64) {
    let digits = (u64::BITS - value.leading_zeros()).div_ceil(4).max(1);
    to.extend((0..digits).rev().map(|digit| b"0123456789abcdef"[(value >> (4 * digit) & 0xf) as usize]));
}

/// Nanoseconds as microseconds, the unit of the format, without loss.
fn microseconds(to: &mut Vec<u8>, Nanos(value): Nanos) {
    number(to, value / 1000);
    let rest = value % 1000;
    if rest > 0 {
        let digits = [rest / 100, rest / 10 % 10, rest % 10].map(|digit| b'0' + digit as u8);
        to.push(b'.');
        to.extend_from_slice(&digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn numbers_are_exact() {
        for value in [0, 7, 10, 999, 1000, 123_456_789, u64::MAX] {
            assert_eq!(text(|to| number(to, value)), value.to_string());
            assert_eq!(text(|to| hexadecimal(to, value)), format!("{value:x}"));
        }
        for (value, shown) in
            [(0, "0"), (5, "0.005"), (12_340, "12.340"), (7000, "7"), (1_000_001, "1000.001")]
        {
            assert_eq!(text(|to| microseconds(to, Nanos(value))), shown);
        }
    }

    #[test]
    fn any_name_is_valid_json() {
        for name in ["a b", "\"q\\", "tab\tnew\nline\u{0}", "\u{7f}\u{1f}", "grün 漢字", "</script>"] {
            assert_eq!(serde_json::from_str::<String>(&quoted(name)).unwrap(), name);
        }
    }
}
