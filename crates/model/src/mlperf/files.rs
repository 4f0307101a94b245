//! Rules on the files of one result folder.

use super::finding::{FindingList, MlperfRule};
use super::leaf::{LeafKind, MlperfLeaf};

const MADE_BY: MlperfRule = MlperfRule("1.1", "mlpstorageGeneratesHierarchy");
const ONE_SUMMARY: MlperfRule = MlperfRule("leaf", "oneSummary");
const ONE_METADATA: MlperfRule = MlperfRule("leaf", "oneMetadataFile");
const VERDICT: MlperfRule = MlperfRule("feedline", "verdict");
const VERIFICATION: MlperfRule = MlperfRule("mlpstorage", "verification");

const CONFIG_FILES: [&str; 3] = ["config.yaml", "hydra.yaml", "overrides.yaml"];

/// The rules on files and on `dlio_config` for a kind of result.
fn rules(kind: LeafKind) -> Option<(MlperfRule, MlperfRule)> {
    match kind {
        LeafKind::Datasize => None,
        LeafKind::Datagen => {
            Some((MlperfRule("2.1.14", "datagenFiles"), MlperfRule("2.1.15", "datagenDlioConfig")))
        }
        LeafKind::Run => Some((MlperfRule("2.1.19", "runFiles"), MlperfRule("2.1.20", "runDlioConfig"))),
        LeafKind::Checkpointing => Some((
            MlperfRule("2.1.25", "checkpointingFiles"),
            MlperfRule("2.1.26", "checkpointingDlioConfig"),
        )),
    }
}

/// Endings of the files that must exist next to summary.json.
fn required(kind: LeafKind) -> &'static [&'static str] {
    match kind {
        LeafKind::Datasize => &[],
        LeafKind::Datagen => {
            &["training_datagen.stdout.log", "training_datagen.stderr.log", "dlio.log", "_metadata.json"]
        }
        LeafKind::Run => &[
            "training_run.stdout.log",
            "training_run.stderr.log",
            "output.json",
            "per_epoch_stats.json",
            "dlio.log",
        ],
        LeafKind::Checkpointing => &[
            "checkpointing_run.stdout.log",
            "checkpointing_run.stderr.log",
            "output.json",
            "per_epoch_stats.json",
            "dlio.log",
        ],
    }
}

/// All of them for one folder.
pub(super) fn check(leaf: &MlperfLeaf, findings: &mut FindingList) {
    if let Some((files, config)) = rules(leaf.kind) {
        existing(leaf, files, findings);
        configuration(leaf, config, findings);
    }
    names(leaf, findings);
    origin(leaf, findings);
}

fn existing(leaf: &MlperfLeaf, rule: MlperfRule, findings: &mut FindingList) {
    let has = |end: &str| leaf.listing.files.iter().any(|name| name.ends_with(end));
    let mut missing: Vec<String> =
        required(leaf.kind).iter().filter(|end| !has(end)).map(|end| format!("{end} is missing")).collect();
    if !leaf.listing.folders.iter().any(|name| name == "dlio_config") {
        missing.push("dlio_config/ is missing".to_owned());
    }
    let needs_summary = matches!(leaf.kind, LeafKind::Run | LeafKind::Checkpointing);
    if let (true, Err(why)) = (needs_summary, &leaf.summary) {
        missing.push(format!("summary.json {why}"));
    }
    let evidence = if missing.is_empty() { "all files exist".to_owned() } else { missing.join("; ") };
    let remedy = "run the benchmark again; the logs are written by mlpstorage, which must start it";
    findings.judge(rule, Some(missing.is_empty()), evidence, remedy);
}

