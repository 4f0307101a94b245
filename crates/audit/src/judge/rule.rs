//! What a rule is, and what it answers. Rules stand in the files of this folder, their order in `mod.rs`.

use std::collections::BTreeMap;

use model::observed::{Certainty, FileExample, Severity};

use super::job::{JudgedJob, JudgedRank, Pass};
use super::text;

/// A rule: its metadata for the documentation, its texts, and the function that judges.
#[derive(Clone, Copy, Debug)]
pub struct AuditRule {
    pub name: &'static str,
    /// At most this severe: a finding can be less severe, and says why.
    pub severity: Severity,
    /// What the rule recognises, in one line.
    pub about: &'static str,
    /// What must have been observed; without it the rule is not measurable.
    pub needs: &'static [Need],
    /// What the fault costs, which decides when the finding is only a note.
    pub loss: Loss,
    /// Names of rules that explain this one: it follows from them if they are found.
    pub explained_by: &'static [&'static str],
    pub title: &'static str,
    pub explanation: &'static str,
    pub change: &'static str,
    pub check: &'static str,
    pub(super) judge: fn(&JudgedJob<'_>, &KnownFaults) -> FaultAnswer,
}

/// What a rule needs to have been observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Calls on data files.
    Calls,
    /// How long calls took.
    Times,
    /// Marks of the training loop: batches and waits.
    Waits,
    /// Samples or batches of each epoch.
    Samples,
    /// Two or more epochs of the training loader.
    Epochs,
    /// Bytes that the kernel read from devices.
    Issued,
    /// CPU time of workers.
    Cpu,
    /// Processes of the job.
    Processes,
    /// Storage that the data files are on.
    Storage,
}

impl Need {
    pub const fn about(self) -> &'static str {
        match self {
            Need::Calls => "calls on data files",
            Need::Times => "how long calls took",
            Need::Waits => "waits for batches",
            Need::Samples => "samples or batches of each epoch",
            Need::Epochs => "two epochs",
            Need::Issued => "bytes read from devices",
            Need::Cpu => "CPU time of workers",
            Need::Processes => "processes of the job",
            Need::Storage => "the storage of the data files",
        }
    }
}

impl Need {
    /// Why a rule cannot be judged without it; `None` if it was observed.
    pub(super) fn missing(self, job: &JudgedJob<'_>) -> Option<String> {
        let seen = match self {
            Need::Calls => job.passes().any(|pass| pass.asked() > 0 || pass.row.io.opens.count > 0),
            Need::Times => !job.observed.coverage.untimed,
            Need::Waits => job.passes().any(|pass| pass.kind.marks() && pass.row.batches > 0),
            Need::Samples => job.passes().any(|pass| pass.amount().is_some()),
            Need::Epochs => job.ranks.iter().any(|rank| rank.passes.len() >= 2),
            Need::Issued => job.passes().any(|pass| pass.row.issued_bytes.is_some()),
            Need::Cpu => job.passes().any(|pass| pass.busy().is_some()),
            Need::Processes => !job.observed.processes.is_empty(),
            Need::Storage => !job.observed.storage.is_empty(),
        };
        (!seen).then(|| format!("Not observed: {}.", self.about()))
    }
}

/// What a fault costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Time that the training process waits for batches: only a note in a job that does not wait.
    Input,
    /// Other time of the training process: only a note if it is short.
    Time,
    /// Time at the start of an epoch, however long the epoch is: only a note if it is short.
    Start,
    /// Memory, or the end of the job by an error: no time.
    Risk,
}

/// What was found by the rules before.
#[derive(Debug, Default)]
pub(super) struct KnownFaults {
    /// Names of findings, with whether they are faults (not notes).
    pub found: BTreeMap<&'static str, bool>,
}

impl KnownFaults {
    pub(super) fn found(&self, name: &str) -> bool {
        self.found.contains_key(name)
    }

    pub(super) fn fault(&self, name: &str) -> bool {
        self.found.get(name).copied().unwrap_or(false)
    }
}

