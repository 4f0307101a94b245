//! Calls that concern files and descriptors: from a line of strace to an event.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;

use super::line::{FdArgument, descriptor, unescaped, unquoted};
use super::table::{Descriptor, NOWHERE, OpenFile};
use super::{ReturnedCall, StraceReader};
use crate::event::SeenCall;
use crate::file_class::code_flag;
use crate::layout::{CODE, DIRECT, FdKind, Op, POSITIONED, SHARED, WRITABLE};
use crate::trace::feed::{class_of, class_of_mode, file_number};

/// Folders that are remembered.
const MOST_FOLDERS: usize = 1 << 20;

/// What an event is about.
struct EventFile {
    number: u64,
    kind: FdKind,
    flags: u16,
    fd: i32,
}

impl EventFile {
    fn of(fd: i32, descriptor: &Descriptor) -> EventFile {
        let file = &descriptor.file;
        EventFile { number: file.number, kind: file.kind, flags: descriptor.flags(), fd }
    }

    /// A file that is not there, or whose kind is not known.
    fn named(path: &[u8]) -> EventFile {
        EventFile { number: 0, kind: FdKind::Unknown, flags: code_flag(path), fd: -1 }
    }
}

/// The figures of an event: where it began, and what was asked for.
#[derive(Clone, Copy)]
struct EventFigures {
    offset: i64,
    asked: u64,
}

const NO_FIGURES: EventFigures = EventFigures { offset: NOWHERE, asked: 0 };

/// Adds the name of a file to that of its folder.
fn joined<'a>(folder: Option<&[u8]>, path: &'a [u8]) -> Cow<'a, [u8]> {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    match folder {
        Some(folder) if !path.starts_with(b"/") => Cow::Owned([folder, b"/", path].concat()),
        _ => Cow::Borrowed(path),
    }
}

/// The mode in the answer of a `stat`, if strace shows it.
fn mode_of(answer: &str) -> Option<u32> {
    let (_, mode) = answer.split_once("_mode=S_IF")?;
    let kinds = [
        ("REG", libc::S_IFREG),
        ("DIR", libc::S_IFDIR),
        ("IFO", libc::S_IFIFO),
        ("SOCK", libc::S_IFSOCK),
        ("CHR", libc::S_IFCHR),
        ("BLK", libc::S_IFBLK),
        ("LNK", libc::S_IFLNK),
    ];
    kinds.into_iter().find(|(name, _)| mode.starts_with(name)).map(|(_, mode)| mode)
}

