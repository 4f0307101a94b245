//! Saves, drains and restores on real folders and on simulated devices.

mod crashes;
mod faults;
mod leaving;
mod nodes;
mod objects;

use std::path::Path;
use std::sync::Mutex;

use model::checkpoint::manifest::MANIFEST;
use model::checkpoint::{Geometry, RestoreRecord, SaveRequest, Scale, Schedule};
use model::spec::{self, Override, SaveMode, WorkloadSource};
use store::{Mode, Selection};

use super::*;
use crate::meter::Monotonic;
use crate::world::Solo;

fn request(ranks: u64, scale: Scale) -> SaveRequest {
    let last = Selection::named("posix", Mode::default()).unwrap().plan();
    SaveRequest { ranks, scale, last, fast: None }
}

fn plan(overrides: &[&str], ranks: u64, scale: u64) -> CheckpointPlan {
    const TEXT: &str = "
framework: pytorch
model:
  type: transformer
  num_layers: 2
  parallelism: {zero_stage: 3}
  transformer: {vocab_size: 1000, hidden_size: 256, ffn_hidden_size: 512, num_attention_heads: 8, num_kv_heads: 8}
workflow: {train: false, checkpoint: true}
checkpoint: {num_checkpoints_write: 1, fsync: true, chunk_size: 65536}
";
    let overrides: Vec<Override> = overrides.iter().map(|text| Override::hydra(text, *text)).collect();
    let spec = spec::read(WorkloadSource { name: "test", text: TEXT }, &overrides).unwrap().spec;
    let scale = Scale { numerator: 1, denominator: scale };
    CheckpointPlan::resolve(&spec, &request(ranks, scale)).unwrap().unwrap()
}

fn tier(store: &str, root: &Path) -> Box<dyn Tier> {
    Selection::named(store, Mode::default()).unwrap().tier(root).unwrap()
}

fn at(step: u64) -> Moment {
    Moment { epoch: 1, step }
}

struct Bench {
    plan: CheckpointPlan,
    fast: Option<Box<dyn Tier>>,
    last: Box<dyn Tier>,
    stop: Stop,
}

