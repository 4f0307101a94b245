//! Defaults lists: which configuration files make up the configuration, in which order, and under which package each is
//! merged. Group choices of the command line and `override` entries change them.

use super::CompositionError;
use super::entry::{DefaultEntry, DefaultKind, GroupChoice};
use super::grammar::{HydraOverride, OverrideElement, OverrideKind};
use super::repository::{LoadedConfig, Repository};

/// An entry with the entries of its own defaults list.
#[derive(Clone, Debug)]
pub(super) struct DefaultsTree {
    entry: DefaultEntry,
    children: Option<Vec<DefaultsTree>>,
}

impl DefaultsTree {
    /// Indented text, one entry per line.
    pub(super) fn lines(&self, depth: usize, lines: &mut Vec<String>) {
        let children = self.children.as_deref().unwrap_or_default();
        let colon = if children.is_empty() { "" } else { ":" };
        lines.push(format!("{}{}{colon}", "  ".repeat(depth), self.entry.shown()));
        children.iter().for_each(|child| child.lines(depth + 1, lines));
    }
}

/// A file that is part of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResultDefault {
    pub path: String,
    pub package: String,
    pub is_own: bool,
    pub parent: String,
    pub is_primary: bool,
    key: Option<String>,
}

/// The files of a configuration, in the order of merging, and the choices that led to them.
#[derive(Clone, Debug)]
pub(super) struct DefaultsList {
    pub files: Vec<ResultDefault>,
    pub tree: DefaultsTree,
    /// The chosen option of each group.
    pub choices: Vec<(String, Option<String>)>,
}

/// A group choice of the command line, or of an `override` entry.
#[derive(Debug)]
struct ChangedChoice {
    key: String,
    choice: GroupChoice,
    /// The file with the `override` entry.
    by: Option<String>,
    is_used: bool,
}

#[derive(Debug)]
struct Deletion {
    key: String,
    name: Option<String>,
    is_used: bool,
}

/// Follows the defaults lists of all files.
pub(super) struct DefaultsBuilder<'a> {
    repository: &'a Repository<'a>,
    /// Skip groups with the option `???`: a sweep may choose them.
    skip_missing: bool,
    changes: Vec<ChangedChoice>,
    appended: Vec<DefaultEntry>,
    deletions: Vec<Deletion>,
    choices: Vec<(String, Option<String>)>,
    /// The override keys of each group.
    known: Vec<(String, String)>,
    depth: usize,
}

/// Maximum nesting of defaults lists; a file that names itself exceeds it.
const DEEPEST: usize = 64;

fn refuse<T>(why: impl Into<String>) -> Result<T, CompositionError> {
    Err(CompositionError(why.into()))
}

/// The defaults of `config` with these overrides, and the overrides that are not group choices.
pub(super) fn defaults_list<'o>(
    repository: &Repository<'_>,
    config: Option<&str>,
    overrides: &'o [HydraOverride],
    skip_missing: bool,
) -> Result<(DefaultsList, Vec<&'o HydraOverride>), CompositionError> {
    let mut builder = DefaultsBuilder {
        repository,
        skip_missing,
        changes: Vec::new(),
        appended: Vec::new(),
        deletions: Vec::new(),
        choices: Vec::new(),
        known: Vec::new(),
        depth: 0,
    };
    let config_overrides = builder.sort_overrides(overrides)?;
    let mut children = Vec::new();
    // The application's file comes first, because its `override` entries change Hydra's groups.
    if let Some(config) = config {
        let primary = DefaultEntry { is_primary: true, ..DefaultEntry::config(config, None) };
        children.push(builder.tree(primary, true, false)?);
    }
    children.insert(0, builder.tree(DefaultEntry::config("hydra/config", None), false, false)?);
    let root = DefaultEntry::new(DefaultKind::Root, None);
    let tree = DefaultsTree { entry: root, children: Some(children) };
    let mut files = Vec::new();
    walk(&tree, None, &mut files);
    refuse_duplicates(&files)?;
    builder.refuse_unused()?;
    Ok((DefaultsList { files, tree, choices: builder.choices }, config_overrides))
}

