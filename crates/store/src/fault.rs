//! A store around a store that holds files, which goes wrong by rule: what a run does about errors, delays and reads
//! that never end can be seen without a broken disk. `fault:posix,kind=eio,every=100` fails every 100th fetch.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use model::extent::Extent;
use model::names::Name;
use model::units::Nanos;
use rustix::io::Errno;

use crate::{
    Awaits, Brought, Buffer, Capabilities, Done, Fetch, Files, Lane, Operation, Posix, Selection, Sim, Spans,
    Store, StoreError, Threads, Traffic, Waker, Witness,
};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The read fails.
    Eio,
    /// The file is not there.
    Enoent,
    /// The file ends too early.
    Short,
    /// A bit of the first byte that comes is wrong.
    WrongBytes,
    /// It takes `span` longer.
    Delay,
    /// It never ends.
    Hang,
}

const KINDS: [(&str, Kind); 6] = [
    ("eio", Kind::Eio),
    ("enoent", Kind::Enoent),
    ("short", Kind::Short),
    ("wrong-bytes", Kind::WrongBytes),
    ("delay", Kind::Delay),
    ("hang", Kind::Hang),
];

/// Which fetches something happens to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    kind: Kind,
    span: Nanos,
    /// Fetches of files whose names contain this are counted; the others are left alone.
    file: String,
    /// The first so many of them are left alone, then every so-many-th is struck, at most so often.
    after: u64,
    every: u64,
    limit: u64,
}

impl Rule {
    /// Reads `kind=delay,span=20ms,every=100`.
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Rule, String> {
        let (mut kind, mut span, mut seen) = (None, None, Vec::new());
        let (mut file, mut after, mut every, mut limit) = (String::new(), 0, 1, u64::MAX);
        for word in words.map(str::trim) {
            let Some((key, value)) = word.split_once('=') else {
                return Err(format!("'{word}' should be a setting such as kind=eio"));
            };
            if seen.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            seen.push(key);
            match key {
                "kind" => kind = Some(named(value)?),
                "span" => span = Some(value.parse().map_err(|error| format!("span={value}: {error}"))?),
                "file" => file = value.to_owned(),
                "after" => after = number(key, value, 0)?,
                "every" => every = number(key, value, 1)?,
                "limit" => limit = number(key, value, 1)?,
                _ => {
                    return Err(format!(
                        "there is no '{key}'; there are kind, span, file, after, every and limit"
                    ));
                }
            }
        }
        let kind = kind.ok_or("the kind is missing, such as kind=eio")?;
        let span = match (kind, span) {
            (Kind::Delay, None) => return Err("a delay needs a span, such as span=20ms".to_owned()),
            (Kind::Delay, Some(span)) => span,
            (_, Some(_)) => return Err("span is for kind=delay".to_owned()),
            (_, None) => Nanos::ZERO,
        };
        Ok(Rule { kind, span, file, after, every, limit })
    }
}

fn named(word: &str) -> Result<Kind, String> {
    KINDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind).ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        format!("there is no kind '{word}'; the kinds are {}", known.join(", "))
    })
}

fn number(key: &str, value: &str, least: u64) -> Result<u64, String> {
    match value.parse() {
        Ok(number) if number >= least => Ok(number),
        _ => Err(format!("{key}={value} should be a number of at least {least}")),
    }
}

/// The store that a selection of this one is around, and what happens to its fetches.
fn parse(selection: &Selection) -> Result<(Selection, Rule), String> {
    let mut words = selection.arguments.split(',');
    let name = words.next().unwrap_or_default();
    let inner = Selection::named(name, selection.mode).filter(|inner| inner.capabilities().holds_files);
    match inner {
        Some(inner) if inner.backend.name != selection.backend.name => Ok((inner, Rule::parse(words)?)),
        _ => Err(format!("'{name}' is no store with files that it could be around, such as posix")),
    }
}

/// A store whose fetches go wrong by rule.
#[derive(Debug)]
pub struct Fault {
    inner: Box<dyn Store>,
    root: PathBuf,
    rule: Rule,
    text: String,
    /// Fetches that the rule is about, and those that it has struck.
    counted: AtomicU64,
    struck: AtomicU64,
}

