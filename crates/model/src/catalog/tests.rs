//! A catalog returns what was written; damaged catalogs are refused without a panic.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::objects::ObjectVersion;

/// A folder's modification time, and its files by name.
type Content = (i64, BTreeMap<Vec<u8>, u64>);
/// Folders by path.
type Tree = BTreeMap<Vec<u8>, Content>;

/// The folders in a catalog's order.
fn ordered(tree: &Tree) -> Vec<(&Vec<u8>, &Content)> {
    let mut folders: Vec<_> = tree.iter().collect();
    folders.sort_by(|(a, _), (b, _)| path_order(a, b));
    folders
}

/// A version that depends on the name; some files have none.
fn version(name: &[u8]) -> Option<ObjectVersion> {
    ObjectVersion::of_tag(if name.len().is_multiple_of(5) { b"" } else { name })
}

fn encode(tree: &Tree, suffixes: &[Vec<u8>]) -> Vec<u8> {
    encode_as(tree, suffixes, false)
}

fn encode_as(tree: &Tree, suffixes: &[Vec<u8>], objects: bool) -> Vec<u8> {
    let mut assembler = if objects { Assembler::of_objects(suffixes) } else { Assembler::new(suffixes) };
    let mut body = Vec::new();
    for (path, (mtime, files)) in ordered(tree) {
        let mut encoder = if objects { FolderEncoder::of_objects() } else { FolderEncoder::new() };
        for (name, size) in files {
            encoder.push_entry(name, FileEntry { bytes: *size, version: version(name) }).unwrap();
        }
        let folder = encoder.finish();
        assembler.push(path, *mtime, &folder).unwrap();
        body.extend_from_slice(&folder.body);
    }
    let frame = assembler.finish();
    [frame.header.as_slice(), &body, &frame.tail].concat()
}

/// Every file with its full path and size, in the catalog's order.
fn files(tree: &Tree) -> Vec<(Vec<u8>, u64)> {
    let mut all = Vec::new();
    for (path, (_, files)) in ordered(tree) {
        for (name, size) in files {
            let joined = if path.is_empty() { name.clone() } else { [path, b"/".as_slice(), name].concat() };
            all.push((joined, *size));
        }
    }
    all
}

fn dlio(count: usize, folders: usize) -> Tree {
    let mut tree =
        Tree::from([(b"".to_vec(), (5, BTreeMap::new())), (b"train".to_vec(), (6, BTreeMap::new()))]);
    for index in 0..count {
        let folder = format!("train/{:03}", index % folders).into_bytes();
        let name = format!("img_{index:07}_of_1000000.npz").into_bytes();
        tree.entry(folder).or_insert((7, BTreeMap::new())).1.insert(name, 150_528);
    }
    tree
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no NUL, no slash", |byte| !matches!(byte, 0 | b'/'));
    let counting = (0u32..300).prop_map(|i| format!("img_{i:05}_of_300.jpg").into_bytes());
    let stem = prop_oneof![Just(b"a".to_vec()), Just(b"ab".to_vec()), Just(vec![b'x'; 250])];
    let equal = (stem, 0u8..6).prop_map(|(mut stem, end)| {
        stem.resize(stem.len() + usize::from(end), b'x');
        stem
    });
    prop_oneof![proptest::collection::vec(byte, 1..260), counting, equal]
        .prop_filter("a name", |n| is_name(n))
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(4096), 0u64..1 << 20, 0u64..1 << 50]
}

