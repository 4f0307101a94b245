//! Data sets in object stores: every format trains as in a folder, objects are the files of a folder byte for byte, an
//! interrupted generation continues, objects that changed are named, and data sets of other programs are read.

use rustix::process::Signal;
use serde_json::Value;

use crate::integrity::FORMATS;
use crate::objects::proxy::{Ask, Proxy};
use crate::objects::servers::{Place, Scheme};
use crate::util::{Dir, Done, outcome};

/// Generates a data set and returns what was done.
fn generate(dir: &Dir, place: &Place, at: &str, flags: &[&str], settings: &[&str]) -> Value {
    let args = ["generate", "w.yaml", "--quiet", "--json", "--data-dir", at];
    place.with(dir.feedline(&args).args(flags).set(settings)).run().exits(0).silent().json()
}

/// A run that compares every byte.
fn run(dir: &Dir, place: &Place, at: &str, settings: &[&str]) -> Done {
    let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--verify", "full"];
    place.with(dir.feedline(&args).args(&["--data-dir", at]).set(settings)).run()
}

/// What has to be the same wherever the data is: the work, the samples and the bytes.
fn work(summary: &Value) -> Vec<Value> {
    // The digest of the plan includes the backend, so it differs.
    let keys = ["digest", "digest_planned", "samples_delivered", "bytes_read"];
    let epochs = ["epochs", "eval_epochs"].map(|phase| summary["feedline"][phase].as_array());
    let all = epochs.into_iter().flatten().flatten();
    all.flat_map(|epoch| keys.map(|key| epoch[key].clone())).collect()
}

/// Checks that a run on objects does what the same run on files does. Both have the same name.
fn trains_as_in_a_folder(dir: &Dir, place: &Place, name: &str, settings: &[&str]) {
    let url = place.url(name);
    let made = generate(dir, place, &url, &[], settings);
    let local = generate(dir, place, name, &[], settings);
    assert_eq!(made["files_written"], local["files_written"], "{name}");
    assert_eq!(made["bytes_written"], local["bytes_written"], "{name}");
    let objects = run(dir, place, &url, settings).ran().json();
    for rule in ["complete", "exactly-once", "bytes-as-planned", "data-verified", "errors"] {
        assert_eq!(outcome(&objects, rule), "pass", "{name}, {rule}: {objects:#}");
    }
    let files = run(dir, place, name, settings).ran().json();
    assert_eq!(work(&objects), work(&files), "{name}");
}

/// The settings of an entry of `FORMATS`, small.
fn settings_of<'a>(format: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let size = ["dataset.num_files_train=6", "dataset.num_files_eval=2"];
    [&size[..], &[format], more].concat()
}

/// Trains with every format, compressed or not, and returns how many there were.
fn trains_with_every_format(dir: &Dir, place: &Place) -> usize {
    for (number, (format, more)) in FORMATS.iter().enumerate() {
        let (name, format) = (format!("all/{number}"), format!("dataset.format={format}"));
        trains_as_in_a_folder(dir, place, &name, &settings_of(&format, more));
    }
    FORMATS.len()
}

#[test]
fn every_format_trains_from_s3_as_from_a_folder() {
    let (dir, place) = (Dir::small(), Place::s3());
    let trained = trains_with_every_format(&dir, &place);
    // boto3 finds the objects that the folders have as files, and nothing else.
    let compared = place.has_files_of(&dir, "all", "all");
    assert!(compared >= 8 * trained, "{compared} files of {trained} data sets");
    let arrays = place.boto(&dir, &["arrays", &place.key("all/0")]).exits(0).stdout;
    assert_eq!(arrays.lines().filter(|line| line.contains("x(64, 64, 1)uint8")).count(), 8, "{arrays}");
}

#[test]
fn every_format_trains_from_azure_as_from_a_folder() {
    trains_with_every_format(&Dir::small(), &Place::new(Scheme::Azure));
}

#[test]
fn every_format_trains_from_the_stand_in_for_google_as_from_a_folder() {
    trains_with_every_format(&Dir::small(), &Place::new(Scheme::Google));
}

