//! Observations of saves and restores: the four times of a save, the bytes of a restore, and the time of training steps
//! while a checkpoint was in progress in the background. Members of a run report the same saves and restores, each for
//! its own ranks; the sum of their reports has one entry for each save and restore of the run.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::manifest::Moment;
use crate::spec::SaveMode;
use crate::units::Nanos;

/// CPU time that the process used in a span, and CPU time available: the span times the cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    pub used_ns: Nanos,
    pub core_ns: Nanos,
}

impl AddAssign for Cpu {
    fn add_assign(&mut self, Cpu { used_ns, core_ns }: Cpu) {
        self.used_ns += used_ns;
        self.core_ns += core_ns;
    }
}

/// One save.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveRecord {
    pub moment: Moment,
    /// Its number among all checkpoints of the folder.
    #[serde(default)]
    pub serial: u64,
    pub bytes: u64,
    pub files: u64,
    /// When it started, on the run's clock.
    pub began: Nanos,
    /// How long training paused, and how much of that it waited for a free slot or memory.
    pub blocked_ns: Nanos,
    pub back_pressure_ns: Nanos,
    /// From the start until it was durable on the fast tier and on the last one; `None` if it never was, or without a
    /// fast tier.
    pub fast_ns: Option<Nanos>,
    pub durable_ns: Option<Nanos>,
    /// The time of the drain alone.
    pub drain_ns: Option<Nanos>,
    /// The time in which the slowest rank wrote its files, and that of rank 0, which DLIO reports.
    pub slowest_rank_ns: Nanos,
    pub first_rank_ns: Nanos,
    /// While training waited.
    pub cpu: Cpu,
    /// Problems that occurred, whether or not the save succeeded in the end.
    pub troubles: Vec<String>,
}

impl SaveRecord {
    pub fn new(moment: Moment, began: Nanos) -> SaveRecord {
        SaveRecord {
            moment,
            serial: 0,
            bytes: 0,
            files: 0,
            began,
            blocked_ns: Nanos::ZERO,
            back_pressure_ns: Nanos::ZERO,
            fast_ns: None,
            durable_ns: None,
            drain_ns: None,
            slowest_rank_ns: Nanos::ZERO,
            first_rank_ns: Nanos::ZERO,
            cpu: Cpu::default(),
            troubles: Vec::new(),
        }
    }

    /// Whether it is complete on any tier.
    pub fn is_complete(&self) -> bool {
        self.fast_ns.is_some() || self.durable_ns.is_some()
    }

    /// What DLIO measures: the time of rank 0 in the save call, which returns early if work continues in the
    /// background.
    pub fn dlio_span(&self, save: SaveMode) -> Nanos {
        match save {
            SaveMode::Direct => self.first_rank_ns,
            SaveMode::Async | SaveMode::BurstBuffer => self.blocked_ns,
        }
    }
}

/// Adds another member's report of the same save.
impl AddAssign for SaveRecord {
    fn add_assign(&mut self, other: SaveRecord) {
        let SaveRecord {
            moment,
            serial,
            bytes,
            files,
            began,
            blocked_ns,
            back_pressure_ns,
            fast_ns,
            durable_ns,
            drain_ns,
            slowest_rank_ns,
            first_rank_ns,
            cpu,
            troubles,
        } = other;
        debug_assert_eq!(self.moment, moment, "only reports of one save are added");
        self.serial = self.serial.max(serial);
        self.bytes += bytes;
        self.files += files;
        self.began = self.began.min(began);
        // Training waits for the slowest member.
        self.blocked_ns = self.blocked_ns.max(blocked_ns);
        self.back_pressure_ns = self.back_pressure_ns.max(back_pressure_ns);
        // A checkpoint is durable once the parts of all members are.
        self.fast_ns = both(self.fast_ns, fast_ns, Nanos::max);
        self.durable_ns = both(self.durable_ns, durable_ns, Nanos::max);
        self.drain_ns = both(self.drain_ns, drain_ns, Nanos::max);
        self.slowest_rank_ns = self.slowest_rank_ns.max(slowest_rank_ns);
        // Members without rank 0 report zero.
        self.first_rank_ns = self.first_rank_ns.max(first_rank_ns);
        self.cpu += cpu;
        self.troubles.extend(troubles);
        self.troubles.sort();
    }
}

