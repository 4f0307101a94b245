//! Keys of `storage`: the storage system. The values of secret keys have a type that no output shows.

use super::super::names::StorageType;
use super::super::schema::KeyStatus::{Later, OfObjects, Used};
use super::super::schema::ValueKind::{Choice, Flag, Integer, LooseFlag, Number, Secret, Text, Texts};
use super::super::schema::{KeyRow, row};
use super::{COUNT, LONGEST};

/// Libraries for files: `direct` is O_DIRECT.
const LIBRARIES_OF_FILES: &[&str] = &["posix", "direct"];

/// The most requests, parts, attempts or endpoints: more is a typo.
const REQUESTS: i64 = 1 << 20;
/// S3 accepts parts from 5 MiB to 5 GiB.
const PARTS: (i64, i64) = (5 << 20, 5 << 30);
/// Seconds. A server needs longer for any answer.
const SHORTEST_WAIT: f64 = 0.001;

/// The only strategy: connections are kept, and a request takes any that is idle.
const ROUND_ROBIN: &[&str] = &["round_robin"];

const OWN_CLIENT: &str = "feedline reads all object stores with its own client";
const NO_FETCHERS: &str =
    "feedline has no threads that prefetch; the requests in flight follow from reader.read_threads";
const BY_COLUMNS: &str = "feedline reads the columns that dataset.parquet.columns marks with read";
const BY_RANGES: &str = "feedline computes the ranges that a sample needs and requests all of them at once";
const NO_DECODING: &str = "feedline decodes only with reader.preprocess: decode, and only some formats";
const NO_SETTLING: &str = "objects can be read as soon as they are written, and nothing is listed";
const NO_LOOP: &str = "for a run without I/O, use --store null";

