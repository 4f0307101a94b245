//! `feedline generate`: writes the files of a data set that are missing.

use std::path::Path;

use anyhow::anyhow;
use engine::generate::{GenerateError, Generated, Generation};
use engine::host::Host;
use engine::{Pulse, Stop};
use format::{Arithmetic, Format};
use model::plan::Data;
use model::spec::Spec;
use model::units::{Bytes, Nanos, grouped};
use serde_json::json;
use store::{Backend, Store, StoreError};

use super::{
    Prepared, check_folder, check_storage, data_folder, make_folder, open_store, prepare, readable_format,
};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::GenerateFlags;
use crate::progress::{Goal, Show, watch};
use crate::report;

pub fn generate(flags: &GenerateFlags) -> Ending {
    let prepared = prepare(&flags.workload)?;
    let format = check(&prepared)?;
    if !flags.output.quiet {
        report::warnings(&prepared.warnings);
    }
    let data = Data::resolve(&prepared.spec, Some(&Arithmetic(format)))
        .map_err(|error| Failure::usage(anyhow!("{error}")))?;
    let folder = data_folder(&prepared.spec, flags.data_dir.as_deref());
    let stop = super::run::stop_on_signals()?;
    let job = Job {
        data: &data,
        format,
        folder: &folder,
        seed: prepared.spec.train.seed,
        writers: flags.writers.unwrap_or_else(|| default_writers(&prepared.spec)),
        overwrite: flags.overwrite,
        show: Show::choose(flags.output.quiet),
    };
    let (done, span) = job.run(&stop)?;
    say(flags, &prepared, &folder, done, span)?;
    Ok(Exit::Ok)
}

fn check(prepared: &Prepared) -> Result<&'static dyn Format, Failure> {
    let workflow = &prepared.spec.workflow;
    if !workflow.train && !workflow.generate_data {
        return Err(Failure::usage(anyhow!(
            "{} has no data set: its workflow neither trains nor generates",
            prepared.name
        )));
    }
    check_storage(&prepared.spec)?;
    readable_format(&prepared.spec)
}

/// Writers when the user names none. DLIO counts 1 as unset and takes the cores; so do we.
pub fn default_writers(spec: &Spec) -> u64 {
    match spec.reader.write_threads {
        0 | 1 => Host::look().cores,
        writers => writers,
    }
}

/// A data set to be written.
pub struct Job<'a> {
    pub data: &'a Data,
    pub format: &'static dyn Format,
    pub folder: &'a Path,
    pub seed: u64,
    pub writers: u64,
    pub overwrite: bool,
    pub show: Show,
}

impl Job<'_> {
    /// Writes it, with progress. Refuses when the disk is too small for it.
    pub fn run(&self, stop: &Stop) -> Result<(Generated, Nanos), Failure> {
        check_folder(self.folder, "data folder")?;
        check_space(self.folder, self.data)?;
        make_folder(self.folder, "data folder")?;
        let backend = Backend::named("posix").ok_or_else(|| Failure::internal(anyhow!("no posix store")))?;
        let store = open_store(backend, self.folder)?;
        self.write(&*store, stop)
    }

    fn write(&self, store: &dyn Store, stop: &Stop) -> Result<(Generated, Nanos), Failure> {
        let pulse = Pulse::default();
        let task = Generation {
            data: self.data,
            format: self.format,
            store,
            seed: self.seed,
            writers: self.writers,
            overwrite: self.overwrite,
            stop,
            pulse: &pulse,
        };
        let goal = Goal { what: "generating", unit: "files", samples: self.data.files(), au: false };
        let (outcome, span) = watch(self.show, &pulse, &goal, || engine::generate::generate(&task));
        outcome.map(|done| (done, span)).map_err(|error| match error {
            GenerateError::Format(_) | GenerateError::Panicked(_) => Failure::internal(error),
            GenerateError::Store(StoreError::Busy { .. }) => Failure::refused(error),
            error => Failure::incomplete(error),
        })
    }
}

/// Refuses a data set that does not fit. Files are written in order, so where the first one is there, an earlier
/// attempt is gone on with, and how much of it is left would have to be asked file by file.
fn check_space(folder: &Path, data: &Data) -> Result<(), Failure> {
    let begun = folder.join(data.train.names.of(0)).exists();
    match store::free_bytes(folder) {
        Ok(free) if free < data.bytes() && !begun => Err(Failure::refused(anyhow!(
            "the data set needs {}, but only {} are free at {}",
            Bytes(data.bytes()),
            Bytes(free),
            folder.display()
        ))),
        _ => Ok(()),
    }
}

fn say(
    flags: &GenerateFlags,
    prepared: &Prepared,
    folder: &Path,
    done: Generated,
    span: Nanos,
) -> Result<(), Failure> {
    let seconds = span.seconds();
    if flags.output.json {
        return report::out_json(&json!({
            "workload": prepared.name,
            "data_folder": folder,
            "files_written": done.files_written,
            "files_kept": done.files_kept,
            "bytes_written": done.bytes_written,
            "seconds": seconds,
        }));
    }
    let rate = model::units::mib_per_second(done.bytes_written, span).unwrap_or(0.0);
    let kept = if done.files_kept > 0 {
        format!(", {} were there", grouped(done.files_kept))
    } else {
        String::new()
    };
    report::out(&format!(
        "{}: {} files written{kept}, {} in {span}, {rate:.0} MiB/s, in {}\n",
        prepared.name,
        grouped(done.files_written),
        Bytes(done.bytes_written),
        folder.display()
    ))
}
