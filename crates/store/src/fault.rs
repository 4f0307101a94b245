//! Wraps a store that holds files and injects faults by rule. Without a broken disk, this tests how a run reacts to
//! errors, delays and reads that never end. `fault:posix,kind=eio,every=100` fails every 100th fetch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::extent::Extent;
use model::location::Location;
use model::names::Name;
use model::objects::ObjectVersion;
use model::plan::Medium;
use model::requests::RequestCounts;
use model::units::Nanos;
use rustix::io::Errno;

use crate::rule::{self, FaultKind, FaultUse, RuleState};
use crate::{
    Backend, Buffer, Capabilities, Fetch, FetchWait, Files, FinishedFetch, Lane, OpenTier, Operation,
    PlaceKind, Posix, Purpose, Selection, Sim, Spans, Store, StoreError, Threads, Traffic, Waker, Witness,
    tier,
};

pub(crate) const BACKEND: Backend = Backend {
    name: "fault",
    arguments: "STORE,...",
    summary: "another store with injected faults, such as `fault:posix,kind=eio,every=100`",
    example: "fault:posix,kind=eio,file=no-such-file",
    medium: Medium::Storage,
    place: PlaceKind::Any,
    injects_faults: true,
    capabilities: FaultStore::inner_capabilities,
    check: FaultStore::check,
    open: FaultStore::open_boxed,
    tier: Some(OpenTier::Volume(tier::faulty)),
};

/// A store that injects faults into fetches.
#[derive(Debug)]
pub(crate) struct FaultStore {
    inner: Box<dyn Store>,
    place: Location,
    strikes: RuleState,
    text: String,
}

impl FaultStore {
    /// Finds mistakes in the rule.
    pub(crate) fn check(selection: &Selection) -> Result<(), StoreError> {
        rule::parse(selection).map(drop)
    }

    /// What the inner store can do; if it is not named correctly, which `check` reports, what it would have to do.
    pub(crate) fn inner_capabilities(selection: &Selection) -> Capabilities {
        rule::parse(selection).map_or(Posix::CAPABILITIES, |(inner, _)| inner.capabilities())
    }

    pub(crate) fn open_boxed(place: &Location, selection: &Selection) -> Result<Box<dyn Store>, StoreError> {
        let (inner, strikes) = rule::parse_for(selection, FaultUse::Fetches)?;
        let (inner, text) = (inner.open(place.clone())?, selection.arguments.clone());
        Ok(Box::new(FaultStore { inner, place: place.clone(), strikes, text }))
    }

    /// The error with which a fetch ends.
    fn error(&self, fetch: &Fetch<'_>) -> StoreError {
        let name = self.place.join(fetch.name.as_str()).to_string();
        let range = fetch.ranges.first().copied().unwrap_or(Extent { offset: 0, len: 0 });
        match self.strikes.rule.kind {
            FaultKind::Enoent => StoreError::io(Operation::Open, &name, Errno::NOENT),
            FaultKind::Short => {
                StoreError::Short { name, end: range.offset + range.len / 2, needed: range.end() }
            }
            _ => StoreError::io(Operation::Read, &name, Errno::IO),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for FaultStore {
    fn server(&self, number: usize) -> Option<String> {
        self.inner.server(number)
    }

    fn simulated(&self) -> Option<Sim> {
        self.inner.simulated()
    }

    fn name(&self) -> &'static str {
        "fault"
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        // The inner lane may hold its witness as long as the store lives. Leaking a few bytes per lane is acceptable in
        // a store for tests.
        let spoiler: &'a CorruptingWitness<'a> = Box::leak(Box::new(CorruptingWitness {
            witness: traffic.witness,
            spoils: (0..traffic.readers).map(|_| AtomicBool::new(false)).collect(),
        }));
        let witness = traffic.witness.map(|_| spoiler as &dyn Witness);
        Ok(Box::new(FaultLane {
            store: self,
            inner: self.inner.lane(Traffic { witness, ..traffic })?,
            traffic,
            spoiler,
            spoilt: vec![false; traffic.readers],
            done: VecDeque::with_capacity(traffic.readers),
            delayed: Vec::new(),
            hung: 0,
            began: vec![None; traffic.readers],
        }))
    }

    fn files(&self) -> &dyn Files {
        self.inner.files()
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        let mut facts = self.inner.observed();
        facts.push(("faults", self.text.clone()));
        facts.push(("faults_injected", self.strikes.count().to_string()));
        facts
    }
}

/// Passes modified bytes to a witness. Relaxed: only the lane's thread sets and reads the flags.
struct CorruptingWitness<'a> {
    witness: Option<&'a dyn Witness>,
    /// For each reader, whether its next bytes are modified.
    spoils: Vec<AtomicBool>,
}

impl Witness for CorruptingWitness<'_> {
    fn see(&self, reader: usize, file: u64, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(witness) = self.witness else { return Ok(()) };
        if bytes.is_empty() || !self.spoils[reader].swap(false, Ordering::Relaxed) {
            return witness.see(reader, file, offset, bytes);
        }
        let mut wrong = bytes.to_vec();
        wrong[0] ^= 1;
        witness.see(reader, file, offset, &wrong)
    }
}

