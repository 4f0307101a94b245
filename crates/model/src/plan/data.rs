//! The data set of a plan: the number of files, the source of their names and sizes, and the bytes of one visit.

use std::ops::{Deref, Range};
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::PlanError;
use crate::files::Computed;
use crate::ledger::{FileTotals, Phase};
use crate::names::Names;
use crate::order::{Permutation, Unit};
use crate::shape::{Element, FileShape};
use crate::sizes::Sizes;
use crate::spec::Spec;

/// A format's size arithmetic, as far as a plan needs it.
pub trait Measure: std::fmt::Debug {
    /// The size of a file of this shape, or why such a file is impossible.
    fn file_size(&self, shape: &FileShape<'_>) -> Result<FileSize, String>;
    /// Bytes read to get these samples of a file in one visit.
    fn read_bytes(&self, shape: &FileShape<'_>, samples: Range<u64>) -> Result<u64, String>;
    /// Requests of at most `largest` bytes that this takes.
    fn requests(&self, shape: &FileShape<'_>, samples: Range<u64>, largest: u64) -> Result<u64, String>;
    /// The smallest part of a file that can be read on its own.
    fn unit(&self, shape: &FileShape<'_>) -> Unit;
    /// Whether files are read as streams, from start to end.
    fn streams(&self) -> bool;
    /// The file name suffix.
    fn suffix(&self) -> &str;
}

/// The length of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSize {
    pub bytes: u64,
    /// False for a compressed file: the length is an upper bound.
    pub exact: bool,
    /// The total length of the small files that belong to it.
    pub side_bytes: u64,
}

/// The files of one split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    pub names: Names,
    /// Files to read; `names.count` may be larger.
    pub files: u64,
    pub samples_per_file: u64,
    /// Number of the split's first file in the whole data set; train files come first.
    pub first_file: u64,
    /// Total size of the files to read.
    pub bytes: u64,
}

impl Split {
    pub fn samples(&self) -> u64 {
        self.files.saturating_mul(self.samples_per_file)
    }

    /// The files, as recorded in a ledger.
    pub fn stored(&self) -> FileTotals {
        FileTotals { files: self.files, bytes: self.bytes }
    }
}

/// What a list of existing files says about them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Identifies paths and sizes.
    pub digest: String,
    /// The origin of the list.
    #[serde(default, skip_serializing_if = "ListOrigin::is_catalog")]
    pub origin: ListOrigin,
    pub train: ListedSplit,
    pub valid: ListedSplit,
}

/// Where a list of existing files comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListOrigin {
    /// A catalog, which is a file.
    #[default]
    Catalog,
    /// Computed names and the sizes that the files had before the run.
    SizesAsFound,
}

impl ListOrigin {
    fn is_catalog(&self) -> bool {
        *self == ListOrigin::Catalog
    }
}

/// The files of one split, as a range of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSplit {
    /// Number of the first file in the list.
    pub first: u64,
    /// Files to read, and their bytes.
    pub files: u64,
    pub bytes: u64,
}

/// Where the names and sizes of the files come from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Option<Listed>")]
pub enum FileSource {
    /// Computed, as feedline writes them.
    Computed(SizeTables),
    /// Computed, but without tables: a plan that was read back lacks them, because they follow from the workload.
    /// `Plan::restore` computes them.
    #[default]
    Unrestored,
    /// From a catalog of existing files.
    Listed(Listed),
    /// Computed names of existing files, whose sizes were taken as found.
    Found(FoundFiles),
}

/// Existing files with computed names, and the sizes that they had before the run.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundFiles {
    listed: Listed,
    first_name: String,
    /// The sizes of the files to read, by their number in the split. Plans share them, because there may be millions.
    sizes: Arc<[FileBytes; 2]>,
}

impl FoundFiles {
    /// The files of the training split and, if they are read, of the validation split, with their sizes.
    pub fn new(train: (&Split, FileBytes), valid: Option<(&Split, FileBytes)>) -> FoundFiles {
        let mut hash = Sha256::new();
        let mut list = |split: &Split, sizes: &FileBytes, first: u64| {
            hash.update(format!("{} {} ", split.names.of(0), split.files));
            match sizes {
                FileBytes::Same(bytes) => hash.update(bytes.to_le_bytes()),
                FileBytes::Each(all) => all.iter().for_each(|bytes| hash.update(bytes.to_le_bytes())),
            }
            ListedSplit { first, files: split.files, bytes: sizes.sum(0, split.files) }
        };
        let first_name = train.0.names.of(0);
        let (train, train_sizes) = (list(train.0, &train.1, 0), train.1);
        let (valid, valid_sizes) = match valid {
            Some((split, sizes)) => (list(split, &sizes, train.files), sizes),
            None => (ListedSplit::default(), FileBytes::Same(0)),
        };
        let digest = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let listed = Listed { digest, origin: ListOrigin::SizesAsFound, train, valid };
        FoundFiles { listed, first_name, sizes: Arc::new([train_sizes, valid_sizes]) }
    }

