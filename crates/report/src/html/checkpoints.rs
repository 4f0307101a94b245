//! Checkpoints: when each blocked training, was durable, was drained and was restored, and at which rates.

use model::units::{Nanos, counted};

use super::doc::{Doc, bytes, nanos, seconds, whole};
use super::parts::{Cell, DataTable, PageSection};
use super::run::RunView;
use crate::plot::{Gantt, GanttRow, GanttSpan, Plot};

/// The kinds of span of the chart, in the order of their indices.
const KINDS: [&str; 5] = [
    "training blocked",
    "until durable on the fast tier",
    "until durable",
    "drained to the last tier",
    "restored",
];
/// More checkpoints than this are not drawn; the table has all.
const MOST_ROWS: usize = 60;

pub(super) fn section(view: &RunView<'_>) -> Option<PageSection> {
    let found = view.own.at("checkpoint");
    let (saves, restores) = (found.at("saves").each(), found.at("restores").each());
    if saves.is_empty() && restores.is_empty() {
        return None;
    }
    let section = PageSection::new(
        "checkpoints",
        "Checkpoints",
        "What each checkpoint cost: how long training was blocked, when its bytes were safe, how fast it was restored.",
    );
    let caption = match saves.len() + restores.len() > MOST_ROWS {
        true => format!("The first {MOST_ROWS}; the tables have all"),
        false => "Times from the start of the run".to_owned(),
    };
    let section = section
        .finding(blocked_sentence(view, &saves))
        .finding(drain_sentence(&saves))
        .finding(restore_sentence(&restores))
        .plot("checkpoints", &caption, Plot::Gantt(chart(&saves, &restores, false)), None)
        .plot(
            "checkpoint-spans",
            "Each from its own start, so that short ones can be compared",
            Plot::Gantt(chart(&saves, &restores, true)),
            None,
        );
    Some(section.table(saves_table(&saves)).table(restores_table(&restores)))
}

fn name(of: &Doc<'_>) -> String {
    let moment = |key: &str| of.at(&format!("moment.{key}")).shown();
    format!("epoch {} step {}", moment("epoch"), moment("step"))
}

fn span_of(of: &Doc<'_>, key: &str) -> Option<f64> {
    of.at(key).number().map(|nanos| nanos / 1e9)
}

/// All checkpoints on the clock of the run, or each from its own start.
fn chart(saves: &[Doc<'_>], restores: &[Doc<'_>], aligned: bool) -> Gantt {
    let began = |of: &Doc<'_>| span_of(of, "began").filter(|_| !aligned).unwrap_or(0.0);
    let mut rows = Vec::new();
    for save in saves {
        let from = began(save);
        let mut spans = Vec::new();
        let mut add = |kind: usize, start: f64, length: Option<f64>| {
            spans.extend(length.map(|length| GanttSpan { kind, from: start, to: start + length }));
        };
        let (durable, drain) = (span_of(save, "durable_ns"), span_of(save, "drain_ns"));
        // The drain ends when the checkpoint is durable on the last tier.
        match (durable, drain) {
            (Some(durable), Some(drain)) => add(3, from + durable - drain, Some(drain)),
            (durable, None) => add(2, from, durable),
            (None, Some(_)) => {}
        }
        add(1, from, span_of(save, "fast_ns"));
        add(0, from, span_of(save, "blocked_ns"));
        rows.push(GanttRow { name: name(save), spans });
    }
    for restore in restores {
        let from = began(restore);
        let took = span_of(restore, "took_ns").unwrap_or(0.0);
        let spans = vec![GanttSpan { kind: 4, from, to: from + took }];
        rows.push(GanttRow { name: format!("restore {}", name(restore)), spans });
    }
    rows.truncate(MOST_ROWS);
    let (title, x_label) = match aligned {
        true => ("Duration of each checkpoint", "time from the start of the checkpoint"),
        false => ("Checkpoints over time", "time from the start of the run"),
    };
    only_used(Gantt {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        kinds: KINDS.map(str::to_owned).into(),
        rows,
    })
}

