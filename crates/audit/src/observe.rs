//! Runs a job and observes it: from a command to a ledger.

use std::ffi::OsString;

use model::ledger::{Ledger, NodeRow, Phase, RankRow};
use model::observed::{EpochRow, JobHost, Observed};
use model::secret::redact_command;
use model::units::Nanos;

use crate::aggregate::Aggregate;
use crate::event::{
    EventSink, MissedFaults, PageFault, ProcessEnd, ProcessIndex, ProcessStart, Sample, SeenCall,
};
use crate::layout::TextKind;
use crate::source;

/// Which paths of data files a result contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paths {
    None,
    /// Folders, and a few files.
    #[default]
    Examples,
    /// All files of the sample.
    All,
}

/// What to observe.
#[derive(Clone, Debug, Default)]
pub struct ObserveOptions {
    pub command: Vec<OsString>,
    pub paths: Paths,
    /// Whether Python processes mark epochs, batches and waits.
    pub marks: bool,
}

/// What is known while the job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditProgress {
    pub elapsed_ns: Nanos,
    pub epoch: Option<u64>,
    pub batches: u64,
    /// Bytes that were read from data files.
    pub bytes: u64,
    pub processes: u64,
}

/// Why a job could not be observed.
pub type ObserveError = source::SourceError;

/// Runs the command to its end, and returns what was observed.
pub fn observe(
    options: &ObserveOptions,
    progress: &mut dyn FnMut(&AuditProgress),
) -> Result<Ledger, ObserveError> {
    let mut aggregate = Aggregate::new(options.paths);
    let source_options = source::Options { command: options.command.clone(), marks: options.marks };
    let mut watched = WatchedSink { aggregate: &mut aggregate, progress };
    let outcome = source::run(&source_options, &mut watched, &mut |_| {})?;
    let (shm_used_bytes, refault_bytes) = aggregate.kernel_counts();
    let mut observed = aggregate.finish();
    observed.command = hide_secrets(&options.command);
    observed.exit = outcome.exit;
    observed.wall_ns = Nanos(outcome.wall_ns);
    observed.host = JobHost { shm_used_bytes, refault_bytes, ..outcome.host };
    observed.overhead = outcome.overhead;
    observed.coverage.unseen = outcome.unseen;
    observed.coverage.copied_bytes = outcome.copied_bytes;
    observed.coverage.recorded_bytes = outcome.recorded_bytes;
    observed.coverage.faults = outcome.faults;
    observed.coverage.notes.extend(outcome.notes);
    Ok(ledger(observed))
}

/// Hands everything to the aggregation, and reports progress with every sample.
struct WatchedSink<'a> {
    aggregate: &'a mut Aggregate,
    progress: &'a mut dyn FnMut(&AuditProgress),
}

impl EventSink for WatchedSink<'_> {
    fn process(&mut self, start: &ProcessStart) {
        self.aggregate.process(start);
    }

    fn event(&mut self, process: ProcessIndex, event: &SeenCall) {
        self.aggregate.event(process, event);
    }

    fn text(&mut self, process: ProcessIndex, kind: TextKind, id: u64, device: u32, text: &str) {
        self.aggregate.text(process, kind, id, device, text);
    }

    fn sample(&mut self, sample: &Sample) {
        self.aggregate.sample(sample);
        (self.progress)(&self.aggregate.progress(sample.at_ns));
    }

    fn fault(&mut self, process: ProcessIndex, fault: &PageFault) {
        self.aggregate.fault(process, fault);
    }

    fn faults_missed(&mut self, missed: &MissedFaults) {
        self.aggregate.faults_missed(missed);
    }

    fn end(&mut self, process: ProcessIndex, end: &ProcessEnd) {
        self.aggregate.end(process, end);
    }

    fn sample_bits(&self) -> u32 {
        self.aggregate.sample_bits()
    }
}

/// A command without its secrets.
pub(crate) fn hide_secrets(command: &[OsString]) -> Vec<String> {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    redact_command(words.iter().map(String::as_str))
}

/// The ledger of a job: rows of the same kind as those of a run, and what was observed beyond them.
pub(crate) fn ledger(observed: Observed) -> Ledger {
    let mut ledger = Ledger::default();
    let training = training_loader(&observed);
    for row in &observed.epochs {
        let phase = if training == Some((row.rank, row.loader)) || training.is_none() {
            Phase::Train
        } else {
            Phase::Eval
        };
        let is_other_rank = training.is_some_and(|(rank, _)| rank != row.rank);
        let phase = if is_other_rank { Phase::Train } else { phase };
        ledger.add(row.epoch, phase, row.rank, rank_row(row));
        if let Some(issued) = row.issued_bytes {
            let node = NodeRow { device_read_bytes: issued, device_readings: 1, ..NodeRow::default() };
            ledger.add_node(row.epoch, phase, row.rank, node);
        }
    }
    ledger.observed = Some(Box::new(observed));
    ledger
}

/// The loader that the job trains with: the one with most time in its epochs.
fn training_loader(observed: &Observed) -> Option<(u64, u64)> {
    let time = |rank: u64, loader: u64| -> u64 {
        let rows = observed.epochs.iter().filter(|row| (row.rank, row.loader) == (rank, loader));
        rows.map(|row| row.wall_ns().0).sum()
    };
    observed
        .loaders
        .iter()
        .map(|row| (row.rank, row.loader))
        .max_by_key(|(rank, loader)| time(*rank, *loader))
}

fn rank_row(row: &EpochRow) -> RankRow {
    let known = row.blocked_all_ns + row.handover_all_ns + row.compute_ns + row.checkpoint_ns;
    RankRow {
        steps: row.batches,
        samples_delivered: row.samples.unwrap_or(0),
        bytes_read: row.io.reads.bytes,
        opens: row.io.opens.count,
        reads: row.io.reads.count,
        wait_ns: row.blocked_all_ns,
        copy_ns: row.handover_all_ns,
        compute_ns: row.compute_ns,
        checkpoint_ns: row.checkpoint_ns,
        harness_ns: row.wall_ns().since(known),
        last_batch_ns: row.wall_ns(),
        ..RankRow::default()
    }
}
