//! The request of a front end, as types, and its workload after reading.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use engine::generate::read_manifest;
use engine::world::Topology;
use engine::{Stop, World};
use model::checkpoint::{self, Scale};
use model::location::Location;
use model::manifest::DataSetManifest;
use model::plan::{self, FoundFiles, Placement, Plan};
use model::secret;
use model::spec::{
    self, CHECKPOINT_SCHEME, CheckpointScheme, Override, ReadRules, Spec, UnknownKeys, WorkloadSource,
};
use model::units::{Bytes, Nanos};
use model::warning::{KeyOrigin, Warning};
use store::{BACKENDS, Mode, Registry, Store};

use crate::backend::{PlacedBackend, at_first_attempt, for_upkeep, placed};
use crate::error::Error;

/// The text of a workload, and its origin.
#[derive(Clone, Default)]
pub struct WorkloadText {
    /// The name of the run.
    pub name: String,
    /// The origin of the text, for messages.
    pub source: String,
    pub text: String,
    /// The number of ranks that it is designed for.
    pub ranks: u64,
    /// Whether the user cannot change the text, so that warnings about its keys are of no use.
    pub built_in: bool,
}

/// Secrets in the text are left out.
impl fmt::Debug for WorkloadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkloadText { name, source, text, ranks, built_in } = self;
        let mut shown = f.debug_struct("WorkloadText");
        shown.field("name", name).field("source", source).field("text", &secret::redact(text));
        shown.field("ranks", ranks).field("built_in", built_in).finish()
    }
}

/// Whether missing files of the data set are written first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generate {
    /// If the workload says so.
    AsWorkload,
    Missing,
    /// Not again: the data set was already written.
    Never,
}

/// Where the numbers of files come from if the user does not give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCounts {
    /// From the manifest of the data set, if there is one.
    OfManifest,
    /// From the workload, or DLIO's defaults.
    OfWorkload,
}

/// Everything that a front end can request of a run.
#[derive(Clone, Debug)]
pub struct Ask {
    pub workload: WorkloadText,
    /// Changes to the workload; later ones win.
    pub overrides: Vec<Override>,
    pub unknown_keys: UnknownKeys,
    pub file_counts: FileCounts,
    /// The keys of `compat` with DLIO's behaviour, unless the workload says otherwise.
    pub dlio_keys: &'static [&'static str],
    /// Emulated accelerators on all hosts; `None`: see `Asked::ranks`.
    pub ranks: Option<u64>,
    /// For a plan without members: the hosts of the run, and the processes on each.
    pub hosts: u64,
    pub processes_per_host: u64,
    /// Memory of one host; `None`: this host's.
    pub host_memory: Option<Bytes>,
    /// The location of the data set; `None`: the workload's.
    pub data: Option<Location>,
    /// The I/O backend; `None`: the workload's.
    pub store: Option<String>,
    /// The backends that can be named.
    pub registry: Registry,
    /// The scheme of checkpoint folders that have none, if the workload stores objects; `None`: the workload's.
    pub checkpoint_scheme: Option<CheckpointScheme>,
    /// Maximum memory for buffers and batches; `None`: as much as they need.
    pub memory: Option<Bytes>,
    pub generate: Generate,
    /// Whether nothing but a plan is made, so that an object store that cannot be reached is not an error.
    pub only_plans: bool,
    /// The share of the model that checkpoints contain; `None`: save none, even if the workload does.
    pub checkpoints: Option<Scale>,
    /// Whether each process records every step of its ranks, for a front end that reports them.
    pub record_steps: bool,
    /// How a user of this front end generates the data set, for the error that it is missing.
    pub how_to_generate: String,
    /// Which process of the run makes this request; known when the request is settled.
    pub process: ProcessNumber,
}

impl Ask {
    /// A workload without changes.
    pub fn new(workload: WorkloadText) -> Ask {
        Ask {
            workload,
            overrides: Vec::new(),
            unknown_keys: UnknownKeys::Refuse,
            file_counts: FileCounts::OfManifest,
            dlio_keys: &[],
            ranks: None,
            hosts: 1,
            processes_per_host: 1,
            host_memory: None,
            data: None,
            store: None,
            registry: BACKENDS,
            checkpoint_scheme: None,
            memory: None,
            generate: Generate::AsWorkload,
            only_plans: false,
            checkpoints: Some(Scale::WHOLE),
            record_steps: false,
            how_to_generate: String::new(),
            process: ProcessNumber { number: 0, ranks: 1 },
        }
    }

