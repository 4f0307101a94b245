//! `feedline run`: train on a data set with emulated accelerators, write the result, say what it is worth. Everything
//! that can be refused is refused before the first byte is read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use engine::catalog::Opened;
use engine::generate::read_manifest;
use engine::host::{self, Host};
use engine::meter::{self, Clock, Monotonic};
use engine::{Files, Pulse, Rig, Stop};
use format::{Arithmetic, Format};
use model::ledger::{Ledger, Phase};
use model::manifest::{Difference, Manifest};
use model::plan::{Data, Plan};
use model::units::{Bytes, Nanos};
use model::verdict::{self, Case, Status};
use model::warning::Warning;
use store::{Backend, Store};

use super::generate::{Job, default_writers};
use super::listing::{self, Slice};
use super::{
    Prepared, Site, backend, build_format, check_folder, check_storage, data_folder, open_store, prepare,
    resolve,
};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::RunFlags;
use crate::progress::{Goal, Show, watch};
use crate::report::result::{Outcome, Times};
use crate::report::{self, folder, text};

pub fn run(flags: &RunFlags) -> Ending {
    let begun = Monotonic::new();
    let prepared = prepare(&flags.workload)?;
    check_storage(&prepared.spec)?;
    let host = Host::look();
    let backend = backend(&flags.store)?;
    let format = build_format(&prepared.spec)?;
    let folder = data_folder(&prepared.spec, flags.data_dir.as_deref());
    let site = |listed| Site {
        ranks: flags.ranks,
        hosts: 1,
        host_memory_bytes: host.memory_bytes,
        host: &host,
        backend,
        format: &*format,
        listed,
    };
    let mut generates = flags.generate || prepared.spec.workflow.generate_data;
    if generates && backend.capabilities.holds_files && prepared.spec.dataset.compression != "none" {
        // How long compressed files are is known once they are written, so they come before the plan; what can be
        // refused is refused before.
        resolve(&prepared, &site(None))?;
        if let Some(catalog) = &prepared.spec.dataset.catalog {
            return Err(Failure::usage(anyhow!(
                "dataset.catalog is {catalog}, but compressed data that is to be generated is read through a catalog \
                 of its own; take dataset.catalog away"
            )));
        }
        check_folder(&results_folder(flags, &prepared), "results folder")?;
        generate_compressed(flags, &prepared, &*format, &folder)?;
        generates = false;
    }
    let catalog = catalog(&prepared, &folder, generates, backend)?;
    let listed = catalog.as_ref().map(|opened| listing::splits(&prepared, opened)).transpose()?;
    let plan = resolve(&prepared, &site(listed.as_ref()))?;
    if let Some(opened) = catalog.as_ref().filter(|_| backend.capabilities.holds_files) {
        listing::check_unchanged(opened, 2 * host.cores)?;
    }
    let computed = [&plan.data.train, &plan.data.valid].map(|split| plan.data.computed(split));
    let slices = catalog.as_ref().zip(listed.as_ref()).map(|(opened, listed)| {
        [listed.train.first, listed.valid.first].map(|first| Slice { opened, first })
    });
    let files = match &slices {
        Some([train, valid]) => Files { train, valid },
        None => Files { train: &computed[0], valid: &computed[1] },
    };
    let settling = begun.now();
    let (prepared, host, plan, format) = (&prepared, &host, &plan, &*format);
    Stage { flags, prepared, host, plan, format, backend, files, folder, generates, settling }.run()
}

fn results_folder(flags: &RunFlags, prepared: &Prepared) -> PathBuf {
    let configured = prepared.spec.output.folder.as_ref().map(PathBuf::from);
    flags.results_dir.clone().or(configured).unwrap_or_else(|| PathBuf::from("feedline-results"))
}

fn generate_compressed(
    flags: &RunFlags,
    prepared: &Prepared,
    format: &dyn Format,
    folder: &Path,
) -> Result<(), Failure> {
    let spec = &prepared.spec;
    let data = Data::resolve(spec, Some(&Arithmetic(format))).map_err(Failure::usage)?;
    let show = Show::choose(flags.output.quiet);
    let writers = default_writers(spec);
    let job = Job {
        spec,
        data: &data,
        format,
        folder,
        keep_seed: true,
        verify: false,
        writers,
        overwrite: false,
        show,
    };
    job.run(&stop_on_signals()?).map(|_| ())
}

/// The catalog that the run takes its files from, if any. Files that are to be generated have computed names.
fn catalog(
    prepared: &Prepared,
    folder: &Path,
    generates: bool,
    backend: &Backend,
) -> Result<Option<Opened>, Failure> {
    if !generates {
        return listing::open(prepared, folder, backend.capabilities.holds_files);
    }
    match prepared.spec.dataset.catalog.as_deref() {
        None | Some(listing::OFF) => Ok(None),
        Some(path) => Err(Failure::usage(anyhow!(
            "dataset.catalog names {path}, but the data set is to be generated; take one of the two away"
        ))),
    }
}

