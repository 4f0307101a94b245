//! The processes of a command. A launcher such as mpirun starts several; they share the work of a command on data, and
//! all other commands run in process 0 only. Only process 0 prints and writes results. A failure of another process is
//! announced to process 0, which reports it with the name of the host; all processes end with the same exit code.

use std::sync::OnceLock;

use anyhow::anyhow;
use engine::host;
use engine::world::Topology;
use engine::world::launcher::{self, Launch};

use crate::commands::Command;
use crate::exit::{CommandResult, Failure};
use crate::report;

/// How this process was started; `None`: alone.
static LAUNCH: OnceLock<Option<Launch>> = OnceLock::new();

/// Finds out whether a launcher started this process as one of several. Only process 0 prints.
pub(crate) fn look() {
    let launch = launcher::launch(&|name| std::env::var(name).ok()).filter(|launch| launch.size > 1);
    if launch.is_some_and(|launch| launch.rank > 0) {
        report::mute();
    }
    let _ = LAUNCH.set(launch);
}

/// The process as one of several; `None` if it is alone.
fn launch() -> Option<Launch> {
    LAUNCH.get().copied().flatten()
}

/// The number of processes that share a command on data.
pub(crate) fn processes() -> u64 {
    launch().map_or(1, |launch| launch.size)
}

/// Whether this process has nothing to do: the command runs in process 0 only.
pub(crate) fn is_idle(command: &Command) -> bool {
    launch().is_some_and(|launch| launch.rank > 0) && command.cluster().is_none()
}

/// Runs a command, together with the other processes if there are any.
pub(crate) fn run(command: &Command) -> CommandResult {
    let Some(request) = command.cluster() else { return command.run() };
    let Some(launch) = launch() else {
        if !request.shares.is_empty() {
            Topology::solo(&host::name()).with_shares(request.shares.to_vec()).map_err(Failure::usage)?;
        }
        return command.run();
    };
    let Launch { launcher, size, .. } = launch;
    Err(Failure::refused(anyhow!(
        "{launcher} started {size} processes, but feedline runs in one; start one process"
    )))
}
