//! Whole runs on a fake clock: every span is exact, and nothing sleeps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use format::Arithmetic;
use model::files::Computed;
use model::ledger::{Agreement, ClockReading, RankRow};
use model::metrics::Figures;
use model::plan::{Placement, Plan, Request, StorePlan};
use model::spec::{self, Override, WorkloadSource};
use model::verdict::{self, Case, RuleOutcome, Status, Verdict};
use store::{
    Capabilities, Fetch, FetchWait, Fetched, FinishedFetch, Lane, Now, Null, Selection, Spans, Store,
    StoreError, Threads, Traffic,
};

use super::*;
use crate::events::Detail;
use crate::figures::{LiveFigures, Progress};
use crate::meter::{self, FakeClock};
use crate::world::{Barrier, Exchange, Solo, Topology};

/// The store's part of a plan. The stores of these tests are not in the registry.
fn planned(store: &dyn Store) -> StorePlan {
    let Capabilities { threads, cached, .. } = store.capabilities();
    match store.name() {
        "null" => Selection::null().plan(),
        name => StorePlan { text: name.to_owned(), threads, cached, ..StorePlan::default() },
    }
}

pub(crate) fn plan(settings: &[&str], ranks: u64, store: &dyn Store) -> TrainingPlan {
    let text = "
framework: pytorch
dataset: {format: npz, num_files_train: 60, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0.01}
";
    let overrides: Vec<Override> = settings.iter().map(|text| Override::hydra(text, *text)).collect();
    let spec = spec::read(WorkloadSource { name: "test", text }, &overrides).unwrap().spec;
    let request = Request {
        workload: "test",
        ranks,
        placement: Placement::even(ranks, 1, 1),
        host_memory_bytes: 1 << 30,
        cores: 2,
        store: &planned(store),
        memory: None,
        entropy: 1,
        measure: Some(&Arithmetic(&*format::plain(&spec.dataset.format).unwrap())),
        listed: None,
    };
    TrainingPlan::resolve(&spec, &request).unwrap()
}

/// The verdict on a run that only trains.
pub(crate) fn judge(plan: &TrainingPlan, ledger: &Ledger) -> Verdict {
    let plan = Plan {
        workload: "test".to_owned(),
        model: "test".to_owned(),
        ranks: plan.ranks(),
        hosts: 1,
        compat: Vec::new(),
        training: Some(plan.clone()),
        checkpoint: None,
    };
    verdict::judge(&Case { plan: Some(&plan), ledger })
}

pub(crate) fn computed(plan: &TrainingPlan) -> (Computed<'_>, Computed<'_>) {
    let data = plan.data.computed().unwrap();
    (data.files_of(&data.train), data.files_of(&data.valid))
}

/// Calls `work` with all inputs of a run of a plan.
pub(crate) fn with_rig<T>(
    plan: &TrainingPlan,
    store: &dyn Store,
    clock: &dyn Clock,
    stop: &Stop,
    work: impl FnOnce(&TrainingSetup<'_>) -> T,
) -> T {
    let format = format::plain(&plan.format).unwrap();
    let ((train, valid), events) = (computed(plan), Events::default());
    let files = SplitFiles { train: &train, valid: &valid };
    let (pages, truth, events) = (None, None, &events);
    let world = &Solo::new();
    work(&TrainingSetup {
        plan,
        world,
        format: &*format,
        store,
        pages,
        files,
        truth,
        checkpoints: None,
        clock,
        stop,
        events,
    })
}

fn run(plan: &TrainingPlan, store: &dyn Store, clock: &FakeClock) -> Ledger {
    with_rig(plan, store, clock, &Stop::default(), |rig| train(rig).unwrap())
}

fn null() -> Box<dyn Store> {
    Box::new(Null)
}

/// A store with one channel: each fetch advances the fake clock by its service time. From fetch `fails_at` on it panics
/// or fails.
#[derive(Debug)]
pub(crate) struct Slow<'a> {
    pub(crate) clock: &'a FakeClock,
    pub(crate) service: Nanos,
    pub(crate) fetches: AtomicU64,
    pub(crate) fails_at: u64,
    pub(crate) panics: bool,
    /// Requested from fetch `stops_at` on.
    pub(crate) stop: Stop,
    pub(crate) stops_at: u64,
    /// The fetch that hangs until the phase is aborted.
    pub(crate) hangs_at: u64,
}

