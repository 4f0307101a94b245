//! `--metrics-file`: the figures as a file for the text-file collector of a node exporter. The file is replaced as a
//! whole every few seconds, so that a collector never reads a part of it. It is written by a thread of its own: a slow
//! disk delays neither the server nor the work.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ::report::openmetrics::MetricsFormat;
use anyhow::anyhow;
use store::{FolderHandle, StoreError};

use super::figures::MetricsBoard;
use crate::exit::Failure;
use crate::report;

/// How often the file is written.
const PERIOD: Duration = Duration::from_secs(5);

/// A file that is being kept up to date.
#[derive(Debug)]
pub(super) struct MetricsFile {
    shared: Arc<FileControl>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct FileControl {
    folder: FolderHandle,
    name: OsString,
    board: Arc<MetricsBoard>,
    over: Mutex<bool>,
    changed: Condvar,
    /// Whether a failure was reported, so that it is reported once.
    failed: AtomicBool,
}

impl MetricsFile {
    /// Writes the file for the first time. What is wrong with its place is an error here, before the work begins.
    pub(super) fn start(path: &Path, board: &Arc<MetricsBoard>) -> Result<MetricsFile, Failure> {
        let shown = report::printable(&path.display().to_string());
        let refused = |cause: String| Failure::refused(anyhow!("--metrics-file {shown}: {cause}"));
        let name = path.file_name().filter(|_| path.extension().is_some_and(|extension| extension == "prom"));
        let Some(name) = name.map(OsString::from) else {
            return Err(Failure::usage(anyhow!(
                "--metrics-file {shown}: collectors read only files whose names end in .prom; choose such a name"
            )));
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        let folder = FolderHandle::open(folder)
            .map_err(|cause| refused(format!("{cause}; create its folder, or choose another file")))?;
        let (over, failed) = (Mutex::new(false), AtomicBool::new(false));
        let board = Arc::clone(board);
        let shared = Arc::new(FileControl { folder, name, board, over, changed: Condvar::new(), failed });
        shared.put().map_err(|cause| refused(format!("{cause}; choose another file")))?;
        let of_thread = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("metrics-file".to_owned());
        let thread = builder
            .spawn(move || of_thread.keep())
            .map_err(|cause| refused(format!("cannot start a thread: {cause}")))?;
        Ok(MetricsFile { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Writes the final figures.
    pub(super) fn finish(&self) {
        *self.shared.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl FileControl {
    fn put(&self) -> Result<(), StoreError> {
        self.folder.put(&self.name, self.board.text(MetricsFormat::Text).as_bytes())
    }

    /// Writes the file periodically, and when the work is over.
    fn keep(&self) {
        let mut is_over = false;
        while !is_over {
            let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(over, PERIOD, |over| !*over);
            is_over = *waited.unwrap_or_else(PoisonError::into_inner).0;
            match self.put() {
                // Relaxed here and below: only this thread uses it.
                Ok(()) => self.failed.store(false, Ordering::Relaxed),
                Err(cause) if is_over || !self.failed.swap(true, Ordering::Relaxed) => {
                    let what = format!("cannot write the metrics file: {cause}");
                    report::warn(&what, "the run is not affected; free space, or choose another file");
                }
                Err(_) => {}
            }
        }
    }
}
