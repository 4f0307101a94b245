//! Listings of object stores: for any keys and threads the catalog is the sorted set of keys, also after any number of
//! interruptions, and a server that lists incorrectly is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use model::names::Name;
use model::objects::ObjectVersion;
use model::order::mix;
use proptest::prelude::*;
use store::{KeyListing, KeyRequest, ListedName, Mode, NoAnswer, Posix, StoreError};

use super::keys::KeyScan;
use super::tests::Tree;
use super::*;
use crate::meter;
use crate::world::Solo;
use crate::world::threads::members;

/// What a server does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// The request with this number fails.
    Fails(u64),
    /// Every page is the first one.
    Repeats,
    /// Pages that say that the same page follows.
    SameToken,
    /// Two pages without names that follow each other forever.
    Cycle,
    /// Two names of this page are exchanged.
    Unsorted(u64),
    /// The first name of a page is that of the page before.
    Overlaps,
    /// A listing after a name begins at the first name.
    IgnoresAfter,
}

/// A bucket.
#[derive(Debug)]
struct Bucket {
    names: BTreeMap<String, u64>,
    page: usize,
    lists_after: bool,
    fault: Fault,
    /// Names are in the order of a tree of folders: `a/b` comes before `a-b`.
    by_tree: bool,
    /// Varies how long each request takes; 0: not at all.
    timing: u64,
    requests: AtomicU64,
    /// Requests for full pages.
    pages: AtomicU64,
    /// Holds the request with this number until another one was made.
    held: Option<(u64, u64)>,
    answered: Mutex<u64>,
    change: Condvar,
}

fn bucket(names: impl IntoIterator<Item = impl Into<String>>, page: usize) -> Bucket {
    Bucket {
        names: names.into_iter().map(|name| (name.into(), 0)).map(|(name, _)| sized(name)).collect(),
        page,
        lists_after: true,
        fault: Fault::None,
        by_tree: false,
        timing: 0,
        requests: AtomicU64::new(0),
        pages: AtomicU64::new(0),
        held: None,
        answered: Mutex::new(0),
        change: Condvar::new(),
    }
}

fn sized(name: String) -> (String, u64) {
    let bytes = name.len() as u64 * 7 % 50;
    (name, bytes)
}

fn version(name: &str) -> Option<ObjectVersion> {
    ObjectVersion::of_tag(name.as_bytes())
}

impl Bucket {
    fn by(self, lists_after: bool) -> Bucket {
        Bucket { lists_after, ..self }
    }

    /// What the request sees, before pages are made.
    fn entries<'a>(&'a self, request: &KeyRequest<'a>, after: Option<&str>) -> Vec<ListedName<'a>> {
        let (mut found, mut folders) = (Vec::new(), BTreeSet::new());
        let order = |name: &str| if self.by_tree { name.replace('/', "\0") } else { name.to_owned() };
        let mut names: Vec<(&String, &u64)> = self.names.iter().collect();
        names.sort_by_key(|(name, _)| order(name));
        for (name, bytes) in names {
            let Some(below) = name.strip_prefix(request.folder) else { continue };
            let folder = below.find('/').filter(|_| request.by_folder);
            let entry = folder.map_or(name.as_str(), |at| &name[..request.folder.len() + at + 1]);
            if after.is_some_and(|after| order(entry) <= order(after)) {
                continue;
            }
            if folder.is_none() {
                found.push(ListedName::Object { name, bytes: *bytes, version: version(name) });
            } else if folders.insert(entry) {
                found.push(ListedName::Folder(entry));
            }
        }
        found
    }

    /// Lets requests take different times.
    fn linger(&self, number: u64) {
        for _ in 0..mix(self.timing, number) % 64 {
            std::thread::yield_now();
        }
        if mix(self.timing, number).is_multiple_of(13) && self.timing > 0 {
            meter::pause(Duration::from_micros(300));
        }
    }
}

