//! Samples to bytes: what a file of a data set looks like, one file of code per container format. Bytes in,
//! bytes out: this room opens no file, reads no clock, starts no thread and looks at no environment.
//! `std::io::Error` appears only as the type in which a sink's failure passes through.

mod arithmetic;
mod array;
pub mod conformance;
mod content;
mod error;
mod jpeg;
mod npy;
mod npz;
mod pieces;
mod png;
mod zip;

pub use arithmetic::Arithmetic;
pub use content::Content;
pub use error::{EncodeError, FormatError};

use model::shape::FileShape;

/// Where an encoder hands its bytes: called with the file's pieces from first to last. An error stops the
/// encoding.
pub type Sink<'a> = dyn FnMut(&[u8]) -> std::io::Result<()> + 'a;

/// A range of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub len: u64,
}

/// A container format. It answers for sizes and places as pure functions of the shape, so that a plan can
/// predict every byte before one is written. [`conformance::check`] says what every format must hold.
pub trait Format: Send + Sync + std::fmt::Debug {
    /// The value of `dataset.format`, which is also the file name's suffix.
    fn name(&self) -> &'static str;

    /// One line for help and docs.
    fn summary(&self) -> &'static str;

    /// The exact size of a file of this shape, or why there can be no such file.
    fn file_bytes(&self, shape: &FileShape<'_>) -> Result<u64, FormatError>;

    /// The bytes a reader must fetch to have sample `index`.
    fn extent(&self, shape: &FileShape<'_>, index: u64) -> Result<Extent, FormatError>;

    /// Writes file number `file`: hands its bytes to `sink` from first to last, in pieces as long as
    /// `scratch` (the last may be shorter; an empty scratch is given 512 KiB). Memory is the scratch alone,
    /// so a caller that keeps it from file to file allocates nothing after the first.
    fn encode(
        &self,
        shape: &FileShape<'_>,
        content: &Content,
        file: u64,
        scratch: &mut Vec<u8>,
        sink: &mut Sink<'_>,
    ) -> Result<(), EncodeError>;
}

/// Every format there is, in the order in which help lists them. A new format is its file and its line here.
pub fn all() -> &'static [&'static dyn Format] {
    &[
        &npz::Npz,   //
        &npy::Npy,   //
        &jpeg::Jpeg, //
        &png::Png,   //
    ]
}

/// The format of that name.
pub fn named(name: &str) -> Option<&'static dyn Format> {
    all().iter().copied().find(|format| format.name() == name)
}

/// The extent of a sample in formats whose samples cannot be fetched apart: the whole file.
fn whole_file(format: &dyn Format, shape: &FileShape<'_>, index: u64) -> Result<Extent, FormatError> {
    let len = format.file_bytes(shape)?;
    if index >= shape.samples {
        return Err(FormatError::NoSuchSample { format: format.name(), index, samples: shape.samples });
    }
    Ok(Extent { offset: 0, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for format in all() {
            assert_eq!(all().iter().filter(|other| other.name() == format.name()).count(), 1);
            assert_eq!(named(format.name()).map(Format::name), Some(format.name()));
            assert!(!format.summary().is_empty() && !format.summary().contains('\n'));
        }
        assert!(named("nonesuch").is_none());
    }
}
