//! Figures that could look better than they are: rates that prefetch inflates, simulated devices, times that the rate
//! excludes, memory that is used after it was measured.

use serde_json::Value;

use crate::util::{Dir, outcome};

/// Storage-bound training on a simulated device: a batch of 128 KiB takes the device 6.6 ms and the accelerator 2 ms.
/// Four readers have four batches in flight before the first step.
const BOUND: &str = "\
framework: pytorch
dataset: {format: jpeg, num_files_train: 24, record_length_bytes: 65536}
reader: {data_loader: pytorch, batch_size: 2, read_threads: 4, prefetch_size: 4}
train: {epochs: 2, computation_time: 0.002}
";
const DEVICE: &str = "sim:bandwidth=20MB/s";
/// The rate of the device, in MiB/s.
const DEVICE_RATE: f64 = 20e6 / 1_048_576.0;

fn bound() -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", BOUND);
    dir
}

fn epochs(summary: &Value, list: &str, key: &str) -> Vec<f64> {
    let epochs = summary["feedline"][list].as_array().unwrap().iter();
    epochs.map(|epoch| epoch[key].as_f64().unwrap_or_else(|| panic!("no {key} in {epoch}"))).collect()
}

#[test]
fn a_rate_inflated_by_prefetch_is_not_valid() {
    let dir = bound();
    let run = |settings: &[&str]| {
        let args = ["run", "w.yaml", "--store", DEVICE, "--no-calibration", "--json", "--quiet"];
        dir.feedline(&args).set(settings).run().ran().json()
    };
    let short = run(&[]);
    assert_eq!(outcome(&short, "window-long-enough"), "not-checkable");
    assert_ne!(short["feedline"]["verdict"]["status"], "valid");
    // DLIO's figure is reported unchanged and exceeds the rate of the device. The rate by the clock does not.
    for (rate, clock) in epochs(&short, "epochs", "mib_per_second").into_iter().zip(epochs(
        &short,
        "epochs",
        "clock_mib_per_second",
    )) {
        assert!(rate > 1.15 * DEVICE_RATE, "{rate}");
        assert!(clock <= 1.001 * DEVICE_RATE, "{clock}");
    }
    let why = short["feedline"]["clock_difference"].as_str().unwrap();
    assert!(why.contains("% lower: the metric window excludes 1 step, which took "), "{why}");
    assert!(why.contains("up to 4 batches per rank"), "{why}");

    // Without exclusion the window is the whole epoch; with 80 steps, 4 batches are at most 5 %.
    for settings in [["output.metric.exclude_start_steps=0"], ["dataset.num_files_train=162"]] {
        let fair = run(&settings);
        assert_eq!(outcome(&fair, "window-long-enough"), "pass", "{settings:?}");
        let rates = epochs(&fair, "epochs", "mib_per_second");
        assert!(rates.iter().all(|rate| *rate <= 1.06 * DEVICE_RATE), "{settings:?}: {rates:?}");
    }
}

#[test]
fn the_rate_by_the_clock_is_in_every_report() {
    let dir = bound();
    let args = ["run", "w.yaml", "--store", DEVICE, "--no-calibration"];
    let evaluation = [
        "workflow.evaluation=true",
        "dataset.num_files_eval=40",
        "evaluation.eval_time=0.001",
        "train.epochs=1",
    ];
    let done = dir.feedline(&args).set(&evaluation).run().ran();
    assert_eq!(done.stdout.matches(" clock MiB/s ").count(), 2, "{}", done.stdout);
    assert_eq!(done.stdout.matches("\nby the clock the rate is ").count(), 1, "{}", done.stdout);
    let result = dir.result();
    let summary = dir.json(&format!("{result}/summary.json"));
    let ledger = dir.json(&format!("{result}/ledger.json"));
    let csv = dir.read(&format!("{result}/epochs.csv"));
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|field| *field == name).unwrap();
    for (row, list) in [(1, "epochs"), (2, "eval_epochs")] {
        // Everything that was delivered until the last rank had its last batch.
        let seen = &ledger["ranks"][row - 1]["seen"];
        let seconds = seen["last_batch_ns"].as_f64().unwrap() / 1e9;
        for (key, total) in [("clock_samples_per_second", 1.0), ("clock_mib_per_second", 1.0 / 1_048_576.0)] {
            let count = if total == 1.0 { "samples_delivered" } else { "bytes_read" };
            let expected = seen[count].as_f64().unwrap() * total / seconds;
            let found = epochs(&summary, list, key)[0];
            assert!((found / expected - 1.0).abs() < 1e-9, "{list} {key}: {found}, not {expected}");
            assert_eq!(rows[row][column(key)].parse::<f64>().unwrap(), found);
        }
    }
    // With several ranks, the epoch ends with the slowest.
    let two = dir.feedline(&args).args(&["--ranks", "2", "--json", "--quiet"]).run().ran().json();
    assert!(epochs(&two, "epochs", "clock_mib_per_second").iter().all(|rate| *rate <= 1.001 * DEVICE_RATE));
}