impl KeyListing for Bucket {
    fn shown(&self, name: &str) -> String {
        if name.is_empty() { "s3://bucket/p".to_owned() } else { format!("s3://bucket/p/{name}") }
    }

    fn identity(&self) -> Vec<u8> {
        b"server bucket/p".to_vec()
    }

    fn lists_after(&self) -> bool {
        self.lists_after
    }

    fn page(
        &self,
        request: &KeyRequest<'_>,
        each: &mut dyn FnMut(ListedName<'_>),
    ) -> Result<Option<String>, StoreError> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        if request.most == 0 {
            self.pages.fetch_add(1, Ordering::SeqCst);
        }
        if let Some((held, until)) = self.held
            && number == held
        {
            let answered = self.answered.lock().unwrap();
            let wait =
                self.change.wait_timeout_while(answered, Duration::from_secs(5), |count| *count < until);
            assert!(!wait.unwrap().1.timed_out(), "the other requests were not made");
        }
        self.linger(number);
        if self.fault == Fault::Fails(number) {
            let how = NoAnswer {
                kind: model::requests::AttemptFailure::Reset,
                cause: "connection reset".to_owned(),
                attempts: 5,
                endpoint: "localhost:1".to_owned(),
            };
            let (operation, name) = (store::Operation::List, self.shown(""));
            return Err(StoreError::Unanswered { operation, name, how: Box::new(how) });
        }
        assert!(request.after.is_empty() || self.lists_after, "this service cannot begin after a name");
        // A token is a letter and the last name.
        let mut after = request.continues.and_then(|token| token.get(1..)).or(Some(request.after));
        after = after.filter(|after| !after.is_empty() || request.continues.is_some());
        match self.fault {
            Fault::Repeats => after = None,
            Fault::IgnoresAfter if request.continues.is_none() => after = None,
            Fault::SameToken => return Ok(Some("token".to_owned())),
            Fault::Cycle => {
                return Ok(Some(if request.continues == Some("a") { "b" } else { "a" }.to_owned()));
            }
            _ => {}
        }
        let mut all = self.entries(request, after);
        if self.fault == Fault::Overlaps && request.continues.is_some() {
            let before = self.names.range(..=after.unwrap().to_owned()).next_back().unwrap();
            all.insert(0, ListedName::Object { name: before.0, bytes: 1, version: None });
        }
        let most = if request.most == 0 { self.page } else { request.most };
        let is_last = all.len() <= most;
        all.truncate(most);
        if self.fault == Fault::Unsorted(number) && all.len() > 1 {
            all.swap(0, 1);
        }
        all.iter().for_each(|entry| each(*entry));
        *self.answered.lock().unwrap() += 1;
        self.change.notify_all();
        let last = all.last().map(|entry| match entry {
            ListedName::Object { name, .. } | ListedName::Folder(name) => format!("t{name}"),
        });
        Ok(last.filter(|_| !is_last))
    }
}

/// A place for the catalog object and the journal.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("store").join(FOLDER)).unwrap();
        Place { folder }
    }

    fn store(&self) -> Posix {
        Posix::open(&self.folder.path().join("store"), Mode::default()).unwrap()
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state/feedline")
    }

    fn options(&self, threads: usize) -> ListOptions {
        ListOptions { threads, state_folder: Some(self.state()), ..ListOptions::default() }
    }

    fn scan_with(
        &self,
        bucket: &Bucket,
        options: &ListOptions,
        stop: &Stop,
    ) -> Result<ListSummary, ScanError> {
        let (store, world, events) = (self.store(), Solo::new(), Events::default());
        KeyScan { store: &store, keys: bucket, options, world: &world, stop, events: &events }.run()
    }

    fn scan(&self, bucket: &Bucket, threads: usize) -> Result<ListSummary, ScanError> {
        self.scan_with(bucket, &self.options(threads), &Stop::default())
    }

    /// The catalog object.
    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("store").join(FOLDER).join(FILE)).unwrap()
    }

    /// Whether nothing but the catalog object is left.
    fn is_clean(&self) -> bool {
        std::fs::read_dir(self.state()).map_or(0, Iterator::count) == 0
    }
}

