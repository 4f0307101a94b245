//! The work of the background thread, one job after another. All members do the same jobs in the same order, since
//! each job waits for the other members: member 0 takes the first of its jobs and tells the others, which have the same
//! one in their lists or will have it soon, because all members save the same checkpoints.

use model::checkpoint::manifest::Moment;
use serde::{Deserialize, Serialize};

use super::save::WrittenCheckpoint;
use super::snapshot::Snapshot;
use super::{CheckpointError, Checkpointer};
use crate::world::Cause;

/// Work for the background thread.
pub(super) enum BackgroundTask {
    /// Copies a checkpoint to the last tier, after `tries` failed attempts.
    Drain {
        moment: Moment,
        tries: u32,
    },
    Persist(Snapshot),
    /// Completes a checkpoint for which training did not wait until it was durable.
    Seal(WrittenCheckpoint),
    /// Removes what the checkpoint of a moment replaced, and the oldest checkpoints.
    CleanUp {
        moment: Moment,
    },
}

/// Identifies a job at all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum JobName {
    Drain(Moment),
    Persist(Moment),
    Seal(Moment),
    CleanUp(Moment),
}

impl BackgroundTask {
    /// Whether this adds a complete checkpoint.
    fn completes(&self) -> bool {
        !matches!(self, BackgroundTask::Drain { .. } | BackgroundTask::CleanUp { .. })
    }

    fn name(&self) -> JobName {
        match self {
            BackgroundTask::Drain { moment, .. } => JobName::Drain(*moment),
            BackgroundTask::Persist(snapshot) => JobName::Persist(snapshot.moment),
            BackgroundTask::Seal(written) => JobName::Seal(written.moment()),
            BackgroundTask::CleanUp { moment } => JobName::CleanUp(*moment),
        }
    }
}

impl Checkpointer<'_> {
    pub(super) fn push(&self, job: BackgroundTask) {
        let mut state = self.state();
        if state.ended.is_some() {
            return;
        }
        state.completing += u64::from(job.completes());
        match job {
            // It is done quickly, and until then a crash loses the checkpoint.
            BackgroundTask::Seal(_) => state.jobs.push_front(job),
            job => state.jobs.push_back(job),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Does the background work, one job after another, until no more will come or the run ends early.
    pub(super) fn work_in_background(&self) {
        loop {
            let job = match self.next_job() {
                Ok(Some(job)) => job,
                Ok(None) => return,
                Err(CheckpointError::Member(ended)) => return self.end(*ended),
                // The run stops here, and the other members must not wait.
                Err(_) => return self.back().announce(Cause::Stopped),
            };
            let completes = job.completes();
            match job {
                BackgroundTask::Drain { moment, tries } => {
                    self.setup.events.counters().set_draining(true);
                    self.drain(moment, tries);
                    self.setup.events.counters().set_draining(false);
                }
                BackgroundTask::Persist(snapshot) => self.persist(snapshot),
                BackgroundTask::Seal(written) => self.seal_later(&written),
                BackgroundTask::CleanUp { moment } => self.clean_up(moment),
            }
            let mut state = self.state();
            (state.at_work, state.rested) = (false, self.now());
            state.completing -= u64::from(completes);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for the next job; `None` when no more will come. Drains that member 0 has given up are dropped with it.
    fn next_job(&self) -> Result<Option<BackgroundTask>, CheckpointError> {
        let mut state = self.state();
        while state.jobs.is_empty() && !state.closing && state.ended.is_none() {
            state = self.wait(state);
        }
        if let Some(ended) = &state.ended {
            return Err(ended.clone().into());
        }
        let mut chosen = state.jobs.front().map(BackgroundTask::name);
        drop(state);
        if self.is_several() {
            let mut bytes = serde_json::to_vec(&chosen).unwrap_or_default();
            self.back().broadcast(&mut bytes, self.setup.stop)?;
            chosen = serde_json::from_slice(&bytes).map_err(|_| CheckpointError::Interrupted)?;
        }
        chosen.map(|name| self.take_job(name)).transpose()
    }

    /// Takes a job from the list as soon as it is there.
    fn take_job(&self, name: JobName) -> Result<BackgroundTask, CheckpointError> {
        let mut state = self.state();
        loop {
            let place = state.jobs.iter().position(|job| job.name() == name);
            if let Some(job) = place.and_then(|place| state.jobs.remove(place)) {
                state.at_work = true;
                return Ok(job);
            }
            if let Some(ended) = &state.ended {
                return Err(ended.clone().into());
            }
            if self.setup.stop.wished() {
                return Err(CheckpointError::Interrupted);
            }
            state = self.wait(state);
        }
    }
}
