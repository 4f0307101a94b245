//! The listing of an object store: ranges of names, each listed page by page by one thread. A thread without work takes
//! half of a range that another one lists; it asks for single names to find a border between them (`borders`). With one
//! thread there is one range and no other request. Where a service cannot begin after a name, or does not
//! list in byte order, threads take folders.
//!
//! A range is (after, end]: its owner drops names behind its end, which may have moved closer during a request, and the
//! thread that moved it lists them. Both look at the end under one lock, so no name is lost or listed twice.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use store::{KeyListing, KeyRequest, ListedName, Operation};

use super::borders::{find_border, progress};
use super::key_journal::{EarlierKeys, KeyJournal, KeyRecord, KeySpan};
use super::key_page::{KeyPage, KeyRuns, hidden_part};
use super::{FOLDER, ScanError, SkipReason, SkippedEntries};
use crate::events::Events;
use crate::stop::Stop;
use crate::waits;
use crate::watchdog::{Watched, WorkerStatus, guard};

/// Pages without names, one after another, after which a listing counts as endless.
const EMPTY_PAGES: u64 = 1 << 16;

/// What to list, and by which rules.
#[derive(Clone, Copy)]
pub(super) struct KeyTask<'a> {
    pub(super) keys: &'a dyn KeyListing,
    pub(super) suffixes: &'a [Vec<u8>],
    pub(super) threads: usize,
    pub(super) stop: &'a Stop,
    pub(super) events: &'a Events,
    pub(super) journal: &'a KeyJournal,
}

#[derive(Clone, Debug, Default)]
pub(super) struct KeyCounts {
    pub(super) requests: u64,
    /// Names that were listed, of objects of the data set and of others.
    pub(super) names: u64,
    pub(super) skipped: SkippedEntries,
}

/// Names to be listed by one thread.
#[derive(Clone, Debug)]
struct KeyWork {
    /// Only names in this folder, and not those in its subfolders; `None`: all names.
    folder: Option<String>,
    after: String,
    end: Option<String>,
}

/// A range that a thread is listing.
#[derive(Debug)]
struct ActiveRange {
    /// Distinguishes it from other ranges of the same thread.
    serial: u64,
    start: String,
    /// The last name that was taken.
    position: String,
    end: Option<String>,
    pages: u64,
    /// It is divided when it has this many pages: not twice at the same place.
    divisible_at: u64,
    /// Pages to wait after a division that failed; doubled each time.
    patience: u64,
    /// Another thread is looking for a border in it.
    is_probed: bool,
}

#[derive(Default)]
struct KeyBoard {
    pending: Vec<KeyWork>,
    /// By thread.
    active: Vec<Option<ActiveRange>>,
    serial: u64,
    waiting: usize,
    failure: Option<ScanError>,
    counts: KeyCounts,
}

pub(super) struct KeyWalk<'a> {
    task: KeyTask<'a>,
    board: Mutex<KeyBoard>,
    change: Condvar,
    requests: AtomicU64,
    /// Progress and current work of each thread, for the watchdog.
    roster: WorkerStatus,
}

