//! What all members of a run must have in common: the version of feedline, the workload with its flags, the data set
//! and the plan. Each is compared with member 0's, and each kind of difference has its own message.

use std::collections::BTreeMap;

use engine::{Stop, World};
use model::manifest::DataSetManifest;
use model::plan::{FileSource, Plan, differences};
use model::secret::redact;
use serde::{Deserialize, Serialize};

use crate::ask::Asked;
use crate::error::Error;
use crate::members::compare;
use crate::settle::TrainingInput;

/// What a member has and member 0 has not, or not the same. Values are given first for member 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberDifference {
    /// Versions of feedline.
    Version([String; 2]),
    /// A key of the workload, and the values with their origins.
    Setting(String, [String; 2]),
    Flag(String, [String; 2]),
    /// The data folders. The data set is missing at member 0 if the flag is set, else at the other member.
    NoDataSet([String; 2], bool),
    /// Digests of catalogs.
    Catalog([String; 2]),
    /// A setting by which the data sets were generated.
    DataSet(String, [String; 2]),
    /// A field of the plan.
    Plan(String, [String; 2]),
}

impl MemberDifference {
    /// What differs between these two processes, and what to do.
    pub(crate) fn between(&self, first: &str, other: &str) -> String {
        match self {
            MemberDifference::Version([here, there]) => format!(
                "the processes run different versions of feedline: {first} runs {here}, {other} runs {there}; \
                 install the same version on all nodes"
            ),
            MemberDifference::Setting(key, [here, there]) => format!(
                "the processes have different workloads: {key} is {here} for {first}, but {there} for {other}; \
                 give all processes the same workload and the same flags"
            ),
            MemberDifference::Flag(flag, [here, there]) => format!(
                "the processes have different flags: {flag} is {here} for {first}, but {there} for {other}; give \
                 all processes the same flags"
            ),
            MemberDifference::NoDataSet([here, there], at_first) => {
                let [lacks, has] =
                    if *at_first { [(first, here), (other, there)] } else { [(other, there), (first, here)] };
                format!(
                    "the data set is missing on one node: {} finds none in {}, but {} finds one in {}; make the \
                     same data set available on all nodes",
                    lacks.0, lacks.1, has.0, has.1
                )
            }
            MemberDifference::Catalog([here, there]) => format!(
                "the catalogs of the data set differ: {first} reads {here}, {other} reads {there}; make the same \
                 files and the same catalog available on all nodes"
            ),
            MemberDifference::DataSet(key, [here, there]) => format!(
                "the nodes have different data sets: {key} is {here} for {first}, but {there} for {other}; make \
                 the same data set available on all nodes"
            ),
            MemberDifference::Plan(field, [here, there]) => format!(
                "the processes compute different plans: {field} is {here} for {first}, but {there} for {other}; \
                 make the same data set available on all nodes"
            ),
        }
    }
}

/// Keys that name a place. It may differ between nodes; what is found there is compared.
const PLACES: [&str; 6] = [
    "checkpoint.burst_folder",
    "checkpoint.checkpoint_folder",
    "dataset.catalog",
    "dataset.data_folder",
    "output.folder",
    "storage.storage_root",
];

/// What a member was asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MemberRequest {
    version: String,
    /// Every key of the workload: its value, and where it was given.
    settings: BTreeMap<String, (String, Option<String>)>,
    flags: BTreeMap<String, String>,
}

impl MemberRequest {
    fn of(asked: &Asked, version: &str) -> MemberRequest {
        let ask = &asked.ask;
        let settings = asked.spec.settings().into_iter().filter(|(key, _)| !PLACES.contains(key));
        let settings = settings.map(|(key, value)| {
            let shown = redact(&format!("{key}: {value}"));
            let value = shown.strip_prefix(&format!("{key}: ")).unwrap_or_default().to_owned();
            (key.to_owned(), (value, asked.origin(key).map(str::to_owned)))
        });
        let or_unset = |value: Option<String>| value.unwrap_or_else(|| "not given".to_owned());
        let flags = [
            ("the workload", ask.workload.name.clone()),
            ("--ranks", or_unset(ask.ranks.map(|ranks| ranks.to_string()))),
            ("--store", or_unset(ask.store.as_deref().map(redact))),
            ("--memory", or_unset(ask.memory.map(|memory| memory.to_string()))),
            ("--generate", format!("{:?}", ask.generate)),
            ("--scale", or_unset(ask.checkpoints.map(|scale| scale.to_string()))),
        ];
        MemberRequest {
            version: version.to_owned(),
            settings: settings.collect(),
            flags: flags.map(|(flag, value)| (flag.to_owned(), value)).into(),
        }
    }

