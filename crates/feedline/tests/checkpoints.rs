//! Checkpoints as a user sees them: their exact files, what each save mode leaves behind, what a restore verifies, and
//! what is refused.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::util::{Cmd, Dir, TINY_MODEL, outcome, tier_stores};

/// A transformer of a few MB on a few ranks, saved and restored without pauses.
const TINY: &str = "
checkpoint:
  checkpoint_folder: ck
  fsync: true
  num_checkpoints_write: 2
  num_checkpoints_read: 2
  time_between_checkpoints: 0
";

fn tiny() -> Dir {
    let dir = Dir::new();
    dir.write("tiny.yaml", format!("{TINY_MODEL}{TINY}"));
    dir
}

fn run<'a>(dir: &'a Dir, flags: &[&str]) -> Cmd<'a> {
    dir.feedline(&["run", "tiny.yaml", "--ranks", "4"]).args(flags)
}

/// Names and sizes of the files of a checkpoint, without its manifest.
fn files(dir: &Dir, checkpoint: &str) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(dir.path(checkpoint)).unwrap().map(|entry| entry.unwrap());
    let sizes =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()));
    sizes.filter(|(name, _)| name != "checkpoint.json").collect()
}

/// Model bytes, optimizer bytes and files of MLPerf's models, at MLPerf's number of ranks.
const TABLE: [(&str, u64, u64, u64, u64); 4] = [
    ("llama3_8b", 8, 16_060_522_496, 96_365_101_056, 16),
    ("llama3_70b", 64, 139_783_700_480, 838_622_871_552, 128),
    ("llama3_405b", 512, 811_764_809_728, 4_870_743_982_080, 1544),
    ("llama3_1t", 1024, 2_366_163_292_416, 14_198_010_802_176, 2072),
];

#[test]
fn plans_have_the_bytes_of_the_models() {
    let dir = Dir::new();
    for (model, ranks, states, optimizer, files) in TABLE {
        let plan = dir.feedline(&["plan", model, "--json"]).run().exits(0).json();
        assert_eq!(plan["ranks"], ranks, "{model}");
        assert_eq!(plan["model_bytes"], states, "{model}");
        assert_eq!(plan["optimizer_bytes"], optimizer, "{model}");
        assert_eq!(plan["bytes"], states + optimizer, "{model}");
        assert_eq!(plan["files"], files, "{model}");
        let ranks: Vec<u64> =
            plan["rank_bytes"].as_array().unwrap().iter().map(|b| b.as_u64().unwrap()).collect();
        assert_eq!(ranks.iter().sum::<u64>(), states + optimizer, "{model}");
    }
    let text = dir.feedline(&["plan", "llama3_405b"]).run().exits(0);
    let text = text.prints("multiples of 256").prints("5,682,508,791,808").prints("1,544").prints("ZeRO 1");
    text.prints("9,513,171,840").prints("13,226,441,600");
}

#[test]
fn scaled_models_leave_the_same_files_on_disk() {
    let subset = ["checkpoint.mode=subset", "model.parallelism.data=2"];
    let table: [(&str, &[&str], usize); 4] = [
        ("llama3_8b", &[], 16),
        ("llama3_70b", &["checkpoint.mode=subset", "model.parallelism.data=8"], 16),
        ("llama3_405b", &subset, 48),
        ("llama3_1t", &subset, 32),
    ];
    for (model, settings, count) in table {
        let dir = Dir::new();
        let once = ["checkpoint.num_checkpoints_write=1", "checkpoint.num_checkpoints_read=1"];
        let place = ["--ranks", "8", "--checkpoint-dir", "ck"];
        let sets = [&once[..], &["checkpoint.time_between_checkpoints=0"], settings].concat();
        let whole = dir.feedline(&["plan", model, "--json"]).args(&place).set(&sets).run().exits(0).json();
        let scaled = [&place[..], &["--scale", "1/65536"]].concat();
        let plan = dir.feedline(&["plan", model, "--json"]).args(&scaled).set(&sets).run().exits(0).json();
        let summary = dir.feedline(&["run", model, "--json"]).args(&scaled).set(&sets).run().ran().json();
        let files = files(&dir, "ck/global_epoch1_step1");
        assert_eq!(files.len(), count, "{model}: {files:?}");
        let there: u64 = files.values().sum();
        assert_eq!(plan["bytes"], there, "{model}");
        let ideal = whole["bytes"].as_u64().unwrap() / 65536;
        assert!(there <= ideal && there + count as u64 >= ideal, "{model}: {there} for {ideal}");
        assert_eq!(summary["feedline"]["checkpoint"]["scale"], "1/65536");
        assert_eq!(outcome(&summary, "whole-model"), "note");
        assert_eq!(outcome(&summary, "restored-right"), "pass");
        assert_eq!(summary["feedline"]["checkpoint"]["restores"][0]["verified_bytes"], there);
    }
}

