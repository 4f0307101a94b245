//! Rules on one training run, and on the data generation before it.

use std::path::Path;

use serde_json::Value;

use super::MlperfCase;
use super::document::{flag, number, shown};
use super::edition::Division;
use super::finding::{FindingList, MlperfRule};
use super::leaf::MlperfLeaf;
use super::size::{SizeInput, TrainingSize};
use crate::units::counted;

const DATASET_SIZE: MlperfRule = MlperfRule("3.1.2", "trainingRecalculateDatasetSize");
const DATAGEN_SIZE: MlperfRule = MlperfRule("3.2.1", "trainingDatagenMinimumSize");
const RUN_COUNTS: MlperfRule = MlperfRule("3.3.1", "trainingRunDataMatchesDatasize");
const UTILIZATION: MlperfRule = MlperfRule("3.3.2", "trainingAcceleratorUtilizationCheck");
const FEW: MlperfRule = MlperfRule("3.3.3", "trainingSingleHostSimulatedAccelerators");
const ONE_CLIENT: MlperfRule = MlperfRule("3.3.4", "trainingSingleHostClientLimit");
const EVEN: MlperfRule = MlperfRule("3.3.6", "trainingIdenticalAcceleratorsPerNode");
const PATHS: MlperfRule = MlperfRule("3.4.1", "trainingMlpstoragePathArgs");
const FILE_SYSTEMS: MlperfRule = MlperfRule("3.4.2", "trainingMlpstorageFilesystemCheck");
const CLOSED_KEYS: MlperfRule = MlperfRule("3.6.2", "trainingClosedSubmissionParameters");
const OPEN_KEYS: MlperfRule = MlperfRule("3.6.3", "trainingOpenSubmissionParameters");

/// Settings that may be changed in CLOSED.
const CLOSED_ALLOWED: [&str; 12] = [
    "dataset.num_files_train",
    "dataset.num_subfolders_train",
    "dataset.data_folder",
    "reader.read_threads",
    "reader.computation_threads",
    "reader.transfer_size",
    "reader.prefetch_size",
    "reader.odirect",
    "checkpoint.checkpoint_folder",
    "storage.storage_root",
    "storage.storage_type",
    "storage.storage_options.prefetch_window",
];
/// Settings that may also be changed in OPEN.
const OPEN_ALLOWED: [&str; 4] =
    ["framework", "dataset.format", "dataset.num_samples_per_file", "reader.data_loader"];
/// Settings that mlpstorage changes by itself.
const INJECTED: [&str; 7] = [
    "dataset.skip_listing",
    "dataset.listing_validation_interval",
    "dataset.num_files_generated",
    "dataset.total_disk_bytes",
    "storage.storage_options.storage_library",
    "storage.storage_options.uri_scheme",
    "storage.s3_force_path_style",
];

/// The smallest data set for a run, by its own documents.
pub(super) fn required(leaf: &MlperfLeaf, case: &MlperfCase<'_>) -> Result<TrainingSize, String> {
    let missing = |what: &str| format!("{what} is not in the documents");
    let samples_per_file = leaf
        .said_count("num_samples_per_file")
        .or_else(|| leaf.setting_count("dataset.num_samples_per_file"))
        .ok_or_else(|| missing("num_samples_per_file"))?;
    let record = leaf.setting("dataset.record_length_bytes").and_then(number);
    let record = record.ok_or_else(|| missing("dataset.record_length_bytes"))?;
    let memory = leaf.memory_gib().ok_or_else(|| missing("host_memory_GB, above 0 for each host,"))?;
    let input = SizeInput {
        accelerators: leaf.processes().ok_or_else(|| missing("num_accelerators"))?,
        batch: leaf.setting_count("reader.batch_size").ok_or_else(|| missing("reader.batch_size"))?,
        samples_per_file,
        file_bytes: samples_per_file as f64 * record,
        // A cast from float saturates.
        memory_bytes: (memory * (1u64 << 30) as f64) as u128,
    };
    Ok(TrainingSize::new(&input, case.edition.rounding()))
}

pub(super) fn check_run(leaf: &MlperfLeaf, case: &MlperfCase<'_>, findings: &mut FindingList) {
    size(leaf, case, findings);
    utilization(leaf, case, findings);
    hosts(leaf, findings);
    paths(leaf, [PATHS, FILE_SYSTEMS], "args.data_dir", findings);
    keys(leaf, case, findings);
}

