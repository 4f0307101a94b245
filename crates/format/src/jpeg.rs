//! jpeg: real pictures, decodable without warnings, of exactly the planned size, generated at memory speed.
//! Nothing is compressed: the entropy code is chosen so that random bytes are a valid scan.
//!
//! The picture is greyscale, 8 bits, baseline. The DC table holds 255 codes of 8 bits that all mean "difference
//! 0". The AC table holds 255 codes of 8 bits that all mean "no zeros, then a coefficient of 8 bits". A DC
//! therefore takes one byte, each of the 63 ACs a byte of code and a byte of magnitude, and a block of 8x8 pixels
//! takes 127 arbitrary bytes. The only exception is 0xFF: all ones is reserved, and libjpeg refuses a table with
//! all 256 codes. Without 0xFF the scan needs no stuffing either.
//!
//! The grid of blocks takes nearly all of the size, and a comment takes the rest. Two comments of random bytes
//! separate the constant segments, so that no aligned 512 bytes are the same in every file, which storage with
//! deduplication would store once.

use crate::pieces::Pieces;
use crate::{
    ArrayList, Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, Look,
    Obstacle, SourceFile, error, look::peek, picture, read_whole,
};
use model::shape::FileShape;
use std::io;
use std::ops::Range;

const NAME: &str = "jpeg";

/// Start of image, and the JFIF segment that must follow it: version 1.1, square pixels, no thumbnail.
const START: [u8; 20] = *b"\xFF\xD8\xFF\xE0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00";
/// Quantisation table 0 of 8-bit ones.
const QUANTISATION: [u8; 69] = {
    let mut segment = [1; 69];
    (segment[0], segment[1], segment[2], segment[3], segment[4]) = (0xFF, 0xDB, 0, 67, 0);
    segment
};
/// DC table 0 of category 0, AC table 0 of run 0 and size 8.
const DC_TABLE: [u8; 276] = huffman_table(0x00, 0x00);
const AC_TABLE: [u8; 276] = huffman_table(0x10, 0x08);
/// Start of scan: component 1 with tables 0, all 64 coefficients at once.
const SCAN: [u8; 10] = *b"\xFF\xDA\x00\x08\x01\x01\x00\x00\x3F\x00";
const END: [u8; 2] = *b"\xFF\xD9";
const FRAME_BYTES: usize = 13;

/// Marker and length of a comment.
const COMMENT_HEAD: u64 = 4;
/// Random bytes of a comment that makes files distinct: 128 bits.
const COMMENT_LEAST: u64 = 16;
/// The maximum of a comment's 16-bit length, which includes itself.
const COMMENT_MOST: u64 = 65_533;

/// Bytes of one block of 8x8 pixels: a DC of one byte, 63 ACs of two.
const BLOCK: u64 = 1 + 63 * 2;
/// Blocks along a side: 65535 pixels at most, in blocks of 8.
const SIDE_MOST: u64 = 65_535 / 8;
/// Bytes of a file without its blocks and without what the first comment holds beyond its least.
const FRAME: u64 = (START.len()
    + QUANTISATION.len()
    + FRAME_BYTES
    + DC_TABLE.len()
    + AC_TABLE.len()
    + SCAN.len()
    + END.len()) as u64
    + 2 * (COMMENT_HEAD + COMMENT_LEAST);
const FILE_LEAST: u64 = FRAME + BLOCK;
const FILE_MOST: u64 = FRAME + BLOCK * SIDE_MOST * SIDE_MOST;

const fn huffman_table(class: u8, symbol: u8) -> [u8; 276] {
    let mut segment = [symbol; 276];
    (segment[0], segment[1], segment[2], segment[3], segment[4]) = (0xFF, 0xC4, 1, 18, class);
    // Sixteen counts, of the codes of 1 to 16 bits: 255 of 8.
    let mut bits = 1;
    while bits <= 16 {
        segment[4 + bits] = if bits == 8 { 255 } else { 0 };
        bits += 1;
    }
    segment
}

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "a real greyscale image of exactly the planned size",
    compressions: &[],
    existing: "any file: it is read whole",
    other_suffixes: &[".jpg"],
    build: |_| Ok(Box::new(Jpeg)),
};

#[derive(Debug)]
pub(crate) struct Jpeg;

/// How a file's size is shared out.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    /// Blocks along the sides.
    wide: u64,
    high: u64,
    /// Bytes of the comments before the tables, markers and lengths included.
    comments: u64,
}

impl Layout {
    fn of(shape: &FileShape<'_>) -> Result<Layout, FormatError> {
        let bytes = error::picture(NAME, shape, FILE_LEAST..=FILE_MOST)?;
        Ok(Layout::of_size(bytes))
    }

