//! Executes a settled run. The result is a complete ledger with conditions, host counts, calibration, checkpoints and
//! times.

use std::borrow::Cow;

use engine::generate::read_manifest;
use engine::host::{self, HostCounts};
use engine::meter::{self, Monotonic};
use engine::world::{Cause, gather_to_all, sum_on_node};
use engine::{Stop, TrainingSetup, Truth, World};
use format::{Arithmetic, Content};
use model::ledger::{Calibration, Conditions, Ledger, RunTimes};
use model::plan::{Data, Plan};
use model::spec::Verify;
use model::units::Nanos;
use model::verdict::{Case, Verdict, judge};
use store::Store;
use store::page_cache::PageCache;

use crate::checkpoint::RunCheckpoints;
use crate::error::Error;
use crate::ledgers;
use crate::members::{agree, named};
use crate::observe::{Activity, ActivityUnit, Observer, RecordedRun, Recorder, observed, recorded};
use crate::settle::{Settled, TrainingRun};

/// When feedline's own ceiling is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalibrationTime {
    Never,
    BeforeRun,
    /// The run begins about a second earlier. A run that does not finish has no calibration.
    AfterRun,
}

/// The inputs of a run.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a bundle of references to ports")]
pub struct RunTask<'a> {
    /// The settled plan, or a variant of it.
    pub plan: &'a Plan,
    pub calibrate: CalibrationTime,
    /// Whether every member gets the ledger of the whole run, and not only member 0.
    pub share: bool,
    pub world: &'a dyn World,
    pub observer: &'a dyn Observer,
    /// Records the operations of the run, if they are to be recorded.
    pub recorder: Option<&'a dyn Recorder>,
    pub stop: &'a Stop,
}

/// Runs a plan and returns the ledger, even of an incomplete run. An error says why there is no ledger. With several
/// members, member 0 gets the ledger of the whole run; the others get it, too, if the task shares it.
pub fn run(settled: &Settled<'_>, task: &RunTask<'_>) -> Result<Ledger, Error> {
    let mut calibration = task.calibrates(CalibrationTime::BeforeRun, settled);
    let stop = &settled.asked.patient(task.stop);
    let task = RunTask { stop, ..*task };
    let (before, start, cpu_before) = (HostCounts::read(), meter::timestamp(), meter::cpu_seconds());
    let (mut ledger, wall) = match settled.trainer(task.plan) {
        Some(trainer) => trainer.run(&task)?,
        None => save(settled, &task)?,
    };
    ledger.times = RunTimes {
        start,
        end: meter::timestamp(),
        wall,
        cpu: Nanos::from_seconds(meter::cpu_seconds() - cpu_before),
    };
    ledger.conditions += host_conditions(before, task.world, stop);
    if task.calibrate == CalibrationTime::AfterRun && all_finished(&ledger, &task) {
        calibration = task.calibrates(CalibrationTime::AfterRun, settled);
    }
    ledger.calibration = calibration;
    let members = ledgers::conditions(task.world, settled.host, task.plan.ranks);
    ledger.conditions += members.unwrap_or_default();
    let ledger = ledgers::add_up(ledger, &task);
    if task.world.member() == 0 {
        task.observer.measured(&ledger);
    }
    Ok(ledger)
}

impl RunTask<'_> {
    /// Measures the ceiling if this is the time for it.
    fn calibrates(&self, now: CalibrationTime, settled: &Settled<'_>) -> Option<Calibration> {
        (self.calibrate == now).then(|| calibrate(settled, self.plan, self.world, self.stop)).flatten()
    }
}

/// Whether the run finished at all members, so that all of them can do more together.
fn all_finished(ledger: &Ledger, task: &RunTask<'_>) -> bool {
    let finished = !ledger.interrupted && ledger.faults().is_empty();
    let all = gather_to_all(task.world, &[u8::from(finished)], task.stop);
    all.is_ok_and(|all| all.iter().all(|finished| finished[..] == [1]))
}

/// What else this host did since `before`. Counted once per host, when all of its members have finished; unknown if
/// they did not.
fn host_conditions(before: Option<HostCounts>, world: &dyn World, stop: &Stop) -> Conditions {
    let own = host::own_ticks_since(before);
    let of_node = sum_on_node(world, own, stop).ok();
    let (topology, node) = (world.topology(), world.node());
    let own = of_node.or((topology.members_on(node).count() == 1).then_some(own));
    let seen = world.leads_node().then(|| match own {
        Some(own) => host::seen_since(before, own),
        None => host::seen_since(None, 0),
    });
    let hosts = seen.map(|seen| (topology.name(node).to_owned(), seen)).into_iter().collect();
    Conditions { hosts, ..Conditions::default() }
}

