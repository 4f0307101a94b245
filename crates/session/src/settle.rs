//! Settles a workload for a backend, ranks, a data folder and this host. Usage errors are found here; the data set is
//! not accessed.

use std::path::Path;

use engine::catalog::OpenCatalog;
use engine::host::Host;
use engine::{SplitFiles, Stop, World};
use format::{Arithmetic, Format};
use model::location::Location;
use model::plan::{FileSource, Measure, Placement, Plan, Request, TrainingPlan};
use store::Selection;

use crate::ask::{Asked, CountOrigin, Generate};
use crate::backend::{PlacedBackend, format_of, select};
use crate::error::Error;
use crate::existing;
use crate::likeness::{compare_data, compare_requests};
use crate::listing::{self, CatalogSplit};
use crate::members::{SharedFacts, agree};
use crate::object_listing;
use crate::tiers::Tiers;

/// All decisions that are made before a run starts.
#[expect(missing_debug_implementations, reason = "holds a format")]
pub struct Settled<'a> {
    pub asked: Asked,
    pub plan: Plan,
    /// Memory that the plan uses on this host. The plan has that of the host with the most ranks.
    pub(crate) memory_here: u64,
    /// The backend with all its options.
    pub selection: Selection,
    pub host: &'a Host,
    pub(crate) facts: SharedFacts,
    pub(crate) reading: Option<TrainingInput>,
    /// Where checkpoints go, if any are saved.
    pub(crate) tiers: Option<Tiers>,
}

/// What training reads.
pub(crate) struct TrainingInput {
    pub(crate) format: Box<dyn Format>,
    /// The location of the data set.
    pub(crate) place: Location,
    /// The names and sizes of existing files.
    pub(crate) source: Option<FileSource>,
    /// The catalog that they are from, if they are from one.
    pub(crate) catalog: Option<OpenCatalog>,
    /// Whether to write missing files.
    pub(crate) generates: bool,
}

/// Settles a workload on this host, which is one of the world's. All members of the world get the same plan.
pub fn settle<'a>(
    mut asked: Asked,
    host: &'a Host,
    world: &dyn World,
    stop: &Stop,
) -> Result<Settled<'a>, Error> {
    let stop = &asked.patient(stop);
    compare_requests(&asked, world, stop)?;
    let facts = SharedFacts::share(host, world, stop)?;
    asked.distribute(&facts.topology)?;
    asked.ask.process.number = world.member();
    let prepared = agree(Prepared::find(asked), world, stop)?;
    if let Some(reading) = prepared.reading.as_ref().filter(|reading| !reading.generates)
        && prepared.selection.plan().holds_files
    {
        compare_data(&prepared.asked, reading, world, stop)?;
    }
    agree(prepared.settle((host, facts)), world, stop)
}

/// Settles another run of a study, whose members have agreed on what they share. All members make the same plan, each
/// by itself.
pub(crate) fn settle_again(
    mut asked: Asked,
    (host, facts): (&Host, SharedFacts),
) -> Result<Settled<'_>, Error> {
    asked.distribute(&facts.topology)?;
    Prepared::find(asked)?.settle((host, facts))
}

/// A request, and what it reads on this host.
struct Prepared {
    asked: Asked,
    selection: Selection,
    reading: Option<TrainingInput>,
}

impl Prepared {
    fn find(mut asked: Asked) -> Result<Prepared, Error> {
        let PlacedBackend { selection, warnings } = select(&asked.ask, &asked.spec, &asked.data_location())?;
        asked.add_warnings(warnings);
        if selection.plan().holds_files {
            asked.count_by_manifest()?;
        }
        let generates = match asked.ask.generate {
            Generate::AsWorkload => asked.spec.workflow.generate_data,
            Generate::Missing => true,
            Generate::Never => false,
        };
        Prepared::read(asked, selection, generates)
    }

    fn read(asked: Asked, selection: Selection, generates: bool) -> Result<Prepared, Error> {
        let generates = generates && selection.plan().holds_files;
        let reading = asked.spec.workflow.train.then(|| read(&asked, &selection, generates)).transpose()?;
        Ok(Prepared { asked, selection, reading })
    }

    fn settle(self, (host, facts): (&Host, SharedFacts)) -> Result<Settled<'_>, Error> {
        let Prepared { mut asked, selection, reading } = self;
        let scale = asked.ask.checkpoints.filter(|_| asked.spec.workflow.checkpoint);
        let tiers = scale.map(|_| Tiers::choose(&asked.ask, &asked.spec, &selection)).transpose()?;
        asked.add_warnings(tiers.as_ref().map(Tiers::warnings).unwrap_or_default());
        asked.warn_of_idle_scheme(tiers.is_some());
        let saving = tiers.as_ref().zip(scale).map(|(tiers, scale)| tiers.request(asked.ranks(), scale));
        let arithmetic = reading.as_ref().map(|reading| Arithmetic(&*reading.format));
        let store = selection.plan();
        let request = Request {
            workload: asked.name(),
            ranks: asked.ranks(),
            placement: asked.placement(&facts.topology),
            host_memory_bytes: asked.ask.host_memory.map_or(facts.memory_bytes, |memory| memory.0),
            cores: facts.cores,
            store: &store,
            memory: asked.ask.memory.map(|bytes| bytes.0),
            entropy: facts.entropy,
            measure: arithmetic.as_ref().map(|arithmetic| arithmetic as &dyn Measure),
            listed: reading.as_ref().and_then(|reading| reading.source.as_ref()),
        };
        let resolve = |request: &Request<'_>| {
            let plan = Plan::resolve(&asked.spec, request, saving.as_ref())?;
            Ok::<Plan, Error>(match asked.ask.record_steps {
                true => plan.recording_steps(&request.placement),
                false => plan,
            })
        };
        let plan = resolve(&request)?;
        let placement = asked.placement_on(&facts.topology, facts.node);
        let memory_here = match placement == request.placement {
            true => plan.memory_bytes(),
            false => resolve(&Request { placement, ..request })?.memory_bytes(),
        };
        if asked.spec.workflow.checkpoint && tiers.is_none() {
            asked.warn_of("workflow.checkpoint", "this command saves no checkpoints");
        }
        asked.warn_of_idle_keys(&plan);
        Ok(Settled { asked, plan, memory_here, selection, host, facts, reading, tiers })
    }
}

