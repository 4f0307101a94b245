//! Every I/O backend with every loader: all deliver the same samples, once each, or refuse with a message that names
//! the cause. Also requests that no backend can fulfil.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use store::Selection;

use crate::util::{Dir, Done, TENSORFLOW, outcome};

/// Every I/O backend without injected faults, with the settings that select its mode.
fn stores() -> Vec<(String, &'static [&'static str])> {
    let selections = store::conformance::registry::selections(store::BACKENDS);
    let odirect: &[&str] = &["reader.odirect=true"];
    let settings = |selection: &Selection| if selection.mode.odirect { odirect } else { &[] };
    let without_faults = selections.iter().filter(|selection| !selection.backend.injects_faults);
    without_faults.map(|selection| (selection.text(), settings(selection))).collect()
}

const DALI: [&str; 1] = ["reader.data_loader=dali"];
const SYNTHETIC: [&str; 1] = ["reader.data_loader=synthetic"];

/// What a run delivered: the digest of the samples for each rank and epoch, then the total opens and bytes.
type Delivered = (Vec<String>, u64, u64);

/// Runs the workload of the folder; `None` if the backend is unavailable on this machine, and the message says so.
fn deliver(dir: &Dir, store: &str, settings: &[&str]) -> Option<Delivered> {
    let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--ranks", "3", "--store", store];
    let done = dir.feedline(&args).args(&["--results-dir", "r"]).set(settings).run();
    if done.code() == Some(3) {
        let done = done.one_error();
        let closed = ["io_uring cannot be used: ", "O_DIRECT"].iter().any(|text| done.stderr.contains(text));
        assert!(closed && (store == "uring" || store == "direct"), "{store} {settings:?}: {}", done.stderr);
        return None;
    }
    let summary = done.ran().json();
    for rule in ["exactly-once", "bytes-as-planned"] {
        assert_eq!(outcome(&summary, rule), "pass", "{store} {settings:?}");
    }
    let results = dir.results_below("r");
    let ledger = dir.json(&format!("{}/ledger.json", results[0]));
    std::fs::remove_dir_all(dir.path("r")).unwrap();
    let rows: Vec<&Value> = ledger["ranks"].as_array().unwrap().iter().map(|row| &row["seen"]).collect();
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum();
    let digests = rows.iter().map(|row| row["digest"].as_str().unwrap().to_owned()).collect();
    Some((digests, sum("opens"), sum("bytes_read")))
}

/// Runs every I/O backend with every loader. The samples are the same in all runs; opens and bytes are the same for all
/// backends of a loader.
fn compare(dir: &Dir, loaders: &[&[&str]], settings: &[&str]) {
    let mut samples = None;
    for loader in loaders {
        for prefetch in ["reader.prefetch_size=0", "reader.prefetch_size=2"] {
            let mut counts = None;
            for (store, more) in stores() {
                let settings = [settings, loader, more, &[prefetch]].concat();
                let Some((digests, opens, bytes)) = deliver(dir, &store, &settings) else { continue };
                assert_eq!(&digests, samples.get_or_insert(digests.clone()), "{store} {settings:?}");
                let seen = (opens, bytes);
                assert_eq!(seen, *counts.get_or_insert(seen), "{store} {settings:?}: opens and bytes");
            }
        }
    }
}

#[test]
fn a_url_that_cannot_be_used_is_refused_by_its_scheme_before_any_io() {
    let dir = Dir::small();
    let refused = "hdfs:// is not supported (hdfs://bucket/x); use a folder, s3://, gs:// or az://";
    for args in [
        &["run", "w.yaml", "--data-dir", "hdfs://bucket/x"][..],
        &["generate", "w.yaml", "--data-dir", "hdfs://bucket/x"],
        &["run", "w.yaml", "--set", "storage.storage_root=hdfs://bucket", "--set", "dataset.data_folder=x"],
        &["run", "w.yaml", "--set", "workflow.checkpoint=true", "--checkpoint-dir", "hdfs://bucket/x"],
        &["catalog", "hdfs://bucket/x"],
    ] {
        dir.feedline(args).run().exits(3).one_error().says(refused);
        assert_eq!(dir.listing().len(), 1, "{args:?}: {:?}", dir.listing());
    }
    // A plan needs no data.
    dir.feedline(&["plan", "w.yaml", "--data-dir", "hdfs://bucket/x"])
        .run()
        .exits(0)
        .prints("unknown at hdfs://bucket/x");
}

