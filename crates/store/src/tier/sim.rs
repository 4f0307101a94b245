//! Checkpoints on a simulated device: written bytes are counted and take time, and the manifests are kept in memory, so
//! that a save, a drain and a restore find what they would find on a disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::checkpoint::manifest::{CheckpointManifest, Moment};
use model::names::Name;
use model::units::Nanos;

use super::{Lock, StoredCheckpoint, Tier, TierFiles, TierSink, TierSource};
use crate::page_cache::Pages;
use crate::sim::Sim;
use crate::{Buffer, Now, StoreError};

/// A simulated device that holds checkpoints.
#[derive(Debug)]
pub struct SimTier {
    device: Arc<Sim>,
    held: Mutex<SimContents>,
}

/// What the device would hold.
#[derive(Debug, Default)]
struct SimContents {
    /// Bytes of each file.
    files: BTreeMap<String, u64>,
    complete: BTreeMap<Moment, StoredCheckpoint>,
}

impl SimContents {
    /// The size of a file. Other processes may have written it, each to its own device: a manifest lists all files.
    fn bytes(&self, name: &str) -> Option<u64> {
        let written = self.files.get(name).copied();
        written.or_else(|| {
            let (prefix, file) = name.rsplit_once('/')?;
            let mut of_prefix = self.complete.values().filter(|there| there.prefix == prefix);
            let entry = of_prefix.next()?.manifest.files.iter().find(|entry| entry.name == file)?;
            Some(entry.bytes)
        })
    }

    fn remove_files(&mut self, checkpoint: &StoredCheckpoint) {
        for file in &checkpoint.manifest.files {
            self.files.remove(checkpoint.path(&file.name).as_str());
        }
    }
}

impl SimTier {
    /// On a device that may have other users: all share its time.
    pub fn on(device: Arc<Sim>) -> SimTier {
        SimTier { device, held: Mutex::default() }
    }

    pub(super) fn parse(arguments: &str) -> Result<SimTier, StoreError> {
        Ok(SimTier::on(Arc::new(Sim::parse(arguments)?)))
    }

    fn contents(&self) -> MutexGuard<'_, SimContents> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TierFiles for SimTier {
    fn shown(&self, name: &Name) -> String {
        format!("simulated {name}")
    }

    fn holds_files(&self) -> bool {
        false
    }

    /// Only this process uses it.
    fn lock(&self, _shared: bool, _stops: &dyn Fn() -> bool) -> Result<Lock, StoreError> {
        Ok(Lock::default())
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn create<'a>(
        &'a self,
        name: &Name,
        _bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn TierSink + 'a>, StoreError> {
        let requests = Requests::new(&self.device, clock);
        Ok(Box::new(SimSink { tier: self, name: name.to_string(), bytes: 0, requests }))
    }

    fn open<'a>(&'a self, name: &Name, clock: &'a dyn Now) -> Result<Box<dyn TierSource + 'a>, StoreError> {
        let bytes = self.contents().bytes(name.as_str());
        let left = bytes.ok_or_else(|| StoreError::Missing { name: self.shown(name) })?;
        Ok(Box::new(SimSource { left, requests: Requests::new(&self.device, clock) }))
    }

    fn evict(&self, _name: &Name) -> Result<Option<Pages>, StoreError> {
        Ok(None)
    }

    fn cached(&self, _name: &Name) -> Result<Option<Pages>, StoreError> {
        Ok(None)
    }

