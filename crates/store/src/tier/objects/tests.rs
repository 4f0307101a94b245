//! Tests of checkpoints in an object store: every operation may be the last one of a run, or fail, and several runs may
//! use one place.

use std::sync::atomic::{AtomicUsize, Ordering};

use model::objects::Service;

use super::*;
use crate::conformance::tier::{manifest, tier as conforms, write_files};
use crate::objects::contract::{ObjectFacts, PendingUpload};
use crate::objects::memory::MemoryBucket;
use crate::{FixedClock, Mode, Selection};

/// Reads whole objects from a bucket.
#[derive(Debug)]
struct WholeReader(Arc<dyn Objects>);

struct WholeSource(Vec<u8>, usize);

impl RangeReader for WholeReader {
    fn open<'a>(
        &'a self,
        name: &Name,
        bytes: u64,
        _clock: &'a dyn Now,
    ) -> Result<Box<dyn TierSource + 'a>, StoreError> {
        let (content, facts) = self.0.get(&place().key(name.as_str()), MOST)?.unwrap();
        crate::size::compare(facts.bytes, bytes, || name.to_string())?;
        Ok(Box::new(WholeSource(content, 0)))
    }
}

impl TierSource for WholeSource {
    fn read(&mut self, chunk: &mut Buffer) -> Result<(), StoreError> {
        let bytes = chunk.capacity().min(self.0.len() - self.1);
        chunk.room()[..bytes].copy_from_slice(&self.0[self.1..][..bytes]);
        chunk.set_len(bytes);
        self.1 += bytes;
        Ok(())
    }

    fn ended(&self) -> Nanos {
        Nanos::ZERO
    }
}

fn place() -> ObjectPlace {
    ObjectPlace::parse(Service::S3, "bucket/some/prefix")
}

fn tier_on(objects: Arc<dyn Objects>) -> ObjectTier {
    let reader = Arc::new(WholeReader(Arc::clone(&objects)));
    ObjectTier::new(objects, place(), reader)
}

#[test]
fn it_passes_the_conformance_tests() {
    let bucket = Arc::new(MemoryBucket::default());
    conforms(&tier_on(Arc::clone(&bucket) as _));
    assert_eq!(bucket.keys(), [""; 0], "nothing is left behind");
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The process ends before it, or after it without its answer: nothing else happens.
    EndsBefore,
    EndsAfter,
    /// It is not carried out, or its answer is lost; the process continues.
    FailsBefore,
    FailsAfter,
}

/// A bucket in which one operation fails.
#[derive(Debug)]
struct FailingBucket {
    bucket: Arc<MemoryBucket>,
    /// Operations until then.
    left: AtomicUsize,
    failure: Failure,
}

fn broken() -> StoreError {
    StoreError::Refused("broken".to_owned())
}

impl FailingBucket {
    fn new(bucket: &Arc<MemoryBucket>, at: usize, failure: Failure) -> Arc<FailingBucket> {
        Arc::new(FailingBucket { bucket: Arc::clone(bucket), left: AtomicUsize::new(at), failure })
    }

    /// Whether the process has ended.
    fn has_ended(&self) -> bool {
        let ends = matches!(self.failure, Failure::EndsBefore | Failure::EndsAfter);
        ends && self.left.load(Ordering::Relaxed) == usize::MAX
    }

    fn step<T>(&self, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.has_ended() {
            return Err(broken());
        }
        let count = |left: usize| Some(if left == usize::MAX { left } else { left.wrapping_sub(1) });
        // Several threads may remove objects; one of them gets the last number.
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        if left == Ok(0) {
            if matches!(self.failure, Failure::EndsAfter | Failure::FailsAfter) {
                work()?;
            }
            return Err(broken());
        }
        work()
    }
}

impl Objects for FailingBucket {
    fn shown(&self, key: &str) -> String {
        self.bucket.shown(key)
    }

