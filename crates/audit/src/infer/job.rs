//! The workload that is inferred: the values of its keys, each from the figures of the training loader of the rank that
//! trained longest.

use model::observed::{EpochRow, Findings, LoaderRow, Observed, RuleAnswer, TrainingFramework, ValueCounts};
use model::units::{Nanos, counted, grouped};

use super::InferError;
use super::inferred::{Inferred, MeanSpread};
use super::outside;
use super::pipeline;
use super::requests::{SampleRequests, requests};
use super::samples::SampleFigures;

/// Shares of asked bytes that storage delivered: more than the one is cold, less than the other is cached.
const COLD: f64 = 0.5;
const CACHED: f64 = 0.3;
/// Two orders of an epoch that correlate more than this are one.
const SAME_ORDER: f64 = 0.95;
/// A replay reaches at least this share of the job's AU if its storage is as good: twice the 5 % that it may deviate.
const SAME_AU: f64 = 0.9;
/// `reader.transfer_size` is at least and at most this.
const TRANSFERS: (u64, u64) = (512, 1 << 30);

/// Where the files of a replay are from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReplayFiles {
    Generated,
    /// The job's files: their folder, and a catalog of it.
    Own {
        folder: String,
        catalog: String,
    },
}

#[derive(Clone, Debug)]
pub(super) struct InferredJob {
    pub loader: Inferred<&'static str>,
    pub ranks: u64,
    pub files_of: ReplayFiles,
    /// The folder that all files of the job are in, if the result has paths.
    pub folder: Option<String>,
    pub suffix: Option<String>,
    pub format: Inferred<&'static str>,
    pub files: Inferred<u64>,
    pub samples_per_file: Inferred<u64>,
    pub sample_bytes: Inferred<MeanSpread>,
    pub batch: Inferred<u64>,
    pub threads: Inferred<u64>,
    pub prefetch: Inferred<u64>,
    pub file_shuffle: Inferred<bool>,
    pub sample_shuffle: Inferred<bool>,
    pub reshuffled: Inferred<bool>,
    pub requests: Inferred<SampleRequests>,
    pub transfer: Inferred<u64>,
    pub rereads: Inferred<u64>,
    pub opens: Inferred<u64>,
    pub stats: Inferred<u64>,
    pub in_flight_limit: Inferred<Option<u64>>,
    pub readahead: Inferred<&'static str>,
    pub direct: Inferred<bool>,
    pub start: Inferred<MeanSpread>,
    pub start_once: Inferred<bool>,
    pub cache: Inferred<&'static str>,
    pub preprocess: Inferred<MeanSpread>,
    pub compute: Inferred<MeanSpread>,
    pub handover: Inferred<MeanSpread>,
    pub epochs: Inferred<u64>,
    /// The AU that counts as met, 0 to 1.
    pub au_target: Inferred<f64>,
    /// Steps of an epoch that was not used to its end.
    pub steps: Option<Inferred<u64>>,
    /// The figures of a sample, for faults that are left out.
    pub samples: SampleFigures,
    pub cores: u64,
    /// What a replay does not reproduce, as sentences.
    pub outside: Vec<String>,
    /// What was left out, as sentences.
    pub left_out: Vec<String>,
}

/// The epochs of the training loader of one rank.
pub(super) struct TrainingEpochs<'a> {
    pub rows: Vec<&'a EpochRow>,
    /// Without the first one, if there are others: what is usual.
    pub usual: Vec<&'a EpochRow>,
    pub loader: &'a LoaderRow,
    pub ranks: u64,
}

