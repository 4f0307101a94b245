//! From the stream of events and samples to [`Observed`], in bounded memory: exact counts, and details of a uniform
//! sample of the files.

mod again;
mod batches;
mod epoch;
mod faults;
mod files;
mod flight;
mod kernel;
mod marks;
mod pages;
mod passes;
mod places;
mod processes;
mod ranges;
mod rank;
mod visits;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use model::observed::{EpochRow, IoCounts, LoaderRow, Observed, OutsideRow, SiteRow, Visibility};
use model::units::Nanos;

use self::epoch::{Epoch, add_call};
use self::files::FileTable;
use self::kernel::Kernel;
use self::passes::Passes;
use self::processes::{Processes, file_of};
use self::rank::RankState;
use crate::event::{
    EventSink, MissedFaults, PageFault, ProcessEnd, ProcessIndex, ProcessStart, Sample, SeenCall,
};
use crate::layout::{CODE, DIRECT, FdKind, INHERITED, Op, POSITIONED, TextKind};
use crate::observe::{AuditProgress, Paths};

/// Rows of epochs in a result.
const MOST_EPOCHS: usize = 1000;
/// Call sites, texts of them and notes that are kept.
const MOST_SITES: usize = 1024;
const MOST_NOTES: usize = 32;

/// Where an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventPlace {
    /// An epoch of a loader of a rank.
    Epoch(usize, u64),
    /// A rank, outside of its epochs.
    Rank(usize),
    /// A process without a rank.
    Nowhere,
}

/// Everything that was observed so far.
#[derive(Debug)]
pub struct Aggregate {
    paths: Paths,
    processes: Processes,
    files: FileTable,
    ranks: Vec<RankState>,
    /// Epochs that ended and wait for the counts of the kernel.
    closing: Vec<Epoch>,
    rows: Vec<EpochRow>,
    epochs_cut: u64,
    /// Passes over the files, as long as nothing marks epochs.
    passes: Passes,
    kernel: Kernel,
    site_texts: HashMap<(ProcessIndex, u64), String>,
    sites: BTreeMap<String, u64>,
    coverage: Visibility,
    /// Whether page faults are observed.
    observes_faults: bool,
    now: u64,
}

impl Aggregate {
    pub fn new(paths: Paths) -> Aggregate {
        Aggregate {
            paths,
            processes: Processes::default(),
            files: FileTable::default(),
            ranks: Vec::new(),
            closing: Vec::new(),
            rows: Vec::new(),
            epochs_cut: 0,
            passes: Passes::default(),
            kernel: Kernel::default(),
            site_texts: HashMap::new(),
            sites: BTreeMap::new(),
            coverage: Visibility::default(),
            observes_faults: false,
            now: 0,
        }
    }

    /// The most of /dev/shm that was used, and the bytes of refaults.
    pub fn kernel_counts(&self) -> (Option<u64>, Option<u64>) {
        (self.kernel.shm_used, self.kernel.refault)
    }

    /// What is known so far, for a progress line.
    pub fn progress(&self, elapsed_ns: u64) -> AuditProgress {
        let epochs = self
            .ranks
            .iter()
            .flat_map(|rank| rank.loaders.values())
            .filter_map(|loader| loader.epoch.as_ref());
        let (epoch, open) = epochs.fold((None, 0), |(most, batches), epoch| {
            (most.max(Some(epoch.row.epoch)), batches + epoch.row.batches)
        });
        let closed: u64 = self.rows.iter().map(|row| row.batches).sum();
        AuditProgress {
            elapsed_ns: Nanos(elapsed_ns),
            epoch: epoch.or(self.rows.last().map(|row| row.epoch)),
            batches: open + closed,
            bytes: self.kernel.read_bytes(),
            processes: self.processes.alive() as u64,
        }
    }

    fn place_of(&mut self, process: ProcessIndex) -> EventPlace {
        if let Some(worker) = self.processes.get(process).and_then(|process| process.worker) {
            let has_epoch = |rank: &RankState| {
                rank.loaders.get(&worker.loader).is_some_and(|loader| loader.epoch.is_some())
            };
            return match self.ranks.get(worker.rank) {
                Some(rank) if has_epoch(rank) => EventPlace::Epoch(worker.rank, worker.loader),
                Some(_) => EventPlace::Rank(worker.rank),
                None => EventPlace::Nowhere,
            };
        }
        let Some(rank) = self.processes.rank_of(process) else { return EventPlace::Nowhere };
        match self.ranks.get(rank).and_then(RankState::innermost) {
            Some(loader) => EventPlace::Epoch(rank, loader),
            None => EventPlace::Rank(rank),
        }
    }

