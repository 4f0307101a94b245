//! npz: the archive that `numpy.savez` writes and DLIO reads, with members `x.npy` (the samples) and `y.npy`
//! (their labels), stored or deflated. The file is never held in memory. The checksum that precedes stored data
//! is computed in a first pass: content is a function, and generating it twice is cheaper than keeping 140 MB.
//! The checksum of deflated data is in a descriptor after it.

mod reads;

use std::ops::Range;

use model::shape::FileShape;
use model::spec::Access;

use crate::array::{self, ArrayHeader};
use crate::deflate::{self, Deflate};
use crate::inflate::StreamWrapper;
use crate::npy_header::Array;
use crate::pieces::{self, Pieces};
use crate::zip::{self, ZipMember};
use crate::{
    Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, FormatOptions,
    Look, Obstacle, SourceFile, error, within,
};

const NAME: &str = "npz";
/// Bytes that are deflated at once.
const STRIDE: usize = 16 * 1024;

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "ZIP of `x.npy` (samples along the last axis) and `y.npy` (labels), deflated with `zip`; zip64 \
             if needed",
    compressions: &["zip"],
    existing: "any npz: zip64, deflated, Fortran order",
    other_suffixes: &[],
    build: |options| Ok(Box::new(Npz::of(options))),
};

#[derive(Debug)]
pub(crate) struct Npz {
    access: Access,
    /// Deflate level, if members are deflated.
    level: Option<u32>,
}

/// The layout of a file. The members' checksums are not known yet, and of deflated members only the maximum size.
struct Layout {
    x_header: ArrayHeader,
    y_header: ArrayHeader,
    x: ZipMember,
    y: ZipMember,
    /// Offset of the central directory.
    directory: u64,
    directory_bytes: u64,
    file_bytes: u64,
}

impl Layout {
    fn of(shape: &FileShape<'_>, level: Option<u32>) -> Result<Layout, FormatError> {
        let payload = error::payload(NAME, shape)?;
        let x_header = ArrayHeader::of_samples(NAME, shape)?;
        let y_header = ArrayHeader::of_labels(NAME, shape)?;
        let fits = |bytes| error::whole(NAME, shape, bytes);
        let member = |name, offset, bytes| match level {
            None => Ok(ZipMember::stored(name, offset, bytes)),
            Some(level) => Ok(ZipMember::deflated(name, offset, bytes, fits(deflate::most(bytes, level))?)),
        };
        let x_bytes = fits(payload.checked_add(x_header.bytes().len() as u64))?;
        let labels = fits(shape.samples.checked_mul(array::LABEL))?;
        let y_bytes = fits(labels.checked_add(y_header.bytes().len() as u64))?;
        let x = member("x.npy", 0, x_bytes)?;
        let y = member("y.npy", fits(x.end())?, y_bytes)?;
        let directory = fits(y.end())?;
        let directory_bytes = x.central_bytes() + y.central_bytes();
        let file_bytes = fits(directory.checked_add(directory_bytes + zip::end_bytes(directory)))?;
        Ok(Layout { x_header, y_header, x, y, directory, directory_bytes, file_bytes })
    }

    fn array(&self, shape: &FileShape<'_>) -> Array {
        Array::ours(shape, self.x_header.bytes().len() as u64)
    }
}

impl Npz {
    fn of(options: &FormatOptions) -> Npz {
        let level = (options.compression == "zip").then_some(options.compression_level);
        Npz { access: options.access, level }
    }

    fn ours(
        &self,
        shape: &FileShape<'_>,
        samples: &Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        let layout = Layout::of(shape, self.level)?;
        within(NAME, samples, shape.samples)?;
        match (self.level, self.access) {
            // The real length is known only from the file; this is the maximum that a visit reads.
            (Some(_), _) => reads.push(Extent { offset: 0, len: layout.file_bytes }),
            (None, Access::Framework) => reads::ArchiveShape::ours(&layout, shape).replay(Vec::new(), reads),
            (None, Access::Extent) => {
                let within_x = layout.array(shape).stretch(samples, shape.samples);
                let offset = layout.x.offset + layout.x.local_bytes() + within_x.offset;
                reads.push(Extent { offset, len: within_x.len });
            }
        }
        Ok(())
    }
}

