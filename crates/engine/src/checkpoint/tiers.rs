//! What stands on a tier: which checkpoints are complete, how one becomes so, and how old or broken ones go. The order
//! of steps is what a crash at any moment is survived by. A folder gets a draft, which lists what will be in it, then
//! the files, then their names are made safe, then the manifest takes the draft's place; and the other way round when a
//! checkpoint goes. What no draft and no manifest lists was written by somebody else and is never touched.

use model::checkpoint::manifest::{MANIFEST, Manifest, Moment};
use model::names::Name;
use store::{CHUNK_GRANULE, Lock, PARTIAL, StoreError, Tier};

use super::{CheckpointError, Job, Keeper};

/// Lists the files of a checkpoint that is not complete yet, or not any more.
const DRAFT: &str = "checkpoint.draft";
/// Ends the name of the folder of a complete checkpoint while another of its name is written.
const ASIDE: &str = ".replaced";

/// A complete checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) folder: String,
    pub(super) manifest: Manifest,
}

fn named(text: &str) -> Name {
    Name::new(text).unwrap_or_default()
}

/// The path of a file in a folder.
pub(super) fn path(folder: &str, file: &str) -> Name {
    named(&format!("{folder}/{file}"))
}

fn root() -> Name {
    named(".")
}

fn aside(moment: Moment) -> String {
    format!("{}{ASIDE}", moment.folder())
}

/// The list of files under this name, if it is a whole one and of this folder.
fn list(tier: &dyn Tier, folder: &str, file: &str) -> Result<Option<Manifest>, CheckpointError> {
    let Some(bytes) = tier.get(&path(folder, file))? else { return Ok(None) };
    let read = String::from_utf8(bytes).ok().and_then(|text| Manifest::from_text(&text).ok());
    // One that stands in another's folder says nothing about what is there, and no file of ours is elsewhere.
    let name = folder.strip_suffix(ASIDE).unwrap_or(folder);
    Ok(read.filter(|list| {
        list.moment.folder() == name && list.files.iter().all(|file| !file.name.contains('/'))
    }))
}

fn standing(tier: &dyn Tier, folder: String) -> Result<Option<Standing>, CheckpointError> {
    Ok(list(tier, &folder, MANIFEST)?.map(|manifest| Standing { folder, manifest }))
}

/// A checkpoint, if it is complete: in its folder, or set aside for one that is not complete yet.
pub(super) fn complete(tier: &dyn Tier, moment: Moment) -> Result<Option<Standing>, CheckpointError> {
    match standing(tier, moment.folder())? {
        None => standing(tier, aside(moment)),
        found => Ok(found),
    }
}

/// The checkpoints that have a folder, complete or not.
fn moments(tier: &dyn Tier) -> Result<Vec<Moment>, CheckpointError> {
    let entries = tier.entries(&root())?;
    let of_entry = |name: &String| Moment::of_folder(name.strip_suffix(ASIDE).unwrap_or(name));
    let mut moments: Vec<Moment> = entries.iter().filter_map(of_entry).collect();
    moments.sort_unstable();
    moments.dedup();
    Ok(moments)
}

/// The checkpoints that are complete, oldest first.
pub(super) fn all_complete(tier: &dyn Tier) -> Result<Vec<Standing>, CheckpointError> {
    let found = moments(tier)?.into_iter().map(|moment| complete(tier, moment));
    let mut complete: Vec<Standing> = found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    complete.sort_by_key(|standing| standing.manifest.serial);
    Ok(complete)
}

/// Makes room for a checkpoint with these files. A complete one of its name stays so until the new one is.
pub(super) fn begin(tier: &dyn Tier, draft: &Manifest) -> Result<(), CheckpointError> {
    let begun = try_begin(tier, draft);
    if begun.is_err() {
        // The error is the one to report; what could not be put in order now, the next run does.
        let _ = tidy(tier, draft.moment);
    }
    begun
}

fn try_begin(tier: &dyn Tier, draft: &Manifest) -> Result<(), CheckpointError> {
    let folder = draft.moment.folder();
    tidy(tier, draft.moment)?;
    if standing(tier, folder.clone())?.is_some() {
        tier.rename(&named(&folder), &named(&aside(draft.moment)))?;
    }
    tier.make_folder(&named(&folder))?;
    if !tier.entries(&named(&folder))?.is_empty() {
        return Err(CheckpointError::Foreign(tier.shown(&named(&folder))));
    }
    Ok(tier.put(&path(&folder, DRAFT), draft.to_text().as_bytes())?)
}

/// Makes a checkpoint complete whose files are all safe.
pub(super) fn finish(tier: &dyn Tier, manifest: &Manifest) -> Result<(), CheckpointError> {
    let folder = manifest.moment.folder();
    tier.sync_folder(&named(&folder))?;
    tier.sync_folder(&root())?;
    tier.put(&path(&folder, MANIFEST), manifest.to_text().as_bytes())?;
    // It is complete now; the rest only takes room, and is put in order by whoever comes next.
    let _ = tidy(tier, manifest.moment);
    Ok(())
}

/// Gives up a checkpoint that was begun: what stood in its place stands there again.
pub(super) fn abandon(tier: &dyn Tier, moment: Moment) {
    // There is an error to report already; what could not be put in order now, the next run does.
    let _ = remove(tier, &moment.folder()).and_then(|()| tidy(tier, moment));
}

/// Removes a checkpoint, so that it is never seen with files missing.
pub(super) fn remove(tier: &dyn Tier, folder: &str) -> Result<(), CheckpointError> {
    let complete = standing(tier, folder.to_owned())?.is_some();
    if complete {
        let draft = path(folder, DRAFT);
        remove_draft(tier, folder)?;
        if tier.size(&draft)?.is_some() {
            return Err(StoreError::NotOurs { name: tier.shown(&draft), what: "a file" }.into());
        }
        tier.rename(&path(folder, MANIFEST), &draft)?;
        tier.sync_folder(&named(folder))?;
    }
    clear(tier, folder, complete)
}

