//! Runs of several members: the same work gives the same result however the ranks are distributed, and when one member
//! ends early, all end and name it.

use std::collections::BTreeMap;
use std::path::Path;

use model::checkpoint::manifest::MANIFEST;
use model::checkpoint::{CheckpointPlan, RestoreRecord, SaveRecord, SaveRequest, Scale};
use model::digest::Digest;
use model::ledger::{Agreement, ObservedMember, RankRow};
use model::spec::{self, Override, SaveMode, WorkloadSource};
use store::{Mode, Null, Selection, Store};

use super::tests::{Slow, plan, with_rig};
use super::*;
use crate::checkpoint::{CheckpointSetup, RestoreRequest, keep};
use crate::meter::{self, FakeClock};
use crate::world::threads::{ThreadMember, members, members_of};
use crate::world::{Exchange, HostIdentity, Topology};

/// Runs a plan with one member per store; each member has its own clock, store and stop.
fn run_on(
    plan: &TrainingPlan,
    stores: &[&dyn Store],
    clocks: &[FakeClock],
    stops: &[Stop],
) -> Vec<Result<Ledger, CacheError>> {
    let worlds = members(stores.len() as u64);
    std::thread::scope(|scope| {
        let threads = worlds.into_iter().enumerate().map(|(number, world)| {
            scope.spawn(move || {
                with_rig(plan, stores[number], &clocks[number], &stops[number], |rig| {
                    train(&TrainingSetup { world: &world, ..*rig })
                })
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn clocks(members: usize) -> Vec<FakeClock> {
    (0..members).map(|_| FakeClock::default()).collect()
}

fn patient(members: usize, millis: u64) -> Vec<Stop> {
    (0..members).map(|_| Stop::default().with_patience(Some(Nanos(millis * 1_000_000)))).collect()
}

/// Runs a plan on the null store and adds up the members' ledgers.
fn added_up(plan: &TrainingPlan, members: usize) -> Ledger {
    let stores = vec![&Null as &dyn Store; members];
    added(run_on(plan, &stores, &clocks(members), &patient(members, 20_000)))
}

fn added(ledgers: Vec<Result<Ledger, CacheError>>) -> Ledger {
    ledgers.into_iter().fold(Ledger::default(), |mut sum, ledger| {
        sum += ledger.unwrap();
        sum
    })
}

/// What must not depend on the distribution of ranks, rank by rank: counts, digests, and all times of the timeline.
fn account(ledger: &Ledger, epoch: u64, phase: Phase) -> Vec<(u64, RankRow)> {
    let rows = ledger.rows(epoch, phase).map(|(rank, row)| {
        let (harness_ns, lateness_ns_sum, lateness_ns_max) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        (rank, RankRow { harness_ns, lateness_ns_sum, lateness_ns_max, ..*row })
    });
    rows.collect()
}

const EVALUATED: [&str; 6] = [
    "workflow.evaluation=true",
    "dataset.num_files_eval=50",
    "reader.batch_size_eval=2",
    "train.epochs=3",
    "train.computation_time={type: uniform, min: 0.01, max: 0.03}",
    "evaluation.eval_time={type: uniform, min: 0.01, max: 0.03}",
];

#[test]
fn eight_ranks_give_the_same_result_in_one_two_and_four_members() {
    let mut settings = EVALUATED.to_vec();
    settings.push("dataset.num_files_train=200");
    let plan = plan(&settings, 8, &Null);
    let alone = with_rig(&plan, &Null, &FakeClock::default(), &Stop::default(), |rig| train(rig).unwrap());
    for members in [1, 2, 4] {
        let ledger = added_up(&plan, members);
        assert_eq!((ledger.faults(), ledger.interrupted), (&[][..], false), "{members} members");
        for (epoch, phase) in (1..=3).flat_map(|epoch| [(epoch, Phase::Train), (epoch, Phase::Eval)]) {
            let place = format!("{members} members, epoch {epoch}, {phase}");
            assert_eq!(account(&ledger, epoch, phase), account(&alone, epoch, phase), "{place}");
            assert_eq!(ledger.rows(epoch, phase).count(), 8, "{place}");
            let (here, there) = (ledger.node_total(epoch, phase), alone.node_total(epoch, phase));
            assert_eq!(here.parts, there.parts, "{place}");
            let total = ledger.total(epoch, phase);
            assert!(total.samples_delivered > 0 && total.digest != Digest::default(), "{place}");
        }
    }
}

#[test]
fn a_slow_member_makes_the_others_wait_at_the_barrier() {
    // 5 fetches of 3 ms and 10 ms of compute per step: the other member has its batches at once.
    let (clocks, settings) = (clocks(2), ["reader.prefetch_size=0", "reader.read_threads=1"]);
    let slow = Slow::new(&clocks[1], 3);
    let plan = plan(&settings, 2, &Null);
    let ledgers = run_on(&plan, &[&Null, &slow], &clocks, &patient(2, 20_000));
    let row = |member: usize| ledgers[member].as_ref().unwrap().total(2, Phase::Train);
    let (fast, slow) = (row(0), row(1));
    let steps = slow.steps;
    assert_eq!((slow.wait_ns, slow.barrier_ns), (Nanos(steps * 15_000_000), Nanos::ZERO));
    assert_eq!((fast.wait_ns, fast.barrier_ns), (Nanos::ZERO, Nanos(steps * 15_000_000)));
    let sum = added(ledgers);
    let nodes = sum_of_agreements(&sum, 2);
    assert_eq!((nodes[1].last, nodes[1].last_ns), (steps, slow.wait_ns), "it cost the others this time");
    assert_eq!((nodes[0].last, nodes[0].barriers + nodes[1].barriers), (0, steps));
    let clocks: Vec<u64> = nodes.iter().flat_map(|node| node.clocks.keys().copied()).collect();
    assert_eq!(clocks, [0, 1], "the offset of every member's clock");
    assert!(nodes.iter().all(|node| !node.latency.is_empty()), "{nodes:?}");
}

/// The agreement on the steps of an epoch of training, by node.
fn sum_of_agreements(ledger: &Ledger, epoch: u64) -> Vec<Agreement> {
    let mut named = ledger.clone();
    for node in 0..2 {
        let member = ObservedMember { node, first_rank: node, ranks: 1, ..ObservedMember::default() };
        named.conditions.members.insert(node, member);
    }
    named.nodes().iter().map(|node| node.observed(epoch, Phase::Train).agreement.clone()).collect()
}

#[test]
fn a_run_of_one_member_records_no_agreement() {
    let plan = plan(&[], 2, &Null);
    let ledger = with_rig(&plan, &Null, &FakeClock::default(), &Stop::default(), |rig| train(rig).unwrap());
    assert!(ledger.node_total(1, Phase::Train).agreement.is_empty());
}

/// Gives member 2 of 4 a special store, and returns the ledgers of all members and their sum.
fn with_odd_one(odd: impl for<'a> FnOnce(Slow<'a>) -> Slow<'a>, stall_millis: u64) -> (Vec<Ledger>, Ledger) {
    let (clocks, mut stops) = (clocks(4), patient(4, stall_millis));
    let store = odd(Slow::new(&clocks[2], 1));
    let plan = plan(&["train.epochs=3", "dataset.num_files_train=200"], 8, &store);
    stops[2] = store.stop.with_patience(stops[2].patience());
    let ledgers = run_on(&plan, &[&Null, &Null, &store, &Null], &clocks, &stops);
    let ledgers: Vec<Ledger> = ledgers.into_iter().map(Result::unwrap).collect();
    let sum = ledgers.iter().cloned().fold(Ledger::default(), |mut sum, ledger| {
        sum += ledger;
        sum
    });
    (ledgers, sum)
}

fn assert_all_name_it(ledgers: &[Ledger], sum: &Ledger, words: &str) {
    for (member, ledger) in ledgers.iter().enumerate() {
        let faults = ledger.faults();
        assert!(faults.len() == 1 && faults[0].message.contains(words), "member {member}: {faults:?}");
        assert_eq!(faults, sum.faults(), "what all report appears once in the sum");
    }
}

#[test]
fn when_a_member_fails_all_end_and_name_it() {
    // Member 2 reads 50 samples of an epoch.
    for (panics, words) in [(false, "does not exist"), (true, "a reader panicked: as asked")] {
        let (ledgers, sum) = with_odd_one(|store| Slow { fails_at: 70, panics, ..store }, 20_000);
        assert_all_name_it(&ledgers, &sum, words);
        let fault = &sum.faults()[0];
        assert!(
            fault.epoch == 2 && fault.message.starts_with("process 2 on host2 failed: rank "),
            "{fault:?}"
        );
        assert!(!sum.interrupted);
    }
}

#[test]
fn when_a_member_is_asked_to_stop_all_stop_and_name_it() {
    let (ledgers, sum) = with_odd_one(|store| Slow { stops_at: 70, ..store }, 20_000);
    assert_all_name_it(&ledgers, &sum, "process 2 on host2 was asked to stop");
    assert!(ledgers.iter().all(|ledger| ledger.interrupted));
}

#[test]
fn when_a_member_makes_no_progress_its_watchdog_tells_all() {
    let (ledgers, sum) = with_odd_one(|store| Slow { hangs_at: 70, ..store }, 500);
    assert_all_name_it(&ledgers, &sum, "process 2 on host2 failed: rank ");
    assert!(sum.faults()[0].message.contains("no progress for"), "{:?}", sum.faults());
}

/// Runs `absent` instead of the last of three members, and returns how the others end.
fn with_absent(absent: impl FnOnce(ThreadMember) + Send) -> Vec<String> {
    let plan = plan(&[], 6, &Null);
    let mut worlds = members(3);
    let last = worlds.pop().unwrap();
    let (plan, stops) = (&plan, patient(2, 500));
    std::thread::scope(|scope| {
        scope.spawn(move || absent(last));
        let threads: Vec<_> = worlds
            .into_iter()
            .zip(&stops)
            .map(|(world, stop)| {
                scope.spawn(move || {
                    with_rig(plan, &Null, &FakeClock::default(), stop, |rig| {
                        train(&TrainingSetup { world: &world, ..*rig }).unwrap_err().to_string()
                    })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_member_that_never_arrives_is_named() {
    let ended = with_absent(|member| {
        meter::pause(std::time::Duration::from_millis(2000));
        drop(member);
    });
    for message in ended {
        assert!(
            message.starts_with("the run was not started: process 2 on host2 did not respond for "),
            "{message}"
        );
    }
}

#[test]
fn a_member_that_panics_outside_a_phase_is_named() {
    let ended = with_absent(|member| {
        let caught = catch_unwind(AssertUnwindSafe(move || {
            let _member = member;
            panic!("as asked");
        }));
        assert!(caught.is_err());
    });
    assert_eq!(ended, ["the run was not started: process 2 on host2 failed: its thread panicked"; 2]);
}

/// Checkpoints after every second step, of as many files as there are ranks or more.
fn checkpoint_plan(mode: &str, ranks: u64) -> CheckpointPlan {
    let text = "
framework: pytorch
model:
  type: transformer
  num_layers: 2
  parallelism: {zero_stage: 3}
  transformer: {vocab_size: 1000, hidden_size: 64, ffn_hidden_size: 128, num_attention_heads: 8, num_kv_heads: 8}
dataset: {format: npz}
workflow: {checkpoint: true}
checkpoint: {steps_between_checkpoints: 2, fsync: true, chunk_size: 65536, recovery_rank_shift: true}
";
    let mode = Override::new("checkpoint.mode_of_save", mode, "test");
    let spec = spec::read(WorkloadSource { name: "test", text }, &[mode]).unwrap().spec;
    let last = Selection::named("posix", Mode::default()).unwrap().plan();
    let request = SaveRequest { ranks, scale: Scale::WHOLE, last, fast: None };
    CheckpointPlan::resolve(&spec, &request).unwrap().unwrap()
}

/// Training with checkpoints in several members.
struct SavingRun<'a> {
    plan: &'a TrainingPlan,
    saves: &'a CheckpointPlan,
    /// One last tier, and a fast tier on each node, below this folder; and the last tier's backend at each member.
    root: &'a Path,
    last: fn(u64) -> &'static str,
    /// A member whose reads fail, and the first read that does.
    fails: Option<(u64, u64)>,
}

impl SavingRun<'_> {
    /// Trains, restores the newest checkpoint unless the run ended early, and returns the members' ledgers.
    fn run(&self, worlds: Vec<ThreadMember>) -> Vec<Ledger> {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                worlds.into_iter().map(|world| scope.spawn(move || self.one(&world))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn one(&self, world: &ThreadMember) -> Ledger {
        let (clock, stop) = (FakeClock::default(), &patient(1, 20_000)[0]);
        let tier = |store: &str, name: &str| {
            Selection::named(store, Mode::default()).unwrap().tier(&self.root.join(name)).unwrap()
        };
        let fast = tier("posix", world.topology().name(world.node()));
        let last = tier((self.last)(world.member()), "last");
        let fails_at = self.fails.filter(|(member, _)| *member == world.member()).map(|(_, fetch)| fetch);
        let failing = Slow { fails_at: fails_at.unwrap_or_default(), ..Slow::new(&clock, 0) };
        let store: &dyn Store = if fails_at.is_some() { &failing } else { &Null };
        with_rig(self.plan, store, &clock, stop, |rig| {
            let setup = CheckpointSetup {
                plan: self.saves,
                model: "test",
                seed: 7,
                world,
                fast: (self.saves.save == SaveMode::BurstBuffer).then_some(&*fast),
                last: &*last,
                clock: &clock,
                stop,
                events: rig.events,
            };
            let work = |checkpointer: &checkpoint::Checkpointer<'_>| {
                let checkpoints = Some(checkpointer);
                let mut ledger = train(&TrainingSetup { world, checkpoints, ..*rig }).unwrap();
                if ledger.faults().is_empty() {
                    checkpointer.settle();
                    let restored = checkpointer.restore(RestoreRequest::default()).unwrap();
                    ledger.checkpoints.restores.push(restored);
                }
                ledger
            };
            let kept = keep(setup, work).unwrap();
            let mut ledger = kept.done;
            assert_eq!(kept.ended.is_some(), !ledger.faults().is_empty(), "{:?}", kept.ended);
            ledger.checkpoints.saves = kept.saves;
            ledger
        })
    }
}

fn summed(ledgers: Vec<Ledger>) -> Ledger {
    ledgers.into_iter().fold(Ledger::default(), |mut sum, ledger| {
        sum += ledger;
        sum
    })
}

/// All files below a folder and their bytes.
fn files_below(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let folders = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let files =
        folders.flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    let named = files
        .map(|file| (file.strip_prefix(root).unwrap().display().to_string(), std::fs::read(&file).unwrap()));
    named.collect()
}

/// 8 ranks in several distributions over processes and nodes.
fn distributions() -> Vec<Vec<ThreadMember>> {
    let hosts = |names: &[&str]| {
        let host = |name: &&str| HostIdentity { name: (*name).to_owned(), boot_id: "1".to_owned() };
        Topology::new(&names.iter().map(host).collect::<Vec<_>>())
    };
    let uneven = hosts(&["a", "b"]).with_shares(vec![5, 3]).unwrap();
    let mut all: Vec<_> = [1, 2, 4, 8].map(members).into_iter().collect();
    all.extend([members_of(uneven), members_of(hosts(&["a", "b", "a", "b"]))]);
    all
}

#[test]
fn all_distributions_of_ranks_write_the_same_checkpoints() {
    let save = |save: &SaveRecord| (save.moment, save.serial, save.bytes, save.files, save.is_complete());
    let restore =
        |one: &RestoreRecord| (one.moment, one.bytes, one.files, one.verified_bytes, one.failure.clone());
    let plan = plan(&["dataset.num_files_train=200"], 8, &Null);
    for mode in ["direct", "async", "burst-buffer"] {
        let saves = checkpoint_plan(mode, 8);
        let mut sums = Vec::new();
        for worlds in distributions() {
            let folder = tempfile::tempdir().unwrap();
            let (topology, root) = (worlds[0].topology().clone(), folder.path());
            let run = SavingRun { plan: &plan, saves: &saves, root, last: |_| "posix", fails: None };
            let ledgers = run.run(worlds);
            for (member, ledger) in (0..).zip(&ledgers) {
                let own: u64 = topology.ranks(member, 8).map(|rank| saves.geometry.rank_bytes(rank)).sum();
                let seen = &ledger.checkpoints;
                assert!(seen.saves.iter().all(|save| save.bytes == own), "member {member}: {:?}", seen.saves);
            }
            let sum = summed(ledgers);
            let place = format!("{mode}, {topology:?}");
            assert_eq!(sum.faults(), [], "{place}");
            for save in &sum.checkpoints.saves {
                assert!(save.troubles.is_empty() && save.durable_ns.is_some(), "{place}: {save:?}");
                assert_eq!(save.fast_ns.is_some(), mode == "burst-buffer", "{place}");
            }
            for node in 0..topology.nodes() {
                let left = std::fs::read_dir(root.join(topology.name(node))).unwrap().count();
                assert_eq!(left, 0, "{place}: what is drained leaves the fast tier");
            }
            let seen = &sum.checkpoints;
            sums.push((
                seen.saves.iter().map(save).collect::<Vec<_>>(),
                seen.restores.iter().map(restore).collect::<Vec<_>>(),
                files_below(&root.join("last")),
                (1..=2).map(|epoch| sum.total(epoch, Phase::Train).digest).collect::<Vec<_>>(),
            ));
        }
        assert_eq!(sums[0].0.len(), 4, "two in each epoch of five steps");
        assert_eq!(sums[0].2.len() as u64, 4 * (saves.geometry.file_count() + 1), "files and a manifest");
        for (number, sum) in sums.iter().enumerate() {
            assert_eq!((&sum.0, &sum.1, &sum.3), (&sums[0].0, &sums[0].1, &sums[0].3), "{mode}, {number}");
            assert!(sum.2 == sums[0].2, "{mode}, {number}: {:?}", sum.2.keys());
        }
    }
}

#[test]
fn a_save_that_fails_at_one_member_does_not_end_training() {
    let plan = plan(&["dataset.num_files_train=200"], 8, &Null);
    for mode in ["direct", "async"] {
        let (folder, saves) = (tempfile::tempdir().unwrap(), checkpoint_plan(mode, 8));
        // The first two checkpoints of the member fail.
        let last = |member| if member == 2 { "fault:posix,kind=full,file=optim,limit=2" } else { "posix" };
        let run = SavingRun { plan: &plan, saves: &saves, root: folder.path(), last, fails: None };
        let sum = summed(run.run(members(4)));
        assert_eq!(sum.faults(), [], "{mode}");
        assert_eq!(sum.total(2, Phase::Train).steps, 5 * 8, "{mode}: all steps are done");
        let failed: Vec<_> = sum.checkpoints.saves.iter().filter(|save| !save.is_complete()).collect();
        assert!(!failed.is_empty() && failed.len() <= 2, "{mode}: {:?}", sum.checkpoints.saves);
        for save in failed {
            let told = save.troubles.join("; ");
            assert!(told.starts_with("process 2 on host2: no space left"), "{mode}: {told}");
        }
        let complete = sum.checkpoints.saves.iter().filter(|save| save.is_complete()).count();
        let files = files_below(&folder.path().join("last"));
        assert_eq!(files.keys().filter(|name| name.ends_with(MANIFEST)).count(), complete, "{mode}");
        assert_eq!(files.len() as u64, complete as u64 * (saves.geometry.file_count() + 1), "{mode}");
    }
}

#[test]
fn a_member_that_fails_in_training_ends_saves_and_drains_of_all() {
    for mode in ["direct", "async", "burst-buffer"] {
        let (folder, saves) = (tempfile::tempdir().unwrap(), checkpoint_plan(mode, 8));
        let plan = plan(&["dataset.num_files_train=200"], 8, &Slow::new(&FakeClock::default(), 0));
        // Each of the four members reads 50 samples in an epoch.
        let fails = Some((2, 80));
        let run = SavingRun { plan: &plan, saves: &saves, root: folder.path(), last: |_| "posix", fails };
        let sum = summed(run.run(members(4)));
        assert_eq!(sum.faults().len(), 1, "{mode}: all name the same: {:?}", sum.faults());
        let message = &sum.faults()[0].message;
        assert!(message.starts_with("process 2 on host2 failed: rank "), "{mode}: {message}");
        let seen = sum.checkpoints.saves.iter().filter(|save| save.durable_ns.is_some()).count();
        let names = files_below(&folder.path().join("last")).into_keys();
        let complete = names.filter(|name| name.ends_with(MANIFEST)).count();
        assert!(complete >= seen, "{mode}: what was reported as durable is there");
        // The next run finds only complete checkpoints and continues.
        let run = SavingRun { fails: None, ..run };
        assert_eq!(summed(run.run(members(2))).faults(), [], "{mode}");
        let files = files_below(&folder.path().join("last"));
        assert_eq!(files.len() as u64 % (saves.geometry.file_count() + 1), 0, "{mode}: {:?}", files.keys());
    }
}
