//! What marks of Python change: epochs, batches, waits, workers, fetches.

use model::units::Nanos;

use super::epoch::OpenFetch;
use super::processes::WorkerOf;
use super::rank::{RankState, describe};
use super::{Aggregate, EventPlace};
use crate::event::{ProcessIndex, SeenCall};
use crate::layout::Mark;

impl Aggregate {
    pub(super) fn mark(&mut self, process: ProcessIndex, event: &SeenCall) {
        let at = event.start_ns;
        let (a, b, c) = (event.file as i64, event.offset, event.asked as i64);
        let number = u64::try_from(a).unwrap_or(0);
        let Some(kind) = mark_of(event.kind) else { return };
        match kind {
            Mark::Loader => {
                let rank = self.rank(process);
                if let Some(rank) = self.ranks.get_mut(rank) {
                    describe(&mut rank.loader(number).row, b as u64, c as u64);
                }
            }
            Mark::EpochBegin => {
                let rank = self.rank(process);
                self.close(rank, number, at, false);
                if let Some(rank) = self.ranks.get_mut(rank) {
                    rank.begin(number, at, event.tid);
                }
                self.bases(rank, number);
            }
            Mark::EpochEnd => {
                let rank = self.rank(process);
                self.close(rank, number, at, true);
            }
            Mark::WaitBegin | Mark::WaitEnd | Mark::Step => self.wait(process, kind, at, (number, b, c)),
            Mark::Worker => self.worker(process, number, at),
            Mark::FetchBegin => {
                if let Some(process) = self.processes.get_mut(process) {
                    process.fetch = Some(OpenFetch::begin(at));
                }
            }
            Mark::FetchEnd => self.fetched(process, at, number),
            Mark::Site => {
                if let Some(process) = self.processes.get_mut(process) {
                    process.site = Some(number);
                }
            }
            Mark::Checkpoint => {
                let place = self.place_of(process);
                match place {
                    EventPlace::Epoch(..) => {
                        if let Some(epoch) = self.epoch_at(place) {
                            epoch.checkpoint(event.tid, at, a == 1);
                        }
                    }
                    EventPlace::Rank(rank) => {
                        if let Some(rank) = self.ranks.get_mut(rank) {
                            rank.between.mark(event.tid, at, a == 1);
                        }
                    }
                    EventPlace::Nowhere => {}
                }
            }
            Mark::Context => {
                let rank = self.rank(process);
                if let Some(loader) = self.ranks.get_mut(rank).map(|rank| rank.loader(number)) {
                    loader.context(b, c as u64);
                }
            }
            Mark::Content => {
                let rank = self.rank(process);
                if let Some(epoch) = self.epoch_at(EventPlace::Epoch(rank, number)) {
                    epoch.batches.add([b as u64, c as u64]);
                }
            }
            Mark::Prepared | Mark::Modules => {}
        }
    }

    /// The rank that a process is from now on.
    fn rank(&mut self, process: ProcessIndex) -> usize {
        let rank = self.processes.make_rank(process);
        while self.ranks.len() <= rank {
            self.ranks.push(RankState::new(self.ranks.len(), process));
        }
        self.coverage.marks = true;
        rank
    }

    fn wait(&mut self, process: ProcessIndex, kind: Mark, at: u64, (loader, b, c): (u64, i64, i64)) {
        let rank = self.rank(process);
        let Some(rank) = self.ranks.get_mut(rank) else { return };
        let Some(epoch) = rank.loaders.get_mut(&loader).and_then(|loader| loader.epoch.as_mut()) else {
            return;
        };
        match kind {
            Mark::WaitBegin => epoch.wait_begins(at, c),
            // Steps of a compiled loop: a step begins when its batch is there.
            Mark::Step if c == 0 => epoch.wait_begins(at, -1),
            Mark::WaitEnd if b < 0 => {}
            _ => {
                rank.has_batch = true;
                let samples = if kind == Mark::WaitEnd { u64::try_from(c).ok() } else { None };
                epoch.wait_ends(at, samples);
            }
        }
    }

    /// A process says that it is a worker: of the loader that began an epoch last.
    fn worker(&mut self, process: ProcessIndex, number: u64, at: u64) {
        let Some(rank) = self.processes.rank_of(process) else { return };
        let Some(loader) = self.ranks.get(rank).and_then(RankState::innermost) else { return };
        let Some(state) = self.processes.get_mut(process) else { return };
        state.worker = Some(WorkerOf { rank, loader, number });
        let (pid, start) = (state.row.pid, state.row.start_ns);
        let base = (state.latest.cpu_ns, state.latest.run_queue_ns);
        let code_opens = state.row.code_opens;
        let Some(loader) = self.ranks.get_mut(rank).and_then(|rank| rank.loaders.get_mut(&loader)) else {
            return;
        };
        loader.row.worker_starts += 1;
        if let Some(epoch) = &mut loader.epoch {
            let row = &mut epoch.worker(number, pid).row;
            row.started = true;
            row.code_opens = code_opens;
            row.start_ns = Some(Nanos(at).since(start));
            epoch.worker_base(number, base);
        }
    }

    /// Workers that stay alive had used CPU time before the epoch.
    fn bases(&mut self, rank: usize, loader: u64) {
        let mut known = Vec::new();
        for index in 0..self.processes.len() {
            let Some(process) = self.processes.get(index).filter(|process| process.is_alive) else {
                continue;
            };
            let Some(worker) = process.worker.filter(|worker| (worker.rank, worker.loader) == (rank, loader))
            else {
                continue;
            };
            known.push((
                worker.number,
                process.row.pid,
                (process.latest.cpu_ns, process.latest.run_queue_ns),
            ));
        }
        let Some(epoch) = self.epoch_at(EventPlace::Epoch(rank, loader)) else { return };
        for (number, pid, base) in known {
            epoch.worker(number, pid);
            epoch.worker_base(number, base);
        }
    }

    fn fetched(&mut self, process: ProcessIndex, at: u64, samples: u64) {
        let place = self.place_of(process);
        let Some(state) = self.processes.get_mut(process) else { return };
        let Some(fetch) = state.fetch.take() else { return };
        let worker = state.worker.map(|worker| (worker.number, state.row.pid));
        if let (EventPlace::Epoch(..), Some(epoch)) = (place, self.epoch_at(place)) {
            epoch.fetched(at, &fetch, samples, worker);
        }
    }
}

fn mark_of(kind: u8) -> Option<Mark> {
    use Mark::*;
    let all = [
        Loader, EpochBegin, WaitBegin, WaitEnd, EpochEnd, Worker, FetchBegin, FetchEnd, Site, Prepared, Step,
        Checkpoint, Modules, Context, Content,
    ];
    all.into_iter().find(|mark| *mark as u8 == kind)
}
