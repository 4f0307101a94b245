//! The lock of a place in an object store: an object that names the run that holds it. The run replaces it every few
//! seconds, so that others see that it is alive. No clocks of different hosts are compared: a lock counts as abandoned
//! when it has not changed while another run watched it, or at once if its process was on this host and does not exist.
//! A lock that was released stays as an object that says so: a removal could not be made conditional on its content.
//!
//! A lock keeps honest runs apart; it cannot stop a run that was cut off for longer than that. Such a run cannot
//! complete a checkpoint, because the manifest objects have changed meanwhile; and it stops saving as soon as it finds
//! out that another run has its lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::StoreError;
use crate::objects::contract::{Objects, PutCondition, PutOutcome, check_conditions};
use crate::objects::random::random;

/// How often a lock is replaced, and how long one must stay the same to be abandoned: several attempts to replace it
/// may fail.
const BEAT: Duration = Duration::from_secs(5);
const ABANDONED: Duration = Duration::from_secs(30);
/// How often a lock is looked at meanwhile, and how often it is checked whether this run stops.
const LOOK: Duration = Duration::from_secs(1);
const STOP_CHECK: Duration = Duration::from_millis(100);
/// The most bytes of a lock, which has a few lines.
const MOST: u64 = 4096;
/// How often a lock is tried again that another run took or released at the same moment.
const TRIES: usize = 10;
/// The owner of a lock that was released.
const RELEASED: &str = "released";

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub(crate) struct ObjectLock {
    state: Arc<LockState>,
    thread: Option<JoinHandle<()>>,
}

/// What the run shares with the thread that replaces the lock.
#[derive(Debug)]
struct LockState {
    objects: Arc<dyn Objects>,
    key: String,
    owner: String,
    ending: Mutex<bool>,
    ends: Condvar,
    is_lost: Arc<AtomicBool>,
}

/// The times of a lock; tests have shorter ones.
#[derive(Clone, Copy, Debug)]
struct LockTimes {
    beat: Duration,
    abandoned: Duration,
}

impl ObjectLock {
    /// Takes the lock, or says that another run has it. It may have to watch the lock of another host; `stops` ends
    /// that early.
    pub(super) fn take(
        objects: Arc<dyn Objects>,
        key: &str,
        stops: &dyn Fn() -> bool,
    ) -> Result<ObjectLock, StoreError> {
        ObjectLock::take_within(objects, key, LockTimes { beat: BEAT, abandoned: ABANDONED }, stops)
    }

    fn take_within(
        objects: Arc<dyn Objects>,
        key: &str,
        times: LockTimes,
        stops: &dyn Fn() -> bool,
    ) -> Result<ObjectLock, StoreError> {
        let owner = format!("{}{:016x}", process::id(), random());
        let busy = || StoreError::Busy { name: objects.shown(key) };
        for _ in 0..TRIES {
            let there = objects.get(key, MOST)?;
            let condition = match &there {
                None => PutCondition::Absent,
                Some((text, facts)) => {
                    let is_held = match process::lives(owner_of(text)) {
                        Some(lives) => lives,
                        None => changes(&*objects, key, &facts.tag, times.abandoned, stops)?,
                    };
                    if is_held {
                        return Err(busy());
                    }
                    PutCondition::Tagged(&facts.tag)
                }
            };
            if let PutOutcome::Done(facts) = objects.put(key, text(&owner, 0).as_bytes(), condition)? {
                check_conditions(&*objects, key, text(&owner, 1).as_bytes())?;
                return ObjectLock::keep(objects, key, owner, &facts.tag, times.beat);
            }
        }
        Err(busy())
    }

    /// Replaces the lock from time to time, in a thread.
    fn keep(
        objects: Arc<dyn Objects>,
        key: &str,
        owner: String,
        tag: &str,
        beat: Duration,
    ) -> Result<ObjectLock, StoreError> {
        let (key, is_lost) = (key.to_owned(), Arc::default());
        let (ending, ends) = (Mutex::new(false), Condvar::new());
        let state = Arc::new(LockState { objects, key, owner, ending, ends, is_lost });
        let (beating, first) = (Arc::clone(&state), tag.to_owned());
        let thread = std::thread::Builder::new().name("object-lock".to_owned());
        match thread.spawn(move || beating.beat(first, beat)) {
            Ok(thread) => Ok(ObjectLock { state, thread: Some(thread) }),
            Err(cause) => {
                state.release(tag, 0);
                Err(StoreError::Refused(format!("a thread that keeps the lock cannot be started: {cause}")))
            }
        }
    }

