//! The leaf: the folder of one run in DLIO's form, without the three YAML files of Hydra. The folder usually exists and
//! has files of other programs, so it is never cleared: feedline replaces and removes only regular files with the names
//! below. `summary.json` is written last, by a rename; a run that did not finish has none.

mod closing;
mod level;
mod log;
mod ranks;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use engine::meter::{self, Monotonic};
use model::verdict::Status;
use store::{FolderHandle, Now, make_path};

use crate::report::folder::{self, IN_LEAF, SUMMARY};
use crate::report::result::Outcome;
use crate::report::write_pretty;
pub(crate) use log::LeafLog;
pub(crate) use ranks::OwnRun;

/// The default of `output.log_file`.
pub(crate) const LOG: &str = "dlio.log";

/// How long a new file of process 0 may take to be seen by other hosts.
const UNTIL_SEEN: Duration = Duration::from_secs(10);
/// The same for files whose absence a host may have cached: NFS keeps that for up to a minute.
const UNTIL_LISTED: Duration = Duration::from_secs(90);
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// More than the first line of a log has.
const LONGEST_MARK: u64 = 200;

/// What process 0 knows of the leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafLead {
    pub ranks: u64,
    /// Whether the folder is locked already.
    pub is_claimed: bool,
}

/// The leaf of a run, as one process sees it.
pub(crate) struct LeafWriter {
    path: PathBuf,
    folder: FolderHandle,
    log: LeafLog,
    log_name: String,
}

impl LeafWriter {
    /// Every process calls this, and none writes files of its ranks before process 0 has returned. Process 0, which
    /// leads, keeps other runs out of the folder, removes the files of an earlier run, checks that nothing is in the
    /// way of this one, and opens the log. `log_file` is `output.log_file`.
    pub(crate) fn begin(path: &Path, log_file: &str, leads: Option<LeafLead>) -> anyhow::Result<LeafWriter> {
        let cannot = || format!("cannot use the output folder {}", path.display());
        drop(make_path(path).with_context(cannot)?);
        let folder = FolderHandle::open(path).with_context(cannot)?;
        let log = match leads {
            Some(LeafLead { ranks, is_claimed }) => {
                if !is_claimed {
                    folder.lock().with_context(cannot)?;
                }
                remove_earlier(&folder, ranks).with_context(cannot)?;
                LeafLog::create(&folder, log_name(log_file)?)?
            }
            None => LeafLog::silent(),
        };
        Ok(LeafWriter { path: path.to_owned(), folder, log, log_name: log_name(log_file)?.to_owned() })
    }

    /// What the log begins with; it differs from run to run.
    pub(crate) fn mark(&self) -> Option<String> {
        let mut line = String::new();
        let log = File::open(self.path.join(&self.log_name)).ok()?;
        BufReader::new(log.take(LONGEST_MARK)).read_line(&mut line).ok()?;
        Some(line)
    }

    /// Checks that this process sees the folder of process 0, whose log has this mark. On a network file system it may
    /// take a moment until a new file can be seen.
    pub(crate) fn check_shared(&self, mark: Option<&str>) -> anyhow::Result<()> {
        wait_until(UNTIL_SEEN, || self.mark().as_deref() == mark).then_some(()).ok_or_else(|| {
            anyhow!(
                "the output folder {} is not the one of process 0; all processes write to it, so it must be on a \
                 shared file system",
                self.path.display()
            )
        })
    }

    /// The log, which is also the observer of the run. Processes other than 0 log nothing.
    pub(crate) fn log(&self) -> &LeafLog {
        &self.log
    }

    /// Writes the files of this process's ranks. Every process of a complete run calls this, and all of them agree that
    /// they have before process 0 concludes.
    pub(crate) fn write_ranks(&self, run: &OwnRun<'_>) -> anyhow::Result<()> {
        for rank in run.ranks.clone() {
            let stats = ranks::stats_name(rank);
            folder::replace(&self.folder, &stats, &|to| write_pretty(to, &run.stats(rank)))?;
            let output = ranks::output_name(rank);
            folder::replace(&self.folder, &output, &|to| write_pretty(to, &run.output(rank)))?;
        }
        self.folder.sync().with_context(|| format!("cannot flush {}", self.path.display()))
    }

