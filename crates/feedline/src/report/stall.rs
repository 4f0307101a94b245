//! The report of `feedline stall`, as text, JSON, CSV and plot: the parts of the time, the verdict with the next steps
//! to try, and the predicted effect of a cache.

use std::fmt::Write;

use model::study::attribution::{Bottleneck, StallRun};
use model::study::cache::CacheCheck;
use model::units::{Nanos, counted, grouped};
use serde_json::{Value, json};
use session::study::{StallFound, StallStage};

use super::csv_field;
use super::nodes::several_processes;
use ::report::plot::{Bar, Figure};

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
            "{}: {}{}, {} backend{}, {} after {} warm-up steps\n\n{}\n\n",
            self.found.workload,
            counted(self.found.ranks, "rank"),
            several_processes(self.found.processes, self.found.nodes),
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
        super::fitted(&text)
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

    pub(crate) fn csv(&self) -> String {
        let header = "run,ranks,steps,seconds,bytes,wall_seconds,cache_verified,cache,simulated,note\n";
        let simulated = self.found.store.is_simulated();
        let lines = self.found.runs.iter().map(|run| csv_line(run, simulated));
        std::iter::once(header.to_owned()).chain(lines).collect()
    }

    /// The plot: the time of each run that is compared, split into its parts.
    pub(crate) fn figure(&self) -> Figure {
        let seen = &self.found.attribution;
        let is_simulated = self.found.store.is_simulated();
        let parts = [seen.compute_seconds, seen.prep_stall_seconds, seen.fetch_stall_seconds];
        let bar = |value: f64| Some(Bar { value, whisker: None, simulated: is_simulated });
        let stack = |count: usize| parts[..count].iter().map(|seconds| bar(*seconds)).collect();
        Figure {
            title: format!(
                "{} on {}{}, {}: {}",
                self.found.workload,
                self.found.store,
                super::simulated(is_simulated),
                counted(self.found.ranks, "rank"),
                counted(self.found.steps, "step")
            ),
            x_label: "run".to_owned(),
            y_label: "seconds".to_owned(),
            groups: ["synthetic", "warm", "cold"].map(str::to_owned).to_vec(),
            series: ["compute", "preprocessing stall", "fetch stall"].map(str::to_owned).to_vec(),
            bars: vec![stack(1), stack(2), stack(3)],
            stacked: true,
            ..Figure::default()
        }
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

fn csv_line(run: &StallRun, simulated: bool) -> String {
    let note =
        if run.broken.is_empty() { String::new() } else { format!("invalid: {}", run.broken.join(", ")) };
    let cache = run.cache.as_ref();
    let fields = [
        run.run.clone(),
        run.ranks.to_string(),
        run.steps.to_string(),
        run.seconds.to_string(),
        run.bytes.to_string(),
        run.wall_seconds.to_string(),
        cache.map_or(String::new(), |cache| cache.verified.to_string()),
        cache.map_or(String::new(), |cache| csv_field(&cache.evidence)),
        simulated.to_string(),
        csv_field(&note),
    ];
    fields.join(",") + "\n"
}

/// The line that is printed before the first run.
pub(crate) fn stage_line(stage: &StallStage) -> String {
    format!(
        "{} of {}; estimated time: at least {}, if accelerators never wait",
        counted(stage.runs, "run"),
        counted(stage.steps, "step"),
        Nanos::from_seconds(stage.seconds)
    )
}

/// The line that is printed when a run ends: `cold run       12.3 s`
pub(crate) fn run_line(run: &StallRun) -> String {
    let (name, time) = (format!("{} run", run.run), Nanos::from_seconds(run.seconds).to_string());
    format!("{name:<13} {time:>8}")
}

#[cfg(test)]
mod tests {
    use ::report::plot::PlotMedium;

    use super::*;
    use model::study::attribution::{Attribution, StallTimes};

    fn found(synthetic: f64, warm: f64, cold: f64) -> StallFound {
        let timed = StallTimes {
            synthetic_seconds: synthetic,
            warm_seconds: warm,
            cold_seconds: cold,
            memory_seconds: 0.1,
            bytes: 800e6,
        };
        let state = |verified, evidence: &str| Some(CacheCheck { verified, evidence: evidence.to_owned() });
        let run = |name: &str, seconds: f64, cache: &Option<CacheCheck>| StallRun {
            run: name.to_owned(),
            ranks: 2,
            steps: 45,
            seconds,
            bytes: 800e6,
            cache: cache.clone(),
            broken: Vec::new(),
            wall_seconds: seconds + 0.5,
        };
        let before_cold = state(true, "0 of 200,000 pages were cached before");
        let before_warm = state(false, "100,000 of 200,000 pages were cached before");
        StallFound {
            workload: "snapshot".to_owned(),
            store: crate::report::posix().clone(),
            ranks: 2,
            processes: 1,
            nodes: 1,
            readers_per_rank: 4,
            steps: 40,
            warm_up_steps: 5,
            attribution: Attribution::of(&timed),
            runs: [
                run("synthetic", synthetic, &None),
                run("cold", cold, &before_cold),
                run("warm", warm, &before_warm),
                run("memory", 0.1, &None),
            ],
            cold: before_cold,
            warm: before_warm,
            broken: Vec::new(),
        }
    }

    fn report(synthetic: f64, warm: f64, cold: f64) -> String {
        StallReport { found: &found(synthetic, warm, cold) }.text()
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

    const CSV: &str = "\
run,ranks,steps,seconds,bytes,wall_seconds,cache_verified,cache,simulated,note
synthetic,2,45,2,800000000,2.5,,,false,
cold,2,45,8,800000000,8.5,true,\"0 of 200,000 pages were cached before\",false,
warm,2,45,2.5,800000000,3,false,\"100,000 of 200,000 pages were cached before\",false,
memory,2,45,0.1,800000000,0.6,,,false,
";

    #[test]
    fn runs_are_listed_and_drawn() {
        let found = found(2.0, 2.5, 8.0);
        let report = StallReport { found: &found };
        assert_eq!(report.csv(), CSV);
        assert_eq!(run_line(&found.runs[1]), "cold run        8.00 s");
        let stage = StallStage { runs: 4, steps: 45, seconds: 30.0 };
        assert_eq!(
            stage_line(&stage),
            "4 runs of 45 steps; estimated time: at least 30.0 s, if accelerators never wait"
        );
        let figure = report.figure();
        let sums = figure.bars.iter().map(|bars| bars.iter().flatten().map(|bar| bar.value).sum::<f64>());
        assert_eq!(sums.collect::<Vec<_>>(), [2.0, 2.5, 8.0], "each stack is as high as its run took");
        assert_eq!(figure.svg(PlotMedium::Print).matches("class=\"bar\"").count(), 6);
    }

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
