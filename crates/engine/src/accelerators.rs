//! The emulated accelerators. Each is a timeline, not a sleeping thread: a step starts at the latest of the end of the
//! previous step, the barrier's release and the moment its batch was in the accelerator's memory, and ends `compute`
//! later. One host thread sleeps to absolute deadlines for all of them. A reader that completes a batch for which an
//! accelerator waits advances the timelines itself, so that no thread has to be woken for it. If a thread is late, no
//! timeline is delayed or gains by it, and the lateness is recorded.

mod blocks;
mod recording;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::checkpoint::manifest::Moment;
use model::checkpoint::{Checkpoints, Schedule};
use model::histogram::Histogram;
use model::ledger::{BlockRecord, BlockWindow, PhaseRecord, RankRow, StepRecord};
use model::plan::{DevicePlan, MetricPlan};
use model::timeline::Timeline;
use model::units::Nanos;

use crate::checkpoint::Checkpointer;
use crate::combiner::{Advance, Combiner};
use crate::events::{Emitter, Event, SpanSource};
use crate::loader::{PhaseRun, Queue};
use crate::meter::Listener;
use crate::world::{Barrier, World};
use blocks::Blocks;

/// Far enough in the future to mean "no deadline", small enough to be added to.
const NEVER: Nanos = Nanos(u64::MAX / 4);

/// The ranks that continue at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// All ranks leave the barrier.
    All,
    One(usize),
}

/// A batch in the accelerator's memory.
#[derive(Clone, Copy, Debug)]
struct DeviceBatch {
    /// When it was ready in host memory, how long the accelerator waited for that, and when it was in its own memory.
    ready: Nanos,
    waited: Nanos,
    at: Nanos,
}

/// One accelerator's state.
#[derive(Debug)]
struct Accelerator {
    step: u64,
    /// The step whose batch it requests next, and since when, if it has requested it.
    wants: u64,
    asked: Option<Nanos>,
    landed: Option<DeviceBatch>,
    /// Whether its last step is over, and when it was or will be over.
    free: bool,
    asks: Nanos,
    /// When its own work of the last step ended or will end.
    ends: Nanos,
    /// Wait, copy and compute time of the current step: recorded when the step is over, so that a phase that ends early
    /// has no compute time without the time it took.
    begun: (Nanos, Nanos, Nanos),
    blocks: Blocks,
    row: RankRow,
}

impl Accelerator {
    /// Before the first step of a phase. `records`: the number of steps to record, if they are.
    fn idle(begin: Nanos, records: Option<u64>) -> Accelerator {
        Accelerator {
            step: 0,
            wants: 0,
            asked: None,
            landed: None,
            free: false,
            asks: begin,
            ends: begin,
            begun: (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO),
            blocks: Blocks::new(begin, records),
            row: RankRow::default(),
        }
    }

    /// Its times. The phase ends when it would request another batch.
    fn finish(self) -> RankTimes {
        let (blocks, record) = self.blocks.finish(self.asks);
        let mut row = self.row;
        blocks.iter().for_each(|block| row.window += block.window);
        RankTimes { row, blocks, record }
    }
}

/// What the accelerators need in addition to the run.
pub(crate) struct PhaseContext<'a> {
    pub(crate) run: &'a PhaseRun<'a>,
    pub(crate) world: &'a dyn World,
    pub(crate) metric: MetricPlan,
    pub(crate) device: DevicePlan,
    /// The checkpointer that saves between steps, and its schedule.
    pub(crate) saving: Option<(&'a Checkpointer<'a>, Schedule)>,
}

/// What one accelerator recorded in a phase.
#[derive(Debug)]
pub(crate) struct RankTimes {
    pub(crate) row: RankRow,
    pub(crate) blocks: Vec<BlockWindow>,
    /// Each step, if steps are recorded.
    pub(crate) record: Option<PhaseRecord>,
}

/// What the accelerators recorded in a phase.
#[derive(Debug)]
pub(crate) struct PhaseTimes {
    pub(crate) ranks: Vec<RankTimes>,
    pub(crate) batch_wait: Histogram,
    pub(crate) timeline: Timeline,
    /// How long steps took next to checkpoints, if there are any.
    pub(crate) pace: Checkpoints,
    /// When the first batch was ready.
    pub(crate) first_batch: Option<Nanos>,
}

/// All ranks have finished a step and wait for a checkpoint.
#[derive(Clone, Copy, Debug)]
struct CheckpointDue {
    step: u64,
    at: Nanos,
}

