//! The summary of a trace as text.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ::report::trace::{RankTime, TraceSummary};
use model::spans::SpanKind;
use model::units::{Bytes, counted, grouped};

use super::{fitted, printable, table};

/// Ranks that are shown; of more, those that waited longest.
const MOST_RANKS: usize = 16;

/// The summary. `names` has the names of files.
pub(crate) fn render(summary: &TraceSummary, names: &BTreeMap<String, String>) -> String {
    let mut text = fitted(&heading(summary));
    if !summary.operations.is_empty() {
        text.push_str(&operations(summary));
    }
    if !summary.ranks.is_empty() {
        text.push_str(&ranks(summary));
    }
    if !summary.slowest.is_empty() {
        text.push_str(&slowest(summary, names));
    }
    text
}

/// What the trace covers, and what is missing.
fn heading(summary: &TraceSummary) -> String {
    let TraceSummary { span, events, tracks, .. } = summary;
    let tracks = counted(tracks.iter().filter(|track| track.events > 0).count() as u64, "track");
    let mut text = format!("{} in {span}, on {tracks}\n", counted(*events, "operation"));
    if let Some(limits) = &summary.limits {
        text.push_str(&format!("limits: {}\n", printable(limits)));
    }
    if let Some(limit) = &summary.limit_reached {
        text.push_str(&format!(
            "the trace ends before the run: it reached its limit, {}\n",
            printable(limit)
        ));
    }
    match summary.lost {
        None => {}
        Some(0) => text.push_str("no operation was lost\n"),
        Some(lost) => {
            let lost = counted(lost, "operation");
            text.push_str(&format!("lost: {lost} that came faster than they were written\n"));
        }
    }
    if summary.is_cut {
        text.push_str("the end of the trace is missing: the run was killed, or the file was cut off\n");
    }
    if summary.skipped > 0 {
        let skipped = counted(summary.skipped, "event");
        text.push_str(&format!("{skipped} of other kinds than complete events not counted\n"));
    }
    text
}

fn operations(summary: &TraceSummary) -> String {
    let rows = summary.operations.iter().map(|operation| {
        let times = operation.times;
        let bytes = if operation.bytes > 0 { Bytes(operation.bytes).to_string() } else { "-".to_owned() };
        [
            printable(&operation.name),
            grouped(times.count),
            bytes,
            operation.total.to_string(),
            times.mean_ns.to_string(),
            times.p50_ns.to_string(),
            times.p99_ns.to_string(),
            times.max_ns.to_string(),
        ]
    });
    let header = ["operation", "count", "bytes", "total", "mean", "p50", "p99", "max"];
    format!("\n{}\n", table(header, 1..8, rows))
}

/// What each accelerator spent its time on.
fn ranks(summary: &TraceSummary) -> String {
    let kinds: Vec<&str> = SpanKind::all()
        .filter(|kind| kind.category() == "accelerator")
        .map(SpanKind::name)
        .filter(|name| summary.ranks.iter().any(|rank| rank.times.contains_key(*name)))
        .collect();
    let (mut shown, mut note): (Vec<&RankTime>, _) = (summary.ranks.iter().collect(), String::new());
    if shown.len() > MOST_RANKS {
        let wait = |rank: &&RankTime| rank.times.get(SpanKind::BatchWait.name()).copied();
        shown.sort_by_key(|rank| Reverse(wait(rank)));
        shown.truncate(MOST_RANKS);
        let all = grouped(summary.ranks.len() as u64);
        note = format!("the {MOST_RANKS} of {all} ranks that waited longest for batches\n");
    }
    let rows = shown.into_iter().map(|rank| {
        let shares = kinds.iter().map(|kind| format!("{:.1} %", rank.percent(kind)));
        [printable(&rank.name), rank.total().to_string()].into_iter().chain(shares).collect::<Vec<_>>()
    });
    let header: Vec<&str> = ["accelerator", "time"].into_iter().chain(kinds.iter().copied()).collect();
    format!("\n{note}{}\n", table(&header, 1..header.len(), rows))
}

fn slowest(summary: &TraceSummary, names: &BTreeMap<String, String>) -> String {
    let rows = summary.slowest.iter().map(|slow| {
        let name = names.get(&slow.file).unwrap_or(&slow.file);
        [
            printable(&slow.name),
            slow.took.to_string(),
            slow.at.to_string(),
            printable(&slow.track),
            printable(name),
        ]
    });
    let header = ["slowest", "took", "at", "track", "file"];
    format!("\n{}\n", table(header, 1..3, rows))
}
