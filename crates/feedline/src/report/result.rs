//! `summary.json`: DLIO's keys, in DLIO's order and by DLIO's formulas, and a `feedline` object beside them with what
//! was really seen and what it is worth.

use std::collections::BTreeMap;

use engine::host::Host;
use model::ledger::{Checked, Ledger, Phase};
use model::metrics::{Figures, Spread};
use model::plan::Plan;
use model::spec::Spec;
use model::units::Nanos;
use model::verdict::{Status, Verdict, expected_digest};
use model::warning::Warning;
use serde_json::{Map, Value, json};

use super::checkpoints::CheckpointReport;

/// When the run was and how much it used.
#[derive(Clone, Debug)]
pub struct Times {
    pub start: String,
    pub end: String,
    pub span: Nanos,
    /// From the start of the command to the first batch, without generation and calibration.
    pub first_batch: Option<Nanos>,
    pub cpu_seconds: f64,
}

/// A run that is over, with all that is known about it.
pub struct Outcome<'a> {
    pub plan: &'a Plan,
    pub spec: &'a Spec,
    pub ledger: &'a Ledger,
    pub verdict: &'a Verdict,
    pub host: &'a Host,
    pub warnings: &'a [Warning],
    pub times: Times,
    pub peak_rss_bytes: Option<u64>,
    /// Mean time between failures of the job, if advice on checkpoints is wanted.
    pub between_failures: Option<Nanos>,
}

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

impl Outcome<'_> {
    pub fn figures(&self, phase: Phase) -> Option<Figures> {
        Figures::new(self.plan, self.ledger, phase)
    }

    /// Whether the target was met; a run that did not reach its end has not shown it either way.
    pub fn meets(&self, figures: &Figures) -> Option<bool> {
        let complete = self.verdict.status != Status::Incomplete;
        figures.meets(self.plan.metric.au_target).filter(|_| complete)
    }

    /// The content of `summary.json`.
    pub fn summary(&self) -> Value {
        let Plan { ranks, hosts, data, metric, .. } = self.plan;
        let described = Described {
            times: &self.times,
            host: self.host,
            ranks: *ranks,
            hosts: *hosts,
            files_train: data.train.files,
            files_eval: data.valid.files,
            samples_per_file: data.train.samples_per_file,
            bytes: data.train.samples() as f64 * metric.record_length_bytes,
            epochs: self.ledger.epochs(Phase::Train).len(),
        };
        described.summary(&self.metric(), &self.feedline())
    }

    fn metric(&self) -> Value {
        let mut metric = Map::new();
        for (phase, prefix) in [(Phase::Train, "train"), (Phase::Eval, "eval")] {
            if let Some(figures) = self.figures(phase) {
                self.dlio_metric(prefix, &figures, &mut metric);
            }
        }
        if let Some(checkpoints) = self.checkpoints() {
            checkpoints.dlio_metric(&mut metric);
        }
        Value::Object(metric)
    }

    /// What is known of the run's checkpoints, if it was to take any.
    pub fn checkpoints(&self) -> Option<CheckpointReport<'_>> {
        let seen = &self.ledger.checkpoints;
        let step = Nanos::from_seconds(self.plan.train.compute.mean());
        Some(CheckpointReport {
            plan: self.plan.checkpoint.as_ref()?,
            seen,
            between_failures: self.between_failures,
            step: Some(seen.steps_apart.mean().unwrap_or(step)),
        })
    }

    /// DLIO's metric keys for one phase. Its MB are MiB and its bytes per sample nominal; the real
    /// ones are in `feedline.epochs`.
    fn dlio_metric(&self, prefix: &str, figures: &Figures, metric: &mut Map<String, Value>) {
        let au: Vec<Option<f64>> = figures.epochs.iter().map(|epoch| epoch.au_percent).collect();
        let rates: Vec<Option<f64>> = figures.epochs.iter().map(|epoch| epoch.samples_per_second).collect();
        let met = self.meets(figures);
        let nominal = self.plan.metric.record_length_bytes / MIB;
        let mut put = |key: &str, value: Value| metric.insert(format!("{prefix}_{key}"), value);
        put("au_percentage", json!(au));
        put("au_mean_percentage", json!(figures.au_percent.map(|au| au.mean)));
        put("au_meet_expectation", json!(met.map(|met| if met { "success" } else { "fail" })));
        put("au_stdev_percentage", json!(figures.au_percent.map(|au| au.stdev)));
        put("throughput_samples_per_second", json!(rates));
        let rate = |pick: fn(Spread) -> f64| json!(figures.samples_per_second.map(pick));
        put("throughput_mean_samples_per_second", rate(|rate| rate.mean));
        put("throughput_stdev_samples_per_second", rate(|rate| rate.stdev));
        let bytes =
            |pick: fn(Spread) -> f64| json!(figures.samples_per_second.map(|rate| pick(rate) * nominal));
        put("io_mean_MB_per_second", bytes(|rate| rate.mean));
        put("io_stdev_MB_per_second", bytes(|rate| rate.stdev));
    }

    fn feedline(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "workload": self.plan.workload,
            "plan_digest": self.plan.digest(),
            "verdict": self.verdict,
            "store": observed_store(&self.plan.store, self.ledger),
            "simulated": self.plan.is_simulated(),
            "loader": self.plan.loader,
            "memory": {
                "peak_rss_bytes": self.peak_rss_bytes,
                "planned_bytes": self.plan.estimate.memory_bytes,
            },
            "errors": self.ledger.errors(),
            "calibration": self.ledger.calibration,
            "first_batch_seconds": self.times.first_batch.map(Nanos::seconds),
            "limits": self.host.limits,
            "cpu_seconds": self.times.cpu_seconds,
            "wall_seconds": self.times.span.seconds(),
            "warnings": self.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "latency": self.ledger.latencies(Phase::Train).summaries(),
            "most_in_flight": self.most_in_flight(),
            "checked": self.checked(),
            "epochs": self.epochs(Phase::Train),
            "eval_epochs": self.epochs(Phase::Eval),
            "checkpoint": self.checkpoints().map(|checkpoints| checkpoints.json()),
        })
    }

    /// What was compared with what the files should hold, over all epochs, and what that took.
    fn checked(&self) -> Value {
        let (mut sum, mut cpu) = (Checked::default(), Nanos::ZERO);
        for phase in [Phase::Train, Phase::Eval] {
            for epoch in self.ledger.epochs(phase) {
                let node = self.ledger.node_total(epoch, phase);
                sum += node.checked;
                cpu += node.cpu_ns;
            }
        }
        json!({
            "verify": self.plan.verify,
            "fetches": sum.fetches,
            "unknown_fetches": sum.unknown,
            "foreign_fetches": sum.foreign,
            "wrong_fetches": sum.wrong,
            "bytes": sum.bytes,
            "seconds": sum.ns.seconds(),
            "cpu_share_most": (cpu > Nanos::ZERO).then(|| sum.ns.min(cpu).seconds() / cpu.seconds()),
        })
    }

    /// Most fetches of training that were in flight at once.
    fn most_in_flight(&self) -> u64 {
        let epochs = self.ledger.epochs(Phase::Train).into_iter();
        epochs.map(|epoch| self.ledger.node_total(epoch, Phase::Train).most_in_flight).max().unwrap_or(0)
    }

    /// The figures of each epoch, and beside what was delivered what the plan deals out: equal if each sample came
    /// once.
    fn epochs(&self, phase: Phase) -> Vec<Value> {
        let epochs = self.figures(phase).map_or_else(Vec::new, |figures| figures.epochs);
        let planned = self.plan.phase(phase);
        let with_plan = epochs.into_iter().map(|figures| {
            let finished = figures.samples_delivered + figures.samples_failed == figures.samples_planned;
            let digest = planned.filter(|_| finished).map(|planned| expected_digest(planned, figures.epoch));
            let mut value = json!(figures);
            value["digest_planned"] = json!(digest);
            value
        });
        with_plan.collect()
    }
}

