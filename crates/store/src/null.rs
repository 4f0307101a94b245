//! The store that answers at once and reads nothing. The same plan on it shows the instrument's own ceiling; it
//! needs no data set and holds none.

use std::path::Path;

use model::names::Name;

use crate::{
    Awaits, Brought, Capabilities, Census, Done, Fetch, Files, Lane, Operation, Selection, Spans, Store,
    StoreError, Threads, Traffic, Writer,
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

    pub(crate) fn open_boxed(_root: &Path, selection: &Selection) -> Result<Box<dyn Store>, StoreError> {
        selection.takes_no_arguments()?;
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
        Ok(Box::new(NullLane { traffic, done: Vec::with_capacity(traffic.readers) }))
    }

    fn files(&self) -> &dyn Files {
        &NoFiles { store: "null" }
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

struct NullLane<'a> {
    traffic: Traffic<'a>,
    done: Vec<Done>,
}

impl Lane for NullLane<'_> {
    fn submit(&mut self, reader: usize, fetch: Fetch<'_>) {
        let bytes = fetch.ranges.iter().map(|range| range.len).sum();
        let brought = Brought { bytes, opens: 1, reads: fetch.ranges.len() as u64 };
        let at = self.traffic.clock.now();
        self.done.push(Done { reader, at, began: at, outcome: Ok(brought), kept: fetch.into });
    }

    fn reap(&mut self) -> Option<Done> {
        self.done.pop()
    }

    fn awaits(&self) -> Awaits {
        Awaits::Nothing
    }

    fn look(
        &mut self,
        _reader: usize,
        name: &Name,
        _offset: u64,
        _out: &mut [u8],
    ) -> Result<Brought, StoreError> {
        Err(NoFiles { store: "null" }.refuse(Operation::Read, name))
    }

    fn take_spans(&mut self) -> Spans {
        Spans::default()
    }
}

/// The files of a store that holds none: every question is refused by name.
#[derive(Debug)]
pub(crate) struct NoFiles {
    pub(crate) store: &'static str,
}

impl NoFiles {
    pub(crate) fn refuse(&self, operation: Operation, name: &Name) -> StoreError {
        StoreError::Unsupported { store: self.store, operation, name: name.to_string() }
    }
}

impl Files for NoFiles {
    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        Err(self.refuse(Operation::Stat, name))
    }

    fn create_folder(&self, name: &Name) -> Result<(), StoreError> {
        Err(self.refuse(Operation::MakeFolder, name))
    }

    fn create(&self, name: &Name) -> Result<Box<dyn Writer + '_>, StoreError> {
        Err(self.refuse(Operation::Create, name))
    }

    fn lock(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn remove_leftovers(&self, folder: &Name, _prefix: &str, _suffix: &str) -> Result<(), StoreError> {
        Err(self.refuse(Operation::List, folder))
    }

    fn census(&self, folder: &Name, _prefix: &str, _suffix: &str) -> Result<Option<Census>, StoreError> {
        Err(self.refuse(Operation::List, folder))
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    #[test]
    fn completes_what_it_is_given() {
        conformance::lane_completes_every_fetch(&Null, &Name::new("train/any").unwrap(), 1 << 40);
    }

    #[test]
    fn holds_no_files_and_says_so() {
        let name = Name::new("train/any").unwrap();
        assert!(Null.files().size(&name).is_err());
        assert_eq!(
            Null.files().create(&name).err().map(|error| error.to_string()).as_deref(),
            Some("the null store cannot create train/any: it holds no files")
        );
    }
}
