//! png: real pictures of exactly the planned size, generated at memory speed. Nothing is compressed: the pixels
//! are in stored blocks of the deflate stream.
//!
//! The picture is greyscale, 8 bits, not interlaced, nearly square, each row unfiltered. A private chunk of
//! random bytes before the pixels takes the bytes that do not fill a whole row. Every file has it, so that the
//! constant bytes at the start share their aligned 512 bytes with random ones (storage with deduplication would
//! store the block once), and so that no rest is too short for a chunk.

use crate::pieces::Pieces;
use crate::{
    ArrayList, Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, Look,
    Obstacle, SourceFile, error, look::peek, picture, read_whole,
};
use model::shape::FileShape;
use std::io;
use std::ops::Range;

const NAME: &str = "png";

const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1A\n";
/// Length and type before a chunk's body, CRC after it.
const CHUNK: u64 = 4 + 4 + 4;
const HEADER: &[u8; 4] = b"IHDR";
const HEADER_BYTES: usize = 13;
/// A private chunk, by the case of its letters: not critical, not registered, safe to copy.
const FILLER: &[u8; 4] = b"fdLn";
const PIXELS: &[u8; 4] = b"IDAT";
const END: &[u8; 4] = b"IEND";
/// Random bytes that make files distinct: 128 bits.
const FILLER_LEAST: u64 = 16;
/// The maximum of a chunk's length, a signed number of 32 bits.
const CHUNK_MOST: u64 = (1 << 31) - 1;

/// Header of a zlib stream: deflate with a window of 32 KiB, fastest method.
const ZLIB: [u8; 2] = [0x78, 0x01];
/// Bytes of a zlib stream around its blocks: the header, and an Adler-32 at the end.
const ZLIB_FRAME: u64 = 2 + 4;
/// A stored block: one byte of flags, its length and the length's complement, then the data.
const BLOCK_HEAD: u64 = 1 + 2 + 2;
const BLOCK_MOST: u64 = 65_535;

/// Bytes of a file without the blocks and without the filler's bytes beyond its minimum.
const FRAME: u64 = SIGNATURE.len() as u64 + 4 * CHUNK + HEADER_BYTES as u64 + FILLER_LEAST + ZLIB_FRAME;
/// One pixel and its row's filter byte.
const FILE_LEAST: u64 = FRAME + BLOCK_HEAD + 2;
/// All pixels are in one chunk.
const FILE_MOST: u64 = FRAME - ZLIB_FRAME + CHUNK_MOST;

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "a real greyscale image of exactly the planned size",
    compressions: &[],
    existing: "any file: it is read whole",
    other_suffixes: &[],
    build: |_| Ok(Box::new(Png)),
};

#[derive(Debug)]
pub(crate) struct Png;

/// How a file's size is divided.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    /// Pixels along the sides.
    wide: u64,
    high: u64,
    /// Random bytes in the chunk before the pixels.
    filler: u64,
}

impl Layout {
    fn of(shape: &FileShape<'_>) -> Result<Layout, FormatError> {
        let bytes = error::picture(NAME, shape, FILE_LEAST..=FILE_MOST)?;
        Ok(Layout::of_size(bytes))
    }

    /// A picture whose width is the square root of the available bytes; its height equals the width or is one
    /// row less. The rest is less than a row and two block headers.
    fn of_size(bytes: u64) -> Layout {
        let room = bytes - FRAME;
        let rows = room - room.div_ceil(BLOCK_HEAD + BLOCK_MOST) * BLOCK_HEAD;
        let wide = rows.isqrt();
        let high = rows / (wide + 1);
        let mut layout = Layout { wide, high, filler: FILLER_LEAST };
        layout.filler += room - layout.rows() - layout.blocks() * BLOCK_HEAD;
        layout
    }

    /// Bytes of a row: the filter byte, then a byte per pixel.
    fn row(&self) -> u64 {
        1 + self.wide
    }

    fn rows(&self) -> u64 {
        self.high * self.row()
    }

    fn blocks(&self) -> u64 {
        self.rows().div_ceil(BLOCK_MOST)
    }

    fn zlib(&self) -> u64 {
        ZLIB_FRAME + self.blocks() * BLOCK_HEAD + self.rows()
    }

