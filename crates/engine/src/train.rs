//! A run from its first epoch to its last: for each phase it builds a loader, runs readers and accelerators, and adds
//! what they recorded to the ledger. A failure ends the run and is recorded in the ledger; nothing is printed here.

mod counters;
mod members;
mod phase_watch;

use std::panic::{AssertUnwindSafe, catch_unwind};

use format::Format;
use model::checkpoint::Checkpoints;
use model::files::FileList;
use model::ledger::{EpochRecord, Ledger, NodeRow, ObservedCache, PARTS, Phase, SampleDigest};
use model::plan::{PhasePlan, TrainingPlan};
use model::spans::{OperationSpan, SpanKind, SpanTrack};
use model::units::Nanos;
use store::page_cache::PageCache;
use store::{Footprint, Store};

use crate::accelerators::{Drive, PhaseContext, PhaseTimes, RankTimes};
use crate::cache::{CacheError, CachePreparer};
use crate::checkpoint;
use crate::events::{Emitter, Event, Events, RARELY, SpanSource};
use crate::host;
use crate::loader::{
    Delivered, PhaseControl, PhaseFailure, PhaseInput, PhaseReaders, PhaseRun, panic_text, read,
};
use crate::meter::{Clock, Monotonic};
use crate::stop::Stop;
use crate::truth::Truth;
use crate::watchdog::guard;
use crate::world::{Cause, EarlyEnd, World};
use counters::PhaseCounters;
use members::PhaseMeeting;
use phase_watch::PhaseWatch;

/// Stack size of a reader thread. Readers keep their buffers on the heap; this is for calls and a panic message.
const READER_STACK_BYTES: usize = 256 << 10;

/// The inputs of a run.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a bundle of references, one of them a clock")]
pub struct TrainingSetup<'a> {
    pub plan: &'a TrainingPlan,
    /// The members of the run, from the point of view of this one.
    pub world: &'a dyn World,
    pub format: &'a dyn Format,
    pub store: &'a dyn Store,
    /// The page cache below the data folder; `None` for a store without files, or if the cache is not managed.
    pub pages: Option<&'a PageCache>,
    /// Names and sizes of the files that training and evaluation read.
    pub files: SplitFiles<'a>,
    /// The expected content of the files, if it is known.
    pub truth: Option<Truth<'a>>,
    /// Takes the checkpoints of the plan; `None`: none are taken.
    pub checkpoints: Option<&'a checkpoint::Checkpointer<'a>>,
    pub clock: &'a dyn Clock,
    pub stop: &'a Stop,
    pub events: &'a Events,
}

/// The files of both splits.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a pair of references to whatever lists files")]
pub struct SplitFiles<'a> {
    pub train: &'a dyn FileList,
    pub valid: &'a dyn FileList,
}

