//! Whether you can trust the figures. One table holds the rules; each has a scope, a threshold, evidence from the
//! ledger and a remedy. The verdict follows from the rules alone.

mod cache;
mod checkpoints;
mod cluster;
mod conditions;
mod delivery;
mod errors;
mod integrity;
mod objects;
mod prefetch;
mod proof;
mod rules;
mod terms;

use serde::{Deserialize, Serialize};

pub use delivery::expected_digest;
pub use rules::{RuleText, WINDOW_LONG_ENOUGH, rule_texts};

use crate::checkpoint::CheckpointPlan;
use crate::ledger::{Ledger, LedgerPart, Phase};
use crate::plan::{PhasePlan, Plan, TrainingPlan};
use rules::{RULES, Rule, RuleResult};

/// The status of the run as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every rule was checked and holds.
    Valid,
    /// A rule is broken, so the figures are not what they claim to be.
    Invalid,
    /// No rule is broken, but at least one could not be checked.
    Unverified,
    /// The run did not finish.
    Incomplete,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Status::Valid => "valid",
            Status::Invalid => "invalid",
            Status::Unverified => "unverified",
            Status::Incomplete => "incomplete",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleOutcome {
    Pass,
    /// The rule holds, with a remark: the report shows it, but it does not affect the status.
    Note,
    Fail,
    NotCheckable,
}

/// The result of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub rule: String,
    pub outcome: RuleOutcome,
    pub threshold: String,
    pub evidence: String,
    /// What to do about it; empty if the rule holds.
    pub remedy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub status: Status,
    pub rules: Vec<Finding>,
}

impl Verdict {
    /// The status, with the broken rules of an invalid result: `invalid (cache)`.
    pub fn headline(&self) -> String {
        match self.status {
            Status::Invalid => format!("invalid ({})", self.broken().collect::<Vec<_>>().join(", ")),
            status => status.to_string(),
        }
    }

    /// The names of the rules that are broken.
    pub fn broken(&self) -> impl Iterator<Item = &str> {
        self.with(RuleOutcome::Fail)
    }

    /// The names of the rules that could not be checked.
    pub fn unchecked(&self) -> impl Iterator<Item = &str> {
        self.with(RuleOutcome::NotCheckable)
    }

    fn with(&self, outcome: RuleOutcome) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().filter(move |finding| finding.outcome == outcome);
        rules.map(|finding| finding.rule.as_str())
    }
}

/// The only input of the rules, so a verdict can be recomputed from a result at any time. A job that was observed, not
/// planned, has no plan; rules that need one cannot be checked then.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub plan: Option<&'a Plan>,
    pub ledger: &'a Ledger,
}

impl<'a> Case<'a> {
    /// Whether the run trains: by the plan, or by the ledger if there is none.
    fn trains(&self) -> bool {
        match self.plan {
            Some(plan) => plan.training.is_some(),
            None => !self.ledger.epochs(Phase::Train).is_empty() || self.ledger.checkpoints.is_empty(),
        }
    }

    /// Whether the run saves checkpoints: by the plan, or by the ledger if there is none.
    fn saves(&self) -> bool {
        match self.plan {
            Some(plan) => plan.checkpoint.is_some(),
            None => !self.ledger.checkpoints.is_empty(),
        }
    }

    /// Whether the run reads from an object store: by the plan, or by the ledger if there is none.
    fn reads_objects(&self) -> bool {
        match self.plan {
            Some(plan) => plan.training.as_ref().is_some_and(|training| training.store.is_objects()),
            None => seen_phases(self.ledger)
                .any(|(epoch, phase)| !self.ledger.node_total(epoch, phase).requests.is_empty()),
        }
    }

    fn training(&self) -> Option<TrainingCase<'a>> {
        let Plan { training, checkpoint, .. } = self.plan?;
        Some(TrainingCase { plan: training.as_ref()?, checkpoint: checkpoint.as_ref(), ledger: self.ledger })
    }

    fn checkpoints(&self) -> Option<CheckpointCase<'a>> {
        let plan = self.plan?;
        Some(CheckpointCase { plan: plan.checkpoint.as_ref()?, ledger: self.ledger, planned: plan.saves() })
    }
}

/// The input of the rules about planned training.
#[derive(Clone, Copy, Debug)]
struct TrainingCase<'a> {
    plan: &'a TrainingPlan,
    checkpoint: Option<&'a CheckpointPlan>,
    ledger: &'a Ledger,
}

