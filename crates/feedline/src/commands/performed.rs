//! The steps of a run that `feedline run` and `dlio_benchmark` share: settle, check, make the data set ready, measure.
//! Where results go and how they look is decided by the callers.

use engine::host::{self, Host};
use engine::{Stop, World};
use model::units::Nanos;
use model::warning::Warning;
use session::{Asked, CalibrationTime, MeasuredRun, Observer, Recorder, RunTask, Settled, measure, settle};

use super::typed_command;
use crate::cluster;
use crate::exit::Failure;
use crate::report::result::{Outcome, PeakMemory};

/// What a run needs apart from its workload.
#[derive(Clone, Copy)]
pub(crate) struct RunSetup<'a> {
    pub host: &'a Host,
    pub world: &'a dyn World,
    pub observer: &'a dyn Observer,
    /// Records the operations of the run, if they are to be recorded.
    pub recorder: Option<&'a dyn Recorder>,
    pub calibrate: CalibrationTime,
    /// Shows warnings.
    pub warn: &'a dyn Fn(&[Warning]),
    pub stop: &'a Stop,
}

/// A run that has a result, even if an error ended it early.
pub(crate) struct PerformedRun<'a> {
    pub settled: Settled<'a>,
    pub measured: MeasuredRun,
    /// From the start of the command to the end of settling.
    pub settling: Nanos,
}

impl PerformedRun<'_> {
    /// The run with all data for its report. `between_failures` requests advice on checkpoints.
    pub(crate) fn outcome(&self, between_failures: Option<Nanos>) -> Outcome<'_> {
        let PerformedRun { settled, measured, settling } = self;
        Outcome {
            plan: &settled.plan,
            spec: &settled.asked.spec,
            ledger: &measured.ledger,
            verdict: &measured.verdict,
            host: settled.host,
            warnings: &settled.asked.warnings,
            command: typed_command(),
            settling: *settling,
            peak_rss_bytes: PeakMemory::new(host::peak_rss_bytes),
            between_failures,
        }
    }
}

impl<'a> RunSetup<'a> {
    /// Carries out a run. `ready` is called when all checks that need no writing have passed; what it returns is kept
    /// until the run has ended.
    pub(crate) fn perform<T>(
        &self,
        asked: Asked,
        ready: impl FnOnce(&Settled<'_>) -> Result<T, Failure>,
    ) -> Result<(PerformedRun<'a>, T), Failure> {
        let RunSetup { host, world, observer, recorder, calibrate, warn, stop } = *self;
        let settled = settle(asked, host, world, stop)?;
        let settling = cluster::begun();
        settled.check_host(&settled.plan, world, stop)?;
        warn(&settled.asked.warnings);
        settled.check_data(world, stop)?;
        let kept = ready(&settled)?;
        let settled = settled.make_data(world, observer, stop)?;
        let plan = &settled.plan;
        let task = RunTask { plan, calibrate, share: false, world, observer, recorder, stop };
        let measured = measure(&settled, &task)?;
        let stop = stop.with_patience(settled.asked.stall_timeout());
        // What a lost process did is not known, so there is no result.
        if let Some(lost) = world.agree(Ok(()), &stop).err().filter(|ended| ended.cause.is_noticed()) {
            let fault = session::fault(&measured.ledger).map(Failure::from);
            return Err(fault.unwrap_or_else(|| Failure::incomplete(lost)));
        }
        Ok((PerformedRun { settled, measured, settling }, kept))
    }
}
