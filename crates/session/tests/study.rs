//! Studies through the library alone: a search, an analysis and a sweep, without the binary.

use std::collections::BTreeSet;

use engine::host::Host;
use engine::{Solo, Stop, World};
use feedline_session::study::{
    Capacity, CapacityRange, CapacityStage, RunStart, Stall, StallStage, StudyControl, StudyLog, Sweep,
};
use feedline_session::{Ask, Asked, Error, ErrorKind, SilentObserver, WorkloadText};
use model::spec::Override;
use model::study::attribution::{Bottleneck, StallRun};
use model::study::grid::{Axis, SweepCell, SweepGrid, SweepRun};
use model::study::search::{CapacityEnd, Depth, SearchState, Trial};
use serde::Serialize;
use serde::de::DeserializeOwned;

const WORKLOAD: &str = "
framework: pytorch
dataset: {format: npz, num_files_train: 400, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2, prefetch_size: 1}
train: {epochs: 1, computation_time: 0.01}
";

fn asked(store: &str, overrides: Vec<Override>, ranks: u64) -> Result<Asked, Error> {
    let (name, source, text) = ("w".to_owned(), "w.yaml".to_owned(), WORKLOAD.to_owned());
    let ask = Ask::new(WorkloadText { name, source, text, ranks, built_in: false });
    Ask { overrides, store: Some(store.to_owned()), checkpoints: None, ..ask }.read()
}

/// A device that serves one request at a time, 4 ms each: a batch of 5 takes 20 ms, and a step computes for 10 ms.
const SLOW: &str = "sim:latency=4ms,bandwidth=1GB/s,channels=1";

/// Keeps everything that a study reports, and returns earlier runs.
struct Notes<S, R> {
    stages: Vec<S>,
    starts: Vec<RunStart>,
    earlier: Vec<R>,
    runs: Vec<R>,
    /// Requests a stop after this number of runs.
    stop_after: Option<(usize, Stop)>,
}

impl<S, R> Default for Notes<S, R> {
    fn default() -> Notes<S, R> {
        let (stages, starts) = (Vec::new(), Vec::new());
        Notes { stages, starts, earlier: Vec::new(), runs: Vec::new(), stop_after: None }
    }
}

impl<S: Clone, R: Clone + Serialize + DeserializeOwned> StudyLog for Notes<S, R> {
    type Stage = S;
    type Run = R;
    type Failure = Error;

    fn stage(&mut self, stage: &S) {
        self.stages.push(stage.clone());
    }

    fn begins(&mut self, run: &RunStart) {
        self.starts.push(run.clone());
    }

    fn recorded(&self, is_it: &dyn Fn(&R) -> bool) -> Option<R> {
        self.earlier.iter().find(|run| is_it(run)).cloned()
    }

    fn ended(&mut self, run: &R) -> Result<(), Error> {
        self.runs.push(run.clone());
        if let Some((after, stop)) = self.stop_after.as_ref().filter(|(after, _)| *after == self.runs.len()) {
            assert!(*after > 0);
            stop.wish();
        }
        Ok(())
    }
}

fn control<'a>(world: &'a dyn World, stop: &'a Stop) -> StudyControl<'a> {
    StudyControl { world, observer: &SilentObserver, stop }
}

type TrialNotes = Notes<CapacityStage, Trial>;

fn range(up_to: u64, confirmation: Depth) -> CapacityRange {
    CapacityRange { from: 1, up_to: Some(up_to), steps: Some(30), confirmation }
}

#[test]
fn a_capacity_search_reports_every_trial() {
    let (host, world, stop) = (Host::look(), Solo::new(), Stop::default());
    let control = control(&world, &stop);
    for (store, end, ranks) in [("null", CapacityEnd::UpTo, 2), (SLOW, CapacityEnd::Target, 0)] {
        let asked = asked(store, Vec::new(), 1).unwrap();
        let capacity = Capacity::settle(asked, &host, range(2, Depth::Full), &control).unwrap();
        capacity.check_data().unwrap();
        let mut notes = TrialNotes::default();
        let found = capacity.run(&mut notes).unwrap();
        assert_eq!(
            (found.end, found.answer.ranks, found.answer.state),
            (end, ranks, SearchState::Clear),
            "{store}: {found:?}"
        );
        assert_eq!(notes.runs, found.answer.trials);
        assert_eq!(notes.starts.len(), notes.runs.len(), "each run is announced");
        assert!(matches!(
            notes.stages.as_slice(),
            [CapacityStage::Probes { .. }, CapacityStage::Confirmation { .. }]
        ));
        assert_eq!((found.workload.as_str(), found.ceiling.is_some()), ("w", end == CapacityEnd::Target));
    }
}

