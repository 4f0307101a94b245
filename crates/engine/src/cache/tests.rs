//! Preparing and checking the page cache for real files, also with a store that cheats.

use std::collections::BTreeSet;
use std::path::Path;

use model::files::FileEntry;
use model::ledger::Ledger;
use model::order::{Order, Shards};
use model::units::Nanos;
use model::verdict::RuleOutcome;
use store::{
    Capabilities, Fetch, FetchWait, Fetched, FinishedFetch, Lane, Mode, Posix, Spans, Store, StoreError,
    Traffic,
};

use super::*;
use crate::meter::Monotonic;
use crate::train::tests::{computed, judge, plan, with_rig};
use crate::world::Solo;
use crate::world::threads::{ThreadMember, members_on};
use crate::{SplitFiles, Stop, train};

/// Keeps what was read, and returns it again without reading.
#[derive(Debug)]
struct Secret {
    files: Posix,
    kept: Mutex<BTreeSet<String>>,
}

struct SecretLane<'a> {
    lane: Box<dyn Lane + 'a>,
    kept: &'a Mutex<BTreeSet<String>>,
    done: Option<FinishedFetch>,
}

impl Lane for SecretLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        if lock(self.kept).insert(fetch.name.to_string()) {
            return self.lane.submit(reader, fetch);
        }
        let bytes = fetch.ranges.iter().map(|range| range.len).sum();
        let outcome = Ok(Fetched { bytes, opens: 1, reads: 1, ..Fetched::default() });
        self.done = Some(FinishedFetch { reader, at: fetch.at, began: fetch.at, outcome, kept: fetch.into });
    }

    fn reap(&mut self) -> Option<FinishedFetch> {
        self.done.take().or_else(|| self.lane.reap())
    }

    fn awaits(&self) -> FetchWait {
        self.lane.awaits()
    }

    fn take_spans(&mut self) -> Spans {
        self.lane.take_spans()
    }
}

impl Store for Secret {
    fn name(&self) -> &'static str {
        "posix"
    }

    fn capabilities(&self) -> Capabilities {
        self.files.capabilities()
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        Ok(Box::new(SecretLane { lane: self.files.lane(traffic)?, kept: &self.kept, done: None }))
    }

    fn files(&self) -> &dyn store::Files {
        self.files.files()
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        self.files.observed()
    }
}

/// Writes the files of a plan; their content does not matter.
fn write(plan: &TrainingPlan, folder: &Path) {
    let (files, _) = computed(plan);
    let mut name = Name::default();
    for file in 0..plan.data.train.files {
        let bytes = files.entry(file, &mut name).unwrap().bytes;
        let path = folder.join(name.to_string());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![7; bytes as usize]).unwrap();
    }
}

fn run(plan: &TrainingPlan, store: &dyn Store, folder: &Path) -> Ledger {
    let pages = PageCache::below(folder).unwrap();
    with_rig(plan, store, &Monotonic::new(), &Stop::default(), |rig| {
        train(&TrainingSetup { pages: Some(&pages), ..*rig }).unwrap()
    })
}

fn cache_rule(plan: &TrainingPlan, ledger: &Ledger) -> (RuleOutcome, String) {
    let verdict = judge(plan, ledger);
    let found = verdict.rules.into_iter().find(|finding| finding.rule == "cache").unwrap();
    (found.outcome, found.evidence)
}

const SETTINGS: [&str; 3] =
    ["train.computation_time=0", "dataset.record_length_bytes=20000", "reader.access=extent"];

#[test]
fn a_store_that_caches_contents_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let honest = Posix::open(folder.path(), Mode::default()).unwrap();
    let plan = plan(&SETTINGS, 2, &honest);
    write(&plan, folder.path());
    let ground = StorageStack::of(fs::File::open(folder.path()).unwrap(), "").unwrap();
    let (outcome, evidence) = cache_rule(&plan, &run(&plan, &honest, folder.path()));
    if ground.untold().is_some() {
        eprintln!("NOT TESTED as it should be: {} does not report resident pages", ground.file_system.name);
        assert_eq!(outcome, RuleOutcome::NotCheckable, "{evidence}");
    } else {
        assert_eq!(outcome, RuleOutcome::Pass, "{evidence}");
    }
    let secret =
        Secret { files: Posix::open(folder.path(), Mode::default()).unwrap(), kept: Mutex::default() };
    let ledger = run(&plan, &secret, folder.path());
    let counted = ledger.cache(2, Phase::Train).counted;
    assert_eq!((counted.fetches, counted.unasked), (0, 60), "pages could not be counted without reads");
    let (outcome, evidence) = cache_rule(&plan, &ledger);
    assert_ne!(outcome, RuleOutcome::Pass, "{evidence}");
    // If tests share a process, reads of other tests count as this one's; then the uncounted pages are the evidence.
    let alone = ledger.node_total(2, Phase::Train).device_read_bytes == 0;
    if alone && ground.untold().is_none() && ground.file_system.counter() == store::Counter::Process {
        assert_eq!(outcome, RuleOutcome::Fail, "{evidence}");
        assert!(
            evidence.starts_with("epoch 2, train: only 0 % of the bytes came from the storage"),
            "{evidence}"
        );
    }
}

