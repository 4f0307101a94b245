//! The search path: sources of configuration files in the order in which they are searched. The first file with the
//! wanted name is used; the options of a group come from all sources.

use std::fmt::Debug;

use super::CompositionError;
use super::entry::{DefaultEntry, read_defaults};
use super::tree;
use crate::spec::value::{Node, Value};
use crate::spec::{WorkloadSource, config_tree};

/// A place with configuration files, such as a folder. Paths are relative to it, without the extension `.yaml`.
pub trait ConfigSource: Debug {
    /// Who added it to the search path, such as `command-line`.
    fn provider(&self) -> &str;

    /// Its kind: `pkg`, `file` or `structured`.
    fn scheme(&self) -> &str;

    fn path(&self) -> &str;

    /// The texts of a configuration, merged in order; empty if there is none.
    fn read(&self, path: &str) -> Result<Vec<String>, String>;

    /// The content of a group; `None` if it is not one. The path of the root is empty.
    fn list(&self, group: &str) -> Option<GroupListing>;
}

/// The names in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupListing {
    pub configs: Vec<String>,
    pub groups: Vec<String>,
}

/// Sources in the order of searching.
#[derive(Clone, Debug)]
pub struct Repository<'a> {
    pub sources: Vec<&'a dyn ConfigSource>,
}

/// A configuration file.
#[derive(Clone, Debug)]
pub(super) struct LoadedConfig {
    pub node: Node,
    pub defaults: Vec<DefaultEntry>,
    /// The package in the header `# @package NAME`.
    pub header: Option<String>,
}

fn without_extension(path: &str) -> &str {
    path.strip_suffix(".yaml").unwrap_or(path)
}

impl Repository<'_> {
    /// The file of the first source that has it.
    pub(super) fn load(&self, path: &str) -> Result<Option<LoadedConfig>, CompositionError> {
        for source in &self.sources {
            let texts = source.read(without_extension(path)).map_err(CompositionError)?;
            if !texts.is_empty() {
                let name =
                    format!("{}://{}/{}.yaml", source.scheme(), source.path(), without_extension(path));
                return load_texts(&name, path, &texts).map(Some);
            }
        }
        Ok(None)
    }

    pub(super) fn is_group(&self, path: &str) -> bool {
        self.sources.iter().any(|source| source.list(path).is_some())
    }

    fn names(&self, group: &str, names: impl Fn(GroupListing) -> Vec<String>) -> Vec<String> {
        let listings = self.sources.iter().filter_map(|source| source.list(group));
        let mut all: Vec<String> = listings.flat_map(names).collect();
        all.sort();
        all.dedup();
        all
    }

    /// The options of a group.
    pub fn options(&self, group: &str) -> Vec<String> {
        self.names(group, |listing| listing.configs)
    }

    /// Every group that has options, sorted.
    pub fn groups(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![String::new()];
        while let Some(parent) = open.pop() {
            for name in self.names(&parent, |listing| listing.groups) {
                let group = if parent.is_empty() { name } else { format!("{parent}/{name}") };
                if !self.options(&group).is_empty() {
                    found.push(group.clone());
                }
                // Two folders that link to each other have no end.
                if group.matches('/').count() < 8 {
                    open.push(group);
                }
            }
        }
        found.sort();
        found
    }

    pub(super) fn not_found(&self, group: Option<&str>, path: &str, is_primary: bool) -> CompositionError {
        let mut text = match is_primary {
            true => format!("there is no primary config '{path}'"),
            false => format!("there is no config '{path}'"),
        };
        if let Some(group) = group {
            text.push_str(&format!("\nAvailable options of '{group}':"));
            self.options(group).iter().for_each(|option| text.push_str(&format!("\n\t{option}")));
        }
        text.push_str("\nSearch path:");
        for source in &self.sources {
            text.push_str(&format!("\n\t{}: {}://{}", source.provider(), source.scheme(), source.path()));
        }
        CompositionError(text)
    }
}

fn load_texts(name: &str, path: &str, texts: &[String]) -> Result<LoadedConfig, CompositionError> {
    let mut node = tree::empty_map();
    let mut header = None;
    for text in texts {
        let part = config_tree(WorkloadSource { name, text })
            .map_err(|error| CompositionError(error.to_string()))?;
        tree::merge(&mut node, part, tree::NewKeys::Allowed).map_err(CompositionError)?;
        header = header.or(read_header(name, text)?);
    }
    if !matches!(node.value, Value::Map(_)) {
        return Err(CompositionError(format!(
            "{name} must be a map of keys, but it is {}",
            node.value.found()
        )));
    }
    let defaults = match tree::remove(&mut node, "defaults") {
        Some(list) => read_defaults(path, &list)?,
        None => Vec::new(),
    };
    Ok(LoadedConfig { node, defaults, header })
}

/// The package in the comments at the top of a file.
fn read_header(name: &str, text: &str) -> Result<Option<String>, CompositionError> {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let Some(comment) = line.strip_prefix('#').map(|line| line.trim_start_matches('#').trim()) else {
            break;
        };
        let Some(header) = comment.strip_prefix('@') else { break };
        let words: Vec<&str> = header.split_whitespace().collect();
        match words[..] {
            ["package", package] => return Ok(Some(package.to_owned())),
            [_, _] => {}
            _ => {
                return Err(CompositionError(format!(
                    "{name}: a header is written '# @package NAME', found '{line}'"
                )));
            }
        }
    }
    Ok(None)
}

/// Whether two configuration texts have the same content.
pub fn same_content(a: &[String], b: &[String]) -> bool {
    let load = |texts: &[String]| load_texts("config", "config", texts).ok();
    match (load(a), load(b)) {
        (Some(a), Some(b)) => {
            tree::equal(&a.node, &b.node) && a.defaults == b.defaults && a.header == b.header
        }
        _ => false,
    }
}
