//! Saving, as far as training waits for it: in direct mode, until the checkpoint is durable on the last tier; with a
//! fast tier, until it is durable there; or until a copy of it is in memory.

use model::checkpoint::manifest::{CheckpointManifest, Moment};
use model::checkpoint::{Cpu, SaveRecord};
use model::document;
use model::names::Name;
use model::spans::SpanKind;
use model::spec::SaveMode;
use model::units::Nanos;
use store::{StoredCheckpoint, Tier};

use super::content::FileContent;
use super::files::{self, FinishedFile, TransferFile, TransferThreads, TransferWorker};
use super::jobs::BackgroundTask;
use super::members::{Sharers, StepError};
use super::{CheckpointError, Checkpointer};
use crate::events::Event;
use crate::world::Exchange;
use crate::{host, meter};

/// A checkpoint that was begun on a tier.
pub(super) struct BegunCheckpoint {
    checkpoint: StoredCheckpoint,
    on_fast: bool,
}

/// A checkpoint whose files are written, by all members.
pub(super) struct WrittenCheckpoint {
    checkpoint: StoredCheckpoint,
    on_fast: bool,
    /// When the save began, and when the last file was written here.
    began: Nanos,
    end: Nanos,
}

impl WrittenCheckpoint {
    pub(super) fn moment(&self) -> Moment {
        self.checkpoint.manifest.moment
    }
}