    /// The files of a workload with their nominal sizes, until their real ones are known. Their format may not allow
    /// such sizes.
    pub fn nominal(spec: &Spec, measure: &dyn Measure) -> Result<FoundFiles, PlanError> {
        let [train, valid] = splits(spec, Some(measure))?;
        let bytes = nominal_record_bytes(spec) * train.samples_per_file as f64;
        let sizes = FileBytes::Same((bytes as u64).max(1));
        Ok(FoundFiles::new((&train, sizes.clone()), Some((&valid, sizes))))
    }

    /// The name of the first training file.
    pub fn first_name(&self) -> &str {
        &self.first_name
    }

    /// Identifies the names and sizes.
    pub fn digest(&self) -> &str {
        &self.listed.digest
    }
}

impl From<Option<Listed>> for FileSource {
    fn from(listed: Option<Listed>) -> FileSource {
        listed.map_or(FileSource::Unrestored, FileSource::Listed)
    }
}

/// Serialized as the facts about existing files, or null.
impl Serialize for FileSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            FileSource::Listed(listed) | FileSource::Found(FoundFiles { listed, .. }) => {
                Some(listed).serialize(serializer)
            }
            FileSource::Computed(_) | FileSource::Unrestored => serializer.serialize_none(),
        }
    }
}

/// The sizes of samples and files, by the number of the file in the whole data set.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeTables {
    pub samples: Sizes,
    pub files: FileBytes,
}

/// The size of each file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileBytes {
    Same(u64),
    Each(Vec<u64>),
}

impl FileBytes {
    pub fn of(&self, file: u64) -> u64 {
        match self {
            FileBytes::Same(bytes) => *bytes,
            FileBytes::Each(bytes) => bytes[file as usize],
        }
    }

    fn sum(&self, first: u64, count: u64) -> u64 {
        match self {
            FileBytes::Same(bytes) => bytes.saturating_mul(count),
            FileBytes::Each(bytes) => bytes[first as usize..(first + count) as usize]
                .iter()
                .fold(0, |sum, bytes| sum.saturating_add(*bytes)),
        }
    }

    fn table_bytes(&self) -> u64 {
        match self {
            FileBytes::Same(_) => 0,
            FileBytes::Each(bytes) => (size_of::<u64>() * bytes.len()) as u64,
        }
    }

    fn largest(&self) -> u64 {
        match self {
            FileBytes::Same(bytes) => *bytes,
            FileBytes::Each(bytes) => bytes.iter().copied().max().unwrap_or(0),
        }
    }
}

/// The whole data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    pub train: Split,
    pub valid: Split,
    pub element: Element,
    /// Whether sizes are exact. For compressed files they are upper bounds; for an unsupported format they cover only
    /// the samples.
    pub exact: bool,
    /// The smallest part of a file that can be read on its own.
    pub unit: Unit,
    /// Whether files are read as streams, from start to end.
    pub streams: bool,
    /// Bytes read per byte stored: above 1 if metadata is read again for each sample, below 1 if columns are skipped.
    pub read_ratio: f64,
    /// Bytes read to get the first unit of the first file; `None` if unknown.
    pub visit_bytes: Option<u64>,
    /// The total size of the small files that belong to the data files.
    pub side_bytes: u64,
    #[serde(rename = "listed", default)]
    pub source: FileSource,
}

