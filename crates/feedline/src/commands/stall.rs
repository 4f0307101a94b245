//! `feedline stall`: what the accelerators wait for.

use clap::Args;
use engine::host::Host;
use session::Ask;
use session::study::{Stall, StudyControl};

use super::{ask_at, read, stop_on_signals};
use crate::exit::{CommandResult, Exit};
use crate::flags::{DataFlags, OutputFlags, WorkloadFlags};
use crate::progress::ProgressMode;
use crate::report;
use crate::report::stall::StallReport;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline stall demo
  feedline stall retinanet_b200 --data-dir /data/retinanet --ranks 4
  feedline stall unet3d_h100 --data-dir /data/unet3d --steps 50 --json

Runs the same steps without data, with a cold page cache, and with a warm one; the differences are the stalls of
preprocessing and of fetching. It sets reader.cache itself, changes no data file, and leaves other files cached.";

#[derive(Args, Debug)]
pub(crate) struct StallFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    #[command(flatten)]
    pub place: DataFlags,
    /// Number of emulated accelerators [default: 1, for the demo 2]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Maximum steps of each run, of which 5 warm up [default: 10 s of compute time, at least 20 for each batch that
    /// can be ready in advance]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    #[command(flatten)]
    pub output: OutputFlags,
}

pub(crate) fn stall(flags: &StallFlags) -> CommandResult {
    let ask = ask_at(&flags.workload, flags.overrides(), &flags.place)?;
    let asked = read(Ask { ranks: flags.ranks, checkpoints: None, ..ask })?;
    let host = Host::look();
    let stall = Stall::settle(asked, &host, flags.steps)?;
    if !flags.output.quiet {
        report::warnings(stall.warnings());
    }
    stall.check_data()?;
    let (show, stop) = (ProgressMode::choose(flags.output.quiet), stop_on_signals()?);
    let begins = |run: &str, steps: u64| {
        if show != ProgressMode::Nothing {
            report::note(&format!("{run} run, {steps} steps"));
        }
    };
    let found = stall.run(&StudyControl { observer: &show, stop: &stop }, begins)?;
    let report = StallReport { found: &found };
    match flags.output.json {
        true => report::out_json(&report.json())?,
        false => report::out(&report.text())?,
    }
    Ok(if found.broken.is_empty() { Exit::Ok } else { Exit::CheckFailed })
}
