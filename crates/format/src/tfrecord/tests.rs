//! Tests of the record format: bytes, positions, damage.

use super::*;
use crate::conformance;
use crate::fixture::{self, fetch, shape};
use model::shape::Element;
use proptest::prelude::*;

fn with(access: Access, transfer_bytes: Option<u64>) -> TfRecord {
    TfRecord::new(&FormatOptions { access, transfer_bytes, ..FormatOptions::default() }).unwrap()
}

fn encoded(shape: &FileShape<'_>) -> Vec<u8> {
    fixture::encoded(&with(Access::Framework, None), shape)
}

/// Records with these payload lengths, framed like TensorFlow's.
fn records(lens: &[usize]) -> Vec<u8> {
    lens.iter()
        .flat_map(|&len| {
            let payload = vec![len as u8; len];
            let sum = masked(crc32c::crc32c(&payload)).to_le_bytes();
            [head(len as u64).to_vec(), payload, sum.to_vec()].concat()
        })
        .collect()
}

fn found(
    format: &TfRecord,
    bytes: &[u8],
    held: u64,
    wanted: Range<u64>,
) -> (Result<Vec<Extent>, Obstacle>, usize) {
    let (answer, looks) = fixture::looked_up(format, bytes, held, wanted);
    (answer, looks.len())
}

#[test]
fn a_record_adds_few_bytes_to_its_sample() {
    for (dims, samples, bytes) in [
        (&[50_u64, 50] as &[u64], 1, 2_500 + 38 + 16),
        (&[338, 338], 1251, 142_994_304),
        (&[1_681, 1_681], 1, 2_825_761 + 50 + 16),
    ] {
        let size = with(Access::Framework, None).size(&shape(dims, Element::Uint8, samples));
        assert_eq!(size.unwrap(), EncodedSize::Exact(bytes));
    }
}

#[test]
fn a_file_has_the_bytes_that_tensorflow_writes() {
    let bytes = encoded(&shape(&[64, 64], Element::Uint8, 2));
    assert_eq!(bytes.len(), 2 * 4150);
    // Length and its checksum, and the Example up to the sample, of a file that TensorFlow wrote.
    let head = [
        &b"\x26\x10\0\0\0\0\0\0\x04\x47\xB0\x4D\x0A\xA3\x20\x0A\x90\x20\x0A\x05image"[..],
        b"\x12\x86\x20\x0A\x83\x20\x0A\x80\x20",
    ]
    .concat();
    assert_eq!(bytes[..head.len()], head);
    assert_eq!(bytes[4150..][..head.len()], head);
    let mut samples = vec![0; 8192];
    Content::new(1).fill(3, 0, &mut samples);
    assert_eq!(bytes[head.len()..][..4096], samples[..4096]);
    assert_eq!(bytes[4150 + head.len()..][..4096], samples[4096..]);
}

#[test]
fn the_index_is_a_line_for_each_record() {
    let index = |samples| {
        let shape = shape(&[64, 64], Element::Uint8, samples);
        let format = with(Access::Framework, None);
        String::from_utf8(fixture::gathered(|sink| format.encode_side(0, &shape, sink).unwrap())).unwrap()
    };
    assert_eq!(index(2), "0 4150\n4150 4150\n");
    let long = index(3000);
    assert_eq!(long.lines().count(), 3000);
    assert_eq!(long.lines().last(), Some("12445850 4150"));
}

#[test]
fn every_buffer_of_the_stream_is_read_once_whatever_the_visits() {
    let shape = shape(&[100, 100], Element::Uint8, 40);
    for buffer in [None, Some(1000), Some(10_066 * 40), Some(1 << 40)] {
        let format = with(Access::Framework, buffer);
        let whole = format.size(&shape).unwrap().most();
        for batch in [1, 3, 7, 40] {
            let mut reads = Vec::new();
            for start in (0..40).step_by(batch) {
                let samples = start..(start + batch as u64).min(40);
                format.reads(SourceFile::Ours(&shape), samples, &mut reads).unwrap();
            }
            let size = buffer.unwrap_or(BUFFER);
            let wanted: Vec<Extent> = (0..whole.div_ceil(size))
                .map(|at| Extent { offset: at * size, len: size.min(whole - at * size) })
                .collect();
            assert_eq!(reads, wanted);
        }
    }
}

