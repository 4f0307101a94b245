//! Rules about feedline and its host: whether they kept up, and whether the storage was the limit.

use super::rules::{FINISH_EPOCH, RuleResult};
use super::{Case, RuleOutcome, TrainingCase, seen_phases, worst_part};
use crate::ledger::{Ledger, LedgerPart, Phase};
use crate::metrics::Figures;
use crate::plan::Plan;
use crate::units::Nanos;

/// The share of the accelerators' time that delays of the host may cost. A batch that is delivered late does not move a
/// step on the timeline; it only lets a reader start late, which costs at most the time spent waiting for data.
const LATENESS_LIMIT: f64 = 0.02;
/// With less time per rank, a single late wake-up dominates the share.
const SHORTEST: Nanos = Nanos(100_000_000);

pub(super) fn on_time(case: &Case<'_>) -> RuleResult {
    worst_part(case.ledger, |part| on_time_in(case, part))
}

fn on_time_in(case: &Case<'_>, part: &LedgerPart<'_>) -> RuleResult {
    let [mut late, mut waited, mut time, mut compute] = [Nanos::ZERO; 4];
    let mut steps = 0;
    for (epoch, phase) in seen_phases(case.ledger) {
        let seen = part.total(epoch, phase);
        late += seen.lateness_ns_sum;
        waited += seen.wait_ns;
        compute += seen.compute_ns;
        time += seen.wait_ns + seen.copy_ns + seen.compute_ns + seen.barrier_ns;
        steps += seen.steps;
    }
    let rows = seen_phases(case.ledger).map(|(epoch, phase)| part.rows(epoch, phase).count() as u64);
    let ranks = rows.max().unwrap_or(0);
    if compute == Nanos::ZERO && case.plan.is_some_and(Plan::is_simulated) {
        // Requests to a simulated device follow its own timeline. The rates are wrong by at most the average lag of
        // the host behind it.
        let behind = late.0 as f64 / steps.max(1) as f64;
        let share = behind * ranks as f64 / time.0.max(1) as f64;
        let outcome = if share <= LATENESS_LIMIT { RuleOutcome::Pass } else { RuleOutcome::Fail };
        let evidence =
            format!("the host lagged behind the simulated device by {:.2} % of the time", 100.0 * share);
        return RuleResult::new(outcome, evidence);
    }
    if compute == Nanos::ZERO {
        return RuleResult::pass("steps have no compute time, so no delay can affect them");
    }
    if time < Nanos(ranks.saturating_mul(SHORTEST.0)) {
        return RuleResult::not_checkable("the run is too short");
    }
    let share = |span: Nanos| span.0 as f64 / time.0.max(1) as f64;
    let outcome =
        if share(late.min(waited)) <= LATENESS_LIMIT { RuleOutcome::Pass } else { RuleOutcome::Fail };
    let percent = |span| 100.0 * share(span);
    RuleResult::new(
        outcome,
        format!(
            "the host was late by {:.2} % of the time; accelerators waited for data {:.2} % of the time",
            percent(late),
            percent(waited)
        ),
    )
}

/// Without compute time there is no AU. A run above this share of the null backend's rate measured the client.
const NEAR_CEILING: f64 = 0.8;
/// Steps without compute time that give a reliable rate; fewer end before all readers have started.
const RATE_STEPS: u64 = 200;

/// A host with busier cores may limit the rate itself.
const CPU_LIMIT: f64 = 0.95;

/// The share of a host's CPU time that the run used.
fn cpu_share(ledger: &Ledger, part: &LedgerPart<'_>) -> Option<f64> {
    let [mut cpu, mut cores] = [Nanos::ZERO; 2];
    for (epoch, phase) in seen_phases(ledger) {
        let seen = part.observed(epoch, phase);
        cpu += seen.cpu_ns;
        cores += seen.core_ns;
    }
    (cores > Nanos::ZERO).then(|| cpu.0 as f64 / cores.0 as f64)
}

/// A host whose cores were too busy, as text.
fn busy_host(ledger: &Ledger) -> Option<String> {
    ledger.parts().iter().find_map(|part| {
        let busy = cpu_share(ledger, part).filter(|busy| *busy > CPU_LIMIT)?;
        let place = part.name().map_or(String::new(), |name| format!(" on node {name}"));
        Some(format!("CPU cores{place} were busy {:.0} % of the time", 100.0 * busy))
    })
}

pub(super) fn client_not_the_limit(case: &TrainingCase<'_>) -> RuleResult {
    if case.plan.store.is_null() {
        return RuleResult::pass("this run measures the ceiling itself");
    }
    let Some(own) = case.ledger.calibration else {
        return RuleResult::not_checkable("feedline's own ceiling was not measured").with_remedy(
            "remove --no-calibration; without it, the calibration itself failed: use a longer run",
        );
    };
    let figures = Figures::new(case.ledger, Phase::Train);
    let Some((au, rate)) =
        figures.and_then(|figures| Some((figures.au_percent, figures.samples_per_second?)))
    else {
        return RuleResult::not_checkable("nothing was measured").with_remedy(FINISH_EPOCH);
    };
    let (au_percent, rate) = (au.map(|au| au.mean), rate.mean);
    match (own.au_percent, own.samples_per_second) {
        (Some(ceiling), _) => {
            // Half-way between the target and 100 %: a lower ceiling would decide whether a storage passes.
            let (target, highest) = (100.0 * case.plan.metric.au_target, case.plan.highest_au_percent());
            let needed = highest / 100.0 * f64::midpoint(target, 100.0);
            let met = au_percent.is_some_and(|au| au >= target);
            if let Some(busy) = busy_host(case.ledger).filter(|_| !met) {
                return RuleResult::fail(busy);
            }
            let outcome = if met || ceiling >= needed { RuleOutcome::Pass } else { RuleOutcome::Fail };
            let mut evidence = format!(
                "AU {ceiling:.2} % on the null backend; a target of {target:.0} % needs {needed:.1} %"
            );
            if highest < 100.0 {
                evidence += &format!(", because train.handover_time leaves at most {highest:.1} %");
            }
            RuleResult::new(outcome, evidence)
        }
        (None, Some(_)) if own.steps < RATE_STEPS => RuleResult::not_checkable(format!(
            "calibration had only {} steps without compute time",
            own.steps
        )),
        (None, Some(ceiling)) => {
            let outcome = if rate <= NEAR_CEILING * ceiling { RuleOutcome::Pass } else { RuleOutcome::Fail };
            RuleResult::new(outcome, format!("{rate:.0} samples/s; {ceiling:.0} on the null backend"))
        }
        (None, None) => RuleResult::not_checkable("calibration gave no rate"),
    }
}
