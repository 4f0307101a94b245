//! Keys of `storage`: the storage system. Nothing of `storage_options` is copied to the `Spec`: the options may contain
//! secrets, and a spec is printed.

use super::super::names::StorageType;
use super::super::schema::KeyStatus::{Later, Used};
use super::super::schema::ValueKind::{Choice, Flag, Integer, LooseFlag, Number, Secret, Text, Texts};
use super::super::schema::{KeyRow, KeyStatus, row};
use super::{COUNT, LONGEST};

const OBJECTS: KeyStatus = Later("object stores are not supported yet");

pub(super) const ROWS: &[KeyRow] = &[
    row("storage.storage_type", Choice(StorageType::NAMES), "local_fs", Used, "type of storage").later(
        &["s3", "aistore", "adls_gen2", "fsspec_fs", "daos_pytorch"],
        "this storage type is not supported yet",
    ),
    row("storage.storage_root", Text, "./", Used, "folder or bucket that contains data_folder"),
    row("storage.store", Text, "null", Used, "I/O backend, as with --store (docs/stores.md)"),
    row("storage.storage_library", Text, "null", OBJECTS, "client library"),
    row(
        "storage.post_generation_settle_seconds",
        Number(0.0, LONGEST),
        "0",
        OBJECTS,
        "pause after generating",
    )
    .seconds(),
    row("storage.storage_options.access_key_id", Secret, "null", OBJECTS, "name of the account"),
    row("storage.storage_options.secret_access_key", Secret, "null", OBJECTS, "secret of the account"),
    row("storage.storage_options.endpoint_url", Text, "null", OBJECTS, "address of the server"),
    row("storage.storage_options.region", Text, "us-east-1", OBJECTS, "region of the bucket"),
    row("storage.storage_options.s3_force_path_style", LooseFlag, "false", OBJECTS, "bucket in the path"),
    row("storage.storage_options.s3_max_attempts", Integer(0, COUNT), "5", OBJECTS, "attempts per request"),
    row("storage.storage_options.s3_profile", Text, "null", OBJECTS, "profile of the AWS configuration"),
    row("storage.storage_options.storage_library", Text, "null", OBJECTS, "client library").quiet(&["posix"]),
    row("storage.storage_options.uri_scheme", Text, "s3", OBJECTS, "scheme of object names"),
    row(
        "storage.storage_options.use_full_object_uri",
        LooseFlag,
        "false",
        OBJECTS,
        "object key is the full URI",
    ),
    row("storage.storage_options.secure", Flag, "true", OBJECTS, "encrypted connection"),
    row("storage.storage_options.prefetch_window", Integer(1, COUNT), "64", OBJECTS, "requests in flight"),
    row("storage.storage_options.prefetch_workers", Integer(1, COUNT), "64", OBJECTS, "threads that fetch"),
    row(
        "storage.storage_options.prefetch",
        Integer(1, COUNT),
        "64",
        OBJECTS,
        "prefetch_workers of one library",
    ),
    row("storage.storage_options.columns", Texts, "[]", OBJECTS, "parquet columns to read"),
    row("storage.storage_options.coalesce_rgs", Integer(1, COUNT), "8", OBJECTS, "row groups per request"),
    row("storage.storage_options.max_outstanding", Integer(1, COUNT), "1024", OBJECTS, "requests in flight"),
    row(
        "storage.storage_options.footer_cap",
        Integer(1, COUNT),
        "4194304",
        OBJECTS,
        "bytes of a parquet footer",
    )
    .bytes(),
    row("storage.storage_options.footer_batch_size", Integer(1, COUNT), "16", OBJECTS, "footers per request"),
    row("storage.storage_options.decode", Choice(&["raw", "arrow"]), "raw", OBJECTS, "what is decoded"),
    row(
        "storage.storage_options.decode_output",
        Choice(&["none", "pyarrow", "torch"]),
        "none",
        OBJECTS,
        "what decoding yields",
    ),
    row(
        "storage.storage_options.stagger_workers",
        LooseFlag,
        "true",
        OBJECTS,
        "workers start one after another",
    ),
    row("storage.storage_options.simulate_io", LooseFlag, "false", OBJECTS, "loop without I/O"),
    row(
        "storage.storage_options.sim_log_secs",
        Number(0.0, LONGEST),
        "60",
        OBJECTS,
        "seconds between its log lines",
    )
    .seconds(),
];
