//! Names and sizes of the files of a data set by a listing, which all members of a run make together: each lists a part
//! of the names and learns what the others found. So a data set is listed once, whatever the number of members. Only
//! for stores that list names together with sizes; for others, each size is a request.

use std::ops::Range;

use model::names::{Name, Names, Pattern};
use store::{Files, NameRange, SizeListing, StoreError};

use crate::stop::Stop;
use crate::world::{EarlyEnd, Exchange, gather_to_all};

/// Comes after everything that follows the name of a file of the data set, such as `.idx`.
const AFTER_SUFFIXES: char = '~';

/// The files in a folder of a data set, and those beside them.
pub(crate) struct NumberedListing<'a> {
    files: &'a dyn Files,
    folder: Name,
    pattern: Pattern,
    count: u64,
    /// What follows the name of a file; nothing for the file itself.
    suffixes: &'a [&'a str],
}

/// A file that was found.
pub(crate) struct ListedFile {
    /// Its number in the folder.
    pub(crate) index: u64,
    /// Which of the suffixes its name has.
    pub(crate) suffix: usize,
    pub(crate) bytes: u64,
}

impl<'a> NumberedListing<'a> {
    pub(crate) fn new(files: &'a dyn Files, names: &Names, suffixes: &'a [&'a str]) -> NumberedListing<'a> {
        let (folder, pattern) = (Name::new(&names.folder).unwrap_or_default(), names.pattern());
        NumberedListing { files, folder, pattern, count: names.count, suffixes }
    }

    /// The positions, in the byte order of names, that a member lists.
    pub(crate) fn part(&self, member: u64, world: &dyn Exchange) -> Range<u64> {
        let at = |member: u64| {
            (u128::from(self.count) * u128::from(member) / u128::from(world.members().max(1))) as u64
        };
        match (self.files.lists_sizes(), member) {
            (SizeListing::Ranges, member) => at(member)..at(member + 1),
            // A listing cannot begin in the middle, so one member does all of it.
            (_, 0) => 0..self.count,
            (_, _) => 0..0,
        }
    }

    /// The position of a file in the byte order of names, and the reverse.
    pub(crate) fn position(&self, index: u64) -> u64 {
        self.pattern.position(index)
    }

    pub(crate) fn at_position(&self, position: u64) -> u64 {
        self.pattern.at_position(position)
    }

    /// Lists a part. Returns the number of files that are named like those of the data set but are none of them. Ends
    /// early if a stop is requested.
    pub(crate) fn list(
        &self,
        part: &Range<u64>,
        stop: &Stop,
        found: &mut dyn FnMut(ListedFile),
    ) -> Result<u64, StoreError> {
        let mut strays = 0;
        self.list_all(part, stop, found, &mut |name| strays += u64::from(self.is_stray(name)))?;
        Ok(strays)
    }

    /// Lists a part, with the names that are not those of files of the data set.
    pub(crate) fn list_all(
        &self,
        part: &Range<u64>,
        stop: &Stop,
        found: &mut dyn FnMut(ListedFile),
        other: &mut dyn FnMut(&str),
    ) -> Result<(), StoreError> {
        if part.is_empty() && self.count > 0 {
            return Ok(());
        }
        let (after, until) = (self.bound(part.start, 0), self.bound(part.end, self.count));
        let range = NameRange { folder: &self.folder, after: &after, until: &until };
        self.files.list_sizes(&range, &mut |name, bytes| {
            match self.file_of(name) {
                Some((index, suffix)) => found(ListedFile { index, suffix, bytes }),
                None => other(name),
            }
            !stop.wished()
        })
    }

    /// The end of the names before a position; empty at `open`, where a listing has no bound.
    fn bound(&self, position: u64, open: u64) -> String {
        if position == open {
            return String::new();
        }
        let mut name = Name::default();
        self.pattern.write(self.pattern.at_position(position - 1), &mut name);
        format!("{name}{AFTER_SUFFIXES}")
    }

    fn file_of(&self, name: &str) -> Option<(u64, usize)> {
        let own = |suffix: &str| self.pattern.index_of(name.strip_suffix(suffix)?);
        (0..).zip(self.suffixes).find_map(|(number, suffix)| Some((own(suffix)?, number)))
    }

    fn is_stray(&self, name: &str) -> bool {
        let file = name.rsplit('/').next().unwrap_or_default();
        let (prefix, tail) = self.pattern.ends();
        file.starts_with(prefix) && file.ends_with(tail)
    }
}

/// What all members found, in the order of members.
pub(crate) fn of_all(world: &dyn Exchange, own: Vec<u8>, stop: &Stop) -> Result<Vec<Vec<u8>>, EarlyEnd> {
    if world.members() == 1 { Ok(vec![own]) } else { gather_to_all(world, &own, stop) }
}
