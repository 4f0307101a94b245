//! Properties of the spec as a whole: no given key is ignored, a written spec reads back the same, layers win in order,
//! and real workload files are read.

use std::collections::BTreeSet;

use super::check::check;
use super::schema::{KeyRow, KeyStatus, ValueKind};
use super::typed::Settings;
use super::*;
use crate::shape::Element;

/// An override as `--set` creates it.
fn argument(set: &str) -> Override {
    Override::hydra(set, format!("--set {set}"))
}

fn read_text(text: &str, overrides: &[&str]) -> ParsedWorkload {
    let overrides: Vec<Override> = overrides.iter().map(|set| argument(set)).collect();
    read(WorkloadSource { name: "w.yaml", text }, &overrides)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn said(read: &ParsedWorkload) -> Vec<String> {
    read.warnings.iter().map(Warning::to_string).collect()
}

/// A valid value of the key that is not its default, in YAML.
fn another(row: &KeyRow) -> &'static str {
    match (row.key, row.kind) {
        ("framework", _) => "pytorch",
        ("workflow.train", _) => "false",
        ("reader.data_loader", _) => "dali",
        ("dataset.format", _) => "npz",
        ("dataset.num_files_generated", _) => "9",
        ("dataset.num_subfolders_eval", _) => "1",
        ("checkpoint.mode", _) => "subset",
        ("model.num_layers", _) => "5",
        ("dataset.size_sigma", _) => "1.5",
        ("reader.transfer_size", _) => "262144",
        (key, _) if key.starts_with("compat.") => "dlio",
        (_, ValueKind::Flag | ValueKind::LooseFlag) => {
            if row.default == "true" {
                "false"
            } else {
                "true"
            }
        }
        ("checkpoint.chunk_size", _) => "8192",
        ("storage.part_size", _) => "16777216",
        (_, ValueKind::Integer(..)) => {
            if row.default == "2" {
                "3"
            } else {
                "2"
            }
        }
        (_, ValueKind::Number(_, max) | ValueKind::NumberOrZero(_, max)) => {
            if max <= 1.0 {
                "0.5"
            } else {
                "3.5"
            }
        }
        (_, ValueKind::Text | ValueKind::Secret) => "other/word",
        (_, ValueKind::Choice(words)) => words.iter().find(|word| **word != row.default).unwrap_or(&words[0]),
        (_, ValueKind::Shuffle) => "seed",
        (_, ValueKind::Integers(_)) => "[3, 4]",
        (_, ValueKind::Texts) => "[sda]",
        (_, ValueKind::Time) => "{type: uniform, min: 1, max: 2}",
        (_, ValueKind::Requests) => "[4096, rest]",
        (_, ValueKind::Map) => "{a: 1}",
        (_, ValueKind::Columns) => "[{name: a}]",
        (_, ValueKind::FlagOrCount) => "3",
        (_, ValueKind::Anything) => "{a: [1]}",
    }
}

/// An invalid value of the key.
fn refused(row: &KeyRow) -> &'static str {
    match row.kind {
        ValueKind::Text
        | ValueKind::Secret
        | ValueKind::Flag
        | ValueKind::LooseFlag
        | ValueKind::Integer(..)
        | ValueKind::Number(..) => "[[]]",
        ValueKind::NumberOrZero(..) => "1e-300",
        ValueKind::Integers(_) => "[x]",
        ValueKind::Texts => "[1]",
        ValueKind::Columns => "[{}]",
        _ => "17 and more",
    }
}

/// The key nested as in a file, with the other keys that it needs.
fn file_with(row: &KeyRow, value: &str) -> String {
    let mut text = row.key.rsplit('.').fold(value.to_owned(), |inner, part| format!("{{{part}: {inner}}}"));
    text = match row.key {
        "model.parallelism.data" => {
            format!("{{model: {{parallelism: {{data: {value}}}}}, checkpoint: {{mode: subset}}}}")
        }
        "checkpoint.mode" => {
            format!("{{checkpoint: {{mode: {value}}}, model: {{parallelism: {{data: 2}}}}}}")
        }
        "dataset.size_sigma" => format!("{{dataset: {{size_law: lognormal, size_sigma: {value}}}}}"),
        "framework" => format!("{{framework: {value}, dataset: {{format: npz}}}}"),
        _ => text,
    };
    text
}

