//! Rules about checkpoints: whether they were saved durably, and whether restores came from storage and were correct.

use super::rules::{RUN_TO_THE_END, RuleResult, STOP_READERS};
use super::{CheckpointCase, RuleOutcome};
use crate::checkpoint::{Cpu, Schedule};
use crate::spec::SaveMode;
use crate::units::{Bytes, counted};

pub(super) fn complete(case: &CheckpointCase<'_>) -> RuleResult {
    let seen = &case.ledger.checkpoints;
    let Schedule::Alone { saves, restores, .. } = case.plan.schedule else {
        return RuleResult::pass("saved during training");
    };
    let (saved, restored) = (seen.saves.len() as u64, seen.restores.len() as u64);
    let evidence =
        format!("{saved} of {} saved, {restored} of {restores} restored", counted(saves, "checkpoint"));
    match case.ledger.faults().first() {
        Some(fault) => RuleResult::fail(fault.message.clone()),
        None if case.ledger.interrupted => {
            RuleResult::fail(format!("interrupted: {evidence}")).with_remedy(RUN_TO_THE_END)
        }
        None if (saved, restored) != (saves, restores) => RuleResult::fail(evidence),
        None => match case.ledger.missing_processes() {
            Some(missing) => RuleResult::fail(missing).with_remedy(RUN_TO_THE_END),
            None => RuleResult::pass(evidence),
        },
    }
}

pub(super) fn saved(case: &CheckpointCase<'_>) -> RuleResult {
    let saves = &case.ledger.checkpoints.saves;
    if case.planned == 0 && saves.is_empty() {
        if matches!(case.plan.schedule, Schedule::Alone { .. }) {
            return RuleResult::pass("the run restores only");
        }
        return RuleResult::note("the run ends before the first checkpoint is due")
            .with_remedy("train longer, or save checkpoints more often");
    }
    if let Some(bad) = saves.iter().find(|save| save.durable_ns.is_none()) {
        let why = bad.troubles.last().map_or("it was not completed", String::as_str);
        let there = if bad.fast_ns.is_some() { " (complete on the fast tier)" } else { "" };
        return RuleResult::fail(format!("{}{there}: {why}", bad.moment.folder()));
    }
    let count = format!("{} of {}", saves.len(), counted(case.planned, "checkpoint"));
    match saves.iter().find_map(|save| Some((save, save.troubles.first()?))) {
        _ if (saves.len() as u64) < case.planned => RuleResult::fail(count),
        Some((save, trouble)) => RuleResult::note(format!("{}: {trouble}", save.moment.folder()))
            .with_remedy("the checkpoint is complete; fix the cause to avoid the delay"),
        None => RuleResult::pass(count),
    }
}

/// Without a flush, a buffered save ends when its bytes are in memory. Training then does not wait for storage, which
/// is DLIO's default; but if only saving is measured, the figure measures memory, not storage.
pub(super) fn durable(case: &CheckpointCase<'_>) -> RuleResult {
    // Asynchronous saves are always flushed.
    let flushed = case.plan.fsync || case.plan.save == SaveMode::Async;
    if flushed || case.ledger.checkpoints.saves.is_empty() {
        return RuleResult::pass("flushed");
    }
    let outcome = match case.plan.schedule {
        Schedule::Alone { .. } => RuleOutcome::Fail,
        _ => RuleOutcome::Note,
    };
    RuleResult::new(
        outcome,
        "checkpoint.fsync is off: a save ends before its bytes are known to survive a crash",
    )
}

pub(super) fn restored_right(case: &CheckpointCase<'_>) -> RuleResult {
    let restores = &case.ledger.checkpoints.restores;
    if let Some((restore, why)) = restores.iter().find_map(|one| Some((one, one.failure.as_ref()?))) {
        return RuleResult::fail(format!("{}: {why}", restore.moment.folder()));
    }
    if restores.is_empty() {
        return RuleResult::pass("nothing was restored");
    }
    match restores.iter().find(|restore| restore.verified_bytes != restore.bytes) {
        Some(_) => RuleResult::not_checkable("no bytes were read that could be compared"),
        None => {
            let bytes = restores.iter().map(|restore| restore.verified_bytes).sum();
            RuleResult::pass(format!("{} compared", Bytes(bytes)))
        }
    }
}

