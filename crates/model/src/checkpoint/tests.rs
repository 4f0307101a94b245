//! Sizes and names for the models that DLIO and MLPerf ship, and refused geometries.

use super::*;
use crate::plan::{Medium, RequestPlan, StorePlan};
use crate::spec::{self, Override, WorkloadSource};

fn workload(name: &str, overrides: &[&str]) -> Spec {
    let path = format!("{}/../../workloads/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let overrides: Vec<Override> = overrides.iter().map(|text| Override::hydra(text, *text)).collect();
    spec::read(WorkloadSource { name, text: &text }, &overrides).unwrap().spec
}

fn geometry(name: &str, ranks: u64) -> Geometry {
    Geometry::resolve(&workload(name, &[]), ranks, Scale::WHOLE).unwrap()
}

#[test]
fn the_llama_3_models_of_mlperf() {
    let table = [
        ("llama3_8b", 8, 8_030_261_248, 16_060_522_496, 96_365_101_056, 16),
        ("llama3_70b", 64, 69_882_617_856, 139_783_700_480, 838_622_871_552, 128),
        ("llama3_405b", 512, 405_853_388_800, 811_764_809_728, 4_870_743_982_080, 1544),
        ("llama3_1t", 1024, 1_183_035_102_480, 2_366_163_292_416, 14_198_010_802_176, 2072),
    ];
    for (name, ranks, parameters, model, optimizer, files) in table {
        let geometry = geometry(name, ranks);
        assert_eq!(geometry.parameters, Some(parameters), "{name}");
        assert_eq!(geometry.model_total_bytes(), model, "{name}");
        assert_eq!(geometry.optimizer_total_bytes(), optimizer, "{name}");
        assert_eq!(geometry.total_bytes(), model + optimizer, "{name}");
        assert_eq!(geometry.reported_bytes(), model + optimizer, "{name}");
        assert_eq!(geometry.file_count(), files, "{name}");
    }
}

#[test]
fn bytes_per_rank_of_the_large_models() {
    let large = geometry("llama3_405b", 512);
    let optimizer = 9_513_171_840;
    for (stage, model) in [
        (0, 3_713_269_760),
        (1, 3_187_933_184),
        (29, 3_187_933_184),
        (30, 2_390_949_888),
        (31, 2_916_319_232),
    ] {
        assert_eq!(large.rank_bytes(8 * stage), model + optimizer, "stage {stage}");
    }
    assert_eq!(large.rank_bytes(256), optimizer, "the second copy writes no model");
    let largest = geometry("llama3_1t", 1024);
    let optimizer = 13_865_244_924;
    for (stage, model) in [(0, 5_425_047_936), (1, 4_595_488_128), (62, 4_595_488_128), (63, 5_425_099_680)] {
        assert_eq!(largest.rank_bytes(8 * stage), model + optimizer, "stage {stage}");
    }
    assert_eq!(geometry("llama3_8b", 8).rank_bytes(3), 2_007_565_312 + 12_045_637_632);
    assert_eq!(geometry("llama3_70b", 64).rank_bytes(63), 2_184_120_320 + 13_103_482_368);
}

#[test]
fn names_and_their_order() {
    let names = |geometry: &Geometry, rank| -> Vec<String> {
        geometry.files(rank).into_iter().map(|file| file.name).collect()
    };
    assert_eq!(
        names(&geometry("llama3_8b", 8), 5),
        ["zero_pp_rank_5_mp_rank_0_model_states.pt", "zero_pp_rank_5_mp_rank_0_optim_states.pt"]
    );
    let large = geometry("llama3_405b", 512);
    assert_eq!(
        names(&large, 255),
        [
            "layer_124-model_255_model_states.pt",
            "layer_125-model_255_model_states.pt",
            "layer_126-model_255_model_states.pt",
            "layer_127-model_255_model_states.pt",
            "layer_128-model_255_model_states.pt",
            "zero_pp_rank_0_mp_rank_255_optim_states.pt",
        ]
    );
    assert_eq!(large.files(255)[4].bytes, 32_768);
    assert_eq!(names(&large, 256), ["zero_pp_rank_1_mp_rank_0_optim_states.pt"]);
    assert_eq!(
        names(&geometry("llama_7b", 2), 0),
        ["model_0_model_states.pt", "zero_pp_rank_0_mp_rank_0_optim_states.pt"]
    );
}

#[test]
fn a_subset_of_the_ranks_keeps_its_places() {
    let subset = |name: &str, data: u64| {
        let data = format!("model.parallelism.data={data}");
        let spec = workload(name, &["checkpoint.mode=subset", &data]);
        Geometry::resolve(&spec, 8, Scale::WHOLE).unwrap()
    };
    const GIB: f64 = (1u64 << 30) as f64;
    for (name, data, gib, files) in
        [("llama3_70b", 8, 113.90, 16), ("llama3_405b", 2, 98.54, 48), ("llama3_1t", 2, 143.72, 32)]
    {
        let geometry = subset(name, data);
        assert!(
            (geometry.total_bytes() as f64 / GIB - gib).abs() < 0.005,
            "{name}: {}",
            geometry.total_bytes()
        );
        assert_eq!(geometry.file_count(), files, "{name}");
    }
}

#[test]
fn further_models_that_dlio_ships() {
    const GIB: f64 = (1u64 << 30) as f64;
    let gib = |geometry: &Geometry| geometry.total_bytes() as f64 / GIB;
    let seven = geometry("llama_7b", 1);
    assert_eq!(seven.parameters, Some(6_738_415_616));
    assert!((gib(&seven) - 87.86).abs() < 0.005);
    assert!((gib(&geometry("llama_7b_zero3", 8)) - 87.86).abs() < 0.005);
    assert_eq!(geometry("llama_7b_zero3", 8).file_count(), 16);
    let seventy = geometry("llama_70b", 32);
    assert!((gib(&seventy) - 911.20).abs() < 0.005);
    assert_eq!(seventy.file_count(), 696);
    let megatron = Geometry::resolve(
        &workload("megatron_deepspeed_LLNL", &["model.model_size_bytes=10240"]),
        64,
        Scale::WHOLE,
    )
    .unwrap();
    let first = megatron.files(0);
    assert_eq!(first[0], CheckpointFile { name: "model_states-0.pt".into(), bytes: 10_240 });
    assert_eq!(
        first[1],
        CheckpointFile { name: "layer_1-model_0_model_states.pt".into(), bytes: 65_574_784 }
    );
    assert_eq!(first.len(), 1 + 5 + 1);
    assert_eq!(first[6].bytes, 5_625_369_600);
    assert_eq!(megatron.files(32).len(), 2, "the second copy writes no layers");
    assert_eq!(megatron.reported_bytes(), 10_240, "DLIO does not count tensors that are listed one by one");
}

#[test]
fn without_zero_the_first_copy_writes() {
    let spec = workload("llama_7b", &["model.parallelism.zero_stage=0"]);
    let geometry = Geometry::resolve(&spec, 4, Scale::WHOLE).unwrap();
    assert_eq!((0..4).map(|rank| geometry.files(rank).len()).collect::<Vec<_>>(), [2, 0, 0, 0]);
    assert_eq!(geometry.files(0)[0].name, "zero_pp_rank_0_mp_rank_0_model_states.pt");
}

#[test]
fn tensorflow_has_three_files() {
    let geometry = geometry("chien2018_alexnet", 2);
    let names: Vec<String> = geometry.files(0).into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["model_states-0.meta", "model_states-0.index", "model_states-0.data-00000-of-00001"]);
    assert!(geometry.files(1).is_empty());
}