fn base_of(row: &KeyRow) -> &'static str {
    match row.key {
        "framework" => "{dataset: {format: npz}}",
        "dataset.size_sigma" => "{dataset: {size_law: lognormal}}",
        "checkpoint.mode" => "{checkpoint: {mode: subset}, model: {parallelism: {data: 2}}}",
        _ => "{metric: {}}",
    }
}

#[test]
fn every_key_accepts_a_valid_value_and_rejects_an_invalid_one() {
    for row in rows() {
        let text = file_with(row, another(row));
        let accepted = read(WorkloadSource { name: "w.yaml", text: &text }, &[]);
        assert!(accepted.is_ok(), "{text}: {}", accepted.unwrap_err());
        let text = file_with(row, refused(row));
        let error = read(WorkloadSource { name: "w.yaml", text: &text }, &[]).unwrap_err().to_string();
        assert!(error.contains(row.key) && error.contains("--> w.yaml:1:"), "{text}: {error}");
    }
}

#[test]
fn every_key_has_its_effect_or_a_warning() {
    for row in rows() {
        if matches!(row.key, "checkpoint.mode") {
            continue; // Its other value needs a second key; `mistakes.txt` has it.
        }
        let (before, after) = (read_text(base_of(row), &[]), read_text(&file_with(row, another(row)), &[]));
        let is_spread = row.key.ends_with("_time_stdev");
        match row.status {
            KeyStatus::Used => assert_ne!(before.spec, after.spec, "{} has no effect", row.key),
            KeyStatus::WithCheckpoints | KeyStatus::OfObjects | KeyStatus::InDropIn(_) => {
                assert!(is_spread || before.spec != after.spec, "{} has no effect", row.key);
                assert!(said(&after).join("\n").contains(row.key), "{} is silent", row.key);
            }
            KeyStatus::Later(_) | KeyStatus::NoEffect(_) | KeyStatus::Unhonoured(_) => {
                assert_eq!(before.spec, after.spec, "{}", row.key);
                let quiet = row.quiet.contains(&another(row));
                assert_eq!(
                    quiet,
                    !said(&after).join("\n").contains(row.key),
                    "{} {:?}",
                    row.key,
                    said(&after)
                );
            }
        }
    }
}

fn has_effect(status: KeyStatus) -> bool {
    matches!(
        status,
        KeyStatus::Used | KeyStatus::WithCheckpoints | KeyStatus::OfObjects | KeyStatus::InDropIn(_)
    )
}

#[test]
fn the_spec_reads_exactly_the_keys_with_effect() {
    let all = rows().map(|row| (row.key, settle::default_setting(row).unwrap()));
    let mut settings = Settings(all.collect());
    settings.0.insert("reader.data_loader", check::Setting::Text("pytorch".into()));
    Spec::read(&mut settings).unwrap();
    let left: BTreeSet<&str> = settings.0.keys().copied().collect();
    let unused = |row: &&KeyRow| {
        !has_effect(row.status) || row.key.ends_with("_time_stdev") || row.key == table::compat::ALL
    };
    assert_eq!(left, rows().filter(unused).map(|row| row.key).collect());
}

#[test]
fn quiet_and_later_values_are_values_of_their_key() {
    for row in rows() {
        for word in row.quiet.iter().chain(row.later.0) {
            let root = yaml::parse(&format!("v: {word}")).unwrap();
            assert!(check(row, &root.entries()[0].node).is_ok(), "{} {word}", row.key);
        }
    }
}

