//! Measures what the preload library adds to a call on this host, by running this program again with and without it.
//! It also shows whether the library is loaded at all.

use std::ffi::{CString, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::clock;
use super::memory::RingMemory;
use super::session::Session;

/// The environment variable with the number of calls of a round. A program that finds it calls [`calibrate_child`]
/// and ends.
pub const CALIBRATE_VARIABLE: &str = "FEEDLINE_AUDIT_CALIBRATE";

/// How the line of the result begins.
const RESULT: &str = "feedline-calibration";
const CALLS: u64 = 1000;
/// Rounds in one process, and processes of each kind. The best one counts.
const ROUNDS: u64 = 4;
const REPETITIONS: usize = 3;
/// Time for everything.
const LIMIT_NS: u64 = 2_000_000_000;
/// Time for a single process, also on a busy host.
const TRIAL_NS: u64 = 20_000_000_000;

/// Additional time of calls that are observed, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CallCosts {
    pub(super) per_call: f64,
    /// Of an open and its close.
    pub(super) per_open: f64,
}

/// Times of a positioned read, and of an open with its close.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    read: f64,
    open: f64,
}

impl Times {
    fn least(self, other: Times) -> Times {
        Times { read: self.read.min(other.read), open: self.open.min(other.open) }
    }
}

/// The part of the calibration in a process of its own: `main` calls it before anything else if the environment
/// variable [`CALIBRATE_VARIABLE`] is set, and ends. Writes the times to stdout.
pub fn calibrate_child() {
    let calls = std::env::var(CALIBRATE_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(CALLS);
    let path = std::env::current_exe().ok().and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    if let Some(Times { read, open }) = path.and_then(|path| measure(&path, calls)) {
        // Whoever does not receive it has no calibration.
        let _ = writeln!(std::io::stdout(), "{RESULT} {read} {open}");
    }
}

/// The time of one of `calls` calls.
fn timed(calls: u64, mut call: impl FnMut()) -> f64 {
    let begin = clock::now();
    (0..calls).for_each(|_| call());
    clock::now().saturating_sub(begin) as f64 / calls.max(1) as f64
}

/// Calls the C library, as a job does: Rust's own functions could use other system calls.
fn measure(path: &CString, calls: u64) -> Option<Times> {
    // SAFETY: the path ends with a NUL byte.
    let open = || unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // SAFETY: a descriptor of the caller.
    let close = |fd| unsafe { libc::close(fd) };
    let fd = open();
    if fd < 0 {
        return None;
    }
    let mut buffer = [0_u8; 64];
    let mut best: Option<Times> = None;
    for _ in 0..ROUNDS {
        let read = timed(calls, || {
            // SAFETY: the buffer is as long as said.
            unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        });
        let open = timed(calls, || {
            close(open());
        });
        let times = Times { read, open };
        best = Some(best.map_or(times, |best| best.least(times)));
    }
    close(fd);
    best
}

/// The times in the output of [`calibrate_child`].
fn parse(output: &str) -> Option<Times> {
    let line = output.lines().find_map(|line| line.split_once(RESULT))?.1;
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<f64>);
    let (read, open) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (read.is_finite() && open.is_finite()).then_some(Times { read, open })
}

/// Runs a program until `deadline`, and returns what it measured.
fn run_child(command: &mut Command, deadline: u64) -> Option<Times> {
    command.env(CALIBRATE_VARIABLE, CALLS.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    loop {
        match child.try_wait() {
            Ok(None) if clock::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            Ok(Some(_)) => break,
            _ => {
                // It may have ended in between.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
    let mut output = String::new();
    child.stdout.take()?.read_to_string(&mut output).ok()?;
    parse(&output)
}

/// Measures the costs with a program that calls [`calibrate_child`]. `None`: it does not, or it is not observed.
fn compare(session: &Session, program: impl Fn() -> Option<Command>) -> Option<CallCosts> {
    let deadline = clock::now() + LIMIT_NS;
    let ring = RingMemory::new().ok()?;
    let variables: Vec<(&str, OsString)> = session.environment(&ring.path(), |name| std::env::var_os(name));
    let mut best: Option<(Times, Times)> = None;
    for _ in 0..REPETITIONS {
        let plain = run_child(&mut program()?, deadline)?;
        let observed = run_child(program()?.envs(variables.iter().cloned()), deadline)?;
        let (plain_best, observed_best) = best.unwrap_or((plain, observed));
        best = Some((plain.least(plain_best), observed.least(observed_best)));
    }
    if ring.claimed().is_empty() {
        return None;
    }
    let (plain, observed) = best?;
    let per_call = (observed.read - plain.read).max(0.0);
    Some(CallCosts { per_call, per_open: (observed.open - plain.open).max(0.0) })
}

/// Measures the costs with this program itself.
pub(super) fn calibrate(session: &Session) -> Option<CallCosts> {
    compare(session, own_program)
}

/// Whether this program is observed, if it is started once more.
pub(super) fn is_observed(session: &Session) -> bool {
    let Ok(ring) = RingMemory::new() else { return false };
    let variables = session.environment(&ring.path(), |name| std::env::var_os(name));
    let times =
        own_program().and_then(|mut command| run_child(command.envs(variables), clock::now() + TRIAL_NS));
    times.is_some() && !ring.claimed().is_empty()
}

/// This program, which calls [`calibrate_child`]. A program without the call in its `main` must not start jobs of its
/// own.
fn own_program() -> Option<Command> {
    if std::env::var_os(CALIBRATE_VARIABLE).is_some() {
        return None;
    }
    let mut command = Command::new("/proc/self/exe");
    // Without that call, programs of tests run all their tests if they have no arguments.
    command.arg("--list");
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a test by itself: the process that the next test starts.
    #[test]
    fn is_the_child() {
        if std::env::var_os(CALIBRATE_VARIABLE).is_some() {
            calibrate_child();
        }
    }

    #[test]
    fn costs_of_calls_are_measured() {
        let _alone = super::super::tests::alone();
        let session = Session::new(false).unwrap();
        let costs = compare(&session, || {
            let mut command = Command::new("/proc/self/exe");
            command.args(["--exact", "source::calibrate::tests::is_the_child", "--nocapture"]);
            Some(command)
        });
        // On a busy machine, either of the two times can be the longer one.
        let costs = costs.unwrap();
        assert!(
            [costs.per_open, costs.per_call].iter().all(|cost| cost.is_finite() && *cost >= 0.0),
            "{costs:?}"
        );
    }

    #[test]
    fn a_program_without_the_call_gives_nothing() {
        let _alone = super::super::tests::alone();
        let session = Session::new(false).unwrap();
        assert_eq!(calibrate(&session), None);
        assert!(!is_observed(&session));
        assert_eq!(compare(&session, || Some(Command::new("true"))), None);
        assert_eq!(compare(&session, || Some(Command::new("/nonexistent/program"))), None);
    }

    #[test]
    fn other_output_is_no_result() {
        assert_eq!(parse(&format!("x\ntest a ... {RESULT} 1.5 20\n")), Some(Times { read: 1.5, open: 20.0 }));
        for text in ["", RESULT, "feedline-calibration 1", "feedline-calibration NaN 2"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
