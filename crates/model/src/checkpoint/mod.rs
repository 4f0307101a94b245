//! The content of a checkpoint: which rank writes which files, and their sizes, as functions of the model and its
//! distribution over ranks (tensor, pipeline and data parallelism, ZeRO). Names and sizes are DLIO's.

pub mod advice;
mod idle;
mod layers;
pub mod manifest;
mod plan;
mod schedule;
mod seen;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::plan::{MOST_RANKS, digest};
use crate::spec::{CheckpointMode, Datatype, Framework, Spec};
use crate::units::{Bytes, Share};

pub use idle::idle;
use layers::Layers;
pub use plan::{CheckpointPlan, SaveRequest};
pub use schedule::Schedule;
pub use seen::{Checkpoints, Cpu, RestoreRecord, SaveRecord, StepTimes};

/// A file of a checkpoint: its name in the checkpoint's folder, and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFile {
    pub name: String,
    pub bytes: u64,
}

/// A share of the model's size: `1/64` keeps every file and makes each that much smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    pub numerator: u64,
    pub denominator: u64,
}

impl Scale {
    pub const WHOLE: Scale = Scale { numerator: 1, denominator: 1 };

    pub fn is_whole(self) -> bool {
        self.numerator == self.denominator
    }

    /// A file never becomes empty, because an empty file would not be read back.
    fn of(self, bytes: u64) -> u64 {
        let scaled = u128::from(bytes) * u128::from(self.numerator) / u128::from(self.denominator.max(1));
        (scaled as u64).max(u64::from(bytes > 0))
    }
}

/// Why ranks and model do not match.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    #[error(
        "the model is divided among tensor {tensor} x pipeline {pipeline} = {group} ranks, so a checkpoint needs a \
         multiple of {group} ranks, not {ranks}; use --ranks {group}, or checkpoint.mode=subset with \
         model.parallelism.data"
    )]
    NotAMultiple { ranks: u64, tensor: u64, pipeline: u64, group: u64 },
    #[error(
        "checkpoint.mode: a subset of {whole} ranks (data x tensor x pipeline) cannot have {ranks}; lower --ranks"
    )]
    TooManyRanks { ranks: u64, whole: u64 },
    #[error(
        "the checkpoint would have more than 2^64 bytes; lower model.num_layers, the sizes in model.transformer, \
         model.model_size_bytes, model.layer_parameters, model.optimization_groups or model.parallelism"
    )]
    TooLarge,
    #[error(
        "the model has nothing to save: set model.model_size_bytes, or model.num_layers of a transformer"
    )]
    Nothing,
}

/// A kind of file of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileRole {
    /// A flat model state, for any model.
    Flat,
    /// All layers of the rank in one file, or a single layer.
    Layers,
    Layer(u64),
    Optimizer,
}

/// The position of a rank in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RankPosition {
    rank: u64,
    /// The number among the ranks that share a copy of the model, and the number of that copy.
    within: u64,
    copy: u64,
    stage: u64,
}

/// The shape of a model's checkpoints on a number of ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    pub ranks: u64,
    pub tensor: u64,
    pub pipeline: u64,
    /// Copies of the model among which the optimizer states are divided.
    pub data: u64,
    pub zero: u64,
    pub scale: Scale,
    pub framework: Framework,
    /// Bytes of a flat model state; 0: none.
    flat_bytes: u64,
    layers: Option<Layers>,
    /// Bytes of the optimizer states of one rank; 0: none.
    optimizer_bytes: u64,
    /// Parameters of a transformer.
    pub parameters: Option<u64>,
    /// Whether layers and optimizer groups are listed tensor by tensor, in DLIO's older form.
    listed: bool,
}

/// Optimizer tensors per parameter: the parameter itself, its momentum and its variance.
const OPTIMIZER_TENSORS: u64 = 3;

impl Geometry {
    /// The geometry of the spec's model on `ranks` ranks.
    pub fn resolve(spec: &Spec, ranks: u64, scale: Scale) -> Result<Geometry, GeometryError> {
        let model = &spec.model;
        let spread = &model.parallelism;
        let group = spread.tensor.checked_mul(spread.pipeline).ok_or(GeometryError::TooLarge)?;
        let data = copies(spec, ranks, group)?;
        let is_transformer = model.r#type.as_deref() == Some("transformer");
        let layers = Layers::of(spec, data)?;
        let parameters = layers.as_ref().and_then(Layers::parameters);
        let listed = !model.layer_parameters.is_empty() || !model.optimization_groups.is_empty();
        let geometry = Geometry {
            ranks,
            tensor: spread.tensor,
            pipeline: spread.pipeline,
            data,
            zero: spread.zero_stage,
            scale,
            framework: spec.framework,
            flat_bytes: if is_transformer { 0 } else { model.model_size_bytes },
            optimizer_bytes: optimizer_bytes(spec, parameters, group, data)?,
            layers,
            parameters,
            listed,
        };
        match geometry.checked_bytes() {
            None => Err(GeometryError::TooLarge),
            Some(0) => Err(GeometryError::Nothing),
            Some(_) => Ok(geometry),
        }
    }

