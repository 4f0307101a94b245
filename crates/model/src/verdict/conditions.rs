//! Rules about the instrument: whether it kept up, and whether what was measured is the storage.

use super::{Case, Outcome, TrainingCase, seen_phases};
use crate::ledger::{Ledger, Phase};
use crate::metrics::Figures;
use crate::plan::Plan;
use crate::units::Nanos;

/// The share of the accelerators' time that the host's lateness may have cost. A batch handed over late shifts no step
/// on the timeline; it only lets a reader begin late, which can do no more harm than there was waiting for data.
const LATENESS_LIMIT: f64 = 0.02;
/// Time per rank below which one late wake-up decides the share.
const SHORTEST: Nanos = Nanos(100_000_000);

pub(super) fn on_time(case: &Case<'_>) -> (Outcome, String) {
    let [mut late, mut waited, mut time, mut compute] = [Nanos::ZERO; 4];
    let mut steps = 0;
    for (epoch, phase) in seen_phases(case.ledger) {
        let seen = case.ledger.total(epoch, phase);
        late += seen.lateness_ns_sum;
        waited += seen.wait_ns;
        compute += seen.compute_ns;
        time += seen.wait_ns + seen.copy_ns + seen.compute_ns + seen.barrier_ns;
        steps += seen.steps;
    }
    let ranks = ranks(case.ledger);
    if compute == Nanos::ZERO && case.plan.is_some_and(Plan::is_simulated) {
        // Requests of a simulated device follow one another on its own timeline: how far the host was behind it on
        // average is what the rates may be wrong by.
        let behind = late.0 as f64 / steps.max(1) as f64;
        let share = behind * ranks as f64 / time.0.max(1) as f64;
        let outcome = if share <= LATENESS_LIMIT { Outcome::Pass } else { Outcome::Fail };
        return (outcome, format!("behind the device by {:.2} % of the time", 100.0 * share));
    }
    if compute == Nanos::ZERO {
        return (Outcome::Pass, "steps have no compute time: there is no timeline to lag behind".to_owned());
    }
    if time < Nanos(ranks.saturating_mul(SHORTEST.0)) {
        return (Outcome::NotCheckable, "the run is too short to tell".to_owned());
    }
    let share = |span: Nanos| span.0 as f64 / time.0.max(1) as f64;
    let outcome = if share(late.min(waited)) <= LATENESS_LIMIT { Outcome::Pass } else { Outcome::Fail };
    let percent = |span| 100.0 * share(span);
    (
        outcome,
        format!(
            "late by {:.2} % of the time; waiting for data took {:.2} % of it",
            percent(late),
            percent(waited)
        ),
    )
}

/// Ranks that did something.
fn ranks(ledger: &Ledger) -> u64 {
    let rows = seen_phases(ledger).map(|(epoch, phase)| ledger.rows(epoch, phase).count() as u64);
    rows.max().unwrap_or(0)
}

/// Without compute time there is no AU: then a run that comes this near to the null store's rate measured the client.
const NEAR_CEILING: f64 = 0.8;
/// Steps without compute time that a rate can be told from; fewer are over before the readers have all started.
const RATE_STEPS: u64 = 200;

/// A host whose cores are busier than this has none to spare for waiting on storage.
const CPU_LIMIT: f64 = 0.95;

/// The share of the host's CPU time that the run took.
fn cpu_share(case: &TrainingCase<'_>) -> Option<f64> {
    let nodes = seen_phases(case.ledger).map(|(epoch, phase)| case.ledger.node_total(epoch, phase));
    let (cpu, cores) =
        nodes.fold((Nanos::ZERO, Nanos::ZERO), |sum, node| (sum.0 + node.cpu_ns, sum.1 + node.core_ns));
    (cores > Nanos::ZERO).then(|| cpu.0 as f64 / cores.0 as f64)
}

pub(super) fn client_not_the_limit(case: &TrainingCase<'_>) -> (Outcome, String) {
    if case.plan.store.is_null() {
        return (Outcome::Pass, "this run is the ceiling".to_owned());
    }
    let Some(own) = case.ledger.calibration else {
        return (Outcome::NotCheckable, "the instrument's own ceiling was not measured".to_owned());
    };
    let figures = Figures::new(case.ledger, Phase::Train);
    let Some((au, rate)) =
        figures.and_then(|figures| Some((figures.au_percent, figures.samples_per_second?)))
    else {
        return (Outcome::NotCheckable, "nothing was measured".to_owned());
    };
    let (au_percent, rate) = (au.map(|au| au.mean), rate.mean);
    match (own.au_percent, own.samples_per_second) {
        (Some(ceiling), _) => {
            // Half-way between the target and perfection: nearer to the target, the instrument decides who passes.
            let target = 100.0 * case.plan.metric.au_target;
            let needed = f64::midpoint(target, 100.0);
            let met = au_percent.is_some_and(|au| au >= target);
            if let Some(busy) = cpu_share(case).filter(|busy| !met && *busy > CPU_LIMIT) {
                return (
                    Outcome::Fail,
                    format!("the host's cores were busy {:.0} % of the time", 100.0 * busy),
                );
            }
            let outcome = if met || ceiling >= needed { Outcome::Pass } else { Outcome::Fail };
            (
                outcome,
                format!(
                    "AU {ceiling:.2} % on the null store, where the target {target:.0} % needs {needed:.1} %"
                ),
            )
        }
        (None, Some(_)) if own.steps < RATE_STEPS => {
            (Outcome::NotCheckable, format!("{} steps without compute time are too few to tell", own.steps))
        }
        (None, Some(ceiling)) => {
            let outcome = if rate <= NEAR_CEILING * ceiling { Outcome::Pass } else { Outcome::Fail };
            (outcome, format!("{rate:.0} samples/s, on the null store {ceiling:.0}"))
        }
        (None, None) => (Outcome::NotCheckable, "the instrument's own ceiling is not measurable".to_owned()),
    }
}
