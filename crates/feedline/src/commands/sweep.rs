//! `feedline sweep`: a grid of settings, each cell run several times. Every run is recorded in a journal when it ends,
//! and an interrupted sweep resumes from there.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use clap::builder::PossibleValuesParser;
use engine::World;
use engine::host::Host;
use engine::meter::Monotonic;
use model::document;
use model::ledger::{Calibration, Phase};
use model::metrics::Figures;
use model::secret::redact;
use model::spec::{PlottedFigure, SweepSpec};
use model::statistics;
use model::study::grid::{Axis, AxisRequest, SweepCell, SweepGrid, SweepRun};
use model::units::{Nanos, megabytes_per_second};
use model::verdict::Status;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use session::study::{CellOutcome, StudyControl, Sweep, SweepSummary};
use session::{Ask, Asked, Error};
use store::Now;

use super::study::journal::{Journal, JournalHeader, JournalLine};
use super::study::{SWEEP, StudyFolder, absolute, at_process_0, several, spec_digest};
use super::{ask_at, read, stop_on_signals};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::cluster::ClusterFlags;
use crate::flags::metrics::LiveFlags;
use crate::flags::{CacheFlags, DataFlags, FolderFlags, OutputFlags, WorkloadFlags};
use crate::metrics::{Metrics, serving};
use crate::progress::ProgressMode;
use crate::report;
use crate::report::sweep::{CellRuns, SweepReport};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline sweep demo --over reader.read_threads=1,2,4,8
  feedline sweep retinanet_b200 --data-dir /data/retinanet --over reader.read_threads=1,2,4,8 \\
      --over reader.prefetch_size=0,2 --repeat 5
  feedline sweep demo --over ranks=1,2,4 --over store=posix,null --json > sweep.json
  feedline sweep demo --over reader.read_threads=1,2 --output s    resumes after Ctrl-C

Each round runs every cell once, in a different order. The folder contains cells.jsonl (the journal), sweep.csv,
sweep.json and sweep.svg. Values are split at commas outside brackets and quotes.";

#[derive(Args, Debug)]
pub(crate) struct SweepFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    /// A setting and its values, or ranks=1,2,.. or store=posix,..; repeat it for a grid of all combinations
    /// [default: the workload's sweep.over, of which each --over replaces the axis with its key]
    #[arg(long, value_name = "KEY=A,B,..")]
    pub over: Vec<String>,
    /// Runs of each cell [default: the workload's sweep.repeat, 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub repeat: Option<u64>,
    /// Figure that the plot shows [default: the workload's sweep.plot, or by what is compared]
    #[arg(long, value_name = "FIGURE", value_parser = PossibleValuesParser::new(PlottedFigure::NAMES))]
    pub plot: Option<String>,
    #[command(flatten)]
    pub place: DataFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// Number of emulated accelerators [default: 1, for the demo 2; with several
    /// processes 1 for each]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    #[command(flatten)]
    pub folder: FolderFlags,
    /// Skip the short run on the null backend that measures the limit of feedline itself
    #[arg(long)]
    pub no_calibration: bool,
    /// Seed of the order within rounds, and of the intervals
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub live: LiveFlags,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub output: OutputFlags,
}

/// Identifies a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SweepHeader {
    pub sweep: String,
    pub over: Vec<Axis>,
    pub set: Vec<String>,
    pub store: Option<String>,
    pub ranks: Option<u64>,
    #[serde(default)]
    pub memory: Option<u64>,
    pub data_folder: PathBuf,
    /// The number of processes, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    pub seed: u64,
    /// Of the first cell.
    pub spec_digest: String,
}

impl JournalHeader for SweepHeader {}