    fn head(&self, key: &str) -> Result<Option<ObjectFacts>, StoreError> {
        self.step(|| self.bucket.head(key))
    }

    fn get(&self, key: &str, most: u64) -> Result<Option<(Vec<u8>, ObjectFacts)>, StoreError> {
        self.step(|| self.bucket.get(key, most))
    }

    fn put(&self, key: &str, bytes: &[u8], condition: PutCondition<'_>) -> Result<PutOutcome, StoreError> {
        self.step(|| self.bucket.put(key, bytes, condition))
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload + '_>, StoreError> {
        let begun = self.step(|| {
            // An upload whose answer is lost remains.
            if self.left.load(Ordering::Relaxed) == usize::MAX {
                self.bucket.leave_upload(key);
                return Err(broken());
            }
            self.bucket.upload(key)
        })?;
        Ok(Box::new(FailingUpload { bucket: self, upload: Some(begun) }))
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.step(|| self.bucket.delete(key))
    }

    fn list(
        &self,
        request: &ListRequest<'_>,
        each: &mut dyn FnMut(ListedKey<'_>),
    ) -> Result<Option<String>, StoreError> {
        self.step(|| self.bucket.list(request, each))
    }

    fn lists_after(&self) -> bool {
        true
    }

    fn uploads(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        self.step(|| self.bucket.uploads(prefix))
    }

    fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        self.step(|| self.bucket.abort(upload))
    }
}

struct FailingUpload<'a> {
    bucket: &'a FailingBucket,
    upload: Option<Box<dyn Upload + 'a>>,
}

impl Upload for FailingUpload<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let upload = self.upload.as_mut().unwrap();
        self.bucket.step(|| upload.write(bytes))
    }

    fn finish(mut self: Box<Self>) -> Result<ObjectFacts, StoreError> {
        let mut upload = self.upload.take();
        let finished = self.bucket.step(|| upload.take().unwrap().finish());
        self.upload = upload;
        finished
    }
}

impl Drop for FailingUpload<'_> {
    fn drop(&mut self) {
        // A process that was killed aborts nothing.
        if self.bucket.has_ended() {
            std::mem::forget(self.upload.take());
        }
    }
}

/// Writes the files of a checkpoint, of which each byte is its serial number.
fn write(tier: &ObjectTier, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
    for file in &checkpoint.manifest.files {
        let mut sink = tier.create(&checkpoint.path(&file.name), file.bytes, &FixedClock)?;
        for _ in 0..2 {
            let mut chunk = Buffer::with_capacity(1 << 12);
            chunk.set_len(file.bytes as usize / 2);
            chunk.room().fill(checkpoint.manifest.serial as u8);
            sink.write(chunk)?;
        }
        sink.finish(true, &mut Vec::new())?;
    }
    Ok(())
}

fn save(tier: &ObjectTier, manifest: CheckpointManifest) -> Result<(), StoreError> {
    let begun = tier.begin(manifest)?;
    let saved = write(tier, &begun).and_then(|()| tier.commit(&begun));
    match saved {
        Ok(()) => tier.clean_up(begun.manifest.moment),
        Err(_) => tier.abandon(&begun),
    }
    saved
}

/// A run that saves, replaces and removes checkpoints. It continues after an error, as the engine does.
fn run(tier: &ObjectTier) -> usize {
    let mut errors = 0;
    let mut count = |outcome: Result<(), StoreError>| errors += usize::from(outcome.is_err());
    count(tier.recover());
    count(save(tier, manifest(1, 11, &[10, 20])));
    count(save(tier, manifest(2, 12, &[30])));
    count(save(tier, manifest(1, 13, &[10, 40])));
    let oldest = tier.find(Moment { epoch: 1, step: 2 });
    count(oldest.and_then(|oldest| oldest.map_or(Ok(()), |oldest| tier.remove(&oldest))));
    errors
}

