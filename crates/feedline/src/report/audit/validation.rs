//! `feedline validate` of an audit: its files are unchanged, and which findings this version has.

use std::fmt::Write;

use ::audit::judge;
use model::observed::Findings;
use model::units::counted;
use serde_json::{Value, json};

use super::super::{fitted, path_heading};
use crate::commands::audited::SavedAudit;

/// Why an audit has no verdict.
const NO_VERDICT: &str = "an observed job has no plan to be compared with";

/// An audit with the findings by the rules of this version.
#[derive(Debug)]
pub(crate) struct AuditValidation<'a> {
    saved: &'a SavedAudit,
    findings: Findings,
}

impl<'a> AuditValidation<'a> {
    pub(crate) fn new(saved: &'a SavedAudit) -> AuditValidation<'a> {
        AuditValidation { saved, findings: judge::judge(&saved.observed) }
    }

    pub(crate) fn text(&self) -> String {
        let SavedAudit { folder, version, files, findings, .. } = self.saved;
        let files = counted(*files as u64, "file");
        let place =
            path_heading(folder.display(), &format!("{files}, unchanged, written by feedline {version}"));
        let mut text = format!("verdict: not applicable: {NO_VERDICT}\n");
        let (was, is) = (names(findings), names(&self.findings));
        let _ = writeln!(text, "findings: {}", if is.is_empty() { "none".to_owned() } else { is.join(", ") });
        if was != is {
            let was = if was.is_empty() { "none".to_owned() } else { was.join(", ") };
            let _ = writeln!(text, "recorded findings: {was}");
        }
        place + &fitted(&text)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "folder": self.saved.folder,
            "refused": null,
            "version": self.saved.version,
            "verdict": null,
            "not_applicable": NO_VERDICT,
            "findings": names(&self.findings),
            "recorded_findings": names(&self.saved.findings),
        })
    }
}

fn names(findings: &Findings) -> Vec<&str> {
    findings.findings.iter().map(|finding| finding.name.as_str()).collect()
}
