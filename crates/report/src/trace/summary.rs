//! The sums of a trace: how often each operation happened and how long it took, what accelerators spent their time
//! on, and the slowest operations.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use model::histogram::{Histogram, Quantiles};
use model::spans::SpanKind;
use model::units::Nanos;
use serde_json::{Value, json};

/// Slowest operations that are kept.
const SLOWEST: usize = 10;

/// Names of operations that are told apart; further ones are added up. A trace of feedline has about twenty.
const MOST_NAMES: usize = 1000;

/// An event of a trace.
#[derive(Debug)]
pub(super) struct SeenEvent<'a> {
    pub(super) name: &'a str,
    pub(super) category: &'a str,
    pub(super) at: Nanos,
    pub(super) took: Nanos,
    pub(super) bytes: u64,
    pub(super) file: Option<String>,
}

/// One kind of operation.
#[derive(Clone, Debug)]
pub struct OperationSummary {
    pub name: String,
    pub category: String,
    pub bytes: u64,
    pub total: Nanos,
    pub times: Quantiles,
}

/// One track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackSummary {
    pub process: String,
    pub track: String,
    pub name: String,
    pub events: u64,
}

/// What an accelerator spent its time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTime {
    pub name: String,
    /// Times by the name of the operation.
    pub times: BTreeMap<String, Nanos>,
}

impl RankTime {
    pub fn total(&self) -> Nanos {
        self.times.values().copied().sum()
    }

    /// The share of an operation in percent.
    pub fn percent(&self, name: &str) -> f64 {
        let time = self.times.get(name).copied().unwrap_or_default();
        100.0 * time.0 as f64 / self.total().0.max(1) as f64
    }
}

/// One of the slowest operations on files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlowOperation {
    pub took: Nanos,
    pub at: Nanos,
    pub name: String,
    pub track: String,
    pub bytes: u64,
    /// As events have it; see `file_names`.
    pub file: String,
}

/// A trace, added up.
#[derive(Clone, Debug, Default)]
pub struct TraceSummary {
    /// From the first start to the last end.
    pub span: Nanos,
    pub events: u64,
    pub operations: Vec<OperationSummary>,
    pub tracks: Vec<TrackSummary>,
    pub ranks: Vec<RankTime>,
    pub slowest: Vec<SlowOperation>,
    /// Events of other kinds than spans, which are not added up.
    pub skipped: u64,
    /// Operations that were lost; `None` if the trace does not say it.
    pub lost: Option<u64>,
    /// The limits of the trace, and the one that was reached.
    pub limits: Option<String>,
    pub limit_reached: Option<String>,
    /// Whether the end is missing.
    pub is_cut: bool,
}

/// Sums of one kind of operation.
#[derive(Debug, Default)]
struct OperationSums {
    category: String,
    bytes: u64,
    times: Histogram,
}

/// Sums of one track.
#[derive(Debug, Default)]
struct TrackSums {
    name: Option<String>,
    events: u64,
    /// Times of the accelerator's operations.
    times: BTreeMap<&'static str, Nanos>,
}

/// Adds events up.
#[derive(Debug, Default)]
pub(super) struct SummaryBuilder {
    operations: BTreeMap<String, OperationSums>,
    tracks: BTreeMap<(String, String), TrackSums>,
    processes: BTreeMap<String, String>,
    slowest: BinaryHeap<Reverse<SlowOperation>>,
    first: Option<Nanos>,
    last: Nanos,
    events: u64,
    seen: bool,
    skipped: u64,
    /// Traces of several processes may be joined: ends that were seen, and starts.
    starts: u64,
    ends: u64,
    lost: Option<u64>,
    limits: Option<String>,
    limit_reached: Option<String>,
}

impl SummaryBuilder {
    pub(super) fn add(&mut self, place: (String, String), event: &SeenEvent<'_>) {
        (self.events, self.seen) = (self.events + 1, true);
        let end = event.at + event.took;
        self.first = Some(self.first.map_or(event.at, |first| first.min(event.at)));
        self.last = self.last.max(end);
        let known = self.operations.contains_key(event.name) || self.operations.len() < MOST_NAMES;
        let name = if known { event.name } else { "(other names)" };
        if !self.operations.contains_key(name) {
            let category = event.category.to_owned();
            self.operations.insert(name.to_owned(), OperationSums { category, ..OperationSums::default() });
        }
        if let Some(sums) = self.operations.get_mut(name) {
            sums.bytes = sums.bytes.saturating_add(event.bytes);
            sums.times.record(event.took);
        }
        self.offer(&place, event);
        let track = self.tracks.entry(place).or_default();
        track.events += 1;
        let accelerates = |kind: &SpanKind| kind.category() == "accelerator" && kind.name() == event.name;
        if event.category == "accelerator"
            && let Some(kind) = SpanKind::all().find(accelerates)
        {
            *track.times.entry(kind.name()).or_default() += event.took;
        }
    }

