//! Existing files that have neither a feedline manifest nor a catalog, such as data sets that DLIO wrote. Their names
//! are computed from the workload, their sizes are taken as found, and their samples are located when they are read.

use engine::generate::read_manifest;
use engine::world::gather_to_all;
use engine::{FileCheck, FindError, Stop, World};
use format::{Arithmetic, Format, FormatKind};
use model::names::{Name, Names};
use model::plan::{Data, FileBytes, FoundFiles, Split};
use model::warning::Warning;
use store::Store;

use crate::ask::Asked;
use crate::error::Error;
use crate::folder::place_argument;
use crate::members::agree;
use crate::observe::{Activity, ActivityUnit, Observer, observed};
use crate::settle::{Settled, TrainingRun, resolve};

/// The files that another program wrote at the location of the data set: those whose sizes were found before or, if the
/// first file of the workload exists and no manifest does, files of nominal size, until their sizes are found.
pub(crate) fn files(asked: &Asked, format: &dyn Format) -> Result<Option<FoundFiles>, Error> {
    if asked.found.is_some() {
        return Ok(asked.found.clone());
    }
    // A plan need not wait again for an object store that did not answer.
    if !asked.looks_at_data()
        || asked.warnings.iter().any(|warning| matches!(warning, Warning::PlaceNotRead { .. }))
    {
        return Ok(None);
    }
    let Ok(store) = asked.open_data() else { return Ok(None) };
    let nominal = FoundFiles::nominal(&asked.spec, &Arithmetic(format))?;
    let exists =
        |name: &str| Name::new(name).is_some_and(|name| matches!(store.files().size(&name), Ok(Some(_))));
    // A manifest that cannot be read is reported when the data set is checked.
    let is_unclaimed = exists(nominal.first_name()) && matches!(read_manifest(&*store), Ok(None));
    Ok(is_unclaimed.then_some(nominal))
}

impl<'a> Settled<'a> {
    /// The same with the sizes that the files have, if another program wrote them. Otherwise nothing changes.
    pub(crate) fn with_sizes_as_found(
        mut self,
        world: &dyn World,
        observer: &dyn Observer,
        stop: &Stop,
    ) -> Result<Settled<'a>, Error> {
        let here = match self.trainer(&self.plan) {
            Some(trainer) => trainer.find_files(world, observer, stop),
            None => Ok(None),
        };
        let (found, outcome) = match here {
            Ok(found) => (found, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let wait = self.asked.patient(stop);
        agree(outcome, world, &wait)?;
        let digest = found.as_ref().map_or("", FoundFiles::digest).as_bytes();
        let digests = gather_to_all(world, digest, &wait)?;
        if let Some((member, _)) = (0..).zip(&digests).find(|(_, other)| **other != digests[0]) {
            let (place, shown) = (self.asked.data_location(), |member: u64| world.topology().shown(member));
            return Err(Error::MembersDiffer { place, here: shown(0), there: shown(member) });
        }
        if found.is_none() {
            return Ok(self);
        }
        self.asked.found = found;
        let settled = resolve(self.asked, self.selection, (self.host, self.facts), false)?;
        settled.check_host(&settled.plan, world, stop)?;
        Ok(settled)
    }
}

impl TrainingRun<'_> {
    /// Whether the run reads files that neither a manifest nor a catalog describes.
    pub(crate) fn is_unclaimed(&self, store: &dyn Store) -> Result<bool, Error> {
        let is_described = self.reading.catalog.is_some() || self.reading.generates || !self.holds_files();
        Ok(!is_described && read_manifest(store).map_err(Error::Manifest)?.is_none())
    }

    /// Checks that some of the files exist, by their names.
    pub(crate) fn check_names(&self, store: &dyn Store) -> Result<(), Error> {
        let missing =
            self.with_files(|files| engine::first_missing(store, self.plan, files, FileCheck::Name))?;
        match missing.map_err(Error::Store)? {
            Some(what) => Err(self.other_files(store, what)?),
            None => Ok(()),
        }
    }

