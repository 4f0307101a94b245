//! Conformance tests: what every store must do. Each backend and each wrapper around a backend runs them from its
//! tests; they panic with the rule that was broken.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test suite: a panic is its verdict")]

pub mod registry;
pub mod tier;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use model::extent::Extent;
use model::names::Name;
use model::units::Nanos;
use rustix::fs::{FileType, Mode};

use crate::{
    Buffer, Fetch, FetchWait, Fetched, FinishedFetch, Lane, Probe, Proof, Purpose, Store, StoreError, Track,
    Traffic, Witness,
};

/// The number of the file in every fetch of samples.
const FILE: u64 = 77;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A lane for this many readers whose reads are at most `transfer` bytes.
fn lane(store: &dyn Store, readers: usize, transfer: usize) -> Box<dyn Lane + '_> {
    store.lane(Traffic { readers, transfer, ..Traffic::untimed() }).unwrap()
}

/// A fetch of one range of a file that should have `file_bytes` bytes.
fn range<'a>(name: &'a Name, range: &'a Extent, file_bytes: u64) -> Fetch<'a> {
    let ranges = std::slice::from_ref(range);
    let purpose = Purpose::Samples(FILE);
    let (version, at) = (None, Nanos::ZERO);
    Fetch { name, purpose, ranges, file_bytes, version, keep_open: false, at, into: None }
}

/// Waits for a fetch to end, as the engine does.
fn reap(lane: &mut dyn Lane) -> Option<FinishedFetch> {
    loop {
        match (lane.reap(), lane.awaits()) {
            (Some(done), _) => return Some(done),
            (None, FetchWait::Nothing) => return None,
            (None, FetchWait::Moment(_)) => panic!("time does not pass in these tests"),
            (None, FetchWait::Medium) => lane.wait(Nanos(1_000_000_000)),
        }
    }
}

/// Fetches metadata as the engine does: the bytes are kept, and the file stays open.
pub(crate) fn read_metadata(
    lane: &mut dyn Lane,
    reader: usize,
    (name, file_bytes): (&Name, u64),
    offset: u64,
    len: u64,
) -> Result<(Fetched, Vec<u8>), StoreError> {
    let (purpose, into) = (Purpose::Metadata, Some(Buffer::default()));
    let part = Extent { offset, len };
    lane.submit(reader, Fetch { purpose, keep_open: true, into, ..range(name, &part, file_bytes) });
    let done = reap(lane).expect("in flight");
    let kept = done.kept.expect("the buffer is returned").bytes().to_vec();
    done.outcome.map(|brought| (brought, kept))
}

fn put(store: &dyn Store, at: &str, bytes: &[u8]) {
    let mut writer = store.files().create(&name(at)).unwrap();
    for piece in bytes.chunks(1000) {
        writer.write(piece).unwrap();
    }
    writer.finish().unwrap();
}

fn fetch_one(store: &dyn Store, transfer: usize, fetch: Fetch<'_>) -> Result<Fetched, StoreError> {
    let mut lane = lane(store, 3, transfer);
    lane.submit(2, fetch);
    let done = reap(&mut *lane).expect("a submitted fetch completes");
    assert_eq!(done.reader, 2, "the reader is returned");
    assert!(reap(&mut *lane).is_none(), "nothing else is in flight");
    done.outcome
}

/// How often a file is opened by its first fetch: once, or never in a store of objects, which are not opened.
fn opens_once(store: &dyn Store) -> u64 {
    u64::from(!matches!(store.name(), "s3" | "gs" | "az"))
}

/// Everything a store that holds files must do.
pub fn store_with_files(store: &dyn Store) {
    assert!(store.capabilities().holds_files);
    files_appear_whole(store);
    ranges_are_read_exactly(store);
    bytes_can_be_kept(store);
    a_witness_sees_every_byte(store);
    a_file_can_stay_open(store);
    tracks_show_operations(store);
    wrong_sizes_are_errors(store);
    every_read_is_timed(store);
    a_long_fetch_can_be_given_up(store);
    missing_things_are_named(store);
    put(store, "suite/small", &[4; 100]);
    lane_completes_every_fetch(store, &name("suite/small"), 100);
}

/// Writes a file and reads it back: whether this store works here at all.
pub fn first_read(store: &dyn Store) -> Result<(), StoreError> {
    put(store, "first", &[1; 100]);
    fetch_one(store, 4096, range(&name("first"), &Extent { offset: 0, len: 100 }, 100)).map(|_| ())
}

