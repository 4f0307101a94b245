//! The live counters of a run: exact totals that workers add to and listeners read at any time. Results do not depend
//! on them, but at the end of a run they equal its ledger.
//!
//! Relaxed ordering throughout: counters that are read together need not be consistent, and the end of the work, which
//! a listener waits for, orders the last values. Each rank has its own cache lines, one for its readers and one for its
//! accelerator, so that ranks do not slow each other down.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use model::requests::{AttemptFailure, RequestCounts};
use model::units::Nanos;

use crate::figures::{CheckpointProgress, LiveFigures, MOST_RANKS_SHOWN, Progress, RankProgress};

/// What workers count.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    files: AtomicU64,
    file_bytes: AtomicU64,
    prepared: AtomicU64,
    errors: AtomicU64,
    requests: RequestCells,
    /// Accelerators that wait for a batch now.
    waiting: AtomicU64,
    saves: AtomicU64,
    saved_bytes: AtomicU64,
    drained: AtomicU64,
    restores: AtomicU64,
    saving: AtomicU64,
    draining: AtomicU64,
    undrained: AtomicU64,
    ranks: OnceLock<RankTable>,
    /// Fetches in flight, of each reader thread of the current phase.
    in_flight: Mutex<Option<Arc<[ThreadLine]>>>,
}

/// The ranks of this member.
#[derive(Debug)]
struct RankTable {
    first: u64,
    /// Of all members.
    total: u64,
    lines: Box<[RankCounters]>,
}

/// One counter on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct ThreadLine(AtomicU64);

