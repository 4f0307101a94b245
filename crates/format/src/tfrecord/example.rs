//! A `tf.train.Example` in protobuf's wire format: a writer of the two features of a sample, and a reader that
//! names the features of any other. It must not know how records are framed. It never fails: other bytes have no
//! features.

use crate::ArrayList;

/// The maximum length of a protobuf message (protobuf documentation, "total size").
pub(super) const MOST_MESSAGE: u64 = i32::MAX as u64;

/// Tags: field number shifted left by three, wire type 2 (length-delimited).
const FIELD_1: u8 = 0x0A;
const FIELD_2: u8 = 0x12;
const FIELD_3: u8 = 0x1A;

/// A few bytes without allocation, since there are some for every file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortBytes {
    bytes: [u8; ShortBytes::ROOM],
    len: usize,
}

impl ShortBytes {
    /// Six tags and varints of at most ten bytes, and a name of five, fit.
    const ROOM: usize = 80;

    fn new() -> ShortBytes {
        ShortBytes { bytes: [0; ShortBytes::ROOM], len: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
            self.len = end;
        }
    }

    fn tag(&mut self, tag: u8, len: u64) {
        self.push(&[tag]);
        self.varint(len);
    }

    /// Seven bits per byte, lowest first, the top bit set on all but the last.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.push(&[value as u8]);
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn len(&self) -> u64 {
        self.len as u64
    }
}

/// The bytes around a sample in its Example: feature `image` with the sample, feature `size` with its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Example {
    pub(super) head: ShortBytes,
    pub(super) tail: ShortBytes,
    /// Length of the whole message.
    pub(super) len: u64,
}

impl Example {
    /// The Example of a sample of this many bytes, if a message can be that long.
    pub(super) fn of(sample_bytes: u64) -> Option<Example> {
        if sample_bytes > MOST_MESSAGE {
            return None;
        }
        let tail = size_entry(sample_bytes);
        let field = |inner: u64| 1 + varint_len(inner) + inner;
        let list = field(sample_bytes);
        let feature = field(list);
        let entry = 2 + 5 + field(feature);
        let features = field(entry) + tail.len();
        let len = field(features);
        let mut head = ShortBytes::new();
        head.tag(FIELD_1, features);
        head.tag(FIELD_1, entry);
        head.tag(FIELD_1, 5);
        head.push(b"image");
        head.tag(FIELD_2, feature);
        head.tag(FIELD_1, list);
        head.tag(FIELD_1, sample_bytes);
        (len <= MOST_MESSAGE).then_some(Example { head, tail, len })
    }
}

/// The map entry `size`: an int64_list of one packed value.
fn size_entry(value: u64) -> ShortBytes {
    let packed = varint_len(value);
    let mut entry = ShortBytes::new();
    // All lengths are below 128, so each takes one byte.
    entry.tag(FIELD_1, 2 + 4 + 2 + 2 + 2 + packed);
    entry.tag(FIELD_1, 4);
    entry.push(b"size");
    entry.tag(FIELD_2, 2 + 2 + packed);
    entry.tag(FIELD_3, 2 + packed);
    entry.tag(FIELD_1, packed);
    entry.varint(value);
    entry
}

fn varint_len(value: u64) -> u64 {
    u64::from((64 - (value | 1).leading_zeros()).div_ceil(7))
}

/// Facts from any Example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExampleFacts {
    /// The features, in the order of the message.
    pub(super) features: ArrayList,
    /// The value of an int64 feature `size`.
    pub(super) size: Option<u64>,
}

/// The features of an Example; `None` if the bytes are not one.
pub(super) fn named(message: &[u8]) -> Option<ExampleFacts> {
    let mut found = ExampleFacts::default();
    for features in (Fields { rest: message }) {
        let (1, FieldContent::Bytes(features)) = features? else { continue };
        for entry in (Fields { rest: features }) {
            let (1, FieldContent::Bytes(entry)) = entry? else { continue };
            name_entry(entry, &mut found)?;
        }
    }
    (!found.features.listed.is_empty()).then_some(found)
}

fn name_entry(entry: &[u8], found: &mut ExampleFacts) -> Option<()> {
    let (mut name, mut feature): (&[u8], &[u8]) = (&[], &[]);
    for field in (Fields { rest: entry }) {
        match field? {
            (1, FieldContent::Bytes(bytes)) => name = bytes,
            (2, FieldContent::Bytes(bytes)) => feature = bytes,
            _ => {}
        }
    }
    let name = str::from_utf8(name).ok()?;
    let (mut kind, mut values) = ("empty", 0);
    for field in (Fields { rest: feature }) {
        let (number, FieldContent::Bytes(list)) = field? else { continue };
        (kind, values) = match number {
            1 => bytes_list(list)?,
            2 => ("float32", numbers(list, |packed| packed.len() as u64 / 4)?),
            3 => {
                ("int64", numbers(list, |packed| packed.iter().filter(|byte| **byte < 0x80).count() as u64)?)
            }
            _ => continue,
        };
        if number == 3 && name == "size" {
            found.size = first_int(list);
        }
    }
    found.features.add(name, &[values], kind);
    Some(())
}

