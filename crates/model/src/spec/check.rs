//! Checks a written value against the kind of its key: returns the typed setting, or the problem.

use std::borrow::Cow;

use super::error::{Problem, ProblemKind};
use super::names::Shuffle;
use super::request_sizes::RequestSizes;
use super::scalar;
use super::schema::{KeyRow, ValueKind, expected, nearest};
use super::table::{COUNT, history};
use super::time::Time;
use super::value::{MapEntry, Node, Value, shorten, shown};
use crate::secret::Secret;
use crate::spec::typed::Column;

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Setting {
    Nothing,
    Flag(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    Secret(Secret),
    Integers(Vec<i64>),
    Texts(Vec<String>),
    Time(Time),
    Requests(RequestSizes),
    Columns(Vec<Column>),
    /// A map that is accepted but not examined.
    Map(usize),
}

pub(super) fn check(row: &KeyRow, node: &Node) -> Result<Setting, Problem> {
    let node = present(row, node);
    let node = &*in_unit(row, &node)?;
    if node.value == Value::Null {
        return if row.nullable() { Ok(Setting::Nothing) } else { Err(empty(row, node)) };
    }
    let key = row.key;
    match row.kind {
        ValueKind::Flag => flag(row, node).map(Setting::Flag),
        ValueKind::LooseFlag => loose_flag(row, node).map(Setting::Flag),
        ValueKind::Integer(min, max) => integer(row, node, min, max).map(Setting::Integer),
        ValueKind::Number(min, max) => number(row, node, |number| (min..=max).contains(&number)),
        ValueKind::NumberOrZero(min, max) => {
            number(row, node, |number| number == 0.0 || (min..=max).contains(&number))
        }
        ValueKind::Text => text(row, node).map(Setting::Text),
        ValueKind::Secret => text(row, node).map(|text| Setting::Secret(Secret::new(text))),
        ValueKind::Choice(words) => choice(row, node, words).map(Setting::Text),
        ValueKind::Shuffle => shuffle(row, node).map(Setting::Text),
        ValueKind::Integers(min) => {
            let item = |item| integer(row, item, min, COUNT);
            list(row, node)?.iter().map(item).collect::<Result<_, _>>().map(Setting::Integers)
        }
        ValueKind::Texts => {
            if let Value::Text(word) = &node.value {
                return Ok(Setting::Texts(vec![word.clone()]));
            }
            let item = |item| text(row, item);
            list(row, node)?.iter().map(item).collect::<Result<_, _>>().map(Setting::Texts)
        }
        ValueKind::Time => Time::read(key, node).map(Setting::Time),
        ValueKind::Requests => RequestSizes::read(row, node).map(Setting::Requests),
        ValueKind::Map => match &node.value {
            Value::Map(entries) => Ok(Setting::Map(entries.len())),
            _ => Err(wrong(row, node)),
        },
        ValueKind::FlagOrCount => match node.value {
            Value::Bool(flag) => Ok(Setting::Integer(flag.into())),
            _ => integer(row, node, 0, COUNT).map(Setting::Integer),
        },
        ValueKind::Anything => Ok(Setting::Nothing),
        ValueKind::Columns => list(row, node)?
            .iter()
            .map(|item| column(row, item))
            .collect::<Result<_, _>>()
            .map(Setting::Columns),
    }
}

/// The node with the present name of a value that was renamed.
fn present<'a>(row: &KeyRow, node: &'a Node) -> Cow<'a, Node> {
    let earlier =
        |(key, value, _): &&(&str, &str, &str)| *key == row.key && scalar::resolve(value) == node.value;
    match history::VALUES.iter().find(earlier) {
        Some((_, _, value)) => Cow::Owned(Node { value: scalar::resolve(value), place: node.place }),
        None => Cow::Borrowed(node),
    }
}