impl Data {
    /// The data set of a spec; `measure` is the format's arithmetic, or `None` if the format is not supported.
    pub fn resolve(spec: &Spec, measure: Option<&dyn Measure>) -> Result<Data, PlanError> {
        let (set, splits) = (&spec.dataset, splits(spec, measure)?);
        let (element, files) = (set.record_element_type, splits.iter().map(|split| split.names.count).sum());
        let sizes = sizes(spec, files);
        let (file_bytes, side_bytes) = file_bytes(spec, measure, &sizes, files)?;
        let [train, valid] =
            splits.map(|split| Split { bytes: file_bytes.sum(split.first_file, split.files), ..split });
        let visit = sizes.with_shape(0, element, set.num_samples_per_file, |shape| {
            match spec.reads_whole_files() {
                true => VisitShape::of_whole_files(measure, shape),
                false => VisitShape::of(measure, shape),
            }
        })?;
        Ok(Data {
            train,
            valid,
            element,
            exact: visit.exact,
            unit: visit.unit,
            streams: visit.streams,
            read_ratio: visit.read_ratio * spec.reader.rereads as f64,
            visit_bytes: visit.bytes.map(|bytes| bytes.saturating_mul(spec.reader.rereads)),
            side_bytes,
            source: FileSource::Computed(SizeTables { samples: sizes, files: file_bytes }),
        })
    }

    /// The data set that a catalog lists, with its names, counts and sizes.
    pub(super) fn of_listed(
        spec: &Spec,
        measure: Option<&dyn Measure>,
        listed: &Listed,
    ) -> Result<Data, PlanError> {
        let set = &spec.dataset;
        let samples = set.num_samples_per_file;
        check_samples(&[(Phase::Train, listed.train.files), (Phase::Eval, listed.valid.files)], samples)?;
        // The content of the files is found when they are read; only their number of samples is assumed.
        let shape = FileShape { dims: &set.record_dims, element: set.record_element_type, samples };
        let split = |folder: &str, files: &ListedSplit, first_file| Split {
            names: names(spec, folder, files.files, 0, &set.format),
            files: files.files,
            samples_per_file: samples,
            first_file,
            bytes: files.bytes,
        };
        Ok(Data {
            train: split("train", &listed.train, 0),
            valid: split("valid", &listed.valid, listed.train.files),
            element: set.record_element_type,
            exact: true,
            unit: measure.map_or(Unit::File, |measure| measure.unit(&shape)),
            streams: measure.is_some_and(|measure| measure.streams()),
            read_ratio: 1.0,
            visit_bytes: None,
            side_bytes: 0,
            source: FileSource::Listed(listed.clone()),
        })
    }

    /// A data set with the names that the spec describes and the sizes that its files have.
    pub(super) fn of_found(
        spec: &Spec,
        measure: Option<&dyn Measure>,
        found: &FoundFiles,
    ) -> Result<Data, PlanError> {
        let [train, valid] = splits(spec, measure)?;
        let listed = Data::of_listed(spec, measure, &found.listed)?;
        let train = Split { bytes: found.listed.train.bytes, ..train };
        let valid = Split { bytes: found.listed.valid.bytes, ..valid };
        Ok(Data { train, valid, source: FileSource::Found(found.clone()), ..listed })
    }

    /// Files of the whole data set, including those that are generated but not read.
    pub fn files(&self) -> u64 {
        self.train.names.count + self.valid.names.count
    }

    /// Bytes of the whole data set on disk; without size tables, those of the files to read.
    pub fn bytes(&self) -> u64 {
        let files = match self.tables() {
            Some(tables) => tables.files.sum(0, self.files()),
            None => self.train.bytes.saturating_add(self.valid.bytes),
        };
        files.saturating_add(self.side_bytes)
    }

    /// The list of existing files, if the run reads such files.
    pub fn listed(&self) -> Option<&Listed> {
        match &self.source {
            FileSource::Listed(listed) | FileSource::Found(FoundFiles { listed, .. }) => Some(listed),
            FileSource::Computed(_) | FileSource::Unrestored => None,
        }
    }

    /// The training and validation files, if their sizes were taken as found.
    pub fn found(&self) -> Option<[Computed<'_>; 2]> {
        let FileSource::Found(FoundFiles { sizes, .. }) = &self.source else { return None };
        let [train, valid] = &**sizes;
        Some([Computed::new(&self.train, 0, train), Computed::new(&self.valid, 0, valid)])
    }