/// A finished run of a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CellRun {
    pub cell: usize,
    pub round: u64,
    /// The settings of the cell, for people who read the file.
    pub settings: serde_json::Map<String, Value>,
    pub start: String,
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    pub samples_per_second: Option<f64>,
    /// Millions of bytes.
    pub mb_per_second: Option<f64>,
    pub au_percent: Option<f64>,
    /// Mean time for which a save blocked training; `None` without checkpoints.
    #[serde(default)]
    pub blocked_seconds: Option<f64>,
    /// Whether a simulated device was used.
    #[serde(default)]
    pub simulated: bool,
    pub verdict: Option<Status>,
    /// Rules of the verdict that failed.
    pub broken: Vec<String>,
    /// Rules that could not be checked.
    #[serde(default)]
    pub unchecked: Vec<String>,
    /// Why there are no figures.
    pub error: Option<String>,
}

impl JournalLine for CellRun {
    type Key = (usize, u64);

    fn key(&self) -> (usize, u64) {
        (self.cell, self.round)
    }
}

/// What came of a run.
fn run_in(journal: &Journal<CellRun>, SweepRun { cell, round }: SweepRun) -> Option<&CellRun> {
    journal.of(&(cell, round))
}

/// Whether a run was done and need not be done again.
fn is_done(journal: &Journal<CellRun>, run: SweepRun) -> bool {
    run_in(journal, run).is_some_and(|run| run.error.is_none())
}

pub(crate) fn sweep(flags: &SweepFlags, world: &dyn World) -> CommandResult {
    let named = ("sweep", flags.output.quiet);
    serving(&flags.live.metrics, named, world, |metrics| sweep_with(flags, world, metrics))
}

fn sweep_with(flags: &SweepFlags, world: &dyn World, metrics: &Metrics) -> CommandResult {
    let host = Host::look();
    let show = ProgressMode::choose_live(flags.live.live, flags.output.quiet);
    let base = ask_at(&flags.workload, Vec::new(), &flags.place)?;
    let asked = read(Ask { overrides: flags.overrides(std::iter::empty()), ..base.clone() })?;
    let (preset, patience) = (&asked.spec.sweep, asked.stall_timeout());
    let grid = grid(flags, preset)?;
    let ask = |cell: &SweepCell<'_>| {
        let overrides = flags.overrides(cell.overrides("--over"));
        let ranks = cell.ranks().or(flags.cluster.ranks(flags.ranks));
        let store = cell.store().map(str::to_owned).or_else(|| base.store.clone());
        read(Ask { overrides, ranks, store, ..base.clone() })
    };
    let stop = stop_on_signals()?.with_patience(patience);
    metrics.set_workload(asked.name());
    let observer = metrics.observer(&show);
    let control = StudyControl { world, observer: &observer, stop: &stop };
    let study = Sweep {
        grid: &grid,
        host: &host,
        control,
        rounds: flags.repeat.unwrap_or(preset.repeat),
        seed: flags.seed,
        ask: &ask,
    };
    let SweepSummary { warnings, simulated, largest, first } = study.settle_all()?;
    let header = SweepHeader { processes: several(&control), ..header(flags, &grid, &first)? };
    let opened = at_process_0(&control, || {
        if !flags.output.quiet {
            report::warnings(&warnings);
        }
        let folder = StudyFolder::choose(&SWEEP, &flags.folder, &first)?;
        let known = folder.earlier_journal(&header)?;
        Ok((folder, known))
    })?;
    let known = opened.as_ref().and_then(|(_, known)| known.as_ref());
    let refused = study.check(|run| known.is_some_and(|journal| is_done(journal, run)))?;
    let opened = at_process_0(&control, || {
        let open = |(folder, known): (StudyFolder, Option<Journal<CellRun>>)| {
            let journal = known.map_or_else(|| folder.new_journal(&header), Ok)?;
            Ok((folder, journal))
        };
        opened.map(open).transpose()
    })?;
    let opened = opened.flatten();
    let is_done = |run| opened.as_ref().is_some_and(|(_, journal)| is_done(journal, run));
    let runs = study.missing(is_done, &refused.iter().map(|(cell, _)| *cell).collect())?;
    let calibrates = !runs.is_empty() && !flags.no_calibration;
    let ceiling = if calibrates { study.calibrate(largest)? } else { None };
    let Some((folder, mut journal)) = opened else {
        study.run_all(&runs, |_, _| {}, |_, _| Ok::<(), Failure>(()))?;
        return Ok(Exit::Ok);
    };
    let plot = flags.plot.as_deref().and_then(PlottedFigure::named).or(preset.plot);
    let command = SweepCommand { flags, study, show, simulated, folder, plot };
    for (cell, error) in refused {
        command.record(&mut journal, SweepRun { cell, round: 1 }, Err(error))?;
    }
    command.run_all(&runs, &mut journal)?;
    if stop.wished() {
        return Err(command.interrupted(&journal));
    }
    command.conclude(&header, &journal, ceiling)
}