    fn epoch_at(&mut self, place: EventPlace) -> Option<&mut Epoch> {
        match place {
            EventPlace::Epoch(rank, loader) => {
                self.ranks.get_mut(rank)?.loaders.get_mut(&loader)?.epoch.as_mut()
            }
            EventPlace::Rank(_) => None,
            EventPlace::Nowhere => Some(self.passes.current(self.now)),
        }
    }

    fn close(&mut self, rank: usize, loader: u64, at: u64, complete: bool) {
        let Some(state) = self.ranks.get_mut(rank) else { return };
        let Some(mut epoch) = state.end(loader, at, complete) else { return };
        epoch.finish_files(&self.files, self.paths, self.observes_faults);
        let places = std::mem::take(&mut epoch.places);
        epoch.row.files.passes = places.passes();
        epoch.row.files.order_by_name = places.correlation_with(self.files.by_name());
        let batches = std::mem::take(&mut epoch.batches);
        let loader = state.loader(loader);
        (epoch.row.batches_compared, epoch.row.batches_equal) = batches.compare(&loader.batches_before);
        loader.batches_before = batches;
        if let Some(before) = &loader.before {
            places.compare(before).show(&mut epoch.row.files);
        }
        // An epoch that reads nothing leaves the order of the one before.
        if !places.is_empty() {
            loader.before = Some(places);
        }
        self.closing.push(epoch);
    }

    fn take_closed(&mut self, sample: Option<&Sample>) {
        for mut epoch in std::mem::take(&mut self.closing) {
            self.kernel.end(&mut epoch, sample);
            epoch.last_mappings(sample, self.observes_faults);
            if self.rows.len() < MOST_EPOCHS {
                self.rows.push(epoch.into_row());
            } else {
                self.epochs_cut += 1;
            }
        }
    }

    /// A call on a data file.
    fn data(&mut self, process: ProcessIndex, event: &SeenCall, is_sequential: bool, offset: Option<u64>) {
        let file = file_of(event);
        let is_read = matches!(event.op, Op::Read | Op::BufferedRead);
        if is_read {
            self.kernel.asked(event.device, event.bytes());
        }
        let keeps = event.file != 0 && self.files.keeps(file);
        if keeps {
            let end = offset.unwrap_or(0).saturating_add(event.bytes());
            let is_smaller = match event.op {
                Op::Open if event.result >= 0 => {
                    self.files.opened(file, offset.unwrap_or(0), event.flags & DIRECT != 0)
                }
                Op::Read | Op::BufferedRead if event.result > 0 => self.files.read(file, end),
                _ => false,
            };
            if is_smaller {
                self.thin();
            }
        }
        if event.op == Op::Open && event.result >= 0 {
            self.site(process);
        }
        let place = self.place_of(process);
        let opens = place == EventPlace::Nowhere && keeps && event.op == Op::Open && event.result >= 0;
        if opens && let Some(pass) = self.passes.opened(process, file, event.start_ns) {
            self.end_pass(pass);
        }
        let Some(state) = self.processes.get_mut(process) else { return };
        if let Some(fetch) = &mut state.fetch {
            fetch.call(event);
        }
        let worker = state.worker.map(|worker| (worker.number, state.row.pid));
        if let EventPlace::Rank(rank) = place {
            self.outside(rank, event, is_sequential);
            if let Some(rank) = self.ranks.get_mut(rank).filter(|rank| rank.process == process) {
                rank.between.call(event);
            }
            return;
        }
        let Some(epoch) = self.epoch_at(place) else { return };
        if matches!(event.op, Op::Map | Op::Unmap) {
            epoch.mappings.call(process, event.op);
        }
        epoch.call(process, event, is_sequential, worker);
        let is_shared = event.flags & INHERITED != 0 && event.flags & POSITIONED == 0;
        if is_read && is_shared && event.flags & crate::layout::WRITABLE == 0 {
            epoch.visits.shared_offset(process, file);
        }
        if is_read && event.result > 0 && !is_sequential {
            let reader = worker.map_or(u32::MAX - process as u32, |(number, _)| number as u32);
            epoch.places.read(event.file, offset.unwrap_or(0), reader);
        } else if event.op == Op::Read && event.result > 0 && offset == Some(0) {
            let reader = worker.map_or(u32::MAX - process as u32, |(number, _)| number as u32);
            epoch.places.read(event.file, 0, reader);
        }
        match event.op {
            Op::Open if keeps && event.result >= 0 => epoch.visits.opened(process, file),
            Op::Read | Op::BufferedRead if keeps && event.result > 0 => {
                // The position of a shared descriptor is not known.
                let offset = offset.filter(|_| !is_shared);
                epoch.visits.read(process, file, offset, event.bytes());
            }
            _ => {}
        }
    }

