//! Reads the rings of all processes and passes their events on in order of time.
//!
//! Of each process, only a window of events is held: the rest stays in its ring until its turn. The window is there
//! because threads of a process can write their events in another order than that in which their calls ended.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};

use super::calibrate::CallCosts;
use super::clock;
use super::faults::Faults;
use super::job::Reaped;
use super::memory::{RingEntry, RingMemory, SlotMemory, SlotStart, SlotTotals};
use super::noticed::Noticed;
use super::proc;
use super::sampler::SampledProcess;
use crate::event::{EventSink, ProcessEnd, ProcessIndex, ProcessStart, Sample, SeenCall};
use crate::layout::{Op, TextKind};

/// Events that are held of one process, and of all of them.
const WINDOW: usize = 4096;
const WINDOWS: usize = 256 << 10;
/// Processes whose whole rings may stay in memory: with more of them, what was read is given back.
const WHOLE_RINGS: usize = 16;
/// Processes that are looked up in /proc in one round.
const LOOKUPS: usize = 256;
/// An event that a living process does not complete within this time is skipped: its thread has left the call.
const STALLED_NS: u64 = 2_000_000_000;

/// What waits for its turn, by time.
#[derive(Debug, PartialEq, Eq)]
struct Waiting {
    at_ns: u64,
    /// Keeps the order of entries with the same time.
    number: u64,
    what: What,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    Start(Box<ProcessStart>),
    Event(SeenCall),
    Text { kind: TextKind, id: u64, device: u32, text: Box<str> },
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The end of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Gone {
    at_ns: u64,
    signal: Option<i32>,
}

/// One image of a process.
#[derive(Debug)]
struct Image {
    number: usize,
    memory: SlotMemory,
    pid: u32,
    /// From the start of the job.
    start_ns: u64,
    /// Its start according to /proc.
    identity: Option<u64>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    entries: u64,
    /// Set when its start was passed on.
    index: Option<ProcessIndex>,
    gone: Option<Gone>,
    exit_ns: Option<u64>,
    stalled_ns: Option<u64>,
    /// Whether it has mapped data files, or inherited such mappings.
    maps: bool,
}

/// Sums over the images that ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) recorded: u64,
    pub(super) calls: u64,
    pub(super) opens: u64,
    /// The largest share of the life of an image that observing it took.
    pub(super) share: f64,
}

/// All rings.
#[derive(Debug)]
pub(super) struct Drain<'a> {
    ring: &'a RingMemory,
    origin: u64,
    /// By number of the slot.
    images: BTreeMap<usize, Image>,
    processes: ProcessIndex,
    /// The time of what was passed on last.
    passed_ns: u64,
    samples: VecDeque<Sample>,
    faults: Faults,
    looked_up: usize,
    signals: HashMap<u32, i32>,
    costs: Option<CallCosts>,
    sums: Sums,
    noticed: Noticed,
    /// Slots for which this process had no address space: not observed.
    without_space: BTreeSet<usize>,
}

/// What one process may use of the memory of feedline, and of its own ring.
#[derive(Clone, Copy, Debug)]
struct RingShare {
    /// Events that are held.
    window: usize,
    /// Whether memory of the ring is given back.
    gives_back: bool,
}

impl RingShare {
    fn of(processes: usize) -> RingShare {
        let window = (WINDOWS / processes.max(1)).clamp(64, WINDOW);
        RingShare { window, gives_back: processes > WHOLE_RINGS }
    }
}

/// The start of the job and the present, of the clock.
#[derive(Clone, Copy, Debug)]
struct JobSpan {
    origin: u64,
    now: u64,
}

impl Image {
    fn new(number: usize, memory: SlotMemory, start: SlotStart, origin: u64) -> Image {
        let start_ns = start.started_ns.saturating_sub(origin);
        let stat = proc::stat(start.pid);
        let mut image = Image {
            number,
            memory,
            pid: start.pid,
            start_ns,
            identity: stat.map(|stat| stat.started),
            waiting: BinaryHeap::new(),
            entries: 0,
            index: None,
            gone: None,
            exit_ns: None,
            stalled_ns: None,
            maps: false,
        };
        let SlotStart { pid, parent, executed, command, rank, ranks, .. } = start;
        let start = ProcessStart { pid, parent, start_ns, executed, command, rank, ranks };
        image.wait(start_ns, What::Start(Box::new(start)));
        image
    }

