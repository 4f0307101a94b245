//! The header of any NumPy array (NEP 1; versions 1.0 to 3.0): parses its Python literal and locates the samples
//! among the elements. It must not know where the bytes come from.

use std::ops::Range;

use model::shape::FileShape;

use crate::{ArrayList, Damage, Extent, FileFacts, Look, Obstacle};

/// NumPy reads no longer header unless the caller trusts the file (`max_header_size`).
const TEXT_MOST: u64 = 10_000;
/// NumPy 2's limit.
const AXES_MOST: usize = 64;

/// An array: where its elements start in its byte stream, and their layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    /// Bytes before the elements.
    pub(crate) header: u64,
    /// Bytes of one element.
    pub(crate) item: u64,
    pub(crate) items: u64,
    /// Length of the last axis, which numbers the samples.
    last: u64,
    /// Whether the first axis runs fastest.
    fortran: bool,
}

/// An array and the other contents of its header.
pub(crate) struct NpyHeader {
    pub(crate) array: Array,
    dims: Vec<u64>,
    descr: String,
}

impl Array {
    /// The array that feedline writes after a header of this many bytes.
    pub(crate) fn ours(shape: &FileShape<'_>, header: u64) -> Array {
        let item = shape.element.size();
        Array { header, item, items: shape.payload_bytes() / item, last: shape.samples, fortran: false }
    }

    pub(crate) fn payload(&self) -> u64 {
        self.items.saturating_mul(self.item)
    }

    /// The number of samples, if `expected` are expected: one is the whole array, whatever its axes.
    pub(crate) fn held(&self, expected: u64) -> u64 {
        if expected == 1 { 1 } else { self.last }
    }

    /// The range of some of the `held` samples in the array's stream. Each of several samples has every
    /// `held`-th element (except in Fortran order), so the range includes the elements between them.
    pub(crate) fn stretch(&self, samples: &Range<u64>, held: u64) -> Extent {
        let rows = self.items / held.max(1);
        let (from, to) = match self.fortran {
            true => (samples.start * rows, samples.end * rows),
            false => (samples.start, (rows.max(1) - 1) * held + samples.end),
        };
        Extent { offset: self.header + from * self.item, len: (to - from) * self.item }
    }
}

impl NpyHeader {
    /// The list of a file that holds only this array.
    pub(crate) fn only(&self) -> ArrayList {
        ArrayList::only(&self.dims, &name(&self.descr))
    }

    /// The facts about a file whose samples are this array's.
    pub(crate) fn facts(&self, arrays: ArrayList, mut notes: Vec<String>) -> FileFacts {
        let (samples, dims) = match self.dims.split_last() {
            Some((last, dims)) => (*last, dims.to_vec()),
            None => (1, Vec::new()),
        };
        if self.array.fortran {
            notes.push("in Fortran order".to_owned());
        }
        if self.descr.starts_with('>') {
            notes.push("big-endian".to_owned());
        }
        FileFacts { samples: Some(samples), dims, element: Some(name(&self.descr)), arrays, notes }
    }
}

/// Reads the header of the array whose stream of `held` bytes starts at `start` in the file; `first(n)` returns
/// the stream's first `n` bytes.
pub(crate) fn read(
    look: &Look<'_>,
    start: u64,
    held: u64,
    first: impl FnMut(u64) -> Result<Vec<u8>, Obstacle>,
) -> Result<NpyHeader, Obstacle> {
    let (header, len) = parse(look, start, held, first)?;
    header.checked(len, held).map_err(|what| Damage::new(look.format, start, what).into())
}

/// Shape and type of an array, also of one whose elements cannot be located.
pub(crate) fn describe(
    look: &Look<'_>,
    start: u64,
    held: u64,
    first: impl FnMut(u64) -> Result<Vec<u8>, Obstacle>,
) -> Result<(Vec<u64>, String), Obstacle> {
    let (header, _) = parse(look, start, held, first)?;
    Ok((header.dims, name(&header.descr)))
}

