//! `summary.json`: DLIO's keys, in DLIO's order and by DLIO's formulas, and a `feedline` object with the observed
//! figures and the verdict.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use engine::host::Host;
use model::digest::Digest;
use model::document;
use model::histogram::Quantiles;
use model::ledger::{Calibration, CheckedFetches, Errors, Ledger, ObservedMember, Phase};
use model::metrics::{self, EpochFigures, Figures, Spread};
use model::plan::{LoaderPlan, Plan, TrainingPlan};
use model::spec::{Semantics, Spec};
use model::units::Nanos;
use model::verdict::{Status, Verdict, expected_digest};
use model::warning::Warning;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::checkpoints::CheckpointReport;
use super::nodes::NodesReport;
use crate::version;

/// The peak resident memory of the process. It is read when it is first needed: when the summary is written, after the
/// larger files of the result.
pub(crate) type PeakMemory = LazyCell<Option<u64>>;

/// A finished run, with all data for its report.
pub(crate) struct Outcome<'a> {
    pub plan: &'a Plan,
    pub spec: &'a Spec,
    pub ledger: &'a Ledger,
    pub verdict: &'a Verdict,
    pub host: &'a Host,
    pub warnings: &'a [Warning],
    /// The command as the user typed it, without secrets.
    pub command: String,
    /// From the start of the command to the end of settling; part of the time to the first batch.
    pub settling: Nanos,
    pub peak_rss_bytes: PeakMemory,
    /// Mean time between failures of the job, if advice on checkpoints is requested.
    pub between_failures: Option<Nanos>,
}

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

