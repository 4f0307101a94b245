//! Generated files against the rules of all formats and recorded reads of h5py; files written by h5py, byte for
//! byte; and damaged files.

use super::*;
use crate::fixture::{self, encoded, shape};
use crate::{ArrayList, conformance};
use model::shape::Element;
use proptest::prelude::*;

/// What the tests vary.
#[derive(Clone, Debug, Default)]
struct Asked {
    chunk: Vec<u64>,
    max: Vec<u64>,
    sets: u64,
    gzip: Option<u32>,
}

fn build(asked: &Asked, access: Access) -> Result<Box<dyn Format>, FormatError> {
    let mut options = FormatOptions { access, ..FormatOptions::default() };
    options.hdf5.chunk_dims.clone_from(&asked.chunk);
    options.hdf5.max_shape.clone_from(&asked.max);
    options.hdf5.datasets_per_sample = asked.sets;
    if let Some(level) = asked.gzip {
        (options.compression, options.compression_level) = ("gzip".to_owned(), level);
    }
    KIND.build(&options)
}

fn format(access: Access) -> Box<dyn Format> {
    build(&Asked::default(), access).unwrap()
}

fn extents(text: &str) -> Vec<Extent> {
    let number = |word: &str| word.parse().unwrap();
    let extent = |(len, offset)| Extent { offset: number(offset), len: number(len) };
    text.split_whitespace().map(|word| extent(word.split_once('@').unwrap())).collect()
}

fn ours(
    asked: &Asked,
    access: Access,
    shape: &FileShape<'_>,
    samples: Range<u64>,
) -> Result<Vec<Extent>, Obstacle> {
    let mut reads = Vec::new();
    build(asked, access)?.reads(SourceFile::Ours(shape), samples, &mut reads)?;
    Ok(reads)
}

/// The reads of an existing file: the metadata lookups, then the reads of the samples.
fn foreign(
    access: Access,
    bytes: &[u8],
    samples: Range<u64>,
) -> Result<(Vec<Extent>, Vec<Extent>), Obstacle> {
    let (reads, metadata) = fixture::looked_up(&*format(access), bytes, samples.end, samples);
    Ok((metadata, reads?))
}

/// What is found, without the arrays, which [`arrays`] returns.
fn facts(bytes: &[u8]) -> Result<FileFacts, Obstacle> {
    let found = fixture::inspected(&*format(Access::Extent), bytes)?;
    Ok(FileFacts { arrays: ArrayList::default(), ..found })
}

fn arrays(bytes: &[u8]) -> Vec<(String, Vec<u64>, String)> {
    let ArrayList { listed, more } = fixture::inspected(&*format(Access::Extent), bytes).unwrap().arrays;
    assert_eq!(more, 0);
    listed.into_iter().map(|array| (array.name, array.shape.unwrap(), array.dtype)).collect()
}

/// The bytes of some reads, one after the other.
fn gathered(bytes: &[u8], reads: &[Extent]) -> Vec<u8> {
    reads.iter().flat_map(|read| &bytes[read.offset as usize..read.end() as usize]).copied().collect()
}

#[test]
fn a_file_is_as_long_as_dlios() {
    let size = |dims: &[u64], samples| format(Access::Framework).size(&shape(dims, Element::Uint8, samples));
    assert_eq!(size(&[64, 64], 2), Ok(EncodedSize::Exact(10_256)));
    assert_eq!(size(&[512, 512], 8), Ok(EncodedSize::Exact(2048 + 8 * 512 * 512 + 64)));
}

