//! Restoring: the newest checkpoint that is complete on any tier, or a given one, is read by all ranks, and every byte
//! is compared with what was saved. The result includes whether the bytes came from storage or from the page cache.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;

use model::checkpoint::RestoreRecord;
use model::checkpoint::manifest::{CheckpointManifest, Moment};
use model::names::Name;
use model::spans::SpanKind;
use model::units::Nanos;
use store::page_cache::Pages;
use store::{Operation, StoredCheckpoint, Tier, TierFiles};

use super::content::FileContent;
use super::drain::listed;
use super::files::{self, TransferFile, TransferThreads, TransferWorker};
use super::survey::{SeenCheckpoint, SpreadCheckpoint};
use super::{CheckpointError, Checkpointer};
use crate::meter;
use crate::world::Topology;

/// What to restore, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreRequest {
    /// Which checkpoint; `None`: the newest.
    pub moment: Option<Moment>,
    /// Whether its files are evicted from the page cache first.
    pub cold: bool,
}

/// Where the files of a checkpoint are read from.
struct RestoreSource {
    /// The checkpoint on the fast tier of this host, and the places of its files that are there.
    fast: Option<(StoredCheckpoint, SpreadCheckpoint)>,
    last: Option<StoredCheckpoint>,
}

/// Where one file is read from.
struct FilePlace<'s> {
    tier: &'s dyn TierFiles,
    stored: &'s StoredCheckpoint,
    is_fast: bool,
}

