//! The row of a workload in the published table.

use serde::Serialize;

use super::checkpointing::counts;
use super::document::number;
use super::leaf::MlperfLeaf;
use super::workload::{MlperfWorkload, WorkloadFamily};

/// The figures of a workload. A figure that the documents do not have is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MlperfRow {
    pub accelerator: Option<String>,
    pub hosts: Option<u64>,
    /// Accelerators, or processes that save a checkpoint.
    pub ranks: Option<u64>,
    /// Results over which the figures are means.
    pub scored_runs: usize,
    #[serde(flatten)]
    pub figures: RowFigures,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowFigures {
    Training(TrainingFigures),
    Checkpointing(CheckpointFigures),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingFigures {
    pub data_set_gib: Option<f64>,
    pub au_percent: Option<f64>,
    pub read_gib_per_second: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointFigures {
    pub checkpoint_gib: Option<f64>,
    pub write_gib_per_second: Option<f64>,
    pub write_seconds: Option<f64>,
    pub read_gib_per_second: Option<f64>,
    pub read_seconds: Option<f64>,
}

/// The mean, if every result has the figure.
fn mean(leaves: &[&MlperfLeaf], figure: impl Fn(&MlperfLeaf) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = leaves.iter().map(|leaf| figure(leaf)).collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Runs after the warm-up. With fewer than two runs, there is no warm-up to leave out.
fn scored<'a>(runs: &'a [&'a MlperfLeaf]) -> &'a [&'a MlperfLeaf] {
    match runs {
        [_, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    }
}

impl MlperfWorkload {
    /// The row of the workload; `None` if it has no result that was measured.
    pub fn row(&self) -> Option<MlperfRow> {
        let measured = self.measured();
        let first = *measured.first()?;
        let (scored_runs, figures) = match self.family {
            WorkloadFamily::Training => {
                let runs = scored(&measured);
                (runs.len(), RowFigures::Training(training(runs)))
            }
            WorkloadFamily::Checkpointing => {
                (measured.len(), RowFigures::Checkpointing(checkpointing(&measured)))
            }
        };
        Some(MlperfRow {
            accelerator: self.leaves.iter().find_map(MlperfLeaf::accelerator),
            hosts: first.said_count("num_hosts"),
            ranks: first.processes(),
            scored_runs,
            figures,
        })
    }
}

fn training(runs: &[&MlperfLeaf]) -> TrainingFigures {
    let size = |leaf: &MlperfLeaf| {
        let files = leaf.said_count("num_files_train")? as f64;
        let samples = leaf.said_count("num_samples_per_file")? as f64;
        let record = leaf.setting("dataset.record_length_bytes").and_then(number)?;
        Some(files * samples * record / (1u64 << 30) as f64)
    };
    TrainingFigures {
        data_set_gib: runs.first().and_then(|leaf| size(leaf)),
        au_percent: mean(runs, |leaf| leaf.metric("train_au_mean_percentage")),
        // DLIO's MB are MiB.
        read_gib_per_second: mean(runs, |leaf| leaf.metric("train_io_mean_MB_per_second"))
            .map(|rate| rate / 1024.0),
    }
}

fn checkpointing(leaves: &[&MlperfLeaf]) -> CheckpointFigures {
    let (mut writing, mut reading) = (Vec::new(), Vec::new());
    for leaf in leaves {
        let (writes, reads) = counts(leaf).unwrap_or((1, 1));
        if writes > 0 {
            writing.push(*leaf);
        }
        if reads > 0 {
            reading.push(*leaf);
        }
    }
    let metric = |name: &'static str| move |leaf: &MlperfLeaf| leaf.metric(name);
    CheckpointFigures {
        checkpoint_gib: leaves.iter().find_map(|leaf| leaf.metric("checkpoint_size_GB")),
        write_gib_per_second: mean(&writing, metric("save_checkpoint_io_mean_GB_per_second")),
        write_seconds: mean(&writing, metric("save_checkpoint_duration_mean_seconds")),
        read_gib_per_second: mean(&reading, metric("load_checkpoint_io_mean_GB_per_second")),
        read_seconds: mean(&reading, metric("load_checkpoint_duration_mean_seconds")),
    }
}
