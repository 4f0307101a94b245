//! Two processes: the one that the user started only waits, and its child does all the work. A thread that waits for a
//! frozen file system cannot be terminated, not even by SIGKILL, and a process ends only with its last thread. So the
//! process that the user waits for must not access storage. It passes signals on, and turns every way in which the
//! child can die into a message and a documented exit code.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use engine::meter::Monotonic;
use model::units::Nanos;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use store::Now;

use crate::cluster;
use crate::exit::{Exit, fail};
use crate::report::{self, status};

/// How long the worker may continue after a signal. It normally gives up earlier by itself.
const LATEST: Nanos = Nanos(4_700_000_000);
/// Signals within this time of the first one are the same request: `timeout` and a terminal that closes send theirs to
/// the process and to its group. Ctrl-C is different: the terminal sends one signal each time it is pressed.
const SAME_REQUEST: Nanos = Nanos(500_000_000);
/// How long to wait for the end of a worker that was killed or has given up.
const LEAVING: Nanos = Nanos(200_000_000);

/// What acknowledges a signal.
const STOPPING: &str = "stopping; press again to abort";
const STOPPING_ONLY: &str = "stopping";

/// Which of the two processes this is.
pub(crate) enum ProcessRole {
    Worker,
    Supervisor(Supervisor),
}

/// The process that waits for the worker.
pub(crate) struct Supervisor {
    worker: Pid,
    /// The signals to wait for. They are blocked, so that `sigtimedwait` receives each of them.
    signals: libc::sigset_t,
}

/// The signals that request a stop. SIGHUP is left out if it was ignored at the start, as `nohup` requires.
pub(crate) fn stop_signals() -> Vec<libc::c_int> {
    let all = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGXCPU];
    all.into_iter().filter(|signal| *signal != libc::SIGHUP || !is_ignored(*signal)).collect()
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only fills the structure, which outlives the call; all zeros is a valid
    // value of it.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// The id of the process that the user started; 0 before the fork.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The id of the process that the user started.
pub(crate) fn number() -> u32 {
    // Relaxed: stored once, before any thread is started.
    NUMBER.load(Ordering::Relaxed)
}

fn parent_number() -> u32 {
    rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get().unsigned_abs())
}

/// Keeps one process. A command that runs a job of the user passes signals on to it and waits until it has ended,
/// however long that takes; and the job inherits what the user has set, such as ignored signals.
pub(crate) fn stay_alone() {
    NUMBER.store(rustix::process::getpid().as_raw_nonzero().get().unsigned_abs(), Ordering::Relaxed);
}

/// Forks. The process must not have other threads yet.
pub(crate) fn split() -> io::Result<ProcessRole> {
    let own = rustix::process::getpid();
    NUMBER.store(own.as_raw_nonzero().get().unsigned_abs(), Ordering::Relaxed);
    // SAFETY: only changes the actions of two signals, in a process without other threads. With SIGXFSZ ignored,
    // exceeding `ulimit -f` is a write error and does not end the process.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
    let signals = [stop_signals(), vec![libc::SIGCHLD, libc::SIGUSR1]].concat();
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the sets outlive the calls, and the first call initialises what the others read. The forked process has
    // one thread, so in the child no lock can be held by a thread that does not exist there.
    let (forked, set, before) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        (libc::fork(), set.assume_init(), before.assume_init())
    };
    if forked < 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some(worker) = Pid::from_raw(forked) {
        return Ok(ProcessRole::Supervisor(Supervisor { worker, signals: set }));
    }
    // SAFETY: `pthread_sigmask` above has filled the set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(own) {
        // The parent has already ended, so nothing waits for this process.
        // SAFETY: ends a process that has one thread and has done nothing yet.
        unsafe { libc::_exit(i32::from(Exit::Incomplete.code())) }
    }
    Ok(ProcessRole::Worker)
}

/// Ends the worker immediately although some of its threads may hang, and tells the supervisor not to wait for it.
pub(crate) fn give_up(exit: Exit) -> ! {
    // A reader of our output sees its end only when the last descriptor is closed. A hung thread would keep it open.
    if let Ok(null) = std::fs::File::open("/dev/null") {
        for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            // SAFETY: only replaces one of the three standard streams, which no object in this process owns.
            unsafe { libc::dup2(null.as_raw_fd(), stream) };
        }
    }
    // If the supervisor has ended, the parent is an unrelated process.
    if let Some(parent) = rustix::process::getppid().filter(|_| number() == parent_number()) {
        let _ = rustix::process::kill_process(parent, Signal::USR1);
    }
    resume();
    // SAFETY: ends the process without running exit handlers, which a hung thread could block.
    unsafe { libc::_exit(i32::from(exit.code())) }
}

/// Lets the supervisor continue if it was stopped: it has to notice that the worker ends.
pub(crate) fn resume() {
    if let Some(parent) = rustix::process::getppid().filter(|_| number() == parent_number()) {
        let _ = rustix::process::kill_process(parent, Signal::CONT);
    }
}

/// A signal that was received.
#[derive(Clone, Copy, Debug)]
struct StopSignal {
    number: libc::c_int,
    /// The process that sent it, if one did.
    from: libc::pid_t,
    /// Whether the terminal sent it.
    by_key: bool,
}

/// Why a wait of the supervisor ended.
enum WaitResult {
    /// The worker has ended.
    Ended(WaitStatus),
    /// The worker has ended as far as it can; do not wait for it.
    GivenUp,
    /// A signal that requests a stop.
    Asked(StopSignal),
    TimedOut,
}

