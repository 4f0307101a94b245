//! A job: one run of the benchmark, as the command line and the configuration files describe it. Process 0 composes the
//! jobs and hands them to the others, so that all processes have the same folders and settings, even if only one host
//! has the configuration files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What Hydra makes of a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Composed {
    /// Print this on stdout and end: help, versions, configurations.
    Print(String),
    /// Run these jobs in order. `--multirun` makes several.
    Jobs(Vec<Job>),
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The chosen workload, such as `unet3d_h100`; empty if the command line removed the group.
    pub workload: String,
    /// The content of `config.yaml`: the composed configuration as written, with its interpolations.
    pub config: String,
    /// What runs: the section `workload:` of it alone, with interpolations resolved.
    pub resolved: String,
    /// The content of `hydra.yaml` and `overrides.yaml`.
    pub hydra: String,
    pub overrides: String,
    /// The output folder, `hydra.run.dir`, as given: relative to the working directory.
    pub folder: PathBuf,
    /// The folder in it for the three YAML files; `None`: they are not written.
    pub subfolder: Option<String>,
    /// Whether to change to the output folder first, `hydra.job.chdir`.
    pub changes_folder: bool,
    /// What the user should know, such as a file that another one hides.
    pub notices: Vec<String>,
}
