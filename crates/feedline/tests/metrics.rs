//! Live figures for collectors: promtool, a real Prometheus and the parser of prometheus_client accept them, the totals
//! are those of the ledger, mistakes are found before the work, and a hostile client changes nothing in the run.

mod hostile;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::launch::Mpi;
use crate::objects::proxy::{Ask, Proxy, Rule, Trouble};
use crate::objects::servers::Place;
use crate::util::{Dir, Done, Running, SMALL, TINY_MODEL};

const LIMIT: Duration = Duration::from_secs(60);
const LINGER: [&str; 2] = ["--metrics-linger", "60s"];

/// A port that is free at this moment.
pub(crate) fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The answer to a request, with its head; `None` if there is no server, or no complete answer.
pub(crate) fn ask(address: &str, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.contains("\r\n\r\n").then_some(answer)
}

/// The page in one of the two formats.
pub(crate) fn page(address: &str, accept: &str) -> Option<String> {
    let answer = ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n"))?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    Some(body.to_owned())
}

pub(crate) const OPEN: &str = "application/openmetrics-text";

/// The samples of a page in text form: name with labels, and value.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

/// Waits until the page says that the work has ended, and returns it.
fn final_page(running: &mut Running<'_>, address: &str) -> String {
    let mut last = String::new();
    running.until("the final figures", || {
        last = page(address, OPEN).unwrap_or_default();
        last.contains("\nfeedline_finished 1\n")
    });
    last
}

/// Ends a run that lingers, which takes less than the span that it was given.
fn end(mut running: Running<'_>) -> Done {
    running.signal(Signal::TERM);
    assert!(running.ends_within(Duration::from_secs(20)), "a signal ends --metrics-linger");
    running.wait()
}

/// What the figures must be at the end, by the ledger of the only result.
fn totals(dir: &Dir) -> BTreeMap<String, f64> {
    let ledger = dir.json(&format!("{}/ledger.json", dir.result()));
    let mut totals: BTreeMap<String, f64> = BTreeMap::new();
    let mut add = |name: String, value: &Value| {
        *totals.entry(format!("feedline_{name}")).or_default() += value.as_f64().unwrap();
    };
    for row in ledger["ranks"].as_array().unwrap() {
        let seen = &row["seen"];
        for (name, key) in
            [("samples", "samples_delivered"), ("read_bytes", "bytes_read"), ("steps", "steps")]
        {
            add(format!("{name}_total"), &seen[key]);
            add(format!("rank_{name}_total{{rank=\"{}\"}}", row["index"]), &seen[key]);
        }
        add("failed_samples_total".to_owned(), &seen["failed"]["samples"]);
        for part in ["wait", "copy", "compute", "barrier", "checkpoint"] {
            let seconds = seen[format!("{part}_ns")].as_f64().unwrap() / 1e9;
            add(format!("time_seconds_total{{part=\"{part}\"}}"), &seconds.into());
        }
    }
    for row in ledger["nodes"].as_array().unwrap() {
        let (errors, requests) = (&row["seen"]["errors"], &row["seen"]["requests"]);
        add("errors_total".to_owned(), &0.into());
        for tally in errors.as_object().unwrap().values() {
            add("errors_total".to_owned(), &tally["count"]);
        }
        // Reads of files make no requests, and the ledger leaves them out.
        if !requests.is_null() {
            add("requests_total".to_owned(), &requests["requests"]);
            add("received_bytes_total".to_owned(), &requests["received_bytes"]);
            add("failed_attempts_total{kind=\"server-error\"}".to_owned(), &requests["failures"][1]);
        }
    }
    let saves = ledger["checkpoints"]["saves"].as_array().cloned().unwrap_or_default();
    add("checkpoints_total".to_owned(), &saves.len().into());
    for save in &saves {
        add("checkpoint_bytes_total".to_owned(), &save["bytes"]);
        add("drained_checkpoints_total".to_owned(), &u64::from(!save["drain_ns"].is_null()).into());
    }
    totals
}

