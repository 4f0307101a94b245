//! How many accelerators the storage feeds at the workload's target AU. Short probes search for the number; longer runs
//! of it and of one rank more, which must miss the target, confirm it.

use engine::host::Host;
use engine::world::Topology;
use model::ledger::{Calibration, Phase};
use model::metrics::Figures;
use model::plan::{Plan, PlanError, StorePlan};
use model::spec::Spec;
use model::study::epoch;
use model::study::length::{self, RunLengths};
use model::study::search::{
    Bounds, CapacityAnswer, CapacityEnd, Depth, SearchState, Trial, TrialRequest, search,
};
use model::units::{counted, megabytes_per_second};
use model::warning::Warning;

use super::{RunStart, StudyControl, StudyLog};
use crate::ask::{Asked, Generate};
use crate::backend::select;
use crate::error::Error;
use crate::members::{SharedFacts, agree};
use crate::run::fault;
use crate::settle::{Settled, settle, settle_again};

/// More ranks than a plan accepts.
const MOST_RANKS: u64 = 1 << 20;
/// Answers for which the time of the probes is estimated in advance, in addition to the smallest one.
const EXAMPLES: [u64; 2] = [8, 64];

/// Where to search, and how long the runs are.
#[derive(Clone, Copy, Debug)]
pub struct CapacityRange {
    /// The number of ranks of the first probe; at least one for each process.
    pub from: u64,
    /// The largest number to try; `None`: as many as the data set has samples for.
    pub up_to: Option<u64>,
    /// Steps of a probe; `None`: enough to measure.
    pub steps: Option<u64>,
    /// The runs that confirm the border; `Depth::Probe`: none.
    pub confirmation: Depth,
}

/// What is known about a stage of a search before it begins.
#[derive(Clone, Debug, PartialEq)]
pub enum CapacityStage {
    Probes {
        steps: u64,
        /// How long all probes take if storage feeds this many ranks.
        seconds: Vec<(u64, f64)>,
    },
    Confirmation {
        depth: Depth,
        epochs: u64,
        /// The runs that are expected: ranks, and steps of each epoch.
        runs: Vec<(u64, u64)>,
        seconds: f64,
    },
}

/// What the workload does in addition to the training steps that were measured.
#[derive(Clone, Copy, Debug)]
pub struct Coverage {
    pub epochs: u64,
    /// The steps of an epoch with the number of ranks of the answer.
    pub epoch_steps: u64,
    pub evaluates: bool,
    pub saves: bool,
    /// How long full runs at the border would take.
    pub full_seconds: f64,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct CapacityFound {
    pub workload: String,
    pub store: StorePlan,
    /// The target AU, 0 to 1.
    pub target: f64,
    pub confirmation: Depth,
    /// The smallest number of ranks that can be tried: one for each process.
    pub least: u64,
    /// The number of hosts of these processes.
    pub nodes: u64,
    pub answer: CapacityAnswer,
    pub end: CapacityEnd,
    pub coverage: Coverage,
    /// The training files that twice as many ranks need.
    pub files_for_twice: u64,
    /// The benchmark's own ceiling, at one rank more than the answer.
    pub ceiling: Option<Calibration>,
    /// Whether a stop was requested, even if the answer is complete.
    pub interrupted: bool,
}

impl CapacityFound {
    /// The number of ranks that is the first to miss the target, if the answer is clear.
    pub fn beyond(&self) -> u64 {
        beyond(&self.answer, self.least)
    }
}

fn beyond(answer: &CapacityAnswer, least: u64) -> u64 {
    (answer.ranks + 1).max(least)
}

/// A search that is settled and can begin.
#[expect(missing_debug_implementations, reason = "holds a format")]
pub struct Capacity<'a> {
    trials: Trials<'a>,
    /// The workload on the smallest number of ranks.
    smallest: Settled<'a>,
    bounds: Bounds,
    confirmation: Depth,
    /// What ends the search at the largest number of ranks.
    end: CapacityEnd,
}

