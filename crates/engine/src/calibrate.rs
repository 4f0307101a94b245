//! Measures feedline itself: runs the calibration of a plan (`model::plan`) with the null backend on this host. A rate
//! that is not reached there cannot be reached on any storage.

use format::Format;
use model::ledger::{Calibration, Phase};
use model::metrics::Figures;
use model::plan::TrainingPlan;
use model::units::Nanos;
use store::{Now, Null};

use crate::events::Events;
use crate::host;
use crate::meter::{self, Monotonic};
use crate::stop::Stop;
use crate::train::{SplitFiles, TrainingSetup, train};
use crate::world::Solo;

/// Runs the calibration. `None` if it was stopped or failed.
pub fn calibrate(
    plan: &TrainingPlan,
    format: &dyn Format,
    files: SplitFiles<'_>,
    stop: &Stop,
) -> Option<Calibration> {
    let brief = plan.calibration();
    let (clock, events) = (Monotonic::new(), Events::default());
    let cpu_before = meter::cpu_seconds();
    let (truth, pages) = (None, None);
    let rig = TrainingSetup {
        plan: &brief,
        world: &Solo::new(),
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
    let (wall, cpu) = (clock.now(), meter::cpu_seconds() - cpu_before);
    if ledger.interrupted || !ledger.faults().is_empty() {
        return None;
    }
    let figures = Figures::new(&ledger, Phase::Train)?;
    let seen = ledger.total(1, Phase::Train);
    Some(Calibration {
        steps: brief.train.shards.steps,
        au_percent: figures.au_percent.map(|au| au.mean).filter(|_| seen.compute_ns > Nanos::ZERO),
        samples_per_second: figures.samples_per_second.map(|rate| rate.mean),
        harness_seconds_per_step: (seen.wait_ns + seen.lateness_ns_sum).seconds() / seen.steps.max(1) as f64,
        cpu_headroom: (1.0 - cpu / host::core_time(wall).seconds()).clamp(0.0, 1.0),
    })
}
