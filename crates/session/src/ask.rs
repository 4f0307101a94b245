//! What a front end asks for, as types, and what its workload says once it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use model::checkpoint::Scale;
use model::location::Location;
use model::plan::{self, Plan};
use model::spec::{self, Override, Source, Spec};
use model::units::{Bytes, Nanos};
use model::warning::{KeyPlace, Warning};

use crate::error::Error;
use crate::folder::local;

/// The text of a workload, and where it is from.
#[derive(Clone, Debug)]
pub struct WorkloadText {
    /// What the run is called.
    pub name: String,
    /// Where the text is from, for messages about it.
    pub source: String,
    pub text: String,
    /// The ranks that it is made for.
    pub ranks: u64,
}

/// Whether the files of the data set that are missing are written first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generate {
    /// If the workload says so.
    AsWorkload,
    Missing,
    /// Not again: the data set was made before.
    Never,
}

/// Everything that a run can be asked to be.
#[derive(Clone, Debug)]
pub struct Ask {
    pub workload: WorkloadText,
    /// What is changed in the workload, the strongest change last.
    pub overrides: Vec<Override>,
    /// Emulated accelerators over all hosts; `None`: what the workload is made for.
    pub ranks: Option<u64>,
    pub hosts: u64,
    /// Memory of one host; `None`: this host's.
    pub host_memory: Option<Bytes>,
    /// Where the data set is; `None`: where the workload says.
    pub data: Option<Location>,
    /// How it is read; `None`: as the workload says.
    pub store: Option<String>,
    /// Most memory for buffers and batches; `None`: what they need.
    pub memory: Option<Bytes>,
    pub generate: Generate,
    /// The share of the model that checkpoints are taken of; `None`: none are taken, whatever the workload says.
    pub checkpoints: Option<Scale>,
    /// How a user of this front end generates the data set, for the message that it is missing.
    pub how_to_generate: String,
}

impl Ask {
    /// A workload as it is.
    pub fn new(workload: WorkloadText) -> Ask {
        Ask {
            workload,
            overrides: Vec::new(),
            ranks: None,
            hosts: 1,
            host_memory: None,
            data: None,
            store: None,
            memory: None,
            generate: Generate::AsWorkload,
            checkpoints: Some(Scale::WHOLE),
            how_to_generate: String::new(),
        }
    }

    /// Reads the workload with what is changed in it.
    pub fn read(self) -> Result<Asked, Error> {
        let source = Source { name: &self.workload.source, text: &self.workload.text };
        let spec::Read { spec, warnings, origins, unhonoured } = spec::read(source, &self.overrides)?;
        Ok(Asked { ask: self, spec, warnings, origins, unhonoured })
    }
}

/// An ask whose workload was read and understood.
#[derive(Clone, Debug)]
pub struct Asked {
    pub ask: Ask,
    pub spec: Spec,
    pub warnings: Vec<Warning>,
    /// Where each key that was given comes from.
    origins: BTreeMap<&'static str, String>,
    /// Settings that change what the storage is asked for, and that this version cannot honour yet.
    pub(crate) unhonoured: BTreeSet<&'static str>,
}

impl Asked {
    pub fn name(&self) -> &str {
        &self.ask.workload.name
    }

    pub fn ranks(&self) -> u64 {
        self.ask.ranks.unwrap_or(self.ask.workload.ranks)
    }

    /// Where the data set is; it need not exist.
    pub fn data_location(&self) -> Location {
        match &self.ask.data {
            Some(place) => place.clone(),
            None => Location::parse(&self.spec.storage.storage_root).join(&self.spec.dataset.data_folder),
        }
    }

    /// The folder that holds the data set; a location that this version cannot use is refused.
    pub fn data_folder(&self) -> Result<PathBuf, Error> {
        local(&self.data_location())
    }

    /// How long the run may be without any progress; `None`: as long as it takes.
    pub fn stall_timeout(&self) -> Option<Nanos> {
        Some(Nanos::from_seconds(self.spec.reader.stall_timeout)).filter(|timeout| *timeout > Nanos::ZERO)
    }

    /// Whether the number of training files was given, and is no default.
    pub(crate) fn counts_files(&self) -> bool {
        self.origins.contains_key("dataset.num_files_train")
    }

    /// Warns of the keys that were given and change nothing in this plan.
    pub(crate) fn warn_of_idle_keys(&mut self, plan: &Plan) {
        let idle = plan.training.as_ref().map(|training| plan::idle(&self.spec, training));
        for (key, why) in idle.into_iter().flatten() {
            self.warn_of(key, why);
        }
        let Some(checkpoint) = &plan.checkpoint else { return };
        let given: Vec<&'static str> = self.origins.keys().copied().collect();
        for key in given {
            if let Some(why) = model::checkpoint::idle(checkpoint, key) {
                self.warn_of(key, why);
            }
        }
    }

    /// Warns of a key, if it was given.
    pub(crate) fn warn_of(&mut self, key: &str, why: &str) {
        let Some(place) = self.origins.get(key) else { return };
        let keys = vec![KeyPlace { key: key.to_owned(), place: place.clone() }];
        let warning = Warning::NoEffect { keys, why: why.to_owned() };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}
