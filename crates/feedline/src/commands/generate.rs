//! `feedline generate`: writes the files of a data set that are missing.

use std::path::Path;

use anyhow::anyhow;
use engine::catalog;
use engine::generate::{GenerateError, Generated, Generation};
use engine::host::Host;
use engine::{Events, Stop};
use format::{Arithmetic, Format};
use model::plan::Data;
use model::spec::Spec;
use model::units::{Bytes, Nanos, grouped};
use serde_json::json;
use store::{Store, StoreError};

use super::{
    Prepared, build_format, check_folder, check_storage, data_folder, make_folder, open_folder, patience,
    prepare,
};
use crate::exit::{Ending, Exit, Failure};
use crate::flags::GenerateFlags;
use crate::progress::{Goal, Show, Unit, watch};
use crate::report;

pub fn generate(flags: &GenerateFlags) -> Ending {
    let prepared = prepare(&flags.workload.workload, flags.overrides())?;
    let format = check(&prepared)?;
    if !flags.output.quiet {
        report::warnings(&prepared.warnings);
    }
    let data = Data::resolve(&prepared.spec, Some(&Arithmetic(&*format)))
        .map_err(|error| Failure::usage(anyhow!("{error}")))?;
    let folder = data_folder(&prepared.spec, flags.data_dir.as_deref())?;
    let stop = super::stop_on_signals()?;
    let job = Job {
        spec: &prepared.spec,
        data: &data,
        format: &*format,
        folder: &folder,
        keep_seed: false,
        verify: flags.verify,
        writers: flags.writers.unwrap_or_else(|| default_writers(&prepared.spec)),
        overwrite: flags.overwrite,
        show: Show::choose(flags.output.quiet),
    };
    let (done, span) = job.run(&stop)?;
    say(flags, &prepared, &folder, done, span)?;
    Ok(Exit::Ok)
}

fn check(prepared: &Prepared) -> Result<Box<dyn Format>, Failure> {
    let workflow = &prepared.spec.workflow;
    if !workflow.train && !workflow.generate_data {
        return Err(Failure::usage(anyhow!(
            "{} has no data set: its workflow neither trains nor generates",
            prepared.name
        )));
    }
    check_storage(&prepared.spec)?;
    build_format(&prepared.spec)
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
    pub spec: &'a Spec,
    pub data: &'a Data,
    pub format: &'a dyn Format,
    pub folder: &'a Path,
    /// Whether a data set that differs only in its seed will do.
    pub keep_seed: bool,
    pub verify: bool,
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
        let store = open_folder(self.folder)?;
        let (done, span) = self.write(&store, stop)?;
        if !self.data.exact {
            self.list(stop)?;
        }
        Ok((done, span))
    }

    /// Lengths of compressed files are known once they are written: they are kept in a catalog for those who read.
    fn list(&self, stop: &Stop) -> Result<(), Failure> {
        let suffix = format!(".{}", self.format.suffix()).into_bytes();
        let options = catalog::Options { suffixes: vec![suffix], ..catalog::Options::default() };
        let events = Events::default();
        let goal = Goal { what: "listing", unit: Unit::Files, total: 0 };
        let stop = &stop.with_patience(patience(self.spec));
        let (outcome, _) =
            watch(self.show, &events, &goal, || catalog::scan(self.folder, &options, stop, &events));
        outcome.map(|_| ()).map_err(Failure::incomplete)
    }

    fn write(&self, store: &dyn Store, stop: &Stop) -> Result<(Generated, Nanos), Failure> {
        let stop = &stop.with_patience(patience(self.spec));
        let events = Events::default();
        let exists = || Failure::refused(anyhow!("the files are listed in a catalog, so they exist already"));
        let task = Generation {
            spec: self.spec,
            data: self.data.computed().ok_or_else(exists)?,
            format: self.format,
            store,
            keep_seed: self.keep_seed,
            writers: self.writers,
            overwrite: self.overwrite,
            verify: self.verify,
            stop,
            events: &events,
        };
        let (what, passes) = if self.verify { ("generating and verifying", 2) } else { ("generating", 1) };
        let goal = Goal { what, unit: Unit::Files, total: self.data.files().saturating_mul(passes) };
        let (outcome, span) = watch(self.show, &events, &goal, || engine::generate::generate(&task));
        outcome.map(|done| (done, span)).map_err(|error| match error {
            GenerateError::Format(_) | GenerateError::Panicked(_) => Failure::internal(error),
            GenerateError::Store(StoreError::Busy { .. } | StoreError::NotOurs { .. }) => {
                Failure::refused(error)
            }
            GenerateError::OtherDataSet(_) | GenerateError::Unclaimed { .. } => Failure::refused(error),
            GenerateError::Catalogued => Failure::refused(error),
            GenerateError::Manifest { .. } => Failure::refused(error),
            GenerateError::Differs { .. } | GenerateError::Miscounted { .. } => Failure::check_failed(error),
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
            "bytes_verified": done.bytes_verified,
            "seconds": seconds,
        }));
    }
    let rate = model::units::mib_per_second(done.bytes_written, span).unwrap_or(0.0);
    let kept = if done.files_kept > 0 {
        format!(", {} were there", grouped(done.files_kept))
    } else {
        String::new()
    };
    let verified = match done.bytes_verified {
        0 => String::new(),
        bytes => format!("every byte read back and right: {}\n", Bytes(bytes)),
    };
    report::out(&format!(
        "{}: {} files written{kept}, {} in {span}, {rate:.0} MiB/s, in {}\n{verified}",
        prepared.name,
        grouped(done.files_written),
        Bytes(done.bytes_written),
        folder.display()
    ))
}
