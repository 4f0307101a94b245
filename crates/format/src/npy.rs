//! npy: what `numpy.save` writes: one array of the samples, without labels. `array` generates the array's bytes.

use std::ops::Range;

use model::shape::FileShape;
use model::spec::Access;

use crate::array::{self, ArrayHeader};
use crate::buffered::{BUFFER, Buffered};
use crate::npy_header::{self, Array};
use crate::pieces::Pieces;
use crate::unzip::ArchiveReader;
use crate::{
    Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, Look, Obstacle,
    SourceFile, error, within,
};

const NAME: &str = "npy";

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "one array, samples along the last axis",
    compressions: &[],
    existing: "npy 1 to 3",
    other_suffixes: &[],
    build: |options| Ok(Box::new(Npy { access: options.access })),
};

/// The maximum that Linux reads at once (`MAX_RW_COUNT`). A longer read returns this much and must be continued.
const READ_MOST: u64 = 0x7FFF_F000;

#[derive(Debug)]
pub(crate) struct Npy {
    access: Access,
}

/// The two parts of a file: the header, and the number of element bytes after it.
struct Layout {
    header: ArrayHeader,
    payload: u64,
}

impl Layout {
    fn of(shape: &FileShape<'_>) -> Result<Layout, FormatError> {
        let payload = error::payload(NAME, shape)?;
        let header = ArrayHeader::of_samples(NAME, shape)?;
        error::whole(NAME, shape, payload.checked_add(header.bytes().len() as u64))?;
        Ok(Layout { header, payload })
    }
}

impl Format for Npy {
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
        out.bytes(layout.header.bytes())?;
        Ok(out.produce(layout.payload, |offset, part| {
            array::fill_samples(shape.element, content, file, offset, part);
        })?)
    }

    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        let (len, array, held, known) = match file {
            SourceFile::Ours(shape) => {
                let layout = Layout::of(shape)?;
                let header = layout.header.bytes().len() as u64;
                (header + layout.payload, Array::ours(shape, header), shape.samples, Vec::new())
            }
            SourceFile::Foreign { look, samples: expected } => {
                let mut fetch = ArchiveReader::new(look, self.access == Access::Framework);
                let array = npy_header::read(look, 0, look.len, |count| fetch.get(0, count))?.array;
                let held = array.held(expected);
                (look.len, array, held, fetch.made)
            }
        };
        within(NAME, &samples, held)?;
        match self.access {
            Access::Framework => replay(len, &array, known, reads),
            Access::Extent => reads.push(array.stretch(&samples, held)),
        }
        Ok(())
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        let mut fetch = ArchiveReader::new(look, false);
        let header = npy_header::read(look, 0, look.len, |count| fetch.get(0, count))?;
        Ok(header.facts(header.only(), Vec::new()))
    }
}

/// Appends the requests of `numpy.load` (Python 3.11, NumPy 2, glibc), except those in `known`. Python reads the
/// header; then C's buffered input seeks to the elements and reads them.
fn replay(len: u64, array: &Array, known: Vec<Extent>, reads: &mut Vec<Extent>) {
    Buffered::new(len, known, reads).read(array.header);
    // C's buffer is filled from the start of a page: up to the target by the seek, then completely by the
    // read.
    let page = array.header - array.header % BUFFER;
    let mut ask = |offset: u64, count: u64| {
        let count = count.min(len.saturating_sub(offset));
        if count > 0 {
            reads.push(Extent { offset, len: count });
        }
        offset.saturating_add(count)
    };
    ask(page, array.header - page);
    let end = array.header.saturating_add(array.payload());
    let mut at = ask(page, BUFFER);
    while end.saturating_sub(at) >= BUFFER {
        let rest = end - at;
        at = ask(at, (rest - rest % BUFFER).min(READ_MOST));
    }
    if end > at {
        ask(at, BUFFER);
    }
}

