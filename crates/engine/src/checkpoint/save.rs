//! Saving: what training waits for. Directly, until the checkpoint is durable on the last tier; through a fast tier in
//! front, until it is durable there; or until a copy of it is in memory.

use model::checkpoint::manifest::{Manifest, Moment, SCHEMA_VERSION};
use model::checkpoint::{Cpu, Saved};
use model::spec::SaveMode;
use model::units::Nanos;
use store::Tier;

use super::content::FileContent;
use super::files::{self, Ended};
use super::{CheckpointError, Job, Keeper, tiers};
use crate::{host, meter};

/// CPU time of the process since it had used `before` seconds, in a span.
pub(super) fn cpu_since(before: f64, span: Nanos) -> Cpu {
    let used_ns = Nanos::from_seconds(meter::cpu_seconds() - before);
    Cpu { used_ns, core_ns: Nanos(span.0.saturating_mul(host::cores())) }
}

impl Keeper<'_> {
    /// Saves a checkpoint. Says when training may go on; what went wrong stands in what was seen of the save, and is no
    /// reason to stop training.
    pub fn save(&self, moment: Moment) -> Nanos {
        let (began, cpu) = (self.now(), meter::cpu_seconds());
        self.state().saved.push(Saved {
            bytes: self.items.iter().map(|item| item.bytes).sum(),
            files: self.items.len() as u64,
            ..Saved::new(moment, began)
        });
        self.setup.clock.sleep_until(began + self.setup.plan.serialize, &|| self.setup.stop.wished());
        let outcome = match (self.setup.plan.save, self.setup.fast) {
            (SaveMode::BurstBuffer, Some(fast)) => self.save_to_fast(fast, moment, began),
            (SaveMode::Async, _) => self.snapshot(moment, began),
            _ => self.save_to_last(moment, began),
        };
        let end = match outcome {
            Ok(end) => end,
            Err(cause) => {
                self.note(moment, |saved| saved.troubles.push(cause.to_string()));
                self.now()
            }
        };
        let cpu = cpu_since(cpu, end.since(began));
        self.note(moment, |saved| (saved.blocked_ns, saved.cpu) = (end.since(began), cpu));
        end
    }

    fn save_to_last(&self, moment: Moment, began: Nanos) -> Result<Nanos, CheckpointError> {
        let end = self.write_to(self.setup.last, moment, began)?;
        self.completed(moment, false, |saved| saved.durable_ns = Some(end.since(began)));
        self.retain()?;
        Ok(end)
    }

    /// Saves to the tier in front, and to the last one where that does not go.
    fn save_to_fast(&self, fast: &dyn Tier, moment: Moment, began: Nanos) -> Result<Nanos, CheckpointError> {
        self.take_slot(moment)?;
        match self.write_to(fast, moment, began) {
            Ok(end) => {
                self.completed(moment, true, |saved| saved.fast_ns = Some(end.since(began)));
                self.push(Job::Drain(moment));
                Ok(end)
            }
            Err(cause) => {
                self.state().undrained -= 1;
                self.note(moment, |saved| saved.troubles.push(format!("fast tier: {cause}")));
                // What is left there takes room and is of no use to anybody.
                let _ = tiers::remove(fast, moment);
                match cause {
                    CheckpointError::Store(_) => self.save_to_last(moment, began),
                    cause => Err(cause),
                }
            }
        }
    }

    /// Waits until the fast tier holds fewer checkpoints that are not drained than it may.
    fn take_slot(&self, moment: Moment) -> Result<(), CheckpointError> {
        let began = self.now();
        let mut state = self.state();
        let mut waited = false;
        while state.undrained >= self.setup.plan.slots {
            if let Some(cause) = &state.drain_failure {
                return Err(CheckpointError::NoSlot(cause.clone()));
            }
            if self.setup.stop.wished() {
                return Err(CheckpointError::Interrupted);
            }
            waited = true;
            state = self.wait(state);
        }
        state.undrained += 1;
        drop(state);
        if waited {
            let span = self.now().since(began);
            self.note(moment, |saved| saved.back_pressure_ns += span);
        }
        Ok(())
    }

    /// Writes a checkpoint to a tier and makes it complete there; says when that was.
    fn write_to(&self, tier: &dyn Tier, moment: Moment, began: Nanos) -> Result<Nanos, CheckpointError> {
        tiers::begin(tier, moment)?;
        let (crew, durable) = (self.crew(), self.setup.plan.fsync);
        let ended = crew.each(&self.items, |item, hands| {
            let content = FileContent::new(self.setup.seed, moment, item.number);
            let path = item.path(moment);
            files::write(&crew, tier, &path, item.bytes, durable, hands, |at, chunk, len| {
                if tier.holds_files() {
                    content.fill(at, &mut chunk.room()[..len]);
                }
                Ok(())
            })
        })?;
        tiers::finish(tier, &self.manifest(moment, &ended))?;
        self.book_ranks(moment, &ended, began);
        // A simulated device is done when it says so, which nobody has to wake up for in time.
        let last = ended.iter().map(|end| end.at).max().unwrap_or(began);
        Ok(if tier.holds_files() { self.now() } else { last })
    }

    /// The list of the files, with what was found out about them while they were written.
    pub(super) fn manifest(&self, moment: Moment, ended: &[Ended]) -> Manifest {
        let geometry = &self.setup.plan.geometry;
        let mut ended: Vec<&Ended> = ended.iter().collect();
        ended.sort_unstable_by_key(|end| self.items[end.place].number);
        let mut state = self.state();
        state.serial += 1;
        Manifest {
            schema_version: SCHEMA_VERSION,
            serial: state.serial,
            moment,
            seed: self.setup.seed,
            ranks: geometry.ranks,
            model: self.setup.model.to_owned(),
            scale: geometry.scale.to_string(),
            files: ended.into_iter().map(|end| self.items[end.place].entry(end.crc32)).collect(),
        }
    }

    pub(super) fn book_ranks(&self, moment: Moment, ended: &[Ended], began: Nanos) {
        let (slowest, first) = files::rank_times(&self.items, ended, began);
        let synced = self.setup.plan.rank_sync;
        self.note(moment, |saved| {
            saved.slowest_rank_ns = slowest;
            saved.first_rank_ns = if synced { slowest } else { first };
        });
    }
}
