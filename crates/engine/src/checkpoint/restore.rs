//! Restoring: the newest checkpoint that is complete on any tier, or a given one, is read by all ranks, and every byte
//! is compared with what was saved. The result includes whether the bytes came from storage or from the page cache.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;

use model::checkpoint::RestoreRecord;
use model::checkpoint::manifest::{CheckpointManifest, Moment};
use model::names::Name;
use model::units::Nanos;
use store::page_cache::Pages;
use store::{Operation, StoredCheckpoint, Tier, TierFiles};

use super::content::FileContent;
use super::drain::listed;
use super::files::{self, TransferFile, TransferThreads, TransferWorker};
use super::{CheckpointError, CheckpointSetup, Checkpointer, tiers};
use crate::meter;

/// What to restore, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreRequest {
    /// Which checkpoint; `None`: the newest.
    pub moment: Option<Moment>,
    /// Whether its files are evicted from the page cache first.
    pub cold: bool,
}

impl Checkpointer<'_> {
    /// Restores a checkpoint and returns its amounts and times.
    pub fn restore(&self, wish: RestoreRequest) -> Result<RestoreRecord, CheckpointError> {
        self.wait_for_saves()?;
        let _lock = self.reading();
        let (tier, stored, from_fast) = self.find(wish.moment)?;
        let (tier, manifest) = (tier.files(), &stored.manifest);
        self.must_fit(tier, &stored)?;
        let moment = manifest.moment;
        let items = self.shifted(manifest);
        let pages = self.prepare(tier, &items, &stored, wish.cold)?;
        let threads = self.threads();
        let (began, cpu) = (self.now(), meter::cpu_seconds());
        let ended = threads.each(&items, |item, hands| read(&threads, tier, item, &stored, hands))?;
        let (slowest, first) = files::rank_times(&items, &ended, began);
        let took = if tier.holds_files() { self.now().since(began) } else { slowest };
        let bytes = manifest.bytes();
        Ok(RestoreRecord {
            from_fast,
            bytes,
            files: items.len() as u64,
            took_ns: took,
            slowest_rank_ns: slowest,
            first_rank_ns: if self.setup.plan.rank_sync { slowest } else { first },
            pages: pages.map(|pages| pages.all),
            pages_cached: pages.map(|pages| pages.cached),
            verified_bytes: if tier.holds_files() { bytes } else { 0 },
            cpu: self.cpu_since(cpu, took),
            ..RestoreRecord::new(moment, began)
        })
    }

    /// Waits until the saves in the background have ended, so that the newest checkpoint is known.
    fn wait_for_saves(&self) -> Result<(), CheckpointError> {
        let mut state = self.state();
        while state.completing > 0 {
            if self.setup.stop.wished() {
                return Err(CheckpointError::Interrupted);
            }
            state = self.wait(state);
        }
        Ok(())
    }

    /// The checkpoint to restore, and where it is: on the fast tier, if it is on both.
    fn find(&self, wished: Option<Moment>) -> Result<(&dyn Tier, StoredCheckpoint, bool), CheckpointError> {
        let mut best: Option<(&dyn Tier, StoredCheckpoint, bool)> = None;
        for (tier, is_fast) in [(self.setup.fast, true), (Some(self.setup.last), false)] {
            let Some(tier) = tier else { continue };
            let found = match wished {
                Some(moment) => tier.find(moment)?,
                None => tiers::complete(tier)?.pop(),
            };
            let Some(found) = found else { continue };
            if best.as_ref().is_none_or(|(_, other, _)| found.manifest.serial > other.manifest.serial) {
                best = Some((tier, found, is_fast));
            }
        }
        best.ok_or_else(|| {
            let place = wished.map_or(".".to_owned(), Moment::folder);
            CheckpointError::None(self.setup.last.files().shown(&Name::new(&place).unwrap_or_default()))
        })
    }

    /// The moments of the checkpoints that are complete on any tier, oldest first.
    pub(super) fn complete(&self) -> Result<Vec<Moment>, CheckpointError> {
        let mut newest = BTreeMap::new();
        for tier in self.tiers() {
            let ours = tier.list()?.into_iter().filter(|stored| self.is_ours(&stored.manifest));
            for StoredCheckpoint { manifest, .. } in ours {
                let serial = newest.entry(manifest.moment).or_insert(manifest.serial);
                *serial = manifest.serial.max(*serial);
            }
        }
        let mut moments: Vec<Moment> = newest.keys().copied().collect();
        moments.sort_by_key(|moment| newest[moment]);
        Ok(moments)
    }

    /// The newest checkpoint, if it can be restored here.
    pub(super) fn newest(&self) -> Result<Moment, CheckpointError> {
        let (tier, stored, _) = self.find(None)?;
        self.must_fit(tier.files(), &stored)?;
        Ok(stored.manifest.moment)
    }

    /// Refuses a checkpoint of another model, number of ranks, or scale.
    fn must_fit(
        &self,
        tier: &dyn TierFiles,
        StoredCheckpoint { prefix, manifest }: &StoredCheckpoint,
    ) -> Result<(), CheckpointError> {
        if self.is_ours(manifest) {
            return Ok(());
        }
        let plan = self.setup.plan;
        let shown =
            |model: &str, ranks: u64, scale: &str| format!("{model} on {ranks} ranks at scale {scale}");
        let there = shown(&manifest.model, manifest.ranks, &manifest.scale);
        let mut asked = shown(self.setup.model, plan.geometry.ranks, &plan.geometry.scale.to_string());
        if asked == there {
            asked.push_str(", spread or stored differently,");
        }
        let folder = tier.shown(&Name::new(prefix).unwrap_or_default());
        Err(CheckpointError::Other { folder, there, asked })
    }

    /// The files, each with the rank that reads it: with a shift, every rank reads the files of another rank here.
    fn shifted(&self, manifest: &CheckpointManifest) -> Vec<TransferFile> {
        let CheckpointSetup { first_rank, ranks, plan, .. } = self.setup;
        let (ranks, shift) = (ranks.max(1), plan.rank_shift);
        let mut items = listed(manifest);
        for item in &mut items {
            item.number += self.first_file;
            item.rank = first_rank + (item.rank - first_rank + ranks - shift % ranks) % ranks;
        }
        files::in_turn(items)
    }

    /// Evicts the files from the page cache, if requested, and counts their resident pages.
    fn prepare(
        &self,
        tier: &dyn TierFiles,
        items: &[TransferFile],
        stored: &StoredCheckpoint,
        cold: bool,
    ) -> Result<Option<Pages>, CheckpointError> {
        let sum = Mutex::new(Some(Pages::default()));
        self.threads().each(items, |item, hands| {
            let path = stored.path(&item.name);
            hands.begin(Operation::Sync, &tier.shown(&path));
            let pages = if cold { tier.evict(&path) } else { tier.cached(&path) }?;
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
    threads: &TransferThreads<'_>,
    tier: &dyn TierFiles,
    item: &TransferFile,
    stored: &StoredCheckpoint,
    hands: &mut TransferWorker<'_>,
) -> Result<(Nanos, u32), CheckpointError> {
    let (path, manifest) = (stored.path(&item.name), &stored.manifest);
    let content = FileContent::new(manifest.seed, manifest.moment, item.number);
    hands.begin(Operation::Read, &tier.shown(&path));
    let mut source = tier.open(&path, threads.clock.as_now())?;
    let mut chunk = hands.buffer(threads.chunk_bytes);
    hands.scratch.resize(threads.chunk_bytes, 0);
    let mut at = 0;
    loop {
        source.read(&mut chunk)?;
        if chunk.bytes().is_empty() {
            break;
        }
        if tier.holds_files() {
            let checked = content.check(at, chunk.bytes(), &mut hands.scratch);
            checked.map_err(|what| CheckpointError::Content { name: tier.shown(&path), what })?;
        }
        hands.advance(chunk.bytes().len())?;
        at += chunk.bytes().len() as u64;
    }
    hands.put_back(chunk);
    if at != item.bytes {
        return Err(CheckpointError::Size { name: tier.shown(&path), there: at, listed: item.bytes });
    }
    threads.events.add_files(1, 0);
    Ok((source.ended(), item.crc32.unwrap_or(0)))
}
