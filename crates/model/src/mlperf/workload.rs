//! All results of one workload of one system: the rules on each, and those on all of them together.

use super::checkpointing::{check_alone, check_invocation, check_invocations};
use super::document::shown;
use super::edition::{Division, Edition};
use super::files;
use super::finding::{FindingList, MlperfFinding, MlperfRule};
use super::leaf::{LeafKind, MlperfLeaf};
use super::moment::LocalMoment;
use super::training::{check_counts, check_generated, check_run};
use super::{MlperfCase, UNKNOWN_MODEL};
use crate::units::counted;

const PHASES: MlperfRule = MlperfRule("2.1.12", "trainingPhases");
const DATAGEN_TIMES: MlperfRule = MlperfRule("2.1.13", "datagenTimestamp");
const RUN_RESULTS: MlperfRule = MlperfRule("2.1.16", "runResultsJson");
const RUN_TIMES: MlperfRule = MlperfRule("2.1.17", "runTimestamps");
const RUN_GAP: MlperfRule = MlperfRule("2.1.18", "runTimestampGap");
const CHECKPOINT_RESULTS: MlperfRule = MlperfRule("2.1.22", "checkpointingResultsJson");
const CHECKPOINT_TIMES: MlperfRule = MlperfRule("2.1.23", "checkpointingTimestamps");
const CHECKPOINT_GAP: MlperfRule = MlperfRule("2.1.24", "checkpointingTimestampGap");
const SAME_SYSTEM: MlperfRule = MlperfRule("2.1.9", "identicalSystemConfig");
const TRAINING_MODEL: MlperfRule = MlperfRule("2.1.11", "trainingWorkloads");
const DATASIZE_USED: MlperfRule = MlperfRule("3.1.1", "trainingVerifyDatasizeUsage");
const CODE: MlperfRule = MlperfRule("3.6.1", "trainingClosedSubmissionChecksum");
const CLASS: MlperfRule = MlperfRule("EDN", "coreConfigClass");
const CHECKPOINT_MODEL: MlperfRule = MlperfRule("2.1.21", "checkpointingWorkloads");
const MODE: MlperfRule = MlperfRule("mlpstorage", "mode");

/// One warm-up and five scored runs.
const RUNS: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadFamily {
    Training,
    Checkpointing,
}

/// The results of a workload.
#[derive(Clone, Debug)]
pub struct MlperfWorkload {
    /// The folder that holds them, or the folder of the only one.
    pub folder: String,
    pub family: WorkloadFamily,
    /// Whether all results of the workload are here; if not, rules on their number do not apply.
    pub is_whole: bool,
    /// Whether there is a `results.json` where the rules want it.
    pub has_results_json: bool,
    /// The division whose folder it is in.
    pub placed_in: Option<Division>,
    /// Sub-folders of the workload's folder.
    pub folders: Vec<String>,
    pub leaves: Vec<MlperfLeaf>,
}

impl MlperfWorkload {
    /// The results of a kind, in the order of their times.
    pub(super) fn of_kind(&self, kind: LeafKind) -> Vec<&MlperfLeaf> {
        let mut leaves: Vec<&MlperfLeaf> = self.leaves.iter().filter(|leaf| leaf.kind == kind).collect();
        leaves.sort_by(|one, other| one.name().cmp(other.name()));
        leaves
    }

    /// The results that count: runs, or checkpointing invocations.
    pub(super) fn measured(&self) -> Vec<&MlperfLeaf> {
        self.of_kind(match self.family {
            WorkloadFamily::Training => LeafKind::Run,
            WorkloadFamily::Checkpointing => LeafKind::Checkpointing,
        })
    }