/// Everything that is settled before the run begins.
struct Stage<'a> {
    flags: &'a RunFlags,
    prepared: &'a Prepared,
    host: &'a Host,
    plan: &'a Plan,
    format: &'a dyn Format,
    backend: &'static Backend,
    files: Files<'a>,
    /// The data folder.
    folder: PathBuf,
    /// Whether missing files are to be written: by the flag, or by the workload itself.
    generates: bool,
    /// How long all that took.
    settling: Nanos,
}

impl Stage<'_> {
    fn run(&self) -> Ending {
        let show = Show::choose(self.flags.output.quiet);
        let results = results_folder(self.flags, self.prepared);
        let data = &self.folder;
        check_folder(&results, "results folder")?;
        check_folder(data, "data folder")?;
        check_memory(self.plan)?;
        if !self.flags.output.quiet {
            report::warnings(&self.prepared.warnings);
        }
        if self.backend.capabilities.holds_files && !self.generates {
            self.check_data(data)?;
        }
        let _fresh = folder::check_writable(&results, &self.plan.workload).map_err(Failure::refused)?;
        let stop = stop_on_signals()?;
        if self.backend.capabilities.holds_files && self.generates {
            self.generate(data, show, &stop)?;
        }
        let store = open_store(self.backend, data)?;
        // The null store is the ceiling itself.
        let calibrates = !self.flags.no_calibration && self.backend.capabilities.holds_files;
        let calibration =
            calibrates.then(|| engine::calibrate(self.plan, self.format, self.files, &stop)).flatten();
        let (mut ledger, times) = self.train(&*store, show, &stop);
        ledger.calibration = calibration;
        self.conclude(&ledger, times, store.name(), &results)
    }

    fn generate(&self, folder: &Path, show: Show, stop: &Stop) -> Result<(), Failure> {
        let job = Job {
            spec: &self.prepared.spec,
            data: &self.plan.data,
            format: self.format,
            folder,
            keep_seed: true,
            verify: false,
            writers: default_writers(&self.prepared.spec),
            overwrite: false,
            show,
        };
        job.run(stop).map(|_| ())
    }

    /// Sees that the data set is there, as far as a few files tell.
    fn check_data(&self, folder: &Path) -> Result<(), Failure> {
        let missing = match self.backend.open(folder) {
            Ok(store) => match self.other_data_set(&*store)? {
                None => engine::first_missing(&*store, self.plan, self.files).map_err(Failure::refused)?,
                what => what,
            },
            Err(error) => Some(error.to_string()),
        };
        let Some(what) = missing else { return Ok(()) };
        // Nothing is ever to be generated into a folder that somebody else filled.
        let message = if self.plan.data.listed.is_some() {
            let folder = quoted(&folder.display().to_string());
            format!(
                "the data is not as the catalog says: {what}\nlist it again with: feedline catalog {folder}"
            )
        } else {
            let how = self.how_to_make(folder);
            format!("the data set is not there, or was generated with other settings: {what}\n{how}")
        };
        Err(Failure::refused(anyhow!(message)))
    }

    /// What the folder's manifest says against it, if it has one. The seed of the content is free: a run may shuffle by
    /// another one.
    fn other_data_set(&self, store: &dyn Store) -> Result<Option<String>, Failure> {
        if !self.plan.data.exact {
            return Ok(Some(
                "the lengths of compressed files are in a catalog, and there is none".to_owned(),
            ));
        }
        let Some(there) = read_manifest(store).map_err(Failure::refused)? else { return Ok(None) };
        let spec = &self.prepared.spec;
        let asked = if self.plan.data.listed.is_some() {
            // A catalog's plan knows nothing of names and folders.
            let data = Data::resolve(spec, Some(&Arithmetic(self.format))).map_err(Failure::usage)?;
            Manifest::of(spec, &data, "")
        } else {
            Manifest::of(spec, &self.plan.data, "")
        };
        let counts_files = self.prepared.counts_files || self.plan.data.listed.is_none();
        let differences: Vec<Difference> = there
            .differences(&asked)
            .into_iter()
            .filter(|difference| !difference.only_content())
            .filter(|difference| self.plan.eval.is_some() || !difference.only_validation())
            .filter(|difference| counts_files || !difference.is_count())
            .collect();
        if let Some(difference) = differences.first() {
            let hint = if differences.iter().all(Difference::is_count) {
                format!("; to read some of them, set dataset.num_files_generated={}", difference.there)
            } else {
                String::new()
            };
            return Err(Failure::refused(anyhow!(
                "the data set in {} was generated with other settings: {difference}{hint}\n\
                 choose another folder with --data-dir, or the settings that it was made with",
                self.folder.display()
            )));
        }
        Ok((!there.complete).then(|| "its generation was interrupted".to_owned()))
    }

    fn how_to_make(&self, folder: &Path) -> String {
        let mut command = format!("feedline generate {}", quoted(&self.flags.workload.workload));
        if self.flags.data_dir.is_some() {
            command.push_str(&format!(" --data-dir {}", quoted(&folder.display().to_string())));
        }
        for setting in &self.flags.workload.set {
            command.push_str(&format!(" --set {}", quoted(setting)));
        }
        format!("make it with: {command}\nor let this run make it: add --generate")
    }

    fn train(&self, store: &dyn Store, show: Show, stop: &Stop) -> (Ledger, Times) {
        let (clock, pulse) = (Monotonic::new(), Pulse::default());
        let (plan, format, files) = (self.plan, self.format, self.files);
        let rig = Rig { plan, format, store, files, clock: &clock, stop, pulse: &pulse };
        let goal = Goal { what: "training", unit: "samples", samples: self.plan.samples(), au: true };
        let (start, cpu_before) = (meter::timestamp(), meter::cpu_seconds());
        let (ledger, span) = watch(show, &pulse, &goal, || engine::train(&rig));
        let cpu_seconds = meter::cpu_seconds() - cpu_before;
        let first_batch = pulse.first_batch().map(|moment| self.settling + moment);
        (ledger, Times { start, end: meter::timestamp(), span, first_batch, cpu_seconds })
    }

    fn conclude(&self, ledger: &Ledger, times: Times, observed_store: &str, results: &Path) -> Ending {
        let unhonoured = unhonoured(self.prepared);
        let verdict = verdict::judge(&Case { plan: self.plan, ledger, unhonoured: &unhonoured });
        let outcome = Outcome {
            plan: self.plan,
            spec: &self.prepared.spec,
            ledger,
            verdict: &verdict,
            host: self.host,
            warnings: &self.prepared.warnings,
            times,
            observed_store,
            peak_rss_bytes: host::peak_rss_bytes(),
        };
        let fault = ledger.faults().first();
        if fault.is_none() || ledger.epochs(Phase::Train).len() > 1 {
            let saved = folder::write(results, &outcome).map_err(Failure::incomplete)?;
            self.show_result(&outcome, &saved)?;
        }
        if let Some(fault) = fault {
            let place = format!("the run stopped in epoch {} ({})", fault.epoch, fault.phase);
            return Err(Failure::incomplete(anyhow!("{}", fault.message).context(place)));
        }
        Ok(match verdict.status {
            Status::Valid | Status::Unverified => Exit::Ok,
            Status::Invalid => Exit::CheckFailed,
            Status::Incomplete => Exit::Incomplete,
        })
    }

    fn show_result(&self, outcome: &Outcome<'_>, saved: &Path) -> Result<(), Failure> {
        if self.flags.output.json {
            return report::out_json(&outcome.summary());
        }
        report::out(&text::render(outcome, saved, self.flags.workload.workload == "demo"))
    }
}

