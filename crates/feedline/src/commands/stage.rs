//! A workload made ready: settled for a store, ranks and a data folder, looked over, given its data set, trained on.
//! What `run` does once other commands do often. Nothing here prints a report or writes a result.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use engine::catalog::Opened;
use engine::checkpoint;
use engine::generate::read_manifest;
use engine::host::{self, Host, HostCounts};
use engine::meter::{self, Monotonic};
use engine::{Events, Files, Refused, Rig, Solo, Stop, Truth};
use format::{Arithmetic, Content, Format};
use model::checkpoint::Scale;
use model::ledger::{Calibration, Conditions, HostSeen, Ledger};
use model::manifest::{Difference, Manifest};
use model::plan::{Data, Listed, Plan, StorePlan, TrainingPlan};
use model::spec::Verify;
use model::units::{Bytes, Nanos};
use model::verdict::{self, Case, Verdict};
use store::page_cache::PageCache;
use store::{Selection, Store, StoreError};

use super::generate::{Job, default_writers};
use super::listing::{self, Slice};
use super::tiers::Tiers;
use super::{
    Prepared, Site, build_format, check_folder, check_storage, data_folder, open_folder, open_store,
    patience, quoted, resolve, select,
};
use crate::exit::Failure;
use crate::flags::PlaceFlags;
use crate::progress::{Goal, Show, Unit, watch};
use crate::report::result::Times;

/// Where a workload is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Venue<'a> {
    pub place: &'a PlaceFlags,
    /// In place of the flag's store.
    pub store: Option<&'a str>,
    pub ranks: Option<u64>,
    /// Whether the data set was found or made before: then it is not made again.
    pub data_is_there: bool,
    /// The share of the model that checkpoints are taken of; `None`: none are taken, whatever the workload says.
    pub checkpoints: Option<Scale>,
    pub host: &'a Host,
}

/// Everything that is settled before a run begins.
pub struct Stage<'a> {
    venue: Venue<'a>,
    pub prepared: Prepared,
    pub plan: Plan,
    /// The store with all that was said about it.
    pub selection: Selection,
    /// The data folder.
    pub folder: PathBuf,
    format: Box<dyn Format>,
    /// The files' names and sizes, where they are not computed.
    catalog: Option<(Opened, Listed)>,
    /// Where checkpoints go, if any are taken.
    tiers: Option<Tiers>,
    /// Whether missing files are to be written: by the flag, or by the workload itself.
    generates: bool,
}

impl<'a> Stage<'a> {
    /// Settles a workload for a venue. Wrong usage is found here; the data set is not looked at.
    pub fn settle(prepared: Prepared, venue: Venue<'a>) -> Result<Stage<'a>, Failure> {
        check_storage(&prepared.spec)?;
        let selection = select(&prepared.spec, venue.store.or(venue.place.store.as_deref()))?;
        let format = build_format(&prepared.spec)?;
        let folder = data_folder(&prepared.spec, venue.place.data_dir.as_deref())?;
        let generates = venue.place.generate || prepared.spec.workflow.generate_data;
        let generates = generates && !venue.data_is_there && selection.plan().holds_files;
        Stage::resolve(venue, prepared, selection, format, folder, generates)
    }

    fn resolve(
        venue: Venue<'a>,
        mut prepared: Prepared,
        selection: Selection,
        format: Box<dyn Format>,
        folder: PathBuf,
        generates: bool,
    ) -> Result<Stage<'a>, Failure> {
        let catalog = catalog(&prepared, &folder, generates, &selection)?;
        let listed = catalog.as_ref().map(|opened| listing::splits(&prepared, opened)).transpose()?;
        let site = Site {
            ranks: venue.ranks,
            hosts: 1,
            host_memory_bytes: venue.host.memory_bytes,
            host: venue.host,
            store: &selection,
            memory: venue.place.memory,
            format: Some(&*format),
            listed: listed.as_ref(),
        };
        let saving = venue.checkpoints.filter(|_| prepared.spec.workflow.checkpoint);
        let tiers = saving.map(|_| Tiers::choose(&prepared.spec, &selection)).transpose()?;
        let saving = tiers.as_ref().zip(saving);
        let plan = resolve(&prepared, &site, saving)?;
        plan.trained().map_err(Failure::usage)?;
        if prepared.spec.workflow.checkpoint && tiers.is_none() {
            prepared.warn_of("workflow.checkpoint", "this command takes no checkpoints");
        }
        prepared.warn_of_idle_keys(&plan);
        if let Some(opened) = catalog.as_ref().filter(|_| selection.plan().holds_files) {
            listing::check_unchanged(opened, 2 * venue.host.cores)?;
        }
        let catalog = catalog.zip(listed);
        Ok(Stage { venue, prepared, plan, selection, folder, format, catalog, tiers, generates })
    }