impl<'a> Capacity<'a> {
    /// Settles the search, and refuses a workload or a host for which it has no answer.
    pub fn settle(
        asked: Asked,
        host: &'a Host,
        range: CapacityRange,
        control: &StudyControl<'a>,
    ) -> Result<Capacity<'a>, Error> {
        let (control, least) = (*control, least_ranks(control.world.topology())?);
        if let Some(up_to) = range.up_to.filter(|up_to| *up_to < least) {
            return Err(Error::TooFewRanksToSearch { up_to, least });
        }
        let smallest = settle(on_ranks(asked.clone(), least), host, control.world, control.stop)?;
        let training = smallest.plan.trained()?;
        let demand = training.estimate.demand.ok_or(Error::NoComputeTime)?.samples_per_second;
        let target = training.metric.au_target;
        let facts = smallest.facts.clone();
        let lengths = RunLengths::of(training, range.steps);
        let trials = Trials { asked, host, facts, control, target, lengths };
        let found = || {
            for depth in [Depth::Full, Depth::Probe] {
                trials.plan(least, depth, &[])?;
            }
            trials.most_ranks(least, range.up_to)
        };
        let (most, end) = agree(found(), control.world, control.stop)?;
        smallest.check_host(&smallest.plan, control.world, control.stop)?;
        let bounds = Bounds { least, from: range.from, most, demand: demand * target };
        Ok(Capacity { trials, smallest, bounds, confirmation: range.confirmation, end })
    }

    pub fn warnings(&self) -> &[Warning] {
        &self.smallest.asked.warnings
    }

    /// The workload, as it was asked for.
    pub fn asked(&self) -> &Asked {
        &self.smallest.asked
    }

    /// Checks that the data set exists, unless it is to be generated.
    pub fn check_data(&self) -> Result<(), Error> {
        self.smallest.check_data(self.trials.control.world, self.trials.control.stop)
    }

    /// Generates missing data if that was asked for, and searches. After a stop request, the answer is partial.
    pub fn run<L>(self, log: &mut L) -> Result<CapacityFound, L::Failure>
    where
        L: StudyLog<Stage = CapacityStage, Run = Trial>,
    {
        let Capacity { mut trials, smallest, bounds, confirmation, end } = self;
        let (control, least) = (trials.control, bounds.least);
        let smallest = smallest.make_data(control.world, control.observer, control.stop)?;
        trials.asked.found.clone_from(&smallest.asked.found);
        let store = smallest.plan.trained().map_err(Error::from)?.store.clone();
        trials.asked.ask.generate = Generate::Never;
        let mut search_runs = SearchRuns { trials: &trials, bounds, log, announced: None };
        let answer = search(bounds, confirmation, |request, earlier| {
            search_runs.next(request, earlier).or_else(|error| match error {
                TrialError::Run(error) if control.stopped_by(&error) => Ok(None),
                TrialError::Run(error) => {
                    Err(error.during(format!("with {}", counted(request.ranks, "rank"))).into())
                }
                TrialError::Log(failure) => Err(failure),
            })
        })?;
        let end = match answer.state {
            SearchState::Stopped => CapacityEnd::Stop,
            _ if answer.ranks == bounds.most => end,
            _ => CapacityEnd::Target,
        };
        let ceiling = match end {
            CapacityEnd::Target => {
                let (settled, plan) = trials.plan(beyond(&answer, least), Depth::Full, &[])?;
                crate::run::calibrate(&settled, &plan, control.world, control.stop)
            }
            CapacityEnd::DataSet | CapacityEnd::UpTo | CapacityEnd::Stop => None,
        };
        Ok(CapacityFound {
            workload: smallest.plan.workload,
            store,
            target: trials.target,
            confirmation,
            end,
            coverage: trials.coverage(&answer, bounds)?,
            files_for_twice: trials.files_for(answer.ranks.max(least) * 2),
            least,
            nodes: control.world.topology().nodes(),
            answer,
            ceiling,
            interrupted: control.stop.wished(),
        })
    }
}

/// The smallest number of ranks that these processes can play. It varies, so it cannot be given for each process.
fn least_ranks(topology: &Topology) -> Result<u64, Error> {
    let least = topology.members();
    topology.check(least).map_err(|_| Error::FixedRanks)?;
    Ok(least)
}

fn on_ranks(mut asked: Asked, ranks: u64) -> Asked {
    asked.ask.ranks = Some(ranks);
    asked
}

/// The runs of a search.
struct Trials<'a> {
    asked: Asked,
    host: &'a Host,
    facts: SharedFacts,
    control: StudyControl<'a>,
    target: f64,
    lengths: RunLengths,
}

/// Why a trial has no result.
enum TrialError<F> {
    Run(Box<Error>),
    /// The front end could not record it.
    Log(F),
}

impl<F> From<Error> for TrialError<F> {
    fn from(error: Error) -> TrialError<F> {
        TrialError::Run(Box::new(error))
    }
}

impl<'a> Trials<'a> {
    /// The workload on this number of ranks, and the plan of a trial: the settled one, or a part of it. A full run is
    /// refused if batches that are ready in advance could decide its result. All members make the same plan, and none
    /// of them waits for the others.
    fn plan(&self, ranks: u64, depth: Depth, earlier: &[Trial]) -> Result<(Settled<'a>, Plan), Error> {
        let mut asked = self.asked.clone();
        if self.makes_files()? {
            add_files(&mut asked.spec, ranks, self.lengths.probe.max(self.lengths.fewest));
        }
        let facts = self.facts.for_run(earlier.len() as u64);
        let settled = settle_again(on_ranks(asked, ranks), (self.host, facts))?;
        let plan = match depth {
            Depth::Probe => settled.plan.probe(self.lengths.probe)?,
            Depth::Short => {
                let steps = self.lengths.short(probe_of(earlier, ranks), 100.0 * self.target);
                settled.plan.probe(steps)?
            }
            Depth::Full => {
                settled.plan.trained()?.check_window(None)?;
                settled.plan.clone()
            }
        };
        Ok((settled, plan))
    }

