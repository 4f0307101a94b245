//! Encodes an HDF5 file: metadata, then the samples, contiguous or in chunks, then the labels. Compressed files
//! are compressed twice, because the addresses of chunks precede the chunks. Memory is the scratch, two small
//! buffers and eight bytes per chunk.

use super::grid::{Axes, ChunkGrid, ChunkRuns};
use super::plan::Layout;
use super::write;
use crate::pieces::Pieces;
use crate::{Content, array};
use flate2::{Compress, Compression, FlushCompress, Status};
use model::shape::{Element, FileShape};
use std::io;

/// Size of the pieces in which chunks are generated and compressed. Both passes use the same size, whatever the
/// scratch, because a compressor's output may depend on it.
const STEP: usize = 16 * 1024;

/// The content of one dataset.
#[derive(Clone, Copy)]
struct DatasetContent<'a> {
    content: &'a Content,
    element: Element,
    file: u64,
    /// Where the dataset starts in the file's stream of samples.
    start: u64,
}

impl DatasetContent<'_> {
    fn fill(&self, offset: u64, out: &mut [u8]) {
        array::fill_samples(self.element, self.content, self.file, self.start + offset, out);
    }

    /// Bytes of a chunk: samples where it overlaps the dataset, zeros elsewhere.
    fn fill_chunk(&self, runs: &ChunkRuns, offset: u64, out: &mut [u8]) {
        let (mut number, mut skip) = (offset / runs.stride, offset % runs.stride);
        let mut rest = out;
        while !rest.is_empty() {
            let run = runs.run(number);
            let (part, tail) = rest.split_at_mut(clip(rest.len(), runs.stride - skip));
            let (held, outside) = part.split_at_mut(clip(part.len(), run.len.saturating_sub(skip)));
            self.fill(run.set_offset + skip, held);
            outside.fill(0);
            (number, skip, rest) = (number + 1, 0, tail);
        }
    }
}

fn clip(len: usize, most: u64) -> usize {
    usize::try_from(most).map_or(len, |most| len.min(most))
}

pub(super) fn file(
    plan: &Layout,
    gzip: Option<u32>,
    shape: &FileShape<'_>,
    content: &Content,
    file: u64,
    out: &mut Pieces<'_, '_>,
) -> io::Result<()> {
    let grid = &plan.grid;
    let logical = grid.dims.iter().product::<u64>() * grid.element;
    let source = |set| DatasetContent { content, element: shape.element, file, start: set * logical };
    let mut deflate = gzip.map(ChunkCompressor::new);
    let sizes = match &mut deflate {
        Some(deflate) => Some(sizes(plan, deflate, source)?),
        None => None,
    };
    let data_bytes = sizes.as_ref().map_or(plan.set_bytes * plan.sets, |sizes| sizes.iter().sum());
    let labels_at = plan.data + data_bytes;
    out.derived(plan.data, 0, |out| metadata(out, plan, shape, gzip, sizes.as_deref(), labels_at))?;
    for set in 0..plan.sets {
        let source = source(set);
        match (&mut deflate, plan.chunked) {
            (_, false) => out.produce(plan.set_bytes, |offset, part| source.fill(offset, part))?,
            (None, true) => each_chunk(grid, |at| {
                out.derived(grid.chunk_bytes(), 0, |out| {
                    let runs = grid.runs(at);
                    out.produce(grid.chunk_bytes(), |offset, part| source.fill_chunk(&runs, offset, part))
                })
            })?,
            (Some(deflate), true) => each_chunk(grid, |at| {
                let runs = grid.runs(at);
                let fill = |offset, part: &mut [u8]| source.fill_chunk(&runs, offset, part);
                deflate.chunk(grid.chunk_bytes(), fill, |bytes| out.bytes(bytes))
            })?,
        }
    }
    out.produce(plan.label_bytes, |offset, part| array::fill_labels(content, file, offset, part))
}

