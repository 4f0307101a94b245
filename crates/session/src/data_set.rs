//! Writes the missing files of a data set.

use std::path::Path;

use engine::catalog::{self, OpenCatalog};
use engine::generate::{GenerateError, Generated, Generation};
use engine::host::Host;
use engine::world::{Cause, decided};
use engine::{SharingError, Stop, World, make_shared_folder};
use format::{Arithmetic, Format};
use model::location::Location;
use model::plan::Data;
use model::units::Nanos;
use store::Store;

use crate::ask::{Asked, Generate};
use crate::backend::{check_storage, format_of};
use crate::error::Error;
use crate::folder::check_place;
use crate::listing::{self, listing_threads};
use crate::object_listing::{LISTED_AT_ONCE, state_folder};
use crate::observe::{Activity, ActivityUnit, Observer, observed};
use crate::settle::{Settled, resolve};

/// How to write a data set.
#[derive(Clone, Copy, Debug)]
pub struct DataSetTask {
    /// Whether an existing data set that differs only in its seed is accepted.
    pub keep_seed: bool,
    /// Whether every file is read back and compared.
    pub verify: bool,
    /// Threads of each member.
    pub writers: u64,
    pub overwrite: bool,
}

/// Writers on a host for an object store: each waits for the answer to its requests most of the time.
const OBJECT_WRITERS: u64 = 16;

/// The number of writers of this member if the user gives none. Like DLIO, treats 1 as unset and uses the number of
/// cores, which the members on a host share.
pub fn default_writers(asked: &Asked, host: &Host, world: &dyn World) -> u64 {
    let beside = world.topology().members_on(world.node()).count() as u64;
    let on_host = match asked.data_location() {
        Location::Objects(_) => host.cores.max(OBJECT_WRITERS),
        _ => host.cores,
    };
    match asked.spec.reader.write_threads {
        0 | 1 => on_host.div_ceil(beside.max(1)),
        writers => writers,
    }
}

/// The data set of a workload, as `DataSetTask::run` writes it.
pub fn data_set(asked: &Asked) -> Result<Data, Error> {
    let format = format_of(&asked.spec)?;
    Ok(Data::resolve(&asked.spec, Some(&Arithmetic(&*format)))?)
}

impl DataSetTask {
    /// Writes the data set of a workload, with all members of the world; returns the time that it took, too.
    pub fn run(
        &self,
        asked: &Asked,
        world: &dyn World,
        observer: &dyn Observer,
        stop: &Stop,
    ) -> Result<(Generated, Nanos), Error> {
        let mut asked = asked.clone();
        asked.count_by_manifest()?;
        let format = check(&asked)?;
        let data = Data::resolve(&asked.spec, Some(&Arithmetic(&*format)))?;
        let stop = &asked.patient(stop);
        let writing = DataSetWriter { asked: &asked, data: &data, format: &*format, world, observer, stop };
        writing.run(self, &asked.data_location())
    }
}

/// Checks that a workload has a data set that can be written.
fn check(asked: &Asked) -> Result<Box<dyn Format>, Error> {
    let workflow = &asked.spec.workflow;
    if !workflow.train && !workflow.generate_data {
        return Err(Error::NoDataSetAtAll(asked.name().to_owned()));
    }
    check_storage(&asked.spec)?;
    format_of(&asked.spec)
}

impl<'a> Settled<'a> {
    /// Makes the data set ready: writes the missing files, if requested, or takes the sizes of files that another
    /// program wrote as found. Only then are the lengths of such files, or of compressed ones, known, so the plan is
    /// made again.
    pub fn make_data(
        self,
        world: &dyn World,
        observer: &dyn Observer,
        stop: &Stop,
    ) -> Result<Settled<'a>, Error> {
        let Some((plan, reading)) = self.plan.training.as_ref().zip(self.reading.as_ref()) else {
            return Ok(self);
        };
        if !reading.generates {
            return self.with_sizes_as_found(world, observer, stop);
        }
        let (asked, stop) = (&self.asked, &self.asked.patient(stop));
        let writing =
            DataSetWriter { asked, data: &plan.data, format: &*reading.format, world, observer, stop };
        let writers = default_writers(asked, self.host, world);
        let task = DataSetTask { keep_seed: true, verify: false, writers, overwrite: false };
        writing.run(&task, &reading.place).map_err(|error| keeps_foreign(error, self.asked.ask.generate))?;
        if plan.data.exact {
            return Ok(self);
        }
        let settled = resolve(self.asked, self.selection, (self.host, self.facts), false)?;
        settled.check_host(&settled.plan, world, stop)?;
        settled.check_data(world, stop)?;
        Ok(settled)
    }
}

/// Adds how a run can read files that it would have to replace.
fn keeps_foreign(error: Error, generate: Generate) -> Error {
    let how_to_keep = match generate {
        Generate::Missing => "leave out --generate",
        Generate::AsWorkload | Generate::Never => "add --set workflow.generate_data=false",
    };
    match error {
        Error::Generate(cause @ GenerateError::Unclaimed { .. }) => {
            Error::KeepsForeign { cause: Box::new(cause), how_to_keep }
        }
        other => other,
    }
}

/// A data set that is being written.
struct DataSetWriter<'a> {
    asked: &'a Asked,
    data: &'a Data,
    format: &'a dyn Format,
    world: &'a dyn World,
    observer: &'a dyn Observer,
    stop: &'a Stop,
}

