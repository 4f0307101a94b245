//! Tests of csv: sizes, positions, values, and files that are not csv.

use super::*;
use crate::fixture::{assert_refused, encoded, foreign, inspected, shape};
use crate::{ReadPieces, conformance};
use model::shape::Element;
use proptest::prelude::*;

const FRAMEWORK: Csv = Csv { access: Access::Framework, level: None };
const EXTENT: Csv = Csv { access: Access::Extent, level: None };
const GZIPPED: Csv = Csv { access: Access::Framework, level: Some(4) };

#[test]
fn values_are_as_wide_as_random_bytes_are_on_average_and_cover_them_all() {
    let text = encoded(&FRAMEWORK, &shape(&[1000, 1000], Element::Uint8, 1));
    let mut counts = [0_u32; 256];
    let text = str::from_utf8(&text).unwrap().strip_suffix('\n').unwrap();
    text.split(',').for_each(|value| counts[value.parse::<usize>().unwrap()] += 1);
    let expected = 1_000_000.0 / 256.0;
    let chi: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    // At most 255 degrees of freedom: mean 255, standard deviation 22.6.
    assert!(chi < 380.0, "chi-square {chi}");
    let mean = (text.len() + 1) as f64 / 1_000_000.0;
    assert!((mean - 3.5703).abs() < 0.0001, "{mean}");
}

#[test]
fn values_of_every_type_fit_it_and_have_one_width() {
    let whole = |least: i128, most: i128| (least as f64, most as f64);
    let cases = [
        (Element::Bool, 1, whole(0, 1)),
        (Element::Int8, 2, whole(10, 99)),
        (Element::Int16, 5, whole(10_000, 32_767)),
        (Element::Uint16, 5, whole(10_000, 65_535)),
        (Element::Int32, 10, whole(1_000_000_000, i128::from(i32::MAX))),
        (Element::Uint32, 10, whole(1_000_000_000, i128::from(u32::MAX))),
        (Element::Int64, 19, whole(10_i128.pow(18), i128::from(i64::MAX))),
        (Element::Uint64, 20, whole(10_i128.pow(19), i128::from(u64::MAX))),
        (Element::Float16, 6, (0.0, 0.9999)),
        (Element::Float32, 9, (0.0, 0.999_999_9)),
        (Element::Float64, 18, (0.0, 1.0)),
    ];
    for (element, width, (least, most)) in cases {
        let text = encoded(&FRAMEWORK, &shape(&[700], element, 3));
        let text = str::from_utf8(&text).unwrap();
        assert_eq!(text.lines().count(), 3);
        for value in text.lines().flat_map(|line| line.split(',')) {
            assert_eq!(value.len(), width, "{element:?}: {value}");
            assert!((least..=most).contains(&value.parse().unwrap()), "{element:?}: {value}");
        }
        assert!(text.lines().all(|line| line.split(',').count() == 700));
    }
}

#[test]
fn no_two_lines_are_equal() {
    let text = encoded(&FRAMEWORK, &shape(&[512], Element::Uint8, 200));
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 201);
}

#[test]
fn samples_are_lines_in_existing_files() {
    for (dims, element, samples) in [
        (&[64_u64, 64] as &[u64], Element::Uint8, 5),
        (&[1], Element::Uint8, 600),
        (&[33], Element::Float32, 4),
    ] {
        let shape = shape(dims, element, samples);
        let text = encoded(&EXTENT, &shape);
        for wanted in [0..1, samples - 1..samples, 1..3, 0..samples] {
            let mut known = Vec::new();
            EXTENT.reads(SourceFile::Ours(&shape), wanted.clone(), &mut known).unwrap();
            assert_eq!(foreign(&EXTENT, &text, samples, wanted.clone()).unwrap(), known);
            let part = &text[known[0].offset as usize..known[0].end() as usize];
            assert_eq!(part.iter().filter(|byte| **byte == b'\n').count() as u64, wanted.end - wanted.start);
            assert_eq!(part.last(), Some(&b'\n'));
        }
    }
    let extents = foreign(&EXTENT, b"\r\n1,2\r\n\n3,4\n5,6", 3, 0..3).unwrap();
    let wanted = [Extent { offset: 2, len: 5 }, Extent { offset: 8, len: 7 }];
    assert_eq!(extents, wanted);
    let error = foreign(&EXTENT, b"1,2\n3,4\n\n", 3, 2..3).unwrap_err();
    assert_eq!(
        error,
        Obstacle::Shape(FormatError::NoSuchSample { format: NAME, index: 2, samples: 2 }),
        "{error}"
    );
}