    /// Identifies the shape: checkpoints with the same digest have the same files.
    pub fn digest(&self) -> String {
        digest(self, &[])
    }

    /// The ranks that share one copy of the model.
    pub fn group(&self) -> u64 {
        self.tensor * self.pipeline
    }

    /// The files that a rank writes, in order.
    pub fn files(&self, rank: u64) -> Vec<CheckpointFile> {
        let place = self.place(rank);
        let mut files = Vec::new();
        for part in self.parts(place) {
            let (name, bytes) = (self.name(place, part), self.scale.of(self.part_bytes(place, part)));
            match self.framework {
                Framework::Pytorch => files.push(CheckpointFile { name: format!("{name}.pt"), bytes }),
                Framework::Tensorflow => files.extend(three_files(&name, bytes)),
            }
        }
        files
    }

    /// Bytes that a rank writes.
    pub fn rank_bytes(&self, rank: u64) -> u64 {
        self.files(rank).iter().map(|file| file.bytes).sum()
    }

    /// Bytes that all ranks write: model states and optimizer states.
    pub fn total_bytes(&self) -> u64 {
        (0..self.ranks).map(|rank| self.rank_bytes(rank)).sum()
    }

    pub fn file_count(&self) -> u64 {
        (0..self.ranks).map(|rank| self.files(rank).len() as u64).sum()
    }

    /// Bytes of the optimizer states of all ranks, before scaling.
    pub fn optimizer_total_bytes(&self) -> u64 {
        let writers = (0..self.ranks).filter(|rank| self.writes(self.place(*rank))).count() as u64;
        writers * self.optimizer_bytes
    }

    /// Bytes of the model states of all ranks, before scaling.
    pub fn model_total_bytes(&self) -> u64 {
        let model = |place| -> u64 {
            let parts = self.parts(place).into_iter().filter(|part| *part != FileRole::Optimizer);
            parts.map(|part| self.part_bytes(place, part)).sum()
        };
        (0..self.ranks).map(|rank| model(self.place(rank))).sum()
    }

    /// The size that DLIO reports for the checkpoint. It excludes tensors that are listed one by one, and for models
    /// other than transformers it includes only the flat state, once.
    pub fn reported_bytes(&self) -> u64 {
        match (self.flat_bytes, self.listed) {
            (0, true) => 0,
            (0, false) => self.total_bytes(),
            (flat, true) => self.scale.of(flat),
            (flat, false) => self.scale.of(flat).saturating_add(self.scale.of(self.optimizer_total_bytes())),
        }
    }

    fn checked_bytes(&self) -> Option<u64> {
        let mut sum = 0u64;
        for rank in 0..self.ranks {
            for file in self.files(rank) {
                sum = sum.checked_add(file.bytes)?;
            }
        }
        Some(sum)
    }

    fn place(&self, rank: u64) -> RankPosition {
        let group = self.group();
        RankPosition {
            rank,
            within: rank % group,
            copy: rank / group,
            stage: rank / self.tensor % self.pipeline,
        }
    }

    /// Without ZeRO all copies are equal, and the ranks of the first copy write it.
    fn writes(&self, place: RankPosition) -> bool {
        self.zero > 0 || place.copy == 0
    }

    fn parts(&self, place: RankPosition) -> Vec<FileRole> {
        let mut parts = Vec::new();
        if !self.writes(place) {
            return parts;
        }
        if self.flat_bytes > 0 {
            parts.push(FileRole::Flat);
        }
        if let Some(layers) = &self.layers {
            let splits = matches!(self.zero, 1 | 2);
            match splits {
                true if place.copy > 0 => {}
                true if self.pipeline > 1 => parts.extend(layers.of_stage(place.stage).map(FileRole::Layer)),
                _ => parts.push(FileRole::Layers),
            }
        }
        if self.optimizer_bytes > 0 {
            parts.push(FileRole::Optimizer);
        }
        parts
    }

    fn part_bytes(&self, place: RankPosition, part: FileRole) -> u64 {
        let layer_bytes = |layer| self.layers.as_ref().map_or(0, |layers| layers.bytes(layer));
        match part {
            FileRole::Flat => self.flat_bytes,
            FileRole::Layer(layer) => layer_bytes(layer),
            FileRole::Layers => self
                .stage_layers(place.stage)
                .map_or(0, |stage| stage.map(layer_bytes).fold(0, u64::saturating_add)),
            FileRole::Optimizer => self.optimizer_bytes,
        }
    }

