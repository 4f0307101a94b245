//! Whether a settled run can succeed here and now: on this host, with this data set.

use engine::generate::read_manifest;
use engine::host::Host;
use engine::{FileCheck, Stop, World};
use format::Arithmetic;
use model::location::Location;
use model::manifest::{DataSetManifest, ManifestDifference};
use model::plan::{Data, Plan, TrainingPlan};
use store::{Store, StoreError};

use crate::backend::check_storage;
use crate::error::Error;
use crate::folder::{check_place, place_argument};
use crate::likeness::compare_plans;
use crate::listing;
use crate::members::agree;
use crate::settle::{Settled, TrainingRun};

impl Settled<'_> {
    /// Checks that the hosts of all members can execute the settled plan or a variant of it.
    pub fn check_host(&self, plan: &Plan, world: &dyn World, stop: &Stop) -> Result<(), Error> {
        let stop = &self.asked.patient(stop);
        compare_plans(plan, world, stop)?;
        agree(self.check_this_host(plan, world), world, stop)
    }

    fn check_this_host(&self, plan: &Plan, world: &dyn World) -> Result<(), Error> {
        check_storage(&self.asked.spec)?;
        if let Some(trainer) = self.trainer(plan) {
            trainer.check_folder_and_store(world)?;
        }
        if let Some((tiers, checkpoint)) = self.tiers.as_ref().zip(plan.checkpoint.as_ref()) {
            tiers.check(checkpoint, plan.saves(), world)?;
        }
        match &plan.training {
            Some(training) => {
                engine::check_cache(training).map_err(Error::Cache)?;
                let ranks = world.topology().ranks_on(world.node(), training.ranks());
                check_memory(training, self.memory_of(plan), self.host, ranks)
            }
            None => {
                let here = self.asked.placement_on(&self.facts.topology, self.facts.node);
                let needed = plan.memory_bytes().saturating_mul(here.processes_per_host);
                check_memory_to_save(needed, self.host)
            }
        }
    }

    /// Memory that training by the settled plan or a variant of it uses on this host, in all its processes.
    fn memory_of(&self, plan: &Plan) -> u64 {
        self.memory_here.min(plan.memory_bytes())
    }

    /// Checks that every member finds a few files of the data set. A data set that will be generated need not exist. In
    /// an object store all members see the same, so one of them looks for all.
    pub fn check_data(&self, world: &dyn World, stop: &Stop) -> Result<(), Error> {
        let is_seen_by_all = self.selection.plan().is_objects();
        let here = match self.trainer(&self.plan) {
            Some(trainer) if world.member() == 0 || !is_seen_by_all => trainer.check_data(),
            _ => Ok(()),
        };
        agree(here, world, &self.asked.patient(stop))
    }
}

