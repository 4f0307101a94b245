//! The instrument measures itself: the same plan, briefly, on the null store on this host. What it does not reach there
//! it cannot reach on any storage.

use format::Format;
use model::ledger::{Calibration, Phase};
use model::metrics::Figures;
use model::order::Shards;
use model::plan::Plan;
use model::spec::{Preprocess, Time};
use model::units::Nanos;
use store::{Now, Null, Selection};

use crate::host;
use crate::meter::{self, Monotonic};
use crate::pulse::Pulse;
use crate::stop::Stop;
use crate::train::{Files, Rig, train};
use crate::world::Solo;

/// About how long a calibration takes.
const SECONDS: f64 = 1.0;
/// Longer steps are cut to this: what the harness adds to a step weighs more in a short one, so the ceiling found is a
/// lower bound of the real one.
const LONGEST_STEP: f64 = 0.05;
/// Steps when they have no compute time to count by.
const MOST_STEPS: u64 = 4000;

/// Runs the brief plan. `None` if a stop was wished meanwhile.
pub fn calibrate(plan: &Plan, format: &dyn Format, files: Files<'_>, stop: &Stop) -> Option<Calibration> {
    let brief = brief(plan);
    let (clock, pulse) = (Monotonic::new(), Pulse::default());
    let cpu_before = meter::cpu_seconds();
    let (truth, pages) = (None, None);
    let rig = Rig {
        plan: &brief,
        world: &Solo::new(brief.ranks),
        format,
        store: &Null,
        pages,
        files,
        truth,
        checkpoints: None,
        clock: &clock,
        stop,
        pulse: &pulse,
    };
    let ledger = train(&rig).ok()?;
    let (wall, cpu) = (clock.now(), meter::cpu_seconds() - cpu_before);
    if ledger.interrupted || !ledger.faults().is_empty() {
        return None;
    }
    let figures = Figures::new(&brief, &ledger, Phase::Train)?;
    let seen = ledger.total(1, Phase::Train);
    Some(Calibration {
        steps: brief.train.shards.steps,
        au_percent: figures.au_percent.map(|au| au.mean).filter(|_| seen.compute_ns > Nanos::ZERO),
        samples_per_second: figures.samples_per_second.map(|rate| rate.mean),
        harness_seconds_per_step: (seen.wait_ns + seen.lateness_ns_sum).seconds() / seen.steps.max(1) as f64,
        cpu_headroom: (1.0 - cpu / host::core_time(wall).seconds()).clamp(0.0, 1.0),
    })
}

fn brief(plan: &Plan) -> Plan {
    let mut brief = plan.clone();
    if plan.train.compute.mean() > LONGEST_STEP {
        brief.train.compute = Time::Constant(LONGEST_STEP);
    }
    let seconds = brief.train.compute.mean();
    let steps = if seconds > 0.0 { (SECONDS / seconds).ceil() as u64 } else { MOST_STEPS };
    let shards = plan.train.shards;
    let steps = steps.clamp(2, MOST_STEPS).min(shards.steps);
    brief.train.shards = Shards::new(shards.samples, shards.ranks, shards.batch, Some(steps));
    brief.metric.exclude_start_steps = plan.metric.exclude_start_steps.min(1);
    brief.metric.exclude_end_steps = 0;
    brief.eval = None;
    brief.epochs = 1;
    // What preprocessing and copying cost is the workload's, not the instrument's.
    brief.loader.preprocess.kind = Preprocess::None;
    brief.device.copy_bytes_per_second = None;
    // As many threads as the run itself has: what they cost is part of the ceiling.
    brief.store = Selection::null().plan();
    brief.cache = None;
    brief
}
