//! Hydra's command line: from arguments to the jobs that they describe. The rules are in `model::hydra`; here are the
//! flags, the files, the packaged workloads and the texts that are printed.

#[cfg(test)]
mod differential;
mod flags;
mod packaged;
mod show;
mod sources;
#[cfg(test)]
mod tests;

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use engine::meter::LocalTime;
use model::hydra::{
    ComposeRequest, ConfigPart, ConfigSource, Configuration, Environment, Repository, RunMode,
    compose as compose_config, same_content, search_path,
};

use self::flags::HydraFlags;
use self::sources::{ConfigFolder, PackagedFiles};
use super::job::{Composed, Job};

/// The version of Hydra whose behaviour and files these are.
const HYDRA_VERSION: &str = "1.3.2";

/// What Hydra calls DLIO's job: its Python module.
const JOB_NAME: &str = "main";

/// What a command line depends on, in addition to its arguments and the files that it names.
pub(crate) struct HydraInputs<'a> {
    pub now: &'a dyn Fn(&str) -> Result<String, String>,
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The working directory, absolute.
    pub folder: PathBuf,
    /// Decides the order that `shuffle()` gives.
    pub seed: u64,
}

/// Composes the arguments of this process.
pub(crate) fn compose_here(arguments: &[String]) -> anyhow::Result<Composed> {
    let time = LocalTime::now();
    let now = |pattern: &str| time.format(pattern);
    let variable = |name: &str| std::env::var(name).ok();
    let folder = std::env::current_dir().context("cannot find out the working directory")?;
    compose(
        arguments,
        &HydraInputs { now: &now, variable: &variable, folder, seed: engine::meter::entropy() },
    )
}

/// Composes a command line.
pub(crate) fn compose(arguments: &[String], inputs: &HydraInputs<'_>) -> anyhow::Result<Composed> {
    let flags = HydraFlags::parse(arguments)?;
    if flags.version {
        return Ok(Composed::Print(format!(
            "Hydra {HYDRA_VERSION} (feedline {})\n",
            env!("CARGO_PKG_VERSION")
        )));
    }
    let folder = inputs.folder.display().to_string();
    let environment =
        Environment { now: inputs.now, variable: inputs.variable, folder: &folder, seed: inputs.seed };
    let mut files = ConfigFiles::new(&flags, &inputs.folder)?;
    let mut composer = Composer { flags: &flags, environment: &environment, folder: &inputs.folder };
    let more = search_path(&files.repository(), &composer.request(&flags.overrides, RunMode::Run))?;
    files.extend(&more, &inputs.folder);
    composer.compose(&files)
}

/// All sources, in the order of searching.
struct ConfigFiles {
    hydra: PackagedFiles,
    /// DLIO's files, or the folder of `--config-path`.
    main: Box<dyn ConfigSource>,
    folders: Vec<ConfigFolder>,
    schema: PackagedFiles,
}

impl ConfigFiles {
    fn new(flags: &HydraFlags, working: &Path) -> anyhow::Result<ConfigFiles> {
        let main: Box<dyn ConfigSource> = match flags.config_path.as_deref() {
            None | Some("configs" | "pkg://dlio_benchmark.configs") => Box::new(PackagedFiles::dlio()),
            Some(path) => {
                let folder = Path::new(path.strip_prefix("file://").unwrap_or(path));
                if !folder.is_absolute() {
                    bail!(
                        "--config-path {path}: a relative path counts from DLIO's package; give an absolute path"
                    );
                }
                if !folder.is_dir() {
                    bail!("--config-path {path}: there is no such folder");
                }
                Box::new(ConfigFolder::new("main", folder))
            }
        };
        let mut folders = Vec::new();
        if let Some(path) = &flags.config_dir {
            let folder = absolute(working, path);
            if !folder.is_dir() {
                bail!("--config-dir: there is no folder {}", folder.display());
            }
            folders.push(ConfigFolder::new("command-line", &folder));
        }
        Ok(ConfigFiles { hydra: PackagedFiles::hydra(), main, folders, schema: PackagedFiles::schema() })
    }

