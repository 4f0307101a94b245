//! The emulated accelerators. Each is a timeline, not a sleeping thread: a step starts at the latest of the end of
//! the previous step, the barrier's release and the moment its batch became ready, and ends `compute` later. One host
//! thread drives them all and sleeps to absolute deadlines; when it wakes late, no accelerator stalls or gains by it,
//! and the lateness is booked.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::ledger::Row;
use model::plan::MetricPlan;
use model::times;
use model::units::Nanos;

use crate::loader::{Job, Queue};
use crate::meter::Listener;
use crate::world::World;

/// Far enough away to mean "no deadline", near enough to be added to.
const NEVER: Nanos = Nanos(u64::MAX / 4);

/// Whose turn it is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// All ranks leave the barrier.
    All,
    One(usize),
}

/// One accelerator's state.
#[derive(Clone, Debug)]
struct Accelerator {
    step: u64,
    /// When it asked for the batch of `step`, or will.
    asks: Nanos,
    /// When its last step ended, or will.
    ends: Nanos,
    /// Waiting and computing of the step that has begun: booked when the step is over, so that a phase that ends early
    /// has no compute time without the time it took.
    begun: (Nanos, Nanos),
    /// Load and compute time of steps outside the metric window.
    excluded: Nanos,
    row: Row,
}

/// What the accelerators need to know beside the job.
pub(crate) struct Course<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) world: &'a dyn World,
    pub(crate) metric: MetricPlan,
    pub(crate) seed: u64,
    pub(crate) epoch: u64,
    /// The reader group that serves each queue.
    pub(crate) group_of: &'a [usize],
}

/// Runs the phase to its end, or to the moment it is stopped. Returns each rank's times.
pub(crate) fn drive(course: &Course<'_>) -> Vec<Row> {
    let begin = course.job.clock.now();
    course.job.queues.iter().for_each(Queue::open);
    course.job.work_bells.iter().for_each(|bell| bell.ring(usize::MAX));
    let begun = (Nanos::ZERO, Nanos::ZERO);
    let idle =
        Accelerator { step: 0, asks: begin, ends: begin, begun, excluded: Nanos::ZERO, row: Row::default() };
    let mut driver = Driver {
        course,
        ranks: vec![idle; course.job.queues.len()],
        turns: BinaryHeap::from([Reverse((begin, Turn::All))]),
        waiting: Vec::with_capacity(course.job.queues.len()),
        room: vec![0; course.job.work_bells.len()],
        arrived: 0,
        finished: 0,
    };
    driver.run();
    driver.rows(begin)
}

struct Driver<'a> {
    course: &'a Course<'a>,
    ranks: Vec<Accelerator>,
    /// Moments at which accelerators ask for their next batch.
    turns: BinaryHeap<Reverse<(Nanos, Turn)>>,
    /// Accelerators that have asked and have no batch yet.
    waiting: Vec<usize>,
    /// Chunks that each reader group may take on since it was last woken.
    room: Vec<usize>,
    /// Accelerators whose step has begun, in a phase with barrier.
    arrived: usize,
    finished: usize,
}

