//! The sequence of requests that each loader discipline sends to storage, and where it stops while one of them is slow.
//!
//! One thread runs readers and accelerator on a fake clock: an accelerator without compute time takes each batch as
//! soon as it is ready. Requests end one by one, the oldest first, once all have begun that can begin. `r1:7` is reader
//! 1 requesting sample 7, `r1:B2` requesting the third sample of stream B. `|` is the point at which all work waits for
//! the slow request, which then ends. Of readers that find work at the same time, the last one begins first.

use std::collections::VecDeque;
use std::sync::Mutex;

use store::{
    Capabilities, Fetch, FetchWait, Fetched, FinishedFetch, Lane, Null, Spans, Store, StoreError, Threads,
    Traffic,
};

use super::tests::{plan, with_rig};
use super::*;
use crate::meter::FakeClock;

/// A store that records its requests.
#[derive(Debug, Default)]
struct Recorder {
    requests: Mutex<Vec<String>>,
    /// The slow request, as it is recorded without its reader.
    slow: Option<&'static str>,
    /// Requested when nothing is in flight and no more requests come.
    rest: Stop,
}

#[derive(Debug)]
struct RecorderLane<'a> {
    store: &'a Recorder,
    in_flight: VecDeque<FinishedFetch>,
    held: Option<FinishedFetch>,
    ended: Option<FinishedFetch>,
}

impl Recorder {
    fn note(&self, request: String) {
        self.requests.lock().unwrap().push(request);
    }
}

/// The requested sample: its file, and in a stream its index there.
fn shown(fetch: &Fetch<'_>) -> String {
    let name = fetch.name.to_string();
    let digits = name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit);
    let file: u8 = digits.collect::<String>().parse().unwrap();
    if !name.ends_with("tfrecord") {
        return file.to_string();
    }
    // Streams are read in blocks that do not end at the ends of samples.
    let share = fetch.ranges[0].offset as f64 / fetch.file_bytes as f64;
    format!("{}{:.0}", char::from(b'A' + file), share * STREAM_SAMPLES)
}

impl Lane for RecorderLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        let shown = shown(&fetch);
        let bytes = fetch.ranges.iter().map(|range| range.len).sum();
        let brought = Fetched { bytes, opens: 1, reads: 1, ..Fetched::default() };
        let done =
            FinishedFetch { reader, at: fetch.at, began: fetch.at, outcome: Ok(brought), kept: fetch.into };
        if self.store.slow == Some(&*shown) {
            self.held = Some(done);
        } else {
            self.in_flight.push_back(done);
        }
        self.store.note(format!("r{reader}:{shown}"));
    }

    fn reap(&mut self) -> Option<FinishedFetch> {
        self.ended.take()
    }

    fn awaits(&self) -> FetchWait {
        FetchWait::Medium
    }

    /// Called when all readers wait.
    fn wait(&mut self, _most: Nanos) {
        self.ended = self.in_flight.pop_front();
        if self.ended.is_none() && self.held.is_some() {
            self.store.note("|".to_owned());
            self.ended = self.held.take();
        }
        if self.ended.is_none() {
            self.store.rest.wish();
        }
    }

    fn take_spans(&mut self) -> Spans {
        Spans::default()
    }
}

impl Store for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            holds_files: false,
            threads: Threads::One,
            brings_bytes: false,
            cached: false,
            odirect: false,
        }
    }

    fn lane<'a>(&'a self, _traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        let in_flight = VecDeque::new();
        Ok(Box::new(RecorderLane { store: self, in_flight, held: None, ended: None }))
    }

    fn files(&self) -> &dyn store::Files {
        static NONE: Null = Null;
        NONE.files()
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Samples per stream.
const STREAM_SAMPLES: f64 = 4.0;

/// Behaviour of the accelerator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accelerator {
    Takes,
    /// Never asks for a batch.
    Stuck,
}
use Accelerator::{Stuck, Takes};

/// The requests of one epoch over 12 files in batches of 3, in their natural order.
fn requests(settings: &str, slow: Option<&'static str>, accelerator: Accelerator) -> String {
    let store = Recorder { slow, ..Recorder::default() };
    let calm = "dataset.num_files_train=12 reader.batch_size=3 reader.sample_shuffle=off train.epochs=1 \
                train.computation_time=0";
    let settings: Vec<&str> = calm.split_whitespace().chain(settings.split_whitespace()).collect();
    let plan = plan(&settings, 1, &store);
    let phase_start = PhaseStart { epoch: 1, begin: Nanos::ZERO, errors: 0, footprint: None };
    let ((), failure) = with_rig(&plan, &store, &FakeClock::default(), &store.rest, |rig| {
        in_context(rig, &plan.train, phase_start, |context| {
            let drive = Drive::new(context);
            context.run.readers.queues.iter().for_each(|queue| queue.open());
            if accelerator == Takes {
                drive.nudge();
            }
            read(context.run, &drive, 0);
        })
    });
    assert!(failure.is_none(), "{failure:?}");
    store.requests.into_inner().unwrap().join(" ")
}

