//! `feedline mlperf`: the rules of MLPerf Storage, for results of feedline, DLIO and mlpstorage. One file per
//! subcommand.

mod check;
mod size;
mod table;
mod tree;

pub(crate) use size::MlperfSizeFlags;

use clap::{Args, Subcommand};
use model::units::Nanos;

use crate::exit::CommandResult;
use crate::report::layout;
use crate::terminal::help_columns;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline mlperf size unet3d_b200 --ranks 8 --hosts 2 --host-memory 256GiB
  feedline mlperf check submission                 which rules fail, and what to do
  feedline mlperf table submission --csv

Only results that mlpstorage itself made count as a submission; see 'feedline docs mlperf'.";

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
    /// Check results or a submission against the rules, also results that DLIO wrote
    #[command(after_help = layout::help(check::EXAMPLES, help_columns()))]
    Check(check::MlperfCheckFlags),
    /// Show results in the columns of the published table
    #[command(after_help = layout::help(table::EXAMPLES, help_columns()))]
    Table(table::MlperfTableFlags),
}

impl MlperfAction {
    /// The stall timeout that the flags set.
    pub(crate) fn stall_timeout(&self) -> Option<Nanos> {
        match self {
            MlperfAction::Size(flags) => flags.workload.stall_timeout(),
            MlperfAction::Check(flags) => flags.wait.stall_timeout(),
            MlperfAction::Table(flags) => flags.wait.stall_timeout(),
        }
    }
}

pub(crate) fn mlperf(flags: &MlperfFlags) -> CommandResult {
    match &flags.action {
        MlperfAction::Size(flags) => size::size(flags),
        MlperfAction::Check(flags) => check::check(flags),
        MlperfAction::Table(flags) => table::table(flags),
    }
}
