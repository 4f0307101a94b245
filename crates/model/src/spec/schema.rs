//! The type of a row of the key table, and the lookup of written keys. The rows themselves are in `table/`, which is
//! the only place for kinds and defaults.

use super::table::{self, history};
use super::value::{Value, shown};
use crate::units::{Bytes, Nanos, Share};

/// The kind of value that a key has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    Flag,
    /// A boolean that DLIO also accepts as a word: `'true'`, `'no'`, `'1'`.
    LooseFlag,
    /// A whole number from the first to the second bound; `4.0` is whole.
    Integer(i64, i64),
    /// A finite number from the first to the second bound.
    Number(f64, f64),
    /// The same, or 0, which turns something off. A number close to 0 would not do that.
    NumberOrZero(f64, f64),
    Text,
    /// A text that no output shows.
    Secret,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `off`, `seed` or `random`; an unquoted `off` is YAML's `false`, which is accepted.
    Shuffle,
    /// Whole numbers with this minimum.
    Integers(i64),
    /// A list of words, or a single word.
    Texts,
    /// Seconds, or a distribution of seconds.
    Time,
    /// Sizes of requests: one size, or a list of sizes that may end with `rest`.
    Requests,
    /// A map with arbitrary keys.
    Map,
    /// Parquet columns: maps of `name`, `dtype`, `size`, `read`.
    Columns,
    /// A count; `true` is 1, `false` is 0.
    FlagOrCount,
    /// Any value: nothing reads it.
    Anything,
}

/// How feedline handles a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// It has an effect.
    Used,
    /// It has an effect if checkpoints are saved; otherwise a value other than the default causes a warning.
    WithCheckpoints,
    /// It has an effect under the name dlio_benchmark; elsewhere a value other than the default causes a warning.
    InDropIn(&'static str),
    /// It has an effect if data or checkpoints are in an object store; otherwise a value other than the default causes
    /// a warning.
    OfObjects,
    /// It is valid but has no effect in this version; a value other than the default causes a warning.
    Later(&'static str),
    /// It has no effect by design; giving it causes a warning.
    NoEffect(&'static str),
    /// It changes what is measured but has no effect; giving it causes a warning, and the result is invalid.
    Unhonoured(&'static str),
}

/// The unit of a key's number. The value can also be a text with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUnit {
    None,
    Bytes,
    Seconds,
    /// From 0 to 1.
    Share,
}

impl KeyUnit {
    /// The number that a text stands for.
    pub(super) fn parse(self, text: &str) -> Option<Result<Value, String>> {
        match self {
            KeyUnit::None => None,
            KeyUnit::Bytes => Some(match text.parse::<Bytes>() {
                Ok(bytes) => Ok(Value::Int(bytes.0.into())),
                Err(error) => Err(error.to_string()),
            }),
            KeyUnit::Seconds => Some(match text.parse::<Nanos>() {
                Ok(span) => Ok(Value::Float(span.seconds())),
                Err(error) => Err(error.to_string()),
            }),
            KeyUnit::Share => Some(match text.parse::<Share>() {
                Ok(share) => Ok(Value::Float(share.value())),
                Err(error) => Err(error.to_string()),
            }),
        }
    }
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct KeyRow {
    /// Dotted, as DLIO spells it.
    pub key: &'static str,
    pub kind: ValueKind,
    pub unit: KeyUnit,
    /// In the form of a workload file; `null`: no value.
    pub default: &'static str,
    pub status: KeyStatus,
    pub help: &'static str,
    /// Other spellings with the same meaning, dotted.
    pub aliases: &'static [&'static str],
    /// Values that request the default behaviour, so that they need no warning.
    pub quiet: &'static [&'static str],
    /// Values that are valid but not supported yet, and why.
    pub later: (&'static [&'static str], &'static str),
}

pub(super) const fn row(
    key: &'static str,
    kind: ValueKind,
    default: &'static str,
    status: KeyStatus,
    help: &'static str,
) -> KeyRow {
    KeyRow {
        key,
        kind,
        unit: KeyUnit::None,
        default,
        status,
        help,
        aliases: &[],
        quiet: &[],
        later: (&[], ""),
    }
}

impl KeyRow {
    /// A number of bytes.
    pub(super) const fn bytes(self) -> KeyRow {
        KeyRow { unit: KeyUnit::Bytes, ..self }
    }

    /// A number of seconds.
    pub(super) const fn seconds(self) -> KeyRow {
        KeyRow { unit: KeyUnit::Seconds, ..self }
    }

    /// A number from 0 to 1.
    pub(super) const fn share(self) -> KeyRow {
        KeyRow { unit: KeyUnit::Share, ..self }
    }

    pub(crate) const fn aliases(self, aliases: &'static [&'static str]) -> KeyRow {
        KeyRow { aliases, ..self }
    }

    pub const fn quiet(self, quiet: &'static [&'static str]) -> KeyRow {
        KeyRow { quiet, ..self }
    }

    pub const fn later(self, values: &'static [&'static str], what: &'static str) -> KeyRow {
        KeyRow { later: (values, what), ..self }
    }

    pub(crate) fn is_unhonoured(&self) -> bool {
        matches!(self.status, KeyStatus::Unhonoured(_))
    }

    pub fn nullable(&self) -> bool {
        self.default == "null"
    }
}

