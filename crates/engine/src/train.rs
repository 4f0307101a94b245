//! A run from its first epoch to its last: for each phase it builds a loader, lets readers and accelerators work, and
//! adds what they saw to the ledger. A failure ends the run and stands in the ledger; nothing is printed here.

use std::sync::{Mutex, PoisonError};

use format::Format;
use model::files::FileList;
use model::ledger::{Fault, Ledger, NodeRow, PARTS, Part, Phase, Row};
use model::plan::{PhasePlan, Plan};
use model::units::Nanos;
use store::Store;

use crate::accelerators::{Course, drive};
use crate::bell::Bell;
use crate::host;
use crate::loader::{Delivered, Failure, Job, Queue, read};
use crate::meter::{self, Clock, Monotonic};
use crate::pulse::Pulse;
use crate::stop::Stop;
use crate::world::{Solo, World};

/// Stack of a reader thread. Readers keep their buffers on the heap; this is for calls and a panic message.
const READER_STACK_BYTES: usize = 256 << 10;

/// What a run works with.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a bundle of references, one of them a clock")]
pub struct Rig<'a> {
    pub plan: &'a Plan,
    pub format: &'a dyn Format,
    pub store: &'a dyn Store,
    /// Names and sizes of the files that training and evaluation read.
    pub files: Files<'a>,
    pub clock: &'a dyn Clock,
    pub stop: &'a Stop,
    pub pulse: &'a Pulse,
}

/// The files of both splits.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a pair of references to whatever lists files")]
pub struct Files<'a> {
    pub train: &'a dyn FileList,
    pub valid: &'a dyn FileList,
}

/// Runs the plan and returns what was seen, complete or not.
pub fn train(rig: &Rig<'_>) -> Ledger {
    Monotonic::sharpen_this_thread();
    let mut ledger = Ledger::default();
    let world = Solo::new(rig.plan.ranks);
    for epoch in 1..=rig.plan.epochs {
        rig.pulse.begin_epoch(epoch);
        for phase in rig.plan.phases(epoch) {
            run_phase(rig, &world, phase, epoch, &mut ledger);
            if rig.stop.wished() || !ledger.faults().is_empty() {
                ledger.interrupted = rig.stop.wished();
                return ledger;
            }
        }
    }
    ledger
}

fn run_phase(rig: &Rig<'_>, world: &dyn World, phase: &PhasePlan, epoch: u64, ledger: &mut Ledger) {
    let (device_before, cpu_before) = (host::device_read_bytes(), meter::cpu_seconds());
    let begin = rig.clock.now();
    let Seen { rows, parts, failure } = with_readers(rig, world, phase, epoch);
    let wall = rig.clock.now() - begin;
    for (rank, mut row) in world.ranks().zip(rows) {
        row.samples_planned = phase.shards.steps * phase.shards.batch;
        row.harness_ns = wall - (row.wait_ns + row.compute_ns + row.barrier_ns);
        ledger.add(epoch, phase.phase, rank, row);
    }
    let mut node = NodeRow { parts, ..NodeRow::default() };
    node.cpu_ns = Nanos::from_seconds(meter::cpu_seconds() - cpu_before);
    node.core_ns = Nanos(wall.0.saturating_mul(host::cores()));
    if let (Some(before), Some(after)) = (device_before, host::device_read_bytes()) {
        (node.device_read_bytes, node.device_readings) = (after.saturating_sub(before), 1);
    }
    ledger.add_node(epoch, phase.phase, world.node(), node);
    if let Some(Failure { rank, step, cause }) = failure {
        let message = format!("rank {rank}, step {step}: {cause}");
        ledger.add_fault(Fault { epoch, phase: phase.phase, message });
    }
}

/// What accelerators and readers saw of a phase.
struct Seen {
    rows: Vec<Row>,
    parts: Vec<Part>,
    failure: Option<Failure>,
}

