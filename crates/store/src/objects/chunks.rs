//! Bodies in chunks (HTTP/1.1), which servers send for documents whose length they do not know in advance.

/// Takes the framing off as bytes arrive.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    state: ChunkState,
}

#[derive(Debug, Default)]
enum ChunkState {
    /// In the line with the length of a chunk.
    #[default]
    Size,
    /// In an extension, until the end of the line.
    Extension {
        left: u64,
    },
    /// In the content of a chunk.
    Content {
        left: u64,
    },
    /// In the line end behind the content.
    End,
    /// In the lines behind the last chunk; `empty`: nothing is in the current one yet.
    Trailer {
        empty: bool,
    },
    Done,
}

impl Chunks {
    /// Appends the content in `bytes` to `out`. `size`: the digits of the current length, kept between calls.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        size: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            match &mut self.state {
                ChunkState::Content { left } => {
                    let count = (*left).min((bytes.len() - at) as u64) as usize;
                    out.extend_from_slice(&bytes[at..at + count]);
                    *left -= count as u64;
                    at += count;
                    if *left == 0 {
                        self.state = ChunkState::End;
                    }
                    continue;
                }
                ChunkState::Size if byte.is_ascii_hexdigit() && size.len() < 15 => size.push(byte),
                ChunkState::Size if matches!(byte, b'\r' | b'\n' | b';' | b' ' | b'\t') => {
                    let digits = std::str::from_utf8(size).unwrap_or_default();
                    let left = u64::from_str_radix(digits, 16).map_err(|_| "a chunk has no valid length")?;
                    size.clear();
                    self.state = if byte == b'\n' { begun(left) } else { ChunkState::Extension { left } };
                }
                ChunkState::Extension { left } if byte == b'\n' => self.state = begun(*left),
                ChunkState::Extension { .. } => {}
                ChunkState::End if byte == b'\n' => self.state = ChunkState::Size,
                ChunkState::End if byte == b'\r' => {}
                ChunkState::Trailer { empty: true } if byte == b'\n' => self.state = ChunkState::Done,
                ChunkState::Trailer { empty } => *empty = byte == b'\n' || (*empty && byte == b'\r'),
                ChunkState::Size | ChunkState::End => return Err("a chunk does not end where it should"),
                ChunkState::Done => return Err("there are bytes behind the last chunk"),
            }
            at += 1;
        }
        Ok(())
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, ChunkState::Done)
    }
}

fn begun(left: u64) -> ChunkState {
    if left == 0 { ChunkState::Trailer { empty: true } } else { ChunkState::Content { left } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_is_taken_off_wherever_it_is_cut() {
        let body = b"5;x=1\r\nhello\r\nA\r\n, big worl\r\n1\r\nd\r\n0\r\nTrailer: x\r\n\r\n";
        for piece in 1..body.len() {
            let (mut chunks, mut size, mut out) = (Chunks::default(), Vec::new(), Vec::new());
            for bytes in body.chunks(piece) {
                assert!(!chunks.is_done());
                chunks.take(bytes, &mut size, &mut out).unwrap();
            }
            assert!(chunks.is_done());
            assert_eq!(out, b"hello, big world", "pieces of {piece}");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for body in ["x\r\n", "\r\n", "1\r\nab", "0\r\n\r\nx", "ffffffffffffffffff\r\n"] {
            let outcome = Chunks::default().take(body.as_bytes(), &mut Vec::new(), &mut Vec::new());
            assert!(outcome.is_err(), "{body:?}");
        }
    }
}
