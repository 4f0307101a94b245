//! `feedline plan`: what a run would read, and the time and memory it needs. It reads the host's memory size and the
//! disk's free space, but no data.

use std::path::PathBuf;

use clap::Args;
use engine::host::Host;
use engine::{Solo, Stop};
use model::document;
use model::location::Location;
use model::plan::{SizeRule, check_ranks};
use model::units::Bytes;
use session::{Ask, Asked, Generate, Settled, check_folder, data_set, settle};
use store::BACKENDS;

use super::{ask, generate_command, read};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::{CacheFlags, CheckpointFlags, OutputFlags, WorkloadFlags};
use crate::report;
use crate::report::hosts::{HostsPlan, HostsReport};
use crate::report::plan::{DataSetReport, DiskSpace, PlanReport};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline plan unet3d_b200 --ranks 8 --hosts 4 --host-memory 256GiB
  feedline plan unet3d_b200 --ranks 48 --hosts 4 --processes-per-host 12    one process per accelerator
  feedline plan unet3d_b200 --ranks-per-host 8 --hosts 1,2,4   the data set for each number of hosts
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
    /// Number of emulated accelerators on each host
    #[arg(long, value_name = "N", conflicts_with = "ranks")]
    pub ranks_per_host: Option<u64>,
    /// Number of hosts; several numbers such as 1,2,4: the smallest data set by MLPerf Storage's rules for each, and
    /// the command that generates it
    #[arg(long, value_name = "N,..", default_value = "1", value_delimiter = ',')]
    pub hosts: Vec<u64>,
    /// Number of processes on each host, as started by mpirun; one process can play any number of accelerators
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub processes_per_host: u64,
    /// Memory of one host, such as 256GiB [default: this host's]
    #[arg(long, value_name = "SIZE")]
    pub host_memory: Option<Bytes>,
    /// Folder or URL of the data set; only its free space, its manifest and its catalog are read
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
    match flags.hosts.as_slice() {
        [hosts] => plan_for(flags, *hosts),
        several if several.contains(&0) => {
            Err(Failure::usage(anyhow::anyhow!("--hosts must be at least 1, not 0")))
        }
        several => compare_hosts(flags, several),
    }
}

impl PlanFlags {
    /// The request for this many hosts.
    fn ask(&self, hosts: u64) -> Result<Ask, Failure> {
        let ask = Ask {
            hosts,
            processes_per_host: self.processes_per_host,
            host_memory: self.host_memory,
            store: self.store.clone(),
            memory: self.memory,
            // Plans with the existing files, even if a run would write missing ones.
            generate: Generate::Never,
            only_plans: true,
            checkpoints: Some(self.checkpoints.scale),
            ..ask(&self.workload, self.overrides(), self.data_dir.as_deref())?
        };
        let each = match (self.ranks_per_host, hosts) {
            (Some(each), _) => Some(each),
            // The workload's number is that of one host.
            (None, 2..) => Some(ask.workload.ranks),
            (None, _) => None,
        };
        Ok(Ask { ranks: self.ranks.or_else(|| Some(each?.saturating_mul(hosts))), ..ask })
    }
}

/// A table of the data sets and rates for several numbers of hosts.
fn compare_hosts(flags: &PlanFlags, numbers: &[u64]) -> CommandResult {
    let host = Host::look();
    // The demand of an accelerator does not depend on the number of accelerators.
    let asked = read(Ask { ranks: Some(1), checkpoints: None, ..flags.ask(1)? })?;
    let world = Solo::new();
    let settled = settle(asked, &host, &world, &Stop::default())?;
    let (plan, spec) = (&settled.plan, &settled.asked.spec);
    let demand = plan.trained().map_err(Failure::usage)?.estimate.demand;
    let memory = flags.host_memory.unwrap_or(Bytes(host.memory_bytes)).0;
    let command = generate_command(&flags.workload, flags.data_dir.as_deref());
    let plans = numbers.iter().map(|&hosts| {
        let ranks = flags.ask(hosts)?.ranks.unwrap_or(settled.asked.ask.workload.ranks);
        check_ranks(ranks, hosts).map_err(Failure::usage)?;
        let rule = SizeRule::new(spec, (ranks, hosts), memory, spec.dataset.num_files_train, None);
        let generate = format!("{command} --set dataset.num_files_train={}", rule.required_files);
        Ok(HostsPlan { hosts, ranks, rule, generate })
    });
    let plans = plans.collect::<Result<Vec<_>, Failure>>()?;
    let report = HostsReport { workload: &plan.workload, host_memory_bytes: memory, demand, plans };
    match flags.output.json {
        true => report::out_json(document::HOST_PLANS, &report.json())?,
        false => report::out(&report.text())?,
    }
    Ok(Exit::Ok)
}

fn plan_for(flags: &PlanFlags, hosts: u64) -> CommandResult {
    let ask = flags.ask(hosts)?;
    let host = Host::look();
    let asked = read(ask)?;
    let workflow = &asked.spec.workflow;
    if workflow.generate_data && !workflow.train && !workflow.checkpoint {
        return data_set_alone(flags, &asked);
    }
    let world = Solo::new();
    let settled = settle(asked, &host, &world, &Stop::default())?;
    let warnings = &settled.asked.warnings;
    let report = PlanReport {
        plan: &settled.plan,
        placement: settled.placement(),
        disk: disk(&settled)?,
        host_memory_bytes: flags.host_memory.unwrap_or(Bytes(host.memory_bytes)).0,
        memory_limit: host.memory_limit.as_deref().filter(|_| flags.host_memory.is_none()),
        generate: &generate_command(&flags.workload, flags.data_dir.as_deref()),
        warnings,
        count_origin: settled.count_origin(),
    };
    if flags.output.json {
        report::out_json(document::PLAN_REPORT, &report.json())?;
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
        report::out_json(document::DATA_SET_PLAN, &report.json(&asked.warnings))?;
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
    let place = match (&settled.plan.training, settled.checkpoint_location()) {
        (None, Some(place)) => place.clone(),
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
