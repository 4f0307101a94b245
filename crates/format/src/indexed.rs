//! indexed_binary and mmap_indexed_binary: concatenated samples without a header, and two index files of offsets
//! and sizes (Megatron's data sets, as DLIO writes them). The two formats differ in how they are read: by offset,
//! or through a mapping. The index is read once when a reader starts, not for each sample, so it is not part of
//! the reads.

use std::ops::Range;

use model::order::Unit;
use model::shape::FileShape;
use model::spec::Access;

use crate::pieces::Pieces;
use crate::{
    ArrayList, Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, Look,
    Obstacle, SideFile, Sink, SourceFile, array, error, within,
};

pub(crate) const KIND: FormatKind = FormatKind {
    name: "indexed_binary",
    layout: "concatenated samples; `.off.idx` and `.sz.idx` next to the file",
    compressions: &[],
    existing: "samples of one size",
    other_suffixes: &[],
    build: |_| Ok(Box::new(Indexed { name: "indexed_binary", grain: 1 })),
};

pub(crate) const MAPPED: FormatKind = FormatKind {
    name: "mmap_indexed_binary",
    layout: "as `indexed_binary`, read by pages",
    compressions: &[],
    existing: "samples of one size",
    other_suffixes: &[],
    build: |options| {
        let grain = if options.access == Access::Framework { PAGE } else { 1 };
        Ok(Box::new(Indexed { name: "mmap_indexed_binary", grain }))
    },
};

/// The granularity of a mapping.
const PAGE: u64 = 4096;
/// Bytes of an index that are written at once.
const INDEX_PIECE: usize = 8 * 1024;

#[derive(Debug)]
struct Indexed {
    name: &'static str,
    /// Reads start and end on multiples of this.
    grain: u64,
}

/// The index files, by their position in `sides`.
const OFFSETS: usize = 0;
const SIDES: [SideFile; 2] =
    [SideFile { folder: None, suffix: ".off.idx" }, SideFile { folder: None, suffix: ".sz.idx" }];

impl Indexed {
    /// Bytes of one sample in an existing file.
    fn sample_bytes(&self, look: &Look<'_>, samples: u64) -> Result<u64, Obstacle> {
        let damage = |what: String| Err(look.damage(look.len, what).into());
        match (look.len.checked_div(samples), look.len.checked_rem(samples)) {
            (Some(bytes), Some(0)) if bytes > 0 => Ok(bytes),
            _ if look.len == 0 => damage("it is empty".to_owned()),
            _ => damage(format!(
                "its {} bytes are not {samples} samples of one size; samples of uneven sizes cannot be read",
                look.len
            )),
        }
    }
}

