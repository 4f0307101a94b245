//! The report of `feedline stall`, as text and JSON: the parts of the time, the verdict with the next steps to try, and
//! the predicted effect of a cache.

use std::fmt::Write;

use model::study::attribution::Bottleneck;
use model::study::cache::CacheCheck;
use model::units::{counted, grouped};
use serde_json::{Value, json};
use session::study::StallFound;

/// The cached shares of the bytes in the what-if table.
const CACHED_PERCENT: [u32; 6] = [0, 25, 50, 75, 90, 95];

/// The report of an analysis.
#[derive(Debug)]
pub(crate) struct StallReport<'a> {
    pub found: &'a StallFound,
}

impl StallReport<'_> {
    pub(crate) fn text(&self) -> String {
        let simulated = super::simulated(self.found.store.is_simulated());
        let mut text = format!(
            "{}: {}, {} backend{}, {} after {} warm-up steps\n\n{}\n\n",
            self.found.workload,
            counted(self.found.ranks, "rank"),
            self.found.store,
            simulated,
            counted(self.found.steps, "step"),
            self.found.warm_up_steps,
            self.parts()
        );
        for note in self.notes() {
            let _ = writeln!(text, "{note}");
        }
        let _ = write!(text, "\nverdict: {}\n", self.verdict());
        for step in self.next_steps() {
            let _ = writeln!(text, "  try {step}");
        }
        let _ = write!(text, "\npredicted effect of a cache{simulated}\n{}\n", self.what_if());
        text
    }

    fn parts(&self) -> String {
        let seen = &self.found.attribution;
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
        let row = |part: &str, seconds: f64, mb: Option<f64>, what: &str| {
            let percent = 100.0 * seconds / seen.total_seconds;
            [part.to_owned(), format!("{seconds:.3}"), format!("{percent:.1}"), rate(mb), what.to_owned()]
        };
        let rows = [
            row("compute", seen.compute_seconds, seen.ingestion_mb_per_second, "demand of the accelerators"),
            row(
                "preprocessing stall",
                seen.prep_stall_seconds,
                Some(seen.prep_mb_per_second),
                "rate from memory",
            ),
            row("fetch stall", seen.fetch_stall_seconds, seen.fetch_mb_per_second, "rate of fetching alone"),
            row("total", seen.total_seconds, Some(seen.cold_mb_per_second), "measured rate"),
        ];
        super::table(["part", "seconds", "%", "MB/s", ""], 1..4, rows)
    }

    /// The evidence behind the figures.
    fn notes(&self) -> Vec<String> {
        let state = |run: &str, state: &CacheCheck| {
            let doubt = if state.verified { "" } else { "unverified: " };
            format!("{run} run: {doubt}{}", state.evidence)
        };
        let mut notes: Vec<String> = match (&self.found.cold, &self.found.warm) {
            (Some(cold), Some(warm)) => vec![state("cold", cold), state("warm", warm)],
            _ => vec![format!(
                "the {} backend does not use the page cache; the warm run used the null backend",
                self.found.store
            )],
        };
        notes.extend(self.found.attribution.clamped.iter().cloned());
        notes.extend(self.found.broken.iter().map(|broken| format!("invalid: {broken}")));
        notes
    }

    fn verdict(&self) -> String {
        let seen = &self.found.attribution;
        let percent = |seconds: f64| format!("{:.0} %", 100.0 * seconds / seen.total_seconds);
        let (prep, fetch) = (percent(seen.prep_stall_seconds), percent(seen.fetch_stall_seconds));
        match seen.limit() {
            Bottleneck::Compute => format!(
                "the accelerators are the limit: they wait for preprocessing {prep} of the time and for storage \
                 {fetch}; faster storage or more threads would change little"
            ),
            Bottleneck::Preprocessing => {
                format!("preprocessing is the limit: accelerators wait for it {prep} of the time")
            }
            Bottleneck::Fetching => {
                format!("storage is the limit: accelerators wait for it {fetch} of the time")
            }
        }
    }

    fn next_steps(&self) -> Vec<String> {
        let seen = &self.found.attribution;
        let threads = format!("more readers: reader.read_threads is {}", self.found.readers_per_rank);
        let megabytes = |rate: f64| format!("{} MB/s", grouped(rate.round() as u64));
        match seen.limit() {
            Bottleneck::Compute => Vec::new(),
            Bottleneck::Preprocessing => vec![
                format!("{threads}; if readers preprocess, this also adds preprocessing threads"),
                "less work per sample, or more cores".to_owned(),
            ],
            Bottleneck::Fetching => {
                let (needed, there) =
                    (megabytes(seen.prep_mb_per_second), megabytes(seen.cold_mb_per_second));
                let share = 100.0 * seen.share_needed();
                vec![
                    threads,
                    format!("faster storage: {needed} needed, {there} measured"),
                    format!("a cache: {share:.0} % of the bytes from memory would be enough"),
                ]
            }
        }
    }

    fn what_if(&self) -> String {
        let today = self.found.attribution.predict(0.0);
        let rows = CACHED_PERCENT.map(|percent| {
            let rate = self.found.attribution.predict(f64::from(percent) / 100.0);
            [percent.to_string(), format!("{rate:.1}"), format!("{:.2}", rate / today)]
        });
        super::table(["cached %", "MB/s", "speed-up"], 0..3, rows)
    }

    pub(crate) fn json(&self) -> Value {
        let predicted = CACHED_PERCENT.map(|percent| {
            json!({
                "cached_percent": percent,
                "mb_per_second": self.found.attribution.predict(f64::from(percent) / 100.0),
            })
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "workload": self.found.workload,
            "store": self.found.store,
            "simulated": self.found.store.is_simulated(),
            "ranks": self.found.ranks,
            "steps": self.found.steps,
            "warm_up_steps": self.found.warm_up_steps,
            "parts": self.found.attribution,
            "limit": self.found.attribution.limit(),
            "verdict": self.verdict(),
            "next_steps": self.next_steps(),
            "cached_share_needed": self.found.attribution.share_needed(),
            "what_if": predicted,
            "cold_cache": self.found.cold,
            "warm_cache": self.found.warm,
            "invalid": self.found.broken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::study::attribution::{Attribution, StallTimes};

    fn report(synthetic: f64, warm: f64, cold: f64) -> String {
        let timed = StallTimes {
            synthetic_seconds: synthetic,
            warm_seconds: warm,
            cold_seconds: cold,
            memory_seconds: 0.1,
            bytes: 800e6,
        };
        let state = |verified, evidence: &str| Some(CacheCheck { verified, evidence: evidence.to_owned() });
        let found = StallFound {
            workload: "snapshot".to_owned(),
            store: crate::report::posix().clone(),
            ranks: 2,
            readers_per_rank: 4,
            steps: 40,
            warm_up_steps: 5,
            attribution: Attribution::of(&timed),
            cold: state(true, "0 of 200,000 pages were cached before"),
            warm: state(false, "100,000 of 200,000 pages were cached before"),
            broken: Vec::new(),
        };
        StallReport { found: &found }.text()
    }

    #[test]
    fn the_report_of_slow_storage_is_exact() {
        assert_eq!(report(2.0, 2.5, 8.0), EXPECTED);
    }

    const EXPECTED: &str = "\
snapshot: 2 ranks, posix backend, 40 steps after 5 warm-up steps

 part                 seconds      %   MB/s
 compute                2.000   25.0  400.0  demand of the accelerators
 preprocessing stall    0.500    6.2  320.0  rate from memory
 fetch stall            5.500   68.8  145.5  rate of fetching alone
 total                  8.000  100.0  100.0  measured rate

cold run: 0 of 200,000 pages were cached before
warm run: unverified: 100,000 of 200,000 pages were cached before

verdict: storage is the limit: accelerators wait for it 69 % of the time
  try more readers: reader.read_threads is 4
  try faster storage: 320 MB/s needed, 100 MB/s measured
  try a cache: 70 % of the bytes from memory would be enough

predicted effect of a cache
 cached %   MB/s  speed-up
        0  100.0      1.00
       25  132.8      1.33
       50  197.5      1.98
       75  320.0      3.20
       90  320.0      3.20
       95  320.0      3.20
";

    #[test]
    fn each_limit_has_its_own_verdict() {
        let prep = report(2.0, 7.0, 7.1);
        assert!(
            prep.contains("verdict: preprocessing is the limit: accelerators wait for it 70 % of the time")
        );
        assert!(prep.contains("  try more readers: reader.read_threads is 4"), "{prep}");
        let compute = report(2.0, 2.01, 2.0);
        assert!(compute.contains("verdict: the accelerators are the limit"), "{compute}");
        assert!(
            compute.contains("the cold run was faster than the warm one by 0.5 %: counted as 0"),
            "{compute}"
        );
        assert!(!compute.contains("  try "));
    }
}
