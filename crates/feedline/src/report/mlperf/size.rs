//! The report of `feedline mlperf size`.

use model::checkpoint::Geometry;
use model::mlperf::{BindingFloor, Edition, LlamaModel, LlamaSize, TrainingSize};
use model::units::{Bytes, counted, grouped, significant};
use serde_json::{Value, json};

use crate::report::layout;
use crate::terminal;

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) struct SizeScale {
    pub workload: String,
    pub edition: Edition,
    pub ranks: u64,
    pub hosts: u64,
    pub host_memory_bytes: u64,
}

impl SizeScale {
    fn heading(&self, rank: &str) -> String {
        let each = if self.hosts == 1 { "" } else { " each" };
        super::super::fitted(&format!(
            "{}: {} on {} with {} of memory{each}, MLPerf Storage {}\n",
            self.workload,
            counted(self.ranks, rank),
            counted(self.hosts, "host"),
            Bytes(self.host_memory_bytes),
            self.edition,
        ))
    }

    fn json(&self, of: &str, size: &Value, commands: &Value) -> Value {
        json!({
            "workload": self.workload,
            "edition": self.edition,
            "ranks": self.ranks,
            "hosts": self.hosts,
            "host_memory_bytes": self.host_memory_bytes,
            of: size,
            "commands": commands,
        })
    }
}

const GIB: f64 = (1u64 << 30) as f64;

/// In GiB, the unit that MLPerf's documents call GB.
fn gib(bytes: f64) -> String {
    let value = bytes / GIB;
    match value < 1000.0 {
        true => format!("{} GiB", significant(value)),
        false => format!("{} GiB", grouped(value.round() as u64)),
    }
}

fn exact(bytes: u64) -> String {
    format!("{} ({} bytes)", gib(bytes as f64), grouped(bytes))
}

fn section(title: &str, lines: &[(&str, String)]) -> String {
    let lines: Vec<(String, String)> =
        lines.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    format!("\n{title}\n{}", layout::definitions(&lines, 22, terminal::columns()))
}

/// Commands to copy; a missing one is left out.
fn commands(title: &str, commands: &[Option<&str>]) -> String {
    let mut text = format!("\n{title}\n");
    for command in commands.iter().flatten() {
        text.push_str(&layout::command(&format!("  {command}"), terminal::columns()));
        text.push('\n');
    }
    text
}

/// The smallest data set.
#[derive(Clone, Debug)]
pub(crate) struct TrainingSizeReport {
    pub scale: SizeScale,
    pub size: TrainingSize,
    /// The number of files if mlpstorage rounds down, if that is fewer.
    pub rounded_down: Option<u64>,
    pub generate: String,
    /// `None`: mlpstorage does not have the workload.
    pub mlpstorage: Option<String>,
}

impl TrainingSizeReport {
    pub(crate) fn text(&self) -> String {
        let TrainingSize { floors, binding, files, samples, bytes, subfolders } = self.size;
        let floor = |files: u64, is_binding: bool| {
            format!("{}{}", counted(files, "file"), if is_binding { ", decides" } else { "" })
        };
        let mut text = self.scale.heading("accelerator");
        text.push_str(&section(
            "at least",
            &[
                ("500 steps", floor(floors.steps_floor_files, binding == BindingFloor::Steps)),
                ("5 x memory", floor(floors.memory_floor_files, binding == BindingFloor::Memory)),
            ],
        ));
        let folders = match subfolders {
            0 => "none needed".to_owned(),
            _ => format!("{} (about 10,000 files in each)", grouped(subfolders)),
        };
        let mut lines = vec![
            ("files", grouped(files)),
            ("samples", grouped(samples)),
            ("size", exact(bytes)),
            ("sub-folders", folders),
        ];
        if let Some(files) = self.rounded_down {
            lines.push((
                "note",
                format!("mlpstorage before 3.0.43 rounds down, to {}", counted(files, "file")),
            ));
        }
        text.push_str(&section("data set", &lines));
        text.push_str(&commands("to generate it", &[Some(&self.generate), self.mlpstorage.as_deref()]));
        text
    }

    pub(crate) fn json(&self) -> Value {
        let commands = json!({ "generate": self.generate, "mlpstorage": self.mlpstorage });
        self.scale.json("training", &json!(self.size), &commands)
    }
}

