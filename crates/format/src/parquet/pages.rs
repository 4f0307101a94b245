//! Splits column chunks into pages and decompresses them, as a reader does before it decodes values. It must not
//! know the columns.

use super::NAME;
use super::codec::Codec;
use super::thrift::{STRUCT, TRUE, ThriftError, ThriftReader};
use crate::{Damage, inflate};

/// The contents of a page's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageHeader {
    /// Bytes after the header, before and after compression.
    raw: u64,
    stored: u64,
    /// The first of them, which are never compressed: the levels of a page of version 2.
    levels: u64,
    packed: bool,
}

/// Replaces `out` by the contents of consecutive pages.
pub(super) fn decode(codec: Codec, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Damage> {
    out.clear();
    let (most, mut at) = (inflate::most(bytes.len()) as u64, 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let damage = |at: usize, what: String| Damage::new(NAME, at as u64, what);
        let mut reader = ThriftReader::new(rest);
        let header = header(&mut reader).map_err(|malformed| damage(at + malformed.at, malformed.what))?;
        let (_, behind) = rest.split_at(reader.position());
        at += reader.position();
        let PageHeader { raw, stored, levels, packed } = header;
        let Some(page) = usize::try_from(stored).ok().and_then(|stored| behind.get(..stored)) else {
            let what = format!("a page claims {stored} bytes, but only {} are left", behind.len());
            return Err(damage(at, what));
        };
        if levels > raw.min(stored) || raw > most.saturating_sub(out.len() as u64) {
            let what = format!("a page of {stored} bytes with levels of {levels} cannot decompress to {raw}");
            return Err(damage(at, what));
        }
        // Both are bounded by lengths of slices.
        let (levels, values) = page.split_at(levels as usize);
        out.extend_from_slice(levels);
        let codec = if packed { codec } else { Codec::None };
        let raw = raw as usize - levels.len();
        // Some writers compress empty pages to nothing, without a frame.
        if raw > 0 || !values.is_empty() {
            let what = |what: String| format!("a page cannot be decompressed: {what}");
            codec.decompress(values, raw, out).map_err(|error| damage(at, what(error)))?;
        }
        at += page.len();
    }
    Ok(())
}

/// Reads a page's header (PageHeader in parquet.thrift).
fn header(reader: &mut ThriftReader<'_>) -> Result<PageHeader, ThriftError> {
    let (mut raw, mut stored) = (None, None);
    let (mut levels, mut packed) = (0_u64, true);
    reader.structure(|reader, id, kind| {
        match (id, kind) {
            (2, _) => raw = Some(reader.count()?),
            (3, _) => stored = Some(reader.count()?),
            (8, STRUCT) => reader.structure(|reader, id, kind| {
                match id {
                    // Definition levels and repetition levels.
                    5 | 6 => levels = levels.saturating_add(reader.count()?),
                    7 => packed = kind == TRUE,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    match (raw, stored) {
        (Some(raw), Some(stored)) => Ok(PageHeader { raw, stored, levels, packed }),
        _ => reader.malformed("a page without a length"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::thrift::Compact;
    use super::*;
    use crate::fixture::noise;
    use proptest::prelude::*;

    const CODECS: [Codec; 5] = [Codec::None, Codec::Snappy, Codec::Gzip, Codec::Zstd, Codec::Lz4];

    fn page(raw: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut header = Compact::new(&mut bytes);
        header.i32(1, 0);
        header.i32(2, raw);
        header.i32(3, body.len() as u32);
        header.stop();
        bytes.extend_from_slice(body);
        bytes
    }

    /// A page of version 2, with uncompressed levels before its values.
    fn page_v2(levels: [u32; 2], packed: bool, raw: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut header = Compact::new(&mut bytes);
        header.i32(1, 3);
        header.i32(2, raw);
        header.i32(3, body.len() as u32);
        let mut version = header.nested(8);
        version.i32(1, 10);
        version.i32(5, levels[0]);
        version.i32(6, levels[1]);
        version.flag(7, packed);
        version.stop();
        header.stop();
        bytes.extend_from_slice(body);
        bytes
    }

    fn compressed(codec: Codec, raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        codec.compress(4, raw, &mut out).unwrap();
        out
    }

    #[test]
    fn pages_of_both_versions_round_trip_with_every_codec() {
        let values = noise(9000);
        let flat = vec![7; 100_000];
        for codec in CODECS {
            let packed = compressed(codec, &values);
            let bytes = [
                page(9000, &packed),
                page(0, b""),
                page(100_000, &compressed(codec, &flat)),
                page_v2([2, 3], true, 9005, &[b"LEVEL", &packed[..]].concat()),
                page_v2([2, 3], false, 9005, &[b"LEVEL", &values[..]].concat()),
                page_v2([2, 3], true, 5, b"LEVEL"),
            ]
            .concat();
            let mut out = vec![1; 50];
            decode(codec, &bytes, &mut out).unwrap();
            let wanted = [&values[..], &flat, b"LEVEL", &values, b"LEVEL", &values, b"LEVEL"].concat();
            assert!(out == wanted, "{codec:?}");
        }
    }

    #[test]
    fn invalid_pages_are_reported_with_their_offset() {
        let [snappy, gzip] = [Codec::Snappy, Codec::Gzip].map(|codec| compressed(codec, &noise(9000)));
        let whole = page(9000, &snappy);
        let mut nothing = Vec::new();
        Compact::new(&mut nothing).stop();
        let cases: [(Codec, Vec<u8>, usize, &str); 8] = [
            (Codec::Snappy, whole[..3].to_vec(), 3, "in the middle of a structure"),
            (Codec::Snappy, whole[..500].to_vec(), 11, "but only 489 are left"),
            (Codec::Snappy, [&whole[..], b"\0"].concat(), whole.len() + 1, "without a length"),
            (Codec::Snappy, nothing, 1, "without a length"),
            (Codec::Snappy, page(8999, &snappy), 11, "cannot be decompressed"),
            (Codec::Gzip, page(9001, &gzip), 11, "9000 bytes instead of 9001"),
            (Codec::Zstd, page(i32::MAX as u32, b"small"), 11, "cannot decompress to 2147483647"),
            (Codec::None, page_v2([9, 9], true, 10, b"0123456789"), 16, "levels of 18"),
        ];
        for (codec, bytes, offset, words) in cases {
            let damage = decode(codec, &bytes, &mut Vec::new()).unwrap_err();
            assert!(damage.what.contains(words), "{damage}");
            assert_eq!(damage.offset, offset as u64, "{damage}");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_or_small(bytes: Vec<u8>, codec in 0_usize..5, raw in 0_u32..100_000) {
            let mut out = Vec::new();
            let _ = decode(CODECS[codec], &bytes, &mut out);
            let _ = decode(CODECS[codec], &page(raw, &bytes), &mut out);
            prop_assert!(out.len() <= inflate::most(bytes.len() + 20));
        }
    }
}
