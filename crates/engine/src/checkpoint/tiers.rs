//! The checkpoints on the tiers of a run: which of them are complete, what an earlier run left, and which exceed the
//! number to keep. How a checkpoint is completed and removed is up to the tier.

use model::checkpoint::manifest::Moment;
use model::names::Name;
use store::{Lock, StoreError, StoredCheckpoint, Tier};

use super::{BackgroundTask, CheckpointError, Checkpointer};

/// The checkpoints that are complete on a tier, oldest first.
pub(super) fn complete(tier: &dyn Tier) -> Result<Vec<StoredCheckpoint>, CheckpointError> {
    let mut complete = tier.list()?;
    complete.sort_by_key(|stored| stored.manifest.serial);
    Ok(complete)
}

impl Checkpointer<'_> {
    pub(super) fn tiers(&self) -> impl Iterator<Item = &dyn Tier> {
        [self.setup.fast, Some(self.setup.last)].into_iter().flatten()
    }

    /// Locks the tiers: exclusively, or shared with other readers if this run only restores.
    pub(super) fn lock(&self) -> Result<Vec<Lock>, CheckpointError> {
        let (last, shared) = (self.setup.last, self.only_reads());
        let root = Name::new(".").unwrap_or_default();
        let fast = self.setup.fast.map(|fast| fast.files().lock(shared)).transpose()?;
        match last.files().lock(shared) {
            Ok(last) => Ok(fast.into_iter().chain([last]).collect()),
            Err(busy @ StoreError::Busy { .. }) => {
                // This run's own lock may be the cause.
                drop(fast);
                let ourselves = last.files().lock(shared).is_ok();
                Err(if ourselves {
                    CheckpointError::SameFolder(last.files().shown(&root))
                } else {
                    busy.into()
                })
            }
            Err(cause) => Err(cause.into()),
        }
    }

    /// Recovers the tiers after an earlier run: incomplete checkpoints are removed, undrained ones are drained. A run
    /// that only restores changes nothing.
    pub(super) fn recover(&self) -> Result<(), CheckpointError> {
        if self.only_reads() {
            return Ok(());
        }
        for tier in self.tiers() {
            tier.recover()?;
            for stored in tier.list()? {
                let mut state = self.state();
                state.serial = state.serial.max(stored.manifest.serial);
            }
        }
        if let Some(fast) = self.setup.fast {
            for StoredCheckpoint { manifest, .. } in complete(fast)? {
                self.state().undrained.insert(manifest.moment);
                self.push(BackgroundTask::Drain { moment: manifest.moment, tries: 0 });
            }
        }
        self.retain()
    }

    /// Removes the oldest complete checkpoints of this model on the last tier that exceed the number to keep.
    fn retain(&self) -> Result<(), CheckpointError> {
        let Some(keep) = self.setup.plan.keep_last else { return Ok(()) };
        let last = self.setup.last;
        let _lock = self.reading();
        let mut complete = complete(last)?;
        complete.retain(|stored| self.is_ours(&stored.manifest));
        let surplus = complete.len().saturating_sub(keep as usize);
        Ok(complete[..surplus].iter().try_for_each(|stored| last.remove(stored))?)
    }

    /// The same after a save; a failure does not invalidate the save.
    pub(super) fn retain_after(&self, moment: Moment) {
        if let Err(cause) = self.retain() {
            self.trouble(moment, format!("removing older checkpoints: {cause}"));
        }
    }
}
