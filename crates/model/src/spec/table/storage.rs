//! Keys of `storage`: the storage system. Nothing of `storage_options` is copied to the `Spec`: the options may contain
//! secrets, and a spec is printed.

use super::super::names::StorageType;
use super::super::schema::KeyStatus::{OfObjects, Used};
use super::super::schema::ValueKind::{Choice, Flag, Integer, LooseFlag, Number, Secret, Text, Texts};
use super::super::schema::{KeyRow, row};
use super::{COUNT, LONGEST};

/// Libraries for files: `direct` is O_DIRECT.
const LIBRARIES_OF_FILES: &[&str] = &["posix", "direct"];

pub(super) const ROWS: &[KeyRow] = &[
    row("storage.storage_type", Choice(StorageType::NAMES), "local_fs", Used, "type of storage").later(
        &["s3", "aistore", "adls_gen2", "fsspec_fs", "daos_pytorch"],
        "this storage type is not supported yet",
    ),
    row("storage.storage_root", Text, "./", Used, "folder or bucket that contains data_folder"),
    row("storage.store", Text, "null", Used, "I/O backend, as with --store (docs/stores.md)"),
    row("storage.storage_library", Text, "null", OfObjects, "client library").quiet(LIBRARIES_OF_FILES),
    row(
        "storage.post_generation_settle_seconds",
        Number(0.0, LONGEST),
        "0",
        OfObjects,
        "pause after generating",
    )
    .seconds(),
    row("storage.storage_options.access_key_id", Secret, "null", OfObjects, "name of the account"),
    row("storage.storage_options.secret_access_key", Secret, "null", OfObjects, "secret of the account"),
    row("storage.storage_options.endpoint_url", Text, "null", OfObjects, "address of the server"),
    row("storage.storage_options.region", Text, "us-east-1", OfObjects, "region of the bucket"),
    row("storage.storage_options.s3_force_path_style", LooseFlag, "false", OfObjects, "bucket in the path")
        .aliases(&["storage.s3_force_path_style"]),
    row("storage.storage_options.s3_max_attempts", Integer(0, COUNT), "5", OfObjects, "attempts per request"),
    row("storage.storage_options.s3_profile", Text, "null", OfObjects, "profile of the AWS configuration"),
    row("storage.storage_options.storage_library", Text, "null", OfObjects, "client library")
        .quiet(LIBRARIES_OF_FILES),
    row("storage.storage_options.uri_scheme", Text, "s3", OfObjects, "scheme of object names"),
    row(
        "storage.storage_options.use_full_object_uri",
        LooseFlag,
        "false",
        OfObjects,
        "object key is the full URI",
    ),
    row("storage.storage_options.secure", Flag, "true", OfObjects, "encrypted connection"),
    row("storage.storage_options.prefetch_window", Integer(1, COUNT), "64", OfObjects, "requests in flight"),
    row("storage.storage_options.prefetch_workers", Integer(1, COUNT), "64", OfObjects, "threads that fetch"),
    row(
        "storage.storage_options.prefetch",
        Integer(1, COUNT),
        "64",
        OfObjects,
        "prefetch_workers of one library",
    ),
    row("storage.storage_options.columns", Texts, "[]", OfObjects, "parquet columns to read"),
    row("storage.storage_options.coalesce_rgs", Integer(1, COUNT), "8", OfObjects, "row groups per request"),
    row(
        "storage.storage_options.max_outstanding",
        Integer(1, COUNT),
        "1024",
        OfObjects,
        "requests in flight",
    ),
    row(
        "storage.storage_options.footer_cap",
        Integer(1, COUNT),
        "4194304",
        OfObjects,
        "bytes of a parquet footer",
    )
    .bytes(),
    row(
        "storage.storage_options.footer_batch_size",
        Integer(1, COUNT),
        "16",
        OfObjects,
        "footers per request",
    ),
    row("storage.storage_options.decode", Choice(&["raw", "arrow"]), "raw", OfObjects, "what is decoded"),
    row(
        "storage.storage_options.decode_output",
        Choice(&["none", "pyarrow", "torch"]),
        "none",
        OfObjects,
        "what decoding yields",
    ),
    row(
        "storage.storage_options.stagger_workers",
        LooseFlag,
        "true",
        OfObjects,
        "workers start one after another",
    ),
    row("storage.storage_options.simulate_io", LooseFlag, "false", OfObjects, "loop without I/O"),
    row(
        "storage.storage_options.sim_log_secs",
        Number(0.0, LONGEST),
        "60",
        OfObjects,
        "seconds between its log lines",
    )
    .seconds(),
];
