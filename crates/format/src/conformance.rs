//! The rules for every format, as one check that tests run over many shapes. It encodes into memory, so it is for
//! small shapes. It must not depend on any format.

use crate::{
    Content, EncodeError, EncodedSize, Extent, FileParts, Format, FormatError, Look, Obstacle, ReadPieces,
    SourceFile,
};
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

/// Scratch lengths that cut a file at odd positions, and the default. All others are compared with the first.
const SCRATCHES: [usize; 4] = [0, 61, 4096, 100_003];
/// A shorter file may be the same under another seed by chance: a single bool sample is one random bit.
const TELLING_BYTES: u64 = 64;
/// Number of bytes that are changed, one at a time, before decoding.
const DAMAGES: u64 = 8;
/// Number of positions at which compared parts begin, and at which a byte is changed.
const CUTS: u64 = 4;

/// Encodes, compares, reads and decodes a file of `shape`, and reports the first broken rule.
pub fn check(format: &dyn Format, shape: &FileShape<'_>, seed: u64, file: u64) -> Result<(), Breach> {
    let case = ConformanceCase { format, shape, seed, file };
    match format.size(shape) {
        Ok(size) => case.check_file(size),
        Err(error) => case.check_refusal(&error),
    }
    .map_err(|rule| Breach { format: format.name(), shape: format!("{shape:?}"), rule })
}

struct ConformanceCase<'a> {
    format: &'a dyn Format,
    shape: &'a FileShape<'a>,
    seed: u64,
    file: u64,
}

