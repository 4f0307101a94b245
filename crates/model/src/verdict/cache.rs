//! Rules about where bytes came from: the storage or memory, and how many more of them came than were asked for.
//!
//! Two observations decide, and both must hold. The kernel's counters say how many bytes the storage delivered to this
//! process: at least what the epoch needed, each byte once. Read-ahead makes that more than was asked for, so a large
//! number alone does not show that nothing came from memory. The count of pages says what was in memory right before it
//! was read. Where an epoch reads a file more than once, its own earlier reads put pages there; those count for the
//! storage, and the others (`foreign`) do not.
//!
//! Neither shows anything about bytes that no storage holds (holes) or that are stored in another form.

use super::{Outcome, TrainingCase};
use crate::ledger::{CacheSeen, Layout, Phase};
use crate::plan::{CachePlan, Medium, PhasePlan, TrainingPlan};
use crate::spec::CacheState;
use crate::statistics::Confidence;
use crate::units::grouped;

/// The share of bytes from the storage, where they should come from there, and of pages in memory, where they should be
/// there, that is as good as all.
const ENOUGH: f64 = 0.95;
/// More bytes from the storage than this for each that was read are worth a word.
const AMPLIFIED: f64 = 1.1;
/// Epochs that are shown one by one.
const SHOWN: usize = 8;

/// One phase of one epoch that read something.
struct Seen<'a> {
    epoch: u64,
    phase: &'a PhasePlan,
    reads_again: bool,
    cache: CacheSeen,
}

impl Seen<'_> {
    fn storage_share(&self) -> Option<f64> {
        self.cache.storage_share()
    }

    /// The share, if it shows something: a counter that may miss bytes shows nothing while it is low.
    fn proven_share(&self) -> Option<f64> {
        self.storage_share().filter(|share| !self.cache.storage_is_least || *share >= ENOUGH)
    }

    /// The pages that were in memory without this process having brought them there: their share, and where it lies. A
    /// file that is read once has no earlier read: all of its pages in memory are such pages. `None` if it is unknown.
    fn foreign(&self) -> Option<(f64, Confidence)> {
        let counted = &self.cache.counted;
        if !self.reads_again {
            return counted.resident_share().zip(counted.resident_interval());
        }
        counted.foreign_share().zip(self.cache.foreign_interval())
    }

    fn place(&self) -> String {
        format!("epoch {}, {}", self.epoch, self.phase.phase)
    }
}

/// What one phase shows.
enum Finding {
    Holds,
    /// It holds, but there is something to explain.
    Explained(String),
    Broken(String),
    Open(String),
}

pub(super) fn served_as_asked(case: &TrainingCase<'_>) -> (Outcome, String) {
    if let Some(why) = no_storage(case.plan) {
        return (Outcome::NotCheckable, why.to_owned());
    }
    let seen: Vec<Seen<'_>> = read_phases(case).collect();
    if seen.is_empty() {
        return (Outcome::NotCheckable, "nothing was read".to_owned());
    }
    let figures = figures(&seen);
    let (mut explained, mut open) = (None, None);
    for phase in &seen {
        match examine(case.plan.cache, phase) {
            Finding::Holds => {}
            Finding::Explained(why) => {
                explained.get_or_insert_with(|| format!("{}: {why}", phase.place()));
            }
            Finding::Open(why) => {
                open.get_or_insert_with(|| format!("{}: {why}", phase.place()));
            }
            Finding::Broken(why) => return (Outcome::Fail, format!("{}: {why}; {figures}", phase.place())),
        }
    }
    match (open, explained) {
        (Some(why), _) => (Outcome::NotCheckable, format!("{why}; {figures}")),
        (None, Some(why)) => (Outcome::Pass, format!("{figures}; {why}")),
        (None, None) => (Outcome::Pass, figures),
    }
}

/// Why there is nothing to check.
fn no_storage(plan: &TrainingPlan) -> Option<&'static str> {
    match plan.store.medium {
        Medium::Null => Some("the null store reads nothing: this is the instrument's own ceiling"),
        Medium::Simulated => Some("the device is simulated: nothing was read from any storage"),
        Medium::Storage => None,
    }
}

