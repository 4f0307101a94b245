//! The reads of one visit: the requests of h5py when it opens a file and reads some samples, or only the samples'
//! bytes. The same rules serve generated files, whose addresses are computed, and existing files, whose addresses
//! `read` finds.

use super::NAME;
use super::grid::{Axes, ChunkGrid};
use super::plan::{INDEX_HEADER, Layout, SUPERBLOCK};
use super::read::{self, DatasetStorage};
use crate::{Extent, Look, Obstacle, within};
use model::spec::Access;
use std::convert::Infallible;
use std::ops::Range;

/// The signature, which libhdf5 reads first.
const SIGNATURE: u64 = 8;
/// What libhdf5 reads of an object header before it knows its length (H5O_SPEC_READ_SIZE).
pub(super) const SPECULATIVE: u64 = 512;
/// Smaller requests to contiguous data are extended to this length, up to the dataset's end (the default sieve
/// buffer).
const SIEVE: u64 = 64 << 10;
/// A chunk that is longer than h5py's chunk cache, and not filtered, is read only in the needed parts.
const CHUNK_CACHE: u64 = 1 << 20;
/// The maximum number of reads of one visit, so that numbers in a damaged file cannot exhaust memory.
const MOST_READS: usize = 1 << 22;

/// The reads of a visit to a generated file.
pub(super) fn ours(plan: &Layout, access: Access, samples: &Range<u64>, reads: &mut Vec<Extent>) {
    let mut visit = VisitReads { access, samples, first: reads.len(), reads };
    if visit.is_framework() {
        visit.push(0, SIGNATURE);
        visit.push(0, SUPERBLOCK);
        visit.header(SUPERBLOCK, plan.root, plan.end);
    }
    for set in 0..plan.sets {
        if visit.is_framework() {
            visit.header(plan.header_at(set), plan.header, plan.end);
        }
        match plan.chunked {
            true => our_chunks(plan, set, &mut visit),
            false => visit.contiguous(plan.data_at(set), plan.set_bytes, plan.grid.dims[0]),
        }
    }
}

fn our_chunks(plan: &Layout, set: u64, visit: &mut VisitReads<'_>) {
    let (grid, index) = (&plan.grid, &plan.index);
    let block = plan.index_at(set) + INDEX_HEADER;
    if visit.is_framework() {
        visit.push(plan.index_at(set), INDEX_HEADER);
        visit.push(block, index.first_block());
    }
    let (counts, most) = (grid.counts(), grid.most_counts());
    let (chunk_bytes, first) = (grid.chunk_bytes(), plan.data_at(set));
    let mut page_read = None;
    let samples = visit.samples;
    let done: Result<(), Infallible> = grid.each_chunk(samples, |at| {
        let (page, place) = index.page_of(number(at, &most));
        if visit.is_framework() && index.is_paged() && page_read != Some(page) {
            visit.push(block + index.first_block() + place.offset, place.len);
            page_read = Some(page);
        }
        let chunk = Extent { offset: first + number(at, &counts) * chunk_bytes, len: chunk_bytes };
        visit.chunk(grid, at, plan.filtered, chunk);
        Ok(())
    });
    let Ok(()) = done;
}

/// The index of a position in a grid with these counts, the last axis varying fastest.
fn number(at: &Axes, counts: &Axes) -> u64 {
    at.iter().zip(counts.iter()).fold(0, |number, (at, count)| number * count + at)
}

/// The reads of a visit to an existing file, except metadata.
pub(super) fn foreign(
    look: &Look<'_>,
    access: Access,
    samples: &Range<u64>,
    reads: &mut Vec<Extent>,
) -> Result<(), Obstacle> {
    let first = reads.len();
    let result = foreign_sets(look, VisitReads { access, samples, first, reads });
    if result.is_err() {
        // The caller will call again.
        reads.truncate(first);
    }
    result
}

fn foreign_sets(look: &Look<'_>, mut visit: VisitReads<'_>) -> Result<(), Obstacle> {
    let file = read::open(look)?;
    within(NAME, visit.samples, file.samples)?;
    for set in &file.sets {
        match &set.storage {
            DatasetStorage::Contiguous(data) => visit.contiguous(data.offset, data.len, set.dims[0]),
            DatasetStorage::Chunked { grid, index } => {
                let touched = grid.touched(visit.samples);
                if touched.is_none_or(|touched| touched > look.len) {
                    let what = format!("its dataset {} has more chunks than the file has bytes", set.name);
                    return Err(look.damage(set.at, what).into());
                }
                let finder = index.finder(&file.container, grid, set.is_filtered())?;
                let samples = visit.samples;
                grid.each_chunk(samples, |at| {
                    if let Some(chunk) = finder.find(at)? {
                        visit.chunk(grid, at, set.is_filtered(), chunk);
                    }
                    match visit.reads.len() - visit.first > MOST_READS {
                        true => Err(Obstacle::from(look.damage(set.at, "it takes too many reads"))),
                        false => Ok(()),
                    }
                })?;
            }
        }
    }
    if visit.is_framework() {
        visit.reads.splice(visit.first..visit.first, file.container.read_again());
    }
    Ok(())
}

/// A visit whose reads are being collected.
struct VisitReads<'a> {
    access: Access,
    samples: &'a Range<u64>,
    /// Earlier reads belong to the caller.
    first: usize,
    reads: &'a mut Vec<Extent>,
}

impl VisitReads<'_> {
    fn is_framework(&self) -> bool {
        self.access == Access::Framework
    }

    fn push(&mut self, offset: u64, len: u64) {
        if len > 0 {
            self.reads.push(Extent { offset, len });
        }
    }

    /// Data: adjacent reads are merged, unless each chunk is a separate request.
    fn push_data(&mut self, offset: u64, len: u64) {
        let joins = !self.is_framework() && self.reads.len() > self.first;
        match self.reads.last_mut().filter(|last| joins && last.end() == offset) {
            Some(last) => last.len += len,
            None => self.push(offset, len),
        }
    }

    /// A header's first bytes, and the rest if it is longer.
    fn header(&mut self, offset: u64, len: u64, end: u64) {
        let first = SPECULATIVE.min(end.saturating_sub(offset));
        self.push(offset, first);
        self.push(offset + first, len.saturating_sub(first));
    }

    /// A contiguous dataset of this many samples.
    fn contiguous(&mut self, start: u64, bytes: u64, samples: u64) {
        let sample = bytes / samples;
        let skip = self.samples.start * sample;
        let wanted = (self.samples.end - self.samples.start) * sample;
        let sieved = if self.is_framework() { SIEVE.min(bytes - skip) } else { 0 };
        self.push_data(start + skip, wanted.max(sieved));
    }

    fn chunk(&mut self, grid: &ChunkGrid, at: &Axes, filtered: bool, chunk: Extent) {
        if !self.is_framework() || filtered || chunk.len <= CHUNK_CACHE {
            return self.push_data(chunk.offset, chunk.len);
        }
        let samples = self.samples;
        grid.each_run(at, samples, |run| self.push(chunk.offset + run.chunk_offset, run.len));
    }
}