impl Checkpointer<'_> {
    /// Saves a checkpoint and returns when training may continue. What failed is recorded with the save and does not
    /// stop training.
    pub fn save(&self, moment: Moment) -> Nanos {
        let (began, cpu) = (self.now(), meter::cpu_seconds());
        self.emit(Event::CheckpointBegan { moment });
        self.setup.events.counters().set_saving(true);
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
            (SaveMode::BurstBuffer, Some(_)) => self.save_to_fast(moment, began),
            (SaveMode::Async, _) => self.snapshot(moment, began),
            _ => self.save_to_last(moment, began),
        };
        let end = match outcome {
            // A simulated device ends at its own time. With files, all other work here is waited for, too.
            Ok(end) if self.is_simulated() => end,
            Ok(_) => self.now(),
            Err(cause) => {
                self.failed(moment, "", cause);
                self.now()
            }
        };
        let cpu = self.cpu_since(cpu, end.since(began));
        self.setup.events.counters().set_saving(false);
        let mut took = None;
        self.note(moment, |saved| {
            (saved.blocked_ns, saved.cpu) = (end.since(began), cpu);
            took = saved.troubles.is_empty().then(|| saved.dlio_span(self.setup.plan.save));
        });
        let bytes = self.items.iter().map(|item| item.bytes).sum();
        self.trace(SpanKind::Save, (moment, bytes), began, end.since(began));
        if let Some(took) = took {
            // Stamped with the moment at which training continues, so that it precedes what follows.
            self.emitter.emit(self.setup.events, end, Event::CheckpointSaved { moment, took });
        }
        end
    }

    /// CPU time of the process since it had used `before` seconds, in a span, and what its threads could have used.
    pub(super) fn cpu_since(&self, before: f64, span: Nanos) -> Cpu {
        let used_ns = Nanos::from_seconds(meter::cpu_seconds() - before);
        let world = self.setup.world;
        // The cores of a host are shared by its members, whose values are added up.
        let sharing = world.topology().members_on(world.node()).count().max(1) as f64;
        let cores = (host::cores() as f64 / sharing).min(self.setup.plan.writers() as f64);
        Cpu { used_ns, core_ns: Nanos((span.0 as f64 * cores) as u64) }
    }

    fn save_to_last(&self, moment: Moment, began: Nanos) -> Result<Nanos, CheckpointError> {
        let begun = self.begin(self.front(), false, moment)?;
        self.arrive(self.write(begun, began)?)
    }

    /// Saves to the fast tier, or to the last tier if that fails.
    fn save_to_fast(&self, moment: Moment, began: Nanos) -> Result<Nanos, CheckpointError> {
        let slot = self.take_slot(moment);
        let taken = slot.is_ok();
        // If one member has no slot, no member uses its own.
        self.combine(self.front(), slot).inspect_err(|_| {
            if taken {
                self.give_slot(moment);
            }
        })?;
        let begun = self.begin(self.front(), true, moment);
        let arrived =
            begun.and_then(|begun| self.write(begun, began)).and_then(|written| self.arrive(written));
        match arrived {
            Err(cause) if !matches!(cause, CheckpointError::Interrupted | CheckpointError::Member(_)) => {
                self.give_slot(moment);
                self.failed(moment, "fast tier: ", cause);
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
            if self.setup.stop.wished() || state.ended.is_some() {
                return Err(CheckpointError::Interrupted);
            }
            waited = true;
            state = self.awaiting(|| self.wait(state));
        }
        state.undrained.insert(moment);
        self.setup.events.counters().set_undrained(state.undrained.len());
        drop(state);
        if waited {
            let span = self.now().since(began);
            self.note(moment, |saved| saved.back_pressure_ns += span);
        }
        Ok(())
    }

    pub(super) fn give_slot(&self, moment: Moment) {
        let mut state = self.state();
        state.undrained.remove(&moment);
        self.setup.events.counters().set_undrained(state.undrained.len());
        drop(state);
        self.changed.notify_all();
    }

    /// Begins a checkpoint on a tier: one member of those that share a folder does.
    pub(super) fn begin(
        &self,
        line: &dyn Exchange,
        on_fast: bool,
        moment: Moment,
    ) -> Result<BegunCheckpoint, CheckpointError> {
        let (tier, sharers, draft) = (self.tier(on_fast), self.sharers(on_fast), self.draft(moment));
        let begun = if sharers.leads() { tier.begin(draft.clone()).map(Some) } else { Ok(None) };
        let own = begun.as_ref().ok().cloned().flatten();
        let prefix = begun.map(|begun| begun.map(|begun| begun.prefix)).map_err(CheckpointError::from);
        let prefixes = self.combine(line, prefix).inspect_err(|error| {
            if let Some(own) = own {
                self.give_up(on_fast, &own, error);
            }
        })?;
        let prefix = prefixes.into_iter().nth(sharers.leader() as usize).flatten().unwrap_or_default();
        Ok(BegunCheckpoint { checkpoint: StoredCheckpoint { prefix, manifest: draft }, on_fast })
    }

    /// Writes the files of a checkpoint.
    fn write(&self, begun: BegunCheckpoint, began: Nanos) -> Result<WrittenCheckpoint, CheckpointError> {
        let (threads, durable) = (self.threads(), self.setup.plan.fsync);
        let (tier_files, moment) = (self.tier(begun.on_fast).files(), begun.checkpoint.manifest.moment);
        self.fill(self.front(), begun, began, &threads, |item, path, hands| {
            let content = FileContent::new(self.setup.seed, moment, item.number);
            files::write(&threads, tier_files, path, item.bytes, durable, hands, |at, chunk, len| {
                if tier_files.holds_files() {
                    content.fill(at, &mut chunk.room()[..len]);
                }
                Ok(())
            })
        })
    }

    /// Lets `work` write the files of a checkpoint that was begun, and waits for the other members.
    pub(super) fn fill(
        &self,
        line: &dyn Exchange,
        BegunCheckpoint { mut checkpoint, on_fast }: BegunCheckpoint,
        began: Nanos,
        threads: &TransferThreads<'_>,
        work: impl Fn(&TransferFile, &Name, &mut TransferWorker<'_>) -> Result<(Nanos, u32), CheckpointError>
        + Sync,
    ) -> Result<WrittenCheckpoint, CheckpointError> {
        let ended = threads.each(&self.items, |item, hands| work(item, &checkpoint.path(&item.name), hands));
        let written = ended.as_ref().map(|ended| self.checksums(ended)).map_err(CheckpointError::clone);
        let checksums =
            self.combine(line, written).inspect_err(|error| self.give_up(on_fast, &checkpoint, error))?;
        // Members have consecutive ranks, so their files are in the order of the manifest.
        for (file, crc32) in checkpoint.manifest.files.iter_mut().zip(checksums.into_iter().flatten()) {
            file.crc32 = crc32;
        }
        let ended = ended?;
        self.book_ranks(checkpoint.manifest.moment, &ended, began);
        let end = ended.iter().map(|end| end.at).max().unwrap_or(began);
        Ok(WrittenCheckpoint { checkpoint, on_fast, began, end })
    }

    /// The checksums of the files of this member, in the order of their numbers.
    fn checksums(&self, ended: &[FinishedFile]) -> Vec<u32> {
        let mut checksums = vec![0; self.items.len()];
        for end in ended {
            checksums[self.place(&self.items[end.place])] = end.crc32;
        }
        checksums
    }

    /// Abandons a checkpoint after a failure, once per folder. If the run ends early, other members may still write to
    /// the folder; the next run cleans up.
    pub(super) fn give_up(&self, on_fast: bool, checkpoint: &StoredCheckpoint, error: &StepError) {
        if self.sharers(on_fast).leads() && !matches!(error.cause, CheckpointError::Member(_)) {
            self.tier(on_fast).abandon(checkpoint);
        }
    }

    /// The manifest of the files of all ranks, in the order of their numbers, without checksums.
    fn draft(&self, moment: Moment) -> CheckpointManifest {
        let geometry = &self.setup.plan.geometry;
        let mut items = files::items(geometry, &(0..geometry.ranks));
        items.sort_unstable_by_key(|item| item.number);
        let mut serial = 0;
        self.note(moment, |saved| serial = saved.serial);
        CheckpointManifest {
            schema_version: document::CHECKPOINT.version,
            serial,
            moment,
            seed: self.setup.seed,
            ranks: geometry.ranks,
            model: self.setup.model.to_owned(),
            scale: geometry.scale.to_string(),
            geometry: geometry.digest(),
            files: items.iter().map(TransferFile::entry).collect(),
        }
    }

    /// Continues after the files are written, and returns when training may continue: at once, if it does not wait
    /// until they are durable. In both cases the checkpoint is complete only when they are.
    fn arrive(&self, written: WrittenCheckpoint) -> Result<Nanos, CheckpointError> {
        if self.setup.plan.fsync {
            return self.seal(self.front(), &written);
        }
        let end = written.end;
        self.push(BackgroundTask::Seal(written));
        Ok(end)
    }

    /// Makes files durable that training did not wait for, and then completes the checkpoint.
    pub(super) fn seal_later(&self, written: &WrittenCheckpoint) {
        let WrittenCheckpoint { checkpoint, on_fast, .. } = written;
        let (tier, moment, own) = (self.tier(*on_fast), written.moment(), self.setup.own_ranks());
        let mut files = checkpoint.manifest.files.iter().filter(|file| own.contains(&file.rank));
        let safe = files.try_for_each(|file| tier.files().sync_file(&checkpoint.path(&file.name)));
        let safe = self.combine(self.back(), safe.map_err(CheckpointError::from));
        let sealed = match safe {
            Ok(_) => self.seal(self.back(), written).map(drop),
            Err(error) => {
                self.give_up(*on_fast, checkpoint, &error);
                Err(error.into())
            }
        };
        if let Err(cause) = sealed {
            if *on_fast {
                self.give_slot(moment);
            }
            self.failed(moment, "", cause);
        }
    }

    /// Completes a checkpoint whose files are durable; returns when it was complete.
    pub(super) fn seal(
        &self,
        line: &dyn Exchange,
        written: &WrittenCheckpoint,
    ) -> Result<Nanos, CheckpointError> {
        let WrittenCheckpoint { checkpoint, on_fast, began, end } = written;
        let (tier, manifest) = (self.tier(*on_fast), &checkpoint.manifest);
        let committed = if self.sharers(*on_fast).leads() { tier.commit(checkpoint) } else { Ok(()) };
        self.combine(line, committed.map_err(CheckpointError::from))
            .inspect_err(|error| self.give_up(*on_fast, checkpoint, error))?;
        // A simulated device ends at its own time, even if the thread wakes up later.
        let end = if tier.files().holds_files() { self.now() } else { *end };
        let (kind, bytes) = (if *on_fast { SpanKind::Fast } else { SpanKind::Durable }, manifest.bytes());
        self.trace(kind, (manifest.moment, bytes), *began, end.since(*began));
        let took = Some(end.since(*began));
        if *on_fast {
            self.completed((manifest.moment, manifest.serial), true, |saved| saved.fast_ns = took);
            self.push(BackgroundTask::Drain { moment: manifest.moment, tries: 0 });
        } else {
            self.completed((manifest.moment, manifest.serial), false, |saved| saved.durable_ns = took);
            self.clean_up_after(manifest.moment);
        }
        Ok(end)
    }

    fn tier(&self, on_fast: bool) -> &dyn Tier {
        match self.setup.fast {
            Some(fast) if on_fast => fast,
            _ => self.setup.last,
        }
    }

    fn sharers(&self, on_fast: bool) -> &Sharers {
        if on_fast { &self.fast_sharers } else { &self.last_sharers }
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