    /// The grid that wastes least of the blocks that would fit, among those at most an eighth narrower than a
    /// square.
    fn of_size(bytes: u64) -> Layout {
        let blocks = (bytes - FRAME) / BLOCK;
        let root = blocks.isqrt();
        let used = |wide: u64| wide * (blocks / wide).min(SIDE_MOST);
        let wide = (root - root / 8..=root).max_by_key(|wide| used(*wide)).unwrap_or(root);
        let high = (blocks / wide).min(SIDE_MOST);
        let comments = bytes - FRAME - wide * high * BLOCK + COMMENT_HEAD + COMMENT_LEAST;
        Layout { wide, high, comments }
    }

    /// Start of frame: 8 bits, height, width, one component of number 1, not subsampled, quantised by table
    /// 0.
    fn frame(&self) -> [u8; FRAME_BYTES] {
        // A side has at most SIDE_MOST blocks, so its pixels fit 16 bits.
        let [h, l] = ((self.high * 8) as u16).to_be_bytes();
        let [w, v] = ((self.wide * 8) as u16).to_be_bytes();
        [0xFF, 0xC0, 0, 11, 8, h, l, w, v, 1, 1, 0x11, 0]
    }
}

impl Format for Jpeg {
    fn name(&self) -> &'static str {
        NAME
    }

    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
        file_bytes(shape).map(EncodedSize::Exact)
    }

    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError> {
        let layout = Layout::of(shape)?;
        out.bytes(&START)?;
        write_comments(out, content, file, layout.comments)?;
        out.bytes(&QUANTISATION)?;
        out.bytes(&layout.frame())?;
        out.bytes(&DC_TABLE)?;
        write_comments(out, content, file, COMMENT_HEAD + COMMENT_LEAST)?;
        out.bytes(&AC_TABLE)?;
        out.bytes(&SCAN)?;
        write_random(out, content, file, layout.wide * layout.high * BLOCK)?;
        Ok(out.bytes(&END)?)
    }

    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        read_whole(NAME, file, &samples, file_bytes, reads)
    }

    fn decodes(&self) -> bool {
        true
    }

    fn decode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Obstacle> {
        Ok(picture::decode_jpeg(NAME, bytes, out)?)
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        let start = peek(look, 0, 3)?;
        if start != [0xFF, 0xD8, 0xFF] {
            return Err(look.damage(0, format!("no JPEG signature (FF D8 FF) but {start:02X?}")).into());
        }
        let mut at = 2;
        for _ in 0..SEGMENTS_MOST {
            let [mark, kind] = *peek(look, at, 2)? else { break };
            match (mark, kind) {
                // Any marker may have more of these before it.
                (0xFF, 0xFF) => at += 1,
                // Markers without a segment: TEM and restarts.
                (0xFF, 0x01 | 0xD0..=0xD7) => at += 2,
                // Frame markers; C4, C8 and CC have other meanings.
                (0xFF, 0xC0..=0xCF) if !matches!(kind, 0xC4 | 0xC8 | 0xCC) => return frame(look, at, kind),
                (0xFF, 0xDA | 0xD9) => return Err(look.damage(at, "scan before the frame header").into()),
                (0xFF, 0xC0..=0xFE) => {
                    let [high, low] = *peek(look, at + 2, 2)? else { break };
                    let len = u64::from(u16::from_be_bytes([high, low]));
                    if len < 2 {
                        return Err(look.damage(at + 2, format!("a segment of {len} bytes")).into());
                    }
                    at += 2 + len;
                }
                _ => {
                    return Err(look
                        .damage(at, format!("{mark:02X} {kind:02X} is not a JPEG marker"))
                        .into());
                }
            }
        }
        Err(look.damage(at, format!("no frame among the first {SEGMENTS_MOST} segments")).into())
    }
}

/// More segments before the frame than any camera writes, and few enough to walk.
const SEGMENTS_MOST: u32 = 10_000;

/// The segment with the size of the picture (T.81, B.2.2).
fn frame(look: &Look<'_>, at: u64, kind: u8) -> Result<FileFacts, Obstacle> {
    let [bits, h, l, w, v, channels] = *peek(look, at + 4, 6)? else {
        return Err(look.damage(at, "the frame is truncated").into());
    };
    let (high, wide) = (u64::from(u16::from_be_bytes([h, l])), u64::from(u16::from_be_bytes([w, v])));
    if wide == 0 || channels == 0 {
        return Err(look.damage(at, format!("a picture {wide} wide, of {channels} channels")).into());
    }
    let process = match kind {
        0xC0 => "baseline",
        0xC1 => "extended",
        0xC2 => "progressive",
        0xC3 => "lossless",
        _ => "of a rare kind",
    };
    let mut notes = vec![format!("{process}, {bits} bits, channels: {channels}")];
    let mut dims = match channels {
        1 => vec![high, wide],
        _ => vec![high, wide, u64::from(channels)],
    };
    if high == 0 {
        notes.push("the height follows the pixels".to_owned());
        dims.clear();
    }
    let element = if bits > 8 { "uint16" } else { "uint8" };
    let mut arrays = ArrayList::default();
    arrays.push("", (high > 0).then(|| dims.clone()), element);
    Ok(FileFacts { samples: Some(1), dims, element: Some(element.to_owned()), arrays, notes })
}

