//! Draining: a checkpoint is copied from the fast tier to the last tier in the background, optionally at a limited
//! rate, and removed from the fast tier when it is complete on the last one. Every host copies the files that it holds;
//! the checkpoint is complete on the last tier when all of them have.

use std::sync::Mutex;
use std::sync::PoisonError;

use model::checkpoint::manifest::{CheckpointManifest, ManifestEntry, Moment};
use model::names::Name;
use model::spans::SpanKind;
use model::units::Nanos;
use serde::{Deserialize, Serialize};
use store::{Buffer, StoredCheckpoint, Tier, TierFiles, TierSource};

use super::files::{self, TransferFile, TransferThreads, TransferWorker};
use super::jobs::BackgroundTask;
use super::members::StepError;
use super::survey::{SpreadCheckpoint, TierSurvey};
use super::{CheckpointError, Checkpointer};
use crate::host;

/// How often a drain is tried before it counts as failing, and the pause between two attempts.
const ATTEMPTS: u32 = 5;
const PAUSE: Nanos = Nanos(if cfg!(test) { 2_000_000 } else { 500_000_000 });

/// What a drain has to copy to, as the member that leads the last tier found out.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum CopyTarget {
    /// Nothing needs to be copied.
    None,
    /// The checkpoint is complete there.
    Held,
    /// It was begun, with this prefix of its files.
    Begun(String),
}

