//! How large a data set must be, and how large a checkpoint is: the arithmetic of mlpstorage's `datasize`, in both of
//! its roundings.

use serde::Serialize;

use super::edition::LlamaModel;
use crate::spec::{Column, Spec};

/// Steps that every accelerator must be able to do in an epoch.
const STEPS: u64 = 500;
/// How many times the memory of all hosts the data set must have.
const MEMORY_MULTIPLE: u64 = 5;
/// Files in a folder from which mlpstorage suggests sub-folders.
const FILES_PER_FOLDER: u64 = 10_000;

/// How a quotient becomes a number of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Down,
    Up,
}

/// What the size of a data set depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeInput {
    pub accelerators: u64,
    pub batch: u64,
    pub samples_per_file: u64,
    /// Bytes of one file. A fraction, because `record_length_bytes` may be one.
    pub file_bytes: f64,
    /// Of all hosts.
    pub memory_bytes: u128,
}

impl SizeInput {
    /// For a workload. `states_record` is whether it states `dataset.record_length_bytes`; if not, mlpstorage adds up
    /// the columns of parquet files.
    pub fn of(spec: &Spec, states_record: bool, accelerators: u64, memory_bytes: u128) -> SizeInput {
        let set = &spec.dataset;
        let columns = set.parquet.columns.as_slice();
        let record_bytes = match columns {
            [_, ..] if !states_record && set.format == "parquet" => row_bytes(columns) as f64,
            _ => set.record_length_bytes,
        };
        SizeInput {
            accelerators,
            batch: spec.reader.batch_size,
            samples_per_file: set.num_samples_per_file,
            file_bytes: set.num_samples_per_file as f64 * record_bytes,
            memory_bytes,
        }
    }
}

/// A row by mlpstorage's rule, which knows three widths: types of 8 bytes, types of 1 byte, and 4 for all others.
fn row_bytes(columns: &[Column]) -> u64 {
    let width = |dtype: &str| match dtype {
        "float64" | "int64" => 8,
        "uint8" | "bool" => 1,
        _ => 4,
    };
    columns
        .iter()
        .fold(0, |sum: u64, column| sum.saturating_add(column.size.saturating_mul(width(&column.dtype))))
}

/// The two minimum numbers of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeFloors {
    /// For 500 steps on every accelerator.
    pub steps_floor_files: u64,
    /// For five times the memory of all hosts.
    pub memory_floor_files: u64,
}

/// Which of the two decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BindingFloor {
    Steps,
    Memory,
}

impl SizeFloors {
    pub fn new(input: &SizeInput, rounding: Rounding) -> SizeFloors {
        let steps = u128::from(STEPS) * u128::from(input.accelerators);
        let samples = steps.saturating_mul(u128::from(input.batch));
        let memory = u128::from(MEMORY_MULTIPLE).saturating_mul(input.memory_bytes);
        SizeFloors {
            steps_floor_files: whole(samples, u128::from(input.samples_per_file), rounding),
            memory_floor_files: quotient(memory, input.file_bytes, rounding),
        }
    }

    pub fn binding(&self) -> BindingFloor {
        match self.memory_floor_files > self.steps_floor_files {
            true => BindingFloor::Memory,
            false => BindingFloor::Steps,
        }
    }

    /// The number of files that satisfies both.
    pub fn files(&self) -> u64 {
        self.steps_floor_files.max(self.memory_floor_files)
    }
}

fn whole(dividend: u128, divisor: u128, rounding: Rounding) -> u64 {
    let quotient = match (rounding, divisor) {
        (_, 0) => return u64::MAX,
        (Rounding::Down, _) => dividend / divisor,
        (Rounding::Up, _) => dividend.div_ceil(divisor),
    };
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

/// Files without content never have enough bytes. Exact for whole file sizes. For fractions it is Python's `//` on
/// floats: the quotient after the remainder was subtracted, which a plain division does not always equal.
fn quotient(bytes: u128, file_bytes: f64, rounding: Rounding) -> u64 {
    let is_usable = file_bytes.is_finite() && file_bytes > 0.0;
    if !is_usable {
        return u64::MAX;
    }
    if file_bytes.fract() == 0.0 {
        return whole(bytes, file_bytes as u128, rounding);
    }
    let bytes = bytes as f64;
    let rest = bytes % file_bytes;
    let down = ((bytes - rest) / file_bytes).round();
    // A cast from float saturates.
    let up = u64::from(rounding == Rounding::Up && rest > 0.0);
    (down as u64).saturating_add(up)
}

/// The smallest data set that the rules accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrainingSize {
    #[serde(flatten)]
    pub floors: SizeFloors,
    pub binding: BindingFloor,
    pub files: u64,
    pub samples: u64,
    pub bytes: u64,
    /// Sub-folders that mlpstorage suggests; 0: none.
    pub subfolders: u64,
}

