//! Plans of workloads with known numbers, and requests that are impossible.

use super::bare::{Bare, buffered};
use super::*;
use crate::checkpoint::Scale;
use crate::files::{FileEntry, FileList};
use crate::names::Name;
use crate::order::Unit;
use crate::spec::{self, CacheState, Override, Preprocess, Shuffle, WorkloadSource};

fn workload(name: &str) -> Spec {
    let path = format!("{}/../../workloads/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    spec::read(WorkloadSource { name, text: &text }, &[]).unwrap().spec
}

fn small(overrides: &[&str]) -> Spec {
    let text = "
framework: pytorch
dataset: {format: jpeg, num_files_train: 100, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 4, read_threads: 3}
train: {epochs: 2, computation_time: 0.1}
";
    let overrides: Vec<Override> = overrides.iter().map(|text| Override::hydra(text, *text)).collect();
    spec::read(WorkloadSource { name: "small", text }, &overrides).unwrap().spec
}

fn request(ranks: u64) -> Request<'static> {
    Request {
        workload: "test",
        ranks,
        placement: Placement::even(ranks, 1, 1),
        host_memory_bytes: 64 << 30,
        cores: 2,
        store: buffered(),
        memory: None,
        entropy: 99,
        measure: Some(&Bare(Unit::Sample)),
        listed: None,
    }
}

fn plan(spec: &Spec, ranks: u64) -> TrainingPlan {
    TrainingPlan::resolve(spec, &request(ranks)).unwrap()
}

#[test]
fn mlperfs_examples_of_the_size_rule_are_reproduced() {
    for (name, ranks, steps_floor, memory_floor, gib) in [
        ("unet3d_b200", 4, 14_000, 2_344, 1911),
        ("retinanet_b200", 16, 192_000, 1_063_911, 320),
        ("resnet50_h100", 8, 1_279, 2_396, 320),
    ] {
        let rule = plan(&workload(name), ranks).estimate.mlperf;
        assert_eq!((rule.steps_floor_files, rule.memory_floor_files), (steps_floor, memory_floor), "{name}");
        assert_eq!(rule.required_files, steps_floor.max(memory_floor));
        assert_eq!(rule.required_bytes >> 30, gib, "{name}");
    }
}

#[test]
fn demand_matches_the_table_of_workloads() {
    for (name, mib_per_second) in
        [("unet3d_h100", 3030.0), ("retinanet_b200", 155.5), ("cosmoflow_a100", 490.0)]
    {
        let mut spec = workload(name);
        spec.dataset.record_length_bytes_stdev = 0.0;
        let demand = plan(&spec, 1).estimate.demand.unwrap();
        assert!(
            (demand.mib_per_second / mib_per_second - 1.0).abs() < 0.005,
            "{name}: {}",
            demand.mib_per_second
        );
    }
}

#[test]
fn a_lognormal_workload_counts_with_its_mean_size() {
    let spec = small(&["dataset.size_law=lognormal", "dataset.num_files_train=20000"]);
    assert_eq!(spec.dataset.size_sigma, Some(0.5));
    let plan = plan(&spec, 1);
    assert!((plan.metric.record_length_bytes - 4641.4).abs() < 0.1, "{}", plan.metric.record_length_bytes);
    let mean = plan.data.train.bytes as f64 / 20_000.0;
    assert!((mean / plan.metric.record_length_bytes - 1.0).abs() < 0.01, "{mean}");
    assert_eq!(plan.data.table_bytes(), 2 * 160_000, "sizes of samples and files are kept");
}

#[test]
fn steps_shards_and_remainder() {
    let shards = plan(&small(&[]), 3).train.shards;
    assert_eq!((shards.steps, shards.delivered(), shards.dropped()), (8, 96, 4));
    let capped = plan(&small(&["train.total_training_steps=5"]), 3).train.shards;
    assert_eq!((capped.steps, capped.dropped()), (5, 40));
}