pub(super) const ROWS: &[KeyRow] = &[
    row("storage.storage_type", Choice(StorageType::NAMES), "local_fs", Used, "type of storage").later(
        &["aistore", "fsspec_fs", "daos_pytorch"],
        "this storage type is not supported: its protocol is that of a Python library",
    ),
    row("storage.storage_root", Text, "./", Used, "folder or bucket that contains data_folder"),
    row("storage.store", Text, "null", Used, "I/O backend, as with --store ('feedline docs stores')"),
    row("storage.storage_library", Text, "null", Later(OWN_CLIENT), "client library")
        .quiet(LIBRARIES_OF_FILES),
    row(
        "storage.post_generation_settle_seconds",
        Number(0.0, LONGEST),
        "0",
        Later(NO_SETTLING),
        "pause after generating",
    )
    .seconds(),
    row("storage.endpoint_uris", Texts, "[]", OfObjects, "addresses of the servers of one object store"),
    row(
        "storage.endpoint_count",
        Integer(1, REQUESTS),
        "null",
        OfObjects,
        "use only the first of them, up to this number",
    ),
    row(
        "storage.load_balance_strategy",
        Choice(ROUND_ROBIN),
        "round_robin",
        Later("connections are always spread in turn"),
        "how connections are spread over servers",
    )
    .quiet(ROUND_ROBIN),
    row(
        "storage.use_mpi_endpoint_distribution",
        LooseFlag,
        "false",
        OfObjects,
        "one server per process: number N uses the Nth",
    ),
    row("storage.account", Text, "null", OfObjects, "name of the Azure account"),
    row("storage.account_key", Secret, "null", OfObjects, "key of the Azure account"),
    row("storage.sas_token", Secret, "null", OfObjects, "shared access signature of Azure"),
    row("storage.anonymous", Flag, "false", OfObjects, "requests without credentials"),
    row("storage.ca_bundle", Text, "null", OfObjects, "file of certificates that are trusted as well"),
    row("storage.proxy", Secret, "null", OfObjects, "URL of an HTTP proxy"),
    row(
        "storage.requests_in_flight",
        Integer(1, REQUESTS),
        "4096",
        OfObjects,
        "maximum number of read requests in flight per process",
    ),
    row("storage.part_size", Integer(PARTS.0, PARTS.1), "8388608", OfObjects, "bytes per part of an upload")
        .bytes(),
    row(
        "storage.parts_in_flight",
        Integer(1, REQUESTS),
        "8",
        OfObjects,
        "parts that a process uploads at once",
    ),
    row(
        "storage.retry_attempts",
        Integer(1, REQUESTS),
        "null",
        OfObjects,
        "attempts per request, the first one included",
    ),
    row(
        "storage.retry_deadline",
        Number(SHORTEST_WAIT, LONGEST),
        "180",
        OfObjects,
        "seconds after the first attempt in which another may begin",
    )
    .seconds(),
    row(
        "storage.silence_timeout",
        Number(SHORTEST_WAIT, LONGEST),
        "30",
        OfObjects,
        "seconds without a byte after which an attempt has failed",
    )
    .seconds(),
    row("storage.storage_options.access_key_id", Secret, "null", OfObjects, "name of the account"),
    row("storage.storage_options.secret_access_key", Secret, "null", OfObjects, "secret of the account"),
    row("storage.storage_options.session_token", Secret, "null", OfObjects, "token of temporary keys"),
    row("storage.storage_options.connection_string", Secret, "null", OfObjects, "Azure connection string"),
    row("storage.storage_options.account_url", Text, "null", OfObjects, "address of the Azure account"),
    row("storage.storage_options.account_name", Text, "null", OfObjects, "name of the Azure account"),
    row("storage.storage_options.endpoint_url", Text, "null", OfObjects, "address of the server"),
    row("storage.storage_options.region", Text, "null", OfObjects, "region of the bucket"),
    row("storage.storage_options.s3_force_path_style", LooseFlag, "false", OfObjects, "bucket in the path")
        .aliases(&["storage.s3_force_path_style"]),
    row("storage.storage_options.s3_max_attempts", Integer(0, COUNT), "5", OfObjects, "attempts per request"),
    row("storage.storage_options.s3_profile", Text, "null", OfObjects, "profile of the AWS configuration"),
    row("storage.storage_options.storage_library", Text, "null", Later(OWN_CLIENT), "client library")
        .quiet(LIBRARIES_OF_FILES),
    row("storage.storage_options.uri_scheme", Text, "s3", OfObjects, "scheme of object names"),
    row(
        "storage.storage_options.use_full_object_uri",
        LooseFlag,
        "false",
        OfObjects,
        "object key is the full URI",
    ),
    row(
        "storage.storage_options.secure",
        Flag,
        "true",
        OfObjects,
        "encrypted connection, if the address does not say",
    ),
    row(
        "storage.storage_options.prefetch_window",
        Integer(1, COUNT),
        "null",
        OfObjects,
        "maximum number of requests in flight per reader, on average",
    ),
    row(
        "storage.storage_options.max_outstanding",
        Integer(1, COUNT),
        "null",
        OfObjects,
        "the same for another library",
    ),
    row(
        "storage.storage_options.prefetch_workers",
        Integer(1, COUNT),
        "64",
        Later(NO_FETCHERS),
        "threads that fetch",
    ),
    row(
        "storage.storage_options.prefetch",
        Integer(1, COUNT),
        "64",
        Later(NO_FETCHERS),
        "prefetch_workers of one library",
    ),
    row("storage.storage_options.columns", Texts, "[]", Later(BY_COLUMNS), "parquet columns to read"),
    row(
        "storage.storage_options.coalesce_rgs",
        Integer(1, COUNT),
        "8",
        Later(BY_RANGES),
        "row groups per request",
    ),
    row(
        "storage.storage_options.footer_cap",
        Integer(1, COUNT),
        "4194304",
        Later(BY_RANGES),
        "bytes of a parquet footer",
    )
    .bytes(),
    row(
        "storage.storage_options.footer_batch_size",
        Integer(1, COUNT),
        "16",
        Later(BY_RANGES),
        "footers per request",
    ),
    row(
        "storage.storage_options.decode",
        Choice(&["raw", "arrow"]),
        "raw",
        Later(NO_DECODING),
        "what is decoded",
    ),
    row(
        "storage.storage_options.decode_output",
        Choice(&["none", "pyarrow", "torch"]),
        "none",
        Later(NO_DECODING),
        "what decoding yields",
    ),
    row(
        "storage.storage_options.stagger_workers",
        LooseFlag,
        "true",
        Later("feedline has no worker processes whose start could be delayed"),
        "workers start one after another",
    ),
    row("storage.storage_options.simulate_io", LooseFlag, "false", Later(NO_LOOP), "loop without I/O"),
    row(
        "storage.storage_options.sim_log_secs",
        Number(0.0, LONGEST),
        "60",
        Later(NO_LOOP),
        "seconds between its log lines",
    )
    .seconds(),
];
