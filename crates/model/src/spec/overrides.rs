//! Changes to a workload that a front end requests: typed values, or arguments in Hydra's override grammar that set or
//! delete one key. They are layers on top of the file and apply in order. Each key remembers the override that set it.
//! Nothing here depends on a front end's flags.

use std::fmt;

use super::check::check;
use super::error::{Problem, ProblemKind};
use super::hydra::{self, HydraError};
use super::layers::{GivenKey, flatten, overlay};
use super::schema::{KeyLookup, ValueKind, canonical_path, look_up};
use super::value::{MapEntry, Node, Origin, Value};
use crate::secret;
use crate::warning::{KeyOrigin, Warning};

/// One change to a workload, and its origin.
#[derive(Clone, PartialEq)]
pub struct Override {
    /// Dotted, such as `reader.cache`. In Hydra's notation it may have a prefix: `+`, `++`, `~`, `workload.`.
    pub key: String,
    pub value: OverrideValue,
    /// What errors and warnings name: a flag, an argument, or a file and line. It contains no secrets.
    pub origin: String,
}

/// The value that an override sets.
#[derive(Clone, PartialEq)]
pub enum OverrideValue {
    /// Taken literally, with any characters.
    Text(String),
    Flag(bool),
    Number(f64),
    /// The text after `=` in Hydra's notation; `None` without `=`. The grammar is checked when the workload is read, so
    /// that all mistakes are reported together.
    Hydra(Option<String>),
}

/// The value may be a secret.
impl fmt::Debug for OverrideValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OverrideValue(..)")
    }
}

impl From<&str> for OverrideValue {
    fn from(text: &str) -> OverrideValue {
        OverrideValue::Text(text.to_owned())
    }
}

impl From<bool> for OverrideValue {
    fn from(flag: bool) -> OverrideValue {
        OverrideValue::Flag(flag)
    }
}

impl From<f64> for OverrideValue {
    fn from(number: f64) -> OverrideValue {
        OverrideValue::Number(number)
    }
}

impl Override {
    /// Sets a key to a typed value.
    pub fn new(key: &str, value: impl Into<OverrideValue>, origin: &str) -> Override {
        Override { key: key.to_owned(), value: value.into(), origin: secret::redact(origin) }
    }

    /// An argument in Hydra's notation: `KEY=VALUE`, `+KEY=VALUE`, `~KEY`.
    pub fn hydra(argument: &str, origin: impl AsRef<str>) -> Override {
        let (key, value) = match argument.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (argument, None),
        };
        Override {
            key: key.to_owned(),
            value: OverrideValue::Hydra(value),
            origin: secret::redact(origin.as_ref()),
        }
    }

    fn is_typed(&self) -> bool {
        !matches!(self.value, OverrideValue::Hydra(_))
    }
}

/// Secrets are left out.
impl fmt::Debug for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = secret::redact(&self.to_string());
        f.debug_struct("Override").field("change", &change).field("origin", &self.origin).finish()
    }
}

/// The override in Hydra's notation, which reads back as the same value. A text with `${`, which the notation reserves
/// for interpolations, does not.
impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Override { key, value, .. } = self;
        match value {
            OverrideValue::Text(text) => write!(f, "{key}={}", hydra::quote(text)),
            OverrideValue::Flag(flag) => write!(f, "{key}={flag}"),
            OverrideValue::Number(number) => write!(f, "{key}={number}"),
            OverrideValue::Hydra(Some(text)) => write!(f, "{key}={text}"),
            OverrideValue::Hydra(None) => f.write_str(key),
        }
    }
}

/// A parsed override.
#[derive(Debug, PartialEq)]
enum ParsedOverride {
    Set {
        path: String,
        node: Node,
    },
    /// Resets the key to its default; with a value, only if the key has that value.
    Delete {
        path: String,
        node: Option<Node>,
    },
}

/// Applies the overrides to the given keys, in order. Returns warnings about overrides that a later one replaces.
pub(super) fn apply(
    given: &mut Vec<GivenKey>,
    overrides: &[Override],
    problems: &mut Vec<Problem>,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (index, change) in overrides.iter().enumerate() {
        let place = Origin::Override(index);
        match parse(change, place) {
            Ok(ParsedOverride::Set { path, node }) => {
                let layer = layer(&path, node, place, problems);
                warnings.extend(layer.iter().filter_map(|over| replaced(given, over, change, overrides)));
                overlay(given, layer);
            }
            Ok(ParsedOverride::Delete { path, node }) => delete(given, &path, node.as_ref(), place, problems),
            Err(problem) => problems.push(problem),
        }
    }
    warnings
}

/// The warning that `change` replaces an earlier override with a different value. In Hydra's notation the last argument
/// for a key wins without a warning, so this applies to arguments against typed values.
fn replaced(
    given: &[GivenKey],
    over: &GivenKey,
    change: &Override,
    overrides: &[Override],
) -> Option<Warning> {
    let earlier = given.iter().find(|given| given.row.key == over.row.key)?;
    let Origin::Override(index) = earlier.place else { return None };
    let before = overrides.get(index)?;
    let differs = || check(over.row, &earlier.node).ok() != check(over.row, &over.node).ok();
    if !(before.is_typed() || change.is_typed()) || !differs() {
        return None;
    }
    let at = KeyOrigin { key: earlier.spelled.clone(), place: before.origin.clone() };
    Some(Warning::NoEffect { keys: vec![at], why: format!("{} overrides it", change.origin) })
}

