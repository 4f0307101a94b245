//! How many accelerators the storage feeds at the workload's target AU. Short probes search for the number; full runs
//! of it and of one rank more, which must miss the target, confirm it.

use engine::Solo;
use engine::host::Host;
use model::ledger::{Calibration, Phase};
use model::metrics::Figures;
use model::plan::{Plan, PlanError, StorePlan, TrainingPlan};
use model::spec::Spec;
use model::study::search::{Bounds, CapacityAnswer, CapacityEnd, Depth, Trial, search};
use model::units::{counted, megabytes_per_second};
use model::warning::Warning;

use super::StudyControl;
use crate::ask::{Asked, Generate};
use crate::backend::select;
use crate::error::Error;
use crate::run::{calibrate, fault};
use crate::settle::{Settled, settle};

/// A probe has enough steps to compute for this long, if that is more than the steps that a measurement needs.
const PROBE_SECONDS: f64 = 2.0;
/// More ranks than a plan accepts.
const MOST_RANKS: u64 = 1 << 20;

/// Where to search, and how long a probe is.
#[derive(Clone, Copy, Debug)]
pub struct CapacityRange {
    /// The number of ranks of the first probe.
    pub from: u64,
    /// The largest number to try; `None`: as many as the data set has samples for.
    pub up_to: Option<u64>,
    /// Steps of a probe; `None`: enough to measure.
    pub steps: Option<u64>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct CapacityFound {
    pub workload: String,
    pub store: StorePlan,
    /// The target AU, 0 to 1.
    pub target: f64,
    pub answer: CapacityAnswer,
    pub end: CapacityEnd,
    /// The benchmark's own ceiling, at one rank more than the answer.
    pub ceiling: Option<Calibration>,
}

/// A search that is settled and can begin.
#[expect(missing_debug_implementations, reason = "holds a format")]
pub struct Capacity<'a> {
    trials: Trials<'a>,
    /// The workload on one rank.
    single: Settled<'a>,
    bounds: Bounds,
    target: f64,
    /// What ends the search at the largest number of ranks.
    end: CapacityEnd,
}

impl<'a> Capacity<'a> {
    /// Settles the search, and refuses a workload or a host for which it has no answer.
    pub fn settle(asked: Asked, host: &'a Host, range: CapacityRange) -> Result<Capacity<'a>, Error> {
        let mut trials = Trials { asked, host, steps: 0, fewest: 0 };
        let single = trials.settle(trials.asked.clone(), 1)?;
        let training = single.plan.trained()?;
        let demand = training.estimate.demand.ok_or(Error::NoComputeTime)?.samples_per_second;
        let target = training.metric.au_target;
        trials.fewest = with_excluded(training, training.steps_to_measure(None));
        trials.steps = range.steps.unwrap_or_else(|| trials.fewest.max(steps_by_time(training)));
        for depth in [Depth::Confirmed, Depth::Probe] {
            trials.plan(1, depth)?;
        }
        let (most, end) = trials.most_ranks(range.up_to)?;
        single.check_host(&single.plan, &Solo::new(1))?;
        let bounds = Bounds { from: range.from, most, demand: demand * target };
        Ok(Capacity { trials, single, bounds, target, end })
    }

    pub fn warnings(&self) -> &[Warning] {
        &self.single.asked.warnings
    }

    /// Checks that the data set exists, unless it is to be generated.
    pub fn check_data(&self) -> Result<(), Error> {
        self.single.check_data(&Solo::new(1))
    }

    /// Generates missing data if that was asked for, and searches. `seen` is called after every trial.
    pub fn run(
        self,
        control: &StudyControl<'_>,
        mut seen: impl FnMut(&Trial),
    ) -> Result<CapacityFound, Error> {
        let Capacity { mut trials, single, bounds, target, end } = self;
        let Settled { asked, plan: Plan { workload, training, .. }, .. } =
            single.make_data(&Solo::new(1), control.observer, control.stop)?;
        trials.asked.found = asked.found;
        let store = training.map(|training| training.store).unwrap_or_default();
        trials.asked.ask.generate = Generate::Never;
        let answer = search(bounds, |ranks, depth| {
            let trial = trials.run(ranks, depth, control)?;
            seen(&trial);
            Ok::<Trial, Error>(trial)
        })?;
        let end = if answer.ranks == bounds.most { end } else { CapacityEnd::Target };
        let ceiling = match end {
            CapacityEnd::Target => {
                let (settled, plan) = trials.plan(answer.ranks + 1, Depth::Confirmed)?;
                calibrate(&settled, &plan, control.stop)
            }
            CapacityEnd::DataSet | CapacityEnd::UpTo => None,
        };
        Ok(CapacityFound { workload, store, target, answer, end, ceiling })
    }
}

/// The runs of a search.
struct Trials<'a> {
    asked: Asked,
    host: &'a Host,
    /// Steps of a probe.
    steps: u64,
    /// The smallest number of steps in an epoch of a full run.
    fewest: u64,
}

