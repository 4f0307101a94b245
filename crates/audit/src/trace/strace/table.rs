//! Processes and threads of a trace, and what their descriptors refer to.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::event::ProcessIndex;
use crate::layout::{FdKind, INHERITED};

/// The position of a file is not known.
pub(super) const NOWHERE: i64 = -1;

/// An open file, which several descriptors can refer to.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) number: u64,
    pub(super) kind: FdKind,
    pub(super) flags: u16,
    pub(super) position: Cell<i64>,
    pub(super) appends: bool,
    /// Of a folder: its path, and whether its listing was seen.
    pub(super) folder: Option<Box<str>>,
    pub(super) is_listed: Cell<bool>,
}

impl OpenFile {
    /// A file of which nothing is known.
    pub(super) fn unknown() -> OpenFile {
        OpenFile {
            number: 0,
            kind: FdKind::Unknown,
            flags: 0,
            position: Cell::new(NOWHERE),
            appends: false,
            folder: None,
            is_listed: Cell::new(false),
        }
    }

    /// Moves on by what a call returned. Returns where it began, or [`NOWHERE`].
    pub(super) fn advance(&self, bytes: i64, is_write: bool) -> i64 {
        let is_file = matches!(self.kind, FdKind::Regular | FdKind::Memory);
        let start = self.position.get();
        if !is_file || start < 0 {
            return NOWHERE;
        }
        if is_write && self.appends {
            self.position.set(NOWHERE);
            return NOWHERE;
        }
        self.position.set(start.saturating_add(bytes.max(0)));
        start
    }
}

/// A descriptor.
#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    pub(super) file: Rc<OpenFile>,
    /// From a parent, by `fork`.
    pub(super) is_inherited: bool,
    pub(super) closes_on_exec: bool,
    /// The program opened or used it: closing what it was only given is no call on a file.
    pub(super) is_used: bool,
}

impl Descriptor {
    pub(super) fn new(file: OpenFile, closes_on_exec: bool) -> Descriptor {
        Descriptor { file: Rc::new(file), is_inherited: false, closes_on_exec, is_used: true }
    }

    pub(super) fn flags(&self) -> u16 {
        self.file.flags | if self.is_inherited { INHERITED } else { 0 }
    }
}

/// Descriptors by number; processes can share them.
pub(super) type Descriptors = Rc<RefCell<HashMap<i32, Descriptor>>>;

/// One process.
#[derive(Debug, Default)]
pub(super) struct TracedProcess {
    pub(super) pid: u32,
    pub(super) parent: u32,
    /// Set when the aggregation knows it.
    pub(super) index: Option<ProcessIndex>,
    pub(super) descriptors: Descriptors,
    pub(super) cwd: Option<Box<str>>,
    pub(super) command: String,
    pub(super) is_executed: bool,
    /// A child of `vfork` that has not executed a program yet: its calls are those of its parent's program.
    pub(super) is_silent: bool,
    pub(super) threads: u32,
    pub(super) untracked: u64,
    pub(super) has_uring: bool,
}

/// How a child is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CloneKind {
    pub(super) is_thread: bool,
    pub(super) shares_files: bool,
    pub(super) is_vfork: bool,
}

impl TracedProcess {
    /// A child of this process.
    pub(super) fn child(&self, pid: u32, kind: CloneKind) -> TracedProcess {
        let descriptors = if kind.shares_files {
            Rc::clone(&self.descriptors)
        } else {
            let mut copied = self.descriptors.borrow().clone();
            copied.values_mut().for_each(|descriptor| descriptor.is_inherited = true);
            Rc::new(RefCell::new(copied))
        };
        TracedProcess {
            pid,
            parent: self.pid,
            index: None,
            descriptors,
            cwd: self.cwd.clone(),
            command: self.command.clone(),
            is_silent: kind.is_vfork,
            threads: 1,
            ..TracedProcess::default()
        }
    }

    /// Becomes another program.
    pub(super) fn execute(&mut self, command: String) {
        let mut kept = self.descriptors.borrow().clone();
        kept.retain(|_, descriptor| !descriptor.closes_on_exec);
        for descriptor in kept.values_mut() {
            (descriptor.is_inherited, descriptor.is_used) = (false, false);
        }
        self.descriptors = Rc::new(RefCell::new(kept));
        self.command = command;
        self.is_executed = true;
        self.is_silent = false;
        self.index = None;
        self.untracked = 0;
        self.has_uring = false;
    }
}