#[test]
fn a_complete_data_set_is_not_written_again() {
    for scheme in [Scheme::S3, Scheme::Azure, Scheme::Google] {
        let (dir, place) = (Dir::small(), Place::new(scheme));
        let first = generate(&dir, &place, &place.url("data"), &[], &[]);
        assert_eq!((&first["files_written"], &first["files_kept"]), (&24.into(), &0.into()));
        let proxy = Proxy::to(&place.endpoint).start();
        let again = generate(&dir, &place.through(&proxy), &place.url("data"), &[], &[]);
        assert_eq!((&again["files_written"], &again["files_kept"]), (&0.into(), &24.into()));
        let writes = [Ask::Put, Ask::Part, Ask::CreateUpload, Ask::Complete, Ask::Delete, Ask::Abort];
        assert_eq!(writes.map(|ask| proxy.count(ask)), [0; 6], "{:?}", proxy.log());
        let over = generate(&dir, &place, &place.url("data"), &["--overwrite"], &[]);
        assert_eq!(over["files_written"], 24);
        run(&dir, &place, &place.url("data"), &[]).ran();
    }
}

/// Objects of three parts, so that there are uploads to interrupt.
const LARGE: [&str; 5] = [
    "dataset.format=jpeg",
    "dataset.num_files_train=8",
    "dataset.record_length_bytes=11000000",
    "storage.part_size=5MiB",
    "reader.batch_size=1",
];

#[test]
fn an_interrupted_generation_continues_and_leaves_no_upload() {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("data");
    let mut killed = 0;
    for requests in [4, 9, 14, 19, 24] {
        let proxy = Proxy::to(&place.endpoint).start();
        let args = ["generate", "w.yaml", "--quiet", "--writers", "2", "--data-dir", &url];
        let mut running = place.through(&proxy).with(dir.feedline(&args).set(&LARGE)).start();
        let is_over = running.until_or_end(|| proxy.requests() >= requests);
        if !is_over {
            // Not on the boundary of a request.
            std::thread::sleep(std::time::Duration::from_micros(u64::from(std::process::id()) % 7919));
            running.signal(Signal::KILL);
        }
        killed += u64::from(running.wait().signal().is_some());
        // What exists is whole: no object has another size than the others.
        let listed = place.boto(&dir, &["list", &place.key("data/train/")]).exits(0).stdout;
        let sizes: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').nth(1)).collect();
        assert!(sizes.iter().all(|size| *size == sizes[0]), "{listed}");
    }
    assert!(killed >= 2, "only {killed} of 5 were killed in time");
    let last = generate(&dir, &place, &url, &["--verify"], &LARGE);
    let [written, kept] = ["files_written", "files_kept"].map(|key| last[key].as_u64().unwrap());
    assert_eq!(written + kept, 8);
    let uploads = place.boto(&dir, &["uploads", &place.key("data")]).exits(0).stdout;
    assert_eq!(uploads, "", "left behind");
    generate(&dir, &place, "data", &[], &LARGE);
    assert_eq!(place.has_files_of(&dir, "data", "data"), 8);
}

/// More files than a run looks at before it begins, the one that is changed, and its size.
const MANY: [&str; 2] = ["dataset.num_files_train=200", "train.epochs=1"];
const CHANGED: (&str, usize) = ("train/img_077_of_200.npz", 4554);

#[test]
fn changed_objects_are_named() {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("data");
    generate(&dir, &place, &url, &[], &MANY);
    let key = place.key(&format!("data/{}", CHANGED.0));
    let put = |bytes: usize| drop(place.boto(&dir, &["put", &key, &"x".repeat(bytes)]).exits(0));
    let is_named = |says: &str, kind: &str| {
        let stopped = run(&dir, &place, &url, &MANY).exits(4).one_error();
        stopped.says(&format!("{}/{}", url, CHANGED.0)).says(says).says("rank 0");
        let counted = run(&dir, &place, &url, &[&MANY[..], &["reader.on_error=count"]].concat());
        // Wrong bytes are never valid, even if they are counted.
        let counted = if kind == "wrong-bytes" { counted.exits(5) } else { counted.ran() }.json();
        assert_eq!(counted["feedline"]["errors"][kind]["count"], 1, "{counted:#}");
        assert_eq!(outcome(&counted, "exactly-once"), "pass");
    };
    put(CHANGED.1);
    is_named("differs from what was written, from offset", "wrong-bytes");
    let verified = ["generate", "w.yaml", "--quiet", "--verify", "--data-dir", &url];
    place.with(dir.feedline(&verified).set(&MANY)).run().exits(5).one_error().says(CHANGED.0);
    put(CHANGED.1 - 1000);
    is_named("is too short: it ends at byte 3554", "short");
    put(CHANGED.1 + 1000);
    is_named("is too long: it has 5554 bytes, but the plan expects 4554", "long");
    place.boto(&dir, &["delete", &key]).exits(0);
    is_named("does not exist", "enoent");
    let repaired = generate(&dir, &place, &url, &["--verify"], &MANY);
    assert_eq!((&repaired["files_written"], &repaired["files_kept"]), (&1.into(), &199.into()));
    run(&dir, &place, &url, &MANY).ran();
}

