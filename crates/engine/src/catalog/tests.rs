//! Trees of all shapes, listed by any number of threads, interrupted and refreshed: the catalog is always the same.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;

use store::{EntryKind, Hint, NameStream, Prefix};

use super::*;
use crate::world::Solo;

/// A data folder in a temporary folder.
pub(super) struct Tree {
    pub(super) folder: tempfile::TempDir,
}

impl Tree {
    pub(super) fn new() -> Tree {
        let tree = Tree { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(tree.root()).unwrap();
        tree
    }

    pub(super) fn root(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(super) fn write(&self, path: impl AsRef<Path>, size: usize) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'x'; size]).unwrap();
    }

    pub(super) fn scan(&self, options: &ListOptions) -> Result<ListSummary, ScanError> {
        let world = Solo::new();
        let summary = scan(&self.root(), options, &world, &Stop::default(), &Events::default())?;
        Ok(summary.unwrap())
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        fs::read(default_place(&self.root())).unwrap()
    }

    pub(super) fn opened(&self) -> OpenCatalog {
        OpenCatalog::open(&find(&self.root()).unwrap(), &self.root()).unwrap()
    }

    fn changes(&self) -> CatalogChanges {
        self.opened().changes(0, &Stop::default()).unwrap()
    }

    /// Every file of the catalog.
    fn files(&self) -> BTreeMap<Vec<u8>, u64> {
        let opened = self.opened();
        let mut name = Name::default();
        (0..opened.files())
            .map(|index| {
                let size = opened.entry(index, &mut name).unwrap().bytes;
                (name.as_bytes().to_vec(), size)
            })
            .collect()
    }

    fn names(&self) -> Vec<String> {
        self.files().into_keys().map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
    }
}

pub(super) fn deep() -> Tree {
    let tree = Tree::new();
    for index in 0..500 {
        tree.write(format!("a/{}/f{index:04}.bin", index % 7), index % 50);
    }
    tree.write("a-b/x", 3);
    tree.write("a/z/y/x/w", 4);
    fs::create_dir(tree.root().join("empty")).unwrap();
    tree
}

#[test]
fn the_catalog_holds_all_files_for_any_number_of_threads() {
    let tree = deep();
    let summary = tree.scan(&ListOptions::default()).unwrap();
    let sum: u64 = (0..500).map(|index| index % 50).sum();
    assert_eq!((summary.files, summary.bytes, summary.folders), (502, sum + 7, 14));
    let mut expected = BTreeMap::from([(b"a-b/x".to_vec(), 3), (b"a/z/y/x/w".to_vec(), 4)]);
    expected.extend((0..500).map(|i| (format!("a/{}/f{i:04}.bin", i % 7).into_bytes(), i % 50)));
    assert_eq!(tree.files(), expected);
    assert!(tree.changes().is_empty());
    let bytes = tree.bytes();
    for threads in [1, 2, 9] {
        tree.scan(&ListOptions { threads, ..ListOptions::default() }).unwrap();
        assert!(tree.bytes() == bytes, "{threads} threads");
    }
    let left: Vec<_> =
        fs::read_dir(tree.root().join(FOLDER)).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, [FILE]);
}

#[test]
fn a_large_folder_is_split_among_threads_and_is_sorted() {
    let tree = Tree::new();
    let count = list::BATCH * 3 + 17;
    let folder = tree.root().join("flat");
    fs::create_dir(&folder).unwrap();
    for index in 0..count {
        fs::File::create(folder.join(format!("img_{index}_of_{count}.jpg"))).unwrap();
    }
    tree.scan(&ListOptions { threads: 4, ..ListOptions::default() }).unwrap();
    let bytes = tree.bytes();
    assert_eq!(tree.files().len(), count);
    let names = tree.names();
    assert!(names.is_sorted());
    tree.scan(&ListOptions { threads: 1, ..ListOptions::default() }).unwrap();
    assert!(tree.bytes() == bytes);
}

