//! Epochs with known counts of bytes and pages, and how they are judged.

use super::*;
use crate::ledger::{Counted, Ledger, NodeRow, RankRow, RepeatedReads, ReportedBytes};
use crate::spec::CacheProof;
use crate::verdict::tests::plan;

const PAGES: u64 = 1000;

/// An epoch of training that read `PAGES` pages: bytes from the storage per byte read, pages in memory before, and
/// pages still in memory after eviction.
struct Epoch {
    share: Option<f64>,
    resident: u64,
    left: Option<u64>,
}

fn cold(share: f64, resident: u64) -> Epoch {
    Epoch { share: Some(share), resident, left: Some(0) }
}

fn as_it_was(share: f64, resident: u64) -> Epoch {
    Epoch { share: Some(share), resident, left: None }
}

fn seen(epoch: &Epoch) -> ObservedCache {
    let bytes = epoch.share.map(|share| (share * PAGES as f64 * 4096.0) as u64);
    let mut seen = ObservedCache { storage: ReportedBytes::new(bytes), ..ObservedCache::default() };
    seen.needed_bytes = PAGES * 4096;
    (0..PAGES).for_each(|page| seen.counted.add(u64::from(page < epoch.resident), 1));
    if let Some(left) = epoch.left {
        (seen.made.files, seen.made.pages, seen.made.after) = (PAGES, PAGES, left);
    }
    seen
}

fn found(plan: &TrainingPlan, epochs: &[ObservedCache]) -> RuleResult {
    let mut ledger = Ledger::default();
    for (epoch, cache) in (1..).zip(epochs) {
        let row = RankRow { bytes_read: cache.needed_bytes, ..RankRow::default() };
        ledger.add(epoch, Phase::Train, 0, row);
        let cache = ObservedCache { stored: plan.data.train.stored(), ..cache.clone() };
        ledger.add_node(epoch, Phase::Train, 0, NodeRow { cache, ..NodeRow::default() });
    }
    served_as_asked(&TrainingCase { plan, checkpoint: None, ledger: &ledger })
}

fn judged(plan: &TrainingPlan, epochs: &[ObservedCache]) -> (RuleOutcome, String) {
    let RuleResult { outcome, evidence, .. } = found(plan, epochs);
    (outcome, evidence)
}

fn with_state(state: CacheState) -> TrainingPlan {
    let cache = CachePlan { state, proof: CacheProof::Exact, drop_host: false };
    let mut plan = TrainingPlan { cache: Some(cache), ..plan() };
    plan.data.train.bytes = PAGES * 4096;
    plan
}

#[test]
fn epochs_served_from_memory_fail() {
    let (cold_plan, as_is) = (with_state(CacheState::Cold), with_state(CacheState::AsIs));
    for (plan, epochs, outcome) in [
        (&cold_plan, [cold(1.0, 0), cold(1.01, 3)], RuleOutcome::Pass),
        (&cold_plan, [cold(1.0, 0), cold(0.0, 1000)], RuleOutcome::Fail),
        // A part of the engine kept the contents: nothing came from the storage, although no page was in memory.
        (&cold_plan, [cold(1.0, 0), cold(0.0, 0)], RuleOutcome::Fail),
        (&as_is, [as_it_was(1.0, 0), as_it_was(0.0, 1000)], RuleOutcome::Fail),
        (&as_is, [as_it_was(1.0, 0), as_it_was(1.0, 2)], RuleOutcome::Pass),
        // Read-ahead raises the byte count, which hides that half of the pages were in memory.
        (&as_is, [as_it_was(1.0, 0), as_it_was(1.2, 500)], RuleOutcome::Fail),
    ] {
        let epochs = epochs.map(|epoch| seen(&epoch));
        let (found, evidence) = judged(plan, &epochs);
        assert_eq!(found, outcome, "{evidence}");
    }
}

/// The same epoch with files that are read several times; no earlier read explains `foreign` of the pages in memory.
fn followed(epoch: &Epoch, foreign: u64) -> ObservedCache {
    let mut seen = seen(epoch);
    (seen.counted.followed, seen.counted.foreign) = (PAGES, foreign);
    seen
}

