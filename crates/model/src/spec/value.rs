//! The tree of a workload text before keys are interpreted: plain values, each with its place. YAML and overrides both
//! become this tree; nothing in this file depends on DLIO's keys.

use crate::secret::redact;

/// A range of one line of a source text; line and column count from 1, the width is in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub line: usize,
    pub column: usize,
    pub width: usize,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    File(Span),
    /// The n-th override.
    Override(usize),
    /// Not written: it follows from a default.
    Default,
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub value: Value,
    pub place: Origin,
}

/// One `key: value` of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MapEntry {
    pub key: String,
    pub place: Origin,
    pub node: Node,
}

/// A value in YAML or in an override.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// Saturates at the limits of `i128`, which are out of every key's range.
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<MapEntry>),
}

impl Value {
    /// The value as shown in an error.
    pub(crate) fn found(&self) -> String {
        match self {
            Value::Null => "nothing (null)".into(),
            Value::Bool(flag) => format!("the boolean {flag}"),
            Value::Int(number) => format!("the integer {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Text(text) => format!("the text '{}'", shorten(&redact(text))),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map".into(),
        }
    }
}

impl Node {
    pub(crate) fn entries(&self) -> &[MapEntry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&MapEntry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// Merges `over` into this node: maps merge key by key, anything else is replaced (OmegaConf's `merge`).
    pub(crate) fn overlay(&mut self, over: Node) {
        let over_entries = match (&self.value, over.value) {
            (Value::Map(_), Value::Map(entries)) => entries,
            (_, value) => {
                *self = Node { value, place: over.place };
                return;
            }
        };
        let Value::Map(entries) = &mut self.value else { return };
        for entry in over_entries {
            match entries.iter_mut().find(|old| old.key == entry.key) {
                Some(old) => old.node.overlay(entry.node),
                None => entries.push(entry),
            }
        }
    }
}

/// A number as shown in messages: very small and very large ones have an exponent.
pub(crate) fn shown(number: f64) -> String {
    match number == 0.0 || !number.is_finite() || (1e-4..1e16).contains(&number.abs()) {
        true => number.to_string(),
        false => format!("{number:e}"),
    }
}

/// A text, shortened to fit into an error message.
pub(crate) fn shorten(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return text.escape_debug().to_string().replace("\\'", "'");
    }
    let head: String = text.chars().take(LONGEST).collect();
    format!("{}...", head.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        Node { value, place: Origin::Default }
    }

    fn map(pairs: &[(&str, Value)]) -> Value {
        let entry = |(key, value): &(&str, Value)| MapEntry {
            key: (*key).into(),
            place: Origin::Default,
            node: node(value.clone()),
        };
        Value::Map(pairs.iter().map(entry).collect())
    }

    #[test]
    fn overlay_merges_maps_and_replaces_the_rest() {
        let mut base = node(map(&[("a", Value::Int(1)), ("b", map(&[("c", Value::Int(2))]))]));
        base.overlay(node(map(&[("b", map(&[("d", Value::Int(3))])), ("a", Value::Null)])));
        let both = map(&[("c", Value::Int(2)), ("d", Value::Int(3))]);
        assert_eq!(base.value, map(&[("a", Value::Null), ("b", both)]));

        let mut number = node(Value::Float(0.5));
        number.overlay(node(map(&[("mean", Value::Int(1))])));
        assert_eq!(number.value, map(&[("mean", Value::Int(1))]));
    }

    #[test]
    fn long_and_strange_texts_are_shown_safely() {
        assert_eq!(shorten("it's"), "it's");
        assert_eq!(shorten("a\nb"), "a\\nb");
        assert_eq!(shorten(&"x".repeat(100)), format!("{}...", "x".repeat(60)));
    }
}
