//! The lock of a place in an object store: an object that names the run that holds it. The run replaces it every few
//! seconds, so that others see that it is alive. No clocks of different hosts are compared: a lock counts as abandoned
//! when it has not changed while another run watched it, or at once if its process was on this host and does not exist.
//!
//! A lock keeps honest runs apart; it cannot stop a run that was cut off for longer than that. Such a run cannot
//! complete a checkpoint, because the manifest objects have changed meanwhile.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::StoreError;
use crate::objects::contract::{Objects, PutCondition, PutOutcome};
use crate::objects::random::random;

/// How often a lock is replaced, and how long one must stay the same to be abandoned.
const BEAT: Duration = Duration::from_secs(5);
const ABANDONED: Duration = Duration::from_secs(30);
/// How often a lock is looked at meanwhile.
const LOOK: Duration = Duration::from_secs(1);
/// The most bytes of a lock.
const MOST: u64 = 4096;
/// How often a lock is tried again that another run took or released at the same moment.
const TRIES: usize = 10;

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub(crate) struct ObjectLock {
    shared: Arc<LockState>,
    beats: Option<JoinHandle<()>>,
    /// Whether the run that had it before may exist yet, cut off from the store.
    pub(super) is_doubtful: bool,
}

#[derive(Debug)]
struct LockState {
    objects: Arc<dyn Objects>,
    key: String,
    owner: String,
    held: Mutex<HeldLock>,
    ends: Condvar,
}

#[derive(Debug)]
struct HeldLock {
    /// The tag of the lock as this run put it last.
    tag: String,
    beats: u64,
    over: bool,
}

impl ObjectLock {
    /// Takes the lock, or says that another run has it.
    pub(super) fn take(objects: Arc<dyn Objects>, key: &str) -> Result<ObjectLock, StoreError> {
        ObjectLock::take_within(objects, key, ABANDONED, BEAT)
    }

    fn take_within(
        objects: Arc<dyn Objects>,
        key: &str,
        abandoned: Duration,
        beat: Duration,
    ) -> Result<ObjectLock, StoreError> {
        let owner = format!("{}{:016x}", process::id(), random());
        let busy = || StoreError::Busy { name: objects.shown(key) };
        for _ in 0..TRIES {
            let there = objects.get(key, MOST)?;
            let mut is_doubtful = false;
            let condition = match &there {
                None => PutCondition::Absent,
                Some((text, facts)) => {
                    let text = String::from_utf8_lossy(text);
                    let lives = process::lives(text.lines().next().unwrap_or_default());
                    is_doubtful = lives.is_none();
                    let is_held = lives.map_or_else(|| changes(&*objects, key, &facts.tag, abandoned), Ok)?;
                    if is_held {
                        return Err(busy());
                    }
                    PutCondition::Tagged(&facts.tag)
                }
            };
            if let PutOutcome::Done(facts) = objects.put(key, text(&owner, 0).as_bytes(), condition)? {
                let held = Mutex::new(HeldLock { tag: facts.tag, beats: 0, over: false });
                let shared = LockState { objects, key: key.to_owned(), owner, held, ends: Condvar::new() };
                return ObjectLock::keep(Arc::new(shared), beat, is_doubtful);
            }
        }
        Err(busy())
    }

    /// Replaces the lock from time to time, in a thread.
    fn keep(shared: Arc<LockState>, beat: Duration, is_doubtful: bool) -> Result<ObjectLock, StoreError> {
        let beating = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("object-lock".to_owned());
        match thread.spawn(move || beating.beat(beat)) {
            Ok(beats) => Ok(ObjectLock { shared, beats: Some(beats), is_doubtful }),
            Err(cause) => {
                drop(ObjectLock { beats: None, shared, is_doubtful });
                Err(StoreError::Refused(format!("a thread that keeps the lock cannot be started: {cause}")))
            }
        }
    }
}

/// What a lock says. It differs from beat to beat, because a tag is a function of the content.
fn text(owner: &str, beats: u64) -> String {
    format!(
        "{owner}\n{beats}\na run of feedline writes checkpoints here; this object is replaced every few seconds, and \
         can be removed if no such run exists\n"
    )
}

/// Watches whether the run that holds a lock replaces it.
fn changes(objects: &dyn Objects, key: &str, tag: &str, patience: Duration) -> Result<bool, StoreError> {
    let mut watched = Duration::ZERO;
    while watched < patience {
        let pause = LOOK.min(patience - watched);
        std::thread::sleep(pause);
        watched += pause;
        match objects.head(key)? {
            Some(facts) if facts.tag == tag => {}
            Some(_) => return Ok(true),
            // Released meanwhile: the next try will find out.
            None => return Ok(false),
        }
    }
    Ok(false)
}