/// Starts the readers, drives the accelerators, ends the readers. Each rank's row has both their shares.
fn with_readers(rig: &Rig<'_>, world: &dyn World, phase: &PhasePlan, epoch: u64) -> Seen {
    let Rig { plan, .. } = *rig;
    let ranks = world.ranks();
    let count = (ranks.end - ranks.start) as usize;
    let groups = reader_groups(count, plan.loader.threads as usize);
    let queues: Vec<Queue> =
        (0..count).map(|_| Queue::new(phase.shards.steps, phase.shards.batch, &plan.loader)).collect();
    let work_bells: Vec<Bell> = groups.iter().map(|_| Bell::default()).collect();
    let (batch_bell, abort, failure) = (Bell::default(), Stop::default(), Mutex::new(None));
    let job = Job {
        phase,
        order: phase.order.epoch(epoch),
        split: plan.split(phase.phase),
        files: match phase.phase {
            Phase::Train => rig.files.train,
            Phase::Eval => rig.files.valid,
        },
        data: &plan.data,
        format: rig.format,
        store: rig.store,
        transfer_bytes: plan.loader.transfer_bytes as usize,
        first_rank: ranks.start,
        queues: &queues,
        work_bells: &work_bells,
        batch_bell: &batch_bell,
        clock: rig.clock,
        pulse: rig.pulse,
        stop: rig.stop,
        abort: &abort,
        failure: &failure,
    };
    let group_of = group_of_queue(&groups, count);
    let course =
        Course { job: &job, world, metric: plan.metric, seed: plan.seed, epoch, group_of: &group_of };
    let (rows, parts) = drive_with_readers(&course, &groups);
    Seen { rows, parts, failure: failure.into_inner().unwrap_or_else(PoisonError::into_inner) }
}

fn drive_with_readers(course: &Course<'_>, groups: &[Group]) -> (Vec<Row>, Vec<Part>) {
    let job = course.job;
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            for _ in 0..group.threads {
                let work = move || (number, read(job, number, &group.queues));
                let builder =
                    std::thread::Builder::new().name("reader".to_owned()).stack_size(READER_STACK_BYTES);
                match builder.spawn_scoped(scope, work) {
                    Ok(reader) => readers.push(reader),
                    Err(cause) => {
                        let cause = format!("cannot start reader thread {}: {cause}", readers.len() + 1);
                        job.fail(Failure { rank: job.first_rank + group.queues[0] as u64, step: 0, cause });
                        break;
                    }
                }
            }
        }
        let mut rows = drive(course);
        if job.ending() {
            // Readers that wait for room would wait for ever.
            job.abort.wish();
        }
        job.work_bells.iter().for_each(|bell| bell.ring(usize::MAX));
        let mut parts = vec![Part::default(); PARTS as usize];
        for reader in readers {
            // A reader catches its own panics, so joining cannot fail.
            let Ok((number, delivered)) = reader.join() else { continue };
            add_up(&mut rows, &mut parts, &groups[number].queues, delivered);
        }
        (rows, parts)
    })
}

fn add_up(rows: &mut [Row], parts: &mut [Part], queues: &[usize], delivered: Delivered) {
    for (&queue, account) in queues.iter().zip(delivered.accounts) {
        rows[queue] += account;
    }
    parts.iter_mut().zip(delivered.parts).for_each(|(part, more)| *part += more);
}

/// Reader threads that serve the same queues.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    queues: Vec<usize>,
    threads: usize,
}

/// Deals threads to queues: several threads per queue when there are enough, several queues per thread when not.
fn reader_groups(queues: usize, threads: usize) -> Vec<Group> {
    let threads = threads.max(1);
    if threads >= queues {
        let share = |queue| threads / queues + usize::from(queue < threads % queues);
        return (0..queues).map(|queue| Group { queues: vec![queue], threads: share(queue) }).collect();
    }
    (0..threads)
        .map(|first| Group { queues: (first..queues).step_by(threads).collect(), threads: 1 })
        .collect()
}

fn group_of_queue(groups: &[Group], queues: usize) -> Vec<usize> {
    let mut group_of = vec![0; queues];
    for (number, group) in groups.iter().enumerate() {
        group.queues.iter().for_each(|queue| group_of[*queue] = number);
    }
    group_of
}

#[cfg(test)]
mod tests;
