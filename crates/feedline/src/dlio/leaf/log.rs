//! `dlio.log`: DLIO's lines, on stderr and in the leaf. Each is appended with one write as it happens, so that the log
//! of a run that was killed has everything up to then. Nothing is drawn over. The first line names feedline, because
//! the log must not be taken for one of DLIO.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use engine::{Detail, Event, EventStream, meter};
use model::checkpoint::manifest::Moment;
use model::ledger::{BlockWindow, Phase};
use model::metrics::{block_au_percent, block_samples_per_second};
use model::plan::Plan;
use model::spec::Spec;
use model::units::Nanos;
use model::warning::Warning;
use session::{Activity, ObservedWork, Observer};
use store::FolderHandle;

use super::level::LogLevel;
use crate::dlio::wording::with_arguments;
use crate::{progress, report};

/// How often steps are logged. Other events are logged at once.
const PERIOD: Duration = Duration::from_millis(100);

const GIB: f64 = (1u64 << 30) as f64;

/// The log. All methods may be called by any thread.
pub(crate) struct LeafLog {
    level: LogLevel,
    /// `None` for a process that logs nothing.
    file: Option<Mutex<LogFile>>,
    plan: OnceLock<LoggedPlan>,
    /// Whether data is being generated.
    generates: AtomicBool,
}

struct LogFile {
    file: File,
    /// The full path.
    shown: String,
    /// The first error. The run continues, but its result is incomplete.
    failure: Option<std::io::Error>,
}

/// What lines say about the plan.
#[derive(Clone, Copy)]
struct LoggedPlan {
    ranks: u64,
    /// Steps of an epoch and samples of a batch.
    train: (u64, u64),
    eval: (u64, u64),
    /// Of one checkpoint of all ranks.
    checkpoint_bytes: u64,
}

impl LeafLog {
    pub(super) fn silent() -> LeafLog {
        let generates = AtomicBool::new(false);
        LeafLog { level: LogLevel::default(), file: None, plan: OnceLock::new(), generates }
    }

    /// Opens a new log in place of an earlier one, which must be a regular file.
    pub(super) fn create(folder: &FolderHandle, name: &str) -> anyhow::Result<LeafLog> {
        let cannot = || format!("cannot write the log {}", folder.shown(name));
        folder.remove(name).with_context(cannot)?;
        let file = folder.open_or_create(name, true).with_context(cannot)?;
        let (level, mistake) = LogLevel::of_environment();
        let log = LeafLog::to(level, file, folder.shown(name));
        log.result(&format!("feedline {} runs this benchmark in place of DLIO", env!("CARGO_PKG_VERSION")));
        mistake.iter().for_each(|mistake| log.warning(mistake));
        Ok(log)
    }

    pub(super) fn to(level: LogLevel, file: File, shown: String) -> LeafLog {
        let file = Some(Mutex::new(LogFile { file, shown, failure: None }));
        LeafLog { level, file, plan: OnceLock::new(), generates: AtomicBool::new(false) }
    }

    /// The kind of run.
    pub(crate) fn start(&self, spec: &Spec, processes: u64) {
        let flow = &spec.workflow;
        let modes = [
            (flow.generate_data, "Generating data"),
            (flow.train, "Training"),
            (flow.evaluation, "Evaluation"),
            (flow.checkpoint, "Checkpointing"),
        ];
        let modes: Vec<&str> = modes.iter().filter(|(is_on, _)| *is_on).map(|(_, mode)| *mode).collect();
        self.output(&format!("Running [{}] with {processes} process(es)", modes.join(" & ")));
    }

    /// What the user should know about the workload.
    pub(crate) fn warnings(&self, warnings: &[Warning]) {
        for warning in warnings {
            // Many keys come from files and programs of others, so that advice to remove one is of no use.
            match warning {
                Warning::NoEffect { .. } => self.warning(&warning.to_string()),
                _ => self.warning(&format!("{warning}\n  help: {}", warning.remedy())),
            }
        }
    }

    /// The size of the run.
    pub(crate) fn planned(&self, plan: &Plan) {
        let phase = |phase: Phase| {
            let phase = plan.training.as_ref().and_then(|training| training.phase(phase));
            phase.map_or((0, 0), |phase| (phase.shards.steps, phase.shards.batch))
        };
        let (train, eval) = (phase(Phase::Train), phase(Phase::Eval));
        let checkpoint_bytes = plan.checkpoint.as_ref().map_or(0, |plan| plan.geometry.reported_bytes());
        let _ = self.plan.set(LoggedPlan { ranks: plan.ranks, train, eval, checkpoint_bytes });
        if let Some(training) = &plan.training {
            let (data, (steps, batch), ranks) = (&training.data.train, train, plan.ranks);
            let (per_file, files) = (data.samples_per_file, data.files);
            let whole = per_file.saturating_mul(files) / batch.max(1) / ranks.max(1);
            // A limit of steps, or files that are dealt to the ranks, give other numbers.
            self.output(&match steps == whole {
                true => format!(
                    "Max steps per epoch: {steps} = {per_file} * {files} / {batch} / {ranks} (samples per file * num \
                     files / batch size / comm size)"
                ),
                false => format!("Max steps per epoch: {steps}"),
            });
        }
        if let (Some(training), (steps, batch)) =
            (plan.training.as_ref().filter(|plan| plan.eval.is_some()), eval)
        {
            let (data, ranks) = (&training.data.valid, plan.ranks);
            self.output(&format!(
                "Steps per eval: {steps} = {} * {} / {batch} / {ranks} (samples per file * num files / batch size \
                 eval / comm size)",
                data.samples_per_file, data.files
            ));
        }
        if checkpoint_bytes > 0 {
            self.output(&format!("Total checkpoint size: {:.6} GiB", checkpoint_bytes as f64 / GIB));
        }
    }

