//! What is written is read back: counts, times, names, limits, cut and damaged files.

use std::io::{self, Write};

use model::spans::{OperationSpan, SpanFile, SpanKind, SpanTrack};
use model::units::Nanos;

use super::*;

fn process() -> TraceProcess {
    let text = |text: &str| text.to_owned();
    TraceProcess { number: 3, name: text("process 3 on \"host\""), version: text("1"), limits: text("1 MiB") }
}

fn read(number: u64) -> OperationSpan {
    let track = SpanTrack::Reader { rank: (number % 3) as u32, reader: 1 };
    OperationSpan {
        file: Some(SpanFile::Train(number)),
        offset: 10,
        bytes: 100,
        epoch: 1,
        step: Some(number as u32),
        ..OperationSpan::new(SpanKind::Read, track, Nanos(1000 * number), Nanos(number))
    }
}

fn name_of(file: SpanFile, name: &mut String) {
    name.push_str(&format!("train/\"{file:?}\""));
}

/// A trace of this many reads, and how many of them are in it.
fn trace(reads: u64, compressed: bool, limit: u64) -> (Vec<u8>, u64) {
    let mut writer = TraceWriter::new(Vec::new(), compressed, limit, &process());
    writer.flush().unwrap();
    for number in 0..reads {
        let span = read(number);
        if !writer.add(&span, span.at, &mut name_of).unwrap() {
            break;
        }
    }
    writer.flush().unwrap();
    let (events, is_full) = (writer.events(), writer.is_full());
    let limit_reached = is_full.then(|| "1 MiB".to_owned());
    let (bytes, size) = writer.end(&TraceEnd { lost: 7, limit_reached }).unwrap();
    assert_eq!(bytes.len() as u64, size);
    (bytes, events)
}

#[test]
fn what_is_written_is_read_back() {
    for compressed in [false, true] {
        let (bytes, events) = trace(10_000, compressed, 1 << 30);
        let summary = summarise(&*bytes).unwrap();
        assert_eq!((events, summary.events, summary.lost, summary.is_cut), (10_000, 10_000, Some(7), false));
        assert_eq!(summary.limit_reached, None);
        let [reads] = &summary.operations[..] else { panic!("{:?}", summary.operations) };
        assert_eq!((reads.name.as_str(), reads.times.count, reads.bytes), ("read", 10_000, 1_000_000));
        assert_eq!(reads.total, (0..10_000).map(Nanos).sum(), "no time is lost by rounding");
        assert_eq!(summary.span, Nanos(9_999_000 + 9_999));
        let tracks: Vec<&str> = summary.tracks.iter().map(|track| track.name.as_str()).collect();
        assert_eq!(tracks, ["rank 0 reader 1", "rank 1 reader 1", "rank 2 reader 1"]);
        assert_eq!(summary.slowest[0].took, Nanos(9_999));
        let names = file_names(&*bytes, &[&summary.slowest[0].file]).unwrap();
        assert_eq!(names[&summary.slowest[0].file], "train/\"Train(9999)\"");
    }
}

