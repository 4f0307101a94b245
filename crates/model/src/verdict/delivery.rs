//! Rules about what was delivered: everything, once, of the planned size, in an order of its own.

use std::collections::BTreeMap;

use super::errors::delivered_and_failed;
use super::rules::no_plan;
use super::{Case, Outcome, TrainingCase, planned_phases, proof};
use crate::digest::Digest;
use crate::ledger::Phase;
use crate::order::Unit;
use crate::plan::{Discipline, FileBytes, PhasePlan, TrainingPlan};
use crate::units::{counted, grouped};

pub(super) fn complete(case: &Case<'_>) -> (Outcome, String) {
    if let Some(fault) = case.ledger.faults().first() {
        return (Outcome::Fail, format!("epoch {}, {}: {}", fault.epoch, fault.phase, fault.message));
    }
    if case.ledger.interrupted {
        return (Outcome::Fail, "the run was asked to stop".to_owned());
    }
    let Some(TrainingCase { plan, .. }) = case.training() else { return no_plan() };
    for (epoch, phase) in planned_phases(plan) {
        let (seen, planned) =
            (case.ledger.total(epoch, phase.phase).steps, phase.shards.steps * phase.shards.ranks);
        if seen != planned {
            let evidence =
                format!("epoch {epoch}, {}: {} of {} steps", phase.phase, grouped(seen), grouped(planned));
            return (Outcome::Fail, evidence);
        }
    }
    (Outcome::Pass, format!("{}, all steps", counted(plan.epochs, "epoch")))
}

pub(super) fn exactly_once(case: &TrainingCase<'_>) -> (Outcome, String) {
    let (mut samples, mut failed) = (0, 0);
    for (epoch, phase) in finished_phases(case) {
        let seen = case.ledger.total(epoch, phase.phase);
        if seen.digest != expected_digest(phase, epoch) - seen.failed.digest {
            let what = proof::locate(phase, epoch, &case.ledger.node_total(epoch, phase.phase).parts);
            return (Outcome::Fail, format!("epoch {epoch}, {}: {what}", phase.phase));
        }
        samples += seen.samples_delivered;
        failed += seen.failed.samples;
    }
    match samples + failed {
        0 => (Outcome::NotCheckable, "no epoch was finished".to_owned()),
        _ => (
            Outcome::Pass,
            format!("{}, digest equal to the plan's in every epoch", delivered_and_failed(samples, failed)),
        ),
    }
}

/// Phases whose every step was done; an unfinished one is the business of `complete`.
pub(super) fn finished_phases<'a>(case: &TrainingCase<'a>) -> impl Iterator<Item = (u64, &'a PhasePlan)> {
    let ledger = case.ledger;
    case.seen_phases().filter(move |(epoch, phase)| {
        ledger.total(*epoch, phase.phase).steps == phase.shards.steps * phase.shards.ranks
    })
}

/// The digest of the samples that the plan deals out in this epoch: all samples less those it drops, or those it
/// delivers, whichever are fewer.
pub fn expected_digest(phase: &PhasePlan, epoch: u64) -> Digest {
    let shards = phase.shards;
    if shards.dropped() > shards.delivered() {
        return proof::digest_of(phase, epoch, 0..shards.delivered());
    }
    Digest::of_run(0, shards.samples) - proof::digest_of(phase, epoch, shards.delivered()..shards.samples)
}

pub(super) fn bytes_as_planned(case: &TrainingCase<'_>) -> (Outcome, String) {
    let mut bytes = 0;
    for (epoch, phase) in case.seen_phases() {
        let seen = case.ledger.total(epoch, phase.phase);
        let whole = seen.steps == phase.shards.steps * phase.shards.ranks;
        let by_plan = if whole { expected_bytes(case.plan, phase, epoch) } else { None };
        let planned = by_plan.unwrap_or(seen.bytes_planned);
        if seen.bytes_read + seen.bytes_failed != planned {
            let (read, planned) = (grouped(seen.bytes_read), grouped(planned));
            return (
                Outcome::Fail,
                format!("epoch {epoch}, {}: {read} bytes read, {planned} planned", phase.phase),
            );
        }
        bytes += seen.bytes_read;
    }
    (Outcome::Pass, format!("{} bytes", grouped(bytes)))
}

/// The bytes of a whole epoch, where the plan alone can tell: none without I/O; else with one sample per file, and
/// either all visits alike or files that are read whole.
fn expected_bytes(plan: &TrainingPlan, phase: &PhasePlan, epoch: u64) -> Option<u64> {
    let (split, shards) = (plan.split(phase.phase), phase.shards);
    if plan.loader.discipline == Discipline::Synthetic {
        return Some(0);
    }
    if split.samples_per_file != 1 || !plan.data.exact {
        return None;
    }
    match plan.data.computed()?.all_file_bytes() {
        FileBytes::Same(_) => plan.data.visit_bytes.map(|bytes| shards.delivered() * bytes),
        FileBytes::Each(bytes) if bytes.first().copied() != plan.data.visit_bytes => None,
        FileBytes::Each(bytes) => {
            let order = phase.order.epoch(epoch);
            let sum = |positions: std::ops::Range<u64>| -> u64 {
                positions.map(|position| bytes[(split.first_file + order.sample(position)) as usize]).sum()
            };
            // As with the digest: over those that are dropped where they are fewer.
            Some(match shards.dropped() > shards.delivered() {
                true => sum(0..shards.delivered()),
                false => split.bytes.saturating_sub(sum(shards.delivered()..shards.samples)),
            })
        }
    }
}

/// Two epochs count as alike only where chance would make them so less than once in this many runs.
const CHANCE: f64 = 1e6;

pub(super) fn order_differs(case: &TrainingCase<'_>) -> (Outcome, String) {
    let order = &case.plan.train.order;
    if order.unit == Unit::None {
        return (Outcome::Pass, "shuffling is off: every epoch reads in listing order".to_owned());
    }
    // Only what is delivered has an order. Where that leaves few orders, two epochs may share one by chance.
    let shards = &case.plan.train.shards;
    let pieces = order.pieces();
    let touched =
        (u128::from(pieces) * u128::from(shards.delivered())).div_ceil(u128::from(shards.samples.max(1)));
    let ln_orders: f64 = (0..touched.min(64) as u64).map(|piece| ((pieces - piece) as f64).ln()).sum();
    if ln_orders < 2.0 * (case.plan.epochs as f64).ln() + CHANCE.ln() {
        return (Outcome::Pass, format!("{} pieces have too few orders to tell", grouped(pieces)));
    }
    let mut orders: BTreeMap<u64, u64> = BTreeMap::new();
    for (epoch, _) in finished_phases(case).filter(|(_, phase)| phase.phase == Phase::Train) {
        if let Some(earlier) = orders.insert(case.ledger.total(epoch, Phase::Train).order, epoch) {
            return (Outcome::Fail, format!("epochs {earlier} and {epoch} read in the same order"));
        }
    }
    (Outcome::Pass, {
        let count = orders.len() as u64;
        format!("{}, {}", counted(count, "epoch"), counted(count, "order"))
    })
}