    /// A line about the progress of the run.
    pub(crate) fn output(&self, text: &str) {
        if self.level >= LogLevel::Milestones {
            self.result(text);
        }
    }

    /// A line that is always logged.
    pub(crate) fn result(&self, text: &str) {
        self.write(&format!("[OUTPUT] {} {text}", meter::timestamp()));
    }

    /// A line with a figure of the run.
    pub(super) fn metric(&self, text: &str) {
        self.write(&format!("[METRIC] {text}"));
    }

    pub(crate) fn warning(&self, text: &str) {
        if self.level >= LogLevel::Milestones {
            self.alert(text);
        }
    }

    /// A warning that is always logged.
    pub(super) fn alert(&self, text: &str) {
        with_arguments(text).lines().for_each(|line| self.write(&format!("[WARNING] {line}")));
    }

    pub(crate) fn error(&self, text: &str) {
        let write = |line: &str| self.write(&format!("[ERROR] {} {line}", meter::timestamp()));
        with_arguments(text).lines().for_each(write);
    }

    fn step(&self, text: &str) {
        self.write(&format!("[INFO] {} {text}", meter::timestamp()));
    }

    /// Appends a line to the log and writes it to stderr.
    fn write(&self, line: &str) {
        let Some(file) = &self.file else { return };
        let mut to = file.lock().unwrap_or_else(PoisonError::into_inner);
        report::note(line);
        if to.failure.is_none() {
            to.failure = to.file.write_all(format!("{line}\n").as_bytes()).err();
        }
    }

    /// An error if another run has replaced the log. The lock of the folder prevents that, except on file systems
    /// without locks between hosts.
    pub(super) fn check_named(&self, folder: &FolderHandle) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let to = file.lock().unwrap_or_else(PoisonError::into_inner);
        match Path::new(&to.shown).file_name().is_some_and(|name| folder.is_named(name, &to.file)) {
            true => Ok(()),
            false => {
                Err(anyhow!("another run has replaced {}; give each run its own hydra.run.dir", to.shown))
            }
        }
    }

    /// The data set is complete.
    pub(crate) fn generated(&self) {
        // Relaxed: the flag publishes no data.
        if self.generates.swap(false, Ordering::Relaxed) {
            self.output("Generation done");
        }
    }

    /// Flushes the log; an error if it is not complete.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut to = file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = to.failure.take().map_or(Ok(()), Err).and_then(|()| to.file.sync_all());
        written.with_context(|| format!("cannot write the log {}", to.shown))
    }
}

impl Observer for LeafLog {
    fn during(&self, goal: &Activity, shown: ObservedWork<'_>, work: &mut dyn FnMut()) {
        if self.file.is_none() {
            return work();
        }
        match goal.what.starts_with("generating") {
            true => {
                self.output("Starting data generation");
                self.generates.store(true, Ordering::Relaxed);
            }
            // The next activity begins only if the data set is complete.
            false => self.generated(),
        }
        let detail = if self.level >= LogLevel::Steps { Detail::Steps } else { Detail::Milestones };
        // Created before the work starts, so that its first events are not lost.
        let lines = EventLines::new(self, shown.events.listen(detail));
        progress::beside("progress", work, |over| lines.follow(over));
    }
}

/// Turns the events of a run into lines.
struct EventLines<'a> {
    log: &'a LeafLog,
    stream: EventStream,
    plan: LoggedPlan,
    epoch: u64,
    phase: Phase,
    /// When the training of the current epoch began, until it is reported as ended; and its steps so far.
    training: Option<Nanos>,
    steps: u64,
    /// The numbers of the last save of the epoch and of the last restore.
    saves: u64,
    restores: u64,
}

