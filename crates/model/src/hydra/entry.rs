//! One entry of a defaults list: the file or the config group that it names, where its file is, and under which package
//! the file is merged.

use super::CompositionError;
use crate::spec::value::{Node, Value};

/// The chosen option of a config group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupChoice {
    Nothing,
    Name(String),
    /// Several options, merged in order.
    Names(Vec<String>),
}

/// An entry of a defaults list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DefaultEntry {
    pub(super) kind: DefaultKind,
    pub(super) package: Option<String>,
    /// `# @package` of the file itself.
    pub(super) header: Option<String>,
    pub(super) is_optional: bool,
    pub(super) is_override: bool,
    /// Added by `+group=option`.
    pub(super) is_appended: bool,
    pub(super) is_primary: bool,
    pub(super) is_deleted: bool,
    pub(super) parent_folder: String,
    pub(super) parent_package: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DefaultKind {
    /// Hydra's settings and the application's configuration together.
    Root,
    /// The content of the file that has the list.
    Own,
    Config(String),
    Group(String, GroupChoice),
}

fn join(folder: &str, path: &str) -> String {
    match (path.strip_prefix('/'), folder) {
        (Some(absolute), _) => absolute.to_owned(),
        (None, "") => path.to_owned(),
        (None, folder) if path.is_empty() => folder.to_owned(),
        (None, folder) => format!("{folder}/{path}"),
    }
}

impl DefaultEntry {
    pub(super) fn new(kind: DefaultKind, package: Option<&str>) -> DefaultEntry {
        let package = package.map(|package| if package == "_here_" { "" } else { package }.to_owned());
        DefaultEntry {
            kind,
            package,
            header: None,
            is_optional: false,
            is_override: false,
            is_appended: false,
            is_primary: false,
            is_deleted: false,
            parent_folder: String::new(),
            parent_package: String::new(),
        }
    }

    pub(super) fn config(path: &str, package: Option<&str>) -> DefaultEntry {
        let kind = if path == "_self_" { DefaultKind::Own } else { DefaultKind::Config(path.to_owned()) };
        DefaultEntry::new(kind, package)
    }

    pub(super) fn group(
        group: &str,
        package: Option<&str>,
        choice: GroupChoice,
        is_optional: bool,
        is_override: bool,
    ) -> DefaultEntry {
        let kind = match choice {
            GroupChoice::Name(name) if name == "_self_" => DefaultKind::Own,
            choice => DefaultKind::Group(group.to_owned(), choice),
        };
        DefaultEntry { is_optional, is_override, ..DefaultEntry::new(kind, package) }
    }

    pub(super) fn update_parent(&mut self, folder: &str, package: &str) {
        self.parent_folder = folder.to_owned();
        self.parent_package = package.to_owned();
        if let Some(own) = self.package.as_ref().filter(|own| own.contains("_group_")) {
            self.package = Some(format!("_global_.{}", own.replace("_group_", &self.default_package())));
        }
    }

    /// The folder of the file, from the root of the search path.
    pub(super) fn group_path(&self) -> String {
        match &self.kind {
            DefaultKind::Group(group, _) => join(&self.parent_folder, group),
            DefaultKind::Config(path) => {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                // "/name" is absolute, too.
                let is_absolute = path.starts_with('/');
                if is_absolute {
                    folder.trim_start_matches('/').to_owned()
                } else {
                    join(&self.parent_folder, folder)
                }
            }
            DefaultKind::Root | DefaultKind::Own => self.parent_folder.clone(),
        }
    }

    pub(super) fn name(&self) -> Option<&str> {
        match &self.kind {
            DefaultKind::Group(_, GroupChoice::Name(name)) => Some(name),
            DefaultKind::Config(path) => Some(path.rsplit_once('/').map_or(path.as_str(), |(_, name)| name)),
            _ => None,
        }
    }

    /// The path of the file.
    pub(super) fn config_path(&self) -> String {
        match &self.kind {
            DefaultKind::Config(path) => join(&self.parent_folder, path),
            DefaultKind::Group(..) => format!("{}/{}", self.group_path(), self.name().unwrap_or("null")),
            DefaultKind::Root => "<root>".into(),
            DefaultKind::Own => "_self_".into(),
        }
    }

    pub(super) fn default_package(&self) -> String {
        self.group_path().replace('/', ".")
    }