/// Hangs like a kernel that waits for a server that is gone: nothing can interrupt it.
fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// A fetch that is submitted to the inner store at a later time.
struct Delayed {
    due: Nanos,
    reader: usize,
    name: Name,
    purpose: Purpose,
    ranges: Vec<Extent>,
    file_bytes: u64,
    version: Option<ObjectVersion>,
    keep_open: bool,
    at: Nanos,
    into: Option<Buffer>,
}

struct FaultLane<'a> {
    store: &'a FaultStore,
    inner: Box<dyn Lane + 'a>,
    traffic: Traffic<'a>,
    spoiler: &'a CorruptingWitness<'a>,
    /// For each reader, whether bytes that its fetch keeps are modified.
    spoilt: Vec<bool>,
    done: VecDeque<FinishedFetch>,
    delayed: Vec<Delayed>,
    /// Fetches that never end.
    hung: usize,
    /// For each reader, when its delayed fetch began.
    began: Vec<Option<Nanos>>,
}

impl FaultLane<'_> {
    fn strike(&mut self, reader: usize, mut fetch: Fetch<'_>) {
        let (kind, now) = (self.store.strikes.rule.kind, self.traffic.clock.now());
        let blocks = self.store.capabilities().threads == Threads::PerReader;
        let offset = fetch.ranges.first().map_or(0, |range| range.offset);
        match kind {
            FaultKind::Eio | FaultKind::Enoent | FaultKind::Short | FaultKind::Full => {
                let (outcome, kept) = (Err(self.store.error(&fetch)), fetch.into.take());
                self.traffic.begin(reader, Operation::Read, offset);
                self.traffic.end(reader);
                self.done.push_back(FinishedFetch { reader, at: now, began: now, outcome, kept });
            }
            FaultKind::WrongBytes => {
                self.spoilt[reader] = true;
                self.spoiler.spoils[reader].store(true, Ordering::Relaxed);
                self.inner.submit(reader, fetch);
            }
            FaultKind::Hang => {
                self.traffic.begin(reader, Operation::Read, offset);
                self.hung += 1;
                if blocks {
                    hang();
                }
            }
            FaultKind::Delay => {
                self.began[reader] = Some(now);
                self.traffic.begin(reader, Operation::Read, offset);
                if blocks {
                    std::thread::sleep(Duration::from_nanos(self.store.strikes.rule.span.0));
                    return self.inner.submit(reader, fetch);
                }
                self.delayed.push(Delayed {
                    due: now + self.store.strikes.rule.span,
                    reader,
                    name: fetch.name.clone(),
                    purpose: fetch.purpose,
                    ranges: fetch.ranges.to_vec(),
                    file_bytes: fetch.file_bytes,
                    version: fetch.version,
                    keep_open: fetch.keep_open,
                    at: fetch.at,
                    into: fetch.into,
                });
            }
        }
    }

    /// Submits delayed fetches that are due.
    fn release(&mut self) {
        if self.delayed.is_empty() {
            return;
        }
        let now = self.traffic.clock.now();
        for fetch in self.delayed.extract_if(.., |fetch| fetch.due <= now) {
            let Delayed { reader, name, purpose, ranges, file_bytes, version, keep_open, at, into, .. } =
                fetch;
            let (name, ranges) = (&name, ranges.as_slice());
            let fetch = Fetch { name, purpose, ranges, file_bytes, version, keep_open, at, into };
            self.inner.submit(reader, fetch);
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Lane for FaultLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        match fetch.purpose != Purpose::Upkeep && self.store.strikes.strike(fetch.name) {
            true => self.strike(reader, fetch),
            false => self.inner.submit(reader, fetch),
        }
    }

    fn reap(&mut self) -> Option<FinishedFetch> {
        self.release();
        let mut done = self.done.pop_front().or_else(|| self.inner.reap())?;
        if let Some(began) = self.began[done.reader].take() {
            done.began = began;
        }
        if std::mem::take(&mut self.spoilt[done.reader])
            && let Some(byte) = done.kept.as_mut().and_then(|kept| kept.room().first_mut())
        {
            *byte ^= 1;
        }
        Some(done)
    }

    fn awaits(&self) -> FetchWait {
        match self.inner.awaits() {
            FetchWait::Nothing if !self.done.is_empty() => FetchWait::Nothing,
            FetchWait::Nothing if self.hung > 0 || !self.delayed.is_empty() => FetchWait::Medium,
            awaits => awaits,
        }
    }

    fn wait(&mut self, most: Nanos) {
        let due = self.delayed.iter().map(|fetch| fetch.due).min();
        let soon = due.map_or(most, |due| due.since(self.traffic.clock.now()).min(most));
        self.inner.wait(soon);
    }

    fn waker(&self) -> Option<Arc<dyn Waker>> {
        self.inner.waker()
    }

    fn requests(&self) -> Option<RequestCounts> {
        self.inner.requests()
    }

    fn take_spans(&mut self) -> Spans {
        self.inner.take_spans()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::{Mode, conformance};

    /// A fetch of the ten bytes of a file.
    fn whole(name: &Name, into: Option<Buffer>) -> Fetch<'_> {
        const WHOLE: &[Extent] = &[Extent { offset: 0, len: 10 }];
        let (purpose, at) = (Purpose::Samples(0), Nanos::ZERO);
        Fetch { name, purpose, ranges: WHOLE, file_bytes: 10, version: None, keep_open: false, at, into }
    }

    fn store(arguments: &str) -> (tempfile::TempDir, Box<dyn Store>) {
        let folder = tempfile::tempdir().unwrap();
        let selection = Selection::named(&format!("fault:{arguments}"), Mode::default()).unwrap();
        selection.check().unwrap();
        let store = selection.open(folder.path()).unwrap();
        (folder, store)
    }

    #[test]
    fn a_store_without_injected_faults_passes_the_conformance_tests() {
        for inner in ["posix", "mmap"] {
            let (_folder, store) = store(&format!("{inner},kind=eio,file=nowhere"));
            conformance::store_with_files(&*store);
            conformance::whole_files_of_odd_sizes(&*store);
        }
        let (_folder, store) = store("posix,kind=delay,span=0,every=2");
        conformance::store_with_files(&*store);
    }

    #[test]
    fn faults_follow_the_rule() {
        let (_folder, store) = store("posix,kind=eio,every=3,after=2,limit=2,file=a");
        let [a, b] = ["a", "b"].map(|name| Name::new(name).unwrap());
        for name in [&a, &b] {
            let mut writer = store.files().create(name).unwrap();
            writer.write(&[7; 10]).unwrap();
            writer.finish().unwrap();
        }
        let mut lane = store.lane(Traffic::untimed()).unwrap();
        let mut fetch = |name: &Name| {
            lane.submit(0, whole(name, None));
            lane.reap().unwrap().outcome.map(|brought| brought.bytes).map_err(|error| error.kind())
        };
        let mut is_struck = |_: &usize| {
            assert_eq!(fetch(&b), Ok(10), "its name does not match");
            fetch(&a) == Err("eio".to_owned())
        };
        let struck: Vec<usize> = (1..=20).filter(|number| is_struck(number)).collect();
        assert_eq!(struck, [5, 8], "every third after the first two, twice");
        assert!(store.observed().contains(&("faults_injected", "2".to_owned())));
    }

    #[test]
    fn faults_hit_metadata_but_not_upkeep() {
        let (_folder, store) = store("posix,kind=eio");
        let name = Name::new("a").unwrap();
        let mut writer = store.files().create(&name).unwrap();
        writer.write(&[7; 10]).unwrap();
        writer.finish().unwrap();
        let mut lane = store.lane(Traffic::untimed()).unwrap();
        for (purpose, is_struck) in
            [(Purpose::Samples(0), true), (Purpose::Metadata, true), (Purpose::Upkeep, false)]
        {
            lane.submit(0, Fetch { purpose, ..whole(&name, None) });
            assert_eq!(lane.reap().unwrap().outcome.is_err(), is_struck, "{purpose:?}");
        }
    }

    /// Keeps the first byte that it sees.
    struct First(AtomicU64);

    impl Witness for First {
        fn see(&self, _: usize, _: u64, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
            if offset == 0 {
                self.0.store(u64::from(bytes[0]), Ordering::Relaxed);
            }
            Ok(())
        }
    }

    #[test]
    fn wrong_bytes_are_passed_to_the_witness_and_kept() {
        let (_folder, store) = store("posix,kind=wrong-bytes,limit=1");
        let name = Name::new("a").unwrap();
        let mut writer = store.files().create(&name).unwrap();
        writer.write(&[6; 10]).unwrap();
        writer.finish().unwrap();
        let first = First(AtomicU64::new(0));
        let mut lane = store.lane(Traffic { witness: Some(&first), ..Traffic::untimed() }).unwrap();
        for byte in [7, 6] {
            lane.submit(0, whole(&name, Some(Buffer::default())));
            let kept = lane.reap().unwrap().kept.unwrap();
            assert_eq!((kept.bytes()[0], kept.bytes()[1]), (byte, 6));
            assert_eq!(first.0.load(Ordering::Relaxed), u64::from(byte));
        }
    }

    #[test]
    fn errors_name_the_file() {
        for (kind, words) in [("eio", "cannot read"), ("enoent", "does not exist"), ("short", "is too short")]
        {
            let (folder, store) = store(&format!("posix,kind={kind}"));
            let name = Name::new("train/a").unwrap();
            let mut lane = store.lane(Traffic::untimed()).unwrap();
            lane.submit(0, whole(&name, None));
            let error = lane.reap().unwrap().outcome.unwrap_err().to_string();
            let path = folder.path().join("train/a").display().to_string();
            assert!(error.contains(&path) && error.contains(words), "{error}");
        }
    }
}