impl TrainingRun<'_> {
    fn check_folder_and_store(&self, world: &dyn World) -> Result<(), Error> {
        check_place(&self.reading.place, "data folder")?;
        if !self.holds_files() {
            return Ok(());
        }
        // Every reader of this process may have a file or a connection open.
        let ranks = world.ranks(self.plan.ranks());
        let readers = (ranks.end - ranks.start) * self.plan.loader.readers_per_rank;
        store::want_files(readers).map_err(Error::Store)?;
        // A backend that is unavailable at the data's location is an error before a data set is generated for it. Other
        // problems with the folder are reported where it is needed.
        let place = match &self.reading.place {
            Location::Path(folder) => Location::Path(store::existing_ancestor(folder)),
            place => place.clone(),
        };
        match self.selection.open(place) {
            Err(error @ (StoreError::Refused(_) | StoreError::NoDirect { .. })) => Err(Error::Store(error)),
            _ => Ok(()),
        }
    }

    /// Checks that the folders of a catalog have not changed since it was made.
    pub(crate) fn check_catalog(&self) -> Result<(), Error> {
        match &self.reading.catalog {
            Some(opened) if self.holds_files() => listing::check_unchanged(opened),
            _ => Ok(()),
        }
    }

    fn check_data(&self) -> Result<(), Error> {
        if !self.holds_files() || self.reading.generates {
            return Ok(());
        }
        self.check_catalog()?;
        let store = match self.selection.open(self.reading.place.clone()) {
            Ok(store) => store,
            Err(error) => return Err(self.unfit(error.to_string())),
        };
        if self.is_unclaimed(&*store)? {
            return self.check_names(&*store);
        }
        let missing = match self.other_data_set(&*store)? {
            None => self
                .with_files(|files| engine::first_missing(&*store, self.plan, files, FileCheck::NameAndSize))?
                .map_err(Error::Store)?,
            what => what,
        };
        match missing {
            Some(what) => Err(self.unfit(what)),
            None => Ok(()),
        }
    }

    /// The error for a data set that is not as planned. Never suggests generating into a folder that another program
    /// filled.
    fn unfit(&self, what: String) -> Error {
        match self.plan.data.listed() {
            None => self.no_data_set(what),
            Some(_) => Error::NotAsListed { what, folder: place_argument(&self.reading.place) },
        }
    }

    pub(crate) fn no_data_set(&self, what: String) -> Error {
        Error::NoDataSet { what, how_to_generate: self.settled.asked.ask.how_to_generate.clone() }
    }

    /// The conflict with the folder's manifest, if there is any. The seed of the content may differ: a run may shuffle
    /// by another seed.
    fn other_data_set(&self, store: &dyn Store) -> Result<Option<String>, Error> {
        let Some(there) = read_manifest(store).map_err(Error::Manifest)? else { return Ok(None) };
        if !self.plan.data.exact {
            return Ok(Some("the catalog with the lengths of the compressed files is missing".to_owned()));
        }
        let spec = &self.settled.asked.spec;
        let asked = if self.plan.data.listed().is_some() {
            // A plan with a catalog has no names and folders.
            let data = Data::resolve(spec, Some(&Arithmetic(&*self.reading.format)))?;
            DataSetManifest::of(spec, &data, "")
        } else {
            DataSetManifest::of(spec, &self.plan.data, "")
        };
        let counts_files = self.settled.asked.counts_files() || self.plan.data.listed().is_none();
        let differences: Vec<ManifestDifference> = there
            .differences(&asked)
            .into_iter()
            .filter(|difference| !difference.only_content())
            .filter(|difference| self.plan.eval.is_some() || !difference.only_validation())
            .filter(|difference| counts_files || !difference.is_count())
            .collect();
        if let Some(difference) = differences.first() {
            let place = self.reading.place.clone();
            if difference.is_layout() {
                return Err(Error::OtherLayout { place, difference: difference.to_string() });
            }
            let hint = match differences.iter().all(ManifestDifference::is_count) {
                true => difference.count_hint(),
                false => String::new(),
            };
            return Err(Error::OtherDataSet { place, difference: difference.to_string(), hint });
        }
        Ok((!there.complete).then(|| "its generation was interrupted".to_owned()))
    }
}

/// Checks that the plan fits into the memory that is free now. `ranks`: those that run on this host.
fn check_memory(plan: &TrainingPlan, needed: u64, host: &Host, ranks: u64) -> Result<(), Error> {
    let phases = std::iter::once(&plan.train).chain(plan.eval.as_ref().map(|eval| &eval.phase));
    let warm = phases.filter_map(|phase| plan.warm_bytes(phase, ranks)).max().unwrap_or(0);
    let warm = warm.saturating_add(needed);
    if let Some(room) = host.own_room().filter(|room| room.bytes < needed) {
        let largest = plan.estimate.largest_memory().cloned();
        return Err(Error::TooLittleMemory { needed, room, largest });
    }
    match host.room().filter(|room| room.bytes < warm) {
        Some(room) => Err(Error::TooLittleMemoryToWarm { needed: warm, room }),
        None => Ok(()),
    }
}

fn check_memory_to_save(needed: u64, host: &Host) -> Result<(), Error> {
    match host.own_room().filter(|room| room.bytes < needed) {
        Some(room) => Err(Error::TooLittleMemoryToSave { needed, room }),
        None => Ok(()),
    }
}
