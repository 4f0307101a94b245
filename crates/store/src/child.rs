//! For tests of what ends or changes a whole process: a test runs itself again in a new process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Tells the new process that it is one, and which folder to use.
const FOLDER: &str = "FEEDLINE_TEST_CHILD_FOLDER";

/// The folder to use, if this process was started by `again`.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Runs the test of this name in a new process.
pub(crate) fn again(test: &str, folder: &Path) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .output()
        .unwrap()
}
