//! Studies: several runs of one workload that answer a question. `model::study` decides which run comes next and what
//! the answer is; here the runs are done. A front end learns of each run through a callback and shows or records it.

mod capacity;
mod stall;
mod sweep;

pub use capacity::{Capacity, CapacityFound, CapacityRange};
pub use stall::{Stall, StallFound};
pub use sweep::{CellOutcome, Sweep, SweepSummary};

use engine::{Solo, Stop};
use model::plan::Plan;

use crate::error::Error;
use crate::observe::Observer;
use crate::run::{MeasuredRun, RunTask, measure};
use crate::settle::Settled;

/// How a study is followed and stopped.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a reference to a port")]
pub struct StudyControl<'a> {
    /// Shows the progress of each run.
    pub observer: &'a dyn Observer,
    pub stop: &'a Stop,
}

impl StudyControl<'_> {
    /// Runs a plan in this process and judges the result. The ceiling of the benchmark itself is not measured: a study
    /// measures it once, where it counts most.
    fn measure(&self, settled: &Settled<'_>, plan: &Plan) -> Result<MeasuredRun, Error> {
        let StudyControl { observer, stop } = *self;
        let world = &Solo::new(plan.ranks);
        measure(settled, &RunTask { plan, calibrate: false, world, observer, stop })
    }
}
