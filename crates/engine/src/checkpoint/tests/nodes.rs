//! Checkpoints of several members on several nodes: one last tier, a fast tier on each node.

use std::collections::BTreeMap;
use std::path::PathBuf;

use model::checkpoint::Checkpoints;
use model::ledger::Ledger;

use super::faults::{tiny, tree};
use super::*;
use crate::world::threads::{ThreadMember, members_on};
use crate::world::{Exchange, Topology};

/// The folders of a cluster, and the plan of a run on it.
pub(super) struct Cluster {
    root: tempfile::TempDir,
    pub(super) plan: CheckpointPlan,
    /// The backend of each tier, by node name and whether it is the fast one.
    store: fn(&str, bool) -> &'static str,
    has_fast: bool,
    is_fast_shared: bool,
    pub(super) stop: Stop,
}

/// What a member of a run returned.
pub(super) type Kept<T> = Result<KeptRun<T>, CheckpointError>;

impl Cluster {
    pub(super) fn new(mode: &str, settings: &[&str]) -> Cluster {
        let mode_key = format!("checkpoint.mode_of_save={mode}");
        let shm = Path::new("/dev/shm");
        let root = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        Cluster {
            root: root.unwrap(),
            plan: tiny(&[&[mode_key.as_str()], settings].concat()),
            store: |_, _| "posix",
            has_fast: mode == "burst-buffer",
            is_fast_shared: false,
            stop: Stop::default().with_patience(Some(Nanos(20_000_000_000))),
        }
    }

    /// The same cluster in another run.
    fn with(self, mode: &str, settings: &[&str]) -> Cluster {
        let Cluster { root, has_fast, is_fast_shared, .. } = self;
        Cluster { root, has_fast, is_fast_shared, ..Cluster::new(mode, settings) }
    }

    fn stored(self, store: fn(&str, bool) -> &'static str) -> Cluster {
        Cluster { store, ..self }
    }

    pub(super) fn last(&self) -> PathBuf {
        self.root.path().join("last")
    }

    pub(super) fn fast(&self, node: &str) -> PathBuf {
        self.root.path().join("fast").join(if self.is_fast_shared { "all" } else { node })
    }