fn size(leaf: &MlperfLeaf, case: &MlperfCase<'_>, findings: &mut FindingList) {
    let files = leaf.said_count("num_files_train");
    match (files, required(leaf, case)) {
        (Some(files), Ok(size)) => {
            let evidence = format!(
                "num_files_train is {files}; required are {} (500 steps: {}, 5 x memory: {})",
                size.files, size.floors.steps_floor_files, size.floors.memory_floor_files
            );
            let remedy = format!("generate at least {} files, and run with that many", size.files);
            findings.judge(DATASET_SIZE, Some(files >= size.files), evidence, &remedy);
        }
        (None, _) => findings.unknown(DATASET_SIZE, leaf.summary_says("num_files_train")),
        (_, Err(why)) => findings.unknown(DATASET_SIZE, why),
    }
}

fn utilization(leaf: &MlperfLeaf, case: &MlperfCase<'_>, findings: &mut FindingList) {
    let mean = leaf.metric("train_au_mean_percentage");
    let verdict = leaf.said("metric.train_au_meet_expectation").and_then(Value::as_str);
    let floor = case.edition.utilization_floor(case.model);
    let required = floor.map_or_else(|| "unknown for this model".to_owned(), |floor| format!("{floor} %"));
    let evidence = format!(
        "{}; train_au_meet_expectation is {}; required is {required}",
        leaf.summary_says("metric.train_au_mean_percentage"),
        shown(leaf.said("metric.train_au_meet_expectation")),
    );
    let holds = match (mean, verdict, floor) {
        (_, Some(verdict), _) if verdict != "success" => Some(false),
        (Some(mean), _, Some(floor)) if mean < floor => Some(false),
        (Some(_), Some(_), Some(_)) => Some(true),
        _ => None,
    };
    findings.judge(UTILIZATION, holds, evidence, "run with fewer accelerators, or make the storage faster");
}

fn hosts(leaf: &MlperfLeaf, findings: &mut FindingList) {
    let (ranks, hosts) = (leaf.processes(), leaf.said_count("num_hosts"));
    let both = ranks.zip(hosts);
    let evidence = match both {
        Some((ranks, hosts)) => format!("{} on {}", counted(ranks, "accelerator"), counted(hosts, "host")),
        None => leaf.summary_says(if ranks.is_none() { "num_accelerators" } else { "num_hosts" }),
    };
    let few = both.map(|(ranks, hosts)| hosts != 1 || ranks >= 4);
    findings.advise(FEW, few, evidence.clone(), "a single host should emulate at least 4 accelerators");
    let even = both.map(|(ranks, hosts)| hosts > 0 && ranks % hosts.max(1) == 0);
    findings.judge(EVEN, even, evidence, "use the same number of accelerators on every host");
    let listed = leaf.noted("args.hosts").and_then(Value::as_array).map(Vec::len);
    match (hosts, listed) {
        (Some(hosts), Some(listed)) => {
            let holds = hosts != 1 || listed <= 1;
            let evidence = format!("num_hosts is {hosts}; mlpstorage was started with {listed} hosts");
            findings.judge(
                ONE_CLIENT,
                Some(holds),
                evidence,
                "use exactly one client, or run on all of them",
            );
        }
        _ => findings
            .unknown(ONE_CLIENT, "the hosts that mlpstorage was started with are not in the documents"),
    }
}

