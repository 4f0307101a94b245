//! Tests of parquet beyond the rules of all formats.

use super::*;
use crate::conformance;
use crate::fixture::{self, ours, seen};
use ::parquet::basic::{Encoding, PageType};
use ::parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
};
use model::spec::Column;
use proptest::prelude::*;

const DTYPES: [&str; 15] = [
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32",
    "float64", "string", "binary", "bool", "list",
];

fn column(index: usize, dtype: &str, size: u64, read: bool) -> Column {
    Column { name: format!("column_{index}"), dtype: dtype.to_owned(), size, read }
}

fn options(columns: Vec<Column>, group_rows: u64, compression: &str, access: Access) -> FormatOptions {
    FormatOptions {
        access,
        compression: compression.to_owned(),
        columns: crate::ColumnOptions { columns, group_rows },
        ..FormatOptions::default()
    }
}

fn rows(samples: u64) -> FileShape<'static> {
    FileShape { dims: &[5], element: Element::Uint8, samples }
}

fn encoded(format: &Parquet, shape: &FileShape<'_>) -> Vec<u8> {
    fixture::encoded_as(format, shape, 7, 3)
}

fn foreign(format: &Parquet, bytes: &[u8], samples: Range<u64>) -> Result<Vec<Extent>, Obstacle> {
    fixture::foreign(format, bytes, 0, samples)
}

fn inspected(bytes: &[u8]) -> Result<FileFacts, Obstacle> {
    let seen = seen(bytes);
    foreign::inspect(&Look::new(NAME, bytes.len() as u64, &seen))
}

fn trailer(bytes: &[u8]) -> usize {
    let (_, &[a, b, c, d, ..]) = bytes.split_last_chunk::<8>().unwrap();
    u32::from_le_bytes([a, b, c, d]) as usize
}

/// The footer as parsed by another implementation.
fn decoded(bytes: &[u8]) -> ParquetMetaData {
    let end = bytes.len() - 8;
    let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
    let footer = &bytes[end - trailer(bytes)..end];
    ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options)).unwrap()
}

/// One of each type, as scalars and lists.
fn assorted() -> Vec<Column> {
    let sizes = [1, 3, 32, 33];
    let pairs = DTYPES.iter().flat_map(|dtype| sizes.map(|size| (*dtype, size)));
    pairs.enumerate().map(|(index, (dtype, size))| column(index, dtype, size, index % 5 < 2)).collect()
}

#[test]
fn the_size_of_the_largest_workload_is_known_without_writing_it() {
    // As in dlrm_b200: 200 columns of these types.
    let kinds = ["float16", "float64", "float32", "int8"];
    let columns = (0..200).map(|index| column(index, kinds[index % 4], 1, index % 5 == 0)).collect();
    let setting = options(columns, 6144, "none", Access::Framework);
    let format = Parquet::of(&setting).unwrap();
    let shape = rows(1_536_000);
    let payload = 50 * (2 + 8 + 4 + 1) * shape.samples;
    let size = format.size(&shape).unwrap().most();
    assert!(size > payload && size < payload + payload / 50, "{size} for {payload}");
    let reads = ours(&format, &shape, 0..6144);
    assert_eq!(reads[0], Extent { offset: size - 65536, len: 65536 });
    assert_eq!(reads[1].end(), size - 8);
    // Every fifth column is wanted, and the gap to the next is longer than pyarrow would read.
    assert_eq!(reads.len(), 2 + 40);
    assert_eq!(ours(&format, &shape, 6144 * 9..6144 * 10).len(), 40, "the footer was read before");
    // Cached sizes of one shape do not affect another's.
    for samples in [1_536_001, 6145, 6144, 1, 1_536_000] {
        let alone = Parquet::of(&setting).unwrap();
        assert_eq!(format.size(&rows(samples)), alone.size(&rows(samples)));
        let last = samples - 1..samples;
        assert_eq!(ours(&format, &rows(samples), last.clone()), ours(&alone, &rows(samples), last));
    }
}

#[test]
fn another_implementation_finds_what_was_written() {
    let (samples, group_rows) = (21, 8);
    for compression in ["none", "snappy", "zstd", "lz4", "gzip"] {
        let format = Parquet::of(&options(assorted(), group_rows, compression, Access::Extent)).unwrap();
        let bytes = encoded(&format, &rows(samples));
        let metadata = decoded(&bytes);
        assert_eq!(metadata.file_metadata().num_rows(), 21);
        assert_eq!(metadata.num_row_groups(), 3);
        let mut end = 4;
        for (group, rows) in metadata.row_groups().iter().zip([8, 8, 5]) {
            assert_eq!(group.num_rows(), rows);
            assert_eq!(group.num_columns(), format.leaves.len());
            for (chunk, leaf) in group.columns().iter().zip(&format.leaves) {
                let (offset, len) = chunk.byte_range();
                assert_eq!(offset, end, "{}", leaf.name);
                end = offset + len;
                assert_eq!(chunk.num_values(), rows * leaf.items.unwrap_or(1) as i64);
                assert_eq!(chunk.column_path().parts()[0], leaf.name);
                check_encodings(chunk, leaf);
            }
        }
        assert_eq!(end as usize, bytes.len() - 8 - trailer(&bytes));
    }
}

