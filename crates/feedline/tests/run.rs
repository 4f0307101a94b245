//! The result of a run: its files and keys, and whether counts, bytes and times add up.

use serde_json::Value;

use crate::util::{Dir, outcome};

/// DLIO's keys of summary.json in DLIO's order, followed by feedline's.
const SUMMARY_KEYS: [&str; 18] = [
    "start",
    "num_accelerators",
    "num_hosts",
    "hostname",
    "metric",
    "num_files_train",
    "num_files_eval",
    "num_samples_per_file",
    "host_cpu_count",
    "host_processor_name",
    "potential_caching",
    "host_cpuinfo",
    "host_meminfo",
    "host_memory_GB",
    "data_size_per_host_GB",
    "epochs",
    "end",
    "feedline",
];

/// DLIO's keys of `metric` after `train_` or `eval_`, in DLIO's order.
const METRIC_KEYS: [&str; 9] = [
    "au_percentage",
    "au_mean_percentage",
    "au_meet_expectation",
    "au_stdev_percentage",
    "throughput_samples_per_second",
    "throughput_mean_samples_per_second",
    "throughput_stdev_samples_per_second",
    "io_mean_MB_per_second",
    "io_stdev_MB_per_second",
];

/// Keys of each entry of `feedline.epochs`, and the columns of epochs.csv in this order.
const EPOCH_KEYS: [&str; 13] = [
    "epoch",
    "samples_planned",
    "samples_delivered",
    "bytes_read",
    "au_percent",
    "samples_per_second",
    "mib_per_second",
    "clock_samples_per_second",
    "clock_mib_per_second",
    "wait_seconds",
    "compute_seconds",
    "barrier_seconds",
    "harness_seconds",
];

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn epochs(summary: &Value) -> &Vec<Value> {
    summary["feedline"]["epochs"].as_array().unwrap()
}

/// Runs `w.yaml` with these settings and returns the summary.
fn summary(dir: &Dir, flags: &[&str], settings: &[&str]) -> Value {
    // Without calibration, which would fail on a busy machine.
    dir.feedline(&["run", "w.yaml", "--quiet", "--json", "--no-calibration"])
        .args(flags)
        .set(settings)
        .run()
        .ran()
        .json()
}

/// Bytes of all files below a folder.
fn disk_bytes(dir: &Dir, folder: &str) -> u64 {
    dir.tree(folder).values().map(|bytes| bytes.len() as u64).sum()
}

/// Reads only the bytes of samples, so that the expected number of bytes is known.
const EXTENT: &str = "reader.access=extent";

#[test]
fn the_summary_has_dlios_keys_in_dlios_order() {
    let dir = Dir::small_with_data();
    let summary = summary(&dir, &["--ranks", "2"], &["train.computation_time=0.005"]);
    assert_eq!(keys(&summary), SUMMARY_KEYS);
    let metric: Vec<String> = METRIC_KEYS.iter().map(|key| format!("train_{key}")).collect();
    assert_eq!(keys(&summary["metric"]), metric);
    assert_eq!(summary["metric"]["train_au_percentage"].as_array().unwrap().len(), 2);
    assert!(["success", "fail"].contains(&summary["metric"]["train_au_meet_expectation"].as_str().unwrap()));
    assert_eq!(summary["num_accelerators"], 2);
    assert_eq!(summary["num_hosts"], 1);
    assert_eq!(summary["num_files_train"], 24);
    assert_eq!(summary["num_files_eval"], 0);
    assert_eq!(summary["num_samples_per_file"], 1);
    assert_eq!(summary["epochs"], 2);
    for list in ["host_cpu_count", "potential_caching", "host_memory_GB"] {
        assert_eq!(summary[list].as_array().unwrap().len(), 1, "{list}");
    }
    assert!(summary["host_meminfo"]["MemTotal"].as_str().unwrap().ends_with(" kB"));
    let nominal = 24.0 * 4096.0 / f64::from(1 << 30);
    assert!((summary["data_size_per_host_GB"].as_f64().unwrap() - nominal).abs() < 1e-12);
    let (start, end) = (summary["start"].as_str().unwrap(), summary["end"].as_str().unwrap());
    assert!(start.len() == 26 && start <= end, "{start} {end}");
}

