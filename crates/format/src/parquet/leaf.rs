//! A column: its values, their size in the content stream and in a page, and their generation. It must not know
//! its position in a file.

use crate::{Content, FormatError, array};
use model::shape::Element;
use model::spec::Column;
use std::borrow::Cow;

use super::NAME;

/// Text is `s_` and this many digits, so that with its length of four bytes it takes sixteen.
const DIGITS: usize = 10;
const DIGITS_RANGE: u64 = 10_u64.pow(DIGITS as u32);
const TEXT: usize = LENGTH + 2 + DIGITS;
/// A value of variable length follows its length (Encodings.md, plain).
const LENGTH: usize = 4;

/// The values of a column. Parquet has no integers below 32 bits, so narrow ones are stored differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueEncoding {
    /// Stored as in memory: 32 and 64 bits, and floats.
    Plain(Element),
    /// Eight bits: the values' bytes are indexes into a dictionary of all 256.
    Byte(Element),
    /// Sixteen bits, in 32.
    Wide(Element),
    /// Eight per byte.
    Bits,
    /// `s_` and a number.
    Text,
    /// This many bytes.
    Blob(u64),
}

impl ValueEncoding {
    pub(super) fn of(element: Element) -> ValueEncoding {
        match element {
            Element::Bool => ValueEncoding::Bits,
            Element::Int8 | Element::Uint8 => ValueEncoding::Byte(element),
            Element::Int16 | Element::Uint16 => ValueEncoding::Wide(element),
            _ => ValueEncoding::Plain(element),
        }
    }

    /// The dictionary page, if pyarrow would write one.
    pub(super) fn dictionary(self) -> Option<DictionaryPage> {
        let page = |entries, entry_bytes| Some(DictionaryPage { entries, raw: entries * entry_bytes });
        match self {
            ValueEncoding::Byte(_) => page(256, 4),
            // No library has dictionaries of booleans.
            ValueEncoding::Bits => None,
            ValueEncoding::Plain(element) => page(1, element.size() as u32),
            ValueEncoding::Wide(_) => page(1, 4),
            ValueEncoding::Text | ValueEncoding::Blob(_) => page(1, LENGTH as u32),
        }
    }

    /// Bytes of this many values in a page.
    pub(super) fn stored(self, values: u64) -> Option<u64> {
        match self {
            ValueEncoding::Plain(element) | ValueEncoding::Byte(element) => {
                values.checked_mul(element.size())
            }
            ValueEncoding::Wide(_) => values.checked_mul(4),
            ValueEncoding::Bits => Some(values.div_ceil(8)),
            ValueEncoding::Text => values.checked_mul(TEXT as u64),
            ValueEncoding::Blob(size) => values.checked_mul(size.checked_add(LENGTH as u64)?),
        }
    }

    /// Bytes of this many values in the content stream.
    pub(super) fn drawn(self, values: u64) -> Option<u64> {
        match self {
            ValueEncoding::Wide(_) => values.checked_mul(2),
            ValueEncoding::Bits => Some(values),
            other => other.stored(values),
        }
    }

    /// Alignment of offsets in the content stream, so that no float is split.
    pub(super) fn align(self) -> u64 {
        match self {
            ValueEncoding::Plain(element) | ValueEncoding::Wide(element) => element.size(),
            _ => 1,
        }
    }
}

/// The dictionary page of a column. Readers expect one. If the values are no indexes, it has a single entry, zero or
/// the empty string, which no value refers to: entries with the values would be away from their rows, and indexes
/// would be the same in all columns. Some readers misread a page without entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DictionaryPage {
    pub(super) entries: u32,
    /// Bytes of the entries.
    pub(super) raw: u32,
}

/// The entries of a dictionary page: all values of eight bits in the order of their bits, so that a value is its own
/// index, or zeros.
pub(super) fn dictionary_entries(value: ValueEncoding, page: DictionaryPage) -> Vec<u8> {
    match value {
        ValueEncoding::Byte(Element::Int8) => {
            (0..=u8::MAX).flat_map(|entry| i32::from(entry as i8).to_le_bytes()).collect()
        }
        ValueEncoding::Byte(_) => (0..=u8::MAX).flat_map(|entry| u32::from(entry).to_le_bytes()).collect(),
        _ => vec![0; page.raw as usize],
    }
}

/// A column of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) name: Cow<'static, str>,
    pub(super) value: ValueEncoding,
    /// Values per row, if it is a list.
    pub(super) items: Option<u64>,
    pub(super) read: bool,
}

impl Leaf {
    /// The column for a workload's column.
    pub(super) fn of(column: &Column) -> Result<Leaf, FormatError> {
        let Column { name, dtype, size, read } = column;
        if *size == 0 {
            let what = format!("column '{name}' of dataset.parquet.columns has size 0; make it at least 1");
            return Err(FormatError::Setting { format: NAME, what });
        }
        let list = (*size > 1).then_some(*size);
        let (value, items) = match (dtype.as_str(), Element::named(dtype)) {
            (_, Some(element)) => (ValueEncoding::of(element), list),
            // One text per row whatever its size, as in arrow and DLIO.
            ("string", _) => (ValueEncoding::Text, None),
            ("binary", _) => (ValueEncoding::Blob(*size), None),
            _ => (ValueEncoding::Plain(Element::Float32), Some(*size)),
        };
        Ok(Leaf { name: Cow::Owned(name.clone()), value, items, read: *read })
    }

