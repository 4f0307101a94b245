//! `feedline capacity`: how many accelerators this storage feeds at the workload's AU.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::World;
use engine::host::Host;
use model::document;
use model::secret::redact;
use model::study::search::{Depth, SearchState, Trial};
use serde::{Deserialize, Serialize};
use session::study::{Capacity, CapacityRange, FollowerLog, StudyControl};
use session::{Ask, Asked, path_argument, quoted};

use super::study::journal::{JournalHeader, JournalLine};
use super::study::{CAPACITY, JournalLog, StudyFolder, absolute, at_process_0, several, spec_digest};
use super::{ask_at, read, stop_on_signals};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::cluster::NetworkFlags;
use crate::flags::metrics::LiveFlags;
use crate::flags::{CacheFlags, DataFlags, FolderFlags, OutputFlags, WorkloadFlags};
use crate::metrics::{Metrics, serving};
use crate::progress::{ProgressMode, StudyProgress};
use crate::report;
use crate::report::capacity::{CapacityReport, stage_line, trial_line};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline capacity retinanet_b200 --data-dir /data/retinanet
  feedline capacity unet3d_h100 --data-dir /data/unet3d --from 4 --up-to 64
  feedline capacity retinanet_b200 --store null            how many this host can emulate
  feedline capacity demo --output c                        resumes after Ctrl-C
  feedline capacity demo --output c --confirm full         keeps the probes

Probes of a few steps find the limit; runs with N accelerators, which reach metric.au, and N + 1, which do not,
confirm it. With several processes (mpirun -n 4 feedline capacity ...) the search begins with one accelerator per
process. The folder contains trials.jsonl (the journal), capacity.csv, capacity.json and capacity.svg.";

#[derive(Args, Debug)]
pub(crate) struct CapacityFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    #[command(flatten)]
    pub place: DataFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// First number of accelerators to try, at least one per process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub from: u64,
    /// Largest number of accelerators to try
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub up_to: Option<u64>,
    /// Steps of a probe [default: 20 for each batch that can be ready in advance, at least 2 s of compute time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Runs that confirm the limit: short (20 to 80 s each, at most an epoch), full (all epochs of the workload, which
    /// can take hours) or none (the answer is an estimate by probes)
    #[arg(long, value_name = "HOW", default_value = "short", value_parser = confirmation_parser())]
    pub confirm: Depth,
    #[command(flatten)]
    pub folder: FolderFlags,
    #[command(flatten)]
    pub live: LiveFlags,
    #[command(flatten)]
    pub network: NetworkFlags,
    #[command(flatten)]
    pub output: OutputFlags,
}

fn confirmation_parser() -> impl TypedValueParser<Value = Depth> {
    let names = Depth::CONFIRMATIONS.map(|(name, _)| name);
    PossibleValuesParser::new(names).map(|given| {
        let found = Depth::CONFIRMATIONS.into_iter().find(|(name, _)| *name == given);
        found.map_or(Depth::Short, |(_, depth)| depth)
    })
}

/// Identifies a search. How far it goes and how it confirms its answer may differ: every trial counts by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CapacityHeader {
    capacity: String,
    set: Vec<String>,
    store: Option<String>,
    memory: Option<u64>,
    data_folder: PathBuf,
    /// The number of processes, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    processes: Option<u64>,
    spec_digest: String,
}

impl JournalHeader for CapacityHeader {}

impl CapacityHeader {
    fn of(flags: &CapacityFlags, asked: &Asked) -> Result<CapacityHeader, Failure> {
        let set = flags.workload.set.iter().map(|setting| redact(setting));
        Ok(CapacityHeader {
            capacity: asked.name().to_owned(),
            set: set.chain(flags.cache.overrides().map(|change| change.to_string())).collect(),
            store: flags.place.store.clone(),
            memory: flags.place.memory.map(|memory| memory.0),
            data_folder: absolute(&asked.data_location()),
            processes: None,
            spec_digest: spec_digest(&asked.spec),
        })
    }
}

impl JournalLine for Trial {
    type Key = (u64, Depth, u64, u64);

    fn key(&self) -> (u64, Depth, u64, u64) {
        (self.ranks, self.depth, self.epochs, self.steps)
    }
}