/// The chart without kinds that do not occur.
fn only_used(chart: Gantt) -> Gantt {
    let spans = || chart.rows.iter().flat_map(|row| &row.spans);
    let used: Vec<usize> =
        (0..chart.kinds.len()).filter(|kind| spans().any(|span| span.kind == *kind)).collect();
    let kind_of = |kind: usize| used.iter().position(|known| *known == kind).unwrap_or(0);
    let row = |row: &GanttRow| GanttRow {
        name: row.name.clone(),
        spans: row.spans.iter().map(|span| GanttSpan { kind: kind_of(span.kind), ..*span }).collect(),
    };
    Gantt {
        kinds: used.iter().map(|kind| chart.kinds[*kind].clone()).collect(),
        rows: chart.rows.iter().map(row).collect(),
        ..chart
    }
}

fn blocked_sentence(view: &RunView<'_>, saves: &[Doc<'_>]) -> Option<String> {
    let blocked: f64 = saves.iter().filter_map(|save| span_of(save, "blocked_ns")).sum();
    let whole = view.own.at("wall_seconds").number().filter(|whole| *whole > 0.0)?;
    (!saves.is_empty()).then(|| {
        format!(
            "{} blocked training for {} in all, {:.1} % of the run time, {} each.",
            counted(saves.len() as u64, "save"),
            seconds(blocked),
            100.0 * blocked / whole,
            seconds(blocked / saves.len() as f64)
        )
    })
}

fn drain_sentence(saves: &[Doc<'_>]) -> Option<String> {
    let drains: Vec<f64> = saves.iter().filter_map(|save| span_of(save, "drain_ns")).collect();
    let held: f64 = saves.iter().filter_map(|save| span_of(save, "back_pressure_ns")).sum();
    if drains.is_empty() {
        return None;
    }
    let mean = Nanos::from_seconds(drains.iter().sum::<f64>() / drains.len() as f64);
    Some(match held > 0.0 {
        true => format!(
            "A drain takes {mean}, and saves waited {} for room: checkpoints come faster than they are drained.",
            seconds(held)
        ),
        false => format!("A drain takes {mean} in the background; no save had to wait for one."),
    })
}

fn restore_sentence(restores: &[Doc<'_>]) -> Option<String> {
    let cached =
        restores.iter().filter_map(|restore| restore.at("memory_share").number()).fold(0.0, f64::max);
    (cached > 0.01).then(|| {
        let percent = 100.0 * cached;
        format!("Up to {percent:.0} % of a restored checkpoint was in memory: restores may be faster than the storage.")
    })
}

/// GiB/s of bytes in a time, both of the same record.
fn gib_per_second(of: &Doc<'_>, time: &str) -> Cell {
    let rate = of.at("bytes").number().zip(span_of(of, time)).filter(|(_, time)| *time > 0.0);
    rate.map_or("n/a".to_owned(), |(bytes, time)| format!("{:.2}", bytes / time / f64::from(1 << 30))).into()
}

fn saves_table(saves: &[Doc<'_>]) -> DataTable {
    let row = |save: &Doc<'_>| -> Vec<Cell> {
        vec![
            name(save).into(),
            save.at("blocked_ns").cell(nanos),
            save.at("fast_ns").cell(nanos),
            save.at("durable_ns").cell(nanos),
            save.at("drain_ns").cell(nanos),
            save.at("slowest_rank_ns").cell(nanos),
            gib_per_second(save, "slowest_rank_ns"),
            save.at("bytes").cell(bytes),
            save.at("files").cell(whole),
        ]
    };
    DataTable {
        caption: "Saved".to_owned(),
        header: [
            "checkpoint",
            "blocked",
            "durable, fast tier",
            "durable",
            "drain",
            "slowest rank",
            "GiB/s",
            "size",
            "files",
        ]
        .map(str::to_owned)
        .into(),
        rows: saves.iter().map(row).collect(),
        text_columns: 1,
    }
}

fn restores_table(restores: &[Doc<'_>]) -> DataTable {
    let row = |restore: &Doc<'_>| -> Vec<Cell> {
        vec![
            name(restore).into(),
            if restore.at("from_fast").flag() == Some(true) { "fast" } else { "last" }.into(),
            restore.at("took_ns").cell(nanos),
            restore.at("slowest_rank_ns").cell(nanos),
            gib_per_second(restore, "slowest_rank_ns"),
            restore.at("bytes").cell(bytes),
            restore.at("verified_bytes").cell(bytes),
        ]
    };
    DataTable {
        caption: "Restored".to_owned(),
        header: ["checkpoint", "tier", "took", "slowest rank", "GiB/s", "size", "verified"]
            .map(str::to_owned)
            .into(),
        rows: restores.iter().map(row).collect(),
        text_columns: 2,
    }
}