/// Checks the requests of one discipline: settings, the slow sample, and the expected requests.
#[track_caller]
fn check(discipline: &str, table: &[(&str, Option<&'static str>, &str)]) {
    for (settings, slow, expected) in table {
        assert_eq!(
            requests(&format!("{discipline} {settings}"), *slow, Takes),
            *expected,
            "{settings}, {slow:?}"
        );
    }
}

/// Checks how far readers go ahead of an accelerator that takes no batch.
#[track_caller]
fn check_depth(discipline: &str, table: &[(&str, &str)]) {
    for (settings, expected) in table {
        assert_eq!(requests(&format!("{discipline} {settings}"), None, Stuck), *expected, "{settings}");
    }
}

#[test]
fn pytorch_workers_load_batches_of_their_own() {
    let discipline = "framework=pytorch reader.data_loader=pytorch reader.read_threads=2";
    check(
        discipline,
        &[
            ("reader.prefetch_size=0", None, "r0:0 r0:1 r0:2 r1:3 r1:4 r1:5 r0:6 r0:7 r0:8 r1:9 r1:10 r1:11"),
            (
                "reader.prefetch_size=0",
                Some("1"),
                "r0:0 r0:1 | r0:2 r1:3 r1:4 r1:5 r0:6 r0:7 r0:8 r1:9 r1:10 r1:11",
            ),
            ("reader.prefetch_size=2", None, "r1:3 r0:0 r1:4 r0:1 r1:5 r0:2 r0:6 r1:9 r0:7 r1:10 r0:8 r1:11"),
            // The other worker continues, as far as the prefetch depth allows.
            (
                "reader.prefetch_size=2",
                Some("1"),
                "r1:3 r0:0 r1:4 r0:1 r1:5 | r0:2 r0:6 r1:9 r0:7 r1:10 r0:8 r1:11",
            ),
            (
                "reader.prefetch_size=4",
                Some("1"),
                "r1:3 r0:0 r1:4 r0:1 r1:5 r1:9 r1:10 r1:11 | r0:2 r0:6 r0:7 r0:8",
            ),
            // Out of order it also loads the batches that would have been the slow worker's.
            (
                "reader.prefetch_size=2 reader.ordered=false",
                Some("1"),
                "r1:0 r0:3 r1:1 r0:4 r0:5 r0:6 r0:7 r0:8 r0:9 r0:10 r0:11 | r1:2",
            ),
        ],
    );
    check_depth(
        discipline,
        &[
            ("reader.prefetch_size=0", ""),
            ("reader.prefetch_size=1", "r1:3 r0:0 r1:4 r0:1 r1:5 r0:2"),
            ("reader.prefetch_size=2", "r1:3 r0:0 r1:4 r0:1 r1:5 r0:2"),
        ],
    );
}

#[test]
fn tensorflow_maps_over_samples_across_batches() {
    let discipline = "framework=tensorflow reader.data_loader=tensorflow reader.read_threads=3";
    check(
        discipline,
        &[
            ("reader.prefetch_size=0", None, "r2:0 r1:1 r0:2 r0:3 r1:4 r2:5 r2:6 r1:7 r0:8 r0:9 r1:10 r2:11"),
            ("reader.prefetch_size=2", None, "r2:0 r1:1 r0:2 r2:3 r1:4 r0:5 r2:6 r1:7 r0:8 r2:9 r1:10 r0:11"),
            // No reader begins a sample that is three or more beyond the slow one.
            (
                "reader.prefetch_size=2",
                Some("1"),
                "r2:0 r1:1 r0:2 r2:3 | r1:4 r2:5 r0:6 r1:7 r2:8 r0:9 r1:10 r2:11",
            ),
            (
                "reader.prefetch_size=2",
                Some("5"),
                "r2:0 r1:1 r0:2 r2:3 r1:4 r0:5 r2:6 r1:7 | r0:8 r1:9 r2:10 r0:11",
            ),
            (
                "reader.prefetch_size=2 reader.ordered=false",
                Some("1"),
                "r2:0 r1:1 r0:2 r2:3 r0:4 r2:5 r0:6 r2:7 r0:8 r2:9 r0:10 r2:11 |",
            ),
        ],
    );
    check_depth(
        discipline,
        &[
            ("reader.prefetch_size=0", ""),
            // A batch, and the samples that the map holds.
            ("reader.prefetch_size=1", "r2:0 r1:1 r0:2 r2:3 r1:4 r0:5"),
            ("reader.prefetch_size=2", "r2:0 r1:1 r0:2 r2:3 r1:4 r0:5 r2:6 r1:7 r0:8"),
        ],
    );
}

/// Four files of four samples, each larger than a block of the stream; two readers, batches of four.
const STREAMS: &str = "framework=tensorflow reader.data_loader=tensorflow reader.read_threads=2 \
                       dataset.format=tfrecord dataset.num_files_train=4 dataset.num_samples_per_file=4 \
                       dataset.record_length_bytes=1000000 reader.batch_size=4 reader.prefetch_size=1";

#[test]
fn tensorflow_interleaves_streams() {
    check(
        STREAMS,
        &[
            (
                "",
                None,
                "r1:B0 r0:A0 r1:B1 r0:A1 r1:B2 r0:A2 r1:B3 r0:A3 r1:D0 r0:C0 r1:D1 r0:C1 r1:D2 r0:C2 r1:D3 r0:C3",
            ),
            (
                "reader.interleave_cycle=1",
                None,
                "r1:A1 r0:A0 r1:A3 r0:A2 r1:B1 r0:B0 r1:B3 r0:B2 r1:C1 r0:C0 r1:C3 r0:C2 r1:D1 r0:D0 r1:D3 r0:D2",
            ),
            (
                "reader.interleave_cycle=4",
                None,
                "r1:B0 r0:A0 r1:D0 r0:C0 r1:B1 r0:A1 r1:D1 r0:C1 r1:B2 r0:A2 r1:D2 r0:C2 r1:B3 r0:A3 r1:D3 r0:C3",
            ),
            // Two samples of a stream are one request.
            ("reader.interleave_block=2", None, "r1:B0 r0:A0 r1:B2 r0:A2 r1:D0 r0:C0 r1:D2 r0:C2"),
            // The other reader continues until it has a sample beyond the batch.
            (
                "",
                Some("B1"),
                "r1:B0 r0:A0 r1:B1 r0:A1 r0:A2 | r1:B2 r0:A3 r1:B3 r0:C0 r1:D0 r0:C1 r1:D1 r0:C2 r1:D2 r0:C3 r1:D3",
            ),
        ],
    );
}

#[test]
fn a_shuffle_buffer_is_filled_before_the_first_batch() {
    let count = |settings: &str| requests(&format!("{STREAMS} {settings}"), None, Stuck).split(' ').count();
    assert_eq!(count(""), 4 + 2, "a batch, and a sample in flight for each reader");
    assert_eq!(
        count("reader.sample_shuffle=seed reader.shuffle_size=6"),
        4 + 2 + 5,
        "and the buffer except for one sample"
    );
    assert_eq!(count("reader.sample_shuffle=seed reader.shuffle_size=99"), 16, "all samples");
}

#[test]
fn dali_finishes_a_batch_before_the_next() {
    let discipline = "framework=pytorch reader.data_loader=dali reader.read_threads=2";
    let in_order = "r1:0 r0:1 r1:2 r1:3 r0:4 r1:5 r1:6 r0:7 r1:8 r1:9 r0:10 r1:11";
    let slow = "r1:0 r0:1 r1:2 | r0:3 r1:4 r0:5 r0:6 r1:7 r0:8 r0:9 r1:10 r0:11";
    check(
        discipline,
        &[
            ("reader.prefetch_size=0", None, in_order),
            ("reader.prefetch_size=2", None, in_order),
            ("reader.prefetch_size=0", Some("1"), slow),
            ("reader.prefetch_size=2", Some("1"), slow),
            // At most as many readers work as a batch has samples.
            (
                "reader.prefetch_size=2 reader.read_threads=4",
                None,
                "r3:0 r2:1 r1:2 r1:3 r2:4 r3:5 r3:6 r2:7 r1:8 r1:9 r2:10 r3:11",
            ),
        ],
    );
    check_depth(
        discipline,
        &[
            ("reader.prefetch_size=0", ""),
            ("reader.prefetch_size=1", "r1:0 r0:1 r1:2"),
            ("reader.prefetch_size=2", "r1:0 r0:1 r1:2 r1:3 r0:4 r1:5"),
        ],
    );
}

#[test]
fn synthetic_batches_request_nothing() {
    check(
        "reader.data_loader=synthetic",
        &[("reader.prefetch_size=0", None, ""), ("reader.prefetch_size=2", None, "")],
    );
}