/// The ledger of a run, and the verdict on it.
#[derive(Debug)]
pub struct MeasuredRun {
    pub ledger: Ledger,
    pub verdict: Verdict,
}

impl MeasuredRun {
    /// The rules of the verdict that failed.
    pub fn broken(&self) -> Vec<String> {
        self.verdict.broken().map(str::to_owned).collect()
    }
}

/// Runs a plan and judges what was seen. All members get the same verdict.
pub fn measure(settled: &Settled<'_>, task: &RunTask<'_>) -> Result<MeasuredRun, Error> {
    let ledger = run(settled, task)?;
    let stop = &task.stop.with_patience(settled.asked.stall_timeout());
    let verdict = ledgers::agreed_verdict(&RunTask { stop, ..*task }, || {
        judge(&Case { plan: Some(task.plan), ledger: &ledger })
    });
    Ok(MeasuredRun { ledger, verdict })
}

/// Feedline's own ceiling for a plan: the lowest of all members, the same at all of them. `None` if the plan uses the
/// null backend or does not train, or if the calibration was stopped.
pub fn calibrate(settled: &Settled<'_>, plan: &Plan, world: &dyn World, stop: &Stop) -> Option<Calibration> {
    let stop = &stop.with_patience(settled.asked.stall_timeout());
    let trainer = settled.trainer(plan).filter(|trainer| !trainer.plan.store.is_null())?;
    let (plan, format) = (trainer.plan, &*trainer.reading.format);
    let own = trainer.with_files(|files| engine::calibrate(plan, format, files, world, stop));
    let own = own.unwrap_or_else(|error| {
        // The others would wait for this member.
        world.announce(Cause::Failed(error.to_string()));
        None
    });
    if world.members() == 1 {
        return own;
    }
    let all = gather_to_all(world, &serde_json::to_vec(&own).ok()?, stop).ok()?;
    let all = all.iter().map(|written| serde_json::from_slice::<Option<Calibration>>(written).ok().flatten());
    all.reduce(|one, other| Some(one?.lower(other?))).flatten()
}

/// The fault that ended the run early, if any.
pub fn fault(ledger: &Ledger) -> Option<Error> {
    let fault = ledger.faults().first()?;
    let (epoch, phase, message) = (fault.epoch, fault.phase, fault.message.clone());
    Some(Error::Stopped { epoch, phase, message })
}

/// The content of files, and the data set that they belong to.
type KnownData<'a> = (Content, Cow<'a, Data>);

/// A ledger, and how long the work took.
type TimedLedger = (Ledger, Nanos);

fn save(settled: &Settled<'_>, task: &RunTask<'_>) -> Result<TimedLedger, Error> {
    let Some(saving) = saving(settled, task) else { return Ok(TimedLedger::default()) };
    saving.alone(task)
}

/// The checkpoints of the task's plan.
fn saving<'a>(settled: &'a Settled<'_>, task: &RunTask<'a>) -> Option<RunCheckpoints<'a>> {
    let (tiers, plan) = settled.tiers.as_ref().zip(task.plan.checkpoint.as_ref())?;
    let (model, seed) = (task.plan.model.as_str(), settled.asked.spec.train.seed);
    Some(RunCheckpoints { plan, model, tiers, seed, observer: task.observer })
}

/// What a run reads from.
struct OpenedData<'a> {
    store: Box<dyn Store>,
    known: Option<KnownData<'a>>,
    pages: Option<PageCache>,
}

