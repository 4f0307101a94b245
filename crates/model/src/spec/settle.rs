//! From given keys to a spec: checks each value against its kind, fills in the defaults, folds the `..._stdev` keys
//! into their times, and collects warnings about keys without effect.

use std::collections::BTreeMap;

use super::check::{Setting, check};
use super::error::{Problem, ProblemKind, SpecError, Texts};
use super::layers::GivenKey;
use super::names::{Framework, Loader, StorageType};
use super::schema::{KeyRow, KeyStatus, canonical_path};
use super::typed::{Settings, Spec};
use super::value::{Node, Origin, Value};
use super::{ReadRules, UnknownKeys, compat, objects, pairs, table, yaml};
use crate::warning::{KeyOrigin, Warning};

/// Keys with their standard deviation in a separate key.
const TIMES: [(&str, &str); 4] = [
    ("train.computation_time", "train.computation_time_stdev"),
    ("train.handover_time", "train.handover_time_stdev"),
    ("evaluation.eval_time", "evaluation.eval_time_stdev"),
    ("reader.preprocess_time", "reader.preprocess_time_stdev"),
];

/// The default sigma of the lognormal law, our choice: two of three files have 0.6 to 1.65 times the median size.
const SIZE_SIGMA: f64 = 0.5;

pub(super) type SettingMap = BTreeMap<&'static str, Setting>;

