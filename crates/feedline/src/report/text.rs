//! The text report of `feedline run`: a table of epochs, the figures of the run, the verdict with its reasons, and the
//! next commands to try.

use std::fmt::Write;
use std::path::Path;

use model::histogram::Quantiles;
use model::ledger::{Calibration, Phase, RunTimes};
use model::metrics::{EpochFigures, Figures, Spread};
use model::plan::TrainingPlan;
use model::units::{Bytes, Nanos, counted, grouped, significant};
use model::verdict::{Finding, RuleOutcome, Status, Verdict};

use super::result::Outcome;
use super::{checkpoints, layout, requests};
use crate::terminal::{self, Tone};

/// The whole report.
pub(crate) fn render(outcome: &Outcome<'_>, saved: &Path, demo: bool) -> String {
    let mut text = heading(outcome);
    for (phase, title) in [(Phase::Train, "training"), (Phase::Eval, "evaluation")] {
        if let Some((training, figures)) = outcome.plan.training.as_ref().zip(outcome.figures(phase)) {
            let _ = write!(text, "\n{title}\n{}\n", epochs_table(outcome, training, phase));
            text.push_str(&run_lines(outcome, training, &figures));
            if let Some(why) = outcome.clock_difference(phase) {
                let _ = writeln!(text, "{why}");
            }
            text.push_str(&outcome.nodes().map_or(String::new(), |nodes| nodes.text(phase)));
            text.push_str(&requests::text(outcome, phase));
            text.push_str(&latency_table(outcome, phase));
        }
    }
    if let Some(checkpoints) = outcome.checkpoints() {
        text.push_str(&checkpoints.text());
    }
    text.push_str(&verdict_lines(outcome));
    let mut text = super::fitted(&text);
    text.push('\n');
    text.push_str(&super::path_line("result in", saved.display()));
    if demo {
        text.push_str(&layout::help(NEXT, terminal::columns()));
    }
    text
}

const NEXT: &str = "\n
next
  feedline workloads                              list the built-in workloads
  feedline plan retinanet_b200 --ranks 4          requirements of a real workload
  feedline run demo --ranks 4 --set reader.read_threads=4
  feedline run demo --store null                  how fast feedline itself is on this host
";

fn heading(outcome: &Outcome<'_>) -> String {
    let plan = outcome.plan;
    let nodes = outcome.nodes().map_or(String::new(), |nodes| nodes.heading());
    let work = match (&plan.training, &plan.checkpoint) {
        (Some(training), _) => training_heading(training),
        (None, Some(checkpoint)) => checkpoints::heading(checkpoint),
        (None, None) => String::new(),
    };
    format!("{}: {}{nodes}{work}\n", plan.workload, counted(plan.ranks, "rank"))
}

fn training_heading(plan: &TrainingPlan) -> String {
    format!(
        " x {}, {} of {}, {} backend{}, {} x {} of {}",
        counted(plan.loader.readers_per_rank, "reader"),
        counted(plan.data.train.files, "file"),
        plan.format,
        plan.store,
        super::simulated(plan.store.is_simulated()),
        counted(plan.epochs, "epoch"),
        counted(plan.train.shards.steps, "step"),
        Nanos::from_seconds(plan.train.compute.mean()),
    )
}

/// Latencies by kind of operation.
fn latency_table(outcome: &Outcome<'_>, phase: Phase) -> String {
    let latencies = outcome.ledger.latencies(phase);
    let rows = latencies.each().filter_map(|(name, spans)| {
        let Quantiles { count, p50_ns, p90_ns, p99_ns, p99_9_ns, max_ns, .. } = spans.summary()?;
        let mut cells = vec![name.replace('_', " ")];
        cells.extend([p50_ns, p90_ns, p99_ns, p99_9_ns, max_ns].map(|span| span.to_string()));
        cells.push(grouped(count));
        Some(cells)
    });
    let header = ["latency", "p50", "p90", "p99", "p99.9", "max", "count"];
    format!("\n{}\n", super::table(header, 1..7, rows))
}

