//! Saving, as far as training waits for it: in direct mode, until the checkpoint is durable on the last tier; with a
//! fast tier, until it is durable there; or until a copy of it is in memory.

use model::checkpoint::manifest::{CheckpointManifest, Moment, SCHEMA_VERSION};
use model::checkpoint::{Cpu, SaveRecord};
use model::names::Name;
use model::spec::SaveMode;
use model::units::Nanos;
use store::{StoredCheckpoint, Tier};

use super::content::FileContent;
use super::files::{self, FinishedFile, TransferFile, TransferThreads, TransferWorker};
use super::{BackgroundTask, CheckpointError, Checkpointer};
use crate::events::Event;
use crate::{host, meter};

/// A checkpoint whose files are written.
pub(super) struct WrittenCheckpoint {
    checkpoint: StoredCheckpoint,
    on_fast: bool,
    /// When the save began, and when the last file was written.
    began: Nanos,
    pub(super) end: Nanos,
}

impl Checkpointer<'_> {
    /// Saves a checkpoint and returns when training may continue. What failed is recorded with the save and does not
    /// stop training.
    pub fn save(&self, moment: Moment) -> Nanos {
        let (began, cpu) = (self.now(), meter::cpu_seconds());
        self.emit(Event::CheckpointBegan { moment });
        let mut state = self.state();
        state.serial += 1;
        let serial = state.serial;
        state.saved.push(SaveRecord {
            serial,
            bytes: self.items.iter().map(|item| item.bytes).sum(),
            files: self.items.len() as u64,
            ..SaveRecord::new(moment, began)
        });
        drop(state);
        self.setup.clock.sleep_until(began + self.setup.plan.serialize, &|| self.setup.stop.wished());
        let outcome = match (self.setup.plan.save, self.setup.fast) {
            (SaveMode::BurstBuffer, Some(fast)) => self.save_to_fast(fast, moment, began),
            (SaveMode::Async, _) => self.snapshot(moment, began),
            _ => self.save_to_last(moment, began),
        };
        let end = match outcome {
            // A simulated device ends at its own time. With files, all other work here is waited for, too.
            Ok(end) if self.is_simulated() => end,
            Ok(_) => self.now(),
            Err(cause) => {
                self.trouble(moment, cause.to_string());
                self.now()
            }
        };
        let cpu = self.cpu_since(cpu, end.since(began));
        self.note(moment, |saved| (saved.blocked_ns, saved.cpu) = (end.since(began), cpu));
        end
    }

    /// CPU time of the process since it had used `before` seconds, in a span, and what its threads could have used.
    pub(super) fn cpu_since(&self, before: f64, span: Nanos) -> Cpu {
        let used_ns = Nanos::from_seconds(meter::cpu_seconds() - before);
        let cores = host::cores().min(self.setup.plan.writers());
        Cpu { used_ns, core_ns: Nanos(span.0.saturating_mul(cores)) }
    }

    fn save_to_last(&self, moment: Moment, began: Nanos) -> Result<Nanos, CheckpointError> {
        let written = self.write(self.setup.last, moment, began)?;
        self.arrive(written)
    }

    /// Saves to the fast tier, or to the last tier if that fails.
    fn save_to_fast(&self, fast: &dyn Tier, moment: Moment, began: Nanos) -> Result<Nanos, CheckpointError> {
        self.take_slot(moment)?;
        let arrived = self
            .write(fast, moment, began)
            .and_then(|written| self.arrive(WrittenCheckpoint { on_fast: true, ..written }));
        match arrived {
            Err(cause) if cause != CheckpointError::Interrupted => {
                self.give_slot(moment);
                self.trouble(moment, format!("fast tier: {cause}"));
                self.save_to_last(moment, began)
            }
            arrived => arrived,
        }
    }

    /// Waits until the fast tier has a free slot for undrained checkpoints, and no undrained checkpoint of this name.
    fn take_slot(&self, moment: Moment) -> Result<(), CheckpointError> {
        let began = self.now();
        let mut state = self.state();
        let mut waited = false;
        while state.undrained.len() as u64 >= self.setup.plan.slots || state.undrained.contains(&moment) {
            if let Some(cause) = &state.drain_failure {
                return Err(CheckpointError::NoSlot(cause.clone()));
            }
            if self.setup.stop.wished() {
                return Err(CheckpointError::Interrupted);
            }
            waited = true;
            state = self.awaiting(|| self.wait(state));
        }
        state.undrained.insert(moment);
        drop(state);
        if waited {
            let span = self.now().since(began);
            self.note(moment, |saved| saved.back_pressure_ns += span);
        }
        Ok(())
    }

    pub(super) fn give_slot(&self, moment: Moment) {
        self.state().undrained.remove(&moment);
        self.changed.notify_all();
    }

    /// Writes the files of a checkpoint to a tier.
    fn write(
        &self,
        tier: &dyn Tier,
        moment: Moment,
        began: Nanos,
    ) -> Result<WrittenCheckpoint, CheckpointError> {
        let (threads, durable, tier_files) = (self.threads(), self.setup.plan.fsync, tier.files());
        self.fill(tier, moment, began, &threads, |item, path, hands| {
            let content = FileContent::new(self.setup.seed, moment, item.number);
            files::write(&threads, tier_files, path, item.bytes, durable, hands, |at, chunk, len| {
                if tier_files.holds_files() {
                    content.fill(at, &mut chunk.room()[..len]);
                }
                Ok(())
            })
        })
    }

    /// Begins a checkpoint on a tier and lets `work` write its files.
    pub(super) fn fill(
        &self,
        tier: &dyn Tier,
        moment: Moment,
        began: Nanos,
        threads: &TransferThreads<'_>,
        work: impl Fn(&TransferFile, &Name, &mut TransferWorker<'_>) -> Result<(Nanos, u32), CheckpointError>
        + Sync,
    ) -> Result<WrittenCheckpoint, CheckpointError> {
        let mut checkpoint = tier.begin(self.draft(moment))?;
        let ended = threads
            .each(&self.items, |item, hands| work(item, &checkpoint.path(&item.name), hands))
            .inspect_err(|_| tier.abandon(&checkpoint))?;
        for end in &ended {
            checkpoint.manifest.files[self.place(&self.items[end.place])].crc32 = end.crc32;
        }
        self.book_ranks(moment, &ended, began);
        let end = ended.iter().map(|end| end.at).max().unwrap_or(began);
        Ok(WrittenCheckpoint { checkpoint, on_fast: false, began, end })
    }

    /// The manifest of the files, in the order of their numbers, without checksums.
    fn draft(&self, moment: Moment) -> CheckpointManifest {
        let geometry = &self.setup.plan.geometry;
        let mut items: Vec<&TransferFile> = self.items.iter().collect();
        items.sort_unstable_by_key(|item| item.number);
        let mut serial = 0;
        self.note(moment, |saved| serial = saved.serial);
        CheckpointManifest {
            schema_version: SCHEMA_VERSION,
            serial,
            moment,
            seed: self.setup.seed,
            ranks: geometry.ranks,
            model: self.setup.model.to_owned(),
            scale: geometry.scale.to_string(),
            geometry: geometry.digest(),
            files: items.into_iter().map(TransferFile::entry).collect(),
        }
    }

    /// Continues after the files are written, and returns when training may continue: at once, if it does not wait
    /// until they are durable. In both cases the checkpoint is complete only when they are.
    fn arrive(&self, written: WrittenCheckpoint) -> Result<Nanos, CheckpointError> {
        if self.setup.plan.fsync {
            return self.seal(&written);
        }
        let end = written.end;
        self.push(BackgroundTask::Seal(written));
        Ok(end)
    }

    /// Makes files durable that training did not wait for, and then completes the checkpoint.
    pub(super) fn seal_later(&self, written: &WrittenCheckpoint) {
        let WrittenCheckpoint { checkpoint, on_fast, .. } = written;
        let (tier, moment) = (self.tier(*on_fast), checkpoint.manifest.moment);
        let mut files = checkpoint.manifest.files.iter();
        let safe = files.try_for_each(|file| tier.files().sync_file(&checkpoint.path(&file.name)));
        let sealed = match safe {
            Ok(()) => self.seal(written).map(drop),
            Err(cause) => {
                tier.abandon(checkpoint);
                Err(cause.into())
            }
        };
        if let Err(cause) = sealed {
            if *on_fast {
                self.give_slot(moment);
            }
            self.trouble(moment, cause.to_string());
        }
    }

    /// Completes a checkpoint whose files are durable; returns when it was complete.
    pub(super) fn seal(&self, written: &WrittenCheckpoint) -> Result<Nanos, CheckpointError> {
        let WrittenCheckpoint { checkpoint, on_fast, began, end } = written;
        let (tier, manifest) = (self.tier(*on_fast), &checkpoint.manifest);
        tier.commit(checkpoint).inspect_err(|_| tier.abandon(checkpoint))?;
        // A simulated device ends at its own time, even if the thread wakes up later.
        let end = if tier.files().holds_files() { self.now() } else { *end };
        let took = Some(end.since(*began));
        if *on_fast {
            self.completed(manifest, true, |saved| saved.fast_ns = took);
            self.push(BackgroundTask::Drain { moment: manifest.moment, tries: 0 });
        } else {
            self.completed(manifest, false, |saved| saved.durable_ns = took);
            self.retain_after(manifest.moment);
        }
        Ok(end)
    }

    fn tier(&self, on_fast: bool) -> &dyn Tier {
        match self.setup.fast {
            Some(fast) if on_fast => fast,
            _ => self.setup.last,
        }
    }

    fn book_ranks(&self, moment: Moment, ended: &[FinishedFile], began: Nanos) {
        let (slowest, first) = files::rank_times(&self.items, ended, began);
        let synced = self.setup.plan.rank_sync;
        self.note(moment, |saved| {
            saved.slowest_rank_ns = slowest;
            saved.first_rank_ns = if synced { slowest } else { first };
        });
    }
}