impl Outcome<'_> {
    pub(crate) fn figures(&self, phase: Phase) -> Option<Figures> {
        Figures::new(self.ledger, phase)
    }

    /// The figures of each epoch.
    pub(crate) fn epochs(&self, phase: Phase) -> impl Iterator<Item = EpochFigures> {
        metrics::epochs(self.ledger, phase)
    }

    /// Whether the target was met; `None` for an incomplete run.
    pub(crate) fn meets(&self, training: &TrainingPlan, figures: &Figures) -> Option<bool> {
        let complete = self.verdict.status != Status::Incomplete;
        figures.meets(training.metric.au_target).filter(|_| complete)
    }

    /// The nodes of a run with several processes.
    pub(crate) fn nodes(&self) -> Option<NodesReport<'_>> {
        NodesReport::new(self.ledger)
    }

    /// The peak memory of this process, or of the one that used most.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        (*self.peak_rss_bytes).max(self.nodes().and_then(|nodes| nodes.peak_rss_bytes()))
    }

    /// The content of `summary.json`: DLIO's keys in DLIO's order, then the `feedline` object.
    pub(crate) fn summary(&self) -> impl Serialize {
        self.summary_with(self.metric(), self.peak_memory())
    }

    /// The same for the page, which is made before the peak memory is known and does not show it.
    pub(crate) fn page_summary(&self) -> impl Serialize {
        self.summary_with(self.metric(), None)
    }

    /// The same for the leaf of a DLIO run, whose readers take every metric for a number, a text or a list of numbers:
    /// what was not measured has no key.
    pub(crate) fn leaf_summary(&self) -> impl Serialize {
        self.summary_with(measured(self.metric()), self.peak_memory())
    }

    fn summary_with(&self, metric: Map<String, Value>, peak_memory: Option<u64>) -> Summary<'_> {
        let (host, set, hosts) = (self.host, DataSetSection::new(self.plan, self.spec), self.hosts());
        let data_of = |host: &HostSection| set.bytes_of(host.ranks, self.plan.ranks);
        Summary {
            start: &self.ledger.times.start,
            num_accelerators: self.plan.ranks,
            num_hosts: if hosts.len() > 1 { hosts.len() as u64 } else { self.plan.hosts },
            hostname: &host.name,
            metric,
            num_files_train: set.files_train,
            num_files_eval: set.files_eval,
            num_samples_per_file: set.samples_per_file,
            host_cpu_count: hosts.iter().map(|host| host.cores).collect(),
            host_processor_name: "",
            potential_caching: hosts.iter().map(|host| u8::from(host.memory > data_of(host))).collect(),
            host_cpuinfo: map(&host.cpuinfo),
            host_meminfo: map(&host.meminfo),
            host_memory_gib: hosts.iter().map(|host| host.memory / GIB).collect(),
            data_size_per_host_gib: hosts.first().map_or(set.bytes, data_of) / GIB,
            epochs: self.ledger.epochs(Phase::Train).len(),
            end: &self.ledger.times.end,
            feedline: self.feedline(peak_memory),
        }
    }

    /// The hosts of the run, in the order of their first processes.
    fn hosts(&self) -> Vec<HostSection> {
        let mut hosts: BTreeMap<u64, HostSection> = BTreeMap::new();
        for ObservedMember { node, ranks, cores, memory_bytes, .. } in self.ledger.conditions.members.values()
        {
            let host = hosts.entry(*node).or_default();
            host.ranks += ranks;
            host.cores = host.cores.max(*cores);
            host.memory = host.memory.max(*memory_bytes as f64);
        }
        if hosts.is_empty() {
            let Host { cores, memory_bytes, .. } = *self.host;
            return vec![HostSection { ranks: self.plan.ranks, cores, memory: memory_bytes as f64 }];
        }
        hosts.into_values().collect()
    }

    /// The metrics under DLIO's names.
    pub(crate) fn metric(&self) -> Map<String, Value> {
        let mut metric = Map::new();
        for (phase, prefix) in [(Phase::Train, "train"), (Phase::Eval, "eval")] {
            let figures = self.figures(phase).map(|figures| self.as_dlio_divides(phase, figures));
            if let Some((training, figures)) = self.plan.training.as_ref().zip(figures) {
                self.dlio_metric(prefix, training, &figures, &mut metric);
            }
        }
        if let Some(checkpoints) = self.checkpoints() {
            checkpoints.dlio_metric(&mut metric);
        }
        metric
    }

    /// The figures under DLIO's names. DLIO divides those of evaluation by the number of ranks once too often.
    fn as_dlio_divides(&self, phase: Phase, figures: Figures) -> Figures {
        match (phase, self.spec.compat.eval_figures) {
            (Phase::Eval, Semantics::Dlio) => figures.times(1.0 / self.plan.ranks.max(1) as f64),
            _ => figures,
        }
    }

    /// The report on the run's checkpoints, if the plan has any.
    pub(crate) fn checkpoints(&self) -> Option<CheckpointReport<'_>> {
        let seen = &self.ledger.checkpoints;
        let step = self.plan.training.as_ref().map(|training| {
            let planned = Nanos::from_seconds(training.train.compute.mean());
            seen.steps_apart.mean().unwrap_or(planned)
        });
        let (plan, between_failures) = (self.plan.checkpoint.as_ref()?, self.between_failures);
        Some(CheckpointReport { plan, seen, between_failures, step })
    }

    /// DLIO's metric keys for one phase. Its MB are MiB, and its bytes per sample are nominal; `feedline.epochs` has
    /// the real ones.
    fn dlio_metric(
        &self,
        prefix: &str,
        training: &TrainingPlan,
        figures: &Figures,
        metric: &mut Map<String, Value>,
    ) {
        let au: Vec<Option<f64>> = figures.epochs.iter().map(|epoch| epoch.au_percent).collect();
        let rates: Vec<Option<f64>> = figures.epochs.iter().map(|epoch| epoch.samples_per_second).collect();
        let met = self.meets(training, figures);
        let nominal = training.metric.record_length_bytes / MIB;
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

    fn feedline(&self, peak_memory: Option<u64>) -> FeedlineObject<'_> {
        let training = self.plan.training.as_ref();
        FeedlineObject {
            schema_version: document::SUMMARY.version,
            version: env!("CARGO_PKG_VERSION"),
            commit: version::COMMIT,
            workload: &self.plan.workload,
            command: &self.command,
            plan_digest: self.plan.digest(),
            compat: &self.plan.compat,
            verdict: self.verdict,
            store: observed_store(self.plan.store_name(), self.ledger),
            simulated: self.plan.is_simulated(),
            loader: training.map(|training| training.loader),
            memory: json!({
                "peak_rss_bytes": peak_memory,
                "planned_bytes": self.plan.memory_bytes(),
            }),
            instrument: training.map(|_| Instrument {
                errors: self.ledger.errors(),
                calibration: self.ledger.calibration,
                first_batch_seconds: self.first_batch().map(Nanos::seconds),
            }),
            limits: &self.host.limits,
            cpu_seconds: self.ledger.times.cpu.seconds(),
            wall_seconds: self.ledger.times.wall.seconds(),
            warnings: self.warnings.iter().map(ToString::to_string).collect(),
            trained: training.map(|training| TrainingSection {
                latency: self.ledger.latencies(Phase::Train).summaries(),
                in_flight_bound: self.in_flight_bound(),
                checked: self.checked(training),
                clock_difference: self.clock_difference(Phase::Train),
                eval_clock_difference: self.clock_difference(Phase::Eval),
                epochs: Epochs { outcome: self, training, phase: Phase::Train },
                eval_epochs: Epochs { outcome: self, training, phase: Phase::Eval },
            }),
            cluster: self.nodes().map(|nodes| nodes.json()),
            checkpoint: self.checkpoints().map(|checkpoints| checkpoints.json()),
        }
    }

    /// The time from the start of the command to the first batch, without generation and calibration.
    fn first_batch(&self) -> Option<Nanos> {
        Some(self.settling + self.ledger.first_batch_ns?)
    }

    /// Why the rate by the clock differs from the rate in the metric window, if they differ by more than a few per
    /// cent.
    pub(crate) fn clock_difference(&self, phase: Phase) -> Option<String> {
        metrics::clock_difference(self.plan.training.as_ref(), self.ledger, phase)
    }

    /// How much data was compared with the expected content over all epochs, and the time this took.
    fn checked(&self, training: &TrainingPlan) -> Value {
        let (mut sum, mut cpu) = (CheckedFetches::default(), Nanos::ZERO);
        for phase in [Phase::Train, Phase::Eval] {
            for epoch in self.ledger.epochs(phase) {
                let node = self.ledger.node_total(epoch, phase);
                sum += node.checked;
                cpu += node.cpu_ns;
            }
        }
        json!({
            "verify": training.verify,
            "fetches": sum.fetches,
            "unknown_fetches": sum.unknown,
            "foreign_fetches": sum.foreign,
            "wrong_fetches": sum.wrong,
            "bytes": sum.bytes,
            "seconds": sum.ns.seconds(),
            "cpu_share_most": (cpu > Nanos::ZERO).then(|| sum.ns.min(cpu).seconds() / cpu.seconds()),
        })
    }

    /// The upper bound on the fetches in flight during training.
    fn in_flight_bound(&self) -> u64 {
        let epochs = self.ledger.epochs(Phase::Train).into_iter();
        epochs.map(|epoch| self.ledger.node_total(epoch, Phase::Train).in_flight_bound).max().unwrap_or(0)
    }
}

