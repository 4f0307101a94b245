//! Inflates deflate streams (RFC 1951), with or without a container, and limits the size of decoded data for any
//! codec. The input may be damaged or malicious. It must not know what the data is.

use flate2::{Decompress, FlushDecompress, Status};

use crate::{Damage, MOST_AT_ONCE};

/// The maximum expansion of a deflate stream (258 bytes from two bits, RFC 1951).
pub(crate) const GROWTH: u64 = 1032;
/// Minimum growth of a full output buffer.
const ROOM: usize = 64 * 1024;

/// The maximum decoded size of an input of this length. Other codecs can expand more than deflate, so small
/// inputs get a fixed allowance.
pub(crate) fn most(len: usize) -> usize {
    let most = (len as u64).saturating_mul(GROWTH).max(MOST_AT_ONCE);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// What surrounds a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamWrapper {
    /// Nothing, as in a ZIP archive.
    Bare,
    /// RFC 1950, with a checksum.
    Zlib,
    /// RFC 1952, with a checksum and the length.
    Gzip,
}

/// Why a stream cannot be inflated, and at which byte.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InflateError {
    pub(crate) at: usize,
    pub(crate) what: String,
}

impl StreamWrapper {
    fn begin(self) -> Decompress {
        match self {
            StreamWrapper::Bare => Decompress::new(false),
            StreamWrapper::Zlib => Decompress::new(true),
            // The largest window, 2^15 bytes, reads every stream.
            StreamWrapper::Gzip => Decompress::new_gzip(15),
        }
    }

    /// Appends the content of the stream at the start of `bytes`, up to `most` bytes in `out`, and returns
    /// the length of the stream.
    pub(crate) fn inflate(self, bytes: &[u8], most: usize, out: &mut Vec<u8>) -> Result<usize, InflateError> {
        let mut stream = self.begin();
        loop {
            if out.len() == out.capacity() {
                out.reserve(out.len().max(ROOM));
            }
            let (taken, made) = (stream.total_in() as usize, out.len());
            let rest = bytes.get(taken..).unwrap_or_default();
            let status = stream.decompress_vec(rest, out, FlushDecompress::None);
            let at = stream.total_in() as usize;
            let fault = |what: String| Err(InflateError { at, what });
            match status {
                Err(error) => return fault(error.to_string()),
                Ok(_) if out.len() > most => return fault(format!("it inflates to more than {most} bytes")),
                Ok(Status::StreamEnd) => return Ok(at),
                // There was output space, so input is missing.
                Ok(_) if (at, out.len()) == (taken, made) => {
                    return fault("it ends in the middle of a deflate stream".to_owned());
                }
                Ok(_) => {}
            }
        }
    }

    /// Replaces `out` by the contents of consecutive streams.
    pub(crate) fn inflate_all(
        self,
        format: &'static str,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Damage> {
        out.clear();
        let (most, mut at) = (most(bytes.len()), 0);
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            at += self
                .inflate(rest, most, out)
                .map_err(|fault| Damage::new(format, (at + fault.at) as u64, fault.what))?;
            if at >= bytes.len() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::noise;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use std::io::Write;

    const FRAMES: [StreamWrapper; 3] = [StreamWrapper::Bare, StreamWrapper::Zlib, StreamWrapper::Gzip];

    fn deflated(frame: StreamWrapper, bytes: &[u8]) -> Vec<u8> {
        let (level, mut out) = (Compression::new(4), Vec::new());
        match frame {
            StreamWrapper::Bare => DeflateEncoder::new(&mut out, level).write_all(bytes).unwrap(),
            StreamWrapper::Zlib => ZlibEncoder::new(&mut out, level).write_all(bytes).unwrap(),
            StreamWrapper::Gzip => GzEncoder::new(&mut out, level).write_all(bytes).unwrap(),
        }
        out
    }

    #[test]
    fn consecutive_streams_of_any_length_round_trip() {
        for frame in FRAMES {
            let mut out = vec![1; 70_000];
            for len in [0, 1, 1000, ROOM - 1, ROOM, ROOM + 1, 300_000] {
                let noise = noise(len);
                let zeros = vec![0; 3 * len];
                let bytes = [deflated(frame, &noise), deflated(frame, &zeros)].concat();
                frame.inflate_all("npz", &bytes, &mut out).unwrap();
                assert!(out == [noise, zeros].concat(), "{frame:?} {len}");
            }
        }
    }

    #[test]
    fn truncation_and_changes_are_reported_with_their_offset() {
        for frame in FRAMES {
            let good = deflated(frame, &noise(5000));
            for len in [0, 1, good.len() / 2, good.len() - 1] {
                let damage = frame.inflate_all("npz", &good[..len], &mut Vec::new()).unwrap_err();
                assert_eq!(damage.offset, len as u64, "{frame:?} {len}: {damage}");
                assert!(damage.what.contains("ends in the middle"), "{damage}");
            }
            if frame != StreamWrapper::Bare {
                let mut bad = [&good[..], &good[..]].concat();
                bad[good.len() + 2000] ^= 1;
                let damage = frame.inflate_all("npz", &bad, &mut Vec::new()).unwrap_err();
                assert!(damage.offset as usize > good.len(), "{frame:?}: {damage}");
            }
        }
        let damage = StreamWrapper::Zlib.inflate_all("hdf5", b"no stream", &mut Vec::new()).unwrap_err();
        assert!(damage.to_string().starts_with("not a valid hdf5 file: "), "{damage}");
    }

    #[test]
    fn limits_stop_decompression_bombs() {
        let bomb = deflated(StreamWrapper::Zlib, &vec![0; 1 << 20]);
        let fault = StreamWrapper::Zlib.inflate(&bomb, 100_000, &mut Vec::new()).unwrap_err();
        assert!(fault.what.contains("more than 100000 bytes"), "{fault:?}");
        assert_eq!(most(0), 64 << 20);
        assert_eq!(most(1 << 20), 1032 << 20);
        assert_eq!(most(usize::MAX), usize::MAX);
    }
}
