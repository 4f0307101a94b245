//! Operations on a tree of values, as OmegaConf defines them: select, update and merge. Nothing here depends on Hydra's
//! keys.

use super::grammar::OverrideElement;
use crate::spec::value::{MapEntry, Node, Origin, Value};

/// Whether new keys are allowed; without, a map accepts only the keys that it has ("struct mode").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewKeys {
    Allowed,
    Refused,
}

pub(super) fn leaf(value: Value) -> Node {
    Node { value, place: Origin::Default }
}

pub(super) fn empty_map() -> Node {
    leaf(Value::Map(Vec::new()))
}

pub(super) fn text(text: impl Into<String>) -> Node {
    leaf(Value::Text(text.into()))
}

pub(super) fn texts<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Node {
    leaf(Value::List(items.into_iter().map(text).collect()))
}

pub(super) fn map(entries: impl IntoIterator<Item = (&'static str, Node)>) -> Node {
    let entry = |(key, node): (&str, Node)| MapEntry { key: key.to_owned(), place: Origin::Default, node };
    leaf(Value::Map(entries.into_iter().map(entry).collect()))
}

pub(super) fn split(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

/// The node of a value that an override gives.
pub(super) fn from_element(element: &OverrideElement) -> Result<Node, String> {
    Ok(leaf(match element {
        OverrideElement::Null => Value::Null,
        OverrideElement::Bool(flag) => Value::Bool(*flag),
        OverrideElement::Int(number) => Value::Int(*number),
        OverrideElement::Float(number) => Value::Float(*number),
        OverrideElement::Text(text) | OverrideElement::Quoted(text, _) => Value::Text(text.clone()),
        OverrideElement::List(items) => {
            Value::List(items.iter().map(from_element).collect::<Result<_, _>>()?)
        }
        OverrideElement::Map(pairs) => {
            let mut node = empty_map();
            for (key, value) in pairs {
                set_child(&mut node, key, from_element(value)?);
            }
            return Ok(node);
        }
        OverrideElement::Sweep(_) => return Err("a sweep is not a value".into()),
    }))
}

/// `???` marks a value that must be given.
pub(super) fn is_missing(node: &Node) -> bool {
    matches!(&node.value, Value::Text(text) if text == "???")
}

pub(super) fn is_container(node: &Node) -> bool {
    matches!(node.value, Value::Map(_) | Value::List(_))
}

fn index(key: &str, length: usize) -> Result<Option<usize>, String> {
    let index: usize = key.parse().map_err(|_| format!("a list has no '{key}'; its items have numbers"))?;
    Ok(Some(index).filter(|index| *index < length))
}

/// The child of a container.
pub(super) fn child<'a>(node: &'a Node, key: &str) -> Result<Option<&'a Node>, String> {
    match &node.value {
        Value::Map(_) => Ok(node.entry(key).map(|entry| &entry.node)),
        Value::List(items) => Ok(index(key, items.len())?.map(|index| &items[index])),
        other => Err(format!("this is {}, so it has no '{key}'", other.found())),
    }
}

fn child_mut<'a>(node: &'a mut Node, key: &str) -> Result<Option<&'a mut Node>, String> {
    match &mut node.value {
        Value::Map(entries) => {
            Ok(entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node))
        }
        Value::List(items) => Ok(index(key, items.len())?.map(|index| &mut items[index])),
        other => Err(format!("this is {}, so it has no '{key}'", other.found())),
    }
}

/// The node at `path`, without resolving interpolations.
pub(super) fn get<'a>(root: &'a Node, path: &[&str]) -> Option<&'a Node> {
    path.iter().try_fold(root, |node, key| child(node, key).ok().flatten())
}

pub(super) fn get_mut<'a>(root: &'a mut Node, path: &[&str]) -> Option<&'a mut Node> {
    path.iter().try_fold(root, |node, key| child_mut(node, key).ok().flatten())
}

/// Sets the child of a map; anything else becomes a map first.
pub(super) fn set_child(node: &mut Node, key: &str, value: Node) {
    if !matches!(node.value, Value::Map(_)) {
        *node = empty_map();
    }
    let Value::Map(entries) = &mut node.value else { return };
    match entries.iter_mut().find(|entry| entry.key == key) {
        Some(entry) => entry.node = value,
        None => entries.push(MapEntry { key: key.to_owned(), place: Origin::Default, node: value }),
    }
}

