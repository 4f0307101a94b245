//! Studies through the library alone: a search, an analysis and a sweep, without the binary.

use std::cell::RefCell;
use std::collections::BTreeSet;

use engine::Stop;
use engine::host::Host;
use feedline_session::study::{Capacity, CapacityRange, Stall, StudyControl, Sweep};
use feedline_session::{Ask, Asked, Error, ErrorKind, SilentObserver, WorkloadText};
use model::spec::Override;
use model::study::attribution::Bottleneck;
use model::study::grid::{Axis, SweepCell, SweepGrid, SweepRun};
use model::study::search::{CapacityEnd, Trial};

const WORKLOAD: &str = "
framework: pytorch
dataset: {format: npz, num_files_train: 400, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2, prefetch_size: 1}
train: {epochs: 1, computation_time: 0.01}
";

fn asked(store: &str, overrides: Vec<Override>, ranks: u64) -> Result<Asked, Error> {
    let (name, source, text) = ("w".to_owned(), "w.yaml".to_owned(), WORKLOAD.to_owned());
    let ask = Ask::new(WorkloadText { name, source, text, ranks });
    Ask { overrides, store: Some(store.to_owned()), checkpoints: None, ..ask }.read()
}

/// A device that serves one request at a time, 4 ms each: a batch of 5 takes 20 ms, and a step computes for 10 ms.
const SLOW: &str = "sim:latency=4ms,bandwidth=1GB/s,channels=1";

#[test]
fn a_capacity_search_reports_every_trial() {
    let (host, stop) = (Host::look(), Stop::default());
    let control = StudyControl { observer: &SilentObserver, stop: &stop };
    for (store, end, ranks) in [("null", CapacityEnd::UpTo, 2), (SLOW, CapacityEnd::Target, 0)] {
        let range = CapacityRange { from: 1, up_to: Some(2), steps: Some(30) };
        let capacity = Capacity::settle(asked(store, Vec::new(), 1).unwrap(), &host, range).unwrap();
        capacity.check_data().unwrap();
        let mut seen: Vec<u64> = Vec::new();
        let found = capacity.run(&control, |trial: &Trial| seen.push(trial.ranks)).unwrap();
        assert_eq!(
            (found.end, found.answer.ranks, found.answer.clear),
            (end, ranks, true),
            "{store}: {found:?}"
        );
        assert_eq!(seen, found.answer.trials.iter().map(|trial| trial.ranks).collect::<Vec<_>>());
        assert_eq!((found.workload.as_str(), found.ceiling.is_some()), ("w", end == CapacityEnd::Target));
    }
}

#[test]
fn a_search_that_has_no_answer_is_refused_before_it_runs() {
    let host = Host::look();
    let range = CapacityRange { from: 1, up_to: None, steps: None };
    let idle = vec![Override::new("train.computation_time", 0.0, "test")];
    let refused = Capacity::settle(asked("null", idle, 1).unwrap(), &host, range);
    let error = refused.err().unwrap();
    assert!(matches!(error, Error::NoComputeTime) && error.kind() == ErrorKind::Usage, "{error}");
    let short = Stall::settle(asked("null", Vec::new(), 1).unwrap(), &host, Some(10)).err().unwrap();
    assert!(matches!(short, Error::TooFewSteps { steps: 10, .. }), "{short}");
}

#[test]
fn a_stall_analysis_announces_its_runs_and_names_the_limit() {
    let (host, stop) = (Host::look(), Stop::default());
    let stall = Stall::settle(asked(SLOW, Vec::new(), 1).unwrap(), &host, None).unwrap();
    stall.check_data().unwrap();
    let runs = RefCell::new(Vec::new());
    let begins = |run: &str, steps: u64| runs.borrow_mut().push((run.to_owned(), steps));
    let found = stall.run(&StudyControl { observer: &SilentObserver, stop: &stop }, begins).unwrap();
    let expected = ["synthetic", "cold", "warm", "memory"].map(|run| (run.to_owned(), 80));
    assert_eq!(runs.into_inner(), expected);
    assert_eq!((found.steps, found.warm_up_steps, found.ranks), (75, 5, 1));
    assert_eq!(found.attribution.limit(), Bottleneck::Fetching, "{found:?}");
    assert!(found.cold.is_none() && found.warm.is_none(), "a simulated device has no page cache");
}

#[test]
fn a_sweep_does_what_is_missing_and_names_the_cell_of_an_error() {
    let (host, stop) = (Host::look(), Stop::default());
    let control = StudyControl { observer: &SilentObserver, stop: &stop };
    let axes = ["reader.read_threads=1,2", "ranks=1,2"].map(|text| Axis::parse(text).unwrap());
    let grid = SweepGrid::new(axes.to_vec()).unwrap();
    let ask = |cell: &SweepCell<'_>| asked("null", cell.overrides("test").collect(), cell.ranks().unwrap());
    let sweep = Sweep { grid: &grid, host: &host, rounds: 2, seed: 3, ask: &ask };
    let summary = sweep.settle_all().unwrap();
    assert_eq!((summary.simulated.len(), summary.first.ranks()), (4, 1));
    let is_done = |run: SweepRun| run.cell == 1;
    assert!(sweep.check(is_done, &control).unwrap().is_empty());
    let missing = sweep.missing(is_done, &BTreeSet::from([2]));
    let expected: Vec<SweepRun> = grid.runs(2, 3).filter(|run| [0, 3].contains(&run.cell)).collect();
    assert_eq!(missing, expected);
    let mut ended = Vec::new();
    let result = sweep.run_all(
        &missing,
        &control,
        |_, _| {},
        |run, outcome| {
            ended.push((run, outcome.unwrap().measured.ledger.rows(1, model::ledger::Phase::Train).count()));
            if ended.len() == 3 { Err("enough") } else { Ok(()) }
        },
    );
    assert_eq!(result, Err("enough"));
    // Cell 0 has one rank and cell 3 two.
    let ranks = missing.iter().map(|run| (*run, if run.cell == 0 { 1 } else { 2 }));
    assert_eq!(ended, ranks.take(3).collect::<Vec<_>>());
    let broken = |cell: &SweepCell<'_>| asked("nonesuch", cell.overrides("test").collect(), 1);
    let error = Sweep { ask: &broken, ..sweep }.settle_all().unwrap_err();
    assert_eq!(error.to_string(), "cell reader.read_threads=1 ranks=1");
    assert_eq!(error.kind(), ErrorKind::Usage);
}