#[test]
fn a_complete_trace_is_one_json_array_with_an_event_per_line() {
    let (bytes, _) = trace(100, false, 1 << 30);
    let all: Vec<serde_json::Value> = serde_json::from_slice(&bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(lines.len(), all.len());
    for line in lines {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    let event = all.iter().find(|event| event["ph"] == "X" && event["args"]["step"] == 5).unwrap();
    assert_eq!((event["ts"].as_f64(), event["dur"].as_f64()), (Some(5.0), Some(0.005)));
    assert_eq!((&event["args"]["fhash"], &event["pid"]), (&"a".into(), &3.into()));
}

#[test]
fn the_limit_holds_and_the_rest_is_readable() {
    for (compressed, limit) in [(false, 64 << 10), (true, 64 << 10), (false, 1 << 20), (true, 300_000)] {
        let (bytes, events) = trace(200_000, compressed, limit);
        assert!(bytes.len() as u64 <= limit, "{} of {limit}", bytes.len());
        assert!(bytes.len() as u64 > limit / 2, "{} of {limit}: it could have held more", bytes.len());
        let summary = summarise(&*bytes).unwrap();
        assert_eq!((summary.events, summary.limit_reached.as_deref()), (events, Some("1 MiB")));
        assert!(events > 100 && events < 200_000 && !summary.is_cut);
    }
}

#[test]
fn a_trace_that_is_cut_anywhere_is_readable_up_to_there() {
    for compressed in [false, true] {
        let (bytes, _) = trace(1000, compressed, 1 << 30);
        for length in [bytes.len() - 1, bytes.len() - 9, bytes.len() / 2, bytes.len() / 3] {
            let summary = summarise(&bytes[..length]).unwrap();
            let is_whole = !compressed && length == bytes.len() - 1;
            assert_eq!(summary.is_cut, !is_whole, "{length} of {}", bytes.len());
            assert!(summary.events > 0 && summary.events <= 1000);
        }
    }
}

#[test]
fn flushed_events_survive_without_an_end() {
    let mut writer = TraceWriter::new(Vec::new(), true, 1 << 30, &process());
    for number in 0..10 {
        writer.add(&read(number), Nanos(number), &mut name_of).unwrap();
    }
    writer.flush().unwrap();
    let (bytes, _) = writer.end(&TraceEnd::default()).unwrap();
    // Everything after the flush is missing: the end, and the trailer of gzip.
    let whole = summarise(&*bytes).unwrap();
    let cut = (1..bytes.len())
        .rev()
        .map(|length| summarise(&bytes[..length]))
        .find_map(|summary| summary.ok().filter(|summary| summary.lost.is_none()));
    assert_eq!((whole.events, cut.map(|cut| (cut.events, cut.is_cut))), (10, Some((10, true))));
}

#[test]
fn garbage_is_refused_with_a_reason() {
    let refused = |bytes: &[u8]| summarise(bytes).unwrap_err().to_string();
    assert!(refused(b"").contains("no events"));
    assert!(refused(b"[]").contains("no events"));
    assert!(refused(b"\x7fELF").contains("'\\x7f' where an event should begin"));
    assert!(refused(b"{\"ph\": nonsense}").contains("after 0 events"));
    let (mut bytes, _) = trace(1000, true, 1 << 30);
    let middle = bytes.len() / 2;
    bytes[middle..].iter_mut().for_each(|byte| *byte = !*byte);
    let message = match summarise(&*bytes) {
        Ok(summary) => panic!("{summary:?}"),
        Err(error) => error.to_string(),
    };
    assert!(message.contains("not a trace") || message.contains("cannot read"), "{message}");
}

#[test]
fn traces_of_dftracer_are_read() {
    let head = r#""pid":7,"tid":7,"cat":"#;
    let lines = [
        format!(r#"{{"name":"FH",{head}"dftracer","ph":4,"args":{{"name":"/data/a","value":"b1"}}}}"#),
        format!(
            r#"{{"name":"pread",{head}"POSIX","ts":100,"dur":5,"ph":1,"args":{{"ret":"4096","fhash":"b1"}}}}"#
        ),
        format!(r#"{{"name":"open64",{head}"POSIX","ts":90,"dur":2,"ph":"X","args":{{"ret":3}}}}"#),
    ];
    let text = format!("[\n{}\n", lines.join("\n"));
    let summary = summarise(text.as_bytes()).unwrap();
    assert_eq!((summary.events, summary.span, summary.lost, summary.is_cut), (2, Nanos(15_000), None, false));
    assert_eq!(summary.operations.iter().map(|operation| operation.bytes).sum::<u64>(), 4096);
    assert_eq!(file_names(text.as_bytes(), &["b1"]).unwrap()["b1"], "/data/a");
    let json = summary.json(&file_names(text.as_bytes(), &["b1"]).unwrap());
    assert_eq!(json["slowest"][0]["file"], "/data/a");
    assert_eq!(json["slowest"][0]["at_ns"], 10_000, "since the first event");
}

#[test]
fn a_full_disk_is_an_error() {
    struct FullDisk(usize);
    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = bytes.len().min(self.0);
            self.0 -= room;
            if room == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(room) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = TraceWriter::new(FullDisk(50_000), false, 1 << 30, &process());
    let failed = (0..10_000).find_map(|number| writer.add(&read(number), Nanos(number), &mut name_of).err());
    assert_eq!(failed.unwrap().kind(), io::ErrorKind::StorageFull);
}