/// Objects of other programs around ours, one of them with the name of a file of ours.
const FOREIGN: [&str; 6] = [
    "some/prefix.txt",
    "some/prefix/global_epoch1_step1/other",
    "some/prefix/global_epoch1_step2.old/file0",
    "some/prefix/global_epoch9_step9/checkpoint.json",
    "some/prefix/notes",
    "some/prefixes/x",
];

fn bucket() -> Arc<MemoryBucket> {
    let bucket = Arc::new(MemoryBucket::default());
    save(&tier_on(Arc::clone(&bucket) as _), manifest(1, 7, &[10, 20])).unwrap();
    for key in FOREIGN {
        bucket.put(key, b"foreign", PutCondition::Always).unwrap();
    }
    bucket.leave_upload("some/prefix/global_epoch1_step1/of-another-program");
    bucket
}

/// Checks that every checkpoint that is offered has all its bytes, and returns their serial numbers.
fn offered(bucket: &Arc<MemoryBucket>) -> Vec<u64> {
    let tier = tier_on(Arc::clone(bucket) as _);
    let complete = tier.list().unwrap();
    for stored in &complete {
        assert!(!tier.present(stored).unwrap().contains(&false), "{stored:?}");
        for file in &stored.manifest.files {
            let key = place().key(stored.path(&file.name).as_str());
            let content = bucket.get(&key, MOST).unwrap().unwrap().0;
            assert_eq!(content, vec![stored.manifest.serial as u8; file.bytes as usize]);
        }
    }
    let mut serials: Vec<u64> = complete.iter().map(|stored| stored.manifest.serial).collect();
    serials.sort_unstable();
    serials
}

/// What is in the bucket, except for foreign objects and the files of complete checkpoints.
fn unlisted(bucket: &Arc<MemoryBucket>) -> Vec<String> {
    let tier = tier_on(Arc::clone(bucket) as _);
    let mut listed: Vec<String> = FOREIGN.iter().map(|key| (*key).to_owned()).collect();
    for stored in tier.list().unwrap() {
        listed.push(tier.manifest_key(stored.manifest.moment));
        listed.extend(stored.manifest.files.iter().map(|file| place().key(stored.path(&file.name).as_str())));
    }
    let uploads = bucket.uploads("").unwrap().into_iter().map(|upload| upload.key);
    let uploads = uploads.filter(|key| !key.ends_with("of-another-program"));
    bucket.keys().into_iter().filter(|key| !listed.contains(key)).chain(uploads).collect()
}

/// What a run that works offers afterwards.
const AFTER: [u64; 1] = [13];

#[test]
fn every_operation_may_be_the_last_one_or_fail() {
    let mut reached = 0;
    for failure in [Failure::EndsBefore, Failure::EndsAfter, Failure::FailsBefore, Failure::FailsAfter] {
        for at in 0.. {
            let bucket = bucket();
            let failing = FailingBucket::new(&bucket, at, failure);
            let errors = run(&tier_on(Arc::clone(&failing) as _));
            if failing.left.load(Ordering::Relaxed) != usize::MAX {
                assert_eq!((errors, offered(&bucket)), (0, AFTER.to_vec()));
                assert_eq!(unlisted(&bucket), [""; 0]);
                reached = reached.max(at);
                break;
            }
            let context = format!("{failure:?} at {at}");
            let before = offered(&bucket);
            assert!(before.iter().any(|serial| [7, 11, 13].contains(serial)), "{context}: {before:?}");
            let next = tier_on(Arc::clone(&bucket) as _);
            next.recover().unwrap();
            assert_eq!(offered(&bucket), before, "{context}: recovery keeps what is complete");
            assert_eq!(unlisted(&bucket), [""; 0], "{context}");
            assert!(FOREIGN.iter().all(|key| bucket.head(key).unwrap().is_some()), "{context}");
            assert_eq!(bucket.uploads("").unwrap().len(), 1, "{context}: foreign uploads stay");
            assert_eq!((run(&next), offered(&bucket)), (0, AFTER.to_vec()), "{context}");
        }
    }
    assert!(reached > 50, "{reached} operations");
}

