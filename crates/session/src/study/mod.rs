//! Studies: several runs of one workload that answer a question. `model::study` decides which run comes next and what
//! the answer is; here the runs are done. A front end learns of each run through a callback or a `StudyLog`, and shows
//! and records it.

mod capacity;
mod stall;
mod sweep;

pub use capacity::{Capacity, CapacityFound, CapacityRange, CapacityStage, Coverage};
pub use stall::{Stall, StallFound, StallStage};
pub use sweep::{CellOutcome, Sweep, SweepSummary};

use std::marker::PhantomData;

use engine::world::Cause;
use engine::{Stop, World};
use model::plan::Plan;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::members::{SharedFailure, of_member_0};
use crate::observe::Observer;
use crate::run::{CalibrationTime, MeasuredRun, RunTask, measure};
use crate::settle::Settled;

/// What a front end shows and records of a study.
pub trait StudyLog {
    /// What is known about a stage of the study before it begins.
    type Stage;
    /// What came of a run.
    type Run: Serialize + DeserializeOwned;
    type Failure: SharedFailure;

    fn stage(&mut self, stage: &Self::Stage);

    /// Called before each run.
    fn begins(&mut self, run: &RunStart);

    /// A run that was recorded earlier, so that it need not be done again.
    fn recorded(&self, is_it: &dyn Fn(&Self::Run) -> bool) -> Option<Self::Run>;

    /// Called after each run.
    fn ended(&mut self, run: &Self::Run) -> Result<(), Self::Failure>;
}

/// The log of a member that shows and records nothing: member 0 does it, and says which runs were recorded earlier.
#[derive(Debug)]
pub struct FollowerLog<S, R, F>(PhantomData<fn(S, R) -> F>);

impl<S, R, F> Default for FollowerLog<S, R, F> {
    fn default() -> FollowerLog<S, R, F> {
        FollowerLog(PhantomData)
    }
}

impl<S, R: Serialize + DeserializeOwned, F: SharedFailure> StudyLog for FollowerLog<S, R, F> {
    type Stage = S;
    type Run = R;
    type Failure = F;

    fn stage(&mut self, _: &S) {}

    fn begins(&mut self, _: &RunStart) {}

    fn recorded(&self, _: &dyn Fn(&R) -> bool) -> Option<R> {
        None
    }

    fn ended(&mut self, _: &R) -> Result<(), F> {
        Ok(())
    }
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
    /// Whether a stop was requested here, which the other members then know.
    fn is_stopped(&self) -> bool {
        let stopped = self.stop.requested();
        if stopped {
            self.world.announce(Cause::Stopped);
        }
        stopped
    }

    /// Whether an error means that a member was asked to stop. Then this one stops, too.
    fn stopped_by(&self, error: &Error) -> bool {
        let stopped = error.known_to_all().is_some_and(|ended| ended.cause == Cause::Stopped);
        if stopped {
            self.stop.wish();
        }
        stopped
    }

    /// The value that member 0 has, at all members.
    fn of_member_0<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<T, Error> {
        of_member_0(own, self.world, self.stop).inspect_err(|error| {
            self.stopped_by(error);
        })
    }

    /// What came of recording a run. If it failed, the other members learn it when they wait next.
    fn record<F: SharedFailure>(&self, recorded: Result<(), F>) -> Result<(), F> {
        recorded.inspect_err(|failure| self.world.announce(Cause::Failed(failure.described().1)))
    }

    /// Runs a plan at all members and judges the result. The ceiling of the benchmark itself is not measured: a study
    /// measures it once, where it counts most.
    fn measure(&self, settled: &Settled<'_>, plan: &Plan) -> Result<MeasuredRun, Error> {
        let StudyControl { world, observer, stop } = *self;
        let measured = measure(
            settled,
            &RunTask {
                plan,
                calibrate: CalibrationTime::Never,
                share: true,
                world,
                observer,
                recorder: None,
                stop,
            },
        )?;
        // A stop request at another member ends the study here, too.
        if measured.ledger.interrupted {
            stop.wish();
        }
        Ok(measured)
    }
}