/// The input of the rules about planned checkpoints.
#[derive(Clone, Copy, Debug)]
struct CheckpointCase<'a> {
    plan: &'a CheckpointPlan,
    ledger: &'a Ledger,
    /// The number of checkpoints to save.
    planned: u64,
}

/// Applies every rule that applies to the case.
pub fn judge(case: &Case<'_>) -> Verdict {
    conclude(RULES.iter().filter(|rule| rule.applies.to(case)).map(|rule| finding(rule, case)).collect())
}

fn conclude(rules: Vec<Finding>) -> Verdict {
    let outcome_of =
        |name: &str| rules.iter().find(|finding| finding.rule == name).map(|finding| finding.outcome);
    let any = |outcome| rules.iter().any(|finding| finding.outcome == outcome);
    let status = if outcome_of("complete") == Some(RuleOutcome::Fail) {
        Status::Incomplete
    } else if any(RuleOutcome::Fail) {
        Status::Invalid
    } else if any(RuleOutcome::NotCheckable) {
        Status::Unverified
    } else {
        Status::Valid
    };
    Verdict { status, rules }
}

fn finding(rule: &Rule, case: &Case<'_>) -> Finding {
    let RuleResult { outcome, evidence, remedy } = rule.check.apply(case);
    let remedy = match outcome {
        RuleOutcome::Pass => "",
        RuleOutcome::Note | RuleOutcome::Fail => remedy.unwrap_or(rule.remedy),
        RuleOutcome::NotCheckable => remedy.unwrap_or(rule.unchecked),
    };
    Finding {
        rule: rule.name.to_owned(),
        outcome,
        threshold: rule.threshold.to_owned(),
        evidence,
        remedy: remedy.to_owned(),
    }
}

/// Checks each node of a run, and the run as a whole. If a node is worse than the whole, or than other nodes, it is
/// named, so that no node hides in a sum.
fn worst_part(ledger: &Ledger, check: impl Fn(&LedgerPart<'_>) -> RuleResult) -> RuleResult {
    let severity = |result: &RuleResult| match result.outcome {
        RuleOutcome::Pass => 0,
        RuleOutcome::Note => 1,
        RuleOutcome::NotCheckable => 2,
        RuleOutcome::Fail => 3,
    };
    let whole = check(&ledger.whole());
    let nodes = ledger.nodes();
    let results: Vec<RuleResult> =
        if nodes.len() > 1 { nodes.iter().map(check).collect() } else { Vec::new() };
    let worst = results.iter().map(severity).max().unwrap_or(0);
    let is_worst = |result: &RuleResult| severity(result) == worst;
    let differ = !results.iter().all(is_worst);
    if worst < severity(&whole) || worst == severity(&whole) && !differ {
        return whole;
    }
    let mut found = nodes.iter().zip(results).filter(|(_, result)| is_worst(result));
    let Some((node, result)) = found.next() else { return whole };
    let others: Vec<&str> = found.filter_map(|(node, _)| node.name()).collect();
    let also = match others.as_slice() {
        [] => String::new(),
        few if few.len() <= 3 => format!("; also node {}", few.join(", ")),
        many => format!("; also node {} and {} more", many[..2].join(", "), many.len() - 2),
    };
    let name = node.name().unwrap_or_default();
    RuleResult { evidence: format!("node {name}: {}{also}", result.evidence), ..result }
}

/// Each phase of each planned epoch. There may be very many: stop as early as possible.
fn planned_phases(plan: &TrainingPlan) -> impl Iterator<Item = (u64, &PhasePlan)> {
    (1..=plan.epochs).flat_map(|epoch| plan.phases(epoch).map(move |phase| (epoch, phase)))
}

/// Each phase of each epoch that has rows in the ledger.
fn seen_phases(ledger: &Ledger) -> impl Iterator<Item = (u64, Phase)> {
    let epochs = |phase| ledger.epochs(phase).into_iter().map(move |epoch| (epoch, phase));
    [Phase::Train, Phase::Eval].into_iter().flat_map(epochs)
}

impl<'a> TrainingCase<'a> {
    /// Each planned phase that has rows in the ledger.
    fn seen_phases(&self) -> impl Iterator<Item = (u64, &'a PhasePlan)> + use<'a> {
        let plan = self.plan;
        seen_phases(self.ledger).filter_map(move |(epoch, phase)| Some((epoch, plan.phase(phase)?)))
    }
}

#[cfg(test)]
mod tests;