impl<'a> Slow<'a> {
    pub(crate) fn new(clock: &'a FakeClock, millis: u64) -> Slow<'a> {
        let service = Nanos(millis * 1_000_000);
        let (fetches, stop) = (AtomicU64::new(0), Stop::default());
        let never = u64::MAX;
        Slow {
            clock,
            service,
            fetches,
            fails_at: never,
            panics: false,
            stop,
            stops_at: never,
            hangs_at: never,
        }
    }
}

struct SlowLane<'a>(&'a Slow<'a>, Option<FinishedFetch>, &'a AtomicBool);

impl Lane for SlowLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        let store = self.0;
        let fetch_number = store.fetches.fetch_add(1, Ordering::SeqCst);
        if fetch_number >= store.stops_at {
            store.stop.wish();
        }
        while fetch_number == store.hangs_at && !self.2.load(Ordering::SeqCst) {
            meter::pause(Duration::from_millis(1));
        }
        let outcome = if fetch_number >= store.fails_at {
            assert!(!store.panics, "as asked");
            Err(StoreError::Missing { name: fetch.name.to_string() })
        } else {
            store.clock.sleep_until(store.clock.now() + store.service, &|| false);
            let bytes = fetch.ranges.iter().map(|range| range.len).sum();
            Ok(Fetched { bytes, opens: 1, reads: 1, ..Fetched::default() })
        };
        self.1 =
            Some(FinishedFetch { reader, at: store.clock.now(), began: fetch.at, outcome, kept: fetch.into });
    }

    fn reap(&mut self) -> Option<FinishedFetch> {
        self.1.take()
    }

    fn awaits(&self) -> FetchWait {
        FetchWait::Nothing
    }

    fn take_spans(&mut self) -> Spans {
        Spans::default()
    }
}