impl Supervisor {
    /// Waits for the worker and returns the exit code of the program.
    pub(crate) fn wait(self) -> ExitCode {
        let clock = Monotonic::new();
        let mut asked: Option<Nanos> = None;
        loop {
            match self.next(&clock, asked.map(|moment| moment + LATEST)) {
                WaitResult::Ended(status) => return exit_code(status),
                WaitResult::GivenUp => return self.leave(&clock),
                WaitResult::Asked(signal)
                    if !signal.by_key
                        && asked.is_some_and(|moment| clock.now().since(moment) < SAME_REQUEST) => {}
                WaitResult::Asked(signal) if asked.is_none() => {
                    asked = Some(clock.now());
                    // Before the worker gets the signal, so that its last lines come after this one.
                    acknowledge(if signal.number == libc::SIGINT { STOPPING } else { STOPPING_ONLY });
                    let signal = Signal::from_named_raw(signal.number).unwrap_or(Signal::TERM);
                    let _ = rustix::process::kill_process(self.worker, signal);
                }
                WaitResult::Asked(_) => {
                    return self.abort(&clock, "second signal: stopped immediately, without a result");
                }
                WaitResult::TimedOut => {
                    return self.abort(&clock, "interrupted, but the work did not stop in time");
                }
            }
        }
    }

    /// Kills the worker, says why, and ends.
    fn abort(&self, clock: &Monotonic, why: &str) -> ExitCode {
        // First, so that the worker does not draw its progress over the message.
        let _ = rustix::process::kill_process(self.worker, Signal::KILL);
        status::take_over();
        fail(Exit::Incomplete, why);
        self.leave(clock)
    }

    /// Kills the worker and ends, even if the worker does not.
    fn leave(&self, clock: &Monotonic) -> ExitCode {
        let _ = rustix::process::kill_process(self.worker, Signal::KILL);
        let deadline = Some(clock.now() + LEAVING);
        let gone = loop {
            match self.next(clock, deadline) {
                WaitResult::Ended(_) => break true,
                WaitResult::TimedOut => break false,
                WaitResult::GivenUp | WaitResult::Asked(_) => {}
            }
        };
        if !gone {
            let worker = self.worker.as_raw_nonzero();
            report::note(&format!("  process {worker} cannot be terminated until the storage responds"));
        }
        Exit::Incomplete.into()
    }

    fn next(&self, clock: &Monotonic, deadline: Option<Nanos>) -> WaitResult {
        loop {
            if let Ok(Some((_, status))) = rustix::process::waitpid(Some(self.worker), WaitOptions::NOHANG) {
                return WaitResult::Ended(status);
            }
            let left = deadline.map(|deadline| deadline.since(clock.now()));
            if left == Some(Nanos::ZERO) {
                return WaitResult::TimedOut;
            }
            match self.take_signal(left) {
                Some(StopSignal { number: libc::SIGUSR1, from, .. })
                    if from == self.worker.as_raw_nonzero().get() =>
                {
                    return WaitResult::GivenUp;
                }
                None | Some(StopSignal { number: libc::SIGUSR1 | libc::SIGCHLD, .. }) => {}
                Some(signal) => return WaitResult::Asked(signal),
            }
        }
    }

    /// The next signal; `None` if there was none in time.
    fn take_signal(&self, within: Option<Nanos>) -> Option<StopSignal> {
        let span = Duration::from_nanos(within.unwrap_or(Nanos(u64::from(u32::MAX) * 1_000_000_000)).0);
        let timeout = libc::timespec {
            tv_sec: span.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(span.subsec_nanos() as i32),
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: all three arguments outlive the call. It fills the second, for which all zeros is a valid value.
        unsafe {
            let number = libc::sigtimedwait(&raw const self.signals, info.as_mut_ptr(), &raw const timeout);
            let info = info.assume_init();
            let by_key = number == libc::SIGINT && info.si_code == libc::SI_KERNEL;
            // The process is set for signals that a process sends. For other signals its value is not used.
            (number > 0).then(|| StopSignal { number, from: info.si_pid(), by_key })
        }
    }
}

/// Acknowledges a signal, unless a launcher sent it: that sends one whenever it ends a job.
fn acknowledge(line: &str) {
    if !cluster::is_launched() {
        status::interrupt(line);
    }
}

/// The exit code for the worker's end. If a signal ended it, the worker could not print a message, so this does.
fn exit_code(status: WaitStatus) -> ExitCode {
    if let Some(code) = status.exit_status() {
        return ExitCode::from(code as u8);
    }
    let signal = status.terminating_signal().unwrap_or_default();
    let (exit, what) = match signal {
        libc::SIGINT | libc::SIGTERM | libc::SIGHUP => (Exit::Incomplete, "interrupted".to_owned()),
        libc::SIGXCPU => (Exit::Incomplete, "CPU time limit exceeded (ulimit -t)".to_owned()),
        libc::SIGKILL => (
            Exit::Incomplete,
            "killed by SIGKILL; the kernel sends it if memory runs out (see dmesg)".to_owned(),
        ),
        libc::SIGABRT => (
            Exit::Incomplete,
            "ended by SIGABRT; see the message above. If memory ran out, raise the limit (ulimit -v) or use --memory"
                .to_owned(),
        ),
        other => (Exit::Internal, format!("internal error: ended by signal {other}")),
    };
    status::take_over();
    let exit = cluster::report_lost_worker(exit, &what);
    exit.into()
}