/// Recorded with strace on generated files, h5py 3.14 with HDF5 1.14.6: opening a file and reading samples from
/// every dataset.
#[test]
fn reads_are_h5pys() {
    let open = "8@0 48@0 512@48 ";
    let chunked = |chunk: &[u64]| Asked { chunk: chunk.to_vec(), ..Asked::default() };
    type Case = (Asked, &'static [u64], u64, Range<u64>, &'static str);
    let cases: [Case; 8] = [
        (Asked::default(), &[512, 512], 8, 2..3, "512@195 262144@526336"),
        (Asked::default(), &[64, 64], 100, 3..4, "512@195 65536@14336"),
        (Asked::default(), &[64, 64], 100, 98..99, "512@195 8192@403456"),
        (
            Asked { sets: 2, ..Asked::default() },
            &[512, 512],
            8,
            2..3,
            "512@195 131072@264192 512@463 131072@1312768",
        ),
        (chunked(&[1, 512, 512]), &[512, 512], 8, 2..3, "512@195 28@463 82@491 262144@526336"),
        (
            chunked(&[64]),
            &[64],
            3000,
            1023..1025,
            "512@195 28@463 19@491 8196@510 64@92096 8196@8706 64@92160",
        ),
        (
            chunked(&[4, 1000, 1024]),
            &[2048, 1024],
            4,
            1..3,
            "512@195 28@463 42@491 1024000@1026048 1024000@2050048 1024000@5122048 1024000@6146048 \
             49152@9218048 49152@10242048",
        ),
        (chunked(&[4, 2048, 1024]), &[2048, 1024], 4, 1..3, "512@195 28@463 26@491 4194304@2099200"),
    ];
    for (asked, dims, samples, range, wanted) in cases {
        let shape = shape(dims, Element::Uint8, samples);
        let reads = ours(&asked, Access::Framework, &shape, range).unwrap();
        assert_eq!(reads, extents(&format!("{open}{wanted}")), "{asked:?}");
    }
}

#[test]
fn extents_are_only_the_data_merged_if_adjacent() {
    let reads = |asked: &Asked, dims: &[u64], range| {
        ours(asked, Access::Extent, &shape(dims, Element::Uint8, 100), range).unwrap()
    };
    assert_eq!(reads(&Asked::default(), &[64, 64], 3..5), extents("8192@14336"));
    let chunked = Asked { chunk: vec![1, 20, 64], ..Asked::default() };
    assert_eq!(reads(&chunked, &[64, 64], 3..5), extents(&format!("{}@{}", 8 * 1280, 4096 + 12 * 1280)));
    let split = Asked { sets: 2, ..Asked::default() };
    assert_eq!(reads(&split, &[64, 64], 0..100), extents("409600@2048"));
}