#[test]
fn an_empty_workload_has_dlios_defaults() {
    let ParsedWorkload { spec, warnings, origins, unhonoured } = read_text("{train: }", &[]);
    assert!(warnings.is_empty() && origins.is_empty() && unhonoured.is_empty());
    assert_eq!(spec.framework, Framework::Tensorflow);
    assert_eq!(spec.reader.data_loader, Loader::Tensorflow);
    assert_eq!((spec.dataset.format.as_str(), spec.dataset.num_files_train), ("tfrecord", 8));
    assert_eq!(
        (spec.dataset.record_length_bytes, spec.dataset.record_element_type),
        (65536.0, Element::Uint8)
    );
    assert_eq!((spec.reader.batch_size, spec.reader.read_threads, spec.reader.prefetch_size), (1, 1, 2));
    assert_eq!((spec.reader.file_shuffle, spec.reader.sample_shuffle), (Shuffle::Off, Shuffle::Off));
    assert_eq!((spec.train.epochs, spec.train.seed, spec.train.total_training_steps), (1, 123, None));
    assert_eq!(spec.train.computation_time, Time::Constant(0.0));
    assert_eq!((spec.metric.au, spec.output.metric.exclude_start_steps), (0.9, 1));
    assert_eq!((spec.workflow.train, spec.workflow.generate_data), (true, false));
    assert_eq!((spec.storage.storage_type, spec.storage.storage_root.as_str()), (StorageType::LocalFs, "./"));
}

/// The shape of MLPerf's unet3d, of DLIO's result files and of a checkpoint workload.
#[test]
fn real_workload_files_are_read() {
    let unet3d = "model: {name: unet3d, type: cnn, model_size: 499153191}\nframework: pytorch\n\
        workflow: {generate_data: False, train: True, checkpoint: False}\n\
        dataset:\n  data_folder: data/unet3d/\n  format: npz\n  num_files_train: 168\n  num_samples_per_file: 1\n  \
        record_length_bytes: 146600628\n  record_length_bytes_stdev: 68341808\n  record_length_bytes_resize: 2097152\n\
        reader: {data_loader: pytorch, batch_size: 7, read_threads: 4, file_shuffle: seed, sample_shuffle: seed}\n\
        train: {epochs: 5, computation_time: 0.323}\n\
        checkpoint: {checkpoint_folder: checkpoints/unet3d, checkpoint_after_epoch: 5}\nmetric: {au: 0.90}\n";
    let read = read_text(unet3d, &[]);
    assert_eq!(read.spec.model.model_size_bytes, 499_153_191);
    assert_eq!(read.spec.train.computation_time, Time::Constant(0.323));
    assert_eq!(
        said(&read),
        [
            "'model.model_size' at w.yaml:1:34 is read as 'model.model_size_bytes'; current versions of DLIO ignore it",
            "3 keys have no effect: workflow.checkpoint is off\n  'model.model_size' at w.yaml:1:34\n  \
             'checkpoint.checkpoint_folder' at w.yaml:14:14\n  'checkpoint.checkpoint_after_epoch' at w.yaml:14:53",
            "'dataset.record_length_bytes_resize' at w.yaml:11:3 has no effect: it sizes the tensor that DLIO passes \
             to the framework; files and I/O do not depend on it",
        ]
    );
    let result = "workload:\n  framework: pytorch\n  dataset: {format: jpeg, num_samples_per_file: 1}\n  \
        reader: {multiprocessing_context: fork}\n  train: {computation_time: 0.0}\n";
    assert_eq!(said(&read_text(result, &[])).len(), 1);
    let checkpoint = "framework: pytorch\nmodel: {type: transformer, num_layers: 8, parallelism: {zero_stage: 3}}\n\
        workflow: {train: false, checkpoint: true}\ncheckpoint: {fsync: true, num_checkpoints_write: 3}\n";
    let read = read_text(checkpoint, &[]);
    assert_eq!(read.spec.model.parallelism.zero_stage, 3);
    assert_eq!(said(&read), Vec::<String>::new());
    let fraction =
        "dataset: {record_length_bytes: 114660.07, num_files_train: 4.0}\nreader: {sample_shuffle: off}";
    let read = read_text(fraction, &[]);
    assert_eq!((read.spec.dataset.record_length_bytes, read.spec.dataset.num_files_train), (114_660.07, 4));
}