    /// The only column of files whose workload names none: the samples' elements.
    pub(super) fn of_samples(element: Element, items: u64) -> Leaf {
        Leaf {
            name: Cow::Borrowed("data"),
            value: ValueEncoding::of(element),
            items: Some(items),
            read: true,
        }
    }

    /// Values of this many rows.
    pub(super) fn values(&self, rows: u64) -> Option<u64> {
        rows.checked_mul(self.items.unwrap_or(1))
    }
}

/// Writes values as pages store them, from byte `offset` on; the first value is generated from offset `start` of
/// the file's content.
pub(super) fn fill(
    value: ValueEncoding,
    content: &Content,
    file: u64,
    start: u64,
    offset: u64,
    out: &mut [u8],
) {
    match value {
        ValueEncoding::Plain(element) | ValueEncoding::Byte(element) => {
            array::fill_samples(element, content, file, start + offset, out);
        }
        ValueEncoding::Wide(element) => {
            fill_wide(element == Element::Int16, content, file, start, offset, out);
        }
        ValueEncoding::Bits => fill_bits(content, file, start + offset * 8, out),
        ValueEncoding::Text => fill_text(content, file, start, offset, out),
        ValueEncoding::Blob(size) => {
            content.fill(file, start + offset, out);
            put_lengths(size, offset, out);
        }
    }
}

/// Values that are generated at once before they are mapped.
const AT_ONCE: usize = 1024;

/// 16-bit values in 32 bits. A call may start and end inside a value, because pieces of a file do.
fn fill_wide(signed: bool, content: &Content, file: u64, start: u64, offset: u64, out: &mut [u8]) {
    let wide = |narrow: [u8; 2]| match signed {
        true => i32::from(i16::from_le_bytes(narrow)).to_le_bytes(),
        false => u32::from(u16::from_le_bytes(narrow)).to_le_bytes(),
    };
    let mut drawn = [0; 2 * AT_ONCE];
    by_slots::<4>(offset, out, |slot, words| {
        for (many, words) in words.chunks_mut(AT_ONCE).enumerate() {
            let first = slot + (many * AT_ONCE) as u64;
            let drawn = &mut drawn[..2 * words.len()];
            content.fill(file, start + 2 * first, drawn);
            words.iter_mut().zip(drawn.as_chunks().0).for_each(|(word, narrow)| *word = wide(*narrow));
        }
    });
}