    /// Reads the workload and applies the changes.
    pub fn read(self) -> Result<Asked, Error> {
        let source = WorkloadSource { name: &self.workload.source, text: &self.workload.text };
        let objects = matches!(self.data, Some(Location::Objects(_)));
        let rules = ReadRules { unknown_keys: self.unknown_keys, dlio_keys: self.dlio_keys, objects };
        let spec::ParsedWorkload { spec, warnings, origins, unhonoured } =
            spec::read_with(source, &self.overrides, rules)?;
        let warnings = warnings.into_iter().filter_map(|warning| self.for_user(warning)).collect();
        let mut asked =
            Asked { ask: self, spec, warnings, origins, unhonoured, found: None, by_manifest: false };
        asked.warn_of_idle_names();
        Ok(asked)
    }

    /// The warning without keys that the user did not write; `None` if none is left.
    fn for_user(&self, warning: Warning) -> Option<Warning> {
        warning.about(|at| !self.is_built_in(&at.place))
    }

    /// Whether a place is in the text of a built-in workload.
    fn is_built_in(&self, place: &str) -> bool {
        let rest = place.strip_prefix(&self.workload.source);
        self.workload.built_in && rest.is_some_and(|rest| rest.starts_with(':'))
    }
}

/// A request whose workload was read.
#[derive(Clone, Debug)]
pub struct Asked {
    pub ask: Ask,
    pub spec: Spec,
    pub warnings: Vec<Warning>,
    /// The origin of each given key.
    origins: BTreeMap<&'static str, String>,
    /// Settings that change the requests to storage but have no effect in this version.
    pub(crate) unhonoured: BTreeSet<&'static str>,
    /// The sizes of existing files, once they were taken as found.
    pub(crate) found: Option<FoundFiles>,
    /// Whether a manifest gave the number of training files.
    pub(crate) by_manifest: bool,
}

/// Which process of a run this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessNumber {
    pub(crate) number: u64,
    /// The most ranks that a process of the run has.
    pub(crate) ranks: u64,
}

/// The number of processes on a host.
fn processes_on(topology: &Topology, node: u64) -> u64 {
    topology.members_on(node).count() as u64
}

/// Where the number of training files comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountOrigin {
    /// The workload or an override of it.
    Workload,
    /// The manifest of the data folder.
    Manifest,
    Catalog,
    /// The default of the key.
    Default,
}

impl Asked {
    pub fn name(&self) -> &str {
        &self.ask.workload.name
    }

    /// The requested ranks or, without a request, as many as the workload is designed for and its checkpoints need.
    pub fn ranks(&self) -> u64 {
        let needed = self.ask.checkpoints.map_or(1, |_| checkpoint::least_ranks(&self.spec));
        self.ask.ranks.unwrap_or(self.ask.workload.ranks.max(needed))
    }

    /// Gives each of several processes a rank if no number of ranks is given, and checks that the ranks can be
    /// distributed.
    pub(crate) fn distribute(&mut self, topology: &Topology) -> Result<(), Error> {
        self.ask.ranks = self.ask.ranks.or(topology.default_ranks());
        match self.ranks() {
            // The plan refuses it.
            0 => return Ok(()),
            ranks => topology.check(ranks)?,
        }
        self.ask.process.ranks = self.placement(topology).ranks_per_process;
        Ok(())
    }

    /// How the ranks are spread over hosts and processes: those of the run or, for a plan, those that were asked for.
    pub(crate) fn placement(&self, topology: &Topology) -> Placement {
        let ranks = self.ranks();
        if topology.members() == 1 {
            return Placement::even(ranks, self.ask.hosts, self.ask.processes_per_host);
        }
        let most = |numbers: &mut dyn Iterator<Item = u64>| numbers.max().unwrap_or(1);
        Placement {
            hosts: topology.nodes(),
            processes: topology.members(),
            processes_per_host: most(&mut (0..topology.nodes()).map(|node| processes_on(topology, node))),
            ranks_per_host: most(&mut (0..topology.nodes()).map(|node| topology.ranks_on(node, ranks))),
            ranks_per_process: most(&mut (0..topology.members()).map(|member| {
                let range = topology.ranks(member, ranks);
                range.end - range.start
            })),
        }
    }

    /// The same for the ranks and processes of one host of the run.
    pub(crate) fn placement_on(&self, topology: &Topology, node: u64) -> Placement {
        let placement = self.placement(topology);
        match topology.members() {
            1 => placement,
            _ => Placement {
                processes_per_host: processes_on(topology, node),
                ranks_per_host: topology.ranks_on(node, self.ranks()),
                ..placement
            },
        }
    }

