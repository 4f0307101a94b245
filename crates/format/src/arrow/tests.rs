//! Tests of Arrow files: bytes, positions, damage.

use super::*;
use crate::conformance;
use crate::fixture::{encoded, fetch, looked_up, ours, shape};
use model::spec::Column;
use proptest::prelude::*;

/// `name:type:size`, followed by a `!` for a column that is not read.
fn columns(words: &[&str]) -> Vec<Column> {
    let column = |word: &&str| {
        let mut parts = word.trim_end_matches('!').split(':');
        let mut next = || parts.next().unwrap().to_owned();
        let (name, dtype, size) = (next(), next(), next().parse().unwrap());
        Column { name, dtype, size, read: !word.ends_with('!') }
    };
    words.iter().map(column).collect()
}

fn with(access: Access, group_rows: u64, words: &[&str]) -> Arrow {
    let columns = crate::ColumnOptions { columns: columns(words), group_rows };
    Arrow::new(&FormatOptions { access, columns, ..FormatOptions::default() }).unwrap()
}

fn inspected(format: &Arrow, bytes: &[u8]) -> Result<FileFacts, Obstacle> {
    fetch(format, bytes, |look| format.inspect(look)).0
}

const MIXED: [&str; 6] =
    ["a:uint8:100", "b:float32:1!", "c:string:1", "d:bool:3", "e:binary:7", "f:nonesuch:2!"];

#[test]
fn a_file_begins_and_ends_as_specified() {
    let format = with(Access::Framework, 100, &[]);
    let shape = shape(&[8, 9], Element::Uint8, 250);
    let bytes = encoded(&format, &shape);
    // Lengths of a file that pyarrow reads: schema, three batches of 192 bytes of metadata, footer.
    assert_eq!(bytes.len(), 19_162);
    assert_eq!(bytes[..8], *START);
    assert_eq!(bytes[bytes.len() - 10..], *b"\x40\x01\0\0ARROW1");
    let mut samples = vec![0; 7200];
    Content::new(1).fill(3, 0, &mut samples);
    assert_eq!(bytes[248 + 192..][..7200], samples);
}

#[test]
fn framework_reads_are_those_of_pyarrow() {
    let shape = shape(&[8, 9], Element::Uint8, 250);
    let pairs = |reads: &[Extent]| reads.iter().map(|read| (read.offset, read.len)).collect::<Vec<_>>();
    let whole = with(Access::Framework, 100, &[]);
    let wanted = [(19_152, 10), (18_832, 320), (7_640, 7_392)];
    assert_eq!(pairs(&ours(&whole, &shape, 100..200)), wanted);
    // Recorded with strace on the same columns and file, with `included_fields`.
    let words = ["a:uint8:100", "b:float32:1!", "c:string:1", "d:bool:1", "e:binary:7", "f:float64:1!"];
    let some = with(Access::Framework, 100, &words);
    let wanted = [
        (36_416, 10),
        (35_760, 656),
        (14_560, 448),
        (15_008, 10_000),
        (25_408, 404),
        (25_816, 1_213),
        (27_032, 700),
    ];
    assert_eq!(pairs(&ours(&some, &shape, 100..200)), wanted);
    let (reads, looks) = looked_up(&some, &encoded(&some, &shape), 250, 100..200);
    assert_eq!(pairs(&[looks, reads.unwrap()].concat()), wanted);
}

#[test]
fn rows_of_generated_files_are_found_by_metadata() {
    for words in [&[][..], &MIXED] {
        let format = with(Access::Extent, 16, words);
        let shape = shape(&[3, 5], Element::Bool, 50);
        let bytes = encoded(&format, &shape);
        // A reader that expects other record batches finds them as well.
        let other = with(Access::Extent, 7, words);
        for wanted in [0..1, 5..9, 15..17, 49..50, 0..50] {
            let reads = ours(&format, &shape, wanted.clone());
            assert_eq!(looked_up(&format, &bytes, 50, wanted.clone()).0.unwrap(), reads);
            assert_eq!(looked_up(&other, &bytes, 50, wanted).0.unwrap(), reads);
        }
    }
}

