//! Observes a job of another program, judges how it reads, and infers a workload that reads the same way.
//!
//! **In:** a command, or a trace of one. **Out:** a ledger, findings, a workload. **Side effects:** starts the job, and reads
//! what its processes write into shared memory and what the kernel says about them in /proc. It prints nothing.
//!
//! # Modules
//!
//! - [`layout`]: the memory shared with the job, the same source as in the preload library (`preload/`).
//! - [`judge`]: rules, from observations to findings.

pub mod judge;
#[path = "../preload/src/layout.rs"]
pub mod layout;
