//! Checkpoints on a simulated device: what is written is counted and takes its time, and small files are kept in
//! memory, so that a save, a drain and a restore find what they would find on a disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::names::Name;
use model::units::Nanos;

use super::{Lock, Sink, Source, Tier};
use crate::page_cache::Pages;
use crate::sim::Sim;
use crate::{Buffer, Now, StoreError};

/// What would stand under a name.
#[derive(Clone, Debug)]
enum Entry {
    Folder,
    File { bytes: u64 },
    Small(Vec<u8>),
}

/// A simulated device that holds checkpoints.
#[derive(Debug)]
pub struct SimTier {
    device: Arc<Sim>,
    entries: Mutex<BTreeMap<String, Entry>>,
}

impl SimTier {
    /// On a device that others may use, too: all share its time.
    pub fn on(device: Arc<Sim>) -> SimTier {
        SimTier { device, entries: Mutex::default() }
    }

    pub(super) fn parse(arguments: &str) -> Result<SimTier, StoreError> {
        Ok(SimTier::on(Arc::new(Sim::parse(arguments)?)))
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn must_have_folder(&self, name: &Name) -> Result<(), StoreError> {
        let there = match name.as_str().rsplit_once('/') {
            None => true,
            Some((folder, _)) => matches!(self.names().get(folder), Some(Entry::Folder)),
        };
        if there { Ok(()) } else { Err(StoreError::Missing { name: self.shown(name) }) }
    }

    /// Bytes of a file that was written; `None` if there is none.
    fn written(&self, name: &Name) -> Option<u64> {
        match self.names().get(name.as_str()) {
            Some(Entry::File { bytes }) => Some(*bytes),
            Some(Entry::Small(bytes)) => Some(bytes.len() as u64),
            _ => None,
        }
    }
}

impl Tier for SimTier {
    fn shown(&self, name: &Name) -> String {
        format!("simulated {name}")
    }

    fn holds_files(&self) -> bool {
        false
    }

    /// It is this process's alone.
    fn lock(&self, _shared: bool) -> Result<Lock, StoreError> {
        Ok(Lock::default())
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn make_folder(&self, folder: &Name) -> Result<(), StoreError> {
        self.names().insert(folder.to_string(), Entry::Folder);
        Ok(())
    }

    fn create<'a>(
        &'a self,
        name: &Name,
        _bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn Sink + 'a>, StoreError> {
        self.must_have_folder(name)?;
        let requests = Requests::new(&self.device, clock);
        Ok(Box::new(SimSink { tier: self, name: name.to_string(), bytes: 0, requests }))
    }

    fn open<'a>(&'a self, name: &Name, clock: &'a dyn Now) -> Result<Box<dyn Source + 'a>, StoreError> {
        let bytes = self.written(name).ok_or_else(|| StoreError::Missing { name: self.shown(name) })?;
        Ok(Box::new(SimSource { left: bytes, requests: Requests::new(&self.device, clock) }))
    }

    fn evict(&self, _name: &Name) -> Result<Option<Pages>, StoreError> {
        Ok(None)
    }

    fn cached(&self, _name: &Name) -> Result<Option<Pages>, StoreError> {
        Ok(None)
    }

    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError> {
        self.must_have_folder(name)?;
        self.names().insert(name.to_string(), Entry::Small(bytes.to_vec()));
        Ok(())
    }

    fn get(&self, name: &Name) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(match self.names().get(name.as_str()) {
            Some(Entry::Small(bytes)) => Some(bytes.clone()),
            _ => None,
        })
    }

    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        Ok(self.written(name))
    }

    fn sync_file(&self, _name: &Name) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync_folder(&self, _folder: &Name) -> Result<(), StoreError> {
        Ok(())
    }

    fn entries(&self, folder: &Name) -> Result<Vec<String>, StoreError> {
        let prefix = if folder.as_str() == "." { String::new() } else { format!("{folder}/") };
        let names = self.names();
        let inside = names.keys().filter_map(|name| name.strip_prefix(&prefix));
        Ok(inside.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }

    fn rename(&self, from: &Name, to: &Name) -> Result<(), StoreError> {
        let mut names = self.names();
        let moved = |name: &str| match name.strip_prefix(from.as_str())? {
            rest if rest.is_empty() || rest.starts_with('/') => Some(format!("{to}{rest}")),
            _ => None,
        };
        let old: Vec<(String, String)> =
            names.keys().filter_map(|name| Some((name.clone(), moved(name)?))).collect();
        if old.is_empty() {
            return Err(StoreError::Missing { name: self.shown(from) });
        }
        for (old, new) in old {
            if let Some(entry) = names.remove(&old) {
                names.insert(new, entry);
            }
        }
        Ok(())
    }

    fn remove(&self, name: &Name) -> Result<(), StoreError> {
        self.names().remove(name.as_str());
        Ok(())
    }

    fn remove_folder(&self, folder: &Name) -> Result<(), StoreError> {
        let (mut names, inside) = (self.names(), format!("{folder}/"));
        if !names.keys().any(|name| name.starts_with(&inside)) {
            names.remove(folder.as_str());
        }
        Ok(())
    }
}