/// Adds the files of a tree, in the order of merging.
fn walk(tree: &DefaultsTree, parent: Option<&DefaultEntry>, files: &mut Vec<ResultDefault>) {
    let path = |entry: Option<&DefaultEntry>| entry.map_or(String::new(), DefaultEntry::config_path);
    let entry = &tree.entry;
    let Some(children) = tree.children.as_deref().filter(|children| !children.is_empty()) else {
        let is_file = !entry.is_deleted && !entry.is_missing() && entry.name().is_some();
        if is_file {
            files.push(ResultDefault {
                path: entry.config_path(),
                package: entry.final_package(true),
                is_own: false,
                parent: path(parent),
                is_primary: entry.is_primary,
                key: entry.is_group().then(|| entry.override_key()),
            });
        }
        return;
    };
    for child in children {
        match child.entry.kind {
            DefaultKind::Own => files.push(ResultDefault {
                path: entry.config_path(),
                package: entry.final_package(true),
                is_own: true,
                parent: path(parent),
                is_primary: entry.is_primary,
                key: None,
            }),
            _ => walk(child, Some(entry), files),
        }
    }
}

fn refuse_duplicates(files: &[ResultDefault]) -> Result<(), CompositionError> {
    for (index, file) in files.iter().enumerate() {
        if let Some(key) = &file.key
            && files[..index].iter().any(|other| other.key.as_ref() == Some(key))
        {
            return refuse(format!(
                "'{key}' is chosen more than once; to change the choice, write {key}=OPTION"
            ));
        }
    }
    Ok(())
}

