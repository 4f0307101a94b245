//! `feedline stall`: what holds the accelerators up, by differences. The same steps are run without data, with data on
//! the storage and with data in memory; what one run takes longer than the other is the stall that the difference
//! between them causes.

pub mod attribution;
pub mod cache;

use anyhow::anyhow;
use engine::Stop;
use engine::host::Host;
use model::ledger::Phase;
use model::plan::TrainingPlan;
use model::spec::{CacheState, Preprocess, Spec, Time};

use super::stage::{Measured, Stage, Venue};
use super::{Prepared, prepare, stop_on_signals};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::StallFlags;
use crate::progress::Show;
use crate::report;
use crate::report::stall::StallReport;
use attribution::{Attribution, Timed};
use cache::State;

/// Steps at the start that do not count: the pipeline fills.
const WARM_UP: u64 = 5;
/// About how long the steps of a run compute.
const SECONDS: f64 = 10.0;
/// Steps when they compute nothing.
const STEPS: u64 = 500;

pub fn stall(flags: &StallFlags) -> Ending {
    let prepared = prepare(&flags.workload.workload, flags.overrides())?;
    let host = Host::look();
    let mut stall = Stall { flags, prepared, host: &host, data_is_there: false };
    stall.cut()?;
    let stage = stall.settle(|_| {})?;
    stage.check_host()?;
    if !flags.output.quiet {
        report::warnings(&stage.prepared.warnings);
    }
    stage.check_data()?;
    let (show, stop) = (Show::choose(flags.output.quiet), stop_on_signals()?);
    let stage = stage.make_data(show, &stop)?;
    stall.data_is_there = true;
    let seen = Runner { show, stop: &stop }.run_all(&stall, &stage)?;
    let (plan, training) = (&stage.plan, stage.training()?);
    let report = StallReport {
        workload: &plan.workload,
        store: &training.store,
        ranks: plan.ranks,
        readers_per_rank: training.loader.readers_per_rank,
        steps: training.train.shards.steps - WARM_UP,
        warm_up_steps: WARM_UP,
        attribution: Attribution::of(&seen.timed()?),
        cold: seen.cold_state.clone(),
        warm: seen.warm_state.clone(),
        broken: seen.broken(),
    };
    match flags.output.json {
        true => report::out_json(&report.json())?,
        false => report::out(&report.text())?,
    }
    Ok(if report.broken.is_empty() { Exit::Ok } else { Exit::CheckFailed })
}

struct Stall<'a> {
    flags: &'a StallFlags,
    prepared: Prepared,
    host: &'a Host,
    data_is_there: bool,
}

impl<'a> Stall<'a> {
    /// Cuts the workload down to the steps that are compared.
    fn cut(&mut self) -> Result<(), Failure> {
        let spec = &mut self.prepared.spec;
        (spec.train.epochs, spec.workflow.evaluation) = (1, false);
        with_cache(spec, CacheState::Cold);
        (spec.output.metric.exclude_start_steps, spec.output.metric.exclude_end_steps) = (0, 0);
        let stage = self.settle(|_| {})?;
        let plan = stage.training()?;
        let possible = plan.train.shards.steps;
        let needed = WARM_UP.saturating_add(plan.steps_to_measure(None));
        let default = || default_steps(plan).max(needed);
        let steps = self.flags.steps.unwrap_or_else(default).min(possible);
        if steps < needed {
            return Err(Failure::usage(anyhow!(
                "too few steps, {steps}: {needed} are needed, {WARM_UP} that fill the pipeline and 20 for each batch \
                 that can be ready in advance; raise --steps or dataset.num_files_train, or lower reader.prefetch_size"
            )));
        }
        self.prepared.spec.train.total_training_steps = Some(steps);
        self.prepared.spec.output.metric.exclude_start_steps = WARM_UP;
        Ok(())
    }

    /// The workload with a change.
    fn settle(&self, change: impl FnOnce(&mut Spec)) -> Result<Stage<'a>, Failure> {
        let mut prepared = self.prepared.clone();
        change(&mut prepared.spec);
        let (place, ranks) = (&self.flags.place, self.flags.ranks);
        let venue = Venue {
            place,
            store: None,
            ranks,
            data_is_there: self.data_is_there,
            checkpoints: None,
            host: self.host,
        };
        Stage::settle(prepared, venue)
    }
}

fn default_steps(plan: &TrainingPlan) -> u64 {
    let compute = plan.train.compute.mean();
    let steps = if compute > 0.0 { (SECONDS / compute).ceil() as u64 } else { STEPS };
    WARM_UP + steps
}

