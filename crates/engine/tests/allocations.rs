//! The hot path allocates nothing: a run allocates when it starts, but not per sample. There is only one test, since it
//! counts the allocations of the whole process.

#![expect(clippy::unwrap_used, reason = "a test")]

extern crate feedline_engine as engine;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::generate::{Generation, generate};
use engine::meter::Monotonic;
use engine::{Events, Solo, SpanRequest, SplitFiles, Stop, TrainingSetup, Truth, train};
use format::{Arithmetic, Content, Extent, Look, Obstacle, ReadPieces, SourceFile};
use model::ledger::Phase;
use model::location::Location;
use model::objects::{CredentialSource, ObjectOptions, ObjectPlace, Service};
use model::plan::{Placement, Request, TrainingPlan};
use model::secret::Secret;
use model::spec::{self, Override, Spec, WorkloadSource};
use model::units::Share;
use store::{BACKENDS, Backend, Mode, PlaceKind, Selection};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Whether operations are recorded for a listener.
static TRACED: AtomicBool = AtomicBool::new(false);

// SAFETY: every call goes to the system's allocator unchanged; the counter does not touch the allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn spec(format: &str, settings: &[&str], steps: u64) -> Spec {
    let text = "
framework: pytorch
dataset: {num_files_train: 2000, record_length_bytes: 2500}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2, sample_shuffle: seed}
train: {computation_time: 0}
";
    let mut overrides =
        vec![format!("train.total_training_steps={steps}"), format!("dataset.format={format}")];
    overrides.extend(settings.iter().map(|setting| (*setting).to_owned()));
    let overrides: Vec<Override> = overrides.iter().map(|text| Override::hydra(text, text)).collect();
    spec::read(WorkloadSource { name: "test", text }, &overrides).unwrap().spec
}

fn plan(format: &str, selection: &Selection, settings: &[&str], steps: u64) -> TrainingPlan {
    let request = Request {
        workload: "test",
        ranks: 2,
        placement: Placement::even(2, 1, 1),
        host_memory_bytes: 1 << 30,
        cores: 2,
        store: &selection.plan(),
        memory: None,
        entropy: 1,
        measure: Some(&Arithmetic(&*format::plain(format).unwrap())),
        listed: None,
    };
    TrainingPlan::resolve(&spec(format, settings, steps), &request).unwrap()
}

/// Allocations of a run of a plan.
fn allocations(plan: &TrainingPlan, selection: &Selection, place: &Location) -> u64 {
    let store = selection.open(place.clone()).unwrap();
    let [train_files, valid_files] =
        [&plan.data.train, &plan.data.valid].map(|split| plan.data.computed().unwrap().files_of(split));
    let (clock, stop, events) = (Monotonic::new(), Stop::default(), Events::default());
    let files = SplitFiles { train: &train_files, valid: &valid_files };
    let format = format::plain(&plan.format).unwrap();
    let rig = TrainingSetup {
        plan,
        world: &Solo::new(),
        format: &*format,
        store: &*store,
        pages: None,
        files,
        truth: Some(Truth { content: Content::new(plan.seed), data: plan.data.computed().unwrap() }),
        checkpoints: None,
        clock: &clock,
        stop: &stop,
        events: &events,
    };
    // Every operation is recorded; the rings are drained afterwards, by this thread, and are too small for all.
    let steps = Share { numerator: 1, denominator: 1 };
    let stream = TRACED.load(Ordering::SeqCst).then(|| events.record(SpanRequest { steps, ring: Some(64) }));
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    let ledger = train(&rig).unwrap();
    let count = ALLOCATIONS.load(Ordering::SeqCst) - before;
    if let Some(stream) = stream {
        let mut spans = stream.dropped();
        stream.drain(&mut |_| spans += 1);
        assert!(spans > ledger.total(1, Phase::Train).samples_delivered, "operations were recorded");
    }
    assert_eq!(ledger.faults(), []);
    let compared = ledger.node_total(1, Phase::Train).checked.bytes > 0;
    assert_eq!(compared, plan.store.brings_bytes && plan.data.exact);
    count
}

/// Settings that use different code paths of the loader.
const WAYS: [&[&str]; 7] = [
    &[],
    &["framework=tensorflow", "reader.data_loader=tensorflow"],
    &["framework=tensorflow", "reader.data_loader=tensorflow", "reader.ordered=false"],
    &["reader.data_loader=dali"],
    &["reader.retain=batch"],
    &["reader.verify=full"],
    &["reader.preprocess_time=0.00001", "reader.preprocess_threads=1"],
];

/// The data sets of a test: one in a folder, and one at each object store, which are the servers of `scripts/test`. The
/// folder is next to the workspace's build folder, which is on a disk: O_DIRECT has no effect on a file system in
/// memory.
struct DataSets {
    format: &'static str,
    folder: tempfile::TempDir,
    bucket_prefix: String,
}

impl DataSets {
    fn new(format: &'static str) -> DataSets {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let bucket_prefix = format!("allocations{}", folder.path().file_name().unwrap().display());
        let sets = DataSets { format, folder, bucket_prefix };
        sets.generate(&Selection::named("posix", Mode::default()).unwrap(), &sets.folder.path().into());
        sets
    }

