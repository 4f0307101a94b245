//! `feedline stall`: what holds the accelerators up, by differences. The same steps are run without data, with data on
//! the storage and with data in memory; what one run takes longer than the other is the stall that the difference
//! between them causes.

use anyhow::anyhow;
use engine::Stop;
use engine::host::Host;
use model::ledger::Phase;
use model::plan::{Plan, TrainingPlan};
use model::spec::CacheState;
use model::study::attribution::{Attribution, Timed};
use model::study::cache::{self, CacheCheck};
use session::{Ask, Error, Settled, settle};

use super::{Measured, ask_at, measure, read, stop_on_signals};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::StallFlags;
use crate::progress::Show;
use crate::report;
use crate::report::stall::StallReport;

/// Steps at the start that do not count: the pipeline fills.
const WARM_UP: u64 = 5;
/// About how long the steps of a run compute.
const SECONDS: f64 = 10.0;
/// Steps when they compute nothing.
const STEPS: u64 = 500;

pub fn stall(flags: &StallFlags) -> Ending {
    let ask = ask_at(&flags.workload, flags.overrides(), &flags.place)?;
    let asked = read(Ask { ranks: flags.ranks, checkpoints: None, ..ask })?;
    let host = Host::look();
    let settled = settle(asked, &host)?;
    let plan = cut(flags, &settled.plan)?;
    settled.check_host(&plan)?;
    if !flags.output.quiet {
        report::warnings(&settled.asked.warnings);
    }
    settled.check_data()?;
    let (show, stop) = (Show::choose(flags.output.quiet), stop_on_signals()?);
    let settled = settled.make_data(&show, &stop)?;
    // Sizes of compressed files are known once they are written.
    let plan = cut(flags, &settled.plan)?;
    let seen = Runner { settled: &settled, show, stop: &stop }.run_all(&plan)?;
    let training = plan.trained().map_err(Error::Plan)?;
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

/// The steps that are compared, with an empty page cache.
fn cut(flags: &StallFlags, plan: &Plan) -> Result<Plan, Failure> {
    let training = plan.trained().map_err(Error::Plan)?;
    let needed = WARM_UP.saturating_add(training.steps_to_measure(None));
    let default = || default_steps(training).max(needed);
    let steps = flags.steps.unwrap_or_else(default).min(training.train.shards.steps);
    if steps < needed {
        return Err(Failure::usage(anyhow!(
            "too few steps, {steps}: {needed} are needed, {WARM_UP} that fill the pipeline and 20 for each batch that \
             can be ready in advance; raise --steps or dataset.num_files_train, or lower reader.prefetch_size"
        )));
    }
    let cut = plan.with_window(WARM_UP, 0).and_then(|plan| plan.probe(steps)).map_err(Error::Plan)?;
    Ok(cut.with_cache(CacheState::Cold))
}

fn default_steps(plan: &TrainingPlan) -> u64 {
    let compute = plan.train.compute.mean();
    let steps = if compute > 0.0 { (SECONDS / compute).ceil() as u64 } else { STEPS };
    WARM_UP + steps
}

/// The four runs, and the state of the cache before two of them; a store without page cache has none.
struct Seen {
    synthetic: Measured,
    cold: Measured,
    warm: Measured,
    memory: Measured,
    cold_state: Option<CacheCheck>,
    warm_state: Option<CacheCheck>,
}

struct Runner<'a> {
    settled: &'a Settled<'a>,
    show: Show,
    stop: &'a Stop,
}

impl Runner<'_> {
    fn run_all(&self, plan: &Plan) -> Result<Seen, Failure> {
        let idle = plan.without_preprocessing();
        let synthetic = self.run("synthetic", &idle.on_null_backend())?;
        let cold = self.run("cold", plan)?;
        if self.settled.selection.plan().cached {
            let warm = self.run("warm", &plan.with_cache(CacheState::Warm))?;
            // Accelerators that take all they can get, unprepared: what memory brings.
            let memory = self.run("memory", &idle.without_compute().with_cache(CacheState::Warm))?;
            let (cold_state, warm_state) =
                (Some(cache::empty(&cold.ledger)), Some(cache::full(&warm.ledger)));
            return Ok(Seen { synthetic, cold, warm, memory, cold_state, warm_state });
        }
        let warm = self.run("warm", &plan.on_null_backend())?;
        let memory = self.run("memory", &idle.without_compute().on_null_backend())?;
        Ok(Seen { synthetic, cold, warm, memory, cold_state: None, warm_state: None })
    }

    fn run(&self, what: &str, plan: &Plan) -> Result<Measured, Failure> {
        if self.show != Show::Nothing {
            let steps = plan.training.as_ref().map_or(0, |training| training.train.shards.steps);
            report::note(&format!("{what} run, {steps} steps"));
        }
        let measured = measure(self.settled, plan, false, self.show, self.stop)?;
        match session::fault(&measured.ledger) {
            Some(fault) => Err(Failure::from(fault).context(format!("{what} run"))),
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