/// Packs the lowest bits of eight bytes into one byte; the first is the lowest (Encodings.md).
fn fill_bits(content: &Content, file: u64, start: u64, out: &mut [u8]) {
    let mut drawn = [0; 8 * AT_ONCE];
    for (many, bytes) in out.chunks_mut(AT_ONCE).enumerate() {
        let drawn = &mut drawn[..8 * bytes.len()];
        content.fill(file, start + (many * 8 * AT_ONCE) as u64, drawn);
        for (byte, flags) in bytes.iter_mut().zip(drawn.as_chunks().0) {
            // The product gathers the eight lowest bits in its top byte.
            let flags = u64::from_le_bytes(*flags) & 0x0101_0101_0101_0101;
            *byte = (flags.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
        }
    }
}

fn fill_text(content: &Content, file: u64, start: u64, offset: u64, out: &mut [u8]) {
    by_slots::<TEXT>(offset, out, |slot, texts| {
        content.fill(file, start + slot * TEXT as u64, texts.as_flattened_mut());
        for text in texts {
            let [low, ..] = text.as_chunks::<8>().0 else { continue };
            let mut number = u64::from_le_bytes(*low) % DIGITS_RANGE;
            text[..LENGTH].copy_from_slice(&((TEXT - LENGTH) as u32).to_le_bytes());
            text[LENGTH..LENGTH + 2].copy_from_slice(b"s_");
            for digit in text[LENGTH + 2..].iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
    });
}

/// Calls `make` with the index of the first of some whole slots and with space for them. A slot that is only
/// partly in `out` is generated in a separate buffer.
fn by_slots<const SLOT: usize>(offset: u64, out: &mut [u8], mut make: impl FnMut(u64, &mut [[u8; SLOT]])) {
    let (mut slot, skip) = (offset / SLOT as u64, (offset % SLOT as u64) as usize);
    let mut rest = out;
    let mut beside = [[0; SLOT]];
    if skip > 0 {
        let (head, tail) = rest.split_at_mut(rest.len().min(SLOT - skip));
        make(slot, &mut beside);
        head.copy_from_slice(&beside[0][skip..skip + head.len()]);
        (slot, rest) = (slot + 1, tail);
    }
    let (whole, tail) = rest.as_chunks_mut::<SLOT>();
    make(slot, whole);
    if !tail.is_empty() {
        make(slot + whole.len() as u64, &mut beside);
        tail.copy_from_slice(&beside[0][..tail.len()]);
    }
}

/// Writes the lengths before values of `size` bytes, as far as they are in `out`, which starts at `offset`.
fn put_lengths(size: u64, offset: u64, out: &mut [u8]) {
    let length = (size as u32).to_le_bytes();
    let stride = size + LENGTH as u64;
    let mut at = offset - offset % stride;
    let end = offset + out.len() as u64;
    while at < end {
        for (byte, place) in length.iter().zip(at..) {
            // Not in `out` if the difference is negative or beyond its end.
            let place = place.checked_sub(offset).and_then(|place| usize::try_from(place).ok());
            if let Some(target) = place.and_then(|place| out.get_mut(place)) {
                *target = *byte;
            }
        }
        at += stride;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(value: ValueEncoding, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0xEE; len];
        fill(value, &Content::new(5), 3, 8 * 1000, offset, &mut out);
        out
    }

    const VALUES: [ValueEncoding; 9] = [
        ValueEncoding::Plain(Element::Float64),
        ValueEncoding::Byte(Element::Int8),
        ValueEncoding::Wide(Element::Int16),
        ValueEncoding::Wide(Element::Uint16),
        ValueEncoding::Bits,
        ValueEncoding::Text,
        ValueEncoding::Blob(1),
        ValueEncoding::Blob(61),
        ValueEncoding::Blob(5000),
    ];

    #[test]
    fn every_type_but_bool_has_a_dictionary() {
        let pages = VALUES.map(|value| {
            let page = value.dictionary();
            let made = page.map(|page| dictionary_entries(value, page).len());
            assert_eq!(made, page.map(|page| page.raw as usize), "{value:?}");
            page.map(|page| (page.entries, page.raw))
        });
        let [float64, int8, int16, _, bits, text, blob, ..] = pages;
        assert_eq!([float64, int8, int16], [Some((1, 8)), Some((256, 1024)), Some((1, 4))]);
        assert_eq!([bits, text, blob], [None, Some((1, 4)), Some((1, 4))]);
    }

    #[test]
    fn text_is_a_number_with_its_length() {
        let texts = made(ValueEncoding::Text, 0, 160);
        for text in texts.as_chunks::<16>().0 {
            assert_eq!(text[..6], *b"\x0c\0\0\0s_");
            assert!(text[6..].iter().all(u8::is_ascii_digit), "{text:?}");
        }
        assert_ne!(texts[..16], texts[16..32]);
    }

    #[test]
    fn narrow_values_are_those_of_the_stream() {
        let mut stream = [0; 64];
        Content::new(5).fill(3, 8000, &mut stream);
        let wide = made(ValueEncoding::Wide(Element::Int16), 0, 128);
        for (wide, narrow) in wide.as_chunks().0.iter().zip(stream.as_chunks().0) {
            assert_eq!(i32::from_le_bytes(*wide), i32::from(i16::from_le_bytes(*narrow)));
        }
        let bits = made(ValueEncoding::Bits, 0, 8);
        for (index, byte) in stream.iter().enumerate() {
            assert_eq!(bits[index / 8] >> (index % 8) & 1, byte & 1);
        }
    }

    #[test]
    fn columns_have_dlios_types() {
        let leaf = |dtype: &str, size| {
            let leaf = Leaf::of(&Column { name: "c".into(), dtype: dtype.into(), size, read: true })?;
            Ok::<_, FormatError>((leaf.value, leaf.items))
        };
        assert_eq!(leaf("int8", 1), Ok((ValueEncoding::Byte(Element::Int8), None)));
        assert_eq!(leaf("float16", 3), Ok((ValueEncoding::Plain(Element::Float16), Some(3))));
        assert_eq!(leaf("uint16", 3), Ok((ValueEncoding::Wide(Element::Uint16), Some(3))));
        assert_eq!(leaf("bool", 1), Ok((ValueEncoding::Bits, None)));
        assert_eq!(leaf("string", 4), Ok((ValueEncoding::Text, None)));
        assert_eq!(leaf("binary", 9), Ok((ValueEncoding::Blob(9), None)));
        assert_eq!(leaf("list", 1), Ok((ValueEncoding::Plain(Element::Float32), Some(1))));
        assert!(leaf("int8", 0).unwrap_err().to_string().contains("'c'"));
    }

    proptest! {
        #[test]
        fn bytes_agree_however_they_are_cut(
            which in 0..VALUES.len(), cuts in prop::collection::vec(1_usize..3000, 1..20)
        ) {
            let len = cuts.iter().sum();
            let whole = made(VALUES[which], 0, len);
            let mut cut = Vec::new();
            for size in cuts {
                cut.extend(made(VALUES[which], cut.len() as u64, size));
            }
            prop_assert_eq!(whole, cut);
        }
    }
}
