//! Saves and restores checkpoints, on their own and during training.

use engine::checkpoint::{self, CheckpointSetup, KeptRun};
use engine::meter::{Clock, Monotonic};
use engine::world::entropy;
use engine::{Events, Stop, TrainingSetup, World};
use model::checkpoint::{CheckpointPlan, Schedule};
use model::ledger::{EpochRecord, Ledger};
use model::order::mix;
use model::spec::SaveMode;
use model::units::Nanos;
use store::Now;

use crate::error::Error;
use crate::members::{agree, named};
use crate::observe::{Activity, ActivityUnit, Observer, RecordedRun, observed, recorded};
use crate::run::RunTask;
use crate::settle::TrainingRun;
use crate::tiers::{OpenTiers, Tiers};

/// The checkpoints of a run, and where they go.
#[derive(Clone, Copy)]
pub(crate) struct RunCheckpoints<'a> {
    pub(crate) plan: &'a CheckpointPlan,
    pub(crate) model: &'a str,
    pub(crate) tiers: &'a Tiers,
    /// Seed of the workload.
    pub(crate) seed: u64,
    pub(crate) observer: &'a dyn Observer,
}

impl RunCheckpoints<'_> {
    /// Saves and restores without training; returns the time that it took, too.
    pub(crate) fn alone(&self, task: &RunTask<'_>) -> Result<(Ledger, Nanos), Error> {
        let RunTask { world, stop, recorder, .. } = *task;
        let (open, clock) = (agree(self.tiers.open(None), world, stop)?, Monotonic::new());
        let origin = clock.wall_origin();
        let goal = Activity { what: "checkpoints", unit: ActivityUnit::Files, total: files(self.plan) };
        let (ledger, span) = observed(self.observer, world, goal, |events| {
            recorded(recorder, RecordedRun { events, world, files: None }, || {
                Ok::<Ledger, Error>(checkpoint::alone(self.setup(&open, world, &clock, stop, events)?)?)
            })
        });
        let mut ledger = ledger?;
        // DLIO reports checkpoints without training as those of an epoch.
        let epoch = EpochRecord { ended: Some(clock.now()), ..EpochRecord::default() };
        (ledger.records.origin, ledger.records.epochs) = (origin, [(1, epoch)].into());
        Ok((observe(ledger, self.tiers, &open), span))
    }

    /// Trains and saves checkpoints meanwhile.
    pub(crate) fn beside(&self, trainer: &TrainingRun<'_>, rig: &TrainingSetup<'_>) -> Result<Ledger, Error> {
        let opened = self.tiers.open(Some((&trainer.selection.text(), rig.store)));
        let open = agree(opened, rig.world, rig.stop)?;
        let setup = self.setup(&open, rig.world, rig.clock, rig.stop, rig.events)?;
        let KeptRun { done, saves, ended } = checkpoint::keep(setup, |checkpointer| {
            engine::train(&TrainingSetup { checkpoints: Some(checkpointer), ..*rig })
        })?;
        let mut ledger = done.map_err(|error| named(Error::Cache(error), rig.world))?;
        ledger.checkpoints.saves = saves;
        if let Some(ended) = ended {
            checkpoint::note_end(&mut ledger, rig.plan.epochs, &ended);
        }
        Ok(observe(ledger, self.tiers, &open))
    }

    /// What this member saves and restores with. The seed of what is saved is a new one in every run, so that an
    /// earlier checkpoint is not taken for one of this run, and the same at all members.
    fn setup<'s>(
        &'s self,
        open: &'s OpenTiers,
        world: &'s dyn World,
        clock: &'s dyn Clock,
        stop: &'s Stop,
        events: &'s Events,
    ) -> Result<CheckpointSetup<'s>, Error> {
        Ok(CheckpointSetup {
            plan: self.plan,
            model: self.model,
            seed: mix(self.seed, entropy(world, stop)?),
            world,
            fast: open.fast.as_deref(),
            last: &*open.last,
            clock,
            stop,
            events,
        })
    }
}

/// The total number of files to write or read.
fn files(plan: &CheckpointPlan) -> u64 {
    let Schedule::Alone { saves, restores, .. } = plan.schedule else { return 0 };
    let drains = if plan.save == SaveMode::BurstBuffer { saves } else { 0 };
    plan.geometry.file_count().saturating_mul(saves.saturating_add(drains).saturating_add(restores))
}

/// Adds the location of the checkpoints, and other facts about the tiers, to the ledger.
fn observe(mut ledger: Ledger, tiers: &Tiers, open: &OpenTiers) -> Ledger {
    for (property, value) in open.fast.iter().chain([&open.last]).flat_map(|tier| tier.observed()) {
        ledger.conditions.observe(&format!("checkpoint_{property}"), &value);
    }
    let fast = tiers.fast.iter().map(|site| ("burst_folder", site));
    for (property, site) in [("checkpoint_folder", &tiers.last)].into_iter().chain(fast) {
        if site.holds_files() {
            ledger.conditions.observe(property, &site.place.to_string());
        }
    }
    ledger
}
