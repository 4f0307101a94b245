//! npz: the archive that `numpy.savez` writes and DLIO reads, members `x.npy` (the samples) and `y.npy`
//! (their labels), stored. It must not hold the file in memory: the checksum that stands before the data is
//! computed in a first pass, because content is a function and making it twice is cheaper than keeping 140
//! MB.

use crate::array::{self, Header};
use crate::pieces::{self, Pieces};
use crate::zip::{self, Member};
use crate::{Content, EncodeError, Extent, Format, FormatError, Sink, error, whole_file};
use model::shape::FileShape;

const NAME: &str = "npz";

#[derive(Debug)]
pub(crate) struct Npz;

/// Where everything stands in a file. The members' checksums are not known yet.
struct Layout {
    x_header: Header,
    y_header: Header,
    x: Member,
    y: Member,
    /// Offset of the central directory.
    directory: u64,
    directory_bytes: u64,
    file_bytes: u64,
}

impl Layout {
    fn of(shape: &FileShape<'_>) -> Result<Layout, FormatError> {
        let payload = error::payload(NAME, shape)?;
        let x_header = Header::of_samples(NAME, shape)?;
        let y_header = Header::of_labels(NAME, shape)?;
        let fits = |bytes| error::whole(NAME, shape, bytes);
        let x_bytes = fits(payload.checked_add(x_header.bytes().len() as u64))?;
        let labels = fits(shape.samples.checked_mul(array::LABEL))?;
        let y_bytes = fits(labels.checked_add(y_header.bytes().len() as u64))?;
        let x = Member { name: "x.npy", offset: 0, bytes: x_bytes, crc: 0 };
        let y = Member { name: "y.npy", offset: fits(x.end())?, bytes: y_bytes, crc: 0 };
        let directory = fits(y.end())?;
        let directory_bytes = x.central_bytes() + y.central_bytes();
        let file_bytes = fits(directory.checked_add(directory_bytes + zip::end_bytes(directory)))?;
        Ok(Layout { x_header, y_header, x, y, directory, directory_bytes, file_bytes })
    }
}

impl Format for Npz {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "NumPy archive, uncompressed: array x of the samples, array y of their labels"
    }

    fn file_bytes(&self, shape: &FileShape<'_>) -> Result<u64, FormatError> {
        Ok(Layout::of(shape)?.file_bytes)
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
        let mut layout = Layout::of(shape)?;
        let samples = |offset, out: &mut [u8]| array::fill_samples(shape.element, content, file, offset, out);
        let labels = |offset, out: &mut [u8]| array::fill_labels(content, file, offset, out);
        layout.x.crc = checksum(&layout.x_header, &layout.x, scratch, samples);
        layout.y.crc = checksum(&layout.y_header, &layout.y, scratch, labels);
        let mut out = Pieces::new(scratch, sink);
        write_member(&mut out, &layout.x_header, &layout.x, samples)?;
        write_member(&mut out, &layout.y_header, &layout.y, labels)?;
        layout.x.write_central(&mut out)?;
        layout.y.write_central(&mut out)?;
        zip::write_end(&mut out, 2, layout.directory, layout.directory_bytes)?;
        Ok(out.finish()?)
    }
}

fn checksum(
    header: &Header,
    member: &Member,
    scratch: &mut Vec<u8>,
    produce: impl Fn(u64, &mut [u8]),
) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(header.bytes());
    pieces::checksum(crc, pieces::room(scratch), member.bytes - header.bytes().len() as u64, produce)
}

fn write_member(
    out: &mut Pieces<'_, '_>,
    header: &Header,
    member: &Member,
    produce: impl Fn(u64, &mut [u8]),
) -> std::io::Result<()> {
    member.write_local(out)?;
    out.bytes(header.bytes())?;
    out.produce(member.bytes - header.bytes().len() as u64, produce)
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
    fn a_small_file_is_payload_and_labels_and_450_bytes() {
        for (dims, element, samples) in [
            (&[568_u64, 568] as &[u64], Element::Uint8, 1),
            (&[12_107, 12_107], Element::Uint8, 1),
            (&[16, 16], Element::Float32, 40),
            (&[1], Element::Bool, 1),
        ] {
            let shape = shape(dims, element, samples);
            assert_eq!(Npz.file_bytes(&shape).unwrap(), shape.payload_bytes() + 8 * samples + 450);
        }
    }

    #[test]
    fn a_file_beyond_32_bits_is_zip64() {
        let bytes =
            |payload: u64| Npz.file_bytes(&shape(&[payload], Element::Uint8, 1)).unwrap() - payload - 8;
        // The samples fit, the labels' header and the directory do not start beyond the limit either.
        assert_eq!(bytes((1 << 32) - 1000), 450);
        // 128 bytes of header make the member too long: both its records grow by 20, the labels' entry by 12
        // because they start beyond the limit, and the end by 76.
        assert_eq!(bytes((1 << 32) - 129), 450 + 20 + 20 + 12 + 76);
        // The member just fits, but what follows it is out of reach.
        assert_eq!(bytes((1 << 32) - 130), 450 + 12 + 76);
    }

    #[test]
    fn shapes_without_a_file_say_why() {
        let cases: [(&[u64], u64, &str); 5] = [
            (&[4, 0], 1, "at least 1"),
            (&[4], 0, "at least 1"),
            (&[1; 32], 1, "flatten dataset.record_dims"),
            (&[1 << 62, 4], 1, "too large"),
            (&[1], 1 << 60, "too large"),
        ];
        for (dims, samples, words) in cases {
            let error = Npz.file_bytes(&shape(dims, Element::Uint8, samples)).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn the_first_member_starts_where_zip_and_npy_say() {
        let mut bytes = Vec::new();
        let mut sink = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        let shape = shape(&[64, 64], Element::Uint8, 1);
        Npz.encode(&shape, &Content::new(1), 3, &mut Vec::new(), &mut sink).unwrap();
        let mut samples = vec![0; 4096];
        Content::new(1).fill(3, 0, &mut samples);
        assert_eq!(bytes[..4], *b"PK\x03\x04");
        assert_eq!(bytes[35..41], *b"\x93NUMPY");
        assert_eq!(bytes[163..][..4096], samples);
        assert_eq!(bytes[14..18], crc32fast::hash(&bytes[35..163 + 4096]).to_le_bytes());
        assert_eq!(bytes[163 + 4096 + 163..][..8], Content::new(1).label(3, 0).to_le_bytes());
    }

    proptest! {
        #[test]
        fn conforms(
            dims in prop::collection::vec(0_u64..24, 0..4), element in 0..Element::ALL.len(),
            samples in 0_u64..6, seed: u64, file: u64,
        ) {
            conformance::check(&Npz, &shape(&dims, Element::ALL[element], samples), seed, file)?;
        }
    }
}