/// Texts with a meaning in Hydra's notation, in YAML or in a shell.
const ODD_TEXTS: [&str; 12] = [
    "it's",
    "a b",
    " a ",
    "$HOME",
    "${x}",
    "größe/数据",
    "a=b",
    "[1,2]",
    "{a: b}",
    "true",
    "\"",
    "back\\slash\\",
];

#[test]
fn a_typed_text_is_taken_literally() {
    for text in ODD_TEXTS {
        let change = Override::new("checkpoint.checkpoint_folder", text, "--checkpoint-dir");
        let read = read(WorkloadSource { name: "w.yaml", text: "{train: }" }, std::slice::from_ref(&change))
            .unwrap();
        assert_eq!(read.spec.checkpoint.checkpoint_folder, text);
        assert_eq!(read.origins["checkpoint.checkpoint_folder"], "--checkpoint-dir");
        if !text.contains("${") {
            let again = read_text("{train: }", &[&change.to_string()]);
            assert_eq!(again.spec.checkpoint.checkpoint_folder, text, "{change}");
        }
    }
}

#[test]
fn typed_values_keep_their_type() {
    let changes = [
        Override::new("reader.drop_caches", true, "--drop-caches"),
        Override::new("reader.stall_timeout", 1.5, "--stall-timeout"),
        Override::new("reader.cache", "warm", "--cache"),
    ];
    let read = read(WorkloadSource { name: "w.yaml", text: "{train: }" }, &changes).unwrap();
    assert_eq!((read.spec.reader.drop_caches, read.spec.reader.stall_timeout), (true, 1.5));
    assert_eq!(read.spec.reader.cache, CacheState::Warm);
    let written = changes.map(|change| change.to_string());
    assert_eq!(written, ["reader.drop_caches=true", "reader.stall_timeout=1.5", "reader.cache=warm"]);
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    assert_eq!(read_text("{train: }", &written).spec, read.spec);
}

#[test]
fn errors_and_warnings_name_the_origin_of_an_override() {
    let refuse = |change: Override| {
        read(WorkloadSource { name: "w.yaml", text: "{train: }" }, &[change]).unwrap_err().to_string()
    };
    let error = refuse(Override::new("reader.cache", "hot", "--cache"));
    assert!(error.contains("'reader.cache'") && error.contains("\n  --> --cache\n"), "{error}");
    let error = refuse(Override::hydra("reader.cache=hot", "--over reader.cache=hot"));
    assert!(error.contains("\n  --> --over reader.cache=hot\n"), "{error}");
    let error = refuse(Override::new("reader.cash", "warm", "--cash"));
    assert!(error.contains("unknown key 'reader.cash'\n  --> --cash\n"), "{error}");
    let changes = [Override::new("checkpoint.mode_of_save", "async", "--save")];
    let read = read(WorkloadSource { name: "w.yaml", text: "{train: }" }, &changes).unwrap();
    assert_eq!(
        said(&read),
        ["'checkpoint.mode_of_save' at --save has no effect: workflow.checkpoint is off"]
    );
}

#[test]
fn a_flag_that_replaces_another_value_causes_a_warning() {
    let flag = |value: &str| Override::new("reader.cache", value, "--cache");
    let read = |changes: &[Override]| {
        let read = read(WorkloadSource { name: "w.yaml", text: "reader: {cache: as-is}" }, changes).unwrap();
        (read.spec.reader.cache, said(&read))
    };
    assert_eq!(read(&[flag("warm")]), (CacheState::Warm, vec![]));
    assert_eq!(read(&[argument("reader.cache=warm"), flag("warm")]), (CacheState::Warm, vec![]));
    assert_eq!(
        read(&[argument("reader.cache=cold"), argument("reader.cache=warm")]),
        (CacheState::Warm, vec![])
    );
    let (state, said) = read(&[argument("data_reader.cache=cold"), flag("warm")]);
    let expected = "'data_reader.cache' at --set data_reader.cache=cold has no effect: --cache overrides it";
    assert_eq!((state, said[0].as_str(), said.len()), (CacheState::Warm, expected, 1));
}

