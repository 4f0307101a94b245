//! `feedline run` of a workload that does not train: it saves checkpoints, restores them, writes the result and says
//! what it is worth.

use anyhow::anyhow;
use engine::checkpoint::{self, CheckpointError, Setup};
use engine::host::{self, Host, HostCounts};
use engine::meter::{self, Monotonic};
use engine::{Events, Stop};
use model::checkpoint::{CheckpointPlan, Schedule};
use model::ledger::Ledger;
use model::order::mix;
use model::plan::{Plan, PlanError, check_ranks};
use model::spec::SaveMode;
use model::units::{Bytes, Nanos};
use model::verdict::{Case, judge};

use super::tiers::{OpenTiers, Tiers};
use super::{
    Prepared, Site, check_folder, check_storage, patience, resolve, results_folder, select, stop_on_signals,
};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::{CheckpointFlags, RunFlags};
use crate::progress::{Goal, Show, Unit, watch};
use crate::report;
use crate::report::result::{Outcome, Peak, Times};
use crate::report::{folder, text};

pub fn run(flags: &RunFlags, mut prepared: Prepared) -> Ending {
    let host = Host::look();
    let ranks = flags.ranks.unwrap_or(prepared.default_ranks);
    let (plan, tiers) = settle(&prepared, ranks, 1, &host, flags.place.store.as_deref(), &flags.checkpoints)?;
    prepared.warn_of_idle_keys(&plan);
    let results = results_folder(flags.results_dir.as_deref(), &prepared.spec);
    check_folder(&results, "results folder")?;
    let checkpoint = plan.checkpoint.as_ref().ok_or_else(nothing)?;
    tiers.check(checkpoint, plan.saves())?;
    check_memory(&plan)?;
    if !flags.output.quiet {
        report::warnings(&prepared.warnings);
    }
    let _fresh = folder::check_writable(&results, &plan.workload).map_err(Failure::refused)?;
    let (show, stop) = (Show::choose(flags.output.quiet), stop_on_signals()?);
    let stop = stop.with_patience(patience(&prepared.spec));
    let before = HostCounts::read();
    let (mut ledger, times) =
        measure(checkpoint, &plan.model, &tiers, prepared.spec.train.seed, show, &stop)?;
    ledger.conditions.hosts.insert(host.name.clone(), host::seen_since(before));
    let verdict = judge(&Case { plan: Some(&plan), ledger: &ledger });
    let outcome = Outcome {
        plan: &plan,
        spec: &prepared.spec,
        ledger: &ledger,
        verdict: &verdict,
        host: &host,
        warnings: &prepared.warnings,
        times,
        peak_rss_bytes: Peak::new(host::peak_rss_bytes),
        between_failures: flags.advise,
    };
    let saved = folder::write(&results, &outcome).map_err(Failure::incomplete)?;
    if flags.output.json {
        report::out_json(&outcome.summary())?;
    } else {
        report::out(&text::render(&outcome, &saved, false))?;
    }
    Ok(Exit::of(verdict.status))
}

/// Settles a workload that does not train.
pub fn settle(
    prepared: &Prepared,
    ranks: u64,
    hosts: u64,
    host: &Host,
    store: Option<&str>,
    flags: &CheckpointFlags,
) -> Result<(Plan, Tiers), Failure> {
    let spec = &prepared.spec;
    check_ranks(ranks, hosts).map_err(Failure::usage)?;
    check_storage(spec)?;
    let selection = select(spec, store)?;
    let tiers = Tiers::choose(spec, &selection)?;
    let site = Site {
        ranks: Some(ranks),
        hosts,
        host_memory_bytes: host.memory_bytes,
        host,
        store: &selection,
        memory: None,
        format: None,
        listed: None,
    };
    let plan = resolve(prepared, &site, Some((&tiers, flags.scale)))?;
    Ok((plan, tiers))
}

fn nothing() -> Failure {
    Failure::usage(PlanError::NothingToSave)
}

fn measure(
    plan: &CheckpointPlan,
    model: &str,
    tiers: &Tiers,
    seed: u64,
    show: Show,
    stop: &Stop,
) -> Result<(Ledger, Times), Failure> {
    let open = tiers.open(None)?;
    let (clock, events) = (Monotonic::new(), Events::default());
    let setup = Setup {
        plan,
        model,
        seed: content_seed(seed),
        fast: open.fast.as_deref(),
        last: &*open.last,
        clock: &clock,
        stop,
        events: &events,
    };
    let goal = Goal { what: "checkpoints", unit: Unit::Files, total: files(plan) };
    let (start, cpu_before) = (meter::timestamp(), meter::cpu_seconds());
    let (ledger, span) = watch(show, &events, &goal, || checkpoint::alone(setup));
    let cpu_seconds = meter::cpu_seconds() - cpu_before;
    let mut ledger = ledger.map_err(refusal)?;
    observe(&mut ledger, tiers, &open);
    Ok((ledger, Times { start, end: meter::timestamp(), span, settling: Nanos::ZERO, cpu_seconds }))
}

/// The seed of what is saved: another one in every run, so that what an earlier one left is not taken for what this
/// one saved.
pub fn content_seed(seed: u64) -> u64 {
    mix(seed, meter::entropy())
}

/// Files that are written or read in all.
fn files(plan: &CheckpointPlan) -> u64 {
    let Schedule::Alone { saves, restores, .. } = plan.schedule else { return 0 };
    let drains = if plan.save == SaveMode::BurstBuffer { saves } else { 0 };
    plan.geometry.file_count().saturating_mul(saves.saturating_add(drains).saturating_add(restores))
}

/// How an error of the tiers ends a run that has not begun.
pub fn refusal(error: CheckpointError) -> Failure {
    match error {
        CheckpointError::Interrupted => Failure::incomplete(error),
        error => Failure::refused(error),
    }
}

/// Notes where the checkpoints were, and what else is known of the places.
pub fn observe(ledger: &mut Ledger, tiers: &Tiers, open: &OpenTiers) {
    for (property, value) in open.fast.iter().chain([&open.last]).flat_map(|tier| tier.observed()) {
        ledger.conditions.observe(&format!("checkpoint_{property}"), &value);
    }
    let fast = tiers.fast.iter().map(|site| ("burst_folder", site));
    for (property, site) in [("checkpoint_folder", &tiers.last)].into_iter().chain(fast) {
        if site.holds_files() {
            ledger.conditions.observe(property, &site.folder.display().to_string());
        }
    }
}

fn check_memory(plan: &Plan) -> Result<(), Failure> {
    let needed = plan.memory_bytes();
    match Host::own_room().filter(|room| room.bytes < needed) {
        Some(room) => Err(Failure::refused(anyhow!(
            "the run needs {}, but only {room}; lower checkpoint.pool_size, checkpoint.files_in_flight or \
             checkpoint.chunk_size",
            Bytes(needed),
        ))),
        None => Ok(()),
    }
}
