//! Writers that get stuck, which the watchdog reports with the name of the file; and writers whose folder another
//! generator claims.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use format::Arithmetic;
use model::plan::Data;
use model::spec::{self, WorkloadSource};
use model::units::Nanos;
use store::{Capabilities, Files, FolderCount, Lane, Mode, NameRange, Posix, SizeListing, Traffic, Writer};

use super::*;
use crate::meter;
use crate::world::Solo;

/// A folder in which files can be created, but written to only once `released`.
#[derive(Debug)]
struct Stuck {
    folder: Posix,
    released: Arc<AtomicBool>,
    /// Whether another generator has claimed it.
    is_taken: bool,
    /// Whether partial files may have been left, and how often they were looked for.
    may_have_leftovers: bool,
    looked: AtomicU64,
}

impl Stuck {
    fn new(folder: &Path, released: Arc<AtomicBool>) -> Stuck {
        let folder = Posix::open(folder, Mode::default()).unwrap();
        let (is_taken, may_have_leftovers, looked) = (false, false, AtomicU64::new(0));
        Stuck { folder, released, is_taken, may_have_leftovers, looked }
    }
}

struct StuckWriter<'a>(Box<dyn Writer + 'a>, &'a AtomicBool);

impl Writer for StuckWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        while !self.1.load(Ordering::Relaxed) {
            meter::pause(Duration::from_millis(1));
        }
        self.0.write(bytes)
    }

    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        self.0.finish()
    }
}

impl Files for Stuck {
    fn shown(&self, name: &Name) -> String {
        name.to_string()
    }

    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        self.folder.files().size(name)
    }

    fn create_folder(&self, name: &Name) -> Result<(), StoreError> {
        self.folder.files().create_folder(name)
    }

    fn create(&self, name: &Name) -> Result<Box<dyn Writer + '_>, StoreError> {
        let writer = self.folder.files().create(name)?;
        Ok(match name.as_str().starts_with("train/") {
            true => Box::new(StuckWriter(writer, &self.released)),
            false => writer,
        })
    }

    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError> {
        self.folder.files().put(name, bytes)
    }

    fn lock(&self, guard: &Name) -> Result<(), StoreError> {
        self.folder.files().lock(guard)
    }

    fn check_guard(&self) -> Result<(), StoreError> {
        match self.is_taken {
            true => Err(StoreError::Busy { name: "the folder".to_owned() }),
            false => Ok(()),
        }
    }

    fn mark(&self, mark: &str) -> Result<bool, StoreError> {
        self.folder.files().mark(mark)
    }

    fn unmark(&self, mark: &str) -> Result<(), StoreError> {
        self.folder.files().unmark(mark)
    }

    fn may_have_leftovers(&self) -> bool {
        self.may_have_leftovers
    }

    fn remove_leftovers(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<(), StoreError> {
        self.looked.fetch_add(1, Ordering::Relaxed);
        self.folder.files().remove_leftovers(folder, prefix, suffix)
    }

    fn census(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<Option<FolderCount>, StoreError> {
        self.folder.files().census(folder, prefix, suffix)
    }

    fn lists_sizes(&self) -> SizeListing {
        SizeListing::None
    }

    fn list_sizes(
        &self,
        range: &NameRange<'_>,
        each: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), StoreError> {
        self.folder.files().list_sizes(range, each)
    }

    fn finishes_durably(&self) -> bool {
        false
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.folder.files().sync()
    }
}

impl Store for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }

    fn capabilities(&self) -> Capabilities {
        self.folder.capabilities()
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        self.folder.lane(traffic)
    }

    fn files(&self) -> &dyn Files {
        self
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Four small files.
fn small() -> (Spec, Data) {
    let text = "dataset: {format: npz, num_files_train: 4, record_length_bytes: 4096}";
    let spec = spec::read(WorkloadSource { name: "test", text }, &[]).unwrap().spec;
    let format = format::plain("npz").unwrap();
    let data = Data::resolve(&spec, Some(&Arithmetic(&*format))).unwrap();
    (spec, data)
}

fn generate_in(
    store: &Stuck,
    folder: &Path,
    spec: &Spec,
    data: &Data,
    stop: &Stop,
) -> Result<Generated, GenerateError> {
    generate(&Generation {
        spec,
        data: data.computed().unwrap(),
        format: &*format::plain("npz").unwrap(),
        store,
        place: &folder.into(),
        world: &Solo::new(),
        keep_seed: false,
        writers: 2,
        overwrite: false,
        verify: false,
        stop,
        events: &Events::default(),
    })
}

#[test]
fn a_generator_ends_when_another_one_claims_its_folder() {
    let (folder, (spec, data)) = (tempfile::tempdir().unwrap(), small());
    let store = Stuck { is_taken: true, ..Stuck::new(folder.path(), Arc::default()) };
    let error = generate_in(&store, folder.path(), &spec, &data, &Stop::default()).unwrap_err();
    assert!(matches!(error, GenerateError::Store(StoreError::Busy { .. })), "{error}");
    assert_eq!(std::fs::read_dir(folder.path().join("train")).unwrap().count(), 0, "no file was finished");
}

#[test]
fn partial_files_that_may_have_been_left_are_removed_at_the_end() {
    let [usually, again] = [false, true].map(|may_have_leftovers| {
        let (folder, (spec, data)) = (tempfile::tempdir().unwrap(), small());
        let released = Arc::new(AtomicBool::new(true));
        let store = Stuck { may_have_leftovers, ..Stuck::new(folder.path(), released) };
        generate_in(&store, folder.path(), &spec, &data, &Stop::default()).unwrap();
        store.looked.into_inner()
    });
    assert!(usually > 0 && again == 2 * usually, "{usually} and {again}");
}

#[test]
fn writers_that_get_stuck_are_named_and_abandoned() {
    let (folder, (spec, data)) = (tempfile::tempdir().unwrap(), small());
    let released = Arc::new(AtomicBool::new(false));
    let (said, release) = (Arc::new(Mutex::new(String::new())), Arc::clone(&released));
    let words = Arc::clone(&said);
    let stop = Stop::default().with_patience(Some(Nanos(200_000_000))).or_abandon(move |message| {
        message.clone_into(&mut words.lock().unwrap());
        release.store(true, Ordering::Relaxed);
    });
    let store = Stuck::new(folder.path(), released);
    let outcome = generate_in(&store, folder.path(), &spec, &data, &stop);
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("no progress for ") && error.contains(": write train/img_"), "{error}");
    let said = said.lock().unwrap();
    assert!(said.contains("still not ended 3.00 s later: writer 0: write train/img_"), "{said}");
    for file in std::fs::read_dir(folder.path().join("train")).unwrap() {
        assert_eq!(
            file.unwrap().metadata().unwrap().len(),
            data.computed().unwrap().file_bytes(0),
            "no partial file is visible"
        );
    }
}
