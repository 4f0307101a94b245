//! Mistakes in workload files and flags, through the real program: each has its own message that names the place, the
//! exit code is that of a usage error, and nothing on disk changes. (`model` tests the complete texts; these tests
//! cover the path from the command line to the message, and that errors are reported before any I/O.)

use std::collections::BTreeMap;

use model::spec::{KeyRow, KeyStatus, ValueKind, rows};

use crate::util::Dir;

/// The commands that detect the mistake.
const ALL: &[&str] = &["plan", "run", "generate"];
const TRAINING: &[&str] = &["plan", "run"];
const RUN: &[&str] = &["run"];

struct Mistake {
    name: &'static str,
    text: &'static [u8],
    /// Flags in addition to the workload.
    flags: &'static [&'static str],
    commands: &'static [&'static str],
    /// What the message contains: what is wrong, where, and what to do.
    says: &'static [&'static str],
}

/// A mistake in a file.
const fn file(name: &'static str, text: &'static str, says: &'static [&'static str]) -> Mistake {
    Mistake { name, text: text.as_bytes(), flags: &[], commands: ALL, says }
}

/// A mistake in a flag, with a correct file of 10 samples.
const fn flag(name: &'static str, flags: &'static [&'static str], says: &'static [&'static str]) -> Mistake {
    Mistake { name, text: SOUND.as_bytes(), flags, commands: ALL, says }
}

const SOUND: &str = "\
framework: pytorch
dataset: {format: npz, data_folder: data, num_files_train: 10, record_length_bytes: 1000}
reader: {batch_size: 2}
";

const MISTAKES: &[Mistake] = &[
    file(
        "a misspelt key",
        "reader:\n  read_thread: 8\n",
        &[
            "unknown key 'reader.read_thread'",
            "w.yaml:2:3",
            "  read_thread: 8",
            "did you mean 'read_threads'?",
        ],
    ),
    file(
        "a misspelt section",
        "datset:\n  format: npz\n",
        &["unknown key 'datset'", "w.yaml:1:1", "'dataset'"],
    ),
    file(
        "a key in the wrong section",
        "dataset:\n  read_threads: 4\n",
        &["'dataset.read_threads' is in the wrong place", "w.yaml:2:3", "belongs under 'reader'"],
    ),
    file("a key at the top", "epochs: 4\n", &["'epochs' is in the wrong place", "w.yaml:1:1", "'train'"]),
    file(
        "a text for a number",
        "train:\n  epochs: five\n",
        &["'train.epochs' must be an integer, found the text 'five'", "w.yaml:2:11"],
    ),
    file(
        "a fraction for a count",
        "dataset: {num_files_train: 1.5}\n",
        &["'dataset.num_files_train' must be a whole number, found 1.5", "w.yaml:1:28"],
    ),
    file(
        "a boolean for a number",
        "reader:\n  batch_size: yes\n",
        &["'reader.batch_size' must be an integer, found the boolean true", "w.yaml:2:15"],
    ),
    file(
        "a number for a boolean",
        "workflow:\n  train: 1\n",
        &["'workflow.train' must be true or false", "w.yaml:2:10"],
    ),
    file(
        "a list for a section",
        "reader:\n  - batch_size: 4\n",
        &["'reader' is a section and needs keys, found a list", "w.yaml:2:3"],
    ),
    file(
        "a map for a number",
        "train:\n  epochs: {count: 5}\n",
        &["'train.epochs' must be an integer, found a map", "w.yaml:2:11"],
    ),
    file(
        "a negative size",
        "dataset:\n  record_length_bytes: -4096\n",
        &["'dataset.record_length_bytes' cannot be -4096", "w.yaml:2:24", "at least 1"],
    ),
    file(
        "not a number",
        "dataset:\n  record_length_bytes: .nan\n",
        &["'dataset.record_length_bytes' cannot be NaN", "w.yaml:2:24"],
    ),
    file("no batch", "reader:\n  batch_size: 0\n", &["'reader.batch_size' cannot be 0", "w.yaml:2:15"]),
    file("no epochs", "train: {epochs: 0}\n", &["'train.epochs' cannot be 0", "w.yaml:1:17"]),
    file("no value", "reader:\n  batch_size:\n", &["'reader.batch_size' has no value", "w.yaml:2:13"]),
    file("AU in percent", "metric:\n  au: 90\n", &["'metric.au' cannot be 90", "w.yaml:2:7", "from 0 to 1"]),
    file(
        "a key twice",
        "reader:\n  batch_size: 4\n  batch_size: 8\n",
        &["the key 'batch_size' is given twice", "w.yaml:3:3", "w.yaml:2:3"],
    ),
    file(
        "a key by two names",
        "dataset:\n  record_length: 4\n  record_length_bytes: 8\n",
        &["'dataset.record_length' and 'dataset.record_length_bytes' are the same key", "w.yaml:3:3"],
    ),
    file(
        "an unknown format",
        "dataset:\n  format: jpg\n",
        &["'dataset.format' cannot be 'jpg'", "w.yaml:2:11", "did you mean 'jpeg'?", "allowed: tfrecord"],
    ),
    file(
        "an unknown element type",
        "dataset:\n  record_element_type: floaty32\n",
        &["'dataset.record_element_type' cannot be 'floaty32'", "w.yaml:2:24", "float32"],
    ),
    file(
        "an unknown distribution",
        "train:\n  computation_time: {type: cauchy, mean: 1}\n",
        &["'cauchy' is not a distribution", "w.yaml:2:28", "uniform"],
    ),
    file(
        "a distribution without its parameter",
        "train:\n  computation_time: {type: gamma, shape: 2}\n",
        &["has the gamma distribution, but no 'scale'", "w.yaml:2:21"],
    ),
    file(
        "a negative time",
        "train:\n  computation_time: -1\n",
        &["'train.computation_time' cannot be -1", "w.yaml:2:21"],
    ),
    file(
        "two samples in a jpeg",
        "framework: pytorch\ndataset:\n  format: jpeg\n  num_samples_per_file: 2\n",
        &["a jpeg file holds one sample, not 2", "w.yaml:4:25", "w.yaml:3:11"],
    ),
    file(
        "a jpeg too small",
        "framework: pytorch\ndataset: {format: jpeg, record_length_bytes: 100, num_files_train: 4}\n",
        &["jpeg: a file of 100 bytes is too small", "the smallest has", "dataset.record_length_bytes"],
    ),
    file(
        "dimensions and a spread",
        "dataset:\n  record_dims: [8, 8]\n  record_length_bytes_stdev: 5\n",
        &["samples with given dimensions cannot vary in size", "w.yaml:3:30", "w.yaml:2:16"],
    ),
    file(
        "a loader of another framework",
        "framework: pytorch\ndataset: {format: npz}\nreader:\n  data_loader: tensorflow\n",
        &["the tensorflow loader does not run in pytorch", "w.yaml:4:16", "w.yaml:1:12"],
    ),
    file(
        "a format that the loader cannot read",
        "framework: pytorch\ndataset:\n  format: tfrecord\n",
        &["the pytorch loader cannot read tfrecord", "w.yaml:3:11"],
    ),
    file(
        "more sub-folders than files",
        "dataset:\n  num_files_train: 4\n  num_subfolders_train: 9\n",
        &["9 subfolders are too many for 4 training files", "w.yaml:3:25"],
    ),
    file(
        "fewer files generated than read",
        "dataset:\n  num_files_train: 9\n  num_files_generated: 8\n",
        &["9 files are to be read, but only 8 are generated", "w.yaml:3:24"],
    ),
    file(
        "no files",
        "dataset:\n  num_files_train: 0\n",
        &["training needs at least one file", "w.yaml:2:20"],
    ),
    file("a tab", "reader:\n\tbatch_size: 4\n", &["tabs", "w.yaml:2:2", "never with tabs"]),
    file("an unclosed bracket", "reader: {batch_size: 4\n", &["YAML syntax", "w.yaml:"]),
    file("an empty file", "", &["the workload file is empty", "w.yaml:1:1"]),
    file("a comment and nothing else", "# later\n", &["the workload file is empty", "# later"]),
    file("a word", "retinanet\n", &["a workload file is a map of sections", "w.yaml:1:1"]),
    file(
        "two documents",
        "train: {epochs: 1}\n---\ntrain: {epochs: 2}\n",
        &["one YAML document", "w.yaml:2:1"],
    ),
    file(
        "an interpolation",
        "dataset:\n  data_folder: ${HOME}/data\n",
        &["interpolations '${...}' are not supported", "w.yaml:2:16"],
    ),
    Mistake {
        name: "a binary file",
        text: b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe",
        flags: &[],
        commands: ALL,
        says: &["w.yaml is not a text file"],
    },
    Mistake {
        name: "more ranks than samples",
        text: SOUND.as_bytes(),
        flags: &["--ranks", "11"],
        commands: TRAINING,
        says: &["11 ranks x batch 2 needs 22 samples, but there are only 10", "--ranks"],
    },
    Mistake {
        name: "nothing left after exclusion",
        text: b"framework: pytorch\n\
            dataset: {format: npz, num_files_train: 5}\n\
            output: {metric: {exclude_start_steps: 3, exclude_end_steps: 2}}\n",
        flags: &[],
        commands: TRAINING,
        says: &["5 steps", "excludes 3 at the start and 2 at the end", "no step is left to measure"],
    },
    Mistake {
        name: "evaluation on nothing",
        text: SOUND.as_bytes(),
        flags: &["--set", "workflow.evaluation=true"],
        commands: TRAINING,
        says: &["dataset.num_files_eval is 0"],
    },
    Mistake {
        name: "an evaluation batch beyond the evaluation files",
        text: SOUND.as_bytes(),
        flags: &[
            "--set",
            "workflow.evaluation=true",
            "--set",
            "dataset.num_files_eval=3",
            "--set",
            "reader.batch_size_eval=4",
        ],
        commands: TRAINING,
        says: &["eval: one step of 1 ranks x batch 4 needs 4 samples, but there are only 3"],
    },
    Mistake {
        name: "a workload that does not train",
        text: SOUND.as_bytes(),
        flags: &["--set", "workflow.train=false"],
        commands: TRAINING,
        says: &["does not train", "workflow.train is false"],
    },
    flag(
        "a data folder that is a file",
        &["--data-dir", "afile"],
        &["data folder", "afile is a file, not a folder"],
    ),
    flag(
        "a data folder below a file",
        &["--data-dir", "afile/x"],
        &["data folder", "afile/x is below a file"],
    ),
    flag(
        "a data folder in the workload that is a file",
        &["--set", "dataset.data_folder=afile"],
        &["data folder ./afile is a file"],
    ),
    Mistake {
        name: "a results folder that is a file",
        text: SOUND.as_bytes(),
        flags: &["--results-dir", "afile"],
        commands: RUN,
        says: &["results folder afile is a file, not a folder"],
    },
    flag(
        "an override of an unknown key",
        &["--set", "reader.batchsize=4"],
        &["unknown key 'reader.batchsize'", "--set reader.batchsize=4", "did you mean 'batch_size'?"],
    ),
    flag(
        "an override without a value",
        &["--set", "reader.batch_size"],
        &["no '='", "--set reader.batch_size"],
    ),
    flag(
        "an override with a wrong type",
        &["--set", "reader.batch_size=[1,2]"],
        &["'reader.batch_size' must be an integer, found a list", "--set reader.batch_size=[1,2]"],
    ),
    flag(
        "an override that is impossible",
        &["--set", "train.epochs=-3"],
        &["'train.epochs' cannot be -3", "--set train.epochs=-3"],
    ),
    flag(
        "an override against the file",
        &["--set", "framework=tensorflow", "--set", "reader.data_loader=pytorch"],
        &["the pytorch loader does not run in tensorflow", "--set reader.data_loader=pytorch"],
    ),
    flag(
        "more samples than can be ordered",
        &["--set", "dataset.num_files_train=9007199254740992"],
        &["9007199254740992 samples are more than feedline can order", "lower dataset.num_files_train"],
    ),
    flag(
        "more epochs than can be recorded",
        &["--set", "train.epochs=1e12"],
        &["'train.epochs' cannot be 1000000000000", "from 1 to 1000000"],
    ),
    flag(
        "a copy that never ends",
        &["--set", "train.device_copy_rate=1e-300"],
        &["'train.device_copy_rate' cannot be 1e-300", "0, or a number from 1e-6 to 1000000"],
    ),
    flag(
        "more bytes than there are addresses",
        &[
            "--set",
            "dataset.num_files_generated=9007199254740992",
            "--set",
            "dataset.record_length_bytes=1e6",
        ],
        &["more than the maximum of 2^64", "num_files_generated"],
    ),
];

#[test]
fn every_mistake_has_its_message_and_nothing_is_changed() {
    assert!(MISTAKES.len() >= 50, "{} mistakes", MISTAKES.len());
    let mut messages: BTreeMap<String, &str> = BTreeMap::new();
    for mistake in MISTAKES {
        for command in mistake.commands {
            if !mistake.flags.contains(&"--results-dir") && *command == "run" {
                // Even with --generate, a run creates nothing before the workload is checked.
                message_of(mistake, &["run", "w.yaml", "--generate"]);
            }
            let message = message_of(mistake, &[command, "w.yaml"]);
            if *command == mistake.commands[0] {
                let other = messages.insert(message.clone(), mistake.name);
                assert_eq!(
                    other, None,
                    "'{}' has the same message as another mistake:\n{message}",
                    mistake.name
                );
            }
        }
    }
}

/// Runs a command with a mistake and returns its message.
fn message_of(mistake: &Mistake, command: &[&str]) -> String {
    let dir = Dir::new();
    dir.write("w.yaml", mistake.text);
    dir.write("afile", "not a folder");
    let before = dir.listing();
    let done = dir.feedline(command).args(mistake.flags).run().exits(2).one_error();
    for text in mistake.says {
        if !done.stderr.contains(text) {
            done.fail(&format!("{}: the message should contain: {text}", mistake.name));
        }
    }
    if !done.stdout.is_empty() || dir.listing() != before {
        done.fail(&format!("{}: something was written", mistake.name));
    }
    done.stderr
}

#[test]
fn several_mistakes_are_reported_together() {
    let dir = Dir::new();
    dir.write("w.yaml", "reader:\n  batch_sise: 4\n  read_threads: -1\ntrain: {epochs: none}\n");
    let done = dir.feedline(&["run", "w.yaml", "--set", "metric.au=2"]).run().exits(2);
    for text in ["batch_sise", "w.yaml:2:3", "w.yaml:3:17", "w.yaml:4:17", "--set metric.au=2", "4 problems"]
    {
        assert!(done.stderr.contains(text), "{text} is missing in:\n{}", done.stderr);
    }
}

#[test]
fn an_error_in_a_built_in_workload_names_the_override() {
    let dir = Dir::new();
    dir.feedline(&["plan", "unet3d_h100"])
        .set(&["reader.read_threds=2"])
        .run()
        .exits(2)
        .says("--set reader.read_threds=2")
        .says("did you mean 'read_threads'?");
}

/// A training job with checkpoints, so that most keys have an effect.
const WITH_CHECKPOINTS: &str = "\
framework: pytorch
model: {name: tiny, type: transformer, num_layers: 2}
workflow: {checkpoint: true, evaluation: true}
dataset: {format: npz, data_folder: data, num_files_train: 24, num_files_eval: 8, record_length_bytes: 4096}
reader: {batch_size: 2, retain: batch}
";

/// Values of a numeric key: at the ends of its range, and outside of it.
fn extremes(row: &KeyRow) -> (Vec<String>, Vec<String>) {
    const MOST: i64 = 1 << 53;
    let texts = |numbers: &[f64]| numbers.iter().map(|number| format!("{number:?}")).collect::<Vec<_>>();
    match row.kind {
        ValueKind::Integer(min, max) => {
            let (within, outside) = ([min, max], [min - 1, max + 1]);
            (
                within.map(|number| number.to_string()).to_vec(),
                outside.map(|number| number.to_string()).to_vec(),
            )
        }
        ValueKind::Number(min, max) => (texts(&[min, max]), texts(&[min - 1.0, max * 2.0])),
        ValueKind::NumberOrZero(min, max) => {
            (texts(&[0.0, min, max]), texts(&[-min, 1e-300, min / 2.0, max * 2.0]))
        }
        ValueKind::Time => (texts(&[0.0, 1e-9, 315_360_000.0]), texts(&[-1.0, 1e-300, 1e12])),
        ValueKind::Integers(min) => {
            let outside = [format!("[{}]", min - 1), format!("[{}]", MOST + 1)];
            (vec![format!("[{MOST}]"), format!("[{MOST},{MOST}]")], outside.to_vec())
        }
        _ => (Vec::new(), Vec::new()),
    }
}

#[test]
fn every_number_in_its_range_gives_a_plan_or_an_error_that_names_its_key() {
    let dir = Dir::new();
    dir.write("w.yaml", WITH_CHECKPOINTS);
    let plan = |key: &str, value: &str| {
        dir.feedline(&["plan", "w.yaml", "--quiet"]).set(&[&format!("{key}={value}")]).run()
    };
    let used = rows().filter(|row| matches!(row.status, KeyStatus::Used | KeyStatus::WithCheckpoints));
    for row in used {
        let (within, outside) = extremes(row);
        for value in within {
            let done = plan(row.key, &value);
            if done.code() != Some(0) {
                let (section, name) = row.key.rsplit_once('.').unwrap();
                let named = if section.contains('.') && !done.stderr.contains(name) { section } else { name };
                done.exits(2).one_error().says(named);
            }
        }
        for value in outside {
            plan(row.key, &value).exits(2).one_error().says(&format!("'{}' cannot be ", row.key));
        }
    }
}