#[test]
fn the_data_set_includes_files_that_are_not_read() {
    let plan = plan(&small(&["dataset.num_files_generated=150", "dataset.num_files_eval=10"]), 1);
    assert_eq!((plan.data.files(), plan.data.bytes()), (160, 160 * 4096));
    assert_eq!((plan.data.train.files, plan.data.train.bytes), (100, 100 * 4096));
    assert_eq!(plan.data.train.names.of(0), "train/img_000_of_150.bare");
}

#[test]
fn a_plan_is_written_without_size_tables_and_gets_them_back() {
    let spec = small(&["dataset.record_length_bytes_stdev=500"]);
    let whole = Plan::resolve(&spec, &request(1), None).unwrap();
    let written = serde_json::to_value(&whole).unwrap();
    assert_eq!(written["data"]["listed"], serde_json::Value::Null);
    let again: Plan = serde_json::from_value(written).unwrap();
    let data = &again.trained().unwrap().data;
    assert_eq!(data.source, FileSource::Unrestored);
    assert!(data.computed().is_none(), "an unknown size is not 0");
    let again = again.restored(&spec, Some(&Bare(Unit::Sample))).unwrap();
    let sizes = |plan: &Plan| {
        let data = plan.trained().unwrap().data.computed().unwrap();
        (0..100).map(|file| data.file_bytes(file)).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&again), sizes(&whole));
}

#[test]
fn an_object_store_has_large_ranges_and_no_page_cache() {
    let (text, medium) = ("s3".to_owned(), Medium::Objects);
    let store = StorePlan { text, medium, cached: false, threads: Threads::PerCore, ..buffered().clone() };
    let spec = small(&["dataset.record_length_bytes=100000000", "reader.cache=warm", "reader.odirect=true"]);
    let plan = TrainingPlan::resolve(&spec, &Request { store: &store, ..request(1) }).unwrap();
    assert_eq!((plan.loader.transfer_bytes, plan.cache), (8 << 20, None));
    assert!(!plan.estimate.memory.iter().any(|term| term.what.contains("read buffers")));
    let idle = idle(&spec, &plan).into_iter().map(|(key, _)| key);
    let given = ["reader.odirect", "reader.cache", "reader.transfer_size"];
    assert_eq!(idle.filter(|key| given.contains(key)).collect::<Vec<_>>(), given[..2]);
}

#[test]
fn existing_files_have_no_computed_sizes() {
    let split = |first, files| ListedSplit { first, files, bytes: files * 1000 };
    let (origin, train, valid) = (ListOrigin::Catalog, split(0, 100), split(100, 10));
    let listed = Listed { digest: "d".to_owned(), origin, train, valid };
    let spec = small(&[]);
    let source = FileSource::Listed(listed.clone());
    let request = Request { listed: Some(&source), ..request(1) };
    let whole = Plan::resolve(&spec, &request, None).unwrap();
    let TrainingPlan { data, loader, .. } = whole.trained().unwrap();
    assert_eq!((data.listed(), data.computed().is_none()), (Some(&listed), true));
    assert_eq!((data.bytes(), data.table_bytes()), (110_000, 0));
    assert_eq!((data.largest_file(), data.largest_sample()), (None, 1000));
    assert_eq!(loader.transfer_bytes, 1 << 20, "the transfer size does not depend on unknown sizes");
    let written = serde_json::to_value(&whole).unwrap();
    assert_eq!(written["data"]["listed"]["digest"], "d");
    let again: Plan = serde_json::from_value(written).unwrap();
    let again = again.restored(&spec, Some(&Bare(Unit::Sample))).unwrap();
    assert_eq!(&again.trained().unwrap().data, data);
}

/// The plan of a workload whose training files have these sizes.
fn plan_of_found(spec: &Spec, sizes: FileBytes) -> Plan {
    let computed = Data::resolve(spec, None).unwrap();
    let source = FileSource::Found(FoundFiles::new((&computed.train, sizes), None));
    Plan::resolve(spec, &Request { listed: Some(&source), ..request(1) }, None).unwrap()
}