/// Requests of one file that are at the device at once, as a kernel has them that writes behind and reads ahead: so the
/// latency of one overlaps the transfer of another.
const DEPTH: usize = 4;

/// The requests of one file. Each arrives when an earlier one ended by the device's reckoning, so that a thread that
/// wakes late delays nothing.
struct Requests<'a> {
    device: &'a Sim,
    done: VecDeque<Nanos>,
    /// When there was last room for a request, and when the last one is done.
    at: Nanos,
    ended: Nanos,
    clock: &'a dyn Now,
}

impl<'a> Requests<'a> {
    fn new(device: &'a Sim, clock: &'a dyn Now) -> Requests<'a> {
        let now = clock.now();
        Requests { device, done: VecDeque::with_capacity(DEPTH), at: now, ended: now, clock }
    }

    /// Hands a request over as soon as there is room for it.
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

/// A file on its way to the device.
struct SimSink<'a> {
    tier: &'a SimTier,
    name: String,
    bytes: u64,
    requests: Requests<'a>,
}

/// Lets the time until a moment pass.
fn sleep_until(at: Nanos, clock: &dyn Now) {
    let left = at.since(clock.now());
    if left > Nanos::ZERO {
        std::thread::sleep(Duration::from_nanos(left.0));
    }
}

impl Sink for SimSink<'_> {
    fn write(&mut self, chunk: Buffer) -> Result<Option<Buffer>, StoreError> {
        let bytes = chunk.bytes().len() as u64;
        self.bytes += bytes;
        self.requests.ask(|device, at| device.write(at, bytes));
        Ok(Some(chunk))
    }

    fn finish(self: Box<Self>, _durable: bool, _spare: &mut Vec<Buffer>) -> Result<Nanos, StoreError> {
        let (end, bytes) = (self.requests.finish(), self.bytes);
        self.tier.names().insert(self.name, Entry::File { bytes });
        Ok(end)
    }
}

/// A file on its way from the device, which brings no bytes.
struct SimSource<'a> {
    left: u64,
    requests: Requests<'a>,
}

impl Source for SimSource<'_> {
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

    /// A clock that is always late enough: nobody sleeps.
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
    fn writes_take_the_device_s_time_and_share_it() {
        let tier = SimTier::parse("bandwidth=100MB/s,latency=1ms,channels=1").unwrap();
        tier.make_folder(&name("one")).unwrap();
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
        assert_eq!(tier.size(&name("one/file")), Ok(Some(2_000_000)));
        let slow = SimTier::parse("bandwidth=100MB/s,write=50MB/s").unwrap();
        slow.make_folder(&name("x")).unwrap();
        let mut sink = slow.create(&name("x/y"), 1_000_000, &Far).unwrap();
        sink.write(chunk()).unwrap();
        assert_eq!(sink.finish(true, &mut Vec::new()).unwrap().since(begin), Nanos(20_000_000));
    }

    #[test]
    fn names_behave_as_on_a_disk() {
        let tier = SimTier::parse("hdd").unwrap();
        assert!(tier.put(&name("a/list"), b"x").unwrap_err().to_string().contains("a/list"));
        tier.make_folder(&name("a")).unwrap();
        tier.put(&name("a/list"), b"x").unwrap();
        assert_eq!(tier.entries(&name("a")).unwrap(), ["list"]);
        assert_eq!(tier.entries(&name(".")).unwrap(), ["a"]);
        assert_eq!(tier.get(&name("a/list")).unwrap().unwrap(), b"x");
        tier.rename(&name("a"), &name("b")).unwrap();
        tier.remove_folder(&name("b")).unwrap();
        assert_eq!(tier.get(&name("b/list")).unwrap().unwrap(), b"x", "what is not empty stays");
        tier.remove(&name("b/list")).unwrap();
        tier.remove_folder(&name("b")).unwrap();
        assert!(tier.entries(&name(".")).unwrap().is_empty());
    }
}
