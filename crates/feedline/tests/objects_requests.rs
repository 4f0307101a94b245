//! The requests that runs make, counted between client and server: one per sample where that is enough, no HEAD before
//! a GET, and no LIST per rank.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::objects::proxy::{Ask, Proxy};
use crate::objects::servers::{Place, Scheme};
use crate::util::{Dir, outcome};

/// Requests before and after the measured part: the manifest is read several times.
const UPKEEP: u64 = 10;
/// Files of a split that are looked at before a run, however many there are.
const PROBES: u64 = 64;

fn generate(dir: &Dir, place: &Place, settings: &[&str]) -> String {
    let url = place.url("data");
    place
        .with(dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", &url]).set(settings))
        .run()
        .exits(0);
    url
}

/// How often each key below `train/` was requested, by the part of the log that follows its name.
fn requests_for_samples(proxy: &Proxy) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for line in proxy.log() {
        if let Some((_, rest)) = line.split_once("/train/") {
            let (name, range) = rest.split_once(' ').unwrap_or((rest, ""));
            let method = line.split(' ').next().unwrap();
            found.entry(name.to_owned()).or_default().push(format!("{method} {range}"));
        }
    }
    found
}

#[test]
fn a_sample_that_is_a_whole_object_takes_one_request() {
    for scheme in [Scheme::S3, Scheme::Azure, Scheme::Google] {
        for format in ["dataset.format=jpeg", "dataset.format=png", "dataset.format=indexed_binary"] {
            let (dir, place) = (Dir::small(), Place::new(scheme));
            let url = generate(&dir, &place, &[format]);
            let proxy = Proxy::to(&place.endpoint).start();
            let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--data-dir", &url];
            let done = place.through(&proxy).with(dir.feedline(&args).set(&[format])).run().ran();
            let summary = done.json();
            assert_eq!(outcome(&summary, "exactly-once"), "pass");
            // Two epochs of 24 samples.
            let (samples, counted) = (48, [Ask::Get, Ask::Head, Ask::List].map(|ask| proxy.count(ask)));
            let [get, head, list] = counted;
            assert!(get <= samples + UPKEEP, "{scheme:?} {format}: {counted:?} {:?}", proxy.log());
            assert!(get >= samples && head <= 24 + UPKEEP && list <= 1, "{scheme:?} {format}: {counted:?}");
            assert_eq!(proxy.requests(), counted.iter().sum::<u64>(), "{:?}", proxy.log());
            for epoch in summary["feedline"]["epochs"].as_array().unwrap() {
                assert_eq!(epoch["requests"]["requests_per_sample"], 1.0, "{format}: {epoch}");
            }
        }
    }
}

#[test]
fn many_ranks_list_once_and_ask_once_per_sample() {
    let settings = [
        "dataset.format=jpeg",
        "dataset.num_files_train=512",
        "dataset.record_length_bytes=1000",
        "reader.batch_size=1",
        "reader.read_threads=1",
        "train.epochs=1",
        "output.metric.exclude_start_steps=0",
    ];
    let (dir, place) = (Dir::small(), Place::s3());
    let url = generate(&dir, &place, &settings);
    for has_manifest in [true, false] {
        if !has_manifest {
            // As another program would have written it.
            place.boto(&dir, &["delete", &place.key("data/.feedline")]).exits(0);
        }
        let proxy = Proxy::to(&place.endpoint).start();
        let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--ranks", "512"];
        let command = dir.feedline(&args).args(&["--data-dir", &url]).set(&settings);
        let summary = place.through(&proxy).with(command).run().ran().json();
        assert_eq!(summary["feedline"]["epochs"][0]["samples_delivered"], 512);
        let counted = [Ask::Get, Ask::Head, Ask::List].map(|ask| proxy.count(ask));
        assert!((512..=512 + UPKEEP).contains(&counted[0]), "{counted:?}");
        assert!(counted[1] <= PROBES + UPKEEP && counted[2] <= 1, "{has_manifest}: {counted:?}");
    }
}

#[test]
fn a_large_object_is_read_as_parallel_ranges() {
    let settings = [
        "dataset.format=jpeg",
        "dataset.num_files_train=2",
        "dataset.record_length_bytes=8000000",
        "reader.batch_size=1",
        "reader.read_threads=1",
        "reader.prefetch_size=1",
        "train.epochs=1",
        "reader.transfer_size=1MiB",
    ];
    let (dir, place) = (Dir::small(), Place::s3());
    let url = generate(&dir, &place, &settings);
    // With latency, requests that are made one after the other are never in flight together.
    let proxy = Proxy::to(&place.endpoint).latency(Duration::from_millis(50)).start();
    let args =
        ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--verify", "full", "--data-dir", &url];
    let summary = place.through(&proxy).with(dir.feedline(&args).set(&settings)).run().ran().json();
    assert_eq!(outcome(&summary, "data-verified"), "pass", "{summary:#}");
    let ranges = requests_for_samples(&proxy);
    for (name, requests) in &ranges {
        let mut bounds: Vec<(u64, u64)> = requests
            .iter()
            .filter_map(|request| request.strip_prefix("GET bytes=")?.split_once('-'))
            .map(|(first, last)| (first.parse().unwrap(), last.parse().unwrap()))
            .collect();
        bounds.sort_unstable();
        assert_eq!(bounds.len(), 8, "{name}: {requests:?}");
        assert!(bounds.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "{name}: {bounds:?}");
        assert!(bounds.iter().all(|(first, last)| last - first < 1 << 20), "{name}: {bounds:?}");
    }
    assert_eq!(ranges.len(), 2, "{ranges:?}");
    assert!(proxy.most_in_flight() >= 6, "{}", proxy.most_in_flight());
}

#[test]
fn no_more_requests_are_in_flight_than_the_limit() {
    let settings = [
        "dataset.format=jpeg",
        "dataset.record_length_bytes=40000",
        "reader.read_threads=8",
        "reader.transfer_size=4096",
        "train.epochs=1",
    ];
    let (dir, place) = (Dir::small(), Place::s3());
    let url = generate(&dir, &place, &settings);
    for limit in [1, 5] {
        // With latency, as many requests as possible are in flight together.
        let proxy = Proxy::to(&place.endpoint).latency(Duration::from_millis(5)).start();
        let in_flight = format!("storage.requests_in_flight={limit}");
        let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--data-dir", &url];
        let command = dir.feedline(&args).set(&settings).set(&[&in_flight]);
        let summary = place.through(&proxy).with(command).run().ran().json();
        assert_eq!(outcome(&summary, "exactly-once"), "pass");
        assert_eq!(proxy.most_in_flight(), limit);
    }
}

#[test]
fn connections_are_kept() {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = generate(&dir, &place, &["dataset.format=jpeg"]);
    let proxy = Proxy::to(&place.endpoint).start();
    let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--data-dir", &url];
    place
        .through(&proxy)
        .with(dir.feedline(&args).set(&["dataset.format=jpeg", "train.epochs=4"]))
        .run()
        .ran();
    let (connections, requests) = (proxy.connections(), proxy.requests());
    assert!(requests >= 96, "{requests}");
    // Lanes are made anew for every epoch, and files are looked at by several threads before the first one.
    assert!(3 * connections <= requests, "{connections} for {requests} requests");
}