#[test]
fn sizes_as_found_replace_the_computed_ones() {
    let spec = small(&["dataset.num_files_train=100"]);
    let sizes: Vec<u64> = (0..100).map(|file| 5000 + file).collect();
    let (same, each) =
        (plan_of_found(&spec, FileBytes::Same(7000)), plan_of_found(&spec, FileBytes::Each(sizes)));
    let data = &each.trained().unwrap().data;
    let computed = plan(&spec, 1).data;
    assert_eq!((&data.train.names, data.train.files), (&computed.train.names, computed.train.files));
    assert_eq!((data.train.bytes, data.largest_file(), data.table_bytes()), (504_950, Some(5099), 800));
    assert!(data.computed().is_none() && data.exact && data.visit_bytes.is_none(), "the layout is unknown");
    let (mut name, [train, _]) = (Name::default(), data.found().unwrap());
    assert_eq!(
        (train.entry(99, &mut name), name.as_str()),
        (Ok(FileEntry::of_size(5099)), data.train.names.of(99).as_str())
    );
    let uniform = &same.trained().unwrap().data;
    assert_eq!((uniform.train.bytes, uniform.table_bytes()), (700_000, 0), "equal sizes need no table");
    assert_ne!(same.digest(), each.digest());
    let written = serde_json::to_value(&each).unwrap();
    assert_eq!(written["data"]["listed"]["origin"], "sizes_as_found");
    let again: Plan = serde_json::from_value(written).unwrap();
    let again = again.restored(&spec, Some(&Bare(Unit::Sample))).unwrap();
    assert_eq!(again.trained().unwrap().data.listed(), data.listed());
    assert_eq!(again.digest(), each.digest());
}

#[test]
fn prefetch_is_rounded_up_to_whole_readers_and_zero_stays_zero() {
    for (setting, batches) in [("2", 3), ("4", 6), ("0", 0)] {
        let spec = small(&[&format!("reader.prefetch_size={setting}")]);
        assert_eq!(plan(&spec, 1).loader.prefetch_batches, batches);
    }
}

/// The single definition of what can be ready in advance, for rules and commands.
#[test]
fn batches_that_can_be_ready_in_advance() {
    let ahead = |settings: &[&str]| plan(&small(settings), 1).batches_ahead();
    assert_eq!(ahead(&["reader.prefetch_size=4"]), 6, "two for each reader");
    assert_eq!(ahead(&["reader.prefetch_size=0"]), 0);
    let copy = "train.device_copy_rate=10";
    assert_eq!(ahead(&["reader.prefetch_size=0", copy]), 1, "it is requested while the accelerator computes");
    assert_eq!(ahead(&["reader.prefetch_size=0", copy, "train.device_prefetch=false"]), 0);
    let mut plan = plan(&small(&["reader.prefetch_size=4"]), 1);
    assert_eq!((plan.steps_to_measure(None), plan.train.shards.batch), (120, 4));
    assert!(matches!(plan.check_window(None), Err(PlanError::WindowTooShort { needed: 120, ahead: 6, .. })));
    (plan.loader.lead_samples, plan.loader.beyond_samples) = (9, 3);
    assert_eq!(plan.batches_ahead(), 6 + 3, "the shuffle buffer and samples in flight");
    plan.loader.prefetch_batches = u64::MAX;
    assert_eq!(plan.steps_to_measure(None), u64::MAX);
}

#[test]
fn shuffle_keys_choose_unit_and_seed() {
    let order = |files: &str, samples: &str| {
        let set = [format!("reader.file_shuffle={files}"), format!("reader.sample_shuffle={samples}")];
        plan(&small(&[&set[0], &set[1]]), 1).train.order
    };
    assert_eq!(order("off", "off").unit, Unit::None);
    assert_eq!((order("seed", "off").unit, order("seed", "off").seed), (Unit::File, 123));
    assert_eq!(order("off", "seed").unit, Unit::Sample);
    assert_eq!(order("off", "random").seed, 99, "random takes the run's entropy");
    assert!(
        !plan(&small(&["reader.file_shuffle=seed", "train.seed_change_epoch=false"]), 1)
            .train
            .order
            .reshuffle
    );
}