impl<'a> TrainingEpochs<'a> {
    fn of(observed: &'a Observed) -> Result<TrainingEpochs<'a>, InferError> {
        let trains = |row: &&EpochRow| row.batches > 0 && row.samples.is_some_and(|samples| samples > 0);
        let time = |rank: u64, loader: u64| -> Nanos {
            let rows = observed.epochs.iter().filter(|row| (row.rank, row.loader) == (rank, loader));
            rows.filter(trains).map(EpochRow::wall_ns).sum()
        };
        let known = |row: &&LoaderRow| row.framework != TrainingFramework::Unknown;
        let loaders = observed.loaders.iter().filter(known).rev();
        let loader = loaders.max_by_key(|row| time(row.rank, row.loader)).ok_or(InferError::NoBatches)?;
        let of_loader = |row: &&EpochRow| (row.rank, row.loader) == (loader.rank, loader.loader);
        let mut rows: Vec<&EpochRow> = observed.epochs.iter().filter(trains).filter(of_loader).collect();
        rows.sort_by_key(|row| (row.epoch, row.begin_ns));
        if rows.is_empty() {
            return Err(InferError::NoBatches);
        }
        if rows.iter().all(|row| row.io.reads.bytes == 0) {
            let maps = rows.iter().any(|row| row.io.maps.count > 0 || row.files.mapped_bytes.is_some());
            return Err(if maps { InferError::OnlyMappings } else { InferError::NoFiles });
        }
        if observed.files.estimated == 0 {
            return Err(InferError::NoFiles);
        }
        let mut ranks: Vec<u64> = observed.epochs.iter().filter(trains).map(|row| row.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let usual = if rows.len() > 1 { rows[1..].to_vec() } else { rows.clone() };
        Ok(TrainingEpochs { rows, usual, loader, ranks: ranks.len() as u64 })
    }

    pub(super) fn counts(&self, of: impl Fn(&EpochRow) -> &ValueCounts) -> ValueCounts {
        let mut sum = ValueCounts::default();
        self.usual.iter().for_each(|row| sum += of(row));
        sum
    }

    /// Whether threads load that do not say when they do: those of tf.data.
    pub(super) fn has_hidden_threads(&self) -> bool {
        let framework = self.loader.framework;
        matches!(framework, TrainingFramework::Tensorflow | TrainingFramework::Keras)
            && self.loader.workers == 0
    }

    pub(super) fn sum(&self, of: impl Fn(&EpochRow) -> u64) -> f64 {
        self.usual.iter().map(|row| of(row) as f64).sum()
    }
}

impl InferredJob {
    pub(super) fn of(observed: &Observed, findings: &Findings) -> Result<InferredJob, InferError> {
        let epochs = TrainingEpochs::of(observed)?;
        let samples = SampleFigures::of(&epochs, observed);
        let (file_shuffle, sample_shuffle, reshuffled) = order(&epochs, &samples);
        let (start, start_once) = start(&epochs);
        let sizes = epochs.counts(|row| &row.read_sizes);
        let largest = sizes.max().unwrap_or(TRANSFERS.0).clamp(TRANSFERS.0, TRANSFERS.1);
        let is_direct = observed.files.direct > observed.files.sampled / 2;
        let mut job = InferredJob {
            loader: match epochs.loader.framework {
                TrainingFramework::Tensorflow | TrainingFramework::Keras => {
                    Inferred::certain("tensorflow", "recorded")
                }
                _ if samples.streams => Inferred::likely(
                    "tensorflow",
                    "PyTorch's workers that each stream files of their own are interleaved streams",
                ),
                _ => Inferred::certain("pytorch", "recorded"),
            },
            ranks: epochs.ranks,
            files_of: ReplayFiles::Generated,
            folder: outside::common_folder(&observed.files.folders),
            suffix: observed.files.suffixes.first().map(|row| row.0.clone()).filter(|name| !name.is_empty()),
            format: format(&samples),
            files: samples.files(observed),
            samples_per_file: samples.per_file(),
            sample_bytes: samples.bytes(),
            batch: batch(&epochs),
            threads: threads(&epochs),
            prefetch: prefetch(&epochs),
            file_shuffle,
            sample_shuffle,
            reshuffled,
            requests: if samples.streams {
                Inferred::certain(SampleRequests::default(), "a stream has no requests of a sample")
            } else {
                requests(&epochs.usual, &sizes, samples.reads)
            },
            transfer: Inferred::certain(
                largest,
                format!("measured: the largest of {}", counted(sizes.count(), "read")),
            ),
            rereads: samples.rereads(),
            opens: samples.opens(),
            stats: Inferred::certain(
                samples.stats.round() as u64,
                format!("measured: {:.2} stats per sample", samples.stats),
            ),
            in_flight_limit: in_flight_limit(findings),
            readahead: Inferred::guess("normal", "assumed"),
            direct: Inferred::certain(is_direct, "measured: flags of the opens"),
            start,
            start_once,
            cache: cache(&epochs),
            preprocess: preprocess(&epochs),
            compute: time(&epochs.counts(|row| &row.compute_times), 1.0, "step"),
            handover: handover(&epochs),
            epochs: Inferred::certain(epochs.rows.len() as u64, "recorded: epochs of the training loader"),
            au_target: au_target(&epochs),
            steps: steps(&epochs),
            samples,
            cores: observed.host.cores.unwrap_or(4),
            outside: Vec::new(),
            left_out: Vec::new(),
        };
        job.outside = outside::sentences(observed, &epochs, &job);
        Ok(job)
    }

    /// The workload reads the job's files instead of generated ones.
    pub(super) fn read_own_files(&mut self, catalog: &str) -> Result<(), InferError> {
        let folder = self.folder.clone().ok_or(InferError::NoFolder)?;
        if self.samples.files_per_sample > 1.0 {
            return Err(InferError::NotTheirFiles("a sample consists of several files"));
        }
        let is_record = self.suffix.as_ref().is_some_and(|suffix| suffix.starts_with("tfrecord"));
        if self.samples.streams && !is_record {
            return Err(InferError::NotTheirFiles("they are read as streams and are no tfrecord files"));
        }
        if self.samples.copies > 1 || self.samples.is_enlarged {
            return Err(InferError::NotTheirFiles("the same bytes belong to several samples"));
        }
        self.files_of = ReplayFiles::Own { folder, catalog: catalog.to_owned() };
        Ok(())
    }
}

fn format(samples: &SampleFigures) -> Inferred<&'static str> {
    let read = format!("measured: {:.2} reads per sample", samples.reads);
    match samples.streams {
        true => Inferred::likely("tfrecord", format!("{read}, one after another: a stream of records")),
        false => Inferred::certain("raw", format!("{read}; their content does not matter")),
    }
}

fn batch(epochs: &TrainingEpochs<'_>) -> Inferred<u64> {
    let (samples, batches) = (epochs.sum(|row| row.samples.unwrap_or(0)), epochs.sum(|row| row.batches));
    let observed = (samples / batches).ceil().max(1.0) as u64;
    match epochs.loader.batch.filter(|batch| *batch >= observed && *batch / 2 <= observed) {
        Some(batch) => Inferred::certain(batch, "recorded: batch size of the loader"),
        None => Inferred::likely(observed, format!("measured: {samples} samples in {batches} batches")),
    }
}

/// A little less than the job's own AU: a replay that reaches it does not wait longer than the job.
fn au_target(epochs: &TrainingEpochs<'_>) -> Inferred<f64> {
    let (compute, wall) = (epochs.sum(|row| row.compute_ns.0), epochs.sum(|row| row.wall_ns().0));
    let au = if wall > 0.0 { (compute / wall).clamp(0.0, 1.0) } else { 0.0 };
    let text = format!("measured: the job computed {:.1} % of the time; {SAME_AU} of it", 100.0 * au);
    Inferred::likely((1000.0 * SAME_AU * au).floor() / 1000.0, text)
}

fn threads(epochs: &TrainingEpochs<'_>) -> Inferred<u64> {
    match epochs.has_hidden_threads() {
        true => pipeline::threads(epochs),
        false => Inferred::certain(epochs.loader.workers, "recorded: workers of the loader"),
    }
}

fn prefetch(epochs: &TrainingEpochs<'_>) -> Inferred<u64> {
    let workers = epochs.loader.workers;
    let ready = epochs.rows.iter().map(|row| row.ready_most).max().unwrap_or(0);
    match epochs.loader.prefetch {
        _ if epochs.has_hidden_threads() => pipeline::prefetch(epochs),
        _ if workers == 0 => Inferred::certain(0, "without workers nothing is loaded in advance"),
        Some(each) => Inferred::certain(
            each.saturating_mul(workers),
            format!("recorded: {each} batches for each worker"),
        ),
        None => Inferred::guess(ready.max(workers), format!("measured: {ready} batches were ready at most")),
    }
}

/// Whether files are shuffled, samples are shuffled, and epochs differ.
fn order(
    epochs: &TrainingEpochs<'_>,
    samples: &SampleFigures,
) -> (Inferred<bool>, Inferred<bool>, Inferred<bool>) {
    let found: Vec<f64> = epochs.rows.iter().filter_map(|row| row.files.order_correlation).collect();
    let highest = found.iter().copied().fold(f64::NAN, f64::max);
    let text = format!("measured: orders of epochs correlate by {highest:.2}");
    let is_same = highest > SAME_ORDER;
    let reshuffled = match found.is_empty() {
        true => Inferred::guess(true, "assumed: there is no second epoch to compare"),
        false => Inferred::certain(!is_same, text.clone()),
    };
    let reads = epochs.sum(|row| row.io.reads.count).max(1.0);
    let follows = epochs.sum(|row| row.io.sequential.count) / reads;
    let is_one_each = samples.samples_per_file() == 1;
    let is_in_order = !is_one_each && follows > 0.5;
    let follow_text = format!("measured: {:.0} % of the reads follow the one before", 100.0 * follows);
    let sample_shuffle = match is_one_each {
        true => Inferred::certain(false, "a file is one sample"),
        false => Inferred::likely(!is_in_order, follow_text),
    };
    let file_shuffle = match (found.is_empty(), is_one_each || is_in_order) {
        (_, false) => Inferred::certain(false, "samples of all files are shuffled"),
        (true, _) => Inferred::guess(true, "assumed: there is no second epoch to compare"),
        (false, _) => Inferred::likely_if(!is_same, !(is_same && is_in_order), text),
    };
    (file_shuffle, sample_shuffle, reshuffled)
}

fn steps(epochs: &TrainingEpochs<'_>) -> Option<Inferred<u64>> {
    let cut: Vec<u64> = epochs.rows.iter().filter(|row| !row.complete).map(|row| row.batches).collect();
    let most = cut.iter().copied().max().filter(|_| cut.len() * 2 > epochs.rows.len())?;
    Some(Inferred::likely(most, format!("measured: {} ended early", counted(cut.len() as u64, "epoch"))))
}

fn in_flight_limit(findings: &Findings) -> Inferred<Option<u64>> {
    let answer = findings.rules.iter().find(|rule| rule.name == "serialised-reads").map(|rule| rule.outcome);
    match answer {
        Some(RuleAnswer::Found) => {
            Inferred::likely(Some(1), "finding serialised-reads: workers wait for each other")
        }
        _ => Inferred::likely(None, "measured: reads of workers do not exclude each other"),
    }
}

/// The page cache at the start of epochs.
fn cache(epochs: &TrainingEpochs<'_>) -> Inferred<&'static str> {
    let share = |row: &&EpochRow| Some(row.issued_bytes? as f64 / row.io.reads.bytes.max(1) as f64);
    let shares: Vec<f64> = epochs.rows.iter().filter_map(share).collect();
    let Some((first, later)) = shares.split_first() else {
        return Inferred::guess("as-is", "assumed: bytes read from storage are not known");
    };
    let later = (!later.is_empty()).then(|| later.iter().sum::<f64>() / later.len() as f64);
    let text = match later {
        Some(later) => format!(
            "measured: storage delivered {:.0} % of the first epoch, {:.0} % of later ones",
            100.0 * first,
            100.0 * later
        ),
        None => format!("measured: storage delivered {:.0} % of the epoch", 100.0 * first),
    };
    match (*first, later.unwrap_or(*first)) {
        (first, later) if first >= COLD && later >= COLD => Inferred::certain("epoch-cold", text),
        (first, later) if first >= COLD && later < CACHED => Inferred::certain("first-cold", text),
        (first, later) if first < CACHED && later < CACHED => Inferred::certain("warm", text),
        _ => Inferred::guess("as-is", text),
    }
}

/// Seconds per step or sample from counted nanoseconds.
fn time(times: &ValueCounts, widening: f64, of: &str) -> Inferred<MeanSpread> {
    let MeanSpread { mean, stdev } = MeanSpread::of(times, 1e-9);
    let source = format!("measured: mean of {}", counted(times.count(), of));
    match times.is_empty() {
        true => Inferred::guess(MeanSpread::default(), format!("no {of} was measured")),
        false => Inferred::certain(MeanSpread { mean, stdev: stdev * widening }, source),
    }
}

/// Time per sample outside of file calls. It is known as the mean of each batch, whose spread is smaller by the root of
/// the batch size.
fn preprocess(epochs: &TrainingEpochs<'_>) -> Inferred<MeanSpread> {
    if epochs.has_hidden_threads() {
        return pipeline::preprocess(epochs);
    }
    let think = epochs.counts(|row| &row.think_times);
    let fetches = epochs.sum(|row| row.fetch_times.count());
    let each = think.count() as f64 / fetches.max(1.0);
    let mut known = time(&think, each.max(1.0).sqrt(), "sample");
    known.source += ", without file calls";
    known
}

/// From a loaded batch to the step. Without workers: what a wait takes apart from loading.
fn handover(epochs: &TrainingEpochs<'_>) -> Inferred<MeanSpread> {
    if epochs.has_hidden_threads() {
        return pipeline::handover(epochs);
    }
    if epochs.loader.workers > 0 {
        return time(&epochs.counts(|row| &row.handover_times), 1.0, "hand-over");
    }
    let mean = |of: fn(&EpochRow) -> &ValueCounts| epochs.counts(of).mean().unwrap_or(0.0);
    let rest = (mean(|row| &row.wait_times) - mean(|row| &row.fetch_times)) * 1e-9;
    Inferred::likely(MeanSpread::constant(rest), "measured: waits without loading, in the training process")
}

/// How long workers take to start, and whether only once: the time to the first batch without loading and passing
/// it on.
fn start(epochs: &TrainingEpochs<'_>) -> (Inferred<MeanSpread>, Inferred<bool>) {
    let mean = |of: fn(&EpochRow) -> &ValueCounts| epochs.counts(of).mean().unwrap_or(0.0) * 1e-9;
    let load = mean(|row| &row.fetch_times) + mean(|row| &row.handover_times);
    let starts: Vec<f64> = epochs
        .rows
        .iter()
        .map(|row| (row.start_ns.seconds() + row.first_wait_ns.seconds() - load).max(0.0))
        .collect();
    let is_once = epochs.loader.persistent || epochs.loader.workers == 0;
    let counted_starts = if is_once { &starts[..1] } else { &starts[..] };
    let seconds = counted_starts.iter().sum::<f64>() / counted_starts.len() as f64;
    let text = format!(
        "measured: to the first batch of {}, without loading it",
        if is_once {
            "the first epoch".to_owned()
        } else {
            format!("{} epochs", grouped(starts.len() as u64))
        }
    );
    let once = match (epochs.loader.workers, epochs.loader.persistent) {
        (0, _) => Inferred::certain(true, "there are no workers"),
        (_, true) => Inferred::certain(true, "recorded: workers are persistent"),
        _ => Inferred::certain(false, "recorded: workers start in each epoch"),
    };
    (Inferred::likely(MeanSpread::constant(seconds), text), once)
}