    /// The data set with the sizes of its files, if they are computed.
    pub fn computed(&self) -> Option<ComputedData<'_>> {
        self.tables().map(|tables| ComputedData { data: self, tables })
    }

    fn tables(&self) -> Option<&SizeTables> {
        match &self.source {
            FileSource::Computed(tables) => Some(tables),
            FileSource::Unrestored | FileSource::Listed(_) | FileSource::Found(_) => None,
        }
    }

    /// The size of the largest file, if sizes are computed or were found.
    pub(super) fn largest_file(&self) -> Option<u64> {
        match &self.source {
            FileSource::Found(found) => found.sizes.iter().map(FileBytes::largest).max(),
            _ => self.tables().map(|tables| tables.files.largest()),
        }
    }

    /// The maximum memory of one sample; for existing files, the average.
    pub(super) fn largest_sample(&self) -> u64 {
        match self.largest_file() {
            Some(largest) => largest.div_ceil(self.train.samples_per_file.max(1)),
            None => self.train.bytes.div_ceil(self.train.samples().max(1)),
        }
    }

    /// Memory used by the size tables.
    pub(super) fn table_bytes(&self) -> u64 {
        match &self.source {
            FileSource::Found(found) => found.sizes.iter().map(FileBytes::table_bytes).sum(),
            _ => self.tables().map_or(0, |tables| tables.samples.table_bytes() + tables.files.table_bytes()),
        }
    }
}

/// A data set with computed names and sizes. Only this type gives the shape and size of a single file; those of
/// existing files are in their catalog.
#[derive(Clone, Copy, Debug)]
pub struct ComputedData<'a> {
    data: &'a Data,
    tables: &'a SizeTables,
}

impl Deref for ComputedData<'_> {
    type Target = Data;

    fn deref(&self) -> &Data {
        self.data
    }
}

impl<'a> ComputedData<'a> {
    /// The size of a file, by its number in the whole data set.
    pub fn file_bytes(self, file: u64) -> u64 {
        self.tables.files.of(file)
    }

    /// The sizes of all files.
    pub(crate) fn all_file_bytes(self) -> &'a FileBytes {
        &self.tables.files
    }

    /// Calls `f` with the shape of a file.
    pub fn with_shape<T>(self, file: u64, f: impl FnOnce(&FileShape<'_>) -> T) -> T {
        self.tables.samples.with_shape(file, self.element, self.train.samples_per_file, f)
    }

    /// Whether all files have the same shape.
    pub fn is_uniform(self) -> bool {
        matches!(self.tables.samples, Sizes::Same(_))
    }

    /// The name of a file.
    pub fn name_of(self, file: u64) -> String {
        match file.checked_sub(self.valid.first_file) {
            Some(index) => self.valid.names.of(index),
            None => self.train.names.of(file),
        }
    }

    /// The files of a split.
    pub fn files_of(self, split: &Split) -> Computed<'a> {
        Computed::new(split, split.first_file, &self.tables.files)
    }
}

/// Bytes of a sample as stated in the workload, on which DLIO's MB/s and MLPerf's size rule are based.
pub(super) fn nominal_record_bytes(spec: &Spec) -> f64 {
    let set = &spec.dataset;
    if set.record_dims.is_empty() {
        // A lognormal law is stated by its median; its mean is larger.
        set.record_length_bytes * set.size_sigma.map_or(1.0, |sigma| (sigma * sigma / 2.0).exp())
    } else {
        FileShape { dims: &set.record_dims, element: set.record_element_type, samples: 1 }.sample_bytes()
            as f64
    }
}

/// One visit to a file.
struct VisitShape {
    exact: bool,
    unit: Unit,
    streams: bool,
    read_ratio: f64,
    bytes: Option<u64>,
}

/// The reads of larger files are not counted for a plan: it would take too long.
const MOST_COUNTED: u64 = 16 << 30;

impl VisitShape {
    /// If every sample reads the whole file.
    fn of_whole_files(measure: Option<&dyn Measure>, shape: &FileShape<'_>) -> Result<VisitShape, PlanError> {
        let visit = VisitShape::of(measure, shape)?;
        let size = measure.map(|measure| measure.file_size(shape)).transpose().map_err(PlanError::Format)?;
        let bytes = size.filter(|size| size.exact).map(|size| size.bytes);
        Ok(VisitShape { read_ratio: shape.samples as f64, bytes, ..visit })
    }

    fn of(measure: Option<&dyn Measure>, shape: &FileShape<'_>) -> Result<VisitShape, PlanError> {
        let Some(measure) = measure else {
            let unit = Unit::Sample;
            return Ok(VisitShape { exact: false, unit, streams: false, read_ratio: 1.0, bytes: None });
        };
        let FileSize { bytes: file_bytes, exact, .. } =
            measure.file_size(shape).map_err(PlanError::Format)?;
        let (unit, streams) = (measure.unit(shape), measure.streams());
        // Samples are read one by one; larger units once, by the first reader that needs them.
        let together = if unit == Unit::Sample { 1 } else { shape.samples };
        let share = together as f64 / shape.samples as f64;
        let (mut bytes, mut read_ratio) = (None, 1.0);
        if exact && file_bytes as f64 * share <= MOST_COUNTED as f64 {
            let read = measure.read_bytes(shape, 0..together).map_err(PlanError::Format)?;
            read_ratio = read as f64 / (share * file_bytes.max(1) as f64);
            bytes = Some(read);
        }
        Ok(VisitShape { exact, unit, streams, read_ratio, bytes })
    }
}

