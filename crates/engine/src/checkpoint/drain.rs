//! Draining: a checkpoint is copied from the fast tier to the last tier in the background, optionally at a limited
//! rate, and removed from the fast tier when it is complete on the last one.

use std::sync::Mutex;
use std::sync::PoisonError;

use model::checkpoint::manifest::{CheckpointManifest, ManifestEntry, Moment};
use model::names::Name;
use model::units::Nanos;
use store::{Buffer, StoredCheckpoint, Tier, TierFiles, TierSource};

use super::files::{self, TransferFile, TransferThreads, TransferWorker};
use super::{BackgroundTask, CheckpointError, Checkpointer};
use crate::host;

/// How often a drain is tried before it counts as failing, and the pause between two attempts.
const ATTEMPTS: u32 = 5;
const PAUSE: Nanos = Nanos(if cfg!(test) { 2_000_000 } else { 500_000_000 });

impl Checkpointer<'_> {
    /// Copies a checkpoint to the last tier. If that fails, it stays on the fast tier, complete, and keeps its slot; it
    /// is tried again until the run ends, and then by the next run.
    pub(super) fn drain(&self, moment: Moment, tries: u32) {
        let Some(fast) = self.setup.fast else { return };
        let cause = match self.try_drain(fast, moment) {
            Ok(()) => {
                self.state().drain_failure = None;
                self.give_slot(moment);
                return self.retain_after(moment);
            }
            Err(CheckpointError::Interrupted) => return,
            Err(cause) => cause,
        };
        self.trouble(moment, format!("drain: {cause}"));
        let tries = tries + 1;
        if is_damage(&cause) {
            // Another attempt would not help, and other checkpoints need not wait for the slot.
            return self.give_slot(moment);
        }
        let mut state = self.state();
        if tries >= ATTEMPTS {
            state.drain_failure = Some(cause.to_string());
        }
        let over = state.closing && tries >= ATTEMPTS;
        drop(state);
        if !over {
            let until = self.now() + PAUSE;
            self.setup.clock.sleep_until(until, &|| self.setup.stop.wished());
            self.push(BackgroundTask::Drain { moment, tries });
        }
    }

    fn try_drain(&self, fast: &dyn Tier, moment: Moment) -> Result<(), CheckpointError> {
        let Some(saved) = fast.find(moment)? else {
            let name = Name::new(&moment.folder()).unwrap_or_default();
            return Err(CheckpointError::None(fast.files().shown(&name)));
        };
        // A newer checkpoint of the same name, saved directly to the last tier, must not be replaced by this one.
        let last = self.setup.last;
        let newer = last.find(moment)?.is_some_and(|there| there.manifest.serial > saved.manifest.serial);
        // If an earlier drain only lacked its last step, nothing is copied again.
        if !newer && !last.holds(&saved.manifest)? {
            let copied = last.begin(saved.manifest.clone())?;
            self.copy(fast.files(), &saved, &copied).inspect_err(|_| last.abandon(&copied))?;
        }
        let _lock = self.reading();
        Ok(fast.remove(&saved)?)
    }

    /// Copies all files of a checkpoint to the last tier and makes it complete there.
    fn copy(
        &self,
        fast: &dyn TierFiles,
        saved: &StoredCheckpoint,
        copied: &StoredCheckpoint,
    ) -> Result<(), CheckpointError> {
        let (began, last) = (self.now(), self.setup.last);
        let limited = self.setup.plan.drain_bytes_per_second.is_some();
        let threads = self.background_threads();
        let threads = TransferThreads { unhurried: threads.unhurried || limited, ..threads };
        let items = listed(&saved.manifest);
        let pace = DrainRate::new(self.setup.plan.drain_bytes_per_second, began);
        let ended = threads.each(&items, |item, hands| {
            let places = [(fast, saved.path(&item.name)), (last.files(), copied.path(&item.name))];
            copy(&threads, places, item, &pace, hands)
        })?;
        last.commit(copied)?;
        let reckoned = ended.iter().map(|end| end.at).max().unwrap_or(began);
        let end = if last.files().holds_files() { self.now() } else { reckoned };
        self.completed(&saved.manifest, false, |saved| {
            saved.drain_ns = Some(end.since(began));
            saved.durable_ns = Some(end.since(saved.began));
        });
        Ok(())
    }
}

/// Whether a checkpoint cannot be drained because it is damaged.
fn is_damage(cause: &CheckpointError) -> bool {
    matches!(
        cause,
        CheckpointError::Checksum(_)
            | CheckpointError::Size { .. }
            | CheckpointError::Content { .. }
            | CheckpointError::None(_)
    )
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
