//! The reports of `feedline mlperf`.

pub(crate) mod check;
pub(crate) mod size;
pub(crate) mod table;
