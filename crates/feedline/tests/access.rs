//! Reads like those of frameworks: a run makes the same read requests as numpy, TensorFlow, pyarrow and h5py for the
//! same file. Both are traced with strace and compared with access.txt, so that a change of a library can be
//! distinguished from a change of feedline.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::util::{Cmd, Dir, TENSORFLOW};

const RECORDED: &str = include_str!("access.txt");

/// The largest request of feedline. Larger requests of a library are compared with joined requests.
const MOST_AT_ONCE: u64 = 1 << 20;

/// Offset, and number of bytes that were read.
type Request = (u64, u64);

/// One file, and how it is read.
struct Case {
    /// Its heading in access.txt.
    name: &'static str,
    settings: &'static [&'static str],
    samples: u64,
    batch: u64,
    /// How many times the library opens the file: once for each batch, or once for all parts.
    visits: u64,
    /// The columns that are read, for formats with columns.
    columns: &'static str,
}

fn case(name: &'static str, settings: &'static [&'static str], samples: u64, batch: u64) -> Case {
    Case { name, settings, samples, batch, visits: samples / batch, columns: "" }
}

impl Case {
    fn folder(&self) -> String {
        self.name.replace(' ', "-")
    }

    fn file(&self, format: &str) -> String {
        format!("{}/train/img_0_of_1.{format}", self.folder())
    }

    fn command<'a>(&self, dir: &'a Dir, command: &str, format: &str) -> Cmd<'a> {
        let sizes = [
            format!("dataset.format={format}"),
            format!("dataset.num_samples_per_file={}", self.samples),
            format!("reader.batch_size={}", self.batch),
        ];
        let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
        let plain = [
            "dataset.num_files_train=1",
            "reader.file_shuffle=off",
            "reader.read_threads=1",
            "reader.prefetch_size=0",
            "train.epochs=1",
            "output.metric.exclude_start_steps=0",
        ];
        let loader: &[&str] = if format == "tfrecord" { &TENSORFLOW } else { &[] };
        dir.feedline(&[command, "w.yaml", "--quiet", "--data-dir", &self.folder()])
            .set(&sizes)
            .set(&plain)
            .set(loader)
            .set(self.settings)
    }
}

/// The reads of a command, by the file below `dir`, in order.
fn reads_of(dir: &Dir, command: Cmd<'_>) -> BTreeMap<String, Vec<Request>> {
    let done = command.traced("open,openat,read,pread64,readv,preadv,lseek", "trace").run();
    let trace = std::fs::read_to_string(dir.path("trace")).unwrap_or_default();
    if !trace.contains("openat(") {
        done.fail(
            "strace does not work here: these tests need ptrace (in a container: --cap-add SYS_PTRACE)",
        );
    }
    done.ran();
    let root = format!("{}/", dir.path("").canonicalize().unwrap().display());
    let mut reads: BTreeMap<String, Vec<Request>> = BTreeMap::new();
    for (path, request) in requests(&trace) {
        if let Some(name) = path.strip_prefix(&root)
            && name.contains("/train/")
        {
            reads.entry(name.to_owned()).or_default().push(request);
        }
    }
    reads
}

/// Every read in a trace that returned bytes: path, offset and length. The positions of descriptors are tracked.
fn requests(trace: &str) -> Vec<(String, Request)> {
    let mut found = Vec::new();
    let mut positions: BTreeMap<String, u64> = BTreeMap::new();
    let mut unfinished: BTreeMap<&str, String> = BTreeMap::new();
    for line in trace.lines() {
        let Some((thread, text)) = line.split_once(' ') else { continue };
        let text = text.trim_start();
        if let Some(start) = text.strip_suffix("<unfinished ...>") {
            unfinished.insert(thread, start.to_owned());
            continue;
        }
        let whole = match text.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            Some((_, rest)) => unfinished.remove(thread).unwrap_or_default() + rest,
            None => text.to_owned(),
        };
        let Some((call, result)) = whole.rsplit_once(" = ") else { continue };
        let Some((name, args)) = call.split_once('(') else { continue };
        let number = result.split([' ', '<']).next().unwrap();
        // A descriptor with its path, `3</a/b>`: the result of an open, the first argument of other calls.
        if name.starts_with("open") {
            positions.insert(result.to_owned(), 0);
            continue;
        }
        let (Ok(came), Some((descriptor, _))) = (number.parse::<u64>(), args.split_once('>')) else {
            continue;
        };
        let descriptor = format!("{descriptor}>");
        let at = positions.entry(descriptor.clone()).or_default();
        if name == "lseek" {
            *at = came;
            continue;
        }
        let offset = if name.starts_with('p') { last_number(args) } else { *at };
        if !name.starts_with('p') {
            *at += came;
        }
        let path = descriptor.split_once('<').unwrap().1.trim_end_matches('>').to_owned();
        if came > 0 {
            found.push((path, (offset, came)));
        }
    }
    found
}

