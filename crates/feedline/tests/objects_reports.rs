//! What users see of object stores: the plan, the table of requests and its file, and sweeps over what matters there.

use serde_json::Value;

use crate::objects::proxy::{Ask, Proxy, Rule, Trouble};
use crate::objects::servers::Place;
use crate::schemas::Documents;
use crate::util::Dir;

const SETTINGS: [&str; 5] = [
    "dataset.format=jpeg",
    "dataset.num_files_train=8",
    "dataset.record_length_bytes=300000",
    "train.computation_time=0.01",
    "train.epochs=1",
];

fn with_data() -> (Dir, Place, String) {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("data");
    let args = ["generate", "w.yaml", "--quiet", "--data-dir", &url];
    place.with(dir.feedline(&args).set(&SETTINGS)).run().exits(0);
    (dir, place, url)
}

/// The part of a text from a line that begins with a word to the next empty line.
fn section<'a>(text: &'a str, title: &str) -> &'a str {
    let start = text.find(title).unwrap_or_else(|| panic!("no {title} in:\n{text}"));
    text[start..].split("\n\n").next().unwrap()
}

#[test]
fn the_plan_has_requests_and_connections() {
    let dir = Dir::small();
    // Two requests per sample; a batch of 2 samples per 10 ms on each of 4 ranks.
    let range = ["reader.transfer_size=200KiB", "reader.batch_size=2", "dataset.num_files_train=64"];
    let args = ["plan", "w.yaml", "--ranks", "4", "--set", "storage.storage_root=s3://bucket"];
    let text = dir.feedline(&args).set(&SETTINGS).set(&range).run().exits(0).stdout;
    for line in [
        "requests  2.00 per sample, 1600/s for all accelerators",
        "connections needed  16 at 10 ms, 32 at 20 ms, 80 at 50 ms per request",
        "requests in flight  at most ",
    ] {
        let shown: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(&wanted), "{line}:\n{text}");
    }
}

#[test]
fn a_result_has_the_table_of_requests_and_its_file() {
    let (dir, place, url) = with_data();
    let slow = Rule::new(Trouble::SlowDown(0)).only(Ask::Get).key("/train/").limit(3);
    let proxy = Proxy::to(&place.endpoint).rule(slow).start();
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--data-dir", &url];
    let done = place.through(&proxy).with(dir.feedline(&args).set(&SETTINGS)).run().ran();
    let table = section(&done.stdout, "epoch  requests");
    let cells: Vec<&str> = table.lines().last().unwrap().split_whitespace().collect();
    // Eight samples, each a whole object, and three attempts that were refused.
    assert_eq!((cells[0], cells[1]), ("1", "11"), "{table}");
    assert!(table.ends_with("3 throttled"), "{table}");
    let result = dir.result();
    let lines: Vec<String> = dir.read(&format!("{result}/requests.csv")).lines().map(str::to_owned).collect();
    let [header, line] = lines.as_slice() else { panic!("one epoch: {lines:?}") };
    let field = |name: &str| {
        let at = header.split(',').position(|column| column == name).unwrap();
        line.split(',').nth(at).unwrap().to_owned()
    };
    let summary: Value = dir.json(&format!("{result}/summary.json"));
    let requests = &summary["feedline"]["epochs"][0]["requests"];
    for (name, value) in [("requests", 11), ("answered", 8), ("failed_throttled", 3)] {
        assert_eq!(field(name), value.to_string(), "{name}: {line}");
    }
    assert_eq!(requests["requests"], 11);
    assert_eq!(requests["failed_attempts"]["throttled"], 3);
    assert_eq!(field("needed_bytes"), requests["needed_bytes"].to_string());
    for span in ["connect", "first_byte", "body"] {
        assert!(field(&format!("{span}_p50_ns")).parse::<u64>().unwrap() > 0, "{span}: {line}");
    }
    let mut documents = Documents::of(&dir);
    documents.result(&result);
    documents.match_their_schemas();
}

/// Every lever changes what the server sees.
#[test]
fn sweeps_vary_ranges_requests_in_flight_and_endpoints() {
    let (dir, place, url) = with_data();
    let second = Proxy::to(&place.endpoint).start();
    let first = Proxy::to(&place.endpoint).start();
    let endpoints = format!("storage.endpoint_uris=[\"{}\",\"{}\"]", first.endpoint(), second.endpoint());
    let sweep = |over: &str, output: &str| {
        let args = ["sweep", "w.yaml", "--quiet", "--no-calibration", "--json", "--repeat", "1"];
        let command = dir.feedline(&args).args(&["--data-dir", &url, "--over", over, "--output", output]);
        let done = place.with(command.set(&SETTINGS).set(&[&endpoints])).env("AWS_ENDPOINT_URL", "").run();
        assert!(matches!(done.code(), Some(0 | 5)), "{}", done.stderr);
        let cells = done.json()["cells"].as_array().unwrap().len();
        assert_eq!(cells, 2, "{over}: {}", done.stdout);
    };
    sweep("storage.endpoint_count=1,2", "endpoints");
    assert!(first.requests() > second.requests() && second.requests() > 0, "the second is used by one cell");
    let ranged = || first.log().iter().chain(&second.log()).filter(|line| line.contains("bytes=")).count();
    let before = ranged();
    sweep("reader.transfer_size=128KiB,8MiB", "ranges");
    assert!(ranged() > before, "small ranges are requested: {:?}", first.log());
    sweep("storage.requests_in_flight=1,64", "in-flight");
}
