//! Requests to an object store: how many, how many failed and were sent again, and what that cost.

use model::ledger::Phase;
use model::units::grouped;

use super::doc::{Doc, bytes, whole};
use super::parts::{Cell, DataTable, PageSection};
use super::run::RunView;

pub(super) fn section(view: &RunView<'_>) -> Option<PageSection> {
    let mut rows = Vec::new();
    let (mut sent, mut failed) = (0, 0);
    for phase in [Phase::Train, Phase::Eval] {
        for epoch in view.epochs(phase) {
            let found = epoch.at("requests");
            if !found.exists() {
                continue;
            }
            let failures = found.at("failed_attempts").entries();
            sent += found.at("requests").count().unwrap_or(0);
            failed += failures.iter().filter_map(|(_, count)| count.count()).sum::<u64>();
            rows.push(row(&epoch, phase, &found, &failures));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let sentence = match failed {
        0 => format!("None of {} requests failed.", grouped(sent)),
        failed => format!(
            "{} of {} requests failed ({:.2} %) and were sent again: throughput includes these retries.",
            grouped(failed),
            grouped(sent),
            100.0 * failed as f64 / sent.max(1) as f64
        ),
    };
    let section = PageSection::new(
        "requests",
        "Requests to the object store",
        "How many requests the samples took, how many attempts failed, and how many bytes arrived.",
    );
    Some(
        section.finding(sentence).table(DataTable {
            caption: "Requests by epoch".to_owned(),
            header: [
                "phase",
                "epoch",
                "requests",
                "per sample",
                "failed attempts",
                "new connections",
                "received",
                "needed",
            ]
            .map(str::to_owned)
            .into(),
            rows,
            text_columns: 1,
        }),
    )
}

fn row(epoch: &Doc<'_>, phase: Phase, found: &Doc<'_>, failures: &[(&str, Doc<'_>)]) -> Vec<Cell> {
    let listed: Vec<String> =
        failures.iter().map(|(kind, count)| format!("{} {kind}", count.shown())).collect();
    let listed = if listed.is_empty() { "0".to_owned() } else { listed.join(", ") };
    vec![
        phase.to_string().into(),
        epoch.at("epoch").cell(whole),
        found.at("requests").cell(whole),
        found.at("requests_per_sample").cell(|value| format!("{value:.2}")),
        listed.into(),
        found.at("connects").cell(whole),
        found.at("received_bytes").cell(bytes),
        found.at("needed_bytes").cell(bytes),
    ]
}
