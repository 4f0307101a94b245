//! A trial backend, added as a developer would: this file, and one row. With its row the registry passes the
//! conformance tests for stores, checkpoint tiers, messages, help and docs.

#![expect(clippy::unwrap_used, reason = "a test")]

extern crate feedline_store as store;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use model::names::Name;
use model::plan::Medium;
use rustix::io::Errno;
use store::conformance::{self, registry};
use store::{
    BACKENDS, Backend, Blocking, BlockingLane, Capabilities, Files, Lane, Mode, OpenTier, Operation,
    PlaceKind, Posix, Registry, Selection, Store, StoreError, Threads, Traffic,
};

/// Reads with the standard library; `posix` does everything else.
#[derive(Debug)]
struct Trial {
    root: PathBuf,
    posix: Posix,
}

const TRIAL: Backend = Backend {
    name: "trial",
    arguments: "",
    summary: "reads with the standard library",
    example: "trial",
    medium: Medium::Storage,
    place: PlaceKind::Folder,
    injects_faults: false,
    capabilities: |_| CAPABILITIES,
    check: |_| Ok(()),
    open: |place, _| {
        let root = place.path()?;
        Ok(Box::new(Trial { root: root.to_owned(), posix: Posix::open(root, Mode::default())? }))
    },
    tier: Some(OpenTier::Own(|place, _| Selection::named("posix", Mode::default())?.tier(place.path()?))),
};

const CAPABILITIES: Capabilities = Capabilities {
    holds_files: true,
    threads: Threads::PerReader,
    brings_bytes: true,
    cached: true,
    odirect: false,
};

impl Trial {
    fn failed(&self, operation: Operation, name: &Name, error: &std::io::Error) -> StoreError {
        StoreError::io(operation, &Blocking::shown(self, name), Errno::from_io_error(error).unwrap())
    }
}

impl Blocking for Trial {
    type File = File;

    fn open(&self, name: &Name) -> Result<File, StoreError> {
        File::open(self.root.join(name.as_str())).map_err(|error| self.failed(Operation::Open, name, &error))
    }

    fn read_at(&self, file: &File, name: &Name, offset: u64, buffer: &mut [u8]) -> Result<usize, StoreError> {
        file.read_at(buffer, offset).map_err(|error| self.failed(Operation::Read, name, &error))
    }

    fn size(&self, file: &File) -> Result<u64, Errno> {
        Ok(file.metadata().unwrap().len())
    }

    fn shown(&self, name: &Name) -> String {
        self.root.join(name.as_str()).display().to_string()
    }

    fn close(&self, _file: File, _name: &Name) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Store for Trial {
    fn name(&self) -> &'static str {
        "trial"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        Ok(Box::new(BlockingLane::new(self, traffic)))
    }

    fn files(&self) -> &dyn Files {
        self.posix.files()
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The registry with the trial's row.
fn longer() -> Registry {
    Registry { rows: [BACKENDS.rows, &[TRIAL]].concat().leak() }
}

#[test]
fn it_passes_the_conformance_tests_of_stores() {
    let folder = tempfile::tempdir().unwrap();
    registry::stores(longer(), folder.path());
    let around = longer().select("fault:trial,kind=eio", Mode::default()).unwrap();
    assert!(around.open(folder.path()).is_ok(), "other backends can wrap it");
}

#[test]
fn it_passes_the_conformance_tests_of_checkpoint_tiers() {
    let folder = tempfile::tempdir().unwrap();
    conformance::tier::tiers(longer(), folder.path());
}

#[test]
fn it_is_in_help_messages_and_docs() {
    let docs = include_str!("../../../docs/reference/stores.md");
    let row = "| `trial` | reads with the standard library | one per reader | used | yes |\n";
    let table = BACKENDS.table();
    registry::texts(longer(), &docs.replace(&table, &format!("{table}{row}")));
    let undocumented = std::panic::catch_unwind(|| registry::texts(longer(), docs)).unwrap_err();
    let message = undocumented.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("docs/reference/stores.md should have this table") && message.contains(row),
        "{message}"
    );
}
