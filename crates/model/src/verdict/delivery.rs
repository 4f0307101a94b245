//! Rules about delivered samples: all of them, each once, with the planned size, and in a new order in every epoch.

use std::collections::BTreeMap;

use super::errors::delivered_and_failed;
use super::rules::{RUN_TO_THE_END, RuleResult, no_plan};
use super::{Case, TrainingCase, planned_phases, proof};
use crate::digest::Digest;
use crate::ledger::Phase;
use crate::order::Unit;
use crate::plan::{Discipline, FileBytes, PhasePlan, TrainingPlan};
use crate::units::{counted, grouped};

pub(super) fn complete(case: &Case<'_>) -> RuleResult {
    if let Some(fault) = case.ledger.faults().first() {
        return RuleResult::fail(format!("epoch {}, {}: {}", fault.epoch, fault.phase, fault.message));
    }
    if case.ledger.interrupted {
        return RuleResult::fail("the run was stopped before its end").with_remedy(RUN_TO_THE_END);
    }
    if let Some(missing) = case.ledger.missing_processes() {
        return RuleResult::fail(missing).with_remedy(RUN_TO_THE_END);
    }
    let Some(TrainingCase { plan, .. }) = case.training() else { return no_plan() };
    for (epoch, phase) in planned_phases(plan) {
        let (seen, planned) =
            (case.ledger.total(epoch, phase.phase).steps, phase.shards.steps * phase.shards.ranks);
        if seen != planned {
            let evidence =
                format!("epoch {epoch}, {}: {} of {} steps", phase.phase, grouped(seen), grouped(planned));
            return RuleResult::fail(evidence);
        }
    }
    RuleResult::pass(format!("{}, all steps", counted(plan.epochs, "epoch")))
}

pub(super) fn exactly_once(case: &TrainingCase<'_>) -> RuleResult {
    let (mut samples, mut failed) = (0, 0);
    for (epoch, phase) in finished_phases(case) {
        let seen = case.ledger.total(epoch, phase.phase);
        if seen.digest != expected_digest(phase, epoch) - seen.failed.digest {
            let what = proof::locate(phase, epoch, &case.ledger.node_total(epoch, phase.phase).parts);
            return RuleResult::fail(format!("epoch {epoch}, {}: {what}", phase.phase));
        }
        samples += seen.samples_delivered;
        failed += seen.failed.samples;
    }
    match samples + failed {
        0 => RuleResult::not_checkable("no epoch finished"),
        _ => RuleResult::pass(format!(
            "{}; the digest of every epoch equals the plan's",
            delivered_and_failed(samples, failed)
        )),
    }
}

/// Phases in which every step ran; `complete` reports the others.
pub(super) fn finished_phases<'a>(case: &TrainingCase<'a>) -> impl Iterator<Item = (u64, &'a PhasePlan)> {
    let ledger = case.ledger;
    case.seen_phases().filter(move |(epoch, phase)| {
        ledger.total(*epoch, phase.phase).steps == phase.shards.steps * phase.shards.ranks
    })
}

/// The digest of the samples that the plan delivers in this epoch. Computed from the delivered or the dropped samples,
/// whichever are fewer.
pub fn expected_digest(phase: &PhasePlan, epoch: u64) -> Digest {
    let shards = phase.shards;
    if shards.dropped() > shards.delivered() {
        return proof::digest_of(phase, epoch, 0..shards.delivered());
    }
    Digest::of_run(0, shards.samples) - proof::digest_of(phase, epoch, shards.delivered()..shards.samples)
}

/// For existing files, which must not be generated again.
const LIST_AGAIN: &str = "list the data set again with 'feedline catalog DIR'";

pub(super) fn bytes_as_planned(case: &TrainingCase<'_>) -> RuleResult {
    let mut bytes = 0;
    for (epoch, phase) in case.seen_phases() {
        let seen = case.ledger.total(epoch, phase.phase);
        let whole = seen.steps == phase.shards.steps * phase.shards.ranks;
        let by_plan = if whole { expected_bytes(case.plan, phase, epoch) } else { None };
        let planned = by_plan.unwrap_or(seen.bytes_planned);
        if seen.bytes_read + seen.bytes_failed != planned {
            let (read, planned) = (grouped(seen.bytes_read), grouped(planned));
            let what = format!("epoch {epoch}, {}: {read} bytes read, {planned} planned", phase.phase);
            let is_existing = case.plan.data.listed().is_some();
            return RuleResult::fail(what).with_remedy(is_existing.then_some(LIST_AGAIN));
        }
        // Too few bytes on one node and too many on another one would add up to the right number.
        for part in case.ledger.parts() {
            let seen = part.total(epoch, phase.phase);
            let (read, planned) = (seen.bytes_read + seen.bytes_failed, seen.bytes_planned);
            if let Some(name) = part.name().filter(|_| read != planned) {
                let [read, planned] = [read, planned].map(grouped);
                let place = format!("epoch {epoch}, {}, node {name}", phase.phase);
                return RuleResult::fail(format!("{place}: {read} bytes read, {planned} planned"));
            }
        }
        bytes += seen.bytes_read;
    }
    RuleResult::pass(format!("{} bytes", grouped(bytes)))
}

/// The bytes of a whole epoch, if the plan alone determines them: 0 without I/O; otherwise with one sample per file and
/// either visits of equal size or files that are read whole.
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
            let order = phase.epoch_order(epoch);
            let sum = |positions: std::ops::Range<u64>| -> u64 {
                positions.map(|position| bytes[(split.first_file + order.sample(position)) as usize]).sum()
            };
            // As with the digest: sum over the delivered or the dropped samples, whichever are fewer.
            Some(match shards.dropped() > shards.delivered() {
                true => sum(0..shards.delivered()),
                false => split.bytes.saturating_sub(sum(shards.delivered()..shards.samples)),
            })
        }
    }
}

/// Two epochs with the same order are a fault only if chance causes that less than once in this many runs.
const CHANCE: f64 = 1e6;

pub(super) fn order_differs(case: &TrainingCase<'_>) -> RuleResult {
    let order = &case.plan.train.order;
    if order.unit == Unit::None {
        return RuleResult::pass("shuffling is off: every epoch reads in listing order");
    }
    // Only delivered samples have an order. If few orders are possible, two epochs may share one by chance.
    let shards = &case.plan.train.shards;
    let pieces = order.pieces();
    let touched =
        (u128::from(pieces) * u128::from(shards.delivered())).div_ceil(u128::from(shards.samples.max(1)));
    let ln_orders: f64 = (0..touched.min(64) as u64).map(|piece| ((pieces - piece) as f64).ln()).sum();
    if ln_orders < 2.0 * (case.plan.epochs as f64).ln() + CHANCE.ln() {
        return RuleResult::pass(format!(
            "not compared: {} pieces have too few possible orders",
            grouped(pieces)
        ));
    }
    let mut orders: BTreeMap<u64, u64> = BTreeMap::new();
    for (epoch, _) in finished_phases(case).filter(|(_, phase)| phase.phase == Phase::Train) {
        let total = case.ledger.total(epoch, Phase::Train);
        if total.samples_delivered == 0 {
            continue;
        }
        if let Some(earlier) = orders.insert(total.order, epoch) {
            return RuleResult::fail(format!("epochs {earlier} and {epoch} read in the same order"));
        }
    }
    let count = orders.len() as u64;
    RuleResult::pass(format!("{}, {}", counted(count, "epoch"), counted(count, "order")))
}