#[test]
fn keys_that_cannot_be_honoured_are_listed() {
    let read = read_text("data_reader: {reader_classname: a.B, data_loader_classname: a.C}", &[]);
    assert_eq!(read.unhonoured, BTreeSet::from(["reader.reader_classname"]));
    assert_eq!(read.warnings.len(), 1);
    let read = read_text("{train: }", &["reader.reader_classname=a.B", "~reader.reader_classname"]);
    assert_eq!((read.unhonoured, read.warnings), (BTreeSet::new(), vec![]));
}

#[test]
fn overrides_win_in_order_and_keep_their_origin() {
    let file =
        "train: {epochs: 2, computation_time: 0.5}\ndataset: {record_length: 100}\nreader: {batch_size: 2}";
    let sets = ["train.epochs=3", "++workload.train.epochs=4", "dataset.record_length_bytes=200"];
    let read = read_text(file, &sets);
    assert_eq!((read.spec.train.epochs, read.spec.dataset.record_length_bytes), (4, 200.0));
    assert_eq!(said(&read), Vec::<String>::new());
    assert_eq!(read.origins["train.epochs"], "--set ++workload.train.epochs=4");
    assert_eq!(read.origins["reader.batch_size"], "w.yaml:3:10");

    let table: [(&[&str], Time); 5] = [
        (&["train.computation_time.mean=1.0"], Time::Constant(1.0)),
        (
            &["+train.computation_time.mean=1", "train.computation_time.stdev=0.1"],
            Time::Normal { mean: 1.0, stdev: 0.1 },
        ),
        (&["train.computation_time={type:uniform,min:1,max:2}"], Time::Uniform { min: 1.0, max: 2.0 }),
        (&["train.computation_time_stdev=0.25"], Time::Normal { mean: 0.5, stdev: 0.25 }),
        (&["~train.computation_time"], Time::Constant(0.0)),
    ];
    for (sets, expected) in table {
        assert_eq!(read_text(file, sets).spec.train.computation_time, expected, "{sets:?}");
    }
    assert_eq!(read_text(file, &["~train"]).spec.train.epochs, 1);
    assert_eq!(read_text(file, &["~train.epochs=2"]).spec.train.epochs, 1);
    assert_eq!(read_text(file, &["train={epochs:7}"]).spec.train.epochs, 7);
    assert_eq!(read_text(file, &["data_reader.batch_size=8"]).spec.reader.batch_size, 8);
    let shuffled = read_text(file, &["reader.file_shuffle=off", "reader.sample_shuffle=random"]).spec.reader;
    assert_eq!((shuffled.file_shuffle, shuffled.sample_shuffle), (Shuffle::Off, Shuffle::Random));
    assert_eq!(read_text(file, &["dataset.record_dims=[3,4]"]).spec.dataset.record_dims, [3, 4]);
    assert_eq!(read_text(file, &["dataset.data_folder='/a,b'"]).spec.dataset.data_folder, "/a,b");
}

#[test]
fn warnings_name_key_place_and_reason() {
    let table = [
        ("reader: {read_threads: 0}", "'reader.read_threads' at w.yaml:1:10 is 0; one reader is used anyway"),
        (
            "storage: {storage_type: aistore}",
            "'storage.storage_type' at w.yaml:1:11 has no effect: this storage type is not supported: its protocol is \
             that of a Python library",
        ),
        (
            "reader: {data_loader: custom}",
            "'reader.data_loader' at w.yaml:1:10 has no effect: this loader cannot be emulated; \
             the framework's own loader is used",
        ),
        ("logging: {verbosity: INFO}", "'logging' at w.yaml:1:1 has no effect: DLIO itself never reads it"),
    ];
    for (text, expected) in table {
        assert_eq!(said(&read_text(text, &[])), [expected], "{text}");
    }
    for text in [
        "workflow: {checkpoint: False, debug: False}",
        "dataset: {compression: none, skip_listing: true}",
        "storage: {storage_type: local_fs}",
        "storage: {storage_type: s3, storage_options: {region: eu}}",
        "reader: {odirect: False, read_type: on_demand}",
        "profiling: {profiler: none}",
    ] {
        assert!(read_text(text, &[]).warnings.is_empty(), "{text}");
    }
}

