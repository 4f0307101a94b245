//! The axes of an HDF5 dataset and its division into chunks: which chunks a range of samples touches, where a
//! chunk's elements belong, which parts of it are read. Pure arithmetic, without addresses and bytes.

use std::ops::{Deref, Range};

/// H5S_MAX_RANK.
pub(super) const MOST_RANK: usize = 32;

/// One number per axis, without allocation because reads are planned per visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axes {
    rank: usize,
    of: [u64; MOST_RANK],
}

impl Axes {
    /// The numbers in order, or `None` if there are more than an HDF5 dataset can have.
    pub(super) fn new(numbers: impl IntoIterator<Item = u64>) -> Option<Axes> {
        let mut axes = Axes { rank: 0, of: [0; MOST_RANK] };
        for number in numbers {
            *axes.of.get_mut(axes.rank)? = number;
            axes.rank += 1;
        }
        Some(axes)
    }

    pub(super) fn product(&self) -> Option<u64> {
        self.iter().try_fold(1_u64, |product, number| product.checked_mul(*number))
    }

    pub(super) fn set(&mut self, axis: usize, number: u64) {
        if let Some(place) = self.of[..self.rank].get_mut(axis) {
            *place = number;
        }
    }

    fn zeros(rank: usize) -> Axes {
        Axes { rank, of: [0; MOST_RANK] }
    }
}

impl Deref for Axes {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.of[..self.rank]
    }
}

/// A dataset divided into chunks of one shape. Every extent of `dims` and `chunk` is at least 1, all three have
/// the same rank (at least 1), and a chunk and the dataset have fewer bytes than the longest file, so that sums
/// of two positions do not overflow. The constructor's caller checks this ([`ChunkGrid::is_sound`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkGrid {
    /// Samples first.
    pub dims: Axes,
    /// The maximum of `dims`; the largest number means unlimited.
    pub most: Axes,
    pub chunk: Axes,
    /// Bytes of an element.
    pub element: u64,
}

/// Bytes of a chunk that are also adjacent in the dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkRun {
    /// Offset in the chunk.
    pub chunk_offset: u64,
    /// Offset in the contiguous dataset.
    pub set_offset: u64,
    pub len: u64,
}

impl ChunkGrid {
    pub(super) fn is_sound(&self) -> bool {
        let rank = self.dims.len();
        let alike = rank > 0 && self.most.len() == rank && self.chunk.len() == rank;
        let whole = |axes: &Axes| {
            axes.product()
                .filter(|product| *product > 0)
                .and_then(|product| product.checked_mul(self.element))
                .is_some_and(|bytes| bytes > 0 && i64::try_from(bytes).is_ok())
        };
        alike && whole(&self.dims) && whole(&self.chunk) && self.chunks().is_some()
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        self.chunk.iter().product::<u64>() * self.element
    }

    /// Chunks that hold elements.
    pub(super) fn chunks(&self) -> Option<u64> {
        self.counts().product()
    }

    /// Chunks along each axis.
    pub(super) fn counts(&self) -> Axes {
        self.zipped(&self.dims, |extent, chunk| extent.div_ceil(chunk))
    }

    /// Chunks along each axis if the dataset has its maximum size: an index has space for all of them.
    pub(super) fn most_counts(&self) -> Axes {
        self.zipped(&self.most, |extent, chunk| extent.div_ceil(chunk))
    }

    fn zipped(&self, axes: &Axes, number: impl Fn(u64, u64) -> u64) -> Axes {
        let mut out = Axes::zeros(self.chunk.len());
        for (axis, (extent, chunk)) in axes.iter().zip(self.chunk.iter()).enumerate() {
            out.set(axis, number(*extent, *chunk));
        }
        out
    }

    /// How many chunks a range of samples touches.
    pub(super) fn touched(&self, samples: &Range<u64>) -> Option<u64> {
        self.box_of(samples).product()
    }

    /// The chunks that samples touch, along each axis.
    fn box_of(&self, samples: &Range<u64>) -> Axes {
        let mut counts = self.counts();
        let rows = self.rows(samples);
        counts.set(0, rows.end.saturating_sub(rows.start));
        counts
    }

    fn rows(&self, samples: &Range<u64>) -> Range<u64> {
        samples.start / self.chunk[0]..samples.end.div_ceil(self.chunk[0])
    }

