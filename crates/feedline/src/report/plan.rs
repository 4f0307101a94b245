//! The report of `feedline plan`, as text and JSON.

use std::fmt::Write;

use model::checkpoint::{CheckpointPlan, Schedule};
use model::location::Location;
use model::order::{DealtFiles, Interleave, Unit};
use model::plan::{Data, Discipline, ListOrigin, Listed, Placement, Plan, ReadWindow, TrainingPlan};
use model::units::{Bytes, Nanos, counted, grouped, significant};
use model::warning::Warning;
use serde_json::{Map, Value, json};
use session::CountOrigin;

use super::checkpoints::geometry_lines;
use super::{layout, rate};
use crate::terminal;

/// The disk for the data set or, without training, for the checkpoints.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    pub place: Location,
    pub free_bytes: Option<u64>,
}

/// A plan, with the host and disk that it is for.
#[derive(Debug)]
pub(crate) struct PlanReport<'a> {
    pub plan: &'a Plan,
    pub placement: Placement,
    pub disk: DiskSpace,
    pub host_memory_bytes: u64,
    /// What limits the memory, if not the host itself.
    pub memory_limit: Option<&'a str>,
    /// The command that generates the data set, without a number of files.
    pub generate: &'a str,
    pub warnings: &'a [Warning],
    /// Where the number of training files comes from.
    pub count_origin: CountOrigin,
}

impl PlanReport<'_> {
    pub(crate) fn json(&self) -> Value {
        let mut value = serde_json::to_value(self.plan).unwrap_or_default();
        let Some(map) = value.as_object_mut() else { return value };
        map.insert("plan_digest".to_owned(), json!(self.plan.digest()));
        if self.is_spread() {
            map.insert("placement".to_owned(), json!(self.placement));
        }
        let DiskSpace { place, free_bytes } = &self.disk;
        let folder = place.to_string();
        let disk = match (&self.plan.training, &self.plan.checkpoint) {
            (Some(training), _) => {
                map.extend(self.training_keys(training));
                let needed_bytes = training.data.bytes();
                json!({ "folder": folder, "needed_bytes": needed_bytes, "free_bytes": free_bytes })
            }
            (None, checkpoint) => {
                map.extend(checkpoint.iter().flat_map(checkpoint_keys));
                json!({ "folder": folder, "free_bytes": free_bytes })
            }
        };
        map.insert("disk".to_owned(), disk);
        let warnings: Vec<String> = self.warnings.iter().map(ToString::to_string).collect();
        map.insert("warnings".to_owned(), json!(warnings));
        value
    }

    /// Whether there are several hosts or processes.
    fn is_spread(&self) -> bool {
        self.placement.hosts > 1 || self.placement.processes_per_host > 1
    }

    fn training_keys(&self, training: &TrainingPlan) -> Map<String, Value> {
        let shards = &training.train.shards;
        let keys = [
            ("host_memory_bytes", json!(self.host_memory_bytes)),
            ("host_memory_limit", json!(self.memory_limit)),
            ("num_files_train_from", json!(count_words(self.count_origin).0)),
            ("samples_per_epoch", json!(shards.samples)),
            ("steps_per_epoch", json!(shards.steps)),
            ("dropped_samples", json!(shards.dropped())),
        ];
        keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    pub(crate) fn text(&self) -> String {
        let mut text = self.part_texts();
        if !self.plan.compat.is_empty() {
            push_section(&mut text, "DLIO's behaviour", &[line("keys", &self.plan.compat.join(", "))]);
        }
        if let Some(training) = &self.plan.training {
            text.push_str(&self.generate_lines(training));
        }
        text
    }

    /// Training and checkpoints.
    fn part_texts(&self) -> String {
        let plan = self.plan;
        let (ranks, hosts) = (counted(plan.ranks, "rank"), counted(plan.hosts, "host"));
        match (&plan.training, &plan.checkpoint) {
            (Some(training), checkpoint) => {
                let mut text = format!("{}: {ranks} on {hosts}, {} backend\n", plan.workload, training.store);
                for (title, lines) in (TrainingSections { report: self, plan: training }).all() {
                    push_section(&mut text, title, &lines);
                }
                if let Some(checkpoint) = checkpoint {
                    push_section(&mut text, "checkpoint", &geometry_lines(checkpoint));
                }
                text
            }
            (None, Some(checkpoint)) => {
                let mut text = format!("{}: checkpoints of {ranks} on {hosts}\n", plan.workload);
                push_section(&mut text, "checkpoint", &self.checkpoint_lines(checkpoint));
                text
            }
            (None, None) => String::new(),
        }
    }

    /// The command that generates a data set of the required size, if the planned one is smaller.
    fn generate_lines(&self, training: &TrainingPlan) -> String {
        let rule = &training.estimate.mlperf;
        if rule.satisfied || training.data.listed().is_some() {
            return String::new();
        }
        let command = format!("  {} --set dataset.num_files_train={}", self.generate, rule.required_files);
        let command = layout::command(&command, terminal::columns());
        format!("\nto generate the required data set\n{command}\n")
    }

    /// The checkpoints of a run that does not train.
    fn checkpoint_lines(&self, plan: &CheckpointPlan) -> Vec<(String, String)> {
        let mut lines = geometry_lines(plan);
        if let Schedule::Alone { saves, restores, pause } = plan.schedule {
            let what = format!("{saves} saved, {restores} restored, each after a pause of {pause}");
            lines.push(line("checkpoints", &what));
            let all = Bytes(plan.geometry.total_bytes().saturating_mul(plan.at_once(saves)));
            let DiskSpace { place, free_bytes } = &self.disk;
            let free = free_bytes.map_or(String::new(), |free| format!(", {} free", Bytes(free)));
            lines.push(line("disk", &format!("{all} in {place}{free}")));
        }
        lines
    }
}

