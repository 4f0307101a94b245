//! One file per command. What several commands do alike stands here: read a workload, look up its format and
//! store, find its data folder.

pub mod capacity;
pub mod catalog;
pub mod checkpoint;
pub mod compare;
pub mod completions;
pub mod generate;
pub mod inspect;
mod listing;
pub mod plan;
pub mod run;
pub mod saved;
mod stage;
pub mod stall;
pub mod sweep;
mod tiers;
pub mod validate;
pub mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{anyhow, bail};
use engine::host::Host;
use engine::{Stop, meter, waits};
use format::{Arithmetic, Format, KINDS, Kind, Options};
use model::checkpoint::{CheckpointPlan, Scale};
use model::location::Location;
use model::plan::{self as plans, Listed, Measure, Plan, Request};
use model::spec::{self, Override, Preprocess, Source, Spec, StorageType};
use model::units::{Bytes, Nanos};
use model::warning::{KeyPlace, Warning};
use signal_hook::iterator::Signals;
use store::{BACKENDS, Mode, Posix, Selection, Store};

use crate::exit::{Failure, abandon, limited};
use crate::supervisor;
use crate::workloads::load;
use tiers::Tiers;

/// A workload that was read and understood.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What the user asked for: the name or file of the workload, and the changes to it.
    pub asked: String,
    pub overrides: Vec<Override>,
    pub name: String,
    pub default_ranks: u64,
    pub spec: Spec,
    pub warnings: Vec<Warning>,
    /// Where each key that was given comes from.
    origins: BTreeMap<&'static str, String>,
    /// Keys that were given, that change what is measured, and that this version cannot honour.
    pub unhonoured: BTreeSet<&'static str>,
}

impl Prepared {
    /// Whether it only saves and restores checkpoints.
    pub fn is_checkpoints_alone(&self) -> bool {
        self.spec.workflow.checkpoint && !self.spec.workflow.train
    }

    /// Whether the number of training files was given, and is no default.
    pub fn counts_files(&self) -> bool {
        self.origins.contains_key("dataset.num_files_train")
    }

    /// Warns of the keys that were given and change nothing in this plan.
    pub fn warn_of_idle_keys(&mut self, plan: &Plan) {
        let idle = plan.training.as_ref().map(|training| plans::idle(&self.spec, training));
        for (key, why) in idle.into_iter().flatten() {
            self.warn_of(key, why);
        }
        if let Some(checkpoint) = &plan.checkpoint {
            self.warn_of_idle_checkpoint_keys(checkpoint);
        }
    }

    /// Warns of the keys that were given and change nothing about these checkpoints.
    fn warn_of_idle_checkpoint_keys(&mut self, plan: &CheckpointPlan) {
        let given: Vec<&'static str> = self.origins.keys().copied().collect();
        for key in given {
            if let Some(why) = model::checkpoint::idle(plan, key) {
                self.warn_of(key, why);
            }
        }
    }

    /// Warns of a key, if it was given.
    pub fn warn_of(&mut self, key: &str, why: &str) {
        let Some(place) = self.origins.get(key) else { return };
        let keys = vec![KeyPlace { key: key.to_owned(), place: place.clone() }];
        let warning = Warning::NoEffect { keys, why: why.to_owned() };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

/// Reads a workload, given by name or file, with the changes to it.
pub fn prepare(asked: &str, overrides: Vec<Override>) -> Result<Prepared, Failure> {
    let loaded = load(asked).map_err(Failure::usage)?;
    let source = Source { name: &loaded.source, text: &loaded.text };
    let read = spec::read(source, &overrides).map_err(|error| Failure::usage(anyhow!("{error}")))?;
    let spec::Read { spec, warnings, origins, unhonoured } = read;
    waits::set_timeout(patience(&spec));
    let (asked, name, default_ranks) = (asked.to_owned(), loaded.name, loaded.ranks);
    Ok(Prepared { asked, overrides, name, default_ranks, spec, warnings, origins, unhonoured })
}

/// The workload's format with its settings.
pub fn build_format(spec: &Spec) -> Result<Box<dyn Format>, Failure> {
    let kind = Kind::named(&spec.dataset.format).ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        Failure::refused(anyhow!(
            "dataset.format '{}' is known but cannot be written or read; the formats are {}",
            spec.dataset.format,
            known.join(", ")
        ))
    })?;
    kind.build(&Options::of(spec)).map_err(Failure::usage)
}

