//! The compression codecs of pages: names, bounds, compression and decompression. It must not know what a page
//! is.

use crate::inflate::StreamWrapper;
use std::io::{self, Write};

/// The codec of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Snappy,
    Gzip,
    Zstd,
    /// An LZ4 block without a frame, parquet's `LZ4_RAW`.
    Lz4,
}

/// Names by parquet's numbers (CompressionCodec in parquet.thrift).
const NAMES: [&str; 8] = ["none", "snappy", "gzip", "lzo", "brotli", "lz4 (Hadoop)", "zstd", "lz4"];

/// Parquet's name of a codec, including those that feedline does not write.
pub(super) fn name(number: i64) -> &'static str {
    usize::try_from(number).ok().and_then(|number| NAMES.get(number)).unwrap_or(&"an unknown codec")
}

impl Codec {
    /// The values of `dataset.compression`.
    pub(super) const WORDS: &'static [&'static str] = &["snappy", "zstd", "lz4", "gzip"];

    pub(super) fn named(word: &str) -> Option<Codec> {
        match word {
            "none" => Some(Codec::None),
            "snappy" => Some(Codec::Snappy),
            "gzip" => Some(Codec::Gzip),
            "zstd" => Some(Codec::Zstd),
            "lz4" => Some(Codec::Lz4),
            _ => None,
        }
    }

    pub(super) fn number(self) -> u32 {
        match self {
            Codec::None => 0,
            Codec::Snappy => 1,
            Codec::Gzip => 2,
            Codec::Zstd => 6,
            Codec::Lz4 => 7,
        }
    }

    /// The maximum compressed size of this many bytes. All except gzip's are the formulas of the libraries'
    /// documentation; gzip's is zlib's for the worst settings, plus its frame of 18 bytes.
    pub(super) fn most(self, raw: u64) -> Option<u64> {
        match self {
            Codec::None => Some(raw),
            Codec::Snappy => raw.checked_add(raw / 6)?.checked_add(32),
            Codec::Gzip => raw.checked_add(raw / 8)?.checked_add(raw / 64)?.checked_add(2 + 5 + 18),
            Codec::Zstd => raw.checked_add(raw / 256)?.checked_add(64),
            Codec::Lz4 => raw.checked_add(raw / 9)?.checked_add(32),
        }
    }

    /// Replaces `out` by the compressed bytes. The level is the workload's, from 0 to 9.
    pub(super) fn compress(self, level: u32, raw: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        match self {
            Codec::None => out.extend_from_slice(raw),
            Codec::Snappy => {
                out.resize(snap::raw::max_compress_len(raw.len()), 0);
                let len = snap::raw::Encoder::new().compress(raw, out).map_err(io::Error::other)?;
                out.truncate(len);
            }
            Codec::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::new(level));
                encoder.write_all(raw)?;
                encoder.finish()?;
            }
            Codec::Zstd => {
                out.resize(zstd::zstd_safe::compress_bound(raw.len()), 0);
                // Zstandard's 0 means its default, which is not its fastest.
                let level = level.clamp(1, 9) as i32;
                let len = zstd::bulk::compress_to_buffer(raw, out, level)?;
                out.truncate(len);
            }
            Codec::Lz4 => {
                out.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
                let len = lz4_flex::block::compress_into(raw, out).map_err(io::Error::other)?;
                out.truncate(len);
            }
        }
        Ok(())
    }

    /// Appends the `raw` decompressed bytes, or returns why the input is invalid.
    pub(super) fn decompress(self, packed: &[u8], raw: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let start = out.len();
        if self == Codec::Gzip {
            StreamWrapper::Gzip.inflate(packed, start + raw, out).map_err(|fault| fault.what)?;
            return right(out.len() - start, raw);
        }
        out.resize(start + raw, 0);
        let room = &mut out[start..];
        let made = match self {
            Codec::Snappy => {
                snap::raw::Decoder::new().decompress(packed, room).map_err(|error| error.to_string())?
            }
            Codec::Zstd => {
                zstd::bulk::decompress_to_buffer(packed, room).map_err(|error| error.to_string())?
            }
            Codec::Lz4 => {
                lz4_flex::block::decompress_into(packed, room).map_err(|error| error.to_string())?
            }
            Codec::None | Codec::Gzip => {
                let len = packed.len().min(raw);
                room[..len].copy_from_slice(&packed[..len]);
                packed.len()
            }
        };
        right(made, raw)
    }
}

fn right(made: usize, raw: usize) -> Result<(), String> {
    if made == raw { Ok(()) } else { Err(format!("{made} bytes instead of {raw}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Content;

    #[test]
    fn bounds_hold_and_are_at_least_those_of_the_libraries() {
        for len in [0_usize, 1, 10, 100, 255, 256, 5000, 65536, 131_072, 1 << 20, 3_000_001] {
            let mut raw = vec![0; len];
            Content::new(1).fill(1, 1, &mut raw);
            for word in Codec::WORDS {
                let codec = Codec::named(word).unwrap();
                let most = codec.most(len as u64).unwrap();
                for level in [0, 1, 4, 9] {
                    let mut out = Vec::new();
                    codec.compress(level, &raw, &mut out).unwrap();
                    assert!(
                        out.len() as u64 <= most,
                        "{word} {level}: {len} became {}, bound {most}",
                        out.len()
                    );
                }
            }
            let library = |codec: Codec| codec.most(len as u64).unwrap() as usize;
            assert!(library(Codec::Snappy) >= snap::raw::max_compress_len(len));
            assert!(library(Codec::Zstd) >= zstd::zstd_safe::compress_bound(len), "{len}");
            assert!(library(Codec::Lz4) >= lz4_flex::block::get_maximum_output_size(len));
        }
    }

    #[test]
    fn every_compression_has_a_codec_with_a_name() {
        for word in Codec::WORDS {
            assert_eq!(name(i64::from(Codec::named(word).unwrap().number())), *word);
        }
        assert_eq!(name(-1), name(99));
    }
}