fn refuse(place: Origin, what: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::Override, place, what)
}

fn parse(change: &Override, place: Origin) -> Result<ParsedOverride, Problem> {
    let node = |value| Node { value, place };
    let set = |value| Ok(ParsedOverride::Set { path: change.key.clone(), node: node(value) });
    match &change.value {
        OverrideValue::Text(text) => set(Value::Text(text.clone())),
        OverrideValue::Flag(flag) => set(Value::Bool(*flag)),
        OverrideValue::Number(number) => set(Value::Float(*number)),
        OverrideValue::Hydra(value) => parse_hydra(&change.key, value.as_deref(), place),
    }
}

fn parse_hydra(path: &str, value: Option<&str>, place: Origin) -> Result<ParsedOverride, Problem> {
    let delete = path.strip_prefix('~');
    let name = delete.unwrap_or_else(|| path.strip_prefix("++").or(path.strip_prefix('+')).unwrap_or(path));
    let path = key(name, place)?;
    // Hydra skips blanks after '='.
    let node = value.map(|value| read_value(value.trim_start_matches([' ', '\t']), place)).transpose()?;
    match (delete, node) {
        (Some(_), node) => Ok(ParsedOverride::Delete { path, node }),
        (None, Some(node)) => Ok(ParsedOverride::Set { path, node }),
        (None, None) => Err(refuse(place, "an override is written key=value; this one has no '='")
            .help("help: for example reader.batch_size=4; ~reader.batch_size resets it to the default")),
    }
}

/// The dotted key without `workload.`.
fn key(name: &str, place: Origin) -> Result<String, Problem> {
    if name == "workload" {
        return Err(refuse(place, "'workload=' chooses a file in DLIO")
            .help("help: give the name or file of the workload as the command's argument"));
    }
    if name == "hydra" || name.starts_with("hydra.") {
        return Err(refuse(place, "'hydra.' settings belong to Hydra and are not supported")
            .help("help: the folder of the results is 'output.folder'"));
    }
    let name = name.strip_prefix("workload.").unwrap_or(name);
    let fits = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$'))
    };
    if !name.split('.').all(fits) {
        return Err(refuse(place, format!("'{}' is not a valid key", secret::redact(name)))
            .help("help: a key is words with dots between them, such as reader.batch_size"));
    }
    Ok(name.to_owned())
}

fn read_value(text: &str, place: Origin) -> Result<Node, Problem> {
    hydra::parse(text, place).map_err(|refusal| match refusal {
        HydraError::Sweep => refuse(place, "several values for one key are a sweep").help(
            "help: write a list as [a,b]; quote a comma in a text; 'feedline sweep' takes --over KEY=A,B",
        ),
        HydraError::Interpolation => {
            refuse(place, "interpolations '${...}' are not supported").help("help: write the value itself")
        }
        HydraError::Other(why) => refuse(place, format!("the value cannot be read: {why}")),
    })
}

/// The keys that one override sets; none if they have a problem.
fn layer(path: &str, node: Node, place: Origin, problems: &mut Vec<Problem>) -> Vec<GivenKey> {
    let nested = path.rsplit('.').fold(node, |node, key| Node {
        value: Value::Map(vec![MapEntry { key: key.to_owned(), place, node }]),
        place,
    });
    let before = problems.len();
    let layer = flatten(&nested, problems);
    if problems.len() > before {
        return Vec::new();
    }
    if layer.is_empty() {
        let problem =
            refuse(place, format!("'{path}' is a section, and this sets none of its keys")).key(path);
        problems.push(problem.help(format!("help: ~{path} resets all its keys to their defaults")));
    }
    layer
}

fn delete(
    given: &mut Vec<GivenKey>,
    path: &str,
    node: Option<&Node>,
    place: Origin,
    problems: &mut Vec<Problem>,
) {
    let row = match look_up(path) {
        KeyLookup::Key(row) => Some(row),
        KeyLookup::Group => None,
        KeyLookup::Earlier(_) | KeyLookup::Unknown => {
            // Setting an unknown key reports the nearest name; a deletion uses the same lookup.
            layer(path, Node { value: Value::Null, place }, place, problems);
            return;
        }
    };
    let group = format!("{}.", canonical_path(path));
    let concerns = |given: &GivenKey| match row {
        Some(row) => given.row.key == row.key,
        None => given.row.key.starts_with(&group),
    };
    let Some(found) = given.iter().find(|given| concerns(given)) else {
        problems.push(refuse(place, format!("'{path}' is not set, so there is nothing to delete")).key(path));
        return;
    };
    if let Some(node) = node
        && node.value != found.node.value
    {
        let what = match found.row.kind == ValueKind::Secret {
            true => format!("'{path}' has another value"),
            false => format!("'{path}' is {}, not {}", found.node.value.found(), node.value.found()),
        };
        problems.push(refuse(place, what).key(path).other("set here", found.node.place));
        return;
    }
    given.retain(|given| !concerns(given));
}
