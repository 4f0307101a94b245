//! The checkpoints on the tiers of a run: which of them are complete, what an earlier run left, and which exceed the
//! number to keep. How a checkpoint is completed and removed is up to the tier.

use model::checkpoint::manifest::Moment;
use model::names::Name;
use store::{Lock, StoreError, StoredCheckpoint, Tier};

use super::jobs::BackgroundTask;
use super::survey::SpreadCheckpoint;
use super::{CheckpointError, Checkpointer, members};

/// The checkpoints that are complete on a tier, oldest first.
pub(super) fn complete(tier: &dyn Tier) -> Result<Vec<StoredCheckpoint>, CheckpointError> {
    let mut complete = tier.list()?;
    complete.sort_by_key(|stored| stored.manifest.serial);
    Ok(complete)
}

impl Checkpointer<'_> {
    /// Locks the folders that this member leads: exclusively, or shared with other readers if this run only restores.
    pub(super) fn lock(&self) -> Result<Vec<Lock>, CheckpointError> {
        let last = self.setup.last;
        let fast = self.setup.fast.filter(|_| self.fast_sharers.leads());
        let fast = fast.map(|fast| self.lock_tier(fast)).transpose()?;
        if !self.last_sharers.leads() {
            return Ok(fast.into_iter().collect());
        }
        match (self.lock_tier(last), fast) {
            (Ok(last), fast) => Ok(fast.into_iter().chain([last]).collect()),
            (Err(busy @ CheckpointError::Store(StoreError::Busy { .. })), Some(fast)) => {
                // This run's own lock of the fast tier may be the cause.
                drop(fast);
                let root = Name::new(".").unwrap_or_default();
                Err(match self.lock_tier(last) {
                    Ok(_) => CheckpointError::SameFolder(last.files().shown(&root)),
                    Err(_) => busy,
                })
            }
            (Err(cause), _) => Err(cause),
        }
    }

    fn lock_tier(&self, tier: &dyn Tier) -> Result<Lock, CheckpointError> {
        let stops = || self.setup.stop.wished();
        tier.files().lock(self.setup.only_reads(), &stops).map_err(|cause| match cause {
            StoreError::GivenUp => CheckpointError::Interrupted,
            cause => cause.into(),
        })
    }

    /// Recovers the tiers after an earlier run, once per folder: incomplete checkpoints are removed, undrained ones are
    /// drained. A run that only restores changes nothing.
    pub(super) fn recover(&self) -> Result<(), CheckpointError> {
        if self.setup.only_reads() {
            return Ok(());
        }
        let fast = self.setup.fast.filter(|_| self.fast_sharers.leads());
        let last = Some(self.setup.last).filter(|_| self.last_sharers.leads());
        let mut tiers = fast.into_iter().chain(last);
        let recovered = tiers.try_for_each(Tier::recover);
        members::agreed(&self.setup, recovered.map_err(CheckpointError::from))?;
        let survey = self.survey(self.front(), None, true)?;
        let on_fast = survey.fast.iter().map(SpreadCheckpoint::seen);
        self.state().serial = on_fast.chain(&survey.last).map(|seen| seen.serial).max().unwrap_or(0);
        for spread in &survey.fast {
            let moment = spread.seen().moment;
            if spread.is_whole() {
                let mut state = self.state();
                state.undrained.insert(moment);
                self.setup.events.counters().set_undrained(state.undrained.len());
                drop(state);
                self.push(BackgroundTask::Drain { moment, tries: 0 });
            } else if survey.last.iter().any(|there| there.is_same(spread.seen())) {
                members::agreed(&self.setup, self.remove_part(spread))?;
            } else if self.setup.world.member() == 0 {
                self.state().old_troubles.push(lacking(spread));
            }
        }
        let retained = self.retain();
        members::agreed(&self.setup, retained)
    }

    /// Removes what this host has of a checkpoint whose drain was interrupted when only some hosts had removed theirs.
    fn remove_part(&self, spread: &SpreadCheckpoint) -> Result<(), CheckpointError> {
        let Some(fast) = self.setup.fast.filter(|_| self.fast_sharers.leads()) else { return Ok(()) };
        let part = fast.find(spread.seen().moment)?.filter(|part| spread.seen().is_of(part));
        Ok(part.map_or(Ok(()), |part| fast.remove(&part))?)
    }

    /// Removes the oldest complete checkpoints of this model on the last tier that exceed the number to keep.
    fn retain(&self) -> Result<(), CheckpointError> {
        let Some(keep) = self.setup.plan.keep_last.filter(|_| self.last_sharers.leads()) else {
            return Ok(());
        };
        let last = self.setup.last;
        let _lock = self.reading();
        let mut complete = complete(last)?;
        complete.retain(|stored| self.is_ours(&stored.manifest));
        let surplus = complete.len().saturating_sub(keep as usize);
        Ok(complete[..surplus].iter().try_for_each(|stored| last.remove(stored))?)
    }

    /// Removes what a save has made superfluous. In an object store that takes a request per file, so it is left to the
    /// background; a file system has space for one more checkpoint only.
    pub(super) fn clean_up_after(&self, moment: Moment) {
        match self.setup.plan.last.is_objects() {
            true => self.push(BackgroundTask::CleanUp { moment }),
            false => self.clean_up(moment),
        }
    }

    /// The same now; a failure does not invalidate the save.
    pub(super) fn clean_up(&self, moment: Moment) {
        if self.last_sharers.leads() {
            let _lock = self.reading();
            self.setup.last.clean_up(moment);
        }
        if let Err(cause) = self.retain() {
            self.failed(moment, "removing older checkpoints: ", cause);
        }
    }
}

/// The text about a checkpoint of which the fast tiers of this run's hosts have only a part. It may be complete
/// together with the fast tier of a host that is not part of this run, so it stays.
fn lacking(spread: &SpreadCheckpoint) -> String {
    let (folder, missing) = (spread.seen().moment.folder(), spread.missing());
    format!(
        "{folder} is not drained: {missing} of its files are on no fast tier of this run; to drain it, include the \
         hosts that saved it, or remove it"
    )
}