fn read_phases<'a>(case: &TrainingCase<'a>) -> impl Iterator<Item = Seen<'a>> {
    let (plan, ledger) = (case.plan, case.ledger);
    let seen = case.seen_phases().map(move |(epoch, phase)| Seen {
        epoch,
        phase,
        reads_again: plan.reads_again(phase.phase),
        cache: ledger.cache(epoch, phase.phase),
    });
    seen.filter(|seen| seen.cache.needed_bytes > 0)
}

fn examine(plan: Option<CachePlan>, seen: &Seen<'_>) -> Finding {
    if let Some(CachePlan { state: CacheState::Warm, .. }) = plan {
        return warm(seen);
    }
    let served = if plan.is_some() { from_storage(seen) } else { past_the_cache(seen) };
    match (served, unstored(seen)) {
        (Finding::Broken(why), _) | (_, Some(Finding::Broken(why))) => Finding::Broken(why),
        (Finding::Open(why), _) | (_, Some(Finding::Open(why))) => Finding::Open(why),
        (served, _) => served,
    }
}

/// Files whose bytes are not stored as they are read.
fn unstored(seen: &Seen<'_>) -> Option<Finding> {
    let Layout { files, bytes, hole_bytes, compressed_bytes, inline_bytes } = seen.cache.layout;
    let share = |part: u64| part as f64 / bytes.max(1) as f64;
    let of = |part: u64| {
        let files = if files == 1 { "one file".to_owned() } else { format!("{} files", grouped(files)) };
        format!("{} of the bytes of {files} that were examined are", percent(share(part)))
    };
    let much = |part: u64| share(part) > 1.0 - ENOUGH;
    match () {
        () if much(hole_bytes) => {
            Some(Finding::Broken(format!("{} holes, which are read from no storage", of(hole_bytes))))
        }
        () if much(compressed_bytes) => Some(Finding::Open(format!(
            "{} compressed by the file system: the storage delivered fewer bytes than were read",
            of(compressed_bytes)
        ))),
        () if much(inline_bytes) => Some(Finding::Open(format!(
            "{} stored inside the metadata of the file system, whose cache is not counted",
            of(inline_bytes)
        ))),
        () => None,
    }
}

/// Reads past the page cache: there is nothing to count but bytes.
fn past_the_cache(seen: &Seen<'_>) -> Finding {
    match (seen.proven_share(), seen.cache.untold.first()) {
        (Some(share), _) if share < ENOUGH => Finding::Broken(too_few(share)),
        (_, Some(why)) => Finding::Open(why.clone()),
        (Some(_), None) => Finding::Holds,
        (None, None) => {
            Finding::Explained("read past the page cache; the bytes below it are not counted here".to_owned())
        }
    }
}

fn too_few(share: f64) -> String {
    format!("only {} of the bytes came from the storage, the rest from memory", percent(share))
}

fn warm(seen: &Seen<'_>) -> Finding {
    if let Some(why) = uncounted(seen) {
        return Finding::Open(why);
    }
    let counted = &seen.cache.counted;
    let Confidence { low, high } = counted.resident_interval().unwrap_or(Confidence { low: 0.0, high: 1.0 });
    let share = percent(counted.resident_share().unwrap_or(0.0));
    match () {
        () if high < ENOUGH => Finding::Broken(format!("only {share} of the pages were in memory")),
        () if low < ENOUGH => Finding::Open(too_small_a_sample(&share, low, high)),
        () => Finding::Holds,
    }
}