/// The last argument of a call, a number.
fn last_number(args: &str) -> u64 {
    args.trim_end_matches([')', ' ']).rsplit(", ").next().unwrap().parse().unwrap()
}

/// Joins requests that feedline split.
fn whole(requests: &[Request]) -> Vec<Request> {
    let mut joined: Vec<Request> = Vec::new();
    let mut full = false;
    for &(offset, len) in requests {
        match joined.last_mut() {
            Some(last) if full && last.0 + last.1 == offset => last.1 += len,
            _ => joined.push((offset, len)),
        }
        full = len == MOST_AT_ONCE;
    }
    joined
}

/// The requests in access.txt, by heading.
fn recorded() -> BTreeMap<&'static str, Vec<Request>> {
    let mut all = BTreeMap::new();
    let mut heading = "";
    for line in RECORDED.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if !line.starts_with(' ') {
            heading = line;
            assert!(all.insert(heading, Vec::new()).is_none(), "{heading} occurs twice in access.txt");
            continue;
        }
        let pairs = line.split_whitespace().map(|word| {
            let (offset, len) = word.split_once('+').unwrap();
            (offset.parse().unwrap(), len.parse().unwrap())
        });
        all.get_mut(heading).unwrap().extend(pairs);
    }
    all
}

fn shown(requests: &[Request]) -> String {
    let mut text = String::new();
    for line in requests.chunks(8) {
        let words: Vec<String> = line.iter().map(|(offset, len)| format!("{offset}+{len}")).collect();
        let _ = writeln!(text, "    {}", words.join(" "));
    }
    text
}

/// Generates the file of each case, reads it with the library and with feedline, and compares the requests.
fn same_reads(format: &str, cases: &[Case]) {
    let dir = Dir::small();
    let (recorded, mut words, mut wrong) = (recorded(), Vec::new(), String::new());
    for case in cases {
        case.command(&dir, "generate", format).run().exits(0);
        words.extend([case.file(format), case.visits.to_string()]);
        words.extend((!case.columns.is_empty()).then(|| case.columns.to_owned()));
    }
    let words: Vec<&str> = std::iter::once(format).chain(words.iter().map(String::as_str)).collect();
    let library = reads_of(&dir, dir.python("access.py", &words));
    assert_eq!(library.len(), cases.len(), "files that the library read: {:?}", library.keys());
    for case in cases {
        let ours = reads_of(&dir, case.command(&dir, "run", format).args(&["--no-calibration"]));
        let file = case.file(format);
        assert_eq!(ours.keys().collect::<Vec<_>>(), [&file], "files that feedline read");
        let expected = recorded.get(case.name).cloned().unwrap_or_default();
        for (reader, found) in [("the library", library[&file].clone()), ("feedline", whole(&ours[&file]))] {
            if found != expected {
                let _ = writeln!(wrong, "{reader} reads differently\n{}\n{}", case.name, shown(&found));
            }
        }
    }
    assert!(wrong.is_empty(), "different from access.txt:\n{wrong}");
}

#[test]
fn npz_is_read_as_numpy_reads_it() {
    same_reads(
        "npz",
        &[
            case("npz 4 KiB", &[], 1, 1),
            case("npz 300 kB", &["dataset.record_length_bytes=300000"], 1, 1),
            case("npz 3 MB", &["dataset.record_length_bytes=3000000"], 1, 1),
            case("npz of three", &["dataset.record_length_bytes=5000"], 3, 3),
        ],
    );
}

#[test]
fn jpeg_is_read_as_python_reads_it() {
    same_reads(
        "jpeg",
        &[
            case("jpeg 4 KiB", &[], 1, 1),
            case("jpeg 115 kB", &["dataset.record_length_bytes=115600"], 1, 1),
            case("jpeg 3 MB", &["dataset.record_length_bytes=3000000"], 1, 1),
        ],
    );
}

#[test]
fn tfrecord_is_read_as_tensorflow_reads_it() {
    same_reads(
        "tfrecord",
        &[
            case("tfrecord of seven", &[], 7, 7),
            case("tfrecord of three", &["dataset.record_length_bytes=300000"], 3, 3),
            case("tfrecord 3 MB", &["dataset.record_length_bytes=3000000"], 1, 1),
        ],
    );
}

const COLUMNS: &str = "dataset.parquet.columns=[{name: a, dtype: float32, size: 100}, {name: b, dtype: int64}, \
                       {name: c, dtype: uint8, size: 400, read: false}, {name: d, dtype: float64, size: 30}]";
const WIDE: &str = "dataset.parquet.columns=[{name: a, dtype: uint8, size: 5000}, \
                    {name: b, dtype: float32, size: 20000, read: false}, {name: c, dtype: float32, size: 5000}]";