/// A short run would take 20 s, but an epoch has only 80 steps of 10 ms.
#[test]
fn stages_state_their_runs_and_estimated_times() {
    let (host, world, stop) = (Host::look(), Solo::new(), Stop::default());
    let control = control(&world, &stop);
    let capacity = |confirmation| {
        let asked = asked("sim:latency=500us,bandwidth=1GB/s,channels=1", Vec::new(), 1).unwrap();
        let mut notes = TrialNotes::default();
        let capacity = Capacity::settle(asked, &host, range(1, confirmation), &control).unwrap();
        let found = capacity.run(&mut notes).unwrap();
        (notes, found)
    };
    let (notes, found) = capacity(Depth::Short);
    let [CapacityStage::Probes { steps: 30, seconds }, confirmation] = &notes.stages[..] else {
        panic!("{:?}", notes.stages)
    };
    let [(1, all_probes)] = seconds[..] else { panic!("{seconds:?}") };
    assert!((all_probes - 0.3).abs() < 1e-9, "one probe of 30 steps of 10 ms: {all_probes}");
    let CapacityStage::Confirmation { depth: Depth::Short, epochs: 1, runs, seconds } = confirmation else {
        panic!("{confirmation:?}")
    };
    assert_eq!(runs[..], [(1, 80)]);
    let expected = 80.0 * 0.01 / (notes.runs[0].au_percent / 100.0);
    assert!((seconds - expected).abs() < 1e-9, "80 steps at the AU of the probe: {seconds}, {expected}");
    assert_eq!(notes.starts[0].what, "probe 1: 1 accelerator");
    assert_eq!(notes.starts[1].what, "short run 1 of 1: 1 accelerator");
    let trial = found.answer.of(1).unwrap();
    assert!(trial.au_percent < 80.0 && !trial.met && trial.is_decided(90.0), "{trial:?}");
    let (notes, _) = capacity(Depth::Probe);
    assert_eq!((notes.stages.len(), notes.runs.len()), (1, 1), "no confirmation");
}

#[test]
fn a_stopped_search_is_partial_and_is_resumed_from_its_trials() {
    let (host, world, stop) = (Host::look(), Solo::new(), Stop::default());
    let settle = |stop| {
        // A target that even a busy machine reaches.
        let asked = asked("null", vec![Override::new("metric.au", 0.01, "test")], 1).unwrap();
        Capacity::settle(asked, &host, range(4, Depth::Short), &control(&world, stop)).unwrap()
    };
    let mut notes = TrialNotes { stop_after: Some((2, stop.clone())), ..TrialNotes::default() };
    let part = settle(&stop).run(&mut notes).unwrap();
    assert_eq!((part.end, part.answer.state), (CapacityEnd::Stop, SearchState::Stopped));
    assert!(part.interrupted && part.answer.ranks == 2, "{part:?}");
    let fresh = Stop::default();
    let mut again = TrialNotes { earlier: notes.runs.clone(), ..TrialNotes::default() };
    let whole = settle(&fresh).run(&mut again).unwrap();
    assert_eq!((whole.answer.ranks, whole.answer.state), (4, SearchState::Clear));
    assert_eq!(whole.answer.trials[..2], notes.runs[..]);
    assert_eq!(again.runs[..], whole.answer.trials[2..], "recorded trials are not repeated");
    // With all trials recorded nothing runs, and nothing is announced.
    let earlier = [notes.runs, again.runs].concat();
    let mut last = TrialNotes { earlier, ..TrialNotes::default() };
    assert_eq!(settle(&fresh).run(&mut last).unwrap().answer.trials, whole.answer.trials);
    assert!(last.runs.is_empty() && last.stages.is_empty() && last.starts.is_empty());
}

