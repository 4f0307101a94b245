//! Reads all files of a folder through the lanes of a store, each once per round in a shuffled order, and prints files
//! and MiB per second and CPU time of each round. `many FOLDER STORE READERS THREADS ROUNDS`; `uring+odirect` selects
//! O_DIRECT for a store that supports both. Reads are of at most 1 MiB.

#![expect(clippy::print_stdout, reason = "a measuring program: this is its output")]

extern crate feedline_store as store;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use model::extent::Extent;
use model::names::Name;
use model::units::Nanos;
use store::{Fetch, FetchWait, Mode, Now, Purpose, Selection, Store, Threads, Traffic};

struct Clock(Instant);

impl Now for Clock {
    fn now(&self) -> Nanos {
        Nanos(self.0.elapsed().as_nanos() as u64)
    }
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let usage = "usage: many FOLDER STORE READERS THREADS ROUNDS";
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or(usage);
    let (folder, store) = (next()?, next()?);
    let (readers, threads, rounds): (usize, usize, u64) =
        (next()?.parse()?, next()?.parse()?, next()?.parse()?);
    let (store, odirect) =
        store.strip_suffix("+odirect").map_or((store.as_str(), false), |store| (store, true));
    let selection =
        Selection::named(store, Mode { odirect, ..Mode::default() }).map_err(|error| error.to_string())?;
    let threads = if selection.plan().threads == Threads::PerReader { readers } else { threads };
    let store = selection.open(Path::new(&folder))?;
    println!("{:?}", store.observed());
    let mut files = list(&folder)?;
    for round in 0..rounds {
        files.sort_by_cached_key(|(name, _)| model::order::mix(round, hash(name)));
        let (begin, cpu) = (Instant::now(), cpu_seconds());
        let bytes = read_all(&*store, &files, readers / threads, threads)?;
        let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        println!(
            "{:.0} files/s {:.0} MiB/s {:.3} CPU s/GB",
            files.len() as f64 / seconds,
            bytes as f64 / seconds / f64::from(1 << 20),
            cpu / bytes as f64 * 1e9
        );
    }
    Ok(())
}

fn list(folder: &str) -> Outcome<Vec<(Name, u64)>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| {
        let entry = entry?;
        let name = entry.file_name().to_str().and_then(Name::new).ok_or("a name is not valid text")?;
        Ok((name, entry.metadata()?.len()))
    });
    entries.collect()
}

fn hash(name: &Name) -> u64 {
    name.as_bytes().iter().fold(0, |hash, byte| model::order::mix(hash, u64::from(*byte)))
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn read_all(store: &dyn Store, files: &[(Name, u64)], readers: usize, threads: usize) -> Outcome<u64> {
    let next = AtomicUsize::new(0);
    let clock = Clock(Instant::now());
    std::thread::scope(|scope| {
        let work = || read_some(store, files, readers, &next, &clock);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err("a thread panicked".into()))).sum()
    })
}

/// The loop of one thread: all its readers have a fetch in flight while there are files.
fn read_some(
    store: &dyn Store,
    files: &[(Name, u64)],
    readers: usize,
    next: &AtomicUsize,
    clock: &Clock,
) -> Outcome<u64> {
    let go_on = AtomicBool::new(false);
    let transfer = files.iter().map(|(_, bytes)| *bytes).max().unwrap_or(1).min(1 << 20) as usize;
    let mut lane = store.lane(Traffic { readers, transfer, clock, give_up: &go_on, ..Traffic::untimed() })?;
    let mut free: Vec<usize> = (0..readers).collect();
    let mut bytes = 0;
    loop {
        // Relaxed: the counter only distributes numbers and publishes no other data.
        while let Some(reader) = free.pop() {
            let Some((name, len)) = files.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let ranges = [Extent { offset: 0, len: *len }];
            let (purpose, file_bytes, at) = (Purpose::Samples(0), *len, clock.now());
            let (ranges, keep_open, version, into) = (&ranges, false, None, None);
            let fetch = Fetch { name, purpose, ranges, file_bytes, version, keep_open, at, into };
            lane.submit(reader, fetch);
        }
        match (lane.reap(), lane.awaits()) {
            (Some(done), _) => {
                bytes += done.outcome?.bytes;
                free.push(done.reader);
            }
            (None, FetchWait::Nothing) => return Ok(bytes),
            (None, _) => lane.wait(Nanos(100_000_000)),
        }
    }
}