/// Checks that the number of samples can be ordered.
fn check_samples(phases: &[(Phase, u64)], samples_per_file: u64) -> Result<(), PlanError> {
    for &(phase, files) in phases {
        let samples = u128::from(files) * u128::from(samples_per_file);
        if samples > u128::from(Permutation::MAX) {
            return Err(PlanError::TooManySamples { phase, samples });
        }
    }
    Ok(())
}

/// The training and the validation files, without their sizes.
fn splits(spec: &Spec, measure: Option<&dyn Measure>) -> Result<[Split; 2], PlanError> {
    let set = &spec.dataset;
    // The spec has checked that at least as many files are generated as are read.
    let count = set.num_files_generated.unwrap_or(set.num_files_train);
    check_samples(
        &[(Phase::Train, set.num_files_train), (Phase::Eval, set.num_files_eval)],
        set.num_samples_per_file,
    )?;
    if set.file_prefix.is_empty() || set.file_prefix.contains(['/', '\0']) {
        return Err(PlanError::Prefix(set.file_prefix.clone()));
    }
    let suffix = measure.map_or(set.format.as_str(), |measure| measure.suffix());
    let split = |folder: &str, files, count, subfolders, first_file| Split {
        names: names(spec, folder, count, subfolders, suffix),
        files,
        samples_per_file: set.num_samples_per_file,
        first_file,
        bytes: 0,
    };
    Ok([
        split("train", set.num_files_train, count, set.num_subfolders_train, 0),
        split("valid", set.num_files_eval, set.num_files_eval, set.num_subfolders_eval, count),
    ])
}

fn names(spec: &Spec, folder: &str, count: u64, subfolders: u64, suffix: &str) -> Names {
    Names {
        folder: folder.to_owned(),
        prefix: spec.dataset.file_prefix.clone(),
        count,
        subfolders,
        suffix: suffix.to_owned(),
    }
}

fn sizes(spec: &Spec, files: u64) -> Sizes {
    let set = &spec.dataset;
    if !set.record_dims.is_empty() {
        return Sizes::Same(set.record_dims.clone());
    }
    let (length, stdev) = (set.record_length_bytes, set.record_length_bytes_stdev);
    match set.size_sigma {
        // Nothing in a raw file is an array, so its samples need not be square.
        None if set.format == "raw" && stdev == 0.0 => {
            Sizes::Same(vec![(length as u64 / set.record_element_type.size()).max(1)])
        }
        Some(sigma) => Sizes::lognormal(length, sigma, files),
        None if set.size_law == "exact" => Sizes::exact(length, stdev, files),
        None => Sizes::dlio(length, stdev, files),
    }
}

/// The size of every file, and the total size of the side files.
fn file_bytes(
    spec: &Spec,
    measure: Option<&dyn Measure>,
    sizes: &Sizes,
    files: u64,
) -> Result<(FileBytes, u64), PlanError> {
    let set = &spec.dataset;
    let of = |file: u64| {
        sizes.with_shape(file, set.record_element_type, set.num_samples_per_file, |shape| match measure {
            Some(measure) => measure.file_size(shape).map_err(PlanError::Format),
            None => Ok(FileSize { bytes: shape.payload_bytes(), exact: false, side_bytes: 0 }),
        })
    };
    let (mut all, mut side_bytes) = (0, 0);
    let mut count = |size: FileSize, files: u64| {
        all += (u128::from(size.bytes) + u128::from(size.side_bytes)) * u128::from(files);
        side_bytes += u128::from(size.side_bytes) * u128::from(files);
        size.bytes
    };
    let file_bytes = match sizes {
        Sizes::Same(_) => FileBytes::Same(count(of(0)?, files)),
        Sizes::Drawn(_) => {
            let sizes = (0..files).map(|file| Ok(count(of(file)?, 1)));
            FileBytes::Each(sizes.collect::<Result<_, PlanError>>()?)
        }
    };
    u64::try_from(all).map_err(|_| PlanError::TooManyBytes(all))?;
    Ok((file_bytes, side_bytes as u64))
}
