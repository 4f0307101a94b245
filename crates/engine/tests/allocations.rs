//! The hot path is quiet: a run allocates to get going, and not per sample. One test only, since it counts what the
//! whole process allocates.

#![expect(clippy::unwrap_used, reason = "a test")]

extern crate feedline_engine as engine;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::generate::{Generation, generate};
use engine::meter::Monotonic;
use engine::{Files, Pulse, Rig, Solo, Stop, Truth, train};
use format::{Arithmetic, Content};
use model::ledger::Phase;
use model::plan::{Request, TrainingPlan};
use model::spec::{self, Override, Source, Spec};
use store::{BACKENDS, Mode, Selection};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counter does not touch memory that it hands out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn spec(settings: &[&str], steps: u64) -> Spec {
    let text = "
framework: pytorch
dataset: {format: jpeg, num_files_train: 2000, record_length_bytes: 2500}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2, sample_shuffle: seed}
train: {computation_time: 0}
";
    let mut overrides = vec![format!("train.total_training_steps={steps}")];
    overrides.extend(settings.iter().map(|setting| (*setting).to_owned()));
    let overrides: Vec<Override> = overrides.iter().map(|text| Override::hydra(text, text)).collect();
    spec::read(Source { name: "test", text }, &overrides).unwrap().spec
}

fn plan(selection: &Selection, settings: &[&str], steps: u64) -> TrainingPlan {
    let request = Request {
        workload: "test",
        ranks: 2,
        hosts: 1,
        host_memory_bytes: 1 << 30,
        cores: 2,
        store: &selection.plan(),
        memory: None,
        entropy: 1,
        measure: Some(&Arithmetic(&*format::plain("jpeg").unwrap())),
        listed: None,
    };
    TrainingPlan::resolve(&spec(settings, steps), &request).unwrap()
}

/// Allocations of a run of so many steps.
fn allocations(selection: &Selection, folder: &Path, settings: &[&str], steps: u64) -> u64 {
    let plan = plan(selection, settings, steps);
    let store = selection.open(folder).unwrap();
    let [train_files, valid_files] =
        [&plan.data.train, &plan.data.valid].map(|split| plan.data.computed().unwrap().files_of(split));
    let (clock, stop, pulse) = (Monotonic::new(), Stop::default(), Pulse::default());
    let files = Files { train: &train_files, valid: &valid_files };
    let format = format::plain("jpeg").unwrap();
    let rig = Rig {
        plan: &plan,
        world: &Solo::new(plan.ranks()),
        format: &*format,
        store: &*store,
        pages: None,
        files,
        truth: Some(Truth { content: Content::new(plan.seed), data: plan.data.computed().unwrap() }),
        checkpoints: None,
        clock: &clock,
        stop: &stop,
        pulse: &pulse,
    };
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    let ledger = train(&rig).unwrap();
    let count = ALLOCATIONS.load(Ordering::SeqCst) - before;
    assert_eq!(ledger.faults(), []);
    let compared = ledger.node_total(1, Phase::Train).checked.bytes > 0;
    assert_eq!(compared, plan.store.brings_bytes);
    count
}

/// Settings that take other ways through the loader.
const WAYS: [&[&str]; 7] = [
    &[],
    &["framework=tensorflow", "reader.data_loader=tensorflow"],
    &["framework=tensorflow", "reader.data_loader=tensorflow", "reader.ordered=false"],
    &["reader.data_loader=dali"],
    &["reader.retain=batch"],
    &["reader.verify=full"],
    &["reader.preprocess_time=0.00001", "reader.preprocess_threads=1"],
];

#[test]
fn a_longer_run_allocates_no_more_than_a_short_one() {
    // Beside the workspace's own build, which is on a disk: O_DIRECT has no meaning on a file system in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let posix = Selection::named("posix", Mode::default()).unwrap();
    let plan = plan(&posix, &[], 20);
    generate(&Generation {
        data: plan.data.computed().unwrap(),
        spec: &spec(&[], 20),
        format: &*format::plain("jpeg").unwrap(),
        store: &*posix.open(folder.path()).unwrap(),
        keep_seed: false,
        writers: 2,
        overwrite: false,
        verify: true,
        stop: &Stop::default(),
        pulse: &Pulse::default(),
    })
    .unwrap();
    for backend in BACKENDS.rows {
        let device = backend.example;
        let store = Selection::named(device, Mode::default()).unwrap();
        for settings in WAYS {
            let count = |steps| allocations(&store, folder.path(), settings, steps);
            count(20);
            let (short, long) = (count(20), count(200));
            // 1,800 samples more. A name, a buffer or a histogram that grows late may cost a handful.
            assert!(
                long <= short + 40,
                "{device} {settings:?}: {short} allocations for 200 samples, {long} for 2,000"
            );
        }
    }
}