impl Store for Slow<'_> {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            holds_files: false,
            threads: Threads::PerReader,
            brings_bytes: false,
            cached: false,
            odirect: false,
        }
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        Ok(Box::new(SlowLane(self, None, traffic.give_up)))
    }

    fn files(&self) -> &dyn store::Files {
        static NONE: Null = Null;
        NONE.files()
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

fn millis(nanos: Nanos) -> f64 {
    nanos.0 as f64 / 1e6
}

#[test]
fn on_the_null_store_every_step_only_computes() {
    let (store, clock) = (null(), FakeClock::default());
    let plan = plan(&[], 3, &*store);
    let ledger = run(&plan, &*store, &clock);
    assert_eq!(clock.now(), Nanos(80_000_000), "2 epochs x 4 steps x 10 ms");
    for epoch in [1, 2] {
        for (_, row) in ledger.rows(epoch, Phase::Train) {
            assert_eq!((row.steps, row.samples_delivered), (4, 20));
            assert_eq!(
                (millis(row.wait_ns), millis(row.compute_ns), millis(row.barrier_ns)),
                (0.0, 40.0, 0.0)
            );
            assert_eq!(
                (row.window.steps, millis(row.window.compute_ns), millis(row.window.time_ns)),
                (3, 30.0, 30.0)
            );
            assert_eq!((row.opens, row.bytes_read), (20, 20 * plan.data.visit_bytes.unwrap()));
        }
    }
    assert_eq!(ledger.first_batch_ns, Some(Nanos(0)));
    let figures = Figures::new(&ledger, Phase::Train).unwrap();
    assert_eq!(figures.au_percent.map(|au| (au.mean, au.stdev)), Some((100.0, 0.0)));
    assert_eq!(figures.samples_per_second.map(|rate| rate.mean), Some(3.0 * 5.0 / 0.01));
}

#[test]
fn without_prefetch_every_step_waits_for_its_whole_batch() {
    // One reader, 5 fetches of 3 ms per batch, then 10 ms of compute: 15 + 10 ms per step.
    let clock = FakeClock::default();
    let store = Slow::new(&clock, 3);
    let plan = plan(&["reader.prefetch_size=0", "reader.read_threads=1"], 1, &store);
    let ledger = run(&plan, &store, &clock);
    let row = ledger.total(1, Phase::Train);
    assert_eq!((row.steps, ledger.first_batch_ns.map(millis)), (12, Some(15.0)));
    assert_eq!((millis(row.wait_ns), millis(row.compute_ns)), (12.0 * 15.0, 12.0 * 10.0));
    // The window excludes the first step, in steps, compute and time.
    assert_eq!((row.window.steps, millis(row.window.time_ns)), (11, 11.0 * 25.0));
    let au = Figures::new(&ledger, Phase::Train).unwrap().au_percent.unwrap();
    assert!((au.mean - 40.0).abs() < 1e-9, "{au:?}");
}

#[test]
fn ranks_wait_for_the_slowest_at_the_barrier() {
    let (store, clock) = (null(), FakeClock::default());
    let plan = plan(&["train.computation_time={type: uniform, min: 0.01, max: 0.03}"], 4, &*store);
    let ledger = run(&plan, &*store, &clock);
    let rows: Vec<RankRow> = ledger.rows(1, Phase::Train).map(|(_, row)| *row).collect();
    let whole: Vec<u64> = rows.iter().map(|row| (row.compute_ns + row.barrier_ns).0).collect();
    assert!(whole.iter().all(|time| *time == whole[0]), "all ranks leave every step together: {whole:?}");
    assert!(rows.iter().any(|row| row.barrier_ns > Nanos::ZERO));
}

#[test]
fn evaluation_has_no_barrier_and_its_own_batches() {
    let (store, clock) = (null(), FakeClock::default());
    let settings = [
        "workflow.evaluation=true",
        "dataset.num_files_eval=12",
        "reader.batch_size_eval=2",
        "evaluation.eval_time={type: uniform, min: 0.01, max: 0.03}",
        "evaluation.epochs_between_evals=2",
    ];
    let plan = plan(&settings, 2, &*store);
    let ledger = run(&plan, &*store, &clock);
    assert_eq!(ledger.epochs(Phase::Eval), [1]);
    let rows: Vec<RankRow> = ledger.rows(1, Phase::Eval).map(|(_, row)| *row).collect();
    assert!(
        rows.iter().all(|row| row.steps == 3 && row.barrier_ns == Nanos::ZERO && row.samples_delivered == 6)
    );
    assert_ne!(rows[0].compute_ns, rows[1].compute_ns, "each rank draws its own times");
}

#[test]
fn a_complete_run_passes_every_rule_that_applies() {
    let (store, clock) = (null(), FakeClock::default());
    let plan = plan(&["dataset.num_samples_per_file=3"], 2, &*store);
    let mut ledger = run(&plan, &*store, &clock);
    ledger.conditions.request("store", "null");
    ledger.conditions.observe("store", store.name());
    let verdict = judge(&plan, &ledger);
    assert_eq!(verdict.status, Status::Unverified);
    // The null store delivers no bytes, so their origin and content cannot be checked.
    let of_bytes = ["cache", "data-verified"];
    for finding in verdict.rules.iter().filter(|finding| !of_bytes.contains(&finding.rule.as_str())) {
        assert!(matches!(finding.outcome, RuleOutcome::Pass | RuleOutcome::Note), "{finding:?}");
    }
}

#[test]
fn a_failing_fetch_ends_the_run_and_is_named() {
    for (panics, words) in [(false, "does not exist"), (true, "a reader panicked: as asked")] {
        let clock = FakeClock::default();
        let store = Slow { fails_at: 77, panics, ..Slow::new(&clock, 1) };
        let plan = plan(&["reader.read_threads=3"], 2, &store);
        let ledger = run(&plan, &store, &clock);
        let fault = &ledger.faults()[0];
        assert_eq!(fault.epoch, 2, "60 samples in epoch 1, then 17");
        assert!(fault.message.starts_with("rank ") && fault.message.contains(words), "{}", fault.message);
        let verdict = judge(&plan, &ledger);
        assert_eq!(verdict.status, Status::Incomplete);
    }
}

#[test]
fn errors_are_counted_and_their_samples_left_out() {
    let clock = FakeClock::default();
    let store = Slow { fails_at: 100, ..Slow::new(&clock, 1) };
    let settings = ["reader.read_threads=3", "reader.on_error=count", "reader.error_limit=20"];
    let plan = plan(&settings, 2, &store);
    let ledger = run(&plan, &store, &clock);
    assert!(ledger.faults().is_empty(), "{:?}", ledger.faults());
    let (first, second) = (ledger.total(1, Phase::Train), ledger.total(2, Phase::Train));
    assert_eq!((first.samples_delivered, first.failed.samples), (60, 0));
    assert_eq!((second.samples_delivered, second.failed.samples), (40, 20));
    assert_eq!(second.bytes_read + second.bytes_failed, second.bytes_planned);
    assert_eq!((ledger.errors().count(), ledger.errors().to_string().as_str()), (20, "enoent 20"));
    let verdict = judge(&plan, &ledger);
    let outcome = |rule: &str| verdict.rules.iter().find(|finding| finding.rule == rule).unwrap().outcome;
    for rule in ["complete", "exactly-once", "bytes-as-planned"] {
        assert_eq!(outcome(rule), RuleOutcome::Pass, "{rule}");
    }
    assert_eq!(outcome("errors"), RuleOutcome::Note);
    let figures = Figures::new(&ledger, Phase::Train).unwrap();
    let rate = figures.epochs[1].samples_per_second.unwrap();
    let counted = rate * second.window.time_ns.seconds() / plan.ranks() as f64;
    assert!(counted <= 40.5, "samples that were not read are in no rate: {counted}");
}

/// A world that panics at the first barrier.
struct Broken(Solo);

impl Exchange for Broken {
    fn topology(&self) -> &Topology {
        self.0.topology()
    }

    fn member(&self) -> u64 {
        self.0.member()
    }

    fn announce(&self, cause: Cause) {
        self.0.announce(cause);
    }

    fn agree(&self, here: Result<(), Cause>, stop: &Stop) -> Result<(), EarlyEnd> {
        self.0.agree(here, stop)
    }

    fn broadcast(&self, bytes: &mut Vec<u8>, stop: &Stop) -> Result<(), EarlyEnd> {
        self.0.broadcast(bytes, stop)
    }

    fn gather(&self, bytes: &[u8], stop: &Stop, take: &mut dyn FnMut(u64, &[u8])) -> Result<(), EarlyEnd> {
        self.0.gather(bytes, stop, take)
    }
}

impl World for Broken {
    fn arrive(&self, _: Barrier, _: Nanos) {
        panic!("as asked")
    }

    fn released(&self) -> Option<Nanos> {
        self.0.released()
    }

    fn wait(&self, stop: &Stop, timeout: Duration) -> Result<(), EarlyEnd> {
        self.0.wait(stop, timeout)
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn synchronize(&self, clock: &dyn Clock, stop: &Stop) -> Result<ClockReading, EarlyEnd> {
        self.0.synchronize(clock, stop)
    }

    fn background(&self) -> &dyn Exchange {
        self.0.background()
    }

    fn figures(&self) -> Vec<(u64, LiveFigures)> {
        self.0.figures()
    }

    fn publish(&self, progress: LiveFigures) {
        self.0.publish(progress);
    }

    fn take_agreement(&self) -> Vec<(u64, Agreement)> {
        self.0.take_agreement()
    }

    fn transport(&self) -> Option<String> {
        self.0.transport()
    }
}

#[test]
fn a_panic_of_the_accelerators_ends_the_phase() {
    let clock = FakeClock::default();
    let store = Slow::new(&clock, 1);
    // All prefetched batches are ready before the first step ends; the readers of later ones wait for space.
    let plan = plan(&["reader.prefetch_size=2"], 2, &store);
    let mut ledger = Ledger::default();
    let ended = with_rig(&plan, &store, &clock, &Stop::default(), |rig| {
        let rig = &TrainingSetup { world: &Broken(Solo::new()), ..*rig };
        let preparer = CachePreparer::new(rig);
        run_phase(rig, &plan.train, 1, (&PhaseCounters::read(&preparer, false), 1.0), &mut ledger)
    });
    let cause = ended.1.unwrap_err().cause;
    assert!(matches!(&cause, Cause::Failed(why) if why.contains("panicked: as asked")), "{cause}");
}

#[test]
fn a_stop_request_ends_the_run() {
    let (store, clock) = (null(), FakeClock::default());
    let plan = plan(&[], 2, &*store);
    let stop = Stop::default();
    stop.wish();
    assert!(with_rig(&plan, &*store, &clock, &stop, |rig| train(rig).unwrap()).interrupted);
}

#[test]
fn utilisation_is_a_share_whenever_a_run_is_stopped() {
    for stops_at in (0..60).step_by(3) {
        let clock = FakeClock::default();
        let store = Slow { stops_at, ..Slow::new(&clock, 1) };
        let settings =
            ["reader.prefetch_size=0", "reader.read_threads=1", "output.metric.exclude_start_steps=0"];
        let plan = plan(&settings, 3, &store);
        let ledger = with_rig(&plan, &store, &clock, &store.stop, |rig| train(rig).unwrap());
        assert!(ledger.interrupted);
        for (rank, row) in ledger.rows(1, Phase::Train) {
            let window = row.window;
            assert!(window.compute_ns <= window.time_ns, "stop at fetch {stops_at}, rank {rank}: {row:?}");
            assert_eq!(row.compute_ns, Nanos(row.steps * 10_000_000), "only finished steps are recorded");
        }
        let figures = Figures::new(&ledger, Phase::Train).unwrap();
        assert_eq!(figures.au_percent, None, "an unfinished epoch has no AU");
    }
}

/// One reader and batches of one sample, whose copy takes 4 ms, on a store that needs `service` for each fetch.
fn with_copies(overlapped: bool, service: u64) -> RankRow {
    let clock = FakeClock::default();
    let store = Slow::new(&clock, service);
    let prefetch = format!("train.device_prefetch={overlapped}");
    let settings = [
        "reader.batch_size=1",
        "reader.read_threads=1",
        "reader.prefetch_size=0",
        "train.epochs=1",
        &prefetch,
    ];
    let mut plan = plan(&settings, 1, &store);
    plan.device.copy_bytes_per_second = Some(plan.data.visit_bytes.unwrap() as f64 / 0.004);
    run(&plan, &store, &clock).total(1, Phase::Train)
}

#[test]
fn a_copy_to_the_accelerator_takes_time_or_is_hidden() {
    // Read 3 ms, copy 4 ms, compute 10 ms, one after the other.
    let row = with_copies(false, 3);
    assert_eq!((row.steps, millis(row.wait_ns), millis(row.copy_ns)), (60, 60.0 * 3.0, 60.0 * 4.0));
    // With read-ahead both end before the step does; only the first batch is waited for.
    let row = with_copies(true, 3);
    assert_eq!((row.steps, millis(row.wait_ns), millis(row.copy_ns)), (60, 3.0, 4.0));
    assert_eq!(millis(row.compute_ns), 600.0);
}

#[test]
fn every_step_and_phase_is_an_event() {
    let (store, clock) = (null(), FakeClock::default());
    let plan = plan(&["workflow.evaluation=true", "dataset.num_files_eval=12"], 2, &*store);
    with_rig(&plan, &*store, &clock, &Stop::default(), |rig| {
        let stream = rig.events.listen(Detail::Steps);
        let ledger = train(rig).unwrap();
        let drained = stream.drain();
        assert_eq!(drained.dropped, 0);
        let events: Vec<Event> = drained.events.into_iter().map(|stamped| stamped.event).collect();
        let count = |of: fn(&Event) -> bool| events.iter().filter(|event| of(event)).count() as u64;
        let rows = [(1, Phase::Train), (1, Phase::Eval), (2, Phase::Train), (2, Phase::Eval)];
        let steps: u64 = rows.iter().map(|(epoch, phase)| ledger.total(*epoch, *phase).steps).sum();
        assert_eq!(count(|event| matches!(event, Event::StepBegan { .. })), steps);
        assert_eq!(rig.events.progress().steps, steps);
        assert_eq!(rig.events.progress(), Progress::of_ledger(&ledger), "the counters equal the ledger");
        assert_eq!(count(|event| matches!(event, Event::FirstBatch { .. })), 8, "2 ranks, 4 phases");
        let milestones = events.iter().filter(|event| {
            matches!(event, Event::EpochBegan { .. } | Event::EpochEnded { .. } | Event::PhaseBegan { .. })
        });
        let began = |epoch, phase| Event::PhaseBegan { epoch, phase };
        let expected = [1, 2].map(|epoch| {
            let (first, last) = (Event::EpochBegan { epoch }, Event::EpochEnded { epoch });
            [first, began(epoch, Phase::Train), began(epoch, Phase::Eval), last]
        });
        assert_eq!(milestones.copied().collect::<Vec<_>>(), expected.concat());
    });
}
