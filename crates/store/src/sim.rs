//! A simulated device: bandwidth, latency and parallel channels, shared by all readers. Nothing is stored and nothing
//! is copied; the device computes when each request would be done, and the caller waits until then.
//!
//! A request first occupies one of the channels for the latency, then its bytes go through one pipe of the given
//! bandwidth, in the order in which latencies end. So one request's latency overlaps another's transfer: a disk with
//! one channel is limited by its arm for many small requests, and by its pipe for large ones. Opening a file costs
//! nothing; each read of a fetch is a request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::extent::Extent;
use model::location::Location;
use model::plan::Medium;
use model::spans::SpanKind;
use model::units::{Bytes, Nanos};

use crate::null::{NoFiles, OpenNames};
use crate::{
    Backend, Buffer, Capabilities, Fetch, FetchWait, Fetched, Files, FinishedFetch, Lane, OpenTier,
    PlaceKind, Selection, Spans, Store, StoreError, Threads, Traffic, WHOLE, tier,
};

pub(crate) const BACKEND: Backend = Backend {
    name: "sim",
    arguments: "DEVICE",
    summary: "a simulated device, such as `sim:hdd` or `sim:bandwidth=163MB/s,latency=4ms,channels=1`",
    example: "sim:bandwidth=1GB/s,latency=10us",
    medium: Medium::Simulated,
    place: PlaceKind::Any,
    injects_faults: false,
    capabilities: |_| Sim::CAPABILITIES,
    check: Sim::check,
    open: Sim::open_boxed,
    tier: Some(OpenTier::Own(tier::simulated)),
};

/// The parameters of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Bytes per second of the pipe.
    pub bandwidth: f64,
    /// The same for writes, if it differs; all bytes go through the one pipe.
    pub write_bandwidth: Option<f64>,
    /// How long each request waits before its bytes flow.
    pub latency: Nanos,
    /// Requests whose latencies may overlap.
    pub channels: usize,
}

/// Devices of the study of 2018 (Chien et al.). Bandwidths are its IOR maxima; latencies and channels are chosen
/// typical values.
const PROFILES: [(&str, Device); 4] = [
    ("hdd", Device { bandwidth: 163e6, latency: Nanos(4_000_000), channels: 1, write_bandwidth: None }),
    ("ssd", Device { bandwidth: 280e6, latency: Nanos(120_000), channels: 16, write_bandwidth: None }),
    ("optane", Device { bandwidth: 1603e6, latency: Nanos(15_000), channels: 16, write_bandwidth: None }),
    ("lustre", Device { bandwidth: 1968e6, latency: Nanos(2_000_000), channels: 256, write_bandwidth: None }),
];

/// More channels than any array of disks has.
const MOST_CHANNELS: usize = 1 << 20;

impl Device {
    /// Parses `hdd`, `bandwidth=163MB/s,latency=4ms,channels=1`, or a profile with changes: `hdd,latency=0`.
    pub fn parse(text: &str) -> Result<Device, String> {
        let (mut device, mut bandwidth_given, mut seen) = (None, false, Vec::new());
        for (at, word) in text.split(',').map(str::trim).enumerate() {
            match word.split_once('=') {
                None if at == 0 => {
                    device = Some(profile(word)?);
                    bandwidth_given = true;
                }
                None => return Err(format!("'{word}' should be a setting such as latency=4ms")),
                Some((key, _)) if seen.contains(&key) => return Err(format!("{key} is given twice")),
                Some((key, value)) => {
                    seen.push(key);
                    let device = device.get_or_insert(Device {
                        bandwidth: f64::INFINITY,
                        latency: Nanos::ZERO,
                        channels: 1,
                        write_bandwidth: None,
                    });
                    bandwidth_given |= key == "bandwidth";
                    device.set(key, value)?;
                }
            }
        }
        match device {
            Some(device) if bandwidth_given => Ok(device),
            _ => Err("the bandwidth is missing, such as bandwidth=163MB/s".to_owned()),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "bandwidth" => self.bandwidth = rate(key, value)?,
            "write" => self.write_bandwidth = Some(rate(key, value)?),
            "latency" => {
                self.latency = value.parse().map_err(|error| format!("latency={value}: {error}"))?;
            }
            "channels" => match value.parse() {
                Ok(channels) if (1..=MOST_CHANNELS).contains(&channels) => self.channels = channels,
                _ => return Err(format!("channels={value} should be a number from 1 to {MOST_CHANNELS}")),
            },
            _ => {
                return Err(format!("there is no '{key}'; there are bandwidth, write, latency and channels"));
            }
        }
        Ok(())
    }
}

