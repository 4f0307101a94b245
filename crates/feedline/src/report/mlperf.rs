//! The reports of `feedline mlperf`.

pub(crate) mod size;