#[test]
fn an_object_that_a_run_looks_at_first_is_named_before_it_begins() {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("data");
    generate(&dir, &place, &url, &[], &[]);
    let key = place.key("data/train/img_07_of_24.npz");
    let is_refused = |says: &str| {
        let done = run(&dir, &place, &url, &[]).exits(3).one_error();
        done.says(says).says(&format!("feedline generate w.yaml --data-dir {url}"));
        assert!(dir.results().is_empty());
    };
    place.boto(&dir, &["put", &key, "short"]).exits(0);
    is_refused("train/img_07_of_24.npz has 5 bytes, but the plan expects 4554");
    place.boto(&dir, &["delete", &key]).exits(0);
    is_refused("train/img_07_of_24.npz does not exist");
}

/// The workload of a data set that `python/dlio.py` writes.
const OF_DLIO: &str = "
framework: pytorch
workflow: {evaluation: true}
dataset: {format: npz, num_files_train: 5, num_files_eval: 2, num_samples_per_file: 2, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 1, read_threads: 2, file_shuffle: seed, sample_shuffle: seed}
evaluation: {eval_time: 0}
train: {epochs: 2, computation_time: 0}
";

#[test]
fn a_data_set_of_dlio_runs_under_its_own_keys_and_by_its_address() {
    for writer in ["argonne", "mlcommons"] {
        let (dir, place) = (Dir::new(), Place::s3());
        dir.write("w.yaml", OF_DLIO);
        place.dlio_data_set(&dir, writer, "npz", "data");
        let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration"];
        let by_folder = dir.feedline(&args).args(&["--data-dir", "data"]).run().ran().json();
        let url = place.url("data");
        let by_address = place.with(dir.feedline(&args).args(&["--data-dir", &url])).run().ran().json();
        // As in a workload for DLIO: the bucket is the root, and the server is a storage option.
        let keys = [
            "storage.storage_type=s3",
            &format!("storage.storage_root={}", place.bucket),
            &format!("storage.storage_options.endpoint_url={}", place.endpoint),
            &format!("dataset.data_folder={}", place.key("data")),
        ];
        let by_keys =
            place.with(dir.feedline(&args).set(&keys)).env("AWS_ENDPOINT_URL", "").run().ran().json();
        for summary in [&by_address, &by_keys] {
            for rule in ["complete", "exactly-once", "bytes-as-planned"] {
                assert_eq!(outcome(summary, rule), "pass", "{writer}, {rule}: {summary:#}");
            }
            assert_eq!(work(summary), work(&by_folder), "{writer}");
            assert_eq!(summary["feedline"]["store"]["facts"]["file_sizes"], "as found");
        }
    }
}

#[test]
fn keys_may_have_any_characters() {
    let (dir, place) = (Dir::small(), Place::s3());
    let name = "two words, \u{fc}ber %41+&?=#~";
    let url = place.url(name);
    generate(&dir, &place, &url, &[], &[]);
    run(&dir, &place, &url, &[]).ran();
    let again = generate(&dir, &place, &url, &[], &[]);
    assert_eq!(again["files_kept"], 24);
    generate(&dir, &place, "local", &[], &[]);
    assert_eq!(place.has_files_of(&dir, name, "local"), 24);
}
