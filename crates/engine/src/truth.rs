//! What the files of a data set that feedline generated should hold, and what to say of one that does not.

use format::{Content, EncodeError, Format, Parts, Wrong};
use model::names::Name;
use model::plan::ComputedData;
use store::{Store, StoreError};

/// The data set as its manifest says it was made.
#[derive(Clone, Copy, Debug)]
pub struct Truth<'a> {
    pub content: Content,
    /// Names, shapes and numbers of its files.
    pub data: ComputedData<'a>,
}

/// Other files of the data set whose bytes are tried on those that were found, nearest first.
const OTHER_FILES: u64 = 100_000;
/// Other seeds that are tried: people choose small ones.
const OTHER_SEEDS: u64 = 4096;
/// Fewer bytes tell nothing: two files may have them in common.
const TELLING_BYTES: u64 = 16;
/// Checksums of so many bytes are made again to compare them, where time matters.
pub(crate) const LITTLE_EFFORT: u64 = 4096;

impl Truth<'_> {
    /// Compares parts of file number `file` with what should stand there: how many bytes were compared, and the first
    /// that is another.
    pub(crate) fn compare(
        &self,
        format: &dyn Format,
        file: u64,
        parts: Parts<'_>,
        effort: u64,
    ) -> Result<format::Compared, EncodeError> {
        self.compare_with(&self.content, format, file, parts, effort)
    }

    fn compare_with(
        &self,
        content: &Content,
        format: &dyn Format,
        file: u64,
        parts: Parts<'_>,
        effort: u64,
    ) -> Result<format::Compared, EncodeError> {
        self.data.with_shape(file, |shape| format.compare(shape, content, file, parts, effort))
    }

    /// The error that a wrong byte of file number `file` is, with whose bytes were found where that can be told.
    pub(crate) fn objection(
        &self,
        format: &dyn Format,
        store: &dyn Store,
        file: u64,
        parts: Parts<'_>,
        wrong: Wrong,
    ) -> StoreError {
        let shown = Name::new(&self.data.name_of(file)).map(|name| store.files().shown(&name));
        let Wrong { offset, expected, found } = wrong;
        let expected = expected.map_or("no byte more".to_owned(), |byte| format!("{byte:#04x}"));
        let seed = self.content.seed();
        let mut what = format!(
            "found {found:#04x}, expected {expected} of content (seed {seed}, file {file}, offset {offset})"
        );
        if let Some(whose) = self.whose(format, file, parts) {
            what.push_str(&format!("; {whose}"));
        }
        StoreError::WrongBytes { name: shown.unwrap_or_default(), offset, what }
    }

    /// Whose bytes those are that were found in the place of file number `file`.
    fn whose(&self, format: &dyn Format, file: u64, parts: Parts<'_>) -> Option<String> {
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
