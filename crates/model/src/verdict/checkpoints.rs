//! Rules about checkpoints: whether they were saved to where they are safe, and whether what came back came from there
//! and was right.

use super::{CheckpointCase, Outcome};
use crate::checkpoint::{Restored, Schedule};
use crate::units::{Bytes, Nanos, counted};

pub(super) fn complete(case: &CheckpointCase<'_>) -> (Outcome, String) {
    let seen = &case.ledger.checkpoints;
    let Schedule::Alone { saves, restores, .. } = case.plan.schedule else {
        return (Outcome::Pass, "taken while training".to_owned());
    };
    let (saved, restored) = (seen.saves.len() as u64, seen.restores.len() as u64);
    let evidence =
        format!("{saved} of {} saved, {restored} of {restores} restored", counted(saves, "checkpoint"));
    match case.ledger.faults().first() {
        Some(fault) => (Outcome::Fail, fault.message.clone()),
        None if case.ledger.interrupted => (Outcome::Fail, format!("interrupted: {evidence}")),
        None if (saved, restored) != (saves, restores) => (Outcome::Fail, evidence),
        None => (Outcome::Pass, evidence),
    }
}

pub(super) fn saved(case: &CheckpointCase<'_>) -> (Outcome, String) {
    let saves = &case.ledger.checkpoints.saves;
    if let Some(bad) = saves.iter().find(|save| save.durable_ns.is_none()) {
        let why = bad.troubles.last().map_or("it never became complete", String::as_str);
        let there = if bad.fast_ns.is_some() { " (complete on the fast tier)" } else { "" };
        return (Outcome::Fail, format!("{}{there}: {why}", bad.moment.folder()));
    }
    match saves.iter().find_map(|save| Some((save, save.troubles.first()?))) {
        Some((save, trouble)) => (Outcome::Note, format!("{}: {trouble}", save.moment.folder())),
        None => (Outcome::Pass, counted(saves.len() as u64, "checkpoint")),
    }
}

/// Without a flush a buffered save is over when memory has it. Training does not wait for storage then, which is how
/// DLIO behaves unless told otherwise; where nothing but saving is measured, the figure is memory's.
pub(super) fn durable(case: &CheckpointCase<'_>) -> (Outcome, String) {
    if case.plan.fsync || case.ledger.checkpoints.saves.is_empty() {
        return (Outcome::Pass, "flushed".to_owned());
    }
    let outcome = match case.plan.schedule {
        Schedule::Alone { .. } => Outcome::Fail,
        _ => Outcome::Note,
    };
    (outcome, "checkpoint.fsync is off: a save ends when the kernel has its bytes".to_owned())
}

pub(super) fn restored_right(case: &CheckpointCase<'_>) -> (Outcome, String) {
    let restores = &case.ledger.checkpoints.restores;
    if let Some((restore, why)) = restores.iter().find_map(|one| Some((one, one.failure.as_ref()?))) {
        return (Outcome::Fail, format!("{}: {why}", restore.moment.folder()));
    }
    if restores.is_empty() {
        return (Outcome::Pass, "nothing was restored".to_owned());
    }
    match restores.iter().find(|restore| restore.verified_bytes != restore.bytes) {
        Some(_) => (Outcome::NotCheckable, "no bytes came that could be compared".to_owned()),
        None => {
            let bytes = restores.iter().map(|restore| restore.verified_bytes).sum();
            (Outcome::Pass, format!("{} compared", Bytes(bytes)))
        }
    }
}

/// The share of a restore that may have been in memory.
const CACHED_LIMIT: f64 = 0.05;

pub(super) fn restored_from_storage(case: &CheckpointCase<'_>) -> (Outcome, String) {
    let restores = || case.ledger.checkpoints.restores.iter().filter(|one| one.failure.is_none());
    let Some(first) = restores().next() else {
        return (Outcome::Pass, "nothing was restored".to_owned());
    };
    let tier = case.plan.tier(first.from_fast);
    if tier.past_cache || !tier.holds_files {
        let what = if tier.past_cache { "read past the page cache" } else { "simulated" };
        return (Outcome::Pass, what.to_owned());
    }
    let shares: Option<Vec<f64>> = restores().map(Restored::cached_share).collect();
    let Some(shares) = shares else {
        return (Outcome::NotCheckable, "nobody tells what was in memory".to_owned());
    };
    let most = shares.into_iter().fold(0.0, f64::max);
    if most > CACHED_LIMIT {
        let what = format!("served from memory: {:.0} % was there before it was asked for", 100.0 * most);
        return (Outcome::Fail, what);
    }
    (Outcome::Pass, format!("at most {:.1} % was in memory", 100.0 * most))
}

pub(super) fn whole_model(case: &CheckpointCase<'_>) -> (Outcome, String) {
    let scale = case.plan.geometry.scale;
    match scale.is_whole() {
        true => (Outcome::Pass, "all of it".to_owned()),
        false => (Outcome::Note, format!("{scale} of the model, file by file")),
    }
}

/// A host whose cores are busier than this has none to spare for waiting on storage.
const CPU_LIMIT: f64 = 0.95;

pub(super) fn client_not_the_limit(case: &CheckpointCase<'_>) -> (Outcome, String) {
    let seen = &case.ledger.checkpoints;
    let saves = seen.saves.iter().map(|save| save.cpu);
    let (used, there) = saves
        .chain(seen.restores.iter().map(|restore| restore.cpu))
        .fold((Nanos::ZERO, Nanos::ZERO), |sum, cpu| (sum.0 + cpu.used_ns, sum.1 + cpu.core_ns));
    if there == Nanos::ZERO {
        return (Outcome::Pass, "nothing was saved or restored".to_owned());
    }
    let share = used.0 as f64 / there.0 as f64;
    let outcome = if share <= CPU_LIMIT { Outcome::Pass } else { Outcome::Fail };
    (outcome, format!("the host's cores were busy {:.0} % of the time", 100.0 * share))
}