/// Parses `163MB/s`.
fn rate(key: &str, value: &str) -> Result<f64, String> {
    let number = value.strip_suffix("/s").unwrap_or(value);
    let bytes: Bytes = number.parse().map_err(|error| format!("{key}={value}: {error}"))?;
    match bytes.0 {
        0 => Err(format!("{key} must be more than 0")),
        bytes => Ok(bytes as f64),
    }
}

fn profile(name: &str) -> Result<Device, String> {
    PROFILES.iter().find(|(known, _)| *known == name).map(|(_, device)| *device).ok_or_else(|| {
        let known: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
        format!("there is no device '{name}'; the devices are {}", known.join(", "))
    })
}

/// When each part of a device is free again.
#[derive(Debug)]
struct DeviceSchedule {
    device: Device,
    /// The channels that have been used, earliest first.
    channels: BinaryHeap<Reverse<Nanos>>,
    /// In nanoseconds, with fractions: a byte takes less than one.
    pipe: f64,
}

impl DeviceSchedule {
    /// Adds a read that arrives at `at`; returns when its last byte is delivered.
    fn admit(&mut self, at: Nanos, bytes: u64) -> Nanos {
        self.pass(at, bytes, self.device.bandwidth)
    }

    /// Adds a request whose bytes go through the pipe at this rate.
    fn pass(&mut self, at: Nanos, bytes: u64, bandwidth: f64) -> Nanos {
        let free = match self.channels.len() < self.device.channels {
            true => Nanos::ZERO,
            false => self.channels.pop().map_or(Nanos::ZERO, |Reverse(free)| free),
        };
        let answered = at.max(free) + self.device.latency;
        self.channels.push(Reverse(answered));
        self.pipe = self.pipe.max(answered.0 as f64) + bytes as f64 / bandwidth * 1e9;
        Nanos(self.pipe.round() as u64)
    }
}

/// The store on a simulated device. Clones share the device.
#[derive(Clone, Debug)]
pub struct Sim {
    device: Device,
    schedule: Arc<Mutex<DeviceSchedule>>,
}

impl Sim {
    pub(crate) const CAPABILITIES: Capabilities = Capabilities {
        holds_files: false,
        threads: Threads::One,
        brings_bytes: false,
        cached: false,
        odirect: false,
    };

    pub fn new(device: Device) -> Sim {
        // Allocated up front: a reader must not allocate.
        let channels = BinaryHeap::with_capacity(device.channels + 1);
        let schedule = Arc::new(Mutex::new(DeviceSchedule { device, channels, pipe: 0.0 }));
        Sim { device, schedule }
    }

    /// A device that completes every request at once.
    pub(crate) fn idle() -> Sim {
        let (bandwidth, write_bandwidth) = (f64::INFINITY, None);
        Sim::new(Device { bandwidth, write_bandwidth, latency: Nanos::ZERO, channels: 1 })
    }

    /// The device described by the arguments after `sim:`.
    pub(crate) fn parse(arguments: &str) -> Result<Sim, StoreError> {
        let device = Device::parse(arguments).map_err(|mistake| {
            let colon = if arguments.is_empty() { "" } else { ":" };
            StoreError::Refused(format!("the store 'sim{colon}{arguments}': {mistake}"))
        })?;
        Ok(Sim::new(device))
    }

    /// Finds mistakes in the description of the device.
    pub(crate) fn check(selection: &Selection) -> Result<(), StoreError> {
        Sim::parse(&selection.arguments).map(|_| ())
    }