impl ThreadLine {
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// The counters of one rank.
#[derive(Debug, Default)]
pub(crate) struct RankCounters {
    delivered: DeliveredLine,
    times: TimesLine,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct DeliveredLine {
    samples: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct TimesLine {
    /// The step of the phase that began last, from 1.
    step: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    wait_ns: AtomicU64,
    copy_ns: AtomicU64,
    compute_ns: AtomicU64,
    barrier_ns: AtomicU64,
    checkpoint_ns: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl RankCounters {
    /// Samples were added to a batch, or left out of it because they could not be read.
    pub(crate) fn add_samples(&self, delivered: u64, failed: u64, bytes: u64) {
        add(&self.delivered.samples, delivered);
        if failed > 0 {
            add(&self.delivered.failed, failed);
        }
        add(&self.delivered.bytes, bytes);
    }

    /// A step has begun; steps of a phase count from 0.
    pub(crate) fn begin_step(&self, step: u64) {
        self.times.step.store(step + 1, Ordering::Relaxed);
        add(&self.times.begun, 1);
    }

    /// A step has ended.
    pub(crate) fn end_step(&self, wait: Nanos, copy: Nanos, compute: Nanos, barrier: Nanos) {
        let TimesLine { ended, wait_ns, copy_ns, compute_ns, barrier_ns, .. } = &self.times;
        add(ended, 1);
        for (counter, more) in
            [(wait_ns, wait), (copy_ns, copy), (compute_ns, compute), (barrier_ns, barrier)]
        {
            add(counter, more.0);
        }
    }

    /// Training has continued after a checkpoint.
    pub(crate) fn add_checkpoint(&self, pause: Nanos) {
        add(&self.times.checkpoint_ns, pause.0);
    }

    fn progress(&self, rank: u64) -> RankProgress {
        let RankCounters { delivered: DeliveredLine { samples, failed, bytes }, times } = self;
        RankProgress {
            rank,
            step: load(&times.step),
            begun: load(&times.begun),
            steps: load(&times.ended),
            samples: load(samples),
            failed: load(failed),
            bytes: load(bytes),
            wait: Nanos(load(&times.wait_ns)),
            copy: Nanos(load(&times.copy_ns)),
            compute: Nanos(load(&times.compute_ns)),
            barrier: Nanos(load(&times.barrier_ns)),
            checkpoint: Nanos(load(&times.checkpoint_ns)),
        }
    }
}

/// The requests to an object store.
#[derive(Debug, Default)]
struct RequestCells {
    requests: AtomicU64,
    answered: AtomicU64,
    connects: AtomicU64,
    reconnects: AtomicU64,
    failures: [AtomicU64; AttemptFailure::ALL.len()],
    received_bytes: AtomicU64,
    failed_bytes: AtomicU64,
    from_caches: AtomicU64,
}

impl RequestCells {
    fn add(&self, more: &RequestCounts) {
        let cells = [
            (&self.requests, more.requests),
            (&self.answered, more.answered),
            (&self.connects, more.connects),
            (&self.reconnects, more.reconnects),
            (&self.received_bytes, more.received_bytes),
            (&self.failed_bytes, more.failed_bytes),
            (&self.from_caches, more.from_caches),
        ];
        let failures = self.failures.iter().zip(more.failures);
        for (cell, more) in cells.into_iter().chain(failures).filter(|(_, more)| *more > 0) {
            add(cell, more);
        }
    }

    fn load(&self) -> RequestCounts {
        RequestCounts {
            requests: load(&self.requests),
            answered: load(&self.answered),
            connects: load(&self.connects),
            reconnects: load(&self.reconnects),
            failures: std::array::from_fn(|kind| load(&self.failures[kind])),
            received_bytes: load(&self.received_bytes),
            failed_bytes: load(&self.failed_bytes),
            from_caches: load(&self.from_caches),
        }
    }
}

impl Counters {
    /// Creates the counters of the ranks of this member, once. `total` is the number of ranks of all members.
    pub(crate) fn seat_ranks(&self, own: &Range<u64>, total: u64) {
        let lines = || own.clone().map(|_| RankCounters::default()).collect();
        self.ranks.get_or_init(|| RankTable { first: own.start, total, lines: lines() });
    }

    /// The counters of the member's ranks, in order.
    pub(crate) fn ranks(&self) -> &[RankCounters] {
        self.ranks.get().map_or(&[], |table| &table.lines)
    }

    /// Counters of the fetches in flight for the reader threads of a phase; those of the phase before are dropped.
    pub(crate) fn seat_readers(&self, threads: usize) -> Arc<[ThreadLine]> {
        let lines: Arc<[ThreadLine]> = (0..threads).map(|_| ThreadLine::default()).collect();
        *self.in_flight.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&lines));
        lines
    }

    pub(crate) fn add_files(&self, files: u64, bytes: u64) {
        add(&self.files, files);
        add(&self.file_bytes, bytes);
    }

    pub(crate) fn add_prepared(&self, files: u64) {
        add(&self.prepared, files);
    }

    pub(crate) fn add_error(&self) {
        add(&self.errors, 1);
    }

    pub(crate) fn add_requests(&self, more: &RequestCounts) {
        self.requests.add(more);
    }

    pub(crate) fn set_waiting(&self, ranks: u64) {
        self.waiting.store(ranks, Ordering::Relaxed);
    }

    /// A checkpoint of this run is complete, of which this member saved this many bytes.
    pub(crate) fn add_save(&self, bytes: u64) {
        add(&self.saves, 1);
        add(&self.saved_bytes, bytes);
    }

    pub(crate) fn add_drained(&self) {
        add(&self.drained, 1);
    }

    pub(crate) fn add_restore(&self) {
        add(&self.restores, 1);
    }

    pub(crate) fn set_saving(&self, is_saving: bool) {
        self.saving.store(u64::from(is_saving), Ordering::Relaxed);
    }

    pub(crate) fn set_draining(&self, is_draining: bool) {
        self.draining.store(u64::from(is_draining), Ordering::Relaxed);
    }

    pub(crate) fn set_undrained(&self, count: usize) {
        self.undrained.store(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> Progress {
        let mut progress = self.without_ranks();
        self.each_rank(|rank| progress.add_rank(&rank));
        progress
    }

    /// The same with the figures of ranks.
    pub(crate) fn figures(&self) -> LiveFigures {
        let (mut totals, mut ranks) = (self.without_ranks(), Vec::new());
        let rank_count = self.ranks().len() as u64;
        let shows_all = self.ranks.get().is_some_and(|table| table.total <= MOST_RANKS_SHOWN);
        let mut extremes: Option<(RankProgress, RankProgress)> = None;
        self.each_rank(|rank| {
            totals.add_rank(&rank);
            if shows_all {
                ranks.push(rank);
            }
            let (longest, shortest) = extremes.get_or_insert((rank, rank));
            if rank.wait > longest.wait {
                *longest = rank;
            }
            if rank.wait < shortest.wait {
                *shortest = rank;
            }
        });
        if let Some((longest, shortest)) = extremes.filter(|_| !shows_all) {
            ranks = if longest.rank == shortest.rank { vec![longest] } else { vec![longest, shortest] };
        }
        LiveFigures { totals, ranks, rank_count, ended: false }
    }

    fn each_rank(&self, mut take: impl FnMut(RankProgress)) {
        if let Some(RankTable { first, lines, .. }) = self.ranks.get() {
            lines.iter().zip(*first..).for_each(|(line, rank)| take(line.progress(rank)));
        }
    }

    fn without_ranks(&self) -> Progress {
        let threads = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let in_flight = threads.iter().flat_map(|threads| threads.iter()).map(|line| load(&line.0)).sum();
        Progress {
            files: load(&self.files),
            file_bytes: load(&self.file_bytes),
            prepared: load(&self.prepared),
            errors: load(&self.errors),
            requests: self.requests.load(),
            in_flight,
            waiting: load(&self.waiting),
            checkpoints: CheckpointProgress {
                saves: load(&self.saves),
                drained: load(&self.drained),
                restores: load(&self.restores),
                bytes: load(&self.saved_bytes),
                saving: load(&self.saving),
                draining: load(&self.draining),
                undrained: load(&self.undrained),
            },
            ..Progress::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waited(counters: &Counters, rank: usize, wait: u64) {
        counters.ranks()[rank].end_step(Nanos(wait), Nanos(0), Nanos(10), Nanos(0));
    }

    #[test]
    fn few_ranks_are_shown_one_by_one() {
        let counters = Counters::default();
        counters.seat_ranks(&(2..4), 4);
        waited(&counters, 0, 5);
        counters.ranks()[1].add_samples(7, 1, 700);
        let LiveFigures { totals, ranks, rank_count, .. } = counters.figures();
        assert_eq!((totals.samples, totals.failed, totals.bytes, totals.wait), (8, 1, 700, Nanos(5)));
        assert_eq!(ranks.iter().map(|rank| (rank.rank, rank.samples)).collect::<Vec<_>>(), [(2, 0), (3, 7)]);
        assert_eq!((rank_count, totals), (2, counters.progress()));
    }

    #[test]
    fn of_many_ranks_the_extremes_are_shown() {
        let counters = Counters::default();
        counters.seat_ranks(&(100..200), MOST_RANKS_SHOWN + 1);
        (0..100).for_each(|rank| waited(&counters, rank, 1000 + (rank as u64 * 37) % 100));
        let figures = counters.figures();
        let waits: Vec<u64> = figures.ranks.iter().map(|rank| rank.wait.0).collect();
        assert_eq!((waits, figures.rank_count, figures.totals.steps), (vec![1099, 1000], 100, 100));
    }

    /// Every request count is added, so that a new one is not forgotten.
    #[test]
    fn requests_add_up() {
        let more = RequestCounts {
            requests: 1,
            answered: 2,
            connects: 3,
            reconnects: 4,
            failures: [5, 6, 7, 8, 9, 10, 11],
            received_bytes: 12,
            failed_bytes: 13,
            from_caches: 14,
        };
        let counters = Counters::default();
        counters.add_requests(&more);
        counters.add_requests(&RequestCounts::default());
        assert_eq!(counters.progress().requests, more);
    }

    #[test]
    fn fetches_of_an_ended_phase_are_not_in_flight() {
        let counters = Counters::default();
        counters.seat_readers(2).iter().for_each(|line| line.set(4));
        assert_eq!(counters.progress().in_flight, 8);
        counters.seat_readers(2)[0].set(1);
        assert_eq!(counters.progress().in_flight, 1);
    }
}