/// A stop that Ctrl-C and a polite kill trigger. A second signal ends the process at once.
pub fn stop_on_signals() -> Result<Stop, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let install = || -> std::io::Result<()> {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let exit = i32::from(Exit::Incomplete.code());
            signal_hook::flag::register_conditional_shutdown(signal, exit, Arc::clone(&flag))?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(())
    };
    install().context("cannot listen for signals").map_err(Failure::internal)?;
    Ok(Stop::on(flag))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Refuses a plan that would not fit into the memory that is free now.
fn check_memory(plan: &Plan) -> Result<(), Failure> {
    let needed = plan.estimate.memory_bytes;
    match Host::available_memory_bytes() {
        Some(available) if available < needed => Err(Failure::refused(anyhow!(
            "the run needs {} of memory, but only {} are available; lower --ranks or reader.read_threads",
            Bytes(needed),
            Bytes(available)
        ))),
        _ => Ok(()),
    }
}

/// Settings that change what the storage is asked for, and that this version cannot honour yet.
const MEASURED_SETTINGS: [&str; 3] = ["reader.odirect", "reader.preprocess_time", "reader.reader_classname"];

/// Those of them that were given.
fn unhonoured(prepared: &Prepared) -> Vec<String> {
    let given = prepared.warnings.iter().flat_map(|warning| match warning {
        Warning::NoEffect { keys, .. } => keys.as_slice(),
        _ => &[],
    });
    let spelled = given.map(|at| at.key.replace("data_reader.", "reader."));
    spelled.filter(|key| MEASURED_SETTINGS.contains(&key.as_str())).collect()
}
