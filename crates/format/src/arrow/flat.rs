//! Flatbuffers, as far as Arrow's metadata needs them: a sequential writer of tables, and a reader that checks
//! every offset before it follows it. It must not know what the tables mean.

/// Entries of a table's vtable that are not fields: lengths of the vtable and of the table.
const HEADER: usize = 4;
/// Tables and vectors of structs start on multiples of this, so that every number in them is aligned.
const ALIGN: usize = 8;

/// A field of a table to be written.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldValue {
    Absent,
    Byte(u8),
    Short(i16),
    Int(i32),
    Long(i64),
    /// An offset to something that is written later.
    Offset,
}

impl FieldValue {
    fn size(self) -> usize {
        match self {
            FieldValue::Absent => 0,
            FieldValue::Byte(_) => 1,
            FieldValue::Short(_) => 2,
            FieldValue::Int(_) | FieldValue::Offset => 4,
            FieldValue::Long(_) => 8,
        }
    }
}

/// A buffer under construction. All fields are written, whatever their value, so a buffer's length does not
/// depend on the numbers in it.
#[derive(Debug)]
pub(super) struct FlatWriter {
    bytes: Vec<u8>,
}

impl FlatWriter {
    /// The position of the offset to the root.
    pub(super) const ROOT: usize = 0;

    pub(super) fn new() -> FlatWriter {
        FlatWriter { bytes: vec![0; 4] }
    }

    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    /// Makes the offset at `from` point to what is written next.
    fn point(&mut self, from: usize) {
        // Offsets are relative to their own position. Metadata is far below 4 GiB: names and numbers of
        // columns.
        let distance = (self.bytes.len() - from) as u32;
        self.bytes[from..from + 4].copy_from_slice(&distance.to_le_bytes());
    }

    /// Writes a table that `from` points to; returns the positions of its `N` fields, for those that are
    /// offsets.
    pub(super) fn table<const N: usize>(&mut self, from: usize, slots: [FieldValue; N]) -> [usize; N] {
        self.align(ALIGN);
        let header = self.bytes.len();
        let start = (header + HEADER + 2 * N).next_multiple_of(ALIGN);
        let (mut places, mut end) = ([0; N], start + 4);
        for (place, slot) in places.iter_mut().zip(slots) {
            *place = end.next_multiple_of(slot.size().max(1));
            end = *place + slot.size();
        }
        self.bytes.extend(((HEADER + 2 * N) as u16).to_le_bytes());
        self.bytes.extend(((end - start) as u16).to_le_bytes());
        for (place, slot) in places.iter().zip(slots) {
            let within = if matches!(slot, FieldValue::Absent) { 0 } else { place - start };
            self.bytes.extend((within as u16).to_le_bytes());
        }
        self.bytes.resize(start, 0);
        self.point(from);
        self.bytes.extend(((start - header) as i32).to_le_bytes());
        for (place, slot) in places.iter().zip(slots) {
            self.bytes.resize(*place, 0);
            match slot {
                FieldValue::Absent => {}
                FieldValue::Byte(value) => self.bytes.push(value),
                FieldValue::Short(value) => self.bytes.extend(value.to_le_bytes()),
                FieldValue::Int(value) => self.bytes.extend(value.to_le_bytes()),
                FieldValue::Long(value) => self.bytes.extend(value.to_le_bytes()),
                FieldValue::Offset => self.bytes.extend([0; 4]),
            }
        }
        places
    }

    /// Starts a vector of structs that `from` points to; the caller appends its `count` entries.
    pub(super) fn vector(&mut self, from: usize, count: u32) {
        self.align(ALIGN);
        // The count directly precedes the first entry, which is what must be aligned.
        self.bytes.extend([0; ALIGN - 4]);
        self.point(from);
        self.bytes.extend(count.to_le_bytes());
    }