#[test]
fn a_file_with_too_few_samples_is_an_error() {
    let format = with(Access::Extent, 16, &[]);
    let bytes = encoded(&format, &shape(&[4], Element::Int16, 50));
    let (answer, _) = looked_up(&format, &bytes, 99, 48..52);
    assert_eq!(answer, Err(FormatError::NoSuchSample { format: NAME, index: 51, samples: 50 }.into()));
    let (answer, _) = looked_up(&format, &bytes, 99, 70..71);
    assert!(matches!(answer, Err(Obstacle::Shape(FormatError::NoSuchSample { .. }))), "{answer:?}");
}

#[test]
fn inspect_describes_a_file() {
    let format = with(Access::Framework, 16, &[]);
    let facts = inspected(&format, &encoded(&format, &shape(&[3, 5], Element::Float16, 50))).unwrap();
    assert_eq!((facts.samples, facts.dims), (Some(50), vec![15]));
    assert_eq!(facts.element.as_deref(), Some("float16"));
    assert_eq!(facts.notes, ["4 record batches"]);
    assert_eq!(facts.arrays, crate::ArrayList { listed: vec![array("data", &[50, 15], "float16")], more: 0 });
    let format = with(Access::Framework, 16, &MIXED);
    let facts = inspected(&format, &encoded(&format, &shape(&[1], Element::Uint8, 3))).unwrap();
    assert_eq!((facts.samples, facts.dims, facts.element), (Some(3), vec![], None));
    let first =
        [array("a", &[3, 100], "uint8"), array("b", &[3], "float32"), array("c", &[3], "text or binary")];
    assert_eq!((&facts.arrays.listed[..3], facts.arrays.listed.len()), (&first[..], 6));
}

fn array(name: &str, shape: &[u64], dtype: &str) -> crate::ArrayFacts {
    crate::ArrayFacts { name: name.to_owned(), shape: Some(shape.to_vec()), dtype: dtype.to_owned() }
}

#[test]
fn very_many_record_batches_are_counted_by_the_first_and_last() {
    let format = with(Access::Framework, 1, &[]);
    let bytes = encoded(&format, &shape(&[1], Element::Uint8, 2000));
    let (facts, looks) = fetch(&format, &bytes, |look| format.inspect(look));
    assert_eq!(facts.unwrap().samples, Some(2000));
    assert_eq!(looks.len(), 5);
}

#[test]
fn damage_is_reported_with_its_offset() {
    let format = with(Access::Framework, 2, &[]);
    let whole = encoded(&format, &shape(&[4], Element::Uint8, 4));
    let len = whole.len();
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    let places = ours(&format, &shape(&[4], Element::Uint8, 4), 0..1);
    let (footer, first) = (places[1].offset as usize, places[2].offset as usize);
    for (bytes, offset, words) in [
        (whole[..17].to_vec(), 0, "17 bytes are too few"),
        (whole[..len - 1].to_vec(), len - 7, "does not end in ARROW1"),
        (changed(0, b"B"), 0, "does not start with ARROW1"),
        (changed(len - 10, &[0xFF; 4]), len - 10, "does not fit"),
        (changed(len - 10 - 24, &u64::MAX.to_le_bytes()), footer, "the footer lists a message"),
        (changed(first + 4, &9999_u32.to_le_bytes()), first, "a message of 9999 bytes does not fit"),
        (changed(first + 8, &9999_u32.to_le_bytes()), first + 8 + 9999, "leads out of the metadata"),
    ] {
        let error = inspected(&format, &bytes).unwrap_err();
        let Obstacle::Damage(damage) = &error else { panic!("{error}") };
        assert!(damage.what.contains(words), "{error}");
        assert_eq!(damage.offset, offset as u64, "{error}");
    }
    let missing = with(Access::Framework, 2, &["x:uint8:1"]);
    let error = looked_up(&missing, &whole, 4, 0..1).0.unwrap_err();
    assert!(error.to_string().contains("it has no column 'x'"), "{error}");
}

