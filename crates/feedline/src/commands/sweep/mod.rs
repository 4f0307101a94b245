//! `feedline sweep`: a grid of settings, each cell run several times. Every run is recorded in a journal when it ends,
//! and an interrupted sweep resumes from there.

pub(crate) mod journal;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use clap::builder::PossibleValuesParser;
use engine::host::Host;
use engine::meter::{self, Monotonic};
use model::ledger::{Calibration, Phase};
use model::metrics::Figures;
use model::secret::redact;
use model::spec::{PlottedFigure, SweepSpec};
use model::statistics;
use model::study::grid::{Axis, AxisRequest, SweepCell, SweepGrid, SweepRun};
use model::units::{Nanos, megabytes_per_second};
use serde_json::json;
use session::study::{CellOutcome, StudyControl, Sweep, SweepSummary};
use session::{Ask, Asked, Error, check_folder, make_folder, quoted};
use sha2::{Digest, Sha256};
use store::{FolderHandle, Now, StoreError};

use super::{ask_at, read, results_folder, stop_on_signals};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::{CacheFlags, DataFlags, OutputFlags, WorkloadFlags};
use crate::progress::ProgressMode;
use crate::report;
use crate::report::folder::safe_name;
use crate::report::sweep::{CellRuns, SweepReport};
use journal::{JournalEntry, JournalHeader, SweepJournal};

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
    /// Number of emulated accelerators [default: 1, for the demo 2]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Folder below which the result is written, as sweep/WORKLOAD/TIME [default: the workload's output.folder, or
    /// feedline-results]
    #[arg(long, value_name = "DIR")]
    pub results_dir: Option<PathBuf>,
    /// Folder of the sweep; resumes an interrupted sweep there [default: a new one in --results-dir]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Skip the short run on the null backend that measures the limit of feedline itself
    #[arg(long)]
    pub no_calibration: bool,
    /// Seed of the order within rounds, and of the intervals
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub output_flags: OutputFlags,
}

pub(crate) fn sweep(flags: &SweepFlags) -> CommandResult {
    let host = Host::look();
    let show = ProgressMode::choose(flags.output_flags.quiet);
    let base = ask_at(&flags.workload, Vec::new(), &flags.place)?;
    let preset = read(Ask { overrides: flags.overrides(std::iter::empty()), ..base.clone() })?.spec.sweep;
    let grid = grid(flags, &preset)?;
    let ask = |cell: &SweepCell<'_>| {
        let overrides = flags.overrides(cell.overrides("--over"));
        let ranks = cell.ranks().or(flags.ranks);
        let store = cell.store().map(str::to_owned).or_else(|| base.store.clone());
        read(Ask { overrides, ranks, store, ..base.clone() })
    };
    let study = Sweep {
        grid: &grid,
        host: &host,
        rounds: flags.repeat.unwrap_or(preset.repeat),
        seed: flags.seed,
        ask: &ask,
    };
    let SweepSummary { warnings, simulated, largest, first } = study.settle_all()?;
    if !flags.output_flags.quiet {
        report::warnings(&warnings);
    }
    let (header, folder) = (header(flags, &grid, &first)?, folder(flags, &first));
    check_folder(&folder, "results folder")?;
    let stop = stop_on_signals()?;
    let control = StudyControl { observer: &show, stop: &stop };
    let known = SweepJournal::is_in(&folder).then(|| open(&folder, &header)).transpose()?;
    let refused = study.check(|run| known.as_ref().is_some_and(|journal| journal.has(run)), &control)?;
    let mut journal = match known {
        Some(journal) => journal,
        None => {
            make_folder(&folder, "results folder")?;
            check_outputs(&folder).map_err(Failure::refused)?;
            open(&folder, &header)?
        }
    };
    let plot = flags.plot.as_deref().and_then(PlottedFigure::named).or(preset.plot);
    let command = SweepCommand { flags, study, show, simulated, folder, plot };
    let runs = study.missing(|run| journal.has(run), &refused.iter().map(|(cell, _)| *cell).collect());
    for (cell, error) in refused {
        command.record(&mut journal, SweepRun { cell, round: 1 }, Err(error))?;
    }
    let calibrates = !runs.is_empty() && !flags.no_calibration;
    let ceiling = if calibrates { study.calibrate(largest, &control)? } else { None };
    command.run_all(&runs, &mut journal, &control)?;
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
        ranks: flags.ranks.is_some(),
        fixed: flags.overrides(std::iter::empty()).into_iter().map(|change| change.key).collect(),
    };
    let axes = request.axes(parsed(&preset.over, "sweep.over:")?).map_err(Failure::usage)?;
    SweepGrid::new(axes).map_err(Failure::usage)
}

/// The files of a finished sweep, in addition to its journal.
const OUTPUTS: [&str; 3] = ["sweep.csv", "sweep.json", "sweep.svg"];

/// Refuses a folder that has files with these names but no journal: another program wrote them.
fn check_outputs(folder: &Path) -> Result<(), StoreError> {
    let held = FolderHandle::open(folder)?;
    OUTPUTS.iter().try_for_each(|name| held.check_free(name))
}

