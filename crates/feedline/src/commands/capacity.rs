//! `feedline capacity`: how many accelerators this storage feeds at the workload's AU. The number is searched with
//! short probes and shown with full runs of it and of its neighbour, which must fail.

use anyhow::anyhow;
use engine::Stop;
use engine::host::Host;
use model::ledger::Phase;
use model::metrics::Figures;
use model::plan::{Plan, PlanError, TrainingPlan};
use model::spec::Spec;
use model::study::search::{Bounds, Depth, Trial, search};
use model::units::counted;
use session::{Ask, Asked, Error, Generate, Settled, settle};

use super::{ask_at, measure, read, stop_on_signals};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::CapacityFlags;
use crate::progress::Show;
use crate::report;
use crate::report::capacity::{CapacityReport, End, trial_line};

/// Compute time of a probe's steps, if that makes more of them.
const PROBE_SECONDS: f64 = 2.0;
/// More ranks than a plan takes.
const MOST_RANKS: u64 = 1 << 20;

pub fn capacity(flags: &CapacityFlags) -> Ending {
    if let Some(up_to) = flags.up_to.filter(|up_to| *up_to < flags.from) {
        return Err(Failure::usage(anyhow!("--from {} lies beyond --up-to {up_to}", flags.from)));
    }
    let ask = ask_at(&flags.workload, flags.overrides(), &flags.place)?;
    let asked = read(Ask { checkpoints: None, ..ask })?;
    let host = Host::look();
    let mut capacity = Capacity { flags, asked, host: &host, steps: 0, fewest: 0 };
    let single = capacity.settle(capacity.asked.clone(), 1)?;
    let training = single.plan.trained().map_err(Error::Plan)?;
    let demand = training.estimate.demand.ok_or_else(no_compute)?.samples_per_second;
    let target = training.metric.au_target;
    capacity.fewest = counted_and_excluded(training, training.steps_to_measure(None));
    capacity.steps = flags.steps.unwrap_or_else(|| capacity.fewest.max(steps_by_time(training)));
    [Depth::Confirmed, Depth::Probe]
        .into_iter()
        .try_for_each(|depth| capacity.trial_of(1, depth).map(drop))?;
    let (most, end) = capacity.most_ranks()?;
    single.check_host(&single.plan)?;
    if !flags.output.quiet {
        report::warnings(&single.asked.warnings);
    }
    single.check_data()?;
    let (show, stop) = (Show::choose(flags.output.quiet), stop_on_signals()?);
    let plan = single.make_data(&show, &stop)?.plan;
    capacity.asked.ask.generate = Generate::Never;
    let bounds = Bounds { from: flags.from, most, demand: demand * target };
    let answer = search(bounds, |ranks, depth| capacity.run(ranks, depth, show, &stop))?;
    let end = if answer.ranks == most { end } else { End::Target };
    let ceiling = match end {
        End::Target => {
            let (settled, plan) = capacity.trial_of(answer.ranks + 1, Depth::Confirmed)?;
            session::calibrate(&settled, &plan, &stop)
        }
        End::DataSet | End::UpTo => None,
    };
    let (workload, store) = (capacity.asked.name(), &plan.trained().map_err(Error::Plan)?.store);
    conclude(flags, &CapacityReport { workload, store, target, answer, end, ceiling })
}

fn no_compute() -> Failure {
    Failure::usage(anyhow!(
        "accelerators that compute nothing can never be fed: train.computation_time is 0; set it to the time of a step"
    ))
}

/// As many steps as compute for a while.
fn steps_by_time(plan: &TrainingPlan) -> u64 {
    counted_and_excluded(plan, (PROBE_SECONDS / plan.train.compute.mean()).ceil() as u64)
}

/// Steps of an epoch in which so many count.
fn counted_and_excluded(plan: &TrainingPlan, counted: u64) -> u64 {
    let excluded = plan.metric.exclude_start_steps.saturating_add(plan.metric.exclude_end_steps);
    counted.saturating_add(excluded)
}

fn conclude(flags: &CapacityFlags, report: &CapacityReport<'_>) -> Ending {
    match flags.output.json {
        true => report::out_json(&report.json())?,
        false => report::out(&report.text())?,
    }
    if !report.answer.clear {
        return Err(Failure::incomplete(anyhow!(
            "no border was found: full runs contradict the probes; raise --steps, or see how the rate varies with \
             'feedline sweep --over ranks=..'"
        )));
    }
    Ok(if report.is_valid() { Exit::Ok } else { Exit::CheckFailed })
}

struct Capacity<'a> {
    flags: &'a CapacityFlags,
    asked: Asked,
    host: &'a Host,
    /// Of a probe.
    steps: u64,
    /// The fewest of an epoch of a full run.
    fewest: u64,
}

