//! What the accelerators wait for, by differences. The same steps run without data, with data on the storage and with
//! data in memory; the time that one run takes longer than another is the stall that their difference causes.

use engine::Solo;
use engine::host::Host;
use model::ledger::{Ledger, Phase};
use model::plan::{Plan, StorePlan, TrainingPlan};
use model::spec::CacheState;
use model::study::attribution::{Attribution, StallTimes};
use model::study::cache::{self, CacheCheck};
use model::warning::Warning;

use super::StudyControl;
use crate::ask::Asked;
use crate::error::Error;
use crate::run::{MeasuredRun, fault};
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
}

/// An analysis that is settled and can begin.
#[expect(missing_debug_implementations, reason = "holds a format")]
pub struct Stall<'a> {
    settled: Settled<'a>,
    steps: Option<u64>,
}

impl<'a> Stall<'a> {
    /// Settles an analysis of this number of steps (`None`: enough to measure), and refuses a workload or a host for
    /// which it has no answer.
    pub fn settle(asked: Asked, host: &'a Host, steps: Option<u64>) -> Result<Stall<'a>, Error> {
        let world = Solo::new(asked.ranks());
        let settled = settle(asked, host, &world)?;
        settled.check_host(&cut(steps, &settled.plan)?, &world)?;
        Ok(Stall { settled, steps })
    }

    fn world(&self) -> Solo {
        Solo::new(self.settled.plan.ranks)
    }

    pub fn warnings(&self) -> &[Warning] {
        &self.settled.asked.warnings
    }

    /// Checks that the data set exists, unless it is to be generated.
    pub fn check_data(&self) -> Result<(), Error> {
        self.settled.check_data(&self.world())
    }

    /// Generates missing data if that was asked for, and runs the analysis. `begins` is called before each run with
    /// its name and its number of steps.
    pub fn run(self, control: &StudyControl<'_>, begins: impl Fn(&str, u64)) -> Result<StallFound, Error> {
        let world = self.world();
        let settled = self.settled.make_data(&world, control.observer, control.stop)?;
        // The sizes of compressed files, and with them the plan, are known only now.
        let plan = cut(self.steps, &settled.plan)?;
        let runs = Runner { settled: &settled, control, begins: &begins }.run_all(&plan)?;
        let training = plan.trained()?;
        Ok(StallFound {
            store: training.store.clone(),
            ranks: plan.ranks,
            readers_per_rank: training.loader.readers_per_rank,
            steps: training.train.shards.steps - WARM_UP,
            warm_up_steps: WARM_UP,
            attribution: Attribution::of(&runs.timed()?),
            broken: runs.broken(),
            cold: runs.cold_check,
            warm: runs.warm_check,
            workload: plan.workload,
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

/// The four runs, and the state of the page cache before two of them.
struct Runs {
    synthetic: MeasuredRun,
    cold: MeasuredRun,
    warm: MeasuredRun,
    memory: MeasuredRun,
    cold_check: Option<CacheCheck>,
    warm_check: Option<CacheCheck>,
}

struct Runner<'a> {
    settled: &'a Settled<'a>,
    control: &'a StudyControl<'a>,
    begins: &'a dyn Fn(&str, u64),
}

impl Runner<'_> {
    fn run_all(&self, plan: &Plan) -> Result<Runs, Error> {
        let idle = plan.without_preprocessing();
        let synthetic = self.run("synthetic", &idle.on_null_backend())?;
        let cold = self.run("cold", plan)?;
        // The memory run has neither compute nor preprocessing, so its rate is that of reading from memory.
        if self.settled.selection.plan().cached {
            let warm = self.run("warm", &plan.with_cache(CacheState::Warm))?;
            let memory = self.run("memory", &idle.without_compute().with_cache(CacheState::Warm))?;
            let (cold_check, warm_check) =
                (Some(cache::empty(&cold.ledger)), Some(cache::full(&warm.ledger)));
            return Ok(Runs { synthetic, cold, warm, memory, cold_check, warm_check });
        }
        let warm = self.run("warm", &plan.on_null_backend())?;
        let memory = self.run("memory", &idle.without_compute().on_null_backend())?;
        Ok(Runs { synthetic, cold, warm, memory, cold_check: None, warm_check: None })
    }

    fn run(&self, what: &str, plan: &Plan) -> Result<MeasuredRun, Error> {
        (self.begins)(what, plan.training.as_ref().map_or(0, |training| training.train.shards.steps));
        let measured = self.control.measure(self.settled, plan)?;
        match fault(&measured.ledger) {
            Some(fault) => Err(fault.during(format!("{what} run"))),
            None if self.control.stop.wished() => Err(Error::InterruptedIn(format!("{what} run"))),
            None => Ok(measured),
        }
    }
}

impl Runs {
    fn timed(&self) -> Result<StallTimes, Error> {
        let total = self.cold.ledger.total(1, Phase::Train);
        let measured = total.window.steps as f64 / total.steps.max(1) as f64;
        Ok(StallTimes {
            // 0 where accelerators compute nothing and never wait.
            synthetic_seconds: seconds(&self.synthetic.ledger),
            warm_seconds: measurable(seconds(&self.warm.ledger))?,
            cold_seconds: measurable(seconds(&self.cold.ledger))?,
            memory_seconds: measurable(seconds(&self.memory.ledger))?,
            bytes: total.bytes_read as f64 * measured,
        })
    }

    /// The rules that each run broke. The memory run is not judged: without compute it has no timeline to keep to.
    fn broken(&self) -> Vec<String> {
        let runs = [("synthetic", &self.synthetic), ("cold", &self.cold), ("warm", &self.warm)];
        let named = |(name, run): (&str, &MeasuredRun)| {
            let rules = run.broken();
            (!rules.is_empty()).then(|| format!("{name} run: {}", rules.join(", ")))
        };
        runs.into_iter().filter_map(named).collect()
    }
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
