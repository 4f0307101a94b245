//! Composition: the files of the defaults list are merged, then the overrides are applied, then Hydra's own section is
//! completed with what is known about the job.

use super::defaults::{DefaultsList, ResultDefault, defaults_list};
use super::dump::to_yaml;
use super::grammar::{HydraOverride, OverrideKind, parse_override};
use super::hide::without_secrets;
use super::interpolation::Resolver;
use super::repository::Repository;
use super::tree::{self, NewKeys};
use super::{CompositionError, Environment, schema, sweep};
use crate::secret::redact;
use crate::spec::value::{Node, Value};

/// Whether a command line makes one job or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    Run,
    Multirun,
}

/// What to compose.
#[derive(Clone, Copy, Debug)]
pub struct ComposeRequest<'a> {
    /// The primary config; `None`: only Hydra's own settings.
    pub config_name: Option<&'a str>,
    pub overrides: &'a [String],
    pub mode: RunMode,
    /// The name of the application's job, unless `hydra.job.name` gives another.
    pub job_name: &'a str,
    /// The version of Hydra whose behaviour this is.
    pub version: &'a str,
}

/// Which part of a configuration to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigPart {
    /// Without Hydra's section.
    Job,
    /// Hydra's section without its help texts.
    Hydra,
    All,
}

/// A composed configuration.
#[derive(Clone, Debug)]
pub struct Configuration {
    root: Node,
    defaults: DefaultsList,
    overrides: Vec<HydraOverride>,
}

fn parse_all(overrides: &[String], seed: u64) -> Result<Vec<HydraOverride>, CompositionError> {
    overrides.iter().map(|line| parse_override(line, seed)).collect()
}

/// Composes a configuration.
pub fn compose(
    repository: &Repository<'_>,
    request: &ComposeRequest<'_>,
    environment: &Environment<'_>,
) -> Result<Configuration, CompositionError> {
    // Messages quote overrides, and these may hold secrets.
    compose_files(repository, request, environment).map_err(|error| CompositionError(redact(&error.0)))
}

fn compose_files(
    repository: &Repository<'_>,
    request: &ComposeRequest<'_>,
    environment: &Environment<'_>,
) -> Result<Configuration, CompositionError> {
    let overrides = parse_all(request.overrides, environment.seed)?;
    refuse_sweeps(&overrides, request.mode)?;
    let skip_missing = request.mode == RunMode::Multirun;
    let (defaults, changes) = defaults_list(repository, request.config_name, &overrides, skip_missing)?;
    let mut root = tree::empty_map();
    for file in &defaults.files {
        add_file(&mut root, file, repository)?;
    }
    schema::conform(&mut root).map_err(CompositionError)?;
    for change in changes {
        apply(&mut root, change, environment)?;
    }
    let mut configuration = Configuration { root, defaults, overrides };
    configuration.complete(repository, request, environment)?;
    Ok(configuration)
}

/// The folders in `hydra.searchpath`: of the command line, else of the primary config. They extend the repository.
pub fn search_path(
    repository: &Repository<'_>,
    request: &ComposeRequest<'_>,
) -> Result<Vec<String>, CompositionError> {
    let overrides = parse_all(request.overrides, 0).map_err(|error| CompositionError(redact(&error.0)))?;
    let given = overrides.iter().find(|change| {
        change.key == "hydra.searchpath" && change.package.is_none() && change.kind == OverrideKind::Change
    });
    let node = match (given, request.config_name) {
        (Some(HydraOverride { value: Some(value), .. }), _) => {
            Some(tree::from_element(value).map_err(CompositionError)?)
        }
        (_, Some(name)) => {
            let loaded = repository.load(name)?;
            loaded.and_then(|loaded| tree::get(&loaded.node, &["hydra", "searchpath"]).cloned())
        }
        _ => None,
    };
    let text = |node: &Node| match &node.value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let folders = match node.map(|node| node.value) {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::List(items)) => items.iter().map(text).collect(),
        Some(_) => None,
    };
    folders.ok_or_else(|| CompositionError("'hydra.searchpath' must be a list of texts".into()))
}