#[test]
fn names_are_dlio_s() {
    let dir = tiny();
    run(&dir, &["--ranks", "2"]).run().exits(2);
    dir.feedline(&["run", "tiny.yaml", "--ranks", "2", "-q"]).run().ran();
    let names: Vec<String> = files(&dir, "ck/global_epoch1_step2").into_keys().collect();
    assert_eq!(
        names,
        [
            "zero_pp_rank_0_mp_rank_0_model_states.pt",
            "zero_pp_rank_0_mp_rank_0_optim_states.pt",
            "zero_pp_rank_1_mp_rank_0_model_states.pt",
            "zero_pp_rank_1_mp_rank_0_optim_states.pt",
        ]
    );
    let flat = "framework: tensorflow\nmodel: {type: cnn, model_size_bytes: 100000}\n\
        workflow: {train: false, checkpoint: true}\n\
        checkpoint: {num_checkpoints_write: 1, time_between_checkpoints: 0, checkpoint_folder: tf, fsync: true}\n";
    dir.write("flat.yaml", flat);
    dir.feedline(&["run", "flat.yaml", "-q"]).run().ran();
    let files = files(&dir, "tf/global_epoch1_step1");
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let three = ["model_states-0.data-00000-of-00001", "model_states-0.index", "model_states-0.meta"];
    assert_eq!(names, three);
    assert_eq!(files["model_states-0.data-00000-of-00001"], 100_000);
}

/// Smaller checkpoints take less time, so figures and advice from them say so.
#[test]
fn rates_and_advice_state_the_scale() {
    let dir = tiny();
    let scaled = run(&dir, &["--advise", "24h", "--scale", "0.5"]).run().ran();
    for words in [
        "saved at scale 1/2",
        "(DLIO) at scale 1/2",
        "how often to save at scale 1/2",
        "whole ones take longer",
    ] {
        assert!(scaled.stdout.contains(words), "{words}: {}", scaled.stdout);
    }
    let whole = run(&dir, &["--advise", "24h"]).run().ran();
    assert!(
        whole.stdout.contains("how often to save\n") && !whole.stdout.contains("at scale"),
        "{}",
        whole.stdout
    );
    let summary = run(&dir, &["--advise", "24h", "--scale", "1/2", "--json"]).run().ran().json();
    let checkpoint = &summary["feedline"]["checkpoint"];
    assert_eq!(checkpoint["advice"]["scale"], "1/2");
    assert_eq!(checkpoint["mlperf"]["save"]["scale"], "1/2");
}

#[test]
fn the_result_has_dlio_s_keys_and_both_rates() {
    let dir = tiny();
    let summary = run(&dir, &["--json", "--advise", "24h"]).run().ran().json();
    let metric = summary["metric"].as_object().unwrap();
    let mut keys: Vec<&str> = metric.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let mut expected = vec!["checkpoint_size_GB".to_owned()];
    for (what, unit) in [("duration", "seconds"), ("io", "GB_per_second")] {
        for prefix in ["load", "save"] {
            expected
                .extend(["mean", "stdev"].map(|kind| format!("{prefix}_checkpoint_{what}_{kind}_{unit}")));
        }
    }
    expected.sort_unstable();
    assert_eq!(keys, expected);
    let checkpoint = &summary["feedline"]["checkpoint"];
    for what in ["save", "load"] {
        let slowest = checkpoint["mlperf"][what]["duration_seconds"].as_f64().unwrap();
        let first = metric[&format!("{what}_checkpoint_duration_mean_seconds")].as_f64().unwrap();
        assert!(slowest >= first, "the slowest rank takes at least as long as rank 0: {slowest} {first}");
    }
    let blocked: Vec<f64> = checkpoint["saves"]
        .as_array()
        .unwrap()
        .iter()
        .map(|save| save["blocked_ns"].as_f64().unwrap() / 1e9)
        .collect();
    let cost = (blocked[0] + blocked[1]) / 2.0;
    let young = checkpoint["advice"]["young_seconds"].as_f64().unwrap();
    assert!((young - (2.0 * cost * 86_400.0).sqrt()).abs() < 1e-3 * young, "{young} for {cost}");
    let result = dir.result();
    dir.feedline(&["validate", &result]).run().ran().prints("5 files, unchanged");
    assert_eq!(dir.json(&format!("{result}/summary.json"))["metric"], summary["metric"]);
    let text = run(&dir, &[]).run().ran();
    text.prints("by the slowest rank (MLPerf)")
        .prints("by rank 0 (DLIO)")
        .says("global_epoch1_step2 complete");
}

