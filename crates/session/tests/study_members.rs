//! Studies of several members, each a thread: all of them get the same answer, and it is that of one process with the
//! same ranks.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::host::Host;
use engine::world::threads::{ThreadMember, members};
use engine::world::{Cause, Exchange};
use engine::{Solo, Stop, World};
use feedline_session::study::{
    Capacity, CapacityFound, CapacityRange, CapacityStage, FollowerLog, RunStart, Stall, StallStage,
    StudyControl, StudyLog, Sweep,
};
use feedline_session::{Ask, Asked, Error, ErrorKind, SilentObserver, WorkloadText};
use model::location::Location;
use model::spec::Override;
use model::study::attribution::{Bottleneck, StallRun};
use model::study::grid::{Axis, SweepCell, SweepGrid};
use model::study::search::{CapacityEnd, Depth, SearchState, Trial};

/// A target that even a busy machine reaches.
const WORKLOAD: &str = "
framework: pytorch
dataset: {format: npz, num_files_train: 600, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2, prefetch_size: 1, stall_timeout: 20}
train: {epochs: 1, computation_time: 0.002}
metric: {au: 0.01}
";

/// A device that serves one request at a time, 4 ms each: a batch of 5 takes 20 ms.
const SLOW: &str = "sim:latency=4ms,bandwidth=1GB/s,channels=1";

fn asked(store: &str, overrides: Vec<Override>, ranks: Option<u64>) -> Result<Asked, Error> {
    let (name, source, text) = ("w".to_owned(), "w.yaml".to_owned(), WORKLOAD.to_owned());
    let ask = Ask::new(WorkloadText { name, source, text, ranks: 1, built_in: false });
    let data = Some(Location::parse("/nonexistent/data"));
    Ask { overrides, store: Some(store.to_owned()), checkpoints: None, ranks, data, ..ask }.read()
}

fn control<'a>(world: &'a dyn World, stop: &'a Stop) -> StudyControl<'a> {
    StudyControl { world, observer: &SilentObserver, stop }
}