/// A data set that a workload writes without training on it.
#[derive(Debug)]
pub(crate) struct DataSetReport<'a> {
    pub workload: &'a str,
    pub format: &'a str,
    pub data: &'a Data,
    pub disk: DiskSpace,
}

impl DataSetReport<'_> {
    pub(crate) fn json(&self, warnings: &[Warning]) -> Value {
        let DiskSpace { place, free_bytes } = &self.disk;
        let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        json!({
            "workload": self.workload,
            "format": self.format,
            "data": self.data,
            "disk": {
                "folder": place.to_string(), "needed_bytes": self.data.bytes(), "free_bytes": free_bytes,
            },
            "warnings": warnings,
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{}: only a data set, because workflow.train is false; 'feedline generate' writes it\n",
            self.workload
        );
        push_section(
            &mut text,
            "data set",
            &data_lines(self.format, self.data, CountOrigin::Workload, &self.disk),
        );
        text
    }
}

/// Where the number of training files comes from: as a value in JSON, and as an addition to the number.
fn count_words(origin: CountOrigin) -> (&'static str, &'static str) {
    match origin {
        CountOrigin::Workload => ("workload", ""),
        CountOrigin::Manifest => ("manifest", ", as in the manifest of the data folder"),
        CountOrigin::Catalog => ("catalog", ", as in the catalog"),
        CountOrigin::Default => ("default", ", the default of dataset.num_files_train"),
    }
}

fn checkpoint_keys(plan: &CheckpointPlan) -> Map<String, Value> {
    let geometry = &plan.geometry;
    let rank_bytes: Vec<u64> = (0..geometry.ranks).map(|rank| geometry.rank_bytes(rank)).collect();
    let keys = [
        ("files", json!(geometry.file_count())),
        ("bytes", json!(geometry.total_bytes())),
        ("model_bytes", json!(geometry.model_total_bytes())),
        ("optimizer_bytes", json!(geometry.optimizer_total_bytes())),
        ("rank_bytes", json!(rank_bytes)),
    ];
    keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Latencies for which a plan shows the connections that requests need: near, in the same region, and far.
const LATENCIES_MS: [u32; 3] = [10, 20, 50];

/// The sections about training.
struct TrainingSections<'a> {
    report: &'a PlanReport<'a>,
    plan: &'a TrainingPlan,
}