impl StraceReader<'_> {
    /// A call that returned, and makes neither a process nor a program.
    pub(super) fn call(&mut self, done: &ReturnedCall<'_>) {
        let call = done.call;
        match call.name {
            "open" => self.opened(done, None, 0, call.argument(1)),
            "creat" => self.opened(done, None, 0, "O_WRONLY|O_CREAT|O_TRUNC"),
            "openat" | "openat2" => self.opened(done, descriptor(call.argument(0)), 1, call.argument(2)),
            "read" | "readv" => self.moved(done, Op::Read, None),
            "pread" | "pread64" | "preadv" | "preadv2" => self.moved(done, Op::Read, call.number(3)),
            "write" | "writev" => self.moved(done, Op::Write, None),
            "pwrite64" | "pwritev" | "pwritev2" => self.moved(done, Op::Write, call.number(3)),
            "close" => self.closed(done),
            "close_range" => self.closed_range(done),
            "lseek" | "_llseek" => self.sought(done),
            "dup" | "dup2" | "dup3" => self.duplicated(done, call.argument(2).contains("O_CLOEXEC")),
            "fcntl" | "fcntl64" => self.controlled(done),
            "stat" | "lstat" | "stat64" | "lstat64" => self.described(done, None, 0, 1),
            "newfstatat" | "fstatat64" => self.described(done, descriptor(call.argument(0)), 1, 2),
            "statx" => self.described(done, descriptor(call.argument(0)), 1, 4),
            "access" => self.described(done, None, 0, usize::MAX),
            "faccessat" | "faccessat2" => self.described(done, descriptor(call.argument(0)), 1, usize::MAX),
            "fstat" | "fstat64" => {
                self.on_descriptor(done, Op::Stat, 0, EventFigures { asked: 1, ..NO_FIGURES });
            }
            "getdents" | "getdents64" => self.listed(done),
            "mmap" | "mmap2" => self.mapped(done),
            "fadvise64" | "readahead" => self.on_descriptor(done, Op::Advise, 0, NO_FIGURES),
            "fsync" | "fdatasync" => self.on_descriptor(done, Op::Sync, 0, NO_FIGURES),
            "recvfrom" | "recvmsg" => self.on_descriptor(done, Op::Receive, 0, NO_FIGURES),
            "sendfile" | "sendfile64" => self.sent(done, 1, 2),
            "copy_file_range" | "splice" => self.sent(done, 0, 1),
            "chdir" | "fchdir" => self.changed_folder(done),
            "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait" => {
                self.emit(done, Op::Poll, &EventFile::named(b""), NO_FIGURES);
            }
            _ => self.other(done),
        }
    }

    /// Calls that only make descriptors, or say something about the process.
    fn other(&mut self, done: &ReturnedCall<'_>) {
        let call = done.call;
        let kind = match call.name {
            "pipe" | "pipe2" => return self.paired(done, 0, FdKind::Pipe),
            "socketpair" => return self.paired(done, 3, FdKind::Socket),
            "io_uring_setup" => {
                if let Some(process) = self.processes.get_mut(&done.pid) {
                    process.has_uring |= call.result >= Some(0);
                }
                FdKind::Other
            }
            "rename" | "renameat" | "renameat2" => {
                return self.emit(done, Op::Rename, &EventFile::named(b""), NO_FIGURES);
            }
            "mkdir" | "mkdirat" => {
                let folder = (call.name == "mkdirat").then(|| descriptor(call.argument(0))).flatten();
                let path = self.path_of(done.pid, folder, call.argument(usize::from(folder.is_some())));
                return self.remember_folder(&path.unwrap_or_default(), FdKind::Folder);
            }
            "unlink" | "unlinkat" => return self.emit(done, Op::Unlink, &EventFile::named(b""), NO_FIGURES),
            "socket" | "accept" | "accept4" => FdKind::Socket,
            "memfd_create" => FdKind::Memory,
            "eventfd" | "eventfd2" | "epoll_create" | "epoll_create1" | "timerfd_create"
            | "inotify_init1" | "signalfd4" | "pidfd_open" => FdKind::Other,
            _ => return,
        };
        self.made(done, kind);
    }

    /// Hands an event over, unless the call did not return.
    fn emit(&mut self, done: &ReturnedCall<'_>, op: Op, file: &EventFile, figures: EventFigures) {
        let Some(result) = done.call.result else { return };
        let Some(index) = self.index(done.pid, done.start_ns) else { return };
        let event = SeenCall {
            op,
            kind: file.kind as u8,
            flags: file.flags,
            tid: done.tid,
            fd: file.fd,
            start_ns: done.start_ns,
            duration_ns: done.call.duration_ns.unwrap_or(0),
            file: file.number,
            device: 0,
            offset: figures.offset,
            asked: figures.asked,
            result,
        };
        self.feed.event(index, event);
    }

    /// Changes the descriptors of a process.
    fn change(&mut self, pid: u32, change: impl FnOnce(&mut HashMap<i32, Descriptor>)) {
        if let Some(process) = self.processes.get(&pid) {
            change(&mut process.descriptors.borrow_mut());
        }
    }

    /// What a descriptor refers to, as far as calls before have shown.
    fn known(&self, pid: u32, fd: i32) -> Option<Descriptor> {
        self.processes.get(&pid)?.descriptors.borrow().get(&fd).cloned()
    }

    /// What a descriptor refers to: as its process opened it, or else as `-y` shows it.
    fn find(&mut self, pid: u32, argument: FdArgument<'_>) -> (i32, Descriptor) {
        let fd = argument.fd.unwrap_or(-1);
        if let Some(known) = self.known(pid, fd) {
            if !known.is_used {
                let used = Descriptor { is_used: true, ..known.clone() };
                self.change(pid, |descriptors| drop(descriptors.insert(fd, used)));
            }
            return (fd, known);
        }
        let Some(path) = argument.path.map(unescaped) else {
            // Descriptors of the terminal are not missed.
            if let Some(process) = self.processes.get_mut(&pid).filter(|_| fd > 2) {
                process.untracked += 1;
            }
            return (fd, Descriptor::new(OpenFile::unknown(), false));
        };
        let (kind, flags) = class_of(&path);
        let descriptor = Descriptor::new(self.file(&path, kind, flags), false);
        let entered = descriptor.clone();
        self.change(pid, |descriptors| drop(descriptors.insert(fd, entered)));
        (fd, descriptor)
    }

    /// A file that is open at an unknown position. Data files are named to the aggregation.
    fn file(&mut self, path: &[u8], kind: FdKind, flags: u16) -> OpenFile {
        let number = file_number(path);
        let name = String::from_utf8_lossy(path);
        if kind == FdKind::Regular && flags & CODE == 0 {
            self.feed.name(number, &name);
        }
        let folder = (kind == FdKind::Folder).then(|| name.into_owned().into_boxed_str());
        OpenFile { number, kind, flags, folder, ..OpenFile::unknown() }
    }

    /// The path of an argument, from the root if the folder is known.
    fn path_of(&self, pid: u32, folder: Option<FdArgument<'_>>, word: &str) -> Option<Vec<u8>> {
        let path = unquoted(word)?;
        let of_line = folder.and_then(|folder| folder.path).map(unescaped);
        let process = self.processes.get(&pid);
        let of_state = || match folder.and_then(|folder| folder.fd) {
            Some(fd) => self.known(pid, fd)?.file.folder.clone(),
            None => process?.cwd.clone(),
        };
        let folder = of_line.or_else(|| Some(of_state()?.as_bytes().to_vec()));
        Some(joined(folder.as_deref(), &path).into_owned())
    }

    fn opened(&mut self, done: &ReturnedCall<'_>, folder: Option<FdArgument<'_>>, at: usize, flags: &str) {
        let call = done.call;
        let asked = self.path_of(done.pid, folder, call.argument(at)).unwrap_or_default();
        let is_folder = flags.contains("O_DIRECTORY");
        // `opendir` of the C library opens in this way.
        let lists = is_folder && flags.contains("O_NONBLOCK");
        let op = if lists { Op::List } else { Op::Open };
        let Some(fd) = call.result.and_then(|fd| i32::try_from(fd).ok()).filter(|fd| *fd >= 0) else {
            return self.emit(done, op, &EventFile::named(&asked), NO_FIGURES);
        };
        let path = call.path.map(unescaped).unwrap_or(asked);
        let (kind, mut class) = match is_folder || self.folders.contains(&file_number(&path)) {
            true => class_of_mode(libc::S_IFDIR, &path),
            false => class_of(&path),
        };
        for (name, flag) in [("O_DIRECT", DIRECT), ("O_WRONLY", WRITABLE), ("O_RDWR", WRITABLE)] {
            class |= if flags.split(['|', '=', ',']).any(|word| word.trim() == name) { flag } else { 0 };
        }
        let file = OpenFile {
            position: Cell::new(0),
            appends: flags.contains("O_APPEND"),
            is_listed: Cell::new(lists),
            ..self.file(&path, kind, class)
        };
        let descriptor = Descriptor::new(file, flags.contains("O_CLOEXEC"));
        let about = EventFile::of(fd, &descriptor);
        self.change(done.pid, |descriptors| drop(descriptors.insert(fd, descriptor)));
        self.emit(done, op, &about, EventFigures { offset: 0, asked: 0 });
    }

    /// Reads and writes, at an offset of their own or at the position.
    fn moved(&mut self, done: &ReturnedCall<'_>, op: Op, at: Option<i64>) {
        let Some(argument) = descriptor(done.call.argument(0)) else { return };
        let (fd, descriptor) = self.find(done.pid, argument);
        let mut file = EventFile::of(fd, &descriptor);
        let Some(result) = done.call.result else { return };
        // -1 of `preadv2`: the position of the descriptor.
        let offset = match at.filter(|at| *at >= 0) {
            Some(at) => {
                file.flags |= POSITIONED;
                at
            }
            None => descriptor.file.advance(result, op == Op::Write),
        };
        let asked = done.call.number(2).and_then(|asked| u64::try_from(asked).ok()).unwrap_or(0);
        self.emit(done, op, &file, EventFigures { offset, asked });
    }

    fn closed(&mut self, done: &ReturnedCall<'_>) {
        let Some(fd) = descriptor(done.call.argument(0)).and_then(|argument| argument.fd) else { return };
        let known = done.closing.cloned().or_else(|| self.removed(done.pid, fd));
        if let Some(known) = known.filter(|known| known.is_used) {
            self.emit(done, Op::Close, &EventFile::of(fd, &known), NO_FIGURES);
        }
    }

    /// A call begins: what it closes, if it is `close`.
    pub(super) fn begun_close(&mut self, pid: u32, text: &str) -> Option<Descriptor> {
        let fd = descriptor(text.strip_prefix("close(")?.trim_end())?.fd?;
        self.removed(pid, fd)
    }

    fn removed(&mut self, pid: u32, fd: i32) -> Option<Descriptor> {
        let known = self.known(pid, fd);
        self.change(pid, |descriptors| drop(descriptors.remove(&fd)));
        known
    }

    fn closed_range(&mut self, done: &ReturnedCall<'_>) {
        if done.call.result != Some(0) {
            return;
        }
        let end = |index: usize| done.call.number(index).unwrap_or(i64::MAX);
        let range = end(0)..=end(1);
        let on_exec = done.call.argument(2).contains("CLOEXEC");
        self.change(done.pid, |descriptors| {
            if on_exec {
                let within = descriptors.iter_mut().filter(|(fd, _)| range.contains(&i64::from(**fd)));
                within.for_each(|(_, descriptor)| descriptor.closes_on_exec = true);
            } else {
                descriptors.retain(|fd, _| !range.contains(&i64::from(*fd)));
            }
        });
    }

    fn sought(&mut self, done: &ReturnedCall<'_>) {
        let Some(argument) = descriptor(done.call.argument(0)) else { return };
        let (fd, descriptor) = self.find(done.pid, argument);
        let Some(result) = done.call.result else { return };
        if result >= 0 {
            descriptor.file.position.set(result);
        }
        let asked = match done.call.argument(2) {
            "SEEK_SET" => 0,
            "SEEK_CUR" => 1,
            _ => 2,
        };
        self.emit(done, Op::Seek, &EventFile::of(fd, &descriptor), EventFigures { offset: result, asked });
    }

    fn duplicated(&mut self, done: &ReturnedCall<'_>, closes_on_exec: bool) {
        let Some(argument) = descriptor(done.call.argument(0)) else { return };
        let Some(new) = done.call.result.and_then(|fd| i32::try_from(fd).ok()).filter(|fd| *fd >= 0) else {
            return;
        };
        let old = argument.fd.unwrap_or(-1);
        if old == new {
            return;
        }
        let known = (self.known(done.pid, old).is_some() || argument.path.is_some())
            .then(|| self.find(done.pid, argument).1);
        self.change(done.pid, |descriptors| match known {
            Some(known) => drop(descriptors.insert(new, Descriptor { closes_on_exec, ..known })),
            None => drop(descriptors.remove(&new)),
        });
    }

    fn controlled(&mut self, done: &ReturnedCall<'_>) {
        match done.call.argument(1) {
            "F_DUPFD" => self.duplicated(done, false),
            "F_DUPFD_CLOEXEC" => self.duplicated(done, true),
            "F_SETFD" => {
                let fd = descriptor(done.call.argument(0)).and_then(|argument| argument.fd).unwrap_or(-1);
                let closes = done.call.argument(2).contains("FD_CLOEXEC");
                self.change(done.pid, |descriptors| {
                    if let Some(descriptor) = descriptors.get_mut(&fd) {
                        descriptor.closes_on_exec = closes;
                    }
                });
            }
            _ => {}
        }
    }

    /// `stat` and relatives: by path, or by descriptor if the path is empty.
    fn described(
        &mut self,
        done: &ReturnedCall<'_>,
        folder: Option<FdArgument<'_>>,
        at: usize,
        answer: usize,
    ) {
        let word = done.call.argument(at);
        if word == "\"\"" && folder.is_some_and(|folder| folder.fd.is_some()) {
            return self.on_descriptor(done, Op::Stat, 0, EventFigures { asked: 1, ..NO_FIGURES });
        }
        let path = self.path_of(done.pid, folder, word).unwrap_or_default();
        let mode = mode_of(done.call.argument(answer)).filter(|_| done.call.result == Some(0));
        let file = match mode {
            Some(mode) => {
                let (kind, flags) = class_of_mode(mode, &path);
                self.remember_folder(&path, kind);
                EventFile { number: file_number(&path), kind, flags, fd: -1 }
            }
            None => EventFile::named(&path),
        };
        self.emit(done, Op::Stat, &file, NO_FIGURES);
    }

    fn remember_folder(&mut self, path: &[u8], kind: FdKind) {
        if kind == FdKind::Folder && self.folders.len() < MOST_FOLDERS {
            self.folders.insert(file_number(path));
        }
    }

    /// A call on a descriptor that changes nothing.
    fn on_descriptor(&mut self, done: &ReturnedCall<'_>, op: Op, at: usize, figures: EventFigures) {
        let Some(argument) = descriptor(done.call.argument(at)) else { return };
        let (fd, descriptor) = self.find(done.pid, argument);
        self.emit(done, op, &EventFile::of(fd, &descriptor), figures);
    }

    /// The first entries of a folder that was not opened by `opendir`.
    fn listed(&mut self, done: &ReturnedCall<'_>) {
        let Some(argument) = descriptor(done.call.argument(0)) else { return };
        let (fd, descriptor) = self.find(done.pid, argument);
        if !descriptor.file.is_listed.replace(true) {
            let file = EventFile { kind: FdKind::Folder, ..EventFile::of(fd, &descriptor) };
            self.emit(done, Op::List, &file, NO_FIGURES);
        }
    }

    fn mapped(&mut self, done: &ReturnedCall<'_>) {
        let Some(argument) = descriptor(done.call.argument(4)).filter(|at| at.fd.is_some_and(|fd| fd >= 0))
        else {
            return;
        };
        let (fd, descriptor) = self.find(done.pid, argument);
        let mut file = EventFile::of(fd, &descriptor);
        file.flags |= if done.call.argument(3).contains("MAP_SHARED") { SHARED } else { 0 };
        let number = |at: usize| done.call.number(at).unwrap_or(0);
        let figures = EventFigures { offset: number(5), asked: number(1).unsigned_abs() };
        self.emit(done, Op::Map, &file, figures);
    }

    /// Data that goes from one descriptor to another.
    fn sent(&mut self, done: &ReturnedCall<'_>, from: usize, offset: usize) {
        let Some(argument) = descriptor(done.call.argument(from)) else { return };
        let (fd, descriptor) = self.find(done.pid, argument);
        if done.call.argument(offset) == "NULL" {
            descriptor.file.advance(done.call.result.unwrap_or(0), false);
        }
        self.emit(done, Op::Move, &EventFile::of(fd, &descriptor), NO_FIGURES);
    }

    fn changed_folder(&mut self, done: &ReturnedCall<'_>) {
        if done.call.result != Some(0) {
            return;
        }
        let word = done.call.argument(0);
        let path = match done.call.name {
            "chdir" => self.path_of(done.pid, None, word),
            _ => descriptor(word).and_then(|argument| {
                let known =
                    || Some(self.known(done.pid, argument.fd?)?.file.folder.as_ref()?.as_bytes().to_vec());
                argument.path.map(unescaped).or_else(known)
            }),
        };
        if let Some(process) = self.processes.get_mut(&done.pid) {
            process.cwd = path.map(|path| String::from_utf8_lossy(&path).into_owned().into_boxed_str());
        }
    }

    /// A new descriptor that is no file of a path.
    fn made(&mut self, done: &ReturnedCall<'_>, kind: FdKind) {
        let Some(fd) = done.call.result.and_then(|fd| i32::try_from(fd).ok()).filter(|fd| *fd >= 0) else {
            return;
        };
        let closes = done.call.arguments.iter().any(|word| word.contains("CLOEXEC"));
        let descriptor = Descriptor::new(OpenFile { kind, ..OpenFile::unknown() }, closes);
        self.change(done.pid, |descriptors| drop(descriptors.insert(fd, descriptor)));
    }

    /// Two new descriptors: `[4<pipe:[800524]>, 5<pipe:[800524]>]`.
    fn paired(&mut self, done: &ReturnedCall<'_>, at: usize, kind: FdKind) {
        if done.call.result != Some(0) {
            return;
        }
        let closes = done.call.arguments.iter().any(|word| word.contains("CLOEXEC"));
        let list = done.call.argument(at).trim_start_matches('[');
        for fd in list.split(", ").filter_map(|word| descriptor(word.trim_end_matches(']'))?.fd) {
            let descriptor = Descriptor::new(OpenFile { kind, ..OpenFile::unknown() }, closes);
            self.change(done.pid, |descriptors| drop(descriptors.insert(fd, descriptor)));
        }
    }
}