/// A host in DLIO's terms.
#[derive(Default)]
struct HostSection {
    ranks: u64,
    cores: u64,
    memory: f64,
}

/// The data set in DLIO's terms.
pub(crate) struct DataSetSection {
    files_train: u64,
    files_eval: u64,
    samples_per_file: u64,
    /// Nominal size.
    bytes: f64,
}

impl DataSetSection {
    /// The data set as DLIO describes it, even if the run does not read it.
    pub(crate) fn new(plan: &Plan, spec: &Spec) -> DataSetSection {
        let Some(TrainingPlan { data, metric, .. }) = &plan.training else {
            let set = &spec.dataset;
            let samples = set.num_files_train.saturating_mul(set.num_samples_per_file);
            return DataSetSection {
                files_train: set.num_files_train,
                files_eval: set.num_files_eval,
                samples_per_file: set.num_samples_per_file,
                bytes: samples as f64 * set.record_length_bytes,
            };
        };
        DataSetSection {
            files_train: data.train.files,
            files_eval: data.valid.files,
            samples_per_file: data.train.samples_per_file,
            bytes: data.train.samples() as f64 * metric.record_length_bytes,
        }
    }

    /// The share of this many of a run's ranks.
    pub(crate) fn bytes_of(&self, ranks: u64, of: u64) -> f64 {
        self.bytes * (ranks as f64 / of.max(1) as f64)
    }
}

