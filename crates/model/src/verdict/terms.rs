//! Rules about the terms of the measurement: whether the data was read as requested, whether the run was long enough,
//! and remarks about the data set and the host.

use std::collections::BTreeSet;

use super::delivery::finished_phases;
use super::rules::{FINISH_EPOCH, RuleResult};
use super::{RuleOutcome, TrainingCase};
use crate::ledger::{Ledger, ObservedHost, Phase};
use crate::plan::{Medium, Plan};
use crate::units::{counted, grouped};

pub(super) fn mode_as_requested(ledger: &Ledger) -> RuleResult {
    let mut found = Vec::new();
    let modes = ledger.conditions.modes.iter();
    for (property, mode) in modes.filter(|(_, mode)| !mode.requested.is_empty()) {
        let (requested, observed) = (listed(&mode.requested), listed(&mode.observed));
        if mode.observed.is_empty() {
            return RuleResult::fail(format!("{property}: requested {requested}, observed nothing"));
        }
        if mode.requested != mode.observed {
            return RuleResult::fail(format!("{property}: requested {requested}, observed {observed}"));
        }
        found.push(format!("{property} {observed}"));
    }
    match found.is_empty() {
        true => RuleResult::not_checkable("the ledger does not record how the data was read"),
        false => RuleResult::pass(found.join(", ")),
    }
}

pub(super) fn settings_honoured(ledger: &Ledger) -> RuleResult {
    let settings: Vec<&str> = ledger.conditions.unhonoured.iter().map(String::as_str).collect();
    match settings.is_empty() {
        true => RuleResult::pass("all"),
        false => RuleResult::fail(format!("no effect in this version: {}", settings.join(", "))),
    }
}

/// The figures are right for what was requested, but differ from those of feedline's own behaviour.
pub(super) fn semantics(plan: &Plan) -> RuleResult {
    RuleResult::note(format!("DLIO's behaviour was requested: {}", plan.compat.join(", ")))
}

/// With fewer steps in the metric window, AU and rates show a moment, not the storage.
const FEWEST_STEPS: u64 = 5;

pub(super) fn window(case: &TrainingCase<'_>) -> RuleResult {
    let train = finished_phases(case).filter(|(_, phase)| phase.phase == Phase::Train);
    let shortest = train
        .flat_map(|(epoch, _)| {
            case.ledger.rows(epoch, Phase::Train).map(move |row| (row.1.window.steps, epoch))
        })
        .min();
    match shortest {
        None => RuleResult::not_checkable("no epoch finished").with_remedy(FINISH_EPOCH),
        Some((0, epoch)) => RuleResult::fail(format!("epoch {epoch}: no step is in the metric window")),
        Some((steps, epoch)) if steps < FEWEST_STEPS => RuleResult::not_checkable(format!(
            "epoch {epoch}: only {} in the metric window",
            counted(steps, "step")
        )),
        Some((steps, _)) => RuleResult::pass(format!("{} in every epoch", counted(steps, "step"))),
    }
}

/// MLPerf Storage requires more data than fits in memory. Here every epoch proves where its bytes came from, so a
/// smaller data set is not a fault; but the result does not compare with MLPerf's.
pub(super) fn data_set_size(case: &TrainingCase<'_>) -> RuleResult {
    let plan = case.plan;
    if matches!(plan.store.medium, Medium::Simulated | Medium::Null) {
        return RuleResult::pass("the backend stores no files");
    }
    let (files, rule) = (plan.data.train.files, plan.estimate.mlperf);
    let outcome = if rule.satisfied { RuleOutcome::Pass } else { RuleOutcome::Note };
    let [files, steps, memory] = [files, rule.steps_floor_files, rule.memory_floor_files].map(grouped);
    RuleResult::new(
        outcome,
        format!("{files} files; 500 steps need {steps}, 5 times the memory needs {memory}"),
    )
}

/// Clocks that are read without a system call. Others take a microsecond, thousands of times per second.
const FAST_CLOCKS: [&str; 4] = ["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"];
/// The shares of CPU time that the hypervisor may take and that other processes may use.
const STOLEN_LIMIT: f64 = 0.05;
const FOREIGN_LIMIT: f64 = 0.20;

pub(super) fn host(ledger: &Ledger) -> RuleResult {
    let hosts = &ledger.conditions.hosts;
    if hosts.is_empty() {
        return RuleResult::note("the ledger has no facts about the host")
            .with_remedy("run again with this version of feedline");
    }
    let bad: Vec<String> = hosts
        .iter()
        .flat_map(|(name, seen)| complaints(seen).into_iter().map(move |what| format!("{name}: {what}")))
        .collect();
    if !bad.is_empty() {
        return RuleResult::note(bad.join("; "));
    }
    let usual: BTreeSet<String> = hosts.values().map(usual).collect();
    RuleResult::pass(listed(&usual))
}

fn complaints(seen: &ObservedHost) -> Vec<String> {
    let mut bad: Vec<String> = Vec::new();
    let slow = seen.clock_sources.iter().filter(|clock| !FAST_CLOCKS.contains(&clock.as_str()));
    bad.extend(slow.map(|clock| format!("the clock source is {clock}, which is slow to read")));
    if seen.readings == 0 {
        bad.push("the kernel does not report CPU times, so interference is unknown".to_owned());
        return bad;
    }
    let share = |ticks: u64| ticks as f64 / seen.ticks.max(1) as f64;
    if share(seen.stolen_ticks) > STOLEN_LIMIT {
        bad.push(format!("the hypervisor took {:.0} % of CPU time", 100.0 * share(seen.stolen_ticks)));
    }
    if share(seen.foreign_ticks) > FOREIGN_LIMIT {
        bad.push(format!("other processes used {:.0} % of CPU time", 100.0 * share(seen.foreign_ticks)));
    }
    if seen.swapped_in_pages > 0 {
        bad.push(format!("{} read back from swap", counted(seen.swapped_in_pages, "page")));
    }
    bad
}

fn usual(seen: &ObservedHost) -> String {
    let (kernels, clocks) = (listed(&seen.kernels), listed(&seen.clock_sources));
    let limits = match seen.limits.is_empty() {
        true => String::new(),
        false => format!(", limited: {}", listed(&seen.limits)),
    };
    format!("kernel {kernels}, clock {clocks}, no interference{limits}")
}

fn listed(values: &BTreeSet<String>) -> String {
    values.iter().map(String::as_str).collect::<Vec<_>>().join(" and ")
}
