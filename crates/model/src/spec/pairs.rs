//! Keys that are valid alone but not together, as far as this can be decided without a file system and the number of
//! ranks.

use super::error::{Problem, ProblemKind};
use super::layers::GivenKey;
use super::names::{CheckpointMode, Framework, Loader};
use super::typed::Spec;
use super::value::Origin;
use crate::shape::Element;

/// One conflict: whether it applies, the two keys, the message, and the help.
struct KeyConflict {
    broken: bool,
    keys: [&'static str; 2],
    what: String,
    help: &'static str,
}

/// Every conflict in the spec, at the place of the first key of its rule.
pub(super) fn check(spec: &Spec, given: &[GivenKey]) -> Vec<Problem> {
    let rules = [loaders(spec), images(spec), sizes(spec), files(spec), geometry(spec)];
    rules.into_iter().flatten().filter(|rule| rule.broken).map(|rule| problem(rule, given)).collect()
}

/// Two defaults can conflict as well (DLIO's llama_1t.yaml trains in pytorch and names no data set): ignoring that
/// would make a spec that cannot be read back after it was written.
fn problem(rule: KeyConflict, given: &[GivenKey]) -> Problem {
    let place = |key: &str| given.iter().find(|given| given.row.key == key).map(|given| given.node.place);
    let default = |key: &str| format!("note: '{key}' is not given, this is its default");
    let [first, second] = rule.keys;
    let at = place(first).or(place(second)).unwrap_or(Origin::Default);
    let mut problem = Problem::new(ProblemKind::Conflict, at, rule.what).key(first);
    match (place(first), place(second)) {
        (Some(_), Some(with)) => problem = problem.other("together with this", with),
        (Some(_), None) => problem = problem.help(default(second)),
        (None, Some(_)) => problem = problem.help(default(first)),
        (None, None) => problem = problem.help(default(first)).help(default(second)),
    }
    problem.help(format!("help: {}", rule.help))
}

fn loaders(spec: &Spec) -> Vec<KeyConflict> {
    let loader = spec.reader.data_loader;
    let foreign = match spec.framework {
        Framework::Tensorflow => loader == Loader::Pytorch,
        Framework::Pytorch => loader == Loader::Tensorflow,
    };
    let reads = spec.workflow.train || spec.workflow.evaluation;
    vec![
        KeyConflict {
            broken: foreign,
            keys: ["reader.data_loader", "framework"],
            what: format!("the {} loader does not run in {}", loader.name(), spec.framework.name()),
            help: "make framework and data_loader agree",
        },
        KeyConflict {
            broken: reads && loader == Loader::Pytorch && spec.dataset.format == "tfrecord",
            keys: ["dataset.format", "reader.data_loader"],
            what: "the pytorch loader cannot read tfrecord".into(),
            help: "choose another format, or the tensorflow framework and loader",
        },
    ]
}

fn images(spec: &Spec) -> Vec<KeyConflict> {
    let dataset = &spec.dataset;
    let format = &dataset.format;
    let image = matches!(format.as_str(), "jpeg" | "png");
    vec![
        KeyConflict {
            broken: image && dataset.record_element_type != Element::Uint8,
            keys: ["dataset.record_element_type", "dataset.format"],
            what: format!("a {format} image has uint8 elements, not {}", dataset.record_element_type.name()),
            help: "remove record_element_type",
        },
        KeyConflict {
            broken: image && dataset.record_dims.len() > 2,
            keys: ["dataset.record_dims", "dataset.format"],
            what: format!("a {format} image has two dimensions, not {}", dataset.record_dims.len()),
            help: "give height and width",
        },
        KeyConflict {
            broken: image && dataset.num_samples_per_file > 1,
            keys: ["dataset.num_samples_per_file", "dataset.format"],
            what: format!("a {format} file holds one sample, not {}", dataset.num_samples_per_file),
            help: "set num_samples_per_file to 1 and num_files_train to the number of samples",
        },
        KeyConflict {
            broken: !dataset.record_dims.is_empty() && dataset.record_length_bytes_stdev > 0.0,
            keys: ["dataset.record_length_bytes_stdev", "dataset.record_dims"],
            what: "samples with given dimensions cannot vary in size".into(),
            help: "remove record_dims or record_length_bytes_stdev",
        },
    ]
}

fn sizes(spec: &Spec) -> Vec<KeyConflict> {
    let dataset = &spec.dataset;
    let lognormal = dataset.size_law == "lognormal";
    vec![
        KeyConflict {
            broken: lognormal && dataset.record_length_bytes_stdev > 0.0,
            keys: ["dataset.record_length_bytes_stdev", "dataset.size_law"],
            what: "the lognormal law spreads sizes by size_sigma, not by a deviation in bytes".into(),
            help: "remove record_length_bytes_stdev, or choose another size_law",
        },
        KeyConflict {
            broken: !lognormal && dataset.size_sigma.is_some(),
            keys: ["dataset.size_sigma", "dataset.size_law"],
            what: format!("the {} law has no sigma", dataset.size_law),
            help: "set size_law to lognormal, or remove size_sigma",
        },
        KeyConflict {
            broken: lognormal && !dataset.record_dims.is_empty(),
            keys: ["dataset.size_law", "dataset.record_dims"],
            what: "samples with given dimensions cannot vary in size".into(),
            help: "remove record_dims or size_law",
        },
    ]
}

fn files(spec: &Spec) -> Vec<KeyConflict> {
    let dataset = &spec.dataset;
    let scattered = |folders: u64, files: u64, what: &str| {
        (files > 0 && folders > files, format!("{folders} subfolders are too many for {files} {what} files"))
    };
    let train = scattered(dataset.num_subfolders_train, dataset.num_files_train, "training");
    let eval = scattered(dataset.num_subfolders_eval, dataset.num_files_eval, "evaluation");
    let generated = dataset.num_files_generated.unwrap_or(dataset.num_files_train);
    vec![
        KeyConflict {
            broken: train.0,
            keys: ["dataset.num_subfolders_train", "dataset.num_files_train"],
            what: train.1,
            help: "use at most one subfolder per file",
        },
        KeyConflict {
            broken: eval.0,
            keys: ["dataset.num_subfolders_eval", "dataset.num_files_eval"],
            what: eval.1,
            help: "use at most one subfolder per file",
        },
        KeyConflict {
            broken: generated < dataset.num_files_train,
            keys: ["dataset.num_files_generated", "dataset.num_files_train"],
            what: format!(
                "{} files are to be read, but only {generated} are generated",
                dataset.num_files_train
            ),
            help: "num_files_generated must be at least num_files_train",
        },
        KeyConflict {
            broken: spec.workflow.train && dataset.num_files_train == 0,
            keys: ["dataset.num_files_train", "workflow.train"],
            what: "training needs at least one file".into(),
            help: "raise num_files_train or set workflow.train to false",
        },
    ]
}

fn geometry(spec: &Spec) -> Vec<KeyConflict> {
    let parallelism = &spec.model.parallelism;
    let (layers, pipeline) = (spec.model.num_layers, parallelism.pipeline);
    let checkpoint = &spec.checkpoint;
    let subset = checkpoint.mode == CheckpointMode::Subset;
    let (write, read) = (checkpoint.num_checkpoints_write, checkpoint.num_checkpoints_read);
    vec![
        KeyConflict {
            broken: layers > 0 && layers.unsigned_abs() < pipeline,
            keys: ["model.num_layers", "model.parallelism.pipeline"],
            what: format!("{layers} layers cannot fill {pipeline} pipeline stages"),
            help: "at most one pipeline stage per layer",
        },
        KeyConflict {
            broken: pipeline > 1 && parallelism.zero_stage == 3,
            keys: ["model.parallelism.zero_stage", "model.parallelism.pipeline"],
            what: "ZeRO stage 3 does not work with pipeline parallelism".into(),
            help: "set pipeline to 1 or zero_stage below 3",
        },
        KeyConflict {
            broken: parallelism.data > 0 && !subset,
            keys: ["model.parallelism.data", "checkpoint.mode"],
            what: "the number of ranks determines data parallelism unless checkpoint.mode is subset".into(),
            help: "remove parallelism.data or set checkpoint.mode to subset",
        },
        KeyConflict {
            broken: subset && parallelism.data < 1,
            keys: ["checkpoint.mode", "model.parallelism.data"],
            what: "a subset requires the data parallelism of the whole model".into(),
            help: "set model.parallelism.data",
        },
        KeyConflict {
            broken: write > 0 && read > write,
            keys: ["checkpoint.num_checkpoints_read", "checkpoint.num_checkpoints_write"],
            what: format!("{read} checkpoints are to be read, but only {write} are written"),
            help: "read at most as many as are written",
        },
    ]
}