/// Runs the plan and returns the ledger of this member, complete or not. Refused if the page cache cannot be brought
/// into the state in which the first epoch is to begin, here or at another member.
pub fn train(rig: &TrainingSetup<'_>) -> Result<Ledger, CacheError> {
    Monotonic::sharpen_this_thread();
    let mut ledger = Ledger::default();
    let (preparer, emitter) = (CachePreparer::new(rig), Emitter::default());
    let spans = rig.events.span_source(RARELY);
    for epoch in 1..=rig.plan.epochs {
        let began = rig.clock.now();
        emitter.emit(rig.events, began, Event::EpochBegan { epoch });
        for (place, phase) in rig.plan.phases(epoch).enumerate() {
            let is_first = (epoch, place) == (1, 0);
            let made = preparer.make(phase, epoch, is_first);
            let cause = made.as_ref().err().map(ToString::to_string);
            let before = PhaseCounters::read(&preparer, rig.world.members() > 1);
            let begun = members::begin(rig, place == 0, cause);
            let ended = match (made, begun) {
                (Err(refused), _) if is_first => return Err(refused),
                (Ok(cache), Ok(PhaseMeeting { agreement, cores })) => {
                    let (prepared, began) = (cache.made.time_ns, rig.clock.now());
                    emitter.emit(rig.events, began, Event::PhaseBegan { epoch, phase: phase.phase });
                    let node = NodeRow { cache, agreement, ..NodeRow::default() };
                    ledger.add_node(epoch, phase.phase, rig.world.node(), node);
                    let (first_batch, ended) = run_phase(rig, phase, epoch, (&before, cores), &mut ledger);
                    let at = rig.clock.now();
                    emitter.emit(rig.events, at, Event::PhaseEnded { epoch, phase: phase.phase });
                    record(spans.as_ref(), epoch, Some(phase.phase), (began, at));
                    if is_first {
                        ledger.first_batch_ns = first_batch.map(|moment| moment.since(prepared));
                    }
                    ended
                }
                (Ok(_), Err(ended)) if is_first && ended.cause != Cause::Stopped => {
                    return Err(CacheError::Elsewhere(ended));
                }
                // The results so far are kept.
                (_, begun) => begun.map(drop),
            };
            if let Err(ended) = ended {
                members::note_end(rig, &mut ledger, (epoch, phase.phase), ended);
                return Ok(ledger);
            }
            save_after(rig, phase, epoch);
            if let Some(record) =
                ledger.records.epochs.get_mut(&epoch).filter(|_| phase.phase == Phase::Train)
            {
                record.trained = Some(rig.clock.now());
            }
        }
        if let Some(record) = ledger.records.epochs.get_mut(&epoch) {
            record.ended = Some(rig.clock.now());
        }
        let at = rig.clock.now();
        emitter.emit(rig.events, at, Event::EpochEnded { epoch });
        record(spans.as_ref(), epoch, None, (began, at));
    }
    // No member leaves while another one still saves or fails.
    let (last, phase) = (rig.plan.epochs, Phase::Train);
    if let Err(ended) = members::finish(rig) {
        members::note_end(rig, &mut ledger, (last, phase), ended);
    }
    Ok(ledger)
}

/// Records an epoch or one of its phases for listeners.
fn record(spans: Option<&SpanSource>, epoch: u64, phase: Option<Phase>, (began, end): (Nanos, Nanos)) {
    let kind = match phase {
        None => SpanKind::Epoch,
        Some(Phase::Train) => SpanKind::Training,
        Some(Phase::Eval) => SpanKind::Evaluation,
    };
    if let Some(spans) = spans {
        let span = OperationSpan::new(kind, SpanTrack::Run, began, end.since(began));
        spans.record(&OperationSpan { epoch, ..span });
    }
}

/// Takes the checkpoint that follows a finished epoch of training, if one does.
fn save_after(rig: &TrainingSetup<'_>, phase: &PhasePlan, epoch: u64) {
    let Some(checkpointer) = rig.checkpoints else { return };
    let due = checkpointer.plan().after_epoch(epoch, phase.shards.steps);
    if let Some(moment) = due.filter(|_| phase.phase == Phase::Train) {
        checkpointer.save(moment);
    }
}

