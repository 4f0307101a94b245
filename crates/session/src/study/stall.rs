//! What the accelerators wait for, by differences. The same steps run without data, with data on the storage and with
//! data in memory; the time that one run takes longer than another is the stall that their difference causes.

use engine::host::Host;
use model::ledger::{Ledger, Phase};
use model::plan::{Plan, StorePlan, TrainingPlan};
use model::spec::CacheState;
use model::study::attribution::{Attribution, StallRun, StallTimes};
use model::study::cache::{self, CacheCheck};
use model::warning::Warning;

use super::{RunStart, StudyControl, StudyLog};
use crate::ask::Asked;
use crate::error::Error;
use crate::run::fault;
use crate::settle::{Settled, settle};

/// Steps at the start that do not count, because the pipeline fills.
const WARM_UP: u64 = 5;
/// How long the steps of a run compute, approximately.
const SECONDS: f64 = 10.0;
/// The number of steps if they compute nothing.
const STEPS: u64 = 500;

/// The result of an analysis.
#[derive(Clone, Debug)]
pub struct StallFound {
    pub workload: String,
    pub store: StorePlan,
    pub ranks: u64,
    /// The number of processes that play the ranks, and of their hosts.
    pub processes: u64,
    pub nodes: u64,
    pub readers_per_rank: u64,
    /// The number of steps that count, and of those before them, which do not.
    pub steps: u64,
    pub warm_up_steps: u64,
    pub attribution: Attribution,
    /// The page cache before the cold and the warm run; `None` for a backend that does not use it.
    pub cold: Option<CacheCheck>,
    pub warm: Option<CacheCheck>,
    /// The rules that each run broke, with the name of the run.
    pub broken: Vec<String>,
    /// Synthetic, cold, warm and memory.
    pub runs: [StallRun; 4],
}

/// What is known about an analysis before its first run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallStage {
    pub runs: u64,
    /// Of each run.
    pub steps: u64,
    /// The time of all runs if accelerators never wait.
    pub seconds: f64,
}

/// An analysis that is settled and can begin.
#[expect(missing_debug_implementations, reason = "holds a format")]
pub struct Stall<'a> {
    settled: Settled<'a>,
    steps: Option<u64>,
    control: StudyControl<'a>,
}

impl<'a> Stall<'a> {
    /// Settles an analysis of this number of steps (`None`: enough to measure), and refuses a workload or a host for
    /// which it has no answer.
    pub fn settle(
        asked: Asked,
        host: &'a Host,
        steps: Option<u64>,
        control: &StudyControl<'a>,
    ) -> Result<Stall<'a>, Error> {
        let StudyControl { world, stop, .. } = *control;
        let settled = settle(asked, host, world, stop)?;
        let plan = cut(steps, &settled.plan)?;
        settled.check_host(&plan, world, stop)?;
        Ok(Stall { settled, steps, control: *control })
    }

    pub fn warnings(&self) -> &[Warning] {
        &self.settled.asked.warnings
    }

    /// Checks that the data set exists, unless it is to be generated.
    pub fn check_data(&self) -> Result<(), Error> {
        self.settled.check_data(self.control.world, self.control.stop)
    }

    /// The workload, as it was asked for.
    pub fn asked(&self) -> &Asked {
        &self.settled.asked
    }

    /// Generates missing data if that was asked for, and runs the analysis.
    pub fn run<L>(self, log: &mut L) -> Result<StallFound, L::Failure>
    where
        L: StudyLog<Stage = StallStage, Run = StallRun>,
    {
        let Stall { settled, steps, control } = self;
        let settled = settled.make_data(control.world, control.observer, control.stop)?;
        // The sizes of compressed files, and with them the plan, are known only now.
        let plan = cut(steps, &settled.plan)?;
        let runs = Runner { settled: &settled, control: &control, log }.run_all(&plan)?;
        let training = plan.trained().map_err(Error::from)?;
        Ok(StallFound {
            store: training.store.clone(),
            ranks: plan.ranks,
            processes: control.world.members(),
            nodes: control.world.topology().nodes(),
            readers_per_rank: training.loader.readers_per_rank,
            steps: training.train.shards.steps - WARM_UP,
            warm_up_steps: WARM_UP,
            attribution: Attribution::of(&timed(&runs)?),
            broken: broken(&runs),
            cold: runs[1].cache.clone(),
            warm: runs[2].cache.clone(),
            workload: plan.workload,
            runs,
        })
    }
}

/// The steps that are compared, with an empty page cache.
fn cut(steps: Option<u64>, plan: &Plan) -> Result<Plan, Error> {
    let training = plan.trained()?;
    let needed = WARM_UP.saturating_add(training.steps_to_measure(None));
    let default = || default_steps(training).max(needed);
    let steps = steps.unwrap_or_else(default).min(training.train.shards.steps);
    if steps < needed {
        return Err(Error::TooFewSteps { steps, needed, warm_up: WARM_UP });
    }
    let cut = plan.with_window(WARM_UP, 0).and_then(|plan| plan.probe(steps))?;
    Ok(cut.with_cache(CacheState::Cold))
}