#[test]
fn cached_pages_of_a_file_that_is_read_once_fail() {
    let plan = with_state(CacheState::Cold);
    assert_eq!(
        judged(&plan, &[seen(&cold(1.3, 400))]).0,
        RuleOutcome::Fail,
        "read-ahead does not cross files"
    );
    assert_eq!(judged(&plan, &[seen(&cold(0.7, 300))]).0, RuleOutcome::Fail);
}

/// A plan of files with several samples.
fn of_parts() -> TrainingPlan {
    let mut plan = with_state(CacheState::Cold);
    plan.data.train.samples_per_file = 10;
    plan
}

#[test]
fn pages_loaded_by_own_reads_count_as_storage_and_others_do_not() {
    let plan = of_parts();
    for (share, resident, foreign, outcome) in [
        (1.0, 400, 0, RuleOutcome::Pass),
        (1.0, 400, 50, RuleOutcome::Pass),
        // Another process read the files right after each eviction.
        (0.12, 880, 880, RuleOutcome::Fail),
        (0.12, 880, 0, RuleOutcome::Fail),
        // Read-ahead delivered more bytes than needed, but the pages are still counted.
        (2.5, 500, 500, RuleOutcome::Fail),
    ] {
        let (found, evidence) = judged(&plan, &[followed(&cold(share, resident), foreign)]);
        assert_eq!(found, outcome, "{share} {resident} {foreign}: {evidence}");
    }
    let (_, evidence) = judged(&plan, &[followed(&cold(1.0, 400), 0)]);
    assert!(
        evidence.ends_with("before they were read, loaded by earlier reads of the same epoch"),
        "{evidence}"
    );
    let (_, evidence) = judged(&plan, &[followed(&cold(2.5, 500), 400)]);
    assert!(evidence.contains("40 % without an earlier read of this run"), "{evidence}");
}

#[test]
fn repeated_reads_need_not_come_from_storage_twice() {
    let plan = of_parts();
    let again = |repeated_bytes| {
        let mut seen = followed(&cold(0.7, 300), 0);
        seen.repeats = RepeatedReads { needed_bytes: 1000, repeated_bytes };
        judged(&plan, &[seen]).0
    };
    assert_eq!([again(300), again(100)], [RuleOutcome::Pass, RuleOutcome::Fail]);
    let twice = ObservedCache { needed_bytes: 2 * PAGES * 4096, ..followed(&cold(1.0, 0), 0) };
    assert_eq!(judged(&plan, &[twice]).0, RuleOutcome::Pass, "no epoch needs more than the files have");
}

#[test]
fn a_subset_that_was_followed_must_be_large_enough() {
    let mut plan = of_parts();
    plan.data.train.files = 10;
    let part = |pages, foreign| {
        let mut seen = followed(&cold(1.0, 100), foreign);
        seen.counted.followed = pages;
        judged(&plan, &[seen]).0
    };
    // Files of 100 pages are followed as a whole: 300 pages are three of them.
    assert_eq!(part(300, 0), RuleOutcome::NotCheckable);
    assert_eq!(part(300, 290), RuleOutcome::Fail);
    assert_eq!(part(0, 0), RuleOutcome::NotCheckable, "no page was compared with earlier reads");
}

#[test]
fn without_a_count_of_bytes_only_pages_decide() {
    let plan = with_state(CacheState::Cold);
    let uncounted = |resident| Epoch { share: None, ..cold(1.0, resident) };
    assert_eq!(judged(&plan, &[seen(&uncounted(0))]).0, RuleOutcome::Pass);
    assert_eq!(judged(&plan, &[seen(&uncounted(400))]).0, RuleOutcome::Fail, "files that are read once");
    assert_eq!(
        judged(&of_parts(), &[followed(&uncounted(400), 0)]).0,
        RuleOutcome::NotCheckable,
        "read again"
    );
}