#[test]
fn prepared_pages_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let store = Posix::open(folder.path(), Mode::default()).unwrap();
    let cold = plan(&SETTINGS, 2, &store);
    write(&cold, folder.path());
    let name = Name::new(".").unwrap();
    if let Some(why) = PageCache::below(folder.path()).unwrap().ground(&name).unwrap().untold() {
        eprintln!("NOT TESTED: {why}");
        return;
    }
    let pages = |plan: &TrainingPlan| 60 * (plan.data.train.bytes / 60).div_ceil(4096);
    let seen = run(&cold, &store, folder.path()).cache(1, Phase::Train);
    let made = seen.made;
    assert_eq!((made.files, made.pages, made.found, made.after), (60, pages(&cold), pages(&cold), 0));
    let again = run(&cold, &store, folder.path());
    assert_eq!(again.cache(1, Phase::Train).made.found, 0, "pages that were read were evicted");
    let settings = [SETTINGS.as_slice(), &["reader.cache=warm"]].concat();
    let warm = plan(&settings, 2, &store);
    let ledger = run(&warm, &store, folder.path());
    for (epoch, found) in [(1, 0), (2, pages(&warm))] {
        let seen = ledger.cache(epoch, Phase::Train);
        assert_eq!((seen.made.found, seen.made.after), (found, pages(&warm)), "epoch {epoch}");
        assert!(seen.counted.pages > 0 && seen.counted.resident == seen.counted.pages, "{seen:?}");
    }
    assert_eq!(cache_rule(&warm, &ledger).0, RuleOutcome::Pass);
}

#[test]
fn a_sample_counts_some_fetches_and_none_counts_no_fetch() {
    let folder = tempfile::tempdir().unwrap();
    let store = Posix::open(folder.path(), Mode::default()).unwrap();
    let settings = |proof| [SETTINGS.as_slice(), &["dataset.num_files_train=1000", proof]].concat();
    let sampled = plan(&settings("reader.cache_proof=sample"), 2, &store);
    write(&sampled, folder.path());
    let counted = run(&sampled, &store, folder.path()).cache(1, Phase::Train).counted;
    assert_eq!(counted.fetches + counted.left_out + counted.refused, 1000);
    assert!((20..150).contains(&(counted.fetches + counted.refused)), "{counted:?}");
    let none = plan(&settings("reader.cache_proof=none"), 2, &store);
    let ledger = run(&none, &store, folder.path());
    assert_eq!(ledger.cache(1, Phase::Train).counted.unasked, 1000);
    assert_eq!(cache_rule(&none, &ledger).0, RuleOutcome::NotCheckable);
}

/// A list that is slow to answer one of its calls.
struct Lingering<'a> {
    files: &'a dyn FileList,
    asked: AtomicU64,
    at: u64,
}

/// Long enough to count as stuck, and short enough to return before the work is abandoned.
const LINGERS: Duration = Duration::from_millis(2500);
const IMPATIENT: Nanos = Nanos(500_000_000);

impl FileList for Lingering<'_> {
    fn entry(&self, file: u64, name: &mut Name) -> Result<FileEntry, String> {
        if self.asked.fetch_add(1, Ordering::SeqCst) == self.at {
            std::thread::sleep(LINGERS);
        }
        self.files.entry(file, name)
    }
}

/// A run of two epochs over 60 files whose list is slow at one call, with a short stall timeout.
fn run_stuck_at(at: u64) -> Option<Result<Ledger, CacheError>> {
    let folder = tempfile::tempdir().unwrap();
    let store = Posix::open(folder.path(), Mode::default()).unwrap();
    let plan = plan(&SETTINGS, 2, &store);
    write(&plan, folder.path());
    let pages = PageCache::below(folder.path()).unwrap();
    if pages.ground(&Name::new(".").unwrap()).unwrap().file_system.is_memory() {
        eprintln!("NOT TESTED: the files are in memory, where nothing is evicted");
        return None;
    }
    let stop = Stop::default().with_patience(Some(IMPATIENT));
    Some(with_rig(&plan, &store, &Monotonic::new(), &stop, |rig| {
        let list = Lingering { files: rig.files.train, asked: AtomicU64::new(0), at };
        train(&TrainingSetup { pages: Some(&pages), files: SplitFiles { train: &list, ..rig.files }, ..*rig })
    }))
}

#[test]
fn eviction_that_gets_stuck_ends_the_run_and_loses_no_results() {
    // One call for the storage below the files, then one for each file that is examined, evicted and read.
    if let Some(outcome) = run_stuck_at(1 + 60 + 30) {
        let refused = outcome.unwrap_err();
        assert!(
            matches!(&refused, CacheError::Stuck(why) if why.starts_with("no progress for")),
            "{refused}"
        );
    }
    // In the second epoch.
    if let Some(outcome) = run_stuck_at(1 + 3 * 60 + 16 + 30) {
        let ledger = outcome.unwrap();
        let message = &ledger.faults()[0].message;
        assert!(message.starts_with("could not prepare the page cache: no progress"), "{message}");
        assert_eq!(ledger.total(1, Phase::Train).samples_delivered, 60, "earlier results are kept");
    }
}