    /// The first difference to member 0's request.
    fn differs(first: &MemberRequest, own: &MemberRequest) -> Option<MemberDifference> {
        if first.version != own.version {
            return Some(MemberDifference::Version([&first.version, &own.version].map(String::clone)));
        }
        if let Some((flag, [here, there])) = first_unlike(&first.flags, &own.flags) {
            let values = [here, there].map(|value| value.cloned().unwrap_or_default());
            return Some(MemberDifference::Flag(flag, values));
        }
        // Where a value comes from does not matter.
        let [here, there] = [first, own].map(|request| {
            request.settings.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect()
        });
        let (key, values) = first_unlike(&here, &there)?;
        let given = |request: &MemberRequest, value: Option<&String>| {
            let value = value.map_or("not set", String::as_str);
            match request.settings.get(&key).and_then(|(_, origin)| origin.as_ref()) {
                Some(origin) => format!("{value} ({origin})"),
                None => format!("{value} (the default)"),
            }
        };
        let values = [given(first, values[0]), given(own, values[1])];
        Some(MemberDifference::Setting(key, values))
    }
}

/// The first key whose values differ, and the values.
fn first_unlike<'a>(
    here: &'a BTreeMap<String, String>,
    there: &'a BTreeMap<String, String>,
) -> Option<(String, [Option<&'a String>; 2])> {
    let keys = here.keys().chain(there.keys().filter(|key| !here.contains_key(*key)));
    let mut values = keys.map(|key| (key.clone(), [here.get(key), there.get(key)]));
    values.find(|(_, [here, there])| here != there)
}

/// Checks that all members run the same version of feedline with the same workload and flags.
pub(crate) fn compare_requests(asked: &Asked, world: &dyn World, stop: &Stop) -> Result<(), Error> {
    compare_versions(asked, env!("CARGO_PKG_VERSION"), world, stop)
}

fn compare_versions(asked: &Asked, version: &str, world: &dyn World, stop: &Stop) -> Result<(), Error> {
    compare(&MemberRequest::of(asked, version), world, stop, MemberRequest::differs)
}

/// Which data set a member finds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FoundDataSet {
    folder: String,
    /// The digest of the catalog.
    catalog: Option<String>,
    manifest: Option<DataSetManifest>,
    /// Whether there are files that another program wrote.
    foreign: bool,
}

impl FoundDataSet {
    fn of(asked: &Asked, reading: &TrainingInput) -> FoundDataSet {
        // A manifest that cannot be read is reported when the data set is checked.
        let manifest = asked.found_manifest().ok().flatten();
        let catalog = match &reading.source {
            Some(FileSource::Listed(listed)) => Some(listed.digest.clone()),
            _ => None,
        };
        let foreign = matches!(reading.source, Some(FileSource::Found(_)));
        FoundDataSet { folder: reading.place.to_string(), catalog, manifest, foreign }
    }

    fn exists(&self) -> bool {
        self.catalog.is_some() || self.manifest.is_some() || self.foreign
    }

    fn differs(first: &FoundDataSet, own: &FoundDataSet) -> Option<MemberDifference> {
        let both = [first, own];
        if first.exists() != own.exists() {
            return Some(MemberDifference::NoDataSet(both.map(|set| set.folder.clone()), own.exists()));
        }
        if first.catalog != own.catalog {
            let digest = |set: &FoundDataSet| set.catalog.clone().unwrap_or_else(|| "none".to_owned());
            return Some(MemberDifference::Catalog(both.map(digest)));
        }
        let difference = match both.map(|set| set.manifest.as_ref()) {
            [Some(here), Some(there)] => {
                let difference = here.differences(there).into_iter().next()?;
                (difference.key, [difference.there, difference.asked])
            }
            [None, None] => return None,
            [here, _] => {
                let words = ["present", "missing"];
                let words = if here.is_some() { words } else { [words[1], words[0]] };
                ("the manifest".to_owned(), words.map(str::to_owned))
            }
        };
        Some(MemberDifference::DataSet(difference.0, difference.1))
    }
}

/// Checks that all members find the same data set.
pub(crate) fn compare_data(
    asked: &Asked,
    reading: &TrainingInput,
    world: &dyn World,
    stop: &Stop,
) -> Result<(), Error> {
    if world.members() == 1 {
        return Ok(());
    }
    compare(&FoundDataSet::of(asked, reading), world, stop, FoundDataSet::differs)
}

/// Checks that all members do the same work in the same order.
pub(crate) fn compare_plans(plan: &Plan, world: &dyn World, stop: &Stop) -> Result<(), Error> {
    if world.members() == 1 {
        return Ok(());
    }
    let own = (plan.digest(), serde_json::to_value(plan).unwrap_or_default());
    compare(&own, world, stop, |(digest, first), (own_digest, own)| {
        if digest == own_digest {
            return None;
        }
        // Estimates depend on the host; the digest leaves them out.
        let mut unlike =
            differences(first, own).into_iter().filter(|unlike| !unlike.field.starts_with("estimate"));
        let (field, values) = unlike.next().map_or_else(
            || ("the digest".to_owned(), [digest.clone(), own_digest.clone()]),
            |unlike| (unlike.field, [unlike.here, unlike.there]),
        );
        Some(MemberDifference::Plan(field, values))
    })
}

#[cfg(test)]
mod tests;
