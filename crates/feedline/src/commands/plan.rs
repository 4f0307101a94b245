//! `feedline plan`: what a run would read, take and need. It looks at the host's memory and the disk's free space and
//! never at data.

use std::path::Path;

use engine::host::Host;
use model::location::Location;
use model::units::Bytes;
use model::warning::Warning;
use serde_json::Value;

use super::tiers::Tiers;
use super::{
    Prepared, Site, build_format, check_folder, checkpoint, data_location, listing, prepare, resolve, select,
};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::{OutputFlags, PlanFlags};
use crate::report;
use crate::report::plan::{Disk, PlanReport};

pub fn plan(flags: &PlanFlags) -> Ending {
    let mut prepared = prepare(&flags.workload.workload, flags.overrides())?;
    if prepared.is_checkpoints_alone() {
        return plan_alone(flags, prepared);
    }
    let host = Host::look();
    let memory = flags.host_memory.unwrap_or(Bytes(host.memory_bytes));
    let store = select(&prepared.spec, flags.store.as_deref())?;
    let place = data_location(&prepared.spec, flags.data_dir.as_deref());
    // A plan needs no data, so a location that this version cannot use yet is fine.
    let (folder, is_local) = place.path().map_or((Path::new("."), false), |folder| (folder, true));
    let catalog = listing::open(&prepared, folder, is_local && store.plan().holds_files)?;
    let listed = catalog.as_ref().map(|opened| listing::splits(&prepared, opened)).transpose()?;
    let format = build_format(&prepared.spec)?;
    let site = Site {
        ranks: flags.ranks,
        hosts: flags.hosts,
        host_memory_bytes: memory.0,
        host: &host,
        store: &store,
        memory: flags.memory,
        format: Some(&*format),
        listed: listed.as_ref(),
    };
    let saves = prepared.spec.workflow.checkpoint;
    let tiers = saves.then(|| Tiers::choose(&prepared.spec, &store)).transpose()?;
    let saving = tiers.as_ref().map(|tiers| (tiers, flags.checkpoints.scale));
    let plan = resolve(&prepared, &site, saving)?;
    prepared.warn_of_idle_keys(&plan);
    let disk = disk(place)?;
    let report = PlanReport {
        plan: &plan,
        disk,
        host_memory_bytes: memory.0,
        memory_limit: host.memory_limit.as_deref().filter(|_| flags.host_memory.is_none()),
        warnings: &prepared.warnings,
    };
    show(&flags.output, &prepared.warnings, || report.json(), || report.text())
}

fn plan_alone(flags: &PlanFlags, mut prepared: Prepared) -> Ending {
    let ranks = flags.ranks.unwrap_or(prepared.default_ranks);
    let (host, store) = (Host::look(), flags.store.as_deref());
    let (plan, tiers) = checkpoint::settle(&prepared, ranks, flags.hosts, &host, store, &flags.checkpoints)?;
    prepared.warn_of_idle_keys(&plan);
    let place = Location::from(&tiers.last.folder);
    let free_bytes = place.path().ok().and_then(|folder| store::free_bytes(folder).ok());
    let report = PlanReport {
        plan: &plan,
        disk: Disk { place, free_bytes },
        host_memory_bytes: host.memory_bytes,
        memory_limit: None,
        warnings: &prepared.warnings,
    };
    show(&flags.output, &prepared.warnings, || report.json(), || report.text())
}

/// Shows a plan to a person or to a program.
fn show(
    output: &OutputFlags,
    warnings: &[Warning],
    json: impl FnOnce() -> Value,
    text: impl FnOnce() -> String,
) -> Ending {
    if output.json {
        report::out_json(&json())?;
    } else {
        if !output.quiet {
            report::warnings(warnings);
        }
        report::out(&text())?;
    }
    Ok(Exit::Ok)
}

fn disk(place: Location) -> Result<Disk, Failure> {
    let mut free_bytes = None;
    if let Ok(folder) = place.path() {
        check_folder(folder, "data folder")?;
        // Free space is a comfort: where the file system does not tell it, the plan stands all the same.
        free_bytes = store::free_bytes(folder).ok();
    }
    Ok(Disk { place, free_bytes })
}