#[test]
fn a_header_is_no_sample() {
    let text = b"a,b\n1,x\n\n3,y\n";
    let found = foreign(&EXTENT, text, 2, 0..2).unwrap();
    assert_eq!(found, [Extent { offset: 4, len: 4 }, Extent { offset: 9, len: 4 }]);
    assert_eq!(foreign(&EXTENT, text, 2, 1..2).unwrap(), found[1..]);
    let error = foreign(&EXTENT, text, 3, 2..3).unwrap_err();
    assert_eq!(error, FormatError::NoSuchSample { format: NAME, index: 2, samples: 2 }.into());
    let mut packed = Vec::new();
    let mut encoder = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::new(1));
    std::io::Write::write_all(&mut encoder, text).unwrap();
    encoder.finish().unwrap();
    for (format, bytes) in [(EXTENT, &text[..]), (GZIPPED, &packed)] {
        let found = inspected(&format, bytes).unwrap();
        assert_eq!((found.samples, &found.dims[..]), (Some(2), &[2][..]));
        let columns: Vec<(&str, &str)> =
            found.arrays.listed.iter().map(|column| (&*column.name, &*column.dtype)).collect();
        assert_eq!(columns, [("a", "number"), ("b", "text")]);
    }
}

#[test]
fn framework_reads_are_sequential() {
    let square = shape(&[600, 600], Element::Uint8, 2);
    let len = FRAMEWORK.file_bytes(&square).unwrap();
    let mut reads = Vec::new();
    FRAMEWORK.reads(SourceFile::Ours(&square), 1..2, &mut reads).unwrap();
    assert_eq!((reads[0].len, reads[1].offset, reads.len()), (262_144, 262_144, 10));
    assert_eq!(reads.iter().map(|read| read.len).sum::<u64>(), len);
    let gzipped = vec![0; 10_000];
    let reads = foreign(&GZIPPED, &gzipped, 2, 0..1).unwrap();
    assert_eq!(reads.iter().map(|read| read.len).collect::<Vec<_>>(), [4096, 4096, 1808]);
    let whole = Csv { access: Access::Extent, ..GZIPPED };
    assert_eq!(foreign(&whole, &gzipped, 2, 1..2).unwrap(), [Extent { offset: 0, len: 10_000 }]);
}

#[test]
fn the_unit_of_a_shuffle_depends_on_access() {
    let many = shape(&[], Element::Uint8, 2);
    assert_eq!((FRAMEWORK.unit(&many), EXTENT.unit(&many)), (Unit::File, Unit::Sample));
    assert_eq!(Csv { access: Access::Extent, ..GZIPPED }.unit(&many), Unit::File);
    assert_eq!((FRAMEWORK.suffix(), GZIPPED.suffix()), ("csv", "csv.gz"));
}

#[test]
fn lines_and_values_are_counted_gzipped_or_not() {
    let shape = shape(&[30, 40], Element::Uint8, 7);
    for format in [EXTENT, GZIPPED] {
        let found = inspected(&format, &encoded(&format, &shape)).unwrap();
        assert_eq!((found.samples, &found.dims[..]), (Some(7), &[1200][..]));
    }
    let found = inspected(&EXTENT, b"\n1.5,-2e9, nan \r\n\r\n7,8,9").unwrap();
    assert_eq!((found.samples, &found.dims[..]), (Some(2), &[3][..]));
    // A line across several pieces.
    let long = "1,".repeat(3 << 20) + "1\n2\n";
    let found = inspected(&EXTENT, long.as_bytes()).unwrap();
    assert_eq!((found.samples, &found.dims[..]), (Some(2), &[(3 << 20) + 1][..]));
}

