//! Results of audits: found in folders, checked against their checksums and read back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use model::document;
use model::ledger::Ledger;
use model::observed::{Findings, Observed};
use serde::Deserialize;

use super::saved::{bytes_of, check_published, is_newer, parse};
use crate::report::folder::SUMMARY;
use crate::report::sums;

/// The document that only the result of an audit has.
pub(crate) const FINDINGS: &str = "findings.json";

const LEDGER: &str = "ledger.json";

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
struct SavedAuditSummary {
    feedline: SavedAuditObject,
}

#[derive(Deserialize)]
struct SavedAuditObject {
    version: String,
    workload: String,
}

impl SavedAudit {
    pub(crate) fn open(folder: &Path) -> anyhow::Result<SavedAudit> {
        SavedAudit::read(folder).with_context(|| folder.display().to_string())
    }

    /// Reads a result for a page as far as it can be read; with what is wrong with its files.
    pub(crate) fn show(folder: &Path) -> anyhow::Result<(SavedAudit, Option<anyhow::Error>)> {
        let (files, wrong) = match check_published(folder).and_then(|()| sums::checked(folder)) {
            Ok(files) => (files, None),
            Err(error) => (readable(folder), Some(error)),
        };
        let saved = SavedAudit::parse(folder, &files).with_context(|| folder.display().to_string())?;
        Ok((saved, wrong))
    }

    fn read(folder: &Path) -> anyhow::Result<SavedAudit> {
        check_published(folder)?;
        SavedAudit::parse(folder, &sums::checked(folder)?)
    }

    fn parse(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<SavedAudit> {
        bytes_of(files, FINDINGS).context("not the result of an audit")?;
        let SavedAuditObject { version, workload } =
            parse::<SavedAuditSummary>(files, SUMMARY, document::AUDIT_SUMMARY)?.feedline;
        if is_newer(&version) {
            bail!(
                "written by feedline {version}, a newer version than this one ({}); use that version",
                env!("CARGO_PKG_VERSION")
            );
        }
        let of_version = || format!("written by feedline {version}; this version cannot read it");
        let ledger: Ledger = parse(files, LEDGER, document::LEDGER).with_context(of_version)?;
        let findings = parse(files, FINDINGS, document::FINDINGS).with_context(of_version)?;
        let observed = ledger.observed.as_deref().cloned();
        let observed = observed.ok_or_else(|| anyhow!("ledger.json has nothing that was observed"))?;
        let (folder, files) = (folder.to_owned(), files.len());
        Ok(SavedAudit { folder, version, files, name: workload, ledger, observed, findings })
    }
}

/// The documents of a result that are regular files. A pipe would never end.
fn readable(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = |name: &str| {
        let path = folder.join(name);
        let is_file = fs::symlink_metadata(&path).ok()?.is_file();
        Some((name.to_owned(), is_file.then(|| fs::read(path).ok())??))
    };
    [LEDGER, FINDINGS, SUMMARY].into_iter().filter_map(file).collect()
}