impl Fault {
    /// Finds mistakes in the rule.
    pub(crate) fn check(selection: &Selection) -> Result<(), StoreError> {
        parse(selection).map(|_| ()).map_err(|mistake| refused(selection, &mistake))
    }

    /// What the store inside can do; where none is named well, which `check` says, what it would have to.
    pub(crate) fn inner_capabilities(selection: &Selection) -> Capabilities {
        parse(selection).map_or(Posix::CAPABILITIES, |(inner, _)| inner.capabilities())
    }

    pub(crate) fn open_boxed(root: &Path, selection: &Selection) -> Result<Box<dyn Store>, StoreError> {
        let (inner, rule) = parse(selection).map_err(|mistake| refused(selection, &mistake))?;
        Ok(Box::new(Fault {
            inner: inner.open(root)?,
            root: root.to_owned(),
            rule,
            text: selection.arguments.clone(),
            counted: AtomicU64::new(0),
            struck: AtomicU64::new(0),
        }))
    }

    /// Whether something happens to a fetch of this file. Relaxed: the counters carry nothing with them.
    fn strikes(&self, name: &Name) -> bool {
        let Rule { file, after, every, limit, .. } = &self.rule;
        if !name.as_str().contains(file) {
            return false;
        }
        let number = self.counted.fetch_add(1, Ordering::Relaxed) + 1;
        let due = number > *after && (number - after).is_multiple_of(*every);
        let one_more = |struck: u64| (struck < *limit).then_some(struck + 1);
        due && self.struck.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// The error that a fetch ends in.
    fn error(&self, fetch: &Fetch<'_>) -> StoreError {
        let name = self.root.join(fetch.name.as_str()).display().to_string();
        let range = fetch.ranges.first().copied().unwrap_or(Extent { offset: 0, len: 0 });
        match self.rule.kind {
            Kind::Enoent => StoreError::io(Operation::Open, &name, Errno::NOENT),
            Kind::Short => StoreError::Short { name, end: range.offset + range.len / 2, needed: range.end() },
            _ => StoreError::io(Operation::Read, &name, Errno::IO),
        }
    }
}

fn refused(selection: &Selection, mistake: &str) -> StoreError {
    StoreError::Refused(format!("the store '{}': {mistake}", selection.text()))
}

#[deny(clippy::missing_trait_methods)]
impl Store for Fault {
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
        // The lane inside may hold on to its witness for as long as the store lives. A few bytes that stay for each
        // lane are a fair price in a store for trials.
        let spoiler: &'a Spoiler<'a> = Box::leak(Box::new(Spoiler {
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
        facts.push(("faults_injected", self.struck.load(Ordering::Relaxed).to_string()));
        facts
    }
}

/// Shows a witness other bytes than came. Relaxed: the lane's thread alone sets and sees the flags.
struct Spoiler<'a> {
    witness: Option<&'a dyn Witness>,
    /// Whose next bytes are to be wrong, reader by reader.
    spoils: Vec<AtomicBool>,
}

impl Witness for Spoiler<'_> {
    fn see(&self, reader: usize, tag: u64, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(witness) = self.witness else { return Ok(()) };
        if bytes.is_empty() || !self.spoils[reader].swap(false, Ordering::Relaxed) {
            return witness.see(reader, tag, offset, bytes);
        }
        let mut wrong = bytes.to_vec();
        wrong[0] ^= 1;
        witness.see(reader, tag, offset, &wrong)
    }
}

/// As in a kernel that waits for a server that is gone: nobody is heard any more.
fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// A fetch that goes to the store inside when its time has come.
struct Delayed {
    due: Nanos,
    reader: usize,
    name: Name,
    tag: u64,
    ranges: Vec<Extent>,
    file_bytes: u64,
    keep_open: bool,
    at: Nanos,
    into: Option<Buffer>,
}

struct FaultLane<'a> {
    store: &'a Fault,
    inner: Box<dyn Lane + 'a>,
    traffic: Traffic<'a>,
    spoiler: &'a Spoiler<'a>,
    /// Whose fetch brings wrong bytes, for those who keep them.
    spoilt: Vec<bool>,
    done: VecDeque<Done>,
    delayed: Vec<Delayed>,
    /// Fetches that never end.
    hung: usize,
    /// When a fetch that was delayed began, reader by reader.
    began: Vec<Option<Nanos>>,
}

