//! The page of a run that has just ended, made from the same documents as the page of a saved result.

use ::report::html::{self, HtmlPage, RunDocuments};
use anyhow::Context;
use model::document;

use super::result::Outcome;

pub(crate) fn of_run(outcome: &Outcome<'_>) -> anyhow::Result<HtmlPage> {
    let summary = serde_json::to_value(outcome.page_summary()).context("cannot make the summary")?;
    let plan = serde_json::to_value(document::PLAN.of(outcome.plan)).context("cannot write the plan")?;
    let spec = outcome.spec.to_yaml();
    Ok(html::run(&RunDocuments {
        summary: &summary,
        ledger: Some(outcome.ledger),
        plan: Some(&plan),
        spec: Some(&spec),
        notices: Vec::new(),
        version: env!("CARGO_PKG_VERSION"),
    }))
}