#[test]
fn the_feedline_object_has_what_is_documented() {
    let dir = Dir::small_with_data();
    let summary = summary(&dir, &[], &[]);
    let own = &summary["feedline"];
    assert_eq!(own["version"], env!("CARGO_PKG_VERSION"));
    let version = dir.feedline(&["--version"]).run().exits(0).stdout;
    assert!(version.contains(&format!("\ncommit: {}\n", own["commit"].as_str().unwrap())), "{version}");
    assert_eq!(own["plan_digest"].as_str().unwrap().len(), 32);
    assert_eq!(own["verdict"]["status"], "unverified", "feedline's own ceiling was not measured");
    for rule in own["verdict"]["rules"].as_array().unwrap() {
        assert_eq!(keys(rule), ["rule", "outcome", "threshold", "evidence", "remedy"]);
    }
    assert!(own["memory"]["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);
    assert_eq!(epochs(&summary).len(), 2);
    for epoch in epochs(&summary) {
        for key in EPOCH_KEYS {
            assert!(epoch[key].as_f64().is_some(), "{key} is missing in {epoch}");
        }
    }
}

#[test]
fn the_folder_has_seven_files_that_agree() {
    let dir = Dir::small_with_data();
    let text = dir.feedline(&["run", "w.yaml", "--ranks", "2"]).run().exits(0).prints("verdict: unverified");
    let folder = dir.result();
    assert!(folder.starts_with("feedline-results/w/"), "{folder}");
    assert!(text.stdout.contains(&folder), "the report states the path of the result");
    let names: Vec<String> = dir.tree(&folder).into_keys().collect();
    let expected =
        ["SHA256SUMS", "epochs.csv", "ledger.json", "plan.json", "report.html", "spec.yaml", "summary.json"];
    assert_eq!(names, expected);
    dir.has_no_leftovers();

    let summary = dir.json(&format!("{folder}/summary.json"));
    let csv = dir.read(&format!("{folder}/epochs.csv"));
    let mut lines = csv.lines();
    assert_eq!(lines.next().unwrap(), format!("phase,{}", EPOCH_KEYS.join(",")));
    for epoch in epochs(&summary) {
        let fields: Vec<f64> = EPOCH_KEYS.iter().map(|key| epoch[key].as_f64().unwrap()).collect();
        let line = lines.next().unwrap().strip_prefix("train,").unwrap();
        let written: Vec<f64> = line.split(',').map(|field| field.parse().unwrap()).collect();
        assert_eq!(written, fields);
    }
    assert_eq!(lines.next(), None);

    let ledger = dir.json(&format!("{folder}/ledger.json"));
    let rows = ledger["ranks"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2, "a row for each epoch and rank");
    let read: u64 = rows.iter().map(|row| row["seen"]["bytes_read"].as_u64().unwrap()).sum();
    assert_eq!(read, epochs(&summary).iter().map(|epoch| epoch["bytes_read"].as_u64().unwrap()).sum::<u64>());
    let plan = dir.json(&format!("{folder}/plan.json"));
    assert_eq!(plan["train"]["shards"]["steps"], 6);
}

#[test]
fn the_spec_of_a_result_gives_the_same_plan_again() {
    let dir = Dir::small();
    let settings = [
        "dataset.num_files_eval=8",
        "dataset.num_subfolders_train=3",
        "dataset.record_length_bytes_stdev=300",
        "workflow.evaluation=true",
        "reader.sample_shuffle=seed",
        "reader.prefetch_size=3",
        "train.seed=7",
        "train.computation_time={mean: 0.0001, stdev: 0.00001}",
        "output.metric.exclude_end_steps=2",
        "metric.au=0.5",
    ];
    let first = summary(&dir, &["--ranks", "2", "--generate"], &settings);
    let spec = format!("{}/spec.yaml", dir.result());
    let args =
        ["run", &spec, "--ranks", "2", "--quiet", "--json", "--no-calibration", "--results-dir", "again"];
    let second = dir.feedline(&args).run().ran().json();
    assert_eq!(second["feedline"]["plan_digest"], first["feedline"]["plan_digest"]);
    let plain = summary(&dir, &["--ranks", "2", "--store", "null"], &[]);
    assert_ne!(plain["feedline"]["plan_digest"], first["feedline"]["plan_digest"]);
}

#[test]
fn samples_and_bytes_are_exactly_those_on_disk() {
    let dir = Dir::small();
    // Sizes differ from file to file, so a file that is read twice or not at all would change the sum.
    let settings = ["dataset.record_length_bytes_stdev=500", "dataset.format=jpeg"];
    let flags = ["--generate", "--ranks", "3"];
    let summary = summary(&dir, &flags, &settings);
    let bytes = disk_bytes(&dir, "data/train");
    for epoch in epochs(&summary) {
        assert_eq!(epoch["samples_planned"], 24);
        assert_eq!(epoch["samples_delivered"], 24);
        assert_eq!(epoch["bytes_read"], bytes);
    }
    for rule in ["complete", "exactly-once", "bytes-as-planned", "order-differs", "settings-honoured"] {
        assert_eq!(outcome(&summary, rule), "pass", "{rule}");
    }
}

#[test]
fn jpeg_bytes_are_exactly_those_on_disk() {
    let dir = Dir::small();
    let settings =
        ["dataset.format=jpeg", "dataset.record_length_bytes=9000", "dataset.record_length_bytes_stdev=900"];
    let summary = summary(&dir, &["--generate", "--ranks", "2"], &settings);
    for epoch in epochs(&summary) {
        assert_eq!(epoch["bytes_read"], disk_bytes(&dir, "data/train"));
    }
}

#[test]
fn a_remainder_is_dropped_and_reported() {
    let dir = Dir::small_with_data();
    // 24 samples in steps of 2 x 5: two steps, four samples dropped.
    let settings = ["reader.batch_size=5", "output.metric.exclude_start_steps=0"];
    let summary = summary(&dir, &["--ranks", "2"], &settings);
    assert_eq!(epochs(&summary)[0]["samples_delivered"], 20);
    assert_eq!(outcome(&summary, "exactly-once"), "pass");
    let plan =
        dir.feedline(&["plan", "w.yaml", "--json", "--ranks", "2"]).set(&settings).run().exits(0).json();
    assert_eq!((plan["steps_per_epoch"].as_u64(), plan["dropped_samples"].as_u64()), (Some(2), Some(4)));
}

#[test]
fn evaluation_follows_the_configured_epochs() {
    let dir = Dir::small();
    let settings = [
        "workflow.evaluation=true",
        "dataset.num_files_eval=6",
        "reader.batch_size_eval=3",
        "train.epochs=5",
        "evaluation.eval_after_epoch=2",
        "evaluation.epochs_between_evals=2",
        "evaluation.eval_time=0.002",
        "train.computation_time=0.001",
        EXTENT,
    ];
    let summary = summary(&dir, &["--generate", "--ranks", "2"], &settings);
    let mut metric: Vec<String> = METRIC_KEYS.iter().map(|key| format!("train_{key}")).collect();
    metric.extend(METRIC_KEYS.iter().map(|key| format!("eval_{key}")));
    assert_eq!(keys(&summary["metric"]), metric);
    let evals = summary["feedline"]["eval_epochs"].as_array().unwrap();
    let after: Vec<u64> = evals.iter().map(|epoch| epoch["epoch"].as_u64().unwrap()).collect();
    assert_eq!(after, [2, 4]);
    for eval in evals {
        assert_eq!(eval["samples_delivered"], 6);
        assert_eq!(eval["bytes_read"], 6 * 4096);
        assert!((eval["compute_seconds"].as_f64().unwrap() - 2.0 * 0.002).abs() < 1e-9, "{eval}");
    }
    let csv = dir.read(&format!("{}/epochs.csv", dir.result()));
    assert_eq!(csv.lines().filter(|line| line.starts_with("eval,")).count(), 2);
}

#[test]
fn total_training_steps_ends_epochs_early() {
    let dir = Dir::small_with_data();
    let summary = summary(&dir, &[], &["train.total_training_steps=5"]);
    assert_eq!(epochs(&summary)[0]["samples_delivered"], 10);
    assert_eq!(outcome(&summary, "complete"), "pass");
    assert_eq!(outcome(&summary, "exactly-once"), "pass");
}

#[test]
fn every_moment_of_every_rank_is_accounted_for() {
    let dir = Dir::small_with_data();
    let ranks = 3.0;
    let summary = summary(&dir, &["--ranks", "3"], &["train.computation_time=0.01", "train.epochs=3"]);
    let mut total = 0.0;
    for epoch in epochs(&summary) {
        let part = |key: &str| epoch[key].as_f64().unwrap();
        let [wait, compute, barrier, harness] =
            ["wait_seconds", "compute_seconds", "barrier_seconds", "harness_seconds"].map(part);
        // 4 steps of 10 ms on each rank: an emulated step has exactly the configured length.
        assert!((compute - ranks * 4.0 * 0.01).abs() < 1e-6, "{epoch}");
        assert!(wait >= 0.0 && barrier >= 0.0 && harness >= 0.0, "{epoch}");
        let au = part("au_percent");
        assert!((0.0..=100.0).contains(&au), "{au}");
        assert!(part("samples_per_second") > 0.0 && part("mib_per_second") > 0.0);
        total += wait + compute + barrier + harness;
    }
    // Only the time between epochs (adding a few ledger rows) is not accounted for.
    let wall = summary["feedline"]["wall_seconds"].as_f64().unwrap();
    assert!(total <= ranks * wall * 1.000_001, "{total} of {}", ranks * wall);
    assert!(total >= ranks * (0.5 * wall - 0.1), "{total} of {}", ranks * wall);
}

#[test]
fn au_is_high_with_instant_storage_and_zero_without_compute() {
    let dir = Dir::small();
    let busy = summary(&dir, &["--store", "null"], &["train.computation_time=0.02"]);
    for au in busy["metric"]["train_au_percentage"].as_array().unwrap() {
        assert!((50.0..=100.0).contains(&au.as_f64().unwrap()), "{au}");
    }
    let idle = summary(&dir, &["--store", "null"], &["train.computation_time=0"]);
    assert_eq!(idle["metric"]["train_au_mean_percentage"].as_f64(), Some(0.0));
    assert_eq!(idle["metric"]["train_au_meet_expectation"], "fail");
}

#[test]
fn each_shuffle_gives_the_documented_order() {
    let dir = Dir::small_with_data();
    let orders = |settings: &[&str]| -> Vec<u64> {
        let done = dir.feedline(&["run", "w.yaml", "--quiet", "--results-dir", "r"]).set(settings).run();
        let folder = done.stdout.lines().find_map(|line| line.strip_prefix("result in "));
        let ledger = dir.json(&format!("{}/ledger.json", folder.unwrap()));
        let rows = ledger["ranks"].as_array().unwrap();
        rows.iter().map(|row| row["seen"]["order"].as_u64().unwrap()).collect()
    };
    let off = orders(&["reader.file_shuffle=off"]);
    assert_eq!(off[0], off[1], "without a shuffle every epoch has the same order");
    let seed = orders(&["reader.file_shuffle=seed"]);
    assert_ne!(seed[0], seed[1], "epochs differ");
    assert_ne!(seed[0], off[0]);
    assert_eq!(orders(&["reader.file_shuffle=seed"]), seed, "runs do not differ");
    assert_ne!(orders(&["reader.file_shuffle=seed", "train.seed=5"]), seed);
    assert_eq!(
        orders(&["reader.file_shuffle=seed", "reader.read_threads=7"]),
        seed,
        "the number of reader threads does not matter"
    );
    let random = orders(&["reader.file_shuffle=random"]);
    assert_ne!(random, orders(&["reader.file_shuffle=random"]), "random differs in each run");
    let same = orders(&["reader.sample_shuffle=seed", "train.seed_change_epoch=false"]);
    assert_eq!(same[0], same[1]);
}

#[test]
fn an_order_that_repeats_makes_the_run_invalid() {
    let dir = Dir::small();
    let args = ["run", "w.yaml", "--store", "null", "--quiet", "--json"];
    let done = dir.feedline(&args).set(&["train.seed_change_epoch=false"]).run().exits(5);
    assert_eq!(done.json()["feedline"]["verdict"]["status"], "invalid");
    assert_eq!(outcome(&done.json(), "order-differs"), "fail");
}

#[test]
fn no_threads_and_no_prefetch_still_deliver() {
    let dir = Dir::small_with_data();
    for settings in [
        ["reader.read_threads=0", "reader.prefetch_size=0"],
        ["reader.read_threads=0", "reader.prefetch_size=2"],
        ["reader.read_threads=5", "reader.prefetch_size=0"],
        ["reader.read_threads=3", "reader.prefetch_size=100"],
    ] {
        let summary = summary(&dir, &["--ranks", "2"], &settings);
        assert_eq!(epochs(&summary)[1]["samples_delivered"], 24, "{settings:?}");
        assert_eq!(outcome(&summary, "exactly-once"), "pass", "{settings:?}");
    }
}

#[test]
fn the_tensorflow_loader_delivers_too() {
    let dir = Dir::small_with_data();
    let summary =
        summary(&dir, &["--ranks", "2"], &["framework=tensorflow", "reader.data_loader=tensorflow", EXTENT]);
    assert_eq!(epochs(&summary)[1]["bytes_read"], 24 * 4096);
}

#[test]
fn the_null_backend_needs_no_data_and_reads_none() {
    let dir = Dir::small();
    let summary = summary(&dir, &["--store", "null", "--ranks", "4"], &[]);
    assert_eq!(epochs(&summary)[1]["samples_delivered"], 24);
    assert_eq!(summary["feedline"]["verdict"]["status"], "unverified");
    assert!(!dir.path("data").exists());
}

#[test]
fn generate_and_run_in_one_command() {
    let dir = Dir::small();
    dir.feedline(&["run", "w.yaml", "--generate", "--data-dir", "elsewhere"]).run().exits(0);
    assert_eq!(dir.tree("elsewhere/train").len(), 24);
    assert!(!dir.path("data").exists());
    dir.feedline(&["run", "w.yaml", "--data-dir", "elsewhere", "--results-dir", "r/s"]).run().exits(0);
    assert_eq!(dir.results_below("r").len(), 1);
}

#[test]
fn two_runs_in_one_second_have_a_folder_each() {
    let dir = Dir::small_with_data();
    for _ in 0..5 {
        dir.feedline(&["run", "w.yaml", "--quiet"]).run().exits(0);
    }
    assert_eq!(dir.results().len(), 5);
}

#[test]
fn several_samples_per_file() {
    let dir = Dir::small();
    for batch in ["reader.batch_size=8", "reader.batch_size=1"] {
        let settings = ["dataset.num_samples_per_file=4", batch, "reader.file_shuffle=seed", EXTENT];
        let summary = summary(&dir, &["--generate", "--ranks", "2"], &settings);
        assert_eq!(epochs(&summary)[0]["samples_delivered"], 96);
        assert_eq!(
            epochs(&summary)[0]["bytes_read"],
            96 * 4096,
            "each file is read once, whatever the batch"
        );
    }
}

#[test]
fn every_rank_reads_what_it_delivers() {
    let dir = Dir::small();
    let settings =
        ["dataset.num_files_train=2", "dataset.num_samples_per_file=40", "reader.batch_size=5", EXTENT];
    for (ranks, files_read) in [("1", 2), ("2", 2), ("4", 4), ("8", 8)] {
        let summary = summary(&dir, &["--generate", "--ranks", ranks], &settings);
        assert_eq!(epochs(&summary)[0]["samples_delivered"], 80);
        assert_eq!(epochs(&summary)[0]["bytes_read"], files_read * 40 * 4096, "{ranks} ranks");
    }
}

#[test]
fn without_arguments_it_runs_the_demo() {
    let dir = Dir::new();
    let done = dir.feedline(&["run"]).run().ran();
    for text in
        ["demo: 2 ranks", "training", "AU ", "verdict: ", "result in feedline-results/demo/", "next\n"]
    {
        assert!(done.stdout.contains(text), "{text} is missing in:\n{}", done.stdout);
    }
    assert_eq!(dir.tree("feedline-data/demo/train").len(), 2048);
    let summary = dir.json(&format!("{}/summary.json", dir.result()));
    assert_eq!(epochs(&summary).len(), 3);
    for epoch in epochs(&summary) {
        assert_eq!(epoch["samples_delivered"], 2048);
        assert_eq!(epoch["bytes_read"], disk_bytes(&dir, "feedline-data/demo"));
    }
}