/// All columns but those of booleans start with a dictionary page, and the footer says which pages use it.
fn check_encodings(chunk: &ColumnChunkMetaData, leaf: &Leaf) {
    let dictionary = chunk.dictionary_page_offset();
    assert_eq!(dictionary.is_none(), leaf.value == leaf::ValueEncoding::Bits, "{}", leaf.name);
    assert!(dictionary.is_none_or(|at| at < chunk.data_page_offset()), "{}", leaf.name);
    let data = match leaf.value {
        leaf::ValueEncoding::Byte(_) => Encoding::RLE_DICTIONARY,
        _ => Encoding::PLAIN,
    };
    let pages: Vec<(PageType, Encoding, i32)> = chunk
        .page_encoding_stats()
        .unwrap()
        .iter()
        .map(|stats| (stats.page_type, stats.encoding, stats.count))
        .collect();
    let first = dictionary.map(|_| (PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1));
    assert_eq!(pages, first.into_iter().chain([(PageType::DATA_PAGE, data, 1)]).collect::<Vec<_>>());
}

#[test]
fn dictionary_pages_have_a_header_and_their_entries() {
    let sizes = ["float64", "string", "bool", "int8"].map(|dtype| {
        let format =
            Parquet::of(&options(vec![column(0, dtype, 1, true)], 8, "none", Access::Extent)).unwrap();
        let layout = Layout::of(&format, &rows(8)).unwrap();
        layout.chunks(8).next().unwrap().1.dictionary
    });
    assert_eq!(sizes, [13 + 8, 13 + 4, 0, 16 + 1024]);
}

#[test]
fn a_file_without_columns_holds_the_samples_in_their_order() {
    for (element, items) in [(Element::Uint8, 700), (Element::Float32, 3), (Element::Int64, 1)] {
        let dims = [items];
        let shape = FileShape { dims: &dims, element, samples: 10 };
        let format = Parquet::of(&options(Vec::new(), 4, "none", Access::Extent)).unwrap();
        let bytes = encoded(&format, &shape);
        let facts = inspected(&bytes).unwrap();
        assert_eq!(
            (facts.samples, facts.dims, facts.element.as_deref()),
            (Some(10), vec![items], Some(element.name()))
        );
        let mut wanted = vec![0; shape.payload_bytes() as usize];
        crate::array::fill_samples(element, &Content::new(7), 3, 0, &mut wanted);
        for (from, to) in [(0, 10), (3, 9), (7, 8)] {
            let found: Vec<u8> = ours(&format, &shape, from..to)
                .iter()
                .flat_map(|read| &bytes[read.offset as usize..read.end() as usize])
                .copied()
                .collect();
            let sample = shape.sample_bytes();
            assert!(
                found == wanted[(from * sample) as usize..(to * sample) as usize],
                "{element:?} {from}..{to}"
            );
        }
    }
}

#[test]
fn rows_longer_than_a_page_have_one_each_and_shorter_ones_share() {
    let columns = vec![column(0, "float32", 300_000, true), column(1, "float32", 100_000, true)];
    let format = Parquet::of(&options(columns, 10, "none", Access::Extent)).unwrap();
    let reads = ours(&format, &rows(7), 0..7);
    let long: Vec<u64> = reads.iter().map(|read| read.len).collect();
    assert_eq!(long, [[1_200_000; 7].as_slice(), &[800_000; 3], &[400_000]].concat());
}

#[test]
fn no_block_of_512_bytes_appears_twice() {
    let columns = DTYPES.iter().enumerate().map(|(index, dtype)| column(index, dtype, 700, true)).collect();
    let format = Parquet::of(&options(columns, 9, "none", Access::Extent)).unwrap();
    let bytes = encoded(&format, &rows(40));
    let mut blocks = Vec::new();
    for read in ours(&format, &rows(40), 0..40) {
        blocks.extend(bytes[read.offset as usize..read.end() as usize].chunks_exact(512));
    }
    let all = blocks.len();
    blocks.sort_unstable();
    blocks.dedup();
    assert!(all > 500 && blocks.len() == all, "{} of {all}", blocks.len());
}

