//! The data set of a plan: how many files, how they are called, how large each one is.

use serde::{Deserialize, Serialize};

use super::PlanError;
use crate::files::Computed;
use crate::ledger::Phase;
use crate::names::Names;
use crate::order::Permutation;
use crate::shape::{Element, FileShape};
use crate::sizes::Sizes;
use crate::spec::Spec;

/// A format's size arithmetic, as far as a plan needs it.
pub trait Measure: std::fmt::Debug {
    /// The exact size of a file of this shape, or why there can be no such file.
    fn file_bytes(&self, shape: &FileShape<'_>) -> Result<u64, String>;
}

/// The files of one split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    pub names: Names,
    /// Files that are read; `names.count` may be larger.
    pub files: u64,
    pub samples_per_file: u64,
    /// Number of the split's first file in the whole data set, train before valid.
    pub first_file: u64,
    /// All files that are read, together.
    pub bytes: u64,
}

impl Split {
    pub fn samples(&self) -> u64 {
        self.files.saturating_mul(self.samples_per_file)
    }
}

/// What a catalog says about files that somebody else wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Identifies paths and sizes.
    pub digest: String,
    pub train: ListedSplit,
    pub valid: ListedSplit,
}

/// The files of one split, as a stretch of the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSplit {
    /// Number of the first file in the catalog.
    pub first: u64,
    /// Files that are read, and their bytes.
    pub files: u64,
    pub bytes: u64,
}

/// The size of each file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileBytes {
    Same(u64),
    /// Indexed by the file's number in the whole data set.
    Each(Vec<u64>),
    /// In the catalog.
    Listed,
}

impl FileBytes {
    pub fn of(&self, file: u64) -> u64 {
        match self {
            FileBytes::Same(bytes) => *bytes,
            FileBytes::Each(bytes) => bytes[file as usize],
            // Whoever reads listed files asks the catalog.
            FileBytes::Listed => 0,
        }
    }

    fn sum(&self, first: u64, count: u64) -> u64 {
        match self {
            FileBytes::Same(bytes) => bytes.saturating_mul(count),
            FileBytes::Each(bytes) => bytes[first as usize..(first + count) as usize].iter().sum(),
            FileBytes::Listed => 0,
        }
    }

    fn table_bytes(&self) -> u64 {
        match self {
            FileBytes::Same(_) | FileBytes::Listed => 0,
            FileBytes::Each(bytes) => (size_of::<u64>() * bytes.len()) as u64,
        }
    }
}

/// The whole data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    pub train: Split,
    pub valid: Split,
    pub element: Element,
    /// False while the format cannot be written or read: then sizes are the samples' alone, without the container.
    pub exact: bool,
    /// The catalog that the files are taken from; without one their names are computed.
    pub listed: Option<Listed>,
    #[serde(skip, default = "no_sizes")]
    pub sizes: Sizes,
    #[serde(skip, default = "no_file_bytes")]
    pub file_bytes: FileBytes,
}

// A plan that was read back is for looking at; the tables are recomputed from the spec before anything is run.
fn no_sizes() -> Sizes {
    Sizes::Same(Vec::new())
}

fn no_file_bytes() -> FileBytes {
    FileBytes::Same(0)
}

impl Data {
    /// The data set of a spec; `measure` is the format's arithmetic, or `None` while the format is not supported.
    pub fn resolve(spec: &Spec, measure: Option<&dyn Measure>) -> Result<Data, PlanError> {
        let set = &spec.dataset;
        // The spec has checked that no more files are read than were generated.
        let count = set.num_files_generated.unwrap_or(set.num_files_train);
        for (phase, files) in [(Phase::Train, set.num_files_train), (Phase::Eval, set.num_files_eval)] {
            let samples = u128::from(files) * u128::from(set.num_samples_per_file);
            if samples > u128::from(Permutation::MAX) {
                return Err(PlanError::TooManySamples { phase, samples });
            }
        }
        if set.file_prefix.is_empty() || set.file_prefix.contains(['/', '\0']) {
            return Err(PlanError::Prefix(set.file_prefix.clone()));
        }
        let element = set.record_element_type;
        let sizes = sizes(spec, count + set.num_files_eval);
        let file_bytes = file_bytes(spec, measure, &sizes, count + set.num_files_eval)?;
        if let FileBytes::Same(bytes) = file_bytes {
            let all = u128::from(bytes) * u128::from(count + set.num_files_eval);
            u64::try_from(all).map_err(|_| PlanError::TooManyBytes(all))?;
        }
        let split = |folder: &str, files, count, subfolders, first_file| Split {
            names: names(spec, folder, count, subfolders),
            files,
            samples_per_file: set.num_samples_per_file,
            first_file,
            bytes: file_bytes.sum(first_file, files),
        };
        Ok(Data {
            train: split("train", set.num_files_train, count, set.num_subfolders_train, 0),
            valid: split("valid", set.num_files_eval, set.num_files_eval, set.num_subfolders_eval, count),
            element,
            exact: measure.is_some(),
            listed: None,
            sizes,
            file_bytes,
        })
    }