/// One value and its length, or the number of values.
fn bytes_list(list: &[u8]) -> Option<(&'static str, u64)> {
    let (mut values, mut length) = (0, 0);
    for value in (Fields { rest: list }) {
        let (1, FieldContent::Bytes(bytes)) = value? else { continue };
        (values, length) = (values + 1, bytes.len() as u64);
    }
    Some(if values == 1 { ("bytes", length) } else { ("list of bytes", values) })
}

/// The number of values in a list of numbers, packed or not.
fn numbers(list: &[u8], in_packed: impl Fn(&[u8]) -> u64) -> Option<u64> {
    let mut values = 0;
    for field in (Fields { rest: list }) {
        values += match field? {
            (1, FieldContent::Bytes(packed)) => in_packed(packed),
            (1, FieldContent::Number(_)) => 1,
            _ => 0,
        };
    }
    Some(values)
}

/// The first value of an int64_list, packed or not.
fn first_int(list: &[u8]) -> Option<u64> {
    match (Fields { rest: list }).next()?? {
        (1, FieldContent::Bytes(mut packed)) => varint(&mut packed),
        (1, FieldContent::Number(value)) => Some(value),
        _ => None,
    }
}

enum FieldContent<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of one message, from first to last; an inner `None` stands for invalid bytes, and ends it.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, FieldContent<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, FieldContent<'a>)> {
        let tag = varint(&mut self.rest)?;
        let value = match tag & 7 {
            0 => FieldContent::Number(varint(&mut self.rest)?),
            1 => FieldContent::Bytes(self.take(8)?),
            2 => {
                let len = varint(&mut self.rest)?;
                FieldContent::Bytes(self.take(len)?)
            }
            5 => FieldContent::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some(taken)
    }
}

/// Removes a varint of at most ten bytes from the front.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        // One bit of the tenth byte counts; protobuf drops the rest.
        value |= u64::from(byte & 0x7F).wrapping_shl(shift);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(sample: &[u8]) -> Vec<u8> {
        let example = Example::of(sample.len() as u64).unwrap();
        let message = [example.head.as_slice(), sample, example.tail.as_slice()].concat();
        assert_eq!(message.len() as u64, example.len);
        message
    }

    #[test]
    fn the_overhead_equals_dlios() {
        for (bytes, overhead) in [(2_500, 38), (4_096, 38), (114_244, 44), (2_825_761, 50)] {
            assert_eq!(Example::of(bytes).unwrap().len, bytes + overhead);
        }
    }

    #[test]
    fn a_message_has_protobufs_limit() {
        assert!(Example::of(MOST_MESSAGE - 100).is_some());
        assert!(Example::of(MOST_MESSAGE).is_none());
        assert!(Example::of(u64::MAX).is_none());
        let largest = Example::of(MOST_MESSAGE - 60).unwrap();
        assert!(
            largest.head.as_slice().len() < ShortBytes::ROOM
                && largest.tail.as_slice().len() < ShortBytes::ROOM
        );
    }

    #[test]
    fn features_are_named_in_any_order() {
        let features = |message: &[u8]| {
            let found = named(message).unwrap();
            assert_eq!((found.size, found.features.more), (Some(300), 0));
            let features = found.features.listed.into_iter();
            features.map(|array| (array.name, array.shape.unwrap(), array.dtype)).collect::<Vec<_>>()
        };
        let wanted = [
            ("image".to_owned(), vec![300], "bytes".to_owned()),
            ("size".to_owned(), vec![1], "int64".to_owned()),
        ];
        let whole = message(&[7; 300]);
        assert_eq!(features(&whole), wanted);
        let example = Example::of(300).unwrap();
        let (image, size) = whole.split_at(whole.len() - example.tail.as_slice().len());
        let turned = [&image[..3], size, &image[3..]].concat();
        let [image, size] = wanted;
        assert_eq!(features(&turned), [size, image]);
    }

    #[test]
    fn values_of_every_kind_are_counted() {
        let packed_ints = [0x0A, 3, 0x01, 0xAC, 0x02];
        assert_eq!(numbers(&packed_ints, |packed| packed.len() as u64), Some(3));
        assert_eq!(numbers(&[0x08, 0xAC, 0x02, 0x08, 0x01], |_| 0), Some(2));
        assert_eq!(bytes_list(&[0x0A, 2, 7, 7]), Some(("bytes", 2)));
        assert_eq!(bytes_list(&[0x0A, 1, 7, 0x0A, 0]), Some(("list of bytes", 2)));
        assert_eq!(bytes_list(&[0x0A, 9, 7]), None);
    }

    #[test]
    fn unpacked_lists_and_unknown_fields_are_skipped() {
        let list = [0x08, 0xAC, 0x02, 0x08, 0x01];
        assert_eq!(first_int(&list), Some(300));
        assert_eq!(first_int(&[]), None);
        assert_eq!(varint(&mut &[0xFF_u8; 10][..]), None);
        assert_eq!(named(b"\x15abcd\x09abcdefgh\x18\x05"), None);
        assert_eq!(named(b"\x0B"), None, "groups were never used");
        assert_eq!(named(&[]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), at: u8, to: u8) {
            named(&bytes);
            let mut flipped = message(&bytes);
            let place = usize::from(at) % flipped.len();
            flipped[place] = to;
            named(&flipped);
        }

        #[test]
        fn lengths_are_correct_for_every_size(bytes in 1_u64..40_000) {
            message(&vec![1; bytes as usize]);
        }
    }
}