/// A pipe in place of a file is an error, without waiting.
pub fn a_fifo_is_an_error(store: &dyn Store, root: &Path) {
    let (place, mode) = (root.join("pipe"), Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, place, FileType::Fifo, mode, 0).unwrap();
    let error = fetch_one(store, 4096, range(&name("pipe"), &Extent { offset: 0, len: 10 }, 10)).unwrap_err();
    assert!(error.to_string().contains("pipe"), "{error}");
}

/// Files that end anywhere: around sectors, pages and transfers. For backends that read in granules.
pub fn whole_files_of_odd_sizes(store: &dyn Store) {
    const MIB: u64 = 1 << 20;
    let file = name("odd");
    for size in [0, 1, 511, 512, 513, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1] {
        let content: Vec<u8> = (0..size).map(|i| ((i * i) >> 5) as u8).collect();
        put(store, "odd", &content);
        let whole = Extent { offset: 0, len: size };
        let mut lane = lane(store, 1, MIB as usize);
        lane.submit(0, Fetch { into: Some(Buffer::default()), ..range(&file, &whole, size) });
        let done = reap(&mut *lane).expect("in flight");
        assert_eq!(done.outcome.map(|brought| brought.bytes), Ok(size));
        assert!(done.kept.expect("it is returned").bytes() == content, "a file of {size} bytes");
        let one_less = size.saturating_sub(1);
        for (planned, len) in [(size + 1, size + 1), (one_less, one_less)] {
            let outcome = fetch_one(store, MIB as usize, range(&file, &Extent { offset: 0, len }, planned));
            match outcome {
                Err(StoreError::Short { end, .. }) => assert!(planned > size && end == size),
                Err(StoreError::Long { .. }) => assert!(planned < size),
                outcome => assert_eq!((outcome.map(|brought| brought.bytes), size), (Ok(0), 0)),
            }
        }
    }
}

fn files_appear_whole(store: &dyn Store) {
    store.files().create_folder(&name("suite")).unwrap();
    store.files().create_folder(&name("suite")).expect("creating a folder twice is fine");
    assert_eq!(store.files().size(&name("suite/file")), Ok(None));
    put(store, "suite/file", &[1; 2500]);
    assert_eq!(store.files().size(&name("suite/file")), Ok(Some(2500)));
    put(store, "suite/file", &[2; 5000]);
    assert_eq!(store.files().size(&name("suite/file")), Ok(Some(5000)), "a new file replaces the old one");
    store.files().sync().unwrap();
}

fn ranges_are_read_exactly(store: &dyn Store) {
    let file = name("suite/file");
    for transfer in [1, 7, 4096, 5000, 1 << 20] {
        for (offset, len) in [(0, 5000), (0, 1), (4999, 1), (17, 3001)] {
            let done = fetch_one(store, transfer, range(&file, &Extent { offset, len }, 5000)).unwrap();
            assert_eq!(done.bytes, len);
            let smallest = transfer.next_multiple_of(4096) as u64;
            assert!(done.reads >= len.div_ceil(smallest), "no read is larger than the transfer size");
        }
        let ranges = [
            Extent { offset: 4000, len: 1000 },
            Extent { offset: 0, len: 10 },
            Extent { offset: 5, len: 10 },
        ];
        let fetch = Fetch { ranges: &ranges, ..range(&file, &ranges[0], 5000) };
        let done = fetch_one(store, transfer, fetch).unwrap();
        let opens = opens_once(store);
        assert_eq!((done.bytes, done.opens), (1020, opens), "several ranges of one file take one open");
    }
}

/// The bytes delivered are those of the file, for all transfer sizes and for ranges at any offsets.
fn bytes_can_be_kept(store: &dyn Store) {
    let content: Vec<u8> = (0..70_000u64).map(|i| ((i * i) >> 7) as u8).collect();
    put(store, "suite/kept", &content);
    let file = name("suite/kept");
    let ranges = [(65_000, 5000), (0, 1), (4095, 2), (8192, 4096), (13, 60_001)];
    let ranges = ranges.map(|(offset, len)| Extent { offset, len });
    let expected: Vec<u8> = ranges
        .iter()
        .flat_map(|range| &content[range.offset as usize..range.end() as usize])
        .copied()
        .collect();
    let mut kept = Buffer::default();
    for transfer in [512, 4096, 65_536, 1 << 20] {
        let mut lane = lane(store, 1, transfer);
        lane.submit(0, Fetch { ranges: &ranges, into: Some(kept), ..range(&file, &ranges[0], 70_000) });
        let done = reap(&mut *lane).expect("in flight");
        assert_eq!(done.outcome.unwrap().bytes, expected.len() as u64);
        kept = done.kept.expect("the buffer is returned");
        assert!(kept.bytes() == expected, "the bytes are the file's, in transfers of {transfer}");
    }
    let absent = name("suite/absent");
    let mut lane = lane(store, 1, 4096);
    lane.submit(0, Fetch { into: Some(kept), ..range(&absent, &ranges[0], 70_000) });
    let done = reap(&mut *lane).expect("a failed fetch ends, too");
    assert!(done.outcome.is_err() && done.kept.is_some(), "a buffer is not lost with its fetch");
}