#[test]
fn entries_that_are_not_data_files_are_left_out_and_counted() {
    let tree = Tree::new();
    tree.write("x.jpg", 5);
    tree.write("y.png", 7);
    tree.write(".hidden", 1);
    tree.write(".git/config", 1);
    tree.write("sub/z.jpg.partial", 1);
    tree.write("sub/w.jpg", 2);
    tree.write("sub/w.jpg.idx", 2);
    symlink("x.jpg", tree.root().join("link.jpg")).unwrap();
    symlink("sub", tree.root().join("linked.jpg")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.root().join("pipe.jpg"), rustix::fs::Mode::RWXU).unwrap();
    let summary = tree.scan(&ListOptions::default()).unwrap();
    assert_eq!(tree.names(), ["link.jpg", "sub/w.jpg", "x.jpg", "y.png"]);
    assert_eq!(tree.files()[b"link.jpg".as_slice()], 5);
    let skipped = |summary: &ListSummary| {
        SkipReason::ALL.map(|reason| {
            let example = summary.skipped.example(reason).map(String::from_utf8_lossy);
            (summary.skipped.count(reason), example.unwrap_or_default().into_owned())
        })
    };
    let expected = [
        (2, ".git"),
        (1, "sub/z.jpg.partial"),
        (1, "sub/w.jpg.idx"),
        (0, ""),
        (1, "linked.jpg"),
        (1, "pipe.jpg"),
        (0, ""),
        (0, ""),
    ];
    assert_eq!(skipped(&summary), expected.map(|(count, path)| (count, path.to_owned())));
    let jpg = ListOptions { suffixes: vec![b".jpg".to_vec()], ..ListOptions::default() };
    let summary = tree.scan(&jpg).unwrap();
    assert_eq!(tree.names(), ["link.jpg", "sub/w.jpg", "x.jpg"]);
    assert_eq!(skipped(&summary)[SkipReason::Unmatched as usize], (2, "sub/w.jpg.idx".to_owned()));
    let refreshed = tree.scan(&ListOptions { refresh: true, ..ListOptions::default() }).unwrap();
    assert_eq!(refreshed.files, 3, "a refresh keeps the suffixes");
    let other = ListOptions { suffixes: vec![b".png".to_vec()], refresh: true, ..ListOptions::default() };
    assert!(matches!(tree.scan(&other), Err(ScanError::OtherSuffixes(_))));
}

#[test]
fn names_that_are_not_text_are_kept_byte_by_byte() {
    let tree = Tree::new();
    let odd = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let long = [b'n'; 255];
    for name in [b"\xff\xfe".as_slice(), b"new\nline", b"sp ace", b"\xc3(", &long] {
        tree.write(Path::new(&odd(b"d\xff")).join(odd(name)), name.len());
    }
    tree.scan(&ListOptions::default()).unwrap();
    let opened = tree.opened();
    let mut name = Name::default();
    for index in 0..opened.files() {
        let size = opened.entry(index, &mut name).unwrap().bytes;
        let path = tree.root().join(std::ffi::OsStr::from_bytes(name.as_c_str().to_bytes()));
        assert_eq!(fs::metadata(path).unwrap().len(), size);
    }
    assert_eq!(opened.files(), 5);
}

#[test]
fn a_refresh_lists_only_what_changed() {
    let tree = deep();
    tree.scan(&ListOptions::default()).unwrap();
    tree.write("a/3/new.bin", 9);
    tree.write("more/files/here", 1);
    fs::remove_dir_all(tree.root().join("a/5")).unwrap();
    fs::rename(tree.root().join("a/6"), tree.root().join("six")).unwrap();
    let changes = tree.changes();
    let named: Vec<String> = changes.first.iter().map(ToString::to_string).collect();
    let root = tree.root().display().to_string();
    let expected = [
        format!("{root} has changed"),
        format!("{root}/a has changed"),
        format!("{root}/a/3 has changed"),
        format!("{root}/a/5 is gone"),
        format!("{root}/a/6 is gone"),
    ];
    assert_eq!(named, expected);
    assert!(!changes.all());
    let summary = tree.scan(&ListOptions { refresh: true, ..ListOptions::default() }).unwrap();
    assert_eq!(summary.folders_reused, summary.folders - 6, "root, a, a/3, more, more/files, six are listed");
    let refreshed = tree.bytes();
    assert_eq!(tree.scan(&ListOptions::default()).unwrap().folders_reused, 0);
    assert!(tree.bytes() == refreshed);
    assert!(tree.changes().is_empty());
}

#[test]
fn an_interrupted_listing_continues_where_it_stopped() {
    let tree = deep();
    tree.scan(&ListOptions::default()).unwrap();
    let undisturbed = tree.bytes();
    fs::remove_file(default_place(&tree.root())).unwrap();
    // A folder that cannot be listed ends the listing; the rest is kept.
    let broken = tree.root().join("a/2/broken");
    symlink("nowhere", &broken).unwrap();
    let error = tree.scan(&ListOptions { threads: 1, ..ListOptions::default() }).unwrap_err();
    assert!(error.to_string().contains("a/2/broken: No such file"), "{error}");
    assert_eq!(find(&tree.root()), None);
    fs::remove_file(&broken).unwrap();
    let summary = tree.scan(&ListOptions::default()).unwrap();
    assert!(summary.folders_reused > 0, "{summary:?}");
    let now = tree.bytes();
    tree.scan(&ListOptions::default()).unwrap();
    assert!(tree.bytes() == now);
    // Only the time of a/2 differs.
    assert_eq!(Catalog::parse(now).unwrap().digest(), Catalog::parse(undisturbed).unwrap().digest());
}

#[test]
fn a_change_right_after_the_listing_is_detected() {
    for _ in 0..20 {
        let tree = Tree::new();
        tree.write("a/x", 1);
        tree.scan(&ListOptions::default()).unwrap();
        tree.write("a/y", 1);
        assert_eq!(tree.changes().changed, 1);
    }
}

#[test]
fn a_stop_request_ends_the_listing_without_a_catalog() {
    let tree = deep();
    let stop = Stop::default();
    stop.wish();
    let outcome = scan(&tree.root(), &ListOptions::default(), &Solo::new(), &stop, &Events::default());
    assert!(matches!(outcome, Err(ScanError::Interrupted)));
    assert_eq!(find(&tree.root()), None);
}