#[test]
fn recovery_can_be_interrupted_everywhere() {
    for at in 0.. {
        let bucket = bucket();
        // Left in the middle of the second file of a replacement.
        let ended = FailingBucket::new(&bucket, 12, Failure::EndsBefore);
        run(&tier_on(ended));
        let failing = FailingBucket::new(&bucket, at, Failure::EndsBefore);
        let outcome = tier_on(Arc::clone(&failing) as _).recover();
        assert_eq!(offered(&bucket), [7]);
        if outcome.is_ok() {
            assert!(at > 5);
            break;
        }
        tier_on(Arc::clone(&bucket) as _).recover().unwrap();
        assert_eq!((offered(&bucket), unlisted(&bucket)), (vec![7], vec![]));
    }
}

#[test]
fn of_two_runs_that_save_the_same_moment_one_is_refused() {
    let bucket = Arc::new(MemoryBucket::default());
    let (one, two) = (tier_on(Arc::clone(&bucket) as _), tier_on(Arc::clone(&bucket) as _));
    let begun = one.begin(manifest(1, 1, &[10])).unwrap();
    let error = two.begin(manifest(1, 2, &[10])).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    // The second has taken the lock of the first, of which some processes still upload files.
    two.recover().unwrap();
    write(&one, &begun).unwrap();
    save(&two, manifest(1, 2, &[10])).unwrap();
    write(&one, &begun).unwrap();
    assert_eq!(offered(&bucket), [2], "files of the first do not replace those of the second");
    let error = one.commit(&begun).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    one.abandon(&begun);
    assert_eq!(offered(&bucket), [2], "the files of the second are not touched by the first");
    // Without a second one in between, what was removed cannot be completed.
    let begun = one.begin(manifest(2, 3, &[10])).unwrap();
    two.recover().unwrap();
    assert!(matches!(one.commit(&begun), Err(StoreError::Busy { .. })));
    assert_eq!(offered(&bucket), [2]);
}

#[test]
fn a_complete_checkpoint_of_another_run_is_not_replaced_unseen() {
    let bucket = Arc::new(MemoryBucket::default());
    let (one, two) = (tier_on(Arc::clone(&bucket) as _), tier_on(Arc::clone(&bucket) as _));
    save(&one, manifest(1, 1, &[10])).unwrap();
    let there = two.find(Moment { epoch: 1, step: 1 }).unwrap().unwrap();
    save(&one, manifest(1, 2, &[10])).unwrap();
    // What was found is not what is there.
    two.remove(&there).unwrap();
    assert_eq!(offered(&bucket), [2]);
}

#[test]
fn objects_of_others_are_refused_and_stay() {
    let bucket = Arc::new(MemoryBucket::default());
    let tier = tier_on(Arc::clone(&bucket) as _);
    bucket.put("some/prefix/global_epoch1_step1/mine", b"mine", PutCondition::Always).unwrap();
    let error = tier.begin(manifest(1, 1, &[10])).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    bucket.put("some/prefix/global_epoch1_step2/checkpoint.json", b"{}", PutCondition::Always).unwrap();
    let error = tier.begin(manifest(2, 1, &[10])).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    tier.recover().unwrap();
    assert_eq!((bucket.keys().len(), tier.list().unwrap().len()), (2, 0));
    // A file of ours that was replaced by something of another size stays.
    save(&tier, manifest(3, 1, &[10, 20])).unwrap();
    let stored = tier.find(Moment { epoch: 1, step: 3 }).unwrap().unwrap();
    bucket.put("some/prefix/global_epoch1_step3/file0", b"longer than ours", PutCondition::Always).unwrap();
    assert_eq!(tier.present(&stored).unwrap(), [false, true]);
    assert!(!tier.holds(&stored.manifest).unwrap());
    tier.remove(&stored).unwrap();
    assert_eq!(bucket.keys().len(), 3);
}