/// Checkpoints that a run writes and reads.
const CHECKPOINTS: u64 = 10;

/// The size of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointSizeReport {
    scale: SizeScale,
    bytes: u64,
    files: u64,
    largest_rank_bytes: u64,
    smallest_rank_bytes: u64,
    largest_host_bytes: u64,
    model: Option<&'static LlamaModel>,
    run: String,
    mlpstorage: Option<String>,
}

impl CheckpointSizeReport {
    pub(crate) fn new(
        scale: SizeScale,
        geometry: &Geometry,
        model: Option<&'static LlamaModel>,
        run: String,
        mlpstorage: Option<String>,
    ) -> CheckpointSizeReport {
        let ranks: Vec<u64> = (0..scale.ranks).map(|rank| geometry.rank_bytes(rank)).collect();
        let per_host = scale.ranks.div_ceil(scale.hosts.max(1)).max(1);
        let hosts = ranks.chunks(usize::try_from(per_host).unwrap_or(usize::MAX));
        CheckpointSizeReport {
            bytes: ranks.iter().sum(),
            files: geometry.file_count(),
            largest_rank_bytes: ranks.iter().copied().max().unwrap_or(0),
            smallest_rank_bytes: ranks.iter().copied().min().unwrap_or(0),
            largest_host_bytes: hosts.map(|host| host.iter().sum()).max().unwrap_or(0),
            scale,
            model,
            run,
            mlpstorage,
        }
    }

    fn by_table(&self) -> Option<LlamaSize> {
        self.model.map(|model| LlamaSize::new(model, self.scale.ranks))
    }

    /// Whether the hosts could read all checkpoints from memory, by the rules' rule of thumb.
    fn needs_flush(&self) -> bool {
        let written = u128::from(self.largest_host_bytes) * u128::from(CHECKPOINTS);
        written < 3 * u128::from(self.scale.host_memory_bytes)
    }

    pub(crate) fn text(&self) -> String {
        let mut lines = vec![
            ("size", exact(self.bytes)),
            ("files", grouped(self.files)),
            ("largest rank", exact(self.largest_rank_bytes)),
            ("smallest rank", exact(self.smallest_rank_bytes)),
            ("largest host", exact(self.largest_host_bytes)),
        ];
        if let Some(table) = self.by_table() {
            let [total, first, last] =
                [table.total_gib, table.first_rank_gib, table.last_rank_gib].map(|gib_of| gib(gib_of * GIB));
            lines.push(("mlpstorage's datasize", format!("{total}; first rank {first}, last rank {last}")));
        }
        let mut text = self.scale.heading("rank");
        text.push_str(&section("one checkpoint", &lines));
        let written = self.largest_host_bytes as f64 * CHECKPOINTS as f64;
        let flush = match self.needs_flush() {
            true => {
                "less: clear the client's cache between writing and reading (two invocations, 30 s apart at most)"
            }
            false => "more: no need to clear the cache",
        };
        let memory = gib(self.scale.host_memory_bytes as f64 * 3.0);
        let mut rules = vec![
            ("storage needed", gib(self.bytes as f64 * CHECKPOINTS as f64)),
            ("written by a host", gib(written)),
            ("3 x memory of a host", format!("{memory}; written is {flush}")),
        ];
        if let Some(model) = self.model {
            rules.push(("processes in CLOSED", grouped(model.processes)));
        }
        text.push_str(&section("10 checkpoints", &rules));
        text.push_str(&commands("to run it", &[Some(&self.run), self.mlpstorage.as_deref()]));
        text
    }

    pub(crate) fn json(&self) -> Value {
        let size = json!({
            "bytes": self.bytes,
            "files": self.files,
            "largest_rank_bytes": self.largest_rank_bytes,
            "smallest_rank_bytes": self.smallest_rank_bytes,
            "largest_host_bytes": self.largest_host_bytes,
            "checkpoints": CHECKPOINTS,
            "needs_cache_flush": self.needs_flush(),
            "closed_processes": self.model.map(|model| model.processes),
            "mlpstorage": self.by_table(),
        });
        self.scale.json("checkpoint", &size, &json!({ "run": self.run, "mlpstorage": self.mlpstorage }))
    }
}
