//! The table of environment variables that feedline reads. A test compares it with the names in the sources.

/// Variables that mean the same.
#[derive(Debug)]
pub(crate) struct VariableRow {
    pub names: &'static [&'static str],
    pub what: &'static str,
}

/// Variables for one purpose.
#[derive(Debug)]
pub(crate) struct VariableGroup {
    pub title: &'static str,
    /// Text above the rows.
    pub about: &'static str,
    pub rows: &'static [VariableRow],
}

const fn row(names: &'static [&'static str], what: &'static str) -> VariableRow {
    VariableRow { names, what }
}

/// All variables.
pub(crate) const VARIABLES: &[VariableGroup] = &[
    VariableGroup {
        title: "Output",
        about: "Without `--color`, these decide whether text is coloured, the first one before the others.",
        rows: &[
            row(&["NO_COLOR"], "any text: no colours"),
            row(&["CLICOLOR_FORCE"], "a value other than 0: colours, also in files and pipes"),
            row(&["CLICOLOR"], "0: no colours"),
            row(&["TERM"], "not set, or `dumb`: no colours, and no line is drawn again"),
            row(&["COLUMNS"], "the width of `--help` if there is no terminal"),
            row(&["BROWSER"], "the program that `feedline report --open` starts; else `xdg-open`"),
        ],
    },
    VariableGroup {
        title: "Files",
        about: "",
        rows: &[
            row(
                &["XDG_STATE_HOME"],
                "journals of listings of object stores are in `feedline/` below it; else in `~/.local/state`",
            ),
            row(&["HOME"], "`~` in this place, and in those of the files with credentials"),
            row(
                &["TMPDIR"],
                "temporary files: lists of object stores, and the library of an audit if `/dev/shm` is full",
            ),
            row(&["XDG_RUNTIME_DIR"], "the last place for the library of an audit"),
        ],
    },
    VariableGroup {
        title: "Runs in DLIO's form",
        about: "`dlio_benchmark` has DLIO's command line, which has no place for feedline's flags.",
        rows: &[
            row(
                &["FEEDLINE_STRICT"],
                "a value other than 0: an invalid verdict is a failure, as with `output.strict=true`",
            ),
            row(&["FEEDLINE_INTERFACE"], "as `--interface` of `feedline run`"),
            row(&["FEEDLINE_AGREEMENT"], "as `--agreement` of `feedline run`"),
            row(&["FEEDLINE_MPI_LIBRARY"], "as `--mpi-library` of `feedline run`"),
            row(&["DLIO_MAX_AUTO_THREADS"], "as the key `reader.max_auto_threads`"),
            row(&["DLIO_LOG_LEVEL"], "which lines the log file and stderr have"),
            row(
                &["MLPSTORAGE_CHECKPOINT_URI_SCHEME"],
                "`s3`, `gs`, `az`, `file` or `direct`: where a `checkpoint_folder` without a scheme is; for \
                 `feedline run`, too",
            ),
        ],
    },
    VariableGroup {
        title: "Object stores",
        about: "Keys of the workload come first. Variables that are empty count as not set. 'feedline docs \
                objects' has the order of the sources.",
        rows: OBJECTS,
    },
    VariableGroup {
        title: "Launchers",
        about: "Launchers set these. feedline finds out from them which launcher started it, as which \
                process, and how many there are ('feedline docs cluster').",
        rows: &[
            row(
                &[
                    "OMPI_COMM_WORLD_RANK",
                    "OMPI_COMM_WORLD_SIZE",
                    "OMPI_COMM_WORLD_LOCAL_RANK",
                    "OMPI_VERSION",
                    "PRTE_LAUNCHED",
                ],
                "Open MPI",
            ),
            row(
                &[
                    "PMI_RANK",
                    "PMI_ID",
                    "PMI_SIZE",
                    "PMI_FD",
                    "PMI_PORT",
                    "MPI_LOCALRANKID",
                    "HYDI_CONTROL_FD",
                ],
                "MPICH and its relatives",
            ),
            row(&["MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"], "MVAPICH2"),
            row(&["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"], "Slurm"),
            row(&["PALS_RANKID", "PALS_LOCAL_RANKID"], "PALS"),
            row(&["FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE"], "Flux"),
            row(&["PMIX_RANK", "PMIX_NAMESPACE"], "other launchers with PMIx"),
        ],
    },
    VariableGroup {
        title: "Audits",
        about: "",
        rows: &[
            row(
                &["PATH"],
                "where the program of the job is searched for, to explain why it could not be observed",
            ),
            row(
                &["LD_PRELOAD", "PYTHONPATH", "ASAN_OPTIONS"],
                "the job gets them with the library and the folder of the audit added; the values that you set stay",
            ),
            row(
                &["RANK", "WORLD_SIZE", "SLURM_NTASKS"],
                "set by torchrun or Slurm for a job: the rank of a process, in addition to the variables of launchers",
            ),
        ],
    },
    VariableGroup {
        title: "Set by feedline",
        about: "Do not set these yourself.",
        rows: &[
            row(
                &["FEEDLINE_COMPLETE"],
                "set by the scripts of `feedline completions`: the shell asks for completions",
            ),
            row(
                &[
                    "FEEDLINE_AUDIT_RING",
                    "FEEDLINE_AUDIT_LIBRARY",
                    "FEEDLINE_AUDIT_PYTHON",
                    "FEEDLINE_AUDIT_CALIBRATE",
                ],
                "set by `feedline audit` for the processes of a job",
            ),
        ],
    },
];

