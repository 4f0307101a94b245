//! What people and programs get to read. A report is made from the three documents; stdout is for the report, stderr
//! for notes, and nothing else in the program writes to either.

pub mod alone;
pub mod capacity;
pub mod checkpoints;
pub mod compare;
pub mod folder;
mod json;
pub mod plan;
pub mod plot;
pub mod repeats;
pub mod result;
pub mod stall;
pub mod sums;
pub mod sweep;
pub mod text;
pub mod validate;

use std::io::Write;

use comfy_table::{CellAlignment, Row, Table};
use model::warning::Warning;
use serde_json::Value;

pub use json::{lines, pretty};

use crate::exit::Failure;

/// Writes to stdout. A reader that has gone away (`feedline ... | head`) is not an error.
pub fn out(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::incomplete(anyhow::Error::from(error).context("cannot write to stdout")))
        }
        _ => Ok(()),
    }
}

/// Writes JSON to stdout, with DLIO's indent.
pub fn out_json(value: &Value) -> Result<(), Failure> {
    out(&pretty(value).map_err(Failure::internal)?)
}

/// Writes a line to stderr. Nobody may be reading it, and that is no reason to stop.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Shows warnings with their remedies.
pub fn warnings(warnings: &[Warning]) {
    for warning in warnings {
        note(&format!("warning: {warning}\n  help: {}", warning.remedy()));
    }
}

/// Millions of bytes per second, as the literature counts, from MiB per second.
pub fn megabytes(mib_per_second: f64) -> f64 {
    mib_per_second * f64::from(1 << 20) / 1e6
}

/// A table without lines. Columns whose number is in `right` are flush right.
pub fn table(
    header: impl Into<Row>,
    right: impl IntoIterator<Item = usize>,
    rows: impl IntoIterator<Item = impl Into<Row>>,
) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header);
    table.add_rows(rows);
    for column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