#[test]
fn the_format_determines_what_can_be_shuffled() {
    let unit = |spec: &Spec, finest| {
        let bare = Bare(finest);
        TrainingPlan::resolve(spec, &Request { measure: Some(&bare), ..request(1) }).unwrap().train.order.unit
    };
    assert_eq!(unit(&workload("cosmoflow_h100"), Unit::File), Unit::File, "streams are read in order");
    let mut dlrm = workload("dlrm_b200");
    assert_eq!(unit(&dlrm, Unit::Group(6144)), Unit::File);
    dlrm.reader.sample_shuffle = Shuffle::Seed;
    assert_eq!(unit(&dlrm, Unit::Group(6144)), Unit::Group(6144), "row groups move");
    assert_eq!(unit(&workload("unet3d_h100"), Unit::Sample), Unit::Sample);
}

#[test]
fn each_reader_has_a_thread_only_if_fetches_block() {
    let spec = small(&["reader.read_threads=8"]);
    assert_eq!(plan(&spec, 4).loader.threads, 32);
    let null = StorePlan { threads: Threads::PerCore, brings_bytes: false, ..buffered().clone() };
    let instant = Request { store: &null, ..request(4) };
    assert_eq!(TrainingPlan::resolve(&spec, &instant).unwrap().loader.threads, 2);
}

#[test]
fn evaluation_runs_after_the_configured_epochs() {
    let spec = small(&[
        "workflow.evaluation=true",
        "dataset.num_files_eval=10",
        "evaluation.eval_after_epoch=2",
        "evaluation.epochs_between_evals=3",
    ]);
    let plan = plan(&spec, 1);
    let eval = plan.eval.as_ref().unwrap();
    let after: Vec<u64> = (1..=9).filter(|epoch| eval.follows(*epoch)).collect();
    assert_eq!(after, [2, 5, 8]);
    let counted: Vec<u64> = (0..=9).map(|epochs| eval.times(epochs)).collect();
    assert_eq!(counted, [0, 0, 1, 1, 1, 2, 2, 2, 3, 3]);
    assert_eq!(plan.data.valid.first_file, 100, "validation files are numbered after the training files");
    assert_eq!(plan.phases(1).count(), 1);
    assert_eq!(plan.phases(2).count(), 2);
}

#[test]
fn the_digest_identifies_the_work_and_not_the_host() {
    let digest = |settings: &[&str], request: Request<'_>| {
        Plan::resolve(&small(settings), &request, None).unwrap().digest()
    };
    let base = digest(&[], request(2));
    let elsewhere = Request { cores: 64, host_memory_bytes: 1 << 40, workload: "other", ..request(2) };
    assert_eq!(base, digest(&[], elsewhere));
    assert_ne!(base, digest(&["train.seed=7"], request(2)));
    assert_ne!(base, digest(&[], request(4)));
}