    pub(crate) fn open_boxed(_place: &Location, selection: &Selection) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Sim::parse(&selection.arguments)?))
    }

    /// Adds a read that arrives at `at`; returns when it is done.
    pub(crate) fn read(&self, at: Nanos, bytes: u64) -> Nanos {
        self.schedule().admit(at, bytes)
    }

    /// Adds a write that arrives at `at`; returns when it is done.
    pub(crate) fn write(&self, at: Nanos, bytes: u64) -> Nanos {
        let bandwidth = self.device.write_bandwidth.unwrap_or(self.device.bandwidth);
        self.schedule().pass(at, bytes, bandwidth)
    }

    fn schedule(&self) -> MutexGuard<'_, DeviceSchedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Sim {
    fn simulated(&self) -> Option<Sim> {
        Some(self.clone())
    }

    fn name(&self) -> &'static str {
        "sim"
    }

    fn capabilities(&self) -> Capabilities {
        Sim::CAPABILITIES
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        let readers = (0..traffic.readers).map(|_| SimFetch::default()).collect();
        let events = BinaryHeap::with_capacity(traffic.readers);
        let held = OpenNames::new(traffic.readers);
        Ok(Box::new(SimLane { store: self, traffic, readers, held, events, spans: Spans::default() }))
    }

    fn files(&self) -> &dyn Files {
        &NoFiles { store: "sim" }
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        let Device { bandwidth, latency, channels, .. } = self.device;
        vec![
            ("simulated", true.to_string()),
            ("bandwidth_bytes_per_second", bandwidth.to_string()),
            ("latency_ns", latency.0.to_string()),
            ("channels", channels.to_string()),
        ]
    }
}

/// A reader's fetch in the device.
#[derive(Debug, Default)]
struct SimFetch {
    /// The ranges, the index of the current one, and how much of it has been requested.
    ranges: Vec<Extent>,
    range: usize,
    within: u64,
    began: Nanos,
    /// The request in the device, and when it was made.
    asked: Extent,
    asked_at: Nanos,
    brought: Fetched,
    kept: Option<Buffer>,
}

impl SimFetch {
    /// Bytes of the next request; `None` when all have been requested.
    fn next(&mut self, transfer: u64) -> Option<u64> {
        let range = self.ranges.get(self.range)?;
        let bytes = (range.len - self.within).min(transfer);
        self.asked = Extent { offset: range.offset + self.within, len: bytes };
        self.within += bytes;
        if self.within == range.len {
            (self.range, self.within) = (self.range + 1, 0);
        }
        self.brought.bytes += bytes;
        self.brought.reads += 1;
        Some(bytes)
    }
}

struct SimLane<'a> {
    store: &'a Sim,
    traffic: Traffic<'a>,
    readers: Vec<SimFetch>,
    held: OpenNames,
    /// When each request in the device is done, and its reader.
    events: BinaryHeap<Reverse<(Nanos, usize)>>,
    spans: Spans,
}

impl SimLane<'_> {
    /// Passes the reader's next request to the device; returns whether there was one.
    fn request(&mut self, reader: usize, at: Nanos) -> bool {
        let fetch = &mut self.readers[reader];
        let Some(bytes) = fetch.next(self.traffic.transfer.max(1) as u64) else { return false };
        fetch.asked_at = at;
        let done = self.store.schedule().admit(at, bytes);
        self.events.push(Reverse((done, reader)));
        true
    }

    fn end(&mut self, reader: usize, at: Nanos, outcome: Result<(), StoreError>) -> FinishedFetch {
        let fetch = &mut self.readers[reader];
        let outcome = outcome.map(|()| fetch.brought);
        FinishedFetch { reader, at, began: fetch.began, outcome, kept: fetch.kept.take() }
    }
}

