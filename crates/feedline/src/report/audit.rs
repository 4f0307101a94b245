//! The report of `feedline audit`: as text, as a summary and as the files of a result.

mod sides;
mod text;
mod validation;

use std::path::{Path, PathBuf};

use ::report::audit::AuditFigures;
use ::report::html::{self, AuditDocuments, HtmlPage};
use model::document;
use model::ledger::Ledger;
use model::observed::{Fault, Findings, Observed};
use serde_json::{Value, json};

use super::folder::{NamedDocument, PAGE, SUMMARY, write_documents};
use super::{write_lines, write_pretty};
use crate::commands::audited::FINDINGS;

pub(crate) use sides::{SideBySide, SideFigures};
pub(crate) use text::{AuditText, TextTarget};
pub(crate) use validation::AuditValidation;

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
        let documents: [NamedDocument<'_>; 4] = [
            ("ledger.json", Box::new(|to| write_lines(to, &document::LEDGER.of(self.ledger)))),
            (FINDINGS, Box::new(|to| write_pretty(to, &document::FINDINGS.of(self.findings)))),
            (PAGE, Box::new(|to| Ok(to.write_all(self.page().html().as_bytes())?))),
            (SUMMARY, Box::new(|to| write_pretty(to, &self.summary()))),
        ];
        write_documents(results, self.name, &documents)
    }

    fn page(&self) -> HtmlPage {
        html::audit(&AuditDocuments {
            name: self.name,
            start: &self.ledger.times.start,
            observed: self.observed,
            findings: self.findings,
            notices: Vec::new(),
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    /// The content of `summary.json`.
    fn summary(&self) -> Value {
        let (observed, figures) = (self.observed, AuditFigures::new(self.observed));
        let finding = |finding: &Fault| {
            json!({
                "name": finding.name,
                "severity": finding.severity,
                "certainty": finding.certainty,
                "cost_seconds_per_epoch": finding.cost_seconds_per_epoch,
            })
        };
        json!({
            "start": self.ledger.times.start,
            "end": self.ledger.times.end,
            "hostname": observed.host.name,
            "feedline": {
                "schema_version": document::AUDIT_SUMMARY.version,
                "version": env!("CARGO_PKG_VERSION"),
                "kind": "audit",
                "workload": self.name,
                "command": self.command,
                "job": {
                    "source": observed.source,
                    "exit_code": observed.exit.code,
                    "signal": observed.exit.signal,
                    "wall_seconds": observed.wall_ns.seconds(),
                    "ranks": figures.ranks,
                    "samples_per_second": figures.samples_per_second(),
                    "bytes_per_second": figures.bytes_per_second(),
                    "wait_share": figures.wait_share(),
                    "epoch_seconds": self.findings.time,
                },
                "findings": self.findings.findings.iter().map(finding).collect::<Vec<_>>(),
                "epochs": figures.epochs,
                "coverage": {
                    "events": observed.coverage.events,
                    "events_dropped": observed.coverage.events_dropped,
                    "share_of_copied_bytes": observed.coverage.share(),
                    "processes_seen": observed.coverage.processes_seen,
                    "processes_unseen": observed.coverage.unseen.len(),
                    "marks": observed.coverage.marks,
                },
                "overhead": observed.overhead,
            },
        })
    }
}
