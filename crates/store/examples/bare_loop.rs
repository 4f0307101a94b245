//! The yardstick for reading whole small files: open, read, close and nothing else, on a number of threads, each file
//! once per round in a shuffled order. `bare_loop FOLDER THREADS ROUNDS` prints files per second of each round.

#![expect(clippy::print_stdout, reason = "a measuring program: this is its output")]

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Larger than any file it is used on, so that one read brings a file.
const BUFFER_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: bare_loop FOLDER THREADS ROUNDS";
    let folder = PathBuf::from(arguments.next().ok_or(usage)?);
    let threads: usize = arguments.next().ok_or(usage)?.parse()?;
    let rounds: u64 = arguments.next().ok_or(usage)?.parse()?;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.sort();
    for round in 0..rounds {
        files.sort_by_cached_key(|path| model::order::mix(round, hash(path)));
        let begin = Instant::now();
        let bytes = read_all(&files, threads)?;
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{:.1} files/s {:.1} MiB/s",
            files.len() as f64 / seconds,
            bytes as f64 / seconds / f64::from(1 << 20)
        );
    }
    Ok(())
}

fn hash(path: &std::path::Path) -> u64 {
    path.as_os_str().as_encoded_bytes().iter().fold(0, |hash, byte| model::order::mix(hash, u64::from(*byte)))
}

fn read_all(files: &[PathBuf], threads: usize) -> std::io::Result<u64> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut bytes = 0;
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            bytes += File::open(path)?.read(&mut buffer)? as u64;
        }
        Ok(bytes)
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or(Ok(0))).sum()
    })
}
