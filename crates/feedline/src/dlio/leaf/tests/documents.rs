//! The documents: their keys, order and types are DLIO's, and their figures agree with each other.

use engine::meter::timestamp_at;
use model::checkpoint::SaveRecord;
use model::checkpoint::manifest::Moment;
use model::ledger::{
    BlockRecord, BlockWindow, EpochRecord, MetricWindow, ObservedMember, Phase, PhaseRecord, StepRecord,
};
use serde_json::json;

use super::*;
use crate::report::pretty;

fn text(document: &impl serde::Serialize) -> String {
    pretty(document).unwrap()
}

fn millis(millis: u64) -> Nanos {
    Nanos(millis * 1_000_000)
}

/// Blocks of 3 and 1 steps with a checkpoint after each, and an evaluation of 2 steps.
fn recorded() -> Ended {
    let mut ended = silent(&[&SAVES[..], &[EVALUATES]].concat());
    let step = |load, compute| StepRecord { load: millis(load), compute: millis(compute) };
    let block = |began, ended, steps, window, compute, time| BlockRecord {
        began: millis(began),
        ended: millis(ended),
        seen: BlockWindow {
            steps,
            window: MetricWindow { steps: window, compute_ns: millis(compute), time_ns: millis(time) },
        },
    };
    let train = PhaseRecord {
        blocks: vec![block(0, 100, 3, 2, 40, 50), block(200, 260, 1, 0, 0, 10)],
        steps: vec![step(30, 20), step(5, 20), step(0, 20), step(40, 20)],
    };
    let eval =
        PhaseRecord { blocks: vec![block(400, 420, 2, 1, 8, 10)], steps: vec![step(2, 8), step(0, 10)] };
    let meminfo = vec![("MemFree".to_owned(), "7 kB".to_owned())];
    let epoch =
        EpochRecord { began: millis(0), trained: Some(millis(300)), ended: Some(millis(500)), meminfo };
    let records = &mut ended.ledger.records;
    records.epochs = [(1, epoch)].into();
    records.phases = [((1, Phase::Train, 0), train), ((1, Phase::Eval, 0), eval)].into();
    ended.ledger.checkpoints.saves = [(100, 1), (260, 2)]
        .map(|(began, step)| SaveRecord {
            durable_ns: Some(millis(90)),
            first_rank_ns: millis(50),
            slowest_rank_ns: millis(80),
            ..SaveRecord::new(Moment { epoch: 1, step }, millis(began))
        })
        .to_vec();
    ended
}

fn at(moment: u64) -> String {
    timestamp_at(ORIGIN + millis(moment))
}

#[test]
fn the_output_of_a_rank_is_exact() {
    let ended = recorded();
    let expected = json!({
        "host_memory_GB": 8.0,
        "host_cpu_count": 2,
        "host_processor_name": "",
        "potential_caching": 1,
        "host_cpuinfo": {"model name": "emulated", "flags": "fpu"},
        "host_meminfo": {"MemTotal": "8388608 kB", "MemFree": "1024 kB"},
        "1": {
            "load": {"block1": [0.03, 0.005, 0.0], "block2": [0.04], "eval": [0.002, 0.0]},
            "proc": {"block1": [0.05, 0.025, 0.02], "block2": [0.06], "eval": [0.01, 0.01]},
            // 2 steps of 8 samples in 50 ms; nothing; 2 steps of 4 samples in 20 ms.
            "throughput": {"block1": 320.0, "block2": 0.0, "eval": 400.0},
            "au": {"block1": 80.0, "block2": 0.0, "eval": 80.0},
            "compute": {"block1": [0.02, 0.02, 0.02], "block2": [0.02], "eval": [0.008, 0.01]},
            "host_meminfo": {"MemFree": "7 kB"},
            "end": at(500),
        },
        "hostname": "here",
    });
    assert_eq!(text(&ended.own().output(0)), text(&expected));
}

#[test]
fn the_epochs_of_a_rank_are_exact() {
    let ended = recorded();
    let size = ended.plan.checkpoint.as_ref().unwrap().geometry.reported_bytes() as f64 / f64::from(1 << 30);
    let saved = |from: u64, took: u64| {
        let seconds = took as f64 / 1e3;
        json!({"start": at(from), "end": at(from + took), "duration": seconds, "throughput": size / seconds})
    };
    let span = |from, to, duration: &str| json!({"start": at(from), "end": at(to), "duration": duration});
    let expected = json!({"1": {
        "start": at(0),
        "block1": span(0, 100, "0.10"),
        "save_ckpt1": saved(100, 50),
        "block2": span(200, 260, "0.06"),
        "save_ckpt2": saved(260, 50),
        "end": at(500),
        "duration": "0.30",
        "eval": span(400, 420, "0.02"),
    }});
    assert_eq!(text(&ended.own().stats(0)), text(&expected));
    let other = text(&ended.own().stats(1));
    assert!(other.contains("\"duration\": 0.08"), "another rank has its own time: {other}");
}