#[test]
fn a_backend_that_cannot_find_data_at_a_location_is_a_usage_error() {
    let dir = Dir::small();
    for (args, says) in [
        (
            &["run", "w.yaml", "--data-dir", "s3://bucket/x", "--store", "posix"][..],
            "the backend posix reads files in folders, but s3://bucket/x is in an object store; use --store s3, or \
             leave out --store and storage.store",
        ),
        (
            &[
                "run",
                "w.yaml",
                "--set",
                "workflow.checkpoint=true",
                "--checkpoint-dir",
                "gs://bucket/x",
                "--set",
                "checkpoint.store=direct",
            ],
            "checkpoint.checkpoint_folder is gs://bucket/x, where the backend direct cannot store anything; set \
             checkpoint.store to gs, or leave it out",
        ),
    ] {
        dir.feedline(args).run().exits(2).one_error().says(says);
    }
    // A simulated device holds no files, wherever they would be.
    dir.feedline(&["plan", "w.yaml", "--data-dir", "s3://bucket/x", "--store", "sim:ssd"]).run().exits(0);
}

#[test]
fn all_stores_and_loaders_deliver_the_same_samples_of_files() {
    let dir = Dir::small_with_data();
    compare(&dir, &[&[], &TENSORFLOW, &DALI, &SYNTHETIC], &["reader.read_threads=3", "train.epochs=1"]);
}

#[test]
fn all_stores_and_loaders_deliver_the_same_samples_of_streams() {
    let dir = Dir::small();
    let settings = [
        "framework=tensorflow",
        "dataset.format=tfrecord",
        "dataset.num_samples_per_file=4",
        "dataset.num_files_train=12",
        "reader.data_loader=tensorflow",
        "reader.transfer_size=4096",
        "train.epochs=1",
    ];
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&settings).run().exits(0);
    compare(&dir, &[&[], &DALI], &settings);
}

#[test]
fn processing_samples_does_not_change_what_is_delivered() {
    let dir = Dir::small();
    let settings = [
        "dataset.num_samples_per_file=5",
        "dataset.num_files_train=9",
        "dataset.format=hdf5",
        "reader.sample_shuffle=seed",
        "reader.read_threads=3",
        "train.epochs=1",
    ];
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&settings).run().exits(0);
    let plain = deliver(&dir, "posix", &settings).unwrap();
    let ways: [&[&str]; 5] = [
        &["reader.retain=batch"],
        &["reader.preprocess_time=0.0001", "reader.preprocess_threads=1"],
        &["reader.preprocess=burn", "reader.preprocess_time=0.0001"],
        &["train.device_copy_rate=1", "train.device_prefetch=false"],
        &["reader.transfer_size=4097"],
    ];
    for way in ways {
        for store in ["posix", "direct", "uring"] {
            let Some(seen) = deliver(&dir, store, &[&settings, way].concat()) else { continue };
            assert_eq!(seen, plain, "{store} {way:?}");
        }
    }
    let unordered = deliver(&dir, "posix", &[&settings[..], &["reader.ordered=false"]].concat()).unwrap();
    assert_eq!(unordered, plain, "a rank has the same samples in an epoch, in any order");
}

/// Checks that a run is refused with exactly this message, and leaves nothing behind.
#[track_caller]
fn refused(dir: &Dir, done: Done, code: i32, message: &str) {
    let done = done.exits(code).one_error();
    assert_eq!(done.stderr, format!("error: {message}\n"));
    assert!(dir.results().is_empty());
    dir.has_no_leftovers();
}

fn run(dir: &Dir, args: &[&str], settings: &[&str]) -> Done {
    dir.feedline(&["run", "w.yaml", "--quiet"]).args(args).set(settings).run()
}

#[test]
fn a_backend_that_the_kernel_forbids() {
    let dir = Dir::small_with_data();
    // The errors of a container's system-call filter and of a kernel without io_uring.
    for (error, reason) in
        [("EPERM", "io_uring cannot be used: "), ("ENOSYS", "the kernel was built without it")]
    {
        let inject = format!("inject=io_uring_setup:error={error}");
        let program = env!("CARGO_BIN_EXE_feedline");
        let args = ["-f", "-o", "calls", "-e", &inject, "--", program, "run", "w.yaml", "--quiet"];
        let done = dir.command(Path::new("strace"), &args).args(&["--store", "uring"]).run();
        let done = done.exits(3).one_error().says(reason).says("or use --store posix or --store direct");
        assert!(!done.stderr.contains("data set"), "the message does not blame the data:\n{}", done.stderr);
    }
}