/// The grid of the workload, as changed by the flags.
fn grid(flags: &SweepFlags, preset: &SweepSpec) -> Result<SweepGrid, Failure> {
    let parsed = |texts: &[String], origin: &str| -> Result<Vec<Axis>, Failure> {
        let named = |text: &str, error| Failure::usage(anyhow!("{origin} {}: {error}", redact(text)));
        texts.iter().map(|text| Axis::parse(text).map_err(|error| named(text, error))).collect()
    };
    let request = AxisRequest {
        over: parsed(&flags.over, "--over")?,
        store: flags.place.store.is_some(),
        ranks: flags.ranks.is_some() || !flags.cluster.ranks_per_process.is_empty(),
        fixed: flags.overrides(std::iter::empty()).into_iter().map(|change| change.key).collect(),
    };
    let axes = request.axes(parsed(&preset.over, "sweep.over:")?).map_err(Failure::usage)?;
    SweepGrid::new(axes).map_err(Failure::usage)
}

fn header(flags: &SweepFlags, grid: &SweepGrid, first: &Asked) -> Result<SweepHeader, Failure> {
    let set = flags.workload.set.iter().map(|setting| redact(setting));
    Ok(SweepHeader {
        sweep: first.name().to_owned(),
        over: grid.axes().to_vec(),
        set: set.chain(flags.cache.overrides().map(|change| change.to_string())).collect(),
        store: flags.place.store.clone(),
        ranks: flags.cluster.ranks(flags.ranks),
        memory: flags.place.memory.map(|memory| memory.0),
        data_folder: absolute(&first.data_location()),
        processes: None,
        seed: flags.seed,
        spec_digest: spec_digest(&first.spec),
    })
}

/// A sweep that is being run, and where its results are recorded.
struct SweepCommand<'a> {
    flags: &'a SweepFlags,
    study: Sweep<'a>,
    show: ProgressMode,
    /// Of each cell, whether a device is simulated.
    simulated: Vec<bool>,
    folder: StudyFolder,
    /// The figure of the plot, if one was asked for.
    plot: Option<PlottedFigure>,
}

