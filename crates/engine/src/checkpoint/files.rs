//! Files of one checkpoint, many at once: threads that share them out, write them from content that is made on the way,
//! copy them from tier to tier, or read and check them. Memory is that of the chunks in flight.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use model::checkpoint::Geometry;
use model::checkpoint::manifest::Entry;
use model::names::Name;
use model::units::Nanos;
use store::{Buffer, Tier};

use super::{CheckpointError, tiers};
use crate::loader::panic_text;
use crate::meter::Clock;
use crate::pulse::Pulse;
use crate::stop::Stop;

/// One file of a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Its number in the checkpoint, which its content follows from, and the rank whose it is.
    pub(super) number: u64,
    pub(super) rank: u64,
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The checksum that it should have, once it is known.
    pub(super) crc32: Option<u32>,
}

impl Item {
    pub(super) fn path(&self, folder: &str) -> Name {
        tiers::path(folder, &self.name)
    }

    /// How a manifest lists it; the checksum follows.
    pub(super) fn entry(&self) -> Entry {
        Entry { name: self.name.clone(), rank: self.rank, bytes: self.bytes, crc32: 0 }
    }
}

/// The files of a checkpoint in the order in which they are begun: every rank's first one, every rank's second one, and
/// so on, so that all ranks are at work from the beginning to the end.
pub(super) fn items(geometry: &Geometry) -> Vec<Item> {
    let mut items = Vec::new();
    let mut number = 0;
    for rank in 0..geometry.ranks {
        for (place, file) in geometry.files(rank).into_iter().enumerate() {
            items.push((place, Item { number, rank, name: file.name, bytes: file.bytes, crc32: None }));
            number += 1;
        }
    }
    items.sort_by_key(|(place, item)| (*place, item.rank));
    items.into_iter().map(|(_, item)| item).collect()
}

/// What threads that work on files share.
#[derive(Clone, Copy)]
pub(super) struct Crew<'a> {
    pub(super) threads: usize,
    pub(super) chunk_bytes: usize,
    pub(super) clock: &'a dyn Clock,
    pub(super) stop: &'a Stop,
    pub(super) pulse: &'a Pulse,
}

/// A file that was worked on: which one, when that ended, and its checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) place: usize,
    pub(super) at: Nanos,
    pub(super) crc32: u32,
}

/// A thread's buffers.
#[derive(Debug, Default)]
pub(super) struct Hands {
    spare: Vec<Buffer>,
    pub(super) scratch: Vec<u8>,
}

impl Hands {
    pub(super) fn buffer(&mut self, bytes: usize) -> Buffer {
        self.spare.pop().unwrap_or_else(|| Buffer::with_capacity(bytes))
    }

    pub(super) fn put_back(&mut self, buffer: Buffer) {
        self.spare.push(buffer);
    }

    pub(super) fn spare(&mut self) -> &mut Vec<Buffer> {
        &mut self.spare
    }
}

impl Crew<'_> {
    /// Lets `work` do every file once, several at a time, and says when each ended. The first failure ends it for all.
    pub(super) fn each(
        &self,
        items: &[Item],
        work: impl Fn(&Item, &mut Hands) -> Result<(Nanos, u32), CheckpointError> + Sync,
    ) -> Result<Vec<Ended>, CheckpointError> {
        let (next, abort) = (AtomicUsize::new(0), Stop::default());
        let failure: Mutex<Option<CheckpointError>> = Mutex::new(None);
        let one = || {
            let (mut hands, mut ended) = (Hands::default(), Vec::new());
            loop {
                // Relaxed: the number is all that is shared.
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(place).filter(|_| !abort.wished()) else { return ended };
                let outcome =
                    match self.stop.wished() {
                        true => Err(CheckpointError::Interrupted),
                        false => catch_unwind(AssertUnwindSafe(|| work(item, &mut hands))).unwrap_or_else(
                            |panic| Err(CheckpointError::Panicked(panic_text(&*panic).to_owned())),
                        ),
                    };
                match outcome {
                    Ok((at, crc32)) => ended.push(Ended { place, at, crc32 }),
                    Err(cause) => {
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
                        abort.wish();
                        return ended;
                    }
                }
            }
        };
        let ended = std::thread::scope(|scope| -> Result<Vec<Ended>, CheckpointError> {
            let mut threads = Vec::new();
            for _ in 0..self.threads.clamp(1, items.len().max(1)) {
                let builder = std::thread::Builder::new().name("checkpoint".to_owned());
                match builder.spawn_scoped(scope, one) {
                    Ok(thread) => threads.push(thread),
                    Err(cause) if threads.is_empty() => {
                        return Err(CheckpointError::Thread(cause.to_string()));
                    }
                    // Fewer will do.
                    Err(_) => break,
                }
            }
            Ok(threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect())
        })?;
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(cause) => Err(cause),
            None => Ok(ended),
        }
    }
}

/// Writes one file: `fill` makes its bytes, chunk by chunk.
pub(super) fn write(
    crew: &Crew<'_>,
    tier: &dyn Tier,
    path: &Name,
    bytes: u64,
    durable: bool,
    hands: &mut Hands,
    mut fill: impl FnMut(u64, &mut Buffer, usize) -> Result<(), CheckpointError>,
) -> Result<(Nanos, u32), CheckpointError> {
    let mut sink = tier.create(path, bytes, crew.clock.as_now())?;
    let (mut at, mut crc) = (0, crc32fast::Hasher::new());
    while at < bytes {
        if crew.stop.wished() {
            return Err(CheckpointError::Interrupted);
        }
        let len = (bytes - at).min(crew.chunk_bytes as u64) as usize;
        let mut chunk = hands.buffer(crew.chunk_bytes);
        fill(at, &mut chunk, len)?;
        chunk.set_len(len);
        if tier.holds_files() {
            crc.update(chunk.bytes());
        }
        if let Some(free) = sink.write(chunk)? {
            hands.put_back(free);
        }
        crew.pulse.add(0, len as u64);
        at += len as u64;
    }
    crew.pulse.add(1, 0);
    Ok((sink.finish(durable, hands.spare())?, crc.finalize()))
}

/// The time of the slowest rank and of rank 0, from `began` on.
pub(super) fn rank_times(items: &[Item], ended: &[Ended], began: Nanos) -> (Nanos, Nanos) {
    let span = |of: &dyn Fn(u64) -> bool| {
        let times = ended.iter().filter(|end| of(items[end.place].rank)).map(|end| end.at.since(began));
        times.max().unwrap_or_default()
    };
    (span(&|_| true), span(&|rank| rank == 0))
}
