//! What a lane does about the page cache around a fetch: count its resident pages right before they are read, determine
//! which of these this process did not load itself, and evict pages afterwards. Blocking and asynchronous lanes both
//! use this.

use std::ops::AddAssign;

use model::extent::Extent;
use model::order::mix;
use rustix::fd::BorrowedFd;

use crate::Fetch;
use crate::footprint::{Footprint, key_of};
use crate::page_cache::{self, Denied, Pages};

/// Pages of a range that are queried if they can only be queried one by one.
const SINGLE_PAGES: u64 = 8;

/// Whether and how the pages of fetches are counted and evicted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proof<'a> {
    /// One fetch in this many, drawn at random, has its pages counted; 0: none.
    pub counts_one_in: u64,
    /// Seed of the draw.
    pub seed: u64,
    /// Whether pages are evicted after they were read.
    pub gives_back: bool,
    /// What this process has read since the epoch began, if files are read more than once in it.
    pub footprint: Option<&'a Footprint>,
}

/// What is known about the pages of a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probe {
    /// Counting is off.
    #[default]
    Unasked,
    /// The fetch was not drawn.
    LeftOut,
    /// The kernel did not report it.
    Refused(Denied),
    Counted(PageCount),
}

/// The pages of a fetch right before they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCount {
    pub pages: Pages,
    /// Only some of its pages were queried.
    pub is_part: bool,
    /// The pages that the footprint tracks, and those of them that were resident without an earlier read of this
    /// process that explains it.
    pub followed: Pages,
}

/// A fetch as the prover needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchView<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ranges: &'a [Extent],
    pub(crate) file_bytes: u64,
}

impl<'a> FetchView<'a> {
    pub(crate) fn of(fetch: &Fetch<'a>) -> FetchView<'a> {
        FetchView { name: fetch.name.as_str().as_bytes(), ranges: fetch.ranges, file_bytes: fetch.file_bytes }
    }
}

/// Carries out a proof, fetch by fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prover<'a> {
    proof: Proof<'a>,
    fetches: u64,
}

impl<'a> Prover<'a> {
    pub(crate) fn new(proof: Proof<'a>) -> Prover<'a> {
        Prover { proof, fetches: 0 }
    }

    /// Whether it will ever query or evict pages.
    pub(crate) fn looks(&self) -> bool {
        self.proof.counts_one_in > 0 || self.proof.gives_back
    }

    /// Draws the next fetch: `None` if its pages are to be counted, otherwise why they are not.
    pub(crate) fn draw(&mut self, subject: FetchView<'_>) -> Option<Probe> {
        self.fetches += 1;
        let Proof { counts_one_in, seed, footprint, .. } = self.proof;
        let drawn = match (counts_one_in, footprint) {
            (0, _) => return Some(Probe::Unasked),
            (1, _) => true,
            // If files are read repeatedly, whole regions are drawn: the reads of one fetch explain pages of another.
            (_, Some(print)) => {
                let FetchView { name, ranges, file_bytes } = subject;
                let (file, first) = (key_of(name), ranges.first().map_or(0, |range| range.offset));
                let drawn = print.follows(file, first);
                if !drawn {
                    ranges.iter().for_each(|range| print.mark(file, *range, file_bytes));
                }
                drawn
            }
            (one_in, None) => mix(seed, self.fetches).is_multiple_of(one_in),
        };
        (!drawn).then_some(Probe::LeftOut)
    }

    /// Counts the pages of all ranges before the first is read: read-ahead of one loads those of the next.
    pub(crate) fn count(&self, file: BorrowedFd<'_>, subject: FetchView<'_>) -> Probe {
        let FetchView { name, ranges, file_bytes } = subject;
        let print = self.proof.footprint;
        let key = if print.is_some() { key_of(name) } else { 0 };
        let (mut sum, mut foreign) = (PageCount::default(), 0_u64);
        for (i, range) in ranges.iter().enumerate() {
            let mut tally = RangeCount { print, key, sum: PageCount::default() };
            if let Err(denied) = tally.count(file, *range) {
                return Probe::Refused(denied);
            }
            foreign |= u64::from(tally.is_foreign()) << i.min(63);
            sum += tally.sum;
        }
        // The reads that follow load these ranges and their read-ahead. A range whose pages are all resident already,
        // loaded by something else, loads nothing.
        if let Some(print) = print {
            let brings = ranges.iter().enumerate().filter(|(i, _)| foreign >> i.min(&63) & 1 == 0);
            brings.for_each(|(_, range)| print.mark(key, *range, file_bytes));
        }
        Probe::Counted(sum)
    }

    pub(crate) fn gives_back(&self) -> bool {
        self.proof.gives_back
    }
}

/// The count of a range in progress.
struct RangeCount<'a> {
    print: Option<&'a Footprint>,
    key: u64,
    sum: PageCount,
}