fn epochs_table(outcome: &Outcome<'_>, training: &TrainingPlan, phase: Phase) -> String {
    let ranks = outcome.plan.ranks;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut is_shown = [training.device.copy_bytes_per_second.is_some(), false, false];
    for epoch in outcome.epochs(phase) {
        is_shown[1] |= epoch.checkpoint_seconds > 0.0;
        is_shown[2] |= epoch.cache.storage_share.is_some();
        rows.push(epoch_cells(&epoch, ranks).into());
    }
    let hidden: Vec<usize> =
        SOMETIMES.into_iter().zip(is_shown).filter(|(_, shown)| !shown).map(|(column, _)| column).collect();
    let shown = |cells: Vec<String>| -> Vec<String> {
        let cells = cells.into_iter().enumerate();
        cells.filter(|(column, _)| !hidden.contains(column)).map(|(_, cell)| cell).collect()
    };
    let header = shown(HEADER.map(str::to_owned).into());
    let columns = header.len();
    super::table(header, 0..columns, rows.into_iter().map(shown))
}

/// The columns of the table of epochs, and those that are hidden if they are empty.
const HEADER: [&str; 13] = [
    "epoch",
    "AU %",
    "samples/s",
    "MiB/s",
    "clock MiB/s",
    "wait",
    "copy",
    "compute",
    "barrier",
    "checkpoint",
    "harness",
    "storage %",
    "delivered",
];
const SOMETIMES: [usize; 3] = [6, 9, 11];

/// Times are means over ranks, so that they can be compared with wall-clock time.
fn mean_time(seconds: f64, ranks: u64) -> String {
    Nanos::from_seconds(seconds / ranks as f64).to_string()
}

fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or("n/a".to_owned(), |value| format!("{value:.digits$}"))
}

fn epoch_cells(epoch: &EpochFigures, ranks: u64) -> [String; HEADER.len()] {
    let time = |seconds: f64| mean_time(seconds, ranks);
    [
        epoch.epoch.to_string(),
        figure(epoch.au_percent, 2),
        figure(epoch.samples_per_second, 1),
        figure(epoch.mib_per_second, 1),
        figure(epoch.clock_mib_per_second, 1),
        time(epoch.wait_seconds),
        time(epoch.copy_seconds),
        time(epoch.compute_seconds),
        time(epoch.barrier_seconds),
        time(epoch.checkpoint_seconds),
        time(epoch.harness_seconds),
        figure(epoch.cache.storage_share.map(|share| 100.0 * share), 0),
        format!("{} of {}", grouped(epoch.samples_delivered), grouped(epoch.samples_planned)),
    ]
}

fn run_lines(outcome: &Outcome<'_>, training: &TrainingPlan, figures: &Figures) -> String {
    let target = 100.0 * training.metric.au_target;
    let met = match outcome.meets(training, figures) {
        Some(true) => "met",
        Some(false) => "not met",
        None => "not determined",
    };
    let spread = |spread: Option<Spread>| match spread {
        Some(Spread { mean, stdev }) => format!("{} (sd {})", significant(mean), significant(stdev)),
        None => "n/a".to_owned(),
    };
    let au =
        figures.au_percent.map_or("n/a".to_owned(), |au| format!("{:.2} % (sd {:.2})", au.mean, au.stdev));
    format!(
        "AU {au}, target {target:.0} %: {met}\n{} samples/s, {} MiB/s\nby the clock {} samples/s, {} MiB/s\n",
        spread(figures.samples_per_second),
        spread(figures.mib_per_second),
        spread(figures.clock_samples_per_second),
        spread(figures.clock_mib_per_second),
    )
}

/// The outcome of a rule in words.
pub(crate) fn outcome(outcome: RuleOutcome) -> &'static str {
    match outcome {
        RuleOutcome::Pass => "pass",
        RuleOutcome::Note => "note",
        RuleOutcome::Fail => "failed",
        RuleOutcome::NotCheckable => "not checkable",
    }
}

/// The same in its colour.
fn painted(of: RuleOutcome) -> String {
    match of {
        RuleOutcome::Pass => Tone::Good.out(outcome(of)),
        RuleOutcome::Fail => Tone::Bad.out(outcome(of)),
        RuleOutcome::Note | RuleOutcome::NotCheckable => Tone::Doubtful.out(outcome(of)),
    }
}