    fn sync_file(&self, _name: &Name) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Tier for SimTier {
    fn files(&self) -> &dyn TierFiles {
        self
    }

    fn find(&self, moment: Moment) -> Result<Option<StoredCheckpoint>, StoreError> {
        Ok(self.contents().complete.get(&moment).cloned())
    }

    fn list(&self) -> Result<Vec<StoredCheckpoint>, StoreError> {
        Ok(self.contents().complete.values().cloned().collect())
    }

    fn begin(&self, manifest: CheckpointManifest) -> Result<StoredCheckpoint, StoreError> {
        let folder = manifest.moment.folder();
        // The files of the checkpoint that it replaces keep their names until then.
        let prefix = match self.contents().complete.contains_key(&manifest.moment) {
            true => format!("{folder}.{}", manifest.serial),
            false => folder,
        };
        Ok(StoredCheckpoint { prefix, manifest })
    }

    fn commit(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
        let mut contents = self.contents();
        let replaced = contents.complete.insert(checkpoint.manifest.moment, checkpoint.clone());
        if let Some(replaced) = replaced.filter(|replaced| replaced.prefix != checkpoint.prefix) {
            contents.remove_files(&replaced);
        }
        Ok(())
    }

    fn abandon(&self, checkpoint: &StoredCheckpoint) {
        self.contents().remove_files(checkpoint);
    }

    fn remove(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
        let mut contents = self.contents();
        if contents.complete.get(&checkpoint.manifest.moment) == Some(checkpoint) {
            contents.complete.remove(&checkpoint.manifest.moment);
        }
        contents.remove_files(checkpoint);
        Ok(())
    }

    /// Nothing outlives the process.
    fn recover(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn holds(&self, manifest: &CheckpointManifest) -> Result<bool, StoreError> {
        let contents = self.contents();
        Ok(contents.complete.get(&manifest.moment).is_some_and(|there| {
            let has = |name: &str, bytes| contents.files.get(there.path(name).as_str()) == Some(&bytes);
            there.manifest == *manifest && manifest.files.iter().all(|file| has(&file.name, file.bytes))
        }))
    }

    fn present(&self, checkpoint: &StoredCheckpoint) -> Result<Vec<bool>, StoreError> {
        let contents = self.contents();
        let here = checkpoint
            .manifest
            .files
            .iter()
            .map(|file| contents.files.get(checkpoint.path(&file.name).as_str()) == Some(&file.bytes));
        Ok(here.collect())
    }

    /// Only this process uses it.
    fn mark(&self, _mark: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_marked(&self, _mark: &str) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn unmark(&self, _mark: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Requests of one file in the device at once, like those of a kernel that writes behind and reads ahead: so the
/// latency of one overlaps the transfer of another.
const DEPTH: usize = 4;

/// The requests of one file. Each arrives when an earlier one ended by the device's time, so a thread that wakes late
/// delays nothing.
struct Requests<'a> {
    device: &'a Sim,
    done: VecDeque<Nanos>,
    /// When there was last space for a request, and when the last one is done.
    at: Nanos,
    ended: Nanos,
    clock: &'a dyn Now,
}

impl<'a> Requests<'a> {
    fn new(device: &'a Sim, clock: &'a dyn Now) -> Requests<'a> {
        let now = clock.now();
        Requests { device, done: VecDeque::with_capacity(DEPTH), at: now, ended: now, clock }
    }

    /// Submits a request as soon as there is space for it.
    fn ask(&mut self, pass: impl FnOnce(&Sim, Nanos) -> Nanos) {
        if self.done.len() == DEPTH {
            self.at = self.done.pop_front().map_or(self.at, |done| done.max(self.at));
            sleep_until(self.at, self.clock);
        }
        self.ended = pass(self.device, self.at);
        self.done.push_back(self.ended);
    }

    /// Waits for all of them.
    fn finish(&self) -> Nanos {
        sleep_until(self.ended, self.clock);
        self.ended
    }
}

/// A file that is being written to the device.
struct SimSink<'a> {
    tier: &'a SimTier,
    name: String,
    bytes: u64,
    requests: Requests<'a>,
}

/// Waits until this moment.
fn sleep_until(at: Nanos, clock: &dyn Now) {
    let left = at.since(clock.now());
    if left > Nanos::ZERO {
        std::thread::sleep(Duration::from_nanos(left.0));
    }
}

impl TierSink for SimSink<'_> {
    fn write(&mut self, chunk: Buffer) -> Result<Option<Buffer>, StoreError> {
        let bytes = chunk.bytes().len() as u64;
        self.bytes += bytes;
        self.requests.ask(|device, at| device.write(at, bytes));
        Ok(Some(chunk))
    }

    fn finish(self: Box<Self>, _durable: bool, _spare: &mut Vec<Buffer>) -> Result<Nanos, StoreError> {
        let (end, bytes) = (self.requests.finish(), self.bytes);
        self.tier.contents().files.insert(self.name, bytes);
        Ok(end)
    }
}

/// A file that is being read from the device, which delivers no bytes.
struct SimSource<'a> {
    left: u64,
    requests: Requests<'a>,
}

impl TierSource for SimSource<'_> {
    fn read(&mut self, chunk: &mut Buffer) -> Result<(), StoreError> {
        let bytes = self.left.min(chunk.capacity() as u64);
        self.left -= bytes;
        match bytes {
            0 => drop(self.requests.finish()),
            bytes => self.requests.ask(|device, at| device.read(at, bytes)),
        }
        chunk.set_len(bytes as usize);
        Ok(())
    }

    fn ended(&self) -> Nanos {
        self.requests.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that is always late enough, so that nothing sleeps.
    struct Far;

    impl Now for Far {
        fn now(&self) -> Nanos {
            Nanos(1 << 50)
        }
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn writes_take_and_share_the_devices_time() {
        let tier = SimTier::parse("bandwidth=100MB/s,latency=1ms,channels=1").unwrap();
        let begin = Far.now();
        let chunk = || {
            let mut chunk = Buffer::with_capacity(1 << 20);
            chunk.set_len(1_000_000);
            chunk
        };
        let mut sink = tier.create(&name("one/file"), 2_000_000, &Far).unwrap();
        sink.write(chunk()).unwrap();
        sink.write(chunk()).unwrap();
        let end = sink.finish(true, &mut Vec::new()).unwrap();
        assert_eq!(
            end.since(begin),
            Nanos(21_000_000),
            "1 ms, and twice 10 ms: the second latency is overlapped"
        );
        assert_eq!(tier.contents().files.get("one/file"), Some(&2_000_000));
        let slow = SimTier::parse("bandwidth=100MB/s,write=50MB/s").unwrap();
        let mut sink = slow.create(&name("x/y"), 1_000_000, &Far).unwrap();
        sink.write(chunk()).unwrap();
        assert_eq!(sink.finish(true, &mut Vec::new()).unwrap().since(begin), Nanos(20_000_000));
    }
}