    /// Width and height, then: 8 bits, grey, deflate, the usual filters, not interlaced.
    fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        // A side is at most the root of FILE_MOST.
        header[..4].copy_from_slice(&(self.wide as u32).to_be_bytes());
        header[4..8].copy_from_slice(&(self.high as u32).to_be_bytes());
        header[8] = 8;
        header
    }
}

impl Format for Png {
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
        out.bytes(&SIGNATURE)?;
        write_chunk(out, HEADER, HEADER_BYTES as u64, |chunk| chunk.bytes(&layout.header()))?;
        write_chunk(out, FILLER, layout.filler, |chunk| {
            let start = chunk.out.position();
            chunk.produce(layout.filler, |offset, part| content.fill(file, start + offset, part))
        })?;
        write_chunk(out, PIXELS, layout.zlib(), |chunk| write_pixels(chunk, &layout, content, file))?;
        Ok(write_chunk(out, END, 0, |_| Ok(()))?)
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
        Ok(picture::decode_png(NAME, bytes, out)?)
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        let start = peek(look, 0, 8)?;
        if start != SIGNATURE {
            return Err(look.damage(0, format!("no PNG signature (89 'PNG') but {start:02X?}")).into());
        }
        // The header must be the first chunk (PNG 5.6): its length, type, 13 bytes and their checksum.
        let chunk = peek(look, 8, CHUNK + HEADER_BYTES as u64)?;
        let (Some(&[w0, w1, w2, w3, h0, h1, h2, h3, bits, colour, ..]), Some(summed), Some(sum)) =
            (chunk.get(8..21), chunk.get(4..21), chunk.get(21..25))
        else {
            return Err(look.damage(8, "the header is truncated").into());
        };
        if chunk.get(..8) != Some(b"\0\0\0\x0DIHDR") {
            return Err(look.damage(8, "the first chunk is not the header").into());
        }
        if crc32fast::hash(summed).to_be_bytes() != sum {
            return Err(look.damage(29, "checksum mismatch in the header").into());
        }
        let wide = u64::from(u32::from_be_bytes([w0, w1, w2, w3]));
        let high = u64::from(u32::from_be_bytes([h0, h1, h2, h3]));
        picture(wide, high, bits, colour).ok_or_else(|| {
            let what = format!("a picture of {wide} x {high}, {bits} bits, colour type {colour}");
            look.damage(16, what).into()
        })
    }
}

/// What the header's numbers mean (PNG 11.2.2), if they are valid.
fn picture(wide: u64, high: u64, bits: u8, colour: u8) -> Option<FileFacts> {
    let (channels, colours) = match (colour, bits) {
        (0, 1 | 2 | 4 | 8 | 16) => (1, "grey"),
        (2, 8 | 16) => (3, "colours"),
        (3, 1 | 2 | 4 | 8) => (1, "a palette's colours"),
        (4, 8 | 16) => (2, "grey and transparency"),
        (6, 8 | 16) => (4, "colours and transparency"),
        _ => return None,
    };
    if wide == 0 || high == 0 {
        return None;
    }
    let dims = if channels == 1 { vec![high, wide] } else { vec![high, wide, channels] };
    let element = if bits == 16 { "uint16" } else { "uint8" };
    let notes = vec![format!("{colours}, {bits} bits, channels: {channels}")];
    let arrays = ArrayList::only(&dims, element);
    Some(FileFacts { samples: Some(1), dims, element: Some(element.to_owned()), arrays, notes })
}

fn file_bytes(shape: &FileShape<'_>) -> Result<u64, FormatError> {
    Layout::of(shape).map(|_| shape.payload_bytes())
}

/// A chunk being written, with its running checksum.
struct PngChunk<'o, 'a, 's> {
    out: &'o mut Pieces<'a, 's>,
    crc: &'o mut crc32fast::Hasher,
}

