//! Attribution of training time by differences between runs of the same steps: without data, with data in memory and
//! with data on the storage. The method is DS-Analyzer's (Mohan et al., VLDB 2021).

use serde::{Deserialize, Serialize};

use super::cache::CacheCheck;

/// What one of the four runs of an analysis showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallRun {
    /// `synthetic`, `cold`, `warm` or `memory`.
    pub run: String,
    pub ranks: u64,
    pub steps: u64,
    /// Of the steps that count, as a mean over the ranks, and their bytes.
    pub seconds: f64,
    pub bytes: f64,
    /// The page cache before the run; `None` if its state does not matter.
    pub cache: Option<CacheCheck>,
    /// Rules of the verdict that failed.
    pub broken: Vec<String>,
    pub wall_seconds: f64,
}

/// How long the runs took for the same steps, and the bytes of these steps.
#[derive(Clone, Copy, Debug)]
pub struct StallTimes {
    pub synthetic_seconds: f64,
    pub warm_seconds: f64,
    pub cold_seconds: f64,
    /// Data in memory, without preprocessing and compute.
    pub memory_seconds: f64,
    pub bytes: f64,
}

/// The time of the cold run, by cause. Rates are millions of bytes per second.
#[derive(Clone, Debug, Serialize)]
pub struct Attribution {
    pub compute_seconds: f64,
    pub prep_stall_seconds: f64,
    pub fetch_stall_seconds: f64,
    pub total_seconds: f64,
    /// The rate at which accelerators can consume data; `None` if it is unlimited.
    pub ingestion_mb_per_second: Option<f64>,
    /// The rate with all data in memory.
    pub prep_mb_per_second: f64,
    /// The rate of fetching alone; `None` where fetching overlaps completely with the rest.
    pub fetch_mb_per_second: Option<f64>,
    /// The rate of the cold run.
    pub cold_mb_per_second: f64,
    /// The rate of reading from memory.
    pub memory_mb_per_second: f64,
    /// Negative differences that are not negligible, which count as 0.
    pub clamped: Vec<String>,
}

/// What limits the accelerators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// Nothing else: they compute.
    Compute,
    Preprocessing,
    Fetching,
}

/// Stalls below this share of the time need no remedy.
const SMALL: f64 = 0.05;
/// Fetching that takes less than this share of the time has no measurable rate.
const MEASURABLE: f64 = 0.01;

impl Attribution {
    pub fn of(timed: &StallTimes) -> Attribution {
        let StallTimes { synthetic_seconds, warm_seconds, cold_seconds, memory_seconds, bytes } = *timed;
        let mut clamped = Vec::new();
        let mut at_least = |seconds: f64, floor: f64, what: &str| {
            let percent = 100.0 * (1.0 - seconds / floor);
            if percent >= 0.05 {
                clamped.push(format!("{what} by {percent:.1} %: counted as 0"));
            }
            seconds.max(floor)
        };
        let warm =
            at_least(warm_seconds, synthetic_seconds, "the warm run was faster than the synthetic one");
        let cold = at_least(cold_seconds, warm, "the cold run was faster than the warm one");
        // A memory run that is slower than the warm run, which does more work, is noise.
        let memory = memory_seconds.min(warm);
        let rate = |seconds: f64| bytes / seconds / 1e6;
        let fetch = cold - warm;
        Attribution {
            compute_seconds: synthetic_seconds,
            prep_stall_seconds: warm - synthetic_seconds,
            fetch_stall_seconds: fetch,
            total_seconds: cold,
            ingestion_mb_per_second: (synthetic_seconds > 0.0).then(|| rate(synthetic_seconds)),
            prep_mb_per_second: rate(warm),
            fetch_mb_per_second: (fetch > MEASURABLE * cold).then(|| rate(fetch)),
            cold_mb_per_second: rate(cold),
            memory_mb_per_second: rate(memory),
            clamped,
        }
    }

    pub fn limit(&self) -> Bottleneck {
        let (prep, fetch) = (self.prep_stall_seconds, self.fetch_stall_seconds);
        match () {
            () if prep.max(fetch) < SMALL * self.total_seconds => Bottleneck::Compute,
            () if fetch >= prep => Bottleneck::Fetching,
            () => Bottleneck::Preprocessing,
        }
    }