    /// The plan of training: stages are for workloads that train.
    pub fn training(&self) -> Result<&TrainingPlan, Failure> {
        self.plan.trained().map_err(Failure::usage)
    }

    /// Refuses what cannot go well on this host.
    pub fn check_host(&self) -> Result<(), Failure> {
        check_folder(&self.folder, "data folder")?;
        let training = self.training()?;
        if training.store.holds_files {
            // Every reader may have a file open.
            let readers = self.plan.ranks * training.loader.readers_per_rank;
            store::want_files(readers).map_err(Failure::refused)?;
            self.check_store()?;
        }
        if let Some((tiers, plan)) = self.tiers.as_ref().zip(self.plan.checkpoint.as_ref()) {
            tiers.check(plan, self.plan.saves())?;
        }
        engine::check_cache(training).map_err(Failure::refused)?;
        check_memory(training)
    }

    /// Refuses a road that is closed where the data lies or will lie, before a data set is made for it. What else may
    /// be wrong with the folder is said where it is needed.
    fn check_store(&self) -> Result<(), Failure> {
        match self.selection.open(&store::existing_ancestor(&self.folder)) {
            Err(error @ (StoreError::Refused(_) | StoreError::NoDirect { .. })) => {
                Err(Failure::refused(error))
            }
            _ => Ok(()),
        }
    }

    /// Sees that the data set is there, as far as a few files tell. One that is to be generated need not be.
    pub fn check_data(&self) -> Result<(), Failure> {
        if !self.holds_files() || self.generates {
            return Ok(());
        }
        let training = self.training()?;
        let missing = match self.selection.open(&self.folder) {
            Ok(store) => match self.other_data_set(&*store)? {
                None => self
                    .with_files(|files| engine::first_missing(&*store, training, files))?
                    .map_err(Failure::refused)?,
                what => what,
            },
            Err(error) => Some(error.to_string()),
        };
        let Some(what) = missing else { return Ok(()) };
        // Nothing is ever to be generated into a folder that somebody else filled.
        let message = if training.data.listed().is_some() {
            let folder = quoted(&self.folder.display().to_string());
            format!(
                "the data is not as the catalog says: {what}\nlist it again with: feedline catalog {folder}"
            )
        } else {
            let how = self.how_to_make();
            format!("the data set is not there, or was generated with other settings: {what}\n{how}")
        };
        Err(Failure::refused(anyhow!(message)))
    }