/// The colour of a verdict.
fn tone(status: Status) -> Tone {
    match status {
        Status::Valid => Tone::Good,
        Status::Unverified => Tone::Doubtful,
        Status::Invalid | Status::Incomplete => Tone::Bad,
    }
}

/// The verdict, and each rule that did not pass, with its evidence and remedy.
pub(crate) fn verdict(verdict: &Verdict) -> String {
    let status = verdict.status.to_string();
    let headline = verdict.headline().replacen(&status, &tone(verdict.status).out(&status), 1);
    let mut text = format!("verdict: {headline}\n");
    for finding in verdict.rules.iter().filter(|finding| finding.outcome != RuleOutcome::Pass) {
        let _ = writeln!(text, "  {} ({}): {}", finding.rule, painted(finding.outcome), finding.evidence);
        if !finding.remedy.is_empty() {
            let _ = writeln!(text, "    {}", finding.remedy);
        }
    }
    if verdict.status == Status::Valid {
        let _ = writeln!(text, "  all {} rules passed", verdict.rules.len());
    }
    text
}

fn verdict_lines(outcome: &Outcome<'_>) -> String {
    let mut text = format!("\n{}", verdict(outcome.verdict));
    // The evidence of this rule is shown even if it passed: how much data was compared, and the time this took.
    let compared =
        |finding: &&Finding| finding.rule == "data-verified" && finding.outcome == RuleOutcome::Pass;
    if let Some(finding) = outcome.verdict.rules.iter().find(compared) {
        let _ = writeln!(text, "data: {}", finding.evidence);
    }
    if let Some(own) = outcome.ledger.calibration {
        let _ = writeln!(text, "{}", ceiling(&own));
    }
    let (most, each) = if outcome.nodes().is_some() { ("at most ", " per process") } else { ("", "") };
    let memory = outcome.peak_memory().map_or("n/a".to_owned(), |bytes| Bytes(bytes).to_string());
    let RunTimes { wall, cpu, .. } = outcome.ledger.times;
    let _ = writeln!(text, "took {wall}, {:.1} s of CPU time, {most}{memory} of memory{each}", cpu.seconds());
    text
}

/// The own ceiling of feedline.
pub(crate) fn ceiling(own: &Calibration) -> String {
    let au = own.au_percent.map_or("n/a".to_owned(), |au| format!("{au:.2} %"));
    let harness = Nanos::from_seconds(own.harness_seconds_per_step);
    let idle = 100.0 * own.cpu_headroom;
    format!("feedline's own ceiling on the null backend: AU {au}, {harness} per step, CPU {idle:.0} % idle")
}

#[cfg(test)]
mod tests {
    use engine::host::Host;
    use engine::meter::FakeClock;
    use engine::{Events, Solo, SplitFiles, Stop, TrainingSetup};
    use format::Arithmetic;
    use model::ledger::ObservedHost;
    use model::plan::{Placement, Plan, Request};
    use model::spec::{self, WorkloadSource};
    use model::verdict::{Case, judge};
    use store::{Null, Selection};

    use super::super::result::PeakMemory;
    use super::*;

    const WORKLOAD: &str = "
framework: pytorch
workflow: {evaluation: True}
dataset: {format: jpeg, num_files_train: 1200, num_files_eval: 40, record_length_bytes: 115600}
reader: {data_loader: pytorch, batch_size: 8, batch_size_eval: 4, read_threads: 2, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0.025}
evaluation: {eval_time: 0.01, epochs_between_evals: 2}
";

    #[test]
    fn a_verdict_has_the_colour_of_its_status() {
        for (status, expected) in [
            (Status::Valid, Tone::Good),
            (Status::Unverified, Tone::Doubtful),
            (Status::Invalid, Tone::Bad),
            (Status::Incomplete, Tone::Bad),
        ] {
            assert_eq!(tone(status), expected);
        }
    }