impl SweepCommand<'_> {
    fn run_all(&self, runs: &[SweepRun], journal: &mut Journal<CellRun>) -> Result<(), Failure> {
        let clock = Monotonic::new();
        let begins = |run: SweepRun, done: usize| {
            if self.show != ProgressMode::Nothing {
                report::note(&self.announcement(run, done, runs.len(), clock.now()));
            }
        };
        self.study.run_all(runs, begins, |run, outcome| self.record(journal, run, outcome))
    }

    /// Adds a run to the journal. One that failed has a reason in place of figures.
    fn record(
        &self,
        journal: &mut Journal<CellRun>,
        run: SweepRun,
        outcome: Result<CellOutcome<'_>, Error>,
    ) -> Result<(), Failure> {
        let settings = self.study.grid.cell(run.cell).settings;
        let mut entry = CellRun {
            cell: run.cell,
            round: run.round,
            settings: settings.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect(),
            simulated: self.simulated[run.cell],
            ..CellRun::default()
        };
        match outcome {
            Err(error) => entry.error = Some(format!("{:#}", anyhow::Error::from(error))),
            Ok(outcome) => fill(&mut entry, &outcome),
        }
        journal.add(entry).map_err(Failure::incomplete)
    }

    /// `run 3 of 40  reader.read_threads=2, round 1  3 m 20 s left`
    fn announcement(&self, run: SweepRun, done: usize, all: usize, now: Nanos) -> String {
        let left = match done {
            0 => String::new(),
            _ => format!("  {} left", Nanos(now.0 / done as u64 * (all - done) as u64)),
        };
        format!("run {} of {all}  {}, round {}{left}", done + 1, self.study.grid.cell(run.cell), run.round)
    }

    fn interrupted(&self, journal: &Journal<CellRun>) -> Failure {
        let all = self.study.grid.cells() as u64 * self.study.rounds;
        let runs = self.study.grid.runs(self.study.rounds, self.study.seed);
        let done = runs.filter(|run| is_done(journal, *run)).count();
        let command = self.folder.resume_command();
        Failure::incomplete(anyhow!("interrupted after {done} of {all} runs\nresume with: {command}"))
    }

    fn conclude(
        &self,
        header: &SweepHeader,
        journal: &Journal<CellRun>,
        ceiling: Option<Calibration>,
    ) -> CommandResult {
        let grid = self.study.grid;
        let cells = (0..grid.cells()).map(|cell| {
            let rounds = (1..=self.study.rounds).map(|round| SweepRun { cell, round });
            let runs = rounds.filter_map(|run| run_in(journal, run)).collect();
            let settings = grid.cell(cell).settings;
            let settings = settings.iter().map(|(_, value)| (*value).to_owned()).collect();
            CellRuns { settings, simulated: self.simulated[cell], runs }
        });
        let report = SweepReport::new(header, cells, ceiling);
        let json = report.json();
        self.folder.write(report.csv(), &json, &report.figure(self.plot))?;
        let is_json = self.flags.output.json;
        if !is_json {
            report::out(&format!(
                "{}\n{}",
                report.text(),
                report::path_line("result in", self.folder.shown())
            ))?;
        }
        if let Some(failed) = report.failed() {
            // The table has the reasons.
            return Err(Failure::printed(Exit::Incomplete, anyhow!("{failed}")).with_result(&json));
        }
        if is_json {
            report::out_json(document::SWEEP, &json)?;
        }
        Ok(if report.any_invalid() { Exit::CheckFailed } else { Exit::Ok })
    }
}

/// The figures of a run.
fn fill(entry: &mut CellRun, CellOutcome { settled, measured }: &CellOutcome<'_>) {
    let times = &measured.ledger.times;
    entry.start = times.start.clone();
    entry.wall_seconds = times.wall.seconds();
    entry.cpu_seconds = times.cpu.seconds();
    entry.error = session::fault(&measured.ledger).map(|fault| fault.to_string());
    if entry.error.is_some() {
        return;
    }
    entry.broken = measured.broken();
    entry.unchecked = measured.verdict.unchecked().map(str::to_owned).collect();
    entry.verdict = Some(measured.verdict.status);
    let saves = measured.ledger.checkpoints.saves.iter().filter(|save| save.is_complete());
    entry.blocked_seconds =
        statistics::mean(&saves.map(|save| save.blocked_ns.seconds()).collect::<Vec<_>>());
    let Some(figures) = Figures::new(&measured.ledger, Phase::Train) else { return };
    entry.samples_per_second = figures.samples_per_second.map(|rate| rate.mean);
    entry.mb_per_second = figures.mib_per_second.map(|rate| megabytes_per_second(rate.mean));
    // Without compute time there is no AU.
    entry.au_percent = settled
        .plan
        .training
        .as_ref()
        .and_then(|plan| plan.estimate.demand)
        .and(figures.au_percent)
        .map(|au| au.mean);
}
