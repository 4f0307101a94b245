//! Saving in the background: training waits until a copy of the checkpoint is in memory, and writers write it to the
//! last tier meanwhile and afterwards. Memory is bounded: if the copy is larger, training waits for the writers.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use model::checkpoint::manifest::Moment;
use model::units::Nanos;
use store::{Buffer, Operation};

use super::content::FileContent;
use super::files::{self, TransferFile, TransferWorker};
use super::jobs::BackgroundTask;
use super::{CheckpointError, Checkpointer, LOOK_AROUND};
use crate::stop::Stop;

/// A checkpoint in memory that is being written to the last tier: the chunks of each file, by the file's number.
pub(super) struct Snapshot {
    pub(super) moment: Moment,
    began: Nanos,
    files: Vec<Mutex<Receiver<SnapshotChunk>>>,
}

/// A part of a file, and its share of the pool.
struct SnapshotChunk {
    buffer: Buffer,
    _loan: PoolGuard,
}

/// Memory that snapshots share.
#[derive(Debug)]
pub(super) struct SnapshotPool {
    most: u64,
    used: Mutex<u64>,
    given: Condvar,
    /// Buffers for reuse.
    spare: Mutex<Vec<Buffer>>,
}

/// Memory of the pool, which is returned when this is dropped.
#[derive(Debug)]
struct PoolGuard {
    pool: Arc<SnapshotPool>,
    bytes: u64,
}

impl SnapshotPool {
    pub(super) fn new(most: u64) -> SnapshotPool {
        SnapshotPool { most, used: Mutex::default(), given: Condvar::new(), spare: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Buffer>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer for memory that was lent.
    fn buffer(&self, bytes: usize) -> Buffer {
        self.spare().pop().unwrap_or_else(|| Buffer::with_capacity(bytes))
    }

    fn put_back(&self, buffer: Buffer) {
        self.spare().push(buffer);
    }

    /// Number of bytes that are lent.
    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        *self.lock()
    }

    /// Lends memory as soon as there is enough; returns whether it had to wait.
    fn lend(self: &Arc<SnapshotPool>, bytes: u64, stop: &Stop) -> Result<(PoolGuard, bool), CheckpointError> {
        let (mut used, mut waited) = (self.lock(), false);
        // A chunk that is larger than the pool is admitted if the pool is otherwise empty.
        while *used > 0 && *used + bytes > self.most {
            if stop.wished() {
                return Err(CheckpointError::Interrupted);
            }
            waited = true;
            used = self.given.wait_timeout(used, LOOK_AROUND).unwrap_or_else(PoisonError::into_inner).0;
        }
        *used += bytes;
        Ok((PoolGuard { pool: Arc::clone(self), bytes }, waited))
    }
}

impl Drop for PoolGuard {
    fn drop(&mut self) {
        *self.pool.lock() -= self.bytes;
        self.pool.given.notify_all();
    }
}

impl Checkpointer<'_> {
    /// Takes a copy and passes it to the background thread; returns when the copy was complete.
    pub(super) fn snapshot(&self, moment: Moment, began: Nanos) -> Result<Nanos, CheckpointError> {
        let (senders, receivers): (Vec<Sender<SnapshotChunk>>, Vec<Receiver<SnapshotChunk>>) =
            self.items.iter().map(|_| channel()).unzip();
        let files = receivers.into_iter().map(Mutex::new).collect();
        self.push(BackgroundTask::Persist(Snapshot { moment, began, files }));
        let senders: Vec<Mutex<Option<Sender<SnapshotChunk>>>> =
            senders.into_iter().map(|sender| Mutex::new(Some(sender))).collect();
        // Files are copied in the order in which the writers write them, so that a thread that waits for memory waits
        // for a file that is being written.
        let copied = self.threads().each(&self.items, |item, hands| {
            let sender = senders[self.place(item)].lock().unwrap_or_else(PoisonError::into_inner).take();
            sender.map_or(Ok(()), |sender| self.copy_file(moment, item, &sender, hands))?;
            Ok((self.now(), 0))
        });
        copied.map(|_| self.now())
    }

    /// Copies the chunks of a file into memory, one after another.
    fn copy_file(
        &self,
        moment: Moment,
        item: &TransferFile,
        sender: &Sender<SnapshotChunk>,
        hands: &mut TransferWorker<'_>,
    ) -> Result<(), CheckpointError> {
        hands.begin(Operation::Write, &format!("{} to memory", item.name));
        let content = FileContent::new(self.setup.seed, moment, item.number);
        let chunk_bytes = self.threads().chunk_bytes;
        let mut at = 0;
        while at < item.bytes {
            let len = (item.bytes - at).min(chunk_bytes as u64);
            let loan = self.take_memory(moment, len, hands)?;
            let mut buffer = self.pool.buffer(chunk_bytes);
            if self.setup.last.files().holds_files() {
                content.fill(at, &mut buffer.room()[..len as usize]);
            }
            buffer.set_len(len as usize);
            if sender.send(SnapshotChunk { buffer, _loan: loan }).is_err() {
                // The writers have ended and report why; the copy is not needed.
                return Ok(());
            }
            hands.advance(0)?;
            at += len;
        }
        Ok(())
    }

    fn take_memory(
        &self,
        moment: Moment,
        bytes: u64,
        hands: &mut TransferWorker<'_>,
    ) -> Result<PoolGuard, CheckpointError> {
        let began = self.now();
        // A thread that waits here waits for the writers, which have their own watchdog.
        let lend = || self.awaiting(|| self.pool.lend(bytes, self.setup.stop));
        let (loan, waited) = hands.wait_for_memory(lend)?;
        if waited {
            hands.waited += self.now().since(began);
            // Several threads wait at once; training waits for the one that waits longest.
            self.note(moment, |saved| saved.back_pressure_ns = saved.back_pressure_ns.max(hands.waited));
        }
        Ok(loan)
    }

    /// Writes a snapshot to the last tier. Chunks that were not written are dropped with the snapshot.
    pub(super) fn persist(&self, snapshot: Snapshot) {
        let Snapshot { moment, began, files } = snapshot;
        if let Err(cause) = self.write_snapshot(moment, began, &files) {
            self.failed(moment, "", cause);
        }
    }

    fn write_snapshot(
        &self,
        moment: Moment,
        began: Nanos,
        chunks: &[Mutex<Receiver<SnapshotChunk>>],
    ) -> Result<Nanos, CheckpointError> {
        let (last, threads) = (self.setup.last, self.background_threads());
        let begun = self.begin(self.back(), false, moment)?;
        let written = self.fill(self.back(), begun, began, &threads, |item, path, hands| {
            let file = chunks[self.place(item)].lock().unwrap_or_else(PoisonError::into_inner);
            // No thread waits for these writes, so they are always made durable.
            files::write(&threads, last.files(), path, item.bytes, true, hands, |_, chunk, _| {
                // The chunk leaves the pool when it is passed to the tier, which holds only a few.
                let copied = file.recv().map_err(|_| CheckpointError::Interrupted)?;
                self.pool.put_back(std::mem::replace(chunk, copied.buffer));
                Ok(())
            })
        })?;
        self.seal(self.back(), &written)
    }
}