/// What the ranks of this member do when all members of the run have arrived at a barrier.
#[derive(Clone, Copy, Debug)]
enum AfterBarrier {
    /// They leave their step.
    Step,
    /// They continue after a checkpoint that began at this moment.
    Checkpoint { began: Nanos },
}

/// The accelerators of this process, advanced by any thread that finds that they can continue.
pub(crate) struct Drive<'a> {
    context: &'a PhaseContext<'a>,
    driver: Combiner<Driver<'a>>,
    /// The sleeping thread takes a checkpoint, which has a watchdog of its own.
    saves: AtomicBool,
    /// Other members have not arrived at a barrier yet. The driver sets it; the world detects silent members.
    agrees: Arc<AtomicBool>,
}

impl<'a> Drive<'a> {
    pub(crate) fn new(context: &'a PhaseContext<'a>) -> Drive<'a> {
        let begin = context.run.begin;
        let run = context.run;
        let records = run.plan.record_steps.then_some(run.phase.shards.steps);
        let ranks = context.run.readers.queues.len();
        let agrees = Arc::new(AtomicBool::new(false));
        let driver = Driver {
            context,
            ranks: (0..ranks).map(|_| Accelerator::idle(begin, records)).collect(),
            turns: BinaryHeap::from([Reverse((begin, Turn::All))]),
            waiting: Vec::with_capacity(ranks),
            room: Vec::with_capacity(2 * ranks),
            arrived: 0,
            finished: 0,
            batch_wait: Histogram::default(),
            timeline: Timeline::default(),
            due: None,
            awaited: None,
            agrees: Arc::clone(&agrees),
            pace: Checkpoints::default(),
            first_batch: None,
            emitter: Emitter::default(),
            spans: run.events.span_source(run.readers.assignment.thread_count() + 1),
        };
        Drive { context, driver: Combiner::new(driver), saves: AtomicBool::new(false), agrees }
    }

    /// Moves the accelerators on as far as they go now. If another thread is doing so, that thread looks again.
    pub(crate) fn nudge(&self) {
        self.driver.nudge(&self.context.run.control.batch_bell);
    }

    /// Runs the phase until it ends or is stopped. To be called by one thread, which sleeps meanwhile.
    pub(crate) fn run(&self) {
        let run = self.context.run;
        run.readers.queues.iter().for_each(Queue::open);
        run.wake_all();
        self.driver.lock().tell_block(run.begin, |block, _| Some(Event::BlockBegan { block }));
        while !run.ending() {
            self.driver.look(&run.control.batch_bell);
            let (next, waits) = {
                let driver = self.driver.lock();
                if let Some(due) = driver.due {
                    drop(driver);
                    self.save(due);
                    continue;
                }
                if driver.finished() {
                    break;
                }
                let next = driver.next_turn();
                self.driver.set_deadline(next);
                (next, !driver.waiting.is_empty() || driver.awaited.is_some())
            };
            if waits {
                let ready = || run.ending() || self.driver.is_called();
                run.clock.listen(Listener { bell: &run.control.batch_bell, ready: &ready }, next);
            } else {
                run.clock.sleep_until(next, &|| run.ending());
            }
        }
        // The time of the last step has to pass, too.
        let end = self.driver.lock().ranks.iter().map(|rank| rank.asks).max().unwrap_or_default();
        self.driver.set_deadline(end);
        if !run.ending() {
            run.clock.sleep_until(end, &|| run.ending());
        }
        if !run.ending() {
            self.driver.lock().tell_end_of_block(end);
        }
    }

    /// Takes a checkpoint for which all ranks wait, and lets them continue.
    fn save(&self, CheckpointDue { step, at }: CheckpointDue) {
        let Some((checkpointer, _)) = self.context.saving else { return };
        let run = self.context.run;
        // The time of the step before it has to pass.
        self.driver.set_deadline(at);
        run.clock.sleep_until(at, &|| run.ending());
        if run.ending() {
            return;
        }
        self.driver.lock().tell_end_of_block(at);
        // Relaxed: only the watchdog reads it.
        self.saves.store(true, Ordering::Relaxed);
        let end = checkpointer.save(Moment { epoch: run.epoch, step });
        self.saves.store(false, Ordering::Relaxed);
        self.driver.lock().saved(step, at, end);
    }

    /// Whether a step is being computed that will end by itself, a checkpoint is being taken, or other members are
    /// waited for. Relaxed: only the watchdog uses it.
    pub(crate) fn computes(&self, now: Nanos) -> bool {
        let deadline = self.driver.deadline();
        let run = self.context.run;
        let starts = now < run.begin + run.plan.start_time(run.phase, run.epoch);
        let computes = now < deadline && deadline < NEVER;
        computes || starts || self.saves.load(Ordering::Relaxed) || self.agrees.load(Ordering::Relaxed)
    }

    /// The ranks that wait for a batch; empty if another thread is advancing them at this moment.
    pub(crate) fn waits(&self) -> Vec<String> {
        let first = self.context.run.first_rank;
        let waits = self.driver.inspect(&self.context.run.control.batch_bell, |driver| {
            if driver.awaited.is_some() {
                return vec![format!("ranks from {first} on wait for the ranks of other members")];
            }
            let said = driver.waiting.iter().map(|rank| {
                let (number, step) = (first + *rank as u64, driver.ranks[*rank].wants);
                format!("rank {number} waits for the batch of step {step}")
            });
            said.collect()
        });
        waits.unwrap_or_default()
    }

    pub(crate) fn times(self) -> PhaseTimes {
        let Driver { ranks, batch_wait, timeline, pace, first_batch, .. } = self.driver.into_inner();
        let ranks = ranks.into_iter().map(Accelerator::finish).collect();
        PhaseTimes { ranks, batch_wait, timeline, pace, first_batch }
    }
}