impl Driver<'_> {
    fn run(&mut self) {
        let job = self.course.job;
        while self.finished < self.ranks.len() && !job.ending() {
            self.take_turns(job.clock.now());
            self.take_batches();
            self.wake_readers();
            let next = self.turns.peek().map_or(NEVER, |Reverse((at, _))| *at);
            if self.finished == self.ranks.len() {
                break;
            } else if self.waiting.is_empty() {
                job.clock.sleep_until(next, &|| job.ending());
            } else {
                self.listen(next);
            }
        }
        // The last step takes its time too.
        let end = self.ranks.iter().map(|rank| rank.asks).max().unwrap_or_default();
        if !job.ending() {
            job.clock.sleep_until(end, &|| job.ending());
        }
    }

    /// Lets every accelerator ask whose moment has come.
    fn take_turns(&mut self, now: Nanos) {
        while let Some(Reverse((at, turn))) = self.turns.peek().copied() {
            if at > now {
                return;
            }
            self.turns.pop();
            match turn {
                Turn::All => (0..self.ranks.len()).for_each(|rank| self.ask(rank)),
                Turn::One(rank) => self.ask(rank),
            }
        }
    }

    fn ask(&mut self, rank: usize) {
        let queue = &self.course.job.queues[rank];
        if queue.ask(self.ranks[rank].step) {
            self.make_room(rank);
        }
        self.waiting.push(rank);
    }

    /// Gives batches to all waiting accelerators whose batch is ready.
    fn take_batches(&mut self) {
        let mut i = 0;
        while i < self.waiting.len() {
            let rank = self.waiting[i];
            match self.course.job.queues[rank].ready(self.ranks[rank].step) {
                Some(ready) => {
                    self.waiting.swap_remove(i);
                    self.begin_step(rank, ready);
                }
                None => i += 1,
            }
        }
    }

    fn begin_step(&mut self, rank: usize, ready: Nanos) {
        let Course { job, seed, epoch, .. } = *self.course;
        let accelerator = &mut self.ranks[rank];
        let step = accelerator.step;
        let start = accelerator.asks.max(ready);
        let compute = times::draw(&job.phase.compute, seed, epoch, job.first_rank + rank as u64, step);
        let wait = start - accelerator.asks;
        accelerator.ends = start + compute;
        accelerator.begun = (wait, compute);
        let late = job.clock.now().since(start);
        accelerator.row.lateness_ns_sum += late;
        accelerator.row.lateness_ns_max = accelerator.row.lateness_ns_max.max(late);
        if step == 0 {
            job.pulse.first_batch_at(ready);
        }
        job.pulse.step(compute, wait + compute);
        if job.queues[rank].take(step) {
            self.make_room(rank);
        }
        if job.phase.barrier {
            self.arrived += 1;
            if self.arrived == self.ranks.len() {
                self.release();
            }
        } else {
            let ends = self.ranks[rank].ends;
            self.end_step(rank, ends);
            if self.ranks[rank].step < job.phase.shards.steps {
                self.turns.push(Reverse((ends, Turn::One(rank))));
            } else {
                self.finished += 1;
            }
        }
    }

    /// All ranks have begun the step: the slowest says when they leave it.
    fn release(&mut self) {
        let last = self.ranks.iter().map(|rank| rank.ends).max().unwrap_or_default();
        let release = self.course.world.meet(last);
        (0..self.ranks.len()).for_each(|rank| self.end_step(rank, release));
        self.arrived = 0;
        if self.ranks[0].step < self.course.job.phase.shards.steps {
            self.turns.push(Reverse((release, Turn::All)));
        } else {
            self.finished = self.ranks.len();
        }
    }

    /// Books the step and lets the accelerator ask for its next batch at `asks`.
    fn end_step(&mut self, rank: usize, asks: Nanos) {
        let Course { job, metric, .. } = *self.course;
        let accelerator = &mut self.ranks[rank];
        let (wait, compute) = accelerator.begun;
        let (step, steps) = (accelerator.step, job.phase.shards.steps);
        let row = &mut accelerator.row;
        row.steps += 1;
        row.wait_ns += wait;
        row.compute_ns += compute;
        row.barrier_ns += asks - accelerator.ends;
        if step >= metric.exclude_start_steps && step + metric.exclude_end_steps < steps {
            row.window.steps += 1;
            row.window.compute_ns += compute;
        } else {
            accelerator.excluded += wait + compute;
        }
        job.pulse.idle(asks - accelerator.ends);
        accelerator.asks = asks;
        accelerator.step += 1;
    }

    fn make_room(&mut self, rank: usize) {
        self.room[self.course.group_of[rank]] += self.course.job.queues[rank].chunks_per_step();
    }

    /// Waking costs a system call, so it is done once per group, after all batches that are ready have been taken.
    fn wake_readers(&mut self) {
        for (bell, room) in self.course.job.work_bells.iter().zip(&mut self.room) {
            if *room > 0 {
                bell.ring(std::mem::take(room));
            }
        }
    }

    fn listen(&self, deadline: Nanos) {
        let job = self.course.job;
        let ready = || {
            job.ending()
                || self.waiting.iter().any(|rank| job.queues[*rank].ready(self.ranks[*rank].step).is_some())
        };
        job.clock.listen(Listener { bell: job.batch_bell, ready: &ready }, deadline);
    }

    /// Each rank's times; the phase of a rank ends when it would ask for one batch more.
    fn rows(self, begin: Nanos) -> Vec<Row> {
        let rows = self.ranks.into_iter().map(|accelerator| {
            let mut row = accelerator.row;
            row.window.time_ns = accelerator.asks.since(begin) - accelerator.excluded;
            row
        });
        rows.collect()
    }
}
