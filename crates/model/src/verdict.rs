//! Whether the number may be believed. One table of rules, each with its threshold, its evidence from the ledger and
//! its remedy; the verdict follows from the rules and from nothing else.

mod proof;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ledger::{Ledger, Phase};
use crate::metrics::{Figures, Spread};
use crate::order::Unit;
use crate::plan::{FileBytes, PhasePlan, Plan};
use crate::units::{Nanos, counted, grouped};

/// What the run as a whole is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every rule was checked and holds.
    Valid,
    /// A rule is broken: the figures do not mean what they say.
    Invalid,
    /// No rule is broken, but something could not be checked.
    Unverified,
    /// The run did not reach its end.
    Incomplete,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Status::Valid => "valid",
            Status::Invalid => "invalid",
            Status::Unverified => "unverified",
            Status::Incomplete => "incomplete",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Pass,
    Fail,
    NotCheckable,
}

/// One rule, applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub rule: String,
    pub outcome: Outcome,
    pub threshold: String,
    pub evidence: String,
    /// What to do about it; empty when the rule holds.
    pub remedy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub status: Status,
    pub rules: Vec<Finding>,
}

/// What the rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub plan: &'a Plan,
    pub ledger: &'a Ledger,
    /// Settings that the user gave, that change what is measured, and that this version cannot honour.
    pub unhonoured: &'a [String],
}

struct Rule {
    name: &'static str,
    threshold: &'static str,
    /// What to do when the rule is broken, and when it could not be checked.
    remedy: &'static str,
    unchecked: &'static str,
    check: fn(&Case<'_>) -> (Outcome, String),
}

const RULES: &[Rule] = &[
    Rule {
        name: "complete",
        threshold: "every planned epoch and step",
        remedy: "remove the cause named in the evidence and run again",
        unchecked: "",
        check: complete,
    },
    Rule {
        name: "exactly-once",
        threshold: "each planned sample once, no other",
        remedy: "this is a fault of feedline: please report it with the ledger",
        unchecked: "finish at least one epoch",
        check: exactly_once,
    },
    Rule {
        name: "bytes-as-planned",
        threshold: "bytes read = bytes planned",
        remedy: "generate the data set again with the settings of this run",
        unchecked: "",
        check: bytes_as_planned,
    },
    Rule {
        name: "order-differs",
        threshold: "no two shuffled epochs alike",
        remedy: "leave train.seed_change_epoch on, or turn the shuffles off",
        unchecked: "",
        check: order_differs,
    },
    Rule {
        name: "on-time",
        threshold: "the host's lateness can have cost at most 2 % of the accelerators' time",
        remedy: "use fewer ranks per host, or a host with more cores",
        unchecked: "use a longer run",
        check: on_time,
    },
    Rule {
        name: "client-not-the-limit",
        threshold: "the instrument's own ceiling lies well above what was measured or wanted",
        remedy: "use fewer ranks per host, or a host with more cores",
        unchecked: "leave out --no-calibration, or use a longer run",
        check: client_not_the_limit,
    },
    Rule {
        name: "settings-honoured",
        threshold: "every setting that changes what is measured took effect",
        remedy: "remove the settings named in the evidence",
        unchecked: "",
        check: settings_honoured,
    },
    Rule {
        name: "served-by-storage",
        threshold: "bytes came from the storage and not from memory",
        remedy: "read files of at least 5 times the memory, or drop the page cache before the run",
        unchecked: "read files of at least 5 times the memory, or drop the page cache before the run",
        check: served_by_storage,
    },
];

/// Applies every rule.
pub fn judge(case: &Case<'_>) -> Verdict {
    let rules: Vec<Finding> = RULES.iter().map(|rule| apply(rule, case)).collect();
    let outcome_of =
        |name: &str| rules.iter().find(|finding| finding.rule == name).map(|finding| finding.outcome);
    let any = |outcome| rules.iter().any(|finding| finding.outcome == outcome);
    let status = if outcome_of("complete") == Some(Outcome::Fail) {
        Status::Incomplete
    } else if any(Outcome::Fail) {
        Status::Invalid
    } else if any(Outcome::NotCheckable) {
        Status::Unverified
    } else {
        Status::Valid
    };
    Verdict { status, rules }
}

fn apply(rule: &Rule, case: &Case<'_>) -> Finding {
    let (outcome, evidence) = (rule.check)(case);
    let remedy = match outcome {
        Outcome::Pass => "",
        Outcome::Fail => rule.remedy,
        Outcome::NotCheckable => rule.unchecked,
    };
    Finding {
        rule: rule.name.to_owned(),
        outcome,
        threshold: rule.threshold.to_owned(),
        evidence,
        remedy: remedy.to_owned(),
    }
}

/// Each phase of each epoch that the plan has. There may be very many: take them one by one, and stop.
fn planned_phases(plan: &Plan) -> impl Iterator<Item = (u64, &PhasePlan)> {
    (1..=plan.epochs).flat_map(|epoch| plan.phases(epoch).map(move |phase| (epoch, phase)))
}

/// Each phase that the ledger has rows of.
fn seen_phases<'a>(case: &Case<'a>) -> impl Iterator<Item = (u64, &'a PhasePlan)> {
    let (plan, ledger) = (case.plan, case.ledger);
    [Phase::Train, Phase::Eval].into_iter().flat_map(move |phase| {
        let planned = plan.phase(phase);
        ledger.epochs(phase).into_iter().filter_map(move |epoch| planned.map(|planned| (epoch, planned)))
    })
}