/// A call of a witness: reader, file, offset and bytes.
type Shown = (usize, u64, u64, Vec<u8>);

/// Records all its calls, and fails after `most` bytes.
struct Seeing {
    seen: Mutex<Vec<Shown>>,
    most: usize,
}

impl Witness for Seeing {
    fn see(&self, reader: usize, file: u64, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut seen = self.seen.lock().unwrap();
        seen.push((reader, file, offset, bytes.to_vec()));
        let count: usize = seen.iter().map(|(.., bytes)| bytes.len()).sum();
        if count > self.most { Err(StoreError::Refused("seen enough".to_owned())) } else { Ok(()) }
    }
}

/// The bytes that were seen are those of the file; returns how often each was seen.
fn times_seen(seen: &[Shown], content: &[u8]) -> Vec<u64> {
    let mut times = vec![0; content.len()];
    for (reader, file, at, bytes) in seen {
        assert_eq!((*reader, *file), (1, FILE));
        assert!(*bytes == content[*at as usize..][..bytes.len()], "the bytes at {at} are the file's");
        times[*at as usize..][..bytes.len()].iter_mut().for_each(|times| *times += 1);
    }
    times
}

/// A witness sees exactly the requested bytes, in order if requests are made one after the other; an error from it ends
/// the fetch.
fn a_witness_sees_every_byte(store: &dyn Store) {
    let content: Vec<u8> = (0..70_000u64).map(|i| ((i * i) >> 7) as u8).collect();
    let file = name("suite/kept");
    let ranges = [(65_000, 5000), (4095, 2), (13, 60_001)].map(|(offset, len)| Extent { offset, len });
    for (transfer, most) in [(512, usize::MAX), (4096, usize::MAX), (1 << 20, usize::MAX), (4096, 5002)] {
        let witness = Seeing { seen: Mutex::default(), most };
        let traffic = Traffic { readers: 3, transfer, witness: Some(&witness), ..Traffic::untimed() };
        let mut lane = store.lane(traffic).unwrap();
        read_metadata(&mut *lane, 1, (&file, 70_000), 7, 9).unwrap();
        lane.submit(1, Fetch { ranges: &ranges, ..range(&file, &ranges[0], 70_000) });
        let outcome = reap(&mut *lane).expect("in flight").outcome;
        let seen = witness.seen.lock().unwrap().clone();
        let times = times_seen(&seen, &content);
        if most == usize::MAX {
            let asked =
                |at: u64| ranges.iter().filter(|range| (range.offset..range.end()).contains(&at)).count();
            assert!(
                times.iter().zip(0..).all(|(times, at)| *times == asked(at) as u64),
                "each byte once per range"
            );
        }
        if opens_once(store) == 0 {
            assert_eq!(outcome.is_ok(), most == usize::MAX);
            continue;
        }
        let mut seen = seen.into_iter();
        let mut left = ranges.iter().filter(|range| most == usize::MAX || range.len < 60_000).copied();
        let mut expected = left.next();
        if most == usize::MAX {
            assert_eq!(outcome.map(|brought| brought.bytes), Ok(65_003));
        } else {
            assert_eq!(outcome.unwrap_err(), StoreError::Refused("seen enough".to_owned()));
        }
        while let Some(Extent { offset, len }) = expected {
            let (reader, file, at, bytes) = seen.next().expect("every byte is seen");
            assert_eq!((reader, file, at), (1, FILE, offset), "calls are contiguous");
            assert!(bytes == content[at as usize..][..bytes.len()], "the bytes at {at} are the file's");
            let rest = len - bytes.len() as u64;
            expected = if rest > 0 {
                Some(Extent { offset: offset + bytes.len() as u64, len: rest })
            } else {
                left.next()
            };
        }
        assert!(seen.len() <= usize::from(most < usize::MAX), "only requested bytes are passed");
    }
}

