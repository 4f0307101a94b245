//! Existing files on a device whose requests take 2 ms each: readers fetch metadata concurrently, and the requests of
//! each reader follow one another on its own timeline.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Mutex;

use format::Content;
use model::names::Name;
use store::{
    Buffer, Capabilities, Fetch, FetchWait, Fetched, FinishedFetch, Lane, Now, Null, Purpose, Spans, Store,
    StoreError, Threads, Traffic,
};

use super::tests::{computed, plan, with_rig};
use super::*;
use crate::meter::FakeClock;

const LATENCY: Nanos = Nanos(2_000_000);
const READERS: usize = 8;
const FILES: u64 = 64;

/// Files in memory behind a device with unlimited channels. Waiting for it advances the fake clock.
#[derive(Debug)]
struct Device<'a> {
    clock: &'a FakeClock,
    files: Vec<(Name, Vec<u8>)>,
    /// Reader, purpose and start time of every fetch.
    asked: Mutex<Vec<(usize, Purpose, Nanos)>>,
    /// Maximum number of metadata fetches in flight.
    most_metadata: Mutex<usize>,
}

struct DeviceLane<'a> {
    device: &'a Device<'a>,
    ends: BinaryHeap<Reverse<(Nanos, usize)>>,
    in_flight: Vec<Option<(Purpose, FinishedFetch)>>,
}

impl<'a> Device<'a> {
    fn new(clock: &'a FakeClock) -> Device<'a> {
        Device { clock, files: Vec::new(), asked: Mutex::default(), most_metadata: Mutex::default() }
    }

    /// Creates the files of a plan.
    fn fill(&mut self, plan: &TrainingPlan) {
        let (format, content) = (format::plain(&plan.format).unwrap(), Content::new(1));
        let ((list, _), mut scratch) = (computed(plan), Vec::new());
        let file = |number: u64| {
            let (mut name, mut bytes) = (Name::default(), Vec::new());
            list.entry(number, &mut name).unwrap();
            plan.data.computed().unwrap().with_shape(number, |shape| {
                let mut sink = |piece: &[u8]| {
                    bytes.extend_from_slice(piece);
                    Ok(())
                };
                format.encode(shape, &content, number, &mut scratch, &mut sink).unwrap();
            });
            (name, bytes)
        };
        self.files = (0..plan.data.train.files).map(file).collect();
    }
}

impl Lane for DeviceLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        let (_, file) = self.device.files.iter().find(|(name, _)| name == fetch.name).unwrap();
        assert_eq!(fetch.file_bytes, file.len() as u64);
        let ranges = fetch.ranges.iter().map(|range| &file[range.offset as usize..range.end() as usize]);
        let bytes: Vec<u8> = ranges.flatten().copied().collect();
        let kept = fetch.into.map(|_| {
            let mut buffer = Buffer::with_capacity(bytes.len());
            buffer.room().copy_from_slice(&bytes);
            buffer.set_len(bytes.len());
            buffer
        });
        let brought = Fetched { bytes: bytes.len() as u64, opens: 1, reads: 1, ..Fetched::default() };
        let at = fetch.at + LATENCY;
        let done = FinishedFetch { reader, at, began: fetch.at, outcome: Ok(brought), kept };
        self.device.asked.lock().unwrap().push((reader, fetch.purpose, fetch.at));
        self.ends.push(Reverse((at, reader)));
        self.in_flight[reader] = Some((fetch.purpose, done));
        let metadata = self.in_flight.iter().flatten().filter(|(purpose, _)| *purpose == Purpose::Metadata);
        let mut most = self.device.most_metadata.lock().unwrap();
        *most = (*most).max(metadata.count());
    }

    fn reap(&mut self) -> Option<FinishedFetch> {
        let Reverse((at, reader)) = *self.ends.peek()?;
        if at > self.device.clock.now() {
            return None;
        }
        self.ends.pop();
        self.in_flight[reader].take().map(|(_, done)| done)
    }

    fn awaits(&self) -> FetchWait {
        if self.ends.is_empty() { FetchWait::Nothing } else { FetchWait::Medium }
    }

    fn wait(&mut self, _most: Nanos) {
        if let Some(Reverse((at, _))) = self.ends.peek() {
            self.device.clock.sleep_until(*at, &|| false);
        }
    }

    fn take_spans(&mut self) -> Spans {
        Spans::default()
    }
}

impl Store for Device<'_> {
    fn name(&self) -> &'static str {
        "device"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            holds_files: true,
            threads: Threads::One,
            brings_bytes: true,
            cached: false,
            odirect: false,
        }
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        let in_flight = (0..traffic.readers).map(|_| None).collect();
        Ok(Box::new(DeviceLane { device: self, ends: BinaryHeap::new(), in_flight }))
    }

    fn files(&self) -> &dyn store::Files {
        static NONE: Null = Null;
        NONE.files()
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

#[test]
fn metadata_fetches_in_flight_equal_the_number_of_readers() {
    for format in ["npz", "hdf5", "parquet"] {
        let clock = FakeClock::default();
        let format = format!("dataset.format={format}");
        let settings = [
            &*format,
            "dataset.num_files_train=64",
            "dataset.record_length_bytes=200000",
            "reader.batch_size=1",
            "reader.read_threads=8",
            "reader.prefetch_size=64",
            "reader.verify=none",
            "train.epochs=1",
            "train.computation_time=0",
        ];
        let mut device = Device::new(&clock);
        let mut plan = plan(&settings, 1, &device);
        plan.data.exact = false;
        device.fill(&plan);
        let ledger = with_rig(&plan, &device, &clock, &Stop::default(), |rig| train(rig).unwrap());
        assert_eq!(ledger.faults(), []);
        assert_eq!(*device.most_metadata.lock().unwrap(), READERS, "{format}");
        let asked = device.asked.into_inner().unwrap();
        let samples = asked.iter().filter(|(_, purpose, _)| matches!(purpose, Purpose::Samples(_))).count();
        assert_eq!(samples as u64, FILES, "{format}");
        let each = asked.len() / READERS;
        assert!(each > samples / READERS, "{format}: metadata is fetched");
        for reader in 0..READERS {
            let of_reader = asked.iter().filter(|(asker, ..)| *asker == reader);
            let begins: Vec<u64> = of_reader.map(|(.., at)| at.0).collect();
            let expected: Vec<u64> = (0..each as u64).map(|number| number * LATENCY.0).collect();
            assert_eq!(begins, expected, "{format}: requests of reader {reader} follow one another");
        }
        assert_eq!(clock.now(), Nanos(each as u64 * LATENCY.0), "{format}: no reader waits for another");
    }
}
