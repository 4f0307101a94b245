//! Runs of several members, each a thread with a host of its own: they compute one plan, and all name a member that
//! cannot run.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use engine::host::Host;
use engine::world::Exchange;
use engine::world::threads::{ThreadMember, members};
use engine::{Stop, World};
use feedline_session::{Ask, Asked, Error, ErrorKind, RunTask, SilentObserver, WorkloadText, run, settle};
use model::checkpoint::manifest::{CheckpointManifest, MANIFEST};
use model::ledger::{Ledger, Phase};
use model::location::Location;
use model::spec::Override;

const RANKS: u64 = 8;

const TRAINING: &str = "
framework: pytorch
dataset: {format: npz, num_files_train: 200, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2, file_shuffle: random, stall_timeout: 20}
train: {epochs: 2, computation_time: 0.001}
";

fn asked(store: &str, settings: &[&str]) -> Asked {
    let (name, source, text) = ("w".to_owned(), "w.yaml".to_owned(), TRAINING.to_owned());
    let workload = WorkloadText { name, source, text, ranks: RANKS, built_in: false };
    let overrides = settings.iter().map(|setting| Override::hydra(setting, setting)).collect();
    let data = Some(Location::parse("/nonexistent/data"));
    Ask { overrides, store: Some(store.to_owned()), data, ..Ask::new(workload) }.read().unwrap()
}

/// A host of another size for every member.
fn host(member: u64) -> Host {
    let name = format!("host{member}");
    Host { name, cores: 1 + member, memory_bytes: (4 - member) << 30, ..Host::look() }
}

/// Does something at every member at once, and returns what each got.
fn at_all<T: Send>(count: u64, work: impl Fn(&ThreadMember, &Host) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |world: ThreadMember| scope.spawn(move || work(&world, &host(world.member())));
        let threads: Vec<_> = members(count).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn all_members_compute_one_plan() {
    let settled = |world: &dyn World, host: &Host| {
        let plan = settle(asked("null", &[]), host, world, &Stop::default()).unwrap().plan;
        world.agree(Ok(()), &Stop::default()).unwrap();
        format!("{plan:?}")
    };
    let plans = at_all(4, |world, host| settled(world, host));
    assert!(plans.iter().all(|plan| *plan == plans[0]), "{plans:?}");
    let others = at_all(4, |world, host| settled(world, host));
    assert_ne!(plans[0], others[0], "the order is drawn, and another run draws another one");
}

/// What each member is refused with.
fn refusals(of_member_2: impl Fn(Host) -> Host + Sync) -> Vec<Error> {
    at_all(4, |world, host| {
        let host = if world.member() == 2 { of_member_2(host.clone()) } else { host.clone() };
        let settled = settle(asked("null", &[]), &host, world, &Stop::default()).unwrap();
        settled.check_host(&settled.plan, world, &Stop::default()).unwrap_err()
    })
}

#[test]
fn a_member_with_too_little_memory_is_named_by_all() {
    let errors = refusals(|host| Host { memory_bytes: 4096, ..host });
    for (member, error) in errors.iter().enumerate() {
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        match (member, error) {
            (2, Error::TooLittleMemory { .. }) => {}
            (2, error) => panic!("member 2: {error}"),
            (_, error) => {
                let said = error.to_string();
                let expected = "the run was not started: process 2 on host2 failed: the run needs ";
                assert!(said.starts_with(expected) && said.contains("4.0 KiB of memory"), "{member}: {said}");
            }
        }
    }
}

#[test]
fn a_member_that_does_not_find_the_data_is_named_by_all() {
    let errors = at_all(2, |world, host| {
        // Member 0 reads no files, so it misses none.
        let store = if world.member() == 0 { "null" } else { "posix" };
        let settled = settle(asked(store, &[]), host, world, &Stop::default()).unwrap();
        settled.check_data(world, &Stop::default()).unwrap_err().to_string()
    });
    let own = "the data set is missing";
    assert!(errors[1].starts_with(own), "{errors:?}");
    assert!(
        errors[0].starts_with(&format!("the run was not started: process 1 on host1 failed: {own}")),
        "{errors:?}"
    );
}

fn manifests(folder: &Path) -> Vec<CheckpointManifest> {
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join(MANIFEST));
    let texts = folders.filter(|path| path.exists()).map(|path| std::fs::read_to_string(path).unwrap());
    texts.map(|text| CheckpointManifest::from_text(&text).unwrap()).collect()
}

/// Every member saves to a folder of its own. What they save has one seed, and their ledgers add up to that of the run.
#[test]
fn ledgers_of_members_add_up_and_checkpoints_have_one_seed() {
    let folder = tempfile::tempdir().unwrap();
    let root = |member: u64| folder.path().join(member.to_string());
    let ledgers = at_all(2, |world, host| {
        let saves = format!("checkpoint.checkpoint_folder={}", root(world.member()).display());
        let settings = [
            "workflow.checkpoint=true",
            "model.model_size_bytes=100000",
            "checkpoint.steps_between_checkpoints=2",
            "checkpoint.store=posix",
            &saves,
        ];
        let settled = settle(asked("null", &settings), host, world, &Stop::default()).unwrap();
        settled.check_host(&settled.plan, world, &Stop::default()).unwrap();
        let (plan, stop) = (&settled.plan, &Stop::default());
        let task = RunTask { plan, calibrate: false, share: false, world, observer: &SilentObserver, stop };
        (run(&settled, &task).unwrap(), settled.plan.saves(), settled.plan.checkpoint.clone().unwrap())
    });
    let (saves, geometry) = (ledgers[0].1, ledgers[0].2.geometry.clone());
    let sum: &Ledger = &ledgers[0].0;
    assert_eq!(sum.faults(), []);
    assert_eq!(sum.conditions.hosts.keys().collect::<Vec<_>>(), ["host0", "host1"]);
    assert_eq!(sum.rows(1, Phase::Train).count() as u64, RANKS);
    assert_eq!(sum.checkpoints.saves.len() as u64, saves);
    for save in &sum.checkpoints.saves {
        assert_eq!((save.bytes, save.files), (geometry.total_bytes(), geometry.file_count()), "{save:?}");
        assert!(save.is_complete() && save.troubles.is_empty(), "{save:?}");
    }
    let seeds: Vec<u64> = (0..2).flat_map(|member| manifests(&root(member))).map(|list| list.seed).collect();
    assert_eq!(seeds.len() as u64, 2 * saves);
    assert!(seeds.iter().all(|seed| *seed == seeds[0]), "{seeds:?}");
}
