//! What is wrong with the input of a job: findings, with evidence, cost and a change to try. The `audit` crate
//! judges; this is what it writes to `findings.json` and what reports show.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All findings of a job, most important first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    pub version: u32,
    /// Correctness first, then by cost, then notes.
    pub findings: Vec<Fault>,
    /// Every rule with its outcome, in the order of judging.
    pub rules: Vec<FaultOutcome>,
    /// Where the time of a training epoch goes, in seconds: mean over the epochs of the training loader.
    pub time: Option<EpochTime>,
    /// What could not be observed, as sentences.
    pub limits: Vec<String>,
}

impl Findings {
    /// Findings that ask for a change; without notes.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.findings.iter().filter(|finding| finding.severity != Severity::Note)
    }
}

/// Seconds of an epoch of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochTime {
    pub epochs: u64,
    pub wall: f64,
    /// Starting workers and waiting for the first batch.
    pub start: f64,
    /// Waiting for batches that were not loaded.
    pub blocked: f64,
    /// From a loaded batch to the training process.
    pub handover: f64,
    pub compute: f64,
    pub checkpoint: f64,
    /// The remaining time.
    pub other: f64,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The job reads wrong, old, repeated or not all data.
    Correctness,
    /// The job loses time.
    Cost,
    /// Worth knowing; nothing to change.
    Note,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    High,
    Medium,
    Low,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// The rule's name: `tiny-reads`.
    pub name: String,
    /// A sentence for a heading: `Reads are tiny`.
    pub title: String,
    pub severity: Severity,
    pub certainty: Certainty,
    /// The rank and loader that it was found in; `None`: the whole job.
    pub rank: Option<u64>,
    pub loader: Option<u64>,
    /// What was observed, with figures.
    pub evidence: String,
    /// The figures of the evidence, by name with unit: `read_bytes_median`.
    pub figures: BTreeMap<String, f64>,
    /// Seconds per epoch that would be saved; `None`: cannot be estimated.
    pub cost_seconds_per_epoch: Option<f64>,
    /// Why it happens, in one or two sentences.
    pub explanation: String,
    /// The change to try, in one sentence.
    pub change: String,
    /// What would show that the change worked.
    pub check: String,
    /// Files and places in the code, as examples.
    pub places: Vec<String>,
    /// Names of other findings that follow from this one.
    pub consequences: Vec<String>,
    /// What was not observed and could change this finding.
    pub limits: Vec<String>,
}

/// The outcome of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultOutcome {
    pub name: String,
    pub outcome: RuleAnswer,
    /// The figure that decided, or why there is none.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleAnswer {
    Found,
    NotFound,
    /// The rule holds, but another finding explains it.
    Explained,
    NotMeasurable,
}
