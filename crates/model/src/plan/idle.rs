//! Keys that are valid but have no effect in a plan, because of the loader, format or backend, or because of other
//! keys. The user gets a warning for each.

use super::{Discipline, TrainingPlan};
use crate::order::Unit;
use crate::spec::{
    CacheProof, CacheState, OnError, Preprocess, Readahead, Retain, Semantics, Shuffle, Spec, Verify,
};

const NO_READS: &str = "the synthetic loader reads nothing";
const NO_FILES: &str = "the backend opens no files";
const NO_CACHE: &str = "the backend does not read through the page cache";
const NO_BYTES: &str = "the backend returns no bytes to keep";
const NOTHING_TO_COMPARE: &str = "the backend returns no bytes to compare";
const NO_COUNT: &str = "reader.on_error is stop: the first error ends the run";
const NO_WORK: &str = "nothing is preprocessed in this run";
const NO_STREAM: &str = "only the tensorflow loader uses it, and only for stream formats (tfrecord, csv)";

/// Every key whose value has no effect in this plan, with the reason. The caller knows whether the key was given.
pub fn idle(spec: &Spec, plan: &TrainingPlan) -> Vec<(&'static str, &'static str)> {
    let mut idle = reading(spec, plan);
    idle.extend(scheduling(spec, plan));
    idle.extend(preprocessing(spec, plan));
    if spec.train.total_training_steps.is_some_and(|most| most > plan.train.shards.steps) {
        idle.push(("train.total_training_steps", "the data set has fewer steps per epoch"));
    }
    if plan.device.copy_bytes_per_second.is_none() && !plan.device.overlapped {
        idle.push(("train.device_prefetch", "batches are not copied: train.device_copy_rate is 0"));
    }
    idle
}

fn reading(spec: &Spec, plan: &TrainingPlan) -> Vec<(&'static str, &'static str)> {
    let (reader, store) = (&spec.reader, &plan.store);
    let reads = plan.loader.discipline != Discipline::Synthetic;
    let why = |there: bool, without: &'static str| match (reads, there) {
        (false, _) => Some(NO_READS),
        (true, false) => Some(without),
        (true, true) => None,
    };
    let keys = [
        ("reader.readahead", reader.readahead != Readahead::Normal, why(store.opens_files(), NO_FILES)),
        ("reader.odirect", reader.odirect, why(store.opens_files(), NO_FILES)),
        ("reader.cache", reader.cache != CacheState::Cold, why(store.cached, NO_CACHE)),
        ("reader.cache_proof", reader.cache_proof != CacheProof::Exact, why(store.cached, NO_CACHE)),
        ("reader.drop_caches", reader.drop_caches, why(store.cached, NO_CACHE)),
        ("reader.retain", reader.retain != Retain::None, why(store.brings_bytes, NO_BYTES)),
        ("reader.verify", reader.verify == Verify::Full, why(store.brings_bytes, NOTHING_TO_COMPARE)),
        ("reader.transfer_size", reader.transfer_size.is_some(), why(true, "")),
        ("reader.on_error", reader.on_error != OnError::Stop, why(true, "")),
        ("reader.error_limit", reader.on_error == OnError::Stop, Some(NO_COUNT)),
    ];
    keys.into_iter().filter(|(_, given, _)| *given).filter_map(|(key, _, why)| Some((key, why?))).collect()
}

fn scheduling(spec: &Spec, plan: &TrainingPlan) -> Vec<(&'static str, &'static str)> {
    let (reader, loader) = (&spec.reader, &plan.loader);
    let streams = loader.discipline == Discipline::Tensorflow && plan.data.streams;
    let takes_turns = matches!(plan.train.order.unit, Unit::None | Unit::File);
    let mut idle = by_dlio(spec, loader.discipline);
    if !streams {
        idle.push(("reader.shuffle_size", NO_STREAM));
    } else if reader.sample_shuffle == Shuffle::Off {
        idle.push(("reader.shuffle_size", "samples are not shuffled: reader.sample_shuffle is off"));
    }
    let maps = match (streams, loader.preprocess.works(), reader.preprocess_threads) {
        _ if reader.computation_threads == 1 => None,
        (false, ..) => Some(NO_STREAM),
        (true, false, _) => Some(NO_WORK),
        (true, true, Some(_)) => Some("reader.preprocess_threads takes precedence"),
        (true, true, None) => None,
    };
    idle.extend(maps.map(|why| ("reader.computation_threads", why)));
    if loader.discipline == Discipline::Tensorflow && !takes_turns && reader.interleave_cycle.is_some() {
        let why = "samples are shuffled individually, so files are not interleaved";
        idle.push(("reader.interleave_cycle", why));
    }
    if reader.interleave_block > 1 && !streams && plan.train.interleave.cycle <= 1 {
        idle.push(("reader.interleave_block", "files are not interleaved"));
    }
    idle
}

/// Keys that have no effect because the run has DLIO's behaviour, or because it does not.
fn by_dlio(spec: &Spec, discipline: Discipline) -> Vec<(&'static str, &'static str)> {
    let (reader, compat) = (&spec.reader, &spec.compat);
    let mut idle = Vec::new();
    if compat.read_threads == Semantics::Feedline || reader.read_threads != 1 {
        idle.push((
            "reader.max_auto_threads",
            "it limits read_threads if that is 1 and compat.read_threads is dlio",
        ));
    }
    if compat.order == Semantics::Dlio {
        let buffered = discipline == Discipline::Tensorflow && spec.dataset.format == "tfrecord";
        let (key, shuffle) = match buffered {
            true => ("reader.file_shuffle", reader.file_shuffle),
            false => ("reader.sample_shuffle", reader.sample_shuffle),
        };
        if shuffle != Shuffle::Off {
            idle.push((key, "compat.order asks for DLIO's order, which does not depend on it"));
        }
    }
    idle
}

fn preprocessing(spec: &Spec, plan: &TrainingPlan) -> Vec<(&'static str, &'static str)> {
    let (reader, works) = (&spec.reader, plan.loader.preprocess.works());
    let timed = matches!(plan.loader.preprocess.kind, Preprocess::Sleep | Preprocess::Burn);
    let mut idle = Vec::new();
    if !works {
        if reader.preprocess == Preprocess::Burn {
            idle.push(("reader.preprocess", NO_WORK));
        }
        if reader.preprocess_threads.is_some() {
            idle.push(("reader.preprocess_threads", NO_WORK));
        }
    }
    if !works || !timed {
        let why = if works { "decoding takes its real time" } else { NO_WORK };
        let given = [
            ("reader.preprocess_time", reader.preprocess_time.mean() > 0.0),
            ("reader.preprocess_bytes", reader.preprocess_bytes.is_some()),
            ("reader.preprocess_slow_share", reader.preprocess_slow_share > 0.0),
            ("reader.preprocess_slow_factor", reader.preprocess_slow_factor > 1.0),
        ];
        idle.extend(given.into_iter().filter(|(_, given)| *given).map(|(key, _)| (key, why)));
    } else if reader.preprocess_slow_share > 0.0 && reader.preprocess_slow_factor == 1.0 {
        idle.push(("reader.preprocess_slow_share", "reader.preprocess_slow_factor is 1"));
    } else if reader.preprocess_slow_share == 0.0 && reader.preprocess_slow_factor > 1.0 {
        idle.push(("reader.preprocess_slow_factor", "reader.preprocess_slow_share is 0"));
    }
    idle
}