/// The spec of the given keys, and the warnings about them.
pub(super) fn settle(
    given: &[GivenKey],
    rules: ReadRules,
    texts: &Texts<'_>,
) -> Result<(Spec, Vec<Warning>), SpecError> {
    let mut problems = Vec::new();
    let mut checked = SettingMap::new();
    for given in given {
        match check(given.row, &given.node) {
            Ok(setting) => {
                checked.insert(given.row.key, setting);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if let Some(error) = texts.errors(problems) {
        return Err(error);
    }
    select_direct(&mut checked);
    let overruled = compat::apply(&mut checked, given, rules.dlio_keys);
    let warnings = warnings(given, &ReasonContext::new(&checked, rules), &overruled, texts);
    let mut settings = fill(checked)?;
    let problems = fold_times(&mut settings, given);
    if let Some(error) = texts.errors(problems) {
        return Err(error);
    }
    let spec = Spec::read(&mut Settings(settings))?;
    let problems = pairs::check(&spec, given).into_iter().chain(objects::check(&spec, given)).collect();
    match texts.errors(problems) {
        Some(error) => Err(error),
        None => Ok((spec, warnings)),
    }
}

/// In DLIO, a library called `direct` reads the files of local_fs with O_DIRECT, as direct_fs does.
fn select_direct(checked: &mut SettingMap) {
    let text = |word: &str| Setting::Text(word.to_owned());
    let libraries = ["storage.storage_library", "storage.storage_options.storage_library"];
    let is_local = |setting: &Setting| *setting == text(StorageType::LocalFs.name());
    if libraries.iter().any(|key| checked.get(key) == Some(&text("direct")))
        && checked.get("storage.storage_type").is_none_or(is_local)
    {
        checked.insert("storage.storage_type", text(StorageType::DirectFs.name()));
    }
}

/// The default setting of a key. It is read like a file, so kind and default cannot disagree.
pub(super) fn default_setting(row: &KeyRow) -> Result<Setting, SpecError> {
    let fault = |_| SpecError::Table(row.key.into());
    let root = yaml::parse(&format!("default: {}", row.default)).map_err(fault)?;
    let null = Node { value: Value::Null, place: Origin::Default };
    check(row, root.entry("default").map_or(&null, |entry| &entry.node)).map_err(fault)
}

/// Fills in the default of every missing key.
fn fill(mut checked: SettingMap) -> Result<SettingMap, SpecError> {
    for row in table::rows() {
        if !checked.contains_key(row.key) {
            checked.insert(row.key, default_setting(row)?);
        }
    }
    // DLIO's default loader is a word that its own code does not understand; it means the framework's own loader.
    if checked.get("reader.data_loader") == Some(&Setting::Nothing)
        && let Some(Setting::Text(word)) = checked.get("framework")
        && let Some(framework) = Framework::named(word)
    {
        checked.insert("reader.data_loader", Setting::Text(Loader::of(framework).name().into()));
    }
    // The lognormal law has a default sigma, other laws have none: a sigma without the law is a conflict.
    if checked.get("dataset.size_law") == Some(&Setting::Text("lognormal".into()))
        && checked.get("dataset.size_sigma") == Some(&Setting::Nothing)
    {
        checked.insert("dataset.size_sigma", Setting::Number(SIZE_SIGMA));
    }
    Ok(checked)
}

fn fold_times(settings: &mut SettingMap, given: &[GivenKey]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (time_key, stdev_key) in TIMES {
        let Some(Setting::Number(stdev)) = settings.remove(stdev_key) else { continue };
        let Some(Setting::Time(time)) = settings.get_mut(time_key) else { continue };
        match time.with_stdev(stdev) {
            Some(spread) => *time = spread,
            None => {
                let place = |key| given.iter().find(|given| given.row.key == key).map(|given| given.place);
                let what =
                    format!("'{time_key}' is already a distribution, so '{stdev_key}' cannot be given");
                let problem =
                    Problem::new(ProblemKind::Conflict, place(stdev_key).unwrap_or(Origin::Default), what);
                let problem = problem.key(stdev_key).help("help: put 'stdev' into the map, or leave it out");
                problems.push(problem.other("the distribution", place(time_key).unwrap_or(Origin::Default)));
            }
        }
    }
    problems
}

fn is_true(checked: &SettingMap, key: &str, default: bool) -> bool {
    match checked.get(key) {
        Some(Setting::Flag(flag)) => *flag,
        _ => default,
    }
}

/// What a reason depends on, in addition to the key and its value.
struct ReasonContext<'a> {
    checked: &'a SettingMap,
    saves: bool,
    /// Whether the program has DLIO's name.
    is_drop_in: bool,
    storage: StorageType,
    /// Whether data or checkpoints are in an object store.
    objects: bool,
}

impl<'a> ReasonContext<'a> {
    fn new(checked: &'a SettingMap, rules: ReadRules) -> ReasonContext<'a> {
        let storage = match checked.get("storage.storage_type") {
            Some(Setting::Text(word)) => StorageType::named(word),
            _ => None,
        };
        let saves = is_true(checked, "workflow.checkpoint", false);
        ReasonContext {
            checked,
            saves,
            is_drop_in: rules.unknown_keys == UnknownKeys::Report,
            storage: storage.unwrap_or(StorageType::LocalFs),
            objects: rules.objects || objects::names_objects(checked, saves),
        }
    }

    /// Why a key of object stores has no effect; `None` if it has.
    fn no_objects(&self) -> Option<&'static str> {
        let why = match self.storage {
            StorageType::LocalFs | StorageType::ParallelFs => {
                "it is for object stores, and data and checkpoints are files"
            }
            StorageType::DirectFs => {
                "feedline itself reads the files of direct_fs with O_DIRECT, without a client library"
            }
            _ => "it is for object stores, and this storage type is not supported",
        };
        (!self.objects).then_some(why)
    }
}

fn warnings(
    given: &[GivenKey],
    context: &ReasonContext<'_>,
    overruled: &compat::Overruled,
    texts: &Texts<'_>,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut without_effect: Vec<(&'static str, Vec<KeyOrigin>)> = Vec::new();
    for given in given {
        let at = KeyOrigin { key: given.spelled.clone(), place: texts.place(given.place) };
        let by_compat = overruled.iter().find(|(key, _)| *key == given.row.key).map(|(_, why)| *why);
        let why = match (by_compat, context.checked.get(given.row.key)) {
            (None, Some(setting)) => {
                warnings.extend(special(given, setting, &at));
                reason(given.row, setting, context)
            }
            (why, _) => why,
        };
        if let Some(why) = why {
            match without_effect.iter_mut().find(|(known, _)| *known == why) {
                Some((_, keys)) => keys.push(at),
                None => without_effect.push((why, vec![at])),
            }
        }
    }
    let grouped = without_effect.into_iter().map(|(why, keys)| Warning::NoEffect { keys, why: why.into() });
    warnings.extend(grouped);
    warnings
}

/// A warning about this key and value that does not follow from the status.
fn special(given: &GivenKey, setting: &Setting, at: &KeyOrigin) -> Option<Warning> {
    let (at, key) = (at.clone(), given.row.key.to_owned());
    if given.row.aliases.contains(&canonical_path(&given.spelled).as_str()) {
        return Some(Warning::OtherSpelling { at, key });
    }
    match (given.row.key, setting) {
        ("reader.read_threads", Setting::Integer(0)) => Some(Warning::NoReaders { at }),
        _ => None,
    }
}

/// Why this value of this key has no effect; `None` if it has an effect or requests the default behaviour.
fn reason(row: &KeyRow, setting: &Setting, context: &ReasonContext<'_>) -> Option<&'static str> {
    if let Setting::Text(word) = setting
        && row.later.0.contains(&word.as_str())
    {
        return Some(row.later.1);
    }
    let is =
        |default: &'static str| default_setting(&KeyRow { default, ..*row }).ok().as_ref() == Some(setting);
    if row.quiet.iter().any(|quiet| is(quiet)) {
        return None;
    }
    match row.status {
        KeyStatus::Used => None,
        KeyStatus::NoEffect(why) | KeyStatus::Unhonoured(why) => Some(why),
        // The others are of no consequence with their default.
        _ if is(row.default) => None,
        KeyStatus::WithCheckpoints => (!context.saves).then_some("workflow.checkpoint is off"),
        KeyStatus::InDropIn(why) => (!context.is_drop_in).then_some(why),
        KeyStatus::OfObjects => context.no_objects(),
        KeyStatus::Later(why) => Some(why),
    }
}