struct Driver<'a> {
    context: &'a PhaseContext<'a>,
    ranks: Vec<Accelerator>,
    /// Moments at which accelerators are ready for their next step.
    turns: BinaryHeap<Reverse<(Nanos, Turn)>>,
    /// Accelerators that have requested a batch that is not ready yet.
    waiting: Vec<usize>,
    /// Chunks that readers may begin since they were last woken.
    room: Vec<(usize, Range<u64>)>,
    /// Accelerators whose step has begun, in a phase with barriers.
    arrived: usize,
    finished: usize,
    batch_wait: Histogram,
    timeline: Timeline,
    due: Option<CheckpointDue>,
    /// The ranks of this member have arrived at a barrier that is not released yet.
    awaited: Option<AfterBarrier>,
    /// Whether there is such a barrier, for threads without the lock.
    agrees: Arc<AtomicBool>,
    pace: Checkpoints,
    first_batch: Option<Nanos>,
    emitter: Emitter,
    /// Where operations are recorded, if a listener asks for them.
    spans: Option<SpanSource>,
}

impl Advance for Driver<'_> {
    fn advance(&mut self) -> Option<Nanos> {
        loop {
            let turned = self.take_turns();
            let took = self.take_batches();
            if !turned && !took && !self.take_release() {
                break;
            }
        }
        self.wake_readers();
        // Relaxed: for the watchdog.
        self.agrees.store(self.awaited.is_some(), Ordering::Relaxed);
        self.context.run.events.counters().set_waiting(self.waiting.len() as u64);
        (!self.is_idle()).then(|| self.next_turn())
    }
}

