//! The options of formats beyond shapes: compression, layout and access.

use model::spec::{Access, Column, Spec};

/// The settings of formats. Each format uses those that apply to it, and refuses unsupported ones when it is
/// built.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatOptions {
    /// How samples are read.
    pub access: Access,
    /// Buffer size of readers that stream a file, if the workload sets it.
    pub transfer_bytes: Option<u64>,
    /// The value of `dataset.compression`.
    pub compression: String,
    /// From 0 (fastest) to 9.
    pub compression_level: u32,
    pub hdf5: Hdf5Options,
    pub columns: ColumnOptions,
}

/// The layout of HDF5 files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hdf5Options {
    /// Shape of a chunk; empty: one piece.
    pub chunk_dims: Vec<u64>,
    /// Data sets that a sample is split into; 0 means 1.
    pub datasets_per_sample: u64,
    /// Maximum dimensions of a sample; empty: fixed.
    pub max_shape: Vec<u64>,
}

/// The layout of formats that store columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnOptions {
    /// Empty: one column `data` of the samples' elements.
    pub columns: Vec<Column>,
    /// Rows that are stored together.
    pub group_rows: u64,
}

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions {
            access: Access::Framework,
            transfer_bytes: None,
            compression: "none".to_owned(),
            compression_level: 4,
            hdf5: Hdf5Options::default(),
            columns: ColumnOptions { columns: Vec::new(), group_rows: 1024 },
        }
    }
}

impl FormatOptions {
    /// The options that a workload sets.
    pub fn of(spec: &Spec) -> FormatOptions {
        let set = &spec.dataset;
        FormatOptions {
            access: spec.reader.access,
            transfer_bytes: spec.reader.transfer_size,
            compression: set.compression.clone(),
            compression_level: set.compression_level as u32,
            hdf5: Hdf5Options {
                chunk_dims: set.hdf5.chunk_dims.clone(),
                datasets_per_sample: set.hdf5.num_dset_per_record,
                max_shape: set.hdf5.max_shape.clone(),
            },
            columns: ColumnOptions {
                columns: set.parquet.columns.clone(),
                group_rows: set.parquet.row_group_size,
            },
        }
    }
}
