//! The store that answers at once and reads nothing. The same plan on it shows the instrument's own ceiling; it
//! needs no data set and holds none.

use std::path::Path;

use model::names::Name;

use crate::{Capabilities, Census, Done, Fetch, Lane, Operation, Store, StoreError, Writer};

/// Fetches that a lane takes on before it wants to be reaped.
const DEPTH: usize = 64;

#[derive(Debug, Default)]
pub struct Null;

impl Null {
    pub(crate) const CAPABILITIES: Capabilities = Capabilities { holds_files: false, blocking: false };

    pub(crate) fn open_boxed(_root: &Path) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Null))
    }

    fn refuse(operation: Operation, name: &Name) -> StoreError {
        StoreError::Unsupported { store: "null", operation, name: name.to_string() }
    }
}

impl Store for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn capabilities(&self) -> Capabilities {
        Null::CAPABILITIES
    }

    fn lane(&self, _transfer: usize) -> Box<dyn Lane + '_> {
        Box::new(NullLane { done: Vec::with_capacity(DEPTH) })
    }

    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        Err(Null::refuse(Operation::Stat, name))
    }

    fn create_folder(&self, name: &Name) -> Result<(), StoreError> {
        Err(Null::refuse(Operation::MakeFolder, name))
    }

    fn create(&self, name: &Name) -> Result<Box<dyn Writer + '_>, StoreError> {
        Err(Null::refuse(Operation::Create, name))
    }

    fn lock(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn remove_leftovers(&self, folder: &Name, _prefix: &str, _suffix: &str) -> Result<(), StoreError> {
        Err(Null::refuse(Operation::List, folder))
    }

    fn census(&self, folder: &Name, _prefix: &str, _suffix: &str) -> Result<Option<Census>, StoreError> {
        Err(Null::refuse(Operation::List, folder))
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

struct NullLane {
    done: Vec<Done>,
}

impl Lane for NullLane {
    fn capacity(&self) -> usize {
        DEPTH
    }

    fn submit(&mut self, tag: u64, fetch: &Fetch<'_>) -> Result<(), StoreError> {
        let bytes = fetch.ranges.iter().map(|range| range.len).sum();
        self.done.push(Done { tag, bytes, opens: 1, reads: fetch.ranges.len() as u64 });
        Ok(())
    }

    fn look(&mut self, name: &Name, _offset: u64, _out: &mut [u8]) -> Result<Done, StoreError> {
        Err(Null::refuse(Operation::Read, name))
    }

    fn reap(&mut self) -> Result<Option<Done>, StoreError> {
        Ok(self.done.pop())
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
        assert!(Null.size(&name).is_err());
        assert_eq!(
            Null.create(&name).err().map(|error| error.to_string()).as_deref(),
            Some("the null store cannot create train/any: it holds no files")
        );
    }
}
