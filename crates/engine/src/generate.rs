//! Writes a data set: files are independent, so any number of writers share them out by a counter, and the same seed
//! gives the same bytes whatever their number. A file appears whole or not at all; what is there already is kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use format::{Content, EncodeError, Format, FormatError};
use model::names::{Name, Pattern};
use model::plan::Data;
use store::{Store, StoreError};
use thiserror::Error;

use crate::pulse::Pulse;
use crate::stop::Stop;

/// What to write and with what.
#[derive(Clone, Copy, Debug)]
pub struct Generation<'a> {
    pub data: &'a Data,
    pub format: &'a dyn Format,
    pub store: &'a dyn Store,
    /// Seed of the content.
    pub seed: u64,
    pub writers: u64,
    /// Write files again that exist with the right size.
    pub overwrite: bool,
    pub stop: &'a Stop,
    pub pulse: &'a Pulse,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generated {
    pub files_written: u64,
    pub files_kept: u64,
    pub bytes_written: u64,
}

#[derive(Debug, Error)]
pub enum GenerateError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error("cannot start writer thread: {0}")]
    Thread(std::io::Error),
    #[error("interrupted; the files that were finished stay, and the same command goes on from there")]
    Interrupted,
    #[error("a writer panicked while writing {0}")]
    Panicked(String),
}

/// Writes what is missing.
pub fn generate(task: &Generation<'_>) -> Result<Generated, GenerateError> {
    task.store.lock()?;
    let (train, valid) = (task.data.train.names.pattern(), task.data.valid.names.pattern());
    for (names, pattern) in [(&task.data.train.names, &train), (&task.data.valid.names, &valid)] {
        let (prefix, tail) = pattern.ends();
        for folder in names.folders() {
            let folder = Name::new(&folder).unwrap_or_default();
            task.store.create_folder(&folder)?;
            task.store.remove_leftovers(&folder, prefix, tail)?;
        }
    }
    let next = AtomicU64::new(0);
    let failure: Mutex<Option<GenerateError>> = Mutex::new(None);
    let abort = Stop::default();
    let shared = Shared { task, train, valid, next: &next, failure: &failure, abort: &abort };
    let total = std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for _ in 0..task.writers.max(1) {
            match std::thread::Builder::new().name("writer".to_owned()).spawn_scoped(scope, || shared.work())
            {
                Ok(writer) => writers.push(writer),
                Err(cause) => shared.fail(GenerateError::Thread(cause)),
            }
        }
        let mut total = Generated::default();
        for writer in writers {
            match writer.join() {
                Ok(part) => total.add(part),
                Err(_) => shared.fail(GenerateError::Panicked("a file".to_owned())),
            }
        }
        total
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    if task.stop.wished() {
        return Err(GenerateError::Interrupted);
    }
    task.store.sync()?;
    Ok(total)
}

impl Generated {
    fn add(&mut self, other: Generated) {
        self.files_written += other.files_written;
        self.files_kept += other.files_kept;
        self.bytes_written += other.bytes_written;
    }
}

/// What writers share.
struct Shared<'a> {
    task: &'a Generation<'a>,
    train: Pattern,
    valid: Pattern,
    next: &'a AtomicU64,
    failure: &'a Mutex<Option<GenerateError>>,
    abort: &'a Stop,
}

impl Shared<'_> {
    fn fail(&self, error: GenerateError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.abort.wish();
    }

    fn work(&self) -> Generated {
        let mut done = Generated::default();
        let mut name = Name::default();
        let mut scratch = Vec::new();
        let count = self.task.data.files();
        while !self.task.stop.wished() && !self.abort.wished() {
            // Relaxed: the counter hands out numbers and carries nothing else.
            let file = self.next.fetch_add(1, Ordering::Relaxed);
            if file >= count {
                break;
            }
            if let Err(error) = self.make(file, &mut name, &mut scratch, &mut done) {
                self.fail(error);
            }
        }
        done
    }

    /// Makes one file, if it is not there.
    fn make(
        &self,
        file: u64,
        name: &mut Name,
        scratch: &mut Vec<u8>,
        done: &mut Generated,
    ) -> Result<(), GenerateError> {
        match file.checked_sub(self.task.data.valid.first_file) {
            Some(index) => self.valid.write(index, name),
            None => self.train.write(file, name),
        }
        let bytes = self.task.data.file_bytes.of(file);
        if !self.task.overwrite && self.task.store.size(name)? == Some(bytes) {
            done.files_kept += 1;
        } else {
            self.write(file, name, scratch)?;
            done.files_written += 1;
            done.bytes_written += bytes;
        }
        self.task.pulse.add(1, bytes);
        Ok(())
    }

    fn write(&self, file: u64, name: &Name, scratch: &mut Vec<u8>) -> Result<(), GenerateError> {
        let task = self.task;
        let content = Content::new(task.seed);
        let mut writer = task.store.create(name)?;
        let mut refused: Option<StoreError> = None;
        let encoded =
            task.data.sizes.with_shape(file, task.data.element, task.data.train.samples_per_file, |shape| {
                task.format.encode(shape, &content, file, scratch, &mut |bytes| {
                    writer.write(bytes).map_err(|error| {
                        refused = Some(error);
                        std::io::Error::other("refused by the store")
                    })
                })
            });
        match (refused, encoded) {
            (Some(error), _) => Err(error.into()),
            (None, Err(EncodeError::Shape(error))) => Err(error.into()),
            (None, Err(EncodeError::Sink(_))) => Err(GenerateError::Interrupted),
            (None, Ok(())) => Ok(writer.finish()?),
        }
    }
}
