//! Thrift's compact protocol, as far as parquet's page headers and footers need it. A structure is written into
//! anything that takes bytes, so the same code computes its length. Reading is bounded everywhere. It must not
//! know what the structures mean.

/// Types of fields, by their numbers in the compact protocol.
pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const I8: u8 = 3;
pub(super) const I16: u8 = 4;
pub(super) const I32: u8 = 5;
pub(super) const I64: u8 = 6;
pub(super) const DOUBLE: u8 = 7;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
pub(super) const SET: u8 = 10;
pub(super) const MAP: u8 = 11;
pub(super) const STRUCT: u8 = 12;
/// A type of later versions of the protocol: sixteen bytes.
pub(super) const UUID: u8 = 13;

/// Maximum nesting of structures: parquet's have seven levels.
const DEEPEST: u32 = 24;
/// Seven bits per byte: ten bytes hold 64 bits.
const LONGEST_VARINT: u32 = 10;

/// Takes bytes and cannot fail.
pub(super) trait Put {
    fn put(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts bytes.
#[derive(Debug, Default)]
pub(super) struct ByteCounter(pub(super) u64);

impl Put for ByteCounter {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }
}

/// Bytes of a varint.
pub(super) fn varint_len(value: u64) -> u64 {
    u64::from((64 - (value | 1).leading_zeros()).div_ceil(7))
}

pub(super) fn put_varint(out: &mut impl Put, mut value: u64) {
    let mut bytes = [0; LONGEST_VARINT as usize];
    let mut len = 0;
    for byte in &mut bytes {
        *byte = (value & 0x7F) as u8;
        value >>= 7;
        len += 1;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    out.put(&bytes[..len]);
}

/// A structure being written. [`Compact::stop`] ends it.
pub(super) struct Compact<'a, P: Put> {
    out: &'a mut P,
    last: u8,
}

impl<'a, P: Put> Compact<'a, P> {
    /// A top-level structure: a whole message, or an element of a list.
    pub(super) fn new(out: &'a mut P) -> Compact<'a, P> {
        Compact { out, last: 0 }
    }

    /// A structure of which the fields up to `last` have been written elsewhere.
    pub(super) fn resumed(out: &'a mut P, last: u8) -> Compact<'a, P> {
        Compact { out, last }
    }

    /// Fields are written in ascending order and less than 16 apart, so their numbers fit next to the type.
    fn field(&mut self, id: u8, kind: u8) {
        self.out.put(&[(id - self.last) << 4 | kind]);
        self.last = id;
    }

    /// A count or an enumeration value, never negative.
    pub(super) fn i32(&mut self, id: u8, value: u32) {
        self.field(id, I32);
        put_varint(self.out, u64::from(value) << 1);
    }

    /// A count or an offset; the file's size bounds it far below the 63 bits that it has.
    pub(super) fn i64(&mut self, id: u8, value: u64) {
        self.field(id, I64);
        put_varint(self.out, value << 1);
    }

    pub(super) fn i8(&mut self, id: u8, value: u8) {
        self.field(id, I8);
        self.out.put(&[value]);
    }

    pub(super) fn flag(&mut self, id: u8, value: bool) {
        self.field(id, if value { TRUE } else { FALSE });
    }

    pub(super) fn binary(&mut self, id: u8, bytes: &[u8]) {
        self.field(id, BINARY);
        self.element_binary(bytes);
    }

    /// The bytes alone, for lists.
    pub(super) fn element_binary(&mut self, bytes: &[u8]) {
        put_varint(self.out, bytes.len() as u64);
        self.out.put(bytes);
    }

    /// A number alone, for lists.
    pub(super) fn element_i32(&mut self, value: u32) {
        put_varint(self.out, u64::from(value) << 1);
    }

    /// The head of a list; its elements follow.
    pub(super) fn list(&mut self, id: u8, kind: u8, len: u64) {
        self.field(id, LIST);
        match u8::try_from(len) {
            Ok(short @ ..15) => self.out.put(&[short << 4 | kind]),
            _ => {
                self.out.put(&[0xF0 | kind]);
                put_varint(self.out, len);
            }
        }
    }

    /// An element of a list of structures.
    pub(super) fn element(&mut self) -> Compact<'_, P> {
        Compact { out: self.out, last: 0 }
    }

    /// A structure as a field.
    pub(super) fn nested(&mut self, id: u8) -> Compact<'_, P> {
        self.field(id, STRUCT);
        Compact { out: self.out, last: 0 }
    }

