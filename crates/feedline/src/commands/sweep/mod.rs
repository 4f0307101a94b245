//! `feedline sweep`: a grid of settings, each cell run several times, the repeats interleaved so that what drifts on
//! the machine meets all cells alike. Every cell is settled before the first one runs; every run is written down when
//! it is over, and a sweep that was interrupted goes on from there.

pub mod journal;

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use engine::Stop;
use engine::host::Host;
use engine::meter::{self, Monotonic};
use model::checkpoint::CheckpointPlan;
use model::ledger::{Calibration, Phase};
use model::metrics::Figures;
use model::statistics;
use model::study::grid::{Axis, GridError, SweepGrid, SweepRun};
use model::units::Nanos;
use serde_json::json;
use session::{Ask, Asked, Error, Generate, Settled, check_folder, make_folder, quoted, settle};
use sha2::{Digest, Sha256};
use store::{Held, Now, StoreError};

use super::{Measured, ask_at, measure, read, results_folder, stop_on_signals};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::SweepFlags;
use crate::progress::Show;
use crate::report;
use crate::report::folder::safe_name;
use crate::report::sweep::{Runs, SweepReport};
use journal::{Entry, Header, Journal};

pub fn sweep(flags: &SweepFlags) -> Ending {
    let grid = grid(&flags.over)?;
    let host = Host::look();
    let show = Show::choose(flags.output_flags.quiet);
    let mut sweep = Sweep { flags, grid: &grid, host: &host, show, simulated: Vec::new() };
    let Cells { header, folder, largest, simulated } = sweep.settle_all()?;
    sweep.simulated = simulated;
    check_folder(&folder, "results folder")?;
    let stop = stop_on_signals()?;
    let known = Journal::is_in(&folder).then(|| open(&folder, &header)).transpose()?;
    let refused = sweep.look_over(known.as_ref(), &stop)?;
    let mut journal = match known {
        Some(journal) => journal,
        None => {
            make_folder(&folder, "results folder")?;
            check_outputs(&folder).map_err(Failure::refused)?;
            open(&folder, &header)?
        }
    };
    let turns = sweep.missing(&journal, &refused);
    for (cell, failure) in refused {
        let turn = SweepRun { cell, round: 1 };
        journal.add(sweep.entry(turn, Err(failure))).map_err(Failure::incomplete)?;
    }
    let calibrates = !turns.is_empty() && !flags.no_calibration;
    let ceiling = match calibrates {
        true => {
            let settled = sweep.settle(largest, Generate::Never)?;
            session::calibrate(&settled, &settled.plan, &stop)
        }
        false => None,
    };
    sweep.run_all(&turns, &mut journal, &stop)?;
    if stop.wished() {
        return Err(sweep.interrupted(&folder, &journal));
    }
    sweep.conclude(&header, &folder, &journal, ceiling)
}

/// The grid of the `--over` arguments.
fn grid(over: &[String]) -> Result<SweepGrid, Failure> {
    let named = |argument: &str, error: GridError| Failure::usage(anyhow!("--over {argument}: {error}"));
    let axes = over.iter().map(|argument| Axis::parse(argument).map_err(|error| named(argument, error)));
    SweepGrid::new(axes.collect::<Result<_, _>>()?).map_err(|error| match error {
        GridError::RepeatedKey { axis, .. } => named(&over[axis], error),
        error => Failure::usage(error),
    })
}

/// What a finished sweep leaves beside its journal.
const OUTPUTS: [&str; 3] = ["sweep.csv", "sweep.json", "sweep.svg"];

/// Refuses a folder without a journal where files have these names: another program wrote them.
fn check_outputs(folder: &Path) -> Result<(), StoreError> {
    let held = Held::open(folder)?;
    OUTPUTS.iter().try_for_each(|name| held.check_free(name))
}

fn open(folder: &Path, header: &Header) -> Result<Journal, Failure> {
    Journal::open(folder, header).map_err(Failure::refused)
}

/// What is known when every cell has a plan.
struct Cells {
    header: Header,
    /// The cell with the most readers: the one whose ceiling is the nearest.
    largest: usize,
    /// Where the result goes.
    folder: PathBuf,
    /// Of each cell, whether a device is simulated.
    simulated: Vec<bool>,
}

