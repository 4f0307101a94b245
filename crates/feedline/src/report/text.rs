//! The result as a person reads it: a table of epochs, the figures of the run, the verdict with its reasons, and
//! where to go from here.

use std::fmt::Write;
use std::path::Path;

use model::ledger::Phase;
use model::metrics::{EpochFigures, Figures, Spread};
use model::units::{Bytes, Nanos, grouped, significant};
use model::verdict::{Outcome as RuleOutcome, Status};

use super::result::Outcome;

/// The whole report.
pub fn render(outcome: &Outcome<'_>, saved: &Path, demo: bool) -> String {
    let mut text = heading(outcome);
    for (phase, title) in [(Phase::Train, "training"), (Phase::Eval, "evaluation")] {
        if let Some(figures) = outcome.figures(phase) {
            let _ = write!(text, "\n{title}\n{}\n", epochs_table(outcome, &figures));
            text.push_str(&run_lines(outcome, &figures));
        }
    }
    text.push_str(&verdict_lines(outcome));
    let _ = writeln!(text, "\nresult in {}", saved.display());
    if demo {
        text.push_str(NEXT);
    }
    text
}

const NEXT: &str = "
next
  feedline workloads                              what else is built in
  feedline plan retinanet_b200 --ranks 4          what a real workload needs
  feedline run demo --ranks 4 --set reader.read_threads=4
  feedline run demo --store null                  what this machine could do with storage that never waits
";

fn heading(outcome: &Outcome<'_>) -> String {
    let plan = outcome.plan;
    format!(
        "{}: {} ranks x {} readers, {} files of {}, {} store, {} epochs x {} steps of {}\n",
        plan.workload,
        plan.ranks,
        plan.loader.readers_per_rank,
        grouped(plan.data.train.files),
        plan.format,
        plan.store,
        plan.epochs,
        grouped(plan.train.shards.steps),
        Nanos::from_seconds(plan.train.compute.mean()),
    )
}

fn epochs_table(outcome: &Outcome<'_>, figures: &Figures) -> String {
    let header =
        ["epoch", "AU %", "samples/s", "MiB/s", "wait", "compute", "barrier", "harness", "delivered"];
    let rows = figures.epochs.iter().map(|epoch| epoch_cells(epoch, outcome.plan.ranks));
    super::table(header, &[0, 1, 2, 3, 4, 5, 6, 7, 8], rows)
}

/// Times are means over ranks, so that they compare with the clock on the wall.
fn epoch_cells(epoch: &EpochFigures, ranks: u64) -> [String; 9] {
    let figure = |value: Option<f64>, digits: usize| {
        value.map_or("n/a".to_owned(), |value| format!("{value:.digits$}"))
    };
    let time = |seconds: f64| Nanos::from_seconds(seconds / ranks as f64).to_string();
    [
        epoch.epoch.to_string(),
        figure(epoch.au_percent, 2),
        figure(epoch.samples_per_second, 1),
        figure(epoch.mib_per_second, 1),
        time(epoch.wait_seconds),
        time(epoch.compute_seconds),
        time(epoch.barrier_seconds),
        time(epoch.harness_seconds),
        format!("{} of {}", grouped(epoch.samples_delivered), grouped(epoch.samples_planned)),
    ]
}

fn run_lines(outcome: &Outcome<'_>, figures: &Figures) -> String {
    let target = 100.0 * outcome.plan.metric.au_target;
    let met = match figures.meets(outcome.plan.metric.au_target) {
        Some(true) => "met",
        Some(false) => "not met",
        None => "not measurable",
    };
    let spread = |spread: Option<Spread>| match spread {
        Some(Spread { mean, stdev }) => format!("{} (sd {})", significant(mean), significant(stdev)),
        None => "n/a".to_owned(),
    };
    let au =
        figures.au_percent.map_or("n/a".to_owned(), |au| format!("{:.2} % (sd {:.2})", au.mean, au.stdev));
    format!(
        "AU {au}, target {target:.0} %: {met}\n{} samples/s, {} MiB/s\n",
        spread(figures.samples_per_second),
        spread(figures.mib_per_second)
    )
}

fn verdict_lines(outcome: &Outcome<'_>) -> String {
    let mut text = format!("\nverdict: {}\n", outcome.verdict.status);
    for finding in &outcome.verdict.rules {
        let mark = match finding.outcome {
            RuleOutcome::Pass => continue,
            RuleOutcome::Fail => "failed",
            RuleOutcome::NotCheckable => "not checkable",
        };
        let _ = writeln!(text, "  {} ({mark}): {}\n    {}", finding.rule, finding.evidence, finding.remedy);
    }
    if outcome.verdict.status == Status::Valid {
        let _ = writeln!(text, "  all {} rules hold", outcome.verdict.rules.len());
    }
    if let Some(own) = outcome.ledger.calibration {
        let au = own.au_percent.map_or("n/a".to_owned(), |au| format!("{au:.2} %"));
        let harness = Nanos::from_seconds(own.harness_seconds_per_step);
        let idle = 100.0 * own.cpu_headroom;
        let _ = writeln!(
            text,
            "own ceiling on the null store: AU {au}, {harness} per step, CPU {idle:.0} % idle"
        );
    }
    let memory = outcome.peak_rss_bytes.map_or("n/a".to_owned(), |bytes| Bytes(bytes).to_string());
    let cpu = outcome.times.cpu_seconds;
    let _ = writeln!(text, "took {}, {cpu:.1} s of CPU, {memory} of memory", outcome.times.span);
    text
}
