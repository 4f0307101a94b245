//! Rules on one checkpointing invocation, and on the two invocations of a run with a cache flush.

use super::document::{count, flag, shown};
use super::edition::{Division, Edition, LlamaModel, llama_model};
use super::finding::{FindingList, MlperfRule};
use super::leaf::MlperfLeaf;
use super::training::paths;
use super::{MlperfCase, UNKNOWN_MODEL};
use crate::units::counted;

const DATA_RATIO: MlperfRule = MlperfRule("4.3.1", "checkpointDataSizeRatio");
const FSYNC: MlperfRule = MlperfRule("4.3.2", "checkpointFsyncVerification");
const MODEL: MlperfRule = MlperfRule("4.3.3", "checkpointModelConfigurationReq");
const ACCELERATOR_MEMORY: MlperfRule = MlperfRule("4.3.4", "checkpointAggregateAcceleratorMemory");
const SUBSET: MlperfRule = MlperfRule("4.3.5", "checkpointSubsetRunValidation");
const PATHS: MlperfRule = MlperfRule("4.4.1", "checkpointPathArgs");
const FILE_SYSTEMS: MlperfRule = MlperfRule("4.4.2", "checkpointFilesystemCheck");
const CLOSED_PROCESSES: MlperfRule = MlperfRule("4.6.1", "checkpointClosedMpiProcesses");
const PER_HOST: MlperfRule = MlperfRule("4.6.2", "checkpointClosedAcceleratorsPerHost");
const CLOSED_KEYS: MlperfRule = MlperfRule("4.6.3", "checkpointClosedCheckpointParameters");
const OPEN_PROCESSES: MlperfRule = MlperfRule("4.6.4", "checkpointOpenSubmissionScaling");
const INVOCATIONS: MlperfRule = MlperfRule("4.7.1", "checkpointCacheFlushValidation");

/// Settings that a submitter, or mlpstorage itself, may change.
const ALLOWED: [&str; 11] = [
    "checkpoint.checkpoint_folder",
    "checkpoint.num_checkpoints_write",
    "checkpoint.num_checkpoints_read",
    "checkpoint.mode",
    "model.parallelism.data",
    "storage.storage_type",
    "storage.storage_root",
    "storage.storage_options.storage_library",
    "storage.storage_options.uri_scheme",
    "storage.storage_options.prefetch_window",
    "storage.s3_force_path_style",
];

/// How much a checkpoint may differ from mlpstorage's table: DLIO's own size is 14 % smaller for llama3-1t.
const SIZE_TOLERANCE: f64 = 0.2;
/// Checkpoints that are written, and that are read.
const CHECKPOINTS: u64 = 10;
/// Longest pause between writing and reading, in seconds.
const LONGEST_PAUSE: f64 = 30.0;

/// Checkpoints that an invocation wrote and read.
pub(super) fn counts(leaf: &MlperfLeaf) -> Option<(u64, u64)> {
    let of = |key: &str| {
        let setting = leaf.setting_count(&format!("checkpoint.{key}"));
        setting.or_else(|| leaf.noted(&format!("args.{key}")).and_then(count))
    };
    of("num_checkpoints_write").zip(of("num_checkpoints_read"))
}

fn is_subset(leaf: &MlperfLeaf) -> bool {
    let changed = leaf.change("checkpoint.mode");
    let mode = changed.or_else(|| leaf.setting("checkpoint.mode").map(|value| shown(Some(value))));
    mode.is_some_and(|mode| mode.trim_matches('\'') == "subset")
}

pub(super) fn check_invocation(leaf: &MlperfLeaf, case: &MlperfCase<'_>, findings: &mut FindingList) {
    let model = llama_model(case.model);
    configuration(leaf, case, model, findings);
    let fsync = leaf.setting("checkpoint.fsync");
    let holds = match (&leaf.config, &leaf.metadata) {
        (Err(_), Err(_)) => None,
        _ => Some(fsync.and_then(flag).unwrap_or(false)),
    };
    let evidence = format!("checkpoint.fsync is {}", shown(fsync));
    findings.judge(FSYNC, holds, evidence, "set checkpoint.fsync to true, as mlpstorage's workloads do");
    data_ratio(leaf, findings);
    accelerator_memory(leaf, case, findings);
    if let Some(model) = model {
        processes(leaf, case, model, findings);
    }
    per_host(leaf, case, findings);
    keys(leaf, case, findings);
    paths(leaf, [PATHS, FILE_SYSTEMS], "args.checkpoint_folder", findings);
}

