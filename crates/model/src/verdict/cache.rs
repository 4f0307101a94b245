//! Rules about the source of bytes: storage or memory, and how many more bytes the storage delivered than were read.
//!
//! Two observations decide, and both must hold. The kernel's counters show how many bytes the storage delivered to this
//! process: at least as many as the epoch needed, each counted once. Read-ahead adds to that number, so a large number
//! alone does not prove that nothing came from memory. The count of pages shows what was in memory right before it was
//! read. If an epoch reads a file more than once, its own earlier reads put pages there; those count as read from
//! storage, and the others (`foreign`) do not.
//!
//! Neither observation proves anything about bytes that are not stored (holes) or are stored in another form.

use super::rules::{RuleResult, STOP_READERS};
use super::{RuleOutcome, TrainingCase, objects};
use crate::ledger::{ObservedCache, Phase, StorageLayout};
use crate::plan::{CachePlan, Medium, PhasePlan, TrainingPlan};
use crate::spec::CacheState;
use crate::statistics::Confidence;
use crate::units::grouped;

/// A share of bytes from storage (or of pages in memory, if the cache is warm) that counts as all of them.
const ENOUGH: f64 = 0.95;
/// Bytes that the storage may deliver per byte read before the report mentions it.
const AMPLIFIED: f64 = 1.1;
/// The number of epochs up to which evidence lists each epoch.
const SHOWN: usize = 8;

/// One phase of one epoch in which a node read something.
struct ObservedPhase<'a> {
    epoch: u64,
    phase: &'a PhasePlan,
    /// The name of the node, if there are several.
    node: Option<&'a str>,
    /// Processes of the run on the node.
    processes: u64,
    reads_again: bool,
    cache: ObservedCache,
}

impl ObservedPhase<'_> {
    fn storage_share(&self) -> Option<f64> {
        self.cache.storage_share()
    }

    /// The share, if it proves something: a low value of a counter that may miss bytes does not.
    fn proven_share(&self) -> Option<f64> {
        self.storage_share().filter(|share| !self.cache.storage_is_least || *share >= ENOUGH)
    }

    /// The share of pages that were in memory although this process had not read them, with its confidence interval. A
    /// file that is read once has no earlier read, so all of its pages in memory count. `None` if unknown.
    fn foreign(&self) -> Option<(f64, Confidence)> {
        let counted = &self.cache.counted;
        if !self.reads_again {
            return counted.resident_share().zip(counted.resident_interval());
        }
        counted.foreign_share().zip(self.cache.foreign_interval())
    }

    /// Whether another process of the run on the same node may have loaded what this one did not read itself. Processes
    /// do not know each other's reads, so it is unknown whether these bytes came from storage in this epoch.
    fn is_shared(&self) -> bool {
        self.reads_again && self.processes > 1
    }

    fn place(&self) -> String {
        let node = self.node.map_or(String::new(), |node| format!(", node {node}"));
        format!("epoch {}, {}{node}", self.epoch, self.phase.phase)
    }
}