    /// The findings of all rules.
    pub fn check(&self, case: &MlperfCase<'_>) -> Vec<MlperfFinding> {
        let mut found = FindingList::at(&self.folder);
        match self.family {
            WorkloadFamily::Training => self.training(case, &mut found),
            WorkloadFamily::Checkpointing => self.checkpointing(case, &mut found),
        }
        self.same_system(&mut found);
        let mut list = found.list;
        for leaf in &self.leaves {
            let mut found = FindingList::at(leaf.folder());
            files::check(leaf, &mut found);
            self.origin(leaf, case, &mut found);
            match leaf.kind {
                LeafKind::Datasize | LeafKind::Datagen => {}
                LeafKind::Run => {
                    check_counts(leaf, &mut found);
                    check_run(leaf, case, &mut found);
                    class(leaf, case, &mut found);
                }
                LeafKind::Checkpointing => {
                    check_invocation(leaf, case, &mut found);
                    class(leaf, case, &mut found);
                }
            }
            list.extend(found.list);
        }
        list
    }

    /// Whether the documents of a result agree with the folders that it is in.
    fn origin(&self, leaf: &MlperfLeaf, case: &MlperfCase<'_>, found: &mut FindingList) {
        let models = leaf.models();
        let plain = |name: &str| name.replace('_', "-");
        if let Some(other) = models.iter().find(|model| plain(model) != plain(case.model)) {
            let rule = match self.family {
                WorkloadFamily::Training => TRAINING_MODEL,
                WorkloadFamily::Checkpointing => CHECKPOINT_MODEL,
            };
            let evidence = format!("the documents are of {other}, the folder is that of {}", case.model);
            found.judge(rule, Some(false), evidence, "move the result to the folder of its workload");
        }
        if let (Some(division), Some(mode)) = (self.placed_in, leaf.mode()) {
            let evidence = format!("mlpstorage was started with mode {mode}; the folder is {division}/");
            let remedy = "move the result to the folder of its division, or run again";
            found.judge(MODE, Some(mode.parse() == Ok(division)), evidence, remedy);
        }
    }

    fn training(&self, case: &MlperfCase<'_>, found: &mut FindingList) {
        let accelerator = self.leaves.iter().find_map(MlperfLeaf::accelerator);
        let holds = match &accelerator {
            Some(accelerator) => Some(case.edition.scores(case.model, accelerator)),
            None if case.model == UNKNOWN_MODEL => None,
            None if case.edition.utilization_floor(case.model).is_none() => Some(false),
            None => None,
        };
        let on =
            accelerator.map_or_else(|| "an unknown accelerator".to_owned(), |name| name.to_ascii_uppercase());
        let evidence = format!("the workload is {} on {on}, the edition {}", case.model, case.edition);
        let remedy = "submit a workload that the edition scores, or check with another --edition";
        found.judge(TRAINING_MODEL, holds, evidence, remedy);
        if !self.is_whole {
            for rule in [DATAGEN_TIMES, RUN_TIMES, RUN_GAP] {
                found.unknown(
                    rule,
                    "this is one result; check the folder of the workload, which has all of them",
                );
            }
            return;
        }
        let (generated, runs) = (self.of_kind(LeafKind::Datagen), self.of_kind(LeafKind::Run));
        self.phases(found);
        let count = generated.len();
        let named = generated.iter().all(|leaf| LocalMoment::of_folder(leaf.name()).is_some());
        let results = counted(count as u64, "result");
        let evidence = format!("datagen/ has {results}; required is one, named YYYYMMDD_HHMMSS");
        found.judge(
            DATAGEN_TIMES,
            Some(count == 1 && named),
            evidence,
            "keep the one that made the data set",
        );
        self.results_json(RUN_RESULTS, "run/", found);
        times(RUN_TIMES, &runs, runs.len() == RUNS, "6 (a warm-up and 5 scored)", found);
        run_gaps(&runs, found);
        if let [generated] = generated.as_slice() {
            check_generated(generated, &runs, case, found);
        }
        let sized = !self.of_kind(LeafKind::Datasize).is_empty();
        let evidence = if sized { "datasize/ has a result" } else { "there is no result of datasize" };
        found.judge(DATASIZE_USED, sized.then_some(true), evidence.to_owned(), "");
        if case.division == Division::Closed {
            found.unknown(
                CODE,
                "the code that ran is not compared with a release of mlpstorage; mlpstorage does that",
            );
        }
    }