/// The contents of a header, and its length.
fn parse(
    look: &Look<'_>,
    start: u64,
    held: u64,
    mut first: impl FnMut(u64) -> Result<Vec<u8>, Obstacle>,
) -> Result<(HeaderDict, u64), Obstacle> {
    let short = || look.damage(start, format!("{held} bytes are too few for a NumPy array"));
    let lead = first(held.min(12))?;
    let (Some(magic), Some(&[major, _minor, low, high])) = (lead.get(..6), lead.get(6..10)) else {
        return Err(short().into());
    };
    if magic != b"\x93NUMPY" {
        return Err(look.damage(start, "no NumPy signature (93 'NUMPY')").into());
    }
    let (lead, text) = match (major, lead.get(10..12)) {
        (1, _) => (10, u64::from(u16::from_le_bytes([low, high]))),
        (2 | 3, Some(&[third, fourth])) => (12, u64::from(u32::from_le_bytes([low, high, third, fourth]))),
        (2 | 3, _) => return Err(short().into()),
        _ => return Err(look.damage(start + 6, format!("NumPy array of version {major}")).into()),
    };
    if text > TEXT_MOST || lead + text > held {
        return Err(look.damage(start + 8, format!("a header of {text} bytes in {held}")).into());
    }
    let bytes = first(lead + text)?;
    let mut literal = Literal { bytes: bytes.get(lead as usize..).unwrap_or_default(), at: 0 };
    let header = literal.header().ok_or_else(|| {
        let offset = start + lead + literal.at as u64;
        look.damage(offset, "the header is not a dictionary of descr, fortran_order and shape")
    })?;
    Ok((header, lead + text))
}

/// The contents of the dictionary.
struct HeaderDict {
    descr: String,
    fortran: bool,
    dims: Vec<u64>,
}

impl HeaderDict {
    fn checked(self, header: u64, held: u64) -> Result<NpyHeader, String> {
        let shape = &self.dims;
        let items = shape.iter().try_fold(1_u64, |items, dim| items.checked_mul(*dim));
        let room = held - header;
        let Some(items) = items else { return Err(format!("the shape {shape:?} is too large")) };
        if items == 0 {
            return Err(format!("the shape {shape:?} has no elements"));
        }
        if self.descr.trim_start_matches(['|', '<', '>', '=']).starts_with('O') {
            return Err("it holds Python objects, which only Python can read".to_owned());
        }
        // An unknown type still has a size: the elements fill the available bytes.
        let item =
            item_bytes(&self.descr).unwrap_or(if room.is_multiple_of(items) { room / items } else { 0 });
        if item == 0 || items.checked_mul(item).is_none_or(|bytes| bytes > room) {
            let descr = &self.descr;
            return Err(format!("{room} bytes do not hold {items} elements of '{descr}' (shape {shape:?})"));
        }
        let last = shape.last().copied().unwrap_or(1);
        let array = Array { header, item, items, last, fortran: self.fortran };
        Ok(NpyHeader { array, dims: self.dims, descr: self.descr })
    }
}

/// Splits a type's code, without the byte order, into its letter and its number.
fn code(descr: &str) -> Option<(char, u64)> {
    let code = descr.trim_start_matches(['|', '<', '>', '=']);
    let kind = code.chars().next()?;
    let number = code.get(kind.len_utf8()..)?;
    let number = number.split('[').next()?;
    Some((kind, number.parse().ok()?))
}

/// Bytes of one element, by a type's code (NumPy, array interface).
fn item_bytes(descr: &str) -> Option<u64> {
    match code(descr)? {
        ('U', letters) => letters.checked_mul(4),
        ('b' | 'i' | 'u' | 'f' | 'c' | 'm' | 'M' | 'S' | 'V' | 'a' | 't', bytes) => Some(bytes),
        _ => None,
    }
}

