//! What every format must hold, as one check that tests run over many shapes. It encodes into memory, so it
//! is for small shapes; it must not know any format.

use crate::{Content, EncodeError, Format, FormatError};
use model::shape::FileShape;
use std::io;

/// A rule that a format broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{format} breaks a rule for {shape}: {rule}")]
pub struct Breach {
    pub format: &'static str,
    pub shape: String,
    pub rule: String,
}

/// Scratch lengths that cut a file at odd places, and the default. The first is the one all others are
/// compared with.
const SCRATCHES: [usize; 4] = [0, 61, 4096, 100_003];
/// A file shorter than this may be the same under another seed by chance: a single bool sample is one random
/// bit.
const TELLING_BYTES: u64 = 64;

/// Encodes files of `shape` every which way and says which rule does not hold, if one does not.
pub fn check(format: &dyn Format, shape: &FileShape<'_>, seed: u64, file: u64) -> Result<(), Breach> {
    let case = Case { format, shape, seed, file };
    match format.file_bytes(shape) {
        Ok(bytes) => case.check_file(bytes),
        Err(error) => case.check_refusal(&error),
    }
    .map_err(|rule| Breach { format: format.name(), shape: format!("{shape:?}"), rule })
}

struct Case<'a> {
    format: &'a dyn Format,
    shape: &'a FileShape<'a>,
    seed: u64,
    file: u64,
}

impl Case<'_> {
    fn encode(&self, seed: u64, file: u64, scratch: &mut Vec<u8>) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut sink = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        self.format
            .encode(self.shape, &Content::new(seed), file, scratch, &mut sink)
            .map_err(|error| format!("file_bytes gives a size but encode fails: {error}"))?;
        Ok(bytes)
    }

    fn check_file(&self, file_bytes: u64) -> Result<(), String> {
        let mut scratch = Vec::new();
        let first = self.encode(self.seed, self.file, &mut scratch)?;
        hold(first.len() as u64 == file_bytes, || {
            format!("{} bytes encoded, {file_bytes} said", first.len())
        })?;
        // The scratch still holds the first file: what is left in it must not show.
        let again = self.encode(self.seed, self.file, &mut scratch)?;
        hold(again == first, || "a second encoding gives other bytes".to_owned())?;
        for len in SCRATCHES {
            let bytes = self.encode(self.seed, self.file, &mut vec![0xA5; len])?;
            hold(bytes == first, || format!("a scratch of {len} bytes gives other bytes"))?;
        }
        self.check_difference(&first)?;
        self.check_extents(file_bytes)?;
        self.check_sink_error(file_bytes)
    }

    fn check_difference(&self, first: &[u8]) -> Result<(), String> {
        if self.shape.payload_bytes() < TELLING_BYTES {
            return Ok(());
        }
        let (other_seed, other_file) = (self.seed.wrapping_add(1), self.file.wrapping_add(1));
        let by_seed = self.encode(other_seed, self.file, &mut Vec::new())?;
        hold(by_seed != first, || "another seed gives the same bytes".to_owned())?;
        let by_file = self.encode(self.seed, other_file, &mut Vec::new())?;
        hold(by_file != first, || "another file number gives the same bytes".to_owned())
    }

    fn check_extents(&self, file_bytes: u64) -> Result<(), String> {
        for index in 0..self.shape.samples {
            let extent = self.format.extent(self.shape, index).map_err(|error| error.to_string())?;
            let inside = extent.offset.checked_add(extent.len).is_some_and(|end| end <= file_bytes);
            hold(inside && extent.len > 0, || format!("sample {index} at {extent:?} of {file_bytes} bytes"))?;
        }
        let beyond = self.format.extent(self.shape, self.shape.samples);
        hold(matches!(beyond, Err(FormatError::NoSuchSample { .. })), || {
            format!("sample beyond the last: {beyond:?}")
        })
    }

    /// A sink that fails on its first, a middle and its last piece: the error comes back as it was, and no
    /// call follows.
    fn check_sink_error(&self, file_bytes: u64) -> Result<(), String> {
        let len = (file_bytes / 8).max(1);
        let pieces = file_bytes.div_ceil(len);
        for failing in [1, pieces / 2, pieces] {
            let mut calls = 0;
            let mut sink = |_: &[u8]| {
                calls += 1;
                if calls >= failing.max(1) { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
            };
            let content = Content::new(self.seed);
            let mut scratch = vec![0; usize::try_from(len).map_err(|error| error.to_string())?];
            let result = self.format.encode(self.shape, &content, self.file, &mut scratch, &mut sink);
            let unchanged =
                matches!(&result, Err(EncodeError::Sink(error)) if error.raw_os_error() == Some(28));
            hold(unchanged, || format!("a sink that fails at piece {failing} ends in {result:?}"))?;
            hold(calls == failing.max(1), || {
                format!("{calls} calls of a sink that failed at piece {failing}")
            })?;
        }
        Ok(())
    }

    /// A shape that has no file: encode says the same as `file_bytes`, and hands over nothing.
    fn check_refusal(&self, error: &FormatError) -> Result<(), String> {
        let mut calls = 0;
        let mut sink = |_: &[u8]| {
            calls += 1;
            Ok(())
        };
        let content = Content::new(self.seed);
        let result = self.format.encode(self.shape, &content, self.file, &mut Vec::new(), &mut sink);
        let same = matches!(&result, Err(EncodeError::Shape(other)) if other == error);
        hold(same && calls == 0, || format!("file_bytes: {error}; encode: {result:?} after {calls} pieces"))?;
        let extent = self.format.extent(self.shape, 0);
        hold(extent.as_ref() == Err(error), || format!("file_bytes: {error}; extent: {extent:?}"))
    }
}

