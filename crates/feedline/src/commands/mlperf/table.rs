//! `feedline mlperf table`: the columns of the published results.

use std::path::PathBuf;

use clap::Args;
use model::document;

use super::check::{RuleFlags, checked};
use super::tree;
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::WaitFlags;
use crate::report;
use crate::report::mlperf::table::ResultsTable;

pub(super) const EXAMPLES: &str = "\
Examples:
  feedline mlperf table submission
  feedline mlperf table site-a site-b --csv > results.csv
  feedline mlperf table submission --json

Read GiB/s is the mean over the scored runs (all but the first, which is the warm-up) of DLIO's
train_io_mean_MB_per_second / 1024. A row whose rules failed is marked; 'feedline mlperf check' explains it.";

#[derive(Args, Debug)]
pub(crate) struct MlperfTableFlags {
    /// Results, folders with the results of a workload, or submissions
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    #[command(flatten)]
    pub rules: RuleFlags,
    /// Print the rows as CSV on stdout
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print the rows as JSON on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

pub(super) fn table(flags: &MlperfTableFlags) -> CommandResult {
    let mut workloads = Vec::new();
    for folder in &flags.folders {
        let found = tree::read(folder).map_err(Failure::usage)?;
        workloads.extend(checked(&found, flags.rules));
    }
    let table = ResultsTable { workloads };
    match (flags.csv, flags.json) {
        (true, _) => report::out(&table.csv())?,
        (_, true) => report::out_json(document::MLPERF_TABLE, &table.json())?,
        _ => report::out(&table.text())?,
    }
    Ok(Exit::Ok)
}
