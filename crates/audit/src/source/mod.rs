//! The live source: runs a job with the preload library, and passes on what its processes write and what the kernel
//! says about them.

mod clock;
mod drain;
mod job;
mod memory;
mod proc;
mod session;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use model::observed::{JobExit, JobHost, Overhead, UnseenProcess};

use self::drain::Drain;
use self::job::Job;
use self::memory::Ring;
use self::session::Session;
use crate::event::Sink;

/// Between two readings of the rings, unless a process asks for one.
const ROUND: Duration = Duration::from_millis(50);
/// Events are passed on when they are older: by then, those of all processes are there and can be ordered.
const HORIZON_NS: u64 = 20_000_000;
/// How long processes that outlive the job are waited for.
const GRACE_NS: u64 = 500_000_000;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Whether Python programs mark epochs, batches and waits.
    pub marks: bool,
}

/// What is known of the job as a whole.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub exit: JobExit,
    pub wall_ns: u64,
    pub host: JobHost,
    pub overhead: Option<Overhead>,
    pub unseen: Vec<UnseenProcess>,
    /// `rchar` of the observed processes.
    pub copied_bytes: Option<u64>,
    pub recorded_bytes: u64,
    /// How page faults of mappings were observed.
    pub faults: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("no command is given")]
    NoCommand,
    #[error("{command}: command not found")]
    NotFound { command: String },
    #[error("{command}: cannot be executed: {source}")]
    NotExecutable { command: String, source: io::Error },
    #[error("{command}: cannot be started: {source}")]
    Start { command: String, source: io::Error },
    #[error("jobs can be observed on Linux with the GNU C library only, on x86-64 and 64-bit ARM")]
    Unsupported,
    #[error("cannot share memory with the job: {0}")]
    Memory(io::Error),
    #[error("cannot provide the preload library: {0}")]
    Session(io::Error),
}

impl SourceError {
    /// The exit code that a shell gives in this case.
    pub fn exit_code(&self) -> Option<i32> {
        match self {
            SourceError::NotFound { .. } => Some(127),
            SourceError::NotExecutable { .. } => Some(126),
            _ => None,
        }
    }

    fn of_start(command: &std::ffi::OsStr, source: io::Error) -> SourceError {
        let command = command.to_string_lossy().into_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT) => SourceError::NotFound { command },
            Some(libc::EACCES | libc::ENOEXEC | libc::EISDIR) => {
                SourceError::NotExecutable { command, source }
            }
            _ => SourceError::Start { command, source },
        }
    }
}

/// Runs a job to its end. `sink` receives what is observed, and `tick` is called about 20 times per second with the
/// time since the start.
pub fn run(
    options: &Options,
    sink: &mut dyn Sink,
    tick: &mut dyn FnMut(u64),
) -> Result<Outcome, SourceError> {
    let program = options.command.first().ok_or(SourceError::NoCommand)?;
    if !session::is_supported() {
        return Err(SourceError::Unsupported);
    }
    let ring = Arc::new(Ring::new().map_err(SourceError::Memory)?);
    let session = Session::new(options.marks).map_err(SourceError::Session)?;
    let variables = session.environment(&ring.path(), |name| std::env::var_os(name));
    let origin = clock::now();
    let mut job = Job::start(&options.command, variables, &ring)
        .map_err(|source| SourceError::of_start(program, source))?;
    let mut drain = Drain::new(&ring, origin);
    let mut seen = 0;
    let (ended_ns, exit) = loop {
        seen = ring.wait(seen, ROUND);
        for reaped in job.reap() {
            drain.ended(&reaped);
        }
        let now = clock::now();
        drain.round(sink, now, now.saturating_sub(HORIZON_NS));
        ring.set_sample_bits(sink.sample_bits());
        tick(now.saturating_sub(origin));
        if let Some((ended_ns, exit)) = job.end() {
            if drain.is_done() || now > ended_ns + GRACE_NS {
                break (ended_ns, exit);
            }
        }
    };
    drain.finish(sink);
    let wall_ns = ended_ns.saturating_sub(origin);
    Ok(Outcome {
        exit,
        wall_ns,
        host: JobHost::default(),
        overhead: None,
        unseen: Vec::new(),
        copied_bytes: None,
        recorded_bytes: drain.recorded_bytes(),
        faults: None,
    })
}
