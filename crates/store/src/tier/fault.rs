//! A checkpoint tier that injects faults by rule. Without a broken disk, this tests how saves, drains and restores
//! react to errors, a full device and delays. Every operation on a name counts, so that each can be the one that fails.

use std::time::Duration;

use model::location::Location;
use model::names::Name;
use model::units::Nanos;
use rustix::io::Errno;

use super::{Lock, OpenTier, TierFiles, TierSink, TierSource, Volume};
use crate::page_cache::Pages;
use crate::rule::{self, FaultKind, FaultUse, RuleState};
use crate::{Buffer, Now, Operation, Selection, StoreError};

/// A tier that injects faults into operations.
#[derive(Debug)]
pub(crate) struct FaultVolume {
    inner: Box<dyn Volume>,
    strikes: RuleState,
    text: String,
}

impl FaultVolume {
    pub(super) fn open(place: &Location, selection: &Selection) -> Result<FaultVolume, StoreError> {
        let (inner, strikes) = rule::parse_for(selection, FaultUse::Checkpoints)?;
        inner.check()?;
        let Some(OpenTier::Volume(open)) = inner.backend.tier else { return Err(inner.no_tier()) };
        Ok(FaultVolume { inner: open(place, &inner)?, strikes, text: selection.arguments.clone() })
    }

    /// Injects a fault if the rule says so. A full device can still read and remove files.
    fn pass(&self, operation: Operation, name: &Name) -> Result<(), StoreError> {
        let takes_room = matches!(operation, Operation::Create | Operation::Write | Operation::MakeFolder);
        let kind = self.strikes.rule.kind;
        if (kind == FaultKind::Full && !takes_room) || !self.strikes.strike(name) {
            return Ok(());
        }
        let cause = match kind {
            FaultKind::Delay => {
                std::thread::sleep(Duration::from_nanos(self.strikes.rule.span.0));
                return Ok(());
            }
            FaultKind::Full => Errno::NOSPC,
            _ => Errno::IO,
        };
        Err(StoreError::io(operation, &self.inner.shown(name), cause))
    }
}

#[deny(clippy::missing_trait_methods)]
impl TierFiles for FaultVolume {
    fn shown(&self, name: &Name) -> String {
        self.inner.shown(name)
    }

    fn holds_files(&self) -> bool {
        self.inner.holds_files()
    }

    fn lock(&self, shared: bool, stops: &dyn Fn() -> bool) -> Result<Lock, StoreError> {
        self.inner.lock(shared, stops)
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        let mut facts = self.inner.observed();
        facts.push(("faults", self.text.clone()));
        facts.push(("faults_injected", self.strikes.count().to_string()));
        facts
    }

    fn progress(&self) -> u64 {
        self.inner.progress()
    }

    fn create<'a>(
        &'a self,
        name: &Name,
        bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn TierSink + 'a>, StoreError> {
        self.pass(Operation::Create, name)?;
        let inner = self.inner.create(name, bytes, clock)?;
        Ok(Box::new(FaultSink { tier: self, name: name.clone(), inner }))
    }

    fn open<'a>(&'a self, name: &Name, clock: &'a dyn Now) -> Result<Box<dyn TierSource + 'a>, StoreError> {
        self.pass(Operation::Open, name)?;
        let inner = self.inner.open(name, clock)?;
        Ok(Box::new(FaultSource { tier: self, name: name.clone(), inner }))
    }

    fn evict(&self, name: &Name) -> Result<Option<Pages>, StoreError> {
        self.inner.evict(name)
    }

    fn cached(&self, name: &Name) -> Result<Option<Pages>, StoreError> {
        self.inner.cached(name)
    }

    fn sync_file(&self, name: &Name) -> Result<(), StoreError> {
        self.pass(Operation::Sync, name)?;
        self.inner.sync_file(name)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Volume for FaultVolume {
    fn make_folder(&self, folder: &Name) -> Result<(), StoreError> {
        self.pass(Operation::MakeFolder, folder)?;
        self.inner.make_folder(folder)
    }

    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError> {
        self.pass(Operation::Write, name)?;
        self.inner.put(name, bytes)?;
        // Written data may still fail to become durable.
        self.pass(Operation::Sync, name)
    }

    fn get(&self, name: &Name) -> Result<Option<Vec<u8>>, StoreError> {
        self.pass(Operation::Read, name)?;
        self.inner.get(name)
    }

    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        self.pass(Operation::Stat, name)?;
        self.inner.size(name)
    }

    fn sync_folder(&self, folder: &Name) -> Result<(), StoreError> {
        self.pass(Operation::Sync, folder)?;
        self.inner.sync_folder(folder)
    }

    fn entries(&self, folder: &Name) -> Result<Vec<String>, StoreError> {
        self.pass(Operation::List, folder)?;
        self.inner.entries(folder)
    }

    fn rename(&self, from: &Name, to: &Name) -> Result<(), StoreError> {
        self.pass(Operation::Rename, from)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &Name) -> Result<(), StoreError> {
        self.pass(Operation::Remove, name)?;
        self.inner.remove(name)
    }

    fn remove_folder(&self, folder: &Name) -> Result<(), StoreError> {
        self.pass(Operation::Remove, folder)?;
        self.inner.remove_folder(folder)
    }
}