    /// What the folder's manifest says against it, if it has one. The seed of the content is free: a run may shuffle by
    /// another one.
    fn other_data_set(&self, store: &dyn Store) -> Result<Option<String>, Failure> {
        let training = self.training()?;
        if !training.data.exact {
            return Ok(Some(
                "the lengths of compressed files are in a catalog, and there is none".to_owned(),
            ));
        }
        let Some(there) = read_manifest(store).map_err(Failure::refused)? else { return Ok(None) };
        let spec = &self.prepared.spec;
        let asked = if training.data.listed().is_some() {
            // A catalog's plan knows nothing of names and folders.
            let data = Data::resolve(spec, Some(&Arithmetic(&*self.format))).map_err(Failure::usage)?;
            Manifest::of(spec, &data, "")
        } else {
            Manifest::of(spec, &training.data, "")
        };
        let counts_files = self.prepared.counts_files() || training.data.listed().is_none();
        let differences: Vec<Difference> = there
            .differences(&asked)
            .into_iter()
            .filter(|difference| !difference.only_content())
            .filter(|difference| training.eval.is_some() || !difference.only_validation())
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

    fn how_to_make(&self) -> String {
        let mut command = format!("feedline generate {}", quoted(&self.prepared.asked));
        if self.venue.place.data_dir.is_some() {
            command.push_str(&format!(" --data-dir {}", quoted(&self.folder.display().to_string())));
        }
        for change in &self.prepared.overrides {
            command.push_str(&format!(" --set {}", quoted(&change.to_string())));
        }
        format!("make it with: {command}\nor let this run make it: add --generate")
    }

    /// Writes the files that are missing, if that was asked for. How long compressed files are is known once they are
    /// written, so that then the plan is made anew.
    pub fn make_data(self, show: Show, stop: &Stop) -> Result<Stage<'a>, Failure> {
        if !self.generates {
            return Ok(self);
        }
        let spec = &self.prepared.spec;
        let job = Job {
            spec,
            data: &self.training()?.data,
            format: &*self.format,
            folder: &self.folder,
            keep_seed: true,
            verify: false,
            writers: default_writers(spec),
            overwrite: false,
            show,
        };
        job.run(stop)?;
        if self.training()?.data.exact {
            return Ok(self);
        }
        let Stage { venue, prepared, selection, format, folder, .. } = self;
        let stage = Stage::resolve(venue, prepared, selection, format, folder, false)?;
        stage.check_host()?;
        stage.check_data()?;
        Ok(stage)
    }

