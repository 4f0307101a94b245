//! Restoring: the newest checkpoint that is complete on any tier, or a given one, read by all ranks, every byte
//! compared with what was saved. Whether the bytes came from the medium is part of the answer.

use std::sync::Mutex;
use std::sync::PoisonError;

use model::checkpoint::Restored;
use model::checkpoint::manifest::{Manifest, Moment};
use model::names::Name;
use model::units::Nanos;
use store::Tier;
use store::page_cache::Pages;

use super::content::FileContent;
use super::drain::listed;
use super::files::{self, Crew, Hands, Item};
use super::save::cpu_since;
use super::{CheckpointError, Keeper, tiers};
use crate::meter;

/// What is to be restored, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreWish {
    /// Which checkpoint; `None`: the newest.
    pub moment: Option<Moment>,
    /// Whether its files are taken out of memory first.
    pub cold: bool,
}

impl Keeper<'_> {
    /// Restores a checkpoint and says what that brought and took.
    pub fn restore(&self, wish: RestoreWish) -> Result<Restored, CheckpointError> {
        self.state().restoring += 1;
        let restored = self.restore_undisturbed(wish);
        self.state().restoring -= 1;
        self.changed.notify_all();
        restored
    }

    fn restore_undisturbed(&self, wish: RestoreWish) -> Result<Restored, CheckpointError> {
        let (tier, manifest, from_fast) = self.find(wish.moment)?;
        self.must_fit(tier, &manifest)?;
        let moment = manifest.moment;
        let items = self.shifted(&manifest);
        let pages = self.prepare(tier, &items, moment, wish.cold)?;
        let crew = self.crew();
        let (began, cpu) = (self.now(), meter::cpu_seconds());
        let ended = crew.each(&items, |item, hands| read(&crew, tier, item, &manifest, hands))?;
        let (slowest, first) = files::rank_times(&items, &ended, began);
        let took = if tier.holds_files() { self.now().since(began) } else { slowest };
        let bytes = manifest.bytes();
        Ok(Restored {
            from_fast,
            bytes,
            files: items.len() as u64,
            took_ns: took,
            slowest_rank_ns: slowest,
            first_rank_ns: if self.setup.plan.rank_sync { slowest } else { first },
            pages: pages.map(|pages| pages.all),
            pages_cached: pages.map(|pages| pages.cached),
            verified_bytes: if tier.holds_files() { bytes } else { 0 },
            cpu: cpu_since(cpu, took),
            ..Restored::new(moment, began)
        })
    }

    /// The checkpoint that is to be restored, and where it is: on the fast tier, if it is on both.
    fn find(&self, wished: Option<Moment>) -> Result<(&dyn Tier, Manifest, bool), CheckpointError> {
        let mut best: Option<(&dyn Tier, Manifest, bool)> = None;
        for (tier, is_fast) in [(self.setup.fast, true), (Some(self.setup.last), false)] {
            let Some(tier) = tier else { continue };
            let found = match wished {
                Some(moment) => tiers::complete(tier, moment)?,
                None => tiers::all_complete(tier)?.pop(),
            };
            let Some(found) = found else { continue };
            if best.as_ref().is_none_or(|(_, other, _)| found.serial > other.serial) {
                best = Some((tier, found, is_fast));
            }
        }
        best.ok_or_else(|| {
            let place = wished.map_or(".".to_owned(), Moment::folder);
            CheckpointError::None(self.setup.last.shown(&Name::new(&place).unwrap_or_default()))
        })
    }

    /// The checkpoints that are complete on any tier, oldest first.
    pub(super) fn complete(&self) -> Result<Vec<Moment>, CheckpointError> {
        let mut all = Vec::new();
        for tier in [self.setup.fast, Some(self.setup.last)].into_iter().flatten() {
            all.extend(
                tiers::all_complete(tier)?.into_iter().map(|manifest| (manifest.serial, manifest.moment)),
            );
        }
        all.sort_unstable();
        all.dedup();
        Ok(all.into_iter().map(|(_, moment)| moment).collect())
    }

    /// Refuses a checkpoint of another model, of other ranks, or of another scale.
    fn must_fit(&self, tier: &dyn Tier, manifest: &Manifest) -> Result<(), CheckpointError> {
        let plan = self.setup.plan;
        let shown =
            |model: &str, ranks: u64, scale: &str| format!("{model} on {ranks} ranks at scale {scale}");
        let there = shown(&manifest.model, manifest.ranks, &manifest.scale);
        let asked = shown(self.setup.model, plan.geometry.ranks, &plan.geometry.scale.to_string());
        if there == asked {
            return Ok(());
        }
        let folder = tier.shown(&Name::new(&manifest.moment.folder()).unwrap_or_default());
        Err(CheckpointError::Other { folder, there, asked })
    }

    /// The files, each with the rank that reads it: with a shift, every rank reads another's.
    fn shifted(&self, manifest: &Manifest) -> Vec<Item> {
        let (ranks, shift) = (manifest.ranks.max(1), self.setup.plan.rank_shift);
        let mut items = listed(manifest);
        items.iter_mut().for_each(|item| item.rank = (item.rank + ranks - shift % ranks) % ranks);
        items
    }

    /// Takes the files out of memory, if that is wanted, and counts what of them is in memory.
    fn prepare(
        &self,
        tier: &dyn Tier,
        items: &[Item],
        moment: Moment,
        cold: bool,
    ) -> Result<Option<Pages>, CheckpointError> {
        let sum = Mutex::new(Some(Pages::default()));
        self.crew().each(items, |item, _| {
            let path = item.path(moment);
            let pages = if cold { tier.evict(&path)? } else { tier.cached(&path)? };
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            *sum = match (*sum, pages) {
                (Some(mut sum), Some(pages)) => {
                    sum += pages;
                    Some(sum)
                }
                _ => None,
            };
            Ok((Nanos::ZERO, 0))
        })?;
        Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads a file and compares it with what was saved.
fn read(
    crew: &Crew<'_>,
    tier: &dyn Tier,
    item: &Item,
    manifest: &Manifest,
    hands: &mut Hands,
) -> Result<(Nanos, u32), CheckpointError> {
    let path = item.path(manifest.moment);
    let content = FileContent::new(manifest.seed, manifest.moment, item.number);
    let mut source = tier.open(&path, crew.clock.as_now())?;
    let mut chunk = hands.buffer(crew.chunk_bytes);
    hands.scratch.resize(crew.chunk_bytes, 0);
    let mut at = 0;
    loop {
        if crew.stop.wished() {
            return Err(CheckpointError::Interrupted);
        }
        source.read(&mut chunk)?;
        if chunk.bytes().is_empty() {
            break;
        }
        if tier.holds_files() {
            let checked = content.check(at, chunk.bytes(), &mut hands.scratch);
            checked.map_err(|what| CheckpointError::Content { name: tier.shown(&path), what })?;
        }
        crew.pulse.add(0, chunk.bytes().len() as u64);
        at += chunk.bytes().len() as u64;
    }
    hands.put_back(chunk);
    if at != item.bytes {
        return Err(CheckpointError::Size { name: tier.shown(&path), there: at, listed: item.bytes });
    }
    crew.pulse.add(1, 0);
    Ok((source.ended(), item.crc32.unwrap_or(0)))
}