/// What one phase shows. A remedy of `None` stands for the rule's own.
enum PhaseFinding {
    Holds,
    /// It holds, but there is something to explain.
    Explained(String),
    Broken(String, Option<&'static str>),
    Open(String, Option<&'static str>),
}

const READ_FILES: &str = "to measure storage, use --store posix or another backend that reads files";
const MOVE: &str = "move the data set to another file system or device ('feedline docs cache' lists those that cannot \
                    be checked)";
const COUNT: &str = "set reader.cache_proof=exact, or use --store direct";
const ONE_PROCESS: &str = "start one process per node, and give it more ranks (--ranks)";
const COUNT_ALL: &str = "use more files, or count all pages with reader.cache_proof=exact";

pub(super) fn served_as_asked(case: &TrainingCase<'_>) -> RuleResult {
    if let Some(why) = no_storage(case.plan) {
        return RuleResult::not_checkable(why).with_remedy(READ_FILES);
    }
    if case.plan.store.is_objects() {
        return objects::served(case);
    }
    let seen: Vec<ObservedPhase<'_>> = read_phases(case).collect();
    if seen.is_empty() {
        return RuleResult::not_checkable("nothing was read")
            .with_remedy("run at least one epoch that reads files");
    }
    let figures = figures(&seen);
    let (mut explained, mut open) = (None, None);
    for phase in &seen {
        let place = phase.place();
        match examine(case.plan.cache, phase) {
            PhaseFinding::Holds => {}
            PhaseFinding::Explained(why) => {
                explained.get_or_insert_with(|| format!("{place}: {why}"));
            }
            PhaseFinding::Open(why, remedy) => {
                open.get_or_insert_with(|| (format!("{place}: {why}"), remedy));
            }
            PhaseFinding::Broken(why, remedy) => {
                return RuleResult::fail(format!("{place}: {why}; {figures}")).with_remedy(remedy);
            }
        }
    }
    match (open, explained) {
        (Some((why, remedy)), _) => {
            RuleResult::not_checkable(format!("{why}; {figures}")).with_remedy(remedy)
        }
        (None, Some(why)) => RuleResult::pass(format!("{figures}; {why}")),
        (None, None) => RuleResult::pass(figures),
    }
}

/// Why there is nothing to check.
fn no_storage(plan: &TrainingPlan) -> Option<&'static str> {
    match plan.store.medium {
        Medium::Null => Some("the null backend reads nothing: this run measures feedline's own ceiling"),
        Medium::Simulated => Some("the device is simulated: nothing was read from storage"),
        Medium::Storage | Medium::Objects => None,
    }
}

/// What each node read in each phase. A node that was served from memory must not hide in a sum.
fn read_phases<'a>(case: &TrainingCase<'a>) -> impl Iterator<Item = ObservedPhase<'a>> {
    let (plan, parts) = (case.plan, case.ledger.parts());
    case.seen_phases().flat_map(move |(epoch, phase)| {
        // If every read failed, neither the storage nor memory delivered anything.
        let read =
            parts.clone().into_iter().filter(move |part| part.total(epoch, phase.phase).bytes_read > 0);
        let seen = read.map(move |part| ObservedPhase {
            epoch,
            phase,
            node: part.name(),
            processes: part.processes,
            reads_again: plan.reads_again(phase.phase),
            cache: part.observed(epoch, phase.phase).cache.clone(),
        });
        seen.filter(|seen| seen.cache.needed_bytes > 0)
    })
}

fn examine(plan: Option<CachePlan>, seen: &ObservedPhase<'_>) -> PhaseFinding {
    let served = match plan.map(|plan| plan.state) {
        Some(CacheState::Warm) => return warm(seen),
        Some(CacheState::FirstCold) if seen.epoch > 1 => {
            return PhaseFinding::Explained("the cache is left as it is after the first epoch".to_owned());
        }
        Some(state) => from_storage(seen, state),
        None => past_the_cache(seen),
    };
    match (served, unstored(seen)) {
        (broken @ PhaseFinding::Broken(..), _) | (_, Some(broken @ PhaseFinding::Broken(..))) => broken,
        (open @ PhaseFinding::Open(..), _) | (_, Some(open @ PhaseFinding::Open(..))) => open,
        (served, _) => served,
    }
}

/// Files whose bytes are not stored as they are read.
fn unstored(seen: &ObservedPhase<'_>) -> Option<PhaseFinding> {
    let StorageLayout { files, bytes, hole_bytes, compressed_bytes, inline_bytes } = seen.cache.layout;
    let share = |part: u64| part as f64 / bytes.max(1) as f64;
    let of = |part: u64| {
        let files = if files == 1 {
            "one examined file".to_owned()
        } else {
            format!("{} examined files", grouped(files))
        };
        format!("{} of the bytes in {files} are", percent(share(part)))
    };
    let much = |part: u64| share(part) > 1.0 - ENOUGH;
    match () {
        () if much(hole_bytes) => Some(PhaseFinding::Broken(
            format!("{} holes, which no storage delivers", of(hole_bytes)),
            Some("write the data set again, without holes"),
        )),
        () if much(compressed_bytes) => Some(PhaseFinding::Open(
            format!(
                "{} compressed by the file system, so the storage delivered fewer bytes than were read",
                of(compressed_bytes)
            ),
            Some("turn off compression in this file system, then write the data set again"),
        )),
        () if much(inline_bytes) => Some(PhaseFinding::Open(
            format!(
                "{} stored in the metadata of the file system, whose cache is not counted",
                of(inline_bytes)
            ),
            Some("use larger files, or a file system that stores small files in blocks of their own"),
        )),
        () => None,
    }
}