    fn phases(&self, found: &mut FindingList) {
        let missing =
            ["datagen", "run"].into_iter().filter(|name| !self.folders.iter().any(|folder| folder == name));
        // The command configview only shows a configuration.
        let known = ["datasize", "datagen", "run", "configview"];
        let is_extra = |name: &&String| {
            let is_ignored = name.starts_with("code") || name.starts_with('.');
            !known.contains(&name.as_str()) && !is_ignored
        };
        let mut faults: Vec<String> = missing.map(|name| format!("{name}/ is missing")).collect();
        faults.extend(
            self.folders.iter().filter(is_extra).map(|name| format!("{name}/ does not belong there")),
        );
        let evidence =
            if faults.is_empty() { "datagen/ and run/ exist".to_owned() } else { faults.join("; ") };
        found.judge(PHASES, Some(faults.is_empty()), evidence, "keep datagen/ and run/ with their results");
    }

    /// Only advice: mlpstorage's report writes the file, and published submissions of round 3.0 do without it.
    fn results_json(&self, rule: MlperfRule, place: &str, found: &mut FindingList) {
        let evidence = match self.has_results_json {
            true => format!("{place}results.json exists"),
            false => format!("{place}results.json is missing"),
        };
        found.advise(rule, Some(self.has_results_json), evidence, "run 'mlpstorage reports reportgen'");
    }

    fn checkpointing(&self, case: &MlperfCase<'_>, found: &mut FindingList) {
        let leaves = self.of_kind(LeafKind::Checkpointing);
        if !self.is_whole {
            found.unknown(CHECKPOINT_TIMES, "this is one result; check the folder of the workload");
            leaves.iter().for_each(|leaf| check_alone(leaf, case, found));
            return;
        }
        self.results_json(CHECKPOINT_RESULTS, "", found);
        times(CHECKPOINT_TIMES, &leaves, matches!(leaves.len(), 1 | 2), "1 or 2", found);
        pause(&leaves, found);
        check_invocations(&leaves, case, found);
    }

    /// The runs of a system must be on the same hosts, with the same data set.
    fn same_system(&self, found: &mut FindingList) {
        let leaves = self.measured();
        if leaves.len() < 2 {
            return;
        }
        let keys = ["num_accelerators", "num_hosts", "num_files_train", "host_cpu_count"];
        let differing = keys.iter().filter_map(|key| {
            let values: Vec<String> = leaves.iter().map(|leaf| shown(leaf.said(key))).collect();
            (values.iter().any(|value| *value != values[0]))
                .then(|| format!("{key} is {}", values.join(", ")))
        });
        let differing: Vec<String> = differing.collect();
        let evidence = match differing.is_empty() {
            true => format!("{} are the same in all {} results", keys.join(", "), leaves.len()),
            false => differing.join("; "),
        };
        let remedy = "results of another configuration belong to another system name";
        found.judge(SAME_SYSTEM, Some(differing.is_empty()), evidence, remedy);
    }
}

fn times(rule: MlperfRule, leaves: &[&MlperfLeaf], is_enough: bool, required: &str, found: &mut FindingList) {
    let odd: Vec<&str> =
        leaves.iter().map(|leaf| leaf.name()).filter(|name| LocalMoment::of_folder(name).is_none()).collect();
    let mut evidence = format!("{}; required are {required}", counted(leaves.len() as u64, "result"));
    if !odd.is_empty() {
        evidence.push_str(&format!("; not named YYYYMMDD_HHMMSS: {}", odd.join(", ")));
    }
    let remedy = "run until there are enough consecutive results, and keep only those";
    found.judge(rule, Some(is_enough && odd.is_empty()), evidence, remedy);
}

const NO_TIMES: &str = "summary.json has no local times without a zone, or a folder is not named by its time";
const WRITE_TIMES: &str =
    "keep the names that mlpstorage gave, and run with a version of DLIO that writes start and end";