#[test]
fn impossible_settings_are_refused() {
    let refused = |asked: Asked, dims: &[u64]| {
        let result = build(&asked, Access::Framework)
            .and_then(|format| format.size(&shape(dims, Element::Float32, 4)).map(|_| ()));
        result.unwrap_err().to_string()
    };
    let asked = Asked::default;
    let cases: [(Asked, &[u64], &str); 13] = [
        (Asked { sets: 3, ..asked() }, &[4, 4], "num_dset_per_record 3 does not divide"),
        (Asked { sets: 2, ..asked() }, &[], "num_dset_per_record 2 does not divide"),
        (Asked { sets: 2049, ..asked() }, &[2049], "at most 2048"),
        (Asked { chunk: vec![1, 0], ..asked() }, &[4], "chunk_dims [1, 0] makes empty chunks"),
        (Asked { chunk: vec![1; 4], ..asked() }, &[4, 4], "chunk_dims [1, 1, 1, 1] does not fit"),
        (Asked { chunk: vec![1], ..asked() }, &[4, 4], "the samples' first"),
        (Asked { chunk: vec![1 << 31], ..asked() }, &[1 << 31], "chunks that are too large"),
        (Asked { max: vec![4, 3], ..asked() }, &[4, 4], "max_shape [4, 3] does not hold"),
        (Asked { max: vec![9], ..asked() }, &[4, 4], "give as many numbers"),
        (Asked { max: vec![u64::MAX, u64::MAX], ..asked() }, &[4, 4], "too large"),
        (Asked { gzip: Some(10), ..asked() }, &[4], "choose 0 to 9"),
        (asked(), &[1; 32], "at most 31"),
        (asked(), &[1 << 61], "too large"),
    ];
    for (asked, dims, words) in cases {
        let error = refused(asked, dims);
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn the_default_chunk_is_a_sample_or_a_mebibyte_of_one() {
    let chunk = |dims: &[u64]| {
        let asked = Asked { gzip: Some(1), ..Asked::default() };
        let options = build(&asked, Access::Extent).unwrap();
        let bytes = encoded(&*options, &shape(dims, Element::Uint8, 1));
        facts(&bytes).unwrap().notes[2].clone()
    };
    assert_eq!(chunk(&[300, 20]), "chunks of shape [1, 300, 20], fixed array");
    assert_eq!(chunk(&[3001, 1000]), "chunks of shape [1, 751, 1000], fixed array");
}

/// Reads of a file made by h5py, `libver` as its name says or latest: every element of sample k is k + 1.
fn check_sample(bytes: &[u8], wanted: &FileFacts, element: &[u8], unpack: impl Fn(&[u8]) -> Vec<u8>) {
    let found = facts(bytes).unwrap();
    assert_eq!(found, *wanted);
    for sample in 0..found.samples.unwrap() {
        for access in [Access::Extent, Access::Framework] {
            let (_, reads) = foreign(access, bytes, sample..sample + 1).unwrap();
            assert!(!reads.is_empty());
            if access == Access::Extent {
                let data: Vec<u8> =
                    reads.iter().flat_map(|read| unpack(&gathered(bytes, &[*read]))).collect();
                let elements = wanted.dims.iter().product::<u64>() as usize;
                assert_eq!(data, element_of(element, sample as u8 + 1).repeat(elements), "sample {sample}");
            }
        }
    }
    let beyond = foreign(Access::Extent, bytes, found.samples.unwrap()..found.samples.unwrap() + 1);
    assert!(matches!(beyond, Err(Obstacle::Shape(FormatError::NoSuchSample { .. }))), "{beyond:?}");
}

/// An element: the pattern with its last byte incremented.
fn element_of(pattern: &[u8], number: u8) -> Vec<u8> {
    let (_, front) = pattern.split_last().unwrap();
    [front, &[number]].concat()
}

fn said(samples: u64, dims: &[u64], element: &str, notes: &[&str]) -> FileFacts {
    let notes = notes.iter().map(|&note| note.to_owned()).collect();
    let arrays = ArrayList::default();
    FileFacts {
        samples: Some(samples),
        dims: dims.to_vec(),
        element: Some(element.to_owned()),
        arrays,
        notes,
    }
}

fn inflated(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(bytes), &mut out).unwrap();
    out
}

const EARLIEST: &[u8] = include_bytes!("samples/earliest.hdf5");
const GROWING: &[u8] = include_bytes!("samples/growing.hdf5");
const SIDEWAYS: &[u8] = include_bytes!("samples/sideways.hdf5");
const FREE: &[u8] = include_bytes!("samples/free.hdf5");
const MANY: &[u8] = include_bytes!("samples/many.hdf5");
const PLAIN: &[u8] = include_bytes!("samples/plain.hdf5");
const SAMPLES: [&[u8]; 6] = [EARLIEST, GROWING, SIDEWAYS, FREE, MANY, PLAIN];

#[test]
fn h5py_files_with_version_1_trees_are_read() {
    let notes = [
        "superblock version 0",
        "2 datasets per sample, records_0 to records_1",
        "chunks of shape [1, 4, 3], B-tree",
        "filters gzip",
        "big-endian elements",
    ];
    // Chunk by chunk: those of a gzipped file may be adjacent.
    let (_, reads) = foreign(Access::Framework, EARLIEST, 4..5).unwrap();
    let chunks: Vec<Vec<u8>> =
        reads.iter().rev().take(4).map(|read| inflated(&gathered(EARLIEST, &[*read]))).collect();
    assert!(chunks.iter().all(|chunk| *chunk == [0, 0, 0, 5].repeat(12)));
    assert_eq!(facts(EARLIEST).unwrap(), said(9, &[8, 6], "int32", &notes));
}

#[test]
fn h5py_files_with_other_indexes_are_read() {
    let superblock = "superblock version 3";
    let notes = [
        superblock,
        "dataset records_0",
        "chunks of shape [1, 3, 4], extensible array",
        "may grow to shape [any, 6, 4]",
    ];
    check_sample(GROWING, &said(40, &[6, 4], "uint8", &notes), &[0], <[u8]>::to_vec);
    let notes = [notes[0], notes[1], notes[2], "may grow to shape [5, 6, any]"];
    check_sample(SIDEWAYS, &said(5, &[6, 8], "uint8", &notes), &[0], <[u8]>::to_vec);
    // lzf stores three bytes unchanged, after a byte that marks them.
    let notes = [
        superblock,
        "dataset records_0",
        "chunks of shape [1, 3], B-tree version 2",
        "may grow to shape [any, any]",
        "filters shuffle, lzf",
    ];
    let found = facts(FREE).unwrap();
    assert_eq!(found, said(40, &[6], "uint8", &notes));
    for sample in 0..40 {
        let (_, reads) = foreign(Access::Framework, FREE, sample..sample + 1).unwrap();
        let data = reads.iter().rev().take(2).map(|read| gathered(FREE, &[*read]));
        assert!(data.into_iter().all(|chunk| chunk.ends_with(&[sample as u8 + 1; 3])), "sample {sample}");
    }
}

#[test]
fn h5py_files_with_many_links_or_other_names_are_read() {
    let notes = ["superblock version 3", "12 datasets per sample, records_0 to records_11", "contiguous"];
    check_sample(MANY, &said(2, &[36], "uint8", &notes), &[0], <[u8]>::to_vec);
    let notes = ["superblock version 0", "dataset images", "contiguous"];
    let found = facts(PLAIN).unwrap();
    assert_eq!(found, said(4, &[5], "float64", &notes));
    let many = arrays(MANY);
    assert_eq!(many.len(), 13, "{many:?}");
    assert!(many.contains(&("records_11".to_owned(), vec![2, 3], "uint8".to_owned())), "{many:?}");
    assert!(arrays(PLAIN).contains(&("images".to_owned(), vec![4, 5], "float64".to_owned())));
    let (_, reads) = foreign(Access::Extent, PLAIN, 2..3).unwrap();
    assert_eq!(gathered(PLAIN, &reads), 3.0_f64.to_le_bytes().repeat(5));
}

#[test]
fn damage_is_reported_with_its_offset() {
    let file = encoded(&*format(Access::Framework), &shape(&[8, 8], Element::Uint8, 2));
    let damaged = |offset: usize, byte: u8| {
        let mut file = file.clone();
        file[offset] = byte;
        facts(&file).unwrap_err().to_string()
    };
    let cases = [
        (0, 0, "signature '\\x89HDF\\r\\n\\x1a\\n' is missing (at byte 0)"),
        (8, 9, "version 9 of the superblock, which is not supported (at byte 8)"),
        (9, 3, "addresses of 3 bytes, lengths of 8 (at byte 11)"),
        (28, 9, "checksum mismatch in 48 bytes of metadata"),
        (60, 1, "checksum mismatch in 147 bytes of metadata"),
        (195, b'X', "version 88 of an object header, which is not supported (at byte 195)"),
        (210, 9, "checksum mismatch in 268 bytes of metadata"),
    ];
    for (offset, byte, words) in cases {
        let error = damaged(offset, byte);
        assert!(error.contains(words), "{error}");
    }
    let short = facts(&file[..2000]).unwrap_err().to_string();
    assert!(short.ends_with("it has 2000 bytes instead of 2192 (at byte 2000)"), "{short}");
}

#[test]
fn a_truncated_file_is_damaged_at_any_length() {
    for bytes in SAMPLES {
        for len in (0..bytes.len()).step_by(7) {
            assert!(matches!(facts(&bytes[..len]), Err(Obstacle::Damage(_))), "{len}");
            assert!(matches!(foreign(Access::Framework, &bytes[..len], 0..1), Err(Obstacle::Damage(_))));
        }
    }
}

#[test]
fn a_header_that_continues_itself_ends() {
    let mut endless = false;
    // Headers of the first version have no checksums. Each message in turn becomes a continuation that points
    // to itself.
    for at in (0..PLAIN.len() - 24).step_by(8) {
        let mut bytes = PLAIN.to_vec();
        bytes[at..at + 8].copy_from_slice(&[0x10, 0, 16, 0, 0, 0, 0, 0]);
        bytes[at + 8..at + 16].copy_from_slice(&(at as u64).to_le_bytes());
        bytes[at + 16..at + 24].copy_from_slice(&24_u64.to_le_bytes());
        let found = facts(&bytes);
        endless |= found.is_err_and(|error| error.to_string().contains("endless continuations"));
        drop(foreign(Access::Framework, &bytes, 0..1));
    }
    assert!(endless);
}

/// Options and a shape, most of which are valid.
fn cases() -> impl Strategy<Value = (Asked, Vec<u64>, u64)> {
    let extent = prop_oneof![30 => 1_u64..12, 1 => Just(0_u64)];
    let dims = prop::collection::vec(extent, 0..4);
    let numbers = || prop::collection::vec(1_u64..16, 0..5);
    let max = prop_oneof![3 => Just(0_u64), 1 => 1_u64..9];
    (dims, numbers(), max, 0_u64..4, prop::option::of(0_u32..=9), 1_u64..9).prop_map(
        |(mut dims, mut chunk, more, sets, gzip, samples)| {
            chunk.truncate(dims.len() + 1);
            if chunk.len() + 1 < dims.len() + 1 {
                chunk.clear();
            }
            let max = if more > 0 { dims.iter().map(|dim| dim + more).collect() } else { Vec::new() };
            if let Some(first) = dims.first_mut() {
                *first *= sets.max(1);
            }
            (Asked { chunk, max, sets, gzip }, dims, samples)
        },
    )
}

/// A sample's bytes, from the whole chunks or the contiguous pieces that were read, for all datasets.
fn assembled(bytes: &[u8], asked: &Asked, shape: &FileShape<'_>, sample: u64) -> Vec<u8> {
    let settings = LayoutOptions {
        sets: asked.sets.max(1),
        chunk_dims: asked.chunk.clone(),
        max_shape: asked.max.clone(),
        gzip: asked.gzip,
    };
    let plan = Layout::of(&settings, shape).unwrap();
    let (metadata, reads) = foreign(Access::Framework, bytes, sample..sample + 1).unwrap();
    assert!(!metadata.is_empty());
    let part = (shape.sample_bytes() / plan.sets) as usize;
    if !plan.chunked {
        return reads.iter().flat_map(|read| gathered(bytes, &[*read])[..part].to_vec()).collect();
    }
    let touched = plan.grid.touched(&(sample..sample + 1)).unwrap() as usize;
    // Metadata that was read again precedes the data.
    let chunks = &reads[reads.len() - touched * plan.sets as usize..];
    let mut out = Vec::new();
    for set in chunks.chunks(touched) {
        let (mut data, mut left) = (vec![0; part], set.iter());
        let done: Result<(), std::convert::Infallible> = plan.grid.each_chunk(&(sample..sample + 1), |at| {
            let chunk = gathered(bytes, &[*left.next().unwrap()]);
            let chunk = if plan.filtered { inflated(&chunk) } else { chunk };
            plan.grid.each_run(at, &(sample..sample + 1), |run| {
                let at = run.set_offset as usize - sample as usize * part;
                data[at..][..run.len as usize]
                    .copy_from_slice(&chunk[run.chunk_offset as usize..][..run.len as usize]);
            });
            Ok(())
        });
        let Ok(()) = done;
        out.extend(data);
    }
    out
}

#[test]
fn chunks_are_decoded_to_those_of_a_file_without_compression() {
    let shape = shape(&[30, 41], Element::Uint16, 5);
    let read = |gzip, access| {
        let format =
            build(&Asked { chunk: vec![2, 16, 16], sets: 2, gzip, ..Asked::default() }, access).unwrap();
        let bytes = encoded(&*format, &shape);
        let (_, reads) = foreign(access, &bytes, 1..4).unwrap();
        (format, gathered(&bytes, &reads))
    };
    let (packed, bytes) = read(Some(4), Access::Extent);
    let mut out = Vec::new();
    assert!(packed.decodes());
    packed.decode(&bytes, &mut out).unwrap();
    let (plain, wanted) = read(None, Access::Extent);
    assert!(!plain.decodes() && out == wanted);
    // h5py's requests also bring metadata.
    assert!(!read(Some(4), Access::Framework).0.decodes());
}

proptest! {
    #[test]
    fn conforms((asked, dims, samples) in cases(), element in 0..Element::ALL.len(), seed: u64, file: u64) {
        for access in [Access::Framework, Access::Extent] {
            if let Ok(format) = build(&asked, access) {
                conformance::check(&*format, &shape(&dims, Element::ALL[element], samples), seed, file)?;
            }
        }
    }

    #[test]
    fn generated_files_are_read_the_same_by_shape_and_by_metadata(
        (asked, dims, samples) in cases(), element in 0..Element::ALL.len(), from: u64, len in 1_u64..4,
    ) {
        let shape = shape(&dims, Element::ALL[element], samples);
        let asked = Asked { gzip: None, ..asked };
        let Ok(format) = build(&asked, Access::Extent) else { return Ok(()) };
        if format.size(&shape).is_ok() {
            let bytes = encoded(&*format, &shape);
            let range = from % samples..(from % samples + len).min(samples);
            let by_bytes = foreign(Access::Extent, &bytes, range.clone()).unwrap().1;
            prop_assert_eq!(ours(&asked, Access::Extent, &shape, range.clone()).unwrap(), by_bytes);
            // Also h5py's requests, although the metadata comes first.
            let (metadata, reads) = foreign(Access::Framework, &bytes, range.clone()).unwrap();
            let mut by_bytes = [metadata, reads].concat();
            let mut by_shape = ours(&asked, Access::Framework, &shape, range).unwrap();
            for reads in [&mut by_bytes, &mut by_shape] {
                reads.sort_by_key(|read| (read.offset, read.len));
            }
            prop_assert_eq!(by_shape, by_bytes);
            let found = facts(&bytes).unwrap();
            prop_assert_eq!(found.dims, dims);
            prop_assert_eq!(found.element.as_deref(), Some(Element::ALL[element].name()));
        }
    }

    #[test]
    fn elements_are_those_of_the_content_however_they_are_chunked(
        (asked, dims, samples) in cases(), element in 0..Element::ALL.len(),
    ) {
        let shape = shape(&dims, Element::ALL[element], samples);
        let Ok(format) = build(&asked, Access::Framework) else { return Ok(()) };
        if format.size(&shape).is_ok() {
            let bytes = encoded(&*format, &shape);
            let sets = asked.sets.max(1);
            let part = shape.sample_bytes() / sets;
            for sample in 0..samples {
                let mut wanted = vec![0; shape.sample_bytes() as usize];
                for (set, out) in (0..sets).zip(wanted.chunks_mut(part as usize)) {
                    let offset = (set * samples + sample) * part;
                    crate::array::fill_samples(shape.element, &Content::new(1), 3, offset, out);
                }
                prop_assert_eq!(assembled(&bytes, &asked, &shape, sample), wanted);
            }
        }
    }

    #[test]
    fn changed_bytes_do_not_panic(
        which in 0..SAMPLES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = SAMPLES[which].to_vec();
        for (at, byte) in changes {
            // Most of a file is zeros between the structures.
            let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
            bytes[used[at.index(used.len())]] = byte;
        }
        if let Ok(found) = facts(&bytes) {
            let samples = found.samples.unwrap().saturating_sub(1)..found.samples.unwrap();
            drop((foreign(Access::Framework, &bytes, 0..1), foreign(Access::Extent, &bytes, samples)));
        }
    }
}