#[test]
fn records_of_one_length_are_found_by_their_heads() {
    let shape = shape(&[300, 100], Element::Uint8, 50);
    let bytes = encoded(&shape);
    let format = with(Access::Extent, None);
    for wanted in [0..1, 20..24, 49..50, 0..50] {
        let mut reads = Vec::new();
        format.reads(SourceFile::Ours(&shape), wanted.clone(), &mut reads).unwrap();
        let (answer, looks) = found(&format, &bytes, 50, wanted);
        assert_eq!(answer.unwrap(), reads);
        assert!(looks <= 3, "{looks}");
    }
}

#[test]
fn records_of_uneven_length_are_found() {
    for (scale, most_looks) in [(1, 1), (400, 70), (3_000, 31)] {
        let lens: Vec<usize> = (0..30).map(|at| (at * 37 % 100 + 1) * scale).chain([scale * 500]).collect();
        let bytes = records(&lens);
        let format = with(Access::Extent, None);
        for wanted in [0..1, 3..5, 29..30, 7..30] {
            let start: usize = lens[..wanted.start as usize].iter().map(|len| len + 16).sum();
            let end: usize = lens[..wanted.end as usize].iter().map(|len| len + 16).sum();
            let (answer, looks) = found(&format, &bytes, 31, wanted);
            assert_eq!(answer.unwrap(), [Extent { offset: start as u64, len: (end - start) as u64 }]);
            assert!(looks <= most_looks, "{looks} looks at scale {scale}");
        }
    }
}

#[test]
fn a_file_with_too_few_samples_is_an_error() {
    let bytes = records(&[5, 6, 7]);
    let (answer, _) = found(&with(Access::Extent, None), &bytes, 9, 2..4);
    assert_eq!(answer, Err(FormatError::NoSuchSample { format: NAME, index: 3, samples: 3 }.into()));
    for access in [Access::Extent, Access::Framework] {
        let (answer, _) = found(&with(access, None), &[], 9, 0..1);
        assert_eq!(answer, Err(FormatError::NoSuchSample { format: NAME, index: 0, samples: 0 }.into()));
    }
}

#[test]
fn a_walk_that_would_take_too_long_is_refused() {
    // Tiny records of two lengths, after a long one so that the file is not small.
    let lens: Vec<usize> = [1 << 20].into_iter().chain((0..10_000).map(|at| 70_000 + at % 2)).collect();
    let mut bytes = vec![0; lens.iter().map(|len| len + 16).sum()];
    let mut offset = 0;
    for len in lens {
        bytes[offset..][..12].copy_from_slice(&head(len as u64));
        offset += len + 16;
    }
    let format = with(Access::Extent, None);
    fixture::foreign(&format, &bytes, 10_001, 4000..4001).unwrap();
    let error = fixture::foreign(&format, &bytes, 10_001, 9000..9001).unwrap_err();
    assert!(error.to_string().contains("set reader.access to framework"), "{error}");
}