fn refuse_sweeps(overrides: &[HydraOverride], mode: RunMode) -> Result<(), CompositionError> {
    for change in overrides {
        let line = &change.line;
        match (change.sweep(), mode) {
            (None, _) => {}
            (Some(_), RunMode::Multirun) if !change.is_hydra() => {}
            (Some(_), RunMode::Multirun) => {
                return Err(CompositionError(format!("'{line}': Hydra's own settings cannot be swept")));
            }
            (Some(sweep::ValueSweep::Choice { is_simple: true, .. }), RunMode::Run) => {
                return Err(CompositionError(format!(
                    "'{line}' has several values: write a list as key=[a,b], a text as key='a,b', or add --multirun to \
                     run one job for each"
                )));
            }
            (Some(_), RunMode::Run) => {
                return Err(CompositionError(format!("'{line}' is a sweep, which needs --multirun")));
            }
        }
    }
    Ok(())
}

fn add_file(
    root: &mut Node,
    file: &ResultDefault,
    repository: &Repository<'_>,
) -> Result<(), CompositionError> {
    let Some(loaded) = repository.load(&file.path)? else { return Ok(()) };
    let mut node = loaded.node;
    if !file.package.is_empty() {
        let path: Vec<&str> = file.package.split('.').collect();
        let mut outer = tree::empty_map();
        tree::put(&mut outer, &path, node);
        node = outer;
    }
    if !file.is_primary && file.path != "hydra/config" && tree::get(&node, &["hydra", "searchpath"]).is_some()
    {
        return Err(CompositionError(format!(
            "'{}': only the primary config can set hydra.searchpath",
            file.path
        )));
    }
    tree::merge(root, node, NewKeys::Allowed)
        .map_err(|why| CompositionError(format!("'{}': {why}", file.path)))
}

fn apply(
    root: &mut Node,
    change: &HydraOverride,
    environment: &Environment<'_>,
) -> Result<(), CompositionError> {
    let refuse = |why: String| CompositionError(format!("'{}': {why}", change.line));
    if change.package.is_some() {
        return Err(refuse(format!("there is no config group '{}'", change.key)));
    }
    let path = tree::split(&change.key);
    let value = change.value.as_ref().map(tree::from_element).transpose().map_err(&refuse)?;
    // The value with its interpolations resolved; a missing one and null are the same here.
    let present = |root: &Node| {
        let found = Resolver { root, environment }.select(&path).map_err(|error| refuse(error.0))?;
        Ok::<_, CompositionError>(found.filter(|node| node.value != Value::Null))
    };
    match (change.kind, value) {
        (OverrideKind::Delete, value) => {
            let found =
                present(root)?.ok_or_else(|| refuse(format!("there is no '{}' to delete", change.key)))?;
            if let Some(value) =
                value.filter(|value| value.value != Value::Null && !tree::equal(value, &found))
            {
                let values = (found.value.found(), value.value.found());
                return Err(refuse(format!("the value is {}, not {}", values.0, values.1)));
            }
            delete(root, &path).map_err(refuse)?;
        }
        (OverrideKind::Add, Some(value)) => {
            if present(root)?.is_some() && !tree::is_container(&value) {
                let line = change.line.trim_start_matches('+');
                return Err(refuse(format!(
                    "'{}' has a value; to change it, write {line} or ++{line}",
                    change.key
                )));
            }
            tree::update(root, &path, value, NewKeys::Allowed).map_err(&refuse)?;
        }
        (OverrideKind::ForceAdd, Some(value)) => {
            tree::update(root, &path, value, NewKeys::Allowed).map_err(&refuse)?;
        }
        (OverrideKind::Change, Some(value)) => {
            tree::update(root, &path, value, NewKeys::Refused)
                .map_err(|why| refuse(format!("{why}; to add a key, write +{}", change.line)))?;
        }
        (_, None) => {}
    }
    if change.is_hydra() || change.key == "hydra" {
        schema::conform(root).map_err(|why| CompositionError(format!("'{}': {why}", change.line)))?;
    }
    Ok(())
}

