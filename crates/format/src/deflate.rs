//! Deflate (RFC 1951) as a stream into `Pieces`, in constant memory. The output does not depend on the length of
//! the caller's scratch. It must not know what it compresses.

use std::io;

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::pieces::Pieces;

/// Size of the output buffer. It is fixed because the block boundaries of zlib may depend on it.
const ROOM: usize = 32 * 1024;

/// The maximum compressed size of `len` bytes. For levels 0 and 1 this is the bound that zlib-rs gives without
/// further knowledge (`deflateBound`): level 1 writes literals of up to nine bits. Other levels store a block
/// that does not shrink, which costs 5 bytes per 16 KiB or more; four times that is allowed.
pub(crate) fn most(len: u64, level: u32) -> Option<u64> {
    let growth = if level < 2 { len.div_ceil(8) + len.div_ceil(64) + 5 } else { len / 1024 + 64 };
    len.checked_add(growth)
}

pub(crate) struct Deflate {
    raw: Compress,
    room: Vec<u8>,
    crc: crc32fast::Hasher,
}

/// The result of a stream.
pub(crate) struct DeflatedStream {
    /// Bytes before compression, and after it.
    pub(crate) bytes: u64,
    pub(crate) packed: u64,
    /// CRC-32 of the bytes before compression.
    pub(crate) crc: u32,
}

impl Deflate {
    pub(crate) fn new(level: u32) -> Deflate {
        let raw = Compress::new(Compression::new(level.min(9)), false);
        Deflate { raw, room: vec![0; ROOM], crc: crc32fast::Hasher::new() }
    }

    /// Compresses bytes. The output depends on how they are cut into calls.
    pub(crate) fn write(&mut self, out: &mut Pieces<'_, '_>, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.step(out, rest, FlushCompress::None)?.0;
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    pub(crate) fn finish(mut self, out: &mut Pieces<'_, '_>) -> io::Result<DeflatedStream> {
        while self.step(out, &[], FlushCompress::Finish)?.1 != Status::StreamEnd {}
        Ok(DeflatedStream {
            bytes: self.raw.total_in(),
            packed: self.raw.total_out(),
            crc: self.crc.finalize(),
        })
    }

    /// One call of the compressor: the number of bytes it took, and its status.
    fn step(
        &mut self,
        out: &mut Pieces<'_, '_>,
        bytes: &[u8],
        flush: FlushCompress,
    ) -> io::Result<(usize, Status)> {
        let (taken, made) = (self.raw.total_in(), self.raw.total_out());
        let status = self.raw.compress(bytes, &mut self.room, flush).map_err(io::Error::other)?;
        let (taken, made) = (self.raw.total_in() - taken, self.raw.total_out() - made);
        // Both are at most the lengths of the slices. With space and input the compressor always makes
        // progress.
        if (taken, made) == (0, 0) && status != Status::StreamEnd {
            return Err(io::Error::other("the compressor makes no progress"));
        }
        out.bytes(&self.room[..made as usize])?;
        Ok((taken as usize, status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noise, written};
    use std::io::Read;

    fn packed(bytes: &[u8], level: u32) -> Vec<u8> {
        let mut ends = Vec::new();
        let packed = written(|out| {
            let mut deflate = Deflate::new(level);
            bytes.chunks(16_384).try_for_each(|part| deflate.write(out, part))?;
            ends.push(deflate.finish(out)?);
            Ok(())
        });
        let end = ends.pop().unwrap();
        assert_eq!((end.bytes, end.packed), (bytes.len() as u64, packed.len() as u64));
        assert_eq!(end.crc, crc32fast::hash(bytes));
        packed
    }

    #[test]
    fn noise_round_trips_within_the_bound_at_every_level() {
        let noise = noise(3 << 20);
        // Above 143 the fixed code uses nine bits per byte.
        let high: Vec<u8> = noise.iter().map(|byte| byte | 0x90).collect();
        for level in 0..=9 {
            for len in
                (0..40).chain([100, 4096, 16_383, 16_384, 16_385, 65_535, 65_536, 300_000, noise.len()])
            {
                for bytes in [&noise[..len], &high[..len]] {
                    let small = packed(bytes, level);
                    assert!(small.len() as u64 <= most(len as u64, level).unwrap(), "{level}: {len}");
                    let mut back = Vec::new();
                    flate2::read::DeflateDecoder::new(&small[..]).read_to_end(&mut back).unwrap();
                    assert!(back == bytes, "{level}: {len}");
                }
            }
        }
        assert_eq!(most(u64::MAX, 4), None);
    }
}
