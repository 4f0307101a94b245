//! Infers a workload from what was observed.

use model::ledger::Ledger;
use model::observed::Findings;

#[derive(Clone, Debug, Default)]
pub struct InferOptions {
    /// Names of findings whose faults the workload does not have.
    pub fixed: Vec<String>,
}

/// Why no workload can be inferred.
#[derive(Debug, thiserror::Error)]
pub enum InferError {
    #[error("the result has no observed job")]
    NotObserved,
}

/// The workload as YAML.
pub fn infer(ledger: &Ledger, _findings: &Findings, _options: &InferOptions) -> Result<String, InferError> {
    match &ledger.observed {
        Some(_) => Ok("# inferred\n".to_owned()),
        None => Err(InferError::NotObserved),
    }
}