    /// Becomes true when another run has taken the lock.
    pub(super) fn is_lost(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.state.is_lost)
    }
}

/// What a lock says. It differs from beat to beat, because a tag is a function of the content.
fn text(owner: &str, beats: u64) -> String {
    format!(
        "{owner}\n{beats}\na run of feedline writes checkpoints here; this object is replaced every few seconds, and \
         can be removed if no such run exists\n"
    )
}

/// What a lock says that was released. The number makes it differ from that of another run.
fn released_text(beats: u64) -> String {
    let number = random();
    format!(
        "{RELEASED}\n{beats} {number:016x}\nno run of feedline writes checkpoints here; this object can be removed\n"
    )
}

fn owner_of(text: &[u8]) -> &str {
    std::str::from_utf8(text).ok().and_then(|text| text.lines().next()).unwrap_or_default()
}

/// Watches whether the run that holds a lock replaces it.
fn changes(
    objects: &dyn Objects,
    key: &str,
    tag: &str,
    abandoned: Duration,
    stops: &dyn Fn() -> bool,
) -> Result<bool, StoreError> {
    let mut watched = Duration::ZERO;
    while watched < abandoned {
        let mut pause = LOOK.min(abandoned - watched);
        watched += pause;
        while !pause.is_zero() {
            if stops() {
                return Err(StoreError::GivenUp);
            }
            let step = STOP_CHECK.min(pause);
            std::thread::sleep(step);
            pause -= step;
        }
        match objects.head(key)? {
            Some(facts) if facts.tag == tag => {}
            Some(_) => return Ok(true),
            // Removed meanwhile: the next try will find out.
            None => return Ok(false),
        }
    }
    Ok(false)
}

impl LockState {
    /// Replaces the lock until it is dropped or lost. An error may pass: the next beat tries again. The answer to an
    /// earlier beat may have been lost; then the lock is still ours and has another tag.
    fn beat(&self, mut tag: String, every: Duration) {
        let mut beats = 0;
        while !self.waits(every) {
            beats += 1;
            let next = text(&self.owner, beats);
            match self.objects.put_once(&self.key, next.as_bytes(), PutCondition::Tagged(&tag)) {
                Ok(PutOutcome::Done(facts)) => tag = facts.tag,
                Ok(PutOutcome::Refused) => match self.objects.get(&self.key, MOST) {
                    Ok(Some((there, facts))) if owner_of(&there) == self.owner => tag = facts.tag,
                    Ok(_) => {
                        // Relaxed: a flag that publishes no other data.
                        self.is_lost.store(true, Ordering::Relaxed);
                        return;
                    }
                    Err(_) => {}
                },
                Err(_) => {}
            }
        }
        self.release(&tag, beats);
    }