impl<'a> Trials<'a> {
    fn settle(&self, mut asked: Asked, ranks: u64) -> Result<Settled<'a>, Error> {
        asked.ask.ranks = Some(ranks);
        settle(asked, self.host, &Solo::new(ranks))
    }

    /// The workload on this number of ranks, and the plan of a trial: the settled one, or a probe of it. A full run is
    /// refused if batches that are ready in advance could decide its result.
    fn plan(&self, ranks: u64, depth: Depth) -> Result<(Settled<'a>, Plan), Error> {
        let mut asked = self.asked.clone();
        if self.makes_files()? {
            add_files(&mut asked.spec, ranks, self.steps.max(self.fewest));
        }
        let settled = self.settle(asked, ranks)?;
        let plan = match depth {
            Depth::Probe => settled.plan.probe(self.steps)?,
            Depth::Confirmed => {
                settled.plan.trained()?.check_window(None)?;
                settled.plan.clone()
            }
        };
        Ok((settled, plan))
    }

    /// Whether the number of files is free: the backend reads no files, so none have to exist.
    fn makes_files(&self) -> Result<bool, Error> {
        let spec = &self.asked.spec;
        let selection = select(spec, self.asked.ask.store.as_deref())?;
        Ok(!selection.plan().holds_files && spec.dataset.catalog.is_none())
    }

    /// The largest number of ranks to try, and what limits it.
    fn most_ranks(&self, up_to: Option<u64>) -> Result<(u64, CapacityEnd), Error> {
        let wanted = up_to.unwrap_or(MOST_RANKS);
        // If any number of files is available, there is no limit to find, and a plan for the largest number takes
        // minutes if the size of each file is drawn.
        if self.makes_files()? {
            return Ok((wanted, CapacityEnd::UpTo));
        }
        let fits = |ranks: u64| match self.plan(ranks, Depth::Confirmed) {
            Ok(_) => Ok(true),
            Err(Error::Plan(error)) if is_data_end(&error) => Ok(false),
            Err(error) => Err(error),
        };
        if fits(wanted)? {
            return Ok((wanted, CapacityEnd::UpTo));
        }
        let (mut most, mut beyond) = (1, wanted);
        while beyond - most > 1 {
            let middle = most + (beyond - most) / 2;
            if fits(middle)? { most = middle } else { beyond = middle }
        }
        Ok((most, CapacityEnd::DataSet))
    }

    fn run(&self, ranks: u64, depth: Depth, control: &StudyControl<'_>) -> Result<Trial, Error> {
        let trial = || -> Result<Trial, Error> {
            let (settled, plan) = self.plan(ranks, depth)?;
            settled.check_host(&plan, &Solo::new(ranks))?;
            trial(&settled, &plan, depth, control)
        };
        trial().map_err(|error| error.during(format!("with {}", counted(ranks, "rank"))))
    }
}

/// Runs a plan and takes the figures of the trial from the result.
fn trial(
    settled: &Settled<'_>,
    plan: &Plan,
    depth: Depth,
    control: &StudyControl<'_>,
) -> Result<Trial, Error> {
    let measured = control.measure(settled, plan)?;
    if let Some(fault) = fault(&measured.ledger) {
        return Err(fault);
    }
    let plan = plan.trained()?;
    let figures = Figures::new(&measured.ledger, Phase::Train);
    let seen = figures.as_ref().and_then(|figures| {
        let (au, rate) = (figures.au_percent?.mean, figures.samples_per_second?.mean);
        Some((au, rate, figures.mib_per_second?.mean, figures.meets(plan.metric.au_target)?))
    });
    // The epochs before an interrupted one have figures; they are not those of the whole trial.
    let seen = seen.filter(|_| !measured.ledger.interrupted);
    let (au_percent, samples_per_second, mib_per_second, met) = seen.ok_or(Error::Interrupted)?;
    Ok(Trial {
        ranks: plan.ranks(),
        depth,
        steps: plan.train.shards.steps,
        au_percent,
        samples_per_second,
        mb_per_second: megabytes_per_second(mib_per_second),
        met,
        broken: measured.broken(),
    })
}

fn steps_by_time(plan: &TrainingPlan) -> u64 {
    with_excluded(plan, (PROBE_SECONDS / plan.train.compute.mean()).ceil() as u64)
}

/// Steps of an epoch in which `counted` steps count.
fn with_excluded(plan: &TrainingPlan, counted: u64) -> u64 {
    let excluded = plan.metric.exclude_start_steps.saturating_add(plan.metric.exclude_end_steps);
    counted.saturating_add(excluded)
}

/// Raises the number of files to what gives every rank its steps.
fn add_files(spec: &mut Spec, ranks: u64, steps: u64) {
    let steps = steps.max(spec.train.total_training_steps.unwrap_or(0));
    let samples = ranks.saturating_mul(spec.reader.batch_size).saturating_mul(steps);
    let files = samples.div_ceil(spec.dataset.num_samples_per_file.max(1));
    spec.dataset.num_files_train = spec.dataset.num_files_train.max(files);
    let generated = &mut spec.dataset.num_files_generated;
    *generated = generated.map(|generated| generated.max(spec.dataset.num_files_train));
}

/// Whether the data set is too small for this number of ranks, and nothing else is wrong.
fn is_data_end(error: &PlanError) -> bool {
    matches!(
        error,
        PlanError::TooFewSamples { .. }
            | PlanError::NothingToMeasure { .. }
            | PlanError::WindowTooShort { .. }
    )
}
