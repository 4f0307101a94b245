//! raw: files without structure. A file that feedline writes is its samples one after another, without a header or an
//! index. An existing file of any size, from any writer, is divided into equal ranges, one for each sample; the last
//! range takes the rest. Every sample is a read of its own, because a job that reads such files asks for each sample.

use std::ops::Range;

use model::order::Unit;
use model::shape::FileShape;

use crate::pieces::Pieces;
use crate::{
    ArrayList, Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, Look,
    Obstacle, SourceFile, array, error, within,
};

const NAME: &str = "raw";

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "concatenated samples, nothing else",
    compressions: &[],
    existing: "any file: it is divided into equal ranges, the last takes the rest",
    other_suffixes: &[],
    build: |_| Ok(Box::new(Raw)),
};

#[derive(Debug)]
struct Raw;

impl Format for Raw {
    fn name(&self) -> &'static str {
        NAME
    }

    fn unit(&self, _: &FileShape<'_>) -> Unit {
        Unit::Sample
    }

    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
        error::payload(NAME, shape).map(EncodedSize::Exact)
    }

    fn write(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError> {
        let payload = error::payload(NAME, shape)?;
        Ok(out.produce(payload, |offset, part| {
            array::fill_samples(shape.element, content, file, offset, part);
        })?)
    }

    fn reads(
        &self,
        file: SourceFile<'_>,
        samples: Range<u64>,
        reads: &mut Vec<Extent>,
    ) -> Result<(), Obstacle> {
        let (file_bytes, held) = match file {
            SourceFile::Ours(shape) => (error::payload(NAME, shape)?, shape.samples),
            SourceFile::Foreign { look, samples } => (look.len, samples),
        };
        within(NAME, &samples, held)?;
        let each = file_bytes / held;
        for sample in samples {
            // Neither product exceeds the file's length.
            let end = if sample + 1 == held { file_bytes } else { each * (sample + 1) };
            let range = Extent { offset: each * sample, len: end - each * sample };
            // A file with fewer bytes than samples has samples without bytes.
            if range.len > 0 {
                reads.push(range);
            }
        }
        Ok(())
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        let notes = vec![format!(
            "{} bytes without structure: dataset.num_samples_per_file says how many samples they are",
            look.len
        )];
        Ok(FileFacts { samples: None, dims: Vec::new(), element: None, arrays: ArrayList::default(), notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, shape};
    use crate::{ReadPieces, conformance};
    use model::shape::Element;
    use proptest::prelude::*;

    #[test]
    fn every_sample_is_a_read_of_its_own() {
        let reads = fixture::ours(&Raw, &shape(&[1000], Element::Uint8, 4), 1..3);
        assert_eq!(reads, [Extent { offset: 1000, len: 1000 }, Extent { offset: 2000, len: 1000 }]);
    }

    #[test]
    fn an_existing_file_is_divided_and_the_last_sample_takes_the_rest() {
        let seen = ReadPieces::default();
        for (len, samples, ranges) in [
            (10, 3, &[(0, 3), (3, 3), (6, 4)][..]),
            (12, 3, &[(0, 4), (4, 4), (8, 4)]),
            (7, 1, &[(0, 7)]),
            (2, 3, &[(0, 2)]),
            (0, 1, &[]),
        ] {
            let look = Look::new(NAME, len, &seen);
            let mut reads = Vec::new();
            Raw.reads(SourceFile::Foreign { look: &look, samples }, 0..samples, &mut reads).unwrap();
            let expected: Vec<Extent> = ranges.iter().map(|&(offset, len)| Extent { offset, len }).collect();
            assert_eq!(reads, expected, "{len} bytes, {samples} samples");
            assert!(Raw.inspect(&look).is_ok());
        }
    }

    proptest! {
        #[test]
        fn conforms(
            dims in prop::collection::vec(0_u64..24, 0..4), element in 0..Element::ALL.len(),
            samples in 0_u64..6, seed: u64, file: u64,
        ) {
            conformance::check(&Raw, &shape(&dims, Element::ALL[element], samples), seed, file)?;
        }
    }
}
