//! Every setting of a workload after defaults, also those that have no effect and are no part of a spec.

use std::collections::BTreeMap;

use super::check::check;
use super::settle::default_setting;
use super::write::yaml;
use super::{
    DLIO_NUMBERS, ReadRules, SpecError, UnknownKeys, WorkloadSource, layers, read_with, table, yaml as parser,
};

/// The settings by key, as `dlio_benchmark` reads them, in the form of a workload file. Unknown keys are left out.
pub fn all_settings(source: WorkloadSource<'_>) -> Result<BTreeMap<&'static str, String>, SpecError> {
    let rules = ReadRules { unknown_keys: UnknownKeys::Report, dlio_keys: DLIO_NUMBERS, objects: false };
    let spec = read_with(source, &[], rules)?.spec;
    let mut settings = BTreeMap::new();
    for row in table::rows() {
        settings.insert(row.key, yaml(&default_setting(row)?));
    }
    // The text was read above, so that it has no problems apart from unknown keys.
    let given =
        parser::parse(source.text).map(|root| layers::flatten(&root, &mut Vec::new())).unwrap_or_default();
    let (given, _) = layers::merge_spellings(given, true, &mut Vec::new());
    let given =
        given.iter().filter_map(|given| Some((given.row.key, yaml(&check(given.row, &given.node).ok()?))));
    settings.extend(given);
    settings.extend(spec.settings());
    Ok(settings)
}