#[test]
fn files_that_a_run_uploaded_too_late_do_not_block_a_moment() {
    let bucket = Arc::new(MemoryBucket::default());
    let late = "some/prefix/global_epoch1_step1/file1";
    bucket.put(late, b"late", PutCondition::Always).unwrap();
    let tier = tier_on(Arc::clone(&bucket) as _);
    save(&tier, manifest(1, 1, &[10, 20])).unwrap();
    assert_eq!(offered(&bucket), [1]);
    assert!(bucket.head(late).unwrap().is_some(), "it is listed nowhere and stays");
}

#[test]
fn a_checkpoint_is_reported_complete_whenever_it_is() {
    for failure in [Failure::FailsBefore, Failure::FailsAfter] {
        for at in 0.. {
            let bucket = bucket();
            let failing = FailingBucket::new(&bucket, at, failure);
            let saved = save(&tier_on(Arc::clone(&failing) as _), manifest(1, 13, &[10, 40]));
            assert_eq!(saved.is_ok(), offered(&bucket) == [13], "{failure:?} at {at}: {saved:?}");
            if failing.left.load(Ordering::Relaxed) != usize::MAX {
                break;
            }
        }
    }
}

#[test]
fn no_two_checkpoints_are_begun_with_the_same_text() {
    let bucket = Arc::new(MemoryBucket::default());
    let tier = tier_on(Arc::clone(&bucket) as _);
    let text = || {
        let begun = tier.begin(manifest(1, 1, &[10])).unwrap();
        let text = bucket.get(&tier.manifest_key(begun.manifest.moment), MOST).unwrap().unwrap().0;
        tier.abandon(&begun);
        text
    };
    assert_ne!(text(), text(), "a late request to complete the first would complete the second");
}

#[test]
fn a_run_without_its_lock_saves_and_removes_nothing() {
    let bucket = Arc::new(MemoryBucket::default());
    let tier = tier_on(Arc::clone(&bucket) as _);
    save(&tier, manifest(1, 1, &[10])).unwrap();
    let stored = tier.list().unwrap().remove(0);
    let begun = tier.begin(manifest(2, 2, &[10])).unwrap();
    write(&tier, &begun).unwrap();
    let keys = bucket.keys();
    tier.known().is_lost = Some(Arc::new(AtomicBool::new(true)));
    let begin = tier.begin(manifest(3, 3, &[10])).map(drop);
    for outcome in [begin, tier.commit(&begun), tier.remove(&stored), tier.recover()] {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("has taken the lock of s3://bucket/some/prefix"), "{error}");
    }
    tier.abandon(&begun);
    assert_eq!((bucket.keys(), offered(&bucket)), (keys, vec![1]));
}

/// A bucket whose removals wait until they may continue.
#[derive(Debug)]
struct PausedBucket {
    bucket: Arc<MemoryBucket>,
    /// Removals that have begun and wait.
    waiting: AtomicUsize,
    may_continue: AtomicBool,
}

impl PausedBucket {
    fn new(bucket: &Arc<MemoryBucket>) -> Arc<PausedBucket> {
        let (waiting, may_continue) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(PausedBucket { bucket: Arc::clone(bucket), waiting, may_continue })
    }

