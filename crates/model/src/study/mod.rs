//! The pure part of studies, which run a workload several times: how many accelerators storage feeds (`search`; `epoch`
//! and `length`: what a short run says about a long one, and how long it has to be), how settings compare (`grid`), and
//! what the accelerators wait for (`attribution`, `cache`). This code decides which run comes next and what the answer
//! is; `session` does the runs.

pub mod attribution;
pub mod cache;
pub mod epoch;
pub mod grid;
pub mod length;
pub mod search;
