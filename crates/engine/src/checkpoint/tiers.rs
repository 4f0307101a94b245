//! What stands on a tier: which checkpoints are complete, how one becomes so, and how old or broken ones go. The order
//! of steps is what a crash at any moment is survived by: files, then the names of files, then the manifest; and the
//! other way round when one is removed.

use model::checkpoint::manifest::{MANIFEST, Manifest, Moment};
use model::names::Name;
use store::Tier;

use super::{CheckpointError, Job, Keeper};

fn folder(moment: Moment) -> Name {
    Name::new(&moment.folder()).unwrap_or_default()
}

fn manifest_path(moment: Moment) -> Name {
    Name::new(&format!("{}/{MANIFEST}", moment.folder())).unwrap_or_default()
}

fn root() -> Name {
    Name::new(".").unwrap_or_default()
}

/// The checkpoints that have a folder.
fn moments(tier: &dyn Tier) -> Result<Vec<Moment>, CheckpointError> {
    Ok(tier.entries(&root())?.iter().filter_map(|name| Moment::of_folder(name)).collect())
}

/// The manifest of a checkpoint that is complete; `None` if it is not.
pub(super) fn complete(tier: &dyn Tier, moment: Moment) -> Result<Option<Manifest>, CheckpointError> {
    let Some(bytes) = tier.get(&manifest_path(moment))? else { return Ok(None) };
    let read = String::from_utf8(bytes).ok().and_then(|text| Manifest::from_text(&text).ok());
    // One that stands in another's folder says nothing about what is there.
    Ok(read.filter(|manifest| manifest.moment == moment))
}

/// The checkpoints that are complete, oldest first.
pub(super) fn all_complete(tier: &dyn Tier) -> Result<Vec<Manifest>, CheckpointError> {
    let manifests = moments(tier)?.into_iter().map(|moment| complete(tier, moment));
    let mut complete: Vec<Manifest> =
        manifests.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    complete.sort_by_key(|manifest| manifest.serial);
    Ok(complete)
}

/// Makes room for a checkpoint: what stands in its folder is none any more.
pub(super) fn begin(tier: &dyn Tier, moment: Moment) -> Result<(), CheckpointError> {
    tier.make_folder(&folder(moment))?;
    if tier.get(&manifest_path(moment))?.is_some() {
        tier.remove(&manifest_path(moment))?;
        tier.sync_folder(&folder(moment))?;
    }
    Ok(())
}

/// Makes a checkpoint complete whose files are all written.
pub(super) fn finish(tier: &dyn Tier, manifest: &Manifest) -> Result<(), CheckpointError> {
    tier.sync_folder(&folder(manifest.moment))?;
    tier.sync_folder(&root())?;
    tier.put(&manifest_path(manifest.moment), manifest.to_text().as_bytes())?;
    Ok(())
}

/// Removes a checkpoint, so that it is never seen with files missing.
pub(super) fn remove(tier: &dyn Tier, moment: Moment) -> Result<(), CheckpointError> {
    if tier.get(&manifest_path(moment))?.is_some() {
        tier.remove(&manifest_path(moment))?;
        tier.sync_folder(&folder(moment))?;
    }
    Ok(tier.remove_folder(&folder(moment))?)
}

impl Keeper<'_> {
    /// Puts in order what an earlier run left: what is not complete goes, what was not drained is drained.
    pub(super) fn recover(&self) -> Result<(), CheckpointError> {
        let tiers = [self.setup.fast, Some(self.setup.last)];
        for tier in tiers.into_iter().flatten() {
            for moment in moments(tier)? {
                match complete(tier, moment)? {
                    None => remove(tier, moment)?,
                    Some(manifest) => self.count_from(manifest.serial),
                }
            }
        }
        let Some(fast) = self.setup.fast else { return Ok(()) };
        for manifest in all_complete(fast)? {
            if complete(self.setup.last, manifest.moment)?.is_some_and(|last| last == manifest) {
                remove(fast, manifest.moment)?;
            } else {
                self.state().undrained += 1;
                self.push(Job::Drain(manifest.moment));
            }
        }
        Ok(())
    }

    fn count_from(&self, serial: u64) {
        let mut state = self.state();
        state.serial = state.serial.max(serial);
    }

    /// Removes the oldest of more complete checkpoints on the last tier than are to be kept.
    pub(super) fn retain(&self) -> Result<(), CheckpointError> {
        let Some(keep) = self.setup.plan.keep_last else { return Ok(()) };
        let complete = all_complete(self.setup.last)?;
        let surplus = complete.len().saturating_sub(keep as usize);
        complete[..surplus].iter().try_for_each(|manifest| remove(self.setup.last, manifest.moment))
    }
}
