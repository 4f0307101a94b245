//! The process of the job: starts it, forwards signals to it, and waits for it and for orphans of its tree.
//!
//! One job at a time: signals have one receiver, and every child of this process is taken for one of the job's.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use model::observed::JobExit;

use super::clock;
use super::faults::FaultEvents;
use super::memory::RingMemory;
use super::proc::{self, IoBytes};

/// Signals that are forwarded. Those that stop a process stay as they are.
const FORWARDED: [libc::c_int; 7] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGTERM];

/// The process that signals are forwarded to; 0: none yet, or none any more.
static RECEIVER: AtomicI32 = AtomicI32::new(0);
/// Signals that arrived before there was a receiver, by bits.
static EARLY: AtomicU32 = AtomicU32::new(0);

/// Forwards a signal that another process sent. Those of a terminal come from the kernel, and reach the job as well.
extern "C" fn forward(signal: libc::c_int, about: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid description; `kill` and the addresses of `errno` are safe in a handler.
    unsafe {
        let errno = *libc::__errno_location();
        let (code, sender) = ((*about).si_code, (*about).si_pid());
        let receiver = RECEIVER.load(SeqCst);
        if receiver == 0 {
            EARLY.fetch_or(1 << signal, SeqCst);
        } else if code <= 0 && sender != receiver {
            libc::kill(receiver, signal);
        }
        *libc::__errno_location() = errno;
    }
}

/// While it exists, signals are forwarded.
struct Forwarding {
    before: Vec<(libc::c_int, libc::sigaction)>,
}

impl Forwarding {
    fn new() -> Forwarding {
        RECEIVER.store(0, SeqCst);
        EARLY.store(0, SeqCst);
        let mut before = Vec::new();
        for signal in FORWARDED {
            // SAFETY: both structures are valid for the calls, and the handler does what handlers may do.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                let known = libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0;
                // `nohup` and shells ignore signals for a job, which inherits that.
                if !known || old.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = forward as *const () as usize;
                new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                if libc::sigaction(signal, &raw const new, std::ptr::null_mut()) == 0 {
                    before.push((signal, old));
                }
            }
        }
        Forwarding { before }
    }

    fn set_receiver(pid: i32) {
        RECEIVER.store(pid, SeqCst);
        let early = EARLY.swap(0, SeqCst);
        for signal in FORWARDED.into_iter().filter(|signal| early & (1 << signal) != 0) {
            // SAFETY: the process is a child that is not reaped yet.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        RECEIVER.store(0, SeqCst);
        for (signal, old) in &self.before {
            // SAFETY: restores what was there.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}

/// A file beyond the limit of file sizes of this user is an error, and does not end this process. A handler, as
/// programs do not inherit it.
pub(super) fn survive_file_limit() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the structure is valid for both calls, and the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let known = libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &raw mut action) == 0;
        if known && action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut());
        }
    }
}

/// While it exists, orphans of the job become children of this process.
struct Subreaper {
    before: libc::c_int,
}

impl Subreaper {
    fn new() -> Subreaper {
        let mut before: libc::c_int = 0;
        // SAFETY: the kernel writes one number. A kernel without it leaves orphans to others.
        unsafe {
            libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut before);
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        }
        Subreaper { before }
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        // SAFETY: has no pointers.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, self.before) };
    }
}

/// A process of the job that ended and was a child of this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reaped {
    pub(super) pid: u32,
    pub(super) exit: JobExit,
}

/// A running job.
pub(super) struct RunningJob {
    pid: u32,
    exit: Option<JobExit>,
    /// When the main process ended; 0 before.
    ended_ns: Arc<AtomicU64>,
    waiter: Option<JoinHandle<()>>,
    forwarding: Option<Forwarding>,
    _subreaper: Subreaper,
}

/// How a process ended, from what `waitid` says.
fn exit_of(about: &libc::siginfo_t) -> JobExit {
    // SAFETY: the kernel filled it in for a child.
    let status = unsafe { about.si_status() };
    match about.si_code {
        libc::CLD_EXITED => JobExit { code: Some(status), signal: None },
        _ => JobExit { code: None, signal: Some(status) },
    }
}

/// Waits until a child ended, and leaves it as it is.
fn wait_for(kind: libc::idtype_t, pid: u32, flags: libc::c_int) -> io::Result<Option<libc::siginfo_t>> {
    loop {
        // SAFETY: all zeros is a valid value, and the kernel writes into it.
        let (result, about) = unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            (libc::waitid(kind, pid, &raw mut about, libc::WEXITED | libc::WNOWAIT | flags), about)
        };
        if result == 0 {
            // SAFETY: filled in, or zero if no child ended.
            return Ok((unsafe { about.si_pid() } != 0).then_some(about));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

impl RunningJob {
    /// Starts the job, and records its page faults. `ring` is woken when it ends.
    pub(super) fn start(
        command: &[OsString],
        variables: Vec<(&'static str, OsString)>,
        ring: &Arc<RingMemory>,
    ) -> io::Result<(RunningJob, FaultEvents)> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let subreaper = Subreaper::new();
        let forwarding = Forwarding::new();
        let mut command = Command::new(program);
        command.args(arguments).envs(variables);
        let ended_ns = Arc::new(AtomicU64::new(0));
        let (ended, ring) = (Arc::clone(&ended_ns), Arc::clone(ring));
        let (sender, started) = channel();
        // The thread starts nothing else, so that its page faults are those of the job. It lives as long as the job,
        // which could ask for a signal when the thread that started it ends.
        let waiter = std::thread::spawn(move || {
            let faults = FaultEvents::open();
            let child = command.spawn();
            let pid = child.as_ref().map(Child::id).ok();
            // The receiver waits for it.
            let _ = sender.send((child, faults));
            if let Some(pid) = pid {
                // Fails if somebody else has waited for the job: then it ended, too.
                let _ = wait_for(libc::P_PID, pid, 0);
                ended.store(clock::now(), SeqCst);
                ring.wake();
            }
        });
        let (child, faults) = started.recv().map_err(|_| io::Error::other("the thread of the job ended"))?;
        let pid = child?.id();
        Forwarding::set_receiver(i32::try_from(pid).unwrap_or(0));
        let job = RunningJob {
            pid,
            exit: None,
            ended_ns,
            waiter: Some(waiter),
            forwarding: Some(forwarding),
            _subreaper: subreaper,
        };
        Ok((job, faults))
    }

    /// When and how the main process ended.
    pub(super) fn end(&self) -> Option<(u64, JobExit)> {
        let ended = self.ended_ns.load(SeqCst);
        self.exit.filter(|_| ended != 0).map(|exit| (ended, exit))
    }

    /// Waits for children that have ended, and adds their counts to `io` before.
    pub(super) fn reap(&mut self, io: &mut IoBytes) -> Vec<Reaped> {
        let mut all = Vec::new();
        while let Ok(Some(about)) = wait_for(libc::P_ALL, 0, libc::WNOHANG) {
            // SAFETY: filled in for a child.
            let pid = unsafe { about.si_pid() };
            let Ok(number) = u32::try_from(pid) else { break };
            if number == self.pid {
                // The waiter must see the process before its number is free, and no signal may reach the next
                // process with it.
                if let Some(waiter) = self.waiter.take() {
                    let _ = waiter.join();
                }
                self.forwarding = None;
                self.exit = Some(exit_of(&about));
            }
            all.push(Reaped { pid: number, exit: exit_of(&about) });
            *io = io.plus(proc::io(number).unwrap_or_default());
            // SAFETY: a child that has ended.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
        all
    }
}