    /// The data set that a catalog lists. Names, counts and sizes of the files are the catalog's.
    pub(super) fn of_listed(spec: &Spec, listed: &Listed) -> Result<Data, PlanError> {
        let set = &spec.dataset;
        if set.num_samples_per_file != 1 {
            return Err(PlanError::ListedSamples(set.num_samples_per_file));
        }
        let split = |folder: &str, files: &ListedSplit, first_file| Split {
            names: names(spec, folder, files.files, 0),
            files: files.files,
            samples_per_file: 1,
            first_file,
            bytes: files.bytes,
        };
        Ok(Data {
            train: split("train", &listed.train, 0),
            valid: split("valid", &listed.valid, listed.train.files),
            element: set.record_element_type,
            exact: true,
            listed: Some(listed.clone()),
            sizes: Sizes::Same(Vec::new()),
            file_bytes: FileBytes::Listed,
        })
    }

    /// Files of the whole data set, also those that are generated and not read.
    pub fn files(&self) -> u64 {
        self.train.names.count + self.valid.names.count
    }

    /// Bytes of the whole data set on disk.
    pub fn bytes(&self) -> u64 {
        match self.file_bytes {
            FileBytes::Listed => self.train.bytes + self.valid.bytes,
            _ => self.file_bytes.sum(0, self.files()),
        }
    }

    /// The files of a split, by rule and law.
    pub fn computed(&self, split: &Split) -> Computed<'_> {
        Computed::new(split, &self.file_bytes)
    }

    pub(super) fn largest_file(&self) -> u64 {
        match &self.file_bytes {
            FileBytes::Same(bytes) => *bytes,
            FileBytes::Each(bytes) => bytes.iter().copied().max().unwrap_or(0),
            FileBytes::Listed => u64::MAX >> 1,
        }
    }

    /// Memory that the size tables take.
    pub(super) fn table_bytes(&self) -> u64 {
        self.sizes.table_bytes() + self.file_bytes.table_bytes()
    }
}

/// Bytes of a sample as the workload states them: what DLIO's MB/s and MLPerf's size rule are made of.
pub(super) fn nominal_record_bytes(spec: &Spec) -> f64 {
    let set = &spec.dataset;
    if set.record_dims.is_empty() {
        set.record_length_bytes
    } else {
        FileShape { dims: &set.record_dims, element: set.record_element_type, samples: 1 }.sample_bytes()
            as f64
    }
}

fn names(spec: &Spec, folder: &str, count: u64, subfolders: u64) -> Names {
    Names {
        folder: folder.to_owned(),
        prefix: spec.dataset.file_prefix.clone(),
        count,
        subfolders,
        suffix: spec.dataset.format.clone(),
    }
}

fn sizes(spec: &Spec, files: u64) -> Sizes {
    let set = &spec.dataset;
    if set.record_dims.is_empty() {
        Sizes::dlio(set.record_length_bytes, set.record_length_bytes_stdev, files)
    } else {
        Sizes::Same(set.record_dims.clone())
    }
}

fn file_bytes(
    spec: &Spec,
    measure: Option<&dyn Measure>,
    sizes: &Sizes,
    files: u64,
) -> Result<FileBytes, PlanError> {
    let set = &spec.dataset;
    let of = |file: u64| {
        sizes.with_shape(file, set.record_element_type, set.num_samples_per_file, |shape| match measure {
            Some(measure) => measure.file_bytes(shape).map_err(PlanError::Format),
            None => Ok(shape.payload_bytes()),
        })
    };
    match sizes {
        Sizes::Same(_) => of(0).map(FileBytes::Same),
        Sizes::Drawn(_) => (0..files).map(of).collect::<Result<_, _>>().map(FileBytes::Each),
    }
}