    /// The location of the data set; it need not exist.
    pub fn data_location(&self) -> Location {
        match &self.ask.data {
            Some(place) => place.clone(),
            None => self.spec.data_location(),
        }
    }

    /// Checks that a backend that is named fits the location. Work that is not measured uses its own backend.
    pub(crate) fn check_named_store(&self) -> Result<(), Error> {
        let place = self.data_location();
        let named = self.ask.store.as_deref().or(self.spec.storage.store.as_deref());
        match named.map(|name| self.ask.registry.select(name, Mode::default())) {
            Some(Ok(named)) => placed(named, &self.ask, &self.spec, &place).map(drop),
            _ => Ok(()),
        }
    }

    /// Prepares work without a plan: which process this is, and warnings about what was given to reach the store of the
    /// data set but is not used. Mistakes in these settings are errors when the store is opened.
    pub fn look_at_store(&mut self, world: &dyn World) {
        let ranks = self.placement(world.topology()).ranks_per_process;
        self.ask.process = ProcessNumber { number: world.member(), ranks };
        if let Ok(PlacedBackend { warnings, .. }) = for_upkeep(&self.ask, &self.spec, &self.data_location()) {
            self.add_warnings(warnings);
        }
    }

    /// The store of the data set, for work that is not measured.
    pub fn open_data(&self) -> Result<Box<dyn Store>, Error> {
        let place = self.data_location();
        self.check_named_store()?;
        // `look_at_store` and `settle` report what is not used.
        let PlacedBackend { selection, .. } = for_upkeep(&self.ask, &self.spec, &place)?;
        let selection = if self.ask.only_plans { at_first_attempt(selection) } else { selection };
        selection.open(place).map_err(Error::DataFolder)
    }

    /// The stall timeout; `None`: no limit.
    pub fn stall_timeout(&self) -> Option<Nanos> {
        Some(Nanos::from_seconds(self.spec.reader.stall_timeout)).filter(|timeout| *timeout > Nanos::ZERO)
    }

    /// The stop for work on this request, which counts as stuck after the stall timeout.
    pub(crate) fn patient(&self, stop: &Stop) -> Stop {
        stop.with_patience(self.stall_timeout())
    }

    /// Takes the numbers of files that the workload does not give from the manifest of the data set, if there is one.
    pub(crate) fn count_by_manifest(&mut self) -> Result<(), Error> {
        if self.ask.file_counts == FileCounts::OfWorkload {
            return self.read_first_files();
        }
        let counts_validation = self.counts_validation_files();
        let counts = self.counts_files() || self.states("dataset.num_files_generated");
        if counts && counts_validation {
            return Ok(());
        }
        let Some((train, valid)) = self.counts_of_manifest()? else { return Ok(()) };
        let set = &mut self.spec.dataset;
        if !counts {
            set.num_files_train = train;
            self.by_manifest = true;
        }
        if !counts_validation {
            set.num_files_eval = valid;
        }
        Ok(())
    }

    /// The numbers of training and validation files by the manifest of the data set.
    fn counts_of_manifest(&mut self) -> Result<Option<(u64, u64)>, Error> {
        match self.found_manifest() {
            Err(error) if self.ask.only_plans => {
                let (place, why) = (self.data_location().to_string(), error.to_string());
                self.warnings.push(Warning::PlaceNotRead { place, why });
                Ok(None)
            }
            found => Ok(found?.and_then(|manifest| manifest.counts())),
        }
    }

    /// Whether what exists at the location of the data set is looked at before a run. A plan sends requests to an
    /// object store only if it was asked about this one, and not because a workload names it; work without training
    /// never does.
    pub(crate) fn looks_at_data(&self) -> bool {
        match self.data_location() {
            Location::Objects(_) => {
                let is_meant = !self.ask.only_plans || self.ask.data.is_some();
                is_meant && (self.spec.workflow.train || self.spec.workflow.generate_data)
            }
            Location::Path(_) | Location::Url { .. } => true,
        }
    }

    /// The manifest at the location of the data set. One in a folder that cannot be read is reported when the data set
    /// is checked. An object store that does not answer now will not answer then, and every attempt takes its time.
    pub(crate) fn found_manifest(&self) -> Result<Option<DataSetManifest>, Error> {
        if !self.looks_at_data() {
            return Ok(None);
        }
        let found = self.open_data().and_then(|store| read_manifest(&*store).map_err(Error::Manifest));
        match (found, self.data_location()) {
            (Err(error), Location::Objects(_)) => Err(error),
            (found, _) => Ok(found.ok().flatten()),
        }
    }

