//! The registry of backends, and how a user names one: `posix`, `uring`, `sim:hdd`. Look-up, help, suggestions, the
//! table of docs/reference/stores.md, checkpoint tiers and conformance tests all come from its rows. The facts about a
//! backend that a plan needs are determined in one place, [`Selection::plan`].

use std::sync::Arc;

use model::location::Location;
use model::objects::{ObjectOptions, Service};
use model::plan::{Medium, Mode, RequestPlan, StorePlan, Threads};
use model::spec::nearest;

use crate::tier::OpenTier;
use crate::{
    Capabilities, Store, StoreError, Tier, WallClock, direct, fault, mmap, null, objects, posix, rule, sim,
    uring,
};

/// Where a backend can find data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    Folder,
    /// In the object store of a service.
    Objects(Service),
    /// It uses no place, or the place of the backend that it wraps.
    Any,
}

impl PlaceKind {
    /// Whether data can be at a location.
    pub fn includes(self, place: &Location) -> bool {
        match (self, place) {
            (PlaceKind::Any, _) | (PlaceKind::Folder, Location::Path(_)) => true,
            (PlaceKind::Objects(service), Location::Objects(place)) => service == place.service,
            _ => false,
        }
    }
}

type OpenStore = fn(&Location, &Selection) -> Result<Box<dyn Store>, StoreError>;

/// A backend in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    pub name: &'static str,
    /// What follows the name and a colon, as shown in the help, such as `DEVICE`; empty if nothing may follow.
    pub arguments: &'static str,
    /// What it does, in one line for the docs.
    pub summary: &'static str,
    /// A complete selection that tests can use.
    pub example: &'static str,
    pub medium: Medium,
    pub place: PlaceKind,
    /// Whether it injects faults into another backend, according to the rule in its arguments.
    pub injects_faults: bool,
    /// What it can do; for a backend that wraps another one this depends on the inner one.
    pub capabilities: fn(&Selection) -> Capabilities,
    /// Finds mistakes in the arguments before anything is opened.
    pub check: fn(&Selection) -> Result<(), StoreError>,
    pub open: OpenStore,
    /// How it stores checkpoints; `None` if it cannot.
    pub tier: Option<OpenTier>,
}

impl Backend {
    /// How a user writes it, such as `sim:DEVICE`.
    pub fn syntax(&self) -> String {
        joined(self.name, self.arguments)
    }

    /// Its row of the table in docs/reference/stores.md.
    fn documented(&self, registry: Registry) -> String {
        let selected =
            registry.select(self.example, Mode::default()).map(|selection| selection.capabilities());
        let (threads, page_cache) = match selected {
            Ok(_) if self.injects_faults => ("as STORE", "as STORE"),
            Ok(Capabilities { threads, holds_files, cached, odirect, .. }) => {
                let opens_files = holds_files && self.medium != Medium::Objects;
                (documented_threads(threads), documented_cache(opens_files, cached, odirect))
            }
            Err(_) => ("?", "?"),
        };
        let checkpoints = if self.tier.is_some() { "yes" } else { "no" };
        format!("| `{}` | {} | {threads} | {page_cache} | {checkpoints} |\n", self.syntax(), self.summary)
    }
}

fn documented_threads(threads: Threads) -> &'static str {
    match threads {
        Threads::PerReader => "one per reader",
        Threads::PerCore => "one per core",
        Threads::One => "one",
    }
}

fn documented_cache(opens_files: bool, cached: bool, odirect: bool) -> &'static str {
    match (opens_files, cached, odirect) {
        (false, ..) => "not involved",
        (true, true, false) => "used",
        (true, true, true) => "used, or bypassed with `reader.odirect`",
        (true, false, _) => "bypassed",
    }
}

/// A name with its arguments, as a user writes it.
fn joined(name: &str, arguments: &str) -> String {
    if arguments.is_empty() { name.to_owned() } else { format!("{name}:{arguments}") }
}

/// A list of backends. Tests use longer ones.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    pub rows: &'static [Backend],
}

/// All backends. A new one needs its own file and a row here.
pub const BACKENDS: Registry = Registry {
    rows: &[
        posix::BACKEND,
        direct::BACKEND,
        mmap::BACKEND,
        uring::BACKEND,
        objects::store::S3,
        objects::store::GCS,
        objects::store::AZURE,
        sim::BACKEND,
        null::BACKEND,
        fault::BACKEND,
    ],
};

impl Registry {
    /// The backend of `NAME` or `NAME:ARGUMENTS`, or an error that suggests a name.
    pub fn select(self, text: &str, mode: Mode) -> Result<Selection, StoreError> {
        let (name, arguments) = text.split_once(':').unwrap_or((text, ""));
        match self.rows.iter().find(|backend| backend.name == name) {
            Some(backend) => {
                let (arguments, objects) = (arguments.to_owned(), Arc::default());
                Ok(Selection { registry: self, backend, arguments, mode, objects, wall: no_date })
            }
            None => Err(self.unknown(text, name)),
        }
    }