    fn outside(&mut self, rank: usize, event: &SeenCall, is_sequential: bool) {
        let Some(rank) = self.ranks.get_mut(rank) else { return };
        let counts = if rank.has_begun { &mut rank.outside.after } else { &mut rank.outside.before };
        add_call(counts, event, is_sequential);
    }

    fn listed(&mut self, process: ProcessIndex, event: &SeenCall) {
        let folder = file_of(event);
        match self.place_of(process) {
            EventPlace::Rank(rank) => {
                self.outside(rank, event, false);
                if let Some(rank) = self.ranks.get_mut(rank) {
                    rank.outside.listings += 1;
                    rank.listed(folder);
                }
            }
            place => {
                if let Some(epoch) = self.epoch_at(place) {
                    epoch.visits.listed(process, folder);
                    add_call(&mut epoch.row.io, event, false);
                }
            }
        }
    }

    /// The call site that the process marked before it opened a file.
    fn site(&mut self, process: ProcessIndex) {
        let Some(site) = self.processes.get_mut(process).and_then(|process| process.site.take()) else {
            return;
        };
        let known =
            self.processes.ancestors(process).find_map(|process| self.site_texts.get(&(process, site)));
        let Some(text) = known else { return };
        if self.sites.len() < MOST_SITES || self.sites.contains_key(text) {
            *self.sites.entry(text.clone()).or_default() += 1;
        }
    }

    fn thin(&mut self) {
        let bits = self.files.bits();
        for loader in self.ranks.iter_mut().flat_map(|rank| rank.loaders.values_mut()) {
            if let Some(epoch) = &mut loader.epoch {
                epoch.visits.thin(bits);
            }
        }
        self.passes.current(self.now).visits.thin(bits);
    }

    fn end_pass(&mut self, mut pass: Epoch) {
        pass.finish_files(&self.files, self.paths, self.observes_faults);
        self.passes.keep(pass);
    }

    /// The document, except for what only the source knows.
    pub fn finish(mut self) -> Observed {
        let end = self.now;
        for rank in 0..self.ranks.len() {
            let loaders: Vec<u64> =
                self.ranks.get(rank).map(|rank| rank.loaders.keys().copied().collect()).unwrap_or_default();
            loaders.into_iter().for_each(|loader| self.close(rank, loader, end, false));
        }
        self.take_closed(None);
        let last = self.passes.take(end);
        let mut outside: Vec<OutsideRow> = Vec::new();
        if let Some(last) = last {
            self.end_pass(last);
        }
        let (pass_rows, pass_counts) = std::mem::take(&mut self.passes).into_rows();
        let mut loaders: Vec<LoaderRow> = Vec::new();
        if self.ranks.is_empty() {
            self.rows = pass_rows;
            if !self.rows.is_empty() {
                loaders.push(LoaderRow::default());
            }
        } else if pass_counts != IoCounts::default() {
            outside.push(OutsideRow { before: pass_counts, ..OutsideRow::default() });
        }
        for rank in self.ranks {
            let folders = rank.folders.len() as u64;
            outside.push(OutsideRow { folders, ..rank.outside });
            loaders.extend(rank.loaders.into_values().map(|loader| loader.row));
        }
        if self.epochs_cut > 0 {
            self.coverage.notes.push(format!("{} further epochs are not listed", self.epochs_cut));
        }
        self.rows.sort_by_key(|row| (row.begin_ns, row.rank, row.loader));
        let mut files = self.files.figures(self.paths);
        files.samples_per_file = samples_per_file(&self.rows);
        let mut sites: Vec<SiteRow> =
            self.sites.into_iter().map(|(place, opens)| SiteRow { place, opens }).collect();
        sites.sort_by(|one, other| other.opens.cmp(&one.opens).then_with(|| one.place.cmp(&other.place)));
        sites.truncate(MOST_SITES / 16);
        if self.paths == Paths::None {
            sites.clear();
        }
        self.coverage.processes_seen = self.processes.len() as u64;
        Observed {
            coverage: self.coverage,
            processes: self.processes.into_rows(),
            loaders,
            epochs: self.rows,
            outside,
            files,
            storage: self.kernel.storage(),
            sites,
            ..Observed::default()
        }
    }
}