#[test]
fn direct_reads_of_files_in_memory_are_refused() {
    let dir = Dir::small();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = memory.path().to_str().unwrap();
    let message = format!(
        "{place} is on tmpfs, which keeps files in memory: O_DIRECT would read the page cache; use --store posix or a \
         folder on a disk"
    );
    let data = format!("{place}/data");
    let args = ["--data-dir", &data, "--generate"];
    refused(&dir, run(&dir, &args, &["reader.odirect=true"]), 3, &message);
    refused(&dir, run(&dir, &[&args[..], &["--store", "direct"]].concat(), &[]), 3, &message);
    assert!(!Path::new(&data).exists(), "nothing is generated for a refused run");
    let args = ["--data-dir", place, "--store", "uring"];
    let done = run(&dir, &args, &["reader.odirect=true"]);
    refused(&dir, done, 3, &message);
}

#[test]
fn modes_that_exclude_each_other() {
    let dir = Dir::small_with_data();
    let cases: [(&str, &[&str], i32, &str); 6] = [
        (
            "posix",
            &["reader.odirect=true"],
            2,
            "reader.odirect bypasses the page cache, but the backend posix reads through it; use --store direct or \
             uring, or remove one of the two",
        ),
        (
            "mmap",
            &["storage.storage_type=direct_fs"],
            2,
            "storage.storage_type: direct_fs bypasses the page cache, but the backend mmap reads through it; use \
             --store direct or uring, or remove one of the two",
        ),
        (
            "mmap",
            &["reader.readahead=dontcache"],
            3,
            "mapped files are pages of the page cache, so reader.readahead: dontcache has no meaning with --store \
             mmap; use --store posix or uring",
        ),
        (
            "direct",
            &["reader.readahead=random"],
            3,
            "reader.readahead: random has no meaning with O_DIRECT, which never reads ahead; leave it at normal, or \
             read through the page cache (--store posix)",
        ),
        (
            "sim:hdd",
            &["reader.preprocess=decode"],
            2,
            "reader.preprocess: decode needs the bytes of the samples, but the backend sim:hdd returns none",
        ),
        (
            "tape",
            &[],
            2,
            "there is no store 'tape'; the stores are posix, direct, mmap, uring, s3, gs, az, sim, null, fault",
        ),
    ];
    for (store, settings, code, message) in cases {
        refused(&dir, run(&dir, &["--store", store], settings), code, message);
    }
}

#[test]
fn invalid_devices() {
    let dir = Dir::small();
    for (store, mistake) in [
        ("sim", "there is no device ''; the devices are hdd, ssd, optane, lustre"),
        ("sim:tape", "there is no device 'tape'; the devices are hdd, ssd, optane, lustre"),
        (
            "sim:hdd,latency=4",
            "latency=4: '4' needs a unit: 4s, 4m or 4h; the units are ns, us, ms, s, m, h and d",
        ),
        ("sim:latency=4ms", "the bandwidth is missing, such as bandwidth=163MB/s"),
        ("sim:bandwidth=0", "bandwidth must be more than 0"),
        ("sim:hdd,latency=1ms,latency=2ms", "latency is given twice"),
    ] {
        let message = format!("the store '{store}': {mistake}");
        refused(&dir, run(&dir, &["--store", store], &[]), 2, &message);
    }
    let message = "the null store takes no arguments, but 'fast' was given";
    refused(&dir, run(&dir, &["--store", "null:fast"], &[]), 2, message);
}

#[test]
fn transfers_and_memory_of_impossible_sizes() {
    let dir = Dir::small_with_data();
    for (bytes, note) in [("3", ""), ("1099511627776", "\n   = note: the largest is 1073741824")] {
        let message = format!(
            "'reader.transfer_size' cannot be {bytes}\n  --> --set reader.transfer_size={bytes}\n   = allowed: an \
             integer from 512 to 1073741824\n   = meaning: bytes per read if a reader streams a file (tfrecord, csv); \
             otherwise the maximum size of a read{note}"
        );
        let setting = format!("reader.transfer_size={bytes}");
        refused(&dir, run(&dir, &["--store", "direct"], &[&setting]), 2, &message);
    }
    let rest = "; raise it, or lower --ranks, reader.read_threads or reader.batch_size";
    let message = format!(
        "--memory allows 1.0 KiB for buffers and batches, but the smallest buffers need 16.0 KiB{rest}"
    );
    refused(&dir, run(&dir, &["--memory", "1KiB"], &[]), 2, &message);
    let message = format!(
        "--memory allows 20.0 KiB for buffers and batches, but one batch per rank (of 8.9 KiB) and the smallest \
         buffers need 24.9 KiB{rest}"
    );
    refused(&dir, run(&dir, &["--memory", "20KiB"], &["reader.retain=batch"]), 2, &message);
}