/// Reads that bypass the page cache: only bytes can be counted.
fn past_the_cache(seen: &ObservedPhase<'_>) -> PhaseFinding {
    match (seen.proven_share(), seen.cache.untold.first()) {
        (Some(share), _) if share < ENOUGH => {
            PhaseFinding::Broken(too_few(share), Some("use a file system that honours O_DIRECT"))
        }
        (_, Some(why)) => PhaseFinding::Open(why.clone(), Some(MOVE)),
        (Some(_), None) => PhaseFinding::Holds,
        (None, None) => PhaseFinding::Explained(
            "reads bypassed the page cache; bytes that the storage delivered are not counted here".to_owned(),
        ),
    }
}

fn loaded_by_others(what: &str) -> String {
    format!("{what}; reads of other processes of this run on the same node may have loaded them")
}

fn too_few(share: f64) -> String {
    format!("only {} of the bytes came from the storage, the rest from memory", percent(share))
}

fn warm(seen: &ObservedPhase<'_>) -> PhaseFinding {
    if let Some((why, remedy)) = uncounted(seen) {
        return PhaseFinding::Open(why, remedy);
    }
    let counted = &seen.cache.counted;
    let Confidence { low, high } = counted.resident_interval().unwrap_or(Confidence { low: 0.0, high: 1.0 });
    let share = percent(counted.resident_share().unwrap_or(0.0));
    match () {
        () if high < ENOUGH => PhaseFinding::Broken(
            format!("only {share} of the pages were in memory"),
            Some(
                "use a data set that fits in memory, or a host with more memory; to measure storage, --cache cold",
            ),
        ),
        () if low < ENOUGH => PhaseFinding::Open(too_small_a_sample(&share, low, high), Some(COUNT_ALL)),
        () => PhaseFinding::Holds,
    }
}

fn from_storage(seen: &ObservedPhase<'_>, state: CacheState) -> PhaseFinding {
    let share = seen.proven_share();
    let reloaded = (state == CacheState::Cold).then_some(STOP_READERS);
    if let Some(share) = share.filter(|share| *share < ENOUGH) {
        // Even if all processes of the node needed the same bytes, the storage delivered them once.
        return match seen.is_shared() && share * seen.processes as f64 >= ENOUGH {
            true => PhaseFinding::Open(loaded_by_others(&too_few(share)), Some(ONE_PROCESS)),
            false => PhaseFinding::Broken(too_few(share), reloaded),
        };
    }
    if let Some((why, remedy)) = uncounted(seen) {
        return PhaseFinding::Open(why, remedy);
    }
    let (few, resident) = (1.0 - ENOUGH, seen.cache.counted.resident_share().unwrap_or(1.0));
    let before = format!("{} of the pages were cached before they were read", percent(resident));
    let Some((foreign, Confidence { low, high })) = seen.foreign() else {
        let why = format!("{before}; too few of them were compared with earlier reads of this run");
        return PhaseFinding::Open(why, Some(COUNT_ALL));
    };
    match () {
        () if high > few && low <= few => {
            PhaseFinding::Open(too_small_a_sample(&percent(foreign), low, high), Some(COUNT_ALL))
        }
        () if high > few && seen.is_shared() => {
            PhaseFinding::Open(loaded_by_others(&before), Some(ONE_PROCESS))
        }
        () if high > few && seen.reads_again => PhaseFinding::Broken(
            format!(
                "{before}, {} without an earlier read of this run: another process loaded them, or they were cached \
                 before the run",
                percent(foreign)
            ),
            reloaded,
        ),
        () if high > few => PhaseFinding::Broken(before, reloaded),
        () if resident <= few => PhaseFinding::Holds,
        // A read may load more pages than it needs, so only a count of bytes proves that this run loaded them.
        () if share.is_none() => PhaseFinding::Open(
            format!(
                "{before}; earlier reads of this run may have loaded them, but bytes are not counted here"
            ),
            None,
        ),
        () => PhaseFinding::Explained(format!("{before}, loaded by earlier reads of the same epoch")),
    }
}