impl Driver<'_> {
    fn finished(&self) -> bool {
        self.finished == self.ranks.len()
    }

    /// Whether no accelerator continues by itself: all are done, or wait for a checkpoint.
    fn is_idle(&self) -> bool {
        self.finished() || self.due.is_some()
    }

    fn next_turn(&self) -> Nanos {
        self.turns.peek().map_or(NEVER, |Reverse((at, _))| *at)
    }

    /// Lets every accelerator continue that is due; returns whether there was one.
    fn take_turns(&mut self) -> bool {
        let mut turned = false;
        let now = self.context.run.clock.now();
        while let Some(Reverse((at, turn))) = self.turns.peek().copied() {
            if at > now {
                break;
            }
            turned = true;
            self.turns.pop();
            match turn {
                Turn::All => (0..self.ranks.len()).for_each(|rank| self.turn(rank)),
                Turn::One(rank) => self.turn(rank),
            }
        }
        turned
    }

    /// The accelerator is free: it requests its batch, unless it has, and begins if the batch is ready.
    fn turn(&mut self, rank: usize) {
        self.ranks[rank].free = true;
        self.ask(rank, self.ranks[rank].asks);
        if self.ranks[rank].landed.is_some() {
            self.begin_step(rank);
        }
    }

    fn ask(&mut self, rank: usize, at: Nanos) {
        let accelerator = &mut self.ranks[rank];
        if accelerator.asked.is_none() {
            accelerator.asked = Some(at);
            let room = self.context.run.readers.queues[rank].ask(accelerator.wants);
            self.room.push((rank, room));
            self.waiting.push(rank);
        }
    }

    /// Takes all batches that are ready for waiting accelerators; returns whether there was one.
    fn take_batches(&mut self) -> bool {
        let mut took = false;
        let mut i = 0;
        while i < self.waiting.len() {
            let rank = self.waiting[i];
            let accelerator = &self.ranks[rank];
            let Some(ready) = self.context.run.readers.queues[rank].ready(accelerator.wants) else {
                i += 1;
                continue;
            };
            took = true;
            self.waiting.swap_remove(i);
            let asked = accelerator.asked.unwrap_or_default();
            let at = asked.max(ready.at) + self.copying(ready.bytes);
            let landed = DeviceBatch { ready: ready.at, waited: ready.at.since(asked), at };
            self.ranks[rank].landed = Some(landed);
            if self.ranks[rank].free {
                self.begin_step(rank);
            }
        }
        took
    }

    /// How long the copy of a batch from host memory to the accelerator's memory takes.
    fn copying(&self, bytes: u64) -> Nanos {
        let rate = self.context.device.copy_bytes_per_second;
        rate.map_or(Nanos::ZERO, |rate| Nanos::from_seconds(bytes as f64 / rate))
    }

    fn begin_step(&mut self, rank: usize) {
        let PhaseContext { run, device, .. } = *self.context;
        let accelerator = &mut self.ranks[rank];
        let Some(landed) = accelerator.landed.take() else { return };
        let step = accelerator.step;
        let number = run.first_rank + rank as u64;
        let handover = run.plan.handover_time(run.phase, run.epoch, number, step);
        let start = accelerator.asks.max(landed.at) + handover;
        let compute = run.plan.compute_time(run.phase, run.epoch, number, step);
        let stall = start - accelerator.asks;
        // With copies ahead, the wait for data begins before the accelerator waits: only their overlap is waiting time.
        let wait = landed.waited.min(stall);
        accelerator.ends = start + compute;
        accelerator.row.last_batch_ns = start.since(run.begin);
        accelerator.begun = (wait, stall - wait, compute);
        (accelerator.free, accelerator.asked) = (false, None);
        accelerator.wants = step + 1;
        let late = run.clock.now().since(start);
        accelerator.row.lateness_ns_sum += late;
        accelerator.row.lateness_ns_max = accelerator.row.lateness_ns_max.max(late);
        self.batch_wait.record(wait);
        let (asks, asked) = (accelerator.asks, accelerator.asks.since(run.begin));
        self.record_wait(rank, (asks, wait));
        self.timeline.add_wait(asked, asked + wait);
        if step == 0 {
            self.first_batch = self.first_batch.into_iter().chain([landed.ready]).min();
            let rank = run.first_rank + rank as u64;
            self.emitter.emit(run.events, landed.ready, Event::FirstBatch { rank });
        }
        self.context.run.ranks[rank].begin_step(step);
        let began = Event::StepBegan { rank: run.first_rank + rank as u64, step, wait, compute };
        self.emitter.emit(run.events, start, began);
        if let Some(pool) = run.readers.pools.get(rank) {
            pool.begin(step);
        }
        let room = run.readers.queues[rank].take(step);
        self.room.push((rank, room));
        if device.copy_bytes_per_second.is_some() && device.overlapped && step + 1 < run.phase.shards.steps {
            self.ask(rank, start);
        }
        self.arrive(rank);
    }

    /// The accelerator's step has begun; with a barrier all wait for the slowest.
    fn arrive(&mut self, rank: usize) {
        let run = self.context.run;
        if run.phase.barrier {
            self.arrived += 1;
            if self.arrived == self.ranks.len() {
                let last = self.ranks.iter().map(|rank| rank.ends).max().unwrap_or_default();
                let barrier = self.barrier(self.ranks[0].step + 1, false);
                self.await_members(AfterBarrier::Step, barrier, last);
            }
            return;
        }
        let ends = self.ranks[rank].ends;
        self.end_step(rank, ends);
        if self.ranks[rank].step < run.phase.shards.steps {
            self.turns.push(Reverse((ends, Turn::One(rank))));
        } else {
            self.finished += 1;
        }
    }

    fn barrier(&self, step: u64, checkpoint: bool) -> Barrier {
        let run = self.context.run;
        Barrier { epoch: run.epoch, phase: run.phase.phase, step, checkpoint }
    }

    /// The ranks of this member have arrived at a barrier, the last of them at `last`. In a world of one member it is
    /// released at once; otherwise the thread that waits for the other members checks again.
    fn await_members(&mut self, awaited: AfterBarrier, barrier: Barrier, last: Nanos) {
        self.awaited = Some(awaited);
        self.context.world.arrive(barrier, last);
        self.take_release();
    }

    /// Continues if the barrier is released; returns whether it was.
    fn take_release(&mut self) -> bool {
        let Some(awaited) = self.awaited else { return false };
        let Some(at) = self.context.world.released() else { return false };
        self.awaited = None;
        match awaited {
            AfterBarrier::Step => self.release(at),
            AfterBarrier::Checkpoint { began } => self.go_on(began, at),
        }
        true
    }

    /// All ranks of the run have begun the step, and leave it when the slowest one ends it.
    fn release(&mut self, release: Nanos) {
        if let Some((checkpointer, schedule)) = self.context.saving {
            let Accelerator { step, asks, .. } = self.ranks[0];
            self.book_pace(release.since(asks), step, checkpointer.was_at_work_since(asks));
            let done = step + 1;
            self.due = schedule.after_step(done).then_some(CheckpointDue { step: done, at: release });
        }
        (0..self.ranks.len()).for_each(|rank| self.end_step(rank, release));
        self.arrived = 0;
        if self.due.is_none() {
            self.all_ask(release);
        }
    }

    /// All ranks request their next batch, or are done.
    fn all_ask(&mut self, at: Nanos) {
        if self.ranks[0].step < self.context.run.phase.shards.steps {
            self.turns.push(Reverse((at, Turn::All)));
        } else {
            self.finished = self.ranks.len();
        }
    }

    /// Records how long a step took, except for an epoch's first one, which waits for a pipeline that is still empty.
    fn book_pace(&mut self, took: Nanos, step: u64, beside: bool) {
        match (step, beside) {
            (0, _) => {}
            (_, true) => self.pace.steps_beside.add(took),
            (_, false) => self.pace.steps_apart.add(took),
        }
    }

    /// The ranks of this member have taken the checkpoint after a step. They continue when all members have.
    fn saved(&mut self, step: u64, began: Nanos, end: Nanos) {
        self.due = None;
        let barrier = self.barrier(step, true);
        self.await_members(AfterBarrier::Checkpoint { began }, barrier, end);
    }

    /// The checkpoint that all ranks waited for since `began` is complete.
    fn go_on(&mut self, began: Nanos, end: Nanos) {
        let pause = end.since(began);
        for accelerator in &mut self.ranks {
            accelerator.blocks.pause(accelerator.asks, accelerator.asks + pause);
            accelerator.asks += pause;
            accelerator.row.checkpoint_ns += pause;
        }
        self.context.run.ranks.iter().for_each(|rank| rank.add_checkpoint(pause));
        self.record_pause(pause);
        self.all_ask(end);
        if !self.finished() {
            self.tell_block(end, |block, _| Some(Event::BlockBegan { block }));
        }
    }

    /// Emits an event about the current block of the first rank. Called when its moment has passed on the clock, not
    /// when it is known.
    fn tell_block(&self, at: Nanos, event: impl FnOnce(u64, Option<BlockRecord>) -> Option<Event>) {
        let Some(Accelerator { blocks, .. }) = self.ranks.first() else { return };
        if let Some(event) = event(blocks.number(), blocks.ending(at)) {
            self.emitter.emit(self.context.run.events, at, event);
        }
    }

    fn tell_end_of_block(&self, at: Nanos) {
        self.tell_block(at, |block, ending| {
            let BlockRecord { began, ended, seen } = ending?;
            Some(Event::BlockEnded { block, took: ended - began, seen })
        });
    }

    /// Records the step and lets the accelerator request its next batch at `asks`.
    fn end_step(&mut self, rank: usize, asks: Nanos) {
        let PhaseContext { run, metric, .. } = *self.context;
        let accelerator = &mut self.ranks[rank];
        let (wait, copy, compute) = accelerator.begun;
        let row = &mut accelerator.row;
        row.steps += 1;
        row.wait_ns += wait;
        row.copy_ns += copy;
        row.compute_ns += compute;
        row.barrier_ns += asks - accelerator.ends;
        accelerator.blocks.add(&metric, run.phase.shards.steps, StepRecord { load: wait + copy, compute });
        run.ranks[rank].end_step(wait, copy, compute, asks - accelerator.ends);
        if self.spans.is_some() {
            self.record_step(rank, asks);
        }
        let accelerator = &mut self.ranks[rank];
        accelerator.asks = asks;
        accelerator.step += 1;
    }

    /// Waking costs a system call, so it is done after all batches that are ready have been taken.
    fn wake_readers(&mut self) {
        for (rank, room) in self.room.drain(..) {
            self.context.run.wake_for(rank, &room);
        }
    }
}