    /// DLIO reads the first files of a data set that has more than the workload asks for.
    fn read_first_files(&mut self) -> Result<(), Error> {
        let generates = self.spec.workflow.generate_data;
        if generates || !self.spec.workflow.train || self.states("dataset.num_files_generated") {
            return Ok(());
        }
        let asked = self.spec.dataset.num_files_train;
        if let Some((train, _)) = self.counts_of_manifest()?.filter(|(train, _)| *train > asked) {
            self.spec.dataset.num_files_generated = Some(train);
            self.warnings.push(Warning::PartOfDataSet { asked, generated: train });
        }
        Ok(())
    }

    /// Whether the number of validation files was given explicitly.
    pub(crate) fn counts_validation_files(&self) -> bool {
        self.gave("dataset.num_files_eval")
    }

    /// Whether the number of training files was given explicitly.
    pub(crate) fn counts_files(&self) -> bool {
        self.gave("dataset.num_files_train")
    }

    /// Where a key was given, if it was.
    pub(crate) fn origin(&self, key: &str) -> Option<&str> {
        self.origins.get(key).map(String::as_str)
    }

    /// Whether the workload or the user states a key.
    pub fn states(&self, key: &str) -> bool {
        self.origins.contains_key(key)
    }

    /// Whether the user gave a key: in a workload file or on the command line, but not by choosing a built-in workload.
    fn gave(&self, key: &str) -> bool {
        self.origins.get(key).is_some_and(|origin| !self.ask.is_built_in(origin))
    }

    /// Warns about keys for the names of objects beside a complete location, unless they were already reported.
    fn warn_of_idle_names(&mut self) {
        let idle = self.spec.idle_name_keys(self.ask.data.is_some(), self.ask.checkpoint_scheme);
        for (key, why) in idle {
            if !self.warnings.iter().any(|warning| warning.is_about(key)) {
                self.warn_of(key, why);
            }
        }
    }

    /// Warns if checkpoint folders do not take the scheme that the front end was given.
    pub(crate) fn warn_of_idle_scheme(&mut self, saves: bool) {
        let Some(scheme) = self.ask.checkpoint_scheme else { return };
        let why = match saves {
            true => self.spec.scheme_without_effect(scheme),
            false => Some("no checkpoints are saved"),
        };
        let setting = CHECKPOINT_SCHEME.to_owned();
        self.add_warnings(
            why.map(|why| Warning::Unused { setting, why: why.to_owned() }).into_iter().collect(),
        );
    }

    /// Warns about given keys that have no effect in this plan.
    pub(crate) fn warn_of_idle_keys(&mut self, plan: &Plan) {
        let idle = plan.training.as_ref().map(|training| plan::idle(&self.spec, training));
        for (key, why) in idle.into_iter().flatten() {
            self.warn_of(key, why);
        }
        let Some(saved) = &plan.checkpoint else { return };
        // A front end may have written the data set already, and then its keys had their effect.
        let (generates, never) = (self.spec.workflow.generate_data, self.ask.generate == Generate::Never);
        let has_effect = |key: &&'static str| match *key {
            "workflow.generate_data" => !generates || never,
            key => generates && never && (key.starts_with("dataset.") || key.starts_with("storage.")),
        };
        let given: Vec<&'static str> = self.origins.keys().copied().collect();
        for key in given.into_iter().filter(|key| !has_effect(key)) {
            if let Some(why) = checkpoint::idle(saved, key) {
                self.warn_of(key, why);
            }
        }
    }

    /// Adds warnings, each once.
    pub(crate) fn add_warnings(&mut self, warnings: Vec<Warning>) {
        for warning in warnings {
            if let Some(warning) =
                self.ask.for_user(warning).filter(|warning| !self.warnings.contains(warning))
            {
                self.warnings.push(warning);
            }
        }
    }

    /// Warns about a key, if it was given.
    pub(crate) fn warn_of(&mut self, key: &str, why: &str) {
        let Some(place) = self.origins.get(key) else { return };
        let keys = vec![KeyOrigin { key: key.to_owned(), place: place.clone() }];
        let warning = self.ask.for_user(Warning::NoEffect { keys, why: why.to_owned() });
        if let Some(warning) = warning.filter(|warning| !self.warnings.contains(warning)) {
            self.warnings.push(warning);
        }
    }
}