    /// One epoch with at most so many steps.
    pub fn probe(mut self, steps: u64) -> Result<Stage<'a>, Failure> {
        self.plan = self.plan.probe(steps).map_err(Failure::usage)?;
        Ok(self)
    }

    /// The same without storage: read from the null store.
    pub fn on_null_store(mut self) -> Stage<'a> {
        (self.plan, self.tiers) = (self.plan.on_null_backend(), None);
        self.selection = Selection::null();
        self
    }

    /// Whether the data is in files.
    fn holds_files(&self) -> bool {
        self.plan.store().is_some_and(|store| store.holds_files)
    }

    /// Whether it reads from the null store, which is the instrument's own ceiling.
    pub fn is_ceiling(&self) -> bool {
        self.plan.store().is_some_and(StorePlan::is_null)
    }

    /// The instrument's own ceiling for this plan.
    pub fn calibrate(&self, stop: &Stop) -> Option<Calibration> {
        if self.is_ceiling() {
            return None;
        }
        let training = self.training().ok()?;
        self.with_files(|files| engine::calibrate(training, &*self.format, files, stop)).ok()?
    }

    /// Trains, and judges what was seen.
    pub fn measure(
        &self,
        calibration: Option<Calibration>,
        show: Show,
        stop: &Stop,
    ) -> Result<Measured, Failure> {
        let store = open_store(&self.selection, &self.folder)?;
        let known = self.known_data()?;
        let truth = known
            .as_ref()
            .and_then(|(content, data)| data.computed().map(|data| Truth { content: *content, data }));
        let before = HostCounts::read();
        let (mut ledger, times) =
            self.with_files(|files| self.train(&*store, files, truth, show, stop))??;
        let host = host::seen_since(before);
        ledger.calibration = calibration;
        ledger.conditions += self.conditions(&*store, host);
        let verdict = verdict::judge(&Case { plan: Some(&self.plan), ledger: &ledger });
        Ok(Measured { ledger, verdict, times })
    }

    /// What the rules need to know beside what the engine saw.
    fn conditions(&self, store: &dyn Store, host: HostSeen) -> Conditions {
        let unhonoured = self.prepared.unhonoured.iter().map(|key| (*key).to_owned()).collect();
        let mut conditions = Conditions { unhonoured, ..Conditions::default() };
        for (property, value) in self.selection.requested() {
            conditions.request(property, &value);
        }
        conditions.observe("store", store.name());
        for (property, value) in store.observed() {
            conditions.observe(property, &value);
        }
        if self.holds_files() {
            conditions.observe("data_folder", &self.folder.display().to_string());
        }
        conditions.hosts.insert(self.venue.host.name.clone(), host);
        conditions
    }

    /// What the files should hold, where they are to be compared and a manifest says how they were made.
    fn known_data(&self) -> Result<Option<(Content, Cow<'_, Data>)>, Failure> {
        let training = self.training()?;
        if training.verify == Verify::None || !training.store.holds_files {
            return Ok(None);
        }
        let manifest = read_manifest(&open_folder(&self.folder)?).map_err(Failure::refused)?;
        let Some(there) = manifest.filter(|manifest| manifest.complete) else { return Ok(None) };
        let (Some(seed), Some(share), Some((train, valid))) =
            (there.seed(), there.compressible(), there.counts())
        else {
            return Ok(None);
        };
        let content = Content::new(seed).compressible(share);
        if training.data.listed().is_none() {
            return Ok(Some((content, Cow::Borrowed(&training.data))));
        }
        // A catalog's plan knows nothing of names, shapes and numbers.
        let mut spec = self.prepared.spec.clone();
        let set = &mut spec.dataset;
        (set.num_files_train, set.num_files_generated, set.num_files_eval) = (train, None, valid);
        let data = Data::resolve(&spec, Some(&Arithmetic(&*self.format))).map_err(Failure::usage)?;
        Ok(Some((content, Cow::Owned(data))))
    }

    fn train(
        &self,
        store: &dyn Store,
        files: Files<'_>,
        truth: Option<Truth<'_>>,
        show: Show,
        stop: &Stop,
    ) -> Result<(Ledger, Times), Failure> {
        let pages = self.holds_files();
        let pages = pages.then(|| PageCache::below(&self.folder)).transpose().map_err(Failure::refused)?;
        let (clock, events) = (Monotonic::new(), Events::default());
        let (plan, format) = (self.training()?, &*self.format);
        let pages = pages.as_ref();
        let stop = &stop.with_patience(patience(&self.prepared.spec));
        let rig = Rig {
            plan,
            world: &Solo::new(plan.ranks()),
            format,
            store,
            pages,
            files,
            truth,
            checkpoints: None,
            clock: &clock,
            stop,
            events: &events,
        };
        let goal = Goal { what: "training", unit: Unit::Samples, total: plan.samples() };
        let (start, cpu_before) = (meter::timestamp(), meter::cpu_seconds());
        let (trained, span) = watch(show, &events, &goal, || self.train_and_save(&rig));
        let cpu_seconds = meter::cpu_seconds() - cpu_before;
        let ledger = trained?.map_err(|refused| match refused {
            Refused::Stuck(_) => Failure::incomplete(refused),
            refused => Failure::refused(refused),
        })?;
        let settling = Nanos::ZERO;
        Ok((ledger, Times { start, end: meter::timestamp(), span, settling, cpu_seconds }))
    }

    /// Trains, and takes the checkpoints that the plan asks for.
    fn train_and_save(&self, rig: &Rig<'_>) -> Result<Result<Ledger, Refused>, Failure> {
        let (Some(tiers), Some(plan)) = (&self.tiers, &self.plan.checkpoint) else {
            return Ok(engine::train(rig));
        };
        let open = tiers.open(Some((&self.selection.text(), rig.store)))?;
        let setup = checkpoint::Setup {
            plan,
            model: &self.plan.model,
            seed: super::checkpoint::content_seed(rig.plan.seed),
            fast: open.fast.as_deref(),
            last: &*open.last,
            clock: rig.clock,
            stop: rig.stop,
            events: rig.events,
        };
        let work =
            |keeper: &checkpoint::Keeper<'_>| engine::train(&Rig { checkpoints: Some(keeper), ..*rig });
        let (trained, saves) = checkpoint::keep(setup, work).map_err(super::checkpoint::refusal)?;
        Ok(trained.map(|mut ledger| {
            ledger.checkpoints.saves = saves;
            super::checkpoint::observe(&mut ledger, tiers, &open);
            ledger
        }))
    }

    /// Does something with the files that the plan reads.
    pub fn with_files<T>(&self, work: impl FnOnce(Files<'_>) -> T) -> Result<T, Failure> {
        if let Some((opened, listed)) = &self.catalog {
            let [train, valid] =
                [listed.train.first, listed.valid.first].map(|first| Slice { opened, first });
            return Ok(work(Files { train: &train, valid: &valid }));
        }
        let no_catalog =
            || Failure::internal(anyhow!("the plan lists existing files, but no catalog is open"));
        let data = self.training()?.data.computed().ok_or_else(no_catalog)?;
        let [train, valid] = [&data.train, &data.valid].map(|split| data.files_of(split));
        Ok(work(Files { train: &train, valid: &valid }))
    }
}

