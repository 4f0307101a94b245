//! The page of the built-in workloads.

use super::{cell, code, table};
use crate::commands::workloads::{WORKLOAD_COLUMNS, workload_cells};
use crate::exit::Failure;

const INTRODUCTION: &str = "\
# Built-in workloads

`feedline workloads` lists them, `feedline workloads NAME` prints one as YAML, and `feedline plan NAME` shows what
it reads. The figures are for one accelerator that never waits. A workload without them saves checkpoints only, or
is a study of several runs.

| standing | meaning |
|---|---|
| demo | made for feedline |
| sanctioned | MLPerf Storage v3.0, closed and open division |
| what-if | not scored in the current round of MLPerf Storage |
| historical | from an earlier round, an abandoned draft, or DLIO's own examples |
| study | from a published experiment; its file says which values were published and which were added |

";

pub(super) fn text() -> Result<String, Failure> {
    let rows = workload_cells()?.into_iter().map(|cells| {
        let mut cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
        cells[0] = code(&cells[0].replace('\\', ""));
        cells
    });
    Ok(format!("{INTRODUCTION}{}", table(&WORKLOAD_COLUMNS, rows)))
}
