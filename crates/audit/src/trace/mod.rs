//! Reads traces of other programs: the output of strace, and traces of DFTracer and feedline. They become the same
//! ledger as a job that is observed, as far as they have the facts; what they do not have stays unknown.

mod dftracer;
mod feed;
mod input;
mod strace;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::path::Path;

use model::ledger::Ledger;
use model::observed::{JobExit, Source};
use model::units::Nanos;

use self::input::{TraceFiles, TraceFormat};
use crate::Paths;
use crate::aggregate::Aggregate;
use crate::observe::{hide_secrets, ledger};

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceInputError {
    #[error("cannot read {0}: {1}")]
    Io(String, io::Error),
    #[error("cannot read {0}, line {1}: {2}")]
    Line(String, u64, io::Error),
    #[error("{0} is empty: it is no trace")]
    Empty(String),
    #[error("{0}, line {1}: {2}")]
    Foreign(String, u64, String),
    #[error("{0} has no traces: neither files of strace -ff nor of DFTracer")]
    NoTraces(String),
    #[error("{0} has traces of strace and of DFTracer: give one of them")]
    Both(String),
}

/// What a reader knows beyond the events.
#[derive(Debug, Default)]
struct TraceFacts {
    command: Vec<OsString>,
    exit: JobExit,
    wall_ns: u64,
    /// Calls have no durations.
    untimed: bool,
    recorded_bytes: u64,
    /// What could not be read or is not in the trace, as sentences.
    notes: Vec<String>,
}

/// Lines that were not understood.
#[derive(Debug, Default)]
struct StrangeLines {
    count: u64,
    first: Option<(String, u64)>,
}

impl StrangeLines {
    fn add(&mut self, file: &str, line: u64) {
        self.count += 1;
        self.first.get_or_insert_with(|| (file.to_owned(), line));
    }

    fn note(&self) -> Option<String> {
        let (file, line) = self.first.as_ref()?;
        Some(match self.count {
            1 => format!("1 line of the trace was not understood: line {line} of {file}."),
            count => {
                format!("{count} lines of the trace were not understood, the first is line {line} of {file}.")
            }
        })
    }
}

/// What the trace says about the job. A folder stands for the traces in it.
pub fn read(path: &Path, paths: Paths) -> Result<Ledger, TraceInputError> {
    let files = TraceFiles::find(path)?;
    let mut aggregate = Aggregate::new(paths);
    let (source, facts) = match files.format {
        TraceFormat::Strace => (Source::Strace, strace::read(&files, &mut aggregate)?),
        TraceFormat::Json => (Source::Trace, dftracer::read(&files, &mut aggregate)?),
    };
    let mut observed = aggregate.finish();
    observed.source = source;
    observed.command = hide_secrets(&facts.command);
    observed.exit = facts.exit;
    observed.wall_ns = Nanos(facts.wall_ns);
    observed.coverage.untimed = facts.untimed;
    observed.coverage.recorded_bytes = facts.recorded_bytes;
    observed.coverage.notes.extend(facts.notes);
    // A trace has paths and no device numbers.
    observed.storage.clear();
    Ok(ledger(observed))
}