/// The answer of a rule.
#[derive(Debug)]
pub(super) enum FaultAnswer {
    Found(Box<FaultCase>),
    Not(String),
    Unknown(String),
    /// The rule holds and follows from the finding with this name.
    Explained(&'static str, String),
}

/// What holds in one epoch of one rank, or in the whole job.
#[derive(Clone, Debug)]
pub(super) struct FaultCase {
    pub rank: Option<u64>,
    pub loader: Option<u64>,
    /// How pronounced it is: the worst epoch gives the evidence.
    pub weight: f64,
    pub severity: Option<Severity>,
    pub certainty: Certainty,
    /// Sentences.
    pub evidence: String,
    pub figures: BTreeMap<String, f64>,
    /// Seconds of this epoch.
    pub cost: Option<f64>,
    pub places: Vec<String>,
    pub limits: Vec<String>,
    /// Replace the texts of the rule.
    pub title: Option<&'static str>,
    pub explanation: Option<String>,
    pub change: Option<String>,
    /// Add the places in the code that open data files.
    pub sites: bool,
}

impl FaultCase {
    pub(super) fn of_job(weight: f64, evidence: String) -> FaultCase {
        FaultCase {
            rank: None,
            loader: None,
            weight: if weight.is_finite() { weight } else { 0.0 },
            severity: None,
            certainty: Certainty::High,
            evidence,
            figures: BTreeMap::new(),
            cost: None,
            places: Vec::new(),
            limits: Vec::new(),
            title: None,
            explanation: None,
            change: None,
            sites: false,
        }
    }

    pub(super) fn of_rank(rank: &JudgedRank<'_>, weight: f64, evidence: String) -> FaultCase {
        FaultCase { rank: Some(rank.rank), loader: rank.loader, ..FaultCase::of_job(weight, evidence) }
    }

    pub(super) fn of(pass: &Pass<'_>, weight: f64, evidence: String) -> FaultCase {
        FaultCase {
            rank: Some(pass.row.rank),
            loader: Some(pass.row.loader),
            ..FaultCase::of_job(weight, evidence)
        }
    }

    pub(super) fn certainty(mut self, certainty: Certainty) -> FaultCase {
        self.certainty = certainty;
        self
    }

    pub(super) fn severity(mut self, severity: Severity) -> FaultCase {
        self.severity = Some(severity);
        self
    }

    pub(super) fn figure(mut self, name: &str, value: f64) -> FaultCase {
        if value.is_finite() {
            self.figures.insert(name.to_owned(), value);
        }
        self
    }

    pub(super) fn figure_if(self, name: &str, value: Option<f64>) -> FaultCase {
        match value {
            Some(value) => self.figure(name, value),
            None => self,
        }
    }

    pub(super) fn cost(mut self, seconds: f64) -> FaultCase {
        self.cost = seconds.is_finite().then_some(seconds.max(0.0));
        self
    }

    pub(super) fn cost_if(self, seconds: Option<f64>) -> FaultCase {
        match seconds {
            Some(seconds) => self.cost(seconds),
            None => self,
        }
    }

    pub(super) fn place(mut self, example: Option<&FileExample>) -> FaultCase {
        self.places.extend(example.and_then(text::example));
        self
    }

    pub(super) fn sites(mut self) -> FaultCase {
        self.sites = true;
        self
    }

    pub(super) fn limit(mut self, limit: impl Into<String>) -> FaultCase {
        self.limits.push(limit.into());
        self
    }

    pub(super) fn limit_if(self, applies: bool, limit: &str) -> FaultCase {
        if applies { self.limit(limit) } else { self }
    }

    pub(super) fn title(mut self, title: &'static str) -> FaultCase {
        self.title = Some(title);
        self
    }

    pub(super) fn explanation(mut self, explanation: impl Into<String>) -> FaultCase {
        self.explanation = Some(explanation.into());
        self
    }

    pub(super) fn change(mut self, change: impl Into<String>) -> FaultCase {
        self.change = Some(change.into());
        self
    }

    pub(super) fn found(self) -> FaultAnswer {
        FaultAnswer::Found(Box::new(self))
    }
}

/// What a look at one epoch of one rank gives.
#[derive(Debug)]
pub(super) enum PassLook {
    Holds(Box<FaultCase>),
    /// It does not hold: the figure that decided, and how near it came (more is nearer).
    Not(f64, String),
    Unknown(String),
}

impl PassLook {
    pub(super) fn not(nearness: f64, reason: impl Into<String>) -> PassLook {
        PassLook::Not(if nearness.is_finite() { nearness } else { 0.0 }, reason.into())
    }

