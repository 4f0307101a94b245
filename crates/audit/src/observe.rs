//! Starts a job and observes it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Instant;

use model::ledger::Ledger;
use model::observed::{JobExit, Observed};
use model::units::Nanos;

use crate::Paths;

/// What is to be observed, and how.
#[derive(Clone, Debug, Default)]
pub struct ObserveOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    pub paths: Paths,
    /// Whether Python code is marked.
    pub marks: bool,
}

/// What a job has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub elapsed_ns: Nanos,
    /// The epoch of the training loader; `None`: none has begun.
    pub epoch: Option<u64>,
    pub batches: u64,
    pub bytes: u64,
    pub processes: u64,
}

/// Why a job could not be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("no command")]
    NoCommand,
    #[error("cannot start '{program}': {cause}")]
    Start { program: String, cause: io::Error },
}

impl ObserveError {
    /// The exit code that a shell uses for a program that cannot be started.
    pub fn exit_code(&self) -> Option<i32> {
        match self {
            ObserveError::NoCommand => None,
            ObserveError::Start { cause, .. } if cause.kind() == io::ErrorKind::NotFound => Some(127),
            ObserveError::Start { .. } => Some(126),
        }
    }
}

/// Runs the job and returns what was observed.
pub fn observe(
    options: &ObserveOptions,
    _progress: &mut dyn FnMut(&Progress),
) -> Result<Ledger, ObserveError> {
    let [program, arguments @ ..] = options.command.as_slice() else { return Err(ObserveError::NoCommand) };
    let name = program.to_string_lossy().into_owned();
    let begun = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .status()
        .map_err(|cause| ObserveError::Start { program: name, cause })?;
    let observed = Observed {
        command: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        exit: JobExit { code: status.code(), signal: status.signal() },
        wall_ns: Nanos(begun.elapsed().as_nanos() as u64),
        ..Observed::default()
    };
    let mut ledger = Ledger::default();
    ledger.observed = Some(Box::new(observed));
    Ok(ledger)
}
