//! Measures feedline itself: runs the calibration of a plan (`model::plan`) with the null backend. A rate that is not
//! reached there cannot be reached on any storage. All members of a world run it together, each with its own ranks, so
//! that processes of one host compete for its cores as they do in the run, and agree on every step as they do there.

use format::Format;
use model::ledger::{Calibration, Phase};
use model::metrics::Figures;
use model::plan::TrainingPlan;
use model::units::Nanos;
use store::{Now, Null};

use crate::events::Events;
use crate::meter::{self, Monotonic};
use crate::stop::Stop;
use crate::train::{SplitFiles, TrainingSetup, train};
use crate::world::{World, cores_of_node, sum_on_node};

/// Runs the calibration and returns the ceiling of this member. `None` if it was stopped or failed.
pub fn calibrate(
    plan: &TrainingPlan,
    format: &dyn Format,
    files: SplitFiles<'_>,
    world: &dyn World,
    stop: &Stop,
) -> Option<Calibration> {
    let brief = plan.calibration();
    let (clock, events) = (Monotonic::new(), Events::default());
    let cpu_before = meter::cpu_seconds();
    let (truth, pages) = (None, None);
    let rig = TrainingSetup {
        plan: &brief,
        world,
        format,
        store: &Null,
        pages,
        files,
        truth,
        checkpoints: None,
        clock: &clock,
        stop,
        events: &events,
    };
    let ledger = train(&rig).ok()?;
    let (wall, cpu) = (clock.now(), Nanos::from_seconds(meter::cpu_seconds() - cpu_before));
    if ledger.interrupted || !ledger.faults().is_empty() {
        return None;
    }
    let cpu = sum_on_node(world, cpu.0, stop).ok()? as f64;
    let cores = cores_of_node(world, stop).ok()?;
    let figures = Figures::new(&ledger, Phase::Train)?;
    let seen = ledger.total(1, Phase::Train);
    // With barriers all ranks are as fast as the slowest, so this member's rate implies that of all ranks.
    let own = world.ranks(brief.ranks());
    let of_all = brief.ranks() as f64 / (own.end - own.start).max(1) as f64;
    Some(Calibration {
        steps: brief.train.shards.steps,
        au_percent: figures.au_percent.map(|au| au.mean).filter(|_| seen.compute_ns > Nanos::ZERO),
        samples_per_second: figures.samples_per_second.map(|rate| rate.mean * of_all),
        harness_seconds_per_step: (seen.wait_ns + seen.lateness_ns_sum).seconds() / seen.steps.max(1) as f64,
        cpu_headroom: (1.0 - cpu / (wall.0 as f64 * cores)).clamp(0.0, 1.0),
    })
}