#[test]
fn holes_compressed_and_inline_bytes_prove_nothing() {
    let plan = with_state(CacheState::Cold);
    let direct = TrainingPlan { cache: None, ..with_state(CacheState::Cold) };
    let with = |layout| ObservedCache { layout, ..seen(&cold(1.0, 0)) };
    let of = |bytes: [u64; 3]| {
        let [hole_bytes, compressed_bytes, inline_bytes] = bytes;
        StorageLayout { files: 3, bytes: 100, hole_bytes, compressed_bytes, inline_bytes }
    };
    for (parts, outcome) in [
        ([5, 5, 5], RuleOutcome::Pass),
        ([6, 0, 0], RuleOutcome::Fail),
        ([0, 6, 0], RuleOutcome::NotCheckable),
        ([0, 0, 100], RuleOutcome::NotCheckable),
    ] {
        for plan in [&plan, &direct] {
            let (found, evidence) = judged(plan, &[with(of(parts))]);
            assert_eq!(found, outcome, "{parts:?}: {evidence}");
        }
    }
    let (_, evidence) = judged(&plan, &[with(of([60, 0, 0]))]);
    assert!(evidence.contains("60 % of the bytes in 3 examined files are holes"), "{evidence}");
    let sparse_and_cached = ObservedCache { layout: of([60, 0, 0]), ..seen(&cold(0.0, 0)) };
    assert_eq!(judged(&plan, &[sparse_and_cached]).0, RuleOutcome::Fail);
}

#[test]
fn evidence_names_why_pages_are_not_shown() {
    let plan = with_state(CacheState::Cold);
    let mut seen = seen(&cold(1.0, 0));
    (seen.counted.refused, seen.counted.not_permitted) = (3, 3);
    let (outcome, evidence) = judged(&plan, &[seen]);
    assert_eq!(outcome, RuleOutcome::NotCheckable);
    assert!(evidence.contains("belong to another user") && !evidence.contains("6.5"), "{evidence}");
}

#[test]
fn a_low_value_of_a_counter_that_misses_bytes_does_not_fail() {
    let plan = with_state(CacheState::Cold);
    let least = |share, resident| ObservedCache { storage_is_least: true, ..seen(&cold(share, resident)) };
    assert_eq!(judged(&plan, &[least(0.3, 0)]).0, RuleOutcome::Pass, "no page was in memory");
    assert_eq!(judged(&plan, &[least(1.0, 0)]).0, RuleOutcome::Pass);
    assert_eq!(judged(&plan, &[least(0.3, 900)]).0, RuleOutcome::Fail);
}

#[test]
fn uncounted_fetches_prove_nothing() {
    let plan = with_state(CacheState::Cold);
    let with = |change: fn(&mut Counted)| {
        let mut seen = seen(&cold(1.0, 0));
        change(&mut seen.counted);
        judged(&plan, &[seen])
    };
    let (outcome, evidence) = with(|counted| counted.unasked = 10);
    assert_eq!(outcome, RuleOutcome::NotCheckable);
    assert!(evidence.contains("10 of 1,010 fetches read bytes whose pages were not counted"), "{evidence}");
    assert_eq!(with(|counted| counted.refused = 1).0, RuleOutcome::NotCheckable);
    assert_eq!(with(|counted| *counted = Counted::default()).0, RuleOutcome::NotCheckable);
    let mut untold = seen(&cold(1.0, 0));
    untold.untold.insert("tmpfs keeps files in memory".to_owned());
    let (outcome, evidence) = judged(&plan, &[untold]);
    assert_eq!(outcome, RuleOutcome::NotCheckable);
    assert!(evidence.starts_with("epoch 1, train: tmpfs keeps files in memory"), "{evidence}");
}

#[test]
fn a_sample_must_be_large_enough() {
    let plan = with_state(CacheState::Cold);
    let sampled = |resident: u64, fetches: u64| {
        let mut seen = seen(&cold(1.0, 0));
        seen.counted = Counted { left_out: 15 * fetches, ..Counted::default() };
        (0..fetches).for_each(|fetch| seen.counted.add(u64::from(fetch < resident), 1));
        seen.made.after = 1;
        judged(&plan, &[seen]).0
    };
    assert_eq!(
        [sampled(0, 1000), sampled(0, 20), sampled(200, 1000)],
        [RuleOutcome::Pass, RuleOutcome::NotCheckable, RuleOutcome::Fail]
    );
}