fn delete(root: &mut Node, path: &[String]) -> Result<(), String> {
    let Some((last, way)) = path.split_last() else { return Ok(()) };
    let section = way.join(".");
    if schema::is_section(&section) {
        return Err(format!("the keys of '{section}' cannot be deleted"));
    }
    let way: Vec<&str> = way.iter().map(String::as_str).collect();
    let removed = tree::get_mut(root, &way).and_then(|parent| tree::remove(parent, last));
    removed.map(|_| ()).ok_or_else(|| "only a key of a map can be deleted".to_owned())
}

impl Configuration {
    /// Fills in what Hydra says about a job.
    fn complete(
        &mut self,
        repository: &Repository<'_>,
        request: &ComposeRequest<'_>,
        environment: &Environment<'_>,
    ) -> Result<(), CompositionError> {
        let (hydra, task): (Vec<&HydraOverride>, Vec<&HydraOverride>) =
            self.overrides.iter().partition(|change| change.is_hydra());
        let lines =
            |changes: &[&HydraOverride]| tree::texts(changes.iter().map(|change| change.line.clone()));
        let overrides = [("hydra", lines(&hydra)), ("task", lines(&task))];
        let dirname = self.override_dirname(&task);
        for (key, list) in overrides {
            self.append(&["hydra", "overrides", key], list);
        }
        for (group, choice) in self.defaults.choices.clone() {
            let choice = choice.map_or_else(|| tree::leaf(Value::Null), tree::text);
            self.set(&["hydra", "runtime", "choices", &group], choice);
        }
        for name in self.list(&["hydra", "job", "env_copy"]) {
            let value = (environment.variable)(&name);
            let value = value.ok_or_else(|| {
                CompositionError(format!(
                    "'hydra.job.env_copy': the environment variable '{name}' is not set"
                ))
            })?;
            self.set(&["hydra", "job", "env_set", &name], tree::text(value));
        }
        let sources = repository.sources.iter().map(|source| {
            let texts =
                [("path", source.path()), ("schema", source.scheme()), ("provider", source.provider())];
            tree::map(texts.map(|(key, value)| (key, tree::text(value))))
        });
        let base = request.version.rsplit_once('.').map_or(request.version, |(base, _)| base);
        self.set(&["hydra", "runtime", "version"], tree::text(request.version));
        self.set(&["hydra", "runtime", "version_base"], tree::text(base));
        self.set(&["hydra", "runtime", "cwd"], tree::text(environment.folder));
        self.set(&["hydra", "runtime", "config_sources"], tree::leaf(Value::List(sources.collect())));
        if self.at(&["hydra", "job", "name"]).is_none_or(tree::is_missing) {
            self.set(&["hydra", "job", "name"], tree::text(request.job_name));
        }
        self.set(&["hydra", "job", "override_dirname"], tree::text(dirname));
        let name = request.config_name.map_or_else(|| tree::leaf(Value::Null), tree::text);
        self.set(&["hydra", "job", "config_name"], name);
        Ok(())
    }

    /// The task overrides in one text, which can be part of a folder's name.
    fn override_dirname(&self, task: &[&HydraOverride]) -> String {
        let options = ["hydra", "job", "config", "override_dirname"];
        let option = |key: &str| {
            let path: Vec<&str> = options.iter().copied().chain([key]).collect();
            match self.at(&path).map(|node| &node.value) {
                Some(Value::Text(text)) => text.clone(),
                _ => String::new(),
            }
        };
        let excluded = self.list(&["hydra", "job", "config", "override_dirname", "exclude_keys"]);
        let kept = task.iter().filter(|change| !excluded.contains(&change.key));
        let mut lines: Vec<&str> = kept.map(|change| change.line.as_str()).collect();
        lines.sort_unstable();
        lines.join(&option("item_sep")).replace('=', &option("kv_sep"))
    }

    fn at(&self, path: &[&str]) -> Option<&Node> {
        tree::get(&self.root, path)
    }

