//! Runs of several members, each a thread with a host of its own: they compute one plan, and all name a member that
//! cannot run.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use engine::host::Host;
use engine::world::Exchange;
use engine::world::threads::{ThreadMember, members_on};
use engine::{Solo, Stop, World};
use feedline_session::{
    Ask, Asked, CalibrationTime, Error, ErrorKind, Generate, RunTask, Settled, SilentObserver, WorkloadText,
    run, settle,
};
use model::checkpoint::manifest::{CheckpointManifest, MANIFEST};
use model::ledger::{Ledger, Phase};
use model::location::Location;
use model::plan::Placement;
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

/// The same with another request.
fn with(mut asked: Asked, change: impl FnOnce(&mut Ask)) -> Asked {
    change(&mut asked.ask);
    asked
}

/// A host of another size for every member.
fn host(member: u64) -> Host {
    let name = format!("host{member}");
    Host { name, cores: 1 + member, memory_bytes: (4 - member) << 30, ..Host::look() }
}

/// Does something at every member at once, and returns what each got.
fn at_all<T: Send>(count: u64, work: impl Fn(&ThreadMember, &Host) -> T + Sync) -> Vec<T> {
    let hosts: Vec<String> = (0..count).map(|member| format!("host{member}")).collect();
    at_hosts(&hosts.iter().map(String::as_str).collect::<Vec<_>>(), work)
}

/// The same for one member on each of these hosts.
fn at_hosts<T: Send>(hosts: &[&str], work: impl Fn(&ThreadMember, &Host) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |world: ThreadMember| {
            scope.spawn(move || {
                let done = work(&world, &host(world.member()));
                // No member leaves before the others have what they wait for.
                let _ = world.agree(Ok(()), &Stop::default());
                done
            })
        };
        let threads: Vec<_> = members_on(hosts).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn all_members_compute_one_plan() {
    let settled = |world: &dyn World, host: &Host| {
        format!("{:?}", settle(asked("null", &[]), host, world, &Stop::default()).unwrap().plan)
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
        let said = error.to_string();
        let expected = "process 2 on host2: the run needs ";
        assert!(said.starts_with(expected) && said.contains("4.0 KiB of memory"), "{member}: {said}");
    }
}

/// The errors of three members, two of which share a host. `change` changes the request of the last one.
fn unlike(change: impl Fn(Asked) -> Asked + Sync) -> Vec<Error> {
    at_hosts(&["c01", "c01", "c07"], |world, host| {
        let asked = asked("null", &[]);
        let asked = if world.member() == 2 { change(asked) } else { asked };
        settle(asked, host, world, &Stop::default()).err().unwrap()
    })
}

#[track_caller]
fn all_say(errors: &[Error], kind: ErrorKind, expected: &str) {
    for error in errors {
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, expected));
    }
}

#[test]
fn another_workload_or_flag_on_one_node_is_named_with_both_nodes() {
    let errors = unlike(|_| asked("null", &["++workload.reader.batch_size=8"]));
    let text = "the processes have different workloads: reader.batch_size is 5 (w.yaml:4:32) for process 0 on c01, but \
                8 (++workload.reader.batch_size=8) for process 2 on c07; give all processes the same workload and the \
                same flags";
    all_say(&errors, ErrorKind::Refused, text);
    let errors = unlike(|asked| with(asked, |ask| ask.ranks = Some(9)));
    let text = "the processes have different flags: --ranks is not given for process 0 on c01, but 9 for process 2 on \
                c07; give all processes the same flags";
    all_say(&errors, ErrorKind::Refused, text);
    // A store that does not exist would be a usage error, but it is there on one node only.
    let errors = unlike(|asked| with(asked, |ask| ask.store = Some("nonesuch".to_owned())));
    let text = "the processes have different flags: --store is null for process 0 on c01, but nonesuch for process 2 \
                on c07; give all processes the same flags";
    all_say(&errors, ErrorKind::Refused, text);
}

/// Generates a small data set with this seed.
fn generate(folder: &Path, seed: u64) {
    let host = Host::look();
    let asked = at(asked("posix", &[&format!("++workload.train.seed={seed}")]), folder, Generate::Missing);
    let settled = settle(asked, &host, &Solo::new(), &Stop::default()).unwrap();
    settled.make_data(&Solo::new(), &SilentObserver, &Stop::default()).unwrap();
}

fn at(asked: Asked, folder: &Path, generate: Generate) -> Asked {
    with(asked, |ask| (ask.data, ask.generate) = (Some(Location::from(folder)), generate))
}

