//! `feedline infer`: writes a workload that reads data as an audited job does.

use std::path::PathBuf;

use ::audit::infer::{InferOptions, infer as infer_workload};
use anyhow::bail;
use clap::Args;

use super::audited::SavedAudit;
use super::saved;
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::WaitFlags;
use crate::report;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline infer RESULT > job.yaml
  feedline run job.yaml            # replays the job
  feedline infer RESULT --fixed tiny-reads > fixed.yaml

A comment on each value says where it is from and how sure it is. --fixed leaves a fault out, so that the gain can be
measured before the job is edited. 'feedline docs findings' explains the findings.";

#[derive(Args, Debug)]
pub(crate) struct InferFlags {
    /// The result of an audit
    #[arg(value_name = "RESULT")]
    pub result: PathBuf,
    /// Leave out the fault of this finding; may be repeated
    #[arg(long, value_name = "FINDING")]
    pub fixed: Vec<String>,
    /// A catalog of the job's files ('feedline catalog'): the workload reads them, instead of generated files
    #[arg(long, value_name = "FILE")]
    pub catalog: Option<PathBuf>,
    #[command(flatten)]
    pub wait: WaitFlags,
}

pub(crate) fn infer(flags: &InferFlags) -> CommandResult {
    let saved = open(flags).map_err(Failure::refused)?;
    let catalog = flags.catalog.as_ref().map(|path| path.display().to_string());
    let options = InferOptions { fixed: flags.fixed.clone(), catalog };
    let workload = infer_workload(&saved.ledger, &saved.findings, &options).map_err(Failure::refused)?;
    report::out(&workload)?;
    Ok(Exit::Ok)
}

fn open(flags: &InferFlags) -> anyhow::Result<SavedAudit> {
    let saved = match saved::find(&flags.result)?.as_slice() {
        [one] => SavedAudit::open(one)?,
        several => bail!("{} holds {} results; give one", flags.result.display(), several.len()),
    };
    let found = || saved.findings.faults().map(|finding| finding.name.as_str());
    match flags.fixed.iter().find(|name| !found().any(|found| found == *name)) {
        Some(name) if found().next().is_none() => bail!("--fixed {name}: this job has no faults"),
        Some(name) => bail!(
            "--fixed {name}: this job has no such fault; use one of {}",
            found().collect::<Vec<_>>().join(", ")
        ),
        None => Ok(saved),
    }
}
