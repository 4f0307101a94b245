//! The rules of MLPerf Storage, as functions from the documents of a result to findings: how large a data set must be,
//! whether a result or a submission keeps the rules, and the row of the published table.

mod edition;
mod size;

pub use edition::{Division, Edition, LLAMA_MODELS, LlamaModel, llama_model};
pub use size::{BindingFloor, LlamaSize, Rounding, SizeFloors, SizeInput, TrainingSize};