#[test]
fn places_are_checked_before_anything_is_listed() {
    let tree = deep();
    let output = |path: PathBuf| ListOptions { output: Some(path), ..ListOptions::default() };
    let inside = tree.scan(&output(tree.root().join("a/catalog")));
    assert!(matches!(inside, Err(ScanError::OutputInside(_))));
    let precious = tree.folder.path().join("precious");
    fs::write(&precious, b"work of years").unwrap();
    assert!(matches!(tree.scan(&output(precious.clone())), Err(ScanError::InTheWay(_))));
    assert_eq!(fs::read(&precious).unwrap(), b"work of years");
    let elsewhere = tree.folder.path().join("list");
    for _ in 0..2 {
        assert_eq!(tree.scan(&output(elsewhere.clone())).unwrap().path, elsewhere);
    }
    assert_eq!(find(&tree.root()), None);
    assert_eq!(OpenCatalog::open(&elsewhere, &tree.root()).unwrap().files(), 502);
    let listed =
        |root: &Path| scan(root, &ListOptions::default(), &Solo::new(), &Stop::default(), &Events::default());
    let missing = listed(&tree.root().join("no"));
    assert!(matches!(missing, Err(ScanError::Missing(_))));
    let file = listed(&precious);
    assert!(matches!(file, Err(ScanError::NotAFolder(_))));
}

#[test]
fn an_empty_folder_leaves_no_files_behind() {
    let tree = Tree::new();
    fs::create_dir(tree.root().join("sub")).unwrap();
    let error = tree.scan(&ListOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with("there are no files in "), "{error}");
    assert!(!tree.root().join(FOLDER).exists());
}

#[test]
fn a_catalog_of_another_folder_is_recognized_by_its_times() {
    let one = deep();
    one.scan(&ListOptions::default()).unwrap();
    let two = deep();
    let opened = OpenCatalog::open(&find(&one.root()).unwrap(), &two.root()).unwrap();
    let changes = opened.changes(3, &Stop::default()).unwrap();
    assert!(changes.all() && changes.first.len() == 10, "{changes:?}");
}

#[test]
fn an_opened_catalog_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<OpenCatalog>();
}

/// Keys and sizes, listed as an object store does: by prefix up to the next slash, each key with its size.
#[derive(Debug)]
struct Keys(BTreeMap<Vec<u8>, u64>);

#[derive(Debug)]
struct KeysBelow(Vec<(CString, Hint)>);

impl Listing for Keys {
    fn identity(&self) -> io::Result<Vec<u8>> {
        Ok(b"keys".to_vec())
    }

    fn open(&self, prefix: &[u8]) -> io::Result<Box<dyn Prefix>> {
        let mut below = BTreeMap::new();
        for (key, size) in &self.0 {
            let rest = match prefix {
                b"" => Some(key.as_slice()),
                prefix => key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(b"/")),
            };
            let Some(rest) = rest else { continue };
            let (name, hint) = match rest.iter().position(|byte| *byte == b'/') {
                Some(end) => (&rest[..end], Hint::Folder),
                None => (rest, Hint::Sized(*size)),
            };
            below.insert(CString::new(name).unwrap(), hint);
        }
        Ok(Box::new(KeysBelow(below.into_iter().rev().collect())))
    }

    fn version(&self, _prefix: &[u8]) -> io::Result<Option<i64>> {
        Ok(Some(1))
    }
}

impl Prefix for KeysBelow {
    fn version(&self) -> io::Result<i64> {
        Ok(1)
    }

    fn names<'a>(&'a self, _room: &'a mut [MaybeUninit<u8>]) -> Box<dyn NameStream + 'a> {
        Box::new(Pages(self.0.chunks(100)))
    }

    fn look(&self, name: &CStr, _hint: Hint) -> io::Result<EntryKind> {
        panic!("the size of {name:?} was listed")
    }
}

/// Several names per request.
struct Pages<'a>(std::slice::Chunks<'a, (CString, Hint)>);

impl NameStream for Pages<'_> {
    fn next(&mut self, each: &mut dyn FnMut(&CStr, Hint)) -> io::Result<bool> {
        let Some(page) = self.0.next() else { return Ok(false) };
        page.iter().for_each(|(name, hint)| each(name, *hint));
        Ok(true)
    }
}

#[test]
fn storage_without_folders_is_listed_through_the_same_trait() {
    let (tree, empty) = (deep(), Tree::new());
    tree.scan(&ListOptions::default()).unwrap();
    let keys = Keys(tree.files());
    for threads in [1, 4] {
        let options = ListOptions { threads, ..ListOptions::default() };
        let (root, stop, events) = (empty.root(), Stop::default(), Events::default());
        let (world, options, root) = (&Solo::new(), &options, &root);
        let task = ScanTask { listing: &keys, root, options, world, stop: &stop, events: &events };
        let summary = task.run().unwrap().unwrap();
        assert_eq!(summary.files, 502);
        assert_eq!(empty.files(), keys.0, "{threads} threads");
    }
}