/// What two members on two nodes get that read these folders.
fn reading<T: Send>(
    folders: [&Path; 2],
    work: impl Fn(&ThreadMember, Settled<'_>) -> T + Sync,
) -> Vec<Result<T, Error>> {
    at_hosts(&["c01", "c07"], |world, host| {
        let asked = at(asked("posix", &[]), folders[world.member() as usize], Generate::Never);
        Ok(work(world, settle(asked, host, world, &Stop::default())?))
    })
}

fn failures<T>(outcomes: Vec<Result<T, Error>>) -> Vec<Error> {
    outcomes.into_iter().map(|outcome| outcome.err().unwrap()).collect()
}

#[test]
fn missing_data_on_one_node_and_other_data_have_different_messages() {
    let root = tempfile::tempdir().unwrap();
    let [here, copy, other, empty] = ["here", "copy", "other", "empty"].map(|name| root.path().join(name));
    [(&here, 1), (&copy, 1), (&other, 2)].iter().for_each(|(folder, seed)| generate(folder, *seed));
    let agreed = reading([&here, &copy], |world, settled| {
        settled
            .check_host(&settled.plan, world, &Stop::default())
            .and(settled.check_data(world, &Stop::default()))
    });
    assert!(agreed.iter().all(|outcome| matches!(outcome, Ok(Ok(())))), "{agreed:?}");
    let (found, none) = (here.display(), empty.display());
    let text = format!(
        "the data set is missing on one node: process 1 on c07 finds none in {none}, but process 0 on c01 finds one in \
         {found}; make the same data set available on all nodes"
    );
    all_say(&failures(reading([&here, &empty], |_, _| ())), ErrorKind::Refused, &text);
    let text = format!(
        "the data set is missing on one node: process 0 on c01 finds none in {none}, but process 1 on c07 finds one in \
         {found}; make the same data set available on all nodes"
    );
    all_say(&failures(reading([&empty, &here], |_, _| ())), ErrorKind::Refused, &text);
    let text = "the nodes have different data sets: train.seed is 1 for process 0 on c01, but 2 for process 1 on c07; \
                make the same data set available on all nodes";
    all_say(&failures(reading([&here, &other], |_, _| ())), ErrorKind::Refused, text);
    // Missing on both: each has its own error, with advice.
    let errors =
        reading([&empty, &empty], |world, settled| settled.check_data(world, &Stop::default()).unwrap_err());
    assert!(errors.iter().all(|error| matches!(error, Ok(Error::NoDataSet { .. }))), "{errors:?}");
}

#[test]
fn a_data_set_that_disappears_on_one_node_is_named_by_all() {
    let root = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| root.path().join(name));
    [&here, &there].iter().for_each(|folder| generate(folder, 1));
    let errors = reading([&here, &there], |world, settled| {
        settled.check_data(world, &Stop::default()).unwrap();
        if world.member() == 1 {
            std::fs::remove_dir_all(&there).unwrap();
        }
        let (plan, stop) = (&settled.plan, &Stop::default());
        run(
            &settled,
            &RunTask {
                plan,
                calibrate: CalibrationTime::Never,
                share: false,
                world,
                observer: &SilentObserver,
                recorder: None,
                stop,
            },
        )
        .unwrap_err()
    });
    for error in errors {
        let said = error.unwrap().to_string();
        assert!(said.starts_with("process 1 on c07: cannot use the data folder: "), "{said}");
    }
}

#[test]
fn each_process_has_a_rank_unless_a_number_is_given() {
    let plans = |ranks: Option<u64>| {
        at_hosts(&["a", "a", "b"], |world, host| {
            let asked = with(asked("null", &[]), |ask| ask.ranks = ranks);
            settle(asked, host, world, &Stop::default())
                .map(|settled| (settled.plan.clone(), settled.placement()))
        })
    };
    for (ranks, per_host, per_process) in [(None, 2, 1), (Some(8), 6, 3)] {
        for settled in plans(ranks) {
            let (plan, placement) = settled.unwrap();
            assert_eq!((plan.ranks, plan.hosts), (ranks.unwrap_or(3), 2));
            let expected = (2, per_host, per_process);
            let Placement { processes_per_host, ranks_per_host, ranks_per_process, .. } = placement;
            assert_eq!((processes_per_host, ranks_per_host, ranks_per_process), expected);
        }
    }
    let errors = failures(plans(Some(2)));
    let text = "there are 3 processes, but only 2 ranks; start fewer processes, or raise --ranks";
    all_say(&errors, ErrorKind::Usage, text);
}

