//! A tier like an object store: names and bytes, without folders and renames. A manifest is put on the condition that
//! the previously known one is still there. The engine saves to it and restores from it as with folders.

use std::collections::BTreeMap;

use model::checkpoint::manifest::CheckpointManifest;
use model::names::Name;
use model::plan::Medium;
use store::conformance::tier::{manifest, tier, write_files};
use store::page_cache::Pages;
use store::{Buffer, Lock, Now, StoredCheckpoint, TierFiles, TierSink, TierSource};

use super::faults::{bench, tiny};
use super::*;
use crate::world::Exchange;
use crate::world::threads::{ThreadMember, members_on};

/// The objects, by name. Clones share the same objects.
#[derive(Clone, Debug, Default)]
struct Objects(Arc<Mutex<Bucket>>);

#[derive(Debug, Default)]
struct Bucket {
    objects: BTreeMap<String, Vec<u8>>,
    /// Number of checkpoints begun so far: each has unique object names.
    begun: u64,
    /// The manifest that existed when a checkpoint was begun, by its prefix.
    known: BTreeMap<String, Option<Vec<u8>>>,
    /// Commits that are carried out and then reported as failed.
    unanswered: u64,
    /// Steps of a millisecond that it takes to finish an upload, and whether they show as progress.
    finish_steps: u64,
    shows_progress: bool,
    progress: u64,
    /// How often the checkpoints were listed.
    lists: u64,
    /// Locks that another run has.
    refused_locks: u64,
    /// Whether removals wait.
    holds_removals: bool,
}

fn manifest_key(moment: Moment) -> String {
    format!("{}/checkpoint.json", moment.folder())
}

/// The location of the files, and the manifest.
fn written(checkpoint: &StoredCheckpoint) -> Vec<u8> {
    format!("{}\n{}", checkpoint.prefix, checkpoint.manifest.to_text()).into_bytes()
}

fn read(bytes: &[u8]) -> StoredCheckpoint {
    let (prefix, text) = std::str::from_utf8(bytes).unwrap().split_once('\n').unwrap();
    StoredCheckpoint { prefix: prefix.to_owned(), manifest: CheckpointManifest::from_text(text).unwrap() }
}

impl Bucket {
    /// Puts an object if the existing one is as expected: none, or these bytes.
    fn put_if(&mut self, key: String, bytes: Vec<u8>, expected: Option<&Vec<u8>>) -> bool {
        let as_expected = self.objects.get(&key) == expected;
        if as_expected {
            self.objects.insert(key, bytes);
        }
        as_expected
    }

    fn remove_listed(&mut self, checkpoint: &StoredCheckpoint) {
        for file in &checkpoint.manifest.files {
            self.objects.remove(checkpoint.path(&file.name).as_str());
        }
        self.objects.remove(&format!("{}/draft", checkpoint.prefix));
    }
}

impl Objects {
    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.0.lock().unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.bucket().objects.keys().cloned().collect()
    }
}

impl TierFiles for Objects {
    fn shown(&self, name: &Name) -> String {
        format!("objects/{name}")
    }

    fn holds_files(&self) -> bool {
        true
    }

    fn lock(&self, _shared: bool, stops: &dyn Fn() -> bool) -> Result<Lock, StoreError> {
        let mut bucket = self.bucket();
        match bucket.refused_locks.checked_sub(1) {
            _ if stops() => Err(StoreError::GivenUp),
            Some(left) => {
                bucket.refused_locks = left;
                Err(StoreError::Busy { name: "objects".to_owned() })
            }
            None => Ok(Lock::default()),
        }
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn progress(&self) -> u64 {
        self.bucket().progress
    }

    fn create<'a>(
        &'a self,
        name: &Name,
        _bytes: u64,
        clock: &'a dyn Now,
    ) -> Result<Box<dyn TierSink + 'a>, StoreError> {
        Ok(Box::new(Upload { to: self, name: name.to_string(), bytes: Vec::new(), clock }))
    }

    fn open<'a>(&'a self, name: &Name, clock: &'a dyn Now) -> Result<Box<dyn TierSource + 'a>, StoreError> {
        let object = self.bucket().objects.get(name.as_str()).cloned();
        let bytes = object.ok_or_else(|| StoreError::Missing { name: self.shown(name) })?;
        Ok(Box::new(Download { bytes, at: 0, clock }))
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

struct Upload<'a> {
    to: &'a Objects,
    name: String,
    bytes: Vec<u8>,
    clock: &'a dyn Now,
}

