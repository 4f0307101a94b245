//! Preprocessing of samples after they were read: none, a pause, CPU work or real decoding. A pause is added to the
//! reader's timeline. CPU work runs on threads of its own, so that it does not block a thread that runs many readers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use format::Format;
use model::order::mix;
use model::plan::PreprocessPlan;
use model::spec::Preprocess;
use model::times;
use model::units::Nanos;
use store::Buffer;

use super::phase_run::{PhaseFailure, PhaseRun};
use crate::meter;

/// Preprocessing of one phase.
pub(crate) struct Preprocessing<'a> {
    plan: &'a PreprocessPlan,
    format: &'a dyn Format,
    /// For each rank, when each of its slots is free again; empty if every reader does its own preprocessing.
    slots: Vec<Mutex<BinaryHeap<Reverse<Nanos>>>>,
    work: Mutex<TaskQueue>,
    changed: Condvar,
    /// Finished tasks of each reader thread.
    done: Vec<Mutex<Vec<PreprocessedSamples>>>,
    /// Number of tasks that are being worked on.
    at_work: AtomicU64,
}

#[derive(Default)]
struct TaskQueue {
    tasks: VecDeque<PreprocessTask>,
    over: bool,
}

/// Samples whose preprocessing takes CPU time.
pub(crate) struct PreprocessTask {
    /// The reader thread that waits for it, and which of its readers.
    pub(crate) thread: usize,
    pub(crate) reader: usize,
    /// Rank and step, for messages.
    pub(crate) rank: u64,
    pub(crate) step: u64,
    pub(crate) span: Nanos,
    pub(crate) bytes: Option<Buffer>,
}

/// A task that is done.
pub(crate) struct PreprocessedSamples {
    pub(crate) reader: usize,
    pub(crate) at: Nanos,
    pub(crate) bytes: Option<Buffer>,
    /// Why the samples could not be decoded, if so.
    pub(crate) damage: Option<String>,
}

impl<'a> Preprocessing<'a> {
    pub(crate) fn new(
        plan: &'a PreprocessPlan,
        format: &'a dyn Format,
        queues: usize,
        threads: usize,
    ) -> Self {
        let slots = plan.threads_per_rank.filter(|_| plan.kind == Preprocess::Sleep).map_or(0, |_| queues);
        Preprocessing {
            plan,
            format,
            slots: (0..slots).map(|_| Mutex::default()).collect(),
            work: Mutex::default(),
            changed: Condvar::new(),
            done: (0..threads).map(|_| Mutex::default()).collect(),
            at_work: AtomicU64::new(0),
        }
    }

    /// The planned duration for these samples; `each` is the size of one of them.
    pub(crate) fn span(&self, seed: u64, epoch: u64, samples: &Range<u64>, each: f64) -> Nanos {
        let plan = self.plan;
        let scale = plan.per_bytes.map_or(1.0, |bytes| each / bytes);
        let one = |sample: u64| {
            let span = times::draw(&plan.time, mix(seed, SALT), epoch, 0, sample).0 as f64 * scale;
            let slow = plan.slow_share > 0.0 && share(mix(mix(seed, epoch), sample)) < plan.slow_share;
            if slow { span * plan.slow_factor } else { span }
        };
        Nanos(samples.clone().map(one).sum::<f64>().round() as u64)
    }

    /// The end of a pause that a reader of `queue` begins at `at`.
    pub(crate) fn pause(&self, queue: usize, at: Nanos, span: Nanos) -> Nanos {
        let Some(slots) = self.slots.get(queue) else { return at + span };
        let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.plan.threads_per_rank.unwrap_or(1) as usize;
        let free =
            if slots.len() < most { Nanos::ZERO } else { slots.pop().map_or(Nanos::ZERO, |slot| slot.0) };
        let over = at.max(free) + span;
        slots.push(Reverse(over));
        over
    }

    /// Queues CPU work.
    pub(crate) fn submit(&self, task: PreprocessTask) {
        self.work().tasks.push_back(task);
        self.changed.notify_one();
    }

    /// Moves the finished tasks of a reader thread to `out`.
    pub(crate) fn take(&self, thread: usize, out: &mut Vec<PreprocessedSamples>) {
        out.append(&mut self.done[thread].lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether a task is being worked on.
    pub(crate) fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn has_some(&self, thread: usize) -> bool {
        !self.done[thread].lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// No more tasks will come; the worker threads return when the queue is empty.
    pub(crate) fn close(&self) {
        self.work().over = true;
        self.changed.notify_all();
    }

    /// The loop of a worker thread.
    pub(crate) fn work_off(&self, run: &PhaseRun<'_>) {
        let mut scratch = Vec::new();
        while let Some(task) = self.next() {
            // Relaxed: only the watchdog reads it, and it orders nothing.
            self.at_work.fetch_add(1, Ordering::Relaxed);
            // If a decoder panics, its reader must still get an answer.
            let outcome = catch_unwind(AssertUnwindSafe(|| self.perform(run, &task, &mut scratch)));
            self.at_work.fetch_sub(1, Ordering::Relaxed);
            let outcome = outcome.unwrap_or_else(|panic| {
                let cause = format!("preprocessing panicked: {}", panic_text(&*panic));
                run.fail(PhaseFailure { rank: task.rank, step: task.step, cause });
                Ok(())
            });
            let (reader, at, bytes, damage) = (task.reader, run.clock.now(), task.bytes, outcome.err());
            let prepared = PreprocessedSamples { reader, at, bytes, damage };
            self.done[task.thread].lock().unwrap_or_else(PoisonError::into_inner).push(prepared);
            run.readers.work_bells[task.thread].ring();
        }
    }

    fn perform(
        &self,
        run: &PhaseRun<'_>,
        task: &PreprocessTask,
        scratch: &mut Vec<u8>,
    ) -> Result<(), String> {
        match (self.plan.kind, &task.bytes) {
            // The phase ends, and the result is not needed.
            _ if run.ending() => Ok(()),
            (Preprocess::Decode, Some(bytes)) => {
                self.format.decode(bytes.bytes(), scratch).map_err(|cause| cause.to_string())
            }
            (Preprocess::Burn, _) => {
                meter::burn(task.span, &|| run.ending());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn next(&self) -> Option<PreprocessTask> {
        let waits = |work: &mut TaskQueue| work.tasks.is_empty() && !work.over;
        let mut work = self.changed.wait_while(self.work(), waits).unwrap_or_else(PoisonError::into_inner);
        work.tasks.pop_front()
    }

    fn work(&self) -> MutexGuard<'_, TaskQueue> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// Makes the draws independent of those for the accelerators' compute times.
const SALT: u64 = u64::from_le_bytes(*b"preproce");

/// Maps a number to the interval from 0 to 1.
fn share(number: u64) -> f64 {
    (number >> 11) as f64 / (1u64 << 53) as f64
}