/// The files of a catalog, whose versions are those of their names.
fn listed(opened: &OpenCatalog) -> Vec<(String, u64)> {
    let mut name = Name::default();
    let all = (0..opened.files()).map(|index| {
        let entry = opened.entry(index, &mut name).unwrap();
        assert_eq!(entry.version, version(name.as_str()));
        (name.as_str().to_owned(), entry.bytes)
    });
    let mut all: Vec<(String, u64)> = all.collect();
    all.sort();
    all
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("train/{:02}/img_{i:06}.jpg", i % 7)).collect()
}

fn expected(bucket: &Bucket) -> Vec<(String, u64)> {
    bucket.names.iter().map(|(name, bytes)| (name.clone(), *bytes)).collect()
}

#[test]
fn the_catalog_is_the_set_of_keys_for_any_number_of_threads() {
    for lists_after in [true, false] {
        let place = Place::new();
        let mut first = None;
        for threads in 1..=8 {
            let bucket = Bucket { timing: threads as u64, ..bucket(numbered(700), 10) }.by(lists_after);
            let summary = place.scan(&bucket, threads).unwrap();
            assert_eq!(listed(&summary.catalog), expected(&bucket), "{threads} threads");
            assert_eq!((summary.files, summary.folders), (700, 9));
            let keys = summary.keys.unwrap();
            assert_eq!(keys.requests, bucket.requests.load(Ordering::SeqCst));
            assert_eq!((keys.names, keys.resumed, place.is_clean()), (700, 0, true));
            assert_eq!(summary.path, Path::new("s3://bucket/p/.feedline/catalog"));
            assert_eq!(*first.get_or_insert(place.bytes()), place.bytes(), "the same bytes");
        }
    }
}

#[test]
fn one_thread_makes_no_request_but_for_pages() {
    let (place, bucket) = (Place::new(), bucket(numbered(1000), 100));
    let summary = place.scan(&bucket, 1).unwrap();
    assert_eq!(summary.keys.unwrap().requests, 10);
}

#[test]
fn two_threads_share_the_pages_about_equally() {
    for names in [
        numbered(10_000),
        (0..10_000).map(|i| format!("{i}")).collect(),
        (0..10_000).map(|i| format!("img_{i:05}_of_10000.npz")).collect(),
    ] {
        let bucket = bucket(names, 100);
        // A thread that does not get a processor for long lists fewer pages, so that a single listing proves nothing.
        let equal = (0..5).any(|_| most_pages_of_one_of_two_threads(&bucket) <= 66);
        assert!(equal, "in five listings, one thread listed two thirds of the pages");
    }
}

/// Lists with two threads; returns the pages that the busier one listed.
fn most_pages_of_one_of_two_threads(bucket: &Bucket) -> u64 {
    let (pages_before, requests_before) =
        (bucket.pages.load(Ordering::SeqCst), bucket.requests.load(Ordering::SeqCst));
    let (place, clock) = (Place::new(), Rounds::new(bucket));
    let (store, world, events) = (place.store(), Solo::new(), Events::default());
    let (options, stop) = (place.options(2), Stop::default());
    let scan = KeyScan {
        store: &store,
        keys: &clock,
        options: &options,
        world: &world,
        stop: &stop,
        events: &events,
    };
    let summary = scan.run().unwrap();
    assert_eq!(listed(&summary.catalog), expected(bucket));
    let pages = bucket.pages.load(Ordering::SeqCst) - pages_before;
    assert!(pages <= 100 + 12, "{pages} pages");
    let probes = bucket.requests.load(Ordering::SeqCst) - requests_before - pages;
    assert!(probes <= 60, "{probes} probes");
    clock.most_of_one_thread()
}

/// Counts the pages of each thread. A page takes longer than a single name.
#[derive(Debug)]
struct Rounds<'a> {
    bucket: &'a Bucket,
    pages: Mutex<BTreeMap<String, u64>>,
}