    /// Keeps an operation on a file if it is one of the slowest.
    fn offer(&mut self, place: &(String, String), event: &SeenEvent<'_>) {
        let Some(file) = &event.file else { return };
        // A sample contains the other operations on its file.
        let is_slow = self.slowest.len() < SLOWEST
            || self.slowest.peek().is_some_and(|Reverse(least)| event.took > least.took);
        if !is_slow || event.name == SpanKind::Sample.name() {
            return;
        }
        let named = self.tracks.get(place).and_then(|track| track.name.clone());
        self.slowest.push(Reverse(SlowOperation {
            took: event.took,
            at: event.at,
            name: event.name.to_owned(),
            track: named.unwrap_or_else(|| format!("{}/{}", place.0, place.1)),
            bytes: event.bytes,
            file: file.clone(),
        }));
        if self.slowest.len() > SLOWEST {
            self.slowest.pop();
        }
    }

    pub(super) fn skip(&mut self) {
        (self.skipped, self.seen) = (self.skipped + 1, true);
    }

    pub(super) fn see_metadata(&mut self) {
        self.seen = true;
    }

    pub(super) fn name_track(&mut self, place: (String, String), name: String) {
        self.seen = true;
        self.tracks.entry(place).or_default().name = Some(name);
    }

    pub(super) fn name_process(&mut self, process: String, name: String) {
        self.seen = true;
        self.processes.insert(process, name);
    }

    pub(super) fn begin(&mut self, limits: String) {
        (self.seen, self.starts, self.limits) = (true, self.starts + 1, Some(limits));
    }

    pub(super) fn end(&mut self, lost: u64, limit_reached: Option<&str>) {
        (self.seen, self.ends) = (true, self.ends + 1);
        self.lost = Some(self.lost.unwrap_or(0) + lost);
        self.limit_reached = limit_reached.map(str::to_owned).or(self.limit_reached.take());
    }

    /// The summary; `None` if there was no event.
    pub(super) fn finish(self, is_cut: bool) -> Option<TraceSummary> {
        if !self.seen {
            return None;
        }
        let summarise = |(name, sums): (String, OperationSums)| {
            let OperationSums { category, bytes, times } = sums;
            Some(OperationSummary { name, category, bytes, total: times.sum(), times: times.summary()? })
        };
        let mut operations: Vec<OperationSummary> =
            self.operations.into_iter().filter_map(summarise).collect();
        operations.sort_by_key(|operation| Reverse(operation.total));
        let mut slowest: Vec<SlowOperation> = self.slowest.into_iter().map(|Reverse(slow)| slow).collect();
        slowest.sort_by(|one, other| other.cmp(one));
        if self.starts == 0 {
            // Other programs count from 1970.
            slowest.iter_mut().for_each(|slow| slow.at = slow.at.since(self.first.unwrap_or_default()));
        }
        let (mut tracks, mut ranks) = (Vec::new(), Vec::new());
        for ((process, track), TrackSums { name, events, times }) in self.tracks {
            let name = name.unwrap_or_else(|| format!("{process}/{track}"));
            if !times.is_empty() {
                let times = times.into_iter().map(|(name, time)| (name.to_owned(), time)).collect();
                ranks.push(RankTime { name: name.clone(), times });
            }
            let process = self.processes.get(&process).cloned().unwrap_or(process);
            tracks.push(TrackSummary { process, track, name, events });
        }
        ranks.sort_by_key(|rank| (rank.name.len(), rank.name.clone()));
        Some(TraceSummary {
            span: self.last.since(self.first.unwrap_or_default()),
            events: self.events,
            operations,
            tracks,
            ranks,
            slowest,
            skipped: self.skipped,
            lost: self.lost,
            limits: self.limits,
            limit_reached: self.limit_reached,
            is_cut: is_cut || self.starts > self.ends,
        })
    }
}

impl TraceSummary {
    /// Everything as JSON. `names` has the names of files.
    pub fn json(&self, names: &BTreeMap<String, String>) -> Value {
        let operations: serde_json::Map<String, Value> =
            self.operations.iter().map(|operation| (operation.name.clone(), operation.json())).collect();
        let ranks = self.ranks.iter().map(|rank| json!({ "track": rank.name, "ns": rank.times }));
        let slowest = self.slowest.iter().map(|slow| {
            json!({
                "operation": slow.name,
                "track": slow.track,
                "file": names.get(&slow.file).unwrap_or(&slow.file),
                "at_ns": slow.at,
                "took_ns": slow.took,
                "bytes": slow.bytes,
            })
        });
        let tracks = self.tracks.iter().map(|track| {
            let TrackSummary { process, track, name, events } = track;
            json!({ "process": process, "track": track, "name": name, "events": events })
        });
        json!({
            "span_ns": self.span,
            "events": self.events,
            "skipped_events": self.skipped,
            "complete": !self.is_cut,
            "lost_events": self.lost,
            "limits": self.limits,
            "limit_reached": self.limit_reached,
            "operations": operations,
            "ranks": ranks.collect::<Vec<_>>(),
            "slowest": slowest.collect::<Vec<_>>(),
            "tracks": tracks.collect::<Vec<_>>(),
        })
    }
}

impl OperationSummary {
    fn json(&self) -> Value {
        let Quantiles { count, mean_ns, p50_ns, p99_ns, max_ns, .. } = self.times;
        json!({
            "category": self.category,
            "count": count,
            "bytes": self.bytes,
            "total_ns": self.total,
            "mean_ns": mean_ns,
            "p50_ns": p50_ns,
            "p99_ns": p99_ns,
            "max_ns": max_ns,
        })
    }
}
