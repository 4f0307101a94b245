//! A NumPy array as bytes: its header (npy version 1.0) and its elements, generated from the content stream. npy
//! and npz write what surrounds the array.

use crate::{Content, FormatError};
use model::shape::{Element, FileShape};
use std::fmt::{self, Write};

/// NumPy 1 reads arrays of at most 32 axes, and the last of them numbers the samples.
const MOST_DIMS: usize = 31;
/// Signature, version 1.0; the two bytes of the text's length follow.
const MAGIC: &[u8; 8] = b"\x93NUMPY\x01\x00";
/// The header ends on a multiple of this, so that mapped elements are aligned.
const ALIGN: usize = 64;
/// 32 axes of 20 digits and 2 separators, and 66 bytes around them, fit.
const ROOM: usize = 1024;
/// Bytes of one label, an int64.
pub(crate) const LABEL: u64 = 8;

/// An array's header, held without allocation because one is made for every file.
pub(crate) struct ArrayHeader {
    text: [u8; ROOM],
    len: usize,
}

impl ArrayHeader {
    /// Header of the samples: axes `(*dims, samples)` in C order, as DLIO lays them out.
    pub(crate) fn of_samples(
        format: &'static str,
        shape: &FileShape<'_>,
    ) -> Result<ArrayHeader, FormatError> {
        ArrayHeader::checked(format, descr(shape.element), shape.dims, shape.samples)
    }

    /// Header of the labels: one int64 per sample.
    pub(crate) fn of_labels(format: &'static str, shape: &FileShape<'_>) -> Result<ArrayHeader, FormatError> {
        ArrayHeader::checked(format, "<i8", &[], shape.samples)
    }

    fn checked(
        format: &'static str,
        descr: &str,
        dims: &[u64],
        last: u64,
    ) -> Result<ArrayHeader, FormatError> {
        let too_many = || FormatError::TooManyDimensions { format, dims: dims.len(), most: MOST_DIMS };
        if dims.len() > MOST_DIMS {
            return Err(too_many());
        }
        // That many axes always fit, see ROOM.
        ArrayHeader::written(descr, dims, last).map_err(|_| too_many())
    }

    fn written(descr: &str, dims: &[u64], last: u64) -> Result<ArrayHeader, fmt::Error> {
        let mut header = ArrayHeader { text: [b' '; ROOM], len: MAGIC.len() + 2 };
        write!(header, "{{'descr': '{descr}', 'fortran_order': False, 'shape': (")?;
        for dim in dims {
            write!(header, "{dim}, ")?;
        }
        // Python's tuple of one is written with a comma.
        write!(header, "{last}{}), }}", if dims.is_empty() { "," } else { "" })?;
        let end = (header.len + 1).next_multiple_of(ALIGN);
        let text_len = u16::try_from(end - MAGIC.len() - 2).map_err(|_| fmt::Error)?;
        header.text[..8].copy_from_slice(MAGIC);
        header.text[8..10].copy_from_slice(&text_len.to_le_bytes());
        *header.text.get_mut(end - 1).ok_or(fmt::Error)? = b'\n';
        header.len = end;
        Ok(header)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

impl Write for ArrayHeader {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.text.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// NumPy's code of an element type: byte order (none for single bytes), kind, size.
fn descr(element: Element) -> &'static str {
    match element {
        Element::Bool => "|b1",
        Element::Int8 => "|i1",
        Element::Int16 => "<i2",
        Element::Int32 => "<i4",
        Element::Int64 => "<i8",
        Element::Uint8 => "|u1",
        Element::Uint16 => "<u2",
        Element::Uint32 => "<u4",
        Element::Uint64 => "<u8",
        Element::Float16 => "<f2",
        Element::Float32 => "<f4",
        Element::Float64 => "<f8",
    }
}

/// Writes elements of the sample array, from byte `offset` on: the content stream, made valid for the type.
pub(crate) fn fill_samples(element: Element, content: &Content, file: u64, offset: u64, out: &mut [u8]) {
    content.fill(file, offset, out);
    if let Some(mask) = mask(element) {
        keep_bits(mask, offset, out);
    }
}

/// The bits that may be set in eight bytes of elements, for types where not all may. A bool is 0 or 1. A float
/// with all exponent bits set is infinite or NaN, which could disturb computations; without the exponent's top
/// bit every value is finite, below 2 in magnitude, and 15 of 16 bits stay random.
fn mask(element: Element) -> Option<u64> {
    match element {
        Element::Bool => Some(0x0101_0101_0101_0101),
        Element::Float16 => Some(0xBFFF_BFFF_BFFF_BFFF),
        Element::Float32 => Some(0xBFFF_FFFF_BFFF_FFFF),
        Element::Float64 => Some(0xBFFF_FFFF_FFFF_FFFF),
        _ => None,
    }
}

/// Clears the bits that are not in `mask`, which repeats every eight bytes of the stream; `out` starts at
/// `offset`.
fn keep_bits(mask: u64, offset: u64, out: &mut [u8]) {
    let mask = mask.rotate_right(8 * (offset % 8) as u32);
    let (words, tail) = out.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_le_bytes(*word) & mask).to_le_bytes();
    }
    tail.iter_mut().zip(mask.to_le_bytes()).for_each(|(byte, mask)| *byte &= mask);
}