    /// Whether the number of files is free: the backend reads no files, so none have to exist.
    fn makes_files(&self) -> Result<bool, Error> {
        let spec = &self.asked.spec;
        let selection = select(&self.asked.ask, spec, &self.asked.data_location())?.selection;
        Ok(!selection.plan().holds_files && spec.dataset.catalog.is_none())
    }

    /// The files that this number of ranks needs.
    fn files_for(&self, ranks: u64) -> u64 {
        let mut spec = self.asked.spec.clone();
        add_files(&mut spec, ranks, self.lengths.fewest);
        spec.dataset.num_files_train
    }

    /// The largest number of ranks to try, and what limits it.
    fn most_ranks(&self, least: u64, up_to: Option<u64>) -> Result<(u64, CapacityEnd), Error> {
        let wanted = up_to.unwrap_or(MOST_RANKS).max(least);
        // If any number of files is available, there is no limit to find, and a plan for the largest number takes
        // minutes if the size of each file is drawn.
        if self.makes_files()? {
            return Ok((wanted, CapacityEnd::UpTo));
        }
        let fits = |ranks: u64| match self.plan(ranks, Depth::Full, &[]) {
            Ok(_) => Ok(true),
            Err(Error::Plan(error)) if is_data_end(&error) => Ok(false),
            Err(error) => Err(error),
        };
        if fits(wanted)? {
            return Ok((wanted, CapacityEnd::UpTo));
        }
        let (mut most, mut beyond) = (least, wanted);
        while beyond - most > 1 {
            let middle = most + (beyond - most) / 2;
            if fits(middle)? { most = middle } else { beyond = middle }
        }
        Ok((most, CapacityEnd::DataSet))
    }

    /// Runs a plan and takes the figures of the trial from the result. `None` if it was stopped.
    fn run(&self, settled: &Settled<'_>, plan: &Plan, depth: Depth) -> Result<Option<Trial>, Error> {
        let measured = self.control.measure(settled, plan)?;
        // The epochs before an interrupted one have figures; they are not those of the whole trial.
        if measured.ledger.interrupted {
            return Ok(None);
        }
        if let Some(fault) = fault(&measured.ledger) {
            return Err(fault);
        }
        let plan = plan.trained()?;
        let figures = Figures::new(&measured.ledger, Phase::Train);
        let seen = figures.as_ref().and_then(|figures| {
            let (window, rate) = (figures.au_percent?.mean, figures.samples_per_second?.mean);
            Some((window, rate, figures.mib_per_second?.mean, figures.meets(self.target)?))
        });
        let au = epoch::estimate(&measured.ledger, plan, settled.plan.trained()?.window_steps());
        let Some(((window_au_percent, rate, mib_per_second, met), au)) = seen.zip(au) else {
            return Err(Error::TooShortToMeasure);
        };
        // Batches that were ready in advance raise the rate of a short run as much as its AU.
        let lasting = if window_au_percent > 0.0 { au.percent / window_au_percent } else { 1.0 };
        Ok(Some(Trial {
            ranks: plan.ranks(),
            depth,
            epochs: plan.epochs,
            steps: plan.train.shards.steps,
            au_percent: au.percent,
            au_interval: au.interval,
            window_au_percent,
            samples_per_second: rate * lasting,
            mb_per_second: megabytes_per_second(mib_per_second) * lasting,
            met: if depth == Depth::Full { met } else { au.percent + 1e-9 >= 100.0 * self.target },
            broken: measured.broken(),
            wall_seconds: measured.ledger.times.wall.seconds(),
        }))
    }

    fn coverage(
        &self,
        answer: &CapacityAnswer,
        Bounds { least, most, .. }: Bounds,
    ) -> Result<Coverage, Error> {
        let ranks = answer.ranks.max(least);
        let (_, plan) = self.plan(ranks, Depth::Full, &[])?;
        let mut full_seconds = seconds(&plan, Depth::Full, &answer.trials)?;
        if answer.ranks > 0 && ranks < most {
            let (_, more) = self.plan(ranks + 1, Depth::Full, &[])?;
            full_seconds += seconds(&more, Depth::Full, &answer.trials)?;
        }
        let training = plan.trained()?;
        Ok(Coverage {
            epochs: training.epochs,
            epoch_steps: training.train.shards.steps,
            evaluates: training.eval.is_some(),
            saves: self.asked.spec.workflow.checkpoint,
            full_seconds,
        })
    }
}