/// The node with the number that a text such as `4KiB` stands for, if the key has a unit.
fn in_unit<'a>(row: &KeyRow, node: &'a Node) -> Result<Cow<'a, Node>, Problem> {
    let Value::Text(text) = &node.value else { return Ok(Cow::Borrowed(node)) };
    match row.unit.parse(text) {
        // A time can also be a map, whose parts have units.
        _ if row.kind == ValueKind::Time => Ok(Cow::Borrowed(node)),
        None => Ok(Cow::Borrowed(node)),
        Some(Ok(value)) => Ok(Cow::Owned(Node { value, place: node.place })),
        Some(Err(why)) => {
            let what = format!("'{}' cannot be '{}'", row.key, shorten(text));
            Err(Problem::new(ProblemKind::WrongType, node.place, what).key(row.key).help(why))
        }
    }
}

fn empty(row: &KeyRow, node: &Node) -> Problem {
    Problem::new(ProblemKind::WrongType, node.place, format!("'{}' has no value", row.key))
        .key(row.key)
        .help(format!("expected: {}", expected(row.kind)))
        .help(format!("help: the default is {}", row.default))
}

fn wrong(row: &KeyRow, node: &Node) -> Problem {
    let found = match row.kind {
        ValueKind::Secret => "something else".to_owned(),
        _ => node.value.found(),
    };
    let what = format!("'{}' must be {}, found {found}", row.key, article(row.kind));
    Problem::new(ProblemKind::WrongType, node.place, what).key(row.key)
}

/// The kind without its bounds, which do not matter for a wrong type.
fn article(kind: ValueKind) -> String {
    match kind {
        ValueKind::Integer(..) => "an integer".into(),
        ValueKind::Number(..) | ValueKind::NumberOrZero(..) => "a number".into(),
        ValueKind::Integers(_) => "a list of integers".into(),
        other => expected(other),
    }
}

fn out_of_range(row: &KeyRow, node: &Node, value: &dyn std::fmt::Display) -> Problem {
    Problem::new(ProblemKind::OutOfRange, node.place, format!("'{}' cannot be {value}", row.key))
        .key(row.key)
        .help(format!("allowed: {}", expected(row.kind)))
        .help(format!("meaning: {}", row.help))
}

fn flag(row: &KeyRow, node: &Node) -> Result<bool, Problem> {
    match &node.value {
        Value::Bool(flag) => Ok(*flag),
        Value::Text(word) if loose_word(word).is_some() => {
            Err(wrong(row, node).help("help: write true or false"))
        }
        _ => Err(wrong(row, node)),
    }
}

fn loose_word(word: &str) -> Option<bool> {
    match word.to_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn loose_flag(row: &KeyRow, node: &Node) -> Result<bool, Problem> {
    match &node.value {
        Value::Text(word) => loose_word(word).ok_or_else(|| wrong(row, node)),
        Value::Int(number @ (0 | 1)) => Ok(*number == 1),
        _ => flag(row, node),
    }
}

fn integer(row: &KeyRow, node: &Node, min: i64, max: i64) -> Result<i64, Problem> {
    let whole = match &node.value {
        Value::Int(number) => *number,
        // Above 2^53 a double does not identify an integer; the range check below rejects those.
        Value::Float(number) if number.fract() == 0.0 => *number as i128,
        Value::Float(number) if !number.is_finite() => return Err(out_of_range(row, node, number)),
        Value::Float(number) => {
            return Err(Problem::new(
                ProblemKind::WrongType,
                node.place,
                format!("'{}' must be a whole number, found {number}", row.key),
            )
            .key(row.key));
        }
        _ => return Err(wrong(row, node)),
    };
    match i64::try_from(whole) {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ if whole > i128::from(max) => {
            Err(out_of_range(row, node, &whole).help(format!("note: the largest is {max}")))
        }
        _ => Err(out_of_range(row, node, &whole)),
    }
}

fn number(row: &KeyRow, node: &Node, allowed: impl Fn(f64) -> bool) -> Result<Setting, Problem> {
    let number = match &node.value {
        Value::Int(number) => *number as f64,
        Value::Float(number) => *number,
        _ => return Err(wrong(row, node)),
    };
    // NaN is in no range.
    if allowed(number) { Ok(Setting::Number(number)) } else { Err(out_of_range(row, node, &shown(number))) }
}

fn text(row: &KeyRow, node: &Node) -> Result<String, Problem> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            Err(wrong(row, node).help("help: put it in quotes if it is meant as text"))
        }
        _ => Err(wrong(row, node)),
    }
}