/// The name of the kind in "expected ...".
pub fn expected(kind: ValueKind) -> String {
    match kind {
        ValueKind::Flag | ValueKind::LooseFlag => "true or false".into(),
        ValueKind::Integer(min, max) => format!("an integer {}", bounds(&min, &max, max >= table::COUNT)),
        ValueKind::Number(min, max) => format!("a number {}", bounds(&min, &max, max >= table::MOST)),
        ValueKind::NumberOrZero(min, max) => format!("0, or a number from {} to {}", shown(min), shown(max)),
        ValueKind::Text | ValueKind::Secret => "a text".into(),
        ValueKind::Choice(words) => format!("one of {}", words.join(", ")),
        ValueKind::Shuffle => "one of off, seed, random".into(),
        ValueKind::Integers(min) => format!("a list of integers of at least {min}"),
        ValueKind::Texts => "a list of texts".into(),
        ValueKind::Time => "seconds, or a distribution such as {mean: 0.5, stdev: 0.1}".into(),
        ValueKind::Requests => "a size, or a list of sizes such as [64KiB, 64KiB, rest]".into(),
        ValueKind::Map => "a map".into(),
        ValueKind::Columns => "a list of columns such as {name: label, dtype: float32, size: 1}".into(),
        ValueKind::FlagOrCount => "true, false or an integer of at least 0".into(),
        ValueKind::Anything => "any value".into(),
    }
}

fn bounds(min: &dyn std::fmt::Display, max: &dyn std::fmt::Display, open: bool) -> String {
    if open { format!("of at least {min}") } else { format!("from {min} to {max}") }
}

/// What a dotted path, as written, refers to.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyLookup {
    Key(&'static KeyRow),
    /// A key without effect that files of earlier DLIO versions have.
    Earlier(&'static KeyRow),
    /// A section or subsection.
    Group,
    Unknown,
}

/// The path with the sections of the table: DLIO reads `data_reader` as `reader`.
pub(super) fn canonical_path(path: &str) -> String {
    let renamed = history::SECTIONS.iter().find_map(|(other, section)| {
        let rest = path.strip_prefix(other).filter(|rest| rest.is_empty() || rest.starts_with('.'))?;
        Some(format!("{section}{rest}"))
    });
    renamed.unwrap_or_else(|| path.into())
}

/// The key that a section means if it is given as a word.
pub(super) fn word_for(group: &str) -> Option<&'static KeyRow> {
    let (_, key) = history::WORD_FOR.iter().find(|(section, _)| *section == group)?;
    table::rows().find(|row| row.key == *key)
}

/// The canonical name of a key with several spellings; an unknown key is returned unchanged.
pub fn canonical_key(path: &str) -> String {
    match look_up(path) {
        KeyLookup::Key(row) => row.key.to_owned(),
        KeyLookup::Earlier(_) | KeyLookup::Group | KeyLookup::Unknown => canonical_path(path),
    }
}