impl DataSetWriter<'_> {
    /// An error if the disk is too small.
    fn run(&self, task: &DataSetTask, place: &Location) -> Result<(Generated, Nanos), Error> {
        let fits = match self.world.member() {
            0 => check_place(place, "data folder")
                .and_then(|()| self.asked.check_named_store())
                .and_then(|()| check_space(place, self.data)),
            _ => Ok(()),
        };
        self.agreed(fits)?;
        if let Location::Path(folder) = place {
            self.make_folder(folder)?;
        }
        let store = self.agreed(self.asked.open_data())?;
        let done = self.write(task, &*store, place)?;
        self.list_if_needed(&*store, place, done.0.files_written > 0)?;
        Ok(done)
    }

    fn make_folder(&self, folder: &Path) -> Result<(), Error> {
        make_shared_folder(folder, self.world, self.stop).map_err(|error| match error {
            SharingError::Store(cause) => {
                Error::MakeFolder { what: "data folder", path: folder.to_owned(), cause }
            }
            error => Error::Generate(error.into()),
        })
    }

    /// Lists files whose lengths are known only now, unless their catalog is up to date.
    fn list_if_needed(&self, store: &dyn Store, place: &Location, has_written: bool) -> Result<(), Error> {
        let is_listed = || Ok::<_, GenerateError>(self.is_listed(store, place));
        if !self.data.exact && (has_written || !decided(self.world, self.stop, is_listed)?) {
            self.list(store, place)?;
        }
        Ok(())
    }

    /// Whether there is a catalog that is up to date. That of an object store must have all files; it has the version
    /// of each object, so a run notices one that is replaced later.
    fn is_listed(&self, store: &dyn Store, place: &Location) -> bool {
        match place {
            Location::Path(folder) => {
                let opened = catalog::find(folder).and_then(|path| OpenCatalog::open(&path, folder).ok());
                opened.is_some_and(|opened| listing::check_unchanged(&opened).is_ok())
            }
            Location::Objects(_) | Location::Url { .. } => {
                let opened = catalog::open_object_catalog(store, &std::env::temp_dir());
                matches!(opened, Ok(Some(opened)) if opened.files() == self.data.files())
            }
        }
    }

    /// Waits until all members have done something. If one of them failed, it returns its own error.
    fn agreed<T>(&self, here: Result<T, Error>) -> Result<T, Error> {
        let ready = here.as_ref().map(|_| ()).map_err(|error| Cause::Failed(error.to_string()));
        let agreed = self.world.agree(ready, self.stop);
        let value = here?;
        agreed.map(|()| value).map_err(|ended| GenerateError::from(ended).into())
    }

    /// The lengths of compressed files are known only after writing: a catalog stores them for readers.
    fn list(&self, store: &dyn Store, place: &Location) -> Result<(), Error> {
        let suffixes = vec![format!(".{}", self.format.suffix()).into_bytes()];
        let options = catalog::ListOptions { suffixes, fresh: true, ..catalog::ListOptions::default() };
        let goal = |unit| Activity { what: "listing", unit, total: 0 };
        let outcome = match place {
            Location::Path(folder) => {
                let options = catalog::ListOptions { threads: listing_threads(), ..options };
                observed(self.observer, self.world, goal(ActivityUnit::Files), |events| {
                    catalog::scan(folder, &options, self.world, self.stop, events)
                })
            }
            Location::Objects(_) | Location::Url { .. } => {
                let state_folder = state_folder().or_else(|| Some(std::env::temp_dir()));
                let options = catalog::ListOptions { threads: LISTED_AT_ONCE, state_folder, ..options };
                observed(self.observer, self.world, goal(ActivityUnit::Keys), |events| {
                    catalog::scan_objects(store, &options, self.world, self.stop, events)
                })
            }
        };
        outcome.0.map(drop).map_err(Error::Listing)
    }

    fn write(
        &self,
        task: &DataSetTask,
        store: &dyn Store,
        place: &Location,
    ) -> Result<(Generated, Nanos), Error> {
        let DataSetTask { keep_seed, verify, writers, overwrite } = *task;
        let (what, passes) = if verify { ("generating and verifying", 2) } else { ("generating", 1) };
        let goal =
            Activity { what, unit: ActivityUnit::Files, total: self.data.files().saturating_mul(passes) };
        let data = self.data.computed().ok_or(Error::FilesExist)?;
        let (outcome, span) = observed(self.observer, self.world, goal, |events| {
            engine::generate::generate(&Generation {
                spec: &self.asked.spec,
                data,
                format: self.format,
                store,
                place,
                world: self.world,
                keep_seed,
                writers,
                overwrite,
                verify,
                stop: self.stop,
                events,
            })
        });
        Ok((outcome?, span))
    }
}

/// Checks that the data set fits on the disk. Files are written in order: if the first one exists, an earlier attempt
/// is continued, and finding out how much is left would take a request per file.
fn check_space(place: &Location, data: &Data) -> Result<(), Error> {
    let Location::Path(folder) = place else { return Ok(()) };
    let begun = folder.join(data.train.names.of(0)).exists();
    match store::free_bytes(folder) {
        Ok(free) if free < data.bytes() && !begun => {
            Err(Error::DiskTooSmall { needed: data.bytes(), free, folder: folder.to_owned() })
        }
        _ => Ok(()),
    }
}