fn each_chunk(grid: &ChunkGrid, each: impl FnMut(&Axes) -> io::Result<()>) -> io::Result<()> {
    grid.each_chunk(&(0..grid.dims[0]), each)
}

/// The compressed bytes of every chunk, dataset after dataset.
fn sizes<'a>(
    plan: &Layout,
    deflate: &mut ChunkCompressor,
    source: impl Fn(u64) -> DatasetContent<'a>,
) -> io::Result<Vec<u64>> {
    let (grid, mut sizes) = (&plan.grid, Vec::new());
    for set in 0..plan.sets {
        let source = source(set);
        each_chunk(grid, |at| {
            let (runs, mut size) = (grid.runs(at), 0);
            let fill = |offset, part: &mut [u8]| source.fill_chunk(&runs, offset, part);
            deflate.chunk(grid.chunk_bytes(), fill, |bytes| {
                size += bytes.len() as u64;
                Ok(())
            })?;
            sizes.push(size);
            Ok(())
        })?;
    }
    Ok(sizes)
}

fn metadata(
    out: &mut Pieces<'_, '_>,
    plan: &Layout,
    shape: &FileShape<'_>,
    level: Option<u32>,
    sizes: Option<&[u64]>,
    labels_at: u64,
) -> io::Result<()> {
    out.bytes(&write::superblock(labels_at + plan.label_bytes))?;
    out.bytes(&write::root(plan))?;
    let mut first = plan.data;
    // All datasets have the same number of chunks.
    let chunks = sizes.map_or(0, <[u64]>::len) / usize::try_from(plan.sets).unwrap_or(1).max(1);
    let mut rest = sizes;
    for set in 0..plan.sets {
        out.bytes(&write::header(plan, set, shape.element, level))?;
        let (own, others) = rest.map(|rest| rest.split_at(chunks.min(rest.len()))).unzip();
        if plan.chunked {
            write::index(plan, set, first, own, &mut |bytes| out.bytes(bytes))?;
        }
        first += own.map_or(plan.set_bytes, |own| own.iter().sum());
        rest = others;
    }
    out.bytes(&write::labels_header(shape.samples, labels_at, plan.label_bytes))?;
    let gap = plan.data - out.position();
    out.produce(gap, |_, part| part.fill(0))
}

/// The maximum compressed size of a chunk: nine bits per byte (zlib's fastest level uses no longer codes), and
/// the bytes around a stream.
pub(super) fn most_deflated(chunk_bytes: u64) -> Option<u64> {
    chunk_bytes.checked_add(chunk_bytes / 8)?.checked_add(64)
}

/// A compressor that is reused for all chunks.
struct ChunkCompressor {
    compress: Compress,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl ChunkCompressor {
    fn new(level: u32) -> ChunkCompressor {
        // HDF5's deflate is a stream with zlib's header.
        let compress = Compress::new(Compression::new(level), true);
        ChunkCompressor { compress, input: vec![0; STEP], output: vec![0; STEP] }
    }

    /// Compresses the `len` bytes that `produce(offset, out)` generates.
    fn chunk(
        &mut self,
        len: u64,
        produce: impl Fn(u64, &mut [u8]),
        mut out: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.compress.reset();
        let mut done = 0;
        loop {
            let part = clip(STEP, len - done);
            produce(done, &mut self.input[..part]);
            done += part as u64;
            let flush = if done == len { FlushCompress::Finish } else { FlushCompress::None };
            let mut used = 0;
            loop {
                let (before, made) = (self.compress.total_in(), self.compress.total_out());
                let status = self
                    .compress
                    .compress(&self.input[used..part], &mut self.output, flush)
                    .map_err(io::Error::other)?;
                used += (self.compress.total_in() - before) as usize;
                out(&self.output[..(self.compress.total_out() - made) as usize])?;
                match status {
                    Status::StreamEnd => return Ok(()),
                    _ if used == part && done < len => break,
                    _ => {}
                }
            }
        }
    }
}