#[test]
fn prefetch_needs_no_memory_beyond_the_epoch() {
    let dir = Dir::small_with_data();
    run(&dir, &[], &["reader.prefetch_size=1000000000000"]).ran();
}

#[test]
fn a_sweep_over_an_unknown_key() {
    let dir = Dir::small_with_data();
    let done = dir.feedline(&["sweep", "w.yaml", "--over", "reader.read_treads=1,2", "--quiet"]).run();
    let message = "cell reader.read_treads=1: unknown key 'reader.read_treads'\n  --> --over reader.read_treads=1\n   \
                   = help: did you mean 'read_threads'?";
    refused(&dir, done, 2, message);
}

#[test]
fn a_limit_on_open_files_below_the_number_of_readers() {
    let dir = Dir::small_with_data();
    let limited = |store: &str, readers: &str| {
        let program = env!("CARGO_BIN_EXE_feedline");
        let script = format!("ulimit -n 64; exec {program} run w.yaml --quiet --store {store}");
        let script = format!("{script} --set reader.read_threads={readers}");
        dir.command(Path::new("bash"), &["-c", &script]).run()
    };
    for store in ["posix", "mmap"] {
        let message = "100 files are to be open at once, which needs a limit of 132 open files, but it is 64: raise it \
                       (ulimit -n 132) or use fewer readers";
        refused(&dir, limited(store, "100"), 3, message);
    }
    for store in ["posix", "mmap", "null", "sim:optane"] {
        limited(store, "16").ran();
    }
}

#[test]
fn cpu_work_ends_with_the_run() {
    let dir = Dir::small_with_data();
    let settings = ["reader.preprocess=burn", "reader.preprocess_time=60", "reader.read_threads=4"];
    let mut running = dir.feedline(&["run", "w.yaml", "--quiet", "--no-calibration"]).set(&settings).start();
    running.until_thread("reader");
    running.signal(Signal::INT);
    running.wait_for(Duration::from_secs(30)).exits(4);
}

#[test]
fn a_key_without_effect_causes_a_warning() {
    let dir = Dir::small_with_data();
    let stream = "only the tensorflow loader uses it, and only for stream formats (tfrecord, csv)";
    let nothing = "nothing is preprocessed in this run";
    let cases = [
        ("posix", "reader.shuffle_size=8", stream),
        ("posix", "reader.computation_threads=8", stream),
        ("posix", "reader.interleave_block=2", "files are not interleaved"),
        ("posix", "reader.preprocess=burn", nothing),
        ("posix", "reader.preprocess_threads=2", nothing),
        ("posix", "reader.preprocess_bytes=100", nothing),
        ("posix", "reader.preprocess_slow_share=0.1", nothing),
        ("posix", "train.device_prefetch=false", "batches are not copied: train.device_copy_rate is 0"),
        ("null", "reader.readahead=random", "the backend opens no files"),
        ("sim:optane", "reader.odirect=true", "the backend opens no files"),
        ("sim:optane", "reader.retain=batch", "the backend returns no bytes to keep"),
    ];
    for (store, setting, why) in cases {
        let args = ["run", "w.yaml", "--no-calibration", "--store", store];
        let (key, _) = setting.split_once('=').unwrap();
        let warning = format!("'{key}' at --set {setting} has no effect: {why}");
        dir.feedline(&args).set(&[setting]).run().ran().says(&warning);
    }
    let settings = ["reader.readahead=random", "reader.retain=batch", "reader.preprocess_time=0.0001"];
    let done = dir.feedline(&["run", "w.yaml", "--no-calibration"]).set(&settings);
    let done = done.set(&["reader.preprocess_threads=2", "train.device_copy_rate=1"]).run().ran();
    assert!(!done.stderr.contains("no effect"), "each of these has one:\n{}", done.stderr);
}
