//! Models of the wake-up protocols `Bell`, `Combiner` and `Queue`, and of `WordRing`: loom runs the production
//! files through the interleavings of a few threads, with the reads that a weak memory model allows. No wait times
//! out in a model, so a lost wake-up is a deadlock, which loom reports.
//!
//! Each model also runs on the same files with weaker primitives, and must fail there. This shows that it can fail.
//!
//! Limits: loom explores schedules with at most `PREEMPTIONS` preemptions. It knows sequentially consistent fences, but
//! not sequentially consistent loads and stores, so the protocols have only fences. It also explores executions that
//! C++20 forbids: it does not know that a read-modify-write directly follows the write that it reads, so a plain store
//! of another thread may come between. Where two threads may change a flag at the same time, both therefore use
//! read-modify-writes (`Combiner::nudge`, and the end of `Bell::doze`).

/// The protocols with the primitives of the module `sync` in which it stands, and the models of them.
macro_rules! protocols {
    () => {
        #[path = "../bell.rs"]
        mod bell;
        #[path = "../combiner.rs"]
        #[expect(dead_code, reason = "the models do not use all of it")]
        mod combiner;
        #[path = "../loader/queue.rs"]
        #[expect(dead_code, reason = "the models do not use all of it")]
        mod queue;
        #[path = "../events/ring.rs"]
        #[allow(dead_code, reason = "the models do not use all of it")]
        mod ring;

        #[path = "checks.rs"]
        #[allow(dead_code, reason = "not every model fails with every weaker primitive")]
        pub(super) mod checks;
    };
}

mod exact;
mod primitives;
mod split;
mod unfenced;
mod unordered;

use std::panic::catch_unwind;
use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Each model fails with weaker primitives within this bound, and takes seconds. With 3 some take minutes.
const PREEMPTIONS: usize = 2;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// Tests that each model holds, and that it fails with each of the weaker primitives.
macro_rules! models {
    ($($model:ident fails $($weaker:ident)+;)+) => {
        $(mod $model {
            #[test]
            fn holds() {
                super::exact::checks::$model();
            }

            $(#[test]
            fn $weaker() {
                let ended = super::catch_unwind(super::$weaker::checks::$model);
                assert!(ended.is_err(), "the model holds although the protocol is {}", stringify!($weaker));
            })+
        })+
    };
}

models! {
    a_sleeper_sees_the_change_or_is_woken fails unfenced;
    a_sleeper_that_waits_for_a_medium_is_woken fails unfenced;
    of_two_rings_one_wakes fails split;
    every_nudge_leads_to_an_advance_after_it fails unfenced unordered split;
    the_sleeping_thread_sees_the_last_nudge fails unfenced;
    an_inspection_loses_no_nudge fails unfenced;
    each_chunk_is_claimed_once_within_the_depth fails split;
    a_ready_batch_has_all_its_bytes fails unordered split;
    the_reader_that_completes_a_batch_sees_the_work_of_all fails unordered split;
    every_batch_arrives_within_the_depth fails unfenced unordered split;
    a_batch_is_seen_ready_or_known_to_be_awaited fails unfenced;
    a_claim_sees_what_was_done_before_room_was_made fails unordered;
    a_raised_limit_and_a_moved_window_let_a_chunk_go fails unfenced;
    two_neighbours_move_the_window_past_both fails unfenced;
    entries_of_a_ring_arrive_whole_and_in_order fails unordered;
    a_closed_ring_has_no_more_entries fails unordered;
}

/// If this test fails, loom orders a store behind a read-modify-write of the value before it, and the limits above are
/// outdated.
#[test]
fn loom_lets_a_store_come_between_a_write_and_the_swap_that_reads_it() {
    let litmus = || {
        let value = Arc::new(AtomicU64::new(0));
        let other = Arc::clone(&value);
        let swapping = thread::spawn(move || other.swap(10, Ordering::Relaxed));
        value.store(1, Ordering::Relaxed);
        value.store(2, Ordering::Relaxed);
        let swapped = swapping.join().unwrap();
        // 1, 10, 2 is the only order in which the swap reads 1.
        assert!(swapped != 1 || value.load(Ordering::Relaxed) == 2);
    };
    assert!(catch_unwind(|| explore(litmus)).is_err());
}