    /// A backend, and a data set that it can read.
    fn of(&self, backend: &Backend) -> (Selection, Location) {
        let selection = Selection::named(backend.example, Mode::default()).unwrap();
        let PlaceKind::Objects(service) = backend.place else {
            return (selection, self.folder.path().into());
        };
        let (bucket, options) = server(service);
        let prefix = self.bucket_prefix.clone();
        let place = Location::Objects(ObjectPlace { service, bucket, prefix });
        let selection = selection.with_objects(options, engine::meter::unix_seconds);
        self.generate(&selection, &place);
        (selection, place)
    }

    /// Writes 2,000 files.
    fn generate(&self, selection: &Selection, place: &Location) {
        generate(&Generation {
            data: plan(self.format, selection, &[], 20).data.computed().unwrap(),
            spec: &spec(self.format, &[], 20),
            format: &*format::plain(self.format).unwrap(),
            store: &*selection.open(place.clone()).unwrap(),
            place,
            world: &Solo::new(),
            keep_seed: false,
            writers: 4,
            overwrite: false,
            verify: true,
            stop: &Stop::default(),
            events: &Events::default(),
        })
        .unwrap();
    }
}

/// A bucket of a service's server, and how to reach it.
fn server(service: Service) -> (String, ObjectOptions) {
    let variable = |name: &str| {
        let name = format!("FEEDLINE_TEST_{name}");
        std::env::var(&name)
            .unwrap_or_else(|_| panic!("{name} is not set: run scripts/test, which starts the servers"))
    };
    let (name, bucket, account, credentials) = match service {
        Service::S3 => {
            let (id, secret) = (Secret::new(variable("S3_KEY")), Secret::new(variable("S3_SECRET")));
            ("S3", "S3_BUCKET", None, CredentialSource::Keys { id, secret, token: None })
        }
        Service::Gcs => ("GCS", "GCS_BUCKET", None, CredentialSource::Anonymous),
        Service::Azure => {
            let key = CredentialSource::AccountKey(Secret::new(variable("AZURE_KEY")));
            ("AZURE", "AZURE_CONTAINER", Some(variable("AZURE_ACCOUNT")), key)
        }
    };
    let options =
        ObjectOptions { endpoints: vec![variable(name)], account, credentials, ..ObjectOptions::default() };
    (variable(bucket), options)
}

fn samples_are_read_without_allocations() {
    let sets = DataSets::new("jpeg");
    for backend in BACKENDS.rows {
        let (device, (store, place)) = (backend.example, sets.of(backend));
        // The emulators of the other services are slow, and only the signatures of their requests differ.
        let ways = match backend.place {
            PlaceKind::Objects(Service::Gcs | Service::Azure) => &WAYS[..1],
            _ => &WAYS[..],
        };
        for settings in ways {
            let count = |steps| allocations(&plan("jpeg", &store, settings, steps), &store, &place);
            count(20);
            let (short, long) = (count(20), count(200));
            // 1,800 more samples. A name, a buffer or a histogram that grows late may take a few allocations.
            assert!(
                long <= short + 40,
                "{device} {settings:?}: {short} allocations for 200 samples, {long} for 2,000"
            );
        }
    }
}

/// Allocations of a format to find the sample of an existing file, from the first question to the answer.
fn parsing_allocations(plan: &TrainingPlan, file: &[u8]) -> u64 {
    let format = format::plain(&plan.format).unwrap();
    let (mut seen, mut reads, mut before) = (ReadPieces::default(), Vec::new(), 0);
    for _ in 0..2 {
        // Buffers grow in the first round.
        before = ALLOCATIONS.load(Ordering::SeqCst);
        seen.clear();
        loop {
            let look = Look::new(format.name(), file.len() as u64, &seen);
            reads.clear();
            let found = format.unit_of(&look, 1, plan.data.unit).and_then(|_| {
                format.reads(SourceFile::Foreign { look: &look, samples: 1 }, 0..1, &mut reads)
            });
            match found {
                Ok(()) => break,
                Err(Obstacle::Unread(Extent { offset, len })) => {
                    let bytes = &file[offset as usize..(offset + len) as usize];
                    seen.add(offset, len as usize).copy_from_slice(bytes);
                }
                Err(obstacle) => panic!("{obstacle}"),
            }
        }
    }
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

/// Fetching the metadata of existing files allocates nothing; only the format that parses it does.
fn metadata_is_fetched_without_allocations() {
    let sets = DataSets::new("npy");
    let file = sets.folder.path().join("train");
    let file = std::fs::read_dir(file).unwrap().next().unwrap().unwrap();
    let file = std::fs::read(file.path()).unwrap();
    for backend in BACKENDS.rows {
        if matches!(backend.place, PlaceKind::Objects(Service::Gcs | Service::Azure)) {
            continue;
        }
        let (device, (store, place)) = (backend.example, sets.of(backend));
        if !store.plan().holds_files {
            continue;
        }
        let existing = |steps| {
            // Treated as existing files.
            let mut plan = plan("npy", &store, &[], steps);
            plan.data.exact = false;
            plan
        };
        let count = |steps| allocations(&existing(steps), &store, &place);
        let parsing = parsing_allocations(&existing(20), &file);
        count(20);
        let (short, long) = (count(20), count(200));
        assert!(
            long <= short + 1800 * parsing + 40,
            "{device}: {short} allocations for 200 samples, {long} for 2,000, and {parsing} to parse one"
        );
    }
}

#[test]
fn a_longer_run_allocates_no_more_than_a_short_one() {
    for traced in [false, true] {
        TRACED.store(traced, Ordering::SeqCst);
        samples_are_read_without_allocations();
        metadata_is_fetched_without_allocations();
    }
}
