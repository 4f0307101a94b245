//! Finds the events of a trace in a stream of bytes, whatever is between them: commas or not, one per line or all in
//! one. Reads forward and holds one event at a time.

use std::io::{self, BufRead};

/// No event of a trace is longer.
const LONGEST: usize = 1 << 20;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventScanEnd {
    /// After the last event, or with the bracket that ends the array.
    Whole,
    /// Within an event.
    Within,
}

/// Why a stream is not a trace.
#[derive(Debug)]
pub(super) enum EventScanError {
    Io(io::Error),
    /// There is something else where an event should begin.
    Foreign(u8),
    TooLong,
}

/// Where the scan is in an event.
#[derive(Default)]
struct ObjectScan {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl ObjectScan {
    /// Whether the event ends with this byte.
    fn ends_with(&mut self, byte: u8) -> bool {
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

/// The start of a trace whose events are in an object.
const WRAPPED: &[u8] = br#"{"traceEvents":["#;

/// Passes the events of a trace to `each`, as JSON, until it returns false.
pub(super) fn each_object(
    input: &mut dyn BufRead,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<EventScanEnd, EventScanError> {
    let mut object = Vec::new();
    let mut scan = ObjectScan::default();
    // Whether nothing but white space was seen, and whether the array has ended.
    let (mut at_start, mut is_over) = (true, false);
    loop {
        let chunk = match input.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(EventScanError::Io(error)),
        };
        if chunk.is_empty() {
            return Ok(if object.is_empty() { EventScanEnd::Whole } else { EventScanEnd::Within });
        }
        let length = chunk.len();
        for byte in chunk {
            if is_over {
                break;
            }
            if object.is_empty() {
                match *byte {
                    b' ' | b'\t' | b'\r' | b'\n' | b',' => continue,
                    b'[' if at_start => {
                        at_start = false;
                        continue;
                    }
                    b']' if !at_start => {
                        is_over = true;
                        continue;
                    }
                    b'{' => at_start = false,
                    other => return Err(EventScanError::Foreign(other)),
                }
                scan = ObjectScan::default();
            } else if object.len() >= LONGEST {
                return Err(EventScanError::TooLong);
            }
            if scan.in_text || !byte.is_ascii_whitespace() {
                object.push(*byte);
            }
            if scan.ends_with(*byte) {
                if !each(&object) {
                    return Ok(EventScanEnd::Whole);
                }
                object.clear();
            } else if object == WRAPPED {
                object.clear();
            }
        }
        input.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(text: &str) -> (Vec<String>, Result<EventScanEnd, String>) {
        let mut seen = Vec::new();
        // A small buffer, so that events span several reads.
        let mut input = io::BufReader::with_capacity(3, text.as_bytes());
        let end = each_object(&mut input, &mut |object| {
            seen.push(String::from_utf8(object.to_vec()).unwrap());
            true
        });
        (seen, end.map_err(|error| format!("{error:?}")))
    }

    #[test]
    fn events_are_found_in_every_layout() {
        let events = [r#"{"a":1}"#, r#"{"b":{"c":"}\"]"}}"#].map(str::to_owned).to_vec();
        for text in [
            "[\n{\"a\":1}\n,\n{\"b\":{\"c\":\"}\\\"]\"}}\n]\n",
            "[{\"a\":1},{\"b\":{\"c\":\"}\\\"]\"}}]",
            "{\"a\":1}\n{\"b\":{\"c\":\"}\\\"]\"}}\n",
            "{ \"traceEvents\": [ {\"a\": 1}, {\"b\":{\"c\":\"}\\\"]\"}} ], \"displayTimeUnit\": \"ns\" }",
            "[\n{\"a\":1},\n{\"b\":{\"c\":\"}\\\"]\"}},\n",
        ] {
            assert_eq!(objects(text), (events.clone(), Ok(EventScanEnd::Whole)), "{text}");
        }
    }

    #[test]
    fn a_cut_stream_and_a_foreign_one_are_recognized() {
        let (seen, end) = objects("[\n{\"a\":1}\n,\n{\"b\":");
        assert_eq!((seen.len(), end), (1, Ok(EventScanEnd::Within)));
        assert_eq!(objects("[\n{\"a\":1}\n,").1, Ok(EventScanEnd::Whole));
        for text in ["PNG", "[1,2]", "]", "[[", "\u{7f}ELF", "<html>"] {
            assert!(objects(text).1.unwrap_err().contains("Foreign"), "{text}");
        }
        let long = format!("[{{\"a\":\"{}\"}}]", "x".repeat(LONGEST));
        assert!(objects(&long).1.unwrap_err().contains("TooLong"));
    }
}
