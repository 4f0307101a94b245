//! `feedline plan`: what a run would read, and the time and memory it needs. It reads the host's memory size and the
//! disk's free space, but no data.

use std::path::PathBuf;

use clap::Args;
use engine::Solo;
use engine::host::Host;
use model::location::Location;
use model::units::Bytes;
use session::{Ask, Asked, Generate, Settled, check_folder, data_set, settle};
use store::BACKENDS;

use super::{ask, read};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::{CacheFlags, CheckpointFlags, OutputFlags, WorkloadFlags};
use crate::report;
use crate::report::plan::{DataSetReport, DiskSpace, PlanReport};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline plan unet3d_b200 --ranks 8 --hosts 4 --host-memory 256GiB
  feedline plan ./mine.yaml --set reader.batch_size=32 --json
  feedline plan llama3_405b                                files, bytes and memory of checkpoints";

#[derive(Args, Debug)]
pub(crate) struct PlanFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    #[command(flatten)]
    pub checkpoints: CheckpointFlags,
    /// Number of emulated accelerators over all hosts [default: the workload's, usually 1; demo 2; at least
    /// tensor x pipeline if it saves checkpoints]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub hosts: u64,
    /// Memory of one host, such as 256GiB [default: this host's]
    #[arg(long, value_name = "SIZE")]
    pub host_memory: Option<Bytes>,
    /// Folder of the data set; only its free space, its manifest and its catalog are read
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[arg(long, value_name = "STORE", help = BACKENDS.help("I/O backend", "as for run"))]
    pub store: Option<String>,
    /// Limit the memory for read buffers and kept batches, such as 2GiB
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,
    #[command(flatten)]
    pub output: OutputFlags,
}

pub(crate) fn plan(flags: &PlanFlags) -> CommandResult {
    let ask = Ask {
        ranks: flags.ranks,
        hosts: flags.hosts,
        host_memory: flags.host_memory,
        store: flags.store.clone(),
        memory: flags.memory,
        // Plans with the existing files, even if a run would write missing ones.
        generate: Generate::Never,
        checkpoints: Some(flags.checkpoints.scale),
        ..ask(&flags.workload, flags.overrides(), flags.data_dir.as_deref())?
    };
    let host = Host::look();
    let asked = read(ask)?;
    let workflow = &asked.spec.workflow;
    if workflow.generate_data && !workflow.train && !workflow.checkpoint {
        return data_set_alone(flags, &asked);
    }
    let world = Solo::new(asked.ranks());
    let settled = settle(asked, &host, &world)?;
    let warnings = &settled.asked.warnings;
    let report = PlanReport {
        plan: &settled.plan,
        disk: disk(&settled)?,
        host_memory_bytes: flags.host_memory.unwrap_or(Bytes(host.memory_bytes)).0,
        memory_limit: host.memory_limit.as_deref().filter(|_| flags.host_memory.is_none()),
        warnings,
        count_origin: settled.count_origin(),
    };
    if flags.output.json {
        report::out_json(&report.json())?;
    } else {
        if !flags.output.quiet {
            report::warnings(warnings);
        }
        report::out(&report.text())?;
    }
    Ok(Exit::Ok)
}

/// Plans a workload that only writes its data set.
fn data_set_alone(flags: &PlanFlags, asked: &Asked) -> CommandResult {
    let (data, disk) = (data_set(asked)?, disk_at(asked.data_location(), true)?);
    let report =
        DataSetReport { workload: asked.name(), format: &asked.spec.dataset.format, data: &data, disk };
    if flags.output.json {
        report::out_json(&report.json(&asked.warnings))?;
    } else {
        if !flags.output.quiet {
            report::warnings(&asked.warnings);
        }
        report::out(&report.text())?;
    }
    Ok(Exit::Ok)
}

/// The disk of the data set or, without training, of the checkpoints.
fn disk(settled: &Settled<'_>) -> Result<DiskSpace, Failure> {
    let place = match (&settled.plan.training, settled.checkpoint_folder()) {
        (None, Some(folder)) => Location::from(folder),
        _ => settled.asked.data_location(),
    };
    disk_at(place, settled.plan.training.is_some())
}

fn disk_at(place: Location, holds_data: bool) -> Result<DiskSpace, Failure> {
    let mut free_bytes = None;
    if let Ok(folder) = place.path() {
        if holds_data {
            check_folder(folder, "data folder")?;
        }
        // If the file system does not report its free space, the plan is shown without it.
        free_bytes = store::free_bytes(folder).ok();
    }
    Ok(DiskSpace { place, free_bytes })
}
