//! The effect of each number of a loader plan on the order in which chunks are claimed.

use std::ops::Range;

use model::plan::{Discipline, LoaderPlan, PreprocessPlan, ReadWindow};
use model::spec::{Preprocess, Time};
use model::units::Nanos;

use super::assignment::ReaderAssignment;
use super::queue::{DeliveryEffect, Queue, ReadyBatch};
use crate::bell::Bell;

/// A plan under which any reader takes the next chunk.
pub(crate) fn loader(chunk: u64, readers: u64, prefetch: u64) -> LoaderPlan {
    LoaderPlan {
        discipline: Discipline::Pytorch,
        readers_per_rank: readers,
        prefetch_batches: prefetch,
        chunk_samples: chunk,
        in_turn: false,
        window: ReadWindow::Open,
        lead_samples: 0,
        beyond_samples: 0,
        ordered: true,
        transfer_bytes: 4096,
        retained_bytes: 0,
        error_limit: None,
        threads: 1,
        preprocess: PreprocessPlan {
            kind: Preprocess::None,
            time: Time::Constant(0.0),
            per_bytes: None,
            slow_share: 0.0,
            slow_factor: 1.0,
            threads_per_rank: None,
        },
    }
}

fn steps(queue: &Queue, reader: usize) -> Vec<u64> {
    std::iter::from_fn(|| queue.claim(reader)).map(|chunk| chunk.step).collect()
}

fn numbers(queue: &Queue, reader: usize) -> Vec<u64> {
    std::iter::from_fn(|| queue.claim(reader)).map(|chunk| chunk.number).collect()
}

fn complete(queue: &Queue, number: u64, at: u64) -> DeliveryEffect {
    queue.complete(queue.chunk(number), Nanos(at), 10)
}

#[test]
fn chunks_cover_every_batch() {
    let queue = Queue::new(3, 10, &loader(4, 1, 5));
    queue.open();
    let chunks: Vec<(u64, u64, u64)> =
        std::iter::from_fn(|| queue.claim(0)).map(|chunk| (chunk.step, chunk.first, chunk.samples)).collect();
    let batch = |step| [(step, 0, 4), (step, 4, 4), (step, 8, 2)];
    assert_eq!(chunks, [batch(0), batch(1), batch(2)].concat());
    assert!(queue.exhausted(0));
}

#[test]
fn readers_stay_within_the_prefetch_depth() {
    let queue = Queue::new(10, 2, &loader(2, 1, 3));
    assert_eq!(queue.claim(0), None, "nothing before the start");
    queue.open();
    assert_eq!(steps(&queue, 0), [0, 1, 2]);
    assert!(queue.ask(0).is_empty(), "step 0 has begun already");
    let change = complete(&queue, 0, 7);
    assert_eq!(
        change,
        DeliveryEffect { awaited: true, room: 3..4 },
        "the reader makes room: the accelerator waits"
    );
    assert_eq!(queue.ready(0), Some(ReadyBatch { at: Nanos(7), bytes: 10 }));
    assert!(queue.take(0).is_empty());
    assert_eq!(steps(&queue, 0), [3]);
    assert_eq!(queue.ready(3), None, "the reused slot is reset");
    assert!(!complete(&queue, 1, 8).awaited, "step 1 is not requested yet");
    assert_eq!(queue.claim(0), None);
    queue.ask(1);
    assert_eq!(queue.take(1), 4..5, "now there is space");
}

#[test]
fn no_prefetch_is_strictly_synchronous() {
    let queue = Queue::new(10, 4, &loader(2, 1, 0));
    queue.open();
    assert_eq!(queue.claim(0), None);
    for step in 0..3 {
        assert_eq!(queue.ask(step), 2 * step..2 * step + 2);
        assert_eq!(steps(&queue, 0), [step, step]);
        assert!(!complete(&queue, 2 * step + 1, 9).awaited, "half a batch is not a batch");
        assert!(complete(&queue, 2 * step, 5).awaited);
        assert_eq!(queue.ready(step).map(|ready| ready.at), Some(Nanos(9)), "time of its last sample");
        queue.take(step);
        assert_eq!(queue.claim(0), None, "nothing is read before it is requested");
    }
}

#[test]
fn opening_does_not_undo_an_earlier_ask() {
    let queue = Queue::new(10, 4, &loader(2, 1, 0));
    assert_eq!(queue.ask(0), 0..2);
    queue.open();
    assert_eq!(steps(&queue, 0), [0, 0]);
}

#[test]
fn in_turn_every_reader_has_its_own_chunks() {
    let queue = Queue::new(9, 2, &LoaderPlan { in_turn: true, ..loader(2, 3, 6) });
    queue.open();
    assert_eq!([0, 1, 2].map(|reader| steps(&queue, reader)), [[0, 3], [1, 4], [2, 5]]);
    queue.ask(0);
    assert_eq!(complete(&queue, 0, 1).room, 6..7);
    assert_eq!(queue.taker(6), Some(0));
    assert_eq!((queue.claim(1), steps(&queue, 0)), (None, vec![6]), "no reader takes another one's turn");
}

