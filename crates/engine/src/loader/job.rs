//! What all readers of one phase share, and which thread plays which reader.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use format::Format;
use model::files::FileList;
use model::names::Name;
use model::order::EpochOrder;
use model::plan::{Data, LoaderPlan, PhasePlan, Split, TrainingPlan};
use model::spec::Verify;
use model::units::Nanos;
use store::{Footprint, Store};

use super::{Board, Preprocessing, Queue, Shelf, Tolerance};
use crate::bell::Bell;
use crate::events::Events;
use crate::meter::Clock;
use crate::stop::Stop;
use crate::truth::Truth;

/// What ended the work, and where.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) rank: u64,
    pub(crate) step: u64,
    pub(crate) cause: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {}, step {}: {}", self.rank, self.step, self.cause)
    }
}

/// Everything that the readers of one phase share.
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a TrainingPlan,
    pub(crate) phase: &'a PhasePlan,
    pub(crate) order: EpochOrder,
    pub(crate) epoch: u64,
    pub(crate) seed: u64,
    pub(crate) split: &'a Split,
    /// Names and sizes of the split's files.
    pub(crate) files: &'a dyn FileList,
    pub(crate) data: &'a Data,
    pub(crate) loader: &'a LoaderPlan,
    /// How much of what is read is compared, and with what.
    pub(crate) verify: Verify,
    pub(crate) truth: Option<Truth<'a>>,
    pub(crate) format: &'a dyn Format,
    pub(crate) store: &'a dyn Store,
    /// What the phase has read so far, where it reads files more than once.
    pub(crate) footprint: Option<&'a Footprint>,
    /// First rank of this process; queue i belongs to rank `first_rank` + i.
    pub(crate) first_rank: u64,
    pub(crate) queues: &'a [Queue],
    /// Batches that are kept in memory, queue by queue; empty if none are.
    pub(crate) shelves: &'a [Shelf],
    pub(crate) preprocessing: &'a Preprocessing<'a>,
    pub(crate) tolerance: &'a Tolerance,
    pub(crate) board: &'a Board,
    pub(crate) deal: &'a Deal,
    /// Wakes the reading threads, one bell each.
    pub(crate) work_bells: &'a [Bell],
    /// Wakes the accelerators' driver.
    pub(crate) batch_bell: &'a Bell,
    pub(crate) clock: &'a dyn Clock,
    /// When the phase began.
    pub(crate) begin: Nanos,
    pub(crate) events: &'a Events,
    /// Asked for from outside.
    pub(crate) stop: &'a Stop,
    /// Asked for by a part that failed.
    pub(crate) abort: &'a Stop,
    pub(crate) failure: &'a Mutex<Option<Failure>>,
}

impl Job<'_> {
    pub(crate) fn ending(&self) -> bool {
        self.stop.wished() || self.abort.wished()
    }

    /// Why the phase ends, if a part has failed.
    pub(crate) fn cause(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ToString::to_string)
    }

    /// Keeps the first failure and ends the phase for everybody.
    pub(crate) fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.abort.wish();
        self.wake_everybody();
    }

    /// The name of a file, for a message.
    pub(crate) fn file_name(&self, file: u64) -> String {
        let mut name = Name::default();
        match self.files.entry(file, &mut name) {
            Ok(_) => name.to_string(),
            Err(cause) => cause,
        }
    }

    pub(crate) fn wake_everybody(&self) {
        self.batch_bell.ring();
        self.work_bells.iter().for_each(|bell| {
            bell.ring();
        });
    }

    /// Wakes those who can take on these chunks of a queue.
    pub(crate) fn wake_for(&self, queue: usize, room: &Range<u64>) {
        self.deal.wake(self.work_bells, queue, &self.queues[queue], room);
    }
}

/// Which threads play the readers of which queues: several threads per queue when there are enough, several queues
/// per thread when not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deal {
    queues: usize,
    readers_per_queue: usize,
    threads: usize,
}

impl Deal {
    pub(crate) fn new(queues: usize, readers_per_queue: usize, threads: usize) -> Deal {
        Deal { queues, readers_per_queue, threads: threads.clamp(1, queues * readers_per_queue) }
    }

    pub(crate) fn thread_count(&self) -> usize {
        self.threads
    }

    /// The threads that serve a queue.
    pub(crate) fn threads(&self, queue: usize) -> Range<usize> {
        if self.threads < self.queues {
            let thread = queue % self.threads;
            return thread..thread + 1;
        }
        let (share, more) = (self.threads / self.queues, self.threads % self.queues);
        let first = queue * share + queue.min(more);
        let count = (share + usize::from(queue < more)).min(self.readers_per_queue);
        first..first + count
    }

    /// The thread that plays a reader of a queue.
    pub(crate) fn thread(&self, queue: usize, reader: usize) -> usize {
        let threads = self.threads(queue);
        threads.start + reader % threads.len()
    }

    /// Wakes as many of a queue's threads as these chunks need.
    pub(super) fn wake(&self, bells: &[Bell], number: usize, queue: &Queue, room: &Range<u64>) {
        let mut left = room.end.saturating_sub(room.start);
        if left == 0 {
            return;
        }
        if queue.taker(room.start).is_none() {
            for thread in self.threads(number) {
                // One that sleeps until its own fetches end would take nothing on, and be counted.
                left -= u64::from(bells[thread].ring_if_free());
                if left == 0 {
                    return;
                }
            }
            return;
        }
        // Every reader of the queue comes up among so many chunks; every thread need not among fewer.
        for chunk in room.clone().take(self.readers_per_queue) {
            if let Some(reader) = queue.taker(chunk) {
                bells[self.thread(number, reader)].ring();
            }
        }
    }

    /// The readers, as queue and number, that a thread plays.
    pub(crate) fn readers(&self, thread: usize) -> Vec<(usize, usize)> {
        let mine = |queue: &usize| self.threads(*queue).contains(&thread);
        let queues = (0..self.queues).filter(mine);
        let readers = queues.flat_map(|queue| (0..self.readers_per_queue).map(move |reader| (queue, reader)));
        readers.filter(|(queue, reader)| self.thread(*queue, *reader) == thread).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reader_is_played_once() {
        for (queues, readers, threads) in
            [(1, 8, 8), (3, 2, 6), (3, 2, 4), (5, 2, 2), (1000, 8, 2), (2, 4, 99), (4, 1, 1), (3, 5, 7)]
        {
            let deal = Deal::new(queues, readers, threads);
            let mut all: Vec<(usize, usize)> =
                (0..deal.thread_count()).flat_map(|thread| deal.readers(thread)).collect();
            let busy = (0..deal.thread_count()).filter(|thread| !deal.readers(*thread).is_empty()).count();
            assert!(busy == deal.thread_count() || threads > queues, "{deal:?}");
            all.sort_unstable();
            let expected: Vec<(usize, usize)> =
                (0..queues).flat_map(|queue| (0..readers).map(move |reader| (queue, reader))).collect();
            assert_eq!(all, expected, "{deal:?}");
        }
    }
}
