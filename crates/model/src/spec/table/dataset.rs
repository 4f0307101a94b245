//! Keys of `dataset`: how many files, of which format and size, and where they are.

use super::super::names::FORMATS;
use super::super::schema::Kind::{Choice, Columns, Flag, Integer, Integers, LooseFlag, Number, Text};
use super::super::schema::Status::{Carried, Later, NoEffect, Used};
use super::super::schema::{Row, Status, row};
use super::{COUNT, MOST};

/// NumPy's names, in `Element::ALL`'s order; a test holds the two together.
const ELEMENTS: &[&str] = &[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64",
];
const COMPRESSIONS: &[&str] = &["none", "gzip", "lzf", "bz2", "zip", "xz"];

const HDF5: Status = Later("HDF5 files are written in the plain layout for now");
const PARQUET: Status = Carried("parquet is not there yet");
const COMPRESSED: Status = Later("files are written uncompressed for now");
const DEAD: &str = "DLIO itself never uses it";
const COMPUTED: &str = "feedline computes the names of the files and never lists a folder";

pub(super) const ROWS: &[Row] = &[
    row("dataset.format", Choice(FORMATS), "tfrecord", Used, "container format of the files"),
    row("dataset.data_folder", Text, "./data/", Used, "folder of the data set, below storage_root"),
    row("dataset.file_prefix", Text, "img", Used, "how file names begin"),
    row("dataset.num_files_train", Integer(0, COUNT), "8", Used, "files of the training set"),
    row("dataset.num_files_eval", Integer(0, COUNT), "0", Used, "files of the evaluation set"),
    row(
        "dataset.num_files_generated",
        Integer(1, COUNT),
        "null",
        Used,
        "files that were generated, when only num_files_train of them are read",
    ),
    row(
        "dataset.catalog",
        Text,
        "null",
        Used,
        "catalog of the data set ('feedline catalog'); 'off' ignores one that lies beside the data",
    ),
    row("dataset.num_samples_per_file", Integer(1, COUNT), "1", Used, "samples in one file"),
    row("dataset.num_subfolders_train", Integer(0, COUNT), "0", Used, "subfolders the training files lie in"),
    row(
        "dataset.num_subfolders_eval",
        Integer(0, COUNT),
        "0",
        Used,
        "subfolders the evaluation files lie in",
    ),
    row("dataset.record_length_bytes", Number(1.0, MOST), "65536", Used, "bytes of one sample")
        .aliases(&["dataset.record_length"]),
    row("dataset.record_length_bytes_stdev", Number(0.0, MOST), "0", Used, "spread of the sample sizes")
        .aliases(&["dataset.record_length_stdev"]),
    row(
        "dataset.record_length_bytes_resize",
        Number(0.0, MOST),
        "0",
        NoEffect("it sizes the tensor that DLIO hands to the framework; files and I/O do not depend on it"),
        "bytes of the tensor handed on",
    )
    .aliases(&["dataset.record_length_resize"])
    .quiet(&["0"]),
    row("dataset.record_dims", Integers(1), "[]", Used, "dimensions of one sample, instead of its length"),
    row("dataset.record_element_type", Choice(ELEMENTS), "uint8", Used, "NumPy type of one element"),
    row(
        "dataset.record_element_bytes",
        Integer(1, COUNT),
        "4",
        NoEffect("the element type already says it"),
        "bytes of one element",
    ),
    row("dataset.compression", Choice(COMPRESSIONS), "none", COMPRESSED, "compression of the files"),
    row("dataset.compression_level", Integer(0, 9), "4", COMPRESSED, "level of gzip"),
    row("dataset.enable_chunking", Flag, "false", NoEffect(DEAD), "HDF5 chunks").quiet(&["false"]),
    row("dataset.chunk_size", Integer(0, COUNT), "0", NoEffect(DEAD), "HDF5 chunk size").quiet(&["0"]),
    row(
        "dataset.generation_buffer_size",
        Integer(1, COUNT),
        "2147483648",
        NoEffect("feedline generates block by block in bounded memory"),
        "buffer of DLIO's generator",
    ),
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
        NoEffect("feedline's data is always generated and never compressible"),
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
        NoEffect("it is a note for people; the plan says what the files take"),
        "size of the data set on disk",
    ),
    row("dataset.hdf5.chunk_dims", Integers(1), "[]", HDF5, "HDF5 chunk shape"),
    row(
        "dataset.hdf5.num_dset_per_record",
        Integer(1, COUNT),
        "1",
        HDF5,
        "HDF5 datasets a sample is split over",
    ),
    row("dataset.hdf5.max_shape", Integers(1), "[]", HDF5, "HDF5 resizable shape"),
    row("dataset.parquet.columns", Columns, "[]", PARQUET, "columns of a row"),
    row("dataset.parquet.row_group_size", Integer(1, COUNT), "1024", PARQUET, "rows of a row group"),
    row(
        "dataset.parquet.read_mode",
        Choice(&["row_group", "file"]),
        "row_group",
        PARQUET,
        "what one read fetches",
    ),
    row("dataset.parquet.partition_by", Text, "null", PARQUET, "column that partitions the files"),
    row(
        "dataset.parquet.generation_batch_size",
        Integer(0, COUNT),
        "0",
        PARQUET,
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