    /// The package under which the file is merged; empty for the root.
    pub(super) fn final_package(&self, with_header: bool) -> String {
        let relative = || match &self.kind {
            DefaultKind::Group(group, _) => group.trim_start_matches('/').replace('/', "."),
            DefaultKind::Config(path) => {
                let path = path.strip_prefix('/').unwrap_or(path);
                path.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.replace('/', "."))
            }
            DefaultKind::Root | DefaultKind::Own => String::new(),
        };
        let header = self.header.clone().filter(|_| with_header);
        let package = self.package.clone().or(header).unwrap_or_else(relative);
        let full = match (self.parent_package.as_str(), package.as_str()) {
            ("", package) => package.to_owned(),
            (parent, "") => parent.to_owned(),
            (parent, package) => format!("{parent}.{package}"),
        };
        match full.rfind("_global_") {
            Some(at) => full.get(at + "_global_.".len()..).unwrap_or("").to_owned(),
            None => full,
        }
    }

    /// `group`, or `group@package` if the package is not the group's own.
    pub(super) fn override_key(&self) -> String {
        let (group, package) = (self.group_path(), self.final_package(false));
        match (package == self.default_package(), package.as_str()) {
            (true, _) => group,
            (false, "") => format!("{group}@_global_"),
            (false, package) => format!("{group}@{package}"),
        }
    }

    pub(super) fn is_group(&self) -> bool {
        matches!(self.kind, DefaultKind::Group(..))
    }

    pub(super) fn is_missing(&self) -> bool {
        self.name() == Some("???")
    }

    pub(super) fn is_interpolation(&self) -> bool {
        self.name().is_some_and(|name| name.contains("${"))
    }

    /// The group, if it is one: an error lists its options.
    pub(super) fn group_and_path(&self) -> Option<String> {
        self.is_group().then(|| self.group_path())
    }

    /// As shown in the tree of defaults.
    pub(super) fn shown(&self) -> String {
        match &self.kind {
            DefaultKind::Group(..) => format!("{}: {}", self.override_key(), self.name().unwrap_or("null")),
            _ => self.config_path(),
        }
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, CompositionError> {
    Err(CompositionError(why.into()))
}

/// The defaults list of a file.
pub(super) fn read_defaults(path: &str, list: &Node) -> Result<Vec<DefaultEntry>, CompositionError> {
    let Value::List(items) = &list.value else {
        return refuse(format!("'{path}': 'defaults' must be a list, but it is {}", list.value.found()));
    };
    items.iter().map(|item| read_entry(path, item)).collect()
}

fn read_entry(path: &str, item: &Node) -> Result<DefaultEntry, CompositionError> {
    let wrong = || {
        CompositionError(format!("'{path}': an entry of 'defaults' is 'group: option' or the name of a file"))
    };
    let with_package = |text: &str| match text.split_once('@') {
        Some((group, package)) => {
            (group.to_owned(), Some(package.split(':').next().unwrap_or(package).to_owned()))
        }
        None => (text.to_owned(), None),
    };
    let (key, value) = match (&item.value, item.entries()) {
        (Value::Text(text), _) => {
            let (file, package) = with_package(text);
            if file == "_self_" && package.is_some() {
                return refuse(format!("'{path}': '_self_' cannot have a package"));
            }
            return Ok(DefaultEntry::config(&file, package.as_deref()));
        }
        (_, [entry]) => (&entry.key, &entry.node.value),
        _ => return Err(wrong()),
    };
    let (words, package) = with_package(key);
    let mut words: Vec<&str> = words.split(' ').collect();
    let group = words.pop().unwrap_or_default();
    let text = |node: &Node| match &node.value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let choice = match value {
        Value::Null => GroupChoice::Nothing,
        Value::Text(name) => GroupChoice::Name(name.clone()),
        Value::List(names) => {
            GroupChoice::Names(names.iter().map(text).collect::<Option<_>>().ok_or_else(wrong)?)
        }
        _ => return Err(wrong()),
    };
    if group.is_empty() {
        return Err(wrong());
    }
    let [is_optional, is_override] = ["optional", "override"].map(|word| words.contains(&word));
    Ok(DefaultEntry::group(group, package.as_deref(), choice, is_optional, is_override))
}
