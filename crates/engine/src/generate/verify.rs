//! Reads a data set back and compares every byte with its expected content. Nothing is stored: content is a function,
//! so each file is encoded again while it is read.

use format::{Content, EncodeError, Extent};
use model::names::Name;
use store::StoreError;

use super::{GenerateError, Generation, side_name};
use crate::file_reader::FileReader;

/// Compares file number `file` and its side files with their expected content, while `go_on` returns true. Returns the
/// number of bytes read.
pub(super) fn check_file(
    task: &Generation<'_>,
    content: &Content,
    file: u64,
    name: &Name,
    reader: &mut FileReader<'_>,
    scratch: &mut Vec<u8>,
    go_on: &dyn Fn() -> bool,
) -> Result<u64, GenerateError> {
    let mut comparison = FileComparison::new(task, name, reader, go_on)?;
    let encoded = task.data.with_shape(file, |shape| {
        task.format.encode(shape, content, file, scratch, &mut |bytes| comparison.compare(bytes))
    });
    let mut bytes = comparison.finish(encoded)?;
    for (number, side) in task.format.sides().iter().enumerate() {
        let name = side_name(name, *side);
        let mut comparison = FileComparison::new(task, &name, reader, go_on)?;
        let encoded = task.data.with_shape(file, |shape| {
            task.format.encode_side(number, shape, &mut |bytes| comparison.compare(bytes))
        });
        bytes += comparison.finish(encoded)?;
    }
    Ok(bytes)
}

struct FileComparison<'a, 's> {
    name: &'a Name,
    /// Size of the existing file.
    size: u64,
    reader: &'a mut FileReader<'s>,
    go_on: &'a dyn Fn() -> bool,
    at: u64,
    verdict: Result<(), GenerateError>,
}

impl<'a, 's> FileComparison<'a, 's> {
    fn new(
        task: &Generation<'_>,
        name: &'a Name,
        reader: &'a mut FileReader<'s>,
        go_on: &'a dyn Fn() -> bool,
    ) -> Result<FileComparison<'a, 's>, StoreError> {
        let files = task.store.files();
        let size = files.size(name)?.ok_or_else(|| StoreError::Missing { name: files.shown(name) })?;
        Ok(FileComparison { name, size, reader, go_on, at: 0, verdict: Ok(()) })
    }

    /// Compares the next bytes of the file with the expected ones. A difference ends the encoding.
    fn compare(&mut self, expected: &[u8]) -> std::io::Result<()> {
        if !(self.go_on)() {
            return Err(std::io::Error::other("interrupted"));
        }
        let range = Extent { offset: self.at, len: expected.len() as u64 };
        self.verdict = match self.reader.read_ahead((self.name, self.size), range) {
            Err(StoreError::Short { end: offset, .. }) => {
                Err(GenerateError::Differs { name: self.name.to_string(), offset })
            }
            Err(error) => Err(error.into()),
            Ok(found) => match found.iter().zip(expected).position(|(found, expected)| found != expected) {
                Some(place) => Err(GenerateError::Differs {
                    name: self.name.to_string(),
                    offset: self.at + place as u64,
                }),
                None => Ok(()),
            },
        };
        self.at += expected.len() as u64;
        self.verdict.as_ref().map(|_| ()).map_err(|_| std::io::Error::other("a byte differs"))
    }

    /// The number of compared bytes, if all matched and the file ends there.
    fn finish(self, encoded: Result<(), EncodeError>) -> Result<u64, GenerateError> {
        self.verdict?;
        encoded.map_err(|error| match error {
            EncodeError::Shape(error) => GenerateError::Format(error),
            EncodeError::Sink(_) => GenerateError::Interrupted,
        })?;
        match self.size > self.at {
            true => Err(GenerateError::Differs { name: self.name.to_string(), offset: self.at }),
            false => Ok(self.at),
        }
    }
}