impl Bench {
    fn keep<T>(&self, work: impl FnOnce(&Checkpointer<'_>) -> T) -> (T, Vec<SaveRecord>) {
        self.try_keep(work).unwrap()
    }

    fn try_keep<T>(
        &self,
        work: impl FnOnce(&Checkpointer<'_>) -> T,
    ) -> Result<(T, Vec<SaveRecord>), CheckpointError> {
        let clock = Monotonic::new();
        let setup = CheckpointSetup {
            plan: &self.plan,
            model: "test",
            seed: 7,
            world: &Solo::new(),
            fast: self.fast.as_deref(),
            last: &*self.last,
            clock: &clock,
            stop: &self.stop,
            events: &Events::default(),
        };
        keep(setup, work).map(|kept| (kept.done, kept.saves))
    }
}

fn direct(overrides: &[&str], root: &Path) -> Bench {
    Bench { plan: plan(overrides, 4, 1), fast: None, last: tier("posix", root), stop: Stop::default() }
}

fn burst(overrides: &[&str], fast: &Path, last: &Path) -> Bench {
    let overrides = [&["checkpoint.mode_of_save=burst-buffer"], overrides].concat();
    Bench { fast: Some(tier("posix", fast)), ..direct(&overrides, last) }
}

fn complete(root: &Path) -> Vec<String> {
    let mut found: Vec<String> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join(MANIFEST).exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    found.sort();
    found
}

fn newest() -> RestoreRequest {
    RestoreRequest { moment: None, cold: true }
}

#[test]
fn checkpoints_are_restored_as_saved_in_every_mode() {
    for mode in ["direct", "async", "burst-buffer"] {
        let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut bench = burst(&[&format!("checkpoint.mode_of_save={mode}")], fast.path(), last.path());
        if mode != "burst-buffer" {
            bench.fast = None;
        }
        let ((), saved) = bench.keep(|checkpointer| {
            checkpointer.save(at(10));
            checkpointer.save(at(20));
        });
        assert_eq!(complete(last.path()), ["global_epoch1_step10", "global_epoch1_step20"], "{mode}");
        for seen in &saved {
            assert!(seen.troubles.is_empty(), "{mode}: {:?}", seen.troubles);
            assert_eq!(seen.bytes, bench.plan.geometry.total_bytes());
            let durable = seen.durable_ns.unwrap();
            assert!(mode != "direct" || durable <= seen.blocked_ns, "training waits until it is durable");
            assert!(seen.fast_ns.is_none_or(|fast| fast <= durable), "{mode}");
            assert_eq!(seen.fast_ns.is_some(), mode == "burst-buffer");
            assert!(seen.slowest_rank_ns >= seen.first_rank_ns && seen.first_rank_ns > Nanos::ZERO);
        }
        assert!(
            !fast.path().join("global_epoch1_step10").exists(),
            "drained checkpoints leave the fast tier"
        );
        let (restored, _) = bench.keep(|checkpointer| checkpointer.restore(newest()).unwrap());
        assert_eq!((restored.moment, restored.from_fast), (at(20), false));
        assert_eq!(restored.verified_bytes, bench.plan.geometry.total_bytes());
    }
}

#[test]
fn files_have_the_names_and_sizes_of_the_geometry() {
    let folder = tempfile::tempdir().unwrap();
    let bench = direct(&[], folder.path());
    bench.keep(|checkpointer| checkpointer.save(at(1)));
    let place = folder.path().join("global_epoch1_step1");
    let geometry: &Geometry = &bench.plan.geometry;
    for file in (0..4).flat_map(|rank| geometry.files(rank)) {
        assert_eq!(std::fs::metadata(place.join(&file.name)).unwrap().len(), file.bytes, "{}", file.name);
    }
    assert_eq!(std::fs::read_dir(&place).unwrap().count() as u64, geometry.file_count() + 1);
}

#[test]
fn every_change_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let bench = direct(&[], folder.path());
    bench.keep(|checkpointer| (checkpointer.save(at(1)), checkpointer.save(at(2))));
    let file = folder.path().join("global_epoch1_step2/zero_pp_rank_1_mp_rank_0_optim_states.pt");
    let good = std::fs::read(&file).unwrap();
    let restore = || bench.keep(|checkpointer| checkpointer.restore(newest())).0.unwrap_err().to_string();
    let mut bytes = good.clone();
    bytes[70_000] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    let error = restore();
    assert!(error.contains("rank_1_mp_rank_0_optim") && error.contains("byte 70000 is not"), "{error}");
    std::fs::write(&file, &good[..good.len() - 1]).unwrap();
    assert!(restore().contains("its manifest lists"));
    let stale = folder.path().join("global_epoch1_step1/zero_pp_rank_1_mp_rank_0_optim_states.pt");
    std::fs::copy(stale, &file).unwrap();
    assert!(restore().contains("belongs to another place: global_epoch1_step1"));
    std::fs::remove_file(&file).unwrap();
    assert!(restore().contains("does not exist"));
}

#[test]
fn a_folder_without_a_complete_manifest_is_not_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let bench = direct(&[], folder.path());
    bench.keep(|checkpointer| (checkpointer.save(at(1)), checkpointer.save(at(2))));
    let manifest = folder.path().join("global_epoch1_step2").join(MANIFEST);
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    let (restored, _) = bench.keep(|checkpointer| checkpointer.restore(newest()).unwrap());
    assert_eq!(restored.moment, at(1));
    // It may be of a newer version: it is kept and not overwritten.
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), text[..text.len() / 2]);
    let (_, saved) = bench.keep(|checkpointer| checkpointer.save(at(2)));
    assert!(saved[0].troubles[0].contains("global_epoch1_step2 holds files that feedline"), "{saved:?}");
    let empty = tempfile::tempdir().unwrap();
    let error = direct(&[], empty.path()).keep(|checkpointer| checkpointer.restore(newest())).0.unwrap_err();
    assert!(error.to_string().starts_with("there is no complete checkpoint in"), "{error}");
}

