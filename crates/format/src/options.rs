//! What a data set asks of its format beyond shapes: how it is compressed, laid out, and read.

use model::spec::{Access, Column, Spec};

/// The settings that formats look at. Each takes what concerns it; what a format cannot do it refuses when it is
/// built.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How samples are taken out of files.
    pub access: Access,
    /// Buffer of readers that stream a file, where the workload names one.
    pub transfer_bytes: Option<u64>,
    /// The word of `dataset.compression`.
    pub compression: String,
    /// From 0 (fastest) to 9.
    pub compression_level: u32,
    pub hdf5: Hdf5,
    pub columns: Columns,
}

/// The layout of HDF5 files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hdf5 {
    /// Shape of a chunk; empty: one piece.
    pub chunk_dims: Vec<u64>,
    /// Data sets that a sample is split over; 0 counts as 1.
    pub datasets_per_sample: u64,
    /// Dimensions up to which a sample may grow; empty: it may not.
    pub max_shape: Vec<u64>,
}

/// The layout of formats that store columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Empty: one column `data` of the samples' elements.
    pub columns: Vec<Column>,
    /// Rows that are stored together.
    pub group_rows: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            access: Access::Framework,
            transfer_bytes: None,
            compression: "none".to_owned(),
            compression_level: 4,
            hdf5: Hdf5::default(),
            columns: Columns { columns: Vec::new(), group_rows: 1024 },
        }
    }
}

impl Options {
    /// What a workload says.
    pub fn of(spec: &Spec) -> Options {
        let set = &spec.dataset;
        Options {
            access: spec.reader.access,
            transfer_bytes: spec.reader.transfer_size,
            compression: set.compression.clone(),
            compression_level: set.compression_level as u32,
            hdf5: Hdf5 {
                chunk_dims: set.hdf5.chunk_dims.clone(),
                datasets_per_sample: set.hdf5.num_dset_per_record,
                max_shape: set.hdf5.max_shape.clone(),
            },
            columns: Columns { columns: set.parquet.columns.clone(), group_rows: set.parquet.row_group_size },
        }
    }
}
