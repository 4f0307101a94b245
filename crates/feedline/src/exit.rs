//! How a command ends: the documented exit codes, and errors that carry one. `feedline --help` lists the codes. With
//! `--json`, an error is also an object on stdout.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use engine::world::EarlyEnd;
use model::document;
use model::verdict::Status;
use serde::Serialize;
use serde_json::{Map, Value, json};
use session::{ErrorKind, SharedFailure};

use crate::cluster;
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
    /// The exit code of an audited job, whatever it means.
    Job(u8),
}

impl Exit {
    /// Those with a meaning of their own.
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
            Exit::Job(code) => code,
        }
    }
}

impl Exit {
    /// What to do about an error that does not say it itself.
    fn general_remedy(self) -> Option<&'static str> {
        match self {
            Exit::Usage => Some("see 'feedline help'"),
            Exit::Internal => Some("this is a bug in feedline: report the command and its output on stderr"),
            Exit::Ok | Exit::Refused | Exit::Incomplete | Exit::CheckFailed | Exit::Job(_) => None,
        }
    }

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
    /// The result as far as there is one, for `--json`.
    result: Option<Value>,
    /// Whether stderr has the error already.
    is_printed: bool,
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
        Failure::new(exit, error)
    }
}

/// How a failure of this process reaches the other processes of a run.
impl SharedFailure for Failure {
    fn described(&self) -> (ErrorKind, String) {
        let kind = match self.exit {
            Exit::Usage => ErrorKind::Usage,
            Exit::Refused => ErrorKind::Refused,
            Exit::Incomplete => ErrorKind::Incomplete,
            Exit::CheckFailed => ErrorKind::CheckFailed,
            Exit::Ok | Exit::Internal | Exit::Job(_) => ErrorKind::Internal,
        };
        (kind, format!("{:#}", self.error))
    }

    fn known_to_all(&self) -> Option<&EarlyEnd> {
        self.error.downcast_ref::<session::Error>().and_then(session::Error::known_to_all)
    }
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit, error: error.into(), result: None, is_printed: false }
    }

    /// A failure whose errors have been printed.
    pub(crate) fn printed(exit: Exit, error: impl Into<anyhow::Error>) -> Failure {
        Failure { is_printed: true, ..Failure::new(exit, error) }
    }

    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure::new(Exit::Usage, error)
    }

    pub(crate) fn refused(error: impl Into<anyhow::Error>) -> Failure {
        Failure::new(Exit::Refused, error)
    }

    pub(crate) fn incomplete(error: impl Into<anyhow::Error>) -> Failure {
        Failure::new(Exit::Incomplete, error)
    }

    pub(crate) fn check_failed(error: impl Into<anyhow::Error>) -> Failure {
        Failure::new(Exit::CheckFailed, error)
    }

    pub(crate) fn internal(error: impl Into<anyhow::Error>) -> Failure {
        Failure::new(Exit::Internal, error)
    }

    /// The same with the result as far as there is one. With `--json`, it is part of the object for the error.
    pub(crate) fn with_result(self, result: &impl Serialize) -> Failure {
        Failure { result: serde_json::to_value(result).ok(), ..self }
    }

    /// The error with its causes.
    pub(crate) fn text(&self) -> String {
        format!("{:#}", self.error)
    }

    /// Reports the error and returns the exit code.
    pub(crate) fn report(self) -> Exit {
        let text = self.text();
        if !self.is_printed {
            report::error(&text);
        }
        let (what, remedy) = split_remedy(&text);
        answer(self.exit, &what, remedy, self.result);
        self.exit
    }
}

/// Whether `--json` is among these arguments. It is needed before they are parsed, for errors in them.
pub(crate) fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

/// Whether an error is also an object on stdout.
static JSON: AtomicBool = AtomicBool::new(false);

/// From now on, errors are also objects on stdout.
pub(crate) fn answer_in_json() {
    // Relaxed: stored once, before any thread is started.
    JSON.store(true, Ordering::Relaxed);
}

/// Reports an error that is not a `Failure`.
pub(crate) fn fail(exit: Exit, text: &str) -> Exit {
    report::error(text);
    let (what, remedy) = split_remedy(text);
    answer(exit, &what, remedy, None);
    exit
}

/// Reports an error in the arguments, which clap has described. Help and version are such errors, too.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !report::is_muted() {
        // A closed stream is not an error.
        let _ = error.print();
    }
    if !error.use_stderr() {
        return Exit::Ok.into();
    }
    let text = error.render().to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    // Clap's tip to pass an unknown flag as a value does not help: no command takes such values.
    let tips = text.lines().filter_map(|line| line.trim_start().strip_prefix("tip: "));
    let tips = tips.filter(|tip| !tip.starts_with("to pass"));
    let tips: Vec<&str> = tips.collect();
    let remedy = (!tips.is_empty()).then(|| tips.join("\n"));
    answer(Exit::Usage, what.strip_prefix("error: ").unwrap_or(what), remedy, None);
    Exit::Usage.into()
}

/// With `--json`, prints the object for an error, which is the only output on stdout.
fn answer(exit: Exit, what: &str, remedy: Option<String>, result: Option<Value>) {
    // Relaxed: stored before any thread was started.
    if JSON.load(Ordering::Relaxed) {
        // If stdout cannot be written, stderr still has the error.
        let _ = report::out_json(document::ERROR, &failure_object(exit, what, remedy, result));
    }
}