    /// Calls `each` with the position in the grid of every chunk that a range of samples touches, the last
    /// axis varying fastest.
    pub(super) fn each_chunk<E>(
        &self,
        samples: &Range<u64>,
        mut each: impl FnMut(&Axes) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = self.rows(samples).start;
        let counts = self.box_of(samples);
        let mut at = Axes::zeros(counts.len());
        at.set(0, first);
        for _ in 0..counts.product().unwrap_or(0) {
            each(&at)?;
            step(&mut at, &counts);
        }
        Ok(())
    }

    /// The bytes of a chunk that belong to these samples, in runs that are contiguous both in the chunk and
    /// in the dataset.
    pub(super) fn each_run(&self, at: &Axes, samples: &Range<u64>, mut each: impl FnMut(ChunkRun)) {
        let runs = self.runs(at);
        let origin = at[0] * self.chunk[0];
        let wanted = samples.start.max(origin)..samples.end.min(origin + self.chunk[0]).min(self.dims[0]);
        let per_row = runs.per_row();
        if runs.axis == 0 {
            let first = runs.run(0);
            let row_bytes = runs.stride / self.chunk[0];
            let skip = wanted.start.saturating_sub(origin) * row_bytes;
            let len = wanted.end.saturating_sub(wanted.start) * row_bytes;
            let (chunk_offset, set_offset) = (skip, first.set_offset + skip);
            each(ChunkRun { chunk_offset, set_offset, len });
            return;
        }
        for row in wanted {
            let start = (row - origin) * per_row;
            (start..start + per_row)
                .map(|number| runs.run(number))
                .filter(|run| run.len > 0)
                .for_each(&mut each);
        }
    }

    /// The runs of a chunk, computed one by one.
    pub(super) fn runs(&self, at: &Axes) -> ChunkRuns {
        let full = |axis: &usize| self.chunk[*axis] != self.dims[*axis];
        let axis = (1..self.dims.len()).rev().find(full).unwrap_or(0);
        let below = self.dims[axis + 1..].iter().product::<u64>() * self.element;
        let origin = at[axis] * self.chunk[axis];
        let held = self.chunk[axis].min(self.dims[axis].saturating_sub(origin));
        ChunkRuns { grid: *self, at: *at, axis, below, len: held * below, stride: self.chunk[axis] * below }
    }
}

/// The runs of one chunk, numbered in the order of their positions, including those outside the dataset.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkRuns {
    grid: ChunkGrid,
    at: Axes,
    /// The axis of a run: along all later axes, chunks are as wide as the dataset.
    axis: usize,
    /// Bytes of one step along `axis`.
    below: u64,
    /// Bytes of a run inside the dataset.
    pub len: u64,
    /// Bytes from one run of the chunk to the next.
    pub stride: u64,
}

impl ChunkRuns {
    /// Runs of one sample.
    fn per_row(&self) -> u64 {
        self.grid.chunk[..self.axis].iter().skip(1).product()
    }

    /// A run, or one of length 0 if it is outside the dataset.
    pub(super) fn run(&self, number: u64) -> ChunkRun {
        let (grid, mut rest) = (&self.grid, number);
        let mut inside = true;
        let mut set_offset = self.at[self.axis] * grid.chunk[self.axis] * self.below;
        let mut step = grid.dims[self.axis] * self.below;
        for axis in (0..self.axis).rev() {
            let place = self.at[axis] * grid.chunk[axis] + rest % grid.chunk[axis];
            rest /= grid.chunk[axis];
            inside &= place < grid.dims[axis];
            set_offset = set_offset.wrapping_add(place.wrapping_mul(step));
            step = step.wrapping_mul(grid.dims[axis]);
        }
        ChunkRun { chunk_offset: number * self.stride, set_offset, len: if inside { self.len } else { 0 } }
    }
}

/// The next position in a grid with these counts; the first axis is not limited.
pub(super) fn step(at: &mut Axes, counts: &[u64]) {
    for axis in (0..counts.len()).rev() {
        let next = at[axis] + 1;
        if next < counts[axis] || axis == 0 {
            at.set(axis, next);
            return;
        }
        at.set(axis, 0);
    }
}