    pub(super) fn stop(self) {
        self.out.put(&[0]);
    }
}

/// Why bytes are not a message, and at which byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ThriftError {
    pub(super) at: usize,
    pub(super) what: String,
}

/// A message being read. Everything it returns is in the message's bytes, and every element of a list takes at
/// least one of them, so time and memory are bounded by its length.
#[derive(Clone, Debug)]
pub(super) struct ThriftReader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
}

impl<'a> ThriftReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> ThriftReader<'a> {
        ThriftReader { bytes, at: 0, depth: 0 }
    }

    /// Bytes that have been read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn malformed<T>(&self, what: impl Into<String>) -> Result<T, ThriftError> {
        Err(ThriftError { at: self.at, what: what.into() })
    }

    fn byte(&mut self) -> Result<u8, ThriftError> {
        match self.bytes.get(self.at) {
            Some(byte) => {
                self.at += 1;
                Ok(*byte)
            }
            None => self.malformed("it ends in the middle of a structure"),
        }
    }

    fn skip_bytes(&mut self, len: u64) -> Result<&'a [u8], ThriftError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        match usize::try_from(len).ok().and_then(|len| rest.get(..len)) {
            Some(bytes) => {
                self.at += bytes.len();
                Ok(bytes)
            }
            None => self.malformed(format!("{len} bytes of text, but only {} are left", rest.len())),
        }
    }

    fn varint(&mut self) -> Result<u64, ThriftError> {
        let mut value = 0;
        for place in 0..LONGEST_VARINT {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << (7 * place);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.malformed("a number of more than 64 bits")
    }

    /// A signed number of any width.
    pub(super) fn integer(&mut self) -> Result<i64, ThriftError> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A number that must not be negative.
    pub(super) fn count(&mut self) -> Result<u64, ThriftError> {
        let number = self.integer()?;
        match u64::try_from(number) {
            Ok(count) => Ok(count),
            Err(_) => self.malformed(format!("{number} where a negative number is not allowed")),
        }
    }

    pub(super) fn i8(&mut self) -> Result<u8, ThriftError> {
        self.byte()
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8], ThriftError> {
        let len = self.varint()?;
        self.skip_bytes(len)
    }

    /// The element type and length of a list.
    pub(super) fn list(&mut self) -> Result<(u8, u64), ThriftError> {
        let head = self.byte()?;
        let len = match head >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        let left = self.bytes.len() - self.at;
        if len > left as u64 {
            return self.malformed(format!("a list of {len} elements, but only {left} bytes are left"));
        }
        Ok((head & 0x0F, len))
    }

    /// A list with this element type.
    pub(super) fn list_of(&mut self, kind: u8) -> Result<u64, ThriftError> {
        match self.list()? {
            (_, 0) => Ok(0),
            (found, len) if found == kind => Ok(len),
            (found, _) => self.malformed(format!("a list of type {found} instead of {kind}")),
        }
    }

    /// Reads a structure: calls `field` with each field's number and type, which must read its value or
    /// return `false` to skip it.
    pub(super) fn structure(
        &mut self,
        mut field: impl FnMut(&mut ThriftReader<'a>, i64, u8) -> Result<bool, ThriftError>,
    ) -> Result<(), ThriftError> {
        self.deeper()?;
        let mut id = 0;
        while let Some(kind) = self.field(&mut id)? {
            if !field(self, id, kind)? {
                self.skip(kind)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// The type of a structure's next field, whose number replaces the last one; `None` at the end.
    pub(super) fn field(&mut self, id: &mut i64) -> Result<Option<u8>, ThriftError> {
        let head = self.byte()?;
        let kind = head & 0x0F;
        if kind == 0 {
            return Ok(None);
        }
        *id = match head >> 4 {
            0 => self.integer()?,
            step => id.saturating_add(i64::from(step)),
        };
        Ok(Some(kind))
    }

    fn deeper(&mut self) -> Result<(), ThriftError> {
        self.depth += 1;
        match self.depth > DEEPEST {
            true => self.malformed(format!("structures nested more than {DEEPEST} deep")),
            false => Ok(()),
        }
    }

    /// Skips the value of a field.
    pub(super) fn skip(&mut self, kind: u8) -> Result<(), ThriftError> {
        match kind {
            TRUE | FALSE => Ok(()),
            I8 => self.byte().map(drop),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.skip_bytes(8).map(drop),
            UUID => self.skip_bytes(16).map(drop),
            BINARY => self.binary().map(drop),
            LIST | SET => {
                let (kind, len) = self.list()?;
                self.deeper()?;
                (0..len).try_for_each(|_| self.skip_element(kind))?;
                self.depth -= 1;
                Ok(())
            }
            MAP => self.skip_map(),
            STRUCT => self.structure(|_, _, _| Ok(false)),
            _ => self.malformed(format!("unknown type {kind}")),
        }
    }

    /// In a list a flag is a byte; as a field it is part of the head.
    fn skip_element(&mut self, kind: u8) -> Result<(), ThriftError> {
        match kind {
            TRUE | FALSE => self.byte().map(drop),
            _ => self.skip(kind),
        }
    }

    fn skip_map(&mut self) -> Result<(), ThriftError> {
        let len = self.varint()?;
        if len == 0 {
            return Ok(());
        }
        let kinds = self.byte()?;
        self.deeper()?;
        // Every key takes a byte, so a wrong length ends with the bytes.
        for _ in 0..len {
            self.skip_element(kinds >> 4)?;
            self.skip_element(kinds & 0x0F)?;
        }
        self.depth -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_the_computed_length() {
        for value in [0, 1, 127, 128, 16383, 16384, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(bytes.len() as u64, varint_len(value), "{value}");
            assert_eq!(ThriftReader::new(&bytes).varint(), Ok(value));
        }
    }

    #[test]
    fn written_messages_are_read() {
        let mut bytes = Vec::new();
        let mut all = Compact::new(&mut bytes);
        all.i32(1, 7);
        all.i64(3, 1 << 40);
        all.list(5, I32, 20);
        (0..20).for_each(|value| all.element_i32(value));
        let mut inner = all.nested(9);
        inner.binary(1, b"text");
        inner.flag(2, true);
        inner.i8(3, 200);
        inner.stop();
        all.i32(10, 1);
        all.stop();
        let mut found = Vec::new();
        ThriftReader::new(&bytes)
            .structure(|reader, id, kind| {
                found.push((id, kind));
                match id {
                    3 => assert_eq!(reader.count()?, 1 << 40),
                    5 => return Ok(false),
                    9 => return Ok(false),
                    _ => drop(reader.integer()?),
                }
                Ok(true)
            })
            .unwrap();
        assert_eq!(found, [(1, I32), (3, I64), (5, LIST), (9, STRUCT), (10, I32)]);
    }

    #[test]
    fn malformed_messages_end() {
        let deep = vec![0x1C; 100_000];
        assert!(ThriftReader::new(&deep).skip(STRUCT).unwrap_err().what.contains("deep"));
        let lists = vec![0x19; 100_000];
        assert!(ThriftReader::new(&lists).skip(LIST).unwrap_err().what.contains("deep"));
        let long = [0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0];
        assert!(ThriftReader::new(&long).skip(LIST).unwrap_err().what.contains("elements"));
        assert!(ThriftReader::new(&[0xFF; 20]).varint().unwrap_err().what.contains("64 bits"));
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_or_skipped(bytes: Vec<u8>, kind in 0_u8..16) {
            let mut reader = ThriftReader::new(&bytes);
            let _ = reader.skip(kind);
            prop_assert!(reader.at <= bytes.len());
        }
    }
}