    /// Adds the folders of `hydra.searchpath`.
    fn extend(&mut self, paths: &[String], working: &Path) {
        let added = paths.iter().map(|path| {
            let folder = absolute(working, path.strip_prefix("file://").unwrap_or(path));
            ConfigFolder::new("hydra.searchpath", &folder)
        });
        self.folders.extend(added);
    }

    fn repository(&self) -> Repository<'_> {
        let mut sources: Vec<&dyn ConfigSource> = vec![&self.hydra, self.main.as_ref()];
        sources.extend(self.folders.iter().map(|folder| folder as &dyn ConfigSource));
        sources.push(&self.schema);
        Repository { sources }
    }

    /// Files of the user that an earlier source hides, if they differ.
    fn hidden(&self, configuration: &Configuration) -> anyhow::Result<Vec<String>> {
        let mut notices = Vec::new();
        let sources = self.repository().sources;
        for [path, ..] in configuration.defaults_table() {
            let path = path.trim_end_matches(".yaml");
            // The primary configuration is never that of --config-dir, so a notice about it would be of no use.
            if !path.contains('/') {
                continue;
            }
            let mut used: Option<Vec<String>> = None;
            for (index, source) in sources.iter().enumerate() {
                let texts = source.read(path).map_err(|why| anyhow!(why))?;
                match (&used, texts.is_empty()) {
                    (_, true) => {}
                    (None, false) => used = Some(texts),
                    (Some(used), false) if !same_content(used, &texts) => {
                        let folder = index.checked_sub(2).and_then(|folder| self.folders.get(folder));
                        let Some(folder) = folder else { continue };
                        notices.push(format!(
                            "{} is not used: the packaged file with this name is found first, as in DLIO, and differs; \
                             give yours another name to use it",
                            folder.file(path).display()
                        ));
                    }
                    (Some(_), false) => {}
                }
            }
        }
        notices.dedup();
        Ok(notices)
    }
}

/// The absolute path, without `.` and `..`: the working directory need not exist.
fn absolute(working: &Path, path: impl AsRef<Path>) -> PathBuf {
    let mut result = PathBuf::new();
    for component in working.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                result.pop();
            }
            other => result.push(other),
        }
    }
    result
}

struct Composer<'a> {
    flags: &'a HydraFlags,
    environment: &'a Environment<'a>,
    folder: &'a Path,
}