/// What DLIO's summary says of a run beside its figures.
pub struct Described<'a> {
    pub times: &'a Times,
    pub host: &'a Host,
    pub ranks: u64,
    pub hosts: u64,
    pub files_train: u64,
    pub files_eval: u64,
    pub samples_per_file: u64,
    /// Nominal size of the data set.
    pub bytes: f64,
    pub epochs: usize,
}

impl Described<'_> {
    /// DLIO's keys in DLIO's order, and feedline's own object behind them.
    pub fn summary(&self, metric: &Value, feedline: &Value) -> Value {
        let memory = self.host.memory_bytes as f64;
        json!({
            "start": self.times.start,
            "num_accelerators": self.ranks,
            "num_hosts": self.hosts,
            "hostname": self.host.name,
            "metric": metric,
            "num_files_train": self.files_train,
            "num_files_eval": self.files_eval,
            "num_samples_per_file": self.samples_per_file,
            "host_cpu_count": [self.host.cores],
            "host_processor_name": "",
            "potential_caching": [u8::from(memory > self.bytes)],
            "host_cpuinfo": map(&self.host.cpuinfo),
            "host_meminfo": map(&self.host.meminfo),
            "host_memory_GB": [memory / GIB],
            "data_size_per_host_GB": self.bytes / GIB,
            "epochs": self.epochs,
            "end": self.times.end,
            "feedline": feedline,
        })
    }
}

/// What the store was asked to be and what it turned out to be.
pub fn observed_store(requested: &str, ledger: &Ledger) -> Value {
    let mut facts: BTreeMap<&str, String> = BTreeMap::new();
    for (property, mode) in &ledger.conditions.modes {
        let values: Vec<&str> = mode.observed.iter().map(String::as_str).collect();
        facts.insert(property, values.join(", "));
    }
    let observed = facts.remove("store");
    json!({ "requested": requested, "observed": observed, "facts": facts })
}

fn map(pairs: &[(String, String)]) -> Value {
    Value::Object(pairs.iter().map(|(key, value)| (key.clone(), json!(value))).collect())
}