#[test]
fn impossible_plans_say_why() {
    let refuse = |overrides: &[&str], ranks| {
        Plan::resolve(&small(overrides), &request(ranks), None).unwrap_err().to_string()
    };
    for (overrides, ranks, words) in [
        (&[] as &[&str], 0, "--ranks must be from 1 to 1048576, not 0"),
        (&[], u64::MAX, "--ranks must be from 1 to 1048576"),
        (&["dataset.file_prefix=../../x"], 1, "'../../x' must be a plain name"),
        (&[], 30, "one step of 30 ranks x batch 4 needs 120 samples, but there are only 100"),
        (&["output.metric.exclude_start_steps=25"], 1, "no step is left to measure"),
        (&["workflow.evaluation=true"], 1, "nothing to evaluate on"),
        (&["workflow.train=false"], 1, "does not train: workflow.train is false"),
    ] {
        let message = refuse(overrides, ranks);
        assert!(message.contains(words), "{message}");
    }
    // On two hosts, the first one has one rank more.
    let uneven = Request { placement: Placement::even(5, 2, 1), ..request(5) };
    let [uneven, one] =
        [uneven, request(3)].map(|request| Plan::resolve(&small(&[]), &request, None).unwrap());
    assert_eq!(uneven.memory_bytes(), one.memory_bytes(), "as much as 3 ranks on one host");
    assert_eq!((uneven.hosts, uneven.ranks), (2, 5));
    for (hosts, processes, words) in [
        (5, 1, "4 ranks cannot be spread over 5 hosts"),
        (0, 1, "--hosts must be at least 1"),
        (2, 3, "4 ranks cannot be spread over 6 processes"),
    ] {
        let crowded = Request { placement: Placement::even(4, hosts, processes), ..request(4) };
        let message = Plan::resolve(&small(&[]), &crowded, None).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}

/// The location of checkpoints in tests.
fn saving() -> SaveRequest {
    SaveRequest { ranks: 2, scale: Scale::WHOLE, last: buffered().clone(), fast: None }
}

fn whole(settings: &[&str]) -> Plan {
    Plan::resolve(&small(settings), &request(2), Some(&saving())).unwrap()
}

const SAVES: [&str; 2] = ["workflow.checkpoint=true", "model.model_size_bytes=1000"];
const SAVES_ALONE: [&str; 5] = [
    "workflow.train=false",
    "workflow.checkpoint=true",
    "model.model_size_bytes=1000",
    "checkpoint.num_checkpoints_write=2",
    "checkpoint.num_checkpoints_read=1",
];

#[test]
fn training_and_checkpoints_are_optional_parts_of_a_plan() {
    let [trains, both, saves] = [whole(&[]), whole(&SAVES), whole(&SAVES_ALONE)];
    let parts = |plan: &Plan| (plan.training.is_some(), plan.checkpoint.is_some());
    assert_eq!([&trains, &both, &saves].map(parts), [(true, false), (true, true), (false, true)]);
    assert_eq!([trains.saves(), both.saves(), saves.saves()], [0, 2, 2]);
    assert!(both.memory_bytes() > trains.memory_bytes(), "buffers of checkpoints take memory");
    assert!(matches!(saves.trained(), Err(PlanError::NoTraining { .. })));
    let nothing = [&SAVES_ALONE[..3], &["checkpoint.num_checkpoints_write=0"]].concat();
    let refused = Plan::resolve(&small(&nothing), &request(2), Some(&saving()));
    assert_eq!(refused, Err(PlanError::NothingToSave));
}

#[test]
fn a_plan_is_read_back_as_it_was_written() {
    for settings in [&[] as &[&str], &SAVES, &SAVES_ALONE] {
        let plan = whole(settings);
        let text = serde_json::to_string(&plan).unwrap();
        let read: Plan = serde_json::from_str(&text).unwrap();
        assert_eq!((read.digest(), serde_json::to_string(&read).unwrap()), (plan.digest(), text));
    }
}

/// A damaged part must not count as an absent one.
#[test]
fn a_damaged_plan_is_refused() {
    let mut value = serde_json::to_value(whole(&SAVES)).unwrap();
    value["loader"] = serde_json::json!("none");
    assert!(serde_json::from_value::<Plan>(value.clone()).is_err());
    let map = value.as_object_mut().unwrap();
    map.remove("train");
    map.remove("checkpoint");
    let error = serde_json::from_value::<Plan>(value).unwrap_err().to_string();
    assert_eq!(error, "the plan neither trains nor saves checkpoints");
}

#[test]
fn keys_of_plan_json_keep_their_order() {
    let keys = |plan: &Plan| -> Vec<String> {
        serde_json::to_value(plan).unwrap().as_object().unwrap().keys().cloned().collect()
    };
    let training = "workload model format store access ranks hosts epochs seed verify data train eval loader cache \
                    device metric estimate checkpoint";
    assert_eq!(keys(&whole(&SAVES)).join(" "), training);
    assert_eq!(keys(&whole(&SAVES_ALONE)).join(" "), "workload model ranks hosts checkpoint memory_bytes");
}

#[test]
fn on_the_null_backend_the_work_is_the_same_without_storage() {
    let plan = whole(&SAVES);
    let null = plan.on_null_backend();
    let (before, after) = (plan.trained().unwrap(), null.trained().unwrap());
    assert!(after.store.is_null() && after.cache.is_none() && null.checkpoint.is_none());
    assert_eq!((&after.loader, &after.train, after.epochs), (&before.loader, &before.train, before.epochs));
    let brief = before.calibration();
    assert!(brief.store.is_null() && brief.cache.is_none(), "calibration uses the same definition");
    assert_eq!(brief.loader.threads, before.loader.threads, "they are part of the ceiling");
}

#[test]
fn a_probe_has_a_few_steps_of_one_epoch() {
    let plan = whole(&["workflow.evaluation=true", "dataset.num_files_eval=8"]);
    let probe = plan.probe(5).unwrap();
    let training = probe.trained().unwrap();
    assert_eq!((training.epochs, &training.eval, training.train.shards.steps), (1, &None, 5));
    assert_eq!(plan.probe(1000).unwrap().trained().unwrap().train.shards.steps, 12, "no more than there are");
    assert!(matches!(plan.probe(1), Err(PlanError::NothingToMeasure { steps: 1, .. })));
    assert!(matches!(plan.with_window(12, 0), Err(PlanError::NothingToMeasure { .. })));
}

#[test]
fn records_of_steps_are_counted_in_memory_and_change_nothing_else() {
    let (plan, placement) = (whole(&[]), Placement::even(2, 1, 1));
    let recording = plan.recording_steps(&placement);
    assert!(recording.trained().unwrap().record_steps && !plan.trained().unwrap().record_steps);
    let more = recording.memory_bytes() - plan.memory_bytes();
    let training = plan.trained().unwrap();
    let steps = training.epochs * training.train.shards.steps * placement.ranks_per_host;
    assert!(more >= 16 * steps, "{more} bytes for {steps} steps");
    assert!(!recording.trained().unwrap().calibration().record_steps, "a calibration reports no steps");
    assert_eq!(recording.digest(), plan.digest());
}

#[test]
fn variants_change_only_what_their_name_says() {
    let plan = whole(&["reader.preprocess=sleep", "reader.preprocess_time=0.1", "reader.cache=as-is"]);
    let warm = plan.with_cache(CacheState::Warm);
    assert_eq!(warm.trained().unwrap().cache.unwrap().state, CacheState::Warm);
    assert_eq!(plan.on_null_backend().with_cache(CacheState::Warm), plan.on_null_backend());
    let bare = plan.without_preprocessing();
    assert_eq!(bare.trained().unwrap().loader.preprocess.kind, Preprocess::None);
    assert_eq!(plan.without_compute().trained().unwrap().train.compute.mean(), 0.0);
    assert_ne!(plan.digest(), bare.digest());
}

/// Plans with DLIO's behaviour on request.
mod compat {
    use super::*;
    use crate::checkpoint::manifest::Moment;
    use crate::units::Nanos;

    #[test]
    fn a_plan_without_it_has_no_keys_of_it() {
        let plain = whole(&["workflow.checkpoint=true"]);
        let text = serde_json::to_string(&plain).unwrap();
        for key in ["compat", "dealt", "shared_draws", "whole_files", "next_step"] {
            assert!(!text.contains(key), "{key}");
        }
        let switched = whole(&["workflow.checkpoint=true", "compat=dlio"]);
        assert_eq!(switched.compat.len(), 16);
        assert_ne!(plain.digest(), switched.digest());
        let read: Plan = serde_json::from_str(&serde_json::to_string(&switched).unwrap()).unwrap();
        assert_eq!((read.digest(), &read.compat), (switched.digest(), &switched.compat));
    }

    #[test]
    fn one_read_thread_is_the_cores_of_a_rank() {
        let readers = |cores: u64, ranks: u64, hosts: u64, sets: &[&str]| {
            let request = Request { cores, placement: Placement::even(ranks, hosts, 1), ..request(ranks) };
            TrainingPlan::resolve(&small(sets), &request).unwrap().loader.readers_per_rank
        };
        let auto = ["reader.read_threads=1", "compat.read_threads=dlio"];
        for (cores, ranks, hosts, expected) in
            [(2, 1, 1, 2), (64, 4, 1, 8), (20, 4, 1, 5), (2, 4, 1, 1), (16, 8, 2, 4)]
        {
            assert_eq!(readers(cores, ranks, hosts, &auto), expected, "{cores} cores, {ranks} ranks");
        }
        assert_eq!(readers(64, 1, 1, &["reader.read_threads=1"]), 1);
        assert_eq!(readers(64, 1, 1, &["reader.read_threads=3", "compat.read_threads=dlio"]), 3);
        assert_eq!(readers(64, 1, 1, &[auto[0], auto[1], "reader.max_auto_threads=2"]), 2);
    }

    #[test]
    fn no_prefetch_is_that_of_the_library() {
        let depth = |sets: &[&str]| {
            let sets: Vec<&str> = sets.iter().copied().chain(["reader.prefetch_size=0"]).collect();
            plan(&small(&sets), 1).loader.prefetch_batches
        };
        assert_eq!(depth(&[]), 0);
        assert_eq!(depth(&["compat.prefetch=dlio"]), 6, "2 for each of 3 workers");
        assert_eq!(depth(&["compat.prefetch=dlio", "reader.data_loader=dali"]), 2);
        assert_eq!(depth(&["compat.prefetch=dlio", "reader.read_threads=0"]), 0);
    }

    #[test]
    fn only_a_given_file_shuffle_moves_anything() {
        let order = |sets: &[&str]| {
            let sets: Vec<&str> = sets.iter().copied().chain(["compat.order=dlio"]).collect();
            plan(&small(&sets), 1).train.order
        };
        assert_eq!(order(&["reader.sample_shuffle=seed"]).unit, Unit::None);
        assert_eq!(order(&["reader.file_shuffle=off"]).unit, Unit::File);
        let random = order(&["reader.file_shuffle=random", "train.seed_change_epoch=false"]);
        assert_eq!((random.unit, random.seed, random.reshuffle), (Unit::File, 123, false));
        let spec = small(&["reader.sample_shuffle=seed", "compat.order=dlio"]);
        let idle = idle(&spec, &plan(&spec, 1));
        assert!(idle.iter().any(|(key, _)| *key == "reader.sample_shuffle"), "{idle:?}");
    }

    #[test]
    fn tensorflow_lists_tfrecord_files_before_they_are_shuffled() {
        let text = "dataset: {num_files_train: 20}\nreader: {file_shuffle: seed}\ncompat: {order: dlio}";
        let spec = spec::read(WorkloadSource { name: "tf", text }, &[]).unwrap().spec;
        assert_eq!(plan(&spec, 1).train.order.unit, Unit::None);
    }

    #[test]
    fn ranks_get_whole_files() {
        let sets = ["dataset.format=npz", "dataset.num_samples_per_file=3", "dataset.num_files_train=7"];
        let ours = plan(&small(&sets), 2).train;
        assert_eq!((ours.shards.steps, ours.shards.dropped(), ours.order.files), (2, 5, 7));
        let sets = [sets[0], sets[1], sets[2], "compat.shards=dlio", "reader.file_shuffle=seed"];
        let theirs = plan(&small(&sets), 2).train;
        assert_eq!((theirs.shards.steps, theirs.shards.delivered(), theirs.order.files), (2, 16, 6));
        let epoch = theirs.epoch_order(1);
        let files = |rank: u64| -> Vec<u64> {
            let first = theirs.shards.position(rank, 0);
            (first..first + 8).map(|position| epoch.sample(position) / 3).collect()
        };
        assert!(files(0).iter().all(|file| *file < 6 && !files(1).contains(file)), "no file is shared");
        let few = small(&[sets[0], sets[1], "dataset.num_files_train=2", sets[3]]);
        let error = TrainingPlan::resolve(&few, &request(3)).unwrap_err();
        assert!(matches!(error, PlanError::TooFewFiles { .. }), "{error}");
        assert!(error.to_string().contains("compat.shards=feedline"), "{error}");
    }

    #[test]
    fn a_rank_with_files_of_its_own_interleaves_from_its_first() {
        let text = "dataset: {num_files_train: 6, num_samples_per_file: 3}\n\
                    reader: {batch_size: 4, read_threads: 2}\ncompat: {shards: dlio}";
        let spec = spec::read(WorkloadSource { name: "tf", text }, &[]).unwrap().spec;
        let request = Request { measure: Some(&Bare(Unit::File)), ..request(2) };
        let phase = TrainingPlan::resolve(&spec, &request).unwrap().train;
        assert_eq!((phase.interleave.cycle, phase.shards.steps), (2, 2));
        let epoch = phase.epoch_order(1);
        let samples = |rank: u64| -> Vec<u64> {
            let stretch = phase.shards.position(rank, 0)..phase.shards.position(rank + 1, 0);
            stretch.clone().map(|position| epoch.sample(phase.place(&stretch, position).0)).collect()
        };
        assert_eq!(samples(0), [0, 6, 1, 7, 2, 8, 12, 13], "files 0 and 2 in turn, then file 4");
        assert_eq!(samples(1), [3, 9, 4, 10, 5, 11, 15, 16]);
    }

    #[test]
    fn samples_of_some_formats_read_the_whole_file() {
        let sets = ["dataset.num_samples_per_file=5", "dataset.format=hdf5", "compat.whole_files=dlio"];
        let whole = plan(&small(&sets), 1);
        assert!(whole.whole_files && whole.data.read_ratio == 5.0);
        assert_eq!(whole.data.visit_bytes, Some(5 * 4096));
        for sets in [
            &["dataset.format=hdf5", "compat.whole_files=dlio"][..],
            &["dataset.num_samples_per_file=5", "dataset.format=indexed_binary", "compat.whole_files=dlio"],
            &["dataset.num_samples_per_file=5", "dataset.format=hdf5"],
        ] {
            assert!(!plan(&small(sets), 1).whole_files, "{sets:?}");
        }
    }

    #[test]
    fn draws_are_shared_and_checkpoints_are_named_by_the_next_step() {
        let sets = ["train.computation_time_stdev=0.01", "compat.draws=dlio"];
        let drawn = |plan: &TrainingPlan, rank: u64| plan.compute_time(&plan.train, 1, rank, 5);
        let shared = plan(&small(&sets), 2);
        assert_eq!(drawn(&shared, 0), drawn(&shared, 1));
        let own = plan(&small(&sets[..1]), 2);
        assert_ne!(drawn(&own, 0), drawn(&own, 1));
        assert_eq!(drawn(&own, 0), drawn(&shared, 1));
        assert_ne!(drawn(&own, 0), Nanos::ZERO);
        for (sets, step) in
            [(&["workflow.checkpoint=true"][..], 25), (&["workflow.checkpoint=true", "compat=dlio"], 26)]
        {
            let checkpoint = whole(sets).checkpoint.unwrap();
            assert_eq!(checkpoint.after_epoch(1, 25), Some(Moment { epoch: 1, step }));
            assert_eq!(checkpoint.restore_cold, step == 25);
        }
    }
}