impl Format for Npz {
    fn name(&self) -> &'static str {
        NAME
    }

    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
        let bytes = Layout::of(shape, self.level)?.file_bytes;
        Ok(if self.level.is_some() { EncodedSize::AtMost(bytes) } else { EncodedSize::Exact(bytes) })
    }

    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError> {
        let mut layout = Layout::of(shape, self.level)?;
        let samples = |offset, out: &mut [u8]| array::fill_samples(shape.element, content, file, offset, out);
        let labels = |offset, out: &mut [u8]| array::fill_labels(content, file, offset, out);
        match self.level {
            None => {
                store_member(out, &layout.x_header, &mut layout.x, samples)?;
                store_member(out, &layout.y_header, &mut layout.y, labels)?;
            }
            Some(level) => {
                deflate_member(out, level, &layout.x_header, &mut layout.x, samples)?;
                deflate_member(out, level, &layout.y_header, &mut layout.y, labels)?;
                layout.directory = out.position();
                layout.directory_bytes = layout.x.central_bytes() + layout.y.central_bytes();
            }
        }
        let Layout { x_header, y_header, x, y, directory, directory_bytes, .. } = &mut layout;
        out.derived(x.central_bytes(), x.bytes, |out| {
            sum_up(x, x_header, samples);
            x.write_central(out)
        })?;
        out.derived(y.central_bytes(), y.bytes, |out| {
            sum_up(y, y_header, labels);
            y.write_central(out)
        })?;
        Ok(zip::write_end(out, 2, *directory, *directory_bytes)?)
    }

    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        match file {
            SourceFile::Ours(shape) => self.ours(shape, &samples, reads),
            SourceFile::Foreign { look, samples: expected } => {
                reads::foreign(look, self.access, expected, &samples, reads)
            }
        }
    }

    /// NumPy's requests also bring the archive's records, and its first request locates the member.
    fn decodes(&self) -> bool {
        self.level.is_some() && self.access == Access::Extent
    }

    fn decode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Obstacle> {
        match self.decodes() {
            true => StreamWrapper::Bare.inflate_all(NAME, bytes, out)?,
            false => bytes.clone_into(out),
        }
        Ok(())
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        reads::inspect(look)
    }
}

/// Computes a member's checksum, unless it is known.
fn sum_up(member: &mut ZipMember, header: &ArrayHeader, produce: impl Fn(u64, &mut [u8])) {
    member.crc.get_or_insert_with(|| {
        let mut crc = crc32fast::Hasher::new();
        crc.update(header.bytes());
        pieces::checksum(crc, member.bytes - header.bytes().len() as u64, produce)
    });
}

fn store_member(
    out: &mut Pieces<'_, '_>,
    header: &ArrayHeader,
    member: &mut ZipMember,
    produce: impl Fn(u64, &mut [u8]),
) -> std::io::Result<()> {
    out.derived(member.local_bytes(), member.bytes, |out| {
        sum_up(member, header, &produce);
        member.write_local(out)
    })?;
    out.bytes(header.bytes())?;
    out.produce(member.bytes - header.bytes().len() as u64, produce)
}