    /// On a fake clock and the null backend, every figure is a function of the plan.
    #[test]
    fn the_report_of_a_run_is_exact() {
        let spec = spec::read(WorkloadSource { name: "snapshot", text: WORKLOAD }, &[]).unwrap().spec;
        let format = format::plain("jpeg").unwrap();
        let request = Request {
            workload: "snapshot",
            ranks: 2,
            placement: Placement::even(2, 1, 1),
            host_memory_bytes: 1 << 34,
            cores: 2,
            store: &Selection::null().plan(),
            memory: None,
            entropy: 1,
            measure: Some(&Arithmetic(&*format)),
            listed: None,
        };
        let plan = Plan::resolve(&spec, &request, None).unwrap();
        let training = plan.trained().unwrap();
        let data = training.data.computed().unwrap();
        let [train, valid] = [&data.train, &data.valid].map(|split| data.files_of(split));
        let (clock, stop, events) = (FakeClock::default(), Stop::default(), Events::default());
        let files = SplitFiles { train: &train, valid: &valid };
        let rig = TrainingSetup {
            plan: training,
            world: &Solo::new(),
            format: &*format,
            store: &Null,
            pages: None,
            files,
            truth: None,
            checkpoints: None,
            clock: &clock,
            stop: &stop,
            events: &events,
        };
        let mut ledger = engine::train(&rig).unwrap();
        (ledger.times.wall, ledger.times.cpu) = (Nanos(3_800_000_000), Nanos(250_000_000));
        ledger.conditions.request("store", "null");
        ledger.conditions.observe("store", "null");
        ledger
            .conditions
            .hosts
            .insert("here".to_owned(), ObservedHost { readings: 1, ..ObservedHost::default() });
        let verdict = judge(&Case { plan: Some(&plan), ledger: &ledger });
        let outcome = Outcome {
            plan: &plan,
            spec: &spec,
            ledger: &ledger,
            verdict: &verdict,
            host: &Host::default(),
            warnings: &[],
            command: "feedline run".to_owned(),
            settling: Nanos(1_000_000),
            peak_rss_bytes: PeakMemory::new(|| Some(5 << 20)),
            between_failures: None,
        };
        assert_eq!(render(&outcome, Path::new("results/snapshot/now"), false), EXPECTED);
    }

    const EXPECTED: &str = "\
snapshot: 2 ranks x 2 readers, 1,200 files of jpeg, null backend, 2 epochs x 75 steps of 25.0 ms

training
 epoch    AU %  samples/s  MiB/s  clock MiB/s  wait  compute  barrier  harness       delivered
     1  100.00      640.0   70.6         71.5   0 s   1.88 s      0 s      0 s  1,200 of 1,200
     2  100.00      640.0   70.6         71.5   0 s   1.88 s      0 s      0 s  1,200 of 1,200
AU 100.00 % (sd 0.00), target 90 %: met
640 (sd 0.00) samples/s, 70.6 (sd 0.00) MiB/s
by the clock 649 (sd 0.00) samples/s, 71.5 (sd 0.00) MiB/s

 latency     p50  p90  p99  p99.9  max  count
 sample      0 s  0 s  0 s    0 s  0 s  2,400
 batch wait  0 s  0 s  0 s    0 s  0 s    300

evaluation
 epoch    AU %  samples/s  MiB/s  clock MiB/s  wait  compute  barrier  harness  delivered
     1  100.00      800.0   88.2        110.2   0 s  50.0 ms      0 s      0 s   40 of 40
AU 100.00 % (sd 0.00), target 90 %: met
800 (sd 0.00) samples/s, 88.2 (sd 0.00) MiB/s
by the clock 1000 (sd 0.00) samples/s, 110 (sd 0.00) MiB/s
by the clock the rate is 25 % higher: the clock stops at the last batch, and the last of the 5 steps then computes \
for 10.0 ms

 latency     p50  p90  p99  p99.9  max  count
 sample      0 s  0 s  0 s    0 s  0 s     40
 batch wait  0 s  0 s  0 s    0 s  0 s     10

verdict: unverified
  data-verified (not checkable): no bytes were read that could be compared
    use --store posix or another backend that reads files
  cache (not checkable): the null backend reads nothing: this run measures feedline's own ceiling
    to measure storage, use --store posix or another backend that reads files
took 3.80 s, 0.2 s of CPU time, 5.0 MiB of memory

result in results/snapshot/now
";
}
