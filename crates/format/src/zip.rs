//! Writes the records of a ZIP archive (APPNOTE 6.3.10): plain version 2.0 as long as every number fits 32 bits,
//! zip64 for the numbers that do not. It must not know what a member contains, or how that is compressed.

use crate::pieces::Pieces;
use std::io;

/// Larger numbers are in the zip64 record, and their 32-bit field has this value.
const FULL: u64 = 0xFFFF_FFFF;
/// Versions needed to extract: 2.0 for a plain archive, 4.5 for zip64.
const PLAIN: u16 = 20;
const ZIP64: u16 = 45;
/// 1980-01-01, the format's first day: a file's bytes must not depend on when it was written.
const DATE: u16 = (1 << 5) | 1;

/// How a member's data is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Stored,
    /// Deflated, with checksum and sizes in a descriptor after the data, because they are known only then.
    /// Whether they might exceed 32 bits must be decided before.
    Deflated {
        long: bool,
    },
}

/// A member: its position and size in the archive.
pub(crate) struct ZipMember {
    pub(crate) name: &'static str,
    /// Offset of its local header.
    pub(crate) offset: u64,
    /// Bytes of its data, before and after compression.
    pub(crate) bytes: u64,
    pub(crate) packed: u64,
    /// Checksum of its data, once it is known.
    pub(crate) crc: Option<u32>,
    pub(crate) method: Method,
}

impl ZipMember {
    /// A member that is stored as it is. Its checksum is not known yet.
    pub(crate) fn stored(name: &'static str, offset: u64, bytes: u64) -> ZipMember {
        ZipMember { name, offset, bytes, packed: bytes, crc: None, method: Method::Stored }
    }

    /// A deflated member of `bytes` bytes, at most `packed` after compression.
    pub(crate) fn deflated(name: &'static str, offset: u64, bytes: u64, packed: u64) -> ZipMember {
        let long = bytes >= FULL || packed >= FULL;
        ZipMember { name, offset, bytes, packed, crc: None, method: Method::Deflated { long } }
    }

    /// Size of the header before the data.
    pub(crate) fn local_bytes(&self) -> u64 {
        30 + self.name.len() as u64 + u64::from(self.local_extra())
    }

    /// Size of the entry in the central directory.
    pub(crate) fn central_bytes(&self) -> u64 {
        46 + self.name.len() as u64 + u64::from(self.central_extra())
    }

    /// Offset after the data and its descriptor, where the next record starts. `None` if it overflows.
    pub(crate) fn end(&self) -> Option<u64> {
        let descriptor = match self.method {
            Method::Stored => 0,
            Method::Deflated { long: false } => 16,
            Method::Deflated { long: true } => 24,
        };
        self.offset.checked_add(self.local_bytes())?.checked_add(self.packed)?.checked_add(descriptor)
    }

    fn checksum(&self) -> u32 {
        self.crc.unwrap_or(0)
    }

    fn is_long(&self) -> bool {
        self.bytes >= FULL || self.packed >= FULL
    }

    fn is_far(&self) -> bool {
        self.offset >= FULL
    }

    fn local_extra(&self) -> u16 {
        match self.method {
            Method::Deflated { long } if long => 20,
            Method::Stored if self.is_long() => 20,
            _ => 0,
        }
    }

    /// Bytes of the entry's extra field, which holds only the numbers that do not fit; of the two sizes
    /// always both.
    fn central_extra(&self) -> u16 {
        match (self.is_long(), self.is_far()) {
            (false, false) => 0,
            (false, true) => 4 + 8,
            (true, false) => 4 + 16,
            (true, true) => 4 + 24,
        }
    }

    pub(crate) fn write_local(&self, out: &mut Pieces<'_, '_>) -> io::Result<()> {
        out.bytes(b"PK\x03\x04")?;
        let extra = self.local_extra();
        let sizes = match self.method {
            Method::Stored => [self.bytes, self.packed],
            Method::Deflated { .. } => [0, 0],
        };
        let crc = if self.method == Method::Stored { self.checksum() } else { 0 };
        self.write_shared(out, extra, crc, if extra > 0 { [FULL as u32; 2] } else { sizes.map(clipped) })?;
        out.bytes(self.name.as_bytes())?;
        if extra > 0 {
            write_extra_head(out, extra)?;
            write_u64s(out, sizes)?;
        }
        Ok(())
    }

    /// Writes the descriptor after deflated data.
    pub(crate) fn write_descriptor(&self, out: &mut Pieces<'_, '_>) -> io::Result<()> {
        match self.method {
            Method::Stored => return Ok(()),
            Method::Deflated { .. } => out.bytes(b"PK\x07\x08")?,
        }
        write_u32s(out, [self.checksum()])?;
        match self.method {
            Method::Deflated { long: true } => write_u64s(out, [self.packed, self.bytes]),
            _ => write_u32s(out, [clipped(self.packed), clipped(self.bytes)]),
        }
    }

    pub(crate) fn write_central(&self, out: &mut Pieces<'_, '_>) -> io::Result<()> {
        let extra = self.central_extra();
        out.bytes(b"PK\x01\x02")?;
        write_u16s(out, [version(extra)])?;
        let sizes = if self.is_long() { [FULL; 2] } else { [self.bytes, self.packed] };
        self.write_shared(out, extra, self.checksum(), sizes.map(clipped))?;
        // No comment, disk 0, no internal and no external attributes.
        write_u16s(out, [0; 5])?;
        write_u32s(out, [clipped(self.offset)])?;
        out.bytes(self.name.as_bytes())?;
        if extra > 0 {
            write_extra_head(out, extra)?;
        }
        if self.is_long() {
            write_u64s(out, [self.bytes, self.packed])?;
        }
        if self.is_far() {
            write_u64s(out, [self.offset])?;
        }
        Ok(())
    }