fn choice(row: &KeyRow, node: &Node, words: &[&str]) -> Result<String, Problem> {
    let Value::Text(word) = &node.value else { return Err(wrong(row, node)) };
    if words.contains(&word.as_str()) {
        return Ok(word.clone());
    }
    let what = format!("'{}' cannot be '{}'", row.key, shorten(word));
    let problem = Problem::new(ProblemKind::UnknownName, node.place, what).key(row.key);
    let problem = match nearest(word, words) {
        Some(near) => problem.help(format!("help: did you mean '{near}'?")),
        None => problem,
    };
    Err(problem.help(format!("allowed: {}", words.join(", "))))
}

fn shuffle(row: &KeyRow, node: &Node) -> Result<String, Problem> {
    match &node.value {
        Value::Bool(false) => Ok(Shuffle::Off.name().into()),
        Value::Bool(true) => {
            let what = format!("'{}' must be off, seed or random, found the boolean true", row.key);
            Err(Problem::new(ProblemKind::WrongType, node.place, what)
                .key(row.key)
                .help("help: write 'seed' for the same order in every run, 'random' for a new one"))
        }
        _ => choice(row, node, Shuffle::NAMES),
    }
}

fn list<'a>(row: &KeyRow, node: &'a Node) -> Result<&'a [Node], Problem> {
    match &node.value {
        Value::List(items) => Ok(items),
        _ => Err(wrong(row, node)),
    }
}

const COLUMN_KEYS: &[&str] = &["name", "dtype", "size", "read"];
const COLUMN_TYPES: &[&str] = &[
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32",
    "float64", "string", "binary", "bool", "list",
];

fn column(row: &KeyRow, node: &Node) -> Result<Column, Problem> {
    let Value::Map(entries) = &node.value else { return Err(wrong(row, node)) };
    let mut column = Column { name: String::new(), dtype: "float32".into(), size: 1, read: true };
    for entry in entries {
        let part = |key, kind| KeyRow { key, kind, help: "a part of a column", ..*row };
        let node = &entry.node;
        match entry.key.as_str() {
            "name" => column.name = text(&part("dataset.parquet.columns.name", ValueKind::Text), node)?,
            "dtype" => {
                let part = part("dataset.parquet.columns.dtype", ValueKind::Choice(COLUMN_TYPES));
                column.dtype = choice(&part, node, COLUMN_TYPES)?;
            }
            "size" => {
                let part = part("dataset.parquet.columns.size", ValueKind::Integer(1, COUNT));
                column.size = integer(&part, node, 1, COUNT)?.unsigned_abs();
            }
            "read" => column.read = flag(&part("dataset.parquet.columns.read", ValueKind::Flag), node)?,
            _ => return Err(unknown_column_key(row, entry)),
        }
    }
    if column.name.is_empty() {
        let what = format!("a column of '{}' has no name", row.key);
        return Err(Problem::new(ProblemKind::WrongType, node.place, what).key(row.key));
    }
    Ok(column)
}

fn unknown_column_key(row: &KeyRow, entry: &MapEntry) -> Problem {
    let what = format!("'{}' is not part of a column of '{}'", entry.key, row.key);
    Problem::new(ProblemKind::UnknownKey, entry.place, what)
        .key(row.key)
        .help(format!("allowed: {}", COLUMN_KEYS.join(", ")))
}
