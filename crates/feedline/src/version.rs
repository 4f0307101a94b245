//! The version: where this build comes from, and what it finds on this host. `feedline doctor` explains each fact.

use std::path::Path;
use std::process::ExitCode;

use engine::waits;
use store::{BACKENDS, FolderTrial, page_cache, try_ring};

use crate::doctor;
use crate::exit::{self, Exit, abandon};
use crate::flags::stall_timeout_or_default;
use crate::report;

/// The version and the commit in one line.
pub(crate) const SHORT: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("FEEDLINE_BUILD"), ")");
/// The commit, or `unknown`.
pub(crate) const COMMIT: &str = env!("FEEDLINE_BUILD_COMMIT");

/// Prints the long version. Waits for the storage of the current folder are watched, as in every command.
pub(crate) fn show() -> ExitCode {
    if let Err(cause) = waits::watch(stall_timeout_or_default(None), abandon) {
        return exit::fail(Exit::Refused, &format!("cannot start a thread: {}", exit::limited(&cause)))
            .into();
    }
    match report::out(&long()) {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => failure.report().into(),
    }
}

/// The version with a line for each fact.
fn long() -> String {
    let lines: String = facts().iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    format!("feedline {SHORT}\n{lines}")
}

fn facts() -> Vec<(&'static str, String)> {
    let backends: Vec<&str> = BACKENDS.rows.iter().map(|backend| backend.name).collect();
    vec![
        ("commit", COMMIT.to_owned()),
        ("commit date", env!("FEEDLINE_BUILD_DATE").to_owned()),
        ("target", env!("FEEDLINE_BUILD_TARGET").to_owned()),
        ("profile", env!("FEEDLINE_BUILD_PROFILE").to_owned()),
        ("rustc", env!("FEEDLINE_BUILD_RUSTC").to_owned()),
        ("backends", backends.join(", ")),
        ("formats", format::names()),
        ("io_uring", supported(try_ring().map_err(|_| "feedline doctor says why".to_owned()))),
        ("O_DIRECT in this folder", supported(direct())),
        ("cachestat", supported(page_cache::has_cachestat().filter(|has| *has).ok_or("the call fails"))),
        ("MPI library", mpi()),
        ("perf events", supported(::audit::page_faults())),
    ]
}

/// Whether something works, and if not, why.
fn supported<T>(outcome: Result<T, impl std::fmt::Display>) -> String {
    outcome.map_or_else(|reason| format!("no: {reason}"), |_| "yes".to_owned())
}

fn direct() -> Result<(), String> {
    let trial = FolderTrial::of(Path::new(".")).map_err(|error| error.to_string())?;
    let file_system = trial.ground(".").map_err(|error| error.to_string())?.file_system;
    match file_system.is_memory() {
        true => Err(format!("{} keeps files in memory", file_system.name)),
        false => trial.direct().map(drop),
    }
}

fn mpi() -> String {
    let (found, _) = doctor::mpi_libraries(None);
    if found.is_empty() { "none found".to_owned() } else { found.join("; ") }
}
