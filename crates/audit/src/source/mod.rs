//! The live source: runs a job with the preload library, and passes on what its processes write and what the kernel
//! says about them.

mod calibrate;
mod clock;
mod drain;
mod faults;
mod host;
mod job;
mod memory;
mod noticed;
mod proc;
mod sampler;
mod session;
mod support;
mod tree;
mod unseen;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use model::observed::{JobExit, JobHost, Overhead, UnseenProcess};
use model::units::Nanos;

use self::calibrate::CallCosts;
pub use self::calibrate::{CALIBRATE_VARIABLE, calibrate_child};
use self::drain::Drain;
use self::faults::Faults;
use self::job::RunningJob;
use self::memory::RingMemory;
use self::sampler::{Sampled, Sampler};
use self::session::Session;
pub use self::support::{observes, page_faults};
use crate::event::EventSink;

/// Between two readings of the rings, unless a process asks for one.
const ROUND: Duration = Duration::from_millis(50);
/// Events are passed on when they are older: by then, those of all processes are there and can be ordered.
const HORIZON_NS: u64 = 20_000_000;
/// How long processes that outlive the job are waited for.
const GRACE_NS: u64 = 500_000_000;

/// Why a process counted itself as not observed.
const REFUSED: &str =
    "too many processes at the same time, a limit of files or memory, or no access to feedline";

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
pub struct JobEnd {
    pub exit: JobExit,
    pub wall_ns: u64,
    pub host: JobHost,
    pub overhead: Option<Overhead>,
    pub unseen: Vec<UnseenProcess>,
    /// `rchar` of the observed processes.
    pub copied_bytes: Option<u64>,
    pub recorded_bytes: u64,
    /// How page faults of mappings were observed: `None` without mappings of data files.
    pub faults: Option<String>,
    /// What else is to be said of the observation.
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("no command is given")]
    NoCommand,
    #[error("{command}: command not found")]
    NotFound { command: String },
    #[error("{command}: cannot be executed")]
    NotExecutable { command: String, source: io::Error },
    #[error("{command}: cannot be started")]
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
    sink: &mut dyn EventSink,
    tick: &mut dyn FnMut(u64),
) -> Result<JobEnd, SourceError> {
    let program = options.command.first().ok_or(SourceError::NoCommand)?;
    if !session::is_supported() {
        return Err(SourceError::Unsupported);
    }
    job::survive_file_limit();
    let ring = Arc::new(RingMemory::new().map_err(SourceError::Memory)?);
    let session = Session::new(options.marks).map_err(SourceError::Session)?;
    let costs = calibrate::calibrate(&session);
    let variables = session.environment(&ring.path(), |name| std::env::var_os(name));
    let cpu_before = own_cpu_ns();
    let origin = clock::now();
    let (mut job, faults) = RunningJob::start(&options.command, variables, &ring)
        .map_err(|source| SourceError::of_start(program, source))?;
    let sampler = Sampler::start(origin);
    let mut drain = Drain::new(&ring, Faults::new(faults), origin, costs);
    let (ended_ns, exit) = observe(&mut job, &ring, &sampler, &mut drain, sink, &mut |now| {
        tick(now.saturating_sub(origin));
    });
    let (samples, sampled) = sampler.stop();
    drain.add_samples(samples);
    drain.finish(sink);
    let unseen = unseen(&ring, &mut drain, &sampled);
    let of_unseen: u64 = unseen.iter().filter_map(|process| process.read_bytes).sum();
    let sums = drain.sums();
    let overhead = costs.map(|CallCosts { per_call, per_open }| Overhead {
        ns_per_call: per_call,
        ns_per_open: per_open,
        calls: sums.calls,
        opens: sums.opens,
        own_cpu_ns: Nanos(own_cpu_ns().saturating_sub(cpu_before)),
        share: sums.share,
    });
    let (faults, notes) = faults_source(&mut drain, &sampled);
    let Sampled { io, shm_used_bytes, refault_bytes, .. } = sampled;
    Ok(JobEnd {
        exit,
        wall_ns: ended_ns.saturating_sub(origin),
        host: JobHost { shm_used_bytes, refault_bytes, ..host::job_host() },
        overhead,
        unseen,
        copied_bytes: io.map(|io| io.copied.saturating_sub(of_unseen)),
        recorded_bytes: sums.recorded,
        faults,
        notes,
    })
}

/// How use of mappings was observed, and a note about it.
fn faults_source(drain: &mut Drain<'_>, sampled: &Sampled) -> (Option<String>, Vec<String>) {
    let has_mappings = sampled.mappings || drain.noticed().mapped_ns().is_some();
    match drain.faults().state() {
        _ if !has_mappings => (None, Vec::new()),
        Ok(()) => (Some("perf".to_owned()), Vec::new()),
        Err(reason) => {
            let note = format!(
                "Page faults of mappings could not be recorded: {reason}. Only their resident bytes are known."
            );
            (sampled.mappings.then(|| "rss".to_owned()), vec![note])
        }
    }
}

/// Reads the rings until the job has ended. Returns when and how it did.
fn observe(
    job: &mut RunningJob,
    ring: &RingMemory,
    sampler: &Sampler,
    drain: &mut Drain<'_>,
    sink: &mut dyn EventSink,
    tick: &mut dyn FnMut(u64),
) -> (u64, JobExit) {
    let mut seen = 0;
    loop {
        seen = ring.wait(seen, ROUND);
        let reaped = job.reap(&mut sampler.reaped());
        for process in reaped {
            drain.ended(&process);
        }
        drain.add_samples(sampler.taken());
        let now = clock::now();
        drain.round(sink, now, now.saturating_sub(HORIZON_NS));
        ring.set_sample_bits(sink.sample_bits());
        if drain.noticed().take_epoch() {
            sampler.request();
        }
        let watched = drain.watched();
        drain.noticed().show(&mut sampler.watch(), watched);
        tick(now);
        if let Some(end) = job.end().filter(|end| drain.is_done() || now > end.0 + GRACE_NS) {
            return end;
        }
    }
}

/// Processes that were not observed, or not to their end.
fn unseen(ring: &RingMemory, drain: &mut Drain<'_>, sampled: &Sampled) -> Vec<UnseenProcess> {
    let noticed = drain.noticed();
    let has_slot = |pid: u32| noticed.has_slot(pid);
    let mut all: Vec<UnseenProcess> =
        sampled.unseen.iter().filter(|process| !has_slot(process.pid)).cloned().collect();
    let is_new = |all: &[UnseenProcess], pid: u32| all.iter().all(|process| process.pid != pid);
    for process in noticed.unseen_programs() {
        if is_new(&all, process.pid) {
            all.push(process);
        }
    }
    for (pid, command) in &sampled.running {
        if is_new(&all, *pid) {
            let reason = "still running after the end of the job".to_owned();
            all.push(UnseenProcess { pid: *pid, command: command.clone(), reason, read_bytes: None });
        }
    }
    let counted = [
        (u64::from(ring.refused()), REFUSED),
        (drain.without_space() as u64, "feedline has no address space for them"),
    ];
    for (count, reason) in counted.into_iter().filter(|(count, _)| *count > 0) {
        let command = match count {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        };
        all.push(UnseenProcess { pid: 0, command, reason: reason.to_owned(), read_bytes: None });
    }
    all
}

/// CPU time of this process, without its children.
fn own_cpu_ns() -> u64 {
    // SAFETY: all zeros is a valid value, and the kernel writes into it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let ns =
        |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_usec.unsigned_abs() * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}
