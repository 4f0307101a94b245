//! The table of all keys of a workload file: kind, default, status and help. Lookup, checking, extraction into `Spec`,
//! "did you mean" and the written spec all iterate over it. A new key is one line here and, if it has an effect, one
//! field in `typed.rs`.

pub(super) mod compat;
mod dataset;
pub(super) mod history;
mod model;
mod reader;
mod run;
mod storage;

use super::schema::KeyRow;

/// The largest number for any key: above it a double cannot represent every integer.
pub(super) const MOST: f64 = 9_007_199_254_740_992.0;
/// The maximum number of files, samples or elements.
pub(super) const COUNT: i64 = 1 << 53;
/// The longest time: ten years in seconds. A larger value has a wrong unit.
pub(super) const LONGEST: f64 = 315_360_000.0;
/// The shortest time above zero: clocks count nanoseconds.
pub(super) const SHORTEST: f64 = 1e-9;
/// The maximum number of events that each leave a record in memory and in the result: epochs, checkpoints.
const RECORDED: i64 = 1_000_000;

/// All rows, in the order of a sorted workload file.
pub fn rows() -> impl Iterator<Item = &'static KeyRow> {
    let sections = [
        model::ROWS,
        run::WORKFLOW,
        dataset::ROWS,
        reader::ROWS,
        run::ROWS,
        model::CHECKPOINT,
        storage::ROWS,
        run::OUTPUT,
        compat::ROWS,
    ];
    sections.into_iter().flatten()
}
