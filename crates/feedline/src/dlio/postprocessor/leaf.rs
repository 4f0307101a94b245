//! The times in a result folder: when epochs and phases started and ended, and how long the steps of all ranks took.
//! DLIO's versions spell the files and phases differently; all spellings are read.

use anyhow::{Context, bail};
use jiff::civil::DateTime;
use serde_json::{Map, Value};

use super::LeafReader;

pub(super) const BYTES_PER_MIB: f64 = 1_048_576.0;

/// The times of a run.
pub(super) struct LeafTimes {
    pub ranks: u64,
    pub epochs: Vec<LeafEpoch>,
    /// Samples per second of all ranks, by epoch.
    pub throughput: Vec<f64>,
    /// Bytes of a sample, by which the run computed its I/O rate.
    pub record_bytes: Option<f64>,
}

/// The times of one epoch.
pub(super) struct LeafEpoch {
    pub number: String,
    pub span: TimeSpan,
    pub phases: Vec<LeafPhase>,
}

/// A block of steps, an evaluation, or a checkpoint.
pub(super) struct LeafPhase {
    pub name: String,
    pub span: TimeSpan,
    /// GiB/s of a checkpoint.
    pub checkpoint_rate: Option<f64>,
    /// Seconds per rank that were spent loading and processing; `None`: no rank recorded steps.
    pub steps: Option<LeafSteps>,
}

/// What the ranks recorded about the steps of a phase.
pub(super) struct LeafSteps {
    pub loading_per_rank: f64,
    pub processing_per_rank: f64,
    /// Batches per second of all ranks, by step.
    pub rates: Vec<f64>,
}

/// Start, end and duration, each if the folder has it.
pub(super) struct TimeSpan {
    pub start: Option<DateTime>,
    pub end: Option<DateTime>,
    /// Seconds.
    pub duration: Option<f64>,
}

impl LeafTimes {
    pub(super) fn read(reader: &LeafReader<'_>) -> anyhow::Result<LeafTimes> {
        let folder = reader.folder.display();
        let Some(summary) = reader.json("summary.json")? else {
            bail!(
                "{folder} has no summary.json; give the result folder of a complete run with --output-folder"
            );
        };
        let mut outputs = Vec::new();
        while let Some(output) = reader.json(&format!("{}_output.json", outputs.len()))? {
            outputs.push(output);
        }
        if outputs.is_empty() {
            bail!(
                "{folder} has no 0_output.json; give the result folder of a complete run with --output-folder"
            );
        }
        let epochs = match reader.json("0_per_epoch_stats.json")? {
            Some(epochs) => Some(epochs),
            None => reader.json("per_epoch_stats.json")?,
        };
        let epochs = epochs.with_context(|| format!("{folder} has no 0_per_epoch_stats.json"))?;
        let epochs =
            epochs.as_object().with_context(|| format!("{folder}: the epochs are no JSON object"))?;
        let epochs = epochs.iter().filter(|(_, epoch)| epoch.is_object());
        let metric = &summary["metric"];
        Ok(LeafTimes {
            ranks: outputs.len() as u64,
            epochs: epochs.map(|(number, epoch)| LeafEpoch::new(number, epoch, &outputs)).collect(),
            throughput: numbers(&metric["train_throughput_samples_per_second"]),
            record_bytes: record_bytes(metric),
        })
    }

    /// From the start of the first epoch to the end of the last one.
    pub(super) fn span(&self) -> TimeSpan {
        let start = self.epochs.first().and_then(|epoch| epoch.span.start);
        let end = self.epochs.last().and_then(|epoch| epoch.span.end);
        TimeSpan { start, end, duration: None }
    }
}

/// The I/O rate of a run is its rate of samples times the bytes of a sample.
fn record_bytes(metric: &Value) -> Option<f64> {
    let samples = number(&metric["train_throughput_mean_samples_per_second"])?;
    let mib = number(&metric["train_io_mean_MB_per_second"])?;
    (samples > 0.0).then(|| mib * BYTES_PER_MIB / samples)
}

impl LeafEpoch {
    fn new(number: &str, epoch: &Value, outputs: &[Value]) -> LeafEpoch {
        let empty = Map::new();
        let phases = epoch.as_object().unwrap_or(&empty).iter().filter(|(_, phase)| phase.is_object());
        let phase = |name: &String, phase: &Value| LeafPhase {
            name: name.clone(),
            span: TimeSpan::new(phase),
            checkpoint_rate: self::number(&phase["throughput"]),
            steps: LeafSteps::new(outputs.iter().map(|output| &output[number]), name),
        };
        LeafEpoch {
            number: number.to_owned(),
            span: TimeSpan::new(epoch),
            phases: phases.map(|(name, value)| phase(name, value)).collect(),
        }
    }
}

impl LeafPhase {
    pub(super) fn is_checkpoint(&self) -> bool {
        self.name.contains("ckpt")
    }

    pub(super) fn is_evaluation(&self) -> bool {
        self.name.starts_with("eval")
    }
}

impl LeafSteps {
    /// `epochs` are the records of all ranks about one epoch. A rank may have recorded fewer steps than another; the
    /// rates cover the steps of all ranks.
    fn new<'a>(epochs: impl Iterator<Item = &'a Value>, phase: &str) -> Option<LeafSteps> {
        let (mut loading, mut processing, mut ranks) = (0.0, 0.0, 0.0);
        let mut rates: Option<Vec<f64>> = None;
        for epoch in epochs {
            let times = numbers(&epoch["proc"][phase]);
            loading += numbers(&epoch["load"][phase]).iter().sum::<f64>();
            processing += times.iter().sum::<f64>();
            ranks += 1.0;
            let own = times.into_iter().map(|time| if time > 0.0 { 1.0 / time } else { 0.0 });
            rates = Some(match rates {
                Some(rates) => rates.into_iter().zip(own).map(|(all, own)| all + own).collect(),
                None => own.collect(),
            });
        }
        let rates = rates.filter(|rates| !rates.is_empty())?;
        Some(LeafSteps { loading_per_rank: loading / ranks, processing_per_rank: processing / ranks, rates })
    }
}

impl TimeSpan {
    fn new(object: &Value) -> TimeSpan {
        let moment = |key: &str| object[key].as_str().and_then(|text| text.parse().ok());
        TimeSpan { start: moment("start"), end: moment("end"), duration: number(&object["duration"]) }
    }

    /// The recorded duration, or the time from start to end.
    pub(super) fn seconds(&self) -> Option<f64> {
        self.duration.or_else(|| Some(self.end?.duration_since(self.start?).as_secs_f64()))
    }
}

/// A number, which DLIO sometimes writes as a text.
pub(super) fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().map(|values| values.iter().filter_map(number).collect()).unwrap_or_default()
}
