//! Blocks between checkpoints, and the record of every step, on a fake clock.

use model::checkpoint::{CheckpointPlan, SaveRequest, Scale};
use model::ledger::{BlockRecord, StepRecord};
use model::metrics::Figures;
use model::spec::{self, WorkloadSource};
use store::{Mode, Selection};

use super::tests::{Slow, plan, with_rig};
use super::*;
use crate::checkpoint::{CheckpointSetup, keep};
use crate::events::Detail;
use crate::meter::FakeClock;

/// A checkpoint after every fifth step, which takes a while.
fn saves() -> CheckpointPlan {
    let text = "
model: {model_size_bytes: 1000000}
dataset: {format: npz}
workflow: {checkpoint: true}
checkpoint: {steps_between_checkpoints: 5, fsync: true}
";
    let spec = spec::read(WorkloadSource { name: "test", text }, &[]).unwrap().spec;
    let last = Selection::named("sim:bandwidth=10MB/s", Mode::default()).unwrap().plan();
    let request = SaveRequest { ranks: 1, scale: Scale::WHOLE, last, fast: None };
    CheckpointPlan::resolve(&spec, &request).unwrap().unwrap()
}

/// 12 steps, each with 5 fetches of 3 ms and 10 ms of compute, and checkpoints after steps 5 and 10. Returns the ledger
/// and the events about blocks and checkpoints.
fn run(record_steps: bool) -> (Ledger, Vec<Event>) {
    let clock = FakeClock::default();
    let store = Slow::new(&clock, 3);
    let settings = ["reader.prefetch_size=0", "reader.read_threads=1", "train.epochs=1"];
    let plan = TrainingPlan { record_steps, ..plan(&settings, 1, &store) };
    let (root, saves) = (tempfile::tempdir().unwrap(), saves());
    let last = Selection::named("sim:bandwidth=10MB/s", Mode::default()).unwrap().tier(root.path()).unwrap();
    with_rig(&plan, &store, &clock, &Stop::default(), |rig| {
        let stream = rig.events.listen(Detail::Milestones);
        let TrainingSetup { world, stop, events, .. } = *rig;
        let setup = CheckpointSetup {
            plan: &saves,
            model: "test",
            seed: 7,
            world,
            fast: None,
            last: &*last,
            clock: &clock,
            stop,
            events,
        };
        let kept = keep(setup, |checkpointer| {
            train(&TrainingSetup { checkpoints: Some(checkpointer), ..*rig }).unwrap()
        });
        let events = stream.drain().events.into_iter().map(|stamped| stamped.event);
        (kept.unwrap().done, events.collect())
    })
}

fn millis(nanos: Nanos) -> u64 {
    nanos.0 / 1_000_000
}

#[test]
fn the_window_excludes_the_first_step_of_every_block() {
    let (ledger, _) = run(false);
    let blocks: Vec<_> = ledger
        .blocks(1, Phase::Train, 0)
        .iter()
        .map(|block| {
            let window = block.window;
            (block.steps, window.steps, millis(window.compute_ns), millis(window.time_ns))
        })
        .collect();
    assert_eq!(blocks, [(5, 4, 40, 100), (5, 4, 40, 100), (2, 1, 10, 25)]);
    let row = ledger.total(1, Phase::Train);
    assert_eq!((row.window.steps, millis(row.window.time_ns)), (9, 225), "the row has the sum");
    assert!(row.checkpoint_ns > Nanos::ZERO, "checkpoints take time, which is in no block");
    let au = Figures::new(&ledger, Phase::Train).unwrap().au_percent.unwrap();
    assert!((au.mean - 40.0).abs() < 1e-9, "{au:?}");
    assert!(ledger.records.phases.is_empty() && ledger.records.epochs.is_empty(), "nothing was requested");
}

#[test]
fn every_step_is_recorded_on_request() {
    let (ledger, _) = run(true);
    let record = &ledger.records.phases[&(1, Phase::Train, 0)];
    let step = StepRecord { load: Nanos(15_000_000), compute: Nanos(10_000_000) };
    assert_eq!(record.steps, [step; 12]);
    let seen: Vec<_> = record.blocks.iter().map(|block| block.seen).collect();
    assert_eq!(seen, *ledger.blocks(1, Phase::Train, 0));
    let spans: Vec<u64> =
        record.blocks.iter().map(|BlockRecord { began, ended, .. }| millis(*ended - *began)).collect();
    assert_eq!(spans, [125, 125, 50]);
    assert!(record.blocks.windows(2).all(|two| two[1].began > two[0].ended), "a checkpoint lies between");
    let epoch = &ledger.records.epochs[&1];
    let (last, trained) = (record.blocks[2].ended, epoch.trained.unwrap());
    assert_eq!((epoch.began, trained), (record.blocks[0].began, last));
    assert!(epoch.ended >= epoch.trained && !epoch.meminfo.is_empty());
}

#[test]
fn events_tell_blocks_and_checkpoints_in_order() {
    let (ledger, events) = run(false);
    let told: Vec<String> = events
        .into_iter()
        .filter_map(|event| match event {
            Event::BlockBegan { block } => Some(format!("begin {block}")),
            Event::BlockEnded { block, took, seen } => {
                Some(format!("end {block}: {} in {}", seen.steps, millis(took)))
            }
            Event::CheckpointBegan { moment } => Some(format!("save {}", moment.step)),
            Event::CheckpointSaved { moment, took } if took > Nanos::ZERO => {
                Some(format!("saved {}", moment.step))
            }
            _ => None,
        })
        .collect();
    assert!(ledger.faults().is_empty());
    assert_eq!(
        told,
        [
            "begin 1",
            "end 1: 5 in 125",
            "save 5",
            "saved 5",
            "begin 2",
            "end 2: 5 in 125",
            "save 10",
            "saved 10",
            "begin 3",
            "end 3: 2 in 50",
        ]
    );
}