impl LockState {
    fn held(&self) -> std::sync::MutexGuard<'_, HeldLock> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self, every: Duration) {
        let mut held = self.held();
        while !held.over {
            held = self.ends.wait_timeout(held, every).unwrap_or_else(PoisonError::into_inner).0;
            if held.over {
                return;
            }
            held.beats += 1;
            let next = text(&self.owner, held.beats);
            // An error may pass: the next beat tries again. A lock that another run has taken is not taken back.
            match self.objects.put(&self.key, next.as_bytes(), PutCondition::Tagged(&held.tag)) {
                Ok(PutOutcome::Done(facts)) => held.tag = facts.tag,
                Ok(PutOutcome::Refused) => held.over = true,
                Err(_) => {}
            }
        }
    }

    /// Removes the lock, if it is still ours. What fails here is found out by the next run.
    fn release(&self, held: &HeldLock) {
        let last = text("released", held.beats);
        let put = self.objects.put(&self.key, last.as_bytes(), PutCondition::Tagged(&held.tag));
        if matches!(put, Ok(PutOutcome::Done(_))) {
            let _ = self.objects.delete(&self.key);
        }
    }
}

impl Drop for ObjectLock {
    fn drop(&mut self) {
        let mut held = self.shared.held();
        let lost = std::mem::replace(&mut held.over, true);
        self.shared.ends.notify_all();
        if !lost {
            self.shared.release(&held);
        }
        drop(held);
        if let Some(beats) = self.beats.take() {
            let _ = beats.join();
        }
    }
}

/// This process among those of all hosts.
mod process {
    /// Words that identify this boot, this namespace of processes, this process and when it started; each followed by a
    /// space. Empty where the system does not tell.
    pub(super) fn id() -> String {
        let pid = std::process::id();
        host().zip(start(pid)).map(|(host, start)| format!("{host} {pid} {start} ")).unwrap_or_default()
    }

    /// Whether the process with this identifier still exists; `None` if that cannot be known here.
    pub(super) fn lives(id: &str) -> Option<bool> {
        if id == "released" {
            return Some(false);
        }
        let mut words = id.split(' ');
        let there = format!("{} {}", words.next()?, words.next()?);
        let (pid, started) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (host()? == there).then(|| start(pid) == Some(started))
    }

    fn host() -> Option<String> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
        Some(format!("{} {}", boot.trim(), namespace.to_str()?))
    }

    /// When a process started, in ticks since the boot; `None` if it does not exist.
    fn start(pid: u32) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program is in parentheses and may contain anything.
        let facts = stat.rsplit_once(") ")?.1;
        // A process that was killed exists until its parent asks for its exit code.
        if facts.starts_with(['Z', 'X']) {
            return None;
        }
        facts.split(' ').nth(19)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::memory::MemoryBucket;

    const SOON: Duration = Duration::from_millis(60);

    fn take(bucket: &Arc<MemoryBucket>) -> Result<ObjectLock, StoreError> {
        let objects: Arc<dyn Objects> = Arc::clone(bucket) as _;
        ObjectLock::take_within(objects, "lock", SOON, Duration::from_millis(5))
    }

    #[test]
    fn one_run_holds_it_until_it_ends() {
        let bucket = Arc::new(MemoryBucket::default());
        let first = take(&bucket).unwrap();
        let error = take(&bucket).unwrap_err();
        assert!(matches!(error, StoreError::Busy { .. }), "{error}");
        drop(first);
        assert_eq!(bucket.keys(), [""; 0]);
        drop(take(&bucket).unwrap());
    }

    #[test]
    fn that_of_a_process_that_has_ended_is_taken_at_once() {
        let bucket = Arc::new(MemoryBucket::default());
        let own = process::id();
        let mut words: Vec<&str> = own.trim().split(' ').collect();
        assert_eq!(process::lives(&own), Some(true));
        // The same number, but another start: the number was used again.
        let start = (words[3].parse::<u64>().unwrap() + 1).to_string();
        words[3] = &start;
        let ended = format!("{} 00", words.join(" "));
        assert_eq!(process::lives(&ended), Some(false));
        bucket.put("lock", text(&ended, 3).as_bytes(), PutCondition::Always).unwrap();
        let lock = ObjectLock::take(Arc::clone(&bucket) as _, "lock").unwrap();
        assert!(!lock.is_doubtful);
        drop(lock);
        assert_eq!(bucket.keys(), [""; 0]);
    }

    #[test]
    fn that_of_another_host_is_taken_when_it_does_not_change() {
        let bucket = Arc::new(MemoryBucket::default());
        let elsewhere = "0000-boot pid:[1] 17 4711 00";
        assert_eq!(process::lives(elsewhere), None);
        bucket.put("lock", text(elsewhere, 3).as_bytes(), PutCondition::Always).unwrap();
        let lock = take(&bucket).unwrap();
        assert!(lock.is_doubtful);
        drop(lock);
        // One that changes is held.
        bucket.put("lock", text(elsewhere, 3).as_bytes(), PutCondition::Always).unwrap();
        let alive = Arc::clone(&bucket);
        let beats = std::thread::spawn(move || {
            for beat in 4..200 {
                std::thread::sleep(Duration::from_millis(2));
                alive.put("lock", text(elsewhere, beat).as_bytes(), PutCondition::Always).unwrap();
            }
        });
        take(&bucket).unwrap_err();
        beats.join().unwrap();
    }

    #[test]
    fn a_lock_that_was_taken_is_left_to_its_new_owner() {
        let bucket = Arc::new(MemoryBucket::default());
        let first = take(&bucket).unwrap();
        bucket.put("lock", b"other\n", PutCondition::Always).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        drop(first);
        assert_eq!(bucket.get("lock", MOST).unwrap().unwrap().0, b"other\n");
    }
}
