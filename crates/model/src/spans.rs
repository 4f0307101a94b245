//! The operations that a run times, as single spans: what a trace is made of. The same spans, added up, are the
//! latencies and rows of the ledger.

mod limit;

use crate::units::{Nanos, Share};

pub use limit::{
    DEFAULT_TRACE_BYTES, LEAST_TRACE_BYTES, TRACE_LIMIT_FORMS, TraceLimit, TraceLimitError, TraceLimits,
};

/// What a span is the time of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SpanKind {
    Open,
    Connect,
    FirstByte,
    Body,
    Probe,
    Read,
    Forget,
    Close,
    Sample,
    Prep,
    BatchWait,
    Copy,
    Compute,
    Barrier,
    Pause,
    Save,
    Fast,
    Durable,
    Drain,
    Restore,
    Epoch,
    Training,
    Evaluation,
}

/// The name of a kind in traces, its category, and what it is the time of. The names of latencies are those of the
/// ledger. DFTracer's tools take the category `POSIX` as I/O.
const KINDS: [(SpanKind, &str, &str, &str); 23] = [
    (SpanKind::Open, "open", "POSIX", "opening a file"),
    (SpanKind::Connect, "connect", "HTTP", "making a connection to an object store"),
    (SpanKind::FirstByte, "first_byte", "HTTP", "from a request to the first byte of its answer"),
    (SpanKind::Body, "body", "HTTP", "from the first byte of an answer to its last"),
    (
        SpanKind::Probe,
        "probe",
        "cache",
        "counting which pages of a sample are in memory, before they are read",
    ),
    (
        SpanKind::Read,
        "read",
        "POSIX",
        "one read of a file, or one request to an object store with all its attempts",
    ),
    (SpanKind::Forget, "forget", "cache", "evicting the pages of a sample after they were read"),
    (SpanKind::Close, "close", "POSIX", "closing a file"),
    (SpanKind::Sample, "sample", "loader", "a sample, from its first request to its last byte"),
    (SpanKind::Prep, "prep", "loader", "preprocessing a sample"),
    (SpanKind::BatchWait, "batch_wait", "accelerator", "waiting for a batch"),
    (SpanKind::Copy, "copy", "accelerator", "copying a batch to the accelerator's memory"),
    (SpanKind::Compute, "compute", "accelerator", "the computation of a step"),
    (SpanKind::Barrier, "barrier", "accelerator", "waiting for the other ranks at the end of a step"),
    (SpanKind::Pause, "pause", "accelerator", "waiting for a checkpoint"),
    (SpanKind::Save, "save", "checkpoint", "saving a checkpoint, as long as training waits for it"),
    (SpanKind::Fast, "fast", "checkpoint", "from the start of a save until it is durable on the fast tier"),
    (
        SpanKind::Durable,
        "durable",
        "checkpoint",
        "from the start of a save until it is durable on the last tier",
    ),
    (SpanKind::Drain, "drain", "checkpoint", "copying a checkpoint from the fast tier to the last one"),
    (SpanKind::Restore, "restore", "checkpoint", "restoring a checkpoint"),
    (SpanKind::Epoch, "epoch", "run", "an epoch"),
    (SpanKind::Training, "train", "run", "the training phase of an epoch"),
    (SpanKind::Evaluation, "eval", "run", "the evaluation phase of an epoch"),
];

impl SpanKind {
    pub fn all() -> impl Iterator<Item = SpanKind> {
        KINDS.iter().map(|row| row.0)
    }

    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    pub fn category(self) -> &'static str {
        KINDS[self as usize].2
    }

    /// What it is the time of.
    pub fn meaning(self) -> &'static str {
        KINDS[self as usize].3
    }
}

/// Whose time a span is: each has a track of its own in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpanTrack {
    /// The whole run: epochs and phases.
    Run,
    /// Saves and restores that training waits for.
    Checkpoints,
    /// When checkpoints became durable; these spans may overlap.
    Durability,
    Drains,
    Rank(u32),
    Reader {
        rank: u32,
        reader: u32,
    },
}

/// A file of the data set by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanFile {
    Train(u64),
    Valid(u64),
}

/// One timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationSpan {
    pub kind: SpanKind,
    pub track: SpanTrack,
    /// When it began, on the run's clock, and how long it took.
    pub at: Nanos,
    pub took: Nanos,
    pub file: Option<SpanFile>,
    /// The range in the file.
    pub offset: u64,
    pub bytes: u64,
    pub epoch: u64,
    /// From 0; of a checkpoint, the number of steps before it.
    pub step: Option<u32>,
}

/// An operation as words of memory, as threads hand it on.
pub type SpanWords = [u64; 8];

const NO_STEP: u32 = u32::MAX;