/// The model is one of the table in the rules, with the dimensions that it has there; also in OPEN.
fn configuration(
    leaf: &MlperfLeaf,
    case: &MlperfCase<'_>,
    model: Option<&LlamaModel>,
    findings: &mut FindingList,
) {
    if case.model == UNKNOWN_MODEL {
        findings.unknown(MODEL, "the model is not in the documents");
        return;
    }
    let Some(model) = model else {
        let remedy = "use llama3-8b, llama3-70b, llama3-405b or llama3-1t";
        findings.judge(MODEL, Some(false), format!("the model is {}", case.model), remedy);
        return;
    };
    let required = [
        ("model.num_layers", model.layers),
        ("model.transformer.hidden_size", model.hidden),
        ("model.transformer.ffn_hidden_size", model.ffn_hidden),
        ("model.parallelism.tensor", model.tensor),
        ("model.parallelism.pipeline", model.pipeline),
        ("model.parallelism.zero_stage", model.zero_stage),
    ];
    if required.iter().all(|(key, _)| leaf.setting(key).is_none()) {
        findings.unknown(MODEL, format!("the dimensions of {} are not in the documents", model.name));
        return;
    }
    let mut faults: Vec<String> = required
        .iter()
        .filter(|(key, value)| leaf.setting_count(key) != Some(*value))
        .map(|(key, value)| format!("{key} is {}; {} has {value}", shown(leaf.setting(key)), model.name))
        .collect();
    let whole = (model.model_gib + model.optimizer_gib) as f64;
    if let Some(size) = leaf.metric("checkpoint_size_GB").filter(|_| !is_subset(leaf))
        && (size / whole - 1.0).abs() > SIZE_TOLERANCE
    {
        faults.push(format!("a checkpoint has {size:.2} GiB; that of {} has about {whole}", model.name));
    }
    let evidence = match faults.is_empty() {
        true => format!("the model is {}, with its dimensions and parallelism", model.name),
        false => faults.join("; "),
    };
    findings.judge(MODEL, Some(faults.is_empty()), evidence, "change no setting of the model");
}

/// Whether a client could read the checkpoints from its memory.
fn data_ratio(leaf: &MlperfLeaf, findings: &mut FindingList) {
    let facts =
        (leaf.metric("checkpoint_size_GB"), leaf.memory_gib(), leaf.said_count("num_hosts"), counts(leaf));
    let (Some(size), Some(memory), Some(hosts @ 1..), Some((writes, reads))) = facts else {
        findings
            .unknown(DATA_RATIO, "checkpoint size, memory or number of checkpoints is not in the documents");
        return;
    };
    let (written, limit) = (size * CHECKPOINTS as f64 / hosts as f64, 3.0 * memory / hosts as f64);
    let mut evidence = format!("a host writes {written:.1} GiB; 3 x its memory is {limit:.1} GiB");
    let is_split = writes == 0 || reads == 0;
    if is_split && written < limit {
        evidence.push_str("; there are two invocations, so that the cache can be cleared between them");
    }
    let holds = written >= limit || is_split;
    let remedy = "write and read in two invocations, and clear the client's cache between them";
    findings.advise(DATA_RATIO, Some(holds), evidence, remedy);
}

fn accelerator_memory(leaf: &MlperfLeaf, case: &MlperfCase<'_>, findings: &mut FindingList) {
    let accelerator = leaf.accelerator();
    let each = case.edition.accelerator_gib(accelerator.as_deref());
    match (leaf.metric("checkpoint_size_GB"), leaf.processes()) {
        (Some(size), Some(ranks)) => {
            let total = ranks as f64 * each;
            let evidence = format!(
                "{ranks} accelerators of {each} GiB have {total} GiB; a checkpoint has {size:.1} GiB"
            );
            findings.judge(ACCELERATOR_MEMORY, Some(total >= size), evidence, "use more processes");
        }
        _ => findings.unknown(ACCELERATOR_MEMORY, leaf.summary_says("metric.checkpoint_size_GB")),
    }
}