impl DefaultsBuilder<'_> {
    /// Takes the choices of groups; returns the other overrides. Sweeps are neither: they belong to single jobs.
    fn sort_overrides<'o>(
        &mut self,
        overrides: &'o [HydraOverride],
    ) -> Result<Vec<&'o HydraOverride>, CompositionError> {
        let mut others = Vec::new();
        for change in overrides.iter().filter(|change| change.sweep().is_none()) {
            let is_map = matches!(change.value, Some(OverrideElement::Map(_)));
            if is_map || !self.repository.is_group(&change.key) {
                others.push(change);
                continue;
            }
            let key = change.group_key();
            match change.kind {
                OverrideKind::ForceAdd => {
                    return refuse(format!(
                        "'{}': '++' cannot choose the option of a config group; write {key}=OPTION",
                        change.line
                    ));
                }
                OverrideKind::Delete => {
                    let name = match group_choice(change)? {
                        GroupChoice::Nothing => None,
                        GroupChoice::Name(name) => Some(name),
                        GroupChoice::Names(_) => {
                            return refuse(format!("'{}': one option is expected", change.line));
                        }
                    };
                    self.deletions.retain(|deletion| deletion.key != key);
                    self.deletions.push(Deletion { key, name, is_used: false });
                }
                OverrideKind::Add | OverrideKind::Change => {
                    let choice = group_choice(change)?;
                    if choice == GroupChoice::Nothing {
                        return refuse(format!(
                            "'{}': the option of a config group is a text or a list",
                            change.line
                        ));
                    }
                    if change.kind == OverrideKind::Add {
                        let package = change.package.as_deref();
                        let entry = DefaultEntry::group(&change.key, package, choice, false, false);
                        self.appended.push(DefaultEntry { is_appended: true, ..entry });
                        continue;
                    }
                    self.changes.retain(|known| known.key != key);
                    self.changes.push(ChangedChoice { key, choice, by: None, is_used: false });
                }
            }
        }
        Ok(others)
    }

    /// The entry with the entries of its own defaults list, and theirs.
    fn tree(
        &mut self,
        mut entry: DefaultEntry,
        is_root: bool,
        in_interpolated: bool,
    ) -> Result<DefaultsTree, CompositionError> {
        let path = entry.config_path();
        self.depth += 1;
        if self.depth > DEEPEST {
            return refuse(format!(
                "'{path}': the defaults lists are nested too deep, or refer to themselves"
            ));
        }
        let loaded = match entry.name().is_some() && !entry.is_missing() {
            true => self.repository.load(&path)?,
            false => None,
        };
        entry.header = loaded.as_ref().and_then(|loaded| loaded.header.as_deref()).map(absolute_package);
        let is_file = self.choose(&mut entry, &path)?;
        let children = match loaded {
            _ if !is_file => None,
            Some(loaded) => self.children(&entry, loaded, is_root, in_interpolated)?,
            None if entry.is_optional => {
                entry.is_deleted = true;
                None
            }
            None => return Err(self.repository.not_found(entry.group_and_path().as_deref(), &path, is_root)),
        };
        self.depth -= 1;
        Ok(DefaultsTree { entry, children })
    }

    /// Records the choice of a group. Whether the entry is a file that is merged.
    fn choose(&mut self, entry: &mut DefaultEntry, path: &str) -> Result<bool, CompositionError> {
        if entry.is_group() {
            let key = entry.override_key();
            let matches =
                |deletion: &Deletion| deletion.name.as_deref().is_none_or(|name| Some(name) == entry.name());
            let deletion =
                self.deletions.iter_mut().find(|deletion| deletion.key == key && matches(deletion));
            if let Some(deletion) = deletion {
                deletion.is_used = true;
                entry.is_deleted = true;
                return Ok(false);
            }
            let name = entry.name().map(str::to_owned);
            match self.choices.iter().find(|(known, _)| *known == key) {
                Some((_, chosen)) if *chosen != name => {
                    let chosen = chosen.as_deref().unwrap_or("null");
                    return refuse(format!(
                        "there are several values for '{key}'; to change it, use 'override {key}: {chosen}'"
                    ));
                }
                Some(_) => {}
                None => self.choices.push((key.clone(), name)),
            }
            self.known.push((entry.group_path(), key));
        }
        if entry.is_missing() && !self.skip_missing {
            let options = self.repository.options(&entry.group_path()).join(", ");
            return refuse(format!("'{path}': choose an option of '{}': {options}", entry.group_path()));
        }
        Ok(entry.name().is_some() && !entry.is_missing())
    }

    fn children(
        &mut self,
        parent: &DefaultEntry,
        loaded: LoadedConfig,
        is_root: bool,
        in_interpolated: bool,
    ) -> Result<Option<Vec<DefaultsTree>>, CompositionError> {
        let mut entries = loaded.defaults;
        let path = parent.config_path();
        if !entries.is_empty() || (is_root && !self.appended.is_empty()) {
            add_own(&mut entries, &path)?;
        }
        if is_root {
            entries.extend(self.appended.clone());
        }
        self.take_overrides(&mut entries, parent, in_interpolated)?;
        let (folder, package) = (parent.group_path(), parent.final_package(true));
        let mut children = Vec::new();
        for mut entry in entries.into_iter().rev().filter(|entry| !entry.is_override) {
            if entry.kind == DefaultKind::Own {
                children.push(DefaultsTree { entry, children: None });
                continue;
            }
            entry.update_parent(&folder, &package);
            self.change_choice(&mut entry);
            if let DefaultKind::Group(group, GroupChoice::Names(names)) = &entry.kind {
                for name in names.iter().rev() {
                    let mut item = DefaultEntry::config(&format!("{group}/{name}"), entry.package.as_deref());
                    item.is_optional = entry.is_optional;
                    item.update_parent(&folder, &package);
                    children.push(self.tree(item, false, in_interpolated)?);
                }
            } else if entry.is_interpolation() {
                children.push(DefaultsTree { entry, children: None });
            } else {
                children.push(self.tree(entry, false, in_interpolated)?);
            }
        }
        // Interpolations refer to choices that follow in the list.
        for child in children.iter_mut().filter(|child| child.entry.is_interpolation()) {
            let mut entry = child.entry.clone();
            self.interpolate(&mut entry)?;
            *child = self.tree(entry, false, true)?;
        }
        children.reverse();
        Ok(Some(children).filter(|children| !children.is_empty()))
    }

    /// Collects the `override` entries of a list.
    fn take_overrides(
        &mut self,
        entries: &mut [DefaultEntry],
        parent: &DefaultEntry,
        in_interpolated: bool,
    ) -> Result<(), CompositionError> {
        let path = parent.config_path();
        let mut has_override = false;
        for entry in entries.iter_mut().filter(|entry| entry.kind != DefaultKind::Own) {
            entry.update_parent(&parent.group_path(), &parent.final_package(true));
            if has_override && !(entry.is_override || entry.is_appended) {
                return refuse(format!(
                    "'{path}': 'override' entries must be at the end of the defaults list"
                ));
            }
            if !entry.is_override {
                continue;
            }
            has_override = true;
            if in_interpolated {
                return refuse(format!(
                    "'{path}': 'override' is not allowed below an interpolated config group"
                ));
            }
            let key = entry.override_key();
            if let DefaultKind::Group(_, choice) = &entry.kind
                && self.changes.iter().all(|change| change.key != key)
            {
                let choice = choice.clone();
                self.changes.push(ChangedChoice { key, choice, by: Some(path.clone()), is_used: false });
            }
        }
        Ok(())
    }

    fn change_choice(&mut self, entry: &mut DefaultEntry) {
        if !entry.is_group() {
            return;
        }
        let key = entry.override_key();
        if let Some(change) = self.changes.iter_mut().find(|change| change.key == key)
            && let DefaultKind::Group(_, choice) = &mut entry.kind
        {
            *choice = change.choice.clone();
            change.is_used = true;
        }
    }

    fn interpolate(&self, entry: &mut DefaultEntry) -> Result<(), CompositionError> {
        let (DefaultKind::Group(_, GroupChoice::Name(name)) | DefaultKind::Config(name)) = &mut entry.kind
        else {
            return Ok(());
        };
        while let Some((before, rest)) = name.split_once("${") {
            let Some((key, after)) = rest.split_once('}') else {
                return refuse(format!("'{name}': an interpolation is not closed"));
            };
            let choice =
                self.choices.iter().find(|(known, _)| known == key).and_then(|(_, choice)| choice.clone());
            let Some(choice) = choice.filter(|choice| !choice.contains("${")) else {
                return refuse(format!("'{name}': there is no choice of '{key}' before it"));
            };
            *name = format!("{before}{choice}{after}");
        }
        Ok(())
    }

    fn refuse_unused(&self) -> Result<(), CompositionError> {
        if let Some(change) = self.changes.iter().find(|change| !change.is_used) {
            let group = change.key.split('@').next().unwrap_or(&change.key);
            let known: Vec<&str> =
                self.known.iter().filter(|(known, _)| known == group).map(|(_, key)| key.as_str()).collect();
            let place = change.by.as_ref().map_or(String::new(), |by| format!("'{by}': "));
            let hint = match known.is_empty() {
                true => "it is not in the defaults list".to_owned(),
                false => format!("did you mean {}?", known.join(" or ")),
            };
            let add = if change.by.is_none() {
                format!("; to add it, write +{}=OPTION", change.key)
            } else {
                String::new()
            };
            return refuse(format!("{place}'{}' cannot be overridden: {hint}{add}", change.key));
        }
        match self.deletions.iter().find(|deletion| !deletion.is_used) {
            Some(Deletion { key, name, .. }) => {
                let name = name.as_ref().map_or(String::new(), |name| format!("={name}"));
                refuse(format!("'{key}{name}' cannot be deleted: it is not in the defaults list"))
            }
            None => Ok(()),
        }
    }
}

