//! The report of `feedline mlperf table`.

use model::mlperf::{CheckpointFigures, MlperfOutcome, MlperfRow, RowFigures, TrainingFigures};
use model::units::{grouped, significant};
use serde_json::{Value, json};

use super::check::CheckedWorkload;
use crate::report::{Table, csv_field, printable};

/// The rows of all workloads.
#[derive(Debug)]
pub(crate) struct ResultsTable {
    pub workloads: Vec<CheckedWorkload>,
}

const CSV_HEADER: [&str; 18] = [
    "organisation",
    "system",
    "division",
    "edition",
    "model",
    "accelerator",
    "hosts",
    "ranks",
    "scored_runs",
    "data_set_gib",
    "au_percent",
    "read_gib_per_second",
    "checkpoint_gib",
    "write_gib_per_second",
    "write_seconds",
    "read_seconds",
    "failed_rules",
    "folder",
];

/// A figure that is not in the documents.
const NONE: &str = "-";

fn count(value: Option<u64>) -> String {
    value.map_or(NONE.to_owned(), grouped)
}

fn figure(value: Option<f64>) -> String {
    match value {
        None => NONE.to_owned(),
        Some(value) if value >= 1000.0 => grouped(value.round() as u64),
        Some(value) => significant(value),
    }
}

fn rules(workload: &CheckedWorkload) -> String {
    match workload.count(MlperfOutcome::Fail) {
        0 => "pass".to_owned(),
        failed => format!("{failed} FAILED"),
    }
}

impl ResultsTable {
    fn rows(&self) -> impl Iterator<Item = (&CheckedWorkload, &MlperfRow)> {
        self.workloads.iter().filter_map(|workload| Some((workload, workload.row.as_ref()?)))
    }

    pub(crate) fn text(&self) -> String {
        let mut parts = Vec::new();
        let training: Vec<Vec<String>> =
            self.rows().filter_map(|(workload, row)| training(workload, row)).collect();
        if !training.is_empty() {
            let header = [
                "system",
                "organisation",
                "div",
                "model",
                "acc",
                "hosts",
                "accs",
                "data GiB",
                "AU %",
                "read GiB/s",
                "rules",
            ];
            let table = Table::new(header, 5..10, training).spares(&[1, 2]);
            parts.push(format!("training\n\n{}\n", table.text()));
        }
        let saving: Vec<Vec<String>> =
            self.rows().filter_map(|(workload, row)| checkpoint(workload, row)).collect();
        if !saving.is_empty() {
            let header = [
                "system",
                "organisation",
                "div",
                "model",
                "hosts",
                "procs",
                "size GiB",
                "write GiB/s",
                "write s",
                "read GiB/s",
                "read s",
                "rules",
            ];
            let table = Table::new(header, 4..11, saving).spares(&[1, 2]);
            parts.push(format!("checkpointing\n\n{}\n", table.text()));
        }
        match parts.is_empty() {
            true => "no result was measured\n".to_owned(),
            false => parts.join("\n"),
        }
    }

    pub(crate) fn csv(&self) -> String {
        let mut text = CSV_HEADER.join(",") + "\n";
        for (workload, row) in self.rows() {
            let value = json(workload, row);
            let field = |key: &str| match &value[key] {
                Value::Null => String::new(),
                Value::String(text) => csv_field(text),
                other => other.to_string(),
            };
            text.push_str(&CSV_HEADER.map(field).join(","));
            text.push('\n');
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "rows": self.rows().map(|(workload, row)| json(workload, row)).collect::<Vec<_>>() })
    }
}

fn names(workload: &CheckedWorkload) -> [String; 4] {
    let system = workload.system.as_deref().unwrap_or(&workload.folder);
    let organisation = workload.organisation.as_deref().unwrap_or(NONE);
    [system, organisation, workload.division.name(), &workload.model].map(printable)
}

fn training(workload: &CheckedWorkload, row: &MlperfRow) -> Option<Vec<String>> {
    let RowFigures::Training(TrainingFigures { data_set_gib, au_percent, read_gib_per_second }) =
        &row.figures
    else {
        return None;
    };
    let mut cells = names(workload).to_vec();
    cells.push(row.accelerator.clone().unwrap_or_else(|| NONE.to_owned()));
    cells.extend([count(row.hosts), count(row.ranks)]);
    cells.extend([*data_set_gib, *au_percent, *read_gib_per_second].map(figure));
    cells.push(rules(workload));
    Some(cells)
}

fn checkpoint(workload: &CheckedWorkload, row: &MlperfRow) -> Option<Vec<String>> {
    let RowFigures::Checkpointing(figures) = &row.figures else { return None };
    let CheckpointFigures {
        checkpoint_gib,
        write_gib_per_second,
        write_seconds,
        read_gib_per_second,
        read_seconds,
    } = *figures;
    let mut cells = names(workload).to_vec();
    cells.extend([count(row.hosts), count(row.ranks)]);
    let shown = [checkpoint_gib, write_gib_per_second, write_seconds, read_gib_per_second, read_seconds];
    cells.extend(shown.map(figure));
    cells.push(rules(workload));
    Some(cells)
}

/// A row with the same keys for both kinds; figures of the other kind are absent.
fn json(workload: &CheckedWorkload, row: &MlperfRow) -> Value {
    let mut value = json!({
        "organisation": workload.organisation,
        "system": workload.system,
        "division": workload.division,
        "edition": workload.edition,
        "model": workload.model,
        "accelerator": row.accelerator,
        "hosts": row.hosts,
        "ranks": row.ranks,
        "scored_runs": row.scored_runs,
        "failed_rules": workload.count(MlperfOutcome::Fail),
        "folder": workload.folder,
    });
    let figures = match &row.figures {
        RowFigures::Training(figures) => json!(figures),
        RowFigures::Checkpointing(figures) => json!(figures),
    };
    if let (Value::Object(value), Value::Object(figures)) = (&mut value, figures) {
        value.extend(figures);
    }
    value
}