fn file_bytes(shape: &FileShape<'_>) -> Result<u64, FormatError> {
    Layout::of(shape).map(|_| shape.payload_bytes())
}

/// Writes comments of `bytes` bytes in total, as few and as equal in length as possible, so that no rest is too
/// short for a comment.
fn write_comments(out: &mut Pieces<'_, '_>, content: &Content, file: u64, bytes: u64) -> io::Result<()> {
    let count = bytes.div_ceil(COMMENT_HEAD + COMMENT_MOST);
    let mut rest = bytes;
    for left in (1..=count).rev() {
        let len = rest.div_ceil(left);
        // The length includes its own two bytes but not the marker; at most 65535.
        let [high, low] = ((len - 2) as u16).to_be_bytes();
        out.bytes(&[0xFF, 0xFE, high, low])?;
        write_random(out, content, file, len - COMMENT_HEAD)?;
        rest -= len;
    }
    Ok(())
}

/// Writes `len` bytes of the content stream, taken at the file's own offset, with 0xFE in place of 0xFF. Comments
/// may contain 0xFF, but tools that search for markers without parsing would find some.
fn write_random(out: &mut Pieces<'_, '_>, content: &Content, file: u64, len: u64) -> io::Result<()> {
    let start = out.position();
    out.produce(len, |offset, part| {
        content.fill(file, start + offset, part);
        part.iter_mut().for_each(|byte| *byte = (*byte).min(0xFE));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReadPieces, conformance, fixture};
    use model::shape::Element;
    use proptest::prelude::*;

    fn encoded(bytes: u64, file: u64) -> Vec<u8> {
        fixture::encoded_as(&Jpeg, &fixture::picture(&[bytes]), 1, file)
    }

    /// Walks the segments like a decoder and returns the scan's bytes and the picture's sides.
    fn parsed(file: &[u8]) -> (Vec<u8>, u64, u64) {
        assert_eq!(file[..2], [0xFF, 0xD8]);
        let (mut at, mut sides) = (2, (0, 0));
        loop {
            let (marker, len) = (file[at + 1], usize::from(file[at + 2]) << 8 | usize::from(file[at + 3]));
            assert_eq!(file[at], 0xFF);
            let body = &file[at + 4..at + 2 + len];
            at += 2 + len;
            match marker {
                0xC0 => {
                    let side = |at: usize| u64::from(body[at]) << 8 | u64::from(body[at + 1]);
                    sides = (side(3), side(1));
                }
                0xDA => break,
                0xE0 | 0xFE | 0xDB | 0xC4 => {}
                other => panic!("marker {other:x}"),
            }
        }
        let (scan, end) = file[at..].split_at(file.len() - at - 2);
        assert_eq!(end, [0xFF, 0xD9]);
        (scan.to_vec(), sides.0, sides.1)
    }

    fn facts(bytes: &[u8]) -> Result<FileFacts, Obstacle> {
        fixture::inspected(&Jpeg, bytes)
    }

    #[test]
    fn inspect_describes_the_picture() {
        for bytes in [FILE_LEAST, 114_244, 400_000] {
            let found = facts(&encoded(bytes, 1)).unwrap();
            let layout = Layout::of_size(bytes);
            assert_eq!(found.dims, [layout.high * 8, layout.wide * 8]);
            assert_eq!(found.element.as_deref(), Some("uint8"));
        }
        let colours = facts(b"\xFF\xD8\xFF\xFF\xC2\x00\x11\x08\x00\x02\x01\x00\x03").unwrap();
        assert_eq!(colours.dims, [2, 256, 3]);
        assert!(colours.notes[0].contains("progressive"));
    }

    #[test]
    fn an_empty_file_is_refused() {
        fixture::assert_empty_refused(&Jpeg);
    }

    #[test]
    fn files_that_are_not_pictures_are_refused() {
        let cases: [(&[u8], u64, &str); 7] = [
            (b"\x12\x34\x56\x78", 0, "no JPEG signature (FF D8 FF) but [12, 34, 56]"),
            (b"\xFF\xD8", 0, "ends at byte 2"),
            (b"\xFF\xD8\xFF\xE0\x00\x01", 4, "a segment of 1 bytes"),
            (b"\xFF\xD8\xFF\xE0\x00\x02\x00\x00", 6, "00 00 is not a JPEG marker"),
            (b"\xFF\xD8\xFF\xD9", 2, "scan before the frame header"),
            (b"\xFF\xD8\xFF\xC0\x00\x0B\x08\x00\x02\x00\x00\x01", 2, "0 wide"),
            (b"\xFF\xD8\xFF\xE0\xFF\xFF", 65_539, "ends at byte 6"),
        ];
        for (bytes, offset, words) in cases {
            let error = facts(bytes).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(matches!(&error, Obstacle::Damage(damage) if damage.offset == offset), "{error}");
        }
        let endless = [&[0xFF, 0xD8][..], &[0xFF; 20_000]].concat();
        assert!(facts(&endless).unwrap_err().to_string().contains("10000 segments"));
        let good = encoded(FILE_LEAST, 0);
        (0..good.len()).for_each(|len| drop(facts(&good[..len])));
    }

    #[test]
    fn a_file_that_is_not_a_picture_is_read_whole() {
        let seen = ReadPieces::default();
        let look = Look::new(NAME, 4096, &seen);
        let mut reads = Vec::new();
        Jpeg.reads(SourceFile::Foreign { look: &look, samples: 1 }, 0..1, &mut reads).unwrap();
        assert_eq!(reads, [Extent { offset: 0, len: 4096 }]);
    }

    #[test]
    fn every_size_is_exact() {
        let sizes =
            (FILE_LEAST..FILE_LEAST + 1100).chain([4096, 114_244, 114_688, 322_624, 322_957, 2_000_003]);
        for bytes in sizes {
            let file = encoded(bytes, 0);
            assert_eq!(file.len() as u64, bytes);
            let (scan, wide, high) = parsed(&file);
            assert_eq!(scan.len() as u64, wide / 8 * (high / 8) * BLOCK, "{bytes}");
            assert!(!scan.contains(&0xFF), "{bytes}");
        }
    }

    #[test]
    fn no_aligned_512_bytes_are_the_same_in_two_files() {
        for bytes in (FILE_LEAST..FILE_LEAST + 1100).chain([114_244, 322_957]) {
            fixture::assert_blocks_differ(&Jpeg, bytes);
        }
    }

    #[test]
    fn grids_are_nearly_square_and_waste_little() {
        for bytes in
            [10_000, 114_244, 322_957, 10_000_000, 139_000_000, 671_069_025, FILE_MOST - 1, FILE_MOST]
        {
            let layout = Layout::of_size(bytes);
            assert!(layout.wide <= SIDE_MOST && layout.high <= SIDE_MOST);
            assert!(layout.wide <= layout.high && layout.high * 3 <= layout.wide * 4, "{bytes}: {layout:?}");
            assert!(layout.comments * 20 <= bytes, "{bytes}: {layout:?}");
            assert_eq!(FRAME - 20 + layout.comments + layout.wide * layout.high * BLOCK, bytes);
        }
        let largest = Layout { wide: SIDE_MOST, high: SIDE_MOST, comments: 20 };
        assert_eq!(Layout::of_size(FILE_MOST), largest);
    }

    #[test]
    fn comments_have_every_possible_length() {
        for bytes in [20, 65_537, 65_538, 65_539, 65_541, 131_074, 131_075, 400_000] {
            let seen = fixture::written(|out| {
                out.bytes(&[0xFF, 0xD8])?;
                write_comments(out, &Content::new(1), 0, bytes)?;
                out.bytes(&SCAN)?;
                out.bytes(&END)
            });
            assert_eq!(seen.len() as u64, 2 + bytes + 12);
            assert!(parsed(&seen).0.is_empty());
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let sizes: &[(&[u64], Element, u64, &str)] = &[
            (&[FILE_LEAST - 1], Element::Uint8, 1, "the smallest has 833"),
            (&[FILE_MOST + 1], Element::Uint8, 1, "the largest has 8520"),
        ];
        fixture::assert_refused(file_bytes, sizes);
        fixture::assert_refused(file_bytes, fixture::NOT_PICTURES);
    }

    proptest! {
        #[test]
        fn conforms(
            dims in prop::collection::vec(0_u64..400, 1..3), samples in 1_u64..16, seed: u64, file: u64,
        ) {
            // Most of these shapes can be encoded, some cannot.
            let samples = if samples == 15 { 2 } else { 1 };
            conformance::check(&Jpeg, &fixture::shape(&dims, Element::Uint8, samples), seed, file)?;
        }
    }
}