    /// Writes a vector of `count` offsets that `from` points to; returns the position of the first.
    pub(super) fn offsets(&mut self, from: usize, count: usize) -> usize {
        self.align(4);
        self.point(from);
        self.bytes.extend((count as u32).to_le_bytes());
        let first = self.bytes.len();
        self.bytes.resize(first + 4 * count, 0);
        first
    }

    pub(super) fn text(&mut self, from: usize, text: &str) {
        self.align(4);
        self.point(from);
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    pub(super) fn long(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// What is wrong with a buffer, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlatBufferError {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

type FlatResult<T> = Result<T, FlatBufferError>;

/// A table of an existing buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlatTable<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Position and length of the vtable.
    header: usize,
    header_len: usize,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> FlatResult<[u8; N]> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().ok_or(FlatBufferError { at, what: "an offset leads out of the metadata" })
}

/// The target of the offset at `at`.
fn follow(bytes: &[u8], at: usize) -> FlatResult<usize> {
    let distance = u32::from_le_bytes(number(bytes, at)?) as usize;
    at.checked_add(distance).ok_or(FlatBufferError { at, what: "an offset leads out of the metadata" })
}

impl<'a> FlatTable<'a> {
    pub(super) fn root(bytes: &'a [u8]) -> FlatResult<FlatTable<'a>> {
        FlatTable::new(bytes, follow(bytes, 0)?)
    }

    fn new(bytes: &'a [u8], at: usize) -> FlatResult<FlatTable<'a>> {
        let back = i64::from(i32::from_le_bytes(number(bytes, at)?));
        let header = usize::try_from(at as i64 - back);
        let header = header
            .map_err(|_| FlatBufferError { at, what: "a table's header stands before the metadata" })?;
        let header_len = usize::from(u16::from_le_bytes(number(bytes, header)?));
        Ok(FlatTable { bytes, at, header, header_len })
    }

    /// The position of a field, if the table has it.
    fn place(&self, slot: usize) -> FlatResult<Option<usize>> {
        let entry = HEADER + 2 * slot;
        if entry + 2 > self.header_len {
            return Ok(None);
        }
        let within = usize::from(u16::from_le_bytes(number(self.bytes, self.header + entry)?));
        Ok((within > 0).then_some(self.at + within))
    }

    fn value<const N: usize>(&self, slot: usize) -> FlatResult<[u8; N]> {
        self.place(slot)?.map_or(Ok([0; N]), |at| number(self.bytes, at))
    }

    /// Absent numbers are 0, which is the default of every field that is read here.
    pub(super) fn byte(&self, slot: usize) -> FlatResult<u8> {
        Ok(u8::from_le_bytes(self.value(slot)?))
    }

    pub(super) fn short(&self, slot: usize) -> FlatResult<i16> {
        Ok(i16::from_le_bytes(self.value(slot)?))
    }

    pub(super) fn int(&self, slot: usize) -> FlatResult<i32> {
        Ok(i32::from_le_bytes(self.value(slot)?))
    }

    /// A number that counts something.
    pub(super) fn count(&self, slot: usize) -> FlatResult<u64> {
        let value = i64::from_le_bytes(self.value(slot)?);
        u64::try_from(value).map_err(|_| FlatBufferError { at: self.at, what: "a length is negative" })
    }

    pub(super) fn table(&self, slot: usize) -> FlatResult<Option<FlatTable<'a>>> {
        let Some(at) = self.place(slot)? else { return Ok(None) };
        FlatTable::new(self.bytes, follow(self.bytes, at)?).map(Some)
    }

    /// The bytes of a vector of entries of `size` bytes each; empty if it is absent.
    pub(super) fn entries(&self, slot: usize, size: usize) -> FlatResult<&'a [u8]> {
        let Some(at) = self.place(slot)? else { return Ok(&[]) };
        let at = follow(self.bytes, at)?;
        let count = u32::from_le_bytes(number(self.bytes, at)?) as usize;
        let found = count.checked_mul(size).and_then(|len| self.bytes.get(at + 4..)?.get(..len));
        found.ok_or(FlatBufferError { at, what: "a list is longer than the metadata" })
    }

    pub(super) fn text(&self, slot: usize) -> FlatResult<&'a str> {
        let bytes = self.entries(slot, 1)?;
        str::from_utf8(bytes).map_err(|_| FlatBufferError { at: self.at, what: "a name is not UTF-8" })
    }

    /// The tables of a vector.
    pub(super) fn tables(
        &self,
        slot: usize,
    ) -> FlatResult<impl Iterator<Item = FlatResult<FlatTable<'a>>> + use<'a>> {
        let bytes = self.bytes;
        let entries = self.entries(slot, 4)?;
        let first = match self.place(slot)? {
            Some(at) => follow(bytes, at)? + 4,
            None => 0,
        };
        Ok((0..entries.len() / 4).map(move |index| FlatTable::new(bytes, follow(bytes, first + 4 * index)?)))
    }

    pub(super) fn has(&self, slot: usize) -> FlatResult<bool> {
        Ok(self.place(slot)?.is_some())
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buffer() -> Vec<u8> {
        let mut out = FlatWriter::new();
        let slots = [
            FieldValue::Short(-3),
            FieldValue::Absent,
            FieldValue::Long(9),
            FieldValue::Offset,
            FieldValue::Byte(7),
            FieldValue::Offset,
            FieldValue::Offset,
        ];
        let [.., text, _, tables, list] = out.table(FlatWriter::ROOT, slots);
        out.text(text, "abc");
        let first = out.offsets(tables, 2);
        out.table(first, [FieldValue::Int(5)]);
        out.table(first + 4, [FieldValue::Int(-6)]);
        out.vector(list, 2);
        [1, 2].into_iter().for_each(|value| out.long(value));
        out.into_bytes()
    }

    #[test]
    fn written_messages_are_read() {
        let bytes = buffer();
        let root = FlatTable::root(&bytes).unwrap();
        assert_eq!((root.short(0), root.byte(4), root.count(2)), (Ok(-3), Ok(7), Ok(9)));
        assert_eq!((root.int(1), root.int(40)), (Ok(0), Ok(0)), "absent");
        assert_eq!(root.text(3), Ok("abc"));
        let ints: Vec<i32> = root.tables(5).unwrap().map(|table| table.unwrap().int(0).unwrap()).collect();
        assert_eq!(ints, [5, -6]);
        let list = root.entries(6, 8).unwrap();
        assert_eq!(list, [1_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat());
        assert_eq!((list.as_ptr() as usize - bytes.as_ptr() as usize) % 8, 0);
    }

    #[test]
    fn invalid_offsets_are_reported() {
        assert_eq!(FlatTable::root(&[1, 0]).unwrap_err().at, 0);
        assert_eq!(FlatTable::root(&[200, 0, 0, 0]).unwrap_err().at, 200);
        assert!(
            FlatTable::root(&[4, 0, 0, 0, 99, 0, 0, 0]).unwrap_err().what.contains("before the metadata")
        );
        let mut bytes = FlatWriter::new();
        let [list] = bytes.table(FlatWriter::ROOT, [FieldValue::Offset]);
        bytes.vector(list, u32::MAX);
        let bytes = bytes.into_bytes();
        let root = FlatTable::root(&bytes).unwrap();
        assert!(root.entries(0, 24).unwrap_err().what.contains("longer than"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(at in 0_usize..200, to: u8, cut in 0_usize..200) {
            let mut bytes = buffer();
            let len = bytes.len();
            bytes[at % len] = to;
            bytes.truncate(len - cut % len);
            let Ok(root) = FlatTable::root(&bytes) else { return Ok(()) };
            for slot in 0..9 {
                let _ = (root.byte(slot), root.short(slot), root.int(slot), root.count(slot), root.text(slot));
                let _ = (root.entries(slot, 24), root.table(slot).map(|table| table.map(|table| table.int(0))));
                if let Ok(tables) = root.tables(slot) {
                    tables.for_each(|table| {
                        let _ = table.map(|table| table.int(0));
                    });
                }
            }
        }
    }
}