    fn stage_layers(&self, stage: u64) -> Option<RangeInclusive<u64>> {
        self.layers.as_ref().map(|layers| layers.of_stage(stage))
    }

    fn name(&self, place: RankPosition, part: FileRole) -> String {
        let RankPosition { rank, within, copy, .. } = place;
        match part {
            FileRole::Flat => format!("model_states-{rank}"),
            FileRole::Layer(layer) => format!("layer_{layer}-model_{within}_model_states"),
            FileRole::Layers if matches!(self.zero, 1 | 2) => format!("model_{within}_model_states"),
            FileRole::Layers => format!("zero_pp_rank_{copy}_mp_rank_{within}_model_states"),
            FileRole::Optimizer => format!("zero_pp_rank_{copy}_mp_rank_{within}_optim_states"),
        }
    }
}

/// Bytes of the files with which TensorFlow describes a checkpoint: the graph, and the location of each tensor. They do
/// not grow with the tensors; these sizes are typical of a network with a hundred layers.
const META_BYTES: u64 = 1 << 20;
const INDEX_BYTES: u64 = 8 << 10;

/// TensorFlow's form of a checkpoint.
fn three_files(name: &str, bytes: u64) -> [CheckpointFile; 3] {
    [("meta", META_BYTES), ("index", INDEX_BYTES), ("data-00000-of-00001", bytes)]
        .map(|(ending, bytes)| CheckpointFile { name: format!("{name}.{ending}"), bytes })
}

/// The smallest number of ranks that can save the checkpoints of a workload; 1 if it saves none, or if no run can.
pub fn least_ranks(spec: &Spec) -> u64 {
    let spread = &spec.model.parallelism;
    let group = spread.tensor.saturating_mul(spread.pipeline);
    let grouped = spec.workflow.checkpoint && spec.checkpoint.mode == CheckpointMode::Default;
    if grouped && group <= MOST_RANKS { group } else { 1 }
}

/// The number of copies of the model. The spec ensures that a subset gives the data parallelism.
fn copies(spec: &Spec, ranks: u64, group: u64) -> Result<u64, GeometryError> {
    let spread = &spec.model.parallelism;
    let given = u64::try_from(spread.data).ok().filter(|data| *data > 0);
    match (spec.checkpoint.mode, given) {
        (CheckpointMode::Subset, Some(data)) => {
            let whole = data.checked_mul(group).ok_or(GeometryError::TooLarge)?;
            if ranks > whole { Err(GeometryError::TooManyRanks { ranks, whole }) } else { Ok(data) }
        }
        _ if !ranks.is_multiple_of(group) || ranks == 0 => {
            let (tensor, pipeline) = (spread.tensor, spread.pipeline);
            Err(GeometryError::NotAMultiple { ranks, tensor, pipeline, group })
        }
        _ => Ok(ranks / group),
    }
}

/// The optimizer states of one rank.
fn optimizer_bytes(
    spec: &Spec,
    parameters: Option<u64>,
    group: u64,
    data: u64,
) -> Result<u64, GeometryError> {
    let model = &spec.model;
    if !model.optimization_groups.is_empty() {
        // DLIO's older form: single bytes; each group twice, and once more in one piece with the others.
        let sum = model.optimization_groups.iter().try_fold(0u64, |sum, group| sum.checked_add(*group));
        return sum.and_then(|sum| sum.checked_mul(3)).ok_or(GeometryError::TooLarge);
    }
    let Some(parameters) = parameters else { return Ok(0) };
    let sharers = if model.parallelism.zero_stage > 0 { group.saturating_mul(data) } else { group };
    let share = parameters / sharers;
    let bytes = u128::from(OPTIMIZER_TENSORS)
        * (u128::from(share) + 5 * u128::from(model.transformer.hidden_size))
        * u128::from(element_bytes(model.optimizer_datatype));
    u64::try_from(bytes).map_err(|_| GeometryError::TooLarge)
}

/// Bytes of one element.
fn element_bytes(datatype: Datatype) -> u64 {
    match datatype {
        Datatype::Int8 | Datatype::Uint8 => 1,
        Datatype::Fp16 | Datatype::Bf16 => 2,
        Datatype::Fp32 => 4,
        Datatype::Fp64 => 8,
    }
}

impl std::fmt::Display for Scale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.denominator {
            denominator if denominator == self.numerator => f.write_str("1"),
            _ => write!(f, "{}/{}", self.numerator, self.denominator),
        }
    }
}

impl std::str::FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Scale, String> {
        match text.parse() {
            Ok(Share { numerator: 0, .. }) => Err(format!("a checkpoint cannot be scaled to {text}")),
            Ok(Share { numerator, denominator }) => Ok(Scale { numerator, denominator }),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl std::fmt::Display for CheckpointFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, Bytes(self.bytes))
    }
}

#[cfg(test)]
mod tests;