impl Lane for SimLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        let under_way = &mut self.readers[reader];
        under_way.ranges.clear();
        under_way.ranges.extend_from_slice(fetch.ranges);
        (under_way.range, under_way.within, under_way.asked) = (0, 0, WHOLE);
        under_way.brought = Fetched { opens: self.held.open(reader, &fetch), ..Fetched::default() };
        (under_way.kept, under_way.began) = (fetch.into, fetch.at);
        if !self.request(reader, fetch.at) {
            self.events.push(Reverse((fetch.at, reader)));
        }
    }

    fn reap(&mut self) -> Option<FinishedFetch> {
        loop {
            let Reverse((at, reader)) = *self.events.peek()?;
            if at > self.traffic.clock.now() {
                return None;
            }
            self.events.pop();
            let SimFetch { asked_at, asked, .. } = self.readers[reader];
            self.traffic.record(&mut self.spans, reader, SpanKind::Read, (asked_at, at), asked);
            // Relaxed: the flag publishes no other data.
            if self.traffic.give_up.load(Ordering::Relaxed) {
                return Some(self.end(reader, at, Err(StoreError::GivenUp)));
            }
            if !self.request(reader, at) {
                return Some(self.end(reader, at, Ok(())));
            }
        }
    }

    fn awaits(&self) -> FetchWait {
        match self.events.peek() {
            Some(Reverse((at, _))) => FetchWait::Moment(*at),
            None => FetchWait::Nothing,
        }
    }

    fn take_spans(&mut self) -> Spans {
        std::mem::take(&mut self.spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> DeviceSchedule {
        let device = Device::parse(text).unwrap();
        DeviceSchedule { device, channels: BinaryHeap::new(), pipe: 0.0 }
    }

    #[test]
    fn devices_are_parsed() {
        assert_eq!(Device::parse("hdd"), Device::parse("bandwidth=163MB/s,latency=4ms,channels=1"));
        assert_eq!(Device::parse("lustre,latency=0").unwrap().latency, Nanos::ZERO);
        assert_eq!(Device::parse("bandwidth=1GiB").unwrap().bandwidth, (1u64 << 30) as f64);
        for (text, mistake) in [
            ("", "there is no device ''; the devices are hdd, ssd, optane, lustre"),
            ("tape", "there is no device 'tape'; the devices are hdd, ssd, optane, lustre"),
            ("latency=4ms", "the bandwidth is missing, such as bandwidth=163MB/s"),
            ("hdd,16", "'16' should be a setting such as latency=4ms"),
            ("hdd,depth=3", "there is no 'depth'; there are bandwidth, write, latency and channels"),
            ("hdd,channels=0", "channels=0 should be a number from 1 to 1048576"),
            ("bandwidth=0", "bandwidth must be more than 0"),
            ("bandwidth=1GB/s,latency=1ms,bandwidth=2GB/s", "bandwidth is given twice"),
        ] {
            assert_eq!(Device::parse(text), Err(mistake.to_owned()));
        }
        assert!(Device::parse("hdd,latency=4").unwrap_err().contains("unit"));
        assert!(Device::parse("bandwidth=fast").unwrap_err().contains("number"));
    }

    #[test]
    fn a_latency_overlaps_another_requests_transfer() {
        let mut disk = schedule("bandwidth=1GB/s,latency=1ms,channels=1");
        // A million bytes take a millisecond.
        assert_eq!(disk.admit(Nanos(0), 1_000_000), Nanos(2_000_000));
        assert_eq!(disk.admit(Nanos(0), 1_000_000), Nanos(3_000_000), "its latency passed meanwhile");
        assert_eq!(disk.admit(Nanos(9_000_000), 0), Nanos(10_000_000));
        let mut wide = schedule("bandwidth=1GB/s,latency=1ms,channels=2");
        assert_eq!([0, 0, 0].map(|bytes| wide.admit(Nanos(0), bytes).0), [1_000_000, 1_000_000, 2_000_000]);
    }

    #[test]
    fn the_pipe_keeps_fractions_of_nanoseconds() {
        let mut pipe = schedule("bandwidth=3GB/s,latency=0");
        let last = (0..3_000_000).map(|_| pipe.admit(Nanos(0), 1)).last();
        assert_eq!(last, Some(Nanos(1_000_000)), "three bytes per nanosecond");
    }
}