impl RangeCount<'_> {
    fn count(&mut self, file: BorrowedFd<'_>, range: Extent) -> Result<(), Denied> {
        match page_cache::count(file, range) {
            Ok(pages) => self.add(range, pages),
            Err(Denied::NotPermitted) => self.count_single_pages(file, range)?,
            Err(denied) => return Err(denied),
        }
        Ok(())
    }

    fn add(&mut self, range: Extent, pages: Pages) {
        self.sum.pages += pages;
        let Some(print) = self.print.filter(|print| print.follows(self.key, range.offset)) else { return };
        let own = if pages.cached > 0 { print.pages(self.key, range) } else { 0 };
        self.sum.followed += Pages { cached: pages.cached.saturating_sub(own), all: pages.all };
    }

    /// Queries some of a range's pages, one by one, the last one first: the query requests a page that is not resident,
    /// together with those behind it.
    fn count_single_pages(&mut self, file: BorrowedFd<'_>, range: Extent) -> Result<(), Denied> {
        let (all, page) = (page_cache::pages_of(range), rustix::param::page_size() as u64);
        let asked = all.min(SINGLE_PAGES);
        self.sum.is_part |= asked < all;
        for part in (0..asked).rev() {
            let offset = (range.offset / page + part * all / asked) * page;
            let cached = page_cache::is_cached(file, offset).ok_or(Denied::NotPermitted)?;
            self.add(Extent { offset, len: 1 }, Pages { cached: u64::from(cached), all: 1 });
        }
        Ok(())
    }

    /// Whether all counted pages were loaded by something else.
    fn is_foreign(&self) -> bool {
        let PageCount { pages, followed, .. } = self.sum;
        followed == pages && pages.all > 0 && followed.cached == followed.all
    }
}

impl AddAssign for PageCount {
    fn add_assign(&mut self, other: PageCount) {
        let PageCount { pages, is_part, followed } = other;
        self.pages += pages;
        self.is_part |= is_part;
        self.followed += followed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(counts_one_in: u64, seed: u64) -> Vec<bool> {
        let mut prover = Prover::new(Proof { counts_one_in, seed, ..Proof::default() });
        (0..16_000)
            .map(|_| prover.draw(FetchView { name: b"a", ranges: &[], file_bytes: 0 }).is_none())
            .collect()
    }

    #[test]
    fn a_sample_is_random_and_one_in_one_is_all() {
        let count = |drawn: Vec<bool>| drawn.into_iter().filter(|drawn| *drawn).count();
        assert_eq!((count(drawn(0, 1)), count(drawn(1, 1))), (0, 16_000));
        let some = count(drawn(16, 1));
        // The standard deviation of this binomial distribution is 31.
        assert!((850..1150).contains(&some), "{some}");
        assert_ne!(drawn(16, 1), drawn(16, 2));
    }

    #[test]
    fn a_proof_that_asks_for_nothing_does_nothing() {
        for (proof, looks) in [
            (Proof::default(), false),
            (Proof { seed: 5, ..Proof::default() }, false),
            (Proof { counts_one_in: 1, ..Proof::default() }, true),
            (Proof { gives_back: true, ..Proof::default() }, true),
        ] {
            assert_eq!(Prover::new(proof).looks(), looks, "{proof:?}");
        }
    }
}
