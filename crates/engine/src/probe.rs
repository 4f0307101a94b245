//! Whether a data set is there, judged by a few of its files: the first, the last and some at random, looked at in
//! parallel. Costs nothing next to a run; a single bad file is found when it is read.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use model::files::FileList;
use model::names::Name;
use model::order::mix;
use model::plan::TrainingPlan;
use store::{Store, StoreError};

use crate::train::Files;

/// Files that are looked at in each split.
const PROBES: u64 = 64;
/// Looks in flight at once: metadata of network file systems takes its time.
const AT_ONCE: u64 = 8;

/// Says what is missing or wrong about the files that the plan reads; `None` if nothing was found.
pub fn first_missing(
    store: &dyn Store,
    plan: &TrainingPlan,
    files: Files<'_>,
) -> Result<Option<String>, StoreError> {
    if let Some(what) = look(store, files.train, plan.data.train.files)? {
        return Ok(Some(what));
    }
    let valid = if plan.eval.is_some() { plan.data.valid.files } else { 0 };
    look(store, files.valid, valid)
}

fn look(store: &dyn Store, list: &dyn FileList, files: u64) -> Result<Option<String>, StoreError> {
    let count = PROBES.min(files);
    let next = AtomicU64::new(0);
    // The finding of the lowest probe, so that the message does not depend on who was faster.
    let found: Mutex<Option<(u64, Result<String, StoreError>)>> = Mutex::new(None);
    let work = || {
        let mut name = Name::default();
        loop {
            let probe = next.fetch_add(1, Ordering::Relaxed);
            if probe >= count {
                return;
            }
            if let Some(finding) = judge(store, list, index(files, probe), &mut name).transpose() {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                if found.as_ref().is_none_or(|(earlier, _)| probe < *earlier) {
                    *found = Some((probe, finding));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        // This thread looks too, so that one that cannot be started is no reason to give up.
        for _ in 1..AT_ONCE.min(count) {
            let _ = std::thread::Builder::new().name("probe".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner).map(|(_, finding)| finding).transpose()
}

/// The file that a probe looks at: the first, the last, then any; of few files each.
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
    name: &mut Name,
) -> Result<Option<String>, StoreError> {
    let planned = match list.entry(index, name) {
        Ok(bytes) => bytes,
        Err(cause) => return Ok(Some(cause)),
    };
    Ok(match store.files().size(name)? {
        Some(size) if size == planned => None,
        Some(size) => Some(format!("{name} has {size} bytes where the plan says {planned}")),
        None => Some(format!("{name} does not exist")),
    })
}
