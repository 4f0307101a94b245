//! Keys of `dataset`: the number of files, their format, size and location.

use super::super::names::FORMATS;
use super::super::schema::KeyStatus::{Later, NoEffect, Used};
use super::super::schema::ValueKind::{Choice, Columns, Flag, Integer, Integers, LooseFlag, Number, Text};
use super::super::schema::{KeyRow, row};
use super::{COUNT, MOST};

/// NumPy's names, in the order of `Element::ALL`; a test compares the two.
const ELEMENTS: &[&str] = &[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64",
];
const COMPRESSIONS: &[&str] = &["none", "gzip", "zip", "snappy", "zstd", "lz4", "lzf", "bz2", "xz"];
/// DLIO's law, whose file sizes have a standard deviation of S/sqrt(2) instead of the requested S; a law that gives S;
/// and one with normally distributed logarithms, as in image collections.
const SIZE_LAWS: &[&str] = &["dlio", "exact", "lognormal"];

const DEAD: &str = "DLIO itself never uses it";
const COMPUTED: &str = "feedline computes file names and never lists a folder";

pub(super) const ROWS: &[KeyRow] = &[
    row("dataset.format", Choice(FORMATS), "tfrecord", Used, "container format of the files"),
    row("dataset.data_folder", Text, "./data/", Used, "folder of the data set, below storage_root"),
    row("dataset.file_prefix", Text, "img", Used, "prefix of file names"),
    row("dataset.num_files_train", Integer(0, COUNT), "8", Used, "files of the training set"),
    row("dataset.num_files_eval", Integer(0, COUNT), "0", Used, "files of the evaluation set")
        .aliases(&["dataset.num_files_val"]),
    row(
        "dataset.num_files_generated",
        Integer(1, COUNT),
        "null",
        Used,
        "files that were generated, if only num_files_train of them are read",
    ),
    row(
        "dataset.catalog",
        Text,
        "null",
        Used,
        "catalog of the data set ('feedline catalog'); 'off' ignores one next to the data",
    ),
    row("dataset.num_samples_per_file", Integer(1, COUNT), "1", Used, "samples in one file"),
    row("dataset.num_subfolders_train", Integer(0, COUNT), "0", Used, "subfolders of the training files"),
    row("dataset.num_subfolders_eval", Integer(0, COUNT), "0", Used, "subfolders of the evaluation files")
        .aliases(&["dataset.num_subfolders_val"]),
    row("dataset.record_length_bytes", Number(1.0, MOST), "65536", Used, "bytes of one sample")
        .bytes()
        .aliases(&["dataset.record_length"]),
    row(
        "dataset.record_length_bytes_stdev",
        Number(0.0, MOST),
        "0",
        Used,
        "standard deviation of the sample sizes",
    )
    .bytes()
    .aliases(&["dataset.record_length_stdev", "dataset.record_length_byte_stdev"]),
    row(
        "dataset.record_length_bytes_resize",
        Number(0.0, MOST),
        "0",
        NoEffect("it sizes the tensor that DLIO passes to the framework; files and I/O do not depend on it"),
        "bytes of the delivered tensor",
    )
    .bytes()
    .aliases(&["dataset.record_length_resize"])
    .quiet(&["0"]),
    row(
        "dataset.size_law",
        Choice(SIZE_LAWS),
        "dlio",
        Used,
        "how varying sizes are drawn: DLIO's law, a law with exactly the requested deviation, or lognormal",
    ),
    row(
        "dataset.size_sigma",
        Number(0.0, 3.0),
        "null",
        Used,
        "sigma of the lognormal law, whose median is record_length_bytes; default: 0.5",
    ),
    row(
        "dataset.compressible",
        Number(0.0, 0.95),
        "0",
        Used,
        "share of the content that a compressor can remove",
    )
    .share(),
    row("dataset.record_dims", Integers(1), "[]", Used, "dimensions of one sample, instead of its length"),
    row("dataset.record_element_type", Choice(ELEMENTS), "uint8", Used, "NumPy type of one element"),
    row(
        "dataset.record_element_bytes",
        Integer(1, COUNT),
        "4",
        NoEffect("the element type determines it"),
        "bytes of one element",
    ),
    row("dataset.compression", Choice(COMPRESSIONS), "none", Used, "compression of the files"),
    row("dataset.compression_level", Integer(0, 9), "4", Used, "effort of the compression"),
    row("dataset.enable_chunking", Flag, "false", NoEffect(DEAD), "HDF5 chunks").quiet(&["false"]),
    row("dataset.chunk_size", Integer(0, COUNT), "0", NoEffect(DEAD), "HDF5 chunk size")
        .bytes()
        .quiet(&["0"]),
    row(
        "dataset.generation_buffer_size",
        Integer(1, COUNT),
        "2147483648",
        NoEffect("feedline generates block by block in bounded memory"),
        "buffer of DLIO's generator",
    )
    .bytes(),
    row(
        "dataset.keep_files",
        Flag,
        "true",
        Later("feedline does not delete data sets yet"),
        "keep the files",
    ),
    row(
        "dataset.data_gen_method",
        Text,
        "null",
        NoEffect("feedline has one generator; dataset.compressible controls its content"),
        "library that fills the files",
    ),
    row("dataset.skip_listing", LooseFlag, "false", NoEffect(COMPUTED), "build the names instead of listing")
        .quiet(&["true"]),
    row(
        "dataset.listing_validation_interval",
        Integer(0, COUNT),
        "1000",
        NoEffect(COMPUTED),
        "how often a built name is checked",
    ),
    row(
        "dataset.total_disk_bytes",
        Number(0.0, MOST),
        "null",
        NoEffect("it is only informative; the plan shows the size of the files"),
        "size of the data set on disk",
    )
    .bytes(),
    row("dataset.hdf5.chunk_dims", Integers(1), "[]", Used, "HDF5 chunk shape"),
    row("dataset.hdf5.num_dset_per_record", Integer(1, COUNT), "1", Used, "HDF5 datasets per sample")
        .aliases(&["dataset.hdf5.num_dataset_per_record"]),
    row("dataset.hdf5.max_shape", Integers(1), "[]", Used, "HDF5 resizable shape"),
    row("dataset.parquet.columns", Columns, "[]", Used, "columns of a row"),
    row("dataset.parquet.row_group_size", Integer(1, COUNT), "1024", Used, "rows of a row group"),
    row(
        "dataset.parquet.read_mode",
        Choice(&["row_group", "file"]),
        "row_group",
        NoEffect("one visit always reads a row group; row_group_size and reader.access apply"),
        "what one read fetches",
    )
    .quiet(&["row_group"]),
    row(
        "dataset.parquet.partition_by",
        Text,
        "null",
        Later("partitioned files are not supported yet"),
        "column that partitions the files",
    ),
    row(
        "dataset.parquet.generation_batch_size",
        Integer(0, COUNT),
        "0",
        NoEffect("feedline writes page by page in bounded memory"),
        "rows per write; 0: a row group",
    ),
    row(
        "dataset.parquet.use_s3dlio_gen",
        Flag,
        "false",
        NoEffect("feedline has its own generator"),
        "library that fills the files",
    )
    .quiet(&["false"]),
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_element_names_are_those_of_the_type() {
        let names: Vec<&str> = crate::shape::Element::ALL.iter().map(|element| element.name()).collect();
        assert_eq!(super::ELEMENTS, names);
    }
}
