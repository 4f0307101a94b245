//! The result folder, `RESULTS/WORKLOAD/TIME/`: written under a hidden name, flushed, and renamed into place, so that
//! it is there completely or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, anyhow};
use engine::meter;
use model::ledger::Phase;
use model::metrics::EpochFigures;

use super::result::Outcome;
use super::sums::{self, Sums};
use super::{lines, pretty};

/// Makes the workload's results folder and sees that something can be written there, before a long run and not
/// after it.
pub fn check_writable(results: &Path, workload: &str) -> anyhow::Result<FreshFolders> {
    let folder = results.join(safe_name(workload));
    let made =
        FreshFolders(folder.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect());
    let shown = folder.display();
    leave(&made.0);
    fs::create_dir_all(&folder)
        .map_err(|error| anyhow!("cannot make the results folder {shown}: {error}"))?;
    let probe = folder.join(format!(".feedline-probe-{}", std::process::id()));
    File::create(&probe).map_err(|error| anyhow!("cannot write to the results folder {shown}: {error}"))?;
    fs::remove_file(&probe).with_context(|| format!("cannot remove {}", probe.display()))?;
    Ok(made)
}

/// Folders that were made for a result. Those that are still empty when this goes are removed: a run that leaves no
/// result leaves no trace.
#[derive(Debug)]
#[must_use]
pub struct FreshFolders(Vec<PathBuf>);

impl Drop for FreshFolders {
    fn drop(&mut self) {
        // Innermost first; a folder with something in it stays, which is the point.
        self.0.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Folders that are of no use to anyone unless the program ends well.
static LEAVINGS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn leave(folders: &[PathBuf]) {
    LEAVINGS.lock().unwrap_or_else(PoisonError::into_inner).splice(0..0, folders.iter().cloned());
}

/// Removes what a result was to be written to, where nothing was.
pub fn remove_leavings() {
    for folder in LEAVINGS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let partial = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PARTIAL));
        // Best effort, innermost first. A folder with a result in it stays.
        let _ = if partial { fs::remove_dir_all(folder) } else { fs::remove_dir(folder) };
    }
}

/// How the name of a result folder begins that is not complete.
const PARTIAL: &str = ".partial-";

/// A file of a result: its name and its text.
pub type Document = (&'static str, String);

/// Writes the result and says where it is.
pub fn write(results: &Path, workload: &str, documents: &[Document]) -> anyhow::Result<PathBuf> {
    let parent = results.join(safe_name(workload));
    let partial = parent.join(format!("{PARTIAL}{}", std::process::id()));
    let place = || format!("cannot write the result to {}", parent.display());
    // One that was killed may have had the same number.
    let _ = fs::remove_dir_all(&partial);
    leave(std::slice::from_ref(&partial));
    fs::create_dir_all(&partial).with_context(place)?;
    let saved =
        write_files(&partial, documents).and_then(|()| publish(&parent, &partial)).with_context(place);
    if saved.is_err() {
        // The error is what matters; a left-over is hidden and recognisable.
        let _ = fs::remove_dir_all(&partial);
    }
    saved
}

/// The files of the result of a run that trains.
pub fn documents(outcome: &Outcome<'_>) -> anyhow::Result<Vec<Document>> {
    Ok(vec![
        ("spec.yaml", outcome.spec.to_yaml()),
        ("plan.json", pretty(outcome.plan)?),
        ("ledger.json", lines(outcome.ledger)?),
        ("epochs.csv", epochs_csv(outcome)),
        ("summary.json", pretty(&outcome.summary())?),
    ])
}

fn write_files(folder: &Path, documents: &[Document]) -> anyhow::Result<()> {
    let mut sums = Sums::default();
    for (name, text) in documents {
        sums.add(name, text.as_bytes());
        put(folder, name, text)?;
    }
    put(folder, sums::NAME, &sums.to_string())?;
    File::open(folder)?.sync_all().context("cannot flush the folder")
}

fn put(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let mut file = File::create(folder.join(name)).with_context(|| name.to_owned())?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(|| name.to_owned())
}

/// Writes a file under a hidden name and gives it its own when it is whole; one that stands there is replaced.
pub fn put_whole(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let partial = format!(".partial-{name}");
    put(folder, &partial, text)?;
    fs::rename(folder.join(partial), folder.join(name)).with_context(|| name.to_owned())
}

/// Gives the finished folder its name: the time, and a number if two runs end in one second.
fn publish(parent: &Path, partial: &Path) -> anyhow::Result<PathBuf> {
    let stamp = meter::folder_stamp();
    for attempt in 1..1000 {
        let name = if attempt == 1 { stamp.clone() } else { format!("{stamp}-{attempt}") };
        let folder = parent.join(name);
        // Renaming onto an existing folder fails unless it is empty, and ours never are.
        match fs::rename(partial, &folder) {
            Ok(()) => {
                File::open(parent)?.sync_all()?;
                return Ok(folder);
            }
            Err(_) if folder.exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(anyhow!("too many results with the time {stamp}"))
}

/// A workload's name as one component of a path.
pub fn safe_name(name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    if safe.trim_matches('.').is_empty() { "workload".to_owned() } else { safe }
}

const CSV_HEADER: &str = "phase,epoch,samples_planned,samples_delivered,bytes_read,au_percent,samples_per_second,\
mib_per_second,wait_seconds,compute_seconds,barrier_seconds,harness_seconds\n";

fn epochs_csv(outcome: &Outcome<'_>) -> String {
    let mut text = CSV_HEADER.to_owned();
    for phase in [Phase::Train, Phase::Eval] {
        for epoch in outcome.figures(phase).map_or_else(Vec::new, |figures| figures.epochs) {
            text.push_str(&csv_line(phase, &epoch));
        }
    }
    text
}

/// One line; a figure that could not be measured is an empty field.
fn csv_line(phase: Phase, epoch: &EpochFigures) -> String {
    let maybe = |figure: Option<f64>| figure.map_or(String::new(), |figure| figure.to_string());
    let fields = [
        phase.to_string(),
        epoch.epoch.to_string(),
        epoch.samples_planned.to_string(),
        epoch.samples_delivered.to_string(),
        epoch.bytes_read.to_string(),
        maybe(epoch.au_percent),
        maybe(epoch.samples_per_second),
        maybe(epoch.mib_per_second),
        epoch.wait_seconds.to_string(),
        epoch.compute_seconds.to_string(),
        epoch.barrier_seconds.to_string(),
        epoch.harness_seconds.to_string(),
    ];
    fields.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_one_path_component() {
        for (name, safe) in
            [("unet3d_h100", "unet3d_h100"), ("../x", ".._x"), ("a b/c", "a_b_c"), ("..", "workload")]
        {
            assert_eq!(safe_name(name), safe);
        }
    }
}