/// The share of a restore that may be in memory.
const CACHED_LIMIT: f64 = 0.05;

pub(super) fn restored_from_storage(case: &CheckpointCase<'_>) -> RuleResult {
    let restores = case.ledger.checkpoints.restores.iter().filter(|one| one.failure.is_none());
    let mut most: Option<f64> = None;
    for restore in restores {
        let tier = case.plan.tier(restore.from_fast);
        let share = match tier.cached {
            true => restore.cached_share(),
            false => Some(0.0),
        };
        let Some(share) = share else {
            return RuleResult::not_checkable("it is unknown which pages were in memory");
        };
        most = Some(most.unwrap_or(0.0).max(share));
    }
    match most {
        None => RuleResult::pass("nothing was restored"),
        Some(most) if most > CACHED_LIMIT => {
            let percent = 100.0 * most;
            RuleResult::fail(format!("{percent:.0} % of the pages were cached before they were read"))
                .with_remedy(case.plan.restore_cold.then_some(STOP_READERS))
        }
        Some(most) => RuleResult::pass(format!("at most {:.1} % was in memory", 100.0 * most)),
    }
}

pub(super) fn whole_model(case: &CheckpointCase<'_>) -> RuleResult {
    let scale = case.plan.geometry.scale;
    match scale.is_whole() {
        true => RuleResult::pass("full size"),
        false => RuleResult::note(format!("each file has {scale} of its full size")),
    }
}

/// A host with busier cores may limit the rate itself.
const CPU_LIMIT: f64 = 0.95;