    /// The rate if this share of the bytes (0 to 1) came from memory. Times add up over bytes; the rate cannot exceed
    /// what accelerators and preprocessing consume.
    pub fn predict(&self, cached: f64) -> f64 {
        let (memory, storage) = (self.memory_mb_per_second, self.cold_mb_per_second);
        let fetched = 1.0 / (cached / memory + (1.0 - cached) / storage);
        fetched.min(self.prep_mb_per_second)
    }

    /// The share that would have to come from memory for fetching to cause no stall.
    pub fn share_needed(&self) -> f64 {
        let (memory, storage) = (self.memory_mb_per_second, self.cold_mb_per_second);
        let needed = self.prep_mb_per_second;
        if storage >= needed {
            return 0.0;
        }
        (1.0 / storage - 1.0 / needed) / (1.0 / storage - 1.0 / memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(synthetic: f64, warm: f64, cold: f64) -> StallTimes {
        StallTimes {
            synthetic_seconds: synthetic,
            warm_seconds: warm,
            cold_seconds: cold,
            memory_seconds: 0.1,
            bytes: 800e6,
        }
    }

    #[test]
    fn parts_add_up_and_the_largest_stall_is_the_limit() {
        for (synthetic, warm, cold, limit) in [
            (2.0, 2.0, 8.0, Bottleneck::Fetching),
            (2.0, 7.0, 8.0, Bottleneck::Preprocessing),
            (2.0, 2.01, 2.05, Bottleneck::Compute),
            (0.001, 1.0, 3.0, Bottleneck::Fetching),
        ] {
            let seen = Attribution::of(&timed(synthetic, warm, cold));
            let sum = seen.compute_seconds + seen.prep_stall_seconds + seen.fetch_stall_seconds;
            assert!((sum - cold).abs() < 1e-9 && seen.clamped.is_empty());
            assert_eq!(seen.limit(), limit, "{synthetic} {warm} {cold}");
        }
    }

    #[test]
    fn negative_differences_count_as_zero_and_are_reported() {
        let seen = Attribution::of(&timed(2.0, 1.9, 1.8));
        assert_eq!((seen.prep_stall_seconds, seen.fetch_stall_seconds, seen.total_seconds), (0.0, 0.0, 2.0));
        assert_eq!(
            seen.clamped,
            [
                "the warm run was faster than the synthetic one by 5.0 %: counted as 0",
                "the cold run was faster than the warm one by 10.0 %: counted as 0"
            ]
        );
        assert_eq!((seen.limit(), seen.fetch_mb_per_second), (Bottleneck::Compute, None));
    }

    /// A disk of 163 MB/s and memory of 8 GB/s.
    #[test]
    fn a_cached_share_is_predicted() {
        let bytes = 1630e6;
        let timed = StallTimes {
            synthetic_seconds: 1e-6,
            warm_seconds: bytes / 8e9,
            cold_seconds: 10.0,
            memory_seconds: bytes / 8e9,
            bytes,
        };
        let seen = Attribution::of(&timed);
        for (cached, rate) in [(0.0, 163.0), (0.25, 216.0), (0.5, 319.0), (0.75, 614.0), (0.9, 1377.0)] {
            assert!((seen.predict(cached) - rate).abs() < 1.0, "{cached}: {}", seen.predict(cached));
        }
        assert!((seen.share_needed() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_predicted_rate_is_limited_by_the_consumers() {
        // The storage delivers 100 MB/s, 400 could be consumed, memory delivers 8000.
        let seen = Attribution::of(&timed(2.0, 2.0, 8.0));
        assert_eq!(seen.predict(0.95), 400.0);
        let share = seen.share_needed();
        assert!((seen.predict(share) - 400.0).abs() < 1e-6 && seen.predict(share - 0.01) < 400.0, "{share}");
        let slow_memory = Attribution::of(&StallTimes { memory_seconds: 9.0, ..timed(2.0, 2.0, 8.0) });
        assert_eq!((slow_memory.predict(1.0), slow_memory.share_needed()), (400.0, 1.0));
    }
}