/// Two processes need more than one with the same ranks, but not twice as much.
#[test]
fn the_memory_of_a_host_is_that_of_all_its_processes() {
    let memory = |hosts: &[&str]| {
        let settled = at_hosts(hosts, |world, host| {
            let asked = with(asked("null", &[]), |ask| ask.ranks = Some(8));
            settle(asked, host, world, &Stop::default()).unwrap().plan.memory_bytes()
        });
        assert!(settled.iter().all(|bytes| *bytes == settled[0]));
        settled[0]
    };
    let [one, two, apart] = [&["a"][..], &["a", "a"], &["a", "b"]].map(memory);
    assert!(one < two && two < 2 * one && apart < one, "{one} {two} {apart}");
}

#[test]
fn a_stop_request_ends_waits_before_a_run_at_all_members() {
    let errors = at_hosts(&["a", "b", "c"], |world, host| {
        let stop = Stop::default();
        if world.member() == 1 {
            stop.wish();
        }
        settle(asked("null", &[]), host, world, &stop).err().unwrap()
    });
    all_say(&errors, ErrorKind::Incomplete, "process 1 on b was asked to stop");
}

fn manifests(folder: &Path) -> Vec<CheckpointManifest> {
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join(MANIFEST));
    let texts = folders.filter(|path| path.exists()).map(|path| std::fs::read_to_string(path).unwrap());
    texts.map(|text| CheckpointManifest::from_text(&text).unwrap()).collect()
}

const SAVES: [&str; 5] = [
    "workflow.checkpoint=true",
    "checkpoint.pool_size=1000000",
    "model.model_size_bytes=100000",
    "checkpoint.steps_between_checkpoints=2",
    "checkpoint.store=posix",
];

/// The members save one checkpoint at a time to one folder, and their ledgers add up to that of the run.
#[test]
fn members_save_one_checkpoint_and_their_ledgers_add_up() {
    for mode in ["direct", "async", "burst-buffer"] {
        save_and_add_up(mode);
    }
}

fn save_and_add_up(mode: &str) {
    let (folder, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ledgers = at_all(2, |world, host| {
        let saves = format!("checkpoint.checkpoint_folder={}", folder.path().display());
        let fast = format!("checkpoint.burst_folder={}", fast.path().join(&host.name).display());
        let mode = format!("checkpoint.mode_of_save={mode}");
        let settings = [&SAVES[..], &[&saves, &fast, &mode]].concat();
        let asked = with(asked("null", &settings), |ask| ask.ranks = Some(RANKS));
        let settled = settle(asked, host, world, &Stop::default()).unwrap();
        settled.check_host(&settled.plan, world, &Stop::default()).unwrap();
        let (plan, stop) = (&settled.plan, &Stop::default());
        let task = RunTask {
            plan,
            calibrate: CalibrationTime::Never,
            share: false,
            world,
            observer: &SilentObserver,
            recorder: None,
            stop,
        };
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
    let manifests = manifests(folder.path());
    assert_eq!(manifests.len() as u64, saves, "{mode}");
    for manifest in &manifests {
        assert_eq!(manifest.files.len() as u64, geometry.file_count(), "{mode}: the files of all ranks");
        assert_eq!(manifest.seed, manifests[0].seed, "{mode}");
    }
}

#[test]
fn a_checkpoint_folder_that_is_not_shared_is_refused_with_the_name_of_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let root = |member: u64| folder.path().join(member.to_string());
    let errors = at_all(2, |world, host| {
        let saves = format!("checkpoint.checkpoint_folder={}", root(world.member()).display());
        let asked = asked("null", &[&SAVES[..], &[&saves]].concat());
        let asked = with(asked, |ask| ask.ranks = Some(RANKS));
        let settled = settle(asked, host, world, &Stop::default()).unwrap();
        settled.check_host(&settled.plan, world, &Stop::default()).unwrap();
        let (plan, stop) = (&settled.plan, &Stop::default());
        let task = RunTask {
            plan,
            calibrate: CalibrationTime::Never,
            share: false,
            world,
            observer: &SilentObserver,
            recorder: None,
            stop,
        };
        let error = run(&settled, &task).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        error.to_string()
    });
    for error in &errors {
        assert!(error.contains("1 on host1 is not the folder that host0 has there"), "{errors:?}");
    }
    for member in 0..2 {
        assert_eq!(std::fs::read_dir(root(member)).unwrap().count(), 0, "nothing was written");
    }
}
