//! All output. Reports are made from spec, plan and ledger. Reports go to stdout, notes to stderr; no other module
//! writes to either.

pub(crate) mod capacity;
pub(crate) mod checkpoints;
pub(crate) mod compare;
pub(crate) mod folder;
mod json;
pub(crate) mod plan;
pub(crate) mod plot;
pub(crate) mod repeats;
pub(crate) mod result;
pub(crate) mod stall;
pub(crate) mod sums;
pub(crate) mod sweep;
pub(crate) mod text;
pub(crate) mod validate;

use std::io::{BufWriter, Write};

use comfy_table::{CellAlignment, Row, Table};
use model::warning::Warning;
use serde::Serialize;

pub(crate) use json::{pretty, write_lines, write_pretty};

use crate::exit::Failure;

/// Writes to stdout. A closed pipe (`feedline ... | head`) is not an error.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    to_stdout(|stdout| Ok(stdout.write_all(text.as_bytes())?))
}

/// Writes JSON to stdout, with DLIO's indent.
pub(crate) fn out_json(value: &impl Serialize) -> Result<(), Failure> {
    to_stdout(|stdout| write_pretty(stdout, value))
}

fn to_stdout(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> Result<(), Failure> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    let written = write(&mut stdout).and_then(|()| Ok(stdout.flush()?));
    // Discards what is left in the buffer after an error.
    let _ = stdout.into_parts();
    let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    match written {
        Err(error) if !error.root_cause().downcast_ref().is_some_and(is_gone) => {
            Err(Failure::incomplete(error.context("cannot write to stdout")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to stderr. Errors are ignored: stderr may be closed.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Prints warnings with their remedies.
pub(crate) fn warnings(warnings: &[Warning]) {
    for warning in warnings {
        note(&format!("warning: {warning}\n  help: {}", warning.remedy()));
    }
}

/// A suffix for the names of simulated backends and the titles of tables with simulated figures.
pub(crate) fn simulated(is_simulated: bool) -> &'static str {
    if is_simulated { " (simulated)" } else { "" }
}

/// A table without borders. The columns in `right` are aligned to the right.
pub(crate) fn table(
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

/// The default I/O backend, for snapshots of reports.
#[cfg(test)]
fn posix() -> &'static model::plan::StorePlan {
    use std::sync::LazyLock;

    use store::{Mode, Selection};

    static POSIX: LazyLock<model::plan::StorePlan> =
        LazyLock::new(|| Selection::named("posix", Mode::default()).unwrap().plan());
    &POSIX
}