impl OperationSpan {
    /// Without file, step and bytes.
    pub fn new(kind: SpanKind, track: SpanTrack, at: Nanos, took: Nanos) -> OperationSpan {
        OperationSpan { kind, track, at, took, file: None, offset: 0, bytes: 0, epoch: 0, step: None }
    }

    pub fn to_words(&self) -> SpanWords {
        let (track, rank, reader) = match self.track {
            SpanTrack::Run => (0, 0, 0),
            SpanTrack::Checkpoints => (1, 0, 0),
            SpanTrack::Durability => (2, 0, 0),
            SpanTrack::Drains => (3, 0, 0),
            SpanTrack::Rank(rank) => (4, rank, 0),
            SpanTrack::Reader { rank, reader } => (5, rank, reader),
        };
        let (split, file) = match self.file {
            None => (0, 0),
            Some(SpanFile::Train(file)) => (1, file),
            Some(SpanFile::Valid(file)) => (2, file),
        };
        let step = self.step.unwrap_or(NO_STEP);
        [
            self.kind as u64 | track << 8 | split << 16 | u64::from(reader) << 32,
            u64::from(rank) | u64::from(step) << 32,
            self.at.0,
            self.took.0,
            file,
            self.offset,
            self.bytes,
            self.epoch,
        ]
    }

    /// The operation of these words; `None` if they are not those of an operation.
    pub fn from_words(words: &SpanWords) -> Option<OperationSpan> {
        let [head, place, at, took, file, offset, bytes, epoch] = *words;
        let (rank, step, reader) = (place as u32, (place >> 32) as u32, (head >> 32) as u32);
        let track = match head >> 8 & 0xff {
            0 => SpanTrack::Run,
            1 => SpanTrack::Checkpoints,
            2 => SpanTrack::Durability,
            3 => SpanTrack::Drains,
            4 => SpanTrack::Rank(rank),
            5 => SpanTrack::Reader { rank, reader },
            _ => return None,
        };
        let file = match head >> 16 & 0xff {
            0 => None,
            1 => Some(SpanFile::Train(file)),
            2 => Some(SpanFile::Valid(file)),
            _ => return None,
        };
        let (kind, ..) = *KINDS.get((head & 0xff) as usize)?;
        let step = (step != NO_STEP).then_some(step);
        Some(OperationSpan {
            kind,
            track,
            at: Nanos(at),
            took: Nanos(took),
            file,
            offset,
            bytes,
            epoch,
            step,
        })
    }
}

/// Whether a step is one of those that are traced, if a share of them is: they are spread evenly, from step 0 on.
pub fn is_traced(share: Share, step: u64) -> bool {
    let Share { numerator, denominator } = share;
    numerator == denominator
        || (u128::from(step) * u128::from(numerator)) % u128::from(denominator) < u128::from(numerator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_row_and_name() {
        for (place, kind) in SpanKind::all().enumerate() {
            assert_eq!(kind as usize, place);
            assert_eq!(SpanKind::all().filter(|other| other.name() == kind.name()).count(), 1, "{kind:?}");
        }
        assert_eq!(SpanKind::Evaluation as usize + 1, KINDS.len());
    }

    #[test]
    fn words_keep_every_field() {
        let tracks = [
            SpanTrack::Run,
            SpanTrack::Checkpoints,
            SpanTrack::Durability,
            SpanTrack::Drains,
            SpanTrack::Rank(u32::MAX),
            SpanTrack::Reader { rank: 7, reader: u32::MAX },
        ];
        let files = [None, Some(SpanFile::Train(u64::MAX)), Some(SpanFile::Valid(3))];
        for (kind, (track, file)) in SpanKind::all().flat_map(|kind| {
            tracks.into_iter().flat_map(move |track| files.map(|file| (kind, (track, file))))
        }) {
            let span = OperationSpan {
                file,
                offset: 1 << 40,
                bytes: u64::MAX,
                epoch: 9,
                step: file.map(|_| 12),
                ..OperationSpan::new(kind, track, Nanos(u64::MAX), Nanos(5))
            };
            assert_eq!(OperationSpan::from_words(&span.to_words()), Some(span));
        }
        assert_eq!(OperationSpan::from_words(&[u64::MAX; 8]), None);
    }

    #[test]
    fn a_share_of_steps_is_spread_evenly() {
        let share = |text: &str| text.parse::<Share>().unwrap();
        let steps = |text| (0..200).filter(|step| is_traced(share(text), *step)).collect::<Vec<_>>();
        assert_eq!(steps("1/100"), [0, 100]);
        assert_eq!(steps("5%").len(), 10);
        assert_eq!(steps("1").len(), 200);
        let two_thirds = steps("2/3");
        assert_eq!((two_thirds.len(), &two_thirds[..4]), (133, &[0, 2, 3, 5][..]));
        assert!(is_traced(share("1/3"), 3 * (u64::MAX / 3)));
    }
}
