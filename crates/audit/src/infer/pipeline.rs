//! Values for pipelines whose threads are not observed, as those of tf.data: from reads in flight and waits.

use model::units::Nanos;

use super::inferred::{Inferred, MeanSpread};
use super::job::TrainingEpochs;

/// More reads in flight than for this share of the time with reads are an accident.
const SELDOM: f64 = 0.01;
/// A larger share of waiting shows that the pipeline is slower than the steps.
const WAITS: f64 = 0.02;
/// Batches that a pipeline loads in advance.
const AHEAD: u64 = 2;

/// As many as have reads in flight.
pub(super) fn threads(epochs: &TrainingEpochs<'_>) -> Inferred<u64> {
    let most = epochs.usual.iter().map(|row| row.in_flight_ns.len()).max().unwrap_or(0);
    let time = |number: usize| -> f64 {
        epochs.usual.iter().filter_map(|row| row.in_flight_ns.get(number)).map(|ns| ns.seconds()).sum()
    };
    let busy: f64 = (1..most).map(time).sum();
    let mut more = 0.0;
    let found = (1..most).rev().find(|number| {
        more += time(*number);
        more > SELDOM * busy
    });
    let number = found.unwrap_or(1) as u64;
    Inferred::guess(number, format!("measured: {number} reads were in flight at once"))
}

pub(super) fn prefetch(epochs: &TrainingEpochs<'_>) -> Inferred<u64> {
    Inferred::guess(AHEAD + threads(epochs).value, "assumed: the pipeline loads in advance")
}

/// If the steps wait, the pipeline works all the time: what a thread does not spend in file calls is its own time.
pub(super) fn preprocess(epochs: &TrainingEpochs<'_>) -> Inferred<MeanSpread> {
    let share = waiting(epochs);
    let text = format!("computed: steps waited for {:.0} % of the time", 100.0 * share);
    if share <= WAITS {
        return Inferred::guess(MeanSpread::default(), text);
    }
    let samples = epochs.sum(|row| row.samples.unwrap_or(0)).max(1.0);
    let each = |nanos: f64| nanos * 1e-9 / samples;
    let wall = each(epochs.sum(|row| row.wall_ns().0)) * threads(epochs).value as f64;
    let files = each(epochs.sum(|row| row.io.file_ns().0));
    Inferred::guess(MeanSpread::constant(wall - files), text)
}

/// The shortest waits: those for batches that are there.
pub(super) fn handover(epochs: &TrainingEpochs<'_>) -> Inferred<MeanSpread> {
    let shortest = epochs.counts(|row| &row.wait_times).quantile(0.1).unwrap_or(0);
    let seconds = if waiting(epochs) > WAITS { 0.0 } else { Nanos(shortest).seconds() };
    Inferred::guess(MeanSpread::constant(seconds), "measured: shortest waits, if batches were ready")
}

fn waiting(epochs: &TrainingEpochs<'_>) -> f64 {
    let waits = epochs.sum(|row| (row.blocked_all_ns + row.handover_all_ns).0);
    waits / epochs.sum(|row| row.wall_ns().0).max(1.0)
}