impl<'a> EventLines<'a> {
    fn new(log: &'a LeafLog, stream: EventStream) -> EventLines<'a> {
        let nothing = LoggedPlan { ranks: 1, train: (0, 0), eval: (0, 0), checkpoint_bytes: 0 };
        let plan = log.plan.get().copied().unwrap_or(nothing);
        let (epoch, phase, training) = (1, Phase::Train, None);
        EventLines { log, stream, plan, epoch, phase, training, steps: 0, saves: 0, restores: 0 }
    }

    fn follow(mut self, over: &AtomicBool) {
        loop {
            // Acquire: pairs with the Release at the end of the work, so that its last events are drained.
            let is_over = over.load(Ordering::Acquire);
            let drained = self.stream.drain();
            drained.events.iter().for_each(|stamped| self.take(stamped.at, stamped.event));
            if drained.dropped > 0 {
                self.log.warning(&format!("{} events were not logged: there were too many", drained.dropped));
            }
            if is_over {
                return;
            }
            self.stream.wait(PERIOD);
        }
    }

    fn take(&mut self, at: Nanos, event: Event) {
        match event {
            Event::PhaseBegan { epoch, phase } => self.begin_phase(at, epoch, phase),
            Event::PreparationBegan | Event::EpochEnded { .. } => self.end_training(at),
            Event::BlockBegan { block } if self.phase == Phase::Train => {
                self.log.output(&format!("Starting block {block}"));
            }
            Event::BlockEnded { block, took, seen } => self.end_block(block, took, seen),
            Event::CheckpointBegan { moment } => {
                self.saves = if moment.epoch == self.epoch { self.saves + 1 } else { 1 };
                self.epoch = moment.epoch;
                self.begin_checkpoint("saving", self.saves, moment);
            }
            Event::CheckpointSaved { moment, took } => {
                self.end_checkpoint("saving", self.saves, moment, took);
            }
            Event::RestoreBegan { moment } => {
                self.restores += 1;
                self.begin_checkpoint("loading", self.restores, moment);
            }
            Event::Restored { moment, took } => self.end_checkpoint("loading", self.restores, moment, took),
            Event::StepBegan { rank, step, wait, compute } => self.log.step(&format!(
                "Rank {rank} step {}: loaded {} samples in {:.4} s, processes them in {:.4} s",
                step + 1,
                if self.phase == Phase::Train { self.plan.train.1 } else { self.plan.eval.1 },
                wait.seconds(),
                compute.seconds()
            )),
            _ => {}
        }
    }

    fn begin_phase(&mut self, at: Nanos, epoch: u64, phase: Phase) {
        self.end_training(at);
        if self.epoch != epoch {
            self.saves = 0;
        }
        (self.epoch, self.phase) = (epoch, phase);
        match phase {
            Phase::Train => {
                (self.training, self.steps) = (Some(at), 0);
                self.log.output(&format!("Starting epoch {epoch}: {} steps expected", self.plan.train.0));
            }
            Phase::Eval => {
                self.log.output(&format!("Starting eval - {} steps expected", self.plan.eval.0));
            }
        }
    }

    /// DLIO counts the checkpoint after an epoch as part of its training.
    fn end_training(&mut self, at: Nanos) {
        if let Some(began) = self.training.take() {
            let (epoch, steps, took) = (self.epoch, self.steps, at.since(began).seconds());
            self.log.output(&format!("Ending epoch {epoch} - {steps} steps completed in {took:.2} s"));
        }
    }

    /// The figures are those of rank 0; the throughput is multiplied by the number of ranks.
    fn end_block(&mut self, block: u64, took: Nanos, seen: BlockWindow) {
        let (epoch, LoggedPlan { ranks, train, eval, .. }) = (self.epoch, self.plan);
        let au = block_au_percent(&seen).unwrap_or(0.0);
        let (ended, place, rate) = match self.phase {
            Phase::Train => {
                self.steps += seen.steps;
                let rate = block_samples_per_second(&seen, train.1).unwrap_or(0.0);
                (format!("block {block}"), format!("Epoch {epoch} - Block {block} [Training]"), rate)
            }
            Phase::Eval => {
                let samples = (seen.steps * eval.1) as f64;
                let rate = if took > Nanos::ZERO { samples / took.seconds() } else { 0.0 };
                ("eval".to_owned(), format!("Epoch {epoch} [Eval]"), rate)
            }
        };
        self.log.output(&format!(
            "Ending {ended} - {} steps completed in {:.2} s",
            seen.steps,
            took.seconds()
        ));
        self.log.output(&format!("{place} Accelerator Utilization [AU] (%): {au:.4}"));
        self.log.output(&format!("{place} Throughput (samples/second): {:.4}", rate * ranks as f64));
    }

    fn begin_checkpoint(&self, what: &str, number: u64, Moment { epoch, step }: Moment) {
        self.log.output(&format!(
            "Starting {what} checkpoint {number} after total step {step} for epoch {epoch}"
        ));
    }

    fn end_checkpoint(&self, what: &str, number: u64, Moment { epoch, .. }: Moment, took: Nanos) {
        let (seconds, size) = (took.seconds(), self.plan.checkpoint_bytes as f64 / GIB);
        let rate = if seconds > 0.0 { size / seconds } else { 0.0 };
        self.log.output(&format!(
            "Finished {what} checkpoint {number} for epoch {epoch} in {seconds:.4} s; Throughput: {rate:.4} GiB/s"
        ));
    }
}
