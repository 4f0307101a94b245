//! The current work of every reader of a phase, for the watchdog: which file, for which step, since when. Each reader
//! writes to its own entry. The store's operations are recorded in the readers' tracks.

use std::sync::atomic::{AtomicU64, Ordering};

use model::extent::Extent;
use model::units::Nanos;
use store::Track;

use super::assignment::ReaderAssignment;

/// What a reader does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderActivity {
    Nothing,
    /// Fetching samples.
    Fetching,
    /// Waiting for the preprocessing of its samples.
    Preparing,
    /// Fetching metadata that locates its samples.
    Metadata,
}

/// The state of one reader. Relaxed ordering suffices: one thread writes it, and the watchdog only looks for values
/// that have not changed for seconds.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct ReaderStatus {
    doing: AtomicU64,
    file: AtomicU64,
    step: AtomicU64,
    since: AtomicU64,
}

impl ReaderStatus {
    /// Records the file that the reader turns to, and when.
    pub(crate) fn visits(&self, file: u64, step: u64, at: Nanos) {
        self.file.store(file, Ordering::Relaxed);
        self.step.store(step, Ordering::Relaxed);
        self.since.store(at.0, Ordering::Relaxed);
    }

    pub(crate) fn turns_to(&self, doing: ReaderActivity) {
        self.doing.store(doing as u64, Ordering::Relaxed);
    }

    fn doing(&self) -> ReaderActivity {
        match self.doing.load(Ordering::Relaxed) {
            1 => ReaderActivity::Fetching,
            2 => ReaderActivity::Preparing,
            3 => ReaderActivity::Metadata,
            _ => ReaderActivity::Nothing,
        }
    }
}

/// The readers of one thread.
#[derive(Debug)]
pub(crate) struct ThreadStatus {
    pub(crate) posts: Vec<ReaderStatus>,
    pub(crate) tracks: Vec<Track>,
    /// End of the thread's planned sleep; 0 if it does not sleep.
    until: AtomicU64,
}

impl ThreadStatus {
    /// Records that the thread sleeps: until a known moment, or until something wakes it.
    pub(crate) fn sleeps(&self, until: Option<Nanos>) {
        self.until.store(until.map_or(0, |until| until.0), Ordering::Relaxed);
    }
}

/// A reader that waits for an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReaderWait {
    pub(crate) since: Nanos,
    pub(crate) queue: usize,
    pub(crate) reader: usize,
    pub(crate) step: u64,
    pub(crate) file: u64,
    /// What it reads of the file; the length is 0 if it is not known.
    pub(crate) range: Extent,
    /// Description of the operation.
    pub(crate) operation: String,
    /// The attempt at a request, and the number of its server.
    pub(crate) attempt: Option<(u32, usize)>,
}

/// All readers, thread by thread.
#[derive(Debug)]
pub(crate) struct StatusBoard {
    stations: Vec<ThreadStatus>,
}

impl StatusBoard {
    pub(crate) fn new(assignment: &ReaderAssignment) -> StatusBoard {
        let station = |thread| {
            let readers = assignment.readers(thread).len();
            ThreadStatus {
                posts: (0..readers).map(|_| ReaderStatus::default()).collect(),
                tracks: (0..readers).map(|_| Track::default()).collect(),
                until: AtomicU64::new(0),
            }
        };
        StatusBoard { stations: (0..assignment.thread_count()).map(station).collect() }
    }

    pub(crate) fn station(&self, thread: usize) -> &ThreadStatus {
        &self.stations[thread]
    }

    /// A number that changes whenever an operation ends.
    pub(crate) fn progress(&self) -> u64 {
        let tracks = self.stations.iter().flat_map(|station| &station.tracks);
        tracks.map(Track::ended).fold(0, u64::wrapping_add)
    }

    /// Whether a thread sleeps until a moment in the future.
    pub(crate) fn sleeps(&self, now: Nanos) -> bool {
        self.stations.iter().any(|station| station.until.load(Ordering::Relaxed) > now.0)
    }

    /// The readers that fetch or preprocess, longest wait first.
    pub(crate) fn waits(&self, assignment: &ReaderAssignment) -> Vec<ReaderWait> {
        let mut waits = Vec::new();
        for (thread, station) in self.stations.iter().enumerate() {
            for ((queue, reader), (post, track)) in
                assignment.readers(thread).into_iter().zip(station.posts.iter().zip(&station.tracks))
            {
                let operation = match (post.doing(), track.operation()) {
                    (ReaderActivity::Nothing, _) => continue,
                    (ReaderActivity::Fetching, Some(operation)) => operation.to_string(),
                    (ReaderActivity::Fetching, None) => "fetch".to_owned(),
                    (ReaderActivity::Metadata, Some(operation)) => format!("{operation} (metadata)"),
                    (ReaderActivity::Metadata, None) => "fetch (metadata)".to_owned(),
                    (ReaderActivity::Preparing, _) => "preprocess".to_owned(),
                };
                let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
                let (since, step, file) = (Nanos(load(&post.since)), load(&post.step), load(&post.file));
                waits.push(ReaderWait {
                    since,
                    queue,
                    reader,
                    step,
                    file,
                    range: track.range(),
                    operation,
                    attempt: track.last_attempt(),
                });
            }
        }
        waits.sort_by_key(|wait| wait.since);
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Operation;

    #[test]
    fn longest_waits_come_first() {
        let assignment = ReaderAssignment::new(2, 2, 2);
        let status = StatusBoard::new(&assignment);
        let note = |thread, reader, doing, file, step, at| {
            let post: &ReaderStatus = &status.station(thread).posts[reader];
            post.visits(file, step, Nanos(at));
            post.turns_to(doing);
        };
        note(0, 0, ReaderActivity::Metadata, 16, 3, 600);
        status.station(0).tracks[0].begin(Operation::Read, 64);
        note(0, 1, ReaderActivity::Fetching, 17, 3, 500);
        status.station(0).tracks[1].begin(Operation::Read, 4096);
        note(1, 0, ReaderActivity::Fetching, 4, 2, 100);
        note(1, 1, ReaderActivity::Nothing, 5, 2, 50);
        let waits = status.waits(&assignment);
        let said: Vec<_> = waits.iter().map(|w| (w.queue, w.reader, w.file, w.operation.as_str())).collect();
        assert_eq!(said, [(1, 0, 4, "fetch"), (0, 1, 17, "read"), (0, 0, 16, "read (metadata)")]);
        assert_eq!((waits[1].range.offset, waits[1].step), (4096, 3));
    }

    #[test]
    fn a_planned_sleep_is_reported_until_it_ends() {
        let status = StatusBoard::new(&ReaderAssignment::new(1, 1, 1));
        assert!(!status.sleeps(Nanos(0)));
        status.station(0).sleeps(Some(Nanos(90)));
        assert!(status.sleeps(Nanos(89)) && !status.sleeps(Nanos(90)));
        status.station(0).sleeps(None);
        assert!(!status.sleeps(Nanos(1)));
    }
}
