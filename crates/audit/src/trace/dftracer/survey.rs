//! The first of two readings of a trace: names of files, processes, and the epochs, whose beginnings stand behind
//! what happens in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::record::{RecordKind, TraceRecord, number_of, plain, whole};
use crate::layout::FdKind;
use crate::trace::feed::{TraceFeed, class_of};

/// Files whose names are kept, and texts and epochs.
const MOST_FILES: usize = 4 << 20;
const MOST_TEXTS: usize = 4096;
const MOST_EPOCHS: usize = 4096;

/// Who did something: a process of DFTracer, or a track of feedline.
pub(super) type ActorKey = (u32, u32);

/// A track of feedline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankTrack {
    pub(super) rank: u32,
    pub(super) reader: Option<u32>,
}

/// What is known of a process before its events.
#[derive(Debug, Default)]
pub(super) struct SurveyedProcess {
    pub(super) parent: u32,
    pub(super) command: String,
    /// It loads samples.
    pub(super) loads: bool,
    /// Training phases: start and end in microseconds; and epochs, for programs that mark nothing else.
    pub(super) phases: Vec<(f64, f64)>,
    epochs: Vec<(f64, f64)>,
}

impl SurveyedProcess {
    /// Epochs of training.
    pub(super) fn trainings(&self) -> &[(f64, f64)] {
        if self.phases.is_empty() { &self.epochs } else { &self.phases }
    }
}

/// What the first reading found.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) processes: BTreeMap<u32, SurveyedProcess>,
    /// Tracks of feedline.
    pub(super) tracks: BTreeMap<ActorKey, RankTrack>,
    pub(super) classes: HashMap<u64, (FdKind, u16)>,
    pub(super) origin: Option<f64>,
    pub(super) events: u64,
    pub(super) lost: u64,
    /// Names of files did not fit.
    pub(super) is_cut: bool,
    texts: HashMap<String, String>,
    commands: BTreeMap<u32, String>,
}

/// The names of feedline and of DLIO for the same things.
pub(super) fn is_wait(record: &TraceRecord<'_>) -> bool {
    matches!((&*record.cat, &*record.name), ("accelerator", "batch_wait") | ("dataloader", "fetch.iter"))
}

pub(super) fn is_sample(record: &TraceRecord<'_>) -> bool {
    matches!((&*record.cat, &*record.name), ("loader", "sample") | ("data", "item"))
}

/// Work on a sample after it was read.
pub(super) fn is_preparation(record: &TraceRecord<'_>) -> bool {
    matches!((&*record.cat, &*record.name), ("loader", "prep") | ("data", "preprocess"))
}

pub(super) fn is_save(record: &TraceRecord<'_>) -> bool {
    matches!((&*record.cat, &*record.name), ("checkpoint", "save" | "capture"))
}

impl Survey {
    pub(super) fn add(&mut self, record: &TraceRecord<'_>, feed: &mut TraceFeed<'_>) {
        match record.kind() {
            RecordKind::Metadata => self.metadata(record, feed),
            RecordKind::Complete => self.complete(record),
            RecordKind::Other => {}
        }
    }

    fn metadata(&mut self, record: &TraceRecord<'_>, feed: &mut TraceFeed<'_>) {
        let args = &record.args;
        match &*record.name {
            "FH" => {
                let (Some(number), path) = (number_of(&args.value), plain(&args.name)) else { return };
                self.name(number, &path, feed);
            }
            "SH" if self.texts.len() < MOST_TEXTS => {
                self.texts.insert(plain(&args.value), plain(&args.name));
            }
            "thread_name" => {
                if let Some(track) = track_of(&plain(&args.name)) {
                    self.tracks.insert((record.pid, record.tid), track);
                }
            }
            "feedline_trace_end" => {
                self.lost += whole(&args.lost).and_then(|lost| u64::try_from(lost).ok()).unwrap_or(0);
            }
            _ => {}
        }
    }

    fn name(&mut self, number: u64, path: &str, feed: &mut TraceFeed<'_>) {
        let class = class_of(path.as_bytes());
        if self.classes.len() < MOST_FILES {
            self.classes.insert(number, class);
        } else {
            self.is_cut = true;
        }
        if class == (FdKind::Regular, 0) {
            feed.name(number, path);
        }
    }

    fn complete(&mut self, record: &TraceRecord<'_>) {
        self.events += 1;
        let start = record.start();
        self.origin = Some(self.origin.map_or(start, |origin| origin.min(start)));
        let process = self.processes.entry(record.pid).or_default();
        let (_, duration) = record.span(0.0);
        let span = (start, start + duration as f64 / 1e3);
        match (&*record.cat, &*record.name) {
            ("dftracer", "start") => {
                process.parent =
                    whole(&record.args.ppid).and_then(|ppid| u32::try_from(ppid).ok()).unwrap_or(0);
                self.commands.insert(record.pid, plain(&record.args.cmd_hash));
            }
            ("run" | "pipeline", "train") if process.phases.len() < MOST_EPOCHS => process.phases.push(span),
            ("run", "epoch") | ("pipeline", "epoch.block") if process.epochs.len() < MOST_EPOCHS => {
                process.epochs.push(span);
            }
            _ if is_sample(record) => process.loads = true,
            _ => {}
        }
    }

    /// Resolves what needs the whole trace.
    pub(super) fn finish(&mut self) {
        for (pid, hash) in std::mem::take(&mut self.commands) {
            if let (Some(process), Some(text)) = (self.processes.get_mut(&pid), self.texts.get(&hash)) {
                process.command = text.replace(';', " ");
            }
        }
    }

    /// The process that trains and that `pid` belongs to.
    pub(super) fn rank_of(&self, pid: u32) -> Option<u32> {
        let (mut at, mut seen) = (pid, BTreeSet::new());
        while seen.insert(at) {
            let process = self.processes.get(&at)?;
            if !process.trainings().is_empty() {
                return Some(at);
            }
            at = process.parent;
        }
        None
    }
}

/// `rank 0` and `rank 0 reader 1`.
fn track_of(name: &str) -> Option<RankTrack> {
    let mut words = name.strip_prefix("rank ")?.split(' ');
    let rank = words.next()?.parse().ok()?;
    match (words.next(), words.next()) {
        (None, _) => Some(RankTrack { rank, reader: None }),
        (Some("reader"), Some(reader)) => Some(RankTrack { rank, reader: Some(reader.parse().ok()?) }),
        _ => None,
    }
}