impl Format for Indexed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_headless(&self) -> bool {
        true
    }

    fn unit(&self, _: &FileShape<'_>) -> Unit {
        Unit::Sample
    }

    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
        error::payload(self.name, shape).map(EncodedSize::Exact)
    }

    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError> {
        let payload = error::payload(self.name, shape)?;
        Ok(out.produce(payload, |offset, part| {
            array::fill_samples(shape.element, content, file, offset, part);
        })?)
    }

    fn sides(&self) -> &'static [SideFile] {
        &SIDES
    }

    fn encode_side(&self, side: usize, shape: &FileShape<'_>, out: &mut Sink<'_>) -> Result<(), EncodeError> {
        error::payload(self.name, shape)?;
        let bytes = shape.sample_bytes();
        let mut piece = [0; INDEX_PIECE];
        let most = (INDEX_PIECE / 8) as u64;
        let mut next = 0;
        while next < shape.samples {
            let count = most.min(shape.samples - next);
            for (entry, sample) in piece.as_chunks_mut::<8>().0.iter_mut().zip(next..next + count) {
                *entry = if side == OFFSETS { sample * bytes } else { bytes }.to_le_bytes();
            }
            out(&piece[..count as usize * 8])?;
            next += count;
        }
        Ok(())
    }

    fn side_bytes(&self, _: usize, shape: &FileShape<'_>) -> Result<u64, EncodeError> {
        Ok(shape.samples.saturating_mul(8))
    }

    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        let (bytes, held, file_bytes) = match file {
            SourceFile::Ours(shape) => {
                (shape.sample_bytes(), shape.samples, error::payload(self.name, shape)?)
            }
            SourceFile::Foreign { look, samples } => (self.sample_bytes(look, samples)?, samples, look.len),
        };
        within(self.name, &samples, held)?;
        // Neither product exceeds the file's length, and rounding up saturates there.
        let start = bytes * samples.start / self.grain * self.grain;
        let end = (bytes * samples.end).checked_next_multiple_of(self.grain);
        let end = end.map_or(file_bytes, |end| end.min(file_bytes));
        reads.push(Extent { offset: start, len: end - start });
        Ok(())
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        if look.len == 0 {
            return Err(look.damage(0, "it is empty").into());
        }
        let notes =
            vec!["samples back to back: how many they are stands in the index beside the file".to_owned()];
        Ok(FileFacts { samples: None, dims: Vec::new(), element: None, arrays: ArrayList::default(), notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, shape};
    use crate::{FormatOptions, ReadPieces, conformance};
    use model::shape::Element;
    use proptest::prelude::*;

    fn built(kind: &FormatKind, access: Access) -> Box<dyn Format> {
        kind.build(&FormatOptions { access, ..FormatOptions::default() }).unwrap()
    }

    fn side(format: &dyn Format, number: usize, shape: &FileShape<'_>) -> Vec<u64> {
        let bytes = fixture::gathered(|sink| format.encode_side(number, shape, sink).unwrap());
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    #[test]
    fn offsets_beyond_two_gigabytes_are_correct() {
        let format = built(&KIND, Access::Framework);
        let shape = shape(&[1 << 20], Element::Float32, 3000);
        assert_eq!(format.size(&shape).unwrap(), EncodedSize::Exact(3000 << 22));
        let wanted: Vec<u64> = (0..3000).map(|sample| sample << 22).collect();
        assert_eq!(side(&*format, 0, &shape), wanted);
        assert_eq!(side(&*format, 1, &shape), [1 << 22; 3000]);
    }

    #[test]
    fn a_mapping_is_read_in_pages_and_the_rest_by_the_byte() {
        let shape = shape(&[3000], Element::Uint8, 4);
        for (kind, access, samples, offset, len) in [
            (&KIND, Access::Framework, 1..3, 3000, 6000),
            (&KIND, Access::Extent, 0..1, 0, 3000),
            (&MAPPED, Access::Framework, 0..1, 0, 4096),
            // Bytes 6000 to 9000 touch the pages up to byte 12288, of which the file has 12000.
            (&MAPPED, Access::Framework, 2..3, 4096, 12_000 - 4096),
            (&MAPPED, Access::Framework, 3..4, 8192, 12_000 - 8192),
            (&MAPPED, Access::Extent, 2..3, 6000, 3000),
        ] {
            let reads = fixture::ours(&*built(kind, access), &shape, samples);
            assert_eq!(reads, [Extent { offset, len }], "{} {access:?}", kind.name);
        }
    }

    #[test]
    fn an_existing_file_is_divided_evenly_or_damaged() {
        let seen = ReadPieces::default();
        let look = Look::new("indexed_binary", 8192, &seen);
        let format = built(&KIND, Access::Framework);
        let mut reads = Vec::new();
        format.reads(SourceFile::Foreign { look: &look, samples: 2 }, 1..2, &mut reads).unwrap();
        assert_eq!(reads, [Extent { offset: 4096, len: 4096 }]);
        for (len, samples, words) in [
            (8192, 3, "8192 bytes are not 3 samples"),
            (0, 2, "empty"),
            (5, 0, "0 samples"),
            (3, 7, "7 samples"),
        ] {
            let look = Look::new("indexed_binary", len, &seen);
            let file = SourceFile::Foreign { look: &look, samples };
            let error = format.reads(file, 0..1, &mut reads).unwrap_err();
            assert!(matches!(error, Obstacle::Damage(_)) && error.to_string().contains(words), "{error}");
        }
        assert!(format.inspect(&Look::new("indexed_binary", 0, &seen)).is_err());
    }

    proptest! {
        #[test]
        fn conforms(
            dims in prop::collection::vec(0_u64..24, 0..4), element in 0..Element::ALL.len(),
            samples in 0_u64..6, seed: u64, file: u64, mapped: bool, extent: bool,
        ) {
            let access = if extent { Access::Extent } else { Access::Framework };
            let format = built(if mapped { &MAPPED } else { &KIND }, access);
            conformance::check(&*format, &shape(&dims, Element::ALL[element], samples), seed, file)?;
        }
    }
}