#[test]
fn a_scaled_model_keeps_its_files() {
    let spec = workload("llama3_405b", &[]);
    let small = Geometry::resolve(&spec, 512, Scale { numerator: 1, denominator: 1 << 20 }).unwrap();
    let whole = geometry("llama3_405b", 512);
    assert_eq!(small.file_count(), whole.file_count());
    assert_eq!(small.files(255)[4].bytes, 1, "32 KiB scaled to a millionth, and never empty");
    assert_eq!(small.files(0)[0].bytes, whole.files(0)[0].bytes >> 20);
}

#[test]
fn ranks_that_do_not_match_are_refused() {
    let refused = |name: &str, ranks, overrides: &[&str]| {
        Geometry::resolve(&workload(name, overrides), ranks, Scale::WHOLE).unwrap_err().to_string()
    };
    assert!(refused("llama3_70b", 12, &[]).contains("needs a multiple of 8 ranks, not 12"));
    let subset = ["checkpoint.mode=subset", "model.parallelism.data=1"];
    assert!(refused("llama3_70b", 9, &subset).contains("cannot have 9"));
    assert!(refused("unet3d_h100", 1, &["model.model_size_bytes=0"]).contains("nothing to save"));
    let huge = ["model.transformer.hidden_size=1000000000000"];
    assert!(refused("llama3_8b", 8, &huge).contains("2^64"));
}

#[test]
fn uploads_are_planned_for_each_tier_in_an_object_store() {
    let spec = workload("llama3_8b", &[]);
    let (files, requests) = (StorePlan::default(), RequestPlan { part_bytes: 8 << 20, ..Default::default() });
    let requests = RequestPlan { parts_in_flight: 8, ..requests };
    let objects = StorePlan { medium: Medium::Objects, requests, ..StorePlan::default() };
    let plan = |last: &StorePlan, fast: Option<&StorePlan>| {
        let (last, fast) = (last.clone(), fast.cloned());
        let request = SaveRequest { ranks: 8, scale: Scale::WHOLE, last, fast };
        CheckpointPlan::resolve(&spec, &request).unwrap().unwrap()
    };
    let in_files = plan(&files, Some(&files));
    assert_eq!((in_files.memory().len(), in_files.upload_bytes()), (1, 0));
    let uploads = (in_files.writers() + 8) * (8 << 20);
    for (plan, uploads) in [
        (plan(&objects, None), uploads),
        (plan(&objects, Some(&files)), uploads),
        (plan(&objects, Some(&objects)), 2 * uploads),
    ] {
        let terms: Vec<u64> = plan.memory().iter().map(|term| term.bytes).collect();
        assert_eq!(terms, [in_files.buffer_bytes(), uploads]);
        assert_eq!(plan.memory_bytes(), in_files.memory_bytes() + uploads);
    }
}