    fn wait(&mut self, at_ns: u64, what: What) {
        self.entries += 1;
        self.waiting.push(Reverse(Waiting { at_ns, number: self.entries, what }));
    }

    fn next_ns(&self) -> Option<u64> {
        self.waiting.peek().map(|next| next.0.at_ns)
    }

    /// Takes events out of the ring until its share of them waits.
    fn fill(&mut self, ring: &RingMemory, share: RingShare, span: JobSpan, noticed: &mut Noticed) {
        let skips = self.gone.is_some() || self.is_stalled(span.now);
        let mut any = false;
        while self.waiting.len() < share.window {
            let Some(entry) = self.memory.next(skips) else { break };
            any = true;
            self.take(entry, span, noticed);
        }
        if any {
            self.stalled_ns = None;
            ring.release(self.number, &mut self.memory, share.gives_back);
        }
    }

    /// Whether the next event has been incomplete for long.
    fn is_stalled(&mut self, now: u64) -> bool {
        if !self.memory.is_behind() {
            self.stalled_ns = None;
            return false;
        }
        now.saturating_sub(*self.stalled_ns.get_or_insert(now)) > STALLED_NS
    }

    fn take(&mut self, entry: RingEntry, span: JobSpan, noticed: &mut Noticed) {
        // A time outside of the job's life is not one that the library wrote.
        let time =
            |at: u64| at.checked_sub(span.origin).filter(|_| at <= span.now.saturating_add(STALLED_NS));
        match entry {
            RingEntry::Nothing => {}
            RingEntry::Event(mut event) => {
                let Some(start_ns) = time(event.start_ns) else { return };
                event.start_ns = start_ns;
                if event.op == Op::Exit {
                    self.exit_ns = Some(event.end_ns());
                }
                self.maps |= noticed.event(&event);
                self.wait(event.end_ns(), What::Event(event));
            }
            RingEntry::Text { at_ns, kind, id, device, text } => {
                let Some(at_ns) = time(at_ns) else { return };
                if kind == TextKind::Program {
                    noticed.program(id, self.pid, at_ns, &text);
                }
                self.wait(at_ns, What::Text { kind, id, device, text });
            }
        }
    }

    /// Notices that the process is gone.
    fn look_up(&mut self, now_ns: u64) {
        let known = proc::stat(self.pid);
        if known.is_none() && proc::exists(self.pid) {
            // Hidden, or this process has no free descriptor: it may go on writing.
            return;
        }
        let stat = known.filter(|stat| Some(stat.started) == self.identity);
        if self.gone.is_none() && stat.is_none_or(|stat| stat.is_dead()) {
            let signal = stat.and_then(|stat| stat.signal);
            self.gone = Some(Gone { at_ns: self.exit_ns.unwrap_or(now_ns), signal });
        }
    }

    fn is_drained(&self) -> bool {
        self.gone.is_some() && self.waiting.is_empty() && !self.memory.is_behind()
    }
}

