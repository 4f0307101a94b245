//! A run that ends at any step: from some operation on nothing reaches a tier, as if the process were killed there.
//! Also any single operation that fails. Afterwards the newest complete checkpoint is correct, and nothing incomplete
//! is left.

use super::faults::{bench, posix, tree};
use super::*;

/// Whether a folder holds nothing but complete checkpoints.
fn only_complete(root: &Path) -> bool {
    let entries = std::fs::read_dir(root).unwrap().count();
    let partial = tree(root).into_keys().any(|name| name.contains(".partial") || name.contains("draft"));
    entries == complete(root).len() && !partial
}

/// A folder in memory, if available: the tests depend on the order of operations only, not on a disk.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Saves two checkpoints, and then, with faults by `rule` on one of the tiers, two more: one that replaces the second,
/// and a new one. Returns whether the rule affected any operation.
fn is_disturbed(mode: &str, on_fast: bool, rule: &str) -> bool {
    let (fast, last) = (folder(), folder());
    let (fast, last, burst) = (fast.path(), last.path(), mode == "burst-buffer");
    let settings = [&format!("checkpoint.mode_of_save={mode}"), "checkpoint.keep_last=2"];
    let calm = || bench(&settings, burst.then(|| posix(fast)), posix(last));
    calm().keep(|checkpointer| (checkpointer.save(at(1)), checkpointer.save(at(2))));
    let wild = tier(&format!("fault:posix,{rule}"), if on_fast { fast } else { last });
    let wild = match on_fast {
        true => bench(&settings, Some(wild), posix(last)),
        false => bench(&settings, burst.then(|| posix(fast)), wild),
    };
    let kept = wild.try_keep(|checkpointer| (checkpointer.save(at(2)), checkpointer.save(at(3))));
    // What existed before, or what the run reported as complete.
    let seen = kept.map_or(Vec::new(), |(_, saved)| saved);
    let promised = seen.iter().rev().find(|seen| seen.is_complete()).map_or(at(2), |seen| seen.moment);
    // What a reader finds before any recovery, and afterwards.
    let only = ["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=1"];
    let find = || {
        let reads = bench(&only, burst.then(|| posix(fast)), posix(last));
        reads.keep(|checkpointer| checkpointer.restore(newest()).unwrap()).0.moment
    };
    let found = find();
    assert!(found >= promised, "{mode}, {rule}: {found:?}, but {promised:?} was reported complete");
    calm().keep(|_| ());
    assert_eq!(find(), found, "{mode}, {rule}");
    assert!(only_complete(last) && complete(last).len() == 2, "{mode}, {rule}: {:?}", tree(last).keys());
    assert_eq!(tree(fast).len(), 0, "{mode}, {rule}");
    let tiers = [wild.fast.as_deref(), Some(&*wild.last)];
    let facts: Vec<_> = tiers.into_iter().flatten().flat_map(Tier::observed).collect();
    !facts.contains(&("faults_injected", "0".to_owned()))
}

/// Applies a rule to one operation after another, until there is no operation left.
fn one_after_the_other(rule: &str) {
    for (mode, on_fast) in
        [("direct", false), ("async", false), ("burst-buffer", true), ("burst-buffer", false)]
    {
        let is_about = |number: &u64| is_disturbed(mode, on_fast, &format!("{rule},after={number}"));
        let steps = (0..).take_while(is_about).count();
        assert!(steps > 50, "{mode}: {steps} steps");
    }
}

#[test]
fn a_run_may_end_at_any_step() {
    one_after_the_other("kind=eio");
}

#[test]
fn any_single_step_may_fail() {
    one_after_the_other("kind=eio,limit=1");
}
