//! Reads traces of other programs.

use std::io;
use std::path::Path;

use model::ledger::Ledger;
use model::observed::{Observed, Source};

use crate::Paths;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceInputError {
    #[error("cannot read {0}: {1}")]
    Io(String, io::Error),
}

/// What the trace says about the job.
pub fn read(path: &Path, _paths: Paths) -> Result<Ledger, TraceInputError> {
    std::fs::metadata(path).map_err(|cause| TraceInputError::Io(path.display().to_string(), cause))?;
    let observed = Observed { source: Source::Strace, ..Observed::default() };
    let mut ledger = Ledger::default();
    ledger.observed = Some(Box::new(observed));
    Ok(ledger)
}
