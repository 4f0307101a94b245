//! What every store must do, whatever it is made of. Each backend and each wrapper around a backend runs these from
//! its tests; they panic with the law that was broken.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test suite: a panic is its verdict")]

use std::sync::atomic::AtomicBool;

use model::extent::Extent;
use model::names::Name;

use crate::{Done, Fetch, Lane, Store, StoreError};

/// Nobody gives up here.
static GO_ON: AtomicBool = AtomicBool::new(false);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A fetch of one range of a file that should have `file_bytes` bytes.
fn range<'a>(name: &'a Name, range: &'a Extent, file_bytes: u64) -> Fetch<'a> {
    let ranges = std::slice::from_ref(range);
    Fetch { name, ranges, file_bytes, keep_open: false, give_up: &GO_ON }
}

fn put(store: &dyn Store, at: &str, bytes: &[u8]) {
    let mut writer = store.create(&name(at)).unwrap();
    for piece in bytes.chunks(1000) {
        writer.write(piece).unwrap();
    }
    writer.finish().unwrap();
}

fn fetch_one(store: &dyn Store, transfer: usize, fetch: &Fetch<'_>) -> Result<Done, StoreError> {
    let mut lane = store.lane(transfer);
    lane.submit(7, fetch)?;
    let done = lane.reap()?.expect("a submitted fetch completes");
    assert_eq!(done.tag, 7, "the tag comes back");
    assert_eq!(lane.reap()?, None, "nothing else is in flight");
    Ok(done)
}

/// Everything a store that holds files must do.
pub fn store_with_files(store: &dyn Store) {
    assert!(store.capabilities().holds_files);
    files_appear_whole(store);
    ranges_are_read_exactly(store);
    a_file_can_stay_open(store);
    wrong_sizes_are_errors(store);
    a_long_fetch_can_be_given_up(store);
    missing_things_are_named(store);
    lane_completes_every_fetch(store, &name("suite/file"), 100);
}

fn files_appear_whole(store: &dyn Store) {
    store.create_folder(&name("suite")).unwrap();
    store.create_folder(&name("suite")).expect("making a folder twice is fine");
    assert_eq!(store.size(&name("suite/file")), Ok(None));
    put(store, "suite/file", &[1; 2500]);
    assert_eq!(store.size(&name("suite/file")), Ok(Some(2500)));
    put(store, "suite/file", &[2; 5000]);
    assert_eq!(store.size(&name("suite/file")), Ok(Some(5000)), "a new file replaces the old one");
    store.sync().unwrap();
}

fn ranges_are_read_exactly(store: &dyn Store) {
    let file = name("suite/file");
    for transfer in [1, 7, 4096, 5000, 1 << 20] {
        for (offset, len) in [(0, 5000), (0, 1), (4999, 1), (17, 3001)] {
            let done = fetch_one(store, transfer, &range(&file, &Extent { offset, len }, 5000)).unwrap();
            assert_eq!(done.bytes, len);
            assert!(done.reads >= len.div_ceil(transfer as u64), "no read is larger than the transfer size");
        }
        let ranges = [
            Extent { offset: 4000, len: 1000 },
            Extent { offset: 0, len: 10 },
            Extent { offset: 5, len: 10 },
        ];
        let fetch = Fetch { ranges: &ranges, ..range(&file, &ranges[0], 5000) };
        let done = fetch_one(store, transfer, &fetch).unwrap();
        assert_eq!((done.bytes, done.opens), (1020, 1), "several ranges of one file take one open");
    }
}

fn a_file_can_stay_open(store: &dyn Store) {
    let (file, other) = (name("suite/file"), name("suite/other"));
    put(store, "suite/other", &[3; 10]);
    let mut lane = store.lane(4096);
    let opens = |lane: &mut dyn Lane, name, keep_open| {
        let part = Extent { offset: 1, len: 4 };
        let fetch = Fetch { keep_open, ..range(name, &part, 0) };
        lane.submit(1, &fetch).unwrap();
        lane.reap().unwrap().unwrap().opens
    };
    assert_eq!(opens(&mut *lane, &file, true), 1);
    assert_eq!(opens(&mut *lane, &file, true), 0, "it is still open");
    assert_eq!(opens(&mut *lane, &other, false), 1, "another file");
    assert_eq!(opens(&mut *lane, &other, false), 1, "it was closed");
    let mut bytes = [0; 4];
    assert_eq!(lane.look(&other, 6, &mut bytes).unwrap().opens, 1);
    assert_eq!((bytes, lane.look(&other, 0, &mut bytes).unwrap().opens), ([3; 4], 0));
    assert_eq!(opens(&mut *lane, &other, false), 0, "a look leaves it open");
    let short = lane.look(&other, 8, &mut bytes).unwrap_err();
    assert!(matches!(short, StoreError::Short { end: 10, needed: 12, .. }), "{short:?}");
}

fn a_long_fetch_can_be_given_up(store: &dyn Store) {
    let file = name("suite/file");
    let whole = Extent { offset: 0, len: 5000 };
    let fetch = Fetch { give_up: &AtomicBool::new(true), ..range(&file, &whole, 5000) };
    assert_eq!(fetch_one(store, 7, &fetch).unwrap_err(), StoreError::GivenUp);
}

fn wrong_sizes_are_errors(store: &dyn Store) {
    let file = name("suite/file");
    for transfer in [7, 1 << 20] {
        let short = fetch_one(store, transfer, &range(&file, &Extent { offset: 0, len: 5001 }, 5001));
        assert!(matches!(short, Err(StoreError::Short { end: 5000, needed: 5001, .. })), "{short:?}");
        let long = fetch_one(store, transfer, &range(&file, &Extent { offset: 0, len: 4999 }, 4999));
        assert!(matches!(long, Err(StoreError::Long { planned: 4999, .. })), "{long:?}");
    }
}

fn missing_things_are_named(store: &dyn Store) {
    let absent = name("suite/absent");
    let error = fetch_one(store, 4096, &range(&absent, &Extent { offset: 0, len: 1 }, 9)).unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }), "{error:?}");
    assert!(error.to_string().contains("suite/absent"), "{error}");
    let error = store.create(&name("nowhere/file")).err().expect("no folder, no file");
    assert!(error.to_string().contains("nowhere/file"), "{error}");
}

/// A lane gives back one completion for each fetch, also when it is kept full.
pub fn lane_completes_every_fetch(store: &dyn Store, file: &Name, len: u64) {
    let mut lane = store.lane(4096);
    let mut tags: Vec<u64> = Vec::new();
    let mut in_flight = 0;
    for tag in 0..1000 {
        if in_flight == lane.capacity() {
            tags.push(lane.reap().unwrap().expect("in flight").tag);
            in_flight -= 1;
        }
        lane.submit(tag, &range(file, &Extent { offset: 0, len }, u64::MAX)).unwrap();
        in_flight += 1;
    }
    while let Some(done) = lane.reap().unwrap() {
        assert_eq!(done.bytes, len);
        tags.push(done.tag);
    }
    tags.sort_unstable();
    assert_eq!(tags, (0..1000).collect::<Vec<_>>());
}