pub(crate) fn capacity(flags: &CapacityFlags, world: &dyn World) -> CommandResult {
    let named = ("capacity", flags.output.quiet);
    serving(&flags.live.metrics, named, world, |metrics| capacity_with(flags, world, metrics))
}

fn capacity_with(flags: &CapacityFlags, world: &dyn World, metrics: &Metrics) -> CommandResult {
    if let Some(up_to) = flags.up_to.filter(|up_to| *up_to < flags.from) {
        return Err(Failure::usage(anyhow!("--from {} is greater than --up-to {up_to}", flags.from)));
    }
    let ask = ask_at(&flags.workload, flags.overrides(), &flags.place)?;
    let asked = read(Ask { checkpoints: None, ..ask })?;
    let host = Host::look();
    let (from, up_to, steps, confirmation) = (flags.from, flags.up_to, flags.steps, flags.confirm);
    let range = CapacityRange { from, up_to, steps, confirmation };
    let progress = StudyProgress::new(ProgressMode::choose_live(flags.live.live, flags.output.quiet));
    let stop = stop_on_signals()?.with_patience(asked.stall_timeout());
    metrics.set_workload(asked.name());
    let observer = metrics.observer(&progress);
    let control = StudyControl { world, observer: &observer, stop: &stop };
    let capacity = Capacity::settle(asked, &host, range, &control)?;
    let folder = at_process_0(&control, || {
        let folder = StudyFolder::choose(&CAPACITY, &flags.folder, capacity.asked())?;
        if !flags.output.quiet {
            report::warnings(capacity.warnings());
        }
        Ok(folder)
    })?;
    capacity.check_data()?;
    let header =
        CapacityHeader { processes: several(&control), ..CapacityHeader::of(flags, capacity.asked())? };
    let journal = at_process_0(&control, || {
        folder.as_ref().map(|folder| folder.journal(&header, &progress)).transpose()
    })?;
    let Some((folder, journal)) = folder.zip(journal.flatten()) else {
        capacity.run(&mut FollowerLog::<_, _, Failure>::default())?;
        return Ok(Exit::Ok);
    };
    let mut log = JournalLog { journal, progress: &progress, stage_line, run_line: trial_line };
    let found = capacity.run(&mut log)?;
    conclude(flags, &folder, &CapacityReport { found: &found })
}

fn conclude(flags: &CapacityFlags, folder: &StudyFolder, report: &CapacityReport<'_>) -> CommandResult {
    let mut json = report.json();
    if report.found.interrupted {
        let resume = folder.resume_command();
        json["resume"] = resume.clone().into();
        if !flags.output.json {
            report::out(&report.text())?;
        }
        let error = anyhow!("interrupted, so the answer is partial\nresume with: {resume}");
        return Err(Failure::incomplete(error).with_result(&json));
    }
    folder.write(report.csv(), &json, &report.figure())?;
    if !flags.output.json {
        report::out(&format!("{}\n{}", report.text(), report::path_line("result in", folder.shown())))?;
    }
    if report.found.answer.state == SearchState::Contradicted {
        let error = anyhow!(
            "no clear limit was found: longer runs contradict the probes; raise --steps, or see how the rate varies \
             with: {}",
            sweep_command(flags, report.found.answer.ranks)
        );
        return Err(Failure::incomplete(error).with_result(&json));
    }
    if flags.output.json {
        report::out_json(document::CAPACITY, &json)?;
    }
    Ok(if report.is_valid() { Exit::Ok } else { Exit::CheckFailed })
}

/// A sweep over numbers of accelerators near this one.
fn sweep_command(flags: &CapacityFlags, ranks: u64) -> String {
    let mut command = format!("feedline sweep {}", quoted(&flags.workload.workload));
    if let Some(folder) = &flags.place.data_dir {
        command.push_str(&format!(" --data-dir {}", path_argument(folder)));
    }
    if let Some(store) = &flags.place.store {
        command.push_str(&format!(" --store {}", quoted(store)));
    }
    for setting in &flags.workload.set {
        command.push_str(&format!(" --set {}", quoted(&redact(setting))));
    }
    let most = ranks.max(2);
    format!("{command} --over ranks={},{most},{}", most / 2, most * 2)
}