impl Checkpointer<'_> {
    /// Copies a checkpoint to the last tier. If that fails, it stays on the fast tier, complete, and keeps its slot; it
    /// is tried again until the run ends, and then by the next run.
    pub(super) fn drain(&self, moment: Moment, tries: u32) {
        let Some(fast) = self.setup.fast else { return };
        let StepError { cause, is_damage } = match self.try_drain(fast, moment) {
            Ok(()) => {
                self.state().drain_failure = None;
                self.give_slot(moment);
                return self.clean_up(moment);
            }
            Err(StepError { cause: CheckpointError::Interrupted, .. }) => return,
            Err(StepError { cause: CheckpointError::Member(ended), .. }) => return self.end(*ended),
            Err(error) => error,
        };
        let (tries, text) = (tries + 1, cause.to_string());
        self.failed(moment, "drain: ", cause);
        if is_damage {
            // Another attempt would not help, and other checkpoints need not wait for the slot.
            return self.give_slot(moment);
        }
        let mut state = self.state();
        if tries >= ATTEMPTS {
            state.drain_failure = Some(text);
        }
        // Member 0 decides for all; the others drop what it does not repeat.
        let over = state.closing && tries >= ATTEMPTS && self.setup.world.member() == 0;
        drop(state);
        if !over {
            let until = self.now() + PAUSE;
            self.setup.clock.sleep_until(until, &|| self.is_over());
            self.push(BackgroundTask::Drain { moment, tries });
        }
    }

    fn try_drain(&self, fast: &dyn Tier, moment: Moment) -> Result<(), StepError> {
        let line = self.back();
        let TierSurvey { fast: spread, last } = self.survey(line, Some(moment), self.is_several())?;
        let Some(spread) = spread.into_iter().rfind(SpreadCheckpoint::is_whole) else {
            let name = Name::new(&moment.folder()).unwrap_or_default();
            return Err(self.common(CheckpointError::None(fast.files().shown(&name))));
        };
        // A newer checkpoint of the same name, saved directly to the last tier, must not be replaced by this one.
        let newer = last.iter().any(|there| there.serial > spread.seen().serial);
        let saved = fast.find(moment).map_err(CheckpointError::from);
        let saved = saved.map(|saved| saved.filter(|saved| spread.seen().is_of(saved)));
        let manifest = self.manifest_of(&spread, saved.as_ref().ok().and_then(Option::as_ref))?;
        let target = match newer {
            true => CopyTarget::None,
            false => self.begin_copy(manifest.as_ref(), &saved)?,
        };
        match target {
            CopyTarget::Begun(prefix) => self.copy(
                fast.files(),
                &spread,
                saved.as_ref().ok().and_then(Option::as_ref),
                (prefix, manifest),
            )?,
            CopyTarget::None => {}
            // An earlier attempt completed it without knowing that.
            CopyTarget::Held => {
                let (seen, now) = (spread.seen(), self.now());
                self.completed((seen.moment, seen.serial), false, |saved| {
                    saved.durable_ns.get_or_insert(now.since(saved.began));
                });
            }
        }
        let removed = saved.and_then(|saved| {
            let _lock = self.reading();
            let saved = saved.filter(|_| self.fast_sharers.leads());
            Ok(saved.map_or(Ok(()), |saved| fast.remove(&saved))?)
        });
        self.combine(line, removed).map(drop)
    }

    /// The manifest of a checkpoint on the fast tier: that of this host, or, if the host of member 0 has none, that of
    /// another one, so that member 0 can complete the copy.
    fn manifest_of(
        &self,
        spread: &SpreadCheckpoint,
        saved: Option<&StoredCheckpoint>,
    ) -> Result<Option<CheckpointManifest>, StepError> {
        let (own, first) = (saved.map(|saved| saved.manifest.clone()), spread.parts[0].0);
        if first == 0 {
            return Ok(own);
        }
        let text =
            own.as_ref().filter(|_| self.setup.world.member() == first).map(CheckpointManifest::to_text);
        let texts = self.combine(self.back(), Ok(text))?;
        let sent = texts.into_iter().flatten().find_map(|text| CheckpointManifest::from_text(&text).ok());
        Ok(own.or(sent))
    }

    /// Begins the copy on the last tier, unless it is there.
    fn begin_copy(
        &self,
        manifest: Option<&CheckpointManifest>,
        saved: &Result<Option<StoredCheckpoint>, CheckpointError>,
    ) -> Result<CopyTarget, StepError> {
        let last = self.setup.last;
        let begin = || -> Result<CopyTarget, CheckpointError> {
            saved.as_ref().map_err(CheckpointError::clone)?;
            let Some(manifest) = manifest.filter(|_| self.last_sharers.leads()) else {
                return Ok(CopyTarget::None);
            };
            // If an earlier drain only lacked its last step, nothing is copied again.
            if last.holds(manifest)? {
                return Ok(CopyTarget::Held);
            }
            Ok(CopyTarget::Begun(last.begin(manifest.clone())?.prefix))
        };
        let here = begin();
        let own = here.as_ref().ok().cloned();
        let targets = self.combine(self.back(), here).inspect_err(|error| {
            if let (Some(CopyTarget::Begun(prefix)), Some(manifest)) = (own, manifest) {
                self.give_up(false, &StoredCheckpoint { prefix, manifest: manifest.clone() }, error);
            }
        })?;
        Ok(targets.into_iter().nth(self.last_sharers.leader() as usize).unwrap_or(CopyTarget::None))
    }

    /// Copies the files of a checkpoint to the last tier, each from a host that has it, and makes it complete there.
    fn copy(
        &self,
        fast: &dyn TierFiles,
        spread: &SpreadCheckpoint,
        saved: Option<&StoredCheckpoint>,
        (prefix, manifest): (String, Option<CheckpointManifest>),
    ) -> Result<(), StepError> {
        let (began, last, line) = (self.now(), self.setup.last, self.back());
        let limited = self.setup.plan.drain_bytes_per_second.is_some();
        let threads = self.background_threads();
        let threads = TransferThreads { unhurried: threads.unhurried || limited, ..threads };
        let copied = manifest.map(|manifest| StoredCheckpoint { prefix, manifest });
        let items = saved.map_or(Vec::new(), |saved| self.own_share(spread, &saved.manifest));
        let whole = copied.as_ref().map_or(0, |copied| copied.manifest.bytes());
        let pace = DrainRate::new(self.own_rate(&items, whole), began);
        let ended = match (saved, &copied) {
            (Some(saved), Some(copied)) => threads.each(&items, |item, hands| {
                let places = [(fast, saved.path(&item.name)), (last.files(), copied.path(&item.name))];
                copy(&threads, places, item, &pace, hands)
            }),
            _ => Ok(Vec::new()),
        };
        let give_up = |error: &StepError| {
            if let Some(copied) = &copied {
                self.give_up(false, copied, error);
            }
        };
        self.combine(line, ended.as_ref().map(drop).map_err(CheckpointError::clone)).inspect_err(give_up)?;
        let committed = match &copied {
            Some(copied) if self.last_sharers.leads() => last.commit(copied),
            _ => Ok(()),
        };
        self.combine(line, committed.map_err(CheckpointError::from)).inspect_err(give_up)?;
        let reckoned = ended?.iter().map(|end| end.at).max().unwrap_or(began);
        let end = if last.files().holds_files() { self.now() } else { reckoned };
        let (seen, mut started) = (spread.seen(), None);
        self.completed((seen.moment, seen.serial), false, |saved| {
            saved.drain_ns = Some(end.since(began));
            saved.durable_ns = Some(end.since(saved.began));
            started = Some(saved.began);
        });
        // A checkpoint of an earlier run is not in the ledger, either.
        if let Some(started) = started {
            self.trace(SpanKind::Drain, (seen.moment, whole), began, end.since(began));
            self.trace(SpanKind::Durable, (seen.moment, whole), started, end.since(started));
        }
        Ok(())
    }

    /// The files that this member copies: its share of those that are to be copied from its folder.
    fn own_share(&self, spread: &SpreadCheckpoint, manifest: &CheckpointManifest) -> Vec<TransferFile> {
        let from_here = |item: &TransferFile| spread.holder(item.number) == Some(self.fast_sharers.leader());
        let here: Vec<TransferFile> = listed(manifest).into_iter().filter(from_here).collect();
        self.fast_sharers.share(here.len()).map(|place| here[place].clone()).collect()
    }

    /// This member's part of the rate at which the run drains.
    fn own_rate(&self, items: &[TransferFile], whole: u64) -> Option<u64> {
        let own: u64 = items.iter().map(|item| item.bytes).sum();
        let part = |rate: u64| (u128::from(rate) * u128::from(own) / u128::from(whole.max(1))) as u64;
        self.setup.plan.drain_bytes_per_second.map(|rate| part(rate).max(1))
    }
}