    /// Waits for some time, or until the lock is dropped; returns whether it is.
    fn waits(&self, time: Duration) -> bool {
        let ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ends.wait_timeout_while(ending, time, |ending| !*ending);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Says that the lock is free, if it is still ours. What fails here is found out by the next run.
    fn release(&self, tag: &str, beats: u64) {
        let last = released_text(beats);
        let _ = self.objects.put_once(&self.key, last.as_bytes(), PutCondition::Tagged(tag));
    }
}

impl Drop for ObjectLock {
    fn drop(&mut self) {
        *self.state.ending.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.state.ends.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
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
        if id == super::RELEASED {
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
    use crate::objects::memory::{IgnoredCondition, MemoryBucket};

    const TIMES: LockTimes =
        LockTimes { beat: Duration::from_millis(5), abandoned: Duration::from_millis(60) };
    const ELSEWHERE: &str = "0000-boot pid:[1] 17 4711 00";

    fn take(bucket: &Arc<MemoryBucket>) -> Result<ObjectLock, StoreError> {
        ObjectLock::take_within(Arc::clone(bucket) as _, "lock", TIMES, &|| false)
    }

    fn there(bucket: &MemoryBucket) -> String {
        String::from_utf8(bucket.get("lock", MOST).unwrap().unwrap().0).unwrap()
    }

    /// Waits for something that the thread of a lock does.
    fn soon(done: impl Fn() -> bool) {
        for _ in 0..1000 {
            if done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not happen");
    }

    #[test]
    fn one_run_holds_it_until_it_ends() {
        let bucket = Arc::new(MemoryBucket::default());
        for _ in 0..2 {
            let first = take(&bucket).unwrap();
            let error = take(&bucket).unwrap_err();
            assert!(matches!(error, StoreError::Busy { .. }), "{error}");
            drop(first);
            assert!(there(&bucket).starts_with("released\n"), "it is not removed: {}", there(&bucket));
        }
    }

    #[test]
    fn nothing_is_removed_that_another_run_may_own() {
        let bucket = Arc::new(MemoryBucket::default());
        drop(take(&bucket).unwrap());
        assert_eq!(bucket.deleted(), 0, "a late removal would hit the lock of the next run");
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
        let stops = || panic!("it is not watched");
        drop(ObjectLock::take(Arc::clone(&bucket) as _, "lock", &stops).unwrap());
    }

    #[test]
    fn that_of_another_host_is_taken_when_it_does_not_change() {
        let bucket = Arc::new(MemoryBucket::default());
        assert_eq!(process::lives(ELSEWHERE), None);
        bucket.put("lock", text(ELSEWHERE, 3).as_bytes(), PutCondition::Always).unwrap();
        drop(take(&bucket).unwrap());
        // One that changes is held.
        bucket.put("lock", text(ELSEWHERE, 3).as_bytes(), PutCondition::Always).unwrap();
        let alive = Arc::clone(&bucket);
        let beats = std::thread::spawn(move || {
            for beat in 4..200 {
                std::thread::sleep(Duration::from_millis(2));
                alive.put("lock", text(ELSEWHERE, beat).as_bytes(), PutCondition::Always).unwrap();
            }
        });
        take(&bucket).unwrap_err();
        beats.join().unwrap();
    }

    #[test]
    fn a_run_that_stops_does_not_watch_the_lock_of_another_host() {
        let bucket = Arc::new(MemoryBucket::default());
        bucket.put("lock", text(ELSEWHERE, 3).as_bytes(), PutCondition::Always).unwrap();
        // The real times: it would take 30 s.
        let begin = std::time::Instant::now();
        let error = ObjectLock::take(Arc::clone(&bucket) as _, "lock", &|| true).unwrap_err();
        assert_eq!(error, StoreError::GivenUp);
        assert!(begin.elapsed() < ABANDONED);
    }

    #[test]
    fn a_lock_that_was_taken_is_left_to_its_new_owner_and_reported() {
        let bucket = Arc::new(MemoryBucket::default());
        let first = take(&bucket).unwrap();
        let is_lost = first.is_lost();
        assert!(!is_lost.load(Ordering::Relaxed));
        bucket.put("lock", b"other\n", PutCondition::Always).unwrap();
        soon(|| is_lost.load(Ordering::Relaxed));
        drop(first);
        assert_eq!(there(&bucket), "other\n");
    }

    #[test]
    fn a_beat_whose_answer_was_lost_does_not_lose_the_lock() {
        let bucket = Arc::new(MemoryBucket::default());
        let lock = take(&bucket).unwrap();
        // What an own beat would have put, with a tag that this process does not know.
        bucket.put("lock", text(&lock.state.owner, 7).as_bytes(), PutCondition::Always).unwrap();
        soon(|| !there(&bucket).contains("\n7\n"));
        assert!(there(&bucket).starts_with(&lock.state.owner));
        assert!(!lock.is_lost().load(Ordering::Relaxed));
        drop(lock);
        assert!(there(&bucket).starts_with("released\n"));
    }

    #[test]
    fn a_server_that_ignores_conditions_is_refused() {
        for ignores in [IgnoredCondition::Absent, IgnoredCondition::Tagged] {
            let bucket = Arc::new(MemoryBucket::ignoring(ignores));
            let error = take(&bucket).unwrap_err().to_string();
            assert!(error.contains("does not support conditional writes"), "{error}");
        }
    }
}