#[test]
fn unselected_columns_are_not_read() {
    let sizes = [9000_u64, 20_000, 9000, 100, 9000];
    let columns =
        sizes.iter().enumerate().map(|(index, size)| column(index, "binary", *size, index % 2 == 0));
    let format = Parquet::of(&options(columns.collect(), 2, "none", Access::Framework)).unwrap();
    let shape = rows(6);
    let bytes = encoded(&format, &shape);
    let reads = ours(&format, &shape, 0..3);
    let data: Vec<u64> = reads[1..].iter().map(|read| read.len / 1000).collect();
    // Two row groups; the long column is a gap, the short one is read with its neighbours.
    assert_eq!(reads[0], Extent { offset: bytes.len() as u64 - 65536, len: 65536 });
    assert_eq!(data, [18, 36, 18, 36]);
    assert_eq!(foreign(&format, &bytes, 0..3).unwrap(), reads[1..]);
}

#[test]
fn impossible_settings_are_refused() {
    let refusal = |columns, group_rows| {
        Parquet::of(&options(columns, group_rows, "none", Access::Extent)).unwrap_err().to_string()
    };
    assert!(refusal(Vec::new(), 0).contains("dataset.parquet.row_group_size"));
    assert!(refusal(vec![column(0, "int8", 0, true)], 1).contains("size 0"));
    assert!(refusal(vec![column(0, "int8", 1, false)], 1).contains("read: true"));
    assert!(refusal(vec![column(0, "int8", 1, true), column(0, "bool", 1, true)], 1).contains("rename"));

    let refusal = |columns, group_rows, shape| {
        let format = Parquet::of(&options(columns, group_rows, "none", Access::Extent)).unwrap();
        conformance::check(&format, &shape, 1, 1).unwrap();
        format.size(&shape).unwrap_err().to_string()
    };
    assert!(refusal(vec![column(0, "int8", 1, true)], 8, rows(0)).contains("at least 1"));
    assert!(
        refusal(vec![column(0, "binary", 1 << 31, true)], 8, rows(1)).contains("'column_0' does not fit")
    );
    assert!(refusal(vec![column(0, "bool", u64::MAX, true)], 8, rows(2)).contains("does not fit"));
    assert!(refusal(Vec::new(), 1, rows(3_000_000)).contains("raise dataset.parquet.row_group_size"));
    let many = FileShape { dims: &[1 << 20], element: Element::Float64, samples: 1 << 41 };
    assert!(refusal(Vec::new(), 1 << 40, many).contains("too large"));
    assert!(refusal(vec![column(0, "bool", 1, true)], u64::MAX, rows(u64::MAX)).contains("too large"));
}

#[test]
fn a_compressed_file_is_read_by_its_own_metadata() {
    let format = Parquet::of(&options(Vec::new(), 4, "zstd", Access::Framework)).unwrap();
    let error = format.reads(SourceFile::Ours(&rows(9)), 0..1, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("footer"), "{error}");
    let bytes = encoded(&format, &rows(9));
    assert_eq!(foreign(&format, &bytes, 4..9).unwrap().len(), 2);
}

#[test]
fn decompressed_pages_are_those_of_a_file_without_compression() {
    // Some columns that are not read are in gaps that pyarrow reads over: different ones with each codec.
    let columns: Vec<Column> = assorted().into_iter().map(|column| Column { read: true, ..column }).collect();
    let pages = |word: &str, access| {
        let format = Parquet::of(&options(columns.clone(), 8, word, access)).unwrap();
        let bytes = encoded(&format, &rows(21));
        let reads = foreign(&format, &bytes, 0..21).unwrap();
        let read: Vec<&[u8]> =
            reads.iter().map(|read| &bytes[read.offset as usize..read.end() as usize]).collect();
        (format, read.concat())
    };
    let (plain, bytes) = pages("none", Access::Extent);
    assert!(!plain.decodes());
    let mut wanted = Vec::new();
    pages::decode(Codec::None, &bytes, &mut wanted).unwrap();
    for word in Codec::WORDS {
        for access in [Access::Framework, Access::Extent] {
            let (format, bytes) = pages(word, access);
            let mut out = vec![1; 7];
            assert!(format.decodes());
            format.decode(&bytes, &mut out).unwrap();
            assert!(out == wanted, "{word} {access:?}");
        }
    }
}