impl<'a> Drain<'a> {
    pub(super) fn new(
        ring: &'a RingMemory,
        faults: Faults,
        origin: u64,
        costs: Option<CallCosts>,
    ) -> Drain<'a> {
        Drain {
            ring,
            origin,
            images: BTreeMap::new(),
            processes: 0,
            passed_ns: 0,
            samples: VecDeque::new(),
            faults,
            looked_up: 0,
            signals: HashMap::new(),
            costs,
            sums: Sums::default(),
            noticed: Noticed::default(),
            without_space: BTreeSet::new(),
        }
    }

    pub(super) fn sums(&self) -> Sums {
        self.sums
    }

    /// Processes that took a slot which could not be read.
    pub(super) fn without_space(&self) -> usize {
        self.without_space.len()
    }

    pub(super) fn noticed(&mut self) -> &mut Noticed {
        &mut self.noticed
    }

    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Processes that exist and that the sink knows.
    pub(super) fn watched(&self) -> Vec<SampledProcess> {
        let living = self.images.values().filter(|image| image.gone.is_none());
        let one =
            |image: &Image| Some(SampledProcess { index: image.index?, pid: image.pid, maps: image.maps });
        living.filter_map(one).collect()
    }

    pub(super) fn add_samples(&mut self, samples: impl IntoIterator<Item = Sample>) {
        for sample in samples {
            self.faults.limit(sample.processes.iter().map(|process| process.threads).sum());
            self.samples.push_back(sample);
        }
    }

    /// Whether all processes are gone and everything was passed on.
    pub(super) fn is_done(&self) -> bool {
        self.images.is_empty()
    }

    /// A child of this process ended.
    pub(super) fn ended(&mut self, reaped: &Reaped) {
        if let Some(signal) = reaped.exit.signal {
            self.signals.insert(reaped.pid, signal);
        }
    }

    /// Finds new processes, and those that are gone.
    fn look(&mut self, now_ns: u64) {
        for number in self.ring.claimed() {
            if self.images.contains_key(&number) {
                continue;
            }
            let Ok(memory) = self.ring.slot(number) else {
                self.without_space.insert(number);
                continue;
            };
            let Some(start) = memory.start() else { continue };
            self.noticed.start(&start, self.origin);
            let parent = start.parent;
            let mut image = Image::new(number, memory, start, self.origin);
            image.maps = self.images.values().any(|other| other.pid == parent && other.maps);
            // `exec` ends the image before.
            for other in self.images.values_mut().filter(|other| other.pid == image.pid) {
                other.gone.get_or_insert(Gone { at_ns: image.start_ns, signal: None });
            }
            self.images.insert(number, image);
        }
        let count = self.images.len();
        let from = if self.looked_up >= count { 0 } else { self.looked_up };
        for image in self.images.values_mut().skip(from).take(LOOKUPS) {
            image.look_up(now_ns);
        }
        self.looked_up = from + LOOKUPS;
    }

    /// Reads all rings, and passes on what ended before `horizon` (a time of the clock, as `now`).
    pub(super) fn round(&mut self, sink: &mut dyn EventSink, now: u64, horizon: u64) {
        self.look(now.saturating_sub(self.origin));
        let horizon_ns = horizon.saturating_sub(self.origin);
        let span = JobSpan { origin: self.origin, now };
        let share = RingShare::of(self.images.len());
        let mut order = BinaryHeap::new();
        for (number, image) in &mut self.images {
            image.fill(self.ring, share, span, &mut self.noticed);
            order.extend(image.next_ns().map(|at_ns| Reverse((at_ns, *number))));
        }
        self.record_faults(sink);
        while let Some(Reverse((_, number))) = order.pop() {
            let limit = order.peek().map_or(u64::MAX, |next| next.0.0);
            let Some(mut image) = self.images.remove(&number) else { continue };
            self.pass(sink, &mut image, limit.min(horizon_ns), share, span);
            // A refilled window can begin before the limit again: then it is its turn once more.
            order.extend(image.next_ns().filter(|at| *at <= horizon_ns).map(|at| Reverse((at, number))));
            self.images.insert(number, image);
        }
        self.pass_between(sink, horizon_ns);
        self.end_drained(sink);
    }

    /// Reads the rings of the kernel, and decides what it records from now on.
    fn record_faults(&mut self, sink: &mut dyn EventSink) {
        self.faults.read(self.origin);
        let maps = self.images.values().any(|image| image.maps && image.gone.is_none());
        let mapped_ns = self.noticed.mapped_ns().filter(|_| maps).map(|at_ns| at_ns + self.origin);
        let missed = self.faults.govern(mapped_ns, clock::now());
        if self.faults.observed() {
            sink.faults_missed(&missed);
        }
    }

    /// Passes on what waits of one image up to a time.
    fn pass(
        &mut self,
        sink: &mut dyn EventSink,
        image: &mut Image,
        limit_ns: u64,
        share: RingShare,
        span: JobSpan,
    ) {
        while image.next_ns().is_some_and(|at| at <= limit_ns) {
            let Some(Reverse(next)) = image.waiting.pop() else { break };
            self.pass_between(sink, next.at_ns);
            // A thread that was interrupted between its call and its event: it is passed on as if it had ended now.
            let late_ns = self.passed_ns.saturating_sub(next.at_ns);
            self.passed_ns = self.passed_ns.max(next.at_ns);
            match (next.what, image.index) {
                (What::Start(start), _) => {
                    image.index = Some(self.processes);
                    self.faults.start(self.processes, &start);
                    self.processes += 1;
                    sink.process(&start);
                }
                (What::Event(mut event), Some(index)) => {
                    self.faults.call(image.pid, &event);
                    event.start_ns += late_ns;
                    sink.event(index, &event);
                }
                (What::Text { kind, id, device, text }, Some(index)) => {
                    sink.text(index, kind, id, device, &text);
                }
                // What an image wrote before its start.
                (_, None) => {}
            }
            if image.waiting.len() < share.window / 2 {
                image.fill(self.ring, share, span, &mut self.noticed);
            }
        }
    }

    /// Passes on samples and page faults up to a time.
    fn pass_between(&mut self, sink: &mut dyn EventSink, limit_ns: u64) {
        loop {
            let sample_ns = self.samples.front().map_or(u64::MAX, |sample| sample.at_ns);
            let fault_ns = self.faults.next_ns().unwrap_or(u64::MAX);
            if sample_ns.min(fault_ns) > limit_ns {
                return;
            }
            if fault_ns < sample_ns {
                if let Some((index, mut fault)) = self.faults.take() {
                    fault.at_ns = fault.at_ns.max(self.passed_ns);
                    self.passed_ns = fault.at_ns;
                    sink.fault(index, &fault);
                }
            } else if let Some(mut sample) = self.samples.pop_front() {
                sample.at_ns = sample.at_ns.max(self.passed_ns);
                self.passed_ns = sample.at_ns;
                sink.sample(&sample);
            } else {
                return;
            }
        }
    }

    /// Ends images that are gone and read to the end.
    fn end_drained(&mut self, sink: &mut dyn EventSink) {
        if !self.images.values().any(Image::is_drained) {
            return;
        }
        let waiting = self.faults.waiting();
        let is_over = |image: &Image| image.is_drained() && !waiting.contains(&image.pid);
        let drained = self.images.extract_if(.., |_, image| is_over(image));
        for (number, image) in drained.collect::<Vec<_>>() {
            self.end(sink, &image);
            drop(image);
            self.ring.free(number);
        }
    }

    fn end(&mut self, sink: &mut dyn EventSink, image: &Image) {
        let SlotTotals { all, data, dropped, untracked, uring, recorded, calls, opens } =
            image.memory.totals();
        let gone = image.gone.unwrap_or_default();
        self.sums.recorded = self.sums.recorded.saturating_add(recorded);
        self.sums.calls = self.sums.calls.saturating_add(calls);
        self.sums.opens = self.sums.opens.saturating_add(opens);
        let end_ns = gone.at_ns.max(image.start_ns);
        if let Some(costs) = self.costs {
            let added = costs.per_call * calls as f64 + costs.per_open * opens as f64;
            let life = end_ns.saturating_sub(image.start_ns).max(1);
            self.sums.share = self.sums.share.max(added / life as f64).min(1.0);
        }
        let Some(index) = image.index else { return };
        self.faults.end(index, image.pid);
        let end = ProcessEnd {
            end_ns,
            all,
            data,
            events_dropped: dropped,
            untracked_calls: untracked,
            uring,
            signal: gone.signal.or_else(|| self.signals.get(&image.pid).copied()),
        };
        sink.end(index, &end);
    }

    /// Passes on everything, also of processes that still run.
    pub(super) fn finish(&mut self, sink: &mut dyn EventSink) {
        let now = clock::now();
        self.look(now.saturating_sub(self.origin));
        for image in self.images.values_mut() {
            let at_ns = now.saturating_sub(self.origin);
            image.gone.get_or_insert(Gone { at_ns, signal: None });
            // One that still runs can write faster than it is read.
            image.memory.end_here();
        }
        self.round(sink, now, u64::MAX);
        for (_, image) in std::mem::take(&mut self.images) {
            self.end(sink, &image);
        }
        self.pass_between(sink, u64::MAX);
    }
}
