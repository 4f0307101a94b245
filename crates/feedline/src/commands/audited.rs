//! Results of audits: found in folders, checked against their checksums and read back.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use model::ledger::Ledger;
use model::observed::{Findings, Observed};
use serde::Deserialize;

use super::saved::{bytes_of, check_published, is_newer, parse};
use crate::report::folder::SUMMARY;
use crate::report::sums;

/// The document that only the result of an audit has.
pub(crate) const FINDINGS: &str = "findings.json";

/// Whether the folder is the result of an audit.
pub(crate) fn is_audit(folder: &Path) -> bool {
    folder.join(FINDINGS).is_file()
}

/// A complete result of an audit.
#[derive(Debug)]
pub(crate) struct SavedAudit {
    pub folder: PathBuf,
    /// The version of feedline that wrote it.
    pub version: String,
    /// Number of files that were checked.
    pub files: usize,
    pub name: String,
    pub ledger: Ledger,
    pub observed: Observed,
    pub findings: Findings,
}

#[derive(Deserialize)]
struct SavedSummary {
    feedline: SavedFeedlineObject,
}

#[derive(Deserialize)]
struct SavedFeedlineObject {
    version: String,
    workload: String,
}

impl SavedAudit {
    pub(crate) fn open(folder: &Path) -> anyhow::Result<SavedAudit> {
        SavedAudit::read(folder).with_context(|| folder.display().to_string())
    }

    fn read(folder: &Path) -> anyhow::Result<SavedAudit> {
        check_published(folder)?;
        let files = sums::checked(folder)?;
        bytes_of(&files, FINDINGS).context("not the result of an audit")?;
        let SavedFeedlineObject { version, workload } = parse::<SavedSummary>(&files, SUMMARY)?.feedline;
        if is_newer(&version) {
            bail!(
                "written by feedline {version}, a newer version than this one ({}); use that version",
                env!("CARGO_PKG_VERSION")
            );
        }
        let of_version = || format!("written by feedline {version}; this version cannot read it");
        let ledger: Ledger = parse(&files, "ledger.json").with_context(of_version)?;
        let findings = parse(&files, FINDINGS).with_context(of_version)?;
        let observed = ledger.observed.as_deref().cloned();
        let observed = observed.ok_or_else(|| anyhow!("ledger.json has nothing that was observed"))?;
        let (folder, files) = (folder.to_owned(), files.len());
        Ok(SavedAudit { folder, version, files, name: workload, ledger, observed, findings })
    }
}
