//! The report of `feedline mlperf check`.

use std::collections::BTreeMap;

use model::mlperf::{Division, Edition, MlperfFinding, MlperfOutcome, MlperfRow};
use model::units::counted;
use serde_json::{Value, json};

use crate::report::{fitted, printable};
use crate::terminal::Tone;

/// A workload with its findings and its row in the table.
#[derive(Debug)]
pub(crate) struct CheckedWorkload {
    pub folder: String,
    pub organisation: Option<String>,
    pub system: Option<String>,
    pub model: String,
    pub edition: Edition,
    pub division: Division,
    pub findings: Vec<MlperfFinding>,
    pub row: Option<MlperfRow>,
}

impl CheckedWorkload {
    pub(crate) fn count(&self, outcome: MlperfOutcome) -> usize {
        count(&self.findings, outcome)
    }
}

fn count(findings: &[MlperfFinding], outcome: MlperfOutcome) -> usize {
    findings.iter().filter(|finding| finding.outcome == outcome).count()
}

fn tally(outcome: MlperfOutcome, count: usize) -> String {
    match outcome {
        MlperfOutcome::Fail => format!("{count} failed"),
        MlperfOutcome::Warning => counted(count as u64, "warning"),
        MlperfOutcome::NotCheckable => format!("{count} not checkable"),
        MlperfOutcome::Pass => format!("{count} passed"),
    }
}

/// Everything that was checked.
#[derive(Debug)]
pub(crate) struct CheckReport {
    /// Findings on the folders above the workloads.
    pub structure: Vec<MlperfFinding>,
    pub workloads: Vec<CheckedWorkload>,
    /// Whether rules that hold are shown.
    pub all: bool,
}

impl CheckReport {
    pub(crate) fn count(&self, outcome: MlperfOutcome) -> usize {
        let workloads: usize = self.workloads.iter().map(|workload| workload.count(outcome)).sum();
        workloads + count(&self.structure, outcome)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if !self.structure.is_empty() {
            text.push_str(&format!("folders of the submission\n{}\n", self.findings(&self.structure, "")));
        }
        for workload in &self.workloads {
            text.push_str(&format!("{}\n", printable(&workload.folder)));
            let CheckedWorkload { edition, division, .. } = workload;
            let model = printable(&workload.model);
            text.push_str(&fitted(&format!("  {model}, MLPerf Storage {edition}, {division} division\n")));
            text.push_str(&self.findings(&workload.findings, &workload.folder));
            text.push('\n');
        }
        let counts = MlperfOutcome::ALL.map(|outcome| (outcome, self.count(outcome)));
        let counts: Vec<String> = counts
            .iter()
            .filter(|(outcome, count)| *count > 0 || *outcome == MlperfOutcome::Fail)
            .map(|(outcome, count)| tally(*outcome, *count))
            .collect();
        text.push_str(&fitted(&format!("findings: {}\n", counts.join(", "))));
        text
    }

    /// The worst outcome first; the same finding in several places once.
    fn findings(&self, findings: &[MlperfFinding], folder: &str) -> String {
        let mut groups: BTreeMap<MlperfOutcome, Vec<&MlperfFinding>> = BTreeMap::new();
        for finding in findings {
            groups.entry(finding.outcome).or_default().push(finding);
        }
        let mut text = String::new();
        for (outcome, list) in groups {
            if outcome == MlperfOutcome::Pass && !self.all {
                text.push_str(&format!("  {}: {}\n", outcome.name(), counted(list.len() as u64, "finding")));
                continue;
            }
            let mut shared: Vec<(&MlperfFinding, usize)> = Vec::new();
            for finding in list {
                let is_same = |(other, _): &&mut (&MlperfFinding, usize)| {
                    (other.rule, other.name, &other.evidence)
                        == (finding.rule, finding.name, &finding.evidence)
                };
                match shared.iter_mut().find(is_same) {
                    Some((_, places)) => *places += 1,
                    None => shared.push((finding, 1)),
                }
            }
            for (finding, places) in shared {
                text.push_str(&shown(finding, places, folder));
            }
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let workloads = self.workloads.iter().map(|workload| {
            json!({
                "folder": workload.folder,
                "organisation": workload.organisation,
                "system": workload.system,
                "model": workload.model,
                "edition": workload.edition,
                "division": workload.division,
                "findings": workload.findings,
            })
        });
        let counts =
            MlperfOutcome::ALL.map(|outcome| (outcome.name().replace(' ', "-"), json!(self.count(outcome))));
        json!({
            "counts": counts.into_iter().collect::<serde_json::Map<_, _>>(),
            "structure": self.structure,
            "workloads": workloads.collect::<Vec<_>>(),
        })
    }
}

/// One finding, with the place relative to the folder of its workload, and how many places have the same.
fn shown(finding: &MlperfFinding, places: usize, folder: &str) -> String {
    let MlperfFinding { rule, name, outcome, place, evidence, remedy } = finding;
    let tone = match outcome {
        MlperfOutcome::Fail => Tone::Bad,
        MlperfOutcome::Warning | MlperfOutcome::NotCheckable => Tone::Doubtful,
        MlperfOutcome::Pass => Tone::Good,
    };
    let inside = place.strip_prefix(folder).filter(|_| !folder.is_empty());
    let relative = inside.map_or(place.as_str(), |rest| rest.trim_start_matches('/'));
    let place = match (relative, places) {
        ("", _) => String::new(),
        (_, 1) => format!("{}: ", printable(relative)),
        _ => format!("{} and {} more: ", printable(relative), places - 1),
    };
    let evidence = printable(evidence);
    let mut text = format!("  {}: {rule} {name}\n", tone.out(outcome.name()));
    text.push_str(&fitted(&format!("    {place}{evidence}\n")));
    if let Some(remedy) = remedy {
        text.push_str(&fitted(&format!("    help: {}\n", printable(remedy))));
    }
    text
}