type Section = (&'static str, Vec<(String, String)>);

impl TrainingSections<'_> {
    fn all(&self) -> Vec<Section> {
        let mut sections = vec![
            (
                "data set",
                data_lines(&self.plan.format, &self.plan.data, self.report.count_origin, &self.report.disk),
            ),
            ("epoch", self.epoch_lines()),
            ("loader", self.loader_lines()),
            ("demand", self.demand_lines()),
            ("memory per host", self.memory_lines()),
            ("MLPerf Storage's size rule", self.rule_lines()),
        ];
        if self.report.is_spread() {
            sections.insert(4, ("host with the most ranks", self.host_lines()));
        }
        sections
    }

    fn epoch_lines(&self) -> Vec<(String, String)> {
        let plan = self.plan;
        let shards = plan.train.shards;
        let share = shards.steps * shards.batch;
        let order = match plan.train.order.unit {
            Unit::None => "as listed".to_owned(),
            Unit::File => "files shuffled, samples of a file together".to_owned(),
            Unit::Group(rows) => format!("groups of {} rows shuffled", grouped(rows)),
            Unit::Sample => "samples shuffled".to_owned(),
        };
        let again =
            if plan.train.order.reshuffle { ", reshuffled each epoch" } else { ", the same each epoch" };
        let again = if plan.train.order.unit == Unit::None { "" } else { again };
        let time = Nanos::from_seconds(plan.estimate.compute_seconds).to_string();
        let dropped = match shards.dropped() {
            0 => "none".to_owned(),
            count => format!("{} samples at the end of each epoch", grouped(count)),
        };
        let of_what = match shards.dealt {
            None => "consecutive samples of the order".to_owned(),
            Some(DealtFiles { files_per_rank }) => {
                format!("samples of {} that are dealt in turn", counted(files_per_rank, "file"))
            }
        };
        vec![
            line("samples", &grouped(shards.samples)),
            line(
                "steps per epoch",
                &format!(
                    "{}, each {} ranks x batch {}",
                    grouped(shards.steps),
                    plan.ranks(),
                    grouped(shards.batch)
                ),
            ),
            line("dropped remainder", &dropped),
            line("shard of a rank", &format!("{} {of_what}", grouped(share))),
            line("order", &format!("{order}{again}")),
            line("epochs", &plan.epochs.to_string()),
            line("time if storage keeps up", &time),
        ]
    }

    /// How batches are fetched and prepared; docs/reference/loaders.md has diagrams.
    fn loader_lines(&self) -> Vec<(String, String)> {
        let (loader, batch) = (&self.plan.loader, self.plan.train.shards.batch);
        let takes = match (loader.discipline, loader.chunk_samples >= batch) {
            (Discipline::Synthetic, _) => "nothing is read".to_owned(),
            (_, true) => "whole batches, one sample after another".to_owned(),
            (_, false) => format!("{} at a time", counted(loader.chunk_samples, "sample")),
        };
        let turns = if loader.in_turn { ", in turn" } else { ", when it is free" };
        let window = match loader.window {
            ReadWindow::Open => String::new(),
            ReadWindow::Chunks(chunks) => format!("; at most {chunks} ahead of the oldest missing one"),
            ReadWindow::Batch => "; one batch at a time".to_owned(),
        };
        let name = format!("{:?}", loader.discipline).to_lowercase();
        let mut lines = vec![
            line("discipline", &name),
            line("readers per rank", &loader.readers_per_rank.to_string()),
            line("a reader takes", &format!("{takes}{turns}{window}")),
            line("batches ahead per rank", &loader.prefetch_batches.to_string()),
            line("delivery", if loader.ordered { "in order" } else { "as batches become ready" }),
            line("reads of at most", &Bytes(loader.transfer_bytes).to_string()),
            line(
                match self.report.placement.processes_per_host {
                    1 => "threads per host",
                    _ => "threads per process",
                },
                &loader.threads.to_string(),
            ),
        ];
        if let Some(cache) = self.plan.cache {
            lines.push(line("page cache", &cache.in_words()));
        }
        let Interleave { cycle, block } = self.plan.train.interleave;
        if cycle > 1 {
            let what = format!("{cycle} interleaved, {} from each in turn", counted(block, "sample"));
            lines.push(line("files", &what));
        }
        if loader.lead_samples > 0 {
            let what =
                format!("{} samples are read before the first is delivered", grouped(loader.lead_samples));
            lines.push(line("shuffle buffer", &what));
        }
        if loader.preprocess.works() {
            let each = Nanos::from_seconds(loader.preprocess.time.mean());
            let threads = loader.preprocess.threads_per_rank;
            let place = threads.map_or("in each reader".to_owned(), |n| format!("{n} at once per rank"));
            lines.push(line(
                "preprocessing",
                &format!("{}, {each} per sample, {place}", loader.preprocess.kind.name()),
            ));
        }
        if let Some(rate) = self.plan.device.copy_bytes_per_second {
            let how = if self.plan.device.overlapped { "while it computes" } else { "between its steps" };
            lines.push(line("copy to the accelerator", &format!("{} GB/s, {how}", significant(rate / 1e9))));
        }
        lines
    }

    fn demand_lines(&self) -> Vec<(String, String)> {
        let Some(demand) = self.plan.estimate.demand else {
            let mut lines = vec![line("per accelerator", "unlimited: steps have no compute time")];
            lines.extend(self.request_lines());
            return lines;
        };
        let all = self.plan.ranks() as f64;
        let mut lines = vec![
            line(
                "per accelerator",
                &format!("{}, {} files/s", rate(demand.mib_per_second), significant(demand.files_per_second)),
            ),
            line(
                "all accelerators",
                &format!(
                    "{}, {} files/s",
                    rate(demand.mib_per_second * all),
                    significant(demand.files_per_second * all)
                ),
            ),
            line("AU target", &format!("{:.0} %", 100.0 * self.plan.metric.au_target)),
        ];
        lines.extend(self.request_lines());
        lines
    }

    /// Requests to an object store, and the connections that they need.
    fn request_lines(&self) -> Vec<(String, String)> {
        let Some(requests) = self.plan.estimate.requests else { return Vec::new() };
        let ranks = self.plan.ranks();
        let each = format!("{} per sample", significant(requests.per_sample));
        let rate = requests.per_second.map(|rate| rate * ranks as f64);
        let rate =
            rate.map_or(String::new(), |rate| format!(", {}/s for all accelerators", significant(rate)));
        let mut lines = vec![line("requests", &format!("{each}{rate}"))];
        let needed: Vec<String> = LATENCIES_MS
            .iter()
            .filter_map(|ms| {
                let needed = requests.connections(ranks, f64::from(*ms) / 1000.0)?;
                Some(format!("{} at {ms} ms", grouped(needed)))
            })
            .collect();
        if !needed.is_empty() {
            lines.push(line("connections needed", &format!("{} per request", needed.join(", "))));
        }
        lines.push(line(
            "requests in flight",
            &format!("at most {} per host", grouped(requests.most_in_flight)),
        ));
        lines
    }

    /// What the host with the most ranks has to do, and the processes on it.
    fn host_lines(&self) -> Vec<(String, String)> {
        let Placement { processes_per_host, ranks_per_host, ranks_per_process, .. } = self.report.placement;
        let readers = ranks_per_host.saturating_mul(self.plan.loader.readers_per_rank);
        let mut lines = vec![
            line("ranks", &grouped(ranks_per_host)),
            line("readers", &grouped(readers)),
            line("open files", &format!("at most {}", grouped(readers))),
        ];
        if let Some(demand) = self.plan.estimate.demand {
            lines.push(line("reads", &rate(demand.mib_per_second * ranks_per_host as f64)));
        }
        let most =
            format!("{} of at most {}", grouped(processes_per_host), counted(ranks_per_process, "rank"));
        lines.push(line("processes", &most));
        lines
    }

    fn memory_lines(&self) -> Vec<(String, String)> {
        let estimate = &self.plan.estimate;
        let mut lines: Vec<_> =
            estimate.memory.iter().map(|term| line(&term.what, &Bytes(term.bytes).to_string())).collect();
        lines.push(line(
            "total",
            &format!("{} of {}", Bytes(estimate.memory_bytes), Bytes(self.report.host_memory_bytes)),
        ));
        lines.extend(self.report.memory_limit.map(|limit| line("limit", limit)));
        lines
    }

    fn rule_lines(&self) -> Vec<(String, String)> {
        let rule = &self.plan.estimate.mlperf;
        let satisfied = if rule.satisfied { "satisfied" } else { "not satisfied" };
        vec![
            line("files for 500 steps per rank", &grouped(rule.steps_floor_files)),
            line("files for 5 x memory of all hosts", &grouped(rule.memory_floor_files)),
            line(
                "required",
                &format!(
                    "{} files, {}: {satisfied}",
                    grouped(rule.required_files),
                    Bytes(rule.required_bytes)
                ),
            ),
        ]
    }
}