/// Sets the node at `path`; the way to it is created.
pub(super) fn put(root: &mut Node, path: &[&str], value: Node) {
    match path {
        [] => *root = value,
        [key, rest @ ..] => {
            let mut inner = child(root, key).ok().flatten().cloned().unwrap_or_else(empty_map);
            put(&mut inner, rest, value);
            set_child(root, key, inner);
        }
    }
}

pub(super) fn remove(node: &mut Node, key: &str) -> Option<Node> {
    let Value::Map(entries) = &mut node.value else { return None };
    let at = entries.iter().position(|entry| entry.key == key)?;
    Some(entries.remove(at).node)
}

fn refuse_new(key: &str) -> String {
    format!("there is no key '{key}'")
}

/// Merges `over` into `base`: maps merge key by key, anything else is replaced. A missing value replaces nothing.
pub(super) fn merge(base: &mut Node, over: Node, new_keys: NewKeys) -> Result<(), String> {
    match (&mut base.value, over.value) {
        (Value::Map(_), Value::Map(over_entries)) => {
            for entry in over_entries {
                match child_mut(base, &entry.key)? {
                    Some(_) if is_missing(&entry.node) => {}
                    Some(old)
                        if matches!((&old.value, &entry.node.value), (Value::Map(_), Value::Map(_))) =>
                    {
                        merge(old, entry.node, new_keys)?;
                    }
                    Some(old) if is_mismatch(old, &entry.node) => return Err(mismatch(&entry.key)),
                    Some(old) => *old = entry.node,
                    None if new_keys == NewKeys::Allowed => set_child(base, &entry.key, entry.node),
                    None => return Err(refuse_new(&entry.key)),
                }
            }
        }
        (_, value) => *base = Node { value, place: over.place },
    }
    Ok(())
}

fn is_mismatch(old: &Node, new: &Node) -> bool {
    is_container(old)
        && is_container(new)
        && matches!(old.value, Value::Map(_)) != matches!(new.value, Value::Map(_))
}

fn mismatch(key: &str) -> String {
    format!("'{key}': a list cannot be merged with a map")
}

/// Sets the value at `path`; maps and lists are merged. Without new keys, every key on the way must exist.
pub(super) fn update(root: &mut Node, path: &[String], value: Node, new_keys: NewKeys) -> Result<(), String> {
    let Some((last, way)) = path.split_last() else { return Err("the key is empty".into()) };
    let mut node = root;
    for key in way {
        // A single value on the way becomes a map.
        let is_way = child(node, key)?.is_some_and(is_container);
        if !is_way {
            let known = child(node, key)?.is_some();
            if matches!(node.value, Value::List(_)) && !known {
                return Err(refuse_new(key));
            }
            if !known && new_keys == NewKeys::Refused {
                return Err(refuse_new(key));
            }
            match child_mut(node, key)? {
                Some(old) => *old = empty_map(),
                None => set_child(node, key, empty_map()),
            }
        }
        node = child_mut(node, key)?.ok_or_else(|| refuse_new(key))?;
    }
    let may_add = matches!(node.value, Value::Map(_)) && new_keys == NewKeys::Allowed;
    match child_mut(node, last)? {
        Some(old) if is_mismatch(old, &value) => Err(mismatch(last)),
        Some(old) if is_container(old) && is_container(&value) => merge(old, value, new_keys),
        Some(old) => {
            *old = value;
            Ok(())
        }
        None if may_add => {
            set_child(node, last, value);
            Ok(())
        }
        None => Err(refuse_new(last)),
    }
}

/// Python's `==`: numbers of different types can be equal, and the order of keys does not matter.
pub(super) fn equal(a: &Node, b: &Node) -> bool {
    let number = |node: &Node| match node.value {
        Value::Bool(flag) => Some(f64::from(u8::from(flag))),
        Value::Int(number) => Some(number as f64),
        Value::Float(number) => Some(number),
        _ => None,
    };
    match (&a.value, &b.value) {
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Map(own), Value::Map(other)) => {
            let in_other =
                |entry: &MapEntry| b.entry(&entry.key).is_some_and(|other| equal(&entry.node, &other.node));
            own.len() == other.len() && own.iter().all(in_other)
        }
        (Value::Int(a), Value::Int(b)) => a == b,
        _ => number(a).map_or(a.value == b.value, |left| number(b) == Some(left)),
    }
}