fn configuration(leaf: &MlperfLeaf, rule: MlperfRule, findings: &mut FindingList) {
    let Some(entries) = &leaf.listing.config_entries else {
        let (evidence, remedy) = match leaf.listing.folders.iter().any(|name| name == ".hydra") {
            true => (
                "dlio_config/ is missing; the configuration is in .hydra/",
                "start DLIO with mlpstorage, or with hydra.output_subdir=dlio_config",
            ),
            false => ("dlio_config/ is missing", "run the benchmark again, and do not rename its folders"),
        };
        findings.judge(rule, Some(false), evidence.to_owned(), remedy);
        return;
    };
    let missing = CONFIG_FILES.iter().filter(|name| !entries.iter().any(|entry| entry == *name));
    let extra = entries.iter().filter(|entry| !CONFIG_FILES.contains(&entry.as_str()));
    let mut faults: Vec<String> = missing.map(|name| format!("dlio_config/{name} is missing")).collect();
    faults.extend(extra.map(|name| format!("dlio_config/{name} does not belong there")));
    let unusable =
        [("config.yaml", leaf.config.as_ref().err()), ("overrides.yaml", leaf.overrides.as_ref().err())];
    for (name, why) in unusable.into_iter().filter(|(name, _)| entries.iter().any(|entry| entry == name)) {
        faults.extend(why.map(|why| format!("dlio_config/{name} {why}")));
    }
    // DLIO alone has a default; mlpstorage always chooses.
    if leaf.metadata.is_ok() && leaf.overrides.is_ok() && leaf.chosen().next().is_none() {
        faults.push("dlio_config/overrides.yaml has no entry workload=, which mlpstorage writes".to_owned());
    }
    let evidence = match faults.is_empty() {
        true => format!("dlio_config/ has exactly {}", CONFIG_FILES.join(", ")),
        false => faults.join("; "),
    };
    findings.judge(rule, Some(faults.is_empty()), evidence, "keep exactly the three files that Hydra wrote");
}

/// Names that make mlpstorage's tools read the wrong file.
fn names(leaf: &MlperfLeaf, findings: &mut FindingList) {
    let nested = leaf.listing.nested_summaries.as_deref();
    let evidence = match nested {
        None => "the sub-folders have too many entries to search them".to_owned(),
        Some([]) => "no sub-folder has a summary.json".to_owned(),
        Some(some) => format!("{} would count as another run", some.join(", ")),
    };
    let remedy = "move it out of the folder, or rename it";
    findings.judge(ONE_SUMMARY, nested.map(<[String]>::is_empty), evidence, remedy);
    let named: Vec<&str> =
        leaf.listing.files.iter().map(String::as_str).filter(|name| name.contains("metadata")).collect();
    let evidence = match named.as_slice() {
        [] => "there is no file with 'metadata' in its name".to_owned(),
        some => format!("files with 'metadata' in their names: {}", some.join(", ")),
    };
    let holds = match named.as_slice() {
        [] => None,
        [one] => Some(one.ends_with("_metadata.json")),
        _ => Some(false),
    };
    let remedy = "keep only mlpstorage's *_metadata.json: with several, its report leaves the run out";
    findings.judge(ONE_METADATA, holds, evidence, remedy);
}

/// Who made the result, and the verdict of that program.
fn origin(leaf: &MlperfLeaf, findings: &mut FindingList) {
    let remedy = "for a submission, run mlpstorage with DLIO; the figures are still comparable";
    let (by_mlpstorage, evidence) = match (leaf.is_by_feedline(), &leaf.metadata) {
        (true, _) => (Some(false), "summary.json has the key feedline: feedline made this result".to_owned()),
        (false, Ok(_)) => (Some(true), "mlpstorage's metadata file exists".to_owned()),
        (false, Err(why)) => (Some(false), format!("mlpstorage's metadata file {why}")),
    };
    findings.advise(MADE_BY, by_mlpstorage, evidence, remedy);
    // CLOSED and OPEN are not compared with the folder: mlpstorage 3.0.26 writes CLOSED for runs of OPEN, too.
    if let Some(verification) = leaf.verification() {
        let holds = !verification.eq_ignore_ascii_case("invalid");
        let evidence = format!("mlpstorage's metadata: verification is {verification}");
        findings.judge(
            VERIFICATION,
            Some(holds),
            evidence,
            "see mlpstorage's log for the reason, and run again",
        );
    }
    if let Some(status) = leaf.feedline_status() {
        let holds = match status {
            "valid" => Some(true),
            "invalid" | "incomplete" => Some(false),
            _ => None,
        };
        let remedy = "see the rules of the verdict in summary.json or with 'feedline validate'";
        findings.judge(VERDICT, holds, format!("feedline's verdict is {status}"), remedy);
    }
}
