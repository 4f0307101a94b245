//! Listings by several members, each a thread: the catalog is that of a single member, and a member that cannot list
//! ends all.

use std::fs;
use std::io;
use std::time::Duration;

use store::Prefix;

use super::tests::{Tree, deep};
use super::*;
use crate::meter;
use crate::world::threads::{ThreadMember, members, members_on};

type Outcome = Result<Option<ListSummary>, ScanError>;

/// What each member returns if all of them list.
fn listed(worlds: Vec<ThreadMember>, work: impl Fn(&ThreadMember) -> Outcome + Sync) -> Vec<Outcome> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |world: ThreadMember| scope.spawn(move || work(&world));
        let threads: Vec<_> = worlds.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The summary of a listing of a tree by this many members.
fn scan_by(tree: &Tree, count: u64, options: &ListOptions) -> ListSummary {
    let events: Vec<Events> = (0..count).map(|_| Events::default()).collect();
    let outcomes = listed(members(count), |world| {
        scan(&tree.root(), options, world, &Stop::default(), &events[world.member() as usize])
    });
    let mut summaries = outcomes.into_iter().map(Result::unwrap);
    let summary = summaries.next().flatten().unwrap();
    assert!(summaries.all(|other| other.is_none()), "only member 0 returns a summary");
    let seen: u64 = events.iter().map(|events| events.progress().files).sum();
    assert_eq!(seen, summary.files, "the progress of all members adds up");
    summary
}

fn wide() -> Tree {
    let tree = deep();
    for folder in 0..60 {
        for file in 0..=folder {
            tree.write(format!("wide/{folder}/sub/f{file}"), folder);
        }
        tree.write(format!("wide/{folder}/.hidden"), 1);
    }
    tree
}

#[test]
fn the_catalog_is_the_same_for_any_number_of_members() {
    let tree = wide();
    let alone = tree.scan(&ListOptions::default()).unwrap();
    let bytes = tree.bytes();
    for (count, threads) in [(1, 2), (2, 1), (3, 2), (4, 1)] {
        let summary = scan_by(&tree, count, &ListOptions { threads, ..ListOptions::default() });
        assert!(tree.bytes() == bytes, "{count} members");
        assert_eq!((summary.skipped, summary.digest), (alone.skipped.clone(), alone.digest.clone()));
        let left: Vec<_> =
            fs::read_dir(tree.root().join(FOLDER)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [FILE]);
    }
}

#[test]
fn a_refresh_by_several_members_lists_changed_folders_only() {
    let tree = wide();
    let folders = tree.scan(&ListOptions::default()).unwrap().folders;
    tree.write("wide/7/sub/new", 5);
    let refresh = ListOptions { refresh: true, ..ListOptions::default() };
    assert_eq!(scan_by(&tree, 3, &refresh).folders_reused, folders - 1);
    let refreshed = tree.bytes();
    tree.scan(&ListOptions::default()).unwrap();
    assert!(tree.bytes() == refreshed);
}

