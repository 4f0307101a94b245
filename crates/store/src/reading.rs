//! The arithmetic of reading a range of a file in transfers: where each read begins and how long it is, which bytes of
//! its result are needed, and when the file is too short or too long. All lanes use it.

use model::extent::Extent;

use crate::StoreError;

/// The size of reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfers {
    /// Reads begin and end at multiples of it.
    granule: u64,
    most: u64,
}

impl Transfers {
    pub(crate) fn new(transfer: usize, granule: usize) -> Transfers {
        let most = transfer.max(1).saturating_add(granule - 1) / granule * granule;
        Transfers { granule: granule as u64, most: most as u64 }
    }

    /// Buffer size for a transfer that begins and ends inside a granule, plus one byte, so that a file that is too long
    /// is detected without another call.
    pub(crate) fn room(self) -> usize {
        (self.most + self.granule) as usize
    }
}

/// A read to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// Whether it completes the range, if all requested bytes are read.
    pub(crate) is_last: bool,
}

/// The needed part of a result: `bytes` from `skip` on, which belong at `place` of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedPart {
    pub(crate) skip: usize,
    pub(crate) place: usize,
    pub(crate) bytes: usize,
}

/// A range that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeRead {
    range: Extent,
    /// Whether the file should end where the range does.
    ends_file: bool,
    at: u64,
    begun: bool,
}

impl RangeRead {
    pub(crate) fn new(range: Extent, file_bytes: u64) -> RangeRead {
        RangeRead { range, ends_file: range.end() == file_bytes, at: range.offset, begun: false }
    }

    /// The next read; `None` when the range is complete. An empty range takes one, too, so that a file that should be
    /// empty is checked.
    pub(crate) fn next(&self, transfers: Transfers) -> Option<ReadRequest> {
        let end = self.range.end();
        if self.begun && self.at >= end {
            return None;
        }
        let offset = self.at / transfers.granule * transfers.granule;
        let stop = (offset + transfers.most).min(end);
        let is_last = stop == end;
        let probe = u64::from(self.ends_file && is_last);
        let bytes = (stop + probe - offset).next_multiple_of(transfers.granule) as usize;
        Some(ReadRequest { offset, bytes, is_last })
    }

    /// Processes a result of `got` bytes. `name` is the file's name in messages.
    pub(crate) fn take(
        &mut self,
        ask: ReadRequest,
        got: usize,
        name: impl FnOnce() -> String,
    ) -> Result<WantedPart, StoreError> {
        self.begun = true;
        let end = self.range.end();
        // Bytes before and after the range are read with its granules and are not needed.
        let seen = ask.offset + got as u64;
        if seen > end && self.ends_file {
            return Err(StoreError::Long { name: name(), found: seen, planned: end });
        }
        if seen <= self.at && self.at < end {
            return Err(StoreError::Short { name: name(), end: seen, needed: end });
        }
        let next = seen.min(end).max(self.at);
        let part = WantedPart {
            skip: (self.at - ask.offset) as usize,
            place: (self.at - self.range.offset) as usize,
            bytes: (next - self.at) as usize,
        };
        self.at = next;
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a range of a file of `size` bytes in transfers; returns the reads and the number of needed bytes.
    fn read(
        range: (u64, u64),
        size: u64,
        planned: u64,
        transfers: Transfers,
    ) -> Result<(Vec<ReadRequest>, usize), StoreError> {
        let mut reading = RangeRead::new(Extent { offset: range.0, len: range.1 }, planned);
        let (mut asks, mut wanted) = (Vec::new(), 0);
        while let Some(ask) = reading.next(transfers) {
            assert!(ask.bytes <= transfers.room());
            let got = size.saturating_sub(ask.offset).min(ask.bytes as u64) as usize;
            let part = reading.take(ask, got, || "x".into())?;
            assert_eq!(part.place, wanted, "parts are contiguous");
            assert!(part.skip + part.bytes <= got);
            wanted += part.bytes;
            asks.push(ask);
        }
        Ok((asks, wanted))
    }

    #[test]
    fn a_read_requests_one_more_byte_where_the_file_should_end() {
        let bytes = Transfers::new(100, 1);
        let (asks, wanted) = read((0, 150), 150, 150, bytes).unwrap();
        assert_eq!(
            asks.iter().map(|ask| (ask.offset, ask.bytes, ask.is_last)).collect::<Vec<_>>(),
            [(0, 100, false), (100, 51, true)]
        );
        assert_eq!(wanted, 150);
        let (asks, _) = read((0, 150), 150, 999, bytes).unwrap();
        assert_eq!(asks[1].bytes, 50, "but not elsewhere");
    }

    #[test]
    fn whole_granules_are_read() {
        let blocks = Transfers::new(1000, 512);
        assert_eq!(blocks.room(), 1536);
        let (asks, wanted) = read((600, 1000), 5000, 5000, blocks).unwrap();
        assert_eq!(
            asks,
            [
                ReadRequest { offset: 512, bytes: 1024, is_last: false },
                ReadRequest { offset: 1536, bytes: 512, is_last: true }
            ]
        );
        assert_eq!(wanted, 1000);
        let (asks, _) = read((0, 1024), 1024, 1024, blocks).unwrap();
        assert_eq!(
            asks,
            [ReadRequest { offset: 0, bytes: 1536, is_last: true }],
            "space for the byte that should not exist"
        );
    }

    #[test]
    fn wrong_sizes_are_detected() {
        for granule in [1, 512] {
            let transfers = Transfers::new(700, granule);
            let short = read((0, 5001), 5000, 5001, transfers);
            assert_eq!(short, Err(StoreError::Short { name: "x".into(), end: 5000, needed: 5001 }));
            let long = read((0, 4999), 5000, 4999, transfers);
            assert_eq!(long, Err(StoreError::Long { name: "x".into(), found: 5000, planned: 4999 }));
            let long = read((0, 0), 1, 0, transfers);
            assert_eq!(long, Err(StoreError::Long { name: "x".into(), found: 1, planned: 0 }));
            assert_eq!(read((0, 0), 0, 0, transfers).unwrap().1, 0);
        }
    }

    #[test]
    fn a_result_may_be_shorter_than_requested() {
        let mut reading = RangeRead::new(Extent { offset: 10, len: 1000 }, 5000);
        let transfers = Transfers::new(4096, 512);
        let ask = reading.next(transfers).unwrap();
        assert_eq!(ask, ReadRequest { offset: 0, bytes: 1024, is_last: true });
        assert_eq!(reading.take(ask, 600, || "x".into()), Ok(WantedPart { skip: 10, place: 0, bytes: 590 }));
        let ask = reading.next(transfers).unwrap();
        assert_eq!(ask, ReadRequest { offset: 512, bytes: 512, is_last: true });
        assert_eq!(
            reading.take(ask, 512, || "x".into()),
            Ok(WantedPart { skip: 88, place: 590, bytes: 410 })
        );
        assert_eq!(reading.next(transfers), None);
    }
}