fn complete(case: &Case<'_>) -> (Outcome, String) {
    if let Some(fault) = case.ledger.faults().first() {
        return (Outcome::Fail, format!("epoch {}, {}: {}", fault.epoch, fault.phase, fault.message));
    }
    if case.ledger.interrupted {
        return (Outcome::Fail, "the run was asked to stop".to_owned());
    }
    for (epoch, phase) in planned_phases(case.plan) {
        let (seen, planned) =
            (case.ledger.total(epoch, phase.phase).steps, phase.shards.steps * phase.shards.ranks);
        if seen != planned {
            let evidence =
                format!("epoch {epoch}, {}: {} of {} steps", phase.phase, grouped(seen), grouped(planned));
            return (Outcome::Fail, evidence);
        }
    }
    (Outcome::Pass, format!("{}, all steps", counted(case.plan.epochs, "epoch")))
}

fn exactly_once(case: &Case<'_>) -> (Outcome, String) {
    let mut samples = 0;
    for (epoch, phase) in finished_phases(case) {
        let seen = case.ledger.total(epoch, phase.phase);
        if seen.digest != expected_digest(phase, epoch) {
            let parts = case.ledger.node_total(epoch, phase.phase).parts;
            let what = proof::locate(phase, epoch, &parts);
            return (Outcome::Fail, format!("epoch {epoch}, {}: {what}", phase.phase));
        }
        samples += seen.samples_delivered;
    }
    match samples {
        0 => (Outcome::NotCheckable, "no epoch was finished".to_owned()),
        _ => (
            Outcome::Pass,
            format!("{} samples, digest equal to the plan's in every epoch", grouped(samples)),
        ),
    }
}