#[test]
fn an_epoch_that_did_not_end_has_no_rate_by_the_clock() {
    let dir = Dir::small_with_data();
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--store", "fault:posix,kind=eio,every=20"];
    dir.feedline(&args).run().exits(4);
    let summary = dir.json(&format!("{}/summary.json", dir.result()));
    let epoch = &summary["feedline"]["epochs"][0];
    assert_eq!(
        (&epoch["mib_per_second"], &epoch["clock_mib_per_second"], &epoch["clock_samples_per_second"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(summary["feedline"]["clock_difference"], Value::Null);
}

#[test]
fn simulated_devices_are_labelled_everywhere() {
    let dir = bound();
    let many = ["dataset.num_files_train=180", "train.epochs=1", "metric.au=0.01"];
    let run = |args: &[&str]| dir.feedline(args).args(&["w.yaml", "--quiet"]).set(&many).run();
    let capacity = ["capacity", "--store", DEVICE, "--up-to", "1"];
    run(&capacity).prints(" backend (simulated)\n");
    assert_eq!(run(&[&capacity[..], &["--json"]].concat()).json()["simulated"], true);
    let stall = ["stall", "--store", DEVICE];
    run(&stall).prints(" backend (simulated), ").prints("effect of a cache (simulated)\n");
    assert_eq!(run(&[&stall[..], &["--json"]].concat()).json()["simulated"], true);

    let over = format!("store='{DEVICE}',null");
    let sweep = ["sweep", "--no-calibration", "--repeat", "1", "--output", "s", "--over", &over];
    let text = run(&sweep).prints("w (partly simulated)\n").stdout;
    let rows: Vec<&str> =
        text.lines().filter(|line| line.starts_with(" 'sim:") || line.starts_with(" null")).collect();
    assert!(rows[0].contains("  simulated") && !rows[1].contains("simulated"), "{text}");
    let json = dir.json("s/sweep.json");
    assert_eq!((&json["simulated"], &json["cells"][0]["simulated"]), (&true.into(), &true.into()));
    assert_eq!(json["cells"][1]["simulated"], false);
    let csv = dir.read("s/sweep.csv");
    assert!(csv.lines().nth(1).unwrap().contains(",true,simulated"), "{csv}");
    assert!(csv.lines().nth(2).unwrap().contains(",false,"), "{csv}");
    let svg = dir.read("s/sweep.svg");
    assert!(svg.contains("w (partly simulated): one run"), "{svg}");
    assert_eq!(svg.matches("MB/s (simulated)</title>").count(), 1, "{svg}");
    let journal: Vec<bool> =
        dir.read("s/cells.jsonl").lines().skip(1).map(|line| line.contains("\"simulated\":true")).collect();
    assert_eq!(journal.iter().filter(|simulated| **simulated).count(), 1);
    let all = ["sweep", "--no-calibration", "--repeat", "1", "--store", DEVICE, "--over", "ranks=1"];
    run(&all).prints("w (simulated)\n");
}

/// Training that saves 3 MB after every sixth step, to a device that takes 0.1 s for it, or first to a faster one.
fn saving() -> Dir {
    let dir = Dir::new();
    let checkpoints = "\
model: {name: flat, type: cnn, model_size_bytes: 3000000}
workflow: {train: true, checkpoint: true}
checkpoint:
  {checkpoint_folder: ck, steps_between_checkpoints: 6, store: 'sim:bandwidth=30MB/s', burst_store: sim:optane}
";
    dir.write("w.yaml", BOUND.to_owned() + checkpoints);
    dir
}

/// While training waits for a checkpoint the queues fill, and these reads take no time of the window.
#[test]
fn reads_during_a_checkpoint_count_as_read_in_advance() {
    let dir = saving();
    let args = ["run", "w.yaml", "--store", DEVICE, "--no-calibration", "--json", "--quiet"];
    let summary = dir.feedline(&args).set(&["output.metric.exclude_start_steps=0"]).run().ran().json();
    assert_eq!(outcome(&summary, "window-long-enough"), "not-checkable");
    let why = summary["feedline"]["clock_difference"].as_str().unwrap();
    assert!(why.contains("% lower: the metric window excludes checkpoints, which took "), "{why}");
    assert_eq!(summary["feedline"]["checkpoint"]["simulated"], true);
}

/// Save modes do not differ in the rate of training, which excludes the time of checkpoints.
#[test]
fn a_sweep_over_save_modes_compares_the_blocked_time() {
    let dir = saving();
    let modes = "checkpoint.mode_of_save=direct,burst-buffer";
    let args = ["sweep", "w.yaml", "--no-calibration", "--quiet", "--store", DEVICE, "--output", "s"];
    let text = dir.feedline(&args).args(&["--repeat", "1", "--over", modes]).run().stdout;
    assert!(text.contains(" blocked  speed-up "), "{text}");
    let json = dir.json("s/sweep.json");
    assert_eq!(json["speed_up_of"], "blocked_seconds");
    let median = |cell: usize| json["cells"][cell]["blocked_seconds"]["median"].as_f64().unwrap();
    // 3 MB at 30 MB/s, and on a much faster device.
    assert!((0.099..0.11).contains(&median(0)) && median(1) < 0.05, "{} {}", median(0), median(1));
    let speed_up = json["cells"][1]["speed_up"].as_f64().unwrap();
    assert!((speed_up - median(0) / median(1)).abs() < 1e-9 && speed_up > 2.0, "{speed_up}");
    assert!(dir.read("s/sweep.csv").starts_with("checkpoint.mode_of_save,runs,"));
    assert!(dir.read("s/sweep.svg").contains("seconds blocked by a save"));
    // If something else varies, too, the rate is compared, and the table still has the blocked time.
    let both = ["--repeat", "1", "--over", modes, "--over", "reader.read_threads=4"];
    let args = ["sweep", "w.yaml", "--no-calibration", "--quiet", "--store", DEVICE, "--output", "t"];
    let text = dir.feedline(&args).args(&both).run().stdout;
    assert!(text.contains(" blocked  speed-up "), "{text}");
    assert_eq!(dir.json("t/sweep.json")["speed_up_of"], "samples_per_second");
}

/// The maxima of several threads may be at different times, so their sum is an upper bound, and it is named a bound.
#[test]
fn fetches_in_flight_are_a_bound() {
    let dir = bound();
    let args = ["run", "w.yaml", "--store", DEVICE, "--no-calibration", "--json", "--quiet"];
    let summary = dir.feedline(&args).run().ran().json();
    assert_eq!(summary["feedline"]["in_flight_bound"], 4, "one thread serves four readers");
    assert_eq!(summary["feedline"]["most_in_flight"], Value::Null);
}

/// A run that is killed before it renames the folder leaves a folder in which all checksums match.
#[test]
fn a_folder_that_was_never_published_is_not_a_result() {
    let dir = Dir::small_with_data();
    dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration"]).run().ran();
    let result = dir.result();
    dir.feedline(&["validate", &result]).run().exits(0);
    let partial = format!("{}/.partial-4711", result.rsplit_once('/').unwrap().0);
    std::fs::rename(dir.path(&result), dir.path(&partial)).unwrap();
    std::os::unix::fs::symlink(dir.path(&partial), dir.path("link")).unwrap();
    let through = format!("{partial}/../.partial-4711/");
    for path in [&partial, &through, "link"] {
        let done = dir.feedline(&["validate", path]).run().exits(3).one_error();
        done.says("not a result").says(".partial-4711 ended before it renamed the folder");
    }
    let inside = format!("cd {partial} && exec \"$0\" validate .");
    let feedline = env!("CARGO_BIN_EXE_feedline");
    dir.command(std::path::Path::new("bash"), &["-c", &inside, feedline]).run().exits(3).says("not a result");
    dir.feedline(&["compare", &partial, &partial]).run().exits(3).says("not a result");
    let json = dir.feedline(&["validate", &partial, "--json"]).run().exits(3).json();
    assert!(json["results"][0]["refused"].as_str().unwrap().contains("not a result"));
}

/// A thousand epochs make a ledger of 16 MB. Writing it needs no memory in addition to the ledger, and the reported
/// memory equals the kernel's figure.
#[test]
fn a_large_result_is_written_in_little_memory() {
    let dir = Dir::small();
    let most = |epochs: &str, args: &[&str]| {
        let settings = ["--set", "train.epochs", "--store", "null", "--quiet", "--no-calibration"];
        let epochs = format!("train.epochs={epochs}");
        let settings = settings.map(|text| if text == "train.epochs" { epochs.as_str() } else { text });
        let done = dir.python("peak.py", &[&["run", "w.yaml"][..], &settings, args].concat()).run().exits(0);
        done.stdout.trim().parse::<f64>().unwrap()
    };
    let real = most("1000", &[]);
    let summary = dir.json(&format!("{}/summary.json", dir.result()));
    let reported = summary["feedline"]["memory"]["peak_rss_bytes"].as_f64().unwrap();
    assert!((0.9..1.05).contains(&(reported / real)), "reported {reported}, actual {real}");
    // 1,000 epochs need about 60 MB, the program itself up to 20 MB.
    assert!(real < 88e6, "{real}");
    // A summary on stdout does not need more, either.
    let json = most("1000", &["--json"]);
    assert!(json < 1.1 * real, "{json} against {real}");
}
