//! The first document: what the user requests. The input is a workload text (DLIO's YAML) and overrides; the output is
//! a complete typed [`Spec`], or an error that shows the line. Nothing here depends on a machine.
//!
//! text -> tree (`yaml`, `hydra`) -> given keys (`layers`, `overrides`) -> checked settings (`schema`, `table`,
//! `check`) -> spec (`settle`, `typed`, `pairs`).

mod check;
mod compat;
mod core_config;
#[cfg(test)]
mod drop_in;
mod error;
mod hydra;
mod layers;
mod listing;
#[cfg(test)]
mod mistakes;
mod names;
mod objects;
mod overrides;
mod pairs;
mod plain;
mod request_sizes;
pub(crate) mod scalar;
mod schema;
mod settle;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod typed;
pub(crate) mod value;
mod write;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};

pub use compat::DLIO_NUMBERS;
pub use core_config::core_config_hash;
pub use error::{Report, SpecError};
pub use listing::all_settings;
pub use names::{
    Access, CacheState, FORMATS, Framework, PlottedFigure, Preprocess, Readahead, SaveMode, Semantics,
    StorageType, Verify,
};
pub(crate) use names::{CacheProof, CheckpointMode, Datatype, Loader, OnError, Retain, Shuffle};
pub use objects::{CHECKPOINT_SCHEME, CheckpointScheme, address_mistake};
pub use overrides::{Override, OverrideValue};
pub use plain::plain_yaml;
pub use request_sizes::RequestSizes;
pub use schema::{KeyRow, KeyStatus, KeyUnit, ValueKind, canonical_key, expected, nearest};
pub use table::rows;
pub use time::Time;
pub(crate) use typed::TransformerSpec;
pub use typed::{Column, ObjectSpec, Spec, SweepSpec};

use crate::secret;
use crate::warning::Warning;
use error::Texts;

/// A workload text and the name under which errors show it.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadSource<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// A workload that was read.
#[derive(Clone, Debug)]
pub struct ParsedWorkload {
    pub spec: Spec,
    pub warnings: Vec<Warning>,
    /// The origin of each given key: `file:line:column` or an override's origin. All other keys have defaults.
    pub origins: BTreeMap<&'static str, String>,
    /// Given keys that change what is measured but have no effect in this version.
    pub unhonoured: BTreeSet<&'static str>,
}

/// What happens to keys that are not in the table of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownKeys {
    /// They are errors.
    #[default]
    Refuse,
    /// They have no effect, and a warning names each: for programs that send keys of other versions.
    Report,
}

/// The tree of a configuration file that Hydra composes: any keys, with interpolations and missing values.
pub(crate) fn config_tree(source: WorkloadSource<'_>) -> Result<value::Node, SpecError> {
    let shown = secret::redact(source.text);
    let texts = Texts { name: source.name, text: &shown, overrides: &[] };
    yaml::parse_config(source.text).map_err(|problem| texts.error(problem))
}

/// How a front end reads workloads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadRules {
    pub unknown_keys: UnknownKeys,
    /// The keys of `compat` with DLIO's behaviour, unless the workload says otherwise.
    pub dlio_keys: &'static [&'static str],
    /// Whether the front end places data in an object store, whatever the workload says.
    pub objects: bool,
}

impl From<UnknownKeys> for ReadRules {
    fn from(unknown_keys: UnknownKeys) -> ReadRules {
        ReadRules { unknown_keys, ..ReadRules::default() }
    }
}

/// Reads a workload: the defaults, then the file, then the overrides in order. Unknown keys are errors.
pub fn read(source: WorkloadSource<'_>, overrides: &[Override]) -> Result<ParsedWorkload, SpecError> {
    read_with(source, overrides, ReadRules::default())
}

/// The same, for a front end with rules of its own.
pub fn read_with(
    source: WorkloadSource<'_>,
    overrides: &[Override],
    rules: impl Into<ReadRules>,
) -> Result<ParsedWorkload, SpecError> {
    let rules = rules.into();
    // Messages quote the text, and it may hold secrets.
    let shown = secret::redact(source.text);
    let texts = Texts { name: source.name, text: &shown, overrides };
    let root = yaml::parse(source.text).map_err(|problem| texts.error(problem))?;
    let mut problems = Vec::new();
    let given = layers::flatten(&root, &mut problems);
    let is_drop_in = rules.unknown_keys == UnknownKeys::Report;
    let (mut given, unread) = layers::merge_spellings(given, is_drop_in, &mut problems);
    let replaced = overrides::apply(&mut given, overrides, &mut problems);
    let mut unknown_keys = Vec::new();
    if is_drop_in {
        problems.retain(|problem| match texts.unknown_key(problem) {
            Some(warning) => {
                unknown_keys.push(warning);
                false
            }
            None => true,
        });
    }
    if !problems.is_empty() {
        // The values of the known keys are checked, too, so that one run shows all mistakes.
        problems.extend(given.iter().filter_map(|given| check::check(given.row, &given.node).err()));
    }
    if let Some(error) = texts.errors(problems) {
        return Err(error);
    }
    let (spec, mut warnings) = settle::settle(&given, rules, &texts)?;
    warnings.extend(unread.iter().map(|unread| texts.unread(unread)));
    warnings.extend(unknown_keys);
    warnings.extend(replaced);
    let origins = given.iter().map(|given| (given.row.key, texts.place(given.place))).collect();
    let unhonoured = given.iter().map(|given| given.row).filter(|row| row.is_unhonoured());
    Ok(ParsedWorkload { spec, warnings, origins, unhonoured: unhonoured.map(|row| row.key).collect() })
}
