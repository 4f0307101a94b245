//! Writes a data set. Files are independent, so any number of writers take them from a shared counter, and the same
//! seed gives the same bytes for any number of writers. A file appears complete or not at all; existing files are kept;
//! a manifest records which data set the folder holds.
//!
//! Of several members, each writes every n-th file. So all of them have equal shares of large and small files, files
//! appear about in their order, and if the work is continued by another number of members, the rest is evenly
//! distributed again. If n divides the number of subfolders, no two members create files in one subfolder. Member 0
//! alone locks the folder, writes the manifest, and completes it after all members have flushed their files.

mod claim;
mod claim_check;
mod present;
mod verify;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use format::{Content, EncodeError, Format, FormatError, SideFile, Sink};
use model::location::Location;
use model::names::{Name, Pattern};
use model::plan::ComputedData;
use model::spec::Spec;
use serde::{Deserialize, Serialize};
use store::{Operation, Store, StoreError};
use thiserror::Error;

pub(crate) use claim::census;
pub use claim::read_manifest;

use claim::{Claim, Hosts};
use claim_check::ClaimCheck;
use present::{PresentFiles, has_right_size};

use crate::events::Events;
use crate::file_reader::FileReader;
use crate::sharing::{SharingError, check_shared_store};
use crate::stop::Stop;
use crate::waits;
use crate::watchdog::{Watched, WorkerStatus, guard};
use crate::world::{self, EarlyEnd, World, agreed, alongside, decided, shared};

/// What to generate, and where.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a bundle of references, one of them to a world")]
pub struct Generation<'a> {
    pub spec: &'a Spec,
    pub data: ComputedData<'a>,
    pub format: &'a dyn Format,
    pub store: &'a dyn Store,
    /// Where the store is.
    pub place: &'a Location,
    /// The members that share the work.
    pub world: &'a dyn World,
    /// Whether an existing data set that differs only in its seed is accepted.
    pub keep_seed: bool,
    /// Threads of this member.
    pub writers: u64,
    /// Rewrite files that exist with the right size.
    pub overwrite: bool,
    /// Read everything back and compare it.
    pub verify: bool,
    pub stop: &'a Stop,
    pub events: &'a Events,
}

/// Counts of what was done, by all members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generated {
    pub files_written: u64,
    pub files_kept: u64,
    pub bytes_written: u64,
    pub bytes_verified: u64,
}

#[derive(Debug, Error)]
pub enum GenerateError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error("the folder holds another data set:{0}")]
    OtherDataSet(String),
    #[error(
        "{folder}/ holds {files} files that no feedline manifest lists, such as {example}; choose another folder with \
         --data-dir, or remove them{}",
        if *overwritable {
            ", or, if you no longer need them, replace them with 'feedline generate --overwrite'"
        } else {
            ""
        }
    )]
    Unclaimed { folder: String, files: u64, example: String, overwritable: bool },
    #[error(
        "the folder holds a data set that feedline did not generate: it has a catalog but no manifest; choose another \
         folder with --data-dir"
    )]
    Catalogued,
    #[error(
        "{folder}/ should hold {planned} files, but holds {there}{}",
        example.as_ref().map_or(String::new(), |name| format!(", such as {name}"))
    )]
    Miscounted { folder: String, planned: u64, there: u64, example: Option<String> },
    #[error("{name} is not a feedline manifest: {cause}; remove it if the folder is yours")]
    Manifest { name: String, cause: String },
    #[error(
        "{name} does not match the data set's settings: byte {offset} differs; rewrite it with 'feedline generate \
         --overwrite'"
    )]
    Differs { name: String, offset: u64 },
    #[error("cannot start writer thread: {0}")]
    Thread(std::io::Error),
    #[error("interrupted; the same command finishes the data set")]
    Interrupted,
    #[error("a writer panicked while writing {0}")]
    Panicked(String),
    /// With the list of pending operations.
    #[error("{0}; the same command finishes the data set")]
    Stuck(String),
    #[error(transparent)]
    Sharing(#[from] SharingError),
    /// Another member ended early.
    #[error("{0}; the same command finishes the data set")]
    Elsewhere(Box<EarlyEnd>),
}

impl From<EarlyEnd> for GenerateError {
    fn from(ended: EarlyEnd) -> GenerateError {
        GenerateError::Elsewhere(Box::new(ended))
    }
}

