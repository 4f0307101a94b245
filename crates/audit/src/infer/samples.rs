//! What a sample is in the files: its bytes, its reads, its opens, and how often the same bytes are read.

use model::observed::{IoCounts, Observed, ValueCounts};
use model::units::{Nanos, counted, grouped};

use super::inferred::{Inferred, MeanSpread};
use super::job::TrainingEpochs;

/// From this ratio on, bytes that are asked for again are a pattern and no accident.
const AGAIN: f64 = 1.5;
/// Fewer reads per sample are a stream, if they follow each other.
const STREAM_READS: f64 = 0.9;
/// Smaller differences of sizes are not of the samples.
const ACCIDENT: f64 = 0.02;
/// Fewer opens per sample: files stay open.
const OPEN: f64 = 0.5;

/// Means per sample of the usual epochs, and of all files.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SampleFigures {
    /// Samples of an epoch of all ranks.
    pub samples: f64,
    /// Data files of the job.
    pub job_files: f64,
    /// Several files for each sample, if more than 1.
    pub files_per_sample: f64,
    pub reads: f64,
    pub opens: f64,
    pub stats: f64,
    /// All calls on files, and seconds from one to the next within a fetch.
    pub calls: f64,
    pub call_gap: f64,
    /// Bytes asked for, and distinct ones of a process.
    pub asked: f64,
    pub distinct: f64,
    /// How often all bytes are read, by different workers.
    pub copies: u64,
    /// A process reads bytes again that other samples of it had read: samples are replayed as if they had bytes of
    /// their own.
    pub is_enlarged: bool,
    pub streams: bool,
    /// Spread of the sample sizes: standard deviation / mean.
    pub variation: f64,
    /// Files are read only in part.
    pub part: f64,
}

/// Calls on files of a program that only reads.
fn calls(epochs: &TrainingEpochs<'_>) -> f64 {
    let kinds: [fn(&IoCounts) -> u64; 5] = [
        |io| io.opens.count,
        |io| io.reads.count,
        |io| io.closes.count,
        |io| io.seeks.count,
        |io| io.stats.count,
    ];
    kinds.into_iter().map(|of| epochs.sum(|row| of(&row.io))).sum()
}

/// Mean time between calls in seconds, without the longest gap of each sample, which is work on the sample as a whole.
fn usual_gap(gaps: &ValueCounts, samples: f64) -> f64 {
    let mut left = gaps.count().saturating_sub(samples as u64);
    let (kept, mut sum) = (left, 0.0);
    for (gap, count) in gaps.bins() {
        let taken = count.min(left);
        sum += Nanos(gap).seconds() * taken as f64;
        left -= taken;
    }
    sum / kept.max(1) as f64
}

impl SampleFigures {
    pub(super) fn of(epochs: &TrainingEpochs<'_>, observed: &Observed) -> SampleFigures {
        let samples = epochs.sum(|row| row.samples.unwrap_or(0)).max(1.0);
        let ratio = |one: f64, other: f64| if other > 0.0 { (one / other).max(1.0) } else { 1.0 };
        let distinct_bytes = epochs.sum(|row| row.files.process_distinct_bytes);
        let again = ratio(epochs.sum(|row| row.files.asked_bytes), distinct_bytes);
        let copies = ratio(distinct_bytes, epochs.sum(|row| row.files.distinct_bytes));
        let asked = epochs.sum(|row| row.io.reads.bytes) / samples;
        let distinct = asked / again;
        // A few reads besides those of samples must not add a request of their size to each sample.
        let near = |size: &f64| (distinct / size - 1.0).abs() < ACCIDENT;
        let distinct = one_request(epochs).filter(near).unwrap_or(distinct);
        let sizes = epochs.counts(|row| &row.read_sizes);
        let reads = sizes.count() as f64 / samples;
        let usual_read = sizes.quantile_by_sum(0.5).unwrap_or(0) as f64;
        let follows =
            epochs.sum(|row| row.io.sequential.count) / epochs.sum(|row| row.io.reads.count).max(1.0);
        let copies = if copies >= AGAIN && again < AGAIN { copies.round() as u64 } else { 1 };
        let of_all_ranks = samples / epochs.usual.len() as f64 * epochs.ranks as f64;
        let job_files = observed.files.estimated as f64;
        let files_per_sample = job_files * copies as f64 / of_all_ranks;
        let files_per_sample = if files_per_sample >= AGAIN { files_per_sample } else { 1.0 };
        let one_each = files_per_sample == 1.0 && of_all_ranks < AGAIN * job_files * copies as f64;
        let size_spread = MeanSpread::of(&observed.files.sizes, 1.0);
        let whole = if one_each { distinct / size_spread.mean.max(1.0) } else { 1.0 };
        SampleFigures {
            samples: of_all_ranks,
            job_files,
            files_per_sample,
            reads,
            opens: epochs.sum(|row| row.io.opens.count) / samples,
            stats: epochs.sum(|row| row.io.stats.count) / samples,
            calls: calls(epochs) / samples,
            call_gap: usual_gap(&epochs.counts(|row| &row.call_gaps), samples),
            asked,
            distinct,
            copies,
            is_enlarged: again >= AGAIN && usual_read > AGAIN * distinct,
            streams: reads < STREAM_READS && follows > 0.5,
            variation: match (one_each, (0.9..1.5).contains(&reads)) {
                (true, _) => size_spread.variation(),
                (false, true) => MeanSpread::of(&sizes, 1.0).variation(),
                (false, false) => 0.0,
            },
            part: whole.min(1.0),
        }
    }

