//! Results as documents for readers: values in, bytes out.
//!
//! A front end has figures and the documents of a result: the plan, the ledger, the verdict. This crate turns them into
//! documents that people and other programs read. It decides how they look, not what they say: every figure is computed
//! by `model` or counted by the engine. It writes to any `Write` and reads from any `Read` that it is given.
//!
//! **In:** figures, the documents of a result, operations of a run. **Out:** HTML, SVG, OpenMetrics, traces and their
//! summaries. **Side effects:** none: no files, no clock, no environment. The front end reads and writes files and
//! decides where they go.
//!
//! # Modules
//!
//! - [`audit`]: the figures of an observed job.
//! - [`html`]: results as pages, one file each, which need no network.
//! - [`openmetrics`]: live figures as text for Prometheus.
//! - [`plot`]: plots as SVG, for pages and for print.
//! - [`trace`]: traces in Chrome's JSON format, which Perfetto and DFTracer read: written line by line within a limit,
//!   and summarised in constant memory.
//!
//! # Invariants
//!
//! - The same values give the same bytes.
//! - Text of others, such as names of workloads, files and hosts, is escaped for the format, so that it cannot become a
//!   part of its structure.
//! - A value that is not known is left out or shown as not known, never as 0.
//! - A figure on a page says where in its document it is from; tests compare the two.
//! - The size of a page does not grow with ranks times epochs: ranks, epochs and intervals are grouped, and a group
//!   shows its slowest member or its sum.
//! - Memory does not depend on the length of a trace.

pub mod audit;
pub mod html;
pub mod openmetrics;
pub mod plot;
pub mod trace;

/// A suffix for the names of simulated backends and the titles of tables with simulated figures.
pub fn simulated(is_simulated: bool) -> &'static str {
    if is_simulated { " (simulated)" } else { "" }
}