#[test]
fn a_checkpoint_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    direct(&[], folder.path()).keep(|checkpointer| checkpointer.save(at(1)));
    let other = Bench { plan: plan(&[], 2, 1), ..direct(&[], folder.path()) };
    let error = other.keep(|checkpointer| checkpointer.restore(newest())).0.unwrap_err().to_string();
    assert!(error.contains("test on 4 ranks at scale 1") && error.contains("test on 2 ranks"), "{error}");
}

#[test]
fn only_the_newest_are_kept() {
    let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bench = burst(&["checkpoint.keep_last=2"], fast.path(), last.path());
    bench.keep(|checkpointer| (1..=5).map(|step| checkpointer.save(at(step))).max());
    assert_eq!(complete(last.path()), ["global_epoch1_step4", "global_epoch1_step5"]);
    assert_eq!(std::fs::read_dir(last.path()).unwrap().count(), 2);
    assert_eq!(std::fs::read_dir(fast.path()).unwrap().count(), 0);
}

#[test]
fn the_newest_checkpoint_is_the_one_saved_last_regardless_of_its_step() {
    let folder = tempfile::tempdir().unwrap();
    let bench = direct(&["checkpoint.keep_last=2"], folder.path());
    bench.keep(|checkpointer| (checkpointer.save(at(9)), checkpointer.save(at(10))));
    bench.keep(|checkpointer| checkpointer.save(at(1)));
    assert_eq!(complete(folder.path()), ["global_epoch1_step1", "global_epoch1_step10"]);
    let (restored, _) = bench.keep(|checkpointer| checkpointer.restore(newest()).unwrap());
    assert_eq!(restored.moment, at(1));
}

#[test]
fn an_interrupted_drain_is_repeated() {
    let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A run that saved to the fast tier and was killed in the middle of its drain.
    direct(&[], fast.path()).keep(|checkpointer| checkpointer.save(at(3)));
    let (there, half) = (fast.path().join("global_epoch1_step3"), last.path().join("global_epoch1_step3"));
    std::fs::create_dir(&half).unwrap();
    std::fs::copy(there.join(MANIFEST), half.join("checkpoint.draft")).unwrap();
    std::fs::write(half.join("zero_pp_rank_0_mp_rank_0_model_states.pt"), "half").unwrap();
    let bench = burst(&[], fast.path(), last.path());
    let (restored, _) = bench.keep(|checkpointer| checkpointer.restore(newest()).unwrap());
    assert_eq!(restored.moment, at(3));
    assert_eq!(complete(last.path()), ["global_epoch1_step3"]);
    assert_eq!(std::fs::read_dir(fast.path()).unwrap().count(), 0);
    let (again, _) = bench.keep(|checkpointer| checkpointer.restore(newest()).unwrap());
    assert_eq!((again.moment, again.from_fast), (at(3), false));
}

#[test]
fn a_shift_moves_the_work_to_another_rank() {
    let folder = tempfile::tempdir().unwrap();
    // Without ZeRO only rank 0 writes; shifted by one, the last rank reads it.
    let alone = ["model.parallelism.zero_stage=0", "checkpoint.recovery_rank_shift=true"];
    let bench = direct(&alone, folder.path());
    bench.keep(|checkpointer| checkpointer.save(at(1)));
    let (restored, _): (RestoreRecord, _) =
        bench.keep(|checkpointer| checkpointer.restore(newest()).unwrap());
    assert_eq!(restored.first_rank_ns, Nanos::ZERO, "rank 0 has nothing to read");
    assert!(restored.slowest_rank_ns > Nanos::ZERO);
}

#[test]
fn a_full_fast_tier_costs_time_but_no_checkpoint() {
    let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bench = Bench {
        fast: Some(tier("fault:posix,kind=full", fast.path())),
        ..burst(&[], fast.path(), last.path())
    };
    let (_, saved) = bench.keep(|checkpointer| checkpointer.save(at(1)));
    assert_eq!(complete(last.path()), ["global_epoch1_step1"]);
    assert!(saved[0].troubles[0].contains("fast tier: no space left"), "{:?}", saved[0].troubles);
    assert!(saved[0].durable_ns.is_some());
    assert_eq!(std::fs::read_dir(fast.path()).unwrap().count(), 0, "no partial checkpoint is left there");
}

