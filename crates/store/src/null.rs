//! The store that completes every request at once and reads nothing. Running a plan on it shows the limit of feedline
//! itself; it needs no data set and holds none.

use model::location::Location;
use model::names::Name;
use model::plan::Medium;

use crate::{
    Backend, Capabilities, Fetch, FetchWait, Fetched, Files, FinishedFetch, FolderCount, Lane, NameRange,
    OpenTier, Operation, PlaceKind, Selection, SizeListing, Spans, Store, StoreError, Threads, Traffic,
    Writer, tier,
};

pub(crate) const BACKEND: Backend = Backend {
    name: "null",
    arguments: "",
    summary: "completes every request at once and reads nothing: the ceiling of feedline itself",
    example: "null",
    medium: Medium::Null,
    place: PlaceKind::Any,
    injects_faults: false,
    capabilities: |_| Null::CAPABILITIES,
    check: |_| Ok(()),
    open: Null::open_boxed,
    tier: Some(OpenTier::Own(tier::null)),
};

#[derive(Debug, Default)]
pub struct Null;

impl Null {
    pub(crate) const CAPABILITIES: Capabilities = Capabilities {
        holds_files: false,
        threads: Threads::PerCore,
        brings_bytes: false,
        cached: false,
        odirect: false,
    };

    pub(crate) fn open_boxed(
        _place: &Location,
        _selection: &Selection,
    ) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Null))
    }
}

impl Store for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn capabilities(&self) -> Capabilities {
        Null::CAPABILITIES
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        let (held, done) = (OpenNames::new(traffic.readers), Vec::with_capacity(traffic.readers));
        Ok(Box::new(NullLane { traffic, held, done }))
    }

    fn files(&self) -> &dyn Files {
        &NoFiles { store: "null" }
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The name of the file that each reader would have open, and whether it is open, for stores without files: opens are
/// counted as if there were files.
#[derive(Debug)]
pub(crate) struct OpenNames(Vec<(Name, bool)>);

impl OpenNames {
    pub(crate) fn new(readers: usize) -> OpenNames {
        OpenNames(vec![(Name::default(), false); readers])
    }

    /// The number of opens that a fetch of the reader takes.
    pub(crate) fn open(&mut self, reader: usize, fetch: &Fetch<'_>) -> u64 {
        let (name, is_open) = &mut self.0[reader];
        let opens = !*is_open || name != fetch.name;
        if fetch.keep_open && opens {
            name.clone_from(fetch.name);
        }
        *is_open = fetch.keep_open;
        u64::from(opens)
    }
}

struct NullLane<'a> {
    traffic: Traffic<'a>,
    held: OpenNames,
    done: Vec<FinishedFetch>,
}

impl Lane for NullLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        let bytes = fetch.ranges.iter().map(|range| range.len).sum();
        let (opens, reads) = (self.held.open(reader, &fetch), fetch.ranges.len() as u64);
        let brought = Fetched { bytes, opens, reads, ..Fetched::default() };
        let at = self.traffic.clock.now();
        self.done.push(FinishedFetch { reader, at, began: at, outcome: Ok(brought), kept: fetch.into });
    }

    fn reap(&mut self) -> Option<FinishedFetch> {
        self.done.pop()
    }

    fn awaits(&self) -> FetchWait {
        FetchWait::Nothing
    }

    fn take_spans(&mut self) -> Spans {
        Spans::default()
    }
}

/// The files of a store that holds none: every operation is refused, with the file's name.
#[derive(Debug)]
pub(crate) struct NoFiles {
    pub(crate) store: &'static str,
}

impl NoFiles {
    fn refuse(&self, operation: Operation, name: &Name) -> StoreError {
        StoreError::Unsupported { store: self.store, operation, name: name.to_string() }
    }
}

impl Files for NoFiles {
    fn shown(&self, name: &Name) -> String {
        name.to_string()
    }

    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        Err(self.refuse(Operation::Stat, name))
    }

    fn create_folder(&self, name: &Name) -> Result<(), StoreError> {
        Err(self.refuse(Operation::MakeFolder, name))
    }

    fn create(&self, name: &Name) -> Result<Box<dyn Writer + '_>, StoreError> {
        Err(self.refuse(Operation::Create, name))
    }

    fn put(&self, name: &Name, _bytes: &[u8]) -> Result<(), StoreError> {
        Err(self.refuse(Operation::Create, name))
    }

    fn lock(&self, _guard: &Name) -> Result<(), StoreError> {
        Ok(())
    }

    fn mark(&self, mark: &str) -> Result<bool, StoreError> {
        Err(self.refuse(Operation::Create, &Name::new(mark).unwrap_or_default()))
    }

    fn unmark(&self, mark: &str) -> Result<(), StoreError> {
        Err(self.refuse(Operation::Remove, &Name::new(mark).unwrap_or_default()))
    }

    fn remove_leftovers(&self, folder: &Name, _prefix: &str, _suffix: &str) -> Result<(), StoreError> {
        Err(self.refuse(Operation::List, folder))
    }

    fn census(&self, folder: &Name, _prefix: &str, _suffix: &str) -> Result<Option<FolderCount>, StoreError> {
        Err(self.refuse(Operation::List, folder))
    }

    fn lists_sizes(&self) -> SizeListing {
        SizeListing::None
    }

    fn list_sizes(
        &self,
        range: &NameRange<'_>,
        _each: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), StoreError> {
        Err(self.refuse(Operation::List, range.folder))
    }

    fn finishes_durably(&self) -> bool {
        false
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Purpose, conformance};

    #[test]
    fn it_completes_every_fetch() {
        conformance::lane_completes_every_fetch(&Null, &Name::new("train/any").unwrap(), 1 << 40);
    }

    #[test]
    fn a_file_that_would_stay_open_is_opened_once() {
        let (here, there) = (Name::new("train/here").unwrap(), Name::new("train/there").unwrap());
        let mut held = OpenNames::new(2);
        let mut open = |reader, name, keep_open| {
            let (ranges, into) = (&[][..], None);
            let (purpose, file_bytes, at) = (Purpose::default(), 0, Default::default());
            let version = None;
            held.open(reader, &Fetch { name, purpose, ranges, file_bytes, version, keep_open, at, into })
        };
        assert_eq!([open(0, &here, true), open(0, &here, true), open(1, &here, true)], [1, 0, 1]);
        assert_eq!([open(0, &there, true), open(0, &there, false), open(0, &there, false)], [1, 0, 1]);
    }

    /// Variants of a plan are made in `model`, which cannot query the registry.
    #[test]
    fn plans_and_the_registry_have_the_same_facts_about_it() {
        assert_eq!(Selection::null().plan(), model::plan::StorePlan::null());
    }

    #[test]
    fn it_holds_no_files_and_reports_that() {
        let name = Name::new("train/any").unwrap();
        assert!(Null.files().size(&name).is_err());
        assert_eq!(
            Null.files().create(&name).err().map(|error| error.to_string()).as_deref(),
            Some("the null store cannot create train/any: it holds no files")
        );
    }
}