#[test]
fn a_search_that_has_no_answer_is_refused_before_it_runs() {
    let (host, world, stop) = (Host::look(), Solo::new(), Stop::default());
    let control = control(&world, &stop);
    let range = CapacityRange { up_to: None, steps: None, ..range(1, Depth::Short) };
    let idle = vec![Override::new("train.computation_time", 0.0, "test")];
    let refused = Capacity::settle(asked("null", idle, 1).unwrap(), &host, range, &control);
    let error = refused.err().unwrap();
    assert!(matches!(error, Error::NoComputeTime) && error.kind() == ErrorKind::Usage, "{error}");
    let short =
        Stall::settle(asked("null", Vec::new(), 1).unwrap(), &host, Some(10), &control).err().unwrap();
    assert!(matches!(short, Error::TooFewSteps { steps: 10, .. }), "{short}");
}

#[test]
fn a_stall_analysis_announces_its_runs_and_names_the_limit() {
    let (host, world, stop) = (Host::look(), Solo::new(), Stop::default());
    let stall =
        Stall::settle(asked(SLOW, Vec::new(), 1).unwrap(), &host, None, &control(&world, &stop)).unwrap();
    stall.check_data().unwrap();
    let mut notes = Notes::<StallStage, StallRun>::default();
    let found = stall.run(&mut notes).unwrap();
    assert_eq!(notes.stages, [StallStage { runs: 4, steps: 80, seconds: 3.0 * 0.8 }]);
    let names: Vec<&str> = notes.starts.iter().map(|start| start.what.as_str()).collect();
    let expected = ["synthetic run, 1 of 4", "cold run, 2 of 4", "warm run, 3 of 4", "memory run, 4 of 4"];
    assert_eq!(names, expected);
    assert!(notes.runs.iter().all(|run| run.steps == 80) && notes.runs[..] == found.runs);
    assert_eq!((found.steps, found.warm_up_steps, found.ranks), (75, 5, 1));
    assert_eq!(found.attribution.limit(), Bottleneck::Fetching, "{found:?}");
    assert!(found.cold.is_none() && found.warm.is_none(), "a simulated device has no page cache");
    // The same answer follows from recorded runs.
    let stall =
        Stall::settle(asked(SLOW, Vec::new(), 1).unwrap(), &host, None, &control(&world, &stop)).unwrap();
    let mut again = Notes { earlier: notes.runs, ..Notes::<StallStage, StallRun>::default() };
    let same = stall.run(&mut again).unwrap();
    assert!(again.runs.is_empty() && same.runs == found.runs);
}

#[test]
fn a_sweep_does_what_is_missing_and_names_the_cell_of_an_error() {
    let (host, world, stop) = (Host::look(), Solo::new(), Stop::default());
    let control = control(&world, &stop);
    let axes = ["reader.read_threads=1,2", "ranks=1,2"].map(|text| Axis::parse(text).unwrap());
    let grid = SweepGrid::new(axes.to_vec()).unwrap();
    let ask = |cell: &SweepCell<'_>| asked("null", cell.overrides("test").collect(), cell.ranks().unwrap());
    let sweep = Sweep { grid: &grid, host: &host, control, rounds: 2, seed: 3, ask: &ask };
    let summary = sweep.settle_all().unwrap();
    assert_eq!((summary.simulated.len(), summary.first.ranks()), (4, 1));
    let is_done = |run: SweepRun| run.cell == 1;
    assert!(sweep.check(is_done).unwrap().is_empty());
    let missing = sweep.missing(is_done, &BTreeSet::from([2])).unwrap();
    let expected: Vec<SweepRun> = grid.runs(2, 3).filter(|run| [0, 3].contains(&run.cell)).collect();
    assert_eq!(missing, expected);
    let mut ended = Vec::new();
    let result = sweep.run_all(
        &missing,
        |_, _| {},
        |run, outcome| {
            ended.push((run, outcome.unwrap().measured.ledger.rows(1, model::ledger::Phase::Train).count()));
            if ended.len() == 3 { Err(Error::FilesExist) } else { Ok(()) }
        },
    );
    assert!(matches!(result, Err(Error::FilesExist)), "{result:?}");
    // Cell 0 has one rank and cell 3 two.
    let ranks = missing.iter().map(|run| (*run, if run.cell == 0 { 1 } else { 2 }));
    assert_eq!(ended, ranks.take(3).collect::<Vec<_>>());
    let broken = |cell: &SweepCell<'_>| asked("nonesuch", cell.overrides("test").collect(), 1);
    let error = Sweep { ask: &broken, ..sweep }.settle_all().unwrap_err();
    assert_eq!(error.to_string(), "cell reader.read_threads=1 ranks=1");
    assert_eq!(error.kind(), ErrorKind::Usage);
}