/// Writes the missing files, and then compares all files with their expected content if requested. All members call it,
/// and return the same counts.
pub fn generate(task: &Generation<'_>) -> Result<Generated, GenerateError> {
    let (claim, mut total) = match find_complete(task)? {
        Some(complete) => complete,
        None => write_missing(task)?,
    };
    if task.verify {
        let threads = WriterThreads::new(task, task.content(claim), FilePass::Verify);
        total.add(task.total(agreed(task.world, threads.work(), task.stop)?)?);
    }
    Ok(total)
}

/// The claim and the counts of a folder that already holds the whole data set. Nothing is locked, so that any number of
/// processes can use the folder at once. If in doubt the answer is `None`: the check is made again under the lock.
fn find_complete(task: &Generation<'_>) -> Result<Option<(Claim, Generated)>, GenerateError> {
    let (world, stop) = (task.world, task.stop);
    let Some((claim, manifest)) = decided(world, stop, || claim::of_complete(task))? else { return Ok(None) };
    if world.members() > 1 {
        let is_same = read_manifest(task.store).map(|here| here.as_ref() == Some(&manifest));
        let not_shared = || SharingError::not_shared(task.place.clone(), world).into();
        agreed(world, is_same.and_then(|same| same.then_some(()).ok_or_else(not_shared)), stop)?;
    }
    let present = PresentFiles::list(task)?;
    let threads = WriterThreads::new(task, task.content(claim), FilePass::Check);
    let threads = WriterThreads { present: present.as_ref(), ..threads };
    let here = agreed(world, threads.work_or_miss(), stop)?;
    let Some(total) = task.total_of_all(here)? else { return Ok(None) };
    Ok(decided(world, stop, || claim::has_all(task, present.as_ref()))?.then_some((claim, total)))
}

/// Locks the folder and writes what is missing in it.
fn write_missing(task: &Generation<'_>) -> Result<(Claim, Generated), GenerateError> {
    let (world, stop) = (task.world, task.stop);
    check_shared_store(task.store.files(), task.place, world, stop)?;
    let hosts = Hosts::of(world, stop)?;
    let claim = decided(world, stop, || begin(task, &hosts))?;
    let here = if world.member() > 0 { make_folders(task) } else { Ok(()) };
    let present = if claim.rewrite { None } else { PresentFiles::list(task)? };
    let pass = FilePass::Write(claim);
    let threads = WriterThreads::new(task, task.content(claim), pass);
    let threads = WriterThreads { present: present.as_ref(), ..threads };
    let written = here.and_then(|()| threads.work());
    // Each host has pages to flush.
    let flushed = written.and_then(|done| Ok(task.store.files().sync().map(|()| done)?));
    let total = task.total(agreed(world, flushed, stop)?)?;
    let has_leftovers = shared(world, &task.store.files().may_have_leftovers(), stop)?.contains(&true);
    decided(world, stop, || {
        if has_leftovers {
            // All members have written their files.
            make_folders(task)?;
        }
        claim::complete(task, claim, total.files_written > 0, &hosts, present.as_ref())
    })?;
    Ok((claim, total))
}

impl Generation<'_> {
    /// The content of the files of a claimed folder.
    fn content(&self, claim: Claim) -> Content {
        Content::new(claim.seed).compressible(self.spec.dataset.compressible)
    }

    /// The sum over all members.
    fn total(&self, here: Generated) -> Result<Generated, GenerateError> {
        Ok(self.total_of_all(Some(here))?.unwrap_or_default())
    }

    /// The sum over all members; `None` if a file is missing at one of them.
    fn total_of_all(&self, here: Option<Generated>) -> Result<Option<Generated>, GenerateError> {
        let mut total = Generated::default();
        for part in shared(self.world, &here, self.stop)? {
            let Some(part) = part else { return Ok(None) };
            total.add(part);
        }
        Ok(Some(total))
    }
}

/// What member 0 does before the first file is written.
fn begin(task: &Generation<'_>, hosts: &Hosts) -> Result<Claim, GenerateError> {
    claim::lock(task)?;
    let claim = claim::claim(task, hosts)?;
    make_folders(task)?;
    // A single member does this when it writes its first file.
    if claim.complete && task.world.members() > 1 {
        claim::reopen(task, claim, hosts)?;
    }
    Ok(claim)
}

