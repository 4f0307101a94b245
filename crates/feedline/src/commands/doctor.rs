//! `feedline doctor`: what this host and its folders offer to feedline, what is limited, and what to do about it. It
//! writes nothing.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use model::document;
use model::location::Location;

use crate::doctor::{HealthState, HostView, check_folder, check_host};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::WaitFlags;
use crate::report;
use crate::report::doctor::{FolderHealth, HealthReport};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline doctor                                this host and the current folder
  feedline doctor /mnt/nfs /mnt/fast --json

Each check says what was observed; if something is limited or missing, what follows and what to do
('feedline docs doctor'). Exit code 5: something that every run needs is missing.";

/// Where the data sets of built-in workloads are.
const DATA: &str = "feedline-data";

#[derive(Args, Debug)]
pub(crate) struct DoctorFlags {
    /// Folders for data, results or checkpoints [default: the current folder, and feedline-data if it exists]
    #[arg(value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// The MPI library to check, instead of those that the loader finds
    #[arg(long, value_name = "FILE")]
    pub mpi_library: Option<String>,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

pub(crate) fn doctor(flags: &DoctorFlags) -> CommandResult {
    for folder in &flags.folders {
        if !matches!(Location::parse(folder), Location::Path(_)) {
            let shown = model::secret::redact(&folder.display().to_string());
            return Err(Failure::usage(anyhow!("doctor checks folders, but {shown} is a URL")));
        }
    }
    let mut health = HealthReport::new(check_host(&HostView::look(flags.mpi_library.as_deref())));
    let print = |text: &str| if flags.json { Ok(()) } else { report::out(text) };
    // Before the folders: one of them may not answer, which ends the command.
    print(&health.host_text())?;
    for path in folders(&flags.folders) {
        let folder = FolderHealth { path: path.display().to_string(), checks: check_folder(&path) };
        print(&folder.text())?;
        health.folders.push(folder);
    }
    health.finish();
    print(&health.summary())?;
    if flags.json {
        report::out_json(document::HEALTH, &health)?;
    }
    Ok(if health.state == HealthState::Missing { Exit::CheckFailed } else { Exit::Ok })
}

/// The folders that are named, else the usual ones.
fn folders(named: &[PathBuf]) -> Vec<PathBuf> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let data = Some(PathBuf::from(DATA)).filter(|path| Path::exists(path));
    std::iter::once(PathBuf::from(".")).chain(data).collect()
}