#[test]
fn files_that_are_not_csv_are_refused() {
    let long = [b"1,2,".to_vec(), vec![b'7'; 100]].concat();
    let cases: [(&Csv, &[u8], u64, &str); 9] = [
        (&EXTENT, b"", 0, "no lines"),
        (&EXTENT, b"\n\r\n", 0, "no lines"),
        (&EXTENT, b"label,x\ny,z\n", 0, "value 1 of the first line is not a number: \"label\""),
        (&EXTENT, b"1,two\n", 2, "value 2"),
        (&EXTENT, b"1,,2\n", 2, "value 2"),
        (&EXTENT, b"\x00\x01\xFF", 0, "value 1"),
        (&EXTENT, &long, 4, "value 3"),
        (&GZIPPED, b"1,2\n", 0, "no gzip signature"),
        (&GZIPPED, b"\x1F\x8B\x08\x00\x00\x00\x00\x00\x00\xFF\x07\x07", 12, "gzip stream is damaged"),
    ];
    for (format, bytes, offset, words) in cases {
        let error = inspected(format, bytes).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(matches!(&error, Obstacle::Damage(damage) if damage.offset == offset), "{error}");
    }
    let gzipped = encoded(&GZIPPED, &shape(&[30], Element::Uint8, 7));
    for len in 0..gzipped.len() {
        assert!(inspected(&GZIPPED, &gzipped[..len]).is_err(), "{len}");
    }
}

#[test]
fn files_too_long_to_search_are_refused_with_advice() {
    let seen = ReadPieces::default();
    let look = Look::new(NAME, (64 << 20) + 1, &seen);
    let file = SourceFile::Foreign { look: &look, samples: 2 };
    let error = EXTENT.reads(file, 0..1, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("reader.access to framework"), "{error}");
    assert!(EXTENT.inspect(&look).unwrap_err().to_string().contains("num_samples_per_file"));
    FRAMEWORK.reads(file, 0..1, &mut Vec::new()).unwrap();
}

#[test]
fn a_gzipped_file_is_decoded_to_its_text() {
    let shape = shape(&[50, 20], Element::Float32, 4);
    let (bytes, mut out) = (encoded(&GZIPPED, &shape), Vec::new());
    assert!(GZIPPED.decodes() && !FRAMEWORK.decodes());
    GZIPPED.decode(&bytes, &mut out).unwrap();
    assert!(out == encoded(&FRAMEWORK, &shape));
    let error = GZIPPED.decode(&out, &mut Vec::new()).unwrap_err();
    assert!(matches!(&error, Obstacle::Damage(damage) if damage.offset < 10), "{error}");
}

#[test]
fn impossible_shapes_are_refused() {
    let cases: &[(&[u64], Element, u64, &str)] = &[
        (&[4, 0], Element::Uint8, 1, "at least 1"),
        (&[4], Element::Uint8, 0, "at least 1"),
        (&[1 << 62], Element::Uint8, 1, "too large"),
        (&[1 << 61], Element::Bool, 3, "too large"),
    ];
    for format in [FRAMEWORK, GZIPPED] {
        assert_refused(|shape| format.size(shape), cases);
    }
}

proptest! {
    #[test]
    fn conforms(
        dims in prop::collection::vec(0_u64..24, 0..4), element in 0..Element::ALL.len(),
        samples in 0_u64..6, seed: u64, file: u64, level in 0_u32..10,
    ) {
        let shape = shape(&dims, Element::ALL[element], samples);
        let access = if seed % 2 == 0 { Access::Framework } else { Access::Extent };
        for format in [FRAMEWORK, EXTENT, Csv { access, level: Some(level) }] {
            conformance::check(&format, &shape, seed, file)?;
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300), text in "[0-9,\n\r.e-]{0,60}",
    ) {
        for bytes in [&bytes[..], text.as_bytes()] {
            let _ = inspected(&EXTENT, bytes);
            let _ = foreign(&EXTENT, bytes, 3, 1..3);
            let _ = inspected(&EXTENT, &[&[0x1F, 0x8B], bytes].concat());
        }
    }
}