#[test]
fn every_way_of_saving_ends_on_the_last_tier() {
    for (save, more) in [("direct", ""), ("async", "checkpoint.pool_size=1048576"), ("burst-buffer", "")] {
        for store in tier_stores() {
            let dir = tiny();
            let mut sets = vec!["checkpoint.burst_folder=fast", "checkpoint.chunk_size=65536"];
            sets.extend(Some(more).filter(|more| !more.is_empty()));
            let summary =
                run(&dir, &["--json", "--save", save, "--store", store]).set(&sets).run().ran().json();
            let names: Vec<_> =
                dir.tree("ck").into_keys().filter(|name| name.ends_with("checkpoint.json")).collect();
            assert_eq!(names.len(), 2, "{save} {store}: {names:?}");
            let saves = summary["feedline"]["checkpoint"]["saves"].as_array().unwrap();
            for seen in saves {
                assert_eq!(seen["troubles"], json!([]), "{save} {store}");
                let (durable, blocked) =
                    (seen["durable_ns"].as_u64().unwrap(), seen["blocked_ns"].as_u64().unwrap());
                assert!(
                    save != "direct" || durable <= blocked,
                    "{store}: training waits until it is durable"
                );
                assert!(
                    seen["fast_ns"].as_u64().is_none_or(|fast| fast <= durable),
                    "{save} {store}: {seen}"
                );
                assert_eq!(seen["fast_ns"].is_null(), save != "burst-buffer", "{save} {store}");
            }
            if save == "burst-buffer" {
                assert!(dir.tree("fast").is_empty(), "drained checkpoints are removed");
            }
            for rule in ["checkpoints-saved", "restored-right", "restored-from-storage"] {
                assert_eq!(outcome(&summary, rule), "pass", "{save} {store}");
            }
        }
    }
}

#[test]
fn cached_restores_do_not_count_as_storage() {
    let dir = tiny();
    let warm = run(&dir, &["--json", "--cache", "as-is"]).run().exits(5).json();
    assert_eq!(outcome(&warm, "restored-from-storage"), "fail");
    assert_eq!(warm["feedline"]["verdict"]["status"], "invalid");
    assert!(warm["feedline"]["checkpoint"]["restores"][0]["memory_share"].as_f64().unwrap() > 0.9);
    let cold = run(&dir, &["--json"]).run().ran().json();
    assert_eq!(outcome(&cold, "restored-from-storage"), "pass");
    assert!(cold["feedline"]["checkpoint"]["restores"][0]["memory_share"].as_f64().unwrap() < 0.05);
    let loose = run(&dir, &["--json"]).set(&["checkpoint.fsync=false"]).run().exits(5).json();
    assert_eq!(outcome(&loose, "checkpoints-durable"), "fail");
}

#[test]
fn a_run_can_restore_only_and_finds_changed_files() {
    let dir = tiny();
    let restore = || run(&dir, &["--json"]).set(&["checkpoint.num_checkpoints_write=0"]);
    restore().run().exits(3).says("there is no complete checkpoint in ck").one_error();
    run(&dir, &["-q"])
        .set(&["checkpoint.num_checkpoints_write=1", "checkpoint.num_checkpoints_read=0"])
        .run()
        .ran();
    restore().run().exits(3).says("2 checkpoints are to be restored, but there are only 1 in ck").one_error();
    let once = || restore().set(&["checkpoint.num_checkpoints_read=1"]);
    let shifted = once().set(&["checkpoint.recovery_rank_shift=true"]).run().ran().json();
    assert_eq!(outcome(&shifted, "restored-right"), "pass");
    once()
        .args(&["--scale", "1/2"])
        .run()
        .exits(3)
        .says("at scale 1, but tiny on 4 ranks at scale 1/2")
        .one_error();
    once()
        .set(&["model.model_datatype=fp32"])
        .run()
        .exits(3)
        .says("spread or stored differently")
        .one_error();
    let file = "ck/global_epoch1_step1/zero_pp_rank_2_mp_rank_0_optim_states.pt";
    let mut bytes = fs::read(dir.path(file)).unwrap();
    bytes[5000] ^= 1;
    fs::write(dir.path(file), &bytes).unwrap();
    let found = once().run().exits(5).json();
    let evidence = evidence(&found, "restored-right");
    assert!(evidence.contains("rank_2_mp_rank_0_optim_states.pt: byte 5000 is not"), "{evidence}");
    fs::write(dir.path(file), &bytes[..7]).unwrap();
    assert!(
        self::evidence(&once().run().exits(5).json(), "restored-right")
            .contains("has 7 bytes, but its manifest")
    );
}