impl TierSink for Upload<'_> {
    fn write(&mut self, chunk: Buffer) -> Result<Option<Buffer>, StoreError> {
        self.bytes.extend_from_slice(chunk.bytes());
        Ok(Some(chunk))
    }

    fn finish(self: Box<Self>, _durable: bool, _spare: &mut Vec<Buffer>) -> Result<Nanos, StoreError> {
        let steps = self.to.bucket().finish_steps;
        for _ in 0..steps {
            std::thread::sleep(Duration::from_millis(1));
            let mut bucket = self.to.bucket();
            bucket.progress += u64::from(bucket.shows_progress);
        }
        self.to.bucket().objects.insert(self.name, self.bytes);
        Ok(self.clock.now())
    }
}

struct Download<'a> {
    bytes: Vec<u8>,
    at: usize,
    clock: &'a dyn Now,
}

impl TierSource for Download<'_> {
    fn read(&mut self, chunk: &mut Buffer) -> Result<(), StoreError> {
        let len = chunk.capacity().min(self.bytes.len() - self.at);
        chunk.room()[..len].copy_from_slice(&self.bytes[self.at..][..len]);
        chunk.set_len(len);
        self.at += len;
        Ok(())
    }

    fn ended(&self) -> Nanos {
        self.clock.now()
    }
}

impl Tier for Objects {
    fn files(&self) -> &dyn TierFiles {
        self
    }

    fn find(&self, moment: Moment) -> Result<Option<StoredCheckpoint>, StoreError> {
        Ok(self.bucket().objects.get(&manifest_key(moment)).map(|bytes| read(bytes)))
    }

    fn list(&self) -> Result<Vec<StoredCheckpoint>, StoreError> {
        let mut bucket = self.bucket();
        bucket.lists += 1;
        let manifests = bucket.objects.iter().filter(|(name, _)| name.ends_with("/checkpoint.json"));
        Ok(manifests.map(|(_, bytes)| read(bytes)).collect())
    }

    fn begin(&self, manifest: CheckpointManifest) -> Result<StoredCheckpoint, StoreError> {
        let mut bucket = self.bucket();
        bucket.begun += 1;
        let prefix = format!("{}/{}", manifest.moment.folder(), bucket.begun);
        let known = bucket.objects.get(&manifest_key(manifest.moment)).cloned();
        bucket.known.insert(prefix.clone(), known);
        let begun = StoredCheckpoint { prefix, manifest };
        bucket.objects.insert(format!("{}/draft", begun.prefix), written(&begun));
        Ok(begun)
    }

    fn commit(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
        let (key, mut bucket) = (manifest_key(checkpoint.manifest.moment), self.bucket());
        let known = bucket.known.remove(&checkpoint.prefix).unwrap();
        if !bucket.put_if(key.clone(), written(checkpoint), known.as_ref()) {
            return Err(StoreError::Busy { name: format!("objects/{key}") });
        }
        bucket.objects.remove(&format!("{}/draft", checkpoint.prefix));
        if let Some(replaced) = known {
            bucket.remove_listed(&read(&replaced));
        }
        if bucket.unanswered > 0 {
            bucket.unanswered -= 1;
            return Err(StoreError::Refused("the answer was lost".to_owned()));
        }
        Ok(())
    }

    fn abandon(&self, checkpoint: &StoredCheckpoint) {
        self.bucket().remove_listed(checkpoint);
    }