pub(super) fn look_up(path: &str) -> KeyLookup {
    let path = canonical_path(path);
    if let Some(row) = table::rows().find(|row| row.key == path || row.aliases.contains(&path.as_str())) {
        return KeyLookup::Key(row);
    }
    let prefix = format!("{path}.");
    if table::rows().any(|row| row.key.starts_with(&prefix)) {
        return KeyLookup::Group;
    }
    history::ROWS.iter().find(|row| row.key == path).map_or(KeyLookup::Unknown, KeyLookup::Earlier)
}

/// The names directly below `group` (empty: the top level), in table order.
pub(super) fn children(group: &str) -> Vec<&'static str> {
    let group = canonical_path(group);
    let mut names = Vec::new();
    for row in table::rows() {
        let rest = match group.as_str() {
            "" => Some(row.key),
            group => row.key.strip_prefix(group).and_then(|rest| rest.strip_prefix('.')),
        };
        let Some(name) = rest.and_then(|rest| rest.split('.').next()) else { continue };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The groups that contain a key with this name, or with this earlier name.
pub(super) fn homes(name: &str) -> Vec<&'static str> {
    let mut homes = Vec::new();
    for row in table::rows() {
        let called = |key: &str| key.rsplit('.').next() == Some(name);
        if let Some((group, _)) = row.key.rsplit_once('.')
            && (called(row.key) || row.aliases.iter().any(|alias| called(alias)))
            && !homes.contains(&group)
        {
            homes.push(group);
        }
    }
    homes
}

/// The name in `names` that `word` probably means.
pub fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    // At most half of the letters may differ: `lr` is not near `au`, `read_thread` is near `read_threads`.
    const NEAR: f64 = 0.5;
    let word = word.to_lowercase();
    let score = |name: &str| {
        strsim::normalized_damerau_levenshtein(&word, name).max(if name.starts_with(&word) {
            0.6
        } else {
            0.0
        })
    };
    let best = names.iter().map(|name| (score(name), *name)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > NEAR).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_key_and_alias_is_unique_and_no_key_is_a_group() {
        let mut seen = BTreeSet::new();
        for row in table::rows() {
            for key in std::iter::once(&row.key).chain(row.aliases) {
                assert!(seen.insert(*key), "{key} twice");
                assert!(matches!(look_up(key), KeyLookup::Key(found) if found.key == row.key), "{key}");
            }
            assert!(row.help.len() > 5 && !row.help.ends_with('.'), "{}: {}", row.key, row.help);
        }
        for key in &seen {
            let prefix = format!("{key}.");
            assert!(!seen.iter().any(|other| other.starts_with(&prefix)), "{key} is both a key and a group");
        }
    }

    #[test]
    fn paths_are_found_by_any_spelling() {
        assert!(
            matches!(look_up("data_reader.batch_size"), KeyLookup::Key(row) if row.key == "reader.batch_size")
        );
        assert!(matches!(look_up("data_reader"), KeyLookup::Group));
        assert!(matches!(look_up("output.metric"), KeyLookup::Group));
        assert!(
            matches!(look_up("model.model_size"), KeyLookup::Key(row) if row.key == "model.model_size_bytes")
        );
        assert!(matches!(look_up("data_readers"), KeyLookup::Unknown));
        assert!(matches!(look_up("dataset.formats"), KeyLookup::Unknown));
        assert_eq!(children("output"), ["folder", "log_file", "strict", "metric"]);
        assert_eq!(homes("exclude_start_steps"), ["output.metric"]);
        assert_eq!(canonical_key("data_reader.batch_size"), "reader.batch_size");
        assert_eq!(canonical_key("model.model_size"), "model.model_size_bytes");
        assert_eq!(canonical_key("ranks"), "ranks");
    }

    #[test]
    fn the_nearest_name_is_near() {
        let names = children("reader");
        for (word, expected) in [
            ("read_thread", Some("read_threads")),
            ("Batch_Size", Some("batch_size")),
            ("bacth_size", Some("batch_size")),
            ("prefetch", Some("prefetch_size")),
            ("xyz", None),
        ] {
            assert_eq!(nearest(word, &names), expected, "{word}");
        }
    }
}
