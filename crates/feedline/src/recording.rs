//! The trace of a run: a thread takes what the engine recorded and writes it to a file. A trace that cannot be written
//! ends with a warning; the run continues.

mod file;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Display, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::report::trace::{TraceEnd, TraceProcess, TraceWriter};
use anyhow::anyhow;
use clap::Args;
use engine::meter::Monotonic;
use engine::{SpanRequest, SpanStream, SplitFiles, World};
use model::location::Location;
use model::names::Name;
use model::spans::{OperationSpan, SpanFile, TraceLimit, TraceLimits};
use model::units::{Bytes, Nanos, Share, counted};
use session::{RecordedRun, Recorder};
use store::Now;

use crate::exit::{Failure, limited};
use crate::progress;
use crate::report;
use file::TraceFile;

/// The flags of a trace.
#[derive(Args, Debug)]
pub(crate) struct TraceOptions {
    /// Write what every reader and accelerator did, for Perfetto, chrome://tracing and DFTracer; compressed if the name
    /// ends in .gz, such as trace.pfw.gz; see 'feedline docs traces'
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Limit the trace to a size (256MiB), a time (30s, 10s..40s) or a share of the steps (1/100, 5%); limits of
    /// different kinds can be combined [default: 256MiB]
    #[arg(long, value_name = "LIMIT", requires = "trace")]
    pub trace_limit: Vec<TraceLimit>,
    /// Operations that each thread can record before the writer takes them; for tests
    #[arg(long, value_name = "N", requires = "trace", hide = true)]
    pub trace_ring: Option<usize>,
}