impl Composer<'_> {
    fn request<'r>(&'r self, overrides: &'r [String], mode: RunMode) -> ComposeRequest<'r> {
        let config_name = Some(self.flags.config_name.as_deref().unwrap_or("config"));
        ComposeRequest { config_name, overrides, mode, job_name: JOB_NAME, version: HYDRA_VERSION }
    }

    fn configuration(
        &self,
        files: &ConfigFiles,
        overrides: &[String],
        mode: RunMode,
    ) -> anyhow::Result<Configuration> {
        Ok(compose_config(&files.repository(), &self.request(overrides, mode), self.environment)?)
    }

    fn compose(&mut self, files: &ConfigFiles) -> anyhow::Result<Composed> {
        let flags = self.flags;
        let configuration = |mode| self.configuration(files, &flags.overrides, mode);
        if flags.help {
            let resolve = flags.resolve.then_some(self.environment);
            let configuration = configuration(RunMode::Run)?;
            return Ok(Composed::Print(show::help(
                &files.repository(),
                &configuration,
                self.environment,
                resolve,
            )?));
        }
        if flags.hydra_help {
            let request =
                ComposeRequest { config_name: None, ..self.request(&flags.overrides, RunMode::Run) };
            let configuration = compose_config(&files.repository(), &request, self.environment)?;
            return Ok(Composed::Print(show::hydra_help(
                &files.repository(),
                &configuration,
                self.environment,
            )?));
        }
        if let Some(part) = &flags.cfg {
            return self.show(&configuration(RunMode::Run)?, part);
        }
        if let Some(topic) = &flags.info {
            return Ok(Composed::Print(show::info(topic, &configuration(RunMode::Run)?)?));
        }
        self.jobs(files)
    }

    fn show(&self, configuration: &Configuration, part: &str) -> anyhow::Result<Composed> {
        let part = match part {
            "job" => ConfigPart::Job,
            "hydra" => ConfigPart::Hydra,
            _ => ConfigPart::All,
        };
        let package = self.flags.package.as_deref().filter(|package| *package != "_global_");
        let resolve = self.flags.resolve.then_some(self.environment);
        match (configuration.show(part, package, resolve)?, package) {
            (Some(text), _) => Ok(Composed::Print(text)),
            (None, package) => bail!("--package {}: there is no such part", package.unwrap_or_default()),
        }
    }

    fn jobs(&self, files: &ConfigFiles) -> anyhow::Result<Composed> {
        let mut overrides = self.flags.overrides.clone();
        // `hydra.mode` of the command line or of a file decides, unless --multirun is given.
        let given =
            self.configuration(files, &overrides, RunMode::Multirun).ok().and_then(|given| given.mode());
        let mode = match (given, self.flags.multirun) {
            (Some(RunMode::Run), true) | (None, true) => RunMode::Multirun,
            (Some(mode), _) => mode,
            (None, false) => RunMode::Run,
        };
        if given != Some(mode) {
            overrides.push(format!("hydra.mode={}", if mode == RunMode::Run { "RUN" } else { "MULTIRUN" }));
        }
        let configuration = self.configuration(files, &overrides, mode)?;
        if mode == RunMode::Run {
            return Ok(Composed::Jobs(vec![self.job(files, configuration, None)?]));
        }
        let lists = configuration.sweep(&files.repository(), self.environment)?;
        let job = |(number, overrides): (usize, &Vec<String>)| {
            let configuration = self.configuration(files, overrides, RunMode::Run)?;
            self.job(files, configuration, Some(number))
        };
        Ok(Composed::Jobs(lists.iter().enumerate().map(job).collect::<anyhow::Result<_>>()?))
    }

    /// The job of a configuration; `number` is its place in a sweep.
    fn job(
        &self,
        files: &ConfigFiles,
        mut configuration: Configuration,
        number: Option<usize>,
    ) -> anyhow::Result<Job> {
        let text = |configuration: &Configuration, key: &str| {
            let value = configuration.text(key, self.environment)?;
            value.ok_or_else(|| anyhow!("'{key}' has no value"))
        };
        let folder = match number {
            None => PathBuf::from(text(&configuration, "hydra.run.dir")?),
            Some(number) => {
                configuration.set_job_number(number);
                let folder = PathBuf::from(text(&configuration, "hydra.sweep.dir")?);
                folder.join(text(&configuration, "hydra.sweep.subdir")?)
            }
        };
        configuration.set_output_folder(&absolute(self.folder, &folder).display().to_string());
        let resolved = configuration.section_yaml("workload", self.environment)?;
        let chdir = configuration.text("hydra.job.chdir", self.environment)?;
        let mut notices = files.hidden(&configuration)?;
        if !configuration.is_empty("hydra.job.env_set") {
            notices.push("'hydra.job.env_set' has no effect: set the variables before the start".into());
        }
        Ok(Job {
            workload: configuration.choice("workload").unwrap_or_default().to_owned(),
            config: configuration.job_yaml(),
            resolved: resolved
                .context("the configuration has no 'workload'; choose one with workload=NAME")?,
            hydra: configuration.hydra_yaml(),
            overrides: configuration.overrides_yaml(),
            folder,
            subfolder: configuration.text("hydra.output_subdir", self.environment)?,
            changes_folder: chdir.as_deref() == Some("true"),
            notices,
        })
    }
}