/// Removes a draft that is not needed any more.
fn remove_draft(tier: &dyn Tier, folder: &str) -> Result<(), CheckpointError> {
    match list(tier, folder, DRAFT)? {
        Some(_) => Ok(tier.remove(&path(folder, DRAFT))?),
        None => Ok(()),
    }
}

/// Removes what is ours in the folder of a checkpoint that is not complete, and the folder if nothing is left in it.
/// A file is ours if the draft lists it and its size fits: it is the one that is listed if the files were `whole` until
/// now, and at most that, in granules, if they were not.
fn clear(tier: &dyn Tier, folder: &str, whole: bool) -> Result<(), CheckpointError> {
    let partial = |file: &str| path(folder, &format!("{file}{PARTIAL}"));
    if let Some(draft) = list(tier, folder, DRAFT)? {
        for file in &draft.files {
            let name = path(folder, &file.name);
            let most = file.bytes.next_multiple_of(CHUNK_GRANULE as u64);
            let fits = |bytes| if whole { bytes == file.bytes } else { bytes <= most };
            if tier.size(&name)?.is_some_and(fits) {
                tier.remove(&name)?;
            }
        }
        tier.remove(&partial(MANIFEST))?;
        // The list outlives what it lists.
        tier.sync_folder(&named(folder))?;
        tier.remove(&path(folder, DRAFT))?;
    }
    tier.remove(&partial(DRAFT))?;
    Ok(tier.remove_folder(&named(folder))?)
}

/// Puts in order what a save, a drain or a removal left that came to no end.
fn tidy(tier: &dyn Tier, moment: Moment) -> Result<(), CheckpointError> {
    let (folder, aside) = (moment.folder(), aside(moment));
    if standing(tier, folder.clone())?.is_some() {
        remove_draft(tier, &folder)?;
        return remove(tier, &aside);
    }
    clear(tier, &folder, false)?;
    if standing(tier, aside.clone())?.is_none() {
        return clear(tier, &aside, false);
    }
    tier.rename(&named(&aside), &named(&folder))?;
    Ok(tier.sync_folder(&root())?)
}

/// Whether exactly this checkpoint stands on the tier, every file with its size and safe from a crash.
pub(super) fn holds(tier: &dyn Tier, manifest: &Manifest) -> Result<bool, CheckpointError> {
    let folder = manifest.moment.folder();
    if standing(tier, folder.clone())?.is_none_or(|there| there.manifest != *manifest) {
        return Ok(false);
    }
    for file in &manifest.files {
        if tier.size(&path(&folder, &file.name))? != Some(file.bytes) {
            return Ok(false);
        }
    }
    // Whoever put the manifest there may have been killed before its name was safe.
    tier.sync_folder(&named(&folder))?;
    tier.sync_folder(&root())?;
    Ok(true)
}

impl Keeper<'_> {
    pub(super) fn tiers(&self) -> impl Iterator<Item = &dyn Tier> {
        [self.setup.fast, Some(self.setup.last)].into_iter().flatten()
    }

    /// Keeps others away from the tiers: all of them, or from one who only restores those who save.
    pub(super) fn lock(&self) -> Result<Vec<Lock>, CheckpointError> {
        let (last, shared) = (self.setup.last, self.only_reads());
        let fast = self.setup.fast.map(|fast| fast.lock(shared)).transpose()?;
        match last.lock(shared) {
            Ok(last) => Ok(fast.into_iter().chain([last]).collect()),
            Err(busy @ StoreError::Busy { .. }) => {
                // It may be ourselves who are in the way.
                drop(fast);
                let ourselves = last.lock(shared).is_ok();
                Err(if ourselves { CheckpointError::SameFolder(last.shown(&root())) } else { busy.into() })
            }
            Err(cause) => Err(cause.into()),
        }
    }

    /// Puts in order what an earlier run left: what is not complete goes, what was not drained is drained. Who only
    /// restores changes nothing.
    pub(super) fn recover(&self) -> Result<(), CheckpointError> {
        if self.only_reads() {
            return Ok(());
        }
        for tier in self.tiers() {
            moments(tier)?.into_iter().try_for_each(|moment| tidy(tier, moment))?;
            for standing in all_complete(tier)? {
                let mut state = self.state();
                state.serial = state.serial.max(standing.manifest.serial);
            }
        }
        if let Some(fast) = self.setup.fast {
            for Standing { manifest, .. } in all_complete(fast)? {
                self.state().undrained.insert(manifest.moment);
                self.push(Job::Drain { moment: manifest.moment, tries: 0 });
            }
        }
        self.retain()
    }

    /// Removes the oldest of more complete checkpoints of this model on the last tier than are to be kept.
    fn retain(&self) -> Result<(), CheckpointError> {
        let Some(keep) = self.setup.plan.keep_last else { return Ok(()) };
        let last = self.setup.last;
        let _nobody_reads = self.reading();
        let mut complete = all_complete(last)?;
        complete.retain(|standing| self.is_ours(&standing.manifest));
        let surplus = complete.len().saturating_sub(keep as usize);
        complete[..surplus].iter().try_for_each(|standing| remove(last, &standing.folder))
    }

    /// The same, after a save: what goes wrong is no reason to doubt it.
    pub(super) fn retain_after(&self, moment: Moment) {
        if let Err(cause) = self.retain() {
            self.trouble(moment, format!("removing older checkpoints: {cause}"));
        }
    }
}
