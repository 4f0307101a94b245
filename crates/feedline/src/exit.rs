//! How a command ends: the documented exit codes, and errors that carry one. `feedline --help` lists the codes.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use model::verdict::Status;
use session::ErrorKind;

use crate::report;
use crate::supervisor;

/// The public list of exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded; the verdict of a run is valid or unverified.
    Ok,
    /// The request is wrong: a flag, a key, a value, an impossible combination.
    Usage,
    /// The request is correct but cannot be carried out here: data set missing, disk or memory too small, a result that
    /// was changed or cannot be compared, not supported yet.
    Refused,
    /// Started but not finished: interrupted, stalled, or failed during the run.
    Incomplete,
    /// Finished, but a check failed: the verdict is invalid.
    CheckFailed,
    /// A bug in feedline.
    Internal,
}

impl Exit {
    pub const ALL: [(Exit, &'static str); 6] = [
        (Exit::Ok, "success; a run's verdict is valid or unverified"),
        (Exit::Usage, "usage error: a flag, a key, a value, an impossible combination"),
        (
            Exit::Refused,
            "refused before the start: data set missing, disk or memory too small, result changed, not supported yet",
        ),
        (Exit::Incomplete, "incomplete: interrupted, stalled, or failed during the run"),
        (Exit::CheckFailed, "a check failed: the verdict is invalid"),
        (Exit::Internal, "internal error"),
    ];

    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Incomplete => 4,
            Exit::CheckFailed => 5,
            Exit::Internal => 70,
        }
    }
}

impl Exit {
    /// The exit of a command that ends with this verdict.
    pub fn of(status: Status) -> Exit {
        match status {
            Status::Valid | Status::Unverified => Exit::Ok,
            Status::Invalid => Exit::CheckFailed,
            Status::Incomplete => Exit::Incomplete,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// An error and the exit code it leads to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub exit: Exit,
    pub error: anyhow::Error,
}

/// The one place where the errors of the session become exit codes.
impl From<session::Error> for Failure {
    fn from(error: session::Error) -> Failure {
        let exit = match error.kind() {
            ErrorKind::Usage => Exit::Usage,
            ErrorKind::Refused => Exit::Refused,
            ErrorKind::Incomplete => Exit::Incomplete,
            ErrorKind::CheckFailed => Exit::CheckFailed,
            ErrorKind::Internal => Exit::Internal,
        };
        Failure { exit, error: error.into() }
    }
}

impl Failure {
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::Usage, error: error.into() }
    }

    pub(crate) fn refused(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::Refused, error: error.into() }
    }

    pub(crate) fn incomplete(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::Incomplete, error: error.into() }
    }

    pub(crate) fn check_failed(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::CheckFailed, error: error.into() }
    }

    pub(crate) fn internal(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::Internal, error: error.into() }
    }
}

/// Time limit for removing unfinished folders before a process with hung threads ends: on a hung disk, removing them
/// could take forever.
const TIDYING: Duration = Duration::from_millis(500);

/// Ends the process although some of its threads hang in the kernel. Those threads own the measurements, so no result
/// is written.
pub(crate) fn abandon(message: &str) {
    static ONCE: AtomicBool = AtomicBool::new(false);
    // Relaxed: the swap alone lets exactly one thread pass, and no other memory is shared through this flag.
    while ONCE.swap(true, Ordering::Relaxed) {
        std::thread::park();
    }
    report::note(&format!("error: {message}"));
    let (tidied, over) = mpsc::channel::<()>();
    let tidying = std::thread::Builder::new().spawn(move || {
        report::folder::remove_leavings();
        drop(tidied);
    });
    // If the thread could not be started, the channel is already closed.
    drop(tidying);
    let _ = over.recv_timeout(TIDYING);
    supervisor::give_up(Exit::Incomplete)
}

/// The cause for which a thread or process could not be started, and what to check.
pub(crate) fn limited(cause: &std::io::Error) -> String {
    format!("{cause}; is the number of processes limited (ulimit -u, a pids control group)?")
}

/// The result of a command.
pub(crate) type CommandResult = Result<Exit, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct() {
        for (i, (exit, meaning)) in Exit::ALL.iter().enumerate() {
            assert!(!meaning.is_empty());
            assert!(Exit::ALL[..i].iter().all(|(other, _)| other.code() != exit.code()));
        }
    }
}