#[track_caller]
fn equals_ledger(dir: &Dir, seen: &BTreeMap<String, f64>) {
    let expected = totals(dir);
    let is_something = |name: &str| expected.get(name).is_some_and(|count| *count > 0.0);
    assert!(is_something("feedline_samples_total") || is_something("feedline_checkpoints_total"));
    for (name, value) in expected {
        let there = seen.get(&name).unwrap_or_else(|| panic!("{name} is missing in {seen:#?}"));
        // Seconds are sums of decimal fractions.
        assert!((there - value).abs() <= value * 1e-12 + 1e-9, "{name}: {there} instead of {value}");
    }
}

/// A program of Debian's package `prometheus`.
fn prometheus_program(name: &str) -> PathBuf {
    let folder = std::env::var("FEEDLINE_TEST_PROMETHEUS")
        .expect("FEEDLINE_TEST_PROMETHEUS is not set: run scripts/test, which installs Prometheus");
    Path::new(&folder).join(name)
}

/// Runs a program with this input; returns its exit code and output.
fn filter(mut command: Command, input: &str) -> (Option<i32>, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    (done.status.code(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
}

/// promtool has no complaint about a page in the older format.
fn passes_promtool(page: &str) {
    let mut command = Command::new(prometheus_program("promtool"));
    command.args(["check", "metrics"]);
    let (code, said) = filter(command, page);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{page}");
}

/// The samples of a page of OpenMetrics according to prometheus_client.
fn parsed(page: &str) -> Vec<Value> {
    let python = std::env::var("FEEDLINE_TEST_PYTHON").expect("FEEDLINE_TEST_PYTHON is set by scripts/test");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/openmetrics.py");
    let mut command = Command::new(python);
    command.arg(script).env("PYTHONDONTWRITEBYTECODE", "1");
    let (code, said) = filter(command, page);
    assert_eq!(code, Some(0), "{said}\n{page}");
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn both_formats_are_accepted_and_equal_the_ledger() {
    let (dir, address) = (Dir::small_with_data(), free_address());
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--ranks", "2", "--metrics", &address];
    let mut running = dir.feedline(&args).args(&["--metrics-file", "m.prom"]).args(&LINGER).start();
    let open = final_page(&mut running, &address);
    let text = page(&address, "text/plain;version=0.0.4").unwrap();
    passes_promtool(&text);
    equals_ledger(&dir, &samples(&open));
    assert_eq!(samples(&open), samples(&text), "both formats have the same samples");
    assert_eq!(dir.read("m.prom"), text, "the file has the final figures");
    let samples = parsed(&open);
    assert_eq!(samples.len(), self::samples(&open).len());
    let run = samples.iter().find(|sample| sample["name"] == "feedline_run_info").unwrap();
    assert_eq!((&run["type"], &run["labels"]["workload"]), (&"info".into(), &"w".into()));
    let summary = dir.json(&format!("{}/summary.json", dir.result()));
    assert_eq!(run["labels"]["plan"], summary["feedline"]["plan_digest"]);
    end(running).ran();
}

/// A Prometheus that is ended with the test.
struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(dir: &Dir, scraped: &str) -> Prometheus {
        let address = free_address();
        dir.write(
            "prometheus.yml",
            format!(
                "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n- job_name: feedline\n  \
                 static_configs: [{{targets: ['{scraped}']}}]\n"
            ),
        );
        let log = fs::File::create(dir.path("prometheus.log")).unwrap();
        let child = Command::new(prometheus_program("prometheus"))
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=tsdb"])
            .arg(format!("--web.listen-address={address}"))
            .current_dir(dir.path("."))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Prometheus { child, address }
    }

    /// The last values of all series of feedline.
    fn stored(&self) -> Option<BTreeMap<String, f64>> {
        let query = "/api/v1/query?query=%7Bjob%3D%22feedline%22%7D";
        let answer = ask(&self.address, &format!("GET {query} HTTP/1.0\r\nHost: x\r\n\r\n"))?;
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        let series = body["data"]["result"].as_array()?.iter().map(|series| {
            let labels = series["metric"].as_object().unwrap().iter();
            let own = labels.filter(|(name, _)| !["__name__", "job", "instance"].contains(&name.as_str()));
            let own: Vec<String> = own.map(|(name, value)| format!("{name}={value}")).collect();
            let own = if own.is_empty() { String::new() } else { format!("{{{}}}", own.join(",")) };
            let name = format!("{}{own}", series["metric"]["__name__"].as_str().unwrap());
            (name, series["value"][1].as_str().unwrap().parse().unwrap())
        });
        Some(series.collect())
    }
}

#[test]
fn a_real_prometheus_stores_the_totals_of_the_ledger() {
    let (dir, address) = (Dir::new(), free_address());
    dir.write("w.yaml", SMALL.replace("computation_time: 0", "computation_time: 0.05"));
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    let prometheus = Prometheus::start(&dir, &address);
    // Prometheus begins to scrape some seconds after its start; without a server, the target is down.
    let begin = Instant::now();
    while prometheus.stored().is_none_or(|stored| !stored.contains_key("up")) {
        assert!(begin.elapsed() < LIMIT, "{}", dir.read("prometheus.log"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--metrics", &address];
    let mut running = dir.feedline(&args).args(&LINGER).start();
    let (mut stored, mut partial) = (BTreeMap::new(), 0);
    running.until("the final figures in Prometheus", || {
        assert!(begin.elapsed() < 2 * LIMIT, "{stored:#?}\n{}", dir.read("prometheus.log"));
        stored = prometheus.stored().unwrap_or_default();
        let samples = stored.get("feedline_samples_total").copied().unwrap_or(0.0);
        partial += u64::from(samples > 0.0 && samples < 48.0);
        stored.get("feedline_finished") == Some(&1.0)
    });
    assert!(partial > 0, "figures of the running run were stored, too");
    equals_ledger(&dir, &stored);
    end(running).ran();
}

#[test]
fn errors_and_retries_of_an_object_store_are_counted_and_no_secret_is_shown() {
    let (dir, place, address) = (Dir::small(), Place::s3(), free_address());
    let url = place.url("data");
    let settings = [
        "train.epochs=1",
        "reader.on_error=count",
        "storage.retry_attempts=2",
        "train.computation_time=0.01",
    ];
    let generate = ["generate", "w.yaml", "--quiet", "--data-dir", &url];
    place.with(dir.feedline(&generate).set(&settings)).run().exits(0);
    let rule = Rule::new(Trouble::Status(500)).only(Ask::Get).key("train/img_07_of_24.npz").limit(u64::MAX);
    let proxy = Proxy::to(&place.endpoint).rule(rule).start();
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--data-dir", &url, "--metrics", &address];
    let command = dir.feedline(&args).args(&["--metrics-file", "m.prom"]).args(&LINGER).set(&settings);
    let mut running = place.through(&proxy).with(command).start();
    let open = final_page(&mut running, &address);
    let seen = samples(&open);
    equals_ledger(&dir, &seen);
    assert_eq!((seen["feedline_errors_total"], seen["feedline_failed_samples_total"]), (1.0, 1.0));
    assert!(seen["feedline_failed_attempts_total{kind=\"server-error\"}"] >= 2.0);
    let secrets: Vec<String> = place.environment().into_iter().map(|(_, value)| value).collect();
    let hidden = secrets.iter().map(String::as_str).filter(|secret| *secret != "us-east-1");
    for hidden in
        hidden.chain([place.bucket.as_str(), &place.prefix, "img_", "train/", dir.path("").to_str().unwrap()])
    {
        for page in [&open, &dir.read("m.prom"), &ask(&address, "GET / HTTP/1.1\r\n\r\n").unwrap()] {
            assert!(!page.contains(hidden), "{hidden} is in\n{page}");
        }
    }
    end(running).ran();
}

#[test]
fn checkpoints_and_drains_are_counted() {
    let (dir, address) = (Dir::new(), free_address());
    dir.write("w.yaml", TINY_MODEL);
    let args = ["run", "w.yaml", "--quiet", "--ranks", "2", "--metrics", &address, "--save", "burst-buffer"];
    let settings = [
        "checkpoint.checkpoint_folder=ck",
        "checkpoint.burst_folder=fast",
        "checkpoint.num_checkpoints_write=3",
        "checkpoint.num_checkpoints_read=2",
    ];
    let mut running = dir.feedline(&args).args(&LINGER).set(&settings).start();
    let seen = samples(&final_page(&mut running, &address));
    equals_ledger(&dir, &seen);
    let count = |name: &str| seen[&format!("feedline_{name}")];
    assert_eq!([count("checkpoints_total"), count("restores_total")], [3.0, 2.0]);
    assert_eq!([count("drained_checkpoints_total"), count("undrained_checkpoints")], [3.0, 0.0]);
    assert!(count("checkpoint_bytes_total") > 0.0);
    // The restores are from memory, which the verdict notices.
    let code = end(running).code();
    assert!([Some(0), Some(5)].contains(&code), "{code:?}");
}

#[test]
fn process_0_serves_the_figures_of_all_processes() {
    let (dir, address) = (Dir::small_with_data(), free_address());
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--metrics", &address];
    let job = Mpi::OpenMpi4.feedline(&dir, 2, &[&args[..], &["--metrics-linger", "2s"]].concat());
    let mut job = job.set(&["train.computation_time=0.01"]).start();
    let mut last = String::new();
    job.until("the final figures", || {
        last = page(&address, OPEN).unwrap_or_default();
        last.contains("\nfeedline_finished 1\n")
    });
    let seen = samples(&last);
    equals_ledger(&dir, &seen);
    assert_eq!((seen["feedline_samples_total"], seen["feedline_ranks"]), (48.0, 2.0));
    assert_eq!(seen["feedline_rank_samples_total{rank=\"1\"}"], 24.0);
    assert!(seen.keys().filter(|name| name.starts_with("feedline_node_samples")).count() == 1);
    job.wait().ran();
}

#[test]
fn a_study_adds_up_the_runs() {
    let (dir, address) = (Dir::small_with_data(), free_address());
    let args = ["sweep", "w.yaml", "--quiet", "--no-calibration", "--output", "s", "--metrics", &address];
    let over = ["--over", "reader.read_threads=1,2", "--repeat", "2"];
    let mut running = dir.feedline(&args).args(&over).args(&LINGER).start();
    let seen = samples(&final_page(&mut running, &address));
    // 4 runs of 2 epochs of 24 samples, in steps of 2.
    assert_eq!((seen["feedline_samples_total"], seen["feedline_steps_total"]), (192.0, 96.0));
    assert_eq!(seen["feedline_rank_samples_total{rank=\"0\"}"], 192.0);
    end(running);
}

#[test]
fn generated_files_are_counted_and_the_file_is_kept() {
    let dir = Dir::small();
    dir.feedline(&["generate", "w.yaml", "--quiet", "--metrics-file", "m.prom"]).run().exits(0).silent();
    let text = dir.read("m.prom");
    passes_promtool(&text);
    assert_eq!(samples(&text)["feedline_files_total"], 24.0);
    // A second command replaces it by another file.
    let before = fs::File::open(dir.path("m.prom")).unwrap();
    dir.feedline(&["generate", "w.yaml", "--quiet", "--metrics-file", "m.prom"]).run().exits(0).silent();
    let inode = |facts: fs::Metadata| facts.ino();
    assert_ne!(inode(before.metadata().unwrap()), inode(fs::metadata(dir.path("m.prom")).unwrap()));
    assert!(!dir.listing().iter().any(|name| name.ends_with(".partial")));
}

#[test]
fn a_name_with_quotes_and_line_breaks_is_a_label() {
    let dir = Dir::small_with_data();
    let name = "a\"b\\c<script>\nd";
    dir.write(&format!("{name}.yaml"), dir.read("w.yaml"));
    let args = ["run", &format!("{name}.yaml"), "--quiet", "--no-calibration", "--metrics-file", "m.prom"];
    dir.feedline(&args).run().ran();
    let text = dir.read("m.prom");
    passes_promtool(&text);
    assert!(text.contains("workload=\"a\\\"b\\\\c<script>\\nd\""), "{text}");
}

#[test]
fn mistakes_are_found_before_the_work() {
    let (dir, taken) = (Dir::small(), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = taken.local_addr().unwrap().to_string();
    fs::create_dir(dir.path("folder.prom")).unwrap();
    dir.write("target", "theirs");
    symlink("target", dir.path("link.prom")).unwrap();
    symlink("nowhere", dir.path("dangling.prom")).unwrap();
    for (flags, code, says) in [
        (&["--metrics", port.as_str()][..], 3, "choose another port"),
        (&["--metrics", "9184"], 2, "such as 127.0.0.1:9184"),
        (&["--metrics", "127.0.0.1:99999"], 2, "such as 127.0.0.1:9184"),
        (&["--metrics", "192.0.2.1:9184"], 3, "choose an address of this host"),
        (&["--metrics-linger", "1s"], 2, "--metrics <ADDRESS>"),
        (&["--metrics", "127.0.0.1:0", "--metrics-linger", "5"], 2, "5"),
        (&["--metrics-file", "m.txt"], 2, "end in .prom"),
        (&["--metrics-file", "none/m.prom"], 3, "create its folder"),
        (&["--metrics-file", "folder.prom"], 3, "a folder"),
        (&["--metrics-file", "link.prom"], 3, "a symbolic link"),
        (&["--metrics-file", "dangling.prom"], 3, "a symbolic link"),
    ] {
        for command in ["run", "generate"] {
            let args = [&[command, "w.yaml", "--quiet"], flags].concat();
            dir.feedline(&args).run().exits(code).says(says);
        }
        assert!(!dir.path("data").exists(), "{flags:?}: nothing was written");
    }
    assert_eq!(dir.read("target"), "theirs");
    assert!(!dir.path("nowhere").exists());
}

#[test]
fn the_port_is_printed_if_the_system_chooses_it_and_other_hosts_are_mentioned() {
    let dir = Dir::small_with_data();
    let run = |address: &str| {
        let args = ["run", "w.yaml", "--no-calibration", "--metrics", address];
        dir.feedline(&args).run().ran().stderr
    };
    let said = run("127.0.0.1:0");
    assert!(said.contains("metrics at http://127.0.0.1:") && !said.contains("can read"), "{said}");
    let said = run("0.0.0.0:0");
    assert!(said.contains("warning: every host that can reach 0.0.0.0:"), "{said}");
}

/// The run is not affected by a full disk: the last complete file stays, and a warning says what happened.
#[test]
fn a_metrics_file_on_a_full_disk_changes_nothing_in_the_run() {
    let dir = Dir::small_with_data();
    fs::create_dir(dir.path("small")).unwrap();
    let program = env!("CARGO_BIN_EXE_feedline");
    let run = "run w.yaml --no-calibration --metrics-file small/m.prom --set train.computation_time=0.05";
    let script = format!(
        "mount -t tmpfs -o size=64k tmpfs small || exit 99
         {program} {run} --json > out.json 2> said & run=$!
         until [ -s small/m.prom ]; do kill -0 $run || exit 98; sleep 0.01; done
         cat /dev/zero > small/filler 2> full
         wait $run; echo $? > code
         cp small/m.prom kept.prom; ls small > listed
         {program} {run} > out 2> refused; echo $? > code-refused"
    );
    let namespace = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let done = dir.command(Path::new("unshare"), &[namespace, "bash", "-c", &script]).run();
    assert_ne!(done.code(), Some(99), "a disk of its own needs a mount namespace: {}", done.stderr);
    let done = done.exits(0);
    let said = dir.read("said");
    assert!(said.contains("warning: cannot write the metrics file: "), "{said}{}", done.stderr);
    assert!(["0", "5"].contains(&dir.read("code").trim()), "{said}");
    let epochs = &dir.json("out.json")["feedline"]["epochs"];
    assert_eq!((&epochs[0]["samples_delivered"], &epochs[1]["samples_delivered"]), (&24.into(), &24.into()));
    assert_eq!(dir.read("listed"), "filler\nm.prom\n", "no partial file is left");
    passes_promtool(&dir.read("kept.prom"));
    assert_eq!(dir.read("code-refused").trim(), "3", "{}", dir.read("refused"));
}

/// Every metric of the table is in docs/guides/live.md, and the other way round.
#[test]
fn the_documentation_has_the_metrics_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/guides/live.md")).unwrap();
    let listed: Vec<&str> = page.lines().filter(|line| line.starts_with("| `feedline_")).collect();
    let expected: Vec<String> = ::report::openmetrics::FAMILIES
        .iter()
        .map(|family| {
            let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let (name, kind) = (family.sample_name(), family.kind.name());
            format!("| `{name}` | {kind} | {} | {} |", labels.join(", "), family.help)
        })
        .collect();
    assert_eq!(listed, expected, "the table must be:\n{}", expected.join("\n"));
}

/// Every query of the dashboard uses metrics that exist, and every panel has what Grafana needs.
#[test]
fn the_dashboard_queries_metrics_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/grafana.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let known: Vec<String> = ::report::openmetrics::FAMILIES
        .iter()
        .map(::report::openmetrics::MetricFamily::sample_name)
        .collect();
    for field in ["title", "uid", "schemaVersion", "time", "templating", "panels", "__inputs"] {
        assert!(!board[field].is_null(), "{field} is missing");
    }
    let mut queries = Vec::new();
    for panel in board["panels"].as_array().unwrap() {
        for field in ["id", "type", "title", "gridPos", "datasource", "targets", "fieldConfig"] {
            assert!(!panel[field].is_null(), "{field} is missing in {panel:#}");
        }
        for target in panel["targets"].as_array().unwrap() {
            assert!(target["refId"].is_string(), "{target}");
            queries.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    let variables = board["templating"]["list"].as_array().unwrap();
    queries.extend(variables.iter().filter_map(|list| Some(list["query"].as_str()?.to_owned())));
    assert!(queries.len() > 12, "{queries:?}");
    let mut used = 0;
    for query in &queries {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("feedline_")) {
            assert!(known.iter().any(|name| name == word), "{word} in {query} is not a metric");
            used += 1;
        }
    }
    assert!(used >= queries.iter().filter(|query| query.contains("feedline")).count());
}

/// Prometheus can evaluate every query of the dashboard: with rules that use them, promtool finds no mistake.
#[test]
fn the_queries_of_the_dashboard_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let board: Value =
        serde_json::from_str(&fs::read_to_string(root.join("docs/grafana.json")).unwrap()).unwrap();
    let panels = board["panels"].as_array().unwrap().iter();
    let queries = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let rules = queries.enumerate().map(|(number, target)| {
        let query =
            target["expr"].as_str().unwrap().replace("$instance", "a").replace("$__rate_interval", "1m");
        format!("  - record: r{number}\n    expr: {}\n", Value::from(query))
    });
    let dir = Dir::new();
    dir.write("rules.yml", format!("groups:\n- name: a\n  rules:\n{}", rules.collect::<String>()));
    dir.command(&prometheus_program("promtool"), &["check", "rules", "rules.yml"]).run().exits(0);
}
