//! What reading from an object store costs and requires: requests per sample, requests in flight, and the connections
//! for them with their memory.

use serde::{Deserialize, Serialize};

use super::{Data, LoaderPlan, Request};
use crate::spec::Spec;

/// How requests to an object store are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPlan {
    /// The most read requests that a process has in flight.
    pub in_flight: u64,
    /// Whether connections are encrypted.
    pub encrypted: bool,
    /// Bytes of a part of an upload, and the most parts that a process uploads at once.
    pub part_bytes: u64,
    pub parts_in_flight: u64,
}

/// After this many parts of an upload, parts are twice as large: a quarter of the most parts that S3 and Google allow.
pub const PARTS_OF_ONE_SIZE: u64 = 2_500;

/// The buffer of a connection for the head of an answer.
const HEAD_BYTES: u64 = 8 << 10;
/// What TLS adds to it: a record in each direction, and the state of the session.
const TLS_BYTES: u64 = 64 << 10;
/// The buffer of a thread through which the bytes of answers pass that are not kept.
pub const WINDOW_BYTES: u64 = 256 << 10;

impl RequestPlan {
    /// Memory of this many connections, which `threads` use. Bytes that are kept are not included: they are in the
    /// buffers of their fetches.
    pub fn memory(self, connections: u64, threads: u64) -> u64 {
        let each = HEAD_BYTES + if self.encrypted { TLS_BYTES } else { 0 };
        connections.saturating_mul(each).saturating_add(threads.saturating_mul(WINDOW_BYTES))
    }

    /// Memory of this many uploads at once of objects of at most this size: each fills a part, while others are in
    /// flight.
    pub fn upload_memory(self, uploads: u64, object_bytes: u64) -> u64 {
        let (mut part, mut left) = (self.part_bytes, object_bytes);
        while part > 0 && left > part.saturating_mul(PARTS_OF_ONE_SIZE) {
            left -= part.saturating_mul(PARTS_OF_ONE_SIZE);
            part = part.saturating_mul(2);
        }
        let filled = uploads.saturating_mul(part.min(object_bytes));
        // A part that is larger than all that may be in flight is alone.
        filled.saturating_add(self.part_bytes.saturating_mul(self.parts_in_flight).max(part))
    }
}

/// What one accelerator demands of an object store, and what the readers of a host can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestDemand {
    pub per_sample: f64,
    /// If the accelerator never waits; `None` if steps have no compute time.
    pub per_second: Option<f64>,
    /// The most requests in flight, each of which has a connection, on each host.
    pub most_in_flight: u64,
}

impl RequestDemand {
    /// `None` if the data is not in an object store.
    pub(super) fn new(
        spec: &Spec,
        request: &Request<'_>,
        data: &Data,
        loader: &LoaderPlan,
        samples_per_second: Option<f64>,
    ) -> Option<RequestDemand> {
        if !request.store.is_objects() {
            return None;
        }
        let (requests, samples) = of_visit(spec, request, data, loader);
        let per_sample = requests as f64 / samples.max(1) as f64;
        let limit = request.store.requests.in_flight.saturating_mul(request.placement.processes_per_host);
        Some(RequestDemand {
            per_sample,
            per_second: samples_per_second.map(|samples| samples * per_sample),
            // Each reader has one visit in flight, whose requests are made at once.
            most_in_flight: loader.host_readers(request).saturating_mul(requests).min(limit.max(1)),
        })
    }

    /// The connections that this many accelerators need if an answer takes this long: by Little's law, as many as
    /// requests arrive while one is in flight. `None` if the demand is unlimited.
    pub fn connections(&self, accelerators: u64, latency_seconds: f64) -> Option<u64> {
        let needed = self.per_second? * accelerators as f64 * latency_seconds;
        // More than any number of connections is the largest number.
        Some(needed.ceil() as u64)
    }
}