struct FaultSink<'a> {
    tier: &'a FaultVolume,
    name: Name,
    inner: Box<dyn TierSink + 'a>,
}

#[deny(clippy::missing_trait_methods)]
impl TierSink for FaultSink<'_> {
    fn write(&mut self, chunk: Buffer) -> Result<Option<Buffer>, StoreError> {
        self.tier.pass(Operation::Write, &self.name)?;
        self.inner.write(chunk)
    }

    fn finish(self: Box<Self>, durable: bool, spare: &mut Vec<Buffer>) -> Result<Nanos, StoreError> {
        self.tier.pass(Operation::Sync, &self.name)?;
        self.inner.finish(durable, spare)
    }
}

struct FaultSource<'a> {
    tier: &'a FaultVolume,
    name: Name,
    inner: Box<dyn TierSource + 'a>,
}

#[deny(clippy::missing_trait_methods)]
impl TierSource for FaultSource<'_> {
    fn read(&mut self, chunk: &mut Buffer) -> Result<(), StoreError> {
        self.tier.pass(Operation::Read, &self.name)?;
        self.inner.read(chunk)
    }

    fn ended(&self) -> Nanos {
        self.inner.ended()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{FixedClock, Mode};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn volume(rule: &str, root: &Path) -> FaultVolume {
        let selection = Selection::named(&format!("fault:posix,{rule}"), Mode::default()).unwrap();
        FaultVolume::open(&root.into(), &selection).unwrap()
    }

    #[test]
    fn every_operation_can_fail() {
        let mut failed = Vec::new();
        for number in 0..16 {
            let folder = tempfile::tempdir().unwrap();
            let tier = volume(&format!("kind=eio,after={number},limit=1"), folder.path());
            let work = || -> Result<(), StoreError> {
                tier.make_folder(&name("a"))?;
                let sink = tier.create(&name("a/x"), 0, &FixedClock)?;
                sink.finish(true, &mut Vec::new())?;
                tier.sync_file(&name("a/x"))?;
                tier.sync_folder(&name("a"))?;
                tier.put(&name("a/list"), b"x")?;
                tier.get(&name("a/list"))?;
                tier.size(&name("a/list"))?;
                tier.open(&name("a/x"), &FixedClock)?.read(&mut Buffer::with_capacity(4096))?;
                tier.rename(&name("a/list"), &name("a/old"))?;
                tier.remove(&name("a/old"))?;
                tier.entries(&name("a"))?;
                tier.remove(&name("a/x"))?;
                tier.remove_folder(&name("a"))
            };
            failed.push(work().unwrap_err().to_string());
            assert!(tier.observed().contains(&("faults_injected", "1".to_owned())));
        }
        assert!(failed.iter().all(|error| error.starts_with("cannot ")), "{failed:?}");
        assert!(failed[2].starts_with("cannot flush ") && failed[2].contains("/a/x:"), "{}", failed[2]);
    }

    #[test]
    fn a_full_device_can_read_and_remove() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x"), "old").unwrap();
        let tier = volume("kind=full", folder.path());
        for error in [
            tier.make_folder(&name("a")).unwrap_err(),
            tier.create(&name("y"), 1, &FixedClock).err().unwrap(),
            tier.put(&name("y"), b"new").unwrap_err(),
        ] {
            assert!(error.to_string().starts_with("no space left on the device while writing"), "{error}");
        }
        assert_eq!(tier.get(&name("x")).unwrap().unwrap(), b"old");
        tier.remove(&name("x")).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn kinds_that_only_apply_to_reads_are_refused() {
        let selection = Selection::named("fault:posix,kind=hang", Mode::default()).unwrap();
        let error = selection.tier(Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("does not apply to checkpoints"), "{error}");
    }
}