/// The combination of two members' values; `None` if one of them is unknown.
fn both<T>(here: Option<T>, there: Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
    here.zip(there).map(|(here, there)| add(here, there))
}

/// One restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRecord {
    pub moment: Moment,
    /// Whether it came from the fast tier.
    pub from_fast: bool,
    pub bytes: u64,
    pub files: u64,
    pub began: Nanos,
    pub took_ns: Nanos,
    pub slowest_rank_ns: Nanos,
    pub first_rank_ns: Nanos,
    /// Pages of the files, and those that were in memory right before the restore; `None` if unknown.
    pub pages: Option<u64>,
    pub pages_cached: Option<u64>,
    /// Bytes that were compared with the saved bytes.
    pub verified_bytes: u64,
    pub cpu: Cpu,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// The duration of training steps, from the end of the previous step to their own end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTimes {
    pub count: u64,
    pub time_ns: Nanos,
}

impl StepTimes {
    pub fn add(&mut self, time: Nanos) {
        self.count += 1;
        self.time_ns += time;
    }

    pub fn mean(self) -> Option<Nanos> {
        self.time_ns.0.checked_div(self.count).map(Nanos)
    }
}

impl AddAssign for StepTimes {
    fn add_assign(&mut self, StepTimes { count, time_ns }: StepTimes) {
        self.count += count;
        self.time_ns += time_ns;
    }
}

/// The checkpoints of a run; saves and restores in the order in which they started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoints {
    pub saves: Vec<SaveRecord>,
    pub restores: Vec<RestoreRecord>,
    /// Steps while a checkpoint was in progress in the background, and all others.
    pub steps_beside: StepTimes,
    pub steps_apart: StepTimes,
}

impl Checkpoints {
    pub fn is_empty(&self) -> bool {
        *self == Checkpoints::default()
    }

    /// The ratio of step times with and without a checkpoint in progress in the background.
    pub fn step_slowdown(&self) -> Option<f64> {
        let (beside, apart) = (self.steps_beside.mean()?, self.steps_apart.mean()?);
        (apart > Nanos::ZERO).then(|| beside.seconds() / apart.seconds())
    }
}

impl AddAssign for Checkpoints {
    fn add_assign(&mut self, other: Checkpoints) {
        let Checkpoints { saves, restores, steps_beside, steps_apart } = other;
        merge(&mut self.saves, saves, |save| (save.began, save.moment));
        merge(&mut self.restores, restores, |restore| (restore.began, restore.moment));
        self.steps_beside += steps_beside;
        self.steps_apart += steps_apart;
    }
}

/// Adds the entries of one member to those of others: the n-th entry of a moment to their n-th entry of this moment. A
/// run may restore a checkpoint more than once. All members do the same in the same order, so lists sorted by `at` add
/// up to a sorted list, independent of the order of the members.
fn merge<T: AddAssign>(here: &mut Vec<T>, more: Vec<T>, at: impl Fn(&T) -> (Nanos, Moment)) {
    if more.is_empty() {
        return;
    }
    let mut sums: BTreeMap<(Moment, usize), T> = BTreeMap::new();
    for list in [std::mem::take(here), more] {
        let mut counts: BTreeMap<Moment, usize> = BTreeMap::new();
        for entry in list {
            let (_, moment) = at(&entry);
            let count = counts.entry(moment).or_default();
            match sums.get_mut(&(moment, *count)) {
                Some(sum) => *sum += entry,
                None => drop(sums.insert((moment, *count), entry)),
            }
            *count += 1;
        }
    }
    here.extend(sums.into_values());
    here.sort_by_key(at);
}