    /// Process 0 writes feedline's own files and the last lines of the log and, if the run is complete, `summary.json`.
    pub(crate) fn conclude(&self, outcome: &Outcome<'_>) -> anyhow::Result<()> {
        let own = || format!("cannot write to {}", self.path.join(IN_LEAF).display());
        self.folder.make_folder(IN_LEAF).with_context(own)?;
        folder::write_below(&self.folder.below(IN_LEAF).with_context(own)?, outcome)?;
        closing::report(&self.log, outcome);
        if outcome.verdict.status == Status::Incomplete {
            return self.log.finish();
        }
        // A complete leaf has a complete log, so the summary follows the last line.
        self.log.result(&format!("Saved outputs in {}", self.path.display()));
        self.log.finish()?;
        self.log.check_named(&self.folder)?;
        self.check_ranks(outcome.plan.ranks)?;
        folder::replace(&self.folder, SUMMARY, &|to| write_pretty(to, &outcome.leaf_summary()))?;
        self.folder.sync().with_context(|| format!("cannot flush {}", self.path.display()))
    }

    /// Checks that the files of all ranks are there.
    fn check_ranks(&self, ranks: u64) -> anyhow::Result<()> {
        let missing = |rank: &u64| {
            let there =
                |name: String| self.path.join(name).symlink_metadata().is_ok_and(|facts| facts.is_file());
            !there(ranks::output_name(*rank)) || !there(ranks::stats_name(*rank))
        };
        if wait_until(UNTIL_LISTED, || !(0..ranks).any(|rank| missing(&rank))) {
            return Ok(());
        }
        let rank = (0..ranks).find(missing).unwrap_or_default();
        bail!("the files of rank {rank} are not in {}, although it has written them", self.path.display())
    }
}

/// Waits until something holds; returns whether it does.
fn wait_until(limit: Duration, holds: impl Fn() -> bool) -> bool {
    let clock = Monotonic::new();
    loop {
        match holds() {
            true => return true,
            false if clock.now().seconds() > limit.as_secs_f64() => return false,
            false => meter::pause(BETWEEN_LOOKS),
        }
    }
}

/// Removes the summary of an earlier run: while it is there, the folder counts as a complete result.
pub(crate) fn remove_summary(folder: &FolderHandle) -> anyhow::Result<()> {
    folder.remove(SUMMARY)?;
    // A link stays, and so does the file of another user.
    folder.check_free(SUMMARY)?;
    Ok(folder.sync()?)
}

/// The name of the log: a name of its own in the folder.
fn log_name(log_file: &str) -> anyhow::Result<&str> {
    match log_file {
        "" => Ok(LOG),
        SUMMARY | IN_LEAF | "." | ".." => {
            bail!("output.log_file: '{log_file}' is the name of another part of the result")
        }
        name if ranks::is_rank_file(name) => bail!("output.log_file: '{name}' is the name of a rank's file"),
        name if name.contains('/') => {
            bail!(
                "output.log_file: '{name}' is a path; the log is a file in the output folder, so give its name only"
            )
        }
        name => Ok(name),
    }
}

/// Removes the files of an earlier run. What is left under the names of this run's files would stop it at its end.
fn remove_earlier(folder: &FolderHandle, ranks: u64) -> anyhow::Result<()> {
    remove_summary(folder)?;
    for entry in std::fs::read_dir(folder.path())? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(ranks::is_rank_file) {
            folder.remove(&name)?;
        }
    }
    for rank in 0..ranks {
        folder.check_free(ranks::output_name(rank))?;
        folder.check_free(ranks::stats_name(rank))?;
    }
    match folder.check_free(IN_LEAF) {
        Ok(()) => Ok(()),
        Err(_) => Ok(folder::remove_below(&folder.below(IN_LEAF)?)?),
    }
}

#[cfg(test)]
mod tests;
