//! Whether a data set is there, judged by a few of its files: the first, the last and some at random, looked at in
//! parallel. Costs nothing next to a run; a single bad file is found when it is read.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use model::names::Name;
use model::order::mix;
use model::plan::{Plan, Split};
use store::{Store, StoreError};

/// Files that are looked at in each split.
const PROBES: u64 = 64;
/// Looks in flight at once: metadata of network file systems takes its time.
const AT_ONCE: u64 = 8;

/// Says what is missing or wrong about the files that the plan reads; `None` if nothing was found.
pub fn first_missing(store: &dyn Store, plan: &Plan) -> Result<Option<String>, StoreError> {
    let splits = std::iter::once(&plan.data.train).chain(plan.eval.iter().map(|_| &plan.data.valid));
    for split in splits {
        if let Some(what) = look(store, plan, split)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

fn look(store: &dyn Store, plan: &Plan, split: &Split) -> Result<Option<String>, StoreError> {
    let count = PROBES.min(split.files);
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
            if let Some(finding) = judge(store, plan, split, index(split, probe), &mut name).transpose() {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                if found.as_ref().is_none_or(|(earlier, _)| probe < *earlier) {
                    *found = Some((probe, finding));
                }
            }
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE.min(count)).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().unwrap_or_else(PoisonError::into_inner).map(|(_, finding)| finding).transpose()
}

/// The file that a probe looks at: the first, the last, then any.
fn index(split: &Split, probe: u64) -> u64 {
    match probe {
        0 => 0,
        1 => split.files - 1,
        _ => mix(split.files, probe) % split.files,
    }
}

fn judge(
    store: &dyn Store,
    plan: &Plan,
    split: &Split,
    index: u64,
    name: &mut Name,
) -> Result<Option<String>, StoreError> {
    split.names.write(index, name);
    let planned = plan.data.file_bytes.of(split.first_file + index);
    Ok(match store.size(name)? {
        Some(size) if size == planned => None,
        Some(size) => Some(format!(
            "{name} has {size} bytes where the plan says {planned}: it was generated with other settings"
        )),
        None => Some(format!("{name} does not exist")),
    })
}
