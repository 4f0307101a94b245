//! Rules about errors: those that occurred, and those that were injected.

use super::rules::RuleResult;
use super::{Case, seen_phases};
use crate::plan::Plan;
use crate::units::{counted, grouped};

/// Errors within the limit leave figures that are correct for the delivered samples. An error that ended the run is in
/// the ledger, too.
pub(super) fn errors(case: &Case<'_>) -> RuleResult {
    let met = case.ledger.errors();
    if met.is_empty() {
        return RuleResult::pass("none");
    }
    let samples: u64 =
        seen_phases(case.ledger).map(|(epoch, phase)| case.ledger.total(epoch, phase).failed.samples).sum();
    let first = met.kinds().find_map(|(_, met)| met.examples.first());
    let example = first.map_or(String::new(), |example| {
        let host = case.ledger.host_of(example.rank).map_or(String::new(), |host| format!(" on node {host}"));
        format!("; for example{host} {example}")
    });
    let evidence = format!("{met}; {} not delivered{example}", counted(samples, "sample"));
    let limit = case.training().and_then(|case| case.plan.loader.error_limit);
    match limit {
        Some(limit) if met.count() <= limit => RuleResult::note(evidence).with_remedy("fix the storage"),
        Some(_) => RuleResult::fail(evidence).with_remedy("fix the storage, or raise reader.error_limit"),
        None => RuleResult::fail(evidence),
    }
}

/// Injected faults say nothing about the storage, so such a run is never valid.
pub(super) fn no_injected_faults(plan: &Plan) -> RuleResult {
    match plan.injected_faults() {
        Some(rule) => RuleResult::fail(format!("the backend injects faults: {rule}")),
        None => RuleResult::pass("none"),
    }
}

/// The samples of an epoch as text: delivered, and failed if there are any.
pub(super) fn delivered_and_failed(delivered: u64, failed: u64) -> String {
    match failed {
        0 => format!("{} samples", grouped(delivered)),
        failed => format!("{} samples delivered and {} failed", grouped(delivered), grouped(failed)),
    }
}