fn a_file_can_stay_open(store: &dyn Store) {
    let (file, other) = (name("suite/file"), name("suite/other"));
    put(store, "suite/other", &[3; 10]);
    let (mut lane, once) = (lane(store, 2, 4096), opens_once(store));
    let opens = |lane: &mut dyn Lane, reader, name: &Name, keep_open| {
        let part = Extent { offset: 1, len: 4 };
        let file_bytes = if *name == file { 5000 } else { 10 };
        let fetch = Fetch { keep_open, ..range(name, &part, file_bytes) };
        lane.submit(reader, fetch);
        reap(lane).unwrap().outcome.unwrap().opens
    };
    assert_eq!(opens(&mut *lane, 0, &file, true), once);
    assert_eq!(opens(&mut *lane, 1, &file, true), once, "each reader has its own open file");
    assert_eq!(opens(&mut *lane, 0, &file, true), 0, "it is still open");
    assert_eq!(opens(&mut *lane, 0, &other, false), once, "another file");
    assert_eq!(opens(&mut *lane, 0, &other, false), once, "it was closed");
    assert_eq!(opens(&mut *lane, 1, &file, false), 0, "other readers do not affect it");
    let mut metadata = |offset| read_metadata(&mut *lane, 0, (&other, 10), offset, 4);
    assert_eq!(metadata(6).unwrap().0.opens, once);
    let (brought, bytes) = metadata(0).unwrap();
    assert_eq!((brought.opens, &bytes[..]), (0, &[3; 4][..]));
    assert_eq!(opens(&mut *lane, 0, &other, false), 0, "the samples follow their metadata");
    let short = read_metadata(&mut *lane, 0, (&other, 10), 8, 4).unwrap_err();
    assert!(matches!(short, StoreError::Short { end: 10, needed: 12, .. }), "{short:?}");
}

fn a_long_fetch_can_be_given_up(store: &dyn Store) {
    let file = name("suite/file");
    let whole = Extent { offset: 0, len: 5000 };
    let halves = [Extent { offset: 0, len: 2500 }, Extent { offset: 2500, len: 2500 }];
    let ended = AtomicBool::new(true);
    let mut lane = store.lane(Traffic { give_up: &ended, transfer: 4096, ..Traffic::untimed() }).unwrap();
    lane.submit(0, Fetch { ranges: &halves, ..range(&file, &whole, 5000) });
    let done = reap(&mut *lane).expect("it ends");
    assert_eq!(done.outcome.unwrap_err(), StoreError::GivenUp);
}

fn tracks_show_operations(store: &dyn Store) {
    put(store, "suite/tracked", &[1; 2500]);
    let (tracks, file) = ([Track::default(), Track::default()], name("suite/tracked"));
    let mut lane =
        store.lane(Traffic { readers: 2, transfer: 1000, tracks: &tracks, ..Traffic::untimed() }).unwrap();
    lane.submit(1, range(&file, &Extent { offset: 0, len: 2500 }, 2500));
    let brought = reap(&mut *lane).expect("in flight").outcome.unwrap();
    assert!(tracks[1].ended() > brought.opens + brought.reads, "opens, reads, and the close");
    assert_eq!((tracks[1].operation(), tracks[0].ended()), (None, 0));
    let before = tracks[0].ended();
    read_metadata(&mut *lane, 0, (&file, 2500), 7, 9).unwrap();
    assert!(tracks[0].ended() >= before + 2, "also for metadata");
}

fn wrong_sizes_are_errors(store: &dyn Store) {
    let file = name("suite/file");
    for transfer in [7, 1 << 20] {
        let short = fetch_one(store, transfer, range(&file, &Extent { offset: 0, len: 5001 }, 5001));
        assert!(matches!(short, Err(StoreError::Short { end: 5000, needed: 5001, .. })), "{short:?}");
        let long = fetch_one(store, transfer, range(&file, &Extent { offset: 0, len: 4999 }, 4999));
        assert!(matches!(long, Err(StoreError::Long { planned: 4999, found: 5000, .. })), "{long:?}");
    }
    for (planned, len) in [(5001, 100), (4999, 4998), (1 << 20, 5000), (0, 1), (1, 0)] {
        parts_of_a_file_of_another_size_are_refused(store, planned, len);
    }
}

