//! `feedline mlperf`: the rules of MLPerf Storage, for results of feedline, DLIO and mlpstorage. One file per
//! subcommand.

mod size;

pub(crate) use size::MlperfSizeFlags;

use clap::{Args, Subcommand};
use model::units::Nanos;

use crate::exit::CommandResult;
use crate::report::layout;
use crate::terminal::help_columns;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline mlperf size unet3d_b200 --ranks 8 --hosts 2 --host-memory 256GiB

Only results that mlpstorage itself made count as a submission; see docs/mlperf.md.";

#[derive(Args, Debug)]
pub(crate) struct MlperfFlags {
    #[command(subcommand)]
    pub action: MlperfAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MlperfAction {
    /// Show the smallest data set, or the size of a checkpoint, that the rules accept; reads no data
    #[command(after_help = layout::help(size::EXAMPLES, help_columns()))]
    Size(MlperfSizeFlags),
}

impl MlperfAction {
    /// The stall timeout that the flags set.
    pub(crate) fn stall_timeout(&self) -> Option<Nanos> {
        match self {
            MlperfAction::Size(flags) => flags.workload.stall_timeout(),
        }
    }
}

pub(crate) fn mlperf(flags: &MlperfFlags) -> CommandResult {
    match &flags.action {
        MlperfAction::Size(flags) => size::size(flags),
    }
}