impl ConformanceCase<'_> {
    fn encode(&self, seed: u64, file: u64, scratch: &mut Vec<u8>) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut sink = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        self.format
            .encode(self.shape, &Content::new(seed), file, scratch, &mut sink)
            .map_err(|error| format!("size succeeds but encode fails: {error}"))?;
        Ok(bytes)
    }

    fn check_file(&self, size: EncodedSize) -> Result<(), String> {
        let mut scratch = Vec::new();
        let first = self.encode(self.seed, self.file, &mut scratch)?;
        let file_bytes = first.len() as u64;
        let as_said = match size {
            EncodedSize::Exact(bytes) => file_bytes == bytes,
            EncodedSize::AtMost(bytes) => file_bytes <= bytes,
        };
        hold(as_said, || format!("{file_bytes} bytes encoded, but size is {size:?}"))?;
        // The scratch still holds the first file, which must not affect the second.
        let again = self.encode(self.seed, self.file, &mut scratch)?;
        hold(again == first, || "a second encoding differs".to_owned())?;
        for len in SCRATCHES {
            let bytes = self.encode(self.seed, self.file, &mut vec![0xA5; len])?;
            hold(bytes == first, || format!("a scratch of {len} bytes gives different bytes"))?;
        }
        self.check_difference(&first)?;
        self.check_comparing(&first)?;
        self.check_sides()?;
        self.check_found(&first)?;
        self.check_decoding(&first)?;
        if matches!(size, EncodedSize::Exact(_)) {
            self.check_reads(&first)?;
        }
        self.check_sink_error(file_bytes)
    }

    fn check_difference(&self, first: &[u8]) -> Result<(), String> {
        if self.shape.payload_bytes() < TELLING_BYTES {
            return Ok(());
        }
        let (other_seed, other_file) = (self.seed.wrapping_add(1), self.file.wrapping_add(1));
        if self.format.holds_samples() {
            let by_seed = self.encode(other_seed, self.file, &mut Vec::new())?;
            hold(by_seed != first, || "another seed gives the same bytes".to_owned())?;
        }
        let by_file = self.encode(self.seed, other_file, &mut Vec::new())?;
        hold(by_file != first, || "another file number gives the same bytes".to_owned())
    }

    /// Any part of a file equals what was encoded, and differs when one of its bytes is changed.
    fn check_comparing(&self, file: &[u8]) -> Result<(), String> {
        let len = file.len() as u64;
        let part = |offset: u64, most: u64| Extent { offset, len: most.min(len - offset) };
        let whole = [part(0, len)];
        let halves = [part(len / 2, len), part(0, len / 2)];
        self.hold_compared(file, &whole, None)?;
        self.hold_compared(file, &halves, None)?;
        for step in 0..CUTS {
            let offset = self.seed.wrapping_mul(2 * step + 1) % len;
            for most in [1, 512] {
                self.hold_compared(file, &[part(offset, most)], None)?;
            }
            let mut damaged = file.to_vec();
            damaged[offset as usize] ^= 1 << (step % 8);
            for ranges in [&whole[..], &halves, &[part(offset, 1)]] {
                self.hold_compared(&damaged, ranges, Some(offset))?;
            }
        }
        Ok(())
    }

    fn hold_compared(&self, file: &[u8], ranges: &[Extent], wrong: Option<u64>) -> Result<(), String> {
        let parts = ranges.iter().map(|range| &file[range.offset as usize..range.end() as usize]);
        let bytes = parts.collect::<Vec<_>>().concat();
        let (content, parts) = (Content::new(self.seed), FileParts { ranges, bytes: &bytes });
        let seen = self.format.compare(self.shape, &content, self.file, parts, u64::MAX);
        let seen = seen.map_err(|error| format!("compare: {error}"))?;
        let found = seen.wrong.map(|wrong| wrong.offset);
        let all = wrong.is_some() || seen.bytes == bytes.len() as u64;
        hold(found == wrong && all, || format!("it compares as {seen:?} in {ranges:?}, wrong is {wrong:?}"))
    }

    /// Side files have the length that `side_bytes` returns.
    fn check_sides(&self) -> Result<(), String> {
        for side in 0..self.format.sides().len() {
            let mut bytes = 0;
            let mut count = |piece: &[u8]| {
                bytes += piece.len() as u64;
                Ok(())
            };
            self.format.encode_side(side, self.shape, &mut count).map_err(|error| error.to_string())?;
            let said = self.format.side_bytes(side, self.shape).map_err(|error| error.to_string())?;
            hold(bytes == said, || {
                format!("side file {side}: {bytes} bytes encoded, but side_bytes is {said}")
            })?;
        }
        Ok(())
    }

    /// `inspect` describes an encoded file correctly.
    fn check_found(&self, bytes: &[u8]) -> Result<(), String> {
        let mut seen = ReadPieces::default();
        seen.add(0, bytes.len()).copy_from_slice(bytes);
        let look = Look::new(self.format.name(), bytes.len() as u64, &seen);
        let facts = self.format.inspect(&look).map_err(|error| format!("inspect: {error}"))?;
        let right = facts.samples.is_none_or(|samples| samples == self.shape.samples);
        hold(right, || format!("{:?} samples are found", facts.samples))?;
        let file = SourceFile::Foreign { look: &look, samples: self.shape.samples };
        for index in 0..self.shape.samples {
            let reads = self.reads(file, index..index + 1)?;
            check_inside(index, &reads, bytes.len() as u64)?;
        }
        let beyond = self.shape.samples..self.shape.samples + 1;
        self.check_beyond(file, beyond)
    }

    /// The reads of a file that is known by its shape are inside it, for every sample.
    fn check_reads(&self, bytes: &[u8]) -> Result<(), String> {
        let file = SourceFile::Ours(self.shape);
        for index in 0..self.shape.samples {
            check_inside(index, &self.reads(file, index..index + 1)?, bytes.len() as u64)?;
        }
        check_inside(0, &self.reads(file, 0..self.shape.samples)?, bytes.len() as u64)?;
        self.check_beyond(file, self.shape.samples..self.shape.samples + 1)
    }

    /// What is read of a file can be decoded, also into a buffer that is not empty. Truncated data cannot be
    /// decoded, and damaged data does not make a decoder panic. If nothing is encoded, decoding copies.
    fn check_decoding(&self, file: &[u8]) -> Result<(), String> {
        let bytes = self.read(file)?;
        let Some((_, cut)) = bytes.split_last() else { return Ok(()) };
        let decoded = self.decode(&bytes, Vec::new())?;
        let again = self.decode(&bytes, vec![0xA5; 100_003])?;
        hold(again == decoded, || "decode keeps old contents of the buffer".to_owned())?;
        if !self.format.decodes() {
            return hold(decoded == bytes, || "decode changes what is not encoded".to_owned());
        }
        let cut = self.format.decode(cut, &mut Vec::new());
        hold(matches!(cut, Err(Obstacle::Damage(_))), || format!("decode without the last byte: {cut:?}"))?;
        for step in 1..=DAMAGES {
            let mut damaged = bytes.clone();
            let place = self.seed.wrapping_mul(step) % bytes.len() as u64;
            damaged[place as usize] ^= 1 << (step % 8);
            // Whether the damage is detected depends on what it hits.
            let _ = self.format.decode(&damaged, &mut Vec::new());
        }
        if self.shape.payload_bytes() < TELLING_BYTES {
            return Ok(());
        }
        let other = self.encode(self.seed.wrapping_add(1), self.file, &mut Vec::new())?;
        let other = self.decode(&self.read(&other)?, Vec::new())?;
        hold(other != decoded, || "another seed is decoded to the same bytes".to_owned())
    }

    fn decode(&self, bytes: &[u8], mut out: Vec<u8>) -> Result<Vec<u8>, String> {
        self.format.decode(bytes, &mut out).map_err(|error| format!("decode: {error}"))?;
        Ok(out)
    }

    /// The bytes of all samples of a file that is read like an existing one.
    fn read(&self, file: &[u8]) -> Result<Vec<u8>, String> {
        let mut seen = ReadPieces::default();
        seen.add(0, file.len()).copy_from_slice(file);
        let look = Look::new(self.format.name(), file.len() as u64, &seen);
        let reads = self
            .reads(SourceFile::Foreign { look: &look, samples: self.shape.samples }, 0..self.shape.samples)?;
        // An earlier check showed that they are inside the file.
        let parts = reads.iter().map(|read| &file[read.offset as usize..read.end() as usize]);
        Ok(parts.collect::<Vec<_>>().concat())
    }

    fn reads(&self, file: SourceFile<'_>, samples: std::ops::Range<u64>) -> Result<Vec<Extent>, String> {
        let mut reads = Vec::new();
        self.format.reads(file, samples, &mut reads).map_err(|error| format!("reads: {error}"))?;
        Ok(reads)
    }

    fn check_beyond(&self, file: SourceFile<'_>, samples: std::ops::Range<u64>) -> Result<(), String> {
        let beyond = self.format.reads(file, samples, &mut Vec::new());
        let refused = matches!(beyond, Err(Obstacle::Shape(FormatError::NoSuchSample { .. })));
        hold(refused, || format!("sample beyond the last: {beyond:?}"))
    }

    /// A sink fails on its first, a middle and its last piece: the error is returned unchanged, and the sink
    /// is not called again.
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

    /// A shape without a file: `encode` returns the same error as `size`, and writes nothing.
    fn check_refusal(&self, error: &FormatError) -> Result<(), String> {
        let mut calls = 0;
        let mut sink = |_: &[u8]| {
            calls += 1;
            Ok(())
        };
        let content = Content::new(self.seed);
        let result = self.format.encode(self.shape, &content, self.file, &mut Vec::new(), &mut sink);
        let same = matches!(&result, Err(EncodeError::Shape(other)) if other == error);
        hold(same && calls == 0, || format!("size: {error}; encode: {result:?} after {calls} pieces"))?;
        let reads = self.format.reads(SourceFile::Ours(self.shape), 0..1, &mut Vec::new());
        let same = matches!(&reads, Err(Obstacle::Shape(other)) if other == error);
        hold(same, || format!("size: {error}; reads: {reads:?}"))
    }
}