/// NumPy's name of a type, or its code where it has none.
fn name(descr: &str) -> String {
    if descr.trim_start_matches(['|', '<', '>', '=']) == "O" {
        return "object".to_owned();
    }
    let name = match code(descr) {
        Some(('b', 1)) => Some("bool".to_owned()),
        Some(('i', bytes @ (1 | 2 | 4 | 8))) => Some(format!("int{}", 8 * bytes)),
        Some(('u', bytes @ (1 | 2 | 4 | 8))) => Some(format!("uint{}", 8 * bytes)),
        Some(('f', bytes @ (2 | 4 | 8 | 16))) => Some(format!("float{}", 8 * bytes)),
        Some(('c', bytes @ (8 | 16 | 32))) => Some(format!("complex{}", 8 * bytes)),
        _ => None,
    };
    name.unwrap_or_else(|| descr.to_owned())
}

/// A parser for the few Python literals that occur in headers. It returns `None` for anything else, with the
/// position in `at`.
struct Literal<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Literal<'_> {
    fn header(&mut self) -> Option<HeaderDict> {
        let (mut descr, mut fortran, mut dims) = (None, None, None);
        self.take(b'{')?;
        while self.peek()? != b'}' {
            let key = self.quoted()?;
            self.take(b':')?;
            match key.as_str() {
                "descr" => descr = Some(self.any()?),
                "fortran_order" => fortran = Some(self.truth()?),
                "shape" => dims = Some(self.tuple()?),
                _ => return None,
            }
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        Some(HeaderDict { descr: descr?, fortran: fortran?, dims: dims? })
    }

    /// The next byte that is not a space.
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    /// A string without escapes.
    fn quoted(&mut self) -> Option<String> {
        let quote = self.peek()?;
        if quote != b'\'' && quote != b'"' {
            return None;
        }
        let rest = self.bytes.get(self.at + 1..)?;
        let len = rest.iter().position(|byte| *byte == quote)?;
        self.at += len + 2;
        Some(String::from_utf8_lossy(&rest[..len]).into_owned())
    }

    /// A string, or the text of a list or tuple up to its closing bracket: the code of a structured type.
    fn any(&mut self) -> Option<String> {
        if matches!(self.peek()?, b'\'' | b'"') {
            return self.quoted();
        }
        let (start, mut depth) = (self.at, 0_u32);
        loop {
            match self.peek()? {
                b'[' | b'(' => depth += 1,
                b']' | b')' => depth = depth.checked_sub(1)?,
                b'\'' | b'"' => {
                    self.quoted()?;
                    continue;
                }
                _ if depth == 0 => return None,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned());
            }
        }
    }

    fn truth(&mut self) -> Option<bool> {
        self.peek()?;
        let rest = self.bytes.get(self.at..)?;
        let (word, value) = if rest.starts_with(b"True") { ("True", true) } else { ("False", false) };
        if !rest.starts_with(word.as_bytes()) {
            return None;
        }
        self.at += word.len();
        Some(value)
    }

    fn tuple(&mut self) -> Option<Vec<u64>> {
        let mut numbers = Vec::new();
        self.take(b'(')?;
        while self.peek()? != b')' {
            numbers.push(self.number()?);
            if numbers.len() > AXES_MOST {
                return None;
            }
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Some(numbers)
    }

    /// A number; Python 2 appended an L to long ones.
    fn number(&mut self) -> Option<u64> {
        let rest = self.bytes.get(self.at..)?;
        let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
        self.at += len + usize::from(rest.get(len) == Some(&b'L'));
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReadPieces;
    use proptest::prelude::*;

    fn found(version: u8, text: &str, payload: u64) -> Result<NpyHeader, Obstacle> {
        let mut bytes = vec![0x93, b'N', b'U', b'M', b'P', b'Y', version, 0];
        match version {
            1 => bytes.extend((text.len() as u16).to_le_bytes()),
            _ => bytes.extend((text.len() as u32).to_le_bytes()),
        }
        bytes.extend(text.as_bytes());
        let held = bytes.len() as u64 + payload;
        let seen = ReadPieces::default();
        let look = Look::new("npy", held, &seen);
        read(&look, 0, held, |count| Ok(bytes.iter().copied().take(count as usize).collect()))
    }

    #[test]
    fn headers_from_any_writer_are_read() {
        type Case<'a> = (u8, &'a str, u64, &'a [u64], u64, &'a str);
        let cases: [Case<'_>; 7] = [
            (1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 4, 2), }\n", 24, &[3, 4], 2, "uint8"),
            (2, "{'shape': (5,), 'fortran_order': True, 'descr': '>f4'}", 20, &[], 5, "float32"),
            (3, "{\"descr\":\"<c16\",\"fortran_order\":False,\"shape\":()}", 16, &[], 1, "complex128"),
            (1, "{'descr': '<U3', 'fortran_order': False, 'shape': (2L, 3L), }  ", 72, &[2], 3, "<U3"),
            (1, "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,)}", 16, &[], 2, "<M8[ns]"),
            (
                1,
                "{'descr': [('a]', '<i4'), ('b', '|u1', (2,))], 'fortran_order': False, 'shape': (7,)}",
                42,
                &[],
                7,
                "[('a]', '<i4'), ('b', '|u1', (2,))]",
            ),
            (1, "{'descr': '|b1', 'fortran_order': False, 'shape': (1, 1)}", 1, &[1], 1, "bool"),
        ];
        for (version, text, payload, dims, samples, element) in cases {
            let found = found(version, text, payload).map_err(|error| format!("{text}: {error}")).unwrap();
            let facts = found.facts(found.only(), Vec::new());
            assert_eq!((&facts.dims[..], facts.samples), (dims, Some(samples)), "{text}");
            assert_eq!(facts.element.as_deref(), Some(element));
            assert_eq!(found.array.payload(), payload, "{text}");
        }
    }

    #[test]
    fn errors_are_reported() {
        let dict = |descr: &str, shape: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}")
        };
        let cases = [
            (1, dict("|u1", "(3, 4)"), 11, "11 bytes do not hold 12 elements"),
            (1, dict("|u1", "(3, 0)"), 11, "no elements"),
            (1, dict("|u1", "(99999999999, 99999999999)"), 11, "is too large"),
            (1, dict("|u1", "(99999999999999999999999,)"), 11, "not a dictionary"),
            (1, dict("<f8", "(4611686018427387904,)"), 11, "do not hold"),
            (1, dict("|O", "(3, 4)"), 100, "Python objects"),
            (1, dict("|u1", "3"), 11, "not a dictionary"),
            (1, "{'descr': '|u1', 'shape': (3,)}".to_owned(), 3, "not a dictionary"),
            (1, "{'descr': ((((((((".to_owned(), 3, "not a dictionary"),
            (1, dict("|u1", &format!("({})", "1, ".repeat(65))), 1, "not a dictionary"),
            (4, dict("|u1", "(3,)"), 3, "version 4"),
            (2, " ".repeat(10_001), 3, "a header of 10001 bytes"),
        ];
        for (version, text, payload, words) in cases {
            let error = found(version, &text, payload).err().unwrap().to_string();
            assert!(error.contains(words) && error.contains("at byte"), "{error}");
        }
    }

    #[test]
    fn samples_are_strided_or_contiguous() {
        let array = Array { header: 128, item: 2, items: 12, last: 3, fortran: false };
        let place = |array: &Array, from, to, held| {
            let Extent { offset, len } = array.stretch(&(from..to), held);
            (offset, len)
        };
        assert_eq!(place(&array, 0, 3, 3), (128, 24));
        assert_eq!(place(&array, 0, 1, 3), (128, 20));
        assert_eq!(place(&array, 2, 3, 3), (132, 20));
        assert_eq!(place(&array, 0, 1, 1), (128, 24));
        let fortran = Array { fortran: true, ..array };
        assert_eq!(place(&fortran, 1, 2, 3), (136, 8));
        assert_eq!((fortran.held(1), fortran.held(3), fortran.held(7)), (1, 3, 3));
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "[{}()\\[\\],':\"a-zTF0-9L ]{0,80}", payload in 0_u64..100) {
            let _ = found(1, &text, payload);
            let _ = found(1, &format!("{{'descr': {text}"), payload);
            let _ = found(2, &format!("{{'shape': ({text}"), payload);
        }
    }
}