fn from_storage(seen: &Seen<'_>) -> Finding {
    let share = seen.proven_share();
    if let Some(share) = share.filter(|share| *share < ENOUGH) {
        return Finding::Broken(too_few(share));
    }
    if let Some(why) = uncounted(seen) {
        return Finding::Open(why);
    }
    let (few, resident) = (1.0 - ENOUGH, seen.cache.counted.resident_share().unwrap_or(1.0));
    let before = format!("{} of the pages were in memory before they were read", percent(resident));
    let Some((foreign, Confidence { low, high })) = seen.foreign() else {
        return Finding::Open(format!(
            "{before}; too few of them were compared with earlier reads of this run"
        ));
    };
    match () {
        () if high > few && low <= few => Finding::Open(too_small_a_sample(&percent(foreign), low, high)),
        () if high > few && seen.reads_again => Finding::Broken(format!(
            "{before}, {} without an earlier read of this run: another process loaded them, or they were left from \
             before",
            percent(foreign)
        )),
        () if high > few => Finding::Broken(before),
        () if resident <= few => Finding::Holds,
        // Own reads reach further than they need to, so that only a count of bytes shows that they did.
        () if share.is_none() => Finding::Open(format!(
            "{before}, where earlier reads of this run may have put them; bytes are not counted"
        )),
        () => Finding::Explained(format!("{before}, where earlier reads of the same epoch had put them")),
    }
}

/// Why the count of pages shows nothing, if so.
fn uncounted(seen: &Seen<'_>) -> Option<String> {
    let counted = &seen.cache.counted;
    let all = counted.fetches + counted.left_out + counted.refused + counted.unasked;
    if let Some(why) = seen.cache.untold.first() {
        return Some(why.clone());
    }
    if counted.not_permitted > 0 {
        return Some(
            "the kernel does not show this user which pages are in memory: the files belong to another user and their \
             file system cannot be asked in another way; run as their owner, with write permission, or as root"
                .to_owned(),
        );
    }
    if counted.refused > 0 {
        return Some(
            "the kernel does not show which pages of these files are in memory (cachestat needs Linux 6.5, mincore \
             needs files that can be mapped)"
                .to_owned(),
        );
    }
    if counted.unasked > 0 {
        let (unasked, all) = (grouped(counted.unasked), grouped(all));
        return Some(format!("{unasked} of {all} fetches brought bytes whose pages were not counted"));
    }
    (counted.pages == 0).then(|| "no pages were counted".to_owned())
}

fn too_small_a_sample(share: &str, low: f64, high: f64) -> String {
    let (low, high) = (percent(low), percent(high));
    format!("{share} of the sampled pages were in memory, which may be {low} to {high} of all")
}