/// Runs a phase to its end, and agrees with the other members on how it ended. `cores` of the node are for the run.
/// Returns the time of the first batch.
fn run_phase(
    rig: &TrainingSetup<'_>,
    phase: &PhasePlan,
    epoch: u64,
    (before, cores): (&PhaseCounters<'_>, f64),
    ledger: &mut Ledger,
) -> (Option<Nanos>, Result<(), EarlyEnd>) {
    let meminfo = if rig.plan.record_steps { host::meminfo() } else { Vec::new() };
    let begin = rig.clock.now();
    if rig.plan.record_steps && phase.phase == Phase::Train {
        ledger.records.epochs.insert(epoch, EpochRecord { began: begin, meminfo, ..EpochRecord::default() });
    }
    let footprint = before.preparer.footprint(phase, epoch);
    let phase_start =
        PhaseStart { epoch, begin, errors: ledger.errors().count(), footprint: footprint.as_ref() };
    let SeenPhase { ranks, mut node, pace, first_batch, failure } = with_readers(rig, phase, phase_start);
    ledger.checkpoints += pace;
    let wall = rig.clock.now() - begin;
    for (rank, RankTimes { mut row, blocks, record }) in rig.world.ranks(rig.plan.ranks()).zip(ranks) {
        row.steps_planned = phase.shards.steps;
        row.samples_planned = phase.shards.steps * phase.shards.batch;
        row.harness_ns =
            wall - (row.wait_ns + row.copy_ns + row.compute_ns + row.barrier_ns + row.checkpoint_ns);
        ledger.add(epoch, phase.phase, rank, row);
        ledger.add_blocks(epoch, phase.phase, rank, blocks);
        ledger.records.phases.extend(record.map(|record| ((epoch, phase.phase, rank), record)));
    }
    node += before.of_process();
    node.cache.stored = rig.plan.split(phase.phase).stored();
    ledger.add_node(epoch, phase.phase, rig.world.node(), node);
    let failure = failure.map(|failure| failure.to_string());
    let ended = members::end(rig, ledger, (epoch, phase.phase), failure);
    if rig.world.leads_node() {
        ledger.add_node(epoch, phase.phase, rig.world.node(), before.of_node(wall, cores));
    }
    for (node, agreement) in rig.world.take_agreement() {
        ledger.add_node(epoch, phase.phase, node, NodeRow { agreement, ..NodeRow::default() });
    }
    (first_batch, ended)
}

/// What accelerators and readers recorded in a phase.
struct SeenPhase {
    ranks: Vec<RankTimes>,
    node: NodeRow,
    /// How long steps took, if checkpoints are taken.
    pace: Checkpoints,
    first_batch: Option<Nanos>,
    failure: Option<PhaseFailure>,
}

/// The state of a run when a phase begins.
#[derive(Clone, Copy, Debug)]
struct PhaseStart<'a> {
    epoch: u64,
    begin: Nanos,
    /// Errors so far.
    errors: u64,
    /// Where the phase's reads are recorded, if it reads files more than once.
    footprint: Option<&'a Footprint>,
}

/// Starts the readers, drives the accelerators, ends the readers. Each rank's row includes both.
fn with_readers(rig: &TrainingSetup<'_>, phase: &PhasePlan, phase_start: PhaseStart<'_>) -> SeenPhase {
    let ((times, delivered), failure) = in_context(rig, phase, phase_start, drive_with_readers);
    let (pace, first_batch) = (times.pace.clone(), times.first_batch);
    let (ranks, node) = add_up(times, delivered);
    SeenPhase { ranks, node, pace, first_batch, failure }
}