const OBJECTS: &[VariableRow] = &[
    row(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "keys of S3"),
    row(&["AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"], "token of temporary keys"),
    row(&["AWS_NO_SIGN_REQUEST"], "true, yes or 1: requests to S3 are not signed"),
    row(
        &["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_ENDPOINT_URL_STS"],
        "a role by web identity",
    ),
    row(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"], "profile of the AWS configuration"),
    row(&["AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"], "its files; else those in `~/.aws`"),
    row(
        &[
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        ],
        "the role of a container",
    ),
    row(
        &["AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_METADATA_ENDPOINT"],
        "address of the instance metadata service",
    ),
    row(&["AWS_EC2_METADATA_DISABLED"], "true: the instance metadata service is not asked"),
    row(&["AWS_REGION", "AWS_DEFAULT_REGION"], "region of the bucket"),
    row(&["S3_ENDPOINT_URIS", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"], "addresses of the servers of S3"),
    row(&["S3_ENDPOINT_TEMPLATE", "S3_ENDPOINT_FILE", "S3_ENDPOINT"], "no effect, with a warning"),
    row(&["GS_NO_SIGN_REQUEST"], "true, yes or 1: requests to Google Cloud Storage are not signed"),
    row(
        &["GCS_ACCESS_KEY_ID", "GCS_SECRET_ACCESS_KEY", "GOOGLE_HMAC_ACCESS_ID", "GOOGLE_HMAC_SECRET"],
        "HMAC keys of Google",
    ),
    row(&["GOOGLE_BEARER_TOKEN"], "token of Google"),
    row(
        &[
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ],
        "service account of Google: a file, or (`_KEY`) its content",
    ),
    row(&["STORAGE_EMULATOR_HOST"], "address of an emulator of Google Cloud Storage, without credentials"),
    row(&["CLOUDSDK_CONFIG"], "folder of gcloud's credentials; else `~/.config/gcloud`"),
    row(&["AZURE_NO_SIGN_REQUEST"], "true, yes or 1: requests to Azure are not signed"),
    row(&["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"], "the Azure account"),
    row(&["AZURE_STORAGE_CONNECTION_STRING"], "connection string of Azure"),
    row(
        &["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY"],
        "key of the Azure account",
    ),
    row(&["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"], "shared access signature of Azure"),
    row(&["AZURE_STORAGE_TOKEN"], "bearer token of Azure"),
    row(
        &[
            "AZURE_STORAGE_CLIENT_ID",
            "AZURE_CLIENT_ID",
            "AZURE_STORAGE_TENANT_ID",
            "AZURE_TENANT_ID",
            "AZURE_STORAGE_CLIENT_SECRET",
            "AZURE_CLIENT_SECRET",
            "AZURE_FEDERATED_TOKEN_FILE",
            "AZURE_STORAGE_AUTHORITY_HOST",
            "AZURE_AUTHORITY_HOST",
        ],
        "a service principal or a workload identity of Azure",
    ),
    row(&["AZURE_USE_AZURE_CLI"], "true: the program `az` gives a token"),
    row(
        &[
            "AZURE_MSI_ENDPOINT",
            "IDENTITY_ENDPOINT",
            "MSI_ENDPOINT",
            "AZURE_OBJECT_ID",
            "AZURE_MSI_RESOURCE_ID",
        ],
        "the managed identity of Azure",
    ),
    row(
        &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"],
        "address of the servers of Azure, or of the emulator",
    ),
    row(&["AZURE_STORAGE_USE_EMULATOR"], "true: the emulator on this host"),
    row(
        &["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"],
        "URL of an HTTP proxy, by the scheme of the server",
    ),
    row(&["NO_PROXY", "no_proxy"], "servers that are reached without the proxy"),
    row(&["AWS_CA_BUNDLE"], "file of certificates that are trusted in addition, for all services"),
    row(&["SSL_CERT_FILE", "SSL_CERT_DIR"], "the system's certificates, instead of their usual places"),
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Starts of names with an underscore in the sources that are no variables of the program: constants of system
    /// calls, variables of the build, variables of tests. Text that ends in an underscore is the start of several
    /// names.
    const OTHERS: [&str; 14] = [
        "AT_",
        "CARGO_",
        "CLONE_",
        "FD_",
        "FEEDLINE_PRELOAD",
        "FEEDLINE_TEST_",
        "F_",
        "MAP_",
        "OUT_DIR",
        "O_",
        "SEEK_",
        "FEEDLINE_BUILD",
        "FEEDLINE_COMMIT",
        "SOURCE_DATE_EPOCH",
    ];

    /// Variables that libraries read, which the sources do not name.
    const OF_LIBRARIES: [&str; 3] = ["TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"];

    fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && !["target", "tests"].iter().any(|skipped| name == *skipped) {
                rust_files(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }

    /// Modules that are compiled for tests only.
    fn is_test(path: &Path) -> bool {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with("tests.rs") || ["live.rs", "child.rs", "differential.rs", "build.rs"].contains(&name)
    }

    fn is_name(text: &str) -> bool {
        let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        text.starts_with(|c: char| c.is_ascii_uppercase()) && text.len() > 2 && text.chars().all(is_part)
    }

    /// The names of variables in the sources, each with a file that has it.
    fn named_in_sources() -> BTreeMap<String, String> {
        let mut files = Vec::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
        for entry in fs::read_dir(&crates).unwrap().flatten() {
            rust_files(&entry.path().join("src"), &mut files);
        }
        rust_files(&crates.join("audit/preload/src"), &mut files);
        let mut named = BTreeMap::new();
        for path in files.iter().filter(|path| !is_test(path) && !path.ends_with("manual/environment.rs")) {
            let text = fs::read_to_string(path).unwrap();
            let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
            let parts: Vec<&str> = code.split('"').collect();
            for (at, name) in parts.iter().enumerate().filter(|(_, name)| is_name(name)) {
                let is_read = at > 0 && ["var(", "var_os("].iter().any(|call| parts[at - 1].ends_with(call));
                let is_other = OTHERS.iter().any(|start| name.starts_with(start)) || name.ends_with('_');
                if is_read || (name.contains('_') && !is_other) {
                    named.insert(name.to_string(), path.display().to_string());
                }
            }
        }
        named
    }

    fn in_the_table() -> Vec<&'static str> {
        let groups = VARIABLES.iter().flat_map(|group| group.rows);
        groups.flat_map(|row| row.names.iter().copied()).collect()
    }

    #[test]
    fn the_table_has_every_variable_once() {
        let table = in_the_table();
        let set: BTreeSet<&str> = table.iter().copied().collect();
        assert_eq!(set.len(), table.len(), "a variable is listed twice");
        let named = named_in_sources();
        assert!(named.len() > 80, "{named:?}");
        let missing: Vec<_> = named.iter().filter(|(name, _)| !set.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "the table has no row for {missing:?}");
        // Names without an underscore are found only where they are read directly, and some are in lower case.
        let is_gone = |name: &&&str| {
            name.contains('_') && is_name(name) && !named.contains_key(**name) && !OF_LIBRARIES.contains(name)
        };
        let gone: Vec<_> = table.iter().filter(is_gone).collect();
        assert!(gone.is_empty(), "no source names {gone:?}");
    }
}
