//! Several chunks of one file in flight at once, through an io_uring for this file.

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use model::units::Nanos;
use rustix::fd::{AsRawFd, RawFd};
use rustix::io::Errno;

use super::TierSink;
use super::disk::Target;
use crate::{Buffer, Operation, StoreError};

/// Chunks of a file in flight at once.
const DEPTH: usize = 4;

/// A chunk in flight.
struct ChunkInFlight {
    chunk: Buffer,
    at: u64,
    /// Bytes of the write, and those of them that are done.
    bytes: usize,
    done: usize,
}

/// The writes of one file.
struct FileWrites {
    ring: IoUring,
    file: RawFd,
    flights: [Option<ChunkInFlight>; DEPTH],
}

impl FileWrites {
    fn in_flight(&self) -> usize {
        self.flights.iter().flatten().count()
    }

    fn begin(&mut self, chunk: Buffer, at: u64) -> Result<(), Errno> {
        let slot = self.flights.iter().position(Option::is_none).ok_or(Errno::BUSY)?;
        let bytes = chunk.bytes().len();
        self.flights[slot] = Some(ChunkInFlight { chunk, at, bytes, done: 0 });
        self.submit(slot)
    }

    /// Submits what is left of a chunk to the kernel.
    fn submit(&mut self, slot: usize) -> Result<(), Errno> {
        let Some(flight) = &self.flights[slot] else { return Ok(()) };
        let rest = &flight.chunk.bytes()[flight.done..flight.bytes];
        let entry = opcode::Write::new(Fd(self.file), rest.as_ptr(), rest.len() as u32)
            .offset(flight.at + flight.done as u64)
            .build()
            .user_data(slot as u64);
        // SAFETY: the chunk's memory is on the heap and stays in its slot until the completion of this request has been
        // reaped (`take`), also if the file is abandoned (`drop`); the file is open as long. The queue has space for
        // one request per slot, and a slot has one at a time.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| Errno::BUSY)?;
        loop {
            match self.ring.submit() {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                outcome => return outcome.map(drop).map_err(|error| errno(&error)),
            }
        }
    }

    /// Waits until a chunk is written and returns it.
    fn take(&mut self) -> Result<ChunkInFlight, Errno> {
        loop {
            let Some(completion) = self.ring.completion().next() else {
                match self.ring.submit_and_wait(1) {
                    Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                        return Err(errno(&error));
                    }
                    _ => continue,
                }
            };
            let slot = completion.user_data() as usize;
            match (u32::try_from(completion.result()), &mut self.flights[slot]) {
                (_, None) => {}
                (Ok(written), Some(flight)) if written > 0 => {
                    flight.done += written as usize;
                    if flight.done < flight.bytes {
                        self.submit(slot)?;
                    } else if let Some(flight) = self.flights[slot].take() {
                        return Ok(flight);
                    }
                }
                (_, Some(_)) => {
                    let cause = match completion.result() {
                        0 => Errno::IO,
                        error => Errno::from_raw_os_error(-error),
                    };
                    if !matches!(cause, Errno::INTR | Errno::AGAIN) {
                        self.flights[slot] = None;
                        return Err(cause);
                    }
                    self.submit(slot)?;
                }
            }
        }
    }
}

impl Drop for FileWrites {
    fn drop(&mut self) {
        // The kernel reads from the chunks until it has reported their completion.
        for _ in 0..DEPTH {
            if self.in_flight() > 0 {
                let _ = self.take();
            }
        }
        // A ring that does not answer may still be reading: then the memory is leaked.
        self.flights.iter_mut().for_each(|flight| std::mem::forget(flight.take()));
    }
}

pub(super) struct RingSink<'a> {
    writes: FileWrites,
    target: Target<'a>,
    at: u64,
}

impl<'a> RingSink<'a> {
    /// Whether the kernel allows rings.
    pub(super) fn probe() -> Result<(), StoreError> {
        ring().map(drop)
    }

    pub(super) fn new(target: Target<'a>) -> Result<RingSink<'a>, StoreError> {
        let file = target.file.as_raw_fd();
        Ok(RingSink {
            writes: FileWrites { ring: ring()?, file, flights: Default::default() },
            target,
            at: 0,
        })
    }

    /// Waits until a chunk is written and returns its buffer.
    fn take(&mut self) -> Result<Buffer, StoreError> {
        let flight = self.writes.take().map_err(|cause| self.target.failed(Operation::Write, cause))?;
        self.target.send_off(flight.at, flight.bytes as u64);
        Ok(flight.chunk)
    }
}

impl TierSink for RingSink<'_> {
    fn write(&mut self, mut chunk: Buffer) -> Result<Option<Buffer>, StoreError> {
        let bytes = chunk.bytes().len() as u64;
        self.target.pad(&mut chunk);
        let free = match self.writes.in_flight() {
            DEPTH => Some(self.take()?),
            _ => None,
        };
        self.writes.begin(chunk, self.at).map_err(|cause| self.target.failed(Operation::Write, cause))?;
        self.at += bytes;
        Ok(free)
    }

    fn finish(mut self: Box<Self>, durable: bool, spare: &mut Vec<Buffer>) -> Result<Nanos, StoreError> {
        while self.writes.in_flight() > 0 {
            spare.push(self.take()?);
        }
        self.target.finish(durable)
    }
}

fn ring() -> Result<IoUring, StoreError> {
    IoUring::new(DEPTH as u32).map_err(|error| crate::uring::forbidden(errno(&error)))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