#[test]
fn a_window_advances_with_the_oldest_chunk() {
    let queue = Queue::new(4, 3, &LoaderPlan { window: ReadWindow::Chunks(2), ..loader(1, 2, 9) });
    queue.open();
    assert_eq!(numbers(&queue, 0), [0, 1]);
    assert!(complete(&queue, 1, 1).room.is_empty(), "the chunk before it is missing");
    assert_eq!(complete(&queue, 0, 1).room, 2..4);
    assert_eq!(numbers(&queue, 0), [2, 3]);
    let whole_batch = Queue::new(4, 3, &LoaderPlan { window: ReadWindow::Batch, ..loader(1, 2, 9) });
    whole_batch.open();
    assert_eq!(numbers(&whole_batch, 0), [0, 1, 2]);
    complete(&whole_batch, 2, 1);
    complete(&whole_batch, 0, 1);
    assert_eq!(whole_batch.claim(0), None, "the batch is not complete");
    assert_eq!(complete(&whole_batch, 1, 1).room, 3..6);
}

#[test]
fn a_lead_is_read_before_the_first_batch_and_not_after_the_last() {
    // Batches of 2, a shuffle buffer of 3: the first batch needs 5 samples, the last ones come out of the buffer.
    let queue = Queue::new(4, 2, &LoaderPlan { lead_samples: 3, ..loader(1, 1, 1) });
    queue.open();
    assert_eq!(numbers(&queue, 0), [0, 1, 2, 3, 4]);
    (0..4).for_each(|number| assert!(queue.ready(0).is_none() && !complete(&queue, number, 1).awaited));
    complete(&queue, 4, 2);
    assert!(queue.ready(0).is_some() && queue.ready(1).is_none());
    queue.ask(0);
    queue.take(0);
    assert_eq!(numbers(&queue, 0), [5, 6]);
    complete(&queue, 5, 3);
    complete(&queue, 6, 3);
    queue.ask(1);
    queue.take(1);
    assert_eq!(numbers(&queue, 0), [7]);
    complete(&queue, 7, 4);
    assert!(queue.ready(2).is_some());
    queue.take(2);
    assert_eq!(queue.ready(3), Some(ReadyBatch { at: Nanos::ZERO, bytes: 0 }), "nothing is left to read");
}

#[test]
fn out_of_order_the_first_delivered_samples_make_the_first_batch() {
    let queue = Queue::new(3, 2, &LoaderPlan { ordered: false, ..loader(1, 4, 3) });
    queue.open();
    assert_eq!(numbers(&queue, 0), [0, 1, 2, 3, 4, 5]);
    complete(&queue, 5, 1);
    assert_eq!(queue.ready(0), None);
    complete(&queue, 3, 2);
    assert_eq!(queue.ready(0).map(|ready| ready.at), Some(Nanos(2)));
}

#[test]
fn a_map_works_beyond_the_prefetched_batches() {
    let queue = Queue::new(5, 2, &LoaderPlan { beyond_samples: 3, ..loader(1, 3, 1) });
    queue.open();
    assert_eq!(numbers(&queue, 0), [0, 1, 2, 3, 4], "one batch of two, and three samples beyond");
    for number in 0..5 {
        complete(&queue, number, 1);
    }
    assert!(queue.ready(0).is_some() && queue.ready(1).is_some() && queue.ready(2).is_none());
}

/// Which of these sleeping threads are woken for some chunks of the only queue; `free` says which of them could begin
/// one.
fn woken(readers: usize, in_turn: bool, free: [bool; 2], room: Range<u64>) -> [bool; 2] {
    let queue = Queue::new(20, 1, &LoaderPlan { in_turn, ..loader(1, readers as u64, 20) });
    let bells = [Bell::default(), Bell::default()];
    bells.iter().zip(free).for_each(|(bell, free)| bell.set_free(free));
    let mut woken = [false; 2];
    let wake = || {
        ReaderAssignment::new(1, readers, 2).wake(&bells, 0, &queue, &room);
        // A thread that still sleeps can be woken now.
        woken = [0, 1].map(|thread: usize| !bells[thread].ring());
    };
    bells[0].doze(|| false, || bells[1].doze(|| false, wake));
    woken
}

#[test]
fn a_thread_that_could_begin_nothing_is_not_woken_in_place_of_another() {
    assert_eq!(woken(4, false, [true, true], 0..1), [true, false], "one is enough");
    assert_eq!(woken(4, false, [true, true], 0..2), [true, true]);
    assert_eq!(woken(4, false, [false, true], 0..1), [false, true]);
}

#[test]
fn every_thread_whose_turn_it_is_is_woken() {
    // Thread 0 runs readers 0 and 2, thread 1 runs reader 1.
    assert_eq!(woken(3, true, [true, true], 1..2), [false, true]);
    assert_eq!(woken(3, true, [true, true], 2..4), [true, false]);
    assert_eq!(woken(3, true, [true, true], 2..5), [true, true], "the third chunk is reader 1's");
}
