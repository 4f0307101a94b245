//! `feedline validate`: checks that a result is unchanged, and recomputes its verdict by the rules of this version,
//! from plan and ledger alone. It measures nothing.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use model::document;
use serde_json::{Value, json};

use super::audited::{SavedAudit, is_audit};
use super::saved::{self, SavedResult};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::WaitFlags;
use crate::report;
use crate::report::audit::AuditValidation;
use crate::report::validate::Validation;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline validate feedline-results/demo/20260101_120000
  feedline validate feedline-results/demo                  every result of that workload
  feedline validate feedline-results/* --json

Checks every byte of a result against its SHA256SUMS, then recomputes the verdict by the rules of this version. Exit
code 3: the folder was changed; 4: the verdict is incomplete; 5: it is invalid.";

#[derive(Args, Debug)]
pub(crate) struct ValidateFlags {
    /// A result, or a folder that holds several
    #[arg(value_name = "RESULT-DIR", required = true)]
    pub results: Vec<PathBuf>,
    /// Print the verdicts as JSON on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

/// With several results, the worst one decides the exit code; a refused one is worse than these.
const WORST_FIRST: [Exit; 3] = [Exit::Incomplete, Exit::CheckFailed, Exit::Ok];

pub(crate) fn validate(flags: &ValidateFlags) -> CommandResult {
    let mut looked_at = Vec::new();
    for path in &flags.results {
        match saved::find(path) {
            Err(error) => looked_at.push(refuse(path, &error)),
            Ok(folders) => {
                for folder in folders {
                    looked_at.push(look_at(&folder, flags.json)?);
                }
            }
        }
    }
    let (exits, values): (Vec<Exit>, Vec<Value>) = looked_at.into_iter().unzip();
    let results = json!({ "results": values });
    let refused: Vec<&str> = values.iter().filter_map(|value| value["refused"].as_str()).collect();
    let error = match refused.as_slice() {
        [] => None,
        [one] => Some(anyhow!("{one}")),
        several => Some(anyhow!("{} of {} results were refused", several.len(), exits.len())),
    };
    if let Some(error) = error {
        return Err(Failure::printed(Exit::Refused, error).with_result(&results));
    }
    if flags.json {
        report::out_json(document::VALIDATION, &results)?;
    }
    Ok(WORST_FIRST.into_iter().find(|exit| exits.contains(exit)).unwrap_or(Exit::Ok))
}

/// Results are opened and shown one at a time, because there may be many and ledgers are large.
fn look_at(folder: &Path, json: bool) -> Result<(Exit, Value), Failure> {
    if is_audit(folder) {
        return look_at_audit(folder, json);
    }
    let saved = match SavedResult::open(folder) {
        Ok(saved) => saved,
        Err(error) => return Ok(refuse(folder, &error)),
    };
    let validation = Validation::new(&saved);
    if !json {
        report::out(&validation.text())?;
    }
    Ok((Exit::of(validation.verdict.status), validation.json()))
}

fn look_at_audit(folder: &Path, json: bool) -> Result<(Exit, Value), Failure> {
    let saved = match SavedAudit::open(folder) {
        Ok(saved) => saved,
        Err(error) => return Ok(refuse(folder, &error)),
    };
    let validation = AuditValidation::new(&saved);
    if !json {
        report::out(&validation.text())?;
    }
    Ok((Exit::Ok, validation.json()))
}

fn refuse(folder: &Path, error: &anyhow::Error) -> (Exit, Value) {
    report::error(&format!("{error:#}"));
    (Exit::Refused, json!({ "folder": folder, "refused": format!("{error:#}") }))
}
