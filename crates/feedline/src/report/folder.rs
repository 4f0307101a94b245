//! The result folder, `RESULTS/WORKLOAD/TIME/`: written under a hidden name, flushed and then renamed, so that it
//! exists either completely or not at all.

use std::fs::File;
use std::io::{BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow};
use engine::meter;
use model::document;
use model::ledger::Phase;
use model::metrics::EpochFigures;
use store::{CreatedFolder, FolderHandle, StoreError, make_path, unnamed_file};

use super::result::Outcome;
use super::sums::{self, Checksum, Checksums, HashingWriter};
use super::{page, requests, write_lines, write_pretty};
use crate::{supervisor, terminal};

/// Creates the workload's results folder and checks that it is writable, before a long run instead of after it.
pub(crate) fn check_writable(results: &Path, workload: &str) -> anyhow::Result<FreshFolders> {
    let name = safe_name(workload);
    let cannot = |what: &str| format!("cannot {what} the results folder {}", results.join(&name).display());
    let mut made = FreshFolders::default();
    made.add(make_path(results).with_context(|| cannot("create"))?);
    let parent = FolderHandle::open(results).with_context(|| cannot("create"))?;
    made.add(CreatedFolder::new(&parent, &name).with_context(|| cannot("create"))?);
    parent.sync().with_context(|| cannot("flush"))?;
    let folder = parent.below(&name).with_context(|| cannot("use"))?;
    // Without a name, so that a run that is killed here leaves nothing behind.
    unnamed_file(folder.path()).with_context(|| cannot("write to"))?;
    Ok(made)
}

/// Folders that were created for a result, innermost first. Dropping this removes those that are still empty, so a run
/// without a result leaves nothing behind.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct FreshFolders(Vec<Arc<CreatedFolder>>);

impl FreshFolders {
    fn add(&mut self, made: impl IntoIterator<Item = CreatedFolder>) {
        for folder in made.into_iter().map(Arc::new) {
            leave(&folder);
            self.0.insert(0, folder);
        }
    }
}

impl Drop for FreshFolders {
    fn drop(&mut self) {
        // A folder that is not empty is kept.
        self.0.iter().for_each(|folder| folder.undo());
    }
}

/// Folders to remove if the program ends early, innermost first.
static LEAVINGS: Mutex<Vec<Arc<CreatedFolder>>> = Mutex::new(Vec::new());

fn leave(folder: &Arc<CreatedFolder>) {
    LEAVINGS.lock().unwrap_or_else(PoisonError::into_inner).insert(0, Arc::clone(folder));
}

/// Removes the folders that were created for a result if nothing was written to them. A folder with a result is kept.
pub(crate) fn remove_leavings() {
    LEAVINGS.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|folder| folder.undo());
}

/// The prefix of the name of an incomplete result folder.
const PARTIAL: &str = ".partial-";

/// Whether the name of a folder is that of an incomplete result, which a run is writing or a killed run left behind.
pub(crate) fn is_partial(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PARTIAL))
}

/// Writes the content of a file.
pub(crate) type ContentWriter<'a> = dyn Fn(&mut dyn Write) -> anyhow::Result<()> + 'a;