/// Why the count of pages proves nothing, and what to do about it; `None` if it does.
fn uncounted(seen: &ObservedPhase<'_>) -> Option<(String, Option<&'static str>)> {
    let counted = &seen.cache.counted;
    if let Some(why) = seen.cache.untold.first() {
        return Some((why.clone(), Some(MOVE)));
    }
    if counted.not_permitted > 0 {
        return Some((
            "the kernel does not show this user which pages are in memory, because the files belong to another user \
             and their file system offers no other way"
                .to_owned(),
            Some("run as the owner of the files, as a user with write permission, or as root"),
        ));
    }
    if counted.refused > 0 {
        return Some((
            "the kernel does not show which pages of these files are in memory".to_owned(),
            Some("use Linux 6.5 or later (cachestat), files that can be mapped (mincore), or --store direct"),
        ));
    }
    if counted.unasked > 0 {
        let all = grouped(counted.fetches + counted.left_out + counted.refused + counted.unasked);
        let unasked = grouped(counted.unasked);
        let why = format!("{unasked} of {all} fetches read bytes whose pages were not counted");
        return Some((why, Some(COUNT)));
    }
    (counted.pages == 0).then(|| ("no pages were counted".to_owned(), Some(COUNT)))
}

fn too_small_a_sample(share: &str, low: f64, high: f64) -> String {
    let (low, high) = (percent(low), percent(high));
    format!("{share} of the sampled pages were in memory, which may be {low} to {high} of all pages")
}

/// The figures of all phases as text.
fn figures(seen: &[ObservedPhase<'_>]) -> String {
    let train = |seen: &&ObservedPhase<'_>| seen.phase.phase == Phase::Train;
    let list = |figure: &dyn Fn(&ObservedPhase<'_>) -> Option<f64>| {
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
    let each = if seen.iter().any(|seen| seen.node.is_some()) { "epoch and node" } else { "epoch" };
    let mut text = format!("bytes from the storage per {each}: {}", list(&|seen| seen.storage_share()));
    if seen.iter().any(|seen| seen.cache.counted.pages > 0) {
        let resident = list(&|seen| seen.cache.counted.resident_share());
        text.push_str(&format!("; pages in memory before they were read: {resident}"));
    }
    text
}

fn percent(share: f64) -> String {
    // One decimal for small values, so that half a percent is not shown as 0 %.
    match 100.0 * share {
        few if (0.05..9.95).contains(&few) => format!("{few:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// How many bytes the storage delivered per byte read.
pub(super) fn read_amplification(case: &TrainingCase<'_>) -> RuleResult {
    if let Some(why) = no_storage(case.plan) {
        return RuleResult::pass(why);
    }
    if case.plan.store.is_objects() {
        return objects::read_amplification(case);
    }
    let worst = read_phases(case)
        .filter_map(|seen| Some((seen.storage_share()?, seen.place())))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    match worst {
        None => RuleResult::pass("bytes that this storage delivers are not counted"),
        Some((share, place)) => {
            let outcome = if share > AMPLIFIED { RuleOutcome::Note } else { RuleOutcome::Pass };
            RuleResult::new(outcome, format!("{place}: the storage delivered {share:.2} bytes per byte read"))
        }
    }
}

#[cfg(test)]
mod tests;