impl FaultLane<'_> {
    fn strike(&mut self, reader: usize, mut fetch: Fetch<'_>) {
        let (kind, now) = (self.store.rule.kind, self.traffic.clock.now());
        let blocks = self.store.capabilities().threads == Threads::PerReader;
        let offset = fetch.ranges.first().map_or(0, |range| range.offset);
        match kind {
            Kind::Eio | Kind::Enoent | Kind::Short => {
                let (outcome, kept) = (Err(self.store.error(&fetch)), fetch.into.take());
                self.traffic.begin(reader, Operation::Read, offset);
                self.traffic.end(reader);
                self.done.push_back(Done { reader, at: now, began: now, outcome, kept });
            }
            Kind::WrongBytes => {
                self.spoilt[reader] = true;
                self.spoiler.spoils[reader].store(true, Ordering::Relaxed);
                self.inner.submit(reader, fetch);
            }
            Kind::Hang => {
                self.traffic.begin(reader, Operation::Read, offset);
                self.hung += 1;
                if blocks {
                    hang();
                }
            }
            Kind::Delay => {
                self.began[reader] = Some(now);
                self.traffic.begin(reader, Operation::Read, offset);
                if blocks {
                    std::thread::sleep(Duration::from_nanos(self.store.rule.span.0));
                    return self.inner.submit(reader, fetch);
                }
                self.delayed.push(Delayed {
                    due: now + self.store.rule.span,
                    reader,
                    name: fetch.name.clone(),
                    tag: fetch.tag,
                    ranges: fetch.ranges.to_vec(),
                    file_bytes: fetch.file_bytes,
                    keep_open: fetch.keep_open,
                    at: fetch.at,
                    into: fetch.into,
                });
            }
        }
    }

    /// Lets fetches go whose time has come.
    fn release(&mut self) {
        if self.delayed.is_empty() {
            return;
        }
        let now = self.traffic.clock.now();
        for fetch in self.delayed.extract_if(.., |fetch| fetch.due <= now) {
            let Delayed { reader, name, tag, ranges, file_bytes, keep_open, at, into, .. } = fetch;
            let (name, ranges) = (&name, ranges.as_slice());
            self.inner.submit(reader, Fetch { name, tag, ranges, file_bytes, keep_open, at, into });
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Lane for FaultLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        match self.store.strikes(fetch.name) {
            true => self.strike(reader, fetch),
            false => self.inner.submit(reader, fetch),
        }
    }

    fn reap(&mut self) -> Option<Done> {
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

    fn awaits(&self) -> Awaits {
        match self.inner.awaits() {
            Awaits::Nothing if !self.done.is_empty() => Awaits::Nothing,
            Awaits::Nothing if self.hung > 0 || !self.delayed.is_empty() => Awaits::Medium,
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

    /// Looks are left alone: rules are about fetches.
    fn look(
        &mut self,
        reader: usize,
        name: &Name,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Brought, StoreError> {
        self.inner.look(reader, name, offset, out)
    }

    fn take_spans(&mut self) -> Spans {
        self.inner.take_spans()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, conformance};

    fn rule(text: &str) -> Result<Rule, String> {
        Rule::parse(text.split(','))
    }

    fn store(arguments: &str) -> (tempfile::TempDir, Box<dyn Store>) {
        let folder = tempfile::tempdir().unwrap();
        let selection = Selection::named(&format!("fault:{arguments}"), Mode::default()).unwrap();
        selection.check().unwrap();
        let store = selection.open(folder.path()).unwrap();
        (folder, store)
    }

    #[test]
    fn rules_are_read() {
        let read = rule("kind=delay,span=20ms,every=100,file=train/,after=3,limit=2").unwrap();
        assert_eq!((read.kind, read.span, read.every, read.after, read.limit), {
            (Kind::Delay, Nanos(20_000_000), 100, 3, 2)
        });
        for (text, mistake) in [
            ("every=2", "the kind is missing, such as kind=eio"),
            (
                "kind=fire",
                "there is no kind 'fire'; the kinds are eio, enoent, short, wrong-bytes, delay, hang",
            ),
            ("kind=eio,eio", "'eio' should be a setting such as kind=eio"),
            ("kind=eio,kind=eio", "kind is given twice"),
            ("kind=eio,every=0", "every=0 should be a number of at least 1"),
            ("kind=eio,span=1s", "span is for kind=delay"),
            ("kind=delay", "a delay needs a span, such as span=20ms"),
            ("kind=eio,when=1", "there is no 'when'; there are kind, span, file, after, every and limit"),
        ] {
            assert_eq!(rule(text), Err(mistake.to_owned()));
        }
    }

    #[test]
    fn it_goes_around_stores_with_files_only() {
        for inner in ["", "null", "sim:hdd", "tape", "fault:posix"] {
            let text = format!("fault:{inner},kind=eio");
            let error = Selection::named(&text, Mode::default()).unwrap().check().unwrap_err().to_string();
            assert!(error.contains("is no store with files"), "{error}");
        }
    }

    #[test]
    fn a_store_that_nothing_happens_to_passes_the_conformance_suite() {
        for inner in ["posix", "mmap"] {
            let (_folder, store) = store(&format!("{inner},kind=eio,file=nowhere"));
            conformance::store_with_files(&*store);
            conformance::whole_files_of_odd_sizes(&*store);
        }
        let (_folder, store) = store("posix,kind=delay,span=0,every=2");
        conformance::store_with_files(&*store);
    }

    #[test]
    fn it_strikes_by_rule() {
        let (_folder, store) = store("posix,kind=eio,every=3,after=2,limit=2,file=a");
        let [a, b] = ["a", "b"].map(|name| Name::new(name).unwrap());
        for name in [&a, &b] {
            let mut writer = store.files().create(name).unwrap();
            writer.write(&[7; 10]).unwrap();
            writer.finish().unwrap();
        }
        let mut lane = store.lane(Traffic::looks()).unwrap();
        let mut fetch = |name: &Name| {
            let ranges = [Extent { offset: 0, len: 10 }];
            let at = Nanos::ZERO;
            lane.submit(
                0,
                Fetch { name, tag: 0, ranges: &ranges, file_bytes: 10, keep_open: false, at, into: None },
            );
            lane.reap().unwrap().outcome.map(|brought| brought.bytes).map_err(|error| error.kind())
        };
        let mut is_struck = |_: &usize| {
            assert_eq!(fetch(&b), Ok(10), "its name is another");
            fetch(&a) == Err("eio".to_owned())
        };
        let struck: Vec<usize> = (1..=20).filter(|number| is_struck(number)).collect();
        assert_eq!(struck, [5, 8], "every third behind the first two, twice");
        assert!(store.observed().contains(&("faults_injected", "2".to_owned())));
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
    fn wrong_bytes_are_seen_and_kept() {
        let (_folder, store) = store("posix,kind=wrong-bytes,limit=1");
        let name = Name::new("a").unwrap();
        let mut writer = store.files().create(&name).unwrap();
        writer.write(&[6; 10]).unwrap();
        writer.finish().unwrap();
        let first = First(AtomicU64::new(0));
        let mut lane = store.lane(Traffic { witness: Some(&first), ..Traffic::looks() }).unwrap();
        for byte in [7, 6] {
            let (ranges, into) = ([Extent { offset: 0, len: 10 }], Some(Buffer::default()));
            let at = Nanos::ZERO;
            lane.submit(
                0,
                Fetch { name: &name, tag: 0, ranges: &ranges, file_bytes: 10, keep_open: false, at, into },
            );
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
            let mut lane = store.lane(Traffic::looks()).unwrap();
            let (ranges, at) = ([Extent { offset: 0, len: 10 }], Nanos::ZERO);
            lane.submit(
                0,
                Fetch {
                    name: &name,
                    tag: 0,
                    ranges: &ranges,
                    file_bytes: 10,
                    keep_open: false,
                    at,
                    into: None,
                },
            );
            let error = lane.reap().unwrap().outcome.unwrap_err().to_string();
            let path = folder.path().join("train/a").display().to_string();
            assert!(error.contains(&path) && error.contains(words), "{error}");
        }
    }
}