#[test]
fn damage_is_reported_with_its_offset() {
    let format =
        Parquet::of(&options(vec![column(0, "int32", 1, true)], 4, "none", Access::Framework)).unwrap();
    let good = encoded(&format, &rows(9));
    let end = good.len();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        inspected(&bytes).unwrap_err().to_string()
    };
    assert!(with(end - 4, b"PARE").contains("encrypted"));
    assert!(with(end - 4, b"ABCD").contains(&format!("'ABCD' instead of 'PAR1' (at byte {})", end - 4)));
    assert!(with(end - 8, &[0xFF; 4]).contains(&format!("space for {} (at byte {}", end - 12, end - 8)));
    assert!(with(end - 8 - trailer(&good), &[0]).contains("without a schema"));
    assert!(inspected(&good[..11]).unwrap_err().to_string().contains("shortest"));
    let other =
        Parquet::of(&options(vec![column(5, "int32", 1, true)], 4, "none", Access::Framework)).unwrap();
    let error = foreign(&other, &good, 0..1).unwrap_err().to_string();
    assert!(error.contains("no column 'column_5'") && error.contains("it has column_0"), "{error}");
}

#[test]
fn truncated_and_changed_files_do_not_panic() {
    let columns = assorted().into_iter().step_by(7).collect();
    let format = Parquet::of(&options(columns, 8, "none", Access::Framework)).unwrap();
    let good = encoded(&format, &rows(21));
    for len in (0..good.len()).step_by(97) {
        assert!(inspected(&good[..len]).is_err(), "{len}");
    }
    let footer = good.len() - 8 - trailer(&good);
    for at in footer..good.len() {
        for flip in [0x01, 0x10, 0x80, 0xFF] {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            let _ = inspected(&bytes);
            if let Ok(reads) = foreign(&format, &bytes, 3..12) {
                assert!(reads.iter().all(|read| read.len > 0 && read.end() <= bytes.len() as u64));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn conforms_without_columns(
        dims in prop::collection::vec(0_u64..24, 0..4), element in 0..Element::ALL.len(), samples in 0_u64..12,
        group_rows in 1_u64..6, access in 0..2_usize, codec in 0..5_usize, seed: u64, file: u64,
    ) {
        let word = ["none", "snappy", "zstd", "lz4", "gzip"][codec];
        let access = [Access::Framework, Access::Extent][access];
        let format = Parquet::of(&options(Vec::new(), group_rows, word, access)).unwrap();
        let shape = FileShape { dims: &dims, element: Element::ALL[element], samples };
        conformance::check(&format, &shape, seed, file)?;
    }

    #[test]
    fn conforms_with_columns(
        kinds in prop::collection::vec((0..DTYPES.len(), 1_u64..80), 1..6), samples in 1_u64..40,
        group_rows in 1_u64..50, access in 0..2_usize, codec in 0..5_usize, seed: u64,
    ) {
        let word = ["none", "snappy", "zstd", "lz4", "gzip"][codec];
        let mut columns: Vec<Column> =
            kinds.iter().enumerate().map(|(index, (kind, size))| column(index, DTYPES[*kind], *size, true)).collect();
        // Enough content that another seed cannot produce the same.
        columns.push(column(99, "uint64", 8, true));
        let access = [Access::Framework, Access::Extent][access];
        let format = Parquet::of(&options(columns, group_rows, word, access)).unwrap();
        conformance::check(&format, &rows(samples), seed, 1)?;
    }

    #[test]
    fn the_footer_agrees_with_the_layout(
        kinds in prop::collection::vec((0..DTYPES.len(), 1_u64..3000, any::<bool>()), 1..8), samples in 1_u64..60,
        group_rows in 1_u64..70, range in (0_u64..60, 1_u64..60),
    ) {
        let mut columns: Vec<Column> =
            kinds.iter().enumerate().map(|(i, (kind, size, read))| column(i, DTYPES[*kind], *size, *read)).collect();
        columns[0].read = true;
        let start = range.0.min(samples - 1);
        let wanted = start..samples.min(start + range.1);
        let shape = rows(samples);
        let framework = Parquet::of(&options(columns.clone(), group_rows, "none", Access::Framework)).unwrap();
        let bytes = encoded(&framework, &shape);
        let metadata_reads = match start {
            0 => 1 + usize::from(trailer(&bytes) + 8 > 65536),
            _ => 0,
        };
        let expected = ours(&framework, &shape, wanted.clone());
        prop_assert_eq!(&foreign(&framework, &bytes, wanted.clone()).unwrap(), &expected[metadata_reads..]);
        // The values alone lie within the columns.
        let extent = Parquet::of(&options(columns, group_rows, "none", Access::Extent)).unwrap();
        let chunks = foreign(&extent, &bytes, wanted.clone()).unwrap();
        for read in ours(&extent, &shape, wanted) {
            let inside = |chunk: &&Extent| chunk.offset <= read.offset && read.end() <= chunk.end();
            prop_assert!(chunks.iter().find(inside).is_some(), "{:?} not in {:?}", read, chunks);
        }
    }
}