/// The store of workloads that name none.
pub const DEFAULT_STORE: &str = "posix";

/// How a workload asks for its files to be accessed.
pub fn mode(spec: &Spec) -> Mode {
    let odirect = spec.reader.odirect || spec.storage.storage_type == StorageType::DirectFs;
    Mode { readahead: spec.reader.readahead, odirect }
}

/// The store that flag or workload choose: the flag first, then `storage.store`, then what `reader.odirect` and
/// `storage.storage_type` ask for.
pub fn select(spec: &Spec, flag: Option<&str>) -> Result<Selection, Failure> {
    let mode = mode(spec);
    let named = flag.or(spec.storage.store.as_deref());
    let text = named.unwrap_or(if mode.odirect { "direct" } else { DEFAULT_STORE });
    let selection = Selection::named(text, mode).map_err(Failure::usage)?;
    let plan = selection.plan();
    if mode.odirect && plan.cached {
        let what = if spec.reader.odirect { "reader.odirect" } else { "storage.storage_type: direct_fs" };
        return Err(Failure::usage(anyhow!(
            "{what} asks for reads past the page cache, but the store {text} reads through it; choose --store {}, \
             or take one of the two away",
            BACKENDS.past_page_cache()
        )));
    }
    if spec.reader.preprocess == Preprocess::Decode && !plan.brings_bytes {
        return Err(Failure::usage(anyhow!(
            "reader.preprocess: decode needs the bytes of the samples, and the store {text} brings none"
        )));
    }
    if spec.reader.preprocess == Preprocess::Decode && !build_format(spec)?.decodes() {
        return Err(Failure::usage(anyhow!(
            "reader.preprocess: decode has nothing to decode in files of {} read so; docs/formats.md says what it \
             decodes",
            spec.dataset.format
        )));
    }
    selection.check().map_err(Failure::usage)?;
    Ok(selection)
}

/// Where the data set is, as flag or workload say.
pub fn data_location(spec: &Spec, flag: Option<&Path>) -> Location {
    match flag {
        Some(folder) => Location::parse(folder),
        None => Location::parse(&spec.storage.storage_root).join(&spec.dataset.data_folder),
    }
}

/// The folder that holds the data set; it need not exist.
pub fn data_folder(spec: &Spec, flag: Option<&Path>) -> Result<PathBuf, Failure> {
    local(&data_location(spec, flag))
}

/// The folder at a location; a location that this version cannot use is refused.
pub fn local(place: &Location) -> Result<PathBuf, Failure> {
    place.path().map(Path::to_owned).map_err(Failure::refused)
}

/// The folder below which results are written, as flag or workload say.
pub fn results_folder(flag: Option<&Path>, spec: &Spec) -> PathBuf {
    let configured = spec.output.folder.as_deref().map(Path::new);
    flag.or(configured).unwrap_or(Path::new("feedline-results")).to_owned()
}

/// Refuses storage that this version does not speak to.
pub fn check_storage(spec: &Spec) -> Result<(), Failure> {
    match spec.storage.storage_type {
        StorageType::LocalFs | StorageType::ParallelFs | StorageType::DirectFs => Ok(()),
        other => Err(Failure::refused(anyhow!(
            "storage.storage_type '{}' is not supported yet; this version reads local and mounted files (local_fs)",
            other.name()
        ))),
    }
}

/// A path that should become a folder, or be one: anything else in its place is the user's mistake.
pub fn check_folder(path: &Path, what: &str) -> Result<(), Failure> {
    let check = || match std::fs::metadata(path) {
        Ok(facts) if !facts.is_dir() => bail!("the {what} {} is a file, not a folder", path.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            bail!("the {what} {} lies below a file, not a folder", path.display())
        }
        _ => Ok(()),
    };
    check().map_err(Failure::usage)
}