fn tree() -> impl Strategy<Value = Tree> {
    let files = proptest::collection::btree_map(name(), size(), 0..200);
    let path = proptest::collection::vec(name(), 0..3).prop_map(|names| names.join(&b'/'));
    proptest::collection::btree_map(path, (any::<i64>(), files), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_file_is_returned(
        tree in tree(), suffixes in proptest::collection::vec(name(), 0..3), objects in any::<bool>()
    ) {
        let bytes = encode_as(&tree, &suffixes, objects);
        let catalog = Catalog::parse(bytes.as_slice()).unwrap();
        prop_assert_eq!(catalog.lists_objects(), objects);
        prop_assert_eq!(catalog.digest(), Catalog::parse(encode(&tree, &suffixes)).unwrap().digest());
        let expected = files(&tree);
        prop_assert_eq!(catalog.files(), expected.len() as u64);
        prop_assert_eq!(catalog.total_bytes(), expected.iter().map(|(_, size)| size).sum::<u64>());
        prop_assert_eq!(catalog.suffixes(), suffixes);
        let mut name = Name::default();
        for (index, (path, size)) in expected.iter().enumerate() {
            let last = path.rsplit(|byte| *byte == b'/').next().unwrap();
            let entry = FileEntry { bytes: *size, version: version(last).filter(|_| objects) };
            prop_assert_eq!(catalog.entry(index as u64, &mut name).unwrap(), entry);
            prop_assert_eq!(name.as_c_str().to_bytes(), path.as_slice());
        }
        let files = catalog.files();
        prop_assert_eq!(catalog.entry(files, &mut name), Err(CatalogError::NoSuchFile { index: files, files }));
        let folders: Vec<_> = catalog.folders().map(|f| (f.path.to_vec(), f.mtime_ns, f.files)).collect();
        let given: Vec<_> = ordered(&tree).into_iter().map(|(p, (t, f))| (p.clone(), *t, f.len() as u64)).collect();
        prop_assert_eq!(folders, given);
        for (at, (path, _)) in ordered(&tree).into_iter().enumerate() {
            prop_assert_eq!(catalog.find_folder(path), Ok(at));
            let inside = [path.as_slice(), b"/"].concat();
            let below = |(name, _): &&(Vec<u8>, u64)| path.is_empty() || name.starts_with(&inside);
            let range = catalog.below(path);
            prop_assert_eq!(range.end - range.start, expected.iter().filter(below).count() as u64);
            prop_assert!(expected[range.start as usize..range.end as usize].iter().all(|file| below(&file)));
        }
        prop_assert_eq!(catalog.verify(), Ok(()));
    }

    #[test]
    fn a_change_of_any_byte_is_detected(
        tree in tree(), at in any::<prop::sample::Index>(), flip in 1u8.., objects in any::<bool>()
    ) {
        let mut bytes = encode_as(&tree, &[], objects);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        match Catalog::parse(bytes.as_slice()) {
            Err(_) => {}
            // Opening does not read the body. A file in a damaged block is refused; the others are correct.
            Ok(catalog) => {
                prop_assert!(at >= HEADER as usize && at < catalog.facts.records_at);
                prop_assert!(catalog.verify().is_err());
                let mut name = Name::default();
                let mut refused = 0;
                for (index, (path, size)) in files(&tree).iter().enumerate() {
                    match catalog.entry(index as u64, &mut name) {
                        Ok(found) => prop_assert_eq!((name.as_bytes(), found.bytes), (path.as_slice(), *size)),
                        Err(_) => refused += 1,
                    }
                }
                prop_assert!(refused > 0);
            }
        }
    }

    #[test]
    fn truncation_at_any_byte_is_detected(tree in tree(), at in any::<prop::sample::Index>()) {
        let bytes = encode(&tree, &[]);
        let cut = &bytes[..at.index(bytes.len())];
        let error = Catalog::parse(cut).unwrap_err();
        prop_assert!(matches!(error, CatalogError::Truncated { .. } | CatalogError::NotACatalog), "{error}");
    }

    #[test]
    fn garbage_with_valid_checksums_is_refused_or_harmless(
        tree in tree(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        objects in any::<bool>()
    ) {
        let mut bytes = encode_as(&tree, &[], objects);
        for (at, value) in changes {
            let at = at.index(bytes.len() - 12) + 12;
            bytes[at] = value;
        }
        // A broken writer would still compute valid checksums, so only the other checks remain.
        let records_at = usize::try_from(number(&bytes, 56).unwrap()).unwrap_or(0).min(bytes.len());
        let tail = crc32fast::hash(&bytes[records_at..]).to_le_bytes();
        bytes[104..108].copy_from_slice(&tail);
        let header = crc32fast::hash(&bytes[..108]).to_le_bytes();
        bytes[108..112].copy_from_slice(&header);
        if let Ok(catalog) = Catalog::parse(bytes.as_slice()) {
            let mut name = Name::default();
            for index in 0..catalog.files().min(2000) {
                let _ = catalog.entry(index, &mut name);
            }
            let _ = catalog.verify();
        }
    }
}

#[test]
fn dlio_names_take_less_than_five_bytes() {
    let bytes = encode(&dlio(100_000, 100), &[]);
    let catalog = Catalog::parse(bytes.as_slice()).unwrap();
    let per_file = bytes.len() as f64 / catalog.files() as f64;
    assert!(per_file < 5.0, "{per_file}");
}

#[test]
fn bytes_that_are_not_a_catalog_are_refused() {
    for bytes in [b"".as_slice(), b"hello", &[0; 4096]] {
        assert_eq!(Catalog::parse(bytes).unwrap_err(), CatalogError::NotACatalog);
    }
    let mut bytes = encode(&dlio(10, 2), &[]);
    bytes[8] = 9;
    let error = Catalog::parse(bytes.as_slice()).unwrap_err();
    assert_eq!(error, CatalogError::OtherVersion { found: 9 });
    assert!(error.to_string().contains("version 9") && error.to_string().contains("feedline catalog DIR"));
    bytes[8] = 1;
    bytes.push(0);
    let end = bytes.len() as u64 - 1;
    assert_eq!(Catalog::parse(bytes.as_slice()).unwrap_err(), CatalogError::Corrupt { offset: end });
}

#[test]
fn the_digest_covers_paths_and_sizes() {
    let digest = |tree: &Tree| Catalog::parse(encode(tree, &[])).unwrap().digest();
    let tree = dlio(300, 3);
    let mut other = tree.clone();
    other.get_mut(b"train".as_slice()).unwrap().0 = 99;
    assert_eq!(digest(&tree), digest(&other), "modification times do not count");
    let files = &mut other.get_mut(b"train/001".as_slice()).unwrap().1;
    *files.values_mut().next().unwrap() += 1;
    assert_ne!(digest(&tree), digest(&other), "sizes do");
    assert_eq!(digest(&tree).len(), 32);
}

#[test]
fn runs_that_are_appended_become_the_same_folder() {
    let names: Vec<String> = (0..500).map(|i| format!("{i:05}{}", "y".repeat(i % 3))).collect();
    let encode = |names: &[String]| {
        let mut encoder = FolderEncoder::of_objects();
        for name in names {
            let entry = FileEntry { bytes: name.len() as u64, version: version(name.as_bytes()) };
            encoder.push_entry(name.as_bytes(), entry).unwrap();
        }
        encoder.finish()
    };
    let whole = encode(&names);
    for length in [1, 7, 64, 100, 500] {
        let mut encoder = FolderEncoder::of_objects();
        names.chunks(length).for_each(|part| encoder.append(&encode(part)).unwrap());
        assert_eq!(encoder.finish(), whole, "runs of {length}");
        assert_eq!(merge(names.chunks(length).map(encode).collect()).unwrap(), whole);
    }
    let mut encoder = FolderEncoder::of_objects();
    encoder.append(&whole).unwrap();
    assert_eq!(encoder.append(&encode(&names[3..4])), Err(BuildError::Order(names[3].clone())));
}

#[test]
fn a_catalog_is_of_files_or_of_objects() {
    let mut encoder = FolderEncoder::of_objects();
    encoder.push(b"x", 1).unwrap();
    let folder = encoder.finish();
    assert_eq!(Assembler::new(&[]).push(b"a", 0, &folder), Err(BuildError::Blocks("a".into())));
    Assembler::of_objects(&[]).push(b"a", 0, &folder).unwrap();
    let mut bytes = encode_as(&dlio(10, 2), &[], true);
    bytes[12] = 2;
    let header = crc32fast::hash(&bytes[..108]).to_le_bytes();
    bytes[108..112].copy_from_slice(&header);
    assert_eq!(Catalog::parse(bytes).unwrap_err(), CatalogError::OtherVersion { found: 1 });
}

#[test]
fn empty_folders_between_full_ones_are_kept() {
    let file = |name: &str| BTreeMap::from([(name.as_bytes().to_vec(), 1)]);
    let mut tree = Tree::new();
    for (path, files) in
        [("", BTreeMap::new()), ("a", BTreeMap::new()), ("b", file("x")), ("c", BTreeMap::new())]
    {
        tree.insert(path.as_bytes().to_vec(), (0, files));
    }
    tree.insert(b"d".to_vec(), (0, file("y")));
    tree.insert(b"e".to_vec(), (0, BTreeMap::new()));
    let catalog = Catalog::parse(encode(&tree, &[])).unwrap();
    let mut name = Name::default();
    let names: Vec<String> = (0..2)
        .map(|index| {
            catalog.entry(index, &mut name).unwrap();
            name.to_string()
        })
        .collect();
    assert_eq!(names, ["b/x", "d/y"]);
    assert_eq!(Catalog::parse(encode(&Tree::new(), &[])).unwrap().files(), 0);
}

#[test]
fn the_subtree_of_a_folder_is_contiguous() {
    let mut tree = Tree::new();
    for path in ["train", "train!", "train-more", "train/0", "train/0/a", "train/1", "valid", "train\u{1}"] {
        tree.insert(path.as_bytes().to_vec(), (0, BTreeMap::from([(b"x".to_vec(), 1)])));
    }
    let catalog = Catalog::parse(encode(&tree, &[])).unwrap();
    assert_eq!(catalog.folder(1).unwrap().path, b"train/0");
    assert_eq!(catalog.below(b"train"), 0..4);
    assert_eq!(catalog.below(b"train/0"), 1..3);
    assert_eq!(catalog.below(b"valid"), 7..8);
    assert_eq!(catalog.below(b""), 0..8);
    assert!(catalog.below(b"nothing").is_empty() && catalog.below(b"zzz").is_empty());
}

#[test]
fn folders_out_of_order_or_outside_are_refused() {
    let mut assembler = Assembler::new(&[]);
    let none = EncodedFolder::default();
    assembler.push(b"b", 0, &none).unwrap();
    assert_eq!(assembler.push(b"a", 0, &none), Err(BuildError::Order("a".into())));
    for path in [b"/etc".as_slice(), b"b/../c", b"c/", b"c//d", b"c\0"] {
        assert!(matches!(assembler.push(path, 0, &none), Err(BuildError::Name(_))), "{path:?}");
    }
    let lying = EncodedFolder { files: 3, ..EncodedFolder::default() };
    assert_eq!(assembler.push(b"c", 0, &lying), Err(BuildError::Blocks("c".into())));
}