#[test]
fn warm_means_in_memory() {
    let plan = with_state(CacheState::Warm);
    for (resident, outcome) in [(1000, RuleOutcome::Pass), (960, RuleOutcome::Pass), (900, RuleOutcome::Fail)]
    {
        assert_eq!(judged(&plan, &[seen(&as_it_was(0.0, resident))]).0, outcome, "{resident}");
    }
}

#[test]
fn direct_reads_are_judged_by_bytes() {
    let plan = TrainingPlan { cache: None, ..with_state(CacheState::Cold) };
    let past = |share| ObservedCache {
        counted: Counted::default(),
        ..seen(&Epoch { share, resident: 0, left: None })
    };
    for (share, outcome) in
        [(Some(1.0), RuleOutcome::Pass), (Some(0.2), RuleOutcome::Fail), (None, RuleOutcome::Pass)]
    {
        assert_eq!(judged(&plan, &[past(share)]).0, outcome, "{share:?}");
    }
}

#[test]
fn read_amplification_is_noted() {
    let plan = with_state(CacheState::Cold);
    for (share, outcome) in [(1.05, RuleOutcome::Pass), (4.6, RuleOutcome::Note)] {
        let mut ledger = Ledger::default();
        ledger.add(1, Phase::Train, 0, RankRow { bytes_read: 4096, ..RankRow::default() });
        let node = NodeRow { cache: seen(&cold(share, 0)), ..NodeRow::default() };
        ledger.add_node(1, Phase::Train, 0, node);
        let case = TrainingCase { plan: &plan, checkpoint: None, ledger: &ledger };
        assert_eq!(read_amplification(&case).outcome, outcome);
    }
}

#[test]
fn evidence_of_many_epochs_is_short() {
    let plan = with_state(CacheState::Cold);
    let epochs: Vec<ObservedCache> =
        (0..1000).map(|epoch| seen(&cold(1.0 + f64::from(epoch) / 1e4, 0))).collect();
    let (outcome, evidence) = judged(&plan, &epochs);
    assert_eq!(outcome, RuleOutcome::Pass);
    assert_eq!(
        evidence,
        "bytes from the storage per epoch: 100 % to 110 %; pages in memory before they were read: 0 % to 0 %"
    );
}

#[test]
fn the_remedy_fits_the_cause() {
    let remedy =
        |plan: &TrainingPlan, cache: ObservedCache| found(plan, &[cache]).remedy.unwrap_or("the rule's own");
    let cold_plan = with_state(CacheState::Cold);
    let layout = StorageLayout { files: 1, bytes: 100, compressed_bytes: 90, ..StorageLayout::default() };
    let mut refused = seen(&cold(1.0, 0));
    refused.counted.refused = 1;
    let in_memory =
        ObservedCache { untold: ["tmpfs keeps files in memory".to_owned()].into(), ..seen(&cold(1.0, 0)) };
    for (plan, cache, words) in [
        (&with_state(CacheState::AsIs), seen(&as_it_was(0.0, 1000)), "the rule's own"),
        (&cold_plan, seen(&cold(0.0, 1000)), "stop other processes"),
        (&cold_plan, ObservedCache { layout, ..seen(&cold(1.0, 0)) }, "turn off compression"),
        (&cold_plan, refused, "use Linux 6.5 or later"),
        (&cold_plan, in_memory, "move the data set"),
        (&with_state(CacheState::Warm), seen(&as_it_was(0.0, 900)), "use a data set that fits in memory"),
        (
            &TrainingPlan { cache: None, ..with_state(CacheState::Cold) },
            seen(&cold(0.2, 0)),
            "honours O_DIRECT",
        ),
        (&cold_plan, ObservedCache::default(), "run at least one epoch"),
    ] {
        let found = remedy(plan, cache);
        assert!(found.contains(words), "{words}: {found}");
    }
}
