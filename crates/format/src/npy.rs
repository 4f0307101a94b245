//! npy: what `numpy.save` writes: one array of the samples, without labels. Where the array's bytes come from
//! is `array`'s business.

use crate::array::{self, Header};
use crate::pieces::Pieces;
use crate::{Content, EncodeError, Extent, Format, FormatError, Sink, error, whole_file};
use model::shape::FileShape;

const NAME: &str = "npy";

#[derive(Debug)]
pub(crate) struct Npy;

/// The two parts of a file: the header, and how many bytes of elements follow it.
struct Layout {
    header: Header,
    payload: u64,
}

impl Layout {
    fn of(shape: &FileShape<'_>) -> Result<Layout, FormatError> {
        let payload = error::payload(NAME, shape)?;
        let header = Header::of_samples(NAME, shape)?;
        error::whole(NAME, shape, payload.checked_add(header.bytes().len() as u64))?;
        Ok(Layout { header, payload })
    }
}

impl Format for Npy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "NumPy array of the samples, without labels"
    }

    fn file_bytes(&self, shape: &FileShape<'_>) -> Result<u64, FormatError> {
        let layout = Layout::of(shape)?;
        Ok(layout.header.bytes().len() as u64 + layout.payload)
    }

    /// The whole file. With several samples too: the sample is the array's last axis in C order, so every
    /// sample is strided over all of it.
    fn extent(&self, shape: &FileShape<'_>, index: u64) -> Result<Extent, FormatError> {
        whole_file(self, shape, index)
    }

    fn encode(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        scratch: &mut Vec<u8>,
        sink: &mut Sink<'_>,
    ) -> Result<(), EncodeError> {
        let layout = Layout::of(shape)?;
        let mut out = Pieces::new(scratch, sink);
        out.bytes(layout.header.bytes())?;
        out.produce(layout.payload, |offset, part| {
            array::fill_samples(shape.element, content, file, offset, part);
        })?;
        Ok(out.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use model::shape::Element;
    use proptest::prelude::*;

    fn shape(dims: &[u64], element: Element, samples: u64) -> FileShape<'_> {
        FileShape { dims, element, samples }
    }

    #[test]
    fn a_file_is_a_header_of_64s_and_the_payload() {
        for (dims, element, samples, header) in [
            (&[568_u64, 568] as &[u64], Element::Uint8, 1, 128),
            (&[16, 16], Element::Float32, 40, 128),
            (&[1 << 32, 1 << 20], Element::Float64, 1, 128),
            (&[1; 31], Element::Bool, 1, 192),
        ] {
            let shape = shape(dims, element, samples);
            assert_eq!(Npy.file_bytes(&shape).unwrap(), shape.payload_bytes() + header);
        }
    }

    #[test]
    fn elements_are_those_of_npz() {
        let shape = shape(&[30, 20], Element::Float32, 3);
        let encoded = |format: &dyn Format| {
            let mut bytes = Vec::new();
            let mut sink = |piece: &[u8]| {
                bytes.extend_from_slice(piece);
                Ok(())
            };
            format.encode(&shape, &Content::new(1), 3, &mut Vec::new(), &mut sink).unwrap();
            bytes
        };
        let (array, archive) = (encoded(&Npy), encoded(&crate::npz::Npz));
        assert_eq!(array[..6], *b"\x93NUMPY");
        // 30 bytes of the archive's local header and five of the name come first.
        assert_eq!(array, archive[35..35 + 128 + 4 * 30 * 20 * 3]);
    }

    #[test]
    fn shapes_without_a_file_say_why() {
        let cases: [(&[u64], u64, &str); 5] = [
            (&[4, 0], 1, "at least 1"),
            (&[4], 0, "at least 1"),
            (&[1; 32], 1, "flatten dataset.record_dims"),
            (&[1 << 62, 4], 1, "too large"),
            (&[i64::MAX as u64 - 100], 1, "too large"),
        ];
        for (dims, samples, words) in cases {
            let error = Npy.file_bytes(&shape(dims, Element::Uint8, samples)).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    proptest! {
        #[test]
        fn conforms(
            dims in prop::collection::vec(0_u64..24, 0..4), element in 0..Element::ALL.len(),
            samples in 0_u64..6, seed: u64, file: u64,
        ) {
            conformance::check(&Npy, &shape(&dims, Element::ALL[element], samples), seed, file)?;
        }
    }
}
