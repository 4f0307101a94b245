//! `feedline compare` with an audit on at least one side: the job and its replay, or the job before and after a change.

use std::path::Path;

use anyhow::bail;
use model::document;
use model::ledger::Ledger;

use super::super::audited::{SavedAudit, is_audit};
use super::super::saved::{self, SavedResult};
use super::CompareFlags;
use crate::exit::{CommandResult, Exit, Failure};
use crate::report;
use crate::report::audit::{SideBySide, SideFigures};

/// Whether a side is an audit.
pub(super) fn has_audit(flags: &CompareFlags) -> bool {
    let is_audit = |path: &Path| saved::find(path).is_ok_and(|found| found.iter().any(|one| is_audit(one)));
    is_audit(&flags.a) || is_audit(&flags.b)
}

pub(super) fn compare(flags: &CompareFlags) -> CommandResult {
    let sides = open(&flags.a).and_then(|a| Ok((a, open(&flags.b)?)));
    let (a, b) = sides.map_err(Failure::refused)?;
    let both = SideBySide::new(a, b);
    match flags.json {
        true => report::out_json(document::AUDIT_COMPARISON, &both.json())?,
        false => report::out(&both.text())?,
    }
    Ok(Exit::Ok)
}

fn open(path: &Path) -> anyhow::Result<SideFigures> {
    let found = saved::find(path)?;
    let [folder] = found.as_slice() else {
        bail!("{} holds {} results; give one, as one side is an audit", path.display(), found.len());
    };
    let shown = folder.display().to_string();
    if is_audit(folder) {
        let SavedAudit { observed, .. } = SavedAudit::open(folder)?;
        return Ok(SideFigures::of_audit(shown, &observed));
    }
    let run = SavedResult::open(folder)?;
    run.check_trained()?;
    let ledger: &Ledger = &run.ledger;
    Ok(SideFigures::of_run(shown, ledger))
}