fn check_inside(index: u64, reads: &[Extent], file_bytes: u64) -> Result<(), String> {
    let inside = |read: &Extent| {
        read.len > 0 && read.offset.checked_add(read.len).is_some_and(|end| end <= file_bytes)
    };
    hold(reads.iter().all(inside), || format!("sample {index} at {reads:?} of {file_bytes} bytes"))
}

fn hold(holds: bool, rule: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Damage, FileFacts, KINDS, Pieces, plain};
    use model::order::Unit;
    use model::shape::Element;

    #[test]
    fn every_format_conforms_for_shapes_that_workloads_use() {
        for kind in KINDS {
            let format = plain(kind.name).unwrap();
            for (dims, samples) in [
                (&[568_u64, 568] as &[u64], 1),
                (&[338, 338], 1),
                (&[64, 64], 1),
                (&[32, 32, 3], 4),
                (&[0], 1),
                (&[9], 1),
            ] {
                check(&*format, &FileShape { dims, element: Element::Uint8, samples }, 123, 0).unwrap();
            }
        }
    }

    /// A format of one constant byte per sample byte, with a selectable fault.
    #[derive(Debug)]
    struct Faulty(&'static str);

    impl Format for Faulty {
        fn name(&self) -> &'static str {
            "faulty"
        }
        fn unit(&self, _: &FileShape<'_>) -> Unit {
            Unit::File
        }
        fn size(&self, shape: &FileShape<'_>) -> Result<EncodedSize, FormatError> {
            Ok(EncodedSize::Exact(shape.payload_bytes() + u64::from(self.0 == "encoded")))
        }
        fn reads(
            &self,
            file: SourceFile<'_>,
            samples: std::ops::Range<u64>,
            reads: &mut Vec<Extent>,
        ) -> Result<(), Obstacle> {
            let (len, held) = match file {
                SourceFile::Ours(shape) => (shape.payload_bytes(), shape.samples),
                SourceFile::Foreign { look, samples } => (look.len, samples),
            };
            crate::within("faulty", &samples, held)?;
            reads.push(Extent { offset: 0, len: len + u64::from(self.0 == "sample 0") });
            Ok(())
        }
        fn decodes(&self) -> bool {
            matches!(self.0, "same bytes" | "the last byte")
        }
        fn decode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Obstacle> {
            if self.0 != "old contents" {
                out.clear();
            }
            match self.0 {
                "same bytes" if bytes.len() != 1000 => return Err(Damage::new("faulty", 0, "cut").into()),
                "same bytes" | "not encoded" => out.push(1),
                _ => out.extend_from_slice(bytes),
            }
            Ok(())
        }
        fn inspect(&self, _: &Look<'_>) -> Result<FileFacts, Obstacle> {
            let samples = Some(if self.0 == "are found" { 7 } else { 1 });
            Ok(FileFacts {
                samples,
                dims: Vec::new(),
                element: None,
                arrays: crate::ArrayList::default(),
                notes: Vec::new(),
            })
        }
        fn write(
            &self,
            shape: &FileShape<'_>,
            content: &Content,
            file: u64,
            out: &mut Pieces<'_, '_>,
        ) -> Result<(), EncodeError> {
            let file = if self.0 == "file number" { 0 } else { file };
            // The content depends on earlier calls, which a comparison does not make.
            let mut calls = 0;
            let written = out.produce(shape.payload_bytes(), |offset, part| {
                content.fill(file, offset, part);
                calls += 1;
                if self.0 == "compares" && calls == 1 && offset > 0 {
                    part[0] ^= 1;
                }
            });
            match written {
                Err(_) if self.0 == "a sink" => Ok(()),
                result => Ok(result?),
            }
        }
    }

    #[test]
    fn every_broken_rule_is_reported() {
        let shape = FileShape { dims: &[1000], element: Element::Uint8, samples: 1 };
        check(&Faulty("none"), &shape, 1, 1).unwrap();
        for fault in [
            "encoded",
            "file number",
            "sample 0",
            "are found",
            "a sink",
            "old contents",
            "not encoded",
            "the last byte",
            "same bytes",
            "compares",
        ] {
            let breach = check(&Faulty(fault), &shape, 1, 1).unwrap_err();
            assert!(breach.rule.contains(fault), "{breach}");
        }
    }
}
