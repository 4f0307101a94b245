//! `feedline stall`: what the accelerators wait for.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use engine::World;
use engine::host::Host;
use model::document;
use model::secret::redact;
use model::study::attribution::StallRun;
use serde::{Deserialize, Serialize};
use session::study::{FollowerLog, Stall, StudyControl};
use session::{Ask, Asked};

use super::study::journal::{JournalHeader, JournalLine};
use super::study::{JournalLog, STALL, StudyFolder, absolute, at_process_0, several, spec_digest};
use super::{ask_at, read, stop_on_signals};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::cluster::ClusterFlags;
use crate::flags::metrics::LiveFlags;
use crate::flags::{DataFlags, FolderFlags, OutputFlags, WorkloadFlags};
use crate::metrics::{Metrics, serving};
use crate::progress::{ProgressMode, StudyProgress};
use crate::report;
use crate::report::stall::{StallReport, run_line, stage_line};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline stall demo
  feedline stall retinanet_b200 --data-dir /data/retinanet --ranks 4
  feedline stall unet3d_h100 --data-dir /data/unet3d --steps 50 --json

Runs the same steps without data, with a cold page cache, and with a warm one; the differences are the stalls of
preprocessing and of fetching. It sets reader.cache itself, changes no data file, and leaves other files cached.
The folder contains runs.jsonl (the journal), stall.csv, stall.json and stall.svg.";

#[derive(Args, Debug)]
pub(crate) struct StallFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    #[command(flatten)]
    pub place: DataFlags,
    /// Number of emulated accelerators [default: 1, for the demo 2; with several
    /// processes 1 for each]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Maximum steps of each run, of which 5 warm up [default: 10 s of compute time, at least 20 for each batch that
    /// can be ready in advance]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    #[command(flatten)]
    pub folder: FolderFlags,
    #[command(flatten)]
    pub live: LiveFlags,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub output: OutputFlags,
}

/// Identifies an analysis. Its number of steps may differ: runs of other lengths are not reused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StallHeader {
    stall: String,
    set: Vec<String>,
    store: Option<String>,
    ranks: u64,
    memory: Option<u64>,
    data_folder: PathBuf,
    /// The number of processes, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    processes: Option<u64>,
    spec_digest: String,
}

impl JournalHeader for StallHeader {}

impl StallHeader {
    fn of(flags: &StallFlags, asked: &Asked) -> Result<StallHeader, Failure> {
        Ok(StallHeader {
            stall: asked.name().to_owned(),
            set: flags.workload.set.iter().map(|setting| redact(setting)).collect(),
            store: flags.place.store.clone(),
            ranks: asked.ranks(),
            memory: flags.place.memory.map(|memory| memory.0),
            data_folder: absolute(&asked.data_location()),
            processes: None,
            spec_digest: spec_digest(&asked.spec),
        })
    }
}

impl JournalLine for StallRun {
    type Key = (String, u64);

    fn key(&self) -> (String, u64) {
        (self.run.clone(), self.steps)
    }
}

pub(crate) fn stall(flags: &StallFlags, world: &dyn World) -> CommandResult {
    let named = ("stall", flags.output.quiet);
    serving(&flags.live.metrics, named, world, |metrics| stall_with(flags, world, metrics))
}

fn stall_with(flags: &StallFlags, world: &dyn World, metrics: &Metrics) -> CommandResult {
    let ask = ask_at(&flags.workload, flags.overrides(), &flags.place)?;
    let asked = read(Ask { ranks: flags.cluster.ranks(flags.ranks), checkpoints: None, ..ask })?;
    let host = Host::look();
    let progress = StudyProgress::new(ProgressMode::choose_live(flags.live.live, flags.output.quiet));
    let stop = stop_on_signals()?.with_patience(asked.stall_timeout());
    metrics.set_workload(asked.name());
    let observer = metrics.observer(&progress);
    let control = StudyControl { world, observer: &observer, stop: &stop };
    let stall = Stall::settle(asked, &host, flags.steps, &control)?;
    let folder = at_process_0(&control, || {
        let folder = StudyFolder::choose(&STALL, &flags.folder, stall.asked())?;
        if !flags.output.quiet {
            report::warnings(stall.warnings());
        }
        Ok(folder)
    })?;
    stall.check_data()?;
    let header = StallHeader { processes: several(&control), ..StallHeader::of(flags, stall.asked())? };
    let journal = at_process_0(&control, || {
        folder.as_ref().map(|folder| folder.journal(&header, &progress)).transpose()
    })?;
    let Some((folder, journal)) = folder.zip(journal.flatten()) else {
        stall.run(&mut FollowerLog::<_, _, Failure>::default())?;
        return Ok(Exit::Ok);
    };
    let mut log = JournalLog { journal, progress: &progress, stage_line, run_line };
    let found = stall.run(&mut log);
    let found = found.map_err(|failure| match stop.wished() {
        true => Failure::incomplete(anyhow!(
            "{:#}; there is no answer before all four runs are done\nresume with: {}",
            failure.error,
            folder.resume_command()
        )),
        false => failure,
    })?;
    let report = StallReport { found: &found };
    let json = report.json();
    folder.write(report.csv(), &json, &report.figure())?;
    match flags.output.json {
        true => report::out_json(document::STALL, &json)?,
        false => {
            report::out(&format!("{}\n{}", report.text(), report::path_line("result in", folder.shown())))?;
        }
    }
    Ok(if found.broken.is_empty() { Exit::Ok } else { Exit::CheckFailed })
}