/// Creates the folders of the data set. Member 0 comes first and removes partial files of interrupted writers. The
/// others find the folders that exist, which the store has to know to flush their file systems.
fn make_folders(task: &Generation<'_>) -> Result<(), GenerateError> {
    let (files, sides) = (task.store.files(), task.format.sides());
    let clean = |folder: &Name, prefix: &str, suffix: &str| match task.world.member() {
        0 => files.remove_leftovers(folder, prefix, suffix),
        _ => Ok(()),
    };
    for names in [&task.data.train.names, &task.data.valid.names] {
        let pattern = names.pattern();
        let (prefix, tail) = pattern.ends();
        for folder in names.folders() {
            let folder = Name::new(&folder).unwrap_or_default();
            files.create_folder(&folder)?;
            clean(&folder, prefix, tail)?;
            for side in sides.iter().filter(|side| side.folder.is_none()) {
                clean(&folder, prefix, &format!("{tail}{}", side.suffix))?;
            }
        }
        for (side, parent) in sides.iter().filter_map(|side| Some((side, side.folder?))) {
            let parent_name = Name::new(parent).unwrap_or_default();
            let folder = Name::new(&format!("{parent}/{}", names.folder)).unwrap_or_default();
            files.create_folder(&parent_name)?;
            files.create_folder(&folder)?;
            clean(&folder, prefix, &format!("{tail}{}", side.suffix))?;
        }
    }
    Ok(())
}

/// The name of a side file. Separate folders of side files are flat: they do not repeat sub-folders of the data files.
fn side_name(name: &Name, side: SideFile) -> Name {
    let text = name.as_str();
    let full = match side.folder {
        None => format!("{text}{}", side.suffix),
        Some(folder) => {
            let split = text.split('/').next().unwrap_or_default();
            let file = text.rsplit('/').next().unwrap_or_default();
            format!("{folder}/{split}/{file}{}", side.suffix)
        }
    };
    Name::new(&full).unwrap_or_default()
}

impl Generated {
    fn add(&mut self, other: Generated) {
        self.files_written += other.files_written;
        self.files_kept += other.files_kept;
        self.bytes_written += other.bytes_written;
        self.bytes_verified += other.bytes_verified;
    }
}

/// What is done with each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilePass {
    /// See whether it exists. The first file that does not ends the pass.
    Check,
    /// Write it, if it does not exist or is to be rewritten.
    Write(Claim),
    /// Read it and compare.
    Verify,
}

impl FilePass {
    /// The operation that messages name.
    fn operation(self) -> Operation {
        match self {
            FilePass::Check => Operation::Stat,
            FilePass::Write(_) => Operation::Write,
            FilePass::Verify => Operation::Read,
        }
    }
}

/// The threads that process the files of a data set, and what they share.
struct WriterThreads<'a> {
    task: &'a Generation<'a>,
    content: Content,
    pass: FilePass,
    train: Pattern,
    valid: Pattern,
    /// The files that exist, if the store has listed them; otherwise each is looked up.
    present: Option<&'a PresentFiles>,
    /// The next file of this member.
    next: AtomicU64,
    /// Whether the manifest of a complete folder now says that it is incomplete.
    reopened: Mutex<bool>,
    /// Looks whether another generator has claimed the folder.
    claim_check: ClaimCheck,
    /// Whether a file was missing that should only be checked.
    incomplete: AtomicBool,
    failure: Mutex<Option<GenerateError>>,
    abort: Stop,
    roster: WorkerStatus,
}

impl Watched for WriterThreads<'_> {
    fn progress(&self) -> u64 {
        // A writer that finishes a file waits until all of it is uploaded.
        self.roster.progress().wrapping_add(self.task.store.files().progress())
    }

    fn waits(&self) -> Vec<String> {
        self.roster.waits()
    }

    fn ending(&self) -> Option<String> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().map(ToString::to_string)
    }

    fn end(&self, cause: String) {
        self.fail(GenerateError::Stuck(cause));
    }
}

/// The state that one thread keeps from file to file.
struct WriterState<'a> {
    writer: usize,
    name: Name,
    scratch: Vec<u8>,
    reader: Option<FileReader<'a>>,
    done: Generated,
}