    fn set(&mut self, path: &[&str], node: Node) {
        tree::put(&mut self.root, path, node);
    }

    fn append(&mut self, path: &[&str], list: Node) {
        let mut items = match self.at(path).map(|node| node.value.clone()) {
            Some(Value::List(items)) => items,
            _ => Vec::new(),
        };
        if let Value::List(more) = list.value {
            items.extend(more);
        }
        self.set(path, tree::leaf(Value::List(items)));
    }

    fn list(&self, path: &[&str]) -> Vec<String> {
        let items = match self.at(path).map(|node| &node.value) {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        };
        let text = |node: &Node| match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        items.iter().filter_map(text).collect()
    }

    /// `hydra.mode`, if it is set.
    pub fn mode(&self) -> Option<RunMode> {
        match self.at(&["hydra", "mode"]).map(|node| &node.value) {
            Some(Value::Text(text)) if text == "MULTIRUN" => Some(RunMode::Multirun),
            Some(Value::Text(text)) if text == "RUN" => Some(RunMode::Run),
            _ => None,
        }
    }

    /// Sets the number of a job of a sweep.
    pub fn set_job_number(&mut self, number: usize) {
        self.set(&["hydra", "job", "id"], tree::text(number.to_string()));
        self.set(&["hydra", "job", "num"], tree::leaf(Value::Int(number as i128)));
    }

    /// Sets the absolute path of the job's folder.
    pub fn set_output_folder(&mut self, folder: &str) {
        self.set(&["hydra", "runtime", "output_dir"], tree::text(folder));
    }

