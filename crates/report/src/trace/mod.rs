//! Traces: what every reader and accelerator did, in Chrome's JSON trace format. Perfetto and chrome://tracing show
//! them, and the tools of DFTracer read them.
//!
//! A trace is a JSON array. Each event has a line of its own, and so has the comma between two events: DFTracer's tools
//! read line by line and lose events whose line ends with a comma. A trace whose end is missing, because the run was
//! killed, is readable up to there.

mod lines;
mod objects;
mod read;
mod sink;
mod summary;

pub use lines::{TraceProcess, WriteFileName};
pub use read::{TraceError, file_names, summarise};
pub use sink::{TraceEnd, TraceWriter};
pub use summary::{OperationSummary, RankTime, SlowOperation, TraceSummary, TrackSummary};

/// Names of metadata events of feedline: at the start and at the end of a trace.
const START: &str = "feedline_trace_start";
const END: &str = "feedline_trace_end";

#[cfg(test)]
mod tests;