/// Adds another member's report of the same restore.
impl AddAssign for RestoreRecord {
    fn add_assign(&mut self, other: RestoreRecord) {
        let RestoreRecord {
            moment,
            from_fast,
            bytes,
            files,
            began,
            took_ns,
            slowest_rank_ns,
            first_rank_ns,
            pages,
            pages_cached,
            verified_bytes,
            cpu,
            failure,
        } = other;
        debug_assert_eq!(self.moment, moment, "only reports of one restore are added");
        self.from_fast &= from_fast;
        self.bytes += bytes;
        self.files += files;
        self.began = self.began.min(began);
        self.took_ns = self.took_ns.max(took_ns);
        self.slowest_rank_ns = self.slowest_rank_ns.max(slowest_rank_ns);
        // Members without rank 0 report zero.
        self.first_rank_ns = self.first_rank_ns.max(first_rank_ns);
        self.pages = both(self.pages, pages, |here, there| here + there);
        self.pages_cached = both(self.pages_cached, pages_cached, |here, there| here + there);
        self.verified_bytes += verified_bytes;
        self.cpu += cpu;
        // One failure is enough. The first in text order is kept, so that addition commutes.
        self.failure = [self.failure.take(), failure].into_iter().flatten().min();
    }
}

impl RestoreRecord {
    pub fn new(moment: Moment, began: Nanos) -> RestoreRecord {
        RestoreRecord {
            moment,
            from_fast: false,
            bytes: 0,
            files: 0,
            began,
            took_ns: Nanos::ZERO,
            slowest_rank_ns: Nanos::ZERO,
            first_rank_ns: Nanos::ZERO,
            pages: None,
            pages_cached: None,
            verified_bytes: 0,
            cpu: Cpu::default(),
            failure: None,
        }
    }