/// The size of a file is checked for any part that is fetched, samples or metadata, whether it stays open or not.
fn parts_of_a_file_of_another_size_are_refused(store: &dyn Store, planned: u64, len: u64) {
    let (file, part) = (name("suite/file"), Extent { offset: 0, len });
    let is_refused = |outcome: Result<Fetched, StoreError>| match outcome {
        Err(StoreError::Short { end: 5000, needed, .. }) => assert_eq!(needed, planned),
        Err(StoreError::Long { found: 5000, planned: said, .. }) => assert_eq!(said, planned),
        outcome => panic!("a file of 5000 bytes that should have {planned}: {outcome:?}"),
    };
    let mut lane = lane(store, 1, 4096);
    for keep_open in [false, true, true] {
        lane.submit(0, Fetch { keep_open, ..range(&file, &part, planned) });
        is_refused(reap(&mut *lane).expect("in flight").outcome);
        is_refused(read_metadata(&mut *lane, 0, (&file, planned), 0, len).map(|(brought, _)| brought));
    }
    lane.submit(0, range(&file, &Extent { offset: 0, len: 100 }, 5000));
    assert_eq!(reap(&mut *lane).expect("in flight").outcome.map(|brought| brought.bytes), Ok(100));
}

/// Every open and read, of samples and of metadata, is counted and has its span, in the same number on every backend.
/// The same holds for the page-cache operations of each fetch, if reads go through the page cache.
fn every_read_is_timed(store: &dyn Store) {
    put(store, "suite/timed", &vec![5; 200_000]);
    let file = name("suite/timed");
    let ranges = [(0, 150_000), (196_608, 3392), (0, 10)].map(|(offset, len)| Extent { offset, len });
    let proof = Proof { counts_one_in: 1, gives_back: true, ..Proof::default() };
    let mut lane =
        store.lane(Traffic { readers: 2, transfer: 1 << 16, proof, ..Traffic::untimed() }).unwrap();
    let (mut opens, mut reads, mut probes) = (0, 0, 0);
    let mut count = |brought: Fetched, expected: u64| {
        assert_eq!(brought.reads, expected, "reads of at most 64 KiB");
        opens += brought.opens;
        reads += brought.reads;
        probes += u64::from(brought.probe != Probe::Unasked);
    };
    for (offset, len, expected) in [(0, 150_000, 3), (199_000, 1000, 1)] {
        count(read_metadata(&mut *lane, 0, (&file, 200_000), offset, len).unwrap().0, expected);
    }
    for keep_open in [true, false] {
        lane.submit(0, Fetch { ranges: &ranges, keep_open, ..range(&file, &ranges[0], 200_000) });
        count(reap(&mut *lane).expect("in flight").outcome.unwrap(), 5);
    }
    let spans = lane.take_spans();
    assert_eq!((spans.open.count(), spans.read.count(), spans.close.count()), (opens, reads, opens));
    assert_eq!((opens, reads), (opens_once(store), 14));
    assert!([0, 4].contains(&probes), "pages are counted for every fetch or for none: {probes} of 4");
    assert_eq!((spans.probe.count(), spans.forget.count()), (probes, probes));
}

fn missing_things_are_named(store: &dyn Store) {
    let absent = name("suite/absent");
    let error = fetch_one(store, 4096, range(&absent, &Extent { offset: 0, len: 1 }, 9)).unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }), "{error:?}");
    assert!(error.to_string().contains("suite/absent"), "{error}");
    // Objects need no folders.
    if opens_once(store) == 1 {
        let error = store.files().create(&name("nowhere/file")).err().expect("the folder is missing");
        assert!(error.to_string().contains("nowhere/file"), "{error}");
    }
}

/// A lane returns one completion for each fetch, also when all its readers have one in flight.
pub fn lane_completes_every_fetch(store: &dyn Store, file: &Name, len: u64) {
    const READERS: usize = 40;
    let mut lane = lane(store, READERS, 4096);
    let whole = Extent { offset: 0, len };
    let mut left = [25; READERS];
    let mut free: Vec<usize> = (0..READERS).collect();
    let mut ended = 0;
    // A blocking lane has to be reaped after every fetch; other lanes are kept full.
    let one_at_a_time = store.capabilities().threads == crate::Threads::PerReader;
    while ended < 25 * READERS {
        while let Some(reader) = free.pop() {
            if left[reader] > 0 {
                left[reader] -= 1;
                lane.submit(reader, range(file, &whole, len));
                if one_at_a_time {
                    break;
                }
            }
        }
        let done = reap(&mut *lane).expect("in flight");
        assert_eq!(done.outcome.unwrap().bytes, len);
        free.push(done.reader);
        ended += 1;
    }
    assert!(reap(&mut *lane).is_none() && left == [0; READERS]);
}
