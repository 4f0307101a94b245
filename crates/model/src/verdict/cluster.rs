//! Rules about the processes of a run: whether they agreed on steps in time, and whether their clocks agree.

use super::rules::RuleResult;
use super::{RuleOutcome, seen_phases};
use crate::ledger::{Ledger, LedgerPart};
use crate::units::Nanos;

/// The share of the time that agreement may take beyond the computation of a step. Until a step ends, agreement on it
/// costs nothing. After that the host is behind the accelerators' timeline, and the storage has more time than it would
/// have.
const EXCESS_LIMIT: f64 = 0.02;

pub(super) fn agreement(ledger: &Ledger) -> RuleResult {
    let nodes = ledger.nodes();
    let worst = nodes.iter().filter_map(|node| Some((node, LateAgreement::of(ledger, node)?)));
    let Some((node, worst)) = worst.max_by(|(_, one), (_, other)| one.share.total_cmp(&other.share)) else {
        return match seen_phases(ledger).next() {
            Some(_) => RuleResult::pass("no step ended with a barrier"),
            None => RuleResult::not_checkable("no step was agreed on"),
        };
    };
    let outcome = if worst.share <= EXCESS_LIMIT { RuleOutcome::Pass } else { RuleOutcome::Fail };
    let LateAgreement { share, mean, p99, compute } = worst;
    let name = node.name().unwrap_or_default();
    RuleResult::new(
        outcome,
        format!(
            "node {name}: {mean} on average, p99 {p99}; a step computes for {compute}, and {:.2} % of the time was \
             needed beyond that",
            100.0 * share
        ),
    )
}

/// How late a node learned of the ends of steps, in the phase in which this cost most.
struct LateAgreement {
    share: f64,
    mean: Nanos,
    p99: Nanos,
    /// The mean compute time of a step.
    compute: Nanos,
}

impl LateAgreement {
    fn of(ledger: &Ledger, node: &LedgerPart<'_>) -> Option<LateAgreement> {
        let of_phase = |(epoch, phase)| {
            let (seen, total) = (node.observed(epoch, phase), node.total(epoch, phase));
            let latency = seen.agreement.latency.summary()?;
            let compute = Nanos(total.compute_ns.0 / total.steps.max(1));
            let ranks = node.rows(epoch, phase).count().max(1) as f64;
            let (excess, time) =
                (seen.agreement.latency.excess(compute).seconds(), total.steps_ns().seconds());
            // Each process observed the latency of each step.
            let share = (excess / node.processes as f64) / (time / ranks).max(f64::MIN_POSITIVE);
            Some(LateAgreement { share, mean: latency.mean_ns, p99: latency.p99_ns, compute })
        };
        let phases = seen_phases(ledger).filter_map(of_phase);
        phases.max_by(|one, other| one.share.total_cmp(&other.share))
    }
}

/// An error of a clock, as a share of a step, above which it is mentioned: which node was the last is then uncertain.
const NOTABLE_ERROR: f64 = 0.1;
/// Above this, a node may begin a step before others have begun the step before it.
const LARGEST_ERROR: f64 = 1.0;

pub(super) fn clocks(ledger: &Ledger) -> RuleResult {
    let mut worst: Option<(f64, String)> = None;
    let nodes = ledger.nodes();
    for (epoch, phase) in seen_phases(ledger) {
        let total = ledger.total(epoch, phase);
        let step = Nanos(total.steps_ns().0 / total.steps.max(1));
        for node in &nodes {
            for (member, clock) in &node.observed(epoch, phase).agreement.clocks {
                let share = clock.bound_ns.0 as f64 / step.0.max(1) as f64;
                if worst.as_ref().is_none_or(|(most, _)| share > *most) {
                    let (name, bound) = (node.name().unwrap_or_default(), clock.bound_ns);
                    let what = format!(
                        "epoch {epoch}, {phase}: the clock of process {member} on {name} is known to {bound}, a \
                         step takes {step}"
                    );
                    worst = Some((share, what));
                }
            }
        }
    }
    match worst {
        None => RuleResult::not_checkable("the clocks were not compared"),
        Some((share, what)) if share > LARGEST_ERROR => RuleResult::fail(what),
        Some((share, what)) if share > NOTABLE_ERROR => RuleResult::note(what),
        Some((_, what)) => RuleResult::pass(what),
    }
}

#[cfg(test)]
mod tests;
