//! Saving in the background: training waits until a copy of the checkpoint is in memory, and writers bring it to the
//! last tier meanwhile and afterwards. Memory is bounded: where the copy is larger, training waits for the writers.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use model::checkpoint::manifest::Moment;
use model::units::Nanos;
use store::{Buffer, Operation};

use super::content::FileContent;
use super::files::{self, Hands, Item};
use super::{BackgroundTask, CheckpointError, Checkpointer, LOOK_AROUND};
use crate::stop::Stop;

/// A checkpoint on its way from memory to the last tier: the chunks of each file, by the file's number.
pub(super) struct Snapshot {
    moment: Moment,
    began: Nanos,
    files: Vec<Mutex<Receiver<Chunk>>>,
}

/// A part of a file, and its share of the pool.
struct Chunk {
    buffer: Buffer,
    _loan: Loan,
}

/// Memory that snapshots share.
#[derive(Debug)]
pub(super) struct Pool {
    most: u64,
    used: Mutex<u64>,
    given: Condvar,
    /// Buffers that were used and can be again.
    spare: Mutex<Vec<Buffer>>,
}

/// Memory of the pool, which has it back when this goes, whoever held it last.
#[derive(Debug)]
struct Loan {
    pool: Arc<Pool>,
    bytes: u64,
}

impl Pool {
    pub(super) fn new(most: u64) -> Pool {
        Pool { most, used: Mutex::default(), given: Condvar::new(), spare: Mutex::default() }
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

    /// Bytes that are lent.
    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        *self.lock()
    }

    /// Lends memory as soon as there is enough; says whether that had to be waited for.
    fn lend(self: &Arc<Pool>, bytes: u64, stop: &Stop) -> Result<(Loan, bool), CheckpointError> {
        let (mut used, mut waited) = (self.lock(), false);
        // A chunk that is larger than the pool goes through it alone.
        while *used > 0 && *used + bytes > self.most {
            if stop.wished() {
                return Err(CheckpointError::Interrupted);
            }
            waited = true;
            used = self.given.wait_timeout(used, LOOK_AROUND).unwrap_or_else(PoisonError::into_inner).0;
        }
        *used += bytes;
        Ok((Loan { pool: Arc::clone(self), bytes }, waited))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        *self.pool.lock() -= self.bytes;
        self.pool.given.notify_all();
    }
}

impl Checkpointer<'_> {
    /// Takes a copy and hands it to the background; says when the copy was complete.
    pub(super) fn snapshot(&self, moment: Moment, began: Nanos) -> Result<Nanos, CheckpointError> {
        let (senders, receivers): (Vec<Sender<Chunk>>, Vec<Receiver<Chunk>>) =
            self.items.iter().map(|_| channel()).unzip();
        let files = receivers.into_iter().map(Mutex::new).collect();
        self.push(BackgroundTask::Persist(Snapshot { moment, began, files }));
        let senders: Vec<Mutex<Option<Sender<Chunk>>>> =
            senders.into_iter().map(|sender| Mutex::new(Some(sender))).collect();
        // Files are taken on in the order in which the writers take them, so that whoever waits for memory waits for
        // somebody who is being written.
        let copied = self.threads().each(&self.items, |item, hands| {
            let sender = senders[item.number as usize].lock().unwrap_or_else(PoisonError::into_inner).take();
            sender.map_or(Ok(()), |sender| self.copy_file(moment, item, &sender, hands))?;
            Ok((self.now(), 0))
        });
        copied.map(|_| self.now())
    }

    /// Puts the chunks of a file into memory, one after the other.
    fn copy_file(
        &self,
        moment: Moment,
        item: &Item,
        sender: &Sender<Chunk>,
        hands: &mut Hands<'_>,
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
            if sender.send(Chunk { buffer, _loan: loan }).is_err() {
                // The writers have given up and say why; the copy is of no use.
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
        hands: &mut Hands<'_>,
    ) -> Result<Loan, CheckpointError> {
        let began = self.now();
        // Who waits here waits for the writers, who are watched.
        let lend = || self.awaiting(|| self.pool.lend(bytes, self.setup.stop));
        let (loan, waited) = hands.wait_for_memory(lend)?;
        if waited {
            hands.waited += self.now().since(began);
            // Several wait at once; the one that waits longest is the one that training waits for.
            self.note(moment, |saved| saved.back_pressure_ns = saved.back_pressure_ns.max(hands.waited));
        }
        Ok(loan)
    }

    /// Writes a snapshot to the last tier. What was not written is forgotten with the snapshot.
    pub(super) fn persist(&self, snapshot: Snapshot) {
        let Snapshot { moment, began, files } = snapshot;
        if let Err(cause) = self.write_snapshot(moment, began, &files) {
            self.trouble(moment, cause.to_string());
        }
    }

    fn write_snapshot(
        &self,
        moment: Moment,
        began: Nanos,
        chunks: &[Mutex<Receiver<Chunk>>],
    ) -> Result<Nanos, CheckpointError> {
        let (last, threads) = (self.setup.last, self.background_threads());
        let written = self.fill(last, moment, began, &threads, |item, path, hands| {
            let file = chunks[item.number as usize].lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody waits for these writes, so they are always safe when they end.
            files::write(&threads, last.files(), path, item.bytes, true, hands, |_, chunk, _| {
                // The chunk leaves the pool when it is handed to the tier, which holds few of them.
                let copied = file.recv().map_err(|_| CheckpointError::Interrupted)?;
                self.pool.put_back(std::mem::replace(chunk, copied.buffer));
                Ok(())
            })
        })?;
        self.seal(&written)
    }
}
