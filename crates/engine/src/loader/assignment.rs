//! Which reader thread serves which readers.

use std::ops::Range;

use super::Queue;
use crate::bell::Bell;

/// Which threads run the readers of which queues: several threads per queue if there are enough, otherwise several
/// queues per thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReaderAssignment {
    queues: usize,
    readers_per_queue: usize,
    threads: usize,
}

impl ReaderAssignment {
    pub(crate) fn new(queues: usize, readers_per_queue: usize, threads: usize) -> ReaderAssignment {
        ReaderAssignment { queues, readers_per_queue, threads: threads.clamp(1, queues * readers_per_queue) }
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

    /// The thread that runs a reader of a queue.
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
                // A thread that sleeps until its own fetches end would begin nothing, but would be counted.
                left -= u64::from(bells[thread].ring_if_free());
                if left == 0 {
                    return;
                }
            }
            return;
        }
        // Among this many chunks every reader of the queue has its turn; among fewer, not every thread need have one.
        for chunk in room.clone().take(self.readers_per_queue) {
            if let Some(reader) = queue.taker(chunk) {
                bells[self.thread(number, reader)].ring();
            }
        }
    }

    /// The readers of a thread, as queue and number.
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
    fn every_reader_runs_in_one_thread() {
        for (queues, readers, threads) in
            [(1, 8, 8), (3, 2, 6), (3, 2, 4), (5, 2, 2), (1000, 8, 2), (2, 4, 99), (4, 1, 1), (3, 5, 7)]
        {
            let assignment = ReaderAssignment::new(queues, readers, threads);
            let mut all: Vec<(usize, usize)> =
                (0..assignment.thread_count()).flat_map(|thread| assignment.readers(thread)).collect();
            let busy = (0..assignment.thread_count())
                .filter(|thread| !assignment.readers(*thread).is_empty())
                .count();
            assert!(busy == assignment.thread_count() || threads > queues, "{assignment:?}");
            all.sort_unstable();
            let expected: Vec<(usize, usize)> =
                (0..queues).flat_map(|queue| (0..readers).map(move |reader| (queue, reader))).collect();
            assert_eq!(all, expected, "{assignment:?}");
        }
    }
}
