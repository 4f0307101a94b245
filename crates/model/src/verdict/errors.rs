//! Rules about what went wrong on the way: errors that were met, and errors that somebody asked for.

use super::{Case, Outcome, seen_phases};
use crate::plan::Plan;
use crate::units::{counted, grouped};

/// Errors that were counted leave a run whose figures are right about the samples that came. One that ended the run is
/// in the ledger, too.
pub(super) fn errors(case: &Case<'_>) -> (Outcome, String) {
    let met = case.ledger.errors();
    if met.is_empty() {
        return (Outcome::Pass, "none".to_owned());
    }
    let samples: u64 =
        seen_phases(case.ledger).map(|(epoch, phase)| case.ledger.total(epoch, phase).failed.samples).sum();
    let first = met.kinds().find_map(|(_, met)| met.examples.first());
    let example = first.map_or(String::new(), |example| format!(", such as {example}"));
    let evidence = format!("{met}; {} not delivered{example}", counted(samples, "sample"));
    let limit = case.training().and_then(|case| case.plan.loader.error_limit);
    let borne = limit.is_some_and(|limit| met.count() <= limit);
    (if borne { Outcome::Note } else { Outcome::Fail }, evidence)
}

/// What goes wrong on purpose says nothing about the storage, so such a run is never valid, whatever came of it.
pub(super) fn no_injected_faults(plan: &Plan) -> (Outcome, String) {
    match plan.injected_faults() {
        Some(rule) => (Outcome::Fail, format!("the store went wrong by rule: {rule}")),
        None => (Outcome::Pass, "none".to_owned()),
    }
}

/// Samples of an epoch as evidence names them: those delivered, and those that failed if there are any.
pub(super) fn delivered_and_failed(delivered: u64, failed: u64) -> String {
    match failed {
        0 => format!("{} samples", grouped(delivered)),
        failed => format!("{} samples delivered and {} failed", grouped(delivered), grouped(failed)),
    }
}
