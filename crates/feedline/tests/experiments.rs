//! The study of 2018 (Chien et al.) and related ones, repeated on simulated devices. Each row of the table of
//! experiments is a test, with files, batches and steps scaled down alike, so that the ratios stay the same.
//! `scripts/bench experiments` uses the sizes of the papers.
//!
//! Devices are exact, but on a busy machine readers start late. So a row has six attempts; a real error fails all of
//! them.

use std::ops::RangeInclusive;
use std::thread;

use serde_json::Value;

use crate::util::{Dir, Done};

const DEVICES: [&str; 4] = ["hdd", "ssd", "optane", "lustre"];
/// The peak rate of each device, in MB/s.
const PEAKS: [f64; 4] = [163.0, 280.0, 1603.0, 1968.0];

const MICRO: &str = "chien2018_micro";
const UNPREPARED: &str = "reader.preprocess=none";
/// The same with 4 ms of preprocessing per 112 KB on two cores, and a grid of its own.
const THREADS: &str = "chien2018_threads";
const ALEXNET: &str = "chien2018_alexnet";

/// Ok if a figure is as expected, else the reason.
type Shown = Result<(), String>;

fn within(what: &str, value: f64, expected: RangeInclusive<f64>) -> Shown {
    match expected.contains(&value) {
        true => Ok(()),
        false => Err(format!("{what} is {value}, not within {expected:?}")),
    }
}

fn near(what: &str, value: f64, expected: f64, percent: f64) -> Shown {
    let margin = expected * percent / 100.0;
    within(what, value, expected - margin..=expected + margin)
}

fn attempt(row: impl Fn() -> Shown) {
    let mut seen = Vec::new();
    while let Err(why) = row() {
        seen.push(why);
        assert!(seen.len() < 6, "failed six times: {seen:#?}");
    }
}

/// The JSON of a completed run or sweep. On a busy machine its verdict may be invalid.
fn ended(done: &Done) -> Value {
    if ![Some(0), Some(5)].contains(&done.code()) {
        done.fail("expected a completed run with figures");
    }
    done.json()
}

/// A run's summary, and its ledger.
struct Run {
    summary: Value,
    ledger: Value,
}

fn run(workload: &str, device: &str, settings: &[&str]) -> Run {
    let dir = Dir::new();
    dir.write("large.yaml", LARGE);
    let store = format!("sim:{device}");
    let args = ["run", workload, "--store", &store, "--no-calibration", "--json", "--quiet"];
    let summary = ended(&dir.feedline(&args).set(settings).run());
    let ledger = dir.json(&format!("{}/ledger.json", dir.result()));
    Run { summary, ledger }
}

impl Run {
    fn epoch(&self) -> &Value {
        &self.summary["feedline"]["epochs"][0]
    }

    fn figure(&self, name: &str) -> f64 {
        self.epoch()[name].as_f64().unwrap_or_else(|| panic!("no {name} in {}", self.epoch()))
    }

    fn megabytes(&self) -> f64 {
        self.figure("mib_per_second") * 1.048576
    }

    /// The span, in milliseconds, below which this share of an operation's spans is.
    fn percentile(&self, operation: &str, share: f64) -> f64 {
        let bins = self.ledger["nodes"][0]["seen"]["latencies"][operation]["spans"].as_array().unwrap();
        let count = |bin: &Value| bin[1].as_u64().unwrap();
        let wanted = share * bins.iter().map(count).sum::<u64>() as f64;
        let mut seen = 0;
        let bin = bins.iter().find(|bin| {
            seen += count(bin);
            seen as f64 >= wanted
        });
        bin.unwrap()[0].as_f64().unwrap() / 1e6
    }
}

