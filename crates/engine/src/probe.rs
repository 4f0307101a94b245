//! Whether a data set exists, judged by a few of its files: the first, the last and some at random, checked in
//! parallel. The cost is negligible next to a run; a single bad file is found when it is read.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use model::files::FileList;
use model::names::Name;
use model::order::mix;
use model::plan::TrainingPlan;
use store::{Store, StoreError};

use crate::train::SplitFiles;

/// Files that are checked in each split.
const PROBES: u64 = 64;
/// Checks in flight at once: metadata operations of network file systems are slow.
const AT_ONCE: u64 = 8;

/// What is checked about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCheck {
    /// Its existence.
    Name,
    /// Its existence and its size.
    NameAndSize,
}

/// Returns what is missing or wrong among the checked files that the plan reads; `None` if all are as planned.
pub fn first_missing(
    store: &dyn Store,
    plan: &TrainingPlan,
    files: SplitFiles<'_>,
    check: FileCheck,
) -> Result<Option<String>, StoreError> {
    if let Some(what) = look(store, files.train, plan.data.train.files, check)? {
        return Ok(Some(what));
    }
    let valid = if plan.eval.is_some() { plan.data.valid.files } else { 0 };
    look(store, files.valid, valid, check)
}

fn look(
    store: &dyn Store,
    list: &dyn FileList,
    files: u64,
    check: FileCheck,
) -> Result<Option<String>, StoreError> {
    let count = PROBES.min(files);
    let next = AtomicU64::new(0);
    // The finding of the lowest probe, so that the message does not depend on thread timing.
    let found: Mutex<Option<(u64, Result<String, StoreError>)>> = Mutex::new(None);
    let work = || {
        let mut name = Name::default();
        loop {
            let probe = next.fetch_add(1, Ordering::Relaxed);
            if probe >= count {
                return;
            }
            if let Some(finding) = judge(store, list, index(files, probe), check, &mut name).transpose() {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                if found.as_ref().is_none_or(|(earlier, _)| probe < *earlier) {
                    *found = Some((probe, finding));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        // This thread checks files, too, so a thread that cannot be started is not an error.
        for _ in 1..AT_ONCE.min(count) {
            let _ = std::thread::Builder::new().name("probe".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner).map(|(_, finding)| finding).transpose()
}

/// The file that a probe checks: the first, the last, then random ones; each file once if there are few.
fn index(files: u64, probe: u64) -> u64 {
    match probe {
        _ if files <= PROBES => probe,
        0 => 0,
        1 => files - 1,
        _ => mix(files, probe) % files,
    }
}

fn judge(
    store: &dyn Store,
    list: &dyn FileList,
    index: u64,
    check: FileCheck,
    name: &mut Name,
) -> Result<Option<String>, StoreError> {
    let planned = match list.entry(index, name) {
        Ok(entry) => entry.bytes,
        Err(cause) => return Ok(Some(cause)),
    };
    Ok(match store.files().size(name)? {
        Some(size) if size == planned || check == FileCheck::Name => None,
        Some(size) => Some(format!("{name} has {size} bytes, but the plan expects {planned}")),
        None => Some(format!("{name} does not exist")),
    })
}
