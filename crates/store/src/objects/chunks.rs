//! Bodies in chunks (HTTP/1.1), which servers send for documents whose length they do not know in advance.

/// Takes the framing off as bytes arrive.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    state: ChunkState,
}

#[derive(Debug)]
enum ChunkState {
    /// In the line with the length of a chunk: its value so far, and the number of its digits.
    Size {
        value: u64,
        digits: u8,
    },
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

/// Most digits of a length, all of which fit into the number.
const MOST_DIGITS: u8 = 15;

impl Default for ChunkState {
    fn default() -> ChunkState {
        ChunkState::Size { value: 0, digits: 0 }
    }
}

impl Chunks {
    /// Appends the content in `bytes` to `out`. Returns how many bytes belong to the body, framing included.
    pub(crate) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, &'static str> {
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
                ChunkState::Size { value, digits } => {
                    let (value, digits) = (*value, *digits);
                    self.state = match (byte as char).to_digit(16) {
                        Some(digit) if digits < MOST_DIGITS => {
                            ChunkState::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
                        }
                        _ if digits == 0 => return Err("a chunk has no valid length"),
                        _ if byte == b'\n' => begun(value),
                        _ if matches!(byte, b'\r' | b';' | b' ' | b'\t') => {
                            ChunkState::Extension { left: value }
                        }
                        _ => return Err("a chunk has no valid length"),
                    };
                }
                ChunkState::Extension { left } if byte == b'\n' => self.state = begun(*left),
                ChunkState::Extension { .. } => {}
                ChunkState::End if byte == b'\n' => self.state = ChunkState::default(),
                ChunkState::End if byte == b'\r' => {}
                ChunkState::Trailer { empty: true } if byte == b'\n' => self.state = ChunkState::Done,
                ChunkState::Trailer { empty } => *empty = byte == b'\n' || (*empty && byte == b'\r'),
                ChunkState::End => return Err("a chunk does not end where it should"),
                ChunkState::Done => break,
            }
            at += 1;
        }
        Ok(at)
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
            let (mut chunks, mut out) = (Chunks::default(), Vec::new());
            for bytes in body.chunks(piece) {
                assert!(!chunks.is_done());
                assert_eq!(chunks.take(bytes, &mut out), Ok(bytes.len()));
            }
            assert!(chunks.is_done());
            assert_eq!(out, b"hello, big world", "pieces of {piece}");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for body in ["x\r\n", "\r\n", "1\r\nab", "1x\r\n", "ffffffffffffffffff\r\n"] {
            let outcome = Chunks::default().take(body.as_bytes(), &mut Vec::new());
            assert!(outcome.is_err(), "{body:?}");
        }
        assert_eq!(Chunks::default().take(b"0\r\n\r\nxy", &mut Vec::new()), Ok(5), "the rest is not taken");
    }
}
