//! Whether prefetching inflated the figures. The metric window excludes the first steps, in which readers fill the
//! queues. The window uses those batches without waiting for them, so a short window can show a rate that the storage
//! never reached.

use super::delivery::finished_phases;
use super::rules::{FINISH_EPOCH, RuleResult};
use super::{RuleOutcome, TrainingCase, worst_part};
use crate::ledger::{LedgerPart, Phase, RankRow};
use crate::units::{Nanos, grouped};

/// If the window is short, the rate over the whole epoch must reach this share of the rate in the window. It is also
/// the share of a long window's batches that cannot have been prefetched before it.
const CONFIRMED: f64 = 0.95;

pub(super) fn window_long_enough(case: &TrainingCase<'_>) -> RuleResult {
    worst_part(case.ledger, |part| window_long_enough_in(case, part))
}

fn window_long_enough_in(case: &TrainingCase<'_>, part: &LedgerPart<'_>) -> RuleResult {
    let (ahead, needed) = (case.plan.batches_ahead(), case.plan.steps_to_measure(case.checkpoint));
    if ahead == 0 {
        return RuleResult::pass("nothing is read in advance");
    }
    let train = finished_phases(case).filter(|(_, phase)| phase.phase == Phase::Train);
    let mut shortest: Option<EpochWindow> = None;
    for (epoch, _) in train {
        let seen = EpochWindow::new(epoch, part.rows(epoch, Phase::Train).map(|(_, row)| row));
        if seen.steps < needed && seen.confirmed < CONFIRMED {
            shortest = Some(seen);
            break;
        }
        let is_shorter = shortest.as_ref().is_none_or(|other| seen.steps < other.steps);
        shortest = if is_shorter { Some(seen) } else { shortest };
    }
    let Some(EpochWindow { epoch, steps, confirmed }) = shortest else {
        return RuleResult::not_checkable("no epoch finished").with_remedy(FINISH_EPOCH);
    };
    let evidence = format!(
        "epoch {epoch}: {} steps in the metric window, batches ready in advance: at most {}",
        grouped(steps),
        grouped(ahead)
    );
    if steps >= needed {
        return RuleResult::pass(evidence);
    }
    let outcome = if confirmed >= CONFIRMED { RuleOutcome::Pass } else { RuleOutcome::NotCheckable };
    let percent = 100.0 * confirmed;
    RuleResult::new(
        outcome,
        format!("{evidence}; the rate over the whole epoch is {percent:.0} % of the rate in the window"),
    )
}

/// An epoch of training.
struct EpochWindow {
    epoch: u64,
    /// Steps in the window of the rank with the fewest.
    steps: u64,
    /// The step rate over the whole epoch, with first steps and checkpoints, as a share of the rate in the window.
    confirmed: f64,
}

impl EpochWindow {
    fn new<'a>(epoch: u64, rows: impl Iterator<Item = &'a RankRow>) -> EpochWindow {
        let (mut fewest, mut whole, mut window) = (u64::MAX, 0.0, 0.0);
        for row in rows {
            fewest = fewest.min(row.window.steps);
            whole += rate(row.steps, row.steps_ns() + row.checkpoint_ns);
            window += rate(row.window.steps, row.window.time_ns);
        }
        // A window that takes no time has no rate to confirm.
        let confirmed = if window.is_finite() { whole / window } else { 0.0 };
        EpochWindow { epoch, steps: fewest, confirmed }
    }
}

fn rate(steps: u64, time: Nanos) -> f64 {
    steps as f64 / time.seconds()
}