/// Writes labels, from byte `offset` of their array on.
pub(crate) fn fill_labels(content: &Content, file: u64, offset: u64, out: &mut [u8]) {
    let (mut sample, mut skip) = (offset / LABEL, (offset % LABEL) as usize);
    let mut rest = out;
    while !rest.is_empty() {
        let label = content.label(file, sample).to_le_bytes();
        let (part, tail) = rest.split_at_mut(rest.len().min(label.len() - skip));
        part.copy_from_slice(&label[skip..skip + part.len()]);
        (sample, skip, rest) = (sample + 1, 0, tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_numpys() {
        let cases: [(&[u64], Element, u64, &str); 4] = [
            (
                &[568, 568],
                Element::Uint8,
                1,
                "{'descr': '|u1', 'fortran_order': False, 'shape': (568, 568, 1), }",
            ),
            (&[], Element::Float32, 7, "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }"),
            (&[3], Element::Bool, 2, "{'descr': '|b1', 'fortran_order': False, 'shape': (3, 2), }"),
            (
                &[9; 4],
                Element::Int64,
                1,
                "{'descr': '<i8', 'fortran_order': False, 'shape': (9, 9, 9, 9, 1), }",
            ),
        ];
        for (dims, element, samples, text) in cases {
            let header = ArrayHeader::of_samples("npz", &FileShape { dims, element, samples }).unwrap();
            assert_eq!(header.bytes().len(), 128);
            assert_eq!(&header.bytes()[..10], b"\x93NUMPY\x01\x00\x76\x00");
            assert_eq!(header.bytes()[127], b'\n');
            assert_eq!(str::from_utf8(&header.bytes()[10..]).unwrap().trim_end(), text);
        }
    }

    #[test]
    fn the_longest_header_fits_and_a_longer_one_is_refused() {
        let header = |axes| {
            ArrayHeader::of_samples(
                "npz",
                &FileShape { dims: &vec![u64::MAX; axes], element: Element::Bool, samples: u64::MAX },
            )
        };
        assert_eq!(header(MOST_DIMS).unwrap().bytes().len() % ALIGN, 0);
        let error = header(MOST_DIMS + 1).err().unwrap();
        assert_eq!(error, FormatError::TooManyDimensions { format: "npz", dims: 32, most: 31 });
    }

    #[test]
    fn every_float_is_finite_and_every_bool_is_one_bit() {
        let content = Content::new(2);
        let bytes = |element| {
            let mut out = vec![0; 1 << 16];
            fill_samples(element, &content, 0, 0, &mut out);
            out
        };
        assert!(bytes(Element::Bool).iter().all(|byte| *byte <= 1));
        let doubles = bytes(Element::Float64);
        assert!(doubles.as_chunks().0.iter().all(|word| f64::from_le_bytes(*word).abs() < 2.0));
        let singles = bytes(Element::Float32);
        assert!(singles.as_chunks().0.iter().all(|word| f32::from_le_bytes(*word).abs() < 2.0));
        let halves = bytes(Element::Float16);
        assert!(halves.as_chunks().0.iter().all(|word| u16::from_le_bytes(*word) & 0x7C00 < 0x4000));
    }

    #[test]
    fn cuts_do_not_change_elements_or_labels() {
        let content = Content::new(4);
        type Fill = fn(Element, &Content, u64, &mut [u8]);
        let fills: [Fill; 2] = [
            |element, content, offset, out| fill_samples(element, content, 1, offset, out),
            |_, content, offset, out| fill_labels(content, 1, offset, out),
        ];
        for fill in fills {
            for element in Element::ALL {
                let mut whole = [0; 200];
                fill(element, &content, 0, &mut whole);
                for cut in 0..40 {
                    let mut tail = [0; 150];
                    fill(element, &content, cut, &mut tail);
                    assert_eq!(tail, whole[cut as usize..][..150], "{element:?} from {cut}");
                }
            }
        }
    }
}