impl EventSink for Aggregate {
    fn process(&mut self, start: &ProcessStart) {
        self.processes.start(start);
    }

    fn event(&mut self, process: ProcessIndex, event: &SeenCall) {
        self.now = self.now.max(event.end_ns());
        self.coverage.events += 1;
        if event.op == Op::Mark {
            self.mark(process, event);
            return;
        }
        let Some(state) = self.processes.get_mut(process) else { return };
        let (is_sequential, offset) = state.call(event);
        if event.is_data() {
            self.data(process, event, is_sequential, offset);
        } else if event.op == Op::List && event.flags & CODE == 0 {
            self.listed(process, event);
        } else if event.kind == FdKind::Pipe as u8 && event.op == Op::Write {
            let rank = self.processes.rank_of(process).and_then(|rank| self.ranks.get(rank));
            if rank.is_none_or(|rank| !rank.has_batch) {
                self.processes.early_pipe(process, event);
            }
        }
    }

    fn text(&mut self, process: ProcessIndex, kind: TextKind, id: u64, device: u32, text: &str) {
        match kind {
            TextKind::Path => self.files.named((device, id), text),
            TextKind::Site if self.site_texts.len() < MOST_SITES => {
                self.site_texts.insert((process, id), text.to_owned());
            }
            TextKind::Note => {
                let notes = &mut self.coverage.notes;
                if notes.len() < MOST_NOTES && !notes.iter().any(|note| note == text) {
                    notes.push(text.to_owned());
                }
            }
            _ => {}
        }
    }

    fn sample(&mut self, sample: &Sample) {
        self.now = self.now.max(sample.at_ns);
        self.kernel.sample(sample);
        for counts in &sample.processes {
            let index = counts.process;
            let inherited = self.processes.inherited(index);
            let Some(process) = self.processes.get_mut(index) else { continue };
            let before = process.latest.mapped.map_or(0, |(_, resident)| resident);
            process.sample(sample.at_ns, counts, inherited);
            let worker = process.worker;
            let place = self.place_of(index);
            if let Some(epoch) = self.epoch_at(place) {
                if let Some(worker) = worker {
                    epoch.worker_sample(worker.number, counts);
                }
                if let Some(mapped) = counts.mapped {
                    epoch.mappings.sample(index, mapped, before);
                }
            }
        }
        for epoch in self
            .ranks
            .iter_mut()
            .flat_map(|rank| rank.loaders.values_mut())
            .filter_map(|loader| loader.epoch.as_mut())
        {
            self.kernel.begin(epoch, sample);
        }
        self.take_closed(Some(sample));
    }

    fn fault(&mut self, process: ProcessIndex, fault: &PageFault) {
        self.now = self.now.max(fault.at_ns);
        self.page_fault(process, fault);
    }

    fn faults_missed(&mut self, missed: &MissedFaults) {
        self.missed_faults(missed);
    }

    fn end(&mut self, process: ProcessIndex, end: &ProcessEnd) {
        self.now = self.now.max(end.end_ns);
        self.coverage.events_dropped += end.events_dropped;
        self.coverage.untracked_calls += end.untracked_calls;
        self.coverage.uring_processes += u64::from(end.uring);
        self.processes.end(process, end);
    }

    fn sample_bits(&self) -> u32 {
        self.files.bits()
    }
}

/// Samples per file: the median over epochs.
fn samples_per_file(rows: &[EpochRow]) -> Option<f64> {
    let mut found: Vec<f64> = rows
        .iter()
        .filter(|row| row.files.sampled > 0 && row.files.share > 0.0)
        .filter_map(|row| Some(row.samples? as f64 / (row.files.sampled as f64 / row.files.share)))
        .collect();
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied()
}