impl<'a> KeyWalk<'a> {
    /// For what an earlier listing left open.
    pub(super) fn new(task: KeyTask<'a>, earlier: EarlierKeys) -> KeyWalk<'a> {
        let range = |(after, end)| KeyWork { folder: None, after, end };
        let folder = |path| KeyWork { folder: Some(path), after: String::new(), end: None };
        // The last one is taken first.
        let mut pending: Vec<KeyWork> = earlier.gaps.into_iter().map(range).collect();
        pending.extend(earlier.folders.into_iter().map(folder));
        pending.reverse();
        let threads = task.threads.max(1);
        let active = (0..threads).map(|_| None).collect();
        let board = Mutex::new(KeyBoard { pending, active, ..KeyBoard::default() });
        let roster = WorkerStatus::new("lister", threads);
        KeyWalk { task, board, change: Condvar::new(), requests: AtomicU64::new(0), roster }
    }

    /// Lists everything that was left open.
    pub(super) fn run(&self) -> Result<KeyCounts, ScanError> {
        guard(self.task.stop, self, || {
            std::thread::scope(|scope| {
                for thread in 0..self.task.threads.max(1) {
                    let lister = std::thread::Builder::new().name("lister".to_owned());
                    if let Err(cause) = lister.spawn_scoped(scope, move || self.work(thread)) {
                        self.fail(ScanError::Thread(cause));
                    }
                }
            });
        });
        let mut board = self.board();
        match board.failure.take() {
            Some(error) => Err(error),
            None if self.task.stop.wished() => Err(ScanError::Interrupted),
            None => {
                let requests = self.requests.load(Ordering::Relaxed);
                Ok(KeyCounts { requests, ..std::mem::take(&mut board.counts) })
            }
        }
    }

    /// Ends the listing.
    pub(super) fn fail(&self, error: ScanError) {
        self.board().failure.get_or_insert(error);
        self.change.notify_all();
    }

    fn board(&self) -> MutexGuard<'_, KeyBoard> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of a thread, until nothing is left.
    fn work(&self, thread: usize) {
        let _left = waits::leave_to_phase();
        // After a panic the other threads must not wait for the range of this one.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while let Some(work) = self.next(thread)? {
                match work.folder {
                    Some(folder) => self.list_folder(thread, folder)?,
                    None => self.list_range(thread, &work.after)?,
                }
            }
            Ok::<(), ScanError>(())
        }));
        if let Err(error) = outcome.unwrap_or(Err(ScanError::Panicked)) {
            self.fail(error);
        }
    }

    /// The next range or folder; waits while other threads may still divide theirs or find folders.
    fn next(&self, thread: usize) -> Result<Option<KeyWork>, ScanError> {
        let mut board = self.board();
        loop {
            if board.failure.is_some() || self.task.stop.wished() {
                return Ok(None);
            }
            if let Some(work) = board.pending.pop() {
                board.begin(thread, &work);
                return Ok(Some(work));
            }
            if board.active.iter().all(Option::is_none) {
                return Ok(None);
            }
            match board.divisible().filter(|_| self.task.keys.lists_after()) {
                Some(victim) => {
                    drop(board);
                    if let Some(work) = self.divide(thread, victim)? {
                        return Ok(Some(work));
                    }
                    board = self.board();
                }
                None => {
                    board.waiting += 1;
                    board = self.change.wait(board).unwrap_or_else(PoisonError::into_inner);
                    board.waiting -= 1;
                }
            }
        }
    }

    /// Takes the second half of the range of another thread, if a border is found.
    fn divide(&self, thread: usize, victim: usize) -> Result<Option<KeyWork>, ScanError> {
        let Some((serial, from, end)) = self.board().probed(victim) else { return Ok(None) };
        let found = find_border(&from, end.as_deref(), |after| {
            self.check_stop()?;
            self.first_after(thread, after, end.as_deref())
        });
        let mut board = self.board();
        let work = board.divided(victim, serial, found?);
        if let Some(work) = &work {
            board.begin(thread, work);
        }
        Ok(work)
    }

    /// The first name after another one, if it is before the end.
    fn first_after(
        &self,
        thread: usize,
        after: &str,
        end: Option<&str>,
    ) -> Result<Option<String>, ScanError> {
        let mut first = None;
        let request = KeyRequest { after, most: 1, ..KeyRequest::default() };
        self.request(thread, &request, &mut |listed| {
            if let ListedName::Object { name, .. } = listed {
                first.get_or_insert_with(|| name.to_owned());
            }
        })?;
        match first {
            Some(name) if name.as_str() <= after => Err(self.wrong(&format!(
                "'{name}' was returned for a listing after '{after}'; list with --threads 1 if the server cannot do \
                 this"
            ))),
            first => Ok(first.filter(|name| end.is_none_or(|end| name.as_str() <= end))),
        }
    }

    /// One request.
    fn request(
        &self,
        thread: usize,
        request: &KeyRequest<'_>,
        each: &mut dyn FnMut(ListedName<'_>),
    ) -> Result<Option<String>, ScanError> {
        let name = if request.folder.is_empty() { request.after } else { request.folder };
        self.roster.begin(thread, Operation::List, &self.task.keys.shown(name));
        let next = self.task.keys.page(request, each);
        self.roster.end(thread);
        // Relaxed: only the sum matters.
        self.requests.fetch_add(1, Ordering::Relaxed);
        next.map_err(ScanError::Keys)
    }

    /// Lists the range of this thread, from `after` on, and keeps each page.
    fn list_range(&self, thread: usize, after: &str) -> Result<(), ScanError> {
        let mut page = KeyPage::default();
        let (mut last, mut pages) = (after.to_owned(), PageChain::default());
        loop {
            self.check_stop()?;
            page.clear();
            let request = KeyRequest { after, continues: pages.token(), ..KeyRequest::default() };
            let next = self.request(thread, &request, &mut |listed| page.add(listed, &last))?;
            self.check_order(&mut page)?;
            let is_empty = page.is_empty();
            let Some((upto, is_over)) = self.board().take(thread, &mut page, next.is_none()) else {
                return Err(ScanError::Panicked);
            };
            if self.board().waiting > 0 {
                self.change.notify_all();
            }
            let runs = self.sort(&page)?;
            // A page may have no names, or only that of the place itself, which is before all others.
            if is_over || upto.as_ref() != Some(&last) {
                let span = KeySpan::Range { after: last, upto: upto.clone() };
                self.task.journal.append(KeyRecord { span, runs: runs.finish() })?;
            }
            match (next, upto) {
                (Some(next), Some(upto)) if !is_over => {
                    last = upto;
                    pages.follow(next, is_empty).map_err(|what| self.wrong(&what))?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Lists a folder without its subfolders, and keeps it as a whole.
    fn list_folder(&self, thread: usize, folder: String) -> Result<(), ScanError> {
        let (mut page, mut runs, mut subfolders) = (KeyPage::default(), KeyRuns::default(), Vec::new());
        let (mut last, mut seen, mut pages) = (String::new(), HashSet::new(), PageChain::default());
        loop {
            self.check_stop()?;
            page.clear();
            let continues = pages.token();
            let request = KeyRequest { folder: &folder, continues, by_folder: true, ..KeyRequest::default() };
            let next = self.request(thread, &request, &mut |listed| page.add(listed, &last))?;
            self.check_order(&mut page)?;
            self.sort_into(&page, &mut runs)?;
            last = page.last().map_or(last, str::to_owned);
            if let Some(twice) = page.folders.iter().find(|folder| !seen.insert((*folder).clone())) {
                return Err(self.wrong(&format!("'{twice}' is listed twice")));
            }
            subfolders.extend(self.visible(&page, &folder));
            let Some(next) = next else { break };
            pages.follow(next, page.is_empty()).map_err(|what| self.wrong(&what))?;
        }
        let found = subfolders.clone();
        let span = KeySpan::Folder { path: folder, subfolders };
        self.task.journal.append(KeyRecord { span, runs: runs.finish() })?;
        let mut board = self.board();
        let work = |path| KeyWork { folder: Some(path), after: String::new(), end: None };
        board.pending.extend(found.into_iter().rev().map(work));
        board.active[thread] = None;
        self.change.notify_all();
        Ok(())
    }

    /// The subfolders of a page that are not hidden; hidden ones are counted, like those of a folder.
    fn visible(&self, page: &KeyPage, folder: &str) -> Vec<String> {
        let mut skipped = SkippedEntries::default();
        let visible = |path: &&String| match hidden_part(path.strip_prefix(folder).unwrap_or(path)) {
            Some(part) => {
                if part != FOLDER {
                    skipped.note(SkipReason::Hidden, path.trim_end_matches('/').as_bytes());
                }
                false
            }
            None => true,
        };
        let found = page.folders.iter().filter(visible).cloned().collect();
        self.board().counts.skipped.add(&[], &skipped);
        found
    }

    fn sort(&self, page: &KeyPage) -> Result<KeyRuns, ScanError> {
        let mut runs = KeyRuns::default();
        self.sort_into(page, &mut runs)?;
        Ok(runs)
    }

    /// Adds the objects of a page to the runs, and counts all of its names.
    fn sort_into(&self, page: &KeyPage, runs: &mut KeyRuns) -> Result<(), ScanError> {
        let mut skipped = SkippedEntries::default();
        let path = || self.task.keys.shown("").into();
        let (_, bytes) = page
            .sort(self.task.suffixes, runs, &mut skipped)
            .map_err(|error| ScanError::Build { path: path(), error })?;
        self.task.events.counters().add_files(page.len() as u64, bytes);
        let mut board = self.board();
        board.counts.names += page.len() as u64;
        board.counts.skipped.add(&[], &skipped);
        Ok(())
    }

    fn check_order(&self, page: &mut KeyPage) -> Result<(), ScanError> {
        let place = || self.task.keys.shown("");
        page.wrong().map_or(Ok(()), |what| Err(ScanError::OutOfOrder { place: place(), what }))
    }

    fn check_stop(&self) -> Result<(), ScanError> {
        let is_over = self.task.stop.wished() || self.board().failure.is_some();
        if is_over { Err(ScanError::Interrupted) } else { Ok(()) }
    }

    /// The error for an answer that cannot be right.
    fn wrong(&self, what: &str) -> ScanError {
        ScanError::WrongListing { place: self.task.keys.shown(""), what: what.to_owned() }
    }
}

impl KeyBoard {
    /// A thread begins a piece of work.
    fn begin(&mut self, thread: usize, work: &KeyWork) {
        self.serial += 1;
        self.active[thread] = Some(ActiveRange {
            serial: self.serial,
            start: work.after.clone(),
            position: work.after.clone(),
            end: work.end.clone(),
            pages: 0,
            divisible_at: 1,
            patience: 1,
            is_probed: false,
        });
    }

    /// The range to be divided: the one that seems to have the most pages left.
    fn divisible(&self) -> Option<usize> {
        let ranges = self.active.iter().enumerate();
        let ranges = ranges.filter_map(|(thread, range)| Some((thread, range.as_ref()?)));
        let ready = ranges.filter(|(_, range)| !range.is_probed && range.pages >= range.divisible_at);
        ready.max_by(|(_, a), (_, b)| a.pages_left().total_cmp(&b.pages_left())).map(|(thread, _)| thread)
    }

    /// Reserves a range for a search, and returns its number, position and end.
    fn probed(&mut self, victim: usize) -> Option<(u64, String, Option<String>)> {
        let range = self.active.get_mut(victim)?.as_mut()?;
        if range.is_probed {
            return None;
        }
        range.is_probed = true;
        Some((range.serial, range.position.clone(), range.end.clone()))
    }

    /// Moves the end of a range to a border, if that is still ahead of its owner, and returns what is behind it.
    fn divided(&mut self, victim: usize, serial: u64, border: Option<String>) -> Option<KeyWork> {
        let range = self.active.get_mut(victim)?.as_mut().filter(|range| range.serial == serial)?;
        range.is_probed = false;
        let fits =
            |border: &String| *border > range.position && range.end.as_ref().is_none_or(|end| border < end);
        let Some(border) = border.filter(fits) else {
            range.divisible_at = range.pages + range.patience;
            range.patience *= 2;
            return None;
        };
        range.divisible_at = range.pages + 1;
        range.patience = 1;
        let end = range.end.replace(border.clone());
        Some(KeyWork { folder: None, after: border, end })
    }

    /// Takes a page into the range of a thread: cuts it at the end of the range, which may have moved, and returns up
    /// to where names are known now, and whether the range is complete. `is_last`: the server has no more names.
    fn take(&mut self, thread: usize, page: &mut KeyPage, is_last: bool) -> Option<(Option<String>, bool)> {
        let range = self.active.get_mut(thread)?.as_mut()?;
        let beyond = range.end.as_deref().is_some_and(|end| page.cut(end));
        let at_end = range.end.is_some() && page.last() == range.end.as_deref();
        range.pages += 1;
        if is_last || beyond || at_end {
            let end = range.end.clone();
            self.active[thread] = None;
            return Some((end, true));
        }
        if let Some(last) = page.last() {
            last.clone_into(&mut range.position);
        }
        Some((Some(range.position.clone()), false))
    }
}

impl ActiveRange {
    /// An estimate of the pages that are left, from the pages so far and the share of the range that they cover.
    fn pages_left(&self) -> f64 {
        let Some(end) = &self.end else { return f64::INFINITY };
        let done = progress(&self.start, &self.position, end).max(1e-9);
        self.pages as f64 * (1.0 - done) / done
    }
}

/// The tokens of successive pages. A server that returns one again would be asked for the same names forever.
#[derive(Debug, Default)]
struct PageChain {
    token: Option<String>,
    /// A token that was seen earlier; replaced after 1, 2, 4, ... pages, so that any cycle is found (Brent).
    earlier: Option<String>,
    pages: u64,
    empty: u64,
}

impl PageChain {
    fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Continues with the next page. `is_empty`: the page before it had no names.
    fn follow(&mut self, next: String, is_empty: bool) -> Result<(), String> {
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        if self.token.as_ref() == Some(&next) || self.earlier.as_ref() == Some(&next) {
            return Err("a page says that it is followed by an earlier one".to_owned());
        }
        if self.empty >= EMPTY_PAGES {
            return Err(format!("{EMPTY_PAGES} pages in a row have no names"));
        }
        self.pages += 1;
        if self.pages.is_power_of_two() {
            self.earlier = Some(next.clone());
        }
        self.token = Some(next);
        Ok(())
    }
}

impl Watched for KeyWalk<'_> {
    fn progress(&self) -> u64 {
        self.roster.progress()
    }

    fn waits(&self) -> Vec<String> {
        self.roster.waits()
    }

    fn ending(&self) -> Option<String> {
        self.board().failure.as_ref().map(ToString::to_string)
    }

    fn end(&self, cause: String) {
        self.fail(ScanError::Stuck(cause));
    }
}
