//! Rules about where bytes came from: the storage or memory, and how many more of them came than were asked for.
//!
//! Two witnesses are heard. The kernel's counters say how many bytes the storage delivered; read-ahead makes that more
//! than was asked for, so a large number alone does not show that nothing came from memory. The count of pages says
//! what was in memory right before it was read; read-ahead of the same epoch puts pages there, too, so a large number
//! alone does not show that they were there from before. Only together, and beside a cache that was seen to be empty
//! when the epoch began, do they leave nothing open.

use super::{Case, Outcome, seen_phases};
use crate::ledger::{CacheSeen, Phase};
use crate::plan::{CachePlan, PhasePlan, Plan};
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
    /// Bytes of all its files.
    stored: u64,
    cache: CacheSeen,
}

impl Seen<'_> {
    fn storage_share(&self) -> Option<f64> {
        self.cache.storage_share(self.stored)
    }

    /// The share, if it shows something: a counter that may miss bytes shows nothing while it is low.
    fn proven_share(&self) -> Option<f64> {
        self.storage_share().filter(|share| !self.cache.storage_is_least || *share >= ENOUGH)
    }

    /// Whether the cache was seen to hold nothing of these files when the epoch began.
    fn began_empty(&self) -> bool {
        let made = &self.cache.made;
        made.pages > 0 && made.after == 0
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

pub(super) fn served_as_asked(case: &Case<'_>) -> (Outcome, String) {
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
        match examine(case.plan, phase) {
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
fn no_storage(plan: &Plan) -> Option<&'static str> {
    match plan.store.as_str() {
        "null" => Some("the null store reads nothing: this is the instrument's own ceiling"),
        _ if plan.is_simulated() => Some("the device is simulated: nothing was read from any storage"),
        _ => None,
    }
}

fn read_phases<'a>(case: &Case<'a>) -> impl Iterator<Item = Seen<'a>> {
    let (plan, ledger) = (case.plan, case.ledger);
    let seen = seen_phases(case).map(move |(epoch, phase)| {
        let stored = plan.split(phase.phase).bytes;
        Seen { epoch, phase, stored, cache: ledger.cache(epoch, phase.phase) }
    });
    seen.filter(|seen| seen.cache.needed_bytes > 0)
}

fn examine(plan: &Plan, seen: &Seen<'_>) -> Finding {
    match plan.cache {
        None => past_the_cache(seen),
        Some(CachePlan { state: CacheState::Warm, .. }) => warm(seen),
        Some(_) => from_storage(plan, seen),
    }
}