#[test]
fn impossible_shapes_and_settings_are_refused() {
    let whole = with(Access::Framework, 1024, &[]);
    let small = with(Access::Framework, 1, &[]);
    let texts = with(Access::Framework, 1 << 40, &["a:string:1"]);
    let wide = with(Access::Framework, 1 << 40, &["a:float64:2000000000"]);
    let cases: [(&Arrow, &[u64], u64, &str); 7] = [
        (&whole, &[4, 0], 1, "at least 1"),
        (&whole, &[4], 0, "at least 1"),
        (&whole, &[1 << 31], 1, "Arrow counts to 2147483647"),
        (&whole, &[1 << 30], 1 << 40, "too large"),
        (&small, &[1], 1 << 30, "raise dataset.parquet.row_group_size"),
        (&texts, &[1], 1 << 30, "lower dataset.parquet.row_group_size"),
        (&wide, &[1], 1 << 40, "too large"),
    ];
    for (format, dims, samples, words) in cases {
        let error = format.size(&shape(dims, Element::Uint8, samples)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    for (group_rows, words, wanted) in [
        (0, &[][..], "dataset.parquet.row_group_size is 0"),
        (1, &["a:uint8:1!"], "no column of parquet.columns is read"),
        (1, &["a:uint8:0"], "column 'a' has size 0"),
        (1, &["a:uint8:3000000000"], "lower its size"),
    ] {
        let columns = crate::ColumnOptions { columns: columns(words), group_rows };
        let error = Arrow::new(&FormatOptions { columns, ..FormatOptions::default() }).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn sizes_depend_on_columns_and_not_on_dims() {
    let format = with(Access::Framework, 16, &MIXED);
    let size = |dims: &[u64], element| format.size(&shape(dims, element, 40)).unwrap();
    assert_eq!(size(&[1000, 1000], Element::Float64), size(&[1], Element::Bool));
}

fn access(extent: bool) -> Access {
    if extent { Access::Extent } else { Access::Framework }
}

proptest! {
    #[test]
    fn conforms(
        dims in prop::collection::vec(0_u64..24, 0..4), element in 0..Element::ALL.len(),
        samples in 0_u64..6, seed: u64, file: u64, extent: bool, group in 1_u64..8,
    ) {
        let format = with(access(extent), group, &[]);
        // A bool is one bit here, so a few of them may be equal by chance.
        let element = if element == 0 && dims.iter().product::<u64>() < 512 { 1 } else { element };
        conformance::check(&format, &shape(&dims, Element::ALL[element], samples), seed, file)?;
    }

    #[test]
    fn conforms_with_columns(
        samples in 0_u64..20, seed: u64, file: u64, extent: bool, group in 1_u64..30,
        kinds in prop::collection::vec((0..Element::ALL.len() + 3, 1_u64..9, any::<bool>()), 0..5),
    ) {
        let mut words = vec!["first:float64:8".to_owned()];
        words.extend(kinds.iter().enumerate().map(|(index, (kind, size, read))| {
            let name = Element::ALL.get(*kind).map_or(["string", "binary", "list"][*kind % 3], |kind| kind.name());
            format!("c{index}:{name}:{size}{}", if *read { "" } else { "!" })
        }));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let format = with(access(extent), group, &words);
        let shape = shape(&[100], Element::Uint8, samples);
        conformance::check(&format, &shape, seed, file)?;
        if samples > 0 && extent {
            let reads = ours(&format, &shape, samples / 2..samples);
            let bytes = encoded(&format, &shape);
            prop_assert_eq!(looked_up(&format, &bytes, samples, samples / 2..samples).0.unwrap(), reads);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        cut in prop::option::of(0_usize..3000), flips in prop::collection::vec((any::<u16>(), any::<u8>()), 0..4),
        tail: bool, extent: bool, wanted in 0_u64..9,
    ) {
        let format = with(access(extent), 4, &MIXED);
        let mut bytes = encoded(&format, &shape(&[1], Element::Uint8, 9));
        let len = bytes.len();
        for (at, to) in flips {
            // Metadata is also at the end; changes in the data would not be detected.
            let at = if tail { len - 1 - usize::from(at) % 900 } else { usize::from(at) % len };
            bytes[at] = to;
        }
        bytes.truncate(len - cut.unwrap_or(0).min(len));
        let _ = inspected(&format, &bytes);
        let _ = looked_up(&format, &bytes, 9, wanted..9);
    }
}