/// Writes a member whose position in the archive and size are found during writing.
fn deflate_member(
    out: &mut Pieces<'_, '_>,
    level: u32,
    header: &ArrayHeader,
    member: &mut ZipMember,
    produce: impl Fn(u64, &mut [u8]),
) -> std::io::Result<()> {
    member.offset = out.position();
    member.write_local(out)?;
    let mut deflate = Deflate::new(level);
    deflate.write(out, header.bytes())?;
    let (mut stride, payload) = (vec![0; STRIDE], member.bytes - header.bytes().len() as u64);
    let mut done = 0;
    while done < payload {
        let part = (payload - done).min(STRIDE as u64);
        let bytes = &mut stride[..part as usize];
        produce(done, bytes);
        deflate.write(out, bytes)?;
        done += part;
    }
    let end = deflate.finish(out)?;
    (member.bytes, member.packed, member.crc) = (end.bytes, end.packed, Some(end.crc));
    member.write_descriptor(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use crate::fixture::{self, encoded, pairs, shape};
    use model::shape::Element;
    use proptest::prelude::*;

    const FRAMEWORK: Npz = Npz { access: Access::Framework, level: None };
    const EXTENT: Npz = Npz { access: Access::Extent, level: None };

    fn file_bytes(shape: &FileShape<'_>) -> u64 {
        Layout::of(shape, None).unwrap().file_bytes
    }

    #[test]
    fn a_small_file_is_payload_and_labels_and_450_bytes() {
        for (dims, element, samples) in [
            (&[568_u64, 568] as &[u64], Element::Uint8, 1),
            (&[12_107, 12_107], Element::Uint8, 1),
            (&[16, 16], Element::Float32, 40),
            (&[1], Element::Bool, 1),
        ] {
            let shape = shape(dims, element, samples);
            assert_eq!(file_bytes(&shape), shape.payload_bytes() + 8 * samples + 450);
        }
    }

    #[test]
    fn a_file_beyond_32_bits_is_zip64() {
        let bytes = |payload: u64| file_bytes(&shape(&[payload], Element::Uint8, 1)) - payload - 8;
        // The samples fit, the labels' header and the directory do not start beyond the limit either.
        assert_eq!(bytes((1 << 32) - 1000), 450);
        // 128 bytes of header make the member too long: both its records grow by 20, the labels' entry by 12
        // because they start beyond the limit, and the end by 76.
        assert_eq!(bytes((1 << 32) - 129), 450 + 20 + 20 + 12 + 76);
        // The member just fits, but what follows it is out of reach.
        assert_eq!(bytes((1 << 32) - 130), 450 + 12 + 76);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let size = |shape: &FileShape<'_>| FRAMEWORK.size(shape);
        fixture::assert_refused(size, fixture::NOT_ARRAYS);
        fixture::assert_refused(size, &[(&[1], Element::Uint8, 1 << 60, "too large")]);
    }

    #[test]
    fn the_first_member_starts_at_the_specified_offset() {
        let bytes = encoded(&FRAMEWORK, &shape(&[64, 64], Element::Uint8, 1));
        let mut samples = vec![0; 4096];
        Content::new(1).fill(3, 0, &mut samples);
        assert_eq!(bytes[..4], *b"PK\x03\x04");
        assert_eq!(bytes[35..41], *b"\x93NUMPY");
        assert_eq!(bytes[163..][..4096], samples);
        assert_eq!(bytes[14..18], crc32fast::hash(&bytes[35..163 + 4096]).to_le_bytes());
        assert_eq!(bytes[163 + 4096 + 163..][..8], Content::new(1).label(3, 0).to_le_bytes());
    }

    fn ours(format: &Npz, shape: &FileShape<'_>) -> Vec<(u64, u64)> {
        pairs(&fixture::ours(format, shape, 0..1))
    }

    /// The reads of an existing file: the lookups, then the reads of the samples.
    fn foreign(
        format: &Npz,
        bytes: &[u8],
        samples: u64,
        wanted: Range<u64>,
    ) -> Result<(Vec<Extent>, Vec<Extent>), Obstacle> {
        let (reads, looks) = fixture::looked_up(format, bytes, samples, wanted);
        Ok((looks, reads?))
    }

    /// Recorded with strace of `numpy.load(file)["x"]` (Python 3.11.7, NumPy 2.4.6).
    #[test]
    fn requests_are_those_of_numpy() {
        let small = shape(&[10, 10], Element::Uint8, 1);
        assert_eq!(ours(&FRAMEWORK, &small), [(558, 0), (22, 536), (42, 516), (124, 434), (558, 0)]);
        let middle = shape(&[300, 333], Element::Uint8, 1);
        let wanted = [
            (4096, 0),
            (22, 100_336),
            (42, 100_316),
            (124, 100_234),
            (4096, 0),
            (4096, 4096),
            (90_112, 8192),
            (2054, 98_304),
        ];
        assert_eq!(ours(&FRAMEWORK, &middle), wanted);
        let large = shape(&[1024, 1024], Element::Uint8, 1);
        let reads = ours(&FRAMEWORK, &large);
        assert_eq!(
            reads[4..9],
            [(4096, 0), (4096, 4096), (253_952, 8192), (4096, 262_144), (258_048, 266_240)]
        );
        assert_eq!(
            reads[9..],
            [(4096, 524_288), (258_048, 528_384), (4096, 786_432), (258_048, 790_528), (458, 1_048_576)]
        );
    }

    #[test]
    fn beyond_32_bits_the_zip64_records_are_read_too() {
        let reads = ours(&FRAMEWORK, &shape(&[1 << 32], Element::Uint8, 1));
        let len = file_bytes(&shape(&[1 << 32], Element::Uint8, 1));
        assert_eq!(reads[2..4], [(42, len - 42), (98, len - 98)]);
    }

    #[test]
    fn an_existing_file_is_read_like_a_generated_one() {
        for (dims, samples) in [(&[7_u64, 5] as &[u64], 1), (&[64, 64], 1), (&[64, 60], 3), (&[600, 700], 2)]
        {
            for element in [Element::Uint8, Element::Float64] {
                let shape = shape(dims, element, samples);
                let bytes = encoded(&EXTENT, &shape);
                for wanted in [0..1, samples - 1..samples, 0..samples] {
                    let mut known = Vec::new();
                    EXTENT.reads(SourceFile::Ours(&shape), wanted.clone(), &mut known).unwrap();
                    let (asked, reads) = foreign(&EXTENT, &bytes, samples, wanted.clone()).unwrap();
                    assert_eq!(reads, known);
                    assert!(asked.len() <= 2, "{asked:?}");
                    let (asked, reads) = foreign(&FRAMEWORK, &bytes, samples, wanted).unwrap();
                    let (mut all, mut known) = ([asked, reads].concat(), Vec::new());
                    FRAMEWORK.reads(SourceFile::Ours(&shape), 0..1, &mut known).unwrap();
                    if bytes.len() < 4096 {
                        // The first request shows the end, which is requested again later.
                        all.sort_by_key(|read| (read.offset, read.len));
                        known.sort_by_key(|read| (read.offset, read.len));
                    }
                    assert_eq!(all, known, "{shape:?}");
                }
            }
        }
    }

    #[test]
    fn a_deflated_array_is_one_piece_and_its_header_is_found() {
        for level in [0, 1, 4, 9] {
            let deflating = Npz { access: Access::Extent, level: Some(level) };
            let shape = shape(&[100, 100], Element::Float32, 3);
            let bytes = encoded(&deflating, &shape);
            let (_, reads) = foreign(&deflating, &bytes, 3, 1..2).unwrap();
            assert_eq!((reads.len(), reads[0].offset), (1, 35));
            let facts = fixture::inspected(&deflating, &bytes).unwrap();
            assert_eq!((facts.samples, &facts.dims[..]), (Some(3), &[100, 100][..]));
            assert!(facts.notes[0].contains("deflated from 120128"), "{facts:?}");
            let framework = Npz { access: Access::Framework, ..deflating };
            let (asked, reads) = foreign(&framework, &bytes, 3, 0..3).unwrap();
            let all = [asked, reads].concat();
            assert!(all.iter().any(|read| read.end() >= 35 + bytes.len() as u64 - 600), "{all:?}");
        }
    }

    #[test]
    fn damage_is_reported_with_its_offset() {
        let shape = shape(&[40, 40], Element::Uint8, 2);
        for format in [FRAMEWORK, EXTENT, Npz { access: Access::Framework, level: Some(4) }] {
            let good = encoded(&format, &shape);
            for len in 0..good.len() {
                let error = foreign(&format, &good[..len], 2, 0..1).unwrap_err().to_string();
                assert!(error.contains("at byte"), "{len}: {error}");
            }
            for at in 0..good.len() {
                for flip in [1, 0x80, 0xFF] {
                    let mut bad = good.clone();
                    bad[at] ^= flip;
                    let _ = foreign(&format, &bad, 2, 0..1);
                }
            }
        }
    }

    #[test]
    fn reads_of_a_deflated_array_inflate_to_it() {
        let (shape, mut out) = (shape(&[60, 70], Element::Float32, 3), Vec::new());
        let deflated = Npz { access: Access::Extent, level: Some(6) };
        let bytes = encoded(&deflated, &shape);
        let (_, reads) = foreign(&deflated, &bytes, 3, 0..3).unwrap();
        let [read] = reads[..] else { panic!("{reads:?}") };
        let packed = &bytes[read.offset as usize..read.end() as usize];
        assert!(deflated.decodes());
        deflated.decode(packed, &mut out).unwrap();
        let stored = encoded(&EXTENT, &shape);
        assert!(out == stored[35..][..128 + 3 * 60 * 70 * 4]);
        // NumPy's requests also bring the archive's records.
        assert!(!Npz { access: Access::Framework, level: Some(6) }.decodes() && !EXTENT.decodes());
        let error = deflated.decode(&packed[1000..], &mut out).unwrap_err().to_string();
        assert!(error.starts_with("not a valid npz file: "), "{error}");
    }

    #[test]
    fn impossible_claims_are_damage() {
        let good = encoded(&EXTENT, &shape(&[40, 40], Element::Uint8, 1));
        let entry = good.len() - 22 - 102;
        let with = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            foreign(&EXTENT, &bad, 1, 0..1).unwrap_err().to_string()
        };
        assert!(with(entry + 8, &[1]).contains("encrypted"));
        assert!(with(entry + 10, &[12]).contains("method 12"));
        assert!(with(entry + 20, &[0xFF; 3]).contains("does not fit"));
        assert!(with(entry + 24, &[0, 0, 0, 9]).contains("cannot inflate to"));
        assert!(with(entry + 42, &[0, 0, 0, 9]).contains("the offset of member"));
        assert!(with(entry + 42, &[1, 0]).contains("no header of member x.npy"));
        assert!(with(entry, b"QQ").contains("a damaged entry"));
        assert!(with(good.len() - 22, b"QQ").contains("no end record"));
        assert!(with(good.len() - 7, &[9]).contains("before the start of the file"));
        assert!(with(40, b"QQ").contains("no NumPy signature"));
        // Without x the first array is used; without any array it is not an npz.
        let mut labels = good.clone();
        labels[entry + 46..entry + 51].copy_from_slice(b"z.txt");
        assert_eq!(foreign(&EXTENT, &labels, 1, 0..1).unwrap().1[0].len, 8);
        let mut none = good.clone();
        for at in [entry + 46, entry + 51 + 46] {
            none[at..at + 5].copy_from_slice(b"z.txt");
        }
        let error = foreign(&EXTENT, &none, 1, 0..1).unwrap_err().to_string();
        assert!(error.contains("no member whose name ends in .npy"), "{error}");
    }

    proptest! {
        #[test]
        fn conforms(
            dims in prop::collection::vec(0_u64..24, 0..4), element in 0..Element::ALL.len(),
            samples in 0_u64..6, seed: u64, file: u64, level in 0_u32..10,
        ) {
            let access = if seed % 2 == 0 { Access::Framework } else { Access::Extent };
            let shape = shape(&dims, Element::ALL[element], samples);
            for format in [FRAMEWORK, EXTENT, Npz { access, level: Some(level) }] {
                conformance::check(&format, &shape, seed, file)?;
            }
        }
    }
}
