//! The report of `feedline audit`: as text, as a summary and as the files of a result.

mod text;

use std::path::{Path, PathBuf};

use model::ledger::Ledger;
use model::observed::{Findings, Observed};
use serde_json::{Value, json};

use super::folder::{NamedDocument, PAGE, SUMMARY, write_documents};
use super::{write_lines, write_pretty};
use crate::commands::audited::FINDINGS;

pub(crate) use text::{AuditText, Stream};

/// An audit that has ended.
pub(crate) struct AuditOutcome<'a> {
    pub name: &'a str,
    /// The command of feedline as typed, without secrets.
    pub command: String,
    pub ledger: &'a Ledger,
    pub observed: &'a Observed,
    pub findings: &'a Findings,
}

impl AuditOutcome<'_> {
    /// Writes the result and returns its folder.
    pub(crate) fn write(&self, results: &Path) -> anyhow::Result<PathBuf> {
        let documents: [NamedDocument<'_>; 3] = [
            ("ledger.json", Box::new(|to| write_lines(to, self.ledger))),
            (FINDINGS, Box::new(|to| write_pretty(to, self.findings))),
            (SUMMARY, Box::new(|to| write_pretty(to, &self.summary()))),
        ];
        let _ = PAGE;
        write_documents(results, self.name, &documents)
    }

    fn summary(&self) -> Value {
        json!({ "feedline": { "version": env!("CARGO_PKG_VERSION"), "workload": self.name } })
    }
}