#[test]
fn several_members_check_as_one() {
    let tree = wide();
    tree.scan(&ListOptions::default()).unwrap();
    tree.write("wide/7/sub/new", 5);
    fs::remove_dir_all(tree.root().join("wide/9")).unwrap();
    let opened = &tree.opened();
    let expected = opened.changes(1, &Stop::default()).unwrap();
    assert_eq!(expected.changed, 4);
    let all = std::thread::scope(|scope| {
        let check = |world: ThreadMember| {
            scope.spawn(move || opened.changes_together(2, &world, &Stop::default()).unwrap())
        };
        let threads: Vec<_> = members(3).into_iter().map(check).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(all.iter().all(|changes| *changes == expected), "{all:?}");
}

/// A folder tree in which one member cannot open some folders.
#[derive(Debug)]
struct Refusing {
    inner: FolderListing,
    refuses: bool,
}

impl Listing for Refusing {
    fn identity(&self) -> io::Result<Vec<u8>> {
        self.inner.identity()
    }

    fn open(&self, prefix: &[u8]) -> io::Result<Box<dyn Prefix>> {
        match prefix.ends_with(b"/sub") {
            true if self.refuses => return Err(io::Error::from_raw_os_error(5)),
            // The others are slow, so that the one that fails gets such a folder.
            true => meter::pause(Duration::from_millis(20)),
            false => {}
        }
        self.inner.open(prefix)
    }

    fn version(&self, prefix: &[u8]) -> io::Result<Option<i64>> {
        self.inner.version(prefix)
    }
}

#[test]
fn a_member_that_fails_ends_all_and_finished_folders_are_kept() {
    let tree = wide();
    tree.scan(&ListOptions::default()).unwrap();
    let bytes = tree.bytes();
    fs::remove_file(default_place(&tree.root())).unwrap();
    let outcomes = listed(members_on(&["a", "b", "c"]), |world| {
        let listing = Refusing { inner: open_root(&tree.root())?, refuses: world.member() == 1 };
        let (root, options) = (&tree.root(), &ListOptions { threads: 1, ..ListOptions::default() });
        let (stop, events) = (&Stop::default(), &Events::default());
        let task = ScanTask { listing: &listing, root, options, world, stop, events };
        agreed(world, task.run(), stop)
    });
    let texts: Vec<String> = outcomes.into_iter().map(|outcome| outcome.unwrap_err().to_string()).collect();
    let own = format!("cannot open the folder {}/wide/", tree.root().display());
    assert!(texts[1].starts_with(&own), "{texts:?}");
    for other in [&texts[0], &texts[2]] {
        assert!(other.starts_with(&format!("process 1 on b failed: {own}")), "{texts:?}");
    }
    assert_eq!(find(&tree.root()), None);
    let summary = scan_by(&tree, 2, &ListOptions::default());
    assert!(summary.folders_reused > 0, "{summary:?}");
    assert!(tree.bytes() == bytes);
}

#[test]
fn a_member_that_leaves_ends_the_others() {
    let tree = wide();
    let outcomes = listed(members(3), |world| match world.member() {
        2 => Ok(None),
        _ => scan(&tree.root(), &ListOptions::default(), world, &Stop::default(), &Events::default()),
    });
    for outcome in &outcomes[..2] {
        let text = outcome.as_ref().unwrap_err().to_string();
        assert!(text.starts_with("process 2 on host2 left before"), "{text}");
    }
    assert_eq!(find(&tree.root()), None);
}

#[test]
fn members_that_see_another_folder_are_named() {
    let trees = [wide(), wide()];
    let lists = [None, Some(trees[0].folder.path().join("list"))];
    for (output, more) in lists.into_iter().zip(["one more", "and one more"]) {
        // The roots are compared by their times, which a new file changes.
        meter::pause(Duration::from_millis(50));
        trees[1].write(more, 1);
        let options = &ListOptions { output: output.clone(), ..ListOptions::default() };
        let outcomes = listed(members_on(&["a", "b"]), |world| {
            let root = trees[world.member() as usize].root();
            scan(&root, options, world, &Stop::default(), &Events::default())
        });
        let texts: Vec<String> =
            outcomes.into_iter().map(|outcome| outcome.unwrap_err().to_string()).collect();
        assert!(texts[1].contains(" is not the folder that process 0 on a has at this path"), "{texts:?}");
        assert!(texts[0].starts_with(&format!("process 1 on b failed: {}", texts[1])), "{texts:?}");
        assert!(trees.iter().all(|tree| !tree.root().join(FOLDER).exists()), "nothing is left behind");
    }
}

#[test]
fn a_stop_request_at_one_member_ends_all() {
    let tree = wide();
    let outcomes = listed(members(2), |world| {
        let stop = Stop::default();
        if world.member() == 1 {
            stop.wish();
        }
        scan(&tree.root(), &ListOptions::default(), world, &stop, &Events::default())
    });
    let text = outcomes[0].as_ref().unwrap_err().to_string();
    assert!(text.starts_with("process 1 on host1 was asked to stop"), "{text}");
    assert_eq!(find(&tree.root()), None);
}
