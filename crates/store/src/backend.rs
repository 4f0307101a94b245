//! The registry of backends, and how a user names one: `posix`, `uring`, `sim:hdd`. Look-up, help and conformance
//! tests go by this list.

use std::path::Path;

use model::spec::Readahead;

use crate::{Capabilities, Direct, Fault, Mmap, Null, Posix, Sim, Store, StoreError, Uring};

/// How files are to be read, where a backend leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub readahead: Readahead,
    /// Past the page cache. Only a backend that says so can do it both ways.
    pub odirect: bool,
}

impl Default for Mode {
    fn default() -> Mode {
        Mode { readahead: Readahead::Normal, odirect: false }
    }
}

type Open = fn(&Path, &Selection) -> Result<Box<dyn Store>, StoreError>;
type Check = fn(&Selection) -> Result<(), StoreError>;

/// A backend as the registry lists it.
#[derive(Debug)]
pub struct Backend {
    pub name: &'static str,
    pub summary: &'static str,
    /// What it can do, which for a store around a store depends on the one inside.
    capabilities: fn(&Selection) -> Capabilities,
    check: Check,
    open: Open,
}

/// Every backend. A new one is one file and one line.
pub const BACKENDS: &[Backend] = &[
    Backend {
        name: "posix",
        summary: "buffered reads of local or mounted files",
        capabilities: |_| Posix::CAPABILITIES,
        check: Selection::takes_no_arguments,
        open: Posix::open_boxed,
    },
    Backend {
        name: "direct",
        summary: "reads past the page cache (O_DIRECT), a thread per reader",
        capabilities: |_| Direct::CAPABILITIES,
        check: Selection::takes_no_arguments,
        open: Direct::open_boxed,
    },
    Backend {
        name: "mmap",
        summary: "files mapped into memory, every page touched",
        capabilities: |_| Mmap::CAPABILITIES,
        check: Selection::takes_no_arguments,
        open: Mmap::open_boxed,
    },
    Backend {
        name: "uring",
        summary: "io_uring: many files in flight from few threads; with reader.odirect past the page cache",
        capabilities: |_| Uring::CAPABILITIES,
        check: Selection::takes_no_arguments,
        open: Uring::open_boxed,
    },
    Backend {
        name: "sim",
        summary: "a simulated device, such as sim:hdd or sim:bandwidth=163MB/s,latency=4ms,channels=1; needs no data",
        capabilities: |_| Sim::CAPABILITIES,
        check: Sim::check,
        open: Sim::open_boxed,
    },
    Backend {
        name: "null",
        summary: "answers at once, reads nothing: the instrument's own ceiling",
        capabilities: |_| Null::CAPABILITIES,
        check: Selection::takes_no_arguments,
        open: Null::open_boxed,
    },
    Backend {
        name: "fault",
        summary: "another store that goes wrong by rule, such as fault:posix,kind=eio,every=100; docs/stores.md",
        capabilities: Fault::inner_capabilities,
        check: Fault::check,
        open: Fault::open_boxed,
    },
];

impl Backend {
    pub fn named(name: &str) -> Option<&'static Backend> {
        BACKENDS.iter().find(|backend| backend.name == name)
    }
}

/// A backend that a user chose, with all that was said about it.
#[derive(Clone, Debug)]
pub struct Selection {
    pub backend: &'static Backend,
    /// What followed the name and a colon; empty if nothing did.
    pub arguments: String,
    pub mode: Mode,
}

impl Selection {
    /// `NAME` or `NAME:ARGUMENTS`; `None` if there is no such backend.
    pub fn named(text: &str, mode: Mode) -> Option<Selection> {
        let (name, arguments) = text.split_once(':').unwrap_or((text, ""));
        let backend = Backend::named(name)?;
        Some(Selection { backend, arguments: arguments.to_owned(), mode })
    }

    /// Whether it reads through the page cache.
    pub fn is_cached(&self) -> bool {
        self.capabilities().cached && !self.mode.odirect
    }

    /// As it was written.
    pub fn text(&self) -> String {
        match self.arguments.as_str() {
            "" => self.backend.name.to_owned(),
            arguments => format!("{}:{arguments}", self.backend.name),
        }
    }

    /// What is asked of the store, in the words in which a store says what it turned out to do.
    pub fn requested(&self) -> Vec<(&'static str, String)> {
        let mut requested = vec![("store", self.backend.name.to_owned())];
        let Capabilities { holds_files, cached, .. } = self.capabilities();
        if holds_files {
            requested.push(("o_direct", (self.mode.odirect || !cached).to_string()));
            requested.push(("readahead", self.mode.readahead.name().to_owned()));
        }
        requested
    }

    /// Refuses what was written behind the name of a backend that has nothing to choose.
    pub(crate) fn takes_no_arguments(&self) -> Result<(), StoreError> {
        match self.arguments.as_str() {
            "" => Ok(()),
            more => Err(StoreError::Refused(format!(
                "the {} store takes no arguments, but '{more}' was given",
                self.backend.name
            ))),
        }
    }

    /// What the chosen store can do.
    pub fn capabilities(&self) -> Capabilities {
        (self.backend.capabilities)(self)
    }

    /// Finds mistakes in what was said, before anything is opened.
    pub fn check(&self) -> Result<(), StoreError> {
        (self.backend.check)(self)
    }

    /// Opens the backend on the data folder `root`.
    pub fn open(&self, root: &Path) -> Result<Box<dyn Store>, StoreError> {
        (self.backend.open)(root, self)
    }
}