fn data_lines(format: &str, data: &Data, counted_by: CountOrigin, disk: &DiskSpace) -> Vec<(String, String)> {
    let exact = if data.exact {
        ""
    } else {
        " at most: the size of compressed files is only known after they are written"
    };
    let mut lines = vec![
        line("format", format),
        line(
            "train files",
            &format!(
                "{} x {} samples{}",
                grouped(data.train.files),
                grouped(data.train.samples_per_file),
                count_words(counted_by).1
            ),
        ),
        line("train bytes", &format!("{} ({}){exact}", Bytes(data.train.bytes), grouped(data.train.bytes))),
        names_line(data),
    ];
    // Shown only if it differs from the size of the data set.
    if (data.read_ratio - 1.0).abs() > 0.01 {
        let read = Bytes((data.train.bytes as f64 * data.read_ratio) as u64);
        lines.push(line("read per epoch", &format!("{read}, {:.2} x the stored bytes", data.read_ratio)));
    }
    if data.valid.files > 0 {
        let valid = format!("{}, {}", grouped(data.valid.files), Bytes(data.valid.bytes));
        lines.push(line("validation files", &valid));
    }
    let (DiskSpace { place, free_bytes }, needed) = (disk, data.bytes());
    let free = free_bytes.map_or("unknown".to_owned(), |free| Bytes(free).to_string());
    let enough = if free_bytes.is_some_and(|free| free < needed) { ": too small" } else { "" };
    let disk = format!("{}, {free} at {place}{enough}", Bytes(needed));
    lines.push(line("disk needed, free", &disk));
    lines
}

fn names_line(data: &Data) -> (String, String) {
    let train = &data.train;
    match data.listed() {
        Some(Listed { origin: ListOrigin::Catalog, digest, .. }) => {
            line("names and sizes", &format!("from a catalog, {digest}"))
        }
        Some(Listed { origin: ListOrigin::SizesAsFound, .. }) => {
            let names = format!("{}, ...: not generated by feedline", train.names.of(0));
            line("names", &format!("{names}; sizes are nominal, a run takes them as found"))
        }
        None => {
            let last = train.names.of(train.files.saturating_sub(1));
            line("first and last name", &format!("{}, {last}", train.names.of(0)))
        }
    }
}

fn push_section(text: &mut String, title: &str, lines: &[(String, String)]) {
    let _ = write!(text, "\n{title}\n{}", layout::definitions(lines, 40, terminal::columns()));
}

fn line(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}
