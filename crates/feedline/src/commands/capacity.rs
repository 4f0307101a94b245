//! `feedline capacity`: how many accelerators this storage feeds at the workload's AU.

use anyhow::anyhow;
use clap::Args;
use engine::host::Host;
use model::study::search::Trial;
use session::Ask;
use session::study::{Capacity, CapacityRange, StudyControl};

use super::{ask_at, read, stop_on_signals};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::{CacheFlags, DataFlags, OutputFlags, WorkloadFlags};
use crate::progress::ProgressMode;
use crate::report;
use crate::report::capacity::{CapacityReport, trial_line};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline capacity retinanet_b200 --data-dir /data/retinanet
  feedline capacity unet3d_h100 --data-dir /data/unet3d --from 4 --up-to 64
  feedline capacity retinanet_b200 --store null            how many this host can emulate

Short probes find the limit, full runs of the workload confirm it: N accelerators reach its metric.au, N + 1 do not.";

#[derive(Args, Debug)]
pub(crate) struct CapacityFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    #[command(flatten)]
    pub place: DataFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// First number of accelerators to try
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub from: u64,
    /// Largest number of accelerators to try
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub up_to: Option<u64>,
    /// Steps of a probe [default: 20 for each batch that can be ready in advance, at least 2 s of compute time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    #[command(flatten)]
    pub output: OutputFlags,
}

pub(crate) fn capacity(flags: &CapacityFlags) -> CommandResult {
    if let Some(up_to) = flags.up_to.filter(|up_to| *up_to < flags.from) {
        return Err(Failure::usage(anyhow!("--from {} is greater than --up-to {up_to}", flags.from)));
    }
    let ask = ask_at(&flags.workload, flags.overrides(), &flags.place)?;
    let asked = read(Ask { checkpoints: None, ..ask })?;
    let host = Host::look();
    let range = CapacityRange { from: flags.from, up_to: flags.up_to, steps: flags.steps };
    let capacity = Capacity::settle(asked, &host, range)?;
    if !flags.output.quiet {
        report::warnings(capacity.warnings());
    }
    capacity.check_data()?;
    let (show, stop) = (ProgressMode::choose(flags.output.quiet), stop_on_signals()?);
    let seen = |trial: &Trial| {
        if show != ProgressMode::Nothing {
            report::note(&trial_line(trial));
        }
    };
    let found = capacity.run(&StudyControl { observer: &show, stop: &stop }, seen)?;
    conclude(flags, &CapacityReport { found: &found })
}

fn conclude(flags: &CapacityFlags, report: &CapacityReport<'_>) -> CommandResult {
    match flags.output.json {
        true => report::out_json(&report.json())?,
        false => report::out(&report.text())?,
    }
    if !report.found.answer.clear {
        return Err(Failure::incomplete(anyhow!(
            "no clear limit was found: full runs contradict the probes; raise --steps, or see how the rate varies with \
             'feedline sweep --over ranks=..'"
        )));
    }
    Ok(if report.is_valid() { Exit::Ok } else { Exit::CheckFailed })
}