impl<'a> Rounds<'a> {
    fn new(bucket: &'a Bucket) -> Rounds<'a> {
        Rounds { bucket, pages: Mutex::default() }
    }

    fn most_of_one_thread(&self) -> u64 {
        *self.pages.lock().unwrap().values().max().unwrap()
    }
}

impl KeyListing for Rounds<'_> {
    fn shown(&self, name: &str) -> String {
        self.bucket.shown(name)
    }

    fn identity(&self) -> Vec<u8> {
        self.bucket.identity()
    }

    fn lists_after(&self) -> bool {
        true
    }

    fn page(
        &self,
        request: &KeyRequest<'_>,
        each: &mut dyn FnMut(ListedName<'_>),
    ) -> Result<Option<String>, StoreError> {
        meter::pause(Duration::from_micros(if request.most == 0 { 2000 } else { 200 }));
        if request.most == 0 {
            let thread = format!("{:?}", std::thread::current().id());
            *self.pages.lock().unwrap().entry(thread).or_default() += 1;
        }
        self.bucket.page(request, each)
    }
}

#[test]
fn a_range_that_is_divided_during_a_request_loses_no_name() {
    // The second page of the first thread waits until the other one has found a border and listed pages behind it.
    for until in 1..12 {
        let bucket = Bucket { held: Some((1, until)), ..bucket(numbered(300), 10) };
        let summary = Place::new().scan(&bucket, 2).unwrap();
        assert_eq!(listed(&summary.catalog), expected(&bucket), "{until}");
    }
}

#[test]
fn an_error_at_any_request_ends_the_listing_and_the_next_one_continues() {
    for (lists_after, threads) in [(true, 1), (true, 2), (true, 4), (false, 1), (false, 3)] {
        let whole = bucket(numbered(120), 10).by(lists_after);
        let reference = Place::new();
        reference.scan(&whole, 1).unwrap();
        for at in 0..14 {
            let place = Place::new();
            let failing = Bucket { fault: Fault::Fails(at), ..bucket(numbered(120), 10).by(lists_after) };
            match place.scan(&failing, threads) {
                Err(error) => {
                    let text = error.to_string();
                    assert!(matches!(error, ScanError::Keys(_)), "{text}");
                    assert!(
                        text.contains("connection reset") && text.contains("continues from there"),
                        "{text}"
                    );
                    assert!(!place.folder.path().join("store").join(FOLDER).join(FILE).exists());
                }
                // There are twelve pages.
                Ok(_) => assert!(at >= 12),
            }
            let again = bucket(numbered(120), 10).by(lists_after);
            let summary = place.scan(&again, threads).unwrap();
            assert_eq!(place.bytes(), reference.bytes(), "{lists_after} {threads} {at}");
            if at < 12 && lists_after && threads == 1 {
                let keys = summary.keys.unwrap();
                assert_eq!((keys.resumed, keys.requests), (10 * at, 12 - at));
            }
            assert!(place.is_clean());
        }
    }
}

#[test]
fn a_listing_that_is_killed_again_and_again_ends_with_the_same_catalog() {
    for (lists_after, threads, at) in [(true, 1, 3), (true, 3, 4), (false, 2, 9)] {
        let (place, reference) = (Place::new(), Place::new());
        reference.scan(&bucket(numbered(200), 10).by(lists_after), 1).unwrap();
        let mut listings = 0;
        loop {
            let failing = Bucket { fault: Fault::Fails(at), ..bucket(numbered(200), 10).by(lists_after) };
            listings += 1;
            if place.scan(&failing, threads).is_ok() {
                break;
            }
            // A crash may tear the last record.
            let journal = std::fs::read_dir(place.state()).unwrap().next().unwrap().unwrap().path();
            let length = std::fs::metadata(&journal).unwrap().len();
            if listings % 3 == 0 {
                std::fs::OpenOptions::new().write(true).open(&journal).unwrap().set_len(length - 5).unwrap();
            }
            assert!(listings < 100, "it makes progress");
        }
        assert_eq!(place.bytes(), reference.bytes());
        assert!(listings > 1);
    }
}

#[test]
fn other_suffixes_start_anew() {
    let place = Place::new();
    let failing = Bucket { fault: Fault::Fails(5), ..bucket(numbered(120), 10) };
    place.scan(&failing, 1).unwrap_err();
    let options = ListOptions { suffixes: vec![b"3.jpg".to_vec()], ..place.options(1) };
    let summary = place.scan_with(&bucket(numbered(120), 10), &options, &Stop::default()).unwrap();
    let keys = summary.keys.unwrap();
    assert_eq!((summary.files, keys.resumed, keys.names), (12, 0, 120));
    assert_eq!(summary.skipped.count(SkipReason::Unmatched), 108);
    // A listing anew keeps the suffixes of the catalog.
    let options = ListOptions { refresh: true, ..place.options(1) };
    let summary = place.scan_with(&bucket(numbered(120), 10), &options, &Stop::default()).unwrap();
    assert_eq!(summary.files, 12);
}

#[test]
fn a_refresh_and_a_fresh_listing_continue_nothing() {
    for change in [
        ListOptions { refresh: true, ..ListOptions::default() },
        ListOptions { fresh: true, ..ListOptions::default() },
    ] {
        let place = Place::new();
        place.scan(&bucket(numbered(120), 10), 1).unwrap();
        let failing = Bucket { fault: Fault::Fails(5), ..bucket(numbered(120), 10) };
        place.scan(&failing, 1).unwrap_err();
        // Names that were listed before the error have gone since.
        let options = ListOptions { refresh: change.refresh, fresh: change.fresh, ..place.options(1) };
        let later = bucket(numbered(120).split_off(40), 10);
        let summary = place.scan_with(&later, &options, &Stop::default()).unwrap();
        assert_eq!((summary.files, summary.keys.unwrap().resumed), (80, 0), "{change:?}");
        assert_eq!(listed(&summary.catalog), expected(&later));
        assert!(place.is_clean());
    }
}

#[test]
fn servers_that_list_incorrectly_are_refused() {
    for (fault, threads, words) in [
        (Fault::Repeats, 1, "out of order"),
        (Fault::Overlaps, 1, "out of order"),
        (Fault::SameToken, 1, "followed by an earlier one"),
        (Fault::Cycle, 1, "followed by an earlier one"),
        (Fault::IgnoresAfter, 2, "list with --threads 1"),
    ] {
        // With two threads, the first one must not list everything before the other one begins.
        let held = (threads == 2).then_some((1, 2));
        let (place, bucket) = (Place::new(), Bucket { fault, held, ..bucket(numbered(300), 10) });
        let error = place.scan(&bucket, threads).unwrap_err();
        assert!(is_about_listing(&error), "{fault:?}: {error}");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("s3://bucket/p"), "{fault:?}: {text}");
        assert!(!place.folder.path().join("store").join(FOLDER).join(FILE).exists());
    }
    for fault in [Fault::Unsorted(0), Fault::SameToken, Fault::Cycle, Fault::Overlaps] {
        let names: Vec<String> = (0..50).map(|i| format!("x/{i:02}")).collect();
        let bucket = Bucket { fault, ..bucket(names, 10).by(false) };
        let outcome = Place::new().scan(&bucket, 2);
        assert!(
            outcome.is_err_and(|error| is_about_listing(&error)) || fault == Fault::Unsorted(0),
            "{fault:?}"
        );
    }
}