/// Sets up what the readers and accelerators of a phase share, and calls `work`.
fn in_context<T>(
    rig: &TrainingSetup<'_>,
    phase: &PhasePlan,
    phase_start: PhaseStart<'_>,
    work: impl FnOnce(&PhaseContext<'_>) -> T,
) -> (T, Option<PhaseFailure>) {
    let (TrainingSetup { plan, world, .. }, PhaseStart { epoch, begin, errors, footprint }) =
        (*rig, phase_start);
    let ranks = world.ranks(plan.ranks());
    let counters = rig.events.counters();
    counters.seat_ranks(&ranks, plan.ranks());
    let readers = PhaseReaders::new(plan, phase, rig.format, (ranks.end - ranks.start) as usize, errors);
    let run = PhaseRun {
        plan,
        phase,
        epoch,
        order: phase.epoch_order(epoch),
        first_rank: ranks.start,
        input: PhaseInput {
            split: plan.split(phase.phase),
            files: match phase.phase {
                Phase::Train => rig.files.train,
                Phase::Eval => rig.files.valid,
            },
            format: rig.format,
            store: rig.store,
            truth: rig.truth,
            footprint,
        },
        ranks: counters.ranks(),
        threads: counters.seat_readers(readers.assignment.thread_count()),
        readers,
        control: PhaseControl::new(rig.stop),
        clock: rig.clock,
        begin,
        events: rig.events,
    };
    let checkpointer = rig.checkpoints.filter(|_| phase.phase == Phase::Train);
    let saving = checkpointer.map(|checkpointer| (checkpointer, checkpointer.plan().schedule));
    let context = PhaseContext { run: &run, world, metric: plan.metric, device: plan.device, saving };
    let done = work(&context);
    (done, run.control.into_failure())
}

fn drive_with_readers(context: &PhaseContext<'_>) -> (PhaseTimes, Vec<Delivered>) {
    let run = context.run;
    let drive = Drive::new(context);
    let delivered = guard(run.control.stop, &PhaseWatch { run, drive: &drive }, || play(context, &drive));
    (drive.times(), delivered)
}

/// Runs readers and accelerators until the phase is over.
fn play(context: &PhaseContext<'_>, drive: &Drive<'_>) -> Vec<Delivered> {
    let run = context.run;
    let following = members::MemberThread::default();
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for thread in 0..run.readers.assignment.thread_count() {
            match reader_thread().spawn_scoped(scope, move || read(run, drive, thread)) {
                Ok(reader) => readers.push(reader),
                Err(cause) => {
                    let cause = format!("cannot start reader thread {}: {cause}", thread + 1);
                    run.fail(PhaseFailure { rank: run.first_rank, step: 0, cause });
                    break;
                }
            }
        }
        for worker in 0..preprocessing_threads(run) {
            let work = move || run.readers.preprocessing.work_off(run);
            if let Err(cause) = reader_thread().spawn_scoped(scope, work) {
                let cause = format!("cannot start preprocessing thread {}: {cause}", worker + 1);
                run.fail(PhaseFailure { rank: run.first_rank, step: 0, cause });
                break;
            }
        }
        if context.world.members() > 1 {
            let follow = || following.follow(context, drive);
            if let Err(cause) = reader_thread().spawn_scoped(scope, follow) {
                let cause = format!("cannot start the thread that waits for other members: {cause}");
                run.fail(PhaseFailure { rank: run.first_rank, step: 0, cause });
            }
        }
        // Unwinding from here would join readers that wait for the accelerators.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drive.run())) {
            let cause = format!("the accelerators panicked: {}", panic_text(&*panic));
            run.fail(PhaseFailure { rank: run.first_rank, step: 0, cause });
        }
        if run.ending() {
            // Readers that wait for space in a queue would wait forever.
            run.control.abort.wish();
            // Announced before anything that may hang, so that the other members end, too.
            members::announce(context);
        }
        following.end(context);
        run.wake_all();
        // A reader catches its own panics, so joining cannot fail.
        let delivered: Vec<Delivered> = readers.into_iter().filter_map(|reader| reader.join().ok()).collect();
        run.readers.preprocessing.close();
        delivered
    })
}

fn reader_thread() -> std::thread::Builder {
    std::thread::Builder::new().name("reader".to_owned()).stack_size(READER_STACK_BYTES)
}

/// Number of threads for preprocessing that takes CPU time: as many tasks as the plan allows at once, or else one per
/// core; never more than there are readers.
fn preprocessing_threads(run: &PhaseRun<'_>) -> u64 {
    let plan = &run.plan.loader.preprocess;
    if !plan.computes() {
        return 0;
    }
    let ranks = run.readers.queues.len() as u64;
    let readers = ranks * run.plan.loader.readers_per_rank;
    plan.threads_per_rank.map_or(host::cores(), |threads| threads * ranks).clamp(1, readers)
}

fn add_up(times: PhaseTimes, delivered: Vec<Delivered>) -> (Vec<RankTimes>, NodeRow) {
    let PhaseTimes { mut ranks, batch_wait, timeline, .. } = times;
    let mut node =
        NodeRow { parts: vec![SampleDigest::default(); PARTS as usize], timeline, ..NodeRow::default() };
    node.latencies.batch_wait = batch_wait;
    for more in delivered {
        more.accounts.into_iter().for_each(|(queue, account)| ranks[queue].row += account);
        node += NodeRow {
            parts: more.parts,
            latencies: more.latencies,
            timeline: more.timeline,
            in_flight_bound: more.most_in_flight,
            checked: more.checked,
            errors: more.errors,
            requests: more.requests,
            cache: ObservedCache {
                counted: more.counted,
                needed_bytes: more.needed_bytes,
                repeats: more.repeats,
                ..ObservedCache::default()
            },
            ..NodeRow::default()
        };
    }
    (ranks, node)
}

#[cfg(test)]
mod blocks;
#[cfg(test)]
mod disciplines;
#[cfg(test)]
mod metadata;
#[cfg(test)]
mod several;
#[cfg(test)]
pub(crate) mod tests;
