//! The hot path is quiet: a run allocates to get going, and not per sample. One test only, since it counts what the
//! whole process allocates.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::generate::{Generation, generate};
use engine::meter::Monotonic;
use engine::{Files, Pulse, Rig, Stop, train};
use format::Arithmetic;
use model::plan::{Plan, Request};
use model::spec::{self, Source, Spec};
use store::Backend;

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

fn spec(steps: u64) -> Spec {
    let text = "
framework: pytorch
dataset: {format: jpeg, num_files_train: 2000, record_length_bytes: 2500}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2, sample_shuffle: seed}
train: {computation_time: 0}
";
    let cap = format!("train.total_training_steps={steps}");
    spec::read(Source { name: "test", text }, &[cap]).unwrap().spec
}

fn plan(backend: &Backend, steps: u64) -> Plan {
    let request = Request {
        workload: "test",
        ranks: 2,
        hosts: 1,
        host_memory_bytes: 1 << 30,
        cores: 2,
        store: backend.name,
        store_blocks: backend.capabilities.blocking,
        entropy: 1,
        measure: Some(&Arithmetic(&*format::plain("jpeg").unwrap())),
        listed: None,
    };
    Plan::resolve(&spec(steps), &request).unwrap()
}

/// Allocations of a run of so many steps.
fn allocations(backend: &Backend, folder: &Path, steps: u64) -> u64 {
    let plan = plan(backend, steps);
    let store = backend.open(folder).unwrap();
    let [train_files, valid_files] =
        [&plan.data.train, &plan.data.valid].map(|split| plan.data.computed(split));
    let (clock, stop, pulse) = (Monotonic::new(), Stop::default(), Pulse::default());
    let files = Files { train: &train_files, valid: &valid_files };
    let format = format::plain("jpeg").unwrap();
    let rig = Rig {
        plan: &plan,
        format: &*format,
        store: &*store,
        files,
        clock: &clock,
        stop: &stop,
        pulse: &pulse,
    };
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    let ledger = train(&rig);
    let count = ALLOCATIONS.load(Ordering::SeqCst) - before;
    assert_eq!(ledger.faults(), []);
    count
}

#[test]
fn a_longer_run_allocates_no_more_than_a_short_one() {
    let folder = tempfile::tempdir().unwrap();
    let posix = Backend::named("posix").unwrap();
    let plan = plan(posix, 20);
    generate(&Generation {
        data: &plan.data,
        spec: &spec(20),
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
    for backend in [posix, Backend::named("null").unwrap()] {
        allocations(backend, folder.path(), 20);
        let (short, long) =
            (allocations(backend, folder.path(), 20), allocations(backend, folder.path(), 200));
        // 1,800 samples more. A name or a buffer that grows late may cost a handful.
        assert!(
            long <= short + 20,
            "{}: {short} allocations for 200 samples, {long} for 2,000",
            backend.name
        );
    }
}
