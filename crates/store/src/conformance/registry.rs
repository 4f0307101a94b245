//! Conformance tests for every row of the registry: the backend opens with its example, behaves as its capabilities
//! say, passes the conformance tests of stores, and is found by name in look-up, help and the docs table. Tests run
//! this for the registry and for longer ones.

use std::path::Path;

use model::extent::Extent;
use model::names::Name;
use model::plan::Mode;
use model::units::Nanos;

use super::{first_read, range, store_with_files};
use crate::{Backend, Now, PlaceKind, Registry, Selection, Store, StoreError, Traffic, make_path};

/// Every way to select a backend that can be tested in a folder: its example, with and without O_DIRECT if there is a
/// choice. Object stores need a server.
pub fn selections(registry: Registry) -> Vec<Selection> {
    let select = |text, odirect| registry.select(text, Mode { odirect, ..Mode::default() }).unwrap();
    let mut selections = Vec::new();
    let in_folders = |backend: &&Backend| !matches!(backend.place, PlaceKind::Objects(_));
    for backend in registry.rows.iter().filter(in_folders) {
        let (plain, direct) = (select(backend.example, false), select(backend.example, true));
        let has_choice = plain.plan().cached != direct.plan().cached;
        selections.push(plain);
        selections.extend(has_choice.then_some(direct));
    }
    selections
}

/// Whether this machine lacks support, which the message must say; the default store always works.
pub fn is_unavailable(selection: &Selection, error: &StoreError) -> bool {
    assert!(selection.text() != "posix", "{error}");
    matches!(error, StoreError::NoDirect { .. } | StoreError::NoDontcache { .. })
        || error.to_string().contains("io_uring cannot be used")
}

/// Runs the conformance tests of every backend, each in its own folder below `root`.
pub fn stores(registry: Registry, root: &Path) {
    for (number, selection) in selections(registry).into_iter().enumerate() {
        selection.check().unwrap();
        let folder = root.join(number.to_string());
        make_path(&folder).unwrap();
        let store = match selection.open(&folder) {
            Err(error) if is_unavailable(&selection, &error) => continue,
            opened => opened.unwrap(),
        };
        let plan = selection.plan();
        assert_eq!(store.name(), selection.backend.name);
        assert_eq!(store.capabilities(), selection.capabilities(), "{}", plan.text);
        if !plan.holds_files {
            completes_without_files(&*store);
            continue;
        }
        match first_read(&*store) {
            Err(error) if is_unavailable(&selection, &error) => {}
            read => {
                read.unwrap();
                store_with_files(&*store);
            }
        }
    }
}

/// A clock that is past the end of all simulated requests.
struct FarFuture;

impl Now for FarFuture {
    fn now(&self) -> Nanos {
        Nanos(1 << 60)
    }
}

fn completes_without_files(store: &dyn Store) {
    const READERS: usize = 40;
    let (file, whole) = (Name::new("any").unwrap(), Extent { offset: 0, len: 100_000 });
    let mut lane = store.lane(Traffic { readers: READERS, clock: &FarFuture, ..Traffic::untimed() }).unwrap();
    (0..READERS).for_each(|reader| lane.submit(reader, range(&file, &whole, whole.len)));
    let mut completed: Vec<usize> = std::iter::from_fn(|| lane.reap())
        .map(|done| {
            assert_eq!(done.outcome.unwrap().bytes, whole.len);
            done.reader
        })
        .collect();
    completed.sort_unstable();
    assert!(completed.into_iter().eq(0..READERS), "every fetch completes once");
}

/// Names are unique and found; a mistyped one is suggested; help and the given text of the docs list all.
pub fn texts(registry: Registry, documented: &str) {
    let help = registry.help("How", "posix");
    for backend in registry.rows {
        assert_eq!(registry.rows.iter().filter(|other| other.name == backend.name).count(), 1);
        assert!(help.contains(&backend.syntax()), "{help}");
        let mistyped = format!("{}x", backend.name);
        let error = registry.select(&mistyped, Mode::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("did you mean {}?", backend.name)), "{error}");
        assert_eq!(registry.for_checkpoints().contains(&backend.syntax()), backend.tier.is_some());
    }
    let table = registry.table();
    assert!(documented.contains(&table), "docs/reference/stores.md should have this table:\n\n{table}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BACKENDS;

    #[test]
    fn every_backend_passes_the_conformance_tests() {
        let folder = tempfile::tempdir().unwrap();
        stores(BACKENDS, folder.path());
    }

    #[test]
    fn every_backend_is_in_help_messages_and_docs() {
        texts(BACKENDS, include_str!("../../../../docs/reference/stores.md"));
    }

    /// The names in the first column of a table, below its head.
    fn documented(page: &str, head: &str) -> Vec<String> {
        let (_, table) = page.split_once(head).unwrap();
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect()
    }

    /// The registry makes one table of the docs; two more are written by hand.
    #[test]
    fn the_docs_describe_every_backend_in_detail() {
        let all: Vec<String> = BACKENDS.rows.iter().map(Backend::syntax).collect();
        let stores = include_str!("../../../../docs/reference/stores.md");
        assert_eq!(
            documented(stores, "| backend | what it does | use it for |"),
            all,
            "docs/reference/stores.md"
        );
        let tiers = BACKENDS.rows.iter().filter(|backend| backend.tier.is_some());
        let tiers: Vec<String> = tiers.map(Backend::syntax).collect();
        let checkpoints = include_str!("../../../../docs/guides/checkpoints.md");
        assert_eq!(documented(checkpoints, "| backend | writes |"), tiers, "docs/guides/checkpoints.md");
    }
}