impl PngChunk<'_, '_, '_> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.out.bytes(bytes)
    }

    /// Appends what `produce(offset, part)` generates, and checksums each part while it is in the cache.
    fn produce(&mut self, len: u64, mut produce: impl FnMut(u64, &mut [u8])) -> io::Result<()> {
        let crc = &mut *self.crc;
        self.out.produce(len, |offset, part| {
            produce(offset, part);
            crc.update(part);
        })
    }

    /// Appends what `stretch` writes, followed by the checksum that it returns.
    fn summed(
        &mut self,
        mut stretch: impl FnMut(&mut PngChunk<'_, '_, '_>) -> io::Result<[u8; 4]>,
    ) -> io::Result<()> {
        let crc = &mut *self.crc;
        self.out.summed(|out| {
            let sum = stretch(&mut PngChunk { out, crc })?;
            crc.update(&sum);
            Ok(sum)
        })
    }
}

/// Writes a chunk whose body is the `len` bytes that `body` writes.
fn write_chunk(
    out: &mut Pieces<'_, '_>,
    kind: &[u8; 4],
    len: u64,
    body: impl Fn(&mut PngChunk<'_, '_, '_>) -> io::Result<()>,
) -> io::Result<()> {
    // Layout keeps every chunk below CHUNK_MOST.
    out.bytes(&(len as u32).to_be_bytes())?;
    out.summed(|out| {
        let mut crc = crc32fast::Hasher::new();
        let mut chunk = PngChunk { out, crc: &mut crc };
        chunk.bytes(kind)?;
        body(&mut chunk)?;
        Ok(crc.finalize().to_be_bytes())
    })
}

/// Writes the rows as a zlib stream of stored blocks: the content stream, taken at the file's own offset, with a
/// 0 ("not filtered") at the start of each row.
fn write_pixels(
    chunk: &mut PngChunk<'_, '_, '_>,
    layout: &Layout,
    content: &Content,
    file: u64,
) -> io::Result<()> {
    chunk.bytes(&ZLIB)?;
    chunk.summed(|chunk| {
        let mut adler = Adler::new();
        for block in 0..layout.blocks() {
            let from = block * BLOCK_MOST;
            let len = BLOCK_MOST.min(layout.rows() - from);
            let [low, high] = (len as u16).to_le_bytes();
            chunk.bytes(&[u8::from(block + 1 == layout.blocks()), low, high, !low, !high])?;
            let start = chunk.out.position();
            chunk.produce(len, |offset, part| {
                content.fill(file, start + offset, part);
                clear_filters(layout.row(), from + offset, part);
                adler.update(part);
            })?;
        }
        Ok(adler.finish().to_be_bytes())
    })
}

/// Sets to 0 the first byte of each row of `row` bytes; `part` starts at `offset` within the rows.
fn clear_filters(row: u64, offset: u64, part: &mut [u8]) {
    let mut at = offset.next_multiple_of(row) - offset;
    while let Some(byte) = part.get_mut(at as usize) {
        *byte = 0;
        at += row;
    }
}

/// The checksum of zlib (RFC 1950): `a` is 1 plus the sum of the bytes, `b` the sum of all intermediate values of
/// `a`, both modulo a prime.
struct Adler {
    a: u64,
    b: u64,
}

impl Adler {
    /// The largest prime below 2^16.
    const MODULUS: u64 = 65_521;
    /// Bytes that are summed in parallel, so that the compiler uses vector instructions.
    const LANES: usize = 32;
    /// With this many steps each lane's sums, at most 255 * n * (n + 1) / 2, stay within 16 bits.
    const STEPS: usize = 22;

    fn new() -> Adler {
        Adler { a: 1, b: 0 }
    }

    /// Takes fewer than 2^28 bytes, which keeps `b` within 64 bits; one division at the end is then enough.
    fn update(&mut self, bytes: &[u8]) {
        let (groups, tail) = bytes.as_chunks::<{ Adler::LANES }>();
        groups.chunks(Adler::STEPS).for_each(|groups| self.update_groups(groups));
        for byte in tail {
            self.a += u64::from(*byte);
            self.b += self.a;
        }
        self.a %= Adler::MODULUS;
        self.b %= Adler::MODULUS;
    }

    /// Lane j holds the sum of its bytes in `sums` and the sum of its intermediate sums in `weighted`. A byte
    /// of lane j with n steps left, including its own, has LANES * n - j bytes left, and counts that often in
    /// `b`.
    fn update_groups(&mut self, groups: &[[u8; Adler::LANES]]) {
        let (mut sums, mut weighted) = ([0_u16; Adler::LANES], [0_u16; Adler::LANES]);
        for group in groups {
            for lane in 0..Adler::LANES {
                sums[lane] += u16::from(group[lane]);
                weighted[lane] += sums[lane];
            }
        }
        let total = |lanes: &[u16]| lanes.iter().map(|sum| u32::from(*sum)).sum::<u32>();
        let ahead: u32 = sums.iter().zip(0..).map(|(sum, lane)| u32::from(*sum) * lane).sum();
        self.b += (groups.len() * Adler::LANES) as u64 * self.a;
        self.b += u64::from(Adler::LANES as u32 * total(&weighted) - ahead);
        self.a += u64::from(total(&sums));
    }

    /// Both sums, each below 2^16.
    fn finish(self) -> u32 {
        (self.b << 16 | self.a) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{conformance, fixture};
    use model::shape::Element;
    use proptest::prelude::*;

    fn encoded(bytes: u64, file: u64) -> Vec<u8> {
        fixture::encoded_as(&Png, &fixture::picture(&[bytes]), 1, file)
    }

    /// Adler-32, literally as in RFC 1950.
    fn slow_adler(bytes: &[u8]) -> u32 {
        let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65_521;
            (a, (b + a) % 65_521)
        });
        b << 16 | a
    }

    /// The big-endian number at `at`.
    fn number(bytes: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// Walks the chunks like a decoder, with their checksums, and returns types and bodies.
    fn chunks(file: &[u8]) -> Vec<(&[u8], &[u8])> {
        assert_eq!(file[..8], SIGNATURE);
        let (mut at, mut chunks) = (8, Vec::new());
        while at < file.len() {
            let end = at + 8 + number(file, at) as usize;
            assert_eq!(number(file, end), crc32fast::hash(&file[at + 4..end]));
            chunks.push((&file[at + 4..at + 8], &file[at + 8..end]));
            at = end + 4;
        }
        chunks
    }

    /// The content of a zlib stream of stored blocks.
    fn inflated(zlib: &[u8]) -> Vec<u8> {
        assert_eq!(zlib[0] & 0x0F, 8, "deflate");
        assert_eq!((u32::from(zlib[0]) << 8 | u32::from(zlib[1])) % 31, 0);
        let (mut at, mut rows) = (2, Vec::new());
        loop {
            let word = |at: usize| u16::from_le_bytes([zlib[at], zlib[at + 1]]);
            let (last, len) = (zlib[at], word(at + 1));
            assert_eq!(word(at + 3), !len);
            rows.extend_from_slice(&zlib[at + 5..][..usize::from(len)]);
            at += 5 + usize::from(len);
            match last {
                0 => {}
                1 => break,
                other => panic!("block type {other}"),
            }
        }
        assert_eq!(zlib.len(), at + 4);
        assert_eq!(number(zlib, at), slow_adler(&rows));
        rows
    }

    /// Sizes near the minimum, near whole numbers of full blocks, and of workloads.
    fn sizes() -> impl Iterator<Item = u64> {
        let around_blocks = (1..3).flat_map(|blocks: u64| {
            let full = FRAME + blocks * (BLOCK_HEAD + BLOCK_MOST);
            full - 20..full + 300
        });
        (FILE_LEAST..FILE_LEAST + 1100).chain(around_blocks).chain([4096, 114_244, 322_624, 2_000_003])
    }

    fn facts(bytes: &[u8]) -> Result<FileFacts, Obstacle> {
        fixture::inspected(&Png, bytes)
    }

    #[test]
    fn inspect_describes_the_picture() {
        let file = encoded(114_244, 1);
        let (found, layout) = (facts(&file).unwrap(), Layout::of_size(114_244));
        assert_eq!((&found.dims[..], found.samples), (&[layout.high, layout.wide][..], Some(1)));
        assert_eq!(picture(5, 6, 16, 6).unwrap().dims, [6, 5, 4]);
        assert_eq!(picture(5, 6, 16, 6).unwrap().element.as_deref(), Some("uint16"));
        assert_eq!(picture(5, 6, 16, 3), None);
        assert_eq!(picture(5, 0, 8, 0), None);
        (0..60).for_each(|len| drop(facts(&file[..len])));
    }

    #[test]
    fn an_empty_file_is_refused() {
        fixture::assert_empty_refused(&Png);
    }

    #[test]
    fn files_that_are_not_pictures_are_refused() {
        let file = encoded(FILE_LEAST, 1);
        let broken = |at: usize| {
            let mut bytes = file.clone();
            bytes[at] ^= 1;
            bytes
        };
        let cases = [
            (broken(1), 0, "no PNG signature"),
            (broken(12), 8, "the first chunk"),
            (broken(20), 29, "checksum"),
            (file[..20].to_vec(), 8, "ends at byte 20"),
        ];
        for (bytes, offset, words) in cases {
            let error = facts(&bytes).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(matches!(&error, Obstacle::Damage(damage) if damage.offset == offset), "{error}");
        }
    }

    #[test]
    fn every_size_is_exact() {
        for bytes in sizes() {
            let file = encoded(bytes, 0);
            assert_eq!(file.len() as u64, bytes);
            let chunks = chunks(&file);
            let kinds: Vec<&[u8]> = chunks.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, [HEADER, FILLER, PIXELS, END]);
            let (header, rows) = (chunks[0].1, inflated(chunks[2].1));
            let (wide, high) = (number(header, 0) as usize, number(header, 4) as usize);
            assert_eq!(header[8..], [8, 0, 0, 0, 0]);
            assert_eq!(rows.len(), (wide + 1) * high, "{bytes}");
            assert!(rows.iter().step_by(wide + 1).all(|filter| *filter == 0), "{bytes}");
        }
    }

    #[test]
    fn no_aligned_512_bytes_are_the_same_in_two_files() {
        for bytes in sizes() {
            fixture::assert_blocks_differ(&Png, bytes);
        }
    }

    #[test]
    fn pictures_are_nearly_square_and_waste_less_than_a_row_and_two_heads() {
        for bytes in (FILE_LEAST..200_000).chain([139_000_000, 671_069_025, FILE_MOST - 1, FILE_MOST]) {
            let layout = Layout::of_size(bytes);
            assert!(layout.high >= 1 && layout.high <= layout.wide, "{bytes}: {layout:?}");
            assert!(layout.wide <= layout.high + 1, "{bytes}: {layout:?}");
            assert!(layout.filler >= FILLER_LEAST, "{bytes}: {layout:?}");
            assert!(layout.filler < FILLER_LEAST + layout.row() + 2 * BLOCK_HEAD, "{bytes}: {layout:?}");
            assert!(layout.zlib() <= CHUNK_MOST);
            assert_eq!(FRAME - ZLIB_FRAME - FILLER_LEAST + layout.filler + layout.zlib(), bytes);
        }
        assert_eq!(Layout::of_size(FILE_LEAST), Layout { wide: 1, high: 1, filler: 16 });
    }

    #[test]
    fn adler_sums_do_not_overflow() {
        // The largest byte value, for many rounds of steps.
        let bytes = vec![0xFF; Adler::LANES * Adler::STEPS * 300 + 77];
        let mut adler = Adler::new();
        adler.update(&bytes);
        assert_eq!(adler.finish(), slow_adler(&bytes));
        assert_eq!(Adler::new().finish(), 1);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let sizes: &[(&[u64], Element, u64, &str)] = &[
            (&[FILE_LEAST - 1], Element::Uint8, 1, "the smallest has 98"),
            (&[FILE_MOST + 1], Element::Uint8, 1, "the largest has 2147483732"),
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
            conformance::check(&Png, &fixture::shape(&dims, Element::Uint8, samples), seed, file)?;
        }

        #[test]
        fn adler_is_zlibs_however_it_is_cut(
            bytes in prop::collection::vec(any::<u8>(), 0..2000), cut in 0_usize..2000,
        ) {
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            let mut adler = Adler::new();
            adler.update(head);
            adler.update(tail);
            prop_assert_eq!(adler.finish(), slow_adler(&bytes));
        }
    }
}