/// Phases whose every step was done; an unfinished one is the business of `complete`.
fn finished_phases<'a>(case: &Case<'a>) -> impl Iterator<Item = (u64, &'a PhasePlan)> {
    let ledger = case.ledger;
    seen_phases(case).filter(move |(epoch, phase)| {
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

fn bytes_as_planned(case: &Case<'_>) -> (Outcome, String) {
    let mut bytes = 0;
    for (epoch, phase) in seen_phases(case) {
        let seen = case.ledger.total(epoch, phase.phase);
        let whole = seen.steps == phase.shards.steps * phase.shards.ranks;
        let by_plan = if whole { expected_bytes(case.plan, phase, epoch) } else { None };
        let planned = by_plan.unwrap_or(seen.bytes_planned);
        if seen.bytes_read != planned {
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

/// The bytes of a whole epoch, where the plan alone can tell: one sample per file, sizes by law.
fn expected_bytes(plan: &Plan, phase: &PhasePlan, epoch: u64) -> Option<u64> {
    let (split, shards) = (plan.split(phase.phase), phase.shards);
    if split.samples_per_file != 1 {
        return None;
    }
    match &plan.data.file_bytes {
        FileBytes::Same(bytes) => Some(shards.delivered() * bytes),
        FileBytes::Listed => None,
        FileBytes::Each(bytes) => {
            let order = phase.order.epoch(epoch);
            let sum = |positions: std::ops::Range<u64>| -> u64 {
                positions.map(|position| bytes[(split.first_file + order.sample(position)) as usize]).sum()
            };
            Some(sum(0..shards.delivered()))
        }
    }
}

/// Two epochs count as alike only where chance would make them so less than once in this many runs.
const CHANCE: f64 = 1e6;

fn order_differs(case: &Case<'_>) -> (Outcome, String) {
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
    let orders: Vec<(u64, u64)> = finished_phases(case)
        .filter(|(_, phase)| phase.phase == Phase::Train)
        .map(|(epoch, _)| (epoch, case.ledger.total(epoch, Phase::Train).order))
        .collect();
    for (i, (epoch, order)) in orders.iter().enumerate() {
        if let Some((earlier, _)) = orders[..i].iter().find(|(_, other)| other == order) {
            return (Outcome::Fail, format!("epochs {earlier} and {epoch} read in the same order"));
        }
    }
    (Outcome::Pass, {
        let count = orders.len() as u64;
        format!("{}, {}", counted(count, "epoch"), counted(count, "order"))
    })
}

/// The share of the accelerators' time that the host's lateness may have cost. A batch handed over late shifts no step
/// on the timeline; it only lets a reader begin late, which can do no more harm than there was waiting for data.
const LATENESS_LIMIT: f64 = 0.02;
/// Time per rank below which one late wake-up decides the share.
const SHORTEST: Nanos = Nanos(100_000_000);

fn on_time(case: &Case<'_>) -> (Outcome, String) {
    let (mut late, mut waited, mut time, mut compute) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
    for (epoch, phase) in seen_phases(case) {
        let seen = case.ledger.total(epoch, phase.phase);
        late += seen.lateness_ns_sum;
        waited += seen.wait_ns;
        compute += seen.compute_ns;
        time += seen.wait_ns + seen.compute_ns + seen.barrier_ns;
    }
    if compute == Nanos::ZERO {
        return (Outcome::Pass, "steps have no compute time: there is no timeline to lag behind".to_owned());
    }
    if time < Nanos(case.plan.ranks.saturating_mul(SHORTEST.0)) {
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

/// Without compute time there is no AU: then a run that comes this near to the null store's rate measured the client.
const NEAR_CEILING: f64 = 0.8;
/// Steps without compute time that a rate can be told from; fewer are over before the readers have all started.
const RATE_STEPS: u64 = 200;

/// A host whose cores are busier than this has none to spare for waiting on storage.
const CPU_LIMIT: f64 = 0.95;

/// The share of the host's CPU time that the run took.
fn cpu_share(case: &Case<'_>) -> Option<f64> {
    let nodes = seen_phases(case).map(|(epoch, phase)| case.ledger.node_total(epoch, phase.phase));
    let (cpu, cores) =
        nodes.fold((Nanos::ZERO, Nanos::ZERO), |sum, node| (sum.0 + node.cpu_ns, sum.1 + node.core_ns));
    (cores > Nanos::ZERO).then(|| cpu.0 as f64 / cores.0 as f64)
}

fn client_not_the_limit(case: &Case<'_>) -> (Outcome, String) {
    if case.plan.store == "null" {
        return (Outcome::Pass, "this run is the ceiling".to_owned());
    }
    let Some(own) = case.ledger.calibration else {
        return (Outcome::NotCheckable, "the instrument's own ceiling was not measured".to_owned());
    };
    let Some(seen) = Figures::new(case.plan, case.ledger, Phase::Train) else {
        return (Outcome::NotCheckable, "nothing was measured".to_owned());
    };
    let mean = |spread: Option<Spread>| spread.map_or(0.0, |spread| spread.mean);
    match (own.au_percent, own.samples_per_second) {
        (Some(ceiling), _) => {
            // Half-way between the target and perfection: nearer to the target, the instrument decides who passes.
            let target = 100.0 * case.plan.metric.au_target;
            let needed = f64::midpoint(target, 100.0);
            let met = mean(seen.au_percent) >= target;
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
            let rate = mean(seen.samples_per_second);
            let outcome = if rate <= NEAR_CEILING * ceiling { Outcome::Pass } else { Outcome::Fail };
            (outcome, format!("{rate:.0} samples/s, on the null store {ceiling:.0}"))
        }
        (None, None) => (Outcome::NotCheckable, "the instrument's own ceiling is not measurable".to_owned()),
    }
}

fn settings_honoured(case: &Case<'_>) -> (Outcome, String) {
    match case.unhonoured {
        [] => (Outcome::Pass, "all".to_owned()),
        settings => (Outcome::Fail, format!("without effect in this version: {}", settings.join(", "))),
    }
}

/// This version can neither choose nor prove the state of the cache; it reports the kernel's count as evidence.
fn served_by_storage(case: &Case<'_>) -> (Outcome, String) {
    if case.plan.store == "null" {
        return (
            Outcome::NotCheckable,
            "the null store reads nothing: this is the instrument's own ceiling".to_owned(),
        );
    }
    let shares: Vec<String> = case
        .ledger
        .epochs(Phase::Train)
        .into_iter()
        .filter_map(|epoch| device_share(case.ledger, epoch))
        .map(|share| format!("{:.0} %", 100.0 * share))
        .collect();
    let evidence = match shares.as_slice() {
        [] if case
            .ledger
            .epochs(Phase::Train)
            .iter()
            .all(|epoch| case.ledger.total(*epoch, Phase::Train).bytes_read == 0) =>
        {
            "nothing was read".to_owned()
        }
        [] => "the kernel's count of bytes from block devices is not available".to_owned(),
        shares => format!("by the kernel's count, bytes from block devices per epoch: {}", shares.join(", ")),
    };
    (Outcome::NotCheckable, evidence)
}

fn device_share(ledger: &Ledger, epoch: u64) -> Option<f64> {
    let device = ledger.node_total(epoch, Phase::Train);
    let read = ledger.total(epoch, Phase::Train).bytes_read;
    (device.device_readings > 0 && read > 0).then(|| device.device_read_bytes as f64 / read as f64)
}

#[cfg(test)]
mod tests;