impl TrainingSize {
    pub fn new(input: &SizeInput, rounding: Rounding) -> TrainingSize {
        let floors = SizeFloors::new(input, rounding);
        let files = floors.files();
        TrainingSize {
            floors,
            binding: floors.binding(),
            files,
            samples: files.saturating_mul(input.samples_per_file),
            bytes: bytes_of(files, input.file_bytes),
            subfolders: if files > FILES_PER_FOLDER { files / FILES_PER_FOLDER } else { 0 },
        }
    }
}

/// Bytes of this many files, exact for whole file sizes.
pub(crate) fn bytes_of(files: u64, file_bytes: f64) -> u64 {
    match file_bytes.fract() == 0.0 {
        true => u64::try_from(u128::from(files).saturating_mul(file_bytes as u128)).unwrap_or(u64::MAX),
        false => (files as f64 * file_bytes) as u64,
    }
}

/// The size of a checkpoint by mlpstorage's table, in GiB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LlamaSize {
    /// What a rank writes that has a share of the model: with ZeRO 1, the ranks of the first copy; with ZeRO 3, all.
    pub first_rank_gib: f64,
    pub last_rank_gib: f64,
    pub total_gib: f64,
}

impl LlamaSize {
    pub fn new(model: &LlamaModel, processes: u64) -> LlamaSize {
        let (weights, optimizer) = (model.model_gib as f64, model.optimizer_gib as f64);
        let ranks = processes.max(1) as f64;
        if model.zero_stage == 3 {
            let each = (weights + optimizer) / ranks;
            return LlamaSize { first_rank_gib: each, last_rank_gib: each, total_gib: weights + optimizer };
        }
        let (group, each) = (model.group(), optimizer / ranks);
        let share = weights / group as f64;
        LlamaSize {
            first_rank_gib: each + share,
            last_rank_gib: if processes <= group { each + share } else { each },
            // With fewer ranks than the first copy needs, the rest of the model is not written.
            total_gib: optimizer + share * processes.min(group) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::edition::llama_model;
    use super::*;

    fn input(file_bytes: f64, samples_per_file: u64, batch: u64) -> impl Fn(u64, u64) -> SizeInput {
        move |accelerators, gib| SizeInput {
            accelerators,
            batch,
            samples_per_file,
            file_bytes,
            memory_bytes: u128::from(gib) << 30,
        }
    }

    #[test]
    fn the_larger_floor_decides() {
        let unet3d = input(146_600_628.0, 1, 7);
        let size = TrainingSize::new(&unet3d(4, 64), Rounding::Up);
        assert_eq!((size.floors.memory_floor_files, size.files, size.subfolders), (2344, 14_000, 1));
        assert_eq!((size.binding, size.bytes), (BindingFloor::Steps, 14_000 * 146_600_628));
        let size = TrainingSize::new(&unet3d(1, 1024), Rounding::Down);
        assert_eq!((size.binding, size.files), (BindingFloor::Memory, 37_500));
        // Equal floors count as steps, as in mlpstorage.
        let equal = SizeFloors { steps_floor_files: 9, memory_floor_files: 9 };
        assert_eq!(equal.binding(), BindingFloor::Steps);
    }

    #[test]
    fn absurd_inputs_saturate() {
        for rounding in [Rounding::Down, Rounding::Up] {
            let huge = SizeInput {
                accelerators: u64::MAX,
                batch: u64::MAX,
                samples_per_file: 1,
                file_bytes: 1.0,
                memory_bytes: u128::MAX,
            };
            let size = TrainingSize::new(&huge, rounding);
            assert_eq!((size.files, size.bytes), (u64::MAX, u64::MAX));
            for file_bytes in [0.0, -1.0, f64::NAN, f64::INFINITY] {
                let floors =
                    SizeFloors::new(&SizeInput { file_bytes, samples_per_file: 0, ..huge }, rounding);
                assert_eq!(floors.files(), u64::MAX, "{file_bytes}");
            }
        }
    }

    /// Computed with mlpstorage 3.0.26.
    #[test]
    fn checkpoint_sizes_are_those_of_mlpstorage() {
        for (name, processes, first, last, total) in [
            ("llama3_8b", 8, 13.125, 13.125, 105.0),
            ("llama3-8b", 4, 26.25, 26.25, 105.0),
            ("llama3-70b", 64, 14.234375, 14.234375, 911.0),
            ("llama3-70b", 8, 113.875, 113.875, 911.0),
            ("llama3-405b", 512, 11.802734375, 8.853515625, 5288.0),
            ("llama3-405b", 8, 569.57421875, 569.57421875, 4556.59375),
            ("llama3-1t", 1024, 20.0859375, 15.064453125, 17997.0),
            ("LLAMA3-1T", 512, 35.150390625, 35.150390625, 17997.0),
        ] {
            let size = LlamaSize::new(llama_model(name).unwrap(), processes);
            let expected = LlamaSize { first_rank_gib: first, last_rank_gib: last, total_gib: total };
            assert_eq!(size, expected, "{name} with {processes}");
        }
        assert_eq!(llama_model("llama3"), None);
    }
}