/// The files that a phase with this many files and samples per file visits when `delivered` samples are read.
fn walked(files: u64, per_file: u64, unit: Unit, delivered: u64) -> Vec<u64> {
    let order = Order { files, samples_per_file: per_file, unit, seed: 3, reshuffle: true };
    let shards = Shards::new(files * per_file, 1, 1, Some(delivered));
    assert_eq!(shards.delivered(), delivered);
    let positions = Positions::of_node(&Solo::new(), &shards);
    assert_eq!((positions.0.len(), positions.len(), positions.nth(0)), (1, delivered, 0));
    files_of(&order, order.epoch(1), positions).collect()
}

#[test]
fn exactly_the_files_that_are_read_are_visited() {
    let sorted = |mut files: Vec<u64>| {
        files.sort_unstable();
        files
    };
    assert_eq!(sorted(walked(50, 1, Unit::Sample, 50)), (0..50).collect::<Vec<_>>());
    assert_eq!(walked(50, 1, Unit::Sample, 20).len(), 20);
    assert_eq!(walked(50, 10, Unit::None, 35), [0, 1, 2, 3]);
    assert_eq!(walked(50, 10, Unit::File, 35).len(), 4, "each once");
    assert_eq!(sorted(walked(50, 10, Unit::File, 500)), (0..50).collect::<Vec<_>>());
    assert_eq!(walked(50, 10, Unit::Sample, 500), (0..50).collect::<Vec<_>>(), "all of them, once");
    assert!(walked(50, 10, Unit::Sample, 20).len() <= 20);
}

#[test]
fn a_node_reads_the_positions_of_its_ranks() {
    let shards = Shards::new(80, 8, 2, None);
    let worlds = members_on(&["a", "b", "a", "a"]);
    let of = |world: &ThreadMember| Positions::of_node(world, &shards);
    // 8 ranks of 10 samples, two for each member.
    assert_eq!(of(&worlds[0]), Positions(vec![0..20, 40..80]));
    assert_eq!((of(&worlds[1]).0.len(), of(&worlds[1]).len(), of(&worlds[1]).nth(0)), (1, 20, 20));
    assert_eq!(of(&worlds[2]), of(&worlds[0]));
    let nth: Vec<u64> = (0..of(&worlds[0]).len()).map(|place| of(&worlds[0]).nth(place)).collect();
    assert_eq!(nth, (0..20).chain(40..80).collect::<Vec<_>>());
    let order = Order { files: 80, samples_per_file: 1, unit: Unit::None, seed: 3, reshuffle: true };
    assert_eq!(
        files_of(&order, order.epoch(1), of(&worlds[1])).collect::<Vec<_>>(),
        (20..40).collect::<Vec<_>>()
    );
    assert_eq!(files_of(&order, order.epoch(1), of(&worlds[0])).collect::<Vec<_>>(), nth);
}

/// The ledgers of members on these hosts.
fn run_on(hosts: &[&str], plan: &TrainingPlan, folder: &Path) -> Vec<Ledger> {
    std::thread::scope(|scope| {
        let start = |world: ThreadMember| {
            scope.spawn(move || {
                let store = Posix::open(folder, Mode::default()).unwrap();
                let pages = PageCache::below(folder).unwrap();
                with_rig(plan, &store, &Monotonic::new(), &Stop::default(), |rig| {
                    train(&TrainingSetup { world: &world, pages: Some(&pages), ..*rig }).unwrap()
                })
            })
        };
        let threads: Vec<_> = members_on(hosts).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn the_first_member_of_a_node_prepares_it_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let store = Posix::open(folder.path(), Mode::default()).unwrap();
    let plan = plan(&SETTINGS, 4, &store);
    write(&plan, folder.path());
    let name = Name::new(".").unwrap();
    if let Some(why) = PageCache::below(folder.path()).unwrap().ground(&name).unwrap().untold() {
        eprintln!("NOT TESTED: {why}");
        return;
    }
    let ledgers = run_on(&["a", "a", "b", "a"], &plan, folder.path());
    let prepared: Vec<u64> = ledgers.iter().map(|ledger| ledger.cache(1, Phase::Train).made.files).collect();
    let per_rank = plan.train.shards.delivered() / 4;
    assert_eq!(prepared, [3 * per_rank, 0, per_rank, 0], "files that the ranks of each node read");
    let sum = ledgers.into_iter().fold(Ledger::default(), |mut sum, ledger| {
        sum += ledger;
        sum
    });
    assert_eq!(sum.faults(), []);
    let seen = sum.cache(1, Phase::Train);
    assert_eq!((seen.made.after, seen.counted.resident), (0, 0), "every node read from storage: {seen:?}");
}