    /// The share that came from memory, 0 to 1; `None` if unknown.
    pub fn cached_share(&self) -> Option<f64> {
        let (pages, cached) = (self.pages?, self.pages_cached?);
        (pages > 0).then(|| cached as f64 / pages as f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nanos() -> impl Strategy<Value = Nanos> {
        (0u64..50).prop_map(Nanos)
    }

    fn maybe() -> impl Strategy<Value = Option<Nanos>> {
        prop::option::of(nanos())
    }

    fn saved() -> impl Strategy<Value = SaveRecord> {
        let spans = (nanos(), nanos(), maybe(), maybe(), maybe());
        let counts = (0u64..3, 0u64..1000, 0u64..9);
        (0u64..3, nanos(), spans, counts, nanos(), prop::collection::vec("[ab]", 0..3)).prop_map(
            |(
                step,
                began,
                (blocked_ns, back_pressure_ns, fast_ns, durable_ns, drain_ns),
                counts,
                rank,
                troubles,
            )| {
                let (serial, bytes, files) = counts;
                SaveRecord {
                    serial,
                    bytes,
                    files,
                    blocked_ns,
                    back_pressure_ns,
                    fast_ns,
                    durable_ns,
                    drain_ns,
                    slowest_rank_ns: rank,
                    first_rank_ns: blocked_ns,
                    cpu: Cpu { used_ns: rank, core_ns: blocked_ns },
                    troubles,
                    ..SaveRecord::new(Moment { epoch: 1, step }, began)
                }
            },
        )
    }

    fn restored() -> impl Strategy<Value = RestoreRecord> {
        let pages = (prop::option::of(0u64..100), prop::option::of(0u64..100), prop::option::of("[ab]"));
        (0u64..3, nanos(), any::<bool>(), 0u64..1000, nanos(), pages).prop_map(
            |(step, began, from_fast, bytes, took_ns, (pages, pages_cached, failure))| RestoreRecord {
                from_fast,
                bytes,
                files: bytes / 2,
                took_ns,
                slowest_rank_ns: took_ns,
                first_rank_ns: began,
                pages,
                pages_cached,
                verified_bytes: bytes,
                cpu: Cpu { used_ns: took_ns, core_ns: began },
                failure,
                ..RestoreRecord::new(Moment { epoch: 1, step }, began)
            },
        )
    }

    /// The report of one member, sorted by start time.
    fn report() -> impl Strategy<Value = Checkpoints> {
        let lists = (prop::collection::vec(saved(), 0..5), prop::collection::vec(restored(), 0..5));
        (lists, 0u64..9).prop_map(|((mut saves, mut restores), count)| {
            saves.sort_by_key(|save| (save.began, save.moment));
            restores.sort_by_key(|restore| (restore.began, restore.moment));
            let steps = StepTimes { count, time_ns: Nanos(count * 3) };
            Checkpoints { saves, restores, steps_beside: steps, steps_apart: steps }
        })
    }

    fn sum(parts: &[&Checkpoints]) -> Checkpoints {
        parts.iter().fold(Checkpoints::default(), |mut sum, part| {
            sum += (*part).clone();
            sum
        })
    }

    proptest! {
        #[test]
        fn addition_commutes_and_associates(a in report(), b in report(), c in report()) {
            prop_assert_eq!(sum(&[&a, &b, &c]), sum(&[&c, &a, &b]));
            prop_assert_eq!(sum(&[&sum(&[&a, &b]), &c]), sum(&[&a, &sum(&[&b, &c])]));
        }

        #[test]
        fn the_report_of_one_process_is_unchanged(a in report()) {
            prop_assert_eq!(sum(&[&a, &Checkpoints::default()]), a);
        }
    }

    #[test]
    fn members_that_report_the_same_save_give_one_save() {
        let moment = Moment { epoch: 1, step: 4 };
        let of = |began, blocked, durable, first| SaveRecord {
            serial: 7,
            bytes: 100,
            files: 2,
            blocked_ns: Nanos(blocked),
            durable_ns: durable,
            slowest_rank_ns: Nanos(blocked),
            first_rank_ns: Nanos(first),
            cpu: Cpu { used_ns: Nanos(1), core_ns: Nanos(2) },
            ..SaveRecord::new(moment, Nanos(began))
        };
        let member = |save: SaveRecord| Checkpoints { saves: vec![save], ..Checkpoints::default() };
        let with_rank_0 = member(of(10, 30, Some(Nanos(40)), 20));
        let other = member(of(11, 50, Some(Nanos(60)), 0));
        let whole = sum(&[&with_rank_0, &other]);
        assert_eq!(whole.saves.len(), 1);
        let save = &whole.saves[0];
        assert_eq!((save.serial, save.bytes, save.files), (7, 200, 4));
        assert_eq!((save.began, save.blocked_ns, save.slowest_rank_ns), (Nanos(10), Nanos(50), Nanos(50)));
        assert_eq!((save.first_rank_ns, save.durable_ns), (Nanos(20), Some(Nanos(60))));
        assert_eq!(save.cpu, Cpu { used_ns: Nanos(2), core_ns: Nanos(4) });
        let unfinished = member(of(12, 1, None, 0));
        assert_eq!(sum(&[&whole, &unfinished]).saves[0].durable_ns, None, "durable when all are");
    }

    /// `checkpoint.num_checkpoints_read` may be larger than the number of checkpoints.
    #[test]
    fn repeated_restores_stay_separate_and_in_order() {
        let restores = |bytes: u64, times: &[(u64, u64)]| {
            let one = |(step, began): &(u64, u64)| RestoreRecord {
                bytes,
                ..RestoreRecord::new(Moment { epoch: 1, step: *step }, Nanos(*began))
            };
            Checkpoints { restores: times.iter().map(one).collect(), ..Checkpoints::default() }
        };
        // The newest checkpoint of a folder need not have the highest step.
        let whole = sum(&[
            &restores(1, &[(9, 10), (2, 20), (9, 30), (2, 40)]),
            &restores(2, &[(9, 11), (2, 19), (9, 33)]),
        ]);
        let seen: Vec<_> =
            whole.restores.iter().map(|one| (one.moment.step, one.began.0, one.bytes)).collect();
        assert_eq!(seen, [(9, 10, 3), (2, 19, 3), (9, 30, 3), (2, 40, 1)]);
    }
}