/// Makes the plan of a request again, which has changed since it was settled.
pub(crate) fn resolve(
    asked: Asked,
    selection: Selection,
    at: (&Host, SharedFacts),
    generates: bool,
) -> Result<Settled<'_>, Error> {
    Prepared::read(asked, selection, generates)?.settle(at)
}

fn read(asked: &Asked, selection: &Selection, generates: bool) -> Result<TrainingInput, Error> {
    let (format, place) = (format_of(&asked.spec)?, asked.data_location());
    let catalog = catalog(asked, &place, generates, selection)?;
    let source = match &catalog {
        Some(opened) => Some(FileSource::Listed(listing::splits(asked, opened)?)),
        None if generates || !selection.plan().holds_files => None,
        None => existing::files(asked, &*format)?.map(FileSource::Found),
    };
    Ok(TrainingInput { format, place, source, catalog, generates })
}

/// The catalog of the files that the run reads, if any. Generated files have computed names.
fn catalog(
    asked: &Asked,
    place: &Location,
    generates: bool,
    store: &Selection,
) -> Result<Option<OpenCatalog>, Error> {
    if !generates {
        if let Ok(Some(objects)) = place.objects()
            && store.backend.name == objects.service.name()
        {
            return object_listing::open(asked, objects, store);
        }
        // A plan needs no data, so it may be made for a location that this version cannot use yet.
        let folder = place.path().ok();
        let beside = folder.is_some() && store.plan().holds_files;
        return listing::open(asked, folder.unwrap_or(Path::new(".")), beside);
    }
    let dataset = &asked.spec.dataset;
    match dataset.catalog.as_deref() {
        Some(catalog) if dataset.compression != "none" => Err(Error::CatalogOfCompressed(catalog.to_owned())),
        None | Some(listing::OFF) => Ok(None),
        Some(path) => Err(Error::CatalogOfGenerated(path.to_owned())),
    }
}

impl Settled<'_> {
    /// Where the number of training files comes from.
    pub fn count_origin(&self) -> CountOrigin {
        let is_listed = self.reading.as_ref().is_some_and(|reading| reading.catalog.is_some());
        match self.asked.counts_files() {
            true => CountOrigin::Workload,
            false if is_listed => CountOrigin::Catalog,
            false if self.asked.by_manifest => CountOrigin::Manifest,
            false if self.asked.states("dataset.num_files_train") => CountOrigin::Workload,
            false => CountOrigin::Default,
        }
    }

    /// How the ranks are spread over hosts and processes.
    pub fn placement(&self) -> Placement {
        self.asked.placement(&self.facts.topology)
    }

    /// The location that keeps checkpoints, if any are saved.
    pub fn checkpoint_location(&self) -> Option<&Location> {
        self.tiers.as_ref().map(|tiers| &tiers.last.place)
    }

    /// What training by the settled plan, or by a variant of it, needs.
    pub(crate) fn trainer<'s>(&'s self, plan: &'s Plan) -> Option<TrainingRun<'s>> {
        let (training, reading) = plan.training.as_ref().zip(self.reading.as_ref())?;
        let selection = if training.store.is_null() { Selection::null() } else { self.selection.clone() };
        Some(TrainingRun { settled: self, plan: training, reading, selection })
    }
}

/// A settled run with a plan to train by.
pub(crate) struct TrainingRun<'s> {
    pub(crate) settled: &'s Settled<'s>,
    pub(crate) plan: &'s TrainingPlan,
    pub(crate) reading: &'s TrainingInput,
    /// The backend of the plan; that of a variant may differ from the settled one.
    pub(crate) selection: Selection,
}

impl TrainingRun<'_> {
    pub(crate) fn holds_files(&self) -> bool {
        self.selection.plan().holds_files
    }

    /// Calls `work` with the files that the plan reads.
    pub(crate) fn with_files<T>(&self, work: impl FnOnce(SplitFiles<'_>) -> T) -> Result<T, Error> {
        if let Some([train, valid]) = self.plan.data.found() {
            return Ok(work(SplitFiles { train: &train, valid: &valid }));
        }
        if let Some((opened, listed)) = self.reading.catalog.as_ref().zip(self.plan.data.listed()) {
            let [train, valid] =
                [listed.train.first, listed.valid.first].map(|first| CatalogSplit { opened, first });
            return Ok(work(SplitFiles { train: &train, valid: &valid }));
        }
        let data = self.plan.data.computed().ok_or(Error::NoCatalog)?;
        let [train, valid] = [&data.train, &data.valid].map(|split| data.files_of(split));
        Ok(work(SplitFiles { train: &train, valid: &valid }))
    }
}