    fn remove(&self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
        while self.bucket().holds_removals {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (key, mut bucket) = (manifest_key(checkpoint.manifest.moment), self.bucket());
        if bucket.objects.get(&key) == Some(&written(checkpoint)) {
            bucket.objects.remove(&key);
        }
        bucket.remove_listed(checkpoint);
        Ok(())
    }

    fn recover(&self) -> Result<(), StoreError> {
        let mut bucket = self.bucket();
        let drafts = bucket.objects.iter().filter(|(name, _)| name.ends_with("/draft"));
        let begun: Vec<StoredCheckpoint> = drafts.map(|(_, bytes)| read(bytes)).collect();
        begun.iter().for_each(|checkpoint| bucket.remove_listed(checkpoint));
        Ok(())
    }

    fn holds(&self, manifest: &CheckpointManifest) -> Result<bool, StoreError> {
        let bucket = self.bucket();
        Ok(bucket.objects.get(&manifest_key(manifest.moment)).is_some_and(|bytes| {
            let there = read(bytes);
            let size = |name: &str| bucket.objects.get(there.path(name).as_str()).map(|object| object.len());
            there.manifest == *manifest
                && manifest.files.iter().all(|file| size(&file.name) == Some(file.bytes as usize))
        }))
    }

    fn present(&self, checkpoint: &StoredCheckpoint) -> Result<Vec<bool>, StoreError> {
        let bucket = self.bucket();
        let here = checkpoint.manifest.files.iter().map(|file| {
            let object = bucket.objects.get(checkpoint.path(&file.name).as_str());
            object.is_some_and(|object| object.len() as u64 == file.bytes)
        });
        Ok(here.collect())
    }

    fn mark(&self, mark: &str) -> Result<(), StoreError> {
        self.bucket().objects.insert(format!("mark/{mark}"), Vec::new());
        Ok(())
    }

    fn is_marked(&self, mark: &str) -> Result<bool, StoreError> {
        Ok(self.bucket().objects.contains_key(&format!("mark/{mark}")))
    }

    fn unmark(&self, mark: &str) -> Result<(), StoreError> {
        self.bucket().objects.remove(&format!("mark/{mark}"));
        Ok(())
    }
}

#[test]
fn it_passes_the_conformance_tests_of_tiers() {
    let objects = Objects::default();
    tier(&objects);
    assert_eq!(objects.names(), Vec::<String>::new());
}

#[test]
fn the_engine_saves_drains_removes_and_restores() {
    for mode in ["direct", "async", "burst-buffer"] {
        let (fast, last) = (Objects::default(), Objects::default());
        let settings = [&format!("checkpoint.mode_of_save={mode}"), "checkpoint.keep_last=2"];
        let place = |objects: &Objects| -> Box<dyn Tier> { Box::new(objects.clone()) };
        let burst = (mode == "burst-buffer").then(|| place(&fast));
        let bench = bench(&settings, burst, place(&last));
        let (_, saved) = bench.keep(|checkpointer| (1..=3).map(|step| checkpointer.save(at(step))).max());
        assert!(saved.iter().all(|save| save.is_complete() && save.troubles.is_empty()), "{saved:?}");
        bench.keep(|checkpointer| checkpointer.save(at(2)));
        let (restored, _) = bench.keep(|checkpointer| checkpointer.restore(newest()).unwrap());
        assert_eq!((restored.moment, restored.verified_bytes), (at(2), restored.bytes), "{mode}");
        assert_eq!(fast.names(), Vec::<String>::new(), "{mode}");
        let mut kept: Vec<Moment> = last.list().unwrap().iter().map(|there| there.manifest.moment).collect();
        kept.sort_unstable();
        assert_eq!(kept, [at(2), at(3)], "{mode}");
        let listed: usize = last.list().unwrap().iter().map(|there| there.manifest.files.len() + 1).sum();
        assert_eq!(last.names().len(), listed, "{mode}: no other object is left");
    }
}

#[test]
fn of_two_runs_that_save_the_same_moment_one_is_refused() {
    let objects = Objects::default();
    let [first, second] = [1, 2].map(|serial| objects.begin(manifest(1, serial, &[100])).unwrap());
    for begun in [&first, &second] {
        write_files(&objects, begun);
    }
    objects.commit(&first).unwrap();
    assert!(matches!(objects.commit(&second), Err(StoreError::Busy { .. })));
    objects.abandon(&second);
    assert_eq!(objects.list().unwrap(), std::slice::from_ref(&first));
    assert!(objects.holds(&first.manifest).unwrap());
}

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next() {
    let objects = Objects::default();
    let killed = objects.begin(manifest(7, 1, &[100, 200])).unwrap();
    write_files(&objects, &killed);
    bench(&[], None, Box::new(objects.clone())).keep(|checkpointer| checkpointer.save(at(1)));
    assert!(objects.names().iter().all(|name| name.starts_with("global_epoch1_step1/")), "{objects:?}");
}

#[test]
fn a_save_does_not_wait_until_older_checkpoints_are_removed() {
    let objects = Objects::default();
    let mut bench = bench(&["checkpoint.keep_last=1"], None, Box::new(objects.clone()));
    bench.plan.last.medium = Medium::Objects;
    let (_, saved) = bench.keep(|checkpointer| {
        checkpointer.save(at(1));
        objects.bucket().holds_removals = true;
        // It would never return.
        checkpointer.save(at(2));
        objects.bucket().holds_removals = false;
    });
    assert!(saved.iter().all(|save| save.is_complete() && save.troubles.is_empty()), "{saved:?}");
    let kept: Vec<Moment> = objects.list().unwrap().iter().map(|there| there.manifest.moment).collect();
    assert_eq!(kept, [at(2)]);
}

#[test]
fn a_drain_that_was_completed_without_an_answer_is_complete() {
    let (fast, last) = (Objects::default(), Objects::default());
    last.bucket().unanswered = 1;
    let bench = bench(&[], Some(Box::new(fast.clone())), Box::new(last.clone()));
    let (_, saved) = bench.keep(|checkpointer| checkpointer.save(at(1)));
    assert!(saved[0].is_complete(), "{saved:?}");
    assert!(saved[0].durable_ns >= saved[0].fast_ns, "{saved:?}");
    assert_eq!(fast.names(), Vec::<String>::new());
}

#[test]
fn a_place_that_another_run_has_locked_is_refused_as_that() {
    let objects = Objects::default();
    let bench = bench(&[], None, Box::new(objects.clone()));
    // The other run ends right after that.
    objects.bucket().refused_locks = 1;
    let error = bench.try_keep(|_| ()).unwrap_err();
    assert!(matches!(error, CheckpointError::Store(StoreError::Busy { .. })), "{error}");
    bench.stop.wish();
    assert_eq!(bench.try_keep(|_| ()).unwrap_err(), CheckpointError::Interrupted);
}

#[test]
fn an_upload_that_takes_long_to_finish_is_stuck_only_without_progress() {
    for shows_progress in [true, false] {
        let objects = Objects::default();
        (objects.bucket().finish_steps, objects.bucket().shows_progress) = (1500, shows_progress);
        let mut bench = bench(&[], None, Box::new(objects.clone()));
        bench.stop = Stop::default().with_patience(Some(Nanos(500_000_000)));
        let (_, saved) = bench.keep(|checkpointer| checkpointer.save(at(1)));
        assert_eq!(saved[0].is_complete(), shows_progress, "{saved:?}");
        let is_stuck = saved[0].troubles.iter().any(|text| text.contains("no progress for"));
        assert_eq!(is_stuck, !shows_progress, "{saved:?}");
    }
}

#[test]
fn one_member_of_a_run_that_restores_lists_the_checkpoints() {
    let objects = Objects::default();
    bench(&[], None, Box::new(objects.clone())).keep(|checkpointer| checkpointer.save(at(1)));
    let mut plan = tiny(&["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=1"]);
    plan.last.medium = Medium::Objects;
    let run = |of_last: &Objects| -> Vec<Option<CheckpointError>> {
        let one = |world: ThreadMember| {
            let last = if world.member() == 2 { of_last } else { &objects };
            let (clock, stop) = (Monotonic::new(), Stop::default());
            let setup = CheckpointSetup {
                plan: &plan,
                model: "test",
                seed: 7,
                world: &world,
                fast: None,
                last,
                clock: &clock,
                stop: &stop,
                events: &Events::default(),
            };
            let outcome = keep(setup, |_| ()).err();
            let _ = world.agree(Ok(()), &stop);
            outcome
        };
        std::thread::scope(|scope| {
            let one = &one;
            let all: Vec<_> = members_on(&["a", "b", "c"])
                .into_iter()
                .map(|world| scope.spawn(move || one(world)))
                .collect();
            all.into_iter().map(|member| member.join().unwrap()).collect()
        })
    };
    objects.bucket().lists = 0;
    assert_eq!((run(&objects), objects.bucket().lists), (vec![None; 3], 1));
    let elsewhere = run(&Objects::default());
    assert!(matches!(elsewhere[2], Some(CheckpointError::NotShared { .. })), "{elsewhere:?}");
    assert!(elsewhere[..2].iter().all(Option::is_some), "{elsewhere:?}");
}
