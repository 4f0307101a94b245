//! Many files and many processes: counts stay exact, estimates near, memory bounded.

use super::*;
use crate::layout::Mark;

/// What feedline may use for an audit.
const MOST_MEMORY: u64 = 256 << 20;

/// The most memory that this process has used. Each test runs in a process of its own.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

fn call(op: Op, at: u64, file: u64, fd: i32, result: i64) -> SeenCall {
    let (kind, offset) = (FdKind::Regular as u8, if op == Op::Open { 1000 } else { 0 });
    let start_ns = at;
    SeenCall {
        op,
        kind,
        flags: 0,
        tid: 1,
        fd,
        start_ns,
        duration_ns: 1,
        file,
        device: 1,
        offset,
        asked: 1000,
        result,
    }
}

/// A job that is not there.
struct Simulated {
    aggregate: Aggregate,
    at: u64,
}

impl Simulated {
    fn new(processes: u32) -> Simulated {
        let mut job = Simulated { aggregate: Aggregate::new(Paths::Examples), at: 0 };
        (0..processes).for_each(|number| job.start(number));
        job
    }

    fn start(&mut self, number: u32) {
        let (pid, parent) = (1000 + number, if number == 0 { 1 } else { 1000 });
        let command = "python train.py --with several --arguments".to_owned();
        let start = ProcessStart {
            pid,
            parent,
            start_ns: self.at,
            executed: true,
            command,
            ..ProcessStart::default()
        };
        self.aggregate.process(&start);
    }

    fn event(&mut self, process: usize, op: Op, file: u64, fd: i32, result: i64) {
        self.at += 2;
        self.aggregate.event(process, &call(op, self.at, file, fd, result));
    }

    /// Reads a file whole, as a process that the library observes.
    fn read(&mut self, process: usize, file: u64) {
        self.event(process, Op::Open, file, 7, 7);
        if crate::layout::is_kept(file, self.aggregate.sample_bits()) {
            let path = format!("/data/train/{:04}/{file:08}.jpg", file % 1000);
            self.aggregate.text(process, TextKind::Path, file, 1, &path);
        }
        self.event(process, Op::Read, file, 7, 1000);
        self.event(process, Op::Close, file, 7, 0);
    }

    fn end(&mut self, process: usize) {
        let end_ns = self.at;
        self.aggregate.end(process, &ProcessEnd { end_ns, ..ProcessEnd::default() });
    }

    fn epoch(&mut self, kind: Mark, number: i64) {
        let mark = SeenCall { kind: kind as u8, offset: number, ..call(Op::Mark, self.at, 0, -1, 0) };
        self.aggregate.event(0, &mark);
    }
}

#[track_caller]
fn within(value: u64, expected: u64, percent: u64) {
    assert!(value.abs_diff(expected) <= expected * percent / 100, "{value} instead of {expected}");
}

#[test]
fn ten_million_files_are_counted_in_bounded_memory() {
    const FILES: u64 = 10_000_000;
    const PROCESSES: u64 = 64;
    let mut job = Simulated::new(PROCESSES as u32);
    (0..FILES).for_each(|file| job.read((file % PROCESSES) as usize, 1 + file));
    (0..PROCESSES as usize).for_each(|process| job.end(process));
    let seen = job.aggregate.finish();
    for process in &seen.processes {
        let counts = [process.data.opens, process.data.reads, process.data.closes].map(|calls| calls.count);
        assert_eq!(counts, [FILES / PROCESSES; 3]);
        assert_eq!(process.data.reads.bytes, 1000 * FILES / PROCESSES);
    }
    within(seen.files.estimated, FILES, 2);
    within(seen.files.bytes, 1000 * FILES, 2);
    assert!(most_memory() <= MOST_MEMORY, "{} MiB", most_memory() >> 20);
}

#[test]
fn files_that_all_workers_read_in_all_epochs_take_bounded_memory() {
    const FILES: u64 = 60_000;
    const PROCESSES: usize = 32;
    let mut job = Simulated::new(PROCESSES as u32);
    for epoch in 0..3 {
        job.epoch(Mark::EpochBegin, epoch);
        for file in 0..FILES {
            (0..PROCESSES).for_each(|process| job.read(process, 1 + file));
        }
        job.epoch(Mark::EpochEnd, epoch);
    }
    let seen = job.aggregate.finish();
    assert_eq!((seen.epochs.len(), seen.files.estimated), (3, FILES));
    let of_epoch = seen.epochs.iter().map(|row| row.io.reads.count).collect::<Vec<_>>();
    assert_eq!(of_epoch, [FILES * PROCESSES as u64; 3]);
    assert!(most_memory() <= MOST_MEMORY, "{} MiB", most_memory() >> 20);
}

#[test]
fn a_hundred_thousand_processes_are_summed_up_in_bounded_memory() {
    const PROCESSES: usize = 100_000;
    let mut job = Simulated::new(1);
    for process in 1..=PROCESSES {
        job.start(process as u32);
        job.read(process, 1 + process as u64 % 500);
        job.end(process);
    }
    job.read(0, 1);
    job.end(0);
    let seen = job.aggregate.finish();
    assert_eq!(seen.coverage.processes_seen, PROCESSES as u64 + 1);
    let reads: u64 = seen.processes.iter().map(|process| process.data.reads.count).sum();
    assert_eq!(reads, PROCESSES as u64 + 1);
    assert!(seen.processes.len() <= 4096);
    assert_eq!(seen.processes.last().unwrap().command, "further processes");
    assert!(most_memory() <= MOST_MEMORY / 4, "{} MiB", most_memory() >> 20);
}