fn processes(leaf: &MlperfLeaf, case: &MlperfCase<'_>, model: &LlamaModel, findings: &mut FindingList) {
    let subset = is_subset(leaf);
    let Some(ranks) = leaf.processes() else {
        findings.unknown(CLOSED_PROCESSES, leaf.summary_says("num_accelerators"));
        return;
    };
    if subset {
        let is_smallest = model.name == "llama3-8b";
        let (holds, required) = match case.edition {
            Edition::V2 => (ranks == 8 && !is_smallest, "8 processes and a model other than llama3-8b"),
            Edition::V3 => (ranks == 8 && is_smallest, "8 processes and the model llama3-8b"),
        };
        let evidence = format!("a subset with {ranks} processes and {}; required are {required}", model.name);
        findings.judge(SUBSET, Some(holds), evidence, "run the whole checkpoint");
    }
    match case.division {
        Division::Closed => {
            let required = if subset && case.edition == Edition::V2 { 8 } else { model.processes };
            let evidence = format!("{ranks} processes; {} requires {required}", model.name);
            let remedy = format!("run with {required} processes, or submit to OPEN");
            findings.judge(CLOSED_PROCESSES, Some(ranks == required), evidence, &remedy);
        }
        Division::Open => {
            let group = model.group();
            let evidence = format!("{ranks} processes; {} requires a multiple of {group}", model.name);
            let holds = ranks > 0 && ranks % group == 0;
            findings.judge(OPEN_PROCESSES, Some(holds), evidence, "choose such a number");
        }
    }
}

fn per_host(leaf: &MlperfLeaf, case: &MlperfCase<'_>, findings: &mut FindingList) {
    if case.division == Division::Open {
        return;
    }
    match leaf.processes().zip(leaf.said_count("num_hosts")) {
        Some((ranks, hosts @ 1..)) => {
            let evidence =
                format!("{ranks} processes on {}; required are more than 4 on each", counted(hosts, "host"));
            findings.judge(PER_HOST, Some(ranks > 4 * hosts), evidence, "use fewer hosts, or more processes");
        }
        _ => findings.unknown(PER_HOST, leaf.summary_says("num_hosts")),
    }
}

fn keys(leaf: &MlperfLeaf, case: &MlperfCase<'_>, findings: &mut FindingList) {
    if case.division == Division::Open {
        return;
    }
    let Some(changes) = leaf.changes() else {
        findings.unknown(CLOSED_KEYS, "no document lists the settings that were changed");
        return;
    };
    let faults: Vec<&str> =
        changes.iter().map(|(key, _)| key.as_str()).filter(|key| !ALLOWED.contains(key)).collect();
    let evidence = match faults.is_empty() {
        true => format!("{} settings were changed, all of them may be", changes.len()),
        false => format!("{} may not be changed in CLOSED", faults.join(", ")),
    };
    findings.judge(
        CLOSED_KEYS,
        Some(faults.is_empty()),
        evidence,
        "run without these changes, or submit to OPEN",
    );
}

/// Ten writes and ten reads, in one invocation, or in two that follow each other.
pub(super) fn check_invocations(leaves: &[&MlperfLeaf], case: &MlperfCase<'_>, findings: &mut FindingList) {
    if case.division == Division::Open {
        return;
    }
    let required = "10 writes and 10 reads in one invocation, or 10/0 and then 0/10";
    let remedy = "run with 10 writes and 10 reads, or with 10/0 and at most 30 s later with 0/10";
    let Some(counts) = leaves.iter().map(|leaf| counts(leaf)).collect::<Option<Vec<_>>>() else {
        findings.unknown(INVOCATIONS, "the numbers of checkpoints are not in the documents");
        return;
    };
    let done: Vec<String> = counts.iter().map(|(writes, reads)| format!("{writes}/{reads}")).collect();
    let evidence = format!("writes/reads: {}; required are {required}", done.join(", "));
    match counts.as_slice() {
        [(CHECKPOINTS, CHECKPOINTS)] => findings.judge(INVOCATIONS, Some(true), evidence, remedy),
        [(CHECKPOINTS, 0), (0, CHECKPOINTS)] => {
            let times = leaves[0].invocation().zip(leaves[1].invocation());
            let Some(((_, end), (start, _))) = times else {
                findings.unknown(INVOCATIONS, "start and end are not local times without a zone");
                return;
            };
            let pause = end.until(start);
            let evidence = format!(
                "writes/reads: 10/0, 0/10; reading starts {pause:.1} s after writing; allowed are 0 to 30 s"
            );
            findings.judge(INVOCATIONS, Some((0.0..=LONGEST_PAUSE).contains(&pause)), evidence, remedy);
        }
        _ => findings.judge(INVOCATIONS, Some(false), evidence, remedy),
    }
}

/// One of two invocations: the other is not here.
pub(super) fn check_alone(leaf: &MlperfLeaf, case: &MlperfCase<'_>, findings: &mut FindingList) {
    match counts(leaf) {
        Some((CHECKPOINTS, 0) | (0, CHECKPOINTS)) if case.division == Division::Closed => {
            findings.unknown(INVOCATIONS, "this is one of two invocations; check the folder that has both");
        }
        _ => check_invocations(&[leaf], case, findings),
    }
}