impl<'a> WriterThreads<'a> {
    fn new(task: &'a Generation<'a>, content: Content, pass: FilePass) -> WriterThreads<'a> {
        WriterThreads {
            task,
            content,
            pass,
            train: task.data.train.names.pattern(),
            valid: task.data.valid.names.pattern(),
            present: None,
            next: AtomicU64::new(task.world.member()),
            reopened: Mutex::new(task.world.members() > 1),
            claim_check: ClaimCheck::default(),
            incomplete: AtomicBool::new(false),
            failure: Mutex::new(None),
            abort: Stop::default(),
            roster: WorkerStatus::new("writer", task.writers.max(1) as usize),
        }
    }

    fn work(self) -> Result<Generated, GenerateError> {
        self.work_or_miss().map(Option::unwrap_or_default)
    }

    /// Processes all files; `None` if a file that should only be checked is missing.
    fn work_or_miss(self) -> Result<Option<Generated>, GenerateError> {
        let Generation { world, stop, .. } = *self.task;
        let end = |ended| {
            self.end_with(GenerateError::from(ended));
        };
        let total = guard(stop, &self, || alongside(world, stop, &end, || self.work_together()));
        match self.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            // A stop that is requested here ends the world, which this member learns, too.
            Some(GenerateError::Elsewhere(_)) if stop.requested() => Err(GenerateError::Interrupted),
            None if stop.wished() => Err(GenerateError::Interrupted),
            Some(error) => Err(error),
            None => Ok((!self.incomplete.into_inner()).then_some(total)),
        }
    }

    fn work_together(&self) -> Generated {
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for writer in 0..self.task.writers.max(1) as usize {
                let builder = std::thread::Builder::new().name("writer".to_owned());
                match builder.spawn_scoped(scope, move || self.work_alone(writer)) {
                    Ok(thread) => threads.push(thread),
                    Err(cause) => self.fail(GenerateError::Thread(cause)),
                }
            }
            let mut total = Generated::default();
            // A writer catches its own panics, so joining cannot fail.
            threads.into_iter().filter_map(|thread| thread.join().ok()).for_each(|part| total.add(part));
            total
        })
    }

    /// Whether the remaining files are not to be processed.
    fn is_over(&self) -> bool {
        self.task.stop.wished() || self.abort.wished()
    }

    /// Ends the work of all members.
    fn fail(&self, error: GenerateError) {
        let cause = world::cause(&error, self.task.stop);
        if self.end_with(error) {
            self.task.world.announce(cause);
        }
    }

    /// Ends the work of this member; returns whether it was not ending yet.
    fn end_with(&self, error: GenerateError) -> bool {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = failure.is_none();
        failure.get_or_insert(error);
        self.abort.wish();
        is_first
    }

    fn work_alone(&self, writer: usize) -> Generated {
        let _left = waits::leave_to_phase();
        let reader = match (self.pass == FilePass::Verify).then(|| FileReader::new(self.task.store)) {
            Some(Err(cause)) => {
                self.fail(cause.into());
                return Generated::default();
            }
            Some(Ok(reader)) => Some(reader),
            None => None,
        };
        let mut hands = WriterState {
            writer,
            name: Name::default(),
            scratch: Vec::new(),
            reader,
            done: Generated::default(),
        };
        let count = self.task.data.files();
        while !self.is_over() {
            // Relaxed: the counter only distributes numbers and publishes no other data.
            let file = self.next.fetch_add(self.task.world.members(), Ordering::Relaxed);
            if file >= count {
                break;
            }
            match file.checked_sub(self.task.data.valid.first_file) {
                Some(index) => self.valid.write(index, &mut hands.name),
                None => self.train.write(file, &mut hands.name),
            }
            self.roster.begin(writer, self.pass.operation(), hands.name.as_str());
            // After a panic the other threads must stop, too.
            let outcome = catch_unwind(AssertUnwindSafe(|| self.treat(file, &mut hands)));
            let panicked = || Err(GenerateError::Panicked(hands.name.to_string()));
            if let Err(error) = outcome.unwrap_or_else(|_| panicked()) {
                self.fail(error);
            }
            self.roster.end(writer);
        }
        hands.done
    }

    fn treat(&self, file: u64, hands: &mut WriterState<'_>) -> Result<(), GenerateError> {
        let task = self.task;
        let WriterState { writer, name, scratch, reader, done } = hands;
        let bytes = match (self.pass, reader) {
            (FilePass::Write(claim), _) if !claim.rewrite && self.is_there(file, name)? => {
                done.files_kept += 1;
                task.data.file_bytes(file)
            }
            (FilePass::Check, _) if self.is_there(file, name)? => {
                done.files_kept += 1;
                task.data.file_bytes(file)
            }
            (FilePass::Check, _) => {
                // Relaxed: read after the threads have ended.
                self.incomplete.store(true, Ordering::Relaxed);
                self.abort.wish();
                return Ok(());
            }
            (FilePass::Verify, Some(reader)) => {
                let go_on = || {
                    self.roster.advance(*writer);
                    !self.is_over()
                };
                let bytes = verify::check_file(task, &self.content, file, name, reader, scratch, &go_on)?;
                done.bytes_verified += bytes;
                bytes
            }
            (pass, _) => {
                self.reopen(pass)?;
                let bytes = self.write(*writer, file, name, scratch)?;
                done.files_written += 1;
                done.bytes_written += bytes;
                bytes
            }
        };
        task.events.counters().add_files(1, bytes);
        Ok(())
    }

    /// Makes sure that the manifest does not say "complete" before the first file is written.
    fn reopen(&self, pass: FilePass) -> Result<(), GenerateError> {
        let mut reopened = self.reopened.lock().unwrap_or_else(PoisonError::into_inner);
        if let FilePass::Write(claim) = pass
            && claim.complete
            && !*reopened
        {
            claim::reopen(self.task, claim, &Hosts::only_this())?;
            *reopened = true;
        }
        Ok(())
    }

    /// Whether a file and its side files exist.
    fn is_there(&self, file: u64, name: &Name) -> Result<bool, GenerateError> {
        if let Some(present) = self.present {
            return Ok(present.contains(file));
        }
        let (task, files) = (self.task, self.task.store.files());
        if !files.size(name)?.is_some_and(|bytes| has_right_size(task, file, None, bytes)) {
            return Ok(false);
        }
        for (number, side) in task.format.sides().iter().enumerate() {
            let there = files.size(&side_name(name, *side))?;
            if !there.is_some_and(|bytes| has_right_size(task, file, Some((number, *side)), bytes)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes a file and, before it, its side files. Returns the total number of bytes.
    fn write(
        &self,
        writer: usize,
        file: u64,
        name: &Name,
        scratch: &mut Vec<u8>,
    ) -> Result<u64, GenerateError> {
        let task = self.task;
        let mut bytes = 0;
        for (number, side) in task.format.sides().iter().enumerate() {
            bytes += self.put(writer, &side_name(name, *side), |sink| {
                task.data.with_shape(file, |shape| task.format.encode_side(number, shape, sink))
            })?;
        }
        let data = self.put(writer, name, |sink| {
            task.data.with_shape(file, |shape| task.format.encode(shape, &self.content, file, scratch, sink))
        })?;
        Ok(bytes + data)
    }

    /// Writes one file with the bytes that `encode` produces.
    fn put(
        &self,
        thread: usize,
        name: &Name,
        encode: impl FnOnce(&mut Sink<'_>) -> Result<(), EncodeError>,
    ) -> Result<u64, GenerateError> {
        let files = self.task.store.files();
        let mut writer = files.create(name)?;
        let mut refused: Option<StoreError> = None;
        let mut written = 0;
        let encoded = encode(&mut |bytes| {
            if self.is_over() {
                return Err(std::io::Error::other("interrupted"));
            }
            written += bytes.len() as u64;
            self.roster.advance(thread);
            self.claim_check.check(files).and_then(|()| writer.write(bytes)).map_err(|error| {
                refused = Some(error);
                std::io::Error::other("refused by the store")
            })
        });
        match (refused, encoded) {
            (Some(error), _) => Err(error.into()),
            (None, Err(EncodeError::Shape(error))) => Err(error.into()),
            (None, Err(EncodeError::Sink(_))) => Err(GenerateError::Interrupted),
            (None, Ok(())) => writer.finish().map(|()| written).map_err(GenerateError::from),
        }
    }
}

#[cfg(test)]
mod tests;