/// Data and results must be in different places, on different file systems.
pub(super) fn paths(
    leaf: &MlperfLeaf,
    [places, file_systems]: [MlperfRule; 2],
    key: &str,
    findings: &mut FindingList,
) {
    let text = |path| leaf.noted(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    match (leaf.noted("args"), text(key), text("args.results_dir")) {
        (None, ..) => findings.unknown(places, "mlpstorage's arguments are not in the documents"),
        (_, data, results) => {
            let evidence = format!(
                "{key} is {}, args.results_dir is {}",
                shown(leaf.noted(key)),
                shown(leaf.noted("args.results_dir"))
            );
            // Paths are equal by their parts: a trailing slash makes no difference.
            let holds =
                data.zip(results).is_some_and(|(data, results)| Path::new(data) != Path::new(results));
            findings.judge(places, Some(holds), evidence, "give mlpstorage two different folders");
        }
    }
    let same = leaf.separation.as_ref().ok().and_then(|tree| tree.get("same_filesystem")).and_then(flag);
    let evidence = match same {
        Some(same) => format!("fs_separation.json: same_filesystem is {same}"),
        None => "there is no fs_separation.json with same_filesystem".to_owned(),
    };
    let remedy = "write the results to another file system than the one under test";
    findings.judge(file_systems, same.map(|same| !same), evidence, remedy);
}

fn keys(leaf: &MlperfLeaf, case: &MlperfCase<'_>, findings: &mut FindingList) {
    let rule = if case.division == Division::Closed { CLOSED_KEYS } else { OPEN_KEYS };
    let Some(changes) = leaf.changes() else {
        findings.unknown(rule, "no document lists the settings that were changed");
        return;
    };
    let faults: Vec<String> = changes.iter().filter_map(|(key, value)| refusal(key, value, case)).collect();
    let evidence = match faults.is_empty() {
        true => format!("{} settings were changed, all of them may be", changes.len()),
        false => faults.join("; "),
    };
    let open = |(key, _): &(String, String)| OPEN_ALLOWED.contains(&key.as_str());
    let remedy = match case.division {
        Division::Closed if changes.iter().any(open) => "run without these changes, or submit to OPEN",
        _ => "run without these changes",
    };
    findings.judge(rule, Some(faults.is_empty()), evidence, remedy);
}

/// Why a change is not allowed; `None`: it is.
fn refusal(key: &str, value: &str, case: &MlperfCase<'_>) -> Option<String> {
    if INJECTED.contains(&key) {
        return None;
    }
    let closed = CLOSED_ALLOWED.contains(&key);
    let open = case.division == Division::Open && OPEN_ALLOWED.contains(&key);
    match key {
        "reader.odirect" if case.model != "unet3d" && value.eq_ignore_ascii_case("true") => {
            Some(format!("{key} may only be changed for unet3d"))
        }
        "reader.prefetch_size" if !["0", "1", "2"].contains(&value) => {
            Some(format!("{key} is {value}; allowed are 0, 1 and 2"))
        }
        _ if closed || open => None,
        _ => Some(format!("{key} may not be changed in {}", case.division.name().to_ascii_uppercase())),
    }
}

/// Rules on generation and run together: the run may use fewer files than were generated, in the same sub-folders.
pub(super) fn check_generated(
    generated: &MlperfLeaf,
    runs: &[&MlperfLeaf],
    case: &MlperfCase<'_>,
    findings: &mut FindingList,
) {
    let files = generated.setting_count("dataset.num_files_train");
    let folders = |leaf: &MlperfLeaf| leaf.setting_count("dataset.num_subfolders_train").unwrap_or(0);
    for leaf in runs {
        let name = leaf.name();
        let used = leaf.said_count("num_files_train");
        let (Some(files), Some(used)) = (files, used) else {
            findings.unknown(DATAGEN_SIZE, format!("{name}: the numbers of files are not in the documents"));
            continue;
        };
        match required(leaf, case) {
            Ok(size) => {
                let evidence = format!("{name}: {files} files were generated; required are {}", size.files);
                let remedy = "generate at least as many files as are required";
                findings.judge(DATAGEN_SIZE, Some(files >= size.files), evidence, remedy);
            }
            Err(why) => findings.unknown(DATAGEN_SIZE, format!("{name}: {why}")),
        }
        let (of_run, of_datagen) = (folders(leaf), folders(generated));
        let evidence = format!(
            "{name}: {used} files in {of_run} sub-folders are read; {files} files in {of_datagen} sub-folders were \
             generated"
        );
        let holds = used <= files && of_run == of_datagen;
        let remedy = "read at most the generated files, with the same dataset.num_subfolders_train";
        findings.judge(RUN_COUNTS, Some(holds), evidence, remedy);
    }
}

/// Without the data generation, only the presence of the counts can be checked.
pub(super) fn check_counts(leaf: &MlperfLeaf, findings: &mut FindingList) {
    let counts = ["num_files_train", "num_files_eval"].map(|key| leaf.said_count(key));
    let evidence = format!(
        "{}, num_files_eval is {}",
        leaf.summary_says("num_files_train"),
        shown(leaf.said("num_files_eval"))
    );
    let holds = match leaf.summary {
        Ok(_) => Some(counts.iter().all(Option::is_some)),
        Err(_) => None,
    };
    findings.judge(RUN_COUNTS, holds, evidence, "run again with a version of DLIO that writes both");
}
