//! The expected content of the files of a data set that feedline generated, and the error for a file that differs.

use format::{Content, EncodeError, FileParts, Format, WrongByte};
use model::names::Name;
use model::plan::ComputedData;
use store::{Store, StoreError};

/// The data set as described by its manifest.
#[derive(Clone, Copy, Debug)]
pub struct Truth<'a> {
    pub content: Content,
    /// Names, shapes and numbers of its files.
    pub data: ComputedData<'a>,
}

/// Number of other files of the data set that are compared with the bytes found, nearest first.
const OTHER_FILES: u64 = 100_000;
/// Number of other seeds that are tried: users choose small ones.
const OTHER_SEEDS: u64 = 4096;
/// Fewer matching bytes are no evidence: two files may have them in common.
const TELLING_BYTES: u64 = 16;
/// Where time matters, checksums over at most this many bytes are recomputed.
pub(crate) const LITTLE_EFFORT: u64 = 4096;

impl Truth<'_> {
    /// Compares parts of file number `file` with their expected content; returns the number of compared bytes and the
    /// first one that differs.
    pub(crate) fn compare(
        &self,
        format: &dyn Format,
        file: u64,
        parts: FileParts<'_>,
        effort: u64,
    ) -> Result<format::ComparisonResult, EncodeError> {
        self.compare_with(&self.content, format, file, parts, effort)
    }

    fn compare_with(
        &self,
        content: &Content,
        format: &dyn Format,
        file: u64,
        parts: FileParts<'_>,
        effort: u64,
    ) -> Result<format::ComparisonResult, EncodeError> {
        self.data.with_shape(file, |shape| format.compare(shape, content, file, parts, effort))
    }

    /// The error for a wrong byte of file number `file`; it names the origin of the bytes if that can be found out.
    pub(crate) fn objection(
        &self,
        format: &dyn Format,
        store: &dyn Store,
        file: u64,
        parts: FileParts<'_>,
        wrong: WrongByte,
    ) -> StoreError {
        let shown = Name::new(&self.data.name_of(file)).map(|name| store.files().shown(&name));
        let WrongByte { offset, expected, found } = wrong;
        let expected = expected.map_or("no further byte".to_owned(), |byte| format!("{byte:#04x}"));
        let seed = self.content.seed();
        let mut what = format!(
            "found {found:#04x}, expected {expected} of content (seed {seed}, file {file}, offset {offset})"
        );
        if let Some(origin) = self.origin(format, file, parts) {
            what.push_str(&format!("; {origin}"));
        }
        StoreError::WrongBytes { name: shown.unwrap_or_default(), offset, what }
    }

    /// The origin of the bytes that were found in place of file number `file`.
    fn origin(&self, format: &dyn Format, file: u64, parts: FileParts<'_>) -> Option<String> {
        let fits = |content: &Content, file: u64| {
            let seen = self.compare_with(content, format, file, parts, LITTLE_EFFORT);
            seen.is_ok_and(|seen| seen.wrong.is_none() && seen.bytes >= TELLING_BYTES)
        };
        let files = self.data.files();
        let near = (1..files.min(OTHER_FILES)).flat_map(|far| [file.checked_sub(far), file.checked_add(far)]);
        let mut near = near.flatten().filter(|other| *other < files);
        if let Some(other) = near.find(|other| fits(&self.content, *other)) {
            return Some(format!("it holds the content of file {other}, {}", self.data.name_of(other)));
        }
        if let Some(seed) = (0..OTHER_SEEDS).find(|seed| fits(&self.content.with_seed(*seed), file)) {
            return Some(format!("it holds the content of seed {seed}"));
        }
        let blank = parts.bytes.iter().all(|byte| *byte == 0);
        blank.then(|| "it holds zeros".to_owned())
    }
}