/// The files of a checkpoint as its manifest lists them.
pub(super) fn listed(manifest: &CheckpointManifest) -> Vec<TransferFile> {
    let entries = manifest.files.iter().zip(0..);
    let items = entries.map(|(entry, number)| {
        let ManifestEntry { name, rank, bytes, crc32 } = entry.clone();
        TransferFile { number, rank, name, bytes, crc32: Some(crc32) }
    });
    items.collect()
}

/// Copies a file; the copy is valid only if its checksum equals the one recorded when the file was saved.
fn copy(
    threads: &TransferThreads<'_>,
    [(from, path), (to, target)]: [(&dyn TierFiles, Name); 2],
    item: &TransferFile,
    pace: &DrainRate,
    hands: &mut TransferWorker<'_>,
) -> Result<(Nanos, u32), CheckpointError> {
    let mut source = from.open(&path, threads.clock.as_now())?;
    let mut read = |chunk: &mut Buffer, len: usize| read_exactly(&mut *source, from, &path, item, chunk, len);
    let (end, crc32) = files::write(threads, to, &target, item.bytes, true, hands, |_, chunk, len| {
        read(chunk, len)?;
        pace.wait(len as u64, threads);
        Ok(())
    })?;
    match item.crc32 {
        Some(listed) if from.holds_files() && to.holds_files() && listed != crc32 => {
            Err(CheckpointError::Checksum(from.shown(&path)))
        }
        listed => Ok((end, listed.unwrap_or(crc32))),
    }
}

/// The next `len` bytes of a file.
fn read_exactly(
    source: &mut dyn TierSource,
    tier: &dyn TierFiles,
    path: &Name,
    item: &TransferFile,
    chunk: &mut Buffer,
    len: usize,
) -> Result<(), CheckpointError> {
    host::aside(|| source.read(chunk))?;
    match chunk.bytes().len() {
        there if there >= len => Ok(()),
        there => Err(CheckpointError::Size {
            name: tier.shown(path),
            there: item.bytes - (len - there) as u64,
            listed: item.bytes,
        }),
    }
}

/// Limits a drain to its rate.
struct DrainRate {
    rate: Option<u64>,
    began: Nanos,
    bytes: Mutex<u64>,
}

impl DrainRate {
    fn new(rate: Option<u64>, began: Nanos) -> DrainRate {
        DrainRate { rate, began, bytes: Mutex::new(0) }
    }

    /// Waits until this many more bytes are allowed.
    fn wait(&self, bytes: u64, threads: &TransferThreads<'_>) {
        let Some(rate) = self.rate else { return };
        let mut sent = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.began + Nanos((u128::from(*sent) * 1_000_000_000 / u128::from(rate)) as u64);
        *sent += bytes;
        drop(sent);
        threads.clock.sleep_until(due, &|| threads.stop.wished());
    }
}