#[test]
fn a_last_tier_that_comes_back_gets_its_checkpoint() {
    let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bench = burst(&[], fast.path(), last.path());
    let blocked = last.path().join("global_epoch1_step1");
    // A file in place of the checkpoint's folder: nothing can be written there until it is removed.
    let ((), saved) = bench.keep(|checkpointer| {
        std::fs::write(&blocked, "in the way").unwrap();
        checkpointer.save(at(1));
        while checkpointer.state().saved[0].troubles.is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_file(&blocked).unwrap();
    });
    assert!(saved[0].troubles[0].starts_with("drain: "), "{:?}", saved[0].troubles);
    assert!(saved[0].durable_ns.is_some());
    assert_eq!(complete(last.path()), ["global_epoch1_step1"]);
}

#[test]
fn memory_of_a_snapshot_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let bench = direct(&["checkpoint.mode_of_save=async", "checkpoint.pool_size=131072"], folder.path());
    let ((), saved) = bench.keep(|checkpointer| {
        checkpointer.save(at(1));
        assert!(checkpointer.pool.used() <= 131_072);
    });
    assert!(saved[0].troubles.is_empty() && saved[0].durable_ns.is_some());
    assert!(saved[0].back_pressure_ns > Nanos::ZERO, "the checkpoint is larger than the pool");
}

/// The burst-buffer experiment of the literature, at a tenth of its size, on simulated devices.
fn simulated(overrides: &[&str], mode: SaveMode, saves: u64, apart: Nanos) -> Vec<SaveRecord> {
    const TEXT: &str = "
framework: pytorch
model: {type: cnn, model_size_bytes: 60000000}
workflow: {train: false, checkpoint: true}
checkpoint: {num_checkpoints_write: 1, fsync: true, chunk_size: 1048576}
";
    let overrides: Vec<Override> = overrides.iter().map(|text| Override::hydra(text, *text)).collect();
    let spec = spec::read(WorkloadSource { name: "test", text: TEXT }, &overrides).unwrap().spec;
    let mut plan = CheckpointPlan::resolve(&spec, &request(1, Scale::WHOLE)).unwrap().unwrap();
    plan.save = mode;
    assert!(matches!(plan.schedule, Schedule::Alone { .. }));
    let (fast, last) = ("sim:bandwidth=1603MB/s", "sim:bandwidth=163MB/s");
    let bench = Bench {
        plan,
        fast: (mode == SaveMode::BurstBuffer).then(|| tier(fast, Path::new("."))),
        last: tier(last, Path::new(".")),
        stop: Stop::default(),
    };
    let clocked = Mutex::new(());
    let ((), saved) = bench.keep(|checkpointer| {
        let _one_at_a_time = clocked.lock().unwrap();
        for step in 1..=saves {
            let end = checkpointer.save(at(step));
            checkpointer.setup.clock.sleep_until(end + apart, &|| false);
        }
    });
    saved
}

fn mean_blocked(saved: &[SaveRecord]) -> f64 {
    saved.iter().map(|save| save.blocked_ns.seconds()).sum::<f64>() / saved.len() as f64
}

#[test]
fn a_burst_buffer_gains_what_the_bandwidths_predict() {
    let apart = Nanos(400_000_000);
    let slow = simulated(&[], SaveMode::Direct, 2, apart);
    let fast = simulated(&[], SaveMode::BurstBuffer, 2, apart);
    // On a busy host a save begins late, but no host makes a device faster.
    for (saves, seconds) in [(&slow, 0.368), (&fast, 0.0374)] {
        let blocked = mean_blocked(saves);
        assert!((0.99 * seconds..1.5 * seconds).contains(&blocked), "{blocked} for {seconds}");
    }
    for save in &fast {
        assert!(save.durable_ns.unwrap().seconds() >= 0.368, "durable on the slow tier later");
    }
}