    /// Waits until this many removals wait.
    fn await_removals(&self, count: usize) {
        while self.waiting.load(Ordering::Relaxed) < count {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn resume(&self) {
        self.may_continue.store(true, Ordering::Relaxed);
    }
}

impl Objects for PausedBucket {
    fn shown(&self, key: &str) -> String {
        self.bucket.shown(key)
    }

    fn head(&self, key: &str) -> Result<Option<ObjectFacts>, StoreError> {
        self.bucket.head(key)
    }

    fn get(&self, key: &str, most: u64) -> Result<Option<(Vec<u8>, ObjectFacts)>, StoreError> {
        self.bucket.get(key, most)
    }

    fn put(&self, key: &str, bytes: &[u8], condition: PutCondition<'_>) -> Result<PutOutcome, StoreError> {
        self.bucket.put(key, bytes, condition)
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload + '_>, StoreError> {
        self.bucket.upload(key)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while !self.may_continue.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.bucket.delete(key)
    }

    fn list(
        &self,
        request: &ListRequest<'_>,
        each: &mut dyn FnMut(ListedKey<'_>),
    ) -> Result<Option<String>, StoreError> {
        self.bucket.list(request, each)
    }

    fn lists_after(&self) -> bool {
        true
    }

    fn uploads(&self, prefix: &str) -> Result<Vec<PendingUpload>, StoreError> {
        self.bucket.uploads(prefix)
    }

    fn abort(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        self.bucket.abort(upload)
    }
}

#[test]
fn a_run_that_was_held_up_while_it_removed_files_does_not_remove_those_of_the_next() {
    let bucket = Arc::new(MemoryBucket::default());
    let paused = PausedBucket::new(&bucket);
    let one = tier_on(Arc::clone(&paused) as _);
    let begun = one.begin(manifest(1, 1, &[10])).unwrap();
    write(&one, &begun).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| one.abandon(&begun));
        paused.await_removals(1);
        let two = tier_on(Arc::clone(&bucket) as _);
        two.recover().unwrap();
        save(&two, manifest(1, 2, &[10])).unwrap();
        paused.resume();
    });
    assert_eq!(offered(&bucket), [2]);
}

#[test]
fn two_threads_do_not_change_a_moment_at_once() {
    let bucket = Arc::new(MemoryBucket::default());
    save(&tier_on(Arc::clone(&bucket) as _), manifest(1, 7, &[10, 20])).unwrap();
    let paused = PausedBucket::new(&bucket);
    let tier = tier_on(Arc::clone(&paused) as _);
    let stored = tier.find(Moment { epoch: 1, step: 1 }).unwrap().unwrap();
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| tier.remove(&stored));
        paused.await_removals(2);
        let same = scope.spawn(|| save(&tier, manifest(1, 8, &[10])));
        tier.begin(manifest(5, 9, &[10])).expect("another moment need not wait");
        paused.resume();
        removal.join().unwrap().unwrap();
        same.join().unwrap().unwrap();
    });
    assert_eq!(offered(&bucket), [8]);
}

#[test]
fn a_checkpoint_can_be_removed_while_its_successor_is_written() {
    let bucket = Arc::new(MemoryBucket::default());
    let tier = tier_on(Arc::clone(&bucket) as _);
    save(&tier, manifest(1, 1, &[10])).unwrap();
    let old = tier.find(Moment { epoch: 1, step: 1 }).unwrap().unwrap();
    let begun = tier.begin(manifest(1, 2, &[10])).unwrap();
    tier.remove(&old).unwrap();
    assert_eq!(offered(&bucket), [0; 0]);
    write(&tier, &begun).unwrap();
    tier.commit(&begun).unwrap();
    assert_eq!(offered(&bucket), [2]);
    // It does not excuse a change of another run.
    let begun = tier.begin(manifest(1, 3, &[10])).unwrap();
    let other = tier_on(Arc::clone(&bucket) as _);
    other.recover().unwrap();
    tier.remove(&tier.find(begun.manifest.moment).unwrap().unwrap()).unwrap();
    assert!(matches!(tier.commit(&begun), Err(StoreError::Busy { .. })));
}