struct Sweep<'a> {
    flags: &'a SweepFlags,
    grid: &'a SweepGrid,
    host: &'a Host,
    show: Show,
    /// Of each cell, whether a device is simulated, once all are settled.
    simulated: Vec<bool>,
}

impl<'a> Sweep<'a> {
    /// A cell, settled when it is needed: thousands of settled cells would hold thousands of catalogs.
    fn settle(&self, cell: usize, generate: Generate) -> Result<Settled<'a>, Failure> {
        let cell = self.grid.cell(cell);
        let overrides = self.flags.overrides(cell.overrides("--over"));
        let settled = || -> Result<Settled<'a>, Failure> {
            let ask = ask_at(&self.flags.workload, overrides, &self.flags.place)?;
            let ranks = cell.ranks().or(self.flags.ranks);
            let store = cell.store().map(str::to_owned).or(ask.store);
            let generate = if generate == Generate::Never { generate } else { ask.generate };
            let settled = settle(read(Ask { ranks, store, generate, ..ask })?, self.host)?;
            settled.plan.trained().map_err(Error::Plan)?;
            Ok(settled)
        };
        settled().map_err(|failure| failure.context(format!("cell {cell}")))
    }

    /// Settles every cell, so that a mistake in the last one is not found after hours, and says which sweep this is.
    fn settle_all(&self) -> Result<Cells, Failure> {
        let (mut warnings, mut simulated, mut largest) = (Vec::new(), Vec::new(), (0, 0));
        for cell in 0..self.grid.cells() {
            let settled = self.settle(cell, Generate::AsWorkload)?;
            let (plan, saves) = (&settled.plan, settled.plan.checkpoint.as_ref());
            simulated.push(plan.is_simulated() || saves.is_some_and(CheckpointPlan::is_simulated));
            let training = plan.trained().map_err(Error::Plan)?;
            let readers = plan.ranks * training.loader.readers_per_rank;
            if !training.store.is_null() && readers > largest.0 {
                largest = (readers, cell);
            }
            for warning in settled.asked.warnings {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
        }
        if !self.flags.output_flags.quiet {
            report::warnings(&warnings);
        }
        let first = self.settle(0, Generate::AsWorkload)?.asked;
        Ok(Cells { header: self.header(&first)?, folder: self.folder(&first), largest: largest.1, simulated })
    }

    fn header(&self, first: &Asked) -> Result<Header, Failure> {
        let hash = Sha256::digest(first.spec.to_yaml().as_bytes());
        let set = self.flags.workload.set.iter().cloned();
        Ok(Header {
            sweep: first.name().to_owned(),
            over: self.grid.axes().to_vec(),
            set: set.chain(self.flags.cache.overrides().map(|change| change.to_string())).collect(),
            store: self.flags.place.store.clone(),
            ranks: self.flags.ranks,
            data_folder: first.data_folder()?,
            seed: self.flags.seed,
            spec_digest: hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    fn folder(&self, asked: &Asked) -> PathBuf {
        if let Some(folder) = &self.flags.output {
            return folder.clone();
        }
        let results = results_folder(self.flags.results_dir.as_deref(), &asked.spec);
        let parent = results.join("sweep").join(safe_name(asked.name()));
        let stamp = meter::folder_stamp();
        let mut folder = parent.join(&stamp);
        let mut attempt = 1;
        while folder.exists() {
            attempt += 1;
            folder = parent.join(format!("{stamp}-{attempt}"));
        }
        folder
    }

    /// Sees that each cell can run, and makes its data set if that was asked for. Returns the cells that cannot; if
    /// none can, there is no sweep.
    fn look_over(&self, known: Option<&Journal>, stop: &Stop) -> Result<Vec<(usize, Failure)>, Failure> {
        let mut refused = Vec::new();
        for cell in 0..self.grid.cells() {
            if known.is_some_and(|journal| self.rounds().all(|round| journal.has(cell, round))) {
                continue;
            }
            let ready = self.settle(cell, Generate::AsWorkload).and_then(|settled| {
                settled.check_host(&settled.plan)?;
                settled.check_data()?;
                settled.make_data(&self.show, stop)?;
                Ok(())
            });
            match ready {
                Ok(()) => {}
                Err(failure) if failure.exit == Exit::Refused => refused.push((cell, failure)),
                Err(failure) => return Err(failure),
            }
        }
        match refused.len() == self.grid.cells() {
            true => Err(refused.swap_remove(0).1),
            false => Ok(refused),
        }
    }

    fn rounds(&self) -> std::ops::RangeInclusive<u64> {
        1..=self.flags.repeat
    }

    /// The runs that the journal does not have, round by round, each round in an order of its own.
    fn missing(&self, journal: &Journal, refused: &[(usize, Failure)]) -> Vec<SweepRun> {
        let turns = self.grid.runs(self.flags.repeat, self.flags.seed);
        let refused = |cell| refused.iter().any(|(other, _)| *other == cell);
        turns.filter(|turn| !journal.has(turn.cell, turn.round) && !refused(turn.cell)).collect()
    }

    /// Does the runs, one after the other, until they are done or a stop is wished.
    fn run_all(&self, turns: &[SweepRun], journal: &mut Journal, stop: &Stop) -> Result<(), Failure> {
        let clock = Monotonic::new();
        for (done, turn) in turns.iter().enumerate() {
            if self.show != Show::Nothing {
                report::note(&self.announcement(*turn, done, turns.len(), clock.now()));
            }
            let outcome = self.settle(turn.cell, Generate::Never).and_then(|settled| {
                let measured = measure(&settled, &settled.plan, false, self.show, stop)?;
                Ok((settled, measured))
            });
            if stop.wished() {
                return Ok(());
            }
            journal.add(self.entry(*turn, outcome)).map_err(Failure::incomplete)?;
        }
        Ok(())
    }

    /// `run 3 of 40  reader.read_threads=2, round 1  3 m 20 s left`
    fn announcement(&self, turn: SweepRun, done: usize, all: usize, now: Nanos) -> String {
        let left = match done {
            0 => String::new(),
            _ => format!("  {} left", Nanos(now.0 / done as u64 * (all - done) as u64)),
        };
        format!("run {} of {all}  {}, round {}{left}", done + 1, self.grid.cell(turn.cell), turn.round)
    }

    /// A run for the journal. One that failed has a reason in place of figures.
    fn entry(&self, turn: SweepRun, outcome: Result<(Settled<'_>, Measured), Failure>) -> Entry {
        let settings = self.grid.cell(turn.cell).settings;
        let mut entry = Entry {
            cell: turn.cell,
            round: turn.round,
            settings: settings.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect(),
            simulated: self.simulated[turn.cell],
            ..Entry::default()
        };
        match outcome {
            Err(failure) => entry.error = Some(format!("{:#}", failure.error)),
            Ok((settled, measured)) => fill(&mut entry, &settled, &measured),
        }
        entry
    }

    fn interrupted(&self, folder: &Path, journal: &Journal) -> Failure {
        let mut command = "feedline".to_owned();
        for word in std::env::args().skip(1) {
            command.push_str(&format!(" {}", quoted(&word)));
        }
        if self.flags.output.is_none() {
            command.push_str(&format!(" --output {}", quoted(&folder.display().to_string())));
        }
        let all = self.grid.cells() as u64 * self.flags.repeat;
        let left = self.missing(journal, &[]).len() as u64;
        Failure::incomplete(anyhow!("interrupted after {} of {all} runs; go on with: {command}", all - left))
    }

    fn conclude(
        &self,
        header: &Header,
        folder: &Path,
        journal: &Journal,
        ceiling: Option<Calibration>,
    ) -> Ending {
        let cells = (0..self.grid.cells()).map(|cell| {
            let runs = self.rounds().filter_map(|round| journal.of(cell, round)).collect();
            let settings = self.grid.cell(cell).settings;
            let settings = settings.iter().map(|(_, value)| (*value).to_owned()).collect();
            Runs { settings, simulated: self.simulated[cell], runs }
        });
        let report = SweepReport::new(header, cells, ceiling);
        let json = report.json();
        let write = || -> anyhow::Result<()> {
            let held = Held::open(folder)?;
            let texts = [report.csv(), report::pretty(&json)?, report.figure().svg()];
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

fn fill(entry: &mut Entry, settled: &Settled<'_>, measured: &Measured) {
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
    entry.mb_per_second = figures.mib_per_second.map(|rate| report::megabytes(rate.mean));
    // Without compute time there is no AU.
    entry.au_percent = settled
        .plan
        .training
        .as_ref()
        .and_then(|plan| plan.estimate.demand)
        .and(figures.au_percent)
        .map(|au| au.mean);
}