fn file_bytes(shape: &FileShape<'_>) -> Result<u64, FormatError> {
    let layout = Layout::of(shape)?;
    Ok(layout.header.bytes().len() as u64 + layout.payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, pairs, shape};
    use crate::{ReadPieces, conformance};
    use model::shape::Element;
    use proptest::prelude::*;

    #[test]
    fn a_file_is_a_header_of_64s_and_the_payload() {
        for (dims, element, samples, header) in [
            (&[568_u64, 568] as &[u64], Element::Uint8, 1, 128),
            (&[16, 16], Element::Float32, 40, 128),
            (&[1 << 32, 1 << 20], Element::Float64, 1, 128),
            (&[1; 31], Element::Bool, 1, 192),
        ] {
            let shape = shape(dims, element, samples);
            assert_eq!(file_bytes(&shape).unwrap(), shape.payload_bytes() + header);
        }
    }

    #[test]
    fn elements_are_those_of_npz() {
        let shape = shape(&[30, 20], Element::Float32, 3);
        let encoded = |name| fixture::encoded(&*crate::plain(name).unwrap(), &shape);
        let (array, archive) = (encoded("npy"), encoded("npz"));
        assert_eq!(array[..6], *b"\x93NUMPY");
        // 30 bytes of the archive's local header and five of the name come first.
        assert_eq!(array, archive[35..35 + 128 + 4 * 30 * 20 * 3]);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        fixture::assert_refused(file_bytes, fixture::NOT_ARRAYS);
        fixture::assert_refused(file_bytes, &[(&[i64::MAX as u64 - 100], Element::Uint8, 1, "too large")]);
    }

    fn reads(access: Access, shape: &FileShape<'_>, wanted: Range<u64>) -> Vec<(u64, u64)> {
        pairs(&fixture::ours(&Npy { access }, shape, wanted))
    }

    /// Recorded with strace of `numpy.load` (Python 3.11.7, NumPy 2.4.6, glibc 2.36).
    #[test]
    fn requests_are_those_of_numpy() {
        let cases: [(u64, &[(u64, u64)]); 7] = [
            (100, &[(228, 0), (128, 0), (228, 0)]),
            (4096 - 128, &[(4096, 0), (128, 0), (4096, 0)]),
            (4000, &[(4096, 0), (128, 0), (4096, 0), (32, 4096)]),
            (8192 - 128, &[(4096, 0), (128, 0), (4096, 0), (4096, 4096)]),
            (8192, &[(4096, 0), (128, 0), (4096, 0), (4096, 4096), (128, 8192)]),
            (1 << 20, &[(4096, 0), (128, 0), (4096, 0), (1_044_480, 4096), (128, 1_048_576)]),
            (
                3 << 30,
                &[
                    (4096, 0),
                    (128, 0),
                    (4096, 0),
                    (READ_MOST, 4096),
                    ((3 << 30) - 4096 - READ_MOST, READ_MOST + 4096),
                    (128, 3 << 30),
                ],
            ),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(
                reads(Access::Framework, &shape(&[bytes], Element::Uint8, 1), 0..1),
                wanted,
                "{bytes}"
            );
        }
    }

    #[test]
    fn an_existing_file_is_read_like_a_generated_one() {
        for (dims, samples) in [(&[7_u64, 5] as &[u64], 1), (&[64, 64], 3), (&[6, 700], 2)] {
            let shape = shape(dims, Element::Int16, samples);
            let len = file_bytes(&shape).unwrap();
            let mut seen = ReadPieces::default();
            let head = len.min(4096) as usize;
            let header = ArrayHeader::of_samples(NAME, &shape).unwrap();
            seen.add(0, head)[..header.bytes().len()].copy_from_slice(header.bytes());
            for access in [Access::Framework, Access::Extent] {
                let look = Look::new(NAME, len, &seen);
                let mut found = Vec::new();
                let file = SourceFile::Foreign { look: &look, samples };
                Npy { access }.reads(file, samples - 1..samples, &mut found).unwrap();
                let known = reads(access, &shape, samples - 1..samples);
                let looked_at = usize::from(access == Access::Framework);
                assert_eq!(pairs(&found), known[looked_at..]);
            }
        }
    }

    #[test]
    fn damage_is_reported_with_its_offset() {
        let shape = shape(&[40, 40], Element::Uint8, 2);
        let header = ArrayHeader::of_samples(NAME, &shape).unwrap();
        let good = [header.bytes(), &[7; 3200]].concat();
        let facts = |bytes: &[u8]| {
            let _ = fixture::foreign(&Npy { access: Access::Framework }, bytes, 2, 0..2);
            fixture::inspected(&Npy { access: Access::Extent }, bytes)
        };
        assert_eq!(facts(&good).unwrap().samples, Some(2));
        for len in 0..good.len() {
            let error = facts(&good[..len]).unwrap_err().to_string();
            assert!(error.contains("at byte"), "{len}: {error}");
        }
        for at in 0..header.bytes().len() {
            for flip in [1, 0x10, 0x80, 0xFF] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                let _ = facts(&bad);
            }
        }
    }

    proptest! {
        #[test]
        fn conforms(
            dims in prop::collection::vec(0_u64..24, 0..4), element in 0..Element::ALL.len(),
            samples in 0_u64..6, seed: u64, file: u64,
        ) {
            let shape = shape(&dims, Element::ALL[element], samples);
            for access in [Access::Framework, Access::Extent] {
                conformance::check(&Npy { access }, &shape, seed, file)?;
            }
        }
    }
}