pub(super) fn client_not_the_limit(case: &CheckpointCase<'_>) -> RuleResult {
    let seen = &case.ledger.checkpoints;
    let share = |cpus: Vec<Cpu>| {
        let (used, there) =
            cpus.iter().fold((0, 0), |sum, cpu| (sum.0 + cpu.used_ns.0, sum.1 + cpu.core_ns.0));
        if there == 0 { 0.0 } else { used as f64 / there as f64 }
    };
    let saving = share(seen.saves.iter().map(|save| save.cpu).collect());
    let restoring = share(seen.restores.iter().map(|restore| restore.cpu).collect());
    let outcome = if saving.max(restoring) <= CPU_LIMIT { RuleOutcome::Pass } else { RuleOutcome::Fail };
    let [saving, restoring] = [saving, restoring].map(|share| 100.0 * share);
    RuleResult::new(
        outcome,
        format!(
            "CPU cores were busy {saving:.0} % of the time while saving, {restoring:.0} % while restoring"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::manifest::Moment;
    use crate::checkpoint::{CheckpointPlan, RestoreRecord, SaveRecord, SaveRequest, Scale};
    use crate::ledger::Ledger;
    use crate::plan::bare::buffered;
    use crate::plan::{Plan, StorePlan};
    use crate::spec::{WorkloadSource, read};
    use crate::units::Nanos;
    use crate::verdict::{self, Case, Status, Verdict};

    fn plan(more: &str) -> CheckpointPlan {
        planned(1, more)
    }

    fn planned(saves: u64, more: &str) -> CheckpointPlan {
        let text = format!(
            "workflow: {{train: false, checkpoint: true}}\n\
             checkpoint: {{num_checkpoints_write: {saves}, num_checkpoints_read: 1, fsync: true{more}}}"
        );
        let spec = read(WorkloadSource { name: "test", text: &text }, &[]).unwrap().spec;
        let last = buffered().clone();
        let request = SaveRequest { ranks: 1, scale: Scale::WHOLE, last, fast: None };
        CheckpointPlan::resolve(&spec, &request).unwrap().unwrap()
    }

    fn ledger() -> Ledger {
        let (mut ledger, moment) = (Ledger::default(), Moment { epoch: 1, step: 1 });
        let cpu = Cpu { used_ns: Nanos(10), core_ns: Nanos(100) };
        let save =
            SaveRecord { durable_ns: Some(Nanos(5)), bytes: 10, cpu, ..SaveRecord::new(moment, Nanos(0)) };
        let pages = (Some(100), Some(0));
        let restored =
            RestoreRecord { bytes: 10, verified_bytes: 10, cpu, ..RestoreRecord::new(moment, Nanos(9)) };
        ledger.checkpoints.saves.push(save);
        ledger.checkpoints.restores.push(RestoreRecord { pages: pages.0, pages_cached: pages.1, ..restored });
        ledger
    }

    fn judge(plan: &CheckpointPlan, change: impl FnOnce(&mut Ledger)) -> Verdict {
        let mut ledger = ledger();
        change(&mut ledger);
        let plan = Plan {
            workload: "test".to_owned(),
            model: "test".to_owned(),
            ranks: 1,
            hosts: 1,
            compat: Vec::new(),
            training: None,
            checkpoint: Some(plan.clone()),
        };
        verdict::judge(&Case { plan: Some(&plan), ledger: &ledger })
    }

    #[test]
    fn a_flawless_run_is_valid_and_every_flaw_is_found() {
        type Change = fn(&mut Ledger);
        let flaws: [(Change, &str); 6] = [
            (|ledger| ledger.checkpoints.saves[0].durable_ns = None, "checkpoints-saved"),
            (|ledger| ledger.checkpoints.restores[0].pages_cached = Some(6), "restored-from-storage"),
            (|ledger| ledger.checkpoints.restores[0].failure = Some("byte 7".to_owned()), "restored-right"),
            (|ledger| ledger.checkpoints.saves[0].cpu.used_ns = Nanos(190), "client-not-the-limit"),
            (|ledger| ledger.checkpoints.restores.clear(), "complete"),
            (|ledger| ledger.interrupted = true, "complete"),
        ];
        let whole = plan("");
        assert_eq!(judge(&whole, |_| {}).status, Status::Valid, "{:?}", judge(&whole, |_| {}));
        for (change, rule) in flaws {
            let verdict = judge(&whole, change);
            assert_eq!(verdict.broken().collect::<Vec<_>>(), [rule], "{verdict:?}");
        }
    }

    #[test]
    fn a_run_that_only_restores_need_not_save() {
        let verdict = judge(&planned(0, ""), |ledger| ledger.checkpoints.saves.clear());
        let saved = verdict.rules.iter().find(|finding| finding.rule == "checkpoints-saved").unwrap();
        assert_eq!((verdict.status, saved.outcome), (Status::Valid, RuleOutcome::Pass), "{verdict:?}");
    }

    #[test]
    fn missing_evidence_makes_the_run_unverified() {
        let whole = plan("");
        for change in [
            (|ledger: &mut Ledger| ledger.checkpoints.restores[0].pages = None) as fn(&mut Ledger),
            |ledger| ledger.checkpoints.restores[0].verified_bytes = 0,
        ] {
            assert_eq!(judge(&whole, change).status, Status::Unverified);
        }
        let trouble = judge(&whole, |ledger| ledger.checkpoints.saves[0].troubles.push("once".to_owned()));
        assert_eq!(trouble.status, Status::Valid, "a problem that was overcome is a note");
        let loose = CheckpointPlan { fsync: false, ..whole };
        assert_eq!(judge(&loose, |_| {}).broken().collect::<Vec<_>>(), ["checkpoints-durable"]);
        let direct = CheckpointPlan { last: StorePlan { cached: false, ..loose.last.clone() }, ..plan("") };
        assert_eq!(
            judge(&direct, |ledger| ledger.checkpoints.restores[0].pages = None).status,
            Status::Valid
        );
    }
}
