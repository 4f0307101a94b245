//! What a replay of a job does not reproduce.

use model::observed::Observed;
use model::units::counted;

use super::job::{InferredJob, TrainingEpochs};

/// A larger share of waiting shows that workers are slower than the steps.
const WAITS: f64 = 0.1;
/// A larger share of time between batches changes the throughput of a replay.
const BETWEEN: f64 = 0.05;

/// The deepest folder that all these folders are in; `None` if there are none, or if it is the root.
pub(super) fn common_folder(folders: &[(String, u64)]) -> Option<String> {
    let mut parts: Option<Vec<&str>> = None;
    for (folder, _) in folders {
        let found: Vec<&str> = folder.split('/').collect();
        parts = Some(match parts {
            None => found,
            Some(known) => known
                .into_iter()
                .zip(found)
                .take_while(|(one, other)| one == other)
                .map(|pair| pair.0)
                .collect(),
        });
    }
    parts.map(|parts| parts.join("/")).filter(|folder| !folder.is_empty())
}

/// Sentences about this job, most important first.
pub(super) fn sentences(observed: &Observed, epochs: &TrainingEpochs<'_>, job: &InferredJob) -> Vec<String> {
    let mut found = Vec::new();
    seen(observed, &mut found);
    data(observed, job, &mut found);
    work(observed, epochs, job, &mut found);
    workers(observed, epochs, &mut found);
    found
}

/// What processes cost besides loading.
fn workers(observed: &Observed, epochs: &TrainingEpochs<'_>, found: &mut Vec<String>) {
    let workers = epochs.loader.workers;
    let wall = epochs.sum(|row| row.wall_ns().0);
    let fetches =
        epochs.sum(|row| row.workers.iter().fold(0, |sum, worker| worker.fetch_ns.0.saturating_add(sum)));
    let between = 1.0 - fetches / (wall * workers as f64).max(1.0);
    let waits = epochs.sum(|row| row.blocked_all_ns.0) > WAITS * wall;
    if workers > 0 && fetches > 0.0 && waits && between > BETWEEN {
        found.push(format!(
            "Workers passed {:.0} % of the time between batches although the job waited for them; a replay does not, \
             and may be faster by up to that share.",
            100.0 * between
        ));
    }
    if observed.host.cores.is_some_and(|cores| workers > cores) {
        found.push(
            "The job has more workers than cores. How long their reads take, and so how many are in flight at once, \
             depends on the scheduler."
                .to_owned(),
        );
    }
}

/// What the audit did not see.
fn seen(observed: &Observed, found: &mut Vec<String>) {
    let coverage = &observed.coverage;
    if let Some(share) = coverage.low_share() {
        found.push(format!("Only {:.0} % of the bytes that the job read were observed.", 100.0 * share));
    }
    if coverage.events_dropped > 0 {
        found.push(format!(
            "{} dropped; figures of samples are incomplete.",
            counted(coverage.events_dropped, "event")
        ));
    }
    if coverage.uring_processes > 0 || !coverage.unseen.is_empty() {
        found.push("Some processes could not be observed; what they read is missing.".to_owned());
    }
}

/// What is different about the files.
fn data(observed: &Observed, job: &InferredJob, found: &mut Vec<String>) {
    let samples = &job.samples;
    if samples.files_per_sample > 1.0 {
        found.push(format!(
            "A sample has {:.1} files; the replay has one file per sample, with all bytes and opens.",
            samples.files_per_sample
        ));
    }
    if samples.copies > 1 {
        found.push(format!(
            "Each sample is read by {} workers; the replay has a file for each of them. From a cold cache it reads \
             more from storage than the job.",
            samples.copies
        ));
    }
    if samples.is_enlarged {
        found.push(format!(
            "A sample asks for {:.1} x its share of the bytes, because samples overlap; in the replay each has its \
             own. From a cold cache it reads more from storage than the job.",
            samples.asked / samples.distinct.max(1.0)
        ));
    }
    let total = samples.samples;
    let replayed = job.files.value as f64 * job.samples_per_file.value as f64;
    if (replayed - total).abs() > 0.01 * total {
        found.push(format!("The replay has {replayed:.0} samples per epoch, the job {total:.0}."));
    }
    if samples.part < 0.9 {
        found.push(format!(
            "The job reads {:.0} % of each file. Generated files have only that part; with the job's own files the \
             replay reads them whole.",
            100.0 * samples.part
        ));
    }
    if observed.files.sample_bits > 0 {
        found.push("Sizes and the number of files are estimates from a sample of them.".to_owned());
    }
    if job.sample_bytes.value.variation() > 0.0 {
        found.push(
            "Sizes of samples are drawn from a distribution; single large files of the job are not there."
                .to_owned(),
        );
    }
}

/// What is different about the work.
fn work(observed: &Observed, epochs: &TrainingEpochs<'_>, job: &InferredJob, found: &mut Vec<String>) {
    let loaders = observed.loaders.iter().filter(|row| row.rank == epochs.loader.rank).count();
    if loaders > 1 {
        found.push(format!("The job has {loaders} loaders; only the one with the most time is replayed."));
    }
    if epochs.has_hidden_threads() {
        found.push(
            "tf.data does not show its threads: their number, what they load in advance and their time per sample are \
             estimates from reads in flight and waits."
                .to_owned(),
        );
    }
    if !job.samples.streams
        && epochs.loader.iterable
        && epochs.loader.workers > 1
        && job.samples_per_file.value > 1
    {
        found.push(
            "Workers of the job each read files of their own; readers of the replay take turns in the same files."
                .to_owned(),
        );
    }
    if epochs
        .rows
        .iter()
        .any(|row| row.io.maps.count > 0 && row.files.mapped_bytes.is_some_and(|bytes| bytes > 0))
    {
        found
            .push("Files that are mapped into memory are not replayed, only those that are read.".to_owned());
    }
    if epochs.rows.iter().any(|row| row.checkpoint_ns.0 > 0) {
        found.push("Checkpoints are not written.".to_owned());
    }
    if epochs.rows.iter().any(|row| row.io.listings.count > 0) {
        found.push("Folders are not listed.".to_owned());
    }
    let workers = epochs.usual.iter().flat_map(|row| &row.workers);
    let samples: Vec<f64> = workers.map(|worker| worker.samples as f64).collect();
    let mean = samples.iter().sum::<f64>() / samples.len().max(1) as f64;
    if samples.iter().any(|most| *most > 1.25 * mean) {
        found
            .push("Workers of the job have uneven shares; readers of the replay have equal ones.".to_owned());
    }
    if job.preprocess.value.mean > 0.0 {
        found.push(
            "Preprocessing is a pause of the measured length: the replay does not compete for the CPU as the job does."
                .to_owned(),
        );
    }
    if job.ranks > 1 {
        found.push(format!("All {} ranks do what the slowest one did.", job.ranks));
    }
}
