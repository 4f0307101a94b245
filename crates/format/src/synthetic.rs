//! synthetic: files that represent samples which are generated in memory. Each contains its own number as text.
//! Readers never open them, so a run measures everything except the storage.

use std::ops::Range;

use model::order::Unit;
use model::shape::FileShape;

use crate::{
    ArrayList, Content, EncodeError, EncodedSize, Extent, FileFacts, Format, FormatError, FormatKind, Look,
    Obstacle, Pieces, SourceFile, error, within,
};

const NAME: &str = "synthetic";
/// Digits of the largest number of 64 bits. DLIO writes as many as a number has. Here all numbers are padded with
/// zeros to this length, so that a file's size does not depend on its number.
const DIGITS: usize = 20;

pub(crate) const KIND: FormatKind = FormatKind {
    name: NAME,
    layout: "the file's number; readers never open it",
    compressions: &[],
    existing: "-",
    other_suffixes: &[],
    build: |_| Ok(Box::new(Synthetic)),
};

#[derive(Debug)]
pub(crate) struct Synthetic;

impl Format for Synthetic {
    fn name(&self) -> &'static str {
        NAME
    }

    fn unit(&self, _: &FileShape<'_>) -> Unit {
        Unit::Sample
    }

    fn holds_samples(&self) -> bool {
        false
    }

    fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
        error::payload(NAME, shape).map(|_| EncodedSize::Exact(DIGITS as u64))
    }

    fn write(
        &self,
        shape: &FileShape<'_>,
        _: &Content,
        file: u64,
        out: &mut Pieces<'_, '_>,
    ) -> Result<(), EncodeError> {
        self.size(shape)?;
        let mut text = [b'0'; DIGITS];
        let mut rest = file;
        for digit in text.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        Ok(out.bytes(&text)?)
    }

    fn reads(&self, file: SourceFile<'_>, samples: Range<u64>, _: &mut Vec<Extent>) -> Result<(), Obstacle> {
        let held = match file {
            SourceFile::Ours(shape) => self.size(shape).map(|_| shape.samples)?,
            SourceFile::Foreign { samples, .. } => samples,
        };
        Ok(within(NAME, &samples, held)?)
    }

    fn inspect(&self, look: &Look<'_>) -> Result<FileFacts, Obstacle> {
        if look.len == 0 {
            return Err(look.damage(0, "an empty file instead of its number").into());
        }
        let text = look.at(0, look.len.min(DIGITS as u64 + 1))?;
        let wrong = text.iter().position(|byte| !byte.is_ascii_digit());
        if let Some(wrong) = wrong.or((text.len() > DIGITS).then_some(DIGITS)) {
            return Err(look.damage(wrong as u64, "not the number of a file").into());
        }
        let notes = vec!["no data: samples are generated in memory".to_owned()];
        Ok(FileFacts { samples: None, dims: Vec::new(), element: None, arrays: ArrayList::default(), notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use crate::fixture::{self, shape};
    use model::shape::Element;
    use proptest::prelude::*;

    fn facts(text: &[u8]) -> Result<FileFacts, Obstacle> {
        fixture::inspected(&Synthetic, text)
    }

    #[test]
    fn a_file_is_its_number_and_nothing_is_read() {
        let shape = shape(&[64, 64], Element::Uint8, 3);
        let bytes = fixture::encoded_as(&Synthetic, &shape, 1, u64::MAX);
        assert_eq!(bytes, u64::MAX.to_string().as_bytes());
        assert_eq!(fixture::ours(&Synthetic, &shape, 0..3), []);
    }

    #[test]
    fn numbers_of_any_length_are_recognised() {
        for text in ["0", "00000000000000000007", "1234"] {
            assert_eq!(facts(text.as_bytes()).unwrap().samples, None);
        }
        let cases = [("", 0), ("12x", 2), ("000000000000000000007", 20), ("-1", 0)];
        for (text, offset) in cases {
            let error = facts(text.as_bytes()).unwrap_err();
            assert!(matches!(&error, Obstacle::Damage(damage) if damage.offset == offset), "{error}");
        }
    }

    proptest! {
        #[test]
        fn conforms(dims in prop::collection::vec(0_u64..24, 0..4), samples in 0_u64..6, seed: u64, file: u64) {
            conformance::check(&Synthetic, &shape(&dims, Element::Uint8, samples), seed, file)?;
        }
    }
}