    /// The single value of a key as text, with interpolations resolved; `None` for null or no value.
    pub fn text(&self, key: &str, environment: &Environment<'_>) -> Result<Option<String>, CompositionError> {
        let found = Resolver { root: &self.root, environment }.select(&tree::split(key))?;
        match found.map(|node| node.value) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(value @ (Value::Map(_) | Value::List(_))) => {
                Err(CompositionError(format!("'{key}' must be a single value, but it is {}", value.found())))
            }
            Some(value) => Ok(Some(to_yaml(&tree::leaf(value)).trim_end().to_owned())),
        }
    }

    /// Whether a key has an empty value, or none.
    pub fn is_empty(&self, key: &str) -> bool {
        let path: Vec<&str> = key.split('.').collect();
        self.at(&path).is_none_or(|node| match &node.value {
            Value::Map(entries) => entries.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Null => true,
            _ => false,
        })
    }

    /// The chosen option of a group.
    pub fn choice(&self, group: &str) -> Option<&str> {
        let (_, choice) = self.defaults.choices.iter().find(|(known, _)| known == group)?;
        choice.as_deref()
    }

    fn part(&self, part: ConfigPart) -> Node {
        let mut root = self.root.clone();
        match part {
            ConfigPart::All => {}
            ConfigPart::Job => {
                tree::remove(&mut root, "hydra");
            }
            ConfigPart::Hydra => {
                let mut hydra = tree::remove(&mut root, "hydra").unwrap_or_else(tree::empty_map);
                tree::remove(&mut hydra, "help");
                tree::remove(&mut hydra, "hydra_help");
                root = tree::map([("hydra", hydra)]);
            }
        }
        root
    }

    /// A part of the configuration, or a package in it, as YAML without secrets; `None` if there is no such package.
    pub fn show(
        &self,
        part: ConfigPart,
        package: Option<&str>,
        resolve: Option<&Environment<'_>>,
    ) -> Result<Option<String>, CompositionError> {
        let root = self.part(part);
        let path = package.map_or_else(Vec::new, tree::split);
        let keys: Vec<&str> = path.iter().map(String::as_str).collect();
        let Some(node) = tree::get(&root, &keys).filter(|node| node.value != Value::Null) else {
            return Ok(None);
        };
        let is_value = !tree::is_container(node);
        let node = match resolve {
            Some(environment) => Resolver { root: &self.root, environment }.resolve(node, &path)?,
            None => node.clone(),
        };
        let node = without_secrets(node, &path);
        match (package, node.value) {
            (Some(_), Value::Text(text)) if is_value => Ok(Some(format!("{text}\n"))),
            (Some(package), value) if !is_value => {
                Ok(Some(format!("# @package {package}\n{}", to_yaml(&tree::leaf(value)))))
            }
            (_, value) => Ok(Some(to_yaml(&tree::leaf(value)))),
        }
    }

    /// The content of `config.yaml`, without secrets.
    pub fn job_yaml(&self) -> String {
        to_yaml(&without_secrets(self.part(ConfigPart::Job), &[]))
    }

    /// The content of `hydra.yaml`, without secrets.
    pub fn hydra_yaml(&self) -> String {
        let hydra = self.at(&["hydra"]).cloned().unwrap_or_else(tree::empty_map);
        to_yaml(&without_secrets(tree::map([("hydra", hydra)]), &[]))
    }

    /// The content of `overrides.yaml`, without secrets.
    pub fn overrides_yaml(&self) -> String {
        to_yaml(&without_secrets(tree::texts(self.list(&["hydra", "overrides", "task"])), &[]))
    }

    /// The section `key` alone, with interpolations resolved, as YAML; `None` if there is none.
    pub fn section_yaml(
        &self,
        key: &'static str,
        environment: &Environment<'_>,
    ) -> Result<Option<String>, CompositionError> {
        let Some(node) = self.at(&[key]).filter(|node| matches!(node.value, Value::Map(_))) else {
            return Ok(None);
        };
        let node = Resolver { root: &self.root, environment }.resolve(node, &[key.to_owned()])?;
        Ok(Some(to_yaml(&tree::map([(key, node)]))))
    }

    /// The overrides of each job of a sweep.
    pub fn sweep(
        &self,
        repository: &Repository<'_>,
        environment: &Environment<'_>,
    ) -> Result<Vec<Vec<String>>, CompositionError> {
        let params = self.at(&["hydra", "sweeper", "params"]).map_or(&[][..], Node::entries);
        let mut lines: Vec<String> = Vec::new();
        for entry in params {
            let path = ["hydra", "sweeper", "params", &entry.key].map(str::to_owned);
            let node = Resolver { root: &self.root, environment }.resolve(&entry.node, &path)?;
            let value = match node.value {
                Value::Text(text) => text,
                value => to_yaml(&tree::leaf(value)).trim_end().to_owned(),
            };
            lines.push(format!("{}={value}", entry.key));
        }
        lines.extend(self.list(&["hydra", "overrides", "task"]));
        let hydra = self.list(&["hydra", "overrides", "hydra"]);
        let overrides = parse_all(&lines, environment.seed)?;
        let jobs = sweep::combinations(&overrides, |group| repository.options(group), environment.seed)?;
        Ok(jobs.into_iter().map(|job| [hydra.clone(), job].concat()).collect())
    }

    /// The tree of defaults lists, one indented line per entry.
    pub fn defaults_tree(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.defaults.tree.lines(0, &mut lines);
        lines
    }

    /// The files in the order of merging: path, package, `_self_`, parent.
    pub fn defaults_table(&self) -> Vec<[String; 4]> {
        let own = |is_own: bool| if is_own { "True" } else { "False" }.to_owned();
        let row = |file: &ResultDefault| {
            [file.path.clone(), file.package.clone(), own(file.is_own), file.parent.clone()]
        };
        self.defaults.files.iter().map(row).collect()
    }

    /// Where the configuration files were searched: provider and address.
    pub fn sources_table(&self) -> Vec<[String; 2]> {
        let Some(Value::List(sources)) =
            self.at(&["hydra", "runtime", "config_sources"]).map(|node| &node.value)
        else {
            return Vec::new();
        };
        let text = |node: &Node, key: &str| match tree::get(node, &[key]).map(|node| &node.value) {
            Some(Value::Text(text)) => text.clone(),
            _ => String::new(),
        };
        let row = |source: &Node| {
            [text(source, "provider"), format!("{}://{}", text(source, "schema"), text(source, "path"))]
        };
        sources.iter().map(row).collect()
    }
}