impl<'a> Capacity<'a> {
    /// The workload for so many ranks, and the plan of a trial: the settled one, or a probe of it. Full runs in which
    /// batches that were ready in advance could make the result are refused.
    fn trial_of(&self, ranks: u64, depth: Depth) -> Result<(Settled<'a>, Plan), Error> {
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

    fn settle(&self, mut asked: Asked, ranks: u64) -> Result<Settled<'a>, Error> {
        asked.ask.ranks = Some(ranks);
        settle(asked, self.host)
    }

    /// Where nothing has to be there to be read, there can be files for any number of ranks.
    fn makes_files(&self) -> Result<bool, Error> {
        let spec = &self.asked.spec;
        let selection = session::select(spec, self.asked.ask.store.as_deref())?;
        Ok(!selection.plan().holds_files && spec.dataset.catalog.is_none())
    }

    /// The most ranks that there can be, and what forbids more.
    fn most_ranks(&self) -> Result<(u64, End), Error> {
        let wanted = self.flags.up_to.unwrap_or(MOST_RANKS);
        // A plan with files for so many takes minutes where each file's size is drawn, and says nothing.
        if self.makes_files()? {
            return Ok((wanted, End::UpTo));
        }
        let fits = |ranks: u64| match self.trial_of(ranks, Depth::Confirmed) {
            Ok(_) => Ok(true),
            Err(Error::Plan(error)) if is_data_end(&error) => Ok(false),
            Err(error) => Err(error),
        };
        if fits(wanted)? {
            return Ok((wanted, End::UpTo));
        }
        let (mut most, mut beyond) = (1, wanted);
        while beyond - most > 1 {
            let middle = most + (beyond - most) / 2;
            if fits(middle)? { most = middle } else { beyond = middle }
        }
        Ok((most, End::DataSet))
    }

    fn run(&self, ranks: u64, depth: Depth, show: Show, stop: &Stop) -> Result<Trial, Failure> {
        let trial = || -> Result<Trial, Failure> {
            let (settled, plan) = self.trial_of(ranks, depth)?;
            settled.check_host(&plan)?;
            trial(&settled, &plan, depth, show, stop)
        };
        let named = |failure: Failure| failure.context(format!("with {}", counted(ranks, "rank")));
        let trial = trial().map_err(named)?;
        if show != Show::Nothing {
            report::note(&trial_line(&trial));
        }
        Ok(trial)
    }
}

/// Trains and looks at what one wants to know of it.
fn trial(
    settled: &Settled<'_>,
    plan: &Plan,
    depth: Depth,
    show: Show,
    stop: &Stop,
) -> Result<Trial, Failure> {
    let measured = measure(settled, plan, false, show, stop)?;
    if let Some(fault) = session::fault(&measured.ledger) {
        return Err(fault.into());
    }
    let plan = plan.trained().map_err(Error::Plan)?;
    let figures = Figures::new(&measured.ledger, Phase::Train);
    let seen = figures.as_ref().and_then(|figures| {
        let (au, rate) = (figures.au_percent?.mean, figures.samples_per_second?.mean);
        Some((au, rate, figures.mib_per_second?.mean, figures.meets(plan.metric.au_target)?))
    });
    // An epoch that was interrupted has no figures, but those before it have.
    let seen = seen.filter(|_| !measured.ledger.interrupted);
    let Some((au_percent, samples_per_second, mib_per_second, met)) = seen else {
        return Err(Failure::incomplete(anyhow!("interrupted")));
    };
    Ok(Trial {
        ranks: plan.ranks(),
        depth,
        steps: plan.train.shards.steps,
        au_percent,
        samples_per_second,
        mb_per_second: report::megabytes(mib_per_second),
        met,
        broken: measured.broken(),
    })
}

/// As many files as give every rank its steps; never fewer than the workload has.
fn add_files(spec: &mut Spec, ranks: u64, steps: u64) {
    let steps = steps.max(spec.train.total_training_steps.unwrap_or(0));
    let samples = ranks.saturating_mul(spec.reader.batch_size).saturating_mul(steps);
    let files = samples.div_ceil(spec.dataset.num_samples_per_file.max(1));
    spec.dataset.num_files_train = spec.dataset.num_files_train.max(files);
    let generated = &mut spec.dataset.num_files_generated;
    *generated = generated.map(|generated| generated.max(spec.dataset.num_files_train));
}

/// Whether the data set is too small for so many ranks, and nothing else is wrong.
fn is_data_end(error: &PlanError) -> bool {
    matches!(
        error,
        PlanError::TooFewSamples { .. }
            | PlanError::NothingToMeasure { .. }
            | PlanError::WindowTooShort { .. }
            | PlanError::TooManySteps { .. }
    )
}