    /// Runs `work` at one member.
    pub(super) fn run_one<T>(&self, world: &dyn World, work: impl FnOnce(&Checkpointer<'_>) -> T) -> Kept<T> {
        let (clock, node) = (Monotonic::new(), world.topology().name(world.node()).to_owned());
        let fast = self.has_fast.then(|| tier((self.store)(&node, true), &self.fast(&node)));
        let last = tier((self.store)(&node, false), &self.last());
        let setup = CheckpointSetup {
            plan: &self.plan,
            model: "test",
            seed: 7,
            world,
            fast: fast.as_deref(),
            last: &*last,
            clock: &clock,
            stop: &self.stop,
            events: &Events::default(),
        };
        keep(setup, work)
    }

    /// Runs `work` at members on the named hosts.
    pub(super) fn try_run<T: Send>(
        &self,
        hosts: &[&str],
        work: impl Fn(&Checkpointer<'_>, &ThreadMember) -> T + Sync,
    ) -> Vec<Kept<T>> {
        let work = &work;
        std::thread::scope(|scope| {
            let one = |world: ThreadMember| {
                scope.spawn(move || {
                    let kept = self.run_one(&world, |checkpointer| work(checkpointer, &world));
                    // No member leaves before all have ended.
                    let _ = world.agree(Ok(()), &self.stop);
                    kept
                })
            };
            let threads: Vec<_> = members_on(hosts).into_iter().map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// The same for a run that does not end early; returns the results of the members and the sum of their records.
    pub(super) fn run<T: Send>(
        &self,
        hosts: &[&str],
        work: impl Fn(&Checkpointer<'_>) -> T + Sync,
    ) -> (Vec<T>, Vec<SaveRecord>) {
        let (mut results, mut sum) = (Vec::new(), Checkpoints::default());
        for kept in self.try_run(hosts, |checkpointer, _| work(checkpointer)) {
            let KeptRun { done, saves, ended } = kept.unwrap();
            assert_eq!(ended, None);
            results.push(done);
            sum += Checkpoints { saves, ..Checkpoints::default() };
        }
        (results, sum.saves)
    }

    /// Restores the newest checkpoint and returns the sum of the members' records.
    fn restored(&self, hosts: &[&str]) -> RestoreRecord {
        let (restores, _) = self.run(hosts, |checkpointer| checkpointer.restore(newest()).unwrap());
        let mut sum = Checkpoints::default();
        for restore in restores {
            sum += Checkpoints { restores: vec![restore], ..Checkpoints::default() };
        }
        sum.restores.pop().unwrap()
    }
}

const TWO: [&str; 2] = ["a", "b"];

#[test]
fn a_failure_at_one_node_is_named_once_and_loses_no_checkpoint() {
    for mode in ["direct", "async"] {
        let good = Cluster::new(mode, &[]);
        good.run(&TWO, |checkpointer| checkpointer.save(at(1)));
        let before = tree(&good.last());
        for store in [
            |node: &str, _| if node == "b" { "fault:posix,kind=full,file=optim" } else { "posix" },
            // Member 0 completes checkpoints.
            |node: &str, _| if node == "a" { "fault:posix,kind=full,file=checkpoint.json" } else { "posix" },
        ] {
            let failing = Cluster::new(mode, &[]).stored(store);
            let failing = Cluster { root: tempfile::tempdir().unwrap(), ..failing };
            failing_save(&failing, &good, mode, &before);
        }
    }
}

/// Saves to the last tier of `good` with the stores of `failing`, which fail at one of its nodes.
fn failing_save(failing: &Cluster, good: &Cluster, mode: &str, before: &BTreeMap<String, Option<Vec<u8>>>) {
    std::fs::create_dir_all(failing.last().parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(good.last(), failing.last()).unwrap();
    for step in [2, 1] {
        let (_, saved) = failing.run(&TWO, |checkpointer| checkpointer.save(at(step)));
        let node =
            if (failing.store)("a", false) == "posix" { "process 1 on b: " } else { "process 0 on a: " };
        assert_eq!(saved[0].troubles.len(), 1, "{mode}: {saved:?}");
        assert!(saved[0].troubles[0].starts_with(&format!("{node}no space left")), "{mode}: {saved:?}");
        assert!(!saved[0].is_complete(), "{mode}");
        assert!(tree(&good.last()) == *before, "{mode}: existing checkpoints stay, and nothing is added");
    }
}

#[test]
fn a_full_fast_tier_on_one_node_sends_the_checkpoint_to_the_last_tier() {
    let cluster = Cluster::new("burst-buffer", &[]).stored(|node, is_fast| match (node, is_fast) {
        ("b", true) => "fault:posix,kind=full,file=optim",
        _ => "posix",
    });
    let (_, saved) = cluster.run(&TWO, |checkpointer| checkpointer.save(at(1)));
    assert_eq!(saved[0].troubles.len(), 1, "{saved:?}");
    assert!(saved[0].troubles[0].starts_with("process 1 on b: fast tier: no space left"), "{saved:?}");
    assert!(saved[0].durable_ns.is_some() && saved[0].fast_ns.is_none());
    assert_eq!(complete(&cluster.last()), ["global_epoch1_step1"]);
    for node in TWO {
        assert_eq!(tree(&cluster.fast(node)).len(), 0, "no partial checkpoint is left on {node}");
    }
}

#[test]
fn a_drain_that_fails_on_one_node_is_repeated_on_all() {
    let cluster = Cluster::new("burst-buffer", &[]).stored(|node, is_fast| match (node, is_fast) {
        ("b", false) => "fault:posix,kind=eio,file=optim,limit=3",
        _ => "posix",
    });
    let (_, saved) = cluster.run(&["a", "b", "b"], |checkpointer| checkpointer.save(at(1)));
    assert!(saved[0].troubles.iter().all(|text| text.contains(" on b: drain: cannot ")), "{saved:?}");
    assert!(!saved[0].troubles.is_empty() && saved[0].drain_ns.is_some() && saved[0].durable_ns.is_some());
    assert_eq!(complete(&cluster.last()), ["global_epoch1_step1"]);
}

/// A cluster with two undrained checkpoints on the nodes a and b, because the last tier is full.
fn undrained() -> Cluster {
    let full = |node: &str, is_fast| match (node, is_fast) {
        ("b", false) => "fault:posix,kind=full,file=optim",
        _ => "posix",
    };
    let cluster = Cluster::new("burst-buffer", &["checkpoint.burst_slots=2"]).stored(full);
    let (_, saved) = cluster.run(&TWO, |checkpointer| (1..=4).map(|step| checkpointer.save(at(step))).max());
    for save in &saved[..2] {
        assert!(save.fast_ns.is_some() && save.durable_ns.is_none(), "{save:?}");
        assert!(
            save.troubles.iter().all(|text| text.starts_with("process 1 on b: drain: no space")),
            "{save:?}"
        );
    }
    for save in &saved[2..] {
        assert!(!save.is_complete());
        assert_eq!(save.troubles.len(), 1, "all members have no slot, which is reported once: {save:?}");
        assert!(save.troubles[0].contains("no slot on the fast tier is free"), "{save:?}");
    }
    assert_eq!(complete(&cluster.last()), [""; 0]);
    cluster.with("burst-buffer", &[])
}

const BOTH: [&str; 2] = ["global_epoch1_step1", "global_epoch1_step2"];

#[test]
fn the_next_run_drains_what_the_nodes_hold_whatever_its_number_of_processes() {
    // The first process is on a node that has nothing; several processes share a node.
    for hosts in [&["a", "b"][..], &["c", "a", "b"], &["b", "a", "a", "b"]] {
        // Of another model, with a rank for each process.
        let more = plan(&["checkpoint.mode_of_save=burst-buffer"], 4, 1);
        let few = Cluster { plan: more, ..undrained() };
        few.run(hosts, |_| ());
        assert_eq!(complete(&few.last()), BOTH, "{hosts:?}");
        for node in TWO {
            assert_eq!(tree(&few.fast(node)).len(), 0, "{hosts:?}");
        }
        let restores = few.with("direct", &[]).restored(&TWO);
        assert_eq!((restores.moment, restores.verified_bytes > 0), (at(2), true), "{hosts:?}");
    }
}

#[test]
fn parts_on_nodes_of_another_run_stay_and_take_no_slot() {
    let cluster = undrained();
    let before = tree(&cluster.fast("b"));
    let alone = Cluster { plan: tiny(&["checkpoint.mode_of_save=burst-buffer"]), ..cluster };
    let (_, saved) = alone.run(&["a"], |checkpointer| checkpointer.save(at(7)));
    let told = saved[0].troubles.join("\n");
    assert!(told.contains("of an earlier run: global_epoch1_step2 is not drained: 2 of its files"), "{told}");
    assert!(saved[0].durable_ns.is_some(), "{saved:?}");
    assert_eq!(complete(&alone.last()), ["global_epoch1_step7"]);
    assert!(tree(&alone.fast("b")) == before);
    // Together with the other node they are complete.
    alone.run(&TWO, |_| ());
    assert_eq!(complete(&alone.last()), [BOTH[0], BOTH[1], "global_epoch1_step7"]);
}

#[test]
fn parts_of_a_checkpoint_that_was_drained_are_removed() {
    let cluster = undrained();
    let part = cluster.fast("b").join(BOTH[1]);
    let kept = cluster.root.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    for file in std::fs::read_dir(&part).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), kept.join(file.file_name())).unwrap();
    }
    cluster.run(&TWO, |_| ());
    std::fs::rename(&kept, &part).unwrap();
    let before = tree(&cluster.last());
    cluster.run(&TWO, |_| ());
    assert_eq!(tree(&cluster.fast("b")).len(), 0);
    assert!(tree(&cluster.last()) == before);
}

#[test]
fn what_another_node_holds_on_its_fast_tier_is_read_from_the_last_tier() {
    const READS: [&str; 2] = ["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=1"];
    const SHIFT: &str = "checkpoint.recovery_rank_shift=true";
    let unshifted = undrained().with("burst-buffer", &READS);
    let restored = unshifted.restored(&TWO);
    assert!(restored.from_fast && restored.moment == at(2), "each node reads its own files: {restored:?}");
    let shifted = unshifted.with("burst-buffer", &[READS[0], READS[1], SHIFT]);
    let before = [shifted.fast("a"), shifted.fast("b"), shifted.last()].map(|folder| tree(&folder));
    let (errors, _) =
        shifted.run(&TWO, |checkpointer| checkpointer.restore(newest()).unwrap_err().to_string());
    for error in errors {
        assert!(error.contains("is on the fast tier of another node"), "{error}");
    }
    assert!([shifted.fast("a"), shifted.fast("b"), shifted.last()].map(|folder| tree(&folder)) == before);
    // A copy on the last tier serves the files of the other node.
    let drained = shifted.with("burst-buffer", &[]);
    drained.run(&TWO, |_| ());
    let restored = drained.with("burst-buffer", &[READS[0], READS[1], SHIFT]).restored(&TWO);
    assert!(!restored.from_fast && restored.failure.is_none(), "{restored:?}");
    assert_eq!(restored.verified_bytes, restored.bytes);
}

#[test]
fn a_fast_folder_that_all_nodes_share_has_one_leader() {
    let cluster = Cluster { is_fast_shared: true, ..Cluster::new("burst-buffer", &[]) };
    let (_, saved) = cluster.run(&TWO, |checkpointer| (checkpointer.save(at(1)), checkpointer.save(at(2))));
    for save in &saved {
        assert!(save.troubles.is_empty() && save.fast_ns.is_some() && save.durable_ns.is_some(), "{save:?}");
    }
    assert_eq!(complete(&cluster.last()), BOTH);
    assert_eq!(tree(&cluster.fast("a")).len(), 0);
    assert_eq!(cluster.restored(&TWO).moment, at(2));
}

#[test]
fn a_second_run_is_refused_also_with_several_processes() {
    for mode in ["direct", "burst-buffer"] {
        let first = Cluster::new(mode, &[]);
        let tried = first.try_run(&TWO, |checkpointer, world| {
            checkpointer.save(at(1));
            let others = (world.member() == 0).then(|| first.try_run(&TWO, |_, _| ()));
            checkpointer.front().agree(Ok(()), &Stop::default()).unwrap();
            others
        });
        let mut others = tried.into_iter().filter_map(|kept| kept.unwrap().done).flatten();
        let refused = others.next().unwrap().unwrap_err().to_string();
        assert!(refused.contains("another feedline is writing to"), "{mode}: {refused}");
        assert!(others.all(|other| other.is_err()), "{mode}");
        assert_eq!(complete(&first.last()), ["global_epoch1_step1"], "{mode}");
    }
}

#[test]
fn a_run_that_only_restores_is_refused_if_nodes_see_different_checkpoints() {
    let cluster = Cluster::new("direct", &[]);
    cluster.run(&TWO, |checkpointer| checkpointer.save(at(1)));
    let reads = ["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=1"];
    let empty = Cluster::new("direct", &reads);
    let reads = cluster.with("direct", &reads);
    let errors = std::thread::scope(|scope| {
        let threads: Vec<_> = members_on(&TWO)
            .into_iter()
            .map(|world| {
                let cluster = if world.member() == 0 { &reads } else { &empty };
                scope.spawn(move || cluster.run_one(&world, |_| ()).unwrap_err().to_string())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<String>>()
    });
    for error in errors {
        assert!(error.contains("last on b is not the folder that a has there"), "{error}");
    }
}

/// Saves and restores without training, on simulated devices or on disks.
fn alone_on(cluster: &Cluster, hosts: &[&str], stores: [&str; 2]) -> Ledger {
    let ledgers = std::thread::scope(|scope| {
        let one = |world: ThreadMember| {
            scope.spawn(move || {
                let node = world.topology().name(world.node()).to_owned();
                let (fast, last) = (tier(stores[0], &cluster.fast(&node)), tier(stores[1], &cluster.last()));
                let (clock, events) = (Monotonic::new(), Events::default());
                alone(CheckpointSetup {
                    plan: &cluster.plan,
                    model: "test",
                    seed: 7,
                    world: &world,
                    fast: cluster.has_fast.then_some(&*fast),
                    last: &*last,
                    clock: &clock,
                    stop: &cluster.stop,
                    events: &events,
                })
                .unwrap()
            })
        };
        let threads: Vec<_> = members_on(hosts).into_iter().map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<Ledger>>()
    });
    ledgers.into_iter().fold(Ledger::default(), |mut sum, ledger| {
        sum += ledger;
        sum
    })
}

#[test]
fn checkpoints_without_training_are_saved_and_restored_by_all_members() {
    let settings = [
        "checkpoint.num_checkpoints_write=3",
        "checkpoint.num_checkpoints_read=3",
        "checkpoint.time_between_checkpoints=0.001",
        "checkpoint.recovery_rank_shift=true",
        "checkpoint.keep_last=2",
    ];
    for mode in ["direct", "async", "burst-buffer"] {
        for stores in [["posix"; 2], ["null"; 2], ["sim:bandwidth=1GB/s"; 2]] {
            let cluster = Cluster::new(mode, &settings);
            let seen = alone_on(&cluster, &TWO, stores);
            let (place, geometry) = (format!("{mode}, {stores:?}"), &cluster.plan.geometry);
            assert_eq!((seen.faults(), seen.interrupted), (&[][..], false), "{place}");
            assert_eq!((seen.checkpoints.saves.len(), seen.checkpoints.restores.len()), (3, 3), "{place}");
            for save in &seen.checkpoints.saves {
                assert!(save.troubles.is_empty() && save.durable_ns.is_some(), "{place}: {save:?}");
                assert_eq!(
                    (save.bytes, save.files),
                    (geometry.total_bytes(), geometry.file_count()),
                    "{place}"
                );
            }
            for restore in &seen.checkpoints.restores {
                assert_eq!(restore.failure, None, "{place}");
                assert_eq!((restore.bytes, restore.files), (geometry.total_bytes(), geometry.file_count()));
            }
            let steps = seen.checkpoints.restores.iter().map(|restore| restore.moment.step);
            assert_eq!(steps.collect::<Vec<_>>(), [2, 3, 2], "{place}: the newest that are kept");
        }
    }
}

#[test]
fn a_run_without_training_that_is_stopped_ends_at_all_members() {
    let settings = ["checkpoint.num_checkpoints_write=1000", "checkpoint.time_between_checkpoints=0.01"];
    let cluster = Cluster::new("async", &settings);
    let seen = std::thread::scope(|scope| {
        let run = scope.spawn(|| alone_on(&cluster, &TWO, ["posix"; 2]));
        while !cluster.last().join("global_epoch1_step2").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        cluster.stop.wish();
        run.join().unwrap()
    });
    assert!(seen.interrupted);
    assert!(!complete(&cluster.last()).is_empty() && seen.checkpoints.saves.len() < 1000);
}

#[test]
fn a_shift_reads_what_other_nodes_wrote() {
    let of = |hosts: &[&str], shares: Option<Vec<u64>>, ranks: u64, asked: u64| {
        let topology: Topology = members_on(hosts)[0].topology().clone();
        let topology = shares.map_or(topology.clone(), |shares| topology.with_shares(shares).unwrap());
        restore::shift(&topology, ranks, asked)
    };
    assert_eq!(of(&["a"], None, 8, 1), 1, "one node: as asked");
    assert_eq!(of(&["a", "b"], None, 8, 0), 0);
    assert_eq!(of(&["a", "b"], None, 8, 1), 4, "the ranks of a node");
    assert_eq!(of(&["a", "a", "b", "b"], None, 8, 1), 4);
    assert_eq!(of(&["a", "b", "a", "b"], None, 8, 1), 2, "the nodes alternate");
    assert_eq!(of(&["a", "b", "c"], None, 6, 3), 3, "more than a node, as asked");
    assert_eq!(of(&["a", "b"], Some(vec![5, 3]), 8, 1), 3, "one node wrote more than half of it");
}
