//! The operations of a thread's readers, for listeners: what a lane timed gets its rank, reader, file and step here. No
//! time is read; the operations carry the times that the ledger records.

use model::ledger::Phase;
use model::spans::{OperationSpan, SpanFile, SpanKind, SpanTrack};
use model::units::Nanos;
use store::{LaneSpan, SpanSink};

use super::checking::ThreadCounter;
use super::phase_run::PhaseRun;
use crate::events::SpanSource;

/// The file number of a reader without a file.
const NO_FILE: u64 = u64::MAX;

/// What a reader is doing. Its file, and the file that it opened last, which is the one that it closes next.
#[derive(Debug)]
struct ReaderWork {
    track: SpanTrack,
    step: ThreadCounter,
    file: ThreadCounter,
    opened: ThreadCounter,
}

/// Where the readers of one thread record their operations.
#[derive(Debug)]
pub(super) struct ThreadSpans {
    source: SpanSource,
    epoch: u64,
    phase: Phase,
    readers: Vec<ReaderWork>,
}

impl ThreadSpans {
    /// For readers with these queues and numbers; `None` if there is no listener.
    pub(super) fn new(run: &PhaseRun<'_>, roles: &[(usize, usize)]) -> Option<ThreadSpans> {
        let source = run.events.span_source(run.readers.assignment.thread_count() + 1)?;
        let work = |(queue, number): &(usize, usize)| {
            let (rank, reader) = ((run.first_rank + *queue as u64) as u32, *number as u32);
            let none = || ThreadCounter::new(NO_FILE);
            let track = SpanTrack::Reader { rank, reader };
            ReaderWork { track, step: ThreadCounter::default(), file: none(), opened: none() }
        };
        let (epoch, phase) = (run.epoch, run.phase.phase);
        Some(ThreadSpans { source, epoch, phase, readers: roles.iter().map(work).collect() })
    }

    pub(super) fn turn_to_step(&self, reader: usize, step: u64) {
        self.readers[reader].step.set(step);
    }

    pub(super) fn turn_to_file(&self, reader: usize, file: u64) {
        self.readers[reader].file.set(file);
    }

    /// Records an operation on the reader's current file.
    pub(super) fn record(&self, reader: usize, kind: SpanKind, (at, took): (Nanos, Nanos), bytes: u64) {
        let work = &self.readers[reader];
        self.add(work, kind, (at, took), work.file.get(), (0, bytes));
    }

    fn add(
        &self,
        work: &ReaderWork,
        kind: SpanKind,
        (at, took): (Nanos, Nanos),
        file: u64,
        (offset, bytes): (u64, u64),
    ) {
        let file = (file != NO_FILE).then_some(match self.phase {
            Phase::Train => SpanFile::Train(file),
            Phase::Eval => SpanFile::Valid(file),
        });
        let (epoch, step, track) = (self.epoch, Some(work.step.get() as u32), work.track);
        self.source.record(&OperationSpan { kind, track, at, took, file, offset, bytes, epoch, step });
    }
}

impl SpanSink for ThreadSpans {
    fn see(&self, reader: usize, LaneSpan { kind, began, took, range }: LaneSpan) {
        let work = &self.readers[reader];
        let file = match kind {
            SpanKind::Open => {
                work.opened.set(work.file.get());
                work.file.get()
            }
            // A file that stayed open is closed when the reader turns to the next one.
            SpanKind::Close => work.opened.get(),
            _ => work.file.get(),
        };
        self.add(work, kind, (began, took), file, (range.offset, range.len));
    }
}