fn hold(holds: bool, rule: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Extent, Sink, all};
    use model::shape::Element;

    #[test]
    fn every_format_conforms_for_shapes_that_workloads_use() {
        for format in all() {
            for (dims, samples) in [
                (&[568_u64, 568] as &[u64], 1),
                (&[338, 338], 1),
                (&[64, 64], 1),
                (&[32, 32, 3], 4),
                (&[0], 1),
                (&[9], 1),
            ] {
                check(*format, &FileShape { dims, element: Element::Uint8, samples }, 123, 0).unwrap();
            }
        }
    }

    /// A format of one constant byte per sample byte, with a fault to choose.
    #[derive(Debug)]
    struct Faulty(&'static str);

    impl Format for Faulty {
        fn name(&self) -> &'static str {
            "faulty"
        }
        fn summary(&self) -> &'static str {
            "for this test"
        }
        fn file_bytes(&self, shape: &FileShape<'_>) -> Result<u64, FormatError> {
            Ok(shape.payload_bytes() + u64::from(self.0 == "encoded"))
        }
        fn extent(&self, shape: &FileShape<'_>, index: u64) -> Result<Extent, FormatError> {
            let extra = u64::from(self.0 == "sample 0");
            match index < shape.samples {
                true => Ok(Extent { offset: 0, len: shape.payload_bytes() + extra }),
                false => Err(FormatError::NoSuchSample { format: "faulty", index, samples: shape.samples }),
            }
        }
        fn encode(
            &self,
            shape: &FileShape<'_>,
            content: &Content,
            file: u64,
            scratch: &mut Vec<u8>,
            sink: &mut Sink<'_>,
        ) -> Result<(), EncodeError> {
            let file = if self.0 == "file number" { 0 } else { file };
            let mut out = crate::pieces::Pieces::new(scratch, sink);
            out.produce(shape.payload_bytes(), |offset, part| content.fill(file, offset, part))?;
            match out.finish() {
                Err(_) if self.0 == "a sink" => Ok(()),
                result => Ok(result?),
            }
        }
    }

    #[test]
    fn a_breach_is_found_and_named() {
        let shape = FileShape { dims: &[1000], element: Element::Uint8, samples: 1 };
        check(&Faulty("none"), &shape, 1, 1).unwrap();
        for fault in ["encoded", "file number", "sample 0", "a sink"] {
            let breach = check(&Faulty(fault), &shape, 1, 1).unwrap_err();
            assert!(breach.rule.contains(fault), "{breach}");
        }
    }
}
