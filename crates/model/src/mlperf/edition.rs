//! The editions of MLPerf Storage, and what differs between them.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::size::Rounding;

/// A round of MLPerf Storage whose rules are known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edition {
    V2,
    V3,
}

impl Edition {
    pub const NAMES: [&'static str; 2] = ["2.0", "3.0"];

    pub fn name(self) -> &'static str {
        match self {
            Edition::V2 => "2.0",
            Edition::V3 => "3.0",
        }
    }

    /// How mlpstorage turns a minimum size into a number of files. Version 3.0.42 and earlier round down, so that a
    /// data set can be one file short; later ones round up, as the rules do.
    pub fn rounding(self) -> Rounding {
        match self {
            Edition::V2 => Rounding::Down,
            Edition::V3 => Rounding::Up,
        }
    }

    /// Whether the edition scores this training workload, CLOSED and OPEN.
    pub fn scores(self, model: &str, accelerator: &str) -> bool {
        match self {
            Edition::V2 => {
                ["unet3d", "resnet50", "cosmoflow"].contains(&model)
                    && ["a100", "h100"].contains(&accelerator)
            }
            Edition::V3 => [("unet3d", "b200"), ("retinanet", "b200"), ("retinanet", "mi355")]
                .contains(&(model, accelerator)),
        }
    }

    /// The AU in percent that a run must reach; `None`: the edition has no such model.
    pub fn utilization_floor(self, model: &str) -> Option<f64> {
        match (self, model) {
            (_, "unet3d") | (Edition::V2, "resnet50") => Some(90.0),
            (Edition::V3, "retinanet") => Some(85.0),
            (Edition::V2, "cosmoflow") => Some(70.0),
            _ => None,
        }
    }

    /// Memory of an accelerator. Checkpoint runs often do not name one; then it is the smallest of the edition.
    pub fn accelerator_gib(self, accelerator: Option<&str>) -> f64 {
        match (accelerator, self) {
            (Some("mi355"), _) => 288.0,
            (Some("b200"), _) => 180.0,
            (Some(_), _) | (None, Edition::V2) => 80.0,
            (None, Edition::V3) => 180.0,
        }
    }

    /// Whether mlpstorage of this edition has the training workload at all, scored or not.
    pub fn has(self, model: &str, accelerator: &str) -> bool {
        let others = match self {
            Edition::V2 => [].as_slice(),
            Edition::V3 => &[
                ("unet3d", "a100"),
                ("unet3d", "h100"),
                ("resnet50", "a100"),
                ("resnet50", "h100"),
                ("cosmoflow", "a100"),
                ("cosmoflow", "h100"),
                ("dlrm", "b200"),
                ("dlrm", "mi355"),
                ("flux", "b200"),
                ("flux", "mi355"),
            ],
        };
        self.scores(model, accelerator) || others.contains(&(model, accelerator))
    }
}

impl fmt::Display for Edition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Edition {
    type Err = String;

    fn from_str(text: &str) -> Result<Edition, String> {
        match text.strip_prefix('v').unwrap_or(text) {
            "2.0" | "2" => Ok(Edition::V2),
            "3.0" | "3" => Ok(Edition::V3),
            _ => Err(format!("'{text}' is not an edition; use {}", Edition::NAMES.join(" or "))),
        }
    }
}

impl Serialize for Edition {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A division of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Division {
    Closed,
    Open,
}

impl Division {
    pub const NAMES: [&'static str; 2] = ["closed", "open"];

    pub fn name(self) -> &'static str {
        match self {
            Division::Closed => "closed",
            Division::Open => "open",
        }
    }
}

impl fmt::Display for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// In any case: mlpstorage writes `CLOSED` into its metadata and names the folder `closed`.
impl FromStr for Division {
    type Err = String;

    fn from_str(text: &str) -> Result<Division, String> {
        match text.to_ascii_lowercase().as_str() {
            "closed" => Ok(Division::Closed),
            "open" => Ok(Division::Open),
            _ => Err(format!("'{text}' is not a division; use {}", Division::NAMES.join(" or "))),
        }
    }
}

/// A checkpoint workload, by the table of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlamaModel {
    /// As in the folders of a submission.
    pub name: &'static str,
    pub tensor: u64,
    pub pipeline: u64,
    /// Processes in CLOSED: tensor x pipeline x data parallelism.
    pub processes: u64,
    pub zero_stage: u64,
    pub layers: u64,
    pub hidden: u64,
    pub ffn_hidden: u64,
    /// Sizes of model and optimizer in mlpstorage's table.
    pub model_gib: u64,
    pub optimizer_gib: u64,
}

impl LlamaModel {
    /// Processes that share one copy of the model in mlpstorage's table. For 8B the table has 8, although tensor x
    /// pipeline is 1; OPEN accepts multiples of this number.
    pub fn group(&self) -> u64 {
        (self.tensor * self.pipeline).max(8)
    }
}

pub const LLAMA_MODELS: [LlamaModel; 4] = {
    const fn model(name: &'static str, split: [u64; 4], shape: [u64; 3], gib: [u64; 2]) -> LlamaModel {
        let [tensor, pipeline, processes, zero_stage] = split;
        let [layers, hidden, ffn_hidden] = shape;
        let [model_gib, optimizer_gib] = gib;
        LlamaModel {
            name,
            tensor,
            pipeline,
            processes,
            zero_stage,
            layers,
            hidden,
            ffn_hidden,
            model_gib,
            optimizer_gib,
        }
    }
    [
        model("llama3-8b", [1, 1, 8, 3], [32, 4096, 14_336], [15, 90]),
        model("llama3-70b", [8, 1, 64, 3], [80, 8192, 28_672], [130, 781]),
        model("llama3-405b", [8, 32, 512, 1], [126, 16_384, 53_248], [755, 4533]),
        model("llama3-1t", [8, 64, 1024, 1], [128, 25_872, 98_304], [2571, 15_426]),
    ]
};

/// The checkpoint workload with this name, written with `-` or `_`.
pub fn llama_model(name: &str) -> Option<&'static LlamaModel> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    LLAMA_MODELS.iter().find(|model| model.name == name)
}