/// Does something at every member at once, and returns what each got.
fn at_all<T: Send>(count: u64, work: impl Fn(&ThreadMember) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |world: ThreadMember| {
            scope.spawn(move || {
                let done = work(&world);
                // No member leaves before the others have what they wait for.
                let _ = world.agree(Ok(()), &Stop::default());
                done
            })
        };
        let threads: Vec<_> = members(count).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The journal of member 0.
#[derive(Default)]
struct TrialJournal {
    earlier: Vec<Trial>,
    runs: Vec<Trial>,
    /// Cannot record the run of this number.
    fails_at: Option<usize>,
    /// Requests a stop after the run of this number.
    stop_after: Option<(usize, Stop)>,
}

impl StudyLog for TrialJournal {
    type Stage = CapacityStage;
    type Run = Trial;
    type Failure = Error;

    fn stage(&mut self, _: &CapacityStage) {}

    fn begins(&mut self, _: &RunStart) {}

    fn recorded(&self, is_it: &dyn Fn(&Trial) -> bool) -> Option<Trial> {
        self.earlier.iter().find(|run| is_it(run)).cloned()
    }

    fn ended(&mut self, run: &Trial) -> Result<(), Error> {
        self.runs.push(run.clone());
        if let Some((_, stop)) = self.stop_after.as_ref().filter(|(after, _)| *after == self.runs.len()) {
            stop.wish();
        }
        if self.fails_at == Some(self.runs.len()) { Err(Error::FilesExist) } else { Ok(()) }
    }
}

/// Searches up to this number of ranks. Member 0 has the journal, and another member has one if it requests a stop.
fn search(
    control: &StudyControl<'_>,
    store: &str,
    up_to: u64,
    journal: TrialJournal,
) -> Result<CapacityFound, Error> {
    let range = CapacityRange { from: 1, up_to: Some(up_to), steps: Some(30), confirmation: Depth::Short };
    let host = Host::look();
    let capacity = Capacity::settle(asked(store, Vec::new(), None)?, &host, range, control)?;
    capacity.check_data()?;
    match control.world.member() {
        member if member == 0 || journal.stop_after.is_some() => capacity.run(&mut { journal }),
        _ => capacity.run(&mut FollowerLog::default()),
    }
}

/// The ranks, depth and steps of a trial, and whether it met the target.
type DecidedTrial = (u64, Depth, u64, bool);

/// What a search decided, without measured values.
fn decided(found: &CapacityFound) -> (u64, CapacityEnd, SearchState, Vec<DecidedTrial>) {
    let trials = found.answer.trials.iter().map(|trial| (trial.ranks, trial.depth, trial.steps, trial.met));
    (found.answer.ranks, found.end, found.answer.state, trials.collect())
}

#[test]
fn a_search_gives_the_same_answer_at_all_members_and_as_one_process() {
    let alone = search(&control(&Solo::new(), &Stop::default()), "null", 6, TrialJournal::default()).unwrap();
    assert_eq!(decided(&alone).0, 6);
    for count in [2, 3] {
        let found = at_all(count, |world| {
            search(&control(world, &Stop::default()), "null", 6, TrialJournal::default()).unwrap()
        });
        for other in &found {
            assert_eq!(other.answer.trials, found[0].answer.trials, "the same measured values");
            assert_eq!(decided(other), decided(&found[0]));
        }
        let (ranks, end, state, trials) = decided(&found[0]);
        assert_eq!((ranks, end, state), (6, CapacityEnd::UpTo, SearchState::Clear));
        assert_eq!(trials[0].0, count, "the first probe has one rank for each process");
        assert_eq!(trials.last(), decided(&alone).3.last());
        assert!(found[0].answer.trials.iter().all(|trial| trial.broken.is_empty() || trial.met), "{found:?}");
    }
}

#[test]
fn storage_that_cannot_feed_one_rank_per_process_is_reported_as_that() {
    let found = at_all(3, |world| {
        let range = CapacityRange { from: 1, up_to: Some(8), steps: Some(20), confirmation: Depth::Probe };
        let (host, stop) = (Host::look(), Stop::default());
        let target = vec![Override::new("metric.au", 0.9, "test")];
        let asked = asked(SLOW, target, None).unwrap();
        let capacity = Capacity::settle(asked, &host, range, &control(world, &stop)).unwrap();
        capacity.run(&mut FollowerLog::<_, _, Error>::default()).unwrap()
    });
    for found in found {
        assert_eq!((found.answer.ranks, found.least, found.beyond()), (0, 3, 3), "{found:?}");
        assert_eq!((found.end, found.answer.trials.len()), (CapacityEnd::Target, 1));
    }
}

#[test]
fn only_member_0_needs_the_journal_of_an_earlier_search() {
    let first = search(&control(&Solo::new(), &Stop::default()), "null", 4, TrialJournal::default()).unwrap();
    let first: Vec<Trial> = first.answer.trials.into_iter().filter(|trial| trial.ranks > 1).collect();
    let found = at_all(2, |world| {
        let journal = TrialJournal { earlier: first.clone(), ..TrialJournal::default() };
        search(&control(world, &Stop::default()), "null", 4, journal).unwrap()
    });
    assert!(found.iter().all(|found| found.answer.trials == first), "{found:?}");
}

#[test]
fn a_stop_at_any_member_gives_all_members_the_partial_answer() {
    // After the first run.
    for stopped in [0, 1] {
        let found = at_all(2, |world| {
            let stop = Stop::default();
            let stop_after = (stopped == world.member()).then(|| (1, stop.clone()));
            let journal = TrialJournal { stop_after, ..TrialJournal::default() };
            search(&control(world, &stop), "null", 64, journal).unwrap()
        });
        for found in found {
            assert_eq!(
                (found.end, found.answer.state),
                (CapacityEnd::Stop, SearchState::Stopped),
                "{stopped}"
            );
            assert_eq!((found.interrupted, found.answer.trials.len()), (true, 1), "{found:?}");
        }
    }
}

#[test]
fn a_failure_in_the_middle_of_a_study_is_named_by_all() {
    let errors = at_all(3, |world| {
        let journal = TrialJournal { fails_at: Some(2), ..TrialJournal::default() };
        search(&control(world, &Stop::default()), "null", 64, journal).unwrap_err()
    });
    let own = "the files are listed in a catalog, so they exist already";
    assert_eq!(errors[0].to_string(), own);
    for error in &errors[1..] {
        let Error::During { source, .. } = error else { panic!("{error:?}") };
        assert_eq!(source.to_string(), format!("process 0 on host0 failed: {own}"));
        assert_eq!(error.kind(), ErrorKind::Incomplete);
    }
}

/// The second probe has 4 ranks at member 0 and 3 at member 1.
#[test]
fn members_that_decide_differently_end_with_an_error() {
    let errors = at_all(2, |world| {
        let stop = Stop::default();
        let up_to = 4 - world.member();
        search(&control(world, &stop), "null", up_to, TrialJournal::default()).unwrap_err()
    });
    for error in &errors {
        let Error::During { source, .. } = error else { panic!("{error:?}") };
        let said = source.to_string();
        let expected =
            "the processes compute different plans: ranks is 4 for process 0 on host0, but 3 for process 1";
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn a_member_that_leaves_a_study_is_named_by_the_others() {
    let errors = at_all(2, |world| {
        let stop = Stop::default();
        if world.member() == 1 {
            world.announce(Cause::Left);
            return None;
        }
        search(&control(world, &stop), "null", 4, TrialJournal::default()).err()
    });
    let error = errors[0].as_ref().unwrap();
    assert_eq!(error.kind(), ErrorKind::Incomplete);
    assert!(error.to_string().starts_with("process 1 on host1 left"), "{error}");
}

#[test]
fn a_stall_analysis_gives_the_same_answer_at_all_members_and_as_one_process() {
    let analyse = |world: &dyn World| {
        let (host, stop) = (Host::look(), Stop::default());
        let asked = asked(SLOW, Vec::new(), Some(2)).unwrap();
        let stall = Stall::settle(asked, &host, Some(45), &control(world, &stop)).unwrap();
        stall.check_data().unwrap();
        stall.run(&mut FollowerLog::<StallStage, StallRun, Error>::default()).unwrap()
    };
    let alone = analyse(&Solo::new());
    let found = at_all(2, |world| analyse(world));
    for other in &found {
        assert_eq!(other.runs, found[0].runs);
        assert_eq!(other.attribution.limit(), Bottleneck::Fetching);
        let work = |run: &StallRun| (run.run.clone(), run.ranks, run.steps, run.bytes);
        assert_eq!(other.runs.each_ref().map(work), alone.runs.each_ref().map(work));
    }
}

/// One cell reads files that do not exist, so it is refused, and the others run.
#[test]
fn a_sweep_does_the_same_runs_at_all_members() {
    let axes = ["store=null,posix", "ranks=2,4"].map(|text| Axis::parse(text).unwrap());
    let grid = SweepGrid::new(axes.to_vec()).unwrap();
    let ask =
        |cell: &SweepCell<'_>| asked(cell.store().unwrap(), cell.overrides("test").collect(), cell.ranks());
    let (started, grid) = (AtomicU64::new(0), &grid);
    let done = at_all(2, |world| {
        let (host, stop) = (Host::look(), Stop::default());
        let sweep =
            Sweep { grid, host: &host, control: control(world, &stop), rounds: 2, seed: 3, ask: &ask };
        sweep.settle_all().unwrap();
        // Only member 0 knows what was done earlier.
        let is_done =
            |run: model::study::grid::SweepRun| world.member() == 0 && (run.cell, run.round) == (0, 1);
        let refused = sweep.check(is_done).unwrap();
        let cells: BTreeSet<usize> = refused.iter().map(|(cell, _)| *cell).collect();
        assert!(refused.iter().all(|(_, error)| error.kind() == ErrorKind::Refused), "{refused:?}");
        let runs = sweep.missing(is_done, &cells).unwrap();
        assert!(sweep.calibrate(0).unwrap().is_none());
        let mut rows = Vec::new();
        let begins = |_, _| {
            started.fetch_add(1, Ordering::Relaxed);
        };
        let ended = |run, outcome: Result<feedline_session::study::CellOutcome<'_>, Error>| {
            let ledger = outcome?.measured.ledger;
            rows.push((run, ledger.rows(1, model::ledger::Phase::Train).count()));
            Ok::<(), Error>(())
        };
        sweep.run_all(&runs, begins, ended).unwrap();
        (cells, runs, rows)
    });
    assert_eq!(done[0], done[1]);
    let (cells, runs, rows) = &done[0];
    assert_eq!((cells, runs.len()), (&BTreeSet::from([2, 3]), 3));
    assert!(rows.iter().all(|(run, ranks)| *ranks == if run.cell == 0 { 2 } else { 4 }), "{rows:?}");
    assert_eq!(started.into_inner(), 6);
}