    /// The names of all backends.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.rows.iter().map(|backend| backend.name)
    }

    fn unknown(self, text: &str, name: &str) -> StoreError {
        let names: Vec<&str> = self.names().collect();
        let near = nearest(name, &names).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        StoreError::Refused(format!("there is no store '{text}'; the stores are {}{near}", names.join(", ")))
    }

    /// The backends as users write them, as a list for help and messages: `posix, sim:DEVICE or null`.
    pub fn listed(self, which: impl Fn(&Backend) -> bool) -> String {
        let shown: Vec<String> = self.rows.iter().filter(|row| which(row)).map(Backend::syntax).collect();
        match shown.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    }

    /// The help of a flag that selects a store.
    pub fn help(self, what: &str, default: &str) -> String {
        format!("{what}: {}; see 'feedline docs stores' [default: {default}]", self.listed(|_| true))
    }

    /// The backends that can hold checkpoints.
    pub fn for_checkpoints(self) -> String {
        self.listed(|backend| backend.tier.is_some())
    }

    /// The backends that can bypass the page cache.
    pub fn past_page_cache(self) -> String {
        let bypasses = |backend: &Backend| {
            let mode = Mode { odirect: true, ..Mode::default() };
            let selected = self.select(backend.example, mode);
            !backend.injects_faults && selected.is_ok_and(|selection| selection.plan().bypasses_cache())
        };
        self.listed(bypasses)
    }

    /// The table of docs/reference/stores.md.
    pub fn table(self) -> String {
        let head = "| store | what it does | threads | page cache | checkpoints |\n|---|---|---|---|---|\n";
        let rows = self.rows.iter().map(|backend| backend.documented(self));
        std::iter::once(head.to_owned()).chain(rows).collect()
    }
}

/// For selections that need no date.
fn no_date() -> u64 {
    0
}

/// A backend that a user chose, with its arguments and mode.
#[derive(Clone, Debug)]
pub struct Selection {
    pub backend: &'static Backend,
    /// Where a backend that wraps another one looks up the inner one.
    pub(crate) registry: Registry,
    /// What followed the name and a colon; may be empty.
    pub arguments: String,
    pub mode: Mode,
    /// How to reach an object store; other backends do not use it.
    pub objects: Arc<ObjectOptions>,
    /// The date that requests to one are signed with.
    pub wall: WallClock,
}

impl Selection {
    /// The same with the way to reach object stores.
    #[must_use]
    pub fn with_objects(self, objects: ObjectOptions, wall: WallClock) -> Selection {
        Selection { objects: Arc::new(objects), wall, ..self }
    }

    /// `NAME` or `NAME:ARGUMENTS`.
    pub fn named(text: &str, mode: Mode) -> Result<Selection, StoreError> {
        BACKENDS.select(text, mode)
    }

    /// The backend that reads nothing, to measure the limits of feedline itself.
    pub fn null() -> Selection {
        Selection {
            backend: &null::BACKEND,
            registry: BACKENDS,
            arguments: String::new(),
            mode: Mode::default(),
            objects: Arc::default(),
            wall: no_date,
        }
    }

    /// The selection as it was written.
    pub fn text(&self) -> String {
        joined(self.backend.name, &self.arguments)
    }

    /// What plans, rules and reports need to know about it.
    pub fn plan(&self) -> StorePlan {
        let Capabilities { holds_files, threads, brings_bytes, cached, odirect } = self.capabilities();
        let (medium, injects_faults) = (self.innermost().backend.medium, self.backend.injects_faults);
        StorePlan {
            text: self.text(),
            medium,
            holds_files,
            brings_bytes,
            cached: cached && !(odirect && self.mode.odirect),
            faults: injects_faults.then(|| self.arguments.clone()),
            threads,
            mode: self.mode,
            requests: match medium {
                Medium::Objects => RequestPlan {
                    in_flight: self.objects.requests_in_flight,
                    encrypted: self.objects.is_encrypted(),
                    part_bytes: self.objects.part_bytes,
                    parts_in_flight: self.objects.parts_in_flight,
                },
                _ => RequestPlan::default(),
            },
        }
    }

    /// What is requested of the store, under the property names under which a store reports what it did.
    pub fn requested(&self) -> Vec<(&'static str, String)> {
        let mut requested = vec![("store", self.backend.name.to_owned())];
        let plan = self.plan();
        if plan.opens_files() {
            requested.push(("o_direct", plan.bypasses_cache().to_string()));
            requested.push(("readahead", self.mode.readahead.name().to_owned()));
        }
        requested
    }

    /// Where it finds data.
    pub fn place(&self) -> PlaceKind {
        self.innermost().backend.place
    }

    /// The backend that accesses the storage: the inner one, if this one wraps another.
    fn innermost(&self) -> Selection {
        let inner = self.backend.injects_faults.then(|| rule::parse(self).ok()).flatten();
        inner.map_or_else(|| self.clone(), |(inner, _)| inner)
    }

    /// What the selected store can do.
    pub(crate) fn capabilities(&self) -> Capabilities {
        (self.backend.capabilities)(self)
    }

    /// Finds mistakes in the selection before anything is opened.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.backend.arguments.is_empty() && !self.arguments.is_empty() {
            return Err(StoreError::Refused(format!(
                "the {} store takes no arguments, but '{}' was given",
                self.backend.name, self.arguments
            )));
        }
        (self.backend.check)(self)
    }

    /// Opens the backend on the data at a location.
    pub fn open(&self, place: impl Into<Location>) -> Result<Box<dyn Store>, StoreError> {
        self.check()?;
        (self.backend.open)(&place.into(), self)
    }

    /// Opens the backend as a checkpoint tier at a location; a folder is created if it is missing.
    pub fn tier(&self, place: impl Into<Location>) -> Result<Box<dyn Tier>, StoreError> {
        match self.backend.tier {
            Some(tier) => self.check().and_then(|()| tier.open(&place.into(), self)),
            None => Err(self.no_tier()),
        }
    }

    /// Why it cannot store checkpoints.
    pub(crate) fn no_tier(&self) -> StoreError {
        StoreError::Refused(format!(
            "checkpoints cannot be written by the store {}; set checkpoint.store to {}",
            self.backend.name,
            self.registry.for_checkpoints()
        ))
    }
}