impl Checkpointer<'_> {
    /// Restores a checkpoint together with the other members, and returns the amounts and times of this one.
    pub fn restore(&self, wish: RestoreRequest) -> Result<RestoreRecord, CheckpointError> {
        self.wait_for_saves()?;
        let _lock = self.reading();
        let restored = self.find(wish.moment).and_then(|source| self.read_all(&source, wish.cold));
        // Until then no member removes what another one reads.
        match restored {
            Err(CheckpointError::Member(_)) => {}
            _ => self.front().agree(Ok(()), self.setup.stop)?,
        }
        restored
    }

    /// Reads the files of this member's ranks and compares them with what was saved.
    fn read_all(&self, source: &RestoreSource, cold: bool) -> Result<RestoreRecord, CheckpointError> {
        let (tier, stored) = self.any_of(source)?;
        self.must_fit(tier, stored)?;
        let items = self.shifted(&stored.manifest);
        let mut from_fast = true;
        for item in &items {
            from_fast &= self.place_of(source, item)?.is_fast;
        }
        let pages = self.prepare(&items, source, cold)?;
        let threads = self.threads();
        let (began, cpu) = (self.now(), meter::cpu_seconds());
        let ended = threads.each(&items, |item, hands| {
            let FilePlace { tier, stored, .. } = self.place_of(source, item)?;
            read(&threads, tier, item, stored, hands)
        })?;
        let (slowest, first) = files::rank_times(&items, &ended, began);
        let took = if tier.holds_files() { self.now().since(began) } else { slowest };
        let bytes = items.iter().map(|item| item.bytes).sum();
        self.trace(SpanKind::Restore, (stored.manifest.moment, bytes), began, took);
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
            ..RestoreRecord::new(stored.manifest.moment, began)
        })
    }

    /// Waits until the saves in the background have ended, so that the newest checkpoint is known.
    fn wait_for_saves(&self) -> Result<(), CheckpointError> {
        let mut state = self.state();
        while state.completing > 0 {
            if let Some(ended) = &state.ended {
                return Err(ended.clone().into());
            }
            if self.setup.stop.wished() {
                return Err(CheckpointError::Interrupted);
            }
            state = self.wait(state);
        }
        Ok(())
    }

    /// The checkpoint to restore, the same at all members, and where this one reads it: on the fast tier, if it is on
    /// both.
    fn find(&self, wished: Option<Moment>) -> Result<RestoreSource, CheckpointError> {
        let survey = self.survey(self.front(), wished, self.is_several())?;
        let mut best: Option<&SeenCheckpoint> = None;
        for seen in survey.complete() {
            if best.is_none_or(|best| seen.serial > best.serial) {
                best = Some(seen);
            }
        }
        let Some(best) = best else {
            let place = wished.map_or(".".to_owned(), Moment::folder);
            let name = Name::new(&place).unwrap_or_default();
            return Err(CheckpointError::None(self.setup.last.files().shown(&name)));
        };
        let spread = survey.fast.iter().find(|spread| spread.is_whole() && spread.seen().is_same(best));
        let is_on_last = survey.last.iter().any(|there| there.is_same(best));
        let of = |tier: &dyn Tier| -> Result<Option<StoredCheckpoint>, CheckpointError> {
            Ok(tier.find(best.moment)?.filter(|stored| best.is_of(stored)))
        };
        let fast = match (self.setup.fast, spread) {
            (Some(fast), Some(spread)) => of(fast)?.map(|stored| (stored, spread.clone())),
            _ => None,
        };
        Ok(RestoreSource { fast, last: if is_on_last { of(self.setup.last)? } else { None } })
    }

    /// A tier with the manifest.
    fn any_of<'s>(
        &'s self,
        source: &'s RestoreSource,
    ) -> Result<(&'s dyn TierFiles, &'s StoredCheckpoint), CheckpointError> {
        let fast = self.setup.fast.zip(source.fast.as_ref()).map(|(fast, (stored, _))| (fast, stored));
        let (tier, stored) = fast
            .or(source.last.as_ref().map(|stored| (self.setup.last, stored)))
            .ok_or_else(|| CheckpointError::OnOtherNode { file: "its manifest".to_owned() })?;
        Ok((tier.files(), stored))
    }

    /// Where a file is read from. A file of a rank on another node is not on the fast tier of this one, so it is read
    /// from the last tier.
    fn place_of<'s>(
        &'s self,
        source: &'s RestoreSource,
        item: &TransferFile,
    ) -> Result<FilePlace<'s>, CheckpointError> {
        let leader = self.fast_sharers.leader();
        let here = source.fast.as_ref().filter(|(_, spread)| spread.is_at(leader, item.number));
        match (here.zip(self.setup.fast), &source.last) {
            (Some(((stored, _), fast)), _) => Ok(FilePlace { tier: fast.files(), stored, is_fast: true }),
            (None, Some(stored)) => Ok(FilePlace { tier: self.setup.last.files(), stored, is_fast: false }),
            (None, None) => Err(CheckpointError::OnOtherNode { file: item.name.clone() }),
        }
    }

    /// The moments of the checkpoints that are complete on any tier, oldest first.
    pub(super) fn complete(&self) -> Result<Vec<Moment>, CheckpointError> {
        let survey = self.survey(self.front(), None, self.is_several())?;
        let mut newest = BTreeMap::new();
        for seen in survey.complete().filter(|seen| seen.is_ours) {
            let serial = newest.entry(seen.moment).or_insert(seen.serial);
            *serial = seen.serial.max(*serial);
        }
        let mut moments: Vec<Moment> = newest.keys().copied().collect();
        moments.sort_by_key(|moment| newest[moment]);
        Ok(moments)
    }

    /// The newest checkpoint, if it can be restored here.
    pub(super) fn newest(&self) -> Result<Moment, CheckpointError> {
        let source = self.find(None)?;
        let (tier, stored) = self.any_of(&source)?;
        self.must_fit(tier, stored)?;
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

    /// The files that this member reads, each with the rank that reads it: with a shift, every rank reads the files of
    /// another rank.
    fn shifted(&self, manifest: &CheckpointManifest) -> Vec<TransferFile> {
        let (ranks, own) = (self.setup.plan.geometry.ranks.max(1), self.setup.own_ranks());
        let shift = shift(self.setup.world.topology(), ranks, self.setup.plan.rank_shift);
        let mut items = listed(manifest);
        for item in &mut items {
            item.rank = (item.rank + ranks - shift % ranks) % ranks;
        }
        items.retain(|item| own.contains(&item.rank));
        files::in_turn(items)
    }

    /// Evicts the files from the page cache, if requested, and counts their resident pages.
    fn prepare(
        &self,
        items: &[TransferFile],
        source: &RestoreSource,
        cold: bool,
    ) -> Result<Option<Pages>, CheckpointError> {
        let sum = Mutex::new(Some(Pages::default()));
        self.threads().each(items, |item, hands| {
            let FilePlace { tier, stored, .. } = self.place_of(source, item)?;
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

/// By how many ranks a restore is shifted. With several nodes, a shift serves to read what another node wrote, so it is
/// the smallest one of at least `asked` ranks with which the fewest ranks read what their own node wrote.
pub(super) fn shift(topology: &Topology, ranks: u64, asked: u64) -> u64 {
    if asked == 0 || topology.nodes() == 1 {
        return asked;
    }
    let of_member = |member| topology.ranks(member, ranks).map(move |_| topology.node_of(member));
    let nodes: Vec<u64> = (0..topology.members()).flat_map(of_member).collect();
    let own = |shift: &u64| {
        let read = nodes.iter().cycle().skip((shift % ranks) as usize);
        nodes.iter().zip(read).filter(|(reader, writer)| reader == writer).count()
    };
    (asked..asked + ranks).min_by_key(own).unwrap_or(asked)
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
    threads.events.counters().add_files(1, 0);
    Ok((source.ended(), item.crc32.unwrap_or(0)))
}
