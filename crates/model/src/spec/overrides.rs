//! `--set` arguments: Hydra's override grammar, as far as it sets or deletes one key. They are layers on top of the
//! file, applied in order; what they set remembers which argument it came from.

use super::error::{Fault, Problem};
use super::hydra::{self, Refusal};
use super::layers::{Given, flatten, overlay};
use super::schema::{Found, canonical_path, look_up};
use super::value::{Entry, Node, Place, Value};

/// One argument, taken apart.
#[derive(Debug, PartialEq)]
enum Change {
    Set {
        path: String,
        node: Node,
    },
    /// Back to the default; with a value: only if it is that.
    Delete {
        path: String,
        node: Option<Node>,
    },
}

/// Applies every argument to the given keys, the first one first.
pub(super) fn apply(given: &mut Vec<Given>, overrides: &[String], problems: &mut Vec<Problem>) {
    for (index, argument) in overrides.iter().enumerate() {
        let place = Place::Set(index);
        match parse(argument, place) {
            Ok(Change::Set { path, node }) => set(given, &path, node, place, problems),
            Ok(Change::Delete { path, node }) => delete(given, &path, node.as_ref(), place, problems),
            Err(problem) => problems.push(problem),
        }
    }
}

fn refuse(place: Place, what: impl Into<String>) -> Problem {
    Problem::new(Fault::Override, place, what)
}

fn parse(argument: &str, place: Place) -> Result<Change, Problem> {
    let (path, value) = match argument.split_once('=') {
        Some((path, value)) => (path, Some(value)),
        None => (argument, None),
    };
    let delete = path.strip_prefix('~');
    let name = delete.unwrap_or_else(|| path.strip_prefix("++").or(path.strip_prefix('+')).unwrap_or(path));
    let path = key(name, place)?;
    // Hydra skips blanks after '='.
    let node = value.map(|value| read_value(value.trim_start_matches([' ', '\t']), place)).transpose()?;
    match (delete, node) {
        (Some(_), node) => Ok(Change::Delete { path, node }),
        (None, Some(node)) => Ok(Change::Set { path, node }),
        (None, None) => Err(refuse(place, "an override is written key=value, this one has no '='")
            .help("help: for example reader.batch_size=4; ~reader.batch_size goes back to the default")),
    }
}

/// The dotted key without `workload.`.
fn key(name: &str, place: Place) -> Result<String, Problem> {
    if name == "workload" {
        return Err(refuse(place, "'workload=' chooses a file in DLIO")
            .help("help: give the name or file of the workload as the command's argument"));
    }
    if name == "hydra" || name.starts_with("hydra.") {
        return Err(refuse(place, "'hydra.' settings belong to Hydra and mean nothing here")
            .help("help: the folder of the results is 'output.folder'"));
    }
    let name = name.strip_prefix("workload.").unwrap_or(name);
    let fits = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$'))
    };
    if !name.split('.').all(fits) {
        return Err(refuse(place, format!("'{name}' is no key"))
            .help("help: a key is words with dots between them, such as reader.batch_size"));
    }
    Ok(name.to_owned())
}

fn read_value(text: &str, place: Place) -> Result<Node, Problem> {
    hydra::parse(text, place).map_err(|refusal| match refusal {
        Refusal::Sweep => refuse(place, "several values for one key are a sweep").help(
            "help: write a list as [a,b]; quote a comma in a text; 'feedline sweep' takes --over KEY=A,B",
        ),
        Refusal::Interpolation => {
            refuse(place, "interpolations '${...}' are not supported").help("help: write the value itself")
        }
        Refusal::Other(why) => refuse(place, format!("the value cannot be read: {why}")),
    })
}

fn set(given: &mut Vec<Given>, path: &str, node: Node, place: Place, problems: &mut Vec<Problem>) {
    let nested = path.rsplit('.').fold(node, |node, key| Node {
        value: Value::Map(vec![Entry { key: key.to_owned(), place, node }]),
        place,
    });
    let before = problems.len();
    let layer = flatten(&nested, problems);
    if problems.len() > before {
        return;
    }
    if layer.is_empty() {
        let problem =
            refuse(place, format!("'{path}' is a section, and this sets none of its keys")).key(path);
        problems.push(problem.help(format!("help: ~{path} puts all its keys back to their defaults")));
    }
    overlay(given, layer);
}

fn delete(
    given: &mut Vec<Given>,
    path: &str,
    node: Option<&Node>,
    place: Place,
    problems: &mut Vec<Problem>,
) {
    let row = match look_up(path) {
        Found::Key(row) => Some(row),
        Found::Group => None,
        Found::Unknown => {
            // The look-up of a set finds the nearest name; a deletion asks it the same question.
            set(&mut Vec::new(), path, Node { value: Value::Null, place }, place, problems);
            return;
        }
    };
    let group = format!("{}.", canonical_path(path));
    let concerns = |given: &Given| match row {
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
        let what = format!("'{path}' is {}, not {}", found.node.value.found(), node.value.found());
        problems.push(refuse(place, what).key(path).other("set here", found.node.place));
        return;
    }
    given.retain(|given| !concerns(given));
}