impl TraceOptions {
    /// The recording of a run, if one is requested.
    pub(crate) fn recording(&self, world: &dyn World) -> Result<Option<TraceRecording>, Failure> {
        let limits = TraceLimits::of(&self.trace_limit).map_err(|what| Failure::usage(anyhow!(what)))?;
        let Some(path) = &self.trace else { return Ok(None) };
        let several = (world.members() > 1).then_some(world.member());
        let (member, node) = (world.member(), world.topology().name(world.node()).to_owned());
        let process = TraceProcess {
            number: member,
            name: format!("process {member} on {node}"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            limits: shown(&limits),
        };
        let (place, state) = (file::path_of_process(path, several), Mutex::new(RecordingState::Planned));
        Ok(Some(TraceRecording { place, limits, ring: self.trace_ring, process, state }))
    }
}

/// The limits, for people.
fn shown(limits: &TraceLimits) -> String {
    let TraceLimits { bytes, window, steps: Share { numerator, denominator } } = *limits;
    let mut text = Bytes(bytes).to_string();
    if let Some((from, to)) = window {
        text.push_str(&format!(", {}", shown_window(from, to)));
    }
    if numerator < denominator {
        text.push_str(&format!(", {numerator}/{denominator} of the steps"));
    }
    text
}

fn shown_window(from: Nanos, to: Nanos) -> String {
    if from == Nanos::ZERO { format!("the first {to}") } else { format!("from {from} to {to}") }
}

/// A trace that is being recorded.
pub(crate) struct TraceRecording {
    place: PathBuf,
    limits: TraceLimits,
    ring: Option<usize>,
    process: TraceProcess,
    state: Mutex<RecordingState>,
}

/// The writer of a trace, and what its end will say.
struct ActiveTrace {
    file: TraceFile,
    writer: TraceWriter<BufWriter<File>>,
    end: TraceEnd,
}

/// How far a recording is.
enum RecordingState {
    Planned,
    /// The file exists, and has nothing but the start of a trace.
    Created(Box<ActiveTrace>),
    Recorded(Box<ActiveTrace>),
    Failed(io::Error),
    Ended,
}

impl TraceRecording {
    /// Creates the file, before the run begins.
    pub(crate) fn create(&self, data: &Location) -> Result<(), Failure> {
        let (file, opened) = TraceFile::begin(&self.place, data).map_err(Failure::refused)?;
        let compressed = self.place.extension().is_some_and(|ending| ending == "gz");
        // Large writes: with the compressor's own, a trace would cause a system call every few KiB.
        let to = BufWriter::with_capacity(1 << 18, opened);
        let mut writer = TraceWriter::new(to, compressed, self.limits.bytes, &self.process);
        if let Err(cause) = writer.flush() {
            file.remove();
            return Err(Failure::refused(anyhow!(failed(&self.place.display(), &cause))));
        }
        let end = TraceEnd::default();
        *self.state() = RecordingState::Created(Box::new(ActiveTrace { file, writer, end }));
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, RecordingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> RecordingState {
        std::mem::replace(&mut *self.state(), RecordingState::Ended)
    }

    /// Ends the trace and reports it.
    pub(crate) fn finish(&self, quiet: bool) {
        let place = self.place.display();
        let (note, warnings) = match self.take() {
            RecordingState::Recorded(active) => conclude(&place, *active),
            RecordingState::Failed(cause) => (None, vec![failed(&place, &cause)]),
            RecordingState::Created(active) => {
                active.file.remove();
                (None, vec![format!("there is no trace {place}: the recording did not begin")])
            }
            RecordingState::Ended => {
                (None, vec![format!("the trace {place} is incomplete: its writer panicked")])
            }
            RecordingState::Planned => (None, Vec::new()),
        };
        if !quiet {
            note.iter().for_each(|note| report::note(note));
            warnings.iter().for_each(|warning| report::caution(warning));
        }
    }

    /// Takes operations and writes them until the run is over.
    fn follow(
        &self,
        active: &mut ActiveTrace,
        stream: &SpanStream,
        run: RecordedRun<'_>,
        over: &AtomicBool,
    ) -> io::Result<()> {
        let (clock, mut next_flush) = (Monotonic::new(), FLUSH);
        let mut names = FileNames { files: run.files, name: Name::default() };
        loop {
            // Acquire: pairs with the Release at the end of the work, so that everything it recorded is seen.
            let is_over = over.load(Ordering::Acquire);
            self.write_pending(active, stream, run.world, &mut names)?;
            let now = clock.now();
            if is_over || now >= next_flush {
                active.writer.flush()?;
                next_flush = now + FLUSH;
            }
            if is_over {
                active.note_limit(&self.limits);
                active.end.lost = stream.dropped();
                return Ok(());
            }
            std::thread::park_timeout(PERIOD);
        }
    }

    fn write_pending(
        &self,
        active: &mut ActiveTrace,
        stream: &SpanStream,
        world: &dyn World,
        names: &mut FileNames<'_>,
    ) -> io::Result<()> {
        let (clock, ActiveTrace { writer, end, .. }) = (world.clock_offset(), &mut *active);
        let mut failure = None;
        stream.drain(&mut |span: &OperationSpan| {
            let at = clock.to_common(span.at);
            if failure.is_none() && self.is_in_window(at, end) {
                failure = writer.add(span, at, &mut |file, name| names.write(file, name)).err();
            }
        });
        active.note_limit(&self.limits);
        if active.writer.is_full() || failure.is_some() {
            stream.stop();
        }
        failure.map_or(Ok(()), Err)
    }

    /// Whether an operation that began at this moment belongs to the trace.
    fn is_in_window(&self, at: Nanos, end: &mut TraceEnd) -> bool {
        let Some((from, to)) = self.limits.window else { return true };
        if at >= to && end.limit_reached.is_none() {
            end.limit_reached = Some(shown_window(from, to));
        }
        (from..to).contains(&at)
    }
}

impl ActiveTrace {
    fn note_limit(&mut self, limits: &TraceLimits) {
        if self.writer.is_full() {
            self.end.limit_reached = Some(Bytes(limits.bytes).to_string());
        }
    }
}

/// How often operations are taken, and how often the file is brought up to date, for a run that is killed.
const PERIOD: Duration = Duration::from_millis(10);
const FLUSH: Nanos = Nanos(1_000_000_000);

impl Recorder for TraceRecording {
    fn during(&self, run: RecordedRun<'_>, work: &mut dyn FnMut()) {
        let RecordingState::Created(active) = self.take() else { return };
        let stream = run.events.record(SpanRequest { steps: self.limits.steps, ring: self.ring });
        // It stays here if no thread can be started.
        let active = Mutex::new(Some(active));
        progress::beside("trace", work, |over| {
            let taken = active.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(mut taken) = taken else { return };
            let followed = self.follow(&mut taken, &stream, run, over);
            *self.state() = match followed {
                Ok(()) => RecordingState::Recorded(taken),
                Err(cause) => RecordingState::Failed(cause),
            };
        });
        stream.stop();
        if let Some(active) = active.into_inner().unwrap_or_else(PoisonError::into_inner) {
            *self.state() = RecordingState::Created(active);
        }
    }
}

impl Drop for TraceRecording {
    /// A file without a run is removed.
    fn drop(&mut self) {
        if let RecordingState::Created(active) = self.take() {
            active.file.remove();
        }
    }
}

/// The names of files by their numbers.
struct FileNames<'a> {
    files: Option<SplitFiles<'a>>,
    name: Name,
}

impl FileNames<'_> {
    fn write(&mut self, file: SpanFile, to: &mut String) {
        let Some(SplitFiles { train, valid }) = self.files else { return };
        let found = match file {
            SpanFile::Train(number) => train.entry(number, &mut self.name),
            SpanFile::Valid(number) => valid.entry(number, &mut self.name),
        };
        match found {
            Ok(_) => to.push_str(&String::from_utf8_lossy(self.name.as_bytes())),
            Err(cause) => to.push_str(&cause),
        }
    }
}

/// Writes the end of a trace; returns a line about it, and warnings.
fn conclude(place: &Display<'_>, active: ActiveTrace) -> (Option<String>, Vec<String>) {
    let ActiveTrace { writer, end, .. } = active;
    let (events, mut warnings) = (writer.events(), Vec::new());
    if end.lost > 0 {
        let lost = counted(end.lost, "operation");
        warnings.push(format!(
            "the trace {place} lost {lost} that came faster than they were written; trace a share of the steps, such \
             as --trace-limit 1/10"
        ));
    }
    if let Some(limit) = &end.limit_reached {
        warnings.push(format!("the trace {place} ends before the run: it reached its limit, {limit}"));
    }
    match end_and_flush(writer, &end) {
        Ok(size) => {
            let note = format!("trace: {place}, {}, {}", counted(events, "operation"), Bytes(size));
            (Some(note), warnings)
        }
        Err(cause) => {
            warnings.push(failed(place, &cause));
            (None, warnings)
        }
    }
}

/// Writes the end of a trace, and flushes the file; returns its size.
fn end_and_flush(writer: TraceWriter<BufWriter<File>>, end: &TraceEnd) -> io::Result<u64> {
    let (to, size) = writer.end(end)?;
    to.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(size)
}

fn failed(place: &Display<'_>, cause: &io::Error) -> String {
    format!("cannot write the trace {place}: {}", limited(cause))
}