fn is_about_listing(error: &ScanError) -> bool {
    matches!(error, ScanError::WrongListing { .. } | ScanError::OutOfOrder { .. })
}

/// Folders are listed one by one then, and an interrupted listing is continued that way.
#[test]
fn a_server_with_another_order_is_listed_by_folder() {
    let names = || {
        let files = (0..40).map(|i| format!("{}/{i:02}", ["data", "data-old", "data.new", "x/data"][i % 4]));
        files.chain(["data-file".to_owned(), "y".to_owned()]).collect::<Vec<String>>()
    };
    for threads in [1, 3] {
        let (place, bucket) = (Place::new(), Bucket { by_tree: true, ..bucket(names(), 7) });
        let summary = place.scan(&bucket, threads).unwrap();
        assert_eq!(listed(&summary.catalog), expected(&bucket), "{threads} threads");
        assert!(!summary.keys.unwrap().in_order && place.is_clean());
    }
    for page in [0, 3] {
        let unsorted = Bucket { fault: Fault::Unsorted(page), ..bucket(names(), 7) };
        let summary = Place::new().scan(&unsorted, 1).unwrap();
        assert_eq!(listed(&summary.catalog), expected(&unsorted), "page {page}");
    }
    let place = Place::new();
    let fails = Bucket { by_tree: true, fault: Fault::Fails(6), ..bucket(names(), 7) };
    assert!(matches!(place.scan(&fails, 1), Err(ScanError::Keys(_))));
    let summary = place.scan(&Bucket { by_tree: true, ..bucket(names(), 7) }, 1).unwrap();
    assert_eq!(listed(&summary.catalog), expected(&fails));
    let keys = summary.keys.unwrap();
    assert!(keys.resumed > 0 && !keys.in_order, "{keys:?}");
}

