//! The end of the log: the figures of the whole run as DLIO prints them, and the verdict, which cannot be overlooked if
//! the result is not valid.

use model::ledger::Phase;
use model::metrics::Spread;
use model::verdict::{Finding, RuleOutcome, Status, Verdict};
use serde_json::{Map, Value};

use super::log::LeafLog;
use crate::report::result::Outcome;

const RULER: &str = "==========================================================";

/// Logs the figures of a complete run, and the verdict.
pub(super) fn report(log: &LeafLog, outcome: &Outcome<'_>) {
    if outcome.verdict.status != Status::Incomplete {
        figures(log, outcome);
    }
    verdict(log, outcome.verdict);
}

fn figures(log: &LeafLog, outcome: &Outcome<'_>) {
    log.result("Averaged metric over all steps/epochs");
    log.metric(RULER);
    log.metric(&format!("Number of Simulated Accelerators: {}", outcome.plan.ranks));
    let metric = outcome.metric();
    for line in FIGURES.iter().filter_map(|figure| figure.line(&metric)) {
        log.metric(&line);
    }
    log.metric(RULER);
    for phase in [Phase::Train, Phase::Eval] {
        if let Some(why) = outcome.clock_difference(phase) {
            log.output(&format!("{phase}: {why}"));
        }
    }
}

/// A figure of the metric block: its name, the key of its mean and of its standard deviation, and its decimals.
struct MetricLine {
    name: &'static str,
    mean: &'static str,
    stdev: &'static str,
    decimals: usize,
}

const fn line(name: &'static str, mean: &'static str, stdev: &'static str, decimals: usize) -> MetricLine {
    MetricLine { name, mean, stdev, decimals }
}

/// In DLIO's order. A text has no standard deviation.
const FIGURES: [MetricLine; 12] = [
    line(
        "Training Accelerator Utilization [AU] (%)",
        "train_au_mean_percentage",
        "train_au_stdev_percentage",
        4,
    ),
    line(
        "Training Throughput (samples/second)",
        "train_throughput_mean_samples_per_second",
        "train_throughput_stdev_samples_per_second",
        4,
    ),
    line(
        "Training I/O Throughput (MiB/second)",
        "train_io_mean_MB_per_second",
        "train_io_stdev_MB_per_second",
        4,
    ),
    line("train_au_meet_expectation", "train_au_meet_expectation", "", 0),
    line(
        "Checkpoint save duration (seconds)",
        "save_checkpoint_duration_mean_seconds",
        "save_checkpoint_duration_stdev_seconds",
        4,
    ),
    line(
        "Checkpoint save I/O Throughput (GiB/second)",
        "save_checkpoint_io_mean_GB_per_second",
        "save_checkpoint_io_stdev_GB_per_second",
        4,
    ),
    line(
        "Checkpoint load duration (seconds)",
        "load_checkpoint_duration_mean_seconds",
        "load_checkpoint_duration_stdev_seconds",
        4,
    ),
    line(
        "Checkpoint load I/O Throughput (GiB/second)",
        "load_checkpoint_io_mean_GB_per_second",
        "load_checkpoint_io_stdev_GB_per_second",
        4,
    ),
    line("Eval Accelerator Utilization [AU] (%)", "eval_au_mean_percentage", "eval_au_stdev_percentage", 4),
    line(
        "Eval Throughput (samples/second)",
        "eval_throughput_mean_samples_per_second",
        "eval_throughput_stdev_samples_per_second",
        6,
    ),
    line("Eval Throughput (MiB/second)", "eval_io_mean_MB_per_second", "eval_io_stdev_MB_per_second", 6),
    line("eval_au_meet_expectation", "eval_au_meet_expectation", "", 0),
];

impl MetricLine {
    /// `None` if it was not measured.
    fn line(&self, metric: &Map<String, Value>) -> Option<String> {
        let MetricLine { name, mean, stdev, decimals } = *self;
        let number = |key: &str| metric.get(key).and_then(Value::as_f64);
        match metric.get(mean)? {
            Value::String(word) => Some(format!("{name}: {word}")),
            _ => {
                let Spread { mean, stdev } = Spread { mean: number(mean)?, stdev: number(stdev)? };
                Some(format!("{name}: {mean:.decimals$} ({stdev:.decimals$})"))
            }
        }
    }
}

/// The verdict: a line if the result is valid, otherwise a block with the reasons and what to do.
fn verdict(log: &LeafLog, verdict: &Verdict) {
    let (say, outcomes): (&str, &[RuleOutcome]) = match verdict.status {
        Status::Valid => {
            log.result("Verdict by feedline: valid");
            return;
        }
        Status::Invalid => {
            ("this result is INVALID: the figures are not what they claim to be", &[RuleOutcome::Fail])
        }
        Status::Unverified => {
            ("this result is unverified: some rules could not be checked", &[RuleOutcome::NotCheckable])
        }
        Status::Incomplete => (
            "this run is INCOMPLETE: it has no summary.json",
            &[RuleOutcome::Fail, RuleOutcome::NotCheckable],
        ),
    };
    log.alert(RULER);
    log.alert(&format!("Verdict by feedline: {say}"));
    for Finding { rule, evidence, remedy, .. } in
        verdict.rules.iter().filter(|finding| outcomes.contains(&finding.outcome))
    {
        log.alert(&format!("  {rule}: {evidence}"));
        if !remedy.is_empty() {
            log.alert(&format!("    help: {remedy}"));
        }
    }
    log.alert(RULER);
}
