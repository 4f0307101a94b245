//! Processes and threads that start, execute programs and end.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use model::observed::JobExit;

use super::line::{name_of, texts};
use super::table::{CloneKind, TracedProcess};
use super::{ReturnedCall, StraceReader};
use crate::event::{ProcessIndex, ProcessStart};

/// Whether a call makes a process or a thread.
pub(super) fn makes_child(name: &str) -> bool {
    matches!(name, "clone" | "clone3" | "fork" | "vfork" | "clone2")
}

/// What kind of child a call makes, from its text as far as it is known.
fn kind_of(text: &str) -> CloneKind {
    let has = |flag: &str| text.contains(flag);
    CloneKind {
        is_thread: has("CLONE_THREAD"),
        shares_files: has("CLONE_FILES"),
        is_vfork: has("CLONE_VFORK") || text.starts_with("vfork"),
    }
}

/// The number of a signal.
pub(super) fn signal(name: &str) -> Option<i32> {
    let known = [
        ("SIGHUP", libc::SIGHUP),
        ("SIGINT", libc::SIGINT),
        ("SIGQUIT", libc::SIGQUIT),
        ("SIGILL", libc::SIGILL),
        ("SIGTRAP", libc::SIGTRAP),
        ("SIGABRT", libc::SIGABRT),
        ("SIGBUS", libc::SIGBUS),
        ("SIGFPE", libc::SIGFPE),
        ("SIGKILL", libc::SIGKILL),
        ("SIGUSR1", libc::SIGUSR1),
        ("SIGSEGV", libc::SIGSEGV),
        ("SIGUSR2", libc::SIGUSR2),
        ("SIGPIPE", libc::SIGPIPE),
        ("SIGALRM", libc::SIGALRM),
        ("SIGTERM", libc::SIGTERM),
        ("SIGXCPU", libc::SIGXCPU),
        ("SIGXFSZ", libc::SIGXFSZ),
        ("SIGSYS", libc::SIGSYS),
    ];
    known.into_iter().find(|(known, _)| *known == name).map(|(_, number)| number)
}

impl StraceReader<'_> {
    /// The process of a thread; a thread that was not seen before is a child of a call that has not returned.
    pub(super) fn process_of(&mut self, tid: u32) -> u32 {
        if let Some(pid) = self.threads.get(&tid) {
            return *pid;
        }
        let making = |text: &str| name_of(text).is_some_and(makes_child);
        let parent = self
            .begun
            .iter()
            .filter(|(_, begun)| begun.child.is_none() && making(&begun.text))
            .min_by_key(|(_, begun)| begun.at_ns)
            .map(|(tid, begun)| (*tid, kind_of(&begun.text)));
        if let Some((parent, kind)) = parent {
            if let Some(begun) = self.begun.get_mut(&parent) {
                begun.child = Some(tid);
            }
            let parent = self.threads.get(&parent).copied().unwrap_or(parent);
            return self.add_child(parent, tid, kind);
        }
        match self.first {
            // The first lines had no number, as there was only one process.
            Some(0) => {
                self.threads.remove(&0);
                self.threads.insert(tid, 0);
                return 0;
            }
            Some(_) => self.strays += 1,
            None => self.first = Some(tid),
        }
        self.threads.insert(tid, tid);
        self.processes.insert(tid, TracedProcess { pid: tid, threads: 1, ..TracedProcess::default() });
        tid
    }

    /// Adds a thread or process. Returns its process.
    fn add_child(&mut self, parent: u32, tid: u32, kind: CloneKind) -> u32 {
        let Some(process) = self.processes.get_mut(&parent) else { return parent };
        if kind.is_thread {
            process.threads += 1;
            self.threads.insert(tid, parent);
            return parent;
        }
        let child = process.child(tid, kind);
        self.processes.insert(tid, child);
        self.threads.insert(tid, tid);
        tid
    }

    /// A call that makes a child returned.
    pub(super) fn made_child(&mut self, done: &ReturnedCall<'_>) {
        let Some(tid) = done.call.result.and_then(|tid| u32::try_from(tid).ok()).filter(|tid| *tid > 0)
        else {
            return;
        };
        let mut kind = done.call.arguments.iter().fold(CloneKind::default(), |kind, text| {
            let more = kind_of(text);
            CloneKind {
                is_thread: kind.is_thread | more.is_thread,
                shares_files: kind.shares_files | more.shares_files,
                is_vfork: kind.is_vfork | more.is_vfork,
            }
        });
        kind.is_vfork |= done.call.name == "vfork";
        let is_new = done.child != Some(tid) && !self.threads.contains_key(&tid);
        // The child of `vfork` is over its start, or even over, when the call returns in the same file.
        if is_new && !(kind.is_vfork && done.child.is_some()) {
            self.add_child(done.pid, tid, kind);
        }
        if !kind.is_thread && !kind.is_vfork {
            self.index(tid, done.start_ns);
        }
    }

    /// The process as the aggregation knows it. `None` if its calls do not count.
    pub(super) fn index(&mut self, pid: u32, at_ns: u64) -> Option<ProcessIndex> {
        let process = self.processes.get_mut(&pid)?;
        if process.is_silent {
            return None;
        }
        if process.index.is_none() {
            let start = ProcessStart {
                pid,
                parent: process.parent,
                start_ns: at_ns,
                executed: process.is_executed || process.parent == 0,
                command: process.command.clone(),
                rank: None,
                ranks: None,
            };
            process.index = Some(self.feed.process(&start));
        }
        process.index
    }

    /// A program was executed.
    pub(super) fn executed(&mut self, done: &ReturnedCall<'_>) {
        if done.call.result != Some(0) {
            return;
        }
        let list = done.call.arguments.iter().find(|argument| argument.starts_with('['));
        let words: Vec<Vec<u8>> = list.map(|list| texts(list)).unwrap_or_default();
        let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
        if self.first == Some(done.pid) && self.command.is_empty() {
            self.command.clone_from(&words);
        }
        let Some(mut process) = self.processes.remove(&done.pid) else { return };
        self.end_image(&process, done.end_ns(), None);
        let words: Vec<String> = crate::observe::hide_secrets(&words);
        process.execute(words.join(" "));
        // Other threads are gone.
        process.threads = 1;
        self.threads.retain(|tid, pid| *pid != done.pid || *tid == done.tid);
        self.threads.insert(done.pid, done.pid);
        if done.tid != done.pid {
            self.threads.remove(&done.tid);
        }
        self.processes.insert(done.pid, process);
        self.index(done.pid, done.end_ns());
    }

    /// A thread ended, and with the last one its process.
    pub(super) fn gone(&mut self, tid: u32, at_ns: u64, exit: JobExit) {
        self.begun.remove(&tid);
        let Some(pid) = self.threads.remove(&tid) else { return };
        if self.first == Some(pid) && (tid == pid || pid == 0) {
            self.exit = exit;
        }
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.threads = process.threads.saturating_sub(1);
        if process.threads == 0 {
            self.end_process(pid, at_ns, exit.signal);
        }
    }
}