/// Runs all cases at once, each in its own thread; they sleep most of the time.
fn together<T: Sync, R: Send>(cases: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let started: Vec<_> = cases.iter().map(|case| scope.spawn(|| run(case))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The cells of a sweep.
fn cells(workload: &str, args: &[&str], settings: &[&str]) -> Vec<Value> {
    let dir = Dir::new();
    let command = ["sweep", workload, "--no-calibration", "--json", "--quiet"];
    let done = dir.feedline(&command).args(args).set(settings).run();
    ended(&done)["cells"].as_array().unwrap().clone()
}

/// The cells of a sweep of the input pipeline with this number of files, in batches of 16.
fn sweep(files: u64, args: &[&str], settings: &[&str]) -> Vec<Value> {
    let files = format!("dataset.num_files_train={files}");
    cells(THREADS, args, &[&[files.as_str(), "reader.batch_size=16"], settings].concat())
}

fn rates(cells: &[Value]) -> Vec<f64> {
    cells.iter().map(|cell| cell["mb_per_second"]["median"].as_f64().unwrap()).collect()
}

/// MB/s with 1, 2, 4 and 8 threads.
fn threads(files: u64, device: &str, settings: &[&str]) -> Vec<f64> {
    let store = format!("sim:{device}");
    rates(&sweep(files, &["--store", &store, "--repeat", "1"], settings))
}

/// Files that are read with one request of 4 MiB each, for 8 readers.
const LARGE: &str = "\
model: {name: large}
framework: tensorflow
dataset: {data_folder: large, format: jpeg, num_files_train: 80, record_length_bytes: 4194304}
reader: {data_loader: tensorflow, batch_size: 8, read_threads: 8, prefetch_size: 1, transfer_size: 4194304}
train: {epochs: 1, computation_time: 0}
";

/// Enough files for at least one second.
fn large(device: &str, peak: f64) -> Run {
    let files = format!("dataset.num_files_train={}", (peak / 16.0) as u64 * 8);
    run("large.yaml", device, &[&files])
}

#[test]
fn a1_large_reads_reach_the_peak_rate() {
    attempt(|| {
        let cases: Vec<(&str, f64)> = DEVICES.into_iter().zip(PEAKS).collect();
        let rates = together(&cases, |(device, peak)| large(device, *peak).megabytes());
        assert!(rates.is_sorted(), "{rates:?}");
        cases.iter().zip(rates).try_for_each(|((device, peak), rate)| near(device, rate, *peak, 3.0))
    });
}

#[test]
fn the_baseline_is_one_command() {
    attempt(|| {
        let rates = rates(&cells("chien2018_devices", &["--repeat", "1"], &["dataset.num_files_train=168"]));
        DEVICES
            .iter()
            .zip(rates.iter().zip(PEAKS))
            .try_for_each(|(device, (rate, peak))| near(device, *rate, peak, 3.0))
    });
}

#[test]
fn a2_threads_hide_the_latency_of_a_parallel_file_system() {
    attempt(|| {
        let rates = threads(768, "lustre", &[UNPREPARED]);
        near("two threads", rates[1] / rates[0], 2.0, 10.0)?;
        near("four threads", rates[2] / rates[0], 4.0, 10.0)?;
        within("eight threads", rates[3] / rates[0], 7.0..=8.1)
    });
}

#[test]
fn a3_a_disk_flattens_beyond_four_threads() {
    attempt(|| {
        let rates = threads(192, "hdd", &[]);
        within("two threads", rates[1] / rates[0], 1.7..=2.0)?;
        within("eight threads", rates[3] / rates[0], 2.1..=2.6)?;
        within("eight against four", rates[3] / rates[2], 0.99..=1.05)
    });
}

#[test]
fn a4_two_cores_of_preprocessing_limit_every_device() {
    attempt(|| {
        let over = [
            "--over",
            "store=sim:hdd,sim:ssd,sim:optane",
            "--over",
            "reader.read_threads=1,8",
            "--repeat",
            "1",
        ];
        let rates = rates(&sweep(192, &over, &[]));
        let (one, eight) = rates.split_at(3);
        for (device, (one, eight)) in DEVICES.iter().zip(one.iter().zip(eight)) {
            within(device, eight / one, 1.9..=2.7)?;
        }
        near("ssd against optane", eight[1], eight[2], 5.0)
    });
}

#[test]
fn a5_preprocessing_costs_fast_devices_most() {
    attempt(|| {
        let over =
            ["--over", "store=sim:hdd,sim:optane", "--over", "reader.preprocess=none,sleep", "--repeat", "1"];
        let rates = rates(&sweep(384, &over, &["reader.read_threads=8"]));
        near("hdd", rates[0], 31.8, 10.0)?;
        near("hdd with preprocessing", rates[1], 31.8, 10.0)?;
        near("optane", rates[2], 1603.0, 10.0)?;
        near("optane with preprocessing", rates[3], 56.0, 10.0)
    });
}

#[test]
fn a6_without_latency_threads_gain_nothing() {
    attempt(|| {
        let rates = threads(768, "hdd,latency=0", &[UNPREPARED]);
        rates.iter().try_for_each(|rate| near("hdd without latency", *rate / rates[0], 1.0, 3.0))
    });
}

/// Samples of the whole mini-application: 9,144 images in batches of 64.
const ALEXNET_SAMPLES: f64 = 142.0 * 64.0;

/// A quarter of its batch size and of its time per step, for 18 steps.
fn alexnet(device: &str, step: f64, prefetch: u64) -> Run {
    let step = format!("train.computation_time={}", step / 4.0);
    let prefetch = format!("reader.prefetch_size={prefetch}");
    run(ALEXNET, device, &["dataset.num_files_train=288", "reader.batch_size=16", &step, &prefetch])
}

/// How long all samples would take at the rate of the run, in batches of 64.
fn alexnet_seconds(run: &Run) -> f64 {
    ALEXNET_SAMPLES / run.figure("samples_per_second")
}

#[test]
fn a7_prefetching_hides_reading_completely() {
    let expected = [107.0, 71.4, 71.1, 73.3];
    attempt(|| {
        let cases: Vec<(&str, u64)> =
            DEVICES.iter().flat_map(|device| [(*device, 0), (*device, 1)]).collect();
        let runs = together(&cases, |(device, prefetch)| alexnet(device, 0.5, *prefetch));
        for ((device, runs), expected) in DEVICES.iter().zip(runs.chunks(2)).zip(expected) {
            near(device, alexnet_seconds(&runs[0]), expected, 10.0)?;
            near(&format!("{device}, prefetching"), alexnet_seconds(&runs[1]), 71.0, 2.0)?;
            within(&format!("AU of {device}"), runs[1].figure("au_percent"), 98.0..=100.0)?;
        }
        let waits: Vec<f64> = runs.chunks(2).map(|runs| runs[0].figure("wait_seconds")).collect();
        let [hdd, ssd, optane, lustre] = waits[..] else { panic!("{waits:?}") };
        assert!(hdd > lustre && lustre > ssd && ssd > optane, "{waits:?}");
        Ok(())
    });
}

/// The preset, with a quarter of its batch size and of its time per step.
#[test]
fn the_prefetching_figure_is_one_command() {
    let scaled = ["dataset.num_files_train=384", "reader.batch_size=16", "train.computation_time=0.125"];
    attempt(|| {
        let cells = cells("chien2018_prefetch", &["--repeat", "1"], &scaled);
        let busy: Vec<f64> =
            cells.iter().map(|cell| cell["au_percent"]["median"].as_f64().unwrap()).collect();
        for ((device, pair), expected) in DEVICES.iter().zip(busy.chunks(2)).zip([66.1, 99.3, 99.9, 96.9]) {
            near(&format!("AU of {device}"), pair[0], expected, 2.0)?;
            within(&format!("AU of {device}, prefetching"), pair[1], 98.0..=100.0)?;
        }
        Ok(())
    });
}

#[test]
fn a8_prefetching_cannot_hide_reading_that_takes_longer_than_the_step() {
    attempt(|| {
        let runs = together(&[0, 1, 4], |prefetch| alexnet("hdd", 0.1, *prefetch));
        near("without prefetching", alexnet_seconds(&runs[0]), 50.5, 10.0)?;
        near("AU without prefetching", runs[0].figure("au_percent"), 28.0, 10.0)?;
        for run in &runs[1..] {
            near("prefetching", alexnet_seconds(run), 36.4, 10.0)?;
            near("AU, prefetching", run.figure("au_percent"), 39.0, 10.0)?;
        }
        Ok(())
    });
}

/// A scaled-down workload, and the number of accelerators that each device can feed.
struct Demand {
    workload: &'static str,
    settings: &'static [&'static str],
    steps: u64,
    fed: [u64; 4],
}

/// Batches of 400 become 16, batches of 1 become 2, volumes of 147 MB become 1.2 MB, and step times are scaled with
/// them. At least 20 steps are measured for each batch that can be ready in advance.
const DEMANDS: [Demand; 5] = [
    Demand {
        workload: "resnet50_h100",
        settings: &["reader.batch_size=16", "train.computation_time=0.00896"],
        steps: 125,
        fed: [0, 1, 8, 10],
    },
    Demand {
        workload: "resnet50_a100",
        settings: &["reader.batch_size=16", "train.computation_time=0.0174"],
        steps: 125,
        fed: [1, 2, 16, 20],
    },
    Demand {
        workload: "cosmoflow_h100",
        settings: &["reader.batch_size=2", "train.computation_time=0.007"],
        steps: 125,
        fed: [0, 0, 2, 3],
    },
    Demand {
        workload: "unet3d_a100",
        settings: &[
            "dataset.record_length_bytes=1172805",
            "dataset.record_length_bytes_stdev=546734",
            "train.computation_time=0.005088",
        ],
        steps: 100,
        fed: [0, 0, 1, 1],
    },
    Demand {
        workload: "unet3d_h100",
        settings: &[
            "dataset.record_length_bytes=1172805",
            "dataset.record_length_bytes_stdev=546734",
            "train.computation_time=0.002584",
        ],
        steps: 100,
        fed: [0, 0, 0, 0],
    },
];

/// The number of accelerators that a device without latency can feed. The search starts at the expected number; the
/// search itself is tested elsewhere. The first steps, which use batches that were read in advance, are not measured.
fn accelerators(demand: &Demand, device: &str, from: u64) -> (u64, Value) {
    let dir = Dir::new();
    let (store, steps) = (format!("sim:{device},latency=0"), demand.steps.to_string());
    let (from, all) = (from.max(1).to_string(), format!("train.total_training_steps={steps}"));
    let args = ["capacity", demand.workload, "--store", &store, "--from", &from, "--steps", &steps, "--json"];
    let start = format!("output.metric.exclude_start_steps={}", demand.steps / 5);
    let settings = ["train.epochs=1", "dataset.num_files_train=2000", &all, &start];
    let json = ended(&dir.feedline(&args).args(&["--quiet"]).set(&settings).set(demand.settings).run());
    (json["accelerators"].as_u64().unwrap(), json["trials"].clone())
}

#[test]
fn a15_accelerators_that_each_device_can_feed() {
    let cases: Vec<(&Demand, &str, u64)> = DEMANDS
        .iter()
        .flat_map(|demand| {
            DEVICES.into_iter().zip(demand.fed).map(move |(device, fed)| (demand, device, fed))
        })
        .collect();
    together(&cases, |(demand, device, fed)| {
        attempt(|| {
            let (found, trials) = accelerators(demand, device, *fed);
            match found == *fed {
                true => Ok(()),
                false => Err(format!("{}, {device}: {found}, not {fed}: {trials}", demand.workload)),
            }
        });
    });
}

#[test]
fn a16_small_files_reach_a_fifth_of_a_disks_rate() {
    attempt(|| {
        let small = run(
            MICRO,
            "hdd",
            &["dataset.num_files_train=256", "reader.batch_size=16", "reader.read_threads=8"],
        );
        let large = large("hdd", PEAKS[0]).megabytes();
        near("small files", small.megabytes(), 31.8, 10.0)?;
        near("large reads", large, 163.0, 3.0)?;
        near("large against small", large / small.megabytes(), 5.1, 10.0)
    });
}

#[test]
fn a17_slow_samples_delay_batches_only_with_ordered_delivery() {
    let slow = ["reader.preprocess_slow_share=0.01", "reader.preprocess_slow_factor=50"];
    let more = ["dataset.num_files_train=1024", "reader.batch_size=16", "reader.read_threads=8"];
    let settings = [&slow[..], &more, &["reader.preprocess_threads=8"]].concat();
    attempt(|| {
        let runs = together(&["reader.ordered=true", "reader.ordered=false"], |order| {
            run(THREADS, "ssd", &[&settings[..], &[order]].concat())
        });
        let [ordered, unordered] = &runs[..] else { panic!("two runs") };
        assert_eq!(ordered.epoch()["digest"], unordered.epoch()["digest"], "the same samples");
        assert_eq!(ordered.epoch()["digest"], ordered.epoch()["digest_planned"]);
        let tail = |run: &Run| run.percentile("batch_wait", 0.99) / run.percentile("batch_wait", 0.5);
        within("the tail in order", tail(ordered), 5.0..=f64::MAX)?;
        within("tails against each other", tail(ordered) / tail(unordered), 2.0..=f64::MAX)?;
        let gain = unordered.figure("samples_per_second") / ordered.figure("samples_per_second");
        within("the gain", gain, 1.5..=8.0)
    });
}

#[test]
fn a18_more_cores_do_not_help_a_saturated_disk() {
    let settings = ["reader.read_threads=8"];
    attempt(|| {
        let over = ["--store", "sim:hdd", "--over", "reader.preprocess_threads=2,8", "--repeat", "1"];
        let rates = rates(&sweep(384, &over, &settings));
        near("eight cores against two", rates[1] / rates[0], 1.0, 5.0)
    });
}

#[test]
fn a22_order_depends_on_the_seed_and_not_on_threads() {
    let seen = |threads: &str, seed: &str| {
        let files = ["dataset.num_files_train=512", "train.epochs=2", threads, seed];
        let summary = run(MICRO, "optane", &files).summary;
        let epochs = summary["feedline"]["epochs"].as_array().unwrap().clone();
        epochs.into_iter().map(|epoch| [epoch["digest"].clone(), epoch["order"].clone()]).collect::<Vec<_>>()
    };
    let one = seen("reader.read_threads=1", "train.seed=1");
    assert_eq!(one, seen("reader.read_threads=8", "train.seed=1"));
    let other = seen("reader.read_threads=8", "train.seed=2");
    assert_eq!(one[0][0], other[0][0], "the same samples");
    let mut orders: Vec<String> = one.iter().chain(&other).map(|epoch| epoch[1].to_string()).collect();
    orders.sort();
    orders.dedup();
    assert_eq!(orders.len(), 4, "each seed and epoch has its own order");
}

fn interval(cell: &Value) -> RangeInclusive<f64> {
    let bounds = &cell["speed_up_interval"];
    bounds[0].as_f64().unwrap()..=bounds[1].as_f64().unwrap()
}

#[test]
fn a23_repeats_have_an_interval_and_equal_cells_do_not_differ() {
    let over = ["--store", "sim:hdd", "--repeat", "5", "--over"];
    attempt(|| {
        let cells = sweep(48, &[&over[..], &["reader.read_threads=1,8"]].concat(), &[]);
        let speed_up = cells[1]["speed_up"].as_f64().unwrap();
        assert!(interval(&cells[1]).contains(&speed_up), "{}", cells[1]);
        assert_eq!(cells[1]["samples_per_second"]["values"].as_array().map(Vec::len), Some(5));
        within("lower end of the speed-up's interval", *interval(&cells[1]).start(), 1.9..=speed_up)?;
        for cell in &cells {
            within("variation", cell["samples_per_second"]["cv"].as_f64().unwrap(), 0.0..=0.05)?;
            // These notes are expected: the device is simulated, and the run is short.
            let known = [Value::from("simulated"), Value::from("too few steps for the prefetch")];
            if !cell["notes"].as_array().unwrap().iter().all(|note| known.contains(note)) {
                return Err(format!("notes: {}", cell["notes"]));
            }
        }
        Ok(())
    });
    attempt(|| {
        // Two readers never preprocess more than two samples at once, so the two cells are equivalent.
        let alike = [&over[..], &["reader.preprocess_threads=2,3"]].concat();
        let cells = sweep(48, &alike, &["reader.read_threads=2"]);
        within("A against A", 1.0, interval(&cells[1]))
    });
}

/// A few files in random order, with sizes that differ by orders of magnitude.
#[test]
fn a23_repeats_that_vary_are_marked() {
    let over = ["--store", "sim:ssd", "--repeat", "5", "--over", "reader.read_threads=1,2"];
    let settings =
        [UNPREPARED, "reader.file_shuffle=random", "dataset.size_sigma=1.2", "train.total_training_steps=2"];
    for cell in sweep(960, &over, &settings) {
        let notes = cell["notes"].to_string();
        assert!(
            cell["samples_per_second"]["cv"].as_f64() > Some(0.05) && notes.contains("varies by"),
            "{cell}"
        );
    }
}

#[test]
fn a_known_service_time_is_reported() {
    let settings = ["dataset.record_length_bytes=1000000", "reader.read_threads=1"];
    let run = run("large.yaml", "bandwidth=1GB/s,latency=5ms", &settings);
    for operation in ["read", "sample"] {
        near(operation, run.percentile(operation, 0.5), 6.0, 0.2).unwrap();
    }
    assert_eq!(run.summary["feedline"]["simulated"], true);
}

/// A tenth of the state that the study saved, and the seconds for writing it to the hard disk and to Optane.
const STATE: &str = "
framework: pytorch
model: {name: state, type: cnn, model_size_bytes: 60000000}
workflow: {train: false, checkpoint: true}
checkpoint: {fsync: true, num_checkpoints_read: 0}
";
const ON_SLOW: f64 = 60.0 / 163.0;
const ON_FAST: f64 = 60.0 / 1603.0;

/// Saves to the hard disk, directly or through Optane. For each save: the seconds that it blocked training, waited for
/// a slot, and took until it was on the hard disk.
fn saves(save: &str, count: u64, pause: f64, serialize: f64) -> Vec<[f64; 3]> {
    let dir = Dir::new();
    dir.write("state.yaml", STATE);
    let settings = [
        format!("checkpoint.num_checkpoints_write={count}"),
        format!("checkpoint.time_between_checkpoints={pause}"),
        format!("checkpoint.serialize_time={serialize}"),
    ];
    let mut settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    settings.extend((save == "burst-buffer").then_some("checkpoint.burst_store=sim:optane"));
    let args = ["run", "state.yaml", "--json", "--store", "sim:hdd", "--save", save];
    let summary = ended(&dir.feedline(&args).set(&settings).run());
    let saves = summary["feedline"]["checkpoint"]["saves"].as_array().unwrap().clone();
    let seconds = |save: &Value, key: &str| save[key].as_f64().unwrap() / 1e9;
    saves
        .iter()
        .map(|save| ["blocked_ns", "back_pressure_ns", "durable_ns"].map(|key| seconds(save, key)))
        .collect()
}

fn mean(saves: &[[f64; 3]], figure: usize) -> f64 {
    saves.iter().map(|save| save[figure]).sum::<f64>() / saves.len() as f64
}

/// A9 and A10: the gain of a burst buffer follows from the bandwidths, and the disk receives the bytes afterwards.
#[test]
fn the_gain_of_a_burst_buffer_follows_from_the_bandwidths() {
    attempt(|| {
        for serialize in [0.0, 0.169] {
            let [direct, buffered] =
                ["direct", "burst-buffer"].map(|save| thread::spawn(move || saves(save, 5, 0.5, serialize)));
            let (direct, buffered) = (direct.join().unwrap(), buffered.join().unwrap());
            near("direct", mean(&direct, 0), serialize + ON_SLOW, 5.0)?;
            let gain = mean(&direct, 0) / mean(&buffered, 0);
            near("gain", gain, (serialize + ON_SLOW) / (serialize + ON_FAST), 5.0)?;
            let [blocked, waited, durable] = buffered[4];
            near("from the end of a save to the slow tier", durable - blocked, ON_SLOW, 6.0)?;
            within("back-pressure", waited, 0.0..=0.0)?;
        }
        Ok(())
    });
}

/// The preset, with a tenth of its state and times.
#[test]
fn the_burst_buffer_figure_is_one_command() {
    let scaled = [
        "model.model_size_bytes=60000000",
        "checkpoint.serialize_time=0.169",
        "checkpoint.time_between_checkpoints=0.6",
    ];
    attempt(|| {
        let cells = cells("chien2018_burst_buffer", &["--repeat", "1"], &scaled);
        let blocked: Vec<f64> =
            cells.iter().map(|cell| cell["blocked_seconds"]["median"].as_f64().unwrap()).collect();
        let [hdd, buffered_hdd, ssd, buffered_ssd] = blocked[..] else { panic!("{blocked:?}") };
        near("hdd", hdd, 0.169 + ON_SLOW, 5.0)?;
        near("ssd", ssd, 0.169 + 60.0 / 280.0, 5.0)?;
        near("hdd with a burst buffer", buffered_hdd, 0.169 + ON_FAST, 5.0)?;
        near("ssd with a burst buffer", buffered_ssd, 0.169 + ON_FAST, 5.0)?;
        near("gain", hdd / buffered_hdd, 2.6, 10.0)
    });
}

/// The expected mean times that a save blocks and waits. A save starts when fewer than two checkpoints wait for their
/// drain; drains run one after another; the fast device is read for a drain while it is written to.
fn expected_times(count: usize, pause: f64) -> [f64; 2] {
    let (mut now, mut drained, mut blocked, mut waited) = (0.0, Vec::<f64>::new(), 0.0, 0.0);
    for number in 0..count {
        let asked = now + pause;
        let begin = if number >= 2 { f64::max(asked, drained[number - 2]) } else { asked };
        let last = drained.last().copied().unwrap_or(0.0);
        now = begin + if last > begin { ON_FAST / (1.0 - ON_FAST / ON_SLOW) } else { ON_FAST };
        drained.push(f64::max(now, last) + ON_SLOW);
        blocked += now - asked;
        waited += begin - asked;
    }
    [blocked, waited].map(|sum| sum / count as f64)
}

/// A11: saves that are more frequent than drains wait for a slot.
#[test]
fn a_full_burst_buffer_blocks_training() {
    attempt(|| {
        for pause in [0.2, 0.1] {
            let (seen, [blocked, waited]) =
                (saves("burst-buffer", 12, pause, 0.0), expected_times(12, pause));
            near("blocked", mean(&seen, 0), blocked, 5.0)?;
            near("back-pressure", mean(&seen, 1), waited, 6.0)?;
        }
        Ok(())
    });
}