/// The runs of a search as it asks for them.
struct SearchRuns<'a, L> {
    trials: &'a Trials<'a>,
    bounds: Bounds,
    log: &'a mut L,
    /// The stage that was announced last.
    announced: Option<Depth>,
}

impl<L: StudyLog<Stage = CapacityStage, Run = Trial>> SearchRuns<'_, L> {
    /// The next trial: a recorded one, or a run. `None` after a stop request.
    fn next(
        &mut self,
        request: TrialRequest,
        earlier: &[Trial],
    ) -> Result<Option<Trial>, TrialError<L::Failure>> {
        let TrialRequest { ranks, depth, number, next } = request;
        let StudyControl { world, stop, .. } = self.trials.control;
        if self.trials.control.is_stopped() {
            return Ok(None);
        }
        let (settled, plan) = agree(self.trials.plan(ranks, depth, earlier), world, stop)?;
        if let Some(known) = self.recorded(&plan, depth)? {
            return Ok(Some(known));
        }
        settled.check_host(&plan, world, stop)?;
        let mut runs = vec![plan];
        if let Some(ranks) = next {
            let (_, plan) = self.trials.plan(ranks, depth, earlier)?;
            let is_known = self.recorded(&plan, depth)?.is_some();
            runs.extend((!is_known).then_some(plan));
        }
        let times = runs.iter().map(|plan| seconds(plan, depth, earlier)).collect::<Result<Vec<f64>, _>>()?;
        if self.announced != Some(depth) {
            self.announced = Some(depth);
            self.log.stage(&self.stage(depth, &runs, &times)?);
        }
        let accelerators = counted(ranks, "accelerator");
        let what = match depth {
            Depth::Probe => format!("probe {number}: {accelerators}"),
            // A run that contradicts the probes leads to more runs.
            Depth::Short | Depth::Full => {
                format!("{} run {number} of {}: {accelerators}", depth.name(), number + runs.len() as u64 - 1)
            }
        };
        self.log.begins(&RunStart { what, seconds_after: times[1..].iter().sum() });
        let Some(trial) = self.trials.run(&settled, &runs[0], depth)? else { return Ok(None) };
        self.trials.control.record(self.log.ended(&trial)).map_err(TrialError::Log)?;
        Ok(Some(trial))
    }

    /// What is known about a stage that begins with these runs, which are estimated to take these times.
    fn stage(&self, depth: Depth, runs: &[Plan], times: &[f64]) -> Result<CapacityStage, Error> {
        let steps = |plan: &Plan| Ok::<u64, Error>(plan.trained()?.train.shards.steps);
        if depth == Depth::Probe {
            let Bounds { least, most, .. } = self.bounds;
            let larger = EXAMPLES.into_iter().filter(|ranks| (least + 1..=most).contains(ranks));
            let examples = std::iter::once(least).chain(larger);
            let seconds = examples.map(|ranks| (ranks, length::probes_seconds(self.bounds, times[0], ranks)));
            return Ok(CapacityStage::Probes { steps: steps(&runs[0])?, seconds: seconds.collect() });
        }
        let ranks_and_steps = runs.iter().map(|plan| Ok((plan.ranks, steps(plan)?)));
        Ok(CapacityStage::Confirmation {
            depth,
            epochs: runs[0].trained()?.epochs,
            runs: ranks_and_steps.collect::<Result<_, Error>>()?,
            seconds: times.iter().sum(),
        })
    }

    /// The trial of this plan, if the front end has recorded it.
    fn recorded(&self, plan: &Plan, depth: Depth) -> Result<Option<Trial>, Error> {
        let training = plan.trained()?;
        let run = (plan.ranks, depth, training.train.shards.steps, training.epochs);
        let is_it = |trial: &Trial| (trial.ranks, trial.depth, trial.steps, trial.epochs) == run;
        self.trials.control.of_member_0(self.log.recorded(&is_it))
    }
}

/// The probe with this number of ranks.
fn probe_of(trials: &[Trial], ranks: u64) -> Option<&Trial> {
    trials.iter().find(|trial| trial.ranks == ranks && trial.depth == Depth::Probe)
}

/// The estimated time of a run.
fn seconds(plan: &Plan, depth: Depth, earlier: &[Trial]) -> Result<f64, Error> {
    let training = plan.trained()?;
    let compute = match depth {
        // A part of a plan keeps the estimate of the whole.
        Depth::Full => training.estimate.compute_seconds,
        Depth::Probe | Depth::Short => training.train.compute.mean() * training.train.shards.steps as f64,
    };
    Ok(length::seconds(compute, probe_of(earlier, plan.ranks)))
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