/// Makes a folder with its parents, whose names survive a power failure.
pub fn make_folder(path: &Path, what: &str) -> Result<(), Failure> {
    store::make_path(path)
        .map(drop)
        .map_err(|error| Failure::refused(anyhow!("cannot make the {what} {}: {error}", path.display())))
}

/// Opens a store on a data folder.
pub fn open_store(selection: &Selection, folder: &Path) -> Result<Box<dyn Store>, Failure> {
    selection.open(folder).map_err(|error| Failure::refused(anyhow!("cannot use the data folder: {error}")))
}

/// Opens a data folder to write into it or to look at its files.
pub fn open_folder(folder: &Path) -> Result<Posix, Failure> {
    let opened = Posix::open(folder, Mode::default());
    opened.map_err(|error| Failure::refused(anyhow!("cannot use the data folder: {error}")))
}

/// What a plan is made for, beside the workload.
#[derive(Debug)]
pub struct Site<'a> {
    pub ranks: Option<u64>,
    pub hosts: u64,
    pub host_memory_bytes: u64,
    pub host: &'a Host,
    pub store: &'a Selection,
    /// Most memory for buffers and batches; `None`: what they need.
    pub memory: Option<Bytes>,
    /// `None` where nothing is read.
    pub format: Option<&'a dyn Format>,
    pub listed: Option<&'a Listed>,
}

/// Settles a workload for a site, with the checkpoints that go to these tiers at this scale.
pub fn resolve(
    prepared: &Prepared,
    site: &Site<'_>,
    saving: Option<(&Tiers, Scale)>,
) -> Result<Plan, Failure> {
    let arithmetic = site.format.map(Arithmetic);
    let request = Request {
        workload: &prepared.name,
        ranks: site.ranks.unwrap_or(prepared.default_ranks),
        hosts: site.hosts,
        host_memory_bytes: site.host_memory_bytes,
        cores: site.host.cores,
        store: &site.store.plan(),
        memory: site.memory.map(|bytes| bytes.0),
        entropy: meter::entropy(),
        measure: arithmetic.as_ref().map(|arithmetic| arithmetic as &dyn Measure),
        listed: site.listed,
    };
    let saving = saving.map(|(tiers, scale)| tiers.request(request.ranks, scale));
    Plan::resolve(&prepared.spec, &request, saving.as_ref()).map_err(Failure::usage)
}

/// How long work may go on after a signal. Work that is watched is given up earlier, with a list of who waits for what.
const LATEST: Duration = Duration::from_secs(4);

/// A stop that the signals trigger which ask for an end. Work that has not ended a little later is given up. A second
/// signal is the supervisor's business, which ends at once.
pub fn stop_on_signals() -> Result<Stop, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let install = || -> std::io::Result<()> {
        let mut signals = Signals::new(supervisor::stop_signals())?;
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if signals.forever().next().is_some() {
                meter::pause(LATEST);
                let blocked = waits::blocked().map_or_else(String::new, |what| format!(": {what}"));
                abandon(&format!("interrupted, but the work did not stop in time{blocked}"));
            }
        })?;
        for signal in supervisor::stop_signals() {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(())
    };
    let refused = |cause| Failure::refused(anyhow!("cannot listen for signals: {}", limited(&cause)));
    install().map_err(refused)?;
    Ok(Stop::on(flag).or_abandon(abandon))
}

/// How long a workload's run may be without any progress; `None`: as long as it likes.
pub fn patience(spec: &Spec) -> Option<Nanos> {
    unless_zero(Nanos::from_seconds(spec.reader.stall_timeout))
}

/// A timeout of 0 is none.
pub fn unless_zero(timeout: Nanos) -> Option<Nanos> {
    (timeout > Nanos::ZERO).then_some(timeout)
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