/// What came out of a run.
#[derive(Debug)]
pub struct Measured {
    pub ledger: Ledger,
    pub verdict: Verdict,
    pub times: Times,
}

impl Measured {
    /// What ended the run before its time, if something did.
    pub fn fault(&self) -> Option<anyhow::Error> {
        let fault = self.ledger.faults().first()?;
        let place = format!("the run stopped in epoch {} ({})", fault.epoch, fault.phase);
        Some(anyhow!("{}", fault.message).context(place))
    }

    /// The rules of the verdict that are broken.
    pub fn broken(&self) -> Vec<String> {
        self.verdict.broken().map(str::to_owned).collect()
    }
}

/// The catalog that the run takes its files from, if any. Files that are to be generated have computed names.
fn catalog(
    prepared: &Prepared,
    folder: &Path,
    generates: bool,
    store: &Selection,
) -> Result<Option<Opened>, Failure> {
    if !generates {
        return listing::open(prepared, folder, store.plan().holds_files);
    }
    let dataset = &prepared.spec.dataset;
    match dataset.catalog.as_deref() {
        Some(catalog) if dataset.compression != "none" => Err(Failure::usage(anyhow!(
            "dataset.catalog is {catalog}, but compressed data that is to be generated is read through a catalog \
             of its own; take dataset.catalog away"
        ))),
        None | Some(listing::OFF) => Ok(None),
        Some(path) => Err(Failure::usage(anyhow!(
            "dataset.catalog names {path}, but the data set is to be generated; take one of the two away"
        ))),
    }
}

/// Refuses a plan that would not fit into the memory that is free now.
fn check_memory(plan: &TrainingPlan) -> Result<(), Failure> {
    let needed = plan.estimate.memory_bytes;
    let phases = std::iter::once(&plan.train).chain(plan.eval.as_ref().map(|eval| &eval.phase));
    let warm = phases.filter_map(|phase| plan.warm_bytes(phase)).max().unwrap_or(0).saturating_add(needed);
    if let Some(room) = Host::own_room().filter(|room| room.bytes < needed) {
        let largest = plan.estimate.largest_memory().map_or(String::new(), |term| {
            format!("; the largest part is {} for {}: lower {}", Bytes(term.bytes), term.what, term.lower)
        });
        return Err(Failure::refused(anyhow!("the run needs {}, but only {room}{largest}", Bytes(needed))));
    }
    match Host::room().filter(|room| room.bytes < warm) {
        Some(room) => Err(Failure::refused(anyhow!(
            "the page cache cannot be made warm: the run and the files that an epoch reads are {}, but only {room}; \
             read fewer files, or leave reader.cache at cold",
            Bytes(warm),
        ))),
        None => Ok(()),
    }
}