    pub(super) fn samples_per_file(&self) -> u64 {
        let files = self.job_files * self.copies as f64;
        ((self.samples / files).round() as u64).max(1)
    }

    pub(super) fn per_file(&self) -> Inferred<u64> {
        let exact = self.samples / (self.job_files * self.copies as f64);
        let text = format!("measured: {:.0} samples of {:.0} files", self.samples, self.job_files);
        let number = self.samples_per_file();
        Inferred::likely_if((exact - number as f64).abs() < 0.01 * exact, number, text)
    }

    /// As many files as give the samples of the job.
    pub(super) fn files(&self, observed: &Observed) -> Inferred<u64> {
        let number = ((self.samples / self.samples_per_file() as f64).round() as u64).max(1);
        let (found, sampled) = (counted(observed.files.estimated, "data file"), observed.files.sampled);
        match number as f64 == self.job_files {
            true if observed.files.sample_bits == 0 => {
                Inferred::certain(number, format!("measured: {found}"))
            }
            true => {
                Inferred::likely(number, format!("{found} by estimate from a sample of {}", grouped(sampled)))
            }
            false => Inferred::likely(number, format!("{found}, read for {:.0} samples", self.samples)),
        }
    }

    pub(super) fn bytes(&self) -> Inferred<MeanSpread> {
        let (mean, what) = match self.is_enlarged {
            true => (self.asked, "asked for"),
            false => (self.distinct, "of its own"),
        };
        let value = MeanSpread { mean: mean.max(1.0), stdev: mean * self.variation };
        let text = format!("measured: bytes {what} per sample, {:.0} samples", self.samples);
        Inferred::likely_if(!self.is_enlarged, value, text)
    }

    pub(super) fn rereads(&self) -> Inferred<u64> {
        let again = self.asked / self.distinct.max(1.0);
        let text = format!("measured: {again:.2} x the distinct bytes of a process are asked for");
        let number = if self.is_enlarged || again < AGAIN { 1 } else { again.round() as u64 };
        Inferred::likely(number, text)
    }

    pub(super) fn opens(&self) -> Inferred<u64> {
        let text = format!("measured: {:.2} opens per sample", self.opens);
        match self.opens {
            _ if self.streams => Inferred::certain(1, format!("{text}; a stream stays open")),
            few if few < OPEN => Inferred::certain(0, format!("{text}: files stay open")),
            opens => Inferred::certain((opens.round() as u64).max(1), text),
        }
    }
}

/// The size of all samples, if each is one request of this size.
fn one_request(epochs: &TrainingEpochs<'_>) -> Option<f64> {
    let patterns = || epochs.usual.iter().flat_map(|row| &row.sample_patterns);
    let [(_, size)] = patterns().next()?.reads[..] else { return None };
    let is_same = patterns().all(|pattern| matches!(pattern.reads[..], [(_, other)] if other == size));
    (is_same && size > 0).then_some(size as f64)
}
