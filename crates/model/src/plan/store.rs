//! What a plan knows about the storage that it reads from or saves to. The backend registry of `store` determines these
//! facts once, from the name that the user gave; all other code reads them from this type. plan.json contains only the
//! name (and two more facts for a tier), so a plan that was read back asks the registry again.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{RequestPlan, Threads};
use crate::spec::Readahead;

/// What serves the requests of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// A file system: results describe its storage.
    #[default]
    Storage,
    /// An object store, reached over the network: no page cache of this host is involved, and nothing is opened.
    Objects,
    /// A model of a device, which computes how long requests would take.
    Simulated,
    /// Nothing: requests complete at once, so a result shows the ceiling of feedline itself.
    Null,
}

/// How to access files, if a backend offers a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub readahead: Readahead,
    /// Bypass the page cache. Only some backends support both.
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
    /// As a user writes it, such as `sim:hdd`.
    pub text: String,
    pub medium: Medium,
    /// It has files that can be written and inspected.
    pub holds_files: bool,
    /// It returns the bytes of files; otherwise it only takes the time that reading them would take.
    pub brings_bytes: bool,
    /// It reads through the page cache in the requested mode.
    pub cached: bool,
    /// The rule by which it injects faults, if any.
    pub faults: Option<String>,
    /// The number of threads that it needs for many readers.
    pub threads: Threads,
    /// The requested mode.
    pub mode: Mode,
    /// How requests are made, if it is an object store.
    pub requests: RequestPlan,
}

impl StorePlan {
    /// The backend that reads nothing and completes every request at once.
    pub fn null() -> StorePlan {
        let (text, medium, threads) = ("null".to_owned(), Medium::Null, Threads::PerCore);
        StorePlan { text, medium, threads, ..StorePlan::default() }
    }

    /// Whether file accesses bypass the page cache. Requests to an object store never meet it.
    pub fn bypasses_cache(&self) -> bool {
        self.opens_files() && !self.cached
    }

    /// Whether data is in files that this host opens, and not in objects, or nowhere.
    pub fn opens_files(&self) -> bool {
        self.holds_files && !self.is_objects()
    }

    pub fn is_objects(&self) -> bool {
        self.medium == Medium::Objects
    }

    pub fn is_null(&self) -> bool {
        self.medium == Medium::Null
    }

    pub fn is_simulated(&self) -> bool {
        self.medium == Medium::Simulated
    }

    /// A plan that was read back has only the name, until the registry restores the facts.
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

/// The serialized form of a tier.
#[derive(Serialize, Deserialize)]
struct WrittenTier {
    store: String,
    holds_files: bool,
    past_cache: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    objects: bool,
}

impl WrittenTier {
    fn of(plan: &StorePlan) -> WrittenTier {
        WrittenTier {
            store: plan.text.clone(),
            holds_files: plan.holds_files,
            past_cache: plan.bypasses_cache(),
            objects: plan.is_objects(),
        }
    }

    fn read(self) -> StorePlan {
        let cached = self.holds_files && !self.past_cache && !self.objects;
        let medium = if self.objects { Medium::Objects } else { Medium::default() };
        StorePlan { holds_files: self.holds_files, cached, medium, ..StorePlan::unresolved(self.store) }
    }
}

/// Serialization of a tier, for serde.
pub(crate) mod tier {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(plan: &StorePlan, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenTier::of(plan).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StorePlan, D::Error> {
        WrittenTier::deserialize(deserializer).map(WrittenTier::read)
    }

    /// The same for an optional tier.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Tier(#[serde(with = "tier")] StorePlan);

    #[test]
    fn objects_meet_no_page_cache_also_in_a_plan_that_was_read_back() {
        let (text, medium) = ("s3".to_owned(), Medium::Objects);
        let objects = StorePlan { text, medium, holds_files: true, ..StorePlan::default() };
        let files = StorePlan { medium: Medium::Storage, ..objects.clone() };
        assert!(files.bypasses_cache() && files.opens_files());
        assert!(!objects.bypasses_cache() && !objects.opens_files() && objects.is_objects());
        for plan in [objects, files] {
            let written = serde_json::to_value(Tier(plan.clone())).unwrap();
            assert_eq!(written.get("objects").is_some(), plan.is_objects(), "{written}");
            let Tier(again) = serde_json::from_value(written).unwrap();
            assert_eq!(again, plan);
        }
    }
}
