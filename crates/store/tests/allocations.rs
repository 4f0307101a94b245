//! Lanes do not allocate: once names and ranges have reached their sizes, a fetch allocates nothing. Only allocations
//! of the test's own thread are counted; the test harness has another thread, which prints at any time.

extern crate feedline_store as store;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::AtomicBool;

use model::extent::Extent;
use model::names::Name;
use model::plan::StorePlan;
use model::units::Nanos;
use store::conformance::registry::{is_unavailable, selections};
use store::{
    BACKENDS, Buffer, EpochReads, Fetch, FetchWait, FixedClock, Footprint, Lane, Proof, Purpose, Threads,
    Traffic,
};

struct Counting;

thread_local! {
    // Const-initialized and never dropped, so that counting allocates nothing itself.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; the counter does not touch the allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
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

const FILES: usize = 8;

/// Each reader fetches every file `rounds` times; sometimes the file stays open. Bytes are kept in buffers that are
/// returned.
fn fetch_all(lane: &mut dyn Lane, names: &[Name], spare: &mut Vec<Buffer>, rounds: usize) {
    let ranges = [Extent { offset: 0, len: 3000 }, Extent { offset: 6000, len: 4000 }];
    for round in 0..rounds {
        for reader in 0..spare.len() {
            let name = &names[(round + reader) % names.len()];
            let into = spare.pop();
            let keep_open = round % 3 > 0;
            lane.submit(
                reader,
                Fetch {
                    name,
                    purpose: Purpose::Metadata,
                    ranges: &ranges,
                    file_bytes: 10_000,
                    version: None,
                    keep_open,
                    at: Nanos::ZERO,
                    into,
                },
            );
        }
        loop {
            match (lane.reap(), lane.awaits()) {
                (Some(done), _) => {
                    assert_eq!(done.outcome.map(|brought| brought.bytes), Ok(7000));
                    spare.extend(done.kept);
                }
                (None, FetchWait::Nothing) => break,
                (None, _) => lane.wait(Nanos(1_000_000_000)),
            }
        }
    }
}

#[test]
fn a_fetch_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<Name> = (0..FILES).map(|file| Name::new(&format!("file_{file}")).unwrap()).collect();
    for name in &names {
        std::fs::write(folder.path().join(name.as_str()), [7; 10_000]).unwrap();
    }
    let go_on = AtomicBool::new(false);
    for selection in selections(BACKENDS) {
        let StorePlan { holds_files, threads, .. } = selection.plan();
        if !holds_files {
            continue;
        }
        let readers = if threads == Threads::PerReader { 1 } else { 32 };
        let store = match selection.open(folder.path()) {
            Ok(store) => store,
            Err(refusal) => {
                assert!(is_unavailable(&selection, &refusal), "{refusal}");
                continue;
            }
        };
        // With all page cache operations.
        let footprint =
            Footprint::new(EpochReads { files: 100, bytes: 1 << 30, fetches: 1 << 20 }, 1, 128 << 10, 1);
        let proof = Proof { counts_one_in: 1, seed: 1, gives_back: true, footprint: Some(&footprint) };
        let traffic = Traffic {
            readers,
            transfer: 4096,
            clock: &FixedClock,
            give_up: &go_on,
            proof,
            ..Traffic::untimed()
        };
        let mut lane = store.lane(traffic).unwrap();
        let mut spare: Vec<Buffer> = (0..readers).map(|_| Buffer::default()).collect();
        fetch_all(&mut *lane, &names, &mut spare, 10);
        let before = ALLOCATIONS.get();
        fetch_all(&mut *lane, &names, &mut spare, 200);
        assert_eq!(ALLOCATIONS.get() - before, 0, "{store:?}");
    }
}