/// `error`, `exit_code` and `remedy`, then the result as far as there is one.
fn failure_object(
    exit: Exit,
    what: &str,
    remedy: Option<String>,
    result: Option<Value>,
) -> Map<String, Value> {
    let remedy = remedy.or_else(|| exit.general_remedy().map(str::to_owned));
    let mut object = Map::new();
    for (key, value) in [("error", json!(what)), ("exit_code", json!(exit.code())), ("remedy", json!(remedy))]
    {
        object.insert(key.to_owned(), value);
    }
    match result {
        Some(Value::Object(result)) => object.extend(result),
        Some(result) => object.extend([("result".to_owned(), result)]),
        None => {}
    }
    object
}

/// How advice starts. Other text after a semicolon or a line break is a part of what happened.
const ADVICE: [&str; 38] = [
    "add",
    "check",
    "choose",
    "create",
    "did",
    "feedline",
    "'feedline",
    "find",
    "fix",
    "for",
    "free",
    "generate",
    "give",
    "install",
    "leave",
    "let",
    "list",
    "lower",
    "make",
    "move",
    "or",
    "put",
    "raise",
    "read",
    "remove",
    "rename",
    "replace",
    "resume",
    "run",
    "see",
    "set",
    "try",
    "turn",
    "to",
    "use",
    "wait",
    "write",
    "is",
];

/// Divides an error into what happened and what to do. By convention, an error ends with what to do: in lines that are
/// marked as help, else in the lines after the first that start with advice, else after a semicolon.
fn split_remedy(text: &str) -> (String, Option<String>) {
    let help = |line: &&str| line.starts_with(HELP_LINE);
    if text.lines().any(|line| help(&line)) {
        let (help, what): (Vec<&str>, Vec<&str>) = text.lines().partition(help);
        let help = help.iter().map(|line| line.trim_start_matches(HELP_LINE).trim_start_matches("help: "));
        return (what.join("\n"), Some(help.collect::<Vec<_>>().join("\n")));
    }
    let advises = |rest: &str| {
        let word = rest.split([' ', ':', ',']).next().unwrap_or_default();
        ADVICE.contains(&word)
    };
    let breaks = |separator: &'static str| {
        let mut found =
            text.match_indices(separator).map(|(at, _)| (&text[..at], &text[at + separator.len()..]));
        found.find(|(_, rest)| advises(rest))
    };
    let split = breaks("\n").or_else(|| breaks("; "));
    split.map_or((text.to_owned(), None), |(what, remedy)| (what.to_owned(), Some(remedy.to_owned())))
}

/// How help lines below a line of the workload file start.
const HELP_LINE: &str = "   = ";

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
    cluster::announce_abandoned(message);
    fail(Exit::Incomplete, message);
    let (tidied, over) = mpsc::channel::<()>();
    let tidying = std::thread::Builder::new().spawn(move || {
        report::folder::remove_leavings();
        drop(tidied);
    });
    // If the thread could not be started, the channel is already closed.
    drop(tidying);
    let _ = over.recv_timeout(TIDYING);
    cluster::let_others_report();
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
    fn an_error_is_divided_into_what_happened_and_what_to_do() {
        for (text, what, remedy) in [
            ("interrupted", "interrupted", None),
            ("a; b; lower c", "a; b", Some("lower c")),
            ("no data; there\ncreate it with: x; y", "no data; there", Some("create it with: x; y")),
            (
                "another data set:\n  seed is 1\nremove it",
                "another data set:\n  seed is 1",
                Some("remove it"),
            ),
            (
                "no progress; blocked:\nrank 0, step 6: read x",
                "no progress; blocked:\nrank 0, step 6: read x",
                None,
            ),
            ("a; b.csv does not exist", "a; b.csv does not exist", None),
            ("a list:\n  one\n  two", "a list:\n  one\n  two", None),
            (
                "unknown key\n  --> w.yaml:2:3\n   = help: did you mean 'x'?\n   = allowed: a, b",
                "unknown key\n  --> w.yaml:2:3",
                Some("did you mean 'x'?\nallowed: a, b"),
            ),
        ] {
            assert_eq!(split_remedy(text), (what.to_owned(), remedy.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn the_result_is_part_of_the_object_for_an_error() {
        let object =
            |result| Value::Object(failure_object(Exit::Incomplete, "a", Some("b".to_owned()), result));
        let error = json!({"error": "a", "exit_code": 4, "remedy": "b"});
        assert_eq!(object(None), error);
        let keys = json!({"error": "a", "exit_code": 4, "remedy": "b", "epochs": 2});
        assert_eq!(object(Some(json!({"epochs": 2}))), keys);
        let list = json!({"error": "a", "exit_code": 4, "remedy": "b", "result": [1]});
        assert_eq!(object(Some(json!([1]))), list);
    }

    #[test]
    fn codes_are_distinct() {
        for (i, (exit, meaning)) in Exit::ALL.iter().enumerate() {
            assert!(!meaning.is_empty());
            assert!(Exit::ALL[..i].iter().all(|(other, _)| other.code() != exit.code()));
        }
    }
}