/// The figures of all phases, in words.
fn figures(seen: &[Seen<'_>]) -> String {
    let train = |seen: &&Seen<'_>| seen.phase.phase == Phase::Train;
    let list = |figure: &dyn Fn(&Seen<'_>) -> Option<f64>| {
        let all: Vec<f64> = seen.iter().filter(train).filter_map(figure).collect();
        match all.as_slice() {
            [] => "unknown".to_owned(),
            few if few.len() <= SHOWN => {
                few.iter().map(|share| percent(*share)).collect::<Vec<_>>().join(", ")
            }
            many => {
                let low = many.iter().copied().fold(f64::INFINITY, f64::min);
                let high = many.iter().copied().fold(0.0, f64::max);
                format!("{} to {}", percent(low), percent(high))
            }
        }
    };
    let mut text = format!("bytes from the storage per epoch: {}", list(&|seen| seen.storage_share()));
    if seen.iter().any(|seen| seen.cache.counted.pages > 0) {
        let resident = list(&|seen| seen.cache.counted.resident_share());
        text.push_str(&format!("; pages in memory before they were read: {resident}"));
    }
    text
}

fn percent(share: f64) -> String {
    // A share of a half percent and one of none are not the same.
    match 100.0 * share {
        few if (0.05..9.95).contains(&few) => format!("{few:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// How many bytes the storage had to deliver for each that was read.
pub(super) fn read_amplification(case: &TrainingCase<'_>) -> (Outcome, String) {
    if let Some(why) = no_storage(case.plan) {
        return (Outcome::Pass, why.to_owned());
    }
    let worst = read_phases(case)
        .filter_map(|seen| Some((seen.storage_share()?, seen.place())))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    match worst {
        None => (Outcome::Pass, "nobody counts the bytes from the storage here".to_owned()),
        Some((share, place)) => {
            let outcome = if share > AMPLIFIED { Outcome::Note } else { Outcome::Pass };
            (outcome, format!("{place}: the storage delivered {share:.2} bytes for each that was read"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Amount, Counted, Ledger, NodeRow, Repeats, Row};
    use crate::spec::CacheProof;
    use crate::verdict::tests::plan;

    const PAGES: u64 = 1000;

    /// An epoch of training that read `PAGES` pages: bytes from the storage for each byte read, pages in memory before,
    /// pages left when the epoch began.
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

    fn seen(epoch: &Epoch) -> CacheSeen {
        let bytes = epoch.share.map(|share| (share * PAGES as f64 * 4096.0) as u64);
        let mut seen = CacheSeen { storage: Amount::new(bytes), ..CacheSeen::default() };
        seen.needed_bytes = PAGES * 4096;
        (0..PAGES).for_each(|page| seen.counted.add(u64::from(page < epoch.resident), 1));
        if let Some(left) = epoch.left {
            (seen.made.files, seen.made.pages, seen.made.after) = (PAGES, PAGES, left);
        }
        seen
    }

    fn judged(plan: &TrainingPlan, epochs: &[CacheSeen]) -> (Outcome, String) {
        let mut ledger = Ledger::default();
        for (epoch, cache) in (1..).zip(epochs) {
            ledger.add(epoch, Phase::Train, 0, Row::default());
            let cache = CacheSeen { stored: plan.data.train.stored(), ..cache.clone() };
            ledger.add_node(epoch, Phase::Train, 0, NodeRow { cache, ..NodeRow::default() });
        }
        served_as_asked(&TrainingCase { plan, checkpoint: None, ledger: &ledger })
    }

    fn with_state(state: CacheState) -> TrainingPlan {
        let cache = CachePlan { state, proof: CacheProof::Exact, drop_host: false };
        let mut plan = TrainingPlan { cache: Some(cache), ..plan() };
        plan.data.train.bytes = PAGES * 4096;
        plan
    }

    #[test]
    fn the_seed_case_is_told_apart() {
        let (cold_plan, as_is) = (with_state(CacheState::Cold), with_state(CacheState::AsIs));
        for (plan, epochs, outcome) in [
            (&cold_plan, [cold(1.0, 0), cold(1.01, 3)], Outcome::Pass),
            (&cold_plan, [cold(1.0, 0), cold(0.0, 1000)], Outcome::Fail),
            // A part of the engine kept contents: nothing came from the storage, whatever pages say.
            (&cold_plan, [cold(1.0, 0), cold(0.0, 0)], Outcome::Fail),
            (&as_is, [as_it_was(1.0, 0), as_it_was(0.0, 1000)], Outcome::Fail),
            (&as_is, [as_it_was(1.0, 0), as_it_was(1.0, 2)], Outcome::Pass),
            // Twice as much was read as needed, which hides that half of it was there.
            (&as_is, [as_it_was(1.0, 0), as_it_was(1.2, 500)], Outcome::Fail),
        ] {
            let epochs = epochs.map(|epoch| seen(&epoch));
            let (found, evidence) = judged(plan, &epochs);
            assert_eq!(found, outcome, "{evidence}");
        }
    }

    /// The same epoch of files that are read several times: `foreign` of the pages in memory are not explained.
    fn followed(epoch: &Epoch, foreign: u64) -> CacheSeen {
        let mut seen = seen(epoch);
        (seen.counted.followed, seen.counted.foreign) = (PAGES, foreign);
        seen
    }

    #[test]
    fn pages_in_memory_before_a_file_is_read_once_are_a_fault() {
        let plan = with_state(CacheState::Cold);
        assert_eq!(
            judged(&plan, &[seen(&cold(1.3, 400))]).0,
            Outcome::Fail,
            "read-ahead does not cross files"
        );
        assert_eq!(judged(&plan, &[seen(&cold(0.7, 300))]).0, Outcome::Fail);
    }

    /// A plan of files with several samples.
    fn of_parts() -> TrainingPlan {
        let mut plan = with_state(CacheState::Cold);
        plan.data.train.samples_per_file = 10;
        plan
    }

    #[test]
    fn what_own_reads_brought_counts_for_the_storage_and_what_others_brought_does_not() {
        let plan = of_parts();
        for (share, resident, foreign, outcome) in [
            (1.0, 400, 0, Outcome::Pass),
            (1.0, 400, 50, Outcome::Pass),
            // Another process read the files right after each eviction.
            (0.12, 880, 880, Outcome::Fail),
            (0.12, 880, 0, Outcome::Fail),
            // Read-ahead made more bytes than were needed, which hides nothing.
            (2.5, 500, 500, Outcome::Fail),
        ] {
            let (found, evidence) = judged(&plan, &[followed(&cold(share, resident), foreign)]);
            assert_eq!(found, outcome, "{share} {resident} {foreign}: {evidence}");
        }
        let (_, evidence) = judged(&plan, &[followed(&cold(1.0, 400), 0)]);
        assert!(
            evidence.ends_with("before they were read, where earlier reads of the same epoch had put them")
        );
        let (_, evidence) = judged(&plan, &[followed(&cold(2.5, 500), 400)]);
        assert!(evidence.contains("40 % without an earlier read of this run"), "{evidence}");
    }

    #[test]
    fn what_an_epoch_asks_for_again_need_not_come_twice() {
        let plan = of_parts();
        let again = |repeated_bytes| {
            let mut seen = followed(&cold(0.7, 300), 0);
            seen.repeats = Repeats { needed_bytes: 1000, repeated_bytes };
            judged(&plan, &[seen]).0
        };
        assert_eq!([again(300), again(100)], [Outcome::Pass, Outcome::Fail]);
        let twice = CacheSeen { needed_bytes: 2 * PAGES * 4096, ..followed(&cold(1.0, 0), 0) };
        assert_eq!(judged(&plan, &[twice]).0, Outcome::Pass, "no epoch needs more than the files have");
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
        assert_eq!(part(300, 0), Outcome::NotCheckable);
        assert_eq!(part(300, 290), Outcome::Fail);
        assert_eq!(part(0, 0), Outcome::NotCheckable, "none of the pages in memory are known to be foreign");
    }

    #[test]
    fn without_a_count_of_bytes_pages_must_speak_for_themselves() {
        let plan = with_state(CacheState::Cold);
        let uncounted = |resident| Epoch { share: None, ..cold(1.0, resident) };
        assert_eq!(judged(&plan, &[seen(&uncounted(0))]).0, Outcome::Pass);
        assert_eq!(judged(&plan, &[seen(&uncounted(400))]).0, Outcome::Fail, "files that are read once");
        assert_eq!(judged(&of_parts(), &[followed(&uncounted(400), 0)]).0, Outcome::NotCheckable, "read on");
    }

    #[test]
    fn bytes_that_are_not_stored_as_they_are_read_are_no_proof() {
        let plan = with_state(CacheState::Cold);
        let direct = TrainingPlan { cache: None, ..with_state(CacheState::Cold) };
        let with = |layout| CacheSeen { layout, ..seen(&cold(1.0, 0)) };
        let of = |bytes: [u64; 3]| {
            let [hole_bytes, compressed_bytes, inline_bytes] = bytes;
            Layout { files: 3, bytes: 100, hole_bytes, compressed_bytes, inline_bytes }
        };
        for (parts, outcome) in [
            ([5, 5, 5], Outcome::Pass),
            ([6, 0, 0], Outcome::Fail),
            ([0, 6, 0], Outcome::NotCheckable),
            ([0, 0, 100], Outcome::NotCheckable),
        ] {
            for plan in [&plan, &direct] {
                let (found, evidence) = judged(plan, &[with(of(parts))]);
                assert_eq!(found, outcome, "{parts:?}: {evidence}");
            }
        }
        let (_, evidence) = judged(&plan, &[with(of([60, 0, 0]))]);
        assert!(evidence.contains("60 % of the bytes of 3 files that were examined are holes"), "{evidence}");
        let sparse_and_cached = CacheSeen { layout: of([60, 0, 0]), ..seen(&cold(0.0, 0)) };
        assert_eq!(judged(&plan, &[sparse_and_cached]).0, Outcome::Fail);
    }

    #[test]
    fn the_cause_is_named_where_pages_are_not_shown() {
        let plan = with_state(CacheState::Cold);
        let mut seen = seen(&cold(1.0, 0));
        (seen.counted.refused, seen.counted.not_permitted) = (3, 3);
        let (outcome, evidence) = judged(&plan, &[seen]);
        assert_eq!(outcome, Outcome::NotCheckable);
        assert!(evidence.contains("belong to another user") && !evidence.contains("6.5"), "{evidence}");
    }

    #[test]
    fn a_counter_that_misses_bytes_convicts_nobody() {
        let plan = with_state(CacheState::Cold);
        let least = |share, resident| CacheSeen { storage_is_least: true, ..seen(&cold(share, resident)) };
        assert_eq!(judged(&plan, &[least(0.3, 0)]).0, Outcome::Pass, "no page was in memory");
        assert_eq!(judged(&plan, &[least(1.0, 0)]).0, Outcome::Pass);
        assert_eq!(judged(&plan, &[least(0.3, 900)]).0, Outcome::Fail);
    }

    #[test]
    fn fetches_that_nobody_counted_are_no_proof() {
        let plan = with_state(CacheState::Cold);
        let with = |change: fn(&mut Counted)| {
            let mut seen = seen(&cold(1.0, 0));
            change(&mut seen.counted);
            judged(&plan, &[seen])
        };
        let (outcome, evidence) = with(|counted| counted.unasked = 10);
        assert_eq!(outcome, Outcome::NotCheckable);
        assert!(
            evidence.contains("10 of 1,010 fetches brought bytes whose pages were not counted"),
            "{evidence}"
        );
        assert_eq!(with(|counted| counted.refused = 1).0, Outcome::NotCheckable);
        assert_eq!(with(|counted| *counted = Counted::default()).0, Outcome::NotCheckable);
        let mut untold = seen(&cold(1.0, 0));
        untold.untold.insert("tmpfs keeps files in memory".to_owned());
        let (outcome, evidence) = judged(&plan, &[untold]);
        assert_eq!(outcome, Outcome::NotCheckable);
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
            [Outcome::Pass, Outcome::NotCheckable, Outcome::Fail]
        );
    }

    #[test]
    fn warm_means_in_memory() {
        let plan = with_state(CacheState::Warm);
        for (resident, outcome) in [(1000, Outcome::Pass), (960, Outcome::Pass), (900, Outcome::Fail)] {
            assert_eq!(judged(&plan, &[seen(&as_it_was(0.0, resident))]).0, outcome, "{resident}");
        }
    }

    #[test]
    fn past_the_page_cache_bytes_are_counted() {
        let plan = TrainingPlan { cache: None, ..with_state(CacheState::Cold) };
        let past = |share| CacheSeen {
            counted: Counted::default(),
            ..seen(&Epoch { share, resident: 0, left: None })
        };
        for (share, outcome) in
            [(Some(1.0), Outcome::Pass), (Some(0.2), Outcome::Fail), (None, Outcome::Pass)]
        {
            assert_eq!(judged(&plan, &[past(share)]).0, outcome, "{share:?}");
        }
    }

    #[test]
    fn what_storage_delivers_beyond_need_is_noted() {
        let plan = with_state(CacheState::Cold);
        for (share, outcome) in [(1.05, Outcome::Pass), (4.6, Outcome::Note)] {
            let mut ledger = Ledger::default();
            ledger.add(1, Phase::Train, 0, Row::default());
            let node = NodeRow { cache: seen(&cold(share, 0)), ..NodeRow::default() };
            ledger.add_node(1, Phase::Train, 0, node);
            let case = TrainingCase { plan: &plan, checkpoint: None, ledger: &ledger };
            assert_eq!(read_amplification(&case).0, outcome);
        }
    }

    #[test]
    fn many_epochs_have_short_words() {
        let plan = with_state(CacheState::Cold);
        let epochs: Vec<CacheSeen> =
            (0..1000).map(|epoch| seen(&cold(1.0 + f64::from(epoch) / 1e4, 0))).collect();
        let (outcome, evidence) = judged(&plan, &epochs);
        assert_eq!(outcome, Outcome::Pass);
        assert_eq!(
            evidence,
            "bytes from the storage per epoch: 100 % to 110 %; pages in memory before they were read: 0 % to 0 %"
        );
    }
}
