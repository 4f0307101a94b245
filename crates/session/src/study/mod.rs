//! Studies: several runs of one workload that answer a question. `model::study` decides which run comes next and what
//! the answer is; here the runs are done. A front end learns of each run through a callback or a `StudyLog`, and shows
//! and records it.

mod capacity;
mod stall;
mod sweep;

pub use capacity::{Capacity, CapacityFound, CapacityRange, CapacityStage, Coverage};
pub use stall::{Stall, StallFound, StallStage};
pub use sweep::{CellOutcome, Sweep, SweepSummary};

use engine::{Stop, World};
use model::plan::Plan;

use crate::error::Error;
use crate::observe::Observer;
use crate::run::{MeasuredRun, RunTask, measure};
use crate::settle::Settled;

/// What a front end shows and records of a study.
pub trait StudyLog {
    /// What is known about a stage of the study before it begins.
    type Stage;
    /// What came of a run.
    type Run;
    type Failure: From<Error>;

    fn stage(&mut self, stage: &Self::Stage);

    /// Called before each run.
    fn begins(&mut self, run: &RunStart);

    /// A run that was recorded earlier, so that it need not be done again.
    fn recorded(&self, is_it: &dyn Fn(&Self::Run) -> bool) -> Option<Self::Run>;

    /// Called after each run.
    fn ended(&mut self, run: &Self::Run) -> Result<(), Self::Failure>;
}

/// A run of a study that is about to begin.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStart {
    /// Which run it is, such as `probe 3: 4 accelerators`.
    pub what: String,
    /// The estimated time of the runs of this stage that follow it; 0 if it is unknown.
    pub seconds_after: f64,
}

/// How a study is followed and stopped.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a reference to a port")]
pub struct StudyControl<'a> {
    pub world: &'a dyn World,
    /// Shows the progress of each run.
    pub observer: &'a dyn Observer,
    pub stop: &'a Stop,
}

impl StudyControl<'_> {
    /// Runs a plan at all members and judges the result. The ceiling of the benchmark itself is not measured: a study
    /// measures it once, where it counts most.
    fn measure(&self, settled: &Settled<'_>, plan: &Plan) -> Result<MeasuredRun, Error> {
        let StudyControl { world, observer, stop } = *self;
        measure(settled, &RunTask { plan, calibrate: false, share: true, world, observer, stop })
    }
}
