//! How a command ends: the documented exit codes, and errors that know theirs. `feedline --help` lists them.

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
    /// The command did what was asked; a run ended valid or unverified.
    Ok,
    /// What was asked for is wrong: a flag, a key, a value, an impossible combination.
    Usage,
    /// The request is sound, but not here and now: data set missing, disk or memory too small, a result that was
    /// changed or cannot be compared, not supported yet.
    Refused,
    /// Begun and not finished: interrupted, stuck, or a failure on the way.
    Incomplete,
    /// Finished, and a check failed: the verdict is invalid.
    CheckFailed,
    /// A fault of feedline's own.
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
    /// How a command ends that ends with a verdict.
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
pub struct Failure {
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
    /// The same with where it happened.
    pub fn context(self, place: String) -> Failure {
        Failure { error: self.error.context(place), ..self }
    }

    pub fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::Usage, error: error.into() }
    }

    pub fn refused(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::Refused, error: error.into() }
    }

    pub fn incomplete(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::Incomplete, error: error.into() }
    }

    pub fn check_failed(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::CheckFailed, error: error.into() }
    }

    pub fn internal(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::Internal, error: error.into() }
    }
}

/// How long what is left behind is tidied up before a process ends that cannot be waited for: a disk that hangs would
/// take for ever.
const TIDYING: Duration = Duration::from_millis(500);

/// Ends the process although some of its threads do not, because they hang in the kernel. What was measured so far is
/// with them, so nothing is written.
pub fn abandon(message: &str) {
    static ONCE: AtomicBool = AtomicBool::new(false);
    // Relaxed: of several who come here one goes on, and no more is shared.
    while ONCE.swap(true, Ordering::Relaxed) {
        std::thread::park();
    }
    report::note(&format!("error: {message}"));
    let (tidied, over) = mpsc::channel::<()>();
    let tidying = std::thread::Builder::new().spawn(move || {
        report::folder::remove_leavings();
        drop(tidied);
    });
    // Without the thread, the channel is closed already.
    drop(tidying);
    let _ = over.recv_timeout(TIDYING);
    supervisor::give_up(Exit::Incomplete)
}

/// A cause for which no thread or process could be started, with what to do about it.
pub fn limited(cause: &std::io::Error) -> String {
    format!("{cause}; is the number of processes limited (ulimit -u, a pids control group)?")
}

/// What a command returns.
pub type Ending = Result<Exit, Failure>;

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