/// Batches that nobody has to make ready.
fn without_preprocessing(spec: &mut Spec) {
    spec.reader.preprocess = Preprocess::None;
}

/// Accelerators that take all they can get, unprepared: what memory brings.
fn without_work(spec: &mut Spec) {
    without_preprocessing(spec);
    spec.train.computation_time = Time::Constant(0.0);
}

/// The files in memory, or none of them.
fn with_cache(spec: &mut Spec, state: CacheState) {
    (spec.reader.cache, spec.reader.drop_caches) = (state, false);
}

/// The four runs, and the state of the cache before two of them; a store without page cache has none.
struct Seen {
    synthetic: Measured,
    cold: Measured,
    warm: Measured,
    memory: Measured,
    cold_state: Option<State>,
    warm_state: Option<State>,
}

struct Runner<'a> {
    show: Show,
    stop: &'a Stop,
}

impl Runner<'_> {
    fn run_all(&self, stall: &Stall<'_>, stage: &Stage<'_>) -> Result<Seen, Failure> {
        let synthetic = self.run("synthetic", &stall.settle(without_preprocessing)?.on_null_store())?;
        if stage.training()?.store.cached {
            let warm = |spec: &mut Spec| with_cache(spec, CacheState::Warm);
            let cold = self.run("cold", stage)?;
            let warm = self.run("warm", &stall.settle(warm)?)?;
            let memory = |spec: &mut Spec| {
                with_cache(spec, CacheState::Warm);
                without_work(spec);
            };
            let memory = self.run("memory", &stall.settle(memory)?)?;
            let (cold_state, warm_state) = (Some(cache::empty(&cold)), Some(cache::full(&warm)));
            return Ok(Seen { synthetic, cold, warm, memory, cold_state, warm_state });
        }
        let cold = self.run("cold", stage)?;
        let warm = self.run("warm", &stall.settle(|_| {})?.on_null_store())?;
        let memory = self.run("memory", &stall.settle(without_work)?.on_null_store())?;
        Ok(Seen { synthetic, cold, warm, memory, cold_state: None, warm_state: None })
    }

    fn run(&self, what: &str, stage: &Stage<'_>) -> Result<Measured, Failure> {
        if self.show != Show::Nothing {
            report::note(&format!("{what} run, {} steps", stage.training()?.train.shards.steps));
        }
        let measured = stage.measure(None, self.show, self.stop)?;
        match measured.fault() {
            Some(fault) => Err(Failure::incomplete(fault.context(format!("{what} run")))),
            None if self.stop.wished() => Err(Failure::incomplete(anyhow!("interrupted in the {what} run"))),
            None => Ok(measured),
        }
    }
}

impl Seen {
    fn timed(&self) -> Result<Timed, Failure> {
        let total = self.cold.ledger.total(1, Phase::Train);
        let measured = total.window.steps as f64 / total.steps.max(1) as f64;
        Ok(Timed {
            // Accelerators without work that never wait take no time.
            synthetic_seconds: seconds(&self.synthetic),
            warm_seconds: some(seconds(&self.warm))?,
            cold_seconds: some(seconds(&self.cold))?,
            memory_seconds: some(seconds(&self.memory))?,
            bytes: total.bytes_read as f64 * measured,
        })
    }

    /// The rules that a run broke, with the run's name. The memory run has no timeline to keep to.
    fn broken(&self) -> Vec<String> {
        let runs = [("synthetic", &self.synthetic), ("cold", &self.cold), ("warm", &self.warm)];
        let named = |(name, run): (&str, &Measured)| {
            let rules = run.broken();
            (!rules.is_empty()).then(|| format!("{name} run: {}", rules.join(", ")))
        };
        runs.into_iter().filter_map(named).collect()
    }
}

/// How long the counted steps took, over the ranks' mean.
fn seconds(measured: &Measured) -> f64 {
    let rows: Vec<f64> =
        measured.ledger.rows(1, Phase::Train).map(|(_, row)| row.window.time_ns.seconds()).collect();
    rows.iter().sum::<f64>() / rows.len().max(1) as f64
}

/// Batches that were ready before they were asked for leave nothing to measure.
fn some(seconds: f64) -> Result<f64, Failure> {
    let too_short = || Failure::incomplete(anyhow!("the runs are too short to measure; raise --steps"));
    (seconds > 0.0).then_some(seconds).ok_or_else(too_short)
}