    pub(super) fn unknown(reason: impl Into<String>) -> PassLook {
        PassLook::Unknown(reason.into())
    }
}

impl From<FaultCase> for PassLook {
    fn from(case: FaultCase) -> PassLook {
        PassLook::Holds(Box::new(case))
    }
}

/// Judges each epoch of each rank, and reports the worst rank once.
pub(super) fn by_epoch(job: &JudgedJob<'_>, look: impl Fn(&Pass<'_>) -> PassLook) -> FaultAnswer {
    let looks = job.ranks.iter().map(|rank| (rank, rank.passes.iter().map(&look).collect())).collect();
    worst(job, looks)
}

/// Judges each rank over all of its epochs, and reports the worst one.
pub(super) fn by_rank(job: &JudgedJob<'_>, look: impl Fn(&JudgedRank<'_>) -> PassLook) -> FaultAnswer {
    let looks = job.ranks.iter().map(|rank| (rank, vec![look(rank)])).collect();
    worst(job, looks)
}

/// The cases of one rank.
struct Held {
    rank: u64,
    cases: Vec<FaultCase>,
    looks: usize,
    cost: Option<f64>,
}

impl Held {
    /// The mean over all epochs: epochs in which the rule does not hold cost nothing.
    fn new(rank: u64, cases: Vec<FaultCase>, looks: usize) -> Held {
        let known: Vec<f64> = cases.iter().filter_map(|case| case.cost).collect();
        let cost = (!known.is_empty()).then(|| known.iter().sum::<f64>() / looks.max(1) as f64);
        Held { rank, cases, looks, cost }
    }

    fn weight(&self) -> f64 {
        self.cases.iter().map(|case| case.weight).fold(0.0, f64::max)
    }
}

fn worst(job: &JudgedJob<'_>, looks: Vec<(&JudgedRank<'_>, Vec<PassLook>)>) -> FaultAnswer {
    let mut held: Vec<Held> = Vec::new();
    let mut nearest: Option<(f64, String)> = None;
    let mut unknown: Option<String> = None;
    for (rank, looks) in looks {
        let (mut cases, all) = (Vec::new(), looks.len());
        for look in looks {
            match look {
                PassLook::Holds(case) => cases.push(*case),
                PassLook::Not(near, reason) if nearest.as_ref().is_none_or(|(most, _)| near > *most) => {
                    nearest = Some((near, reason));
                }
                PassLook::Not(..) => {}
                PassLook::Unknown(reason) => unknown = unknown.or(Some(reason)),
            }
        }
        if !cases.is_empty() {
            held.push(Held::new(rank.rank, cases, all));
        }
    }
    let ranks: Vec<u64> = held.iter().map(|held| held.rank).collect();
    let order = |a: &Held, b: &Held| {
        let by_cost = a.cost.unwrap_or(0.0).total_cmp(&b.cost.unwrap_or(0.0));
        by_cost.then(a.weight().total_cmp(&b.weight())).then(b.rank.cmp(&a.rank))
    };
    if let Some(worst) = held.into_iter().max_by(order) {
        return summary(worst, &ranks, job.ranks.len());
    }
    match (nearest, unknown) {
        (Some((_, reason)), _) => FaultAnswer::Not(reason),
        (None, reason) => FaultAnswer::Unknown(reason.unwrap_or_else(|| "No epoch was observed.".to_owned())),
    }
}

/// The most pronounced case, with the number of epochs and ranks that have it.
fn summary(worst: Held, with_it: &[u64], ranks: usize) -> FaultAnswer {
    let Held { cases, looks, cost, .. } = worst;
    let epochs = cases.len();
    let certain = cases.iter().map(|case| case.certainty).min();
    // The first of equals, so that the answer does not depend on the order of sorting.
    let most = cases.into_iter().reduce(|a, b| if b.weight > a.weight { b } else { a });
    let Some(mut case) = most else {
        return FaultAnswer::Unknown("No epoch was observed.".to_owned());
    };
    case.cost = cost;
    case.certainty = certain.unwrap_or(case.certainty);
    if looks > 1 {
        case.evidence += &format!(" This holds in {epochs} of {looks} epochs.");
        case = case.figure("epochs_with_it", epochs as f64);
    }
    if ranks > 1 {
        case.evidence += &format!(" {}", text::ranks(with_it, ranks));
        case = case.figure("ranks_with_it", with_it.len() as f64);
    }
    case.found()
}
