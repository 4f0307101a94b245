//! `feedline run`: trains on a data set with emulated accelerators, saves and restores checkpoints, judges the result
//! and writes it. All checks that can refuse a run happen before the first byte is read.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use engine::World;
use engine::host::Host;
use model::ledger::{Ledger, Phase};
use model::units::Nanos;
use model::verdict::{Status, Verdict};
use model::warning::Warning;
use session::{Ask, Asked, CalibrationTime, MeasuredRun, Recorder, check_folder};

use super::performed::{PerformedRun, RunSetup};
use super::{ask_at, read, results_folder, stop_on_signals};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::cluster::ClusterFlags;
use crate::flags::metrics::LiveFlags;
use crate::flags::{CacheFlags, CheckpointFlags, DataFlags, OutputFlags, WorkloadFlags, some_time};
use crate::metrics::{Metrics, serving};
use crate::progress::ProgressMode;
use crate::recording::TraceOptions;
use crate::report::result::Outcome;
use crate::report::{self, folder, text};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline run                                         the demo
  feedline run retinanet_b200 --data-dir /data/retinanet --ranks 4
  feedline run retinanet_b200 --store null --ranks 8   the limit of feedline itself; needs no data
  feedline run mine.yaml --generate --set dataset.num_files_train=5000
  feedline run llama3_8b --scale 1/64 --checkpoint-dir /mnt/fast/llama     10 saves, 10 restores
  feedline run llama3_8b --scale 1/64 --save burst-buffer --set checkpoint.burst_folder=/mnt/nvme/llama
  feedline run unet3d_h100 --set workflow.checkpoint=true --advise 24h
  feedline run demo --trace demo.pfw.gz --trace-limit 30s     what every reader and accelerator did";

#[derive(Args, Debug)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    #[command(flatten)]
    pub place: DataFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    #[command(flatten)]
    pub checkpoints: CheckpointFlags,
    /// Recommend how often to save, for a job with this mean time between failures, such as 24h
    #[arg(long, value_name = "SPAN", value_parser = some_time)]
    pub advise: Option<Nanos>,
    /// Number of emulated accelerators [default: the workload's, usually 1; demo 2, llama3_8b 8]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Folder below which the result is written, as WORKLOAD/TIME [default: the workload's output.folder, or
    /// feedline-results]
    #[arg(long, value_name = "DIR")]
    pub results_dir: Option<PathBuf>,
    #[command(flatten)]
    pub trace: TraceOptions,
    /// Skip the short run on the null backend that measures the limit of feedline itself
    #[arg(long)]
    pub no_calibration: bool,
    #[command(flatten)]
    pub live: LiveFlags,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub output: OutputFlags,
}

pub(crate) fn run(flags: &RunFlags, world: &dyn World) -> CommandResult {
    serving(&flags.live.metrics, ("run", flags.output.quiet), world, |metrics| {
        run_with(flags, world, metrics)
    })
}

fn run_with(flags: &RunFlags, world: &dyn World, metrics: &Metrics) -> CommandResult {
    let (ranks, checkpoints) = (flags.cluster.ranks(flags.ranks), Some(flags.checkpoints.scale));
    let ask = Ask { ranks, checkpoints, ..ask_at(&flags.workload, flags.overrides(), &flags.place)? };
    let asked = read(ask)?;
    check_advice(flags, &asked)?;
    let results = results_folder(flags.results_dir.as_deref(), &asked.spec);
    metrics.set_workload(asked.name());
    let (host, stop) = (Host::look(), stop_on_signals()?);
    let show = ProgressMode::choose_live(flags.live.live, flags.output.quiet);
    let observer = metrics.observer(&show);
    let calibrate = if flags.no_calibration { CalibrationTime::Never } else { CalibrationTime::BeforeRun };
    // Only process 0 writes results.
    let writes = world.member() == 0;
    if writes {
        check_folder(&results, "results folder")?;
    }
    let warn = |warnings: &[Warning]| {
        if !flags.output.quiet {
            report::warnings(warnings);
        }
    };
    let recording = flags.trace.recording(world)?;
    let recorder = recording.as_ref().map(|recording| recording as &dyn Recorder);
    let setup =
        RunSetup { host: &host, world, observer: &observer, recorder, calibrate, warn: &warn, stop: &stop };
    let performed = setup.perform(asked, |settled| {
        metrics.set_plan(|| settled.plan.digest());
        let check_writable = || folder::check_writable(&results, &settled.plan.workload);
        let fresh = writes.then(check_writable).transpose().map_err(Failure::refused)?;
        recording.as_ref().map_or(Ok(()), |recording| recording.create(&settled.asked.data_location()))?;
        Ok(fresh)
    });
    // A run that failed has a trace, too.
    if let Some(recording) = &recording {
        recording.finish(flags.output.quiet);
    }
    let (run, _fresh) = performed?;
    match session::fault(&run.measured.ledger) {
        Some(fault) if !writes => Err(fault.into()),
        _ if !writes => Ok(Exit::of(run.measured.verdict.status)),
        _ => conclude(flags, &run, &results),
    }
}

/// Refuses checkpoint flags for a run without checkpoints.
fn check_advice(flags: &RunFlags, asked: &Asked) -> Result<(), Failure> {
    let what = match (flags.advise, flags.checkpoints.scale.is_whole()) {
        (Some(_), _) => "--advise",
        (None, false) => "--scale",
        (None, true) => return Ok(()),
    };
    match asked.spec.workflow.checkpoint {
        true => Ok(()),
        false => Err(Failure::usage(anyhow!(
            "{what} applies to checkpoints, but this run saves none; set workflow.checkpoint=true"
        ))),
    }
}

fn conclude(flags: &RunFlags, run: &PerformedRun<'_>, results: &Path) -> CommandResult {
    let (outcome, MeasuredRun { ledger, verdict }) = (run.outcome(flags.advise), &run.measured);
    if let Some(fault) = session::fault(ledger).filter(|_| !saw_something(ledger)) {
        return Err(fault.into());
    }
    let saved = folder::write(results, &outcome).map_err(Failure::incomplete)?;
    match failure(ledger, verdict) {
        Some(failure) if flags.output.json => Err(failure.with_result(&outcome.summary())),
        failure => {
            show_result(flags, &outcome, &saved)?;
            failure.map_or(Ok(Exit::of(verdict.status)), Err)
        }
    }
}

/// Why a run that has a result did not finish.
fn failure(ledger: &Ledger, verdict: &Verdict) -> Option<Failure> {
    let interrupted = || Failure::incomplete(anyhow!("interrupted; for a complete result, run it again"));
    let is_incomplete = verdict.status == Status::Incomplete;
    session::fault(ledger).map(Failure::from).or_else(|| is_incomplete.then(interrupted))
}

/// Whether a failed run has anything to report: a delivered sample, a checkpoint or an error.
fn saw_something(ledger: &Ledger) -> bool {
    let epochs = ledger.epochs(Phase::Train);
    !ledger.errors().is_empty()
        || !ledger.checkpoints.saves.is_empty()
        || !ledger.checkpoints.restores.is_empty()
        || epochs.into_iter().any(|epoch| ledger.total(epoch, Phase::Train).samples_delivered > 0)
}

fn show_result(flags: &RunFlags, outcome: &Outcome<'_>, saved: &Path) -> Result<(), Failure> {
    if flags.output.json {
        return report::out_summary(&outcome.summary());
    }
    let is_demo = flags.workload.workload == "demo" && outcome.plan.training.is_some();
    report::out(&text::render(outcome, saved, is_demo))
}
