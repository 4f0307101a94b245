//! A sweep: a grid of settings, each cell run several times. Every cell is settled before the first one runs, so that a
//! mistake in the last one is found at once. Where results are kept, and which of them exist already, is up to the
//! caller.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use engine::host::Host;
use model::checkpoint::CheckpointPlan;
use model::ledger::Calibration;
use model::study::grid::{SweepCell, SweepGrid, SweepRun};
use model::warning::Warning;

use super::StudyControl;
use crate::ask::{Asked, Generate};
use crate::error::{Error, ErrorKind};
use crate::members::{SharedFailure, agree};
use crate::run::MeasuredRun;
use crate::settle::{Settled, settle};

/// A grid of settings, and how a cell becomes a workload.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a closure")]
pub struct Sweep<'a> {
    pub grid: &'a SweepGrid,
    pub host: &'a Host,
    pub control: StudyControl<'a>,
    pub rounds: u64,
    /// Seed of the order of the runs.
    pub seed: u64,
    /// The workload of a cell.
    pub ask: &'a dyn Fn(&SweepCell<'_>) -> Result<Asked, Error>,
}

/// What is known when every cell has a plan.
#[derive(Debug)]
pub struct SweepSummary {
    pub warnings: Vec<Warning>,
    /// Of each cell, whether a device is simulated.
    pub simulated: Vec<bool>,
    /// The cell with the most readers, where the ceiling of the benchmark itself is the closest.
    pub largest: usize,
    /// The workload of the first cell.
    pub first: Asked,
}

/// A run of a cell, with the workload that it ran.
#[expect(missing_debug_implementations, reason = "holds a format")]
pub struct CellOutcome<'a> {
    pub settled: Settled<'a>,
    pub measured: MeasuredRun,
}

impl<'a> Sweep<'a> {
    /// Settles a cell. Cells are settled when they are needed, because each may hold a catalog.
    fn settle(&self, cell: usize, generate: Option<Generate>) -> Result<Settled<'a>, Error> {
        let cell = self.grid.cell(cell);
        let settled = || -> Result<Settled<'a>, Error> {
            let StudyControl { world, stop, .. } = self.control;
            let mut asked = agree((self.ask)(&cell), world, stop)?;
            asked.ask.generate = generate.unwrap_or(asked.ask.generate);
            let settled = settle(asked, self.host, world, stop)?;
            if settled.plan.checkpoint.is_none() {
                settled.plan.trained()?;
            }
            Ok(settled)
        };
        settled().map_err(|error| error.during(format!("cell {cell}")))
    }

    /// Settles every cell.
    pub fn settle_all(&self) -> Result<SweepSummary, Error> {
        let (mut warnings, mut simulated, mut largest) = (Vec::new(), Vec::new(), (0, Reverse(0)));
        for cell in 0..self.grid.cells() {
            let settled = self.settle(cell, None)?;
            let (plan, saves) = (&settled.plan, settled.plan.checkpoint.as_ref());
            simulated.push(plan.is_simulated() || saves.is_some_and(CheckpointPlan::is_simulated));
            if let Some(training) = plan.training.as_ref().filter(|training| !training.store.is_null()) {
                let readers = plan.ranks * training.loader.readers_per_rank;
                largest = largest.max((readers, Reverse(cell)));
            }
            for warning in settled.asked.warnings {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
        }
        let first = self.settle(0, None)?.asked;
        Ok(SweepSummary { warnings, simulated, largest: largest.1.0, first })
    }

    /// Checks that each cell can run, and generates its data set if that was asked for. Cells of which all runs are
    /// done already are skipped. Returns the cells that are refused; if all are, the first reason.
    pub fn check(&self, is_done: impl Fn(SweepRun) -> bool) -> Result<Vec<(usize, Error)>, Error> {
        let StudyControl { world, observer, stop } = self.control;
        let is_done = |cell: &usize| (1..=self.rounds).all(|round| is_done(SweepRun { cell: *cell, round }));
        let cells = (0..self.grid.cells()).filter(|cell| !is_done(cell)).collect();
        let mut refused = Vec::new();
        for cell in self.control.of_member_0::<Vec<usize>>(cells)? {
            let ready = self.settle(cell, None).and_then(|settled| {
                settled.check_host(&settled.plan, world, stop)?;
                settled.check_data(world, stop)?;
                settled.make_data(world, observer, stop).map(drop)
            });
            match ready {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Refused => refused.push((cell, error)),
                Err(error) => return Err(error),
            }
        }
        match refused.len() == self.grid.cells() {
            true => Err(refused.swap_remove(0).1),
            false => Ok(refused),
        }
    }

    /// The runs that are not done, in their order. Those of refused cells are left out.
    pub fn missing(
        &self,
        is_done: impl Fn(SweepRun) -> bool,
        refused: &BTreeSet<usize>,
    ) -> Result<Vec<SweepRun>, Error> {
        let runs = self.grid.runs(self.rounds, self.seed);
        let runs = runs.filter(|run| !is_done(*run) && !refused.contains(&run.cell));
        self.control.of_member_0(runs.collect())
    }

    /// The ceiling of the benchmark itself for a cell.
    pub fn calibrate(&self, cell: usize) -> Result<Option<Calibration>, Error> {
        let settled = self.settle(cell, Some(Generate::Never))?;
        Ok(crate::run::calibrate(&settled, &settled.plan, self.control.world, self.control.stop))
    }

    /// Does the runs, one after the other, until all are done or a stop is requested. `begins` is called before each
    /// with the number of runs done; `ended` gets the result, or why there is none, and may end the sweep. It ends when
    /// a member ends.
    pub fn run_all<E: SharedFailure>(
        &self,
        runs: &[SweepRun],
        begins: impl Fn(SweepRun, usize),
        mut ended: impl FnMut(SweepRun, Result<CellOutcome<'_>, Error>) -> Result<(), E>,
    ) -> Result<(), E> {
        let StudyControl { world, observer, stop } = self.control;
        for (done, run) in runs.iter().enumerate() {
            begins(*run, done);
            let outcome = self.settle(run.cell, Some(Generate::Never)).and_then(|settled| {
                let settled = settled.make_data(world, observer, stop)?;
                let measured = self.control.measure(&settled, &settled.plan)?;
                Ok(CellOutcome { settled, measured })
            });
            match outcome {
                Err(error) if self.control.stopped_by(&error) => break,
                _ if self.control.is_stopped() => break,
                Err(error) if error.known_to_all().is_some() => return Err(error.into()),
                outcome => self.control.record(ended(*run, outcome))?,
            }
        }
        Ok(())
    }
}
