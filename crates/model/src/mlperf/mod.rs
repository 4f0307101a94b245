//! The rules of MLPerf Storage, as functions from the documents of a result to findings: how large a data set must be,
//! whether a result or a submission keeps the rules, and the row of the published table.

mod checkpointing;
mod document;
mod edition;
mod files;
mod finding;
mod leaf;
mod moment;
mod row;
mod size;
mod structure;
#[cfg(test)]
mod tests;
mod training;
mod workload;

pub use document::DocumentText;
pub use edition::{Division, Edition, LLAMA_MODELS, LlamaModel, llama_model};
pub use finding::{MlperfFinding, MlperfOutcome, MlperfRule};
pub use leaf::{LeafInput, LeafKind, LeafListing, MlperfLeaf};
pub use row::{CheckpointFigures, MlperfRow, RowFigures, TrainingFigures};
pub use size::{BindingFloor, LlamaSize, Rounding, SizeFloors, SizeInput, TrainingSize};
pub use structure::{SubmitterFolder, check_division, check_root, check_submitter, check_system, is_code};
pub use workload::{MlperfWorkload, WorkloadFamily};

/// The model of a result whose documents and folders do not name one.
pub const UNKNOWN_MODEL: &str = "unknown";

/// What decides which rules apply to a result.
#[derive(Clone, Copy, Debug)]
pub struct MlperfCase<'a> {
    pub edition: Edition,
    pub division: Division,
    /// The model as folders of submissions name it.
    pub model: &'a str,
    /// Published core-config hashes: names of workloads, such as `unet3d_b200`, with their hashes.
    pub classes: &'a [(&'a str, &'a str)],
}
