//! The reference for reading whole small files: open, read, close and nothing else, on a number of threads, each file
//! once per round in a shuffled order. `bare_loop FOLDER THREADS ROUNDS [direct]` prints files and MiB per second and
//! CPU time of each round; `direct` bypasses the page cache. Names and sizes are known before the clock starts.

#![expect(clippy::print_stdout, reason = "a measuring program: this is its output")]

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

/// Alignment of buffers and reads: a multiple of what any file system requires for O_DIRECT.
const PAGE: usize = 4096;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A file, and its size in whole pages, so that one read is enough.
struct File {
    name: CString,
    room: usize,
}

struct Folder {
    root: OwnedFd,
    flags: OFlags,
    files: Vec<File>,
}

fn main() -> Outcome<()> {
    let usage = "usage: bare_loop FOLDER THREADS ROUNDS [direct]";
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or(usage);
    let path = next()?;
    let (threads, rounds): (usize, u64) = (next()?.parse()?, next()?.parse()?);
    let past_cache = match arguments.next().as_deref() {
        None => OFlags::empty(),
        Some("direct") => OFlags::DIRECT,
        Some(_) => return Err(usage.into()),
    };
    let mut folder = Folder {
        root: rustix::fs::open(&*path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?,
        flags: OFlags::RDONLY | OFlags::CLOEXEC | past_cache,
        files: list(&path)?,
    };
    for round in 0..rounds {
        folder.files.sort_by_cached_key(|file| model::order::mix(round, hash(&file.name)));
        let (begin, cpu) = (Instant::now(), cpu_seconds());
        let bytes = read_all(&folder, threads)?;
        let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        println!(
            "{:.1} files/s {:.1} MiB/s {:.4} CPU s/GB",
            folder.files.len() as f64 / seconds,
            bytes as f64 / seconds / f64::from(1 << 20),
            cpu / bytes as f64 * 1e9
        );
    }
    Ok(())
}

fn list(path: &str) -> Outcome<Vec<File>> {
    let entries = std::fs::read_dir(path)?.map(|entry| {
        let entry = entry?;
        let bytes = entry.metadata()?.len() as usize;
        Ok(File { name: CString::new(entry.file_name().into_vec())?, room: bytes.next_multiple_of(PAGE) })
    });
    entries.collect()
}

fn hash(name: &CString) -> u64 {
    name.as_bytes().iter().fold(0, |hash, byte| model::order::mix(hash, u64::from(*byte)))
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn read_all(folder: &Folder, threads: usize) -> Outcome<u64> {
    let next = AtomicUsize::new(0);
    let room = folder.files.iter().map(|file| file.room).max().unwrap_or(0);
    std::thread::scope(|scope| {
        let work = || read_some(folder, room, &next);
        let readers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or(Err("a thread panicked".into()))).sum()
    })
}

/// The loop of one thread: reads the next file while there is one.
fn read_some(folder: &Folder, room: usize, next: &AtomicUsize) -> Outcome<u64> {
    let mut memory = vec![0; room + PAGE];
    let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
    let buffer = &mut memory[start..start + room];
    let mut bytes = 0;
    // Relaxed: the counter only distributes numbers and publishes no other data.
    while let Some(file) = folder.files.get(next.fetch_add(1, Ordering::Relaxed)) {
        let open = rustix::fs::openat(&folder.root, &file.name, folder.flags, Mode::empty())?;
        bytes += rustix::io::read(&open, &mut buffer[..file.room])? as u64;
    }
    Ok(bytes)
}
