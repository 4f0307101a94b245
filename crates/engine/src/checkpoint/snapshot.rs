//! Saving in the background: training waits until a copy of the checkpoint is in memory, and writers bring it to the
//! last tier meanwhile and afterwards. Memory is bounded: where the copy is larger, training waits for the writers.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use model::checkpoint::manifest::Moment;
use model::units::Nanos;
use store::Buffer;

use super::content::FileContent;
use super::files;
use super::{CheckpointError, Job, Keeper, tiers};

/// A checkpoint on its way from memory to the last tier: the chunks of each file, in the order of the files.
pub(super) struct Snapshot {
    moment: Moment,
    began: Nanos,
    files: Vec<Mutex<Receiver<Buffer>>>,
}

impl Keeper<'_> {
    /// Takes a copy and hands it to the background; says when the copy was complete.
    pub(super) fn snapshot(&self, moment: Moment, began: Nanos) -> Result<Nanos, CheckpointError> {
        let (senders, receivers): (Vec<Sender<Buffer>>, Vec<Receiver<Buffer>>) =
            self.items.iter().map(|_| channel()).unzip();
        let files = receivers.into_iter().map(Mutex::new).collect();
        self.push(Job::Persist(Snapshot { moment, began, files }));
        let senders: Vec<Mutex<Option<Sender<Buffer>>>> =
            senders.into_iter().map(|sender| Mutex::new(Some(sender))).collect();
        let crew = self.crew();
        // Files are taken on in the order in which the writers take them, so that whoever waits for memory waits for
        // somebody who is being written.
        let place_of = |number: u64| self.items.iter().position(|item| item.number == number).unwrap_or(0);
        let copied = crew.each(&self.items, |item, _| {
            let sender = senders[place_of(item.number)].lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(sender) = sender else { return Ok((self.now(), 0)) };
            let content = FileContent::new(self.setup.seed, moment, item.number);
            let mut at = 0;
            while at < item.bytes {
                let len = (item.bytes - at).min(crew.chunk_bytes as u64);
                self.take_memory(moment, len)?;
                let mut chunk = Buffer::with_capacity(crew.chunk_bytes);
                if self.setup.last.holds_files() {
                    content.fill(at, &mut chunk.room()[..len as usize]);
                }
                chunk.set_len(len as usize);
                if sender.send(chunk).is_err() {
                    // The writers have given up and say why; the copy is of no use.
                    self.give_memory(len);
                    return Ok((self.now(), 0));
                }
                at += len;
            }
            Ok((self.now(), 0))
        });
        copied.map(|_| self.now())
    }

    fn take_memory(&self, moment: Moment, bytes: u64) -> Result<(), CheckpointError> {
        let began = self.now();
        let mut state = self.state();
        let mut waited = false;
        // A chunk that is larger than the pool goes through it alone.
        while state.pool_used > 0 && state.pool_used + bytes > self.setup.plan.pool_bytes {
            if self.setup.stop.wished() {
                return Err(CheckpointError::Interrupted);
            }
            waited = true;
            state = self.wait(state);
        }
        state.pool_used += bytes;
        drop(state);
        if waited {
            let span = self.now().since(began);
            // Several wait at once; the longest is what training waited.
            self.note(moment, |saved| saved.back_pressure_ns = saved.back_pressure_ns.max(span));
        }
        Ok(())
    }

    fn give_memory(&self, bytes: u64) {
        self.state().pool_used -= bytes;
        self.changed.notify_all();
    }

    /// Writes a snapshot to the last tier.
    pub(super) fn persist(&self, snapshot: Snapshot) {
        let Snapshot { moment, began, files } = snapshot;
        let outcome = self.write_snapshot(moment, began, &files);
        // What was not written is forgotten, and its memory is free again.
        for file in files {
            let file = file.into_inner().unwrap_or_else(PoisonError::into_inner);
            file.try_iter().for_each(|chunk| self.give_memory(chunk.bytes().len() as u64));
        }
        match outcome {
            Ok(end) => self.completed(moment, false, |saved| saved.durable_ns = Some(end.since(began))),
            Err(cause) => self.note(moment, |saved| saved.troubles.push(cause.to_string())),
        }
    }

    fn write_snapshot(
        &self,
        moment: Moment,
        began: Nanos,
        chunks: &[Mutex<Receiver<Buffer>>],
    ) -> Result<Nanos, CheckpointError> {
        let last = self.setup.last;
        tiers::begin(last, moment)?;
        let crew = self.crew();
        let place_of = |number: u64| self.items.iter().position(|item| item.number == number).unwrap_or(0);
        let ended = crew.each(&self.items, |item, hands| {
            let file = chunks[place_of(item.number)].lock().unwrap_or_else(PoisonError::into_inner);
            let path = item.path(moment);
            files::write(&crew, last, &path, item.bytes, self.setup.plan.fsync, hands, |_, chunk, len| {
                *chunk = file.recv().map_err(|_| CheckpointError::Interrupted)?;
                // The chunk leaves the pool when it is handed to the tier, which holds few of them.
                self.give_memory(len as u64);
                Ok(())
            })
        })?;
        tiers::finish(last, &self.manifest(moment, &ended))?;
        self.book_ranks(moment, &ended, began);
        self.retain()?;
        let reckoned = ended.iter().map(|end| end.at).max().unwrap_or(began);
        Ok(if last.holds_files() { self.now() } else { reckoned })
    }
}