/// Reads past the page cache: there is nothing to count but bytes.
fn past_the_cache(seen: &Seen<'_>) -> Finding {
    match (seen.proven_share(), seen.cache.untold.first()) {
        (Some(share), _) if share < ENOUGH => Finding::Broken(too_few(share)),
        (_, Some(why)) => Finding::Open(why.clone()),
        (Some(_), None) => Finding::Holds,
        (None, None) => {
            Finding::Explained("read past the page cache; nobody counts the bytes there".to_owned())
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
    let Confidence { low, high } = resident(seen);
    let share = percent(seen.cache.counted.resident_share().unwrap_or(0.0));
    match () {
        () if high < ENOUGH => Finding::Broken(format!("only {share} of the pages were in memory")),
        () if low < ENOUGH => Finding::Open(too_small_a_sample(&share, low, high)),
        () => Finding::Holds,
    }
}

fn from_storage(plan: &Plan, seen: &Seen<'_>) -> Finding {
    let share = seen.proven_share();
    let uncounted = uncounted(seen);
    if let Some(share) = share.filter(|share| *share < ENOUGH) {
        let missing = 1.0 - seen.cache.counted.resident_share().unwrap_or(0.0);
        let again = uncounted.is_none() && reads_again(plan, seen) && seen.began_empty();
        return match again && share >= ENOUGH * missing {
            true => Finding::Explained(format!(
                "{} of the bytes came from the storage, and the rest had come from there since the epoch began: the \
                 cache was empty then",
                percent(share)
            )),
            false => Finding::Broken(too_few(share)),
        };
    }
    if let Some(why) = uncounted {
        return Finding::Open(why);
    }
    let Confidence { low, high } = resident(seen);
    let found = percent(seen.cache.counted.resident_share().unwrap_or(1.0));
    let before = format!("{found} of the pages were in memory before they were read");
    match () {
        () if high <= 1.0 - ENOUGH => Finding::Holds,
        () if low <= 1.0 - ENOUGH => Finding::Open(too_small_a_sample(&found, low, high)),
        () if share.is_some() && seen.began_empty() => Finding::Explained(format!(
            "{before}, brought there by read-ahead since the epoch began: the cache was empty then"
        )),
        // Read-ahead does not go on in the next file, so pages of files that are read once were there from before.
        () if share.is_none() && reads_again(plan, seen) => {
            Finding::Open(format!("{before}, by read-ahead or from before: nobody counts the bytes there"))
        }
        () => Finding::Broken(before),
    }
}

/// Whether a file is read more than once in an epoch, so that one read may bring pages of the next.
fn reads_again(plan: &Plan, seen: &Seen<'_>) -> bool {
    plan.split(seen.phase.phase).samples_per_file > 1 || plan.data.listed.is_some()
}

/// Why the count of pages shows nothing, if so.
fn uncounted(seen: &Seen<'_>) -> Option<String> {
    let counted = &seen.cache.counted;
    let all = counted.fetches + counted.left_out + counted.refused + counted.unasked;
    if let Some(why) = seen.cache.untold.first() {
        return Some(why.clone());
    }
    if counted.refused > 0 {
        return Some("this kernel does not tell which pages are in memory (cachestat, Linux 6.5)".to_owned());
    }
    if counted.unasked > 0 {
        let (unasked, all) = (grouped(counted.unasked), grouped(all));
        return Some(format!("{unasked} of {all} fetches brought bytes whose pages were not counted"));
    }
    (counted.pages == 0).then(|| "no pages were counted".to_owned())
}

/// Where the share of pages in memory lies. There are some: see `uncounted`.
fn resident(seen: &Seen<'_>) -> Confidence {
    seen.cache.counted.resident_interval().unwrap_or(Confidence { low: 0.0, high: 1.0 })
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
pub(super) fn read_amplification(case: &Case<'_>) -> (Outcome, String) {
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
    use crate::ledger::{Amount, Counted, Ledger, NodeRow, Row};
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

    fn judged(plan: &Plan, epochs: &[CacheSeen]) -> (Outcome, String) {
        let mut ledger = Ledger::default();
        for (epoch, cache) in (1..).zip(epochs) {
            ledger.add(epoch, Phase::Train, 0, Row::default());
            ledger.add_node(epoch, Phase::Train, 0, NodeRow { cache: cache.clone(), ..NodeRow::default() });
        }
        served_as_asked(&Case { plan, ledger: &ledger })
    }

    fn with_state(state: CacheState) -> Plan {
        let cache = CachePlan { state, proof: CacheProof::Exact, drop_host: false };
        let mut plan = Plan { cache: Some(cache), ..plan() };
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

    #[test]
    fn what_read_ahead_brought_is_no_fault_where_the_cache_was_empty() {
        let plan = with_state(CacheState::Cold);
        let (outcome, evidence) = judged(&plan, &[seen(&cold(1.3, 400))]);
        assert_eq!(outcome, Outcome::Pass);
        assert!(
            evidence.contains(
                "40 % of the pages were in memory before they were read, brought there by read-ahead"
            )
        );
        let left = Epoch { left: Some(1), ..cold(1.3, 400) };
        assert_eq!(judged(&plan, &[seen(&left)]).0, Outcome::Fail, "a page had stayed");
    }

    #[test]
    fn what_an_epoch_reads_again_comes_from_memory_and_that_is_no_fault() {
        let mut plan = with_state(CacheState::Cold);
        assert_eq!(judged(&plan, &[seen(&cold(0.7, 300))]).0, Outcome::Fail, "files that are read once");
        plan.data.train.samples_per_file = 10;
        assert_eq!(judged(&plan, &[seen(&cold(0.7, 300))]).0, Outcome::Pass);
        assert_eq!(judged(&plan, &[seen(&cold(0.7, 100))]).0, Outcome::Fail, "and who brought the others?");
        let twice = CacheSeen { needed_bytes: 2 * PAGES * 4096, ..seen(&cold(1.0, 0)) };
        assert_eq!(judged(&plan, &[twice]).0, Outcome::Pass, "no epoch needs a byte twice");
    }

    #[test]
    fn without_a_count_of_bytes_pages_must_speak_for_themselves() {
        let mut plan = with_state(CacheState::Cold);
        let uncounted = |resident| seen(&Epoch { share: None, ..cold(1.0, resident) });
        assert_eq!(judged(&plan, &[uncounted(0)]).0, Outcome::Pass);
        assert_eq!(judged(&plan, &[uncounted(400)]).0, Outcome::Fail, "files that are read once");
        plan.data.train.samples_per_file = 10;
        assert_eq!(judged(&plan, &[uncounted(400)]).0, Outcome::NotCheckable, "files that are read on");
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
        let plan = Plan { cache: None, ..with_state(CacheState::Cold) };
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
            let case = Case { plan: &plan, ledger: &ledger };
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