impl TrainingRun<'_> {
    fn run(&self, task: &RunTask<'_>) -> Result<TimedLedger, Error> {
        let OpenedData { store, known, pages } = match agree(self.open(), task.world, task.stop) {
            // A member was asked to stop during the calibration.
            Err(Error::Member(ended)) if ended.cause == Cause::Stopped => {
                let mut ledger = Ledger::default();
                ledger.interrupted = true;
                return Ok((ledger, Nanos::ZERO));
            }
            opened => opened?,
        };
        let truth = known
            .as_ref()
            .and_then(|(content, data)| data.computed().map(|data| Truth { content: *content, data }));
        let (mut ledger, wall) = self.train((&*store, pages.as_ref()), truth, task)?;
        ledger.conditions += self.conditions(&*store);
        Ok((ledger, wall))
    }

    /// Opens the data set, which was checked before.
    fn open(&self) -> Result<OpenedData<'_>, Error> {
        self.check_catalog()?;
        let place = &self.reading.place;
        let store = self.selection.open(place.clone()).map_err(Error::DataFolder)?;
        self.check_complete(&*store)?;
        let folder = place.path().ok().filter(|_| self.selection.plan().opens_files());
        let pages = folder.map(|folder| PageCache::below(folder).map_err(Error::Store)).transpose()?;
        Ok(OpenedData { store, known: self.known_data()?, pages })
    }

    fn train(
        &self,
        (store, pages): (&dyn Store, Option<&PageCache>),
        truth: Option<Truth<'_>>,
        task: &RunTask<'_>,
    ) -> Result<TimedLedger, Error> {
        let clock = Monotonic::new();
        let origin = clock.wall_origin();
        let saving = saving(self.settled, task);
        let goal = Activity { what: "training", unit: ActivityUnit::Samples, total: self.plan.samples() };
        let (trained, wall) = observed(task.observer, task.world, goal, |events| {
            self.with_files(|files| {
                let rig = TrainingSetup {
                    plan: self.plan,
                    world: task.world,
                    format: &*self.reading.format,
                    store,
                    pages,
                    files,
                    truth,
                    checkpoints: None,
                    clock: &clock,
                    stop: task.stop,
                    events,
                };
                let recorded_run = RecordedRun { events, world: task.world, files: Some(files) };
                recorded(task.recorder, recorded_run, || match &saving {
                    Some(saving) => saving.beside(self, &rig),
                    None => engine::train(&rig).map_err(|error| named(Error::Cache(error), task.world)),
                })
            })
        });
        let mut ledger = trained??;
        ledger.records.origin = origin;
        Ok((ledger, wall))
    }

    /// What the rules need in addition to the engine's observations.
    fn conditions(&self, store: &dyn Store) -> Conditions {
        let unhonoured = self.settled.asked.unhonoured.iter().map(ToString::to_string).collect();
        let mut conditions = Conditions { unhonoured, ..Conditions::default() };
        for (property, value) in self.selection.requested() {
            conditions.request(property, &value);
        }
        conditions.observe("store", store.name());
        for (property, value) in store.observed() {
            conditions.observe(property, &value);
        }
        if self.holds_files() {
            conditions.observe("data_folder", &self.reading.place.to_string());
        }
        if self.plan.data.found().is_some() {
            conditions.observe("file_sizes", "as found");
        }
        conditions
    }

    /// Checks that no other process has begun to write the data set since it was checked.
    fn check_complete(&self, store: &dyn Store) -> Result<(), Error> {
        if !self.holds_files() || self.plan.data.listed().is_some() {
            return Ok(());
        }
        match read_manifest(store).map_err(Error::Manifest)? {
            Some(there) if !there.complete => {
                Err(self.no_data_set("another process is writing it, or was interrupted".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// The expected content of the files, if they are to be compared and a manifest describes them.
    fn known_data(&self) -> Result<Option<KnownData<'_>>, Error> {
        if self.plan.verify == Verify::None || !self.holds_files() {
            return Ok(None);
        }
        let manifest = read_manifest(&*self.settled.asked.open_data()?).map_err(Error::Manifest)?;
        let Some(there) = manifest.filter(|manifest| manifest.complete) else { return Ok(None) };
        let (Some(seed), Some(share), Some((train, valid))) =
            (there.seed(), there.compressible(), there.counts())
        else {
            return Ok(None);
        };
        let content = Content::new(seed).compressible(share);
        if self.plan.data.listed().is_none() {
            return Ok(Some((content, Cow::Borrowed(&self.plan.data))));
        }
        // A plan with a catalog has no names, shapes and numbers of files.
        let mut spec = self.settled.asked.spec.clone();
        let set = &mut spec.dataset;
        (set.num_files_train, set.num_files_generated, set.num_files_eval) = (train, None, valid);
        let data = Data::resolve(&spec, Some(&Arithmetic(&*self.reading.format)))?;
        Ok(Some((content, Cow::Owned(data))))
    }
}