#[test]
fn what_is_not_data_is_counted() {
    let names = [
        "",
        "a b/ü.jpg",
        "a//b",
        "a/",
        ".feedline/catalog",
        ".git/config",
        "x/.hidden",
        "x/y.partial",
        "x/z.idx",
        "x/z.txt",
        &"n".repeat(1000),
    ];
    for lists_after in [true, false] {
        let place = Place::new();
        let summary = place.scan(&bucket(names, 3).by(lists_after), 2).unwrap();
        let found: Vec<String> = listed(&summary.catalog).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, ["a b/ü.jpg", &"n".repeat(1000), "x/z.txt"]);
        let count = |reason| summary.skipped.count(reason);
        assert_eq!(count(SkipReason::Hidden), 2, "{:?}", summary.skipped);
        assert_eq!((count(SkipReason::Marker), count(SkipReason::Unusable)), (2, 1));
        assert_eq!((count(SkipReason::Partial), count(SkipReason::Index)), (1, 1));
        assert_eq!(summary.skipped.example(SkipReason::Unusable), Some(b"a//b".as_slice()));
        let suffixes = vec![b".none".to_vec()];
        let options = ListOptions { suffixes, ..place.options(2) };
        let error =
            place.scan_with(&bucket(names, 3).by(lists_after), &options, &Stop::default()).unwrap_err();
        assert_eq!(error.to_string(), "there are no files in s3://bucket/p with one of the given suffixes");
        assert!(place.is_clean());
    }
}

#[test]
fn the_digest_is_that_of_the_same_tree_in_a_folder() {
    let (place, tree) = (Place::new(), Tree::new());
    let bucket = bucket(["a/b/c.bin", "a/d", "e", "f/g/h/i"], 2);
    for (name, bytes) in &bucket.names {
        tree.write(name, *bytes as usize);
    }
    let (objects, files) = (place.scan(&bucket, 2).unwrap(), tree.scan(&ListOptions::default()).unwrap());
    assert_eq!((objects.digest, objects.folders), (files.digest, files.folders));
}