fn evidence(summary: &Value, rule: &str) -> String {
    let rules = summary["feedline"]["verdict"]["rules"].as_array().unwrap();
    let found = rules.iter().find(|finding| finding["rule"] == rule).unwrap();
    found["evidence"].as_str().unwrap().to_owned()
}

#[test]
fn impossible_requests_are_refused_before_anything_is_written() {
    let dir = tiny();
    dir.write("file", "x");
    let there = dir.listing();
    let table: [(&[&str], &[&str], i32, &str); 16] = [
        (&["--save", "nonsense"], &[], 2, "nonsense"),
        (&["--scale", "0"], &[], 2, "cannot be scaled to 0"),
        (&["--scale", "3/2"], &[], 2, "0.5, 1/64 or 50%"),
        (&["--advise", "soon"], &[], 2, "soon"),
        (&["--advise", "24"], &[], 2, "'24' needs a unit: 24s, 24m or 24h"),
        (&["--advise", "0"], &[], 2, "not a valid time"),
        (&["--save", "burst-buffer"], &[], 2, "set checkpoint.burst_folder"),
        (
            &["--save", "burst-buffer"],
            &["checkpoint.burst_folder=ck"],
            2,
            "choose another folder for the fast tier",
        ),
        (&[], &["checkpoint.store=floppy"], 2, "there is no store 'floppy'"),
        (&["--save", "burst-buffer"], &["checkpoint.burst_store=sim:optane"], 2, "both must be simulated"),
        (&["--advise", "1h"], &["workflow.checkpoint=false"], 2, "this run saves none"),
        (&["--store", "mmap"], &[], 3, "set checkpoint.store to"),
        (&[], &["model.parallelism.tensor=3"], 2, "needs a multiple of 3 ranks"),
        (&["--checkpoint-dir", "file"], &[], 2, "is a file, not a folder"),
        (
            &[],
            &["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=0"],
            2,
            "nothing to do",
        ),
        (
            &[],
            &["model.transformer.hidden_size=131072", "model.num_layers=80"],
            3,
            "a smaller --scale such as 1/",
        ),
    ];
    for (flags, sets, code, words) in table {
        run(&dir, flags).set(sets).run().exits(code).says(words).one_error();
        assert_eq!(dir.listing(), there, "{flags:?} {sets:?}");
    }
    dir.feedline(&["run", "llama3_8b", "--ranks", "8"]).run().exits(3).says("would need 1.0 TiB").one_error();
}

#[test]
fn a_write_that_gets_stuck_is_named() {
    let dir = tiny();
    let flags = [
        "--json",
        "--store",
        "fault:posix,kind=delay,span=2500ms,limit=1,file=optim",
        "--stall-timeout",
        "1s",
    ];
    let sets = ["checkpoint.num_checkpoints_write=1", "checkpoint.num_checkpoints_read=0"];
    let summary = run(&dir, &flags).set(&sets).run().exits(5).json();
    let evidence = evidence(&summary, "checkpoints-saved");
    assert!(
        evidence.contains("no progress for 1.") && evidence.contains("write ck/global_epoch1_step1/"),
        "{evidence}"
    );
}