    /// Examines every file that the run reads; `None` if feedline or a catalog describes the files, or if their sizes
    /// were found before. Every member examines all files of a folder: it needs all sizes, and this also shows that all
    /// members see the same files. An object store is listed once, each part by one member.
    fn find_files(
        &self,
        world: &dyn World,
        observer: &dyn Observer,
        stop: &Stop,
    ) -> Result<Option<FoundFiles>, Error> {
        if self.settled.asked.found.is_some() || self.plan.data.found().is_none() {
            return Ok(None);
        }
        let opened = self.selection.open(self.reading.place.clone()).map_err(Error::DataFolder);
        let store = agree(opened, world, stop)?;
        let data = &self.plan.data;
        let valid = self.plan.eval.as_ref().map(|_| &data.valid);
        let total = data.train.files + valid.map_or(0, |split| split.files);
        let total = total.saturating_mul(world.members());
        let goal = Activity { what: "reading file sizes", unit: ActivityUnit::Files, total };
        let (found, _) = observed(observer, world, goal, |events| -> Result<FoundFiles, FindError> {
            let sizes = |split: &Split| -> Result<FileBytes, FindError> {
                let least = self.fewest_bytes(split);
                engine::find_sizes(&*store, &*self.reading.format, split, least, world, stop, events)
            };
            let train = (&data.train, sizes(&data.train)?);
            let valid = valid.map(|split| Ok::<_, FindError>((split, sizes(split)?))).transpose()?;
            Ok(FoundFiles::new(train, valid))
        });
        match found {
            Ok(found) => Ok(Some(found)),
            Err(FindError::Interrupted) => Err(Error::Interrupted),
            Err(FindError::Store(cause)) => Err(Error::Store(cause)),
            Err(FindError::Elsewhere(ended)) => Err(Error::Member(ended)),
            Err(unfit) => Err(self.other_files(&*store, unfit.to_string())?),
        }
    }

    /// The bytes that a file needs for its samples, if only its size shows that it is too short and all samples have
    /// the same size. DLIO's samples are square.
    fn fewest_bytes(&self, split: &Split) -> u64 {
        let set = &self.settled.asked.spec.dataset;
        let is_fixed =
            set.record_length_bytes_stdev == 0.0 && set.size_sigma.is_none() && set.record_dims.is_empty();
        if !(is_fixed && self.reading.format.is_headless()) {
            return 0;
        }
        let side = set.record_length_bytes.sqrt().floor();
        (side * side) as u64 * split.samples_per_file
    }

    /// The error for a folder whose files are not those of the workload. It suggests generating only if there are none.
    fn other_files(&self, store: &dyn Store, what: String) -> Result<Error, Error> {
        let Data { train, valid, .. } = &self.plan.data;
        let (names, key) = match what.contains(&format!("{}/", valid.names.folder)) {
            true => (&valid.names, "dataset.num_files_eval"),
            false => (&train.names, "dataset.num_files_train"),
        };
        let Some(hint) = hint(store, names, key)? else { return Ok(self.no_data_set(what)) };
        let place = self.reading.place.clone();
        let catalog = format!("feedline catalog {}", place_argument(&place));
        let hint = format!("{hint}to read files of any name and number, list them first: {catalog}");
        Ok(Error::NotThisDataSet { place, what, hint })
    }
}

/// What the names of the existing files suggest, if there are files.
fn hint(store: &dyn Store, names: &Names, key: &str) -> Result<Option<String>, Error> {
    let pattern = names.pattern();
    let (prefix, tail) = pattern.ends();
    let mut files = 0;
    for folder in names.folders() {
        let Some(name) = Name::new(&folder) else { continue };
        let Some(found) = store.files().census(&name, prefix, tail).map_err(Error::Store)? else { continue };
        files += found.matching + found.others;
        if let Some(example) = found.example {
            let what = explain(&example, prefix, names, key);
            return Ok(Some(format!("the folder holds {folder}/{example}{what}\n")));
        }
        if found.matching > 0 && names.subfolders > 1 && folder == names.folder {
            return Ok(Some(format!(
                "the files are in {folder}/ itself: set dataset.num_subfolders_train=0\n"
            )));
        }
    }
    Ok((files > 0).then(String::new))
}

/// Which setting an existing file of another name suggests, by DLIO's scheme of names.
fn explain(file: &str, prefix: &str, names: &Names, key: &str) -> String {
    let numbered = file.strip_prefix(prefix).and_then(|rest| rest.split_once("_of_")?.1.split_once('.'));
    let Some((count, suffix)) = numbered else { return String::new() };
    match count.parse::<u64>() {
        Ok(count) if count != names.count => format!(
            ", of a data set of {count} files: set {key}={count}, or dataset.num_files_generated={count} to read \
             fewer of them"
        ),
        Ok(_) if FormatKind::named(suffix).is_some() => format!(": set dataset.format={suffix}"),
        _ => String::new(),
    }
}
