//! Reading figures out of a JSON document by path, and showing them. A figure that is missing is shown as `n/a`, so
//! that documents of other versions can be shown as far as they go.

use model::units::{Bytes, Nanos, grouped, significant};
use serde_json::Value;

use super::parts::Cell;

/// A JSON document, or a part of one that knows its own path.
#[derive(Clone, Debug)]
pub(super) struct Doc<'a> {
    value: Option<&'a Value>,
    path: String,
}

impl<'a> Doc<'a> {
    pub(super) fn new(value: &'a Value) -> Doc<'a> {
        Doc { value: Some(value), path: String::new() }
    }

    /// The part at a path such as `feedline.epochs.0.au_percent`. Keys with dots are not found.
    pub(super) fn at(&self, path: &str) -> Doc<'a> {
        let step = |value: &'a Value, name: &str| match value {
            Value::Array(list) => name.parse::<usize>().ok().and_then(|index| list.get(index)),
            value => value.get(name),
        };
        let value = self.value.and_then(|value| path.split('.').try_fold(value, step));
        Doc { value, path: self.below(path) }
    }

    fn below(&self, path: &str) -> String {
        if self.path.is_empty() { path.to_owned() } else { format!("{}.{path}", self.path) }
    }

    pub(super) fn exists(&self) -> bool {
        self.value.is_some_and(|value| !value.is_null())
    }

    pub(super) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    pub(super) fn number(&self) -> Option<f64> {
        self.value.and_then(Value::as_f64)
    }

    pub(super) fn count(&self) -> Option<u64> {
        self.value.and_then(Value::as_u64)
    }

    pub(super) fn flag(&self) -> Option<bool> {
        self.value.and_then(Value::as_bool)
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        self.value.and_then(Value::as_str)
    }

    /// A text, or a number as it is written.
    pub(super) fn shown(&self) -> String {
        match self.value {
            None | Some(Value::Null) => "n/a".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    /// The elements of a list.
    pub(super) fn each(&self) -> Vec<Doc<'a>> {
        let list = self.value.and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
        let of = |(index, value)| Doc { value: Some(value), path: self.below(&format!("{index}")) };
        list.iter().enumerate().map(of).collect()
    }

    /// The entries of an object.
    pub(super) fn entries(&self) -> Vec<(&'a str, Doc<'a>)> {
        let entries = self.value.and_then(Value::as_object).into_iter().flatten();
        entries
            .map(|(name, value)| (name.as_str(), Doc { value: Some(value), path: self.below(name) }))
            .collect()
    }

    /// A cell that shows the number, and says where it is from.
    pub(super) fn cell(&self, show: impl Fn(f64) -> String) -> Cell {
        let text = self.number().map_or("n/a".to_owned(), show);
        Cell { text, key: Some(self.path.clone()), value: self.value.cloned(), ..Cell::default() }
    }

    /// A cell that shows a text or a number as it is written.
    pub(super) fn plain(&self) -> Cell {
        Cell {
            text: self.shown(),
            key: Some(self.path.clone()),
            value: self.value.cloned(),
            ..Cell::default()
        }
    }
}

/// Ways to show a number.
pub(super) fn percent(value: f64) -> String {
    format!("{value:.2}")
}

pub(super) fn share(value: f64) -> String {
    format!("{:.1}", 100.0 * value)
}

pub(super) fn rate(value: f64) -> String {
    if value >= 99.95 { grouped(value.round() as u64) } else { significant(value) }
}

pub(super) fn whole(value: f64) -> String {
    grouped(value.round() as u64)
}

pub(super) fn seconds(value: f64) -> String {
    Nanos::from_seconds(value).to_string()
}

pub(super) fn nanos(value: f64) -> String {
    Nanos(value as u64).to_string()
}

pub(super) fn bytes(value: f64) -> String {
    Bytes(value as u64).to_string()
}