#[test]
fn a_catalog_goes_to_a_file_or_into_the_store_and_spares_others() {
    let place = Place::new();
    let output = place.folder.path().join("list");
    let options = ListOptions { output: Some(output.clone()), ..ListOptions::default() };
    let keys = bucket(numbered(50), 10);
    let summary = place.scan_with(&keys, &options, &Stop::default()).unwrap();
    assert_eq!(summary.path, output);
    let opened = OpenCatalog::of_objects(&output, "s3://bucket/p").unwrap();
    assert!(opened.is_of_objects() && opened.catalog().lists_objects());
    assert_eq!(listed(&opened), expected(&keys));
    assert!(!place.folder.path().join("store").join(FOLDER).join(FILE).exists());
    std::fs::write(&output, "precious").unwrap();
    let error = place.scan_with(&keys, &options, &Stop::default()).unwrap_err();
    assert!(matches!(error, ScanError::InTheWay(_)), "{error}");
    let object = place.folder.path().join("store").join(FOLDER).join(FILE);
    std::fs::write(&object, "precious").unwrap();
    let error = place.scan(&keys, 1).unwrap_err();
    assert!(matches!(&error, ScanError::InTheWay(path) if path.ends_with(".feedline/catalog")), "{error}");
    assert_eq!(std::fs::read(&object).unwrap(), b"precious");
    let error = place.scan_with(&keys, &ListOptions::default(), &Stop::default()).unwrap_err();
    assert!(matches!(error, ScanError::InTheWay(_)), "{error}");
    std::fs::remove_file(&object).unwrap();
    let error = place.scan_with(&keys, &ListOptions::default(), &Stop::default()).unwrap_err();
    assert!(matches!(error, ScanError::NoStateFolder), "{error}");
}

#[test]
fn a_stop_request_ends_the_listing_and_keeps_what_was_listed() {
    let (place, stop) = (Place::new(), Stop::default());
    stop.wish();
    let error = place.scan_with(&bucket(numbered(50), 10), &place.options(3), &stop).unwrap_err();
    assert!(matches!(error, ScanError::Interrupted), "{error}");
    place.scan(&bucket(numbered(50), 10), 3).unwrap();
}

#[test]
fn all_members_return_the_outcome_of_the_first() {
    let place = Place::new();
    let seen = AtomicBool::new(false);
    for fails in [true, false] {
        let keys =
            Bucket { fault: if fails { Fault::Fails(1) } else { Fault::None }, ..bucket(numbered(50), 10) };
        let outcomes: Vec<Result<bool, ScanError>> = std::thread::scope(|scope| {
            let (keys, place, seen) = (&keys, &place, &seen);
            let work = |world: crate::world::threads::ThreadMember| {
                scope.spawn(move || {
                    let (store, stop, events) = (place.store(), Stop::default(), Events::default());
                    let options = &place.options(2);
                    let world = &world;
                    let here = if world.member() == 0 {
                        seen.store(true, Ordering::SeqCst);
                        KeyScan { store: &store, keys, options, world, stop: &stop, events: &events }
                            .run()
                            .map(Some)
                    } else {
                        Ok(None)
                    };
                    agreed(world, here, &stop).map(|summary| summary.is_some())
                })
            };
            let threads: Vec<_> = members(3).into_iter().map(work).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (member, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(summary) => assert!(!fails && summary == (member == 0)),
                Err(error) => assert!(fails && error.to_string().contains("connection reset"), "{error}"),
            }
        }
    }
    assert!(seen.load(Ordering::SeqCst));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_keys_are_listed_by_any_number_of_threads(
        names in proptest::collection::btree_set("[a-c]{0,2}(/[0-9a-bé ]{1,3}){0,3}", 1..150),
        threads in 1usize..9,
        page in 1usize..20,
        timing in any::<u64>(),
        lists_after in any::<bool>()
    ) {
        let bucket = Bucket { timing, ..bucket(names, page) }.by(lists_after);
        let usable = |name: &str| !name.is_empty() && name.split('/').all(|part| !part.is_empty());
        let expected: Vec<(String, u64)> =
            expected(&bucket).into_iter().filter(|(name, _)| usable(name)).collect();
        match Place::new().scan(&bucket, threads) {
            Ok(summary) => prop_assert_eq!(listed(&summary.catalog), expected),
            Err(error) => prop_assert!(matches!(error, ScanError::Empty { .. }) && expected.is_empty(), "{}", error),
        }
    }
}