fn group_choice(change: &HydraOverride) -> Result<GroupChoice, CompositionError> {
    let name = |element: &OverrideElement| match element {
        OverrideElement::Text(name) | OverrideElement::Quoted(name, _) => Some(name.clone()),
        _ => None,
    };
    let wrong =
        || CompositionError(format!("'{}': the option of a config group is a text or a list", change.line));
    match &change.value {
        None | Some(OverrideElement::Null) => Ok(GroupChoice::Nothing),
        Some(OverrideElement::List(items)) => {
            Ok(GroupChoice::Names(items.iter().map(name).collect::<Option<_>>().ok_or_else(wrong)?))
        }
        Some(element) => name(element).map(GroupChoice::Name).ok_or_else(wrong),
    }
}

/// A package header is always counted from the root.
fn absolute_package(header: &str) -> String {
    match header {
        "" => "_global_".into(),
        header if header == "_global_" || header.starts_with("_global_.") => header.to_owned(),
        header => format!("_global_.{header}"),
    }
}

/// Without `_self_`, the content of the file itself comes last.
fn add_own(entries: &mut Vec<DefaultEntry>, path: &str) -> Result<(), CompositionError> {
    let own = entries.iter().filter(|entry| entry.kind == DefaultKind::Own).count();
    if own > 1 {
        return refuse(format!("'{path}': the defaults list has '_self_' twice"));
    }
    if entries.is_empty() || (own == 0 && entries.iter().any(|entry| !entry.is_override)) {
        entries.push(DefaultEntry::config("_self_", None));
    }
    Ok(())
}
