//! Why a file cannot exist. Each message says what is wrong, where, and what to change in the workload file.

use std::ops::RangeInclusive;

use model::shape::{Element, FileShape};

/// No file system supports longer files: offsets are signed.
const MOST_BYTES: u64 = i64::MAX as u64;

/// Why a format has no file of a shape, or a file has no such sample.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error(
        "{format}: a file of {samples} samples of shape {dims:?} is empty; make \
         dataset.num_samples_per_file and every number in dataset.record_dims at least 1"
    )]
    Empty { format: &'static str, dims: Vec<u64>, samples: u64 },

    #[error(
        "{format}: a file of {bytes} bytes is too small, the smallest has {least}; raise \
         dataset.record_length_bytes"
    )]
    TooSmall { format: &'static str, bytes: u64, least: u64 },

    #[error(
        "{format}: a file of {samples} samples of {sample_bytes} bytes is too large, the largest has {most} \
         bytes; lower dataset.num_samples_per_file, or the size of a sample (dataset.record_length_bytes, \
         record_length_bytes_stdev or record_dims)"
    )]
    TooLarge { format: &'static str, samples: u64, sample_bytes: u64, most: u64 },

    #[error(
        "{format}: {dims} dimensions are too many, at most {most} can be read back; flatten \
         dataset.record_dims"
    )]
    TooManyDimensions { format: &'static str, dims: usize, most: usize },

    #[error(
        "{format}: a file holds exactly one sample, not {samples}; set dataset.num_samples_per_file to 1 or \
         choose another dataset.format"
    )]
    OneSampleOnly { format: &'static str, samples: u64 },

    #[error(
        "{format}: elements must be {wanted}, not {}; set dataset.record_element_type to {wanted} or choose \
         another dataset.format", element.name()
    )]
    WrongElement { format: &'static str, element: Element, wanted: &'static str },

    #[error(
        "{format}: dataset.compression '{asked}' is not supported by this format; choose {}",
        choices(known)
    )]
    Compression { format: &'static str, asked: String, known: &'static [&'static str] },

    /// A format-specific setting for which no file can exist.
    #[error("{format}: {what}")]
    Setting { format: &'static str, what: String },

    #[error("{format}: there is no sample {index} in a file of {samples}; samples are counted from 0")]
    NoSuchSample { format: &'static str, index: u64, samples: u64 },
}

/// `none`, or the format's values as a phrase.
fn choices(known: &[&str]) -> String {
    known.iter().fold("none".to_owned(), |words, word| format!("{words} or {word}"))
}

/// Why an encoding stopped.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// Nothing was written, because no such file can exist.
    #[error(transparent)]
    Shape(#[from] FormatError),
    /// The sink's error, unchanged. The bytes written before it are an incomplete file.
    #[error(transparent)]
    Sink(#[from] std::io::Error),
}

/// The bytes of all samples, if there are any and a file can hold them.
pub(crate) fn payload(format: &'static str, shape: &FileShape<'_>) -> Result<u64, FormatError> {
    match shape.payload_bytes() {
        0 => Err(FormatError::Empty { format, dims: shape.dims.to_vec(), samples: shape.samples }),
        bytes if bytes > MOST_BYTES => Err(too_large(format, shape, MOST_BYTES)),
        bytes => Ok(bytes),
    }
}

/// The bytes of a picture, which is one sample of uint8, if they are within `sizes`.
pub(crate) fn picture(
    format: &'static str,
    shape: &FileShape<'_>,
    sizes: RangeInclusive<u64>,
) -> Result<u64, FormatError> {
    let bytes = payload(format, shape)?;
    if shape.samples != 1 {
        return Err(FormatError::OneSampleOnly { format, samples: shape.samples });
    }
    if shape.element != Element::Uint8 {
        return Err(FormatError::WrongElement { format, element: shape.element, wanted: "uint8" });
    }
    if bytes < *sizes.start() {
        return Err(FormatError::TooSmall { format, bytes, least: *sizes.start() });
    }
    if bytes > *sizes.end() {
        return Err(too_large(format, shape, *sizes.end()));
    }
    Ok(bytes)
}

/// The size of a whole file, if a file can be that long. `None` stands for an overflowed sum.
pub(crate) fn whole(
    format: &'static str,
    shape: &FileShape<'_>,
    bytes: Option<u64>,
) -> Result<u64, FormatError> {
    bytes.filter(|bytes| *bytes <= MOST_BYTES).ok_or_else(|| too_large(format, shape, MOST_BYTES))
}

pub(crate) fn too_large(format: &'static str, shape: &FileShape<'_>, most: u64) -> FormatError {
    FormatError::TooLarge { format, samples: shape.samples, sample_bytes: shape.sample_bytes(), most }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_not_empty_and_fits_a_file() {
        let cases: [(&[u64], u64, Result<u64, &str>); 6] = [
            (&[2, 3], 4, Ok(96)),
            (&[], 1, Ok(4)),
            (&[2, 0], 1, Err("at least 1")),
            (&[2], 0, Err("at least 1")),
            (&[1 << 61], 1, Err("too large")),
            (&[1 << 40, 1 << 40], 1, Err("too large")),
        ];
        for (dims, samples, wanted) in cases {
            let shape = FileShape { dims, element: Element::Float32, samples };
            match (payload("npz", &shape), wanted) {
                (Ok(bytes), Ok(wanted)) => assert_eq!(bytes, wanted),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (got, wanted) => panic!("{shape:?}: {got:?}, not {wanted:?}"),
            }
        }
    }

    #[test]
    fn messages_are_one_line() {
        let error = FormatError::OneSampleOnly { format: "jpeg", samples: 4 };
        assert_eq!(
            error.to_string(),
            "jpeg: a file holds exactly one sample, not 4; set dataset.num_samples_per_file to 1 or choose \
             another dataset.format"
        );
    }
}
