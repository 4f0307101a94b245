//! The models: what threads may do with the protocols, and what must hold whatever their interleaving.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use model::plan::{LoaderPlan, ReadWindow};
use model::units::Nanos;
use store::Waker;

use super::bell::Bell;
use super::combiner::{Advance, Combiner};
use super::queue::Queue;
use super::ring::WordRing;
use crate::loader::queue_tests::loader;
use crate::models::{explore, primitives};

/// No wait of a model ends by itself.
const LONG: Duration = Duration::from_secs(60);
const NEVER: Nanos = Nanos(u64::MAX);

pub(in crate::models) fn a_sleeper_sees_the_change_or_is_woken() {
    explore(|| {
        let shared = Arc::new((Bell::default(), AtomicU64::new(0)));
        let change = |shared: Arc<(Bell, AtomicU64)>| {
            move || {
                shared.1.fetch_add(1, Ordering::Relaxed);
                shared.0.ring();
            }
        };
        let threads = [0, 1].map(|_| thread::spawn(change(Arc::clone(&shared))));
        let (bell, changes) = &*shared;
        for wanted in [1, 2] {
            let reached = || changes.load(Ordering::Relaxed) >= wanted;
            while !reached() {
                bell.wait(LONG, reached);
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// What a ring of the kernel is to a lane: a wait for it ends when it was woken before or is woken meanwhile.
#[derive(Debug, Default)]
struct Medium {
    woken: primitives::Mutex<bool>,
    changed: primitives::Condvar,
}

impl Medium {
    fn wait(&self) {
        let woken = self.woken.lock().unwrap();
        let (mut woken, ()) = self.changed.wait_timeout_while(woken, LONG, |woken| !*woken).unwrap();
        *woken = false;
    }
}

impl Waker for Medium {
    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

pub(in crate::models) fn a_sleeper_that_waits_for_a_medium_is_woken() {
    explore(|| {
        let shared = Arc::new((Bell::default(), AtomicU64::new(0)));
        let medium = Arc::new(Medium::default());
        shared.0.set_waker(Arc::<Medium>::clone(&medium));
        let other = Arc::clone(&shared);
        let ringer = thread::spawn(move || {
            other.1.store(1, Ordering::Relaxed);
            other.0.ring_if_free();
        });
        let (bell, changes) = &*shared;
        let changed = || changes.load(Ordering::Relaxed) == 1;
        while !changed() {
            bell.set_free(true);
            bell.doze(changed, || medium.wait());
        }
        ringer.join().unwrap();
    });
}

pub(in crate::models) fn of_two_rings_one_wakes() {
    explore(|| {
        let bell = Arc::new(Bell::default());
        let other = Arc::clone(&bell);
        let both = Arc::clone(&bell);
        let mut woken = 0;
        bell.doze(
            || false,
            || {
                let thread = thread::spawn(move || other.ring());
                woken = u8::from(both.ring()) + u8::from(thread.join().unwrap());
            },
        );
        assert_eq!(woken, 1);
    });
}

/// Counts the events that it has seen.
struct Count {
    happened: Arc<AtomicU64>,
    seen: u64,
    all: u64,
}

impl Advance for Count {
    fn advance(&mut self) -> Option<Nanos> {
        self.seen = self.happened.load(Ordering::Relaxed);
        (self.seen < self.all).then_some(NEVER)
    }
}

struct Counted {
    happened: Arc<AtomicU64>,
    bell: Bell,
    combiner: Combiner<Count>,
}

impl Counted {
    fn new(all: u64) -> Arc<Counted> {
        let happened = Arc::new(AtomicU64::new(0));
        let count = Count { happened: Arc::clone(&happened), seen: 0, all };
        Arc::new(Counted { happened, bell: Bell::default(), combiner: Combiner::new(count) })
    }

    /// An event in a thread of its own.
    fn event(self: &Arc<Counted>) -> thread::JoinHandle<()> {
        let here = Arc::clone(self);
        thread::spawn(move || {
            here.happened.fetch_add(1, Ordering::Relaxed);
            here.combiner.nudge(&here.bell);
        })
    }

    /// Sleeps, like the thread that drives the accelerators, until all events have been seen.
    fn sleep(&self) {
        loop {
            self.combiner.look(&self.bell);
            let state = self.combiner.lock();
            if state.seen == state.all {
                return;
            }
            self.combiner.set_deadline(NEVER);
            drop(state);
            self.bell.wait(LONG, || self.combiner.is_called());
        }
    }
}

pub(in crate::models) fn every_nudge_leads_to_an_advance_after_it() {
    explore(|| {
        let counted = Counted::new(2);
        let threads = [counted.event(), counted.event()];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(counted.combiner.lock().seen, 2);
    });
}

pub(in crate::models) fn the_sleeping_thread_sees_the_last_nudge() {
    explore(|| {
        let counted = Counted::new(2);
        let threads = [counted.event(), counted.event()];
        counted.sleep();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

pub(in crate::models) fn an_inspection_loses_no_nudge() {
    explore(|| {
        let counted = Counted::new(1);
        let event = counted.event();
        let here = Arc::clone(&counted);
        let inspection = thread::spawn(move || here.combiner.inspect(&here.bell, |count| count.seen));
        counted.sleep();
        event.join().unwrap();
        inspection.join().unwrap();
    });
}

pub(in crate::models) fn each_chunk_is_claimed_once_within_the_depth() {
    explore(|| {
        let queue = Arc::new(Queue::new(3, 1, &loader(1, 2, 2)));
        let claim_all = |queue: Arc<Queue>| {
            move || std::iter::from_fn(|| queue.claim(0)).map(|chunk| chunk.number).collect::<Vec<u64>>()
        };
        let readers = [0, 1].map(|_| thread::spawn(claim_all(Arc::clone(&queue))));
        queue.open();
        let mut claimed: Vec<u64> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
        claimed.extend(std::iter::from_fn(|| queue.claim(0)).map(|chunk| chunk.number));
        claimed.sort_unstable();
        assert_eq!(claimed, [0, 1]);
    });
}

pub(in crate::models) fn a_ready_batch_has_all_its_bytes() {
    explore(|| {
        let queue = Arc::new(Queue::new(1, 2, &LoaderPlan { ordered: false, ..loader(1, 2, 1) }));
        queue.open();
        let _ = queue.ask(0);
        let readers = [1, 2].map(|bytes| {
            let (queue, chunk) = (Arc::clone(&queue), queue.claim(0).unwrap());
            thread::spawn(move || queue.complete(chunk, Nanos(bytes), bytes).awaited)
        });
        if let Some(ready) = queue.ready(0) {
            assert_eq!((ready.at, ready.bytes), (Nanos(2), 3));
        }
        let awaited: usize = readers.into_iter().map(|reader| usize::from(reader.join().unwrap())).sum();
        assert_eq!(awaited, 1, "one reader completes the batch");
        assert_eq!(queue.ready(0).map(|ready| ready.bytes), Some(3));
    });
}

pub(in crate::models) fn the_reader_that_completes_a_batch_sees_the_work_of_all() {
    type Shared = (Queue, [AtomicU64; 2]);
    fn deliver((queue, work): &Shared, place: usize) -> u8 {
        let chunk = queue.claim(0).unwrap();
        work[place].store(1, Ordering::Relaxed);
        let completes = queue.complete(chunk, Nanos(5), 10).awaited;
        if completes {
            assert!(work.iter().all(|work| work.load(Ordering::Relaxed) == 1));
        }
        u8::from(completes)
    }
    explore(|| {
        let work = [AtomicU64::new(0), AtomicU64::new(0)];
        let shared = Arc::new((Queue::new(1, 2, &loader(1, 2, 1)), work));
        shared.0.open();
        let _ = shared.0.ask(0);
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || deliver(&other, 0));
        let here = deliver(&shared, 1);
        assert_eq!(here + reader.join().unwrap(), 1);
    });
}

pub(in crate::models) fn every_batch_arrives_within_the_depth() {
    const STEPS: u64 = 3;
    const DEPTH: u64 = 1;
    struct Shared {
        queue: Queue,
        work: Bell,
        batch: Bell,
        taken: AtomicU64,
    }
    fn read(shared: &Shared) {
        let Shared { queue, work, batch, taken } = shared;
        loop {
            let seen = queue.bound();
            while let Some(chunk) = queue.claim(0) {
                assert!(chunk.step <= taken.load(Ordering::Relaxed) + DEPTH, "{chunk:?} is too far ahead");
                if queue.complete(chunk, Nanos(5), chunk.number + 1).awaited {
                    batch.ring();
                }
            }
            if queue.exhausted(0) {
                return;
            }
            work.set_free(true);
            work.wait(LONG, || queue.bound() != seen);
        }
    }
    explore(|| {
        let queue = Queue::new(STEPS, 1, &loader(1, 1, DEPTH));
        let (work, batch) = (Bell::default(), Bell::default());
        let shared = Arc::new(Shared { queue, work, batch, taken: AtomicU64::new(0) });
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || read(&other));
        let Shared { queue, work, batch, taken } = &*shared;
        let let_go = |room: std::ops::Range<u64>| !room.is_empty() && work.ring_if_free();
        queue.open();
        work.ring();
        for step in 0..STEPS {
            let_go(queue.ask(step));
            let ready = loop {
                match queue.ready(step) {
                    Some(ready) => break ready,
                    None => batch.wait(LONG, || queue.ready(step).is_some()),
                }
            };
            assert_eq!(ready.bytes, step + 1, "the batch is its chunk, once");
            taken.store(step + 1, Ordering::Relaxed);
            let_go(queue.take(step));
        }
        reader.join().unwrap();
    });
}

pub(in crate::models) fn a_batch_is_seen_ready_or_known_to_be_awaited() {
    explore(|| {
        let queue = Arc::new(Queue::new(1, 1, &loader(1, 1, 1)));
        queue.open();
        let (other, chunk) = (Arc::clone(&queue), queue.claim(0).unwrap());
        let reader = thread::spawn(move || other.complete(chunk, Nanos(5), 10).awaited);
        let _ = queue.ask(0);
        let ready = queue.ready(0).is_some();
        let awaited = reader.join().unwrap();
        assert!(ready || awaited, "the accelerator waits for a batch that is ready");
    });
}

pub(in crate::models) fn a_claim_sees_what_was_done_before_room_was_made() {
    explore(|| {
        let shared = Arc::new((Queue::new(2, 1, &loader(1, 1, 1)), AtomicU64::new(0)));
        let (queue, taken) = &*shared;
        queue.open();
        let _ = queue.complete(queue.claim(0).unwrap(), Nanos(5), 10);
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            if other.0.claim(0).is_some() {
                assert_eq!(other.1.load(Ordering::Relaxed), 1);
            }
        });
        taken.store(1, Ordering::Relaxed);
        let _ = queue.take(0);
        reader.join().unwrap();
    });
}

pub(in crate::models) fn a_raised_limit_and_a_moved_window_let_a_chunk_go() {
    explore(|| {
        // Chunk 2 may begin when chunk 1 is there and the batch of chunk 0 is taken.
        let plan = LoaderPlan { window: ReadWindow::Chunks(1), ..loader(1, 1, 2) };
        let queue = Arc::new(Queue::new(3, 1, &plan));
        queue.open();
        let _ = queue.complete(queue.claim(0).unwrap(), Nanos(5), 10);
        let (other, chunk) = (Arc::clone(&queue), queue.claim(0).unwrap());
        let reader = thread::spawn(move || other.complete(chunk, Nanos(6), 10).room);
        let taken = queue.take(0);
        let completed = reader.join().unwrap();
        let woken = taken.contains(&2) || completed.contains(&2);
        assert!(woken, "no reader is woken for chunk 2: {taken:?}, {completed:?}");
    });
}

pub(in crate::models) fn two_neighbours_move_the_window_past_both() {
    explore(|| {
        let plan = LoaderPlan { window: ReadWindow::Chunks(2), ..loader(1, 2, 4) };
        let queue = Arc::new(Queue::new(4, 1, &plan));
        queue.open();
        let (first, second) = (queue.claim(0).unwrap(), queue.claim(1).unwrap());
        let other = Arc::clone(&queue);
        let reader = thread::spawn(move || other.complete(first, Nanos(5), 10).room);
        let here = queue.complete(second, Nanos(6), 10).room;
        let there = reader.join().unwrap();
        assert_eq!(queue.bound(), 4);
        assert!(here.contains(&3) || there.contains(&3), "no reader is woken for chunk 3: {here:?}, {there:?}");
    });
}

/// A ring that is written and drained at the same time, with room for one entry fewer than are written.
pub(in crate::models) fn entries_of_a_ring_arrive_whole_and_in_order() {
    explore(|| {
        let ring = Arc::new(WordRing::<2>::new(2));
        let other = Arc::clone(&ring);
        let reader = thread::spawn(move || {
            let mut seen = Vec::new();
            other.drain(|entry| seen.push(*entry));
            seen
        });
        (1..=3).for_each(|number| ring.push(&[number, 10 * number]));
        let mut seen = reader.join().unwrap();
        ring.drain(|entry| seen.push(*entry));
        assert!(seen.iter().all(|[number, tenfold]| *number > 0 && *tenfold == 10 * number), "{seen:?}");
        assert!(seen.is_sorted(), "{seen:?}");
        assert_eq!(seen.len() as u64 + ring.dropped(), 3);
    });
}

pub(in crate::models) fn a_closed_ring_has_no_more_entries() {
    explore(|| {
        let ring = Arc::new(WordRing::<1>::new(1));
        let other = Arc::clone(&ring);
        let writer = thread::spawn(move || {
            [7, 8].into_iter().for_each(|number| other.push(&[number]));
            other.close();
        });
        if ring.is_closed() {
            let (mut seen, dropped) = (0, ring.dropped());
            ring.drain(|entry| seen += entry[0]);
            assert_eq!((seen, dropped), (7, 1));
        }
        writer.join().unwrap();
    });
}
