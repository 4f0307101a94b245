//! Ledgers of runs with several members, each a thread: they add up to the ledger of one process, and what belongs to a
//! host is counted once, however many members it has.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use engine::host::Host;
use engine::world::threads::members_on;
use engine::{Solo, Stop, World};
use feedline_session::{
    Ask, CalibrationTime, Generate, MeasuredRun, RunTask, Settled, SilentObserver, WorkloadText, measure,
    settle,
};
use model::ledger::{Ledger, Phase, RankRow, RunRecords};
use model::location::Location;
use model::units::Nanos;
use model::verdict::Status;

const TRAINING: &str = "
framework: pytorch
workflow: {evaluation: true}
dataset: {format: npz, num_files_train: 240, num_files_eval: 24, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2, file_shuffle: seed, stall_timeout: 20}
train: {epochs: 2, computation_time: 0.001, seed: 7}
";

fn settled<'a>(folder: &Path, host: &'a Host, world: &dyn World) -> Settled<'a> {
    let (name, source, text) = ("w".to_owned(), "w.yaml".to_owned(), TRAINING.to_owned());
    let workload = WorkloadText { name, source, text, ranks: 6, built_in: false };
    let (data, store) = (Some(Location::Path(folder.to_owned())), Some("posix".to_owned()));
    let ask = Ask { data, store, ranks: Some(6), generate: Generate::Missing, ..Ask::new(workload) };
    settle(ask.read().unwrap(), host, world, &Stop::default()).unwrap()
}

fn run(folder: &Path, world: &dyn World, (calibrate, share): (CalibrationTime, bool)) -> MeasuredRun {
    let (host, stop) = (Host::look(), Stop::default());
    let settled = settled(folder, &host, world);
    let observer = &SilentObserver;
    measure(
        &settled,
        &RunTask { plan: &settled.plan, calibrate, share, world, observer, recorder: None, stop: &stop },
    )
    .unwrap()
}

/// Writes the data set.
fn written() -> tempfile::TempDir {
    let (folder, host, world) = (tempfile::tempdir().unwrap(), Host::look(), Solo::new());
    settled(folder.path(), &host, &world).make_data(&world, &SilentObserver, &Stop::default()).unwrap();
    folder
}

/// The runs of all members on the named hosts.
fn run_on(folder: &Path, hosts: &[&str], how: (CalibrationTime, bool)) -> Vec<MeasuredRun> {
    std::thread::scope(|scope| {
        let worlds = members_on(hosts).into_iter();
        let threads: Vec<_> = worlds.map(|world| scope.spawn(move || run(folder, &world, how))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// What does not depend on time, for each rank.
fn work(ledger: &Ledger, epoch: u64, phase: Phase) -> Vec<(u64, RankRow)> {
    let rows = ledger.rows(epoch, phase).map(|(rank, row)| {
        let RankRow { steps, steps_planned, samples_planned, samples_delivered, .. } = *row;
        let RankRow { bytes_planned, bytes_read, opens, reads, digest, order, .. } = *row;
        let work = RankRow { steps, steps_planned, samples_planned, samples_delivered, ..RankRow::default() };
        (rank, RankRow { bytes_planned, bytes_read, opens, reads, digest, order, ..work })
    });
    rows.collect()
}

#[test]
fn three_members_add_up_to_one_process_and_hosts_are_counted_once() {
    let folder = written();
    let alone = run(folder.path(), &Solo::new(), (CalibrationTime::Never, false));
    let several = run_on(folder.path(), &["a", "a", "b"], (CalibrationTime::BeforeRun, false));
    let sum = &several[0].ledger;
    assert_eq!((sum.faults(), sum.missing().count()), (&[][..], 0));
    for (epoch, phase) in [(1, Phase::Train), (2, Phase::Train), (1, Phase::Eval), (2, Phase::Eval)] {
        let one = work(&alone.ledger, epoch, phase);
        assert!(one.len() == 6 && one[0].1.bytes_read > 0);
        assert_eq!(work(sum, epoch, phase), one, "epoch {epoch}, {phase}");
    }
    let hosts: Vec<(&str, u64)> =
        sum.conditions.hosts.iter().map(|(name, host)| (name.as_str(), host.readings)).collect();
    assert_eq!(hosts, [("a", 1), ("b", 1)], "counters of a host are read once");
    for node in sum.nodes() {
        let seen = node.observed(1, Phase::Train);
        let (device, storage) = (seen.cache.device, seen.cache.storage);
        assert_eq!(device.told + device.untold, 1, "{:?}: the device is that of the host", node.name());
        assert_eq!(seen.cache.network.told, 1, "and so is the network");
        assert_eq!(storage.told + storage.untold, node.processes, "those of each process add up");
        assert_eq!(seen.device_readings, node.processes);
        assert!(seen.core_ns > Nanos::ZERO && seen.agreement.clocks.len() as u64 == node.processes);
    }
    assert!(sum.conditions.transports.contains("threads of one process"));
    assert_eq!(several[1].verdict, several[0].verdict, "all members have the same verdict");
    assert_ne!(several[0].verdict.status, Status::Incomplete, "{:?}", several[0].verdict);
    assert!(sum.calibration.is_some_and(|own| own.au_percent.is_some()), "{:?}", sum.calibration);
    let own: Vec<_> = several.iter().map(|one| one.ledger.calibration).collect();
    assert!(own.iter().all(|one| *one == own[0]), "the lowest ceiling is known to all: {own:?}");
}

#[test]
fn a_shared_ledger_is_the_same_at_all_members() {
    let folder = written();
    let runs = run_on(folder.path(), &["a", "b"], (CalibrationTime::AfterRun, true));
    assert_eq!(runs[0].ledger.rows(2, Phase::Train).count(), 6);
    // Only the records are each process's own.
    let shared = |run: &MeasuredRun| {
        let mut ledger = run.ledger.clone();
        ledger.records = RunRecords::default();
        ledger
    };
    assert_eq!(shared(&runs[1]), shared(&runs[0]));
    assert_eq!(runs[1].verdict, runs[0].verdict);
    assert!(runs[0].ledger.calibration.is_some(), "it follows a run that finished");
}