fn default_steps(plan: &TrainingPlan) -> u64 {
    let compute = plan.train.compute.mean();
    let steps = if compute > 0.0 { (SECONDS / compute).ceil() as u64 } else { STEPS };
    WARM_UP + steps
}

/// The four runs.
const RUNS: [&str; 4] = ["synthetic", "cold", "warm", "memory"];

/// The page cache before a run, from its ledger.
type CacheLook = fn(&Ledger) -> CacheCheck;

struct Runner<'a, L> {
    settled: &'a Settled<'a>,
    control: &'a StudyControl<'a>,
    log: &'a mut L,
}

impl<L: StudyLog<Stage = StallStage, Run = StallRun>> Runner<'_, L> {
    fn run_all(&mut self, plan: &Plan) -> Result<[StallRun; 4], L::Failure> {
        let [synthetic, cold, warm, memory] = RUNS;
        let (steps, compute) = {
            let train = &plan.trained().map_err(Error::from)?.train;
            (train.shards.steps, train.compute.mean() * train.shards.steps as f64)
        };
        // The last run computes nothing.
        self.log.stage(&StallStage { runs: RUNS.len() as u64, steps, seconds: 3.0 * compute });
        let idle = plan.without_preprocessing();
        let first = self.run(synthetic, &idle.on_null_backend(), None, 2.0 * compute)?;
        let cached = self.settled.selection.plan().cached;
        let look = |look: CacheLook| cached.then_some(look);
        let second = self.run(cold, plan, look(cache::empty), compute)?;
        let in_memory =
            |plan: &Plan| if cached { plan.with_cache(CacheState::Warm) } else { plan.on_null_backend() };
        let third = self.run(warm, &in_memory(plan), look(cache::full), 0.0)?;
        // Neither compute nor preprocessing, so its rate is that of reading from memory.
        let fourth = self.run(memory, &in_memory(&idle.without_compute()), None, 0.0)?;
        Ok([first, second, third, fourth])
    }

    /// Does a run, unless it is recorded.
    fn run(
        &mut self,
        name: &str,
        plan: &Plan,
        look: Option<CacheLook>,
        seconds_after: f64,
    ) -> Result<StallRun, L::Failure> {
        let steps = plan.trained().map_err(Error::from)?.train.shards.steps;
        let is_it = |run: &StallRun| run.run == name && run.steps == steps && run.ranks == plan.ranks;
        if let Some(known) = self.control.of_member_0(self.log.recorded(&is_it))? {
            return Ok(known);
        }
        let number = RUNS.iter().position(|run| *run == name).map_or(0, |index| index + 1);
        let what = format!("{name} run, {number} of {}", RUNS.len());
        self.log.begins(&RunStart { what, seconds_after });
        let measured = self.control.measure(self.settled, plan)?;
        if self.control.is_stopped() {
            return Err(Error::InterruptedIn(format!("{name} run")).into());
        }
        if let Some(fault) = fault(&measured.ledger) {
            return Err(fault.during(format!("{name} run")).into());
        }
        let total = measured.ledger.total(1, Phase::Train);
        let counted = total.window.steps as f64 / total.steps.max(1) as f64;
        let run = StallRun {
            run: name.to_owned(),
            ranks: plan.ranks,
            steps,
            seconds: seconds(&measured.ledger),
            bytes: total.bytes_read as f64 * counted,
            cache: look.map(|look| look(&measured.ledger)),
            broken: measured.broken(),
            wall_seconds: measured.ledger.times.wall.seconds(),
        };
        self.control.record(self.log.ended(&run))?;
        Ok(run)
    }
}

fn timed([synthetic, cold, warm, memory]: &[StallRun; 4]) -> Result<StallTimes, Error> {
    Ok(StallTimes {
        // 0 where accelerators compute nothing and never wait.
        synthetic_seconds: synthetic.seconds,
        warm_seconds: measurable(warm.seconds)?,
        cold_seconds: measurable(cold.seconds)?,
        memory_seconds: measurable(memory.seconds)?,
        bytes: cold.bytes,
    })
}

/// The rules that each run broke. The memory run is not judged: without compute it has no timeline to keep to.
fn broken([synthetic, cold, warm, _]: &[StallRun; 4]) -> Vec<String> {
    let broken = [synthetic, cold, warm].into_iter().filter(|run| !run.broken.is_empty());
    broken.map(|run| format!("{} run: {}", run.run, run.broken.join(", "))).collect()
}

/// How long the steps that count took, as a mean over the ranks.
fn seconds(ledger: &Ledger) -> f64 {
    let rows: Vec<f64> = ledger.rows(1, Phase::Train).map(|(_, row)| row.window.time_ns.seconds()).collect();
    rows.iter().sum::<f64>() / rows.len().max(1) as f64
}

/// Refuses a time of 0: all batches were ready before they were asked for.
fn measurable(seconds: f64) -> Result<f64, Error> {
    (seconds > 0.0).then_some(seconds).ok_or(Error::TooShortToMeasure)
}
