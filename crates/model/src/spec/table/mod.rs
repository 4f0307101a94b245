//! The one table of all keys of a workload file: kind, default, what feedline does with it, help. Look-up, checking,
//! extraction into `Spec`, "did you mean" and the written-out spec all iterate it; a new key is one line here and, if
//! it has an effect, one field in `typed.rs`.

mod dataset;
mod model;
mod reader;
mod run;
mod storage;

use super::schema::Row;

/// The largest number that any key takes: beyond it a double no longer counts every integer.
pub(super) const MOST: f64 = 9_007_199_254_740_992.0;
/// The most files, samples or elements.
pub(super) const COUNT: i64 = 1 << 53;
/// Longest time: ten years in seconds. A larger value is a wrong unit.
pub(super) const LONGEST: f64 = 315_360_000.0;
/// Shortest time that is not zero: clocks count nanoseconds.
pub(super) const SHORTEST: f64 = 1e-9;
/// The most of what leaves a record in memory and in the result each time that it happens: epochs, checkpoints.
const RECORDED: i64 = 1_000_000;

/// All rows, in the order of a well-sorted workload file.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    let sections = [
        model::ROWS,
        run::WORKFLOW,
        dataset::ROWS,
        reader::ROWS,
        run::ROWS,
        model::CHECKPOINT,
        storage::ROWS,
        run::OUTPUT,
    ];
    sections.into_iter().flatten()
}