    /// The fields that both headers have in the same order: version needed, flags, method, time and date, CRC, sizes
    /// after and before compression, lengths of name and extra field.
    fn write_shared(
        &self,
        out: &mut Pieces<'_, '_>,
        extra: u16,
        crc: u32,
        [bytes, packed]: [u32; 2],
    ) -> io::Result<()> {
        // Flag 3: a descriptor follows the data. Method 8 is deflate.
        let (flags, method) = if self.method == Method::Stored { (0, 0) } else { (1 << 3, 8) };
        write_u16s(out, [version(extra), flags, method, 0, DATE])?;
        write_u32s(out, [crc, packed, bytes])?;
        write_u16s(out, [self.name.len() as u16, extra])
    }
}

/// Size of the records after a central directory that starts at `directory`.
pub(crate) fn end_bytes(directory: u64) -> u64 {
    22 + if directory >= FULL { 56 + 20 } else { 0 }
}

/// Writes the records after the central directory of `entries` members at `directory`.
pub(crate) fn write_end(
    out: &mut Pieces<'_, '_>,
    entries: u16,
    directory: u64,
    directory_bytes: u64,
) -> io::Result<()> {
    if directory >= FULL {
        out.bytes(b"PK\x06\x06")?;
        // The record's size without its first twelve bytes.
        write_u64s(out, [44])?;
        write_u16s(out, [ZIP64, ZIP64])?;
        write_u32s(out, [0, 0])?;
        write_u64s(out, [u64::from(entries), u64::from(entries), directory_bytes, directory])?;
        out.bytes(b"PK\x06\x07")?;
        write_u32s(out, [0])?;
        write_u64s(out, [directory + directory_bytes])?;
        write_u32s(out, [1])?;
    }
    out.bytes(b"PK\x05\x06")?;
    write_u16s(out, [0, 0, entries, entries])?;
    write_u32s(out, [clipped(directory_bytes), clipped(directory)])?;
    write_u16s(out, [0])
}

fn version(extra: u16) -> u16 {
    if extra > 0 { ZIP64 } else { PLAIN }
}

fn clipped(number: u64) -> u32 {
    number.min(FULL) as u32
}

/// Identity and length of a zip64 extra field; `extra` counts these four bytes too.
fn write_extra_head(out: &mut Pieces<'_, '_>, extra: u16) -> io::Result<()> {
    write_u16s(out, [1, extra - 4])
}

fn write_u16s<const N: usize>(out: &mut Pieces<'_, '_>, numbers: [u16; N]) -> io::Result<()> {
    numbers.iter().try_for_each(|number| out.bytes(&number.to_le_bytes()))
}

fn write_u32s<const N: usize>(out: &mut Pieces<'_, '_>, numbers: [u32; N]) -> io::Result<()> {
    numbers.iter().try_for_each(|number| out.bytes(&number.to_le_bytes()))
}

fn write_u64s<const N: usize>(out: &mut Pieces<'_, '_>, numbers: [u64; N]) -> io::Result<()> {
    numbers.iter().try_for_each(|number| out.bytes(&number.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::written;

    #[test]
    fn records_have_the_computed_size_around_every_limit() {
        let sides = [0, FULL - 1, FULL, FULL + 1, 1 << 40];
        for offset in sides {
            for bytes in sides {
                let members = [
                    ZipMember::stored("x.npy", offset, bytes),
                    ZipMember::deflated("x.npy", offset, 70, bytes),
                ];
                for member in members {
                    let local = written(|out| member.write_local(out));
                    let central = written(|out| member.write_central(out));
                    let descriptor = written(|out| member.write_descriptor(out)).len() as u64;
                    assert_eq!(local.len() as u64, member.local_bytes(), "{offset} {bytes}");
                    assert_eq!(central.len() as u64, member.central_bytes(), "{offset} {bytes}");
                    assert_eq!(member.end(), Some(offset + local.len() as u64 + bytes + descriptor));
                }
            }
        }
        for directory in sides {
            let end = written(|out| write_end(out, 2, directory, 102));
            assert_eq!(end.len() as u64, end_bytes(directory), "{directory}");
        }
    }

    #[test]
    fn a_large_number_is_in_the_extra_field() {
        let member = ZipMember::stored("x.npy", FULL, FULL);
        let central = written(|out| member.write_central(out));
        assert_eq!(central[6..8], [45, 0]);
        assert_eq!(central[20..28], [0xFF; 8]);
        assert_eq!(central[42..46], [0xFF; 4]);
        assert_eq!(central[51..55], [1, 0, 24, 0]);
        let number = FULL.to_le_bytes();
        assert_eq!(central[55..], [number, number, number].concat());
        let near = ZipMember::stored("x.npy", FULL - 1, FULL - 1);
        assert_eq!(written(|out| near.write_central(out))[6..8], [20, 0]);
    }

    #[test]
    fn a_zip64_directory_is_found_through_the_locator() {
        let directory: u64 = 5 << 32;
        let end = written(|out| write_end(out, 2, directory, 102));
        assert_eq!(end[..4], *b"PK\x06\x06");
        assert_eq!(end[40..56], [102_u64.to_le_bytes(), directory.to_le_bytes()].concat());
        assert_eq!(end[56..60], *b"PK\x06\x07");
        assert_eq!(end[64..72], (directory + 102).to_le_bytes());
        assert_eq!(end[76..80], *b"PK\x05\x06");
        assert_eq!(end[92..96], [0xFF; 4]);
    }

    #[test]
    fn an_end_that_overflows_is_none() {
        assert_eq!(ZipMember::stored("x", 5, u64::MAX).end(), None);
        assert_eq!(ZipMember::stored("x", 5, 4).end(), Some(5 + 31 + 4));
    }
}