/// Between the starts of two runs, no other run may fit: less than twice the shortest run. And the times in the
/// documents must be those of the runs: one after the other, each soon after the time of its folder.
fn run_gaps(runs: &[&MlperfLeaf], found: &mut FindingList) {
    if runs.len() < 2 {
        return;
    }
    let folders: Option<Vec<LocalMoment>> =
        runs.iter().map(|leaf| LocalMoment::of_folder(leaf.name())).collect();
    let windows: Option<Vec<_>> = runs.iter().map(|leaf| leaf.window()).collect();
    let (Some(folders), Some(windows)) = (folders, windows) else {
        found.judge(RUN_GAP, Some(false), NO_TIMES.to_owned(), WRITE_TIMES);
        return;
    };
    let shortest = windows.iter().map(|(start, end)| start.until(*end)).fold(f64::INFINITY, f64::min);
    let longest = folders.windows(2).map(|pair| pair[0].until(pair[1])).fold(0.0, f64::max);
    let mut holds = longest < 2.0 * shortest;
    let mut evidence = format!(
        "at most {longest:.0} s from one start to the next; the shortest run takes {shortest:.0} s, allowed are less \
         than {:.0} s",
        2.0 * shortest
    );
    if let Some(at) = windows.windows(2).position(|pair| pair[0].1.until(pair[1].0) < 0.0) {
        let [one, next] = [runs[at].name(), runs[at + 1].name()];
        evidence.push_str(&format!("; by summary.json, {next} starts before {one} has ended"));
        holds = false;
    }
    // The clock of DLIO may have another zone than that of the folders, but always the same one.
    let lags = || folders.iter().zip(&windows).map(|(folder, (start, _))| folder.until(*start));
    let spread = lags().fold(f64::NEG_INFINITY, f64::max) - lags().fold(f64::INFINITY, f64::min);
    if spread >= shortest {
        evidence.push_str(&format!(
            "; between the time of a folder and start in its summary.json, the runs differ by {spread:.0} s"
        ));
        holds = false;
    }
    found.judge(RUN_GAP, Some(holds), evidence, "use consecutive runs with nothing between them, unchanged");
}

/// Between two invocations, none may fit: less than the longer one takes. Writing may take much longer than reading.
fn pause(invocations: &[&MlperfLeaf], found: &mut FindingList) {
    let [first, second] = invocations else { return };
    let Some((first, second)) = first.window().zip(second.window()) else {
        found.judge(CHECKPOINT_GAP, Some(false), NO_TIMES.to_owned(), WRITE_TIMES);
        return;
    };
    let longest = first.0.until(first.1).max(second.0.until(second.1));
    let pause = first.1.until(second.0);
    let evidence = format!(
        "{pause:.0} s from the end of one invocation to the start of the next; the longer one takes {longest:.0} s, \
         allowed are less than that"
    );
    let remedy = "use consecutive invocations with nothing between them";
    found.judge(CHECKPOINT_GAP, Some(pause < longest), evidence, remedy);
}

/// Whether the committee considers the configuration comparable with the published one. Edition 2.0 has no such rule,
/// and its subsets have a hash of their own.
fn class(leaf: &MlperfLeaf, case: &MlperfCase<'_>, found: &mut FindingList) {
    if case.edition == Edition::V2 {
        return;
    }
    let name = match leaf.kind {
        LeafKind::Checkpointing => Some(case.model.replace('-', "_")),
        _ => leaf.accelerator().map(|accelerator| format!("{}_{accelerator}", case.model)),
    };
    let published = name.as_deref().and_then(|name| case.classes.iter().find(|(known, _)| *known == name));
    let (Some(hash), Some((name, published))) = (&leaf.core_hash, published) else {
        found.unknown(CLASS, "there is no published core-config hash for this workload, or no config.yaml");
        return;
    };
    let evidence = format!("the core-config hash is {hash}; that of {name} is {published}");
    let remedy = "change no setting that defines the workload, such as batch size or computation time";
    match case.division {
        Division::Closed => found.judge(CLASS, Some(hash == published), evidence, remedy),
        Division::Open => found.advise(CLASS, Some(hash == published), evidence, remedy),
    }
}
