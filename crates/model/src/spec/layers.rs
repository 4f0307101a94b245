//! From trees to given keys: every written key under its canonical name, with its place. The file is the first layer;
//! each override is another layer on top.

use super::error::{Problem, ProblemKind};
use super::schema::{KeyLookup, KeyRow, canonical_path, children, homes, look_up, nearest, word_for};
use super::value::{MapEntry, Node, Origin, Value};

/// A key that was given.
#[derive(Clone, Debug)]
pub(super) struct GivenKey {
    pub row: &'static KeyRow,
    /// Dotted, as written.
    pub spelled: String,
    pub place: Origin,
    pub node: Node,
}

impl GivenKey {
    /// Whether it has the name that DLIO reads.
    fn is_present(&self) -> bool {
        canonical_path(&self.spelled) == self.row.key
    }
}

/// The keys in the tree. Unknown keys, and sections that are not maps, become problems. Keys that only earlier DLIO
/// versions had are accepted in a file, which may be that old; in an override they are mistakes.
pub(super) fn flatten(root: &Node, problems: &mut Vec<Problem>) -> Vec<GivenKey> {
    let mut given = Vec::new();
    walk("", root.entries(), &mut given, problems);
    given
}

fn walk(group: &str, entries: &[MapEntry], given: &mut Vec<GivenKey>, problems: &mut Vec<Problem>) {
    for entry in entries {
        let path = join(group, &entry.key);
        let key = |row, spelled| GivenKey { row, spelled, place: entry.place, node: entry.node.clone() };
        match (look_up(&path), &entry.node.value) {
            (KeyLookup::Key(row), _) => given.push(key(row, path)),
            (KeyLookup::Earlier(row), _) if matches!(entry.place, Origin::File(_)) => {
                given.push(key(row, path));
            }
            (KeyLookup::Group, Value::Map(inner)) => walk(&path, inner, given, problems),
            (KeyLookup::Group, Value::Null) => {}
            (KeyLookup::Group, value) => match word_for(&path) {
                Some(row) if matches!(value, Value::Text(_)) => given.push(key(row, path)),
                _ => problems.push(not_a_section(&path, entry)),
            },
            (KeyLookup::Earlier(_) | KeyLookup::Unknown, _) => problems.push(unknown(group, entry)),
        }
    }
}

fn not_a_section(path: &str, entry: &MapEntry) -> Problem {
    let what = format!("'{path}' is a section and needs keys, found {}", entry.node.value.found());
    Problem::new(ProblemKind::WrongType, entry.node.place, what)
        .key(path)
        .help(format!("keys of '{path}': {}", children(path).join(", ")))
}

pub(super) fn join(group: &str, key: &str) -> String {
    if group.is_empty() { key.into() } else { format!("{group}.{key}") }
}

fn unknown(group: &str, entry: &MapEntry) -> Problem {
    let path = join(group, &entry.key);
    let names = children(group);
    let homes: Vec<String> = homes(&entry.key).iter().map(|home| format!("'{home}'")).collect();
    if !homes.is_empty() {
        let what = format!("the key '{path}' is in the wrong place");
        return Problem::new(ProblemKind::MisplacedKey, entry.place, what)
            .key(&path)
            .help(format!("help: it belongs under {}", homes.join(" or ")));
    }
    let problem =
        Problem::new(ProblemKind::UnknownKey, entry.place, format!("unknown key '{path}'")).key(&path);
    match nearest(&entry.key, &names) {
        Some(near) => problem.help(format!("help: did you mean '{near}'?")),
        None if group.is_empty() => problem.help(format!("known sections: {}", names.join(", "))),
        None => problem.help(format!("known keys of '{}': {}", canonical_path(group), names.join(", "))),
    }
}

/// A file may contain a key only once. Two spellings with the same value are one key; with different values they are
/// ambiguous. Otherwise, by DLIO's rule, the present name counts, and the keys with earlier names are returned, too.
pub(super) fn merge_spellings(
    given: Vec<GivenKey>,
    by_dlio: bool,
    problems: &mut Vec<Problem>,
) -> (Vec<GivenKey>, Vec<GivenKey>) {
    let mut merged: Vec<GivenKey> = Vec::with_capacity(given.len());
    let mut unread = Vec::new();
    for mut second in given {
        match merged.iter_mut().find(|first| first.row.key == second.row.key) {
            None => merged.push(second),
            Some(first) if first.node.value == second.node.value => {}
            Some(first) if by_dlio && first.is_present() != second.is_present() => {
                if second.is_present() {
                    std::mem::swap(first, &mut second);
                }
                unread.push(second);
            }
            Some(first) => {
                let what = format!("'{}' and '{}' are the same key", first.spelled, second.spelled);
                let problem = Problem::new(ProblemKind::DuplicateKey, second.place, what)
                    .key(second.row.key)
                    .other("first given here", first.place);
                problems.push(problem.help("help: keep one of them"));
            }
        }
    }
    (merged, unread)
}

/// Adds a layer: existing keys are replaced, independent of spelling, and maps are merged.
pub(super) fn overlay(base: &mut Vec<GivenKey>, layer: Vec<GivenKey>) {
    for over in layer {
        match base.iter_mut().find(|given| given.row.key == over.row.key) {
            Some(given) => {
                given.node.overlay(over.node);
                given.spelled = over.spelled;
                given.place = over.place;
            }
            None => base.push(over),
        }
    }
}