#[test]
fn the_written_spec_reads_back_the_same() {
    // Secrets are not written.
    let shown = rows().filter(|row| row.kind != ValueKind::Secret);
    let mut texts: Vec<String> = shown.map(|row| file_with(row, another(row))).collect();
    texts.push(
        "{model: {name: 'yes'}, dataset: {data_folder: \"a\\\"b\\\\\\n\\u2028é #: x\", file_prefix: ''}}"
            .into(),
    );
    texts.push("{train: {computation_time: 1e-7}, metric: {au: 0.123456789012345}}".into());
    texts.push("{dataset: {parquet: {columns: [{name: 'a: b', dtype: int8, size: 3, read: false}]}}}".into());
    for text in texts {
        let first = read_text(&text, &[]).spec;
        let yaml = first.to_yaml();
        assert_eq!(read_text(&yaml, &[]).spec, first, "{yaml}");
    }
    let yaml = read_text("{}", &["train.epochs=2"]).spec.to_yaml();
    assert!(
        yaml.starts_with(
            "framework: tensorflow\nmodel:\n  name: default\nworkflow:\n  generate_data: false\n"
        )
    );
    assert!(yaml.contains("output:\n  metric:\n    exclude_start_steps: 1\n"), "{yaml}");
    assert!(!yaml.contains("checkpoint_folder"), "{yaml}");
}

proptest::proptest! {
    #[test]
    fn any_spec_reads_back_the_same(
        length in 1.0..1e12f64, time in 0.0..1e4f64, stdev in 0.0..10.0f64, files in 1..1_000_000_000u64,
        au in 0.0..1.0f64, folder in "[ -~é]{1,20}",
    ) {
        let mut spec = read_text("{train: }", &[]).spec;
        spec.dataset.record_length_bytes = length;
        spec.dataset.num_files_train = files;
        spec.dataset.data_folder = folder.replace('$', "_").replace("???", "?");
        spec.train.computation_time = Time::Normal { mean: time, stdev: stdev + 1e-9 };
        spec.metric.au = au;
        proptest::prop_assert_eq!(&read_text(&spec.to_yaml(), &[]).spec, &spec);
    }
}

#[test]
fn unknown_keys_can_be_reported_instead_of_refused() {
    let text =
        "dataset:\n  num_files_train: 4\n  colour: red\nreader:\n  read_thread: 2\nepochs: 3\nnew: {a: 1}\n";
    let source = WorkloadSource { name: "w.yaml", text };
    let changes = [Override::hydra("++workload.storage.s3_force=true", "++workload.storage.s3_force=true")];
    let read = read_with(source, &changes, UnknownKeys::Report).unwrap();
    assert_eq!(read.spec.dataset.num_files_train, 4);
    let mut said: Vec<String> = read.warnings.iter().map(Warning::to_string).collect();
    said.retain(|text| text.contains("is not known"));
    assert_eq!(said.len(), 5, "{said:#?}");
    assert_eq!(
        said[1],
        "'reader.read_thread' at w.yaml:5:3 has no effect: the key is not known; did you mean 'read_threads'?"
    );
    assert!(
        said[4].starts_with("'storage.s3_force' at ++workload.storage.s3_force=true has no effect"),
        "{}",
        said[4]
    );
    assert!(super::read(source, &changes).is_err());
    let wrong = WorkloadSource { name: "w.yaml", text: "reader:\n  read_thread: 2\n  batch_size: x\n" };
    assert!(read_with(wrong, &[], UnknownKeys::Report).is_err(), "other mistakes stay errors");
}
