//! What a plan knows of the storage that it reads from or saves to. The backend registry of `store` decides these
//! facts once, from what the user named; every later question about the storage is a question to this type. A plan is
//! written with the name alone (a tier with two facts more), so a plan that was read back asks the registry again.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Threads;
use crate::spec::Readahead;

/// What answers the requests of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// A storage system: results say something about it.
    #[default]
    Storage,
    /// A model of a device, which computes how long requests would take.
    Simulated,
    /// Nothing: requests complete at once, so a result shows the ceiling of feedline itself.
    Null,
}

/// How files are to be accessed, where a backend leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub readahead: Readahead,
    /// Bypass the page cache. Only some backends can do both.
    pub odirect: bool,
}

impl Default for Mode {
    fn default() -> Mode {
        Mode { readahead: Readahead::Normal, odirect: false }
    }
}

/// The storage of a data set or of a checkpoint tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorePlan {
    /// As a user names it, such as `sim:hdd`.
    pub text: String,
    pub medium: Medium,
    /// It holds files that can be written and inspected.
    pub holds_files: bool,
    /// It returns the bytes of files; otherwise it only takes the time that reading them would take.
    pub brings_bytes: bool,
    /// It reads through the page cache in the requested mode.
    pub cached: bool,
    /// The rule by which it injects faults, if it does.
    pub faults: Option<String>,
    /// How many threads it needs for many readers.
    pub threads: Threads,
    /// What was requested.
    pub mode: Mode,
}

impl StorePlan {
    /// The backend that reads nothing and is as fast as a backend can be.
    pub fn null() -> StorePlan {
        let (text, medium, threads) = ("null".to_owned(), Medium::Null, Threads::PerCore);
        StorePlan { text, medium, threads, ..StorePlan::default() }
    }

    /// Whether files are accessed past the page cache.
    pub fn bypasses_cache(&self) -> bool {
        self.holds_files && !self.cached
    }

    pub fn is_null(&self) -> bool {
        self.medium == Medium::Null
    }

    pub fn is_simulated(&self) -> bool {
        self.medium == Medium::Simulated
    }

    /// A plan that was read back has the name only, until the registry restores the facts.
    fn unresolved(text: String) -> StorePlan {
        StorePlan { text, ..StorePlan::default() }
    }
}

impl std::fmt::Display for StorePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for StorePlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for StorePlan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StorePlan, D::Error> {
        String::deserialize(deserializer).map(StorePlan::unresolved)
    }
}

/// A tier in the text of a plan.
#[derive(Serialize, Deserialize)]
struct WrittenTier {
    store: String,
    holds_files: bool,
    past_cache: bool,
}

impl WrittenTier {
    fn of(plan: &StorePlan) -> WrittenTier {
        WrittenTier {
            store: plan.text.clone(),
            holds_files: plan.holds_files,
            past_cache: plan.bypasses_cache(),
        }
    }

    fn read(self) -> StorePlan {
        let cached = self.holds_files && !self.past_cache;
        StorePlan { holds_files: self.holds_files, cached, ..StorePlan::unresolved(self.store) }
    }
}

/// How a tier stands in the text of a plan, for serde.
pub(crate) mod tier {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(plan: &StorePlan, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenTier::of(plan).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StorePlan, D::Error> {
        WrittenTier::deserialize(deserializer).map(WrittenTier::read)
    }

    /// The same for a tier that a plan may lack.
    pub(crate) mod optional {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(
            plan: &Option<StorePlan>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            plan.as_ref().map(WrittenTier::of).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<StorePlan>, D::Error> {
            Ok(Option::<WrittenTier>::deserialize(deserializer)?.map(WrittenTier::read))
        }
    }
}