#[test]
fn inspect_describes_a_file_by_its_first_record() {
    let format = with(Access::Framework, None);
    let (facts, looks) =
        fetch(&format, &encoded(&shape(&[20], Element::Float32, 3)), |look| format.inspect(look));
    let facts = facts.unwrap();
    assert_eq!((facts.samples, facts.dims, facts.element), (Some(3), vec![80], None));
    assert_eq!(facts.notes, ["the features are those of the first record"]);
    let features: Vec<(&str, &[u64], &str)> = facts
        .arrays
        .listed
        .iter()
        .map(|array| (&*array.name, array.shape.as_deref().unwrap(), &*array.dtype))
        .collect();
    assert_eq!(features, [("image", &[80][..], "bytes"), ("size", &[1], "int64")]);
    assert_eq!(looks.len(), 2, "a head, then everything");
    let (facts, _) = fetch(&format, &records(&[3, 0]), |look| format.inspect(look));
    assert_eq!(facts.unwrap().notes, ["the first record is not a tf.train.Example"]);
}

#[test]
fn a_record_too_long_to_check_is_counted_and_noted() {
    let format = with(Access::Framework, None);
    let bytes = [records(&[9]), records(&[MOST_AT_ONCE as usize]), records(&[9, 9])].concat();
    let (facts, looks) = fetch(&format, &bytes, |look| format.inspect(look));
    let facts = facts.unwrap();
    assert_eq!(facts.samples, Some(4));
    assert!(facts.notes.iter().any(|note| note.starts_with("1 records are too long")), "{:?}", facts.notes);
    assert!(looks.iter().all(|look| look.len <= MOST_AT_ONCE));
}

#[test]
fn damage_is_reported_with_its_record_and_offset() {
    let format = with(Access::Framework, None);
    let whole = encoded(&shape(&[64, 64], Element::Uint8, 2));
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut absurd = whole.clone();
    absurd[4150..4162].copy_from_slice(&head(u64::MAX - 3));
    for (bytes, offset, words) in [
        (whole[..4155].to_vec(), 4150, "record 1 is cut off"),
        (whole[..8000].to_vec(), 4150, "record 1 claims 4134 bytes, but the file ends at byte 8000"),
        (flipped(4151), 4150, "mismatch in the length of record 1"),
        (flipped(4158), 4150, "mismatch in the length of record 1"),
        (flipped(6000), 4150, "mismatch in the 4134 bytes of record 1"),
        (flipped(4149), 0, "mismatch in the 4134 bytes of record 0"),
        (absurd, 4150, "record 1 claims"),
        (Vec::new(), 0, "no record"),
    ] {
        let error = fetch(&format, &bytes, |look| format.inspect(look)).0.unwrap_err();
        assert!(matches!(&error, Obstacle::Damage(damage) if damage.offset == offset), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn impossible_shapes_and_settings_are_refused() {
    let cases: [(&[u64], u64, &str); 4] = [
        (&[4, 0], 1, "at least 1"),
        (&[4], 0, "at least 1"),
        (&[1 << 31], 1, "protobuf"),
        (&[1 << 20], 1 << 43, "too large"),
    ];
    for (dims, samples, words) in cases {
        let error = with(Access::Framework, None).size(&shape(dims, Element::Uint8, samples)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let options = FormatOptions { transfer_bytes: Some(0), ..FormatOptions::default() };
    assert!(TfRecord::new(&options).unwrap_err().to_string().contains("reader.transfer_size is 0"));
}

proptest! {
    #[test]
    fn conforms(
        dims in prop::collection::vec(0_u64..24, 0..4), element in 0..Element::ALL.len(),
        samples in 0_u64..6, seed: u64, file: u64, extent: bool, buffer in prop::option::of(1_u64..5000),
    ) {
        let access = if extent { Access::Extent } else { Access::Framework };
        conformance::check(&with(access, buffer), &shape(&dims, Element::ALL[element], samples), seed, file)?;
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(cut in 0_usize..400, at in 0_usize..400, to: u8, wanted in 0_u64..4) {
        let mut bytes = encoded(&shape(&[30], Element::Uint8, 4));
        bytes[at % (4 * 78)] = to;
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        let format = with(Access::Extent, None);
        let _ = fetch(&format, &bytes, |look| format.inspect(look));
        let _ = found(&format, &bytes, 4, wanted..4);
    }
}