fn open(folder: &Path, header: &JournalHeader) -> Result<SweepJournal, Failure> {
    SweepJournal::open(folder, header).map_err(Failure::refused)
}

fn header(flags: &SweepFlags, grid: &SweepGrid, first: &Asked) -> Result<JournalHeader, Failure> {
    let hash = Sha256::digest(first.spec.to_yaml().as_bytes());
    let set = flags.workload.set.iter().map(|setting| redact(setting));
    Ok(JournalHeader {
        sweep: first.name().to_owned(),
        over: grid.axes().to_vec(),
        set: set.chain(flags.cache.overrides().map(|change| change.to_string())).collect(),
        store: flags.place.store.clone(),
        ranks: flags.ranks,
        data_folder: first.data_folder()?,
        seed: flags.seed,
        spec_digest: hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect(),
    })
}

/// Where the result is written.
fn folder(flags: &SweepFlags, first: &Asked) -> PathBuf {
    if let Some(folder) = &flags.output {
        return folder.clone();
    }
    let results = results_folder(flags.results_dir.as_deref(), &first.spec);
    let parent = results.join("sweep").join(safe_name(first.name()));
    let stamp = meter::folder_stamp();
    let mut folder = parent.join(&stamp);
    let mut attempt = 1;
    while folder.exists() {
        attempt += 1;
        folder = parent.join(format!("{stamp}-{attempt}"));
    }
    folder
}

/// A sweep that is being run, and where its results are recorded.
struct SweepCommand<'a> {
    flags: &'a SweepFlags,
    study: Sweep<'a>,
    show: ProgressMode,
    /// Of each cell, whether a device is simulated.
    simulated: Vec<bool>,
    folder: PathBuf,
    /// The figure of the plot, if one was asked for.
    plot: Option<PlottedFigure>,
}

impl SweepCommand<'_> {
    fn run_all(
        &self,
        runs: &[SweepRun],
        journal: &mut SweepJournal,
        control: &StudyControl<'_>,
    ) -> Result<(), Failure> {
        let clock = Monotonic::new();
        let begins = |run: SweepRun, done: usize| {
            if self.show != ProgressMode::Nothing {
                report::note(&self.announcement(run, done, runs.len(), clock.now()));
            }
        };
        self.study.run_all(runs, control, begins, |run, outcome| self.record(journal, run, outcome))
    }

    /// Adds a run to the journal. One that failed has a reason in place of figures.
    fn record(
        &self,
        journal: &mut SweepJournal,
        run: SweepRun,
        outcome: Result<CellOutcome<'_>, Error>,
    ) -> Result<(), Failure> {
        let settings = self.study.grid.cell(run.cell).settings;
        let mut entry = JournalEntry {
            cell: run.cell,
            round: run.round,
            settings: settings.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect(),
            simulated: self.simulated[run.cell],
            ..JournalEntry::default()
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

    fn interrupted(&self, journal: &SweepJournal) -> Failure {
        let mut command = "feedline".to_owned();
        for word in std::env::args().skip(1) {
            command.push_str(&format!(" {}", quoted(&redact(&word))));
        }
        if self.flags.output.is_none() {
            command.push_str(&format!(" --output {}", quoted(&self.folder.display().to_string())));
        }
        let all = self.study.grid.cells() as u64 * self.study.rounds;
        let left = self.study.missing(|run| journal.has(run), &BTreeSet::new()).len() as u64;
        Failure::incomplete(anyhow!("interrupted after {} of {all} runs; resume with: {command}", all - left))
    }

    fn conclude(
        &self,
        header: &JournalHeader,
        journal: &SweepJournal,
        ceiling: Option<Calibration>,
    ) -> CommandResult {
        let (grid, folder) = (self.study.grid, &self.folder);
        let cells = (0..grid.cells()).map(|cell| {
            let rounds = (1..=self.study.rounds).map(|round| SweepRun { cell, round });
            let runs = rounds.filter_map(|run| journal.of(run)).collect();
            let settings = grid.cell(cell).settings;
            let settings = settings.iter().map(|(_, value)| (*value).to_owned()).collect();
            CellRuns { settings, simulated: self.simulated[cell], runs }
        });
        let report = SweepReport::new(header, cells, ceiling);
        let json = report.json();
        let write = || -> anyhow::Result<()> {
            let held = FolderHandle::open(folder)?;
            let texts = [report.csv(), report::pretty(&json)?, report.figure(self.plot).svg()];
            for (name, text) in OUTPUTS.into_iter().zip(texts) {
                held.put(name, text.as_bytes())?;
            }
            Ok(())
        };
        let place = || format!("cannot write the result to {}", folder.display());
        write().with_context(place).map_err(Failure::incomplete)?;
        match self.flags.output_flags.json {
            true => report::out_json(&json)?,
            false => report::out(&format!("{}\nresult in {}\n", report.text(), folder.display()))?,
        }
        Ok(match (report.any_failed(), report.any_invalid()) {
            (true, _) => Exit::Incomplete,
            (false, true) => Exit::CheckFailed,
            (false, false) => Exit::Ok,
        })
    }
}

/// The figures of a run.
fn fill(entry: &mut JournalEntry, CellOutcome { settled, measured }: &CellOutcome<'_>) {
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