/// Metrics without those that were not measured.
fn measured(metric: Map<String, Value>) -> Map<String, Value> {
    let values = metric.into_iter().map(|(key, value)| match value {
        Value::Array(list) => {
            (key, Value::Array(list.into_iter().filter(|value| !value.is_null()).collect()))
        }
        value => (key, value),
    });
    let is_measured =
        |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    values.filter(|(_, value)| is_measured(value)).collect()
}

/// The `feedline` object. A run that does not train has no keys of training.
#[derive(Serialize)]
struct FeedlineObject<'a> {
    schema_version: u32,
    version: &'static str,
    commit: &'static str,
    workload: &'a str,
    command: &'a str,
    plan_digest: String,
    /// The keys of `compat` with DLIO's behaviour.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    compat: &'a [String],
    verdict: &'a Verdict,
    store: Value,
    simulated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    loader: Option<LoaderPlan>,
    memory: Value,
    #[serde(flatten)]
    instrument: Option<Instrument>,
    limits: &'a BTreeSet<String>,
    cpu_seconds: f64,
    wall_seconds: f64,
    warnings: Vec<String>,
    #[serde(flatten)]
    trained: Option<TrainingSection<'a>>,
    /// Keys of a run with several processes.
    #[serde(flatten)]
    cluster: Option<Map<String, Value>>,
    checkpoint: Option<Value>,
}

/// Errors during training, and what feedline itself can do.
#[derive(Serialize)]
struct Instrument {
    errors: Errors,
    calibration: Option<Calibration>,
    first_batch_seconds: Option<f64>,
}

/// The observations of training.
#[derive(Serialize)]
struct TrainingSection<'a> {
    latency: BTreeMap<String, Quantiles>,
    in_flight_bound: u64,
    checked: Value,
    clock_difference: Option<String>,
    eval_clock_difference: Option<String>,
    epochs: Epochs<'a>,
    eval_epochs: Epochs<'a>,
}

/// The epochs of a phase, computed one at a time while they are written.
struct Epochs<'a> {
    outcome: &'a Outcome<'a>,
    training: &'a TrainingPlan,
    phase: Phase,
}

/// The figures of an epoch, and the digest of the planned samples, which equals that of the delivered samples if each
/// sample was delivered exactly once.
#[derive(Serialize)]
struct EpochSection {
    #[serde(flatten)]
    figures: EpochFigures,
    digest_planned: Option<Digest>,
}

impl Serialize for Epochs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let planned = self.training.phase(self.phase);
        serializer.collect_seq(self.outcome.epochs(self.phase).map(|figures| {
            let finished = figures.samples_delivered + figures.samples_failed == figures.samples_planned;
            let planned = planned.filter(|_| finished);
            let digest_planned = planned.map(|planned| expected_digest(planned, figures.epoch));
            EpochSection { figures, digest_planned }
        }))
    }
}

/// `summary.json`.
#[derive(Serialize)]
struct Summary<'a> {
    start: &'a str,
    num_accelerators: u64,
    num_hosts: u64,
    hostname: &'a str,
    metric: Map<String, Value>,
    num_files_train: u64,
    num_files_eval: u64,
    num_samples_per_file: u64,
    host_cpu_count: Vec<u64>,
    host_processor_name: &'static str,
    potential_caching: Vec<u8>,
    host_cpuinfo: Value,
    host_meminfo: Value,
    #[serde(rename = "host_memory_GB")]
    host_memory_gib: Vec<f64>,
    #[serde(rename = "data_size_per_host_GB")]
    data_size_per_host_gib: f64,
    epochs: usize,
    end: &'a str,
    feedline: FeedlineObject<'a>,
}

/// The requested I/O backend and the observed facts about it.
fn observed_store(requested: &str, ledger: &Ledger) -> Value {
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