#[test]
fn checkpoints_without_training_are_an_epoch_without_blocks() {
    let mut ended = recorded();
    let restored = model::checkpoint::RestoreRecord {
        first_rank_ns: millis(10),
        ..model::checkpoint::RestoreRecord::new(Moment { epoch: 1, step: 1 }, millis(450))
    };
    ended.ledger.checkpoints.restores = vec![restored];
    ended.ledger.records.phases.clear();
    ended.ledger.records.epochs.values_mut().for_each(|epoch| epoch.trained = None);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<String>>().join(" ");
    let output = serde_json::to_value(ended.own().output(0)).unwrap();
    assert_eq!(keys(&output["1"]), "start load proc throughput au compute end");
    assert_eq!(output["1"]["load"], json!({}));
    let stats = serde_json::to_value(ended.own().stats(0)).unwrap();
    assert_eq!(keys(&stats["1"]), "start save_ckpt1 save_ckpt2 load_ckpt1 end");
    assert_eq!(stats["1"]["load_ckpt1"]["duration"], 0.01);
}

/// The form of a value: DLIO's documents have these where ours have them.
fn form(value: &Value) -> String {
    match value {
        Value::Object(map) if map.values().all(Value::is_string) && !map.contains_key("start") => {
            "text by key".to_owned()
        }
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| format!("{key}: {}", form(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Array(list) => format!("[{}]", list.first().map_or_else(String::new, form)),
        Value::Number(number) => if number.is_f64() { "real" } else { "whole" }.to_owned(),
        Value::String(_) => "text".to_owned(),
        other => other.to_string(),
    }
}

/// As in result folders that DLIO wrote.
#[test]
fn documents_have_the_form_of_dlios() {
    let ended = silent(&["train.epochs=1"]);
    assert_eq!(
        form(&serde_json::to_value(ended.own().output(0)).unwrap()),
        "{host_memory_GB: real, host_cpu_count: whole, host_processor_name: text, potential_caching: whole, \
         host_cpuinfo: text by key, host_meminfo: text by key, 1: {load: {block1: [real]}, proc: {block1: [real]}, \
         throughput: {block1: real}, au: {block1: real}, compute: {block1: [real]}, host_meminfo: text by key, \
         end: text}, hostname: text}"
    );
    assert_eq!(
        form(&serde_json::to_value(ended.own().stats(0)).unwrap()),
        "{1: {start: text, block1: {start: text, end: text, duration: text}, end: text, duration: text}}"
    );
    let mut summary = ended.summary();
    let feedline = summary.as_object_mut().unwrap().shift_remove("feedline").unwrap();
    assert_eq!(feedline["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        form(&summary),
        "{start: text, num_accelerators: whole, num_hosts: whole, hostname: text, metric: {train_au_percentage: \
         [real], train_au_mean_percentage: real, train_au_meet_expectation: text, train_au_stdev_percentage: real, \
         train_throughput_samples_per_second: [real], train_throughput_mean_samples_per_second: real, \
         train_throughput_stdev_samples_per_second: real, train_io_mean_MB_per_second: real, \
         train_io_stdev_MB_per_second: real}, num_files_train: whole, num_files_eval: whole, num_samples_per_file: \
         whole, host_cpu_count: [whole], host_processor_name: text, potential_caching: [whole], host_cpuinfo: text by \
         key, host_meminfo: text by key, host_memory_GB: [real], data_size_per_host_GB: real, epochs: whole, end: \
         text}"
    );
}

/// What mlpstorage does with a summary.
fn parsed_by_mlpstorage(summary: &Value) {
    for key in ["start", "end"] {
        let stamp = summary[key].as_str().unwrap();
        assert_eq!(stamp.replace(|c: char| c.is_ascii_digit(), "0"), "0000-00-00T00:00:00.000000", "{key}");
    }
    for key in ["num_accelerators", "num_hosts", "num_files_train", "num_files_eval"] {
        assert!(summary[key].is_u64(), "{key}");
    }
    let hosts = summary["num_hosts"].as_u64().unwrap() as usize;
    for key in ["host_memory_GB", "host_cpu_count", "potential_caching"] {
        let list = summary[key].as_array().unwrap();
        assert!(list.len() == hosts && list.iter().all(Value::is_number), "{key}: {list:?}");
    }
    for (key, value) in summary["metric"].as_object().unwrap() {
        let is_fine = match value {
            Value::Array(list) => !list.is_empty() && list.iter().all(Value::is_number),
            value => value.is_number() || value.is_string(),
        };
        assert!(is_fine, "{key}: {value}");
    }
}

#[test]
fn summaries_are_accepted_by_mlpstorages_rules() {
    let epochs = &["workflow.checkpoint=true", EVALUATES, "evaluation.epochs_between_evals=1"];
    for settings in [&[][..], &[EVALUATES], &SAVES, epochs] {
        parsed_by_mlpstorage(&silent(settings).summary());
    }
    let saves = silent(&SAVES).summary();
    let keys: Vec<&String> = saves["metric"].as_object().unwrap().keys().collect();
    assert!(keys.iter().any(|key| key.starts_with("save_checkpoint_io_mean")));
    assert!(!keys.iter().any(|key| key.starts_with("load_") || key.starts_with("eval_")), "{keys:?}");
}

#[test]
fn what_was_not_measured_has_no_metric() {
    // Without compute time, storage or a clock that moves, no time passes.
    let instant = silent(&["train.computation_time=0.0"]).summary();
    parsed_by_mlpstorage(&instant);
    assert_eq!(instant["metric"], json!({}));
}

fn second_of_day(stamp: &str) -> f64 {
    let time = stamp.split_once('T').unwrap().1;
    time.split(':').fold(0.0, |sum, part| 60.0 * sum + part.parse::<f64>().unwrap())
}

/// DLIO's formulas, on the lists of a rank's file.
fn recomputed(output: &Value, stats: &Value, excluded: usize, batch: f64) -> (f64, f64) {
    let (mut au, mut rate, mut steps) = (0.0, 0.0, 0.0);
    for (block, compute) in output["compute"].as_object().unwrap() {
        let list = |key: &str| -> Vec<f64> {
            output[key][block].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
        };
        let (compute, process) = (compute.as_array().unwrap().len(), list("proc"));
        let moment = |key: &str| second_of_day(stats[block][key].as_str().unwrap());
        let whole = (moment("end") - moment("start")).rem_euclid(86400.0);
        let time = whole - process.iter().take(excluded).sum::<f64>();
        let window: Vec<f64> = list("compute").into_iter().skip(excluded).collect();
        let weight = compute as f64;
        au += weight * 100.0 * window.iter().sum::<f64>() / time;
        rate += weight * batch * window.len() as f64 / time;
        steps += weight;
    }
    (au / steps, rate / steps)
}

#[test]
fn figures_recomputed_from_the_ranks_files_are_those_of_the_summary() {
    for (settings, blocks) in [(&["output.metric.exclude_start_steps=2"][..], 1), (&SAVES, 3)] {
        let ended = silent(settings);
        let excluded = ended.spec.output.metric.exclude_start_steps as usize;
        let metric = &ended.summary()["metric"];
        for (epoch, place) in [("1", 0), ("2", 1)] {
            let (mut au, mut rate) = (0.0, 0.0);
            for rank in 0..2 {
                let output = serde_json::to_value(ended.own().output(rank)).unwrap();
                let stats = serde_json::to_value(ended.own().stats(rank)).unwrap();
                assert_eq!(output[epoch]["load"].as_object().unwrap().len(), blocks);
                let (one, of_rank) = recomputed(&output[epoch], &stats[epoch], excluded, 8.0);
                au += one / 2.0;
                rate += of_rank;
            }
            // Time stamps have microseconds.
            let near = |key: &str, value: f64| {
                let stated = metric[key][place].as_f64().unwrap();
                assert!((stated / value - 1.0).abs() < 1e-4, "{key}: {stated}, recomputed {value}");
            };
            assert!(au < 99.0, "ranks wait for each other: {au}");
            near("train_au_percentage", au);
            near("train_throughput_samples_per_second", rate);
        }
    }
}

/// Nine processes on two hosts, dealt round robin as `--map-by node` does, or 5 + 4 in order.
#[test]
fn hosts_are_listed_once_each_for_any_mapping() {
    let dealt: fn(u64) -> u64 = |member| member % 2;
    let filled: fn(u64) -> u64 = |member| u64::from(member >= 5);
    for node_of in [dealt, filled] {
        let mut ended = silent(&["dataset.record_length_bytes=80000000"]);
        ended.plan.ranks = 9;
        let member = |number: u64| ObservedMember {
            node: node_of(number),
            host: format!("node{}", node_of(number)),
            first_rank: number,
            ranks: 1,
            reported: true,
            cores: 4 + node_of(number),
            // Between the data of 4 ranks and that of 5.
            memory_bytes: 7_500_000_000,
            peak_rss_bytes: None,
        };
        ended.ledger.conditions.members = (0..9).map(|number| (number, member(number))).collect();
        let summary = ended.summary();
        parsed_by_mlpstorage(&summary);
        assert_eq!((&summary["num_hosts"], &summary["host_cpu_count"]), (&json!(2), &json!([4, 5])));
        let memory = 7_500_000_000.0 / f64::from(1 << 30);
        assert_eq!(summary["host_memory_GB"], json!([memory, memory]));
        assert_eq!(summary["potential_caching"], json!([0, 1]), "5 of 9 ranks, and 4 of 9");
    }
}
