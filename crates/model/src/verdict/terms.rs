//! Rules about the terms of the measurement: whether the data was read as it was asked for, whether there is enough to
//! judge by, and what is worth knowing about data set and host.

use std::collections::BTreeSet;

use super::delivery::finished_phases;
use super::{Outcome, TrainingCase};
use crate::ledger::{HostSeen, Ledger, Phase};
use crate::plan::Medium;
use crate::units::{counted, grouped};

pub(super) fn mode_as_requested(ledger: &Ledger) -> (Outcome, String) {
    let mut found = Vec::new();
    let modes = ledger.conditions.modes.iter();
    for (property, mode) in modes.filter(|(_, mode)| !mode.requested.is_empty()) {
        let (requested, observed) = (listed(&mode.requested), listed(&mode.observed));
        if mode.observed.is_empty() {
            return (Outcome::Fail, format!("{property}: {requested} was asked for, and nothing observed"));
        }
        if mode.requested != mode.observed {
            return (Outcome::Fail, format!("{property}: {requested} was asked for, {observed} observed"));
        }
        found.push(format!("{property} {observed}"));
    }
    match found.is_empty() {
        true => (Outcome::NotCheckable, "the ledger does not say how the data was read".to_owned()),
        false => (Outcome::Pass, found.join(", ")),
    }
}

pub(super) fn settings_honoured(ledger: &Ledger) -> (Outcome, String) {
    let settings: Vec<&str> = ledger.conditions.unhonoured.iter().map(String::as_str).collect();
    match settings.is_empty() {
        true => (Outcome::Pass, "all".to_owned()),
        false => (Outcome::Fail, format!("without effect in this version: {}", settings.join(", "))),
    }
}

/// Steps in the metric window below which AU and rates are those of a moment and not of the storage.
const FEWEST_STEPS: u64 = 5;

pub(super) fn window(case: &TrainingCase<'_>) -> (Outcome, String) {
    let train = finished_phases(case).filter(|(_, phase)| phase.phase == Phase::Train);
    let shortest = train
        .flat_map(|(epoch, _)| {
            case.ledger.rows(epoch, Phase::Train).map(move |row| (row.1.window.steps, epoch))
        })
        .min();
    match shortest {
        None => (Outcome::NotCheckable, "no epoch was finished".to_owned()),
        Some((0, epoch)) => (Outcome::Fail, format!("epoch {epoch}: no step is left to measure")),
        Some((steps, epoch)) if steps < FEWEST_STEPS => {
            (Outcome::NotCheckable, format!("epoch {epoch}: {} are too few to tell", counted(steps, "step")))
        }
        Some((steps, _)) => (Outcome::Pass, format!("{} in every epoch", counted(steps, "step"))),
    }
}

/// MLPerf Storage asks for so much data that memory cannot hold it. Here every epoch proves where its bytes came from,
/// so that a smaller data set is no fault; but it makes another result than MLPerf's.
pub(super) fn data_set_size(case: &TrainingCase<'_>) -> (Outcome, String) {
    let plan = case.plan;
    if plan.store.medium != Medium::Storage {
        return (Outcome::Pass, "the store holds no files".to_owned());
    }
    let (files, rule) = (plan.data.train.files, plan.estimate.mlperf);
    let outcome = if rule.satisfied { Outcome::Pass } else { Outcome::Note };
    let [files, steps, memory] = [files, rule.steps_floor_files, rule.memory_floor_files].map(grouped);
    (outcome, format!("{files} files; 500 steps take {steps}, 5 times the memory {memory}"))
}

/// Clocks that are read without a call to the kernel. Others take a microsecond, thousands of times per second.
const QUICK_CLOCKS: [&str; 4] = ["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"];
/// Shares of the host's CPU time that the hypervisor may take, and that others on the host may use.
const STOLEN_LIMIT: f64 = 0.05;
const FOREIGN_LIMIT: f64 = 0.20;

pub(super) fn host(ledger: &Ledger) -> (Outcome, String) {
    let hosts = &ledger.conditions.hosts;
    if hosts.is_empty() {
        return (Outcome::Note, "the ledger says nothing about it".to_owned());
    }
    let bad: Vec<String> = hosts
        .iter()
        .flat_map(|(name, seen)| complaints(seen).into_iter().map(move |what| format!("{name}: {what}")))
        .collect();
    if !bad.is_empty() {
        return (Outcome::Note, bad.join("; "));
    }
    let usual: BTreeSet<String> = hosts.values().map(usual).collect();
    (Outcome::Pass, listed(&usual))
}

fn complaints(seen: &HostSeen) -> Vec<String> {
    let mut bad: Vec<String> = Vec::new();
    let slow = seen.clock_sources.iter().filter(|clock| !QUICK_CLOCKS.contains(&clock.as_str()));
    bad.extend(slow.map(|clock| format!("the clock is {clock}, which takes long to read")));
    if seen.readings == 0 {
        bad.push("the kernel does not tell what else it was busy with".to_owned());
        return bad;
    }
    let share = |ticks: u64| ticks as f64 / seen.ticks.max(1) as f64;
    if share(seen.stolen_ticks) > STOLEN_LIMIT {
        bad.push(format!("the hypervisor took {:.0} % of the CPU time", 100.0 * share(seen.stolen_ticks)));
    }
    if share(seen.foreign_ticks) > FOREIGN_LIMIT {
        bad.push(format!("others used {:.0} % of the CPU time", 100.0 * share(seen.foreign_ticks)));
    }
    if seen.swapped_in_pages > 0 {
        bad.push(format!("{} came back from swap", counted(seen.swapped_in_pages, "page")));
    }
    bad
}

fn usual(seen: &HostSeen) -> String {
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
