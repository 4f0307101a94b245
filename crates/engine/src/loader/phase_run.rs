//! What all readers and accelerators of one phase share.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use format::Format;
use model::files::FileList;
use model::names::Name;
use model::order::EpochOrder;
use model::plan::{PhasePlan, Split, TrainingPlan};
use model::units::Nanos;
use store::{Footprint, Store};

use super::assignment::ReaderAssignment;
use super::buffer_pool::BufferPool;
use super::preprocess::Preprocessing;
use super::queue::Queue;
use super::read_limit::ReadLimit;
use super::status::StatusBoard;
use super::tolerance::Tolerance;
use crate::bell::Bell;
use crate::counters::{RankCounters, ThreadLine};
use crate::events::Events;
use crate::meter::Clock;
use crate::stop::Stop;
use crate::truth::Truth;

/// One phase of one epoch while it runs.
pub(crate) struct PhaseRun<'a> {
    pub(crate) plan: &'a TrainingPlan,
    pub(crate) phase: &'a PhasePlan,
    pub(crate) epoch: u64,
    pub(crate) order: EpochOrder,
    /// First rank of this process.
    pub(crate) first_rank: u64,
    pub(crate) input: PhaseInput<'a>,
    pub(crate) readers: PhaseReaders<'a>,
    pub(crate) control: PhaseControl<'a>,
    pub(crate) clock: &'a dyn Clock,
    /// When the phase began.
    pub(crate) begin: Nanos,
    pub(crate) events: &'a Events,
    /// The live counters of the member's ranks, in the order of the queues, and of its reader threads.
    pub(crate) ranks: &'a [RankCounters],
    pub(crate) threads: Arc<[ThreadLine]>,
}

/// What the phase reads, and through what.
pub(crate) struct PhaseInput<'a> {
    pub(crate) split: &'a Split,
    /// Names and sizes of the split's files.
    pub(crate) files: &'a dyn FileList,
    pub(crate) format: &'a dyn Format,
    pub(crate) store: &'a dyn Store,
    /// The expected content of files, where it is compared.
    pub(crate) truth: Option<Truth<'a>>,
    /// What the phase has read so far, where it reads files more than once.
    pub(crate) footprint: Option<&'a Footprint>,
}

/// What the reader threads work on together.
pub(crate) struct PhaseReaders<'a> {
    /// One per rank; queue i belongs to rank `first_rank` + i.
    pub(crate) queues: Vec<Queue>,
    /// Batches that are kept in memory, queue by queue; empty if none are.
    pub(crate) pools: Vec<BufferPool>,
    /// Limits of the reads in flight, queue by queue; empty if there are none.
    pub(crate) limits: Vec<ReadLimit>,
    pub(crate) preprocessing: Preprocessing<'a>,
    pub(crate) tolerance: Tolerance,
    pub(crate) status: StatusBoard,
    pub(crate) assignment: ReaderAssignment,
    /// Wake the reader threads, one bell each.
    pub(crate) work_bells: Vec<Bell>,
}

impl<'a> PhaseReaders<'a> {
    /// Readers for `ranks` ranks. `errors` is the number of errors that the run has counted so far.
    pub(crate) fn new(
        plan: &'a TrainingPlan,
        phase: &PhasePlan,
        format: &'a dyn Format,
        ranks: usize,
        errors: u64,
    ) -> PhaseReaders<'a> {
        let loader = &plan.loader;
        let assignment =
            ReaderAssignment::new(ranks, loader.readers_per_rank as usize, loader.threads as usize);
        let queue = |_| Queue::new(phase.shards.steps, phase.shards.batch, loader);
        let pools = if loader.retained_bytes > 0 { ranks } else { 0 };
        PhaseReaders {
            queues: (0..ranks).map(queue).collect(),
            pools: (0..pools).map(|_| BufferPool::default()).collect(),
            limits: plan
                .replay
                .in_flight_limit
                .map_or_else(Vec::new, |most| (0..ranks).map(|_| ReadLimit::new(most)).collect()),
            preprocessing: Preprocessing::new(&loader.preprocess, format, ranks, assignment.thread_count()),
            tolerance: Tolerance::new(loader.error_limit, errors),
            status: StatusBoard::new(&assignment),
            work_bells: (0..assignment.thread_count()).map(|_| Bell::default()).collect(),
            assignment,
        }
    }
}

/// What ends the phase early, and what wakes the accelerators.
pub(crate) struct PhaseControl<'a> {
    /// The stop request, from outside the phase.
    pub(crate) stop: &'a Stop,
    /// Set when a part of the phase fails.
    pub(crate) abort: Stop,
    failure: Mutex<Option<PhaseFailure>>,
    /// Wakes the thread that drives the accelerators.
    pub(crate) batch_bell: Bell,
}

impl<'a> PhaseControl<'a> {
    pub(crate) fn new(stop: &'a Stop) -> PhaseControl<'a> {
        PhaseControl { stop, abort: Stop::default(), failure: Mutex::default(), batch_bell: Bell::default() }
    }

    /// The failure that ended the phase, if one did.
    pub(crate) fn into_failure(self) -> Option<PhaseFailure> {
        self.failure.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What ended the work, and where.
#[derive(Clone, Debug)]
pub(crate) struct PhaseFailure {
    pub(crate) rank: u64,
    pub(crate) step: u64,
    pub(crate) cause: String,
}

impl std::fmt::Display for PhaseFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {}, step {}: {}", self.rank, self.step, self.cause)
    }
}

impl PhaseRun<'_> {
    pub(crate) fn ending(&self) -> bool {
        self.control.stop.wished() || self.control.abort.wished()
    }

    /// Why the phase ends, if a part has failed.
    pub(crate) fn cause(&self) -> Option<String> {
        self.control.failure.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ToString::to_string)
    }

    /// Keeps the first failure and ends the phase for all threads.
    pub(crate) fn fail(&self, failure: PhaseFailure) {
        self.control.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.control.abort.wish();
        self.wake_all();
    }

    /// The name of a file, for a message.
    pub(crate) fn file_name(&self, file: u64) -> String {
        let mut name = Name::default();
        match self.input.files.entry(file, &mut name) {
            Ok(_) => name.to_string(),
            Err(cause) => cause,
        }
    }

    pub(crate) fn wake_all(&self) {
        self.control.batch_bell.ring();
        self.readers.work_bells.iter().for_each(|bell| {
            bell.ring();
        });
    }

    /// Wakes reader threads that can claim these chunks of a queue.
    pub(crate) fn wake_for(&self, queue: usize, room: &Range<u64>) {
        let PhaseReaders { queues, assignment, work_bells, .. } = &self.readers;
        assignment.wake(work_bells, queue, &queues[queue], room);
    }
}