#[test]
fn only_the_newest_are_kept() {
    let dir = tiny();
    let sets = ["checkpoint.num_checkpoints_write=5", "checkpoint.keep_last=2"];
    run(&dir, &["-q"]).set(&sets).run().ran();
    let folders: Vec<String> = fs::read_dir(dir.path("ck"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(folders.len(), 2, "{folders:?}");
}

#[test]
fn an_interrupted_run_keeps_complete_checkpoints() {
    let dir = tiny();
    let sets = [
        "checkpoint.num_checkpoints_write=1000",
        "checkpoint.num_checkpoints_read=0",
        "checkpoint.keep_last=3",
    ];
    let mut running = run(&dir, &["--json"]).set(&sets).start();
    running.until("two checkpoints", || dir.path("ck/global_epoch1_step3").exists());
    running.signal(Signal::INT);
    let done = running.wait().exits(4);
    let summary = done.json();
    assert_eq!(summary["feedline"]["verdict"]["status"], "incomplete");
    assert!(!summary["feedline"]["checkpoint"]["saves"].as_array().unwrap().is_empty());
    let one = ["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=1"];
    run(&dir, &["-q"]).set(&one).run().ran();
}

/// Training on a simulated device that takes checkpoints.
const TRAINING: &str = "
framework: pytorch
model: {name: flat, type: cnn, model_size_bytes: 3000000}
workflow: {train: true, checkpoint: true}
dataset: {format: jpeg, num_files_train: 200, record_length_bytes: 10000}
reader: {data_loader: pytorch, batch_size: 5, read_threads: 2}
train: {epochs: 2, computation_time: 0.005}
checkpoint: {checkpoint_folder: ck, fsync: true}
";

#[test]
fn training_pauses_for_checkpoints() {
    let dir = Dir::new();
    dir.write("train.yaml", TRAINING);
    let moments = |summary: &Value| -> Vec<(u64, u64)> {
        let saves = summary["feedline"]["checkpoint"]["saves"].as_array().unwrap().clone();
        let moment = |save: &Value| {
            (save["moment"]["epoch"].as_u64().unwrap(), save["moment"]["step"].as_u64().unwrap())
        };
        saves.iter().map(moment).collect()
    };
    let args = ["run", "train.yaml", "--ranks", "2", "--json", "--store", "sim:ssd", "--no-calibration"];
    let epochs = dir.feedline(&args).set(&["checkpoint.store=posix"]).run().ran().json();
    assert_eq!(moments(&epochs), [(1, 20), (2, 20)]);
    assert_eq!(
        epochs["feedline"]["epochs"][0]["checkpoint_seconds"], 0.0,
        "between epochs no accelerator computes"
    );
    assert_eq!(files(&dir, "ck/global_epoch2_step20").len(), 1, "without ZeRO rank 0 writes for all");
    let steps = ["checkpoint.steps_between_checkpoints=8", "checkpoint.store='sim:bandwidth=30MB/s'"];
    let steps = dir.feedline(&args).set(&steps).run().ran().json();
    assert_eq!(moments(&steps), [(1, 8), (1, 16), (2, 8), (2, 16)]);
    for epoch in steps["feedline"]["epochs"].as_array().unwrap() {
        // 3 MB at 30 MB/s, twice, for each of two ranks.
        let waited = epoch["checkpoint_seconds"].as_f64().unwrap();
        assert!((0.4..0.5).contains(&waited), "{waited}");
        let au = epoch["au_percent"].as_f64().unwrap();
        assert!(au > 60.0, "pauses are not part of the metric window: AU {au} %");
    }
    for rule in ["complete", "exactly-once", "checkpoints-saved"] {
        assert_eq!(outcome(&steps, rule), "pass", "{rule}");
    }
    let result = dir.results().pop().unwrap();
    dir.feedline(&["validate", &result]).run().ran();
    let none = dir.feedline(&args).set(&["checkpoint.steps_between_checkpoints=0"]).run().ran().json();
    assert_eq!(none["feedline"]["checkpoint"], Value::Null);
    dir.feedline(&args)
        .set(&["model.parallelism.tensor=3"])
        .run()
        .exits(2)
        .says("needs a multiple of 3 ranks");
}

#[test]
fn a_drain_slows_training_on_the_same_device() {
    let dir = Dir::new();
    dir.write("train.yaml", TRAINING);
    let sets = [
        "checkpoint.steps_between_checkpoints=10",
        "checkpoint.burst_store=sim:optane",
        "checkpoint.chunk_size=262144",
        "train.epochs=1",
        "dataset.num_files_train=400",
        "dataset.record_length_bytes=30000",
    ];
    let args = ["run", "train.yaml", "--json", "--save", "burst-buffer", "--no-calibration"];
    let slowdown = |store: &str, sets: &[&str]| {
        let summary = dir.feedline(&args).args(&["--store", store]).set(sets).run().ran().json();
        summary["feedline"]["checkpoint"]["step_slowdown"].as_f64().unwrap()
    };
    let shared = slowdown("sim:bandwidth=60MB/s", &sets);
    let apart = slowdown(
        "sim:bandwidth=60MB/s",
        &[&sets[..], &["checkpoint.store='sim:bandwidth=60.0MB/s'"]].concat(),
    );
    assert!(shared > 1.2, "one device for both: {shared}");
    assert!(apart < shared, "a device for each: {apart}, one for both: {shared}");
}