#[test]
fn a_checkpoint_is_complete_before_what_it_replaces_is_removed() {
    let bucket = Arc::new(MemoryBucket::default());
    save(&tier_on(Arc::clone(&bucket) as _), manifest(1, 1, &[10; 20])).unwrap();
    let paused = PausedBucket::new(&bucket);
    let tier = tier_on(Arc::clone(&paused) as _);
    let begun = tier.begin(manifest(1, 2, &[10])).unwrap();
    write(&tier, &begun).unwrap();
    tier.commit(&begun).unwrap();
    assert_eq!(offered(&bucket), [2], "nothing had to be removed first");
    std::thread::scope(|scope| {
        scope.spawn(|| tier.clean_up(begun.manifest.moment));
        paused.await_removals(8);
        paused.resume();
    });
    assert_eq!(bucket.keys().len(), 2, "{:?}", bucket.keys());
}

#[test]
fn names_are_those_of_dlio() {
    let bucket = Arc::new(MemoryBucket::default());
    let tier = tier_on(Arc::clone(&bucket) as _);
    save(&tier, manifest(1, 1, &[10])).unwrap();
    let keys = ["some/prefix/global_epoch1_step1/checkpoint.json", "some/prefix/global_epoch1_step1/file0"];
    assert_eq!(bucket.keys(), keys);
    save(&tier, manifest(1, 2, &[10])).unwrap();
    assert!(bucket.keys()[0].starts_with("some/prefix/global_epoch1_step1.2-"), "{:?}", bucket.keys());
    save(&tier, manifest(1, 3, &[10])).unwrap();
    assert_eq!(bucket.keys(), keys, "the plain name is used again when it is free");
}

#[test]
fn files_are_read_ahead_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in [0usize, 1, 4096, 10_000, 100_000] {
        let content: Vec<u8> = (0..bytes).map(|at| ((at * at) >> 7) as u8).collect();
        std::fs::write(folder.path().join("file"), &content).unwrap();
        for (store, ahead) in [("posix", 1), ("posix", 3), ("uring", 4)] {
            let Ok(opened) = Selection::named(store, Mode::default()).unwrap().open(folder.path()) else {
                continue;
            };
            let keeps = opened.capabilities().brings_bytes;
            let reader = LaneReader::new(opened, ahead);
            let name = Name::new("file").unwrap();
            let mut source = reader.open(&name, bytes as u64, &FixedClock).unwrap();
            let (mut read, mut chunk) = (Vec::new(), Buffer::with_capacity(4096));
            loop {
                source.read(&mut chunk).unwrap();
                if chunk.bytes().is_empty() {
                    break;
                }
                read.extend_from_slice(chunk.bytes());
            }
            assert!(read.len() == bytes && (!keeps || read == content), "{store} {bytes}");
            let mut longer = reader.open(&name, bytes as u64 + 1, &FixedClock).unwrap();
            let outcome = (0..=bytes / 4096 + 1).try_for_each(|_| longer.read(&mut chunk));
            assert_eq!(outcome.is_err(), keeps, "a file of another size is an error");
            assert!(
                reader.open(&Name::new("gone").unwrap(), 5, &FixedClock).unwrap().read(&mut chunk).is_err()
                    || !keeps
            );
        }
    }
}

#[test]
fn a_checkpoint_of_a_file_system_is_one_here_and_the_other_way_round() {
    let folder = tempfile::tempdir().unwrap();
    let files = Selection::named("posix", Mode::default()).unwrap().tier(folder.path()).unwrap();
    let begun = files.begin(manifest(1, 1, &[100, 200])).unwrap();
    write_files(&*files, &begun);
    files.commit(&begun).unwrap();
    let bucket = Arc::new(MemoryBucket::default());
    for name in ["checkpoint.json", "file0", "file1"] {
        let name = format!("global_epoch1_step1/{name}");
        let content = std::fs::read(folder.path().join(&name)).unwrap();
        bucket.put(&place().key(&name), &content, PutCondition::Always).unwrap();
    }
    let tier = tier_on(Arc::clone(&bucket) as _);
    assert_eq!(tier.list().unwrap(), files.list().unwrap());
    assert!(tier.holds(&begun.manifest).unwrap());
}