/// The requests of one visit to a file, and the samples that it yields.
fn of_visit(spec: &Spec, request: &Request<'_>, data: &Data, loader: &LoaderPlan) -> (u64, u64) {
    let largest = loader.transfer_bytes.max(1);
    let per_file = data.train.samples_per_file.max(1);
    let file_bytes = data.train.bytes / data.train.files.max(1);
    let of_file = file_bytes.div_ceil(largest).max(1);
    if spec.reads_whole_files() {
        return (of_file, 1);
    }
    let is_single = data.unit == crate::order::Unit::Sample && !data.streams;
    let together = if is_single { 1 } else { per_file };
    let counted = request.measure.zip(data.computed()).filter(|_| data.visit_bytes.is_some());
    let counted = counted.and_then(|(measure, computed)| {
        computed.with_shape(0, |shape| measure.requests(shape, 0..together, largest).ok())
    });
    // The reads of existing files are known when they are read; each sample is then taken for an equal share.
    let estimated = if is_single { (file_bytes / per_file).div_ceil(largest).max(1) } else { of_file };
    (counted.unwrap_or(estimated).max(1), together)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Unit;
    use crate::plan::bare::{Bare, buffered};
    use crate::plan::{Medium, Placement, StorePlan, Threads, TrainingPlan};
    use crate::spec::{Override, WorkloadSource, read};

    #[test]
    fn uploads_take_the_parts_that_are_filled_and_those_in_flight() {
        let plan = RequestPlan { part_bytes: 8, parts_in_flight: 4, ..RequestPlan::default() };
        assert_eq!(plan.upload_memory(10, 1000), 10 * 8 + 4 * 8);
        assert_eq!(plan.upload_memory(10, 5), 10 * 5 + 4 * 8, "a small object fills no part");
        let (first, second) = (8 * PARTS_OF_ONE_SIZE, 16 * PARTS_OF_ONE_SIZE);
        assert_eq!(plan.upload_memory(10, first), 10 * 8 + 4 * 8);
        assert_eq!(plan.upload_memory(10, first + 1), 10 * 16 + 4 * 8);
        assert_eq!(plan.upload_memory(10, first + second + 1), 10 * 32 + 4 * 8);
        assert_eq!(plan.upload_memory(1, 8 * first), 64 + 64, "a large part is alone");
        assert_eq!(RequestPlan::default().upload_memory(10, 1000), 0);
    }

    fn plan(sets: &[&str], unit: Unit, requests: RequestPlan) -> TrainingPlan {
        let text = "
framework: pytorch
dataset: {format: jpeg, num_files_train: 100, record_length_bytes: 1048576}
reader: {data_loader: pytorch, batch_size: 10, read_threads: 4}
train: {computation_time: 0.5}
";
        let sets: Vec<Override> = sets.iter().map(|set| Override::hydra(set, *set)).collect();
        let spec = read(WorkloadSource { name: "w.yaml", text }, &sets).unwrap().spec;
        let medium = Medium::Objects;
        let threads = Threads::PerCore;
        let store = StorePlan {
            text: "s3".to_owned(),
            medium,
            cached: false,
            threads,
            requests,
            ..buffered().clone()
        };
        let request = Request {
            workload: "test",
            ranks: 2,
            placement: Placement::even(2, 1, 1),
            host_memory_bytes: 1 << 34,
            cores: 2,
            store: &store,
            memory: None,
            entropy: 1,
            measure: Some(&Bare(unit)),
            listed: None,
        };
        TrainingPlan::resolve(&spec, &request).unwrap()
    }

    const PLAIN: RequestPlan =
        RequestPlan { in_flight: 4096, encrypted: false, part_bytes: 0, parts_in_flight: 0 };

    #[test]
    fn requests_follow_from_samples_ranges_and_readers() {
        for (sets, unit, per_sample, most_in_flight) in [
            (&[][..], Unit::Sample, 1.0, 8),
            (&["reader.transfer_size=262144"], Unit::Sample, 4.0, 32),
            (&["reader.transfer_size=262143"], Unit::Sample, 5.0, 40),
            (&["dataset.num_samples_per_file=4", "dataset.format=npz"], Unit::File, 0.25, 8),
            (
                &["dataset.num_samples_per_file=4", "dataset.format=npz", "reader.transfer_size=1MiB"],
                Unit::File,
                1.0,
                32,
            ),
        ] {
            let found = plan(sets, unit, PLAIN).estimate.requests.unwrap();
            assert_eq!((found.per_sample, found.most_in_flight), (per_sample, most_in_flight), "{sets:?}");
            // 10 samples in half a second.
            assert_eq!(found.per_second, Some(20.0 * per_sample), "{sets:?}");
        }
        let few = RequestPlan { in_flight: 3, ..PLAIN };
        assert_eq!(plan(&[], Unit::Sample, few).estimate.requests.unwrap().most_in_flight, 3);
    }

    #[test]
    fn there_are_no_more_threads_than_requests_in_flight() {
        for (in_flight, threads) in [(4096, 2), (2, 2), (1, 1), (0, 1)] {
            let plan = plan(&[], Unit::Sample, RequestPlan { in_flight, ..PLAIN });
            assert_eq!(plan.loader.threads, threads, "{in_flight}");
            let windows = format!(", {threads} windows");
            assert!(plan.estimate.memory.iter().any(|term| term.what.ends_with(&windows)), "{in_flight}");
        }
    }

    #[test]
    fn connections_follow_from_latency() {
        let found = plan(&[], Unit::Sample, PLAIN).estimate.requests.unwrap();
        assert_eq!(found.connections(2, 0.010), Some(1));
        assert_eq!(found.connections(100, 0.050), Some(100));
        let unlimited = plan(&["train.computation_time=0"], Unit::Sample, PLAIN).estimate.requests.unwrap();
        assert_eq!((unlimited.per_second, unlimited.connections(1, 1.0)), (None, None));
    }

    #[test]
    fn connections_are_part_of_the_planned_memory() {
        let bytes = |requests| {
            let estimate = plan(&[], Unit::Sample, requests).estimate;
            estimate.memory.iter().find(|term| term.what.contains("connections")).unwrap().bytes
        };
        assert_eq!(bytes(PLAIN), 8 * (8 << 10) + 2 * WINDOW_BYTES);
        assert_eq!(bytes(RequestPlan { encrypted: true, ..PLAIN }), 8 * (72 << 10) + 2 * WINDOW_BYTES);
    }
}
