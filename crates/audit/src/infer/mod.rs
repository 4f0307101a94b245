//! Infers a workload from what was observed: values with their sources, faults left out, and the workload as YAML.

mod fixed;
mod inferred;
mod job;
mod outside;
mod pipeline;
mod requests;
mod samples;
#[cfg(test)]
mod tests;
mod yaml;

use model::ledger::Ledger;
use model::observed::Findings;

use job::InferredJob;

#[derive(Clone, Debug, Default)]
pub struct InferOptions {
    /// Names of findings whose faults the workload does not have.
    pub fixed: Vec<String>,
    /// A catalog of the job's files. With it the workload reads these files; otherwise generated ones.
    pub catalog: Option<String>,
}

/// Why no workload can be inferred.
#[derive(Debug, thiserror::Error)]
pub enum InferError {
    #[error("the result has no observed job")]
    NotObserved,
    #[error(
        "no batches were observed, so that neither steps nor samples are known; audit a job that uses PyTorch's \
         DataLoader or tf.data"
    )]
    NoBatches,
    #[error("the job read no data files in its epochs")]
    NoFiles,
    #[error("the job only maps its files into memory; a replay reads files and cannot repeat page faults")]
    OnlyMappings,
    #[error(
        "the result has no paths of files (--paths none), so that the folder of the catalog is not known; \
         leave --catalog out to use generated files"
    )]
    NoFolder,
    #[error("the job reads files whole or in ranges that a catalog cannot describe: {0}")]
    NotTheirFiles(&'static str),
    #[error("{name} cannot be left out of a workload: {reason}")]
    NotFixable { name: String, reason: &'static str },
}

/// The workload as YAML.
pub fn infer(ledger: &Ledger, findings: &Findings, options: &InferOptions) -> Result<String, InferError> {
    let observed = ledger.observed.as_deref().ok_or(InferError::NotObserved)?;
    let mut job = InferredJob::of(observed, findings)?;
    if let Some(catalog) = &options.catalog {
        job.read_own_files(catalog)?;
    }
    for name in &options.fixed {
        fixed::leave_out(&mut job, name, findings)?;
    }
    Ok(yaml::written(&job))
}