#[test]
fn parquet_is_read_as_pyarrow_reads_it() {
    let groups_of = |name, settings, columns| Case { visits: 1, columns, ..case(name, settings, 30, 10) };
    same_reads(
        "parquet",
        &[
            Case { columns: "data", ..case("parquet 4 KiB", &[], 3, 3) },
            groups_of("parquet columns", &["dataset.parquet.row_group_size=10", COLUMNS], "a,b,d"),
            groups_of("parquet wide columns", &["dataset.parquet.row_group_size=10", WIDE], "a,c"),
        ],
    );
}

#[test]
fn hdf5_is_read_as_h5py_reads_it() {
    let chunks = &["dataset.record_dims=[64,64]", "dataset.hdf5.chunk_dims=[1,16,64]"];
    same_reads(
        "hdf5",
        &[
            case("hdf5 4 KiB", &[], 3, 1),
            case("hdf5 300 kB", &["dataset.record_length_bytes=300000"], 2, 1),
            case("hdf5 3 MB", &["dataset.record_length_bytes=3000000"], 1, 1),
            case("hdf5 chunks", chunks, 3, 1),
            case(
                "hdf5 two datasets",
                &["dataset.record_dims=[64,64]", "dataset.hdf5.num_dset_per_record=2"],
                2,
                1,
            ),
        ],
    );
}

/// Joins adjacent requests, whatever their lengths.
fn merged(requests: &[Request]) -> Vec<Request> {
    let mut joined: Vec<Request> = Vec::new();
    for &(offset, len) in requests {
        match joined.last_mut() {
            Some(last) if last.0 + last.1 == offset => last.1 += len,
            _ => joined.push((offset, len)),
        }
    }
    joined
}

#[test]
fn a_run_reads_the_extents_that_inspect_names() {
    // A run computes them; inspect reads them from the file.
    let dir = Dir::small();
    let formats =
        ["npy", "npz", "jpeg", "png", "csv", "hdf5", "tfrecord", "parquet", "arrow", "indexed_binary"];
    for format in formats {
        let samples = if ["jpeg", "png"].contains(&format) { 1 } else { 3 };
        let settings = &["reader.access=extent", "dataset.parquet.row_group_size=1"];
        let case = Case { name: format, settings, samples, batch: 1, visits: 1, columns: "" };
        case.command(&dir, "generate", format).run().exits(0);
        let run = reads_of(&dir, case.command(&dir, "run", format).args(&["--no-calibration"]));
        let file = case.file(format);
        let count = samples.to_string();
        let mut inspect = dir.feedline(&["inspect", &file, "--json", "--samples", &count]);
        for sample in 0..samples {
            inspect = inspect.args(&["--sample", &sample.to_string()]);
        }
        let found = inspect.run().exits(0).json();
        let named: Vec<Request> = found["files"][0]["reads"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|sample| sample["reads"].as_array().unwrap())
            .map(|read: &Value| (read["offset"].as_u64().unwrap(), read["len"].as_u64().unwrap()))
            .collect();
        let (run, named) = (merged(&run[&file]), merged(&named));
        if format == "parquet" {
            // A footer does not state where values are within the pages of a column, so inspect reports whole columns.
            let inside = |&(at, len): &Request| {
                named.iter().any(|place| place.0 <= at && at + len <= place.0 + place.1)
            };
            assert!(run.iter().all(inside), "{run:?} in {named:?}");
        } else if ["npy", "npz"].contains(&format) {
            // The elements of samples alternate, so they are read together, once.
            let first = named.iter().map(|place| place.0).min().unwrap();
            let end = named.iter().map(|place| place.0 + place.1).max().unwrap();
            assert_eq!(run, [(first, end - first)], "{format}");
        } else {
            assert_eq!(run, named, "{format}");
        }
    }
}

#[test]
fn traces_are_understood() {
    let trace = r#"
7 openat(AT_FDCWD</tmp>, "a", O_RDONLY|O_CLOEXEC) = 3</tmp/a>
7 read(3</tmp/a>, ""..., 100) = 100
7 lseek(3</tmp/a>, -22, SEEK_END) = 478
8 pread64(4</tmp/b>, ""..., 10, 20 <unfinished ...>
7 read(3</tmp/a>, ""..., 100) = 22
7 read(3</tmp/a>, "", 100) = 0
8 <... pread64 resumed>) = 9
8 preadv(4</tmp/b>, [{iov_base=""..., iov_len=5}, {iov_base=""..., iov_len=6}], 2, 4096) = 11
8 pread64(4</tmp/b>, 0x7f, 10, 20) = -1 EIO (Input/output error)
"#;
    let found = requests(trace);
    let expected = [("/tmp/a", (0, 100)), ("/tmp/a", (478, 22)), ("/tmp/b", (20, 9)), ("/tmp/b", (4096, 11))];
    assert_eq!(found, expected.map(|(path, request)| (path.to_owned(), request)));
}