/// A file of a result. Files are written one at a time, in order, directly to disk, so that writing a result of many
/// epochs needs no memory in addition to its ledger.
struct Document {
    name: &'static str,
    write: fn(&mut dyn Write, &Outcome<'_>) -> anyhow::Result<()>,
    present: fn(&Outcome<'_>) -> bool,
}

/// The summary of a result, and its name in the leaf of a DLIO run, where it must not be taken for DLIO's.
pub(crate) const SUMMARY: &str = "summary.json";
pub(crate) const LEAF_SUMMARY: &str = "result.json";

/// The folder of feedline's own files in the leaf of a DLIO run.
pub(crate) const IN_LEAF: &str = "feedline";

/// The report as text, in the leaf of a DLIO run, which prints DLIO's lines instead.
const LEAF_REPORT: &str = "report.txt";

/// The page of a result.
pub(crate) const PAGE: &str = "report.html";

/// The files of a result. The summary is written last, because it states the peak memory.
const DOCUMENTS: [Document; 8] = [
    Document {
        name: "spec.yaml",
        write: |to, outcome| Ok(to.write_all(outcome.spec.to_yaml().as_bytes())?),
        present: |_| true,
    },
    Document {
        name: "plan.json",
        write: |to, outcome| write_pretty(to, &document::PLAN.of(outcome.plan)),
        present: |_| true,
    },
    Document {
        name: "ledger.json",
        write: |to, outcome| write_lines(to, &document::LEDGER.of(outcome.ledger)),
        present: |_| true,
    },
    Document { name: "epochs.csv", write: write_epochs, present: |outcome| outcome.plan.training.is_some() },
    Document { name: "requests.csv", write: requests::write_csv, present: requests::are_present },
    Document {
        name: "nodes.csv",
        write: |to, outcome| outcome.nodes().map_or(Ok(()), |nodes| nodes.write_csv(to)),
        present: |outcome| outcome.plan.training.is_some() && outcome.nodes().is_some(),
    },
    Document {
        name: PAGE,
        write: |to, outcome| Ok(to.write_all(page::of_run(outcome)?.html().as_bytes())?),
        present: |_| true,
    },
    Document { name: SUMMARY, write: |to, outcome| write_pretty(to, &outcome.summary()), present: |_| true },
];

/// Writes the result of a run and returns its path.
pub(crate) fn write(results: &Path, outcome: &Outcome<'_>) -> anyhow::Result<PathBuf> {
    let named = |document: &'static Document| -> NamedDocument<'_> {
        (document.name, Box::new(move |to| (document.write)(to, outcome)))
    };
    write_documents(results, &outcome.plan.workload, &documents(outcome).map(named).collect::<Vec<_>>())
}

/// A file of a result: its name, and what writes it.
pub(crate) type NamedDocument<'a> = (&'static str, Box<ContentWriter<'a>>);

/// Writes a result of these files and returns its path.
pub(crate) fn write_documents(
    results: &Path,
    workload: &str,
    documents: &[NamedDocument<'_>],
) -> anyhow::Result<PathBuf> {
    let name = safe_name(workload);
    let place = || format!("cannot write the result to {}", results.join(&name).display());
    // These folders existed when the run started, but may have been removed since.
    make_path(results).with_context(place)?;
    let results_folder = FolderHandle::open(results).with_context(place)?;
    results_folder.make_folder(&name).with_context(place)?;
    let parent = results_folder.below(&name).with_context(place)?;
    let partial = Arc::new(make_partial(&parent).with_context(place)?);
    leave(&partial);
    let saved = write_files(&partial, documents).and_then(|()| publish(&partial)).with_context(place);
    match saved {
        Ok(stamp) => Ok(results.join(&name).join(stamp)),
        Err(error) => {
            partial.undo();
            Err(error)
        }
    }
}

/// Creates the folder for an incomplete result. A killed run with the same process id may have left one behind.
fn make_partial(parent: &FolderHandle) -> anyhow::Result<CreatedFolder> {
    let number = supervisor::number();
    for attempt in 1..1000 {
        let more = if attempt == 1 { String::new() } else { format!("-{attempt}") };
        if let Some(made) = CreatedFolder::new(parent, format!("{PARTIAL}{number}{more}"))? {
            return Ok(made);
        }
    }
    Err(anyhow!("too many folders {PARTIAL}{number}; remove them"))
}

fn write_files(folder: &CreatedFolder, documents: &[NamedDocument<'_>]) -> anyhow::Result<()> {
    let mut sums = Checksums::default();
    for (name, write) in documents {
        sums.add(name, put(folder, name, write)?);
    }
    put_text(folder, sums::NAME, &sums.to_string())?;
    folder.folder().sync().context("cannot flush the folder")
}

fn documents(outcome: &Outcome<'_>) -> impl Iterator<Item = &'static Document> {
    DOCUMENTS.iter().filter(|document| (document.present)(outcome))
}

/// Writes the result into a folder of a leaf, whose names are free or those of an earlier result. The checksums are
/// written last, so that an incomplete result is not taken for a complete one.
pub(crate) fn write_below(folder: &FolderHandle, outcome: &Outcome<'_>) -> anyhow::Result<()> {
    let mut sums = Checksums::default();
    let report = terminal::without_colour(&super::text::render(outcome, folder.path(), false));
    sums.add(LEAF_REPORT, replace(folder, LEAF_REPORT, &|to| Ok(to.write_all(report.as_bytes())?))?);
    for Document { name, write, .. } in documents(outcome) {
        let name = if *name == SUMMARY { LEAF_SUMMARY } else { name };
        sums.add(name, replace(folder, name, &|to| write(to, outcome))?);
    }
    replace(folder, sums::NAME, &|to| Ok(to.write_all(sums.to_string().as_bytes())?))?;
    folder.sync().context("cannot flush the folder")
}

/// Removes what `write_below` has written, the checksums first.
pub(crate) fn remove_below(folder: &FolderHandle) -> Result<(), StoreError> {
    let names = DOCUMENTS.iter().map(|document| document.name);
    let mut names = [sums::NAME, LEAF_REPORT, LEAF_SUMMARY].into_iter().chain(names);
    names.try_for_each(|name| folder.remove(name))
}

/// Writes a file and flushes it; returns its checksum.
fn put(folder: &CreatedFolder, name: &str, write: &ContentWriter<'_>) -> anyhow::Result<Checksum> {
    let put = || fill(folder.create(name)?, write);
    put().with_context(|| name.to_owned())
}

/// Writes a file under a temporary name, flushes it, and lets it replace a regular file of its name; returns its
/// checksum.
pub(crate) fn replace(
    folder: &FolderHandle,
    name: &str,
    write: &ContentWriter<'_>,
) -> anyhow::Result<Checksum> {
    let temporary = format!(".{name}.partial");
    let put = || -> anyhow::Result<Checksum> {
        folder.check_replaceable(name)?;
        let sum = fill(folder.create_temporary(&temporary)?, write)?;
        folder.rename(&temporary, name)?;
        Ok(sum)
    };
    put().with_context(|| format!("cannot write {}", folder.shown(name))).inspect_err(|_| {
        // Best effort: the first error is the one to report.
        let _ = folder.remove(&temporary);
    })
}

/// Writes the content of a new file and flushes it.
fn fill(file: File, write: &ContentWriter<'_>) -> anyhow::Result<Checksum> {
    let mut file = HashingWriter::new(BufWriter::new(file));
    write(&mut file)?;
    let (file, sum) = file.finish();
    file.into_inner().map_err(IntoInnerError::into_error)?.sync_all()?;
    Ok(sum)
}

fn put_text(folder: &CreatedFolder, name: &str, text: &str) -> anyhow::Result<()> {
    put(folder, name, &|to| Ok(to.write_all(text.as_bytes())?)).map(drop)
}

/// Renames the finished folder to the current time, with a number if several runs end in the same second. Returns the
/// name.
fn publish(partial: &CreatedFolder) -> anyhow::Result<String> {
    let stamp = meter::folder_stamp();
    for attempt in 1..1000 {
        let name = if attempt == 1 { stamp.clone() } else { format!("{stamp}-{attempt}") };
        if partial.publish(&name)? {
            return Ok(name);
        }
    }
    Err(anyhow!("too many results for the time {stamp}"))
}

/// A workload's name as a single path component.
pub(crate) fn safe_name(name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    if safe.trim_matches('.').is_empty() { "workload".to_owned() } else { safe }
}

const CSV_HEADER: &str = "phase,epoch,samples_planned,samples_delivered,bytes_read,au_percent,samples_per_second,\
mib_per_second,clock_samples_per_second,clock_mib_per_second,wait_seconds,compute_seconds,barrier_seconds,\
harness_seconds\n";

fn write_epochs(to: &mut dyn Write, outcome: &Outcome<'_>) -> anyhow::Result<()> {
    to.write_all(CSV_HEADER.as_bytes())?;
    for phase in [Phase::Train, Phase::Eval] {
        for epoch in outcome.epochs(phase) {
            to.write_all(csv_line(phase, &epoch).as_bytes())?;
        }
    }
    Ok(())
}

/// One line. A figure that could not be measured is an empty field.
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
        maybe(epoch.clock_samples_per_second),
        maybe(epoch.clock_mib_per_second),
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
    #[test]
    fn the_docs_list_every_file_of_a_result() {
        let page = include_str!("../../../../docs/reference/results.md");
        for name in DOCUMENTS.iter().map(|document| document.name).chain([sums::NAME]) {
            assert!(
                page.contains(&format!("\n| `{name}` |")),
                "docs/reference/results.md has no row for {name}"
            );
        }
    }
}
